"""Declined reports are never sent, and no report is sent twice, in any order of events."""

from __future__ import annotations

import random
import sqlite3
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from tests.catalogue.planned_tasks import load_task
from tests.collection.stand_in import HANG_UP, StandIn, standing_in
from tests.collection.test_client import KIND, client_of

from metricshuffle.collection.client.http_client import NotStored
from metricshuffle.collection.client.outbox import Outbox, SealedReport, SettledReport
from metricshuffle.collection.client.report_builder import seal_reports
from metricshuffle.errors import InputError

TASK = "task"
ROUND = 1
HERE = "a" * 64
RUNS = 1000


@pytest.fixture
def shuffler() -> Iterator[StandIn]:
    with standing_in() as stand_in:
        yield stand_in


# With a shuffler


def test_declined_while_a_report_waits_for_its_moment(
    shuffler: StandIn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In another process: whoever waits reads the outbox again before anything is posted."""
    monkeypatch.setattr(
        "metricshuffle.collection.client.batch_submission.random_delay", lambda _: 1.0
    )
    collection = shuffler.opened(load_task(KIND), delay=1)
    told = []

    def submit() -> None:
        with client_of(collection, tmp_path) as client:
            try:
                client.submit(7)
            except NotStored as refusal:
                told.append(str(refusal))

    sender = threading.Thread(target=submit)
    sender.start()
    with client_of(collection, tmp_path) as client:
        deadline = time.monotonic() + 60
        place = (collection.task.digest, collection.terms.round, [client.outbox.user("")])
        while not client.outbox.held(*place) and time.monotonic() < deadline:  # it is not made yet
            time.sleep(0.02)
        nothing = client.decline()
    sender.join(60)
    assert nothing is True
    assert shuffler.received == []
    assert len(told) == 1
    assert "It was declined on 20" in told[0]
    assert "nothing was sent" in told[0]


def test_declined_before_another_process_has_made_it(
    shuffler: StandIn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever reads, verifies and randomizes meanwhile sends nothing; nor does anybody later."""
    collection = shuffler.opened(load_task(KIND))
    answers: list[bool] = []

    def decline_first(*given: Any) -> Any:
        with client_of(collection, tmp_path) as other:
            answers.append(other.decline())
        return seal_reports(*given)

    monkeypatch.setattr(
        "metricshuffle.collection.client.batch_submission.seal_reports", decline_first
    )
    with client_of(collection, tmp_path) as client:
        for _ in range(2):
            with pytest.raises(NotStored, match=r"It was declined on 20.*nothing was sent"):
                client.submit(7)
        assert client.resend().people == 0
    assert answers == [True]
    assert shuffler.received == []


def test_declined_while_it_is_tried_again(shuffler: StandIn, tmp_path: Path) -> None:
    """It may have been sent, and whoever tries again stops."""
    collection = shuffler.opened(load_task(KIND))
    shuffler.script = [503] * 100
    answers: list[bool] = []

    def decline(_: bytes) -> None:
        if not answers:
            with client_of(collection, tmp_path) as other:
                answers.append(other.decline())

    shuffler.on_post = decline
    with client_of(collection, tmp_path) as client:
        with pytest.raises(
            NotStored, match="it may have been sent before that, and is not sent again"
        ):
            client.submit(7)
        assert client.resend().people == 0
        with pytest.raises(NotStored, match=r"Nothing was sent now\. It was declined"):
            client.submit(8)
    assert answers == [False]
    assert len(shuffler.received) == 1


@pytest.mark.parametrize("answer", [503, HANG_UP])
def test_declined_after_the_shuffler_was_away(
    shuffler: StandIn, tmp_path: Path, answer: int
) -> None:
    collection = shuffler.opened(load_task(KIND))
    shuffler.script = [answer]
    with client_of(collection, tmp_path, patience=0.0) as client:
        with pytest.raises(NotStored):
            client.submit(7)
        assert client.decline() is False
        assert client.decline() is False
        with pytest.raises(NotStored, match="may have been sent"):
            client.submit(7)
    assert len(shuffler.received) == 1


def test_an_answer_that_comes_after_it_was_declined_is_the_truth(
    shuffler: StandIn, tmp_path: Path
) -> None:
    collection = shuffler.opened(load_task(KIND))

    def decline(_: bytes) -> None:
        with client_of(collection, tmp_path) as other:
            assert other.decline() is False

    shuffler.on_post = decline
    with client_of(collection, tmp_path) as client:
        assert client.submit(7).status == "stored"
        with pytest.raises(NotStored, match="A report was stored before"):
            client.decline()


# The file


def test_an_outbox_of_an_older_version_is_read(tmp_path: Path) -> None:
    """Pending reports may have been sent; stored ones stay stored; names are the same."""
    connection = sqlite3.connect(tmp_path / "old.box")
    connection.executescript("""
        PRAGMA application_id = 0x4D534F58;
        CREATE TABLE about (salt BLOB NOT NULL);
        CREATE TABLE reports (
            task TEXT NOT NULL, round INTEGER NOT NULL, who BLOB NOT NULL, collection TEXT NOT NULL, report BLOB, boxes BLOB,
            standing TEXT NOT NULL DEFAULT 'waiting' CHECK (standing IN ('waiting', 'stored', 'late')),
            answer INTEGER NOT NULL DEFAULT 0,
            CHECK ((report IS NULL) = (standing != 'waiting')),
            PRIMARY KEY (task, round, who)
        ) WITHOUT ROWID;
        CREATE TABLE tickets (
            collection TEXT NOT NULL, ticket BLOB NOT NULL, who BLOB NOT NULL, refused INTEGER NOT NULL DEFAULT 0,
            PRIMARY KEY (collection, ticket)
        ) WITHOUT ROWID;
        INSERT INTO about VALUES (x'00112233');
        INSERT INTO reports VALUES ('task', 1, x'01', 'c', x'abcd', x'ef', 'waiting', 503),
            ('task', 1, x'02', 'c', NULL, NULL, 'stored', 204), ('task', 1, x'03', 'c', NULL, NULL, 'late', 410);
    """)  # noqa: E501
    connection.close()
    for _ in range(2):
        outbox = Outbox(tmp_path / "old.box")
        held = outbox.held(TASK, ROUND, [b"\1", b"\2", b"\3"])
        assert [(held[who].state, held[who].answer, held[who].at) for who in sorted(held)] == [
            ("sending", 503, 0),
            ("sent", 204, 0),
            ("late", 410, 0),
        ]
        assert outbox.begin(TASK, ROUND, b"\1") == SealedReport(b"\1", "c", b"\xab\xcd", b"\xef")
        outbox.close()
    outbox = Outbox(tmp_path / "old.box")
    declined = outbox.decline(TASK, ROUND, b"\1", "c")
    outbox.close()
    assert declined.tried


def test_an_outbox_of_a_newer_version_is_left_alone(tmp_path: Path) -> None:
    Outbox(tmp_path / "out.box").close()
    with sqlite3.connect(tmp_path / "out.box") as connection:
        connection.execute("PRAGMA user_version = 9")
    connection.close()
    before = (tmp_path / "out.box").read_bytes()
    with pytest.raises(InputError, match="newer version"):
        Outbox(tmp_path / "out.box")
    assert (tmp_path / "out.box").read_bytes() == before


# In any order


@dataclass
class Process:
    """Client at its next step: none, bytes to post, or an answer to record."""

    outbox: Outbox
    ready: bytes | None = None
    answered: list[SettledReport] = field(default_factory=list)


@dataclass
class World:
    """One person, one outbox, several processes; a network that loses reports and answers."""

    path: Path
    chance: random.Random
    who: bytes
    processes: list[Process] = field(init=False)
    post_report: list[bytes] = field(default_factory=list)
    stored: set[bytes] = field(default_factory=set)
    nothing_was_sent: bool = False
    may_have_been_sent: bool = False
    thanked: bool = False

    def __post_init__(self) -> None:
        self.processes = [self.started() for _ in range(3)]

    def started(self) -> Process:
        outbox = Outbox(self.path)
        outbox._connection.execute(
            "PRAGMA synchronous = OFF"
        )  # (the order is what counts here, and no power fails)
        return Process(outbox)

    def make(self, process: Process) -> None:
        """Another value each time: the bytes are random."""
        state = self.chance.choice(("made", "sending"))
        process.outbox.keep(
            TASK,
            ROUND,
            [SealedReport(self.who, HERE, self.chance.randbytes(16))],
            state,  # type: ignore[arg-type]
        )

    def begin(self, process: Process) -> None:
        """Everything before the bytes leave; before `post` other processes may act."""
        if process.ready is None and not process.answered:
            sealed = process.outbox.begin(TASK, ROUND, self.who)
            process.ready = None if sealed is None else sealed.report

    def post(self, process: Process) -> None:
        if process.ready is None:
            return
        report = process.ready
        process.ready = None
        self.post_report.append(report)
        arrives = self.chance.random() < 0.7
        answer_arrives = self.chance.random() < 0.7
        if arrives and self.chance.random() < 0.8:
            self.stored.add(report)
            process.answered = [
                SettledReport(self.who, "sent", 204)
                if answer_arrives
                else SettledReport(self.who, "sending", 0)
            ]
        else:
            process.answered = [
                SettledReport(self.who, "sending", 503 if arrives and answer_arrives else 0)
            ]

    def note(self, process: Process) -> None:
        answered = process.answered
        process.answered = []
        self.thanked |= any(settled.state == "sent" for settled in answered)
        process.outbox.settle(TASK, ROUND, answered)

    def decline(self, process: Process) -> None:
        held = process.outbox.decline(TASK, ROUND, self.who, HERE)
        if held.state == "declined":
            self.nothing_was_sent |= not held.tried
            self.may_have_been_sent |= held.tried

    def crash(self, process: Process) -> None:
        process.outbox.close()
        self.processes[self.processes.index(process)] = self.started()

    def check(self) -> None:
        assert not (self.nothing_was_sent and self.post_report)
        assert len(set(self.post_report)) <= 1
        (held,) = self.processes[0].outbox.held(TASK, ROUND, [self.who]).values() or [None]
        state = held.state if held else None
        assert not (self.thanked and state not in ("sent", "declined", "sending"))
        if state == "sent":
            assert self.stored

    def close(self) -> None:
        for process in self.processes:
            process.outbox.close()


@pytest.mark.thorough
def test_a_thousand_interleavings(tmp_path: Path) -> None:
    """Three processes: nothing is sent after "nothing was sent", and never two reports."""
    acts = (
        World.make,
        World.begin,
        World.begin,
        World.post,
        World.post,
        World.note,
        World.decline,
        World.crash,
    )
    seen = {"nothing": 0, "perhaps": 0, "stored": 0, "again": 0}
    for run in range(RUNS):
        chance = random.Random(run)
        world = World(tmp_path / "out.box", chance, run.to_bytes(4, "big"))
        try:
            world.make(world.processes[0])
            for act in chance.choices(acts, k=14):
                act(world, chance.choice(world.processes))
            for process in list(world.processes):
                world.post(process)
                world.note(process)
            world.check()
        except AssertionError as wrong:
            raise AssertionError(f"run {run}: {world}") from wrong
        finally:
            world.close()
        seen["nothing"] += world.nothing_was_sent
        seen["perhaps"] += world.may_have_been_sent
        seen["stored"] += bool(world.stored)
        seen["again"] += len(world.post_report) > 1
    assert min(seen.values()) > RUNS / 50, seen
