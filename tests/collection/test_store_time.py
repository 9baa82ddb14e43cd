"""Time inside transactions: one extension, sealing or aborting, no reopening."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest
from tests.collection.conftest import Clock, NewCollection
from tests.collection.store_contents import (
    Refused,
    added,
    asked,
    changed,
    entry,
    fresh_entries,
    held,
)

from metricshuffle.collection.shuffler.admission import AdmissionRules
from metricshuffle.collection.store.factory import connect_store
from metricshuffle.collection.store.records import CollectionRow, State, Verdict
from metricshuffle.collection.store.sql_store import Store
from metricshuffle.collection.terms import Collection

START = 1_800_000_000.0
CLOSES = START + 100
EXTENDS = START + 200
STORED = Verdict.STORED
CLOSED = Verdict.CLOSED
ENOUGH = 4
"""The minimum of the collections here."""


@pytest.fixture
def collection(clock: Clock, new_collection: NewCollection) -> Collection:
    clock.stop(START)
    return new_collection()


def form_state(store: Store, digest: str) -> tuple[State, float]:
    row = store.row(digest)
    assert isinstance(row, CollectionRow)
    return row.state, row.until


def test_reports_are_taken_from_its_opening_to_its_closing_time(
    store: Store, clock: Clock, collection: Collection
) -> None:
    digest = added(store, collection)
    clock.stop(START - 0.001)
    assert store.put(digest, fresh_entries(ENOUGH)) == [CLOSED] * ENOUGH
    clock.stop(START)
    assert store.put(digest, fresh_entries(ENOUGH)) == [STORED] * ENOUGH
    clock.stop(CLOSES - 0.001)
    assert store.put(digest, [entry()]) == [STORED]
    clock.stop(CLOSES)
    assert store.put(digest, [entry()]) == [CLOSED]
    assert form_state(store, digest) == ("open", CLOSES)


def test_it_is_sealed_at_its_closing_time_and_not_before(
    store: Store, clock: Clock, collection: Collection
) -> None:
    digest = added(store, collection)
    store.put(digest, fresh_entries(3 * ENOUGH))
    for moment in (START, CLOSES - 1, CLOSES - 0.001):
        clock.stop(moment)
        assert store.seal(digest) == "open"
    clock.stop(CLOSES)
    assert store.seal(digest) == "sealed"
    assert store.seal(digest) == "sealed"
    row = store.row(digest)
    assert row is not None
    assert (row.sealed_at, row.until) == (CLOSES, CLOSES)
    assert store.put(digest, [entry()]) == [CLOSED]


@pytest.mark.parametrize("who", ["put", "seal"])
def test_with_too_few_reports_it_is_extended_once(
    store: Store, clock: Clock, collection: Collection, who: str
) -> None:
    """Whoever looks first; and what comes then does not seal it before the end."""
    digest = added(store, collection)
    store.put(digest, fresh_entries(ENOUGH - 1))
    clock.stop(CLOSES)
    if who == "put":
        assert store.put(digest, [entry()]) == [STORED]
    else:
        assert store.seal(digest) == "open"
    assert form_state(store, digest) == ("open", EXTENDS)
    assert store.put(digest, fresh_entries(ENOUGH)) == [STORED] * ENOUGH
    clock.stop(EXTENDS - 0.001)
    assert store.seal(digest) == "open"
    assert store.put(digest, [entry()]) == [STORED]
    clock.stop(EXTENDS)
    assert store.put(digest, [entry()]) == [CLOSED]
    assert store.seal(digest) == "sealed"


def test_the_extension_is_written_down_even_if_nothing_is_stored(
    store: Store, clock: Clock, new_collection: NewCollection
) -> None:
    clock.stop(START)
    digest = added(store, new_collection(admission="tickets"))
    clock.stop(CLOSES + 1)
    assert store.put(digest, [entry()]) == [Verdict.UNKNOWN_TICKET]
    assert form_state(store, digest) == ("open", EXTENDS)


@pytest.mark.parametrize("looked_at", [True, False])
def test_without_the_minimum_it_is_aborted_in_the_end(
    store: Store, store_url: str, clock: Clock, collection: Collection, looked_at: bool
) -> None:
    digest = added(store, collection)
    store.put(digest, fresh_entries(ENOUGH - 1))
    if looked_at:
        clock.stop(CLOSES)
        assert store.seal(digest) == "open"
    clock.stop(EXTENDS)
    assert store.put(digest, [entry()]) == [CLOSED]
    assert store.seal(digest) == "aborted"
    row = store.row(digest)
    assert row is not None
    assert row.reason == "fewer reports than the 4 that were needed"
    assert held(store_url, collection).reports == 0
    assert held(store_url, collection).counted == ENOUGH - 1


def test_without_an_extension_it_is_aborted_at_once(
    store: Store, clock: Clock, new_collection: NewCollection
) -> None:
    clock.stop(START)
    digest = added(store, new_collection(longer=0))
    store.put(digest, fresh_entries(ENOUGH - 1))
    clock.stop(CLOSES)
    assert store.put(digest, [entry()]) == [CLOSED]
    assert store.seal(digest) == "aborted"


@pytest.mark.parametrize("who", ["put", "seal", "move"])
def test_a_clock_that_is_set_back_reopens_nothing(
    store: Store,
    store_url: str,
    clock: Clock,
    collection: Collection,
    new_collection: NewCollection,
    who: str,
) -> None:
    """Also for decisions of other collections, and in processes that never saw them."""
    digest = added(store, collection)
    other = added(store, new_collection(round=2))
    assert store.put(digest, fresh_entries(ENOUGH)) == store.put(other, fresh_entries(ENOUGH))
    clock.stop(CLOSES + 5)
    if who == "put":
        assert store.put(digest, [entry()]) == [CLOSED]
    elif who == "seal":
        assert store.seal(digest) == "sealed"
    else:
        assert store.move(digest, "open", "aborted", reason="enough")
    clock.stop(START + 1)
    again = connect_store(store_url, clock)
    for one in (store, again):
        assert one.now() >= (
            CLOSES if who == "put" else CLOSES + 5
        )  # (when a report came is not written down)
        assert one.put(digest, [entry()]) == one.put(other, [entry()]) == [CLOSED]
    assert again.seal(other) == "sealed"
    again.close()


@pytest.mark.parametrize(
    "at",
    [
        START + 0.7,
        START + 99.9,
        CLOSES,
        CLOSES + 3.21,
        EXTENDS - 0.01,
        EXTENDS + 1.5,
        START + 5 * 3600.0 + 0.5,
    ],
)
def test_when_a_report_came_is_not_written_down(
    store: Store, store_url: str, clock: Clock, collection: Collection, at: float
) -> None:
    """Only the hour is stored, or the last deadline that had passed."""
    digest = added(store, collection)
    clock.stop(at)
    verdicts = store.put(digest, fresh_entries(2))
    columns = "latest FROM clock" if store_url.startswith("sqlite") else "seen FROM collection"
    [(noted,)] = asked(store_url, f"SELECT {columns}")
    assert noted in ({START, CLOSES, EXTENDS} | {at // 3600 * 3600})
    assert noted <= at
    clock.stop(START - 1000)
    again = connect_store(store_url, clock)
    assert [verdict is CLOSED for verdict in again.put(digest, fresh_entries(2))] == [
        verdict is CLOSED for verdict in verdicts
    ]
    again.close()


def test_a_clock_that_is_set_back_takes_no_extension_away(
    store: Store, clock: Clock, collection: Collection
) -> None:
    digest = added(store, collection)
    clock.stop(CLOSES)
    assert store.put(digest, fresh_entries(ENOUGH)) == [STORED] * ENOUGH
    clock.stop(START)
    assert store.seal(digest) == "open"
    assert form_state(store, digest) == ("open", EXTENDS)
    assert store.put(digest, [entry()]) == [STORED]


def test_what_was_told_is_not_taken_back(store: Store, clock: Clock) -> None:
    clock.stop(START)
    assert store.now() == START
    clock.stop(START - 50)
    assert store.now() == START


def test_without_a_clock_of_a_test_it_is_the_hour(new_store_url: Callable[[], str]) -> None:
    store = connect_store(new_store_url())
    assert abs(store.now() - time.time()) < 5
    store.close()


def test_nothing_is_taken_between_the_closing_time_and_sealing(
    store: Store, clock: Clock, collection: Collection
) -> None:
    digest = added(store, collection)
    store.put(digest, fresh_entries(ENOUGH))
    for late in (0.0, 0.5, 99.0, 1e6):
        clock.stop(CLOSES + late)
        assert store.put(digest, [entry()]) == [CLOSED]
    assert store.seal(digest) == "sealed"
    assert len(list(store.hidden(digest))) == ENOUGH


def test_the_rule_by_itself() -> None:
    """Every moment around both ends, with reports around the minimum."""
    for reports, (closes, extends) in [
        (count, ends) for count in (3, 4, 5) for ends in ((10.0, 20.0), (10.0, 10.0))
    ]:
        standing = AdmissionRules(
            1, "open", reports, closes, True, False, 4, 9, 0.0, closes, extends
        )
        for now in (-1.0, 0.0, 9.9, 10.0, 19.9, 20.0, 1e9):
            late = reports < 4 and extends > closes
            ends = extends if late else closes
            assert standing.at(now).takes_reports(now) == (0 <= now < ends)
            assert standing.due(now) == (
                "open" if now < ends else "sealed" if reports >= 4 else "aborted"
            )
            assert standing.at(now).at(now) == standing.at(now)
            assert standing.at(now).until == (ends if now >= closes else closes)


def test_the_database_itself_seals_nothing_too_early_or_with_too_few(
    store: Store, store_url: str, collection: Collection
) -> None:
    """Whatever a program asks for: both conditions, each by itself."""
    digest = added(store, collection)
    sealed = "state = 'sealed', sealed_at = until"
    store.put(digest, fresh_entries(ENOUGH - 1))
    with pytest.raises(Refused, match="with its minimum only"):
        changed(store_url, sealed)
    store.put(digest, fresh_entries(1))
    with pytest.raises(Refused, match="at its closing time"):
        changed(store_url, f"{sealed} - 0.001")
    changed(store_url, sealed)
    assert form_state(store, digest)[0] == "sealed"
