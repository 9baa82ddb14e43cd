"""From delta to epsilon: the last value that was certified, found in a few evaluations of a falling function."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from metricshuffle.accounting.blanket_law import LARGEST_EXPONENT

MOST_STEPS = 200


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
class Bracketed:
    """low failed, high passed (0 and the ceiling are taken for granted), with log(delta(x)/delta) there where it is known."""

    low: float
    high: float
    at_low: float = math.nan
    at_high: float = math.nan

    @property
    def slope(self) -> float:
        """- d log delta / d log epsilon between the two ends (NaN if unknown)."""
        if not (0.0 < self.low < self.high and self.at_low > self.at_high > -600.0):
            return math.nan
        return (self.at_low - self.at_high) / math.log(self.high / self.low)

    @property
    def middle(self) -> float:
        """Where log delta, linear in epsilon^2 between the ends, crosses; the upper end if that is unknown."""
        if not self.at_low > self.at_high > -600.0:
            return 0.5 * (self.low + self.high) if self.high < math.inf else self.low
        low2, high2 = self.low * self.low, self.high * self.high
        return math.sqrt(max(0.0, (high2 * self.at_low - low2 * self.at_high) / (self.at_low - self.at_high)))

    def narrowed(self, log_excess: Callable[[float], float], start: float, slope: float, relative: float) -> Bracketed:
        """Narrow to `relative`. `log_excess(x)` is log(delta(x)/delta), negative or 0 only where x is certified to pass.

        No monotonicity is assumed for the result: `high` is the last x that passed (or the given one), `low` the last that failed.
        NaN counts as a failure. Steps: Newton in the logarithms while one end is unknown, then regula falsi with log delta
        linear in epsilon^2, nudged across the root, and a bisection every fourth step.
        """
        x = start
        for step in range(MOST_STEPS):
            x = min(x, LARGEST_EXPONENT)
            if not self.low < x < self.high:
                x = 0.5 * (self.low + min(self.high, LARGEST_EXPONENT))
            if not (self.low < x < self.high and (self.high == math.inf or self.high - self.low > relative * self.high)):
                break
            value = log_excess(x)
            passed = value <= 0.0
            if passed:
                self.high, self.at_high = x, value
            else:
                self.low, self.at_low = x, value
            nudge = (-0.4 if passed else 0.4) * relative
            if step % 4 == 3 and self.low > 0.0 and self.high < LARGEST_EXPONENT:
                x = 0.5 * (self.low + self.high)
            elif self.at_low > self.at_high > -600.0:
                x = self.middle + nudge * self.high
            elif -600.0 < value < 600.0:
                x *= math.exp(min(max(1.1 * value / slope + nudge, -0.7), 0.7))
            else:
                x = 0.5 * x if passed else 2.0 * x
        return self
