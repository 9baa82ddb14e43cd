"""Benchmark of earth mover's distances: `python -m benchmarks transport` (extra `transport`)."""

from __future__ import annotations

from typing import Any

import numpy as np
import ot

import metricshuffle.spaces as spaces
from benchmarks.measuring import measurement, seconds

POINTS = 1_000
NUMBERS = 1_000_000


def measurements() -> list[dict[str, Any]]:
    rng = np.random.default_rng(4)
    rows = []
    for name, weights in (("weighted", rng.random((2, POINTS))), ("even", np.ones((2, POINTS)))):
        costs = spaces.Euclidean().pairwise(rng.random((POINTS, 2)), rng.random((POINTS, 2)))
        plain, ours = _side_by_side(costs, *(weights / weights.sum(axis=1, keepdims=True)))
        rows.append(measurement(f"two sets of 1,000 points, {name}: plain POT", plain, "s", None))
        rows.append(measurement(f"two sets of 1,000 points, {name}: certified", ours, "s", None))
        rows.append(
            measurement(
                f"two sets of 1,000 points, {name}: times plain POT",
                ours / plain,
                "",
                1.2,
                at_most=True,
            )
        )
    x = rng.normal(size=NUMBERS)
    y = rng.normal(size=NUMBERS)
    v = rng.random(NUMBERS)
    w = rng.random(NUMBERS)
    time = seconds(lambda: spaces.line_distance(x, y), 10)
    rows.append(measurement("two sets of 1e6 numbers on a line", time, "s", 0.05, at_most=True))
    half = NUMBERS // 2
    time = seconds(lambda: spaces.line_distance(x[:half], y[:half], v[:half], w[:half]))
    rows.append(measurement("1e6 numbers with weights, in two sets", time, "s", 0.05, at_most=True))
    time = seconds(lambda: spaces.line_distance(x, y, v, w))
    rows.append(measurement("2e6 numbers with weights, in two sets", time, "s", None))
    line = spaces.Integers(0, NUMBERS - 1)
    time = seconds(lambda: spaces.earth_mover(line, v, w))
    rows.append(
        measurement("two histograms over 1e6 points of a line", time, "s", 0.05, at_most=True)
    )
    users = spaces.users_of(spaces.Clustered(10, 10, 0.1), items=100)
    held = rng.integers(0, 100, (10_000, 100))
    time = seconds(lambda: users.histograms(held))
    rows.append(measurement("histograms of 1e4 users with 100 items each", time, "s", None))
    return rows


def _side_by_side(costs: Any, a: Any, b: Any, rounds: int = 15) -> tuple[float, float]:
    """Seconds of POT alone and of the certified distance, the best of each.

    Both run in turns, so that other work disturbs both.
    """
    plain = float("inf")
    ours = float("inf")
    for _ in range(rounds):
        plain = min(plain, seconds(lambda: ot.emd2(a, b, costs, numItermax=10**7), 1, warm=False))
        ours = min(ours, seconds(lambda: spaces.transport(costs, a, b), 1, warm=False))
    return plain, ours
