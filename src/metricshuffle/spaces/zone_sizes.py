"""Sizes of zones: how far a place can be from the point that represents its zone."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from metricshuffle.spaces.cell_systems import CellSystem
from metricshuffle.spaces.metrics import Haversine
from metricshuffle.spaces.places import metres_at
from metricshuffle.spaces.polygons import POINTS_IN_DEGREE, Shape, corners_of

SPHERE_ERROR = 1.005
"""Largest quotient of a distance on WGS84 and on the sphere of H3 and S2 (1.0045), rounded up."""


def largest_reach(shapes: Sequence[Shape], points: Sequence[tuple[int, int]]) -> float:
    """Upper bound in metres on the distance from the point of a zone to a place in it."""
    return max(
        (_reach(shape, point) for shape, point in zip(shapes, points, strict=True)), default=0.0
    )


def largest_cell(
    system: CellSystem, cells: Sequence[str], points: Sequence[Sequence[float]]
) -> float:
    """Upper bound in metres on the distance from the point of a cell to a place in it."""
    sphere = Haversine("m")
    radius = max(
        float(sphere.pairwise([list(point)], list(system.border(cell))).max())
        for cell, point in zip(cells, points, strict=True)
    )
    return float(math.ceil(radius * SPHERE_ERROR))


def _reach(shape: Shape, point: tuple[int, int]) -> float:
    """Upper bound in metres on the distance on the ground from a point to places of a shape.

    Statement: let k_y and k_x be the largest lengths in metres of a degree of latitude and of
    longitude in the box around shape and point. A straight line in the plane of degrees that spans
    y degrees of latitude and x of longitude is at most hypot(k_y y, k_x x) long on the ground. This
    is a norm, so its maximum over the shape is at a corner.
    """
    corners = np.concatenate([corners_of(shape), [point]]) / float(POINTS_IN_DEGREE)
    latitudes = np.abs(corners[:, 1])
    crosses = bool(corners[:, 1].min() < 0.0 < corners[:, 1].max())
    tallest = metres_at(float(latitudes.max()))[0]
    widest = metres_at(0.0 if crosses else float(latitudes.min()))[1]
    away = np.abs(corners - corners[-1])
    longest = float(np.hypot(away[:, 0] * widest, away[:, 1] * tallest).max())
    return float(math.ceil(longest * (1.0 + 1e-9)))
