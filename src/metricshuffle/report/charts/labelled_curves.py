"""Chart of curves with their names at the right end."""

from __future__ import annotations

import math
from collections.abc import Sequence

from metricshuffle.report.charts.axis_charts import Curve
from metricshuffle.report.charts.vega import (
    Spec,
    decades,
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

WIDTH = 560
HEIGHT = 320
LINE_OF_TEXT = 15.0


def curves_chart(
    curves: Sequence[Curve],
    across: str,
    up: str,
    *,
    log_x: bool = False,
    log_y: bool = True,
    from_zero: bool = True,
) -> Spec:
    """Lines over a common axis, each named at its end; overlapping names are moved apart."""
    nonempty = [curve for curve in curves if curve.points]
    left, right = (
        end(point[0] for curve in nonempty for point in curve.points) for end in (min, max)
    )
    values = [
        point[1] for curve in nonempty for point in curve.points if point[1] > 0.0 or not log_y
    ]
    low, high = (
        (0.85 * min(values), 1.15 * max(values))
        if log_y
        else (min(0.0, min(values)), 1.08 * max(values))
    )
    if not (log_y or from_zero):
        low = min(values) - 0.05 * (max(values) - min(values))
        high = max(values) + 0.05 * (max(values) - min(values))

    def pixel(value: float) -> float:
        share = (
            math.log(value / low) / math.log(high / low) if log_y else (value - low) / (high - low)
        )
        return HEIGHT * (1.0 - share)

    layers = [
        line(
            [point for point in curve.points if point[1] > 0.0 or not log_y],
            curve.colour,
            curve.dash,
        )
        for curve in nonempty
    ]
    layers += [dots(curve.points, curve.colour, 26) for curve in nonempty if len(curve.points) < 12]
    free = -math.inf
    for curve in sorted(
        (curve for curve in nonempty if curve.name), key=lambda curve: -curve.points[-1][1]
    ):
        at = pixel(curve.points[-1][1])
        free = max(at, free + LINE_OF_TEXT)
        layers.append(
            note((right, curve.points[-1][1]), curve.name, curve.colour, dx=10, dy=free - at)
        )
    horizontal: Spec = (
        {
            "scale": log_scale(left, right),
            "axis": {"values": decades(left, right), "format": number_format(left), "grid": False},
        }
        if log_x
        else {
            "scale": {"domain": [left, right], "nice": False},
            "axis": {"tickCount": 7, "grid": False},
        }
    )
    vertical: Spec = (
        {
            "scale": log_scale(low, high),
            "axis": {"values": ticks(low, high), "format": number_format(low)},
        }
        if log_y
        else {
            "scale": {"domain": [low, high], "nice": False, "zero": False},
            "axis": {"tickCount": 6},
        }
    )
    return panel(
        "",
        layers,
        {"x": x(title=across, **horizontal), "y": y(title=up, **vertical)},
        WIDTH,
        HEIGHT,
    )
