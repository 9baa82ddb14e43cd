"""Composition of pure rounds against exact fractions, mpmath and the loss distribution."""

from __future__ import annotations

import math
from fractions import Fraction

import mpmath
import pytest
from tests.tables import check_all

from metricshuffle.accounting.composition.pure_responses import ComposedResponses
from metricshuffle.errors import InputError
from metricshuffle.privacy import PureProfile


def truth(odds: Fraction, rounds: int, growth: Fraction) -> Fraction:
    """By counting the answers that tell the truth."""
    one = [math.comb(rounds, j) * odds**j / (1 + odds) ** rounds for j in range(rounds + 1)]
    return sum(
        (max(p - growth * q, Fraction(0)) for p, q in zip(one, reversed(one), strict=True)),
        Fraction(0),
    )


@check_all(("odds", "rounds", "growth"), [(3, 1, 2), (3, 2, 2), (2, 5, 3), (2, 40, 7), (5, 12, 1)])
def test_a_few_rounds_by_hand(odds: int, rounds: int, growth: int) -> None:
    exact = truth(Fraction(odds), rounds, Fraction(growth))
    found = ComposedResponses(math.log(odds), rounds).delta(math.log(growth), 1.0)
    assert found == pytest.approx(float(exact), rel=1e-12)
    assert found >= exact * (1 - Fraction(1, 10**14))


@pytest.mark.parametrize(
    ("rate", "rounds", "epsilon"),
    [(0.03, 1000, 5.0), (0.3, 400, 60.0), (0.01, 5000, 1.0), (2.0, 30, 59.9)],
)
def test_many_rounds_against_fifty_digits(rate: float, rounds: int, epsilon: float) -> None:
    with mpmath.workdps(50):
        p = 1 / (1 + mpmath.exp(-mpmath.mpf(rate)))
        exact = mpmath.fsum(
            mpmath.binomial(rounds, j)
            * p**j
            * (1 - p) ** (rounds - j)
            * (1 - mpmath.exp(epsilon - (2 * j - rounds) * mpmath.mpf(rate)))
            for j in range(rounds + 1)
            if (2 * j - rounds) * mpmath.mpf(rate) > epsilon
        )
        found = ComposedResponses(rate, rounds).delta(epsilon, 1.0)
        assert exact <= found <= exact * (1 + mpmath.mpf(10) ** -9)


def test_one_round_is_a_pure_profile_and_distances_scale_the_rate() -> None:
    for epsilon in (0.0, 0.3, 0.9):
        assert ComposedResponses(1.0, 1).delta(epsilon, 1.0) == pytest.approx(
            PureProfile(1.0).delta(epsilon, 1.0), rel=1e-12
        )
    assert ComposedResponses(0.2, 50).delta(1.0, 0.5) == pytest.approx(
        ComposedResponses(0.1, 50).delta(1.0, 1.0), rel=1e-12
    )
    assert ComposedResponses(0.2, 50).delta(0.0, 0.0) == 0.0
    assert ComposedResponses(900.0, 3).delta(1.0, 1.0) == 1.0


def test_epsilon_is_above_the_truth_and_never_above_adding_up() -> None:
    profile = ComposedResponses(0.1, 100)
    found = profile.epsilon(1e-6, 1.0)
    assert profile.delta(found, 1.0) <= 1e-6 < profile.delta(found * (1 - 1e-9), 1.0)
    assert found < profile.pure(1.0) == pytest.approx(10.0, rel=1e-12)
    assert profile.covers(found, 1e-6, 1.0, "flat")
    assert not profile.covers(found, 1e-6, 1.0, "linear")
    assert profile.covers(10.001, 1e-6, 1.0, "linear")


def test_refusals() -> None:
    with pytest.raises(InputError, match="rounds"):
        ComposedResponses(1.0, 0)
    with pytest.raises(InputError, match="rate"):
        ComposedResponses(math.nan, 3)
