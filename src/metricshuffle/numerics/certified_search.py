"""Searches that return the most extreme value for which a predicate was actually verified.

`first_certified` and `farthest_certified` multiply a value by a factor until they have a `Bracket`:
a failing and a passing value next to each other. `last_certified` (`last_certified_integer` for
integers) bisects the bracket. The predicate need not be monotone (computed bounds are not, close to
a crossing): it steers the search, but the returned value has passed.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

Certified = Callable[[float], bool]


class Bracket(NamedTuple):
    """A value that failed and a value that passed; either may be the larger one."""

    failing: float
    passing: float


def last_certified(
    certified: Certified, failing: float, passing: float, *, relative: float = 1e-13
) -> float:
    """Bisect between a failing and a passing value; return the last value that passed.

    `passing` must have passed already. The predicate need not be monotone in floating point: the
    returned value was itself certified (or is `passing`).
    """
    while abs(passing - failing) > relative * max(abs(passing), abs(failing)):
        middle = 0.5 * (passing + failing)
        if middle in (passing, failing):
            break
        if certified(middle):
            passing = middle
        else:
            failing = middle
    return passing


def last_certified_integer(certified: Callable[[int], bool], failing: int, passing: int) -> int:
    """Bisect integers until the two ends are adjacent; return the last value that passed.

    Either end may be the larger one. `passing` must have passed already, or the caller must check
    the result.
    """
    while abs(passing - failing) > 1:
        middle = (failing + passing) // 2
        failing, passing = (failing, middle) if certified(middle) else (middle, passing)
    return passing


def first_certified(
    certified: Certified,
    start: float,
    limit: float,
    *,
    step: float,
    failing: float,
    growth: float = 1.0,
    most: float = math.inf,
    least: float = 0.0,
) -> Bracket:
    """Walk from `start` towards `limit` until a value passes; return it and the value before it.

    The value before it is `failing` if `start` passes. Each value is the previous one times 1 +
    `step` (1 doubles, -0.5 halves) plus `least`, which is needed to leave 0. For walks that start
    close to their end, the step grows by the factor `growth` each time, up to `most`. The limit
    itself is not evaluated: either it is known to pass, or returning it means that no earlier value
    passed. NaN counts as the limit.
    """
    upwards = step > 0.0
    passing = _limit_to(limit, start, upwards)
    while passing != limit and not certified(passing):
        failing = passing
        passing = _limit_to(limit, passing * (1.0 + step) + least, upwards)
        step = math.copysign(min(growth * abs(step), most), step)
    return Bracket(failing, passing)


def farthest_certified(
    certified: Certified, passing: float, limit: float, *, step: float
) -> Bracket:
    """Walk from `passing` to `limit` while values pass; return the last pass and first failure.

    `passing` must have passed already. Each value is the previous one times 1 + `step`. The limit
    is evaluated last; if it passes, it is both ends of the bracket.
    """
    upwards = step > 0.0
    failing = _limit_to(limit, passing * (1.0 + step), upwards)
    while passing != limit and certified(failing):
        passing = failing
        failing = _limit_to(limit, failing * (1.0 + step), upwards)
    return Bracket(failing, passing)


def every_block(count: int, passes: Callable[[int, int], bool]) -> bool:
    """Return whether every index in 0..count-1 lies in a block (first, last) that passes.

    The two end indices are checked first, then the block between them; a failing block is halved.
    """
    blocks = [(1, count - 2), *{(0, 0), (count - 1, count - 1)}] if count else []
    while blocks:
        first, last = blocks.pop()
        if first > last or passes(first, last):
            continue
        if first == last:
            return False
        middle = (first + last) // 2
        blocks += [(first, middle), (middle + 1, last)]
    return True


class MemoizedCheck:
    """Memoized predicate on values > 0: a value passes if its `excess` is <= 0.

    The excess is assumed to increase with the value, so values below a passing value or above a
    failing value are not evaluated. The check may therefore steer a search, but must not certify
    its result.
    """

    def __init__(self, excess: Callable[[float], float], passing: float, failing: float) -> None:
        self.excess = excess
        self.passing = passing
        self.failing = failing
        self._last: list[tuple[float, float]] = []

    def __call__(self, value: float) -> bool:
        if self.passing < value < self.failing:
            excess = self.excess(value)
            self._last = [*self._last[-1:], (value, excess)]
            if excess <= 0.0:
                self.passing = value
            else:
                self.failing = value
        return value <= self.passing

    def enclose(
        self,
        guess: float,
        steepness: float,
        relative: float,
        most: int = 40,
        *,
        known: bool = False,
    ) -> float:
        """Narrow `passing` and `failing` to within `relative` of each other; return the last slope.

        Follows secants of `excess` over the logarithm of the value. `steepness` is a guess of their
        slope, or, with `known`, the slope returned by a similar search. Steps that are not finite
        or leave the bracket are replaced by bisection.
        """
        value = guess
        for _ in range(most):
            self(
                min(
                    max(value, self.passing * (1.0 + 0.5 * relative)),
                    self.failing * (1.0 - 0.5 * relative),
                )
            )
            if self.failing <= self.passing * (1.0 + relative):
                break
            (before, was), (at, now) = self._last[0], self._last[-1]
            slope = (now - was) / math.log(at / before) if at != before else math.nan
            if slope > 0.0 and math.isfinite(slope):
                steepness = slope
                known = True
            move = -now / steepness if math.isfinite(now) else math.nan
            # Step a little beyond the root, so that values on both sides of it are evaluated.
            beyond = min(0.4 * relative + 0.05 * abs(move) * (not known), 1.0) * (
                1.0 if now <= 0.0 else -1.0
            )
            value = (
                at * math.exp(min(max(move + beyond, -1.4), 1.4))
                if math.isfinite(move)
                else math.nan
            )
            if not self.passing < value < self.failing:
                value = math.sqrt(self.passing * self.failing)
        return steepness


def _limit_to(limit: float, value: float, upwards: bool) -> float:
    return value if (value < limit if upwards else value > limit) else limit
