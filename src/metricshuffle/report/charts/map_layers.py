"""Layers of a map in pixels: geometries, texts and single marks."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from metricshuffle.numerics.types import Floats
from metricshuffle.report.charts.vega import Spec


@dataclass(frozen=True, eq=False)
class Background:
    """Areas and lines of a map, in units from the south-west corner of the grid."""

    areas: tuple[tuple[Floats, ...], ...] = ()
    """For each area, its outer ring (counter-clockwise) and those of its holes (clockwise)."""
    lines: tuple[Floats, ...] = ()
    names: tuple[tuple[str, float, float], ...] = ()
    """Names of places with their points, the most important first."""
    source: str = ""
    """Whom the map must name as the source of lines and names."""


def shape_layer(kind: str, coordinates: object, clip: bool = False, **style: object) -> Spec:
    """Layer of a geometry in pixels, with the identity as its projection."""
    style = {"fill": None, "stroke": None, **style}
    return {
        "data": {
            "values": [
                {"type": "Feature", "geometry": {"type": kind, "coordinates": _listed(coordinates)}}
            ]
        },
        "mark": {"type": "geoshape", "clip": clip, "invalid": None, **style},
    }


def _listed(coordinates: object) -> object:
    """Nested lists of pixels, rounded to a hundredth."""
    if isinstance(coordinates, np.ndarray):
        return np.round(coordinates, 2).tolist()
    return (
        [_listed(part) for part in coordinates]
        if isinstance(coordinates, list | tuple)
        else coordinates
    )


def text_layer(words: str, left: float, top: float, colour: str, **style: object) -> Spec:
    """Layer of a text at a point in pixels."""
    return mark_layer(
        {
            "type": "text",
            "text": words,
            "align": "left",
            "baseline": "middle",
            "fontSize": 12,
            "color": colour,
            **style,
        },
        left,
        top,
    )


def mark_layer(mark: Spec, left: float, top: float) -> Spec:
    """Layer of a single mark at a point in pixels."""
    return {
        "data": {"values": [{}]},
        "mark": mark,
        "encoding": {"x": {"value": round(float(left), 2)}, "y": {"value": round(float(top), 2)}},
    }
