"""Missing, damaged, outdated or full storage: the shuffler continues later or aborts."""

from __future__ import annotations

import errno
import os
import shutil
import sqlite3
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.collection.conftest import Clock
from tests.collection.rounds import HONEST, Round, new_round, opened_round, put, secrets_of

from metricshuffle.collection.keys import KeyFolder
from metricshuffle.collection.shuffler import scheduler
from metricshuffle.collection.shuffler.lifecycle import DAY, Shuffler
from metricshuffle.collection.store.factory import connect_store
from metricshuffle.collection.store.records import STATES, StoreError
from metricshuffle.collection.store.sql_store import Store

START = 2_000_000_000.0
ENOUGH = HONEST + 2
POINTS = [
    "sealing",
    "sealed",
    "mixing",
    "written",
    "synced",
    "renamed",
    "settled",
    "copying",
    "copied",
    "compared",
    "shuffled",
    "forgetting",
    "forgotten",
    "keys destroyed",
    "erased",
    "checked",
    "released",
]
"""Those that a collection of one hop passes from its closing time to its release."""


@pytest.fixture
def shuffler(store: Store, tmp_path: Path, clock: Clock) -> Shuffler:
    clock.stop(START)
    return Shuffler(store, KeyFolder.at(tmp_path / "keys"))


def filled(shuffler: Shuffler, clock: Clock, **terms: object) -> tuple[Round, bytes]:
    """A collection that just closed, and what it has to let go."""
    made = opened_round(shuffler, now=clock(), **terms)  # type: ignore[arg-type]
    reports = [made.report() for _ in range(ENOUGH)]
    put(shuffler, made, reports)
    boxes = made.boxes(reports, secrets_of(shuffler, made).private)
    clock.ahead += 60
    return made, b"".join(sorted(boxes))


def reason(shuffler: Shuffler, made: Round) -> str:
    status = shuffler.status(made.digest)
    assert status is not None
    assert status.state == "aborted"
    return status.reason


def output(shuffler: Shuffler, made: Round) -> bytes:
    return b"".join(shuffler.output(made.digest))


def files(shuffler: Shuffler) -> set[str]:
    return {path.name for path in shuffler.keys.path.rglob("*") if path.is_file()}


class Stopped(BaseException):
    """Not an error: nothing may catch it and go on."""


@pytest.mark.parametrize(
    "wrong",
    [Stopped(), OSError(errno.ENOSPC, "No space left on device"), StoreError("its disk is full.")],
    ids=["stopped", "full disk", "lost database"],
)
def test_it_goes_on_from_every_point_and_lets_go_the_same(
    store: Store, tmp_path: Path, clock: Clock, wrong: BaseException
) -> None:
    """Interrupted at every point by a stop, a full disk and a lost database."""
    clock.stop(START)
    keys = KeyFolder.at(tmp_path / "keys")
    passed = []

    def at(point: str) -> None:
        if point in POINTS and point not in passed:
            passed.append(point)
            raise wrong

    shuffler = Shuffler(store, keys, at=at)
    made, expected = filled(shuffler, clock)
    states = []
    for _ in range(len(POINTS)):
        told = Stopped if isinstance(wrong, Stopped) else StoreError
        with pytest.raises(told):
            Shuffler(store, keys, at=at).advance(made.digest)
        row = store.row(made.digest)
        assert row is not None
        states.append(row.state)
        assert (row.state in ("open", "sealed")) == (row.output == "")
        assert not list((keys.path / "output").glob("*.part"))
    assert passed == POINTS
    assert states == sorted(states, key=STATES.index)
    assert Shuffler(store, keys).advance(made.digest) == "released"
    assert output(shuffler, made) == expected
    status = shuffler.status(made.digest)
    assert status is not None
    assert (status.people, status.left_out) == (ENOUGH, 0)
    assert files(shuffler) == {"operator.token", "owner.id", f"{made.digest}.boxes"}


def failures_in(told: list[str]) -> list[str]:
    """What an operator is told beside how states change."""
    return [
        line for line in told if not line.endswith("was opened.") and ", after it was " not in line
    ]


def test_a_run_goes_on_when_there_is_room_again(
    store: Store, tmp_path: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock.stop(START)
    monkeypatch.setattr(scheduler, "PAUSE_SECONDS", 0.02)
    failures = [0]
    told = list[str]()

    def at(point: str) -> None:
        if point == "synced" and failures[0] < 4:
            failures[0] += 1
            raise OSError(errno.ENOSPC, "No space left on device")

    shuffler = Shuffler(store, KeyFolder.at(tmp_path / "keys"), at=at, log=told.append)
    made, expected = filled(shuffler, clock)
    stop = threading.Event()
    thread = threading.Thread(target=shuffler.run, args=(stop,))
    thread.start()
    try:
        deadline = time.monotonic() + 30
        troubles = set()
        while (
            time.monotonic() < deadline
            and (row := store.row(made.digest))
            and row.state != "released"
        ):
            troubles |= set(shuffler.trouble.values())
            time.sleep(0.005)
    finally:
        stop.set()
        thread.join(20)
    assert output(shuffler, made) == expected
    name = made.digest[:16]
    assert troubles == {f"collection {name} cannot go on: No space left on device."}
    assert failures_in(told) == [
        f"collection {name} cannot go on: No space left on device.",
        f"Collection {name} continues.",
    ]
    assert shuffler.trouble == {}


def test_a_fault_of_ours_is_told_without_what_was_handled_and_ends_nobody_else(
    store: Store, tmp_path: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock.stop(START)
    monkeypatch.setattr(scheduler, "PAUSE_SECONDS", 0.02)
    told: list[str] = []
    bad: list[str] = []

    def at(point: str) -> None:
        if threading.current_thread().name == f"collection {bad[0][:8]}" and point == "mixing":
            raise ZeroDivisionError("secret")

    shuffler = Shuffler(
        store,
        KeyFolder.at(tmp_path / "keys"),
        at=lambda point: at(point) if bad else None,
        log=told.append,
    )
    first = opened_round(shuffler, now=START, rounds=2)
    second = opened_round(shuffler, now=START, rounds=2, round=2)
    for made in (first, second):
        put(shuffler, made, [made.report() for _ in range(ENOUGH)])
    bad.append(first.digest)
    clock.ahead = 60
    stop = threading.Event()
    thread = threading.Thread(target=shuffler.run, args=(stop,))
    thread.start()
    try:
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline and not (
            failures_in(told) and (row := store.row(second.digest)) and row.state == "released"
        ):
            time.sleep(0.01)
    finally:
        stop.set()
        thread.join(20)
    assert failures_in(told) == [
        f"ZeroDivisionError while collection {first.digest[:16]} was driven."
    ]
    assert [made and store.row(made.digest).state for made in (first, second)] == [  # type: ignore[union-attr]
        "sealed",
        "released",
    ]


# Missing and damaged


@pytest.mark.parametrize("closed", [False, True])
def test_without_its_keys_it_is_given_up(shuffler: Shuffler, clock: Clock, closed: bool) -> None:
    made, _ = filled(shuffler, clock)
    row = shuffler.store.row(made.digest)
    assert row is not None
    if closed:
        assert shuffler.store.seal(made.digest) == "sealed"
    shuffler.keys.destroy(row.key)
    assert shuffler.advance(made.digest) == "aborted"
    assert "its keys are missing" in reason(shuffler, made)
    assert files(shuffler) == {"operator.token", "owner.id"}


def test_half_destroyed_keys_are_no_keys(shuffler: Shuffler, clock: Clock) -> None:
    made, _ = filled(shuffler, clock)
    row = shuffler.store.row(made.digest)
    assert row is not None
    (shuffler.keys.path / f"{row.key}.key").write_bytes(os.urandom(64))
    assert shuffler.advance(made.digest) == "aborted"
    assert files(shuffler) == {"operator.token", "owner.id"}


def changed_byte(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1] + b"?")


@pytest.mark.parametrize("damage", [changed_byte, Path.unlink])
def test_a_damaged_output_is_restored_from_its_other_copy(
    store: Store, tmp_path: Path, clock: Clock, damage: Callable[[Path], None]
) -> None:
    clock.stop(START)
    keys = KeyFolder.at(tmp_path / "keys")

    def at(point: str) -> None:
        if point == "keys destroyed":
            damage(keys.path / "output" / f"{made.digest}.boxes")

    shuffler = Shuffler(store, keys, at=at)
    made, expected = filled(shuffler, clock)
    assert shuffler.advance(made.digest) == "released"
    assert (keys.path / "output" / f"{made.digest}.boxes").read_bytes() == expected
    damage(
        keys.path / "output" / f"{made.digest}.boxes"
    )  # while it is released: seen at the next start
    Shuffler(store, keys).advance(made.digest)
    assert (keys.path / "output" / f"{made.digest}.boxes").read_bytes() == expected


def test_an_output_that_is_damaged_twice_is_given_up(
    store_url: str, store: Store, tmp_path: Path, clock: Clock
) -> None:
    clock.stop(START)
    keys = KeyFolder.at(tmp_path / "keys")

    def at(point: str) -> None:
        if point == "keys destroyed":
            (keys.path / "output" / f"{made.digest}.boxes").write_bytes(b"x")
            changed(store_url, "UPDATE output SET bytes = ?", b"y")

    shuffler = Shuffler(store, keys, at=at)
    made, _ = filled(shuffler, clock)
    assert shuffler.advance(made.digest) == "aborted"
    assert reason(shuffler, made) == "its output is damaged, in the file and in the database"
    assert files(shuffler) == {"operator.token", "owner.id"}


def test_a_copy_that_is_not_what_was_written_is_not_shuffled(
    store_url: str, store: Store, tmp_path: Path, clock: Clock
) -> None:
    """Both copies are read back before the originals go; then it is tried again."""
    clock.stop(START)
    damaged: list[str] = []

    def at(point: str) -> None:
        if point == "copied" and not damaged:
            damaged.append(point)
            changed(store_url, "UPDATE output SET bytes = ?", b"y")

    shuffler = Shuffler(store, KeyFolder.at(tmp_path / "keys"), at=at)
    made, expected = filled(shuffler, clock)
    with pytest.raises(StoreError, match="read back differs"):
        shuffler.advance(made.digest)
    row = store.row(made.digest)
    assert row is not None
    assert row.state == "sealed"
    assert shuffler.advance(made.digest) == "released"
    assert output(shuffler, made) == expected


def changed(url: str, statement: str, *values: bytes) -> None:
    """Behind the store's back."""
    if url.startswith("sqlite"):
        with sqlite3.connect(url.removeprefix("sqlite:///")) as db:
            db.execute(statement, values)
        db.close()
        return
    import psycopg

    with psycopg.connect(url, options="-c search_path=metricshuffle") as server:
        server.execute(statement.replace("?", "%s"), values)


@pytest.mark.parametrize(
    ("statement", "why"),
    [
        (
            "UPDATE report_1 SET hidden = ? WHERE tag = (SELECT tag FROM report_1 LIMIT 1)",
            "a stored report is damaged",
        ),
        (
            "DELETE FROM report_1 WHERE tag = (SELECT tag FROM report_1 LIMIT 1) AND hidden <> ?",
            "does not contain the reports",
        ),
    ],
)
def test_damaged_reports_are_given_up(
    store_url: str, shuffler: Shuffler, clock: Clock, statement: str, why: str
) -> None:
    made, _ = filled(shuffler, clock)
    if not store_url.startswith("sqlite"):
        statement = statement.replace("tag", "name")
    changed(store_url, statement, os.urandom(100))
    assert shuffler.advance(made.digest) == "aborted"
    assert why in reason(shuffler, made)
    assert files(shuffler) == {"operator.token", "owner.id"}


def test_keys_that_cannot_be_written_are_told_as_a_sentence(
    shuffler: Shuffler, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before it is opened, and while: an operator is told what the disk says, and may try again."""
    made = new_round([(shuffler.new_party(), "http://127.0.0.1:1")], now=clock())

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as disk:
        disk.setattr(os, "link", full)
        with pytest.raises(StoreError, match=r"keys cannot be stored: No space left on device\."):
            shuffler.new_party()
        with pytest.raises(StoreError, match=r"cannot be opened: No space left on device\."):
            shuffler.open(made.collection.served)
    assert shuffler.open(made.collection.served)


# Older than it should be


@pytest.mark.parametrize("copied_at", ["opened", "sealed", "renamed", "compared", "shuffled"])
def test_an_older_database_lets_go_nothing_else(
    tmp_path: Path, clock: Clock, copied_at: str
) -> None:
    """A database restored after release may only repeat its output or abort."""
    clock.stop(START)
    keys = KeyFolder.at(tmp_path / "keys")
    path = tmp_path / "shuffler.db"
    backup = tmp_path / "backup.db"

    def at(point: str) -> None:
        if point == copied_at and not backup.exists():
            source = sqlite3.connect(path)
            copy = sqlite3.connect(backup)
            source.backup(copy)
            source.close()
            copy.close()

    store = connect_store(f"sqlite:///{path}", clock)
    shuffler = Shuffler(store, keys, at=at)
    made, expected = filled(shuffler, clock)
    assert shuffler.advance(made.digest) == "released"
    store.close()
    for left in path.parent.glob("shuffler.db*"):
        left.unlink()
    shutil.copy(backup, path)
    store = connect_store(f"sqlite:///{path}", clock)
    again = Shuffler(store, keys)
    state = again.advance(made.digest)
    if copied_at == "shuffled":
        assert state == "released"
        assert output(again, made) == expected
    else:
        assert state == "aborted"
        assert "its keys are missing" in reason(again, made)
    store.close()


@pytest.mark.parametrize("when", ["before its end", "open", "sealed"])
def test_an_output_of_more_reports_than_there_are_is_given_up(
    shuffler: Shuffler, clock: Clock, when: str
) -> None:
    """An older database next to a newer output: acknowledged reports are lost.

    It aborts at once, also where its clock says that it is still open: further reports would be
    acknowledged in vain.
    """
    made, expected = filled(shuffler, clock)
    if when == "before its end":
        clock.ahead -= 60
    (shuffler.keys.path / "output" / f"{made.digest}.boxes").write_bytes(expected + expected[:57])
    if when == "sealed":
        assert shuffler.store.seal(made.digest) == "sealed"
    assert shuffler.advance(made.digest) == "aborted"
    assert "its database is older" in reason(shuffler, made)


# Keys that nobody needs


def aged(path: Path, seconds: float) -> None:
    then = time.time() - seconds
    os.utime(path, (then, then))


def test_keys_that_nobody_needs_are_destroyed(
    shuffler: Shuffler, clock: Clock, store_url: str, new_store_url: Callable[[], str]
) -> None:
    keys = shuffler.keys
    fresh = shuffler.new_party().key
    old = shuffler.new_party().key
    aged(keys.path / f"{old}.key", DAY + 60)
    (keys.path / ".half.key.0123.part").write_bytes(b"half of a secret")
    aged(keys.path / ".half.key.0123.part", DAY + 60)
    made, _ = filled(shuffler, clock)
    row = shuffler.store.row(made.digest)
    assert row is not None
    aged(keys.path / f"{row.key}.key", DAY + 60)
    shuffler.sweep()
    assert set(keys.names()) == {fresh, row.key}
    assert not list(keys.path.glob(".*.part"))
    secret = (keys.path / f"{row.key}.key").read_bytes()

    other = connect_store(
        new_store_url(), clock
    )  # a database that knows nothing: perhaps the wrong one
    Shuffler(other, keys).sweep()
    other.close()
    assert set(keys.names()) == {fresh, row.key}

    assert shuffler.advance(made.digest) == "released"
    (keys.path / f"{row.key}.key").write_bytes(secret)  # put back from a backup
    shuffler.sweep()
    assert keys.names() == [fresh]
