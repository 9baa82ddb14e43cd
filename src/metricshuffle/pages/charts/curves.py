"""Charts that several items share: curves with their names at the end, dots in rows, and boxes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from metricshuffle.pages.charts.marks import BLUE, GREEN, INK, MUTED, PURPLE, Spec, dots, line, log_scale, note, panel, ticks, x, y

MECHANISM_COLOURS = {"Geo-Local": MUTED, "RR-Shuffle": PURPLE, "Geo-Shuffle": BLUE, "SGDL-Shuffle": GREEN}
PUBLISHED, NEEDED = (6, 4), None
"""How a line is dashed that follows a published formula, and one that is certified."""
WIDTH, HEIGHT, LINE_OF_TEXT = 560, 320, 15.0


@dataclass(frozen=True)
class Curve:
    """One line of a chart and the words at its right end ("" for none)."""

    name: str
    points: tuple[tuple[float, float], ...]
    colour: str
    dash: Sequence[int] | None = None


def curves_chart(curves: Sequence[Curve], across: str, up: str, *, log_x: bool = False, log_y: bool = True, from_zero: bool = True) -> Spec:
    """Lines over a common axis, each named where it ends; names that would lie on each other are moved apart."""
    drawn = [curve for curve in curves if curve.points]
    left, right = (end(point[0] for curve in drawn for point in curve.points) for end in (min, max))
    values = [point[1] for curve in drawn for point in curve.points if point[1] > 0.0 or not log_y]
    low, high = (0.85 * min(values), 1.15 * max(values)) if log_y else (min(0.0, min(values)), 1.08 * max(values))
    if not (log_y or from_zero):
        low, high = min(values) - 0.05 * (max(values) - min(values)), max(values) + 0.05 * (max(values) - min(values))

    def pixel(value: float) -> float:
        share = math.log(value / low) / math.log(high / low) if log_y else (value - low) / (high - low)
        return HEIGHT * (1.0 - share)

    layers = [line([point for point in curve.points if point[1] > 0.0 or not log_y], curve.colour, curve.dash) for curve in drawn]
    layers += [dots(curve.points, curve.colour, 26) for curve in drawn if len(curve.points) < 12]
    free = -math.inf
    for curve in sorted((curve for curve in drawn if curve.name), key=lambda curve: -curve.points[-1][1]):
        at = pixel(curve.points[-1][1])
        free = max(at, free + LINE_OF_TEXT)
        layers.append(note((right, curve.points[-1][1]), curve.name, curve.colour, dx=10, dy=free - at))
    horizontal: Spec = (
        {"scale": log_scale(left, right), "axis": {"values": ticks(left, right), "format": "~s" if left >= 1.0 else "~g", "grid": False}}
        if log_x
        else {"scale": {"domain": [left, right], "nice": False}, "axis": {"tickCount": 7, "grid": False}}
    )
    vertical: Spec = (
        {"scale": log_scale(low, high), "axis": {"values": ticks(low, high), "format": "~g"}}
        if log_y
        else {"scale": {"domain": [low, high], "nice": False, "zero": False}, "axis": {"tickCount": 6}}
    )
    return panel("", layers, {"x": x(title=across, **horizontal), "y": y(title=up, **vertical)}, WIDTH, HEIGHT)


def dots_chart(names: Sequence[str], series: Sequence[tuple[str, str, Sequence[float | None]]], across: str) -> Spec:
    """One row a name, one dot a series (words, colour, values), on a logarithmic axis; the words are a legend in the first row."""
    drawn = [value for _, _, values in series for value in values if value]
    low, high = 0.6 * min(drawn), 1.6 * max(drawn)
    layers: list[Spec] = []
    for words, colour, values in series:
        placed = [(value, float(index)) for index, value in enumerate(values) if value]
        bar = {"shape": "stroke", "angle": 90, "strokeWidth": 3, "filled": False} if "bound" in words else {}
        layers.append(dots(placed, colour, 320 if bar else 90, **bar))
    for index, (words, colour, _) in enumerate(series):
        layers.append(note((low, -0.9), words, colour, dx=190 * index, fontWeight="bold"))
    labels = "[" + ",".join(f"'{name}'" for name in names) + "][datum.value]"
    base = {
        "x": x(title=across, scale=log_scale(low, high), axis={"values": _decades(low, high), "format": "~g"}),
        "y": y(
            title=None,
            scale={"domain": [-1.2, len(names) - 0.5], "nice": False, "reverse": True, "zero": False},
            axis={"values": list(range(len(names))), "labelExpr": labels, "grid": True},
        ),
    }
    return panel("", layers, base, WIDTH, 34 * (len(names) + 1))


@dataclass(frozen=True)
class Box:
    """Smallest, quartiles and largest of many errors."""

    name: str
    at: float
    five: tuple[float, float, float, float, float]
    colour: str


def boxes_chart(boxes: Sequence[Box], groups: Sequence[tuple[float, str]], up: str) -> Spec:
    """Box plots on a logarithmic axis: whiskers from the 5th to the 95th percentile, one group a crowd."""
    drawn = [value for box in boxes for value in box.five if value > 0.0]
    low, high = 0.8 * min(drawn), 1.25 * max(drawn)
    layers: list[Spec] = []
    for box in boxes:
        first, lower, middle, upper, last = (max(value, low) for value in box.five)
        layers.append(line([(box.at, first), (box.at, last)], box.colour, width=1.5))
        layers.append(line([(box.at, lower), (box.at, upper)], box.colour, width=11.0))
        layers.append(dots([(box.at, middle)], INK, 34))
    seen = dict.fromkeys((box.name, box.colour) for box in boxes)
    for index, (name, colour) in enumerate(seen):
        layers.append(note((groups[0][0] - 0.5, high), name, colour, dx=4 + 135 * index, dy=-14, fontWeight="bold"))
    labels = "{" + ",".join(f"'{at:g}':'{name}'" for at, name in groups) + "}[format(datum.value, '~g')]"
    base = {
        "x": x(
            title="users",
            scale={"domain": [groups[0][0] - 0.5, groups[-1][0] + 0.5], "nice": False},
            axis={"values": [at for at, _ in groups], "labelExpr": labels, "grid": False},
        ),
        "y": y(title=up, scale=log_scale(low, high), axis={"values": _decades(low, high), "format": "~g"}),
    }
    return panel("", layers, base, 680, HEIGHT)


def _decades(low: float, high: float) -> list[float]:
    every = ticks(low, high)
    tens = [value for value in every if f"{value:e}".startswith("1.0")]
    return tens if len(tens) > 2 else every
