"""Contents of a database, read past the store in one statement."""

from __future__ import annotations

import os
import secrets
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import Any

from metricshuffle.collection.store.records import Entry
from metricshuffle.collection.store.sql_store import Store
from metricshuffle.collection.terms import Collection

COUNTS = {
    "sqlite": """
SELECT digest, (SELECT count(DISTINCT tag) FROM report WHERE collection = c.id) + {reports},
    (SELECT count(*) FROM ticket WHERE collection = c.id),
    (SELECT count(*) FROM ticket WHERE collection = c.id AND spent) + {spent},
    (SELECT count(*) FROM output WHERE collection = c.id), c.reports
FROM collection c WHERE id = {id}
""",
    "postgresql": """
SELECT digest, (SELECT count(DISTINCT tag) FROM report WHERE collection = c.id) + {reports},
    (SELECT count(*) FROM ticket WHERE collection = c.id) + {tickets},
    (SELECT count(*) FROM ticket WHERE collection = c.id AND spent) + {spent},
    (SELECT count(*) FROM output WHERE collection = c.id), c.reports
FROM collection c WHERE id = {id}
""",
}
"""Counts of both layouts, by kind of database."""
TABLE_COUNTS = {
    "sqlite": {
        "reports": "(SELECT count(DISTINCT tag) FROM report_{id})",
        "spent": "(SELECT count(*) FROM admitted_{id} WHERE ticket <> x'')",
    },
    "postgresql": {
        "reports": "(SELECT count(DISTINCT name) FROM report_{id})",
        "tickets": "(SELECT count(*) FROM admitted_{id} WHERE c.ticketed)",
        "spent": "(SELECT count(*) FROM admitted_{id} WHERE tag <> name)",
    },
}
"""Counts in the tables of one collection of layout 2."""
TO_FORMAT_4 = {
    "sqlite": """
INSERT INTO report SELECT {id}, tag, 0, hidden FROM report_{id};
UPDATE ticket SET spent = 1 WHERE hash IN (SELECT ticket FROM admitted_{id});
DROP TABLE report_{id};
DROP TABLE admitted_{id};
DROP TABLE mix_task;
DROP TABLE mix_attempt;
DROP TRIGGER dummies_once;
ALTER TABLE collection DROP COLUMN dummies;
DROP TRIGGER layout_stays;
ALTER TABLE collection DROP COLUMN layout;
ALTER TABLE collection DROP COLUMN reserved;
ALTER TABLE collection DROP COLUMN leases;
DROP TABLE adder_sum;
DROP TABLE adder_share;
DROP TABLE adder_ticket;
DROP TABLE adder_list;
DROP TABLE adder_statement;
DROP TABLE format;
PRAGMA user_version = 4;
""",
    "postgresql": """
INSERT INTO report SELECT {id}, uuid_send(name), hidden FROM report_{id};
INSERT INTO ticket SELECT {id}, uuid_send(name), tag IS NOT NULL FROM admitted_{id} JOIN collection ON id = {id} WHERE ticketed;
DROP TABLE report_{id}, admitted_{id};
DROP TABLE mix_task, mix_attempt;
DROP FUNCTION check_mix_task;
DROP TRIGGER dummies_once ON collection;
DROP TRIGGER layout_stays ON collection;
DROP FUNCTION check_dummies, check_layout, check_collection_open;
ALTER TABLE collection DROP COLUMN dummies, DROP COLUMN layout, DROP COLUMN reserved;
ALTER TABLE collection DROP COLUMN leases;
DROP TABLE part, history, edge_role;
DROP TABLE adder_sum, adder_share, adder_ticket, adder_list, adder_statement;
DROP FUNCTION check_adder_step, check_adder_share, check_adder_statement;
DROP FUNCTION check_part, check_ticket, grant_reports;
ALTER TABLE format DROP COLUMN readable_from;
UPDATE format SET version = 4;
""",  # noqa: E501
}
"""Back to the format before layout 2, with the reports of one collection."""


@dataclass(frozen=True)
class Held:
    """Rows of each kind that a database has of a collection, and its count of reports."""

    reports: int
    tickets: int
    spent: int
    chunks: int
    counted: int


class Refused(Exception):
    """Error raised by the database itself."""


@contextmanager
def past_the_store(url: str) -> Iterator[Any]:
    """Plain connection, as of any other program."""
    if url.startswith("sqlite"):
        with closing(
            sqlite3.connect(url.removeprefix("sqlite:///"), timeout=30, isolation_level=None)
        ) as connection:
            try:
                yield connection
            except sqlite3.IntegrityError as no:
                raise Refused(str(no)) from None
        return
    import psycopg

    with psycopg.connect(
        url, autocommit=True, options="-c search_path=metricshuffle"
    ) as connection:
        try:
            yield connection
        except psycopg.IntegrityError as no:
            raise Refused(str(no)) from None


def asked(url: str, question: str) -> list[tuple[Any, ...]]:
    with past_the_store(url) as connection:
        cursor = connection.execute(question)
        return list(cursor.fetchall()) if cursor.description else []


def changed(url: str, change: str) -> None:
    """Change every collection past the store."""
    asked(url, f"UPDATE collection SET {change}")  # noqa: S608


def kind_of(connection: Any) -> str:
    return "sqlite" if isinstance(connection, sqlite3.Connection) else "postgresql"


def report_tables(connection: Any) -> set[int]:
    """Ids of the collections that have tables of their own."""
    tables = {
        "sqlite": "SELECT name FROM sqlite_master",
        "postgresql": "SELECT tablename FROM pg_tables WHERE schemaname = 'metricshuffle'",
    }
    names = connection.execute(tables[kind_of(connection)]).fetchall()
    return {
        int(name.removeprefix("report_"))
        for (name,) in names
        if name.startswith("report_") and name.removeprefix("report_").isdigit()
    }


def all_held(connection: Any) -> dict[str, Held]:
    """Rows by digest of the collection, in one snapshot."""
    kind = kind_of(connection)
    own_tables = report_tables(connection)
    questions = []
    for (number,) in connection.execute("SELECT id FROM collection").fetchall():
        counts = {
            name: count.format(id=number) if number in own_tables else "0"
            for name, count in TABLE_COUNTS[kind].items()
        }
        questions.append(COUNTS[kind].format(id=number, **counts))
    lines = connection.execute(" UNION ALL ".join(questions)).fetchall() if questions else []
    return {digest: Held(*counts) for digest, *counts in lines}


def stored_reports(url: str) -> dict[bytes, bytes]:
    """Encrypted boxes by tag, of all collections."""
    with past_the_store(url) as connection:
        return reports_in(connection)


def reports_in(connection: Any) -> dict[bytes, bytes]:
    tag = "tag" if kind_of(connection) == "sqlite" else "uuid_send(name)"
    reports = dict(connection.execute("SELECT tag, hidden FROM report").fetchall())
    for number in report_tables(connection):
        sql = f"SELECT {tag}, hidden FROM report_{number}"  # noqa: S608
        reports.update(connection.execute(sql).fetchall())
    return {bytes(tag): bytes(hidden) for tag, hidden in reports.items()}


def spent_in(connection: Any) -> set[bytes]:
    """Hashes of the spent tickets of all collections."""
    sql = {
        "sqlite": "SELECT ticket FROM admitted_{id} WHERE ticket <> x''",
        "postgresql": "SELECT uuid_send(name) FROM admitted_{id}, collection WHERE id = {id} "
        "AND ticketed AND tag IS NOT NULL",
    }[kind_of(connection)]
    spent = connection.execute("SELECT hash FROM ticket WHERE spent").fetchall()
    for number in report_tables(connection):
        spent += connection.execute(sql.format(id=number)).fetchall()
    return {bytes(ticket) for (ticket,) in spent}


def back_to_format_4(url: str) -> None:
    """Make a database as the version before had it, with its only collection."""
    with past_the_store(url) as connection:
        kind = kind_of(connection)
        [number] = report_tables(connection)
        script = TO_FORMAT_4[kind].format(id=number)
        if kind == "sqlite":
            connection.executescript(script)
        else:
            connection.execute(script)


def held(url: str, collection: Collection) -> Held:
    with past_the_store(url) as connection:
        return all_held(connection)[collection.digest]


def own_key(collection: Collection, place: int = 0) -> str:
    return collection.terms.hops[place].key


def added(store: Store, collection: Collection, tickets: Sequence[bytes] = ()) -> str:
    """Open a collection in a store for its first hop; return the digest."""
    assert store.add(collection, own_key(collection), tickets)
    return collection.digest


def entry(ticket: bytes = b"", size: int = 40) -> Entry:
    return Entry(secrets.token_bytes(16), ticket, os.urandom(size))


def fresh_entries(count: int, size: int = 40) -> list[Entry]:
    return [entry(size=size) for _ in range(count)]


def fresh_tickets(count: int) -> list[bytes]:
    return [secrets.token_bytes(16) for _ in range(count)]
