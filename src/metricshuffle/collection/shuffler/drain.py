"""Orderly end of a server: load balancers leave it out, then waiting calls are answered."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from metricshuffle.collection.shuffler.log_events import Log, LogEvent
from metricshuffle.collection.shuffler.readiness import Readiness
from metricshuffle.collection.shuffler.supervisor import notify_supervisor
from metricshuffle.errors import InputError

MAX_DRAIN_SECONDS = 3600


def checked_drain(seconds: int) -> int:
    """Return the time of a drain; raises InputError if it is too long."""
    if seconds > MAX_DRAIN_SECONDS:
        raise InputError("--drain must be at most 1h: load balancers need seconds.")
    return seconds


@dataclass
class Drain:
    """Ends a server once, after `seconds` in which it takes reports but says it is not ready."""

    readiness: Readiness
    seconds: float
    finish: Callable[[], None]
    """Stops listening, and answers waiting calls."""
    log: Log
    _is_finished: bool = False

    def begin(self) -> None:
        """Begin to drain; end now if draining has begun already, or has no time."""
        if self.seconds <= 0 or self.readiness.is_draining:
            self.end()
            return
        self.readiness.is_draining = True
        notify_supervisor("STOPPING=1")
        text = (
            f"Draining for {self.seconds:g} seconds: reports are still stored, and /readyz "
            "answers 503."
        )
        self.log(LogEvent(text, "drain", phase="begun"))
        asyncio.get_running_loop().call_later(self.seconds, self.end)

    def end(self) -> None:
        """Stop listening; a second call changes nothing."""
        if self._is_finished:
            return
        self._is_finished = True
        if self.readiness.is_draining:
            self.log(LogEvent("The drain is over; the shuffler stops.", "drain", phase="over"))
        self.readiness.is_draining = True
        notify_supervisor("STOPPING=1")
        self.finish()
