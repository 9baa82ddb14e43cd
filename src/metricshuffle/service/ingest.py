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

from metricshuffle.errors import MetricShuffleError
from metricshuffle.service.boxes import NotOpened, Sealing
from metricshuffle.service.collection import Collection, origin_of, seconds_of
from metricshuffle.service.keys import CollectionKeys, KeyFolder
from metricshuffle.service.store import ClockJumped, Entry, Row, Store, StoreError, Verdict

WAITING = 20_000
"""Reports that may wait to be stored; further ones are to be sent again later."""
AT_ONCE = 1_000
"""Reports of one transaction, at most."""
WAITING_BYTES, AT_ONCE_BYTES = 512 * 2**20, 32 * 2**20
"""Bytes that wait, and of one transaction, about: a report of thousands of messages has nearly a megabyte."""
LEAST_FREE = 128 * 2**20
"""Bytes that stay free on the disks of the shuffler: sealing and shuffling need some."""
LOOKED_AT = 1.0
"""Seconds until free space, and whether collections are still open, is looked at again."""


class Busy(MetricShuffleError):
    """Too many reports wait to be stored."""


class Early(MetricShuffleError):
    """The collection takes nothing yet."""


@dataclass(frozen=True)
class Gate:
    """A collection as reports meet it: its lengths, and the secrets that open, name and hide a report."""

    digest: str
    sealing: Sealing
    keys: CollectionKeys
    origin: bytes = b""
    """The site of the collection's own join page."""

    @classmethod
    def of(cls, row: Row, keys: CollectionKeys) -> Gate:
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
        ticket, boxes = self.sealing.opened_report(report, self.keys.private)
        if len(set(boxes)) != len(boxes):
            raise NotOpened("this report cannot be opened.")
        tag = self.keys.tag(report)
        return Entry(tag, self.keys.ticket_hash(ticket) if ticket else b"", self.keys.hidden(tag, b"".join(boxes)))


Answer = Verdict | StoreError


@dataclass(frozen=True)
class Waiting:
    """A report on its way to the store, and who waits for the answer."""

    digest: str
    entry: Entry
    answer: asyncio.Future[Answer]


class Intake:
    """The way in of one process: the gates of its open collections, the queue, and the thread that writes."""

    def __init__(
        self,
        store: Store,
        keys: KeyFolder,
        *,
        folders: Iterable[Path] = (),
        waiting: int = WAITING,
        least_free: int = LEAST_FREE,
        tell: Callable[[str], None] = lambda _: None,
    ) -> None:
        """`folders` are where free space is looked at, beside the keys; `tell` gets what an operator should know, never of a report."""
        self.store, self.keys = store, keys
        self._folders, self._least_free, self._tell = {keys.path, *folders}, least_free, tell
        self._gates: dict[str, Gate] = {}
        self._closed: set[str] = set()
        self._asked: dict[str, asyncio.Future[Gate | None]] = {}
        self._looked, self._full, self._troubled = float("-inf"), False, False
        self._written = float("-inf")
        self._asking = threading.Lock()
        self._queue: queue.Queue[Waiting | None] = queue.Queue(waiting)
        self._bytes = 0  # that wait; counted where reports arrive and are answered, which is one thread
        self._writer = threading.Thread(target=self._write, name="writer", daemon=True)
        self._writer.start()

    # Where reports arrive

    def known(self, digest: str) -> Gate | None:
        """The gate of a collection that reports were sent to before."""
        return self._gates.get(digest)

    def is_closed(self, digest: str) -> bool:
        """Whether it is known that nothing more is taken; a state never goes back."""
        return digest in self._closed

    async def gate(self, digest: str) -> Gate | None:
        """The gate of a collection, looked up in the store; None if there is none that takes reports here.

        Whether it is closed is told by `is_closed` afterwards. Whoever asks meanwhile waits for the same answer.
        """
        task = self._asked.get(digest)
        if task is None:
            task = self._asked[digest] = asyncio.ensure_future(asyncio.to_thread(self._looked_up, digest))
            task.add_done_callback(lambda _: self._asked.pop(digest, None))
        return await asyncio.shield(task)

    def _looked_up(self, digest: str) -> Gate | None:
        row = self.store.row(digest)
        if row is None or Collection(row.served).place_of(row.key) != 0:
            return None
        if row.state != "open":
            self._closed.add(digest)
            return None
        keys = self.keys.of(row.key)
        if keys is None:
            raise StoreError("the keys of this collection are not here.")
        gate = self._gates[digest] = Gate.of(row, keys)
        return gate

    async def put(self, gate: Gate, report: bytes) -> Verdict:
        """Open a report and store it; what is returned is durable. `NotOpened`; `Busy`, `Early` or `StoreError` if not now."""
        if self._queue.full() or self._bytes >= WAITING_BYTES:
            raise Busy("too many reports at once.")
        if self._is_full():
            raise StoreError("the disk is nearly full.")
        waiting = Waiting(gate.digest, gate.entry(report), asyncio.get_running_loop().create_future())
        try:
            self._queue.put_nowait(waiting)
        except queue.Full:
            raise Busy("too many reports at once.") from None
        self._bytes += len(waiting.entry.hidden)
        answer = await waiting.answer
        if isinstance(answer, StoreError):
            raise answer
        if answer is Verdict.CLOSED:
            await asyncio.to_thread(self._check_closed, gate)
        return answer

    def _check_closed(self, gate: Gate) -> None:
        """Raise if the collection was not open yet when a report was not taken; note it if it is over for good.

        Time goes on after the answer: a collection that takes reports by now was not closed, but not open yet.
        """
        row, now = self.store.row(gate.digest), self.store.now()
        if row is None or row.state != "open":
            self._closed.add(gate.digest)
            self._gates.pop(gate.digest, None)
        elif now < row.until:
            raise Early("this collection is not open yet.")
        elif row.until < seconds_of(Collection(row.served).terms.extends):
            raise StoreError("it is being counted whether this collection is extended.")

    def _is_full(self) -> bool:
        now = time.monotonic()
        if now - self._looked > LOOKED_AT:
            self._looked, before = now, self._full
            self._full = any(shutil.disk_usage(folder).free < self._least_free for folder in self._folders)
            if self._full != before:
                self._tell("The disk is nearly full; no report is taken." if self._full else "There is room on the disk again.")
        return self._full

    async def forget_closed(self) -> None:
        """Let the secrets of collections that are not open any more go, for ever; ends when it is cancelled."""
        while True:
            await asyncio.sleep(LOOKED_AT)
            for digest in list(self._gates):
                try:
                    row = await asyncio.to_thread(self.store.row, digest)
                except StoreError:
                    continue
                if row is None or row.state != "open":
                    self._closed.add(digest)
                    self._gates.pop(digest, None)

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
        if (self._troubled or time.monotonic() - self._written > LOOKED_AT) and self._asking.acquire(blocking=False):
            try:
                self.store.check_writing()
                self._note_trouble("")
            except StoreError as error:
                self._note_trouble(str(error))
            finally:
                self._asking.release()
        return "reports cannot be stored now: the database does not take them." if self._troubled else ""

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
                if len(batch) >= AT_ONCE or size >= AT_ONCE_BYTES:
                    break
                try:
                    waiting = self._queue.get_nowait()
                except queue.Empty:
                    break
            self._stored(batch)

    def _stored(self, batch: Sequence[Waiting]) -> None:
        """Each collection's reports in one transaction, and everybody answered."""
        for digest in dict.fromkeys(waiting.digest for waiting in batch):
            group = [waiting for waiting in batch if waiting.digest == digest]
            answers: Sequence[Answer]
            try:
                answers = self.store.put(digest, [waiting.entry for waiting in group])
                self._note_trouble("")
            except ClockJumped as jumped:  # (said by whoever drives collections: a line here would tell when a report came)
                answers = [jumped] * len(group)
            except StoreError as wrong:
                answers = [wrong] * len(group)
                self._note_trouble(str(wrong))
            except Exception as wrong:  # a fault of ours loses no report that was acknowledged, and must not end the thread
                answers = [StoreError("the store failed.")] * len(group)
                self._note_trouble(f"{type(wrong).__name__} where reports are stored.")
            loop = group[0].answer.get_loop()
            if not loop.is_closed():
                loop.call_soon_threadsafe(self._answer, list(zip(group, answers, strict=True)))

    def _note_trouble(self, what: str) -> None:
        """Said once when it begins, and once when it is over."""
        if what and not self._troubled:
            self._tell(f"Reports cannot be stored: {what}")
        elif not what and self._troubled:
            self._tell("Reports are stored again.")
        self._troubled = bool(what)
        if not what:
            self._written = time.monotonic()

    def _answer(self, answered: Sequence[tuple[Waiting, Answer]]) -> None:
        for waiting, answer in answered:
            self._bytes -= len(waiting.entry.hidden)
            if not waiting.answer.done():  # whoever sent it may have gone
                waiting.answer.set_result(answer)
