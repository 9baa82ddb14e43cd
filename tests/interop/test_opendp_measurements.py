"""Measurements of OpenDP: certified privacy maps, composed by OpenDP."""

from __future__ import annotations

import math
from collections.abc import Iterator

import opendp.prelude as dp
import pytest
from opendp.mod import OpenDPException
from tests.catalogue.randomizers import EVERY_KIND
from tests.interop.settings import Drawn, account_profile, plans, settings

import metricshuffle as ms
from metricshuffle.errors import InputError
from metricshuffle.interop import measurement
from metricshuffle.interop.opendp_measurements import group_loss, guaranteed_loss
from metricshuffle.privacy.guarantee import Guarantee, Trust
from metricshuffle.randomizers import BinaryRandomizedResponse, BoundedGeometric, LocalHash
from metricshuffle.randomizers.channel import ChannelPair

FEATURES = ("contrib", "honest-but-curious")
BINARY = BinaryRandomizedResponse(1.0)


@pytest.fixture(autouse=True)
def features() -> Iterator[None]:
    dp.enable_features(*FEATURES)
    yield
    dp.disable_features(*FEATURES)


def linear(**changes: object) -> Guarantee:
    fields: dict[str, object] = {
        "epsilon": 1.0,
        "delta": 1e-6,
        "distance": 100.0,
        "unit": "kcal",
        "shape": "linear",
        "protects": "one person",
        "trust": Trust(trusted="shuffler", honest_reports=1000),
        "bound": "exact",
    }
    return Guarantee.model_validate(fields | changes)


def test_the_map_of_a_shuffled_randomizer_and_its_composition() -> None:
    """A person who changes costs our certified pair; OpenDP adds two releases up."""
    counted = measurement(BINARY, users=100, delta=1e-6)
    epsilon = ms.amplify(BINARY, 100).epsilon(1e-6).upper
    assert counted.map(1) == (epsilon, 1e-6)
    assert counted.map(0) == (0.0, 0.0)
    half = measurement(BINARY, users=100, delta=1e-6, honest="50%")
    assert half.map(1) == (ms.amplify(BINARY, 50).epsilon(1e-6).upper, 1e-6)
    assert counted.check(1, (epsilon, 1e-6))
    assert not counted.check(1, (epsilon * 0.999, 1e-6))
    twice = dp.c.make_composition([counted, counted])
    assert twice.map(1) == pytest.approx((2 * epsilon, 2e-6))
    assert twice.map(1)[0] >= 2 * epsilon
    first, second = twice([0] * 100)
    assert sum(first) == sum(second) == 100
    share = counted >> (lambda counts: counts[1] / 100)
    assert 0.0 <= share([1] * 100) <= 1.0
    assert share.map(1) == counted.map(1)


def test_counts_are_those_of_the_randomizer() -> None:
    """Seven standard deviations around the mean of 20,000 reports."""
    counts = measurement(BINARY, users=20_000, delta=1e-6)([1] * 20_000)
    truth = math.e / (1.0 + math.e)
    assert abs(counts[1] - 20_000 * truth) < 7 * math.sqrt(20_000 * truth * (1 - truth))


def test_inputs_that_the_domain_excludes_are_refused() -> None:
    counted = measurement(BINARY, users=100, delta=1e-6)
    with pytest.raises(OpenDPException, match="counts on 100 people, got 99 inputs"):
        counted([1] * 99)
    with pytest.raises(OpenDPException, match="whole numbers from 0 to 1"):
        counted([2] * 100)


def test_people_who_change_together() -> None:
    """Group privacy, against the sum of its terms."""
    for epsilon, delta, people in ((0.1, 1e-6, 3), (2.0, 1e-9, 5), (0.0, 1e-6, 4)):
        terms = math.fsum(math.exp(step * epsilon) for step in range(people))
        total, probability = group_loss(epsilon, delta, people)
        assert total >= people * epsilon
        assert probability >= delta * terms
        assert (total, probability) == pytest.approx((people * epsilon, delta * terms))
    assert group_loss(100.0, 1e-6, 50) == pytest.approx((5000.0, 1.0))
    assert group_loss(0.5, 0.0, 2) == pytest.approx((1.0, 0.0))
    counted = measurement(BINARY, users=100, delta=1e-6)
    alone = counted.map(1)
    assert counted.map(2) == group_loss(alone[0], alone[1], 2)


def test_a_metric_becomes_a_map_of_the_distance() -> None:
    randomizer = BoundedGeometric(3, 0.3)
    moved = measurement(randomizer, users=100, delta=1e-6)
    ours = ms.amplify(randomizer, 100)
    assert moved.map(1.0) == (ours.epsilon(1e-6, 1.0).upper, 1e-6)
    assert moved.map(3.0) == moved.map(50.0) == (ours.epsilon(1e-6).upper, 1e-6)
    assert moved.map(0.0) == (0.0, 0.0)
    assert moved.map(1.0)[0] < moved.map(2.0)[0]
    assert "one person moves" in str(moved.input_metric)
    for nonsense in (math.nan, -1.0, math.inf):
        with pytest.raises(OpenDPException, match="finite number"):
            moved.map(nonsense)


def test_a_guarantee_up_to_its_distance() -> None:
    assert guaranteed_loss(linear(), 100.0) == (1.0, 1e-6)
    half, delta = guaranteed_loss(linear(), 50.0)
    assert 0.5 <= half < 0.5 + 1e-9
    assert delta == 1e-6
    assert guaranteed_loss(linear(shape="flat"), 1.0) == (1.0, 1e-6)
    assert guaranteed_loss(linear(), 0.0) == (0.0, 0.0)
    with pytest.raises(InputError, match="beyond it nothing is promised"):
        guaranteed_loss(linear(), 100.1)
    third = guaranteed_loss(linear(distance=3.0), 1.0)[0]
    assert third * 3.0 >= 1.0


@pytest.mark.thorough
def test_a_plan_is_a_measurement_and_its_release_is_the_output() -> None:
    query = ms.Mean(ms.Integers(0, 20, unit="kcal"))
    target = ms.Target(epsilon=1, delta=1e-6, distance=5)
    plan = ms.plan(query, target, users=200)
    released = measurement(plan)
    assert released.map(5.0) == (plan.guarantee.epsilon, plan.guarantee.delta)
    assert "in kcal" in str(released.input_metric)
    release = released([index % 21 for index in range(200)])
    assert isinstance(release, ms.Release)
    assert release.guarantee == plan.guarantee
    both = dp.c.make_composition([released, released])
    assert both.map(5.0)[0] >= 2.0
    with pytest.raises(OpenDPException, match="200"):
        released([1] * 10)
    with pytest.raises(OpenDPException, match="nothing is promised"):
        released.map(6.0)
    with pytest.raises(InputError, match="Leave users, honest and delta out"):
        measurement(plan, users=200)
    with pytest.raises(InputError, match="3 rounds together"):
        measurement(ms.plan(query, target, users=200, rounds=3))


def test_what_cannot_be_said_is_refused() -> None:
    with pytest.raises(InputError, match="needs a randomizer or a plan, got str"):
        measurement("krr", users=10, delta=0.1)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="Give users and delta"):
        measurement(BINARY, users=10)
    pair = ChannelPair([[0.6, 0.4, 0.0], [0.4, 0.6, 0.0], [0.0, 0.0, 1.0]], 0, 1)
    with pytest.raises(InputError, match="between the inputs 0 and 1 only"):
        measurement(pair, users=10, delta=1e-6)
    with pytest.raises(InputError, match="different reports, which OpenDP has no vector for"):
        measurement(LocalHash(2**20, 1.0), users=10, delta=1e-6)


@pytest.mark.thorough
def test_every_randomizer_is_a_measurement_or_refused() -> None:
    """Inputs by their codes; a report each; the map of the largest change is our epsilon."""
    refused = 0
    for randomizer in EVERY_KIND:
        amplified = ms.amplify(randomizer, 30, relative=1e-2)
        try:
            counted = measurement(randomizer, users=30, delta=1e-3)
        except InputError:
            refused += 1
            continue
        counts = counted([code % randomizer.inputs for code in range(30)])
        assert len(counts) == randomizer.outputs
        assert sum(counts) == 30
        step = 1 if amplified.alike else amplified.distance
        assert counted.map(step)[0] >= amplified.epsilon(1e-3).lower, randomizer
    assert refused < len(EVERY_KIND) / 4


@pytest.mark.thorough
def test_never_smaller_than_the_profile() -> None:
    for drawn in settings(50, 4):
        check_never_smaller(drawn)


@pytest.mark.slow
def test_never_smaller_than_the_profile_in_a_thousand_settings() -> None:
    for drawn in settings(1000, 5):
        check_never_smaller(drawn)


def check_never_smaller(drawn: Drawn) -> None:
    """The map, of a person and of two, and the sum of two releases."""
    delta = drawn.delta
    amplified = ms.amplify(drawn.randomizer, drawn.users)
    counted = measurement(drawn.randomizer, users=drawn.users, delta=delta)
    step = 1 if amplified.alike else drawn.reach
    epsilon = amplified.upper.epsilon(delta, drawn.reach)
    assert counted.map(step)[0] >= epsilon, drawn
    assert counted.map(step)[1] >= delta, drawn
    twice = dp.c.make_composition([counted, counted]).map(step)
    assert twice[0] >= 2 * epsilon
    assert twice[1] >= 2 * delta
    if amplified.alike:
        assert counted.map(2)[0] >= 2 * epsilon


def check_plan_never_smaller(plan: ms.Plan) -> None:
    """At the distance of the guarantee and below it, the map is a point above the profile."""
    profile = account_profile(plan)
    released = measurement(plan)
    for part in (1.0, 0.7, 0.1):
        moved = part * plan.guarantee.distance
        epsilon, delta = released.map(moved)
        assert profile.delta(epsilon, moved) <= delta, (plan, part)
    twice = dp.c.make_composition([released, released]).map(plan.guarantee.distance)
    assert twice[0] >= 2 * plan.guarantee.epsilon
    assert twice[1] >= 2 * plan.guarantee.delta


@pytest.mark.thorough
def test_plans_are_never_smaller_than_their_profile() -> None:
    for plan in plans(6, 10):
        check_plan_never_smaller(plan)


@pytest.mark.slow
def test_plans_are_never_smaller_than_their_profile_in_a_thousand_settings() -> None:
    for plan in plans(1000, 11):
        check_plan_never_smaller(plan)
