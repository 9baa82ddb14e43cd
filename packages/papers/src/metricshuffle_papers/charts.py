"""Charts of several panels, and bars side by side, as plain Vega-Lite."""

from __future__ import annotations

from collections.abc import Sequence

from metricshuffle.report.charts.vega import MUTED, Spec


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
    """For every group one bar per name, side by side."""
    data = [{"group": group, "bar": name, "y": value} for group, values in groups for name, value in zip(names, values, strict=True)]
    legend = {"title": None, "orient": "top", "labelColor": MUTED, "labelFontSize": 12, "labelLimit": 340}
    return {
        "width": width,
        "height": height,
        "title": title,
        "data": {"values": data},
        "mark": {"type": "bar"},
        "encoding": {
            "x": {"field": "group", "type": "nominal", "sort": None, "title": None, "axis": {"labelAngle": 0}},
            "xOffset": {"field": "bar", "sort": list(names)},
            "y": {"field": "y", "type": "quantitative", "title": up, "axis": {"tickCount": 5}},
            "color": {"field": "bar", "type": "nominal", "scale": {"domain": list(names), "range": list(colours)}, "legend": legend},
        },
    }
