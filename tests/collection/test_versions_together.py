"""Two versions on one database: what a migration may change, and edges before and after one."""

from __future__ import annotations

import re
import secrets
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.collection.conftest import NewCollection
from tests.collection.postgres_pair import PostgresPair, new_database
from tests.collection.store_contents import added, fresh_entries

from metricshuffle.collection.hub.lease_list import LeaseList
from metricshuffle.collection.store import postgres_server, schema_versions
from metricshuffle.collection.store.factory import migrate_database
from metricshuffle.collection.store.part_store import EdgeStore, HubStore, connect_parts
from metricshuffle.collection.store.records import Entry, StoreError, Verdict
from metricshuffle.collection.store.schema_versions import (
    DatabaseKind,
    Migration,
    latest_version,
    migrations,
)

FIRST_WITH_EDGES = 7
"""Format from which on versions with edges are in use."""
BEFORE = 8
"""Format of the version before: its edges use no table or column that was added later."""


def shrinking(migration: Migration) -> list[str]:
    """Statements that could disturb programs of the version before, which do not know them.

    They know no table and no column of this migration. New columns have defaults; triggers of
    tables that were there depend on new columns.
    """
    if f"format SET readable_from = {migration.version};" in migration.sql:
        return []
    tables = set(re.findall(r"CREATE TABLE (\S+)", migration.sql))
    columns = set(re.findall(r"ADD COLUMN (\w+)", migration.sql))
    disturbing = []
    text = re.sub(r"--.*", "", migration.sql)
    for body in (r"AS\s*\$\$.*?\$\$", r"\bBEGIN\b.*?\bEND(?=;)", "'[^']*'"):
        text = re.sub(f"(?s){body}", "''", text)
    for statement in filter(str.strip, text.split(";")):
        words = " ".join(statement.split())
        on = re.search(r" (?:ON|INTO) ([\w.]+)", words)
        is_new = on is not None and on[1] in tables
        when = re.search(r" WHEN \(?(.*)", words)
        if not (
            words.startswith(("CREATE TABLE ", "CREATE FUNCTION "))
            or (re.match(r"CREATE (UNIQUE )?INDEX |INSERT INTO ", words) and is_new)
            or re.match(r"ALTER TABLE \S+ ADD COLUMN \w+ \w+ NOT NULL DEFAULT [^,]*$", words)
            or (words.startswith("ALTER TABLE ") and words.split()[2] in tables)
            or (
                words.startswith("CREATE TRIGGER ")
                and (
                    is_new or (when and any(re.search(rf"\b{name}\b", when[1]) for name in columns))
                )
            )
        ):
            disturbing.append(words)
    return disturbing


@pytest.mark.parametrize("kind", ["postgres", "sqlite"])
def test_a_migration_takes_nothing_from_the_version_before(kind: DatabaseKind) -> None:
    """Or says, by `readable_from`, that it cannot be used any more."""
    for migration in migrations(kind)[FIRST_WITH_EDGES - 1 :]:
        assert shrinking(migration) == []


@pytest.mark.parametrize(
    "sql",
    [
        "DROP TABLE part;",
        "ALTER TABLE collection DROP COLUMN until;",
        "ALTER TABLE collection RENAME COLUMN until TO ends;",
        "ALTER TABLE collection ADD COLUMN place text NOT NULL;",
        "ALTER TABLE collection ADD COLUMN place text NOT NULL DEFAULT '', DROP COLUMN until;",
        "ALTER TABLE part ADD CONSTRAINT few CHECK (reports < 10);",
        "CREATE UNIQUE INDEX one ON part (collection);",
        "CREATE OR REPLACE FUNCTION check_part() RETURNS trigger LANGUAGE plpgsql AS $$ $$;",
        "CREATE TRIGGER never BEFORE INSERT ON part FOR EACH ROW EXECUTE FUNCTION refused('no');",
        "CREATE TRIGGER rarely BEFORE UPDATE ON part FOR EACH ROW WHEN (NEW.room > 9) "
        "EXECUTE FUNCTION refused('no');",
        "DELETE FROM part;",
        "UPDATE format SET readable_from = 98;",
        "REVOKE ALL ON part FROM PUBLIC;",
    ],
)
def test_a_migration_that_takes_something_is_found(sql: str) -> None:
    assert shrinking(Migration(99, f"-- A step.\n\nCREATE TABLE other (x integer);\n{sql}\n"))
    assert not shrinking(Migration(99, f"{sql}\nUPDATE format SET readable_from = 99;\n"))


@contextmanager
def program_of(version: int) -> Iterator[None]:
    """Let programs that connect know the migrations up to `version` only."""
    known = migrations

    def older(kind: DatabaseKind) -> tuple[Migration, ...]:
        return known(kind)[:version]

    with pytest.MonkeyPatch.context() as patch:
        for module in (schema_versions, postgres_server):
            patch.setattr(module, "migrations", older)
        yield


class Load:
    """Stores reports by an edge in a thread, each of them twice, until it is told to end."""

    def __init__(self, edge: EdgeStore, digest: str, lease: bytes, ended: threading.Event) -> None:
        self._edge, self._digest, self._lease, self._ended = edge, digest, lease, ended
        self.acknowledged: list[bytes] = []

    def run(self) -> None:
        while not self._ended.is_set():
            reports = [Entry(new.tag, b"", new.hidden, self._lease) for new in fresh_entries(8)]
            waiting = reports
            while waiting:
                try:
                    verdicts = self._edge.put(self._digest, waiting)
                except StoreError:  # it is sent again, as the answer says
                    continue
                assert set(verdicts) <= {Verdict.STORED, Verdict.SAME}
                waiting = []
            assert self._edge.put(self._digest, reports[:2]) == [Verdict.SAME] * 2
            self.acknowledged += [report.tag for report in reports]


@pytest.mark.thorough
def test_edges_of_two_versions_store_everything_once_around_a_migration(
    pair: PostgresPair, tmp_path: Path, new_collection: NewCollection
) -> None:
    """Migrated under load; edges of the version before also start after it."""
    new_database(pair)

    def edge_store() -> EdgeStore:
        edge = connect_parts(pair.url, is_hub=False, accept_loss=False, jump=300)
        assert isinstance(edge, EdgeStore)
        return edge

    with program_of(BEFORE):
        assert migrate_database(pair.url) == (0, BEFORE)
        hub = connect_parts(
            pair.url,
            is_hub=True,
            accept_loss=False,
            jump=300,
            record=LeaseList.at(tmp_path, create=True),
        )
        assert isinstance(hub, HubStore)
        edges = [edge_store()]
    with pytest.raises(StoreError, match="run metricshuffle migrate"):
        edge_store()
    collection = new_collection(opens=time.time() - 1, lasts=10, longer=0, maximum=100_000)
    digest = added(hub, collection)
    ended = threading.Event()
    loads: list[Load] = []
    results: list[Future[None]] = []
    with ThreadPoolExecutor(4) as threads:

        def start_load(edge: EdgeStore) -> None:
            lease = secrets.token_bytes(16)
            part = hub.add_part(digest, lease)
            assert part is not None
            loads.append(Load(edge, digest, lease, ended))
            results.append(threads.submit(loads[-1].run))

        try:
            start_load(edges[0])
            time.sleep(0.7)
            assert migrate_database(pair.url) == (BEFORE, latest_version("postgres"))
            with program_of(BEFORE):
                edges.append(edge_store())
            edges.append(edge_store())
            for edge in edges[1:]:
                start_load(edge)
            time.sleep(1.5)
        finally:
            ended.set()
        for result in results:
            result.result(30)
    acknowledged = [tag for load in loads for tag in load.acknowledged]
    assert all(len(load.acknowledged) >= 16 for load in loads)
    while (state := hub.seal(digest)) == "open":
        time.sleep(0.1)
    assert state == "sealed"
    [(number,)] = pair.ask("SELECT id FROM collection")
    stored = [name.bytes for (name,) in pair.ask(f"SELECT name FROM report_{number}")]  # noqa: S608
    assert len(stored) == len(set(stored)) == len(acknowledged)
    assert set(stored) == set(acknowledged)
    assert pair.ask("SELECT sum(reports) FROM part") == [(len(stored),)]
    for store in (hub, *edges):
        store.close()
