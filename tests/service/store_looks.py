"""What a database really holds, asked past the store: one statement, so that every number is of the same moment."""

from __future__ import annotations

import os
import secrets
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import Any

from metricshuffle.collection.store.interface import Entry, Store
from metricshuffle.collection.terms import Collection

COUNTS = """
SELECT digest, (SELECT count(DISTINCT tag) FROM report WHERE collection = c.id), (SELECT count(*) FROM ticket WHERE collection = c.id),
    (SELECT count(*) FROM ticket WHERE collection = c.id AND spent), (SELECT count(*) FROM output WHERE collection = c.id), c.reports
FROM collection c
"""


@dataclass(frozen=True)
class Held:
    """Lines of each kind that a database holds of a collection, and how many reports it counted."""

    reports: int
    tickets: int
    spent: int
    chunks: int
    counted: int


class Refused(Exception):
    """The database itself says no."""


@contextmanager
def past_the_store(url: str) -> Iterator[Any]:
    """A plain connection of any other program."""
    if url.startswith("sqlite"):
        with closing(sqlite3.connect(url.removeprefix("sqlite:///"), timeout=30, isolation_level=None)) as connection:
            try:
                yield connection
            except sqlite3.IntegrityError as no:
                raise Refused(str(no)) from None
        return
    import psycopg

    with psycopg.connect(url, autocommit=True, options="-c search_path=metricshuffle") as connection:
        try:
            yield connection
        except psycopg.IntegrityError as no:
            raise Refused(str(no)) from None


def asked(url: str, question: str) -> list[tuple[Any, ...]]:
    with past_the_store(url) as connection:
        cursor = connection.execute(question)
        return list(cursor.fetchall()) if cursor.description else []


def changed(url: str, change: str) -> None:
    """Every collection changed past the store."""
    asked(url, f"UPDATE collection SET {change}")  # noqa: S608


def all_held(connection: Any) -> dict[str, Held]:
    """By the digest of the collection, in one snapshot."""
    return {digest: Held(*counts) for digest, *counts in connection.execute(COUNTS).fetchall()}


def held(url: str, collection: Collection) -> Held:
    with past_the_store(url) as connection:
        return all_held(connection)[collection.digest]


def own_key(collection: Collection, place: int = 0) -> str:
    return collection.terms.hops[place].key


def added(store: Store, collection: Collection, tickets: Sequence[bytes] = ()) -> str:
    """The digest of a collection that is opened in a store for its first hop."""
    assert store.add(collection, own_key(collection), tickets)
    return collection.digest


def entry(ticket: bytes = b"", size: int = 40) -> Entry:
    return Entry(secrets.token_bytes(16), ticket, os.urandom(size))


def fresh_entries(count: int, size: int = 40) -> list[Entry]:
    return [entry(size=size) for _ in range(count)]


def fresh_tickets(count: int) -> list[bytes]:
    return [secrets.token_bytes(16) for _ in range(count)]
