"""Report files: round trip, and rejection of a change in any byte."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.catalogue.planned_tasks import SENT, load_task, reports_of
from tests.tables import check_all

from metricshuffle.encodings.binary_frame import checksum
from metricshuffle.errors import InputError, PlanError
from metricshuffle.protocols.protocol import Reports
from metricshuffle.randomness import Randomness
from metricshuffle.tasks import Task, read_reports, write_reports
from metricshuffle.tasks import report_batches as reports_module
from metricshuffle.tasks.report_batches import record_type


def written(task: Task, path: Path, *parts: Reports) -> bytes:
    assert write_reports(task, path, parts) == sum(map(len, parts))
    return path.read_bytes()


def resigned(content: bytes) -> bytes:
    """File with that content and a valid checksum, as a forger would write it."""
    running = checksum()
    running.update(content)
    return content + bytes(running.digest())


def with_header(whole: bytes, change: Callable[[dict[str, Any]], object]) -> bytes:
    """A file whose header was changed, signed anew."""
    name, _, left = whole.partition(b"\n")
    (length,) = struct.unpack("<I", left[:4])
    header = json.loads(left[4 : 4 + length])
    change(header)
    text = json.dumps(header).encode()
    return resigned(name + b"\n" + struct.pack("<I", len(text)) + text + left[4 + length : -32])


@pytest.mark.parametrize("kind", SENT)
def test_what_is_written_comes_back(kind: str, tmp_path: Path) -> None:
    """Messages, ids, batch and round survive; records have the stated size."""
    task = load_task(kind)
    reports = reports_of(kind)
    whole = written(task, tmp_path / "reports", reports)
    (back,) = read_reports(task, tmp_path / "reports")
    assert np.array_equal(back.messages, reports.messages)
    assert back.messages.dtype == task.protocol.layout.type
    assert np.array_equal(back.ids, reports.ids)
    assert (back.batch_id, back.batch.round, back.batch.seeded, back.batch.task) == (
        reports.batch_id,
        1,
        True,
        task.digest,
    )
    size = record_type(task.protocol.layout).itemsize
    assert size == 16 + task.protocol.layout.size
    assert len(whole) - len(reports) * size < 400
    shuffled = [
        task.shuffle(batch, Randomness.seeded(2)).to_bytes()  # some shufflers add noise
        for batch in (back, reports)
    ]
    assert shuffled[0] == shuffled[1]


def test_parts_are_one_batch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Any split for writing and reading gives the same sums; parts know their start."""
    task = load_task("sum in shares")
    reports = reports_of("sum in shares")
    parts = [
        replace(
            reports,
            messages=reports.messages[start : start + 7],
            known_ids=reports.ids[start : start + 7],
            first=start,
        )
        for start in range(0, 40, 7)
    ]
    assert written(task, tmp_path / "parts", *parts) == written(task, tmp_path / "whole", reports)
    monkeypatch.setattr(reports_module, "CHUNK_BYTES", 1000)
    back = list(read_reports(task, tmp_path / "parts"))
    assert len(back) > 3
    assert [part.first for part in back] == list(np.cumsum([0, *map(len, back)])[:-1])
    assert task.shuffle(back).to_bytes() == task.shuffle(reports).to_bytes()


@pytest.mark.parametrize("kind", ["unary sum", "labels", "users' mean"])
def test_every_byte_of_a_file_counts(kind: str, tmp_path: Path) -> None:
    """Any byte with one or all bits flipped is rejected, so nothing is shuffled."""
    task = load_task(kind)
    whole = written(task, tmp_path / "reports", reports_of(kind, 6))
    path = tmp_path / "flipped"
    for place in range(len(whole)):
        for mask in (1, 255):
            path.write_bytes(whole[:place] + bytes([whole[place] ^ mask]) + whole[place + 1 :])
            with pytest.raises(PlanError):
                list(read_reports(task, path))


@pytest.mark.parametrize("kind", ["unary sum", "sum in shares"])
def test_cut_and_lengthened_files(kind: str, tmp_path: Path) -> None:
    """Files cut anywhere, or with a byte, record or file appended, are rejected."""
    task = load_task(kind)
    whole = written(task, tmp_path / "reports", reports_of(kind, 6))
    record = record_type(task.protocol.layout).itemsize
    path = tmp_path / "other"
    for kept in {
        *range(0, len(whole), 3),
        *range(len(whole) - 60, len(whole)),
        *range(len(whole) - 40, 0, -record),
    }:
        path.write_bytes(whole[:kept])
        with pytest.raises(PlanError):
            list(read_reports(task, path))
    for more in (b"\0", bytes(record), whole, whole[-record - 40 : -40]):
        path.write_bytes(whole + more)
        with pytest.raises(PlanError, match=r"cut short or damaged|checksum does not match"):
            list(read_reports(task, path))


def test_a_record_left_out_or_put_in_is_noticed(tmp_path: Path) -> None:
    """Removed or repeated records are detected by checksum or count."""
    task = load_task("unary sum")
    whole = written(task, tmp_path / "reports", reports_of("unary sum", 6))
    size = record_type(task.protocol.layout).itemsize
    start = len(whole) - 40 - 6 * size
    fewer = whole[:start] + whole[start + size :]
    more = whole[: start + size] + whole[start:]
    for changed in (fewer, more, resigned(fewer[:-32]), resigned(more[:-32])):
        (tmp_path / "changed").write_bytes(changed)
        with pytest.raises(PlanError, match="its checksum does not match its content"):
            list(read_reports(task, tmp_path / "changed"))


HEADERS: dict[str, tuple[Callable[[dict[str, Any]], object], str]] = {
    "another task": (lambda header: header.update(task="0" * 64), "made for another task"),
    "no task": (lambda header: header.pop("task"), "made for another task"),
    "another type": (lambda header: header.update(type="<u4"), "another layout"),
    "more numbers": (lambda header: header.update(numbers=2), "another layout"),
    "another round": (
        lambda header: header.update(round=2),
        "round must be a whole number from 1 to 1, got 2",
    ),
    "round 0": (lambda header: header.update(round=0), "its round is 0"),
    "no round": (lambda header: header.pop("round"), "its round is None"),
    "round in words": (lambda header: header.update(round="one"), "its round is 'one'"),
    "a short id": (lambda header: header.update(batch="00"), "its batch has no id"),
    "an id in words": (lambda header: header.update(batch="first"), "its batch has no id"),
}


@pytest.mark.parametrize("change", HEADERS)
def test_headers_that_do_not_fit(change: str, tmp_path: Path) -> None:
    """Headers that were changed and signed anew are told by what does not fit the task."""
    task = load_task("unary sum")
    whole = written(task, tmp_path / "reports", reports_of("unary sum", 6))
    rewrite, told = HEADERS[change]
    (tmp_path / "changed").write_bytes(with_header(whole, rewrite))
    with pytest.raises(InputError, match=told):
        list(read_reports(task, tmp_path / "changed"))


def test_seeded_reports_cannot_pass_for_others(tmp_path: Path) -> None:
    """The format name marks seeded reports; renamed ones fail; the release says UNSAFE."""
    task = load_task("unary sum")
    whole = written(task, tmp_path / "seeded", reports_of("unary sum"))
    assert whole.startswith(b"metricshuffle-reports-seeded/2\n")
    (tmp_path / "renamed").write_bytes(
        whole.replace(b"metricshuffle-reports-seeded/2", b"metricshuffle-reports/2", 1)
    )
    with pytest.raises(PlanError, match="its checksum does not match its content"):
        list(read_reports(task, tmp_path / "renamed"))
    release = task.estimate(task.shuffle(read_reports(task, tmp_path / "seeded")))
    assert release.unsafe_seeded
    assert "UNSAFE: seeded randomness was used" in str(release)
    honest = task.randomize([3] * 40)
    assert written(task, tmp_path / "honest", honest).startswith(b"metricshuffle-reports/2\n")
    assert not task.estimate(task.shuffle(read_reports(task, tmp_path / "honest"))).unsafe_seeded
    with pytest.raises(
        PlanError, match="seeded reports and others must not be written to one file"
    ):
        write_reports(
            task,
            tmp_path / "mixed",
            [honest, replace(reports_of("unary sum"), batch_id=honest.batch_id, first=40)],
        )
    together = task.shuffle(
        [*read_reports(task, tmp_path / "honest"), *read_reports(task, tmp_path / "seeded")]
    )
    assert together.batch.seeded


def test_nothing_is_left_of_a_batch_that_cannot_be_written(tmp_path: Path) -> None:
    """No reports, reports of another task and reports of another round are no file."""
    task = load_task("two rounds")
    path = tmp_path / "never"
    with pytest.raises(InputError, match="there are no values, so there is nothing to report"):
        write_reports(task, path, [])
    with pytest.raises(PlanError, match="made for another task"):
        write_reports(task, path, [reports_of("local sum")])
    with pytest.raises(PlanError, match="in round 2, and not in round 1; rounds are not mixed"):
        write_reports(
            task, path, [reports_of("two rounds", round=1), reports_of("two rounds", round=2)]
        )
    with pytest.raises(
        PlanError, match="a file must contain the parts of one batch, in their order"
    ):
        write_reports(task, path, [reports_of("two rounds"), reports_of("two rounds", seed=2)])
    assert list(tmp_path.iterdir()) == []


def test_wrong_files_are_refused_as_reports(tmp_path: Path) -> None:
    """Missing files, folders and other files have different errors than damage."""
    task = load_task("unary sum")
    with pytest.raises(InputError, match="cannot read"):
        list(read_reports(task, tmp_path / "nothing"))
    with pytest.raises(InputError, match="cannot read"):
        list(read_reports(task, tmp_path))
    for content in (b"", b"kcal\n3\n", task.to_json().encode()):
        (tmp_path / "other").write_bytes(content)
        with pytest.raises(
            PlanError,
            match="is not a reports file; give the file that `metricshuffle randomize` wrote",
        ):
            list(read_reports(task, tmp_path / "other"))


@check_all("kind", SENT)
def test_messages_that_no_client_makes_are_refused(kind: str) -> None:
    """Messages out of range and rows of another width are rejected.

    Vectors are never out of range.
    """
    task = load_task(kind)
    reports = reports_of(kind)
    wider = np.concatenate([reports.messages, reports.messages[:, :1]], axis=1)
    with pytest.raises(PlanError, match="a report of this task is"):
        task.shuffle(replace(reports, messages=wider))
    with pytest.raises(PlanError, match="a report of this task is"):
        task.shuffle(replace(reports, messages=reports.messages.astype(np.float64)))
    if reports.messages.dtype.kind == "u" and task.protocol.modulus != 2 ** (
        8 * reports.messages.dtype.itemsize
    ):
        beyond = reports.messages.copy()
        beyond[3, 0] = np.iinfo(beyond.dtype).max
        with pytest.raises(InputError):
            task.shuffle(replace(reports, messages=beyond))


def test_ids_are_random_and_have_nothing_to_do_with_values() -> None:
    """Ids come from the system: the same seed gives equal messages and other ids."""
    first = reports_of("labels", seed=5)
    again = reports_of("labels", seed=5)
    assert np.array_equal(first.messages, again.messages)
    assert first.batch_id != again.batch_id
    assert len({bytes(report) for report in np.concatenate([first.ids, again.ids])}) == 2 * len(
        first
    )
    assert Randomness.seeded(5).unsafe_seeded
