"""Earth mover's distance of two histograms over a finite space.

It is the least mass times distance that turns one histogram into the other. It is computed by a
formula on a line, a circle, a tree, clusters and labels, otherwise by a transport plan with a proof
that it is optimal. Sinkhorn's plan and sliced distances are not used, because neither gives the
earth mover's distance.
"""

from __future__ import annotations

import math

import numpy as np

from metricshuffle.errors import InputError, NotCertified
from metricshuffle.models import LARGEST_WHOLE
from metricshuffle.numerics.rounding import ULP
from metricshuffle.numerics.types import Floats, Integers64
from metricshuffle.spaces.combinators import Scaled
from metricshuffle.spaces.domains import Categories, Domain
from metricshuffle.spaces.earth_mover_formulas import (
    EarthMoversDistance,
    between_labels,
    in_clusters,
    on_circle,
    on_line,
    on_tree,
    shares,
)
from metricshuffle.spaces.grid import Grid
from metricshuffle.spaces.metrics import Absolute, Circle, Discrete, Euclidean, Manhattan, Metric
from metricshuffle.spaces.nested_squares import NestedSquares
from metricshuffle.spaces.space import Space
from metricshuffle.spaces.transport_solver import assignment, transport
from metricshuffle.spaces.tree import Clustered, Tree

# Metrics that are |x - y| on numbers.
LINES = (Absolute, Manhattan, Euclidean)

WITH_FORMULAS = (*LINES, Circle, Clustered, Discrete, NestedSquares, Scaled, Tree)

MAX_POINTS_LISTED = 2**24
MAX_COSTS = 2**26  # max entries of a table of costs: half a gigabyte
# Rounding of the division by the totals, the subtraction and the correction of the sum: 80 units
# across the diameter, at most twice the reach.
LOST_IN_SHARES = 192 * ULP
MAX_PAIRED = 256  # beyond this many items, the network simplex is faster


def has_formula(metric: Metric) -> bool:
    """Whether the metric has the `pairwise` of one with a formula; a subclass may have its own."""
    return any(type(metric).pairwise is kind.pairwise for kind in WITH_FORMULAS)


def finite_space(space: object) -> Space:
    """Return a space with a finite list of points.

    `space` is a Space, a Domain with its usual metric, or a Metric with known points 0 .. size - 1.
    For a metric alone, the points become the labels "0", "1", ...
    """
    if isinstance(space, Metric):
        if space.size is None:
            raise InputError(
                f"{type(space).__name__} does not say which points there are; give a Space "
                "of a domain and this metric."
            )
        listed = Space(Categories([str(code) for code in range(space.size)]), space)
    elif isinstance(space, Space | Domain):
        listed = Space.of(space)
    else:
        raise InputError(
            "space must be a Space, a Domain or a Metric of known size, got "
            f"{type(space).__name__}."
        )
    size = listed.domain.size
    if size is None or size > MAX_POINTS_LISTED:
        many = "infinitely many" if size is None else f"{size:,}"
        raise InputError(
            "space must have at most 2^24 points, so that they can be listed, but "
            f"{listed.domain} has {many}; use a coarser one."
        )
    return listed


def earth_mover(space: object, a: object, b: object) -> EarthMoversDistance:
    """Earth mover's distance of two histograms over the points of a finite space.

    The histograms are counts or weights; both are divided by their totals.
    Statement: let P and Q be the histograms divided by their totals. In a metric, mass that P and Q
    have in common stays in place (by the triangle inequality, moving it away and other mass in is
    no cheaper), so only P - Q matters; the distance is then computed by a formula or a certified
    plan.
    Numerics: counts a and b with totals n_a and n_b are subtracted as whole numbers, n_b a - n_a b
    over the denominator n_a n_b, in lowest terms, so that nothing is lost before the first
    distance; two people who hold the same items in the same shares are at distance 0. Weights are
    divided by their totals, which loses up to 64 units of the last place of all mass, even where P
    and Q look the same: that much mass may have to move from end to end.
    """
    listed = finite_space(space)
    moved, total = _difference(a, b, listed.domain.size or 0)
    result = _by_formula(listed, listed.metric, moved) or _by_plan(listed, moved)
    if total is not None:
        return result.scaled(1.0 / total)
    allowed_for = (
        result.how != "transport" and (moved != np.floor(moved)).any()
    )  # by with_rounding_room
    return result if allowed_for else result.widened(LOST_IN_SHARES * _reach(listed, a, b))


def _difference(a: object, b: object, size: int) -> tuple[Floats, float | None]:
    """Return (total * (P - Q), total), exact and in whole numbers for counts or equal histograms.

    Otherwise return (about P - Q, None).
    """
    in_shares = shares(a, size, "a") - shares(b, size, "b")
    first = np.asarray(a, dtype=np.float64)
    second = np.asarray(b, dtype=np.float64)
    if np.array_equal(first, second):
        return in_shares, 1.0
    if (first == np.floor(first)).all() and (second == np.floor(second)).all():
        people_a = int(first.sum())
        people_b = int(second.sum())
        total = math.lcm(people_a, people_b)
        if total <= LARGEST_WHOLE:
            return first * (total // people_a) - second * (total // people_b), float(total)
    return in_shares, None


def _reach(space: Space, a: object, b: object) -> float:
    """Largest distance of any mass from the first mass: at least half the distance of any two."""
    occupied = np.flatnonzero(np.asarray(a, dtype=np.float64) + np.asarray(b, dtype=np.float64) > 0)
    return float(_costs(space, occupied[:1], occupied).max())


def _by_formula(space: Space, metric: Metric, moved: Floats) -> EarthMoversDistance | None:
    if not has_formula(metric):
        return None
    if isinstance(metric, Scaled):
        inner = _by_formula(space, metric.metric, moved)
        return None if inner is None else inner.scaled(metric.factor)
    if isinstance(metric, Clustered):
        return in_clusters(metric, moved)
    if isinstance(metric, Tree):
        return on_tree(metric, moved)
    if isinstance(metric, NestedSquares) and isinstance(space.domain, Grid):
        tree = metric.tree_of(space.domain)
        return on_tree(tree, np.concatenate([moved, np.zeros(len(tree.parents) - len(moved))]))
    if isinstance(metric, Discrete):
        return between_labels(moved)
    if space.domain.points_are == "numbers" and isinstance(metric, (*LINES, Circle)):
        positions = np.asarray(space.domain.points(space.domain.all_values()), dtype=np.float64)
        return (
            on_circle(positions, metric.circumference, moved)
            if isinstance(metric, Circle)
            else on_line(positions, moved)
        )
    return None


def needs_no_solver(space: object) -> bool:
    """Whether the earth mover's distance on a space has a formula and needs no solver."""
    listed = finite_space(space)
    return _by_formula(listed, listed.metric, np.zeros(listed.domain.size or 0)) is not None


def _by_plan(space: Space, moved: Floats) -> EarthMoversDistance:
    sources = np.flatnonzero(moved > 0)
    sinks = np.flatnonzero(moved < 0)
    if len(sources) == 0 or len(sinks) == 0:
        return EarthMoversDistance(0.0, 0.0, "transport")
    if len(sources) * len(sinks) > MAX_COSTS:
        raise NotCertified(
            f"the earth mover's distance of {len(sources):,} and {len(sinks):,} points "
            f"under {type(space.metric).__name__} needs a table "
            "that is too large; use a coarser space, or a metric with a formula (a line, "
            "a tree, clusters)."
        )
    costs = _costs(space, sources, sinks)
    mass = float(max(moved[sources].sum(), -moved[sinks].sum()))
    if (
        mass > min(MAX_PAIRED, 2 * max(len(sources), len(sinks)))
        or (moved != np.floor(moved)).any()
    ):
        return transport(costs, moved[sources], -moved[sinks]).scaled(mass)
    items_a, items_b = (
        np.repeat(np.arange(len(at)), np.abs(moved[at]).astype(np.int64)) for at in (sources, sinks)
    )
    return assignment(costs[np.ix_(items_a, items_b)]).scaled(mass)


def _costs(space: Space, sources: Integers64, sinks: Integers64) -> Floats:
    values = space.domain.all_values()
    return space.metric.pairwise(
        space.domain.points(values[sources]), space.domain.points(values[sinks])
    )
