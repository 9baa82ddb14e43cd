"""Lattices of triangles over zones, and the mixtures of corners that represent points.

The hat of a corner is a function that is largest there and falls linearly to 0 at the opposite
sides of its triangles. A point is represented by the values of the three hats around it.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from metricshuffle.errors import InputError
from metricshuffle.numerics.types import Floats, Integers64
from metricshuffle.spaces import Zones
from metricshuffle.spaces.grid import METRES
from metricshuffle.spaces.places import MAX_WIDTH_DEGREES, least_metres

if TYPE_CHECKING:
    from scipy.sparse import csr_array

MAX_STEPS = 2.0**57
"""Largest coordinate of a point in grid steps, for which all products fit 64 bits."""


@dataclass(frozen=True)
class HatLattice:
    """Triangles of side `length` units, with `fineness` grid steps in a thirtieth of a side."""

    length: float
    fineness: int

    @property
    def grain(self) -> float:
        """Step of the grid on which points are placed in the plane, in units."""
        return self.length / (30.0 * self.fineness)

    @property
    def top(self) -> int:
        """Value of a hat at its top, in whole numbers."""
        return 30 * 26 * self.fineness

    def steps(self, zones: Zones) -> Floats:
        """Points of zones in the plane, in grid steps."""
        return np.rint(plane(zones) / self.grain)

    def fits(self, zones: Zones) -> bool:
        """Whether all products of coordinates fit 64 bits."""
        return float(np.max(self.steps(zones))) < MAX_STEPS

    def hat_count(self, zones: Zones) -> int:
        """Number of corners of triangles that contain zones, including corners with part 0."""
        return len(np.unique(np.concatenate(self.corners(self.steps(zones))[0]), axis=0))

    def corners(self, steps: Floats) -> tuple[list[Integers64], list[Integers64]]:
        """Three corners (i, j) around each point, and the parts of the point, which sum to `top`.

        A point (x, y) in grid steps is a (30, 0) + b (15, 26), both times `fineness`, with a = (26
        x - 15 y)/top and b = 30 y/top.
        """
        top = self.top
        x, y = steps.astype(np.int64).T
        along, a = np.divmod(26 * x - 15 * y, top)
        up, b = np.divmod(30 * y, top)
        upper = a + b > top
        first = np.column_stack([along + upper, up + upper])
        right = np.column_stack([along + 1, up])
        above = np.column_stack([along, up + 1])
        parts = [
            np.where(upper, a + b - top, top - a - b),
            np.where(upper, top - b, a),
            np.where(upper, top - a, b),
        ]
        return [first, right, above], parts


@lru_cache(maxsize=16)
def hat_table(lattice: HatLattice, zones: Zones) -> csr_array:
    """Hats of every zone, one row each: whole numbers that sum to `top`."""
    from scipy.sparse import csr_array

    if not flattens(zones):
        raise InputError(
            f"hats need zones less than {MAX_WIDTH_DEGREES:g} degrees of longitude apart, without "
            "the antimeridian between them."
        )
    if not lattice.fits(zones):
        raise InputError(
            f"triangles of side {lattice.length!r} are too small for {zones}; use longer ones."
        )
    size = len(zones.ids)
    corners, parts = lattice.corners(lattice.steps(zones))
    values = np.concatenate(parts)
    used = values > 0
    _, column = np.unique(np.concatenate(corners)[used], axis=0, return_inverse=True)
    rows = np.tile(np.arange(size), 3)[used]
    matrix = csr_array((values[used], (rows, column.ravel())), shape=(size, int(column.max()) + 1))
    matrix.sort_indices()
    return matrix


def flattens(zones: Zones) -> bool:
    """Whether all points lie in a box that is narrow enough for `plane`."""
    longitudes = zones.degrees[:, 1]
    return float(np.ptp(longitudes)) < MAX_WIDTH_DEGREES


@lru_cache(maxsize=32)
def plane(zones: Zones) -> Floats:
    """Points (x, y), in units, in a plane in which no distance is longer than on the ground."""
    latitudes, longitudes = zones.degrees.T
    south = float(latitudes.min())
    north = float(latitudes.max())
    width = max(float(np.ptp(longitudes)), 1e-9)
    nearest = max(south, -north, 0.0)
    per_latitude, per_longitude = least_metres(nearest, max(abs(south), abs(north)), width)
    points = np.column_stack(
        [(longitudes - longitudes.min()) * per_longitude, (latitudes - south) * per_latitude]
    )
    points = points / METRES[zones.unit]
    points.setflags(write=False)
    return points
