"""The server behind a store in PostgreSQL: connections with the settings that are counted on, transactions, and errors in words.

A connection is borrowed for one transaction; one that was lost is replaced at the next call. An address may hold a password, so nothing of
it is ever repeated.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from metricshuffle.collection.store.connection_pool import WAIT_SECONDS, ConnectionPool
from metricshuffle.collection.store.interface import StoreError
from metricshuffle.collection.store.postgres_schema import CHANGES, FIRST_VERSION, LOCK, SCHEMA, TABLES, VERSION
from metricshuffle.errors import require

SETTINGS = {
    "search_path": SCHEMA,
    "synchronous_commit": "on",
    "default_transaction_isolation": "read committed",  # (whoever waited for a row sees what was committed meanwhile)
    "statement_timeout": "0",
    "lock_timeout": f"{WAIT_SECONDS:.0f}s",
    "idle_in_transaction_session_timeout": "10min",
    "jit": "off",
    # Tables are small when statements are planned and large when they run; everything here is found by an index.
    "enable_seqscan": "off",
    "enable_hashjoin": "off",
    "enable_mergejoin": "off",
}
CONNECTION_DEFAULTS = {"connect_timeout": "10", "keepalives_idle": "30", "tcp_user_timeout": "60000", "application_name": "metricshuffle"}
"""A server that is gone without a word is noticed; what the address says itself goes first."""
CONNECTION_CAUSES = {
    r'database ".*" does not exist': "it has no database of that name; create it, or correct the address",
    r"authentication failed|role .* does not exist|no password|pg_hba": "it refuses this user or password; correct the address",
    r"too many|connection slots": "it has too many connections; end some, or allow more",
    r"starting up|shutting down|recovery": "it is being started or shut down; it is tried again",
    r"translate host|resolve|Name or service|nodename": "no machine has that name; correct the address",
    r"refused|No such file|unreachable|timeout|timed out": "it does not answer; see that it runs, and that the address is right",
}
"""By what libpq says when there is no connection; its words may repeat parts of the address, with a password, so they are not told."""
CAUSES = {
    "53100": "its disk is full; make room, and it goes on",
    "25006": "it is read-only; name the server that may be written to",
    "42501": "this user may not do that; let it create a schema, or name another user",
    "55P03": "another program holds what is needed; see who is connected",
    "23": "the database refuses this step",
    "57": "it is being shut down or restarted; it is tried again",
    "08": "the connection was lost; it is made anew at the next call",
}
"""By the code of an error, or its class."""


class PostgresServer:
    """A database with our schema in it, which is made if it is missing."""

    def __init__(self, url: str) -> None:
        self._psycopg: Any = require("psycopg", "postgres")
        self._parameters = self._read(url)
        self._connections: ConnectionPool[Any] = ConnectionPool(self._connect, lambda db: db.close(), lambda db: db.execute("BEGIN"))
        self._prepare()

    def _read(self, url: str) -> dict[str, Any]:
        from psycopg.conninfo import conninfo_to_dict

        try:
            return {**CONNECTION_DEFAULTS, **conninfo_to_dict(url)}
        except self._psycopg.Error:
            raise StoreError(
                "this is no address of a PostgreSQL database: write postgresql://user:password@host:5432/database, with %40 for an @ in a "
                "password and %2F for a slash."
            ) from None

    def _connect(self) -> Any:
        try:
            db = self._psycopg.connect(**self._parameters, autocommit=True)
        except self._psycopg.Error as error:
            causes = (cause for words, cause in CONNECTION_CAUSES.items() if re.search(words, str(error)))
            cause = next(causes, "see that it runs, and that address, user, password and database are right")
            raise StoreError(f"cannot reach the PostgreSQL server: {cause}.") from None
        with contextlib.ExitStack() as failed:
            failed.callback(db.close)
            db.execute("; ".join(f"SET {name} = '{value}'" for name, value in SETTINGS.items()))
            failed.pop_all()
        return db

    def _prepare(self) -> None:
        """Make the tables if they are missing, and refuse a server on which nothing is durable."""
        with self.transaction() as db:
            db.execute("SELECT pg_advisory_xact_lock(%s)", (LOCK,))
            if db.execute("SHOW fsync").fetchone() != ("on",):
                raise StoreError(
                    "this PostgreSQL server has fsync switched off: what it acknowledges is lost with the power; switch it on."
                )
            [schema, format_table] = db.execute("SELECT to_regnamespace(%s), to_regclass(%s)", (SCHEMA, f"{SCHEMA}.format")).fetchone()
            if schema is None:
                db.execute(TABLES)
            elif format_table is None:
                raise StoreError(f"the schema {SCHEMA!r} in this database belongs to another program; name another database.")
            [version] = db.execute("SELECT version FROM format").fetchone()
            if not FIRST_VERSION <= version <= VERSION:
                raise StoreError(f"this database was made by another version of metricshuffle (its format is {version}, not {VERSION}).")
            for change in CHANGES[version - FIRST_VERSION :]:
                db.execute(change)
            if version < VERSION:
                db.execute("UPDATE format SET version = %s", (VERSION,))

    @contextmanager
    def _database_errors(self) -> Iterator[None]:
        try:
            yield
        except self._psycopg.Error as error:
            state = error.sqlstate or "08"
            cause = CAUSES.get(state) or CAUSES.get(state[:2]) or error.diag.message_primary
            detail = f": {error.diag.message_primary}" if state.startswith("23") else ""
            raise StoreError(f"cannot use the PostgreSQL database: {cause}{detail}.") from None

    @contextmanager
    def transaction(self) -> Iterator[Any]:
        """One transaction, durable when this is left; undone, with its connection, if anything is raised."""
        with self._database_errors(), self._connections.borrow() as db:
            yield db
            db.execute("COMMIT")

    def vacuum(self, *tables: str) -> None:
        """Let go of what was deleted from tables, and of the journal behind it as far as this user may ask for that."""
        with self._database_errors(), self._connections.borrow() as db:
            db.execute("COMMIT")
            for table in tables:
                db.execute(f"VACUUM {table}")
            with contextlib.suppress(self._psycopg.errors.InsufficientPrivilege):  # (the server does it by itself, within minutes)
                db.execute("CHECKPOINT")

    def close(self) -> None:
        self._connections.close()
