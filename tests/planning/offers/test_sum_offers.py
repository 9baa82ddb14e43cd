"""Calibrated protocols meet their target by their own account, and not with less noise."""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction
from typing import Any

import pytest
from tests.oracles.law_moments import mean_absolute

from metricshuffle.accounting.composition.composed_profile import compose_rounds
from metricshuffle.accounting.sums.additive_noise import AdditiveNoise, Clamped, QuantisedProfile
from metricshuffle.accounting.sums.flipped_bit_count import RandomizedResponseProfile
from metricshuffle.accounting.sums.planar_noise import PerAxisProfile, PlanarNoise
from metricshuffle.accounting.sums.split_and_mix import security_bits, view_penalty
from metricshuffle.errors import ConditionError, NotCertified
from metricshuffle.noise.polya import Polya
from metricshuffle.planning.candidate import Candidate
from metricshuffle.planning.candidates import calibrate_offers, sum_setting
from metricshuffle.planning.candidates import sum_calibration as candidates
from metricshuffle.planning.candidates.flipped_bit_calibration import randomized_response
from metricshuffle.planning.candidates.sum_setting import SumSetting
from metricshuffle.planning.candidates.unary_calibration import shuffled_unary
from metricshuffle.planning.plan_request import PlanRequest
from metricshuffle.privacy.profile import PrivacyProfile
from metricshuffle.privacy.target import Target
from metricshuffle.protocols.sums import Sums
from metricshuffle.queries import Centroid, Mean, Sum
from metricshuffle.randomizers.additive_randomizer import AdditiveRandomizer
from metricshuffle.randomizers.count_response import CountResponse
from metricshuffle.spaces import Grid, Integers, Interval

TARGET = Target(1.0, 1e-6, 10)


def protocol_of(offer: Candidate) -> Sums:
    assert isinstance(offer.mechanism, Sums)
    return offer.mechanism


def noise_of(offer: Candidate) -> AdditiveRandomizer:
    randomizer = protocol_of(offer).randomizers[0]
    assert isinstance(randomizer, AdditiveRandomizer)
    return randomizer


def flips_of(offer: Candidate) -> CountResponse:
    randomizer = protocol_of(offer).randomizers[0]
    assert isinstance(randomizer, CountResponse)
    return randomizer


def setting_for(
    query: Any = None,
    target: Target = TARGET,
    users: int = 60,
    honest: int | None = None,
    **choices: Any,
) -> SumSetting:
    asked = query or Mean(Integers(-5, 25))
    return SumSetting(PlanRequest(asked, target, users, honest, **choices).setting, asked)


def accounted(
    setting: SumSetting, offer: Candidate, faster: float = 1.0
) -> tuple[PrivacyProfile, float]:
    """Profile of the honest reports' sum (rates times `faster`), and the added delta."""
    mechanism = protocol_of(offer)
    randomizer = noise_of(offer)
    exact = Polya(randomizer.shape * setting.honest, randomizer.rate * faster)
    extra = 0.0
    if mechanism.modulus is not None:
        axis: PrivacyProfile = AdditiveNoise(exact)
        if mechanism.trusted == "shuffler":
            sigma = security_bits(setting.honest, mechanism.shares, mechanism.modulus)
            extra = setting.axes * setting.rounds * view_penalty(setting.target.epsilon, sigma)
    else:
        changed = randomizer.model_copy(update={"rate": randomizer.rate * faster, "granularity": 1})
        axis = changed.summed_profile(setting.honest)
        if "rarely clamped" in offer.guarantee.bound and setting.grain == setting.rounds == 1:
            extra = (
                setting.axes
                * (1 + math.exp(setting.target.epsilon))
                * changed.clamp_probability(setting.honest)
            )
            axis = AdditiveNoise(exact)
    if setting.grain > 1:
        axis = QuantisedProfile(axis, setting.grain)
    if setting.rounds > 1:
        axis = compose_rounds(axis, setting.rounds)
    if setting.axes == 1:
        return axis, extra
    return PlanarNoise(axis) if setting.rounds == 1 else PerAxisProfile(axis), extra


def kept(setting: SumSetting, offer: Candidate, faster: float = 1.0) -> bool:
    profile, extra = accounted(setting, offer, faster)
    promise = setting.target
    return profile.covers(
        promise.epsilon, promise.delta - extra, promise.distance * (1 + 1e-12), promise.shape
    )


CASES: dict[str, dict[str, Any]] = {
    "plain": {},
    "fewer honest": {"honest": 41},
    "bounded": {"padding": "bounded"},
    "flat": {"target": Target(1.0, 1e-6, 10, "flat")},
    "rounded first": {"granularity": 3},
    "tiny delta": {"target": Target(2.0, 1e-30, 10), "users": 20},
    "nineteen": {"users": 19},
    "centroid": {
        "query": Centroid(Grid(12, 9, cell=0.1)),
        "target": Target(1.0, 1e-6, 0.3),
        "users": 40,
    },
    "flat centroid": {
        "query": Centroid(Grid(12, 9)),
        "target": Target(1.0, 1e-6, 3.2, "flat"),
        "users": 40,
    },
    "bounded centroid": {
        "query": Centroid(Grid(12, 9)),
        "target": Target(1.0, 1e-6, 3),
        "users": 20,
        "padding": "bounded",
    },
    "aggregator": {"transport": "aggregator", "honest": 2, "users": 3},
}


@pytest.mark.parametrize("name", CASES)
def test_shuffled_noise_keeps_the_target_and_a_twentieth_less_does_not(name: str) -> None:
    setting = setting_for(**CASES[name])
    for shape in {1, 4, setting.honest} if setting.honest > 4 else {1, setting.honest}:
        for build in (candidates.shuffled_modular, shuffled_unary):
            offer = build(setting, shape)
            assert kept(setting, offer), (name, shape, offer.encoding)
            assert not kept(setting, offer, 1.05), (name, shape, offer.encoding)
            assert offer.guarantee.epsilon == setting.target.epsilon
            assert offer.guarantee.delta <= setting.target.delta
            assert offer.guarantee.trust.honest_reports == setting.honest
            assert offer.guarantee.protects == (
                "one person" if setting.grain > 1 else "people together"
            )
            # What one honest person adds times the honest people is the total shape, exactly.
            assert noise_of(offer).shape * setting.honest == shape


@pytest.mark.parametrize(
    ("shape", "build"), [(1, shuffled_unary), (6, candidates.shuffled_modular)]
)
def test_rounds_are_composed(shape: int, build: Any) -> None:
    setting = setting_for(target=Target(1.0, 1e-6, 2), users=20, rounds=2)
    alone = setting_for(target=Target(1.0, 1e-6, 2), users=20)
    naive = setting_for(target=Target(0.5, 5e-7, 2), users=20)
    offer = build(setting, shape)
    assert kept(setting, offer)
    assert offer.guarantee.rounds == offer.fallback.rounds == 2
    assert build(naive, shape).rate * (1 - 1e-4) <= offer.rate < build(alone, shape).rate
    assert offer.local_epsilon == pytest.approx(2 * Polya(Fraction(shape, 20), offer.rate).pure(2))


def test_every_padding_is_the_smallest() -> None:
    setting = setting_for(users=100, query=Sum(Integers(0, 1000)), target=Target(3.0, 1e-4, 30))
    offer = shuffled_unary(setting, 1)
    assert offer.radius == 99
    shorter = noise_of(offer).model_copy(update={"radius": 98}).summed_profile(100)
    assert isinstance(shorter, Clamped)
    assert not setting.target.kept_by(shorter)


def test_wide_sums_are_padded_by_the_chance_of_clamping() -> None:
    setting = setting_for(
        query=Sum(Integers(0, 2000)), target=Target(1.0, 1e-6, 1000), users=50_000
    )
    offer = shuffled_unary(setting, 1)
    randomizer = noise_of(offer)
    assert (1 + math.e) * randomizer.clamp_probability(50_000) <= 1e-6
    assert (1 + math.e) * randomizer.model_copy(
        update={"radius": randomizer.radius - 50}
    ).clamp_probability(50_000) > 0.98e-6
    assert offer.guarantee.bound == "pure, rarely clamped"
    with pytest.raises(ConditionError, match="Bounded padding"):
        shuffled_unary(SumSetting(replace(setting.setting, padding="bounded"), setting.query), 1)


def test_padding_that_cannot_be_certified_is_refused_in_words() -> None:
    with pytest.raises(NotCertified, match="use the modular encoding"):
        shuffled_unary(setting_for(target=Target(900.0, 1e-6, 10)), 1)


def test_the_modulus_has_room_for_all_users_and_messages_for_the_honest() -> None:
    """The modulus counts all users, the shares only the honest ones."""
    setting = setting_for(users=500, honest=19)
    offer = candidates.shuffled_modular(setting, 1)
    modulus = protocol_of(offer).modulus
    messages = protocol_of(offer).shares
    share = noise_of(offer).shape
    assert modulus is not None
    room = (modulus - 500 * 30 - 1) // 2
    assert Polya(share * 500, offer.rate or 0.0).mass_beyond(room) <= 1e-20
    assert share * 500 == Fraction(500, 19)
    sigma = security_bits(19, messages, modulus)
    assert view_penalty(1.0, sigma) <= 1e-3 * 1e-6
    fewer = [security_bits(19, fewer, modulus) for fewer in (messages - 1,)]
    assert view_penalty(1.0, fewer[0]) > 1e-3 * 1e-6 / 4
    # The error of the plan is that of everybody's noise, not only of the honest people's.
    everybody = mean_absolute(Polya(share * 500, offer.rate or 0.0).law(-60.0)) / 500
    assert offer.expected_error == pytest.approx(everybody, rel=1e-6)


@pytest.mark.parametrize("build", [candidates.shuffled_modular, shuffled_unary])
def test_more_honest_people_never_hurt(build: Any) -> None:
    errors = [
        build(setting_for(users=100, honest=honest), 1).expected_error
        for honest in (20, 50, 80, 100)
    ]
    assert errors == sorted(errors, reverse=True)
    errors = [
        build(setting_for(users=100, honest=honest), honest).expected_error
        for honest in (20, 50, 80, 100)
    ]
    assert errors == sorted(errors, reverse=True)


PLANE = Centroid(Grid(20, 9, cell=2.0))


@pytest.mark.parametrize(
    "choices",
    [{}, {"granularity": 4}, {"rounds": 3}, {"query": PLANE}, {"query": PLANE, "rounds": 2}],
)
def test_local_and_central_noise_is_pure(choices: dict[str, Any]) -> None:
    setting = setting_for(**choices)
    local = candidates.local(setting)
    central = candidates.central(setting)
    for offer in (local, central):
        assert offer.guarantee.delta == 0.0
        assert offer.rate == pytest.approx(setting.accounts.pure_rate(), rel=1e-8)
    assert local.guarantee.trust.trusted == "nobody"
    assert not local.baseline
    assert local.local_epsilon <= setting.target.epsilon * (1 + 1e-12)
    assert local.fallback.epsilon == local.local_epsilon
    assert central.baseline
    assert math.isinf(central.local_epsilon)
    assert central.expected_error < local.expected_error


def test_a_flat_local_promise_is_about_one_person() -> None:
    assert (
        candidates.local(setting_for(target=Target(1.0, 0.0, 10, "flat"))).guarantee.protects
        == "one person"
    )
    assert candidates.local(setting_for()).guarantee.protects == "people together"


def test_nothing_but_pure_noise_without_a_delta() -> None:
    setting = setting_for(target=Target(1.0, 0.0, 10))
    for build in (candidates.shuffled_modular, shuffled_unary):
        with pytest.raises(ConditionError, match="delta"):
            build(setting, 1)
    with pytest.raises(ConditionError, match="delta"):
        randomized_response(setting)
    summed = setting_for(target=Target(1.0, 0.0, 10), transport="aggregator")
    for shape in (1, 60):
        offer = candidates.shuffled_modular(summed, shape)
        assert offer.guarantee.delta == 0.0
        assert offer.rate == pytest.approx(0.1, rel=1e-8)
    assert (
        candidates.shuffled_modular(setting_for(transport="aggregator"), 60).guarantee.delta == 1e-6
    )


def test_shares_need_nineteen_honest_people() -> None:
    with pytest.raises(ConditionError, match="19 honest"):
        candidates.shuffled_modular(setting_for(users=60, honest=18), 1)


def test_randomized_response_is_verified_over_every_data_set() -> None:
    setting = setting_for(
        query=Mean(Integers(0, 3)), target=Target(1.5, 1e-3, 3), users=60, honest=50
    )
    offer = randomized_response(setting)
    assert offer.rate is None
    profile = flips_of(offer).summed_profile(50)
    assert all(profile.delta(0.5 * d, d) <= 1e-3 for d in (1, 2, 3))
    weaker = (
        flips_of(offer).model_copy(update={"flip": 0.9 * (offer.flip or 0.0)}).summed_profile(50)
    )
    assert max(weaker.delta(0.5 * d, d) for d in (1, 2, 3)) > 1e-3
    assert offer.flip is not None
    assert offer.local_epsilon == pytest.approx(3 * math.log((1 - offer.flip) / offer.flip))


def test_randomized_response_on_unequal_axes_counts_the_longer_one_if_the_shuffler_colludes() -> (
    None
):
    setting = setting_for(query=Centroid(Grid(3, 30)), target=Target(8.0, 1e-2, 20), users=20)
    offer = randomized_response(setting)
    assert offer.flip is not None
    rate = math.log((1 - offer.flip) / offer.flip)
    farthest = max(i + j for i in range(3) for j in range(30) if math.hypot(i, j) <= 20)
    assert offer.local_epsilon >= rate * farthest
    with pytest.raises(ConditionError, match="shorter axis"):
        randomized_response(
            setting_for(query=Centroid(Grid(3, 30)), target=Target(8.0, 1e-2, 20), users=9)
        )


def test_real_numbers_are_rounded_first() -> None:
    setting = setting_for(
        query=Mean(Interval(0, 10)), target=Target(1.0, 1e-6, 2.0), users=40, granularity=0.5
    )
    for offer in (
        candidates.shuffled_modular(setting, 1),
        shuffled_unary(setting, 40),
        candidates.local(setting),
    ):
        assert noise_of(offer).granularity == 4096
        assert noise_of(offer).top == 20
        assert offer.guarantee.between.startswith("values rounded to steps of 0.000")
    # The pure slope of four grains, in the limit of many steps a grain: log(1 + Q s), s = epsilon /
    # distance.
    assert candidates.local(setting).rate == pytest.approx(math.log1p(0.25), rel=1e-4)


def test_a_cap_on_local_epsilon_adds_the_smallest_shape_that_meets_it() -> None:
    """One report's epsilon falls and rises in the shape, so a cap is met in the middle only."""
    setting = setting_for(query=Mean(Integers(0, 100)), users=1000, max_local_epsilon=8.0)
    at = {
        shape: candidates.shuffled_modular(setting, shape).local_epsilon for shape in (1, 100, 1000)
    }
    assert at[100] < 8.0 < min(at[1], at[1000])
    (added,) = set(candidates.shapes(setting)) - set(
        candidates.shapes(setting_for(query=Mean(Integers(0, 100)), users=1000))
    )
    assert candidates.shuffled_modular(setting, added).local_epsilon <= 8.0
    assert candidates.shuffled_modular(setting, added - 2).local_epsilon > 7.98
    assert candidates.shapes(setting_for(users=30, max_local_epsilon=0.01)) == candidates.shapes(
        setting_for(users=30)
    )


@pytest.mark.parametrize("shape", [3, 40, 400])
@pytest.mark.parametrize("choices", [{}, {"distance": 37.5}, {"shape": "flat"}])
def test_calibration_over_fewer_cells_first_changes_no_rate(
    shape: int, choices: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    wide = setting_for(
        Mean(Integers(0, 1000)),
        Target(**({"epsilon": 0.02, "delta": 1e-6, "distance": 40.0} | choices)),
        users=400,
    )
    assert wide.normal_deviation > 8.0 * sum_setting.FEWER_CELLS[0]
    found = sum_setting.noise_rate(wide, shape, 0.9e-6)
    near, _ = sum_setting._scaled_guess(wide, shape, wide.target.with_delta(0.9e-6))
    # (what steers a search takes a part of a step for none)
    assert near == pytest.approx(found, rel=1e-5 if wide.target.distance == 40.0 else 2e-2)
    monkeypatch.setattr(sum_setting, "FEWER_CELLS", ())
    assert sum_setting.noise_rate(wide, shape, 0.9e-6) == found


@pytest.mark.parametrize(
    ("users", "rounds", "query"),
    [(60, 1, None), (2000, 1, None), (300, 3, None), (100, 1, Centroid(Grid(20, 20)))],
)
def test_randomized_response_is_the_same_if_every_step_looks_at_all_data(
    users: int, rounds: int, query: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    setting = setting_for(query, users=users, rounds=rounds)
    found = randomized_response(setting)
    monkeypatch.setattr(RandomizedResponseProfile, "fewest_ones", lambda profile: profile)
    assert randomized_response(setting).flip == found.flip


def test_the_profile_that_certified_a_rate_is_at_hand_for_its_account() -> None:
    setting = setting_for(rounds=3)
    noise = Polya(Fraction(8), 0.25)
    known = setting.accounts.noise_profile(noise)
    again = setting_for(rounds=3).accounts
    assert again.noise_profile(Polya(Fraction(8), 0.25)) is known
    assert again.noise_profile(Polya(Fraction(8), 0.26)) is not known
    assert setting_for(rounds=4).accounts.noise_profile(noise) is not known


def test_tiny_rates_are_shared_through_the_shuffler_too() -> None:
    """One report's law has a thousand million cells, so its loss is bounded in closed form."""
    request = PlanRequest(
        Mean(Integers(0, 1000)), Target(1e-6, 1e-6, 100.0), 1000, encoding="modular"
    )
    setting = replace(request.setting, protocols=("polya-shuffle",), shapes=(1,))
    (offer,) = [made for made in calibrate_offers(setting) if isinstance(made, Candidate)]
    assert offer.expected_error == pytest.approx(1e5, rel=1e-6)
    assert offer.fallback.bound == "pure"
    assert offer.fallback.epsilon == pytest.approx(11.507754891147519, rel=1e-9)
