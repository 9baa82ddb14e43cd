"""Systems of cells that cover the Earth: H3 (extra `h3`) and S2 (extra `s2`)."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from metricshuffle.errors import InputError, argument, require
from metricshuffle.models import format_value
from metricshuffle.spaces.geographic_box import Box

Degrees = tuple[float, float]
"""Latitude and longitude of a place."""
SQUARE_DEGREE = 111.2**2  # km^2 at the equator
MAX_H3_RESOLUTION = 15
MAX_S2_LEVEL = 30
EARTH_AREA = 5.1e8  # square kilometres


@dataclass(frozen=True, eq=False)
class CellSystem:
    """Cells of one size: centre and corners of a cell, and the cell of a place.

    The borders of cells are great circles.
    """

    centre: Callable[[str], Degrees]
    border: Callable[[str], Sequence[Degrees]]
    cell_at: Callable[[float, float], str]


def h3_system(names: Sequence[str]) -> CellSystem:
    """The system of these cells of H3; InputError unless they are valid and of one resolution."""
    library = require("h3", "h3")
    invalid = next((name for name in names if not library.is_valid_cell(name)), None)
    if invalid is not None:
        raise InputError(f"{format_value(invalid)} is not the id of a cell of H3.")
    resolution = _single_size({library.get_resolution(name) for name in names}, "resolution")

    def cell_at(latitude: float, longitude: float) -> str:
        return str(library.latlng_to_cell(latitude, longitude, resolution))

    return CellSystem(library.cell_to_latlng, library.cell_to_boundary, cell_at)


def h3_cells_in(resolution: int, box: Box, max_cells: int) -> list[str]:
    """Cells of H3 whose centres lie in a box."""
    library = require("h3", "h3")
    _check_size("h3", "a resolution", resolution, MAX_H3_RESOLUTION)
    area = library.average_hexagon_area(resolution, unit="km^2")
    _check_count("h3", f"cells of resolution {resolution}", _area(box) / area, max_cells)
    corners = [
        (box.south, box.west),
        (box.south, box.east),
        (box.north, box.east),
        (box.north, box.west),
    ]
    cells = list(library.polygon_to_cells(library.LatLngPoly(corners), resolution))
    if len(cells) < 2:
        raise InputError(
            f"the box ({box}) has {len(cells)} cells of resolution {resolution}; take a larger "
            f"{argument('h3')} or a larger box."
        )
    return cells


def s2_cells_in(level: int, box: Box, max_cells: int) -> list[str]:
    """Tokens of the cells of S2 whose centres lie in a box."""
    library = require("s2sphere", "s2")
    _check_size("s2_level", "a level", level, MAX_S2_LEVEL)
    area = EARTH_AREA / (6 * 4**level)
    _check_count("s2_level", f"cells of level {level}", _area(box) / area, max_cells)
    coverer = library.RegionCoverer()
    coverer.min_level = coverer.max_level = level
    coverer.max_cells = 2**30
    corners = [
        library.LatLng.from_degrees(box.south, box.west),
        library.LatLng.from_degrees(box.north, box.east),
    ]
    cells = []
    for cell in coverer.get_covering(library.LatLngRect.from_point_pair(*corners)):
        place = cell.to_lat_lng()
        latitude, longitude = place.lat().degrees, place.lng().degrees
        if box.south <= latitude <= box.north and box.west <= longitude <= box.east:
            cells.append(str(cell.to_token()))
    if len(cells) < 2:
        raise InputError(
            f"the box ({box}) has {len(cells)} cells of level {level}; take a larger "
            f"{argument('s2_level')} or a larger box."
        )
    return cells


def _area(box: Box) -> float:
    """Area of a box in square kilometres, about."""
    square_degrees = (box.east - box.west) * (box.north - box.south)
    return square_degrees * math.cos(math.radians((box.south + box.north) / 2.0)) * SQUARE_DEGREE


def _check_size(name: str, noun: str, size: int, largest: int) -> None:
    if isinstance(size, bool) or not (isinstance(size, int) and 0 <= size <= largest):
        raise InputError(f"{argument(name)} must be {noun} from 0 to {largest}, got {size!r}.")


def _check_count(name: str, cells: str, expected: float, max_cells: int) -> None:
    if expected > 2 * max_cells:
        raise InputError(
            f"the box has about {expected:,.0f} {cells}, and there may be up to {max_cells:,}; "
            f"take a smaller {argument(name)} or a smaller box."
        )


def s2_system(names: Sequence[str]) -> CellSystem:
    """The system of these cells of S2; InputError unless they are valid and of one level."""
    library = require("s2sphere", "s2")

    known = {}
    for name in names:
        try:
            known[name] = library.CellId.from_token(name)
        except ValueError:
            known[name] = library.CellId.none()
        if not known[name].is_valid():
            raise InputError(f"{format_value(name)} is not the token of a cell of S2.")
    level = _single_size({cell.level() for cell in known.values()}, "level")

    def degrees(point: object) -> Degrees:
        place = library.LatLng.from_point(point)
        return place.lat().degrees, place.lng().degrees

    def border(name: str) -> list[Degrees]:
        cell = library.Cell(known[name])
        return [degrees(cell.get_vertex(corner)) for corner in range(4)]

    def cell_at(latitude: float, longitude: float) -> str:
        place = library.LatLng.from_degrees(latitude, longitude)
        return str(library.CellId.from_lat_lng(place).parent(level).to_token())

    return CellSystem(lambda name: degrees(known[name].to_point()), border, cell_at)


SYSTEMS: dict[str, Callable[[Sequence[str]], CellSystem]] = {"h3": h3_system, "s2": s2_system}
"""Systems of cells by name."""


def _single_size(sizes: set[int], name: str) -> int:
    if len(sizes) != 1:
        raise InputError(
            f"all cells must have the same {name}, got {', '.join(map(str, sorted(sizes)))}; "
            "divide the larger cells."
        )
    return sizes.pop()
