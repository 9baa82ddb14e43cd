"""`metricshuffle web`: the planner page and the console, in a browser on this machine."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from metricshuffle.cli.options import Json, whole

if TYPE_CHECKING:
    from metricshuffle.web.serving import Address


def web(
    host: Annotated[
        str, typer.Option("--host", metavar="ADDRESS", help="Where to listen; another one than this machine's own needs --token.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option("--port", parser=whole, metavar="N", help="Which port; 0 takes a free one.")] = 0,
    token: Annotated[
        str | None, typer.Option("--token", metavar="WORD", help="What opens the page, 8 letters or more; random if left out.")
    ] = None,
    no_browser: Annotated[bool, typer.Option("--no-browser", help="Do not open a browser; print the link only.")] = False,
    as_json: Json = False,
) -> None:
    """Open the planner page: ask, wish, see, try and take along in a browser. It loads and sends nothing; Ctrl-C ends it."""
    import json

    from metricshuffle.cli.screen import note, say, screen
    from metricshuffle.web.serving import address, require_web_extra, serve

    require_web_extra()

    def ready(where: Address) -> None:
        if as_json:
            print(json.dumps({"url": where.url, "host": where.host, "port": where.port}), flush=True)
        else:
            say(screen(), f"The page: {where.url}")
            note("Whoever has this link can use the page. Ctrl-C ends it.")
        if not no_browser and not as_json:
            import webbrowser

            webbrowser.open(where.url)

    serve(address(host, port, token), ready)
