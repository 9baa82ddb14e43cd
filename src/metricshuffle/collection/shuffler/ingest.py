"""Ingestion of reports: open, check, tag, encrypt and store each before acknowledging it.

Opening takes a fraction of a millisecond and is done where the report arrives. One thread stores
reports: all that arrive during one transaction are stored by the next one.
"""

from __future__ import annotations

import asyncio
import queue
import secrets
import shutil
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

from metricshuffle.collection.admission_tokens import TokenVerifier
from metricshuffle.collection.capsules import AnswerKey
from metricshuffle.collection.keys import CollectionKeys, KeyFolder
from metricshuffle.collection.oblivious_calls import ObliviousCalls
from metricshuffle.collection.sealed_boxes import BoxFormat, NotOpened
from metricshuffle.collection.shuffler.log_events import LogEvent
from metricshuffle.collection.shuffler.readiness import SLOW, Check
from metricshuffle.collection.store.records import (
    ClockJumped,
    CollectionRow,
    Entry,
    StoreError,
    Verdict,
)
from metricshuffle.collection.store.sql_store import Store
from metricshuffle.collection.terms import Collection, origin_of, parse_time
from metricshuffle.errors import MetricShuffleError

QUEUE_LIMIT = 20_000
"""Maximum number of reports waiting to be stored; clients have to send further ones again."""
TRANSACTION_LIMIT = 1_000
"""Maximum number of reports of one transaction."""
QUEUE_LIMIT_BYTES = 512 * 2**20
TRANSACTION_LIMIT_BYTES = 32 * 2**20
"""Approximate limits of the bytes that wait, and of one transaction.

A report of thousands of messages has nearly a megabyte.
"""
MIN_FREE_BYTES = 128 * 2**20
"""Bytes that must stay free on the disks of the shuffler, for sealing and shuffling."""
PROBE_SECONDS = 2.0
"""Seconds after which a test transaction counts as late."""
STANDBY_MISSING = "reports cannot be stored now: the database waits for a standby."
CHECK_INTERVAL_SECONDS = 1.0
"""Interval between checks of free space, and of whether collections are still open."""


class Busy(MetricShuffleError):
    """Too many reports wait to be stored."""


class NotOpenYet(MetricShuffleError):
    """The collection does not accept reports yet."""


class IntakeOpener(Protocol):
    """Opens reports of one collection or sum."""

    @property
    def digest(self) -> str: ...
    @property
    def origin(self) -> bytes:
        """Site of the collection's own join page."""

    @property
    def size(self) -> int:
        """Bytes of a report."""

    def entry(self, report: bytes) -> Entry:
        """Open a report and return what is stored of it; raises `NotOpened` for any defect."""


@dataclass(frozen=True)
class ReportOpener:
    """Opens reports of one collection, with the keys that open, tag and encrypt them."""

    digest: str
    sealing: BoxFormat
    keys: CollectionKeys | None
    """None at an edge, where other processes open reports."""
    origin: bytes = b""
    """Site of the collection's own join page."""
    verifier: TokenVerifier | None = None
    """Verifier of tokens, if people are admitted by tokens."""
    calls: ObliviousCalls | None = None
    """Calls through the gateway of the collection, if it has one."""

    @classmethod
    def of(cls, row: CollectionRow, keys: CollectionKeys) -> ReportOpener:
        return replace(cls.without_keys(Collection(row.served)), keys=keys)

    @classmethod
    def without_keys(cls, collection: Collection) -> ReportOpener:
        try:
            origin = origin_of(collection.terms.hops[0].url).encode()
        except ValueError:
            # A browser cannot open this address, so there is no join page.
            origin = b""
        verifier = collection.token_verifier
        calls = ObliviousCalls(collection) if collection.terms.gateway else None
        return cls(collection.digest, collection.sealing, None, origin, verifier, calls)

    @property
    def size(self) -> int:
        return self.sealing.report_size

    def entry(self, report: bytes) -> Entry:
        """Open a report and return what is stored of it; raises `NotOpened` for any defect.

        A report that contains a box twice is rejected: it would be left out of the sorted output,
        which would show who sent it. Raises TokenRejected if its token is not valid.
        """
        if self.keys is None:
            raise StoreError("the keys of this collection are not here.")
        ticket, boxes = self.sealing.open_report(report, self.keys.private)
        if len(set(boxes)) != len(boxes):
            raise NotOpened("this report cannot be opened.")
        if self.verifier is not None:
            ticket = self.verifier.nonce_of(ticket)
        tag = self.keys.tag(report)
        return Entry(
            tag,
            self.keys.ticket_hash(ticket) if ticket else b"",
            self.keys.hidden(tag, b"".join(boxes)),
        )


@dataclass(frozen=True)
class OpenedCapsule:
    """Request that came through a relay, for the collection whose key opened it."""

    opener: ReportOpener
    request: bytes
    answer: AnswerKey


def largest_capsule(openers: Iterable[IntakeOpener]) -> int:
    """Length of the longest capsule for these collections; 0 without any."""
    calls = (opener.calls for opener in openers if isinstance(opener, ReportOpener))
    return max((each.capsule_size for each in calls if each is not None), default=0)


IntakeResult = Verdict | StoreError


@dataclass(frozen=True)
class Waiting:
    """Report that waits to be stored, and the future of its answer."""

    digest: str
    entry: Entry
    answer: asyncio.Future[IntakeResult]


class Intake:
    """Report ingestion of one process: cached openers, a bounded queue, a writer thread."""

    def __init__(
        self,
        store: Store,
        keys: KeyFolder | None,
        *,
        folders: Iterable[Path] = (),
        waiting: int = QUEUE_LIMIT,
        least_free: int = MIN_FREE_BYTES,
        log: Callable[[str], None] = lambda _: None,
    ) -> None:
        """Start the writer thread.

        Free space is checked in the folder of keys and in `folders`. `log` gets messages for the
        operator, never about a single report.
        """
        self.store = store
        self.keys = keys
        self._folders = {*([keys.path] if keys is not None else []), *folders}
        self._least_free = least_free
        self._log = log
        self._openers: dict[str, IntakeOpener] = {}
        self._gateways: dict[str, ReportOpener] = {}
        self._gateways_at = float("-inf")
        self._closed: set[str] = set()
        self._lookups: dict[str, asyncio.Future[IntakeOpener | None]] = {}
        self._checked_at = float("-inf")
        self._full = False
        self._has_trouble = False
        self._written = float("-inf")
        self._probe_lock = threading.Lock()
        self._probing_since: float | None = None
        self._queue: queue.Queue[Waiting | None] = queue.Queue(waiting)
        self._bytes = 0  # of waiting reports; changed only by the event loop
        self._writer = threading.Thread(target=self._write, name="writer", daemon=True)
        self._writer.start()

    # Event loop

    def known(self, digest: str) -> IntakeOpener | None:
        """Return the opener of a collection to which reports were sent before."""
        return self._openers.get(digest)

    def is_closed(self, digest: str) -> bool:
        """Return whether the collection is known to be closed, which is final."""
        return digest in self._closed

    async def opener(self, digest: str) -> IntakeOpener | None:
        """Look up the opener of a collection; None if it accepts no reports here.

        `is_closed` says afterwards whether it is closed. Concurrent calls share one lookup.
        """
        task = self._lookups.get(digest)
        if task is None:
            task = self._lookups[digest] = asyncio.ensure_future(self._look_up(digest))
            task.add_done_callback(lambda _: self._lookups.pop(digest, None))
        return await asyncio.shield(task)

    async def _look_up(self, digest: str) -> IntakeOpener | None:
        return await asyncio.to_thread(self._find_opener, digest)

    def _find_opener(self, digest: str) -> IntakeOpener | None:
        row = self.store.row(digest)
        if row is None or Collection(row.served).hop_index_of(row.key) != 0:
            return None
        if row.state != "open":
            self._closed.add(digest)
            return None
        keys = None if self.keys is None else self.keys.of(row.key)
        if keys is None:
            raise StoreError("the keys of this collection are not here.")
        opener = self._openers[digest] = ReportOpener.of(row, keys)
        return opener

    async def largest_capsule(self) -> int:
        """Length of the longest capsule for collections that have a gateway here; 0 without any."""
        if time.monotonic() - self._gateways_at > CHECK_INTERVAL_SECONDS:
            self._gateways_at = time.monotonic()
            self._gateways = await asyncio.to_thread(self._find_gateways)
        return largest_capsule(self._gateways.values())

    def _find_gateways(self) -> dict[str, ReportOpener]:
        """Openers of the collections with a gateway whose keys are here, also of closed ones."""
        openers = {}
        for row in self.store.rows():
            if row.state not in ("open", "sealed") or b'"gateway"' not in row.served:
                continue
            opener = self._gateways.get(row.digest)
            if opener is None and Collection(row.served).hop_index_of(row.key) == 0:
                keys = None if self.keys is None else self.keys.of(row.key)
                opener = None if keys is None else ReportOpener.of(row, keys)
            if opener is not None and opener.calls is not None:
                openers[row.digest] = opener
        return openers

    async def open_capsule(self, capsule: bytes) -> OpenedCapsule:
        """Open a capsule with the key of any collection; raises `NotOpened` if none does.

        Keys are tried in random order, so that the time tells nothing about the collection.
        """
        openers = list(self._gateways.values())
        secrets.SystemRandom().shuffle(openers)
        for opener in openers:
            fits = opener.calls is not None and len(capsule) <= opener.calls.capsule_size
            if fits and opener.keys is not None:
                with suppress(NotOpened):
                    return OpenedCapsule(opener, *opener.keys.gateway.opened(capsule))
        raise NotOpened("this capsule cannot be opened.")

    def is_busy(self) -> bool:
        """Return whether another report would be refused, because too many wait."""
        return self._queue.full() or self._bytes >= QUEUE_LIMIT_BYTES

    async def put(self, opener: IntakeOpener, report: bytes) -> Verdict:
        """Open a report and store it; the verdict is durable.

        Raises: NotOpened; TokenRejected; Busy, NotOpenYet or StoreError if it cannot be stored now.
        """
        if self.is_busy():
            raise Busy("too many reports at once.")
        if self._is_full():
            raise StoreError("the disk is nearly full.")
        entry = await self._entry(opener, report)
        waiting = Waiting(opener.digest, entry, asyncio.get_running_loop().create_future())
        try:
            self._queue.put_nowait(waiting)
        except queue.Full:
            raise Busy("too many reports at once.") from None
        self._bytes += len(waiting.entry.hidden)
        answer = await waiting.answer
        if isinstance(answer, StoreError):
            raise answer
        if answer is Verdict.CLOSED:
            await asyncio.to_thread(self._check_closed, opener)
        return answer

    async def _entry(self, opener: IntakeOpener, report: bytes) -> Entry:
        """Open a report."""
        return opener.entry(report)

    def _check_closed(self, opener: IntakeOpener) -> None:
        """Raise if a report was rejected as too early; record whether the collection has ended.

        If the collection accepts reports by now, it was not open yet at that time.
        """
        row = self.store.row(opener.digest)
        now = self.store.now()
        if row is None or row.state != "open":
            self._closed.add(opener.digest)
            self._openers.pop(opener.digest, None)
        elif now < row.until:
            raise NotOpenYet("this collection is not open yet.")
        elif row.until < parse_time(Collection(row.served).terms.extends):
            raise StoreError(
                "reports are being counted to decide whether this collection is extended."
            )

    def _is_full(self) -> bool:
        now = time.monotonic()
        if now - self._checked_at > CHECK_INTERVAL_SECONDS:
            self._checked_at = now
            before = self._full
            self._full = any(
                shutil.disk_usage(folder).free < self._least_free for folder in self._folders
            )
            if self._full != before:
                text = (
                    "The disk is nearly full; no report is accepted."
                    if self._full
                    else "There is room on the disk again."
                )
                self._log(LogEvent(text, "trouble" if self._full else "note"))
        return self._full

    async def forget_closed(self) -> None:
        """Background task: drop cached keys of closed collections. Runs until cancelled."""
        while True:
            await asyncio.sleep(CHECK_INTERVAL_SECONDS)
            with suppress(OSError):
                self._is_full()  # a full disk is logged by this call, not when a report arrives
            for digest in list(self._openers):
                with suppress(StoreError):
                    if await asyncio.to_thread(self._has_ended, digest):
                        self._closed.add(digest)
                        self._openers.pop(digest, None)

    def _has_ended(self, digest: str) -> bool:
        """Return whether a collection takes no reports any more, which is final."""
        row = self.store.row(digest)
        return row is None or row.state != "open"

    # Writer thread

    def trouble(self) -> str:
        """Return why reports cannot be stored now, as a public sentence; empty if they can.

        A separate thread tries a test transaction, for which this call waits at most PROBE_SECONDS,
        unless one succeeded within the last CHECK_INTERVAL_SECONDS.
        """
        if not self._writer.is_alive():
            return (
                "reports cannot be stored now: the thread that writes has ended; start the "
                "shuffler again."
            )
        try:
            if self._is_full():
                return "reports cannot be stored now: the disk is nearly full."
        except OSError:
            return "reports cannot be stored now: the disk cannot be checked."
        if (
            self._has_trouble or time.monotonic() - self._written > CHECK_INTERVAL_SECONDS
        ) and self._probe_lock.acquire(blocking=False):
            self._probing_since = time.monotonic()
            probe = threading.Thread(target=self._probe, name="probe", daemon=True)
            probe.start()
            probe.join(PROBE_SECONDS)
        if self.is_probe_late():
            return self.standby_trouble() or SLOW
        return (
            "reports cannot be stored now: the database does not accept them."
            if self._has_trouble
            else ""
        )

    def _probe(self) -> None:
        """Try a test transaction, which waits as long as a standby is missing."""
        try:
            self.store.check_writing()
            self._note_trouble("")
        except StoreError as error:
            self._note_trouble(str(error))
        finally:
            self._probing_since = None
            self._probe_lock.release()

    def is_probe_late(self) -> bool:
        """Return whether a test transaction has been running for PROBE_SECONDS."""
        since = self._probing_since
        return since is not None and time.monotonic() - since >= PROBE_SECONDS

    def standby_trouble(self) -> str:
        """Return a public sentence if commits wait for a missing standby; empty otherwise.

        The database is asked only if a test transaction is late, so no report changes the answer.
        """
        try:
            return STANDBY_MISSING if self.is_probe_late() and self.store.awaits_standby() else ""
        except StoreError:
            return SLOW

    @property
    def checks(self) -> dict[str, Check]:
        """Checks of readiness, by name."""
        return {"store": self.trouble, "standby": self.standby_trouble}

    def close(self) -> None:
        """Store all waiting reports, and stop."""
        self._queue.put(None)
        self._writer.join()

    def _write(self) -> None:
        is_open = True
        while is_open:
            batch, is_open = self._next_batch()
            self._store_batch(batch)

    def _next_batch(self) -> tuple[list[Waiting], bool]:
        """Wait for reports; return those of one transaction, and whether more can come."""
        batch: list[Waiting] = []
        size = 0
        is_open = True
        waiting = self._queue.get()
        while True:
            if waiting is None:
                is_open = False
            else:
                batch.append(waiting)
                size += len(waiting.entry.hidden)
            if len(batch) >= TRANSACTION_LIMIT or size >= TRANSACTION_LIMIT_BYTES:
                return batch, is_open
            try:
                waiting = self._queue.get_nowait()
            except queue.Empty:
                return batch, is_open

    def _store_batch(self, batch: Sequence[Waiting]) -> None:
        """Store the reports of each collection in one transaction, and answer all of them."""
        for digest in dict.fromkeys(waiting.digest for waiting in batch):
            group = [waiting for waiting in batch if waiting.digest == digest]
            answers: Sequence[IntakeResult]
            try:
                answers = self.store.put(digest, [waiting.entry for waiting in group])
                self._note_trouble("")
            except ClockJumped as jumped:
                # The scheduler logs it; a line here would show when a report came.
                answers = [jumped] * len(group)
            except StoreError as error:
                answers = [error] * len(group)
                self._note_trouble(str(error))
            except Exception as error:
                # A bug must not end the thread; nothing of this batch is acknowledged.
                answers = [StoreError("the store failed.")] * len(group)
                self._note_trouble(f"{type(error).__name__} where reports are stored.")
            loop = group[0].answer.get_loop()
            if not loop.is_closed():
                loop.call_soon_threadsafe(
                    self._deliver_results, list(zip(group, answers, strict=True))
                )

    def _note_trouble(self, what: str) -> None:
        """Log trouble once when it begins, and once when it is over."""
        if what and not self._has_trouble:
            self._log(LogEvent(f"Reports cannot be stored: {what}", "trouble"))
        elif not what and self._has_trouble:
            self._log("Reports are stored again.")
        self._has_trouble = bool(what)
        if not what:
            self._written = time.monotonic()

    def _deliver_results(self, results: Sequence[tuple[Waiting, IntakeResult]]) -> None:
        for waiting, answer in results:
            self._bytes -= len(waiting.entry.hidden)
            if not waiting.answer.done():  # the client may have disconnected
                waiting.answer.set_result(answer)
