"""Rounds of sums: losses, extension, roll-back, and adders that do not follow the protocol."""

from __future__ import annotations

import itertools
import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from tests.collection.conftest import Clocks
from tests.collection.local_adders import START, Adders, LocalAdder
from tests.collection.sums import AdderKeys, new_sum, sealed_value, sum_task

from metricshuffle.collection.adder.adder_link import AdderUnreachable
from metricshuffle.collection.adder.adder_service import AdderService, plain_adder_warning
from metricshuffle.collection.adder.sum_signatures import InvalidList, NameList, SumStatement
from metricshuffle.collection.adder.sum_store import ShareEntry, SumStore
from metricshuffle.collection.adder.sum_terms import SumCollection
from metricshuffle.collection.store.factory import open_database
from metricshuffle.collection.store.records import DuplicateCollection, StoreError, Verdict
from metricshuffle.errors import InputError, PlanError

NewAdders = Callable[..., Adders]


@pytest.fixture
def new_adders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[NewAdders]:
    """Adders in folders of their own; stores are closed at the end."""
    groups: list[Adders] = []

    def new(count: int = 2, name: str = "") -> Adders:
        groups.append(Adders(tmp_path / (name or str(len(groups))), count, monkeypatch))
        return groups[-1]

    yield new
    for group in groups:
        group.close()


@pytest.mark.parametrize("servers", [2, 3, 5])
def test_a_round_gives_the_sum(new_adders: NewAdders, servers: int) -> None:
    adders = new_adders(servers)
    collection = adders.opened()
    for value in (3, 5, 9):
        boxes = adders.report(collection, value)
        assert set(adders.send(collection, boxes)) == {Verdict.SAME}
    assert adders.advance(collection.digest) == ["open"] * servers
    adders.wait(200)
    assert adders.advance(collection.digest) == ["released"] * servers
    assert adders.sum(collection) == [17] * collection.terms.length
    for adder in adders.all:
        row = adder.service.row(collection.digest)
        assert (row.people, row.reports) == (3, 3)
        assert not adder.keys.has(row.key), "keys are destroyed before the release"
        with adder.store._database.reading() as db:
            for sql in (
                "SELECT count(*) FROM adder_share",
                "SELECT count(*) FROM adder_list",
                "SELECT count(*) FROM adder_ticket",
            ):
                assert db.execute(sql).fetchone()[0] == 0


@pytest.mark.thorough
def test_a_round_on_postgresql(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    new_postgres_url: Callable[[], str],
) -> None:
    urls = [new_postgres_url() for _ in range(2)]
    adders = Adders(tmp_path, 2, monkeypatch, urls)
    tickets = [bytes([number]) * 16 for number in range(3)]
    collection = adders.opened(tickets=tickets, longer=100)
    first = sealed_value(collection, 2, ticket=tickets[0])
    assert adders.send(collection, first) == [Verdict.STORED] * 2
    assert adders.send(collection, first) == [Verdict.SAME] * 2
    again = sealed_value(collection, 2, ticket=tickets[0])
    assert adders.send(collection, again) == [Verdict.SPENT_TICKET] * 2
    adders.wait(100)
    assert adders.advance(collection.digest) == ["open"] * 2, "extended"
    adders.send(collection, sealed_value(collection, 3, ticket=tickets[1]))
    adders.wait(100)
    assert adders.advance(collection.digest) == ["released"] * 2
    assert adders.sum(collection) == [5] * collection.terms.length
    with (
        pytest.raises(StoreError, match="signed once"),
        adders.all[0].store._database.writing() as db,
    ):
        db.execute("DELETE FROM adder_statement")
    adders.close()


def delivered(adders: Adders, patterns: tuple[tuple[int, ...], ...], **terms: Any) -> SumCollection:
    """Round in which report i reaches the adders `patterns[i]` only."""
    collection = adders.opened(**terms)
    for value, places in enumerate(patterns):
        adders.send(collection, sealed_value(collection, 10**value), places)
    adders.wait(200)
    return collection


def every_subset(places: int) -> list[tuple[int, ...]]:
    return [
        subset
        for size in range(places + 1)
        for subset in itertools.combinations(range(places), size)
    ]


def check_deliveries(adders: Adders, patterns: tuple[tuple[int, ...], ...], round: int) -> None:
    task = sum_task(rounds=100)
    collection = delivered(adders, patterns, task=task, round=round)
    states = adders.advance(collection.digest)
    servers = tuple(range(len(adders.all)))
    complete = [value for value, places in enumerate(patterns) if places == servers]
    if len(complete) >= collection.terms.minimum:
        assert states == ["released"] * len(servers), patterns
        expected = sum(10**value for value in complete) % collection.shares.modulus
        assert adders.sum(collection) == [expected] * collection.terms.length, patterns
        assert adders.all[0].service.row(collection.digest).people == len(complete)
    else:
        assert states == ["aborted"] * len(servers), patterns


def test_every_subset_of_deliveries_lost_by_two_adders(new_adders: NewAdders) -> None:
    """Two people, two adders: 16 cases. What all have is counted, and nothing else."""
    adders = new_adders(2)
    for number, patterns in enumerate(itertools.product(every_subset(2), repeat=2), 1):
        check_deliveries(adders, patterns, number)


@pytest.mark.thorough
def test_every_subset_of_deliveries_of_three_people_lost(new_adders: NewAdders) -> None:
    """Three people, two adders: 64 cases, of which some have enough although others are lost."""
    adders = new_adders(2)
    for number, patterns in enumerate(itertools.product(every_subset(2), repeat=3), 1):
        check_deliveries(adders, patterns, number)


@pytest.mark.thorough
def test_every_subset_of_deliveries_lost_by_three_adders(new_adders: NewAdders) -> None:
    """Two people, three adders: 64 cases."""
    adders = new_adders(3)
    for number, patterns in enumerate(itertools.product(every_subset(3), repeat=2), 1):
        check_deliveries(adders, patterns, number)


# Admission


def test_tickets_of_one_adder_are_not_those_of_another(new_adders: NewAdders) -> None:
    adders = new_adders(2)
    tickets = [bytes([number]) * 16 for number in range(3)]
    collection = adders.opened(tickets=tickets)
    first = sealed_value(collection, 1, ticket=tickets[0])
    assert adders.send(collection, first) == [Verdict.STORED] * 2
    assert adders.send(collection, first) == [Verdict.SAME] * 2
    again = sealed_value(collection, 2, ticket=tickets[0])
    assert adders.send(collection, again) == [Verdict.SPENT_TICKET] * 2
    unknown = sealed_value(collection, 2, ticket=b"x" * 16)
    assert adders.send(collection, unknown) == [Verdict.UNKNOWN_TICKET] * 2
    with pytest.raises(InputError, match="tickets belong to a sum"):
        adders.all[0].service.open(collection.served.replace(b'"round":1', b'"round":2'))


def test_a_box_under_another_name_is_refused(new_adders: NewAdders) -> None:
    """A copied box would count one person twice."""
    adders = new_adders(2)
    collection = adders.opened()
    size = collection.shares.box_size
    boxes = adders.report(collection, 1)
    own = sealed_value(collection, 2)
    mixed = boxes[:size] + own[size:]
    assert adders.send(collection, mixed) == [Verdict.KNOWN_BOX, Verdict.STORED]


def test_a_sum_takes_no_more_than_its_maximum_and_only_while_it_is_open(
    new_adders: NewAdders,
) -> None:
    adders = new_adders(2)
    collection = adders.opened(maximum=2)
    late = sealed_value(collection, 5)
    for value in (1, 2):
        adders.report(collection, value)
    assert adders.send(collection, sealed_value(collection, 3)) == [Verdict.FULL] * 2
    adders.wait(200)
    assert adders.send(collection, late) == [Verdict.CLOSED] * 2
    adders.all[0].now = START - 1000
    assert adders.send(collection, late)[:1] == [Verdict.CLOSED]


def test_adders_without_tls_are_named(new_adders: NewAdders) -> None:
    adders = new_adders(2)
    adders.all[1].url = "http://192.0.2.1:8460"
    adders.opened()
    warnings = [line for line in adders.all[0].said if line.startswith("Warning")]
    assert len(warnings) == 1
    assert "http://192.0.2.1:8460 is reached without TLS" in warnings[0]
    assert plain_adder_warning("http://127.0.0.1:8460") == ""


def test_keys_serve_one_sum_and_unused_ones_are_destroyed(new_adders: NewAdders) -> None:
    adders = new_adders(2)
    parties = [adder.party() for adder in adders.all]
    first, second = (
        new_sum(parties, start=START - 10, round=round, longer=round) for round in (1, 2)
    )
    adder = adders.all[0]
    assert adder.service.open(first.served)
    with pytest.raises(PlanError, match="belong to another sum"):
        adder.service.open(second.served)
    unused = adder.service.new_party().key
    adder.service.sweep()
    assert adder.keys.has(unused), "it may still be opened"
    for key in (unused, parties[0].key):
        os.utime(adder.keys.path / f"{key}.key", (1, 1))
    adder.service.sweep()
    assert not adder.keys.has(unused)
    assert adder.keys.has(parties[0].key)


def test_one_sum_a_round(new_adders: NewAdders) -> None:
    adders = new_adders(2)
    collection = adders.opened()
    assert not adders.all[0].service.open(collection.served)
    with pytest.raises(DuplicateCollection):
        adders.opened()


# Extension and deadlines


def test_too_few_reports_extend_the_sum_once(new_adders: NewAdders) -> None:
    adders = new_adders(2)
    collection = adders.opened(longer=100)
    adders.report(collection, 4)
    adders.send(collection, sealed_value(collection, 8), [0])  # the other adder lacks it
    adders.wait(100)
    assert adders.advance(collection.digest) == ["open"] * 2
    assert {adder.service.row(collection.digest).phase for adder in adders.all} == {1}
    adders.report(collection, 6)
    adders.wait(100)
    assert adders.advance(collection.digest) == ["released"] * 2
    assert adders.sum(collection) == [10] * collection.terms.length


def test_too_few_after_the_extension_are_aborted(new_adders: NewAdders) -> None:
    adders = new_adders(2)
    collection = adders.opened(longer=100)
    adders.report(collection, 4)
    for _ in range(2):
        adders.wait(100)
        states = adders.advance(collection.digest)
    assert states == ["aborted"] * 2
    for adder in adders.all:
        row = adder.service.row(collection.digest)
        assert "fewer reports than the 2" in row.reason
        assert not adder.keys.has(row.key)
        assert row.total is None


def test_clocks_that_differ_close_one_after_the_other(new_adders: NewAdders) -> None:
    adders = new_adders(2)
    collection = adders.opened()
    for value in (1, 2):
        adders.report(collection, value)
    adders.all[0].now += 100
    assert adders.advance(collection.digest) == ["closed", "open"]
    assert adders.send(collection, sealed_value(collection, 9)) == [
        Verdict.CLOSED,
        Verdict.STORED,
    ], "one adder alone: it is in nobody's sum"
    adders.all[1].now += 100
    assert adders.advance(collection.digest) == ["released"] * 2
    assert adders.sum(collection) == [3] * collection.terms.length


def test_without_all_signatures_in_time_a_sum_is_aborted(new_adders: NewAdders) -> None:
    adders = new_adders(3)
    collection = adders.opened()
    for value in (1, 2):
        adders.report(collection, value)
    adders.all[2].reachable = False
    adders.wait(100)
    for _ in range(3):
        for adder in adders.all[:2]:
            with pytest.raises(AdderUnreachable):
                adder.service.advance(collection.digest)
    assert [adder.state(collection.digest) for adder in adders.all] == ["closed", "closed", "open"]
    adders.wait(2000)
    for adder in adders.all[:2]:
        assert adder.service.advance(collection.digest) == "aborted"
        assert "in time" in adder.service.row(collection.digest).reason


def test_a_clock_that_jumped_closes_nothing(tmp_path: Path) -> None:
    adder = LocalAdder(tmp_path, "https://adder-0.example")
    adder.store.close()
    clocks = Clocks()
    store = SumStore(open_database(f"sqlite:///{tmp_path / 'guarded.db'}"), clocks, clocks.steady)
    service = AdderService(store, adder.keys)
    store.now()
    adder.service = service
    collection = new_sum(
        [adder.party(), AdderKeys().party("https://adder-1.example")], start=clocks()
    )
    service.open(collection.served)
    clocks.jump(4000)
    assert service.advance(collection.digest) == "open"
    with pytest.raises(StoreError, match="clock is"):
        store.put(collection.digest, [ShareEntry(b"n" * 32, b"", b"", box=b"b")])
    assert "confirmed the clock" in service.confirm_clock()
    assert "confirmed the clock" in service.row(collection.digest).clock
    clocks.jump(-4000)
    clocks.wait(200)
    with pytest.raises(AdderUnreachable):
        service.advance(collection.digest)
    assert service.row(collection.digest).state == "closed"
    store.close()


# Adders that do not follow the protocol


def closed_round(adders: Adders, values: tuple[int, ...] = (1, 2, 4)) -> SumCollection:
    """Round that is about to close; the last adder is driven by the test."""
    collection = adders.opened()
    for value in values:
        adders.report(collection, value)
    adders.wait(100)
    return collection


def names_of(adder: LocalAdder, digest: str) -> list[bytes]:
    with adder.store._database.reading() as db:
        return [bytes(line[0]) for line in db.execute("SELECT name FROM adder_share").fetchall()]


def drive(adders: Sequence[LocalAdder], digest: str) -> None:
    """Drive some adders once, although another one does not answer."""
    for adder in adders:
        with suppress(AdderUnreachable):
            adder.service.advance(digest)


def send_as(adders: Adders, place: int, digest: str, names: list[bytes]) -> None:
    """Send lists of an adder's own choice to the others."""
    signing = adders.all[place].service.signing
    signed = NameList.signed(digest, place, 0, names, signing)
    for other in adders.all:
        if other is not adders.all[place]:
            assert other.service.take_list(other.service.row(digest), signed)


def test_an_adder_that_omits_a_name_drops_it_from_all_sums(new_adders: NewAdders) -> None:
    adders = new_adders(3)
    collection = closed_round(adders)
    digest = collection.digest
    names = sorted(names_of(adders.all[2], digest))
    send_as(adders, 2, digest, names[:2])
    adders.all[2].reachable = False
    honest = adders.all[:2]
    for _ in range(2):
        drive(honest, digest)
    subjects = {adder.store.statements(digest)[place].subject for place, adder in enumerate(honest)}
    [(_, people)] = subjects
    assert people == 2


def test_an_adder_that_omits_too_many_aborts_and_nothing_is_added(new_adders: NewAdders) -> None:
    adders = new_adders(2)
    collection = closed_round(adders)
    send_as(adders, 1, collection.digest, names_of(adders.all[1], collection.digest)[:1])
    assert adders.all[0].service.advance(collection.digest) == "aborted"
    assert adders.all[0].service.row(collection.digest).total is None


def test_a_name_that_only_one_adder_lists_is_in_no_sum(new_adders: NewAdders) -> None:
    adders = new_adders(2)
    collection = closed_round(adders)
    digest = collection.digest
    send_as(adders, 1, digest, [*names_of(adders.all[1], digest), b"\xff" * 32])
    adders.all[1].reachable = False
    with pytest.raises(AdderUnreachable):
        adders.all[0].service.advance(digest)
    statement = adders.all[0].store.statements(digest)[0]
    assert statement.people == 3
    assert names_of(adders.all[0], digest), "nothing is added before all have signed"


def test_an_adder_that_signs_twice_aborts_the_sum(new_adders: NewAdders) -> None:
    adders = new_adders(3)
    collection = closed_round(adders)
    digest = collection.digest
    names = sorted(names_of(adders.all[2], digest))
    signing = adders.all[2].service.signing
    honest = adders.all[0]
    first = SumStatement.signed(digest, 2, names, signing)
    second = SumStatement.signed(digest, 2, names[:2], signing)
    assert honest.service.take_statement(honest.service.row(digest), first)
    assert honest.service.take_statement(honest.service.row(digest), first), "the same one again"
    assert not honest.service.take_statement(honest.service.row(digest), second)
    row = honest.service.row(digest)
    assert (row.state, row.reason) == (
        "aborted",
        "adder 3 signed two different sets of reports",
    )


def test_different_lists_for_different_adders_release_nothing(new_adders: NewAdders) -> None:
    """The last adder shows each honest one another list; their sets differ, and nobody adds."""
    adders = new_adders(3)
    collection = closed_round(adders)
    digest = collection.digest
    names = sorted(names_of(adders.all[2], digest))
    signing = adders.all[2].service.signing
    for adder, shown in zip(adders.all[:2], (names[:2], names[1:]), strict=True):
        signed = NameList.signed(digest, 2, 0, shown, signing)
        assert adder.service.take_list(adder.service.row(digest), signed)
        other = NameList.signed(digest, 2, 0, names, signing)
        assert not adder.service.take_list(adder.service.row(digest), other), "the first stands"
    adders.all[2].reachable = False
    for _ in range(4):
        drive(adders.all[:2], digest)
    rows = [adder.service.row(digest) for adder in adders.all[:2]]
    assert [row.state for row in rows] == ["aborted"] * 2
    assert {row.total for row in rows} == {None}
    assert sorted(row.reason for row in rows) == [
        "adder 1 has aborted this sum",
        "the adders signed different sets of reports",
    ]


def test_an_adder_signs_once_whatever_it_is_asked(new_adders: NewAdders) -> None:
    adders = new_adders(2)
    collection = closed_round(adders)
    digest = collection.digest
    adders.advance(digest)
    adder = adders.all[0]
    names = [b"n" * 32] * 2
    other = SumStatement.signed(digest, 0, names, adder.service.signing)
    with pytest.raises(StoreError):
        adder.store.sign_sum(digest, other)
    with adder.store._database.reading() as db:
        [before] = db.execute("SELECT hashed FROM adder_statement WHERE place = 0").fetchall()
    for sql in ("UPDATE adder_statement SET people = 9", "DELETE FROM adder_statement"):
        with pytest.raises(StoreError, match="statement is"), adder.store._database.writing() as db:
            db.execute(sql)
    with adder.store._database.reading() as db:
        assert db.execute("SELECT hashed FROM adder_statement WHERE place = 0").fetchall() == [
            before
        ]


def test_lists_in_its_own_name_are_refused(new_adders: NewAdders) -> None:
    """After a roll-back an old list of its own could name reports that it lost."""
    adders = new_adders(2)
    collection = closed_round(adders)
    adder = adders.all[0]
    row = adder.service.row(collection.digest)
    names = names_of(adder, collection.digest)
    own = NameList.signed(collection.digest, 0, 0, names, adder.service.signing)
    with pytest.raises(InvalidList):
        adder.service.take_list(row, own)
    statement = SumStatement.signed(collection.digest, 0, names, adder.service.signing)
    with pytest.raises(InvalidList):
        adder.service.take_statement(row, statement)


# Roll-back


def test_an_adder_that_is_rolled_back_signs_no_second_set(
    new_adders: NewAdders, tmp_path: Path
) -> None:
    """Restored from a copy from before the last report, it cannot make another set released."""
    adders = new_adders(2)
    collection = adders.opened()
    digest = collection.digest
    for value in (1, 2):
        adders.report(collection, value)
    rolled = adders.all[1]
    rolled.store.close()
    shutil.copytree(rolled.folder, tmp_path / "copy")
    rolled.start()
    adders.report(collection, 4)
    adders.wait(100)
    adders.advance(digest, rounds=1)
    honest = adders.all[0]
    assert honest.store.statements(digest)[1].people == 3
    rolled.store.close()
    shutil.rmtree(rolled.folder)
    shutil.copytree(tmp_path / "copy", rolled.folder)
    rolled.start()
    states = adders.advance(digest)
    assert states[1] in ("closed", "aborted")
    assert rolled.service.row(digest).total is None
    assert honest.store.statements(digest)[1].people == 3, "the first signature stands"
    adders.wait(5000)
    states = adders.advance(digest)
    assert states[1] == "aborted"
    assert rolled.service.row(digest).total is None


def test_a_roll_back_that_loses_nothing_ends_with_the_same_sum(
    new_adders: NewAdders, tmp_path: Path
) -> None:
    adders = new_adders(2)
    collection = adders.opened()
    digest = collection.digest
    for value in (1, 2):
        adders.report(collection, value)
    rolled = adders.all[1]
    rolled.store.close()
    shutil.copytree(rolled.folder, tmp_path / "copy")
    rolled.start()
    adders.all[0].at = lambda point: None
    adders.wait(100)
    adders.all[1].service.advance(digest)  # closes and sends its list
    rolled.store.close()
    shutil.rmtree(rolled.folder)
    shutil.copytree(tmp_path / "copy", rolled.folder)
    rolled.start()
    assert adders.advance(digest) == ["released"] * 2
    assert adders.sum(collection) == [3] * collection.terms.length


# Kills


class Killed(BaseException):
    """Stands for the end of a process at a named point."""


POINTS = [
    "closed",
    "sent",
    "signing",
    "signed",
    "adding",
    "added",
    "destroying",
    "destroyed",
    "released",
]


@pytest.mark.parametrize(
    "point",
    [
        point if point in ("signed", "added") else pytest.param(point, marks=pytest.mark.thorough)
        for point in POINTS
    ],
)
def test_an_end_at_any_point_changes_nothing(new_adders: NewAdders, point: str) -> None:
    adders = new_adders(2)
    collection = adders.opened()
    for value in (1, 2, 4):
        adders.report(collection, value)
    adders.wait(100)
    killed = adders.all[0]
    reached: list[str] = []

    def at(name: str) -> None:
        if name == point and not reached:
            reached.append(name)
            raise Killed

    killed.service.at = at
    for _ in range(6):
        for adder in adders.all:
            try:
                adder.service.advance(collection.digest)
            except Killed:
                adder.restart()
    assert reached == [point]
    assert adders.advance(collection.digest) == ["released"] * 2
    assert adders.sum(collection) == [7] * collection.terms.length
