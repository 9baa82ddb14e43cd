"""Many clients at once, async, in several processes and killed: one report per person."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.catalogue.planned_tasks import load_task, values_of
from tests.collection.running import run_aside
from tests.collection.stand_in import StandIn, standing_in
from tests.collection.test_client import KIND, client_of

import metricshuffle as ms
from metricshuffle.collection.client.client import Client
from metricshuffle.collection.client.http_client import NotStored, SubmissionResult
from metricshuffle.collection.client.outbox import Outbox
from metricshuffle.errors import DomainError, InputError


@pytest.fixture
def shuffler() -> Iterator[StandIn]:
    with standing_in() as stand_in:
        yield stand_in


# Many people


@pytest.mark.thorough
def test_many_values_in_every_form(shuffler: StandIn, tmp_path: Path) -> None:
    pandas = pytest.importorskip("pandas")
    collection = shuffler.opened(load_task(KIND))
    (tmp_path / "values.csv").write_text(
        "who,kcal\n" + "".join(f"u{row},{row}\n" for row in range(5))
    )
    with client_of(collection, tmp_path) as client:
        assert client.submit_many([1, 2, 3]).stored == 3
        assert client.submit_many(np.array([4, 5])).stored == 2
        assert client.submit_many(pandas.DataFrame({"v": [6, 7]}), column="v").stored == 2
        assert client.submit_many(tmp_path / "values.csv", column="kcal").stored == 5
        assert (
            client.submit_many(tmp_path / "values.csv", column="kcal", user_column="who").stored
            == 5
        )
        assert len(set(shuffler.received)) == 17
        for again in ([1, 2, 3], np.array([4, 5])):
            done = client.submit_many(again)
            assert done.already == done.people
        assert client.submit_many(tmp_path / "values.csv", column="kcal").already == 5
        with pytest.raises(NotStored, match="Nothing was sent now"):
            client.submit(0, user="u3")
        with pytest.raises(InputError, match="column is for a file"):
            client.submit_many([1, 2], column="v")
    assert len(set(shuffler.received)) == 17


def test_a_wrong_row_anywhere_is_told_before_anything_is_sent(
    shuffler: StandIn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Half a file, corrected and sent again, would be another file: its rows would count twice."""
    monkeypatch.setattr("metricshuffle.data.csv_reader.LINES_PER_BLOCK", 50)
    monkeypatch.setattr(
        "metricshuffle.data.source.CHUNK_ROWS", 100
    )  # read in eleven parts, the last of which is wrong
    collection = shuffler.opened(load_task(KIND))
    path = tmp_path / "values.csv"
    path.write_text("kcal\n" + "3\n" * 1000 + "300\n")
    with client_of(collection, tmp_path) as client:
        with pytest.raises(DomainError, match="1 of 1,001 values"):
            client.submit_many(path, column="kcal")
        assert client.resend().people == 0
    assert shuffler.received == []


def test_rows_are_known_by_their_place_whatever_is_left_out(
    shuffler: StandIn, tmp_path: Path
) -> None:
    collection = shuffler.opened(load_task(KIND))
    path = tmp_path / "values.csv"
    path.write_text("kcal\n300\n1\n2\n")
    with client_of(collection, tmp_path) as client:
        with pytest.warns(ms.errors.InputWarning, match="left out"):
            assert client.submit_many(path, column="kcal", drop_outside=True).stored == 2
        with pytest.warns(
            ms.errors.InputWarning, match=r"1 of 3 values of .* \(33.3 %\) lay outside"
        ):
            done = client.submit_many(path, column="kcal", clamp=True)
        assert [answer.before for answer in done.answers] == [False, True, True]
        assert (done.stored, done.already) == (3, 2)
    assert len(shuffler.received) == 3


@pytest.mark.thorough
def test_users_with_several_items(shuffler: StandIn, tmp_path: Path) -> None:
    collection = shuffler.opened(load_task("users' vectors"))
    with client_of(collection, tmp_path) as client:
        assert client.submit([0, 5, 5], user="ann").status == "stored"
        assert client.submit_many(values_of("users' vectors", 6)).stored == 6
        table = {"who": ["ann", "ben", "ben", "cat"], "n": [1, 2, 3, 4]}
        done = client.submit_many(table, column="n", user_column="who")
        assert (done.stored, done.already) == (3, 1)
    assert len(shuffler.reports(collection)) == 9


@pytest.mark.thorough
def test_a_shuffler_that_does_not_answer_holds_up_nobody_for_long(
    shuffler: StandIn, tmp_path: Path
) -> None:
    """The time limit is for all reports together; they are not tried one by one."""
    collection = shuffler.opened(load_task(KIND))
    shuffler.script = [503] * 10_000
    begun = time.monotonic()
    with client_of(collection, tmp_path, patience=0.5) as client:
        done = client.submit_many([1] * 150, concurrency=4)
    assert (done.waiting, done.stored) == (150, 0)
    assert "0 of 150 reports are stored. 150 are not acknowledged yet" in str(done)
    assert time.monotonic() - begun < 30
    assert len(shuffler.received) < 100
    shuffler.script = []
    with client_of(collection, tmp_path) as client:
        assert client.resend().stored == 150
    assert len(shuffler.reports(collection)) == 150


@pytest.mark.thorough
def test_no_more_are_on_their_way_at_once_than_was_said(shuffler: StandIn, tmp_path: Path) -> None:
    collection = shuffler.opened(load_task(KIND))
    at_once = 0
    most = 0

    def count(_: bytes) -> None:
        nonlocal at_once, most
        at_once += 1
        most = max(most, at_once)
        time.sleep(0.02)
        at_once -= 1

    shuffler.on_post = count
    with client_of(collection, tmp_path) as client:
        assert client.submit_many([1] * 40, concurrency=3).complete
        with pytest.raises(InputError, match="concurrency"):
            client.submit_many([1], concurrency=0)
    assert 2 <= most <= 3


# Without blocking


@pytest.mark.thorough
def test_asynchronous_and_inside_a_running_loop(shuffler: StandIn, tmp_path: Path) -> None:
    collection = shuffler.opened(load_task(KIND))

    async def several() -> None:
        with client_of(collection, tmp_path) as client:
            answers = await asyncio.gather(
                *(client.submit_async(number, user=str(number)) for number in range(8))
            )
            assert all(answer.status == "stored" for answer in answers)
            assert client.submit(3, user="inside a loop").status == "stored"
            shuffler.script = [422]
            with pytest.raises(NotStored):
                await client.submit_async(3, user="refused")

    run_aside(several())
    assert len(shuffler.reports(collection)) == 10


def test_the_same_person_at_the_same_time_is_one_report(shuffler: StandIn, tmp_path: Path) -> None:
    collection = shuffler.opened(load_task(KIND))

    async def crowd() -> list[Any]:
        with client_of(collection, tmp_path) as client:
            return await asyncio.gather(
                *(client.submit_async(number, user="ann") for number in range(8)),
                return_exceptions=True,
            )

    told = run_aside(crowd())
    assert len(set(shuffler.received)) == 1
    sentences = [
        answer.sentence if isinstance(answer, SubmissionResult) else str(answer) for answer in told
    ]
    assert (
        sentences.count("The report is stored.") == 1
    )  # of one value; the others are told that theirs is in no report
    assert all(
        re.match(
            "The report is stored|The report that was made before is stored|Nothing was sent now",
            words,
        )
        for words in sentences
    )


# Processes and kills

SUBMITTING = """
import sys, time
from metricshuffle.collection.client.client import Client
with Client(sys.argv[1], sys.argv[2], patience=60) as client:
    print(client.submit_many([1] * int(sys.argv[3]), concurrency=4))
"""


def started(collection: Path, outbox: Path, people: int) -> subprocess.Popen[str]:
    words = [sys.executable, "-c", SUBMITTING, str(collection), str(outbox), str(people)]
    return subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


@pytest.mark.thorough
def test_killed_between_writing_and_sending(shuffler: StandIn, tmp_path: Path) -> None:
    """The next process sends the bytes from the outbox and randomizes nothing."""
    collection = shuffler.opened(load_task(KIND))
    collection.save(tmp_path / "collection.json")
    answering = threading.Event()
    shuffler.on_post = lambda report: print(end="" if answering.wait(60) else "!")
    process = started(tmp_path / "collection.json", tmp_path / "out.box", 3)
    try:
        outbox = Outbox(tmp_path / "out.box")
        for _ in range(600):
            waiting = outbox.waiting(collection.task.digest, 1, [collection.digest])
            if len(waiting) == 3:
                break
            time.sleep(0.05)
        process.send_signal(signal.SIGKILL)
        process.wait(30)
    finally:
        process.kill()
        process.communicate()
    assert len(waiting) == 3
    written = {outbox.report(collection.task.digest, 1, held.who).report for held in waiting}  # type: ignore[union-attr]
    outbox.close()
    answering.set()
    time.sleep(0.2)
    shuffler.on_post, shuffler.received[:] = (lambda _: None), []
    process = started(tmp_path / "collection.json", tmp_path / "out.box", 3)
    out, errors = process.communicate(timeout=60)
    assert process.returncode == 0, errors
    assert "3 of 3 reports are stored." in out
    assert set(shuffler.received) == written
    assert len(shuffler.received) == 3


@pytest.mark.slow
def test_killed_again_and_again_every_person_is_one_report(
    shuffler: StandIn, tmp_path: Path
) -> None:
    """kill -9 three times within a file: everyone's report was made once."""
    collection = shuffler.opened(load_task(KIND))
    collection.save(tmp_path / "collection.json")
    shuffler.on_post = lambda _: time.sleep(0.01)
    people = 150
    for stop in (1, 40, 90):
        process = started(tmp_path / "collection.json", tmp_path / "out.box", people)
        try:
            for _ in range(1200):
                if len(set(shuffler.received)) >= stop or process.poll() is not None:
                    break
                time.sleep(0.02)
            os.kill(process.pid, signal.SIGKILL)
        finally:
            process.kill()
            process.communicate()
    shuffler.on_post = lambda _: None
    process = started(tmp_path / "collection.json", tmp_path / "out.box", people)
    out, errors = process.communicate(timeout=120)
    assert process.returncode == 0, errors
    assert f"{people} of {people} reports are stored" in out
    whole = [
        report for report in shuffler.received if len(report) == collection.sealing.report_size
    ]  # (a kill cuts a post short)
    assert len(set(whole)) == people
    assert len(whole) > people  # some were on their way when it ended


@pytest.mark.thorough
def test_two_processes_with_one_outbox_send_one_report_a_person(
    shuffler: StandIn, tmp_path: Path
) -> None:
    collection = shuffler.opened(load_task(KIND))
    collection.save(tmp_path / "collection.json")
    processes = [started(tmp_path / "collection.json", tmp_path / "out.box", 80) for _ in range(2)]
    try:
        told = [process.communicate(timeout=120) for process in processes]
    finally:
        for process in processes:
            process.kill()
    assert [process.returncode for process in processes] == [0, 0], told
    assert all("80 of 80 reports are stored" in out for out, _ in told)
    assert len(set(shuffler.received)) == 80


def test_there_is_no_seeded_way(
    shuffler: StandIn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Clients take no randomness from anybody, and what they draw is the system's."""
    seen: list[bool] = []
    protocol = type(load_task(KIND).protocol)
    before = protocol.messages

    def spy(self: Any, inputs: Any, randomness: Any) -> Any:
        seen.append(randomness.unsafe_seeded)
        return before(self, inputs, randomness)

    monkeypatch.setattr(protocol, "messages", spy)
    collection = shuffler.opened(load_task(KIND))
    with client_of(collection, tmp_path) as client:
        client.submit(7)
        client.report(7)
        client.submit_many([1, 2])
    assert seen == [False] * 3


def test_what_a_client_says_of_itself(tmp_path: Path) -> None:
    assert repr(Client(tmp_path / "c.json", tmp_path / "o")).startswith("Client(")
    for wrong in ([], ["a", "b"]):
        with pytest.raises(InputError):
            Client(wrong, digest="0" * 64)
    with pytest.raises(InputError, match="patience"):
        Client("c.json", patience=float("nan"))
