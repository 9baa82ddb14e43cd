"""The mean of real numbers from single WitchHat reports: verified, unbiased, covered, saved whole."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest

from metricshuffle.accounting.clones.bound import ClonePair, delta_upper
from metricshuffle.errors import BatchTooSmall, DomainError, InputError, PlanError
from metricshuffle.planning import Target, plan
from metricshuffle.planning.offers.witch_hat import MeanEstimate, RealMeanPlan, plan_real_mean
from metricshuffle.protocols import Mean
from metricshuffle.randomness import Randomness
from metricshuffle.spaces import Integers, Interval

ROAD = Interval(-2.0, 8.0, "km")
TARGET = Target(1.0, 1e-6, 2.0)


@pytest.fixture(scope="module")
def road() -> RealMeanPlan:
    return plan_real_mean(ROAD, TARGET, 200_000, "95%")


def test_the_promise_holds_at_every_step(road: RealMeanPlan) -> None:
    hat, honest = road.randomizer, 190_000
    assert road.guarantee.trust.honest_reports == road.minimum == honest
    most = hat.local_epsilon()
    for steps in (1, 2, 3, 10, 100, 500, 819):
        local = hat.local_epsilon(0, steps)
        assert local <= min(most, hat.rate * steps * hat.step) * (1 + 1e-12)
        assert delta_upper(ClonePair(local, most, most), honest, steps * hat.step / 2.0) <= 1e-6
    # It is not far from the edge: a report that gives away a tenth more breaks the promise.
    local = 1.1 * hat.local_epsilon(0, 40)
    assert delta_upper(ClonePair(local, most, most), honest, 40 * hat.step / 2.0) > 1e-6
    assert road.fallback.epsilon == hat.local_profile().pure(2.0) > 1.5


def test_estimates_are_unbiased_and_covered(road: RealMeanPlan) -> None:
    source = Randomness.seeded("real means")
    values = np.concatenate([np.full(150_000, 7.9), np.linspace(-2.0, 8.0, 50_000)])
    errors, inside = [], 0
    for _ in range(20):
        found = road.estimate(road.shuffle(road.randomize(values, source)))
        low, high = found.interval(0.9)
        errors.append(found.value - values.mean())
        inside += low <= values.mean() <= high
    assert inside >= 14
    assert abs(np.mean(errors)) <= 4.0 * found.standard_error / math.sqrt(20) + found.rounding
    assert np.std(errors) == pytest.approx(found.standard_error, rel=0.5)
    assert np.mean(np.abs(errors)) <= 1.4 * road.expected_error
    wide = found.interval(0.9, method="bernstein")
    assert wide[0] < low < high < wide[1]


def test_the_debiased_law_has_the_value_as_its_mean(road: RealMeanPlan) -> None:
    hat = road.randomizer
    for code in (0, 1000, 2048, 4096):
        mean = float(hat.law(code) @ hat.debiasing()[:, 0])
        assert mean == pytest.approx(float(hat.values_of(np.array(code))), abs=1e-9)


def test_more_people_less_error_and_a_sentence_against_sums(road: RealMeanPlan) -> None:
    few = plan_real_mean(ROAD, TARGET, 100)
    assert few.guarantee.trust.trusted == "nobody"
    assert few.randomizer.rate == pytest.approx(0.5)
    assert road.expected_error < few.expected_error / math.sqrt(2000.0)
    sums = plan(Mean(ROAD), TARGET, 100, granularity=0.5, encoding="modular", protocols=["geometric-shuffle"])
    words = few.compared(sums)
    assert sums.choice.protocol in words
    assert f"{few.expected_error / sums.choice.expected_error:.4g} times less" in words
    with pytest.raises(InputError, match="different queries"):
        road.compared(sums)


def test_plans_and_estimates_are_saved_whole(road: RealMeanPlan, tmp_path: Path) -> None:
    path = str(tmp_path / "plan.json")
    road.save(path)
    assert RealMeanPlan.load(path) == road
    edited = json.loads(road.to_json())
    edited["honest"] = 3
    for wrong in (json.dumps(edited), "[]", "{"):
        with pytest.raises(PlanError, match=r"\.$"):
            RealMeanPlan.from_json(wrong)
    found = plan_real_mean(Mean(ROAD), Target(1.0, 0.0, 2.0), 50).run(np.linspace(0.0, 1.0, 50))
    assert MeanEstimate.from_json(found.to_json()) == found
    assert found.raw_values_seen
    assert "with certainty" in str(found)
    assert "If the shuffler is honest" in str(road)
    for wrong in ("{", "[]"):
        with pytest.raises(PlanError, match=r"\.$"):
            MeanEstimate.from_json(wrong)


def test_wrong_wishes_are_told(road: RealMeanPlan) -> None:
    with pytest.raises(InputError, match="Interval"):
        plan_real_mean(Mean(Integers(0, 9)), TARGET, 100)
    with pytest.raises(InputError, match="linear"):
        plan_real_mean(ROAD, Target(1.0, 1e-6, 2.0, "flat"), 100)
    with pytest.raises(InputError, match="distance must lie"):
        plan_real_mean(ROAD, Target(1.0, 1e-6, 11.0), 100)
    with pytest.raises(BatchTooSmall, match="190,000"):
        road.shuffle(road.randomize([1.0]))
    with pytest.raises(DomainError, match="row 0"):
        road.randomize([9.0])
    assert len(road.randomize([9.0], clamp=True)) == 1
    one = plan_real_mean(ROAD, TARGET, 1).run([3.0])
    for level in (0.0, 1.0, math.nan):
        with pytest.raises(InputError, match="level"):
            one.interval(level)
