"""Formulas for the earth mover's distance on a line, a circle, a tree, clusters and labels.

EMD(P, Q) is the earth mover's distance of two histograms P and Q of one total, and |.|_1 is the sum
of absolute values. All formulas take `moved` = P - Q and return the distance (times that total)
between two bounds that allow for rounding. Differences of counts are whole numbers, whose sums are
exact.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from metricshuffle.citations import theorem
from metricshuffle.errors import InputError, argument
from metricshuffle.numerics.rounding import ULP, round_down, round_up
from metricshuffle.numerics.types import Floats
from metricshuffle.spaces.array_input import finite_points
from metricshuffle.spaces.metrics import representable
from metricshuffle.spaces.tree import Clustered, Tree

SMALLEST = 2.0**-1074  # largest error of a product that underflows
MAX_ADDED_PLAINLY = 4_096


@dataclass(frozen=True)
class EarthMoversDistance:
    """Bounds on the distance of two histograms, which lies between `lower` and `distance`.

    `how` names the method that computed it.
    """

    distance: float
    """Upper bound: the cost of a plan that moves one histogram onto the other, rounded up."""
    lower: float
    """Lower bound on the cost of every plan, rounded down."""
    how: str

    def scaled(self, factor: float) -> EarthMoversDistance:
        """Distance in a metric that is `factor` times as large."""
        upper = float(representable(np.asarray(round_up(self.distance * factor, 8))))
        # One more step, for subnormal numbers with few digits.
        upper = math.nextafter(upper, math.inf) if self.distance > 0.0 else 0.0
        return EarthMoversDistance(
            upper, max(0.0, math.nextafter(round_down(self.lower * factor, 8), -math.inf)), self.how
        )

    def widened(self, slack: float) -> EarthMoversDistance:
        """Copy with both bounds moved outwards by `slack`."""
        return EarthMoversDistance(self.distance + slack, max(0.0, self.lower - slack), self.how)


def with_rounding_room(
    value: float, span: float, terms: int, moved: Floats, how: str
) -> EarthMoversDistance:
    """Value of a formula, widened for the rounding of `terms` successive additions.

    The masses move within `span`. If the masses are whole numbers, their sums are exact, and the
    other terms are not negative. Masses that are not whole were divided by their total (64 units
    cover a pairwise sum of up to 2^40 terms), and their running sums cancel.
    """
    slack = ULP * (terms + 8) * value
    if (moved != np.floor(moved)).any():
        slack += ULP * span * (64 + terms * _size(moved)) + (
            SMALLEST * len(moved) if span > 0.0 else 0.0
        )
    return EarthMoversDistance(value, value, how).widened(slack)


@theorem("metricshuffle", "earth mover's distance on a line")
def on_line(positions: Floats, moved: Floats) -> EarthMoversDistance:
    """Earth mover's distance on a line, for points in ascending order.

    Statement: let gap_i be the distance from point x_i to the next point, and F_P(x_i), F_Q(x_i)
    the masses of P and Q up to x_i. EMD(P, Q) = sum_i gap_i |F_P(x_i) - F_Q(x_i)|: each gap is
    crossed by at least the excess mass on one side of it, and moving mass in order crosses it with
    no more.
    Numerics: one running sum of P - Q, so that mass common to both never enters; compensated for
    many points.
    Reference: Vallender 1974.
    """
    span = float(positions[-1] - positions[0])
    terms = 2 * len(moved)
    if len(moved) > MAX_ADDED_PLAINLY:
        from metricshuffle.spaces import _transport_kernels as kernels

        return with_rounding_room(
            float(kernels.between_distributions(positions, moved)), span, 0, moved, "line"
        )
    return with_rounding_room(
        float(np.diff(positions) @ np.abs(np.cumsum(moved)[:-1])), span, terms, moved, "line"
    )


@theorem("metricshuffle", "earth mover's distance on a circle")
def on_circle(positions: Floats, circumference: float, moved: Floats) -> EarthMoversDistance:
    """Earth mover's distance on a circle; points a circumference apart are the same.

    Statement: let x_i be the points in order, F(x_i) the running sum of P - Q from any start, and
    arc_i the arc from x_i to the next point. EMD(P, Q) = min_c sum_i arc_i |F(x_i) - c|, where c is
    the flow through the start. The sum is convex and piecewise linear in c, so a median of the
    F(x_i) weighted by the arcs is a minimum.
    Numerics: the minimum is taken among the F(x_i) themselves; choosing a neighbouring one because
    of rounding costs no more than rounding.
    Reference: Werman, Peleg, Melter, Kong 1986; Rabin, Delon, Gousseau 2011.
    """
    around = np.mod(positions, circumference)
    order = np.argsort(around, kind="stable")
    arcs = np.diff(around[order], append=around[order[0]] + circumference)
    flows = np.cumsum(moved[order])
    ranked = np.argsort(flows, kind="stable")
    length = np.cumsum(arcs[ranked])
    median = flows[ranked[int(np.searchsorted(length, length[-1] / 2))]]
    return with_rounding_room(
        float(arcs @ np.abs(flows - median)), circumference, 3 * len(moved), moved, "circle"
    )


@theorem("metricshuffle", "earth mover's distance on a tree")
def on_tree(tree: Tree, moved: Floats) -> EarthMoversDistance:
    """Earth mover's distance on a tree.

    Statement: EMD(P, Q) is the sum over links e of length_e |P(below e) - Q(below e)|, with P(below
    e) the mass of P below e: a link is crossed by at least the excess mass below it, and moving
    mass along the tree crosses it with no more.
    Numerics: one walk from the leaves to the root; rounding is bounded by the height of the tree.
    Reference: Evans, Matsen 2012, Section 2.
    """
    lengths = np.where(tree.parents < 0, 0.0, tree.lengths)
    root = int(np.argmin(tree.parents))
    span = float(tree.pairwise([root], np.arange(len(lengths))).max())
    value = float(lengths @ np.abs(subtree_masses(tree, moved[None, :])[0]))
    return with_rounding_room(value, span, 2 * len(moved), moved, "tree")


def subtree_masses(tree: Tree, masses: Floats) -> Floats:
    """Mass in the subtree of each node, one row per histogram over the nodes."""
    from metricshuffle.spaces import _transport_kernels as kernels

    gathered = np.array(masses, dtype=np.float64, order="C")
    kernels.gather_subtrees(gathered, tree.parents.astype(np.int64), tree.order)
    return gathered


@theorem("Imola24", "earth mover's distance of clusters")
def in_clusters(metric: Clustered, moved: Floats) -> EarthMoversDistance:
    """Earth mover's distance of clusters.

    Statement: let r = `inner`, and let P* and Q* be the masses of whole clusters under P and Q.
    EMD(P, Q) = (r |P - Q|_1 + (1 - r) |P* - Q*|_1) / 2.
    Proof: the formula of a tree, on `metric.tree`.
    Numerics: sums over one cluster at a time.
    Reference: Imola, Roy Chowdhury, Chaudhuri 2024, Section 6 for the metric.
    """
    between = moved.reshape(metric.clusters, metric.places).sum(axis=1)
    value = (metric.inner * _size(moved) + (1.0 - metric.inner) * _size(between)) / 2
    return with_rounding_room(value, 1.0, 2 * len(moved), moved, "clustered")


@theorem("metricshuffle", "earth mover's distance of labels")
def between_labels(moved: Floats) -> EarthMoversDistance:
    """Earth mover's distance of labels.

    Statement: when all distances are 1, EMD(P, Q) = |P - Q|_1 / 2, the total variation: mass that
    must move, moves once.
    """
    return with_rounding_room(_size(moved) / 2, 1.0, 2 * len(moved), moved, "discrete")


def _size(moved: Floats) -> float:
    return float(np.abs(moved).sum())


def line_distance(
    points_a: object, points_b: object, weights_a: object = None, weights_b: object = None
) -> EarthMoversDistance:
    """Earth mover's distance between two sets of numbers, with or without weights.

    The sets may have different sizes.
    Numerics: without weights and of one size, the sorted sets are matched in order. Otherwise both
    are swept once in order with compensated sums. Two sets of a million numbers take tens of
    milliseconds.
    """
    a = _some(points_a, "points_a")
    b = _some(points_b, "points_b")
    if weights_a is None and weights_b is None and len(a) == len(b):
        a.sort()
        b.sort()
        low = float(min(a[0], b[0]))
        high = float(max(a[-1], b[-1]))
        span = _span(low, high)
        np.subtract(a, b, out=a)
        np.abs(a, out=a)
        underflow = SMALLEST * len(a) if a.any() else 0.0
        a /= len(a)  # before the sum, which might overflow
        return with_rounding_room(float(a.sum()), span, 64, a[:0], "line").widened(
            underflow
        )  # a pairwise sum of non-negative terms
    pairs = np.empty((len(a) + len(b), 2))
    pairs[: len(a), 0], pairs[len(a) :, 0] = a, b
    pairs[: len(a), 1] = (
        1.0 / len(a) if weights_a is None else shares(weights_a, len(a), "weights_a")
    )
    pairs[len(a) :, 1] = (
        -1.0 / len(b) if weights_b is None else -shares(weights_b, len(b), "weights_b")
    )
    low = float(min(a.min(), b.min()))
    high = float(max(a.max(), b.max()))
    span = _span(low, high)
    return with_rounding_room(
        sweep_line(pairs, low, span) if span > 0.0 else 0.0, span, 0, pairs[:, 1], "line"
    )


def sweep_line(pairs: Floats, low: float, span: float) -> float:
    """Distance of points (column 0) with masses (column 1) that add up to 0.

    The points lie within `span` > 0 above `low`.
    """
    from metricshuffle.spaces import _transport_kernels as kernels

    bits = max(1, (len(pairs) - 1).bit_length())
    keys = kernels.packed(pairs, low, span, bits)
    keys.sort()
    points, masses = kernels.in_order(keys, bits, pairs, 16 * len(pairs))
    if len(points) == 0:  # nearly all points close together and one far away
        points, masses = np.ascontiguousarray(pairs[np.argsort(pairs[:, 0])].T)
    return float(kernels.between_distributions(points, masses))


def _span(low: float, high: float) -> float:
    with np.errstate(over="ignore"):
        return float(representable(np.asarray(np.float64(high) - np.float64(low))))


def _some(points: object, name: str) -> Floats:
    array = finite_points(points, None)
    if len(array) == 0:
        raise InputError(
            f"{argument(name)} must hold at least one number, got none: an empty set has "
            "no earth mover's distance."
        )
    return array


def shares(weights: object, count: int, name: str) -> Floats:
    """Divide counts or weights, one for each point, by their total."""
    array = finite_points(weights, None)
    if len(array) != count:
        raise InputError(
            f"{argument(name)} must hold one weight for each of the {count:,} points, got "
            f"{len(array):,}."
        )
    if (array < 0).any():
        raise InputError(
            f"{argument(name)} must be at least 0, but weight {int(np.argmax(array < 0))} "
            f"is {float(array[array < 0][0])!r}."
        )
    total = float(array.sum())
    if not 0.0 < total < np.inf:
        raise InputError(
            f"{argument(name)} must have a positive, finite total, got {total!r}: without "
            "mass there is no distance."
        )
    return array / total
