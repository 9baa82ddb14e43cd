"""Wall clock that is checked against a steady clock, which nobody can set.

A store has an anchor for each boot of a machine: the time of both clocks at one moment. From then
on the steady clock gives the expected time. A wall clock that is ahead of it by more than a limit
has jumped: no collection changes its state by time until the clock is right again or the operator
confirms it. A clock that is behind is accepted, and decisions made at later times remain.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Self

from metricshuffle.collection.store.records import ClockJumped
from metricshuffle.collection.terms import instant
from metricshuffle.errors import InputError

MAX_CLOCK_JUMP_SECONDS = 300.0
"""Seconds by which a clock may be ahead of the steady one, and may gain in a day."""
DAY = 86_400.0
LONG_DOWNTIME_SECONDS = 30 * DAY
"""Downtime after which the operator is warned that the clock may be wrong."""
LATEST_SECONDS = 253402300799.0
"""End of the year 9999, the last time that can be written."""
BOOT_FILE = Path("/proc/sys/kernel/random/boot_id")


@dataclass(frozen=True)
class SteadyTime:
    """Time of the steady clock: seconds within one boot, with sleep where the system counts it."""

    boot: str
    seconds: float


@cache
def _boot() -> str:
    """Id of this boot; where the system has none, each process has its own."""
    try:
        return BOOT_FILE.read_text().strip()
    except OSError:
        return secrets.token_hex(16)


def steady_clock() -> SteadyTime:
    number = getattr(time, "CLOCK_BOOTTIME", None)
    return SteadyTime(_boot(), time.monotonic() if number is None else time.clock_gettime(number))


@dataclass(frozen=True)
class Anchor:
    """Time of both clocks at one moment of a boot."""

    wall: float
    steady: float


@dataclass(frozen=True)
class ClockReading:
    """Reading of all clocks, in seconds since 1970."""

    wall: float
    """Time of the clock of the machine, or of the database server."""
    expected: float
    """Time expected by the steady clock."""
    stored: float
    """Latest time of a decision; nothing is decided at an earlier time any more."""
    limit: float = MAX_CLOCK_JUMP_SECONDS
    corrections: int = 0
    """Number of corrections of the stored time."""
    is_fresh: bool = True
    """Whether there is an anchor that is less than a day old."""

    @property
    def ahead(self) -> float:
        return self.wall - self.expected

    @property
    def has_jumped(self) -> bool:
        return not self.ahead <= self.limit  # NaN has jumped

    @property
    def believed(self) -> float:
        """Time for decisions; after a jump the expected time, so that nothing happens early."""
        return max(self.stored, self.expected if self.has_jumped else self.wall)

    @property
    def latest(self) -> float:
        """Time by the wall clock, whether it has jumped or not."""
        return max(self.stored, self.wall)

    @property
    def trouble(self) -> str:
        """Why no collection continues; empty unless the clock has jumped."""
        if not self.has_jumped:
            return ""
        return (
            f"the clock is {duration_text(self.ahead)} ahead of the expected time: it was set, "
            "or the machine slept where that cannot be detected. Nothing is sealed, released "
            "or destroyed by time until it is right again, or until the operator confirms it "
            "with collection clock confirm."
        )

    @property
    def warning(self) -> str:
        """Warning for the operator about a stored time that is ahead of the clock."""
        if self.has_jumped or self.stored - self.wall <= self.limit:
            return ""
        return (
            f"The stored time is {duration_text(self.stored - self.wall)} ahead of the clock, "
            "which was wrong then or is wrong now. If it is right now, collection clock "
            "correct resets the stored time, publicly."
        )

    def check(self) -> None:
        """Raise if the clock has jumped."""
        if self.has_jumped:
            raise ClockJumped(self.trouble)

    def confirmed(self) -> str:
        """Public note for a clock that the operator confirms although it jumped."""
        if not self.has_jumped:
            raise InputError("the clock has not jumped; there is nothing to confirm.")
        return (
            "The operator confirmed the clock, which had jumped ahead by "
            f"{duration_text(self.ahead)}, when it said "
            f"{clamped_time_text(self.wall)}."
        )

    def corrected(self, latest: float) -> str:
        """Public note for a correction of the stored time.

        `latest` is the latest time that this process returned.
        """
        if self.has_jumped:
            raise InputError(f"{self.trouble} Nothing can be corrected by such a clock.")
        back = max(self.stored, latest) - self.wall
        if back <= 0:
            raise InputError("no stored time is ahead of the clock; there is nothing to correct.")
        return (
            f"The operator corrected the time, which was {duration_text(back)} ahead, when the "
            f"clock said {clamped_time_text(self.wall)}."
        )


@dataclass(frozen=True)
class GuardedClock:
    """Clocks of a store. Without a steady one, as in tests, the wall clock is always accepted."""

    wall: Callable[[], float] | None
    """None for the clock of the machine or of the database server."""
    steady: Callable[[], SteadyTime] | None
    limit: float = MAX_CLOCK_JUMP_SECONDS

    @classmethod
    def of(
        cls,
        wall: Callable[[], float] | None,
        steady: Callable[[], SteadyTime] | None,
        limit: float = MAX_CLOCK_JUMP_SECONDS,
    ) -> Self:
        """Create the clock; a replaced `wall` without `steady` is always accepted."""
        if not 1 <= limit <= DAY:
            raise InputError(f"--clock-jump must be from 1 to {DAY:,.0f} seconds, got {limit:g}.")
        return cls(wall, steady_clock if wall is None and steady is None else steady, limit)

    def read_steady(self) -> SteadyTime | None:
        """Read the steady clock, before the wall clock.

        A delay between both then looks like a jump, and never hides one.
        """
        return None if self.steady is None else self.steady()

    def reading(
        self,
        wall: float,
        steady: SteadyTime | None,
        anchor: Anchor | None,
        stored: float,
        corrections: int,
        own: float | None = None,
    ) -> ClockReading:
        """Combine times.

        Without an anchor a server's `wall` is compared with `own`, this machine's clock.
        """
        if steady is None or anchor is None:
            expected = wall if steady is None or own is None else min(wall, own)
            return ClockReading(
                wall, expected, stored, self.limit, corrections, is_fresh=steady is None
            )
        passed = steady.seconds - anchor.steady
        return ClockReading(
            wall, anchor.wall + passed, stored, self.limit, corrections, is_fresh=passed <= DAY
        )


def startup_warning(last: float, wall: float) -> str:
    """Warning about a clock that cannot be checked, because the machine was restarted."""
    if last <= 0:
        return ""
    off = wall - last
    warning = " That is long: check that it is right." if off > LONG_DOWNTIME_SECONDS else ""
    return (
        "This machine was started since the shuffler last stored a time, "
        f"{duration_text(abs(off))} {'ago' if off >= 0 else 'in the future'} by its clock "
        f"({clamped_time_text(wall)}), which is trusted.{warning}"
    )


def clamped_time_text(seconds: float) -> str:
    """Text of a time, clamped to the range that can be written."""
    return instant(min(max(seconds, 0.0), LATEST_SECONDS))


def duration_text(seconds: float) -> str:
    """Text of a duration, accurate to about one percent."""
    for size, name in (
        (365.25 * DAY, "years"),
        (DAY, "days"),
        (3600.0, "hours"),
        (60.0, "minutes"),
    ):
        if seconds >= 2 * size:
            return f"{seconds / size:.1f} {name}"
    return f"{seconds:.0f} seconds"
