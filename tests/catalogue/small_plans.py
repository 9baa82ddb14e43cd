"""One small plan of every query and protocol, with people and their true answer, made once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import numpy as np

import metricshuffle as ms

LINE = ms.Integers(0, 5)
CLUSTERS = ms.Clustered(2, 3, 0.2)
CIRCLE = ms.Matrix(
    [[0.0, 1.0, 2.0, 1.0], [1.0, 0.0, 1.0, 2.0], [2.0, 1.0, 0.0, 1.0], [1.0, 2.0, 1.0, 0.0]]
)
"""Four points on a circle, whose distances are not those of a tree."""
MAP = ms.Grid.from_box(52.3, 13.1, 52.7, 13.8, 5000.0)
PLACES = ms.Places(52.3, 13.1, 52.7, 13.8)
LABELS = ms.Categories(["red", "green", "blue"])


@dataclass(frozen=True)
class Small:
    """Plan arguments and number of people.

    `epsilon`, `delta`, `distance` of a linear target unless it is `flat`.
    """

    query: Callable[[], ms.Query]
    target: tuple[float, float, float]
    users: int
    protocol: str
    trusted: str = "shuffler"
    flat: bool = False
    options: dict[str, Any] = field(default_factory=dict)

    @property
    def promise(self) -> ms.Target:
        return ms.Target(*self.target, "flat" if self.flat else "linear")


def _users(space: Any, items: int | None = None) -> ms.Users:
    return ms.users_of(space, items)


SMALL: dict[str, Small] = {
    "sum": Small(
        lambda: ms.Sum(ms.Integers(-3, 9, "kcal")),
        (1.0, 1e-4, 2.0),
        40,
        "polya-shuffle",
        options={"encoding": "unary"},
    ),
    "sum, bounded": Small(
        lambda: ms.Sum(ms.Integers(0, 5)),
        (1.0, 1e-3, 2.0),
        40,
        "polya-shuffle",
        options={"encoding": "unary", "padding": "bounded"},
    ),
    "sum, flipped bits": Small(
        lambda: ms.Sum(ms.Integers(5, 8)), (3.0, 1e-2, 3.0), 31, "randomized-response-shuffle"
    ),
    "sum, aggregator": Small(
        lambda: ms.Sum(ms.Integers(0, 9)),
        (1.0, 1e-4, 2.0),
        30,
        "geometric-shuffle",
        "aggregator",
        options={"encoding": "modular"},
    ),
    "mean": Small(
        lambda: ms.Mean(ms.Integers(0, 30)),
        (1.0, 1e-4, 5.0),
        40,
        "polya-shuffle",
        options={"encoding": "modular"},
    ),
    "mean, nobody": Small(
        lambda: ms.Mean(ms.Integers(0, 30)), (1.0, 0.0, 5.0), 40, "geometric-local", "nobody"
    ),
    "mean, curator": Small(
        lambda: ms.Mean(ms.Integers(0, 30)), (1.0, 0.0, 5.0), 40, "geometric-central", "curator"
    ),
    "mean of reals": Small(
        lambda: ms.Mean(ms.Interval(-2.0, 8.0)),
        (1.0, 1e-4, 2.0),
        40,
        "geometric-shuffle",
        options={"encoding": "modular", "granularity": 2.5},
    ),
    "hat": Small(lambda: ms.Mean(ms.Interval(-2.0, 8.0)), (1.0, 1e-4, 2.0), 4000, "witch-hat"),
    "hat, nobody": Small(
        lambda: ms.Sum(ms.Interval(-2.0, 8.0)), (1.0, 0.0, 2.0), 200, "witch-hat", "nobody"
    ),
    "centroid": Small(
        lambda: ms.Centroid(ms.Grid(9, 6, cell=2.0, unit="km")),
        (1.0, 1e-4, 4.0),
        40,
        "polya-shuffle",
        options={"encoding": "modular"},
    ),
    "centroid on a map": Small(
        lambda: ms.Centroid(PLACES),
        (1.0, 1e-4, 10_000.0),
        40,
        "polya-shuffle",
        options={"encoding": "modular"},
    ),
    "labels": Small(
        lambda: ms.Histogram(LABELS), (1.0, 1e-4, 1.0), 600, "k-ary-randomized-response"
    ),
    "labels, nobody": Small(
        lambda: ms.Histogram(LABELS), (1.0, 0.0, 1.0), 600, "hadamard-response", "nobody"
    ),
    "line": Small(
        lambda: ms.Histogram(ms.Integers(0, 5)), (1.0, 1e-4, 2.0), 1000, "bounded-geometric"
    ),
    "bins": Small(
        lambda: ms.Histogram(ms.Integers(0, 22), 4), (1.0, 1e-4, 8.0), 1000, "bounded-geometric"
    ),
    "bins of reals": Small(
        lambda: ms.Histogram(ms.Interval(-1.0, 2.0), 0.5),
        (1.0, 1e-4, 1.0),
        1000,
        "bounded-geometric",
    ),
    "cells": Small(
        lambda: ms.Histogram(ms.Grid(3, 4, 2.0, "km")), (1.0, 1e-4, 4.0), 2000, "planar-geometric"
    ),
    "cells on a map": Small(
        lambda: ms.Histogram(MAP), (2.0, 0.0, 10_000.0), 300, "planar-geometric", "nobody"
    ),
    "quantiles": Small(
        lambda: ms.Quantiles(ms.Integers(0, 60, "min"), (0.25, 0.5, 0.9)),
        (2.0, 1e-3, 10.0),
        200,
        "noisy-vectors",
    ),
    "median, nobody": Small(
        lambda: ms.Quantiles(ms.Integers(0, 20)), (2.0, 0.0, 5.0), 200, "noisy-vectors", "nobody"
    ),
    "median of reals, curator": Small(
        lambda: ms.Quantiles(ms.Interval(-1.0, 2.0), edges=(0.0, 1.0), step=0.25),
        (2.0, 0.0, 1.0),
        60,
        "noisy-vectors",
        "curator",
    ),
    "spread": Small(
        lambda: ms.Spread(ms.Integers(0, 31, "km")), (2.0, 1e-3, 10.0), 60, "noisy-vectors"
    ),
    "share above": Small(
        lambda: ms.ShareAbove(ms.Integers(0, 40), (10, 20), 5),
        (2.0, 1e-3, 10.0),
        60,
        "noisy-vectors",
    ),
    "users' tree": Small(
        lambda: ms.UserHistogram(_users(CLUSTERS)), (4.0, 0.0, 1.0), 60, "tree-laplace", "nobody"
    ),
    "users' tree, curator": Small(
        lambda: ms.UserHistogram(_users(LINE)), (4.0, 0.0, 5.0), 60, "tree-laplace", "curator"
    ),
    "users' shares": Small(
        lambda: ms.UserHistogram(_users(CIRCLE)), (4.0, 0.0, 1.0), 60, "share-laplace", "curator"
    ),
    "users' items": Small(
        lambda: ms.UserHistogram(_users(LINE, 4)), (4.0, 1e-2, 5.0), 60, "item-wise"
    ),
    "users' clusters": Small(
        lambda: ms.UserHistogram(_users(CLUSTERS, 2)), (3.0, 1e-2, 1.0), 60, "item-wise"
    ),
    "users' items, nobody": Small(
        lambda: ms.UserHistogram(_users(LINE, 2)), (4.0, 1e-2, 5.0), 60, "item-wise", "nobody"
    ),
    "users' drawn items": Small(
        lambda: ms.UserHistogram(_users(CLUSTERS)),
        (3.0, 1e-2, 0.5),
        60,
        "item-wise",
        flat=True,
        options={"draw": 2},
    ),
    "users' mean": Small(
        lambda: ms.UserLinearQuery.average(_users(ms.Integers(0, 20, "km"))),
        (4.0, 0.0, 5.0),
        60,
        "laplace",
        "nobody",
    ),
    "users' mean, curator": Small(
        lambda: ms.UserLinearQuery.average(_users(LINE, 3)),
        (4.0, 1e-4, 5.0),
        60,
        "gaussian",
        "curator",
    ),
    "users' place": Small(
        lambda: ms.UserLinearQuery.average(_users(ms.Grid(5, 4, 2.0), 2)),
        (2.0, 1e-4, 4.0),
        60,
        "sphere",
        "curator",
    ),
    "users' place on a map": Small(
        lambda: ms.UserLinearQuery.average(
            _users(ms.Grid.from_box(52.3, 13.1, 52.7, 13.8, 10_000.0))
        ),
        (2.0, 0.0, 20_000.0),
        60,
        "laplace",
        "nobody",
    ),
    "users' table": Small(
        lambda: ms.UserLinearQuery(_users(CLUSTERS), np.arange(12.0).reshape(6, 2), ("up", "down")),
        (2.0, 1e-4, 1.0),
        60,
        "cube",
        "curator",
    ),
}
"""Small plans by name; only the named protocol is calibrated, for the named trust."""


@cache
def plan_of(name: str) -> ms.Plan:
    """Plan of that name with its named choice."""
    small = SMALL[name]
    made = ms.plan(
        small.query(),
        small.promise,
        small.users,
        trusted=small.trusted,  # type: ignore[arg-type]
        protocols=[small.protocol],
        **small.options,
    )
    index = next(at for at, offer in enumerate(made.candidates) if offer.trusted == small.trusted)
    return chosen(made, index)


def chosen(plan: ms.Plan, index: int) -> ms.Plan:
    """Copy of the plan with another candidate chosen."""
    offer = plan.candidates[index]
    assert offer.mechanism is not None
    task = ms.Task(
        query=plan.query,
        protocol=offer.mechanism,
        users=plan.users,
        honest=plan.honest,
        rounds=plan.rounds,
        guarantee=offer.guarantee,
        if_shuffler_colludes=offer.fallback,
        damage=offer.damage,
    )
    return plan.model_copy(update={"chosen": index, "task": task})


def values_of(name: str, people: int | None = None) -> Any:
    """Values of that many people (by default as many as planned): drawn once, unevenly."""
    plan = plan_of(name)
    count = plan.users if people is None else people
    generator = np.random.default_rng(5)
    query = plan.query
    if query.items is not None:
        assert isinstance(query, ms.UserHistogram | ms.UserLinearQuery)
        sizes = (
            generator.integers(1, 6, count)
            if query.people.items is None
            else np.full(count, query.people.items)
        )
        codes = [
            np.sort(generator.integers(0, query.people.size, size) // (1 + index % 2))
            for index, size in enumerate(sizes)
        ]
        low = (
            query.people.items_in.domain.low
            if isinstance(query.people.items_in.domain, ms.Integers)
            else 0
        )
        return [(held + low).tolist() for held in codes]
    domain: Any = query.values_in
    if isinstance(domain, ms.Categories):
        return np.array(domain.labels)[
            generator.choice(len(domain.labels), count, p=[0.6, 0.3, 0.1])
        ].tolist()
    if isinstance(domain, ms.Grid):
        columns, rows = (
            generator.binomial(size - 1, 0.3, count) for size in (domain.width, domain.height)
        )
        return np.column_stack([columns, rows])
    if isinstance(domain, ms.Places):
        parts = generator.beta(2.0, 4.0, (count, 2))
        return np.array([domain.south, domain.west]) + parts * (
            domain.north - domain.south,
            domain.east - domain.west,
        )
    shares = generator.beta(2.0, 4.0, count)
    drawn = domain.low + (domain.high - domain.low) * shares
    return drawn if isinstance(domain, ms.Interval) else np.rint(drawn).astype(np.int64)


def truth_of(name: str, values: Any) -> Any:
    """Exact answer in the shape of the unbiased one.

    Numbers of the plane for places, shares or means for tables.
    """
    query = plan_of(name).query
    if isinstance(query, ms.UserHistogram):
        return query.people.histograms(values).mean(axis=0)
    if isinstance(query, ms.UserLinearQuery):
        return query.people.histograms(values).mean(axis=0) @ query.table
    if isinstance(query, ms.Histogram):
        return np.bincount(query.inputs(values, 1.0).numbers[:, 0], minlength=query.cells) / len(
            values
        )
    if isinstance(query, ms.Quantiles | ms.Spread | ms.ShareAbove):
        return query.exact(
            np.bincount(query.inputs(values, 1.0).numbers[:, 0], minlength=query.cells)
        )
    if isinstance(query, ms.Centroid) and isinstance(query.domain, ms.Places):
        places = query.domain
        return ((np.mean(values, axis=0) - (places.south, places.west)) * places.middle_metres)[
            ::-1
        ]
    if isinstance(query, ms.Centroid):
        return (np.mean(values, axis=0) + 0.5) * query.step(1.0)
    return np.atleast_1d(np.sum(values) if query.kind == "sum" else np.mean(values)).astype(
        np.float64
    )


def answered(
    release: ms.Release, level: float = 0.95, *, simultaneous: bool = False
) -> tuple[Any, Any, Any]:
    """Unbiased numbers of a release in the order of `truth_of`, standard errors, and intervals.

    Intervals are one row (low, high) each.
    """
    answer = release.query.answer(release.estimate, level, simultaneous=simultaneous)
    flat = answer.plane or answer
    if isinstance(flat.value, ms.Table):
        key = next(name for name in ("unbiased", "value", "share") if name in flat.value.columns)
        return (
            np.asarray(flat.value[key]),
            np.asarray(flat.standard_error),
            np.asarray(flat.interval),
        )
    return (
        np.atleast_1d(flat.value),
        np.atleast_1d(flat.standard_error),
        np.atleast_2d(flat.interval),
    )
