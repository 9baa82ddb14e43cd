"""Metrics of distances along a tree: a taxonomy, a road without loops, a hierarchy of places."""

from __future__ import annotations

from functools import cached_property
from typing import Annotated, Any, Literal, Self

import numpy as np
from pydantic import PlainSerializer, PlainValidator, model_validator

from metricshuffle.errors import InputError, argument
from metricshuffle.models import FrozenModel, Positive, Whole
from metricshuffle.numerics.types import Floats, Integers64
from metricshuffle.spaces.array_input import as_floats, as_source, indices
from metricshuffle.spaces.metrics import Metric, representable


def _column(values: object) -> Floats:
    column = as_floats(as_source(values, None))
    if len(column) == 0 or not np.isfinite(column).all():
        raise ValueError("must hold one finite number for each point, and at least one point")
    column = column + 0.0  # a private copy
    column.setflags(write=False)
    return column


Column = Annotated[
    np.ndarray, PlainValidator(_column), PlainSerializer(lambda column: column.tolist())
]


class Tree(Metric):
    """Points 0 .. m-1, each linked to its parent; the root has parent -1.

    The points are, for example, the labels of `Categories` in their order. lengths[i] >= 0 is the
    length of the link from i to its parent (1 for every link if not given; the root's is not used).
    The distance of two points is the length of the only path between them.
    """

    kind: Literal["tree"] = "tree"
    parents: Column
    lengths: Column

    def __init__(self, parents: Any, lengths: Any = None, **fields: Any) -> None:
        FrozenModel.__init__(
            self,
            parents=parents,
            lengths=np.ones(len(parents)) if lengths is None else lengths,
            **fields,
        )

    @model_validator(mode="after")
    def _is_a_tree(self) -> Self:
        size = len(self.parents)
        if len(self.lengths) != size:
            raise ValueError(
                f"lengths must be as many as parents, got {len(self.lengths):,} and {size:,}"
            )
        invalid = ~(
            (self.parents >= -1) & (self.parents < size) & (self.parents == np.floor(self.parents))
        )
        if invalid.any():
            raise ValueError(
                f"parents must be points 0 to {size - 1:,}, or -1 for the root, but parent "
                f"{int(np.argmax(invalid))} is not"
            )
        if (self.lengths < 0).any():
            raise ValueError(
                f"lengths must be at least 0, but length {int(np.argmax(self.lengths < 0))} is not"
            )
        if np.count_nonzero(self.parents == -1) != 1:
            raise ValueError(
                "parents must hold exactly one -1, for the root, got "
                f"{np.count_nonzero(self.parents == -1):,}"
            )
        if len(self.order) != size:
            left = set(range(size)) - set(self.order.tolist())
            raise ValueError(
                f"parents must lead to the root, but from point {min(left)} they go in a circle"
            )
        return self

    @cached_property
    def order(self) -> Integers64:
        """Points, parents before children."""
        children: list[list[int]] = [[] for _ in range(len(self.parents))]
        ordered: list[int] = []
        for point, parent in enumerate(self.parents.astype(np.int64).tolist()):
            (ordered if parent < 0 else children[parent]).append(point)
        for point in ordered:  # grows in the loop
            ordered.extend(children[point])
        return np.array(ordered, dtype=np.int64)

    @property
    def measures(self) -> frozenset[str]:
        return frozenset({"codes"})

    @property
    def size(self) -> int | None:
        return len(self.parents)

    def _from(self, rows: Integers64) -> Floats:
        from metricshuffle.spaces import _tree_kernels as kernels

        return representable(
            np.asarray(
                kernels.distances_from(
                    rows, self.parents.astype(np.int64), np.array(self.lengths), self.order
                )
            )
        )

    def pairwise(self, points_a: object, points_b: object) -> Floats:
        size = len(self.parents)
        rows, columns = (
            indices(points, size, f"the points 0 to {size - 1} of the tree")
            for points in (points_a, points_b)
        )
        distances: Floats = self._from(rows)[:, columns]
        return distances

    def reaches(self) -> Floats:
        """Largest distance from every point to any other.

        Statement: in a tree, the farthest point from anywhere is one of the two ends of a longest
        path: the point e farthest from any one point, and the point farthest from e. So three walks
        find all reaches. In a graph with loops this under-estimates; give its `closure` as a
        `Matrix` instead.
        """
        end = int(np.argmax(self._from(self.order[:1])[0]))
        from_one = self._from(np.array([end]))[0]
        reaches: Floats = np.maximum(from_one, self._from(np.array([int(np.argmax(from_one))]))[0])
        return reaches

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, Tree)
            and np.array_equal(self.parents, other.parents)
            and np.array_equal(self.lengths, other.lengths)
        )

    def __hash__(self) -> int:
        return hash((self.kind, self.parents.tobytes(), self.lengths.tobytes()))


class Clustered(Metric):
    """Metric of `clusters` clusters of `places` points: `inner` <= 1 within a cluster, 1 between.

    Point code = cluster * places + place, as in `ClusteredResponse`, whose reports are private in
    this metric.
    """

    kind: Literal["clustered"] = "clustered"
    clusters: Whole
    places: Whole
    inner: Positive

    def __init__(self, clusters: int, places: int, inner: float, **fields: object) -> None:
        FrozenModel.__init__(self, clusters=clusters, places=places, inner=inner, **fields)

    @model_validator(mode="after")
    def _has_points(self) -> Self:
        if not (self.clusters >= 2 and self.places >= 2 and self.clusters * self.places <= 2**24):
            raise ValueError(
                "at least 2 clusters of 2 places, up to 2^24 points, are needed, got "
                f"{self.clusters} x {self.places}"
            )
        if not self.inner <= 1.0:
            raise InputError(
                f"{argument('inner')} must be at most 1, the distance between clusters, "
                f"got {self.inner!r}"
            )
        return self

    @property
    def measures(self) -> frozenset[str]:
        return frozenset({"codes"})

    @property
    def size(self) -> int | None:
        return self.clusters * self.places

    def pairwise(self, points_a: object, points_b: object) -> Floats:
        many = self.clusters * self.places
        a, b = (
            indices(points, many, f"the {many:,} points of {self.clusters:,} clusters")
            for points in (points_a, points_b)
        )
        together = np.equal.outer(a // self.places, b // self.places)
        return np.where(np.equal.outer(a, b), 0.0, np.where(together, self.inner, 1.0))

    @cached_property
    def tree(self) -> Tree:
        """Tree with these distances; its first clusters * places points are those of the metric.

        The next `clusters` points of the tree are the centres of the clusters, `inner` / 2 from
        each of their places, and the last one is the root, (1 - inner) / 2 from each centre: inner
        / 2 + (1 - inner) / 2 twice is 1.
        """
        leaves = self.clusters * self.places
        parents = np.concatenate(
            [
                leaves + np.arange(leaves) // self.places,
                np.full(self.clusters, leaves + self.clusters),
                [-1],
            ]
        )
        lengths = np.concatenate(
            [np.full(leaves, self.inner / 2), np.full(self.clusters, (1.0 - self.inner) / 2), [0.0]]
        )
        return Tree(parents, lengths)
