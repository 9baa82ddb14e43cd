"""Scheduler of a shuffler: runs due steps in threads, and delays them after failures."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from metricshuffle.collection.shuffler.admission import FINAL_STATES
from metricshuffle.collection.shuffler.log_events import LogEvent
from metricshuffle.collection.shuffler.upstream import UpstreamUnreachable
from metricshuffle.collection.store.records import CollectionRow, LeasesHeld, StoreError
from metricshuffle.collection.store.sql_store import Store
from metricshuffle.collection.witness import NotCountersigned
from metricshuffle.errors import MetricShuffleError

PAUSE_SECONDS = 0.5
"""Seconds between two rounds over all collections."""
MAX_PAUSE_SECONDS = 30.0
"""Longest delay after repeated failures."""
OPEN_PAUSE_SECONDS = 1.0
"""Delay until a collection is driven again that is open (a later hop polls the previous hop then),
or whose leases have not ended."""
MAX_THREADS = 64
"""Maximum number of collections driven at once; only one of them is sorted in memory."""
SWEEP_SECONDS = 3600
CLOCK = "clock"
STORED_TIME = "stored time"
HISTORY = "database"
"""Keys of `trouble` for a clock that has jumped, for a stored time ahead of the clock, and for a
database that is older than the keys."""
STOP_SECONDS = 30.0
"""Time for running steps when the shuffler stops; the next start repeats interrupted ones."""


@dataclass
class CollectionScheduler:
    """Starts a thread for each collection with a due step."""

    store: Store
    advance: Callable[[str], object]
    is_due: Callable[[CollectionRow, float], bool]
    sweep: Callable[[], None]
    trouble: dict[str, str]
    """Why a collection cannot continue, by digest; why none can, by "" and the keys above."""
    log: Callable[[str], None]
    _threads: dict[str, threading.Thread] = field(default_factory=dict)
    _next: dict[str, tuple[float, float]] = field(default_factory=dict)
    """When each collection is driven again, and its last delay."""
    _swept: float = float("-inf")

    def round(self) -> float:
        """Start all due steps; return the seconds until the next round."""
        self._threads = {
            digest: thread for digest, thread in self._threads.items() if thread.is_alive()
        }
        try:
            history = self.store.history_trouble()
            self._note(HISTORY, history)
            if history:
                return PAUSE_SECONDS
            if time.monotonic() - self._swept > SWEEP_SECONDS:
                self.sweep()
                self._swept = time.monotonic()
            rows = self.store.rows()
            clock = self.store.read_clock()
            now = self.store.now()
        except (MetricShuffleError, OSError) as error:
            self._note("", str(error))
            return PAUSE_SECONDS
        self._note("", "")
        if self.store.start_note:
            self.log(LogEvent(self.store.start_note, "clock"))
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
                thread = threading.Thread(
                    target=self._advance,
                    args=(row.digest,),
                    name=f"collection {row.digest[:8]}",
                    daemon=True,
                )
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
        except LeasesHeld as error:
            self._note(digest, str(error))
            self._next[digest] = (time.monotonic() + OPEN_PAUSE_SECONDS, PAUSE_SECONDS)
        except (StoreError, UpstreamUnreachable, NotCountersigned) as error:
            self._note_failure(digest, str(error))
        except Exception as error:  # a bug must not stop other collections
            self._note_failure(
                digest, f"{type(error).__name__} while collection {digest[:16]} was driven."
            )
        else:
            self._note(digest, "")
            pause = OPEN_PAUSE_SECONDS if state == "open" else PAUSE_SECONDS
            self._next[digest] = (time.monotonic() + pause, PAUSE_SECONDS)

    def _note_failure(self, digest: str, what: str) -> None:
        pause = min(MAX_PAUSE_SECONDS, 2 * self._next.get(digest, (0.0, PAUSE_SECONDS))[1])
        self._next[digest] = (time.monotonic() + pause, pause)
        self._note(digest, what)

    def _note(self, digest: str, what: str) -> None:
        """Log trouble when it begins or is over, and a collection's also when it changes."""
        before = self.trouble.get(digest, "")
        if what:
            self.trouble[digest] = what
            if not before or (what != before and digest not in ("", CLOCK, HISTORY, STORED_TIME)):
                text = f"{what[:1].upper()}{what[1:]}" if digest in (CLOCK, HISTORY) else what
                self.log(_event(digest, text))
        elif before:
            del self.trouble[digest]
            over = {
                "": "The database can be used again.",
                CLOCK: "The clock is accepted again; collections continue.",
                HISTORY: "The database is accepted again; collections continue.",
                STORED_TIME: "The stored time is not ahead of the clock any more.",
            }
            text = over.get(digest, f"Collection {digest[:16]} continues.")
            self.log(_event(digest, text, is_over=True))


def _event(subject: str, text: str, *, is_over: bool = False) -> LogEvent:
    """Log message about trouble of a collection, of the clock, or of all."""
    if subject in (CLOCK, STORED_TIME):
        return LogEvent(text, "clock")
    fields = {"collection": subject} if subject and subject != HISTORY else {}
    return LogEvent(text, "note" if is_over else "trouble", **fields)
