"""Shuffled reports with clamped geometric noise on a line or on both axes of a grid: one law for all pairs at one displacement.

Looking at every pair of cells is out of the question on a grid. All pairs (x, x + shift) of an axis are dominated by one law
with two directions, so a displacement of a grid is one law too, whatever the size of the grid.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

import numpy as np

from metricshuffle.accounting.shuffling.blanket_bound import checked_users, delta_bracket, epsilon_upper
from metricshuffle.accounting.shuffling.blanket_law import BlanketLaw
from metricshuffle.citations import theorem
from metricshuffle.errors import InputError
from metricshuffle.numerics.certified_search import first_certified
from metricshuffle.numerics.types import Floats
from metricshuffle.privacy.profile import PURE_TOLERANCE, PrivacyProfile, Shape, checked_delta, checked_epsilon, validate_distance

Steps = tuple[int, ...]

MAX_LEVELS = 256
LARGEST_SPAN = 1024  # the work is cubic in the span: seconds here, minutes beyond
DELTA_TOLERANCE = 1e-3  # how far above the blanket expression a delta may come out
LEVEL_SLACK = 1e-8  # levels are rounded up except for a billionth of a level; the blanket is lowered by this much instead


@lru_cache(maxsize=4096)
def _levels(span: int, rate: float, smallest: int, largest: int) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Shares of both directions at ratio e^(step k), k = 0, 1, ..: dominating every pair of an axis at a shift in smallest..largest."""
    from metricshuffle.accounting.shuffling import _geometric_blanket_kernels as kernels

    coarse = level_steps(span)
    levels = math.ceil((span + 1 + largest / 2) / coarse) + 2  # log q <= rate (span + largest/2): no level may be cut off
    shifts = np.arange(-largest, largest + 1)
    if largest == 0:
        spread, share = np.zeros(1), np.ones(1)
    else:
        # log of (1 + e^(-rate s)) P/(P + 1), P = e^(rate largest), and (1 - e^(-rate (largest + s)))/(1 - 1/P):
        # by e^-x only, so that nothing overflows.
        spread = np.logaddexp(0.0, -rate * shifts) / rate - np.logaddexp(0.0, -rate * largest) / rate
        share = np.expm1(-rate * (largest + shifts)) / math.expm1(-rate * largest)
    p, inside = math.exp(-rate), -math.expm1(-rate)  # (1 - p would lose the digits of a small rate)
    tails = kernels.largest_tails(
        np.exp(-rate * np.arange(span + 1)), inside / (1.0 + p), 1.0 / (1.0 + p), spread, share, smallest, largest, coarse, levels
    )
    tails = np.minimum(1.0, tails * (1.0 + 1e-12))
    tails[:, 0] = 1.0
    outer, inner = (tails - np.column_stack([tails[:, 1:], np.zeros(2)])).tolist()
    return tuple(outer), tuple(inner)


def level_steps(span: int) -> int:
    """How many steps of the noise rate make a level."""
    return math.ceil((span + 1) / MAX_LEVELS)


@theorem("metricshuffle", "one law for all pairs of an axis")
def displacement_laws(spans: Steps, rate: float, low: Steps, high: Steps) -> list[BlanketLaw]:
    """Laws that bound all pairs of cells whose displacement on each axis lies between `low` and `high` (in cells).

    Statement: K_x(y) = c(y) e^(-rate |x-y|) on each axis, independently; w(y) = min_x K_x(y). Let P = e^(rate high) on an axis,
    and write a pair as (K_a, K_b) = l0 (P, 1) + l1 (1, P), l0, l1 >= 0. With q = (K_a + K_b)/w P/(P+1) the vector (K_a, K_b)/w
    lies on the segment from q (1, 1/P) to q (1/P, 1), so w at that vector is, with the same mean, l0 P/q at the first and
    l1 P/q at the second end: larger in convex order. So is a larger q with less mass and the rest at 0. Hence one distribution
    of q that dominates those under l0 of every pair, and one for l1, make one law for all of them. Mirror images have l0 and
    l1 exchanged, so a may be the outer one of a and b. G of a pair of cells is linear in the vector of one axis when the other
    is held fixed, so the axes may be replaced one after the other, and (1/n) E[(G_1 + .. + G_n)_+], being convex, only grows.
    On two axes a may be the outer one on both, or on one only: two laws.
    Conditions: 0 <= low <= high <= spans on each axis, high > 0 on one, rate > 0, spans up to 4096.
    Numerics: q is rounded up to whole levels, the blanket lowered by 1e-8 per level; tails of q are raised by 1e-12.
    Reference: this docstring; the identity is `delta_bracket`'s.
    """
    axes = [_axis_levels(*axis, rate, level_steps(max(spans))) for axis in zip(spans, low, high, strict=True)]
    laws = [_product_law(axes, rate * level_steps(max(spans)), [rate * last for last in high])]
    if len(spans) == 2 and all(high):
        laws.append(_product_law([axes[0], axes[1][::-1]], rate * level_steps(max(spans)), [rate * last for last in high]))
    return laws


def _axis_levels(span: int, low: int, high: int, rate: float, coarse: int) -> tuple[Floats, Floats]:
    """The shares of an axis, levels rounded up to the longer axis's."""
    places = -(-np.arange(len(_levels(span, rate, low, high)[0])) * level_steps(span) // coarse)
    first, second = (np.bincount(places, own).astype(np.float64) for own in _levels(span, rate, low, high))
    return first, second


def _product_law(axes: list[tuple[Floats, Floats]], step: float, totals: list[float]) -> BlanketLaw:
    """The law of independent axes: all combinations of directions, ratios multiplied."""
    likely = [1.0 / (1.0 + math.exp(-total)) for total in totals]
    rare = [math.exp(-total) / (1.0 + math.exp(-total)) for total in totals]
    columns: list[tuple[Floats, Floats, Floats, Floats]] = []
    for signs in itertools.product((1, -1), repeat=len(axes)):
        parts = np.ones(1)
        for (outer, inner), sign in zip(axes, signs, strict=True):
            parts = np.convolve(parts, outer if sign > 0 else inner)
        ratios = np.exp(-step * np.arange(parts.size)) * max(0.0, 1.0 - LEVEL_SLACK * (1.0 + step))
        a = math.prod(likely[axis] if sign > 0 else rare[axis] for axis, sign in enumerate(signs))
        b = math.prod(rare[axis] if sign > 0 else likely[axis] for axis, sign in enumerate(signs))
        log_ratio = sum(sign * total for sign, total in zip(signs, totals, strict=True))
        excess = math.copysign(max(a, b) * math.expm1(-abs(log_ratio)), log_ratio)
        columns.append((math.prod(likely) * ratios * parts, a * parts, b * parts, excess * parts))
    mass, first, second, gap = (np.concatenate(column) for column in zip(*columns, strict=True))
    support = first + second > 0.0
    return BlanketLaw(mass[support], first[support], second[support], gap[support])


@dataclass(frozen=True)
class ShuffledGeometric(PrivacyProfile):
    """The reports of `users` people with clamped geometric noise on each axis, shuffled. Distances are in units of `cell` wide cells.

    `rate` is that of the noise per cell, the same on every axis; `spans` the largest cell index on each axis.
    """

    spans: Steps
    rate: float
    users: int
    cell: float = 1.0
    metric: Literal["euclidean", "manhattan"] = "euclidean"
    bound: str = "blanket"

    def __post_init__(self) -> None:
        checked_users(self.users)
        if not 1 <= len(self.spans) <= 2 or not all(1 <= span <= LARGEST_SPAN for span in self.spans):
            raise InputError(f"spans must be one or two whole numbers from 1 to {LARGEST_SPAN:,}, got {self.spans!r}.")
        if not (0.0 < self.rate < math.inf and 0.0 < self.cell < math.inf):
            raise InputError(f"rate and cell must be finite numbers > 0, got {self.rate!r} and {self.cell!r}.")

    def length(self, steps: Steps) -> float:
        """The distance of two cells so many cells apart on each axis, in units."""
        return self.cell * (math.hypot(*steps) if self.metric == "euclidean" else float(sum(steps)))

    def outermost(self, distance: float) -> list[Steps]:
        """Displacements within the distance, none of which lies within another."""
        reach = validate_distance(distance) * (1.0 + 1e-12)
        displacements: list[Steps] = []
        if len(self.spans) == 1:
            displacements = [(min(self.spans[0], math.floor(reach / self.cell)),)]
        else:
            for i in range(min(self.spans[0], math.floor(reach / self.cell)), -1, -1):
                inside = [j for j in range(self.spans[1] + 1) if self.length((i, j)) <= reach]
                if inside and not any(inside[-1] <= j for _, j in displacements):
                    displacements.append((i, inside[-1]))
        return [steps for steps in displacements if any(steps)]

    def pure(self, distance: float) -> float:
        """Log ratios add up over the axes."""
        return max((self.rate * sum(steps) for steps in self.outermost(distance)), default=0.0) * (1.0 + 4e-16)

    def _delta(self, epsilon: float, low: Steps, high: Steps) -> float:
        laws = displacement_laws(self.spans, self.rate, low, high)
        return max(delta_bracket(law, self.users, epsilon, relative=DELTA_TOLERANCE).upper for law in laws)

    def delta(self, epsilon: float, distance: float) -> float:
        """The largest over all displacements: blocks of them are looked into only where one law for the block says more."""
        epsilon, reach = checked_epsilon(epsilon), validate_distance(distance) * (1.0 + 1e-12)
        outer = self.outermost(distance)
        if not outer or epsilon >= self.pure(distance):
            return 0.0
        worst = max(self._delta(epsilon, steps, steps) for steps in outer)
        blocks = [((0,) * len(self.spans), self._box(outer))]
        while blocks:
            low, high = blocks.pop()
            if self.length(low) > reach or not any(high):
                continue
            bound = self._delta(epsilon, low, high)
            if bound > worst and low == high:
                worst = bound
            elif bound > worst:
                blocks += _halves(low, high)
        return min(1.0, worst)

    def epsilon(self, delta: float, distance: float) -> float:
        """The epsilon of the outermost displacements, raised until every displacement is certified."""
        delta, ceiling, outer = checked_delta(delta), self.pure(distance), self.outermost(distance)
        if delta == 0.0 or ceiling == 0.0:
            return ceiling
        laws = [law for steps in outer for law in displacement_laws(self.spans, self.rate, steps, steps)]
        start = max(epsilon_upper(law, self.users, delta) for law in laws)

        def certified(epsilon: float) -> bool:
            return self.covers(epsilon, delta, distance, "flat")

        return first_certified(certified, start, ceiling, step=1e-6, growth=8.0, failing=0.0, least=1e-12).passing

    def covers_at(self, epsilon: float, delta: float, distance: float) -> bool:
        return self.covers(epsilon, delta, distance, "flat")

    def covers(self, epsilon: float, delta: float, distance: float, shape: Shape = "linear") -> bool:
        """Certified displacement by displacement; one law may stand for a block of them at the epsilon of its nearest corner."""
        epsilon, delta, reach = checked_epsilon(epsilon), checked_delta(delta), validate_distance(distance)
        outer = self.outermost(reach)
        if not outer or (shape == "flat" and delta == 0.0):
            return self.pure(reach) <= epsilon * (1.0 + PURE_TOLERANCE)
        if delta == 0.0:
            corners = itertools.product(*(range(span + 1) for span in self._box(outer)))
            inside = [steps for steps in corners if any(steps) and self.length(steps) <= reach * (1.0 + 1e-12)]
            return all(self.rate * sum(steps) <= (1.0 + PURE_TOLERANCE) * epsilon * (self.length(steps) / reach) for steps in inside)
        slope = epsilon / reach * (1.0 - 1e-15)
        # (a length may be rounded to just beyond the distance)
        return self._covered((lambda _: epsilon) if shape == "flat" else (lambda length: slope * min(length, reach)), delta, reach)

    def nearly_covers(self, epsilon: float, delta: float, distance: float, shape: Shape = "linear") -> bool:
        """Necessary for `covers`, and cheap: the promise at the outermost displacements and, if it is linear, at single steps."""
        outer = self.outermost(distance)
        if shape == "linear":
            single = [steps for steps in itertools.product((0, 1), repeat=len(self.spans)) if any(steps)]
            outer = [*(steps for steps in single if self.length(steps) <= distance), *outer]
        return all(
            self._delta(epsilon * min(1.0, self.length(steps) / distance) if shape == "linear" else epsilon, steps, steps) <= delta
            for steps in outer
        )

    def _covered(self, allowed: Callable[[float], float], delta: float, distance: float) -> bool:
        outer = self.outermost(distance)
        if not all(self._delta(allowed(self.length(steps)), steps, steps) <= delta for steps in outer):
            return False
        blocks = [((0,) * len(self.spans), self._box(outer))]
        while blocks:
            low, high = blocks.pop()
            if self.length(low) > distance * (1.0 + 1e-12) or not any(high):
                continue
            # (allowed rises with the length, so the nearest corner of a block is allowed the least)
            if any(low) and self._delta(allowed(self.length(low)), low, high) <= delta:
                continue
            if low == high:
                return False
            blocks += _halves(low, high)
        return True

    def _box(self, outer: list[Steps]) -> Steps:
        return tuple(max(column) for column in zip(*outer, strict=True))


def _halves(low: Steps, high: Steps) -> list[tuple[Steps, Steps]]:
    """A block cut along its longer side; the farther half, which decides more often, is looked at first."""
    axis = max(range(len(low)), key=lambda place: high[place] - low[place])
    middle = (low[axis] + high[axis]) // 2
    return [(low, (*high[:axis], middle, *high[axis + 1 :])), ((*low[:axis], middle + 1, *low[axis + 1 :]), high)]
