"""Options of `metricshuffle users compare`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from metricshuffle.cli.shared_options import number, whole

INVENTED = "Invented users: clusters of places"
REAL = "Real users: a file with a row for each item"
ITEMS = 100

Epsilon = Annotated[
    float,
    typer.Option("--epsilon", parser=number, metavar="E", help="Epsilon of user-level privacy."),
]
Rate = Annotated[
    list[float] | None,
    typer.Option(
        "--rate",
        "--alpha",
        parser=number,
        metavar="A",
        help="Epsilon per unit of earth mover's distance; may be repeated. Left out: the rate "
        "at which a full replacement costs "
        "--epsilon, and the one at which a move within a cluster (real users: of 5 % of "
        "the diameter) does.",
    ),
]
Delta = Annotated[
    float, typer.Option("--delta", parser=number, metavar="X", help="Failure probability.")
]
Items = Annotated[
    int,
    typer.Option(
        "--items",
        parser=whole,
        metavar="M",
        help="Items of each user; real users draw that many for item-wise methods.",
    ),
]
Runs = Annotated[
    int, typer.Option("--runs", parser=whole, metavar="N", help="How many releases to simulate.")
]
Seed = Annotated[
    int, typer.Option("--seed", parser=whole, metavar="S", help="Seed of the random numbers.")
]
Users = Annotated[
    int | None,
    typer.Option(
        "--users",
        parser=whole,
        metavar="N",
        rich_help_panel=INVENTED,
        help="How many users: 10,000.",
    ),
]
Clusters = Annotated[
    int | None,
    typer.Option(
        "--clusters",
        parser=whole,
        metavar="S",
        rich_help_panel=INVENTED,
        help="How many clusters: 8.",
    ),
]
Places = Annotated[
    int | None,
    typer.Option(
        "--places",
        parser=whole,
        metavar="T",
        rich_help_panel=INVENTED,
        help="Points in each cluster: 8.",
    ),
]
Inner = Annotated[
    float | None,
    typer.Option(
        "--inner",
        parser=number,
        metavar="R",
        rich_help_panel=INVENTED,
        help="Distance within a cluster: 0.05 (1 between).",
    ),
]
Csv = Annotated[
    Path | None,
    typer.Option(
        "--csv", metavar="FILE", rich_help_panel=REAL, help="A .csv, .csv.gz or .parquet file."
    ),
]
UserColumn = Annotated[
    str,
    typer.Option(
        "--user-column",
        metavar="NAME",
        rich_help_panel=REAL,
        help="The column that names whose item it is.",
    ),
]
Column = Annotated[
    list[str] | None,
    typer.Option(
        "--column",
        metavar="NAME",
        rich_help_panel=REAL,
        help="Twice: latitude and longitude, or x and y.",
    ),
]
Plot = Annotated[
    Path | None, typer.Option("--plot", metavar="FILE", help="Draw all errors as one HTML file.")
]
Levels = Annotated[
    int | None,
    typer.Option(
        "--levels",
        parser=whole,
        metavar="L",
        rich_help_panel=REAL,
        help="Cut the box into nested squares, 2^L cells along its longer side; "
        "the distance of two cells is the diagonal of the smallest nested square that "
        "holds both, in metres (--unit km: in km).",
    ),
]
Box = Annotated[
    tuple[float, float, float, float] | None,
    typer.Option(
        "--box",
        metavar="SOUTH WEST NORTH EAST",
        rich_help_panel=REAL,
        help="The box of --levels, in degrees.",
    ),
]
Side = Annotated[
    float | None,
    typer.Option(
        "--side",
        parser=number,
        metavar="S",
        rich_help_panel=REAL,
        help="For points: x and y lie in 0..S.",
    ),
]
PlaceKind = Annotated[
    str,
    typer.Option(
        "--coordinates",
        metavar="places|points",
        rich_help_panel=REAL,
        help="Whether --levels is about degrees or x and y (--side).",
    ),
]
Unit = Annotated[
    str | None,
    typer.Option(
        "--unit",
        metavar="WORD",
        rich_help_panel=REAL,
        help="What distances are measured in; m (the default) or km for places.",
    ),
]
