"""What a liar can do: formulas against attacks on the real code."""

from __future__ import annotations

import itertools
import json
import math
from dataclasses import asdict, replace
from functools import cache
from typing import Any

import numpy as np
import pytest
from tests.catalogue.small_plans import SMALL, plan_of, values_of
from tests.tables import check_all

import metricshuffle as ms
from metricshuffle.errors import InputError, NotCertified, PlanError
from metricshuffle.planning.lying_participants import simulate_attack
from metricshuffle.protocols.damage import NO_LIMIT, Damage, liar_count
from metricshuffle.protocols.frequencies import Frequencies
from metricshuffle.protocols.record_reports import RecordReports
from metricshuffle.protocols.sums import Sums
from metricshuffle.protocols.tally import Tally
from metricshuffle.queries.summed_query import SummedQuery
from metricshuffle.queries.user_queries import UserHistogram
from metricshuffle.randomizers import BoundedGeometric, KaryRandomizedResponse
from metricshuffle.randomizers.additive_randomizer import AdditiveRandomizer
from metricshuffle.tasks.task import Task

LIMITED = [
    name
    for name in SMALL
    if name.startswith(("sum", "hat", "labels", "line", "bins", "cells"))
    or name in ("mean, nobody", "mean, curator", "users' items", "users' clusters")
    if name != "sum, aggregator"
]
NOT_LIMITED = ["sum, aggregator", "mean", "centroid", "quantiles", "users' tree", "users' mean"]


def answer_of(task: Task, tally: Tally) -> Any:
    """Answer that is linear in the reports, in units of the query's error, by axis or cell."""
    shuffled = task.publish(tally, ms.Randomness.seeded("the same noise"))
    estimate = task.protocol.estimate(task.query, shuffled)
    people = shuffled.people
    if isinstance(task.query, SummedQuery):
        whole = np.array(estimate.origin[: task.query.axes], dtype=np.float64)
        return (estimate.totals + whole) * task.query.error_scales(people, task.protocol.step)
    return estimate.totals / people


def size_of(task: Task, change: Any) -> float:
    """Size of a change of the answer as damage measures it."""
    query = task.query
    if isinstance(query, UserHistogram):
        edges = query.below_edges
        assert edges is not None
        return float(np.abs(change @ edges.table).sum())
    return float(np.linalg.norm(change) if isinstance(query, SummedQuery) else abs(change).max())


@cache
def honest_tally(name: str) -> Tally:
    """Everybody's honest reports but that of the last one."""
    task = plan_of(name).task
    inputs = task.query.inputs(values_of(name), task.protocol.step)
    messages = task.protocol.messages(inputs, ms.Randomness.seeded(name))
    return task.tally().add(messages[:-1])


def lies_of(task: Task, count: int, generator: np.random.Generator) -> Any:
    """Random reports that are counted, and the extreme ones; all single reports if few."""
    protocol = task.protocol
    if isinstance(protocol, Frequencies):
        outputs = protocol.randomizer.outputs
        count = min(count, outputs if protocol.items == 1 else 200, 500)
        reports = generator.integers(outputs, size=(count, protocol.items))
        # The same report for all items is worse than a mixture.
        some = min(outputs, count)
        reports[:some] = np.linspace(0, outputs - 1, some).astype(np.int64)[:, None]
    else:
        assert isinstance(protocol, Sums)
        top = max(randomizer.length for randomizer in protocol.randomizers)
        below = top + 1 if protocol.modulus is None else protocol.modulus
        reports = generator.integers(below, size=(count, protocol.layout.numbers))
        reports[0], reports[1] = 0, below - 1
        reports[2] = protocol.lies(task.query, 1)[0]
        if protocol.visible:
            reach = protocol.reach(protocol.randomizers[0])
            reports[1] = (below - min(reach, below // 2)) % below
    return reports.astype(protocol.layout.type)


def attacked_answers(name: str, attacks: int, liars: int = 1) -> list[Any]:
    task = plan_of(name).task
    generator = np.random.default_rng(5)
    answers = []
    for lie in lies_of(task, attacks, generator):
        rows = np.repeat(lie[None], liars, axis=0)
        answers.append(answer_of(task, honest_tally(name).merge(task.tally().add(rows))))
    return answers


def widest(task: Task, answers: list[Any]) -> float:
    """Largest difference between two of the answers: all pairs with one of the worst."""
    far = max(answers, key=lambda answer: size_of(task, answer - answers[0]))
    pivots = [answers[0], far, *answers[1:4]]
    return max(size_of(task, answer - pivot) for answer in answers for pivot in pivots)


def check_attacks(name: str, attacks: int, liars: int) -> None:
    task = plan_of(name).task
    people = honest_tally(name).people + liars
    try:
        task.check_batch(people)
    except PlanError:
        return  # more people than the modulus has room for
    limit = task.protocol.damage(task.query, people).of(liars)
    assert limit is not None
    moved = widest(task, attacked_answers(name, attacks, liars))
    assert 0.5 * limit <= moved <= limit * (1.0 + 1e-9), f"{moved} of {limit}"


@check_all("name", LIMITED)
def test_no_attack_moves_an_answer_farther_and_some_go_half_as_far(name: str) -> None:
    check_attacks(name, 60, 1)


@pytest.mark.thorough
@check_all("name", LIMITED)
def test_thousands_of_attacks(name: str) -> None:
    check_attacks(name, 2000, 1)


@check_all("name", [name for name in LIMITED if SMALL[name].protocol != "geometric-local"])
def test_five_liars_do_five_times_as_much(name: str) -> None:
    check_attacks(name, 30, 5)


@check_all("name", NOT_LIMITED)
def test_what_nobody_sees_has_no_limit(name: str) -> None:
    """One liar moves the answer by a quarter of the range or more."""
    plan = plan_of(name)
    assert plan.choice.damage == plan.task.damage == NO_LIMIT
    attack = simulate_attack(plan.task, plan.users, 1, 1, ms.Randomness.seeded(3))
    assert attack.error_with > 2.0 * attack.error_without


@cache
def mean_plan(padding: Any = "clamp", trusted: Any = "shuffler") -> ms.Plan:
    query = ms.Mean(ms.Integers(0, 100))
    return ms.plan(query, ms.Target(1.0, 1e-6, 10.0), 400, padding=padding, trusted=trusted)


def damage_in_units(plan: ms.Plan, protocol: str, encoding: str, shape: int | None) -> float:
    offer = next(
        offer
        for offer in plan.candidates
        if (offer.protocol, offer.encoding, offer.shape) == (protocol, encoding, shape)
    )
    assert offer.damage is not None
    assert offer.damage.one is not None
    assert offer.damage.certified
    return 400.0 * offer.damage.one


def test_golden_numbers_of_a_mean() -> None:
    """A mean of 0..100 of 400 people, epsilon 1 at 10: how far a liar moves the sum."""
    clamped, bounded = mean_plan("clamp"), mean_plan("bounded")
    for plan, whole, shared in ((clamped, 350, 166), (bounded, 336, 126)):
        assert damage_in_units(plan, "polya-shuffle", "unary", 1) == pytest.approx(whole)
        assert damage_in_units(plan, "geometric-shuffle", "unary", 400) == pytest.approx(shared)
    response = damage_in_units(clamped, "randomized-response-shuffle", "unary", None)
    flip = next(offer.flip for offer in clamped.candidates if offer.flip is not None)
    assert response == pytest.approx(100.0 / (1.0 - 2.0 * flip))
    assert damage_in_units(clamped, "geometric-central", "modular", None) == pytest.approx(100.0)
    local = damage_in_units(clamped, "geometric-local", "modular", None)
    assert local == pytest.approx(100.0 + 2.0 * 701.0)  # ceil(70 / rate), rate just below 0.1


def test_golden_numbers_of_shares() -> None:
    """k-ary response reads a share out as 1/(p - q) or 0 more or less."""
    randomizer = KaryRandomizedResponse(8, 2.0)
    keep = math.exp(2.0) / (math.exp(2.0) + 7.0)
    other = 1.0 / (math.exp(2.0) + 7.0)
    protocol = Frequencies(name="k-ary", trusted="nobody", randomizer=randomizer)
    damage = protocol.damage(ms.Histogram(ms.Integers(0, 7)), 400)
    assert damage.one == pytest.approx(1.0 / (keep - other) / 400.0)
    assert not damage.certified
    decay = math.exp(-0.5)
    geometric = Frequencies(
        name="bounded-geometric", trusted="nobody", randomizer=BoundedGeometric(9, 0.5)
    )
    width = (1.0 + decay + decay**2) / (1.0 - decay) ** 2  # largest and smallest: adjacent reports
    found = geometric.damage(ms.Histogram(ms.Integers(0, 9)), 400).one
    assert found == pytest.approx(width / 400.0, rel=1e-6)


def test_lies_can_no_longer_wrap_a_local_sum_or_a_curators() -> None:
    """Residues moved such a mean by half of the range; now each is clamped, and no sum wraps."""
    kinds: Any = (("nobody", "geometric-local"), ("curator", "geometric-central"))
    for trusted, protocol in kinds:
        query = ms.Mean(ms.Integers(0, 100))
        plan = ms.plan(
            query, ms.Target(1.0, 1e-6, 10.0), 400, trusted=trusted, protocols=[protocol]
        )
        task = plan.task
        for liars in (1, 40):
            attack = simulate_attack(task, 400, liars, 3, ms.Randomness.seeded(7))
            limit = attack.damage.of(liars)
            assert limit is not None
            assert 0.5 * limit - 2.0 <= attack.excess <= limit
        modulus = task.protocol.modulus or 0
        half = np.full((1, 1), modulus // 2, dtype=np.uint64)
        assert task.protocol.counted(half)[0][0] <= 100 + 701
        with pytest.raises(InputError, match="residues must lie in"):
            task.protocol.counted(np.full((1, 1), modulus, dtype=np.uint64))


RECORDS: dict[str, tuple[ms.Query, float, str]] = {
    "sets": (ms.Sets(list("abcd"), size=2), 4.0, "priv-set"),
    "rows of signs": (ms.Means(["x", "y", "z"], ms.Interval(-1.0, 1.0)), 6.0, "duchi"),
    "one of the columns": (ms.Means(["x", "y"], ms.Integers(5, 20, "kg")), 30.0, "harmony"),
}


@pytest.mark.parametrize("name", RECORDS)
def test_all_reports_of_records_move_an_answer_as_far_as_certified(name: str) -> None:
    """Every pair of reports, next to people whose answers are in the middle of the range."""
    query, distance, protocol = RECORDS[name]
    target = ms.Target(2.0, 1e-6, distance, "flat")
    task = ms.plan(query, target, 400, protocols=[protocol]).task
    assert isinstance(task.protocol, RecordReports)
    marks = task.protocol.marks
    if protocol == "duchi":
        reports = np.array(list(itertools.product([0, 1], repeat=marks.each)))
    else:
        reports = np.array(list(itertools.combinations(range(marks.kinds), marks.each)))
    middle = np.tile(reports, (400 // len(reports) + 1, 1)).astype(task.protocol.layout.type)
    answers = []
    for report in reports.astype(middle.dtype):
        tally = task.tally().add(middle).add(report[None])
        estimate = task.protocol.estimate(query, task.publish(tally))
        answers.append(estimate.totals * getattr(query, "step", 1.0))
    moved = np.abs(np.array(answers)[:, None] - np.array(answers)).max()
    damage = task.protocol.damage(query, len(middle) + 1)
    assert damage.certified
    assert damage.one == pytest.approx(moved, rel=1e-8)
    assert task.damage is not None
    assert task.damage.certified
    for changed in (reports[:1, :1], np.repeat(reports[:1, :1], marks.each, axis=1) * 0):
        if marks.each > 1 and protocol != "duchi":
            with pytest.raises(PlanError):  # a report of other marks is not counted
                task.tally().add(changed.astype(middle.dtype))


def test_what_honest_people_send_is_never_changed() -> None:
    """The sum of clamped numbers is that of the reports themselves."""
    task = plan_of("mean, nobody").task
    protocol = task.protocol
    assert isinstance(protocol, Sums)
    randomizer = protocol.randomizers[0]
    values = np.repeat([0, randomizer.span], 20_000)
    reports = randomizer.reports(values, ms.Randomness.seeded(2))
    residues = np.mod(reports, protocol.modulus or 0).astype(np.uint64).reshape(-1, 1)
    assert protocol.counted(residues)[0][0] == int(reports.sum())
    reach = protocol.reach(randomizer)
    assert isinstance(randomizer, AdditiveRandomizer)
    assert 2.0 * math.exp(-randomizer.rate * reach) <= 2.0 * math.exp(-70.0)


def test_tallies_of_earlier_versions_are_read() -> None:
    """They hold residues, also of sums below 0."""
    task = plan_of("mean, nobody").task
    modulus = task.protocol.modulus
    assert modulus is not None
    old = replace(task.tally(), people=3, messages=3, sums={0: [modulus - 4]}, modulus=modulus)
    read = task.tally(old.to_bytes())
    assert (read.numbers, read.modulus, read.people) == ([-4], None, 3)
    empty = task.tally(replace(task.tally(), modulus=modulus).to_bytes())
    assert (empty.people, empty.modulus, dict(empty.sums)) == (0, None, {})
    other = replace(old, modulus=modulus + 1)
    with pytest.raises(PlanError, match="another modulus"):
        task.tally(other.to_bytes())
    wide = replace(old, sums={0: [1, 2]})
    with pytest.raises(PlanError, match="rows of 1 sums"):
        task.tally(wide.to_bytes())


# Claims


def claimed(task: Task, damage: Damage | None) -> Task:
    fields = {name: getattr(task, name) for name in type(task).model_fields if name != "digest"}
    return Task(**fields | {"damage": damage})


@check_all("name", ["sum", "labels", "mean", "hat"])
def test_a_task_that_claims_too_little_is_refused(name: str) -> None:
    task = plan_of(name).task
    true = task.damage
    assert true is not None
    task.verify()
    claimed(task, None).verify()
    claimed(task, NO_LIMIT).verify()
    less = Damage(1.0 if true.one is None else 0.999 * true.one, certified=False)
    with pytest.raises(NotCertified, match="claims too little damage"):
        claimed(task, less).verify()
    if true.one is not None:
        claimed(task, Damage(2.0 * true.one, certified=true.certified)).verify()
        if not true.certified:
            with pytest.raises(NotCertified, match="that is not certified"):
                claimed(task, Damage(true.one, certified=True)).verify()


def test_old_tasks_and_plans_are_read_and_keep_their_digest() -> None:
    plan = plan_of("sum")
    assert plan.task.damage is not None
    document = json.loads(plan.to_json())
    assert document["candidates"][plan.chosen]["damage"] == asdict(plan.task.damage)
    assert document["task"]["damage"] == asdict(plan.task.damage)
    old_task = claimed(plan.task, None)
    stored = json.loads(old_task.to_json())
    assert "damage" not in stored
    assert Task.from_json(json.dumps(stored)) == old_task
    old = plan.model_copy(
        update={
            "task": old_task,
            "candidates": tuple(
                offer.model_copy(update={"damage": None}) for offer in plan.candidates
            ),
        }
    )
    read = ms.Plan.from_json(old.to_json())
    assert read.choice.damage is None
    assert "participant who lies" not in str(read)
    assert read.run(values_of("sum")).damage == plan.task.damage


def test_a_damaged_claim_is_refused_in_words() -> None:
    for wrong in (-1.0, math.inf, math.nan):
        with pytest.raises(InputError, match="damage must be a finite number"):
            Damage(wrong, certified=True)


def test_a_release_of_fewer_people_says_more_damage() -> None:
    query = ms.Mean(ms.Integers(0, 100))
    plan = ms.plan(
        query,
        ms.Target(1.0, 1e-6, 10.0),
        400,
        0.5,
        protocols=["randomized-response-shuffle"],
    )
    release = plan.run([50] * 200)
    assert plan.task.damage is not None
    assert plan.task.damage.one is not None
    assert release.damage.one == pytest.approx(2.0 * plan.task.damage.one)
    assert json.loads(release.to_json())["damage"] == asdict(release.damage)
    assert release.damage.sentence(query) in str(release)


# Words and numbers


def test_sentences_round_up_and_name_the_unit() -> None:
    years = ms.Mean(ms.Integers(0, 100, "years"))
    labels = ms.Histogram(ms.Categories(["a", "b"]))
    assert Damage(0.83341, certified=True).sentence(years) == (
        "One participant who lies can move the answer by at most 0.8335 years."
    )
    assert Damage(0.5, certified=True).sentence(years, 1200) == (
        "1,200 participants who lie together can move the answer by at most 600 years."
    )
    assert Damage(0.0055, certified=False).sentence(labels) == (
        "One participant who lies can move a share by about 0.55 %; that is not certified."
    )
    assert NO_LIMIT.sentence(labels) == (
        "Nothing limits how far one participant who lies can move the answer."
    )
    assert NO_LIMIT.text(years) == "no limit"


def test_liars_are_counted() -> None:
    assert [liar_count(liars, 400) for liars in (1, "7", "1%", "0.3%", 0.01, "50 %")] == [
        1,
        7,
        4,
        2,
        4,
        200,
    ]
    for wrong in (0, -1, True, "x", "-1%", "0%", "100%", 1.5, math.nan, None, ""):
        with pytest.raises(InputError, match="must be a whole number >= 1 or a percentage"):
            liar_count(wrong, 400)  # type: ignore[arg-type]
    with pytest.raises(InputError, match=r"\(401\) cannot exceed the number of people \(400\)"):
        liar_count(401, 400)
    damage = Damage(0.25, certified=True)
    assert (damage.of(0), NO_LIMIT.of(0), NO_LIMIT.of(2)) == (0.0, 0.0, None)
    assert damage.of(4) == pytest.approx(1.0)
    assert damage.keeps(1.0, 4)
    assert not damage.keeps(0.99, 4)
    assert not Damage(0.25, certified=False).keeps(1.0)
    assert not NO_LIMIT.keeps(1e300)
    with pytest.raises(InputError, match="must be a whole number >= 0"):
        damage.of(-1)


@check_all("name", [*LIMITED, *NOT_LIMITED, "share above", "users' mean, curator"])
def test_simulated_lies_stay_within_error_and_damage(name: str) -> None:
    plan = plan_of(name)
    for liars in (1, 2):
        attack = simulate_attack(plan.task, plan.users, liars, 3, ms.Randomness.seeded(1))
        limit = attack.damage.of(liars)
        if attack.damage.certified and limit is not None:
            assert attack.excess <= limit * (1.0 + 1e-9)
            assert 0.4 * limit <= attack.moved <= limit * (1.0 + 1e-9)
            assert attack.error_with <= attack.error_without + limit * (1.0 + 1e-9)
