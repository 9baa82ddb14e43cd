"""`metricshuffle web`: the planner page and the console, in a browser on this machine."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from metricshuffle.cli.shared_options import Json, whole
from metricshuffle.errors import InputError
from metricshuffle.files import check_private, read_text

if TYPE_CHECKING:
    from metricshuffle.web.page_server import Address


TOKEN_VARIABLE = "METRICSHUFFLE_WEB_TOKEN"  # noqa: S105 - the name of it


def web(
    host: Annotated[
        str,
        typer.Option(
            "--host",
            metavar="ADDRESS",
            help=(
                "Address to listen on; an address that other machines can reach requires a token."
            ),
        ),
    ] = "127.0.0.1",
    port: Annotated[
        int,
        typer.Option(
            "--port", parser=whole, metavar="N", help="Port to listen on; 0 selects a free port."
        ),
    ] = 0,
    token: Annotated[
        str | None,
        typer.Option(
            "--token",
            metavar="WORD",
            help=(
                "Token that opens the page, at least 8 letters or digits; random if left out. "
                "Visible in the list of processes: prefer --token-file."
            ),
        ),
    ] = None,
    token_file: Annotated[
        Path | None,
        typer.Option(
            "--token-file",
            metavar="FILE",
            help=(
                "File with the token; if neither option is given, the environment variable "
                f"{TOKEN_VARIABLE}."
            ),
        ),
    ] = None,
    no_browser: Annotated[
        bool, typer.Option("--no-browser", help="Print the link without opening a browser.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Open the planner page in a browser. It loads nothing from other machines; Ctrl-C ends it."""
    import json

    from metricshuffle.cli.console import note, say, screen
    from metricshuffle.web.page_server import address, require_web_extra, serve

    require_web_extra()

    def ready(where: Address) -> None:
        if as_json:
            print(
                json.dumps({"url": where.url, "host": where.host, "port": where.port}), flush=True
            )
        else:
            say(screen(), f"The page: {where.url}")
            note("Whoever has this link can use the page. Ctrl-C ends it.")
        if not no_browser and not as_json:
            import webbrowser

            webbrowser.open(where.one_time_url)

    serve(address(host, port, _read_token(token, token_file)), ready)


def _read_token(token: str | None, file: Path | None) -> str | None:
    """Return the chosen token of the page, from the option, a file or the environment, or None."""
    if token is not None and file is not None:
        raise InputError("give --token or --token-file, and not both.")
    if file is not None:
        check_private(file, "the token of the page")
        return read_text(file).strip()
    return token if token is not None else os.environ.get(TOKEN_VARIABLE)
