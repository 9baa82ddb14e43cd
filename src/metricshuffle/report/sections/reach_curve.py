"""How fast the promise fades: epsilon against the distance of a move, for the protocol of one task."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from metricshuffle.errors import ConditionError, InputError, NotCertified
from metricshuffle.numerics.rounding import format_delta, format_distance, format_epsilon
from metricshuffle.protocols.frequencies import Frequencies
from metricshuffle.queries import Histogram
from metricshuffle.queries.query import Query
from metricshuffle.report.charts.plan_charts import Reach, reach_chart
from metricshuffle.report.charts.vega import BLUE, INK, MUTED
from metricshuffle.report.components import Figure, Key, Table
from metricshuffle.report.failure_scenarios import TRUSTED_MIXERS
from metricshuffle.report.report_subject import Collection
from metricshuffle.spaces import Grid, Integers

NEAREST_DISTANCE_SHARE = 0.1
"""The smallest distance shown, as a share of the promise's."""
POINTS, POINTS_OF_REPORTS, POINTS_OF_ITEMS, POINTS_ALIKE = 14, 7, 4, 3
"""How many distances are looked at: for noise on numbers; where whole laws of reports are compared, or flows of many items, which take a
second; where all values are hidden alike."""


@dataclass(frozen=True)
class ReachChapter:
    sentence: str
    """What the curve shows, in words."""
    figure: Figure
    numbers: Table


def reach(collection: Collection) -> ReachChapter | None:
    """None where distances say nothing: labels, or a promise up to the diameter with nothing below or beyond it."""
    facts = collection.facts
    if facts.labels:
        return None
    measured = measure_reach(collection)
    if not measured.published and not measured.alone:
        return None
    honest = "whoever colludes" if facts.trusted == "nobody" else f"if the {facts.trusted} is honest"
    legend = [Key(f"what is published, {honest}", BLUE)] if measured.published else []
    legend += [Key("one report alone: if it is not", MUTED, "2 3")] if measured.alone else []
    unit = facts.spaced_unit
    alone = dict(measured.alone)
    table = Table(
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
        "Total epsilon between two answers at a distance; both axes are logarithmic. The black line is the promise, the shaded part lies "
        f"beyond it. Delta {format_delta(facts.delta)}{' for what is published' if alone else ''}; every dot is certified, and lines "
        "only join the dots."
    )
    return ReachChapter(
        _sentence(measured, collection),
        Figure(reach_chart(measured, facts.unit, facts.trusted).drawing(), caption, (*legend, Key("the promise", INK))),
        table,
    )


def measure_reach(collection: Collection) -> Reach:
    """The curves, at distances from a tenth of the promise's to the diameter."""
    task, source, facts = collection.task, collection.asked, collection.facts
    distances = _distances(collection)
    again = collection.protocol_review

    def alone(distance: float) -> float:
        moved = source.target.model_copy(update={"distance": distance})
        return task.protocol.alone(task.query, moved, task.rounds).epsilon

    published = _certified_points(distances, lambda distance: again.epsilon(task.honest, distance))
    reports: tuple[tuple[float, float], ...] = ()
    if facts.trusted in TRUSTED_MIXERS and not facts.warning:
        # A user's own reports, shuffled by herself, take long to account for: the one distance that is known is enough.
        own = isinstance(task.protocol, Frequencies) and facts.items_each
        reports = _certified_points([facts.distance], lambda _: facts.fallback.epsilon) if own else _certified_points(distances, alone)
    nearest = distances[0]
    start = facts.epsilon * nearest / facts.distance if facts.in_proportion else facts.epsilon
    return Reach(published, reports, ((nearest, start), (facts.distance, facts.epsilon)))


def _certified_points(distances: list[float], epsilon: Callable[[float], float]) -> tuple[tuple[float, float], ...]:
    """The points at which something is certified, and is not nothing (a logarithmic axis has no zero)."""
    points = []
    for distance in distances:
        try:
            total = epsilon(distance)
        except (ConditionError, NotCertified, InputError):
            continue
        if 0.0 < total < math.inf:
            points.append((distance, total))
    return tuple(points)


def _distances(collection: Collection) -> list[float]:
    """From near to far, in whole steps where there are such, and always the promise's own."""
    facts, step = collection.facts, value_step(collection.task.query)
    distance, diameter, points = facts.distance, facts.diameter, POINTS
    if isinstance(collection.task.protocol, Frequencies):
        points = (
            POINTS_OF_ITEMS if facts.items_each else POINTS_ALIKE if collection.protocol_review.is_uniform_metric else POINTS_OF_REPORTS
        )
    nearest, farthest = max(NEAREST_DISTANCE_SHARE * distance, min(step, distance)), max(distance, diameter)
    even = np.geomspace(nearest, farthest, points) if farthest > nearest * (1.0 + 1e-9) else np.array([nearest])
    whole = [min(max(round(float(place) / step), 1) * step, farthest) for place in even[:-1]] if step else [float(place) for place in even]
    return sorted({*(place for place in (*whole, farthest) if abs(place - distance) > 1e-9 * distance), distance})


def value_step(query: Query) -> float:
    """How far apart two different answers are at least; 0 if as little as one likes."""
    domain = query.values_in
    if isinstance(query, Histogram):
        return query.step
    if query.items is not None:
        return 0.0
    return float(domain.cell) if isinstance(domain, Grid) else 1.0 if isinstance(domain, Integers) else 0.0


def _sentence(measured: Reach, collection: Collection) -> str:
    facts = collection.facts
    if not measured.published:
        return "What is published has no certified epsilon at these distances; only one report alone does."
    (nearest, first), (farthest, last) = measured.published[0], measured.published[-1]
    nearest_text, farthest_text = (f"{format_distance(distance)}{facts.spaced_unit}" for distance in (nearest, farthest))
    if farthest < facts.diameter * (1.0 - 1e-9):
        return (
            f"Nearer moves are hidden better. Up to {farthest_text} an epsilon is certified here, {format_epsilon(last)}; for "
            f"{facts.in_units(facts.diameter)}, from one end of the range to the other, none is at this delta."
        )
    if len(measured.published) == 1:
        return f"From one end of the range to the other, {farthest_text}, epsilon is {format_epsilon(last)}; no nearer move costs more."
    if last <= first * (1.0 + 1e-6):
        beyond = f" That is more than is promised, which ends at {facts.reach}." if facts.diameter > facts.distance * (1.0 + 1e-9) else ""
        return f"This protocol hides all values alike: a move across the whole range costs no more than the smallest one.{beyond}"
    return (
        f"Nearer moves are hidden better: {nearest_text} at epsilon {format_epsilon(first)}, and {farthest_text}, from one end of "
        "the range to the other, at "
        f"{format_epsilon(last)}."
    )
