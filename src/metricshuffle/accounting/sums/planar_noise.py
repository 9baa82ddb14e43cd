"""Joint profile of two coordinates with independent noise, and a per-axis bound for long moves.

Sums of places on a grid use it (protocols/sum_accounts.py). A displacement (i, j) is a move by i
cells along one axis and j along the other.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import pairwise

from metricshuffle.accounting.sums.additive_noise import AdditiveNoise
from metricshuffle.accounting.sums.axis_losses import AxisLosses
from metricshuffle.citations import theorem
from metricshuffle.errors import ConditionError
from metricshuffle.noise.symmetric_pmf import SymmetricLaw
from metricshuffle.privacy.profile import (
    PURE_TOLERANCE,
    PrivacyProfile,
    Shape,
    checked_delta,
    checked_epsilon,
    log_excess,
    validate_distance,
)

# Up to this many cells every displacement is verified (about pi r^2 / 8 of them), in blocks where
# their bound suffices.
JOINT_RADIUS = 200
BLOCK_CELLS = 16
# The omitted part of a joint sum is this fraction of the target delta.
NEGLIGIBLE_FRACTION = 1e-13


@lru_cache(maxsize=8)
def displacements(radius: float) -> tuple[tuple[int, int], ...]:
    """Every (i, j) with 0 <= j <= i and 0 < i^2 + j^2 <= radius^2, farthest first."""
    reach = math.floor(radius)
    square = radius * radius * (1.0 + 1e-12)
    points = [(i, j) for i in range(1, reach + 1) for j in range(i + 1) if i * i + j * j <= square]
    return tuple(sorted(points, key=lambda point: -(point[0] ** 2 + point[1] ** 2)))


@lru_cache(maxsize=8)
def outermost(radius: float) -> tuple[tuple[int, int], ...]:
    """Displacements that no other one dominates in both coordinates."""
    best: dict[int, int] = {}
    for i, j in displacements(radius):
        best[i] = max(best.get(i, 0), j)
    return tuple(
        (i, j) for i, j in best.items() if not any(a > i and b >= j for a, b in best.items())
    )


@theorem("metricshuffle", "Joint profile of two independent coordinates")
def planar_shift_delta(
    law: SymmetricLaw, epsilon: float, first: int, second: int, negligible: float = 0.0
) -> float:
    """Upper bound on sum_{z1,z2} max(0, f(z1)f(z2) - e^epsilon f(z1-d1) f(z2-d2)).

    f is the law of the noise of either coordinate, d1 = `first` and d2 = `second`.

    Statement: the sum equals sum_{z1} f(z1) delta_1(epsilon - log f(z1)/f(z1-d1); d2), with
    delta_1(epsilon; d) the one-dimensional profile (see `shift_delta`) extended to negative
    arguments.
    Conditions: f symmetric and log-concave.
    Numerics: one sweep; log ratios rounded up, masses outside the table added for both coordinates;
    where at most `negligible` remains at an end of the sweep, a bound on the rest is added instead.
    Reference: Fubini; the inner optimal set is a half-line that shrinks as z1 grows.
    """
    from metricshuffle.noise import _kernels

    if not law.log_concave:
        raise ConditionError(
            "The joint planar profile",
            "log-concave noise",
            "noise that is not known to be log-concave",
        )
    inside = _kernels.planar_delta(
        law.log_mass,
        law.log_error,
        law.mass,
        law.tail,
        law.cumulative_errors,
        epsilon,
        max(first, second),
        min(first, second),
        negligible,
    )
    total = inside + 2.0 * law.outside
    return min(1.0, total) if total == total else 1.0


@dataclass(frozen=True)
class PlanarNoise(PrivacyProfile):
    """Profile of sums of two coordinates with the same independent noise; Euclidean, in cells.

    Sums of cell indices move by integer vectors whose length is at most the total distance that
    people moved, so only lattice points matter. For one fixed epsilon the profile increases in each
    coordinate, so only the outermost lattice points matter; a linear guarantee is verified at every
    lattice point. (The profile increases for this reason: for symmetric unimodal noise and for
    counts of randomized bits, the deltas of one axis increase with the move, at every epsilon. So
    the pair of laws of a longer move dominates that of a shorter one in Blackwell's order, and the
    same holds for pairs of products.)

    Log-concave noise is accounted by one exact sweep for each displacement (`planar_shift_delta`).
    Any other axis, including one whose profile is itself a bound, is accounted by its losses on a
    grid (`AxisLosses`), which also verify log-concave noise wherever they suffice.
    """

    axis: PrivacyProfile
    bound: str = "exact, joint"
    _losses: dict[tuple[float, float, float], AxisLosses] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    @property
    def _swept(self) -> AdditiveNoise | None:
        """The axis if its noise is known to be log-concave, else None."""
        axis = self.axis
        return (
            axis
            if isinstance(axis, AdditiveNoise) and getattr(axis.noise, "log_concave", False)
            else None
        )

    def _axis_losses(self, epsilon: float, delta: float, radius: float) -> AxisLosses:
        key = (epsilon, delta, radius)
        cached = self._losses.get(key)
        if cached is None:
            cached = AxisLosses.of(self.axis, math.floor(radius), epsilon, delta)
            self._losses.clear()
            self._losses[key] = cached
        return cached

    def _joint(
        self, epsilon: float, delta: float, radius: float
    ) -> Callable[[float, int, int], float]:
        """Sharpest bound available at totals up to `epsilon`, for deltas of about `delta`."""
        if (swept := self._swept) is not None:
            law = swept.law_for(delta, radius)
            return lambda total, i, j: planar_shift_delta(
                law, total, i, j, NEGLIGIBLE_FRACTION * delta
            )
        return self._axis_losses(epsilon, delta, radius).delta

    def pure(self, distance: float) -> float:
        """Largest pure(i) + pure(j) of the axis over displacements within the distance, rounded up.

        It is attained, because the coordinates are independent. At long distances r, i + j <=
        sqrt(2) r, and the pure epsilon of one axis is concave in the distance d (linear for
        log-concave Polya noise, log f(0)/f(d) with a log-convex law f for shape < 1, infinite for
        bounded noise), so the balanced split of i + j is the worst.
        """
        radius = validate_distance(distance)
        if radius < 1.0:
            return 0.0
        if radius > JOINT_RADIUS:
            across = math.floor(radius * math.sqrt(2.0) * (1.0 + 1e-12))
            return math.nextafter(
                self.axis.pure(across // 2) + self.axis.pure(across - across // 2), math.inf
            )
        return math.nextafter(
            max(self.axis.pure(i) + self.axis.pure(j) for i, j in outermost(radius)), math.inf
        )

    def delta(self, epsilon: float, distance: float) -> float:
        target_delta = 1e-12
        while True:
            value = self.delta_near(target_delta, epsilon, distance)
            if value >= target_delta:
                return value
            target_delta = target_delta**3 if target_delta > 1e-80 else 0.0

    def delta_near(self, asked: float, epsilon: float, distance: float) -> float:
        epsilon = checked_epsilon(epsilon)
        radius = validate_distance(distance)
        if radius < 1.0 or math.inf > self.pure(radius) <= epsilon:
            return 0.0
        if radius > JOINT_RADIUS:
            return PerAxisProfile(self.axis).delta(epsilon, radius)
        joint = self._joint(epsilon, asked, radius)
        value = max(joint(epsilon, i, j) for i, j in outermost(radius))
        return (
            value
            if self._swept is not None
            else min(value, PerAxisProfile(self.axis).delta(epsilon, radius))
        )

    def covers(
        self, epsilon: float, delta: float, distance: float, shape: Shape = "linear"
    ) -> bool:
        epsilon = checked_epsilon(epsilon)
        radius = validate_distance(distance)
        if radius > JOINT_RADIUS:
            return PerAxisProfile(self.axis).covers(epsilon, delta, distance, shape)
        points = displacements(radius) if shape == "linear" else outermost(radius)
        if delta == 0.0:
            slack = 1.0 + PURE_TOLERANCE
            return all(
                self.axis.pure(i) + self.axis.pure(j)
                <= slack * (epsilon * math.hypot(i, j) / radius if shape == "linear" else epsilon)
                for i, j in points
            )
        if self._swept is None and PerAxisProfile(self.axis).covers(
            epsilon, delta, distance, shape
        ):
            # Losses between grid points are rounded up, which is loose where noise is nearly pure.
            return True
        joint = self._joint(epsilon, checked_delta(delta), radius)
        if shape == "flat" or radius < 1.0:
            return all(joint(epsilon, i, j) <= delta for i, j in points)

        def total(i: int, j: int) -> float:
            return math.nextafter(epsilon * (math.hypot(i, j) / radius), 0.0) * (1.0 - 4e-16)

        # If any displacement fails, the outermost ones usually do.
        if not all(joint(total(i, j), i, j) <= delta for i, j in outermost(radius)):
            return False
        return self._blocks_pass(
            total, joint, delta, self._axis_losses(epsilon, delta, radius), radius
        )

    def _blocks_pass(
        self,
        total: Callable[[int, int], float],
        joint: Callable[[float, int, int], float],
        delta: float,
        losses: AxisLosses,
        radius: float,
    ) -> bool:
        """Verify every displacement, in squares.

        A square passes if its far corner passes at the epsilon of its near corner, as the profile
        increases in both coordinates and decreases in epsilon. Squares that fail are quartered down
        to single displacements, which are evaluated more sharply.
        """
        reach = math.floor(radius)
        square = radius * radius * (1.0 + 1e-12)
        blocks = [
            (i, j, BLOCK_CELLS)
            for i in range(0, reach + 1, BLOCK_CELLS)
            for j in range(0, i + 1, BLOCK_CELLS)
        ]
        while blocks:
            i, j, side = blocks.pop()
            # No point of the square is within the radius, or in the half with j <= i (a square on
            # the diagonal may extend beyond it).
            if i * i + j * j > square or j >= i + side or (side == 1 and i == j == 0):
                continue
            corner = min(i + side - 1, reach), min(j + side - 1, reach)
            if losses.delta(total(i, j), *corner) <= delta or (
                side == 1 and joint(total(i, j), i, j) <= delta
            ):
                continue
            if side == 1:
                return False
            half = side // 2
            blocks += [(i + a, j + b, half) for a in (0, half) for b in (0, half)]
        return True

    def nearly_covers(
        self, epsilon: float, delta: float, distance: float, shape: Shape = "linear"
    ) -> bool:
        """Check a linear guarantee at the farthest cells in each direction only."""
        if delta == 0.0 or shape == "flat" or distance > JOINT_RADIUS:
            return super().nearly_covers(epsilon, delta, distance, shape)
        return self.shortfall(epsilon, delta, distance, shape) <= 0.0

    def shortfall(
        self, epsilon: float, delta: float, distance: float, shape: Shape = "linear"
    ) -> float:
        if distance > JOINT_RADIUS:
            return PerAxisProfile(self.axis).shortfall(epsilon, delta, distance, shape)
        if delta == 0.0 or shape == "flat":
            return super().shortfall(epsilon, delta, distance, shape)
        joint = self._joint(epsilon, delta, distance)
        slope = epsilon / distance
        excess = log_excess(
            [joint(slope * math.hypot(i, j), i, j) for i, j in outermost(distance)], delta
        )
        return (
            excess
            if self._swept is not None
            else min(excess, PerAxisProfile(self.axis).shortfall(epsilon, delta, distance, shape))
        )


@dataclass(frozen=True)
class PerAxisProfile(PrivacyProfile):
    """Two coordinates accounted one at a time: always valid, never tight.

    Statement: linear: if each axis keeps epsilon/sqrt(2) at the distance with delta/2, the pair
    keeps epsilon with delta, since |i| + |j| <= sqrt(2) * |(i, j)| for a displacement (i, j). Flat:
    for a split of the displacement and of epsilon, deltas add.
    Reference: composition of two independent coordinates with the deltas delta_1 and delta_2, delta
    = 1 - (1-delta_1)(1-delta_2) <= delta_1 + delta_2.
    """

    axis: PrivacyProfile
    bound: str = "per-axis"

    def pure(self, distance: float) -> float:
        return 2.0 * self.axis.pure(math.floor(validate_distance(distance)))

    def delta(self, epsilon: float, distance: float) -> float:
        """Largest sum of both axes' deltas over 16 slices of the quarter circle."""
        epsilon = checked_epsilon(epsilon)
        radius = validate_distance(distance)
        if radius < 1.0:
            return 0.0
        worst = 0.0
        edges = [radius * math.sin(math.pi / 4 * step / 16) for step in range(17)]
        for low, high in pairwise(edges):
            # second coordinate in (low, high], so the first is at most sqrt(r^2 - low^2)
            first = math.sqrt(max(radius * radius - low * low, 0.0)) * (1.0 + 1e-12)
            second = high * (1.0 + 1e-12)
            share = epsilon * second / (first + second)
            worst = max(
                worst,
                self.axis.delta((epsilon - share) * (1.0 - 1e-15), first)
                + self.axis.delta(share * (1.0 - 1e-15), second),
            )
        return min(1.0, worst * (1.0 + 1e-15))

    def covers(
        self, epsilon: float, delta: float, distance: float, shape: Shape = "linear"
    ) -> bool:
        if shape == "flat":
            return self.delta(epsilon, distance) <= delta
        return self.axis.covers(
            epsilon / math.sqrt(2.0) * (1.0 - 1e-15), 0.5 * delta, distance, "linear"
        )

    def nearly_covers(
        self, epsilon: float, delta: float, distance: float, shape: Shape = "linear"
    ) -> bool:
        if shape == "flat":
            return self.covers(epsilon, delta, distance, shape)
        return self.axis.nearly_covers(epsilon / math.sqrt(2.0), 0.5 * delta, distance)

    def shortfall(
        self, epsilon: float, delta: float, distance: float, shape: Shape = "linear"
    ) -> float:
        if shape == "flat" or delta == 0.0:
            return super().shortfall(epsilon, delta, distance, shape)
        return self.axis.shortfall(epsilon / math.sqrt(2.0), 0.5 * delta, distance)
