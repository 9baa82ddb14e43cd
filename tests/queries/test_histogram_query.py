"""Histograms: codes, labels, bins and tables of labels, whole numbers, real numbers and cells."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from tests.tables import check_all

from metricshuffle.errors import DomainError, InputError
from metricshuffle.estimation.inversion import IntervalMethod
from metricshuffle.numerics.types import Floats
from metricshuffle.queries import Estimate, Histogram, Query, Table
from metricshuffle.queries.cell_table import places_of
from metricshuffle.randomizers import PlanarGeometric
from metricshuffle.spaces import Categories, Grid, Integers, Interval, Space


def codes_of(query: Histogram, values: Any, *, clamp: bool = False) -> list[int]:
    codes: list[int] = query.inputs(values, 1.0, clamp=clamp).numbers[:, 0].tolist()
    return codes


def test_codes_and_labels_of_each_domain() -> None:
    """The order of the codes is that of the randomizers, and labels tell a cell in words."""
    grid = Histogram(Grid(4, 3, 50.0, "m"))
    assert codes_of(grid, [(0, 0), (3, 0), (1, 2)]) == [0, 3, 9]
    assert [grid.label(9), grid.unit, grid.step] == [
        "south 100, west 50, north 150, east 100",
        "m",
        50.0,
    ]
    assert grid.between(50.0).startswith("cells")
    randomizer = PlanarGeometric(4, 3, 1.0)
    assert randomizer.codes_of(randomizer.values_of(np.arange(12))).tolist() == list(range(12))
    line = Histogram(Integers(-2, 3))
    assert codes_of(line, [-2, 3]) == [0, 5]
    assert line.label(5) == "3"
    assert codes_of(line, [9], clamp=True) == [5]
    assert Histogram(Categories(["a", "b"])).label(1) == "b"
    with pytest.raises(DomainError, match="no nearest one"):
        codes_of(Histogram(Categories(["a", "b"])), ["c"], clamp=True)


@check_all("domain", [Categories(["one"]), Integers(0, 10**6), Grid(1, 9), Grid(999, 999)])
def test_domains_that_make_no_histogram(domain: Any) -> None:
    """Too few cells, too many, or a single row of them."""
    with pytest.raises(InputError, match="istogram needs"):
        Histogram(domain)


@check_all(
    ("domain", "step", "words"),
    [
        (Interval(0, 1), None, "needs a step"),
        (Integers(0, 9), 2.5, "whole number"),
        (Integers(0, 9), 0, "step must be > 0"),
        (Integers(0, 9), math.nan, "step must be a finite number"),
        (Categories(["a", "b"]), 2, "step is for numbers"),
        (Grid(3, 3, 2.0), 1.0, "step is for numbers"),
        (Interval(0, 1), 2.0, "2 to"),
        (Interval(0, 1), 1e-9, "2 to"),
    ],
)
def test_steps_that_make_no_bins(domain: Any, step: float | None, words: str) -> None:
    """Bins are for numbers, whole ones for whole numbers, and there are some of them."""
    with pytest.raises(InputError, match=words):
        Histogram(domain, step)


def test_whole_numbers_in_bins() -> None:
    """Every number lies within its bin; the last bin may be shorter."""
    query = Histogram(Integers(-3, 8), 5)
    assert query.cells == 3
    table = places_of(query.domain, query.step)
    assert (list(table["low"]), list(table["high"])) == ([-3, 2, 7], [1, 6, 8])
    for value in range(-3, 9):
        code = codes_of(query, [value])[0]
        assert table["low"][code] <= value <= table["high"][code]
    assert [query.label(code) for code in range(3)] == ["-3 to 1", "2 to 6", "7 to 8"]
    assert (query.between(5.0), query.diameter) == ("bins of 5", 10.0)
    assert str(query) == "histogram over whole numbers from -3 to 8 in bins of 5"


@check_all(
    ("low", "high", "step", "bins"),
    [(0.0, 1.0, 0.25, 4), (-1.0, 2.0, 0.7, 5), (0.0, 0.3, 0.1, 3), (5.0, 6.05, 0.5, 3)],
)
def test_real_numbers_in_bins(low: float, high: float, step: float, bins: int) -> None:
    """Both ends of the range belong to a bin; numbers lie within their bin to the last digit."""
    query = Histogram(Interval(low, high), step)
    assert query.cells == bins
    table = places_of(query.domain, query.step)
    values = np.concatenate([np.linspace(low, high, 97), [low, high]])
    codes = np.array(codes_of(query, values))
    assert (codes[-2], codes[-1]) == (0, bins - 1)
    room = 1e-12 * max(1.0, abs(high))
    assert np.all(values >= np.asarray(table["low"])[codes] - room)
    assert np.all(values <= np.asarray(table["high"])[codes] + room)
    assert table["high"][-1] == pytest.approx(high)
    assert Fraction(query.diameter) == Fraction(bins - 1) * Fraction(
        step
    ) or query.diameter == pytest.approx((bins - 1) * step)


def test_distances_of_cells_are_those_of_the_domain() -> None:
    """Between all pairs of codes: what a promise about that distance is about."""
    for query in (
        Histogram(Grid(3, 4, 2.0)),
        Histogram(Integers(0, 5)),
        Histogram(Categories(["a", "b", "c"])),
    ):
        space = Space.of(query.domain)
        points = query.domain.points(query.domain.all_values())
        pairwise = space.metric.pairwise(points, points)
        for a in range(query.cells):
            for b in range(query.cells):
                assert query.distance(a, b) == pytest.approx(pairwise[a, b])
    binned = Histogram(Integers(0, 22), 4)
    assert [binned.distance(1, code) for code in range(6)] == [4.0, 0.0, 4.0, 8.0, 12.0, 16.0]
    assert binned.distance(0, binned.cells - 1) == binned.diameter


def test_queries_survive_json() -> None:
    """A histogram read back has the same bins."""
    for query in (
        Histogram(Integers(0, 22), 4),
        Histogram(Interval(0.0, 1.0), 0.1),
        Histogram(Grid(3, 4, 2.0)),
        Histogram(Categories(list("abc"))),
    ):
        assert Query.of_kind(query.model_dump(mode="json")) == query


def test_the_table_of_shares() -> None:
    """Possible shares, counts, errors and intervals, clipped and widened to the shown share."""
    query = Histogram(Integers(0, 2))
    totals = np.array([120.0, -30.0, 10.0])
    deviations = np.array([10.0, 10.0, 10.0])

    def ends(level: float, simultaneous: bool, method: IntervalMethod) -> tuple[Floats, Floats]:
        return totals - 2.0 * deviations, totals + 2.0 * deviations

    estimate = Estimate(totals, deviations, 100, 1.0, ends, np.array([0.93, 0.0, 0.07]))
    answer = query.answer(estimate, 0.9)
    assert isinstance(answer.value, Table)
    assert list(answer.value.columns) == [
        "low",
        "high",
        "share",
        "count",
        "standard_error",
        "interval_90",
        "unbiased",
    ]
    assert answer.value["share"].tolist() == [0.93, 0.0, 0.07]
    assert answer.value["count"].tolist() == pytest.approx([93.0, 0.0, 7.0])
    assert answer.value["unbiased"].tolist() == [1.2, -0.3, 0.1]
    assert answer.value["interval_90"] == [(0.93, 1.0), (0.0, 0.0), (0.0, 0.3)]
    assert answer.value[1] == {
        "low": 1,
        "high": 1,
        "share": 0.0,
        "count": 0.0,
        "standard_error": 0.1,
        "interval_90": (0.0, 0.0),
        "unbiased": -0.3,
    }
