"""PostgreSQL faults: connections cut during commits, two servers, no response."""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest
from tests.collection.conftest import NewCollection
from tests.collection.running import (
    Running,
    load_task,
    new_tickets,
    post_report,
    report_of,
    running,
)
from tests.collection.store_contents import (
    added,
    asked,
    entry,
    fresh_tickets,
    held,
    past_the_store,
    stored_reports,
)

from metricshuffle.collection.keys import AnalystKey, KeyFolder
from metricshuffle.collection.store.factory import connect_store
from metricshuffle.collection.store.records import Entry, StoreError, Verdict

pytestmark = pytest.mark.thorough
CUT = (
    "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE application_name = "
    "'metricshuffle' AND {}"
)
BUSY = "datname = current_database() AND state <> 'idle'"


@contextmanager
def cutting(url: str, most: int = 10**6) -> Iterator[list[int]]:
    """Whoever is at work in a database is cut off, again and again; how many that were."""
    cut = [0]
    stop = threading.Event()

    def run() -> None:
        with past_the_store(url) as server:
            while not stop.wait(0.001 * secrets.randbelow(40)) and cut[0] < most:
                cut[0] += server.execute(CUT.format(BUSY)).fetchone()[0]

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield cut
    finally:
        stop.set()
        thread.join(30)


def test_connections_that_are_cut_in_a_batch_lose_and_double_nothing(
    new_postgres_url: Callable[[], str], new_collection: NewCollection
) -> None:
    """Two stores, four writers; a second report of a ticket in each batch never wins."""
    url = new_postgres_url()
    stores = [connect_store(url) for _ in range(2)]
    collection = new_collection(opens=time.time() - 1, lasts=1000, admission="tickets")
    tickets = fresh_tickets(4000)
    digest = added(stores[0], collection, tickets)
    told = dict[bytes, Entry]()
    failed = [0]

    def write(place: int) -> None:
        mine = [entry(ticket, 200) for ticket in tickets[place::4]]
        end = time.monotonic() + 6
        for start in range(0, len(mine), 25):
            batch = mine[start : start + 25]
            while time.monotonic() < end:
                try:
                    verdicts = stores[place % 2].put(digest, [*batch, entry(batch[3].ticket)])
                except StoreError:
                    failed[0] += 1
                    continue
                assert set(verdicts[:-1]) <= {Verdict.STORED, Verdict.SAME}
                assert verdicts[-1] is Verdict.SPENT_TICKET
                told.update({stored.tag: stored for stored in batch})
                break

    with cutting(url) as cut, ThreadPoolExecutor(4) as writers:
        list(writers.map(write, range(4)))
    assert cut[0] > 20
    assert failed[0] > 0
    left = held(url, collection)
    assert left.reports == left.spent == left.counted >= len(told) > 100
    assert (
        stored_reports(url).items() >= {tag: stored.hidden for tag, stored in told.items()}.items()
    )
    for store in stores:
        store.close()


def sent_until_stored(
    servers: list[Running], path: str, reports: list[bytes], until: float
) -> list[bytes]:
    """Send at either server until there is an answer; return acknowledged reports."""
    waiting = list(reports)
    stored = list[bytes]()
    turn = 0
    while waiting and time.monotonic() < until:
        turn += 1
        answers = post_report(servers[turn % 2].url + path, waiting[:20], 10).statuses
        assert set(answers) <= {204, 503, 0}
        done = {
            report for report, status in zip(waiting[:20], answers, strict=True) if status == 204
        }
        stored += done
        waiting = [report for report in waiting if report not in done]
    return stored


@pytest.mark.slow
def test_two_servers_on_one_database_whose_connections_are_cut(
    tmp_path: Path, new_postgres_url: Callable[[], str]
) -> None:
    """Acknowledged reports are released once; the driver is cut, and keys go before."""
    url = new_postgres_url()
    analyst = AnalystKey.new()
    with running(tmp_path / "one", url) as one:
        (tmp_path / "two").mkdir()
        (tmp_path / "two" / "keys").symlink_to(one.keys)
        with running(tmp_path / "two", url) as two:
            tickets = new_tickets(200)
            collection = one.opened(load_task(3), lasts=9, tickets=tickets, analyst=analyst)
            path = collection.url.removeprefix(one.url)
            reports = [report_of(collection, ticket) for ticket in tickets]
            keys = KeyFolder(one.keys).of(collection.terms.hops[0].key)
            assert keys is not None
            end = time.monotonic() + 7
            with cutting(url, 400) as cut:
                stored = sent_until_stored([one, two], path, reports, end)
                time.sleep(max(0.0, end + 3 - time.monotonic()))
            assert cut[0] > 10
            deadline = time.monotonic() + 90
            while (told := one.operator.status(collection.digest))["state"] in (
                "open",
                "sealed",
                "shuffled",
                "erased",
            ):
                assert time.monotonic() < deadline, told
                time.sleep(0.1)
            assert told["state"] == "released"
            assert KeyFolder(one.keys).names() == []
            fetched = {
                httpx.get(
                    f"{server.url}{path}/release",
                    headers={"Authorization": f"Bearer {analyst.token}"},
                ).content
                for server in (one, two)
            }
            size = collection.sealing.inner_size
            (output,) = fetched
            released = [output[start : start + size] for start in range(0, len(output), size)]
            boxes = {
                report: collection.sealing.open_report(report, keys.private)[1]
                for report in reports
            }
            inside = [report for report in reports if boxes[report][0] in set(released)]
            assert set(stored) <= set(inside)
            assert released == sorted(box for report in inside for box in boxes[report])
            assert told["people"] == len(inside)


def test_it_is_not_said_that_it_listens_before_a_call_is_answered(
    tmp_path: Path, new_postgres_url: Callable[[], str]
) -> None:
    """With a locked table the first line is printed only once calls are answered."""
    url = new_postgres_url()
    connect_store(url).close()
    folder = tmp_path / "s"
    folder.mkdir()
    shuffler = Running(folder, url)
    with ThreadPoolExecutor(1) as aside:
        with past_the_store(url) as holder:
            holder.execute("BEGIN")
            holder.execute("LOCK TABLE clock IN ACCESS EXCLUSIVE MODE")
            started = aside.submit(shuffler.start)
            try:
                blocked = (
                    "SELECT count(*) FROM pg_stat_activity WHERE application_name = "
                    "'metricshuffle' AND wait_event_type = 'Lock'"
                )
                deadline = time.monotonic() + 60
                while asked(url, blocked) != [(3,)]:  # (driver, sampler, and the first call)
                    assert time.monotonic() < deadline
                    assert not started.done()
                    time.sleep(0.05)
                time.sleep(4.0)
                assert not started.done()
            finally:
                holder.execute("COMMIT")
        try:
            started.result(60)
            assert httpx.get(f"{shuffler.url}/healthz").status_code == 200
        finally:
            shuffler.end()
