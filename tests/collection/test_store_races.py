"""Threads and killed processes on one database: nothing lost, doubled or added late."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.collection.conftest import Clock, NewCollection
from tests.collection.store_contents import (
    added,
    all_held,
    entry,
    fresh_entries,
    fresh_tickets,
    held,
    own_key,
    past_the_store,
)
from tests.collection.store_writer import BATCH, parse_ticket

from metricshuffle.collection.store.factory import connect_store
from metricshuffle.collection.store.records import DuplicateCollection, StoreError, Verdict
from metricshuffle.collection.store.sql_store import Store
from metricshuffle.collection.terms import Collection

ROOT = Path(__file__).parents[2]
STORED = Verdict.STORED
SAME = Verdict.SAME
SPENT = Verdict.SPENT_TICKET
SOON = 60.0
"""Seconds after which something hangs."""


def at_once(
    count: int, call: Callable[[int], Verdict | bool | str]
) -> Counter[Verdict | bool | str]:
    """What a call answers in as many threads as there are calls, all let go in the same moment."""
    opener = threading.Barrier(count)

    def waited(number: int) -> Verdict | bool | str:
        opener.wait(SOON)
        return call(number)

    with ThreadPoolExecutor(count) as threads:
        return Counter(threads.map(waited, range(count), timeout=SOON))


@pytest.mark.parametrize("stores", [1, 4])
def test_the_same_report_from_64_threads_is_one(
    store: Store, store_url: str, clock: Clock, new_collection: NewCollection, stores: int
) -> None:
    """In one store, and in several that share the database."""
    collection = new_collection(admission="tickets")
    tickets = fresh_tickets(10)
    digest = added(store, collection, tickets)
    several = [store, *(connect_store(store_url, clock) for _ in range(stores - 1))]
    for number, ticket in enumerate(tickets, 1):
        report = entry(ticket)
        answers = at_once(
            64,
            lambda thread, report=report: several[thread % stores].put(digest, [report])[0],  # type: ignore[misc]
        )
        assert answers == {STORED: 1, SAME: 63}
        assert (held(store_url, collection).reports, held(store_url, collection).spent) == (
            number,
            number,
        )
    assert held(store_url, collection).counted == 10
    for one in several[1:]:
        one.close()


@pytest.mark.parametrize("stores", [1, 4])
def test_sixteen_reports_with_one_ticket_are_one(
    store: Store, store_url: str, clock: Clock, new_collection: NewCollection, stores: int
) -> None:
    collection = new_collection(admission="tickets")
    tickets = fresh_tickets(10)
    digest = added(store, collection, tickets)
    several = [store, *(connect_store(store_url, clock) for _ in range(stores - 1))]
    for ticket in tickets:
        answers = at_once(
            16,
            lambda thread, ticket=ticket: several[thread % stores].put(digest, [entry(ticket)])[0],  # type: ignore[misc]
        )
        assert answers == {STORED: 1, SPENT: 15}
    left = held(store_url, collection)
    assert (left.reports, left.spent, left.counted) == (10, 10, 10)
    for one in several[1:]:
        one.close()


def test_the_last_places_are_given_once(
    store: Store, store_url: str, new_collection: NewCollection
) -> None:
    collection = new_collection(maximum=10)
    digest = added(store, collection)
    answers = at_once(32, lambda _: store.put(digest, [entry()])[0])
    assert answers == {STORED: 10, Verdict.FULL: 22}
    assert held(store_url, collection).reports == 10


def test_one_of_many_steps_is_taken(
    store: Store, store_url: str, clock: Clock, new_collection: NewCollection
) -> None:
    digest = added(store, new_collection())
    other = connect_store(store_url, clock)
    answers = at_once(
        16,
        lambda number: (store, other)[number % 2].move(
            digest, "open", "aborted", reason=f"{number}"
        ),
    )
    assert answers == {True: 1, False: 15}
    other.close()


def test_one_of_many_collections_of_a_round_is_added(
    store: Store, store_url: str, clock: Clock, new_collection: NewCollection
) -> None:
    """Also for different parts: a round split into two is not split into three."""
    other = connect_store(store_url, clock)
    for attempt, splits in enumerate(
        [[(1, 1)] * 8, [(part, parts) for parts in (2, 3, 4, 5) for part in (1, 2)]], 1
    ):
        collections = [new_collection(round=attempt, split=split) for split in splits]

        def add(number: int, collections: list[Collection] = collections) -> str:
            try:
                collection = collections[number]
                return str((store, other)[number % 2].add(collection, own_key(collection)))
            except DuplicateCollection:
                return "second"

        answers = at_once(8, add)
        assert answers == {"True": attempt, "second": 8 - attempt}
    other.close()


def test_puts_that_race_with_sealing_are_in_or_answered_closed(
    store: Store, clock: Clock, new_collection: NewCollection
) -> None:
    """Three times the closing time comes while eight threads write and two look."""
    for number in (1, 2, 3):
        digest = added(store, new_collection(round=number))
        store.put(digest, first := fresh_entries(4))
        in_time = {one.tag for one in first}

        def write(thread: int, digest: str = digest, in_time: set[bytes] = in_time) -> bool:
            if thread >= 8:
                while store.seal(digest) == "open":
                    time.sleep(0.001)
                return True
            for _ in range(1000):
                entries = fresh_entries(3)
                verdicts = store.put(digest, entries)
                assert len(set(verdicts)) == 1
                if verdicts[0] is Verdict.CLOSED:
                    return True
                in_time.update(one.tag for one in entries)
                if len(in_time) > 40:
                    clock.ahead += 150
            return False

        assert at_once(10, write) == {True: 10}
        assert {tag for tag, _ in store.hidden(digest)} == in_time


# Processes


Process = subprocess.Popen[str]


@contextmanager
def processes(count: int) -> Iterator[list[Process]]:
    """So many, ready to be told what to do, and killed in the end."""
    words = [sys.executable, "-m", "tests.collection.store_writer"]
    running = [
        subprocess.Popen(words, cwd=ROOT, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        for _ in range(count)
    ]
    try:
        for process in running:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
        yield running
    finally:
        for process in running:
            process.kill()
            process.communicate()


def tell(process: Process, *words: str) -> None:
    assert process.stdin is not None
    print(*words, file=process.stdin, flush=True)


def look_until(over: Callable[[], bool], url: str, collection: Collection) -> int:
    """Compare reports, spent tickets and count in snapshots; return their number."""
    moments = 0
    with past_the_store(url) as connection:
        while not over():
            left = all_held(connection)[collection.digest]
            assert left.reports == left.spent == left.counted
            moments += 1
    return moments


@pytest.mark.thorough
def test_a_writer_that_is_killed_leaves_whole_transactions(
    store_url: str, new_collection: NewCollection
) -> None:
    """Five times: acknowledged reports are there, one spent ticket per report, always."""
    store = connect_store(store_url)
    kills = 5
    tickets = [
        parse_ticket(f"life{life}", number) for life in range(kills) for number in range(5_000)
    ]
    collection = new_collection(opens=time.time() - 1, lasts=1000, admission="tickets")
    digest = added(store, collection, tickets)
    told = set[str]()
    moments = 0
    with processes(kills) as lives:
        for life, running in enumerate(lives):
            tell(running, "write", store_url, digest, f"life{life}")
            assert running.stdout is not None
            lines = [running.stdout.readline()]
            threading.Timer(random.uniform(0.1, 0.5), running.send_signal, [signal.SIGKILL]).start()
            with ThreadPoolExecutor(1) as reader:
                reading = reader.submit(list, running.stdout)
                moments += look_until(reading.done, store_url, collection)
                lines += reading.result()
            assert running.wait(SOON) == -signal.SIGKILL
            told.update(tag for line in lines if line.endswith("\n") for tag in line.split())
            left = held(store_url, collection)
            assert left.reports == left.spent == left.counted
            assert (
                len(told) <= left.reports <= len(told) + (life + 1) * BATCH
            )  # (what was under way when it was killed, at most)
    assert moments >= 20
    assert store.put(digest, fresh_entries(1)) == [Verdict.UNKNOWN_TICKET]
    with pytest.raises(StoreError, match="not sealed"):
        next(store.hidden(digest))
    store.close()
    late = connect_store(store_url, lambda: time.time() + 3000)
    assert late.seal(digest) == "sealed"
    hidden = {tag.hex() for tag, _ in late.hidden(digest)}
    assert told <= hidden
    assert len(hidden) == left.reports
    late.close()


@pytest.mark.thorough
def test_processes_that_race_with_the_closing_time_lose_and_add_nothing(
    store_url: str, new_collection: NewCollection
) -> None:
    """Three writers and two drivers, by the real clock."""
    store = connect_store(store_url)
    with processes(5) as [*writers, first, second]:
        digest = added(store, new_collection(opens=time.time() - 1, lasts=4, longer=0))
        for driver in (first, second):
            tell(driver, "seal", store_url, digest)
        for number, writer in enumerate(writers):
            tell(writer, "write", store_url, digest, f"{number}")
        told = [writer.communicate(timeout=SOON)[0].split() for writer in writers]
        ends = [driver.communicate(timeout=SOON)[0].split() for driver in (first, second)]
        assert [writer.returncode for writer in writers] == [0, 0, 0]
    assert ends == [["sealed"], ["sealed"]]
    tags = [tag for writer in told for tag in writer]
    assert len(set(tags)) == len(tags) > 100
    assert sorted(tag.hex() for tag, _ in store.hidden(digest)) == sorted(tags)
    store.close()


@pytest.mark.thorough
def test_many_processes_may_open_a_new_database_at_once(store_url: str) -> None:
    with processes(4) as running:
        for process in running:
            tell(process, "look", store_url)
        assert [process.communicate(timeout=SOON)[0] for process in running] == ["0\n"] * 4
