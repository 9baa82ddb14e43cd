"""Line charts with a legend, as plain Vega-Lite."""

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
    VERMILLION,
    Spec,
    number_format,
)

__all__ = [
    "BLUE",
    "DASHED",
    "DOTTED",
    "GREEN",
    "INK",
    "MUTED",
    "PURPLE",
    "SOLID",
    "VERMILLION",
    "Axis",
    "Curve",
    "Spec",
    "curves",
]

SOLID = (1, 0)
DASHED = (7, 4)
DOTTED = (2, 3)


@dataclass(frozen=True)
class Curve:
    """A line with its name ("" for none) and dash pattern (None: solid)."""

    name: str
    points: Sequence[tuple[float, float]]
    colour: str
    dash: Sequence[int] | None = None


@dataclass(frozen=True)
class Axis:
    """An axis with its title and scale; `format` is that of its numbers, as in Vega."""

    title: str
    logarithmic: bool = False
    format: str = ""
    zero: bool = True
    """Whether a linear axis begins at 0."""

    def encoding(self, field: str, values: Sequence[float]) -> Spec:
        low = min(values, default=0.1)
        high = max(values, default=1.0)
        axis: Spec = {"grid": field == "y", "tickCount": 5}
        if self.format or self.logarithmic:
            axis["format"] = self.format or number_format(low)
        if self.logarithmic and high >= 4.0 * low:
            axis["values"] = _decades(low, high)
            scale: Spec = {"type": "log", "domain": [low, high]}
        elif self.logarithmic or not self.zero:  # a short logarithmic axis would have no ticks
            margin = 0.05 * (high - low) or 0.1 * abs(high)
            scale = {"domain": [low - margin, high + margin], "zero": False}
        else:
            scale = {"domain": [min(0.0, low), 1.04 * high if high > 0.0 else 1.0]}
        scale["nice"] = False
        return {
            "field": field,
            "type": "quantitative",
            "title": self.title,
            "axis": axis,
            "scale": scale,
        }


def curves(
    lines: Sequence[Curve],
    across: Axis,
    up: Axis,
    *,
    title: str = "",
    width: int = 600,
    height: int = 320,
) -> Spec:
    """Chart of lines over one pair of axes, with a legend.

    Points that are not finite, or not positive on a logarithmic axis, are left out.
    """
    points_shown = [
        (x, y, curve.name)
        for curve in lines
        for x, y in curve.points
        if math.isfinite(x)
        and math.isfinite(y)
        and (x > 0.0 or not across.logarithmic)
        and (y > 0.0 or not up.logarithmic)
    ]
    legend = {
        "title": None,
        "orient": "top",
        "columns": 2,
        "labelColor": MUTED,
        "labelFontSize": 12,
        "labelLimit": 340,
        "symbolSize": 300,
    }
    names = [curve.name for curve in lines]
    spec: Spec = {
        "width": width,
        "height": height,
        "data": {"values": [{"x": x, "y": y, "curve": name} for x, y, name in points_shown]},
        "mark": {"type": "line", "clip": True},
        "encoding": {
            "x": across.encoding("x", [x for x, _, _ in points_shown]),
            "y": up.encoding("y", [y for _, y, _ in points_shown]),
            "color": _series_scale(names, [curve.colour for curve in lines], legend),
            "strokeDash": _series_scale(
                names, [list(curve.dash or SOLID) for curve in lines], legend
            ),
        },
    }
    return spec | ({"title": title} if title else {})


def _series_scale(names: list[str], looks: Sequence[object], legend: Spec) -> Spec:
    return {
        "field": "curve",
        "type": "nominal",
        "scale": {"domain": names, "range": list(looks)},
        "legend": legend,
    }


def _decades(low: float, high: float) -> list[float]:
    """1, 2 and 5 times the powers of ten within a range; only the powers if it is long."""
    digits = (1, 2, 5) if high < 200.0 * low else (1,)
    span = range(math.floor(math.log10(low)) - 1, math.ceil(math.log10(high)) + 1)
    return [
        value
        for power in span
        for digit in digits
        if low <= (value := float(f"{digit}e{power}")) * (1.0 + 1e-12) <= high * (1.0 + 1e-9)
    ]
