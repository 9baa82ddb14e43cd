"""Maps of one release: shares of parts of a map, or a place with its interval.

North is up; corners, a scale bar and a legend are drawn around the map.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from metricshuffle.numerics.rounding import format_number
from metricshuffle.numerics.types import Floats, Mask
from metricshuffle.queries.query import Answer
from metricshuffle.report.charts.map_layers import Background, mark_layer, shape_layer, text_layer
from metricshuffle.report.charts.map_scales import (
    MAX_BORDERED_CELLS,
    SHADE_COUNT,
    legend_shares,
    scale_bar,
    shade_indices,
)
from metricshuffle.report.charts.vega import BLUE, GRID, INK, MUTED, VERMILLION, Spec
from metricshuffle.spaces import Grid, Places
from metricshuffle.spaces.geographic_box import MAX_SIDE_METRES
from metricshuffle.spaces.grid import METRES


@dataclass(frozen=True)
class MapLayout:
    """Room for a map in pixels, and whether its legend is to its right."""

    width: float
    height: float
    beside: bool = False


BESIDE = MapLayout(430.0, 430.0, beside=True)
BELOW = MapLayout(640.0, 430.0)
TELEPHONE = MapLayout(326.0, 430.0)
SMALLER = MapLayout(316.0, 300.0)
"""Size of a map that has a close-up to its right."""
ASIDE = MapLayout(290.0, 290.0)
"""Size of that close-up."""
MAX_ASPECT_BESIDE = 1.9
"""A map with a larger aspect ratio has its legend below."""
PAGE_WIDTH = 640.0  # minimum width of a drawing on a page, so that letters have one size
NARROW_MAP_WIDTH = 260.0  # narrower maps have their corners in separate lines of text
# Margin of the small square for an interval that contains zero, as a fraction of the cell.
INSET_SHARE = 0.25
CLOSE_UP_SHARE = 0.2  # of the map: a narrower interval is repeated close up
LINE_HEIGHT = 17.0
NAME_LETTER_WIDTH = 6.2  # of a name of a place, on average
HALO = "#ffffff"  # around names; style.css makes it the colour of the card
CELL_WORDS = ("full cell", "small square or blank")
CELLS_PER_SIDE = 1000.0  # along the longer side of a map without a grid


@dataclass(frozen=True, eq=False)
class ShadedParts:
    """Cells or zones of a map in pixels: their polygons, borders, and names in the legend.

    `rings` maps a mask of parts, and whether they are drawn smaller, to polygons.
    """

    rings: Callable[[Mask, bool], list[list[Floats]]]
    lines: Sequence[Floats]
    words: tuple[str, str]


@dataclass(frozen=True)
class View:
    """A rectangle of a grid's plane (units from its south-west corner), and its drawn size."""

    grid: Grid
    west: float
    south: float
    east: float
    north: float
    layout: MapLayout

    @classmethod
    def of(cls, grid: Grid, narrow: bool) -> View:
        """View of the whole grid."""
        layout = (
            TELEPHONE
            if narrow
            else BELOW
            if grid.width > MAX_ASPECT_BESIDE * grid.height
            else BESIDE
        )
        return cls(grid, 0.0, 0.0, grid.width * grid.cell, grid.height * grid.cell, layout)

    @property
    def pixels(self) -> float:
        """Pixels per unit."""
        return min(
            self.layout.width / (self.east - self.west),
            self.layout.height / (self.north - self.south),
        )

    @property
    def width(self) -> float:
        return (self.east - self.west) * self.pixels

    @property
    def height(self) -> float:
        return (self.north - self.south) * self.pixels

    def at(self, points: Floats) -> Floats:
        """Convert points of the plane to pixels from the north-west corner of the drawing."""
        return (np.asarray(points, dtype=np.float64) - (self.west, self.north)) * (
            self.pixels,
            -self.pixels,
        )

    def corner(self, east: bool, north: bool) -> str:
        """Text of a corner: in degrees on a map, else in units."""
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
        """Width in metres, on a map."""
        return (self.east - self.west) * (1000.0 if self.grid.unit == "km" else 1.0)


def cells_map(
    grid: Grid,
    shares: Floats,
    zero_inside: Mask | None,
    level: str,
    of: str,
    background: Background | None = None,
    *,
    narrow: bool = False,
) -> Spec:
    """Map of shares: the larger the share of a cell, the stronger its colour.

    A cell whose interval contains zero is a small square, or blank if its share has shade 0. If
    shares have no intervals (`zero_inside` of None), cells are full, or blank at shade 0.
    """
    view = View.of(grid, narrow)

    def rings(mask: Mask, small: bool) -> list[list[Floats]]:
        cells = _small_squares(view, mask) if small else _whole_cells(view, mask)
        return [[ring] for ring in cells]

    lines = _grid_lines(view) if len(shares) <= MAX_BORDERED_CELLS else []
    parts = ShadedParts(rings, lines, CELL_WORDS)
    return shaded_map(view, shares, zero_inside, level, of, parts, background)


def shaded_map(
    view: View,
    shares: Floats,
    zero_inside: Mask | None,
    level: str,
    of: str,
    parts: ShadedParts,
    background: Background | None = None,
) -> Spec:
    """Map of shares of cells or zones: the larger the share, the stronger the colour."""
    strongest = float(shares.max())
    shades = (
        shade_indices(shares, strongest)
        if strongest > 0.0
        else np.zeros(len(shares), dtype=np.int64)
    )
    small = np.zeros(len(shares), dtype=np.bool_) if zero_inside is None else zero_inside
    shades = shades if zero_inside is None else np.where(small, shades, np.maximum(shades, 1))
    layers: list[Spec] = []
    for shade in range(1, SHADE_COUNT + 1):
        here = shades == shade
        polygons = [*parts.rings(here & ~small, False), *parts.rings(here & small, True)]
        if polygons:
            layers.append(
                shape_layer(
                    "MultiPolygon",
                    polygons,
                    fill=BLUE,
                    fillOpacity=shade / SHADE_COUNT,
                )
            )
    borders = [_borders(parts.lines)] if parts.lines else []
    places = _MapLegend(view)
    if strongest > 0.0:
        places.shades(strongest, of)
    if zero_inside is not None:
        places.squares(level, parts.words)
    else:
        places.words("smoothed, without intervals")
    beneath, above = _background(view, background)
    return _drawn(view, [*beneath, *borders, *layers, *above, _outline(view), *places.layers])


def grid_of_box(places: Places) -> Grid:
    """A box as a map with cells too small to be seen.

    In degrees if it can be projected, else in units from its corner.
    """
    latitude, longitude = places.middle_metres
    cell = places.longer_side / CELLS_PER_SIDE
    if places.diameter * METRES[places.unit] <= MAX_SIDE_METRES:
        return Grid.from_box(
            places.south, places.west, places.north, places.east, cell, places.unit
        )
    sides = (places.east - places.west) * longitude, (places.north - places.south) * latitude
    width, height = (max(1, math.ceil(side / METRES[places.unit] / cell)) for side in sides)
    return Grid(width, height, cell, places.unit)


def place_on_map(places: Places, answer: Answer) -> tuple[Grid, Answer]:
    """Return the map of a box, and an answer in degrees as a point of that map.

    The interval becomes the upright rectangle around it.
    """
    grid = grid_of_box(places)
    latitudes, longitudes = np.asarray(answer.interval, dtype=np.float64)
    on_earth = (
        np.abs(latitudes).max() < 90.0
        and np.abs(longitudes - (places.west + places.east) / 2.0).max() < 90.0
    )
    if answer.plane is not None and (grid.box is None or not on_earth):  # noise may put it anywhere
        return Grid(grid.width, grid.height, grid.cell, grid.unit), answer.plane
    ends = np.array(np.meshgrid(latitudes, longitudes)).reshape(2, -1)
    degrees = np.column_stack([np.asarray(answer.value, dtype=np.float64), ends])
    east, north = (places.box.flattened(*degrees) / METRES[places.unit]).T
    sides = [(float(line[1:].min()), float(line[1:].max())) for line in (east, north)]
    return grid, Answer(
        (float(east[0]), float(north[0])), answer.standard_error, (sides[0], sides[1])
    )


def place_map(
    grid: Grid,
    place: tuple[float, float],
    sides: Sequence[tuple[float, float]],
    level: str,
    background: Background | None = None,
    *,
    narrow: bool = False,
) -> Spec:
    """Map of a point and its joint interval, (west, east) and (south, north).

    A small interval is repeated close up.
    """
    whole = View.of(grid, narrow)
    (west, east), (south, north) = sides
    # Noise may put the interval outside the grid.
    if min(west, south, whole.east - east, whole.north - north) < 0.0:
        margin = 0.04 * max(whole.east, whole.north)
        edges = (
            min(0.0, west - margin),
            min(0.0, south - margin),
            max(whole.east, east + margin),
            max(whole.north, north + margin),
        )
        whole = View(grid, *edges, whole.layout)
    small = (
        max(
            (east - west) / (whole.east - whole.west), (north - south) / (whole.north - whole.south)
        )
        < CLOSE_UP_SHARE
    )
    layout = TELEPHONE if narrow else SMALLER if small else BELOW
    whole_map = _place(replace(whole, layout=layout), place, sides, level, background)
    if not small:
        return whole_map
    across = 0.7 * max(east - west, north - south) or grid.cell
    middle = (west + east) / 2.0, (south + north) / 2.0
    close = View(
        grid,
        middle[0] - across,
        middle[1] - across,
        middle[0] + across,
        middle[1] + across,
        TELEPHONE if narrow else ASIDE,
    )
    both = [whole_map, _place(close, place, sides, level, background)]
    return {"vconcat" if narrow else "hconcat": both, "spacing": 34}


def _place(
    view: View,
    place: tuple[float, float],
    sides: Sequence[tuple[float, float]],
    level: str,
    background: Background | None,
) -> Spec:
    (west, east), (south, north) = sides
    box = view.at(_rectangle(west, south, east, north))
    point = view.at(np.array([place]))[0]
    beneath, above = _background(view, background)
    cells = [_borders(_grid_lines(view))] if view.grid.cell * view.pixels >= 6.0 else []
    layers = [
        *beneath,
        *cells,
        *above,
        shape_layer(
            "Polygon", [box], fill=VERMILLION, fillOpacity=0.16, stroke=VERMILLION, strokeWidth=1.0
        ),
        _outline(view),
    ]
    layers.append(
        mark_layer(
            {
                "type": "point",
                "filled": False,
                "size": 120,
                "stroke": VERMILLION,
                "strokeWidth": 2.0,
            },
            *point,
        )
    )
    layers.append(
        mark_layer(
            {"type": "point", "filled": True, "size": 18, "fill": VERMILLION, "opacity": 1}, *point
        )
    )
    places = _MapLegend(view)
    places.words("ring: the answer")
    places.words(f"shaded: its {level} interval, for both axes")
    return _drawn(view, [*layers, *places.layers])


class _MapLegend:
    """North arrow, corners, scale bar and legend of a map, from the top down."""

    def __init__(self, view: View) -> None:
        self.view = view
        self.layers = list[Spec]()
        self.left = 0.0
        self.down = view.height + 15.0
        self._north()
        self._corners()
        self._scale()
        if view.layout.beside:
            self.left = view.width + 28.0
            self.down = 8.0

    def words(self, text: str, indent: float = 0.0) -> None:
        self.layers.append(text_layer(text, self.left + indent, self.down, MUTED))
        self.down += LINE_HEIGHT

    def _north(self) -> None:
        middle = self.view.width / 2.0
        tip = np.array(
            [(-4.0, -8.0), (0.0, -19.0), (4.0, -8.0), (0.0, -10.5), (-4.0, -8.0)]
        ) + np.array((middle, 0.0))
        self.layers += [
            shape_layer("Polygon", [tip], fill=MUTED),
            text_layer("N", middle + 8.0, -12.0, MUTED),
        ]

    def _corners(self) -> None:
        view = self.view
        if view.width >= NARROW_MAP_WIDTH:
            for north, height in ((True, -12.0), (False, self.down)):
                self.layers.append(
                    text_layer(view.corner(False, north), 0.0, height, MUTED, fontSize=11)
                )
                self.layers.append(
                    text_layer(
                        view.corner(True, north),
                        view.width,
                        height,
                        MUTED,
                        fontSize=11,
                        align="right",
                    )
                )
            self.down += LINE_HEIGHT
        else:
            self.words(f"north-east {view.corner(True, True)}")
            self.words(f"south-west {view.corner(False, False)}")
        self.down += 4.0

    def _scale(self) -> None:
        length, words = scale_bar(self.view.east - self.view.west, self.view.grid)
        wide = length * self.view.pixels
        ends = np.array([(0.0, -4.0), (0.0, 0.0), (wide, 0.0), (wide, -4.0)]) + np.array(
            (0.0, self.down)
        )
        self.layers += [
            shape_layer("LineString", ends, stroke=INK, strokeWidth=1.5),
            text_layer(words, wide + 8.0, self.down - 2.0, INK),
        ]
        self.down += LINE_HEIGHT + 4.0

    def shades(self, strongest: float, of: str) -> None:
        """Add the shades in a row, with the shares of some of them."""
        self.words(f"{of}, shades by square root")
        wide = 11.0
        top = self.down - 6.0
        for shade in range(1, SHADE_COUNT + 1):
            box = _box(self.left + shade * wide, top, wide, 10.0)
            self.layers.append(
                shape_layer("Polygon", [box], fill=BLUE, fillOpacity=shade / SHADE_COUNT)
            )
        self.layers.append(
            shape_layer(
                "LineString",
                _box(self.left, top, (SHADE_COUNT + 1) * wide, 10.0),
                stroke=GRID,
                strokeWidth=1.0,
            )
        )
        at = {"left": 0.0, "center": 0.5, "right": 1.0}
        for shade, words, side in legend_shares(strongest):
            self.layers.append(
                text_layer(
                    words,
                    self.left + (shade + at[side]) * wide,
                    top + 19.0,
                    MUTED,
                    align=side,
                    fontSize=11,
                )
            )
        self.down += 2.0 * LINE_HEIGHT + 6.0

    def squares(self, level: str, names: tuple[str, str]) -> None:
        """Add a full cell and a small square, each with what it says about the interval."""
        entries = (
            (names[0], 0.0, "interval lies above zero"),
            (names[1], INSET_SHARE, "interval holds zero"),
        )
        for name, inset, words in entries:
            side = 12.0
            top = self.down - 6.0
            inner = _box(
                self.left + inset * side,
                top + inset * side,
                (1.0 - 2.0 * inset) * side,
                (1.0 - 2.0 * inset) * side,
            )
            self.layers.append(shape_layer("Polygon", [inner], fill=BLUE, fillOpacity=0.6))
            self.layers.append(
                shape_layer(
                    "LineString", _box(self.left, top, side, side), stroke=GRID, strokeWidth=1.0
                )
            )
            self.words(
                f"{name}: the" if self.view.layout.beside else f"{name}: the {level} {words}", 20.0
            )
            if self.view.layout.beside:
                self.words(f"{level} {words}", 20.0)
                self.down += 4.0


def _rectangle(west: float, south: float, east: float, north: float) -> Floats:
    return np.array(
        [(west, south), (east, south), (east, north), (west, north), (west, south)],
        dtype=np.float64,
    )


def _box(left: float, top: float, width: float, height: float) -> Floats:
    """Ring around a rectangle in pixels."""
    return _rectangle(left, top, left + width, top + height)


def _whole_cells(view: View, mask: Mask) -> list[Floats]:
    """Rings around runs of neighbouring cells, row by row."""
    grid = view.grid
    rings = []
    for row, cells in enumerate(mask.reshape(grid.height, grid.width)):
        edges = np.flatnonzero(np.diff(np.concatenate([[0], cells.astype(np.int8), [0]])))
        rings += [
            view.at(_rectangle(start, row, end, row + 1) * grid.cell)
            for start, end in edges.reshape(-1, 2).tolist()
        ]
    return rings


def _small_squares(view: View, mask: Mask) -> list[Floats]:
    inset = _rectangle(INSET_SHARE, INSET_SHARE, 1 - INSET_SHARE, 1 - INSET_SHARE)
    rows, columns = np.divmod(np.flatnonzero(mask), view.grid.width)
    return [
        view.at((inset + corner) * view.grid.cell) for corner in np.column_stack([columns, rows])
    ]


def _borders(lines: Sequence[Floats]) -> Spec:
    return shape_layer("MultiLineString", list(lines), stroke=GRID, strokeWidth=1.0)


def _grid_lines(view: View) -> list[Floats]:
    cell = view.grid.cell
    columns = np.arange(math.ceil(view.west / cell), math.floor(view.east / cell) + 1) * cell
    rows = np.arange(math.ceil(view.south / cell), math.floor(view.north / cell) + 1) * cell
    lines = [np.array([(at, view.south), (at, view.north)]) for at in columns.tolist()]
    lines += [np.array([(view.west, at), (view.east, at)]) for at in rows.tolist()]
    return [view.at(ends) for ends in lines]


def _outline(view: View) -> Spec:
    return shape_layer(
        "LineString",
        view.at(_rectangle(view.west, view.south, view.east, view.north)),
        stroke=MUTED,
        strokeWidth=0.75,
    )


def _background(view: View, background: Background | None) -> tuple[list[Spec], list[Spec]]:
    """Layers beneath the cells and above them, clipped to the view."""
    if background is None:
        return [], []
    areas = [[view.at(ring) for ring in rings] for rings in background.areas]
    lines = [view.at(points) for points in background.lines]
    rings = [ring for area in areas for ring in area]
    beneath = (
        [shape_layer("MultiPolygon", areas, clip=True, fill=GRID, fillOpacity=0.7)] if areas else []
    )
    above = (
        [
            shape_layer(
                "MultiLineString",
                [*rings, *lines],
                clip=True,
                stroke=MUTED,
                strokeWidth=0.8,
                strokeOpacity=0.8,
            )
        ]
        if rings or lines
        else []
    )
    if background.source and (lines or background.names):
        above.append(text_layer(background.source, 4.0, view.height - 7.0, MUTED, fontSize=9))
    return beneath, [*above, *_place_names(view, background)]


def _place_names(view: View, background: Background) -> list[Spec]:
    """Points with their names, in their order; a name that would cover another is left out."""
    layers: list[Spec] = []
    taken: list[tuple[float, float, float, float]] = []
    for name, east, north in background.names:
        across, down = view.at(np.array([(east, north)]))[0].tolist()
        wide = NAME_LETTER_WIDTH * len(name)
        leftward = across + 6.0 + wide > view.width
        left = across - 6.0 - wide if leftward else across + 6.0
        box = (left, down - 7.0, left + wide, down + 7.0)
        if (
            left < 0.0
            or not (0.0 <= across <= view.width and 0.0 <= down <= view.height)
            or any(
                box[0] < right and west < box[2] and box[1] < bottom and top < box[3]
                for west, top, right, bottom in taken
            )
        ):
            continue
        taken.append(box)
        point = {"type": "point", "filled": True, "size": 14, "fill": INK, "opacity": 1}
        layers.append(mark_layer(point, across, down))
        halo = {"stroke": HALO, "strokeWidth": 3, "strokeOpacity": 0.8}
        side = {"align": "right" if leftward else "left", "fontSize": 11}
        at = across - 6.0 if leftward else across + 6.0
        layers.append(text_layer(name, at, down, INK, **halo, **side))
        layers.append(text_layer(name, at, down, INK, **side))
    return layers


def _drawn(view: View, layers: list[Spec]) -> Spec:
    full_width = PAGE_WIDTH if view.layout in (BESIDE, BELOW) else view.width
    layers = [
        *layers,
        shape_layer(
            "LineString", np.array([(0.0, 0.0), (full_width, 0.0)]), stroke=GRID, strokeOpacity=0.0
        ),
    ]
    return {
        "width": round(max(view.width, NARROW_MAP_WIDTH), 2),
        "height": round(view.height, 2),
        "layer": layers,
        "projection": {"type": "identity", "scale": 1, "translate": [0, 0]},
    }
