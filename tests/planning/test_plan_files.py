"""Plan and task files of every query: round trip, size, and rejection of changes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.catalogue.small_plans import SMALL, plan_of, values_of
from tests.tables import check_all

import metricshuffle as ms
from metricshuffle.errors import PlanError
from metricshuffle.models import content_digest
from metricshuffle.protocols.frequencies import Frequencies
from metricshuffle.protocols.noisy_answers import NoisyAnswers
from metricshuffle.randomness import Randomness

LARGEST_TASK = 64 * 1024


@pytest.mark.parametrize("name", SMALL)
def test_a_plan_and_its_task_are_read_back_whole(name: str, tmp_path: Path) -> None:
    """The same digest, words and mechanism; the same seed makes the same release of it."""
    plan = plan_of(name)
    plan.save(str(tmp_path / "plan.json"), str(tmp_path / "task.json"))
    again = ms.Plan.load(str(tmp_path / "plan.json"))
    task = ms.Task.load(str(tmp_path / "task.json"))
    assert again.digest == plan.digest == task.digest
    assert again.to_json() == plan.to_json()
    assert task.to_json() == plan.task.to_json()
    assert (str(again), repr(again), str(task)) == (str(plan), repr(plan), str(plan.task))
    assert again.choice.mechanism == again.protocol == plan.protocol
    assert [
        offer.mechanism is None
        for index, offer in enumerate(again.candidates)
        if index != again.chosen
    ] == [True] * (len(again.candidates) - 1)
    values = values_of(name)
    releases = [made.run(values, Randomness.seeded(2)).to_json() for made in (plan, again)]
    assert releases[0] == releases[1]
    assert task.run(values, Randomness.seeded(2)).value is not None


@check_all("name", SMALL)
def test_an_edited_plan_or_task_is_refused(name: str) -> None:
    """A weaker noise, a stronger promise, another number of honest people, or another choice."""
    text = plan_of(name).to_json()
    edits: list[tuple[str, ...]] = [
        ("honest",),
        ("chosen",),
        ("digest",),
        ("task", "honest"),
        ("task", "users"),
        ("task", "guarantee", "epsilon"),
        ("task", "guarantee", "sentence"),
        ("task", "protocol", "trusted"),
        ("target", "epsilon"),
        ("checksum",),
    ]
    for path in edits:
        document = json.loads(text)
        holder: Any = document
        for step in path[:-1]:
            holder = holder[step]
        holder[path[-1]] = (
            holder[path[-1]] + 1
            if isinstance(holder[path[-1]], int | float)
            else "aggregator"
            if holder[path[-1]] != "aggregator"
            else "nobody"
        )
        with pytest.raises(PlanError, match=r"edited or damaged.*\.$"):
            ms.Plan.from_json(json.dumps(document))
        if path[0] == "task":
            with pytest.raises(PlanError, match=r"edited or damaged.*ask for it again\.$"):
                ms.Task.from_json(json.dumps(document["task"]))


@check_all(
    "wrong",
    [
        "{",
        "{}",
        "[]",
        "null",
        '"task"',
        '{"format": "metricshuffle-task/9"}',
        '{"format": "metricshuffle-task/1"}',
    ],
)
def test_other_texts_are_refused_as_a_task(wrong: str) -> None:
    """Other texts are named."""
    with pytest.raises(PlanError, match=r"task.*\.$"):
        ms.Task.from_json(wrong)


def test_a_release_and_a_task_are_not_plans() -> None:
    """Each file says what it is, and none is taken for another."""
    plan = plan_of("labels")
    release = plan.run(values_of("labels"), Randomness.seeded(0))
    for text in (plan.task.to_json(), release.to_json()):
        with pytest.raises(PlanError, match="this is not a plan: its format is 'metricshuffle-"):
            ms.Plan.from_json(text)
    with pytest.raises(PlanError, match="this is not a task: its format is 'metricshuffle-plan/2'"):
        ms.Task.from_json(plan.to_json())
    with pytest.raises(
        PlanError, match="this is not a release: its format is 'metricshuffle-task/1'"
    ):
        ms.Release.from_json(plan.task.to_json())


LARGE: dict[str, tuple[Any, ms.Target]] = {
    "line": (ms.Integers(0, 199), ms.Target(1.0, 0.0, 10.0)),
    "nested squares": (ms.nested_squares(4, 16.0), ms.Target(1.0, 0.0, 2.0)),
    "clusters": (ms.Clustered(20, 10, 0.1), ms.Target(1.0, 0.0, 0.5)),
}


@pytest.mark.parametrize("name", LARGE)
def test_the_task_of_two_hundred_points_is_small(name: str) -> None:
    """Spaces that have a formula travel as it: no table of distances, and at most 64 KB."""
    space, target = LARGE[name]
    query = ms.UserHistogram(ms.users_of(space))
    assert query.people.size >= 200
    plan = ms.plan(query, target, 100, trusted="nobody")
    assert len(plan.task.to_json().encode()) <= LARGEST_TASK
    again = ms.Plan.from_json(plan.to_json())
    assert again.digest == plan.digest
    assert isinstance(again.protocol, NoisyAnswers)
    assert again.protocol == plan.protocol
    again.task.verify()


def test_item_wise_reports_of_two_hundred_points_are_small_where_there_are_clusters() -> None:
    """A clustered response has four numbers, and the same reports after a round trip."""
    query = ms.UserHistogram(ms.users_of(ms.Clustered(20, 10, 0.5), 1))
    plan = ms.plan(query, ms.Target(8.0, 1e-3, 1.0), 20, trusted="nobody", protocols=["item-wise"])
    assert len(plan.task.to_json().encode()) <= LARGEST_TASK
    again = ms.Task.from_json(plan.task.to_json())
    assert isinstance(again.protocol, Frequencies)
    assert again.protocol == plan.protocol
    held = np.random.default_rng(0).integers(0, 200, size=(20, 1))
    messages = [task.randomize(held, Randomness.seeded(1)).messages for task in (plan.task, again)]
    assert np.array_equal(messages[0], messages[1])


def test_a_forged_sentence_is_refused_whatever_digest_it_has() -> None:
    """Words for readers follow from the numbers, so no digest fits other words."""
    document = json.loads(plan_of("labels").task.to_json())
    document["guarantee"]["sentence"] = "Everything is hidden."
    again = content_digest({name: value for name, value in document.items() if name != "digest"})
    for digest in (document["digest"], again):
        with pytest.raises(PlanError, match="digest does not match its content"):
            ms.Task.from_json(json.dumps(document | {"digest": digest}))


@check_all("kind", ["", "histogram-", "user-", "real-mean-"])
def test_plans_of_version_1_must_be_made_again(kind: str) -> None:
    """Their files say so, and nothing else is tried."""
    with pytest.raises(PlanError, match=f"'metricshuffle-{kind}plan/1'.*plan again"):
        ms.Plan.from_json(json.dumps({"format": f"metricshuffle-{kind}plan/1", "candidates": []}))
