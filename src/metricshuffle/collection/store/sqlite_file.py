"""SQLite store: one file, with a write-ahead journal that is synchronized at every commit.

Any number of threads and processes of one machine may use it; writers wait for each other. A
connection is borrowed for one transaction, and no transaction stays open between two pages that are
read, because the journal could not be emptied then.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
import stat
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import groupby
from operator import itemgetter
from pathlib import Path

from metricshuffle.collection.keys import PRIVATE_FILE, fsync_directory
from metricshuffle.collection.shuffler.admission import HOUR, AdmissionRules
from metricshuffle.collection.store.connection_pool import WAIT_SECONDS, ConnectionPool
from metricshuffle.collection.store.guarded_clock import Anchor, ClockReading, GuardedClock
from metricshuffle.collection.store.known_tags import MAX_RECENT_TAGS, KnownTags
from metricshuffle.collection.store.records import CHUNK, DatabaseDamaged, Entry, StoreError
from metricshuffle.collection.store.schema_versions import latest_version, migrations
from metricshuffle.collection.store.sqlite_schema import (
    APPLICATION,
    PAGE_BYTES,
    collection_tables,
    split_into_pieces,
)
from metricshuffle.collection.store.transaction import PageEnd, ReportPage, Transaction
from metricshuffle.files import check_leads_somewhere

JOURNAL_BYTES = 64_000 * 1024
"""Pages in the journal before they are copied into the file, in bytes."""
SETTINGS = (
    "synchronous = FULL",
    "secure_delete = ON",
    "trusted_schema = OFF",
    "cell_size_check = ON",
    "journal_size_limit = 0",
    "temp_store = MEMORY",
    "cache_size = -32768",
)
CAUSES = {
    sqlite3.SQLITE_FULL: "the disk is full; make room to continue",
    sqlite3.SQLITE_READONLY: "it is read-only; make the file and its folder writable",
    sqlite3.SQLITE_BUSY: "another program holds it; see who has it open",
    sqlite3.SQLITE_LOCKED: "another program holds it; see who has it open",
    sqlite3.SQLITE_CANTOPEN: (
        "it cannot be opened; does its folder exist, and may this user write to it?"
    ),
    sqlite3.SQLITE_NOTADB: "it is not a database; name another file",
    sqlite3.SQLITE_CORRUPT: "it is damaged; stop the service and check the disk",
    sqlite3.SQLITE_IOERR: "the disk cannot be read or written; check it",
    sqlite3.SQLITE_CONSTRAINT: "the database refuses this step",
}
"""Causes by primary error code, which has no higher bits."""
MAX_PLACE = 2**63 - 1
PRIMARY_CODE_MASK = 0xFF
JOURNALS = ("-wal", "-shm", "-journal")
"""Endings of the additional files of an SQLite database."""


@dataclass
class KnownReports:
    """Tags and spent tickets in the table of a collection, up to the place `last`."""

    tags: KnownTags = field(default_factory=KnownTags)
    tickets: KnownTags = field(default_factory=KnownTags)
    last: int = 0


class SqliteTransaction(Transaction):
    """Transaction in a file. Writing transactions exclude each other, so no row is locked."""

    noted_time = "(SELECT latest FROM clock)"

    def __init__(
        self, connection: sqlite3.Connection, cache: dict[int, KnownReports] | None = None
    ) -> None:
        """Use a connection; for writing, `cache` has the known reports by collection."""
        self._connection = connection
        self._cache = {} if cache is None else cache

    def execute(self, sql: str, values: Sequence[object] = ()) -> sqlite3.Cursor:
        return self._connection.execute(sql, values)

    def lock_store(self) -> None:
        pass

    def lock_collections(self) -> None:
        pass

    def read_clock(self, clock: GuardedClock) -> ClockReading:
        steady = clock.read_steady()
        wall = (clock.wall or time.time)()
        sql = "SELECT latest, corrections, wall, steady FROM clock LEFT JOIN anchor ON boot = ?"
        latest, corrections, *anchor = self.execute(sql, (steady and steady.boot,)).fetchone()
        stored_anchor = None if anchor[0] is None else Anchor(*anchor)
        return clock.reading(wall, steady, stored_anchor, float(latest), corrections)

    def note_time(self, now: float) -> dict[str, object]:
        self.execute("UPDATE clock SET latest = max(latest, ?)", (now,))
        return {}

    def correct_time(self, wall: float) -> None:
        self.execute(
            "UPDATE clock SET latest = min(latest, ?), corrections = corrections + 1", (wall,)
        )

    def round_times(self, rules: AdmissionRules, now: float) -> None:
        hours = (
            f"{name} = CAST({name} / {HOUR} AS INTEGER) * {HOUR}"
            for name in ("sealed_at", "released_at")
        )
        self.execute(f"UPDATE collection SET {', '.join(hours)} WHERE id = ?", (rules.id,))  # noqa: S608 - names of ours

    def delete_anchors(self, boot: str, wall: float) -> None:
        self.execute("DELETE FROM anchor")  # one machine uses a file, so it has one anchor

    def add_tables(self, number: int, hashes: Iterable[bytes]) -> None:
        for statement in collection_tables(number):
            self.execute(statement)
        rows = ((number, ticket) for ticket in hashes)
        self._connection.executemany("INSERT INTO ticket (collection, hash) VALUES (?, ?)", rows)

    def _known(self, number: int) -> KnownReports:
        """Return the known reports of a collection, after adding those committed since."""
        known = self._cache.setdefault(number, KnownReports())
        sql = f"SELECT place, tag, ticket FROM admitted_{number} WHERE place > ? ORDER BY place"  # noqa: S608 - a number
        cursor = self.execute(sql, (known.last,))
        while rows := cursor.fetchmany(MAX_RECENT_TAGS):
            known.last = rows[-1][0]
            known.tags.add(tag for _, tag, _ in rows)
            known.tickets.add(ticket for _, _, ticket in rows if ticket)
        return known

    def find_reports(self, rules: AdmissionRules, entries: Sequence[Entry]) -> set[bytes]:
        if rules.layout > 1:
            return self._known(rules.id).tags.known(entry.tag for entry in entries)
        sql = "SELECT tag FROM report WHERE collection = ? AND tag = ? AND piece = 0"
        lines = (self.execute(sql, (rules.id, entry.tag)).fetchone() for entry in entries)
        return {line[0] for line in lines if line}

    def find_tickets(self, rules: AdmissionRules, entries: Sequence[Entry]) -> dict[bytes, bool]:
        hashes = [entry.ticket for entry in entries if entry.ticket]
        tickets: dict[bytes, bool] = {}
        if rules.ticketed:
            sql = "SELECT hash, spent FROM ticket WHERE collection = ? AND hash = ?"
            lines = (self.execute(sql, (rules.id, ticket)).fetchone() for ticket in hashes)
            tickets = {ticket: bool(is_spent) for ticket, is_spent in filter(None, lines)}
        if rules.layout > 1 and hashes:
            tickets.update(dict.fromkeys(self._known(rules.id).tickets.known(hashes), True))
        return tickets

    def store_reports(self, rules: AdmissionRules, now: float, entries: Sequence[Entry]) -> None:
        self.note_time(now)
        if rules.layout > 1:
            self._append(rules, entries)
        else:
            self._insert_by_tag(rules, entries)
        sql = "UPDATE collection SET reports = reports + ?, until = ? WHERE id = ?"
        self.execute(sql, (len(entries), rules.until, rules.id))

    def _append(self, rules: AdmissionRules, entries: Sequence[Entry]) -> None:
        sql = f"INSERT INTO report_{rules.id} (tag, hidden) VALUES (?, ?)"  # noqa: S608 - a number
        self._connection.executemany(sql, [(entry.tag, entry.hidden) for entry in entries])
        sql = f"INSERT INTO admitted_{rules.id} (tag, ticket) VALUES (?, ?)"  # noqa: S608 - a number
        rows = [(entry.tag, entry.ticket) for entry in entries]
        self._connection.executemany(sql, rows)

    def _insert_by_tag(self, rules: AdmissionRules, entries: Sequence[Entry]) -> None:
        pieces = (
            (rules.id, entry.tag, place, piece)
            for entry in entries
            for place, piece in enumerate(split_into_pieces(entry.hidden))
        )
        self._connection.executemany("INSERT INTO report VALUES (?, ?, ?, ?)", pieces)
        if rules.ticketed and entries:
            hashes = sorted(entry.ticket for entry in entries)
            sql = "UPDATE ticket SET spent = 1 WHERE collection = ? AND hash = ? AND NOT spent"
            if self._connection.executemany(
                sql, ((rules.id, ticket) for ticket in hashes)
            ).rowcount != len(hashes):
                raise StoreError(
                    "a ticket was spent by another process at the same moment; nothing was stored."
                )

    def confirm(self, rules: AdmissionRules) -> None:
        pass  # what can be read is durable

    def read_page(
        self, rules: AdmissionRules, after: PageEnd | None, last: int | None = None
    ) -> ReportPage:
        lines: Iterable[tuple[PageEnd, bytes, bytes]]
        if rules.layout > 1:
            sql = (
                f"SELECT place, tag, hidden FROM report_{rules.id} "  # noqa: S608 - a number
                "WHERE place > ? AND place <= ? ORDER BY place"
            )
            lines = self.execute(sql, (after or 0, MAX_PLACE if last is None else last))
        else:
            sql = (
                "SELECT tag, hidden FROM report WHERE collection = ? AND tag > ? ORDER BY tag, "
                "piece"
            )
            groups = groupby(self.execute(sql, (rules.id, after or b"")), itemgetter(0))
            lines = ((tag, tag, b"".join(piece for _, piece in pieces)) for tag, pieces in groups)
        page = []
        size = 0
        for end, tag, hidden in lines:
            if not isinstance(tag, bytes) or not isinstance(hidden, bytes):
                raise DatabaseDamaged("the database is damaged: a stored report is not bytes.")
            page.append((tag, hidden))
            size += len(hidden)
            if size >= CHUNK:
                return ReportPage(page, end)
        return ReportPage(page, None)

    def count_places(self, rules: AdmissionRules) -> int:
        sql = f"SELECT coalesce(max(place), 0) FROM report_{rules.id}"  # noqa: S608 - a number
        return int(self.execute(sql).fetchone()[0])

    def delete_reports(self, rules: AdmissionRules) -> None:
        self._cache.pop(rules.id, None)
        self.execute(f"DROP TABLE IF EXISTS report_{rules.id}")
        self.execute(f"DROP TABLE IF EXISTS admitted_{rules.id}")
        for table in ("report", "ticket"):
            self.execute(f"DELETE FROM {table} WHERE collection = ?", (rules.id,))  # noqa: S608 - names of ours


class SqliteFile:
    """Database file; a missing or empty one is created with its tables."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.name = str(path)
        self._writer = threading.Lock()  # threads wait here instead of polling the file
        self._known: dict[int, KnownReports] = {}  # used under that lock only
        self._connections = ConnectionPool(self._connect, sqlite3.Connection.close)
        with self._database_errors():
            self._prepare()
            self._numbers = self._file_numbers()
            with self._connections.borrow():
                pass

    def _prepare(self) -> None:
        """Create the file, private to its owner, and apply all missing migrations."""
        check_leads_somewhere(self.path)
        try:
            os.close(os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_EXCL, PRIVATE_FILE))
            fsync_directory(self.path.parent)
        except FileExistsError:
            self._check_modes()
        except OSError as error:
            raise self._file_error(error) from None
        with contextlib.closing(
            sqlite3.connect(self.path, timeout=WAIT_SECONDS, isolation_level=None)
        ) as db:
            db.execute("PRAGMA trusted_schema = OFF")
            self._check_kind(db)
            db.execute(f"PRAGMA page_size = {PAGE_BYTES}")
            self._enable_wal(db)
            db.execute("PRAGMA synchronous = FULL")
            db.execute("BEGIN IMMEDIATE")
            version = self._check_kind(db)
            if not version:
                db.execute(f"PRAGMA application_id = {APPLICATION}")
            for migration in migrations("sqlite")[version:]:
                for statement in migration.statements():
                    db.execute(statement)
            if version < latest_version("sqlite"):
                db.execute("UPDATE format SET version = ?", (latest_version("sqlite"),))
                db.execute(f"PRAGMA user_version = {latest_version('sqlite')}")
            db.execute("COMMIT")

    def _check_modes(self) -> None:
        """Raise if any user may write the file or its journals, which are part of the database."""
        for path in (
            self.path,
            *(self.path.with_name(self.path.name + ending) for ending in JOURNALS),
        ):
            with contextlib.suppress(FileNotFoundError):
                mode = stat.S_IMODE(os.stat(path).st_mode)
                if os.name == "posix" and mode & 0o002:
                    raise StoreError(
                        f"any user of this machine can change the database {self.path} (the "
                        f"mode of {path.name} is {mode:03o}); run chmod 600 {path} if no one "
                        "did, otherwise begin with a new file."
                    ) from None

    def _check_kind(self, db: sqlite3.Connection) -> int:
        """Format version of the file, 0 if it is empty; raises if another program made it."""
        [tables] = db.execute("SELECT count(*) FROM sqlite_master").fetchone()
        [application] = db.execute("PRAGMA application_id").fetchone()
        [version] = db.execute("PRAGMA user_version").fetchone()
        if tables == application == 0:
            return 0
        if application != APPLICATION:
            raise StoreError(f"{self.path} is a database of another program; name another file.")
        latest = latest_version("sqlite")
        oldest = version
        if version > latest:  # a newer version may have left it usable
            with contextlib.suppress(sqlite3.OperationalError):
                [oldest] = db.execute("SELECT readable_from FROM format").fetchone()
        if version < 1 or oldest > latest:
            raise StoreError(
                f"{self.path} was made by another version of metricshuffle (its format is "
                f"{version}, not {latest})."
            )
        return int(version)

    def _enable_wal(self, db: sqlite3.Connection) -> None:
        """Switch to a write-ahead journal, with retries; some file systems do not allow it."""
        end = time.monotonic() + WAIT_SECONDS
        while True:
            try:
                [mode] = db.execute("PRAGMA journal_mode = WAL").fetchone()
                break
            except sqlite3.OperationalError as error:
                if (
                    error.sqlite_errorcode & PRIMARY_CODE_MASK != sqlite3.SQLITE_BUSY
                    or time.monotonic() > end
                ):
                    raise
            time.sleep(0.01)
        if mode != "wal":
            raise StoreError(
                f"{self.path} lies where several programs cannot share a file; put it on a "
                "disk of this machine."
            )

    def _connect(self) -> sqlite3.Connection:
        db = sqlite3.connect(
            f"{self.path.as_uri()}?mode=rw",
            timeout=WAIT_SECONDS,
            isolation_level=None,
            check_same_thread=False,
            uri=True,
        )
        with contextlib.ExitStack() as failed:
            failed.callback(db.close)
            [page_bytes] = db.execute("PRAGMA page_size").fetchone()  # 16384 in older files
            for setting in (*SETTINGS, f"wal_autocheckpoint = {JOURNAL_BYTES // page_bytes}"):
                db.execute(f"PRAGMA {setting}")
            failed.pop_all()
        return db

    def _file_numbers(self) -> tuple[int, int]:
        """Device and inode of the file."""
        try:
            file = os.stat(self.path)
        except OSError as error:
            raise self._file_error(error) from None
        return file.st_dev, file.st_ino

    def _file_error(self, error: OSError) -> StoreError:
        return StoreError(f"cannot use the database {self.path}: {error.strerror or error}.")

    @contextmanager
    def _database_errors(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            code = getattr(error, "sqlite_errorcode", None)
            cause = (
                CAUSES.get(code & PRIMARY_CODE_MASK, str(error)) if code is not None else str(error)
            )
            detail = f": {error}" if isinstance(error, sqlite3.IntegrityError) else ""
            raise StoreError(f"cannot use the database {self.path}: {cause}{detail}.") from None

    @contextmanager
    def reading(self) -> Iterator[SqliteTransaction]:
        """Read one snapshot."""
        with self._database_errors(), self._connections.borrow() as db:
            db.execute("BEGIN")
            try:
                yield SqliteTransaction(db)
            finally:
                if db.in_transaction:
                    db.execute("ROLLBACK")

    @contextmanager
    def writing(self) -> Iterator[SqliteTransaction]:
        with (
            self._database_errors(),
            self._writer,
            self._own_file(),
            self._connections.borrow() as db,
        ):
            db.execute("BEGIN IMMEDIATE")
            try:
                yield SqliteTransaction(db, self._known)
                db.execute("COMMIT")
            except BaseException:
                if db.in_transaction:
                    db.execute("ROLLBACK")
                raise

    @contextmanager
    def _own_file(self) -> Iterator[None]:
        """Raise if the file was replaced, before a connection is borrowed.

        Closing a borrowed connection would copy our journal into the wrong file, and delete it.
        """
        if self._file_numbers() != self._numbers:
            raise StoreError(
                f"the database {self.path} was replaced by another file while it was in "
                "use; start the service again."
            )
        yield

    def setting_warnings(self) -> list[str]:
        return []

    def awaits_standby(self) -> bool:
        return False

    def end_hung_edges(self) -> None:
        pass  # a file has no edges

    def forget_deleted(self) -> None:
        """Copy the journal into the file, and empty it."""
        with self._database_errors(), self._writer, self._connections.borrow() as db:
            [busy, *_] = db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
            if busy:
                raise StoreError(
                    f"the journal of {self.path} cannot be emptied while another program reads "
                    "it; trying again later."
                )

    def close(self) -> None:
        self._connections.close()
