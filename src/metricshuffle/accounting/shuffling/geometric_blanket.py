"""Shuffled reports with clamped geometric noise on a line or a grid: one law per displacement.

Evaluating every pair of cells is infeasible on a grid. All pairs (x, x + shift) of an axis are
dominated by one law with two directions, so a displacement of a grid needs at most two laws,
whatever the size of the grid. `ShuffledGeometric` is the privacy profile made of these laws; they
are evaluated by `blanket_bound`.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

import numpy as np

from metricshuffle.accounting.shuffling.blanket_bound import (
    checked_users,
    delta_bracket,
    epsilon_upper,
)
from metricshuffle.accounting.shuffling.blanket_law import BlanketLaw
from metricshuffle.citations import theorem
from metricshuffle.errors import InputError, argument
from metricshuffle.numerics.certified_search import first_certified
from metricshuffle.numerics.types import Floats
from metricshuffle.privacy.profile import (
    PURE_TOLERANCE,
    PrivacyProfile,
    Shape,
    checked_delta,
    checked_epsilon,
    validate_distance,
)

Steps = tuple[int, ...]

MAX_LEVELS = 256
LARGEST_SPAN = 1024  # the work is cubic in the span: seconds here, minutes beyond
DELTA_TOLERANCE = 1e-3  # by how much a delta may exceed the blanket expression
# A level is not rounded up if it exceeds a whole number by at most a billionth; to allow for that,
# the blanket is lowered by this fraction times 1 + the step of a level.
LEVEL_SLACK = 1e-8


@lru_cache(maxsize=4096)
def _levels(
    span: int, rate: float, smallest: int, largest: int
) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Return the shares of both directions at the ratios q = e^(step k), k = 0, 1, ...

    A share is the probability of the ratio q under the law (P+1) l0 of the first direction, or
    (P+1) l1 of the second; P, q, l0 and l1 are those of `displacement_laws`, and step is the rate
    times `level_steps`. The shares dominate those of every pair of an axis at a shift in
    smallest..largest.
    """
    from metricshuffle.accounting.shuffling import _geometric_blanket_kernels as kernels

    coarse = level_steps(span)
    # log q <= rate (span + largest/2), so no level is cut off
    levels = math.ceil((span + 1 + largest / 2) / coarse) + 2
    shifts = np.arange(-largest, largest + 1)
    if largest == 0:
        spread = np.zeros(1)
        share = np.ones(1)
    else:
        # With P = e^(rate largest), `spread` is log((1 + e^(-rate s)) P/(P + 1))/rate, and `share`
        # is (1 - e^(-rate (largest + s)))/(1 - 1/P), for every s in `shifts`; both with negative
        # exponents only, so that nothing overflows.
        spread = (
            np.logaddexp(0.0, -rate * shifts) / rate - np.logaddexp(0.0, -rate * largest) / rate
        )
        share = np.expm1(-rate * (largest + shifts)) / math.expm1(-rate * largest)
    p = math.exp(-rate)
    inside = -math.expm1(-rate)  # 1 - p would lose the digits of a small rate
    tails = kernels.largest_tails(
        np.exp(-rate * np.arange(span + 1)),
        inside / (1.0 + p),
        1.0 / (1.0 + p),
        spread,
        share,
        smallest,
        largest,
        coarse,
        levels,
    )
    tails = np.minimum(1.0, tails * (1.0 + 1e-12))
    tails[:, 0] = 1.0
    outer, inner = (tails - np.column_stack([tails[:, 1:], np.zeros(2)])).tolist()
    return tuple(outer), tuple(inner)


def level_steps(span: int) -> int:
    """Return how many multiples of the rate of the noise make a level."""
    return math.ceil((span + 1) / MAX_LEVELS)


@theorem("metricshuffle", "one law for all pairs of an axis")
def displacement_laws(spans: Steps, rate: float, low: Steps, high: Steps) -> list[BlanketLaw]:
    """Return laws that bound all pairs of cells with a displacement between `low` and `high`.

    Displacements are in cells, per axis.

    Statement: on each axis, independently, the law of the report y of cell x is K_x(y) = c(y)
    e^(-rate |x-y|), c(y) a factor that does not depend on x; w(y) = min_x K_x(y). Let P = e^(rate
    high) on an axis, and write a pair as (K_a, K_b) = l0 (P, 1) + l1 (1, P), l0, l1 >= 0. With q =
    (K_a + K_b)/w P/(P+1) the vector (K_a, K_b)/w lies on the segment from q (1, 1/P) to q (1/P, 1).
    So the mass w at that vector is replaced, with the same mean, by the mass l0 P/q at the first
    end and l1 P/q at the second end of the segment, which is larger in convex order. Replacing q by
    a larger value with proportionally less mass, and moving the rest of the mass to 0, is also
    larger in convex order. Hence take one distribution of q that stochastically dominates the
    distributions of q under l0 of every pair, and another one for l1: together they make one law
    that bounds all pairs. Mirror images have l0 and l1 exchanged, so a may be assumed to be the
    outer one of a and b. On two axes, G of a pair of cells (see `blanket_law`) is linear in the
    vector of one axis when the vector of the other axis is fixed. So the axes may be replaced one
    after the other, and (1/n) E[(G_1 + .. + G_n)_+], being convex, only grows. On two axes a may be
    the outer one on both axes, or on one only: this gives two laws.
    Conditions: 0 <= low <= high <= spans on each axis, high > 0 on one, rate > 0, spans up to 4096.
    Numerics: q is rounded up to whole levels, the blanket lowered by 1e-8 per level; tails of q are
    raised by 1e-12.
    Reference: this docstring; the identity is `delta_bracket`'s.
    """
    axes = [
        _axis_levels(*axis, rate, level_steps(max(spans)))
        for axis in zip(spans, low, high, strict=True)
    ]
    laws = [_product_law(axes, rate * level_steps(max(spans)), [rate * last for last in high])]
    if len(spans) == 2 and all(high):
        laws.append(
            _product_law(
                [axes[0], axes[1][::-1]],
                rate * level_steps(max(spans)),
                [rate * last for last in high],
            )
        )
    return laws


def _axis_levels(span: int, low: int, high: int, rate: float, coarse: int) -> tuple[Floats, Floats]:
    """Return the shares of an axis, with levels rounded up to those of the longer axis."""
    places = -(-np.arange(len(_levels(span, rate, low, high)[0])) * level_steps(span) // coarse)
    first, second = (
        np.bincount(places, own).astype(np.float64) for own in _levels(span, rate, low, high)
    )
    return first, second


def _product_law(axes: list[tuple[Floats, Floats]], step: float, totals: list[float]) -> BlanketLaw:
    """Return the law of independent axes: all combinations of directions, ratios q multiplied."""
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
    """Shuffled reports of `users` people with clamped geometric noise on each axis.

    `rate` is the rate of the noise per cell, the same on every axis; `spans` are the largest cell
    indices on each axis. Distances are in units; a cell is `cell` units wide.
    """

    spans: Steps
    rate: float
    users: int
    cell: float = 1.0
    metric: Literal["euclidean", "manhattan"] = "euclidean"
    bound: str = "blanket"

    def __post_init__(self) -> None:
        checked_users(self.users)
        if not 1 <= len(self.spans) <= 2 or not all(
            1 <= span <= LARGEST_SPAN for span in self.spans
        ):
            raise InputError(
                f"spans must be one or two whole numbers from 1 to {LARGEST_SPAN:,}, got "
                f"{self.spans!r}."
            )
        if not (0.0 < self.rate < math.inf and 0.0 < self.cell < math.inf):
            raise InputError(
                f"{argument('rate')} and {argument('cell')} must be finite numbers > 0, "
                f"got {self.rate!r} and {self.cell!r}."
            )

    def length(self, steps: Steps) -> float:
        """Return the distance, in units, of two cells that are `steps` cells apart on each axis."""
        return self.cell * (math.hypot(*steps) if self.metric == "euclidean" else float(sum(steps)))

    def outermost(self, distance: float) -> list[Steps]:
        """Return the displacements within the distance that do not lie within another one.

        A displacement lies within another one if it is at most as long on every axis.
        """
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
        """Local epsilon at that distance; log ratios add up over the axes."""
        return max((self.rate * sum(steps) for steps in self.outermost(distance)), default=0.0) * (
            1.0 + 4e-16
        )

    def _delta(self, epsilon: float, low: Steps, high: Steps) -> float:
        laws = displacement_laws(self.spans, self.rate, low, high)
        return max(
            delta_bracket(law, self.users, epsilon, relative=DELTA_TOLERANCE).upper for law in laws
        )

    def delta(self, epsilon: float, distance: float) -> float:
        """Return the largest delta over all displacements.

        A block of displacements is subdivided only if the delta of one law for the whole block
        exceeds the largest delta so far.
        """
        epsilon = checked_epsilon(epsilon)
        reach = validate_distance(distance) * (1.0 + 1e-12)
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
        """Epsilon of the outermost displacements, raised until every displacement is certified."""
        delta = checked_delta(delta)
        ceiling = self.pure(distance)
        outer = self.outermost(distance)
        if delta == 0.0 or ceiling == 0.0:
            return ceiling
        laws = [
            law for steps in outer for law in displacement_laws(self.spans, self.rate, steps, steps)
        ]
        start = max(epsilon_upper(law, self.users, delta) for law in laws)

        def certified(epsilon: float) -> bool:
            return self.covers(epsilon, delta, distance, "flat")

        return first_certified(
            certified, start, ceiling, step=1e-6, growth=8.0, failing=0.0, least=1e-12
        ).passing

    def covers_at(self, epsilon: float, delta: float, distance: float) -> bool:
        return self.covers(epsilon, delta, distance, "flat")

    def covers(
        self, epsilon: float, delta: float, distance: float, shape: Shape = "linear"
    ) -> bool:
        """Return whether every displacement is certified.

        One law may certify a block of displacements at the epsilon allowed at the nearest corner of
        the block.
        """
        epsilon = checked_epsilon(epsilon)
        delta = checked_delta(delta)
        reach = validate_distance(distance)
        outer = self.outermost(reach)
        if not outer or (shape == "flat" and delta == 0.0):
            return self.pure(reach) <= epsilon * (1.0 + PURE_TOLERANCE)
        if delta == 0.0:
            corners = itertools.product(*(range(span + 1) for span in self._box(outer)))
            inside = [
                steps
                for steps in corners
                if any(steps) and self.length(steps) <= reach * (1.0 + 1e-12)
            ]
            return all(
                self.rate * sum(steps)
                <= (1.0 + PURE_TOLERANCE) * epsilon * (self.length(steps) / reach)
                for steps in inside
            )
        slope = epsilon / reach * (1.0 - 1e-15)
        # A length may be rounded to just beyond the distance.
        return self._covered(
            (lambda _: epsilon) if shape == "flat" else (lambda length: slope * min(length, reach)),
            delta,
            reach,
        )

    def nearly_covers(
        self, epsilon: float, delta: float, distance: float, shape: Shape = "linear"
    ) -> bool:
        """Check a cheap necessary condition for `covers`.

        The target is checked at the outermost displacements and, if it is linear, at single steps.
        """
        outer = self.outermost(distance)
        if shape == "linear":
            single = [
                steps for steps in itertools.product((0, 1), repeat=len(self.spans)) if any(steps)
            ]
            outer = [*(steps for steps in single if self.length(steps) <= distance), *outer]
        return all(
            self._delta(
                epsilon * min(1.0, self.length(steps) / distance) if shape == "linear" else epsilon,
                steps,
                steps,
            )
            <= delta
            for steps in outer
        )

    def _covered(self, allowed: Callable[[float], float], delta: float, distance: float) -> bool:
        outer = self.outermost(distance)
        if not all(
            self._delta(allowed(self.length(steps)), steps, steps) <= delta for steps in outer
        ):
            return False
        blocks = [((0,) * len(self.spans), self._box(outer))]
        while blocks:
            low, high = blocks.pop()
            if self.length(low) > distance * (1.0 + 1e-12) or not any(high):
                continue
            # `allowed` increases with the length, so it is smallest at the nearest corner of a
            # block.
            if any(low) and self._delta(allowed(self.length(low)), low, high) <= delta:
                continue
            if low == high:
                return False
            blocks += _halves(low, high)
        return True

    def _box(self, outer: list[Steps]) -> Steps:
        return tuple(max(column) for column in zip(*outer, strict=True))


def _halves(low: Steps, high: Steps) -> list[tuple[Steps, Steps]]:
    """Split a block along its longer side.

    The farther half, which decides more often, comes last, so that it is evaluated first.
    """
    axis = max(range(len(low)), key=lambda place: high[place] - low[place])
    middle = (low[axis] + high[axis]) // 2
    return [
        (low, (*high[:axis], middle, *high[axis + 1 :])),
        ((*low[:axis], middle + 1, *low[axis + 1 :]), high),
    ]
