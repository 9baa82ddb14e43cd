"""Profiles of a sum with additive integer noise: exact, clamped, quantised.

The randomizers and protocols of sums use them. Distances are whole steps (integers, or grid cells).
The observer sees S = sum x_i + Z, where x_i is the value of person i and Z the total noise, of law
f(z) = P(Z = z). The profile depends on the data only through the net change of the sum, and moves
of any number of people by d in total change the sum by at most d: additive noise protects several
people jointly, up to the stated distance.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from metricshuffle.citations import theorem
from metricshuffle.errors import InputError, argument
from metricshuffle.noise.symmetric_pmf import LARGEST_RADIUS, SymmetricLaw
from metricshuffle.numerics.certified_search import first_certified
from metricshuffle.numerics.rounding import ROUNDOFF
from metricshuffle.numerics.types import Floats
from metricshuffle.privacy.profile import (
    FARTHEST_EPSILON,
    PrivacyProfile,
    Shape,
    checked_delta,
    checked_epsilon,
    validate_distance,
)

# The tail that is cut off (and added to delta) lies this far, in log, below the requested delta.
TAIL_MARGIN = 40.0
# Doubles end at e^-708; tails below e^DEEPEST_LOG_TAIL consist of masses that underflow.
DEEPEST_LOG_TAIL = -690.0


class SummedNoise(Protocol):
    """Symmetric unimodal integer noise that can tabulate its law."""

    def law(self, log_tail: float, reach: int = 0) -> SymmetricLaw: ...

    def pure(self, distance: int) -> float: ...


@theorem("metricshuffle", "Hockey-stick of a symmetric integer law and its shift")
def shift_delta(law: SymmetricLaw, epsilon: float, steps: int) -> float:
    """Upper bound on delta(epsilon; d) = sum_z max(0, f(z) - e^epsilon f(z-d)).

    f is the given law and d = `steps`.

    Statement: as written; by symmetry of f both directions agree. If f is log-concave, f(z)/f(z-d)
    is nonincreasing and the sum runs over a half-line, found by bisection; otherwise positive parts
    are summed.
    Conditions: f symmetric; log-concavity is claimed by the law (proved by the code that built it),
    never inferred from numbers.
    Numerics: masses enter as upper bounds and shifted masses as lower bounds; the mass outside the
    table is added.
    Reference: definition of approximate d-privacy (Chatzikokolakis13) applied to additive noise.
    """
    from metricshuffle.noise import _kernels

    if law.log_concave:
        epsilons = np.array([epsilon])
        inside = float(
            _kernels.half_line_deltas(
                law.log_mass,
                law.log_error,
                law.mass,
                law.tail,
                law.cumulative_errors,
                epsilons,
                steps,
            )[0]
        )
    else:
        inside = _kernels.positive_part_delta(law.log_mass, law.log_error, law.mass, epsilon, steps)
    total = inside + law.outside
    return min(1.0, total) if total == total else 1.0


def shift_curve(law: SymmetricLaw, epsilons: Floats, steps: int) -> Floats:
    """Upper bounds as `shift_delta` at many epsilons.

    Numerics: without log-concavity the terms f(z) - e^epsilon f(z-d), with f(z) and f(z-d) changed
    by their errors as in `shift_delta`, are sorted by the epsilon at which they vanish. The
    positive terms are summed as a difference of two sums, whose rounding error is added.
    """
    from metricshuffle.noise import _kernels

    if law.log_concave:
        inside = _kernels.half_line_deltas(
            law.log_mass, law.log_error, law.mass, law.tail, law.cumulative_errors, epsilons, steps
        )
    else:
        inside = _sorted_terms(law, epsilons, steps)
    total = inside + law.outside
    return np.where(np.isnan(total), 1.0, np.minimum(total, 1.0))


def _sorted_terms(law: SymmetricLaw, epsilons: Floats, steps: int) -> Floats:
    here = np.abs(np.arange(-law.radius, law.radius + 1))
    there = np.abs(np.arange(-law.radius, law.radius + 1) - steps)
    known = there <= law.radius
    there = np.where(known, there, 0)
    gained = law.mass[here] * np.exp(law.log_error[here]) * (1.0 + 16.0 * ROUNDOFF)
    paid = np.where(
        known, law.mass[there] * np.exp(-law.log_error[there]) * (1.0 - 16.0 * ROUNDOFF), 0.0
    )
    with np.errstate(divide="ignore", invalid="ignore"):
        vanishes = np.where(gained > 0.0, np.log(gained) - np.log(paid), -math.inf)
    order = np.argsort(vanishes)[::-1]
    more = np.concatenate([[0.0], np.cumsum(gained[order])])
    less = np.concatenate([[0.0], np.cumsum(paid[order])])
    # The error of the logarithms is below 4e-13: terms within it of vanishing are included, and
    # what they may subtract is added back.
    count = np.searchsorted(-vanishes[order], 4e-13 - np.asarray(epsilons), side="left")
    # A smaller factor than e^epsilon, where that would overflow, gives a larger bound.
    factor = np.exp(np.minimum(epsilons, 700.0)) * (1.0 - 8.0 * ROUNDOFF)
    slack = (2.0 * len(more) + 64.0) * ROUNDOFF + 5e-13
    return np.asarray(np.maximum(more[count] - factor * less[count], 0.0) + slack * more[count])


@dataclass(frozen=True)
class AdditiveNoise(PrivacyProfile):
    """Exact profile of x + Z for a symmetric unimodal noise Z."""

    noise: SummedNoise
    bound: str = "exact"
    _kept: dict[float, tuple[int, SymmetricLaw]] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    def pure(self, distance: float) -> float:
        return self.noise.pure(math.floor(validate_distance(distance)))

    def law_for(self, delta: float, distance: float) -> SymmetricLaw:
        """Law of the noise, tabulated far enough for deltas of about `delta` at that distance."""
        # Delta and distance are rounded outwards, so that nearly equal ones share one table.
        log_tail = (
            max(math.floor(math.log(delta) - TAIL_MARGIN), DEEPEST_LOG_TAIL)
            if delta > 0.0
            else DEEPEST_LOG_TAIL
        )
        steps = math.floor(validate_distance(distance))
        reach = max(64, 1 << max(steps - 1, 1).bit_length())
        reach = reach if reach < LARGEST_RADIUS // 4 else steps
        cached = self._kept.get(log_tail)
        if cached is None or cached[0] < reach:
            cached = reach, self.noise.law(log_tail, reach)
            self._kept.clear()
            self._kept[log_tail] = cached
        return cached[1]

    def curve(self, epsilons: Floats, distance: float) -> Floats:
        steps = math.floor(validate_distance(distance))
        deltas = np.zeros(len(epsilons))
        epsilons = np.minimum(epsilons, FARTHEST_EPSILON)
        pending = (
            np.flatnonzero(epsilons < self.pure(steps)) if steps else np.zeros(0, dtype=np.int64)
        )
        target_delta = 1e-12
        while len(pending):
            deltas[pending] = shift_curve(
                self.law_for(target_delta, steps), epsilons[pending], steps
            )
            if target_delta == 0.0 or math.log(target_delta) - TAIL_MARGIN <= DEEPEST_LOG_TAIL:
                break
            pending = pending[deltas[pending] < target_delta]
            target_delta = target_delta**3
        return deltas

    def delta(self, epsilon: float, distance: float) -> float:
        epsilon = checked_epsilon(epsilon)
        steps = math.floor(validate_distance(distance))
        target_delta = 1e-12
        while True:
            value = self._delta_for(target_delta, epsilon, steps)
            if value >= target_delta or math.log(target_delta) - TAIL_MARGIN <= DEEPEST_LOG_TAIL:
                return value
            target_delta = target_delta**3

    def delta_near(self, asked: float, epsilon: float, distance: float) -> float:
        return self._delta_for(
            asked, checked_epsilon(epsilon), math.floor(validate_distance(distance))
        )

    def epsilon(self, delta: float, distance: float) -> float:
        delta = checked_delta(delta)
        smallest = math.exp(DEEPEST_LOG_TAIL + TAIL_MARGIN)
        if 0.0 < delta < smallest:
            raise InputError(
                f"{argument('delta', delta)} is below {smallest:.0e}; ask for delta = 0 "
                "(the pure epsilon)."
            )
        return super().epsilon(delta, distance)

    def _delta_for(self, target_delta: float, epsilon: float, steps: int) -> float:
        if steps == 0 or math.inf > self.pure(steps) <= epsilon:
            return 0.0
        return shift_delta(self.law_for(target_delta, steps), epsilon, steps)


@dataclass(frozen=True)
class Clamped(PrivacyProfile):
    """Profile of reports clamp(x_i + N_i, -c, k+c): truncated noise plus the clamping probability.

    x_i in 0..k is the value of person i, N_i its noise, and c the largest noise that is never
    clamped.

    Statement: let H be the event that all |N_i| <= c, h = P(H) and q the law of N given |N| <= c.
    Then delta(epsilon; d) <= (1 - h) + h delta_trunc(epsilon; d), delta_trunc the profile of the
    sum of honest draws from q. Pairs of data sets with net change 0 also cost 1 - h.
    Conditions: the honest N_i are independent.
    Reference: proved by conditioning on H; using the untruncated profile instead would need (1 +
    e^epsilon)(1-h).
    """

    truncated: PrivacyProfile
    clamp_probability: float
    bound: str = "exact, clamped"

    def delta(self, epsilon: float, distance: float) -> float:
        if validate_distance(distance) == 0.0:
            return 0.0
        return min(
            1.0, (self.clamp_probability + self.truncated.delta(epsilon, distance)) * (1.0 + 1e-15)
        )

    def covers(
        self, epsilon: float, delta: float, distance: float, shape: Shape = "linear"
    ) -> bool:
        # The truncated profile knows the possible distances (whole steps, or lattice points of a
        # plane).
        remaining_delta = math.nextafter(delta - self.clamp_probability, 0.0)
        return remaining_delta > 0.0 and self.truncated.covers(
            epsilon, remaining_delta, distance, shape
        )

    def covers_at(self, epsilon: float, delta: float, distance: float) -> bool:
        remaining_delta = math.nextafter(delta - self.clamp_probability, 0.0)
        return remaining_delta > 0.0 and self.truncated.covers_at(
            epsilon, remaining_delta, distance
        )


@dataclass(frozen=True)
class QuantisedProfile(PrivacyProfile):
    """Profile of values rounded at random to multiples of `granularity` steps, then noised.

    The noise is in units of `granularity` steps, called cells.

    Statement: let Q = `granularity`, delta(epsilon; i) the profile of the noise at a distance of i
    cells, and delta_Q(epsilon; d) that of one person moving by d = jQ + r steps, 0 <= r < Q, w =
    r/Q. For every s >= 0 with (1-w) e^(js) + w e^((j+1)s) <= e^epsilon, delta_Q(epsilon; d) <= max(
    (1-w) D_j + w D_{j+1}, e^epsilon ((1-w) e^(-js) D_j + w e^(-(j+1)s) D_{j+1}) ), where D_i =
    delta(i s; i). Also delta_Q(epsilon; d) <= (1-w) delta(epsilon; j) + w delta(epsilon; j+1). For
    pure noise of slope e1 per cell, the pure epsilon is j e1 + log(1 + w (e^e1 - 1)).
    Conditions: the value x is a whole number of steps; ONE person moves (for several people moving
    together the formula is false).
    Numerics: s solves the condition with equality and is rounded down.
    Reference: the pair of mixtures is piecewise affine in the offset of x within its cell, and the
    hockey-stick divergence is jointly convex, so an x on the edge of a cell is worst, in one
    direction or the other: M = (1-w) f_j + w f_{j+1} against f_0, where f_i is the law of the noise
    shifted by i cells. One direction: M - e^epsilon f_0 <= (1-w) (f_j - e^(js) f_0) + w (f_{j+1} -
    e^((j+1)s) f_0). For the other, f_0 - e^epsilon M is split likewise, f_0 into parts (1-w)
    e^(epsilon-js) and w e^(epsilon-(j+1)s), whose sum is at least 1 (Jensen). The case j = 0 is
    advanced joint convexity (Balle, Barthe, Gaboardi 2018, Theorem 2).
    """

    coarse: PrivacyProfile
    granularity: int
    bound: str = "exact, rounded first"

    def __post_init__(self) -> None:
        if self.granularity != int(self.granularity) or self.granularity < 1:
            raise InputError(
                f"{argument('granularity')} must be a whole number >= 1, got {self.granularity!r}."
            )

    def delta(self, epsilon: float, distance: float) -> float:
        epsilon = checked_epsilon(epsilon)
        cells, remainder = divmod(math.floor(validate_distance(distance)), self.granularity)
        if remainder == 0:
            return self.coarse.delta(epsilon, cells) if cells else 0.0
        weight = remainder / self.granularity
        if epsilon > 700.0:  # where e^epsilon overflows the simpler bound is as good
            inner_delta = self.coarse.delta(epsilon, cells) if cells else 0.0
            return min(
                1.0,
                ((1.0 - weight) * inner_delta + weight * self.coarse.delta(epsilon, cells + 1))
                * (1.0 + 1e-15),
            )
        slope = _mixed_slope(epsilon, cells, weight)
        inner_delta = self.coarse.delta(cells * slope, cells) if cells else 0.0
        outer_delta = self.coarse.delta((cells + 1) * slope, cells + 1)
        up = (1.0 - weight) * inner_delta + weight * outer_delta
        down = (1.0 - weight) * math.exp(epsilon - cells * slope) * inner_delta + weight * math.exp(
            epsilon - (cells + 1) * slope
        ) * outer_delta
        value = max(up, down)
        if cells and value > 0.0:
            value = min(
                value,
                (1.0 - weight) * self.coarse.delta(epsilon, cells)
                + weight * self.coarse.delta(epsilon, cells + 1),
            )
        return min(1.0, value * (1.0 + 1e-14 + 1e-15 * epsilon))

    def pure(self, distance: float) -> float:
        cells, remainder = divmod(math.floor(validate_distance(distance)), self.granularity)
        if remainder == 0:
            return self.coarse.pure(cells)
        single = self.coarse.pure(1)
        up = self.coarse.pure(cells + 1)
        # Valid for every noise: the pure epsilon of one more cell, and the formula for slope
        # `single`.
        if single > 700.0:
            return up
        return min(
            up,
            (single * cells + math.log1p(remainder / self.granularity * math.expm1(single)))
            * (1.0 + 1e-15),
        )


def _mixed_slope(epsilon: float, cells: int, weight: float) -> float:
    """Largest s found with j s + log(1 + w (e^s - 1)) <= epsilon, rounded down.

    j = `cells` and w = `weight`, as in `QuantisedProfile`.
    """

    def total(slope: float) -> float:
        if slope > 30.0:
            return cells * slope + slope + math.log(weight + (1.0 - weight) * math.exp(-slope))
        return cells * slope + math.log1p(weight * math.expm1(slope))

    # The left side is convex in s and at least (j + w) s, so Newton's steps from there decrease to
    # the solution.
    slope = epsilon / (cells + weight)
    for _ in range(60):
        ratio = weight / (weight + (1.0 - weight) * math.exp(-slope))
        step = (total(slope) - epsilon) / (cells + ratio)
        slope -= step
        if abs(step) <= 1e-16 * slope:
            break
    below = first_certified(
        lambda s: total(s) <= epsilon, slope, 0.0, step=-1e-15, failing=math.inf
    )
    return below.passing * (1.0 - 1e-15)


@theorem("metricshuffle", "Slope of coarse noise that hides fine steps")
def coarse_slope(epsilon: float, granularity: int) -> float:
    """Largest slope per coarse cell whose quantised noise keeps `epsilon` per fine step.

    Statement: the slope is e1 = log(1 + Q (e^epsilon - 1)), Q = `granularity`; tight at a move of
    one step. It is NOT Q * epsilon.
    Conditions: pure noise of slope e1 per cell, values that are whole numbers of steps, one person.
    Numerics: rounded down.
    Reference: for a move of r steps, 1 + (r/Q)(e^e1 - 1) <= e^(r epsilon) by Bernoulli's
    inequality, equality at r = 1.
    """
    return math.nextafter(math.log1p(granularity * math.expm1(epsilon)) * (1.0 - 1e-15), 0.0)
