"""Page of `users compare --plot`: the error of every method, for each model and rate.

Errors are dots on a logarithmic axis.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from metricshuffle.numerics.rounding import format_number
from metricshuffle.report.charts.vega import (
    BLUE,
    INK,
    MUTED,
    VERMILLION,
    Spec,
    drawing,
    log_scale,
    number_format,
    powers,
    ticks,
)
from metricshuffle.report.components import Figure, Key, Shape, TextTable
from metricshuffle.report.template_engine import rendered_from
from metricshuffle_papers.compare.users import ComparedMethod, UserComparison

COLOURS = {"user": MUTED, "earth mover": BLUE, "published": VERMILLION}
SHAPES: dict[str, Shape] = {"user": "circle", "earth mover": "diamond", "published": "triangle-up"}
WORDS = {
    "user": "any replacement hidden at epsilon {epsilon}",
    "earth mover": "moves hidden in proportion to their distance",
    "published": "published item rate, not certified",
}
HEADS = {
    "central": "Central: a curator or a shuffler is trusted",
    "local": "Local: nobody is trusted",
}
ROW_HEIGHT = 26
NARROW_ROW_HEIGHT = 42
WIDTH = 560
NARROW = 280
Reach = tuple[float, float]


@dataclass(frozen=True)
class Section:
    """Comparison at one rate."""

    name: str
    title: str
    sentences: tuple[str, ...]
    figure: Figure
    numbers: TextTable


def page(comparisons: Sequence[UserComparison], people: str, unit: str) -> str:
    """Return one self-contained HTML document: a chart and a table for each rate."""
    reach = _reach(method for comparison in comparisons for method in comparison.methods)
    first = comparisons[0]
    return rendered_from(
        "metricshuffle_papers.pages",
        "users_compare.html.jinja",
        users=first.users,
        people=people,
        runs=first.runs,
        epsilon=format_number(first.epsilon),
        sections=[
            _section(f"rate-{index}", comparison, unit, reach)
            for index, comparison in enumerate(comparisons)
        ],
    )


def sentence_case(sentence: str) -> str:
    return sentence[:1].upper() + sentence[1:]


def key(kind: str, words: str) -> Key:
    """Legend entry of a kind of method."""
    return Key(words, COLOURS[kind], shape=SHAPES[kind])


def _hidden(kind: str, comparison: UserComparison) -> str:
    return WORDS[kind].format(epsilon=format_number(comparison.epsilon))


def _reach(methods: Iterable[ComparedMethod]) -> Reach:
    """Range of an axis for all the errors."""
    errors = [(method.error, method.standard_error) for method in methods]
    return 0.6 * min(error for error, _ in errors), 1.15 * max(
        error + 2.0 * spread for error, spread in errors
    )


def _in_brackets(unit: str) -> str:
    return f" ({unit})" if unit else ""


def _section(name: str, comparison: UserComparison, unit: str, reach: Reach) -> Section:
    per = f" per {unit}" if unit else ""
    title = (
        f"Rate {format_number(comparison.rate)}{per}: a full replacement costs epsilon "
        f"{format_number(comparison.rate * comparison.diameter)}"
    )
    sentences = comparison.sentences()
    kinds = [kind for kind in WORDS if any(method.hides == kind for method in comparison.methods)]
    return Section(
        name=name,
        title=title,
        sentences=tuple(map(sentence_case, sentences)),
        figure=Figure(
            drawing(
                errors_chart(comparison, unit, reach),
                name,
                title,
                " ".join(sentences),
                narrow=errors_chart(comparison, unit, reach, narrow=True),
            ),
            "Mean error, with two standard errors to either side. The axis is logarithmic: "
            "each step to the right is ten times the error."
            if len(powers(*reach)) > 1
            else "Mean error, with two standard errors to either side. The axis is logarithmic.",
            [key(kind, _hidden(kind, comparison)) for kind in kinds],
        ),
        numbers=_table(comparison, unit),
    )


def _table(comparison: UserComparison, unit: str) -> TextTable:
    rows = [
        (
            method.model,
            method.name,
            _hidden(method.hides, comparison),
            format_number(method.error),
            format_number(float(f"{method.standard_error:.2g}")),
            format_number(method.strength),
        )
        for method in comparison.methods
    ]
    head = (
        "model",
        "way",
        "what is hidden",
        f"error{_in_brackets(unit)}",
        "standard error",
        "noise or item rate",
    )
    return TextTable(head, rows, numeric=(3, 4, 5))


def errors_chart(
    comparison: UserComparison, unit: str, reach: Reach | None = None, *, narrow: bool = False
) -> Spec:
    """Dot chart of the methods' errors, the central model above the local one.

    On a logarithmic axis the length of a bar would be meaningless. `narrow`: for phones, with the
    name of each method above its dot.
    """
    ends = _reach(comparison.methods) if reach is None else reach
    panels = []
    for model, head in HEADS.items():
        methods = [method for method in comparison.methods if method.model == model]
        if methods:
            axis = (
                f"error in earth mover's distance{_in_brackets(unit)}" if model == "local" else None
            )
            panels.append(_rows_of_dots(methods, head, axis, ends, narrow=narrow))
    return {"vconcat": panels, "spacing": 26}


def _rows_of_dots(
    methods: list[ComparedMethod], title: str, axis: str | None, reach: Reach, *, narrow: bool
) -> Spec:
    low, high = reach
    values = [
        {
            "way": method.name,
            "error": method.error,
            "colour": COLOURS[method.hides],
            "shape": SHAPES[method.hides],
            "label": format_number(method.error),
            "from": max(low, method.error - 2.0 * method.standard_error),
            "to": method.error + 2.0 * method.standard_error,
        }
        for method in sorted(methods, key=lambda method: method.error)
    ]
    shown = powers(low, high) if len(powers(low, high)) > 1 else ticks(low, high)
    across: Spec = {
        "field": "error",
        "type": "quantitative",
        "scale": log_scale(low, high),
        "title": axis,
        "axis": {"values": shown, "format": number_format(low), "orient": "bottom"},
    }
    labels: Spec = {"labelLimit": 260, "labelColor": INK, "grid": True, "minExtent": 220}
    rows: Spec = {
        "field": "way",
        "type": "nominal",
        "sort": None,
        "title": None,
        "axis": None if narrow else labels,
    }
    down = 8 if narrow else 0
    colour: Spec = {"field": "colour", "type": "nominal", "scale": None}
    spread: Spec = {
        "mark": {"type": "rule", "strokeWidth": 2.5, "opacity": 0.55, "yOffset": down},
        "encoding": {
            "x": {**across, "field": "from"},
            "x2": {"field": "to"},
            "y": rows,
            "color": colour,
        },
    }
    dot: Spec = {
        "mark": {"type": "point", "filled": True, "size": 90, "opacity": 1, "yOffset": down},
        "encoding": {
            "x": across,
            "y": rows,
            "color": colour,
            "shape": {"field": "shape", "type": "nominal", "scale": None},
        },
    }
    label: Spec = {
        "mark": {
            "type": "text",
            "align": "left",
            "dx": 9,
            "dy": down,
            "color": INK,
            "fontSize": 12,
        },
        "encoding": {"x": {**across, "field": "to"}, "y": rows, "text": {"field": "label"}},
    }
    name: Spec = {
        "mark": {"type": "text", "align": "left", "dy": -9, "color": INK, "fontSize": 12},
        "encoding": {"x": {"value": 0}, "y": rows, "text": {"field": "way"}},
    }
    return {
        "title": {"text": title, "anchor": "start", "frame": "bounds", "offset": 8},
        "width": NARROW if narrow else WIDTH,
        "height": (NARROW_ROW_HEIGHT if narrow else ROW_HEIGHT) * len(values),
        "data": {"values": values},
        "layer": [spread, dot, label, *([name] if narrow else [])],
    }
