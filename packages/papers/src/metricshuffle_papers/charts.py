"""Vega-Lite charts: several panels, grouped bars, dots in rows, and box plots."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from metricshuffle.report.charts.labelled_curves import HEIGHT, WIDTH
from metricshuffle.report.charts.vega import (
    BLUE,
    GREEN,
    INK,
    MUTED,
    PURPLE,
    Spec,
    decades,
    dots,
    line,
    log_scale,
    number_format,
    panel,
    x,
    y,
)

MECHANISM_COLOURS = {
    "Geo-Local": MUTED,
    "RR-Shuffle": PURPLE,
    "Geo-Shuffle": BLUE,
    "SGDL-Shuffle": GREEN,
}
PUBLISHED = (6, 4)
NEEDED = None
"""Dash patterns of a line that follows a published formula, and of a certified one."""
STROKE = "M-0.2,-1.3H0.2V1.3H-0.2Z"
"""Vega symbol of an upright stroke."""


def grid(panels: Sequence[Spec], columns: int) -> Spec:
    return {"concat": list(panels), "columns": columns}


def bars(
    groups: Sequence[tuple[str, Sequence[float]]],
    names: Sequence[str],
    colours: Sequence[str],
    up: str,
    *,
    title: str = "",
    width: int = 600,
    height: int = 260,
) -> Spec:
    """Bar chart with one bar per name in every group, side by side."""
    data = [
        {"group": group, "bar": name, "y": value}
        for group, values in groups
        for name, value in zip(names, values, strict=True)
    ]
    legend = {
        "title": None,
        "orient": "top",
        "labelColor": MUTED,
        "labelFontSize": 12,
        "labelLimit": 340,
    }
    return {
        "width": width,
        "height": height,
        "title": title,
        "data": {"values": data},
        "mark": {"type": "bar"},
        "encoding": {
            "x": {
                "field": "group",
                "type": "nominal",
                "sort": None,
                "title": None,
                "axis": {"labelAngle": 0},
            },
            "xOffset": {"field": "bar", "sort": list(names)},
            "y": {"field": "y", "type": "quantitative", "title": up, "axis": {"tickCount": 5}},
            "color": {
                "field": "bar",
                "type": "nominal",
                "scale": {"domain": list(names), "range": list(colours)},
                "legend": legend,
            },
        },
    }


def dots_chart(
    names: Sequence[str], series: Sequence[tuple[str, str, Sequence[float | None]]], across: str
) -> Spec:
    """Dot chart on a logarithmic axis: one row per name, one dot per series.

    A series is (words, colour, values). Bounds are upright strokes.
    """
    plotted = [value for _, _, values in series for value in values if value]
    low = 0.6 * min(plotted)
    high = 1.6 * max(plotted)
    placed = [
        {"x": value, "y": index, "series": words}
        for words, _, values in series
        for index, value in enumerate(values)
        if value
    ]
    series_names = [words for words, _, _ in series]
    shapes = [STROKE if "bound" in words else "circle" for words in series_names]
    labels = "[" + ",".join(f"'{name}'" for name in names) + "][datum.value]"
    base = {
        "x": x(
            title=across,
            scale=log_scale(low, high),
            axis={"values": decades(low, high), "format": number_format(low)},
        ),
        "y": y(
            title=None,
            scale={
                "domain": [-0.5, len(names) - 0.5],
                "nice": False,
                "reverse": True,
                "zero": False,
            },
            axis={"values": list(range(len(names))), "labelExpr": labels, "grid": True},
        ),
        "color": _series_encoding(series_names, [colour for _, colour, _ in series]),
        "shape": _series_encoding(series_names, shapes),
    }
    points: Spec = {
        "data": {"values": placed},
        "mark": {"type": "point", "filled": True, "size": 90, "opacity": 1},
    }
    return panel("", [points], base, WIDTH, 34 * len(names))


def _series_encoding(names: Sequence[str], looks: Sequence[str]) -> Spec:
    """Encoding that distinguishes the series, with a legend above the chart."""
    legend: Spec = {
        "title": None,
        "orient": "top",
        "columns": 3,
        "labelColor": INK,
        "labelFontSize": 12,
        "labelLimit": 300,
        "symbolSize": 90,
    }
    return {
        "field": "series",
        "type": "nominal",
        "scale": {"domain": list(names), "range": list(looks)},
        "legend": legend,
    }


@dataclass(frozen=True)
class BoxPlot:
    """Minimum, quartiles and maximum of many errors."""

    name: str
    at: float
    five: tuple[float, float, float, float, float]
    colour: str


def boxes_chart(boxes: Sequence[BoxPlot], groups: Sequence[tuple[float, str]], up: str) -> Spec:
    """Box plots on a logarithmic axis, one group per number of users.

    Whiskers run from the 5th to the 95th percentile.
    """
    plotted = [value for box in boxes for value in box.five if value > 0.0]
    low = 0.8 * min(plotted)
    high = 1.25 * max(plotted)
    layers: list[Spec] = []
    for box in boxes:
        first, lower, middle, upper, last = (max(value, low) for value in box.five)
        layers.append(line([(box.at, first), (box.at, last)], box.colour, width=1.5))
        layers.append(line([(box.at, lower), (box.at, upper)], box.colour, width=11.0))
        layers.append(dots([(box.at, middle)], INK, 34))
    seen = dict.fromkeys((box.name, box.colour) for box in boxes)
    legend: Spec = {
        "data": {"values": []},
        "mark": {"type": "point", "shape": "square", "filled": True, "opacity": 1},
    }
    layers.append(
        legend
        | {
            "encoding": {
                "color": _series_encoding(
                    [name for name, _ in seen], [colour for _, colour in seen]
                )
            }
        }
    )
    labels = (
        "{" + ",".join(f"'{at:g}':'{name}'" for at, name in groups) + "}[format(datum.value, '~g')]"
    )
    base = {
        "x": x(
            title="users",
            scale={"domain": [groups[0][0] - 0.5, groups[-1][0] + 0.5], "nice": False},
            axis={"values": [at for at, _ in groups], "labelExpr": labels, "grid": False},
        ),
        "y": y(
            title=up,
            scale=log_scale(low, high),
            axis={"values": decades(low, high), "format": number_format(low)},
        ),
    }
    return panel("", layers, base, 680, HEIGHT)
