"""Randomized response on unary bits, sent as a count."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.stats import binom
from tests.oracles.goodness_of_fit import TOO_UNLIKELY, p_value
from tests.tables import check_all

from metricshuffle.accounting.sums.flipped_bit_count import RandomizedResponseProfile
from metricshuffle.errors import InputError
from metricshuffle.randomizers.count_response import CountResponse
from metricshuffle.randomness import Randomness


@check_all(("span", "value"), [(1, 1), (5, 2), (6, 0)])
def test_reports_are_two_binomials(span: int, value: int) -> None:
    one = CountResponse(span=span, flip=0.25)
    reports = one.reports(np.full(20_000, value), Randomness.seeded(f"count {span}"))
    law = np.convolve(
        binom.pmf(np.arange(value + 1), value, 0.75),
        binom.pmf(np.arange(span - value + 1), span - value, 0.25),
    )
    assert p_value(reports, list(law)) > TOO_UNLIKELY


@check_all(("people", "span", "flip"), [(1, 1, 0.25), (3, 9, 0.125), (40, 25, 0.375)])
def test_the_mean_error_is_de_moivres(people: int, span: int, flip: float) -> None:
    bits = people * span
    counts = np.arange(bits + 1)
    truth = float(np.abs(counts - bits * flip) @ binom.pmf(counts, bits, flip)) / (1 - 2 * flip)
    sizes, weights = CountResponse(span=span, flip=flip).error_points(people)
    assert float(sizes @ weights) == pytest.approx(truth, rel=1e-9)
    assert math.sqrt(CountResponse(span=span, flip=flip).total_variance(people)) == pytest.approx(
        math.sqrt(bits * flip * (1 - flip)) / (1 - 2 * flip)
    )


def test_flips_are_multiples_of_two_to_the_minus_32() -> None:
    CountResponse(span=3, flip=2.0**-32)
    for wrong in (0.0, 0.5, 0.1, math.nan, -0.25):
        with pytest.raises(InputError, match="flip"):
            CountResponse(span=3, flip=wrong)
    with pytest.raises(InputError, match="span"):
        CountResponse(span=0, flip=0.25)


def test_privacy_counts_honest_bits() -> None:
    one = CountResponse(span=4, flip=0.25)
    summed = one.summed_profile(10)
    local = one.local_profile()
    assert isinstance(summed, RandomizedResponseProfile)
    assert isinstance(local, RandomizedResponseProfile)
    assert (summed.bits, local.bits) == (40, 4)
    assert one.local_profile().pure(2) == pytest.approx(2 * math.log(3))
