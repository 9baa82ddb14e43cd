"""Detection of tables whose distances are those along a line or a tree."""

from __future__ import annotations

import numpy as np

from metricshuffle.citations import theorem
from metricshuffle.numerics.rounding import ULP
from metricshuffle.numerics.types import Floats, Integers64
from metricshuffle.spaces.tree import Tree

# Relative amount by which a distance along the tree may fall short of the table; never above it.
TREE_TOLERANCE = 1e-5
# Nodes closer than this fraction of the smallest distance are merged: more links mean more noise.
NODE_TOLERANCE = 0.25 * TREE_TOLERANCE
MAX_POINTS = 5_000


@theorem("metricshuffle", "a tree below a table of distances")
def tree_below(distances: Floats) -> tuple[Tree, Integers64] | None:
    """Tree whose distances match the table from below to a relative 1e-5, and each point's node.

    None if there is none.
    Statement: let d be the distances of the table. In a tree with a root r, the paths from r to i
    and to j part at the depth (d(r,i) + d(r,j) - d(i,j))/2. So each new point is attached at the
    deepest place where its path parts from that of a point already attached; this place is a node,
    which may be new and is then not a point. A table is that of a tree if and only if the tree
    built in this way has the distances of the table (Buneman 1971); that is checked for all pairs.
    The distances d' of the returned tree are never larger than the table's: noise that hides moves
    in d' hides them in every d >= d' at least as well, since d' <= d makes earth mover's distances
    smaller, too. A tree with larger distances would state a guarantee that does not hold.
    Conditions: a metric with different points at distances above 0, up to 5,000 of them.
    Numerics: all links are shortened by the largest excess over the table and by the rounding of
    the sums, then every pair is checked again, rounded up. The root is an end of a longest path, so
    that a line becomes a path.
    """
    points = len(distances)
    apart = distances[~np.eye(points, dtype=bool)]
    if not 2 <= points <= MAX_POINTS or not apart.min() > 0.0:
        return None
    root = int(np.argmax(distances[int(np.argmax(distances[0]))]))
    parents, depths = _hang_points(distances, root, NODE_TOLERANCE * float(apart.min()))
    lengths = np.array(
        [0.0 if above < 0 else depths[node] - depths[above] for node, above in enumerate(parents)]
    )
    if not np.all(lengths[np.array(parents) >= 0] > 0.0):
        return None
    for _ in range(3):
        tree = Tree(np.array(parents, dtype=np.float64), lengths)
        along = tree.pairwise(np.arange(points), np.arange(points)) * (
            1.0 + 4.0 * ULP * len(lengths)
        )
        with np.errstate(divide="ignore", invalid="ignore"):
            ratios = np.where(distances > 0.0, along / distances, 1.0)
        max_ratio = float(ratios.max())
        min_ratio = float(np.min(ratios))
        if not (min_ratio >= 1.0 - TREE_TOLERANCE and max_ratio <= 1.0 + TREE_TOLERANCE):
            return None
        if np.all(along <= distances):
            return tree, np.arange(points)
        lengths = lengths * ((1.0 - 16.0 * ULP) / max_ratio)
    return None


def _hang_points(distances: Floats, root: int, same: float) -> tuple[list[int], list[float]]:
    """Parents and depths of the nodes, points first.

    In order of depth, each point is attached below the node where its path parts from those of the
    points before it.
    """
    points = len(distances)
    parents = [-1] * points
    depths = [float(depth) for depth in distances[root]]
    order = np.argsort(distances[root], kind="stable")
    order = np.concatenate([[root], order[order != root]])
    for count in range(1, points):
        point = int(order[count])
        before = order[:count]
        parting = 0.5 * (
            distances[root, point] + distances[root, before] - distances[point, before]
        )
        last = int(np.argmax(parting))
        node = int(before[last])
        depth = float(parting[last])
        while parents[node] >= 0 and depths[parents[node]] >= depth - same:
            node = parents[node]
        if (
            depth < depths[node] - same
        ):  # a new node between this one and the one above; not a point
            parents.append(parents[node])
            depths.append(depth)
            parents[node] = len(parents) - 1
            node = parents[node]
        parents[point] = node
    return parents, depths
