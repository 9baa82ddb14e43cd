"""Lines and grids whose neighbours are all equally far apart: what a move of one step costs holds for every distance."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from metricshuffle.errors import InputError
from metricshuffle.numerics.rounding import ROUNDOFF, round_up
from metricshuffle.spaces import Absolute, Euclidean, Grid, Integers, Manhattan, Scaled, Space

DISTANCE_TOLERANCE = 1e-12
"""By so much of itself a distance may fall short of a pair of points that still counts as within it."""
MAX_SIDE = 2**17  # cells; longer sides would cost more digits than are left


@dataclass(frozen=True)
class Lattice:
    """The points of a line, or of a grid row by row: `sides` points along each axis, neighbours `step` apart.

    `straight`: other points are as far apart as the straight line between them; otherwise as the steps along the axes, which is a
    path metric: no pair costs more for its distance than the dearest step does.
    """

    sides: tuple[int, ...]
    step: float
    straight: bool

    @classmethod
    def of(cls, space: Space) -> Lattice | None:
        """That of Integers or a Grid with the usual metrics, scaled or not; None for all other spaces."""
        metric, step = space.metric, 1.0
        while isinstance(metric, Scaled) and type(metric).pairwise is Scaled.pairwise:
            step *= metric.factor
            metric = metric.metric
        measured, domain = type(metric).pairwise, space.domain
        in_plane = measured in (Manhattan.pairwise, Euclidean.pairwise)
        if type(domain) is Integers and (in_plane or measured is Absolute.pairwise):
            lattice = cls((domain.high - domain.low + 1,), step, straight=False)
        elif type(domain) is Grid and in_plane and max(domain.width, domain.height) <= MAX_SIDE:
            lattice = cls((domain.width, domain.height), step * domain.cell, straight=measured is Euclidean.pairwise)
        else:  # also for somebody's own kinds of them, whose points may lie elsewhere
            return None
        return lattice if 1e-290 < lattice.step < 1e290 else None

    @property
    def side(self) -> float:
        """How many points an axis has, on average: two sides count with their geometric mean."""
        return float(math.prod(self.sides) ** (1.0 / len(self.sides)))

    @property
    def _roundings(self) -> int:
        """How many units roundoff a distance in floating point may fall short by: cells of a grid lie at rounded multiples of a step."""
        return 32 + (4 * max(self.sides) if len(self.sides) > 1 else 0)

    def per_unit(self, per_step: float) -> float:
        """What moves cost per unit of distance, if they cost `per_step` for the length of a step: rounded up."""
        return round_up(per_step / self.step, self._roundings)

    def steps_within(self, distance: float) -> int:
        """The most steps along the axes that two points within a distance are apart; what is too short by rounding counts."""
        if not distance >= 0.0:
            raise InputError(f"distance must be a number >= 0, got {distance!r}.")
        reach = distance / self.step * (1.0 + DISTANCE_TOLERANCE + self._roundings * ROUNDOFF)
        longest = [side - 1 for side in self.sides]
        if not self.straight:
            return int(min(reach, sum(longest)))
        across = np.arange(int(min(reach, longest[0])) + 1, dtype=np.float64)
        up = np.floor(np.sqrt(np.maximum(min(reach, 2.0 * sum(longest)) ** 2 - across**2, 0.0)) * (1.0 + DISTANCE_TOLERANCE))
        return int(np.max(across + np.minimum(up, longest[1])))
