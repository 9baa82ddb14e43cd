"""WitchHat: published density, sampled law, exact variance, and the false bound."""

from __future__ import annotations

import math
import time
from fractions import Fraction

import numpy as np
import pytest
from tests.tables import check_all

from metricshuffle.errors import DomainError, InputError
from metricshuffle.randomizers import WitchHat
from metricshuffle.randomizers.dyadic_weights import TOTAL_WEIGHT
from metricshuffle.randomizers.witch_hat import WitchHatDensity
from metricshuffle.randomness import Randomness

DENSITY = WitchHatDensity(half_width=10.0, epsilon=2.0, spread=5.0)


def test_golden_numbers_of_the_density() -> None:
    assert DENSITY.normaliser == pytest.approx(7.03002924855, rel=1e-11)
    assert DENSITY.scale == pytest.approx(2.36703652557, rel=1e-11)
    assert DENSITY.variance(6.0) == pytest.approx(299.017165938, rel=1e-11)
    assert DENSITY.variance_bound(6.0) == pytest.approx(333.936122694, rel=1e-11)


def test_the_published_bound_is_false() -> None:
    b = 10.0
    m = 2.0
    f = 5.0
    n = DENSITY.normaliser
    x = 6.0
    published = (
        n
        * (
            math.exp(-m) * b * (8 * b * b + 12 * m * f * b + 6 * m * m * f)
            + 6 * f**3
            + 3 * n * x * x
        )
        / (12 * f * f * DENSITY.kappa**2)
    )
    assert published == pytest.approx(290.79178419, rel=1e-10)
    assert published < DENSITY.variance(6.0) <= DENSITY.variance_bound(6.0)


@check_all(
    ("b", "m", "f"), [(10.0, 2.0, 5.0), (1.0, 2.0, 0.5), (164.6, 4.49, 50.0), (3.0, 0.2, 1.0)]
)
def test_the_density_against_integrals(b: float, m: float, f: float) -> None:
    density = WitchHatDensity(b, m, f)
    reach = m * f / 2
    z = np.linspace(-b - reach, b + reach, 80_001)

    def law(x: float) -> np.ndarray:
        return np.exp(-np.minimum(2 * np.abs(z - x) / f, m)) / density.normaliser

    def integral(values: np.ndarray) -> float:
        return float(np.trapezoid(values, z))

    for x in (0.0, 0.3 * b, b):
        estimate = density.scale * z
        assert integral(law(x)) == pytest.approx(1.0, rel=1e-7)
        assert integral(law(x) * estimate) == pytest.approx(x, abs=1e-6 * b)
        assert integral(law(x) * estimate**2) - x * x == pytest.approx(
            density.variance(x), rel=1e-6
        )
        assert density.variance(x) <= density.variance_bound(x)
    for distance in (0.05 * b, b, 2 * b):
        assert 0.5 * integral(np.abs(law(-b) - law(-b + distance))) == pytest.approx(
            density.total_variation(distance), rel=1e-6
        )


def test_weights_take_time_in_proportion_to_their_number() -> None:
    """Sixteen times as many weights must not take 256 times as long.

    A task of 100,000 would hang.
    """

    def seconds(steps: int) -> float:
        times = []
        for _ in range(3):
            begun = time.process_time()
            assert WitchHat(1.0, 6.0, 1.0, steps=steps).reach > 6 * steps
            times.append(time.process_time() - begun)
        return min(times)

    assert seconds(2**13) < 60 * max(seconds(2**9), 1e-3)


@check_all(
    ("half_width", "epsilon", "rate", "steps"),
    [(1.0, 0.3, 0.7, 7), (10.0, 8.0, 0.4, 300), (1.0, 25.0, 4.0, 500), (5.0, 2.0, 40.0, 3)],
)
def test_neighbouring_weights_keep_the_rate_as_fractions(
    half_width: float, epsilon: float, rate: float, steps: int
) -> None:
    hat = WitchHat(half_width, epsilon, rate, steps)
    ratio = 1 + Fraction(rate) * Fraction(hat.step)
    near = hat.weights[:-1]
    far = hat.weights[1:]
    assert all(
        one >= other and Fraction(one, other) <= ratio for one, other in zip(near, far, strict=True)
    )


@check_all(
    "hat",
    [
        WitchHat(10, 2.0, 0.4, steps=40),
        WitchHat(1, 0.7, 3.0, steps=11),
        WitchHat(5, 6.0, 0.01, steps=2),
    ],
)
def test_the_sampled_law_is_exact(hat: WitchHat) -> None:
    weights = hat.weights
    assert weights[0] + 2 * sum(weights[1:]) + 2 * hat.steps * weights[-1] == TOTAL_WEIGHT
    rows = hat.rows()
    estimate = hat.debiasing()[:, 0]
    for code in (0, hat.steps // 2, hat.steps, hat.inputs - 1):
        x = float(hat.values_of(np.array([code]))[0])
        assert rows[code].sum() == pytest.approx(1.0, abs=1e-14)
        assert rows[code] @ estimate == pytest.approx(x, abs=1e-12 * hat.half_width * hat.scale)
        assert rows[code] @ estimate**2 - x * x == pytest.approx(hat.variance(x), rel=1e-11)
    for apart in range(1, hat.inputs):
        told = hat.local_epsilon(0, apart)
        promised = min(hat.epsilon, hat.rate * apart * hat.step)
        assert (
            np.abs(np.log(rows[0] / rows[apart])).max()
            <= told * (1 + 1e-12)
            <= promised * (1 + 1e-11)
        )


def test_variance_between_grid_points_counts_the_rounding() -> None:
    hat = WitchHat(10, 2.0, 0.4, steps=10)
    rows = hat.rows()
    estimate = hat.debiasing()[:, 0]
    law = 0.7 * rows[12] + 0.3 * rows[13]
    assert hat.variance(2.3) == pytest.approx(law @ estimate**2 - 2.3**2, rel=1e-11)
    with pytest.raises(InputError, match="within"):
        hat.variance(10.5)


def test_the_law_approaches_the_density() -> None:
    fine = WitchHat(10, 2.0, 0.4, steps=2000)
    assert fine.continuous == DENSITY
    assert fine.scale == pytest.approx(DENSITY.scale, rel=2e-3)
    assert fine.variance(6.0) == pytest.approx(DENSITY.variance(6.0), rel=5e-3)
    assert 0.5 * np.abs(fine.law(1000) - fine.law(1300)).sum() == pytest.approx(
        DENSITY.total_variation(1.5), rel=5e-3
    )


def test_a_mean_is_estimated_within_its_error() -> None:
    hat = WitchHat(10, 2.0, 0.4)
    values = np.linspace(-9.0, 7.0, 50_000)
    reports = hat.reports(values, Randomness.seeded(11))
    spread = math.sqrt(sum(hat.variance(float(x)) for x in values[::500]) * 500)
    assert abs(hat.totals(reports)[0] - values.sum()) < 5 * spread
    with pytest.raises(DomainError, match="from -10 to 10"):
        hat.reports([math.nan], Randomness.seeded(1))


def test_the_profile_is_capped() -> None:
    profile = WitchHat(10, 2.0, 0.4).local_profile()
    assert profile.pure(1.0) == pytest.approx(0.4)
    assert profile.pure(20.0) == 2.0
    assert profile.delta(2.0, 20.0) == 0.0
    assert profile.delta(1.0, 20.0) == pytest.approx(
        (math.exp(2) - math.exp(1)) / (math.exp(2) + 1)
    )
    assert profile.covers(2.0, 0.0, 20.0, "flat")
    assert not profile.covers(2.0, 0.0, 20.0, "linear")
