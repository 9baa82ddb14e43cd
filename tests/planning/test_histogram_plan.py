"""Plans for histograms: calibrated to the edge, verified, saved whole, refused when edited."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest

from metricshuffle.accounting.blanket.bound import BlanketProfile
from metricshuffle.accounting.blanket.geometric_pairs import ShuffledGeometric
from metricshuffle.errors import BatchTooSmall, DomainError, InputError, PlanError
from metricshuffle.planning.histogram_plan import HistogramPlan, plan_histogram
from metricshuffle.privacy.target import Target
from metricshuffle.protocols.base import Reports, Shuffled
from metricshuffle.queries.histogram import Histogram, shuffled_profile
from metricshuffle.randomizers import BoundedGeometric, KaryRandomizedResponse, PlanarGeometric
from metricshuffle.randomness import Randomness
from metricshuffle.spaces import Categories, Grid, Integers

LABELS = Categories(["red", "green", "blue"])
TARGET = Target(1.0, 1e-6, 1.0)


@pytest.fixture(scope="module")
def colours() -> HistogramPlan:
    return plan_histogram(LABELS, TARGET, 2000, "90%")


def test_categories_are_calibrated_to_the_edge(colours: HistogramPlan) -> None:
    kind = colours.choice.randomizer
    assert isinstance(kind, KaryRandomizedResponse)
    assert BlanketProfile(kind.blankets, 1800).covers_at(1.0, 1e-6, 1.0)
    more = KaryRandomizedResponse(3, kind.epsilon * 1.01)
    assert not BlanketProfile(more.blankets, 1800).covers_at(1.0, 1e-6, 1.0)
    assert kind.epsilon > 3.0
    assert (colours.choice.guarantee.epsilon, colours.choice.guarantee.shape) == (1.0, "flat")
    assert colours.choice.fallback.epsilon == kind.local_epsilon()
    errors = [one.expected_error for one in colours.candidates]
    assert errors == sorted(errors)
    assert {one.kind for one in colours.candidates} == {"k-ary-randomized-response", "hadamard-response"}


def test_the_expected_error_is_what_simulation_finds(colours: HistogramPlan) -> None:
    kind, source, people = colours.choice.randomizer, Randomness.seeded("errors"), np.arange(2000) % 3
    truth = np.bincount(people) / 2000
    errors = [np.abs(kind.totals(kind.reports(people, source)) / 2000 - truth).mean() for _ in range(400)]
    assert np.mean(errors) == pytest.approx(colours.choice.expected_error, rel=0.1)


@pytest.mark.parametrize("shape", ["linear", "flat"])
@pytest.mark.parametrize("domain", [Integers(10, 18, "km"), Grid(6, 4, 100.0, "m")])
def test_metric_domains_keep_the_target_at_every_move(domain: Integers | Grid, shape: str) -> None:
    distance = 3.0 if isinstance(domain, Integers) else 200.0
    target = Target(0.8, 1e-6, distance, shape)  # type: ignore[arg-type]
    plan = plan_histogram(Histogram(domain), target, 20_000)
    for one in plan.candidates:
        profile = shuffled_profile(one.randomizer, 20_000)
        metric = isinstance(one.randomizer, BoundedGeometric | PlanarGeometric)
        assert isinstance(profile, ShuffledGeometric) == metric
        if metric:
            assert profile.covers(0.8, 1e-6, distance, target.shape)
            assert one.fallback.epsilon == profile.pure(distance)
        else:
            smallest = 0.8 if shape == "flat" else 0.8 * (1.0 if isinstance(domain, Integers) else 100.0) / distance
            assert profile.covers_at(smallest, 1e-6, 1.0)
        assert one.guarantee.trust.honest_reports == 20_000
        assert one.fallback.epsilon > 0.8  # shuffling bought something
        assert "instead of" in one.gain


def test_the_three_roles(colours: HistogramPlan) -> None:
    values = ["red"] * 1200 + ["blue"] * 800
    source = Randomness.seeded("roles")
    first, second = colours.randomize(values[:1500], source), colours.randomize(values[1500:], source)
    shuffled = colours.shuffle(iter([first, second]))
    assert shuffled.reports == 2000
    found = colours.estimate(shuffled)
    low, high = found.intervals(1 - 1e-6).T
    assert np.all((low <= [0.6, 0.0, 0.4]) & (high >= [0.6, 0.0, 0.4]))
    assert (found.plan, found.raw_values_seen, found.unsafe_seeded) == (colours.digest, False, True)
    assert found.guarantee == colours.choice.guarantee
    assert "red" in str(found)
    assert "UNSAFE" in str(found)
    assert colours.run(values).raw_values_seen
    assert not colours.run(values).unsafe_seeded


def test_what_does_not_belong_is_refused(colours: HistogramPlan) -> None:
    good = colours.randomize(["red"] * 1800)
    with pytest.raises(BatchTooSmall, match="1,799"):
        colours.shuffle(Reports(colours.digest, good.records[:1799]))
    with pytest.raises(PlanError, match="another plan"):
        colours.shuffle(Reports("0" * 64, good.records))
    with pytest.raises(PlanError, match="one whole number"):
        colours.shuffle(Reports(colours.digest, good.records.ravel()))
    with pytest.raises(DomainError, match="report 0"):
        colours.shuffle(Reports(colours.digest, np.full((1800, 1), 7)))
    with pytest.raises(InputError, match="only Reports"):
        colours.shuffle([1])  # type: ignore[list-item]
    with pytest.raises(InputError, match="shuffled first"):
        colours.estimate(good)  # type: ignore[arg-type]
    with pytest.raises(PlanError, match="another plan"):
        colours.estimate(Shuffled("0" * 64, 1800, (np.array([1800, 0, 0], dtype=np.uint64),)))
    for axes in ((1800,), (np.array([1, 2, 3], dtype=np.uint64),), ()):
        with pytest.raises(PlanError, match="counts that sum"):
            colours.estimate(Shuffled(colours.digest, 1800, axes))
    with pytest.raises(BatchTooSmall, match="honest ones"):
        colours.estimate(Shuffled(colours.digest, 3, (np.array([1, 1, 1], dtype=np.uint64),)))
    with pytest.raises(DomainError, match="purple"):
        colours.randomize(["purple"])


def test_plans_are_saved_whole(colours: HistogramPlan, tmp_path: Path) -> None:
    path = str(tmp_path / "plan.json")
    colours.save(path)
    again = HistogramPlan.load(path)
    assert again == colours
    assert str(again) == str(colours)
    text = colours.to_json()
    edited = json.loads(text)
    edited["honest"] = 5
    damaged = [
        json.dumps(edited),
        "{",
        "[]",
        text.replace('"digest"', '"ditest"'),
        json.dumps({**json.loads(text), "chosen": 9, "digest": "x"}),
    ]
    for wrong in damaged:
        with pytest.raises(PlanError, match=r"\.$"):
            HistogramPlan.from_json(wrong)


def test_trusting_nobody_or_promising_certainty() -> None:
    alone = plan_histogram(LABELS, TARGET, 2000, trusted="nobody")
    assert isinstance(alone.choice.randomizer, KaryRandomizedResponse)
    assert alone.choice.randomizer.epsilon == pytest.approx(1.0)
    assert alone.choice.guarantee.trust.trusted == "nobody"
    assert alone.minimum == 1
    pure = plan_histogram(Grid(6, 4, 100.0), Target(1.0, 0.0, 300.0), 2000, randomizers=["planar-geometric"])
    assert pure.choice.fallback.epsilon <= 1.0
    assert pure.choice.guarantee.delta == 0.0
    # Where no diagonal lies within the distance, an axis may have all of epsilon.
    near = plan_histogram(Grid(6, 4, 100.0), Target(1.0, 0.0, 100.0), 2000, randomizers=["planar-geometric"])
    assert isinstance(near.choice.randomizer, PlanarGeometric)
    assert near.choice.randomizer.axes[0].rate == pytest.approx(1.0)


def test_a_single_person_has_nobody_to_hide_among() -> None:
    plan = plan_histogram(LABELS, TARGET, 1)
    assert "Shuffling buys nothing" in str(plan)
    assert plan.choice.guarantee.trust.trusted == "nobody"
    assert sum(plan.run(["red"]).frequencies) == pytest.approx(1.0)


def test_a_cap_on_what_one_report_gives_away(colours: HistogramPlan) -> None:
    capped = plan_histogram(LABELS, TARGET, 2000, max_local_epsilon=1.5)
    assert capped.choice.fallback.epsilon == pytest.approx(1.5)
    assert capped.choice.expected_error > colours.choice.expected_error
    assert plan_histogram(LABELS, TARGET, 2000, max_local_epsilon=0.5).choice.fallback.epsilon <= 0.5


@pytest.mark.parametrize(
    ("choices", "words"),
    [
        ({"trusted": "curator"}, "no curator"),
        ({"randomizers": ["magic"]}, "choose among k-ary"),
        ({"randomizers": []}, "choose among"),
        ({"max_local_epsilon": math.nan}, "max_local_epsilon"),
        ({"target": Target(1.0, 1e-6, 2.0)}, "distance must be 1"),
        ({"query": Integers(0, 9), "target": Target(1.0, 1e-6, 0.5)}, "one step"),
        ({"query": Integers(0, 9), "target": Target(1.0, 1e-6, 10.0)}, "diameter"),
        ({"users": 0}, "users must be"),
        ({"honest": 3000}, "cannot exceed"),
    ],
)
def test_wrong_wishes_are_told(choices: dict[str, object], words: str) -> None:
    with pytest.raises(InputError, match=words):
        plan_histogram(**{"query": LABELS, "target": TARGET, "users": 2000, **choices})  # type: ignore[arg-type]
