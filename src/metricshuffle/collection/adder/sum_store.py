"""Sums of an adder in an SQL database: states, encrypted shares, signed lists, statements, totals.

Each method is one transaction, durable before it returns. A sum moves forward only, but for one
extension, and a statement is never replaced or deleted; the database checks both.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields
from typing import Literal

from metricshuffle.collection.adder.sum_signatures import (
    ListHead,
    NameList,
    SumStatement,
    common_names,
)
from metricshuffle.collection.adder.sum_terms import SumCollection
from metricshuffle.collection.store.guarded_clock import ClockReading
from metricshuffle.collection.store.records import (
    DatabaseDamaged,
    DuplicateCollection,
    Entry,
    StoreError,
    Verdict,
)
from metricshuffle.collection.store.sql_store import WRITE_NOTHING, Store
from metricshuffle.collection.store.transaction import Transaction
from metricshuffle.collection.terms import parse_time
from metricshuffle.errors import InputError

SumState = Literal["open", "closed", "signed", "added", "released", "purged", "aborted"]
FINAL_SUM_STATES: tuple[SumState, ...] = ("purged", "aborted")
SHARE_STATES: tuple[SumState, ...] = ("open", "closed", "signed")
"""States in which there are shares, and keys that open them."""
NAMES_AT_ONCE = 500


@dataclass(frozen=True)
class ShareEntry(Entry):
    """Share as stored: `tag` is the name of the report."""

    box: bytes = b""
    """Keyed hash of the box, which no other report may have."""


@dataclass(frozen=True)
class SumRow:
    """Row of a sum: its bytes as `served` and hashed, and what happened since."""

    id: int
    digest: str
    served: bytes
    key: str
    """Public key of this adder, which names its secrets in the keys folder."""
    owner: str
    place: int
    """Index of this adder, from 0."""
    minimum: int
    maximum: int
    ticketed: int
    opens: float
    closes: float
    extends: float
    phase: int
    """0 until the closing time, 1 in the extension."""
    state: SumState
    reports: int
    people: int
    """Number of reports in the total, once it is computed."""
    total: bytes | None
    reason: str
    """Why it was aborted."""
    released_at: float
    collected: int
    clock: str
    """Public notes about changes of the clock, one sentence a line."""

    @property
    def until(self) -> float:
        """End of acceptance."""
        return self.extends if self.phase else self.closes

    def takes_reports(self, now: float) -> bool:
        return self.state == "open" and self.opens <= now < self.until


SUM_COLUMNS = ", ".join(column.name for column in fields(SumRow))


class SumStore(Store):
    """Sums in a database, beside the clocks of `Store`."""

    @staticmethod
    def _load(db: Transaction, digest: str, *, lock: bool = True) -> SumRow:
        row_lock = db.row_lock if lock else ""
        sql = f"SELECT {SUM_COLUMNS} FROM adder_sum WHERE digest = ? {row_lock}"  # noqa: S608
        line = db.execute(sql, (digest,)).fetchone()
        if line is None:
            raise InputError(f"there is no sum {digest[:16]} here.")
        return SumRow(*line)

    @contextmanager
    def _changing(self, digest: str, *states: SumState) -> Iterator[tuple[Transaction, SumRow]]:
        """Lock a sum in a transaction; raises StoreError unless it is in one of the states."""
        with self._database.writing() as db:
            row = self._load(db, digest)
            if row.state not in states:
                raise StoreError(f"sum {digest[:16]} is {row.state}, not {states[0]}.")
            yield db, row

    @staticmethod
    def _set(db: Transaction, row: SumRow, columns: Mapping[str, object]) -> None:
        names = ", ".join(f"{name} = ?" for name in columns)
        db.execute(f"UPDATE adder_sum SET {names} WHERE id = ?", (*columns.values(), row.id))  # noqa: S608

    @staticmethod
    def _note(db: Transaction, note: str, reading: ClockReading) -> None:
        Store._note(db, note, reading)
        sql = f"UPDATE adder_sum SET clock = clock || ? WHERE state NOT IN {FINAL_SUM_STATES}"  # noqa: S608
        db.execute(sql, (f"{note}\n",))

    # Sums

    def sum_row(self, digest: str) -> SumRow | None:
        """Row of a sum; None if there is none."""
        rows = self._sum_rows("WHERE digest = ?", digest)
        return rows[0] if rows else None

    def sum_rows(self) -> list[SumRow]:
        """All rows, newest first."""
        return self._sum_rows("ORDER BY id DESC")

    def _sum_rows(self, clause: str, *values: object) -> list[SumRow]:
        with self._database.reading() as db:
            sql = f"SELECT {SUM_COLUMNS} FROM adder_sum {clause}"  # noqa: S608
            return [SumRow(*line) for line in db.execute(sql, values).fetchall()]

    def add_sum(
        self, collection: SumCollection, key: str, owner: str, tickets: Iterable[bytes] = ()
    ) -> bool:
        """Add an open sum; return False, and change nothing, if it exists.

        Raises: DuplicateCollection if there is another sum of the same task and round.
        """
        terms = collection.terms
        columns = {
            "digest": collection.digest,
            "served": collection.served,
            "key": key,
            "owner": owner,
            "place": collection.place_of(key),
            "task": collection.task.digest,
            "round": terms.round,
            "ticketed": int(terms.admission == "tickets"),
            "minimum": terms.minimum,
            "maximum": terms.maximum,
            "opens": float(parse_time(terms.opens)),
            "closes": float(parse_time(terms.closes)),
            "extends": float(parse_time(terms.extends)),
        }
        with self._database.writing() as db:
            db.lock_store()
            sql = "SELECT digest FROM adder_sum WHERE task = ? AND round = ?"
            same_round = db.execute(sql, (columns["task"], columns["round"])).fetchone()
            if same_round is not None and same_round[0] == collection.digest:
                return False
            if same_round is not None:
                raise DuplicateCollection(
                    f"round {terms.round} of this plan has its sum here, {same_round[0][:16]}: "
                    "nobody may report twice; open the next round, or make another plan."
                )
            marks = ", ".join("?" for _ in columns)
            sql = f"INSERT INTO adder_sum ({', '.join(columns)}) VALUES ({marks})"  # noqa: S608
            db.execute(sql, tuple(columns.values()))
            row = self._load(db, collection.digest)
            for ticket in sorted(tickets):
                db.execute("INSERT INTO adder_ticket VALUES (?, ?)", (row.id, ticket))
        return True

    # Shares

    def put(self, digest: str, entries: Sequence[Entry]) -> list[Verdict]:
        """Store shares in one transaction, and return a verdict for each.

        A name that is stored is the same report. Raises ClockJumped if the clock has jumped, and
        the jump would change a decision.
        """
        with self._database.writing() as db:
            row = self._load(db, digest)
            reading = db.read_clock(self._clock)
            now = reading.believed
            if row.takes_reports(now) != row.takes_reports(reading.latest):
                reading.check()
            verdicts = [Verdict.CLOSED] * len(entries)
            if row.takes_reports(now):
                room = row.maximum - row.reports
                for number, entry in enumerate(entries):
                    verdicts[number] = self._put_share(db, row, entry, room)
                    room -= verdicts[number] is Verdict.STORED
                self._set(db, row, {"reports": row.maximum - room})
            else:
                db.execute(WRITE_NOTHING)
        return verdicts

    @staticmethod
    def _put_share(db: Transaction, row: SumRow, entry: Entry, room: int) -> Verdict:
        """Store one share unless it is known, has no valid ticket, or there is no room."""
        box = entry.box if isinstance(entry, ShareEntry) else b""

        def has(sql: str, value: bytes) -> bool:
            return db.execute(sql, (row.id, value)).fetchone() is not None

        if has("SELECT 1 FROM adder_share WHERE sum = ? AND name = ?", entry.tag):
            return Verdict.SAME
        if has("SELECT 1 FROM adder_share WHERE sum = ? AND box = ?", box):
            return Verdict.KNOWN_BOX
        if row.ticketed:
            if not has("SELECT 1 FROM adder_ticket WHERE sum = ? AND hash = ?", entry.ticket):
                return Verdict.UNKNOWN_TICKET
            if has("SELECT 1 FROM adder_share WHERE sum = ? AND ticket = ?", entry.ticket):
                return Verdict.SPENT_TICKET
        if room <= 0:
            return Verdict.FULL
        ticket = entry.ticket if row.ticketed else None
        sql = "INSERT INTO adder_share (sum, name, box, ticket, hidden) VALUES (?, ?, ?, ?, ?)"
        db.execute(sql, (row.id, entry.tag, box, ticket, entry.hidden))
        return Verdict.STORED

    def hidden_shares(self, digest: str, names: Sequence[bytes]) -> Iterator[tuple[bytes, bytes]]:
        """Iterate over (name, encrypted share) of reports; raises if one of them is missing."""
        for start in range(0, len(names), NAMES_AT_ONCE):
            with self._database.reading() as db:
                row = self._load(db, digest, lock=False)
                shares = []
                for name in names[start : start + NAMES_AT_ONCE]:
                    sql = "SELECT hidden FROM adder_share WHERE sum = ? AND name = ?"
                    line = db.execute(sql, (row.id, name)).fetchone()
                    if line is None:
                        raise DatabaseDamaged(
                            f"{self._database.name} is damaged: a share of {digest[:16]} that was "
                            "acknowledged is missing."
                        )
                    shares.append((name, bytes(line[0])))
            yield from shares

    # Closing, and the exchange of lists

    def close_sum(self, digest: str, sign: Callable[[int, list[bytes]], NameList]) -> bool:
        """Close an open sum at its end, and store the signed list of its names.

        Return whether its end has come; nothing happens after the clock has jumped.
        """
        with self._changing(digest, "open") as (db, row):
            reading = db.read_clock(self._clock)
            if reading.has_jumped or reading.believed < row.until:
                return False
            sql = "SELECT name FROM adder_share WHERE sum = ? ORDER BY name"
            names = [bytes(line[0]) for line in db.execute(sql, (row.id,)).fetchall()]
            if len(names) != row.reports:
                raise DatabaseDamaged(
                    f"{self._database.name} is damaged: it counted {row.reports:,} reports of "
                    f"{digest[:16]} and holds {len(names):,}."
                )
            self._insert_list(db, row, sign(row.phase, names))
            self._set(db, row, {"state": "closed"})
        return True

    @staticmethod
    def _insert_list(db: Transaction, row: SumRow, signed: NameList) -> None:
        sql = "INSERT INTO adder_list VALUES (?, ?, ?, ?, ?) ON CONFLICT DO NOTHING"
        head = signed.head
        db.execute(sql, (row.id, head.place, head.phase, head.to_bytes(), signed.names))

    def add_list(self, digest: str, signed: NameList) -> bool:
        """Store the list of another adder; return False if it sent another one before."""
        head = signed.head
        with self._changing(digest, "open", "closed", "signed") as (db, row):
            self._insert_list(db, row, signed)
            sql = "SELECT head FROM adder_list WHERE sum = ? AND place = ? AND phase = ?"
            [first] = db.execute(sql, (row.id, head.place, head.phase)).fetchone()
            return bytes(first) == head.to_bytes()

    def listed(self, digest: str, phase: int) -> set[int]:
        """Adders whose list of a phase is stored."""
        sql = (
            "SELECT adder_list.place FROM adder_list JOIN adder_sum ON id = sum "
            "WHERE digest = ? AND adder_list.phase = ?"
        )
        with self._database.reading() as db:
            return {int(line[0]) for line in db.execute(sql, (digest, phase)).fetchall()}

    def name_lists(self, digest: str, phase: int) -> dict[int, NameList]:
        """Lists of a phase by adder."""
        sql = (
            "SELECT head, names FROM adder_list JOIN adder_sum ON id = sum WHERE digest = ? "
            "AND adder_list.phase = ?"
        )
        with self._database.reading() as db:
            collection = SumCollection(self._load(db, digest, lock=False).served)
            lines = db.execute(sql, (digest, phase)).fetchall()
        lists = [
            NameList(ListHead.read(bytes(head), collection), bytes(names)) for head, names in lines
        ]
        return {signed.head.place: signed for signed in lists}

    def common(self, digest: str, phase: int) -> list[bytes]:
        """Sorted names that are in the lists of all adders that sent one."""
        return common_names(signed.names for signed in self.name_lists(digest, phase).values())

    def extend_sum(self, digest: str) -> None:
        """Open a closed sum again until the end of its extension."""
        with self._changing(digest, "closed") as (db, row):
            self._set(db, row, {"state": "open", "phase": 1})

    # Statements

    def sign_sum(self, digest: str, statement: SumStatement) -> None:
        """Store the only statement of this adder, before it is sent anywhere."""
        with self._changing(digest, "closed") as (db, row):
            if not self._insert_statement(db, row, statement):
                raise StoreError("this adder has signed another set of this sum before.")
            self._set(db, row, {"state": "signed", "people": statement.people})

    @staticmethod
    def _insert_statement(db: Transaction, row: SumRow, statement: SumStatement) -> bool:
        """Store a statement unless its adder has one; return whether its set is that of this."""
        values = (row.id, statement.place, *statement.subject, statement.signature)
        db.execute(
            "INSERT INTO adder_statement VALUES (?, ?, ?, ?, ?) ON CONFLICT DO NOTHING", values
        )
        sql = "SELECT hashed, people FROM adder_statement WHERE sum = ? AND place = ?"
        line = db.execute(sql, (row.id, statement.place)).fetchone()
        return (line[0], int(line[1])) == statement.subject

    def add_statement(self, digest: str, statement: SumStatement) -> bool:
        """Store the statement of another adder; return False if it signed another set before."""
        with self._database.writing() as db:
            row = self._load(db, digest)
            return self._insert_statement(db, row, statement)

    def statements(self, digest: str) -> dict[int, SumStatement]:
        """First statement of each adder that signed one."""
        sql = (
            "SELECT adder_statement.place, hashed, adder_statement.people, signature "
            "FROM adder_statement JOIN adder_sum ON id = sum WHERE digest = ?"
        )
        with self._database.reading() as db:
            lines = db.execute(sql, (digest,)).fetchall()
        return {int(place): SumStatement(int(place), *rest_of) for place, *rest_of in lines}

    # Total, release and end

    def keep_total(self, digest: str, total: bytes) -> None:
        """Store the total, and delete all shares, tickets and lists, in one transaction."""
        with self._changing(digest, "signed") as (db, row):
            self._set(db, row, {"state": "added", "total": total})
            self._delete_shares(db, row)
        self._database.forget_deleted()

    @staticmethod
    def _delete_shares(db: Transaction, row: SumRow) -> None:
        for table in ("adder_share", "adder_ticket", "adder_list"):
            db.execute(f"DELETE FROM {table} WHERE sum = ?", (row.id,))  # noqa: S608

    def release_sum(self, digest: str) -> None:
        """Release the total; the keys are destroyed."""
        with self._changing(digest, "added") as (db, row):
            self._set(db, row, {"state": "released", "released_at": self._hour(db)})

    def _hour(self, db: Transaction) -> float:
        """Time rounded down to the hour."""
        return db.read_clock(self._clock).believed // 3600 * 3600

    def acknowledge_sum(self, digest: str) -> None:
        """Note that the analyst has the total."""
        with self._changing(digest, "released", "purged") as (db, row):
            self._set(db, row, {"collected": 1})

    def purge_sum(self, digest: str) -> None:
        """Delete the total of a released sum; a sum that was not collected is aborted."""
        with self._changing(digest, "released") as (db, row):
            reason = "" if row.collected else "its total was not collected"
            state = "purged" if row.collected else "aborted"
            self._set(db, row, {"state": state, "total": None, "reason": reason})
        self._database.forget_deleted()

    def abort_sum(self, digest: str, reason: str) -> bool:
        """Abort a sum and delete its shares and its total; return False if it has ended."""
        with self._database.writing() as db:
            row = self._load(db, digest)
            if row.state in FINAL_SUM_STATES:
                return False
            self._set(db, row, {"state": "aborted", "total": None, "reason": reason})
            self._delete_shares(db, row)
        self._database.forget_deleted()
        return True

    def confirm_sum(self, digest: str, *states: SumState) -> None:
        """Make sure by a durable write that a sum is in one of the states."""
        with self._changing(digest, *states) as (db, _):
            db.execute(WRITE_NOTHING)
