"""Pieces of Vega-Lite charts, and their drawing as SVG when the page is built, so that the page needs no script.

Colours are written as plain values that the style sheet of the page replaces in dark mode (see report/templates/style.css).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from metricshuffle.errors import require
from metricshuffle.report.charts.phone_layout import MAX_NARROW_WIDTH, MIN_PANEL_WIDTH, PHONE_WIDTH, narrow_spec
from metricshuffle.report.template_engine import EXTRA, render_template

Spec = dict[str, Any]

# Okabe and Ito's palette, told apart with every kind of colour vision; the style sheet knows each of these by value.
INK, MUTED, GRID = "#1b2330", "#5a6473", "#e2e6ec"
BLUE, VERMILLION, GREEN, PURPLE, WATER = "#0072b2", "#d55e00", "#00805d", "#a2518a", "#bcdcf2"
VEGA_LITE = "5.20"
# As --sans in report/templates/style.css: metric-compatible with each other, so that text is as wide on every machine as it was measured
# here.
FONT = "Liberation Sans, Arimo, Helvetica, Arial, sans-serif"
NUMBERS, SMALL_NUMBERS = ",~r", ".0e"
"""How axes write numbers, 1,000,000 and 0.001, and how those that reach below a millionth do: 1e-9."""
MAX_MARKS_LENGTH = 60_000  # characters; such a chart scrolls on a telephone

CONFIG: Spec = {
    "font": FONT,
    "background": None,
    "aria": False,
    "view": {"stroke": None},
    "axis": {
        "labelColor": MUTED,
        "titleColor": INK,
        "labelFontSize": 12,
        "titleFontSize": 12,
        "titleFontWeight": "normal",
        "titlePadding": 9,
        "gridColor": GRID,
        "domain": False,
        "ticks": False,
        "labelPadding": 6,
        "labelFlush": False,
        "labelSeparation": 6,
    },
    "title": {"color": INK, "fontSize": 13, "fontWeight": "bold", "anchor": "start", "offset": 12, "frame": "group"},
    "text": {"font": FONT, "fontSize": 12},
    "line": {"strokeWidth": 2.25, "strokeCap": "round", "strokeJoin": "round"},
    "concat": {"spacing": 34},
}


@dataclass(frozen=True)
class Drawing:
    """A chart as a template writes it: an accessible SVG that scales with the page it is in."""

    name: str
    title: str
    description: str
    view_box: str
    marks: str
    """The elements of the SVG; what vl-convert wrote, and the only text of a page that is not escaped again."""
    narrow: Drawing | None = None
    """The same for a telephone, on which this one would be too small to read."""

    @property
    def width(self) -> float:
        return float(self.view_box.split()[2])

    @property
    def scrolls(self) -> bool:
        """Whether it needs more room than a telephone has, and nothing stands in for it there."""
        return self.narrow is None and self.width > PHONE_WIDTH


def drawing(spec: Spec, name: str, title: str, description: str, *, narrow: Spec | None = None) -> Drawing:
    """Draw the chart, and once more for telephones unless it fits there. `name` must be different for every chart of a page.

    Telephones get the same specification, narrowed, where there is none of their own.
    """
    full_drawing = _drawn(spec, name, title, description)
    if full_drawing.width <= PHONE_WIDTH:
        return full_drawing
    small = f"{name}-narrow", title, description
    if narrow is not None:
        return replace(full_drawing, narrow=_drawn(narrow, *small))
    if len(full_drawing.marks) > MAX_MARKS_LENGTH:
        return full_drawing
    wide = spec.get("width")
    width = PHONE_WIDTH - (full_drawing.width - wide if isinstance(wide, int | float) else 0.0)
    fitted = _drawn(narrow_spec(spec, max(MIN_PANEL_WIDTH, width)), *small)
    if (
        not PHONE_WIDTH - 8 <= fitted.width <= PHONE_WIDTH and fitted.width > MIN_PANEL_WIDTH
    ):  # names of axes and curves take more room, or less
        fitted = _drawn(narrow_spec(spec, max(MIN_PANEL_WIDTH, width + PHONE_WIDTH - fitted.width)), *small)
    return replace(full_drawing, narrow=fitted) if fitted.width <= MAX_NARROW_WIDTH else full_drawing


def svg(spec: Spec, name: str, title: str, description: str, *, inline: bool = True) -> str:
    """The same as text; not `inline`: one that can be a file of its own."""
    return render_template("chart.svg.jinja", drawing=_drawn(spec, name, title, description), inline=inline)


def _drawn(spec: Spec, name: str, title: str, description: str) -> Drawing:
    converter = require("vl_convert", EXTRA)
    written: str = converter.vegalite_to_svg({"config": CONFIG, **spec}, vl_version=VEGA_LITE)
    opening, _, inside = written.partition(">")
    view_box = re.search(r'viewBox="([^"]*)"', opening)
    if view_box is None:
        raise ValueError(f"the chart {name} was drawn without a size")
    return Drawing(name, title, description, view_box[1], _short(inside.removesuffix("</svg>"), name))


def _short(marks: str, name: str) -> str:
    """Two decimals are a hundredth of a pixel, and the roles of single marks say nothing that the description does not.

    Clip paths are numbered through a whole process; here anew, and by the chart's name, because a page holds several.
    """
    clips = {clip: f"{name}-clip{index}" for index, clip in enumerate(dict.fromkeys(re.findall(r"clip\d+", marks)))}

    def shortened(tag: re.Match[str]) -> str:
        renamed = re.sub(r"\bclip\d+\b", lambda clip: clips[clip[0]], tag[0])
        plainer = re.sub(r' (?:role|aria-label|aria-roledescription|aria-hidden|class|pointer-events)="[^"]*"', "", renamed)
        return re.sub(r"(\.\d{2})\d+", r"\1", plainer)

    return re.sub(r"<[^>]*>", shortened, marks)


def panel(title: str, layers: list[Spec], encoding: Spec, width: int, height: int) -> Spec:
    """A chart whose title sits at the same height whatever its axes are."""
    heading = {
        "data": rows([(0.0, 0.0)]),
        "mark": {"type": "text", "text": title, "align": "left", "fontWeight": "bold", "fontSize": 13, "color": INK},
        "encoding": {"x": {"value": 0}, "y": {"value": -18}},
    }
    return {"width": width, "height": height, "layer": [*([heading] if title else []), *layers], "encoding": encoding}


def line(points: Sequence[tuple[float, float]], colour: str, dash: Sequence[int] | None = None, width: float = 2.25) -> Spec:
    mark: Spec = {"type": "line", "color": colour, "strokeWidth": width, "clip": True}
    if dash:
        mark |= {"strokeDash": list(dash), "strokeCap": "butt"}
    return {"data": rows(points), "mark": mark, "encoding": {"x": x(), "y": y(), "order": {"field": "i"}}}


def dots(points: Sequence[tuple[float, float]], colour: str, size: int, **mark: Any) -> Spec:
    style = {"type": "point", "filled": True, "size": size, "color": colour, "opacity": 1, **mark}
    return {"data": rows(points), "mark": style, "encoding": {"x": x(), "y": y()}}


def note(at: tuple[float, float], words: str | list[str], colour: str, **mark: Any) -> Spec:
    """A label written at a point of the chart."""
    style = {"type": "text", "color": colour, "align": "left", "baseline": "middle", **mark, "text": words}
    return {"data": rows([at]), "mark": style, "encoding": {"x": x(), "y": y()}}


def rows(points: Sequence[tuple[float, float]]) -> Spec:
    return {"values": [{"x": a, "y": b, "i": index} for index, (a, b) in enumerate(points)]}


def x(**more: Any) -> Spec:
    return {"field": "x", "type": "quantitative", **more}


def y(**more: Any) -> Spec:
    return {"field": "y", "type": "quantitative", **more}


def log_scale(low: float, high: float) -> Spec:
    return {"type": "log", "domain": [low, high], "nice": False}


def number_format(low: float) -> str:
    """How an axis from there on writes its numbers."""
    return NUMBERS if low >= 1e-6 else SMALL_NUMBERS


def powers(low: float, high: float) -> list[float]:
    """The powers of ten within a range."""
    return [value for value in ticks(low, high) if f"{value:e}".startswith("1.0")]


def ticks(low: float, high: float) -> list[float]:
    """1, 2 and 5 times the powers of ten within a range."""
    values = [float(f"{digit}e{power}") for power in range(-9, 10) for digit in (1, 2, 5)]
    return [value for value in values if low * (1.0 - 1e-9) <= value <= high * (1.0 + 1e-9)]
