"""Tasks of mixers in the database: claimed for a time, and done once, by compare-and-set.

An attempt mixes one collection. A task of an older attempt, or one that was given to another mixer
meanwhile, changes nothing.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from metricshuffle.collection.store.guarded_clock import GuardedClock
from metricshuffle.collection.store.records import StoreError
from metricshuffle.collection.store.transaction import Database, Transaction

MixStage = Literal["cut", "recut", "sort"]
TASK_SECONDS = 60.0
"""Time after which a task is free again, unless its mixer renews it."""
ATTEMPT_BYTES = 16
HUB_ONLY = -1
"""First place of a task that the driver of the collection does itself."""
NEW_COLUMNS = "stage, no, first, last, source, source_digest"
TASK_COLUMNS = f"{NEW_COLUMNS}, worker, until, object, digest, messages"


@dataclass(frozen=True)
class NewMixTask:
    """Task of an attempt: its stage and number there, and what it is about."""

    stage: MixStage
    number: int
    first: int
    """First place of reports of a cut; the range of a sort or recut."""
    last: int
    """First place after them; the part of a recut range, or -1; the number of parts to make."""
    source: str = ""
    source_digest: str = ""
    """Object that lists what a sort or recut reads, and its digest."""


@dataclass(frozen=True)
class MixTask(NewMixTask):
    """Task as stored; `object` names what came of it, once it is done."""

    worker: str = ""
    until: float = 0.0
    object: str = ""
    object_digest: str = ""
    messages: int = 0

    @property
    def is_done(self) -> bool:
        return self.object != ""


@dataclass(frozen=True)
class MixAttempt:
    """Attempt to mix a collection."""

    name: str
    ranges: int
    tries: int
    """Number of attempts, this one included."""
    started: float
    trouble: str
    """Why it cannot be finished; empty if it can."""


@dataclass(frozen=True)
class ClaimedTask:
    """Task that a mixer has claimed."""

    digest: str
    attempt: MixAttempt
    task: MixTask


@dataclass(frozen=True)
class MixTasks:
    """Tasks of all collections of a database."""

    database: Database
    clock: GuardedClock

    def start(
        self, digest: str, ranges: int, tasks: Sequence[NewMixTask], after: str = ""
    ) -> MixAttempt:
        """Start an attempt in place of the attempt `after`; return the current one."""
        with self.database.writing() as db:
            number = self._lock_sealed(db, digest)
            current = self._attempt(db, number)
            if current is not None and current.name != after:
                return current
            name = secrets.token_hex(ATTEMPT_BYTES)
            tries = 1 if current is None else current.tries + 1
            started = db.read_clock(self.clock).believed
            db.execute("DELETE FROM mix_task WHERE collection = ?", (number,))
            db.execute("DELETE FROM mix_attempt WHERE collection = ?", (number,))
            sql = (
                "INSERT INTO mix_attempt (collection, attempt, ranges, tries, started) "
                "VALUES (?, ?, ?, ?, ?)"
            )
            db.execute(sql, (number, name, ranges, tries, started))
            self._insert(db, number, name, tasks)
        return MixAttempt(name, ranges, tries, started, "")

    def add(self, digest: str, attempt: str, tasks: Sequence[NewMixTask]) -> None:
        """Add tasks to the current attempt; those that exist stay as they are."""
        with self.database.writing() as db:
            number = self._lock_sealed(db, digest)
            current = self._attempt(db, number)
            if current is not None and current.name == attempt:
                self._insert(db, number, attempt, tasks)

    @staticmethod
    def _insert(db: Transaction, number: int, attempt: str, tasks: Sequence[NewMixTask]) -> None:
        sql = (
            f"INSERT INTO mix_task (collection, attempt, {NEW_COLUMNS}) "  # noqa: S608 - names of ours
            "VALUES (?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING"
        )
        for task in tasks:
            place = (task.stage, task.number, task.first, task.last)
            db.execute(sql, (number, attempt, *place, task.source, task.source_digest))

    @staticmethod
    def _lock_sealed(db: Transaction, digest: str) -> int:
        sql = f"SELECT id, state FROM collection WHERE digest = ? {db.row_lock}"  # noqa: S608 - a constant
        line = db.execute(sql, (digest,)).fetchone()
        if line is None or line[1] != "sealed":
            raise StoreError(f"collection {digest[:16]} is not sealed, and is not mixed.")
        return int(line[0])

    def attempt(self, digest: str) -> MixAttempt | None:
        """Return the current attempt of a collection, if any."""
        with self.database.reading() as db:
            sql = "SELECT id FROM collection WHERE digest = ?"
            line = db.execute(sql, (digest,)).fetchone()
            return None if line is None else self._attempt(db, line[0])

    @staticmethod
    def _attempt(db: Transaction, number: int) -> MixAttempt | None:
        sql = (
            "SELECT attempt, ranges, tries, started, trouble FROM mix_attempt WHERE collection = ?"
        )
        line = db.execute(sql, (number,)).fetchone()
        return None if line is None else MixAttempt(*line)

    def of(self, digest: str, attempt: str) -> list[MixTask]:
        """Tasks of an attempt, in their order."""
        sql = (
            f"SELECT {TASK_COLUMNS} FROM mix_task WHERE attempt = ? AND collection = "  # noqa: S608
            "(SELECT id FROM collection WHERE digest = ?) ORDER BY stage, no"
        )
        with self.database.reading() as db:
            return [MixTask(*line) for line in db.execute(sql, (attempt, digest)).fetchall()]

    def claim(self, keys: Sequence[str], seconds: float = TASK_SECONDS) -> ClaimedTask | None:
        """Claim a free task of a sealed collection with one of these public keys, if any."""
        if not keys:
            return None
        marks = ", ".join("?" for _ in keys)
        columns = ", ".join(f"t.{name}" for name in TASK_COLUMNS.split(", "))
        sql = (
            f"SELECT t.collection, c.digest, {columns} FROM mix_task t "  # noqa: S608 - names of ours
            "JOIN mix_attempt a ON a.collection = t.collection AND a.attempt = t.attempt "
            "JOIN collection c ON c.id = t.collection "
            "WHERE c.state = 'sealed' AND a.trouble = '' AND t.object = '' AND t.until < ? "
            f"AND t.first >= 0 AND c.key IN ({marks}) ORDER BY t.collection, t.stage, t.no LIMIT 1"
        )
        with self.database.writing() as db:
            now = db.read_clock(self.clock).believed
            lock = f"{db.row_lock} OF t SKIP LOCKED" if db.row_lock else ""
            line = db.execute(f"{sql} {lock}", (now, *keys)).fetchone()
            if line is None:
                return None
            number, digest = line[:2]
            task = MixTask(*line[2:])
            attempt = self._attempt(db, number)
            if attempt is None:
                return None
            worker = secrets.token_hex(ATTEMPT_BYTES)
            until = now + seconds
            self._set(db, number, attempt.name, task, {"worker": worker, "until": until})
        return ClaimedTask(digest, attempt, replace(task, worker=worker, until=until))

    def renew(self, claimed: ClaimedTask, seconds: float = TASK_SECONDS) -> bool:
        """Renew a task; return False if it was given to another mixer, or is no longer needed."""
        with self.database.writing() as db:
            until = db.read_clock(self.clock).believed + seconds
            return self._compare_and_set(db, claimed, {"until": until})

    def finish(self, claimed: ClaimedTask, name: str, digest: str, messages: int) -> bool:
        """Record what came of a task; return False, and change nothing, if it is not ours."""
        columns = {"object": name, "digest": digest, "messages": messages}
        with self.database.writing() as db:
            return self._compare_and_set(db, claimed, columns)

    def release(self, claimed: ClaimedTask) -> None:
        """Give back a task that this mixer cannot do now."""
        with self.database.writing() as db:
            self._compare_and_set(db, claimed, {"until": 0.0})

    def _compare_and_set(
        self, db: Transaction, claimed: ClaimedTask, columns: dict[str, object]
    ) -> bool:
        sql = f"SELECT id FROM collection WHERE digest = ? AND state = 'sealed' {db.row_lock}"  # noqa: S608
        line = db.execute(sql, (claimed.digest,)).fetchone()
        if line is None:
            return False
        return self._set(db, line[0], claimed.attempt.name, claimed.task, columns)

    @staticmethod
    def _set(
        db: Transaction, number: int, attempt: str, task: MixTask, columns: dict[str, object]
    ) -> bool:
        """Change a task that is not done, and that this mixer has.

        The tasks of older attempts are deleted.
        """
        names = ", ".join(f"{name} = ?" for name in columns)
        sql = (
            f"UPDATE mix_task SET {names} WHERE collection = ? AND attempt = ? AND stage = ? "  # noqa: S608
            "AND no = ? AND worker = ? AND object = ''"
        )
        values = (*columns.values(), number, attempt, task.stage, task.number, task.worker)
        return db.execute(sql, values).rowcount == 1

    def report(self, digest: str, attempt: str, trouble: str) -> None:
        """Record why an attempt cannot be finished; the first reason stays."""
        sql = (
            "UPDATE mix_attempt SET trouble = ? WHERE attempt = ? AND trouble = '' AND "
            "collection = (SELECT id FROM collection WHERE digest = ?)"
        )
        with self.database.writing() as db:
            db.execute(sql, (trouble, attempt, digest))
