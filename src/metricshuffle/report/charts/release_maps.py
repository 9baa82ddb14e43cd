"""Maps of one release: shares of the cells of a grid, or a place with its interval; north is up, with a scale, corners and a legend."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from metricshuffle.numerics.rounding import format_number
from metricshuffle.numerics.types import Floats, Mask
from metricshuffle.queries.query import Answer
from metricshuffle.report.charts.share_maps import MAX_BORDERED_CELLS, SHADE_COUNT, legend_shares, scale_bar, shade_indices
from metricshuffle.report.charts.vega import BLUE, GRID, INK, MUTED, VERMILLION, Spec
from metricshuffle.spaces import Grid, Places
from metricshuffle.spaces.geographic_box import MAX_SIDE_METRES
from metricshuffle.spaces.grid import METRES


@dataclass(frozen=True)
class MapLayout:
    """How much room a map has, in pixels, and whether its legend stands beside it."""

    width: float
    height: float
    beside: bool = False


BESIDE, BELOW, TELEPHONE = MapLayout(430.0, 430.0, beside=True), MapLayout(640.0, 430.0), MapLayout(326.0, 430.0)
SMALLER, ASIDE = MapLayout(316.0, 300.0), MapLayout(290.0, 290.0)
"""Of a map and the close-up beside it."""
MAX_ASPECT_BESIDE = 1.9
"""So many times as wide as high, a map has its legend below."""
PAGE_WIDTH = 640.0  # what is drawn on a page is no narrower, so that letters are of one size
NARROW_MAP_WIDTH = 260.0  # the corners of a map that is drawn narrower are told in lines of their own
INSET_SHARE = 0.25  # of a cell, on each side of the small square that stands for an interval with zero in it
CLOSE_UP_SHARE = 0.2  # of the map: an interval narrower than that is drawn again, close up
LINE_HEIGHT = 17.0
CELLS_PER_SIDE = 1000.0  # cells along the longer side of a map that has none


@dataclass(frozen=True, eq=False)
class Background:
    """What lies beneath and above the cells, in units from the south-west corner of the grid: rings of areas, and lines."""

    areas: tuple[tuple[Floats, ...], ...] = ()
    """Each the outer ring (counter-clockwise) and those of its holes (clockwise)."""
    lines: tuple[Floats, ...] = ()


@dataclass(frozen=True)
class View:
    """A rectangle of the plane of a grid (units from its south-west corner) and how large it is drawn."""

    grid: Grid
    west: float
    south: float
    east: float
    north: float
    layout: MapLayout

    @classmethod
    def of(cls, grid: Grid, narrow: bool) -> View:
        """The whole of it."""
        layout = TELEPHONE if narrow else BELOW if grid.width > MAX_ASPECT_BESIDE * grid.height else BESIDE
        return cls(grid, 0.0, 0.0, grid.width * grid.cell, grid.height * grid.cell, layout)

    @property
    def pixels(self) -> float:
        """Of one unit."""
        return min(self.layout.width / (self.east - self.west), self.layout.height / (self.north - self.south))

    @property
    def width(self) -> float:
        return (self.east - self.west) * self.pixels

    @property
    def height(self) -> float:
        return (self.north - self.south) * self.pixels

    def at(self, points: Floats) -> Floats:
        """Points of the plane in pixels from the north-west corner of the drawing."""
        return (np.asarray(points, dtype=np.float64) - (self.west, self.north)) * (self.pixels, -self.pixels)

    def corner(self, east: bool, north: bool) -> str:
        """A corner in words: in degrees on a map, else in units."""
        point = (self.east if east else self.west, self.north if north else self.south)
        if self.grid.box is None:
            return f"{format_number(point[0])}, {format_number(point[1])} {self.grid.unit}".rstrip()
        latitude, longitude = (float(part[0]) for part in self.grid.degrees([point]))
        longitude = (longitude + 180.0) % 360.0 - 180.0 if abs(longitude) > 180.0 else longitude
        decimals = 4 if self.metres > 500.0 else 5
        across = f"{abs(longitude):.{decimals}f}° {'E' if longitude >= 0.0 else 'W'}"
        return f"{abs(latitude):.{decimals}f}° {'N' if latitude >= 0.0 else 'S'}, {across}"

    @property
    def metres(self) -> float:
        """Across, on a map."""
        return (self.east - self.west) * (1000.0 if self.grid.unit == "km" else 1.0)


def cells_map(
    grid: Grid, shares: Floats, zero_inside: Mask | None, level: str, of: str, background: Background | None = None, *, narrow: bool = False
) -> Spec:
    """A cell is the stronger the larger its share; one whose interval holds zero is a small square, or blank without a share. Where shares
    have no intervals (None), cells are full, or blank without a share."""
    view, strongest = View.of(grid, narrow), float(shares.max())
    shades = shade_indices(shares, strongest) if strongest > 0.0 else np.zeros(len(shares), dtype=np.int64)
    small = np.zeros(len(shares), dtype=np.bool_) if zero_inside is None else zero_inside
    shades = shades if zero_inside is None else np.where(small, shades, np.maximum(shades, 1))
    layers: list[Spec] = []
    for shade in range(1, SHADE_COUNT + 1):
        here = shades == shade
        rings = [*_whole_cells(view, here & ~small), *_small_squares(view, here & small)]
        if rings:
            layers.append(_shape("MultiPolygon", [[ring] for ring in rings], fill=BLUE, fillOpacity=shade / SHADE_COUNT))
    borders = [_borders(view)] if len(shares) <= MAX_BORDERED_CELLS else []
    places = _MapLegend(view)
    if strongest > 0.0:
        places.shades(strongest, of)
    if zero_inside is not None:
        places.squares(level)
    else:
        places.words("smoothed, without intervals")
    beneath, above = _background(view, background)
    return _drawn(view, [*beneath, *borders, *layers, *above, _outline(view), *places.layers])


def grid_of_box(places: Places) -> Grid:
    """A box as a map, with cells too small to be seen; in degrees if it can be projected, else in units from its corner."""
    latitude, longitude = places.middle_metres
    cell = places.longer_side / CELLS_PER_SIDE
    if places.diameter * METRES[places.unit] <= MAX_SIDE_METRES:
        return Grid.from_box(places.south, places.west, places.north, places.east, cell, places.unit)
    sides = (places.east - places.west) * longitude, (places.north - places.south) * latitude
    width, height = (max(1, math.ceil(side / METRES[places.unit] / cell)) for side in sides)
    return Grid(width, height, cell, places.unit)


def place_on_map(places: Places, answer: Answer) -> tuple[Grid, Answer]:
    """The map of a box, and a place in degrees on it, with the upright rectangle around its interval."""
    grid = grid_of_box(places)
    latitudes, longitudes = np.asarray(answer.interval, dtype=np.float64)
    on_earth = np.abs(latitudes).max() < 90.0 and np.abs(longitudes - (places.west + places.east) / 2.0).max() < 90.0
    if answer.plane is not None and (grid.box is None or not on_earth):  # noise may put it anywhere
        return Grid(grid.width, grid.height, grid.cell, grid.unit), answer.plane
    ends = np.array(np.meshgrid(latitudes, longitudes)).reshape(2, -1)
    degrees = np.column_stack([np.asarray(answer.value, dtype=np.float64), ends])
    east, north = (places.box.flattened(*degrees) / METRES[places.unit]).T
    sides = [(float(line[1:].min()), float(line[1:].max())) for line in (east, north)]
    return grid, Answer((float(east[0]), float(north[0])), answer.standard_error, (sides[0], sides[1]))


def place_map(
    grid: Grid,
    place: tuple[float, float],
    sides: Sequence[tuple[float, float]],
    level: str,
    background: Background | None = None,
    *,
    narrow: bool = False,
) -> Spec:
    """A point of the plane and the rectangle of its joint interval, (west, east) and (south, north); a small one again, close up."""
    whole = View.of(grid, narrow)
    (west, east), (south, north) = sides
    if min(west, south, whole.east - east, whole.north - north) < 0.0:  # noise may put it beside the grid
        margin = 0.04 * max(whole.east, whole.north)
        edges = min(0.0, west - margin), min(0.0, south - margin), max(whole.east, east + margin), max(whole.north, north + margin)
        whole = View(grid, *edges, whole.layout)
    small = max((east - west) / (whole.east - whole.west), (north - south) / (whole.north - whole.south)) < CLOSE_UP_SHARE
    layout = TELEPHONE if narrow else SMALLER if small else BELOW
    whole_map = _place(replace(whole, layout=layout), place, sides, level, background)
    if not small:
        return whole_map
    across = 0.7 * max(east - west, north - south) or grid.cell
    middle = (west + east) / 2.0, (south + north) / 2.0
    close = View(grid, middle[0] - across, middle[1] - across, middle[0] + across, middle[1] + across, TELEPHONE if narrow else ASIDE)
    both = [whole_map, _place(close, place, sides, level, background)]
    return {"vconcat" if narrow else "hconcat": both, "spacing": 34}


def _place(view: View, place: tuple[float, float], sides: Sequence[tuple[float, float]], level: str, background: Background | None) -> Spec:
    (west, east), (south, north) = sides
    box = view.at(np.array([(west, south), (east, south), (east, north), (west, north), (west, south)]))
    point = view.at(np.array([place]))[0]
    beneath, above = _background(view, background)
    cells = [_borders(view)] if view.grid.cell * view.pixels >= 6.0 else []
    layers = [
        *beneath, *cells, *above, _shape("Polygon", [box], fill=VERMILLION, fillOpacity=0.16, stroke=VERMILLION, strokeWidth=1.0),
        _outline(view),
    ]  # fmt: skip
    layers.append(_mark({"type": "point", "filled": False, "size": 120, "stroke": VERMILLION, "strokeWidth": 2.0}, *point))
    layers.append(_mark({"type": "point", "filled": True, "size": 18, "fill": VERMILLION, "opacity": 1}, *point))
    places = _MapLegend(view)
    places.words("ring: the answer")
    places.words(f"shaded: its {level} interval, for both axes")
    return _drawn(view, [*layers, *places.layers])


class _MapLegend:
    """What stands around a map (north, corners, scale), and its legend, from the top down."""

    def __init__(self, view: View) -> None:
        self.view, self.layers = view, list[Spec]()
        self.left, self.down = 0.0, view.height + 15.0
        self._north()
        self._corners()
        self._scale()
        if view.layout.beside:
            self.left, self.down = view.width + 28.0, 8.0

    def words(self, text: str, indent: float = 0.0) -> None:
        self.layers.append(_text(text, self.left + indent, self.down, MUTED))
        self.down += LINE_HEIGHT

    def _north(self) -> None:
        middle = self.view.width / 2.0
        tip = np.array([(-4.0, -8.0), (0.0, -19.0), (4.0, -8.0), (0.0, -10.5), (-4.0, -8.0)]) + np.array((middle, 0.0))
        self.layers += [_shape("Polygon", [tip], fill=MUTED), _text("N", middle + 8.0, -12.0, MUTED)]

    def _corners(self) -> None:
        view = self.view
        if view.width >= NARROW_MAP_WIDTH:
            for north, height in ((True, -12.0), (False, self.down)):
                self.layers.append(_text(view.corner(False, north), 0.0, height, MUTED, fontSize=11))
                self.layers.append(_text(view.corner(True, north), view.width, height, MUTED, fontSize=11, align="right"))
            self.down += LINE_HEIGHT
        else:
            self.words(f"north-east {view.corner(True, True)}")
            self.words(f"south-west {view.corner(False, False)}")
        self.down += 4.0

    def _scale(self) -> None:
        length, words = scale_bar(self.view.east - self.view.west, self.view.grid)
        wide = length * self.view.pixels
        ends = np.array([(0.0, -4.0), (0.0, 0.0), (wide, 0.0), (wide, -4.0)]) + np.array((0.0, self.down))
        self.layers += [_shape("LineString", ends, stroke=INK, strokeWidth=1.5), _text(words, wide + 8.0, self.down - 2.0, INK)]
        self.down += LINE_HEIGHT + 4.0

    def shades(self, strongest: float, of: str) -> None:
        """The shades in a row, with the shares that some of them stand for."""
        self.words(of)
        wide, top = 11.0, self.down - 6.0
        for shade in range(1, SHADE_COUNT + 1):
            box = _box(self.left + shade * wide, top, wide, 10.0)
            self.layers.append(_shape("Polygon", [box], fill=BLUE, fillOpacity=shade / SHADE_COUNT))
        self.layers.append(_shape("LineString", _box(self.left, top, (SHADE_COUNT + 1) * wide, 10.0), stroke=GRID, strokeWidth=1.0))
        at = {"left": 0.0, "center": 0.5, "right": 1.0}
        for shade, words, side in legend_shares(strongest):
            self.layers.append(_text(words, self.left + (shade + at[side]) * wide, top + 19.0, MUTED, align=side, fontSize=11))
        self.down += 2.0 * LINE_HEIGHT + 6.0

    def squares(self, level: str) -> None:
        """A full cell and a small square, each with what it says about the interval."""
        entries = (("full cell", 0.0, "interval lies above zero"), ("small square or blank", INSET_SHARE, "interval holds zero"))
        for name, inset, words in entries:
            side, top = 12.0, self.down - 6.0
            inner = _box(self.left + inset * side, top + inset * side, (1.0 - 2.0 * inset) * side, (1.0 - 2.0 * inset) * side)
            self.layers.append(_shape("Polygon", [inner], fill=BLUE, fillOpacity=0.6))
            self.layers.append(_shape("LineString", _box(self.left, top, side, side), stroke=GRID, strokeWidth=1.0))
            self.words(f"{name}: the" if self.view.layout.beside else f"{name}: the {level} {words}", 20.0)
            if self.view.layout.beside:
                self.words(f"{level} {words}", 20.0)
                self.down += 4.0


def _box(left: float, top: float, width: float, height: float) -> Floats:
    """Around a rectangle, in pixels."""
    right, bottom = left + width, top + height
    return np.array([(left, top), (right, top), (right, bottom), (left, bottom), (left, top)])


def _whole_cells(view: View, mask: Mask) -> list[Floats]:
    """Runs of neighbouring cells, row by row."""
    grid, rings = view.grid, []
    for row, cells in enumerate(mask.reshape(grid.height, grid.width)):
        edges = np.flatnonzero(np.diff(np.concatenate([[0], cells.astype(np.int8), [0]])))
        rings += [_ring(view, start, row, end, row + 1) for start, end in edges.reshape(-1, 2).tolist()]
    return rings


def _small_squares(view: View, mask: Mask) -> list[Floats]:
    codes = np.flatnonzero(mask)
    return [
        _ring(view, column + INSET_SHARE, row + INSET_SHARE, column + 1 - INSET_SHARE, row + 1 - INSET_SHARE)
        for row, column in zip((codes // view.grid.width).tolist(), (codes % view.grid.width).tolist(), strict=True)
    ]


def _ring(view: View, west: float, south: float, east: float, north: float) -> Floats:
    """Around a rectangle that is given in cells."""
    corners = np.array([(west, south), (east, south), (east, north), (west, north), (west, south)], dtype=np.float64)
    return view.at(corners * view.grid.cell)


def _borders(view: View) -> Spec:
    """Between the cells that are seen."""
    cell = view.grid.cell
    columns = np.arange(math.ceil(view.west / cell), math.floor(view.east / cell) + 1) * cell
    rows = np.arange(math.ceil(view.south / cell), math.floor(view.north / cell) + 1) * cell
    lines = [np.array([(at, view.south), (at, view.north)]) for at in columns.tolist()]
    lines += [np.array([(view.west, at), (view.east, at)]) for at in rows.tolist()]
    return _shape("MultiLineString", [view.at(ends) for ends in lines], stroke=GRID, strokeWidth=1.0)


def _outline(view: View) -> Spec:
    corners = [(view.west, view.south), (view.east, view.south), (view.east, view.north), (view.west, view.north), (view.west, view.south)]
    return _shape("LineString", view.at(np.array(corners)), stroke=MUTED, strokeWidth=0.75)


def _background(view: View, background: Background | None) -> tuple[list[Spec], list[Spec]]:
    """What is drawn beneath the cells and above them, cut off at the edge of the view."""
    if background is None:
        return [], []
    areas = [[view.at(ring) for ring in rings] for rings in background.areas]
    lines = [view.at(points) for points in background.lines]
    rings = [ring for area in areas for ring in area]
    beneath = [_shape("MultiPolygon", areas, clip=True, fill=GRID, fillOpacity=0.7)] if areas else []
    above = (
        [_shape("MultiLineString", [*rings, *lines], clip=True, stroke=MUTED, strokeWidth=0.8, strokeOpacity=0.8)] if rings or lines else []
    )
    return beneath, above


def _shape(kind: str, coordinates: object, clip: bool = False, **style: object) -> Spec:
    """A geometry in pixels: the identity is its projection."""
    style = {"fill": None, "stroke": None, **style}
    return {
        "data": {"values": [{"type": "Feature", "geometry": {"type": kind, "coordinates": _listed(coordinates)}}]},
        "mark": {"type": "geoshape", "clip": clip, "invalid": None, **style},
    }


def _listed(coordinates: object) -> object:
    """Nested lists of pixels to a hundredth."""
    if isinstance(coordinates, np.ndarray):
        return np.round(coordinates, 2).tolist()
    return [_listed(part) for part in coordinates] if isinstance(coordinates, list | tuple) else coordinates


def _text(words: str, left: float, top: float, colour: str, **style: object) -> Spec:
    return _mark(
        {"type": "text", "text": words, "align": "left", "baseline": "middle", "fontSize": 12, "color": colour, **style}, left, top
    )


def _mark(mark: Spec, left: float, top: float) -> Spec:
    return {
        "data": {"values": [{}]},
        "mark": mark,
        "encoding": {"x": {"value": round(float(left), 2)}, "y": {"value": round(float(top), 2)}},
    }


def _drawn(view: View, layers: list[Spec]) -> Spec:
    full_width = PAGE_WIDTH if view.layout in (BESIDE, BELOW) else view.width
    layers = [*layers, _shape("LineString", np.array([(0.0, 0.0), (full_width, 0.0)]), stroke=GRID, strokeOpacity=0.0)]
    return {
        "width": round(max(view.width, NARROW_MAP_WIDTH), 2), "height": round(view.height, 2), "layer": layers,
        "projection": {"type": "identity", "scale": 1, "translate": [0, 0]},
    }  # fmt: skip
