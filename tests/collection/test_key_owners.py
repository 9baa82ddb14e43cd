"""Two shufflers with separate keys on one database do not touch each other's collections."""

from __future__ import annotations

import re
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import httpx
import pytest
from tests.collection.conftest import POSTGRES_SLOWLY, Clock
from tests.collection.rounds import HONEST, new_round, opened_round, put
from tests.collection.running import post_report, report_of, running
from tests.collection.store_contents import back_to_format_4

from metricshuffle.collection.keys import KeyFolder
from metricshuffle.collection.shuffler.lifecycle import Shuffler
from metricshuffle.collection.store.factory import connect_store, migrate_database
from metricshuffle.collection.store.records import StoreError
from metricshuffle.collection.store.sql_store import Store
from metricshuffle.errors import InputError

START = 2_000_000_000.0


def test_what_has_its_keys_in_another_folder_is_left_alone(
    store: Store, tmp_path: Path, clock: Clock
) -> None:
    """Open, sealed, and between shuffling and destroying the keys.

    Then it would be released too early.
    """
    clock.stop(START)
    other = Shuffler(store, KeyFolder.at(tmp_path / "other"), abandon=())
    tried: list[str] = []

    def at(point: str) -> None:
        if point in ("sealing", "sealed", "mixing", "shuffled", "forgotten"):
            before = store.row(made.digest)
            with pytest.raises(StoreError, match="belongs to another shuffler of this database"):
                other.advance(made.digest)
            assert store.row(made.digest) == before
            tried.append(before.state if before is not None else "")

    own = Shuffler(store, KeyFolder.at(tmp_path / "own"), at=at, abandon=())
    made = opened_round(own, now=START)
    put(own, made, [made.report() for _ in range(HONEST)])
    clock.ahead = 60
    assert own.advance(made.digest) == "released"
    assert tried == ["open", "sealed", "sealed", "shuffled", "shuffled"]
    assert own.keys.names() == []


def test_a_shuffler_starts_beside_another_one_and_cannot_end_what_belongs_to_it(
    store: Store, tmp_path: Path, clock: Clock
) -> None:
    clock.stop(START)
    own = Shuffler(store, KeyFolder.at(tmp_path / "own"), abandon=())
    made = opened_round(own, now=START)
    told: list[str] = []
    for abandon in ((), None):  # (None gives up what is its own)
        other = Shuffler(store, KeyFolder.at(tmp_path / "other"), log=told.append, abandon=abandon)
        other.check_keys()
        assert "1 collection of another shuffler" in told[-1]
        with pytest.raises(InputError, match="belongs to another shuffler"):
            other.check_keys([made.digest])
        with pytest.raises(StoreError, match="belongs to another shuffler"):
            other.advance(made.digest)
        with pytest.raises(
            InputError, match="belongs to another shuffler of this database; ask that one"
        ):
            other.abort(made.digest, "not mine")
    put(own, made, [made.report() for _ in range(HONEST)])
    clock.ahead = 60
    own.check_keys()
    assert own.advance(made.digest) == "released"
    with pytest.raises(InputError, match="belongs to another shuffler"):
        other.purge(made.digest)
    assert own.status(made.digest) is not None
    assert not other.outputs.left(made.digest)


def test_what_has_lost_its_keys_is_given_up_when_it_is_named(
    store: Store, tmp_path: Path, clock: Clock
) -> None:
    clock.stop(START)
    keys = KeyFolder.at(tmp_path / "own")
    own = Shuffler(store, keys, abandon=())
    lost, safe = (opened_round(own, now=START, rounds=2, round=number) for number in (1, 2))
    row = store.row(lost.digest)
    assert row is not None
    keys.destroy(row.key)
    with pytest.raises(InputError, match=f"--abandon {lost.digest}"):
        own.check_keys()
    with pytest.raises(StoreError, match=f"--abandon {lost.digest}"):
        own.advance(lost.digest)
    for wrong, why in (
        (safe.digest, "start without --abandon"),
        ("0" * 64, "whole digest"),
        (lost.digest[:16], "whole digest"),
    ):
        with pytest.raises(InputError, match=why):
            own.check_keys([wrong])
    own = Shuffler(store, KeyFolder.at(tmp_path / "own"), abandon=[lost.digest])
    own.check_keys([lost.digest])
    assert own.advance(lost.digest) == "aborted"
    assert own.advance(safe.digest) == "open"
    own.check_keys([lost.digest])  # (a command that is repeated)


def test_all_that_would_be_aborted_after_a_restore_is_listed(
    store: Store, tmp_path: Path, clock: Clock
) -> None:
    clock.stop(START)
    keys = KeyFolder.at(tmp_path / "own")
    own = Shuffler(store, keys, abandon=())
    lost = [opened_round(own, now=START, rounds=5, round=number) for number in range(1, 6)]
    safe = lost.pop()
    for made in lost:
        row = store.row(made.digest)
        assert row is not None
        keys.destroy(row.key)
    with pytest.raises(InputError, match="misses the keys of 4 of its collections") as refused:
        own.check_keys()
    listed = set(re.findall(r"--abandon (\w+)", str(refused.value)))
    assert listed == {made.digest for made in lost}
    assert safe.digest not in listed
    own.check_keys(sorted(listed))


def test_a_collection_without_an_owner_belongs_to_whoever_has_its_keys(
    store: Store, tmp_path: Path, clock: Clock
) -> None:
    clock.stop(START)
    own = Shuffler(store, KeyFolder.at(tmp_path / "own"), abandon=())
    made = new_round([(own.new_party(), "http://127.0.0.1:1")], now=START)
    store.add(made.collection, made.collection.terms.hops[0].key)
    told: list[str] = []
    other = Shuffler(store, KeyFolder.at(tmp_path / "other"), log=told.append, abandon=())
    other.check_keys()
    assert "another shuffler" in told[0]
    with pytest.raises(StoreError, match="belongs to another shuffler"):
        other.advance(made.digest)
    own.check_keys()
    assert own.advance(made.digest) == "open"
    other = Shuffler(store, KeyFolder.at(tmp_path / "other"), abandon=[made.digest])
    other.check_keys([made.digest])
    assert other.advance(made.digest) == "aborted"
    assert own.advance(made.digest) == "aborted"
    assert own.keys.names() == []  # whoever has them destroys them


BEFORE_OWNERS = {
    "sqlite": "DROP TRIGGER countersigned_once; ALTER TABLE collection DROP COLUMN "
    "countersignature; "
    "DROP TABLE witnessed;"
    "DROP TRIGGER owner_stays; ALTER TABLE collection DROP COLUMN owner; PRAGMA user_version = 2;",
    "postgresql": "DROP TRIGGER countersigned_once ON metricshuffle.collection; DROP FUNCTION "
    "metricshuffle.check_countersignature;"
    "ALTER TABLE metricshuffle.collection DROP COLUMN countersignature; DROP TABLE "
    "metricshuffle.witnessed;"
    "DROP FUNCTION metricshuffle.check_witnessed;"
    "DROP TRIGGER owner_stays ON metricshuffle.collection; DROP FUNCTION metricshuffle.check_owner;"
    "ALTER TABLE metricshuffle.collection DROP COLUMN owner; UPDATE metricshuffle.format "
    "SET version = 2",
}


def test_a_database_without_owners_is_taken_over(
    store_url: str, tmp_path: Path, clock: Clock
) -> None:
    clock.stop(START)
    store = connect_store(store_url, clock)
    own = Shuffler(store, KeyFolder.at(tmp_path / "own"), abandon=())
    made = opened_round(own, now=START)
    put(own, made, [made.report() for _ in range(HONEST)])
    store.close()
    back_to_format_4(store_url)
    kind = store_url.partition(":")[0]
    if kind == "sqlite":
        with closing(sqlite3.connect(store_url.removeprefix("sqlite:///"))) as file:
            file.executescript(BEFORE_OWNERS[kind])
    else:
        import psycopg

        with psycopg.connect(store_url) as server:
            server.execute(BEFORE_OWNERS[kind])
        with pytest.raises(StoreError, match="metricshuffle migrate --store"):
            connect_store(store_url, clock)
        assert migrate_database(store_url)[0] == 2
    for _ in range(2):
        store = connect_store(store_url, clock)
        row = store.row(made.digest)
        assert row is not None
        assert (row.owner, row.reports) == ("", HONEST)
        store.close()
    store = connect_store(store_url, clock)
    own = Shuffler(store, KeyFolder.at(tmp_path / "own"), abandon=())
    own.check_keys()
    clock.ahead = 60
    assert own.advance(made.digest) == "released"
    store.close()


def test_an_owner_stays(store_url: str, tmp_path: Path) -> None:
    store = connect_store(store_url)
    own = Shuffler(store, KeyFolder.at(tmp_path / "own"))
    row = store.row(opened_round(own).digest)
    assert row is not None
    assert (
        row.owner
        == own.keys.owner
        == KeyFolder.at(tmp_path / "own").owner
        != KeyFolder.at(tmp_path / "other").owner
    )
    store.close()
    if store_url.startswith("sqlite"):
        with (
            closing(sqlite3.connect(store_url.removeprefix("sqlite:///"))) as file,
            pytest.raises(sqlite3.IntegrityError, match="owner"),
        ):
            file.execute("UPDATE collection SET owner = 'somebody else'")
    else:
        import psycopg

        with (
            psycopg.connect(store_url) as server,
            pytest.raises(psycopg.errors.IntegrityError, match="owner"),
        ):
            server.execute("UPDATE metricshuffle.collection SET owner = 'somebody else'")


@pytest.mark.thorough
@POSTGRES_SLOWLY
def test_two_servers_with_folders_of_their_own(
    tmp_path: Path, new_store_url: Callable[[], str]
) -> None:
    """Either can be started again while the other one's collection is open."""
    url = new_store_url()
    with running(tmp_path / "one", url) as one, running(tmp_path / "two", url) as two:
        collection = one.opened(lasts=20)
        statuses = post_report(collection.url, [report_of(collection) for _ in range(8)]).statuses
        assert statuses == [204] * 8
        elsewhere = collection.url.replace(one.url, two.url)
        assert post_report(elsewhere, [report_of(collection)], 1).statuses == [503]
        two.end()
        two.start()
        one.end()
        one.start()
        deadline = time.monotonic() + 60
        while (told := one.operator.status(collection.digest))["state"] in (
            "open",
            "sealed",
            "shuffled",
            "erased",
        ):
            assert time.monotonic() < deadline
            time.sleep(0.05)
        assert (told["state"], told["people"]) == ("released", 8)
        assert KeyFolder(one.keys).names() == []
        assert "collection of another shuffler" in two.log


# --- another folder of keys ---


@pytest.mark.thorough
def test_another_folder_of_keys_ends_nothing(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'shuffler.db'}"
    with running(tmp_path / "one", url) as shuffler:
        collection = shuffler.opened()
        assert (
            httpx.post(f"{collection.url}/reports", content=report_of(collection)).status_code
            == 204
        )
        words = [
            sys.executable,
            "-m",
            "metricshuffle",
            "serve",
            "--store",
            url,
            "--listen",
            "127.0.0.1:0",
            "--keys",
            str(tmp_path / "typo" / "keys"),
        ]
        for options, why in (
            (["--abandon"], "requires an argument"),
            (["--abandon", collection.digest], "belongs to another shuffler"),
        ):
            refused = subprocess.run(
                [*words, *options], capture_output=True, text=True, timeout=120
            )
            assert refused.returncode == 2
            assert why in refused.stderr
        shuffler.end()
    with running(tmp_path / "typo", url) as other:
        assert collection.digest[:16] in other.log
        with pytest.raises(InputError, match="belongs to another shuffler"):
            other.operator.abort(collection.digest, "a mistake")
        assert other.operator.status(collection.digest)["state"] == "open"
    with running(tmp_path / "one", url) as shuffler:
        assert shuffler.operator.status(collection.digest)["reports"] == 1
        shuffler.end()
        [key] = KeyFolder(shuffler.keys).names()
        KeyFolder(shuffler.keys).destroy(key)
    with running(tmp_path / "one", url, "--abandon", collection.digest) as shuffler:
        deadline = time.monotonic() + 60
        while (told := shuffler.operator.status(collection.digest))["state"] == "open":
            assert time.monotonic() < deadline
            time.sleep(0.05)
    assert told["state"] == "aborted"
    assert "keys are missing" in told["reason"]
