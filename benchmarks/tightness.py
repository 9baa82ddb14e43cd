"""Ratio of upper to lower bound of amplified epsilons: `python -m benchmarks.tightness`.

For every built-in randomizer; `python -m benchmarks.tightness further` covers sizes and numbers of
people that are not in that table.
"""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from metricshuffle.amplification.amplify import amplify
from metricshuffle.amplification.best_bound import BestBoundProfile
from metricshuffle.numerics.types import Floats
from metricshuffle.randomizers import (
    BinaryRandomizedResponse,
    BoundedGeometric,
    Channel,
    ClusteredResponse,
    Duchi,
    ExponentialMechanism,
    HadamardResponse,
    Harmony,
    KaryRandomizedResponse,
    LaplaceOnInterval,
    LocalHash,
    PaddedExponential,
    PckvGrr,
    PlanarGeometric,
    PrivKV,
    Randomizer,
    Rappor,
    SubsetExponential,
    SubsetSelection,
    WitchHat,
)

SETTINGS = tuple((users, delta) for users in (10**4, 10**5, 10**6) for delta in (1e-6, 1e-10))
EPSILONS = (1.0, 2.0, 4.0, 6.0)
WIDEST = 1.01
"""Target for the ratio of upper to lower bound."""


def line_of(points: int) -> Floats:
    """Distances of points on a line, the ends 1 apart."""
    places = np.linspace(0.0, 1.0, points)
    return np.abs(places[:, None] - places)


def plan_grid(side: int) -> Floats:
    """Distances of the cells of a square, opposite corners 1 apart."""
    cells = np.array([(i, j) for i in range(side) for j in range(side)], dtype=np.float64) / (
        (side - 1) * 2.0**0.5
    )
    return np.asarray(np.hypot(*(cells[:, None] - cells).transpose(2, 0, 1)))


def built_in(epsilon: float) -> dict[str, Randomizer]:
    """Built-in randomizers of some sizes with this local epsilon.

    An exponential mechanism has about this epsilon, from the metric.
    """
    mixed = np.random.default_rng(5).dirichlet(np.full(6, 5.0), 6) + 1.0 / epsilon
    return {
        "binary response": BinaryRandomizedResponse(epsilon),
        **{f"{k}-ary response": KaryRandomizedResponse(k, epsilon) for k in (3, 10, 100)},
        **{f"geometric, line of {k}": BoundedGeometric(k - 1, epsilon / (k - 1)) for k in (8, 64)},
        **{
            f"Laplace on an interval, {k} steps": LaplaceOnInterval(0.0, 1.0, epsilon, k)
            for k in (16, 64)
        },
        "WitchHat, 33 inputs": WitchHat(1.0, epsilon, 4.0, 16),
        "geometric, 8 x 8 cells": PlanarGeometric(8, 8, epsilon / (7.0 * 2.0**0.5)),
        "exponential, line of 16": ExponentialMechanism(line_of(16), epsilon),
        "exponential, 6 x 6 cells": ExponentialMechanism(plan_grid(6), epsilon),
        "padded exponential, line of 8": PaddedExponential(line_of(8), epsilon),
        "clustered response, 3 x 4": ClusteredResponse(3, 4, 0.25, epsilon),
        **{f"RAPPOR, {k} bits": Rappor(k, epsilon) for k in (8, 64)},
        **{f"subset of {k}": SubsetSelection(k, epsilon) for k in (10, 64)},
        "subset exponential, 2 of 6": SubsetExponential(6, 2, epsilon),
        **{f"Hadamard of {k}": HadamardResponse(k, epsilon) for k in (10, 64)},
        "local hash of 100": LocalHash(100, epsilon),
        **{f"Duchi, {d} dimensions": Duchi(d, epsilon) for d in (3, 8)},
        "Harmony, 8 dimensions": Harmony(8, epsilon),
        "PCKV-GRR, 3 keys": PckvGrr(3, 2, epsilon),
        "PrivKV, 3 keys": PrivKV(3, 0.5 * epsilon, 0.5 * epsilon),
        "a channel of one's own, 6 x 6": Channel(mixed / mixed.sum(axis=1, keepdims=True)),
    }


def further(epsilon: float) -> dict[str, Randomizer]:
    """Randomizers of sizes at which the bounds are less tight."""
    return {
        **{
            f"padded exponential, line of {k}": PaddedExponential(line_of(k), epsilon)
            for k in (16, 32)
        },
        **{f"subset of 10, size {k}": SubsetSelection(10, epsilon, k) for k in (7, 9)},
        "RAPPOR, 4 bits": Rappor(4, epsilon),
        "geometric, 3 x 3 cells": PlanarGeometric(3, 3, epsilon / (2.0 * 2.0**0.5)),
    }


FURTHER = tuple((users, 1e-6) for users in (10**4, 10**6, 10**8, 10**11))


@dataclass(frozen=True)
class Gap:
    """Ratio of upper to lower bound, the winning bound, blanket over lower bound, and seconds."""

    randomizer: str
    epsilon: float
    users: int
    delta: float
    ratio: float
    bound: str
    blanket: float
    seconds: float


def gaps(
    epsilons: tuple[float, ...] = EPSILONS,
    settings: tuple[tuple[int, float], ...] = SETTINGS,
    members: Callable[[float], dict[str, Randomizer]] = built_in,
) -> Iterator[Gap]:
    """Yield all gaps, one after the other."""
    for epsilon in epsilons:
        for name, randomizer in members(epsilon).items():
            for users, delta in settings:
                start = time.process_time()
                band = amplify(randomizer, users).epsilon(delta)
                took = time.process_time() - start
                widest = randomizer.diameter
                blanket = BestBoundProfile(randomizer, users, widest, "blanket").epsilon(
                    delta, widest
                )
                ratio, alone = (
                    value / band.lower if band.lower > 0.0 else math.inf
                    for value in (band.upper, blanket)
                )
                yield Gap(name, epsilon, users, delta, ratio, band.bound, alone, took)


def table(found: list[Gap]) -> str:
    """Markdown table of the largest ratio over the local epsilons, by randomizer and setting.

    In brackets, that of the blanket alone.
    """
    settings = list(dict.fromkeys((one.users, one.delta) for one in found))
    head = " | ".join(
        f"{users:.0e}, {delta:.0e}".replace("e+0", "e").replace("e-0", "e-")
        for users, delta in settings
    )
    lines = [f"| randomizer | {head} |", f"|---|{'---|' * len(settings)}"]
    for name in dict.fromkeys(one.randomizer for one in found):
        cells = []
        for setting in settings:
            here = [
                one for one in found if one.randomizer == name and (one.users, one.delta) == setting
            ]
            worst = max(here, key=lambda one: one.ratio)
            cells.append(f"{worst.ratio:.4f} ({max(one.blanket for one in here):.2f})")
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines)


def largest(found: list[Gap], epsilon: float) -> Gap:
    """Widest gap with a local epsilon of at most this."""
    return max((one for one in found if one.epsilon <= epsilon), key=lambda one: one.ratio)


if __name__ == "__main__":
    made = list(gaps((1.0, 2.0, 4.0), FURTHER, further) if sys.argv[1:] == ["further"] else gaps())
    print(table(made))
    print("The widest with a local epsilon of up to 4:", largest(made, 4.0))
