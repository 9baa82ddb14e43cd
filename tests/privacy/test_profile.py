"""Common parts of profiles: searches, guarantees at every distance, and the pure profile."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass, field
from fractions import Fraction

import mpmath
import pytest
from mpmath import mpf
from tests.tables import check_all

from metricshuffle.errors import InputError, NotCertified
from metricshuffle.numerics.certified_search import last_certified
from metricshuffle.privacy.profile import Band, PrivacyProfile, PureProfile


@dataclass(frozen=True)
class Gaussianlike(PrivacyProfile):
    """Profile delta(e; d) = exp(-(e/d^power)^2) that records its evaluations.

    It rises in d and falls in e.
    """

    power: float = 1.0
    asked: list[tuple[float, float]] = field(default_factory=list)

    def delta(self, epsilon: float, distance: float) -> float:
        self.asked.append((epsilon, distance))
        return (
            max(1e-250, math.exp(-((epsilon / math.floor(distance) ** self.power) ** 2)))
            if distance >= 1
            else 0.0
        )


def test_last_certified_returns_only_what_passed() -> None:
    passed: set[float] = set()

    def ragged(value: float) -> bool:
        good = value > 0.3 and int(value * 1e6) % 7 != 0
        passed.update([value] if good else [])
        return good

    found = last_certified(ragged, 0.0, 1.0)
    assert found in passed
    assert last_certified(lambda value: value >= 0.25, 0.0, 1.0) == pytest.approx(0.25, rel=1e-12)
    assert last_certified(lambda value: False, 0.0, 1.0) == 1.0


def test_epsilon_is_certified_and_smallest() -> None:
    profile = Gaussianlike()
    found = profile.epsilon(1e-6, 3)
    assert found == pytest.approx(3 * math.sqrt(math.log(1e6)), rel=1e-11)
    assert profile.delta(found, 3) <= 1e-6
    assert profile.epsilon(0.0, 3) == math.inf
    assert profile.epsilon(1e-6, 0) == 0.0
    assert Gaussianlike(power=9.0).epsilon(1e-6, 50) == math.inf


@check_all("power", [0.5, 1.0, 1.5])
@check_all("distance", [1, 7, 30, 30.4])
def test_covers_is_exactly_every_whole_distance(power: float, distance: float) -> None:
    profile = Gaussianlike(power)
    steps = math.floor(distance)
    for epsilon in (0.5, 3.7, 40.0, 300.0):
        worst = max(profile.delta(epsilon * d / distance, d) for d in range(1, steps + 1))
        assert profile.covers(epsilon, min(worst * (1 + 1e-9), 0.999), distance) == (worst < 0.999)
        assert not profile.covers(epsilon, worst * (1 - 1e-9), distance)
        flat = profile.delta(epsilon, distance)
        assert profile.covers(epsilon, min(flat * (1 + 1e-9), 0.999), distance, "flat") == (
            flat < 0.999
        )
        assert not profile.covers(epsilon, flat * (1 - 1e-9), distance, "flat")


@dataclass(frozen=True)
class Step(PrivacyProfile):
    """Profile of slope 1, with 2 more from distance `at` on, the hardest for a linear target."""

    at: int

    def delta(self, epsilon: float, distance: float) -> float:
        return 0.5 if epsilon < math.floor(distance) + 2 * (distance >= self.at) else 1e-9


@check_all("at", [1, 2, 13, 16, 17, 37, 39, 40])
def test_covers_finds_the_one_distance_that_fails(at: int) -> None:
    enough = 40 * (at + 2) / at
    assert Step(at).covers(enough * (1 + 1e-12), 1e-6, 40)
    assert not Step(at).covers(enough * (1 - 1e-12), 1e-6, 40)


def test_covers_rounds_its_epsilons_down() -> None:
    profile = Gaussianlike()
    profile.covers(0.7, 0.9999, 11.3)
    assert len(profile.asked) >= 2
    starts = sorted({d for _, d in profile.asked})
    for epsilon, last in profile.asked:
        assert any(
            Fraction(epsilon) < Fraction(0.7) * first / Fraction(11.3)
            for first in range(1, int(last) + 1)
        )
    assert starts[-1] == 11


def test_covers_hardly_asks_twice_where_every_distance_is_tight() -> None:
    profile = Gaussianlike()  # the same delta at every distance of a linear promise
    assert profile.covers(50.0 * 3.7170, math.exp(-(3.7170**2)) * (1 + 1e-9), 50)
    assert {distance for _, distance in profile.asked} >= set(range(1, 51))
    assert len(profile.asked) < 60


def test_covers_asks_far_fewer_questions_than_distances() -> None:
    profile = Gaussianlike(power=1.0)
    assert profile.covers(1e4 * 5, 1e-6, 10_000)
    assert len(profile.asked) < 200


def test_pure_tolerance_is_the_rounding_of_decimals_and_no_more() -> None:
    for steps, epsilon in itertools.product(range(1, 80), (0.1, 0.3, 1.0, 2.7, 7.0, 1e-3)):
        assert PureProfile(epsilon / steps).covers(epsilon, 0.0, steps)
        assert not PureProfile(epsilon / steps * (1 + 4e-15)).covers(epsilon, 0.0, steps)


def test_pure_profile_is_randomized_response() -> None:
    profile = PureProfile(0.25)
    for epsilon, distance in itertools.product(
        (0.0, 0.1, 0.9999, 1.0, 3.0, 200.0), (0.0, 1e-9, 0.5, 4.0, 1000.0)
    ):
        with mpmath.workdps(40):
            cost = mpf(0.25) * mpf(distance)
            truth = max(
                mpf(0), (mpmath.exp(cost) - mpmath.exp(mpf(epsilon))) / (mpmath.exp(cost) + 1)
            )
        found = profile.delta(epsilon, distance)
        assert truth <= found <= truth * (1 + 1e-14) + 1e-15
    assert profile.epsilon(0.0, 8) == pytest.approx(2.0, rel=1e-15)
    assert Fraction(PureProfile(0.1).pure(3)) >= Fraction(0.1) * 3


def test_a_pure_profile_covers_real_distances() -> None:
    assert not PureProfile(100.0).covers(0.001, 0.0, 0.5)
    assert not PureProfile(100.0).covers(0.001, 0.0, 0.5, "flat")
    assert PureProfile(100.0).covers(50.0, 0.0, 0.5)
    assert PureProfile(100.0).covers(0.001, 0.0, 0.0)
    # With a delta, the farthest distance is the hardest.
    profile = PureProfile(2.0)
    epsilon = 1.0
    distance = 1.5
    level = profile.delta(epsilon, distance)
    assert all(
        profile.delta(epsilon * d / distance, d) <= level for d in (0.01, 0.3, 1.0, 1.2, 1.4999)
    )
    assert profile.covers(epsilon, level * (1 + 1e-12), distance)
    assert not profile.covers(epsilon, level * (1 - 1e-12), distance)


@check_all("wrong", [math.nan, -1.0, "1", None])
def test_wrong_numbers_are_refused(wrong: object) -> None:
    profile = PureProfile(1.0)
    with pytest.raises(InputError, match="epsilon"):
        profile.delta(wrong, 1.0)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="distance"):
        profile.epsilon(0.1, wrong)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="delta"):
        profile.epsilon(wrong, 1.0)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="epsilon"):
        profile.covers(wrong, 0.0, 1.0)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="epsilon"):
        Gaussianlike().covers(wrong, 0.1, 5.0)  # type: ignore[arg-type]


def test_limits_of_delta_distance_and_rate() -> None:
    with pytest.raises(InputError, match="delta"):
        PureProfile(1.0).epsilon(1.0, 1.0)
    with pytest.raises(InputError, match="distance"):
        PureProfile(1.0).delta(1.0, math.inf)
    for rate in (0.0, -1.0, math.nan, math.inf):
        with pytest.raises(InputError, match="rate"):
            PureProfile(rate)
    assert PureProfile(1.0).delta(math.inf, 5.0) == 0.0


def test_a_band_is_ordered() -> None:
    assert Band(1.0, 1.5).gap == 0.5
    for low, high in [(2.0, 1.0), (math.nan, 1.0), (1.0, math.nan)]:
        with pytest.raises(NotCertified):
            Band(low, high)
