"""Sums and means from WitchHat reports: verified, unbiased, covered, compared with sums."""

from __future__ import annotations

import math

import numpy as np
import pytest

from metricshuffle.accounting.shuffling.clone_bound import ClonePair, delta_upper
from metricshuffle.errors import BatchTooSmall, DomainError, InputError, InputWarning
from metricshuffle.planning import Plan, plan
from metricshuffle.privacy.target import Target
from metricshuffle.protocols.frequencies import Frequencies
from metricshuffle.queries import Mean, Sum
from metricshuffle.randomizers.witch_hat import WitchHat
from metricshuffle.randomness import Randomness
from metricshuffle.spaces import Integers, Interval

ROAD = Mean(Interval(-2.0, 8.0, "km"))
TARGET = Target(1.0, 1e-6, 2.0)
ONLY = ["witch-hat"]


def hat_of(made: Plan) -> WitchHat:
    assert isinstance(made.protocol, Frequencies)
    return made.protocol.witch_hat


@pytest.fixture(scope="module")
def road() -> Plan:
    return plan(ROAD, TARGET, 200_000, "95%", protocols=ONLY)


def test_the_promise_holds_at_every_step(road: Plan) -> None:
    """By the clone bound at single distances, and not far from the edge."""
    hat = hat_of(road)
    honest = 190_000
    assert road.guarantee.trust.honest_reports == road.minimum == honest
    most = hat.local_epsilon()
    for steps in (1, 2, 3, 10, 100, 500, 819):
        local = hat.local_epsilon(0, steps)
        assert local <= min(most, hat.rate * steps * hat.step) * (1 + 1e-12)
        assert delta_upper(ClonePair(local, most, most), honest, steps * hat.step / 2.0) <= 1e-6
    # A report that gives away a tenth more breaks the promise.
    local = 1.1 * hat.local_epsilon(0, 40)
    assert delta_upper(ClonePair(local, most, most), honest, 40 * hat.step / 2.0) > 1e-6
    assert road.if_shuffler_colludes.epsilon == hat.local_profile().pure(2.0) > 1.5


def test_estimates_are_unbiased_and_covered(road: Plan) -> None:
    """Twenty releases about two hundred thousand people, most of them near one end."""
    source = Randomness.seeded("real means")
    values = np.concatenate([np.full(150_000, 7.9), np.linspace(-2.0, 8.0, 50_000)])
    errors = []
    inside = 0
    for _ in range(20):
        release = road.estimate(road.shuffle(road.randomize(values, source)))
        low, high = release.interval(0.9)
        errors.append(release.value - values.mean())
        inside += low <= values.mean() <= high
    assert inside >= 14
    rounding = 0.5 * hat_of(road).step
    assert abs(np.mean(errors)) <= 4.0 * release.standard_error / math.sqrt(20) + rounding
    assert np.std(errors) == pytest.approx(release.standard_error, rel=0.5)
    assert np.mean(np.abs(errors)) <= 1.4 * road.choice.expected_error
    wide = release.interval(0.9, method="bernstein")
    assert wide[0] < low < high < wide[1]


def test_the_debiased_law_has_the_value_as_its_mean(road: Plan) -> None:
    """At both ends and between."""
    hat = hat_of(road)
    for code in (0, 1000, 2048, 4096):
        mean = float(hat.law(code) @ hat.debiasing()[:, 0])
        assert mean == pytest.approx(float(hat.values_of(np.array(code))), abs=1e-9)


@pytest.mark.thorough
def test_more_people_less_error_and_sums_beside_them(road: Plan) -> None:
    """Few people; WitchHat and sums in one plan; the sum is n times the mean."""
    few = plan(ROAD, TARGET, 100, protocols=ONLY)
    assert few.guarantee.trust.trusted == "nobody"
    assert hat_of(few).rate == pytest.approx(0.5)
    assert road.choice.expected_error < few.choice.expected_error / math.sqrt(2000.0)
    beside = plan(
        ROAD,
        TARGET,
        100,
        granularity=0.5,
        encoding="modular",
        protocols=["geometric-shuffle", "witch-hat"],
    )
    errors = {offer.protocol: offer.expected_error for offer in beside.candidates}
    assert errors["witch-hat"] == few.choice.expected_error > errors["geometric-shuffle"]
    assert beside.choice.protocol == "geometric-shuffle"
    summed = plan(Sum(Interval(-2.0, 8.0, "km")), TARGET, 100, protocols=ONLY)
    assert summed.choice.expected_error == pytest.approx(100 * few.choice.expected_error)


def test_the_expected_error_is_that_of_people_at_an_end() -> None:
    """E|error| of n reports of the variance at an end, by the normal approximation."""
    made = plan(ROAD, TARGET, 5000, protocols=ONLY)
    hat = hat_of(made)
    assert made.choice.expected_error == pytest.approx(
        math.sqrt(2.0 / math.pi * hat.variance(5.0) / 5000), rel=1e-12
    )
    assert all(hat.variance(value) <= hat.variance(5.0) for value in np.linspace(-5.0, 5.0, 21))


def test_wrong_wishes_are_told(road: Plan) -> None:
    """Whole numbers, flat targets, long distances, few reports and values outside are errors."""
    with pytest.raises(InputError, match="there is no protocol 'witch-hat'"):
        plan(Mean(Integers(0, 9)), TARGET, 100, protocols=ONLY)
    with pytest.raises(InputError, match="linear"):
        plan(ROAD, Target(1.0, 1e-6, 2.0, "flat"), 100, protocols=ONLY)
    with pytest.raises(InputError, match=r"distance must lie|beyond the diameter"):
        plan(ROAD, Target(1.0, 1e-6, 11.0), 100, protocols=ONLY)
    with pytest.raises(InputError, match="distance must lie"):
        plan(ROAD, Target(1.0, 1e-6, 1e-4), 100, protocols=ONLY)
    with pytest.raises(BatchTooSmall, match="190,000"):
        road.shuffle(road.randomize([1.0]))
    with pytest.raises(DomainError, match="row 0"):
        road.randomize([9.0])
    with pytest.warns(InputWarning, match=r"1 of 1 values of the list \(100 %\) lay outside"):
        assert len(road.randomize([9.0], clamp=True)) == 1
    release = plan(ROAD, TARGET, 1, trusted="nobody", protocols=ONLY).run([3.0])
    for level in (0.0, 1.0, math.nan):
        with pytest.raises(InputError, match="level"):
            release.interval(level)
    assert "with certainty" in str(
        plan(ROAD, Target(1.0, 0.0, 2.0), 50, protocols=ONLY).run(np.linspace(0.0, 1.0, 50))
    )
