"""Options that several commands share, and how their words become numbers."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from metricshuffle.errors import InputError, PlanError

if TYPE_CHECKING:
    from metricshuffle.planning import Plan


def number(text: str | float) -> float:
    """A finite number."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise ValueError(f"must be a finite number, got {text!r}")
    return value


def whole(text: str | int) -> int:
    """A whole number, also written like 1e6."""
    try:
        return int(text)
    except ValueError:
        pass
    try:
        value = float(text)
    except ValueError:
        raise ValueError(f"must be a whole number like 1000 or 1e6, got {text!r}") from None
    if number(value) != int(value):
        raise ValueError(f"must be a whole number, got {text!r}")
    return int(value)


Json = Annotated[bool, typer.Option("--json", help="Print one JSON document to stdout and nothing else.")]
PlanFile = Annotated[Path, typer.Argument(metavar="PLAN", help="The plan file that `metricshuffle plan --save` wrote.")]
ValuesFile = Annotated[Path, typer.Argument(metavar="VALUES", help="A .csv or .csv.gz file with a header line, or a .parquet file.")]
Columns = Annotated[
    list[str],
    typer.Option(
        "--column", metavar="NAME",
        help="The column that holds the values; a centroid takes it twice: x and y, or latitude and longitude, in this order.",
    ),
]  # fmt: skip
Clamp = Annotated[bool, typer.Option("--clamp", help="Move numbers outside the domain to its nearest end instead of refusing them.")]
Coordinates = Annotated[
    str,
    typer.Option(
        "--coordinates", metavar="cells|points|places",
        help="What the two columns of a centroid are: cells (column and row, from 0), points (x and y in units), "
        "or places (latitude and longitude, for a plan with --box).",
    ),
]  # fmt: skip
Delimiter = Annotated[str, typer.Option("--delimiter", metavar="CHAR", help="What separates the fields of a CSV line.")]
Users = Annotated[int, typer.Option("--users", parser=whole, metavar="N", help="How many people report.")]
Honest = Annotated[
    str | None,
    typer.Option("--honest", metavar="H", help="Reports certainly from honest people: a count, a fraction or 90%; all if left out."),
]  # fmt: skip
Rounds = Annotated[
    int,
    typer.Option(
        "--rounds", parser=whole, metavar="K", help="How often the same people are asked; the promise covers all rounds together."
    ),
]


def planned(file: Path) -> Plan:
    """The plan in a file; what is wrong with it is told with the name of the file."""
    from metricshuffle.planning import Plan

    try:
        return Plan.load(str(file))
    except PlanError as wrong:
        raise PlanError(f"cannot use {file}: {wrong}") from None


def choice(name: str, value: str, among: tuple[str, ...]) -> str:
    """One of a few words, or a sentence that lists them."""
    if value not in among:
        raise InputError(f"--{name} must be one of {', '.join(among)}, got {value!r}.")
    return value


def writable(output: Path | None, *inputs: Path, option: str = "--output") -> None:
    """Refuse an output that cannot be written or that would replace an input, before any work is done."""
    if output is None:
        return
    if output.is_dir():
        raise InputError(f"{option} {output} is a folder; give the name of a file.")
    if not output.parent.is_dir():
        raise InputError(f"{option} {output} lies in a folder that does not exist; make {output.parent} first.")
    for given in inputs:
        if output.exists() and given.exists() and output.samefile(given):
            raise InputError(f"{option} {output} is also the input; give another name, because it would be replaced.")
