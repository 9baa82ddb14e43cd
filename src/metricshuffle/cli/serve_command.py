"""`metricshuffle serve`: the shuffler."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Annotated

import typer

from metricshuffle.cli.shared_options import Json

Database = Annotated[
    str,
    typer.Option(
        "--store", metavar="DATABASE",
        help="Where reports wait until they are shuffled: sqlite:///shuffler.db, a file that is made, or postgresql://user@host/name.",
    ),
]  # fmt: skip
KeyFolder = Annotated[
    Path,
    typer.Option("--keys", metavar="FOLDER", help="For the shuffler's secrets; made, with the operator's token in it, on first start."),
]
Listen = Annotated[str, typer.Option("--listen", metavar="ADDRESS", help="Address and port; port 0 takes one that is free.")]
Certificate = Annotated[Path | None, typer.Option("--certificate", metavar="FILE", help="For TLS: the certificates, in PEM.")]
Key = Annotated[Path | None, typer.Option("--key", metavar="FILE", help="For TLS: the key of the certificate, in PEM.")]
After = Annotated[
    str | None, typer.Option("--after", metavar="URL", help="The shuffler before this one in a chain; without it people report here.")
]
Origins = Annotated[
    list[str] | None,
    typer.Option("--origin", metavar="URL", help="A site like https://survey.example whose pages may send reports; may be repeated."),
]

Abandon = Annotated[
    list[str] | None,
    typer.Option(
        "--abandon", metavar="DIGEST", help="Abort this collection, because its keys are lost from the folder of --keys; may be repeated."
    ),
]

ClockJump = Annotated[
    float,
    typer.Option(
        "--clock-jump", metavar="SECONDS",
        help="How far the clock may jump ahead before nothing is sealed or destroyed by it until you confirm it.",
    ),
]  # fmt: skip

WitnessUrl = Annotated[
    str | None,
    typer.Option(
        "--witness", metavar="URL",
        help="A shuffler of somebody else that countersigns the one set of messages of each collection that leaves this one.",
    ),
]  # fmt: skip
WitnessFor = Annotated[
    list[str] | None,
    typer.Option(
        "--witness-for", metavar="KEY",
        help="Be the witness of the shuffler with this key, which its serve --witness says at its start; may be repeated.",
    ),
]  # fmt: skip


def serve(
    store: Database,
    keys: KeyFolder,
    listen: Listen = "127.0.0.1:8460",
    certificate: Certificate = None,
    key: Key = None,
    after: After = None,
    origin: Origins = None,
    abandon: Abandon = None,
    clock_jump: ClockJump = 300,
    witness: WitnessUrl = None,
    witness_for: WitnessFor = None,
    as_json: Json = False,
) -> None:
    """Operator: run a shuffler that takes sealed reports, mixes them at the closing time and lets them go to the analyst.

    It can be stopped or killed at any time, and goes on when it is started again. With --json the first line tells the address, once
    reports are accepted.
    """
    from metricshuffle.cli.console import print_error, say, screen
    from metricshuffle.collection.shuffler.server import Listener, ShufflerServer, validate_address
    from metricshuffle.collection.witness import checked_key
    from metricshuffle.errors import require

    for module in ("granian", "starlette", "httpx"):
        require(module, "service")
    listener = Listener.of(listen, certificate, key)
    serving = ShufflerServer(
        store,
        keys,
        listener,
        None if after is None else validate_address(after, "--after"),
        tuple(validate_address(site, "--origin") for site in origin or ()),
        tuple(abandon or ()),
        clock_jump,
        None if witness is None else validate_address(witness, "--witness"),
        tuple(checked_key(key, "--witness-for") for key in witness_for or ()),
    )

    def ready(url: str) -> None:
        document = {"listening": url, "pid": os.getpid(), "store": store.split(":", 1)[0], "keys": str(keys)}
        if as_json:
            print(json.dumps(document), flush=True)
        else:
            say(screen(), f"Listening on {url}; the operator's token is in {keys / 'operator.token'}. Stop with Ctrl-C.")

    serving.run(ready, print_error)
