"""Collections in PostgreSQL: the row of a collection is locked first, so that its writers queue and a closing time waits for no crowd.

Whoever holds that row sees every report and ticket that was committed before, decides, and stores in one statement.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
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
    LONG_DOWNTIME_SECONDS,
    MAX_CLOCK_JUMP_SECONDS,
    Anchor,
    ClockReading,
    GuardedClock,
    SteadyTime,
    startup_warning,
)
from metricshuffle.collection.store.interface import CHUNK, DatabaseDamaged, Entry, Row, State, Store, StoreError, Verdict
from metricshuffle.collection.store.postgres_schema import LOCK
from metricshuffle.collection.store.postgres_server import PostgresServer
from metricshuffle.collection.terms import Collection
from metricshuffle.errors import InputError

FIRST_PAGE_REPORTS = 64
"""Reports that are read before it is known how long one is."""
ADMISSION_COLUMNS = "id, state, reports, until, first, ticketed, minimum, maximum, opens, closes, extends"
ROW_COLUMNS = (
    "digest, key, state, reports, until, people, left_out, output, reason, sealed_at, released_at, collected, clock, owner, "
    "countersignature"
)
TIME_QUERY = """
SELECT coalesce(%s, extract(epoch FROM clock_timestamp()))::float8, greatest(latest, (SELECT max(seen) FROM collection)), corrections,
    anchor.wall, anchor.steady
FROM clock LEFT JOIN anchor ON boot = %s
"""
STORE_QUERY = """
WITH stored AS (
    INSERT INTO report SELECT %(id)s, given.* FROM unnest(%(tags)b::bytea[], %(hidden)b::bytea[]) AS given RETURNING 1
), spent AS (
    UPDATE ticket SET spent = true WHERE collection = %(id)s AND hash = ANY(%(tickets)b::bytea[]) AND NOT spent RETURNING 1
)
UPDATE collection SET reports = reports + %(count)s, until = %(until)s, seen = %(now)s
WHERE id = %(id)s AND (SELECT count(*) FROM stored) = %(count)s AND (SELECT count(*) FROM spent) = cardinality(%(tickets)b::bytea[])
"""


class PostgresStore(Store):
    """A database on a server, whose clock this machine's steady one watches. `clock` replaces the server's, in tests."""

    def __init__(
        self,
        url: str,
        clock: Callable[[], float] | None = None,
        steady: Callable[[], SteadyTime] | None = None,
        jump: float = MAX_CLOCK_JUMP_SECONDS,
    ) -> None:
        self._server = PostgresServer(url)
        self._clock = GuardedClock.of(clock, steady, jump)
        self._latest_now, self._corrections = 0.0, 0
        self._served = BytesCache()

    def __repr__(self) -> str:
        return "PostgresStore()"

    def _time(self, db: Any) -> ClockReading:
        """Asked after the row is locked, in a statement of its own: one that waits for a lock has told the time before it waited."""
        steady, replaced = self._clock.read_steady(), self._clock.wall
        wall, stored, corrections, *anchor = db.execute(TIME_QUERY, (replaced and replaced(), steady and steady.boot)).fetchone()
        own = time.time() if replaced is None else None
        return self._clock.reading(wall, steady, None if anchor[0] is None else Anchor(*anchor), stored, corrections, own)

    @staticmethod
    def _load_rules(db: Any, digest: str, lock: str = "FOR UPDATE") -> AdmissionRules:
        line = db.execute(f"SELECT {ADMISSION_COLUMNS} FROM collection WHERE digest = %s {lock}", (digest,)).fetchone()  # noqa: S608 - constants
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
        with self._server.transaction() as db:
            reading = self._time(db)
        if not reading.is_fresh and not reading.has_jumped:
            self._anchor()
        return reading

    def _anchor(self) -> None:
        """Write down what both clocks say, for this boot of this machine; others have their own."""
        with self._server.transaction() as db:
            db.execute("SELECT pg_advisory_xact_lock(%s)", (LOCK,))
            steady, reading = self._clock.read_steady(), self._time(db)
            if steady is None or reading.has_jumped:
                return
            [is_known, last] = db.execute("SELECT bool_or(boot = %s), max(wall) FROM anchor", (steady.boot,)).fetchone()
            if not is_known:
                self.start_note = startup_warning(max(reading.stored, last or 0.0), reading.wall)
            db.execute("DELETE FROM anchor WHERE boot = %s OR wall < %s", (steady.boot, reading.wall - LONG_DOWNTIME_SECONDS))
            db.execute("INSERT INTO anchor VALUES (%s, %s, %s)", (steady.boot, reading.wall, steady.seconds))

    def confirm_clock(self) -> str:
        with self._server.transaction() as db:
            reading = self._locked_time(db)
            note, steady = reading.confirmed(), self._clock.read_steady()
            if steady is not None:  # (a machine without an anchor does not shift what others have)
                made = "INSERT INTO anchor VALUES (%s, %s, %s) ON CONFLICT DO NOTHING"
                if db.execute(made, (steady.boot, reading.wall, steady.seconds)).rowcount:
                    reading = replace(reading, expected=reading.wall)
            self._note(db, note, reading)
        return note

    def correct_clock(self) -> str:
        with self._server.transaction() as db:
            reading = self._locked_time(db)
            note = reading.corrected(self._latest_now)
            db.execute("UPDATE clock SET latest = least(latest, %s), corrections = corrections + 1", (reading.wall,))
            db.execute("UPDATE collection SET seen = %s WHERE seen > %s", (reading.wall, reading.wall))
            db.execute("UPDATE collection SET released_at = least(released_at, %s) WHERE state = 'released'", (reading.wall,))
            self._note(db, note, reading)
        return note

    def _locked_time(self, db: Any) -> ClockReading:
        """The time while nobody else decides by it."""
        db.execute("SELECT pg_advisory_xact_lock(%s)", (LOCK,))
        db.execute("SELECT FROM collection ORDER BY id FOR UPDATE")
        return self._time(db)

    @staticmethod
    def _note(db: Any, note: str, reading: ClockReading) -> None:
        """With every collection that is going on; from now on the clock is expected to say what it says, by whoever watches it."""
        db.execute("UPDATE collection SET clock = clock || %s WHERE NOT state = ANY(%s)", (f"{note}\n", list(FINAL_STATES)))
        db.execute("UPDATE anchor SET wall = wall + %s", (reading.ahead,))

    def check_writing(self) -> None:
        with self._server.transaction() as db:
            db.execute("UPDATE clock SET latest = latest")

    def add(self, collection: Collection, key: str, tickets: Iterable[bytes] = (), owner: str = "") -> bool:
        columns = {**new_row_columns(collection, key), "owner": owner}
        hashes = validate_tickets(tickets, columns)
        with self._server.transaction() as db:
            db.execute("SELECT pg_advisory_xact_lock(%s)", (LOCK,))
            if db.execute("SELECT FROM collection WHERE digest = %s", (collection.digest,)).fetchone() is not None:
                return False
            others = db.execute("SELECT digest, part, parts FROM collection WHERE task = %(task)s AND round = %(round)s", columns)
            check_round(columns, others.fetchall())
            marks = ", ".join(f"%({name})s" for name in columns)
            [number] = db.execute(
                f"INSERT INTO collection ({', '.join(columns)}) VALUES ({marks}) RETURNING id",  # noqa: S608 - names of ours
                columns,
            ).fetchone()
            db.execute("INSERT INTO served VALUES (%s, %b)", (number, collection.served))
            with db.cursor() as cursor, cursor.copy("COPY ticket (collection, hash) FROM STDIN (FORMAT BINARY)") as copy:
                copy.set_types(["int8", "bytea"])
                for ticket in hashes:
                    copy.write_row((number, ticket))
        return True

    def row(self, digest: str) -> Row | None:
        return next(iter(self._rows("WHERE digest = %s", digest)), None)

    def rows(self) -> list[Row]:
        return self._rows("ORDER BY id DESC")

    def _rows(self, which: str, *values: Any) -> list[Row]:
        with self._server.transaction() as db:
            lines = db.execute(f"SELECT id, {ROW_COLUMNS} FROM collection {which}", values).fetchall()  # noqa: S608 - constants
            return [self._as_row(db, *line) for line in lines]

    def _as_row(self, db: Any, number: int, digest: str, key: str, *happened: Any) -> Row:
        served = self._served.get(digest)
        if served is None:
            [served] = db.execute("SELECT bytes FROM served WHERE collection = %s", (number,), binary=True).fetchone()
            self._served[digest] = served
        return Row(digest, served, key, *happened)

    def put(self, digest: str, entries: Sequence[Entry]) -> list[Verdict]:
        with self._server.transaction() as db:
            standing = self._load_rules(db, digest)
            reading = self._time(db)
            now = reading.believed
            if not standing.has_same_decision(now, reading.latest):
                reading.check()
            standing = standing.at(now)
            takes = standing.takes_reports(now)
            verdicts = self._verdicts(db, standing, entries) if takes else [Verdict.CLOSED] * len(entries)
            chosen = select_accepted(entries, verdicts)
            if chosen or standing.decides(now):
                self._store(db, standing, standing.noted(now), chosen)
        return verdicts

    @staticmethod
    def _store(db: Any, standing: AdmissionRules, now: float, entries: list[Entry]) -> None:
        """Reports, what they spend, their number and the time, in one statement."""
        parameters = {
            "id": standing.id,
            "count": len(entries),
            "until": standing.until,
            "now": now,
            "tags": [entry.tag for entry in entries],
            "hidden": [entry.hidden for entry in entries],
            "tickets": sorted(entry.ticket for entry in entries) if standing.ticketed else [],
        }
        if db.execute(STORE_QUERY, parameters).rowcount != 1:
            raise StoreError("a report or a ticket was written by somebody else in the same moment; nothing was stored.")

    @staticmethod
    def _verdicts(db: Any, standing: AdmissionRules, entries: Sequence[Entry]) -> list[Verdict]:
        tags, tickets = [entry.tag for entry in entries], [entry.ticket for entry in entries]
        stored = db.execute(
            "SELECT tag FROM report WHERE collection = %s AND tag = ANY(%b::bytea[])", (standing.id, tags), binary=True
        ).fetchall()
        tickets_found = db.execute(
            "SELECT hash, spent FROM ticket WHERE collection = %s AND hash = ANY(%b::bytea[])", (standing.id, tickets), binary=True
        ).fetchall()
        return standing.verdicts(entries, {tag for (tag,) in stored}, dict(tickets_found))

    def awaits_count(self, digest: str) -> bool:
        with self._server.transaction() as db:
            reading = self._time(db)
            if reading.has_jumped or not self._load_rules(db, digest, lock="").awaits_count(reading.believed):
                return False
        with self._server.transaction() as db:
            standing = self._load_rules(db, digest)
            reading = self._time(db)
            awaits = not reading.has_jumped and standing.awaits_count(reading.believed)
            if awaits:
                db.execute("UPDATE collection SET seen = %s WHERE id = %s", (reading.believed, standing.id))
        return awaits

    def seal(self, digest: str, distinct: int | None = None) -> State:
        with self._server.transaction() as db:
            standing, reading = self._load_rules(db, digest, lock=""), self._time(db)
        now = reading.believed
        if reading.has_jumped or (standing.due(now, distinct) == standing.state and standing.at(now, distinct) == standing):
            return standing.state
        with self._server.transaction() as db:
            standing = self._load_rules(db, digest)
            reading = self._time(db)
            if reading.has_jumped:
                return standing.state
            now = reading.believed
            standing = standing.at(now, distinct)
            due = standing.due(now)
            if due != standing.state:
                self._step(db, standing, due, now, {"reason": standing.too_few} if due == "aborted" else {})
            else:
                db.execute("UPDATE collection SET until = %s, seen = %s WHERE id = %s", (standing.until, now, standing.id))
        return due

    def hidden(self, digest: str) -> Iterator[tuple[bytes, bytes]]:
        last, count, size = b"", 0, FIRST_PAGE_REPORTS
        while True:
            with self._server.transaction() as db:
                number = self._load_rules(db, digest, lock="").id
                page = db.execute(
                    "SELECT tag, hidden FROM report WHERE collection = %s AND tag > %b ORDER BY tag LIMIT %s",
                    (number, last, size),
                    binary=True,
                ).fetchall()
                standing = self._load_rules(db, digest, lock="")  # (looked at behind the page: nothing of it was deleted before)
                [written] = db.execute("SELECT seen FROM collection WHERE id = %s", (number,)).fetchone()
                standing.check_readable(digest, written)
            count += len(page)
            if not page and count != standing.reports:
                raise DatabaseDamaged(
                    f"the database is damaged: it counted {standing.reports:,} reports of {digest[:16]} and holds {count:,}."
                )
            if not page:
                return
            yield from page
            last, size = page[-1][0], max(1, CHUNK // max(1, len(page[-1][1])))

    def keep_output(self, digest: str, chunks: Iterable[bytes]) -> None:
        with self._server.transaction() as db:
            standing = self._load_rules(db, digest)
            standing.check_sealed(digest, "keep the output")
            db.execute("DELETE FROM output WHERE collection = %s", (standing.id,))
            for place, chunk in enumerate(rechunk(chunks)):
                db.execute("INSERT INTO output VALUES (%s, %s, %b)", (standing.id, place, chunk))

    def output(self, digest: str) -> Iterator[bytes]:
        chosen = "FROM output WHERE collection = (SELECT id FROM collection WHERE digest = %s)"
        with self._server.transaction() as db:
            [count] = db.execute(f"SELECT count(*) {chosen}", (digest,)).fetchone()
        for place in range(count):
            with self._server.transaction() as db:
                line = db.execute(f"SELECT bytes {chosen} AND place = %s", (digest, place), binary=True).fetchone()
            if line is None:
                raise StoreError(f"the output of {digest[:16]} was deleted while it was read.")
            yield line[0]

    def move(self, digest: str, before: State, after: State, *, people: int | None = None, left_out: int | None = None,
             output: str | None = None, reason: str | None = None, countersignature: str | None = None) -> bool:  # fmt: skip
        changes = {"people": people, "left_out": left_out, "output": output, "reason": reason, "countersignature": countersignature}
        with self._server.transaction() as db:
            standing = self._load_rules(db, digest)
            if standing.state != before:
                return False
            standing.check_step(after)
            reading = self._time(db)
            if after in ("sealed", "released"):
                reading.check()
            self._step(db, standing, after, reading.believed, {name: value for name, value in changes.items() if value is not None})
        return True

    @staticmethod
    def _step(db: Any, standing: AdmissionRules, after: State, now: float, changes: dict[str, Any]) -> None:
        """Into another state, with what belongs to that: the only place where one is written, or anything deleted."""
        changes = {**changes, "until": standing.until, "seen": now, "state": after}
        if after in ("sealed", "released"):
            changes[f"{after}_at"] = now
        names = ", ".join(f"{name} = %({name})s" for name in changes)
        db.execute(f"UPDATE collection SET {names} WHERE id = %(id)s", {**changes, "id": standing.id})  # noqa: S608 - names of ours
        for table, when in (("report", ("shuffled", "aborted")), ("ticket", ("shuffled", "aborted")), ("output", FINAL_STATES)):
            if after in when:
                db.execute(f"DELETE FROM {table} WHERE collection = %s", (standing.id,))  # noqa: S608 - names of ours
        if after in FINAL_STATES:
            hours = ", ".join(f"{name} = floor({name} / {HOUR}) * {HOUR}" for name in ("sealed_at", "released_at"))
            db.execute("UPDATE clock SET latest = greatest(latest, %s)", (now,))
            db.execute(f"UPDATE collection SET seen = 0, {hours} WHERE id = %s", (standing.id,))  # noqa: S608 - names of ours

    def acknowledge(self, digest: str) -> None:
        with self._server.transaction() as db:
            db.execute("UPDATE collection SET collected = true WHERE digest = %s AND state = 'released'", (digest,))

    def first_output(self, collection: str, asker: str, output: str | None = None) -> str | None:
        known = "SELECT output FROM witnessed WHERE collection = %s AND asker = %s"
        with self._server.transaction() as db:
            line = db.execute(known, (collection, asker)).fetchone()
        if line is None and output is not None:
            with self._server.transaction() as db:
                db.execute("INSERT INTO witnessed VALUES (%s, %s, %s) ON CONFLICT DO NOTHING", (collection, asker, output))
                line = db.execute(known, (collection, asker)).fetchone()
        return None if line is None else str(line[0])

    def forget_deleted(self) -> None:
        self._server.vacuum("report", "ticket", "output", "collection")

    def close(self) -> None:
        self._server.close()
