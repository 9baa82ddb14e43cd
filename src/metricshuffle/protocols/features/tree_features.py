"""Features of the points of a tree: which edges a point lies below."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Literal, Self

import numpy as np

from metricshuffle.accounting.vectors.feature_changes import FeatureChanges
from metricshuffle.citations import theorem
from metricshuffle.errors import InputError
from metricshuffle.estimation.share_projection import shares_from_subtrees
from metricshuffle.numerics.rounding import ROUNDOFF, round_up
from metricshuffle.numerics.types import Floats, Integers64
from metricshuffle.protocols.features.feature_set import (
    MAX_COORDINATES,
    Blur,
    Features,
    most_expensive_move,
)
from metricshuffle.protocols.features.lattice import DISTANCE_TOLERANCE, Lattice
from metricshuffle.protocols.features.point_pairs import moves_of_pairs
from metricshuffle.protocols.features.readings import Readings
from metricshuffle.spaces import Space, Tree, TreeEmbedding

if TYPE_CHECKING:
    from scipy.sparse import csr_array

MAX_NODES = 100_000
MAX_KINDS = 128  # max number of different rates in one move


class Edges(Features):
    """One feature per edge of the tree: whether the point lies below it.

    The rate of a feature is in proportion to the length of its edge. Edges that are on no path
    between two points are left out, and so are edges of length 0. Edges with the same points on
    their two sides are merged, and their lengths added.
    """

    kind: Literal["edges"] = "edges"

    @classmethod
    def offered(cls, space: Space, people: int, rate: float) -> Iterator[Self]:
        """Offered for trees, clusters, nested squares, and tables of distances along a tree.

        Lines use ramps instead, and labels use cells (except two labels, for which one edge between
        them has the information of two cells, for half the noise).
        """
        size = space.domain.size
        if size is None or size > MAX_NODES or Lattice.of(space) is not None:
            return
        embedding = TreeEmbedding.of(space)
        if embedding is None or (_is_star(embedding) and size > 2):
            return
        contracted = contract_edges(embedding)
        if (
            1 <= len(contracted.links) <= MAX_COORDINATES
            and len(np.unique(contracted.nodes)) == size
        ):
            yield cls()

    def _tree(self, space: Space) -> TreeEmbedding:
        embedding = TreeEmbedding.of(space)
        if embedding is None:
            raise InputError(
                "edges are for distances along a tree; those under "
                f"{type(space.metric).__name__} on {space.domain} are not known to be."
            )
        if len(embedding.tree.parents) > MAX_NODES:
            raise InputError(
                f"edges are for trees of up to {MAX_NODES:,} nodes, and this one has "
                f"{len(embedding.tree.parents):,}."
            )
        contracted = contract_edges(embedding)
        if not len(contracted.links):
            raise InputError(
                f"all points of {space.domain} are at distance 0 from each other, so that "
                "no edge separates them."
            )
        return contracted

    def table(self, space: Space) -> csr_array:
        from scipy.sparse import csr_array

        tree = self._tree(space)
        parents = tree.tree.parents.astype(np.int64)
        edge_of = tree.edge_of
        here = tree.nodes.copy()
        point = np.arange(len(tree.nodes))
        self.check_room(len(tree.links), 0, "merge near points")
        entries = 0
        rows: list[Integers64] = []
        columns: list[Integers64] = []
        while True:
            left = parents[here] >= 0
            here = here[left]
            point = point[left]
            if not len(here):
                break
            rows.append(point)
            columns.append(edge_of[here])
            entries += len(point)
            self.check_room(len(tree.links), entries, "merge near points")
            here = parents[here]
        at = np.concatenate(rows)
        below = np.concatenate(columns)
        matrix = csr_array(
            (np.ones(len(at), dtype=np.int64), (at, below)),
            shape=(len(tree.nodes), len(tree.links)),
        )
        matrix.sort_indices()
        return matrix

    def weights(self, space: Space) -> Floats:
        return self._tree(space).lengths

    @theorem("metricshuffle", "slope of the edges of a tree")
    def slope(self, space: Space, rates: Floats) -> float:
        """Certified upper bound on the loss per unit of distance (see `Features.slope`).

        Statement: the loss is at most the largest quotient of the rate and the length of an edge.
        If every rate is a common factor times the length of its edge, every move costs exactly that
        factor times its distance.
        Proof: a move changes the features of the edges on its path by one each, so its cost is the
        sum of the rates of these edges, and its distance is the sum of their lengths; a quotient of
        sums is no larger than the largest quotient of their terms. If the tree represents a table
        of distances (see `tree_below`), distances along the tree may fall short of those in the
        table and never exceed them; a move then costs less per unit of its distance in the table.
        QED
        Numerics: rounded up, for sums of as many lengths as the tree has edges.
        """
        embedding = TreeEmbedding.of(space)
        checked = self.validate_rates(space, rates)
        edges = 0 if embedding is None else len(embedding.tree.parents)
        return round_up(float(np.max(checked / self._tree(space).lengths)), 4 * edges + 16)

    def moves(self, space: Space, rates: Floats, distance: float) -> Iterator[FeatureChanges]:
        """Moves found pair by pair, or one move that dominates all if there are too many pairs.

        That one move is the cheaper of two. The first has, for each rate, the largest number of
        edges of this rate on any path within the distance; if there are many different rates, they
        are first raised to fewer. The second has as many edges as any path within the distance,
        with the largest rates.
        """
        checked = self.validate_rates(space, rates)
        tree = self._tree(space)
        worst_moves = moves_of_pairs(self.table(space), space, checked, distance)
        if worst_moves is not None:
            yield from worst_moves
            return
        kinds, kind_of = _raised_to_kinds(checked)
        shortest = np.full(len(kinds), math.inf)
        np.minimum.at(shortest, kind_of, tree.lengths)
        reach = distance * (1.0 + DISTANCE_TOLERANCE + 4 * len(tree.nodes) * ROUNDOFF)
        counts = np.minimum(
            _max_edges_on_path(tree, kind_of, len(kinds)),
            np.floor(np.minimum(reach / shortest, 1e9)),
        ).astype(np.int64)
        longest = min(
            int(_max_edges_on_path(tree, np.zeros_like(kind_of), 1)[0]),
            int(min(reach / tree.lengths.min(), 1e9)),
        )
        if float(kinds @ counts) <= float(np.sort(checked)[::-1][:longest].sum()):
            some = np.flatnonzero(counts)[::-1]
            worst_moves = [
                FeatureChanges(kinds[some], np.ones(len(some), dtype=np.int64), counts[some])
            ]
        else:
            worst_moves = [most_expensive_move(checked, longest)]
        yield from (move for move in worst_moves if len(move.counts))

    def point_readings(self, space: Space) -> Readings | None:
        """The mass below a point's own edge minus the mass below its children's edges.

        None if two points are at distance 0.
        """
        from scipy.sparse import csr_array

        tree = self._tree(space)
        if len(np.unique(tree.nodes)) < len(tree.nodes):
            return None
        point_of = np.full(tree.order.size, -1)
        size = len(tree.nodes)
        point_of[tree.nodes] = np.arange(size)
        edges = np.arange(len(tree.links))
        below = point_of[tree.links]
        above = point_of[tree.tree.parents[tree.links].astype(np.int64)]
        at = (
            np.concatenate([below[below >= 0], above[above >= 0]]),
            np.concatenate([edges[below >= 0], edges[above >= 0]]),
        )
        signs = np.concatenate(
            [np.ones(np.count_nonzero(below >= 0)), -np.ones(np.count_nonzero(above >= 0))]
        )
        at_root = (tree.nodes == tree.order[0]).astype(np.float64)
        return Readings.of_points(
            at_root, csr_array((signs, at), shape=(size, len(edges))), np.arange(size)
        )

    def shares(
        self, space: Space, means: Floats, errors: Floats, blur: Blur | None = None
    ) -> Floats:
        """Least squares; isotonic regression on a path, where least squares take many steps.

        Points at distance 0 divide their share equally.
        """
        tree = self._tree(space)
        if blur is not None or not tree.is_path:
            return super().shares(space, means, errors, blur)
        there = np.bincount(tree.nodes, minlength=tree.order.size)[tree.nodes]
        rows = np.atleast_2d(np.asarray(means, dtype=np.float64)) * tree.lengths
        fitted = np.array(
            [
                shares_from_subtrees(tree, row, np.asarray(errors) * tree.lengths) / there
                for row in rows
            ]
        )
        return fitted if np.ndim(means) > 1 else fitted[0]


def contract_edges(embedding: TreeEmbedding) -> TreeEmbedding:
    """Contract a tree to the fewest edges with the same distances.

    The lengths of contracted edges are added to the edges they are equivalent to.
    """
    parents = embedding.tree.parents.astype(np.int64)
    order = embedding.order
    points = len(embedding.nodes)
    below = np.bincount(embedding.nodes, minlength=len(parents))
    for node in order[:0:-1]:
        below[parents[node]] += below[node]
    lengths = embedding.tree.lengths.tolist()
    # The nearest remaining edge above each node, by its lower end; -1 if there is no such edge.
    own = np.full(len(parents), -1)
    sums: dict[int, float] = {}
    for node in order[1:]:
        above = int(own[parents[node]])
        own[node] = above
        if lengths[node] <= 0.0 or below[node] in (0, points):
            continue
        if above >= 0 and below[above] == below[node]:  # the same points on both sides
            sums[above] += lengths[node]
        else:
            own[node] = int(node)
            sums[int(node)] = lengths[node]
    top = [node for node in sums if own[parents[node]] < 0]
    # Two edges that separate the same two sets of points.
    if len(top) == 2 and below[top[0]] + below[top[1]] == points:
        upper, lower = top
        sums[upper] += sums.pop(lower)
        own[own == lower] = -1
    edges = list(sums)
    place = {-1: 0, **{node: index + 1 for index, node in enumerate(edges)}}
    above_edges = [place[int(own[parents[node]])] for node in edges]
    tree = Tree(np.array([-1, *above_edges], dtype=np.float64), np.array([0.0, *sums.values()]))
    return TreeEmbedding(
        tree, np.array([place[int(own[node])] for node in embedding.nodes], dtype=np.int64)
    )


def _is_star(embedding: TreeEmbedding) -> bool:
    """Whether all points are attached to one node by equal edges, as labels are."""
    links = embedding.links
    lengths = embedding.tree.lengths[links]
    return (
        len(links) == len(embedding.nodes)
        and len(np.unique(embedding.tree.parents[links])) == 1
        and bool(np.all(lengths == lengths[0]))
    )


def _raised_to_kinds(rates: Floats) -> tuple[Floats, Integers64]:
    """At most MAX_KINDS rates, ascending, and the index of the one that each rate is raised to."""
    kinds = np.unique(rates)
    if len(kinds) > MAX_KINDS:
        kinds = np.unique(
            kinds[np.linspace(0, len(kinds) - 1, MAX_KINDS + 1).round().astype(np.int64)[1:]]
        )
    return kinds, np.searchsorted(kinds, rates).astype(np.int64)


def _max_edges_on_path(tree: TreeEmbedding, kind_of: Integers64, kinds: int) -> Integers64:
    """Most edges of each kind on a path between two nodes."""
    parents = tree.tree.parents.astype(np.int64)
    edge_of = tree.edge_of
    down = np.zeros((tree.order.size, kinds), dtype=np.int64)
    max_edges = np.zeros(kinds, dtype=np.int64)
    for node in tree.order[:0:-1]:
        reached = down[node].copy()
        reached[kind_of[edge_of[node]]] += 1
        above = parents[node]
        max_edges = np.maximum(max_edges, down[above] + reached)
        down[above] = np.maximum(down[above], reached)
    return max_edges
