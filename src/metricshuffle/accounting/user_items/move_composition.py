"""Composition of many small moves as a flow, which bounds a test's power by its false alarms.

single_move_bounds.py bounds one move of one item, this module all moves of one user's items
together, and item_reports.py makes a profile of the result.

Notation: P and Q are the laws of the reports before and after a move, in either order. F(a) is the
largest probability under P (power) of a test that has probability a under Q (false alarms). If
every move obeys F(a) <= a + s G(a) for one concave G and its own distance weight s, a chain of
moves obeys F(a) <= phi_T(a), where phi_T(a) is the point that the flow da/dt = G(a) reaches from a
after the time T = sum of s.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from metricshuffle.citations import theorem
from metricshuffle.errors import InputError, NotCertified
from metricshuffle.numerics.rounding import ROUNDOFF, round_down, round_up
from metricshuffle.numerics.types import Floats
from metricshuffle.privacy.profile import checked_epsilon

LARGEST_EXPONENT = 500.0  # for larger epsilons delta at this one is used, which is larger
MAX_LINES = 4096
MAX_TANGENTS = 400
GRID_RATIO = 1.1  # of neighbouring distances at which a weight is evaluated
MAX_GRID_POINTS = 1000
MIN_TANGENT_GAP = 1e-9  # smallest gap between two tangents, as a fraction of the distance


class FlowBound(NamedTuple):
    """Upper bound on delta, and where it is attained.

    `start` is the false-alarm probability a there, `end` the power phi(a); `steepest` and
    `flattest` are the slopes of G on the way.
    """

    delta: float
    start: float
    end: float
    steepest: float
    flattest: float


@dataclass(frozen=True, eq=False)
class LineFlow:
    """Flow phi of da/dt = G(a) = min over lines of (intercept + slope a), a >= 0.

    Some line has slope 0; no slope is negative.
    """

    intercepts: Floats
    slopes: Floats
    breaks: Floats

    @classmethod
    def of(cls, intercepts: ArrayLike, slopes: ArrayLike) -> LineFlow:
        """Build the flow from lines in any order; lines that are nowhere the lowest are dropped."""
        from metricshuffle.accounting.user_items import _flow_kernels as kernels

        height = np.array(intercepts, dtype=np.float64)
        slope = np.array(slopes, dtype=np.float64)
        if height.ndim != 1 or height.shape != slope.shape or not 1 <= height.size <= MAX_LINES:
            raise InputError(
                f"lines need one intercept per slope, 1 to {MAX_LINES} of them, got "
                f"{height.shape} and {slope.shape}."
            )
        if not (
            np.isfinite(height).all()
            and np.isfinite(slope).all()
            and height.min() >= 0.0
            and slope.min() == 0.0
        ):
            raise InputError(
                "lines need finite intercepts >= 0 and finite slopes >= 0, one of which is 0."
            )
        order = np.lexsort((height, -slope))
        return cls(*kernels.envelope(height[order], slope[order]))

    @theorem("metricshuffle", "flow of concave lines")
    def reached(self, start: float, time: float) -> float:
        """phi_time(start), rounded up.

        Statement: on a line with intercept c and slope k, the flow takes the time log((c + k b)/(c
        + k a))/k from a to b, or (b - a)/c if k = 0.
        Proof: integrate da/(c + k a).
        Conditions: start, time >= 0, finite.
        Numerics: log1p and expm1; each line passed adds an error of at most 16 roundings to the
        time, which is enlarged by that.
        Reference: this docstring.
        """
        from metricshuffle.accounting.user_items import _flow_kernels as kernels

        if not (0.0 <= start < math.inf and 0.0 <= time < math.inf):
            raise InputError(
                f"start and time must be finite numbers >= 0, got {start!r} and {time!r}."
            )
        return float(
            kernels.path(self.intercepts, self.slopes, self.breaks, float(start), float(time))[0]
        )

    @theorem("metricshuffle", "divergence after a flow")
    def delta(self, time: float, epsilon: float) -> FlowBound:
        """Upper bound on the supremum over a >= 0 of phi_time(a) - e^epsilon a.

        Statement: let F_i(a) be the largest power at false-alarm probability a between the two laws
        before and after the i-th of several moves. If F_i(a) <= a + s_i G(a) for every i, and the
        s_i sum to at most `time`, then the hockey-stick divergence at epsilon between the first and
        the last law is at most this supremum.
        Proof: a test with probability a under the last law has at most probability F_1(F_2(..(a)))
        under the first one. G does not decrease, so a + s G(a) <= phi_s(a), which increases in a;
        and flowing for s and then for s' is flowing for s + s'. The divergence is the supremum of
        F(a) - e^epsilon a over a in [0, 1].
        Conditions: every move obeys that bound with these lines. epsilon >= 0; for epsilon > 500
        the value at 500 is returned, which is larger.
        Numerics: phi is concave, and log phi'(a), the integral of G' along the way, decreases in a.
        The supremum is where log phi'(a) = epsilon, found by bisection in log a down to 1e-300 (no
        lower limit is assumed: the part below is bounded by the tangent). The tangent of phi at
        every point visited bounds the supremum between a point where phi is certainly too steep and
        one where it is certainly too flat; steep and flat are distinguished with a relative margin
        of 1e-11 for rounding. A NaN raises NotCertified.
        Reference: this docstring.
        """
        from metricshuffle.accounting.user_items import _flow_kernels as kernels

        epsilon = min(checked_epsilon(epsilon), LARGEST_EXPONENT)
        if not 0.0 <= time < math.inf:
            raise InputError(f"time must be a finite number >= 0, got {time!r}.")
        if time == 0.0:
            return FlowBound(0.0, 0.0, 0.0, float(self.slopes[0]), float(self.slopes[0]))
        supremum, start, end, first, last = kernels.worst(
            self.intercepts, self.slopes, self.breaks, float(time), epsilon
        )
        if not supremum >= 0.0:  # the supremum is at least phi(0) >= 0
            raise NotCertified(
                f"the flow for the time {time!r} at epsilon {epsilon!r} gave {supremum!r}; "
                "please report this as a bug."
            )
        return FlowBound(
            float(supremum) * (1.0 + 1e-12),
            start,
            end,
            float(self.slopes[first]),
            float(self.slopes[last]),
        )


@dataclass(frozen=True)
class DistanceWeight:
    """Time that a user's move takes: items * s(w) for a mean distance w of the items.

    The weight s is concave with s(0) = 0, in one of two forms. `rate`: s(w) = tanh(rate w/2).
    `knots`: linear between the points (w, s), starting at (0, 0), which is not listed, and constant
    beyond the last.
    """

    items: int
    rate: float = 0.0
    knots: tuple[tuple[float, float], ...] = ()

    def __post_init__(self) -> None:
        steps = ((0.0, 0.0), *self.knots)
        slopes = [(t - s) / (w - v) if w > v else math.nan for (v, s), (w, t) in pairwise(steps)]
        concave = all(now <= before * (1.0 + 1e-12) for before, now in pairwise(slopes))
        if not (concave and all(0.0 <= slope < math.inf for slope in slopes)):
            raise InputError(
                "the knots of a distance weight must define an increasing concave function, got "
                f"{self.knots!r}."
            )
        if not (0.0 < self.rate < math.inf or self.knots):
            raise InputError(
                f"a distance weight needs a finite rate > 0 or knots, got rate {self.rate!r}."
            )

    def tangent(self, at: float) -> tuple[float, float]:
        """(value, slope) of the time at a mean distance."""
        if not self.knots:
            there = math.tanh(0.5 * self.rate * at)
            return self.items * there, 0.5 * self.items * self.rate * (1.0 - there) * (1.0 + there)
        before = (0.0, 0.0)
        for knot in self.knots:
            if at < knot[0] * (1.0 - 1e-12):
                slope = (knot[1] - before[1]) / (knot[0] - before[0])
                return self.items * (before[1] + slope * (at - before[0])), self.items * slope
            before = knot
        return self.items * before[1], 0.0

    def time(self, at: float) -> float:
        """Time for the mean distance `at`, rounded up."""
        return round_up(self.tangent(at)[0], 32)


@theorem("metricshuffle", "concave bound of a distance weight")
def concave_weight(
    items: int, weight: Callable[[float], float], steepest: float, reach: float
) -> DistanceWeight:
    """Concave bound on items * h(w) for every w <= reach, from h = `weight` at a few distances.

    Statement: let h not decrease, h(w)/w not increase, and h(w) <= k w, k = `steepest`. Take
    distances u < v < .. up to `reach`. The least concave function above the points (0, 0), (h(u)/k,
    h(u)) for the smallest u, and (u h(v)/h(u), h(v)) for neighbours u < v, constant after the last
    point, is at least h(w) for every w up to `reach`.
    Proof: call this function H; it does not decrease. Each point for v lies at a distance of at
    most v, so H is at least h at every distance taken. Between neighbours, h(w) <= min(h(u) w/u,
    h(v)). The line h(u) w/u passes through (u, h(u)) and the point for v. At these points H is not
    below the line, so neither is it between them; beyond the point for v, H(w) >= h(v). Below the
    smallest u the same holds for k w and the first point. QED
    Conditions: values of `weight` may exceed those of such an h; a point whose distance would
    exceed v for that reason is put at v, which only raises H.
    Numerics: distances of points are rounded down. The grid is geometric and ends where h(w) is
    within 2 % of k w.
    Reference: this docstring.
    """
    places = [reach]
    weights = [weight(reach)]
    while weights[-1] < 0.98 * steepest * places[-1] and len(places) < MAX_GRID_POINTS:
        places.append(places[-1] / GRID_RATIO)
        weights.append(min(weight(places[-1]), weights[-1]))
    hull = [(0.0, 0.0), (min(places[-1], round_down(weights[-1] / steepest, 8)), weights[-1])]
    for at in range(len(places) - 2, -1, -1):
        x = min(places[at], round_down(places[at + 1] * (weights[at] / weights[at + 1]), 8))
        y = weights[at]
        while len(hull) > 1 and (x <= hull[-1][0] or _rises_above(hull[-2], hull[-1], (x, y))):
            hull.pop()
        hull.append((x, y))
    return DistanceWeight(items, knots=tuple(hull[1:]))


def _rises_above(
    first: tuple[float, float], second: tuple[float, float], third: tuple[float, float]
) -> bool:
    """Whether the line from the first to the third point passes above or through the second."""
    return (third[1] - first[1]) * (second[0] - first[0]) >= (second[1] - first[1]) * (
        third[0] - first[0]
    )


@dataclass(frozen=True)
class Certificate:
    """Checks of delta at the ends of intervals that cover all distances up to `distance`.

    `kept`: whether delta is certified to be at most `delta` at all these distances. Distances are
    in diameters.
    """

    kept: bool
    distance: float
    delta: float
    ends: tuple[tuple[float, float, float, float], ...]
    """(distance, time, epsilon, delta) of every check, in order of the distance."""
    bound: str = "flow"

    @property
    def worst(self) -> tuple[float, float]:
        """(delta, distance) of the largest delta among the checks; (0, 0) if there were none."""
        return max(((delta, at) for at, _, _, delta in self.ends), default=(0.0, 0.0))

    @property
    def intervals(self) -> tuple[tuple[float, float], ...]:
        """Intervals of distance on each of which the time was bounded by a straight line."""
        edges = [0.0, *(at for at, *_ in self.ends)]
        return tuple(pairwise(edges)) if self.kept else ()


@theorem("metricshuffle", "every distance from the ends of intervals")
def certificate(
    delta_at: Callable[[float, float], float],
    clock: DistanceWeight,
    rate: float,
    delta: float,
    distance: float = 1.0,
    bound: str = "flow",
) -> Certificate:
    """Check that delta(w) is at most `delta` for every real w in (0, distance].

    delta(w) = sup_a phi_T(w)(a) - e^(rate w) a, where T(w) = clock.time(w) and phi is the flow of
    the module docstring.

    Statement: if T is linear and does not decrease on [u, v], then delta(w) <= max(delta(u),
    delta(v)) for u <= w <= v.
    Proof: fix b > 0 and let a(w) = b e^(-rate w), V(w) = phi_T(w)(a(w)) - b. As phi'(a) =
    G(phi(a))/G(a), V' = phi'(a) (T' G(a) - rate a). When w grows, a decreases and G(a)/a increases
    (G is concave and G(0) >= 0), so V first decreases and then increases: V(w) <= max(V(u), V(v)).
    For b = 0, phi_T(0) increases with T. Take the supremum over b. QED. A concave T lies below each
    of its tangents. So T is replaced by the smallest of several tangents, each of which is used up
    to the point where it meets the next one; delta is checked at these points, with the larger of
    the two tangents, and at `distance` itself. At w = 0 delta is 0. In particular, a T proportional
    to w needs a check at `distance` only.
    Conditions: `delta_at(time, epsilon)` is `LineFlow.delta` of one flow or of a smaller one; T
    concave, T(0) = 0.
    Numerics: starts with the tangents at 0 and `distance`. Where a check fails, it is repeated with
    the exact T: if that fails too, the answer is no, otherwise the tangent at that point is added.
    Times are rounded up, epsilons down. An undecided check counts as failed.
    Reference: this docstring.
    """
    seen: dict[float, tuple[float, float, float, float]] = {}

    def checked(at: float, time: float) -> bool:
        epsilon = round_down(rate * at, 4)
        delta_there = delta_at(time, epsilon)
        seen[at] = (at, time, epsilon, delta_there)
        return delta_there <= delta

    def answer(holds: bool) -> Certificate:
        return Certificate(holds, distance, delta, tuple(seen[at] for at in sorted(seen)), bound)

    if not checked(distance, clock.time(distance)):
        return answer(False)
    if clock.knots:
        return answer(
            all(checked(at, clock.time(at)) for at, _ in reversed(clock.knots) if at < distance)
        )
    open_pieces = [(0.0, distance)]
    for _ in range(MAX_TANGENTS):
        if not open_pieces:
            return answer(True)
        low, high = open_pieces.pop()
        at, time = _tangent_crossing(clock, low, high)
        if checked(at, time):
            continue
        if (
            high - low < MIN_TANGENT_GAP * distance
            or not low < at < high
            or not checked(at, clock.time(at))
        ):
            return answer(False)
        del seen[at]
        open_pieces += [(low, at), (at, high)]
    return answer(False)


def _tangent_crossing(clock: DistanceWeight, low: float, high: float) -> tuple[float, float]:
    """About where the tangents at low and high cross, and their larger value there, rounded up."""
    (first, steep), (second, flat) = clock.tangent(low), clock.tangent(high)
    gap = steep - flat
    at = low + ((second - first) - flat * (high - low)) / gap if gap > 0.0 else math.nan
    if not low < at < high:
        at = 0.5 * (low + high)
    slack = 32.0 * ROUNDOFF * (second + steep * (high - low))
    return at, max(first + steep * (at - low), second - flat * (high - at)) + slack
