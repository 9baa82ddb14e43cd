"""Closure of a semi-metric on a line as a vector agrees with that of its matrix."""

from __future__ import annotations

import numpy as np
import pytest
from tests.tables import check_all

from metricshuffle.errors import InputError
from metricshuffle.numerics.types import Floats
from metricshuffle.solving.value_geometry import close_line, farthest_reaches
from metricshuffle.spaces.distance_matrix import closure, open_triangle


def table(vector: Floats) -> Floats:
    points = np.arange(len(vector) + 1)
    found: Floats = np.concatenate(([0.0], vector))[np.abs(points[:, None] - points[None, :])]
    return found


def vectors() -> list[Floats]:
    source = np.random.default_rng(3)
    rising = [np.sort(source.exponential(1.0, size)) + 0.01 for size in (1, 2, 3, 5, 8, 13, 40, 60)]
    convex = [np.minimum(np.linspace(0.1, 3.0, 50) ** 2, cap) for cap in (0.5, 2.0, 20.0)]
    concave = [np.sqrt(np.arange(1.0, 30.0))]
    # cheapest by threes, then dear again: neither the straight line nor f itself
    return [*rising, *convex, *concave, np.array([1.0, 1.9, 2.0, 3.5, 3.6, 7.0, 7.0, 7.1, 7.2])]


@check_all("vector", vectors())
def test_agrees_with_shortest_paths_on_the_matrix(vector: Floats) -> None:
    closed = close_line(vector)
    np.testing.assert_allclose(table(closed), closure(table(vector)), rtol=1e-13)
    assert (closed <= vector).all()
    assert (np.diff(closed) >= 0).all()
    assert open_triangle(table(closed)) is None


def test_the_straight_line_is_the_closure_of_a_convex_vector_with_a_cap() -> None:
    steps = np.arange(1.0, 10_001.0)
    assert close_line(np.minimum(0.01 * steps + 1e-6 * steps**2, 3.0)) == pytest.approx(
        np.minimum((0.01 + 1e-6) * steps, 3.0)
    )


def test_what_falls_or_is_not_a_number_is_refused() -> None:
    for wrong in ([], [0.0, 1.0], [1.0, 0.5], [1.0, np.nan], [1.0, np.inf]):
        with pytest.raises(InputError, match="do not fall"):
            close_line(np.array(wrong))


@check_all("count", [1, 2, 3, 4, 7, 12])
def test_no_pair_reaches_farther_than_said(count: int) -> None:
    closed = np.arange(1.0, count + 1.0)
    one, other = farthest_reaches(closed)
    distances = table(closed)
    reaches = distances.max(axis=1)
    attained = set()
    for a in range(count + 1):
        for b in range(a + 1, count + 1):
            assert max(reaches[a], reaches[b]) <= one
            assert min(reaches[a], reaches[b]) <= other[b - a - 1]
            if (
                max(reaches[a], reaches[b]) == one
                and min(reaches[a], reaches[b]) == other[b - a - 1]
            ):
                attained.add(b - a)
    assert attained >= set(range(1, count // 3 + 1))
