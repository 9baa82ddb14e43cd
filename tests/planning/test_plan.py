"""Plans: choice, saving, rejection of edits, and roles."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from tests.tables import check_all

from metricshuffle.errors import BatchTooSmall, DomainError, InputError, InputWarning, PlanError
from metricshuffle.planning import Plan, plan
from metricshuffle.planning.candidate import TRUST_ORDER, Candidate
from metricshuffle.planning.plan import choose
from metricshuffle.planning.plan_text import explanation, plan_text, why_chosen
from metricshuffle.planning.setting import Setting
from metricshuffle.privacy.target import Target
from metricshuffle.protocols.protocol import Reports
from metricshuffle.queries import Centroid, Mean, Sum
from metricshuffle.randomness import Randomness
from metricshuffle.spaces import Grid, Integers, Interval

TARGET = Target(1.0, 1e-6, 10)
MEAN = Mean(Integers(-5, 25, "kcal"))


def planned(query: Any = MEAN, target: Target = TARGET, users: int = 60, **choices: Any) -> Plan:
    return plan(query, target, users, **{"encoding": "modular"} | choices)


def part_of(reports: Reports, start: int, end: int) -> Reports:
    """Some reports of a batch."""
    return replace(reports, messages=reports.messages[start:end], first=reports.first + start)


# --- files ---


def test_a_plan_survives_json_with_its_infinities() -> None:
    """All candidates return, also infinite epsilons; the chosen one has its mechanism."""
    plan_made = planned(honest=50)
    again = Plan.from_json(plan_made.to_json())
    assert again.task == plan_made.task
    assert again.choice == plan_made.choice
    told = {"mechanism": None}
    assert [offer.model_copy(update=told) for offer in again.candidates] == [
        offer.model_copy(update=told) for offer in plan_made.candidates
    ]
    assert any(math.isinf(offer.local_epsilon) for offer in again.candidates)
    data = json.loads(plan_made.to_json())
    assert (data["digest"], data["format"]) == (plan_made.digest, "metricshuffle-plan/2")
    assert again.to_json() == plan_made.to_json()


def leaves(node: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Where every number and word of a JSON document stands."""
    if isinstance(node, dict):
        return [leaf for key, value in node.items() for leaf in leaves(value, (*path, key))]
    if isinstance(node, list):
        return [leaf for key, value in enumerate(node) for leaf in leaves(value, (*path, key))]
    return [path]


def with_leaf_changed(text: str, path: tuple[Any, ...]) -> str:
    edited = json.loads(text)
    holder = edited
    for step in path[:-1]:
        holder = holder[step]
    old = holder[path[-1]]
    holder[path[-1]] = (
        not old
        if isinstance(old, bool)
        else (old or 0) * 1.01 + 1
        if isinstance(old, int | float | None)
        else f"{old}1"
    )
    return json.dumps(edited)


def test_every_number_and_word_of_a_plan_is_covered_by_its_checksum() -> None:
    """An edit anywhere is noticed, in the task too, whose digest would notice it alone."""
    text = planned(users=30, honest=25).to_json()
    paths = leaves(json.loads(text))
    assert len(paths) > 100
    for path in paths:
        with pytest.raises(PlanError):
            Plan.from_json(with_leaf_changed(text, path))


@check_all(
    "damage",
    ["not json", "[]", "{}", "3", "null", '{"format": "metricshuffle-plan/3"}', '{"format": 2}'],
)
def test_what_is_not_a_plan(damage: str) -> None:
    """Other texts are named, not traced back."""
    with pytest.raises(PlanError, match=r"this is n(ot|either) a plan"):
        Plan.from_json(damage)


def test_a_plan_without_its_checksum_or_with_strange_fields_is_refused() -> None:
    """Fields may be neither left out nor added."""
    data = json.loads(planned().to_json())
    with pytest.raises(PlanError, match="checksum"):
        Plan.from_json(json.dumps({key: value for key, value in data.items() if key != "checksum"}))
    with pytest.raises(PlanError, match="checksum"):
        Plan.from_json(json.dumps(data | {"surprise": 1}))
    with pytest.raises(PlanError, match="checksum"):
        Plan.from_json(json.dumps({key: value for key, value in data.items() if key != "task"}))


# --- the choice ---


def test_the_least_error_for_the_trust_that_is_allowed() -> None:
    """Nobody, a shuffler or a curator trusted: the least error among what may be chosen."""
    shuffler = planned()
    nobody = planned(trusted="nobody")
    curator = planned(trusted="curator")
    assert (shuffler.choice.protocol, nobody.choice.protocol) == (
        "polya-shuffle",
        "geometric-local",
    )
    assert [offer.baseline for offer in shuffler.candidates] == sorted(
        offer.baseline for offer in shuffler.candidates
    )
    assert all(offer.baseline == (TRUST_ORDER[offer.trusted] > 0) for offer in nobody.candidates)
    assert not any(offer.baseline for offer in curator.candidates)
    # The shares of total shape 1 are as accurate as a curator, so he is not needed.
    assert curator.choice.trusted == "shuffler"
    for plan_made in (shuffler, nobody, curator):
        least = min(offer.expected_error for offer in plan_made.candidates if not offer.baseline)
        assert plan_made.choice.expected_error <= 1.001 * least


def test_among_equals_less_trust_then_fewer_bits() -> None:
    """A thousandth of error is not worth more trust, nor more bits."""
    plan_made = planned()
    setting = Setting(MEAN, TARGET, 60, 60)
    base = plan_made.choice

    def like(**changes: Any) -> Candidate:
        return base.model_copy(update=changes)

    assert (
        choose(
            setting,
            [
                like(bits_per_user=50),
                like(bits_per_user=40, expected_error=base.expected_error * 1.0005),
            ],
            [],
        )
        == 1
    )
    assert (
        choose(
            setting,
            [
                like(bits_per_user=50),
                like(bits_per_user=40, expected_error=base.expected_error * 1.002),
            ],
            [],
        )
        == 0
    )
    central = next(offer for offer in plan_made.candidates if offer.trusted == "curator")
    same = central.model_copy(
        update={"baseline": False, "expected_error": base.expected_error, "bits_per_user": 1}
    )
    assert choose(setting, [same, base], []) == 1
    assert choose(setting, [like(baseline=True, expected_error=0.0), base], []) == 1


def test_limits_on_bits_and_local_epsilon() -> None:
    """What was chosen keeps them, and a limit that nothing keeps is named."""
    few = planned(max_bits=14)
    assert few.choice.protocol == "geometric-local"
    assert few.choice.bits_per_user <= 14
    assert "within the limits" in why_chosen(few)
    capped = planned(users=200, max_local_epsilon=5.5)
    assert capped.choice.local_epsilon <= 5.5
    assert capped.choice.protocol == "polya-shuffle"
    with pytest.raises(InputError, match="max_bits=2"):
        planned(max_bits=2)


def test_without_delta_only_pure_protocols_are_left() -> None:
    """The others are not offered, each with its reason."""
    plan_made = planned(target=Target(1.0, 0.0, 10), encoding="auto")
    assert plan_made.choice.protocol == "geometric-local"
    assert all(offer.guarantee.delta == 0.0 for offer in plan_made.candidates)
    assert {row.protocol for row in plan_made.not_offered} == {
        "polya-shuffle",
        "geometric-shuffle",
        "randomized-response-shuffle",
    }
    summed = planned(target=Target(1.0, 0.0, 10), transport="aggregator")
    assert summed.choice.trusted == "aggregator"
    assert summed.choice.expected_error == pytest.approx(1 / math.sinh(0.1) / 60, rel=1e-6)


def test_too_few_people_get_a_local_plan_that_says_so() -> None:
    """Nobody to hide among: the noise of one's own report is all there is."""
    alone = planned(users=1, encoding="unary", protocols=None)
    assert (alone.choice.protocol, alone.choice.trusted, alone.trusted) == (
        "geometric-local",
        "nobody",
        "shuffler",
    )
    assert "1 honest person is too few for a shuffler to help" in plan_text(alone)
    asked_for = planned(users=1, trusted="nobody")
    assert asked_for.choice.protocol == "geometric-local"
    assert "too few" not in plan_text(asked_for)


@check_all(
    ("query", "target", "match"),
    [
        (MEAN, Target(1, 1e-6, 31), "diameter"),
        (Centroid(Grid(5, 5, cell=2.0)), Target(1, 1e-6, 1.5), "less than one step"),
        ("mean", TARGET, "needs a query"),
    ],
)
def test_targets_that_do_not_fit_the_query(query: Any, target: Target, match: str) -> None:
    """Beyond the diameter, below a step, or of no query."""
    with pytest.raises(InputError, match=match):
        planned(query=query, target=target)


# --- the roles ---


def test_the_three_roles() -> None:
    """Reports whole or in parts; seeded and raw values marked; the interval covers."""
    plan_made = planned(honest=40)
    values = np.arange(45) % 31 - 5
    reports = plan_made.randomize(values, Randomness.seeded(1))
    whole = plan_made.shuffle(reports)
    parts = plan_made.shuffle([part_of(reports, 0, 20), part_of(reports, 20, 45)])
    assert (whole.reports, parts.reports) == (45, 45)
    assert whole.to_bytes() == parts.to_bytes()
    release = plan_made.estimate(whole)
    assert release.unsafe_seeded
    assert not release.raw_values_seen
    assert plan_made.run(values, Randomness.seeded(1)).raw_values_seen
    low, high = release.interval(0.999999)
    assert low < values.mean() < high
    assert release.reports == 45


def test_what_the_roles_refuse() -> None:
    """Values outside, foreign, small or large batches, and objects that are no batch."""
    plan_made = planned(honest=40)
    other = planned(honest=41)
    values = np.zeros(45, dtype=int)
    with pytest.raises(DomainError, match="row"):
        plan_made.randomize([1, 2, 99])
    with pytest.warns(InputWarning, match=r"1 of 3 values of the list \(33.3 %\) lay outside"):
        assert len(plan_made.randomize([1, 2, 99], Randomness.seeded(0), clamp=True)) == 3
    reports = plan_made.randomize(values, Randomness.seeded(0))
    with pytest.raises(PlanError, match="another task"):
        other.shuffle(reports)
    with pytest.raises(BatchTooSmall, match="at least 40 honest"):
        plan_made.shuffle(part_of(reports, 0, 39))
    with pytest.raises(PlanError, match="room for, 60"):
        plan_made.shuffle(plan_made.randomize(np.zeros(61, dtype=int), Randomness.seeded(0)))
    with pytest.raises(InputError, match="must be shuffled first"):
        plan_made.estimate(reports)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="needs Reports"):
        plan_made.shuffle(3)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="Reports"):
        plan_made.shuffle([reports.messages])  # type: ignore[list-item]
    with pytest.raises(PlanError, match="another task"):
        other.estimate(plan_made.shuffle(reports))
    with pytest.raises(PlanError, match="twice"):
        plan_made.shuffle([reports, reports])
    with pytest.raises(PlanError, match="twice"):
        plan_made.shuffle([part_of(reports, 0, 25), part_of(reports, 20, 45)])


def test_plans_explain_themselves() -> None:
    """What is protected, what is not, and the fallback, as text with numbers."""
    plan_made = planned()
    words = " ".join(explanation(plan_made))
    assert "A change of 5 kcal is hidden at epsilon 0.5" in words
    assert "NOT promised" in words
    assert "If the shuffler colludes" in words
    assert "rounded" not in words
    text = plan_text(plan_made)
    assert "->" in text
    assert "(baseline)" in text
    assert "If it is not:" in text
    assert "If it is not:" not in plan_text(planned(trusted="nobody"))
    rounded = planned(
        query=Mean(Interval(0, 10)), target=Target(1.0, 1e-6, 5), protocols=["polya-shuffle"]
    )
    assert "one person moving, not several together" in " ".join(explanation(rounded))
    cells = planned(query=Centroid(Grid(9, 9)), target=Target(1.0, 1e-6, 3))
    assert "grid cells" in " ".join(explanation(cells))
    flat = planned(query=Sum(Integers(0, 10)), target=Target(1.0, 1e-6, 10, "flat"))
    assert "Every change up to 10 is hidden at epsilon 1" in " ".join(explanation(flat))
    assert "raw value" in " ".join(
        explanation(planned(trusted="curator", protocols=["geometric-central"]))
    )
