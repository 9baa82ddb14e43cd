"""Behaviour of every store: verdicts, states, output, and deletion."""

from __future__ import annotations

import itertools
import secrets
from collections.abc import Iterator

import pytest
from tests.collection.conftest import Clock, NewCollection, small_task
from tests.collection.store_contents import (
    Refused,
    added,
    asked,
    changed,
    entry,
    fresh_entries,
    fresh_tickets,
    held,
    own_key,
)

from metricshuffle.collection.keys import CollectionKeys
from metricshuffle.collection.shuffler.admission import STEPS
from metricshuffle.collection.store.factory import connect_store
from metricshuffle.collection.store.records import (
    CHUNK,
    STATES,
    DatabaseDamaged,
    DuplicateCollection,
    Entry,
    State,
    StoreError,
    Verdict,
)
from metricshuffle.collection.store.sql_store import Store
from metricshuffle.collection.terms import Collection
from metricshuffle.errors import InputError

STORED = Verdict.STORED
SAME = Verdict.SAME
UNKNOWN = Verdict.UNKNOWN_TICKET
SPENT = Verdict.SPENT_TICKET
OUTPUT = "5" * 64
LATER = 150  # seconds: behind the closing time, before the extended one
VERY_LATE = 250


def brought(
    store: Store,
    clock: Clock,
    collection: Collection,
    state: State,
    entries: list[Entry] | None = None,
) -> str:
    """A new collection, brought to some state with few reports."""
    digest = added(store, collection)
    entries = fresh_entries(5) if entries is None else entries
    store.put(digest, entries)
    if state == "aborted":
        assert store.move(digest, "open", "aborted", reason="enough")
    if state in ("open", "aborted"):
        return digest
    clock.ahead += LATER
    assert store.seal(digest) == "sealed"
    for before, after in itertools.pairwise(("sealed", "shuffled", "erased", "released", "purged")):
        if store_state(store, digest) == state:
            break
        if after == "shuffled":
            store.keep_output(digest, [b"boxes"])
            assert store.move(
                digest, "sealed", "shuffled", people=len(entries), left_out=0, output=OUTPUT
            )
        else:
            assert store.move(digest, before, after)  # type: ignore[arg-type]
    return digest


def store_state(store: Store, digest: str) -> State:
    row = store.row(digest)
    assert row is not None
    return row.state


# Collections


def test_a_new_collection_is_open_and_the_same_again_changes_nothing(
    store: Store, store_url: str, new_collection: NewCollection
) -> None:
    collection = new_collection(admission="tickets")
    tickets = fresh_tickets(3)
    digest = added(store, collection, tickets)
    row = store.row(digest)
    assert row is not None
    assert (row.digest, row.served, row.key, row.state, row.reports) == (
        digest,
        collection.served,
        own_key(collection),
        "open",
        0,
    )
    assert not store.add(collection, own_key(collection), fresh_tickets(7))
    assert held(store_url, collection).tickets == 3
    assert [row.digest for row in store.rows()] == [digest]
    assert store.row("0" * 64) is None


def test_the_newest_collection_comes_first(store: Store, new_collection: NewCollection) -> None:
    digests = [added(store, new_collection(round=number)) for number in (1, 2, 3)]
    assert [row.digest for row in store.rows()] == digests[::-1]


def test_nobody_may_report_twice_in_a_round(store: Store, new_collection: NewCollection) -> None:
    first = added(store, new_collection())
    for _ in range(2):
        with pytest.raises(DuplicateCollection, match=first[:16]):
            added(store, new_collection())
        store.move(first, "open", "aborted", reason="enough")  # people have reported all the same
    added(store, new_collection(round=2, split=(1, 2)))
    added(store, new_collection(round=2, split=(2, 2)))
    for split in ((1, 2), (2, 2), (1, 1), (3, 3)):
        with pytest.raises(DuplicateCollection, match="nobody may report twice"):
            added(store, new_collection(round=2, split=split))
    added(store, new_collection(small_task(honest=5)))  # another plan
    assert len(store.rows()) == 4


def test_the_database_itself_refuses_a_second_collection(
    store: Store, store_url: str, new_collection: NewCollection
) -> None:
    added(store, new_collection(split=(1, 2)))
    names = "key, task, round, first, ticketed, minimum, maximum, opens, closes, extends, until"
    for values, why in (("part, parts", "unique"), ("2, 3", "split once"), ("2, 2", "")):
        copied = (
            f"INSERT INTO collection (digest, part, parts, {names}) SELECT "  # noqa: S608
            f"'{secrets.token_hex(4)}', {values}, {names} FROM collection"
        )
        if why:
            with pytest.raises(Refused, match=f"(?i){why}"):
                asked(store_url, copied)
        else:
            asked(store_url, copied)


def test_tickets_belong_to_a_first_hop_that_asks_for_them(
    store: Store, new_collection: NewCollection
) -> None:
    ticket = secrets.token_bytes(16)
    for tickets, admission in (([ticket], "open"), ([ticket, ticket], "tickets")):
        with pytest.raises(InputError, match="ticket"):
            added(store, new_collection(admission=admission), tickets)
    with pytest.raises(InputError, match="another shuffler's key"):
        store.add(new_collection(), "0" * 64)
    assert store.rows() == []


def test_a_digest_that_is_not_here_is_refused_in_words(store: Store) -> None:
    nowhere = "0" * 64
    for call in (
        lambda: store.put(nowhere, [entry()]),
        lambda: store.seal(nowhere),
        lambda: list(store.hidden(nowhere)),
        lambda: store.keep_output(nowhere, []),
        lambda: store.move(nowhere, "open", "aborted"),
    ):
        with pytest.raises(InputError, match="no collection"):
            call()
    assert list(store.output(nowhere)) == []


# Reports


def test_the_same_report_is_stored_once(
    store: Store, store_url: str, new_collection: NewCollection
) -> None:
    collection = new_collection()
    digest, [one, two, three] = added(store, collection), fresh_entries(3)
    assert store.put(digest, [one, two, one]) == [STORED, STORED, SAME]
    assert store.put(digest, [two, three, Entry(one.tag, b"", b"other bytes")]) == [
        SAME,
        STORED,
        SAME,
    ]
    assert store.put(digest, []) == []
    assert (held(store_url, collection).reports, held(store_url, collection).counted) == (3, 3)


def test_a_ticket_is_spent_with_its_report_and_only_then(
    store: Store, store_url: str, new_collection: NewCollection
) -> None:
    collection, [mine, yours, nobodys] = new_collection(admission="tickets"), fresh_tickets(3)
    digest = added(store, collection, [mine, yours])
    report = entry(mine)
    assert store.put(digest, [entry(nobodys), report, entry(mine), report, entry()]) == [
        UNKNOWN,
        STORED,
        SPENT,
        SAME,
        UNKNOWN,
    ]
    assert store.put(digest, [entry(mine), report]) == [SPENT, SAME]
    assert (held(store_url, collection).spent, held(store_url, collection).reports) == (1, 1)
    assert store.put(digest, [entry(yours), entry(yours)]) == [STORED, SPENT]
    assert (held(store_url, collection).spent, held(store_url, collection).reports) == (2, 2)


def test_a_full_collection_takes_no_more(
    store: Store, store_url: str, new_collection: NewCollection
) -> None:
    collection = new_collection(admission="tickets", maximum=5)
    tickets = fresh_tickets(7)
    digest = added(store, collection, tickets)
    entries = [entry(ticket) for ticket in tickets]
    assert store.put(digest, entries) == [STORED] * 5 + [Verdict.FULL] * 2
    assert store.put(digest, [entries[0], entries[6], entry(tickets[0])]) == [
        SAME,
        Verdict.FULL,
        SPENT,
    ]
    assert held(store_url, collection).spent == held(store_url, collection).reports == 5


def test_reports_of_two_collections_do_not_meet(
    store: Store, store_url: str, new_collection: NewCollection
) -> None:
    first, second = (new_collection(round=number, admission="tickets") for number in (1, 2))
    [ticket], report = fresh_tickets(1), entry()
    report = Entry(report.tag, ticket, report.hidden)
    for collection in (first, second):
        assert store.put(added(store, collection, [ticket]), [report]) == [STORED]
    store.move(first.digest, "open", "aborted", reason="enough")
    assert (held(store_url, second).reports, held(store_url, second).spent) == (1, 1)
    assert (held(store_url, first).reports, held(store_url, first).tickets) == (0, 0)


# Sealed ones


@pytest.mark.parametrize(("count", "size"), [(5, 40), (5, 0), (300, 9000), (5, CHUNK + 1)])
def test_sealed_reports_are_read_whole_and_always_in_the_same_order(
    store: Store, clock: Clock, new_collection: NewCollection, count: int, size: int
) -> None:
    entries = fresh_entries(count, size)
    digest = brought(store, clock, new_collection(), "sealed", entries)
    assert sorted(store.hidden(digest)) == sorted((entry.tag, entry.hidden) for entry in entries)
    assert list(store.hidden(digest)) == list(store.hidden(digest))


@pytest.mark.parametrize("state", ["open", "shuffled", "aborted"])
def test_reports_and_output_are_for_sealed_collections(
    store: Store, clock: Clock, new_collection: NewCollection, state: State
) -> None:
    digest = brought(store, clock, new_collection(), state)
    with pytest.raises(StoreError, match="not sealed"):
        list(store.hidden(digest))
    before = list(store.output(digest))
    with pytest.raises(StoreError, match="not sealed"):
        store.keep_output(digest, [b"other"])
    assert list(store.output(digest)) == before


def test_reading_reports_that_are_deleted_meanwhile_is_an_error_and_not_fewer_reports(
    store: Store, clock: Clock, new_collection: NewCollection
) -> None:
    digest = brought(store, clock, new_collection(), "sealed", fresh_entries(300, 9000))
    reading = store.hidden(digest)
    next(reading)
    assert store.move(digest, "sealed", "aborted", reason="enough")
    with pytest.raises(StoreError, match="aborted, not sealed"):
        list(reading)


def test_a_report_that_the_database_lost_is_noticed(
    store: Store, store_url: str, clock: Clock, new_collection: NewCollection
) -> None:
    digest = brought(store, clock, new_collection(), "sealed")
    key = "tag" if "sqlite" in store_url else "name"
    asked(store_url, f"DELETE FROM report_1 WHERE {key} = (SELECT {key} FROM report_1 LIMIT 1)")  # noqa: S608
    with pytest.raises(DatabaseDamaged, match="counted 5 reports"):
        list(store.hidden(digest))


@pytest.mark.parametrize(
    "sizes", [[], [1], [CHUNK], [CHUNK - 1, 1, 1], [7] * 1000, [3 * CHUNK + 5, 0, 17]]
)
def test_output_comes_back_as_it_was_kept(
    store: Store, clock: Clock, new_collection: NewCollection, sizes: list[int]
) -> None:
    digest = brought(store, clock, new_collection(), "sealed")
    assert list(store.output(digest)) == []
    pieces = [secrets.token_bytes(size) for size in sizes]
    store.keep_output(digest, [b"left behind" * (CHUNK // 2)])
    store.keep_output(digest, iter(pieces))
    chunks = list(store.output(digest))
    assert b"".join(chunks) == b"".join(pieces)
    assert all(len(chunk) == CHUNK for chunk in chunks[:-1])
    assert store.move(digest, "sealed", "shuffled", people=5, left_out=0, output=OUTPUT)
    assert list(store.output(digest)) == chunks


def test_output_is_kept_whole_or_not_at_all(
    store: Store, clock: Clock, new_collection: NewCollection
) -> None:
    digest = brought(store, clock, new_collection(), "sealed")
    store.keep_output(digest, [b"whole"])

    def cut_short() -> Iterator[bytes]:
        yield b"half" * CHUNK
        raise OSError("the file cannot be read")

    with pytest.raises(OSError, match="the file cannot be read"):
        store.keep_output(digest, cut_short())
    assert list(store.output(digest)) == [b"whole"]


def test_output_that_is_deleted_while_it_is_read_is_an_error_and_not_less_output(
    store: Store, clock: Clock, new_collection: NewCollection
) -> None:
    digest = brought(store, clock, new_collection(), "sealed")
    store.keep_output(digest, [b"long" * CHUNK])
    reading = store.output(digest)
    next(reading)
    store.move(digest, "sealed", "aborted", reason="enough")
    with pytest.raises(StoreError, match="deleted while it was read"):
        list(reading)


# Steps


def test_a_step_is_taken_once(store: Store, clock: Clock, new_collection: NewCollection) -> None:
    digest = brought(store, clock, new_collection(), "sealed", fresh_entries(6))
    assert not store.move(digest, "open", "aborted", reason="too late")
    assert store.move(digest, "sealed", "shuffled", people=4, left_out=2, output=OUTPUT)
    assert not store.move(digest, "sealed", "shuffled", people=5, left_out=1, output="6" * 64)
    row = store.row(digest)
    assert row is not None
    assert (row.state, row.people, row.left_out, row.output, row.reports, row.reason) == (
        "shuffled",
        4,
        2,
        OUTPUT,
        6,
        "",
    )


@pytest.mark.parametrize(
    ("people", "left_out", "output"), [(3, 3, OUTPUT), (4, 1, OUTPUT), (6, 1, OUTPUT), (6, 0, "")]
)
def test_what_is_let_go_adds_up_or_the_database_refuses(
    store: Store,
    clock: Clock,
    new_collection: NewCollection,
    people: int,
    left_out: int,
    output: str,
) -> None:
    digest = brought(store, clock, new_collection(), "sealed", fresh_entries(6))
    with pytest.raises(StoreError, match="let go or left out"):
        store.move(digest, "sealed", "shuffled", people=people, left_out=left_out, output=output)
    assert store_state(store, digest) == "sealed"
    assert len(list(store.hidden(digest))) == 6


def test_reports_and_tickets_are_gone_once_it_is_shuffled(
    store: Store, store_url: str, clock: Clock, new_collection: NewCollection
) -> None:
    collection = new_collection(admission="tickets")
    tickets = fresh_tickets(9)
    digest = added(store, collection, tickets)
    store.put(digest, [entry(ticket) for ticket in tickets[:5]])
    clock.ahead = LATER
    store.seal(digest)
    store.keep_output(digest, [b"boxes"])
    before = held(store_url, collection)
    assert (before.reports, before.tickets, before.spent, before.chunks) == (5, 9, 5, 1)
    assert store.move(digest, "sealed", "shuffled", people=5, left_out=0, output=OUTPUT)
    for state in ("erased", "released", None):
        left = held(store_url, collection)
        assert (left.reports, left.tickets, left.chunks, left.counted) == (0, 0, 1, 5)
        if state:
            assert store.move(digest, store_state(store, digest), state)
    assert store.move(digest, "released", "purged")
    assert held(store_url, collection).chunks == 0
    assert store.row(digest) is not None


@pytest.mark.parametrize("state", ["open", "sealed", "shuffled", "erased", "released"])
def test_an_aborted_collection_keeps_its_reason_and_nothing_else(
    store: Store, store_url: str, clock: Clock, new_collection: NewCollection, state: State
) -> None:
    collection = new_collection()
    digest = brought(store, clock, collection, state)
    if state == "sealed":
        store.keep_output(digest, [b"boxes"])
    assert store.move(digest, state, "aborted", reason="enough")
    row = store.row(digest)
    left = held(store_url, collection)
    assert row is not None
    assert (row.state, row.reason, row.served) == ("aborted", "enough", collection.served)
    assert (left.reports, left.tickets, left.chunks) == (0, 0, 0)
    assert not store.move(digest, state, "aborted", reason="again")
    assert store.put(digest, fresh_entries(2)) == [Verdict.CLOSED] * 2


def test_times_are_noted_and_in_the_end_kept_to_the_hour(
    store: Store, clock: Clock, new_collection: NewCollection
) -> None:
    clock.stop(1_700_000_000 + 1234)
    digest = brought(store, clock, new_collection(), "released")
    row = store.row(digest)
    assert row is not None
    assert row.sealed_at == row.released_at == 1_700_000_000 + 1234 + LATER
    clock.ahead += 5000
    assert store.move(digest, "released", "purged")
    row = store.row(digest)
    assert row is not None
    assert (row.sealed_at, row.released_at) == (1_699_999_200, 1_699_999_200)
    clock.stop(5.0)
    assert store.now() == 1_700_000_000 + 1234 + LATER + 5000  # which is remembered all the same


def test_what_was_collected_is_never_aborted(
    store: Store, clock: Clock, new_collection: NewCollection
) -> None:
    digest = brought(store, clock, new_collection(), "erased")
    store.acknowledge(digest)
    assert not store.rows()[0].collected  # it is not released
    store.move(digest, "erased", "released")
    store.acknowledge(digest)
    store.acknowledge(digest)
    assert store.rows()[0].collected
    with pytest.raises(StoreError, match="collected once released"):
        store.move(digest, "released", "aborted", reason="not collected")
    assert store.move(digest, "released", "purged")
    assert store.rows()[0].collected


@pytest.mark.parametrize("state", STATES)
def test_the_database_itself_refuses_every_step_but_the_next(
    store: Store, store_url: str, clock: Clock, new_collection: NewCollection, state: State
) -> None:
    """Whoever asks for it, and by whatever way."""
    digest = brought(store, clock, new_collection(), state)
    wrong = [after for after in STATES if after != state and (state, after) not in STEPS]
    assert len(wrong) >= 4
    for after in wrong:
        with pytest.raises(Refused, match="forward only"):
            changed(store_url, f"state = '{after}'")
        with pytest.raises(StoreError, match="forward only"):
            store.move(digest, state, after)
    with pytest.raises(Refused):
        changed(store_url, "state = 'elsewhere'")
    assert store_state(store, digest) == state


def test_the_database_itself_keeps_what_a_collection_says(
    store: Store, store_url: str, clock: Clock, new_collection: NewCollection
) -> None:
    digest = brought(store, clock, new_collection(), "open")
    for change, why in {
        "minimum = 1": "cannot be changed",
        "extends = extends + 1": "cannot be changed",
        "digest = 'x'": "cannot be changed",
        "until = closes - 1": "one of its ends|only forward",
        "reports = 1": "never taken away",
        "reports = maximum + 1": "up to the maximum",
        "people = 7": "cannot be changed",
        f"output = '{OUTPUT}'": "cannot be changed",
        "state = 'sealed'": "closing time and with its minimum",
        "reason = 'x'": "once aborted",
    }.items():
        with pytest.raises(Refused, match=why):
            changed(store_url, change)
    with pytest.raises(Refused, match="never deleted"):
        asked(store_url, "DELETE FROM collection")
    with pytest.raises(StoreError, match="closing time alone"):
        store.move(digest, "open", "sealed")
    clock.ahead += LATER
    store.seal(digest)
    for change in ("reports = reports + 1", "until = extends"):
        with pytest.raises(Refused, match="while it is open"):
            changed(store_url, change)
    late = (
        "(tag, hidden) VALUES (x'00', x'00')"
        if "sqlite" in store_url
        else "(name, hidden) VALUES (gen_random_uuid(), '\\x00')"
    )
    with pytest.raises(Refused, match="while it is open"):
        asked(store_url, f"INSERT INTO report_1 {late}")
    assert len(list(store.hidden(digest))) == 5


def test_a_later_hop_takes_no_reports_and_waits_for_whoever_fetches(
    store: Store, clock: Clock, new_collection: NewCollection
) -> None:
    first, second = (CollectionKeys(secrets.token_bytes(64)).party for _ in range(2))
    hops = [
        {**party.model_dump(), "url": f"http://127.0.0.1:{port}"}
        for port, party in ((1, first), (2, second))
    ]
    collection = new_collection(hops=hops)
    assert store.add(collection, second.key)
    assert store.put(collection.digest, [entry()]) == [Verdict.CLOSED]
    clock.ahead = 10 * VERY_LATE
    assert store.seal(collection.digest) == "open"
    assert store.move(collection.digest, "open", "sealed")
    assert list(store.hidden(collection.digest)) == []
    store.keep_output(collection.digest, [b"boxes"])
    with pytest.raises(StoreError, match="enough of them"):
        store.move(collection.digest, "sealed", "shuffled", people=3, left_out=0, output=OUTPUT)
    assert store.move(collection.digest, "sealed", "shuffled", people=9, left_out=1, output=OUTPUT)


def test_everything_is_there_when_it_is_opened_again(
    store: Store, store_url: str, clock: Clock, new_collection: NewCollection
) -> None:
    collection = new_collection(admission="tickets")
    tickets = fresh_tickets(5)
    report = entry()
    digest = added(store, collection, tickets)
    entries = [entry(ticket) for ticket in tickets]
    store.put(digest, entries[:4])
    store.close()
    again = connect_store(store_url, clock)
    assert again.put(digest, [*entries, report]) == [SAME] * 4 + [STORED, UNKNOWN]
    clock.ahead = LATER
    assert again.seal(digest) == "sealed"
    assert store_state(store, digest) == "sealed"  # a closed store opens when it is used
    assert list(store.hidden(digest)) == list(again.hidden(digest))
    again.close()
