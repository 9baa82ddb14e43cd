"""Certified law of Polya noise against 50 digits, closed forms and printed values."""

from __future__ import annotations

import json
import math
import random
from fractions import Fraction
from pathlib import Path
from typing import Any

import mpmath
import numpy as np
import pytest
from tests.oracles import sgdl
from tests.oracles.law_moments import mean_absolute
from tests.tables import check_all

from metricshuffle.errors import ConditionError, InputError, NotCertified
from metricshuffle.noise.polya import (
    Geometric,
    Polya,
    _log_masses,
    log_convex_ratio,
    rounded_down,
)
from metricshuffle.noise.symmetric_pmf import MIN_MASS, SymmetricLaw

GOLDEN: dict[str, Any] = json.loads(
    (Path(__file__).parents[1] / "golden" / "sums.json").read_text(encoding="utf-8")
)
UNIT = 2.0**-53


@check_all("row", GOLDEN["masses"])
def test_golden_masses(row: dict[str, Any]) -> None:
    law = Polya(Fraction(row["shape"]), row["rate"]).law(-60.0)
    assert law.probability(row["z"]) == pytest.approx(row["value"], rel=1e-9)
    assert law.probability(-row["z"]) == law.probability(row["z"])
    assert float(sgdl.mass(Fraction(row["shape"]), row["rate"], row["z"])) == pytest.approx(
        row["value"], rel=1e-11
    )


@check_all("row", GOLDEN["mean_absolute_per_user"])
def test_golden_mean_absolute(row: dict[str, Any]) -> None:
    assert mean_absolute(Geometric(row["rate"]).law(-60.0)) / row["users"] == pytest.approx(
        row["value"], rel=1e-9
    )


def assert_enclosed(shape: float, rate: float, radius: int) -> None:
    """Assert that log masses and differences are within their errors, the tail below `outside`."""
    law = Polya(Fraction(shape), rate).law(-12.0, radius)
    truth = sgdl.masses(shape, rate, law.radius)
    rng = random.Random(radius)
    with mpmath.workdps(40):
        logs = [mpmath.log(value) for value in truth]
        found = [mpmath.mpf(float(value)) for value in law.log_mass]
        assert all(
            abs(a - b) <= error for a, b, error in zip(logs, found, law.log_error, strict=True)
        )
        for _ in range(50):
            i = rng.randint(0, law.radius)
            j = rng.randint(0, law.radius)
            allowed = abs(law.log_error[i] - law.log_error[j])
            allowed += (
                10 * UNIT * (abs(law.log_mass[i]) + abs(law.log_mass[j]) + 2 * abs(law.log_mass[0]))
            )
            assert abs((logs[i] - logs[j]) - (found[i] - found[j])) <= allowed
    with mpmath.workdps(60):
        assert 1 - 2 * mpmath.fsum(truth) + truth[0] <= law.outside + mpmath.mpf(10) ** -45
    # The enclosure must also be worth something.
    assert law.log_error[-1] < 1e-10 + 2 * law.outside


@check_all(
    ("shape", "rate", "radius"),
    [
        (1.0, 0.1, 150),
        (1e-9, 0.3, 60),
        (0.5, 2.0, 60),
        (math.nextafter(1.0, 0.0), 1.0, 60),
        (math.nextafter(1.0, 2.0), 1.0, 60),
        (37.25, 0.4, 120),
        (3.0, 50.0, 12),
        (1000.0, 3.0, 150),
    ],
)
def test_every_mass_is_enclosed(shape: float, rate: float, radius: int) -> None:
    assert_enclosed(shape, rate, radius)


@check_all(("shape", "rate", "radius"), [(5000.0, 3.0, 60), (20000.0, 6.0, 40), (800.5, 0.8, 80)])
def test_ratios_are_enclosed_below_the_shape_where_the_recurrence_turns(
    shape: float, rate: float, radius: int
) -> None:
    truth = sgdl.masses(shape, rate, radius)
    found, error = _log_masses(Fraction(shape), rate, radius)
    with mpmath.workdps(40):
        assert all(
            abs(mpmath.log(truth[m] / truth[0]) - mpmath.mpf(float(found[m]))) <= error[m]
            for m in range(radius + 1)
        )
    assert error[radius] < 1e-12


@pytest.mark.slow
def test_every_mass_is_enclosed_for_random_laws() -> None:
    rng = random.Random(5)
    for _ in range(150):
        shape = math.exp(rng.uniform(math.log(1e-9), math.log(2000)))
        rate = math.exp(rng.uniform(math.log(0.05), math.log(50)))
        assert_enclosed(shape, rate, rng.randint(1, 300))


def test_the_oracle_itself_against_the_hypergeometric_function() -> None:
    for shape, rate in [(0.3, 0.2), (5.0, 1.0), (60.5, 0.7)]:
        law = sgdl.masses(shape, rate, 60)
        for z in (1, 7, 60):
            assert abs(law[z] / sgdl.mass(shape, rate, z) - 1) < mpmath.mpf(10) ** -40


def test_shape_one_is_the_discrete_laplace_law() -> None:
    rate = 0.37
    law = Geometric(rate).law(-200.0)
    p = math.exp(-rate)
    expected = math.log((1 - p) / (1 + p)) - rate * np.arange(law.radius + 1)
    assert np.allclose(law.log_mass, expected, rtol=1e-12, atol=0.0)
    assert law.log_concave
    assert law.variance() == pytest.approx(Geometric(rate).variance(), rel=1e-9)


@check_all(
    ("shape", "rate"),
    [(Fraction(1, 1000), 0.1), (Fraction(1), 0.05), (Fraction(500), 1.5), (Fraction(10**9), 8.0)],
)
def test_tail_radius_and_mass_beyond_are_upper_bounds(shape: Fraction, rate: float) -> None:
    noise = Polya(shape, rate)
    wide = noise.law(-120.0)
    for log_tail in (-3.0, -30.0):
        radius = math.ceil(noise.tail_radius(log_tail))
        beyond = 2.0 * float(wide.tail[radius + 1])
        assert beyond <= min(math.exp(log_tail), noise.mass_beyond(radius))
        assert wide.beyond(radius) >= beyond
        # Chernoff is not exact, but must not be silly either.
        assert radius < 3 * wide.quantile(-math.expm1(log_tail)) + 5 / rate


def test_a_billion_users_keep_a_narrow_certificate() -> None:
    law = Polya(Fraction(10**9), 4.0).law(-60.0)
    assert law.log_error[-1] < 1e-7
    deviation = math.sqrt(Polya(Fraction(10**9), 4.0).variance())
    assert law.probability(0) == pytest.approx(1 / (deviation * math.sqrt(2 * math.pi)), rel=1e-6)


def test_summed_adds_shapes_exactly() -> None:
    assert Polya(Fraction(1, 3), 0.5).summed(3) == Geometric(0.5)
    assert Polya(Fraction(1, 3), 0.5).summed(3).log_concave
    assert not Polya(Fraction(1, 3), 0.5).summed(2).log_concave


def test_shapes_are_rounded_down() -> None:
    third = rounded_down(Fraction(1, 3))
    assert Fraction(third) <= Fraction(1, 3) < Fraction(math.nextafter(third, 1.0))
    just_below_one = rounded_down(1 - Fraction(1, 10**30))
    assert just_below_one < 1.0
    assert rounded_down(Fraction(7)) == 7.0


def test_pure_epsilon_is_the_log_ratio_rounded_up() -> None:
    for shape, rate, distance in [
        (0.9, 0.1, 10),
        (0.01, 0.5, 3),
        (1e-9, 2.0, 1),
        (math.nextafter(1.0, 0.0), 0.3, 25),
    ]:
        truth = mpmath.log(sgdl.mass(shape, rate, 0) / sgdl.mass(shape, rate, distance))
        found = Polya(Fraction(shape), rate).pure(distance)
        assert truth <= found <= truth * (1 + 1e-11)
    for shape in (1, 2, 50):
        found = Polya(Fraction(shape), 0.1).pure(7)
        assert Fraction(0.1) * 7 <= Fraction(found) <= Fraction(0.1) * 7 * (1 + Fraction(1, 10**15))
    assert Polya(Fraction(1, 2), 0.1).pure(0) == 0.0


def test_masses_that_underflow_count_as_nothing_inside_and_as_something_outside() -> None:
    law = Geometric(1.0).law(-60.0, 800)
    deep = law.log_mass < -700.0
    assert deep.any()
    assert not law.mass[deep].any()
    assert np.all(law.mass[~deep] > 1e-305)
    assert law.outside >= MIN_MASS


def test_quantile_is_the_smallest_certified_radius() -> None:
    law = Geometric(0.5).law(-60.0)
    for level in (0.5, 0.9, 0.999):
        r = law.quantile(level)
        p = math.exp(-0.5)
        within = [1 - 2 * p ** (k + 1) / (1 + p) for k in (r - 1, r)]
        assert within[0] < level <= within[1]
    with pytest.raises(InputError, match="level"):
        law.quantile(1.0)


@check_all("shape", [0, -1, math.nan, math.inf])
def test_impossible_shapes_are_refused(shape: float) -> None:
    with pytest.raises(InputError, match="shape"):
        Polya(shape, 1.0)  # type: ignore[arg-type]


@check_all("rate", [0.0, -1.0, math.nan, math.inf])
def test_impossible_rates_are_refused(rate: float) -> None:
    with pytest.raises(InputError, match="rate"):
        Geometric(rate)


def test_what_cannot_be_tabulated_is_refused_in_a_sentence() -> None:
    with pytest.raises(NotCertified, match="cells"):
        Geometric(1e-6).law(-60.0)
    with pytest.raises(NotCertified, match="rate"):
        Geometric(701.0).law(-60.0)
    with pytest.raises(NotCertified, match="rate"):
        Polya(Fraction(1, 2), 1000.0).pure(1)
    with pytest.raises(NotCertified):
        Polya(Fraction(1, 10**400), 1.0).law(-60.0)


def test_a_law_refuses_numbers_it_cannot_vouch_for() -> None:
    zeros = np.zeros(3)
    with pytest.raises(NotCertified):
        SymmetricLaw(np.array([0.0, math.nan, -3.0]), zeros, 0.0, False, False)
    with pytest.raises(NotCertified):
        SymmetricLaw(
            np.array([-1.0, -2.0, -3.0]), np.array([0.0, 0.0, math.inf]), 0.0, False, False
        )
    with pytest.raises(InputError, match="largest"):
        SymmetricLaw(np.array([-1.0, -2.0, -3.0]), np.array([1e-3, 0.0, 0.0]), 0.0, False, False)
    with pytest.raises(InputError, match="one log_error"):
        SymmetricLaw(np.zeros(3), np.zeros(2), 0.0, False, False)


@pytest.mark.parametrize("rate", [1e-4, 1e-2, 0.1, 1.0, 10.0])
def test_the_closed_bound_of_a_move_is_never_below_the_loss(rate: float) -> None:
    for shape in (Fraction(1, 10**4), Fraction(1, 50), Fraction(1, 2), Fraction(999, 1000)):
        log_mass, log_error = _log_masses(shape, rate, 300)
        steps = np.arange(1, 301)
        least = -rate + np.log((float(shape) + steps - 1.0) / steps)
        assert np.all(np.diff(log_mass) >= least - 1e-12 - 2.0 * log_error[1:])
        for distance in (1, 2, 30, 300):
            bound = log_convex_ratio(shape, rate, distance)
            assert bound >= -log_mass[distance] - log_error[distance]
            assert bound >= Polya(shape, rate).pure(distance) - 1e-9
    assert log_convex_ratio(Fraction(1, 10**4), rate, 1) == pytest.approx(
        -float(_log_masses(Fraction(1, 10**4), rate, 1)[0][1]), rel=1e-3
    )


@check_all(
    "shape, loss, bound",
    [
        (Fraction(1, 1000), 11.5025617365359, 11.507754891147519),
        (Fraction(1, 2), 0.38628284505084, 2.8774448066771443),
        (Fraction(22, 1000), 8.19385165787365, 8.308480529115327),
    ],
)
def test_laws_too_wide_for_a_table_have_the_closed_bound(
    shape: Fraction, loss: float, bound: float
) -> None:
    wide = Polya(shape, 1e-8)
    assert not wide.tabulated
    assert wide.pure(100) == pytest.approx(bound, rel=1e-12)
    with mpmath.workdps(30):
        b = mpmath.mpf(shape.numerator) / shape.denominator
        p = mpmath.exp(-mpmath.mpf(1e-8))
        there = p**100 * mpmath.rf(b, 100) / mpmath.factorial(100)
        there *= mpmath.hyp2f1(b, b + 100, 101, p * p)
        exact = float(mpmath.log(mpmath.hyp2f1(b, b, 1, p * p) / there))
    assert exact == pytest.approx(loss, rel=1e-12)
    assert exact <= wide.pure(100)


def test_the_closed_bound_has_conditions() -> None:
    for shape, distance in ((Fraction(1), 1), (Fraction(3, 2), 1), (Fraction(1, 2), 0)):
        with pytest.raises(ConditionError, match="closed bound"):
            log_convex_ratio(shape, 1.0, distance)
