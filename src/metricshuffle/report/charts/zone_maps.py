"""Maps of zones: polygons and cells by their borders, points as discs."""

from __future__ import annotations

import math

import numpy as np

from metricshuffle.numerics.types import Floats, Mask
from metricshuffle.report.charts.map_layers import Background
from metricshuffle.report.charts.map_scales import MAX_BORDERED_CELLS
from metricshuffle.report.charts.release_maps import ShadedParts, View, grid_of_box, shaded_map
from metricshuffle.report.charts.vega import Spec
from metricshuffle.spaces import Grid, Places, Zones
from metricshuffle.spaces.geographic_box import HIGHEST_LATITUDE
from metricshuffle.spaces.grid import METRES

MARGIN = 0.03  # of the longer side, around all zones
DISC_CORNERS = 12
DISC_SHARE = 0.45
"""Radius of the disc of a point, as a fraction of the distance to the nearest other point."""
LARGEST_DISC = 0.02  # of the map's longer side
SMALLER_ZONE = 0.5
"""Scale of a zone whose interval contains zero, about its representative point."""
ZONE_WORDS = ("full zone", "smaller or blank")


def zones_map(
    zones: Zones,
    shares: Floats,
    zero_inside: Mask | None,
    level: str,
    of: str,
    background: Background | None = None,
    *,
    narrow: bool = False,
) -> Spec:
    """Map of shares of zones: the larger the share, the stronger the colour.

    A zone whose interval contains zero is drawn smaller, around the point that represents it.
    """
    plane = zones_plane(zones)
    grid = grid_of_box(plane)
    view = View.of(grid, narrow)
    centres = flat_points(grid, plane, zones.degrees[:, ::-1])
    outlines = outlines_of(zones, grid, plane, centres)

    def rings(mask: Mask, small: bool) -> list[list[Floats]]:
        scale = SMALLER_ZONE if small else 1.0
        return [
            [view.at(centres[code] + scale * (ring - centres[code])) for ring in polygon]
            for code in np.flatnonzero(mask)
            for polygon in outlines[code]
        ]

    lines = [
        view.at(ring)
        for polygons in outlines
        if len(outlines) <= 10 * MAX_BORDERED_CELLS
        for polygon in polygons
        for ring in polygon
    ]
    parts = ShadedParts(rings, lines, ZONE_WORDS)
    return shaded_map(view, shares, zero_inside, level, of, parts, background)


def zones_plane(zones: Zones) -> Places:
    """Box around all zones, with a margin."""
    corners = np.concatenate(
        [zones.degrees[:, ::-1]]
        + [ring for polygons in zones.borders() for polygon in polygons for ring in polygon]
    )
    (west, south), (east, north) = corners.min(axis=0), corners.max(axis=0)
    margin = MARGIN * max(east - west, north - south)
    return Places(
        max(float(south - margin), -HIGHEST_LATITUDE),
        max(float(west - margin), -180.0),
        min(float(north + margin), HIGHEST_LATITUDE),
        min(float(east + margin), 180.0),
        zones.unit,
    )


def flat_points(grid: Grid, plane: Places, places: Floats) -> Floats:
    """Points (longitude, latitude) in units from the south-west corner of the map."""
    if grid.box is not None:
        return plane.box.flattened(places[:, 1], places[:, 0]) / METRES[plane.unit]
    latitude, longitude = plane.middle_metres
    offsets = places - (plane.west, plane.south)
    flat: Floats = offsets * (longitude, latitude) / METRES[plane.unit]
    return flat


def outlines_of(
    zones: Zones, grid: Grid, plane: Places, centres: Floats
) -> list[list[list[Floats]]]:
    """Polygons of each zone as rings on the map; discs around points without borders."""
    borders = zones.borders()
    if borders:
        return [
            [[flat_points(grid, plane, ring) for ring in polygon] for polygon in polygons]
            for polygons in borders
        ]
    angles = np.linspace(0.0, 2.0 * math.pi, DISC_CORNERS + 1)
    circle = np.column_stack([np.cos(angles), np.sin(angles)])
    largest = LARGEST_DISC * grid.cell * max(grid.width, grid.height)
    radii = np.minimum(DISC_SHARE * zones.nearest, largest)
    return [[[centre + radius * circle]] for centre, radius in zip(centres, radii, strict=True)]
