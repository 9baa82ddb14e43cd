"""Overlaps of the shapes of different zones, up to the rounding of files."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from metricshuffle.errors import InputError
from metricshuffle.models import format_value
from metricshuffle.numerics.types import Floats, Mask
from metricshuffle.spaces.polygons import (
    POINTS_IN_DEGREE,
    Shape,
    contains,
    edges_of,
)

ROUNDING_DEPTH = 1e-5 * POINTS_IN_DEGREE
"""Overlaps that are no deeper, about a metre, are due to rounding: most files have some."""
SLIVER_DEPTH = 5e-4 * POINTS_IN_DEGREE
SLIVER_SHARE = 0.005
"""Borders that were drawn twice overlap in slivers: up to about 50 m deep, and this part of a side
of the smaller zone."""
EDGES_AT_ONCE = 256


def check_overlaps(
    ids: Sequence[str], shapes: Sequence[Shape], inner_points: Sequence[tuple[int, int]]
) -> None:
    """Raise InputError if the shapes of two zones overlap; borders may be shared.

    Two shapes overlap if their borders cross, or if one contains a corner, the middle of an edge or
    the inner point of the other, by more than a sliver (`_sliver_depths`). Only shapes whose
    bounding boxes overlap are compared.
    """
    edges = [np.hstack(edges_of(shape)).astype(np.float64) for shape in shapes]
    bounds = np.array([_box(rows) for rows in edges])
    order = np.argsort(bounds[:, 0], kind="stable")
    wests = bounds[order, 0]
    points = [
        np.vstack([rows[:, :2], np.rint(0.5 * (rows[:, :2] + rows[:, 2:])), [inner]])
        for rows, inner in zip(edges, inner_points, strict=True)
    ]
    widest = float(np.max(bounds[:, 2] - bounds[:, 0]))
    depths = _sliver_depths(bounds)
    for index, shape in enumerate(shapes):
        west, south, east, north = bounds[index]
        first, last = np.searchsorted(wests, [west - widest, east])
        others = order[first:last]
        others = others[
            (bounds[others, 2] > west)
            & (bounds[others, 1] < north)
            & (bounds[others, 3] > south)
            & (others != index)
        ]
        if len(others) == 0:
            continue
        later = others[others > index]
        allowed = np.minimum(depths[others], depths[index])
        place = _deep_point(
            shape, edges[index], bounds[index], [points[o] for o in others], allowed
        )
        if place is None and len(later):
            place = _crossing(
                edges[index], [edges[o] for o in later], np.minimum(depths[later], depths[index])
            )
            others = later
        if place is not None:
            longitude, latitude = place[1] / POINTS_IN_DEGREE
            first, second = sorted((index, int(others[place[0]])))
            raise InputError(
                f"zones {format_value(ids[first])} and {format_value(ids[second])} overlap "
                f"near latitude {latitude:.5f}, longitude {longitude:.5f}, where a place would "
                "have two zones; correct the polygons, or merge the two zones.",
                field="zones",
            )


def _sliver_depths(bounds: Floats) -> Floats:
    """Depth of overlaps that each shape may have, by its bounding box."""
    sides = np.sqrt((bounds[:, 2] - bounds[:, 0]) * (bounds[:, 3] - bounds[:, 1]))
    return np.clip(SLIVER_SHARE * sides, ROUNDING_DEPTH, SLIVER_DEPTH)


def _in_box(edges: Floats, west: float, south: float, east: float, north: float) -> Mask:
    """Mask of the edges whose bounding boxes meet a box."""
    return np.asarray(
        (np.minimum(edges[:, 0], edges[:, 2]) <= east)
        & (np.maximum(edges[:, 0], edges[:, 2]) >= west)
        & (np.minimum(edges[:, 1], edges[:, 3]) <= north)
        & (np.maximum(edges[:, 1], edges[:, 3]) >= south)
    )


def _box(edges: Floats) -> tuple[float, float, float, float]:
    corners = edges[:, :2]
    west, south = corners.min(axis=0)
    east, north = corners.max(axis=0)
    return float(west), float(south), float(east), float(north)


def _crossing(
    first: Floats, others: Sequence[Floats], allowed: Floats
) -> tuple[int, Floats] | None:
    """Index of a border that deeply crosses the first border, and a corner near; or None."""
    theirs = np.vstack(others)
    met = _in_box(theirs, *_box(first))
    theirs = theirs[met]
    owners = np.repeat(np.arange(len(others)), [len(rows) for rows in others])[met]
    for start in range(0, len(first), EDGES_AT_ONCE):
        part = first[start : start + EDGES_AT_ONCE]
        close = np.flatnonzero(_in_box(theirs, *_box(part.reshape(-1, 2))))
        neighbours, depths = theirs[close], allowed[owners[close]]
        crossed = (_depths(part, neighbours, depths) < 0.0) & (
            _depths(neighbours, part, depths[:, None]).T < 0.0
        )
        if crossed.any():
            edge, crossing = (int(place) for place in np.argwhere(crossed)[0])
            return int(owners[close[crossing]]), np.asarray(part[edge, :2])
    return None


def _depths(edges: Floats, others: Floats, allowed: Floats) -> Floats:
    """Negative where the ends of another edge (column) lie deeply on both sides of an edge (row).

    "Deeply" means farther than allowed from the line of the edge (row).
    """
    along = edges[:, 2:] - edges[:, :2]
    lengths = np.hypot(along[:, 0], along[:, 1])[:, None]
    sides = []
    for end in (others[:, :2], others[:, 2:]):
        across = end[None, :, :] - edges[:, None, :2]
        turns = along[:, None, 0] * across[..., 1] - along[:, None, 1] * across[..., 0]
        sides.append(np.where(np.abs(turns) > allowed * lengths, np.sign(turns), 0.0))
    return np.asarray(sides[0] * sides[1])


def _deep_point(
    shape: Shape, edges: Floats, bounds: Floats, others: Sequence[Floats], allowed: Floats
) -> tuple[int, Floats] | None:
    """Index of another shape with a point deeply inside this one, and that point; or None."""
    west, south, east, north = bounds
    points = np.vstack(others)
    owners = np.repeat(np.arange(len(others)), [len(rows) for rows in others])
    depths = allowed[owners]
    close = np.flatnonzero(
        (points[:, 0] > west + depths)
        & (points[:, 0] < east - depths)
        & (points[:, 1] > south + depths)
        & (points[:, 1] < north - depths)
    )
    if not len(close):
        return None
    close = close[contains(shape, points[close].astype(np.int64))]
    starts, along = edges[:, :2], edges[:, 2:] - edges[:, :2]
    squares = np.maximum((along**2).sum(axis=1), 1.0)
    for index in close.tolist():
        away = points[index] - starts
        shares = np.clip((away * along).sum(axis=1) / squares, 0.0, 1.0)
        border = away - shares[:, None] * along
        if float(np.hypot(border[:, 0], border[:, 1]).min()) > depths[index]:
            return int(owners[index]), points[index]
    return None
