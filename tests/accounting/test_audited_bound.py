"""Clopper-Pearson limits against exact arithmetic, and the error rate of the epsilon bound."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import mpmath
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import beta
from tests.tables import check_all

from metricshuffle.auditing.confidence_bound import (
    MAX_TRIALS,
    EventCount,
    epsilon_confidence_bound,
    probability_lower_limit,
    probability_upper_limit,
)
from metricshuffle.errors import InputError

GOLDEN = {
    # hits, trials: lower and upper limit at 2.5 % each, from the quantiles of the beta law to 30
    # digits (mpmath)
    (0, 10): (0.0, 0.308497107818760832),
    (10, 10): (0.691502892181239168, 1.0),
    (5, 10): (0.187086028447398532, 0.812913971552601468),
    (1, 20): (0.00126508949794980369, 0.248732762772027777),
    (7, 1000): (0.00281885875962052566, 0.0143691949789186333),
    (0, 1): (0.0, 0.975),
    (1, 1): (0.025, 1.0),
}


@check_all("seen", GOLDEN)
def test_golden_values(seen: tuple[int, int]) -> None:
    low, high = GOLDEN[seen]
    assert probability_lower_limit(EventCount(*seen), 0.025) == pytest.approx(low, rel=4e-9)
    assert probability_upper_limit(EventCount(*seen), 0.025) == pytest.approx(high, rel=4e-9)


@check_all(
    ("hits", "trials"),
    [
        (1, 7),
        (3, 7),
        (6, 7),
        (40, 90),
        (1, 10**6),
        (999, 10**6),
        (10**6 - 1, 10**6),
        (5 * 10**8, 10**9),
    ],
)
@check_all("miss", [0.5, 0.025, 1e-3, 1e-12])
def test_limits_lie_on_the_safe_side_of_scipys_quantiles_and_near_them(
    hits: int, trials: int, miss: float
) -> None:
    low = probability_lower_limit(EventCount(hits, trials), miss)
    high = probability_upper_limit(EventCount(hits, trials), miss)
    below = float(beta.ppf(miss, hits, trials - hits + 1))
    above = float(beta.isf(miss, hits + 1, trials - hits))
    assert low < below * (1.0 + 1e-14)
    assert high > above * (1.0 - 1e-14)
    assert low == pytest.approx(below, rel=1e-7)
    assert high == pytest.approx(above, rel=1e-7)
    assert 0.0 < low < hits / trials < high <= 1.0 or miss == 0.5


@pytest.mark.parametrize(("hits", "trials"), [(1, 12), (7, 12), (11, 12), (200, 300)])
def test_tails_at_the_limits_in_exact_arithmetic(hits: int, trials: int) -> None:
    """P(Bin(n, L) >= k) and P(Bin(n, U) <= k) are slightly below `miss`, in fractions."""
    miss = Fraction(1, 40)

    def tail(chance: Fraction, outcomes: range) -> Fraction:
        return sum(
            (math.comb(trials, k) * chance**k * (1 - chance) ** (trials - k) for k in outcomes),
            Fraction(0),
        )

    low, high = (
        Fraction(limit(EventCount(hits, trials), float(miss)))
        for limit in (probability_lower_limit, probability_upper_limit)
    )
    for reached in (tail(low, range(hits, trials + 1)), tail(high, range(hits + 1))):
        assert miss * (1 - Fraction(1, 10**6)) < reached < miss


def test_the_room_for_scipys_error_is_wide() -> None:
    """scipy's tails are exact to 1e-11 (against 40 digits) where a limit leaves 1e-9 of room."""
    from scipy.special import betainc, betaincc

    with mpmath.workdps(40):
        for hits, trials, miss in ((3, 50, 0.025), (1000, 10**5, 1e-6), (10**5 - 10, 10**5, 0.01)):
            low = probability_lower_limit(EventCount(hits, trials), miss)
            high = probability_upper_limit(EventCount(hits, trials), miss)
            lower = mpmath.betainc(hits, trials - hits + 1, 0, mpmath.mpf(low), regularized=True)
            upper = mpmath.betainc(hits + 1, trials - hits, mpmath.mpf(high), 1, regularized=True)
            assert abs(float(betainc(hits, trials - hits + 1, low) / lower) - 1.0) < 1e-11
            assert abs(float(betaincc(hits + 1, trials - hits, high) / upper) - 1.0) < 1e-11
            assert lower < miss
            assert upper < miss


def binomial(trials: int, chance: float, hits: int) -> float:
    return math.comb(trials, hits) * chance**hits * (1.0 - chance) ** (trials - hits)


@check_all("chance", [0.001, 0.05, 0.3, 0.5, 0.77, 0.99])
def test_limits_are_wrong_no_more_often_than_they_may(chance: float) -> None:
    """Over all outcomes of 25 trials, whatever the chance of a hit."""
    trials = 25
    miss = 0.05
    above = sum(
        binomial(trials, chance, k)
        for k in range(trials + 1)
        if probability_lower_limit(EventCount(k, trials), miss) > chance
    )
    below = sum(
        binomial(trials, chance, k)
        for k in range(trials + 1)
        if probability_upper_limit(EventCount(k, trials), miss) < chance
    )
    assert max(above, below) <= miss


@pytest.mark.parametrize(
    ("epsilon", "delta", "chance"),
    [(0.0, 0.0, 0.3), (0.5, 0.0, 0.1), (1.0, 0.0, 0.25), (1.0, 0.1, 0.2), (0.2, 0.3, 0.5)],
)
def test_an_epsilon_is_shown_that_is_not_there_no_more_often_than_it_may(
    epsilon: float, delta: float, chance: float
) -> None:
    """All outcomes of 14 trials per input, with the most likely event that is allowed."""
    trials = 14
    miss = 0.3
    likelier = min(1.0, math.exp(epsilon) * chance + delta)
    wrong = sum(
        binomial(trials, likelier, first) * binomial(trials, chance, second)
        for first, second in itertools.product(range(trials + 1), repeat=2)
        if epsilon_confidence_bound(
            EventCount(first, trials), EventCount(second, trials), delta, miss
        )
        > epsilon
    )
    assert wrong <= miss


def test_epsilon_is_the_logarithm_of_the_limits() -> None:
    first = EventCount(70, 100)
    second = EventCount(10, 100)
    low = probability_lower_limit(first, 0.025)
    high = probability_upper_limit(second, 0.025)
    assert epsilon_confidence_bound(first, second, 0.0, 0.05) == pytest.approx(
        math.log(low / high), rel=1e-12
    )
    assert epsilon_confidence_bound(first, second, 0.1, 0.05) == pytest.approx(
        math.log((low - 0.1) / high), rel=1e-12
    )
    assert epsilon_confidence_bound(first, second, 0.1, 0.05) < math.log((low - 0.1) / high)


def test_what_shows_nothing() -> None:
    """No hits, all hits, exchanged inputs, or a covering delta: epsilon 0 and not less."""
    for first, second, delta in (
        (EventCount(0, 50), EventCount(0, 50), 0.0),
        (EventCount(50, 50), EventCount(50, 50), 0.0),
        (EventCount(1, 50), EventCount(40, 50), 0.0),
        (EventCount(50, 50), EventCount(0, 50), 0.95),
    ):
        assert epsilon_confidence_bound(first, second, delta, 0.05) == 0.0
    assert epsilon_confidence_bound(
        EventCount(50, 50), EventCount(0, 50), 0.0, 0.05
    ) == pytest.approx(math.log(0.025**0.02 / (1.0 - 0.025**0.02)), rel=1e-8)


@given(st.integers(1, 400), st.data())
def test_more_hits_show_more(trials: int, data: st.DataObject) -> None:
    hits = data.draw(st.integers(0, trials - 1))
    other = data.draw(st.integers(0, trials - 1))
    shown = epsilon_confidence_bound(
        EventCount(hits, trials), EventCount(other, trials), 1e-3, 0.05
    )
    assert (
        epsilon_confidence_bound(
            EventCount(hits + 1, trials), EventCount(other, trials), 1e-3, 0.05
        )
        >= shown
    )
    assert (
        epsilon_confidence_bound(
            EventCount(hits, trials), EventCount(other + 1, trials), 1e-3, 0.05
        )
        <= shown
    )
    assert (
        epsilon_confidence_bound(EventCount(hits, trials), EventCount(other, trials), 1e-3, 0.01)
        <= shown
    )
    assert (
        epsilon_confidence_bound(EventCount(hits, trials), EventCount(other, trials), 1e-2, 0.05)
        <= shown
    )


@check_all(
    "seen", [(-1, 3), (4, 3), (0, 0), (1.0, 3), (True, 3), (1, MAX_TRIALS + 1), (math.nan, 3)]
)
def test_counts_that_are_none(seen: tuple[int, int]) -> None:
    with pytest.raises(InputError, match="an event happens 0 to n times"):
        EventCount(*seen)


@check_all("miss", [0.0, 1.0, -0.1, math.nan, 1e-300, True, "0.05"])
def test_a_chance_of_being_wrong_that_is_none(miss: float) -> None:
    with pytest.raises(InputError, match="the chance of being wrong"):
        epsilon_confidence_bound(EventCount(1, 2), EventCount(1, 2), 0.0, miss)
