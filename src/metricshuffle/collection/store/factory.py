"""The database that an address names."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from urllib.parse import unquote, urlsplit

from metricshuffle.collection.store.guarded_clock import MAX_CLOCK_JUMP_SECONDS, SteadyTime
from metricshuffle.collection.store.interface import Store, StoreError

ADDRESS_FORMS = "sqlite:///shuffler.db (a file here), sqlite:////srv/shuffler.db (a file anywhere) or postgresql://user@host/database"


def connect_store(
    url: str, clock: Callable[[], float] | None = None, steady: Callable[[], SteadyTime] | None = None, jump: float = MAX_CLOCK_JUMP_SECONDS
) -> Store:
    """Open it, with its tables made if they are missing. The address may hold a password, so it is never repeated.

    `clock` and `steady` replace the real clocks in tests; one that is more than `jump` seconds ahead of the other is not believed.
    """
    scheme = url.split(":", 1)[0].lower()
    if scheme == "sqlite":
        from metricshuffle.collection.store.sqlite_store import SqliteStore

        return SqliteStore(_path_in(url), clock, steady, jump)
    if scheme in ("postgresql", "postgres"):
        from metricshuffle.collection.store.postgres_store import PostgresStore

        return PostgresStore(url, clock, steady, jump)
    raise StoreError(f"the address of a database starts with sqlite:// or postgresql://: {ADDRESS_FORMS}.")


def database_file(url: str) -> Path | None:
    """The file of an embedded database; None if the address names a server."""
    return Path(_path_in(url)) if url.lower().startswith("sqlite:") else None


def _path_in(url: str) -> str:
    """Three slashes name a file from the current folder, four one from the root."""
    parts = urlsplit(url)
    path = unquote(parts.path)[1:]
    if not url.lower().startswith("sqlite:///") or parts.netloc or parts.query or parts.fragment or not path or path.endswith("/"):
        raise StoreError(f"this names no file: write {ADDRESS_FORMS}.")
    return path
