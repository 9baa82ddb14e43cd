"""Calibration of the least noise that certainly meets a target."""

from __future__ import annotations

import math
from fractions import Fraction

import pytest
from tests.oracles.law_moments import mean_absolute
from tests.tables import check_all

from metricshuffle.accounting.composition.composed_profile import compose_rounds
from metricshuffle.accounting.shuffling.geometric_blanket import ShuffledGeometric
from metricshuffle.accounting.sums.additive_noise import AdditiveNoise
from metricshuffle.accounting.sums.planar_noise import PerAxisProfile, PlanarNoise
from metricshuffle.errors import ConditionError, InputError, NotCertified
from metricshuffle.noise.polya import Polya
from metricshuffle.privacy.calibration import largest_rate
from metricshuffle.privacy.profile import PrivacyProfile, PureProfile, PureUpTo, Shape
from metricshuffle.privacy.target import Target


def sum_of(shape: int, rate: float) -> AdditiveNoise:
    return AdditiveNoise(Polya(Fraction(shape), rate))


@check_all(
    ("shape", "promise", "printed"),
    [
        (100, Target(1.0, 1e-6, 10), 0.3531778544),  # printed down: towards more noise
        (10_000, Target(5.0, 1e-6, 100), 1.341749448),
        (2, Target(10.0, 1e-6, 100), 0.1060917132),
        (5, Target(10.0, 1e-6, 100), 0.1191668591),
        (20, Target(10.0, 1e-6, 100), 0.1614356112),
        (100, Target(10.0, 1e-6, 100), 0.2860278801),
        (1000, Target(10.0, 1e-6, 100), 0.8136),
    ],
)
def test_calibrated_rates_pass_at_every_distance_and_a_thousandth_more_fails(
    shape: int, promise: Target, printed: float
) -> None:
    rate = largest_rate(lambda rate: sum_of(shape, rate), promise)
    digits = len(str(printed)) - str(printed).index(".") - 1
    assert math.floor(rate * 10**digits) / 10**digits == printed
    profile = sum_of(shape, rate)
    assert all(
        profile.delta(promise.slope * d, d) <= promise.delta
        for d in range(1, int(promise.distance) + 1)
    )
    worse = sum_of(shape, 1.001 * rate)
    assert (
        max(worse.delta(promise.slope * d, d) for d in range(1, int(promise.distance) + 1))
        > promise.delta
    )
    assert not promise.kept_by(worse)


FAMILY = {
    1: (0.1, 9.983, 7.007, 1.021),
    2: (0.1060917132, 14.13, 6.320, 0.957),
    5: (0.1191668591, 20.63, 5.415, 0.877),
    20: (0.1614356112, 31.03, 4.063, 0.775),
    100: (0.2860278801, 39.26, 2.555, 0.712),
    1000: (0.8136, 42.66, 0.814, 0.814),
}


@check_all("shape", FAMILY)
def test_the_family_between_one_share_and_one_geometric_each(shape: int) -> None:
    """Utility with an honest shuffler against privacy without.

    n = 1000, epsilon 10 at distance 100, delta 1e-6.
    """
    rate, error, local, far = FAMILY[shape]
    assert mean_absolute(Polya(Fraction(shape), rate).law(-60.0)) == pytest.approx(error, rel=6e-4)
    share = Polya(Fraction(shape, 1000), rate)
    assert share.pure(1) == pytest.approx(local, abs=6e-4)
    assert share.pure(10) / 10 == pytest.approx(far, abs=6e-4)


def test_a_flat_promise_is_about_the_full_distance() -> None:
    promise = Target(1.0, 1e-5, 20, "flat")
    rate = largest_rate(lambda rate: sum_of(50, rate), promise)
    assert sum_of(50, rate).delta(1.0, 20) <= 1e-5 < sum_of(50, 1.001 * rate).delta(1.0, 20)
    assert rate >= largest_rate(lambda rate: sum_of(50, rate), Target(1.0, 1e-5, 20))
    pure = largest_rate(PureProfile, Target(1.0, 0.0, 20, "flat"))
    assert pure == pytest.approx(0.05, rel=1e-9)


def test_epsilons_so_large_that_hardly_any_noise_is_needed() -> None:
    assert largest_rate(PureProfile, Target(900.0, 1e-6, 4)) >= 225.0 * (1 - 1e-9)


def test_two_axes_are_verified_at_every_cell_within_the_radius() -> None:
    promise = Target(0.15, 5e-5, 6)
    rate = largest_rate(lambda rate: PlanarNoise(sum_of(1000, rate)), promise, relative=1e-7)
    assert rate == pytest.approx(0.4026, abs=2e-4)
    assert promise.kept_by(PlanarNoise(sum_of(1000, rate)))
    assert not promise.kept_by(PlanarNoise(sum_of(1000, 1.001 * rate)))
    alone = largest_rate(lambda rate: PerAxisProfile(sum_of(1000, rate)), promise, relative=1e-7)
    assert alone < 0.75 * rate


class Dented(PrivacyProfile):
    """Keeps a promise at its ends but not in the middle unless the noise is larger."""

    def __init__(self, rate: float) -> None:
        self.rate = rate

    def delta(self, epsilon: float, distance: float) -> float:
        cost = max(distance, 10.0) if distance >= 5.0 else distance
        return 0.0 if self.rate * cost <= epsilon * (1 + 1e-9) else 1.0


def test_a_promise_that_fails_in_the_middle_is_noticed() -> None:
    promise = Target(1.0, 1e-6, 9)
    rate = largest_rate(Dented, promise)
    assert promise.kept_by(Dented(rate))
    assert rate == pytest.approx(0.5 / 9, rel=2e-4)


def test_what_cannot_be_certified_is_not_kept() -> None:
    class Unknown(PureProfile):
        def delta(self, epsilon: float, distance: float) -> float:
            raise NotCertified("no idea.")

    promise = Target(1.0, 1e-6, 9)
    assert not promise.kept_by(Unknown(1e-9))
    assert not promise.nearly_kept_by(Unknown(1e-9))
    with pytest.raises(ConditionError, match="keeps the promise"):
        largest_rate(Unknown, promise)


def test_rounds_lie_between_one_round_and_the_sum_of_all() -> None:
    """k rounds need more noise than one, and less than the naive split of epsilon and delta.

    Shape 40 at delta 1e-6.
    """
    one = Target(1.0, 1e-6, 4)
    four = Target(0.25, 0.25e-6, 4)
    rates = [
        largest_rate(lambda rate: sum_of(40, rate), promise, relative=1e-6)
        for promise in (one, four)
    ]
    together = largest_rate(lambda rate: compose_rounds(sum_of(40, rate), 4), one, relative=1e-4)
    assert rates[1] < together < rates[0]


def test_a_part_of_a_target_may_ask_for_what_no_person_may() -> None:
    target = Target(1000.0, 1e-250, 0.3)
    part = target.with_delta(0.5 * target.delta)
    assert (part.epsilon, part.delta, part.distance, part.shape) == (1000.0, 5e-251, 0.3, "linear")
    assert target.delta == 1e-250
    assert target.with_delta(0.0).delta == 0.0
    assert part.with_delta(target.delta) == target
    with pytest.raises(InputError, match="at least 1e-250"):
        Target(1.0, 5e-251, 1.0)
    far = target.in_steps(1e-300)
    assert far.distance > 1e299
    assert far.slope == far.epsilon / far.distance > 0.0


def test_distances_in_steps() -> None:
    target = Target(2.0, 1e-6, 0.3, "flat")
    assert target.in_steps(1.0) == target
    assert math.floor(target.in_steps(0.1).distance) == 3  # 0.3 / 0.1 is a float below 3
    assert target.in_steps(0.1).distance == pytest.approx(3.0, rel=2e-12)
    assert target.in_steps(0.1).shape == "flat"
    assert (target.in_steps(0.1).epsilon, target.in_steps(0.1).delta) == (2.0, 1e-6)


@pytest.mark.parametrize("shape", ["linear", "flat"])
@pytest.mark.parametrize("distance", [0.5, 1.0, 3.7, 8.0])
@pytest.mark.parametrize("delta", [1e-6, 0.0])
def test_what_is_kept_is_nearly_kept(shape: Shape, distance: float, delta: float) -> None:
    profiles: list[PrivacyProfile] = [PureProfile(0.1), PureUpTo(0.4, 5.0)]
    profiles += [
        make(sum_of(30, rate))
        for rate in (0.05, 0.2, 0.5)
        for make in (PlanarNoise, PerAxisProfile, lambda axis: compose_rounds(axis, 2))
    ]
    if delta:
        profiles += [ShuffledGeometric((9, 9), rate, 200) for rate in (0.05, 0.2)]
    kept = 0
    for epsilon in (0.05, 0.4, 3.0):
        target = Target(epsilon, delta, distance, shape)
        for profile in profiles:
            kept += target.kept_by(profile)
            assert target.nearly_kept_by(profile) or not target.kept_by(profile)
    assert kept
