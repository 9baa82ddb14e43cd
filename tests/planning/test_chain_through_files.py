"""Roles of a plan through files: atomic writes, and rejection of damaged or foreign files."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from tests.catalogue.small_plans import SMALL, plan_of, values_of
from tests.tables import check_all

from metricshuffle.errors import InputError, PlanError
from metricshuffle.files import atomic_file
from metricshuffle.planning import Plan
from metricshuffle.protocols.tally import Batch, Shuffled
from metricshuffle.randomness import Randomness
from metricshuffle.tasks.report_batches import read_reports, record_type, write_reports
from metricshuffle.tasks.task import Task

SENT = [name for name, small in SMALL.items() if small.trusted != "curator"]
KINDS = ["sum", "mean", "sum, aggregator", "labels", "users' items", "users' tree"]


@pytest.mark.thorough
@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=[pytest.mark.slow] * (place % 2)) for place, name in enumerate(SENT)],
)
def test_the_whole_chain_through_files(name: str, tmp_path: Path) -> None:
    """Plan, task, reports and batch: every role reads the files of the previous one."""
    plan_of(name).save(str(tmp_path / "plan.json"), str(tmp_path / "task.json"))
    plan = Plan.load(str(tmp_path / "plan.json"))
    task = Task.load(str(tmp_path / "task.json"))
    assert plan.task == task
    reports = task.randomize(values_of(name), Randomness.seeded(3))
    thirds = np.array_split(np.arange(plan.users), 3)
    parts = [
        replace(reports, messages=reports.messages[third], first=int(third[0])) for third in thirds
    ]
    assert write_reports(task, tmp_path / "reports", iter(parts)) == plan.users
    back = list(read_reports(task, tmp_path / "reports"))
    assert np.array_equal(np.concatenate([part.messages for part in back]), reports.messages)
    assert all(part.batch.seeded for part in back)
    shuffled = task.shuffle(back)
    (tmp_path / "shuffled").write_bytes(shuffled.to_bytes())
    again = task.read_shuffled((tmp_path / "shuffled").read_bytes())
    assert again.reports == plan.users
    assert plan.estimate(again).to_json() == plan.estimate(shuffled).to_json()
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "plan.json",
        "reports",
        "shuffled",
        "task.json",
    ]


def test_seeded_reports_stay_marked_and_others_are_not(tmp_path: Path) -> None:
    """Through the file of reports and that of the shuffled batch."""
    plan = plan_of("sum")
    for seeded in (True, False):
        source = Randomness.seeded(3) if seeded else Randomness.system()
        write_reports(
            plan.task, tmp_path / "reports", iter([plan.randomize(values_of("sum"), source)])
        )
        back = list(read_reports(plan.task, tmp_path / "reports"))
        assert [part.batch.seeded for part in back] == [seeded]
        assert plan.task.read_shuffled(plan.shuffle(back).to_bytes()).batch.seeded == seeded


@pytest.mark.parametrize("name", KINDS)
def test_cut_files_are_refused_wherever_they_are_cut(name: str, tmp_path: Path) -> None:
    """Reports and shuffled batches, cut anywhere or longer than they were."""
    plan = plan_of(name)
    write_reports(
        plan.task,
        tmp_path / "reports",
        iter([plan.randomize(values_of(name), Randomness.seeded(3))]),
    )
    whole = (tmp_path / "reports").read_bytes()
    size = record_type(plan.protocol.layout).itemsize
    ends = [
        *range(0, len(whole), max(7, len(whole) // 50)),
        len(whole) - 1,
        len(whole) - size,
        len(whole) - 2 * size,
    ]
    for damaged in (
        *(whole[:end] for end in ends),
        whole + b"\0",
        whole[:-1] + bytes([whole[-1] ^ 1]),
    ):
        (tmp_path / "cut").write_bytes(damaged)
        with pytest.raises(PlanError):
            list(read_reports(plan.task, tmp_path / "cut"))
    whole = plan.shuffle(read_reports(plan.task, tmp_path / "reports")).to_bytes()
    for damaged in (
        *(whole[:end] for end in range(0, len(whole), max(1, len(whole) // 50))),
        whole + b"\0",
        whole[:-1],
    ):
        with pytest.raises(PlanError):
            plan.task.read_shuffled(damaged)


def test_files_of_other_plans_and_other_things(tmp_path: Path) -> None:
    """A batch belongs to one task; what is no batch is named, and an empty one is not written."""
    plan = plan_of("sum")
    other = plan_of("mean")
    write_reports(
        plan.task,
        tmp_path / "reports",
        iter([plan.randomize(values_of("sum"), Randomness.seeded(3))]),
    )
    with pytest.raises(PlanError, match="another task"):
        list(read_reports(other.task, tmp_path / "reports"))
    with pytest.raises(PlanError, match="another task"):
        write_reports(other.task, tmp_path / "never", read_reports(plan.task, tmp_path / "reports"))
    assert not (tmp_path / "never").exists()
    with pytest.raises(PlanError, match="not a shuffled batch"):
        plan.task.read_shuffled((tmp_path / "reports").read_bytes())
    with pytest.raises(PlanError, match="another task"):
        other.task.read_shuffled(
            plan.shuffle(read_reports(plan.task, tmp_path / "reports")).to_bytes()
        )
    with pytest.raises(InputError, match="cannot read"):
        list(read_reports(plan.task, tmp_path / "nothing"))
    with pytest.raises(InputError, match="nothing to report"):
        write_reports(plan.task, tmp_path / "empty", iter([]))
    assert not (tmp_path / "empty").exists()


@check_all(
    "sums", [{0: [10**30]}, {0: [-1]}, {}, {0: []}, {0: [1, 2]}, {1: [100]}, {0: [100], 1: [100]}]
)
@check_all("name", ["sum", "mean", "sum, aggregator", "sum, flipped bits", "mean, curator"])
def test_sums_that_cannot_be_are_refused(name: str, sums: dict[int, list[int]]) -> None:
    """Too large, negative, too many or no sums, or other rows; also from bytes."""
    plan = plan_of(name)
    wrong = Shuffled(Batch(plan.digest), plan.users, plan.users, sums, plan.protocol.modulus)
    with pytest.raises(PlanError):
        plan.estimate(wrong)
    with pytest.raises(PlanError):
        plan.estimate(plan.task.read_shuffled(wrong.to_bytes()))


@check_all("name", ["sum", "mean", "labels", "users' tree", "users' tree, curator"])
def test_contents_of_another_protocol_are_refused(name: str) -> None:
    """Other row lengths, moduli or rounds, or a raw tally instead of a batch."""
    plan = plan_of(name)
    tally = plan.task.counted([values_of(name)], Randomness.seeded(1))
    shuffled = plan.task.publish(tally, Randomness.seeded(2))
    plan.estimate(shuffled)
    with pytest.raises(PlanError):
        plan.estimate(replace(shuffled, sums={0: [*shuffled.numbers, 0]}))
    with pytest.raises(PlanError, match="modulus"):
        plan.estimate(replace(shuffled, modulus=101))
    with pytest.raises(InputError, match="round"):
        plan.estimate(replace(shuffled, batch=replace(shuffled.batch, round=2)))
    with pytest.raises(InputError, match="shuffled first"):
        plan.estimate(tally)  # type: ignore[arg-type]


def test_an_interruption_leaves_nothing(tmp_path: Path) -> None:
    """What was there before stays, and nothing half written lies beside it."""
    (tmp_path / "old").write_text("kept")

    def interrupted() -> None:
        with atomic_file(tmp_path / "old") as stream:
            stream.write("half")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert (tmp_path / "old").read_text() == "kept"
    assert [path.name for path in tmp_path.iterdir()] == ["old"]
    with (
        pytest.raises(InputError, match="cannot write"),
        atomic_file(tmp_path / "nowhere" / "file"),
    ):
        pass
