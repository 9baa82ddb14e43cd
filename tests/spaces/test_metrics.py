"""Built-in metrics: axioms, textbook values, and JSON."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel
from tests.tables import check_all

from metricshuffle.errors import DomainError, InputError
from metricshuffle.spaces import (
    Absolute,
    AnyMetric,
    Discrete,
    Euclidean,
    Haversine,
    Manhattan,
    Matrix,
    Maximum,
    Metric,
    Scaled,
    Threshold,
)
from metricshuffle.spaces.metrics import EARTH_RADIUS
from metricshuffle.testing import check_metric

NUMBER = st.floats(-1e6, 1e6).map(lambda number: round(number, 3))
PAIR = st.tuples(NUMBER, NUMBER)
PLACE = st.tuples(
    st.floats(-90, 90).map(lambda angle: round(angle, 4)),
    st.floats(-179, 180).map(lambda angle: round(angle, 4)),
)

ON_NUMBERS = [
    Absolute(),
    Manhattan(),
    Euclidean(),
    Discrete(),
    Scaled(Absolute(), 0.3),
    Threshold(Absolute(), 5.5),
    Maximum([Scaled(Absolute(), 0.1), Discrete()]),
]
ON_PAIRS = [
    Manhattan(),
    Euclidean(),
    Discrete(),
    Threshold(Scaled(Euclidean(), 2), 100),
    Maximum([Manhattan(), Scaled(Euclidean(), 1.2)]),
]


@settings(max_examples=25, deadline=None)
@given(st.lists(NUMBER, min_size=1, max_size=8))
def test_metrics_on_numbers_obey_the_axioms(points: list[float]) -> None:
    for metric in ON_NUMBERS:
        check_metric(metric, points)


@settings(max_examples=25, deadline=None)
@given(st.lists(PAIR, min_size=1, max_size=8))
def test_metrics_on_the_plane_obey_the_axioms(points: list[tuple[float, float]]) -> None:
    for metric in ON_PAIRS:
        check_metric(metric, points)


@settings(max_examples=40, deadline=None)
@given(st.lists(PLACE, min_size=1, max_size=8))
def test_haversine_obeys_the_axioms(points: list[tuple[float, float]]) -> None:
    points = [
        (latitude, 0.0 if abs(latitude) == 90 else longitude) for latitude, longitude in points
    ]  # a pole is one place
    check_metric(Haversine("m"), points)


def test_textbook_distances() -> None:
    assert Absolute()(-2, 5) == 7
    assert Manhattan()((1, 2), (4, 6)) == 7
    assert Euclidean()((1, 2), (4, 6)) == 5
    assert Euclidean()((0, 0, 0), (2, 3, 6)) == 7
    assert Discrete()("a", "b") == Discrete()((1, 2), (1, 3)) == 1
    assert Discrete()("a", "a") == Discrete()(3, 3.0) == 0
    assert Euclidean().pairwise([(0, 0), (3, 4)], [(0, 0)]).tolist() == [[0.0], [5.0]]
    assert Scaled(Euclidean(), 0.5)((0, 0), (3, 4)) == 2.5
    assert Threshold(Euclidean(), 4)((0, 0), (3, 4)) == 4
    assert Maximum([Euclidean(), Manhattan()])((0, 0), (3, 4)) == 7


def test_nothing_overflows_or_vanishes_on_the_way() -> None:
    assert Euclidean()((3e300, 0), (0, 4e300)) == pytest.approx(5e300, rel=1e-15)
    assert Euclidean()((3e-200, 0), (0, 4e-200)) == pytest.approx(5e-200, rel=1e-15)
    for metric, x, y in (
        (Absolute(), 1.7e308, -1.7e308),
        (Manhattan(), (1.7e308, 1.7e308), (0, 0)),
        (Scaled(Absolute(), 1e300), 1e300, 0),
    ):
        with pytest.raises(InputError, match="too far apart"):
            metric(x, y)


@check_all("bad", [math.nan, math.inf, True, "5", None, 2**53 + 1, 10**400])
def test_points_must_be_finite_numbers(bad: Any) -> None:
    for metric in (Absolute(), Manhattan(), Euclidean(), Discrete()):
        with pytest.raises(DomainError, match="row 1 "):
            metric.pairwise([0, bad], [0])
    with pytest.raises(DomainError, match="row 0 "):
        Haversine()((0, bad), (0, 0))


def test_points_of_different_lengths_are_refused() -> None:
    for a, b in (
        ([(1, 2)], [3]),
        ([1], [(1, 2)]),
        ([(1, 2)], [(1, 2, 3)]),
        ([(1, 2), (1,)], [(1, 2)]),
    ):
        with pytest.raises(InputError):
            Euclidean().pairwise(a, b)
    with pytest.raises(InputError, match="Absolute measures numbers"):
        Absolute()((1, 2), (3, 4))


def test_haversine_is_exact_for_neighbours_antipodes_and_poles() -> None:
    metres = Haversine("m")
    kilometres = Haversine()
    half = math.pi * EARTH_RADIUS
    assert metres((0, 0), (0, 180)) == pytest.approx(half, rel=1e-15)
    assert metres((37.3, 11), (-37.3, -169)) == pytest.approx(half, rel=1e-15)
    # A tiny step away from the antipode shows, which arcsin(sqrt(a)) would lose.
    assert half - metres((37.3, 11), (-37.3 + 1e-7, -169)) == pytest.approx(
        math.radians(1e-7) * EARTH_RADIUS, rel=1e-4
    )
    assert metres((10, 20), (10 + 1e-9, 20)) == pytest.approx(
        math.radians(1e-9) * EARTH_RADIUS, rel=1e-5
    )
    assert metres((0, 180), (0, -180)) == 0
    assert metres((90, 0), (90, 123)) == 0
    assert metres((90, 5), (-90, 77)) == pytest.approx(half, rel=1e-15)
    assert kilometres((90, 0), (0, 33)) == pytest.approx(half / 2000, rel=1e-15)
    assert kilometres((48.8566, 2.3522), (51.5074, -0.1278)) == pytest.approx(
        343.56, abs=0.01
    )  # Paris to London


@settings(max_examples=40, deadline=None)
@given(PLACE, PLACE)
def test_haversine_agrees_with_the_angle_between_vectors(
    x: tuple[float, float], y: tuple[float, float]
) -> None:
    def vector(place: tuple[float, float]) -> Any:
        lat = math.radians(place[0])
        lon = math.radians(place[1])
        return np.array(
            [math.cos(lat) * math.cos(lon), math.cos(lat) * math.sin(lon), math.sin(lat)]
        )

    u, v = vector(x), vector(y)
    angle = 2 * math.atan2(float(np.linalg.norm(u - v)), float(np.linalg.norm(u + v)))
    assert Haversine("m")(x, y) == pytest.approx(angle * EARTH_RADIUS, rel=1e-12, abs=1e-8)


@check_all("place", [(91, 0), (0, 181), (116.4, 39.9)])
def test_places_off_the_globe_are_refused(place: tuple[float, float]) -> None:
    with pytest.raises(DomainError, match="latitude comes first"):
        Haversine()(place, (0, 0))


@check_all(
    ("make", "words"),
    [
        (lambda: Scaled(Euclidean(), 0), "factor must be > 0"),
        (lambda: Scaled(Euclidean(), math.nan), "factor must be a finite"),
        (lambda: Threshold(Euclidean(), -1), "cap must be > 0"),
        (lambda: Threshold(3, 1), "metric"),  # type: ignore[arg-type]
        (lambda: Maximum([]), "at least one"),
        (lambda: Maximum([Haversine(), Euclidean()]), "same kind of points"),
        (lambda: Maximum([Matrix([[0]]), Matrix([[0, 1], [1, 0]])]), "one size"),
        (lambda: Haversine("miles"), "unit"),
    ],
)
def test_wrong_combinations_are_told(make: Any, words: str) -> None:
    with pytest.raises(InputError, match=words):
        make()


class File(BaseModel):
    metric: AnyMetric


PAIR_TABLE = Matrix([[0, 1.5], [1.5, 0]])


@check_all("metric", [*ON_NUMBERS, *ON_PAIRS, Haversine("m"), PAIR_TABLE, Scaled(PAIR_TABLE, 3)])
def test_json_both_ways(metric: Metric) -> None:
    assert type(metric).model_validate_json(metric.model_dump_json()) == metric
    again = File.model_validate_json(File(metric=metric).model_dump_json())
    assert again.metric == metric
    assert hash(again.metric) == hash(metric)
