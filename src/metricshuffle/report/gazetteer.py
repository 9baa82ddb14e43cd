"""Background of a map from the distribution `metricshuffle-places`: borders and names of towns."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

import numpy as np

from metricshuffle.errors import InputError, MissingExtra
from metricshuffle.report.map_background import (
    Rectangle,
    Shape,
    around_of,
    background_on,
    boxed,
    read_background,
)
from metricshuffle.spaces.grid import METRES

if TYPE_CHECKING:
    from metricshuffle.report.charts.map_layers import Background
    from metricshuffle.spaces import Grid

GAZETTEER = Path("places")
"""Background that is no file but the data of metricshuffle-places."""
MAX_TOWNS = 15
"""Names on one map; more would hide its colours."""
OUTLINED_METRES = 100_000.0
"""Maps below this size have no outlines, which would be wrong by a visible part of the map."""


def load_background(source: Path, grid: Grid) -> Background:
    """Return the background of a map from a GeoJSON file, or from the gazetteer for "places"."""
    return draw_gazetteer(grid) if source == GAZETTEER else read_background(source, grid)


def require_places() -> ModuleType:
    """Import the data; raises MissingExtra with what to install."""
    try:
        return import_module("metricshuffle_places")
    except ImportError as missing:
        raise MissingExtra(
            "Names of places and maps that can be panned are in the distribution "
            "metricshuffle-places; install it with: pip install metricshuffle-places"
        ) from missing


def draw_gazetteer(grid: Grid) -> Background:
    """Return the largest towns on a map and, on maps of 100 km and more, coasts and borders."""
    places = require_places()
    box = boxed(grid)
    outlined = max(grid.width, grid.height) * grid.cell * METRES[grid.unit] >= OUTLINED_METRES
    shapes = [
        shape for shape in places_around(places, around_of(grid)) if outlined or shape[0] == "Point"
    ]
    try:
        return background_on(shapes, grid, box, max_names=MAX_TOWNS, source=places.SOURCE)
    except InputError as error:
        raise InputError(f"the outlines cannot be drawn: {error}") from None


def places_around(places: ModuleType, around: Rectangle) -> list[Shape]:
    """Outlines and towns in a box of degrees, the largest towns first."""
    west, south, east, north = around
    lines: list[Shape] = [
        ("LineString", line.tolist(), "an outline", "")
        for line in places.load_outlines()
        if np.all(line.min(axis=0) <= (east, north)) and np.all(line.max(axis=0) >= (west, south))
    ]
    names, degrees = places.load_towns()
    inside = np.all((degrees >= (west, south)) & (degrees <= (east, north)), axis=1)
    return lines + [
        ("Point", degrees[town].tolist(), "a town", names[town])
        for town in np.flatnonzero(inside).tolist()
    ]
