"""Sealed reports on their way: written down before they are sent, so that whatever happens nobody's value is randomized twice.

An SQLite file. A person is in it once for each task and round, whichever collection her report is for, and several processes may use it.
Names are not kept, only their hashes under a random key of the file. What the shuffler has acknowledged is deleted, except that it was.
"""

from __future__ import annotations

import hashlib
import os
import secrets
import sqlite3
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from metricshuffle.errors import InputError

Standing = Literal["waiting", "stored", "late"]
APPLICATION = 0x4D534F58
"""By this SQLite tells an outbox from other databases."""
WHO_BYTES, TICKET_HASH_BYTES = 32, 32
PATIENCE = 30.0
"""Seconds that one process waits for another."""
AT_ONCE = 500
SCHEMA = """
CREATE TABLE IF NOT EXISTS about (salt BLOB NOT NULL);
CREATE TABLE IF NOT EXISTS reports (
    task TEXT NOT NULL, round INTEGER NOT NULL, who BLOB NOT NULL, collection TEXT NOT NULL, report BLOB, boxes BLOB,
    standing TEXT NOT NULL DEFAULT 'waiting' CHECK (standing IN ('waiting', 'stored', 'late')),
    answer INTEGER NOT NULL DEFAULT 0,
    CHECK ((report IS NULL) = (standing != 'waiting')),
    PRIMARY KEY (task, round, who)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS tickets (
    collection TEXT NOT NULL, ticket BLOB NOT NULL, who BLOB NOT NULL, refused INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (collection, ticket)
) WITHOUT ROWID;
"""


@dataclass(frozen=True)
class Sealed:
    """A person's report. `boxes` are kept where there are tickets, because one that is refused may be replaced by another."""

    who: bytes
    collection: str
    report: bytes
    boxes: bytes | None = None


@dataclass(frozen=True)
class Held:
    """What the outbox knows of a person's report."""

    who: bytes
    collection: str
    standing: Standing
    answer: int
    """The last status that the shuffler answered with; 0 if there was none."""


@dataclass(frozen=True)
class Settled:
    """What became of a report that was sent."""

    who: bytes
    standing: Standing
    answer: int


class Outbox:
    """An open file. Every method is one transaction, durable when it returns."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self._lock = threading.Lock()
        with self._told():
            self._connection = self._opened()
            self._salt = self._prepared()

    def _opened(self) -> sqlite3.Connection:
        if not self.path.parent.is_dir():
            raise InputError(f"the outbox {self.path} lies in a folder that does not exist; make {self.path.parent} first.")
        try:  # for its owner alone
            os.close(os.open(self.path, os.O_RDWR | os.O_CREAT, 0o600))
        except OSError as wrong:
            raise InputError(f"cannot write the outbox {self.path}: {wrong.strerror or wrong}.") from None
        connection = sqlite3.connect(self.path, timeout=PATIENCE, isolation_level=None, check_same_thread=False)
        for setting in ("synchronous = EXTRA", "secure_delete = ON", "trusted_schema = OFF"):
            connection.execute(f"PRAGMA {setting}")
        return connection

    def _prepared(self) -> bytes:
        """The tables, made if the file is new, and the key of its names."""
        connection = self._connection
        with self._transaction():
            (named,), (tables,) = (
                connection.execute("PRAGMA application_id").fetchone(),
                connection.execute("SELECT count(*) FROM sqlite_master").fetchone(),
            )
            if named != APPLICATION and tables:
                raise InputError(f"{self.path} is a database of something else and not an outbox; name another file with --outbox.")
            if not tables:
                connection.execute(f"PRAGMA application_id = {APPLICATION}")
                for statement in SCHEMA.split(";\n"):
                    connection.execute(statement)
                connection.execute("INSERT INTO about VALUES (?)", (secrets.token_bytes(32),))
            return bytes(connection.execute("SELECT salt FROM about").fetchone()[0])

    @contextmanager
    def _told(self) -> Iterator[None]:
        """What SQLite says, in a sentence."""
        try:
            yield
        except sqlite3.Error as wrong:
            raise InputError(
                f"cannot use the outbox {self.path}, where sealed reports are kept until they are stored ({wrong}); nothing was sent that "
                "is not written down; name another file with --outbox only if nobody in this one has reported."
            ) from None

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        with self._lock, self._told():
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                yield self._connection
            except BaseException:
                self._connection.execute("ROLLBACK")
                raise
            self._connection.execute("COMMIT")

    def close(self) -> None:
        with self._lock:
            self._connection.close()

    # Who

    def user(self, name: str) -> bytes:
        """Stands for a person who has a name."""
        return self._hashed(b"user\0" + name.encode())

    def row(self, source: bytes, row: int) -> bytes:
        """Stands for a row of a file with that hash."""
        return self._hashed(b"row\0" + source + row.to_bytes(8, "little"))

    def _hashed(self, text: bytes) -> bytes:
        return hashlib.blake2b(text, digest_size=WHO_BYTES, key=self._salt).digest()

    # Reports

    def held(self, task: str, round: int, people: Sequence[bytes]) -> dict[bytes, Held]:
        """Of those people the ones who are in it."""
        known: dict[bytes, Held] = {}
        with self._lock, self._told():
            for start in range(0, len(people), AT_ONCE):
                some = people[start : start + AT_ONCE]
                marks = ", ".join("?" * len(some))
                rows = self._connection.execute(
                    f"SELECT who, collection, standing, answer FROM reports WHERE task = ? AND round = ? AND who IN ({marks})",  # noqa: S608
                    (task, round, *some),
                )
                known |= {bytes(who): Held(bytes(who), *rest) for who, *rest in rows}
        return known

    def keep(self, task: str, round: int, reports: Iterable[Sealed]) -> dict[bytes, Held]:
        """Write reports down, all of them or none; whoever was quicker stays, and her report is the one to send."""
        kept: dict[bytes, Held] = {}
        with self._transaction() as connection:
            for new in reports:
                connection.execute(
                    "INSERT INTO reports (task, round, who, collection, report, boxes) VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING",
                    (task, round, new.who, new.collection, new.report, new.boxes),
                )
                (row,) = connection.execute(
                    "SELECT collection, standing, answer FROM reports WHERE task = ? AND round = ? AND who = ?", (task, round, new.who)
                )
                kept[new.who] = Held(new.who, *row)
        return kept

    def report(self, task: str, round: int, who: bytes) -> Sealed | None:
        """The bytes to send; None if they were acknowledged in the meantime."""
        with self._lock, self._told():
            question = "SELECT collection, report, boxes FROM reports WHERE task = ? AND round = ? AND who = ? AND report IS NOT NULL"
            row = self._connection.execute(question, (task, round, who)).fetchone()
        return None if row is None else Sealed(who, *row)

    def replace(self, task: str, round: int, who: bytes, before: int, report: bytes) -> None:
        """The same boxes with another ticket, if the last answer is still the one that refused the first ticket."""
        with self._transaction() as connection:
            connection.execute(
                "UPDATE reports SET report = ?, answer = 0 WHERE task = ? AND round = ? AND who = ? AND answer = ? AND report IS NOT NULL",
                (report, task, round, who, before),
            )

    def settle(self, task: str, round: int, settled: Iterable[Settled]) -> None:
        """Note what was answered. What is stored stays stored, whatever another process was told afterwards."""
        with self._transaction() as connection:
            for news in settled:
                gone = "" if news.standing == "waiting" else ", report = NULL, boxes = NULL"
                connection.execute(
                    f"UPDATE reports SET standing = ?, answer = ?{gone} WHERE task = ? AND round = ? AND who = ? "  # noqa: S608
                    "AND (standing = 'waiting' OR (standing = 'late' AND ? = 'stored'))",
                    (news.standing, news.answer, task, round, news.who, news.standing),
                )

    def waiting(self, task: str, round: int, collections: Sequence[str]) -> list[Held]:
        """Everybody whose report for one of these collections is not acknowledged."""
        with self._lock, self._told():
            rows = self._connection.execute(
                "SELECT who, collection, standing, answer FROM reports WHERE task = ? AND round = ? AND standing = 'waiting'", (task, round)
            )
            return [Held(bytes(who), collection, *rest) for who, collection, *rest in rows if collection in collections]

    # Tickets

    def tickets_for(self, people: Mapping[bytes, str], offered: Sequence[bytes], collections: Sequence[str]) -> dict[bytes, bytes]:
        """A ticket for each of those people (who -> collection), out of those that are offered: her own again, or the next nobody had.

        One that was refused, or is somebody's in one of the `collections`, is not given to anybody else. Raises if there are too few, and
        then nobody has got one.
        """
        hashes = {ticket_hash(ticket): ticket for ticket in offered}
        given: dict[bytes, bytes] = {}
        with self._transaction() as connection:
            taken = set()
            for collection, ticket, who, refused in connection.execute("SELECT collection, ticket, who, refused FROM tickets"):
                if collection not in collections:
                    continue
                taken.add(bytes(ticket))
                if not refused and people.get(who) == collection and ticket in hashes:
                    given[who] = hashes[ticket]
            free = [hashed for hashed in hashes if hashed not in taken]
            without = [who for who in people if who not in given]
            if len(free) < len(without):
                raise InputError(
                    f"{len(without):,} more {'people need' if len(without) != 1 else 'person needs'} a ticket, and of the "
                    f"{len(offered):,} that are offered {len(free):,} were never used; nothing was sent for them. Ask for more tickets."
                )
            for who, hashed in zip(without, free, strict=False):
                connection.execute("INSERT INTO tickets VALUES (?, ?, ?, 0)", (people[who], hashed, who))
                given[who] = hashes[hashed]
        return given

    def refuse_tickets(self, people: Iterable[tuple[bytes, str]]) -> None:
        """The tickets that these people (who, collection) had are not accepted."""
        with self._transaction() as connection:
            connection.executemany("UPDATE tickets SET refused = 1 WHERE who = ? AND collection = ?", people)


def ticket_hash(ticket: bytes) -> bytes:
    return hashlib.blake2b(ticket, digest_size=TICKET_HASH_BYTES, person=b"outbox ticket").digest()
