"""Straight lines that bound the cost of moving one item among shuffled items.

Items are points of a metric space of diameter 1; callers rescale other spaces. One item moves from
x to x', at distance d, and the other N - 1 items are arbitrary. Consider tests that decide between
x and x' from the shuffled reports. F(a) is the largest power of a test whose false alarms have the
probability a, whichever of x and x' is the alarm. A line (intercept, slope) states that F(a) <= a +
s (intercept + slope a) for every move, where s is the distance weight of the move.
`move_composition.py` composes many moves with these lines. A line is computed when it is needed.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from bisect import bisect_left
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import Protocol

import numpy as np

from metricshuffle.accounting.shuffling._clone_counts import CloneCounts
from metricshuffle.accounting.shuffling.blanket_bound import delta_bracket
from metricshuffle.accounting.shuffling.blanket_law import BlanketLaw
from metricshuffle.accounting.shuffling.clone_bound import ClonePair, checked_users
from metricshuffle.accounting.user_items.move_composition import DistanceWeight, FlowBound, LineFlow
from metricshuffle.citations import theorem
from metricshuffle.errors import ConditionError, InputError
from metricshuffle.numerics.rounding import round_down, round_up

LARGEST_TOTAL = 600.0  # largest local epsilon of one report
FIRST_SLOPE_RATIO = 1.3  # ratio of neighbouring slopes of the first lines
SLOPE_DECADES = 4.0  # decades of slope that the first lines cover
# Lines whose slope is below this fraction of the steepest slope passed are not worth refining.
MIN_SLOPE_FRACTION = 1e-2
MAX_LINES = 4000
MAX_ROUNDS = 6
GIVE_UP_RATIO = 1e-8  # no refinement if this fraction of the bound exceeds the requested delta
MAX_CHEAP_ITEMS = 2000  # items up to which a line costs only some microseconds
SMALLEST_DELTA = 1e-280
MAX_PAIRS = 4096
ROUGH_TOLERANCE = 0.2  # bracket of a move that is unlikely to be the worst
TIME_SLACK = 4e-12  # a weight may be too small, never too large (knots are found to 1e-12)


class Lines(ABC):
    """Lines (intercept(k), k), one for every slope k >= 0, that bound the cost of every move.

    `clock` is the distance weight that they are meant for. Few lines are computed at first, and
    more at the slopes that a composition passes through.
    """

    clock: DistanceWeight
    ratio: float
    """Ratio of neighbouring refined slopes; it adds a fraction of about (10 log ratio)^2 to delta.
    """
    most_refined: int = 400
    """Largest number of lines, after refinement, among those that the flow passes."""

    def __init__(self) -> None:
        self._known: dict[float, float] = {0.0: self.intercept(0.0), self.pure: 0.0}
        top = min(self.pure, self.scale)
        count = math.ceil(SLOPE_DECADES * math.log(10.0) / math.log(FIRST_SLOPE_RATIO))
        self._draw(top * FIRST_SLOPE_RATIO**-i for i in range(count))
        self._flow: LineFlow | None = None

    @property
    @abstractmethod
    def pure(self) -> float:
        """A slope whose line passes through 0."""

    @property
    @abstractmethod
    def scale(self) -> float:
        """Largest slope at which lines are worth drawing at first."""

    @abstractmethod
    def intercept(self, slope: float) -> float:
        """Upper bound, for every move, on its divergence at log(1 + slope s), divided by s.

        The divergence is the hockey-stick divergence, s the distance weight of the move.
        """

    def _draw(self, slopes: Iterable[float]) -> None:
        for slope in slopes:
            if 0.0 < slope < self.pure and slope not in self._known:
                self._known[slope] = self.intercept(slope)
        self._flow = None

    @property
    def flow(self) -> LineFlow:
        """Flow of the lines drawn so far."""
        if self._flow is None:
            slopes = np.fromiter(self._known, dtype=np.float64)
            heights = np.fromiter(self._known.values(), dtype=np.float64)
            self._flow = LineFlow.of(heights, slopes)
        return self._flow

    def delta(self, time: float, epsilon: float, enough: float = 0.0) -> float:
        """`LineFlow.delta`, refined until it is at most `enough` or more lines would not help.

        More lines are drawn where the flow passes. More lines lower delta by some factor, but never
        by 1e8; no lines are drawn if `enough` would need that.
        """
        bound = self.flow.delta(time, epsilon)
        for _ in range(MAX_ROUNDS):
            hopeless = 0.0 < enough < GIVE_UP_RATIO * bound.delta
            missing = self._between(bound) if bound.delta > enough and not hopeless else []
            if not missing or len(self._known) + len(missing) > MAX_LINES:
                break
            self._draw(missing)
            bound = self.flow.delta(time, epsilon)
        return bound.delta

    def _between(self, bound: FlowBound) -> list[float]:
        """Slopes for every gap that is too wide among the lines passed and their neighbours."""
        slopes = sorted(self._known)
        low = max(
            0, bisect_left(slopes, max(bound.flattest, MIN_SLOPE_FRACTION * bound.steepest)) - 1
        )
        high = min(len(slopes) - 1, bisect_left(slopes, bound.steepest) + 1)
        passed = slopes[max(low, 1) : high + 1]
        if len(passed) < 2:
            return []
        step = max(math.log(self.ratio), math.log(passed[-1] / passed[0]) / self.most_refined)
        missing: list[float] = []
        for left, right in pairwise(passed):
            parts = math.ceil(math.log(right / left) / step - 0.5)
            missing += [left * (right / left) ** (i / parts) for i in range(1, parts)]
        return missing


@theorem("metricshuffle", "one move of any metric-private item randomizer")
class CloneLines(Lines):
    """Lines for any item randomizer whose reports A_x about x obey A_x <= e^(total d(x,x')) A_x'.

    A_x is the law of the report of an item at x, and `total` the rate of the randomizer times the
    diameter.

    Statement: let h = tanh(total d/2), q = e^-total, C ~ Bin(N-1, q) the number of clones, B ~
    Bin(C, 1/2), X = (B+1, C-B), Y = (B, C-B+1), and let R_l be the mixture (1+l)/2 X + (1-l)/2 Y of
    their laws. The reports with the item at x and at x' are post-processings of R_h and R_-h. With
    H the largest h (d = 1) and D(t) the hockey-stick divergence of R_H from R_-H at t = e^epsilon
    >= 1, every move obeys, for every t >= 1,

        F(a) <= a + h (D(t) + (t-1) a)/H.

    So the slope is k = (t-1)/H, the intercept D(t)/H, and the distance weight is h: items *
    tanh(total w/2) bounds the sum of the weights over a user's items, whose mean distance is w, as
    tanh is concave.
    Proof: docs/proofs/item-moves.md (where B is called A). In short: A_x and A_x' are mixtures of
    two laws U and V, and every report's law contains the part q (U+V)/2, so the numbers of reports
    drawn from U and from V are sufficient; and R_h - R_-h is h times the fixed difference X - Y,
    which D(t) bounds at h = H.
    Conditions: 0 < total <= 600; N counts only reports the adversary does not know.
    Numerics: `shuffling/clone_bound.py` with log_q = total + log(1 + H), which makes its clone mass
    q; rounded up throughout.
    Reference: Imola, Roy Chowdhury, Chaudhuri 2024 for shuffled items; the flow is ours.
    """

    ratio = 1.002

    def __init__(
        self, total: float, shuffled: int, items: int, smallest: float = SMALLEST_DELTA
    ) -> None:
        """Draw the first lines; intercepts far below `smallest` are overestimated."""
        if not 0.0 < total <= LARGEST_TOTAL:
            raise ConditionError(
                "The item-wise accountant",
                f"0 < item rate * diameter <= {LARGEST_TOTAL:g}",
                f"{total!r}",
            )
        self.total = float(total)
        self.shuffled = checked_users(shuffled)
        self.clock = DistanceWeight(items, rate=float(total))
        self.most_refined = 3000 if shuffled <= MAX_CHEAP_ITEMS else Lines.most_refined
        self._largest = round_down(math.tanh(0.5 * self.total), 4)
        log_q = round_up(self.total + math.log1p(math.tanh(0.5 * self.total)), 8)
        pair = ClonePair(round_up(self.total, 4), log_q, log_q)
        self._counts = CloneCounts.absolute(pair, self.shuffled, max(smallest, SMALLEST_DELTA))
        super().__init__()

    @cached_property
    def pure(self) -> float:
        return round_up(math.expm1(round_up(self.total, 8)) / self._largest, 8)

    @property
    def scale(self) -> float:
        return (
            math.expm1(
                min(self.total, 90.0 / math.sqrt(1.0 + self.shuffled * math.exp(-self.total)))
            )
            / self._largest
        )

    def intercept(self, slope: float) -> float:
        epsilon = round_down(math.log1p(round_down(slope * self._largest, 4)), 4)
        # The bound without the other items, also used if the bound with them is NaN.
        alone = round_up(-math.expm1(epsilon - round_up(self.total, 8)), 4)
        delta = self._counts.delta(epsilon)
        return round_up((delta if 0.0 <= delta < alone else max(alone, 0.0)) / self._largest, 4)


class RandomizerPairs(Protocol):
    """Randomizer as the lines need it: representative pairs, their distances and blankets."""

    def pairs(self) -> Iterable[tuple[int, int]]: ...
    def distance(self, a: int, b: int) -> float: ...
    def blanket(self, a: int, b: int) -> BlanketLaw: ...


@dataclass(frozen=True, eq=False)
class Move:
    """Pairs of values at least `distance` apart, and the blanket law that bounds them both ways."""

    distance: float
    law: BlanketLaw
    unit: float = 1.0
    """Diameter in which `distance` is measured."""
    share: float = 0.0
    """Distance weight of the move; set by `BlanketLines`."""

    @property
    def rate(self) -> float:
        """Local epsilon of one report per unit of distance, rounded up."""
        return round_up(max(self.law.pure, self.law.reversed.pure) / self.distance, 4)


def moves_of(randomizer: RandomizerPairs, diameter: float = 1.0) -> list[Move]:
    """Return one move for every distinct pair of values; distances in units of the diameter.

    Every pair of values must have the laws AND the distance of one of `randomizer.pairs()` (for a
    channel these are all pairs). Real values that are rounded to a grid do not: closer than a step,
    they cost more per unit of distance than grid points do.
    """
    moves: dict[tuple[object, ...], Move] = {}
    for count, (a, b) in enumerate(randomizer.pairs()):
        if count >= MAX_PAIRS:
            raise ConditionError(
                "The matrix-specific accountant",
                f"at most {MAX_PAIRS} pairs of values",
                "more; use the one for any randomizer",
            )
        distance = randomizer.distance(a, b) / diameter
        if not 0.0 < distance <= 1.0 + 1e-12:
            raise InputError(
                f"values {a} and {b} are {distance!r} diameters apart; distances must lie "
                "in (0, diameter]."
            )
        law = randomizer.blanket(a, b)
        directions = (
            sorted(zip(law.mass, first, second, strict=True))
            for first, second in ((law.a, law.b), (law.b, law.a))
        )
        key = (distance, *min(tuple(map(tuple, direction)) for direction in directions))
        moves.setdefault(key, Move(min(distance, 1.0), law, diameter))
    if not moves:
        raise InputError(
            "a randomizer with one input only has nothing to hide; it needs at least two."
        )
    within = getattr(randomizer, "pairs_within", None)
    if within is not None and within(
        0.5 * diameter * min(move.distance for move in moves.values())
    ):
        raise ConditionError(
            "The matrix-specific accountant",
            "no values between those listed",
            "real ones; use the one for any randomizer",
        )
    return list(moves.values())


@theorem("metricshuffle", "one move of a given item randomizer")
class BlanketLines(Lines):
    """Lines for one item randomizer, given by the blanket laws of its pairs.

    Statement: the moves are of finitely many kinds j. Let D_j(t) bound the hockey-stick divergence
    at t = e^epsilon, in both directions, of every move of kind j, at least d_j apart, for any
    values of the other N - 1 items. Let the distance weight s be concave with s(0) = 0, s(d_j) =
    s_j > 0. With I(k) = max_j D_j(1 + k s_j)/s_j every move of kind j obeys F(a) <= a + s_j (I(k) +
    k a) for every slope k >= 0, and the moves of a user with m items whose mean distance is w take
    at most the time m s(w).
    Proof: F(a) <= D_j(t) + t a with t = 1 + k s_j. The blanket bound holds for any values of the
    other items, so it holds along a path that changes one item at a time. The time follows from
    Jensen's inequality: s is concave and increasing, and the distances of the moves add up to at
    most m w. QED.
    Conditions: the moves represent all pairs of values, with distances not above those of the
    pairs; the blanket of a law is a sub-density of the report of EVERY value. The distance weight s
    may be chosen freely. Here it is the concave majorant of the spreads of the privacy loss of the
    kinds j at their distances d_j. The spread is sqrt(sum (a-b)^2/w) over all reports, where a and
    b are the probabilities of a report for the two values and w its mass in the blanket. (A merged
    pair, in which reports without information about x or x' hide among the others', is not a
    bound.)
    Numerics: the upper end of `shuffling.blanket_bound.delta_bracket`, to a relative 2e-3, at an
    epsilon rounded down.
    Reference: this docstring; shuffling/blanket_bound.py.
    """

    ratio = 1.01

    def __init__(
        self, moves: Iterable[Move], shuffled: int, items: int, relative: float = 2e-3
    ) -> None:
        moves = list(moves)
        self.shuffled = checked_users(shuffled)
        self.relative = relative
        knots = _majorant([(move.distance, _spread(move.law)) for move in moves])
        self.clock = DistanceWeight(items, knots=knots)
        unit = DistanceWeight(1, knots=knots)
        shared = [
            replace(move, share=unit.tangent(move.distance)[0] * (1.0 - TIME_SLACK))
            for move in moves
        ]
        self.moves = sorted(shared, key=lambda move: -move.share)
        super().__init__()

    @cached_property
    def pure(self) -> float:
        return round_up(
            max(math.expm1(move.rate * move.distance) / move.share for move in self.moves), 32
        )

    @property
    def scale(self) -> float:
        return 45.0 / math.sqrt(self.shuffled)

    def intercept(self, slope: float) -> float:
        worst = 0.0
        # The farthest move comes first: it is the worst in practice, so a rough bound rules out
        # the other moves.
        for move in self.moves:
            epsilon = round_down(math.log1p(round_down(slope * move.share, 4)), 4)
            for relative in (ROUGH_TOLERANCE, self.relative) if worst > 0.0 else (self.relative,):
                delta = (
                    min(
                        1.0,
                        delta_bracket(move.law, self.shuffled, epsilon, relative=relative).upper,
                    )
                    / move.share
                )
                if delta <= worst:
                    break
            worst = max(worst, delta)
        return round_up(worst, 4)


def _spread(law: BlanketLaw) -> float:
    """sqrt(sum (a-b)^2/w) of `BlanketLines`, used only to choose a distance weight.

    Reports outside the blanket count with the weight a + b in place of w.
    """
    weight = np.where(law.mass > 0.0, law.mass, law.a + law.b)
    support = weight > 0.0
    return math.sqrt(float(np.sum(law.excess[support] ** 2 / weight[support])))


def _majorant(points: list[tuple[float, float]]) -> tuple[tuple[float, float], ...]:
    """Knots of the smallest increasing concave function through (0, 0) not below these points."""
    hull: list[tuple[float, float]] = [(0.0, 0.0)]
    for w, s in sorted(points):
        if s <= hull[-1][1]:
            continue
        if w == hull[-1][0]:
            hull.pop()
        while len(hull) > 1 and (hull[-1][1] - hull[-2][1]) * (w - hull[-1][0]) <= (
            s - hull[-1][1]
        ) * (hull[-1][0] - hull[-2][0]):
            hull.pop()
        hull.append((w, s))
    if len(hull) == 1:
        raise InputError(
            "every value has the same law of reports, so there is nothing to account for."
        )
    return tuple(hull[1:])
