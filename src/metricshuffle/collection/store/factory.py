"""Factory of stores, given the address of a database."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from urllib.parse import unquote, urlsplit

from metricshuffle.collection.store.guarded_clock import MAX_CLOCK_JUMP_SECONDS, SteadyTime
from metricshuffle.collection.store.records import StoreError
from metricshuffle.collection.store.sql_store import Store
from metricshuffle.collection.store.transaction import Database
from metricshuffle.errors import InputError

ADDRESS_FORMS = (
    "sqlite:///shuffler.db (a file here), sqlite:////srv/shuffler.db (a file anywhere) or "
    "postgresql://user@host/database"
)


def connect_store(
    url: str,
    clock: Callable[[], float] | None = None,
    steady: Callable[[], SteadyTime] | None = None,
    jump: float = MAX_CLOCK_JUMP_SECONDS,
) -> Store:
    """Open the database at an address, and create missing tables.

    The address may contain a password, so it is never repeated. `clock` and `steady` replace the
    real clocks in tests; a clock more than `jump` seconds ahead of the steady one is not accepted.
    """
    return Store(open_database(url), clock, steady, jump)


def open_database(url: str) -> Database:
    scheme = url.split(":", 1)[0].lower()
    if scheme == "sqlite":
        from metricshuffle.collection.store.sqlite_file import SqliteFile

        return SqliteFile(Path(_path_in(url)).absolute())
    if scheme in ("postgresql", "postgres"):
        from metricshuffle.collection.store.postgres_server import PostgresServer

        return PostgresServer(url)
    raise StoreError(
        f"the address of a database starts with sqlite:// or postgresql://: {ADDRESS_FORMS}."
    )


def database_file(url: str) -> Path | None:
    """File that an address names; None if it names a server."""
    return Path(_path_in(url)) if url.lower().startswith("sqlite:") else None


def _path_in(url: str) -> str:
    """Path in an address: relative after three slashes, absolute after four."""
    parts = urlsplit(url)
    path = unquote(parts.path)[1:]
    if (
        not url.lower().startswith("sqlite:///")
        or parts.netloc
        or parts.query
        or parts.fragment
        or not path
        or path.endswith("/")
    ):
        raise StoreError(f"this does not name a file: write {ADDRESS_FORMS}.")
    return path


def database_warnings(url: str) -> list[str]:
    """Return sentences about settings of a database that should be changed.

    Nothing is created in it.
    """
    if database_file(url) is not None:
        raise InputError("a SQLite file has no settings; name a PostgreSQL database.")
    from metricshuffle.collection.store.postgres_server import PostgresServer

    server = PostgresServer(url, check_format=False)
    try:
        return server.setting_warnings()
    finally:
        server.close()


def migrate_database(url: str, edge_role: str | None = None) -> tuple[int, int]:
    """Bring a database to the latest format; return its formats before and after.

    `edge_role`, a database user for edges, gets its rights.

    A file is migrated whenever it is opened. A server is migrated only here, because programs of
    the previous version may still use it.
    """
    if database_file(url) is not None:
        raise InputError("a SQLite file is migrated when serve opens it; there is nothing to do.")
    from metricshuffle.collection.store.postgres_server import PostgresServer

    server = PostgresServer(url, check_format=False)
    try:
        return server.migrate(edge_role)
    finally:
        server.close()
