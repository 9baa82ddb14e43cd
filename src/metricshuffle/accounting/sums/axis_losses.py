"""Joint bound for two independent coordinates from the privacy curves of one axis.

planar_noise.py uses it. The privacy losses of a move along each axis are discretised on a grid and
added. The curve of a move is its hockey-stick divergence as a function of epsilon.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from metricshuffle.accounting.composition.loss_distribution import dominating_losses, grid_step
from metricshuffle.citations import theorem
from metricshuffle.numerics.types import Floats
from metricshuffle.privacy.profile import PrivacyProfile

# Losses on each side of 0; more losses are slower and sharper (the error is inverse to the square
# of their number).
GRID_POINTS = 800
# A grid ends where the delta of the longest move along one axis is this fraction of the target.
NEGLIGIBLE_FRACTION = 1e-5


@dataclass(frozen=True, eq=False)
class AxisLosses:
    """Loss distributions and privacy curves of moves of 0..reach cells along one axis.

    Losses are i * step, |i| <= GRID_POINTS; the curves are at epsilons of the same grid.
    """

    step: float
    masses: Floats
    """Row d: masses of the losses of a move of d cells, from the largest loss to the smallest."""
    infinite: Floats
    curves: Floats
    """Row d: upper bounds on the hockey-stick curve at i * step, |i| <= 2 GRID_POINTS + 1."""

    @classmethod
    def of(cls, axis: PrivacyProfile, reach: int, epsilon: float, delta: float) -> AxisLosses:
        """Build the losses for joint deltas of about `delta` at epsilons up to `epsilon`.

        `axis.curves` must bound both directions of a move.
        """
        max_epsilon = _far(axis, reach, NEGLIGIBLE_FRACTION * delta)
        step = grid_step(max(max_epsilon, 1.01 * epsilon) / GRID_POINTS)
        sampled = np.minimum.accumulate(
            axis.curves(step * np.arange(GRID_POINTS + 1.0), reach), axis=1
        )
        laws = [dominating_losses(row, step) for row in sampled]
        # Let h be the curve as a function of x = e^epsilon. For epsilon < 0 it is h(x) = (1 - x) +
        # x h(1/x), where both terms are positive, so no digit of a small sum is lost. Beyond the
        # grid h is at most its value at the end of the grid.
        index = np.minimum(np.arange(1, 2 * GRID_POINTS + 2), GRID_POINTS)
        losses = -step * np.arange(1, 2 * GRID_POINTS + 2)
        left = (np.exp(losses) * sampled[:, index] - np.expm1(losses))[:, ::-1] * (1.0 + 1e-14)
        curves = np.hstack(
            [np.minimum(left, 1.0), sampled, np.repeat(sampled[:, -1:], GRID_POINTS + 1, axis=1)]
        )
        return cls(
            step,
            np.array([law.masses[::-1] for law in laws]),
            np.array([law.infinite for law in laws]),
            curves,
        )

    @theorem("metricshuffle", "Two coordinates from their loss distributions")
    def delta(self, epsilon: float, first: int, second: int) -> float:
        """Upper bound on the hockey-stick divergence of a move by (first, second) cells.

        Statement: with independent coordinates, the divergence is at most the infinite mass of the
        first coordinate + sum over its losses l of mass(l) h(epsilon - l), where h(epsilon) is the
        curve of the second coordinate.
        Conditions: the coordinates are independent; the curves bound both directions of a move;
        epsilon is at most that for which the grid was made.
        Numerics: h is convex in e^epsilon, so between two points of the grid the chord lies above
        it. The weight of the chord's ends is the same for all losses, because the losses are points
        of the grid too. Beyond the grid the value at its end is taken, which is larger.
        Reference: Fubini, with the first coordinate replaced by a dominating loss distribution
        (`loss_distribution.dominating_losses`).
        """
        whole = min(math.floor(epsilon / self.step), GRID_POINTS)
        share = min(
            max(math.expm1(epsilon - whole * self.step) / math.expm1(self.step) - 1e-9, 0.0), 1.0
        )
        middle = 2 * GRID_POINTS + 1 + whole
        mass = self.masses[first]
        curve = self.curves[second]
        at, above = (
            float(
                np.dot(mass, curve[middle + shift - GRID_POINTS : middle + shift + GRID_POINTS + 1])
            )
            for shift in (0, 1)
        )
        return min(
            1.0, (float(self.infinite[first]) + (1.0 - share) * at + share * above) * (1.0 + 1e-12)
        )


def _far(axis: PrivacyProfile, reach: int, negligible: float) -> float:
    """An epsilon at which the delta of a move of `reach` cells is about `negligible`.

    If delta stays larger: the pure epsilon of the move, or where delta stops decreasing.
    """
    max_epsilon = min(axis.pure(reach), 600.0)
    negligible = max(negligible, 1.001 * axis.delta(max_epsilon, reach))
    for _ in range(8):
        grid = max_epsilon / 32.0 * np.arange(1.0, 33.0)
        small = np.flatnonzero(axis.curve(grid, reach) <= negligible)
        if not len(small) or grid[small[0]] > max_epsilon / 4.0:
            return float(grid[small[0]]) if len(small) else max_epsilon
        max_epsilon = float(grid[small[0]])
    return max_epsilon
