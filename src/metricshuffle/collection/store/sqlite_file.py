"""The file behind an embedded store: opened for what it is, and written in transactions that are durable when they are left.

Any number of threads and processes of one machine may use it. A connection is borrowed for one transaction.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
import stat
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from metricshuffle.collection.keys import PRIVATE_FILE, fsync_directory
from metricshuffle.collection.store.connection_pool import WAIT_SECONDS, ConnectionPool
from metricshuffle.collection.store.interface import StoreError
from metricshuffle.collection.store.sqlite_schema import APPLICATION, CHANGES, FIRST_VERSION, PAGE_BYTES, TABLES, VERSION
from metricshuffle.files import check_leads_somewhere

JOURNAL_PAGES = 4000
"""Pages in the journal before they are carried over into the file: 64 MB."""
SETTINGS = (
    "synchronous = FULL",
    "secure_delete = ON",
    "trusted_schema = OFF",
    "cell_size_check = ON",
    f"wal_autocheckpoint = {JOURNAL_PAGES}",
    "journal_size_limit = 0",
    "temp_store = MEMORY",
    "cache_size = -32768",
)
CAUSES = {
    sqlite3.SQLITE_FULL: "the disk is full; make room, and it goes on",
    sqlite3.SQLITE_READONLY: "it is read-only; make the file and its folder writable",
    sqlite3.SQLITE_BUSY: "another program holds it; see who has it open",
    sqlite3.SQLITE_LOCKED: "another program holds it; see who has it open",
    sqlite3.SQLITE_CANTOPEN: "it cannot be opened; does its folder exist, and may this user write to it?",
    sqlite3.SQLITE_NOTADB: "it is no database; name another file",
    sqlite3.SQLITE_CORRUPT: "it is damaged; stop the service and look at the disk",
    sqlite3.SQLITE_IOERR: "the disk cannot be read or written; look at it",
    sqlite3.SQLITE_CONSTRAINT: "the database refuses this step",
}
"""By the code of an error, without what is added to it in its higher bits."""
PRIMARY_CODE_MASK = 0xFF
JOURNALS = ("-wal", "-shm", "-journal")
"""Endings of the files that SQLite keeps beside a database."""


class SqliteFile:
    """A file of ours, with its tables made if it was missing or empty."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._writer = threading.Lock()  # (threads queue here, and do not poll the file)
        self._connections = ConnectionPool(self._connect, sqlite3.Connection.close)
        with self._database_errors():
            self._prepare()
            self._numbers = self._file_numbers()
            with self._connections.borrow():
                pass

    def _prepare(self) -> None:
        """Make what is missing, for the owner alone."""
        check_leads_somewhere(self.path)
        try:
            os.close(os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_EXCL, PRIVATE_FILE))
            fsync_directory(self.path.parent)
        except FileExistsError:
            self._check_modes()
        except OSError as error:
            raise self._file_error(error) from None
        with contextlib.closing(sqlite3.connect(self.path, timeout=WAIT_SECONDS, isolation_level=None)) as db:
            db.execute("PRAGMA trusted_schema = OFF")
            self._check_kind(db)
            db.execute(f"PRAGMA page_size = {PAGE_BYTES}")
            self._enable_wal(db)
            db.execute("PRAGMA synchronous = FULL")
            db.execute("BEGIN IMMEDIATE")
            version = self._check_kind(db)
            if not version:
                for statement in TABLES:
                    db.execute(statement)
                db.execute(f"PRAGMA application_id = {APPLICATION}")
                version = FIRST_VERSION
            for statement in (statement for change in CHANGES[version - FIRST_VERSION :] for statement in change):
                db.execute(statement)
            db.execute(f"PRAGMA user_version = {VERSION}")
            db.execute("COMMIT")

    def _check_modes(self) -> None:
        """Raise if everybody could change the file, or what lies beside it: SQLite reads both as one."""
        for path in (self.path, *(self.path.with_name(self.path.name + ending) for ending in JOURNALS)):
            with contextlib.suppress(FileNotFoundError):
                mode = stat.S_IMODE(os.stat(path).st_mode)
                if os.name == "posix" and mode & 0o002:
                    raise StoreError(
                        f"everybody on this machine can change the database {self.path} (the mode of {path.name} is {mode:03o}); "
                        f"chmod 600 {path} if nobody did, else begin with a new file."
                    ) from None

    def _check_kind(self, db: sqlite3.Connection) -> int:
        """The format of the file, 0 if it is still empty; raise if it is somebody else's, before anything in it is changed."""
        [tables], [application], [version] = (
            db.execute(question).fetchone()
            for question in ("SELECT count(*) FROM sqlite_master", "PRAGMA application_id", "PRAGMA user_version")
        )
        if tables == application == 0:
            return 0
        if application != APPLICATION:
            raise StoreError(f"{self.path} is a database of another program; name another file.")
        if not FIRST_VERSION <= version <= VERSION:
            raise StoreError(f"{self.path} was made by another version of metricshuffle (its format is {version}, not {VERSION}).")
        return int(version)

    def _enable_wal(self, db: sqlite3.Connection) -> None:
        """Write ahead. This change does not wait for other connections by itself, and some file systems do not allow it."""
        end = time.monotonic() + WAIT_SECONDS
        while True:
            try:
                [mode] = db.execute("PRAGMA journal_mode = WAL").fetchone()
                break
            except sqlite3.OperationalError as error:
                if error.sqlite_errorcode & PRIMARY_CODE_MASK != sqlite3.SQLITE_BUSY or time.monotonic() > end:
                    raise
            time.sleep(0.01)
        if mode != "wal":
            raise StoreError(f"{self.path} lies where several programs cannot share a file; put it on a disk of this machine.")

    def _connect(self) -> sqlite3.Connection:
        db = sqlite3.connect(f"{self.path.as_uri()}?mode=rw", timeout=WAIT_SECONDS, isolation_level=None, check_same_thread=False, uri=True)
        with contextlib.ExitStack() as failed:
            failed.callback(db.close)
            for setting in SETTINGS:
                db.execute(f"PRAGMA {setting}")
            failed.pop_all()
        return db

    def _file_numbers(self) -> tuple[int, int]:
        """Which file is behind the path, as the system numbers them."""
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
            cause = CAUSES.get(code & PRIMARY_CODE_MASK, str(error)) if code is not None else str(error)
            detail = f": {error}" if isinstance(error, sqlite3.IntegrityError) else ""
            raise StoreError(f"cannot use the database {self.path}: {cause}{detail}.") from None

    @contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        """One snapshot."""
        with self._database_errors(), self._connections.borrow() as db:
            db.execute("BEGIN")
            try:
                yield db
            finally:
                if db.in_transaction:
                    db.execute("ROLLBACK")

    @contextmanager
    def writing(self) -> Iterator[sqlite3.Connection]:
        """One transaction, durable when this is left, undone if anything is raised."""
        with self._database_errors(), self._writer, self._own_file(), self._connections.borrow() as db:
            db.execute("BEGIN IMMEDIATE")
            try:
                yield db
                db.execute("COMMIT")
            except BaseException:
                if db.in_transaction:
                    db.execute("ROLLBACK")
                raise

    @contextmanager
    def _own_file(self) -> Iterator[None]:
        """Looked at before a connection is taken: closing one at the wrong file would carry our journal over into that, and delete it."""
        if self._file_numbers() != self._numbers:
            raise StoreError(f"the database {self.path} was replaced by another file while it was in use; start the service again.")
        yield

    def empty_journal(self) -> None:
        """Carry everything over into the file, and leave nothing in the journal."""
        with self._database_errors(), self._writer, self._connections.borrow() as db:
            [busy, *_] = db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
            if busy:
                raise StoreError(f"the journal of {self.path} cannot be emptied while another program reads it; it is tried again.")

    def close(self) -> None:
        self._connections.close()
