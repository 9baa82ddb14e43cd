"""Spaces: default metrics, units, reach and diameter against brute force."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.tables import check_all

from metricshuffle.errors import DomainError, InputError, NotCertified
from metricshuffle.spaces import (
    Absolute,
    Categories,
    Discrete,
    Domain,
    Euclidean,
    Grid,
    Haversine,
    Integers,
    Interval,
    Manhattan,
    Matrix,
    Maximum,
    Metric,
    Scaled,
    Space,
    Threshold,
    closure,
)
from metricshuffle.testing import check_metric


class HoursOfDay(Metric):
    """A metric of a user's own: not monotone, noon is farthest from midnight."""

    kind: Literal["hours-of-day"] = "hours-of-day"

    def pairwise(self, points_a: Any, points_b: Any) -> Any:
        apart = np.abs(
            np.subtract.outer(np.asarray(points_a, dtype=float), np.asarray(points_b, dtype=float))
        )
        return np.minimum(apart, 24 - apart)


NORMS: list[Metric] = [
    Manhattan(),
    Euclidean(),
    Discrete(),
    Scaled(Euclidean(), 0.25),
    Threshold(Manhattan(), 3),
    Maximum([Euclidean(), Discrete()]),
]


def assert_brute_force(space: Space) -> None:
    values = space.domain.all_values()
    everyone = space.domain.points(values)
    table = space.metric.pairwise(everyone, everyone)
    labels = values if not isinstance(space.domain, Categories) else list(space.domain.labels)
    reaches = [space.reach(value) for value in labels]
    assert reaches == table.max(axis=1).tolist()
    assert space.diameter == max(reaches)
    assert space.distance(labels[0], labels[-1]) == table[0, -1]


@settings(max_examples=20, deadline=None)
@given(st.integers(-20, 20), st.integers(1, 12))
def test_reach_on_a_line(low: int, width: int) -> None:
    for metric in [Absolute(), HoursOfDay(), *NORMS]:
        assert_brute_force(Space(Integers(low, low + width), metric))


@settings(max_examples=15, deadline=None)
@given(st.integers(1, 6), st.integers(1, 6), st.sampled_from([0.1, 1.0, 50.0]))
def test_reach_on_a_grid(width: int, height: int, cell: float) -> None:
    for metric in NORMS:
        assert_brute_force(Space(Grid(width, height, cell), metric))


@settings(max_examples=15, deadline=None)
@given(st.integers(1, 6), st.integers(0, 2**32))
def test_reach_on_labels(size: int, seed: int) -> None:
    table = np.triu(np.random.default_rng(seed).random((size, size)), 1)
    labels = Categories([f"label {code}" for code in range(size)])
    assert_brute_force(Space(labels, Matrix(closure(table + table.T))))
    assert_brute_force(Space(labels))


def test_defaults_and_units() -> None:
    assert Space(Integers(0, 1000, unit="kcal")) == Space(
        Integers(0, 1000, "kcal"), Absolute(), "kcal"
    )
    grid = Space(Grid(100, 80, cell=50, unit="m"))
    assert (grid.metric, grid.unit) == (Euclidean(), "m")
    assert grid.distance((0, 0), (3, 4)) == 250
    assert grid.reach((0, 79)) == grid.diameter == pytest.approx(50 * np.hypot(99, 79), rel=1e-15)
    assert Space(Grid(100, 80, cell=50), Manhattan()).diameter == 50 * (99 + 79)
    assert Space(Interval(-1, 3, "m")).reach(0.5) == 2.5
    assert Space(Categories(["a", "b"])).metric == Discrete()
    metres = Grid(10, 10, unit="m")
    assert Space(metres, Scaled(Euclidean(), 0.001)).unit == ""
    assert Space(metres, Scaled(Euclidean(), 0.001), unit="km").unit == "km"
    assert (
        Space(metres, Threshold(Euclidean(), 5)).unit
        == Space(metres, Maximum([Euclidean(), Manhattan()])).unit
        == "m"
    )
    assert (
        Space(metres, Maximum([Euclidean(), Discrete()])).unit
        == Space(metres, Discrete()).unit
        == ""
    )


def test_space_of_a_domain_or_a_space() -> None:
    space = Space(Integers(0, 5), Discrete())
    assert Space.of(space) is space
    assert Space.of(Integers(0, 5)) == Space(Integers(0, 5))
    with pytest.raises(InputError, match="domain must be"):
        Space.of(5)  # type: ignore[arg-type]


@check_all(
    ("domain", "metric", "words"),
    [
        (Grid(3, 3), Absolute(), "Absolute measures numbers"),
        (Grid(3, 3), Haversine(), "Grid.from_box"),
        (Categories(["a", "b"]), Euclidean(), "codes"),
        (Integers(0, 1), Matrix([[0, 1], [1, 0]]), "measures codes"),
        (
            Categories(["a", "b", "c"]),
            Scaled(Matrix([[0, 1], [1, 0]]), 2),
            "2 points, but the domain has 3",
        ),
        (Integers(0, 1), "absolute", "metric must be a Metric"),
    ],
)
def test_a_metric_must_fit_the_domain(domain: Domain, metric: Any, words: str) -> None:
    with pytest.raises(InputError, match=words):
        Space(domain, metric)


def test_values_outside_have_no_distance() -> None:
    space = Space(Integers(0, 5))
    for bad in (6, 2.5, "3", True, float("nan")):
        with pytest.raises(DomainError):
            space.reach(bad)
        with pytest.raises(DomainError):
            space.distance(0, bad)


def test_a_metric_without_closed_forms_is_searched_or_refused() -> None:
    hours = Space(Integers(0, 23, "h"), HoursOfDay())
    check_metric(HoursOfDay(), range(24))
    assert hours.reach(3) == hours.diameter == 12
    for domain in (Interval(0, 24), Integers(0, 10**9)):
        with pytest.raises(NotCertified, match="monotone"):
            _ = Space(domain, HoursOfDay()).diameter
        with pytest.raises(NotCertified, match="monotone"):
            Space(domain, HoursOfDay()).reach(0)


@check_all(
    "space",
    [
        Space(Integers(0, 23, "h"), HoursOfDay(), "h"),
        Space(
            Grid(5, 6, 50, "m"), Maximum([Scaled(Manhattan(), 0.5), Threshold(Euclidean(), 100)])
        ),
        Space(Categories(["a", "b"]), Matrix([[0, 0.1], [0.1, 0]])),
        Space(Interval(0, 0.1)),
    ],
)
def test_json_both_ways(space: Space) -> None:
    assert Space.model_validate_json(space.model_dump_json()) == space


def test_a_kind_belongs_to_one_class() -> None:
    with pytest.raises(InputError, match="already taken by Euclidean"):

        class Impostor(Euclidean):
            """Would be mistaken for Euclidean when read from a file."""
