"""What one move of one item costs among shuffled items: the lines that `move_composition.py` takes, on demand where they matter.

Items live in a metric space of diameter 1 (callers rescale). One item moves from x to x', a distance d apart, the other
N - 1 items hold anything; F is the power of a test for x against its false alarms for x', or the other way round.
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

LARGEST_TOTAL = 600.0  # of a local epsilon
FIRST_SLOPE_RATIO, SLOPE_DECADES = 1.3, 4.0  # ratio of neighbouring slopes of the first lines, and how far they reach down
MIN_SLOPE_FRACTION = 1e-2  # lines flatter than this fraction of the steepest one passed are not worth refining
MAX_LINES, MAX_ROUNDS = 4000, 6
GIVE_UP_RATIO = 1e-8  # times what is found is more than what is wanted: no use to look closer
MAX_CHEAP_ITEMS = 2000  # items up to which a line costs some microseconds only
SMALLEST_DELTA = 1e-280
MAX_PAIRS = 4096
ROUGH_TOLERANCE = 0.2  # bracket of a move that is hardly the worst
TIME_SLACK = 4e-12  # a share of the clock may be too small, never too large: a knot is found to 1e-12


class Lines(ABC):
    """Lines (intercept(k), k), one for every slope k >= 0, that bound the cost of every move, and the clock they are meant for.

    Few lines are drawn at first, more where the flow in question passes.
    """

    clock: DistanceWeight
    ratio: float
    """How close together slopes are where it matters: delta comes out too large by about (10 log ratio)^2 of itself."""
    most_refined: int = 400
    """Lines among those passed."""

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
        """The largest slope at which lines are worth drawing at first."""

    @abstractmethod
    def intercept(self, slope: float) -> float:
        """Upper bound, for every move that takes s of the clock, on the hockey-stick divergence at log(1 + slope s), over s."""

    def _draw(self, slopes: Iterable[float]) -> None:
        for slope in slopes:
            if 0.0 < slope < self.pure and slope not in self._known:
                self._known[slope] = self.intercept(slope)
        self._flow = None

    @property
    def flow(self) -> LineFlow:
        """The flow of the lines drawn so far."""
        if self._flow is None:
            slopes = np.fromiter(self._known, dtype=np.float64)
            heights = np.fromiter(self._known.values(), dtype=np.float64)
            self._flow = LineFlow.of(heights, slopes)
        return self._flow

    def delta(self, time: float, epsilon: float, enough: float = 0.0) -> float:
        """`LineFlow.delta`, with more lines drawn where the flow passes until that is at most `enough` or would not help.

        Finer lines lower it by some factor, but not by the hundred million that would make up for a hopeless one.
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
        low = max(0, bisect_left(slopes, max(bound.flattest, MIN_SLOPE_FRACTION * bound.steepest)) - 1)
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
    """For any item randomizer A with A_x <= e^(total d(x,x')) A_x', total = its rate times the diameter.

    Statement: let h = tanh(total d/2), q = e^-total, C ~ Bin(N-1, q), A ~ Bin(C, 1/2), X = (A+1, C-A), Y = (A, C-A+1) and
    R_l = (1+l)/2 X + (1-l)/2 Y. The reports with the item at x and at x' are post-processings of R_h and R_-h. With H the largest
    h (d = 1) and D(t) the hockey-stick divergence of R_H from R_-H at t >= 1, every move obeys, for every t >= 1,
        F(a) <= a + h (D(t) + (t-1) a)/H.
    So slope k = (t-1)/H, intercept D(t)/H, and the clock is h: items * tanh(total w/2) bounds the sum over a user's items, whose mean
    distance is w, as tanh is concave.
    Proof: docs/proofs/item-moves.md. In short: every report contains a part q (U+V)/2, U and V the two laws that A_x and A_x' are mixtures
    of, so the counts of U's and V's say all; and R_h - R_-h is h times the fixed difference X - Y, which D(t) bounds at h = H.
    Conditions: 0 < total <= 600; N counts only reports the adversary does not know.
    Numerics: `shuffling/clone_bound.py` with log_q = total + log(1 + H), which makes its clone mass q; rounded up throughout.
    Reference: Imola, Roy Chowdhury, Chaudhuri 2024 for shuffled items; the flow is ours.
    """

    ratio = 1.002

    def __init__(self, total: float, shuffled: int, items: int, smallest: float = SMALLEST_DELTA) -> None:
        """`smallest`: intercepts far below it need not be right; they come out larger."""
        if not 0.0 < total <= LARGEST_TOTAL:
            raise ConditionError("The item-wise accountant", f"0 < item rate * diameter <= {LARGEST_TOTAL:g}", f"{total!r}")
        self.total, self.shuffled, self.clock = float(total), checked_users(shuffled), DistanceWeight(items, rate=float(total))
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
        return math.expm1(min(self.total, 90.0 / math.sqrt(1.0 + self.shuffled * math.exp(-self.total)))) / self._largest

    def intercept(self, slope: float) -> float:
        epsilon = round_down(math.log1p(round_down(slope * self._largest, 4)), 4)
        alone = round_up(-math.expm1(epsilon - round_up(self.total, 8)), 4)  # without the others; what is NaN is that
        delta = self._counts.delta(epsilon)
        return round_up((delta if 0.0 <= delta < alone else max(alone, 0.0)) / self._largest, 4)


class RandomizerPairs(Protocol):
    """What the lines need of a randomizer: pairs that stand for all of them, how far apart each is, and its blanket."""

    def pairs(self) -> Iterable[tuple[int, int]]: ...
    def distance(self, a: int, b: int) -> float: ...
    def blanket(self, a: int, b: int) -> BlanketLaw: ...


@dataclass(frozen=True, eq=False)
class Move:
    """Pairs of values at least `distance` apart, and the blanket law that bounds them (in both directions)."""

    distance: float
    law: BlanketLaw
    unit: float = 1.0
    """The diameter in which `distance` is measured."""
    share: float = 0.0
    """How much of the clock it takes; set by `BlanketLines`."""

    @property
    def rate(self) -> float:
        """What one report gives away, per unit of distance."""
        return round_up(max(self.law.pure, self.law.reversed.pure) / self.distance, 4)


def moves_of(randomizer: RandomizerPairs, diameter: float = 1.0) -> list[Move]:
    """One move for every pair of values that differs from the others; distances in units of the diameter.

    Every pair of values must have the laws AND the distance of one of `randomizer.pairs()` (for a channel these are all pairs). Real
    values that are rounded to a grid have not: closer than a step, they give away more per unit of distance than grid points do.
    """
    moves: dict[tuple[object, ...], Move] = {}
    for count, (a, b) in enumerate(randomizer.pairs()):
        if count >= MAX_PAIRS:
            raise ConditionError(
                "The matrix-specific accountant", f"at most {MAX_PAIRS} pairs of values", "more; use the one for any randomizer"
            )
        distance = randomizer.distance(a, b) / diameter
        if not 0.0 < distance <= 1.0 + 1e-12:
            raise InputError(f"values {a} and {b} are {distance!r} diameters apart; distances must lie in (0, diameter].")
        law = randomizer.blanket(a, b)
        directions = (sorted(zip(law.mass, first, second, strict=True)) for first, second in ((law.a, law.b), (law.b, law.a)))
        key = (distance, *min(tuple(map(tuple, direction)) for direction in directions))
        moves.setdefault(key, Move(min(distance, 1.0), law, diameter))
    if not moves:
        raise InputError("a randomizer with one input only has nothing to hide; it needs at least two.")
    within = getattr(randomizer, "pairs_within", None)
    if within is not None and within(0.5 * diameter * min(move.distance for move in moves.values())):
        raise ConditionError(
            "The matrix-specific accountant", "no values between those listed", "real ones; use the one for any randomizer"
        )
    return list(moves.values())


@theorem("metricshuffle", "one move of a given item randomizer")
class BlanketLines(Lines):
    """For one item randomizer, given by the blanket laws of its pairs.

    Statement: let D_j(t) bound the hockey-stick divergence at t, both ways, of every move of kind j, at least d_j apart, whatever the
    other N - 1 items hold, and s be concave with s(0) = 0, s(d_j) = s_j > 0. With I(k) = max_j D_j(1 + k s_j)/s_j every move of
    kind j obeys F(a) <= a + s_j (I(k) + k a) for every k >= 0, and the moves of a user with m items whose mean
    distance is w take at most m s(w).
    Proof: F(a) <= D_j(t) + t a with t = 1 + k s_j. The blanket bound holds for any values of the other items, so it holds along a path
    that changes one item at a time. Jensen: s is concave and grows, and the distances of the moves add up to at most m w. QED
    Conditions: the moves stand for all pairs of values, with distances not above theirs; the blanket of a law is a sub-density of the
    report of EVERY value. The clock s is free: proportional to the spread of the privacy loss of each kind, sqrt(sum (a-b)^2/w), and
    its concave majorant. (A merged pair, in which reports that say nothing about x or x' hide among the others', is not a bound.)
    Numerics: `shuffling.blanket_bound.delta_bracket`, its upper end, to 2e-3 of itself, at an epsilon rounded down.
    Reference: this docstring; shuffling/blanket_bound.py.
    """

    ratio = 1.01

    def __init__(self, moves: Iterable[Move], shuffled: int, items: int, relative: float = 2e-3) -> None:
        moves, self.shuffled, self.relative = list(moves), checked_users(shuffled), relative
        knots = _majorant([(move.distance, _spread(move.law)) for move in moves])
        self.clock = DistanceWeight(items, knots=knots)
        unit = DistanceWeight(1, knots=knots)
        shared = [replace(move, share=unit.tangent(move.distance)[0] * (1.0 - TIME_SLACK)) for move in moves]
        self.moves = sorted(shared, key=lambda move: -move.share)
        super().__init__()

    @cached_property
    def pure(self) -> float:
        return round_up(max(math.expm1(move.rate * move.distance) / move.share for move in self.moves), 32)

    @property
    def scale(self) -> float:
        return 45.0 / math.sqrt(self.shuffled)

    def intercept(self, slope: float) -> float:
        worst = 0.0
        for move in self.moves:  # the farthest first: that is the worst in practice, so that a rough bound tells that others are not
            epsilon = round_down(math.log1p(round_down(slope * move.share, 4)), 4)
            for relative in (ROUGH_TOLERANCE, self.relative) if worst > 0.0 else (self.relative,):
                delta = min(1.0, delta_bracket(move.law, self.shuffled, epsilon, relative=relative).upper) / move.share
                if delta <= worst:
                    break
            worst = max(worst, delta)
        return round_up(worst, 4)


def _spread(law: BlanketLaw) -> float:
    """sqrt(sum (a-b)^2/w), only to choose a clock; reports that give themselves away count as if the blanket held them once."""
    weight = np.where(law.mass > 0.0, law.mass, law.a + law.b)
    support = weight > 0.0
    return math.sqrt(float(np.sum(law.excess[support] ** 2 / weight[support])))


def _majorant(points: list[tuple[float, float]]) -> tuple[tuple[float, float], ...]:
    """The knots of the smallest growing concave function that is 0 at 0 and at least these values."""
    hull: list[tuple[float, float]] = [(0.0, 0.0)]
    for w, s in sorted(points):
        if s <= hull[-1][1]:
            continue
        if w == hull[-1][0]:
            hull.pop()
        while len(hull) > 1 and (hull[-1][1] - hull[-2][1]) * (w - hull[-1][0]) <= (s - hull[-1][1]) * (hull[-1][0] - hull[-2][0]):
            hull.pop()
        hull.append((w, s))
    if len(hull) == 1:
        raise InputError("every value has the same law of reports, so there is nothing to account for.")
    return tuple(hull[1:])
