"""Many small moves, one after the other, as a flow: how far a test's power gets from its false alarms.

F(a) = the largest probability under P of a test that has probability a under Q. If every move obeys F(a) <= a + s G(a) for
one concave G and its own s, a chain of moves obeys F(a) <= phi_T(a), the flow of da/dt = G(a) for the time T = sum of s.
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

LARGEST_EXPONENT = 500.0  # delta falls in epsilon: beyond, the value here is used
MAX_LINES = 4096
MAX_TANGENTS = 400
MIN_TANGENT_GAP = 1e-9  # tangents to a clock are not drawn closer together than this fraction of the distance


class FlowBound(NamedTuple):
    """An upper bound on delta, the false alarms a and the power phi(a) where it is attained, and the slopes of G on the way."""

    delta: float
    start: float
    end: float
    steepest: float
    flattest: float


@dataclass(frozen=True, eq=False)
class LineFlow:
    """The flow of da/dt = G(a) = min over lines of (intercept + slope a), a >= 0. Some line has slope 0, none falls."""

    intercepts: Floats
    slopes: Floats
    breaks: Floats

    @classmethod
    def of(cls, intercepts: ArrayLike, slopes: ArrayLike) -> LineFlow:
        """Lines in any order; those that are nowhere the lowest are dropped."""
        from metricshuffle.accounting.user_items import _flow_kernels as kernels

        height, slope = np.array(intercepts, dtype=np.float64), np.array(slopes, dtype=np.float64)
        if height.ndim != 1 or height.shape != slope.shape or not 1 <= height.size <= MAX_LINES:
            raise InputError(f"lines need one intercept per slope, 1 to {MAX_LINES} of them, got {height.shape} and {slope.shape}.")
        if not (np.isfinite(height).all() and np.isfinite(slope).all() and height.min() >= 0.0 and slope.min() == 0.0):
            raise InputError("lines need finite intercepts >= 0 and finite slopes >= 0, one of which is 0.")
        order = np.lexsort((height, -slope))
        return cls(*kernels.envelope(height[order], slope[order]))

    @theorem("metricshuffle", "flow of concave lines")
    def reached(self, start: float, time: float) -> float:
        """phi_time(start), rounded up.

        Statement: on the line (c, k) the time from a to b is log((c + k b)/(c + k a))/k, (b - a)/c if k = 0.
        Proof: integrate da/(c + k a). Conditions: start, time >= 0, finite.
        Numerics: log1p and expm1; each line passed costs at most 16 units of rounding of the time, by which the time is enlarged.
        Reference: this docstring.
        """
        from metricshuffle.accounting.user_items import _flow_kernels as kernels

        if not (0.0 <= start < math.inf and 0.0 <= time < math.inf):
            raise InputError(f"start and time must be finite numbers >= 0, got {start!r} and {time!r}.")
        return float(kernels.path(self.intercepts, self.slopes, self.breaks, float(start), float(time))[0])

    @theorem("metricshuffle", "divergence after a flow")
    def delta(self, time: float, epsilon: float) -> FlowBound:
        """Upper bound on the supremum over a >= 0 of phi_time(a) - e^epsilon a.

        Statement: if F(a) <= a + s_i G(a) for the i-th of several moves, in terms of that move's own pair, and the s_i sum to
        at most `time`, then the hockey-stick divergence of the two ends at epsilon is at most this supremum.
        Proof: a test with probability a under the last law has at most F_1(F_2(..(a))) under the first one. G does not fall, so
        a + s G(a) <= phi_s(a), which grows in a; flows add up. Divergence = sup of F(a) - e^epsilon a over a in [0, 1].
        Conditions: every move obeys that bound with these lines. epsilon >= 0; beyond 500 the value at 500, which is larger.
        Numerics: phi is concave, log phi'(a) = integral of G' along the way, which falls in a. Bisection on it, in log a down to
        1e-300 (no floor is taken for granted: what lies below is bounded by the tangent), and phi's tangent at every point visited
        bounds the supremum between points that are certainly too steep and too flat; those are told apart with a relative margin
        of 1e-11 for rounding. A result that is not a number raises NotCertified.
        Reference: this docstring.
        """
        from metricshuffle.accounting.user_items import _flow_kernels as kernels

        epsilon = min(checked_epsilon(epsilon), LARGEST_EXPONENT)
        if not 0.0 <= time < math.inf:
            raise InputError(f"time must be a finite number >= 0, got {time!r}.")
        if time == 0.0:
            return FlowBound(0.0, 0.0, 0.0, float(self.slopes[0]), float(self.slopes[0]))
        supremum, start, end, first, last = kernels.worst(self.intercepts, self.slopes, self.breaks, float(time), epsilon)
        if not supremum >= 0.0:  # the supremum is at least phi(0) >= 0
            raise NotCertified(f"the flow for the time {time!r} at epsilon {epsilon!r} gave {supremum!r}; please report this as a bug.")
        return FlowBound(float(supremum) * (1.0 + 1e-12), start, end, float(self.slopes[first]), float(self.slopes[last]))


@dataclass(frozen=True)
class DistanceWeight:
    """The time a user's move takes: items * s(w) for a mean distance w of the items, s concave, s(0) = 0. Either form of s:

    `rate`: s(w) = tanh(rate w/2). `knots`: linear between the (w, s) given, (0, 0) understood, constant beyond the last.
    """

    items: int
    rate: float = 0.0
    knots: tuple[tuple[float, float], ...] = ()

    def __post_init__(self) -> None:
        steps = ((0.0, 0.0), *self.knots)
        slopes = [(t - s) / (w - v) if w > v else math.nan for (v, s), (w, t) in pairwise(steps)]
        concave = all(now <= before * (1.0 + 1e-12) for before, now in pairwise(slopes))
        if not (concave and all(0.0 <= slope < math.inf for slope in slopes)):
            raise InputError(f"the knots of a clock must be those of a growing concave function, got {self.knots!r}.")
        if not (0.0 < self.rate < math.inf or self.knots):
            raise InputError(f"a clock needs a finite rate > 0 or knots, got rate {self.rate!r}.")

    def tangent(self, at: float) -> tuple[float, float]:
        """(value, slope) there, of the time."""
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
        """The time for the mean distance `at`, rounded up."""
        return round_up(self.tangent(at)[0], 32)


@dataclass(frozen=True)
class Certificate:
    """What was checked: delta <= `delta` at the ends of intervals that cover every distance up to `distance` (unit: the diameter)."""

    kept: bool
    distance: float
    delta: float
    ends: tuple[tuple[float, float, float, float], ...]
    """(distance, time, epsilon, delta) of every check, in order of the distance."""
    bound: str = "flow"

    @property
    def worst(self) -> tuple[float, float]:
        """(delta, distance) of the largest delta among the checks; (0, 0) if nothing had to be checked."""
        return max(((delta, at) for at, _, _, delta in self.ends), default=(0.0, 0.0))

    @property
    def intervals(self) -> tuple[tuple[float, float], ...]:
        """The distances, piece by piece: on each of them the time was bounded by a straight line."""
        edges = [0.0, *(at for at, *_ in self.ends)]
        return tuple(pairwise(edges)) if self.kept else ()


@theorem("metricshuffle", "every distance from the ends of intervals")
def certificate(
    delta_at: Callable[[float, float], float], clock: DistanceWeight, rate: float, delta: float, distance: float = 1.0, bound: str = "flow"
) -> Certificate:
    """Whether delta(w) = sup_a phi_T(w)(a) - e^(rate w) a is at most `delta` for every real w in (0, distance], T(w) = clock(w).

    Statement: if T is linear and does not fall on [u, v], then delta(w) <= max(delta(u), delta(v)) for u <= w <= v.
    Proof: fix b > 0 and let a(w) = b e^(-rate w), V(w) = phi_T(w)(a(w)) - b. As phi'(a) = G(phi(a))/G(a),
    V' = phi'(a) (T' G(a) - rate a). When w grows, a falls and G(a)/a grows (G is concave and G(0) >= 0), so that V falls first and
    grows then: V(w) <= max(V(u), V(v)). b = 0: phi_T(0) grows with T. Take the supremum over b. QED
    A concave T lies below each of its tangents, so the tangent at v covers the distances between the points where it is
    exchanged for the next ones; there, and at `distance` itself, delta is checked with the larger of the two. At 0 it is 0. In
    particular, a T proportional to w needs a check at `distance` only.
    Conditions: `delta_at(time, epsilon)` is `LineFlow.delta` of one flow or of a smaller one; T concave, T(0) = 0.
    Numerics: starts with the tangents at 0 and `distance`. Where a check fails, the exact T decides: if it fails too, that is the
    answer, otherwise its tangent is added. Times are rounded up, epsilons down. What cannot be decided is not kept.
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
        return answer(all(checked(at, clock.time(at)) for at, _ in reversed(clock.knots) if at < distance))
    open_pieces = [(0.0, distance)]
    for _ in range(MAX_TANGENTS):
        if not open_pieces:
            return answer(True)
        low, high = open_pieces.pop()
        at, time = _tangent_crossing(clock, low, high)
        if checked(at, time):
            continue
        if high - low < MIN_TANGENT_GAP * distance or not low < at < high or not checked(at, clock.time(at)):
            return answer(False)
        del seen[at]
        open_pieces += [(low, at), (at, high)]
    return answer(False)


def _tangent_crossing(clock: DistanceWeight, low: float, high: float) -> tuple[float, float]:
    """Where the tangents at low and high meet, or a point nearby, and the larger of the two there, rounded up."""
    (first, steep), (second, flat) = clock.tangent(low), clock.tangent(high)
    gap = steep - flat
    at = low + ((second - first) - flat * (high - low)) / gap if gap > 0.0 else math.nan
    if not low < at < high:
        at = 0.5 * (low + high)
    slack = 32.0 * ROUNDOFF * (second + steep * (high - low))
    return at, max(first + steep * (at - low), second - flat * (high - at)) + slack
