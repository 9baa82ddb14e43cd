"""Points in clusters: close within a cluster, far apart otherwise."""

from __future__ import annotations

from functools import cached_property
from typing import Any, Literal, Self

import numpy as np
from pydantic import model_validator

from metricshuffle.models import FrozenModel, Positive, Whole
from metricshuffle.numerics.types import Floats
from metricshuffle.spaces.array_input import indices
from metricshuffle.spaces.metrics import Metric
from metricshuffle.spaces.tree import Tree


class Clustered(Metric):
    """`clusters` clusters of `size` points: distance `inner` <= 1 within a cluster, 1 between clusters.

    Point code = cluster * size + place, as in `ClusteredResponse`, whose reports are private in this metric.
    """

    kind: Literal["clustered"] = "clustered"
    clusters: Whole
    places: Whole
    inner: Positive

    def __init__(self, clusters: int, places: int, inner: float, **fields: Any) -> None:
        FrozenModel.__init__(self, clusters=clusters, places=places, inner=inner, **fields)

    @model_validator(mode="after")
    def _has_points(self) -> Self:
        if not (self.clusters >= 2 and self.places >= 2 and self.clusters * self.places <= 2**24):
            raise ValueError(f"needs at least 2 clusters of 2 places, up to 2^24 points, got {self.clusters} x {self.places}")
        if not self.inner <= 1.0:
            raise ValueError(f"inner must be at most 1, the distance between clusters, got {self.inner!r}")
        return self

    @property
    def measures(self) -> frozenset[str]:
        return frozenset({"codes"})

    @property
    def size(self) -> int | None:
        return self.clusters * self.places

    def pairwise(self, points_a: Any, points_b: Any) -> Floats:
        many = self.clusters * self.places
        a, b = (indices(points, many, f"the {many:,} points of {self.clusters:,} clusters") for points in (points_a, points_b))
        together = np.equal.outer(a // self.places, b // self.places)
        return np.where(np.equal.outer(a, b), 0.0, np.where(together, self.inner, 1.0))

    @cached_property
    def tree(self) -> Tree:
        """The tree these are distances along: its points 0 .. clusters * places - 1 are the points of this metric in their order.

        The next `clusters` points of the tree are the middles of the clusters, `inner` / 2 from each of their places, and
        the last one is the root, (1 - inner) / 2 from each middle: inner / 2 + (1 - inner) / 2 twice is 1.
        """
        leaves = self.clusters * self.places
        parents = np.concatenate([leaves + np.arange(leaves) // self.places, np.full(self.clusters, leaves + self.clusters), [-1]])
        lengths = np.concatenate([np.full(leaves, self.inner / 2), np.full(self.clusters, (1.0 - self.inner) / 2), [0.0]])
        return Tree(parents, lengths)
