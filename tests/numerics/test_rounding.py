"""Steps of a few units cover the rounding error."""

from __future__ import annotations

from fractions import Fraction

from hypothesis import given, settings
from hypothesis import strategies as st

from metricshuffle.numerics.rounding import ROUNDOFF, ULP, round_down, round_up

POSITIVE = st.floats(1e-3, 1e3)


def test_the_unit_is_half_of_what_separates_1_from_the_next_float() -> None:
    assert 1.0 + ROUNDOFF == 1.0 < 1.0 + ULP
    assert 1.0 - ROUNDOFF < 1.0


@settings(deadline=None, max_examples=300)
@given(st.lists(POSITIVE, min_size=2, max_size=40), st.sampled_from("+*/"))
def test_a_chain_of_operations_is_covered_by_two_more_roundings(
    numbers: list[float], operation: str
) -> None:
    value = numbers[0]
    truth = Fraction(numbers[0])
    for number in numbers[1:]:
        if operation == "+":
            value = value + number
            truth = truth + Fraction(number)
        elif operation == "*":
            value = value * number
            truth = truth * Fraction(number)
        else:
            value = value / number
            truth = truth / Fraction(number)
    roundings = len(numbers) - 1 + 2
    roundings += roundings % 2
    assert Fraction(round_down(value, roundings)) <= truth <= Fraction(round_up(value, roundings))


@settings(deadline=None, max_examples=300)
@given(POSITIVE, POSITIVE)
def test_two_cover_one_operation(one: float, other: float) -> None:
    truth = Fraction(one) / Fraction(other)
    assert Fraction(round_down(one / other, 2)) <= truth <= Fraction(round_up(one / other, 2))


@given(POSITIVE, st.integers(0, 1000))
def test_they_are_what_they_say(value: float, roundings: int) -> None:
    assert round_up(value, roundings) == value * (1.0 + roundings * 2.0**-53)
    assert round_down(value, roundings) == value * (1.0 - roundings * 2.0**-53)
