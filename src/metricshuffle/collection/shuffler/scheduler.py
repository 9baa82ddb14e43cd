"""The loop of a shuffler: every collection is driven by a thread of its own while something is due, and what failed waits a while."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from metricshuffle.collection.shuffler.admission import FINAL_STATES
from metricshuffle.collection.shuffler.upstream import UpstreamUnreachable
from metricshuffle.collection.store.interface import Row, Store, StoreError
from metricshuffle.collection.witness import NotCountersigned
from metricshuffle.errors import MetricShuffleError

PAUSE_SECONDS = 0.5
"""Seconds until all collections are looked at again."""
MAX_PAUSE_SECONDS = 30.0
"""Seconds until what failed again and again is tried again."""
OPEN_PAUSE_SECONDS = 1.0
"""Seconds until a collection that is still open is looked at again: a later hop asks the one before."""
MAX_THREADS = 64
"""Collections that are driven at the same time, at most; only one of them is in memory, and those that wait for another hop take little."""
SWEEP_SECONDS = 3600
CLOCK, STORED_TIME = "clock", "stored time"
"""Where it is noted that the clock keeps all collections from going on, and that what is stored is ahead of it."""
STOP_SECONDS = 30.0
"""Seconds that what is under way has when the shuffler is stopped. What is cut short is done again at the next start."""


@dataclass
class CollectionScheduler:
    """Looks at all collections: who is being driven, and who waits because something failed."""

    store: Store
    advance: Callable[[str], object]
    is_due: Callable[[Row, float], bool]
    sweep: Callable[[], None]
    trouble: dict[str, str]
    """What keeps a collection from going on, by its digest; by "" and `CLOCK` what keeps all of them."""
    tell: Callable[[str], None]
    _threads: dict[str, threading.Thread] = field(default_factory=dict)
    _next: dict[str, tuple[float, float]] = field(default_factory=dict)
    """When each collection is looked at again, and how long it waited for that."""
    _swept: float = float("-inf")

    def round(self) -> float:
        """Start what is due; seconds until the next look."""
        self._threads = {digest: thread for digest, thread in self._threads.items() if thread.is_alive()}
        try:
            if time.monotonic() - self._swept > SWEEP_SECONDS:
                self.sweep()
                self._swept = time.monotonic()
            rows, clock, now = self.store.rows(), self.store.read_clock(), self.store.now()
        except (MetricShuffleError, OSError) as error:
            self._note("", str(error))
            return PAUSE_SECONDS
        self._note("", "")
        if self.store.start_note:
            self.tell(self.store.start_note)
            self.store.start_note = ""
        self._note(CLOCK, clock.trouble)
        self._note(STORED_TIME, clock.warning)
        for row in rows:
            if clock.has_jumped and row.state not in FINAL_STATES:
                continue
            waits = time.monotonic() < self._next.get(row.digest, (0.0, 0.0))[0]
            if waits or row.digest in self._threads or len(self._threads) >= MAX_THREADS:
                continue
            if self.is_due(row, now):
                thread = threading.Thread(target=self._advance, args=(row.digest,), name=f"collection {row.digest[:8]}", daemon=True)
                self._threads[row.digest] = thread
                thread.start()
        ends = [row.until - now for row in rows if row.state == "open" and row.until > now]
        return max(0.01, min([PAUSE_SECONDS, *ends]))

    def leave(self) -> None:
        deadline = time.monotonic() + STOP_SECONDS
        for thread in self._threads.values():
            thread.join(max(0.0, deadline - time.monotonic()))

    def _advance(self, digest: str) -> None:
        try:
            state = self.advance(digest)
        except (StoreError, UpstreamUnreachable, NotCountersigned) as error:
            self._note_failure(digest, str(error))
        except Exception as error:  # a fault of ours must not end the others
            self._note_failure(digest, f"{type(error).__name__} while collection {digest[:16]} was driven.")
        else:
            self._note(digest, "")
            self._next[digest] = (time.monotonic() + (OPEN_PAUSE_SECONDS if state == "open" else PAUSE_SECONDS), PAUSE_SECONDS)

    def _note_failure(self, digest: str, what: str) -> None:
        pause = min(MAX_PAUSE_SECONDS, 2 * self._next.get(digest, (0.0, PAUSE_SECONDS))[1])
        self._next[digest] = (time.monotonic() + pause, pause)
        self._note(digest, what)

    def _note(self, digest: str, what: str) -> None:
        """Said once when it begins, when it becomes another one of that collection, and when it is over."""
        before = self.trouble.get(digest, "")
        if what:
            self.trouble[digest] = what
            if not before or (what != before and digest not in ("", CLOCK, STORED_TIME)):
                self.tell(f"{what[:1].upper()}{what[1:]}" if digest == CLOCK else what)
        elif before:
            del self.trouble[digest]
            over = {
                "": "The database can be used again.",
                CLOCK: "The clock is believed again; collections go on.",
                STORED_TIME: "The time that is stored is not ahead of the clock any more.",
            }
            self.tell(over.get(digest, f"Collection {digest[:16]} goes on."))
