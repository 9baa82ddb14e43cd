"""Charts that several items share: curves with their names at the end, dots in rows, and boxes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from metricshuffle.report.charts.vega import (
    BLUE,
    GREEN,
    INK,
    MUTED,
    PURPLE,
    Spec,
    dots,
    line,
    log_scale,
    note,
    number_format,
    panel,
    ticks,
    x,
    y,
)

MECHANISM_COLOURS = {"Geo-Local": MUTED, "RR-Shuffle": PURPLE, "Geo-Shuffle": BLUE, "SGDL-Shuffle": GREEN}
PUBLISHED, NEEDED = (6, 4), None
"""How a line is dashed that follows a published formula, and one that is certified."""
WIDTH, HEIGHT, LINE_OF_TEXT = 560, 320, 15.0
STROKE = "M-0.2,-1.3H0.2V1.3H-0.2Z"
"""A symbol of Vega's: an upright stroke."""


@dataclass(frozen=True)
class Curve:
    """One line of a chart and the words at its right end ("" for none)."""

    name: str
    points: tuple[tuple[float, float], ...]
    colour: str
    dash: Sequence[int] | None = None


def curves_chart(curves: Sequence[Curve], across: str, up: str, *, log_x: bool = False, log_y: bool = True, from_zero: bool = True) -> Spec:
    """Lines over a common axis, each named where it ends; names that would lie on each other are moved apart."""
    nonempty = [curve for curve in curves if curve.points]
    left, right = (end(point[0] for curve in nonempty for point in curve.points) for end in (min, max))
    values = [point[1] for curve in nonempty for point in curve.points if point[1] > 0.0 or not log_y]
    low, high = (0.85 * min(values), 1.15 * max(values)) if log_y else (min(0.0, min(values)), 1.08 * max(values))
    if not (log_y or from_zero):
        low, high = min(values) - 0.05 * (max(values) - min(values)), max(values) + 0.05 * (max(values) - min(values))

    def pixel(value: float) -> float:
        share = math.log(value / low) / math.log(high / low) if log_y else (value - low) / (high - low)
        return HEIGHT * (1.0 - share)

    layers = [line([point for point in curve.points if point[1] > 0.0 or not log_y], curve.colour, curve.dash) for curve in nonempty]
    layers += [dots(curve.points, curve.colour, 26) for curve in nonempty if len(curve.points) < 12]
    free = -math.inf
    for curve in sorted((curve for curve in nonempty if curve.name), key=lambda curve: -curve.points[-1][1]):
        at = pixel(curve.points[-1][1])
        free = max(at, free + LINE_OF_TEXT)
        layers.append(note((right, curve.points[-1][1]), curve.name, curve.colour, dx=10, dy=free - at))
    horizontal: Spec = (
        {"scale": log_scale(left, right), "axis": {"values": _decades(left, right), "format": number_format(left), "grid": False}}
        if log_x
        else {"scale": {"domain": [left, right], "nice": False}, "axis": {"tickCount": 7, "grid": False}}
    )
    vertical: Spec = (
        {"scale": log_scale(low, high), "axis": {"values": ticks(low, high), "format": number_format(low)}}
        if log_y
        else {"scale": {"domain": [low, high], "nice": False, "zero": False}, "axis": {"tickCount": 6}}
    )
    return panel("", layers, {"x": x(title=across, **horizontal), "y": y(title=up, **vertical)}, WIDTH, HEIGHT)


def dots_chart(names: Sequence[str], series: Sequence[tuple[str, str, Sequence[float | None]]], across: str) -> Spec:
    """One row a name, one dot a series (words, colour, values), on a logarithmic axis; bounds are upright strokes."""
    plotted = [value for _, _, values in series for value in values if value]
    low, high = 0.6 * min(plotted), 1.6 * max(plotted)
    placed = [{"x": value, "y": index, "series": words} for words, _, values in series for index, value in enumerate(values) if value]
    series_names = [words for words, _, _ in series]
    shapes = [STROKE if "bound" in words else "circle" for words in series_names]
    labels = "[" + ",".join(f"'{name}'" for name in names) + "][datum.value]"
    base = {
        "x": x(title=across, scale=log_scale(low, high), axis={"values": _decades(low, high), "format": number_format(low)}),
        "y": y(
            title=None,
            scale={"domain": [-0.5, len(names) - 0.5], "nice": False, "reverse": True, "zero": False},
            axis={"values": list(range(len(names))), "labelExpr": labels, "grid": True},
        ),
        "color": _series_encoding(series_names, [colour for _, colour, _ in series]),
        "shape": _series_encoding(series_names, shapes),
    }
    points: Spec = {"data": {"values": placed}, "mark": {"type": "point", "filled": True, "size": 90, "opacity": 1}}
    return panel("", [points], base, WIDTH, 34 * len(names))


def _series_encoding(names: Sequence[str], looks: Sequence[str]) -> Spec:
    """Series told apart, with a legend above the chart."""
    legend: Spec = {
        "title": None,
        "orient": "top",
        "columns": 3,
        "labelColor": INK,
        "labelFontSize": 12,
        "labelLimit": 300,
        "symbolSize": 90,
    }
    return {"field": "series", "type": "nominal", "scale": {"domain": list(names), "range": list(looks)}, "legend": legend}


@dataclass(frozen=True)
class Box:
    """Smallest, quartiles and largest of many errors."""

    name: str
    at: float
    five: tuple[float, float, float, float, float]
    colour: str


def boxes_chart(boxes: Sequence[Box], groups: Sequence[tuple[float, str]], up: str) -> Spec:
    """Box plots on a logarithmic axis: whiskers from the 5th to the 95th percentile, one group a crowd."""
    plotted = [value for box in boxes for value in box.five if value > 0.0]
    low, high = 0.8 * min(plotted), 1.25 * max(plotted)
    layers: list[Spec] = []
    for box in boxes:
        first, lower, middle, upper, last = (max(value, low) for value in box.five)
        layers.append(line([(box.at, first), (box.at, last)], box.colour, width=1.5))
        layers.append(line([(box.at, lower), (box.at, upper)], box.colour, width=11.0))
        layers.append(dots([(box.at, middle)], INK, 34))
    seen = dict.fromkeys((box.name, box.colour) for box in boxes)
    legend: Spec = {"data": {"values": []}, "mark": {"type": "point", "shape": "square", "filled": True, "opacity": 1}}
    layers.append(legend | {"encoding": {"color": _series_encoding([name for name, _ in seen], [colour for _, colour in seen])}})
    labels = "{" + ",".join(f"'{at:g}':'{name}'" for at, name in groups) + "}[format(datum.value, '~g')]"
    base = {
        "x": x(
            title="users",
            scale={"domain": [groups[0][0] - 0.5, groups[-1][0] + 0.5], "nice": False},
            axis={"values": [at for at, _ in groups], "labelExpr": labels, "grid": False},
        ),
        "y": y(title=up, scale=log_scale(low, high), axis={"values": _decades(low, high), "format": number_format(low)}),
    }
    return panel("", layers, base, 680, HEIGHT)


def _decades(low: float, high: float) -> list[float]:
    every = ticks(low, high)
    tens = [value for value in every if f"{value:e}".startswith("1.0")]
    return tens if len(tens) > 2 else every
