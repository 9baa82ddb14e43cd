"""The loop of a shuffler: every collection is driven by a thread of its own while something is due, and what failed waits a while."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from metricshuffle.errors import MetricShuffleError
from metricshuffle.service.chain import Unreachable
from metricshuffle.service.standing import OVER
from metricshuffle.service.store import Row, Store, StoreError
from metricshuffle.service.witness import NotCountersigned

PAUSE = 0.5
"""Seconds until all collections are looked at again."""
LONGEST_PAUSE = 30.0
"""Seconds until what failed again and again is tried again."""
ASKED_AGAIN = 1.0
"""Seconds until a collection that is still open is looked at again: a later hop asks the one before."""
AT_ONCE = 64
"""Collections that are driven at the same time, at most; only one of them is in memory, and those that wait for another hop take little."""
HOUR = 3600
CLOCK, STORED_TIME = "clock", "stored time"
"""Where it is noted that the clock keeps all collections from going on, and that what is stored is ahead of it."""
LEAVING = 30.0
"""Seconds that what is under way has when the shuffler is stopped. What is cut short is done again at the next start."""


@dataclass
class Driver:
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
            if time.monotonic() - self._swept > HOUR:
                self.sweep()
                self._swept = time.monotonic()
            rows, clock, now = self.store.rows(), self.store.read_clock(), self.store.now()
        except (MetricShuffleError, OSError) as wrong:
            self._note("", str(wrong))
            return PAUSE
        self._note("", "")
        if self.store.start_note:
            self.tell(self.store.start_note)
            self.store.start_note = ""
        self._note(CLOCK, clock.trouble)
        self._note(STORED_TIME, clock.warning)
        for row in rows:
            if clock.has_jumped and row.state not in OVER:
                continue
            waits = time.monotonic() < self._next.get(row.digest, (0.0, 0.0))[0]
            if waits or row.digest in self._threads or len(self._threads) >= AT_ONCE:
                continue
            if self.is_due(row, now):
                thread = threading.Thread(target=self._drive, args=(row.digest,), name=f"collection {row.digest[:8]}", daemon=True)
                self._threads[row.digest] = thread
                thread.start()
        ends = [row.until - now for row in rows if row.state == "open" and row.until > now]
        return max(0.01, min([PAUSE, *ends]))

    def leave(self) -> None:
        deadline = time.monotonic() + LEAVING
        for thread in self._threads.values():
            thread.join(max(0.0, deadline - time.monotonic()))

    def _drive(self, digest: str) -> None:
        try:
            state = self.advance(digest)
        except (StoreError, Unreachable, NotCountersigned) as wrong:
            self._failed(digest, str(wrong))
        except Exception as wrong:  # a fault of ours must not end the others
            self._failed(digest, f"{type(wrong).__name__} while collection {digest[:16]} was driven.")
        else:
            self._note(digest, "")
            self._next[digest] = (time.monotonic() + (ASKED_AGAIN if state == "open" else PAUSE), PAUSE)

    def _failed(self, digest: str, what: str) -> None:
        waited = min(LONGEST_PAUSE, 2 * self._next.get(digest, (0.0, PAUSE))[1])
        self._next[digest] = (time.monotonic() + waited, waited)
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
