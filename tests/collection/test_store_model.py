"""Store against a small Python model, in random order, with reopening."""

from __future__ import annotations

import hashlib
import secrets
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from tests.collection.conftest import roomy_memory, small_task
from tests.collection.issuers import issuer_terms
from tests.collection.store_contents import (
    Held,
    all_held,
    asked,
    past_the_store,
    report_tables,
)

from metricshuffle.collection.keys import AnalystKey, CollectionKeys, analyst_of
from metricshuffle.collection.shuffler.admission import counting_end
from metricshuffle.collection.store.factory import connect_store
from metricshuffle.collection.store.records import (
    CHUNK,
    STATES,
    DuplicateCollection,
    Entry,
    State,
    StoreError,
    Verdict,
)
from metricshuffle.collection.store.sql_store import Store
from metricshuffle.collection.terms import Collection, instant
from metricshuffle.errors import InputError

START = 1_800_000_000
OPENS = START + 10
CLOSES = START + 50
EXTENDS = START + 90
MINIMUM = 2
MAXIMUM = 5
TICKETS = [bytes([number]) * 16 for number in range(4)]
STRANGE = b"?" * 16
OUTPUT = "0" * 64
FOLLOWING: dict[State | None, State] = {
    "open": "sealed",
    "sealed": "shuffled",
    "shuffled": "erased",
    "erased": "released",
    "released": "purged",
}


@dataclass
class Modelled:
    """One collection as it ought to be."""

    collection: Collection
    place: int = 0
    state: State | None = None
    """None until it is added."""
    until: float = CLOSES
    reports: dict[bytes, bytes] = field(default_factory=dict)
    counted: int = 0
    spent: dict[bytes, bool] = field(default_factory=dict)
    output: bytes = b""
    collected: bool = False
    people: int = 0
    left_out: int = 0
    reason: str = ""

    @property
    def digest(self) -> str:
        return self.collection.digest

    @property
    def key(self) -> str:
        return self.collection.terms.hops[self.place].key

    @property
    def tickets(self) -> list[bytes]:
        return TICKETS if self.collection.terms.admission == "tickets" and self.place == 0 else []

    def forget_reports(self) -> None:
        self.reports = {}
        self.spent = {}

    def can_be_extended(self, now: float) -> bool:
        return self.state == "open" and self.place == 0 and now >= self.until == CLOSES

    def pass_time(self, now: float, distinct: int | None = None) -> None:
        """Extend it once."""
        if (
            self.can_be_extended(now)
            and (self.counted if distinct is None else min(distinct, self.counted)) < MINIMUM
        ):
            self.until = EXTENDS

    def put(self, now: float, entries: list[Entry]) -> list[Verdict]:
        answers = []
        for entry in entries:
            if self.state != "open" or self.place or not OPENS <= now < self.until:
                answers.append(Verdict.CLOSED)
            elif entry.tag in self.reports:
                answers.append(Verdict.SAME)
            elif self.tickets and entry.ticket not in self.spent:
                answers.append(Verdict.UNKNOWN_TICKET)
            elif self.spent.get(entry.ticket):
                answers.append(Verdict.SPENT_TICKET)
            elif self.counted == MAXIMUM:
                answers.append(Verdict.FULL)
            else:
                answers.append(Verdict.STORED)
                self.reports[entry.tag] = entry.hidden
                self.counted += 1
                if entry.ticket:
                    self.spent[entry.ticket] = True
        return answers

    def refuses(self, after: State, people: int, left_out: int) -> bool:
        if after == "aborted":
            return self.state in ("purged", "aborted") or self.collected
        if FOLLOWING.get(self.state) != after:
            return True
        if after == "sealed":
            return self.place == 0
        return after == "shuffled" and (
            people < MINIMUM or (self.place == 0 and people + left_out != self.counted)
        )


@cache
def pool() -> tuple[Collection, ...]:
    """Three rounds of a plan: open, with tickets or tokens, and in parts; and a chain's."""

    def hop(port: int) -> dict[str, Any]:
        return {
            **CollectionKeys(secrets.token_bytes(64)).party.model_dump(),
            "url": f"http://127.0.0.1:{port}",
        }

    def new(task: Any, **terms: Any) -> Collection:
        standard = {
            "hops": [hop(1)],
            "analyst": analyst_of(AnalystKey.new().public),
            "colluders": 0,
            "maximum": MAXIMUM,
            "retention": 60,
            "opens": instant(OPENS),
            "closes": instant(CLOSES),
            "extends": instant(EXTENDS),
        }
        return Collection.new(task, **{**standard, **terms})

    task = small_task(MINIMUM, 1000)
    other = small_task(MINIMUM, 2000)
    return (
        new(task, round=1),
        new(task, round=1),
        new(task, round=2, admission="tickets"),
        new(task, round=2, admission="tickets", split=(2, 2)),
        new(task, round=3, split=(1, 2), admission="tickets"),
        new(task, round=3, split=(2, 2), **issuer_terms()),
        new(task, round=3, split=(3, 3)),
        new(other, round=1, hops=[hop(1), hop(2)]),
    )


CHAIN = 7
WHICH = st.sampled_from([0, 0, 0, 2, 2, 2, 5, 5, 5, 4, CHAIN, 1, 3, 6])
REPORTS = st.lists(st.tuples(st.integers(0, 7), st.sampled_from([*TICKETS, STRANGE])), max_size=6)


def tag_of(report: int, ticket: bytes) -> bytes:
    """Tag of a report, which its ticket is a part of."""
    return hashlib.blake2b(bytes([report]) + ticket, digest_size=16).digest()


class AgainstTheModel(RuleBasedStateMachine):
    """Two stores share the database, and take turns."""

    def __init__(self, url: Callable[[], str]) -> None:
        super().__init__()
        self.url = url()
        self.clock = float(START)
        self.latest = 0.0
        self.told = 0.0
        self.stores = [self.opened(), self.opened()]
        self.looking = ExitStack()
        self.connection = self.looking.enter_context(past_the_store(self.url))
        self.models = [
            Modelled(collection, int(place == CHAIN)) for place, collection in enumerate(pool())
        ]

    def opened(self) -> Store:
        return connect_store(self.url, lambda: self.clock)

    def teardown(self) -> None:
        self.looking.close()
        for store in self.stores:
            store.close()

    @property
    def store(self) -> Store:
        self.stores.reverse()
        return self.stores[0]

    @property
    def now(self) -> float:
        return max(self.clock, self.latest)

    def decided(self) -> None:
        self.latest = self.now

    def decided_by_a_report(self) -> None:
        """Only the hour of a report is stored, or the last deadline that has passed."""
        self.latest = max(
            self.latest,
            self.now // 3600 * 3600,
            *(end for end in (OPENS, CLOSES, EXTENDS) if end <= self.now),
        )

    @initialize(some=st.sets(st.integers(0, CHAIN), min_size=1), early=st.booleans())
    def begin(self, some: set[int], early: bool) -> None:
        self.clock = float(START if early else OPENS)
        for which in sorted(some):
            self.add(which)

    @rule(which=WHICH)
    def add(self, which: int) -> None:
        model = self.models[which]
        terms = model.collection.terms
        part = model.collection.terms.split
        others = [
            other.collection.terms.split
            for other in self.models
            if other.state
            and (other.collection.task.digest, other.collection.terms.round)
            == (model.collection.task.digest, terms.round)
        ]
        if model.state:
            assert not self.store.add(model.collection, model.key, model.tickets)
        elif any(split[0] == part[0] or split[1] != part[1] for split in others):
            with pytest.raises(DuplicateCollection):
                self.store.add(model.collection, model.key, model.tickets)
        else:
            assert self.store.add(model.collection, model.key, model.tickets)
            model.state, model.spent = "open", dict.fromkeys(model.tickets, False)

    @rule(which=WHICH, reports=REPORTS)
    def put(self, which: int, reports: list[tuple[int, bytes]]) -> None:
        model = self.models[which]
        is_open = model.collection.terms.admission == "open"
        entries = [
            Entry(tag_of(report, ticket), b"" if is_open else ticket, bytes([report]) * 30)
            for report, ticket in reports
        ]
        if model.state is None:
            with pytest.raises(InputError):
                self.store.put(model.digest, entries)
            return
        model.pass_time(self.now)
        answers = model.put(self.now, entries)
        assert self.store.put(model.digest, entries) == answers
        if Verdict.STORED in answers or (
            model.state == "open" and model.place == 0 and self.now >= CLOSES
        ):
            self.decided_by_a_report()

    @rule(which=WHICH, count=st.integers(1, 4))
    def put_good_ones(self, which: int, count: int) -> None:
        self.put(which, [(number, TICKETS[number]) for number in range(count)])

    @rule(moment=st.sampled_from([OPENS, CLOSES - 1, CLOSES, EXTENDS - 1, EXTENDS]))
    def wait_until(self, moment: int) -> None:
        self.clock = max(self.clock, float(moment))

    @rule(seconds=st.integers(1, 45))
    def wait(self, seconds: int) -> None:
        self.clock += seconds

    @rule(seconds=st.integers(1, 100))
    def set_the_clock_back(self, seconds: int) -> None:
        self.clock -= seconds

    @rule(which=WHICH, distinct=st.none() | st.integers(0, MAXIMUM))
    def seal(self, which: int, distinct: int | None = None) -> None:
        model = self.models[which]
        if model.state is None:
            with pytest.raises(InputError):
                self.store.seal(model.digest, distinct)
            return
        if model.state == "open" and model.place == 0 and self.now >= model.until:
            self.decided()
            model.pass_time(self.now, distinct)
            if self.now >= model.until:
                model.state = "sealed" if model.counted >= MINIMUM else "aborted"
            if model.state == "aborted":
                model.reason = f"fewer reports than the {MINIMUM} that were needed"
                model.forget_reports()
        assert self.store.seal(model.digest, distinct) == model.state

    @rule(which=WHICH, data=st.data(), left_out=st.integers(0, 1), right=st.booleans())
    def move(self, which: int, data: st.DataObject, left_out: int, right: bool) -> None:
        """Mostly from where it is, to anywhere."""
        model = self.models[which]
        likely = st.just(model.state or "open")
        before = data.draw(likely | st.sampled_from(STATES), label="before")
        after: State = data.draw(st.sampled_from(STATES), label="after")
        people = (3 if model.place else model.counted - left_out) + (not right)
        given: dict[str, Any] = (
            {"people": max(0, people), "left_out": left_out, "output": OUTPUT}
            if after == "shuffled"
            else {}
        )
        if after == "aborted":
            given = {"reason": "enough"}
        if model.state is None:
            with pytest.raises(InputError):
                self.store.move(model.digest, before, after, **given)
        elif before != model.state:
            assert not self.store.move(model.digest, before, after, **given)
        elif model.refuses(after, max(0, people), left_out):
            with pytest.raises(StoreError):
                self.store.move(model.digest, before, after, **given)
        else:
            assert self.store.move(model.digest, before, after, **given)
            self.decided()
            self.moved(model, after, given)

    @staticmethod
    def moved(model: Modelled, after: State, given: dict[str, Any]) -> None:
        model.state = after
        for name in ("people", "left_out", "reason"):
            setattr(model, name, given.get(name, getattr(model, name)))
        if after in ("shuffled", "aborted"):
            model.forget_reports()
        if after in ("purged", "aborted"):
            model.output = b""

    @rule(which=WHICH, steps=st.integers(1, 6), collected=st.booleans())
    def go_on(self, which: int, steps: int, collected: bool) -> None:
        """As it ought to go, so that collections come far enough."""
        model = self.models[which]
        for _ in range(steps):
            if model.state is None:
                self.add(which)
            elif model.state == "open" and model.place == 0:
                self.put_good_ones(which, 3)
                self.wait_until(int(model.until))
                self.seal(which)
            elif model.state == "released" and collected and not model.collected:
                self.acknowledge(which)
            elif model.state in FOLLOWING:
                after = FOLLOWING[model.state]
                people = model.counted or MINIMUM
                given: dict[str, Any] = (
                    {"people": people, "left_out": 0, "output": OUTPUT}
                    if after == "shuffled"
                    else {}
                )
                assert self.store.move(model.digest, model.state, after, **given)
                self.decided()
                self.moved(model, after, given)

    @rule(which=WHICH, sizes=st.lists(st.sampled_from([0, 1, 100, CHUNK + 1]), max_size=3))
    def keep_output(self, which: int, sizes: list[int]) -> None:
        model = self.models[which]
        pieces = [bytes([place]) * size for place, size in enumerate(sizes)]
        if model.state == "sealed":
            self.store.keep_output(model.digest, pieces)
            model.output = b"".join(pieces)
        else:
            with pytest.raises((StoreError, InputError)):
                self.store.keep_output(model.digest, pieces)

    @rule(which=WHICH)
    def acknowledge(self, which: int) -> None:
        model = self.models[which]
        self.store.acknowledge(model.digest)
        model.collected = model.collected or model.state == "released"

    @rule(which=WHICH)
    def read(self, which: int) -> None:
        model = self.models[which]
        assert b"".join(self.store.output(model.digest)) == model.output
        awaits = model.can_be_extended(self.now) and model.counted >= MINIMUM
        if awaits and self.now >= counting_end(CLOSES, EXTENDS):
            assert not self.store.awaits_count(model.digest)
            return
        if awaits:
            assert self.store.awaits_count(model.digest)
            self.decided()
        elif model.state is not None:
            assert not self.store.awaits_count(model.digest)
        if model.state == "sealed" or awaits:
            assert sorted(self.store.hidden(model.digest)) == sorted(model.reports.items())
        else:
            with pytest.raises((StoreError, InputError)):
                list(self.store.hidden(model.digest))

    @rule()
    def open_again(self) -> None:
        self.stores[0].close()
        self.stores[0] = self.opened()

    @precondition(lambda self: self.url.startswith("sqlite"))  # (PostgreSQL's takes its time)
    @rule()
    def forget(self) -> None:
        self.store.forget_deleted()

    @rule()
    def ask_the_time(self) -> None:
        assert self.opened_and_closed() == self.now

    def opened_and_closed(self) -> float:
        store = self.opened()
        try:
            return store.now()
        finally:
            store.close()

    @invariant()
    def every_row_is_as_it_ought_to_be(self) -> None:
        rows = {row.digest: row for row in self.store.rows()}
        assert set(rows) == {model.digest for model in self.models if model.state}
        for model in self.models:
            if model.state:
                row = rows[model.digest]
                assert (row.state, row.until, row.reports, row.collected) == (
                    model.state,
                    model.until,
                    model.counted,
                    model.collected,
                )
                assert (row.people, row.left_out, row.reason) == (
                    model.people,
                    model.left_out,
                    model.reason,
                )
                assert (row.served, row.key) == (model.collection.served, model.key)

    @invariant()
    def nothing_else_is_in_the_database(self) -> None:
        expected = {
            model.digest: Held(
                len(model.reports),
                len(model.tickets and model.spent),
                sum(model.spent.values()),
                -(-len(model.output) // CHUNK),
                model.counted,
            )
            for model in self.models
            if model.state
        }
        assert all_held(self.connection) == expected


def run(url: Callable[[], str], examples: int, steps: int) -> None:
    chosen = settings(
        max_examples=examples,
        stateful_step_count=steps,
        deadline=None,
        suppress_health_check=list(HealthCheck),
        print_blob=True,
    )
    machine: Any = lambda: AgainstTheModel(url)  # noqa: E731
    run_state_machine_as_test(machine, settings=chosen)


@pytest.fixture
def sqlite_url() -> Iterator[Callable[[], str]]:
    """New file every time, in memory if possible; durability is not tested here."""
    folder = Path(tempfile.mkdtemp(prefix="ms-model-", dir=roomy_memory()))

    def new() -> str:
        for path in folder.iterdir():
            path.unlink()
        return f"sqlite:///{folder}/{secrets.token_hex(4)}.db"

    yield new
    shutil.rmtree(folder)


@pytest.fixture
def postgres_model_url(new_postgres_url: Callable[[], str]) -> Callable[[], str]:
    """One database, emptied every time."""
    url = new_postgres_url()
    connect_store(url).close()

    def new() -> str:
        with past_the_store(url) as connection:
            for number in report_tables(connection):
                connection.execute(f"DROP TABLE report_{number}, admitted_{number}")
        asked(
            url,
            "TRUNCATE collection, served, report, ticket, output, part RESTART IDENTITY CASCADE",
        )
        asked(url, "UPDATE clock SET latest = 0")
        return url

    return new


def test_sqlite_does_what_the_model_does(sqlite_url: Callable[[], str]) -> None:
    run(sqlite_url, 20, 25)


@pytest.mark.thorough
def test_postgresql_does_what_the_model_does_30_times(
    postgres_model_url: Callable[[], str],
) -> None:
    run(postgres_model_url, 30, 30)


@pytest.mark.slow
def test_sqlite_does_what_the_model_does_2000_times(sqlite_url: Callable[[], str]) -> None:
    run(sqlite_url, 2000, 50)


@pytest.mark.slow
def test_postgresql_does_what_the_model_does_2000_times(
    postgres_model_url: Callable[[], str],
) -> None:
    run(postgres_model_url, 2000, 50)
