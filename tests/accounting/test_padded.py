"""Rarely exceeded padding: true for the real mechanism, never better than conditioning."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from tests.oracles import clamped_sum
from tests.tables import check_all

from metricshuffle.accounting.sums.additive_noise import AdditiveNoise
from metricshuffle.accounting.sums.planar_noise import PlanarNoise
from metricshuffle.accounting.sums.rare_clamping import RarelyClampedProfile, clamping_penalty
from metricshuffle.errors import InputError
from metricshuffle.noise.polya import Polya
from metricshuffle.privacy.profile import PureProfile
from metricshuffle.randomizers.additive_randomizer import AdditiveRandomizer


@check_all(("users", "radius"), [(1, 12), (5, 25), (20, 40)])
def test_the_real_clamped_mechanism_leaks_less(users: int, radius: int) -> None:
    rate = 0.25
    span = 30
    randomizer = AdditiveRandomizer(
        span=span, shape=Fraction(1, users), rate=rate, padding="clamp", radius=radius
    )
    loose = RarelyClampedProfile(
        AdditiveNoise(Polya(Fraction(1), rate)), randomizer.clamp_probability(users)
    )
    exact = randomizer.summed_profile(users)
    one = Polya(Fraction(1, users), rate).law(-60.0)
    masses = np.concatenate([one.mass[:0:-1], one.mass])
    for move in (1, 7, 30):
        for epsilon in (0.0, 0.5 * rate * move, rate * move):
            truth = clamped_sum.clamped_delta(masses, users, radius, span, epsilon, move)
            assert truth <= loose.delta(epsilon, move) + 1e-12
            assert exact.delta(epsilon, move) <= loose.delta(epsilon, move) * (1 + 1e-9) + 1e-15


def test_the_penalty() -> None:
    assert clamping_penalty(0.0, 0.25) == pytest.approx(0.5)
    assert clamping_penalty(2.0, 1e-9) == pytest.approx((1 + math.exp(2)) * 1e-9)
    assert clamping_penalty(800.0, 0.0) == 0.0
    assert clamping_penalty(800.0, 1e-300) == clamping_penalty(1.0, 1.0) == 1.0
    for wrong in (-1e-9, 1.5, math.nan):
        with pytest.raises(InputError, match="probability"):
            clamping_penalty(1.0, wrong)


def test_a_linear_promise_pays_the_penalty_of_the_full_distance() -> None:
    ideal = AdditiveNoise(Polya(Fraction(1), 0.0999))
    profile = RarelyClampedProfile(ideal, 1e-9)
    penalty = clamping_penalty(2.0, 1e-9)
    assert profile.covers(2.0, 1.0001 * penalty, 20)
    assert not profile.covers(2.0, 0.9999 * penalty, 20)
    assert profile.delta(1.0, 0) == 0.0
    assert profile.bound == "exact, rarely clamped"


def test_two_axes_are_checked_at_every_cell() -> None:
    """(1, 1) lies between the whole distances 1 and 2, and is the worst there for pure noise."""
    profile = RarelyClampedProfile(PlanarNoise(AdditiveNoise(Polya(Fraction(1), 0.3))), 1e-12)
    assert profile.covers(0.3 * 2 * math.sqrt(2) * (1 + 1e-9), 1e-9, 2.0)
    assert not profile.covers(0.3 * 2 * 1.4, 1e-9, 2.0)


def test_a_promise_smaller_than_the_penalty_is_refused_however_small() -> None:
    profile = RarelyClampedProfile(PureProfile(1.0), 5e-324)
    assert clamping_penalty(0.1, 5e-324) > (1 + math.exp(0.1)) * 5e-324
    assert not profile.covers(1.0, clamping_penalty(1.0, 5e-324) - 5e-324, 1.0)
    assert RarelyClampedProfile(PureProfile(1.0), 0.0).covers(1.0, 0.0, 1.0)
