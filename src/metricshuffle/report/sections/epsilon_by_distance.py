"""Chapter on epsilon against the distance of a move, for the protocol of one task."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from metricshuffle.errors import ConditionError, InputError, NotCertified
from metricshuffle.numerics.rounding import format_delta, format_distance, format_epsilon
from metricshuffle.protocols.frequencies import Frequencies
from metricshuffle.queries.cell_query import CellQuery
from metricshuffle.queries.query import Query
from metricshuffle.report.charts.plan_charts import Reach, reach_chart
from metricshuffle.report.charts.vega import BLUE, INK, MUTED
from metricshuffle.report.components import Figure, Key, TextTable
from metricshuffle.report.failure_scenarios import TRUSTED_MIXERS
from metricshuffle.report.report_subject import ReportSubject
from metricshuffle.spaces import Grid, Integers

NEAREST_DISTANCE_SHARE = 0.1
"""Smallest distance shown, as a fraction of the guarantee's."""
SUM_POINTS = 14
"""Number of distances computed if the protocol adds noise to numbers, which is fast."""
REPORT_POINTS = 7
"""Number of distances if reports are accounted for by their laws: about a second per distance."""
ITEM_POINTS = 4
"""Number of distances if users hold several items: about a second per distance."""
UNIFORM_POINTS = 3
"""Number of distances for a protocol whose epsilon does not depend on the distance."""


@dataclass(frozen=True)
class ReachChapter:
    sentence: str
    """What the curve shows."""
    figure: Figure
    numbers: TextTable


def reach(subject: ReportSubject) -> ReachChapter | None:
    """Build the chapter; None if there is nothing to show.

    There is nothing to show for labels, or if no distance has a certified epsilon above 0.
    """
    facts = subject.facts
    if facts.labels:
        return None
    measured = measure_reach(subject)
    if not measured.published and not measured.alone:
        return None
    honest = (
        "whoever colludes" if facts.trusted == "nobody" else f"if the {facts.trusted} is honest"
    )
    legend = [Key(f"what is published, {honest}", BLUE)] if measured.published else []
    legend += [Key("one report alone: if it is not", MUTED, "2 3")] if measured.alone else []
    unit = facts.spaced_unit
    alone = dict(measured.alone)
    table = TextTable(
        ("distance", "what is published", *(("one report alone",) if alone else ())),
        [
            (
                f"{format_distance(distance)}{unit}",
                format_epsilon(epsilon),
                *((format_epsilon(alone.get(distance, math.inf)),) if alone else ()),
            )
            for distance, epsilon in measured.published
        ],
        numeric=(1, 2) if alone else (1,),
    )
    caption = (
        "Total epsilon between two answers at a distance; both axes are logarithmic. The "
        "line without dots is the promise, the shaded part lies "
        "beyond it. Delta "
        f"{format_delta(facts.delta)}{' for what is published' if alone else ''}; every "
        "dot is certified, and lines "
        "only join the dots."
    )
    return ReachChapter(
        _sentence(measured, subject),
        Figure(
            reach_chart(measured, facts.unit, facts.trusted).drawing(),
            caption,
            (*legend, Key("the promise", INK)),
        ),
        table,
    )


def measure_reach(subject: ReportSubject) -> Reach:
    """Compute the curves, at distances from a tenth of the guarantee's to the diameter."""
    task = subject.task
    source = subject.asked
    facts = subject.facts
    distances = _distances(subject)
    again = subject.protocol_review

    def alone(distance: float) -> float:
        moved = source.target.model_copy(update={"distance": distance})
        return task.protocol.alone(task.query, moved, task.rounds).epsilon

    published = _certified_points(distances, lambda distance: again.epsilon(task.honest, distance))
    reports: tuple[tuple[float, float], ...] = ()
    if facts.trusted in TRUSTED_MIXERS and facts.hides_alone:
        # A user's own reports, shuffled by that user, take long to account for: the one known
        # distance is enough.
        own = isinstance(task.protocol, Frequencies) and facts.items_each
        reports = (
            _certified_points([facts.distance], lambda _: facts.fallback.epsilon)
            if own
            else _certified_points(distances, alone)
        )
    nearest = distances[0]
    start = facts.epsilon * nearest / facts.distance if facts.in_proportion else facts.epsilon
    return Reach(published, reports, ((nearest, start), (facts.distance, facts.epsilon)))


def _certified_points(
    distances: list[float], epsilon: Callable[[float], float]
) -> tuple[tuple[float, float], ...]:
    """Points with a certified epsilon above 0 (a logarithmic axis has no zero)."""
    points = []
    for distance in distances:
        try:
            total = epsilon(distance)
        except (ConditionError, NotCertified, InputError):
            continue
        if 0.0 < total < math.inf:
            points.append((distance, total))
    return tuple(points)


def _distances(subject: ReportSubject) -> list[float]:
    """Increasing distances, in whole steps if values have steps, including the guarantee's."""
    facts = subject.facts
    step = value_step(subject.task.query)
    distance = facts.distance
    diameter = facts.diameter
    points = SUM_POINTS
    if isinstance(subject.task.protocol, Frequencies):
        points = (
            ITEM_POINTS
            if facts.items_each
            else UNIFORM_POINTS
            if subject.protocol_review.is_uniform_metric
            else REPORT_POINTS
        )
    nearest = max(NEAREST_DISTANCE_SHARE * distance, min(step, distance))
    farthest = max(distance, diameter)
    even = (
        np.geomspace(nearest, farthest, points)
        if farthest > nearest * (1.0 + 1e-9)
        else np.array([nearest])
    )
    whole = (
        [min(max(round(float(place) / step), 1) * step, farthest) for place in even[:-1]]
        if step
        else [float(place) for place in even]
    )
    return sorted(
        {
            *(place for place in (*whole, farthest) if abs(place - distance) > 1e-9 * distance),
            distance,
        }
    )


def value_step(query: Query) -> float:
    """Smallest distance between two different answers; 0 if it can be arbitrarily small."""
    domain = query.values_in
    if isinstance(query, CellQuery):
        return query.step
    if query.items is not None:
        return 0.0
    return (
        float(domain.cell)
        if isinstance(domain, Grid)
        else 1.0
        if isinstance(domain, Integers)
        else 0.0
    )


def _sentence(measured: Reach, subject: ReportSubject) -> str:
    facts = subject.facts
    if not measured.published:
        return (
            "What is published has no certified epsilon at these distances; only one report "
            "alone does."
        )
    (nearest, first), (farthest, last) = measured.published[0], measured.published[-1]
    nearest_text, farthest_text = (
        f"{format_distance(distance)}{facts.spaced_unit}" for distance in (nearest, farthest)
    )
    if farthest < facts.diameter * (1.0 - 1e-9):
        return (
            f"Nearer moves are hidden better. Up to {farthest_text} an epsilon is "
            f"certified here, {format_epsilon(last)}; for "
            f"{facts.in_units(facts.diameter)}, from one end of the range to the other, "
            "none is at this delta."
        )
    if len(measured.published) == 1:
        return (
            f"From one end of the range to the other, {farthest_text}, epsilon is "
            f"{format_epsilon(last)}; no nearer move costs more."
        )
    if last <= first * (1.0 + 1e-6):
        beyond = (
            f" That is more than is promised, which ends at {facts.reach}."
            if facts.diameter > facts.distance * (1.0 + 1e-9)
            else ""
        )
        return (
            "This protocol hides all values alike: a move across the whole range costs no "
            f"more than the smallest one.{beyond}"
        )
    return (
        f"Nearer moves are hidden better: {nearest_text} at epsilon "
        f"{format_epsilon(first)}, and {farthest_text}, from one end of "
        "the range to the other, at "
        f"{format_epsilon(last)}."
    )
