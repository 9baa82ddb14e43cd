"""`metricshuffle collection clock`: what an operator says about the clock of a shuffler."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from metricshuffle.cli.collection_options import KeyFolders, Servers, TokenFiles, make_operators
from metricshuffle.cli.shared_options import Json, choice

Action = Annotated[
    str,
    typer.Argument(
        metavar="ACTION",
        help="show it; confirm it although it jumped ahead; or correct a time that was stored while it was wrong.",
    ),
]


def clock(action: Action, server: Servers, keys: KeyFolders = None, token_file: TokenFiles = None, as_json: Json = False) -> None:
    """Operator: see, confirm or correct the clock of a shuffler. Set the machine's clock right first.

    After a jump ahead nothing is sealed, released or destroyed by time until the clock is right again, or is confirmed. What is confirmed
    or corrected is noted, publicly, with every collection that is going on. Neither seals anything before its time by a right clock, and
    nothing that was sealed opens again.
    """
    from metricshuffle.cli.console import say, screen
    from metricshuffle.collection.shuffler.server import validate_address

    choice("action", action, ("show", "confirm", "correct"))
    operators = make_operators([validate_address(address, "--server") for address in server], keys, token_file)
    for operator in operators:
        act = {"show": operator.clock, "confirm": operator.confirm_clock, "correct": operator.correct_clock}[action]
        answer = act()
        if as_json:
            print(json.dumps({"server": operator.url, **answer}))
            continue
        believed = "believed" if answer.get("believed") else "not believed"
        say(
            screen(),
            f"The clock at {operator.url} says {answer.get('clock')} and is {believed}.",
            *(str(answer[name]) for name in ("note", "trouble") if answer.get(name)),
        )
