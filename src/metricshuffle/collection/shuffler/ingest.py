"""How a report gets in: opened, checked, named and hidden before it is stored, stored durably before it is acknowledged.

Opening takes a fraction of a millisecond and is done where the report arrives. Storing is done by one thread, which writes whatever has
gathered while it wrote the last time: one transaction for many reports.
"""

from __future__ import annotations

import asyncio
import queue
import shutil
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from metricshuffle.collection.keys import CollectionKeys, KeyFolder
from metricshuffle.collection.sealed_boxes import BoxFormat, NotOpened
from metricshuffle.collection.store.interface import ClockJumped, Entry, Row, Store, StoreError, Verdict
from metricshuffle.collection.terms import Collection, origin_of, parse_time
from metricshuffle.errors import MetricShuffleError

QUEUE_LIMIT = 20_000
"""Reports that may wait to be stored; further ones are to be sent again later."""
TRANSACTION_LIMIT = 1_000
"""Reports of one transaction, at most."""
QUEUE_LIMIT_BYTES, TRANSACTION_LIMIT_BYTES = 512 * 2**20, 32 * 2**20
"""Bytes that wait, and of one transaction, about: a report of thousands of messages has nearly a megabyte."""
MIN_FREE_BYTES = 128 * 2**20
"""Bytes that stay free on the disks of the shuffler: sealing and shuffling need some."""
CHECK_INTERVAL_SECONDS = 1.0
"""Seconds until free space, and whether collections are still open, is looked at again."""


class Busy(MetricShuffleError):
    """Too many reports wait to be stored."""


class NotOpenYet(MetricShuffleError):
    """The collection takes nothing yet."""


@dataclass(frozen=True)
class ReportOpener:
    """A collection as reports meet it: its lengths, and the secrets that open, name and hide a report."""

    digest: str
    sealing: BoxFormat
    keys: CollectionKeys
    origin: bytes = b""
    """The site of the collection's own join page."""

    @classmethod
    def of(cls, row: Row, keys: CollectionKeys) -> ReportOpener:
        collection = Collection(row.served)
        try:
            origin = origin_of(collection.terms.hops[0].url).encode()
        except ValueError:  # (an address that no browser could ask has no page)
            origin = b""
        return cls(row.digest, collection.sealing, keys, origin)

    def entry(self, report: bytes) -> Entry:
        """What is stored of a report; `NotOpened` whatever is wrong with it.

        A report that holds a box twice would be left out when everything is sorted, and would say who sent it; it is refused here.
        """
        ticket, boxes = self.sealing.open_report(report, self.keys.private)
        if len(set(boxes)) != len(boxes):
            raise NotOpened("this report cannot be opened.")
        tag = self.keys.tag(report)
        return Entry(tag, self.keys.ticket_hash(ticket) if ticket else b"", self.keys.hidden(tag, b"".join(boxes)))


IntakeResult = Verdict | StoreError


@dataclass(frozen=True)
class Waiting:
    """A report on its way to the store, and who waits for the answer."""

    digest: str
    entry: Entry
    answer: asyncio.Future[IntakeResult]


class Intake:
    """The way in of one process: the gates of its open collections, the queue, and the thread that writes."""

    def __init__(
        self,
        store: Store,
        keys: KeyFolder,
        *,
        folders: Iterable[Path] = (),
        waiting: int = QUEUE_LIMIT,
        least_free: int = MIN_FREE_BYTES,
        tell: Callable[[str], None] = lambda _: None,
    ) -> None:
        """`folders` are where free space is looked at, beside the keys; `tell` gets what an operator should know, never of a report."""
        self.store, self.keys = store, keys
        self._folders, self._least_free, self._log = {keys.path, *folders}, least_free, tell
        self._openers: dict[str, ReportOpener] = {}
        self._closed: set[str] = set()
        self._lookups: dict[str, asyncio.Future[ReportOpener | None]] = {}
        self._checked_at, self._full, self._has_trouble = float("-inf"), False, False
        self._written = float("-inf")
        self._probe_lock = threading.Lock()
        self._queue: queue.Queue[Waiting | None] = queue.Queue(waiting)
        self._bytes = 0  # that wait; counted where reports arrive and are answered, which is one thread
        self._writer = threading.Thread(target=self._write, name="writer", daemon=True)
        self._writer.start()

    # Where reports arrive

    def known(self, digest: str) -> ReportOpener | None:
        """The gate of a collection that reports were sent to before."""
        return self._openers.get(digest)

    def is_closed(self, digest: str) -> bool:
        """Whether it is known that nothing more is taken; a state never goes back."""
        return digest in self._closed

    async def opener(self, digest: str) -> ReportOpener | None:
        """The gate of a collection, looked up in the store; None if there is none that takes reports here.

        Whether it is closed is told by `is_closed` afterwards. Whoever asks meanwhile waits for the same answer.
        """
        task = self._lookups.get(digest)
        if task is None:
            task = self._lookups[digest] = asyncio.ensure_future(asyncio.to_thread(self._find_opener, digest))
            task.add_done_callback(lambda _: self._lookups.pop(digest, None))
        return await asyncio.shield(task)

    def _find_opener(self, digest: str) -> ReportOpener | None:
        row = self.store.row(digest)
        if row is None or Collection(row.served).hop_index_of(row.key) != 0:
            return None
        if row.state != "open":
            self._closed.add(digest)
            return None
        keys = self.keys.of(row.key)
        if keys is None:
            raise StoreError("the keys of this collection are not here.")
        opener = self._openers[digest] = ReportOpener.of(row, keys)
        return opener

    async def put(self, opener: ReportOpener, report: bytes) -> Verdict:
        """Open a report and store it; what is returned is durable. `NotOpened`; `Busy`, `NotOpenYet` or `StoreError` if not now."""
        if self._queue.full() or self._bytes >= QUEUE_LIMIT_BYTES:
            raise Busy("too many reports at once.")
        if self._is_full():
            raise StoreError("the disk is nearly full.")
        waiting = Waiting(opener.digest, opener.entry(report), asyncio.get_running_loop().create_future())
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

    def _check_closed(self, opener: ReportOpener) -> None:
        """Raise if the collection was not open yet when a report was not taken; note it if it is over for good.

        Time goes on after the answer: a collection that takes reports by now was not closed, but not open yet.
        """
        row, now = self.store.row(opener.digest), self.store.now()
        if row is None or row.state != "open":
            self._closed.add(opener.digest)
            self._openers.pop(opener.digest, None)
        elif now < row.until:
            raise NotOpenYet("this collection is not open yet.")
        elif row.until < parse_time(Collection(row.served).terms.extends):
            raise StoreError("it is being counted whether this collection is extended.")

    def _is_full(self) -> bool:
        now = time.monotonic()
        if now - self._checked_at > CHECK_INTERVAL_SECONDS:
            self._checked_at, before = now, self._full
            self._full = any(shutil.disk_usage(folder).free < self._least_free for folder in self._folders)
            if self._full != before:
                self._log("The disk is nearly full; no report is taken." if self._full else "There is room on the disk again.")
        return self._full

    async def forget_closed(self) -> None:
        """Let the secrets of collections that are not open any more go, for ever; ends when it is cancelled."""
        while True:
            await asyncio.sleep(CHECK_INTERVAL_SECONDS)
            for digest in list(self._openers):
                try:
                    row = await asyncio.to_thread(self.store.row, digest)
                except StoreError:
                    continue
                if row is None or row.state != "open":
                    self._closed.add(digest)
                    self._openers.pop(digest, None)

    # The thread that writes

    def trouble(self) -> str:
        """Why reports cannot be stored now, in public words; empty if they can. It asks the disk and the database, and may wait for them.

        What was stored a moment ago is an answer too; otherwise a transaction is tried, so that trouble is over when it is over.
        """
        if not self._writer.is_alive():
            return "reports cannot be stored now: the thread that writes has ended; start the shuffler again."
        try:
            if self._is_full():
                return "reports cannot be stored now: the disk is nearly full."
        except OSError:
            return "reports cannot be stored now: the disk cannot be looked at."
        if (self._has_trouble or time.monotonic() - self._written > CHECK_INTERVAL_SECONDS) and self._probe_lock.acquire(blocking=False):
            try:
                self.store.check_writing()
                self._note_trouble("")
            except StoreError as error:
                self._note_trouble(str(error))
            finally:
                self._probe_lock.release()
        return "reports cannot be stored now: the database does not take them." if self._has_trouble else ""

    def close(self) -> None:
        """Store what waits, and stop."""
        self._queue.put(None)
        self._writer.join()

    def _write(self) -> None:
        going_on = True
        while going_on:
            batch: list[Waiting] = []
            size, waiting = 0, self._queue.get()
            while True:
                if waiting is None:
                    going_on = False
                else:
                    batch.append(waiting)
                    size += len(waiting.entry.hidden)
                if len(batch) >= TRANSACTION_LIMIT or size >= TRANSACTION_LIMIT_BYTES:
                    break
                try:
                    waiting = self._queue.get_nowait()
                except queue.Empty:
                    break
            self._store_batch(batch)

    def _store_batch(self, batch: Sequence[Waiting]) -> None:
        """Each collection's reports in one transaction, and everybody answered."""
        for digest in dict.fromkeys(waiting.digest for waiting in batch):
            group = [waiting for waiting in batch if waiting.digest == digest]
            answers: Sequence[IntakeResult]
            try:
                answers = self.store.put(digest, [waiting.entry for waiting in group])
                self._note_trouble("")
            except ClockJumped as jumped:  # (said by whoever drives collections: a line here would tell when a report came)
                answers = [jumped] * len(group)
            except StoreError as error:
                answers = [error] * len(group)
                self._note_trouble(str(error))
            except Exception as error:  # a fault of ours loses no report that was acknowledged, and must not end the thread
                answers = [StoreError("the store failed.")] * len(group)
                self._note_trouble(f"{type(error).__name__} where reports are stored.")
            loop = group[0].answer.get_loop()
            if not loop.is_closed():
                loop.call_soon_threadsafe(self._deliver_results, list(zip(group, answers, strict=True)))

    def _note_trouble(self, what: str) -> None:
        """Said once when it begins, and once when it is over."""
        if what and not self._has_trouble:
            self._log(f"Reports cannot be stored: {what}")
        elif not what and self._has_trouble:
            self._log("Reports are stored again.")
        self._has_trouble = bool(what)
        if not what:
            self._written = time.monotonic()

    def _deliver_results(self, results: Sequence[tuple[Waiting, IntakeResult]]) -> None:
        for waiting, answer in results:
            self._bytes -= len(waiting.entry.hidden)
            if not waiting.answer.done():  # whoever sent it may have gone
                waiting.answer.set_result(answer)
