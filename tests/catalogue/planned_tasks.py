"""One small plan of every kind with values for it, made once per process and shared by tests."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

from metricshuffle.planning import Plan, plan
from metricshuffle.privacy.target import Target
from metricshuffle.protocols.protocol import Reports
from metricshuffle.queries import (
    ByGroup,
    Centroid,
    Histogram,
    KeyValues,
    Mean,
    Means,
    Quantiles,
    Sets,
    ShareAbove,
    Spread,
    Sum,
    UserHistogram,
    UserLinearQuery,
)
from metricshuffle.randomness import Randomness
from metricshuffle.spaces import (
    Categories,
    Grid,
    Integers,
    Interval,
    Places,
    Space,
    Users,
    users_of,
)
from metricshuffle.tasks import Release, Task

KCAL = Integers(0, 20, "kcal")
DRINKS = ("tea", "coffee", "water")
BOX = (46.94, 7.42, 46.96, 7.46)
"""Box of four degrees around Bern: south, west, north, east."""


def drinkers(items: int | None) -> Users:
    return users_of(Space(Categories(DRINKS)), items)


def walkers() -> Users:
    return users_of(Space(Integers(0, 5)), 3)


def bern() -> Grid:
    return Grid.from_box(*BOX, 800.0)


MADE: dict[str, Callable[[], Plan]] = {
    "unary sum": lambda: plan(
        Sum(KCAL), Target(1, 1e-6, 5), 40, 30, encoding="unary", protocols=["polya-shuffle"]
    ),
    "bounded sum": lambda: plan(
        Sum(KCAL),
        Target(1, 1e-6, 5),
        40,
        30,
        encoding="unary",
        padding="bounded",
        protocols=["polya-shuffle"],
    ),
    "sum in shares": lambda: plan(
        Sum(KCAL), Target(1, 1e-6, 5), 40, 30, encoding="modular", protocols=["polya-shuffle"]
    ),
    "aggregated sum": lambda: plan(
        Sum(KCAL),
        Target(1, 1e-6, 5),
        40,
        30,
        encoding="modular",
        transport="aggregator",
        protocols=["polya-shuffle"],
    ),
    "flipped bits": lambda: plan(
        Sum(Integers(0, 3)), Target(1, 1e-6, 3), 400, 300, protocols=["randomized-response-shuffle"]
    ),
    "local sum": lambda: plan(Sum(KCAL), Target(1, 0, 5), 40, 30, trusted="nobody"),
    "curator's sum": lambda: plan(
        Sum(KCAL), Target(1, 1e-6, 5), 40, 30, trusted="curator", protocols=["geometric-central"]
    ),
    "two rounds": lambda: plan(Sum(KCAL), Target(1, 0, 5), 40, 30, rounds=2, trusted="nobody"),
    "mean of real numbers": lambda: plan(
        Mean(Interval(0.0, 10.0, "h")),
        Target(1, 1e-6, 2),
        200,
        granularity=0.5,
        encoding="modular",
        protocols=["polya-shuffle"],
    ),
    "witch hat": lambda: plan(
        Mean(Interval(0.0, 10.0, "h")),
        Target(1, 1e-6, 2),
        2000,
        granularity=0.5,
        protocols=["witch-hat"],
    ),
    "centroid": lambda: plan(
        Centroid(Places(*BOX)),
        Target(4, 1e-6, 1600),
        40,
        encoding="modular",
        protocols=["polya-shuffle"],
    ),
    "noise by the shuffler": lambda: plan(
        Histogram(Integers(0, 9)),
        Target(1, 1e-6, 3),
        400,
        300,
        protocols=["shuffler-noise"],
    ),
    "labels": lambda: plan(
        Histogram(Categories(DRINKS)),
        Target(1, 1e-6, 1),
        400,
        300,
        protocols=["k-ary-randomized-response"],
    ),
    "line": lambda: plan(
        Histogram(Integers(0, 9)), Target(1, 1e-6, 3), 400, protocols=["k-ary-randomized-response"]
    ),
    "map": lambda: plan(
        Histogram(bern()), Target(2, 1e-6, 1600), 400, protocols=["k-ary-randomized-response"]
    ),
    "vectors of labels": lambda: plan(
        Histogram(Categories(DRINKS)),
        Target(1, 1e-6, 1),
        60,
        50,
        max_local_epsilon=4.0,
        protocols=["noisy-vectors"],
    ),
    "vectors of a line": lambda: plan(
        Histogram(Integers(0, 9)), Target(1, 1e-6, 3), 60, floor=False, protocols=["noisy-vectors"]
    ),
    "vectors of a map": lambda: plan(
        Histogram(bern()),
        Target(2, 1e-6, 1600),
        60,
        trusted="aggregator",
        protocols=["noisy-vectors"],
    ),
    "median": lambda: plan(Quantiles(KCAL, (0.5, 0.75)), Target(2, 1e-6, 5), 60, 50),
    "local spread": lambda: plan(Spread(KCAL), Target(2, 0, 5), 60, trusted="nobody"),
    "share above": lambda: plan(ShareAbove(KCAL, (10,), 5), Target(2, 1e-6, 5), 60, 50),
    "users' vectors": lambda: plan(
        UserHistogram(users_of(Space(Integers(0, 5)))),
        Target(2, 1e-6, 2),
        40,
        protocols=["noisy-vectors"],
    ),
    "users' means in shares": lambda: plan(
        UserLinearQuery(
            users_of(Space(KCAL)),
            np.column_stack([np.sqrt(np.arange(21.0)), np.arange(21.0) ** 2]),
            ("root", "square"),
        ),
        Target(2, 1e-6, 2),
        40,
        protocols=["noisy-vectors"],
    ),
    "curator's vectors": lambda: plan(
        Histogram(Integers(0, 9)),
        Target(1, 1e-6, 3),
        60,
        trusted="curator",
        protocols=["noisy-vectors"],
    ),
    "users' histogram": lambda: plan(
        UserHistogram(walkers()), Target(2, 1e-6, 2), 40, protocols=["tree-laplace"]
    ),
    "users' items": lambda: plan(
        UserHistogram(drinkers(3)), Target(2, 1e-6, 1), 2000, protocols=["item-wise"]
    ),
    "users' samples": lambda: plan(
        UserHistogram(drinkers(None)),
        Target(2, 1e-6, 1, "flat"),
        2000,
        draw=3,
        protocols=["item-wise"],
    ),
    "users' mean": lambda: plan(
        UserLinearQuery.average(users_of(Space(KCAL))),
        Target(2, 1e-6, 5),
        40,
        protocols=["laplace"],
    ),
    "means by group": lambda: plan(
        ByGroup(Categories(DRINKS), Mean(KCAL)), Target(1, 1e-6, 5, label_epsilon=2), 40, 30
    ),
    "means of columns": lambda: plan(
        Means(["x", "y"], Interval(-1.0, 1.0)), Target(1, 1e-6, 4, "flat"), 40, 30
    ),
    "sets": lambda: plan(Sets(DRINKS, size=2), Target(1, 1e-6, 3), 40, 30),
    "sets, one report each": lambda: plan(
        Sets(DRINKS, size=1), Target(2, 1e-6, 2, "flat"), 2000, protocols=["priv-set"]
    ),
    "means by key": lambda: plan(KeyValues(DRINKS, KCAL, 2), Target(1, 1e-6, 40), 40, 30),
    "curator's histogram": lambda: plan(
        UserHistogram(walkers()),
        Target(2, 1e-6, 2),
        40,
        trusted="curator",
        protocols=["tree-laplace"],
    ),
}
KINDS = tuple(MADE)
CURATORS = tuple(kind for kind in KINDS if kind.startswith("curator"))
SENT = tuple(kind for kind in KINDS if kind not in CURATORS)
"""Kinds in which clients send reports."""


@cache
def planned(kind: str) -> Plan:
    return MADE[kind]()


@cache
def run_of(kind: str) -> Release:
    """Release of the plan, with all roles on one machine."""
    return planned(kind).run(values_of(kind))


def load_task(kind: str) -> Task:
    return planned(kind).task


def values_of(kind: str, people: int | None = None) -> list[Any]:
    """Values of that many people (by default as many as planned)."""
    people = load_task(kind).users if people is None else people
    one_each: dict[str, Callable[[int], Any]] = {
        "sum": lambda person: person % 4,
        "quantiles": lambda person: person % 20,
        "spread": lambda person: person % 20,
        "share-above": lambda person: person % 20,
        "mean": lambda person: person % 10 + 0.5,
        "centroid": lambda person: (46.943 + 0.006 * (person % 3), 7.43 + 0.0125 * (person % 2)),
        "means": lambda person: (person % 9 / 8, -0.25),
        "sets": lambda person: DRINKS[person % 3 : person % 3 + 1] if person % 4 else (),
        "key-values": lambda person: {DRINKS[person % 3]: person % 21} if person % 4 else {},
        "by-group": lambda person: (DRINKS[person % 3], person % 21),
        "user-linear": lambda person: [person % 21] * (1 + person % 3),
    }
    query = load_task(kind).query
    if query.kind in one_each:
        return [one_each[query.kind](person) for person in range(people)]
    if query.kind == "histogram":
        cells: dict[str, list[Any]] = {
            "codes": list(DRINKS),
            "numbers": [0, 3, 9],
            "plane": [(0, 0), (1, 1), (2, 0)],
        }
        return [cells[query.values_in.points_are][person % 3] for person in range(people)]
    if kind in ("users' items", "users' samples"):
        return [[DRINKS[person % 3], "tea", "water"] for person in range(people)]
    return [[person % 6, 2, 3] for person in range(people)]


def reports_of(kind: str, people: int | None = None, seed: int = 1, round: int = 1) -> Reports:
    return load_task(kind).randomize(values_of(kind, people), Randomness.seeded(seed), round=round)


Stored = dict[str, Any]


def stored(kind: str) -> Stored:
    """JSON of a task as a mutable object."""
    content: Stored = json.loads(load_task(kind).to_json())
    return content


def signed(content: Stored) -> str:
    """Text of a task with that content, its sentences and digest recomputed, as a forger would."""
    return Task.model_validate(
        {name: value for name, value in content.items() if name != "digest"}
    ).to_json()
