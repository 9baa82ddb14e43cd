"""Random queries of every kind, corner cases included, that are fast to plan."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import metricshuffle as ms

Numbers = np.random.Generator


def _pick(numbers: Numbers, *choices: Any) -> Any:
    return choices[int(numbers.integers(0, len(choices)))]


def _target(numbers: Numbers, distance: float, shape: Any = None) -> ms.Target:
    epsilon = float(np.exp(numbers.uniform(np.log(0.15), np.log(6.0))))
    delta = float(
        _pick(
            numbers,
            0.0,
            1e-30,
            10.0 ** numbers.uniform(-12.0, -1.3),
            10.0 ** numbers.uniform(-7.0, -1.3),
            1e-3,
            1e-6,
        )
    )
    return ms.Target(epsilon, delta, distance, shape or _pick(numbers, "linear", "linear", "flat"))


def _users(numbers: Numbers, most: int) -> int:
    return int(
        _pick(
            numbers,
            1,
            2,
            3,
            int(numbers.integers(2, 12)),
            int(np.exp(numbers.uniform(np.log(5.0), np.log(most)))),
        )
    )


def _common(numbers: Numbers, users: int, single: int) -> dict[str, Any]:
    options: dict[str, Any] = {
        "trusted": _pick(
            numbers, "shuffler", "shuffler", "shuffler", "nobody", "curator", "aggregator"
        )
    }
    if users > 3:
        options["honest"] = _pick(numbers, None, None, "90%", "60%", max(2, users // 3))
    options["rounds"] = _pick(numbers, *[1] * single, 2, 3)
    return options


def _number(numbers: Numbers) -> tuple[Any, ...]:
    high = int(_pick(numbers, 1, 2, 9, int(numbers.integers(1, 60))))
    low = int(_pick(numbers, 0, -7, 10**15))
    query = _pick(numbers, ms.Sum, ms.Mean)(ms.Integers(low, low + high))
    distance = float(_pick(numbers, 1, high, numbers.integers(1, high + 1)))
    grain = (
        {"granularity": int(numbers.integers(2, 5))} if high >= 8 and numbers.random() < 0.3 else {}
    )
    choice = {
        "encoding": _pick(numbers, "auto", "unary", "modular"),
        "padding": _pick(numbers, "clamp", "bounded"),
    }
    return query, distance, 80, {**grain, **choice}


def _real(numbers: Numbers) -> tuple[Any, ...]:
    low = float(_pick(numbers, 0.0, -3.25, 1e6))
    width = float(_pick(numbers, 1.0, 7.5, 0.125))
    distance = width * float(_pick(numbers, 1.0, 0.5, numbers.uniform(0.1, 1.0)))
    query = _pick(numbers, ms.Sum, ms.Mean)(ms.Interval(low, low + width))
    grain = (
        {"granularity": distance * float(_pick(numbers, 0.5, 1.0, 0.25))}
        if numbers.random() < 0.5
        else {}
    )
    return query, distance, 60, grain


def _centroid(numbers: Numbers) -> tuple[Any, ...]:
    width, height = (int(numbers.integers(2, 9)) for _ in range(2))
    cell = float(_pick(numbers, 1.0, 0.25, 200.0))
    query = ms.Centroid(ms.Grid(width, height, cell))
    distance = cell * float(
        _pick(
            numbers,
            1.0,
            min(width, height) - 1,
            numbers.uniform(1.0, max(1.5, min(width, height) - 1.0)),
        )
    )
    return query, distance, 40, {"encoding": _pick(numbers, "auto", "modular")}


def _labels(numbers: Numbers) -> tuple[Any, ...]:
    count = int(_pick(numbers, 2, 3, 4, numbers.integers(2, 20)))
    return ms.Histogram(ms.Categories([f"label {k}" for k in range(count)])), 1.0, 3000, {}


def _line(numbers: Numbers) -> tuple[Any, ...]:
    size = int(numbers.integers(1, 12))
    step = float(_pick(numbers, 1.0, 3.0))
    query = ms.Histogram(ms.Integers(0, int((size + 1) * step) - 1), step)
    distance = step * float(_pick(numbers, 1, size, numbers.integers(1, size + 1)))
    return query, distance, 3000, {}


def _map(numbers: Numbers) -> tuple[Any, ...]:
    width = int(numbers.integers(2, 5))
    height = int(numbers.integers(2, 5))
    cell = float(_pick(numbers, 1.0, 50.0))
    distance = cell * float(_pick(numbers, 1.0, 1.5, np.hypot(width - 1, height - 1)))
    return ms.Histogram(ms.Grid(width, height, cell)), distance, 2000, {}


def _space(numbers: Numbers) -> Any:
    table = np.sort(numbers.uniform(0.0, 4.0, 5)) + np.arange(5) * 0.2
    return _pick(
        numbers,
        ms.Integers(0, int(numbers.integers(1, 8))),
        ms.Clustered(2, 3, 0.2),
        ms.Clustered(3, 2, 0.5),
        ms.Categories(["a", "b", "c"]),
        ms.Grid(3, 2, 2.0),
        ms.Matrix(
            [[0.0, 1.0, 2.0, 1.0], [1.0, 0.0, 1.0, 2.0], [2.0, 1.0, 0.0, 1.0], [1.0, 2.0, 1.0, 0.0]]
        ),
        ms.Matrix(np.abs(table[:, None] - table[None, :])),
    )


def _items(numbers: Numbers) -> tuple[Any, ...]:
    space = _space(numbers)
    held = _pick(numbers, None, 1, 2, 3, 4)
    people = ms.users_of(space, held)
    samples = (
        {}
        if held is not None
        else {"draw": int(_pick(numbers, 1, 2, 3)), "most_items": int(_pick(numbers, 2, 3, 5))}
    )
    distance = people.diameter * float(
        _pick(numbers, 1.0, 1.0, 0.5, numbers.uniform(1.0 / (held or 4), 1.0))
    )
    return ms.UserHistogram(people), max(distance, people.nearest / (held or 1)), 60, samples


def _linear(numbers: Numbers) -> tuple[Any, ...]:
    space = _pick(
        numbers,
        ms.Integers(0, int(numbers.integers(1, 30))),
        ms.Grid(4, 3, 2.0),
        ms.Clustered(2, 3, 0.2),
    )
    people = ms.users_of(space, _pick(numbers, None, 2))
    if isinstance(space, ms.Clustered):
        query = ms.UserLinearQuery(people, numbers.normal(size=(6, 2)), ("up", "down"))
    else:
        query = ms.UserLinearQuery.average(people)
    return query, people.diameter * float(_pick(numbers, 1.0, 0.5)), 60, {}


KINDS: dict[str, tuple[Callable[[Numbers], tuple[Any, ...]], int]] = {
    "number": (_number, 5),
    "real": (_real, 3),
    "centroid": (_centroid, 2),
    "labels": (_labels, 3),
    "line": (_line, 3),
    "map": (_map, 2),
    "items": (_items, 4),
    "linear": (_linear, 2),
}
"""Kinds of queries, and their frequencies."""
SUMS = {"number", "real", "centroid"}
"""Kinds whose several rounds take seconds to plan, so there are fewer."""


def drawn(seed: int) -> tuple[str, ms.Plan | str]:
    """Kind and plan of a random query, or the error with which it was rejected."""
    numbers = np.random.default_rng(seed)
    names = [name for name, (_, often) in KINDS.items() for _ in range(often)]
    name = names[seed % len(names)]
    query, distance, most, options = KINDS[name][0](numbers)
    users = _users(numbers, most)
    shape = "flat" if name == "labels" else None
    try:
        return name, ms.plan(
            query,
            _target(numbers, distance, shape),
            users,
            **_common(numbers, users, 30 if name in SUMS else 4),
            **options,
        )
    except ms.MetricShuffleError as refused:
        return name, str(refused)
