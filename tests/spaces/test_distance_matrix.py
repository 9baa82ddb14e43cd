"""Tables of distances: rejections with the triple, and closure of a semi-metric."""

from __future__ import annotations

import itertools
import re
import time
from typing import Any, Literal

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.tables import check_all

from metricshuffle.errors import DomainError, InputError
from metricshuffle.numerics.types import Floats
from metricshuffle.spaces import Absolute, Euclidean, Haversine, Manhattan, Matrix, Metric, closure
from metricshuffle.spaces.distance_matrix import open_triangle
from metricshuffle.spaces.metrics import from_norm
from metricshuffle.testing import check_metric


@check_all(
    ("table", "words"),
    [
        ([[0, 1]], "square"),
        ([], "square"),
        ([[0, 1], [1]], "square"),
        ([[0, np.nan], [np.nan, 0]], r"finite numbers, but the distance \(0, 1\)"),
        ([[0, "1"], [1, 0]], r"finite numbers, but the distance \(0, 1\)"),
        ([[0, True], [True, 0]], "finite numbers"),
        ([[0, np.inf], [np.inf, 0]], "finite numbers"),
        ([[0, -1], [-1, 0]], r"at least 0, but the distance \(0, 1\) is -1"),
        ([[0, 1], [1, 0.5]], r"itself, but the distance \(1, 1\) is 0.5"),
        (
            [[0, 1, 2], [1, 0, 1], [2, 3, 0]],
            r"both directions, but the distance \(1, 2\) is 1 and \(2, 1\) is 3",
        ),
    ],
)
def test_what_is_not_a_table_of_distances(table: Any, words: str) -> None:
    with pytest.raises(InputError, match=words):
        Matrix(table)


class Bent(Euclidean):
    """Measures otherwise than what it is derived from."""

    kind: Literal["bent"] = "bent"  # type: ignore[assignment]

    def pairwise(self, points_a: Any, points_b: Any) -> Floats:
        return np.asarray(super().pairwise(points_a, points_b) ** 2)


@check_all("metric", [Absolute(), Manhattan(), Euclidean()])
def test_distances_of_a_norm_need_no_check(metric: Metric) -> None:
    """Norms have no open triangle at any scale; user-defined metrics are not taken for norms."""
    generator = np.random.default_rng(8)
    for scale in (1e-200, 1e-3, 1.0, 1e9, 1e200):
        points = generator.integers(-9, 9, (40, 2)) * scale + generator.normal(
            size=(40, 2)
        ) * scale * generator.choice([0.0, 1e-12, 1.0])
        line = points[:, 0] if isinstance(metric, Absolute) else points
        assert open_triangle(metric.pairwise(line, line)) is None
    assert from_norm(metric)
    assert not from_norm(Haversine())
    assert not from_norm(Bent())
    known = Matrix.known(np.zeros((2, 2)))
    with pytest.raises(ValueError, match="read-only"):
        known.distances[0, 1] = 1.0


def test_the_open_triangle_is_named_with_its_sides() -> None:
    with pytest.raises(
        InputError,
        match=re.escape(
            "(i, j, k) = (0, 1, 2) the distance d(i, k) = 5 exceeds d(i, j) + d(j, k) = 1 + 2"
        ),
    ):
        Matrix([[0, 1, 5], [1, 0, 2], [5, 2, 0]])


def brute_force(table: Any) -> bool:
    return any(
        table[i, k] > table[i, j] + table[j, k]
        for i, j, k in itertools.product(range(len(table)), repeat=3)
    )


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 6), st.integers(0, 2**32), st.integers(2, 9))
def test_the_check_finds_a_triangle_exactly_if_one_is_open(
    size: int, seed: int, largest: int
) -> None:
    table = np.triu(np.random.default_rng(seed).integers(1, largest, (size, size)), 1).astype(float)
    table += table.T
    triple = open_triangle(table)
    assert (triple is not None) == brute_force(table)
    if triple is not None:
        i, j, k = triple
        assert table[i, k] > table[i, j] + table[j, k]
    closed = closure(table)
    check_metric(Matrix(closed), range(size))
    assert (closed <= table).all()
    if triple is None:
        assert np.array_equal(closed, table)


def test_one_wrong_entry_is_found_behind_the_first_block() -> None:
    points = np.random.default_rng(5).random((300, 2))
    table = Euclidean().pairwise(points, points)
    assert open_triangle(table) is None
    table[200, 290] = table[290, 200] = 3.0
    triple = open_triangle(table)
    assert triple is not None
    assert {triple[0], triple[2]} == {200, 290}


def test_rounding_is_forgiven_and_small_wrongs_are_not() -> None:
    points = np.random.default_rng(6).random(200) * 10.0 ** np.linspace(-6, 6, 200)
    Matrix(Absolute().pairwise(points, points))
    small = 1e-9
    large = 1e3  # the tolerance is relative to the triangle, not to the largest distance
    table = np.array(
        [
            [0, small, 3 * small, large],
            [small, 0, small, large],
            [3 * small, small, 0, large],
            [large, large, large, 0],
        ]
    )
    with pytest.raises(InputError, match=re.escape("(0, 1, 2)")):
        Matrix(table)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(0, 40), min_size=1, max_size=9), st.integers(0, 2**32))
@example([10, 0, 11], 288566)
def test_a_line_is_told_at_once_and_a_table_next_to_one_is_not(
    places: list[int], seed: int
) -> None:
    """Lines in any order, with ties, need no triples; one changed entry is found exactly."""
    points = np.array(places, dtype=np.float64)
    table = np.abs(np.subtract.outer(points, points))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("scipy.spatial.distance.cdist", None)
        assert open_triangle(table) is None
    i, j = np.random.default_rng(seed).integers(len(points), size=2)
    if i != j:
        # 1e-9 of the shortest side is still 25 tolerances of the longest one, 40 times as long
        for entry in (
            table[i, j] + 1.0,
            table[i, j] * (1.0 + 1e-9),
            max(table[i, j] - 1.0, 0.0),
            table[i, j] * (1.0 - 1e-9),
        ):
            other = table.copy()
            other[i, j] = other[j, i] = entry
            assert (open_triangle(other) is not None) == brute_force(other)
    # no tolerance leaves no room for the rounding of a difference
    tenths = np.abs(np.subtract.outer(0.1 * points, 0.1 * points))
    assert (open_triangle(tenths, 0.0) is not None) == brute_force(tenths)


@pytest.mark.slow
def test_two_thousand_points_take_seconds() -> None:
    points = np.random.default_rng(7).random((2000, 2))
    started = time.perf_counter()
    Matrix(Euclidean().pairwise(points, points))
    assert time.perf_counter() - started < 15


def test_closure_takes_links_and_zeros_seriously() -> None:
    assert closure([[0, 0, 5], [0, 0, 9], [5, 9, 0]]).tolist() == [[0, 0, 5], [0, 0, 5], [5, 5, 0]]
    assert closure([[0, 1, np.inf], [1, 0, 2], [np.inf, 2, 0]]).tolist() == [
        [0, 1, 3],
        [1, 0, 2],
        [3, 2, 0],
    ]
    with pytest.raises(InputError, match="between point 0 and point 2"):
        closure([[0, 1, np.inf], [1, 0, np.inf], [np.inf, np.inf, 0]])
    with pytest.raises(InputError, match="distances must be the same in both directions"):
        closure([[0, 1], [2, 0]])


def test_the_table_is_copied_and_locked() -> None:
    table = np.array([[0.0, 1.0], [1.0, 0.0]])
    metric = Matrix(table)
    table[0, 1] = 9
    assert metric(0, 1) == 1
    with pytest.raises(ValueError, match="read-only"):
        metric.distances[0, 1] = 3
    assert metric != Matrix([[0, 2], [2, 0]])
    for bad in (2, -1, 0.5, "0", True):
        with pytest.raises(DomainError, match="points 0 to 1"):
            metric(bad, 0)


def test_large_tables_are_refused_before_their_triangles_are_checked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("metricshuffle.spaces.distance_matrix.MAX_TABLE_POINTS", 20)
    points = np.random.default_rng(7).random((21, 2))
    table = Euclidean().pairwise(points, points)
    Matrix(table[:20, :20])
    Matrix(Absolute().pairwise(points[:, 0], points[:, 0]))
    monkeypatch.setattr("metricshuffle.spaces.distance_matrix.open_triangle", None)
    with pytest.raises(InputError, match="up to 20 points, got 21"):
        Matrix(table)
