"""Databases that are older than the keys of a hub: nothing is leased, closed or destroyed."""

from __future__ import annotations

import contextlib
import secrets
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from tests.collection.conftest import NewCollection
from tests.collection.many_hosts import many_hosts
from tests.collection.postgres_pair import PostgresPair, new_database
from tests.collection.running import load_task, post_report, report_of
from tests.collection.store_contents import added
from tests.collection.test_many_hosts import sent_until_acknowledged
from tests.tables import check_all

from metricshuffle.collection.hub.lease_list import LeaseList
from metricshuffle.collection.store.database_history import HistoryMark
from metricshuffle.collection.store.part_store import HubStore, connect_parts
from metricshuffle.collection.store.records import DatabaseRolledBack
from metricshuffle.errors import InputError

MARK = HistoryMark("7", 2, 1000, 10)
SOON = 60.0


@check_all(
    ("database", "reason"),
    [
        (MARK, ""),
        (HistoryMark("7", 3, 1001, 11), ""),
        (HistoryMark("8", 2, 1000, 10), "another database"),
        (HistoryMark("7", 1, 2000, 20), "timeline is older"),
        (HistoryMark("7", 3, 999, 20), "journal is behind"),
        (HistoryMark("7", 3, 2000, 9), "lacks steps"),
    ],
)
def test_what_does_not_go_on_from_the_record_is_refused(database: HistoryMark, reason: str) -> None:
    trouble = MARK.trouble(database)
    assert reason in trouble
    assert bool(trouble) == bool(reason)


def test_the_record_is_beside_the_keys(tmp_path: Path) -> None:
    leases = LeaseList.at(tmp_path, create=True)
    assert leases is not None
    assert leases.mark() is None
    for mark in (MARK, HistoryMark("7", 3, 2**62, 11)):
        leases.record(mark)
        assert leases.mark() == mark
    again = LeaseList.at(tmp_path)
    assert again is not None
    assert again.mark() == mark


@contextlib.contextmanager
def hub_of(pair: PostgresPair, keys: Path, *, accept_loss: bool = False) -> Iterator[HubStore]:
    record = LeaseList.at(keys, create=True)
    store = connect_parts(pair.url, is_hub=True, accept_loss=accept_loss, jump=300, record=record)
    assert isinstance(store, HubStore)
    try:
        yield store
    finally:
        store.close()


@pytest.mark.thorough
def test_an_asynchronous_standby_that_takes_over_is_refused(
    pair: PostgresPair, tmp_path: Path, new_collection: NewCollection
) -> None:
    """And one that has everything is taken, although its timeline is another one."""
    new_database(pair)
    with hub_of(pair, tmp_path) as hub:
        digest = added(hub, new_collection(opens=time.time() - 1))
        pair.kill_primary()
        pair.promote()
        pair.add_standby()
        assert hub.history_trouble() == ""
        hub.confirm(digest, "open")
    # From here on the standby is asynchronous, and away for a while.
    pair.set_standby_names("")
    time.sleep(0.5)
    standby = pair.kill(1)
    with hub_of(pair, tmp_path, accept_loss=True) as hub:
        assert hub.move(digest, "open", "aborted", reason="enough")
    pair.kill_primary()
    pair.start_server(*standby)
    pair.promote()
    pair.set_standby_names(pair.standby_names)
    pair.add_standby()
    with hub_of(pair, tmp_path) as hub:
        assert "lacks steps" in hub.history_trouble()
        state = hub.row(digest)
        assert state is not None
        assert state.state == "open"
        for effect in (
            lambda: hub.confirm(digest, "open"),
            lambda: hub.add_part(digest, secrets.token_bytes(16)),
            lambda: hub.move(digest, "open", "aborted", reason="another"),
            hub.check_writing,
        ):
            with pytest.raises(DatabaseRolledBack, match="collection database accept"):
                effect()
        assert pair.ask("SELECT count(*) FROM part") == [(0,)]
        note = hub.accept_database()
        row = hub.row(digest)
        assert row is not None
        assert row.leases.strip() == note
        assert hub.history_trouble() == ""
        assert hub.add_part(digest, secrets.token_bytes(16)) is not None
        with pytest.raises(InputError, match="the one that this hub wrote to last"):
            hub.accept_database()


@pytest.mark.slow
def test_a_hub_on_a_restored_base_backup_waits_for_its_operator(
    pair: PostgresPair, tmp_path: Path
) -> None:
    new_database(pair)
    with many_hosts(tmp_path, pair.url, 1, lease=10) as hosts:
        [edge] = hosts.edges
        collection = hosts.hub.opened(load_task(3), lasts=600)
        early = [report_of(collection) for _ in range(5)]
        path = hosts.url(0, collection.digest)
        sent_until_acknowledged(hosts, collection, early)
        backup = pair.back_up()
        late = [report_of(collection) for _ in range(5)]
        sent_until_acknowledged(hosts, collection, late)
        hosts.hub.opened(load_task(3), lasts=600, round=2)
        pair.restore(backup)
        keys = set(hosts.hub.keys.glob("*.key"))
        end = time.monotonic() + SOON
        while not hosts.hub.operator.database()["trouble"]:
            assert time.monotonic() < end
            time.sleep(0.2)
        statuses = [204]
        while 503 not in statuses:  # the lease is not renewed any more
            assert time.monotonic() < end, edge.log
            time.sleep(0.5)
            statuses = post_report(path, late[:1]).statuses
        state = hosts.hub.operator.status(collection.digest)
        assert state["state"] == "open"
        assert "collection database accept" in state["trouble"]
        assert httpx.get(f"{hosts.hub.url}/readyz").status_code == 503
        with pytest.raises(Exception, match="collection database accept"):
            hosts.hub.operator.abort(collection.digest, "another reason")
        assert set(hosts.hub.keys.glob("*.key")) == keys
        note = hosts.hub.operator.accept_database()["note"]
        hosts.hub.operator.abort(collection.digest, "its database was lost")
        state = httpx.get(f"{hosts.hub.url}/v1/collections/{collection.digest}/state").json()
        assert state["state"] == "aborted"
        assert note in state["leases"]
