"""Parts of leases: what is acknowledged, what closing waits for, and constructions that lose.

Each test of a construction that was refuted shows that it does lose, and that ours does not.
"""

from __future__ import annotations

import hashlib
import secrets
import signal
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from uuid import UUID

import httpx
import pytest
from tests.collection.conftest import NewCollection
from tests.collection.postgres_pair import PostgresPair, new_database
from tests.collection.running import run_aside
from tests.collection.store_contents import added, entry, fresh_tickets

from metricshuffle.collection.keys import AnalystKey, CollectionKeys, KeyFolder, analyst_of
from metricshuffle.collection.shuffler.lifecycle import Shuffler
from metricshuffle.collection.shuffler.routes import build_application
from metricshuffle.collection.store.part_store import EdgeStore, HubStore, connect_parts
from metricshuffle.collection.store.records import Entry, StoreError, Verdict

pytestmark = pytest.mark.thorough
STORED = Verdict.STORED
SAME = Verdict.SAME
SOON = 60.0


@pytest.fixture
def stores(pair: PostgresPair) -> Iterator[Callable[[bool], Any]]:
    """Stores of a hub (True) and of edges, on an empty database."""
    new_database(pair)
    opened = []

    def new(is_hub: bool) -> Any:
        store = connect_parts(pair.url, is_hub=is_hub, accept_loss=False, jump=300)
        opened.append(store)
        return store

    yield new
    for store in opened:
        store.close()


def leased(hub: HubStore, digest: str) -> bytes:
    lease = secrets.token_bytes(16)
    assert hub.add_part(digest, lease) is not None
    return lease


def of(lease: bytes, ticket: bytes = b"") -> Entry:
    one = entry(ticket)
    return Entry(one.tag, ticket, one.hidden, lease)


def test_a_report_is_one_at_all_edges(
    stores: Callable[[bool], Any], new_collection: NewCollection
) -> None:
    hub, first, second = stores(True), stores(False), stores(False)
    digest = added(hub, new_collection(opens=time.time() - 1))
    one, two = leased(hub, digest), leased(hub, digest)
    report = of(one)
    again = Entry(report.tag, b"", report.hidden, two)
    assert first.put(digest, [report, report, of(one)]) == [STORED, SAME, STORED]
    assert second.put(digest, [again, of(two), again]) == [SAME, STORED, SAME]
    assert hub.part(one).reports == 2
    assert hub.part(two).reports == 1
    assert first.put(digest, [of(two), of(one)]) == [STORED] * 2  # leases of two openers


def test_a_ticket_is_spent_once_at_all_edges(
    stores: Callable[[bool], Any], new_collection: NewCollection
) -> None:
    hub, edges = stores(True), [stores(False) for _ in range(3)]
    tickets = fresh_tickets(40)
    digest = added(hub, new_collection(opens=time.time() - 1, admission="tickets"), tickets)
    leases = [leased(hub, digest) for _ in edges]
    nobodys = of(leases[0], secrets.token_bytes(16))
    assert edges[0].put(digest, [nobodys]) == [Verdict.UNKNOWN_TICKET]

    def send(number: int) -> list[Verdict]:
        batch = [of(leases[number], ticket) for ticket in tickets]
        if number == 1:
            batch.reverse()  # which would deadlock without an order of locks
        return list(edges[number].put(digest, batch))

    with ThreadPoolExecutor(3) as threads:
        answers = [verdict for verdicts in threads.map(send, range(3)) for verdict in verdicts]
    assert answers.count(STORED) == 40
    assert answers.count(Verdict.SPENT_TICKET) == 80


def test_room_is_given_in_blocks_and_never_beyond_the_maximum(
    stores: Callable[[bool], Any], new_collection: NewCollection
) -> None:
    hub, edge = stores(True), stores(False)
    digest = added(hub, new_collection(opens=time.time() - 1, maximum=20))
    one, two = leased(hub, digest), leased(hub, digest)
    reports = [of(one) for _ in range(8)]
    assert edge.put(digest, reports) == [Verdict.FULL] * 8  # 5 of 20
    assert edge.put(digest, reports[:5]) == [STORED] * 5
    assert edge.put(digest, reports) == [SAME] * 5 + [Verdict.FULL] * 3
    stored = 5
    for lease in (one, two) * 30:
        hub.add_room(digest, lease)
        stored += edge.put(digest, [of(lease)]).count(STORED)
        assert hub.part(one).room + hub.part(two).room <= 20
    assert stored == 20 == hub.part(one).reports + hub.part(two).reports
    count = hub.part(one).reports
    hub.end_part(digest, one)
    assert hub.row(digest).reports == count
    with pytest.raises(StoreError, match="lease of this edge has ended"):
        edge.put(digest, [reports[0]])


def test_the_lease_of_an_aborted_collection_ends(
    stores: Callable[[bool], Any], new_collection: NewCollection
) -> None:
    """Otherwise its keys would never be destroyed."""
    hub, edge = stores(True), stores(False)
    digest = added(hub, new_collection(opens=time.time() - 1))
    lease = leased(hub, digest)
    assert edge.put(digest, [of(lease)]) == [STORED]
    assert hub.move(digest, "open", "aborted", reason="enough")
    with pytest.raises(StoreError):
        edge.put(digest, [of(lease)])
    hub.end_part(digest, lease)
    assert hub.part(lease).ended


def test_closing_counts_every_part_and_an_extension_opens_those_of_living_leases(
    stores: Callable[[bool], Any], new_collection: NewCollection
) -> None:
    hub, edge = stores(True), stores(False)
    digest = added(hub, new_collection(opens=time.time() - 1, lasts=3, longer=3))
    one, two, dead = (leased(hub, digest) for _ in range(3))
    assert edge.put(digest, [of(one), of(two)]) == [STORED] * 2  # fewer than 4
    assert edge.put(digest, [of(dead)]) == [STORED]
    hub.end_part(digest, dead)
    while hub.now() < hub.row(digest).until:
        time.sleep(0.05)
    with pytest.raises(StoreError, match="counted"):
        edge.put(digest, [of(one)])
    assert not hub.awaits_count(digest)
    assert hub.seal(digest) == "open"
    assert hub.row(digest).reports == 3
    assert not hub.part(one).closed
    assert hub.part(dead).closed
    hub.add_room(digest, one)
    assert edge.put(digest, [of(one)]) == [STORED]
    with pytest.raises(StoreError):
        edge.put(digest, [of(dead)])
    while hub.now() < hub.row(digest).until:
        time.sleep(0.05)
    assert hub.seal(digest) == "sealed"
    assert hub.row(digest).reports == 4 == len(list(hub.hidden(digest)))


def test_enough_reports_with_an_extension_left_are_counted_first(
    stores: Callable[[bool], Any], new_collection: NewCollection
) -> None:
    hub, edge = stores(True), stores(False)
    digest = added(hub, new_collection(opens=time.time() - 1, lasts=2, longer=30))
    lease = leased(hub, digest)
    assert edge.put(digest, [of(lease) for _ in range(5)]) == [STORED] * 5
    while hub.now() < hub.row(digest).until:
        time.sleep(0.05)
    assert hub.awaits_count(digest)
    assert hub.part(lease).closed
    assert len(list(hub.hidden(digest))) == 5
    with pytest.raises(StoreError, match="counted"):
        edge.put(digest, [of(lease)])
    assert hub.seal(digest, 3) == "open"  # two share a box
    assert edge.put(digest, []) == []
    hub.add_room(digest, lease)
    assert edge.put(digest, [of(lease)]) == [STORED]


def test_writers_that_race_with_closing_are_counted_or_not_acknowledged(
    stores: Callable[[bool], Any], new_collection: NewCollection
) -> None:
    hub, edges = stores(True), [stores(False) for _ in range(4)]
    digest = added(hub, new_collection(opens=time.time() - 1, lasts=4, longer=0))
    acknowledged: list[list[bytes]] = [[] for _ in edges]

    def write(number: int) -> None:
        lease = leased(hub, digest)
        try:
            while True:
                batch = [of(lease) for _ in range(8)]
                hub.add_room(digest, lease)
                assert edges[number].put(digest, batch) == [STORED] * 8
                acknowledged[number] += [one.tag for one in batch]
        except StoreError:
            pass

    with ThreadPoolExecutor(4) as threads:
        running = [threads.submit(write, number) for number in range(4)]
        while hub.seal(digest) == "open":
            time.sleep(0.01)
        for one in running:
            one.result(SOON)
    names = {label[16:] for label, _ in hub.hidden(digest)}
    tags = {tag for one in acknowledged for tag in one}
    assert tags <= names
    assert hub.row(digest).reports == len(names) >= len(tags) > 100


def test_a_promotion_while_parts_are_closed_loses_and_doubles_nothing(
    pair: PostgresPair, stores: Callable[[bool], Any], new_collection: NewCollection
) -> None:
    """Writers, closing and the loss of the primary within the same moments."""
    hub, edges = stores(True), [stores(False) for _ in range(3)]
    digest = added(hub, new_collection(opens=time.time() - 1, lasts=10, longer=0))
    until = hub.row(digest).until
    leases = [leased(hub, digest) for _ in edges]
    acknowledged: list[set[bytes]] = [set() for _ in edges]
    is_over = threading.Event()

    def write(number: int) -> None:
        lease = leases[number]
        batch: list[Entry] = []
        while not is_over.is_set():
            batch = batch or [of(lease) for _ in range(8)]
            with suppress(StoreError):
                hub.add_room(digest, lease)
                answers = edges[number].put(digest, batch)
                assert set(answers) <= {STORED, SAME}
                acknowledged[number] |= {report.tag for report in batch}
                batch = []

    def close() -> None:
        while not is_over.is_set():
            with suppress(StoreError):
                if hub.seal(digest) != "open":
                    is_over.set()
            time.sleep(0.02)

    with ThreadPoolExecutor(4) as threads:
        jobs = [threads.submit(write, number) for number in range(3)]
        time.sleep(max(0.0, until - 0.2 - time.time()))
        jobs.append(threads.submit(close))
        time.sleep(max(0.0, until + 0.02 - time.time()))
        pair.kill_primary()
        pair.promote()
        pair.add_standby()
        for job in jobs:
            job.result(SOON)
    names = [label[16:] for label, _ in hub.hidden(digest)]
    assert len(names) == len(set(names)) == hub.row(digest).reports
    assert set().union(*acknowledged) <= set(names)
    assert len(names) > 100


# Constructions that were refuted


def test_known_reports_wait_for_the_standby_too(
    pair: PostgresPair, stores: Callable[[bool], Any], new_collection: NewCollection
) -> None:
    """A transaction that only reads answers while the standby is down; ours does not."""
    hub, edge, other = stores(True), stores(False), stores(False)
    digest = added(hub, new_collection(opens=time.time() - 1))
    lease = leased(hub, digest)
    report = of(lease)
    pair.signal_standby(signal.SIGSTOP)
    answers: list[object] = []

    def send(store: EdgeStore) -> None:
        try:
            answers.append(store.put(digest, [report]))
        except StoreError as error:
            answers.append(error)

    try:
        first = threading.Thread(target=send, args=(edge,))
        first.start()
        wait_for_sync(pair)
        # Its wait is ended: the report is visible here, and on no standby.
        pair.ask(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE wait_event = 'SyncRep'"
        )
        first.join(SOON)
        assert isinstance(answers[0], StoreError)
        name = UUID(bytes=report.tag)
        known = pair.ask("SELECT count(*) FROM admitted_1 WHERE name = %s", None, name)
        assert known == [(1,)]  # which the refuted construction answers by 204
        second = threading.Thread(target=send, args=(other,))
        second.start()
        second.join(1.5)
        assert second.is_alive()
    finally:
        pair.signal_standby(signal.SIGCONT)
    second.join(SOON)
    assert answers[1] == [SAME]


@contextmanager
def visible_on_the_primary_only(pair: PostgresPair, write: Callable[[], object]) -> Iterator[None]:
    """What `write` does is visible here and on no standby, until the context is left."""

    def run() -> None:
        with pytest.raises(StoreError):
            write()

    pair.signal_standby(signal.SIGSTOP)
    try:
        writer = threading.Thread(target=run)
        writer.start()
        wait_for_sync(pair)
        pair.ask(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE wait_event = 'SyncRep'"
        )
        writer.join(SOON)
        yield
    finally:
        pair.signal_standby(signal.SIGCONT)


def waiting(ask: Callable[[], object]) -> Future[object]:
    """Answer to a question that is not answered while the standby is stopped."""
    answer: Future[object] = Future()
    threading.Thread(target=lambda: answer.set_result(ask()), daemon=True).start()
    with pytest.raises(TimeoutError):
        answer.result(1.5)
    return answer


def test_a_witness_signs_only_what_a_standby_has(
    pair: PostgresPair, stores: Callable[[bool], Any]
) -> None:
    """Otherwise another output could be countersigned after a promotion."""
    witness, other = stores(True), stores(True)
    asked = ("c" * 64, "a" * 64)
    with visible_on_the_primary_only(pair, lambda: witness.first_output(*asked, "1" * 64)):
        assert pair.ask("SELECT output FROM witnessed") == [("1" * 64,)]
        known = waiting(lambda: other.first_output(*asked))
    assert known.result(SOON) == "1" * 64
    assert other.first_output(*asked, "2" * 64) == "1" * 64


def test_a_release_is_answered_only_once_a_standby_has_its_state(
    pair: PostgresPair, stores: Callable[[bool], Any], new_collection: NewCollection, tmp_path: Path
) -> None:
    hub = stores(True)
    shuffler = Shuffler(stores(True), KeyFolder.at(tmp_path / "keys"))
    analyst = AnalystKey.new()
    collection = new_collection(
        opens=time.time() - 1, lasts=3, longer=0, analyst=analyst_of(analyst.public)
    )
    digest = added(hub, collection)
    edge, lease = stores(False), leased(hub, digest)
    assert edge.put(digest, [of(lease) for _ in range(4)]) == [STORED] * 4
    while hub.seal(digest) != "sealed":
        time.sleep(0.1)
    hub.keep_output(digest, [b"messages"])
    assert hub.move(digest, "sealed", "shuffled", people=4, left_out=0, output="1" * 64)
    assert hub.move(digest, "shuffled", "erased")

    async def untroubled() -> str:
        return ""

    def fetch() -> int:
        async def ask() -> int:
            transport = httpx.ASGITransport(build_application(shuffler, untroubled))
            async with httpx.AsyncClient(transport=transport, base_url="http://hub") as client:
                token = {"Authorization": f"Bearer {analyst.token}"}
                async with client.stream(
                    "GET", f"/v1/collections/{digest}/release", headers=token
                ) as answer:
                    return answer.status_code

        return run_aside(ask())

    assert fetch() == 425
    with visible_on_the_primary_only(pair, lambda: hub.move(digest, "erased", "released")):
        assert pair.ask("SELECT state FROM collection") == [("released",)]
        answer = waiting(fetch)
    assert answer.result(SOON) == 200


def wait_for_sync(pair: PostgresPair) -> None:
    end = time.monotonic() + SOON
    while pair.ask("SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'SyncRep'") == [(0,)]:
        assert time.monotonic() < end
        time.sleep(0.02)


def test_a_warning_at_the_commit_is_no_acknowledgement(
    pair: PostgresPair, stores: Callable[[bool], Any], new_collection: NewCollection
) -> None:
    """A cancelled wait for the standby returns success with a warning."""
    import psycopg

    hub, edge = stores(True), stores(False)
    digest = added(hub, new_collection(opens=time.time() - 1))
    report = of(leased(hub, digest))
    cancel = "SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE wait_event = 'SyncRep'"
    answers: list[object] = []

    def send() -> None:
        try:
            answers.append(edge.put(digest, [report]))
        except StoreError as error:
            answers.append(error)

    def commit() -> None:
        with psycopg.connect(pair.primary_url) as plain:
            plain.execute("CREATE TABLE refuted (x int)")
            plain.commit()
            answers.append("acknowledged")

    pair.signal_standby(signal.SIGSTOP)
    try:
        for job in (send, commit):
            thread = threading.Thread(target=job)
            thread.start()
            wait_for_sync(pair)
            pair.ask(cancel)
            thread.join(SOON)
    finally:
        pair.signal_standby(signal.SIGCONT)
        pair.ask("DROP TABLE IF EXISTS public.refuted")
    assert isinstance(answers[0], StoreError)
    assert "did not wait until a standby" in str(answers[0])
    assert answers[1] == "acknowledged"  # what a program that ignores the warning believes


@pytest.mark.parametrize("names", ["", "*", "ANY 1 (server, *)"])
def test_without_a_standby_nothing_is_acknowledged_unless_a_loss_is_accepted(
    pair: PostgresPair,
    stores: Callable[[bool], Any],
    new_collection: NewCollection,
    names: str,
) -> None:
    """With * whoever receives the journal counts as a standby."""
    hub, edge = stores(True), stores(False)
    digest = added(hub, new_collection(opens=time.time() - 1))
    lease = leased(hub, digest)
    pair.set_standby_names(names)
    try:
        time.sleep(0.5)
        with pytest.raises(StoreError, match="--accept-loss"):
            edge.put(digest, [of(lease)])
        with pytest.raises(StoreError, match="--accept-loss"):
            hub.move(digest, "open", "aborted", reason="enough")
        careless = connect_parts(pair.url, is_hub=False, accept_loss=True, jump=300)
        assert careless.put(digest, [of(lease)]) == [STORED]
        careless.close()
    finally:
        pair.set_standby_names(pair.standby_names)


@pytest.mark.slow
def test_a_backup_that_copies_the_primary_acknowledges_nothing(
    pair: PostgresPair, stores: Callable[[bool], Any], new_collection: NewCollection
) -> None:
    """pg_basebackup reports what it has written of the journal; with * that was enough."""
    hub, edge = stores(True), stores(False)
    digest = added(hub, new_collection(opens=time.time() - 1))
    lease = leased(hub, digest)
    filler = "SELECT repeat(md5(n::text), 20) FROM generate_series(1, 60000) n"
    pair.ask(f"CREATE TABLE public.filler AS {filler}")
    pair.kill(1)
    copying = pair.start_copy("--max-rate", "1M")
    try:
        with ThreadPoolExecutor(1) as thread:
            answer = thread.submit(edge.put, digest, [of(lease)])
            time.sleep(2)
            pair.ask("SELECT pg_switch_wal()")  # a whole file of the journal is reported
            done, _ = wait([answer], 20)
            assert not done
            assert copying.poll() is None
            copying.kill()
            pair.add_standby()
            assert answer.result(SOON) == [STORED]
    finally:
        copying.kill()
        copying.wait(SOON)
        pair.ask("DROP TABLE public.filler")


def test_a_hung_edge_holds_up_closing_for_seconds_only(
    pair: PostgresPair, stores: Callable[[bool], Any], new_collection: NewCollection
) -> None:
    """A COPY whose client hangs is not ended by any time-out, so it is ended by the hub."""
    import psycopg

    hub = stores(True)
    digest = added(hub, new_collection(opens=time.time() - 1, lasts=5, longer=0))
    lease = leased(hub, digest)
    with psycopg.connect(
        pair.primary_url,
        application_name="metricshuffle edge",
        options="-c search_path=metricshuffle -c statement_timeout=1000 "
        "-c idle_in_transaction_session_timeout=1000",
    ) as hung:
        hung.execute("UPDATE part SET reports = reports WHERE lease = %s", (UUID(bytes=lease),))
        hung.pgconn.exec_(b"COPY report_1 (name, hidden) FROM STDIN")
        time.sleep(4)
        holds = "SELECT count(*) FROM pg_stat_activity WHERE application_name = %s"
        assert pair.ask(holds, None, "metricshuffle edge") == [(1,)]  # time-outs did nothing
        begun = time.monotonic()
        state = "open"
        while state == "open":
            try:
                state = hub.seal(digest)
            except StoreError:
                time.sleep(0.1)
            assert time.monotonic() - begun < 11
        assert state == "aborted"  # too few
        hung.close()


def test_reading_the_state_under_a_lock_stores_late_reports_at_repeatable_read(
    pair: PostgresPair, stores: Callable[[bool], Any], new_collection: NewCollection
) -> None:
    """An advisory lock with an old snapshot does; an update of the counter row is refused."""
    import psycopg

    hub = stores(True)
    digest = added(hub, new_collection(opens=time.time() - 1))
    lease = leased(hub, digest)
    options = "-c search_path=metricshuffle -c synchronous_commit=local"
    late = "INSERT INTO report_1 (lease, name, hidden) VALUES (%s, gen_random_uuid(), '')"
    with psycopg.connect(pair.primary_url, options=options) as writer:
        writer.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        writer.execute("SELECT 1 FROM part")  # its snapshot is taken here
        hub.end_part(digest, lease)
        writer.execute("SELECT pg_advisory_xact_lock_shared(7)")
        closed = writer.execute("SELECT closed FROM part").fetchall()
        assert closed == [(False,)]  # the refuted construction goes on, and stores
        writer.execute(late, (UUID(bytes=lease),))
        with pytest.raises(psycopg.errors.SerializationFailure):
            writer.execute("UPDATE part SET reports = reports + 1")
        writer.rollback()


def test_two_reports_whose_tags_start_alike_have_other_key_streams() -> None:
    """With the start of the tag as the nonce, two bundles give their difference."""
    keys = CollectionKeys(secrets.token_bytes(64))
    start = secrets.token_bytes(12)
    tags = [start + secrets.token_bytes(4) for _ in range(2)]
    bundles = [secrets.token_bytes(64) for _ in range(2)]
    difference = bytes(a ^ b for a, b in zip(*bundles, strict=True))

    def hidden_difference(first: bytes, second: bytes) -> bytes:
        return bytes(a ^ b for a, b in zip(first[:64], second[:64], strict=True))

    refuted = [keys.hidden(tag, bundle) for tag, bundle in zip(tags, bundles, strict=True)]
    assert hidden_difference(*refuted) == difference
    lease = keys.lease("ab" * 32, secrets.token_bytes(16))
    reports = [secrets.token_bytes(200) for _ in range(2)]
    ours = [
        lease.hidden(tag, report, bundle)
        for tag, report, bundle in zip(tags, reports, bundles, strict=True)
    ]
    assert hidden_difference(*(one[32:] for one in ours)) != difference
    assert [lease.shown(tag, one) for tag, one in zip(tags, ours, strict=True)] == bundles
    assert ours[0] == lease.hidden(tags[0], reports[0], bundles[0])  # the same bytes every time
    other = keys.lease("ab" * 32, secrets.token_bytes(16))
    assert other.hidden(tags[0], reports[0], bundles[0]) != ours[0]
    assert hashlib.sha256(lease.data_key).digest() != hashlib.sha256(other.data_key).digest()
    for wrong in (lease.shown, other.shown):
        name = tags[1] if wrong == lease.shown else tags[0]
        with pytest.raises(Exception, match="damaged"):
            wrong(name, ours[0])


def test_the_database_refuses_reports_in_a_closed_part(
    pair: PostgresPair, stores: Callable[[bool], Any], new_collection: NewCollection
) -> None:
    import psycopg

    hub = stores(True)
    digest = added(hub, new_collection(opens=time.time() - 1))
    lease = leased(hub, digest)
    hub.end_part(digest, lease)
    for change in ("reports = reports + 1, room = room + 1", "ended = false"):
        with pytest.raises(psycopg.errors.IntegrityConstraintViolation):
            pair.ask(f"UPDATE part SET {change}")  # noqa: S608
