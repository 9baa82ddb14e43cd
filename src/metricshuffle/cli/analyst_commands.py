"""`metricshuffle analyst`: the key that opens released messages."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from metricshuffle.cli.shared_options import Json, command_group, writable

ABOUT = """The analyst's key, which opens the messages of a collection once they are mixed.

Another person should run the shuffler: together, both know as much as without shuffling."""

analyst = command_group(ABOUT)


@analyst.command("key")
def key(
    output: Annotated[
        Path,
        typer.Option(
            "--output",
            metavar="FILE",
            help="File for the secret key; an existing file is not replaced.",
        ),
    ],
    as_json: Json = False,
) -> None:
    """Analyst: make a key and print its public half for `metricshuffle collection open --analyst`.

    The key never leaves your machine. Keep a copy: without it nobody can open what was sealed for
    it. Make a new key for each collection: shufflers see a token derived from it, and one of them
    could use that token to fetch, and so end, another collection of the same key.
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
        raise InputError(
            f"--output {output} exists, and a key is never replaced; give another name."
        ) from None
    completed.append(str(output))
    print(json.dumps({"public": analyst_key.public}) if as_json else analyst_key.public)
