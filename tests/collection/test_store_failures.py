"""Store errors without data loss: full or read-only disk, wrong file, missing server."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest
from tests.collection.conftest import Clock, NewCollection, missing
from tests.collection.store_contents import added, asked, entry, fresh_entries, held, past_the_store
from tests.tables import check_all

from metricshuffle.collection.keys import PRIVATE_FILE
from metricshuffle.collection.store import sqlite_file
from metricshuffle.collection.store.factory import connect_store
from metricshuffle.collection.store.records import CHUNK, StoreError, Verdict
from metricshuffle.collection.store.sql_store import Store
from metricshuffle.collection.store.sqlite_schema import (
    PIECE_BYTES,
    WHOLE_REPORT_BYTES,
    split_into_pieces,
)
from metricshuffle.errors import MissingExtra

ROOT = Path(__file__).parents[2]
NOBODY = 65534
STORED = Verdict.STORED


def refusal(url: str) -> str:
    """The sentence with which a database is not opened."""
    with pytest.raises(StoreError) as told:
        connect_store(url)
    sentence = str(told.value)
    assert sentence.endswith(".")
    assert "\n" not in sentence
    assert told.value.__cause__ is None
    return sentence


def refused_file(path: Path) -> str:
    """The same for a file that is there, which is left as it is."""
    before = hashlib.sha256(path.read_bytes()).digest()
    sentence = refusal(f"sqlite:///{path}")
    assert hashlib.sha256(path.read_bytes()).digest() == before
    assert str(path) in sentence
    assert sorted(path.parent.iterdir()) == [path]
    return sentence


@check_all(
    "url",
    [
        "",
        "shuffler.db",
        "mysql://host/db",
        "sqlite:",
        "sqlite://",
        "sqlite:///",
        "sqlite://host/file",
        "sqlite:///a.db?mode=ro",
    ],
)
def test_an_address_of_nothing_is_refused_with_those_there_are(url: str) -> None:
    assert "sqlite:///shuffler.db" in refusal(url)


def test_three_slashes_are_a_file_here_and_four_one_anywhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for url, name in (
        ("sqlite:///here.db", "here.db"),
        (f"sqlite:///{tmp_path}/with%20space.db", "with space.db"),
    ):
        connect_store(url).close()
        assert (tmp_path / name).exists()


# SQLite


@pytest.fixture
def sqlite_store(tmp_path: Path, clock: Clock) -> Iterator[Store]:
    store = connect_store(f"sqlite:///{tmp_path}/shuffler.db", clock)
    yield store
    store.close()


def test_a_file_of_something_else_is_refused_and_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "other"
    path.write_text(
        "not a database, but more than a hundred letters long, so that it cannot be taken "
        "for an empty one\n" * 3
    )
    assert "it is not a database" in refused_file(path)
    path.unlink()
    with closing(sqlite3.connect(path)) as other:
        other.execute("CREATE TABLE theirs (x)")
        other.commit()
    assert "a database of another program" in refused_file(path)
    path.unlink()
    connect_store(f"sqlite:///{path}").close()
    with closing(sqlite3.connect(path)) as newer:
        newer.execute("PRAGMA user_version = 77")
        newer.execute("UPDATE format SET version = 77")
        newer.commit()
    connect_store(f"sqlite:///{path}").close()  # which it says it leaves usable
    with closing(sqlite3.connect(path)) as newer:
        newer.execute("UPDATE format SET readable_from = 76")
        newer.commit()
    assert "another version of metricshuffle (its format is 77" in refused_file(path)


def test_where_no_file_can_be_is_said(tmp_path: Path) -> None:
    assert "No such file or directory" in refusal(f"sqlite:///{tmp_path}/nowhere/shuffler.db")
    assert "it cannot be opened" in refusal(f"sqlite:///{tmp_path}")


def test_a_new_file_is_its_owners_and_has_the_settings_that_are_counted_on(
    sqlite_store: Store, tmp_path: Path
) -> None:
    assert (tmp_path / "shuffler.db").stat().st_mode & 0o777 == PRIVATE_FILE
    with sqlite_store._database.writing() as db:
        settings = {
            name: db.execute(f"PRAGMA {name}").fetchone()[0]
            for name in (
                "journal_mode",
                "synchronous",
                "page_size",
                "secure_delete",
                "trusted_schema",
                "busy_timeout",
            )
        }
    assert settings == {
        "journal_mode": "wal",
        "synchronous": 2,
        "page_size": 4096,
        "secure_delete": 1,
        "trusted_schema": 0,
        "busy_timeout": 30_000,
    }
    tables = asked(
        f"sqlite:///{tmp_path}/shuffler.db",
        "SELECT sql FROM sqlite_master WHERE name IN ('report', 'ticket')",
    )
    assert all("WITHOUT ROWID" in sql for (sql,) in tables)


def test_a_read_only_file_is_said(new_collection: NewCollection) -> None:
    folder = Path(tempfile.mkdtemp(prefix="ms-ro-"))
    try:
        connect_store(f"sqlite:///{folder}/shuffler.db").close()
        folder.chmod(0o555)
        (folder / "shuffler.db").chmod(0o444)
        root = os.geteuid() == 0
        if root:
            os.seteuid(NOBODY)
        try:
            sentence = refusal(f"sqlite:///{folder}/shuffler.db")
        finally:
            if root:
                os.seteuid(0)
        assert "read-only" in sentence or "may this user write to it" in sentence
    finally:
        folder.chmod(0o755)
        shutil.rmtree(folder)


def test_a_file_that_is_replaced_under_a_running_service_is_noticed(
    sqlite_store: Store, tmp_path: Path, new_collection: NewCollection
) -> None:
    """Otherwise acknowledged reports would go to an unlinked file."""
    digest = added(sqlite_store, new_collection())
    path = tmp_path / "shuffler.db"
    path.rename(tmp_path / "moved.db")
    with pytest.raises(StoreError, match="No such file"):
        sqlite_store.put(digest, [entry()])
    connect_store(f"sqlite:///{path}").close()
    with pytest.raises(StoreError, match="replaced by another file"):
        sqlite_store.put(digest, [entry()])


def test_a_file_that_somebody_holds_is_said_and_used_when_it_is_free(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, new_collection: NewCollection
) -> None:
    monkeypatch.setattr(sqlite_file, "WAIT_SECONDS", 0.2)
    store = connect_store(f"sqlite:///{tmp_path}/shuffler.db")
    digest = added(store, new_collection())
    with closing(sqlite3.connect(tmp_path / "shuffler.db", isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(StoreError, match="another program holds it"):
            store.put(digest, [entry()])
        assert store.rows()[0].reports == 0  # reading waits for nobody
        other.execute("ROLLBACK")
        other.execute("BEGIN")
        other.execute("SELECT count(*) FROM report").fetchone()
        assert store.put(digest, [entry()]) == [STORED]
        with pytest.raises(StoreError, match="cannot be emptied while another program reads"):
            store.forget_deleted()
        other.execute("ROLLBACK")
    store.forget_deleted()
    assert (tmp_path / "shuffler.db-wal").stat().st_size == 0
    store.close()


@pytest.mark.parametrize("size", [600, 3900, 4100, 4500, 8100, 11_416, 64_000, 66_000])
def test_a_report_takes_hardly_more_room_than_it_has_bytes(
    sqlite_store: Store, tmp_path: Path, clock: Clock, new_collection: NewCollection, size: int
) -> None:
    """A row over a quarter of a page would take four times the room for 4,500 bytes."""
    digest = added(sqlite_store, new_collection())
    count = max(100, 2_000_000 // size)
    entries = fresh_entries(count, size)
    sqlite_store.put(digest, entries)
    sqlite_store.forget_deleted()
    assert (tmp_path / "shuffler.db").stat().st_size < 1.8 * count * size + 2**18
    clock.ahead = 150
    sqlite_store.seal(digest)
    assert dict(sqlite_store.hidden(digest)) == {entry.tag: entry.hidden for entry in entries}


def test_pieces_are_small_and_put_together_the_same() -> None:
    for size in (
        0,
        1,
        PIECE_BYTES - 1,
        PIECE_BYTES,
        PIECE_BYTES + 1,
        2 * PIECE_BYTES,
        2 * PIECE_BYTES + 1,
        WHOLE_REPORT_BYTES - 1,
        WHOLE_REPORT_BYTES,
        WHOLE_REPORT_BYTES + 1,
    ):
        hidden = os.urandom(size)
        pieces = split_into_pieces(hidden)
        assert b"".join(pieces) == hidden
        assert (
            len(pieces) == 1
            if size >= WHOLE_REPORT_BYTES
            else all(len(piece) <= PIECE_BYTES for piece in pieces)
        )
        assert pieces


def test_a_damaged_file_is_said(
    tmp_path: Path, clock: Clock, new_collection: NewCollection
) -> None:
    path = tmp_path / "shuffler.db"
    store = connect_store(f"sqlite:///{path}", clock)
    digest = added(store, new_collection())
    store.put(digest, fresh_entries(2000, 1000))
    clock.ahead = 150
    store.seal(digest)
    store.close()
    data = bytearray(path.read_bytes())
    data[len(data) // 2 :] = bytes(len(data) - len(data) // 2)
    path.write_bytes(data)
    with pytest.raises(StoreError, match="damaged"):
        list(connect_store(f"sqlite:///{path}", clock).hidden(digest))


def test_what_was_deleted_is_in_no_file_any_more(
    sqlite_store: Store, tmp_path: Path, clock: Clock, new_collection: NewCollection
) -> None:
    """Neither in pages that are free now nor in the journal; the boxes would be hidden anyhow."""
    tickets = [os.urandom(16) for _ in range(300)]
    digest = added(sqlite_store, new_collection(admission="tickets"), tickets)
    entries = [entry(ticket, 600) for ticket in tickets]
    for start in range(0, 300, 50):
        sqlite_store.put(digest, entries[start : start + 50])
    secrets = {one.tag for one in entries} | {one.hidden[200:232] for one in entries} | set(tickets)

    def left() -> int:
        everything = b"".join(path.read_bytes() for path in tmp_path.iterdir())
        return sum(secret in everything for secret in secrets)

    assert left() == len(secrets)
    clock.ahead = 150
    sqlite_store.seal(digest)
    sqlite_store.move(digest, "sealed", "shuffled", people=300, left_out=0, output="5" * 64)
    assert left() > 0  # the journal still knows them
    sqlite_store.forget_deleted()
    assert left() == 0


FULL = """
import sys, os, subprocess, secrets
from pathlib import Path
subprocess.run(["mount", "-t", "tmpfs", "-o", "size=6m", "none", sys.argv[1]], check=True)
from metricshuffle.collection.terms import Collection
from metricshuffle.collection.store.factory import connect_store
from metricshuffle.collection.store.records import Entry, StoreError, Verdict
folder, now = Path(sys.argv[1]), [float(sys.argv[3])]
collection = Collection.load(sys.argv[2])
store = connect_store(f"sqlite:///{folder}/shuffler.db", lambda: now[0])
store.add(collection, collection.terms.hops[0].key)
digest, acknowledged = collection.digest, {}

def filled():
    with open(folder / "filler", "wb", buffering=0) as stream:
        try:
            while True:
                stream.write(bytes(4096))
        except OSError:
            return

def refused(call):
    try:
        call()
    except StoreError as full:
        assert "the disk is full" in str(full), str(full)
    else:
        raise AssertionError("it was not full")

def put():
    entries = [Entry(secrets.token_bytes(16), b"", secrets.token_bytes(2000)) for _ in range(50)]
    assert set(store.put(digest, entries)) == {Verdict.STORED}
    acknowledged.update((entry.tag, entry.hidden) for entry in entries)

put()
filled()
refused(lambda: [put() for _ in range(100)])
os.unlink(folder / "filler")
put()
filled()
now[0] += 150
refused(lambda: [store.seal(digest), store.forget_deleted(), filled(), store.keep_output(digest, [bytes(2**20)] * 9)])
assert store.row(digest).state in ("open", "sealed")
os.unlink(folder / "filler")
assert store.seal(digest) == "sealed"
assert dict(store.hidden(digest)) == acknowledged
store.keep_output(digest, [b"boxes"])
filled()
refused(lambda: store.move(digest, "sealed", "shuffled", people=len(acknowledged), left_out=0, output="5" * 64))
assert store.row(digest).state == "sealed" and dict(store.hidden(digest)) == acknowledged
os.unlink(folder / "filler")
assert store.move(digest, "sealed", "shuffled", people=len(acknowledged), left_out=0, output="5" * 64)
store.close()
print("went on", len(acknowledged))
"""  # noqa: E501


@pytest.mark.thorough
def test_a_full_disk_is_said_and_nothing_is_lost(
    tmp_path: Path, clock: Clock, new_collection: NewCollection
) -> None:
    """Put, keep and move on a full private disk, and again when there is room."""
    collection = new_collection(lasts=100)
    collection.save(tmp_path / "collection.json")
    (tmp_path / "disk").mkdir()
    alone = (
        ["unshare", "--mount"]
        if os.geteuid() == 0
        else ["unshare", "--mount", "--user", "--map-root-user"]
    )
    if (
        shutil.which("unshare") is None
        or subprocess.run([*alone, "true"], capture_output=True).returncode
    ):
        missing("this test mounts a small disk: it needs unshare, and the right to use it")
    words = [
        sys.executable,
        "-c",
        FULL,
        str(tmp_path / "disk"),
        str(tmp_path / "collection.json"),
        str(clock()),
    ]
    ended = subprocess.run([*alone, *words], capture_output=True, text=True, timeout=120, cwd=ROOT)
    assert (ended.returncode, ended.stdout[:7]) == (0, "went on"), ended.stderr


FORKED = """
import os, sys
from metricshuffle.collection.store.records import Entry
from metricshuffle.collection.store.factory import connect_store as store_of
store, digest = store_of(sys.argv[1]), sys.argv[2]
assert len(store.rows()) == 1
child = os.fork()
for number in range(20):
    store.put(digest, [Entry(os.urandom(16), b"", b"hidden")])
if child == 0:
    os._exit(0)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
print(store.rows()[0].reports)
"""


@pytest.mark.thorough
def test_a_fork_takes_no_connection_along(
    store: Store, store_url: str, new_collection: NewCollection
) -> None:
    digest = added(store, new_collection(opens=time.time() - 1))
    words = [sys.executable, "-W", "ignore", "-c", FORKED, store_url, digest]
    assert (
        subprocess.run(words, capture_output=True, text=True, timeout=120, cwd=ROOT).stdout
        == "40\n"
    )


def test_more_calls_than_connections_wait_for_each_other(
    store: Store, new_collection: NewCollection
) -> None:
    digest = added(store, new_collection(opens=time.time() - 1))
    threads = [threading.Thread(target=store.put, args=(digest, [entry()])) for _ in range(40)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert store.rows()[0].reports == 40


# PostgreSQL


@pytest.mark.thorough
class TestPostgres:
    @pytest.fixture
    def url(self, new_postgres_url: Callable[[], str]) -> str:
        return new_postgres_url()

    @pytest.fixture
    def postgres(self, url: str, clock: Clock) -> Iterator[Store]:
        store = connect_store(url, clock)
        yield store
        store.close()

    def test_a_server_that_is_not_there_is_said_without_the_password(self) -> None:
        for url in (
            "postgresql://me:s3cret@127.0.0.1:1/db",
            "postgresql://me:s3cret@127.0.0.1:port/db",
            "postgresql://me:x@s3cret@127.0.0.1:1/db",
            "postgresql://me:s3cret#@127.0.0.1:1/db",
            "postgresql://me:a/s3cret@127.0.0.1:1/db",
            "postgresql://me@127.0.0.1:1/db?password=s3cret&nonsense=1",
            "postgres://me:s3cret@no-such-host.invalid/db",
        ):
            sentence = refusal(url)
            assert "PostgreSQL" in sentence
            assert "cret" not in sentence
        assert "it does not answer" in refusal("postgresql://me:s3cret@127.0.0.1:1/db")

    def test_a_database_that_is_not_there_is_said(self, postgres_url: str) -> None:
        assert "no database of that name" in refusal(
            postgres_url.replace("/postgres?", "/nowhere?")
        )

    def test_a_user_who_may_not_is_told(self, url: str) -> None:
        with past_the_store(url) as server:
            server.execute("DROP ROLE IF EXISTS guest")
            server.execute("CREATE ROLE guest LOGIN")
        try:
            assert "may not do that" in refusal(url.replace("postgres:@", "guest:@"))
            assert "refuses this user" in refusal(url.replace("postgres:@", "stranger:@"))
        finally:
            asked(url, "DROP ROLE guest")

    def test_a_schema_of_something_else_is_left_alone(self, url: str) -> None:
        asked(url, "CREATE SCHEMA metricshuffle")
        assert "belongs to another program" in refusal(url)
        asked(url, "DROP SCHEMA metricshuffle")
        connect_store(url).close()
        asked(url, "UPDATE format SET version = 99, readable_from = 99")
        assert "its format is 99" in refusal(url)

    def test_a_server_that_loses_what_it_acknowledges_is_refused(self, url: str) -> None:
        def switched(how: str) -> None:
            asked(url, f"ALTER SYSTEM {how}")
            asked(url, "SELECT pg_reload_conf()")
            time.sleep(0.5)

        try:
            switched("SET fsync = off")
            assert "fsync switched off" in refusal(url)
        finally:
            switched("RESET fsync")

    def test_settings_that_are_counted_on_do_not_depend_on_the_servers(self, url: str) -> None:
        name = re.sub(r".*/(\w+)\?.*", r"\1", url)
        for setting in (
            "synchronous_commit = off",
            "default_transaction_isolation = 'repeatable read'",
            "search_path = public",
        ):
            asked(url, f"ALTER DATABASE {name} SET {setting}")
        try:
            store = connect_store(url)
            with store._database.writing() as db:
                assert db.execute("SHOW synchronous_commit").fetchone() == ("on",)
                assert db.execute("SHOW transaction_isolation").fetchone() == ("read committed",)
            store.close()
        finally:
            asked(url, f"ALTER DATABASE {name} RESET ALL")

    def test_a_read_only_server_is_said(
        self, url: str, clock: Clock, new_collection: NewCollection
    ) -> None:
        store = connect_store(url, clock)
        name = re.sub(r".*/(\w+)\?.*", r"\1", url)
        asked(url, f"ALTER DATABASE {name} SET default_transaction_read_only = on")
        store.close()
        try:
            with pytest.raises(StoreError, match="read-only"):
                added(store, new_collection())
        finally:
            with past_the_store(url) as server:
                server.execute("SET default_transaction_read_only = off")
                server.execute(f"ALTER DATABASE {name} RESET ALL")
            store.close()

    def test_a_full_disk_is_said_and_nothing_is_stored(
        self, postgres: Store, url: str, new_collection: NewCollection
    ) -> None:
        collection = new_collection()
        digest = added(postgres, collection)
        asked(
            url,
            """
            CREATE FUNCTION full_disk() RETURNS trigger LANGUAGE plpgsql AS
            $$ BEGIN RAISE EXCEPTION USING ERRCODE = 'disk_full', MESSAGE = 'could not extend file: No space left on device'; END $$
        """,  # noqa: E501
        )
        asked(url, "CREATE TRIGGER full_disk AFTER INSERT ON report_1 EXECUTE FUNCTION full_disk()")
        with pytest.raises(StoreError, match="its disk is full"):
            postgres.put(digest, fresh_entries(3))
        assert (held(url, collection).reports, held(url, collection).counted) == (0, 0)
        asked(url, "DROP TRIGGER full_disk ON report_1")
        assert postgres.put(digest, fresh_entries(3)) == [STORED] * 3

    def test_connections_that_were_lost_are_made_anew(
        self, postgres: Store, url: str, new_collection: NewCollection
    ) -> None:
        """An idle one silently; a busy one with an error, and again at the next call."""
        collection = new_collection()
        digest = added(postgres, collection)
        others = (
            "SELECT count(pg_terminate_backend(pid, 5000)) FROM pg_stat_activity WHERE datname "
            "= current_database() AND {}"
        )
        assert asked(url, others.format("application_name = 'metricshuffle'")) == [(1,)]
        assert postgres.put(digest, [entry()]) == [STORED]
        told: list[str] = []

        def waiting() -> None:
            try:
                postgres.put(digest, [entry()])
            except StoreError as lost:
                told.append(str(lost))

        with past_the_store(url) as holder:
            holder.execute("BEGIN")
            holder.execute("SELECT FROM collection FOR UPDATE")
            thread = threading.Thread(target=waiting)
            thread.start()
            end = time.monotonic() + 30
            while (
                asked(url, others.format("wait_event_type = 'Lock'")) == [(0,)]
                and time.monotonic() < end
            ):
                time.sleep(0.01)
            thread.join(30)
        assert len(told) == 1
        assert re.search(r"restarted|lost", told[0])
        assert held(url, collection).reports == 1
        assert postgres.put(digest, [entry()]) == [STORED]

    def test_what_was_deleted_is_let_go_of(
        self, postgres: Store, url: str, clock: Clock, new_collection: NewCollection
    ) -> None:
        digest = added(postgres, new_collection())
        postgres.put(digest, fresh_entries(200, 2000))
        clock.ahead = 150
        postgres.seal(digest)
        postgres.keep_output(digest, [b"boxes"])
        assert asked(url, "SELECT pg_relation_size('report_1')")[0][0] > 200 * 2000
        postgres.move(digest, "sealed", "shuffled", people=200, left_out=0, output="5" * 64)
        size = "SELECT to_regclass('report_1'), to_regclass('admitted_1')"
        assert asked(url, size) == [(None, None)]
        postgres.forget_deleted()
        assert list(postgres.output(digest)) == [b"boxes"]

    def test_large_reports_are_not_moved_elsewhere(
        self, postgres: Store, url: str, new_collection: NewCollection
    ) -> None:
        """Reports of up to 8 kB stay in their row, twice as fast; larger ones work, too."""
        digest = added(postgres, new_collection())
        elsewhere = (
            "SELECT pg_relation_size(reltoastrelid) FROM pg_class WHERE oid = 'report_1'::regclass"
        )
        postgres.put(digest, fresh_entries(50, 7900))
        assert asked(url, elsewhere) == [(0,)]
        postgres.put(digest, fresh_entries(2, CHUNK))
        assert asked(url, elsewhere)[0][0] >= 2 * CHUNK


def test_without_its_extra_postgresql_is_refused_with_its_name(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(MissingExtra, match=r"metricshuffle\[postgres\]"):
        connect_store("postgresql://localhost/db")
