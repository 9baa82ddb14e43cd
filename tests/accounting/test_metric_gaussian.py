"""Gaussian at every distance: golden values, 60 digits, and formulas that are too small."""

from __future__ import annotations

import math
import random
from typing import Any

import mpmath
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.tables import check_all

from metricshuffle.accounting.user_items.metric_gaussian import (
    MetricGaussian,
    gaussian_delta,
    gaussian_sigma,
)
from metricshuffle.errors import InputError


def exact_delta(epsilon: Any, shift: Any) -> Any:
    epsilon = mpmath.mpf(epsilon)
    shift = mpmath.mpf(shift)
    return mpmath.ncdf(shift / 2 - epsilon / shift) - mpmath.exp(epsilon) * mpmath.ncdf(
        -shift / 2 - epsilon / shift
    )


@check_all(
    ("rate", "delta", "sigma"),
    [(25.0, 1e-12, 0.334336401865), (1.0, 1e-6, 4.22467888933), (4.0, 1e-6, 1.19351858716)],
)
def test_golden_sigmas(rate: float, delta: float, sigma: float) -> None:
    found = gaussian_sigma(rate, delta)
    assert found == pytest.approx(sigma, rel=1e-11)
    assert gaussian_sigma(rate / 3, delta, 3.0) == pytest.approx(3 * found, rel=1e-11)
    with mpmath.workdps(60):
        assert exact_delta(rate, 1 / mpmath.mpf(found)) <= delta
        assert exact_delta(rate, 1 / mpmath.mpf(found * (1 - 1e-10))) > delta


def test_the_published_constants_miss_their_delta() -> None:
    """sqrt(1.25 ln(1/delta))/rate and sqrt(2 ln(1.25/delta))/rate at rate 25, delta 1e-12.

    The first also at (1, 1e-6) and (4, 1e-6).
    """
    assert gaussian_delta(25, 25 / math.sqrt(1.25 * math.log(1e12))) == pytest.approx(
        4.50176265846e-5, rel=1e-9
    )
    assert gaussian_delta(25, 25 / math.sqrt(2 * math.log(1.25e12))) == pytest.approx(
        1.26049002997e-9, rel=1e-9
    )
    assert gaussian_delta(1, 1 / math.sqrt(1.25 * math.log(1e6))) == pytest.approx(
        1.40e-6, rel=5e-3
    )
    assert gaussian_delta(4, 4 / math.sqrt(1.25 * math.log(1e6))) == pytest.approx(
        2.27e-5, rel=5e-3
    )
    assert gaussian_delta(0.5, 0.5 / math.sqrt(1.25 * math.log(1e6))) < 1e-6


def test_the_profile_at_half_the_diameter() -> None:
    assert MetricGaussian(0.334336401865).delta(12.5, 0.5) == pytest.approx(
        2.18374330036e-15, rel=1e-9
    )


@settings(deadline=None, max_examples=300)
@given(st.floats(-6, 2.5), st.floats(-6, 2.5))
def test_never_below_the_truth(log_epsilon: float, log_shift: float) -> None:
    epsilon = 10**log_epsilon
    shift = 10**log_shift
    with mpmath.workdps(60 + int(epsilon)):
        exact = exact_delta(epsilon, shift)
        found = gaussian_delta(epsilon, shift)
        assert (
            exact
            <= found
            <= exact * (1 + (mpmath.mpf("1e-8") if shift > 0.01 else mpmath.mpf("1e-3")))
            + mpmath.mpf("1e-20")
        )


def test_a_linear_promise_is_hardest_to_keep_at_the_diameter() -> None:
    for rate, sigma in ((25.0, 0.33), (1.0, 4.0), (0.2, 3.0), (100.0, 0.05)):
        profile = MetricGaussian(sigma)
        values = [profile.delta(rate * w, w) for w in (0.01, 0.05, 0.1, 0.3, 0.5, 0.7, 0.9, 1.0)]
        assert values == sorted(values)
    profile = MetricGaussian(gaussian_sigma(25.0, 1e-12))
    assert profile.covers(25.0, 1e-12, 1.0)
    assert not profile.covers(24.999, 1e-12, 1.0)
    assert not profile.covers(25.0, 0.0, 1.0)
    # what holds at half the distance is better than half of epsilon
    assert profile.epsilon(1e-12, 0.5) < 12.0


def test_delta_at_zero_and_at_the_ends_of_doubles() -> None:
    assert gaussian_delta(1.0, 0.0) == 0.0
    assert 0.0 < gaussian_delta(1e6, 1e-3) < 1e-290
    assert gaussian_delta(1.0, 1e200) == 1.0
    assert gaussian_delta(0.0, 1.0) == pytest.approx(math.erf(0.5 / math.sqrt(2)), rel=1e-12)
    assert gaussian_delta(1e308, 1.0) < 1e-290
    assert gaussian_delta(1e308, 1e-308) < 1e-290


@check_all(
    ("rate", "delta"),
    [(0.0, 1e-6), (math.inf, 1e-6), (math.nan, 1e-6), (1.0, 0.0), (1.0, 1.0), (1.0, math.nan)],
)
def test_wrong_targets_are_refused(rate: float, delta: float) -> None:
    with pytest.raises(InputError, match=r"rate|delta"):
        gaussian_sigma(rate, delta)
    with pytest.raises(InputError, match="sigma"):
        MetricGaussian(0.0)


def test_where_the_difference_of_two_huge_numbers_is_all_that_counts() -> None:
    """x = epsilon/m - m/2 has no correct digit for m beyond 1e16, so its bound is too small."""
    rng = random.Random(3)
    with mpmath.workdps(80):
        for _ in range(300):
            shift = 10 ** rng.uniform(7, 19)
            wanted = rng.uniform(-10, 39)
            epsilon = float(mpmath.mpf(shift) * (mpmath.mpf(shift) / 2 + wanted))
            x = mpmath.mpf(epsilon) / shift - mpmath.mpf(shift) / 2
            assert gaussian_delta(epsilon, shift) >= mpmath.ncdf(-x) - mpmath.npdf(x) / (x + shift)
    assert gaussian_delta(1e300, 1e10) == gaussian_delta(math.inf, 1.0) == 1e-300
    assert gaussian_delta(1.0, 1e200) == 1.0
