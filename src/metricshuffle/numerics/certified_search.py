"""From a question that can be certified at one value to the last value at which it was.

Every search for a guarantee goes two steps. A walk from a value whose answer is known, a factor at a time, ends with a `Bracket`: one
value that failed beside one that passed. `last_certified` (`last_certified_integer` for whole numbers) halves it. Answers may jump back
and forth, as
those of computed bounds do where they cross: what steers a search is a guess, but what it returns has passed.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

Certified = Callable[[float], bool]


class Bracket(NamedTuple):
    """A value that failed and one that passed, on whichever side of it."""

    failing: float
    passing: float


def last_certified(certified: Certified, failing: float, passing: float, *, relative: float = 1e-13) -> float:
    """Bisect between a failing and a passing value; return the last value that passed.

    `passing` must have passed already. The predicate need not be monotone in floating
    point: whatever is returned was itself certified (or is `passing`).
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
    """The same over whole numbers, on either side of each other, down to neighbours; `passing` has passed, or is checked later."""
    while abs(passing - failing) > 1:
        middle = (failing + passing) // 2
        failing, passing = (failing, middle) if certified(middle) else (middle, passing)
    return passing


def first_certified(
    certified: Certified, start: float, limit: float, *, step: float, failing: float, growth: float = 1.0, most: float = math.inf,
    least: float = 0.0,
) -> Bracket:  # fmt: skip
    """Walk from `start` to `limit` until a value passes: that one, and the one before it (`failing` if it is the first).

    Every value is the one before times 1 + `step` (1 doubles, -0.5 halves); for a walk that starts close to its end, the step grows by
    `growth` each time, to at most `most`. `least` is added to leave 0. The limit itself is not looked at: it is known to pass, or to
    return it means that nothing before it did. What is not a number counts as the limit.
    """
    upwards = step > 0.0
    passing = _limit_to(limit, start, upwards)
    while passing != limit and not certified(passing):
        failing, passing = passing, _limit_to(limit, passing * (1.0 + step) + least, upwards)
        step = math.copysign(min(growth * abs(step), most), step)
    return Bracket(failing, passing)


def farthest_certified(certified: Certified, passing: float, limit: float, *, step: float) -> Bracket:
    """Walk from `passing`, which has passed, to `limit` as long as values pass: the last that did, and the one that did not.

    Every value is the one before times 1 + `step`. The limit is the last that is looked at; if it passes it stands for both.
    """
    upwards = step > 0.0
    failing = _limit_to(limit, passing * (1.0 + step), upwards)
    while passing != limit and certified(failing):
        passing, failing = failing, _limit_to(limit, failing * (1.0 + step), upwards)
    return Bracket(failing, passing)


def every_block(count: int, passes: Callable[[int, int], bool]) -> bool:
    """Whether every one of 0..count-1 lies in a block first..last that passes: both ends, then all between; what fails is halved."""
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
    """A question about a value > 0 that is a number: values whose `excess` is <= 0 pass, and larger ones do not.

    Answers are remembered, and taken from what is known wherever monotony gives them: smaller than a value that passed, or larger than one
    that failed. So it may steer a search, and must not end one.
    """

    def __init__(self, excess: Callable[[float], float], passing: float, failing: float) -> None:
        self.excess, self.passing, self.failing = excess, passing, failing
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

    def enclose(self, guess: float, steepness: float, relative: float, most: int = 40, *, known: bool = False) -> float:
        """Bring `passing` and `failing` within `relative` of each other, by secants of `excess` over the logarithm of the value.

        `steepness` is a guess of their slope, or `known` from a search like this one, for which the last one is returned. What is not
        finite, or leads out of what is known, is halved.
        """
        value = guess
        for _ in range(most):
            self(min(max(value, self.passing * (1.0 + 0.5 * relative)), self.failing * (1.0 - 0.5 * relative)))
            if self.failing <= self.passing * (1.0 + relative):
                break
            (before, was), (at, now) = self._last[0], self._last[-1]
            slope = (now - was) / math.log(at / before) if at != before else math.nan
            if slope > 0.0 and math.isfinite(slope):
                steepness, known = slope, True
            move = -now / steepness if math.isfinite(now) else math.nan
            # A little beyond the root, so that both sides of it become known.
            beyond = min(0.4 * relative + 0.05 * abs(move) * (not known), 1.0) * (1.0 if now <= 0.0 else -1.0)
            value = at * math.exp(min(max(move + beyond, -1.4), 1.4)) if math.isfinite(move) else math.nan
            if not self.passing < value < self.failing:
                value = math.sqrt(self.passing * self.failing)
        return steepness


def _limit_to(limit: float, value: float, upwards: bool) -> float:
    """The value, or the limit if it lies beyond."""
    return value if (value < limit if upwards else value > limit) else limit
