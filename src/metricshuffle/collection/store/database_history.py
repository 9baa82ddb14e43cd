"""Guard against a database older than the keys: the hub records how far its history went.

A restored copy, or a standby that takes over without the last commits, lacks the latest decisions.
The last statement of every transaction of a hub therefore raises a step number
in the database and reads which database this is: its identifier, the timeline, and the position of
the journal. Once the commit is acknowledged, these are recorded beside the keys. A database is
refused if it has another identifier or an older timeline, or is behind the recorded position or
step. Its transaction is undone, so no keys are leased, nothing is closed and nothing destroyed
until the operator decides.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol

from metricshuffle.collection.shuffler.admission import FINAL_STATES
from metricshuffle.collection.store.guarded_clock import clamped_time_text
from metricshuffle.collection.store.postgres_server import (
    DatabaseRole,
    PostgresServer,
    PostgresTransaction,
)
from metricshuffle.collection.store.records import DatabaseRolledBack
from metricshuffle.errors import InputError

MARK_COLUMNS = (
    "(SELECT system_identifier::text FROM pg_control_system()), "
    # The first digits of a journal's file name are the timeline, also right after a promotion.
    "('x' || left(pg_walfile_name(pg_current_wal_lsn()), 8))::bit(32)::bigint, "
    "(pg_current_wal_lsn() - '0/0'::pg_lsn)::bigint"
)


@dataclass(frozen=True)
class HistoryMark:
    """Where the history of a database was when a transaction of the hub ended."""

    system: str
    """Identifier of the database server, which its standbys share."""
    timeline: int
    """Number that every promotion raises."""
    position: int
    """Byte of the journal, read before the commit: a server that has the commit is past it."""
    step: int
    """Number of transactions of the hub."""

    def trouble(self, database: HistoryMark) -> str:
        """Why a database is another one, or older than this mark; empty if it continues from it."""
        differences = {
            "it is another database": database.system != self.system,
            "its timeline is older": not database.timeline >= self.timeline,
            "its journal is behind": not database.position >= self.position,
            "it lacks steps of this hub": not database.step >= self.step,
        }
        reasons = [reason for reason, differs in differences.items() if differs]
        if not reasons:
            return ""
        return (
            f"the database is not the one that this hub last wrote to ({', '.join(reasons)}): a "
            "copy was restored, or a standby took over that lacked the last commits. No keys are "
            "leased, and nothing is closed, released or destroyed. Bring the right database "
            "back, or accept this one with collection database accept."
        )


class HistoryRecord(Protocol):
    """Durable place of the mark beside the keys."""

    def mark(self) -> HistoryMark | None: ...
    def record(self, mark: HistoryMark) -> None: ...


class RecordedServer(PostgresServer):
    """Database of a hub; every transaction that writes is compared with the record."""

    def __init__(self, url: str, role: DatabaseRole, record: HistoryRecord) -> None:
        self._record: HistoryRecord | None = None
        super().__init__(url, role=role)  # may make the tables; nothing is compared yet
        self._record = record
        self._recording = threading.Lock()

    @contextmanager
    def writing(self) -> Iterator[PostgresTransaction]:
        """Run one transaction, see `PostgresServer`, unless the database is older than the record.

        The step number is raised last, so that two transactions wait for each other only while they
        commit.

        Raises: DatabaseRolledBack.
        """
        record = self._record
        if record is None:
            with super().writing() as db:
                yield db
            return
        with super().writing() as db:
            yield db
            after = self._mark(db, "UPDATE history SET step = step + 1 RETURNING")
            self._check(record, HistoryMark(*after[:-1], after[-1] - 1))
        self._note(record, HistoryMark(*after))

    def _note(self, record: HistoryRecord, mark: HistoryMark) -> None:
        """Record a mark, unless another thread has recorded a later one meanwhile."""
        with self._recording:
            last = record.mark()
            if last is None or last.step < mark.step:
                record.record(mark)

    @staticmethod
    def _mark(db: PostgresTransaction, begin: str, end: str = "") -> tuple[str, int, int, int]:
        [system, timeline, position, step] = db.execute(
            f"{begin} {MARK_COLUMNS}, step {end}"
        ).fetchone()
        return system, timeline, position, step

    @staticmethod
    def _check(record: HistoryRecord, database: HistoryMark) -> None:
        last = record.mark()
        if last is not None and (trouble := last.trouble(database)):
            raise DatabaseRolledBack(trouble)

    def trouble(self) -> str:
        """Why this database is not accepted; empty if it is."""
        if self._record is None:
            return ""
        with self.reading() as db:
            database = HistoryMark(*self._mark(db, "SELECT", "FROM history"))
        last = self._record.mark()
        return "" if last is None else last.trouble(database)

    def accept(self) -> str:
        """Accept the database; return the note that every unfinished collection gets.

        Raises: InputError if it is accepted already.
        """
        record = self._record
        trouble = self.trouble()
        if record is None or not trouble:
            raise InputError("the database is the one that this hub wrote to last.")
        last = record.mark()
        step = 0 if last is None else last.step
        with super().writing() as db:
            db.lock_collections()
            [now] = db.execute("SELECT extract(epoch FROM clock_timestamp())::float8").fetchone()
            note = (
                "The operator accepted a database that was older than the keys, or another one, "
                f"at {clamped_time_text(now)}."
            )
            sql = f"UPDATE collection SET leases = leases || ? WHERE state NOT IN {FINAL_STATES}"  # noqa: S608 - states of ours
            db.execute(sql, (f"{note} ",))
            sql = f"UPDATE history SET step = greatest(step, {step}) + 1 RETURNING"  # noqa: S608 - a number
            after = HistoryMark(*self._mark(db, sql))
        with self._recording:
            record.record(after)
        return note
