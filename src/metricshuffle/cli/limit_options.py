"""The options of `metricshuffle plan` that limit the protocol."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from metricshuffle.cli.shared_options import number, whole

LIMITS = "Limits on the protocol"


def draws(text: str | int) -> int | str:
    """Parse a number of items to draw, or the word auto."""
    return text if text == "auto" else whole(text)


def _limit_option(*names: str, **more: Any) -> Any:
    return typer.Option(*names, rich_help_panel=LIMITS, **more)


Encoding = Annotated[
    str,
    _limit_option(
        "--encoding",
        metavar="unary|modular|auto",
        help=(
            "Sum, mean, centroid: one-bit messages (unary), shares modulo a number "
            "(modular), or the better one (auto)."
        ),
    ),
]
PaddingOption = Annotated[
    str,
    _limit_option(
        "--padding",
        metavar="clamp|bounded",
        help=(
            "Sum, mean, centroid: keep unary reports in range by clamping the report or by "
            "bounding its noise."
        ),
    ),
]
Granularity = Annotated[
    float | None,
    _limit_option(
        "--granularity",
        parser=number,
        metavar="Q",
        help=(
            "Sum, mean: round values at random to multiples of Q; required for real "
            "numbers. Optional for a centroid in a --box."
        ),
    ),
]
Transport = Annotated[
    str,
    _limit_option(
        "--transport",
        metavar="shuffler|aggregator",
        help=(
            "Sum, mean, centroid: party that receives modular shares: a shuffler, or an "
            "aggregator that only adds them up."
        ),
    ),
]
Draw = Annotated[
    str | None,
    _limit_option(
        "--draw",
        "--samples",
        parser=draws,
        metavar="S|auto",
        help=(
            "Users' items: number of items that each user draws at random, with replacement, "
            "for the protocol item-wise; auto: the planner chooses it. (--samples is its old name.)"
        ),
    ),
]
WithoutReplacement = Annotated[
    bool,
    _limit_option(
        "--without-replacement",
        help="Users' items: draw each item at most once; needs --items and --draw.",
    ),
]
Trusted = Annotated[
    str,
    _limit_option(
        "--trusted",
        metavar="nobody|shuffler|aggregator|curator",
        help=(
            "Party that a protocol may trust; protocols that need more trust are only "
            "listed as baselines."
        ),
    ),
]
MaxLocalEpsilon = Annotated[
    float | None,
    _limit_option(
        "--max-local-epsilon",
        parser=number,
        metavar="E",
        help=(
            "Choose only protocols in which one report alone, without shuffling, has at "
            "most this epsilon."
        ),
    ),
]
MaxBits = Annotated[
    int | None,
    _limit_option(
        "--max-bits",
        parser=whole,
        metavar="N",
        help="Choose only protocols in which one person sends at most this number of bits.",
    ),
]
MaxDummies = Annotated[
    int,
    _limit_option(
        "--max-dummies",
        parser=whole,
        metavar="N",
        help=(
            "Histogram, map, users' items: offer noise by the shuffler only if it adds at most "
            "this number of dummies in a round."
        ),
    ),
]
MaxDamage = Annotated[
    str | None,
    _limit_option(
        "--max-damage",
        metavar="X|P%",
        help=(
            "Choose only protocols that provably keep lying participants from moving the answer "
            "by more than X, in units of its error; for shares, X is a fraction (0.01) or a "
            "percentage (1%)."
        ),
    ),
]
Liars = Annotated[
    str | None,
    _limit_option(
        "--liars",
        metavar="M|P%",
        help=(
            "Number of lying participants that --max-damage assumes, as a count or a percentage "
            "(1%); one if left out."
        ),
    ),
]
Floor = Annotated[
    str | None,
    _limit_option(
        "--floor",
        metavar="always|auto|never",
        help=(
            "Histogram, map, users' items: in noisy vectors, randomize values locally first: "
            "always (default), where errors grow at most 1.5 times (auto), or never; without it a "
            "colluding shuffler can read the values."
        ),
    ),
]
NoFloor = Annotated[
    bool,
    _limit_option("--no-floor", help="The same as --floor never."),
]
MostItems = Annotated[
    int | None,
    _limit_option(
        "--most-items",
        parser=whole,
        metavar="M",
        hidden=True,
        help="Without effect: users may hold any number of items.",
    ),
]
Spread = Annotated[
    str,
    _limit_option(
        "--spread",
        metavar="any|smooth|spiky",
        help=(
            "Histogram, map, quantiles, spread, users' items: people's distribution: unknown "
            "(any), even or in clusters (smooth), at few points (spiky)."
        ),
    ),
]
RandomizerFile = Annotated[
    Path | None,
    _limit_option(
        "--randomizer",
        metavar="FILE",
        help=(
            "Histogram, map: use only the randomizer in this file of `metricshuffle solve "
            "--save`, without calibrating it."
        ),
    ),
]
Protocols = Annotated[
    list[str] | None,
    _limit_option(
        "--protocol",
        metavar="NAME",
        help="Calibrate only the protocol with this name; may be repeated.",
    ),
]
