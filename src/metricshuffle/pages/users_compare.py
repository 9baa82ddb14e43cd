"""The page of `users compare --plot`: the error of every way on a logarithmic axis, for each model and rate."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from metricshuffle.numerics.rounding import plain
from metricshuffle.pages.charts.marks import BLUE, INK, MUTED, VERMILLION, Spec, drawing, log_scale, powers, ticks
from metricshuffle.pages.elements import Figure, Key, Table
from metricshuffle.pages.rendering import rendered
from metricshuffle.planning.compare.users import ComparedMethod, UserComparison

COLOURS = {"user": MUTED, "earth mover": BLUE, "published": VERMILLION}
WORDS = {
    "user": "any replacement hidden at epsilon",
    "earth mover": "moves hidden in proportion to their distance",
    "published": "published item rate, not certified",
}
HEADS = {"central": "Central: a curator or a shuffler is trusted", "local": "Local: nobody is trusted"}
ROW_HEIGHT = 26
Reach = tuple[float, float]


@dataclass(frozen=True)
class Section:
    """The comparison at one rate."""

    name: str
    title: str
    sentences: tuple[str, ...]
    figure: Figure
    numbers: Table


def page(comparisons: Sequence[UserComparison], people: str, unit: str) -> str:
    """One HTML document without any link: a chart and a table for each rate."""
    reach = _reach(method for comparison in comparisons for method in comparison.methods)
    first = comparisons[0]
    return rendered(
        "users_compare.html.jinja",
        users=first.users,
        people=people,
        runs=first.runs,
        epsilon=plain(first.epsilon),
        sections=[_section(f"rate-{index}", comparison, unit, reach) for index, comparison in enumerate(comparisons)],
    )


def sentence_case(sentence: str) -> str:
    return sentence[:1].upper() + sentence[1:]


def _reach(methods: Iterable[ComparedMethod]) -> Reach:
    """Both ends of an axis for all the errors."""
    errors = [(method.error, method.standard_error) for method in methods]
    return 0.6 * min(error for error, _ in errors), 1.15 * max(error + 2.0 * spread for error, spread in errors)


def _in_brackets(unit: str) -> str:
    return f" ({unit})" if unit else ""


def _section(name: str, comparison: UserComparison, unit: str, reach: Reach) -> Section:
    per = f" per {unit}" if unit else ""
    title = f"Rate {plain(comparison.rate)}{per}: a full replacement costs epsilon {plain(comparison.rate * comparison.diameter)}"
    sentences = comparison.sentences()
    kinds = [kind for kind in WORDS if any(method.hides == kind for method in comparison.methods)]
    return Section(
        name=name,
        title=title,
        sentences=tuple(map(sentence_case, sentences)),
        figure=Figure(
            drawing(errors_chart(comparison, unit, reach), name, title, " ".join(sentences)),
            "Mean error, with two standard errors to either side. The axis is logarithmic; bars start where it does.",
            [Key(WORDS[kind], COLOURS[kind]) for kind in kinds],
        ),
        numbers=_table(comparison, unit),
    )


def _table(comparison: UserComparison, unit: str) -> Table:
    rows = [
        (
            method.model,
            method.name,
            WORDS[method.hides],
            plain(method.error),
            f"{method.standard_error:.2g}",
            plain(method.strength),
        )
        for method in comparison.methods
    ]
    head = ("model", "way", "what is hidden", f"error{_in_brackets(unit)}", "standard error", "noise or item rate")
    return Table(head, rows, numeric=(3, 4, 5))


def errors_chart(comparison: UserComparison, unit: str, reach: Reach | None = None, width: int = 560) -> Spec:
    """Bars of all ways, the central model above the local one."""
    ends = _reach(comparison.methods) if reach is None else reach
    panels = []
    for model, head in HEADS.items():
        methods = [method for method in comparison.methods if method.model == model]
        if methods:
            axis = f"error in earth mover's distance{_in_brackets(unit)}" if model == "local" else None
            panels.append(_bars(methods, head, axis, ends, width))
    return {"vconcat": panels, "spacing": 26}


def _bars(methods: list[ComparedMethod], title: str, axis: str | None, reach: Reach, width: int) -> Spec:
    low, high = reach
    values = [
        {
            "way": method.name,
            "error": method.error,
            "floor": low,
            "colour": COLOURS[method.hides],
            "label": plain(method.error),
            "from": max(low, method.error - 2.0 * method.standard_error),
            "to": method.error + 2.0 * method.standard_error,
        }
        for method in sorted(methods, key=lambda method: method.error)
    ]
    across: Spec = {
        "field": "floor",
        "type": "quantitative",
        "scale": log_scale(low, high),
        "title": axis,
        "axis": {"values": powers(low, high) if len(powers(low, high)) > 1 else ticks(low, high), "format": "~g", "orient": "bottom"},
    }
    rows: Spec = {
        "field": "way",
        "type": "nominal",
        "sort": None,
        "title": None,
        "scale": {"paddingInner": 0.3, "paddingOuter": 0.1},
        "axis": {"labelLimit": 260, "labelColor": INK, "grid": False, "minExtent": 220},
    }
    bar: Spec = {
        "mark": {"type": "bar", "opacity": 0.85},
        "encoding": {
            "x": across,
            "x2": {"field": "error"},
            "y": rows,
            "color": {"field": "colour", "type": "nominal", "scale": None},
        },
    }
    spread: Spec = {
        "mark": {"type": "rule", "color": INK, "strokeWidth": 1.5},
        "encoding": {"x": {"field": "from", "type": "quantitative"}, "x2": {"field": "to"}, "y": rows},
    }
    label: Spec = {
        "mark": {"type": "text", "align": "left", "dx": 6, "color": INK, "fontSize": 11},
        "encoding": {"x": {"field": "to", "type": "quantitative"}, "y": rows, "text": {"field": "label"}},
    }
    return {
        "title": {"text": title, "anchor": "start", "frame": "bounds", "offset": 8},
        "width": width,
        "height": ROW_HEIGHT * len(values),
        "data": {"values": values},
        "layer": [bar, spread, label],
    }
