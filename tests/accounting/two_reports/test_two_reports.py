"""Two reports: every data set in fractions, golden values, 40 digits, invariants."""

from __future__ import annotations

import itertools
import math
import random
from fractions import Fraction

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.oracles.shuffled_brute_force import every_data_set, shuffled_delta
from tests.tables import check_all

from metricshuffle.accounting.shuffling import _binary_kernels as kernels
from metricshuffle.accounting.shuffling import binary_exact_bound
from metricshuffle.accounting.shuffling import blanket_bound as blanket
from metricshuffle.accounting.shuffling.binary_exact_bound import (
    BinaryReports,
    WorstDataSet,
    delta_bracket,
    epsilon_bracket,
    worst_pairs,
)
from metricshuffle.errors import InputError
from metricshuffle.randomizers import KaryRandomizedResponse

Weights = list[list[int]]


def response(epsilon: float) -> BinaryReports:
    return BinaryReports.from_rows(KaryRandomizedResponse(2, epsilon).rows(), 0, 1)


def random_weights(source: random.Random, inputs: int) -> tuple[Weights, int]:
    """Rows of whole numbers of one total; some of them certain of their report."""
    total = source.choice((3, 7, 16, 97, 1000))
    ones = [source.randint(0, total) for _ in range(inputs)]
    return [[total - one, one] for one in ones], total


def law_of(weights: Weights, total: int, a: int, b: int) -> BinaryReports:
    return BinaryReports.from_rows(
        np.array(weights) / total, a, b, (weights[a][1] - weights[b][1]) / total
    )


def truth_of(weights: Weights, a: int, b: int, users: int, growth: Fraction) -> Fraction:
    """Over every data set and both directions."""
    return max(
        max(every_data_set(weights, *pair, users, growth).values()) for pair in ((a, b), (b, a))
    )


def checked(weights: Weights, total: int, users: int, growth: Fraction) -> int:
    """Compare all pairs with every data set; how many data sets that were."""
    looked = 0
    for a, b in itertools.combinations(range(len(weights)), 2):
        if weights[a] == weights[b]:
            continue
        exact = float(truth_of(weights, a, b, users, growth))
        found = delta_bracket(law_of(weights, total, a, b), users, math.log(growth))
        assert found.lower <= exact * (1.0 + 1e-13) + 1e-15, (weights, a, b, users, growth)
        assert exact <= found.upper * (1.0 + 1e-15) + 1e-18, (weights, a, b, users, growth)
        assert found.upper <= exact * (1.0 + 1e-9) + 1e-14, (weights, a, b, users, growth)
        looked += 2 * math.comb(len(weights) + users - 2, users - 1)
    return looked


def test_no_data_set_exceeds_the_binary_bound() -> None:
    source = random.Random(5)
    looked = 0
    for _ in range(150):
        weights, total = random_weights(source, source.randint(2, 4))
        looked += checked(
            weights, total, source.randint(1, 6), Fraction(source.randint(10, 40), 10)
        )
    assert looked > 5_000


@pytest.mark.slow
def test_no_data_set_exceeds_the_binary_bound_many_times() -> None:
    source = random.Random(77)
    looked = 0
    for _ in range(4_000):
        weights, total = random_weights(source, source.randint(2, 5))
        looked += checked(
            weights,
            total,
            source.randint(1, 7),
            1 + Fraction(source.randint(0, 60), source.choice((10, 30, 100))),
        )
    assert looked > 400_000


def counts(zeros: int, ones: int, low: Fraction, high: Fraction) -> list[Fraction]:
    """The law of Bin(zeros, low) + Bin(ones, high)."""
    law = [Fraction(1)]
    for chance in [low] * zeros + [high] * ones:
        law = [
            before * (1 - chance) + after * chance
            for before, after in zip([*law, Fraction(0)], [Fraction(0), *law], strict=True)
        ]
    return law


def divergence(
    first: Fraction, second: Fraction, law: list[Fraction], growth: Fraction
) -> Fraction:
    with_first, with_second = (
        [
            here * (1 - chance) + before * chance
            for here, before in zip([*law, Fraction(0)], [Fraction(0), *law], strict=True)
        ]
        for chance in (first, second)
    )
    return sum(
        (max(Fraction(0), p - growth * q) for p, q in zip(with_first, with_second, strict=True)),
        Fraction(0),
    )


@pytest.mark.parametrize("others", [9, 40])
def test_every_t_in_fractions(others: int) -> None:
    source = random.Random(others)
    for _ in range(6):
        low, second, first, high = sorted(Fraction(source.randint(0, 200), 200) for _ in range(4))
        if first == second:
            continue
        growth = 1 + ((first / second if second else Fraction(9)) - 1) * Fraction(
            source.randint(0, 95), 100
        )
        lead = float(first - growth * second)
        asked = kernels.question(
            lead,
            float(growth - 1),
            np.array([float(1 - low), float(1 - high)]),
            np.array([float(low), float(high)]),
        )
        for ones in range(others + 1):
            exact = float(divergence(first, second, counts(others - ones, ones, low, high), growth))
            lower, upper = kernels.divergence(asked, float(others - ones), float(ones))
            assert lower <= exact * (1.0 + 1e-14)
            assert exact * (1.0 - 1e-14) <= upper <= exact * (1.0 + 1e-7) + 1e-290


def test_golden_values() -> None:
    found = epsilon_bracket(response(2.0), 500, 1e-3)
    assert found.lower <= found.upper <= found.lower * (1.0 + 1e-6)
    assert found.upper == pytest.approx(0.2302656, abs=2e-7)
    assert found.upper < 0.78 * blanket.epsilon_upper(
        KaryRandomizedResponse(2, 2.0).blanket(0, 1), 500, 1e-3
    )
    assert found.attained == WorstDataSet(0, False)  # everybody else reports the zero most often


def test_ends_are_not_always_the_worst() -> None:
    weights = [[3, 1], [1, 3]]
    assert shuffled_delta(
        weights[0], weights[1], [weights[0], weights[0]], Fraction(1)
    ) == Fraction(9, 32)
    assert shuffled_delta(
        weights[0], weights[1], [weights[0], weights[1]], Fraction(1)
    ) == Fraction(5, 16)
    found = delta_bracket(law_of(weights, 4, 0, 1), 3, 0.0)
    assert found.upper == pytest.approx(5 / 16, rel=1e-9)
    assert found.attained is not None
    assert found.attained.most_ones == 1


def test_the_data_set_that_is_told_has_the_lower_end() -> None:
    source = random.Random(3)
    for _ in range(20):
        weights, total = random_weights(source, 3)
        (least, most), users = (
            (min(weights, key=lambda row: row[1]), max(weights, key=lambda row: row[1])),
            source.randint(2, 9),
        )
        if weights[0] == weights[1]:
            continue
        growth = Fraction(source.randint(10, 30), 10)
        found = delta_bracket(law_of(weights, total, 0, 1), users, math.log(growth))
        if found.attained is None:  # nothing is given away, by no data set
            assert found.lower == 0.0
            continue
        others = [most] * found.attained.most_ones + [least] * (
            users - 1 - found.attained.most_ones
        )
        pair = weights[:2][::-1] if found.attained.reversed else weights[:2]
        assert float(shuffled_delta(pair[0], pair[1], others, growth)) == pytest.approx(
            found.lower, rel=1e-9, abs=1e-15
        )


def binomial_divergence(users: int, local: float, epsilon: float) -> mpmath.mpf:
    """All others at the input that reports a one least often, in 40 digits."""
    chance = mpmath.mpf(float(1.0 / (1.0 + math.exp(local))))
    growth = mpmath.expm1(mpmath.mpf(epsilon))
    others = users - 1
    lead = (1 - chance) - (1 + growth) * chance
    tilt = 1 + growth / lead
    centre = int(others * chance * tilt / (1 - chance + chance * tilt))

    def mass(k: int) -> mpmath.mpf:
        ways = (
            mpmath.loggamma(others + 1) - mpmath.loggamma(k + 1) - mpmath.loggamma(others - k + 1)
        )
        return mpmath.exp(ways + k * mpmath.log(chance) + (others - k) * mpmath.log(1 - chance))

    best = mpmath.mpf(0)
    for k in range(centre, centre + 4):
        tail, term, j = mpmath.mpf(0), mass(k), k
        while term > tail * mpmath.mpf(10) ** -25:
            tail += term
            term *= mpmath.mpf(others - j) / (j + 1) * chance / (1 - chance)
            j += 1
        best = max(best, lead * mass(k - 1) - growth * tail)
    return best


@pytest.mark.parametrize(
    ("users", "epsilon", "close"),
    [(500, 0.23, 1e-11), (10**5, 0.0246, 1e-9), (10**7, 0.00257, 1e-8)],
)
def test_forty_digits_at_many_users(users: int, epsilon: float, close: float) -> None:
    with mpmath.workdps(40):
        exact = binomial_divergence(users, 2.0, epsilon)
    chance = 1.0 / (1.0 + math.exp(2.0))
    lead = (1.0 - chance) - math.exp(epsilon) * chance
    asked = kernels.question(
        lead,
        math.expm1(epsilon),
        np.array([1.0 - chance, chance]),
        np.array([chance, 1.0 - chance]),
    )
    lower, upper = kernels.divergence(asked, users - 1.0, 0.0)
    assert lower <= exact <= upper
    assert upper - lower <= close * upper


@check_all("users", [2, 3, 17, 1000, 10**4, 10**6, 10**9])
@check_all("local", [0.5, 2.0, 5.0])
def test_lower_is_upper(users: int, local: float) -> None:
    delta = 1e-8 if users > 100 else 1e-3
    found = epsilon_bracket(response(local), users, delta)
    assert found.upper <= local * (1.0 + 1e-12)
    assert found.lower <= found.upper <= found.lower * (1.0 + 1e-6)
    assert binary_exact_bound.delta_upper(response(local), users, found.upper) <= delta * (
        1.0 + 3e-5
    )  # all data sets, looked at less closely


def test_unlike_extremes_at_many_users() -> None:
    rows = np.array([[0.3, 0.7], [0.6, 0.4], [0.9, 0.1]])
    for users in (10**3, 10**9):
        found = epsilon_bracket(BinaryReports.from_rows(rows, 0, 1), users, 1e-6)
        assert found.upper <= found.lower * (1.0 + 1e-6)
        assert found.attained is not None
        assert found.attained.most_ones in range(3)  # at least ones: the smallest variance


@settings(max_examples=60, deadline=None)
@given(st.floats(0.02, 0.45), st.floats(0.5, 0.99), st.integers(2, 10**7), st.floats(0.0, 1.0))
def test_properties(low: float, high: float, users: int, share: float) -> None:
    rows = np.array([[1.0 - low, low], [1.0 - high, high], [0.5, 0.5]])
    law = BinaryReports.from_rows(rows, 0, 1)
    first = BinaryReports.from_rows(rows, 0, 2)
    epsilon = share * law.pure
    found = delta_bracket(law, users, epsilon)
    assert 0.0 <= found.lower <= found.upper <= 1.0
    assert found.upper <= found.lower * (1.0 + 1e-4) + 1e-12
    later = delta_bracket(law, users, 1.1 * epsilon + 1e-9)
    assert later.lower <= found.upper  # falls in epsilon
    assert delta_bracket(law, 2 * users, epsilon).lower <= found.upper  # and in n
    local = max(high - math.exp(epsilon) * low, (1.0 - low) - math.exp(epsilon) * (1.0 - high))
    assert found.upper <= local * (1.0 + 1e-9) + 1e-12
    assert delta_bracket(first, users, epsilon).lower <= found.upper  # a closer pair


def test_what_is_no_number_is_never_small(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = kernels.question(0.5, 0.1, np.array([0.9, 0.2]), np.array([0.1, 0.8]))
    assert kernels.divergence(asked._replace(rare=np.array([np.nan, 0.5])), 5.0, 5.0) == (0.0, 0.5)
    assert kernels.exceeding(asked._replace(lead=np.nan), 10.0, 1e-3) == 0.0
    monkeypatch.setattr(kernels, "exceeding", lambda *_: 0.0)  # nothing can be certified
    assert epsilon_bracket(response(1.0), 1000, 1e-6).upper == response(1.0).pure


def test_zero_and_pure() -> None:
    law = response(1.5)
    assert epsilon_bracket(law, 100, 0.0).upper == pytest.approx(1.5)
    assert delta_bracket(law, 100, 1.5 + 1e-9).upper == 0.0
    alone = delta_bracket(law, 1, 0.5)
    assert alone.upper == pytest.approx(
        (math.exp(1.5) - math.exp(0.5)) / (math.exp(1.5) + 1.0), rel=1e-12
    )
    open_end = BinaryReports.from_rows(np.array([[1.0, 0.0], [0.5, 0.5]]), 0, 1)
    assert open_end.pure == math.inf
    assert epsilon_bracket(open_end, 10, 0.9).upper < math.inf
    assert (
        epsilon_bracket(
            BinaryReports((0.5, 0.5), (0.5, 0.5), (0.6, 0.4), (0.5, 0.5)), 10, 1e-3
        ).upper
        == 0.0
    )
    assert delta_bracket(law, 50, 1e-200).upper == pytest.approx(
        delta_bracket(law, 50, 0.0).upper, rel=1e-9
    )


def test_pairs_that_reach_less_far_are_left_out() -> None:
    rows = np.array([[1.0 - p, p] for p in (0.1, 0.3, 0.3, 0.6)])
    assert worst_pairs(rows, [(0, 1), (1, 2), (3, 0), (2, 3)]) == [(3, 0)]
    assert worst_pairs(rows, [(0, 1), (2, 3)]) == [(0, 1), (2, 3)]
    assert worst_pairs(rows, []) == []


def test_wrong_input_is_refused() -> None:
    with pytest.raises(InputError, match="sum to one"):
        BinaryReports((0.5, 0.6), (0.5, 0.5), (0.5, 0.5), (0.5, 0.5))
    with pytest.raises(InputError, match="enclose"):
        BinaryReports((0.5, 0.5), (0.2, 0.8), (0.5, 0.5), (0.4, 0.6))
    with pytest.raises(InputError, match="excess"):
        BinaryReports((0.5, 0.5), (0.2, 0.8), (0.5, 0.5), (0.2, 0.8), 0.3)
    with pytest.raises(InputError, match="two columns"):
        BinaryReports.from_rows(np.eye(3), 0, 1)
    for users in (0, 2.5, True):
        with pytest.raises(InputError, match="users"):
            delta_bracket(response(1.0), users, 0.1)  # type: ignore[arg-type]
