"""Benchmark of a whole release, time and memory: `python -m benchmarks release`."""

from __future__ import annotations

import resource
from typing import Any

import numpy as np

import metricshuffle as ms
from benchmarks.measuring import measurement, seconds

PEOPLE = 10_000_000


def measurements() -> list[dict[str, Any]]:
    rows = []
    query = ms.Mean(ms.Integers(0, 1000))
    target = ms.Target(epsilon=1.0, delta=1e-6, distance=100)
    values = np.arange(PEOPLE, dtype=np.int64) % 1001
    bounded = ms.plan(
        query,
        target,
        users=PEOPLE,
        encoding="unary",
        padding="bounded",
        protocols=("geometric-shuffle",),
    )
    time = seconds(lambda: bounded.run(values), repeats=2)
    rows.append(
        measurement(
            "1e7 values randomized, shuffled as counts, estimated", time, "s", 2.0, at_most=True
        )
    )
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    rows.append(measurement("peak memory of that", peak, "GiB", 1.0, at_most=True))
    huge = ms.plan(
        query,
        target,
        users=10**9,
        encoding="modular",
        protocols=("geometric-shuffle", "polya-shuffle"),
    )
    time = seconds(lambda: ms.simulate(huge, runs=1000), repeats=2)
    rows.append(
        measurement("a simulated release of 1e9 users (1,000 runs)", time, "s", 1.0, at_most=True)
    )
    time = seconds(lambda: ms.plan(query, target, users=1000, encoding="modular"), repeats=2)
    rows.append(measurement("plan, modular, 1e3 users", time, "s", None))
    return rows
