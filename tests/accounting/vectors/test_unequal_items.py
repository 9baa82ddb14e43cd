"""Different numbers of items: the rounding factor, against every pair of fractions."""

from __future__ import annotations

import math
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.tables import check_all

from metricshuffle.accounting.vectors import encoding_terms
from metricshuffle.accounting.vectors.encoding_terms import rounding_factor
from metricshuffle.errors import InputError

UNITS = [1, 2, 3, 7, 10, 12, 30, 60, 61, 97, 100, 360, 2519, 2520, 2521, 27720, 10**6]


def rounded(units: int, count: int, items: int) -> int:
    """Half a unit is rounded up."""
    return math.floor(Fraction(units * count, items) + Fraction(1, 2))


def steepest(most: int, units: int, *, public: bool = False, largest: int = 1) -> Fraction:
    """Largest |difference sent| over T |difference| of two people, features of 0..largest."""
    best = Fraction(0)
    known = {
        (c, m): rounded(units, c, m) for m in range(1, most + 1) for c in range(largest * m + 1)
    }
    for (c, m), sent in known.items():
        for (d, k), other in known.items():
            # each pair once; equal fractions must be sent alike
            cross = c * k - d * m
            if public and m != k:
                continue
            if cross == 0:
                assert sent == other
            elif cross > 0:
                best = max(best, Fraction((sent - other) * m * k, units * cross))
    return best


@check_all("units", UNITS)
def test_the_factor_is_the_largest_of_all_pairs(units: int) -> None:
    for most in (1, 2, 3, 5, 6):
        assert rounding_factor(most, units) == steepest(most, units)
        assert rounding_factor(most, units, public_sizes=True) == steepest(most, units, public=True)


@check_all(("most", "largest"), [(4, 3), (3, 9)])
def test_features_of_larger_values_cost_no_more(most: int, largest: int) -> None:
    for units in (5, 7, 12, 100):
        assert rounding_factor(most, units) == steepest(most, units, largest=largest)


@pytest.mark.parametrize("units", UNITS)
def test_every_number_of_items_to_twelve(units: int) -> None:
    for most in range(7, 13):
        assert rounding_factor(most, units) == steepest(most, units)


@settings(deadline=None)
@given(most=st.integers(1, 60), units=st.integers(1, 10**7))
def test_within_what_can_be_said_at_once(most: int, units: int) -> None:
    factor = rounding_factor(most, units)
    assert 1 <= factor <= 1 + Fraction(most * (most - 1), units)
    assert (
        1
        <= rounding_factor(most, units, public_sizes=True)
        <= min(factor, 1 + Fraction(most - 1, units))
    )
    assert rounding_factor(most, units * math.lcm(*range(1, most + 1))) == 1


def test_many_items_by_the_closed_form(monkeypatch: pytest.MonkeyPatch) -> None:
    exact = rounding_factor(10, 2521), rounding_factor(10, 100)
    monkeypatch.setattr(encoding_terms, "MAX_EXACT", 5)
    assert exact[0] <= rounding_factor(10, 2521) == 1 + Fraction(90, 2521)
    assert exact[1] == Fraction(36, 25) < rounding_factor(10, 100) == Fraction(19, 10)
    assert rounding_factor(10, 5040) == 1


def test_what_is_no_whole_number_is_refused() -> None:
    for most, units in [(0, 10), (10, 0), (2.0, 10), (True, 10)]:
        with pytest.raises(InputError, match="whole number"):
            rounding_factor(most, units)  # type: ignore[arg-type]
