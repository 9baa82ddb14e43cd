"""Time that is not believed blindly: the clock that anybody with rights can set, beside one that nobody sets.

A store keeps an anchor for each boot of a machine: what both clocks said at one moment. From then on the steady one tells what the other
should say. If that is ahead by more than a limit, it has jumped: no collection changes its state by time until it is right again or the
operator confirms it. A clock that is behind is believed as it is, and what was decided later stays decided.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Self

from metricshuffle.collection.store.interface import ClockJumped
from metricshuffle.collection.terms import instant
from metricshuffle.errors import InputError

MAX_CLOCK_JUMP_SECONDS = 300.0
"""Seconds that a clock may be ahead of the steady one, and may gain in a day."""
DAY = 86_400.0
LONG_DOWNTIME_SECONDS = 30 * DAY
"""A machine that was off for longer than that is worth a warning: its clock may be wrong."""
LATEST_SECONDS = 253402300799.0
"""The end of the year 9999, which the format of times ends with."""
BOOT_FILE = Path("/proc/sys/kernel/random/boot_id")


@dataclass(frozen=True)
class SteadyTime:
    """What a clock says that nobody can set: seconds within one boot of a machine. Those of sleep count, where the system counts them."""

    boot: str
    seconds: float


@cache
def _boot() -> str:
    """Which boot of which machine this is; where the system does not say, every process is one by itself."""
    try:
        return BOOT_FILE.read_text().strip()
    except OSError:
        return secrets.token_hex(16)


def steady_clock() -> SteadyTime:
    number = getattr(time, "CLOCK_BOOTTIME", None)
    return SteadyTime(_boot(), time.monotonic() if number is None else time.clock_gettime(number))


@dataclass(frozen=True)
class Anchor:
    """What both clocks said at one moment of a boot."""

    wall: float
    steady: float


@dataclass(frozen=True)
class ClockReading:
    """One look at all clocks, in seconds since 1970."""

    wall: float
    """What the clock says: the machine's, or that of the database server."""
    expected: float
    """What it should say by the steady clock."""
    stored: float
    """The latest time at which something was decided; nothing is decided before it any more."""
    limit: float = MAX_CLOCK_JUMP_SECONDS
    corrections: int = 0
    """How often what is stored was corrected."""
    is_fresh: bool = True
    """Whether the anchor is there, and of this day."""

    @property
    def ahead(self) -> float:
        return self.wall - self.expected

    @property
    def has_jumped(self) -> bool:
        return not self.ahead <= self.limit  # (what is no number has jumped)

    @property
    def believed(self) -> float:
        """The time that counts. After a jump it goes on by the steady clock, so that nothing is due that is not due by both."""
        return max(self.stored, self.expected if self.has_jumped else self.wall)

    @property
    def latest(self) -> float:
        """The time by the clock, believed or not."""
        return max(self.stored, self.wall)

    @property
    def trouble(self) -> str:
        """Why no collection goes on, if none does."""
        if not self.has_jumped:
            return ""
        return (
            f"the clock is {duration_text(self.ahead)} ahead of what it should say: it was set, or the machine slept where that "
            "cannot be told. "
            "Nothing is sealed, released or destroyed by time until it is right again, or until the operator confirms it with "
            "collection clock confirm."
        )

    @property
    def warning(self) -> str:
        """What an operator should know although collections go on."""
        if self.has_jumped or self.stored - self.wall <= self.limit:
            return ""
        return (
            f"The time that is stored is {duration_text(self.stored - self.wall)} ahead of the clock, which was wrong then or is "
            "wrong now. "
            "If it is right now, collection clock correct takes that back, publicly."
        )

    def check(self) -> None:
        """Raise if the clock has jumped."""
        if self.has_jumped:
            raise ClockJumped(self.trouble)

    def confirmed(self) -> str:
        """What everybody may read when the operator says that the clock is right although it jumped."""
        if not self.has_jumped:
            raise InputError("the clock has not jumped; there is nothing to confirm.")
        return (
            f"The operator confirmed the clock, which had jumped ahead by {duration_text(self.ahead)}, when it said "
            f"{clamped_time_text(self.wall)}."
        )

    def corrected(self, latest: float) -> str:
        """What everybody may read when the operator takes back what was stored (or `told`, by this process) while the clock was wrong."""
        if self.has_jumped:
            raise InputError(f"{self.trouble} Nothing can be corrected by such a clock.")
        back = max(self.stored, latest) - self.wall
        if back <= 0:
            raise InputError("no time that is stored lies ahead of the clock; there is nothing to correct.")
        return (
            f"The operator corrected the time, which was {duration_text(back)} ahead, when the clock said {clamped_time_text(self.wall)}."
        )


@dataclass(frozen=True)
class GuardedClock:
    """The clocks of a store. Without a steady one whatever the clock says is believed: tests that set it do so."""

    wall: Callable[[], float] | None
    """None for that of the database server."""
    steady: Callable[[], SteadyTime] | None
    limit: float = MAX_CLOCK_JUMP_SECONDS

    @classmethod
    def of(cls, wall: Callable[[], float] | None, steady: Callable[[], SteadyTime] | None, limit: float = MAX_CLOCK_JUMP_SECONDS) -> Self:
        """A clock that is replaced without a steady one beside it is believed; the real one is not."""
        if not 1 <= limit <= DAY:
            raise InputError(f"--clock-jump must be from 1 to {DAY:,.0f} seconds, got {limit:g}.")
        return cls(wall, steady_clock if wall is None and steady is None else steady, limit)

    def read_steady(self) -> SteadyTime | None:
        """Asked before the other one: whoever is held up in between sees a jump where there is none, and not the other way round."""
        return None if self.steady is None else self.steady()

    def reading(
        self, wall: float, steady: SteadyTime | None, anchor: Anchor | None, stored: float, corrections: int, own: float | None = None
    ) -> ClockReading:
        """`own` is this machine's clock where `wall` is a server's: as long as there is no anchor, that is what it is compared with."""
        if steady is None or anchor is None:
            expected = wall if steady is None or own is None else min(wall, own)
            return ClockReading(wall, expected, stored, self.limit, corrections, is_fresh=steady is None)
        passed = steady.seconds - anchor.steady
        return ClockReading(wall, anchor.wall + passed, stored, self.limit, corrections, is_fresh=passed <= DAY)


def startup_warning(last: float, wall: float) -> str:
    """What to say of a clock about which nothing is known: the machine was started since anything was stored."""
    if last <= 0:
        return ""
    off = wall - last
    warning = " That is long: see that it is right." if off > LONG_DOWNTIME_SECONDS else ""
    return (
        f"This machine was started since the shuffler last stored a time, {duration_text(abs(off))} "
        f"{'ago' if off >= 0 else 'in the future'} by "
        f"its clock ({clamped_time_text(wall)}), which is believed.{warning}"
    )


def clamped_time_text(seconds: float) -> str:
    """A time as it is written, and the last that can be written for whatever is later: a clock may say anything."""
    return instant(min(max(seconds, 0.0), LATEST_SECONDS))


def duration_text(seconds: float) -> str:
    """A length of time to about a per cent."""
    for size, name in ((365.25 * DAY, "years"), (DAY, "days"), (3600.0, "hours"), (60.0, "minutes")):
        if seconds >= 2 * size:
            return f"{seconds / size:.1f} {name}"
    return f"{seconds:.0f} seconds"
