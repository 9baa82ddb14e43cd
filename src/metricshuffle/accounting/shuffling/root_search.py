"""From delta to epsilon: the last value that was certified, found in a few evaluations of a falling function.

Not the halving of `numerics.certified_search`, because one evaluation may take seconds: delta itself is known, not only whether it
passes, and its
logarithm is smooth, so that secants need about 10 evaluations where halving needs 30.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from metricshuffle.accounting.shuffling.blanket_law import LARGEST_EXPONENT

MAX_STEPS = 200
MAX_LOG_EXCESS = 600.0  # logs beyond this say nothing about the slope


def normal_guess(at_zero: float, delta: float) -> tuple[float, float]:
    """(epsilon, slope) if the sum were normal; slope = - d log delta / d log epsilon. Only a place to start.

    delta(epsilon) = d (phi(t) - t Q(t)) with t = (e^epsilon - 1)/d and delta(0) = d phi(0); phi(t) - t Q(t) is about
    phi(t)/(t^2 + 0.7 t + 1).
    """
    room = math.log(max(at_zero / delta, 1.0 + 1e-6))
    t = 1.0
    for _ in range(6):
        t = math.sqrt(2.0 * max(room - math.log(t * t + 0.7 * t + 1.0), 0.05 * room))
    return math.log1p(at_zero / 0.3989 * t), t * t + 1.0


@dataclass
class RootBracket:
    """low failed, high passed (0 and `ceiling`, where delta = 0, are taken for granted), with log(delta(x)/delta) there if known."""

    ceiling: float
    low: float = 0.0
    high: float = math.inf
    at_low: float = math.nan
    at_high: float = math.nan

    def __post_init__(self) -> None:
        self.high = min(self.high, self.ceiling)

    @property
    def _both_known(self) -> bool:
        return MAX_LOG_EXCESS > self.at_low > self.at_high > -MAX_LOG_EXCESS

    @property
    def slope(self) -> float:
        """- d log delta / d log epsilon between the two ends (NaN if unknown)."""
        return (self.at_low - self.at_high) / math.log(self.high / self.low) if self._both_known and self.low > 0.0 else math.nan

    def note(self, x: float, value: float) -> None:
        """x passed if its log(delta(x)/delta) is at most 0, and failed otherwise."""
        if value <= 0.0:
            self.high, self.at_high = x, value
        else:
            self.low, self.at_low = x, value

    def _left(self, x: float) -> float:
        """log(1 - e^(x - ceiling)): how delta vanishes at the ceiling."""
        return math.log(-math.expm1(x - self.ceiling)) if x < self.ceiling else -MAX_LOG_EXCESS

    @property
    def root(self) -> float:
        """Where log delta crosses if it is linear in epsilon^2 between the ends, apart from how it vanishes at the ceiling."""
        if not self._both_known:
            return 0.5 * (self.low + self.high) if self.high < math.inf else self.low
        low2, high2 = self.low * self.low, self.high * self.high
        if self.high < 0.5 * self.ceiling:
            return math.sqrt((high2 * self.at_low - low2 * self.at_high) / (self.at_low - self.at_high))
        first = self.at_low - self._left(self.low)
        rate = (self.at_high - self._left(self.high) - first) / (high2 - low2)
        low, high = self.low, self.high
        for _ in range(40):
            x = 0.5 * (low + high)
            low, high = (x, high) if first + rate * (x * x - low2) + self._left(x) > 0.0 else (low, x)
        return 0.5 * (low + high)

    def _next(self, x: float, value: float, slope: float, relative: float) -> float:
        nudge = (0.4 if value > 0.0 else -0.4) * relative
        if self._both_known:  # just across the root, unless that is beyond the other end
            root, aside = self.root, nudge * self.high
            return root + aside if self.low < root + aside < self.high else root - aside
        if not -MAX_LOG_EXCESS < value < MAX_LOG_EXCESS:
            return 0.5 * (self.low + self.high) if self.high < math.inf else 2.0 * x
        step = x * math.exp(min(max(1.2 * value / slope + nudge, -0.7), 0.7))
        if value > 0.0 and self.high == self.ceiling < math.inf:  # delta is convex in e^epsilon: on the chord to the ceiling it passes
            return min(step, self.ceiling + math.log1p(math.expm1(self.low - self.ceiling) * math.exp(-value)))
        return step

    def narrowed(self, log_excess: Callable[[float], float], start: float, slope: float, relative: float) -> RootBracket:
        """Narrow to `relative`. `log_excess(x)` is log(delta(x)/delta), negative or 0 only where x is certified to pass.

        No monotonicity is assumed for the result: `high` is the last x that passed (or the given one), `low` the last that failed.
        NaN counts as a failure. Steps: secants in the logarithms while an end is unknown, then `root`, nudged across, and a
        bisection if three steps did not shorten the interval to a quarter. Nothing below a billionth of `start` is tried.
        """
        x, before, at_before, length = start, math.nan, math.nan, math.inf
        for step in range(MAX_STEPS):
            x = min(x, LARGEST_EXPONENT)
            slow = step % 3 == 2 and self.high - self.low > 0.25 * length
            if slow or not self.low < x < self.high:
                x = 0.5 * (self.low + min(self.high, LARGEST_EXPONENT))
            if step % 3 == 2:
                length = self.high - self.low
            if not (self.low < x < self.high and (self.high == math.inf or self.high - self.low > relative * self.high)):
                break
            if self.high < 1e-9 * start:
                break
            value = log_excess(x)
            self.note(x, value)
            if before > 0.0 and before != x and 0.1 < (steepness := (at_before - value) / math.log(x / before)) < math.inf:
                slope = steepness
            before, at_before, x = x, value, self._next(x, value, slope, relative)
        return self
