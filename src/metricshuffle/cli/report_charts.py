"""The charts of the report as inline SVG: Vega-Lite drawn when the page is built, so the page needs no script.

Colours are written as plain values that the style sheet of the page replaces in dark mode (see report_style).
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import Any

import numpy as np

from metricshuffle.cli.report_numbers import EpsilonCurves, ErrorCurve, FrontierPoint
from metricshuffle.errors import require
from metricshuffle.planning import Plan
from metricshuffle.planning.explain import name_of
from metricshuffle.privacy.guarantee import plain

Spec = dict[str, Any]

# Okabe and Ito's palette, told apart with every kind of colour vision; the style sheet knows each of these by value.
INK, MUTED, GRID = "#1b2330", "#5a6473", "#e2e6ec"
BLUE, VERMILLION, GREEN, PURPLE, WATER = "#0072b2", "#d55e00", "#00805d", "#a2518a", "#bcdcf2"
PROTOCOL_COLOURS = {
    "geometric-local": MUTED, "geometric-shuffle": BLUE, "polya-shuffle": GREEN, "geometric-central": INK,
    "randomized-response-shuffle": PURPLE,
}  # fmt: skip
DASHES = {"geometric-central": [2, 3], "geometric-local": [7, 3]}
VEGA_LITE = "5.20"
# Metric-compatible with each other, so that text is measured alike on every machine.
FONT = "Liberation Sans, Arial, Helvetica, sans-serif"

CONFIG: Spec = {
    "font": FONT, "background": None, "aria": False, "view": {"stroke": None},
    "axis": {
        "labelColor": MUTED, "titleColor": INK, "labelFontSize": 12, "titleFontSize": 12, "titleFontWeight": "normal", "titlePadding": 9,
        "gridColor": GRID, "domain": False, "ticks": False, "labelPadding": 6, "labelFlush": False,
    },
    "title": {"color": INK, "fontSize": 13, "fontWeight": "bold", "anchor": "start", "offset": 12, "frame": "group"},
    "text": {"font": FONT, "fontSize": 12},
    "line": {"strokeWidth": 2.25, "strokeCap": "round", "strokeJoin": "round"},
    "concat": {"spacing": 34},
}  # fmt: skip


def svg(spec: Spec, name: str, title: str, description: str) -> str:
    """The chart as an accessible inline SVG that scales with the page."""
    converter = require("vl_convert", "report")
    drawn: str = converter.vegalite_to_svg({"config": CONFIG, **spec}, vl_version=VEGA_LITE)
    head, _, rest = drawn.partition(">")
    head = head.replace('class="marks"', f'class="chart" role="img" aria-labelledby="{name}-title {name}-desc"')
    return f'{head}><title id="{name}-title">{escape(title)}</title><desc id="{name}-desc">{escape(description)}</desc>{rest}'


def line(points: Sequence[tuple[float, float]], colour: str, dash: Sequence[int] | None = None, width: float = 2.25) -> Spec:
    mark: Spec = {"type": "line", "color": colour, "strokeWidth": width, "clip": True}
    if dash:
        mark |= {"strokeDash": list(dash), "strokeCap": "butt"}
    return {"data": rows(points), "mark": mark, "encoding": {"x": x(), "y": y(), "order": {"field": "x"}}}


def note(at: tuple[float, float], words: str | list[str], colour: str, **mark: Any) -> Spec:
    """A label written at a point of the chart."""
    style = {"type": "text", "color": colour, "align": "left", "baseline": "middle", **mark, "text": words}
    return {"data": rows([at]), "mark": style, "encoding": {"x": x(), "y": y()}}


def rows(points: Sequence[tuple[float, float]]) -> Spec:
    return {"values": [{"x": a, "y": b} for a, b in points]}


def x(**more: Any) -> Spec:
    return {"field": "x", "type": "quantitative", **more}


def y(**more: Any) -> Spec:
    return {"field": "y", "type": "quantitative", **more}


def epsilon_panel(curves: EpsilonCurves, reach: float, top: float, unit: str, *, title: str, promise: tuple[float, float] | None = None,
                  width: int = 350, height: int = 270) -> Spec:  # fmt: skip
    """Epsilon against distance up to `reach`: exact, published claim, one report alone, and the promise if there is one."""
    exact = [(0.0, 0.0), *((float(d), e) for d, e in zip(curves.distances, curves.exact, strict=True))]
    layers: list[Spec] = []
    if curves.false_from is not None and curves.false_from < reach:
        gap = [{"x": d, "y": e, "claimed": curves.claimed(d)} for d, e in exact if d >= curves.false_from and d <= reach]
        layers.append({
            "data": {"values": gap}, "mark": {"type": "area", "color": VERMILLION, "opacity": 0.16, "clip": True},
            "encoding": {"x": x(), "y": y(), "y2": {"field": "claimed"}},
        })  # fmt: skip
    layers += [
        line([(0.0, 0.0), (reach, curves.alone(reach))], MUTED, (2, 3)),
        line([(0.0, 0.0), (reach, curves.claimed(reach))], VERMILLION, (7, 4)),
        line([(d, e) for d, e in exact if d <= reach * 1.02], BLUE, width=3.0),
    ]
    if promise is not None:
        layers.append(line([(0.0, 0.0), promise], INK, (1, 0), width=1.5))
        layers.append({
            "data": rows([promise]), "mark": {"type": "point", "filled": True, "size": 46, "color": INK, "opacity": 1},
            "encoding": {"x": x(), "y": y()},
        })  # fmt: skip
    named = f"distance ({unit})" if unit else "distance"
    base = {
        "x": x(title=named, scale={"domain": [0, reach], "nice": False}, axis={"tickCount": 5, "grid": False, "format": ",d"}),
        "y": y(title="total epsilon", scale={"domain": [0, top], "nice": False}, axis={"tickCount": 5}),
    }
    return {"title": title, "width": width, "height": height, "layer": layers, "encoding": base}


def epsilon_chart(curves: EpsilonCurves, plan: Plan) -> Spec:
    """Two looks at the same curves: where the promise is made, and all the way across."""
    target, unit, across = plan.target, plan.query.unit, plan.query.diameter
    near = 2.0 * target.distance
    close = epsilon_panel(curves_near(curves, near), near, 1.6 * curves.claimed(near), unit,
                          title=f"Near: up to {plain(near)} {unit}", promise=(target.distance, target.epsilon))  # fmt: skip
    top = 1.12 * max(curves.exact[-1], curves.claimed(across))
    far = epsilon_panel(curves, across, top, unit, title=f"Far: across the whole range of {plain(across)} {unit}")
    return {"hconcat": [close, far]}


def curves_near(curves: EpsilonCurves, reach: float) -> EpsilonCurves:
    """The same curves, worked out again on a fine mesh up to a short distance."""
    from metricshuffle.cli.report_numbers import epsilon_curves

    return epsilon_curves(curves.rate, curves.honest, curves.delta, max(1, round(reach)))


def claim_chart(curves: EpsilonCurves, width: int = 560, height: int = 330, unit: str = "") -> Spec:
    """One panel with its labels on the lines: the story of a claim that is false far away."""
    reach, end = float(curves.reach), curves.exact[-1]
    panel = epsilon_panel(curves, reach, 1.03 * curves.alone(reach), unit, title="", width=width, height=height)
    panel.pop("title")
    beside = {"dx": 10}
    panel["layer"] += [
        note((reach, curves.alone(reach)), ["One report alone", f"\u03b5 = {plain(curves.alone(reach))}"], MUTED, lineBreak="\n", **beside),
        note((reach, end), ["Exact, shuffled", f"\u03b5 = {end:.0f}"], BLUE, fontWeight="bold", **beside),
        note((reach, curves.claimed(reach)), ["Published claim", f"\u03b5 = {curves.claimed(reach):.0f}"], VERMILLION, fontWeight="bold", **beside),
    ]
    if curves.false_from is not None:
        panel["layer"].append(note((0.62 * reach, 0.5 * (curves.claimed(0.62 * reach) + float(np.interp(0.62 * reach, curves.distances, curves.exact)))),
                                   [f"false beyond a move of {curves.false_from - 1}"], VERMILLION, align="center"))  # fmt: skip
    return panel


def error_chart(curves: Sequence[ErrorCurve], plan: Plan) -> Spec:
    """Expected error against users, both on logarithmic axes."""
    unit = plan.query.unit
    layers = [
        line(list(zip(map(float, curve.users), curve.errors, strict=True)), PROTOCOL_COLOURS[curve.protocol], DASHES.get(curve.protocol))
        for curve in curves
    ]
    seen: set[str] = set()
    for one in plan.candidates:
        if one.protocol in seen or (one.protocol == "polya-shuffle" and one.shape != 1):
            continue
        seen.add(one.protocol)
        layers.append({
            "data": rows([(float(plan.users), one.expected_error)]),
            "mark": {"type": "point", "filled": True, "size": 62, "color": PROTOCOL_COLOURS[one.protocol], "opacity": 1},
            "encoding": {"x": x(), "y": y()},
        })  # fmt: skip
    errors = [error for curve in curves for error in curve.errors]
    reach = [curves[0].users[0], curves[0].users[-1]]
    named = f"expected error ({unit})" if unit else "expected error"
    base = {
        "x": x(title="people who report", scale={"type": "log", "domain": reach, "nice": False},
               axis={"values": powers(*reach), "format": ",d", "grid": False}),
        "y": y(title=named, scale={"type": "log", "domain": [0.8 * min(errors), 1.4 * max(errors)], "nice": False},
               axis={"values": powers(min(errors), max(errors)), "labelExpr": "datum.value < 1 ? format(datum.value, '~r') : format(datum.value, ',d')"}),
    }  # fmt: skip
    return {"width": 780, "height": 320, "layer": layers, "encoding": base}


def powers(low: float, high: float) -> list[float]:
    """The powers of ten within a range."""
    first, last = int(np.ceil(np.log10(low) - 1e-9)), int(np.floor(np.log10(high) + 1e-9))
    return [float(f"1e{power}") for power in range(first, last + 1)]


def frontier_chart(points: Sequence[FrontierPoint], plan: Plan) -> Spec:
    """Expected error against the epsilon of one report; a label says the total shape."""
    family = [(point.local_epsilon, point.error) for point in points]
    ends = [points[0], points[-1]]
    layers: list[Spec] = [
        line(family, GREEN, width=2.0),
        dots(family, GREEN, 54),
        note(family[0], [f"polya-shuffle: B = {ends[0].shape}"], INK, dx=-12, dy=12, align="right"),
        note(family[-1], [f"geometric-shuffle: B = {ends[1].shape:,}"], INK, dx=10, dy=-14, align="left"),
    ]
    for point in points[1:-1:2]:
        if point.local_epsilon > 1.06 * points[-1].local_epsilon:
            layers.append(note((point.local_epsilon, point.error), f"{point.shape}", MUTED, dx=8, dy=-8, fontSize=11))
    for one in plan.candidates:
        if one.protocol == "geometric-local":
            layers += [dots([(one.local_epsilon, one.expected_error)], MUTED, 70), note((one.local_epsilon, one.expected_error), ["geometric-local: trusts nobody"], INK, dx=12)]
    chosen = plan.choice
    layers.append({
        "data": rows([(chosen.local_epsilon, chosen.expected_error)]),
        "mark": {"type": "point", "filled": False, "size": 260, "color": VERMILLION, "strokeWidth": 2, "opacity": 1}, "encoding": {"x": x(), "y": y()},
    })  # fmt: skip
    errors = [error for _, error in family] + [one.expected_error for one in plan.candidates if one.protocol == "geometric-local"]
    unit, far = plan.query.unit, f"{plain(plan.target.distance)} {plan.query.unit}".strip()
    base = {
        "x": x(title=f"epsilon of one report at {far}, if the shuffler colludes", scale={"domain": [0, 1.08 * max(e for e, _ in family)], "nice": False}, axis={"tickCount": 7, "grid": False}),
        "y": y(title=f"expected error ({unit})" if unit else "expected error", scale={"type": "log", "domain": [0.6 * min(errors), 1.6 * max(errors)], "nice": False},
               axis={"values": ticks(0.6 * min(errors), 1.6 * max(errors)), "format": "~r"}),
    }  # fmt: skip
    return {"width": 780, "height": 320, "layer": layers, "encoding": base}


def ticks(low: float, high: float) -> list[float]:
    """1, 2 and 5 times the powers of ten within a range."""
    found = [float(f"{digit}e{power}") for power in range(-8, 9) for digit in (1, 2, 5)]
    return [value for value in found if low <= value <= high]


def dots(points: Sequence[tuple[float, float]], colour: str, size: int, **mark: Any) -> Spec:
    style = {"type": "point", "filled": True, "size": size, "color": colour, "opacity": 1, **mark}
    return {"data": rows(points), "mark": style, "encoding": {"x": x(), "y": y()}}


def chosen_label(plan: Plan) -> str:
    return name_of(plan.choice)
