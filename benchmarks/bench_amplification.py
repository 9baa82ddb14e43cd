"""How long a certified amplified epsilon takes, for one pair and for every pair of a domain: `python -m benchmarks amplification`."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from benchmarks.measuring import measurement, seconds
from metricshuffle.accounting.amplified_domain import amplified_metric
from metricshuffle.accounting.clones import ClonePair, epsilon_lower, epsilon_upper
from metricshuffle.accounting.metric_amplification import exact_tail
from metricshuffle.spaces import Categories, Grid, Integers, Matrix, Space, Tree

POINTS = 10_000


def _one_pair() -> list[dict[str, Any]]:
    rows = []
    for users in (10**3, 10**5, 10**6, 10**7, 10**8, 10**10, 10**12):
        delta, target = 0.01 / users, 3e-4 if users >= 10**6 else 0.05
        for name, pair in (("symmetric", ClonePair(1, 1, 1)), ("asymmetric", ClonePair(1, 3, 2.5))):
            time = seconds(partial(epsilon_upper, pair, users, delta))
            goal = target if name == "symmetric" else None
            rows.append(measurement(f"epsilon of the {name} clone pair, {users:.0e} users", time, "s", goal, at_most=True))
            gap = epsilon_upper(pair, users, delta) / epsilon_lower(pair, users, delta) - 1
            rows.append(measurement("  its relative bracket", gap, "", 1e-4 if users > 10**5 else 1e-7, at_most=True))
    time = seconds(lambda: exact_tail(1.0, 3.4, 10**9, 1e-11))
    rows.append(measurement("Theorem 1 with the exact tail, 1e9 users", time, "s", None))
    return rows


def _matrix(space: Space, rate: float, users: int) -> object:
    return amplified_metric(space, rate, users, 1e-9).matrix()


def _every_pair() -> list[dict[str, Any]]:
    rng = np.random.default_rng(1)
    parents = [-1, *(int(rng.integers(max(0, i - 200), i)) for i in range(1, POINTS))]
    spaces = {
        "line of 1e4 points": (Space(Integers(0, POINTS - 1)), 10 / POINTS),
        "grid of 100 x 100 cells": (Space(Grid(100, 100)), 10 / 140),
        "tree of 1e4 points": (Space(Categories([str(i) for i in range(POINTS)]), Tree(parents)), 0.1),
    }
    rows = []
    for name, (space, rate) in spaces.items():
        for users in (10**4, 10**7):
            time = seconds(partial(_matrix, space, rate, users), 1, warm=False)
            rows.append(measurement(f"every pair of a {name}, {users:.0e} users", time, "s", 20.0, at_most=True))
    points = rng.random((2000, 2)) * 7
    table = np.linalg.norm(points[:, None] - points[None], axis=2)
    space = Space(Categories([str(i) for i in range(2000)]), Matrix(np.maximum(table, table.T)))
    time = seconds(partial(_matrix, space, 1.0, 10**6), 1, warm=False)
    rows.append(measurement("every pair of a table of 2,000 points, 1e6 users", time, "s", None))
    return rows


def measurements() -> list[dict[str, Any]]:
    return _one_pair() + _every_pair()
