"""Tasks that a hostile reader got past `verify`, or reports past the shuffler: each is refused now."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

import metricshuffle as ms
from metricshuffle.protocols.answer_noise import AnswerNoise
from metricshuffle.randomizers import Channel
from metricshuffle.tasks import write_reports

NUMBERS = ms.Sum(ms.Integers(0, 10))


def forged(task: ms.Task, **protocol: object) -> ms.Task:
    """The same task with other parameters of its protocol, and a digest that fits."""
    changed = task.protocol.model_copy(update=protocol)
    return ms.Task(
        query=task.query,
        protocol=changed,
        users=task.users,
        honest=task.honest,
        rounds=task.rounds,
        guarantee=task.guarantee,
        if_shuffler_colludes=task.if_shuffler_colludes,
    )


def test_more_steps_than_whole_numbers_are_refused_when_planning() -> None:
    """4e9 seconds in microseconds take 1.6e19 steps: they overflowed 64 bits, and 0.01 s became the whole range."""
    with pytest.raises(ms.InputError, match="not told apart exactly"):
        ms.plan(ms.Mean(ms.Interval(0.0, 4e9, "s")), ms.Target(1, 1e-6, 60.0), 1000, granularity=1e-6, trusted="nobody")


@pytest.mark.parametrize("gap", [5e-10, -5e-10, 1e-12 - 1.0])
def test_values_beside_whole_steps_are_not_certified(gap: float) -> None:
    """A linear promise is looked at whole steps only: a pair a hair beside one was looked at by nobody, and raw values passed."""
    apart = 1.0 + gap
    channel = Channel(np.eye(2), distances=[[0.0, apart], [apart, 0.0]])
    protocol = ms.Frequencies(name="k-ary-randomized-response", trusted="shuffler", step=1.0 / apart, randomizer=channel)
    with pytest.raises((ms.NotCertified, ms.ConditionError, ms.InputError)):
        ms.Task.of(ms.Histogram(ms.Integers(0, 1)), protocol, ms.Target(0.01, 1e-9, 1.0), 100, 90)


def test_unary_messages_need_padding() -> None:
    """Without it a negative report wraps around to a legal count."""
    plan = ms.plan(NUMBERS, ms.Target(1, 1e-6, 2), 200, encoding="unary", protocols=["polya-shuffle"])
    assert isinstance(plan.protocol, ms.Sums)
    bare = tuple(randomizer.model_copy(update={"padding": "none"}) for randomizer in plan.protocol.randomizers)
    with pytest.raises(ms.NotCertified, match="no account covers"):
        forged(plan.task, randomizers=bare).verify()


@pytest.fixture(scope="module")
def vectors() -> ms.Task:
    people = ms.users_of(ms.Space(ms.Integers(0, 20)), items=4)
    return ms.plan(ms.UserHistogram(people), ms.Target(1, 1e-6, 2), 100, trusted="curator", protocols=["tree-laplace"]).task


def test_sums_of_vectors_are_no_residues(vectors: ms.Task) -> None:
    vectors.verify()
    with pytest.raises(ms.NotCertified, match=r"residues|added up"):
        forged(vectors, modulus=25).verify()


def test_cells_belong_to_their_noise(vectors: ms.Task) -> None:
    """Cells far finer than the noise run out of whole numbers for some answers only, which tells these."""
    assert isinstance(vectors.protocol, ms.NoisyAnswers)
    noise = vectors.protocol.noise
    fine = AnswerNoise(noise.noise, noise.scale, noise.coordinates, cell=noise.scale * 2.0**-40)
    with pytest.raises(ms.NotCertified, match="cells of the noise"):
        forged(vectors, noise=fine).verify()


def test_a_single_report_with_a_delta_hides_one_person_only() -> None:
    """300 people who move by 1 each are not hidden by what hides one who moves by 300."""
    randomizer = {"kind": "additive", "span": 300, "shape": Fraction(1, 5), "rate": 1e-5, "padding": "none"}
    protocol = ms.Sums(name="geometric-local", trusted="nobody", randomizers=(randomizer,), modulus=10**9)
    account = protocol.account(ms.Sum(ms.Integers(0, 300)), ms.Target(3, 0.03, 300), 1, 1)
    assert account.delta > 0.0
    assert account.protects == "one person"


def test_a_file_holds_one_batch(tmp_path: Path) -> None:
    """Parts of several batches under one id would pass the ledger, and the difference of two releases is somebody's report."""
    task = ms.plan(NUMBERS, ms.Target(1, 1e-6, 2), 50, protocols=["polya-shuffle"]).task
    batches = [task.randomize([5] * 25) for _ in range(2)]
    with pytest.raises(ms.PlanError, match="one batch"):
        write_reports(task, tmp_path / "both.bin", batches)
    assert list(tmp_path.iterdir()) == []
    assert write_reports(task, tmp_path / "parts.bin", task.randomized([[5] * 20, [4] * 30])) == 50


def test_nobody_counts_twice_in_a_tally() -> None:
    task = ms.plan(NUMBERS, ms.Target(1, 1e-6, 2), 50, protocols=["polya-shuffle"]).task
    tally = task.counted([[5] * 25])
    with pytest.raises(ms.InputError, match="with itself"):
        tally.merge(tally)


def test_rows_of_another_width_are_not_published(vectors: ms.Task) -> None:
    tally = vectors.counted([[[1, 2, 3, 4]] * 100])
    tally.sums = {key: [*row, 7] for key, row in tally.sums.items()}
    with pytest.raises(ms.PlanError, match="rows of"):
        vectors.publish(tally)


def test_units_are_those_of_the_values() -> None:
    people = ms.users_of(ms.Space(ms.Integers(0, 1000, "m"), unit="km"), items=3)
    task = ms.plan(ms.UserHistogram(people), ms.Target(1, 1e-6, 100), 50, protocols=["tree-laplace"]).task
    with pytest.raises(ms.NotCertified, match="'km'"):
        task.verify()
