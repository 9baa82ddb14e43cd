"""Plan files of version 1: those of sums are read, verified and run; the others say that they must be made again.

`tests/golden/plan_v1_*.json` were written by the code before there was one kind of plan.
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from metricshuffle.declared import content_digest
from metricshuffle.errors import NotCertified, PlanError
from metricshuffle.planning import Plan
from metricshuffle.planning.simulate import simulate
from metricshuffle.randomness import Randomness

GOLDEN = Path(__file__).parents[1] / "golden"
NAMES = ["sum", "centroid", "reals"]


def text_of(name: str) -> str:
    return (GOLDEN / f"plan_v1_{name}.json").read_text(encoding="utf-8")


def some_values(plan: Plan, people: int) -> Any:
    if plan.query.kind == "centroid":
        return np.column_stack([np.arange(people) % 9, np.arange(people) % 6])
    domain: Any = plan.query.values_in
    values = np.linspace(domain.low, domain.high, people)
    return values if domain.kind == "interval" else np.rint(values).astype(np.int64)


@pytest.mark.parametrize("name", NAMES)
def test_a_plan_of_sums_is_read_as_it_was(name: str) -> None:
    """The same people, target, candidates and numbers; its task is verified from the noise that it has."""
    data, plan = json.loads(text_of(name)), Plan.load(str(GOLDEN / f"plan_v1_{name}.json"))
    assert data["format"] == "metricshuffle-plan/1"
    assert (plan.users, plan.honest, plan.rounds, plan.chosen) == tuple(data[key] for key in ("users", "honest", "rounds", "chosen"))
    assert plan.target.model_dump() == data["target"]
    assert plan.query.model_dump(mode="json") == data["query"]
    for now, before in zip(plan.candidates, data["candidates"], strict=True):
        assert (now.protocol, now.encoding, now.rate, now.shape) == tuple(before[key] for key in ("protocol", "encoding", "rate", "shape"))
        assert now.expected_error == before["expected_error"]
        assert now.local_epsilon == (math.inf if before["local_epsilon"] is None else before["local_epsilon"])
        assert now.bits_per_user == before["bits_per_user"]
        for promise in ("guarantee", "fallback"):
            told = getattr(now, promise)
            numbers = (told.delta, told.distance, told.bound, told.protects, told.rounds)
            assert numbers == tuple(before[promise][key] for key in ("delta", "distance", "bound", "protects", "rounds"))
            assert told.epsilon == (math.inf if before[promise]["epsilon"] is None else before[promise]["epsilon"])
    plan.task.verify()


@pytest.mark.parametrize("name", NAMES)
def test_a_plan_of_sums_runs_all_roles(name: str) -> None:
    """Randomize, shuffle and estimate, or run by a curator; and it is saved as a plan of today."""
    plan = Plan.from_json(text_of(name))
    values = some_values(plan, plan.users)
    release = plan.run(values, Randomness.seeded(name))
    truth = np.atleast_1d(np.mean(values, axis=0) if plan.query.kind != "sum" else np.sum(values))
    truth = (truth + 0.5) * 2.0 if plan.query.kind == "centroid" else truth
    interval = np.atleast_2d(release.interval(0.9999))
    assert np.all((interval[:, 0] <= truth) & (truth <= interval[:, 1]))
    assert release.expected_error == plan.choice.expected_error
    if plan.choice.trusted == "curator":
        with pytest.raises(PlanError, match="curator"):
            plan.randomize(values)
    else:
        shuffled = plan.shuffle(plan.randomize(values, Randomness.seeded(1)))
        assert plan.estimate(shuffled).reports == plan.users
    assert simulate(plan, 50).expected_error == pytest.approx(plan.choice.expected_error, rel=1e-6)
    again = Plan.from_json(plan.to_json())
    assert json.loads(plan.to_json())["format"] == "metricshuffle-plan/2"
    assert again.task == plan.task
    again.task.verify()


@pytest.mark.parametrize("name", NAMES)
def test_an_edited_plan_of_version_1_is_refused(name: str) -> None:
    """Its digest covers its content, and what is left out or of another kind is told."""
    data = json.loads(text_of(name))
    edits: list[dict[str, Any]] = [
        {"honest": 1},
        {"users": data["users"] + 1},
        {"candidates": []},
        {"candidates": 3},
        {"digest": "0"},
        {"chosen": 0.5},
    ]
    for edit in edits:
        with pytest.raises(PlanError, match=r"digest does not match|cannot be read"):
            Plan.from_json(json.dumps(data | edit))
    for missing in ("query", "candidates", "granularity", "not_offered"):
        content = {key: value for key, value in data.items() if key not in (missing, "digest")}
        with pytest.raises(PlanError, match=r"digest does not match|cannot be read.*plan again"):
            Plan.from_json(json.dumps({**content, "digest": content_digest(content)}))


def test_a_forged_plan_of_version_1_does_not_verify() -> None:
    """A larger rate with a new digest is read, as digests only catch accidents, and its noise is found too little."""
    data = json.loads(text_of("sum"))
    chosen = data["candidates"][data["chosen"]]
    chosen["mechanism"]["randomizers"][0]["rate"] *= 2.0
    content = {key: value for key, value in data.items() if key != "digest"}
    infinite = [row | {key: math.inf for key in ("local_epsilon", "local_epsilon_per_unit", "expected_error") if row.get(key, 0) is None}
                for row in content["candidates"]]  # fmt: skip
    forged = Plan.from_json(json.dumps({**content, "digest": content_digest({**content, "candidates": infinite})}))
    with pytest.raises(NotCertified, match="claims more than is true"):
        forged.task.verify()


@pytest.mark.parametrize("kind", ["histogram", "user", "real-mean"])
def test_other_plans_of_version_1_must_be_made_again(kind: str) -> None:
    """Their files say so, and nothing else is tried."""
    with pytest.raises(PlanError, match=f"'metricshuffle-{kind}-plan/1'.*plan again"):
        Plan.from_json(json.dumps({"format": f"metricshuffle-{kind}-plan/1", "candidates": []}))


def test_a_version_1_plan_of_something_else_is_refused() -> None:
    """Only sums, means and centroids had such plans."""
    data = json.loads(text_of("sum"))
    content = {key: value for key, value in data.items() if key != "digest"}
    content |= {"query": {"kind": "histogram", "domain": {"kind": "integers", "low": 0, "high": 5}, "step": 1.0}, "candidates": []}
    with pytest.raises(PlanError, match="version 1 of a plan is about sums"):
        Plan.from_json(json.dumps({**content, "digest": content_digest(content)}))
