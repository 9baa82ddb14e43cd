"""The database that an address names."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from urllib.parse import unquote, urlsplit

from metricshuffle.service.clock import JUMP, Steady
from metricshuffle.service.store import Store, StoreError

FORMS = "sqlite:///shuffler.db (a file here), sqlite:////srv/shuffler.db (a file anywhere) or postgresql://user@host/database"


def store_of(url: str, clock: Callable[[], float] | None = None, steady: Callable[[], Steady] | None = None, jump: float = JUMP) -> Store:
    """Open it, with its tables made if they are missing. The address may hold a password, so it is never repeated.

    `clock` and `steady` replace the real clocks in tests; one that is more than `jump` seconds ahead of the other is not believed.
    """
    scheme = url.split(":", 1)[0].lower()
    if scheme == "sqlite":
        from metricshuffle.service.store_sqlite import SqliteStore

        return SqliteStore(_named(url), clock, steady, jump)
    if scheme in ("postgresql", "postgres"):
        from metricshuffle.service.store_postgres import PostgresStore

        return PostgresStore(url, clock, steady, jump)
    raise StoreError(f"the address of a database starts with sqlite:// or postgresql://: {FORMS}.")


def file_of(url: str) -> Path | None:
    """The file of an embedded database; None if the address names a server."""
    return Path(_named(url)) if url.lower().startswith("sqlite:") else None


def _named(url: str) -> str:
    """Three slashes name a file from the current folder, four one from the root."""
    parts = urlsplit(url)
    path = unquote(parts.path)[1:]
    if not url.lower().startswith("sqlite:///") or parts.netloc or parts.query or parts.fragment or not path or path.endswith("/"):
        raise StoreError(f"this names no file: write {FORMS}.")
    return path
