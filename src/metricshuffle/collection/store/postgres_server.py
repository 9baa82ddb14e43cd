"""PostgreSQL store: connections with fixed settings, transactions, and errors as sentences.

The row of a collection is locked first, so that its writers queue and no closing time is missed
while many reports arrive. The holder of the lock sees every report and ticket committed before,
decides, and stores in one statement. A connection is borrowed for one transaction; a lost one is
replaced at the next call. No part of an address is ever repeated: it may contain a password.
"""

from __future__ import annotations

import contextlib
import re
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Literal
from uuid import UUID

from metricshuffle.collection.shuffler.admission import HOUR, AdmissionRules
from metricshuffle.collection.store.connection_pool import WAIT_SECONDS, ConnectionPool
from metricshuffle.collection.store.edge_rights import grant_edge_rights
from metricshuffle.collection.store.guarded_clock import (
    LONG_DOWNTIME_SECONDS,
    Anchor,
    ClockReading,
    GuardedClock,
)
from metricshuffle.collection.store.postgres_schema import LOCK, SCHEMA, collection_tables
from metricshuffle.collection.store.records import CHUNK, Entry, PartsHeld, StoreError
from metricshuffle.collection.store.schema_versions import latest_version, migrations
from metricshuffle.collection.store.server_settings import NAMES, SETTINGS_QUERY, setting_warnings
from metricshuffle.collection.store.transaction import (
    PageEnd,
    ReportPage,
    SqlCursor,
    Transaction,
)
from metricshuffle.errors import require

if TYPE_CHECKING:
    import psycopg

SETTINGS = {
    "search_path": SCHEMA,
    "synchronous_commit": "on",
    # After waiting for a row, a transaction sees what was committed meanwhile.
    "default_transaction_isolation": "read committed",
    "statement_timeout": "0",
    "lock_timeout": f"{WAIT_SECONDS:.0f}s",
    "idle_in_transaction_session_timeout": "10min",
    "jit": "off",
    # Tables are small when statements are planned and large when they run; every query here uses an
    # index.
    "enable_seqscan": "off",
    "enable_hashjoin": "off",
    "enable_mergejoin": "off",
}
DatabaseRole = Literal["all", "edge", "hub", "edge, loss accepted", "hub, loss accepted"]
BEGIN = "BEGIN ISOLATION LEVEL READ COMMITTED; SET LOCAL synchronous_commit = on"
"""Stated in every transaction, so that no default of a role or pooler can override it."""
EDGE_NAME = "metricshuffle edge"
EDGE_SETTINGS = {
    "statement_timeout": "5s",
    "idle_in_transaction_session_timeout": "5s",
    "lock_timeout": "5s",
}
"""Time limits in the transactions of an edge, so that a hanging edge delays closing no longer."""
NO_STANDBY = (
    "synchronous_standby_names of this PostgreSQL server is empty: what it acknowledges is lost "
    "with its disk. Name a synchronous standby, or accept the loss with serve --accept-loss."
)
ANY_STANDBY = (
    "synchronous_standby_names of this PostgreSQL server contains *, so that a backup program that "
    "copies the server counts as its standby: what is acknowledged meanwhile is lost with its "
    "disk. Name the standbys (their cluster_name), or accept the loss with serve --accept-loss."
)
CONNECTION_DEFAULTS = {
    "connect_timeout": "10",
    "keepalives_idle": "30",
    "tcp_user_timeout": "60000",
    "application_name": "metricshuffle",
}
"""Connection parameters that detect a vanished server, unless the address has others."""
CONNECTION_CAUSES = {
    r'database ".*" does not exist': (
        "it has no database of that name; create it, or correct the address"
    ),
    r"authentication failed|role .* does not exist|no password|pg_hba": (
        "it refuses this user or password; correct the address"
    ),
    r"too many|connection slots": "it has too many connections; end some, or allow more",
    r"starting up|shutting down|recovery": "it is being started or shut down; it is tried again",
    r"translate host|resolve|Name or service|nodename": (
        "no machine has that name; correct the address"
    ),
    r"refused|No such file|unreachable|timeout|timed out": (
        "it does not answer; see that it runs, and that the address is right"
    ),
}
"""Causes by the message of libpq, which is not shown because it may contain the password."""
CAUSES = {
    "53100": "its disk is full; make room to continue",
    "25006": "it is read-only; name the server that may be written to",
    "42501": (
        "this user may not do that; let it create a schema, name another user, or give an edge's "
        "user its rights with metricshuffle migrate --edge-role"
    ),
    "55P03": "another program holds a lock; see who is connected",
    "23": "the database refuses this step",
    "57": "it is being shut down or restarted; it is tried again",
    "42P01": "the reports were deleted while they were read",
    "08": "the connection was lost; the next call opens another one",
}
"""Causes by error code, or by its class."""


CLOSING_SECONDS = 5.0
"""Seconds that closing waits for the transaction of an edge before it ends that transaction."""
PAGE_REPORTS = 256
"""Number of reports of a page of layout 1."""
TIME_QUERY = """
SELECT coalesce(%s, extract(epoch FROM clock_timestamp()))::float8, greatest(latest, (SELECT max(seen) FROM collection)), corrections,
    anchor.wall, anchor.steady
FROM clock LEFT JOIN anchor ON boot = %s
"""  # noqa: E501
STORE_QUERY = """
WITH stored AS (
    INSERT INTO report SELECT %(id)s, given.* FROM unnest(%(tags)b::bytea[], %(hidden)b::bytea[]) AS given RETURNING 1
), spent AS (
    UPDATE ticket SET spent = true WHERE collection = %(id)s AND hash = ANY(%(tickets)b::bytea[]) AND NOT spent RETURNING 1
)
UPDATE collection SET reports = reports + %(count)s, until = %(until)s, seen = %(now)s
WHERE id = %(id)s AND (SELECT count(*) FROM stored) = %(count)s AND (SELECT count(*) FROM spent) = cardinality(%(tickets)b::bytea[])
"""  # noqa: E501
APPEND_QUERY = """
WITH given AS (
    SELECT * FROM unnest(%(names)b::uuid[], %(tags)b::uuid[], %(hidden)b::bytea[]) AS given (name, tag, hidden)
), fresh AS (
    INSERT INTO admitted_{id} SELECT name, tag FROM given ORDER BY name ON CONFLICT DO NOTHING RETURNING 1
), kept AS (
    INSERT INTO report_{id} (name, hidden) SELECT tag, hidden FROM given RETURNING 1
)
UPDATE collection SET reports = reports + %(count)s, until = %(until)s, seen = %(now)s
WHERE id = %(id)s AND (SELECT count(*) FROM fresh) = %(count)s AND (SELECT count(*) FROM kept) = %(count)s
"""  # noqa: E501
SPEND_QUERY = """
WITH given AS (
    SELECT * FROM unnest(%(names)b::uuid[], %(tags)b::uuid[], %(hidden)b::bytea[]) AS given (name, tag, hidden)
), fresh AS (
    UPDATE admitted_{id} AS ticket SET tag = given.tag FROM given WHERE ticket.name = given.name AND ticket.tag IS NULL RETURNING 1
), kept AS (
    INSERT INTO report_{id} (name, hidden) SELECT tag, hidden FROM given RETURNING 1
)
UPDATE collection SET reports = reports + %(count)s, until = %(until)s, seen = %(now)s
WHERE id = %(id)s AND (SELECT count(*) FROM fresh) = %(count)s AND (SELECT count(*) FROM kept) = %(count)s
"""  # noqa: E501


class PostgresTransaction(Transaction):
    """Transaction on a server. Times are stored with each collection, which its writers lock."""

    row_lock = "FOR UPDATE"
    noted_time = "seen"

    def __init__(self, connection: psycopg.Connection) -> None:
        self._connection = connection

    def execute(self, sql: str, values: Sequence[object] = ()) -> SqlCursor:
        marks = iter("%b" if isinstance(value, bytes | list) else "%s" for value in values)
        return self.run(re.sub(r"\?", lambda _: next(marks), sql), values or None)

    def run_script(self, sql: str) -> None:
        """Run several statements, without values."""
        self._connection.execute(sql.encode())

    def run(self, sql: str, values: Sequence[object] | Mapping[str, object] | None) -> SqlCursor:
        cursor: SqlCursor = self._connection.execute(sql.encode(), values, binary=True)
        return cursor

    def lock_store(self) -> None:
        self.execute("SELECT pg_advisory_xact_lock(?)", (LOCK,))

    def lock_collections(self) -> None:
        self.lock_store()
        self.execute("SELECT FROM collection ORDER BY id FOR UPDATE")

    def read_clock(self, clock: GuardedClock) -> ClockReading:
        steady = clock.read_steady()
        values = (clock.wall and clock.wall(), steady and steady.boot)
        wall, stored, corrections, *anchor = self.run(TIME_QUERY, values).fetchone()
        own = time.time() if clock.wall is None else None
        stored_anchor = None if anchor[0] is None else Anchor(*anchor)
        return clock.reading(wall, steady, stored_anchor, stored, corrections, own)

    def note_time(self, now: float) -> dict[str, object]:
        return {"seen": now}

    def correct_time(self, wall: float) -> None:
        self.execute(
            "UPDATE clock SET latest = least(latest, ?), corrections = corrections + 1", (wall,)
        )
        self.execute("UPDATE collection SET seen = ? WHERE seen > ?", (wall, wall))

    def round_times(self, rules: AdmissionRules, now: float) -> None:
        hours = (
            f"{name} = floor({name} / {HOUR}) * {HOUR}" for name in ("sealed_at", "released_at")
        )
        self.execute("UPDATE clock SET latest = greatest(latest, ?)", (now,))
        self.execute(
            f"UPDATE collection SET seen = 0, {', '.join(hours)} WHERE id = ?",  # noqa: S608
            (rules.id,),
        )

    def delete_anchors(self, boot: str, wall: float) -> None:
        self.execute(
            "DELETE FROM anchor WHERE boot = ? OR wall < ?", (boot, wall - LONG_DOWNTIME_SECONDS)
        )

    def add_tables(self, number: int, hashes: Iterable[bytes]) -> None:
        self.run_script(collection_tables(number))
        with (
            self._connection.cursor() as cursor,
            cursor.copy(f"COPY admitted_{number} (name) FROM STDIN (FORMAT BINARY)") as copy,
        ):
            copy.set_types(["uuid"])
            for ticket in hashes:
                copy.write_row((UUID(bytes=ticket),))

    def find_reports(self, rules: AdmissionRules, entries: Sequence[Entry]) -> set[bytes]:
        tags = [entry.tag for entry in entries]
        if rules.layout > 1:
            return {tag for _, tag in self._admitted(rules, entries) if tag is not None}
        sql = "SELECT tag FROM report WHERE collection = ? AND tag = ANY(?::bytea[])"
        return {tag for (tag,) in self.execute(sql, (rules.id, tags)).fetchall()}

    def find_tickets(self, rules: AdmissionRules, entries: Sequence[Entry]) -> dict[bytes, bool]:
        if rules.layout > 1:
            admitted = self._admitted(rules, [entry for entry in entries if entry.ticket])
            return {name: tag is not None for name, tag in admitted}
        sql = "SELECT hash, spent FROM ticket WHERE collection = ? AND hash = ANY(?::bytea[])"
        hashes = [entry.ticket for entry in entries]
        return dict(self.execute(sql, (rules.id, hashes)).fetchall())

    def _admitted(
        self, rules: AdmissionRules, entries: Sequence[Entry]
    ) -> list[tuple[bytes, bytes | None]]:
        """Return the stored rows (name, tag) with the names of these reports or tickets."""
        if not entries:
            return []
        names = [rules.name_of(entry) for entry in entries]
        sql = f"SELECT name, tag FROM admitted_{rules.id} WHERE name = ANY(%b::uuid[])"  # noqa: S608 - a number
        rows = self.run(sql, (_uuids(name for name in names if name),)).fetchall()
        return [(name.bytes, tag and tag.bytes) for name, tag in rows]

    def store_reports(self, rules: AdmissionRules, now: float, entries: Sequence[Entry]) -> None:
        values: dict[str, object] = {
            "id": rules.id,
            "count": len(entries),
            "until": rules.until,
            "now": now,
            "hidden": [entry.hidden for entry in entries],
        }
        if rules.layout > 1:
            values["names"] = _uuids(rules.name_of(entry) for entry in entries)
            values["tags"] = _uuids(entry.tag for entry in entries)
            sql = (SPEND_QUERY if rules.ticketed else APPEND_QUERY).format(id=rules.id)
        else:
            values["tags"] = [entry.tag for entry in entries]
            values["tickets"] = sorted(entry.ticket for entry in entries) if rules.ticketed else []
            sql = STORE_QUERY
        if self.run(sql, values).rowcount != 1:
            raise StoreError(
                "a report or a ticket was written by another process at the same moment; "
                "nothing was stored."
            )

    def confirm(self, rules: AdmissionRules) -> None:
        self.execute("UPDATE collection SET seen = seen WHERE id = ?", (rules.id,))

    def read_page(
        self, rules: AdmissionRules, after: PageEnd | None, last: int | None = None
    ) -> ReportPage:
        if rules.layout > 1:
            return self._read_blocks(rules, int(after or 0), last)
        sql = "SELECT tag, hidden FROM report WHERE collection = ? AND tag > ? ORDER BY tag LIMIT ?"
        values = (rules.id, after or b"", PAGE_REPORTS)
        page = [(tag, hidden) for tag, hidden in self.execute(sql, values).fetchall()]
        return ReportPage(page, page[-1][0] if len(page) == PAGE_REPORTS else None)

    def count_places(self, rules: AdmissionRules) -> int:
        return self._count_blocks(rules)[0]

    def _count_blocks(self, rules: AdmissionRules) -> tuple[int, int]:
        """Number of blocks of the heap, and its bytes with those of large values."""
        sql = (
            "SELECT pg_relation_size(?::regclass) / current_setting('block_size')::bigint, "
            "pg_table_size(?::regclass)"
        )
        table = f"report_{rules.id}"
        [blocks, size] = self.execute(sql, (table, table)).fetchone()
        return int(blocks), int(size)

    def _read_blocks(self, rules: AdmissionRules, first: int, last: int | None) -> ReportPage:
        """Read the reports in a range of blocks of the heap, which has no index.

        The heap is no longer written, so its blocks do not change.
        """
        blocks, size = self._count_blocks(rules)
        step = max(1, CHUNK * blocks // max(1, size))
        blocks = blocks if last is None else min(blocks, last)
        end = min(blocks, first + step)
        sql = (
            f"SELECT lease, name, hidden FROM report_{rules.id} "  # noqa: S608 - numbers
            f"WHERE ctid >= '({first},0)'::tid AND ctid < '({end},0)'::tid"
        )
        page = [
            (label_of(lease, name), hidden) for lease, name, hidden in self.execute(sql).fetchall()
        ]
        return ReportPage(page, end if end < blocks else None)

    def estimate_parts(self, rules: AdmissionRules) -> AdmissionRules:
        sql = "SELECT coalesce(sum(reports - counted), 0)::bigint FROM part WHERE collection = ?"
        [added] = self.execute(sql, (rules.id,)).fetchone()
        return replace(rules, reports=rules.reports + added)

    def close_parts(self, rules: AdmissionRules) -> tuple[AdmissionRules, int]:
        from psycopg.errors import LockNotAvailable

        self.execute(f"SET LOCAL lock_timeout = '{CLOSING_SECONDS:.0f}s'")
        sql = "SELECT reports - counted FROM part WHERE collection = ? ORDER BY lease FOR UPDATE"
        try:
            counts = [count for (count,) in self.execute(sql, (rules.id,)).fetchall()]
        except LockNotAvailable:
            raise PartsHeld(
                "an edge has held its part for too long; its transaction is ended, and closing "
                "is tried again."
            ) from None
        if not counts:
            return rules, 0
        sql = (
            "UPDATE part SET closed = true, counted = reports, room = reports WHERE collection = ?"
        )
        self.execute(sql, (rules.id,))
        sql = "UPDATE collection SET reports = reports + ?, reserved = 0 WHERE id = ?"
        self.execute(sql, (sum(counts), rules.id))
        return replace(rules, reports=rules.reports + sum(counts)), len(counts)

    def open_parts(self, rules: AdmissionRules) -> None:
        sql = "UPDATE part SET closed = false, until = ? WHERE collection = ? AND NOT ended"
        self.execute(sql, (rules.until, rules.id))

    def delete_reports(self, rules: AdmissionRules) -> None:
        if rules.layout > 1:
            self.execute(f"DROP TABLE IF EXISTS report_{rules.id}, admitted_{rules.id}")
            return
        for table in ("report", "ticket"):
            self.execute(f"DELETE FROM {table} WHERE collection = ?", (rules.id,))  # noqa: S608 - names of ours


def label_of(lease: UUID | None, name: UUID) -> bytes:
    """Label of a report: its name, after the lease of its keys if there is one."""
    return name.bytes if lease is None else lease.bytes + name.bytes


def _uuids(values: Iterable[bytes]) -> list[UUID]:
    return [UUID(bytes=value) for value in values]


class PostgresServer:
    """Database on a server; the schema is created if it is missing."""

    name = "the database"

    def __init__(self, url: str, *, check_format: bool = True, role: DatabaseRole = "all") -> None:
        """Connect.

        An edge and a hub need a synchronous standby for everything they acknowledge, unless the
        role says that a loss is accepted.
        """
        self._role = role
        self._psycopg = require("psycopg", "postgres")
        self._parameters = self._read(url)
        begin = "; ".join([BEGIN, *self._settings("SET LOCAL")]) if self._is_edge else BEGIN
        self._connections = ConnectionPool(
            self._connect, lambda db: db.close(), lambda db: db.execute(begin)
        )
        if check_format:
            with contextlib.ExitStack() as failed:
                failed.callback(self.close)
                self._prepare()
                failed.pop_all()

    def _read(self, url: str) -> dict[str, str | int | None]:
        from psycopg.conninfo import conninfo_to_dict

        try:
            name = {"application_name": EDGE_NAME} if self._is_edge else {}
            return {**CONNECTION_DEFAULTS, **name, **conninfo_to_dict(url)}
        except self._psycopg.Error:
            raise StoreError(
                "this is not the address of a PostgreSQL database: write "
                "postgresql://user:password@host:5432/database, with %40 for an @ in a "
                "password and %2F for a slash."
            ) from None

    @property
    def _is_edge(self) -> bool:
        return self._role.startswith("edge")

    def _settings(self, command: str) -> list[str]:
        """Statements that make the settings of this role."""
        settings = SETTINGS | (EDGE_SETTINGS if self._is_edge else {})
        return [f"{command} {name} = '{value}'" for name, value in settings.items()]

    def _connect(self) -> psycopg.Connection:
        try:
            db = self._psycopg.connect(**self._parameters, autocommit=True)
        except self._psycopg.Error as error:
            causes = (
                cause for words, cause in CONNECTION_CAUSES.items() if re.search(words, str(error))
            )
            cause = next(
                causes, "see that it runs, and that address, user, password and database are right"
            )
            raise StoreError(f"cannot reach the PostgreSQL server: {cause}.") from None
        with contextlib.ExitStack() as failed:
            failed.callback(db.close)
            if self._is_edge:  # a pooler may give each transaction another session
                db.prepare_threshold = None
            else:
                db.execute("; ".join(self._settings("SET")))
            failed.pop_all()
        return db

    def _prepare(self) -> None:
        """Create tables in an empty database; raises if it is not durable, or not migrated."""
        if self._version() == 0:
            self.migrate()
        latest = latest_version("postgres")
        if self._version() < latest:
            raise StoreError(
                "this database was made by an older version of metricshuffle (its format is "
                f"{self._version()}, not {latest}); run metricshuffle migrate --store with its "
                "address, then start again."
            )

    def _version(self) -> int:
        """Format version of the database, 0 if it is empty; raises if it cannot be used."""
        with self.writing() as db:
            if db.execute("SHOW fsync").fetchone() != ("on",):
                raise StoreError(
                    "this PostgreSQL server has fsync switched off: what it acknowledges is "
                    "lost in a power failure; switch it on."
                )
            sql = "SELECT to_regnamespace(?) IS NOT NULL, to_regclass(?) IS NOT NULL"
            [has_schema, has_format] = db.execute(sql, (SCHEMA, f"{SCHEMA}.format")).fetchone()
            if not has_schema:
                return 0
            if not has_format:
                raise StoreError(
                    f"the schema {SCHEMA!r} in this database belongs to another program; "
                    "name another database."
                )
            latest = latest_version("postgres")
            # In the first formats there is no column `readable_from`.
            sql = "SELECT version, to_jsonb(format) ->> 'readable_from' FROM format"
            [version, readable_from] = db.execute(sql).fetchone()
            oldest = int(readable_from or version) if version > latest else version
            if version < 1 or oldest > latest:
                raise StoreError(
                    "this database was made by another version of metricshuffle (its "
                    f"format is {version}, not {latest})."
                )
            return int(version)

    def migrate(self, edge_role: str | None = None) -> tuple[int, int]:
        """Bring the schema to the latest version; return the versions before and after.

        `edge_role`, a database user for edges, gets its rights.
        """
        self._version()
        with self.writing() as db:
            db.lock_store()
            # Unlike to_regnamespace, this query sees a schema made while the lock was awaited.
            sql = "SELECT EXISTS (SELECT FROM pg_namespace WHERE nspname = ?)"
            [has_schema] = db.execute(sql, (SCHEMA,)).fetchone()
            before = 0
            if has_schema:
                [before] = db.execute("SELECT version FROM format").fetchone()
            steps = migrations("postgres")[before:]
            for migration in steps:
                db.run_script(migration.sql)
            if steps:
                db.execute("UPDATE format SET version = ?", (steps[-1].version,))
            if edge_role is not None:
                grant_edge_rights(db, edge_role)
        return before, max(before, latest_version("postgres"))

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
    def writing(self) -> Iterator[PostgresTransaction]:
        """Run one transaction; after an exception its connection is closed too.

        A warning at the commit says that the wait for a standby was cancelled: the transaction is
        committed on this server, but may be lost with it. So the commit is not acknowledged.
        """
        with self._database_errors(), self._connections.borrow() as db:
            yield PostgresTransaction(db)
            if self._role in ("edge", "hub"):
                self._check_standby_names(db)
            warnings: list[object] = []
            db.add_notice_handler(warnings.append)
            try:
                db.execute("COMMIT")
            finally:
                db.remove_notice_handler(warnings.append)
            if warnings:
                raise StoreError(
                    "the database did not wait until a standby had it; nothing is acknowledged."
                )

    @staticmethod
    def _check_standby_names(db: psycopg.Connection) -> None:
        """Raise unless commits wait for a standby that is named."""
        row = db.execute("SELECT current_setting('synchronous_standby_names')").fetchone()
        names = "" if row is None else str(row[0])
        if not names:
            raise StoreError(NO_STANDBY)
        if "*" in names:
            raise StoreError(ANY_STANDBY)

    @contextmanager
    def reading(self) -> Iterator[PostgresTransaction]:
        with self._database_errors(), self._connections.borrow() as db:
            yield PostgresTransaction(db)
            db.execute("COMMIT")

    def end_hung_edges(self) -> None:
        sql = (
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
            "WHERE (application_name = %s OR usename IN (SELECT name FROM edge_role)) "
            "AND datname = current_database() AND pid <> pg_backend_pid() "
            "AND clock_timestamp() - xact_start > make_interval(secs => %s)"
        )
        with self._database_errors(), self._connections.borrow() as db:
            db.execute(sql, (EDGE_NAME, CLOSING_SECONDS - 1))
            db.execute("COMMIT")

    def setting_warnings(self) -> list[str]:
        with self.reading() as db:
            settings: dict[str, str] = dict(db.execute(SETTINGS_QUERY, (list(NAMES),)).fetchall())
        return setting_warnings(settings)

    def awaits_standby(self) -> bool:
        sql = (
            "SELECT EXISTS (SELECT FROM pg_stat_activity WHERE wait_event = 'SyncRep' "
            "AND usename = current_user AND datname = current_database())"
        )
        with self.reading() as db:
            return bool(db.execute(sql).fetchone()[0])

    def forget_deleted(self) -> None:
        """Vacuum the tables, and force a checkpoint if this user may do that."""
        with self._database_errors(), self._connections.borrow() as db:
            db.execute("COMMIT")
            # The tables of layout 2 were dropped, and their files with them.
            for table in ("report", "ticket", "output", "collection"):
                db.execute(f"VACUUM {table}")
            # Without that right, the server makes a checkpoint by itself within minutes.
            with contextlib.suppress(self._psycopg.errors.InsufficientPrivilege):
                db.execute("CHECKPOINT")

    def close(self) -> None:
        self._connections.close()
