"""Releases of whole plans, for every query and protocol: values, errors, intervals and files."""

from __future__ import annotations

import itertools
import json
import math
import sys
from functools import cache
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from tests.catalogue.small_plans import SMALL, answered, plan_of, truth_of, values_of
from tests.tables import check_all

from metricshuffle.errors import (
    BatchTooSmall,
    InputError,
    MetricShuffleError,
    MissingExtra,
    PlanError,
)
from metricshuffle.models import content_digest
from metricshuffle.planning import Plan, plan
from metricshuffle.privacy.target import Target
from metricshuffle.protocols.sums import Sums
from metricshuffle.queries import Centroid, Mean, Sum, Table
from metricshuffle.queries.summed_query import SummedQuery
from metricshuffle.randomness import Randomness
from metricshuffle.spaces import Grid, Integers, Interval
from metricshuffle.tasks.release import Release

TARGET = Target(1.0, 1e-3, 4)
PLANS: dict[str, dict[str, Any]] = {
    "one person": {"users": 1, "protocols": ["geometric-local"]},
    "two people": {"users": 2, "protocols": ["geometric-local"], "query": Sum(Integers(100, 140))},
    "three people and a curator": {
        "users": 3,
        "protocols": ["geometric-central"],
        "trusted": "curator",
    },
    "a curator of real numbers": {
        "query": Mean(Interval(-3, 9)),
        "users": 21,
        "protocols": ["geometric-central"],
        "trusted": "curator",
    },
    "unary shares": {"users": 3, "protocols": ["polya-shuffle"], "encoding": "unary"},
    "unary geometric": {
        "users": 19,
        "honest": 17,
        "protocols": ["geometric-shuffle"],
        "encoding": "unary",
        "padding": "bounded",
    },
    "shares, many missing": {
        "users": 61,
        "honest": 19,
        "protocols": ["polya-shuffle"],
        "encoding": "modular",
        "present": 23,
    },
    "aggregator": {
        "users": 3,
        "honest": 2,
        "protocols": ["polya-shuffle"],
        "encoding": "modular",
        "transport": "aggregator",
        "present": 2,
    },
    "rounded shares": {
        "users": 33,
        "granularity": 3,
        "protocols": ["geometric-shuffle"],
        "encoding": "modular",
    },
    "real numbers": {
        "query": Sum(Interval(-3, 9.1)),
        "users": 25,
        "granularity": 0.5,
        "protocols": ["polya-shuffle"],
        "encoding": "unary",
    },
    "randomized response": {
        "query": Sum(Integers(5, 8)),
        "users": 31,
        "target": Target(3.0, 1e-2, 3),
        "encoding": "unary",
        "protocols": ["randomized-response-shuffle"],
    },
    "centroid": {
        "query": Centroid(Grid(11, 7, cell=2.0)),
        "users": 19,
        "protocols": ["polya-shuffle"],
        "encoding": "modular",
    },
}


def planned(name: str) -> tuple[Plan, int]:
    choices = {"query": Mean(Integers(-20, 20)), "target": TARGET} | PLANS[name]
    query, target, users, present = (
        choices.pop(key, None) for key in ("query", "target", "users", "present")
    )
    return plan(query, target, users, **choices), present or users


@pytest.mark.parametrize("name", PLANS)
def test_intervals_hold_the_truth_in_units_of_the_query(name: str) -> None:
    """Sixty releases each: intervals of two levels cover, and mean errors are as expected."""
    plan_made, people = planned(name)
    query = plan_made.query
    assert isinstance(query, SummedQuery)
    if query.axes == 2:
        values: Any = np.stack([np.arange(people) % 11, np.arange(people) % 7], axis=1)
        truth = (values.mean(axis=0) + 0.5) * 2.0
    else:
        assert isinstance(query.domain, Integers | Interval)
        low = query.domain.low
        high = query.domain.high
        values = low + (high - low) * (np.arange(people) % 5) / 4
        values = values if isinstance(query.domain, Interval) else values.astype(int)
        truth = np.array([values.sum() if query.kind == "sum" else values.mean()])
    runs = 60
    held = {0.5: 0, 0.95: 0}
    errors = []
    randomness = Randomness.seeded(name)
    for _ in range(runs):
        release = plan_made.run(values, randomness)
        errors.append(np.linalg.norm(np.atleast_1d(release.value) - truth))
        for level in held:
            interval = np.atleast_2d(release.interval(level))
            held[level] += bool(((interval[:, 0] <= truth) & (truth <= interval[:, 1])).all())
    assert held[0.5] >= 14  # fewer has probability below 3e-5 at a coverage of one half
    assert held[0.95] >= 49
    if people == plan_made.users:
        assert np.mean(errors) == pytest.approx(plan_made.choice.expected_error, rel=0.45)


def test_real_numbers_all_off_to_one_side_are_inside_the_interval() -> None:
    """Half a fine step each, all in the same direction, is part of the interval."""
    query = Sum(Interval(0.0, 1.0))
    plan_made = plan(
        query,
        Target(500.0, 1e-6, 1.0),
        19,
        granularity=1.0,
        encoding="modular",
        protocols=["polya-shuffle"],
    )
    half = query.step(1.0) * query.snapping
    assert half == 0.5 / 4096
    release = plan_made.run(np.zeros(19), Randomness.seeded(0))
    assert release.value == 0.0
    assert isinstance(plan_made.protocol, Sums)
    noise = plan_made.protocol.half_widths(19, 0.95)[0] * query.step(1.0)
    assert release.interval(0.95)[1] == pytest.approx(noise + 19 * half)


# --- every query and protocol ---


@cache
def released(name: str) -> Release:
    return plan_of(name).run(values_of(name), Randomness.seeded(f"release of {name}"))


@check_all("name", SMALL)
def test_a_release_has_a_value_an_error_and_an_interval(name: str) -> None:
    """In the query's shape; unbiased within six standard errors, inside the interval."""
    release = released(name)
    unbiased, errors, interval = answered(release)
    truth = truth_of(name, values_of(name))
    assert unbiased.shape == truth.shape == (len(interval),)
    if release.answer.standard_error is None:
        with pytest.raises(InputError, match=r"has intervals.* no standard error; ask"):
            _ = release.standard_error
        inside = (interval[:, 0] <= truth) & (truth <= interval[:, 1])
        assert inside.all()
    else:
        assert errors.shape == truth.shape
        assert np.all(errors > 0.0)
        assert np.all(np.abs(unbiased - truth) <= 6.0 * errors)
    assert np.all(interval[:, 0] <= interval[:, 1])
    if isinstance(release.value, Table):
        assert len(release.value) == len(truth)
        if release.answer.standard_error is not None:
            assert np.array_equal(np.asarray(release.standard_error), errors)
        if "count" in release.value.columns:
            shares = np.asarray(release.value["share"])
            assert shares.min() >= 0.0
            assert shares.sum() == pytest.approx(1.0)
            assert np.allclose(np.asarray(release.value["count"]), shares * release.reports)
            assert np.all((interval[:, 0] <= shares + 1e-12) & (shares <= interval[:, 1] + 1e-12))
    elif release.plane is None:
        assert np.array_equal(np.atleast_1d(release.value), unbiased)
        assert np.array_equal(np.atleast_1d(release.standard_error), errors)
    assert (release.round, release.rounds, release.reports) == (1, 1, plan_of(name).users)
    assert release.plan == plan_of(name).digest
    assert (release.protocol, release.query) == (SMALL[name].protocol, plan_of(name).query)
    assert release.guarantee == plan_of(name).guarantee
    assert release.if_shuffler_colludes == plan_of(name).if_shuffler_colludes
    assert release.expected_error == plan_of(name).choice.expected_error


@check_all("name", SMALL)
def test_intervals_grow_with_their_level(name: str) -> None:
    """Every end moves outwards, or stays where nothing more is possible."""
    release = released(name)
    ends = [answered(release, level)[2] for level in (0.5, 0.9, 0.95, 0.999)]
    for narrow, wide in itertools.pairwise(ends):
        assert np.all(wide[:, 0] <= narrow[:, 0])
        assert np.all(wide[:, 1] >= narrow[:, 1])
    for level in (0.0, 1.0, -0.5, math.nan):
        with pytest.raises(InputError, match="level"):
            release.interval(level)
    with pytest.raises(InputError, match="method"):
        release.interval(method="exact")  # type: ignore[arg-type]


@check_all("name", SMALL)
def test_simultaneous_intervals_are_for_tables(name: str) -> None:
    """They are wider; numbers and places have none, because theirs hold jointly as they are."""
    release = released(name)
    if isinstance(release.value, Table):
        alone = release.interval(0.9)
        together = release.interval(0.9, simultaneous=True)
        assert np.all(together[:, 0] <= alone[:, 0])
        assert np.all(together[:, 1] >= alone[:, 1])
        assert len(alone) == 1 or not np.array_equal(alone, together)
    else:
        for method in ("normal", "bernstein"):
            with pytest.raises(InputError, match="for tables"):
                release.interval(0.9, simultaneous=True, method=method)


@check_all("name", SMALL)
def test_a_release_read_from_its_file_answers_as_before(name: str, tmp_path: Path) -> None:
    """Same value, text and intervals: the file has the task and the tally."""
    release = released(name)
    path = str(tmp_path / "release.json")
    release.save(path)
    again = Release.load(path)
    assert again.to_json() == release.to_json()
    assert str(again) == str(release)
    assert repr(again) == repr(release)
    for level in (0.2, 0.5, 0.9, 0.95, 0.999):
        assert np.array_equal(
            np.asarray(again.interval(level)), np.asarray(release.interval(level))
        )
    if isinstance(release.value, Table):
        assert np.array_equal(
            again.interval(0.8, simultaneous=True), release.interval(0.8, simultaneous=True)
        )
        assert np.array_equal(
            again.interval(0.8, method="bernstein"), release.interval(0.8, method="bernstein")
        )
    assert (again.raw_values_seen, again.unsafe_seeded) == (True, True)
    assert again.expected_error == release.expected_error


def edited(document: dict[str, Any], *, checksum: bool = True) -> str:
    """A release file again, with a checksum that fits if wanted."""
    content = {key: value for key, value in document.items() if key != "checksum"}
    return json.dumps(
        {**content, "checksum": content_digest(content) if checksum else document["checksum"]}
    )


@check_all("name", SMALL)
def test_an_edited_value_is_refused_even_with_a_new_checksum(name: str) -> None:
    """The answer is computed again from the tally."""
    document = json.loads(released(name).to_json())
    assert Release.from_json(edited(document)).reports == plan_of(name).users
    value = document["value"]
    if isinstance(value, list) and isinstance(value[0], dict):
        key = "share" if "share" in value[0] else "value"
        value[0][key] += 0.01
    elif isinstance(value, list):
        value[1] += 0.01
    else:
        document["value"] = value + 0.01
    for checksum in (True, False):
        with pytest.raises(PlanError, match="edited or damaged"):
            Release.from_json(edited(document, checksum=checksum))


@check_all(
    "damage",
    ["raw_values_seen", "unsafe_seeded", "reports", "guarantee", "expected_error", "task", "tally"],
)
def test_nothing_of_a_release_can_be_edited_alone(damage: str) -> None:
    """Neither the warning that a seed was used, nor that raw values were seen, nor the promise."""
    document = json.loads(released("labels").to_json())
    changed = {
        "raw_values_seen": False,
        "unsafe_seeded": False,
        "reports": 599,
        "expected_error": 0.0,
        "task": {},
        "tally": None,
        "guarantee": document["guarantee"] | {"epsilon": 0.1},
    }
    assert document[damage] != changed[damage]
    with pytest.raises(PlanError, match=r"edited or damaged.*\.$"):
        Release.from_json(json.dumps(document | {damage: changed[damage]}))


def test_a_release_of_fewer_people_than_were_counted_on_is_refused() -> None:
    """Also if its file says so consistently: the guarantee does not cover it."""
    document = json.loads(released("labels").to_json())
    counts = document["tally"]["sums"]["0"]
    document["tally"] |= {"people": 599, "sums": {"0": [counts[0] - 1, *counts[1:]]}}
    with pytest.raises(BatchTooSmall, match="at least 600"):
        Release.from_json(edited(document))
    damages: list[dict[str, Any]] = [
        {"people": 0},
        {"people": "many"},
        {"sums": {}},
        {"sums": {"0": []}},
        {"sums": {"x": [1]}},
        {"round": 2},
        {"round": 0},
    ]
    for damage in damages:
        with pytest.raises(MetricShuffleError, match=r"\.$"):
            Release.from_json(edited(document | {"tally": document["tally"] | damage}))


@check_all("wrong", ["{", "{}", "[]", "3", '{"format": "metricshuffle-release/1"}'])
def test_other_texts_are_refused_as_a_release(wrong: str) -> None:
    """Other texts are named."""
    with pytest.raises(PlanError, match="this is not a release"):
        Release.from_json(wrong)


@check_all("name", SMALL)
def test_a_release_and_a_plan_are_short_to_look_at(name: str) -> None:
    """What an interpreter prints fits in five lines."""
    for shown in (repr(released(name)), repr(plan_of(name)), repr(plan_of(name).task)):
        assert 1 <= len(shown.splitlines()) <= 5
        assert len(shown) <= 400


@pytest.fixture
def frames(monkeypatch: pytest.MonkeyPatch) -> None:
    """Stand-in for pandas with dictionaries of columns, so that the tests run anywhere."""
    stand_in = ModuleType("pandas")
    stand_in.__spec__ = ModuleSpec("pandas", None)
    stand_in.DataFrame = dict  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "pandas", stand_in)


@check_all("name", SMALL)
@pytest.mark.usefixtures("frames")
def test_a_plan_is_a_frame_of_its_candidates(name: str) -> None:
    """A row each, in the order of the table, with the chosen one marked."""
    plan = plan_of(name)
    frame = plan.to_frame()
    assert {len(column) for column in frame.values()} == {len(plan.candidates)}
    assert frame["protocol"] == [offer.protocol for offer in plan.candidates]
    assert frame["expected_error"] == [offer.expected_error for offer in plan.candidates]
    assert frame["epsilon"] == [offer.guarantee.epsilon for offer in plan.candidates]
    assert [place for place, chosen in enumerate(frame["chosen"]) if chosen] == [plan.chosen]


@check_all("name", SMALL)
@pytest.mark.usefixtures("frames")
def test_a_release_is_a_frame(name: str) -> None:
    """A row for each cell or axis, with values and interval ends as plain numbers."""
    release = released(name)
    frame = release.to_frame()
    unbiased, errors, interval = answered(release)
    assert {len(column) for column in frame.values()} == {len(unbiased)}
    json.dumps(frame)  # nothing of numpy is left in it
    if isinstance(release.value, Table):
        assert list(frame) == list(release.value.columns)
    else:
        assert list(frame) == ["label", "value", "standard_error", "low_95", "high_95"]
        assert np.array_equal(frame["value"], np.atleast_1d(release.value))
        ends = np.atleast_2d(np.asarray(release.interval(0.95)))
        assert np.array_equal(np.column_stack([frame["low_95"], frame["high_95"]]), ends)
        if release.plane is None:
            assert np.array_equal(frame["standard_error"], errors)
            assert np.array_equal(ends, interval)


def test_without_a_library_for_frames_a_release_says_which_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A sentence, and nothing else is lost."""
    monkeypatch.setattr("metricshuffle.queries.result_table.find_spec", lambda name: None)
    for wanted in ("mean", "labels"):
        with pytest.raises(MissingExtra, match=r"pandas, polars or pyarrow.*pip install"):
            released(wanted).to_frame()


@check_all("name", SMALL)
def test_a_release_says_what_spoils_it(name: str) -> None:
    """Both guarantees, and the notes about raw values and seeds only where they apply."""
    told = str(released(name))
    trusted = plan_of(name).choice.trusted
    assert (f"If the {trusted} is honest" in told) == (trusted != "nobody")
    assert "UNSAFE" in told
    assert "whoever ran it saw the raw values" in told
    if trusted != "curator":
        plan_made = plan_of(name)
        clean = str(plan_made.estimate(plan_made.shuffle(plan_made.randomize(values_of(name)))))
        assert "UNSAFE" not in clean
        assert "saw the raw values" not in clean
