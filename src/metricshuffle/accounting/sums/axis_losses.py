"""Two independent coordinates from the curves of one: the losses of a move along each axis on a grid, and their sum."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from metricshuffle.accounting.composition.loss_distribution import dominating_losses, grid_step
from metricshuffle.citations import theorem
from metricshuffle.numerics.types import Floats
from metricshuffle.privacy.profile import PrivacyProfile

# Losses on each side of 0; more of them give a sharper bound (the error falls with their square) that takes longer.
GRID_POINTS = 800
# A grid ends where the delta of the longest move along one axis is this part of the one that matters.
NEGLIGIBLE_FRACTION = 1e-5


@dataclass(frozen=True, eq=False)
class AxisLosses:
    """Moves of 0..reach cells along an axis: the losses i * step, |i| <= GRID_POINTS, with mass, and the curves at epsilons of the same
    grid."""

    step: float
    masses: Floats
    """Row d: the mass of the losses of a move of d cells, from the largest loss to the least."""
    infinite: Floats
    curves: Floats
    """Row d: upper bounds on the hockey-stick curve at the epsilons i * step, |i| <= 2 GRID_POINTS + 1."""

    @classmethod
    def of(cls, axis: PrivacyProfile, reach: int, epsilon: float, delta: float) -> AxisLosses:
        """For joint deltas of about `delta` at epsilons up to `epsilon`; `axis.curves` are about both directions of a move."""
        max_epsilon = _far(axis, reach, NEGLIGIBLE_FRACTION * delta)
        step = grid_step(max(max_epsilon, 1.01 * epsilon) / GRID_POINTS)
        sampled = np.minimum.accumulate(axis.curves(step * np.arange(GRID_POINTS + 1.0), reach), axis=1)
        laws = [dominating_losses(row, step) for row in sampled]
        # h(x) = (1 - x) + x h(1/x) on the left of 0, and no more than at the end of the grid beyond it. Both terms are positive: no
        # digit of a small sum is lost.
        index = np.minimum(np.arange(1, 2 * GRID_POINTS + 2), GRID_POINTS)
        losses = -step * np.arange(1, 2 * GRID_POINTS + 2)
        left = (np.exp(losses) * sampled[:, index] - np.expm1(losses))[:, ::-1] * (1.0 + 1e-14)
        curves = np.hstack([np.minimum(left, 1.0), sampled, np.repeat(sampled[:, -1:], GRID_POINTS + 1, axis=1)])
        return cls(step, np.array([law.masses[::-1] for law in laws]), np.array([law.infinite for law in laws]), curves)

    @theorem("metricshuffle", "Two coordinates from their loss distributions")
    def delta(self, epsilon: float, first: int, second: int) -> float:
        """Upper bound on the hockey-stick divergence of a move by (first, second) cells, the coordinates independent.

        Statement: (infinite mass of the first) + sum over its losses l of mass(l) h(epsilon - l), h the curve of the second.
        Conditions: the curves bound both directions of a move; epsilon at most the one the grid was made for.
        Numerics: h is convex in e^epsilon, so that between two points of the grid the chord lies above it; its weight is the same
        for all losses, because these are points of the grid too. Beyond the grid the value at its end is taken, which is larger.
        Reference: Fubini, with the first coordinate replaced by a dominating loss distribution (`loss_distribution.dominating_losses`).
        """
        whole = min(math.floor(epsilon / self.step), GRID_POINTS)
        share = min(max(math.expm1(epsilon - whole * self.step) / math.expm1(self.step) - 1e-9, 0.0), 1.0)
        middle = 2 * GRID_POINTS + 1 + whole
        mass, curve = self.masses[first], self.curves[second]
        at, above = (float(np.dot(mass, curve[middle + shift - GRID_POINTS : middle + shift + GRID_POINTS + 1])) for shift in (0, 1))
        return min(1.0, (float(self.infinite[first]) + (1.0 - share) * at + share * above) * (1.0 + 1e-12))


def _far(axis: PrivacyProfile, reach: int, negligible: float) -> float:
    """An epsilon at which the delta of a move of `reach` cells is about `negligible` (or its pure epsilon, or where it stops falling)."""
    max_epsilon = min(axis.pure(reach), 600.0)
    negligible = max(negligible, 1.001 * axis.delta(max_epsilon, reach))
    for _ in range(8):
        grid = max_epsilon / 32.0 * np.arange(1.0, 33.0)
        small = np.flatnonzero(axis.curve(grid, reach) <= negligible)
        if not len(small) or grid[small[0]] > max_epsilon / 4.0:
            return float(grid[small[0]]) if len(small) else max_epsilon
        max_epsilon = float(grid[small[0]])
    return max_epsilon
