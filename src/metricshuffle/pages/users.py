"""Comparisons as a page of their own: the error of every way on a logarithmic axis, for each model and rate."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from metricshuffle.pages.charts.marks import BLUE, INK, MUTED, VERMILLION, Spec, log_scale, powers, svg, ticks
from metricshuffle.pages.html import details, figure, opening, table
from metricshuffle.pages.style import STYLE
from metricshuffle.planning.user_compare import ComparedMethod, UserComparison
from metricshuffle.privacy.guarantee import plain

COLOURS = {"user": MUTED, "earth mover": BLUE, "published": VERMILLION}
WORDS = {
    "user": "any replacement hidden at epsilon", "earth mover": "moves hidden in proportion to their distance",
    "published": "published item rate, not certified",
}  # fmt: skip
ROW = 26


def page(found: Sequence[UserComparison], people: str, unit: str) -> str:
    """One HTML document without any link: a chart and a table for each rate."""
    errors = [(method.error, method.standard_error) for one in found for method in one.methods]
    low, high = 0.6 * min(error for error, _ in errors), 1.15 * max(error + 2.0 * spread for error, spread in errors)
    sections = "".join(_section(f"rate-{index}", one, unit, (low, high)) for index, one in enumerate(found))
    first = found[0]
    return f"""{opening("when is it worth it?", STYLE)}
<header>
<p class="brand">metricshuffle users compare</p>
<h1>Users with many items: when is it worth it?</h1>
<p class="lede">Histograms of {first.users:,} {escape(people)}, simulated {first.runs} times. Ordinary user-level privacy hides any
replacement of a user's items at epsilon {escape(plain(first.epsilon))}; privacy under the earth mover's distance hides a move in proportion
to it. Errors are earth mover's distances to the truth.</p>
</header>
<main>
{sections}
</main>
</body>
</html>
"""


def _section(name: str, one: UserComparison, unit: str, reach: tuple[float, float]) -> str:
    per = f" per {unit}" if unit else ""
    title = f"Rate {plain(one.rate)}{per}: a full replacement costs epsilon {plain(one.rate * one.diameter)}"
    drawn = svg(chart(one, unit, reach), name, title, " ".join(one.sentences()))
    kinds = [kind for kind in WORDS if any(method.hides == kind for method in one.methods)]
    words = "".join(f"<p>{escape(sentence[:1].upper() + sentence[1:])}</p>" for sentence in one.sentences())
    shown = figure(
        drawn, "Mean error, with two standard errors to either side. The axis is logarithmic; bars start where it does.",
        [(WORDS[kind], COLOURS[kind], "28") for kind in kinds],
    )  # fmt: skip
    rows = [
        (method.model, method.name, WORDS[method.hides], plain(method.error), f"{method.standard_error:.2g}", plain(method.strength))
        for method in one.methods
    ]
    head = ("model", "way", "what is hidden", f"error{f' ({unit})' if unit else ''}", "standard error", "noise or item rate")
    numbers = details("The numbers", table(head, rows, numeric=(3, 4, 5)))
    return f'<section><h2 id="{name}">{escape(title)}</h2>\n{words}{shown}{numbers}</section>\n'


def chart(one: UserComparison, unit: str, reach: tuple[float, float] | None = None, width: int = 560) -> Spec:
    """Bars of all ways, the central model above the local one."""
    if reach is None:
        errors = [(method.error, method.standard_error) for method in one.methods]
        reach = 0.6 * min(error for error, _ in errors), 1.15 * max(error + 2.0 * spread for error, spread in errors)
    heads = {"central": "Central: a curator or a shuffler is trusted", "local": "Local: nobody is trusted"}
    panels = [
        _bars([method for method in one.methods if method.model == model], heads[model], unit, reach, width, last=model == "local")
        for model in ("central", "local")
        if any(method.model == model for method in one.methods)
    ]
    return {"vconcat": panels, "spacing": 26}


def _bars(methods: list[ComparedMethod], title: str, unit: str, reach: tuple[float, float], width: int, *, last: bool) -> Spec:
    low, high = reach
    values = [
        {
            "way": method.name, "error": method.error, "floor": low, "colour": COLOURS[method.hides], "label": plain(method.error),
            "from": max(low, method.error - 2.0 * method.standard_error), "to": method.error + 2.0 * method.standard_error,
        }
        for method in sorted(methods, key=lambda one: one.error)
    ]  # fmt: skip
    marks = powers(low, high) if len(powers(low, high)) > 1 else ticks(low, high)
    across: Spec = {
        "field": "floor", "type": "quantitative", "scale": log_scale(low, high),
        "title": f"error in earth mover's distance{f' ({unit})' if unit else ''}" if last else None,
        "axis": {"values": marks, "format": "~g", "orient": "bottom"},
    }  # fmt: skip
    rows: Spec = {
        "field": "way", "type": "nominal", "sort": None, "title": None, "scale": {"paddingInner": 0.3, "paddingOuter": 0.1},
        "axis": {"labelLimit": 260, "labelColor": INK, "grid": False, "minExtent": 220},
    }  # fmt: skip
    colour: Spec = {"field": "colour", "type": "nominal", "scale": None}
    return {
        "title": {"text": title, "anchor": "start", "frame": "bounds", "offset": 8},
        "width": width, "height": ROW * len(values), "data": {"values": values},
        "layer": [
            {"mark": {"type": "bar", "opacity": 0.85},
             "encoding": {"x": across, "x2": {"field": "error"}, "y": rows, "color": colour}},
            {"mark": {"type": "rule", "color": INK, "strokeWidth": 1.5},
             "encoding": {"x": {"field": "from", "type": "quantitative"}, "x2": {"field": "to"}, "y": rows}},
            {"mark": {"type": "text", "align": "left", "dx": 6, "color": INK, "fontSize": 11},
             "encoding": {"x": {"field": "to", "type": "quantitative"}, "y": rows, "text": {"field": "label"}}},
        ],
    }  # fmt: skip
