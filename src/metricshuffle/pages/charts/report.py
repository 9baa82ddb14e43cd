"""The charts of the report, as Vega-Lite specifications."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from metricshuffle.pages.charts.marks import (
    BLUE,
    GREEN,
    INK,
    MUTED,
    PURPLE,
    VERMILLION,
    WATER,
    Spec,
    dots,
    line,
    log_scale,
    note,
    panel,
    powers,
    ticks,
    x,
    y,
)  # fmt: skip
from metricshuffle.pages.numbers import EpsilonCurves, ErrorCurve, FrontierPoint, epsilon_curves
from metricshuffle.planning import Plan, Release
from metricshuffle.privacy.guarantee import plain
from metricshuffle.spaces import Grid

Floats = NDArray[np.float64]
PROTOCOL_COLOURS = {
    "geometric-local": MUTED, "geometric-shuffle": BLUE, "polya-shuffle": GREEN, "geometric-central": INK,
    "randomized-response-shuffle": PURPLE,
}  # fmt: skip
DASHES = {"geometric-central": [2, 3], "geometric-local": [7, 3]}


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
        layers.append(dots([promise], INK, 46))
    named = f"distance ({unit})" if unit else "distance"
    base = {
        "x": x(title=named, scale={"domain": [0, reach], "nice": False}, axis={"tickCount": 5, "grid": False, "format": ",d"}),
        "y": y(title="total epsilon", scale={"domain": [0, top], "nice": False}, axis={"tickCount": 5}),
    }
    return panel(title, layers, base, width, height)


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
    return epsilon_curves(curves.rate, curves.honest, curves.delta, max(1, round(reach)))


def claim_chart(curves: EpsilonCurves, width: int = 560, height: int = 330, unit: str = "") -> Spec:
    """One panel with its labels on the lines: the story of a claim that is false far away."""
    reach, end = float(curves.reach), curves.exact[-1]
    chart = epsilon_panel(curves, reach, 1.03 * curves.alone(reach), unit, title="", width=width, height=height)
    beside = {"dx": 10}
    chart["layer"] += [
        note((reach, curves.alone(reach)), ["One report alone", f"\u03b5 = {plain(curves.alone(reach))}"], MUTED, lineBreak="\n", **beside),
        note((reach, end), ["Exact, shuffled", f"\u03b5 = {end:.0f}"], BLUE, fontWeight="bold", **beside),
        note(
            (reach, curves.claimed(reach)),
            ["Published claim", f"\u03b5 = {curves.claimed(reach):.0f}"],
            VERMILLION,
            fontWeight="bold",
            **beside,
        ),
    ]
    if curves.false_from is not None:
        inside = 0.8 * reach
        middle = 0.5 * (curves.claimed(inside) + float(np.interp(inside, curves.distances, curves.exact)))
        chart["layer"].append(
            note((inside, middle), ["The claim is false", f"beyond a move of {curves.false_from - 1}"], VERMILLION, align="center")
        )
    return chart


def error_chart(curves: Sequence[ErrorCurve], plan: Plan) -> Spec:
    """Expected error against users, both on logarithmic axes."""
    layers: list[Spec] = []
    for curve in curves:
        colour, points = PROTOCOL_COLOURS[curve.protocol], list(zip(map(float, curve.users), curve.errors, strict=True))
        below = curve.protocol == "geometric-central"
        layers.append(line(points, colour, DASHES.get(curve.protocol)))
        layers.append(note(points[-1], curve.protocol, colour, dx=10, dy=10 if below else (-6 if curve.protocol == "polya-shuffle" else 0)))
    seen: set[str] = set()
    for one in plan.candidates:
        if one.protocol not in seen and (one.protocol != "polya-shuffle" or one.shape == 1):
            seen.add(one.protocol)
            layers.append(dots([(float(plan.users), one.expected_error)], PROTOCOL_COLOURS[one.protocol], 62))
            if one.protocol == "randomized-response-shuffle":
                layers.append(note((float(plan.users), one.expected_error), one.protocol, PROTOCOL_COLOURS[one.protocol], dx=10, dy=-10))
    errors, reach = [error for curve in curves for error in curve.errors], (curves[0].users[0], curves[0].users[-1])
    base = {
        "x": x(title="people who report", scale=log_scale(*reach), axis={"values": powers(*reach), "format": ",d", "grid": False}),
        "y": y(title=with_unit("expected error", plan), scale=log_scale(0.45 * min(errors), 1.4 * max(errors)),
               axis={"values": powers(min(errors), max(errors)), "format": "~r"}),
    }  # fmt: skip
    return panel("", layers, base, 640, 320)


def frontier_chart(points: Sequence[FrontierPoint], plan: Plan) -> Spec:
    """Expected error against the epsilon of one report, at the target's distance and at one step; labels say the total shape."""
    local = next((one for one in plan.candidates if one.protocol == "geometric-local"), None)
    far, near = [(point.local_epsilon, point.error) for point in points], [(point.local_epsilon_per_step, point.error) for point in points]
    first, last = f"B = {points[0].shape}, polya-shuffle", f"B = {points[-1].shape:,}, geometric-shuffle"
    layers: list[Spec] = [
        line(near, BLUE, (5, 3), width=1.75), dots(near, BLUE, 40), line(far, GREEN), dots(far, GREEN, 54),
        note(far[0], first, GREEN, dx=-14, dy=10, align="right"), note(far[-1], last, GREEN, dx=10, dy=-14),
        note(near[-1], f"B = {points[-1].shape:,}", BLUE, dx=12, dy=-10), note(near[0], f"B = {points[0].shape}", BLUE, dx=-12, dy=10,
        align="right"),
        dots([(plan.choice.local_epsilon, plan.choice.expected_error)], VERMILLION, 260, filled=False, strokeWidth=2),
    ]  # fmt: skip
    errors = [point.error for point in points]
    if local is not None:
        errors.append(local.expected_error)
        layers += [
            dots([(local.local_epsilon, local.expected_error)], MUTED, 70),
            note((local.local_epsilon, local.expected_error), "geometric-local, trusts nobody", MUTED, dx=12),
        ]
    low, high = 0.6 * min(errors), 1.6 * max(errors)
    base = {
        "x": x(title="epsilon of one report, if the shuffler colludes", scale={"domain": [0, 1.08 * far[0][0]], "nice": False},
        axis={"tickCount": 7, "grid": False}),
        "y": y(title=with_unit("expected error", plan), scale=log_scale(low, high), axis={"values": ticks(low, high), "format": "~r"}),
    }  # fmt: skip
    return panel("", layers, base, 790, 320)


def map_chart(
    points: Floats, river: Floats, places: Sequence[tuple[str, float, float]], truth: tuple[float, float], release: Release
) -> Spec:
    """The people with both centroids, and beside it the few metres around them."""
    grid = release.query.domain
    assert isinstance(grid, Grid)  # noqa: S101 - a centroid is over a grid
    across, up = grid.width * grid.cell, grid.height * grid.cell
    estimate, box = pair(release.value), release.interval_95
    (left, right), (bottom, top) = (pair(side) for side in box)
    holes = [
        part for place in points for part in ({"x": round(float(place[0]), 1), "y": round(float(place[1]), 1)}, {"x": None, "y": None})
    ]
    people = {
        "data": {"values": [{**one, "i": index} for index, one in enumerate(holes)]},
        # one path of dots instead of thousands of marks: a line of single points with round caps
        "mark": {"type": "line", "color": BLUE, "opacity": 0.5, "strokeWidth": 2.8, "invalid": "break-paths-show-path-domains"},
        "encoding": {"x": x(), "y": y(), "order": {"field": "i"}},
    }  # fmt: skip
    both = [dots([truth], INK, 150, shape="cross"), dots([estimate], VERMILLION, 170, filled=False, strokeWidth=2.25)]
    names = [note((place[1], place[2]), place[0], INK, align="center", fontSize=12, fontStyle="italic") for place in places]
    whole = panel(
        "The city", [line([(float(a), float(b)) for a, b in river], WATER, width=15.0), people, *names, *both,
                     note(estimate, "both centroids", INK, dx=14, fontWeight="bold")],
        metres("x", 0.0, across, "east", grid) | metres("y", 0.0, up, "north", grid), 480, round(480 * up / across),
    )  # fmt: skip
    half = 1.35 * max(right - left, top - bottom, 2.0 * abs(truth[0] - estimate[0]), 2.0 * abs(truth[1] - estimate[1])) / 2.0
    side = 2.0 * half
    interval = {
        "data": {"values": [{"x": left, "x2": right, "y": bottom, "y2": top}]}, "mark": {"type": "rect", "color": VERMILLION,
        "opacity": 0.14},
        "encoding": {"x": x(), "x2": {"field": "x2"}, "y": y(), "y2": {"field": "y2"}},
    }  # fmt: skip
    lower = estimate[1] < truth[1]
    zoom = panel(
        f"{plain(round(side, 1))} {grid.unit} around them",
        [interval, *both, note(truth, "true", INK, dx=12, dy=-10 if lower else 10), note(estimate, "private", VERMILLION, dx=12,
        dy=10 if lower else -10),
         note((left, top), "95 % interval", VERMILLION, dx=6, dy=10, fontSize=11)],
        metres("x", estimate[0] - half, estimate[0] + half, "east", grid) | metres("y", estimate[1] - half, estimate[1] + half, "",
        grid), 250, 250,
    )  # fmt: skip
    return {"hconcat": [whole, zoom]}


def metres(axis: str, low: float, high: float, named: str, grid: Grid) -> Spec:
    title = f"{named} ({grid.unit})" if named and grid.unit else named or None
    narrow = high - low < 20.0
    return {axis: {"field": axis, "type": "quantitative", "title": title, "scale": {"domain": [low, high], "nice": False, "zero": False},
                   "axis": {"tickCount": 4 if narrow else 6, "format": ",.1f" if narrow else ",d", "grid": narrow}}}  # fmt: skip


def pair(value: object) -> tuple[float, float]:
    """Two numbers, where a release of a plane has them."""
    first, second = np.asarray(value, dtype=np.float64)
    return float(first), float(second)


def with_unit(words: str, plan: Plan) -> str:
    return f"{words} ({plan.query.unit})" if plan.query.unit else words
