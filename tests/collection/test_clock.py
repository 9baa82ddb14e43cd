"""Clock that jumps ahead: nothing is sealed, released or destroyed until it is confirmed."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from tests.collection.conftest import Clocks, NewCollection
from tests.collection.local_service import Service, asks_again, run
from tests.collection.rounds import HONEST, Round, opened_round, put
from tests.collection.running import report_of
from tests.collection.store_contents import added, entry, fresh_entries, held

from metricshuffle.collection.keys import KeyFolder
from metricshuffle.collection.shuffler.lifecycle import Shuffler
from metricshuffle.collection.shuffler.routes import public_status
from metricshuffle.collection.store.factory import connect_store
from metricshuffle.collection.store.guarded_clock import DAY
from metricshuffle.collection.store.records import ClockJumped, CollectionRow, Verdict
from metricshuffle.collection.store.sql_store import Store
from metricshuffle.errors import InputError

START = 2_000_000_000.0
MINUTE = 60.0
HOUR = 3600.0
YEAR = 365.25 * DAY
STORED = Verdict.STORED
CLOSED = Verdict.CLOSED
JUMPS = pytest.mark.parametrize(
    "jump", [10 * MINUTE, 4 * HOUR, 10 * YEAR], ids=["10 minutes", "4 hours", "10 years"]
)


@pytest.fixture
def shuffler(guarded: Store, tmp_path: Path) -> Shuffler:
    return Shuffler(guarded, KeyFolder.at(tmp_path / "keys"))


def row_of(store: Store, digest: str) -> CollectionRow:
    row = store.row(digest)
    assert row is not None
    return row


def opened(shuffler: Shuffler, reports: int, seconds: float = 59 * MINUTE, **terms: Any) -> Round:
    made = opened_round(shuffler, now=shuffler.store.now(), seconds=seconds, **terms)
    put(shuffler, made, [made.report() for _ in range(reports)])
    return made


def driven(shuffler: Shuffler, *rounds: Round) -> list[str]:
    """The states of collections once whatever is due is done."""
    states: list[str] = []
    for made in rounds:
        with suppress(ClockJumped):
            shuffler.advance(made.digest)
        states.append(row_of(shuffler.store, made.digest).state)
    return states


# Jumps


@JUMPS
def test_an_open_collection_is_neither_sealed_nor_aborted_by_a_jump(
    shuffler: Shuffler, clocks: Clocks, store_url: str, jump: float
) -> None:
    """With enough reports and with too few; and both end at their time once the clock is right."""
    enough = opened(shuffler, HONEST, 9 * MINUTE)
    few = opened(shuffler, 3, 9 * MINUTE, round=2, rounds=2)
    clocks.jump(jump)
    assert driven(shuffler, enough, few) == ["open", "open"]
    assert (
        held(store_url, enough.collection).reports,
        held(store_url, few.collection).reports,
    ) == (HONEST, 3)
    with pytest.raises(ClockJumped, match="collection clock confirm"):
        shuffler.advance(enough.digest)
    assert shuffler.store.now() == START
    clocks.jump(-jump)
    assert driven(shuffler, enough, few) == ["open", "open"]
    clocks.wait(9 * MINUTE)
    assert driven(shuffler, enough, few) == ["released", "aborted"]


@JUMPS
def test_a_sealed_collection_waits_and_goes_on(
    guarded: Store, tmp_path: Path, clocks: Clocks, store_url: str, jump: float
) -> None:
    class Interrupted(Exception):
        pass

    points = iter(["sealed"])

    def interrupt(point: str) -> None:
        if point == "mixing" and next(points, None):
            raise Interrupted

    shuffler = Shuffler(guarded, KeyFolder.at(tmp_path / "keys"), at=interrupt)
    made = opened(shuffler, HONEST, MINUTE)
    clocks.wait(MINUTE)
    with pytest.raises(Interrupted):
        shuffler.advance(made.digest)
    clocks.jump(jump)
    assert driven(shuffler, made) == ["sealed"]
    assert held(store_url, made.collection).reports == HONEST
    clocks.jump(-jump)
    assert driven(shuffler, made) == ["released"]


@JUMPS
def test_a_release_that_nobody_collected_stays(
    shuffler: Shuffler, clocks: Clocks, jump: float
) -> None:
    made = opened(shuffler, HONEST, MINUTE, retention=300)
    clocks.wait(MINUTE)
    assert driven(shuffler, made) == ["released"]
    output = b"".join(shuffler.output(made.digest))
    clocks.jump(jump)
    assert driven(shuffler, made) == ["released"]
    assert b"".join(shuffler.output(made.digest)) == output
    clocks.jump(-jump)
    clocks.wait(299)
    assert driven(shuffler, made) == ["released"]
    clocks.wait(1)
    assert driven(shuffler, made) == ["aborted"]


@pytest.mark.parametrize("back", [10 * MINUTE, 4 * HOUR, 10 * YEAR])
def test_a_clock_that_goes_back_is_no_jump_and_reopens_nothing(
    shuffler: Shuffler, clocks: Clocks, back: float
) -> None:
    first = opened(shuffler, HONEST, MINUTE)
    second = opened(shuffler, HONEST, 2 * MINUTE, round=2, rounds=2)
    clocks.wait(MINUTE)
    assert driven(shuffler, first, second) == ["released", "open"]
    clocks.jump(-back)
    assert not shuffler.store.read_clock().has_jumped
    assert shuffler.store.now() == START + MINUTE
    assert shuffler.store.put(first.digest, [entry()]) == [CLOSED]
    assert shuffler.store.put(second.digest, [entry()]) == [STORED]
    clocks.jump(back)  # and it may return
    assert not shuffler.store.read_clock().has_jumped
    clocks.wait(MINUTE)
    assert driven(shuffler, second) != ["open"]


def test_hours_ahead_for_four_seconds_change_nothing(
    shuffler: Shuffler, clocks: Clocks, store_url: str
) -> None:
    """A running shuffler with enough reports, too few, and a released collection."""
    said: list[str] = []
    released = opened(shuffler, HONEST, MINUTE, retention=2 * 3600)
    clocks.wait(MINUTE)
    assert driven(shuffler, released) == ["released"]
    enough = opened(shuffler, HONEST, round=2, rounds=3)
    few = opened(shuffler, 3, round=3, rounds=3)
    shuffler.log = said.append
    stop = threading.Event()
    thread = threading.Thread(target=shuffler.run, args=(stop,))
    thread.start()
    try:
        time.sleep(0.6)
        clocks.jump(4 * HOUR)
        time.sleep(1.2)
        assert [row_of(shuffler.store, made.digest).state for made in (released, enough, few)] == [
            "released",
            "open",
            "open",
        ]
        clocks.wait(4)
        clocks.jump(-4 * HOUR)
        time.sleep(1.2)
    finally:
        stop.set()
        thread.join(20)
    assert driven(shuffler, released, enough, few) == ["released", "open", "open"]
    assert (
        held(store_url, enough.collection).reports,
        held(store_url, few.collection).reports,
    ) == (HONEST, 3)
    assert (
        len(
            [
                line
                for line in said
                if line.startswith("The clock is 4.0 hours ahead of the expected time")
            ]
        )
        == 1
    )
    assert "The clock is accepted again; collections continue." in said
    later = opened_round(
        shuffler, now=shuffler.store.now(), seconds=30 * MINUTE, rounds=2
    )  # (it could not be opened for four hours)
    assert row_of(shuffler.store, later.digest).state == "open"


# Reports meanwhile


def test_reports_are_taken_where_both_clocks_agree_and_wait_elsewhere(
    guarded: Store, clocks: Clocks, new_collection: NewCollection
) -> None:
    """Closed is said only if both clocks agree; closed by either takes nothing."""

    def new(opens: float, lasts: float, number: int, **terms: Any) -> str:
        return added(
            guarded, new_collection(opens=START + opens, lasts=lasts, round=number, **terms)
        )

    short, long, early = new(0, HOUR, 1), new(0, 9 * HOUR, 2), new(2 * HOUR, 9 * HOUR, 3)
    clocks.jump(4 * HOUR)
    assert guarded.put(long, fresh_entries(2)) == [STORED] * 2
    for digest in (short, early):
        with pytest.raises(ClockJumped):
            guarded.put(digest, fresh_entries(2))
    clocks.wait(HOUR)  # the one that is over by both is closed, as ever, and is not sealed yet
    clocks.jump(-HOUR)
    with pytest.raises(ClockJumped):
        guarded.put(early, fresh_entries(2))
    clocks.jump(HOUR)
    assert guarded.seal(short) == "open"
    assert guarded.put(long, [entry()]) == [STORED]
    clocks.jump(-4 * HOUR)
    assert guarded.put(early, [entry()]) == [CLOSED]


def test_a_report_that_waits_for_the_clock_is_to_be_sent_again(
    guarded: Store, tmp_path: Path, clocks: Clocks, new_collection: NewCollection
) -> None:
    service = Service(guarded, tmp_path / "keys", new_collection)
    collection = service.opened(opens=START, lasts=HOUR)
    assert run(lambda: service.post(collection, report_of(collection))).status == 204
    clocks.jump(4 * HOUR)
    answer = run(lambda: service.post(collection, report_of(collection)))
    assert (answer.status, asks_again(answer)) == (503, True)
    assert service.said == []  # (a line would tell when it came)
    clocks.jump(-4 * HOUR)
    assert run(lambda: service.post(collection, report_of(collection))).status == 204
    service.intake.close()


def test_no_collection_is_opened_by_a_clock_that_jumped(shuffler: Shuffler, clocks: Clocks) -> None:
    clocks.jump(4 * HOUR)
    with pytest.raises(InputError, match="ahead of the expected time"):
        opened_round(shuffler, now=START + 4 * HOUR, seconds=HOUR)


def test_the_operator_can_abort_and_purge_all_the_same(shuffler: Shuffler, clocks: Clocks) -> None:
    released = opened(shuffler, HONEST, MINUTE)
    clocks.wait(MINUTE)
    assert driven(shuffler, released) == ["released"]
    made = opened(shuffler, HONEST, round=2, rounds=2)
    clocks.jump(4 * HOUR)
    assert shuffler.abort(made.digest, "the clock is wrong").state == "aborted"
    assert not shuffler.keys.has(row_of(shuffler.store, made.digest).key)
    assert shuffler.purge(released.digest).state == "aborted"


# What the operator says


def test_a_clock_that_is_confirmed_counts_everywhere_and_everybody_can_read_it(
    shuffler: Shuffler, open_store: Callable[[], Store], clocks: Clocks
) -> None:
    ended = opened(shuffler, 0)
    shuffler.abort(ended.digest, "a first try")
    made = opened(shuffler, HONEST, round=2, rounds=2)
    other = open_store()
    with pytest.raises(InputError, match="nothing to confirm"):
        shuffler.confirm_clock()
    clocks.jump(4 * HOUR)
    assert other.read_clock().has_jumped
    note = shuffler.confirm_clock()
    assert (
        note == "The operator confirmed the clock, which had jumped ahead by 4.0 hours, when it "
        "said 2033-05-18T07:33:20Z."
    )
    assert not other.read_clock().has_jumped
    assert not open_store().read_clock().has_jumped
    assert other.now() == START + 4 * HOUR
    assert driven(shuffler, made) == ["released"]
    assert public_status(row_of(other, made.digest))["clock"] == [note]
    assert "clock" not in public_status(row_of(other, ended.digest))
    clocks.jump(10 * MINUTE)
    assert other.read_clock().has_jumped


def test_a_time_that_a_wrong_clock_stored_can_be_taken_back(
    shuffler: Shuffler, open_store: Callable[[], Store], store_url: str, clocks: Clocks
) -> None:
    """Time stored by an unguarded version, hours ahead, which blocked opening."""
    sealed = opened(shuffler, HONEST, 2 * HOUR)
    released = opened(shuffler, HONEST, MINUTE, round=2, rounds=3)
    clocks.wait(MINUTE)
    assert driven(shuffler, released) == ["released"]
    wrong = connect_store(store_url, lambda: START + 4 * HOUR)
    other = open_store()
    assert wrong.seal(sealed.digest) == "sealed"
    wrong.close()
    with pytest.raises(InputError, match="closed at"):
        opened_round(shuffler, now=START, seconds=HOUR, round=3, rounds=3)
    assert other.now() == START + 4 * HOUR
    assert "collection clock correct" in other.read_clock().warning
    note = shuffler.correct_clock()
    assert (
        note == "The operator corrected the time, which was 4.0 hours ahead, when the clock said "
        "2033-05-18T03:34:20Z."
    )
    assert shuffler.store.now() == other.now() == open_store().now() == START + MINUTE
    assert row_of(other, sealed.digest).state == "sealed"
    assert other.put(sealed.digest, [entry()]) == [CLOSED]
    assert public_status(row_of(other, released.digest))["clock"] == [note]
    assert opened(shuffler, HONEST, HOUR, round=3, rounds=3)
    with pytest.raises(InputError, match="nothing to correct"):
        shuffler.correct_clock()
    clocks.jump(4 * HOUR)
    with pytest.raises(InputError, match="Nothing can be corrected by such a clock"):
        shuffler.correct_clock()


def test_a_release_of_a_wrong_hour_is_not_kept_for_years(
    shuffler: Shuffler, store_url: str, clocks: Clocks
) -> None:
    made = opened(shuffler, HONEST, MINUTE, retention=3600)
    shuffler.store.close()
    wrong = Shuffler(connect_store(store_url, lambda: START + 10 * YEAR), shuffler.keys)
    assert driven(wrong, made) == ["released"]
    wrong.store.close()
    store = connect_store(store_url, clocks, clocks.steady)
    right = Shuffler(store, shuffler.keys)
    right.correct_clock()
    clocks.wait(3599)
    assert driven(right, made) == ["released"]
    clocks.wait(1)
    assert driven(right, made) == ["aborted"]
    store.close()


def test_only_the_operator_is_asked(
    guarded: Store, tmp_path: Path, clocks: Clocks, new_collection: NewCollection
) -> None:
    service = Service(guarded, tmp_path / "keys", new_collection)
    collection = service.opened(opens=START, lasts=HOUR)
    clocks.jump(4 * HOUR)
    for method, call in (("GET", "clock"), ("POST", "clock/confirm"), ("POST", "clock/correct")):
        assert (
            run(
                lambda method=method, call=call: service.control(method, call, {}, token="x" * 43)  # type: ignore[misc]
            ).status
            == 401
        )
    shown = run(lambda: service.control("GET", "clock")).json
    assert (shown["believed"], shown["clock"], shown["expected"]) == (
        False,
        "2033-05-18T07:33:20Z",
        "2033-05-18T03:33:20Z",
    )
    assert run(lambda: service.control("POST", "clock/correct", {})).status == 400
    told = run(lambda: service.control("POST", "clock/confirm", {}))
    assert (told.status, told.json["believed"]) == (200, True)
    state = run(lambda: service.ask("GET", f"/v1/collections/{collection.digest}/state")).json
    assert state["clock"] == [told.json["note"]]
    service.intake.close()


# What is said of states


def test_every_change_of_a_state_is_a_line_of_the_log_with_nobody_in_it(
    shuffler: Shuffler, clocks: Clocks
) -> None:
    said: list[str] = []
    shuffler.log = said.append
    made = opened(shuffler, HONEST, MINUTE)
    clocks.wait(MINUTE)
    driven(shuffler, made)
    shuffler.store.acknowledge(made.digest)
    driven(shuffler, made)
    few = opened(shuffler, 3, MINUTE, round=2, rounds=2, extends="2033-05-18T03:40:00Z")
    clocks.wait(MINUTE)
    driven(shuffler, few)
    shuffler.abort(few.digest, "enough")
    name = made.digest[:16]
    other = few.digest[:16]
    assert said == [
        f"Collection {name} was opened.",
        *(
            f"Collection {name} is {after}, after it was {before}."
            for before, after in zip(
                ("open", "sealed", "shuffled", "erased", "released"),
                ("sealed", "shuffled", "erased", "released", "purged"),
                strict=True,
            )
        ),
        f"Collection {other} was opened.",
        f"Collection {other} has too few reports and is extended until 2033-05-18T03:40:00Z.",
        f"Collection {other} is aborted, after it was open: by its operator: enough.",
    ]


def test_the_operator_sees_when_it_was_sealed_and_released(
    guarded: Store, tmp_path: Path, clocks: Clocks, new_collection: NewCollection
) -> None:
    service = Service(guarded, tmp_path / "keys", new_collection)
    collection = service.opened(opens=START, lasts=HOUR)

    def times() -> tuple[Any, Any]:
        status = run(lambda: service.control("GET", f"collections/{collection.digest}")).json
        return status["sealed_at"], status["released_at"]

    assert times() == (None, None)
    for _ in range(4):
        assert run(lambda: service.post(collection, report_of(collection))).status == 204
    clocks.wait(HOUR + 7)
    service.shuffler.advance(collection.digest)
    assert times() == ("2033-05-18T04:33:27Z", "2033-05-18T04:33:27Z")
    service.intake.close()
