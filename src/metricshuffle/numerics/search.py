"""From a question that can be certified at one value to the last value at which it was.

Every search for a guarantee goes two steps. A walk from a value whose answer is known, a factor at a time, ends with a `Bracket`: one
value that failed beside one that passed. `last_certified` (`last_whole` for whole numbers) halves it. Answers may jump back and forth, as
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


def last_whole(certified: Callable[[int], bool], failing: int, passing: int) -> int:
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
    passing = _within(limit, start, upwards)
    while passing != limit and not certified(passing):
        failing, passing = passing, _within(limit, passing * (1.0 + step) + least, upwards)
        step = math.copysign(min(growth * abs(step), most), step)
    return Bracket(failing, passing)


def farthest_certified(certified: Certified, passing: float, limit: float, *, step: float) -> Bracket:
    """Walk from `passing`, which has passed, to `limit` as long as values pass: the last that did, and the one that did not.

    Every value is the one before times 1 + `step`. The limit is the last that is looked at; if it passes it stands for both.
    """
    upwards = step > 0.0
    failing = _within(limit, passing * (1.0 + step), upwards)
    while passing != limit and certified(failing):
        passing, failing = failing, _within(limit, failing * (1.0 + step), upwards)
    return Bracket(failing, passing)


def _within(limit: float, value: float, upwards: bool) -> float:
    """The value, or the limit if it lies beyond."""
    return value if (value < limit if upwards else value > limit) else limit
