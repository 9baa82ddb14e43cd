"""The options of `metricshuffle plan`, panel by panel."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from metricshuffle.cli.asking import QUERIES
from metricshuffle.cli.options import number, whole

ASKED, PROMISE, LIMITS, SHOWN = "What is asked", "What is promised", "What may be chosen", "What is shown"
OWN_VALUES = "To choose a distance: how far apart your values are (shown here only, NOT PRIVATE, and no part of the plan)"


def _asked(*names: str, **more: Any) -> Any:
    return typer.Option(*names, rich_help_panel=ASKED, **more)


def _promise(*names: str, **more: Any) -> Any:
    return typer.Option(*names, rich_help_panel=PROMISE, **more)


def _limit(*names: str, **more: Any) -> Any:
    return typer.Option(*names, rich_help_panel=LIMITS, **more)


def _own_values(*names: str, **more: Any) -> Any:
    return typer.Option(*names, rich_help_panel=OWN_VALUES, **more)


def _shown(*names: str, **more: Any) -> Any:
    return typer.Option(*names, rich_help_panel=SHOWN, **more)


Query = Annotated[str, _asked("--query", metavar="|".join(QUERIES), help="The answer that is wanted.")]
Title = Annotated[str | None, _asked("--title", metavar="TEXT", help="What the collection is about, in a few words that people see.")]
Question = Annotated[
    str | None,
    _asked("--question", metavar="TEXT", help="What people are asked, as they will read it, like 'How many minutes was your way to work?'"),
]
Low = Annotated[
    str | None,
    _asked("--low", metavar="NUMBER", help="Numbers: the least one; 0 means whole numbers, 0.0 (or a --granularity below 1) real ones."),
]
High = Annotated[str | None, _asked("--high", metavar="NUMBER", help="Numbers: the largest one.")]
Step = Annotated[float | None, _asked("--step", parser=number, metavar="S", help="Histogram of numbers: the width of a bin.")]
Unit = Annotated[str | None, _asked("--unit", metavar="WORD", help="What the numbers count, like kcal; m or km for a box.")]
Labels = Annotated[str | None, _asked("--labels", metavar="A,B,C", help="Words that can be counted.")]
LabelsFrom = Annotated[
    Path | None, _asked("--labels-from", metavar="FILE", help="Take the labels from a column of a file; the set of labels becomes public.")
]
Column = Annotated[
    list[str] | None,
    _asked("--column", metavar="NAME", help="The column of --labels-from, or of --values (twice for places, as in `metricshuffle run`)."),
]
Distances = Annotated[
    Path | None, _asked("--distances", metavar="FILE", help="Users' labels: CSV without a header, their distances; 1 apart without it.")
]
Width = Annotated[int | None, _asked("--width", parser=whole, metavar="CELLS", help="Grid: cells from west to east.")]
Height = Annotated[int | None, _asked("--height", parser=whole, metavar="CELLS", help="Grid: cells from south to north.")]
Cell = Annotated[
    float | None,
    _asked(
        "--cell", parser=number, metavar="C", help="Grid: side of a cell in units (metres with --box); a centroid in a --box needs none."
    ),
]
Box = Annotated[
    tuple[float, float, float, float] | None,
    _asked("--box", metavar="SOUTH WEST NORTH EAST", help="A box in degrees instead of --width and --height."),
]
Levels = Annotated[
    int | None,
    _asked(
        "--levels",
        parser=whole,
        metavar="L",
        help="Users' places: cut the box into nested squares, 2^L cells along its longer side; the distance of two cells is the diagonal "
        "of the smallest nested square that holds both, in metres (--unit km: in km).",
    ),
]
Side = Annotated[float | None, _asked("--side", parser=number, metavar="S", help="--levels for points: x and y lie in 0..S.")]
Items = Annotated[
    int | None,
    _asked("--items", parser=whole, metavar="M", help="Users' items: everybody holds exactly M; any number without it."),
]

Epsilon = Annotated[
    float | None, _promise("--epsilon", parser=number, metavar="E", help="TOTAL epsilon at the distance; give this or --error.")
]
Error = Annotated[
    float | None,
    _promise(
        "--error",
        parser=number,
        metavar="E",
        help="Find the smallest epsilon whose expected absolute error is at most E (of one round; units of the query, shares for tables).",
    ),
]
Distance = Annotated[
    float | None,
    _promise(
        "--distance",
        parser=number,
        metavar="D",
        help="How far values may move and stay hidden, in units; labels need none. --values helps to choose one.",
    ),
]
Delta = Annotated[float, _promise("--delta", parser=number, metavar="X", help="Failure probability, 0 <= X < 1; 0 keeps pure protocols.")]
Flat = Annotated[bool, _promise("--flat", help="The same epsilon for every move up to the distance, instead of in proportion to it.")]

Encoding = Annotated[
    str,
    _limit("--encoding", metavar="unary|modular|auto", help="Sums: one-bit messages, shares modulo a number, or the better of both."),
]
PaddingOption = Annotated[
    str,
    _limit("--padding", metavar="clamp|bounded", help="Sums: how unary reports are kept in range: clamp the sum or bound the noise."),
]
Granularity = Annotated[
    float | None,
    _limit(
        "--granularity",
        parser=number,
        metavar="Q",
        help="Sums: round at random to multiples of Q first (of places: at most Q); real numbers need it.",
    ),
]
Transport = Annotated[
    str,
    _limit("--transport", metavar="shuffler|aggregator", help="Sums: who gets modular shares: a shuffler, or somebody who only sums."),
]
Samples = Annotated[
    int | None,
    _limit("--samples", parser=whole, metavar="S", help="Users with any number of items: how many of hers everybody draws for item-wise."),
]
Trusted = Annotated[
    str,
    _limit("--trusted", metavar="nobody|shuffler|aggregator|curator", help="Whom a protocol may rely on; others are listed as baselines."),
]
MaxLocalEpsilon = Annotated[
    float | None, _limit("--max-local-epsilon", parser=number, metavar="E", help="Most that one report alone may reveal.")
]
MaxBits = Annotated[int | None, _limit("--max-bits", parser=whole, metavar="N", help="Most bits a person may send.")]
NoFloor = Annotated[
    bool,
    _limit("--no-floor", help="Histogram, map, users' items: noisy vectors of values as they are; a colluding shuffler can read them."),
]
MostItems = Annotated[
    int | None,
    _limit("--most-items", parser=whole, metavar="M", help="Users with any number of items: the most one may hold; noisy vectors need it."),
]
Spread = Annotated[
    str,
    _limit("--spread", metavar="any|smooth|spiky", help="Histogram, map, users' items: how people are spread, as far as you know."),
]
RandomizerFile = Annotated[
    Path | None,
    _limit(
        "--randomizer", metavar="FILE", help="Histogram, map: only the randomizer in this file (`metricshuffle solve --save`), as it is."
    ),
]
Protocols = Annotated[list[str] | None, _limit("--protocol", metavar="NAME", help="Only this protocol; may be repeated.")]

Values = Annotated[
    Path | None,
    _own_values("--values", metavar="FILE", help="Show how far apart the values of --column in this file are; --distance may be left out."),
]
UserColumn = Annotated[str | None, _own_values("--user-column", metavar="NAME", help="The column that names whose row it is.")]
PerUser = Annotated[str | None, _own_values("--per-user", metavar="mean|sum|first|sample", help="What several rows of one person come to.")]
Coordinates = Annotated[str | None, _own_values("--coordinates", metavar="cells|points|places", help="What the two columns of places are.")]
DropMissing = Annotated[bool, _own_values("--drop-missing", help="Leave out rows that miss a value, and tell how many.")]
Delimiter = Annotated[str | None, _own_values("--delimiter", metavar="CHAR", help="What separates the fields of a CSV line.")]
Decimal = Annotated[str, _own_values("--decimal", metavar=".|,", help="What marks decimals in a CSV file, a point or a comma.")]
NoHeader = Annotated[bool, _own_values("--no-header", help="The CSV file has no header line; columns are named by their numbers.")]

All = Annotated[bool, _shown("--all", help="Show every candidate, also those that another one is at least as good as in everything.")]
Explain = Annotated[bool, _shown("--explain", help="Say in words what is and is not hidden.")]
Save = Annotated[Path | None, _shown("--save", metavar="FILE", help="Write the plan as JSON: every candidate, and the task.")]
TaskFile = Annotated[
    Path | None, _shown("--task", metavar="FILE", help="Write the task as JSON: all that the three roles need, and what travels.")
]
