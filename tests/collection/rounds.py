"""Small collections with sealed reports for the tests of the shuffler."""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import metricshuffle as ms
from metricshuffle.collection.keys import AnalystKey, CollectionKeys, analyst_of
from metricshuffle.collection.sealed_boxes import BoxFormat, PrivateKey
from metricshuffle.collection.shuffler.lifecycle import Shuffler
from metricshuffle.collection.store.records import Entry, Verdict
from metricshuffle.collection.terms import Collection, Hop, Party, instant

HONEST = 20
USERS = 400


@cache
def task(rounds: int = 1) -> ms.Task:
    target = ms.Target(epsilon=3, delta=1e-2, distance=1)
    plan = ms.plan(
        ms.Sum(ms.Integers(0, 3)),
        target,
        users=USERS,
        honest=HONEST,
        encoding="modular",
        rounds=rounds,
        protocols=["polya-shuffle"],
    )
    return plan.task


@dataclass(frozen=True)
class Round:
    """Collection of one or more hops, and the keys of all roles."""

    collection: Collection
    analyst: AnalystKey
    tickets: tuple[bytes, ...] = ()
    sealing: BoxFormat = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "sealing", self.collection.sealing)

    @property
    def digest(self) -> str:
        return self.collection.digest

    def payloads(self) -> list[bytes]:
        """Payloads of one person: random bytes of the right length."""
        return sorted(
            secrets.token_bytes(self.sealing.payload) for _ in range(self.sealing.messages)
        )

    def report(self, ticket: bytes = b"", payloads: list[bytes] | None = None) -> bytes:
        return self.sealing.report(payloads or self.payloads(), self.collection.keys, ticket)

    def entry(self, report: bytes, keys: CollectionKeys) -> Entry:
        """Report as the shuffler stores it on arrival."""
        ticket, boxes = self.sealing.open_report(report, keys.private)
        tag = keys.tag(report)
        return Entry(
            tag, keys.ticket_hash(ticket) if ticket else b"", keys.hidden(tag, b"".join(boxes))
        )

    def boxes(self, reports: Iterable[bytes], key: PrivateKey) -> list[bytes]:
        return [box for report in reports for box in self.sealing.open_report(report, key)[1]]

    def split(self, output: bytes, layer: int = 0) -> list[bytes]:
        """Released boxes, as the recipient of that layer gets them."""
        size = self.sealing.box_size(layer)
        assert len(output) % size == 0
        return [output[start : start + size] for start in range(0, len(output), size)]

    def opened(self, output: bytes) -> list[bytes]:
        """Payloads in the output as the analyst reads them, sorted."""
        return sorted(
            self.sealing.open_box(box, self.analyst.private) for box in self.split(output)
        )


def opened_round(
    shuffler: Shuffler,
    *,
    now: float | None = None,
    seconds: float = 60,
    tickets: int = 0,
    **terms: Any,
) -> Round:
    """Open a collection of one hop that takes reports for `seconds`."""
    made = new_round(
        [(shuffler.new_party(), "http://127.0.0.1:1")],
        now=now,
        seconds=seconds,
        tickets=tickets,
        **terms,
    )
    assert shuffler.open(made.collection.served, made.tickets)
    return made


def new_round(
    hops: list[tuple[Party, str]],
    *,
    now: float | None = None,
    seconds: float = 60,
    tickets: int = 0,
    rounds: int = 1,
    **terms: Any,
) -> Round:
    now = time.time() if now is None else now
    analyst = AnalystKey.new()
    closes = instant(now + seconds)
    held = {
        "round": 1,
        "hops": tuple(
            Hop(**party.model_dump(exclude={"name", "url"}), url=url) for party, url in hops
        ),
        "analyst": analyst_of(analyst.public),
        "colluders": 0,
        "opens": instant(now - 1),
        "closes": closes,
        "extends": closes,
        "retention": 3600,
        "admission": "tickets" if tickets else "open",
        **terms,
    }
    collection = Collection.new(task(rounds), **held)
    return Round(collection, analyst, tuple(secrets.token_bytes(16) for _ in range(tickets)))


def put(shuffler: Shuffler, made: Round, reports: Iterable[bytes]) -> None:
    """Submit reports and check that they are acknowledged."""
    keys = secrets_of(shuffler, made)
    verdicts = shuffler.store.put(made.digest, [made.entry(report, keys) for report in reports])
    assert all(verdict is Verdict.STORED for verdict in verdicts), verdicts


def secrets_of(shuffler: Shuffler, made: Round) -> CollectionKeys:
    """Keys of this hop, while it has them."""
    row = shuffler.store.row(made.digest)
    assert row is not None
    keys = shuffler.keys.of(row.key)
    assert keys is not None
    return keys
