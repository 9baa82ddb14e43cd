"""Binary randomized response and other opposite laws: bounds for whole blocks of data sets."""

from __future__ import annotations

import math
import time

import mpmath
import numpy as np
import pytest
from scipy.stats import binom
from tests.tables import check_all

from metricshuffle.accounting.shuffling import _binary_kernels as kernels
from metricshuffle.accounting.shuffling.binary_exact_bound import (
    BinaryReports,
    _tilted_at,
    delta_bracket,
    epsilon_bracket,
)
from metricshuffle.randomizers import BinaryRandomizedResponse


def response(local: float) -> BinaryReports:
    return BinaryReports.from_rows(BinaryRandomizedResponse(local).rows(), 0, 1)


def asked(local: float, epsilon: float) -> kernels.TiltedDirection:
    question = _tilted_at(response(local).ways[0], epsilon, above=True)
    assert question is not None
    return question


def convolved(question: kernels.TiltedDirection, others: int, highs: int) -> float:
    """max_k h(k) from the law of the count itself."""
    q = float(question.given[0])
    law = np.convolve(
        binom.pmf(np.arange(others - highs + 1), others - highs, q),
        binom.pmf(np.arange(highs + 1), highs, 1.0 - q),
    )
    tail = np.concatenate([np.cumsum(law[::-1])[::-1], [0.0]])
    return float(np.max(question.lead * tail[:-1] - (question.lead + question.growth) * tail[1:]))


def exactly(question: kernels.TiltedDirection, others: int, highs: int) -> mpmath.mpf:
    """Value at the best k in forty digits: k next to the tilted mean, S(k) term by term."""
    with mpmath.workdps(40):
        q = mpmath.mpf(float(question.given[0]))
        low = [mpmath.mpf(1)]
        high = [mpmath.mpf(1)]
        for count, law, odds in ((others - highs, low, q / (1 - q)), (highs, high, (1 - q) / q)):
            for i in range(count):
                law.append(law[-1] * odds * (count - i) / (i + 1))
        scale = (1 - q) ** (others - highs) * q**highs
        mean = (others - highs) * question.rare[0] + highs * (1.0 - question.rare[1])
        values = []
        for k in range(math.floor(mean), math.floor(mean) + 4):
            tails = mpmath.mpf(0)
            beyond = [mpmath.mpf(0)] * (highs + 2)  # P(high count >= i), unscaled
            for i in range(highs, -1, -1):
                beyond[i] = beyond[i + 1] + high[i]
            point = mpmath.fsum(
                low[i] * high[k - 1 - i]
                for i in range(max(0, k - 1 - highs), min(others - highs, k - 1) + 1)
            )
            tails = mpmath.fsum(
                low[i] * beyond[max(0, k - i)] for i in range(len(low)) if k - i <= highs
            )
            lead = mpmath.mpf(question.lead)
            growth = mpmath.mpf(question.growth)
            values.append(scale * (lead * (tails + point) - (lead + growth) * tails))
        return max(values)


def bounded(question: kernels.TiltedDirection, others: int, last: int, highs: int) -> float:
    whole, slope, falls = kernels.below(question, float(others), float(last))
    assert whole < math.inf
    return float(math.exp(-falls * (last - highs)) * (whole + slope * (last - highs)))


@pytest.mark.parametrize(
    ("local", "others", "epsilon"),
    [(1.0, 12_000, 0.03), (1.0, 12_000, 0.0), (0.1, 9_000, 0.002), (2.0, 21_000, 0.05)],
)
def test_no_data_set_exceeds_the_bound_from_the_last(
    local: float, others: int, epsilon: float
) -> None:
    """Against the convolution of two binomial laws."""
    question = asked(local, epsilon)
    for last in (others, others // 2):
        values = {
            highs: convolved(question, others, highs)
            for highs in {0, 1, last // 3, last - 1000, last - 1, last}
        }
        for highs, value in values.items():
            assert value <= bounded(question, others, last, highs) * (1.0 + 1e-9), (last, highs)
        assert bounded(question, others, last, last) <= values[last] * 1.02  # ... which is not idle


@pytest.mark.thorough
@pytest.mark.parametrize("epsilon", [0.0, 0.02])
def test_forty_digits(epsilon: float) -> None:
    question = asked(0.5, epsilon)
    for highs in (0, 4_000, 8_999, 9_000):
        value = float(exactly(question, 9_000, highs))
        assert value == pytest.approx(convolved(question, 9_000, highs), rel=1e-8)
        assert value <= bounded(question, 9_000, 9_000, highs)


@check_all("users", [10**5, 10**7, 10**9, 10**12])
@check_all(("local", "delta"), [(1.0, 1e-6), (0.1, 1e-6), (4.0, 1e-9), (6.0, 1e-12), (1.0, 1e-40)])
def test_many_people(users: int, local: float, delta: float) -> None:
    """Single data sets as lower bounds: over the whole range, and next to the worst end."""
    law = response(local)
    others = users - 1
    epsilon = epsilon_bracket(law, users, delta).upper
    for at in (epsilon, 0.3 * epsilon, 0.0):
        question = asked(local, at)
        if math.isinf(kernels.below(question, float(others), float(others))[0]):
            assert users < 10**9
            continue
        for last in (others, others // 2):
            for highs in {
                0,
                1,
                last // 7,
                last // 2,
                last - last // 100,
                last - 10,
                last - 3,
                last - 2,
                last - 1,
                last,
            }:
                value = kernels.divergence(question, float(others - highs), float(highs))[0]
                assert value <= bounded(question, others, last, highs), (at, last, highs)


def test_unlike_laws_are_not_bounded_so() -> None:
    law = BinaryReports((0.7, 0.3), (0.4, 0.6), (0.7, 0.3), (0.31, 0.69))
    question = _tilted_at(law.ways[0], 1e-3, above=True)
    assert question is not None
    assert kernels.below(question, 1e6, 1e6)[0] == math.inf


@pytest.mark.parametrize(("local", "delta"), [(1.0, 1e-6), (0.1, 1e-6), (4.0, 1e-9)])
def test_as_quick_for_a_billion_people_as_for_ten_thousand(local: float, delta: float) -> None:
    """Blocks that only show people to the adversary took 20 to 200 times as long."""

    def seconds(users: int) -> float:
        times = []
        for _ in range(5):
            law = response(local)
            start = time.process_time()
            bracket = epsilon_bracket(law, users, delta)
            delta_bracket(law, users, bracket.upper)
            times.append(time.process_time() - start)
            assert bracket.upper <= bracket.lower * (1.0 + 1e-6)
        return min(times)

    seconds(100)
    assert seconds(10**9) <= 5.0 * seconds(10**4)
