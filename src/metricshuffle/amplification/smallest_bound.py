"""Interface of one upper bound among several, and the search for the smallest of them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import ClassVar, Protocol

WIN_RATIO = 1.0 - 1e-9  # a bound must be smaller by this factor to win


@dataclass(frozen=True)
class BoundResult:
    """A value with the bound and the evaluator that gave it."""

    value: float
    bound: str
    evaluator: str

    def smaller_of(self, candidate: BoundResult) -> BoundResult:
        """Return the candidate if its value is smaller, else self."""
        return candidate if candidate.value < self.value else self


class Bound(Protocol):
    """An upper bound for every pair of inputs up to one distance and a number of users.

    Shortcuts rely on certified numbers: a goal, or a value shown by a lost comparison, never
    exceeds the result of the bound.
    """

    search_order: ClassVar[int]
    """Position in a search for the smallest bound."""

    def delta(self, epsilon: float, ceiling: float) -> BoundResult | None:
        """Bound delta at this epsilon; None if no bound below `ceiling` can be shown."""
        ...

    def epsilon(self, delta: float, ceiling: float) -> BoundResult | None:
        """Find the smallest certified epsilon; None if no epsilon below `ceiling` can be shown."""
        ...

    def covers(self, epsilon: float, delta: float) -> bool:
        """Return whether delta of every pair is certified at this epsilon."""
        ...

    def nearly_covers(self, epsilon: float, delta: float) -> bool:
        """Check a necessary condition of `covers`, quickly."""
        return self.covers(epsilon, delta)

    def delta_goal(self, epsilon: float) -> float:
        """Return a lower limit of this bound's delta, a goal for other bounds; inf if unknown."""
        return math.inf

    def epsilon_goal(self, delta: float) -> float:
        """Return a lower limit of this bound's epsilon, a goal for other bounds; inf if unknown."""
        return math.inf

    def loses(self, rival: BoundResult, delta: float) -> bool:
        """Return whether one evaluation shows that this bound does not win (by `WIN_RATIO`)."""
        return False


def find_smallest_delta(bounds: Iterable[Bound], epsilon: float, best: BoundResult) -> BoundResult:
    """Return the smallest delta at this epsilon of all bounds and `best`."""

    def answer(bound: Bound, rival: BoundResult) -> BoundResult | None:
        return bound.delta(epsilon, rival.value)

    return _find_smallest(bounds, lambda bound: bound.delta_goal(epsilon), answer, best)


def find_smallest_epsilon(bounds: Iterable[Bound], delta: float, best: BoundResult) -> BoundResult:
    """Return the smallest epsilon at this delta of all bounds and `best`."""

    def answer(bound: Bound, rival: BoundResult) -> BoundResult | None:
        return None if bound.loses(rival, delta) else bound.epsilon(delta, rival.value)

    return _find_smallest(bounds, lambda bound: bound.epsilon_goal(delta), answer, best)


def _find_smallest(
    bounds: Iterable[Bound],
    goal_of: Callable[[Bound], float],
    answer: Callable[[Bound, BoundResult], BoundResult | None],
    best: BoundResult,
) -> BoundResult:
    """Return the smallest answer, skipping bounds that cannot win.

    A bound first tries to reach the smallest goal of the bounds behind it that have not been
    evaluated yet; if it reaches this goal, the bounds behind it need no evaluation. Otherwise it is
    evaluated again after them, unless their results came down to the goal. The search ends because
    a bound is only moved behind one that has not been evaluated yet.
    """
    queue = [(-math.inf, bound) for bound in sorted(bounds, key=lambda bound: bound.search_order)]
    while queue:
        floor, bound = queue.pop(0)
        if not floor < best.value:
            continue
        goals = [goal_of(behind) if known == -math.inf else math.inf for known, behind in queue]
        goal = min(goals, default=math.inf)
        result = answer(bound, best if best.value <= goal else BoundResult(goal, "goal", "goal"))
        if result is not None:
            best = best.smaller_of(result)
        elif goal < best.value:
            queue.insert(goals.index(goal) + 1, (goal, bound))
    return best
