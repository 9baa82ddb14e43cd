"""Tables of a collection: known tags, migrations, and collections of the layout before."""

from __future__ import annotations

import contextlib
import secrets
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.collection.conftest import Clock, NewCollection
from tests.collection.store_contents import (
    added,
    asked,
    back_to_format_4,
    entry,
    fresh_entries,
    fresh_tickets,
    held,
)

from metricshuffle.collection.shuffler.admission import STEPS
from metricshuffle.collection.store import known_tags
from metricshuffle.collection.store.factory import connect_store, migrate_database
from metricshuffle.collection.store.known_tags import KnownTags
from metricshuffle.collection.store.records import STATES, StoreError, Verdict
from metricshuffle.collection.store.schema_versions import latest_version, migrations
from metricshuffle.collection.store.sql_store import Store
from metricshuffle.collection.store.sqlite_file import JOURNAL_BYTES
from metricshuffle.errors import InputError

STORED = Verdict.STORED
SAME = Verdict.SAME


def test_known_tags_are_a_set(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also of tags with zeros at their end, which numpy leaves out."""
    monkeypatch.setattr(known_tags, "MAX_RECENT_TAGS", 7)
    known = KnownTags()
    expected: set[bytes] = set()
    for size in (1, 3, 5, 20, 2, 40):
        tags = {secrets.token_bytes(secrets.randbelow(16)).ljust(16, b"\0") for _ in range(size)}
        fresh = tags - expected
        assert known.known(tags) == tags & expected
        known.add(fresh)
        expected |= fresh
        assert known.known(expected) == expected
        assert len(known) == len(expected)
    assert known.known([]) == set()
    assert known.known(secrets.token_bytes(16) for _ in range(50)) == set()


def test_what_was_rolled_back_is_not_known(tmp_path: Path, new_collection: NewCollection) -> None:
    """And what others stored at the same places is."""
    store, other = (connect_store(f"sqlite:///{tmp_path}/shuffler.db") for _ in range(2))
    digest = added(store, new_collection())
    first, undone, theirs = fresh_entries(3)
    assert store.put(digest, [first]) == [STORED]
    with store._database.writing() as db:
        rules = store._load_rules(db, digest, lock=True)
        assert db.find_reports(rules, [first, undone]) == {first.tag}
        db.store_reports(rules, 0.0, [undone])
        db.execute("ROLLBACK")
        db.execute("BEGIN")
    assert other.put(digest, [theirs, first]) == [STORED, SAME]
    assert store.put(digest, [theirs, undone, first]) == [SAME, STORED, SAME]
    assert other.put(digest, [undone]) == [SAME]
    store.close()
    other.close()


@pytest.mark.parametrize("page", [4096, 16384])
def test_a_report_is_written_at_most_four_times_its_length(
    tmp_path: Path, new_collection: NewCollection, page: int
) -> None:
    """Into the journal and from there into the file; in pages of an older file more often."""
    path = tmp_path / "shuffler.db"
    with contextlib.closing(sqlite3.connect(path)) as db:
        db.execute(f"PRAGMA page_size = {page}")
        db.execute("PRAGMA journal_mode = WAL")
    path.chmod(0o600)
    store = connect_store(f"sqlite:///{path}")
    digest = added(store, new_collection(maximum=5_000))
    store.forget_deleted()
    before = path.stat().st_size
    lengths = 0
    for _ in range(60):
        entries = fresh_entries(64, 602)
        assert store.put(digest, entries) == [STORED] * 64
        lengths += sum(len(entry.hidden) for entry in entries)
    written = path.with_name(f"{path.name}-wal").stat().st_size
    store.forget_deleted()
    times = (written + path.stat().st_size - before) / lengths
    assert times < 4 if page == 4096 else 4 < times < 6
    with store._database.writing() as transaction:
        [pages] = transaction.execute("PRAGMA wal_autocheckpoint").fetchone()
    assert pages * page == JOURNAL_BYTES
    store.close()


def test_the_migrations_of_both_databases_have_the_states_and_steps_of_the_rules() -> None:
    for kind in ("sqlite", "postgres"):
        first = migrations(kind)[0].sql
        assert f"CHECK (state IN {STATES})" in first
        assert ", ".join(map(str, STEPS)) in first
    assert latest_version("sqlite") == len(migrations("sqlite"))


def test_a_collection_of_the_layout_before_ends_under_it(
    new_store_url: Callable[[], str], clock: Clock, new_collection: NewCollection
) -> None:
    url = new_store_url()
    store = connect_store(url, clock)
    collection = new_collection(admission="tickets")
    tickets = fresh_tickets(6)
    digest = added(store, collection, tickets)
    before = [entry(ticket) for ticket in tickets[:3]]
    assert store.put(digest, before) == [STORED] * 3
    store.close()
    back_to_format_4(url)
    if not url.startswith("sqlite"):
        with pytest.raises(StoreError, match="metricshuffle migrate"):
            connect_store(url, clock)
        assert migrate_database(url) == (4, latest_version("postgres"))
        assert migrate_database(url) == (latest_version("postgres"),) * 2
    store = connect_store(url, clock)
    after = [entry(ticket) for ticket in tickets[3:5]]
    assert store.put(digest, [before[0], *after, entry(tickets[0])]) == [
        SAME,
        STORED,
        STORED,
        Verdict.SPENT_TICKET,
    ]
    later = added(store, new_collection(round=2))
    assert store.put(later, fresh_entries(5)) == [STORED] * 5
    assert asked(url, "SELECT layout FROM collection ORDER BY id") == [(1,), (2,)]
    clock.ahead = 150
    for one, count in ((digest, 5), (later, 5)):
        assert store.seal(one) == "sealed"
        assert len(list(store.hidden(one))) == count
    assert dict(store.hidden(digest)) == {one.tag: one.hidden for one in before + after}
    assert store.move(digest, "sealed", "aborted", reason="enough")
    assert (held(url, collection).reports, held(url, collection).tickets) == (0, 0)
    assert len(list(store.hidden(later))) == 5
    store.close()


def test_a_file_is_not_migrated_by_the_command(store_url: str) -> None:
    if store_url.startswith("sqlite"):
        with pytest.raises(InputError, match="when serve opens it"):
            migrate_database(store_url)


def test_a_second_process_knows_what_the_first_has_stored(
    store: Store, store_url: str, clock: Clock, new_collection: NewCollection
) -> None:
    digest = added(store, new_collection())
    entries = fresh_entries(20)
    other = connect_store(store_url, clock)
    for number, one in enumerate(entries):
        assert (store, other)[number % 2].put(digest, [one]) == [STORED]
        assert (other, store)[number % 2].put(digest, [one]) == [SAME]
    other.close()
