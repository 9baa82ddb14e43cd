"""States of a collection: from open to purged, once, in order, and never too early."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from tests.collection.conftest import Clock
from tests.collection.rounds import HONEST, Round, new_round, opened_round, put, secrets_of

from metricshuffle.collection.keys import KeyFolder
from metricshuffle.collection.shuffler.lifecycle import Shuffler
from metricshuffle.collection.store.factory import connect_store
from metricshuffle.collection.store.records import STATES, DuplicateCollection, StoreError, Verdict
from metricshuffle.collection.store.sql_store import Store
from metricshuffle.collection.terms import Collection, Party
from metricshuffle.errors import InputError, PlanError

START = 2_000_000_000.0
ENOUGH = HONEST + 2


@pytest.fixture
def shuffler(store: Store, tmp_path: Path, clock: Clock) -> Shuffler:
    clock.stop(START)
    return Shuffler(store, KeyFolder.at(tmp_path / "keys"))


def state(shuffler: Shuffler, made: Round) -> str:
    status = shuffler.status(made.digest)
    assert status is not None
    return status.state


def reason(shuffler: Shuffler, made: Round) -> str:
    status = shuffler.status(made.digest)
    assert status is not None
    assert status.state == "aborted"
    return status.reason


def output(shuffler: Shuffler, made: Round) -> bytes:
    return b"".join(shuffler.output(made.digest))


def files(shuffler: Shuffler) -> set[str]:
    return {path.name for path in shuffler.keys.path.rglob("*") if path.is_file()}


# The whole way


def test_everybody_is_let_go_exactly_once_and_by_no_order_of_theirs(
    shuffler: Shuffler, clock: Clock
) -> None:
    made = opened_round(shuffler, now=START)
    payloads = [made.payloads() for _ in range(30)]
    reports = [made.report(payloads=mine) for mine in payloads]
    boxes = made.boxes(reports, secrets_of(shuffler, made).private)
    put(shuffler, made, reports)
    assert shuffler.advance(made.digest) == "open"
    clock.ahead = 60
    assert shuffler.advance(made.digest) == "released"
    assert output(shuffler, made) == b"".join(sorted(boxes))
    assert made.opened(output(shuffler, made)) == sorted(
        payload for mine in payloads for payload in mine
    )
    assert len({box[:32] for box in made.split(output(shuffler, made))}) == len(boxes)
    assert b"".join(shuffler.store.output(made.digest)) == output(shuffler, made)
    status = shuffler.status(made.digest)
    assert status is not None
    assert (status.people, status.left_out, status.reports) == (30, 0, 30)
    shuffler.store.acknowledge(made.digest)
    assert shuffler.advance(made.digest) == "purged"
    assert files(shuffler) == {"operator.token", "owner.id"}


def test_originals_and_keys_are_gone_before_anything_can_be_fetched(
    store: Store, tmp_path: Path, clock: Clock
) -> None:
    clock.stop(START)
    seen: list[tuple[str, str, int, bool]] = []

    def look(point: str) -> None:
        row = store.row(made.digest) if made else None
        if row is not None:
            left = len(list(store.hidden(made.digest))) if row.state == "sealed" else -1
            seen.append((point, row.state, left, shuffler.keys.has(row.key)))

    made: Round = None  # type: ignore[assignment]
    shuffler = Shuffler(
        store,
        KeyFolder.at(tmp_path / "keys"),
        at=lambda point: look(point) if point != "copying" else None,
    )
    made = opened_round(shuffler, now=START)
    put(shuffler, made, [made.report() for _ in range(ENOUGH)])
    clock.ahead = 60
    shuffler.advance(made.digest)
    states = [entry[1] for entry in seen]
    assert list(dict.fromkeys(states)) == ["open", "sealed", "shuffled", "erased", "released"]
    assert states == sorted(states, key=STATES.index)
    assert all(left == ENOUGH and has_keys for _, at, left, has_keys in seen if at == "sealed")
    assert all(not has_keys for _, at, _, has_keys in seen if at in ("erased", "released"))


# Time


def test_it_is_sealed_at_its_closing_time_and_never_because_there_are_enough(
    shuffler: Shuffler, clock: Clock
) -> None:
    made = opened_round(shuffler, now=START)
    put(shuffler, made, [made.report() for _ in range(3 * HONEST)])
    for clock.ahead in (0, 1, 30, 59, 59.9):
        assert shuffler.advance(made.digest) == "open"
    put(shuffler, made, [made.report()])
    clock.ahead = 60
    assert shuffler.advance(made.digest) == "released"


def test_with_too_few_it_stays_open_once_and_is_aborted_then(
    shuffler: Shuffler, clock: Clock
) -> None:
    made = opened_round(shuffler, now=START, extends="2033-05-18T03:36:20Z")
    assert made.collection.terms.closes == "2033-05-18T03:34:20Z"
    put(shuffler, made, [made.report() for _ in range(HONEST - 1)])
    for clock.ahead in (60, 61, 179):
        assert shuffler.advance(made.digest) == "open"
    clock.ahead = 180
    assert shuffler.advance(made.digest) == "aborted"
    assert reason(shuffler, made) == f"fewer reports than the {HONEST} that were needed"
    assert files(shuffler) == {"operator.token", "owner.id"}


def test_an_extended_one_waits_for_its_end_even_with_enough(
    shuffler: Shuffler, clock: Clock
) -> None:
    made = opened_round(shuffler, now=START, extends="2033-05-18T03:36:20Z")
    put(shuffler, made, [made.report() for _ in range(HONEST - 1)])
    clock.ahead = 70
    assert shuffler.advance(made.digest) == "open"
    put(shuffler, made, [made.report() for _ in range(5)])
    for clock.ahead in (71, 179):
        assert shuffler.advance(made.digest) == "open"
    clock.ahead = 180
    assert shuffler.advance(made.digest) == "released"


def test_colluders_are_needed_on_top_of_the_honest(shuffler: Shuffler, clock: Clock) -> None:
    for round_, extra, ends in ((1, 4, "aborted"), (2, 5, "released")):
        made = opened_round(shuffler, now=clock(), colluders=5, rounds=2, round=round_)
        put(shuffler, made, [made.report() for _ in range(HONEST + extra)])
        clock.ahead += 60
        assert shuffler.advance(made.digest) == ends


@pytest.mark.parametrize("jump", [-86_400, -61, 3600, 40 * 86_400])
def test_a_clock_that_jumps_reopens_nothing_and_loses_nothing(
    shuffler: Shuffler, clock: Clock, jump: float
) -> None:
    made = opened_round(shuffler, now=START)
    reports = [made.report() for _ in range(ENOUGH)]
    keys = secrets_of(shuffler, made)
    put(shuffler, made, reports)
    boxes = made.boxes(reports, keys.private)
    clock.ahead = max(60, jump)
    assert shuffler.store.seal(made.digest) == "sealed"
    clock.ahead = jump
    late = made.entry(made.report(), keys)
    assert shuffler.store.put(made.digest, [late]) == [Verdict.CLOSED]
    assert shuffler.advance(made.digest) == "released"
    assert output(shuffler, made) == b"".join(sorted(boxes))
    clock.ahead = -30
    assert shuffler.advance(made.digest) == "released"


def test_what_nobody_collects_is_aborted_when_its_retention_ends(
    shuffler: Shuffler, clock: Clock
) -> None:
    made = opened_round(shuffler, now=START, retention=100)
    put(shuffler, made, [made.report() for _ in range(ENOUGH)])
    clock.ahead = 60
    assert shuffler.advance(made.digest) == "released"
    clock.ahead = 159
    assert shuffler.advance(made.digest) == "released"
    clock.ahead = 161
    assert shuffler.advance(made.digest) == "aborted"
    assert reason(shuffler, made) == "not collected"
    assert files(shuffler) == {"operator.token", "owner.id"}
    assert list(shuffler.store.output(made.digest)) == []


def test_a_tombstone_stays(shuffler: Shuffler, clock: Clock) -> None:
    made = opened_round(shuffler, now=START)
    put(shuffler, made, [made.report() for _ in range(ENOUGH)])
    clock.ahead = 60
    shuffler.advance(made.digest)
    shuffler.store.acknowledge(made.digest)
    shuffler.advance(made.digest)
    row = shuffler.store.row(made.digest)
    assert row is not None
    assert (row.state, row.served, row.people) == ("purged", made.collection.served, ENOUGH)
    assert len(row.output) == 64
    assert row.sealed_at % 3600 == row.released_at % 3600 == 0
    with pytest.raises(DuplicateCollection):
        opened_round(shuffler, now=START + 100)


# Boxes that are shared


def test_reports_that_share_a_box_are_left_out_and_counted(
    shuffler: Shuffler, clock: Clock
) -> None:
    made = opened_round(shuffler, now=START)
    keys = secrets_of(shuffler, made)
    reports = [made.report() for _ in range(25)]
    put(shuffler, made, reports)
    theirs = made.boxes(reports[4:5], keys.private)
    mine = made.boxes([made.report()], keys.private)
    copied = made.collection.keys[-1].sealed(b"".join([theirs[3], *mine[1:]]), made.sealing.info(1))
    put(shuffler, made, [copied])
    clock.ahead = 60
    assert shuffler.advance(made.digest) == "released"
    status = shuffler.status(made.digest)
    assert status is not None
    assert (status.people, status.left_out, status.reports) == (24, 2, 26)
    assert output(shuffler, made) == b"".join(
        sorted(made.boxes(reports[:4] + reports[5:], keys.private))
    )


def test_too_few_after_leaving_out_is_too_few(shuffler: Shuffler, clock: Clock) -> None:
    made = opened_round(shuffler, now=START)
    keys = secrets_of(shuffler, made)
    reports = [made.report() for _ in range(HONEST)]
    put(shuffler, made, reports)
    theirs = made.boxes(reports[:1], keys.private)
    mine = made.boxes([made.report()], keys.private)
    put(
        shuffler,
        made,
        [made.collection.keys[-1].sealed(b"".join([theirs[0], *mine[1:]]), made.sealing.info(1))],
    )
    clock.ahead = 60
    assert shuffler.advance(made.digest) == "aborted"
    assert "without 2 that share a message" in reason(shuffler, made)
    assert files(shuffler) == {"operator.token", "owner.id"}


def sharing_reports(shuffler: Shuffler, made: Round) -> list[bytes]:
    """Two reports with a message in common."""
    keys = secrets_of(shuffler, made)
    first = made.report()
    theirs = made.boxes([first], keys.private)
    mine = made.boxes([made.report()], keys.private)
    return [
        first,
        made.collection.keys[-1].sealed(b"".join([theirs[0], *mine[1:]]), made.sealing.info(1)),
    ]


@pytest.mark.parametrize("late", [0, 1, 2])
def test_only_distinct_reports_keep_it_from_being_extended(
    shuffler: Shuffler, clock: Clock, late: int
) -> None:
    made = opened_round(shuffler, now=START, extends="2033-05-18T03:36:20Z")
    honest = [made.report() for _ in range(HONEST - 1)]
    boxes = made.boxes(honest, secrets_of(shuffler, made).private)
    put(shuffler, made, [*honest, *sharing_reports(shuffler, made)])
    clock.ahead = 60
    assert shuffler.advance(made.digest) == "open"
    for _ in range(late):
        clock.ahead += 10
        report = made.report()
        boxes += made.boxes([report], secrets_of(shuffler, made).private)
        put(shuffler, made, [report])
        assert shuffler.advance(made.digest) == "open"
    clock.ahead = 180
    if not late:
        assert shuffler.advance(made.digest) == "aborted"
        assert "without 2 that share a message" in reason(shuffler, made)
        return
    assert shuffler.advance(made.digest) == "released"
    status = shuffler.status(made.digest)
    assert status is not None
    assert (status.people, status.left_out) == (HONEST - 1 + late, 2)
    assert output(shuffler, made) == b"".join(sorted(boxes))


@pytest.mark.parametrize("point", ["counting", "counted"])
def test_nothing_comes_in_while_distinct_reports_are_counted(
    store: Store, tmp_path: Path, clock: Clock, point: str
) -> None:
    """Not even if the clock goes back, or the process ends and another one goes on."""
    clock.stop(START)
    looked: list[str] = []

    def at(name: str) -> None:
        if name == point:
            looked.append(name)
            clock.ahead = 30
            assert store.put(
                made.digest, [made.entry(made.report(), secrets_of(shuffler, made))]
            ) == [Verdict.CLOSED]
            if len(looked) == 1:
                raise KeyboardInterrupt

    shuffler = Shuffler(store, KeyFolder.at(tmp_path / "keys"), at=at)
    made = opened_round(shuffler, now=START, extends="2033-05-18T03:36:20Z")
    put(shuffler, made, [made.report() for _ in range(ENOUGH)])
    clock.ahead = 60
    with pytest.raises(KeyboardInterrupt):
        shuffler.advance(made.digest)
    assert state(shuffler, made) == "open"
    assert shuffler.advance(made.digest) == "released"
    assert len(looked) == 2


@pytest.mark.parametrize("is_enough", [True, False])
@pytest.mark.parametrize("cause", ["slow", "late", "waits"])
def test_counting_distinct_reports_ends_after_a_quarter_of_the_extension(
    store: Store,
    tmp_path: Path,
    clock: Clock,
    monkeypatch: pytest.MonkeyPatch,
    cause: str,
    is_enough: bool,
) -> None:
    """Otherwise whoever sends two reports that share a message could keep it open for long."""
    clock.stop(START)
    lines: list[str] = []

    def at(point: str) -> None:
        if point == "counting":
            clock.ahead = 89.9

    shuffler = Shuffler(store, KeyFolder.at(tmp_path / "keys"), at=at, log=lines.append)
    made = opened_round(shuffler, now=START, extends="2033-05-18T03:36:20Z")
    honest = [made.report() for _ in range(ENOUGH if is_enough else HONEST - 1)]
    put(shuffler, made, [*honest, *sharing_reports(shuffler, made)])
    clock.ahead = 90 if cause == "late" else 60
    read = store.hidden

    def slow(digest: str) -> Iterator[tuple[bytes, bytes]]:
        for report in read(digest):
            time.sleep(0.05)
            yield report

    with monkeypatch.context() as slowed:
        if cause == "slow":
            slowed.setattr(store, "hidden", slow)
        if cause == "waits":  # for the sort of another collection
            shuffler._steps._sort_lock.acquire()
            threading.Timer(0.5, shuffler._steps._sort_lock.release).start()
        assert shuffler.advance(made.digest) == ("released" if is_enough else "aborted")
    not_counted = [line for line in lines if "were not counted in time" in line]
    assert len(not_counted) == (cause != "late")
    if not is_enough:
        assert "without 2 that share a message" in reason(shuffler, made)


# The operator


@pytest.mark.parametrize(
    "point",
    [
        "sealing",
        "mixing",
        "written",
        "renamed",
        "copied",
        "shuffled",
        "forgotten",
        "keys destroyed",
        "erased",
    ],
)
def test_it_can_be_aborted_at_every_moment_until_it_is_released(
    store: Store, tmp_path: Path, clock: Clock, point: str
) -> None:
    clock.stop(START)
    keys = KeyFolder.at(tmp_path / "keys")
    operator = Shuffler(store, keys)
    done: list[str] = []

    def at(name: str) -> None:
        if name == point and not done:
            done.append(name)
            operator.abort(made.digest, "the wrong question")

    shuffler = Shuffler(store, keys, at=at)
    made = opened_round(operator, now=START)
    put(shuffler, made, [made.report() for _ in range(ENOUGH)])
    clock.ahead = 60
    with suppress(
        StoreError
    ):  # whoever was driving may find that the reports are gone, and looks again later
        shuffler.advance(made.digest)
    assert done
    assert shuffler.advance(made.digest) == "aborted"
    assert reason(shuffler, made) == "by its operator: the wrong question"
    assert files(shuffler) == {"operator.token", "owner.id"}
    assert shuffler.abort(made.digest, "again").reason == "by its operator: the wrong question"


def test_what_is_released_is_purged_and_not_aborted(shuffler: Shuffler, clock: Clock) -> None:
    for round_, collected, ends in ((1, False, "aborted"), (2, True, "purged")):
        made = opened_round(shuffler, now=clock(), rounds=2, round=round_)
        put(shuffler, made, [made.report() for _ in range(ENOUGH)])
        with pytest.raises(InputError, match="is open; abort it instead"):
            shuffler.purge(made.digest)
        clock.ahead += 60
        assert shuffler.advance(made.digest) == "released"
        with pytest.raises(InputError, match="is released; purge it instead"):
            shuffler.abort(made.digest, "late")
        if collected:
            shuffler.store.acknowledge(made.digest)
        assert shuffler.purge(made.digest).state == ends
        assert files(shuffler) == {"operator.token", "owner.id"}


def test_a_reason_is_one_line(shuffler: Shuffler) -> None:
    made = opened_round(shuffler, now=START)
    for wrong in ("", "  ", "two\nlines", "x" * 301):
        with pytest.raises(InputError, match="a reason must be one line"):
            shuffler.abort(made.digest, wrong)
    with pytest.raises(InputError, match="there is no collection"):
        shuffler.abort("0" * 64, "why not")
    assert shuffler.status("0" * 64) is None


# Opening


def test_a_collection_is_opened_once(shuffler: Shuffler) -> None:
    made = opened_round(shuffler, now=START)
    assert shuffler.open(made.collection.served) is False
    with pytest.raises(DuplicateCollection):
        opened_round(shuffler, now=START)


def test_keys_belong_to_one_collection(shuffler: Shuffler) -> None:
    party = shuffler.new_party()
    first = new_round([(party, "http://127.0.0.1:1")], now=START, rounds=2, round=1)
    second = new_round([(party, "http://127.0.0.1:1")], now=START, rounds=2, round=2)
    assert shuffler.open(first.collection.served)
    with pytest.raises(PlanError, match="belong to another collection"):
        shuffler.open(second.collection.served)


def test_a_collection_of_others_is_refused(shuffler: Shuffler, tmp_path: Path) -> None:
    other = Shuffler(shuffler.store, KeyFolder.at(tmp_path / "other"))
    mine = shuffler.new_party()
    theirs = other.new_party()
    url = "http://127.0.0.1:1"
    before = "http://127.0.0.1:2"

    def refused(
        hops: list[tuple[Party, str]],
        why: str,
        by: Shuffler = shuffler,
        tickets: int = 0,
        **terms: Any,
    ) -> None:
        made = new_round(hops, now=START, tickets=tickets, **terms)
        with pytest.raises(InputError, match=why):
            by.open(made.collection.served, made.tickets)
        assert by.store.row(made.digest) is None

    refused([(theirs, url)], "none of this collection's keys")
    refused([(mine, url), (shuffler.new_party(), before)], "this same shuffler")
    refused([(mine.model_copy(update={"release": theirs.release}), url)], "release token")
    refused([(theirs, before), (mine, url)], "see serve --after")
    later = Shuffler(shuffler.store, shuffler.keys, after="http://127.0.0.1:3")
    refused([(theirs, before), (mine, url)], "see serve --after", by=later)
    refused([(mine, url)], "see serve --after", by=later)
    refused([(mine, url)], "closed at", seconds=-0.5, opens="2020-01-01T00:00:00Z")
    refused([(mine, url)], "too few for the 20 reports", tickets=19)
    wrong = Collection(
        new_round([(mine, url)], now=START).collection.served.replace(
            b'"minimum":20', b'"minimum":19'
        )
    )
    with pytest.raises(PlanError, match="counts on 20 honest"):
        shuffler.open(wrong.served)
    with pytest.raises(PlanError, match="not a collection"):
        shuffler.open(b"{}")


def test_tickets_are_for_collections_that_ask_for_them(shuffler: Shuffler) -> None:
    party = shuffler.new_party()
    url = "http://127.0.0.1:1"
    made = new_round([(party, url)], now=START)
    with pytest.raises(InputError, match="tickets belong"):
        shuffler.open(made.collection.served, [os.urandom(16)])
    ticketed = new_round([(party, url)], now=START, tickets=ENOUGH)
    for wrong, why in (
        ((), "tickets belong"),
        ((b"short",) * ENOUGH, "16 bytes"),
        (ticketed.tickets[:1] * ENOUGH, "all must be different"),
    ):
        with pytest.raises(InputError, match=why):
            shuffler.open(ticketed.collection.served, wrong)
    assert shuffler.open(ticketed.collection.served, ticketed.tickets)
    put(shuffler, ticketed, [ticketed.report(ticket) for ticket in ticketed.tickets])


# By itself


def test_it_runs_by_itself_and_several_do(new_store_url: Callable[[], str], tmp_path: Path) -> None:
    """Real clock: two shufflers in threads drive a collection that closes in a second."""
    url = new_store_url()
    keys = KeyFolder.at(tmp_path / "keys")
    stop = threading.Event()
    stores = [connect_store(url), connect_store(url)]
    both = [Shuffler(store, keys) for store in stores]
    threads = [threading.Thread(target=shuffler.run, args=(stop,)) for shuffler in both]
    for thread in threads:
        thread.start()
    try:
        made = opened_round(both[0], seconds=2)
        reports = [made.report() for _ in range(ENOUGH)]
        boxes = made.boxes(reports, secrets_of(both[1], made).private)
        put(both[1], made, reports)
        deadline = time.monotonic() + 30
        while state(both[1], made) != "released" and time.monotonic() < deadline:
            time.sleep(0.05)
        assert output(both[1], made) == b"".join(sorted(boxes))
        both[1].store.acknowledge(made.digest)
        while (
            state(both[0], made) != "purged" or files(both[0]) != {"operator.token", "owner.id"}
        ) and time.monotonic() < deadline:
            time.sleep(0.05)
        assert state(both[0], made) == "purged"
        assert both[0].trouble == both[1].trouble == {}
    finally:
        stop.set()
        for thread in threads:
            thread.join(20)
        for store in stores:
            store.close()
    assert not any(thread.is_alive() for thread in threads)
    assert files(both[0]) == {"operator.token", "owner.id"}
