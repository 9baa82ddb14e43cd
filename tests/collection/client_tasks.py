"""Small tasks of every form that the JavaScript client supports, and some it does not."""

from __future__ import annotations

import math
from fractions import Fraction
from functools import cache
from typing import Any

import numpy as np

from metricshuffle import (
    ByGroup,
    Categories,
    Centroid,
    Flows,
    GreatCircle,
    Grid,
    Histogram,
    Integers,
    Interval,
    KeyValues,
    Matrix,
    Mean,
    Means,
    Places,
    Quantiles,
    Sets,
    ShareAbove,
    Spread,
    Sum,
    Target,
    UserHistogram,
    UserLinearQuery,
    Users,
    Zones,
)
from metricshuffle.accounting.sums.rounded_reports import rounded_rate
from metricshuffle.collection.sealed_boxes import PrivateKey
from metricshuffle.collection.terms import Collection, instant
from metricshuffle.noise.samplers import rational_rate
from metricshuffle.protocols.features import (
    Cells,
    Edges,
    FlowCells,
    FlowHats,
    GroupFeatures,
    Hats,
    Ramps,
    RowColumns,
    SetMembers,
    ShiftedBoxes,
    TableColumns,
    TreeLevels,
    ZoneCells,
    ZoneHats,
    space_of,
)
from metricshuffle.protocols.features.line_answers import AboveWindows, Moments, QuantileWindows
from metricshuffle.protocols.frequencies import Frequencies
from metricshuffle.protocols.noisy_vectors import NoisyVectors
from metricshuffle.protocols.partition_family import family_of
from metricshuffle.protocols.protocol import Protocol
from metricshuffle.protocols.shuffler_noise import ShufflerNoise
from metricshuffle.protocols.sums import Sums
from metricshuffle.queries.query import Query
from metricshuffle.randomizers import (
    BoundedGeometric,
    Channel,
    KaryRandomizedResponse,
    PlanarGeometric,
)
from metricshuffle.randomizers.additive_randomizer import AdditiveRandomizer
from metricshuffle.spaces import Space, nested_squares
from metricshuffle.spaces.users import users_of
from metricshuffle.tasks.task import Task

PEOPLE = 60
HONEST = 40
BERN = (46.9, 7.35, 46.99, 7.52)


def load_task(query: Query, protocol: Protocol, distance: float, epsilon: float = 4.0) -> Task:
    """Task with a weak guarantee, so that few people and few shares are enough.

    No test depends on its strength.
    """
    return Task.of(
        query, protocol, Target(epsilon=epsilon, delta=0.5, distance=distance), PEOPLE, HONEST
    )


def sums(
    spans: tuple[int, ...],
    rate: float,
    *,
    step: float = 1.0,
    granularity: int = 1,
    shares: int = 10,
    **more: Any,
) -> Sums:
    noise = {
        "shape": Fraction(1, HONEST),
        "rate": float(rational_rate(rate)),
        "granularity": granularity,
        **more,
    }
    randomizers = tuple(AdditiveRandomizer(span=span, **noise) for span in spans)
    modulus = PEOPLE * max(randomizer.top for randomizer in randomizers) * 2 + 1001
    return Sums(
        name="polya-shuffle",
        trusted="shuffler",
        step=step,
        modulus=modulus,
        randomizers=randomizers,
        shares=shares,
    )


def place_sums(places: Places, unit: float, distance: float) -> Sums:
    """Noise on places rounded at random to units, as much as `load_task` guarantees."""
    rate = float(rational_rate(rounded_rate(3.99 / distance * unit / math.sqrt(2.0))))
    randomizers = tuple(
        AdditiveRandomizer(span=span, shape=Fraction(1, HONEST), rate=rate, granularity=grain)
        for span, grain in zip(places.spans, places.units(unit), strict=True)
    )
    modulus = PEOPLE * max(randomizer.top for randomizer in randomizers) * 2 + 100_001
    return Sums(
        name="polya-shuffle",
        trusted="shuffler",
        step=unit,
        modulus=modulus,
        randomizers=randomizers,
        shares=10,
        rounding="random",
    )


LINEAR = UserLinearQuery(
    users_of(Integers(0, 6)), np.column_stack([np.linspace(0.0, 0.7, 7), np.arange(7) ** 2])
)
"""Two means of items, one of which has no exact whole numbers."""


STATIONS = Zones.of_points(
    [f"S{code}" for code in range(9)],
    [46.94 + 0.008 * (code // 3) for code in range(9)],
    [7.42 + 0.012 * (code % 3) for code in range(9)],
)
"""Zones about 900 m apart."""
LINES = Zones.of_points(
    STATIONS.ids,
    *STATIONS.degrees.T.tolist(),
    blocks=["west", "west", "east"] * 3,
)


def vectors(query: Query, features: Any, factor: float, **more: Any) -> tuple[Query, NoisyVectors]:
    coordinates = len(features.ranges(space_of(query))[0])
    made = {
        "sharers": HONEST,
        "together": min(3, coordinates),
        "shares": 16,
        "trusted": "shuffler",
        "modulus": 2**14,
        **more,
    }
    return query, NoisyVectors(
        name="noisy-vectors", features=features, coordinates=coordinates, factor=factor, **made
    )


def piles(query: Query, features: Any, **more: Any) -> tuple[Query, ShufflerNoise]:
    sizes = tuple(family_of(features, space_of(query)).sizes.tolist())
    law = {"rate": 0.2, "radius": 8, **more}
    protocol = ShufflerNoise(
        name="shuffler-noise", trusted="shuffler", features=features, sizes=sizes, **law
    )
    return query, protocol


def frequencies(randomizer: Any, **more: Any) -> Frequencies:
    return Frequencies(name="frequencies", trusted="shuffler", randomizer=randomizer, **more)


def channel(size: int, outputs: int) -> Channel:
    """Channel with small, unrelated weights."""
    table = (
        1.0
        / (
            1.0
            + np.abs(
                np.arange(size)[:, None] * (outputs - 1) / max(1, size - 1) - np.arange(outputs)
            )
        )
        ** 6
    )
    return Channel(table / table.sum(axis=1, keepdims=True))


@cache
def tasks() -> dict[str, Task]:
    """One task of every form."""
    grid = Grid(6, 4, 500.0, "m")
    bern = Grid.from_box(*BERN, 500.0)
    labels = Categories(["Äpfel & Birnen", "<b>bread</b>", "cheese", "none"])
    nobody = {"trusted": "nobody"}
    local = sums((1000,), 0.05, shares=1).model_copy(
        update={
            **nobody,
            "randomizers": (
                AdditiveRandomizer(span=1000, shape=Fraction(1), rate=float(rational_rate(0.05))),
            ),
        }
    )
    made: dict[str, Any] = {
        "whole numbers": (Mean(Integers(-20, 980, "g")), sums((1000,), 0.05), 20.0),
        "real numbers": (
            Sum(Interval(0.5, 10.5, "h")),
            sums((409600,), 0.09, step=10 / 409600, granularity=4096),
            1.0,
        ),
        "coarse numbers": (Mean(Integers(0, 1000)), sums((1000,), 0.3, granularity=7), 20.0),
        "places": (
            Centroid(bern),
            sums((bern.width - 1, bern.height - 1), 0.35, step=500.0),
            1000.0,
        ),
        "degrees": (Centroid(Places(*BERN)), place_sums(Places(*BERN), 40.0, 1000.0), 1000.0),
        "degrees of both signs": (
            Centroid(Places(-40.0, -60.0, 70.0, 80.0, "km")),
            place_sums(Places(-40.0, -60.0, 70.0, 80.0, "km"), 25.0, 1000.0),
            1000.0,
        ),
        "cells": (Centroid(grid), sums((5, 3), 1.5, step=500.0), 1000.0),
        "noise of one's own": (Sum(Integers(0, 1000, "g")), local, 20.0),
        "k-ary": (Histogram(labels), frequencies(KaryRandomizedResponse(4, 3.0)), 1.0),
        "k-ary of many": (
            Histogram(Integers(0, 999)),
            frequencies(KaryRandomizedResponse(1000, 0.01)),
            1.0,
        ),
        "rows": (Histogram(labels), frequencies(channel(4, 7)), 1.0, 40.0),
        "line": (Histogram(Integers(0, 50)), frequencies(BoundedGeometric(50, 0.4)), 1.0),
        "bins": (
            Histogram(Interval(0.0, 5.0, "km"), 0.25),
            frequencies(BoundedGeometric(19, 0.4), step=0.25),
            1.0,
        ),
        "map": (Histogram(grid), frequencies(PlanarGeometric(6, 4, 0.002, 500.0)), 1000.0),
        "items": (
            UserHistogram(users_of(labels, 3)),
            frequencies(KaryRandomizedResponse(4, 3.0), items=3, item_rate=3.0),
            1.0,
        ),
        "drawn items": (
            UserHistogram(users_of(labels)),
            frequencies(KaryRandomizedResponse(4, 3.0), items=2, drawn=True, item_rate=3.0),
            1.0,
            40.0,
        ),
        "labels as vectors": (
            *vectors(Histogram(labels), Cells(), 0.5, floor=KaryRandomizedResponse(4, 8.0)),
            1.0,
        ),
        "line as vectors": (
            *vectors(
                Histogram(Integers(0, 30)), Ramps(width=2), 0.2, floor=BoundedGeometric(30, 2.0)
            ),
            5.0,
        ),
        "quantiles": (
            *vectors(Quantiles(Integers(-5, 25, "h")), QuantileWindows.of_width(4, 30), 0.2),
            5.0,
        ),
        "spread": (
            *vectors(Spread(Interval(0.0, 3.0, "km"), 0.25), Moments(last=11), 0.2, together=2),
            1.0,
        ),
        "share above": (
            *vectors(
                ShareAbove(Integers(0, 30), (12,), 5),
                AboveWindows(width=5, ends=(13,)),
                0.2,
                together=1,
            ),
            5.0,
        ),
        "map as vectors": (
            *vectors(
                Histogram(grid),
                ShiftedBoxes(width=2),
                0.2,
                floor=PlanarGeometric(6, 4, 0.01, 500.0),
            ),
            1000.0,
        ),
        "hats": (*vectors(Histogram(grid), Hats(width=2), 0.2), 1000.0),
        "zones": (*vectors(Histogram(STATIONS), ZoneCells(), 0.002), 1000.0),
        "zones by hats": (
            *vectors(
                Histogram(STATIONS),
                ZoneHats(2500.0),
                2e-8,
                units=1,
                divisor=2**22,
                rounding="random",
            ),
            1000.0,
        ),
        "flows": (*vectors(Flows(STATIONS), FlowCells(), 0.002), 1000.0),
        "flows between blocks": (*vectors(Flows(LINES), FlowCells(), 0.002), 1000.0),
        "flows by hats": (
            *vectors(
                Flows(STATIONS),
                FlowHats(2500.0),
                0.2,
                units=1,
                divisor=2**40,
                rounding="random",
            ),
            1000.0,
        ),
        "means of columns": (
            *vectors(
                Means(["age", "<i>size</i>", "weight"], Interval(-1.0, 3.0, "m")),
                RowColumns(coordinates=3, steps=2**30),
                0.01,
                units=1,
                divisor=2**22,
                rounding="random",
            ),
            4.0,
        ),
        "means of whole columns": (
            *vectors(
                Means(["age", "size"], Integers(-5, 40)),
                RowColumns(coordinates=2, steps=45),
                0.1,
                together=2,
            ),
            20.0,
        ),
        "sets": (
            *vectors(Sets(labels, size=3), SetMembers(coordinates=4, largest_set=3), 0.5),
            2.0,
        ),
        "keys with numbers": (
            *vectors(
                KeyValues(labels, Interval(0.0, 2.0, "h"), size=2, step=0.25),
                GroupFeatures(form="up-down", groups=4, top=8),
                0.2,
            ),
            1.0,
        ),
        "items as vectors": (
            *vectors(
                UserHistogram(users_of(labels, 3)),
                Cells(),
                0.4,
                units=3,
                floor=KaryRandomizedResponse(4, 3.0),
            ),
            1.0,
        ),
        "groups": (
            *vectors(
                ByGroup(labels, Mean(Integers(-3, 7, "h")), label_distance=5.0),
                GroupFeatures(form="up-down", groups=4, top=10),
                0.2,
            ),
            5.0,
        ),
        "groups of real numbers": (
            *vectors(
                ByGroup(labels, Mean(Interval(0.0, 2.0)), step=0.25, label_distance=2.0),
                GroupFeatures(form="count-sum", groups=4, top=8, count_weight=8.0),
                0.2,
            ),
            1.0,
        ),
        "any items as vectors": (
            *vectors(UserHistogram(users_of(labels)), Cells(), 0.02, units=20, most_items=12),
            1.0,
        ),
        "items rounded at random": (
            *vectors(
                UserHistogram(users_of(labels)),
                Cells(),
                0.02,
                units=16,
                divisor=1,
                rounding="random",
            ),
            1.0,
        ),
        "means of items": (
            *vectors(
                LINEAR,
                TableColumns.of(LINEAR, balanced=True),
                0.02,
                units=1,
                divisor=2**24,
                rounding="random",
                together=2,
            ),
            0.5,
        ),
    }
    made |= item_tasks() | dummy_tasks(labels, grid)
    return {name: load_task(*parts) for name, parts in made.items()}


def item_tasks() -> dict[str, Any]:
    """Tasks of queries on items, which are numbers, squares or towns, fixed in number or not."""

    def columns(query: UserLinearQuery, factor: float, **more: Any) -> tuple[Query, NoisyVectors]:
        return vectors(query, TableColumns.of(query, balanced=False), factor, **more)

    rounded: dict[str, Any] = {"units": 16, "divisor": 1, "rounding": "random"}
    numbers = Integers(-3, 20, "h")
    towns = Space(
        Categories(["Bern", "Thun", "Rome"]),
        GreatCircle([[46.95, 7.45], [46.75, 7.63], [41.9, 12.5]]),
        unit="km",
    )
    to_towns = UserLinearQuery.distance_to(users_of(towns), ["Bern", "Rome"])
    return {
        "mean of five items": (
            *columns(UserLinearQuery.average(users_of(numbers, 5)), 0.1, units=5),
            2.0,
        ),
        "total of three items": (
            *columns(UserLinearQuery.total(users_of(numbers, 3)), 0.1, units=3),
            2.0,
        ),
        "mean place of items": (
            *columns(
                UserLinearQuery.average(users_of(Grid(6, 4, 500.0, "m"))),
                0.002,
                **{**rounded, "units": 2, "modulus": 2**20},
            ),
            1000.0,
        ),
        "items above thresholds": (
            *columns(
                UserLinearQuery.share_above(users_of(numbers), (2, 11), 4),
                0.02,
                **rounded,
            ),
            2.0,
        ),
        "distances to towns": (
            *columns(
                to_towns, 0.001, **{**rounded, "units": 1, "divisor": 2**17, "modulus": 2**20}
            ),
            100.0,
        ),
        "items on a line, rounded": (
            *vectors(
                UserHistogram(users_of(numbers)),
                Ramps(width=2),
                0.02,
                **rounded,
            ),
            2.0,
        ),
        "items in nested squares": (
            *vectors(
                UserHistogram(users_of(nested_squares(2, 4000.0, "m"))),
                Edges(),
                2e-5,
                **rounded,
            ),
            1000.0,
        ),
        "median between edges": (
            *vectors(
                Quantiles(Interval(0.0, 5.0, "km"), (0.5,), (0.5, 1, 2), 0.25),
                QuantileWindows(edges=(0, 2, 4, 8, 19)),
                0.2,
            ),
            1.0,
        ),
        "keys with whole numbers": (
            *vectors(
                KeyValues(Categories(["tea", "milk", "cocoa"]), Integers(0, 5), size=2),
                GroupFeatures(form="up-down", groups=3, top=5),
                0.2,
            ),
            3.0,
        ),
    }


def dummy_tasks(labels: Categories, grid: Grid) -> dict[str, Any]:
    """One task of every form in which shufflers add dummies."""
    steps = [[0, 3, 3, 3, 3], [3, 0, 2, 4, 4], [3, 2, 0, 4, 4], [3, 4, 4, 0, 2], [3, 4, 4, 2, 0]]
    tree = Space(Categories(list("vwxyz")), Matrix(np.array(steps, dtype=float)))
    return {
        "labels in a pile": (*piles(Histogram(labels), Cells()), 1.0),
        "labels of a tree": (*piles(UserHistogram(Users(tree, 1)), TreeLevels()), 2.0),
        "thresholds in piles": (
            *piles(Histogram(Integers(-3, 9)), Ramps(), floor=BoundedGeometric(12, 1.5)),
            3.0,
        ),
        "random ramps": (*piles(Histogram(Integers(0, 11)), Ramps(width=4), rate=0.5), 2.0),
        "map in piles": (
            *piles(
                Histogram(grid), ShiftedBoxes(width=3), floor=PlanarGeometric(6, 4, 0.004, 500.0)
            ),
            1000.0,
        ),
        "cells in a pile": (*piles(Histogram(grid), Cells()), 1000.0),
        "items in piles": (
            *piles(UserHistogram(users_of(Integers(0, 9), 3)), Ramps(width=2), items=3, radius=60),
            1.0,
            40.0,
        ),
        "drawn items in a pile": (
            *piles(UserHistogram(users_of(labels)), Cells(), items=2, drawn=True, radius=60),
            1.0,
            40.0,
        ),
    }


def collection_of(task: Task, **more: Any) -> Collection:
    """Collection that no server serves."""
    hop = {
        "key": PrivateKey.new().public.data.hex(),
        "release": "00" * 32,
        "url": "http://127.0.0.1:1",
    }
    analyst = {"key": PrivateKey.new().public.data.hex(), "release": "11" * 32}
    times: dict[str, Any] = {
        name: instant(1e9 + 3600 * hour) for hour, name in enumerate(("opens", "closes", "extends"))
    }
    return Collection.new(
        task, hops=(hop,), analyst=analyst, round=1, colluders=0, retention=3600, **times, **more
    )
