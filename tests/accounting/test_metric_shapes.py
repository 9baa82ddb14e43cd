"""Closures and reaches by closed form are those of all paths between all points."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.tables import check_all

from metricshuffle.accounting.shuffling.clone_bound import ClonePair, epsilon_upper
from metricshuffle.errors import InputError
from metricshuffle.solving.local_metric import ALGORITHMS, LineTarget, SpaceTarget, algorithm_1n
from metricshuffle.solving.value_geometry import (
    CircleGeometry,
    GridGeometry,
    LineGeometry,
    TableGeometry,
    ValueGeometry,
    merge_distances,
)
from metricshuffle.spaces import Circle, Euclidean, Manhattan, Tree, closure
from metricshuffle.spaces.distance_matrix import open_triangle

SHAPES = [
    LineGeometry(6),
    CircleGeometry(9),
    CircleGeometry(8, 0.5),
    CircleGeometry(2),
    GridGeometry(4, 3),
    GridGeometry(3, 5, 2.0, True),
    GridGeometry(5, 1),
]
TREE = TableGeometry(
    Tree([-1, 0, 0, 1, 1, 2, 2], [0, 1, 2, 1, 1, 0.5, 3]).pairwise(range(7), range(7))
)


@check_all("shape", SHAPES)
def test_distances_are_those_of_the_space(shape: ValueGeometry) -> None:
    places = np.arange(shape.points)
    if isinstance(shape, CircleGeometry):
        known = Circle(shape.around * shape.step).pairwise(places * shape.step, places * shape.step)
    elif isinstance(shape, GridGeometry):
        cells = np.stack([places % shape.width, places // shape.width], axis=1) * shape.cell
        known = (Manhattan() if shape.manhattan else Euclidean()).pairwise(cells, cells)
    else:
        known = np.abs(np.subtract.outer(places, places)).astype(float)
    table = shape.table(shape.distances)
    assert table == pytest.approx(known, rel=1e-12)
    assert (table <= known).all()  # rounded towards the stricter target
    assert (np.diff(shape.distances) >= 0).all()


@settings(max_examples=40, deadline=None)
@given(st.sampled_from(SHAPES), st.randoms(use_true_random=False))
def test_closed_forms_are_the_closure_of_the_table(shape: ValueGeometry, chance: object) -> None:
    count = len(shape.distances)
    jumps = np.array([chance.random() ** 3 for _ in range(count)]) + 1e-3  # type: ignore[attr-defined]
    values = np.cumsum(jumps)
    _, which = merge_distances(shape.distances)
    values = values[np.searchsorted(which, which)]  # one value a distance
    closed = shape.closed(values)
    table = shape.table(closed.values)
    known = closure(shape.table(values))
    assert table == pytest.approx(known, rel=1e-12)
    assert (table <= shape.table(values)).all()
    assert open_triangle(table) is None
    reaches = known.max(axis=1)
    classes = shape.classes()
    for a in range(shape.points):
        for b in range(a):
            high = closed.high[classes[a, b]]
            low = closed.low[classes[a, b]]
            assert max(reaches[a], reaches[b]) <= high * (1 + 1e-12)
            assert min(reaches[a], reaches[b]) <= low * (1 + 1e-12)


def test_tables_tell_the_worst_pair_of_a_distance() -> None:
    values = np.linspace(0.5, 1.5, len(TREE.distances))
    closed = TREE.closed(values)
    known = closure(TREE.table(values))
    assert closed.table == pytest.approx(known)
    reaches = known.max(axis=1)
    classes = TREE.classes()
    for number in range(len(values)):
        a, b = np.nonzero(np.triu(classes == number, 1))
        assert closed.values[number] == pytest.approx(known[a, b].max())
        assert closed.high[number] == pytest.approx(np.maximum(reaches[a], reaches[b]).max())
        assert closed.low[number] == pytest.approx(np.minimum(reaches[a], reaches[b]).max())


@pytest.mark.parametrize(
    "shape", [CircleGeometry(7), GridGeometry(3, 3), TREE], ids=["circle", "grid", "tree"]
)
@pytest.mark.parametrize("algorithm", list(ALGORITHMS))
def test_every_pair_meets_the_target(shape: ValueGeometry, algorithm: str) -> None:
    target = SpaceTarget(shape, 0.4, 1.5)
    totals = 0.4 / 1.5 * shape.table(shape.distances)
    for one in ALGORITHMS[algorithm](target, 5000, 1e-6, 4).solutions:  # type: ignore[index]
        table = one.table()
        reaches = table.max(axis=1)
        for a in range(shape.points):
            for b in range(a):
                assert epsilon_upper(
                    ClonePair(table[a, b], reaches[a], reaches[b]), 5000, 1e-6
                ) <= totals[a, b] * (1 + 1e-12)
        assert one.max_excess <= 0
        assert np.max(one.accounted - one.target.totals) <= 0


def test_a_line_is_a_table_is_half_a_circle() -> None:
    line = algorithm_1n(LineTarget(0, 4, 0.3, 1), 2000, 1e-6, 3)
    table = algorithm_1n(
        SpaceTarget(TableGeometry(LineGeometry(4).table(LineGeometry(4).distances)), 0.3, 1.0),
        2000,
        1e-6,
        3,
    )
    circle = algorithm_1n(SpaceTarget(CircleGeometry(8), 0.3, 1.0), 2000, 1e-6, 3)
    for one, other, third in zip(line.solutions, table.solutions, circle.solutions, strict=True):
        assert other.closed == pytest.approx(one.closed)
        assert third.closed == pytest.approx(one.closed)
        assert other.within(2.0) == one.local(2.0)
        assert (
            other.accounted <= third.accounted * (1 + 1e-8)
        ).all()  # everybody reaches far on a circle


def test_ten_thousand_points_need_no_table() -> None:
    for shape in (CircleGeometry(10_000), GridGeometry(100, 100)):
        found = algorithm_1n(
            SpaceTarget(shape, 1.0, 1000.0 if isinstance(shape, CircleGeometry) else 10.0),
            20_000,
            1e-6,
            1,
        )
        assert np.max(found.solutions[0].accounted - found.solutions[0].target.totals) <= 0
        with pytest.raises(InputError, match="up to 1,024 points"):
            found.solutions[0].table()


@check_all(
    ("make", "told"),
    [
        (lambda: CircleGeometry(1), "at least two"),
        (lambda: TableGeometry(np.zeros((3, 3))), "nothing may tell them apart"),
        (lambda: TableGeometry(np.zeros((1, 1))), "2 to 1,024 points"),
        (
            lambda: SpaceTarget(CircleGeometry(5), 0.0, 1.0),
            "epsilon must be a finite number greater than 0",
        ),
        (
            lambda: SpaceTarget(CircleGeometry(5), 1.0, float("nan")),
            "distance must be a finite number",
        ),
        (lambda: SpaceTarget(CircleGeometry(5), 1e9, 1.0), "above 0 and at most"),
    ],
)
def test_wrong_geometries_and_targets_are_refused(make: object, told: str) -> None:
    with pytest.raises(InputError, match=told):
        make()  # type: ignore[operator]
