"""Values to steps and totals to answers."""

from __future__ import annotations

import numpy as np
import pytest

from metricshuffle.errors import DomainError, InputError
from metricshuffle.protocols import Centroid, Mean, Sum
from metricshuffle.queries.numbers import Query
from metricshuffle.spaces import Categories, Grid, Integers, Interval


@pytest.mark.parametrize(
    ("query", "granularity", "values", "truth"),
    [
        (Sum(Integers(-7, 12)), 1, [-7, 12, 0, 3], 8.0),
        (Mean(Integers(5, 9)), 3, [5, 9, 9], 23 / 3),
        (Sum(Interval(-1.5, 2.0)), 0.25, [-1.5, 2.0, 0.3], 0.8),
        (Mean(Interval(10, 20.3)), 2.0, [10, 20.3, 15], 45.3 / 3),
    ],
)
def test_steps_and_answers_undo_each_other(query: Query, granularity: float, values: list[float], truth: float) -> None:
    steps = query.steps(values, granularity)
    assert steps.min() >= 0
    assert steps.max() <= query.spans(granularity)[0]
    answer = query.answer(steps.sum(axis=0).astype(float), len(values), granularity)
    scale = query.error_scale(len(values), granularity)
    assert abs(answer[0] - truth) <= query.snapping(granularity) * len(values) * scale + 1e-12


def test_a_centroid_is_a_place_in_the_middle_of_cells() -> None:
    query = Centroid(Grid(10, 4, cell=2.5))
    steps = query.steps([(0, 0), (9, 3)], 1)
    assert query.answer(steps.sum(axis=0).astype(float), 2, 1) == pytest.approx([12.5, 5.0])
    assert query.spans(1) == (9, 3)
    assert query.between == "cells"
    assert query.snapping(1) == 0.0


def test_values_outside_are_refused_or_clamped_if_asked() -> None:
    query = Mean(Integers(0, 5))
    with pytest.raises(DomainError):
        query.steps([1, 6], 1)
    assert query.steps([1, 6], 1, clamp=True).tolist() == [[1], [5]]


def test_queries_refuse_what_they_cannot_answer() -> None:
    with pytest.raises(InputError, match="Integers or an Interval"):
        Mean(Categories(["a", "b"]))
    with pytest.raises(InputError, match="Grid"):
        Centroid(Integers(0, 5))
    with pytest.raises(InputError, match="2 x 2"):
        Centroid(Grid(1, 5))
    for query, wrong in ((Mean(Integers(0, 5)), 1.5), (Mean(Integers(0, 5)), 0), (Mean(Interval(0, 5)), 6.0), (Mean(Interval(0, 5)), 0.0)):
        with pytest.raises(InputError, match="granularity"):
            query.grain(wrong)
    with pytest.raises(InputError, match="larger cell"):
        Centroid(Grid(5, 5)).grain(2)


def test_queries_survive_json() -> None:
    for query in (Sum(Integers(-7, 12, "kcal")), Mean(Interval(0, 1)), Centroid(Grid(10, 4, cell=2.5, unit="km"))):
        assert Query.of_kind(query.model_dump()) == query
    assert Sum(Integers(-7, 12, "kcal")).unit == "kcal"
    assert np.isclose(Centroid(Grid(4, 5)).diameter, 5.0)
