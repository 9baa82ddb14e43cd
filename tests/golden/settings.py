"""Sixty settings over all queries whose plans must not change, as plain data."""

from __future__ import annotations

from typing import Any

import metricshuffle as ms

Described = dict[str, Any]


def _integers(low: int, high: int, unit: str = "") -> Described:
    return {"kind": "integers", "low": low, "high": high, "unit": unit}


def _interval(low: float, high: float, unit: str = "") -> Described:
    return {"kind": "interval", "low": low, "high": high, "unit": unit}


def _grid(width: int, height: int, cell: float = 1.0, unit: str = "") -> Described:
    return {"kind": "grid", "width": width, "height": height, "cell": cell, "unit": unit}


def _categories(labels: int) -> Described:
    return {"kind": "categories", "labels": [f"label {index}" for index in range(labels)]}


def _query(kind: str, domain: Described, items: int | None = None) -> Described:
    return {"kind": kind, "domain": domain, "items": items}


def _target(epsilon: float, delta: float, distance: float, shape: str = "linear") -> Described:
    return {"epsilon": epsilon, "delta": delta, "distance": distance, "shape": shape}


def _setting(
    name: str,
    query: Described,
    target: Described,
    users: int,
    honest: int | float | str | None = None,
    *,
    only: list[str] | None = None,
    slow: bool = False,
    **options: Any,
) -> Described:
    return {
        "name": name,
        "query": query,
        "target": target,
        "users": users,
        "honest": honest,
        "options": options,
        "only": only,
        "slow": slow,
    }


STEPS = _integers(0, 10)
AGES = _integers(0, 100, "years")
SALARIES = _integers(0, 100_000, "euro")
UNIT = _interval(0.0, 1.0)
DEGREES = _interval(-20.0, 45.0, "degrees")
TOWN = _grid(30, 20, 0.5, "km")
COUNTRY = _grid(400, 300, 1.0, "km")
CLUSTERS = {"kind": "clustered", "clusters": 3, "places": 4, "inner": 0.25}
TREE = {
    "kind": "tree",
    "parents": [-1, 0, 0, 1, 1, 2, 3, 3],
    "lengths": [0.0, 0.1, 0.3, 0.7, 0.123, 0.33, 0.77, 0.01],
}
SQUARES = {"kind": "nested-squares", "levels": 2, "side": 8.0, "unit": "km"}
# Four points on a circle: not the distances along any tree.
CIRCLE = {
    "kind": "matrix",
    "distances": [
        [0.0, 1.0, 2.0, 1.0],
        [1.0, 0.0, 1.0, 2.0],
        [2.0, 1.0, 0.0, 1.0],
        [1.0, 2.0, 1.0, 0.0],
    ],
}

SUMS = [
    _setting("sum of a few steps", _query("sum", STEPS), _target(1.0, 1e-6, 1.0), 100),
    _setting("sum of many steps", _query("sum", STEPS), _target(0.5, 1e-8, 2.0), 10_000_000),
    _setting("sum, nine in ten honest", _query("sum", AGES), _target(1.0, 1e-6, 10.0), 1000, 0.9),
    _setting(
        "sum, flat, honest as a count",
        _query("sum", AGES),
        _target(2.0, 1e-5, 100.0, "flat"),
        500,
        123,
    ),
    _setting(
        "mean, pure, through an aggregator",
        _query("mean", AGES),
        _target(1.0, 0.0, 5.0),
        2000,
        transport="aggregator",
    ),
    _setting("mean, pure, through a shuffler", _query("mean", AGES), _target(1.0, 0.0, 5.0), 2000),
    _setting("mean, tiny delta", _query("mean", AGES), _target(1.0, 1e-12, 5.0), 2000),
    _setting(
        "sum over two rounds",
        _query("sum", STEPS),
        _target(1.0, 1e-6, 1.0),
        100,
        rounds=2,
        slow=True,
    ),
    _setting(
        "sum over four rounds",
        _query("sum", _integers(0, 1)),
        _target(2.0, 1e-5, 1.0),
        50,
        rounds=4,
        slow=True,
    ),
    _setting(
        "sum, unary only",
        _query("sum", STEPS),
        _target(1.0, 1e-6, 3.0),
        1000,
        0.5,
        encoding="unary",
    ),
    _setting(
        "sum, modular only",
        _query("sum", SALARIES),
        _target(1.0, 1e-6, 1000.0),
        10_000,
        encoding="modular",
    ),
    _setting(
        "sum, bounded padding",
        _query("sum", _integers(0, 5)),
        _target(1.0, 1e-4, 2.0),
        100,
        padding="bounded",
    ),
    _setting(
        "sum through an aggregator",
        _query("sum", SALARIES),
        _target(1.0, 1e-6, 200.0),
        5000,
        0.9,
        transport="aggregator",
        slow=True,
    ),
    _setting(
        "mean by a curator", _query("mean", AGES), _target(0.5, 1e-6, 10.0), 300, trusted="curator"
    ),
    _setting(
        "mean, nobody trusted",
        _query("mean", AGES),
        _target(0.5, 1e-6, 10.0, "flat"),
        300,
        trusted="nobody",
    ),
    _setting(
        "mean, capped local epsilon",
        _query("mean", AGES),
        _target(1.0, 1e-6, 10.0),
        1000,
        max_local_epsilon=8.0,
    ),
    _setting(
        "mean, capped bits", _query("mean", AGES), _target(1.0, 1e-6, 10.0), 1000, max_bits=160
    ),
    _setting("sum of three people", _query("sum", STEPS), _target(1.0, 1e-3, 2.0), 3),
    _setting(
        "mean of reals", _query("mean", UNIT), _target(1.0, 1e-6, 0.25), 1000, granularity=0.125
    ),
    _setting(
        "sum of reals, flat",
        _query("sum", DEGREES),
        _target(1.0, 1e-6, 10.0, "flat"),
        500,
        0.95,
        granularity=2.5,
    ),
    _setting("sum, coarse", _query("sum", AGES), _target(1.0, 1e-6, 10.0), 400, granularity=4),
]
"""Sums and means by additive noise or randomized response."""

CENTROIDS = [
    _setting("centroid in a town", _query("centroid", TOWN), _target(1.0, 1e-6, 2.0), 1000),
    _setting(
        "centroid, flat", _query("centroid", TOWN), _target(1.0, 1e-6, 2.0, "flat"), 1000, 0.9
    ),
    _setting(
        "centroid, pure, aggregator",
        _query("centroid", TOWN),
        _target(2.0, 0.0, 3.0),
        500,
        transport="aggregator",
    ),
    _setting("centroid, one cell", _query("centroid", _grid(8, 8)), _target(1.0, 1e-6, 1.0), 200),
    _setting(
        "centroid, bounded padding",
        _query("centroid", _grid(4, 3)),
        _target(1.0, 1e-4, 1.5),
        60,
        padding="bounded",
    ),
    _setting(
        "centroid beyond fifty cells",
        _query("centroid", COUNTRY),
        _target(1.0, 1e-6, 80.0),
        1000,
        encoding="modular",
    ),
    _setting(
        "centroid beyond fifty cells, flat",
        _query("centroid", COUNTRY),
        _target(2.0, 1e-6, 60.0, "flat"),
        2000,
        encoding="modular",
    ),
    _setting(
        "centroid over two rounds",
        _query("centroid", _grid(6, 6)),
        _target(1.0, 1e-5, 2.0),
        100,
        rounds=2,
        encoding="modular",
    ),
]

REAL_MEANS = [
    _setting("hat", _query("mean", UNIT), _target(1.0, 1e-6, 0.25), 10_000, only=["witch-hat"]),
    _setting(
        "hat, honest",
        _query("mean", DEGREES),
        _target(0.5, 1e-6, 5.0),
        100_000,
        0.9,
        only=["witch-hat"],
    ),
    _setting("hat, pure", _query("mean", UNIT), _target(1.0, 0.0, 0.5), 1000, only=["witch-hat"]),
    _setting(
        "hat, too few", _query("mean", UNIT), _target(1.0, 1e-6, 0.25), 20, only=["witch-hat"]
    ),
    _setting(
        "hat, whole range",
        _query("mean", DEGREES),
        _target(1.0, 1e-8, 65.0),
        50_000,
        "95%",
        only=["witch-hat"],
    ),
    _setting(
        "hat, short distance",
        _query("mean", UNIT),
        _target(0.5, 1e-6, 0.05),
        20_000,
        only=["witch-hat"],
    ),
]
"""Means of real numbers by WitchHat."""

HISTOGRAMS = [
    _setting("labels", _query("histogram", _categories(3)), _target(1.0, 1e-6, 1.0), 2000, "90%"),
    _setting(
        "labels, flat",
        _query("histogram", _categories(16)),
        _target(0.5, 1e-8, 1.0, "flat"),
        100_000,
    ),
    _setting("labels, pure", _query("histogram", _categories(5)), _target(1.0, 0.0, 1.0), 5000),
    _setting(
        "labels, capped",
        _query("histogram", _categories(10)),
        _target(1.0, 1e-6, 1.0),
        20_000,
        max_local_epsilon=3.0,
    ),
    _setting("labels, too few", _query("histogram", _categories(4)), _target(1.0, 1e-6, 1.0), 10),
    _setting("integers", _query("histogram", _integers(0, 30)), _target(1.0, 1e-6, 4.0), 5000),
    _setting(
        "integers, flat",
        _query("histogram", _integers(1, 20, "rooms")),
        _target(1.0, 1e-6, 5.0, "flat"),
        2000,
        0.8,
    ),
    _setting(
        "integers, nobody trusted",
        _query("histogram", AGES),
        _target(1.0, 1e-6, 10.0),
        2000,
        trusted="nobody",
    ),
    _setting(
        "integers, capped",
        _query("histogram", STEPS),
        _target(0.5, 1e-6, 3.0),
        5000,
        max_local_epsilon=2.0,
    ),
    _setting("cells", _query("histogram", _grid(8, 6)), _target(1.0, 1e-6, 2.0), 20_000),
    _setting(
        "cells, flat",
        _query("histogram", _grid(3, 3, 2.0, "km")),
        _target(1.0, 1e-4, 4.0, "flat"),
        300,
    ),
    _setting(
        "cells, nobody trusted",
        _query("histogram", TOWN),
        _target(1.0, 1e-6, 3.0, "flat"),
        10_000,
        trusted="nobody",
    ),
    _setting(
        "cells, capped",
        _query("histogram", _grid(5, 5)),
        _target(1.0, 1e-5, 2.0),
        1000,
        0.9,
        max_local_epsilon=2.0,
    ),
]

USERS = [
    _setting("clusters", _query("user-histogram", CLUSTERS, 4), _target(1.0, 1e-6, 0.5), 2000),
    _setting(
        "labels of users, two items",
        _query("user-histogram", _categories(6), 2),
        _target(1.0, 1e-6, 1.0),
        5000,
        0.9,
    ),
    _setting(
        "line of users",
        _query("user-histogram", _integers(0, 15), 10),
        _target(1.0, 1e-6, 2.0),
        1000,
        trusted="curator",
    ),
    _setting(
        "cells of users",
        _query("user-histogram", _grid(6, 6, 0.5, "km"), 2),
        _target(1.0, 1e-5, 1.0),
        500,
        trusted="nobody",
    ),
    _setting("tree, pure", _query("user-histogram", TREE, 5), _target(1.0, 0.0, 0.5), 1000),
    _setting("nested squares", _query("user-histogram", SQUARES, 2), _target(2.0, 1e-6, 4.0), 1000),
    _setting(
        "circle, any number of items",
        _query("user-histogram", CIRCLE),
        _target(1.0, 1e-6, 1.0, "flat"),
        1000,
        draw=3,
    ),
    _setting(
        "clusters, any number of items",
        _query("user-histogram", CLUSTERS),
        _target(1.0, 1e-6, 0.5, "flat"),
        2000,
        0.9,
        draw=2,
    ),
]

USER_MEANS = [
    _setting(
        "mean of users' numbers, pure", _query("user-mean", AGES, 10), _target(1.0, 0.0, 5.0), 1000
    ),
    _setting(
        "mean of users' numbers", _query("user-mean", AGES), _target(1.0, 1e-6, 5.0), 1000, 0.9
    ),
    _setting(
        "mean place of users",
        _query("user-mean", TOWN, 3),
        _target(1.0, 1e-6, 2.0),
        2000,
        trusted="curator",
    ),
    _setting(
        "mean place of users, pure, flat",
        _query("user-mean", _grid(5, 4)),
        _target(0.5, 0.0, 2.0, "flat"),
        100,
        trusted="nobody",
    ),
]

SETTINGS = [*SUMS, *CENTROIDS, *REAL_MEANS, *HISTOGRAMS, *USERS, *USER_MEANS]


def _domain_of(described: Described) -> Any:
    """Domain, or space or metric of users' items."""
    parts = {name: value for name, value in described.items() if name != "kind"}
    makers: dict[str, Any] = {
        "integers": ms.Integers,
        "interval": ms.Interval,
        "grid": ms.Grid,
        "categories": ms.Categories,
        "clustered": ms.Clustered,
        "tree": ms.Tree,
        "matrix": ms.Matrix,
        "nested-squares": ms.nested_squares,
    }
    return makers[described["kind"]](**parts)


def query_of(described: Described) -> Any:
    """Query that the "query" of a setting describes."""
    domain = _domain_of(described["domain"])
    kind = described["kind"]
    if kind in ("user-histogram", "user-mean"):
        people = ms.users_of(domain, described["items"])
        return (
            ms.UserHistogram(people)
            if kind == "user-histogram"
            else ms.UserLinearQuery.average(people)
        )
    makers: dict[str, Any] = {
        "sum": ms.Sum,
        "mean": ms.Mean,
        "centroid": ms.Centroid,
        "histogram": ms.Histogram,
    }
    return makers[kind](domain)
