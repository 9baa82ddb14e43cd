"""The options of `metricshuffle amplify`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from metricshuffle.cli.randomizer_options import NAMES
from metricshuffle.cli.shared_options import number, whole

Randomizer = Annotated[
    str,
    typer.Option(
        "--randomizer",
        metavar="NAME",
        help=f"One of {', '.join(NAMES)}; each takes the options named in brackets; or file:PATH (solve --save).",
    ),
]
Delta = Annotated[float | None, typer.Option("--delta", parser=number, metavar="X", help="Give epsilon at this delta.")]
Epsilon = Annotated[float | None, typer.Option("--epsilon", parser=number, metavar="E", help="Give delta at this total epsilon instead.")]
Users = Annotated[
    int | None,
    typer.Option("--users", parser=whole, metavar="N", help="How many people report; left out if that is to be found, or said by --group."),
]
TargetEpsilon = Annotated[
    float | None,
    typer.Option(
        "--target-epsilon",
        parser=number,
        metavar="E",
        help="Find what keeps this total epsilon at --delta: the largest local epsilon or rate, or the fewest honest people; "
        "leave out the one that is to be found.",
    ),
]
Find = Annotated[
    str | None,
    typer.Option(
        "--find", metavar="local-epsilon|rate|users", help="What to find for --target-epsilon; whichever is left out, if this is left out."
    ),
]
LocalEpsilon = Annotated[
    float | None,
    typer.Option(
        "--local-epsilon",
        parser=number,
        metavar="E",
        help="Epsilon of one report (generic, krr, witch-hat, hadamard, subset, hash); a claim to check (channel).",
    ),
]
LocalDelta = Annotated[
    float | None,
    typer.Option("--local-delta", parser=number, metavar="X", help="Delta of one report at --local-epsilon; 0 if left out (generic)."),
]
Span = Annotated[int | None, typer.Option("--span", parser=whole, metavar="K", help="Values are whole numbers 0..K (gaussian).")]
Sigma = Annotated[float | None, typer.Option("--sigma", parser=number, metavar="S", help="Standard deviation of the noise (gaussian).")]
Margin = Annotated[
    int | None,
    typer.Option("--margin", parser=whole, metavar="M", help="Reports are clamped M beyond the values; 4 S if left out (gaussian)."),
]
Options = Annotated[
    int | None, typer.Option("--options", parser=whole, metavar="K", help="How many values there are (krr, hadamard, subset, hash).")
]
Rate = Annotated[
    float | None,
    typer.Option("--rate", parser=number, metavar="R", help="Epsilon per unit of distance (metric: 1 if left out; laplace, witch-hat)."),
]
Distance = Annotated[
    float | None,
    typer.Option("--distance", parser=number, metavar="D", help="How far apart the two inputs are (metric); others: any two if left out."),
]
Reach = Annotated[
    float | None,
    typer.Option("--reach", parser=number, metavar="A", help="How far the first input is from the farthest value (metric)."),
]
ReachOther = Annotated[
    float | None,
    typer.Option("--reach-other", parser=number, metavar="B", help="The same for the second input; like the first if left out."),
]
Low = Annotated[float | None, typer.Option("--low", parser=number, metavar="L", help="Smallest value (laplace).")]
High = Annotated[float | None, typer.Option("--high", parser=number, metavar="H", help="Largest value (laplace).")]
HalfWidth = Annotated[float | None, typer.Option("--half-width", parser=number, metavar="B", help="Values lie in -B..B (witch-hat).")]
Steps = Annotated[
    int | None, typer.Option("--steps", parser=whole, metavar="S", help="Steps of the grid of reports (laplace: 64; witch-hat: 32).")
]
Size = Annotated[int | None, typer.Option("--size", parser=whole, metavar="S", help="Members of a reported set (subset).")]
Buckets = Annotated[int | None, typer.Option("--buckets", parser=whole, metavar="L", help="Hash values, a prime number (hash).")]
Matrix = Annotated[
    Path | None, typer.Option("--matrix", metavar="FILE", help="CSV without a header, a row of probabilities per input (channel).")
]
Pair = Annotated[
    tuple[int, int] | None,
    typer.Option("--pair", metavar="I J", help="Only these two rows, counting from 0 (channel); any two if left out."),
]
Plot = Annotated[Path | None, typer.Option("--plot", metavar="FILE", help="Write the bands and the trade-off curve as one HTML file.")]
