"""Two coordinates with independent noise: the joint profile, and the per-axis bound beyond it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise

from metricshuffle.accounting.sums.additive import AdditiveNoise
from metricshuffle.citations import theorem
from metricshuffle.errors import ConditionError
from metricshuffle.noise.law import SymmetricLaw
from metricshuffle.privacy.profile import PURE_TOLERANCE, PrivacyProfile, Shape, checked_delta, checked_distance, checked_epsilon

# Up to this many cells every displacement is verified one by one (about pi r^2 / 8 of them).
JOINT_RADIUS = 50


@lru_cache(maxsize=8)
def displacements(radius: float) -> tuple[tuple[int, int], ...]:
    """Every (i, j) with 0 <= j <= i and 0 < i^2 + j^2 <= radius^2, farthest first."""
    reach, square = math.floor(radius), radius * radius * (1.0 + 1e-12)
    points = [(i, j) for i in range(1, reach + 1) for j in range(i + 1) if i * i + j * j <= square]
    return tuple(sorted(points, key=lambda point: -(point[0] ** 2 + point[1] ** 2)))


@lru_cache(maxsize=8)
def outermost(radius: float) -> tuple[tuple[int, int], ...]:
    """The displacements not dominated in both coordinates by another one."""
    best: dict[int, int] = {}
    for i, j in displacements(radius):
        best[i] = max(best.get(i, 0), j)
    return tuple((i, j) for i, j in best.items() if not any(a > i and b >= j for a, b in best.items()))


@theorem("metricshuffle", "Joint profile of two independent coordinates")
def planar_shift_delta(law: SymmetricLaw, epsilon: float, first: int, second: int) -> float:
    """Upper bound on sum_{z1,z2} max(0, f(z1)f(z2) - e^epsilon f(z1-d1) f(z2-d2)).

    Statement: equals sum_{z1} f(z1) delta_1(epsilon - log f(z1)/f(z1-d1); d2), with delta_1 the one-dimensional
    profile extended to negative arguments.
    Conditions: f symmetric and log-concave.
    Numerics: one sweep; log ratios rounded up, masses outside the table added for both coordinates.
    Reference: Fubini; the inner optimal set is a half-line that shrinks as z1 grows.
    """
    from metricshuffle.noise import _kernels

    if not law.log_concave:
        raise ConditionError("The joint planar profile", "log-concave noise", "noise that is not known to be log-concave")
    inside = _kernels.planar_delta(
        law.log_mass, law.log_error, law.mass, law.tail, law.cumulative_errors, epsilon, max(first, second), min(first, second)
    )
    total = inside + 2.0 * law.outside
    return min(1.0, total) if total == total else 1.0


@dataclass(frozen=True)
class PlanarNoise(PrivacyProfile):
    """Sum of two coordinates, each with the same independent noise; distances are Euclidean, in cells.

    Sums of cell indices move by whole vectors whose length is at most the total distance people
    moved, so it is enough to look at lattice points. For one fixed epsilon the profile rises in
    each coordinate (symmetric unimodal noise), so only the outermost lattice points matter; a
    linear promise is checked at every lattice point.
    """

    axis: AdditiveNoise
    bound: str = "exact, joint"

    def pure(self, distance: float) -> float:
        """Largest pure(i) + pure(j) within the distance (attained by independent coordinates), rounded up.

        Far out: i + j <= sqrt(2) r, and the one-axis pure epsilon is concave in the distance (linear for log-concave
        Polya noise, log f(0)/f(d) with f log-convex for shape < 1, infinite for bounded noise), so the balanced split is the worst.
        """
        radius = checked_distance(distance)
        if radius < 1.0:
            return 0.0
        if radius > JOINT_RADIUS:
            across = math.floor(radius * math.sqrt(2.0) * (1.0 + 1e-12))
            return math.nextafter(self.axis.pure(across // 2) + self.axis.pure(across - across // 2), math.inf)
        return math.nextafter(max(self.axis.pure(i) + self.axis.pure(j) for i, j in outermost(radius)), math.inf)

    def delta(self, epsilon: float, distance: float) -> float:
        epsilon, radius = checked_epsilon(epsilon), checked_distance(distance)
        if radius < 1.0 or math.inf > self.pure(radius) <= epsilon:
            return 0.0
        if radius > JOINT_RADIUS:
            return PerAxis(self.axis).delta(epsilon, radius)
        asked = 1e-12
        while True:
            law = self.axis.law_for(asked, radius)
            value = max(planar_shift_delta(law, epsilon, i, j) for i, j in outermost(radius))
            if value >= asked or asked < 1e-250:
                return value
            asked = asked**3

    def covers(self, epsilon: float, delta: float, distance: float, shape: Shape = "linear") -> bool:
        epsilon, radius = checked_epsilon(epsilon), checked_distance(distance)
        if radius > JOINT_RADIUS:
            return PerAxis(self.axis).covers(epsilon, delta, distance, shape)
        points = displacements(radius) if shape == "linear" else outermost(radius)
        if delta == 0.0:
            slack = 1.0 + PURE_TOLERANCE
            return all(
                self.axis.pure(i) + self.axis.pure(j) <= slack * (epsilon * math.hypot(i, j) / radius if shape == "linear" else epsilon)
                for i, j in points
            )
        law = self.axis.law_for(checked_delta(delta), radius)
        for i, j in points:
            total = math.nextafter(epsilon * (math.hypot(i, j) / radius), 0.0) * (1.0 - 4e-16) if shape == "linear" else epsilon
            if planar_shift_delta(law, total, i, j) > delta:
                return False
        return True

    def nearly_covers(self, epsilon: float, delta: float, distance: float, shape: Shape = "linear") -> bool:
        """A linear promise at the farthest cells in each direction."""
        if delta == 0.0 or shape == "flat" or distance > JOINT_RADIUS:
            return super().nearly_covers(epsilon, delta, distance, shape)
        law, slope = self.axis.law_for(delta, distance), epsilon / distance
        return all(planar_shift_delta(law, slope * math.hypot(i, j), i, j) <= delta for i, j in outermost(distance))


@dataclass(frozen=True)
class PerAxis(PrivacyProfile):
    """Two coordinates accounted one at a time: always true, never tight.

    Statement: linear: if each axis keeps epsilon/sqrt(2) at the distance with delta/2, the pair keeps epsilon with delta,
    since |i| + |j| <= sqrt(2) * |(i, j)|. Flat: for a split of the displacement and of epsilon, deltas add.
    Reference: composition of two independent coordinates, delta = 1 - (1-delta_1)(1-delta_2) <= delta_1 + delta_2.
    """

    axis: PrivacyProfile
    bound: str = "per-axis"

    def pure(self, distance: float) -> float:
        return 2.0 * self.axis.pure(math.floor(checked_distance(distance)))

    def delta(self, epsilon: float, distance: float) -> float:
        """The worst over 16 slices of the quarter circle of the sum of both axes' deltas."""
        epsilon, radius = checked_epsilon(epsilon), checked_distance(distance)
        if radius < 1.0:
            return 0.0
        worst, edges = 0.0, [radius * math.sin(math.pi / 4 * step / 16) for step in range(17)]
        for low, high in pairwise(edges):
            # second coordinate in (low, high], so the first is at most sqrt(r^2 - low^2)
            first = math.sqrt(max(radius * radius - low * low, 0.0)) * (1.0 + 1e-12)
            second = high * (1.0 + 1e-12)
            share = epsilon * second / (first + second)
            worst = max(worst, self.axis.delta((epsilon - share) * (1.0 - 1e-15), first) + self.axis.delta(share * (1.0 - 1e-15), second))
        return min(1.0, worst * (1.0 + 1e-15))

    def covers(self, epsilon: float, delta: float, distance: float, shape: Shape = "linear") -> bool:
        if shape == "flat":
            return self.delta(epsilon, distance) <= delta
        return self.axis.covers(epsilon / math.sqrt(2.0) * (1.0 - 1e-15), 0.5 * delta, distance, "linear")

    def nearly_covers(self, epsilon: float, delta: float, distance: float, shape: Shape = "linear") -> bool:
        if shape == "flat":
            return self.covers(epsilon, delta, distance, shape)
        return self.axis.nearly_covers(epsilon / math.sqrt(2.0), 0.5 * delta, distance)
