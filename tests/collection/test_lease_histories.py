"""Random histories of leases: what is acknowledged is counted once, and nothing after an end."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable
from contextlib import closing
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.collection.conftest import Clock, NewCollection
from tests.collection.running import load_task
from tests.collection.store_contents import added, entry

from metricshuffle.collection.store.part_store import EdgeStore, HubStore
from metricshuffle.collection.store.postgres_server import PostgresServer
from metricshuffle.collection.store.records import Entry, StoreError, Verdict

POINTS = ("begun", "kept", "names", "counted", "committed")
STEPS = st.one_of(
    st.tuples(st.just("lease")),
    st.tuples(st.just("put"), st.integers(0, 9), st.integers(1, 4), st.sampled_from(("", *POINTS))),
    st.tuples(st.just("again"), st.integers(0, 9), st.integers(0, 99)),
    st.tuples(st.just("room"), st.integers(0, 9)),
    st.tuples(st.just("end"), st.integers(0, 9)),
    st.tuples(st.just("close")),
)


class LeaseHistory:
    """One collection, its leases and what the test knows of its reports."""

    def __init__(self, hub: HubStore, edge: EdgeStore, digest: str, clock: Clock) -> None:
        self.hub = hub
        self.edge = edge
        self.digest = digest
        self.clock = clock
        self.leases: list[bytes] = []
        self.ended: set[bytes] = set()
        self.sent: list[Entry] = []
        self.acknowledged: set[bytes] = set()
        self.unknown: set[bytes] = set()
        """Reports whose transaction was interrupted after its commit."""

    def take(self, step: tuple[Any, ...]) -> None:
        name, *values = step
        if name == "lease":
            lease = secrets.token_bytes(16)
            if self.hub.add_part(self.digest, lease) is not None:
                self.leases.append(lease)
        elif name == "close":
            self._close()
        elif self.leases:
            lease = self.leases[values[0] % len(self.leases)]
            getattr(self, f"_{name}")(lease, *values[1:])

    def _close(self) -> None:
        row = self.hub.row(self.digest)
        assert row is not None
        if row.state == "open":
            self.clock.stop(row.until)
            if self.hub.awaits_count(self.digest):
                assert self.hub.seal(self.digest, row.reports) in ("open", "sealed")
            else:
                self.hub.seal(self.digest)

    def _end(self, lease: bytes) -> None:
        self.hub.end_part(self.digest, lease)
        self.ended.add(lease)

    def _room(self, lease: bytes) -> None:
        try:
            self.hub.add_room(self.digest, lease)
        except StoreError:
            part = self.hub.part(lease)
            assert part is not None
            assert part.closed

    def _again(self, lease: bytes, number: int) -> None:
        if self.sent:
            report = self.sent[number % len(self.sent)]
            self._send([Entry(report.tag, b"", report.hidden, lease)], "")

    def _put(self, lease: bytes, count: int, fault: str) -> None:
        made = [entry() for _ in range(count)]
        reports = [Entry(report.tag, b"", report.hidden, lease) for report in made]
        self.sent += reports
        self._send(reports, fault)

    def _send(self, reports: list[Entry], fault: str) -> None:
        def at(point: str) -> None:
            if point == fault:
                raise StoreError("interrupted.")

        before = self.hub.part(reports[0].lease)
        assert before is not None
        EdgeStore.at = staticmethod(at)
        try:
            verdicts = self.edge.put(self.digest, reports)
        except StoreError:
            if fault == "committed":
                self.unknown |= {report.tag for report in reports}
            return
        finally:
            EdgeStore.at = staticmethod(lambda point: None)
        assert not before.closed, "a closed part answered"
        assert reports[0].lease not in self.ended
        for report, verdict in zip(reports, verdicts, strict=True):
            if verdict is Verdict.STORED:
                assert report.tag not in self.acknowledged
            if verdict in (Verdict.STORED, Verdict.SAME):
                self.acknowledged.add(report.tag)
            else:
                assert verdict is Verdict.FULL

    def check(self, stored: list[bytes]) -> None:
        """Compare with the names that the database has."""
        names = set(stored)
        assert len(stored) == len(names)
        assert self.acknowledged <= names <= self.acknowledged | self.unknown
        parts = [self.hub.part(lease) for lease in self.leases]
        assert sum(part.reports for part in parts if part is not None) == len(names)
        row = self.hub.row(self.digest)
        assert row is not None
        if row.state == "sealed":
            assert row.reports == len(names) == len(list(self.hub.hidden(self.digest)))


def names_in(server: PostgresServer, digest: str) -> list[bytes]:
    with server.reading() as db:
        sql = "SELECT id FROM collection WHERE digest = ?"
        [number] = db.execute(sql, (digest,)).fetchone()
        rows = db.execute(f"SELECT name FROM report_{number}").fetchall()  # noqa: S608 - a number
    return [name.bytes for (name,) in rows]


@pytest.mark.slow
def test_histories_of_leases(
    new_postgres_url: Callable[[], str], new_collection: NewCollection
) -> None:
    """200 histories of up to 30 steps."""
    url = new_postgres_url()
    edge = EdgeStore(PostgresServer(url, role="edge, loss accepted"))
    rounds = iter(range(1, 10_000))

    @settings(
        max_examples=200, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True
    )
    @given(st.lists(STEPS, max_size=30))
    def follow(steps: list[tuple[Any, ...]]) -> None:
        clock = Clock()
        server = PostgresServer(url, role="hub, loss accepted")
        with closing(HubStore(server, clock)) as hub:
            collection = new_collection(
                load_task(3, rounds=10_000),
                opens=time.time() - 10,
                lasts=1000,
                longer=1000,
                round=next(rounds),
                maximum=40,
            )
            history = LeaseHistory(hub, edge, added(hub, collection), clock)
            for step in [("lease",), *steps]:
                history.take(step)
            row = hub.row(collection.digest)
            assert row is not None
            if row.state != "aborted":  # its reports are deleted
                history.check(names_in(server, collection.digest))
            with server.writing() as db:  # the next history begins now again
                db.execute("UPDATE collection SET seen = 0")
                db.execute("UPDATE clock SET latest = 0")

    follow()
    edge.close()
