"""The options of `metricshuffle plan`, by panel; limits on the protocol are in limit_options."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from metricshuffle.cli.column_completion import complete_columns
from metricshuffle.cli.shared_options import number, whole

QUERIES = (
    "sum|mean|means|quantiles|spread|share-above|centroid|histogram|sets|key-values|map|zones"
    "|flows|user-histogram|user-mean|user-total|user-share-above|user-linear"
)
ASKED = "Question and possible values"
PROMISE = "Guarantee"
SHOWN = "Output"
OWN_VALUES = (
    "Your values, to choose a distance (shown on this screen only; NOT PRIVATE and not part of "
    "the plan)"
)


def _question_option(*names: str, **more: Any) -> Any:
    return typer.Option(*names, rich_help_panel=ASKED, **more)


def _promise_option(*names: str, **more: Any) -> Any:
    return typer.Option(*names, rich_help_panel=PROMISE, **more)


def _value_file_option(*names: str, **more: Any) -> Any:
    return typer.Option(*names, rich_help_panel=OWN_VALUES, **more)


def _display_option(*names: str, **more: Any) -> Any:
    return typer.Option(*names, rich_help_panel=SHOWN, **more)


Query = Annotated[
    str,
    _question_option(
        "--query",
        metavar=QUERIES,
        help=(
            "Question to answer; those that begin with user- are for people who hold several items "
            "each."
        ),
    ),
]
Title = Annotated[
    str | None,
    _question_option(
        "--title",
        metavar="TEXT",
        help="Short title of the collection, shown to participants.",
    ),
]
Question = Annotated[
    str | None,
    _question_option(
        "--question",
        metavar="TEXT",
        help=("Question as participants read it, such as 'How many minutes was your way to work?'"),
    ),
]
Low = Annotated[
    str | None,
    _question_option(
        "--low",
        metavar="NUMBER",
        help=(
            "Smallest possible number; 0 means whole numbers, 0.0 (or a --granularity below "
            "1) real numbers."
        ),
    ),
]
High = Annotated[
    str | None, _question_option("--high", metavar="NUMBER", help="Largest possible number.")
]
Step = Annotated[
    float | None,
    _question_option(
        "--step",
        parser=number,
        metavar="S",
        help=(
            "Histogram, quantiles, spread, share-above: width of a bin; required for real numbers."
        ),
    ),
]
At = Annotated[
    str | None,
    _question_option(
        "--at",
        metavar="A,B,C",
        help=(
            "Quantiles: shares of the people, such as 0.1,0.5,0.9 (the median, 0.5, if left out); "
            "share-above: thresholds."
        ),
    ),
]
Edges = Annotated[
    str | None,
    _question_option(
        "--edges",
        metavar="A,B,C",
        help=(
            "Quantiles: public guess of where numbers are; narrow steps between edges make "
            "quantiles there more exact."
        ),
    ),
]
Fade = Annotated[
    float | None,
    _question_option(
        "--fade",
        parser=number,
        metavar="W",
        help=(
            "Share-above: width over which numbers below a threshold count in part; W times as "
            "wide has a W-th of the noise. A sharp edge if left out. User-linear with --regions: "
            "distance beyond its edge at which a region has faded to 0."
        ),
    ),
]
Unit = Annotated[
    str | None,
    _question_option(
        "--unit",
        metavar="WORD",
        help=("Unit of values and distances, such as kcal; with --box it is m (default) or km."),
    ),
]
Labels = Annotated[
    str | None,
    _question_option(
        "--labels",
        metavar="A,B,C",
        help=(
            "Histogram, sets, or mean with --by: the possible labels, separated by commas; "
            "key-values: the keys."
        ),
    ),
]
By = Annotated[
    str | None,
    _question_option(
        "--by",
        metavar="NAME",
        help=(
            "Mean: count people and average their numbers in each group; groups are the --labels "
            "in the column of this name."
        ),
    ),
]
LabelsFrom = Annotated[
    Path | None,
    _question_option(
        "--labels-from",
        metavar="FILE",
        help=(
            "Histogram: read the possible labels from --column of this file; the set of "
            "labels becomes public."
        ),
    ),
]
Column = Annotated[
    list[str] | None,
    _question_option(
        "--column",
        metavar="NAME",
        autocompletion=complete_columns,
        help=(
            "Means: a column of each row, given once for each. Otherwise: column of --labels-from "
            "or --values; for places give it twice: first latitude or x, then longitude or y."
        ),
    ),
]
Size = Annotated[
    int | None,
    _question_option(
        "--size",
        parser=whole,
        metavar="K",
        help="Sets and key-values: the most labels, or keys, that one person holds.",
    ),
]
Distances = Annotated[
    Path | None,
    _question_option(
        "--distances",
        metavar="FILE",
        help=(
            "User-histogram of labels: CSV file without a header, the matrix of their "
            "distances; all are 1 if left out."
        ),
    ),
]
Positions = Annotated[
    Path | None,
    _question_option(
        "--positions",
        metavar="FILE",
        help=(
            "User-linear: CSV file with a header and a row for each label: the label, then its "
            "position. Distances are straight lines between them, or along the ground if the "
            "columns are latitude and longitude. Any number of labels; all of the file without "
            "--labels."
        ),
    ),
]
DistanceTo = Annotated[
    str | None,
    _question_option(
        "--distance-to",
        metavar="A,B,C",
        help="User-linear: the answer is the mean distance of items to each of these labels.",
    ),
]
Table = Annotated[
    Path | None,
    _question_option(
        "--table",
        metavar="FILE",
        help=(
            "User-linear: CSV file with a header and a row for each point: the point, then its "
            "numbers; their means are the answer."
        ),
    ),
]
Regions = Annotated[
    Path | None,
    _question_option(
        "--regions",
        metavar="FILE",
        help=(
            "User-linear: CSV file with a header; each row names a region and a point in it. The "
            "answer is the share of items in each region."
        ),
    ),
]
SimilarTo = Annotated[
    Path | None,
    _question_option(
        "--similar-to",
        metavar="FILE",
        help=(
            "With --table, whose numbers are then vectors: CSV file with names and vectors; the "
            "answer is the mean inner product with each."
        ),
    ),
]
Width = Annotated[
    int | None,
    _question_option(
        "--width", parser=whole, metavar="CELLS", help="Grid: number of cells from west to east."
    ),
]
Height = Annotated[
    int | None,
    _question_option(
        "--height", parser=whole, metavar="CELLS", help="Grid: number of cells from south to north."
    ),
]
Cell = Annotated[
    float | None,
    _question_option(
        "--cell",
        parser=number,
        metavar="C",
        help=(
            "Grid: side of a cell in --unit (with --box: metres by default); optional for a "
            "centroid in a --box."
        ),
    ),
]
Box = Annotated[
    tuple[float, float, float, float] | None,
    _question_option(
        "--box",
        metavar="SOUTH WEST NORTH EAST",
        help=(
            "Area of the places, in degrees of latitude and longitude; instead of --width "
            "and --height."
        ),
    ),
]
ZonesFile = Annotated[
    Path | None,
    _question_option(
        "--zones",
        metavar="FILE",
        help=(
            "Zones: polygons in GeoJSON or GeoParquet, or a table (CSV, Parquet) of points with "
            "the columns latitude and longitude; the file becomes public."
        ),
    ),
]
ZoneColumn = Annotated[
    str | None,
    _question_option(
        "--zone-column", metavar="NAME", help="Column or property of --zones with their ids."
    ),
]
ZonePoint = Annotated[
    tuple[str, str] | None,
    _question_option(
        "--zone-point",
        metavar="LATITUDE LONGITUDE",
        help="Columns of --zones with the point of a zone; default: a point inside its polygon.",
    ),
]
Weights = Annotated[
    str | None,
    _question_option(
        "--weights",
        metavar="NAME",
        help="Column of --zones with public numbers that smoothed shares start from: residents.",
    ),
]
Blocks = Annotated[
    str | None,
    _question_option(
        "--blocks",
        metavar="NAME",
        help="Flows: column of --zones with the block of each zone; flows between blocks get "
        "intervals.",
    ),
]
H3 = Annotated[
    int | None,
    _question_option(
        "--h3",
        parser=whole,
        metavar="RESOLUTION",
        help="Zones: the cells of H3 of this resolution (0 to 15) in --box; instead of --zones.",
    ),
]
S2Level = Annotated[
    int | None,
    _question_option(
        "--s2-level",
        parser=whole,
        metavar="LEVEL",
        help="Zones: the cells of S2 of this level (0 to 30) in --box; instead of --zones.",
    ),
]
Levels = Annotated[
    int | None,
    _question_option(
        "--levels",
        parser=whole,
        metavar="L",
        help=(
            "Users' places: divide the area (--box or --side) into nested squares, with 2^L "
            "cells along its longer side."
        ),
    ),
]
Side = Annotated[
    float | None,
    _question_option(
        "--side",
        parser=number,
        metavar="S",
        help="Users' places with --levels: x and y lie between 0 and S; instead of --box.",
    ),
]
Items = Annotated[
    int | None,
    _question_option(
        "--items",
        parser=whole,
        metavar="M",
        help=("Users' items: every user holds exactly M items; if left out, any number of items."),
    ),
]

Epsilon = Annotated[
    float | None,
    _promise_option(
        "--epsilon",
        parser=number,
        metavar="E",
        help=("Total epsilon at --distance, for all rounds together; give either this or --error."),
    ),
]
Error = Annotated[
    float | None,
    _promise_option(
        "--error",
        parser=number,
        metavar="E",
        help=(
            "Find the smallest epsilon with an expected absolute error of one round of at "
            "most E, in --unit (for histograms and maps: a share from 0 to 1)."
        ),
    ),
]
Distance = Annotated[
    float | None,
    _promise_option(
        "--distance",
        parser=number,
        metavar="D",
        help=(
            "Largest difference between two answers that nobody should be able to tell apart, in "
            "--unit (histogram of labels: 1 if left out); see --values."
        ),
    ),
]
Delta = Annotated[
    float,
    _promise_option(
        "--delta",
        parser=number,
        metavar="X",
        help=(
            "Delta of the guarantee for all rounds together, 0 <= X < 1; 0 allows only "
            "protocols with pure epsilon."
        ),
    ),
]
Flat = Annotated[
    bool,
    _promise_option(
        "--flat",
        help=(
            "Guarantee the same epsilon for every change up to --distance, instead of "
            "epsilon in proportion to the change."
        ),
    ),
]

LabelEpsilon = Annotated[
    float | None,
    _promise_option(
        "--label-epsilon",
        parser=number,
        metavar="E",
        help=(
            "Mean with --by: epsilon of another label with the same number; if left out, --epsilon."
        ),
    ),
]

Values = Annotated[
    Path | None,
    _value_file_option(
        "--values",
        metavar="FILE",
        help=(
            "Show how far apart the values in --column of this file are; --distance may "
            "then be left out, and no plan is made."
        ),
    ),
]
UserColumn = Annotated[
    str | None,
    _value_file_option(
        "--user-column",
        metavar="NAME",
        autocompletion=complete_columns,
        help=(
            "Column of --values that identifies people; if left out, every row counts as a "
            "different person."
        ),
    ),
]
PerUser = Annotated[
    str | None,
    _value_file_option(
        "--per-user",
        metavar="mean|sum|first|sample|repeat",
        help=(
            "How to combine several rows of one person: their mean or sum, the first row, "
            "or one at random (sample). Users' items: repeat those of users whose number "
            "divides --items (repeat)."
        ),
    ),
]
Coordinates = Annotated[
    str | None,
    _value_file_option(
        "--coordinates",
        metavar="cells|points|places",
        help=(
            "What two columns of --values contain: places (latitude, longitude), cells "
            "(column, row) or points (x, y)."
        ),
    ),
]
DropMissing = Annotated[
    bool,
    _value_file_option(
        "--drop-missing",
        help="Leave out rows of --values without a value, and print how many there are.",
    ),
]
Delimiter = Annotated[
    str | None,
    _value_file_option(
        "--delimiter",
        metavar="CHAR",
        help=(
            "Character that separates the fields of a CSV line, or the word tab; detected "
            "if left out."
        ),
    ),
]
Decimal = Annotated[
    str,
    _value_file_option(
        "--decimal",
        metavar=".|,",
        help="Decimal mark of numbers in a CSV file: a point or a comma.",
    ),
]
NoHeader = Annotated[
    bool,
    _value_file_option(
        "--no-header", help="The CSV file has no header line; name columns by their numbers from 1."
    ),
]

All = Annotated[
    bool,
    _display_option(
        "--all",
        help=(
            "Show every candidate, including those that are no better than another one in "
            "any respect."
        ),
    ),
]
Explain = Annotated[
    bool, _display_option("--explain", help="Explain in words what is hidden and what is not.")
]
Save = Annotated[
    Path | None,
    _display_option(
        "--save",
        metavar="FILE",
        help=(
            "Write the plan to this file as JSON: every candidate, and the task of the chosen one."
        ),
    ),
]
TaskFile = Annotated[
    Path | None,
    _display_option(
        "--task",
        metavar="FILE",
        help=(
            "Write the task to this file as JSON: the public part, which clients, shuffler "
            "and analyst need."
        ),
    ),
]
