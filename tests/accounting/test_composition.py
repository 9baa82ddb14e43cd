"""Composition against closed forms: never below the truth, and close to it."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mpmath import mp, mpf
from tests.tables import check_all

from metricshuffle import errors
from metricshuffle.accounting.composition import loss_distribution
from metricshuffle.accounting.composition.composed_profile import (
    ComposedProfile,
    compose_profiles,
    compose_rounds,
)
from metricshuffle.accounting.composition.loss_distribution import (
    DROPPED_MASS,
    TotalLoss,
    _convolve_rounds,
    _farthest_sum,
    dominating_losses,
    grid_step,
)
from metricshuffle.accounting.sums.additive_noise import AdditiveNoise
from metricshuffle.accounting.sums.planar_noise import PlanarNoise
from metricshuffle.accounting.sums.rare_clamping import RarelyClampedProfile
from metricshuffle.errors import InputError, MissingExtra, NotCertified
from metricshuffle.noise.polya import Polya
from metricshuffle.numerics.types import Floats
from metricshuffle.privacy.profile import PrivacyProfile, PureProfile


def randomized_response(cost: float, rounds: int, epsilon: float) -> float:
    """Exact delta of `rounds` randomized responses (a binomial sum), correctly rounded."""
    with mp.workdps(60):
        c = mpf(cost)
        e = mpf(epsilon)
        p = mp.exp(c) / (1 + mp.exp(c))
        q = 1 / (1 + mp.exp(c))
        gains = (
            p**k * q ** (rounds - k) - mp.exp(e) * q**k * p ** (rounds - k)
            for k in range(rounds + 1)
        )
        return float(
            mp.fsum(mp.binomial(rounds, k) * max(mpf(0), gain) for k, gain in enumerate(gains))
        )


@dataclass(frozen=True)
class DiscreteNoise(PrivacyProfile):
    """Integer noise with log masses -rate |k| (power 1) or -rate k^2 (power 2).

    Discrete Laplace, or discrete Gaussian.
    """

    rate: float
    power: int = 1
    width: int = 120

    def law(self) -> Floats:
        weights: Floats = np.exp(
            -self.rate * np.abs(np.arange(-self.width, self.width + 1.0)) ** self.power
        )
        normalised: Floats = weights / weights.sum()
        return normalised

    def pure(self, distance: float) -> float:
        return math.inf if self.power == 2 and distance else self.rate * distance * (1 + 1e-15)

    def delta(self, epsilon: float, distance: float) -> float:
        if epsilon >= self.pure(distance):
            return 0.0
        k = np.arange(-self.width, self.width + 1.0)
        gaps = self.rate * (np.abs(k - distance) ** self.power - np.abs(k) ** self.power) - epsilon
        return float(self.law() @ -np.expm1(-np.maximum(gaps, 0.0))) * (1 + 1e-13)

    def composed_exactly(self, rounds: int, epsilon: float, distance: int) -> float:
        """Direct convolution of the loss law: losses are rate * j, all masses positive."""
        k = np.arange(-self.width, self.width + 1)
        j = np.abs(k - distance) ** self.power - np.abs(k) ** self.power
        one = np.bincount(j - j.min(), weights=self.law())
        total = np.ones(1)
        for _ in range(rounds):
            total = np.convolve(total, one)
        losses = self.rate * (np.arange(len(total)) + rounds * j.min())
        return float(total @ -np.expm1(-np.maximum(losses - epsilon, 0.0)))


@check_all(("rate", "rounds"), [(1.0, 10), (0.1, 10), (0.3, 100), (0.05, 40), (4.0, 3)])
@check_all("fraction", [0.0, 0.1, 0.4, 0.8, 0.97])
def test_randomized_response_is_met_from_above(rate: float, rounds: int, fraction: float) -> None:
    # With its atoms on the grid nothing is lost but the outward rounding, at every size of delta.
    profile = PureProfile(rate)
    epsilon = fraction * rounds * rate
    exact = randomized_response(profile.pure(1.0), rounds, epsilon)
    assert exact <= compose_rounds(profile, rounds).delta(epsilon, 1.0) <= exact * (1 + 1e-7)


@pytest.mark.parametrize("delta", [1e-6, 1e-12, 1e-30])
def test_small_deltas_are_still_upper_bounds(delta: float) -> None:
    profile = PureProfile(0.2)
    together = compose_rounds(profile, 200)
    epsilon = together.epsilon(delta, 1.0)
    assert randomized_response(profile.pure(1.0), 200, epsilon) <= delta
    assert randomized_response(profile.pure(1.0), 200, epsilon * (1 - 1e-6)) > delta
    assert epsilon < 0.9 * together.pure(1.0)


@dataclass(frozen=True)
class LooseResponse(PrivacyProfile):
    """1 - e^(epsilon - 1): an upper bound for randomized response at 1.

    The duality lowers it at epsilon = 0.
    """

    def pure(self, distance: float) -> float:
        return distance

    def delta(self, epsilon: float, distance: float) -> float:
        return max(0.0, -math.expm1(epsilon - distance))


def test_a_profile_that_is_not_convex_is_not_composed_as_it_is() -> None:
    from dp_accounting.pld import pld_pmf

    step = 0.01
    half = 100
    positive = [LooseResponse().delta(i * step, 1.0) for i in range(half + 1)]
    dual = [1 - math.exp(-i * step) * (1 - positive[i]) for i in range(half, 0, -1)]
    raw = pld_pmf.create_pmf_pessimistic_connect_dots(
        step, range(-half, half + 1), np.array(dual + positive)
    )
    exact = randomized_response(1.0, 10, 3.0)
    assert exact == pytest.approx(0.62, abs=1e-3)
    assert raw.self_compose(10).get_delta_for_epsilon(3.0) > 2.0
    assert exact <= compose_rounds(LooseResponse(), 10).delta(3.0, 1.0) <= exact * (1 + 1e-9)


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), cost=st.floats(0.05, 5.0), spoilt=st.floats(0.0, 0.5))
def test_a_spoilt_curve_still_dominates_and_is_a_minorant(
    seed: int, cost: float, spoilt: float
) -> None:
    # Any upper bound, however bumpy: the measure lies above the truth on both sides of loss 0.
    truth = PureProfile(cost)
    step = grid_step(cost / 50)
    bumps = 1.0 + spoilt * np.random.default_rng(seed).random(61)
    curve = [
        min(1.0, truth.delta(i * step, 1.0) * float(bumps[i]) + 0.01 * spoilt) for i in range(61)
    ]
    law = dominating_losses(np.array(curve), step)
    losses = step * np.arange(-60, 61)
    for epsilon in np.linspace(-1.5 * cost, 1.5 * cost, 31).tolist():
        above = truth.delta(abs(epsilon), 1.0) / (1 + 1e-15)
        exact = above if epsilon >= 0 else 1 - math.exp(epsilon) * (1 - above)
        assert (
            law.infinite + law.masses @ -np.expm1(np.minimum(epsilon - losses, 0.0))
            >= exact - 1e-15
        )
    for i in range(61):
        assert (
            law.infinite + law.masses @ -np.expm1(np.minimum(i * step - losses, 0.0))
            <= curve[i] + 1e-12
        )


def test_masses_are_those_of_the_library_for_a_convex_profile() -> None:
    from dp_accounting.pld import pld_pmf

    profile = DiscreteNoise(0.25)
    step = grid_step(0.01)
    law = dominating_losses(profile.curve(step * np.arange(101.0), 4.0), step)
    positive = [profile.delta(i * step, 4.0) for i in range(101)]
    dual = [1 - math.exp(-i * step) * (1 - positive[i]) for i in range(100, 0, -1)]
    theirs = pld_pmf.create_pmf_pessimistic_connect_dots(
        step, range(-100, 101), np.array(dual + positive)
    ).to_dense_pmf()
    assert law.masses == pytest.approx(theirs._probs, abs=1e-11)
    theirs = theirs.self_compose(6, 0.0)
    for epsilon in (0.0, 0.5, 2.0, 5.0):
        assert compose_rounds(profile, 6).delta(epsilon, 4.0) == pytest.approx(
            theirs.get_delta_for_epsilon(epsilon), rel=1e-4
        )


@pytest.mark.parametrize("epsilon", [0.0, 0.3, 1.1, 2.3])
def test_two_rounds_of_discrete_laplace_on_the_lattice(epsilon: float) -> None:
    profile = DiscreteNoise(0.4)
    k = np.arange(-120, 121)
    losses = 0.4 * (np.abs(k - 3) - np.abs(k))
    gaps = losses[:, None] + losses[None, :] - epsilon
    exact = float(profile.law() @ -np.expm1(-np.maximum(gaps, 0.0)) @ profile.law())
    assert exact == pytest.approx(profile.composed_exactly(2, epsilon, 3), rel=1e-12)
    assert (
        exact * (1 - 1e-12) <= compose_rounds(profile, 2).delta(epsilon, 3.0) <= exact * (1 + 2e-3)
    )


@pytest.mark.parametrize("profile", [DiscreteNoise(0.4), DiscreteNoise(0.02, power=2)])
@pytest.mark.parametrize(("rounds", "delta"), [(3, 1e-3), (3, 1e-12), (12, 1e-6), (12, 1e-12)])
def test_epsilon_is_within_a_thousandth(profile: DiscreteNoise, rounds: int, delta: float) -> None:
    epsilon = compose_rounds(profile, rounds).epsilon(delta, 3.0)
    assert profile.composed_exactly(rounds, epsilon, 3) <= delta
    assert profile.composed_exactly(rounds, epsilon * (1 - 1e-3), 3) > delta


def test_below_the_floor_of_an_unbounded_loss_the_basic_bound_answers() -> None:
    profile = DiscreteNoise(0.02, power=2)
    together = compose_rounds(profile, 4)
    assert isinstance(together, ComposedProfile)
    epsilon = together.epsilon(1e-30, 1.0)
    assert together.delta(epsilon, 1.0) == together.basic(epsilon, 1.0) <= 1e-30
    assert profile.composed_exactly(4, epsilon, 1) <= 1e-30


@dataclass(frozen=True)
class Leaky(PrivacyProfile):
    """Randomized response that fails outright with probability `leak`."""

    leak: float

    def delta(self, epsilon: float, distance: float) -> float:
        return (
            self.leak + (1 - self.leak) * PureProfile(1.0).delta(epsilon, distance)
            if distance
            else 0.0
        )


@check_all("leak", [1e-6, 0.01])
def test_what_never_falls_counts_as_infinite_loss(leak: float) -> None:
    exact = 1 - (1 - leak) ** 10 * (1 - randomized_response(1.0, 10, 8.5))
    assert exact * (1 - 1e-12) <= compose_rounds(Leaky(leak), 10).delta(8.5, 1.0) <= exact * 1.01


def rare_response(weights: list[mpf], costs: list[int], rounds: int, epsilon: float) -> mpf:
    """Exact delta of randomized response rounds whose public cost is drawn with these weights."""
    losses = [
        (w / (1 + mp.exp(-s * c)), s * c)
        for w, c in zip(weights, costs, strict=True)
        for s in (1, -1)
    ]
    total = mpf(0)
    for drawn in itertools.product(losses, repeat=rounds):
        total += mp.fprod(mass for mass, _ in drawn) * max(
            mpf(0), -mp.expm1(epsilon - sum(loss for _, loss in drawn))
        )
    return total


@dataclass(frozen=True)
class RareResponse(PrivacyProfile):
    """Randomized response at 200, and with a tiny chance at 600."""

    chance: float

    def pure(self, distance: float) -> float:
        return 600.0 * distance

    def delta(self, epsilon: float, distance: float) -> float:
        with mp.workdps(60):
            exact = rare_response([1 - mpf(self.chance), mpf(self.chance)], [200, 600], 1, epsilon)
        return min(1.0, math.nextafter(float(exact), math.inf))


@pytest.mark.parametrize("epsilon", [300.0, 500.0, 700.0, 799.0])
def test_a_tiny_mass_at_a_huge_loss_is_not_lost(epsilon: float) -> None:
    # e^-600 * 1e-70 is no float: slopes of the hockey-stick curve this small once underflowed.
    with mp.workdps(60):
        exact = rare_response([1 - mpf(1e-70), mpf(1e-70)], [200, 600], 2, epsilon)
    assert (
        float(exact)
        <= compose_rounds(RareResponse(1e-70), 2).delta(epsilon, 1.0)
        <= 1.001 * float(exact) + 1e-80
    )


def test_a_delta_too_small_for_a_float_is_not_zero() -> None:
    profile = compose_rounds(PureProfile(0.5), 20_000)
    assert 0.0 < profile.delta(0.9 * profile.pure(1.0), 1.0) < 1e-300
    assert profile.delta(profile.pure(1.0), 1.0) == 0.0


@check_all("epsilon", [1e3, 1e300, math.inf])
def test_what_is_infinite_stays_at_every_epsilon(epsilon: float) -> None:
    exact = 1 - (1 - 0.01) ** 3
    assert exact <= compose_rounds(Leaky(0.01), 3).delta(epsilon, 1.0) <= exact * (1 + 1e-2)


def test_a_linear_promise_of_pure_rounds_holds_at_every_real_distance() -> None:
    together = compose_profiles([PureProfile(0.5), PureProfile(0.5), PureProfile(0.8)])
    delta = 0.05
    epsilon = together.epsilon(delta, 2.5)
    assert together.covers(epsilon, delta, 2.5)
    assert all(
        together.delta(epsilon * d / 2.5, d) <= delta * (1 + 1e-6)
        for d in np.linspace(0.1, 2.5, 25).tolist()
    )
    # Kept at the whole steps 1 and 2, and broken at 2.5.
    less = epsilon * (1 - 1e-3)
    assert PrivacyProfile.covers(together, less, delta, 2.5)
    assert not together.covers(less, delta, 2.5)
    assert not together.covers(0.999 * together.pure(2.5), 0.0, 2.5)
    assert together.covers(together.pure(2.5), 0.0, 2.5)


def test_rounds_about_the_plane_are_not_checked_at_whole_steps_only() -> None:
    # The noise is pure at rate 0.3 a cell on each axis, so (1, 1) costs 0.6 at distance sqrt(2):
    # between 1 and 2.
    plane = RarelyClampedProfile(PlanarNoise(AdditiveNoise(Polya(Fraction(1), 0.3))), 1e-12)
    together = compose_rounds(plane, 2)
    needed = 2 * 0.3 * 2 * math.sqrt(2)
    assert PrivacyProfile.covers(together, 0.9 * needed, 1e-6, 2.0)
    assert not together.covers(0.9 * needed, 1e-6, 2.0)
    assert together.covers(1.0001 * needed, 1e-6, 2.0)
    line = compose_rounds(RarelyClampedProfile(AdditiveNoise(Polya(Fraction(3), 0.3)), 1e-12), 2)
    assert line.covers(0.95 * 2 * 0.3 * 2, 0.05, 2.0) == PrivacyProfile.covers(
        line, 0.95 * 2 * 0.3 * 2, 0.05, 2.0
    )


@dataclass(frozen=True)
class Tabulated(PrivacyProfile):
    """A profile that holds an array, so that `==` on it is no truth value."""

    deltas: Floats

    def delta(self, epsilon: float, distance: float) -> float:
        return float(np.interp(epsilon, [0.0, 1.0, 2.0], self.deltas))


def test_profiles_with_arrays_can_be_composed() -> None:
    one = Tabulated(np.array([0.4, 0.1, 0.0]))
    other = Tabulated(np.array([0.4, 0.1, 0.0]))
    assert isinstance(together := compose_profiles([one, other, one]), ComposedProfile)
    assert [rounds for _, rounds in together.parts] == [2, 1]
    assert together.delta(1.0, 1.0) >= one.delta(1.0, 1.0)


def test_different_rounds_against_enumeration_and_in_any_order() -> None:
    rates = [0.7, 0.2, 0.2, 1.3, 0.05]
    costs = [PureProfile(rate).pure(1.0) for rate in rates]
    for epsilon in (0.0, 0.5, 1.5, 2.3):
        exact = 0.0
        for signs in itertools.product((1, -1), repeat=5):
            mass = math.prod(1 / (1 + math.exp(-s * c)) for s, c in zip(signs, costs, strict=True))
            exact += mass * max(
                0.0, -math.expm1(epsilon - sum(s * c for s, c in zip(signs, costs, strict=True)))
            )
        forth = compose_profiles([PureProfile(rate) for rate in rates])
        back = compose_profiles([PureProfile(rate) for rate in reversed(rates)])
        assert exact * (1 - 1e-12) <= forth.delta(epsilon, 1.0) <= exact * (1 + 1e-3)
        assert forth.delta(epsilon, 1.0) == pytest.approx(back.delta(epsilon, 1.0), rel=1e-9)


@settings(max_examples=25, deadline=None)
@given(
    rate=st.floats(0.01, 3.0),
    rounds=st.integers(2, 30),
    fraction=st.floats(0.0, 1.1),
    distance=st.floats(0.1, 4.0),
)
def test_between_one_round_and_basic_composition(
    rate: float, rounds: int, fraction: float, distance: float
) -> None:
    profile = PureProfile(rate)
    together = compose_rounds(profile, rounds)
    more = compose_rounds(profile, rounds + 1)
    epsilon = fraction * rounds * rate * distance
    delta = together.delta(epsilon, distance)
    assert (
        profile.delta(epsilon, distance)
        <= delta
        <= min(1.0, rounds * profile.delta(epsilon / rounds, distance) * (1 + 1e-12) + 1e-12)
    )
    # Near the top of the range delta is a difference of nearly equal numbers, hence the absolute
    # part.
    assert delta <= more.delta(epsilon, distance) * (1 + 1e-8) + 1e-11
    assert delta <= together.delta(epsilon, distance * 1.1) * (1 + 1e-8) + 1e-11


def test_larger_moves_cost_more() -> None:
    together = compose_rounds(DiscreteNoise(0.3), 5)
    deltas = [together.delta(1.0, distance) for distance in (0.0, 1.0, 2.0, 3.0, 5.0, 8.0)]
    assert deltas[0] == 0.0
    assert deltas == sorted(deltas)
    assert together.pure(0.0) == together.epsilon(1e-6, 0.0) == 0.0


def test_one_round_is_the_profile_itself_and_nested_compositions_are_flat() -> None:
    one = PureProfile(1.0)
    other = PureProfile(0.5)
    assert compose_rounds(one, 1) is one
    assert compose_profiles([one]) is one
    assert compose_rounds(compose_rounds(one, 3), 2) == compose_rounds(one, 6)
    assert compose_profiles([compose_rounds(one, 2), other, one]) == ComposedProfile(
        ((one, 3), (other, 1))
    )
    assert compose_rounds(one, 2).bound == "composed"
    assert compose_rounds(one, 3).pure(2.0) >= 3 * one.pure(2.0)


@check_all("rounds", [0, -1, 1.5, True, 10**6])
def test_rounds_must_make_sense(rounds: int) -> None:
    with pytest.raises(InputError, match="rounds"):
        compose_rounds(PureProfile(1.0), rounds)


def test_what_cannot_be_composed() -> None:
    with pytest.raises(InputError, match="nothing to compose"):
        compose_profiles([])
    with pytest.raises(InputError, match="PrivacyProfile"):
        compose_profiles([PureProfile(1.0), "laplace"])  # type: ignore[list-item]
    with pytest.raises(NotCertified, match=r"outside \[0, 1\]"):
        dominating_losses(np.array([0.1, 0.1, 0.1, math.nan, math.nan]), 0.25)


def test_only_the_loss_distribution_of_the_library_needs_its_extra(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def absent(name: str) -> None:
        raise ImportError(name)

    monkeypatch.setattr(errors, "import_module", absent)
    exact = randomized_response(PureProfile(0.002).pure(1.0), 3000, 0.2)
    assert exact <= compose_rounds(PureProfile(0.002), 3000).delta(0.2, 1.0) <= exact * (1 + 1e-3)
    with pytest.raises(MissingExtra, match=r"pip install 'metricshuffle\[compose\]'"):
        PureProfile(1.0).to_pld(1.0)


@pytest.mark.parametrize("form", ["bell", "ends", "skew", "single"])
@pytest.mark.parametrize("rounds", [2, 7, 100])
def test_a_narrow_window_misses_no_more_than_it_says(
    form: str, rounds: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Against the sum convolved directly, all masses of which are positive and good to a few
    # roundings.
    places = np.arange(101.0)
    vector = {
        "bell": np.exp(-0.5 * ((places - 40.0) / 4.0) ** 2),
        "ends": np.where(np.isin(places, [0, 100]), [[0.1], [1e-6]][rounds > 7], 0.0)
        + (places == 50),
        "skew": np.exp(-0.6 * places),
        "single": (places == 17).astype(float),
    }[form]
    vector = vector / vector.sum()
    truth = np.ones(1)
    for _ in range(rounds):
        truth = np.convolve(truth, vector)
    whole_at, whole, nothing = _convolve_rounds(vector, rounds)
    assert (whole_at, len(whole)) == (0, len(truth))
    assert nothing < 1e-30
    assert whole == pytest.approx(truth, abs=1e-14 * rounds)

    monkeypatch.setattr(loss_distribution, "MAX_WHOLE_LOSSES", 1)
    at, law, missing = _convolve_rounds(vector, rounds)
    inside = truth[at : at + len(law)]
    assert np.all(
        law[: len(inside)] >= inside - 1e-14 * rounds
    )  # what is outside comes on top, somewhere
    assert 1.0 - math.fsum(inside) <= missing + 1e-14 * rounds <= 1e-12 * rounds
    assert math.fsum(truth[_farthest_sum(vector, rounds) + 1 :]) <= DROPPED_MASS
    if rounds == 100 and form != "ends":
        assert len(law) < 0.5 * len(truth)
    pytest.importorskip("dp_accounting")
    from dp_accounting.pld.common import self_convolve

    lower, power = self_convolve(vector, rounds, DROPPED_MASS)
    theirs = np.zeros(len(truth) + len(power))
    theirs[lower : lower + len(power)] = power
    assert law[: len(inside)] == pytest.approx(theirs[at : at + len(inside)], abs=1e-12)


def test_many_rounds_in_a_narrow_window_are_those_convolved_whole(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    profile = DiscreteNoise(0.25)
    epsilons = (0.0, 0.5, 3.0, 10.0)
    monkeypatch.setattr(loss_distribution, "MAX_WHOLE_LOSSES", 2**30)
    whole = [compose_rounds(profile, 200).delta(epsilon, 1.0) for epsilon in epsilons]
    monkeypatch.setattr(loss_distribution, "MAX_WHOLE_LOSSES", 2**10)
    narrow = [compose_rounds(profile, 200).delta(epsilon, 1.0) for epsilon in epsilons]
    exact = [profile.composed_exactly(200, epsilon, 1) for epsilon in epsilons]
    assert narrow == pytest.approx(whole, rel=1e-8)  # fewer cells are less noise of the transform
    assert all(one <= two * (1 + 1e-11) for one, two in zip(narrow, whole, strict=True))
    assert all(one >= true * (1 - 1e-12) for one, true in zip(narrow, exact, strict=True))


@pytest.mark.parametrize("order", [(1, 2, 3, 5, 8), (8, 1, 5, 2, 3)])
def test_a_quick_look_is_an_upper_bound_in_whatever_order_distances_come(
    order: tuple[int, ...],
) -> None:
    profile = DiscreteNoise(0.25)
    together = compose_rounds(profile, 12)
    assert isinstance(together, ComposedProfile)
    for distance in order:
        quick = together._total(distance, "quick")
        assert quick is not None
        for epsilon in (0.2 * distance, 0.8 * distance, 2.0 * distance):
            exact = profile.composed_exactly(12, epsilon, distance)
            assert exact * (1 - 1e-12) <= quick.delta(epsilon) <= exact * 1.1 + 1e-15


def test_tilts_are_near_the_best() -> None:
    law = dominating_losses(
        DiscreteNoise(0.25).curve(0.01 * np.arange(101.0), 4.0), grid_step(0.01)
    )
    total = TotalLoss([(law, 30)])
    for epsilon in (-5.0, 0.0, 3.0, 10.0, 25.0, 29.9):
        theta, least = total._best_tilt(epsilon)
        scanned = min(
            total._log_moment(tried)[0] - tried * epsilon
            for tried in np.linspace(0.0, 500.0 / total.reach, 1001)
        )
        assert 0.0 <= theta <= 500.0 / total.reach
        assert least == total._log_moment(theta)[0] - theta * epsilon
        assert least <= scanned + 0.2
