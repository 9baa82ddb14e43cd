"""Outbox of sealed reports, stored before they are sent, so that no value is randomized twice.

The outbox is an SQLite file that several processes may use. It has one entry for a person, task and
round, whichever collection the report is for. Names are stored as hashes under a random key of the
file. An acknowledged report is deleted; only the fact and its time remain, and in the ledger what
the report can reveal. Nothing is stored from which a value could be recovered, not even a hash,
because all values could be tried.
"""

from __future__ import annotations

import hashlib
import os
import secrets
import sqlite3
import stat
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from metricshuffle.collection.client.device_ledger import (
    DeviceLedger,
    DeviceLimit,
    LedgerEntry,
    OverLimit,
    this_day,
)
from metricshuffle.collection.client.outbox_tables import FROM_VERSION_0, SCHEMA, TOKENS, VERSION
from metricshuffle.errors import InputError
from metricshuffle.files import check_leads_somewhere

State = Literal["made", "sending", "sent", "late", "declined"]
"""Meanings, in this order: not sent; possibly sent; acknowledged; possibly too late; declined."""
APPLICATION = 0x4D534F58
"""Application id of an outbox in SQLite."""
WHO_BYTES = 32
TICKET_HASH_BYTES = 32
LOCK_SECONDS = 30.0
"""Seconds that a process waits for another one."""
QUERY_BATCH_SIZE = 500
ENTRY_COLUMNS = "who, collection, state, answer, at, tried"
EVERYONE = b""
"""Id in `ledger_starts` of the file itself."""


@dataclass(frozen=True)
class SealedReport:
    """Sealed report of a person.

    `boxes` are stored if there are tickets, because a refused ticket may be replaced.
    """

    who: bytes
    collection: str
    report: bytes
    boxes: bytes | None = None


@dataclass(frozen=True)
class Spending:
    """What new reports can reveal, for the ledgers of their people."""

    entry: LedgerEntry
    latest: str
    """Last day on which the collection is open."""
    over_limit: bool = False
    """Whether the people agreed to go over their limits."""


@dataclass(frozen=True)
class OutboxEntry:
    """Entry of the outbox for a person's report."""

    who: bytes
    collection: str
    state: State
    answer: int
    """Last status of the shuffler's answers; 0 without one."""
    at: int = 0
    """Time of this state in seconds since 1970; 0 if it was not stored."""
    tried: bool = False
    """Whether the report may have been sent before it was declined."""
    fresh: bool = False
    """Whether this call stored it."""

    @property
    def waits(self) -> bool:
        return self.state in ("made", "sending")


@dataclass(frozen=True)
class PendingToken:
    """Request for a person's token, the secret that unblinds the answer, and the token, if any."""

    who: bytes
    collection: str
    request: bytes
    secret: bytes
    token: bytes | None = None


@dataclass(frozen=True)
class SettledReport:
    """Result of a report that was sent."""

    who: bytes
    state: State
    answer: int


class Outbox:
    """Open outbox file. Every method is one transaction, durable when it returns."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self._lock = threading.Lock()
        with self._sqlite_errors():
            self._connection = self._opened()
            self._salt = self._prepare()

    def _opened(self) -> sqlite3.Connection:
        if not self.path.parent.is_dir():
            raise InputError(
                f"the outbox {self.path} lies in a folder that does not exist; make "
                f"{self.path.parent} first."
            )
        check_leads_somewhere(self.path)
        if os.name == "posix" and self.path.is_file() and self.path.stat().st_mode & stat.S_IWOTH:
            raise InputError(
                f"any user of this machine can change the outbox {self.path}; run chmod 600 "
                f"{self.path} if no one did."
            )
        try:  # private to its owner
            os.close(os.open(self.path, os.O_RDWR | os.O_CREAT, 0o600))
        except OSError as error:
            raise InputError(
                f"cannot write the outbox {self.path}: {error.strerror or error}."
            ) from None
        connection = sqlite3.connect(
            self.path, timeout=LOCK_SECONDS, isolation_level=None, check_same_thread=False
        )
        for setting in ("synchronous = EXTRA", "secure_delete = ON", "trusted_schema = OFF"):
            connection.execute(f"PRAGMA {setting}")
        return connection

    def _prepare(self) -> bytes:
        """Create the tables of a new file; return the key that hashes names."""
        connection = self._connection
        with self._transaction():
            (named,), (version,), (tables,) = (
                connection.execute(question).fetchone()
                for question in (
                    "PRAGMA application_id",
                    "PRAGMA user_version",
                    "SELECT count(*) FROM sqlite_master",
                )
            )
            if named != APPLICATION and tables:
                raise InputError(
                    f"{self.path} is a database of another program and not an outbox; name "
                    "another file with --outbox."
                )
            if version > VERSION:
                raise InputError(
                    f"the outbox {self.path} was written by a newer version of "
                    "metricshuffle; use that one."
                )
            if version < VERSION or not tables:
                before = FROM_VERSION_0 if tables and version == 0 else ""
                for statement in (before + SCHEMA).split(";\n"):
                    connection.execute(statement)
                connection.execute(
                    "INSERT INTO ledger_starts VALUES (?, ?) ON CONFLICT DO NOTHING",
                    (EVERYONE, this_day()),
                )
                connection.execute(f"PRAGMA user_version = {VERSION}")
            if not tables:
                connection.execute(f"PRAGMA application_id = {APPLICATION}")
                connection.execute("INSERT INTO about VALUES (?)", (secrets.token_bytes(32),))
            for statement in TOKENS:
                connection.execute(statement)
            return bytes(connection.execute("SELECT salt FROM about").fetchone()[0])

    @contextmanager
    def _sqlite_errors(self) -> Iterator[None]:
        """Turn an SQLite error into a sentence."""
        try:
            yield
        except sqlite3.Error as error:
            raise InputError(
                f"cannot use the outbox {self.path}, which stores sealed reports until they "
                f"are acknowledged ({error}). Nothing was sent that is not stored there; name "
                "another file with --outbox only if no one in this one has reported."
            ) from None

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        with self._lock, self._sqlite_errors():
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

    # People

    def user(self, name: str) -> bytes:
        """Id of a person by name."""
        return self._hash(b"user\0" + name.encode())

    def row(self, source: bytes, row: int) -> bytes:
        """Id of a person by row, in a file with that hash."""
        return self._hash(b"row\0" + source + row.to_bytes(8, "little"))

    def _hash(self, text: bytes) -> bytes:
        return hashlib.blake2b(text, digest_size=WHO_BYTES, key=self._salt).digest()

    # Reports

    def held(self, task: str, round: int, people: Sequence[bytes]) -> dict[bytes, OutboxEntry]:
        """Entries of those people who are in the outbox."""
        entries: dict[bytes, OutboxEntry] = {}
        with self._lock, self._sqlite_errors():
            for start in range(0, len(people), QUERY_BATCH_SIZE):
                some = people[start : start + QUERY_BATCH_SIZE]
                marks = ", ".join("?" * len(some))
                rows = self._connection.execute(
                    f"SELECT {ENTRY_COLUMNS} FROM reports WHERE task = ? AND round = ? AND "  # noqa: S608
                    f"who IN ({marks})",
                    (task, round, *some),
                )
                entries |= {bytes(row[0]): _entry_of(row) for row in rows}
        return entries

    def keep(
        self,
        task: str,
        round: int,
        reports: Iterable[SealedReport],
        state: State = "made",
        spent: Spending | None = None,
    ) -> dict[bytes, OutboxEntry]:
        """Store reports, all or none; a person's existing report remains, and is the one to send.

        Reports that are sent at once are stored as `sending`. What new ones can reveal is stored
        with them; raises OverLimit, and stores none, if a limit forbids it.
        """
        entries: dict[bytes, OutboxEntry] = {}
        with self._transaction() as connection:
            claim = None if spent is None else self._claim(spent.entry)
            for new in reports:
                inserted = connection.execute(
                    "INSERT INTO reports (task, round, who, collection, report, boxes, "
                    "state, at) VALUES (?, ?, ?, ?, ?, ?, ?, ?) "
                    "ON CONFLICT DO NOTHING",
                    (
                        task,
                        round,
                        new.who,
                        new.collection,
                        new.report,
                        new.boxes,
                        state,
                        int(time.time()),
                    ),
                )
                entries[new.who] = replace(
                    self._row(task, round, new.who), fresh=inserted.rowcount == 1
                )
                if spent is not None and entries[new.who].fresh:
                    connection.execute(
                        "INSERT INTO ledger VALUES (?, ?, ?, ?, ?)",
                        (new.who, task, round, spent.entry.day, claim),
                    )
            if spent is not None:
                self._raise_over_limits([who for who in entries if entries[who].fresh], spent)
        return entries

    def _row(self, task: str, round: int, who: bytes) -> OutboxEntry:
        """Entry of a person who is in the outbox."""
        question = f"SELECT {ENTRY_COLUMNS} FROM reports WHERE task = ? AND round = ? AND who = ?"  # noqa: S608
        return _entry_of(self._connection.execute(question, (task, round, who)).fetchone())

    def report(self, task: str, round: int, who: bytes) -> SealedReport | None:
        """Return the waiting report; None if it was sent or declined."""
        with self._lock, self._sqlite_errors():
            question = (
                "SELECT collection, report, boxes FROM reports WHERE task = ? AND round = ? "
                "AND who = ? AND report IS NOT NULL"
            )
            row = self._connection.execute(question, (task, round, who)).fetchone()
        return None if row is None else SealedReport(who, *row)

    def begin(self, task: str, round: int, who: bytes) -> SealedReport | None:
        """Mark a report as `sending` and return it; None if it was sent or declined.

        Must be called before every post.
        """
        with self._lock, self._sqlite_errors():
            question = (
                "SELECT 1 FROM reports WHERE task = ? AND round = ? AND who = ? AND state = 'made'"
            )
            is_new = self._connection.execute(question, (task, round, who)).fetchone() is not None
        if is_new:
            with self._transaction() as connection:
                connection.execute(
                    "UPDATE reports SET state = 'sending', at = ? WHERE task = ? AND round "
                    "= ? AND who = ? AND state = 'made'",
                    (int(time.time()), task, round, who),
                )
        return self.report(task, round, who)

    def decline(self, task: str, round: int, who: bytes, collection: str) -> OutboxEntry:
        """Delete a waiting report and never send it; return the entry.

        `tried` means that it may have been sent. If there is no report yet, the entry is stored for
        the `collection`, because another process may be making one.
        """
        with self._transaction() as connection:
            connection.execute(
                "INSERT INTO reports (task, round, who, collection, state, at) VALUES (?, "
                "?, ?, ?, 'declined', ?) ON CONFLICT DO NOTHING",
                (task, round, who, collection, int(time.time())),
            )
            connection.execute(
                "UPDATE reports SET tried = (state = 'sending'), state = 'declined', at = "
                "?, report = NULL, boxes = NULL "
                "WHERE task = ? AND round = ? AND who = ? AND state IN ('made', 'sending')",
                (int(time.time()), task, round, who),
            )
            return self._row(task, round, who)

    def replace(self, task: str, round: int, who: bytes, before: int, report: bytes) -> None:
        """Store the same boxes with another ticket, if the last answer still refuses the old."""
        with self._transaction() as connection:
            connection.execute(
                "UPDATE reports SET report = ?, answer = 0 WHERE task = ? AND round = ? "
                "AND who = ? AND answer = ? AND report IS NOT NULL",
                (report, task, round, who, before),
            )

    def settle(self, task: str, round: int, settled: Iterable[SettledReport]) -> None:
        """Store answers.

        A stored report stays stored, whatever another process was answered or declined later.
        """
        with self._transaction() as connection:
            for news in settled:
                gone = "" if news.state == "sending" else ", report = NULL, boxes = NULL"
                connection.execute(
                    f"UPDATE reports SET state = ?, answer = ?, at = ?{gone} WHERE task = "  # noqa: S608
                    "? AND round = ? AND who = ? "
                    "AND (state IN ('made', 'sending') OR (state IN ('late', 'declined') "
                    "AND ? = 'sent'))",
                    (news.state, news.answer, int(time.time()), task, round, news.who, news.state),
                )

    def waiting(self, task: str, round: int, collections: Sequence[str]) -> list[OutboxEntry]:
        """Entries for these collections that are not acknowledged."""
        with self._lock, self._sqlite_errors():
            rows = self._connection.execute(
                f"SELECT {ENTRY_COLUMNS} FROM reports WHERE task = ? AND round = ? AND "  # noqa: S608
                "state IN ('made', 'sending')",
                (task, round),
            )
            return [entry for entry in map(_entry_of, rows) if entry.collection in collections]

    # Ledger

    def ledger(self, who: bytes) -> DeviceLedger:
        """Ledger of a person, with their limits."""
        with self._lock, self._sqlite_errors():
            return self._ledger(who)

    def check_limits(self, people: Iterable[bytes], spent: Spending) -> None:
        """Raise OverLimit if new reports of these people would exceed their limits."""
        with self._lock, self._sqlite_errors():
            self._raise_over_limits(people, spent)

    def set_limit(self, who: bytes, limit: DeviceLimit) -> None:
        """Set a limit of a person; it replaces one of the same distance and days."""
        with self._transaction() as connection:
            connection.execute(
                "INSERT OR REPLACE INTO limits VALUES (?, ?, ?, ?, ?, ?)",
                (who, limit.unit, limit.distance, limit.days, limit.honest, limit.epsilon),
            )

    def remove_limit(self, who: bytes, limit: DeviceLimit) -> bool:
        """Remove the limit of that distance and these days; return whether there was one."""
        with self._transaction() as connection:
            return bool(
                connection.execute(
                    "DELETE FROM limits WHERE who = ? AND unit = ? AND distance = ? AND days = ? "
                    "AND honest = ?",
                    (who, limit.unit, limit.distance, limit.days, limit.honest),
                ).rowcount
            )

    def forget_ledger(self, who: bytes) -> None:
        """Delete the ledger of a person. Their reports remain known, and count as unknown ones."""
        with self._transaction() as connection:
            connection.execute("DELETE FROM ledger WHERE who = ?", (who,))
            connection.execute(
                "INSERT OR REPLACE INTO ledger_starts VALUES (?, ?)", (who, this_day())
            )
            connection.execute("DELETE FROM claims WHERE id NOT IN (SELECT claim FROM ledger)")

    def _claim(self, entry: LedgerEntry) -> int:
        """Id of what a task claims, stored once for all people."""
        self._connection.execute(
            "INSERT INTO claims (claim) VALUES (?) ON CONFLICT DO NOTHING", (entry.claim,)
        )
        question = "SELECT id FROM claims WHERE claim = ?"
        return int(self._connection.execute(question, (entry.claim,)).fetchone()[0])

    def _ledger(self, who: bytes) -> DeviceLedger:
        ask = self._connection.execute
        try:
            entries = [
                LedgerEntry.read(
                    claim, round, day, f"{state} (may have been sent)" if tried else state
                )
                for claim, round, day, state, tried in ask(
                    "SELECT claims.claim, round, day, coalesce(state, 'made'), coalesce(tried, 0) "
                    "FROM ledger JOIN claims ON claims.id = ledger.claim "
                    "LEFT JOIN reports USING (task, round, who) WHERE ledger.who = ? ORDER BY day",
                    (who,),
                )
            ]
        except (ValueError, KeyError, TypeError) as error:
            raise InputError(
                f"the ledger in the outbox {self.path} is damaged ({error}); nothing was made or "
                "sent. Restore the file from a copy, or use another outbox."
            ) from None
        (unknown,) = ask(
            "SELECT count(*) FROM reports WHERE who = ? AND (state != 'declined' OR tried) AND NOT "
            "EXISTS (SELECT 1 FROM ledger WHERE ledger.who = reports.who AND ledger.task = "
            "reports.task AND ledger.round = reports.round)",
            (who,),
        ).fetchone()
        (since,) = ask(
            "SELECT max(day) FROM ledger_starts WHERE who IN (?, ?)", (EVERYONE, who)
        ).fetchone()
        limits = [
            DeviceLimit(epsilon, distance, unit, days, bool(honest))
            for epsilon, distance, unit, days, honest in ask(
                "SELECT epsilon, distance, unit, days, honest FROM limits WHERE who = ?", (who,)
            )
        ]
        return DeviceLedger(entries, limits, unknown, since)

    def _raise_over_limits(self, people: Iterable[bytes], spent: Spending) -> None:
        if spent.over_limit:
            return
        limited = {
            bytes(who) for (who,) in self._connection.execute("SELECT DISTINCT who FROM limits")
        }
        exceeded = [
            sentences
            for who in people
            if who in limited
            and (sentences := self._ledger(who).exceeded(spent.entry, spent.latest))
        ]
        if not exceeded:
            return
        others = f"The same is true of {len(exceeded) - 1:,} more of these people."
        raise OverLimit(" ".join([*exceeded[0], *([others] if len(exceeded) > 1 else [])]))

    # Tickets

    def tickets_for(
        self, people: Mapping[bytes, str], offered: Sequence[bytes], collections: Sequence[str]
    ) -> dict[bytes, bytes]:
        """Assign tickets to people (who -> collection): their own again, or the next unused one.

        A ticket that was refused, or belongs to another person in one of the `collections`, is not
        assigned. Raises if there are too few, and assigns none then.
        """
        hashes = {ticket_hash(ticket): ticket for ticket in offered}
        assigned: dict[bytes, bytes] = {}
        with self._transaction() as connection:
            taken = set()
            for collection, ticket, who, refused in connection.execute(
                "SELECT collection, ticket, who, refused FROM tickets"
            ):
                if collection not in collections:
                    continue
                taken.add(bytes(ticket))
                if not refused and people.get(who) == collection and ticket in hashes:
                    assigned[who] = hashes[ticket]
            free = [hashed for hashed in hashes if hashed not in taken]
            without = [who for who in people if who not in assigned]
            if len(free) < len(without):
                raise InputError(
                    f"{len(without):,} more "
                    f"{'people need' if len(without) != 1 else 'person needs'} a ticket, "
                    "and of the "
                    f"{len(offered):,} that are offered {len(free):,} were never used; "
                    "nothing was sent for them. Ask for more tickets."
                )
            for who, hashed in zip(without, free, strict=False):
                connection.execute(
                    "INSERT INTO tickets VALUES (?, ?, ?, 0)", (people[who], hashed, who)
                )
                assigned[who] = hashes[hashed]
        return assigned

    def refuse_tickets(self, people: Sequence[tuple[bytes, str]]) -> None:
        """Mark the tickets of these people (who, collection) as refused; forget their tokens."""
        with self._transaction() as connection:
            for statement in (
                "UPDATE tickets SET refused = 1 WHERE who = ? AND collection = ?",
                "DELETE FROM tokens WHERE who = ? AND collection = ?",
            ):
                connection.executemany(statement, people)

    # Tokens

    def pending_tokens(self, people: Mapping[bytes, str]) -> dict[bytes, PendingToken]:
        """Requests and tokens of those people (who -> collection) who have any."""
        sql = "SELECT request, secret, token FROM tokens WHERE collection = ? AND who = ?"
        with self._lock, self._sqlite_errors():
            rows = (
                (who, collection, self._connection.execute(sql, (collection, who)).fetchone())
                for who, collection in people.items()
            )
            return {
                who: PendingToken(who, collection, *row) for who, collection, row in rows if row
            }

    def keep_token_requests(self, requests: Sequence[PendingToken]) -> list[PendingToken]:
        """Store requests before they are sent; a person's existing one remains, and is returned."""
        with self._transaction() as connection:
            connection.executemany(
                "INSERT INTO tokens VALUES (?, ?, ?, ?, NULL) ON CONFLICT DO NOTHING",
                ((each.collection, each.who, each.request, each.secret) for each in requests),
            )
        people = {each.who: each.collection for each in requests}
        return list(self.pending_tokens(people).values())

    def keep_token(self, who: bytes, collection: str, token: bytes) -> None:
        """Store the token of a person."""
        with self._transaction() as connection:
            connection.execute(
                "UPDATE tokens SET token = ? WHERE collection = ? AND who = ?",
                (token, collection, who),
            )


def _entry_of(row: tuple[bytes, str, State, int, int, int]) -> OutboxEntry:
    who, collection, state, answer, at, tried = row
    return OutboxEntry(bytes(who), collection, state, answer, at, bool(tried))


def ticket_hash(ticket: bytes) -> bytes:
    return hashlib.blake2b(ticket, digest_size=TICKET_HASH_BYTES, person=b"outbox ticket").digest()
