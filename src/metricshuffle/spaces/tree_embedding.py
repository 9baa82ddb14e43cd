"""Embedding of tree metrics into coordinates whose l1 distance is the metric."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np

from metricshuffle.errors import InputError
from metricshuffle.numerics.types import Floats, Integers64, Mask
from metricshuffle.spaces.combinators import Scaled
from metricshuffle.spaces.distance_matrix import Matrix
from metricshuffle.spaces.earth_mover import LINES, finite_space, has_formula
from metricshuffle.spaces.earth_mover_formulas import subtree_masses
from metricshuffle.spaces.grid import Grid
from metricshuffle.spaces.metrics import Discrete, Metric
from metricshuffle.spaces.nested_squares import NestedSquares
from metricshuffle.spaces.space import Space
from metricshuffle.spaces.tree import Clustered, Tree

# 1 GiB of doubles.
MAX_COORDINATES = 2**27


@dataclass(frozen=True, eq=False)
class TreeEmbedding:
    """Points of a space as nodes of a tree: `nodes[i]` is the node of point i.

    The tree may have further nodes that are not points.
    Statement: for a point x and a link e let f(x)_e = length_e if x lies below e and 0 otherwise.
    Then |f(x) - f(y)|_1 is the distance of x and y, and |mean f under P - mean f under Q|_1 is the
    earth mover's distance of histograms P and Q. The coordinates of f are the links, in the order
    of the nodes they lead up from (`links`). For a table of distances (Matrix), |f(x) - f(y)|_1 may
    fall short of the distance by a relative 1e-5.
    """

    tree: Tree
    nodes: Integers64

    @classmethod
    def of(cls, space: object) -> TreeEmbedding | None:
        """Embedding of a space; None if no tree is known for its metric.

        `space` is a Space, a Domain with its usual metric, or a Metric of known size.
        """
        listed = finite_space(space)
        return _embedded(listed, listed.metric)

    @cached_property
    def links(self) -> Integers64:
        """Nodes that have a link upwards, in their order: all but the root."""
        return np.flatnonzero(self.tree.parents >= 0)

    @cached_property
    def edge_of(self) -> Integers64:
        """Coordinate of the link from each node upwards; -1 for the root."""
        edges = np.full(len(self.tree.parents), -1)
        edges[self.links] = np.arange(len(self.links))
        return edges

    @property
    def lengths(self) -> Floats:
        """Length of each link, which is the largest value of its coordinate."""
        lengths: Floats = self.tree.lengths[self.links]
        return lengths

    @property
    def order(self) -> Integers64:
        """Nodes, parents before children."""
        return self.tree.order

    @cached_property
    def children(self) -> list[Integers64]:
        """Nodes directly below each node."""
        parents = self.tree.parents.astype(np.int64)
        below = np.argsort(parents, kind="stable")
        starts = np.searchsorted(parents[below], np.arange(len(parents) + 1))
        return [below[start:end] for start, end in pairwise(starts)]

    @cached_property
    def is_leaf_edge(self) -> Mask:
        """Whether the lower end of each link is a leaf."""
        inner = np.zeros(len(self.tree.parents), dtype=bool)
        inner[self.tree.parents[self.links].astype(np.int64)] = True
        return ~inner[self.links]

    @property
    def is_path(self) -> bool:
        """Whether no node has two children, as on a line."""
        parents = self.tree.parents[self.links]
        return len(np.unique(parents)) == len(parents)

    @cached_property
    def coordinates(self) -> Floats:
        """Table of f, one row for each point and one column for each link."""
        coordinates = self.means(np.eye(len(self.nodes)))
        coordinates.setflags(write=False)
        return coordinates

    def means(self, histograms: object) -> Floats:
        """Mean of f under each histogram: the mass below each link times its length.

        `histograms` has one row per histogram and one column per point.
        """
        rows = np.atleast_2d(np.asarray(histograms, dtype=np.float64))
        if rows.ndim != 2 or rows.shape[1] != len(self.nodes):
            raise InputError(
                f"histograms must have one column for each of the {len(self.nodes):,} "
                f"points, got shape {rows.shape}."
            )
        if rows.shape[0] * len(self.tree.parents) > MAX_COORDINATES:
            raise InputError(
                f"{rows.shape[0]:,} histograms with {len(self.links):,} coordinates each "
                "do not fit into memory; give them in parts."
            )
        masses = np.zeros((len(rows), len(self.tree.parents)))
        masses[:, self.nodes] = rows
        means: Floats = subtree_masses(self.tree, masses)[:, self.links] * self.lengths
        return means


def embedding(space: object) -> TreeEmbedding:
    """Exact l1 embedding of a line, a tree, clusters or labels.

    `space` is a Space, a Domain, or a Metric of known size. D is the number of coordinates. A line
    is a path from its smallest point upwards, D = points - 1; a tree is itself, D = nodes - 1;
    clusters are `Clustered.tree`, D = clusters * places + clusters; cells of nested squares are
    `NestedSquares.tree_of`, with D the number of cells and of squares except the largest; labels
    are a star with links of 1/2, D = points; a table is the tree that `tree_below` finds in it.
    """
    tree_embedding = TreeEmbedding.of(space)
    if tree_embedding is None:
        listed = finite_space(space)
        raise InputError(
            f"distances under {type(listed.metric).__name__} on {listed.domain} are not "
            "known to be distances along a tree, so that there "
            "is no exact l1 embedding; use a Lipschitz query, whose constant is the price "
            "of the difference."
        )
    return tree_embedding


def _embedded(space: Space, metric: Metric) -> TreeEmbedding | None:
    points = np.arange(space.domain.size or 0)
    if isinstance(metric, Matrix) and type(metric).pairwise is Matrix.pairwise:
        return None if metric.tree is None else TreeEmbedding(*metric.tree)
    if not has_formula(metric):
        return None
    if isinstance(metric, Scaled):
        inner = _embedded(space, metric.metric)
        return inner and TreeEmbedding(
            Tree(inner.tree.parents, inner.tree.lengths * metric.factor), inner.nodes
        )
    if isinstance(metric, Tree):
        return TreeEmbedding(metric, points)
    if isinstance(metric, Clustered) and metric.inner < 1.0:
        return TreeEmbedding(metric.tree, points)
    if isinstance(metric, NestedSquares) and isinstance(space.domain, Grid):
        return TreeEmbedding(metric.tree_of(space.domain), points)
    if isinstance(metric, Discrete | Clustered):
        parents = np.full(len(points), len(points))
        lengths = np.full(len(points), 0.5)
        return TreeEmbedding(Tree(np.append(parents, -1), np.append(lengths, 0.0)), points)
    if isinstance(metric, LINES) and space.domain.points_are == "numbers":
        positions = np.asarray(space.domain.points(space.domain.all_values()), dtype=np.float64)
        return TreeEmbedding(Tree(points - 1, np.diff(positions, prepend=positions[0])), points)
    return None
