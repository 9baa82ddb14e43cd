"""Shares of the cells of a grid as maps on one scale of strength, side by side."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from metricshuffle.numerics.types import Floats
from metricshuffle.report.charts.map_scales import (
    MAX_BORDERED_CELLS,
    SHADE_COUNT,
    legend_shares,
    scale_bar,
    shade_indices,
)
from metricshuffle.report.charts.vega import BLUE, GRID, INK, MUTED, Spec, note, panel, rows, x, y
from metricshuffle.spaces import Grid

WIDTH = 240


def maps_side_by_side(
    maps: Sequence[tuple[str, Floats, Sequence[str]]],
    grid: Grid,
    strongest: float,
    of: str = "people",
    *,
    width: int = WIDTH,
) -> Spec:
    """Maps with a title above and lines of words below, a legend of the shades, shares `of` people
    or so, and a scale.

    A share of `strongest` or more has the full colour.
    """
    panels = [
        share_map(title, shares, grid, strongest, words, width) for title, shares, words in maps
    ]
    legend = {
        "hconcat": [_key(strongest, f"share of {of}", width), _scale(grid, width)],
        "spacing": 22,
    }
    return {"vconcat": [{"hconcat": panels, "spacing": 22}, legend], "spacing": 16}


def share_map(
    title: str,
    shares: Floats,
    grid: Grid,
    strongest: float,
    words: Sequence[str] = (),
    width: int = WIDTH,
) -> Spec:
    """One of them. Cells of a shade are one path of thick lines, so that a page stays small."""
    height = round(width * grid.height / grid.width)
    shades = shade_indices(shares, strongest).reshape(grid.height, grid.width)
    shade_layers = [
        _shade(shades == shade, shade / SHADE_COUNT, height / grid.height)
        for shade in range(1, SHADE_COUNT + 1)
    ]
    borders = [_borders(grid)] if grid.width * grid.height <= MAX_BORDERED_CELLS else []
    base = {"x": x(**_bare(grid.width)), "y": y(**_bare(grid.height))}
    below = [
        {
            "data": rows([(0.0, 0.0)]),
            "mark": {"type": "text", "text": line, "align": "left", "fontSize": 12, "color": INK},
            "encoding": {"x": {"value": 0}, "y": {"value": height + 18 + 17 * place}},
        }
        for place, line in enumerate(words)
    ]
    return panel(
        title,
        [*(layer for layer in shade_layers if layer), *borders, _outline(grid), *below],
        base,
        width,
        height,
    )


def _shade(
    mask: np.ndarray[tuple[int, int], np.dtype[np.bool_]], opacity: float, thick: float
) -> Spec:
    """Runs of neighbouring cells, row by row; nothing where there are none."""
    places: list[Spec] = []
    for row, cells in enumerate(mask):
        edges = np.flatnonzero(np.diff(np.concatenate([[0], cells.astype(np.int8), [0]])))
        for start, end in edges.reshape(-1, 2).tolist():
            places += [
                {"x": start, "y": row + 0.5},
                {"x": end, "y": row + 0.5},
                {"x": None, "y": None},
            ]
    if not places:
        return {}
    return {
        "data": {"values": [{**place, "i": index} for index, place in enumerate(places)]},
        "mark": {
            "type": "line",
            "color": BLUE,
            "opacity": opacity,
            "strokeWidth": thick,
            "strokeCap": "butt",
            "invalid": "break-paths-show-path-domains",
        },
        "encoding": {"x": x(), "y": y(), "order": {"field": "i"}},
    }


def _borders(grid: Grid) -> Spec:
    """Between all cells."""
    lines = [((column, 0), (column, grid.height)) for column in range(1, grid.width)]
    lines += [((0, row), (grid.width, row)) for row in range(1, grid.height)]
    ends = [{"x": a, "y": b, "x2": c, "y2": d} for (a, b), (c, d) in lines]
    return {
        "data": {"values": ends},
        "mark": {"type": "rule", "color": GRID, "strokeWidth": 1},
        "encoding": {"x": x(), "y": y(), "x2": {"field": "x2"}, "y2": {"field": "y2"}},
    }


def _outline(grid: Grid) -> Spec:
    return {
        "data": {"values": [{"x": 0, "x2": grid.width, "y": 0, "y2": grid.height}]},
        "mark": {"type": "rect", "filled": False, "stroke": INK, "strokeWidth": 0.75},
        "encoding": {"x2": {"field": "x2"}, "y2": {"field": "y2"}},
    }


def _key(strongest: float, of: str, width: int) -> Spec:
    """The shades in a row, with the shares that three of them stand for."""
    boxes = [
        {
            "data": {"values": [{"x": shade, "x2": shade + 1}]},
            "mark": {"type": "rect", "color": BLUE, "opacity": shade / SHADE_COUNT},
            "encoding": {"x": x(), "x2": {"field": "x2"}},
        }
        for shade in range(1, SHADE_COUNT + 1)
    ]
    frame = {
        "data": {"values": [{"x": 0, "x2": SHADE_COUNT + 1}]},
        "mark": {"type": "rect", "filled": False, "stroke": GRID, "strokeWidth": 1},
        "encoding": {"x": x(), "x2": {"field": "x2"}},
    }
    at = {"left": 0.0, "center": 0.5, "right": 1.0}
    names = [
        note((shade + at[side], 0.0), words, MUTED, align=side, dy=14)
        for shade, words, side in legend_shares(strongest)
    ]
    names.append(note((0.0, 0.0), of, MUTED, dy=-14))
    marks = [
        {**name, "encoding": {"x": x(), "y": {"value": 10 if name["mark"]["dy"] > 0 else 4}}}
        for name in names
    ]
    base = {
        "x": x(
            title=None,
            axis=None,
            scale={"domain": [0, SHADE_COUNT + 1], "nice": False, "zero": False},
        )
    }
    return panel("", [*boxes, frame, *marks], base, width, 10)


def _scale(grid: Grid, width: int) -> Spec:
    """A bar as long as so many units of the maps above."""
    length, words = scale_bar(grid.width * grid.cell, grid)
    bar = {
        "data": {"values": [{"x": 0.0, "x2": length}]},
        "encoding": {"x": x(), "x2": {"field": "x2"}, "y": {"value": 10}},
    }
    ends = {
        "data": {"values": [{"x": 0.0}, {"x": length}]},
        "encoding": {"x": x(), "y": {"value": 5}, "y2": {"value": 10}},
    }
    rule = {"type": "rule", "color": INK, "strokeWidth": 1.5}
    label = {**note((length, 0.0), words, INK, dx=8), "encoding": {"x": x(), "y": {"value": 8}}}
    base = {
        "x": x(
            title=None,
            axis=None,
            scale={"domain": [0, grid.width * grid.cell], "nice": False, "zero": False},
        )
    }
    return panel("", [{**bar, "mark": rule}, {**ends, "mark": rule}, label], base, width, 10)


def _bare(last: int) -> Spec:
    """A scale of cells without an axis."""
    return {"title": None, "axis": None, "scale": {"domain": [0, last], "nice": False}}
