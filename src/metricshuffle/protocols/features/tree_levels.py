"""Features of the points of a tree by level: which node of each depth a point lies below."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Literal, Self

import numpy as np

from metricshuffle.errors import InputError
from metricshuffle.numerics.types import Integers64
from metricshuffle.protocols.features.feature_set import MAX_COORDINATES, Features
from metricshuffle.protocols.features.lattice import Lattice
from metricshuffle.protocols.features.tree_features import MAX_NODES, contract_edges
from metricshuffle.spaces import Space, TreeEmbedding
from metricshuffle.spaces.space import MAX_POINTS_PAIRED

if TYPE_CHECKING:
    from scipy.sparse import csr_array


class TreeLevels(Features):
    """For every depth of a tree, the node above the point (itself, if its branch ends before).

    Each level is a partition of the points, so that a shuffler can add dummies to it. Noisy vectors
    use edges instead, with rates in proportion to lengths, so they are never offered levels.
    """

    kind: Literal["levels"] = "levels"

    @classmethod
    def offered(cls, space: Space, people: int, rate: float) -> Iterator[Self]:
        """Yield nothing: see the class."""
        yield from ()

    @classmethod
    def fits(cls, space: Space) -> bool:
        """Whether the distances are those along a tree of several levels, all points apart."""
        size = space.domain.size
        if size is None or not 3 <= size <= MAX_POINTS_PAIRED or Lattice.of(space) is not None:
            return False
        embedding = TreeEmbedding.of(space)
        if embedding is None or len(embedding.tree.parents) > MAX_NODES:
            return False
        tree = contract_edges(embedding)
        parts = _parts(tree)
        return (
            len(np.unique(tree.nodes)) == size
            and parts.shape[1] > 1
            and sum(len(np.unique(level)) for level in parts.T) <= MAX_COORDINATES
        )

    def table(self, space: Space) -> csr_array:
        from scipy.sparse import csr_array

        embedding = TreeEmbedding.of(space)
        if embedding is None:
            raise InputError(
                "levels are for distances along a tree; those under "
                f"{type(space.metric).__name__} on {space.domain} are not known to be."
            )
        columns = []
        first = 0
        for level in _parts(contract_edges(embedding)).T:
            parts, part_of = np.unique(level, return_inverse=True)
            columns.append(first + part_of)
            first += len(parts)
        listed = np.stack(columns, axis=1)
        self.check_room(first, listed.size, "merge near points")
        return csr_array(
            (
                np.ones(listed.size, dtype=np.int64),
                listed.ravel(),
                np.arange(0, listed.size + 1, listed.shape[1]),
            ),
            shape=(len(listed), first),
        )


def _parts(tree: TreeEmbedding) -> Integers64:
    """Node of each depth above every point, one column per depth that separates points."""
    parents = tree.tree.parents.astype(np.int64)
    depths = np.zeros(len(parents), dtype=np.int64)
    for node in tree.order[1:]:
        depths[node] = depths[parents[node]] + 1
    deepest = int(depths[tree.nodes].max(initial=0))
    here = tree.nodes.copy()
    levels = []
    for depth in range(deepest, 0, -1):
        above = depths[here] > depth
        here = np.where(above, parents[here], here)
        levels.append(here)
    return np.stack(
        [level for level in levels[::-1] if len(np.unique(level)) > 1] or [tree.nodes], axis=1
    )
