"""List of the leases of keys, beside the keys: it decides when the keys can be destroyed.

It also records how far the history of the database was (`HistoryMark`). It lies on the disk of the
keys, so no lease is lost when a standby of the database takes over. A lease is durable in the list
before a key leaves.
"""

from __future__ import annotations

import sqlite3
import threading
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from metricshuffle.collection.store.database_history import HistoryMark
from metricshuffle.collection.store.guarded_clock import SteadyTime
from metricshuffle.collection.store.records import StoreError

if TYPE_CHECKING:
    from collections.abc import Iterator

LIST_NAME = "leases.db"
LeaseEnd = Literal["returned", "confirmed", "expired"]
ENDS: tuple[LeaseEnd, ...] = ("returned", "confirmed", "expired")
"""Ends of a lease: the edge said that its openers exited; the operator confirmed that the machine
is destroyed; or the time of the lease passed, which proves neither."""
TABLES = f"""
CREATE TABLE IF NOT EXISTS lease (
    id TEXT PRIMARY KEY, digest TEXT NOT NULL, edge TEXT NOT NULL,
    ended TEXT NOT NULL DEFAULT '' CHECK (ended IN {("", *ENDS)})
)
"""
SILENCE_TABLE = """
CREATE TABLE IF NOT EXISTS silence (id TEXT PRIMARY KEY, boot TEXT NOT NULL, since REAL NOT NULL)
"""
"""Living leases that were not renewed after a time of the steady clock."""
HISTORY_TABLE = """
CREATE TABLE IF NOT EXISTS history (
    one INTEGER PRIMARY KEY CHECK (one = 1), system TEXT NOT NULL, timeline INTEGER NOT NULL,
    position INTEGER NOT NULL, step INTEGER NOT NULL
)
"""


@dataclass(frozen=True)
class Lease:
    """Lease of the keys of a collection to an edge."""

    id: bytes
    digest: str
    edge: str
    """Subject of the edge's certificate."""
    ended: str = ""


@dataclass(frozen=True)
class LeaseList:
    """Leases in a file."""

    path: Path
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @classmethod
    def at(cls, folder: Path, *, create: bool = False) -> LeaseList | None:
        """Open the list in a folder of keys; None if it does not exist."""
        path = folder / LIST_NAME
        if not create and not path.exists():
            return None
        leases = cls(path)
        with leases._opened() as db:
            db.execute(TABLES)
            db.execute(HISTORY_TABLE)
            db.execute(SILENCE_TABLE)
        path.chmod(0o600)
        return leases

    @contextmanager
    def _opened(self) -> Iterator[sqlite3.Connection]:
        """Run one transaction, durable when the context is left."""
        with self._lock:
            try:
                db = sqlite3.connect(self.path, timeout=10, isolation_level=None)
            except sqlite3.Error as error:
                raise StoreError(f"cannot use {self.path}: {error}.") from None
            try:
                # EXTRA also synchronizes the folder after the journal is deleted.
                db.execute("PRAGMA synchronous = EXTRA")
                db.execute("BEGIN IMMEDIATE")
                yield db
                db.execute("COMMIT")
            except sqlite3.Error as error:
                raise StoreError(f"cannot use {self.path}: {error}.") from None
            finally:
                db.close()

    def add(self, lease: Lease) -> None:
        with self._opened() as db:
            values = (lease.id.hex(), lease.digest, lease.edge)
            db.execute("INSERT INTO lease (id, digest, edge) VALUES (?, ?, ?)", values)

    def end(self, lease: bytes, end: LeaseEnd) -> None:
        """End a lease; its first end stays, but the operator may confirm an expired lease later."""
        with self._opened() as db:
            allowed = ("", "expired") if end == "confirmed" else ("",)
            marks = ", ".join("?" for _ in allowed)
            sql = f"UPDATE lease SET ended = ? WHERE id = ? AND ended IN ({marks})"  # noqa: S608
            db.execute(sql, (end, lease.hex(), *allowed))
            db.execute("DELETE FROM silence WHERE id = ?", (lease.hex(),))

    def start_silence(self, now: SteadyTime) -> dict[bytes, float]:
        """Note that the hub starts; return since when each living lease was not renewed.

        A lease that the previous process renewed counts from now on. One that it did not renew
        counts from an earlier start, so that a hub that is started often ends leases nevertheless.
        """
        with self._opened() as db:
            db.execute("DELETE FROM silence WHERE boot <> ?", (now.boot,))
            sql = "INSERT OR IGNORE INTO silence SELECT id, ?, ? FROM lease WHERE ended = ''"
            db.execute(sql, (now.boot, now.seconds))
            rows = db.execute("SELECT id, since FROM silence").fetchall()
        return {bytes.fromhex(number): since for number, since in rows}

    def end_silence(self, lease: bytes) -> None:
        """Note durably that a lease is renewed, before the edge knows it."""
        with self._opened() as db:
            db.execute("DELETE FROM silence WHERE id = ?", (lease.hex(),))

    def find(self, lease: bytes) -> Lease | None:
        return next(iter(self._leases("WHERE id = ?", lease.hex())), None)

    def living(self, digest: str | None = None) -> list[Lease]:
        """Leases that have not ended, of one collection or of all."""
        if digest is None:
            return self._leases("WHERE ended = ''")
        return self._leases("WHERE ended = '' AND digest = ?", digest)

    def all(self) -> list[Lease]:
        return self._leases("")

    def of(self, digest: str) -> list[Lease]:
        return self._leases("WHERE digest = ?", digest)

    def _leases(self, clause: str, *values: str) -> list[Lease]:
        with self._opened() as db:
            sql = f"SELECT id, digest, edge, ended FROM lease {clause} ORDER BY id"  # noqa: S608
            rows = db.execute(sql, values).fetchall()
        return [Lease(bytes.fromhex(number), *row) for number, *row in rows]

    def mark(self) -> HistoryMark | None:
        """Where the history of the database was when the hub last wrote to it."""
        with self._opened() as db:
            row = db.execute("SELECT system, timeline, position, step FROM history").fetchone()
        return None if row is None else HistoryMark(*row)

    def record(self, mark: HistoryMark) -> None:
        with self._opened() as db:
            values = (mark.system, mark.timeline, mark.position, mark.step)
            db.execute("INSERT OR REPLACE INTO history VALUES (1, ?, ?, ?, ?)", values)

    def ends_of(self, digest: str) -> str:
        """How the leases of a collection ended, as a public sentence; empty if it had none."""
        leases = self.of(digest)
        if not leases:
            return ""
        counts = {end: sum(lease.ended == end for lease in leases) for end in ENDS}
        listed = ", ".join(f"{count:,} {end}" for end, count in counts.items() if count)
        warning = (
            " An expired lease proves neither that its edge or mixer erased the keys nor that "
            "nobody opens recorded reports with them."
            if counts["expired"]
            else ""
        )
        return f"Keys were leased {len(leases):,} times: {listed}.{warning}"
