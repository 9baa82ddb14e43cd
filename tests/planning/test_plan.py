"""Plans: chosen well, saved whole, refused when edited."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import pytest

from metricshuffle.errors import BatchTooSmall, DomainError, InputError, PlanError
from metricshuffle.planning import Plan, Target, plan
from metricshuffle.planning.candidate import TRUST_ORDER, Candidate
from metricshuffle.planning.explain import explanation, plan_text, why_chosen
from metricshuffle.planning.plan import choose
from metricshuffle.planning.setting import Setting
from metricshuffle.protocols import Centroid, Mean, Sum
from metricshuffle.protocols.base import Reports
from metricshuffle.randomness import Randomness
from metricshuffle.spaces import Grid, Integers, Interval

TARGET = Target(1.0, 1e-6, 10)
MEAN = Mean(Integers(-5, 25, "kcal"))


def made(query: Any = MEAN, target: Target = TARGET, users: int = 60, **choices: Any) -> Plan:
    found = plan(query, target, users, **{"encoding": "modular"} | choices)
    assert isinstance(found, Plan)
    return found


def test_a_plan_survives_json_with_its_infinities() -> None:
    one = made(honest=50)
    again = Plan.from_json(one.to_json())
    assert again == one
    assert any(math.isinf(candidate.local_epsilon) for candidate in again.candidates)
    assert json.loads(one.to_json())["digest"] == one.digest
    assert json.loads(one.to_json())["format"] == "metricshuffle-plan/1"


def leaves(node: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    if isinstance(node, dict):
        return [leaf for key, value in node.items() for leaf in leaves(value, (*path, key))]
    if isinstance(node, list):
        return [leaf for key, value in enumerate(node) for leaf in leaves(value, (*path, key))]
    return [path]


def test_every_number_and_word_of_a_plan_is_covered_by_its_digest() -> None:
    text = made(users=30, honest=25).to_json()
    data = json.loads(text)
    paths = [path for path in leaves(data) if path[-1] != "sentence"]  # made anew from the numbers when read
    assert len(paths) > 100
    for path in paths:
        edited = json.loads(text)
        holder = edited
        for step in path[:-1]:
            holder = holder[step]
        old = holder[path[-1]]
        holder[path[-1]] = not old if isinstance(old, bool) else (old or 0) * 1.01 + 1 if isinstance(old, int | float | None) else f"{old}1"
        with pytest.raises(PlanError):
            Plan.from_json(json.dumps(edited))


def test_a_forged_sentence_is_replaced_by_the_true_one() -> None:
    data = json.loads(made().to_json())
    data["candidates"][0]["guarantee"]["sentence"] = "Everything is hidden."
    assert "Everything" not in Plan.from_json(json.dumps(data)).to_json()


@pytest.mark.parametrize("damage", ["not json", "[]", "{}", '{"format": "metricshuffle-plan/2"}'])
def test_what_is_not_a_plan(damage: str) -> None:
    with pytest.raises(PlanError, match="not a plan"):
        Plan.from_json(damage)


def test_a_plan_without_a_digest_or_with_strange_fields_is_refused() -> None:
    data = json.loads(made().to_json())
    with pytest.raises(PlanError, match="digest"):
        Plan.from_json(json.dumps({key: value for key, value in data.items() if key != "digest"}))
    with pytest.raises(PlanError, match="surprise"):
        Plan.from_json(json.dumps(data | {"surprise": 1}))
    with pytest.raises(PlanError, match="query"):
        Plan.from_json(json.dumps({key: value for key, value in data.items() if key != "query"}))


def test_the_least_error_for_the_trust_that_is_allowed() -> None:
    shuffler, nobody, curator = made(), made(trusted="nobody"), made(trusted="curator")
    assert (shuffler.choice.protocol, nobody.choice.protocol) == ("polya-shuffle", "geometric-local")
    assert [one.baseline for one in shuffler.candidates] == sorted(one.baseline for one in shuffler.candidates)
    assert all(one.baseline == (TRUST_ORDER[one.trusted] > 0) for one in nobody.candidates)
    assert not any(one.baseline for one in curator.candidates)
    # The shares of total shape 1 are as accurate as a curator, so he is not needed.
    assert curator.choice.trusted == "shuffler"
    for one in (shuffler, nobody, curator):
        assert one.choice.expected_error <= 1.001 * min(other.expected_error for other in one.candidates if not other.baseline)


def test_among_equals_less_trust_then_fewer_bits() -> None:
    one = made()
    setting = Setting(MEAN, TARGET, 60, 60)
    base = one.candidates[one.chosen]

    def like(**changes: Any) -> Candidate:
        return base.model_copy(update=changes)

    assert choose(setting, [like(bits_per_user=50), like(bits_per_user=40, expected_error=base.expected_error * 1.0005)], []) == 1
    assert choose(setting, [like(bits_per_user=50), like(bits_per_user=40, expected_error=base.expected_error * 1.002)], []) == 0
    central = next(other for other in one.candidates if other.trusted == "curator")
    same = central.model_copy(update={"baseline": False, "expected_error": base.expected_error, "bits_per_user": 1})
    assert choose(setting, [same, base], []) == 1
    assert choose(setting, [like(baseline=True, expected_error=0.0), base], []) == 1


def test_limits_on_bits_and_local_epsilon() -> None:
    few = made(max_bits=14)
    assert few.choice.protocol == "geometric-local"
    assert few.choice.bits_per_user <= 14
    assert "within the limits" in why_chosen(few)
    capped = made(users=200, max_local_epsilon=5.5)
    assert capped.choice.local_epsilon <= 5.5
    assert capped.choice.protocol == "polya-shuffle"
    with pytest.raises(InputError, match="max_bits = 2"):
        made(max_bits=2)
    for wrong in ({"max_bits": 0}, {"max_local_epsilon": 0}, {"rounds": 0}, {"rounds": True}, {"protocols": ["magic"]}):
        with pytest.raises(InputError, match=next(iter(wrong)).removesuffix("s")):
            made(**wrong)


def test_without_delta_only_pure_protocols_are_left() -> None:
    one = made(target=Target(1.0, 0.0, 10), encoding="auto")
    assert one.choice.protocol == "geometric-local"
    assert all(candidate.guarantee.delta == 0.0 for candidate in one.candidates)
    assert {other.protocol for other in one.not_offered} == {"polya-shuffle", "geometric-shuffle", "randomized-response-shuffle"}
    summed = made(target=Target(1.0, 0.0, 10), transport="aggregator")
    assert summed.choice.trusted == "aggregator"
    assert summed.choice.expected_error == pytest.approx(1 / math.sinh(0.1) / 60, rel=1e-6)


def test_too_few_people_are_told_so() -> None:
    with pytest.raises(InputError, match="1 honest user is too few") as told:
        made(users=1, encoding="unary", protocols=None)
    assert "1,000 users" in str(told.value)
    assert made(users=1, trusted="nobody").choice.protocol == "geometric-local"


@pytest.mark.parametrize(
    ("query", "target", "match"),
    [(MEAN, Target(1, 1e-6, 31), "diameter"), (Centroid(Grid(5, 5, cell=2.0)), Target(1, 1e-6, 1.5), "less than one step"),
     ("mean", TARGET, "query must be")],
)  # fmt: skip
def test_targets_that_do_not_fit_the_query(query: Any, target: Target, match: str) -> None:
    with pytest.raises(InputError, match=match):
        made(query=query, target=target)


def test_the_three_roles() -> None:
    one = made(honest=40)
    values = np.arange(45) % 31 - 5
    reports = one.randomize(values, Randomness.seeded(1))
    first, second = Reports(one.digest, reports.records[:20], True), Reports(one.digest, reports.records[20:], True)
    whole, parts = one.shuffle(reports), one.shuffle([first, second])
    assert (whole.reports, parts.reports) == (45, 45)
    assert np.array_equal(np.asarray(whole.axes[0]), np.asarray(parts.axes[0]))
    release = one.estimate(whole)
    assert release.unsafe_seeded
    assert not release.raw_values_seen
    assert one.run(values, Randomness.seeded(1)).raw_values_seen
    low, high = release.interval(0.999999)
    assert low < values.mean() < high
    assert release.reports == 45


def test_what_the_roles_refuse() -> None:
    one, other = made(honest=40), made(honest=41)
    values = np.zeros(45, dtype=int)
    with pytest.raises(DomainError, match="row"):
        one.randomize([1, 2, 99])
    assert len(one.randomize([1, 2, 99], Randomness.seeded(0), clamp=True)) == 3
    reports = one.randomize(values, Randomness.seeded(0))
    with pytest.raises(PlanError, match="another plan"):
        other.shuffle(reports)
    with pytest.raises(BatchTooSmall, match="at least 40 honest"):
        one.shuffle(Reports(one.digest, reports.records[:39], True))
    with pytest.raises(PlanError, match="room for 60"):
        one.shuffle(one.randomize(np.zeros(61, dtype=int), Randomness.seeded(0)))
    with pytest.raises(InputError, match="must be shuffled first"):
        one.estimate(reports)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="needs Reports"):
        one.shuffle(3)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="Reports"):
        one.shuffle([reports.records])  # type: ignore[list-item]
    with pytest.raises(PlanError, match="another plan"):
        other.estimate(one.shuffle(reports))
    with pytest.raises(InputError, match="different plans"):
        reports.joined(other.randomize(values, Randomness.seeded(0)))
    assert len(reports.joined(reports)) == 90


def test_plans_explain_themselves() -> None:
    one = made()
    words = " ".join(explanation(one))
    assert "A change of 5 kcal is hidden at epsilon 0.5" in words
    assert "NOT promised" in words
    assert "If the shuffler colludes" in words
    assert "rounded" not in words
    text = plan_text(one)
    assert "->" in text
    assert "(baseline)" in text
    assert "If it is not:" in text
    assert "If it is not:" not in plan_text(made(trusted="nobody"))
    rounded = made(query=Mean(Interval(0, 10)), target=Target(1.0, 1e-6, 5))
    assert "one person moving, not several together" in " ".join(explanation(rounded))
    cells = made(query=Centroid(Grid(9, 9)), target=Target(1.0, 1e-6, 3))
    assert "grid cells" in " ".join(explanation(cells))
    flat = made(query=Sum(Integers(0, 10)), target=Target(1.0, 1e-6, 10, "flat"))
    assert "Every change up to 10 is hidden at epsilon 1" in " ".join(explanation(flat))
    assert "raw value" in " ".join(explanation(made(trusted="curator", protocols=["geometric-central"])))
