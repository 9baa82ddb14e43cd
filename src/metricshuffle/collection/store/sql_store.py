"""Collections of a shuffler in an SQL database: states, encrypted reports, tickets, output.

Each method is one transaction, durable before it returns, and safe with other processes that use
the same database. A state only moves forward, which the database itself checks. A transaction that
decides anything first locks the row of the collection, then reads the time. The statements in which
SQLite and PostgreSQL differ are methods of `Transaction`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace

from metricshuffle.collection.shuffler.admission import (
    FINAL_STATES,
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
    ClockReading,
    GuardedClock,
    SteadyTime,
    startup_warning,
)
from metricshuffle.collection.store.mix_tasks import MixTasks
from metricshuffle.collection.store.records import (
    CollectionRow,
    DatabaseDamaged,
    Entry,
    PartsHeld,
    State,
    StoreError,
    Verdict,
)
from metricshuffle.collection.store.transaction import (
    Database,
    PageEnd,
    ReportPage,
    SqlRow,
    Transaction,
)
from metricshuffle.collection.terms import Collection
from metricshuffle.errors import InputError

ADMISSION_COLUMNS = (
    "id, state, reports, until, first, ticketed, minimum, maximum - reserved, opens, closes, "
    "extends, layout"
)
ROW_COLUMNS = (
    "digest, key, state, reports, until, people, left_out, output, reason, sealed_at, released_at, "
    "collected, clock, owner, leases, countersignature, dummies"
)
LAYOUT = 2
"""Tables for the reports of a new collection; see the schemas."""
WRITE_NOTHING = "UPDATE clock SET latest = latest"
"""Write that changes nothing: its commit waits for a standby; after reads alone it would not."""
STATES_WITHOUT_REPORTS: tuple[State, ...] = ("shuffled", "aborted")
STATES_WITHOUT_OUTPUT: tuple[State, ...] = ("aborted", "purged")
"""States that a collection enters by deleting its reports and tickets, or its output."""


class Store:
    """Collections in a database. Times are seconds since 1970 by its clock, and never go back."""

    start_note = ""
    """Warning about the clock, if the machine was started since this database was last used."""

    def __init__(
        self,
        database: Database,
        clock: Callable[[], float] | None = None,
        steady: Callable[[], SteadyTime] | None = None,
        jump: float = MAX_CLOCK_JUMP_SECONDS,
    ) -> None:
        self._database = database
        self._clock = GuardedClock.of(clock, steady, jump)
        self._latest_now = 0.0
        self._corrections = 0
        self._served = BytesCache()

    def __repr__(self) -> str:
        return f"Store({self._database.name})"

    @staticmethod
    def _load_rules(db: Transaction, digest: str, *, lock: bool) -> AdmissionRules:
        row_lock = db.row_lock if lock else ""
        sql = f"SELECT {ADMISSION_COLUMNS} FROM collection WHERE digest = ? {row_lock}"  # noqa: S608 - constants
        line = db.execute(sql, (digest,)).fetchone()
        if line is None:
            raise InputError(f"there is no collection {digest[:16]} here.")
        return AdmissionRules(*line)

    @staticmethod
    def _update(db: Transaction, rules: AdmissionRules, columns: Mapping[str, object]) -> None:
        if columns:
            names = ", ".join(f"{name} = ?" for name in columns)
            sql = f"UPDATE collection SET {names} WHERE id = ?"  # noqa: S608 - names of ours
            db.execute(sql, (*columns.values(), rules.id))

    # Time

    def now(self) -> float:
        """Time of the database, never before that of a decision or an earlier result."""
        reading = self.read_clock()
        if reading.corrections != self._corrections:
            self._latest_now = 0.0
            self._corrections = reading.corrections
        self._latest_now = max(self._latest_now, reading.believed)
        return self._latest_now

    def read_clock(self) -> ClockReading:
        """Read all clocks.

        In a new boot, and once a day, the readings are stored unless the clock has jumped.
        """
        with self._database.reading() as db:
            reading = db.read_clock(self._clock)
        if not reading.is_fresh and not reading.has_jumped:
            self._store_anchor()
        return reading

    def _store_anchor(self) -> None:
        with self._database.writing() as db:
            db.lock_store()
            steady = self._clock.read_steady()
            reading = db.read_clock(self._clock)
            if steady is None or reading.has_jumped:
                return
            sql = "SELECT max(CASE WHEN boot = ? THEN 1 ELSE 0 END), max(wall) FROM anchor"
            [is_known, last] = db.execute(sql, (steady.boot,)).fetchone()
            if not is_known:
                self.start_note = startup_warning(max(reading.stored, last or 0.0), reading.wall)
            db.delete_anchors(steady.boot, reading.wall)
            anchor = (steady.boot, reading.wall, steady.seconds)
            db.execute("INSERT INTO anchor VALUES (?, ?, ?)", anchor)

    def confirm_clock(self) -> str:
        """Accept a clock that has jumped; return the public note.

        Raises InputError if it has not jumped.
        """
        with self._database.writing() as db:
            db.lock_collections()
            reading = db.read_clock(self._clock)
            note = reading.confirmed()
            steady = self._clock.read_steady()
            if steady is not None:  # a machine without an anchor gets one, and moves no others
                sql = "INSERT INTO anchor VALUES (?, ?, ?) ON CONFLICT DO NOTHING"
                if db.execute(sql, (steady.boot, reading.wall, steady.seconds)).rowcount:
                    reading = replace(reading, expected=reading.wall)
            self._note(db, note, reading)
        return note

    def correct_clock(self) -> str:
        """Replace stored times ahead of the clock; return the public note.

        Raises InputError if there are none.
        """
        with self._database.writing() as db:
            db.lock_collections()
            reading = db.read_clock(self._clock)
            note = reading.corrected(self._latest_now)
            db.correct_time(reading.wall)
            sql = (
                "UPDATE collection SET released_at = ? WHERE state = 'released' AND released_at > ?"
            )
            db.execute(sql, (reading.wall, reading.wall))
            self._note(db, note, reading)
        return note

    @staticmethod
    def _note(db: Transaction, note: str, reading: ClockReading) -> None:
        """Add a note to every collection that has not ended, and move all anchors to the clock."""
        sql = f"UPDATE collection SET clock = clock || ? WHERE state NOT IN {FINAL_STATES}"  # noqa: S608 - states of ours
        db.execute(sql, (f"{note}\n",))
        db.execute("UPDATE anchor SET wall = wall + ?", (reading.ahead,))

    # Collections

    def history_trouble(self) -> str:
        """Why this database is not the one that the hub wrote to before; empty if it is.

        Only a hub has a record of its database.
        """
        return ""

    def accept_database(self) -> str:
        """Accept a database that is older; return the public note.

        Raises: InputError if it is not older.
        """
        raise InputError("only a hub compares its database with a record.")

    def check_writing(self) -> None:
        """Write durably without changing anything; raises StoreError if that is impossible now."""
        with self._database.writing() as db:
            db.execute(WRITE_NOTHING)

    def setting_warnings(self) -> list[str]:
        """Return sentences about settings of the database that should be changed."""
        return self._database.setting_warnings()

    def awaits_standby(self) -> bool:
        """Return whether a commit of this program waits until a standby has it."""
        return self._database.awaits_standby()

    def add(
        self, collection: Collection, key: str, tickets: Iterable[bytes] = (), owner: str = ""
    ) -> bool:
        """Add an open collection; return False, and change nothing, if it exists.

        Args:
            key: public key of this hop.
            tickets: hashes of the tickets.
            owner: folder of keys.

        Raises:
            DuplicateCollection: there is another one of the same task, round and part, even if it
                was aborted (people may have reported), or the round is split differently.
        """
        columns = {**new_row_columns(collection, key), "owner": owner, "layout": LAYOUT}
        hashes = validate_tickets(tickets, columns)
        with self._database.writing() as db:
            db.lock_store()
            select_id = "SELECT id FROM collection WHERE digest = ?"
            if db.execute(select_id, (collection.digest,)).fetchone() is not None:
                return False
            sql = "SELECT digest, part, parts FROM collection WHERE task = ? AND round = ?"
            same_round = db.execute(sql, (columns["task"], columns["round"])).fetchall()
            check_round(columns, [(digest, part, parts) for digest, part, parts in same_round])
            marks = ", ".join("?" for _ in columns)
            sql = f"INSERT INTO collection ({', '.join(columns)}) VALUES ({marks})"  # noqa: S608 - names of ours
            db.execute(sql, tuple(columns.values()))
            [number] = db.execute(select_id, (collection.digest,)).fetchone()
            db.execute("INSERT INTO served VALUES (?, ?)", (number, collection.served))
            db.add_tables(number, hashes)
        return True

    def row(self, digest: str) -> CollectionRow | None:
        """Row of a collection; None if there is none."""
        return next(iter(self._rows("WHERE digest = ?", digest)), None)

    def rows(self) -> list[CollectionRow]:
        """All rows, newest first."""
        return self._rows("ORDER BY id DESC")

    def _rows(self, clause: str, *values: object) -> list[CollectionRow]:
        with self._database.reading() as db:
            sql = f"SELECT id, {ROW_COLUMNS} FROM collection {clause}"  # noqa: S608 - constants
            return [self._as_row(db, line) for line in db.execute(sql, values).fetchall()]

    def _as_row(self, db: Transaction, line: SqlRow) -> CollectionRow:
        columns = dict(zip(ROW_COLUMNS.split(", "), line[1:], strict=True))
        columns["collected"] = bool(columns["collected"])
        served = self._served.get(columns["digest"])
        if served is None:
            sql = "SELECT bytes FROM served WHERE collection = ?"
            [served] = db.execute(sql, line[:1]).fetchone()
            self._served[columns["digest"]] = served
        return CollectionRow(served=served, **columns)

    def put(self, digest: str, entries: Sequence[Entry]) -> list[Verdict]:
        """Store reports in one transaction, and return a verdict for each.

        A report is accepted from `opens` to `until`, by the time of this transaction; at the
        closing time a collection with fewer reports than its minimum is extended, once. A tag that
        is stored is the same report, whatever its ticket. Ticket and report are stored together or
        not at all.

        Raises: ClockJumped if the clock has jumped, and the jump would change a decision.
        """
        with self._database.writing() as db:
            rules = self._load_rules(db, digest, lock=True)
            reading = db.read_clock(self._clock)
            now = reading.believed
            if not rules.has_same_decision(now, reading.latest):
                reading.check()
            rules, _ = self._close_parts(db, rules, now)
            rules = rules.at(now)
            verdicts = [Verdict.CLOSED] * len(entries)
            if rules.takes_reports(now):
                tags = db.find_reports(rules, entries)
                tickets = db.find_tickets(rules, entries)
                verdicts = rules.verdicts(entries, tags, tickets)
            accepted = select_accepted(entries, verdicts)
            if accepted or rules.decides(now):
                db.store_reports(rules, rules.noted(now), accepted)
            else:
                db.confirm(rules)
        return verdicts

    # States

    def awaits_count(self, digest: str) -> bool:
        """Return whether the number of distinct reports decides on an extension (`AdmissionRules`).

        If so, the current time is stored: no report is accepted until `seal` gets the number.
        """
        with self._database.reading() as db:
            reading = db.read_clock(self._clock)
            rules = db.estimate_parts(self._load_rules(db, digest, lock=False))
        if reading.has_jumped or not rules.awaits_count(reading.believed):
            return False
        with self._closing() as db:
            rules = self._load_rules(db, digest, lock=True)
            reading = db.read_clock(self._clock)
            if not reading.has_jumped:
                rules, _ = self._close_parts(db, rules, reading.believed)
            awaits = not reading.has_jumped and rules.awaits_count(reading.believed)
            if awaits:
                self._update(db, rules, db.note_time(reading.believed))
        return awaits

    def seal(self, digest: str, distinct: int | None = None, dummies: str = "") -> State:
        """Seal, extend or abort a collection whose end has come; return its state.

        After `until` it is sealed if it has its minimum, and otherwise extended or aborted.
        Aborting deletes as `move` does. A later hop is not sealed here, and nothing happens after
        the clock has jumped. `distinct` is the number that `awaits_count` asked for; without it all
        reports count as distinct. `dummies` is the digest of the dummies that are mixed with them.
        """
        with self._database.reading() as db:
            rules = db.estimate_parts(self._load_rules(db, digest, lock=False))
            reading = db.read_clock(self._clock)
        now = reading.believed
        is_due = rules.due(now, distinct) != rules.state or rules.at(now, distinct) != rules
        if reading.has_jumped or not is_due:
            return rules.state
        with self._closing() as db:
            rules = self._load_rules(db, digest, lock=True)
            reading = db.read_clock(self._clock)
            if reading.has_jumped:
                return rules.state
            now = reading.believed
            rules, parts = self._close_parts(db, rules, now)
            if parts and distinct is None and rules.awaits_count(now):
                return rules.state  # parts were counted only now; distinct reports come next
            rules = rules.at(now, distinct)
            due = rules.due(now)
            if due == rules.state:
                self._update(db, rules, {"until": rules.until, **db.note_time(now)})
                db.open_parts(rules)
            else:
                columns = {"reason": rules.too_few} if due == "aborted" else {"dummies": dummies}
                self._enter(db, rules, due, now, columns)
        return due

    @staticmethod
    def _close_parts(
        db: Transaction, rules: AdmissionRules, now: float
    ) -> tuple[AdmissionRules, int]:
        """Close the parts of a collection at its end; return its rules and their number."""
        if rules.first and rules.state == "open" and now >= rules.until:
            return db.close_parts(rules)
        return rules, 0

    @contextmanager
    def _closing(self) -> Iterator[Transaction]:
        """Transaction that closes parts; an edge's transaction that holds one too long is ended."""
        try:
            with self._database.writing() as db:
                yield db
        except PartsHeld:
            self._database.end_hung_edges()
            raise

    def confirm(self, digest: str, state: State) -> None:
        """Make sure by a durable write that a collection is in a state.

        A state that was only read may be lost if a standby takes over, so it is no reason to
        destroy anything.
        """
        with self._database.writing() as db:
            rules = self._load_rules(db, digest, lock=True)
            if rules.state != state:
                raise StoreError(f"collection {digest[:16]} is {rules.state}, not {state}.")
            db.confirm(rules)

    def hidden(self, digest: str) -> Iterator[tuple[bytes, bytes]]:
        """Iterate over (tag, encrypted boxes) of all stored reports, in bounded memory.

        The collection must be sealed or await its count.

        Raises: StoreError if it is aborted meanwhile; DatabaseDamaged if the reports are not those
        that were counted.
        """
        count = 0
        for page, rules in self._pages(digest):
            count += len(page.reports)
            if page.end is None and count != rules.reports:
                raise DatabaseDamaged(
                    f"{self._database.name} is damaged: it counted {rules.reports:,} "
                    f"reports of {digest[:16]} and holds {count:,}."
                )
            yield from page.reports

    def _pages(
        self, digest: str, first: PageEnd | None = None, last: int | None = None
    ) -> Iterator[tuple[ReportPage, AdmissionRules]]:
        """Iterate over pages of reports, all of them or those between two places."""
        end = first
        while True:
            with self._database.reading() as db:
                page = db.read_page(self._load_readable(db, digest), end, last)
                # The rules are checked after the page, so no row was deleted before it was read.
                rules = self._load_readable(db, digest)
            yield page, rules
            end = page.end
            if end is None:
                return

    def count_places(self, digest: str) -> int:
        """Places of the reports of a collection, some of which may be empty; 0 in layout 1."""
        with self._database.reading() as db:
            rules = self._load_readable(db, digest)
            return db.count_places(rules) if rules.layout > 1 else 0

    def hidden_between(
        self, digest: str, first: int, last: int
    ) -> Iterator[list[tuple[bytes, bytes]]]:
        """Iterate over pages of reports between two places, the first of which is 0."""
        for page, _ in self._pages(digest, first, last):
            yield page.reports

    @property
    def mix_tasks(self) -> MixTasks:
        """Tasks of mixers."""
        return MixTasks(self._database, self._clock)

    def _load_readable(self, db: Transaction, digest: str) -> AdmissionRules:
        """Load the rules of a collection; raise unless its reports can be read."""
        rules = self._load_rules(db, digest, lock=False)
        sql = f"SELECT {db.noted_time} FROM collection WHERE id = ?"  # noqa: S608 - a constant
        [noted] = db.execute(sql, (rules.id,)).fetchone()
        rules.check_readable(digest, noted)
        return rules

    def keep_output(self, digest: str, chunks: Iterable[bytes]) -> None:
        """Store the output of a sealed collection, replacing that of an interrupted shuffle."""
        with self._database.writing() as db:
            rules = self._load_rules(db, digest, lock=True)
            rules.check_sealed(digest, "keep the output")
            db.execute("DELETE FROM output WHERE collection = ?", (rules.id,))
            for place, chunk in enumerate(rechunk(chunks)):
                db.execute("INSERT INTO output VALUES (?, ?, ?)", (rules.id, place, chunk))

    def output_size(self, digest: str) -> int:
        """Bytes of the stored output."""
        sql = (
            "SELECT coalesce(sum(length(bytes)), 0) FROM output "
            "WHERE collection = (SELECT id FROM collection WHERE digest = ?)"
        )
        with self._database.reading() as db:
            return int(db.execute(sql, (digest,)).fetchone()[0])

    def output(self, digest: str) -> Iterator[bytes]:
        """Iterate over the stored output in chunks; none if nothing is stored.

        Raises: StoreError if it is deleted, or replaced by a shorter one, meanwhile.
        """
        chosen = "FROM output WHERE collection = (SELECT id FROM collection WHERE digest = ?)"
        with self._database.reading() as db:
            [count] = db.execute(f"SELECT count(*) {chosen}", (digest,)).fetchone()
        for place in range(count):
            with self._database.reading() as db:
                sql = f"SELECT bytes {chosen} AND place = ?"
                line = db.execute(sql, (digest, place)).fetchone()
            if line is None:
                raise StoreError(f"the output of {digest[:16]} was deleted while it was read.")
            yield line[0]

    def move(
        self,
        digest: str,
        before: State,
        after: State,
        *,
        people: int | None = None,
        left_out: int | None = None,
        output: str | None = None,
        reason: str | None = None,
        countersignature: str | None = None,
        leases: str | None = None,
        dummies: str | None = None,
    ) -> bool:
        """Move a collection on if it is still in the state `before`; otherwise return False.

        Stored reports and tickets are deleted in the same transaction when it becomes `shuffled` or
        `aborted`, and the output when it becomes `aborted` or `purged`. Entering `released` stores
        the time; entering a final state rounds times to the hour.

        Raises: StoreError, from the database itself, for a step backward or over a state; for a
        first hop's `sealed` (see `seal`); for `shuffled` with fewer people than the minimum, or
        if people and left-out reports do not add up to all reports; and for `aborted` once the
        output was collected. ClockJumped if a clock that has jumped would give a stored time.
        """
        columns = {
            "people": people,
            "left_out": left_out,
            "output": output,
            "reason": reason,
            "countersignature": countersignature,
            "leases": leases,
            "dummies": dummies,
        }
        changes = {name: value for name, value in columns.items() if value is not None}
        with self._database.writing() as db:
            rules = self._load_rules(db, digest, lock=True)
            if rules.state != before:
                return False
            rules.check_step(after)
            reading = db.read_clock(self._clock)
            if after in ("sealed", "released"):
                reading.check()
            self._enter(db, rules, after, reading.believed, changes)
        return True

    def _enter(
        self,
        db: Transaction,
        rules: AdmissionRules,
        state: State,
        now: float,
        changes: Mapping[str, object],
    ) -> None:
        """Enter another state; nothing else writes a state or deletes what was stored."""
        columns = {**changes, "until": rules.until, "state": state, **db.note_time(now)}
        if state in ("sealed", "released"):
            columns[f"{state}_at"] = now
        self._update(db, rules, columns)
        if state in STATES_WITHOUT_REPORTS:
            db.delete_reports(rules)
            for table in ("mix_task", "mix_attempt"):
                db.execute(f"DELETE FROM {table} WHERE collection = ?", (rules.id,))  # noqa: S608
        if state in STATES_WITHOUT_OUTPUT:
            db.execute("DELETE FROM output WHERE collection = ?", (rules.id,))
        if state in FINAL_STATES:
            db.round_times(rules, now)

    def acknowledge(self, digest: str) -> None:
        """Record that the output was fetched, if it is released."""
        if self.row(digest) is None:
            return
        with self._database.writing() as db:
            rules = self._load_rules(db, digest, lock=True)
            if rules.state == "released":
                self._update(db, rules, {"collected": True})
            else:
                db.confirm(rules)

    def first_output(self, collection: str, asker: str, output: str | None = None) -> str | None:
        """Return the first output of another shuffler's collection that this witness recorded.

        If there is none yet, `output` is recorded durably. The database rejects changing or
        deleting it. An output that was recorded before is also returned only after a write:
        otherwise a standby that takes over may lack it, and would record another output.
        """
        select_output = "SELECT output FROM witnessed WHERE collection = ? AND asker = ?"
        with self._database.reading() as db:
            line = db.execute(select_output, (collection, asker)).fetchone()
        if line is None and output is None:
            return None
        with self._database.writing() as db:
            if line is None:
                sql = "INSERT INTO witnessed VALUES (?, ?, ?) ON CONFLICT DO NOTHING"
                db.execute(sql, (collection, asker, output))
            db.execute(WRITE_NOTHING)
            [first] = db.execute(select_output, (collection, asker)).fetchone()
        return str(first)

    def forget_deleted(self) -> None:
        """Remove deleted data from the journal of the database too, as far as possible."""
        self._database.forget_deleted()

    def close(self) -> None:
        """Close all connections that are not in use."""
        self._database.close()
