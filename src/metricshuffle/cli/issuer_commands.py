"""`metricshuffle issuer`: a demonstration of the party that gives each person a token."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from metricshuffle.cli.shared_options import Json, command_group, whole, writable

ABOUT = """A demonstration issuer, which gives each person with a ticket one token for a collection.

For tests and demonstrations only: signing in Python takes time that depends on the key. An issuer is another party than the shufflers and the analyst. It learns who takes part in the collection, and when they ask for tokens."""  # noqa: E501

issuer = command_group(ABOUT)

Folder = Annotated[
    Path, typer.Argument(metavar="FOLDER", help="Folder of the issuer's key and tickets.")
]


@issuer.command("new")
def new_issuer(
    folder: Folder,
    url: Annotated[
        str,
        typer.Option(
            "--url",
            metavar="URL",
            help="Public address for requests, like https://issuer.example/token-request.",
        ),
    ],
    tickets: Annotated[
        int,
        typer.Option("--tickets", parser=whole, metavar="N", help="Number of tickets to make."),
    ],
    tickets_file: Annotated[
        Path,
        typer.Option(
            "--tickets-file",
            metavar="FILE",
            help="File for the tickets, one per line; each person gets one.",
        ),
    ],
    as_json: Json = False,
) -> None:
    """Issuer: make a key for one collection, and tickets.

    FOLDER/issuer.json is public: it is the --issuer of `metricshuffle collection open`.
    """
    from metricshuffle.cli.console import say, screen
    from metricshuffle.collection.issuer.token_issuer import PUBLIC_FILE, TokenIssuer
    from metricshuffle.collection.keys import write_secret
    from metricshuffle.errors import InputError, require
    from metricshuffle.files import completed

    require("cryptography.hazmat.primitives.hpke", "service")
    writable(tickets_file, option="--tickets-file")
    if tickets_file.exists():
        raise InputError(
            f"--tickets-file {tickets_file} exists, and tickets are never replaced; give another "
            "name."
        )
    made = TokenIssuer.new(folder, url, tickets)
    write_secret(tickets_file, "".join(f"{ticket}\n" for ticket in made).encode())
    public = folder / PUBLIC_FILE
    completed.extend([str(public), str(tickets_file)])
    if as_json:
        print(json.dumps({"public": str(public), "tickets_file": str(tickets_file)}))
        return
    say(
        screen(),
        f"{public} is the --issuer of metricshuffle collection open; {tickets_file} has "
        f"{tickets:,} tickets.",
        "This is a demonstration issuer, for tests and demonstrations only.",
    )


@issuer.command("serve")
def serve_issuer(
    folder: Folder,
    listen: Annotated[
        str,
        typer.Option(
            "--listen",
            metavar="HOST:PORT",
            help="Address to listen on, behind a proxy with TLS; port 0 takes any free one.",
        ),
    ] = "127.0.0.1:8461",
    as_json: Json = False,
) -> None:
    """Issuer: answer requests for tokens until it is stopped. Nothing of a request is logged.

    With --json, the first line contains the address and is printed once requests are answered.
    """
    import signal
    import threading

    from metricshuffle.cli.console import note, say, screen
    from metricshuffle.collection.issuer.issuer_server import serving_issuer
    from metricshuffle.collection.issuer.token_issuer import TokenIssuer
    from metricshuffle.collection.shuffler.server import Listener

    listener = Listener.of(listen)
    loaded = TokenIssuer.load(folder)
    note(
        "This is a demonstration issuer, for tests and demonstrations only: the time that it takes "
        "to sign depends on its key. It learns who takes part, and when they ask."
    )
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    with serving_issuer(loaded, (listener.host, listener.port)) as server:
        if as_json:
            print(json.dumps({"listening": server.url, "url": loaded.public.url}), flush=True)
        else:
            say(
                screen(),
                f"Tokens are given at {server.url}, which people know as {loaded.public.url}.",
            )
        stop.wait()
