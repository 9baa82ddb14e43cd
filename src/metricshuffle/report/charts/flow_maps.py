"""Maps of flows: tapered lines from start to end, and discs for flows within a zone."""

from __future__ import annotations

import math

import numpy as np

from metricshuffle.numerics.types import Floats, Mask
from metricshuffle.report.charts.map_layers import Background
from metricshuffle.report.charts.release_maps import ShadedParts, View, grid_of_box, shaded_map
from metricshuffle.report.charts.vega import Spec
from metricshuffle.report.charts.zone_maps import (
    DISC_CORNERS,
    flat_points,
    outlines_of,
    zones_plane,
)
from metricshuffle.spaces import Zones

MAX_FLOWS_DRAWN = 300
"""Maximum number of flows drawn, the largest first; more lines would hide each other."""
WIDEST_FLOW = 9.0  # pixels at the start of the largest flow
TAPER = 0.15
"""Width of a line at its end, as a fraction of that at its start."""
BEND = 0.12
"""How far a line bends to its right, as a fraction of its length; this separates directions."""
MAX_BEND = 11.0  # pixels: lines stay inside the map
LINE_POINTS = 9
FLOW_WORDS = ("wide line", "thin or blank")


def flows_map(
    zones: Zones,
    places: Floats,
    shares: Floats,
    zero_inside: Mask | None,
    level: str,
    of: str,
    background: Background | None = None,
    *,
    narrow: bool = False,
) -> Spec:
    """Map of the largest flows between places (longitude, latitude), over borders of zones.

    The larger the share of a flow, the wider and stronger its line, which narrows from start to
    end. A flow whose interval contains zero is half as wide.
    """
    plane = zones_plane(zones)
    grid = grid_of_box(plane)
    view = View.of(grid, narrow)
    points = view.at(flat_points(grid, plane, places))
    drawn = largest_flows(shares)
    widths = WIDEST_FLOW * np.sqrt(np.maximum(shares, 0.0) / max(float(shares.max()), 1e-300))

    def rings(mask: Mask, small: bool) -> list[list[Floats]]:
        scale = 0.5 if small else 1.0
        codes = np.flatnonzero(mask & drawn)
        starts, ends = np.divmod(codes[np.argsort(-shares[codes], kind="stable")], len(places))
        return [
            [flow_outline(points[start], points[end], scale * float(widths[code]))]
            for start, end, code in zip(starts, ends, starts * len(places) + ends, strict=True)
        ]

    centres = flat_points(grid, plane, zones.degrees[:, ::-1])
    lines = [
        view.at(ring)
        for polygons in outlines_of(zones, grid, plane, centres)
        for polygon in polygons
        for ring in polygon
    ]
    parts = ShadedParts(rings, lines, FLOW_WORDS)
    return shaded_map(view, shares, zero_inside, level, of, parts, background)


def largest_flows(shares: Floats) -> Mask:
    """Mask of the flows that are drawn."""
    drawn = np.zeros(len(shares), dtype=np.bool_)
    drawn[np.argsort(-shares, kind="stable")[:MAX_FLOWS_DRAWN]] = True
    return drawn & (shares > 0.0)


def flow_outline(start: Floats, end: Floats, width: float) -> Floats:
    """Ring, in pixels, around a curved line that narrows to its end; a disc if both ends agree."""
    along = end - start
    length = float(np.hypot(*along))
    if length == 0.0:
        angles = np.linspace(0.0, 2.0 * math.pi, DISC_CORNERS + 1)
        return np.asarray(start + 0.5 * width * np.column_stack([np.cos(angles), np.sin(angles)]))
    right = np.array([-along[1], along[0]]) / length
    part = np.linspace(0.0, 1.0, LINE_POINTS)[:, None]
    bend = min(BEND * length, MAX_BEND)
    middle = start + part * along + 4.0 * bend * part * (1.0 - part) * right
    half = 0.5 * width * (1.0 - (1.0 - TAPER) * part)
    ring = np.concatenate([middle + half * right, (middle - half * right)[::-1]])
    return np.asarray(np.concatenate([ring, ring[:1]]))
