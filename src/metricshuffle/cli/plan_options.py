"""The options of `metricshuffle plan`, panel by panel."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from metricshuffle.cli.query_options import QUERIES
from metricshuffle.cli.shared_options import number, whole

ASKED, PROMISE, LIMITS, SHOWN = "What is asked", "What is promised", "What may be chosen", "What is shown"
OWN_VALUES = "To choose a distance: how far apart your values are (shown here only, NOT PRIVATE, and no part of the plan)"


def _question_option(*names: str, **more: Any) -> Any:
    return typer.Option(*names, rich_help_panel=ASKED, **more)


def _promise_option(*names: str, **more: Any) -> Any:
    return typer.Option(*names, rich_help_panel=PROMISE, **more)


def _limit_option(*names: str, **more: Any) -> Any:
    return typer.Option(*names, rich_help_panel=LIMITS, **more)


def _value_file_option(*names: str, **more: Any) -> Any:
    return typer.Option(*names, rich_help_panel=OWN_VALUES, **more)


def _display_option(*names: str, **more: Any) -> Any:
    return typer.Option(*names, rich_help_panel=SHOWN, **more)


Query = Annotated[str, _question_option("--query", metavar="|".join(QUERIES), help="The answer that is wanted.")]
Title = Annotated[
    str | None, _question_option("--title", metavar="TEXT", help="What the collection is about, in a few words that people see.")
]
Question = Annotated[
    str | None,
    _question_option(
        "--question", metavar="TEXT", help="What people are asked, as they will read it, like 'How many minutes was your way to work?'"
    ),
]
Low = Annotated[
    str | None,
    _question_option(
        "--low", metavar="NUMBER", help="Numbers: the least one; 0 means whole numbers, 0.0 (or a --granularity below 1) real ones."
    ),
]
High = Annotated[str | None, _question_option("--high", metavar="NUMBER", help="Numbers: the largest one.")]
Step = Annotated[float | None, _question_option("--step", parser=number, metavar="S", help="Histogram of numbers: the width of a bin.")]
Unit = Annotated[str | None, _question_option("--unit", metavar="WORD", help="What the numbers count, like kcal; m or km for a box.")]
Labels = Annotated[str | None, _question_option("--labels", metavar="A,B,C", help="Words that can be counted.")]
LabelsFrom = Annotated[
    Path | None,
    _question_option("--labels-from", metavar="FILE", help="Take the labels from a column of a file; the set of labels becomes public."),
]
Column = Annotated[
    list[str] | None,
    _question_option(
        "--column", metavar="NAME", help="The column of --labels-from, or of --values (twice for places, as in `metricshuffle run`)."
    ),
]
Distances = Annotated[
    Path | None,
    _question_option("--distances", metavar="FILE", help="Users' labels: CSV without a header, their distances; 1 apart without it."),
]
Width = Annotated[int | None, _question_option("--width", parser=whole, metavar="CELLS", help="Grid: cells from west to east.")]
Height = Annotated[int | None, _question_option("--height", parser=whole, metavar="CELLS", help="Grid: cells from south to north.")]
Cell = Annotated[
    float | None,
    _question_option(
        "--cell", parser=number, metavar="C", help="Grid: side of a cell in units (metres with --box); a centroid in a --box needs none."
    ),
]
Box = Annotated[
    tuple[float, float, float, float] | None,
    _question_option("--box", metavar="SOUTH WEST NORTH EAST", help="A box in degrees instead of --width and --height."),
]
Levels = Annotated[
    int | None,
    _question_option(
        "--levels",
        parser=whole,
        metavar="L",
        help="Users' places: cut the box into nested squares, 2^L cells along its longer side; the distance of two cells is the diagonal "
        "of the smallest nested square that holds both, in metres (--unit km: in km).",
    ),
]
Side = Annotated[float | None, _question_option("--side", parser=number, metavar="S", help="--levels for points: x and y lie in 0..S.")]
Items = Annotated[
    int | None,
    _question_option("--items", parser=whole, metavar="M", help="Users' items: everybody holds exactly M; any number without it."),
]

Epsilon = Annotated[
    float | None, _promise_option("--epsilon", parser=number, metavar="E", help="TOTAL epsilon at the distance; give this or --error.")
]
Error = Annotated[
    float | None,
    _promise_option(
        "--error",
        parser=number,
        metavar="E",
        help="Find the smallest epsilon whose expected absolute error is at most E (of one round; units of the query, shares for tables).",
    ),
]
Distance = Annotated[
    float | None,
    _promise_option(
        "--distance",
        parser=number,
        metavar="D",
        help="How far values may move and stay hidden, in units; labels need none. --values helps to choose one.",
    ),
]
Delta = Annotated[
    float, _promise_option("--delta", parser=number, metavar="X", help="Failure probability, 0 <= X < 1; 0 keeps pure protocols.")
]
Flat = Annotated[
    bool, _promise_option("--flat", help="The same epsilon for every move up to the distance, instead of in proportion to it.")
]

Encoding = Annotated[
    str,
    _limit_option(
        "--encoding", metavar="unary|modular|auto", help="Sums: one-bit messages, shares modulo a number, or the better of both."
    ),
]
PaddingOption = Annotated[
    str,
    _limit_option(
        "--padding", metavar="clamp|bounded", help="Sums: how unary reports are kept in range: clamp the sum or bound the noise."
    ),
]
Granularity = Annotated[
    float | None,
    _limit_option(
        "--granularity",
        parser=number,
        metavar="Q",
        help="Sums: round at random to multiples of Q first (of places: at most Q); real numbers need it.",
    ),
]
Transport = Annotated[
    str,
    _limit_option(
        "--transport", metavar="shuffler|aggregator", help="Sums: who gets modular shares: a shuffler, or somebody who only sums."
    ),
]
Samples = Annotated[
    int | None,
    _limit_option(
        "--samples", parser=whole, metavar="S", help="Users with any number of items: how many of hers everybody draws for item-wise."
    ),
]
Trusted = Annotated[
    str,
    _limit_option(
        "--trusted", metavar="nobody|shuffler|aggregator|curator", help="Whom a protocol may rely on; others are listed as baselines."
    ),
]
MaxLocalEpsilon = Annotated[
    float | None, _limit_option("--max-local-epsilon", parser=number, metavar="E", help="Most that one report alone may reveal.")
]
MaxBits = Annotated[int | None, _limit_option("--max-bits", parser=whole, metavar="N", help="Most bits a person may send.")]
NoFloor = Annotated[
    bool,
    _limit_option(
        "--no-floor", help="Histogram, map, users' items: noisy vectors of values as they are; a colluding shuffler can read them."
    ),
]
MostItems = Annotated[
    int | None,
    _limit_option(
        "--most-items", parser=whole, metavar="M", help="Users with any number of items: the most one may hold; noisy vectors need it."
    ),
]
Spread = Annotated[
    str,
    _limit_option("--spread", metavar="any|smooth|spiky", help="Histogram, map, users' items: how people are spread, as far as you know."),
]
RandomizerFile = Annotated[
    Path | None,
    _limit_option(
        "--randomizer", metavar="FILE", help="Histogram, map: only the randomizer in this file (`metricshuffle solve --save`), as it is."
    ),
]
Protocols = Annotated[list[str] | None, _limit_option("--protocol", metavar="NAME", help="Only this protocol; may be repeated.")]

Values = Annotated[
    Path | None,
    _value_file_option(
        "--values", metavar="FILE", help="Show how far apart the values of --column in this file are; --distance may be left out."
    ),
]
UserColumn = Annotated[str | None, _value_file_option("--user-column", metavar="NAME", help="The column that names whose row it is.")]
PerUser = Annotated[
    str | None, _value_file_option("--per-user", metavar="mean|sum|first|sample", help="What several rows of one person come to.")
]
Coordinates = Annotated[
    str | None, _value_file_option("--coordinates", metavar="cells|points|places", help="What the two columns of places are.")
]
DropMissing = Annotated[bool, _value_file_option("--drop-missing", help="Leave out rows that miss a value, and tell how many.")]
Delimiter = Annotated[str | None, _value_file_option("--delimiter", metavar="CHAR", help="What separates the fields of a CSV line.")]
Decimal = Annotated[str, _value_file_option("--decimal", metavar=".|,", help="What marks decimals in a CSV file, a point or a comma.")]
NoHeader = Annotated[bool, _value_file_option("--no-header", help="The CSV file has no header line; columns are named by their numbers.")]

All = Annotated[
    bool, _display_option("--all", help="Show every candidate, also those that another one is at least as good as in everything.")
]
Explain = Annotated[bool, _display_option("--explain", help="Say in words what is and is not hidden.")]
Save = Annotated[Path | None, _display_option("--save", metavar="FILE", help="Write the plan as JSON: every candidate, and the task.")]
TaskFile = Annotated[
    Path | None, _display_option("--task", metavar="FILE", help="Write the task as JSON: all that the three roles need, and what travels.")
]
