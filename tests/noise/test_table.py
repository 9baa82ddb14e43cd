"""Dyadic tables: the integers, the draws, the file."""

from __future__ import annotations

import math
from bisect import bisect_right
from decimal import Decimal
from fractions import Fraction
from itertools import accumulate, pairwise
from typing import Any

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.oracles.goodness_of_fit import TOO_UNLIKELY, symmetric_p_value
from tests.tables import check_all

from metricshuffle.errors import InputError
from metricshuffle.noise import _table_kernels as kernels
from metricshuffle.noise.dyadic_table import TOTAL_WEIGHT, DyadicTable
from metricshuffle.randomness import BUFFER_WORDS, Randomness

RUGGED = DyadicTable.from_masses([0.25, 0.0, 0.25, 0.0, 0.125])


@check_all(
    ("rate", "radius", "centre", "edge"),
    [(1, 15, 8524558334673091618, 2607682175829), (0.5, 29, 4517953604779431018, 2278619340160)],
)
def test_bounded_geometric_golden_weights(rate: float, radius: int, centre: int, edge: int) -> None:
    table = DyadicTable.bounded_geometric(rate, radius)
    assert (table.weights[0], table.weights[-1]) == (centre, edge)


@check_all(
    ("rate", "radius"), [(0.1, 160), (Fraction(1, 3), 200), (2.5, 40), (1e-9, 30), (700.0, 3)]
)
def test_every_bounded_geometric_weight_against_eighty_digits(
    rate: float | Fraction, radius: int
) -> None:
    with mpmath.workdps(80):
        exact = Fraction(rate)
        p = mpmath.exp(-mpmath.mpf(exact.numerator) / exact.denominator)
        scale = TOTAL_WEIGHT / (1 + 2 * mpmath.fsum(p**j for j in range(1, radius + 1)))
        expected = [max(1, int(mpmath.floor(scale * p**z))) for z in range(1, radius + 1)]
    assert list(DyadicTable.bounded_geometric(rate, radius).weights[1:]) == expected


@settings(deadline=None)
@given(st.floats(min_value=1e-6, max_value=50), st.integers(min_value=0, max_value=60))
def test_weights_sum_to_the_total_and_fall_away_from_zero(rate: float, radius: int) -> None:
    table = DyadicTable.bounded_geometric(rate, radius)
    assert 2 * sum(table.weights) - table.weights[0] == TOTAL_WEIGHT
    assert min(table.weights) >= 1
    assert table.radius == radius
    assert all(inner >= outer for inner, outer in pairwise(table.weights))


def test_from_masses_floors_exactly_and_gives_the_centre_the_rest() -> None:
    assert RUGGED.weights == (2**62 - 4, 1, 2**62, 1, 2**61)
    third = DyadicTable.from_masses([Fraction(1, 3), Fraction(1, 3)])
    assert third.weights == (TOTAL_WEIGHT - 2 * (TOTAL_WEIGHT // 3), TOTAL_WEIGHT // 3)
    assert DyadicTable.from_masses([Decimal("0.5"), Decimal("0.25")]).weights == (2**63, 2**62)
    assert DyadicTable.from_masses([1.0]).weights == (TOTAL_WEIGHT,)


@check_all("masses", [[], [0.5, 0.3], [0.5, math.nan], [1.5, -0.25], [0.0, 0.5], [math.inf]])
def test_masses_that_are_not_a_law_are_refused(masses: list[float]) -> None:
    with pytest.raises(InputError):
        DyadicTable.from_masses(masses)


@check_all(
    "weights",
    [
        (),
        (TOTAL_WEIGHT - 1,),
        (TOTAL_WEIGHT, 0),
        (TOTAL_WEIGHT - 2, 1.0),
        (TOTAL_WEIGHT + 2, -1),
        (TOTAL_WEIGHT - 1, 1),
    ],
)
def test_weights_that_are_not_a_table_are_refused(weights: Any) -> None:
    with pytest.raises(InputError):
        DyadicTable(weights)


@check_all(
    ("rate", "radius"),
    [(0, 3), (-1.0, 3), (math.nan, 3), (math.inf, 3), (1.0, -1), (1.0, 2**20 + 1), (1.0, True)],
)
def test_bounded_geometric_refuses_nonsense(rate: float, radius: int) -> None:
    with pytest.raises(InputError):
        DyadicTable.bounded_geometric(rate, radius)


def test_moments() -> None:
    table = DyadicTable.bounded_geometric(0.5, 29)
    values = range(-29, 30)
    assert math.fsum(table.probability(z) for z in values) == pytest.approx(1.0, rel=1e-15)
    assert table.variance == pytest.approx(
        math.fsum(z * z * table.probability(z) for z in values), rel=1e-14
    )
    assert table.probability(3) == table.probability(-3) == table.weights[3] / TOTAL_WEIGHT
    assert table.probability(30) == 0.0


@check_all(
    "table",
    [
        DyadicTable.bounded_geometric(1, 15),
        DyadicTable.bounded_geometric(0.01, 700),
        RUGGED,
        DyadicTable((TOTAL_WEIGHT,)),
    ],
)
def test_look_up_is_right_on_both_sides_of_every_threshold(table: DyadicTable) -> None:
    signed = [table.weights[abs(z)] for z in range(-table.radius, table.radius + 1)]
    thresholds = list(accumulate(signed))[:-1]
    near = {0, TOTAL_WEIGHT - 1, *thresholds, *(threshold - 1 for threshold in thresholds)}
    cells = {cell << 52 for cell in range(4096)} | {(cell << 52) - 1 for cell in range(1, 4097)}
    words = np.array(sorted(near | cells), dtype=np.uint64)
    expected = [bisect_right(thresholds, int(word)) - table.radius for word in words]
    out = np.empty(words.size, dtype=np.int64)
    kernels.draw(words, *table._look_up, out)
    assert out.tolist() == expected
    kernels.draw_constant_time(words, table._thresholds, table.radius, out)
    assert out.tolist() == expected


@check_all(
    "table", [DyadicTable.bounded_geometric(0.1, 160), DyadicTable.bounded_geometric(1, 15), RUGGED]
)
def test_draws_follow_the_weights_and_a_rate_two_percent_off_is_noticed(table: DyadicTable) -> None:
    draws = table.draw(1_000_000, Randomness.seeded("table"))
    assert (
        symmetric_p_value(draws, [weight / TOTAL_WEIGHT for weight in table.weights]) > TOO_UNLIKELY
    )
    if table is not RUGGED:
        rate = -math.log(table.weights[5] / table.weights[4])
        wrong = DyadicTable.bounded_geometric(1.02 * rate, table.radius)
        assert (
            symmetric_p_value(draws, [weight / TOTAL_WEIGHT for weight in wrong.weights])
            < TOO_UNLIKELY
        )


@check_all("count", [0, 1, 100, BUFFER_WORDS, 3 * BUFFER_WORDS + 17])
def test_every_way_of_drawing_gives_the_same_draws(count: int) -> None:
    table = DyadicTable.bounded_geometric(0.5, 29)
    draws = table.draw(count, Randomness.seeded(count))
    assert draws.dtype == np.int64
    np.testing.assert_array_equal(
        table.draw(count, Randomness.seeded(count), constant_time=True), draws
    )
    small = np.full(count, 99, dtype=np.int32)
    table.draw_into(small, Randomness.seeded(count))
    np.testing.assert_array_equal(small, draws)
    values = np.arange(count, dtype=np.int64)
    table.add_noise_to(values, Randomness.seeded(count))
    np.testing.assert_array_equal(values - np.arange(count), draws)


def test_noise_that_would_overflow_is_refused_and_nothing_is_changed() -> None:
    table = DyadicTable.bounded_geometric(1, 15)
    for extreme in (2**63 - 15, -(2**63) + 14):
        values = np.array([0, extreme], dtype=np.int64)
        with pytest.raises(InputError, match="overflow"):
            table.add_noise_to(values, Randomness.seeded(0))
        assert values.tolist() == [0, extreme]
    table.add_noise_to(np.array([2**63 - 16, -(2**63) + 15], dtype=np.int64), Randomness.seeded(0))


def test_arrays_of_another_kind_are_refused() -> None:
    table = DyadicTable.bounded_geometric(1, 15)
    with pytest.raises(InputError, match="int32 or int64"):
        table.draw_into(np.empty(3), Randomness.seeded(0))
    with pytest.raises(InputError, match="int64"):
        table.add_noise_to(np.zeros(3, dtype=np.int32), Randomness.seeded(0))


def test_json_both_ways() -> None:
    for table in (DyadicTable.bounded_geometric(0.5, 29), DyadicTable((TOTAL_WEIGHT,))):
        assert DyadicTable.from_json(table.to_json()) == table
        assert all(isinstance(weight, str) for weight in table.to_dict()["weights"])


@check_all(
    "text",
    [
        "",
        "[]",
        "{}",
        '{"weights": [18446744073709551616]}',
        '{"weights": ["1e3"]}',
        '{"weights": ["5"]}',
        '{"weights": [], "x": 1}',
    ],
)
def test_damaged_json_is_refused(text: str) -> None:
    with pytest.raises(InputError):
        DyadicTable.from_json(text)
