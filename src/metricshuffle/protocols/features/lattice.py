"""Lines and grids with equally spaced neighbours.

For features of such points, the cost of a move of one step bounds the cost of moves at every
distance.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from metricshuffle.errors import InputError, argument
from metricshuffle.numerics.rounding import ROUNDOFF, round_up
from metricshuffle.spaces import Absolute, Euclidean, Grid, Integers, Manhattan, Scaled, Space

DISTANCE_TOLERANCE = 1e-12
"""Points whose distance is larger than a limit by at most this fraction are within the limit."""
MAX_SIDE = 2**17  # max cells along a side; distances on longer sides lose too many digits


@dataclass(frozen=True)
class Lattice:
    """The points of a line, or of a grid row by row, with neighbours `step` apart.

    `sides` are the numbers of points along each axis. If `straight`, distances are straight lines.
    Otherwise distances are numbers of steps along the axes times `step`, which is a path metric: no
    pair of points costs more per unit of its distance than the most expensive step.
    """

    sides: tuple[int, ...]
    step: float
    straight: bool

    @classmethod
    def of(cls, space: Space) -> Lattice | None:
        """Lattice of Integers or a Grid with a usual metric, scaled or not; None for others."""
        metric = space.metric
        step = 1.0
        while isinstance(metric, Scaled) and type(metric).pairwise is Scaled.pairwise:
            step *= metric.factor
            metric = metric.metric
        measured = type(metric).pairwise
        domain = space.domain
        in_plane = measured in (Manhattan.pairwise, Euclidean.pairwise)
        if type(domain) is Integers and (in_plane or measured is Absolute.pairwise):
            lattice = cls((domain.high - domain.low + 1,), step, straight=False)
        elif type(domain) is Grid and in_plane and max(domain.width, domain.height) <= MAX_SIDE:
            lattice = cls(
                (domain.width, domain.height),
                step * domain.cell,
                straight=measured is Euclidean.pairwise,
            )
        else:  # includes subclasses, whose points may lie elsewhere
            return None
        return lattice if 1e-290 < lattice.step < 1e290 else None

    @property
    def side(self) -> float:
        """Number of points per axis; the geometric mean of two sides."""
        return float(math.prod(self.sides) ** (1.0 / len(self.sides)))

    @property
    def _roundings(self) -> int:
        """Units roundoff by which a floating-point distance may be too small.

        Grid cells have rounded multiples of the step as coordinates.
        """
        return 32 + (4 * max(self.sides) if len(self.sides) > 1 else 0)

    def per_unit(self, per_step: float) -> float:
        """Convert a cost of moves per step length to one per unit of distance, rounded up."""
        return round_up(per_step / self.step, self._roundings)

    def steps_within(self, distance: float) -> int:
        """Most steps along the axes between two points within a distance.

        Pairs that the distance misses by rounding are included.
        """
        if not distance >= 0.0:
            raise InputError(f"{argument('distance')} must be a number >= 0, got {distance!r}.")
        reach = distance / self.step * (1.0 + DISTANCE_TOLERANCE + self._roundings * ROUNDOFF)
        longest = [side - 1 for side in self.sides]
        if not self.straight:
            return int(min(reach, sum(longest)))
        across = np.arange(int(min(reach, longest[0])) + 1, dtype=np.float64)
        up = np.floor(
            np.sqrt(np.maximum(min(reach, 2.0 * sum(longest)) ** 2 - across**2, 0.0))
            * (1.0 + DISTANCE_TOLERANCE)
        )
        return int(np.max(across + np.minimum(up, longest[1])))
