"""An hour of rounds on both databases: acknowledged reports are released, nothing grows."""

from __future__ import annotations

import os
import secrets
import socket
import statistics
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest
from tests.collection.running import (
    Posted,
    Running,
    load_task,
    new_tickets,
    post_report,
    request_of,
    running,
)
from tests.collection.store_contents import asked

from metricshuffle.collection.keys import AnalystKey, KeyFolder
from metricshuffle.collection.terms import Collection

PEOPLE = 300
ROUNDS_OF_A_TASK = 9
LASTS = 8
"""Seconds that a collection is open; the next one is opened before it is fetched."""
SECONDS = float(os.environ.get("METRICSHUFFLE_SOAK_SECONDS", "3600"))
"""An hour, unless somebody tries the test itself."""
WARM = 0.1
"""Part of the time after which nothing may grow any more."""


@dataclass(frozen=True)
class Sent:
    """A collection, and what it has to let go."""

    collection: Collection
    analyst: AnalystKey
    output: bytes


@dataclass(frozen=True)
class Size:
    """Of a shuffler at one moment."""

    megabytes: float
    handles: int
    threads: int
    database: int
    """Bytes."""


@dataclass
class Soaked:
    """A shuffler, what it was sent, and how large it was after each round."""

    shuffler: Running
    database: Callable[[], int]
    sizes: list[Size] = field(default_factory=list)
    waits: list[float] = field(default_factory=list)
    """Of every round the middle one of all answers' seconds."""
    sent: Sent | None = None

    def size(self) -> Size:
        process = Path(f"/proc/{self.shuffler.process.pid}")
        pages = int((process / "statm").read_text().split()[1])
        threads, handles = (len(list((process / name).iterdir())) for name in ("task", "fd"))
        return Size(pages * os.sysconf("SC_PAGE_SIZE") / 2**20, handles, threads, self.database())

    def round(self, number: int) -> None:
        """Some send twice, garbage, a spent ticket, or half a report; others once.

        Then the previous round is fetched.
        """
        round_ = number % ROUNDS_OF_A_TASK + 1
        analyst = AnalystKey.new()
        tickets = new_tickets(PEOPLE)
        task = load_task(3, users=1_000_000 + number // ROUNDS_OF_A_TASK, rounds=ROUNDS_OF_A_TASK)
        collection = self.shuffler.opened(
            task, lasts=LASTS, tickets=tickets, analyst=analyst, round=round_
        )
        sealing = collection.sealing
        people = [
            [secrets.token_bytes(sealing.inner_size) for _ in range(sealing.messages)]
            for _ in tickets
        ]
        reports = [
            sealing.closed(boxes, collection.keys[-1], ticket)
            for boxes, ticket in zip(people, tickets, strict=True)
        ]
        slow = self.half_sent(collection, reports[0])
        answers: Posted = post_report(collection.url, reports, 32)
        assert answers.statuses == [204] * PEOPLE
        self.waits.append(statistics.median(answers.seconds))
        assert set(post_report(collection.url, reports[:20]).statuses) == {204}
        assert set(
            post_report(collection.url, [report[::-1] for report in reports[:20]]).statuses
        ) == {422}
        assert set(
            post_report(
                collection.url, [sealing.closed(people[1], collection.keys[-1], tickets[0])]
            ).statuses
        ) == {409}
        slow.close()
        if self.sent is not None:
            self.fetch(self.sent)
        self.sent = Sent(
            collection, analyst, b"".join(sorted(box for boxes in people for box in boxes))
        )
        self.sizes.append(self.size())

    @staticmethod
    def half_sent(collection: Collection, report: bytes) -> socket.socket:
        parts = urlsplit(collection.url)
        connection = socket.create_connection((parts.hostname, parts.port))
        connection.sendall(request_of(collection.url, report)[:100])
        return connection

    def fetch(self, sent: Sent) -> None:
        """Exactly what was acknowledged, once; it is purged then."""
        url = f"{sent.collection.url}/release"
        end = time.monotonic() + 60
        with httpx.Client(
            headers={"Authorization": f"Bearer {sent.analyst.token}"}, timeout=30
        ) as client:
            while (release := client.get(url)).status_code == 425 and time.monotonic() < end:
                time.sleep(0.2)
            assert release.status_code == 200, release.text
            assert release.content == sent.output
            assert (
                client.delete(url, headers={"If-Match": release.headers["etag"]}).status_code == 204
            )

    def check(self) -> None:
        """At most the last collection's keys are left; nothing else has grown."""
        assert self.sent is not None
        self.fetch(self.sent)
        assert "Traceback" not in self.shuffler.log
        assert KeyFolder(self.shuffler.keys).names() == []
        early = self.sizes[max(1, int(WARM * len(self.sizes))) :]
        first = early[0]
        last = early[-1]
        rounds = len(early)
        print(
            f"{self.shuffler.store.split(':')[0]}: {len(self.sizes)} rounds of {PEOPLE}, "
            f"{first} to {last}"
        )
        print(
            f"  middle answer {1000 * self.waits[0]:.1f} ms in the first round, "
            f"{1000 * statistics.median(self.waits[-20:]):.1f} ms at last"
        )
        assert last.megabytes - first.megabytes < 25
        assert last.handles <= first.handles + 10
        assert last.threads <= first.threads + 2
        # What stays of a collection is what it was, so that no second one of that round is ever
        # opened.
        assert last.database - first.database < 2**22 + 40_000 * rounds


@pytest.mark.slow
def test_an_hour_of_rounds(tmp_path: Path, new_postgres_url: Callable[[], str]) -> None:
    file = tmp_path / "shuffler.db"
    server = new_postgres_url()
    addresses: dict[str, Callable[[], int]] = {
        f"sqlite:///{file}": lambda: sum(
            path.stat().st_size for path in tmp_path.glob("shuffler.db*")
        ),
        server: lambda: int(asked(server, "SELECT pg_database_size(current_database())")[0][0]),
    }
    with ExitStack() as stack:
        both = [
            Soaked(stack.enter_context(running(tmp_path / f"s{number}", address)), database)
            for number, (address, database) in enumerate(addresses.items())
        ]
        end = time.monotonic() + SECONDS
        for number in count():
            begun = time.monotonic()
            for soaked in both:
                soaked.round(number)
            if time.monotonic() > end:
                break
            time.sleep(max(0.0, begun + LASTS - time.monotonic()))
        for soaked in both:
            soaked.check()
