"""Chapter on a dishonest shuffler: utility against the privacy of one report."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from metricshuffle.numerics.rounding import format_epsilon, format_number
from metricshuffle.planning import Plan
from metricshuffle.report.charts.vega import (
    BLUE,
    GREEN,
    MUTED,
    VERMILLION,
    Spec,
    dots,
    drawing,
    line,
    log_scale,
    note,
    panel,
    ticks,
    x,
    y,
)
from metricshuffle.report.components import Figure, Key, TextTable
from metricshuffle.report.curve_data import FrontierPoint
from metricshuffle.report.curve_data import frontier as frontier_points
from metricshuffle.report.plan_view import PlanFacts, plan_facts


@dataclass(frozen=True)
class Frontier:
    family: Figure
    family_numbers: TextTable


def frontier(plan: Plan) -> Frontier:
    facts = plan_facts(plan)
    points = frontier_points(plan)
    unit = facts.spaced_unit
    distance_text = facts.in_units(facts.distance)
    first = points[0]
    last = points[-1]
    chart_drawing = drawing(
        frontier_chart(points, facts),
        "fig-frontier",
        "Utility against local privacy",
        f"From shape 1 to shape {last.shape:,} the error rises from "
        f"{format_number(first.error)} to "
        f"{format_number(last.error)}{unit} and the epsilon of "
        f"one report at {distance_text} falls from {format_epsilon(first.local_epsilon)} "
        f"to {format_epsilon(last.local_epsilon)}.",
    )
    legend = (
        Key(f"one report at {distance_text}", GREEN),
        Key(f"one report at 1{unit}", BLUE, "5 3"),
        Key("chosen", VERMILLION, ring=True),
    )
    caption = (
        "Expected error against what one report gives away by itself. The shape is that of the "
        "noise of all honest people together."
    )
    head = (
        "shape",
        "rate",
        "expected error",
        f"epsilon of one report at {distance_text}",
        f"at 1{unit}",
    )
    rows = [
        (
            f"{point.shape:,}",
            format_number(point.rate),
            f"{format_number(point.error)}{unit}",
            format_epsilon(point.local_epsilon),
            format_epsilon(point.local_epsilon_per_step),
        )
        for point in points
    ]
    return Frontier(Figure(chart_drawing, caption, legend), TextTable(head, rows, numeric=range(5)))


def frontier_chart(points: Sequence[FrontierPoint], plan: PlanFacts) -> Spec:
    """Chart of the expected error against the epsilon of one report.

    One curve is at the target's distance and one at one step; labels show the total shape.
    """
    at_target = [(point.local_epsilon, point.error) for point in points]
    at_one_step = [(point.local_epsilon_per_step, point.error) for point in points]
    accurate = f"shape {points[0].shape}"
    protected = f"shape {points[-1].shape:,}"
    chosen = (plan.choice.local_epsilon, plan.choice.expected_error)
    layers: list[Spec] = [
        line(at_one_step, BLUE, (5, 3), width=1.75),
        dots(at_one_step, BLUE, 40),
        line(at_target, GREEN),
        dots(at_target, GREEN, 54),
        note(at_target[0], f"{accurate}, polya-shuffle", GREEN, dx=-4, dy=22, align="right"),
        note(at_target[-1], f"{protected}, geometric-shuffle", GREEN, dx=10, dy=-14),
        note(at_one_step[-1], protected, BLUE, dx=12, dy=-10),
        note(at_one_step[0], accurate, BLUE, dx=-12, dy=10, align="right"),
        dots([chosen], VERMILLION, 260, filled=False, strokeWidth=2),
    ]
    errors = [point.error for point in points]
    local = plan.first_offer("geometric-local")
    if local is not None:
        place = (local.local_epsilon, local.expected_error)
        errors.append(local.expected_error)
        layers += [
            dots([place], MUTED, 70),
            note(place, "geometric-local, trusts nobody", MUTED, dx=12),
        ]
    low = 0.6 * min(errors)
    high = 1.6 * max(errors)
    base = {
        "x": x(
            title="epsilon of one report, if the shuffler colludes",
            scale={"domain": [0, 1.08 * at_target[0][0]], "nice": False},
            axis={"tickCount": 7, "grid": False},
        ),
        "y": y(
            title=plan.with_unit("expected error"),
            scale=log_scale(low, high),
            axis={"values": ticks(low, high), "format": ",~r"},
        ),
    }
    return panel("", layers, base, 790, 320)
