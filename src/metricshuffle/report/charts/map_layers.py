"""Layers of a map in pixels: geometries, texts and single marks."""

from __future__ import annotations

import numpy as np

from metricshuffle.report.charts.vega import Spec


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
