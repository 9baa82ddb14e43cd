"""Search for the smallest certified epsilon at a delta, in few evaluations of delta(epsilon).

Used by the bounds of this folder to turn delta(epsilon) into epsilon(delta). One evaluation may
take seconds. The bisection of `numerics.certified_search` uses only whether a value passes; here
delta itself is known and its logarithm is smooth, so that secants need about 10 evaluations where
bisection needs 30. A value of epsilon passes if delta(epsilon) is certified to be at most the given
delta, and fails otherwise.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal, Protocol, Self, TypeVar

from metricshuffle.accounting.shuffling.blanket_law import LARGEST_EXPONENT
from metricshuffle.numerics.certified_search import Certified, first_certified

Directions = Literal["both", "forward"]

MAX_STEPS = 200
MAX_LOG_EXCESS = 600.0  # logs beyond this say nothing about the slope


class TwoWayLaw(Protocol):
    """Law of an ordered pair of inputs."""

    @property
    def reversed(self) -> Self: ...
    @property
    def symmetric(self) -> bool: ...


OrderedLaw = TypeVar("OrderedLaw", bound=TwoWayLaw)


def iterate_directions(law: OrderedLaw, directions: Directions) -> Iterator[OrderedLaw]:
    """Yield the law and, for both directions, its reverse unless that is the same law.

    The reverse is built only when the caller asks for it.
    """
    yield law
    if directions == "both" and not law.symmetric:
        yield law.reversed


def certified_excess(value: float, delta: float) -> float:
    """Return log(value/delta); it is at most 0 only if 0 <= value <= delta."""
    if not 0.0 <= value < math.inf:
        return math.inf
    if value <= delta:
        return min(0.0, math.log(value / delta)) if value > delta * 1e-300 else -math.inf
    return max(math.log(value / delta), 1e-300)


def normal_guess(at_zero: float, delta: float) -> tuple[float, float]:
    """Return epsilon and slope = - d log delta / d log epsilon by a normal approximation.

    They are only a starting point. delta(epsilon) = d (phi(t) - t Q(t)) with t = (e^epsilon - 1)/d
    and delta(0) = d phi(0), where phi is the density and Q the upper tail of the standard normal
    law, and d a standard deviation; phi(t) - t Q(t) is about phi(t)/(t^2 + 0.7 t + 1).
    """
    room = math.log(max(at_zero / delta, 1.0 + 1e-6))
    t = 1.0
    for _ in range(6):
        t = math.sqrt(2.0 * max(room - math.log(t * t + 0.7 * t + 1.0), 0.05 * room))
    return math.log1p(at_zero / 0.3989 * t), t * t + 1.0


@dataclass
class RootBracket:
    """Bracket of an epsilon: `low` failed and `high` passed.

    `at_low` and `at_high` are log(delta(x)/delta) at x = `low` and x = `high`, NaN if unknown. It
    is assumed without evaluation that 0 fails, and that `ceiling`, where delta = 0, passes.
    """

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
        """Slope - d log delta / d log epsilon between the two ends; NaN if unknown."""
        return (
            (self.at_low - self.at_high) / math.log(self.high / self.low)
            if self._both_known and self.low > 0.0
            else math.nan
        )

    def note(self, x: float, value: float) -> None:
        """Record the value log(delta(x)/delta) at x, which passed if it is at most 0."""
        if value <= 0.0:
            self.high = x
            self.at_high = value
        else:
            self.low = x
            self.at_low = value

    def _left(self, x: float) -> float:
        """Return log(1 - e^(x - ceiling)), which models how delta vanishes at the ceiling."""
        return math.log(-math.expm1(x - self.ceiling)) if x < self.ceiling else -MAX_LOG_EXCESS

    @property
    def root(self) -> float:
        """Estimated crossing, with log delta linear in epsilon^2 between the ends.

        Near the ceiling, the factor by which delta vanishes at the ceiling is modelled separately
        (`_left`).
        """
        if not self._both_known:
            return 0.5 * (self.low + self.high) if self.high < math.inf else self.low
        low2 = self.low * self.low
        high2 = self.high * self.high
        if self.high < 0.5 * self.ceiling:
            return math.sqrt(
                (high2 * self.at_low - low2 * self.at_high) / (self.at_low - self.at_high)
            )
        first = self.at_low - self._left(self.low)
        rate = (self.at_high - self._left(self.high) - first) / (high2 - low2)
        low = self.low
        high = self.high
        for _ in range(40):
            x = 0.5 * (low + high)
            low, high = (
                (x, high) if first + rate * (x * x - low2) + self._left(x) > 0.0 else (low, x)
            )
        return 0.5 * (low + high)

    def _next(self, x: float, value: float, slope: float, relative: float) -> float:
        nudge = (0.4 if value > 0.0 else -0.4) * relative
        if self._both_known:  # just across the root, unless that is beyond the other end
            root = self.root
            aside = nudge * self.high
            return root + aside if self.low < root + aside < self.high else root - aside
        if not -MAX_LOG_EXCESS < value < MAX_LOG_EXCESS:
            return 0.5 * (self.low + self.high) if self.high < math.inf else 2.0 * x
        step = x * math.exp(min(max(1.2 * value / slope + nudge, -0.7), 0.7))
        if value > 0.0 and self.high == self.ceiling < math.inf:
            # delta is convex in e^epsilon, so an epsilon passes where the chord to the ceiling does
            return min(
                step,
                self.ceiling + math.log1p(math.expm1(self.low - self.ceiling) * math.exp(-value)),
            )
        return step

    def narrowed(
        self, log_excess: Callable[[float], float], start: float, slope: float, relative: float
    ) -> RootBracket:
        """Narrow the bracket to `relative` and return it.

        `log_excess(x)` is log(delta(x)/delta), at most 0 only where x is certified to pass. No
        monotonicity is assumed for the result: `high` is the last x that passed (or the given one),
        `low` the last that failed. NaN counts as a failure. Steps: secants in the logarithms while
        the value at an end is unknown; then `root`, moved slightly beyond the estimated crossing;
        and a bisection if three steps did not shorten the interval to a quarter. Nothing below a
        billionth of `start` is tried.
        """
        x = start
        before = math.nan
        at_before = math.nan
        length = math.inf
        for step in range(MAX_STEPS):
            x = min(x, LARGEST_EXPONENT)
            slow = step % 3 == 2 and self.high - self.low > 0.25 * length
            if slow or not self.low < x < self.high:
                x = 0.5 * (self.low + min(self.high, LARGEST_EXPONENT))
            if step % 3 == 2:
                length = self.high - self.low
            if not (
                self.low < x < self.high
                and (self.high == math.inf or self.high - self.low > relative * self.high)
            ):
                break
            if self.high < 1e-9 * start:
                break
            value = log_excess(x)
            self.note(x, value)
            if (
                before > 0.0
                and before != x
                and 0.1 < (steepness := (at_before - value) / math.log(x / before)) < math.inf
            ):
                slope = steepness
            before = x
            at_before = value
            x = self._next(x, value, slope, relative)
        return self


def bracket_root(
    log_excess: Callable[[float], float],
    delta: float,
    ceiling: float,
    relative: float,
    start: float | None = None,
) -> RootBracket:
    """Bracket the epsilon at which `log_excess`, log(delta(epsilon)/delta), crosses 0.

    Both ends are 0 if 0 passes.
    """
    at_zero = log_excess(0.0)
    if at_zero <= 0.0:
        return RootBracket(ceiling, high=0.0)
    guess, slope = normal_guess(delta * math.exp(min(at_zero, 700.0)), delta)
    begin = min(guess, 0.9 * ceiling) if start is None else start
    return RootBracket(ceiling, at_low=at_zero).narrowed(log_excess, begin, slope, relative)


def confirm_upwards(certified: Certified, start: float, ceiling: float, relative: float) -> float:
    """Return the first value from `start` upwards, in small steps, that passes.

    If no smaller value passes, the ceiling is returned without evaluation.
    """
    return first_certified(
        certified, start, ceiling, step=0.1 * relative, growth=4.0, failing=0.0, least=1e-300
    ).passing
