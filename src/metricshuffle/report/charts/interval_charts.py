"""Charts of intervals: bars for labels, steps over a line, and numbers on their range."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from metricshuffle.numerics.rounding import format_number
from metricshuffle.numerics.types import Floats
from metricshuffle.report.charts.vega import (
    BLUE,
    GRID,
    INK,
    MUTED,
    VERMILLION,
    WATER,
    Spec,
    dots,
    line,
    note,
    panel,
    x,
    y,
)
from metricshuffle.report.plan_view import decimals_for

WIDE = 600
"""Pixels between the axes on a page."""
NARROW = 300
"""Pixels between the axes on a phone."""
HEIGHT = 190
BAR = 24
NUMBER = 34
MAX_BARS = 24
LONGEST_LABEL = 150
"""Pixels for a label on a phone."""
WIDE_LETTER = 6.3
"""Pixels for one letter."""
LONGEST_NAME = 60
CLOSE_UP_SHARE = 0.12  # of the range: a shorter interval is repeated close up


@dataclass(frozen=True)
class NamedInterval:
    """A named value with its interval."""

    name: str
    value: float
    low: float
    high: float
    written: str

    @property
    def holds_zero(self) -> bool:
        return self.low <= 0.0 <= self.high


def _shorten_names(bars: Sequence[NamedInterval]) -> list[NamedInterval]:
    """Shorten long names, which are slow to measure and cut; names stay unique.

    Rows are identified by their names.
    """
    names: dict[str, None] = {}
    for bar in bars:
        name = (
            bar.name
            if len(bar.name) <= LONGEST_NAME
            else f"{bar.name[: LONGEST_NAME - 16]}…{bar.name[-15:]}"
        )
        names[name if name not in names else f"{name} ({len(names) + 1})"] = None
    return [replace(bar, name=name) for bar, name in zip(bars, names, strict=True)]


def bars_chart(
    bars: Sequence[NamedInterval],
    across: str,
    left_out: str = "",
    *,
    level: str,
    narrow: bool = False,
) -> Spec:
    """Bar chart with one row per item, in the given order.

    A bar begins at zero and is hollow if the interval contains zero; a line shows the interval.
    With an empty `level` there are no intervals.
    """
    bars = _shorten_names(bars)
    spread = [end for bar in bars for end in (bar.low, bar.high, bar.value)]
    axis_low = min(0.0, *spread)
    axis_high = max(0.0, *spread)
    room = (0.3 if narrow else 0.12) * (axis_high - axis_low or 1.0)  # for the numbers at the ends
    values = [
        {
            "name": bar.name,
            "value": bar.value,
            "low": bar.low,
            "high": bar.high,
            "end": max(bar.high, bar.value, 0.0),
            "written": bar.written,
            "i": index,
        }
        for index, bar in enumerate(bars)
    ]
    hollow = [row for row, bar in zip(values, bars, strict=True) if level and bar.holds_zero]
    full = [row for row, bar in zip(values, bars, strict=True) if not (level and bar.holds_zero)]
    names: Spec = {"field": "name", "type": "nominal", "sort": [bar.name for bar in bars]}

    def layer(rows: Sequence[Spec], mark: Spec, **encoding: Spec) -> list[Spec]:
        return (
            [{"data": {"values": list(rows)}, "mark": mark, "encoding": {"y": names, **encoding}}]
            if rows
            else []
        )

    length: dict[str, Spec] = {
        "x": {"field": "value", "type": "quantitative"},
        "x2": {"datum": 0.0},
    }
    layers = [
        *layer(full, {"type": "bar", "color": BLUE, "opacity": 0.55, "height": 13}, **length),
        *layer(
            hollow,
            {"type": "bar", "filled": False, "stroke": BLUE, "strokeWidth": 1.25, "height": 12},
            **length,
        ),
        *layer(
            values if level else [],
            {"type": "rule", "color": INK, "strokeWidth": 1.5},
            x={"field": "low", "type": "quantitative"},
            x2={"field": "high"},
        ),
        *layer(
            values,
            {"type": "text", "color": INK, "align": "left", "dx": 6},
            x={"field": "end", "type": "quantitative"},
            text={"field": "written"},
        ),
    ]
    height = BAR * len(bars)
    longest = LONGEST_LABEL if narrow else 2 * LONGEST_LABEL
    legend = [f"line: {level} interval" if level else "smoothed, without intervals"]
    legend += [
        *(["hollow: the interval holds zero"] if hollow else []),
        *([left_out] if left_out else []),
    ]
    layers += [_below(words, height, place) for place, words in enumerate(legend)]
    base = {
        "x": {
            "type": "quantitative",
            "title": across,
            "axis": {"orient": "bottom", "tickCount": 5},
            "scale": {"domain": [axis_low, axis_high + room], "nice": False},
        },
        "y": {
            **names,
            "title": None,
            "axis": {"labelColor": INK, "labelLimit": longest, "grid": False},
        },
    }
    labels = min(longest, round(WIDE_LETTER * max(len(bar.name) for bar in bars)))
    return panel("", layers, base, (NARROW + 40 if narrow else WIDE) - labels, height)


def _below(words: str, height: int, place: int) -> Spec:
    """A line of text below the title of the axis."""
    return {
        "data": {"values": [{}]},
        "mark": {"type": "text", "text": words, "align": "left", "fontSize": 12, "color": MUTED},
        "encoding": {"x": {"value": 0}, "y": {"value": height + 58 + 17 * place}},
    }


def steps_chart(
    title: str, edges: Floats, values: Floats, around: Floats, across: str, up: str, width: int
) -> Spec:
    """Step chart of bins with a band; `around` has (low, high) of each bin. All in percent."""
    # The last edge closes the last step.
    bottom, top = np.concatenate([around, around[-1:]]).T
    band = {
        "data": {
            "values": [
                {"x": at, "y": band_low, "y2": band_high}
                for at, band_low, band_high in zip(
                    *(c.tolist() for c in (edges, bottom, top)), strict=True
                )
            ]
        },
        "mark": {"type": "area", "color": WATER, "opacity": 0.75, "interpolate": "step-after"},
        "encoding": {"x": x(), "y": y(), "y2": {"field": "y2"}},
    }
    corners = np.repeat(edges, 2)[1:-1]
    steps = np.repeat(values, 2)
    curve = line(
        list(zip(corners.tolist(), steps.tolist(), strict=True)),
        BLUE,
        width=2.0 if len(values) <= 200 else 1.0,
    )
    highest = max(float(top.max()), float(steps.max()))
    base = {
        "x": x(
            title=across,
            scale={"domain": [float(edges[0]), float(edges[-1])], "nice": False, "zero": False},
            axis={"grid": False, "tickCount": 6, "format": ",~r"},
        ),
        "y": y(
            title=up,
            scale={"domain": [0.0, highest or 1.0], "nice": False},
            axis={"tickCount": 5, "format": ",~r"},
        ),
    }
    return panel(title, [band, curve], base, width, HEIGHT)


def distances_chart(
    edges: Floats, shares: Floats, distance: float, across: str, *, narrow: bool = False
) -> Spec:
    """Histogram of how far people are apart; a line marks the distance of a plan."""
    percents = 100.0 * shares
    spec = steps_chart(
        "",
        edges,
        percents,
        np.column_stack([np.zeros(len(shares)), percents]),
        across,
        "pairs of people (%)",
        NARROW if narrow else WIDE,
    )
    if distance > float(edges[-1]):  # beyond every pair
        return spec
    top = float(percents.max())
    side = "right" if distance > 0.6 * float(edges[-1]) else "left"
    marked = note((distance, top), "the distance", VERMILLION, align=side, dx=-6, dy=8)
    if side == "left":
        marked["mark"]["dx"] = 6
    mark = line([(distance, 0.0), (distance, top)], VERMILLION)
    return {**spec, "layer": [*spec["layer"], mark, marked]}


def number_chart(
    value: NamedInterval,
    ends: tuple[float, float],
    across: str,
    level: str,
    *,
    narrow: bool = False,
) -> Spec:
    """A number and its interval on the possible range; a short interval is repeated close up."""
    low = min(ends[0], value.low, value.value)
    high = max(ends[1], value.high, value.value)
    width = NARROW if narrow else WIDE
    whole = _number_line("", value, (low, high), across, width)
    if value.high - value.low >= CLOSE_UP_SHARE * (high - low):
        return {
            **whole,
            "layer": [*whole["layer"], _below(f"thick line: {level} interval", NUMBER, 0)],
        }
    margin = 0.35 * (value.high - value.low) or 0.01 * (high - low)
    close = _number_line(
        f"Close up: the {level} interval",
        value,
        (value.low - margin, value.high + margin),
        across,
        width,
    )
    return {"vconcat": [whole, close], "spacing": 40}


def _number_line(
    title: str, value: NamedInterval, ends: tuple[float, float], across: str, width: int
) -> Spec:
    middle = 18.0
    at = {"y": {"value": middle}}
    span = {
        "data": {"values": [{"x": value.low, "x2": value.high}]},
        "encoding": {"x": x(), "x2": {"field": "x2"}, **at},
    }
    ruler = {
        "data": {"values": [{"x": ends[0], "x2": ends[1]}]},
        "encoding": {"x": x(), "x2": {"field": "x2"}, **at},
    }
    share = (value.value - ends[0]) / (ends[1] - ends[0])
    align = "left" if share < 0.2 else "right" if share > 0.8 else "center"
    words = "" if title else value.written  # one of both panels is enough
    layers = [
        {**ruler, "mark": {"type": "rule", "color": GRID, "strokeWidth": 3}},
        {**span, "mark": {"type": "rule", "color": BLUE, "opacity": 0.45, "strokeWidth": 10}},
        {**dots([(value.value, 0.0)], INK, 60), "encoding": {"x": x(), **at}},
        {
            **note((value.value, 0.0), words, INK, align=align, fontWeight="bold", fontSize=13),
            "encoding": {"x": x(), "y": {"value": 0}},
        },
    ]
    base = {
        "x": x(
            title=across,
            scale={"domain": list(ends), "nice": False, "zero": False},
            axis={"tickCount": 5, "format": ",~r"},
        )
    }
    return panel(title, layers, base, width, NUMBER)


def percent(share: float, error: float = 0.0) -> str:
    """Format a share in percent: to two digits of its standard error, or three digits without."""
    if not error > 0.0:
        return f"{format_number(float(f'{100.0 * share:.3g}'))} %"
    return f"{100.0 * share:.{decimals_for(100.0 * error)}f} %"
