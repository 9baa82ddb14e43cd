"""The sections of the report that hold charts: what is drawn, what it shows, and its numbers in a table."""

from __future__ import annotations

from html import escape

import numpy as np
from numpy.typing import NDArray

from metricshuffle.pages.charts import report as charts
from metricshuffle.pages.charts.marks import BLUE, GREEN, INK, MUTED, VERMILLION, svg
from metricshuffle.pages.html import details, figure, table
from metricshuffle.pages.numbers import PUBLISHED_SETTING, EpsilonCurves, epsilon_curves, error_curves, frontier
from metricshuffle.pages.synthetic import CITY, NEIGHBOURHOODS, jittered, river
from metricshuffle.pages.words import Study, interval_text
from metricshuffle.planning import Candidate, Plan
from metricshuffle.planning.explain import unit_of
from metricshuffle.planning.release import measured
from metricshuffle.privacy.guarantee import plain, promised

PAPER = "Athanasiou, Chatzikokolakis and Palamidessi, Enhancing Metric Privacy With a Shuffler (PoPETs 2025)"


def distance(plan: Plan) -> str:
    geometric = geometric_shuffle(plan)
    if geometric is None or geometric.rate is None:
        return "<p>No shuffled protocol with geometric noise applies to this plan.</p>"
    unit, target = unit_of(plan), plan.target
    curves = epsilon_curves(geometric.rate, plan.honest, target.delta, round(plan.query.diameter))
    users, rate, delta, reach = PUBLISHED_SETTING
    published = epsilon_curves(rate, users, delta, reach)
    legend = (
        ("exact", BLUE, "28"), ("published claim", VERMILLION, "7 4"), ("one report alone: the fallback", MUTED,
        "2 3"),
        ("the promise of this plan", INK, "28"),
    )  # fmt: skip
    where = (
        f"Here it holds up to {curves.false_from - 1:,}{unit} and is false beyond: across the whole range it claims "
        f"{curves.claimed(curves.reach):.1f}, the truth is "
        f"{curves.exact[-1]:.1f}." if curves.false_from is not None else "Here it holds over the whole range, though not tightly."
    )  # fmt: skip
    first = svg(
        charts.epsilon_chart(curves, plan), "fig-distance", "Epsilon against distance",
        f"The exact epsilon grows faster than the distance; it meets the promise of {plain(target.epsilon)} at "
        f"{plain(target.distance)}{unit}. {where}",
    )  # fmt: skip
    second = svg(
        charts.claim_chart(published), "fig-claim", "A published claim that is false far away",
        f"With {users} users and noise of rate {rate:g}, a move of {reach} has epsilon {published.exact[-1]:.0f}; "
        f"{published.claimed(reach):.0f} was claimed.",
    )  # fmt: skip
    return (
        f"<p>Noise of geometric-shuffle at this plan's target (rate {plain(geometric.rate)} per{unit or ' unit'}, {plan.honest:,} honest "
        f"people, delta {target.delta:g}). "
        "Epsilon is not proportional to the distance: it grows faster, so a promise must state how far it reaches. "
        f"A published theorem claims a straight line for every distance ({escape(PAPER)}, Theorem 4.1). {where}</p>"
        + figure(first, "Total epsilon between two inputs at a distance. Left: where the promise is made. Right: the same curves across "
        "the range; shaded where the claim is false.", legend)
        + details("The numbers", _curve_table(curves, unit))
        + figure(second, f"Values from 0 to {reach:,} and delta {delta:g}, as in the published experiments, with {users} users and noise "
        f"of rate {rate:g} per unit. "
                 f"The claim is false for every move beyond {(published.false_from or reach) - 1}.")
        + details("The numbers", _curve_table(published, ""))
    )  # fmt: skip


def _curve_table(curves: EpsilonCurves, unit: str) -> str:
    every = max(1, len(curves.distances) // 12)
    picked = [*range(0, len(curves.distances) - 1, every), len(curves.distances) - 1]
    rows = [
        (f"{d:,}{unit}", f"{curves.exact[k]:.4g}", f"{curves.claimed(d):.4g}", f"{curves.alone(d):.4g}",
        "false" if curves.exact[k] > curves.claimed(d) else "")
        for k, d in ((k, curves.distances[k]) for k in picked)
    ]  # fmt: skip
    return table(("distance", "exact epsilon", "published claim", "one report alone", "the claim is"), rows, numeric=(1, 2, 3))


def geometric_shuffle(plan: Plan) -> Candidate | None:
    """The plan's geometric-shuffle, with exact (unpadded) noise if there is one."""
    found = [one for one in plan.candidates if one.protocol == "geometric-shuffle"]
    return min(found, key=lambda one: one.encoding != "modular", default=None)


def users(plan: Plan) -> str:
    curves, unit = error_curves(plan), unit_of(plan)
    drawing = svg(
        charts.error_chart(curves, plan), "fig-users", "Expected error against the number of people",
        "All errors fall with the number of people. The shuffled protocols fall ten times for ten times the people, the local one about "
        "three times.",
    )  # fmt: skip
    rows = [(f"{count:,}", *(f"{curve.errors[k]:.4g}{unit}" for curve in curves)) for k, count in enumerate(curves[0].users)]
    numbers = table(("people", *(curve.protocol for curve in curves)), rows, numeric=range(1, len(curves) + 1))
    return (
        f"<p>The same target for crowds of other sizes ({plan.honest / plan.users:.0%} honest). Without trust the error of the "
        f"{plan.query.kind} falls like one over the "
        "square root of the number of people; with a shuffler it falls like one over the number, as if a curator had seen every value.</p>"
        + figure(drawing, f"Expected absolute error, from exact noise laws. Dots: this plan, {plan.users:,} people.")
        + details("The numbers", numbers)
    )


def trade_off(plan: Plan) -> str:
    points, unit = frontier(plan), unit_of(plan)
    far = f"{plain(plan.target.distance)}{unit}"
    drawing = svg(
        charts.frontier_chart(points, plan), "fig-frontier", "Utility against local privacy",
        f"From B = 1 to B = {points[-1].shape}, the error rises from {points[0].error:.3g} to {points[-1].error:.3g}{unit} and the "
        f"epsilon of one report "
        f"at {far} falls from {points[0].local_epsilon:.3g} to {points[-1].local_epsilon:.3g}.",
    )  # fmt: skip
    rows = [
        (f"{p.shape:,}", f"{p.rate:.4g}", f"{p.error:.4g}{unit}", promised(p.local_epsilon), promised(p.local_epsilon_per_step))
        for p in points
    ]
    head = ("total shape B", "rate", "expected error", f"epsilon of one report at {far}", f"at 1{unit}")
    legend = (
        (f"one report at {far}", GREEN, "28"),
        (f"one report at 1{unit}", BLUE, "5 3"),
        ("chosen", VERMILLION, "ring"),
    )
    return (
        "<p>Every point keeps the same promise while the shuffler is honest. They differ in how much noise each person adds: little (B = "
        "1), so that the sum "
        "is accurate and a single report hides little, or a lot, so that a report protects itself if the shuffler colludes. B is the one "
        "knob "
        "between the two; <code>--max-local-epsilon</code> sets it.</p>"
        + figure(
            drawing, "Expected error against what one report gives away by itself. B: total shape of the honest people's noise.", legend
        )
        + details("The numbers", table(head, rows, numeric=range(5)))
    )


def city(study: Study, cells: NDArray[np.int64]) -> str:
    unit, digits, along = unit_of(study.plan), study.release.decimals, np.linspace(0.0, CITY.width * CITY.cell, 80)
    value, truth = charts.pair(study.release.value), charts.pair(study.truth)
    drawing = svg(
        charts.map_chart(jittered(cells), np.column_stack([along, river(along)]), [(place.name, *place.label) for place in NEIGHBOURHOODS],
                         truth, study.release),
        "fig-city", "Where people live, with the true and the private centroid",
        f"The true centroid is {measured(truth, digits)}, the private one {measured(value, digits)}{unit}: {plain(study.error)}{unit} "
        f"apart.",
    )  # fmt: skip
    rows = [
        ("true", *(measured(part, digits) for part in truth), ""),
        ("private", *(measured(part, digits) for part in value), interval_text(study)),
    ]
    return (
        f"<p>{study.plan.users:,} people, each known to the protocol as one of {CITY.width} by {CITY.height} cells of "
        f"{CITY.cell:g}{unit}. Both coordinates get noise "
        f"and are accounted together. The private centroid is {plain(study.error)}{unit} from the true one.</p>"
        + figure(
            drawing,
            "Left: the people, jittered within their cells, on both banks of the river. Right: the same two centroids, close up, with the "
            "95 % interval.",
        )
        + details(
            "The numbers",
            table(("centroid", f"east{unit and f' ({unit.strip()})'}", "north", "95 % interval, east and north"), rows, numeric=(1, 2)),
        )
    )
