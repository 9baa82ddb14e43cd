"""Readiness of a shuffler: whether it can store reports now, and whether it could recently.

Conditions are sampled at fixed intervals, whether or not reports arrive. Counting answers instead
would show in metrics and logs that a report came while the shuffler could not store it.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from metricshuffle.collection.shuffler.supervisor import notify_supervisor

RETRY_SECONDS = 5
RETRY_SPREAD_SECONDS = 30
"""Minimum time until a client may send again, and the maximum random time added to it."""
QUEUE_SAMPLE_SECONDS = 1.0
CHECK_SAMPLE_SECONDS = 10.0
"""Sampling intervals of the queue, and of all checks, which write to the database."""
RECENT_SECONDS = 300.0
"""Time for which a refusal counts as recent."""
ANSWER_SECONDS = 3.0
"""Time limit of all checks together; a load balancer does not wait for longer."""
DRAINING = "this shuffler is being stopped; another one takes reports."
SLOW = "reports cannot be stored now: the database does not answer."

Check = Callable[[], str]
"""Returns why reports cannot be stored now, as a public sentence; empty if they can."""


def random_retry_after() -> str:
    """Value of Retry-After; random, so that clients do not come back all at once."""
    return str(RETRY_SECONDS + secrets.randbelow(RETRY_SPREAD_SECONDS + 1))


@dataclass
class Readiness:
    """Named checks that must all pass for reports to be stored; callers may add to `checks`."""

    checks: dict[str, Check]
    is_draining: bool = False
    """Whether the server is about to stop and asks to be left out by load balancers."""
    _running: asyncio.Future[str] | None = None
    """Running checks, for which calls wait; they never run in more than one thread."""

    def failures(self) -> dict[str, str]:
        """Sentence of each check, empty where it passed; it may wait for disk and database."""
        failures = {name: _sentence(check) for name, check in self.checks.items()}
        return {"answer": "", "drain": DRAINING if self.is_draining else "", **failures}

    def trouble(self) -> str:
        """First sentence of a failed check; empty if all pass."""
        if self.is_draining:
            return DRAINING
        return next(filter(None, map(_sentence, self.checks.values())), "")

    async def current_trouble(self) -> str:
        """Same as `trouble`, within ANSWER_SECONDS, for any number of calls at once."""
        if self.is_draining:
            return DRAINING
        if self._running is None or self._running.done():
            self._running = asyncio.ensure_future(asyncio.to_thread(self.trouble))
        done, _ = await asyncio.wait([self._running], timeout=ANSWER_SECONDS)
        return self._running.result() if done else SLOW


def _sentence(check: Check) -> str:
    """Run a check; a check that raises has not passed."""
    try:
        return check()
    except Exception as error:  # a bug must not look like a shuffler that is ready
        return f"a check of this shuffler failed ({type(error).__name__})."


@dataclass
class RefusalSampler:
    """Samples whether reports would be refused, for metrics."""

    readiness: Readiness
    is_busy: Callable[[], bool]
    """Whether the queue of reports is full."""
    clock: Callable[[], float] = time.monotonic
    failures: dict[str, str] = field(default_factory=dict)
    """Latest result of all checks."""
    _last: dict[int, float] = field(default_factory=dict)

    def sample_queue(self) -> None:
        if self.is_busy():
            self._last[429] = self.clock()

    def sample_checks(self) -> None:
        self._note_failures(self.readiness.failures())

    def _note_failures(self, failures: dict[str, str]) -> None:
        self.failures = failures
        if any(failures.values()):
            self._last[503] = self.clock()

    def was_refusing(self, status: int) -> bool:
        """Return whether a report would have got this status within RECENT_SECONDS."""
        last = self._last.get(status)
        return last is not None and self.clock() - last <= RECENT_SECONDS

    async def _sample_checks_aside(self) -> None:
        self._note_failures(await asyncio.to_thread(self.readiness.failures))

    async def run(self) -> None:
        """Background task: sample, and report to the supervisor that the event loop runs."""
        checked_at = float("-inf")
        checking: asyncio.Future[None] | None = None
        while True:
            notify_supervisor("WATCHDOG=1")
            self.sample_queue()
            age = self.clock() - checked_at
            if checking is not None and not checking.done():
                if age > ANSWER_SECONDS:
                    self._note_failures({**self.failures, "answer": SLOW})
            elif age >= CHECK_SAMPLE_SECONDS:
                checked_at = self.clock()
                checking = asyncio.ensure_future(self._sample_checks_aside())
            await asyncio.sleep(QUEUE_SAMPLE_SECONDS)
