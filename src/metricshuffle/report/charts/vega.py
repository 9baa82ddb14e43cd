"""Parts of Vega-Lite charts, and their rendering as SVG, so that pages need no script.

Colours are plain values that the style sheet of the page replaces in dark mode (see
report/templates/style.css).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from metricshuffle.errors import require
from metricshuffle.report.template_engine import EXTRA, render_template

Spec = dict[str, Any]

# Okabe and Ito's palette, distinguishable with every kind of colour vision; the style sheet
# matches each of these by its value.
INK = "#1b2330"
MUTED = "#5a6473"
GRID = "#e2e6ec"
BLUE = "#0072b2"
VERMILLION = "#d55e00"
GREEN = "#00805d"
PURPLE = "#a2518a"
WATER = "#bcdcf2"
VEGA_LITE = "5.20"
# Same as --sans in report/templates/style.css: metric-compatible fonts, so that text is as wide
# on every machine as it was measured here.
FONT = "Liberation Sans, Arimo, Helvetica, Arial, sans-serif"
NUMBERS = ",~r"
"""Number format of most axes: 1,000,000 and 0.001."""
SMALL_NUMBERS = ".0e"
"""Number format of axes that reach below a millionth: 1e-9."""
MAX_MARKS_LENGTH = 60_000  # characters; a longer chart scrolls on a phone

PHONE_WIDTH = 346
"""Width of a chart, in pixels, on a screen that is 400 pixels wide.

The margins of the page and of a section are in report/templates/style.css.
"""
SMALLEST_TEXT = 9.0
TEXT = 12.0
MAX_NARROW_WIDTH = PHONE_WIDTH * TEXT / SMALLEST_TEXT
"""Wider drawings would have letters too small to read on a phone; they scroll instead."""
MIN_PANEL_WIDTH = 170  # pixels between the axes; less would be unreadable
MAX_TICKS = 4

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
    "title": {
        "color": INK,
        "fontSize": 13,
        "fontWeight": "bold",
        "anchor": "start",
        "offset": 12,
        "frame": "group",
    },
    "text": {"font": FONT, "fontSize": 12},
    "line": {"strokeWidth": 2.25, "strokeCap": "round", "strokeJoin": "round"},
    "concat": {"spacing": 34},
}


@dataclass(frozen=True)
class Drawing:
    """A chart for templates: an accessible SVG that scales with its page."""

    name: str
    title: str
    description: str
    view_box: str
    marks: str
    """SVG elements written by vl-convert; the only text of a page that is not escaped again."""
    narrow: Drawing | None = None
    """Version for phones, on which this one would be too small to read."""

    @property
    def width(self) -> float:
        return float(self.view_box.split()[2])

    @property
    def scrolls(self) -> bool:
        """Whether it is wider than a phone and has no version for phones."""
        return self.narrow is None and self.width > PHONE_WIDTH


def drawing(
    spec: Spec, name: str, title: str, description: str, *, narrow: Spec | None = None
) -> Drawing:
    """Draw a chart, and once more for phones unless it fits there.

    Phones get `narrow` if it is given, else the same specification with narrower panels. `name`
    must be unique on a page.
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
    # In the narrow chart, titles of axes and names of curves may take more room, or less.
    if not PHONE_WIDTH - 8 <= fitted.width <= PHONE_WIDTH and fitted.width > MIN_PANEL_WIDTH:
        fitted = _drawn(
            narrow_spec(spec, max(MIN_PANEL_WIDTH, width + PHONE_WIDTH - fitted.width)), *small
        )
    return (
        replace(full_drawing, narrow=fitted) if fitted.width <= MAX_NARROW_WIDTH else full_drawing
    )


def svg(spec: Spec, name: str, title: str, description: str, *, inline: bool = True) -> str:
    """Draw a chart as text; if not `inline`, as a standalone file."""
    return render_template(
        "chart.svg.jinja", drawing=_drawn(spec, name, title, description), inline=inline
    )


def _drawn(spec: Spec, name: str, title: str, description: str) -> Drawing:
    converter = require("vl_convert", EXTRA)
    written: str = converter.vegalite_to_svg({"config": CONFIG, **spec}, vl_version=VEGA_LITE)
    opening, _, inside = written.partition(">")
    view_box = re.search(r'viewBox="([^"]*)"', opening)
    if view_box is None:
        raise ValueError(f"the chart {name} was drawn without a size")
    return Drawing(
        name, title, description, view_box[1], _short(inside.removesuffix("</svg>"), name)
    )


def _short(marks: str, name: str) -> str:
    """Drop needless decimals and attributes, and rename clip paths.

    Two decimals are a hundredth of a pixel, and the roles of single marks say nothing beyond the
    description. Clip paths are numbered per process; here they are numbered per chart, after its
    name, because a page contains several.
    """
    clips = {
        clip: f"{name}-clip{index}"
        for index, clip in enumerate(dict.fromkeys(re.findall(r"clip\d+", marks)))
    }

    def shortened(tag: re.Match[str]) -> str:
        renamed = re.sub(r"\bclip\d+\b", lambda clip: clips[clip[0]], tag[0])
        plainer = re.sub(
            r' (?:role|aria-label|aria-roledescription|aria-hidden|class|pointer-events)="[^"]*"',
            "",
            renamed,
        )
        return re.sub(r"(\.\d{2})\d+", r"\1", plainer)

    return re.sub(r"<[^>]*>", shortened, marks)


def narrow_spec(spec: Spec, width: float) -> Spec:
    """Return the chart for a phone: no panel wider than `width`, panels and legend stacked."""
    changed = {
        key: value if key == "data" else _inside(value, width) for key, value in spec.items()
    }
    if "hconcat" in changed:
        changed["vconcat"] = changed.pop("hconcat")
    if "concat" in changed:
        changed["columns"] = 1
    wide = spec.get("width")
    if isinstance(wide, int | float) and wide > width:
        changed["width"] = width
        if _to_scale(spec):
            changed["height"] = round(spec["height"] * width / wide)
    return changed


def _inside(value: Any, width: float) -> Any:
    if isinstance(value, list):
        return [_inside(part, width) for part in value]
    if not isinstance(value, dict):
        return value
    changed = narrow_spec(value, width)
    if isinstance(value.get("columns"), int):
        changed["columns"] = 1
    if isinstance(value.get("tickCount"), int):
        changed["tickCount"] = min(MAX_TICKS, value["tickCount"])
    return changed


def _to_scale(spec: Spec) -> bool:
    """Whether a unit has the same length on both axes, as on a map."""
    axes = [spec.get("encoding", {}).get(name, {}).get("scale") or {} for name in ("x", "y")]
    if not isinstance(spec.get("height"), int | float) or not all(
        "domain" in axis and axis.get("type") is None for axis in axes
    ):
        return False
    across, up = (abs(axis["domain"][-1] - axis["domain"][0]) for axis in axes)
    return bool(across and up) and abs(spec["width"] / across * up / spec["height"] - 1.0) < 0.02


def panel(title: str, layers: list[Spec], encoding: Spec, width: int, height: int) -> Spec:
    """A chart whose title is at the same height whatever its axes are."""
    heading = {
        "data": rows([(0.0, 0.0)]),
        "mark": {
            "type": "text",
            "text": title,
            "align": "left",
            "fontWeight": "bold",
            "fontSize": 13,
            "color": INK,
        },
        "encoding": {"x": {"value": 0}, "y": {"value": -18}},
    }
    return {
        "width": width,
        "height": height,
        "layer": [*([heading] if title else []), *layers],
        "encoding": encoding,
    }


def line(
    points: Sequence[tuple[float, float]],
    colour: str,
    dash: Sequence[int] | None = None,
    width: float = 2.25,
) -> Spec:
    mark: Spec = {"type": "line", "color": colour, "strokeWidth": width, "clip": True}
    if dash:
        mark |= {"strokeDash": list(dash), "strokeCap": "butt"}
    return {
        "data": rows(points),
        "mark": mark,
        "encoding": {"x": x(), "y": y(), "order": {"field": "i"}},
    }


def dots(points: Sequence[tuple[float, float]], colour: str, size: int, **mark: object) -> Spec:
    style = {"type": "point", "filled": True, "size": size, "color": colour, "opacity": 1, **mark}
    return {"data": rows(points), "mark": style, "encoding": {"x": x(), "y": y()}}


def note(at: tuple[float, float], words: str | list[str], colour: str, **mark: object) -> Spec:
    """A text label at a point of the chart."""
    style = {
        "type": "text",
        "color": colour,
        "align": "left",
        "baseline": "middle",
        **mark,
        "text": words,
    }
    return {"data": rows([at]), "mark": style, "encoding": {"x": x(), "y": y()}}


def rows(points: Sequence[tuple[float, float]]) -> Spec:
    return {"values": [{"x": a, "y": b, "i": index} for index, (a, b) in enumerate(points)]}


def x(**more: object) -> Spec:
    return {"field": "x", "type": "quantitative", **more}


def y(**more: object) -> Spec:
    return {"field": "y", "type": "quantitative", **more}


def log_scale(low: float, high: float) -> Spec:
    return {"type": "log", "domain": [low, high], "nice": False}


def number_format(low: float) -> str:
    """Number format of an axis that begins at `low`."""
    return NUMBERS if low >= 1e-6 else SMALL_NUMBERS


def powers(low: float, high: float) -> list[float]:
    """Powers of ten within a range."""
    return [value for value in ticks(low, high) if f"{value:e}".startswith("1.0")]


def ticks(low: float, high: float) -> list[float]:
    """1, 2 and 5 times the powers of ten within a range."""
    values = [float(f"{digit}e{power}") for power in range(-9, 10) for digit in (1, 2, 5)]
    return [value for value in values if low * (1.0 - 1e-9) <= value <= high * (1.0 + 1e-9)]


def decades(low: float, high: float) -> list[float]:
    """Powers of ten within a range; 1, 2 and 5 times these if there are at most two."""
    tens = powers(low, high)
    return tens if len(tens) > 2 else ticks(low, high)
