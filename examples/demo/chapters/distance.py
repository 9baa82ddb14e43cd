"""Epsilon against distance: exact, as one theorem claims it, and for one report alone."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from metricshuffle.numerics.rounding import format_epsilon, format_number
from metricshuffle.planning import Plan
from metricshuffle.report.charts.vega import (
    BLUE,
    INK,
    MUTED,
    VERMILLION,
    Spec,
    dots,
    drawing,
    line,
    note,
    panel,
    x,
    y,
)
from metricshuffle.report.components import Figure, Key, TextTable
from metricshuffle.report.plan_view import PlanFacts, plan_facts
from metricshuffle_papers.enhancing_metric_privacy.epsilon_curves import (
    PUBLISHED_SETTING,
    EpsilonCurves,
    epsilon_curves,
)

THEOREM = (
    "Athanasiou, Chatzikokolakis and Palamidessi, Enhancing Metric Privacy With a Shuffler "
    "(PoPETs 2025), Theorem 4.1"
)
LEGEND = (
    Key("exact", BLUE),
    Key("published claim", VERMILLION, "7 4"),
    Key("one report alone: the fallback", MUTED, "2 3"),
    Key("the promise of this plan", INK),
)


@dataclass(frozen=True)
class Distance:
    rate: str
    unit: str
    honest: int
    delta: str
    theorem: str
    where: str
    """Where the theorem is false for this plan, in a sentence."""
    curves: Figure
    curve_numbers: TextTable
    claim: Figure
    claim_numbers: TextTable


def distance(plan: Plan) -> Distance | None:
    """None if no shuffled protocol with geometric noise applies to the plan."""
    facts = plan_facts(plan)
    geometric = facts.geometric_shuffle
    if geometric is None or geometric.rate is None:
        return None
    curves = epsilon_curves(geometric.rate, facts.honest, facts.delta, round(facts.diameter))
    users, rate, delta, reach = PUBLISHED_SETTING
    published = epsilon_curves(rate, users, delta, reach)
    where = _where_false(curves, facts.spaced_unit)
    return Distance(
        rate=format_number(geometric.rate),
        unit=facts.unit or "unit",
        honest=facts.honest,
        delta=f"{facts.delta:g}",
        theorem=THEOREM,
        where=where,
        curves=_curves_figure(curves, facts, where),
        curve_numbers=_curve_table(curves, facts.spaced_unit),
        claim=_claim_figure(published),
        claim_numbers=_curve_table(published, ""),
    )


def _where_false(curves: EpsilonCurves, unit: str) -> str:
    if curves.false_from is None:
        return "Here it holds over the whole range, though not tightly."
    return (
        f"Here it holds up to {curves.false_from - 1:,}{unit} and is false beyond: across "
        "the whole range it claims "
        f"{curves.claimed(curves.reach):.1f}, the truth is {curves.exact[-1]:.1f}."
    )


def _curves_figure(curves: EpsilonCurves, plan: PlanFacts, where: str) -> Figure:
    drawn = drawing(
        epsilon_chart(curves, plan),
        "fig-distance",
        "Epsilon against distance",
        "The exact epsilon grows faster than the distance; it meets the promise of "
        f"{format_number(plan.epsilon)} at "
        f"{plan.in_units(plan.distance)}. {where}",
    )
    caption = (
        "Total epsilon between two inputs at a distance. Left or above: where the promise "
        "is made. Right or below: the same curves "
        "across the range; shaded where the claim is false."
    )
    return Figure(drawn, caption, LEGEND)


def _claim_figure(curves: EpsilonCurves) -> Figure:
    users, rate, delta, reach = PUBLISHED_SETTING
    drawn = drawing(
        claim_chart(curves),
        "fig-claim",
        "A published claim that is false far away",
        f"With {users} users and noise of rate {rate:g}, a move of {reach} has epsilon "
        f"{curves.exact[-1]:.0f}; "
        f"{curves.claimed(reach):.0f} was claimed.",
    )
    caption = (
        f"Values from 0 to {reach:,} and delta {delta:g}, as in the published experiments, "
        f"with {users} users and noise of rate {rate:g} "
        f"per unit. The claim is false for every move beyond {(curves.false_from or reach) - 1}."
    )
    return Figure(drawn, caption)


def _curve_table(curves: EpsilonCurves, unit: str) -> TextTable:
    """A dozen rows of the curves, and always the last."""
    every = max(1, len(curves.distances) // 12)
    rows = []
    for index in (*range(0, len(curves.distances) - 1, every), len(curves.distances) - 1):
        reach = curves.distances[index]
        exact = curves.exact[index]
        verdict = "false" if exact > curves.claimed(reach) else ""
        rows.append(
            (
                f"{reach:,}{unit}",
                format_epsilon(exact),
                format_number(curves.claimed(reach)),
                format_epsilon(curves.alone(reach)),
                verdict,
            )
        )
    return TextTable(
        ("distance", "exact epsilon", "published claim", "one report alone", "the claim is"),
        rows,
        numeric=(1, 2, 3),
    )


def epsilon_panel(
    curves: EpsilonCurves,
    reach: float,
    top: float,
    unit: str,
    *,
    title: str,
    promise: tuple[float, float] | None = None,
    width: int = 350,
    height: int = 270,
) -> Spec:
    """Epsilon against distance up to `reach`: exact, published claim, one report alone, and the
    promise if there is one.
    """
    exact = [
        (0.0, 0.0),
        *((float(d), e) for d, e in zip(curves.distances, curves.exact, strict=True)),
    ]
    layers: list[Spec] = []
    if curves.false_from is not None and curves.false_from < reach:
        gap = [
            {"x": d, "y": e, "claimed": curves.claimed(d)}
            for d, e in exact
            if d >= curves.false_from and d <= reach
        ]
        shaded: Spec = {
            "data": {"values": gap},
            "mark": {"type": "area", "color": VERMILLION, "opacity": 0.16, "clip": True},
            "encoding": {"x": x(), "y": y(), "y2": {"field": "claimed"}},
        }
        layers.append(shaded)
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
        "x": x(
            title=named,
            scale={"domain": [0, reach], "nice": False},
            axis={"tickCount": 5, "grid": False, "format": ",d"},
        ),
        "y": y(
            title="total epsilon", scale={"domain": [0, top], "nice": False}, axis={"tickCount": 5}
        ),
    }
    return panel(title, layers, base, width, height)


def epsilon_chart(curves: EpsilonCurves, plan: PlanFacts) -> Spec:
    """Two looks at the same curves: where the promise is made, and all the way across."""
    near = 2.0 * plan.distance
    across = plan.diameter
    close = epsilon_panel(
        epsilon_curves(
            curves.rate, curves.honest, curves.delta, max(1, round(near))
        ),  # again, on a fine mesh
        near,
        1.6 * curves.claimed(near),
        plan.unit,
        title=f"Near: up to {format_number(near)} {plan.unit}",
        promise=(plan.distance, plan.epsilon),
    )
    far = epsilon_panel(
        curves,
        across,
        1.12 * max(curves.exact[-1], curves.claimed(across)),
        plan.unit,
        title=f"Far: across the whole range of {format_number(across)} {plan.unit}",
    )
    return {"hconcat": [close, far]}


def claim_chart(curves: EpsilonCurves, width: int = 560, height: int = 330, unit: str = "") -> Spec:
    """One panel with its labels on the lines: the story of a claim that is false far away."""
    reach = float(curves.reach)
    end = curves.exact[-1]
    alone = curves.alone(reach)
    claimed = curves.claimed(reach)
    chart = epsilon_panel(curves, reach, 1.03 * alone, unit, title="", width=width, height=height)
    chart["layer"] += [
        note(
            (reach, alone),
            ["One report alone", f"\u03b5 = {format_number(alone)}"],
            MUTED,
            lineBreak="\n",
            dx=10,
        ),
        note(
            (reach, end), ["Exact, shuffled", f"\u03b5 = {end:.0f}"], BLUE, fontWeight="bold", dx=10
        ),
        note(
            (reach, claimed),
            ["Published claim", f"\u03b5 = {claimed:.0f}"],
            VERMILLION,
            fontWeight="bold",
            dx=10,
        ),
    ]
    if curves.false_from is not None:
        inside = 0.8 * reach
        middle = 0.5 * (
            curves.claimed(inside) + float(np.interp(inside, curves.distances, curves.exact))
        )
        words = ["The claim is false", f"beyond a move of {curves.false_from - 1}"]
        chart["layer"].append(note((inside, middle), words, VERMILLION, align="center"))
    return chart
