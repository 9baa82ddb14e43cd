"""Collections in one file, with nothing to set up: SQLite with a journal of its own, every transaction written through before it counts.

Writers wait for each other; nobody reads over a pause, which would hold up the journal.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Any

from metricshuffle.collection.shuffler.admission import (
    FINAL_STATES,
    HOUR,
    AdmissionRules,
    check_round,
    new_row_columns,
    rechunk,
    select_accepted,
    validate_tickets,
)
from metricshuffle.collection.store.connection_pool import BytesCache
from metricshuffle.collection.store.guarded_clock import (
    MAX_CLOCK_JUMP_SECONDS,
    Anchor,
    ClockReading,
    GuardedClock,
    SteadyTime,
    startup_warning,
)
from metricshuffle.collection.store.interface import CHUNK, DatabaseDamaged, Entry, Row, State, Store, StoreError, Verdict
from metricshuffle.collection.store.sqlite_file import SqliteFile
from metricshuffle.collection.store.sqlite_schema import split_into_pieces
from metricshuffle.collection.terms import Collection
from metricshuffle.errors import InputError

ADMISSION_COLUMNS = "id, state, reports, until, first, ticketed, minimum, maximum, opens, closes, extends"
ROW_COLUMNS = (
    "digest, key, state, reports, until, people, left_out, output, reason, sealed_at, released_at, collected, clock, owner, "
    "countersignature"
)


class SqliteStore(Store):
    """A file. `clock` tells the seconds since 1970, the machine's unless another one is given; `steady` watches it."""

    def __init__(
        self,
        path: str | Path,
        clock: Callable[[], float] | None = None,
        steady: Callable[[], SteadyTime] | None = None,
        jump: float = MAX_CLOCK_JUMP_SECONDS,
    ) -> None:
        self._file = SqliteFile(Path(path).absolute())
        self._clock = GuardedClock.of(clock, steady, jump)
        self._latest_now, self._corrections = 0.0, 0
        self._served = BytesCache()

    def __repr__(self) -> str:
        return f"SqliteStore({str(self._file.path)!r})"

    def _time(self, db: sqlite3.Connection) -> ClockReading:
        steady, wall = self._clock.read_steady(), (self._clock.wall or time.time)()
        question = "SELECT latest, corrections, wall, steady FROM clock LEFT JOIN anchor ON boot = ?"
        latest, corrections, *anchor = db.execute(question, (steady and steady.boot,)).fetchone()
        return self._clock.reading(wall, steady, None if anchor[0] is None else Anchor(*anchor), float(latest), corrections)

    @staticmethod
    def _record_time(db: sqlite3.Connection, now: float) -> None:
        """Write the time down: nothing that is decided now is decided otherwise when the clock is set back."""
        db.execute("UPDATE clock SET latest = max(latest, ?)", (now,))

    @staticmethod
    def _load_rules(db: sqlite3.Connection, digest: str) -> AdmissionRules:
        line = db.execute(f"SELECT {ADMISSION_COLUMNS} FROM collection WHERE digest = ?", (digest,)).fetchone()  # noqa: S608 - a constant
        if line is None:
            raise InputError(f"there is no collection {digest[:16]} here.")
        return AdmissionRules(*line)

    # The contract

    def now(self) -> float:
        reading = self.read_clock()
        if reading.corrections != self._corrections:
            self._latest_now, self._corrections = 0.0, reading.corrections
        self._latest_now = max(self._latest_now, reading.believed)
        return self._latest_now

    def read_clock(self) -> ClockReading:
        with self._file.reading() as db:
            reading = self._time(db)
        if not reading.is_fresh and not reading.has_jumped:
            self._anchor()
        return reading

    def _anchor(self) -> None:
        """Write down what both clocks say."""
        with self._file.writing() as db:
            steady, reading = self._clock.read_steady(), self._time(db)
            if steady is None or reading.has_jumped:
                return
            [is_known, last] = db.execute("SELECT max(boot = ?), max(wall) FROM anchor", (steady.boot,)).fetchone()
            if not is_known:
                self.start_note = startup_warning(max(reading.stored, last or 0.0), reading.wall)
            db.execute("DELETE FROM anchor WHERE boot <> ?", (steady.boot,))  # (a file is used by one machine)
            db.execute("INSERT OR REPLACE INTO anchor VALUES (?, ?, ?)", (steady.boot, reading.wall, steady.seconds))

    def confirm_clock(self) -> str:
        with self._file.writing() as db:
            reading = self._time(db)
            note = reading.confirmed()
            self._note(db, note, reading)
        return note

    def correct_clock(self) -> str:
        with self._file.writing() as db:
            reading = self._time(db)
            note = reading.corrected(self._latest_now)
            db.execute("UPDATE clock SET latest = min(latest, ?), corrections = corrections + 1", (reading.wall,))
            db.execute("UPDATE collection SET released_at = min(released_at, ?) WHERE state = 'released'", (reading.wall,))
            self._note(db, note, reading)
        return note

    @staticmethod
    def _note(db: sqlite3.Connection, note: str, reading: ClockReading) -> None:
        """With every collection that is going on; from now on the clock is expected to say what it says."""
        db.execute(f"UPDATE collection SET clock = clock || ? WHERE state NOT IN {FINAL_STATES}", (f"{note}\n",))  # noqa: S608 - states of ours
        db.execute("UPDATE anchor SET wall = wall + ?", (reading.ahead,))

    def check_writing(self) -> None:
        with self._file.writing() as db:
            db.execute("UPDATE clock SET latest = latest")

    def add(self, collection: Collection, key: str, tickets: Iterable[bytes] = (), owner: str = "") -> bool:
        columns = {**new_row_columns(collection, key), "owner": owner}
        hashes = validate_tickets(tickets, columns)
        with self._file.writing() as db:
            if db.execute("SELECT 1 FROM collection WHERE digest = ?", (collection.digest,)).fetchone():
                return False
            others = db.execute("SELECT digest, part, parts FROM collection WHERE task = :task AND round = :round", columns)
            check_round(columns, others.fetchall())
            marks = ", ".join(f":{name}" for name in columns)
            added = db.execute(f"INSERT INTO collection ({', '.join(columns)}) VALUES ({marks})", columns)  # noqa: S608 - names of ours
            db.execute("INSERT INTO served VALUES (?, ?)", (added.lastrowid, collection.served))
            db.executemany("INSERT INTO ticket (collection, hash) VALUES (?, ?)", ((added.lastrowid, ticket) for ticket in hashes))
        return True

    def row(self, digest: str) -> Row | None:
        return next(iter(self._rows("WHERE digest = ?", digest)), None)

    def rows(self) -> list[Row]:
        return self._rows("ORDER BY id DESC")

    def _rows(self, which: str, *values: Any) -> list[Row]:
        with self._file.reading() as db:
            return [self._as_row(db, *line) for line in db.execute(f"SELECT id, {ROW_COLUMNS} FROM collection {which}", values)]  # noqa: S608 - ours

    def _as_row(self, db: sqlite3.Connection, number: int, digest: str, key: str, *happened: Any) -> Row:
        served = self._served.get(digest)
        if served is None:
            [served] = db.execute("SELECT bytes FROM served WHERE collection = ?", (number,)).fetchone()
            self._served[digest] = served
        *others, collected, clock, owner, countersignature = happened
        return Row(digest, served, key, *[*others, bool(collected), clock, owner, countersignature])

    def put(self, digest: str, entries: Sequence[Entry]) -> list[Verdict]:
        with self._file.writing() as db:
            reading, standing = self._time(db), self._load_rules(db, digest)
            now = reading.believed
            if not standing.has_same_decision(now, reading.latest):
                reading.check()
            standing = standing.at(now)
            if standing.decides(now):
                self._record_time(db, standing.noted(now))
                db.execute("UPDATE collection SET until = ? WHERE id = ?", (standing.until, standing.id))
            if not standing.takes_reports(now):
                return [Verdict.CLOSED] * len(entries)
            verdicts = self._verdicts(db, standing, entries)
            if chosen := select_accepted(entries, verdicts):
                self._record_time(db, standing.noted(now))
                self._store(db, standing, chosen)
        return verdicts

    @staticmethod
    def _verdicts(db: sqlite3.Connection, standing: AdmissionRules, entries: Sequence[Entry]) -> list[Verdict]:
        tag, ticket = (
            "SELECT tag FROM report WHERE collection = ? AND tag = ? AND piece = 0",
            "SELECT hash, spent FROM ticket WHERE collection = ? AND hash = ?",
        )
        stored = (db.execute(tag, (standing.id, entry.tag)).fetchone() for entry in entries)
        ticket_rows = (db.execute(ticket, (standing.id, entry.ticket)).fetchone() for entry in entries)
        return standing.verdicts(entries, {line[0] for line in stored if line}, dict(line for line in ticket_rows if line))

    @staticmethod
    def _store(db: sqlite3.Connection, standing: AdmissionRules, entries: list[Entry]) -> None:
        """Reports, what they spend and their number, together."""
        lines = ((standing.id, entry.tag, place, piece) for entry in entries for place, piece in enumerate(split_into_pieces(entry.hidden)))
        db.executemany("INSERT INTO report VALUES (?, ?, ?, ?)", lines)
        if standing.ticketed:
            hashes = sorted(entry.ticket for entry in entries)
            marked = db.executemany(
                "UPDATE ticket SET spent = 1 WHERE collection = ? AND hash = ? AND NOT spent", ((standing.id, ticket) for ticket in hashes)
            )
            if hashes and marked.rowcount != len(hashes):
                raise StoreError("a ticket was spent by somebody else in the same moment; nothing was stored.")
        db.execute("UPDATE collection SET reports = reports + ? WHERE id = ?", (len(entries), standing.id))

    def awaits_count(self, digest: str) -> bool:
        with self._file.reading() as db:
            reading = self._time(db)
            if reading.has_jumped or not self._load_rules(db, digest).awaits_count(reading.believed):
                return False
        with self._file.writing() as db:
            reading = self._time(db)
            awaits = not reading.has_jumped and self._load_rules(db, digest).awaits_count(reading.believed)
            if awaits:
                self._record_time(db, reading.believed)
        return awaits

    def seal(self, digest: str, distinct: int | None = None) -> State:
        with self._file.reading() as db:
            standing, reading = self._load_rules(db, digest), self._time(db)
        now = reading.believed
        if reading.has_jumped or (standing.due(now, distinct) == standing.state and standing.at(now, distinct) == standing):
            return standing.state
        with self._file.writing() as db:
            reading, standing = self._time(db), self._load_rules(db, digest)
            if reading.has_jumped:
                return standing.state
            now = reading.believed
            standing = standing.at(now, distinct)
            due = standing.due(now)
            self._record_time(db, now)
            db.execute("UPDATE collection SET until = ? WHERE id = ?", (standing.until, standing.id))
            if due != standing.state:
                self._step(db, standing, due, now, {"reason": standing.too_few} if due == "aborted" else {})
        return due

    def hidden(self, digest: str) -> Iterator[tuple[bytes, bytes]]:
        last, count = b"", 0
        while True:
            with self._file.reading() as db:
                standing = self._load_rules(db, digest)
                [written] = db.execute("SELECT latest FROM clock").fetchone()
                standing.check_readable(digest, written)
                page = self._page(db, standing.id, last)
            count += len(page)
            if not page and count != standing.reports:
                raise DatabaseDamaged(
                    f"{self._file.path} is damaged: it counted {standing.reports:,} reports of {digest[:16]} and holds {count:,}."
                )
            if not page:
                return
            yield from page
            last = page[-1][0]

    @staticmethod
    def _page(db: sqlite3.Connection, number: int, last: bytes) -> list[tuple[bytes, bytes]]:
        """The next reports behind a tag, about as many as fill a chunk."""
        page, size = [], 0
        lines = db.execute("SELECT tag, hidden FROM report WHERE collection = ? AND tag > ? ORDER BY tag, piece", (number, last))
        for tag, pieces in groupby(lines, itemgetter(0)):
            page.append((tag, b"".join(piece for _, piece in pieces)))
            size += len(page[-1][1])
            if size >= CHUNK:
                break
        return page

    def keep_output(self, digest: str, chunks: Iterable[bytes]) -> None:
        with self._file.writing() as db:
            standing = self._load_rules(db, digest)
            standing.check_sealed(digest, "keep the output")
            db.execute("DELETE FROM output WHERE collection = ?", (standing.id,))
            lines = ((standing.id, place, chunk) for place, chunk in enumerate(rechunk(chunks)))
            db.executemany("INSERT INTO output VALUES (?, ?, ?)", lines)

    def output(self, digest: str) -> Iterator[bytes]:
        chosen = "FROM output WHERE collection = (SELECT id FROM collection WHERE digest = ?)"
        with self._file.reading() as db:
            [count] = db.execute(f"SELECT count(*) {chosen}", (digest,)).fetchone()
        for place in range(count):
            with self._file.reading() as db:
                line = db.execute(f"SELECT bytes {chosen} AND place = ?", (digest, place)).fetchone()
            if line is None:
                raise StoreError(f"the output of {digest[:16]} was deleted while it was read.")
            yield line[0]

    def move(self, digest: str, before: State, after: State, *, people: int | None = None, left_out: int | None = None,
             output: str | None = None, reason: str | None = None, countersignature: str | None = None) -> bool:  # fmt: skip
        changes = {"people": people, "left_out": left_out, "output": output, "reason": reason, "countersignature": countersignature}
        with self._file.writing() as db:
            standing = self._load_rules(db, digest)
            if standing.state != before:
                return False
            standing.check_step(after)
            reading = self._time(db)
            if after in ("sealed", "released"):
                reading.check()
            self._step(db, standing, after, reading.believed, {name: value for name, value in changes.items() if value is not None})
        return True

    def _step(self, db: sqlite3.Connection, standing: AdmissionRules, after: State, now: float, changes: dict[str, Any]) -> None:
        """Into another state, with what belongs to that: the only place where one is written, or anything deleted."""
        self._record_time(db, now)
        changes = {**changes, "state": after}
        if after in ("sealed", "released"):
            changes[f"{after}_at"] = now
        names = ", ".join(f"{name} = :{name}" for name in changes)
        db.execute(f"UPDATE collection SET {names} WHERE id = :id", {**changes, "id": standing.id})  # noqa: S608 - names of ours
        for table, when in (("report", ("shuffled", "aborted")), ("ticket", ("shuffled", "aborted")), ("output", FINAL_STATES)):
            if after in when:
                db.execute(f"DELETE FROM {table} WHERE collection = ?", (standing.id,))  # noqa: S608 - names of ours
        if after in FINAL_STATES:
            hours = ", ".join(f"{name} = CAST({name} / {HOUR} AS INTEGER) * {HOUR}" for name in ("sealed_at", "released_at"))
            db.execute(f"UPDATE collection SET {hours} WHERE id = ?", (standing.id,))  # noqa: S608 - names of ours

    def acknowledge(self, digest: str) -> None:
        with self._file.writing() as db:
            db.execute("UPDATE collection SET collected = 1 WHERE digest = ? AND state = 'released'", (digest,))

    def first_output(self, collection: str, asker: str, output: str | None = None) -> str | None:
        known = "SELECT output FROM witnessed WHERE collection = ? AND asker = ?"
        with self._file.reading() as db:
            line = db.execute(known, (collection, asker)).fetchone()
        if line is None and output is not None:
            with self._file.writing() as db:
                db.execute("INSERT INTO witnessed VALUES (?, ?, ?) ON CONFLICT DO NOTHING", (collection, asker, output))
                line = db.execute(known, (collection, asker)).fetchone()
        return None if line is None else str(line[0])

    def forget_deleted(self) -> None:
        self._file.empty_journal()

    def close(self) -> None:
        self._file.close()
