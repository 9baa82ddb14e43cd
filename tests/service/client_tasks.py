"""Small tasks of every form that the JavaScript client carries, and some that it does not, made without a search."""

from __future__ import annotations

import math
from fractions import Fraction
from functools import cache
from typing import Any

import numpy as np

from metricshuffle import Categories, Centroid, Grid, Histogram, Integers, Interval, Mean, Places, Sum, Target, UserHistogram
from metricshuffle.accounting.sums.rounded_reports import rounded_rate
from metricshuffle.collection.sealed_boxes import PrivateKey
from metricshuffle.collection.terms import Collection, instant
from metricshuffle.noise.samplers import rational_rate
from metricshuffle.protocols.features import Cells, Hats, Ramps, ShiftedBoxes, space_of
from metricshuffle.protocols.frequencies import Frequencies
from metricshuffle.protocols.noisy_vectors import NoisyVectors, feature_table
from metricshuffle.protocols.protocol import Protocol
from metricshuffle.protocols.sums import Sums
from metricshuffle.queries.query import Query
from metricshuffle.randomizers import BoundedGeometric, Channel, KaryRandomizedResponse, PlanarGeometric
from metricshuffle.randomizers.additive_randomizer import AdditiveRandomizer
from metricshuffle.spaces.users import users_of
from metricshuffle.tasks.task import Task

PEOPLE, HONEST = 60, 40
BERN = (46.9, 7.35, 46.99, 7.52)


def load_task(query: Query, protocol: Protocol, distance: float, epsilon: float = 4.0) -> Task:
    """A weak promise, so that few people and few shares are enough; nothing here depends on how strong it is."""
    return Task.of(query, protocol, Target(epsilon=epsilon, delta=0.5, distance=distance), PEOPLE, HONEST)


def sums(spans: tuple[int, ...], rate: float, *, step: float = 1.0, granularity: int = 1, shares: int = 10, **more: Any) -> Sums:
    noise = {"shape": Fraction(1, HONEST), "rate": float(rational_rate(rate)), "granularity": granularity, **more}
    randomizers = tuple(AdditiveRandomizer(span=span, **noise) for span in spans)
    modulus = PEOPLE * max(randomizer.top for randomizer in randomizers) * 2 + 1001
    return Sums(name="polya-shuffle", trusted="shuffler", step=step, modulus=modulus, randomizers=randomizers, shares=shares)


def place_sums(places: Places, unit: float, distance: float) -> Sums:
    """Noise on places that are rounded at random to units, as much as `load_task` promises."""
    rate = float(rational_rate(rounded_rate(3.99 / distance * unit / math.sqrt(2.0))))
    randomizers = tuple(
        AdditiveRandomizer(span=span, shape=Fraction(1, HONEST), rate=rate, granularity=grain)
        for span, grain in zip(places.spans, places.units(unit), strict=True)
    )
    modulus = PEOPLE * max(randomizer.top for randomizer in randomizers) * 2 + 100_001
    return Sums(name="polya-shuffle", trusted="shuffler", step=unit, modulus=modulus, randomizers=randomizers, shares=10, rounding="random")


def vectors(query: Query, features: Any, factor: float, **more: Any) -> tuple[Query, NoisyVectors]:
    coordinates = feature_table(features, space_of(query)).shape[1]
    made = {"sharers": HONEST, "together": 3, "shares": 16, "trusted": "shuffler", "modulus": 2**14, **more}
    return query, NoisyVectors(name="noisy-vectors", features=features, coordinates=coordinates, factor=factor, **made)


def frequencies(randomizer: Any, **more: Any) -> Frequencies:
    return Frequencies(name="frequencies", trusted="shuffler", randomizer=randomizer, **more)


def channel(size: int, outputs: int) -> Channel:
    """A table with small weights in it, ones that have nothing to do with each other."""
    table = 1.0 / (1.0 + np.abs(np.arange(size)[:, None] * (outputs - 1) / max(1, size - 1) - np.arange(outputs))) ** 6
    return Channel(table / table.sum(axis=1, keepdims=True))


@cache
def tasks() -> dict[str, Task]:
    """One of every form."""
    grid, bern = Grid(6, 4, 500.0, "m"), Grid.from_box(*BERN, 500.0)
    labels = Categories(["Äpfel & Birnen", "<b>bread</b>", "cheese", "none"])
    nobody = {"trusted": "nobody"}
    local = sums((1000,), 0.05, shares=1).model_copy(
        update={**nobody, "randomizers": (AdditiveRandomizer(span=1000, shape=Fraction(1), rate=float(rational_rate(0.05))),)}
    )
    made: dict[str, Any] = {
        "whole numbers": (Mean(Integers(-20, 980, "g")), sums((1000,), 0.05), 20.0),
        "real numbers": (Sum(Interval(0.5, 10.5, "h")), sums((409600,), 0.09, step=10 / 409600, granularity=4096), 1.0),
        "coarse numbers": (Mean(Integers(0, 1000)), sums((1000,), 0.3, granularity=7), 20.0),
        "places": (Centroid(bern), sums((bern.width - 1, bern.height - 1), 0.35, step=500.0), 1000.0),
        "degrees": (Centroid(Places(*BERN)), place_sums(Places(*BERN), 40.0, 1000.0), 1000.0),
        "degrees of both signs": (
            Centroid(Places(-40.0, -60.0, 70.0, 80.0, "km")),
            place_sums(Places(-40.0, -60.0, 70.0, 80.0, "km"), 25.0, 1000.0),
            1000.0,
        ),
        "cells": (Centroid(grid), sums((5, 3), 1.5, step=500.0), 1000.0),
        "noise of one's own": (Sum(Integers(0, 1000, "g")), local, 20.0),
        "k-ary": (Histogram(labels), frequencies(KaryRandomizedResponse(4, 3.0)), 1.0),
        "k-ary of many": (Histogram(Integers(0, 999)), frequencies(KaryRandomizedResponse(1000, 0.01)), 1.0),
        "rows": (Histogram(labels), frequencies(channel(4, 7)), 1.0, 40.0),
        "line": (Histogram(Integers(0, 50)), frequencies(BoundedGeometric(50, 0.4)), 1.0),
        "bins": (Histogram(Interval(0.0, 5.0, "km"), 0.25), frequencies(BoundedGeometric(19, 0.4), step=0.25), 1.0),
        "map": (Histogram(grid), frequencies(PlanarGeometric(6, 4, 0.002, 500.0)), 1000.0),
        "items": (UserHistogram(users_of(labels, 3)), frequencies(KaryRandomizedResponse(4, 3.0), items=3, item_rate=3.0), 1.0),
        "drawn items": (
            UserHistogram(users_of(labels)),
            frequencies(KaryRandomizedResponse(4, 3.0), items=2, drawn=True, item_rate=3.0),
            1.0,
            40.0,
        ),
        "labels as vectors": (*vectors(Histogram(labels), Cells(), 0.5, floor=KaryRandomizedResponse(4, 8.0)), 1.0),
        "line as vectors": (*vectors(Histogram(Integers(0, 30)), Ramps(width=2), 0.2, floor=BoundedGeometric(30, 2.0)), 5.0),
        "map as vectors": (*vectors(Histogram(grid), ShiftedBoxes(width=2), 0.2, floor=PlanarGeometric(6, 4, 0.01, 500.0)), 1000.0),
        "hats": (*vectors(Histogram(grid), Hats(width=2), 0.2), 1000.0),
        "items as vectors": (
            *vectors(UserHistogram(users_of(labels, 3)), Cells(), 0.4, units=3, floor=KaryRandomizedResponse(4, 3.0)),
            1.0,
        ),
        "any items as vectors": (*vectors(UserHistogram(users_of(labels)), Cells(), 0.02, units=20, most_items=12), 1.0),
    }
    return {name: load_task(*parts) for name, parts in made.items()}


def collection_of(task: Task, **more: Any) -> Collection:
    """A collection that nobody serves."""
    hop = {"key": PrivateKey.new().public.data.hex(), "release": "00" * 32, "url": "http://127.0.0.1:1"}
    analyst = {"key": PrivateKey.new().public.data.hex(), "release": "11" * 32}
    times = {name: instant(1e9 + 3600 * hour) for hour, name in enumerate(("opens", "closes", "extends"))}
    return Collection.new(task, hops=(hop,), analyst=analyst, round=1, colluders=0, retention=3600, **times, **more)
