"""Polygons on a map in whole 10^-7 degrees: validation, inner points, and places inside them.

All tests are exact: products of differences of coordinates fit 64 bits if a polygon is less than
180 degrees wide.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from metricshuffle.errors import InputError, argument
from metricshuffle.models import format_value
from metricshuffle.numerics.types import Floats, Integers64, Mask
from metricshuffle.spaces.geographic_box import HIGHEST_LATITUDE

POINTS_IN_DEGREE = 10**7
"""Coordinates are whole numbers of 10^-7 degrees, at most 1.12 cm on the ground."""
Ring = tuple[int, ...]
"""Longitude and latitude of each corner in turn; the last corner is not the first again."""
Shape = tuple[tuple[Ring, ...], ...]
"""Polygons of a zone, each with its outer ring first and then its holes."""
EDGES_AT_ONCE = 128
SCAN_LINES = 15  # latitudes that are tried for an inner point


def shape_of(name: str, geometry: object) -> Shape:
    """Convert a GeoJSON Polygon or MultiPolygon to whole numbers, and validate it.

    Raises:
        InputError: if it is empty, crosses itself or the antimeridian, or is no polygon at all.
    """
    kind = geometry.get("type") if isinstance(geometry, dict) else None
    coordinates = geometry.get("coordinates") if isinstance(geometry, dict) else None
    if kind not in ("Polygon", "MultiPolygon"):
        raise InputError(
            f"zone {format_value(name)} is {_kind_text(kind)}; zones are polygons "
            "(Polygon or MultiPolygon), or a table of points."
        )
    parts: object = [coordinates] if kind == "Polygon" else coordinates
    polygons = [
        [_ring(name, ring) for ring in _listed(name, polygon)] for polygon in _listed(name, parts)
    ]
    shape = tuple(
        tuple(ring for ring in rings if len(ring) >= 6)
        for rings in polygons
        if rings and len(rings[0]) >= 6
    )
    if shape:
        check_shape(name, shape)
    if not any(_twice_area(polygon[0]) for polygon in shape):
        raise InputError(
            f"zone {format_value(name)} has an empty polygon, which nobody can be in; leave "
            "it out or correct it."
        )
    return shape


def _kind_text(kind: object) -> str:
    return "empty" if kind is None else f"a {kind}"


def _listed(name: str, part: object) -> Sequence[object]:
    if not isinstance(part, list | tuple):
        raise InputError(
            f"zone {format_value(name)} has no list of coordinates where one is needed, got "
            f"{format_value(part)}; correct the file."
        )
    return part


def _ring(name: str, corners: object) -> Ring:
    """Corners as whole numbers, without repetitions."""
    numbers: list[tuple[int, int]] = []
    for corner in _listed(name, corners):
        pair = _listed(name, corner)[:2]
        if len(pair) < 2 or not all(
            isinstance(part, int | float) and math.isfinite(part) for part in pair
        ):
            raise InputError(
                f"zone {format_value(name)} has a corner that is not a longitude and a "
                f"latitude: {format_value(corner)}; correct the file."
            )
        longitude, latitude = (float(part) for part in pair)  # type: ignore[arg-type]
        point = whole_degrees(name, latitude, longitude)
        if not numbers or numbers[-1] != point:
            numbers.append(point)
    if len(numbers) > 1 and numbers[0] == numbers[-1]:
        numbers.pop()
    return tuple(part for point in numbers for part in point)


def whole_degrees(name: str, latitude: float, longitude: float) -> tuple[int, int]:
    """(longitude, latitude) in whole 10^-7 degrees; InputError if they are not on the map."""
    if not (abs(latitude) <= HIGHEST_LATITUDE and abs(longitude) <= 180.0):
        swapped = abs(longitude) <= HIGHEST_LATITUDE and abs(latitude) <= 180.0
        remedy = "are they swapped?" if swapped else "coordinates must be degrees (WGS84)."
        raise InputError(
            f"zone {format_value(name)} has latitude {latitude:g} and longitude "
            f"{longitude:g}, but latitudes lie within +-{HIGHEST_LATITUDE:g} and longitudes "
            f"within +-180 degrees; {remedy}"
        )
    return round(longitude * POINTS_IN_DEGREE), round(latitude * POINTS_IN_DEGREE)


def check_shape(name: str, shape: Shape) -> None:
    """Raise InputError if a polygon crosses itself or the antimeridian."""
    starts, ends = edges_of(shape)
    corners = np.concatenate([starts, ends])
    if np.ptp(corners[:, 0]) >= 180 * POINTS_IN_DEGREE:
        raise InputError(
            f"zone {format_value(name)} is 180 degrees wide or more, or crosses the "
            "antimeridian, where longitudes jump from 180 to -180; split it there into two "
            "zones."
        )
    place = _crossing(starts, ends)
    if place is not None:
        longitude, latitude = (part / POINTS_IN_DEGREE for part in place)
        raise InputError(
            f"the border of zone {format_value(name)} crosses itself near latitude "
            f"{latitude:.5f}, longitude {longitude:.5f}; correct the polygon."
        )


def _corners(ring: Ring) -> Integers64:
    return np.array(ring, dtype=np.int64).reshape(-1, 2)


def edges_of(shape: Shape) -> tuple[Integers64, Integers64]:
    """Starts and ends of all edges."""
    rings = [_corners(ring) for polygon in shape for ring in polygon]
    return np.concatenate(rings), np.concatenate([np.roll(ring, -1, axis=0) for ring in rings])


def _twice_area(ring: Ring) -> int:
    corners = [(ring[index], ring[index + 1]) for index in range(0, len(ring), 2)]
    following = [*corners[1:], *corners[:1]]
    return abs(
        sum(
            x * next_y - next_x * y
            for (x, y), (next_x, next_y) in zip(corners, following, strict=True)
        )
    )


def _crossing(starts: Integers64, ends: Integers64) -> Integers64 | None:
    """Corner next to which two edges cross; None if none do.

    Edges cross if the ends of each lie strictly on different sides of the other. Rings that touch
    in a corner or along an edge do not cross.
    """
    order = np.argsort(np.minimum(starts[:, 0], ends[:, 0]), kind="stable")
    starts = starts[order]
    ends = ends[order]
    west = np.minimum(starts[:, 0], ends[:, 0])
    east = np.maximum(starts[:, 0], ends[:, 0])
    for first in range(0, len(starts), EDGES_AT_ONCE):
        block = slice(first, first + EDGES_AT_ONCE)
        last = int(np.searchsorted(west, east[block].max(), side="right"))
        others = slice(first, last)
        crossed = (
            _sides(starts[block], ends[block], starts[others])
            * _sides(starts[block], ends[block], ends[others])
            < 0
        ) & (
            _sides(starts[others], ends[others], starts[block]).T
            * _sides(starts[others], ends[others], ends[block]).T
            < 0
        )
        if crossed.any():
            found_edge = int(np.argmax(crossed.any(axis=1)))
            return np.asarray(starts[first + found_edge], dtype=np.int64)
    return None


def _sides(starts: Integers64, ends: Integers64, points: Integers64) -> Integers64:
    """Sign of the side of each edge (row) on which each point (column) lies."""
    along = ends - starts
    across = points[None, :, :] - starts[:, None, :]
    turns = along[:, None, 0] * across[..., 1] - along[:, None, 1] * across[..., 0]
    return np.asarray(np.sign(turns), dtype=np.int64)


def contains(shape: Shape, points: Integers64) -> Mask:
    """Mask of the points (longitude, latitude) inside a shape, by the even-odd rule.

    Exact, and half-open: a point on an edge that two shapes share lies in exactly one of them.
    """
    inside = np.zeros(len(points), dtype=bool)
    starts, ends = edges_of(shape)
    for first in range(0, len(starts), EDGES_AT_ONCE):
        low = starts[first : first + EDGES_AT_ONCE]
        high = ends[first : first + EDGES_AT_ONCE]
        upward = high[:, 1] > low[:, 1]
        south = np.where(upward[:, None], low, high)
        north = np.where(upward[:, None], high, low)
        spans = (south[:, None, 1] <= points[None, :, 1]) & (points[None, :, 1] < north[:, None, 1])
        inside ^= (np.count_nonzero(spans & (_sides(south, north, points) > 0), axis=0) & 1) == 1
    return inside


def inner_point(shape: Shape) -> tuple[int, int]:
    """A point (longitude, latitude) inside the shape: the middle of its widest part on a scan line.

    Scan lines are tried from the middle latitude outwards; a sliver in which no whole number lies
    is represented by a corner.
    """
    starts, ends = edges_of(shape)
    south = int(starts[:, 1].min())
    north = int(starts[:, 1].max())
    steps = np.linspace(0.0, 0.5, SCAN_LINES // 2 + 1)[:-1]
    for offset in [part for step in steps for part in (step, -step)]:
        latitude = south + math.floor((0.5 + offset) * (north - south))
        for west, east in sorted(
            _widths(starts, ends, latitude), key=lambda pair: pair[0] - pair[1]
        ):
            point = np.array([[round((west + east) / 2.0), latitude]], dtype=np.int64)
            if contains(shape, point)[0]:
                return int(point[0, 0]), latitude
    return int(starts[0, 0]), int(starts[0, 1])


def _widths(starts: Integers64, ends: Integers64, latitude: int) -> Iterator[tuple[float, float]]:
    """(west, east) of each part of a scan line inside the shape."""
    cut = (starts[:, 1] <= latitude) != (ends[:, 1] <= latitude)
    low = starts[cut].astype(np.float64)
    high = ends[cut].astype(np.float64)
    share = (latitude - low[:, 1]) / (high[:, 1] - low[:, 1])
    crossings = np.sort(low[:, 0] + share * (high[:, 0] - low[:, 0])).tolist()
    yield from zip(crossings[::2], crossings[1::2], strict=False)


def bounds_of(shapes: Iterable[Shape]) -> Integers64:
    """West, south, east and north of each shape, one row each."""
    rows = []
    for shape in shapes:
        starts, _ = edges_of(shape)
        rows.append(np.concatenate([starts.min(axis=0), starts.max(axis=0)]))
    return np.array(rows, dtype=np.int64).reshape(-1, 4)


def containing(shapes: Sequence[Shape], points: Integers64) -> Integers64:
    """Index of the first shape that contains each point (longitude, latitude); -1 for none."""
    order = np.argsort(points[:, 0], kind="stable")
    longitudes = points[order, 0]
    index = np.full(len(points), -1, dtype=np.int64)
    bounds = bounds_of(shapes)
    first = np.searchsorted(longitudes, bounds[:, 0], side="left")
    last = np.searchsorted(longitudes, bounds[:, 2], side="right")
    for place, shape in enumerate(shapes):
        strip = order[first[place] : last[place]]
        strip = strip[
            (index[strip] < 0)
            & (points[strip, 1] >= bounds[place, 1])
            & (points[strip, 1] <= bounds[place, 3])
        ]
        if len(strip):
            index[strip[contains(shape, points[strip])]] = place
    return index


def rings_in_degrees(shape: Shape) -> list[list[Floats]]:
    """Closed rings of each polygon in degrees, (longitude, latitude) a row."""
    return [
        [np.concatenate([_corners(ring), _corners(ring)[:1]]) / POINTS_IN_DEGREE for ring in rings]
        for rings in shape
    ]


def corners_of(shape: Shape) -> Integers64:
    """All corners (longitude, latitude) of a shape."""
    return edges_of(shape)[0]


def feature_property(title: str, place: int, feature: object, key: str, option: str) -> object:
    """Property of a feature; InputError if it has none."""
    properties = feature.get("properties") if isinstance(feature, dict) else None
    if not isinstance(properties, dict) or properties.get(key) is None:
        known = ", ".join(map(str, (properties or {}) if isinstance(properties, dict) else ()))
        raise InputError(
            f"feature {place} (counting from 0) of {title} has no property {format_value(key)} "
            f"({argument(option)}); it has: {known or 'none'}."
        )
    return properties[key]


def numeric_property(title: str, place: int, feature: object, key: str, option: str) -> float:
    """Property of a feature as a number, which may be written as text."""
    content = feature_property(title, place, feature, key, option)
    try:
        return math.nan if isinstance(content, bool) else float(str(content))
    except ValueError:
        raise InputError(
            f"feature {place} (counting from 0) of {title} has {format_value(content)} as its "
            f"{format_value(key)} ({argument(option)}), which must be a number."
        ) from None
