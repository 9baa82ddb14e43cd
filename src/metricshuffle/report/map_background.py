"""Map backgrounds from a GeoJSON file: lines and areas, projected and clipped to the grid."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from metricshuffle.errors import InputError
from metricshuffle.files import read_bytes
from metricshuffle.numerics.types import Floats
from metricshuffle.report.charts.map_layers import Background
from metricshuffle.spaces import Box, Grid
from metricshuffle.spaces.grid import METRES

MAX_FILE_BYTES = 64 * 2**20
MAX_DRAWN_POINTS = 100_000
# Fraction of the map; points closer to their predecessor would not be visible.
MIN_POINT_SPACING = 1.0 / 2000.0
# Fraction of the map; straight lines in degrees are curved on a plane, so longer ones are divided.
MAX_EDGE_LENGTH = 1.0 / 32.0
MAX_NESTING = 8  # collections within collections

Rectangle = tuple[float, float, float, float]
"""(left, bottom, right, top)."""
Shape = tuple[str, object, str, str]
"""(kind, coordinates as read, location in the file, name of the feature or an empty text)."""
MAX_NAME_LENGTH = 40
MAX_NAMES = 200


def read_background(path: Path, grid: Grid) -> Background:
    """Read the lines, areas and named points of a GeoJSON file that lie on the grid.

    Raises InputError if the file is not GeoJSON, or is too large to draw.
    """
    box = boxed(grid)
    shapes = read_shapes(path)
    try:
        return background_on(shapes, grid, box)
    except InputError as error:
        raise InputError(f"cannot use {path} as a background: {error}") from None


def read_shapes(path: Path) -> list[Shape]:
    """Read the single lines, areas and points of a GeoJSON file; InputError if it is not one."""
    too_large = InputError(
        f"{path} has more than {MAX_FILE_BYTES // 2**20} MB; cut it to the map or simplify "
        "it first."
    )
    if path.is_file() and path.stat().st_size > MAX_FILE_BYTES:
        raise too_large
    content = read_bytes(path)
    if len(content) > MAX_FILE_BYTES:  # a pipe does not declare its size
        raise too_large
    try:
        read = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path} is not GeoJSON: it cannot be read as JSON ({error}).") from None
    try:
        return list(_geometries(read, "the file"))
    except InputError as error:
        raise InputError(f"cannot use {path} as a background: {error}") from None


def boxed(grid: Grid) -> Box:
    """Box in degrees of a grid; InputError if it has none."""
    if grid.box is None:
        raise InputError(
            "a background needs a release on a map: the grid of this one has no latitudes "
            "and longitudes."
        )
    return grid.box


def background_on(
    shapes: list[Shape], grid: Grid, box: Box, *, max_names: int = MAX_NAMES, source: str = ""
) -> Background:
    """Project shapes in degrees, and clip them to the grid."""
    plane: Rectangle = (0.0, 0.0, grid.width * grid.cell, grid.height * grid.cell)
    degrees_around = around_of(grid)
    step = (
        max(degrees_around[2] - degrees_around[0], degrees_around[3] - degrees_around[1])
        * MAX_EDGE_LENGTH
    )

    def projected(degrees: Floats) -> Floats:
        points = _divide_edges(degrees, step)
        return box.flattened(points[:, 1], points[:, 0]) / METRES[grid.unit]

    finest = MIN_POINT_SPACING * max(plane[2:])
    areas = []
    lines = []
    names: list[tuple[str, float, float]] = []
    for kind, coordinates, where, name in shapes:
        if kind == "Point" and name and len(names) < max_names:
            ((east, north),) = projected(_positions([coordinates], where))
            if 0.0 <= east <= plane[2] and 0.0 <= north <= plane[3]:
                names.append((name, float(east), float(north)))
        elif kind == "LineString":
            for piece in clip_line(_positions(coordinates, where), degrees_around):
                lines += [_thin_points(part, finest) for part in clip_line(projected(piece), plane)]
        elif kind == "Polygon":
            rings = [
                _clip_area(_ring(ring, where), degrees_around, plane, projected)
                for ring in _check_list(coordinates, where)
            ]
            if rings and len(rings[0]):
                holes = [
                    _wind_ring(_thin_points(ring, finest), False) for ring in rings[1:] if len(ring)
                ]
                areas.append((_wind_ring(_thin_points(rings[0], finest), True), *holes))
    count = sum(len(ring) for area in areas for ring in area) + sum(map(len, lines))
    if count > MAX_DRAWN_POINTS:
        raise InputError(
            f"it has {count:,} points on the map, and up to {MAX_DRAWN_POINTS:,} are "
            "drawn; simplify it first."
        )
    return Background(tuple(areas), tuple(lines), tuple(names), source)


def around_of(grid: Grid) -> Rectangle:
    """Degrees that certainly contain the grid, so that distant shapes need no projection."""
    edges = np.linspace(0.0, 1.0, 17)
    across, up = np.meshgrid(edges * grid.width * grid.cell, edges * grid.height * grid.cell)
    latitudes, longitudes = grid.degrees(np.stack([across, up], axis=-1).reshape(-1, 2))
    wide = float(np.ptp(longitudes))
    high = float(np.ptp(latitudes))
    return (
        float(longitudes.min()) - 0.1 * wide,
        float(latitudes.min()) - 0.1 * high,
        float(longitudes.max()) + 0.1 * wide,
        float(latitudes.max()) + 0.1 * high,
    )


# Reading


def _geometries(value: object, where: str, depth: int = 0, name: str = "") -> Iterator[Shape]:
    """Yield each single line, area and point."""
    if depth > MAX_NESTING:
        raise InputError("collections are nested too deeply.")
    members: dict[str, object] = value if isinstance(value, dict) else {}
    kind = members.get("type")
    if kind == "FeatureCollection":
        for index, feature in enumerate(
            _check_list(members.get("features"), f"features of {where}")
        ):
            yield from _geometries(feature, f"feature {index} (counting from 0)", depth + 1)
    elif kind == "Feature":
        if members.get("geometry") is not None:
            yield from _geometries(members["geometry"], where, depth + 1, _feature_name(members))
    elif kind == "GeometryCollection":
        for part in _check_list(members.get("geometries"), where):
            yield from _geometries(part, where, depth + 1, name)
    elif kind in ("MultiPoint", "MultiLineString", "MultiPolygon"):
        for part in _check_list(members.get("coordinates"), where):
            yield str(kind).removeprefix("Multi"), part, where, name
    elif kind in ("Point", "LineString", "Polygon"):
        yield str(kind), members.get("coordinates"), where, name
    else:
        raise InputError(
            f"{where} has the type {str(kind)[:40]!r}, which is not a GeoJSON type "
            "(FeatureCollection, Feature, Polygon, ...)."
        )


def _feature_name(feature: dict[str, object]) -> str:
    """The property `name` as one printable line, cut where it is long, or an empty text."""
    properties = feature.get("properties")
    name = properties.get("name") if isinstance(properties, dict) else None
    if not isinstance(name, str):
        return ""
    line = "".join(letter if letter.isprintable() else " " for letter in name).strip()
    return line if len(line) <= MAX_NAME_LENGTH else f"{line[: MAX_NAME_LENGTH - 1]}…"


def _check_list(value: object, where: str) -> list[Any]:
    if not isinstance(value, list):
        raise InputError(f"{where} should hold a list, got {type(value).__name__}.")
    return value


def _positions(value: object, where: str) -> Floats:
    """Return [longitude, latitude] pairs; altitudes are dropped."""
    try:
        pairs = [position[:2] for position in _check_list(value, where)]
        points = np.array(pairs, dtype=np.float64).reshape(-1, 2) if pairs else np.empty((0, 2))
        if len(points) != len(pairs):
            raise ValueError
    except (TypeError, ValueError, KeyError):
        raise InputError(f"the coordinates of {where} are not pairs of numbers.") from None
    if len(points) and not (np.isfinite(points) & (np.abs(points) <= (360.0, 90.0))).all():
        outside = points[int(np.argmax(~(np.abs(points) <= (360.0, 90.0)).all(axis=1)))].tolist()
        raise InputError(
            f"{where} has the position {outside}; GeoJSON has longitude and latitude in "
            "degrees, in this order (RFC 7946)."
        )
    return points


def _ring(value: object, where: str) -> Floats:
    points = _positions(value, where)
    if len(points) < 4:
        raise InputError(
            f"{where} has a ring of {len(points)} positions; a closed ring has at least four."
        )
    return points


# Geometry


def _clip_area(
    ring: Floats, around: Rectangle, plane: Rectangle, projected: Callable[[Floats], Floats]
) -> Floats:
    nearby = clip_ring(ring, around)
    return clip_ring(projected(nearby), plane) if len(nearby) else nearby


def clip_ring(ring: Floats, within: Rectangle) -> Floats:
    """Clip an area to a rectangle (Sutherland and Hodgman): a closed ring, or empty."""
    if _is_outside(ring, within):
        return np.empty((0, 2))
    points = ring[:-1] if len(ring) > 1 and np.array_equal(ring[0], ring[-1]) else ring
    for axis, bound, sign in (
        (0, within[0], 1.0),
        (1, within[1], 1.0),
        (0, within[2], -1.0),
        (1, within[3], -1.0),
    ):
        if not len(points):
            break
        after = np.roll(points, -1, axis=0)
        beyond = sign * (points[:, axis] - bound)
        beyond_after = sign * (after[:, axis] - bound)
        inside = beyond >= 0.0
        crossing = (beyond >= 0.0) != (beyond_after >= 0.0)
        with np.errstate(divide="ignore", invalid="ignore"):
            share = np.where(crossing, beyond / (beyond - beyond_after), 0.0)
        met = points + share[:, None] * (after - points)
        met[:, axis] = np.where(crossing, bound, met[:, axis])
        points = np.stack([points, met], axis=1)[np.stack([inside, crossing], axis=1)]
    return np.concatenate([points, points[:1]]) if len(points) >= 3 else np.empty((0, 2))


def clip_line(points: Floats, within: Rectangle) -> list[Floats]:
    """Clip a line to a rectangle (Liang and Barsky): the pieces inside."""
    if len(points) < 2 or _is_outside(points, within):
        return []
    start = points[:-1]
    move = np.diff(points, axis=0)
    first = np.zeros(len(start))
    last = np.ones(len(start))
    low = np.array(within[:2])
    high = np.array(within[2:])
    for axis in (0, 1):
        along = move[:, axis]
        at = start[:, axis]
        still = along == 0.0
        with np.errstate(divide="ignore", invalid="ignore"):
            ends = np.sort(np.stack([(low[axis] - at) / along, (high[axis] - at) / along]), axis=0)
        outside = still & ((at < low[axis]) | (at > high[axis]))
        first = np.where(outside, 2.0, np.where(still, first, np.maximum(first, ends[0])))
        last = np.where(still, last, np.minimum(last, ends[1]))
    segments = np.flatnonzero(first <= last)
    begins, ends_at = (
        start[segments] + at[segments, None] * move[segments] for at in (first, last)
    )
    # A piece continues if one segment is inside up to its end and the next from its beginning.
    goes_on = (np.diff(segments) == 1) & (last[segments[:-1]] == 1.0) & (first[segments[1:]] == 0.0)
    pieces = np.split(np.arange(len(segments)), np.flatnonzero(~goes_on) + 1)
    return [
        np.clip(np.concatenate([begins[piece[:1]], ends_at[piece]]), low, high)
        for piece in pieces
        if len(piece)
    ]


def _is_outside(points: Floats, within: Rectangle) -> bool:
    """Whether all points lie on one side of a rectangle, as most of a large file does."""
    (left, bottom), (right, top) = points.min(axis=0), points.max(axis=0)
    return bool(right < within[0] or top < within[1] or left > within[2] or bottom > within[3])


def _divide_edges(points: Floats, step: float) -> Floats:
    """Add points to a line so that none is farther than `step` from the next."""
    moves = np.diff(points, axis=0)
    times = np.maximum(1, np.ceil(np.abs(moves).max(axis=1, initial=0.0) / step)).astype(np.int64)
    index = np.repeat(np.arange(len(moves)), times)
    share = (np.arange(len(index)) - np.repeat(np.cumsum(times) - times, times)) / times[index]
    return np.concatenate([points[index] + share[:, None] * moves[index], points[-1:]])


def _thin_points(points: Floats, finest: float) -> Floats:
    """Drop points in the same cell of size `finest` as their predecessor; keep both ends."""
    if len(points) <= 5:
        return points
    mask = np.any(np.diff(np.floor(points / finest), axis=0, prepend=-1.0) != 0.0, axis=1)
    mask[[0, -1]] = True
    return points[mask]


def _wind_ring(ring: Floats, counter_clockwise: bool) -> Floats:
    """Return the ring in the given orientation; files use both orientations."""
    (x, y), (ahead, up) = ring[:-1].T, ring[1:].T
    return ring if (float(np.sum(x * up - ahead * y)) > 0.0) == counter_clockwise else ring[::-1]
