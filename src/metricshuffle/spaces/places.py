"""Domain of places on the Earth in a box of degrees, and the plane in which they are added up."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction
from typing import ClassVar, Literal, Self

import numpy as np
from pydantic import model_validator

from metricshuffle.citations import theorem
from metricshuffle.errors import InputError, argument, require
from metricshuffle.models import FrozenModel, Real, format_value
from metricshuffle.numerics.types import Floats, Integers64
from metricshuffle.spaces.array_input import Source, as_floats, as_source, raise_domain_error
from metricshuffle.spaces.domains import Domain
from metricshuffle.spaces.geographic_box import Box
from metricshuffle.spaces.grid import METRES

# The ellipsoid WGS84.
EQUATOR_RADIUS = 6_378_137.0
FLATTENING = 1.0 / 298.257223563
ECCENTRICITY_SQUARED = FLATTENING * (2.0 - FLATTENING)
# No line on the ellipsoid is more curved than a meridian at the equator; no two places are farther
# apart than the poles.
SMALLEST_RADIUS = EQUATOR_RADIUS * (1.0 - ECCENTRICITY_SQUARED)
MAX_GROUND_DISTANCE = 20_003_932.0
COORDINATE_ERROR = 1e-7  # metres: coordinates from the centre of the Earth are doubles of about 6e6
# Wider boxes have no plane: the shortest path between their sides may pass on the other side of the
# pole.
MAX_WIDTH_DEGREES = 179.0

POINTS_PER_DEGREE = 2**54
"""Degrees are multiples of 2^-54 (6e-12 m); every double from 0.25 is such a multiple."""
MAX_POINTS = 2**62
"""Largest unit in points: more points than any box has, and below 64 bits."""


class Places(Domain):
    """Places (latitude, longitude) in degrees, within south, west, north and east.

    Distances are along the ground, in "m" or "km". Places are not snapped to cells. The plane x =
    k_x longitude, y = k_y latitude is linear, so that the mean in it is the mean latitude and
    longitude, and no distance in it is longer than on the ground (`metres_per_degree`).
    """

    points_are: ClassVar[str] = "plane"
    kind: Literal["places"] = "places"
    south: Real
    west: Real
    north: Real
    east: Real
    unit: str = "m"

    def __init__(
        self,
        south: float,
        west: float,
        north: float,
        east: float,
        unit: str = "m",
        **fields: object,
    ) -> None:
        FrozenModel.__init__(
            self, south=south, west=west, north=north, east=east, unit=unit, **fields
        )

    @model_validator(mode="after")
    def _has_room(self) -> Self:
        _ = self.box  # raises InputError if the corners are invalid
        if not self.east - self.west < MAX_WIDTH_DEGREES:
            raise InputError(
                f"{argument('west')} and {argument('east')} must be less than "
                f"{MAX_WIDTH_DEGREES:g} degrees apart, "
                f"got {self.west!r} and {self.east!r}; split the box"
            )
        if self.unit not in METRES:
            raise InputError(
                f"{argument('unit')} must be 'm' or 'km', got {format_value(self.unit)}"
            )
        return self

    def __str__(self) -> str:
        return f"places within {self.box}"

    @property
    def box(self) -> Box:
        return Box(self.south, self.west, self.north, self.east)

    # Values

    def _inside(self, values: object, clamp: bool) -> Floats:
        source: Source = as_source(values, 2)
        places = as_floats(source)
        low = (self.south, self.west)
        high = (self.north, self.east)
        outside = ~(
            np.isfinite(places) & (np.abs(places) <= (90.0, 180.0))
            if clamp
            else (places >= low) & (places <= high)
        )
        remedy = "A place is (latitude, longitude) in degrees; correct the rows or pass clamp=True."
        raise_domain_error(source, outside, str(self), lambda _: "lies outside", remedy)
        return np.clip(places, low, high)

    def validated(self, values: object) -> Floats:
        return self._inside(values, clamp=False)

    def clamped(self, values: object) -> Floats:
        return self._inside(values, clamp=True)

    def points(self, validated: Integers64 | Floats) -> Floats:
        """Coordinates (x, y) in the plane, in units from the south-west corner."""
        latitude, longitude = self.metres_per_degree
        offsets = np.asarray(validated, dtype=np.float64).reshape(-1, 2) - (self.south, self.west)
        return (offsets * (latitude, longitude))[:, ::-1] / METRES[self.unit]

    def extremes(self) -> Floats:
        return np.array(list(itertools.product((self.south, self.north), (self.west, self.east))))

    @property
    def size(self) -> int | None:
        return None

    def all_values(self) -> Integers64:
        raise InputError(
            "there are too many places to list; put them on a Grid to count them by cells."
        )

    # Whole numbers

    @property
    def corner(self) -> tuple[int, int]:
        """South-west corner in points."""
        return math.floor(Fraction(self.south) * POINTS_PER_DEGREE), math.floor(
            Fraction(self.west) * POINTS_PER_DEGREE
        )

    @property
    def spans(self) -> tuple[int, int]:
        """Number of points between south and north, and between west and east."""
        (south, west), ends = self.corner, (self.north, self.east)
        north, east = (math.ceil(Fraction(end) * POINTS_PER_DEGREE) for end in ends)
        return north - south, east - west

    def numbers(self, validated: Floats) -> Integers64:
        """Latitudes and longitudes as points from the south-west corner."""
        counted: Integers64 = np.rint(validated * float(POINTS_PER_DEGREE)).astype(
            np.int64
        ) - np.array(self.corner, dtype=np.int64)
        return counted

    # Metres

    @property
    def metres_per_degree(self) -> tuple[float, float]:
        """(k_y, k_x) of the plane: metres per degree of latitude and of longitude, rounded down."""
        nearest = max(self.south, -self.north, 0.0)
        return least_metres(nearest, max(abs(self.south), abs(self.north)), self.east - self.west)

    @property
    def middle_metres(self) -> tuple[float, float]:
        """Metres per degree of latitude and longitude at the middle latitude, to report errors."""
        return metres_at((self.south + self.north) / 2.0)

    def units(self, unit: float) -> tuple[int, int]:
        """Fewest points of latitude, and of longitude, that span at least `unit` in the plane."""
        points = Fraction(unit * METRES[self.unit]) * POINTS_PER_DEGREE
        latitude, longitude = self.metres_per_degree
        return math.ceil(points / Fraction(latitude)), math.ceil(points / Fraction(longitude))

    @property
    def largest_unit(self) -> float:
        """Length in the plane of the largest supported number of points."""
        return MAX_POINTS / POINTS_PER_DEGREE * min(self.metres_per_degree) / METRES[self.unit]

    @property
    def longer_side(self) -> float:
        """Longer side of the box in the plane, in units."""
        latitude, longitude = self.metres_per_degree
        return (
            max((self.north - self.south) * latitude, (self.east - self.west) * longitude)
            / METRES[self.unit]
        )

    def ground(self, first: Floats, second: Floats) -> Floats:
        """Distances along the ground between rows of places, in units (extra `geo`)."""
        pyproj = require("pyproj", "geo")
        ends = (
            np.ascontiguousarray(places[:, axis]) for places in (first, second) for axis in (1, 0)
        )
        metres = pyproj.Geod(ellps="WGS84").inv(*ends)[2]
        return np.asarray(metres, dtype=np.float64) / METRES[self.unit]

    @property
    def diameter(self) -> float:
        """Upper bound on the distance on the ground between two places, in units."""
        latitudes = sorted({self.south, self.north, min(max(0.0, self.south), self.north)})
        pairs = itertools.combinations_with_replacement(latitudes, 2)
        return (
            max(longest_way(first, second, self.east - self.west) for first, second in pairs)
            / METRES[self.unit]
        )


def metres_at(latitude: float) -> tuple[float, float]:
    """Metres per degree of latitude and of longitude at a latitude."""
    angle = math.radians(latitude)
    bend = 1.0 - ECCENTRICITY_SQUARED * math.sin(angle) ** 2
    degree = math.radians(1.0) * EQUATOR_RADIUS
    return degree * (1.0 - ECCENTRICITY_SQUARED) / bend**1.5, degree * math.cos(angle) / math.sqrt(
        bend
    )


@theorem("metricshuffle", "A plane that is never longer than the ground")
def least_metres(nearest: float, highest: float, width: float) -> tuple[float, float]:
    """(k_y, k_x), metres per degree, of a plane with no distance longer than on the ground.

    Statement: for two places that differ by y degrees of latitude and x degrees of longitude,
    hypot(k_y y, k_x x) is at most their distance on the ground, if their latitudes lie between
    `nearest` and `highest` degrees from the equator (nearest 0: on both sides) and their longitudes
    lie within `width` degrees. k_y is the length of a degree of a meridian at `nearest`. k_x is the
    length of a degree of the parallel of the latitude top' with tan(top') = tan(highest) /
    cos((width/2)/(1 - f)), f the flattening.
    Conditions: WGS84, 0 <= nearest <= highest <= 85, width < 179.
    Proof: let M and N be the radii of curvature of the ellipsoid along the meridian and across it,
    at latitude lat. The shortest line between two places has the length integral of hypot(M dlat, N
    cos(lat) dlon), where M is smallest near the equator and N cos(lat) is smallest near the poles;
    its image in the plane is no shorter than the straight segment. So it is enough that the line
    stays between the latitudes where k_y and k_x are taken. On the auxiliary sphere, with reduced
    latitudes beta, tan(beta) = (1 - f) tan(lat), and spherical longitudes w, the line is a great
    circle, tan(beta) = A cos(w - w0) with constants A and w0. Between two points, the great circle
    is nowhere nearer to the equator than the nearer of the two points, or it crosses the equator.
    It rises highest if both points have the same latitude, to tan(beta)/cos(half their difference
    in w); half that difference is at most half the width over 1 - f, since dlon/dw >= 1 - f. QED
    Numerics: rounded down by a relative 1e-9, far more than the error of the libraries' sines.
    """
    if not (0.0 <= nearest <= highest <= 85.0 and 0.0 < width < MAX_WIDTH_DEGREES):
        raise InputError(
            "a plane needs latitudes from 0 to 85 and a width below "
            f"{MAX_WIDTH_DEGREES:g}, got {nearest!r}, {highest!r} and {width!r}."
        )
    bulge = math.cos(math.radians(width / 2.0) / (1.0 - FLATTENING))
    top = math.degrees(math.atan2(math.tan(math.radians(highest)), bulge))
    return metres_at(nearest)[0] * (1.0 - 1e-9), metres_at(top)[1] * (1.0 - 1e-9)


def longest_way(first: float, second: float, width: float) -> float:
    """Upper bound on the distance on the ground, in metres, between two latitudes.

    The longitudes differ by `width` degrees. A line that is nowhere more curved than a circle of
    radius r is at most as long as the arc of that circle over the same chord (Schur).
    """
    places = []
    for latitude, longitude in ((first, 0.0), (second, width)):
        phi = math.radians(latitude)
        along = math.radians(longitude)
        normal = EQUATOR_RADIUS / math.sqrt(1.0 - ECCENTRICITY_SQUARED * math.sin(phi) ** 2)
        across = normal * math.cos(phi)
        places.append(
            (
                across * math.cos(along),
                across * math.sin(along),
                normal * (1.0 - ECCENTRICITY_SQUARED) * math.sin(phi),
            )
        )
    chord = math.dist(*places) / (2.0 * SMALLEST_RADIUS)
    return (
        MAX_GROUND_DISTANCE
        if chord >= 1.0
        else min(
            MAX_GROUND_DISTANCE,
            2.0 * SMALLEST_RADIUS * math.asin(chord) * (1.0 + 1e-12) + COORDINATE_ERROR,
        )
    )
