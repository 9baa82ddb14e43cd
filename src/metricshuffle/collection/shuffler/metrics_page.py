"""Metrics of a shuffler for Prometheus, on an address of their own.

No number depends on whether a given report arrived. The page shows states, the clock, the checks of
readiness, and whether reports would have been refused recently. Rounded counts would not be safe:
someone who sends many reports sees which of them changes the count, and so detects those of others.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import time
from collections import Counter
from collections.abc import AsyncIterator, Container, Iterable
from dataclasses import dataclass

from metricshuffle.collection.hub.lease_list import ENDS, LeaseList
from metricshuffle.collection.shuffler.log_events import EventLog, LogEvent, failure_text
from metricshuffle.collection.shuffler.readiness import RefusalSampler
from metricshuffle.collection.store.records import STATES, CollectionRow, StoreError
from metricshuffle.collection.store.sql_store import Store
from metricshuffle.collection.terms import Collection, parse_time

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
OVERDUE_SECONDS = 300.0
"""Time after the end of acceptance after which an open collection is overdue."""
CACHE_SECONDS = 1.0
REQUEST_SECONDS = 5.0
MAX_REQUEST_BYTES = 8192
MAX_REQUESTS_AT_ONCE = 32

Sample = tuple[str, int]
"""Labels in braces, or nothing, and a value."""


@dataclass
class MetricsPage:
    """Text of the metrics, which is made at most once in CACHE_SECONDS."""

    store: Store
    sampler: RefusalSampler
    log: EventLog
    trouble: Container[str] = ()
    """Digests of collections that cannot go on; a hub and a whole shuffler know them."""
    leases: LeaseList | None = None
    """Leases of keys; only a hub has them."""
    _made_at: float = float("-inf")
    _text: str = ""

    def text(self) -> str:
        """Return the page; it may wait for the database."""
        if time.monotonic() - self._made_at > CACHE_SECONDS:
            self._text = "".join(self._lines())
            self._made_at = time.monotonic()
        return self._text

    def _lines(self) -> Iterable[str]:
        failures = self.sampler.failures
        yield from _metric(
            "ready",
            "Whether reports can be stored: all checks passed when they were last sampled.",
            [("", int(not any(failures.values())))],
        )
        yield from _metric(
            "check",
            "Whether each check of readiness passed when it was last sampled.",
            [(_labels(name=name), int(not failure)) for name, failure in sorted(failures.items())],
        )
        yield from _metric(
            "refusing_recently",
            "Whether a report would have got this status within the last five minutes.",
            [
                (_labels(status=str(status)), int(self.sampler.was_refusing(status)))
                for status in (429, 503)
            ],
        )
        yield from _metric(
            "event_seen",
            "Whether such an event was logged since the start.",
            [
                (_labels(kind=kind), int(kind in self.log.kinds))
                for kind in ("bug", "clock", "trouble")
            ],
        )
        yield from self._lease_lines()
        yield from self._store_lines()

    def _lease_lines(self) -> Iterable[str]:
        """Leases of a hub; none if their list cannot be read, which is logged."""
        if self.leases is None:
            return
        try:
            ends = Counter(lease.ended or "living" for lease in self.leases.all())
        except StoreError:
            return
        yield from _metric(
            "leases",
            "Leases of keys to edges: living ones, and those that ended in each way.",
            [(_labels(end=end), ends[end]) for end in ("living", *ENDS)],
        )

    def _store_lines(self) -> Iterable[str]:
        """Metrics that are read from the database; only the first while it cannot be used."""
        try:
            rows = self.store.rows()
            clock = self.store.read_clock()
            now = self.store.now()
            history = self.store.history_trouble()
        except StoreError:
            yield from _metric("store_readable", "Whether the database can be read.", [("", 0)])
            return
        yield from _metric("store_readable", "Whether the database can be read.", [("", 1)])
        states = Counter(row.state for row in rows)
        yield from _metric(
            "collections",
            "Collections in each state, all of which are public.",
            [(_labels(state=state), states[state]) for state in STATES],
        )
        overdue = sum(row.state == "open" and row.until + OVERDUE_SECONDS < now for row in rows)
        yield from _metric(
            "collections_overdue",
            "Collections that are open five minutes after they should have been closed.",
            [("", overdue)],
        )
        counting = sum(_is_counting(row, now) for row in rows)
        yield from _metric(
            "collections_counting",
            "Collections whose closing time has come, and whose extension is not decided.",
            [("", counting)],
        )
        blocked = sum(row.digest in self.trouble for row in rows)
        yield from _metric(
            "collections_blocked", "Collections that cannot continue now.", [("", blocked)]
        )
        yield from _metric(
            "clock_accepted",
            "0 while the clock has jumped ahead and nothing is decided by time.",
            [("", int(not clock.has_jumped))],
        )
        yield from _metric(
            "stored_time_ahead",
            "1 while the stored time is ahead of the clock.",
            [("", int(bool(clock.warning)))],
        )
        yield from _metric(
            "database_accepted",
            "0 while the database of a hub is older than its keys, or another one.",
            [("", int(not history))],
        )


def _is_counting(row: CollectionRow, now: float) -> bool:
    """Return whether a collection is open at its closing time and could be extended."""
    return (
        row.state == "open"
        and now >= row.until
        and row.until < parse_time(Collection(row.served).terms.extends)
    )


def _labels(**labels: str) -> str:
    return "{" + ",".join(f'{name}="{value}"' for name, value in labels.items()) + "}"


def _metric(name: str, help_text: str, samples: Iterable[Sample]) -> Iterable[str]:
    yield f"# HELP metricshuffle_{name} {help_text}\n# TYPE metricshuffle_{name} gauge\n"
    for labels, value in samples:
        yield f"metricshuffle_{name}{labels} {value}\n"


class MetricsServer:
    """HTTP server of the metrics page only, with one short request for each connection."""

    def __init__(self, page: MetricsPage) -> None:
        self._page = page
        self._requests = 0

    @contextlib.asynccontextmanager
    async def serving(self, listening: socket.socket | None) -> AsyncIterator[None]:
        """Answer requests inside the context, if there is a socket."""
        if listening is None:
            yield
            return
        server = await asyncio.start_server(self._answer, sock=listening, limit=MAX_REQUEST_BYTES)
        try:
            yield
        finally:
            server.close()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer a connection; bad requests get an error and never reach the page."""
        self._requests += 1
        try:
            async with asyncio.timeout(REQUEST_SECONDS):
                if self._requests > MAX_REQUESTS_AT_ONCE:
                    await _send(writer, 503, "too many requests at once.\n")
                    return
                try:
                    head = await reader.readuntil(b"\r\n\r\n")
                except (asyncio.IncompleteReadError, asyncio.LimitOverrunError):
                    await _send(writer, 400, "this is not a short HTTP request.\n")
                    return
                await _send(writer, *await self._content(head))
        except (TimeoutError, OSError):
            pass
        finally:
            self._requests -= 1
            writer.close()

    async def _content(self, head: bytes) -> tuple[int, str]:
        words = head.split(b"\r\n", 1)[0].split(b" ")
        if len(words) != 3 or not words[2].startswith(b"HTTP/1."):
            return 400, "this is not an HTTP request.\n"
        if words[1].partition(b"?")[0] != b"/metrics":
            return 404, "the metrics are at /metrics.\n"
        if words[0] != b"GET":
            return 405, "metrics are read by GET.\n"
        try:
            return 200, await asyncio.to_thread(self._page.text)
        except Exception as error:
            self._page.log(LogEvent(f"The metrics failed: {failure_text(error)}", "bug"))
            return 500, "the metrics failed.\n"


async def _send(writer: asyncio.StreamWriter, status: int, text: str) -> None:
    reason = {200: "OK", 404: "Not Found", 405: "Method Not Allowed"}.get(status, "Refused")
    body = text.encode()
    writer.write(
        f"HTTP/1.1 {status} {reason}\r\nContent-Type: {CONTENT_TYPE}\r\n"
        f"Content-Length: {len(body)}\r\nCache-Control: no-store\r\n"
        "Connection: close\r\n\r\n".encode()
        + body
    )
    await writer.drain()
