"""Box of latitudes and longitudes, projected to metres around its centre (extra `geo`)."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Self

import numpy as np
from pydantic import model_validator

from metricshuffle.errors import InputError, argument, require
from metricshuffle.models import FrozenModel, Real
from metricshuffle.numerics.types import Floats
from metricshuffle.spaces.array_input import as_floats, as_source, raise_domain_error

# The longest side of a box, in metres. Up to it, and up to 85 degrees of latitude, a distance in
# the plane is the distance on the WGS84 ellipsoid to within MAX_DISTORTION: 5.03e-4 is the worst
# found over 200,000 pairs in each of nine boxes 500 km wide from latitude -84.5 to 84.5 (the tests
# repeat it on fewer pairs); the formula in Box gives 5.1e-4.
MAX_SIDE_METRES = 500_000.0
HIGHEST_LATITUDE = 85.0
MAX_DISTORTION = 6e-4

# Points along each edge when its image in the plane is measured.
EDGE_SAMPLES = 4097


class Box(FrozenModel):
    """Box of degrees, projected azimuthally equidistant about its centre.

    The radial scale of this projection is exactly 1 and the tangential scale is about 1 + r^2 /
    6R^2 at distance r of the centre (R the Earth's radius): at most 1.0006 in a box of 500 km,
    1.00003 in one of 100 km. So a distance in the plane is never noticeably shorter than the
    distance on the ground, and at most 0.06 % longer.
    """

    south: Real
    west: Real
    north: Real
    east: Real

    def __init__(
        self, south: float, west: float, north: float, east: float, **fields: object
    ) -> None:
        super().__init__(south=south, west=west, north=north, east=east, **fields)

    @model_validator(mode="after")
    def _on_the_map(self) -> Self:
        if not self.south < self.north:
            raise InputError(
                f"{argument('south')} must be below {argument('north')}, got "
                f"{argument('south', self.south)} and {argument('north', self.north)}"
            )
        if max(-self.south, self.north) > HIGHEST_LATITUDE:
            raise InputError(
                f"{argument('south')} and {argument('north')} must lie within "
                f"+-{HIGHEST_LATITUDE:g} degrees, got {self.south!r} and {self.north!r}"
            )
        if not (-180 <= self.west <= 180 and -180 <= self.east <= 180):
            raise InputError(
                f"{argument('west')} and {argument('east')} must lie within +-180 degrees, "
                f"got {self.west!r} and {self.east!r}"
            )
        if not self.west < self.east:
            raise InputError(
                f"{argument('west')} must be below {argument('east')}, got "
                f"{argument('west', self.west)} and {argument('east', self.east)}; "
                f"a box across the antimeridian is not supported, so split it there"
            )
        return self

    def __str__(self) -> str:
        return (
            f"latitudes {self.south:g} to {self.north:g} and longitudes {self.west:g} to "
            f"{self.east:g}"
        )

    def contains(self, latitude: object, longitude: object) -> bool:
        """Whether a place in degrees lies inside; False for values that are not numbers."""
        if not all(
            isinstance(part, int | float | np.integer | np.floating)
            for part in (latitude, longitude)
        ):
            return False
        return bool(self.south <= latitude <= self.north and self.west <= longitude <= self.east)  # type: ignore[operator]

    @property
    def extent(self) -> tuple[float, float, float, float]:
        """Smallest upright rectangle around the box: left, bottom, right, top in metres."""
        return _extent(self)

    def plane(self, latitudes: object, longitudes: object, *, clamp: bool = False) -> Floats:
        """Coordinates (x, y) of places, in metres from the left bottom corner of the extent.

        Places outside raise DomainError unless clamped.
        """
        columns = [as_source(latitudes, None), as_source(longitudes, None)]
        if len(columns[0]) != len(columns[1]):
            raise InputError(
                f"latitudes and longitudes must be as many, got {len(columns[0]):,} and "
                f"{len(columns[1]):,}."
            )
        if (
            columns[0].dtype != columns[1].dtype
        ):  # numpy would turn truth values into numbers, and numbers into text
            columns = [column.astype(object) for column in columns]
        source = np.stack(columns, axis=1)
        places = as_floats(source)
        low = (self.south, self.west)
        high = (self.north, self.east)
        invalid = ~(
            np.isfinite(places) & (np.abs(places) <= (90.0, 180.0))
            if clamp
            else (places >= low) & (places <= high)
        )
        raise_domain_error(
            source,
            invalid,
            str(self),
            lambda _: "lies outside",
            "A place is (latitude, longitude); correct the rows or pass clamp=True.",
        )
        return self.flattened(*np.clip(places, low, high).T)

    def flattened(self, latitudes: Floats, longitudes: Floats) -> Floats:
        """Like `plane` for any places near the box, also outside it."""
        left, bottom, _, _ = self.extent
        x, y = _projection(self)(longitudes, latitudes)
        return np.stack([np.asarray(x) - left, np.asarray(y) - bottom], axis=1)

    def places(self, points: Floats) -> tuple[Floats, Floats]:
        """Latitudes and longitudes of (x, y) in metres from the extent's left bottom corner."""
        left, bottom, _, _ = self.extent
        longitudes, latitudes = _projection(self)(
            points[:, 0] + left, points[:, 1] + bottom, inverse=True
        )
        return np.asarray(latitudes, dtype=np.float64), np.asarray(longitudes, dtype=np.float64)


@lru_cache(maxsize=32)
def _projection(box: Box) -> Any:
    pyproj = require("pyproj", "geo")
    return pyproj.Proj(
        proj="aeqd",
        lat_0=(box.south + box.north) / 2,
        lon_0=(box.west + box.east) / 2,
        ellps="WGS84",
        units="m",
    )


@lru_cache(maxsize=32)
def _extent(box: Box) -> tuple[float, float, float, float]:
    # The image of a box is bounded by the image of its edges; the widest latitude is the one
    # nearest to the equator.
    latitudes = np.append(
        np.linspace(box.south, box.north, EDGE_SAMPLES), np.clip(0.0, box.south, box.north)
    )
    longitudes = np.linspace(box.west, box.east, EDGE_SAMPLES)
    edges_lat = np.concatenate(
        [latitudes, latitudes, np.full(EDGE_SAMPLES, box.south), np.full(EDGE_SAMPLES, box.north)]
    )
    edges_lon = np.concatenate(
        [
            np.full(latitudes.size, box.west),
            np.full(latitudes.size, box.east),
            longitudes,
            longitudes,
        ]
    )
    x, y = _projection(box)(edges_lon, edges_lat)
    left = float(np.min(x))
    bottom = float(np.min(y))
    right = float(np.max(x))
    top = float(np.max(y))
    longest = max(right - left, top - bottom)
    if not longest <= MAX_SIDE_METRES:
        raise InputError(
            f"the box ({box}) is {longest / 1000:,.0f} km long; a flat grid holds up to "
            f"{MAX_SIDE_METRES / 1000:,.0f} km, so split it.",
            field="north" if top - bottom == longest else "east",
        )
    return left, bottom, right, top
