"""Sums, means and centroids: values to whole steps, and totals to answers."""

from __future__ import annotations

import numpy as np
import pytest
from tests.tables import check_all

from metricshuffle.errors import DomainError, InputError
from metricshuffle.estimation.inversion import IntervalMethod
from metricshuffle.numerics.types import Floats
from metricshuffle.queries import Centroid, Estimate, Mean, Query, Sum
from metricshuffle.queries.mean_and_sum import STEPS_PER_GRAIN
from metricshuffle.queries.summed_query import SummedQuery
from metricshuffle.spaces import Categories, Grid, Integers, Interval


def exactly(totals: list[float], people: int, step: float, halves: float = 0.0) -> Estimate:
    """An estimate of these totals, known to within `halves` steps."""
    known = np.array(totals)

    def ends(level: float, simultaneous: bool, method: IntervalMethod) -> tuple[Floats, Floats]:
        return known - halves, known + halves

    return Estimate(known, np.full(known.shape, halves), people, step, ends)


@check_all(
    ("query", "granularity", "values", "truth"),
    [
        (Sum(Integers(-7, 12)), 1, [-7, 12, 0, 3], 8.0),
        (Mean(Integers(5, 9)), 3, [5, 9, 9], 23 / 3),
        (Sum(Interval(-1.5, 2.0)), 0.25, [-1.5, 2.0, 0.3], 0.8),
        (Mean(Interval(10, 20.3)), 2.0, [10, 20.3, 15], 45.3 / 3),
    ],
)
def test_steps_and_answers_undo_each_other(
    query: SummedQuery, granularity: float, values: list[float], truth: float
) -> None:
    """The answer from the exact total is the truth, up to half a step per real number."""
    step = query.step(granularity)
    numbers = query.inputs(values, step).numbers
    assert numbers.min() >= 0
    assert numbers.max() <= query.spans(step)[0]
    answer = query.answer(exactly(numbers.sum(axis=0).astype(float).tolist(), len(values), step))
    assert isinstance(answer.value, float)
    room = query.snapping * len(values) * query.error_scale(len(values), step)
    assert abs(answer.value - truth) <= room + 1e-12
    assert answer.interval is not None
    low, high = np.ravel(
        answer.interval
    )  # of no noise: what counting in steps may be off by, and nothing else
    assert low <= truth + 1e-12
    assert truth <= high + 1e-12
    assert high - low == pytest.approx(2.0 * room, abs=1e-12)


def test_a_centroid_is_a_place_in_the_middle_of_cells() -> None:
    """Cells count at their middles, and both axes have an interval of their own."""
    query = Centroid(Grid(10, 4, cell=2.5))
    numbers = query.inputs([(0, 0), (9, 3)], query.step(1)).numbers
    answer = query.answer(exactly(numbers.sum(axis=0).astype(float).tolist(), 2, 2.5, halves=2.0))
    assert answer.value == pytest.approx((12.5, 5.0))
    assert np.array(answer.interval) == pytest.approx(np.array([[10.0, 15.0], [2.5, 7.5]]))
    assert answer.plane is None
    assert query.spans(2.5) == (9, 3)
    assert query.between(2.5).startswith("cells")
    assert query.snapping == 0.0


def test_a_centroid_on_a_map_is_told_in_degrees() -> None:
    """The box of degrees contains all four corners of the box in the plane."""
    grid = Grid.from_box(52.3, 13.1, 52.7, 13.8, 500.0)
    query = Centroid(grid)
    answer = query.answer(exactly([300.0, 200.0], 10, grid.cell, halves=50.0))
    assert answer.plane is not None
    assert isinstance(answer.value, tuple)
    latitude, longitude = answer.value
    (south, north), (west, east) = np.array(answer.interval)
    assert south < latitude < north
    assert west < longitude < east
    (left, right), (down, up) = np.array(answer.plane.interval)
    corners = np.array([(x, y) for x in (left, right) for y in (down, up)])
    latitudes, longitudes = grid.degrees(corners)
    assert (south, north) == pytest.approx((latitudes.min(), latitudes.max()), abs=1e-4)
    assert np.all((longitudes >= west - 1e-9) & (longitudes <= east + 1e-9))


def test_values_outside_are_refused_or_clamped_if_asked() -> None:
    """Nothing is moved into the range unless that is wanted."""
    query = Mean(Integers(0, 5))
    with pytest.raises(DomainError):
        query.inputs([1, 6], 1.0)
    assert query.inputs([1, 6], 1.0, clamp=True).numbers.tolist() == [[1], [5]]


def test_queries_refuse_what_they_cannot_answer() -> None:
    """Other domains, and granularities that are no steps of theirs."""
    with pytest.raises(InputError, match="Integers or an Interval"):
        Mean(Categories(["a", "b"]))
    with pytest.raises(InputError, match="Grid"):
        Centroid(Integers(0, 5))
    with pytest.raises(InputError, match="2 x 2"):
        Centroid(Grid(1, 5))
    for query, wrong in (
        (Mean(Integers(0, 5)), 1.5),
        (Mean(Integers(0, 5)), 0),
        (Mean(Interval(0, 5)), 6.0),
        (Mean(Interval(0, 5)), 0.0),
    ):
        with pytest.raises(InputError, match="granularity"):
            query.grain(wrong)
    with pytest.raises(InputError, match="larger cell"):
        Centroid(Grid(5, 5)).grain(2)


def test_a_step_that_the_query_does_not_have_is_refused() -> None:
    """The step of a received task is checked: real numbers take a fine one, others just one."""
    Mean(Integers(0, 5)).check_step(1.0)
    Mean(Interval(0, 5)).check_step(5.0 / STEPS_PER_GRAIN)
    Centroid(Grid(5, 5, cell=2.0)).check_step(2.0)
    wrong: list[tuple[SummedQuery, float]] = [
        (Mean(Integers(0, 5)), 2.0),
        (Mean(Interval(0, 5)), 0.01),
        (Centroid(Grid(5, 5, cell=2.0)), 1.0),
    ]
    for query, step in wrong:
        with pytest.raises(InputError, match="counted in steps"):
            query.check_step(step)


def test_queries_survive_json() -> None:
    """A query read back is the query that was written."""
    for query in (
        Sum(Integers(-7, 12, "kcal")),
        Mean(Interval(0, 1)),
        Centroid(Grid(10, 4, cell=2.5, unit="km")),
    ):
        assert Query.of_kind(query.model_dump()) == query
    assert Sum(Integers(-7, 12, "kcal")).unit == "kcal"
    assert np.isclose(Centroid(Grid(4, 5)).diameter, 5.0)
