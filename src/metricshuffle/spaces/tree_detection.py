"""Tables of distances that are those along a line or a tree, found again from the numbers alone."""

from __future__ import annotations

import numpy as np

from metricshuffle.citations import theorem
from metricshuffle.numerics.rounding import ULP
from metricshuffle.numerics.types import Floats, Integers64
from metricshuffle.spaces.tree import Tree

# By so much of itself a distance along the tree may fall short of the table; never does it exceed it.
TREE_TOLERANCE = 1e-5
# Nodes closer together than this part of the smallest distance are one: more links would mean more noise.
NODE_TOLERANCE = 0.25 * TREE_TOLERANCE
MAX_POINTS = 5_000


@theorem("metricshuffle", "a tree below a table of distances")
def tree_below(distances: Floats) -> tuple[Tree, Integers64] | None:
    """A tree and the node of each point, whose distances are the table's to 1e-5 of themselves and never larger; None if there is none.

    Statement: in a tree with a root r, the ways from r to i and to j part at the depth (d(r,i) + d(r,j) - d(i,j))/2. So a point is hung up
    where it parts from the point it parts from last, on a node that may be new and is no point then. A table is that of a tree if and
    only if the tree made so has its distances (Buneman 1971); that is checked for all pairs.
    Why never larger: noise that hides moves in d' hides them in every d >= d' at least as well, since d' <= d makes earth mover's
    distances smaller, too. The other direction would promise what is not kept.
    Conditions: a metric with different points at distances above 0, up to 5,000 of them.
    Numerics: all links are shortened by the largest excess over the table and what the sums are rounded by, then every pair is checked
    again, rounded up. The root is an end of a longest way, so that a line becomes a path.
    """
    points = len(distances)
    apart = distances[~np.eye(points, dtype=bool)]
    if not 2 <= points <= MAX_POINTS or not apart.min() > 0.0:
        return None
    root = int(np.argmax(distances[int(np.argmax(distances[0]))]))
    parents, depths = _hang_points(distances, root, NODE_TOLERANCE * float(apart.min()))
    lengths = np.array([0.0 if above < 0 else depths[node] - depths[above] for node, above in enumerate(parents)])
    if not np.all(lengths[np.array(parents) >= 0] > 0.0):
        return None
    for _ in range(3):
        tree = Tree(np.array(parents, dtype=np.float64), lengths)
        along = tree.pairwise(np.arange(points), np.arange(points)) * (1.0 + 4.0 * ULP * len(lengths))
        with np.errstate(divide="ignore", invalid="ignore"):
            ratios = np.where(distances > 0.0, along / distances, 1.0)
        max_ratio, min_ratio = float(ratios.max()), float(np.min(ratios))
        if not (min_ratio >= 1.0 - TREE_TOLERANCE and max_ratio <= 1.0 + TREE_TOLERANCE):
            return None
        if np.all(along <= distances):
            return tree, np.arange(points)
        lengths = lengths * ((1.0 - 16.0 * ULP) / max_ratio)
    return None


def _hang_points(distances: Floats, root: int, same: float) -> tuple[list[int], list[float]]:
    """Parents and depths of the nodes, points first: in the order of its depth, each below the node where it parts from the others."""
    points = len(distances)
    parents, depths = [-1] * points, [float(depth) for depth in distances[root]]
    order = np.argsort(distances[root], kind="stable")
    order = np.concatenate([[root], order[order != root]])
    for count in range(1, points):
        point, before = int(order[count]), order[:count]
        parting = 0.5 * (distances[root, point] + distances[root, before] - distances[point, before])
        last = int(np.argmax(parting))
        node, depth = int(before[last]), float(parting[last])
        while parents[node] >= 0 and depths[parents[node]] >= depth - same:
            node = parents[node]
        if depth < depths[node] - same:  # between this node and the one above: a new one, which is no point
            parents.append(parents[node])
            depths.append(depth)
            parents[node] = len(parents) - 1
            node = parents[node]
        parents[point] = node
    return parents, depths
