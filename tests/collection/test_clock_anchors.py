"""Clock anchors of a store, over restarts, days, and databases of older versions."""

from __future__ import annotations

import sqlite3
import threading
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from tests.collection.conftest import Clocks, NewCollection
from tests.collection.store_contents import added, asked, entry, fresh_entries
from tests.tables import check_all

from metricshuffle.collection.shuffler.admission import new_row_columns
from metricshuffle.collection.store.factory import connect_store, migrate_database
from metricshuffle.collection.store.guarded_clock import (
    DAY,
    MAX_CLOCK_JUMP_SECONDS,
    duration_text,
    steady_clock,
)
from metricshuffle.collection.store.records import CollectionRow, Verdict
from metricshuffle.collection.store.schema_versions import latest_version, migrations
from metricshuffle.collection.store.sql_store import Store
from metricshuffle.collection.store.sqlite_schema import APPLICATION
from metricshuffle.errors import InputError

START = 2_000_000_000.0
HOUR = 3600.0
YEAR = 365.25 * DAY


def row_of(store: Store, digest: str) -> CollectionRow:
    row = store.row(digest)
    assert row is not None
    return row


# Starts


def test_starting_again_does_not_make_a_wrong_clock_right(
    open_store: Callable[[], Store], clocks: Clocks
) -> None:
    open_store()
    clocks.wait(7 * DAY)  # it was off, or asleep, and the steady clock went on
    assert not open_store().read_clock().has_jumped
    clocks.jump(4 * HOUR)
    assert open_store().read_clock().ahead == pytest.approx(4 * HOUR)
    assert open_store().read_clock().has_jumped
    assert open_store().start_note == ""


@pytest.mark.parametrize(
    ("off", "is_long"), [(-2 * HOUR, False), (7 * DAY, False), (40 * DAY, True)]
)
def test_after_another_start_of_the_machine_the_clock_is_believed_and_that_is_said(
    open_store: Callable[[], Store], clocks: Clocks, off: float, is_long: bool
) -> None:
    assert open_store().start_note == ""
    clocks.boot_again(off)
    again = open_store()
    assert not again.read_clock().has_jumped
    assert "This machine was started since" in again.start_note
    assert ("check that it is right" in again.start_note) == is_long
    assert open_store().start_note == ""


def test_a_clock_may_gain_the_limit_in_a_day_and_not_more(
    open_store: Callable[[], Store], clocks: Clocks
) -> None:
    store = open_store()
    for _ in range(50):
        clocks.wait(2 * DAY)
        clocks.jump(8)
        assert not store.read_clock().has_jumped
    clocks.wait(2 * DAY)
    assert not store.read_clock().has_jumped
    clocks.jump(0.9 * MAX_CLOCK_JUMP_SECONDS)
    assert not store.read_clock().has_jumped
    clocks.wait(HOUR)
    clocks.jump(0.2 * MAX_CLOCK_JUMP_SECONDS)
    assert store.read_clock().has_jumped
    assert open_store().read_clock().has_jumped


def test_the_steady_clock_is_of_this_boot_and_goes_on() -> None:
    one = steady_clock()
    other = steady_clock()
    assert one.boot == other.boot
    assert 0 <= other.seconds - one.seconds < 5


def test_the_real_clock_is_guarded(new_store_url: Callable[[], str]) -> None:
    store = connect_store(new_store_url())
    store.now()
    reading = store.read_clock()
    assert reading.is_fresh
    assert abs(reading.ahead) < 5
    store.close()


@pytest.mark.thorough
def test_the_clock_of_the_database_server_is_watched_by_the_machine(
    new_postgres_url: Callable[[], str], clocks: Clocks, new_collection: NewCollection
) -> None:
    """Its own clock, which cannot be set here: so the other one is set back instead."""
    store = connect_store(new_postgres_url(), steady=clocks.steady)
    new_collection()  # the first one takes seconds: its task is planned
    digest = added(store, new_collection(lasts=2, longer=0))
    store.put(digest, fresh_entries(4))
    assert not store.read_clock().has_jumped
    clocks.seconds -= 4 * HOUR
    time.sleep(2.1)
    assert store.read_clock().ahead == pytest.approx(4 * HOUR, abs=60)
    assert store.seal(digest) == "open"
    clocks.seconds += 4 * HOUR
    assert store.seal(digest) == "sealed"
    store.close()


# Databases of before


@pytest.mark.thorough
def test_a_machine_that_is_new_to_a_database_compares_the_clock_of_the_server_with_its_own(
    new_postgres_url: Callable[[], str],
    new_collection: NewCollection,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A new machine has no steady clock of others and must not trust a server that jumped."""
    url = new_postgres_url()
    here = time.time()
    with closing(connect_store(url)) as first:
        new_collection()
        digest = added(first, new_collection(lasts=2, longer=0))
        first.put(digest, fresh_entries(4))
        before = first.read_clock()
        time.sleep(2.1)
        with monkeypatch.context() as patched:
            patched.setattr(
                "metricshuffle.collection.store.guarded_clock._boot", lambda: "another machine"
            )
            patched.setattr(
                time, "time", lambda: here - 4 * HOUR
            )  # (the server's cannot be set here)
            with closing(connect_store(url)) as second:
                assert second.read_clock().ahead == pytest.approx(4 * HOUR, abs=60)
                assert second.seal(digest) == "open"
                assert "jumped ahead by 4.0 hours" in second.confirm_clock()
                assert second.seal(digest) == "sealed"
        assert first.read_clock().ahead == pytest.approx(before.ahead, abs=60), (
            "whoever watched the clock all along is not misled"
        )


def test_a_database_of_the_first_format_is_brought_up_to_date(
    new_store_url: Callable[[], str], clocks: Clocks, new_collection: NewCollection
) -> None:
    """With what it holds; by whoever opens it first, and once."""
    url = new_store_url()
    collection = new_collection(opens=START, lasts=HOUR)
    _make_first_format(url)
    columns = new_row_columns(collection, collection.terms.hops[0].key)
    values = ", ".join(
        f"'{value}'" if isinstance(value, str) else str(value) for value in columns.values()
    )
    asked(url, f"INSERT INTO collection ({', '.join(columns)}) VALUES ({values})")  # noqa: S608
    hexadecimal = (
        f"X'{collection.served.hex()}'"
        if url.startswith("sqlite")
        else f"'\\x{collection.served.hex()}'"
    )
    asked(url, f"INSERT INTO served VALUES (1, {hexadecimal})")  # noqa: S608
    asked(url, f"UPDATE clock SET latest = {START + 5}")  # noqa: S608
    stores: list[Store] = []

    def take_over() -> None:
        if not url.startswith("sqlite"):
            assert migrate_database(url)[1] == latest_version("postgres")
        stores.append(connect_store(url, clocks, clocks.steady))

    threads = [threading.Thread(target=take_over) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(stores) == 4
    for store in stores:
        row = row_of(store, collection.digest)
        assert (row.served, row.clock, store.now()) == (collection.served, "", START + 5)
        assert store.put(collection.digest, [entry()]) == [Verdict.STORED]
        store.close()
    clocks.jump(4 * HOUR)
    again = connect_store(url, clocks, clocks.steady)
    assert again.read_clock().has_jumped
    assert row_of(again, collection.digest).reports == 4
    again.close()


def _make_first_format(url: str) -> None:
    if url.startswith("sqlite"):
        with closing(sqlite3.connect(url.removeprefix("sqlite:///"), isolation_level=None)) as db:
            for statement in (
                *migrations("sqlite")[0].statements(),
                f"PRAGMA application_id = {APPLICATION}",
                "PRAGMA user_version = 1",
            ):
                db.execute(statement)
        return
    import psycopg

    with psycopg.connect(url, autocommit=True) as db:
        db.execute(migrations("postgres")[0].sql.encode())


@check_all(
    ("seconds", "words"),
    [
        (0, "0 seconds"),
        (119, "119 seconds"),
        (600, "10.0 minutes"),
        (4 * HOUR, "4.0 hours"),
        (10 * YEAR, "10.0 years"),
    ],
)
def test_a_length_of_time_in_words(seconds: float, words: str) -> None:
    assert duration_text(seconds) == words


@pytest.mark.parametrize("limit", [0.0, -5.0, float("nan"), float("inf"), 2 * DAY])
def test_a_limit_that_is_none_is_refused(tmp_path: Path, limit: float) -> None:
    with pytest.raises(InputError, match="--clock-jump must be from 1 to 86,400 seconds"):
        connect_store(f"sqlite:///{tmp_path / 'shuffler.db'}", jump=limit)
