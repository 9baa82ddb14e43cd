"""Expected error against the number of people, for every protocol."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from examples.demo.error_curves import ErrorCurve, error_curves

from metricshuffle.numerics.rounding import format_number
from metricshuffle.planning import Plan
from metricshuffle.report.charts.vega import (
    BLUE,
    GREEN,
    INK,
    MUTED,
    PURPLE,
    Spec,
    dots,
    drawing,
    line,
    log_scale,
    note,
    panel,
    powers,
    x,
    y,
)
from metricshuffle.report.components import Figure, TextTable
from metricshuffle.report.plan_view import PlanFacts, plan_facts

COLOURS = {
    "geometric-local": MUTED,
    "geometric-shuffle": BLUE,
    "polya-shuffle": GREEN,
    "geometric-central": INK,
    "randomized-response-shuffle": PURPLE,
}
DASHES = {"geometric-central": [2, 3], "geometric-local": [7, 3]}
# Where the curves end close together, their names are moved apart.
NAMES_DOWN = {"geometric-central": 10, "polya-shuffle": -6}


@dataclass(frozen=True)
class Users:
    honest_share: str
    kind: str
    errors: Figure
    error_numbers: TextTable


def users(plan: Plan) -> Users:
    facts = plan_facts(plan)
    curves = error_curves(plan)
    drawn = drawing(
        error_chart(curves, facts),
        "fig-users",
        "Expected error against the number of people",
        "All errors fall with the number of people. The shuffled protocols fall ten times "
        "for ten times the people, the local one about "
        "three times.",
    )
    rows = [
        (
            f"{count:,}",
            *(f"{format_number(curve.errors[index])}{facts.spaced_unit}" for curve in curves),
        )
        for index, count in enumerate(curves[0].users)
    ]
    return Users(
        honest_share=f"{facts.honest / facts.users:.0%}",
        kind=facts.kind,
        errors=Figure(
            drawn,
            "Expected absolute error, from exact noise laws. Dots: this plan, "
            f"{facts.users:,} people.",
        ),
        error_numbers=TextTable(
            ("people", *(curve.protocol for curve in curves)),
            rows,
            numeric=range(1, len(curves) + 1),
        ),
    )


def error_chart(curves: Sequence[ErrorCurve], plan: PlanFacts) -> Spec:
    """Both axes are logarithmic."""
    layers: list[Spec] = []
    for curve in curves:
        colour = COLOURS[curve.protocol]
        points = list(zip(map(float, curve.users), curve.errors, strict=True))
        layers.append(line(points, colour, DASHES.get(curve.protocol)))
        layers.append(
            note(points[-1], curve.protocol, colour, dx=10, dy=NAMES_DOWN.get(curve.protocol, 0))
        )
    layers += _dots_of_the_plan(plan)
    errors = [error for curve in curves for error in curve.errors]
    crowds = (curves[0].users[0], curves[0].users[-1])
    base = {
        "x": x(
            title="people who report",
            scale=log_scale(*crowds),
            axis={"values": powers(*crowds), "format": ",d", "grid": False},
        ),
        "y": y(
            title=plan.with_unit("expected error"),
            scale=log_scale(0.45 * min(errors), 1.4 * max(errors)),
            axis={"values": powers(min(errors), max(errors)), "format": ",~r"},
        ),
    }
    return panel("", layers, base, 640, 320)


def _dots_of_the_plan(plan: PlanFacts) -> list[Spec]:
    """One for each protocol; the one without a curve is named next to its dot."""
    layers: list[Spec] = []
    drawn: set[str] = set()
    for offer in plan.offers:
        if offer.protocol in drawn or (offer.protocol == "polya-shuffle" and offer.shape != 1):
            continue
        drawn.add(offer.protocol)
        place = (float(plan.users), offer.expected_error)
        colour = COLOURS[offer.protocol]
        layers.append(dots([place], colour, 62))
        if offer.protocol == "randomized-response-shuffle":
            layers.append(note(place, offer.protocol, colour, dx=10, dy=-10))
    return layers
