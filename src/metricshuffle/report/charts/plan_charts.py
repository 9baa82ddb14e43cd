"""Charts of a plan: its candidates as rows of dots, and epsilon against distance."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from metricshuffle.numerics.rounding import format_distance, format_epsilon
from metricshuffle.planning import Plan
from metricshuffle.report.charts.chart import Chart
from metricshuffle.report.charts.vega import (
    BLUE,
    GREEN,
    GRID,
    INK,
    MUTED,
    NUMBERS,
    PURPLE,
    VERMILLION,
    Spec,
    dots,
    line,
    log_scale,
    note,
    panel,
    powers,
    rows,
    ticks,
    x,
    y,
)
from metricshuffle.report.plan_view import CandidateView, PlanFacts, plan_facts

TRUST_COLOURS = {"nobody": MUTED, "shuffler": BLUE, "aggregator": GREEN, "curator": PURPLE}
ROW = 30
"""Height of a row, in pixels."""
NAMES = 232
"""Width of the names, in pixels."""
WIDTH = 250
"""Width of a panel, in pixels."""
HEIGHT = 300
"""Height of the chart of epsilon against distance, in pixels."""
NARROW_ROW = 44
NARROW_WIDTH = 330
NAME_OFFSET_SHARE = 0.42
"""How far a name is above its row on a phone, as a fraction of the row's height."""
MIN_RANGE_RATIO = 8.0
DOT_SIZE = 90
LABEL_LEFT_SHARE = 0.62
"""From this fraction of a panel on, numbers are to the left of their dots."""


@dataclass(frozen=True)
class RowMark:
    """A dot in a row, or text if there is no number."""

    row: int
    value: float
    words: str
    offer: CandidateView


def candidates_chart(plan: Plan, *, name: str = "candidates") -> Chart:
    """Chart of all candidates: expected error, and epsilon of one report under collusion."""
    facts = plan_facts(plan)
    offers = facts.offers
    first, second = _panels(facts, WIDTH, ROW)
    first["layer"] += _names(offers)
    trusts = dict.fromkeys(offer.trusted for offer in offers)
    spec: Spec = {"hconcat": [first, second], "spacing": 40}
    descriptions = "; ".join(
        f"{_named(offer)}, trusting {offer.trusted}: {offer.error}, epsilon {_left(offer)}"
        for offer in offers
    )
    words = (
        f"Further left is better in both. {facts.choice.name} is chosen (trusted in the plan: "
        f"{', '.join(trusts)}). {descriptions}."
    )
    return Chart(spec, name, "Expected error, and epsilon of one report, of every protocol", words)


def narrow_candidates(plan: Plan) -> Spec:
    """Chart of all candidates for phones: one panel below the other, and names above the dots."""
    facts = plan_facts(plan)
    panels = _panels(facts, NARROW_WIDTH, NARROW_ROW)
    for panel_spec in panels:
        panel_spec["layer"] += _names(facts.offers, above=True)
    return {"vconcat": panels, "spacing": 40}


def _panels(facts: PlanFacts, width: int, row_height: int) -> list[Spec]:
    scale = 100.0 if facts.error_unit.startswith("%") else 1.0
    errors = []
    alone = []
    for row, offer in enumerate(facts.offers):
        errors.append(RowMark(row, scale * offer.expected_error, offer.error, offer))
        alone.append(RowMark(row, offer.local_epsilon, _left(offer), offer))
    return [
        _rows_panel(_error_title(facts), errors, width, row_height),
        _rows_panel("epsilon of one report, if it colludes", alone, width, row_height),
    ]


def _error_title(facts: PlanFacts) -> str:
    return f"expected error ({facts.error_unit})" if facts.error_unit else "expected error"


def _named(offer: CandidateView) -> str:
    return f"{offer.name}, {offer.encoding}" if offer.encoding else offer.name


def _left(offer: CandidateView) -> str:
    return "raw values" if offer.trusted == "curator" else format_epsilon(offer.local_epsilon)


def _names(offers: Sequence[CandidateView], *, above: bool = False) -> list[Spec]:
    """Names to the left of the first panel, or above the dots."""
    grouped: dict[tuple[str, str], list[tuple[float, float, str]]] = {}
    for row, offer in enumerate(offers):
        style = "bold" if offer.chosen else "normal", MUTED if offer.baseline else INK
        grouped.setdefault(style, []).append(
            (1.0, row - NAME_OFFSET_SHARE if above else float(row), _named(offer))
        )
    limit, across = (NARROW_WIDTH, 0) if above else (NAMES - 8, -NAMES)
    return [
        _words(labels, colour, {"value": across}, fontWeight=weight, limit=limit)
        for (weight, colour), labels in grouped.items()
    ]


def _words(
    labels: Sequence[tuple[float, float, str]],
    colour: str,
    across: Spec | None = None,
    **mark: object,
) -> Spec:
    """One layer for all labels of one style: drawing takes a while for each layer."""
    style = {"type": "text", "color": colour, "align": "left", "baseline": "middle", **mark}
    places = [{"x": place, "y": row, "words": words} for place, row, words in labels]
    return {
        "data": {"values": places},
        "mark": style,
        "encoding": {"x": across or x(), "y": y(), "text": {"field": "words", "type": "nominal"}},
    }


def _rows_panel(title: str, placed: Sequence[RowMark], width: int, row_height: int) -> Spec:
    """Dots with their numbers on a logarithmic axis; text at the right end if there is none."""
    count = len(placed)
    finite = [dot for dot in placed if 0.0 < dot.value < math.inf]
    low, high = (
        (0.7 * min(dot.value for dot in finite), 1.4 * max(dot.value for dot in finite))
        if finite
        else (1.0, 10.0)
    )
    low, high = _widen_range(low, high)
    lines = {
        "data": rows([(low, float(dot.row)) for dot in placed]),
        "mark": {"type": "rule", "color": GRID},
        "encoding": {"x": {"value": 0}, "x2": {"value": width}, "y": y()},
    }
    layers: list[Spec] = [lines]
    for trusted in dict.fromkeys(dot.offer.trusted for dot in finite):
        layers.append(
            dots(
                [(dot.value, float(dot.row)) for dot in finite if dot.offer.trusted == trusted],
                TRUST_COLOURS[trusted],
                DOT_SIZE,
            )
        )
    chosen = [(dot.value, float(dot.row)) for dot in finite if dot.offer.chosen]
    layers += [dots(chosen, VERMILLION, 260, filled=False, strokeWidth=2)] if chosen else []
    numbers: dict[tuple[bool, bool], list[tuple[float, float, str]]] = {}
    for dot in finite:
        right = math.log(dot.value / low) / math.log(high / low) > LABEL_LEFT_SHARE
        numbers.setdefault((right, dot.offer.chosen), []).append(
            (dot.value, float(dot.row), dot.words)
        )
    for (right, bold), labels in numbers.items():
        aside = 14 if bold else 11
        weight = "bold" if bold else "normal"
        layers.append(
            _words(
                labels,
                INK,
                dx=-aside if right else aside,
                align="right" if right else "left",
                fontWeight=weight,
            )
        )
    missing = [(high, float(dot.row), dot.words) for dot in placed if dot not in finite]
    layers += [_words(missing, VERMILLION, align="right")] if missing else []
    decades = powers(low, high)
    base = {
        "x": x(
            title=None,
            scale=log_scale(low, high),
            axis={
                "values": decades if len(decades) > 1 else ticks(low, high),
                "format": NUMBERS,
                "grid": True,
            },
        ),
        "y": y(
            title=None,
            scale={"domain": [-0.75, count - 0.4], "nice": False, "reverse": True, "zero": False},
            axis=None,
        ),
    }
    return panel(title, layers, base, width, row_height * count)


def _widen_range(low: float, high: float) -> tuple[float, float]:
    """Widen a range so that differences of a few percent do not look large."""
    more = math.sqrt(max(MIN_RANGE_RATIO / (high / low), 1.0))
    return low / more, high * more


@dataclass(frozen=True)
class Reach:
    """Epsilon against distance: as published, of one report alone, and as guaranteed."""

    published: tuple[tuple[float, float], ...]
    alone: tuple[tuple[float, float], ...]
    promise: tuple[tuple[float, float], ...]
    """Guaranteed epsilon from the smallest distance shown to the distance of the guarantee."""


def reach_chart(reach: Reach, unit: str, trusted: str, *, name: str = "reach") -> Chart:
    """Chart on logarithmic axes, where epsilon proportional to distance is a straight line."""
    points_shown = [*reach.published, *reach.alone, *reach.promise]
    left, right = (end(place for place, _ in points_shown) for end in (min, max))
    low = 0.75 * min(epsilon for _, epsilon in points_shown)
    high = 1.35 * max(epsilon for _, epsilon in points_shown)
    low, high = _widen_range(low, high)
    end, promised_there = reach.promise[-1]
    layers: list[Spec] = []
    if right > end * (1.0 + 1e-9):
        beyond: Spec = {
            "data": {"values": [{"x": end, "x2": right}]},
            "mark": {"type": "rect", "color": VERMILLION, "opacity": 0.08},
            "encoding": {
                "x": x(),
                "x2": {"field": "x2"},
                "y": {"value": 0},
                "y2": {"value": HEIGHT},
            },
        }
        layers += [
            beyond,
            note((right, low), "beyond the promise", VERMILLION, align="right", dx=-6, dy=-10),
        ]
    if reach.alone:
        layers += [line(reach.alone, MUTED, (2, 3)), dots(reach.alone, MUTED, 22)]
    if reach.published:
        layers += [line(reach.published, BLUE, width=3.0), dots(reach.published, BLUE, 30)]
    layers += [line(reach.promise, INK, (1, 0), width=1.5), dots([reach.promise[-1]], INK, 60)]
    base = {
        "x": x(
            title=f"distance ({unit})" if unit else "distance",
            scale=log_scale(left, right),
            axis={"values": ticks(left, right), "format": NUMBERS, "grid": False},
        ),
        "y": y(
            title="total epsilon",
            scale=log_scale(low, high),
            axis={"values": ticks(low, high), "format": NUMBERS},
        ),
    }
    spaced = f" {unit}" if unit else ""
    words = (
        f"The promise: epsilon {format_epsilon(promised_there)} at {format_distance(end)}{spaced}."
    )
    if reach.published:
        last = reach.published[-1]
        words += (
            f" What is published has epsilon {format_epsilon(last[1])} at "
            f"{format_distance(last[0])}{spaced}."
        )
    if reach.alone:
        last = reach.alone[-1]
        words += (
            f" One report alone, if the {trusted} colludes, has {format_epsilon(last[1])} at "
            f"{format_distance(last[0])}{spaced}."
        )
    return Chart(panel("", layers, base, 640, HEIGHT), name, "Epsilon against distance", words)
