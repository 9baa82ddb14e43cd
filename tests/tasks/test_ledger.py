"""Ledger: no report counts twice, in one call, a later one, or under another batch id."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.catalogue.planned_tasks import load_task, reports_of

from metricshuffle.errors import InputError, PlanError
from metricshuffle.protocols.protocol import Reports
from metricshuffle.tasks import Ledger, Shuffle, Task, read_reports, write_reports
from metricshuffle.tasks.shuffle import SeenIds

KIND = "unary sum"


@pytest.fixture
def task() -> Task:
    return load_task(KIND)


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    return Ledger(tmp_path / "task.ledger")


def known(reports: Reports) -> Reports:
    """Reports as they come from a file: with their ids."""
    return replace(reports, known_ids=reports.ids)


def test_the_same_reports_twice_in_one_call(task: Task) -> None:
    """The same batch twice, and a part of it again, are refused, whatever the order."""
    reports = reports_of(KIND)
    other = reports_of(KIND, seed=2)
    for again in (
        [reports, reports],
        [reports, other, reports],
        [reports, replace(reports, messages=reports.messages[:3], first=7)],
    ):
        with pytest.raises(
            PlanError,
            match=(
                "the same reports occur twice; no report may count twice, so give each batch once"
            ),
        ):
            task.shuffle(again)
    assert task.shuffle([reports, other]).people == 80


def test_parts_of_a_batch_do_not_overlap(task: Task) -> None:
    """Parts that follow one another are one batch; parts that share a report are not."""
    reports = reports_of(KIND)
    halves = [
        replace(reports, messages=reports.messages[start : start + 20], first=start)
        for start in (0, 20)
    ]
    assert task.shuffle(halves).to_bytes() == task.shuffle(reports).to_bytes()
    with pytest.raises(PlanError, match="the same reports occur twice"):
        task.shuffle([halves[0], replace(halves[1], first=19)])


def test_most_of_a_batch_framed_anew_under_its_id(
    task: Task, tmp_path: Path, ledger: Ledger
) -> None:
    """39 of 40 reports under the old batch id are rejected with the old file and after it."""
    reports = known(reports_of(KIND))
    fewer = replace(reports, messages=reports.messages[1:], known_ids=reports.ids[1:])
    write_reports(task, tmp_path / "all", [reports])
    write_reports(task, tmp_path / "fewer", [fewer])
    with pytest.raises(PlanError, match="the same reports occur twice"):
        task.shuffle(
            [*read_reports(task, tmp_path / "all"), *read_reports(task, tmp_path / "fewer")]
        )
    task.shuffle(read_reports(task, tmp_path / "all"), ledger=ledger)
    with pytest.raises(PlanError, match="released in an earlier batch"):
        task.shuffle(read_reports(task, tmp_path / "fewer"), ledger=ledger)


def test_reports_under_another_batch_id_count_once(task: Task) -> None:
    """Repeated reports are recognised by their ids, ignored and counted."""
    reports = known(reports_of(KIND))
    new = known(reports_of(KIND, seed=2))
    mixed = replace(
        new,
        messages=np.concatenate([reports.messages[:5], new.messages]),
        known_ids=np.concatenate([reports.ids[:5], new.ids]),
    )
    shuffling = Shuffle(task.protocol, task.digest)
    shuffling.add(reports)
    shuffling.add(mixed)
    assert shuffling.ignored == 5
    assert shuffling.tally is not None
    assert (
        shuffling.tally.to_bytes()
        == task.tally().add(reports.messages, seeded=True).add(new.messages, seeded=True).to_bytes()
    )
    doubled = replace(
        reports,
        messages=np.repeat(reports.messages, 2, axis=0),
        known_ids=np.repeat(reports.ids, 2, axis=0),
    )
    assert task.shuffle(doubled).to_bytes() == task.shuffle(reports).to_bytes()


def test_ignored_reports_do_not_fill_a_batch(task: Task) -> None:
    """The minimum counts people: a report that is there thirty times is one."""
    alone = known(reports_of(KIND, 1))
    thirty = replace(
        alone,
        messages=np.repeat(alone.messages, 30, axis=0),
        known_ids=np.repeat(alone.ids, 30, axis=0),
    )
    with pytest.raises(
        InputError, match="the batch has 1 report, but the guarantee counts on at least 30"
    ):
        task.shuffle(thirty)


def test_a_batch_is_let_go_once(task: Task, ledger: Ledger) -> None:
    """Published batches are recorded, rejected ones are not and may be repeated."""
    first = reports_of(KIND)
    second = reports_of(KIND, seed=2)
    few = reports_of(KIND, 20)
    task.shuffle(first, ledger=ledger)
    for again in ([first], [second, first]):
        with pytest.raises(
            PlanError,
            match=(
                r"released in an earlier batch, according to .*task.ledger; two releases could be "
                r"compared"
            ),
        ):
            task.shuffle(again, ledger=ledger)
    with pytest.raises(InputError, match="at least 30"):
        task.shuffle(few, ledger=ledger)
    assert task.shuffle([few, second], ledger=ledger).people == 60
    assert all(ledger.known(reports.batch_id) for reports in (first, second, few))
    assert not ledger.known(b"0" * 16)


def test_a_batch_that_somebody_else_lets_go_meanwhile(task: Task, ledger: Ledger) -> None:
    """Two shufflers with one ledger: the second is rejected and records nothing."""
    shared = reports_of(KIND)
    mine = reports_of(KIND, seed=2)
    task.shuffle(shared, ledger=ledger)
    with pytest.raises(PlanError, match="were released in the meantime"):
        ledger.record(task.digest, {mine.batch_id: (1, 40), shared.batch_id: (1, 40)})
    assert not ledger.known(mine.batch_id)


def test_the_ledger_says_which_task_and_round(task: Task, ledger: Ledger) -> None:
    """The file is a table that anybody can read: batch, task, round and number of reports."""
    reports = reports_of("two rounds", round=2)
    load_task("two rounds").shuffle(reports, ledger=ledger)
    with closing(sqlite3.connect(ledger.path)) as connection:
        rows = connection.execute("SELECT batch, task, round, reports FROM batches").fetchall()
    assert rows == [(reports.batch_id.hex(), load_task("two rounds").digest, 2, 40)]


def test_rounds_and_tasks_are_not_mixed() -> None:
    """Rounds and tasks are not added up; unplanned rounds are rejected."""
    two = load_task("two rounds")
    with pytest.raises(PlanError, match="in round 2, and not in round 1; rounds are not mixed"):
        two.shuffle([reports_of("two rounds", round=1), reports_of("two rounds", round=2)])
    with pytest.raises(PlanError, match="made for another task"):
        two.shuffle([reports_of("two rounds"), reports_of("local sum")])
    with pytest.raises(
        InputError,
        match="round must be a whole number from 1 to 2, got 3: the promise covers 2 rounds",
    ):
        two.randomize([3] * 40, round=3)
    assert two.estimate(two.shuffle(reports_of("two rounds", round=2))).round == 2


@pytest.mark.parametrize("content", ["text", "other table", "folder"])
def test_a_ledger_that_is_none(content: str, task: Task, tmp_path: Path) -> None:
    """A file that is no ledger is told by name, and nothing is let go without one."""
    path = tmp_path / "ledger"
    if content == "folder":
        path.mkdir()
    elif content == "text":
        path.write_text("this is not a table" * 100)
    else:
        with closing(sqlite3.connect(path)) as connection:
            connection.execute("CREATE TABLE batches (something TEXT)")
    with pytest.raises(InputError, match=r"cannot use the ledger .*/ledger: "):
        task.shuffle(reports_of(KIND), ledger=Ledger(path))


def test_a_ledger_that_somebody_holds(
    task: Task, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A locked ledger is a sentence, not a trace (waiting for it is cut short here)."""
    connect = sqlite3.connect
    monkeypatch.setattr(
        "metricshuffle.tasks.shuffle.sqlite3.connect", lambda path: connect(path, timeout=0.05)
    )
    task.shuffle(reports_of(KIND), ledger=ledger)
    with closing(connect(ledger.path, isolation_level=None)) as holder:
        holder.execute("BEGIN EXCLUSIVE")
        with pytest.raises(InputError, match=r"cannot use the ledger .*: database is locked"):
            task.shuffle(reports_of(KIND, seed=2), ledger=ledger)


@given(batches=st.lists(st.lists(st.integers(0, 40), max_size=12), max_size=8))
def test_ids_are_recognised_whatever_the_runs(batches: list[list[int]]) -> None:
    """Ids seen before, in the same or in an earlier batch, are not new; the first of each is."""
    seen = SeenIds()
    known_so_far = set[int]()
    for batch in batches:
        ids = np.zeros((len(batch), 16), dtype=np.uint8)
        # both halves differ from id to id, and half of the ids share neither
        for row, number in enumerate(batch):
            ids[row] = np.frombuffer(
                bytes([number]) * 8 + bytes([255 - number]) * 8, dtype=np.uint8
            )
        new = seen.new(ids)
        for number, is_new in zip(batch, new, strict=True):
            if is_new:
                assert number not in known_so_far
                known_so_far.add(number)
        assert known_so_far >= set(batch)


def test_only_reports_are_shuffled(task: Task) -> None:
    """Raw values and lists of them are refused by type."""
    for wrong in (3, [3, 4], "reports"):
        with pytest.raises(InputError, match=r"shuffle needs Reports|only Reports can be shuffled"):
            task.shuffle(wrong)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="the batch has 0 report"):
        task.shuffle([])
