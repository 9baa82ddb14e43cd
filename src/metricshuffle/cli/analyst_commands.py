"""`metricshuffle analyst`: the key that opens what a shuffler lets go."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from metricshuffle.cli.shared_options import Json, writable

ABOUT = """The analyst's key, which opens the messages of a collection once they are mixed.

Whoever runs the shuffler should be somebody else: both together know as much as if nothing were shuffled."""

analyst = typer.Typer(rich_markup_mode="rich", no_args_is_help=False)


@analyst.callback(invoke_without_command=True, help=ABOUT)
def _help(context: typer.Context) -> None:
    if context.invoked_subcommand is None:
        print(context.get_help())


def key(
    output: Annotated[Path, typer.Option("--output", metavar="FILE", help="Where the key goes; a file that is there is not replaced.")],
    as_json: Json = False,
) -> None:
    """Analyst: make a key, and print its public half for `metricshuffle collection open --analyst`.

    The key never leaves you. Keep a copy of it: without it nobody can open what was sealed for it. Make a new one for each collection:
    with the token that follows from it, which shufflers see, one of them could fetch, and so end, another collection of the same key.
    """
    from metricshuffle.collection.keys import AnalystKey
    from metricshuffle.errors import InputError, require
    from metricshuffle.files import completed

    require("cryptography.hazmat.primitives.hpke", "service")
    writable(output)
    analyst_key = AnalystKey.new()
    try:
        analyst_key.save(output)
    except FileExistsError:
        raise InputError(f"--output {output} exists, and a key is never replaced; give another name.") from None
    completed.append(str(output))
    print(json.dumps({"public": analyst_key.public}) if as_json else analyst_key.public)


analyst.command("key")(key)
