"""A background for maps from somebody's GeoJSON file: its lines and areas, projected and cut to the grid."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from metricshuffle.errors import InputError
from metricshuffle.files import read_bytes
from metricshuffle.numerics.types import Floats
from metricshuffle.report.charts.release_maps import Background
from metricshuffle.spaces import Box, Grid
from metricshuffle.spaces.grid import METRES

MAX_FILE_BYTES = 64 * 2**20
MAX_DRAWN_POINTS = 100_000  # that are drawn
MIN_POINT_SPACING = 1.0 / 2000.0  # of the map: points closer than that to the last one would not be seen
MAX_EDGE_LENGTH = 1.0 / 32.0  # of the map: straight lines of degrees are curved on a plane, so longer ones are divided
MAX_NESTING = 8  # collections within collections
GEOMETRIES = ("Point", "MultiPoint", "LineString", "MultiLineString", "Polygon", "MultiPolygon", "GeometryCollection")

Rectangle = tuple[float, float, float, float]
"""left, bottom, right, top."""


def read_background(path: Path, grid: Grid) -> Background:
    """What of the file lies on the grid; points are left out. A sentence if it is no GeoJSON, or too much to draw."""
    if grid.box is None:
        raise InputError("a background needs a release on a map: the grid of this one has no latitudes and longitudes.")
    too_large = InputError(f"{path} has more than {MAX_FILE_BYTES // 2**20} MB; cut it to the map or simplify it first.")
    if path.is_file() and path.stat().st_size > MAX_FILE_BYTES:
        raise too_large
    content = read_bytes(path)
    if len(content) > MAX_FILE_BYTES:  # a pipe does not tell before
        raise too_large
    try:
        read = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path} is not GeoJSON: it cannot be read as JSON ({error}).") from None
    try:
        shapes = list(_geometries(read, "the file"))
        return _on_grid(shapes, grid, grid.box)
    except InputError as error:
        raise InputError(f"cannot use {path} as a background: {error}") from None


def _on_grid(shapes: list[tuple[str, Any, str]], grid: Grid, box: Box) -> Background:
    plane: Rectangle = (0.0, 0.0, grid.width * grid.cell, grid.height * grid.cell)
    degrees_around = _around(grid)
    step = max(degrees_around[2] - degrees_around[0], degrees_around[3] - degrees_around[1]) * MAX_EDGE_LENGTH

    def projected(degrees: Floats) -> Floats:
        points = _divide_edges(degrees, step)
        return box.flattened(points[:, 1], points[:, 0]) / METRES[grid.unit]

    finest = MIN_POINT_SPACING * max(plane[2:])
    areas, lines = [], []
    for kind, coordinates, where in shapes:
        if kind == "LineString":
            for piece in clip_line(_positions(coordinates, where), degrees_around):
                lines += [_thin_points(part, finest) for part in clip_line(projected(piece), plane)]
        elif kind == "Polygon":
            rings = [_clip_area(_ring(ring, where), degrees_around, plane, projected) for ring in _check_list(coordinates, where)]
            if rings and len(rings[0]):
                holes = [_wind_ring(_thin_points(ring, finest), False) for ring in rings[1:] if len(ring)]
                areas.append((_wind_ring(_thin_points(rings[0], finest), True), *holes))
    count = sum(len(ring) for area in areas for ring in area) + sum(map(len, lines))
    if count > MAX_DRAWN_POINTS:
        raise InputError(f"it has {count:,} points on the map, and up to {MAX_DRAWN_POINTS:,} are drawn; simplify it first.")
    return Background(tuple(areas), tuple(lines))


def _around(grid: Grid) -> Rectangle:
    """Degrees that are certainly around the grid, so that what lies far away need not be projected."""
    edges = np.linspace(0.0, 1.0, 17)
    across, up = np.meshgrid(edges * grid.width * grid.cell, edges * grid.height * grid.cell)
    latitudes, longitudes = grid.degrees(np.stack([across, up], axis=-1).reshape(-1, 2))
    wide, high = float(np.ptp(longitudes)), float(np.ptp(latitudes))
    return (
        float(longitudes.min()) - 0.1 * wide, float(latitudes.min()) - 0.1 * high,
        float(longitudes.max()) + 0.1 * wide, float(latitudes.max()) + 0.1 * high,
    )  # fmt: skip


# Reading


def _geometries(value: Any, where: str, depth: int = 0) -> Iterator[tuple[str, Any, str]]:
    """(kind, coordinates, where) of lines and areas, single ones."""
    if depth > MAX_NESTING:
        raise InputError("collections are nested too deeply.")
    kind = value.get("type") if isinstance(value, dict) else None
    if kind == "FeatureCollection":
        for index, feature in enumerate(_check_list(value.get("features"), f"features of {where}")):
            yield from _geometries(feature, f"feature {index} (counting from 0)", depth + 1)
    elif kind == "Feature":
        if value.get("geometry") is not None:
            yield from _geometries(value["geometry"], where, depth + 1)
    elif kind == "GeometryCollection":
        for part in _check_list(value.get("geometries"), where):
            yield from _geometries(part, where, depth + 1)
    elif kind in ("MultiLineString", "MultiPolygon"):
        for part in _check_list(value.get("coordinates"), where):
            yield kind.removeprefix("Multi"), part, where
    elif kind in ("LineString", "Polygon"):
        yield kind, value.get("coordinates"), where
    elif kind not in GEOMETRIES:
        raise InputError(f"{where} has the type {str(kind)[:40]!r}, which is none of GeoJSON (FeatureCollection, Feature, Polygon, ...).")


def _check_list(value: Any, where: str) -> list[Any]:
    if not isinstance(value, list):
        raise InputError(f"{where} should hold a list, got {type(value).__name__}.")
    return value


def _positions(value: Any, where: str) -> Floats:
    """[longitude, latitude] pairs; heights are left out."""
    try:
        pairs = [position[:2] for position in _check_list(value, where)]
        points = np.array(pairs, dtype=np.float64).reshape(-1, 2) if pairs else np.empty((0, 2))
        if len(points) != len(pairs):
            raise ValueError
    except (TypeError, ValueError, KeyError):
        raise InputError(f"the coordinates of {where} are not pairs of numbers.") from None
    if len(points) and not (np.isfinite(points) & (np.abs(points) <= (360.0, 90.0))).all():
        outside = points[int(np.argmax(~(np.abs(points) <= (360.0, 90.0)).all(axis=1)))].tolist()
        raise InputError(f"{where} has the position {outside}; GeoJSON has longitude and latitude in degrees, in this order (RFC 7946).")
    return points


def _ring(value: Any, where: str) -> Floats:
    points = _positions(value, where)
    if len(points) < 4:
        raise InputError(f"{where} has a ring of {len(points)} positions; a closed ring has at least four.")
    return points


# Geometry


def _clip_area(ring: Floats, around: Rectangle, plane: Rectangle, projected: Any) -> Floats:
    nearby = clip_ring(ring, around)
    return clip_ring(projected(nearby), plane) if len(nearby) else nearby


def clip_ring(ring: Floats, within: Rectangle) -> Floats:
    """What of an area lies in a rectangle, as a closed ring (Sutherland and Hodgman); empty if nothing does."""
    if _is_outside(ring, within):
        return np.empty((0, 2))
    points = ring[:-1] if len(ring) > 1 and np.array_equal(ring[0], ring[-1]) else ring
    for axis, bound, sign in ((0, within[0], 1.0), (1, within[1], 1.0), (0, within[2], -1.0), (1, within[3], -1.0)):
        if not len(points):
            break
        after = np.roll(points, -1, axis=0)
        beyond, beyond_after = sign * (points[:, axis] - bound), sign * (after[:, axis] - bound)
        inside, crossing = beyond >= 0.0, (beyond >= 0.0) != (beyond_after >= 0.0)
        with np.errstate(divide="ignore", invalid="ignore"):
            share = np.where(crossing, beyond / (beyond - beyond_after), 0.0)
        met = points + share[:, None] * (after - points)
        met[:, axis] = np.where(crossing, bound, met[:, axis])
        points = np.stack([points, met], axis=1)[np.stack([inside, crossing], axis=1)]
    return np.concatenate([points, points[:1]]) if len(points) >= 3 else np.empty((0, 2))


def clip_line(points: Floats, within: Rectangle) -> list[Floats]:
    """The pieces of a line that lie in a rectangle (Liang and Barsky)."""
    if len(points) < 2 or _is_outside(points, within):
        return []
    start, move = points[:-1], np.diff(points, axis=0)
    first, last = np.zeros(len(start)), np.ones(len(start))
    low, high = np.array(within[:2]), np.array(within[2:])
    for axis in (0, 1):
        along, at = move[:, axis], start[:, axis]
        still = along == 0.0
        with np.errstate(divide="ignore", invalid="ignore"):
            ends = np.sort(np.stack([(low[axis] - at) / along, (high[axis] - at) / along]), axis=0)
        outside = still & ((at < low[axis]) | (at > high[axis]))
        first = np.where(outside, 2.0, np.where(still, first, np.maximum(first, ends[0])))
        last = np.where(still, last, np.minimum(last, ends[1]))
    segments = np.flatnonzero(first <= last)
    begins, ends_at = (start[segments] + at[segments, None] * move[segments] for at in (first, last))
    # a piece goes on where one segment is whole up to its end and the next from its beginning
    goes_on = (np.diff(segments) == 1) & (last[segments[:-1]] == 1.0) & (first[segments[1:]] == 0.0)
    pieces = np.split(np.arange(len(segments)), np.flatnonzero(~goes_on) + 1)
    return [np.clip(np.concatenate([begins[piece[:1]], ends_at[piece]]), low, high) for piece in pieces if len(piece)]


def _is_outside(points: Floats, within: Rectangle) -> bool:
    """Whether all points lie on one side of a rectangle: most of a large file does."""
    (left, bottom), (right, top) = points.min(axis=0), points.max(axis=0)
    return bool(right < within[0] or top < within[1] or left > within[2] or bottom > within[3])


def _divide_edges(points: Floats, step: float) -> Floats:
    """The same line with more points, none farther than `step` from the next."""
    moves = np.diff(points, axis=0)
    times = np.maximum(1, np.ceil(np.abs(moves).max(axis=1, initial=0.0) / step)).astype(np.int64)
    index = np.repeat(np.arange(len(moves)), times)
    share = (np.arange(len(index)) - np.repeat(np.cumsum(times) - times, times)) / times[index]
    return np.concatenate([points[index] + share[:, None] * moves[index], points[-1:]])


def _thin_points(points: Floats, finest: float) -> Floats:
    """Without the points that fall on the same spot as the one before, to so fine a grid; the ends stay."""
    if len(points) <= 5:
        return points
    mask = np.any(np.diff(np.floor(points / finest), axis=0, prepend=-1.0) != 0.0, axis=1)
    mask[[0, -1]] = True
    return points[mask]


def _wind_ring(ring: Floats, counter_clockwise: bool) -> Floats:
    """The ring that way round; files differ."""
    (x, y), (ahead, up) = ring[:-1].T, ring[1:].T
    return ring if (float(np.sum(x * up - ahead * y)) > 0.0) == counter_clockwise else ring[::-1]
