"""Metrics on labelled points with positions: places on the globe, and vectors of words.

Distances are computed on demand, so there may be more points than a table of distances has room
for. Positions are points of a Euclidean space that are never farther apart than the metric says.
"""

from __future__ import annotations

from abc import abstractmethod
from functools import cached_property
from typing import Annotated, Literal

import numpy as np
from pydantic import PlainSerializer, PlainValidator

from metricshuffle.citations import theorem
from metricshuffle.errors import InputError
from metricshuffle.models import FrozenModel, format_value
from metricshuffle.numerics.types import Floats, Integers64
from metricshuffle.spaces.array_input import indices
from metricshuffle.spaces.metrics import EARTH_RADIUS, Haversine, Metric, representable

GROUND_FACTOR = 1.006
"""Distances on the mean sphere are divided by this; none is then longer than on the ground."""
METRES_PER_UNIT = {"m": 1.0, "km": 1000.0}
ANGLE_ERROR = 2.0**-46  # rounding of haversines and of positions, in radians
BLOCK = 512
LARGEST_ENTRY = 1e140  # squares of larger numbers overflow
SMALLEST_ENTRY = 1e-140


def _point_table(values: object) -> Floats:
    try:
        table = np.array(values, dtype=np.float64)
    except (TypeError, ValueError):
        raise ValueError(
            f"must be a table of numbers, one row for each point, got {format_value(values)}"
        ) from None
    if table.ndim != 2 or not table.size or len(table) < 2:
        raise ValueError(
            "must be a table of numbers with at least two rows, one for each point, got shape "
            f"{table.shape}"
        )
    invalid = ~(np.abs(table) < LARGEST_ENTRY)
    if invalid.any():
        row, column = (int(index) for index in np.argwhere(invalid)[0])
        raise ValueError(
            f"must contain numbers below 1e140, but row {row} (counting from 0), column {column} "
            f"is {table[row, column]}"
        )
    if not np.abs(table).max() > SMALLEST_ENTRY:
        raise ValueError("must contain a number above 1e-140; change the unit")
    table.setflags(write=False)
    return table


def _place_table(values: object) -> Floats:
    table = _point_table(values)
    if table.shape[1] != 2:
        raise ValueError(f"must be pairs (latitude, longitude), got rows of {table.shape[1]}")
    try:
        Haversine().pairwise(table[:1], table)
    except InputError as error:
        raise ValueError(str(error).rstrip(".")) from None
    return table


PointTable = Annotated[
    np.ndarray, PlainValidator(_point_table), PlainSerializer(lambda table: table.tolist())
]
PlaceTable = Annotated[
    np.ndarray, PlainValidator(_place_table), PlainSerializer(lambda table: table.tolist())
]


class LabelledPoints(Metric):
    """Points 0 .. m-1, for example the labels of `Categories` in their order, with positions."""

    @property
    @abstractmethod
    def positions(self) -> Floats:
        """One row for each point; straight lines between rows are no longer than distances."""

    @property
    def position_error(self) -> float:
        """Upper bound on the rounding error of one position, or of one distance."""
        return 0.0

    @property
    def measures(self) -> frozenset[str]:
        return frozenset({"codes"})

    @property
    def size(self) -> int | None:
        return len(self.positions)

    def _codes(self, points: object) -> Integers64:
        size = len(self.positions)
        return indices(points, size, f"the points 0 to {size - 1}")

    @cached_property
    def diameter_bound(self) -> float:
        """Upper bound on all distances: twice the largest distance from the first point."""
        reach = float(self.pairwise([0], np.arange(len(self.positions))).max())
        return min(2.0 * reach, self.largest_possible) * (1.0 + 1e-12)

    @property
    def largest_possible(self) -> float:
        """Distance that no two points of any table exceed; infinite if there is no limit."""
        return np.inf

    @cached_property
    def nearest(self) -> float:
        """Smallest distance above 0 between two points; 0 if all points coincide."""
        positions = self.positions - self.positions.mean(axis=0)
        squares = (positions**2).sum(axis=1)
        smallest = np.inf
        for start in range(0, len(positions), BLOCK):
            block = np.arange(start, min(start + BLOCK, len(positions)))
            apart = squares[block, None] + squares - 2.0 * positions[block] @ positions.T
            # By cancellation, coinciding points get a tiny square, possibly negative, instead of 0.
            apart[apart <= 1e-12 * (squares[block, None] + squares)] = np.inf
            apart[np.arange(len(block)), block] = np.inf
            partner = apart.argmin(axis=1)
            row = int(apart[np.arange(len(block)), partner].argmin())
            if np.isfinite(apart[row, partner[row]]):
                distance = float(self.pairwise([block[row]], [partner[row]])[0, 0])
                smallest = min(smallest, distance)
        return smallest if np.isfinite(smallest) else 0.0

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, LabelledPoints)
            and type(self) is type(other)
            and self.unit_of("") == other.unit_of("")
            and np.array_equal(self.positions, other.positions)
        )

    def __hash__(self) -> int:
        return hash((type(self).__name__, self.unit_of(""), self.positions.tobytes()))


class Vectors(LabelledPoints):
    """Straight-line distance between the rows of a table, for example of word embeddings."""

    kind: Literal["vectors"] = "vectors"
    vectors: PointTable

    def __init__(self, vectors: object, **fields: object) -> None:
        FrozenModel.__init__(self, vectors=vectors, **fields)

    @property
    def positions(self) -> Floats:
        return np.asarray(self.vectors)

    def pairwise(self, points_a: object, points_b: object) -> Floats:
        from scipy.spatial.distance import cdist

        rows, columns = (self.vectors[self._codes(points)] for points in (points_a, points_b))
        return representable(cdist(rows, columns))


class GreatCircle(LabelledPoints):
    """Great-circle distance between labelled places (latitude, longitude) in degrees.

    The distance is that on the mean sphere divided by 1.006, which is never more than along the
    ground (`ground_share`), so that a guarantee per kilometre holds for kilometres on the ground.
    """

    kind: Literal["great-circle"] = "great-circle"
    places: PlaceTable
    unit: Literal["m", "km"] = "km"

    def __init__(self, places: object, unit: str = "km", **fields: object) -> None:
        FrozenModel.__init__(self, places=places, unit=unit, **fields)

    def unit_of(self, unit: str) -> str:
        return self.unit

    @property
    def radius(self) -> float:
        """Radius of the sphere on which distances are measured, in `unit`."""
        return EARTH_RADIUS / METRES_PER_UNIT[self.unit] / GROUND_FACTOR

    @property
    @theorem("metricshuffle", "great circles, divided by 1.006, are not longer than the ground")
    def ground_share(self) -> float:
        """Distances on the mean sphere times this are at most those along the ground.

        Statement: let R = 6371008.8 m be the radius of the mean sphere. A path on the ellipsoid
        WGS84 that moves by dphi in latitude and dlambda in longitude has the length sqrt(M^2 dphi^2
        + N^2 cos^2(phi) dlambda^2). The radius M of the meridian is least at the equator, a(1 -
        e^2) = 6335439.3 m, and N is at least a = 6378137 m. So every path is at least 6335439.3/R =
        0.994417 times as long as the path on the sphere through the same latitudes and longitudes,
        which is no shorter than the great circle. 1/1.006 = 0.99403 is less.
        Conditions: geodetic latitudes; heights are not counted.
        Numerics: rounding of distances is below 1e-12 of them, far below the room of 4e-4.
        Reference: this docstring.
        """
        return 1.0 / GROUND_FACTOR

    @cached_property
    def positions(self) -> Floats:
        latitude, longitude = np.deg2rad(self.places).T
        directions = [
            np.cos(latitude) * np.cos(longitude),
            np.cos(latitude) * np.sin(longitude),
            np.sin(latitude),
        ]
        return np.asarray(np.stack(directions, axis=1) * self.radius)

    @property
    def position_error(self) -> float:
        return ANGLE_ERROR * np.pi * self.radius

    @property
    def largest_possible(self) -> float:
        return np.pi * self.radius

    def pairwise(self, points_a: object, points_b: object) -> Floats:
        rows, columns = (self.places[self._codes(points)] for points in (points_a, points_b))
        return np.asarray(Haversine(self.unit).pairwise(rows, columns) / GROUND_FACTOR)
