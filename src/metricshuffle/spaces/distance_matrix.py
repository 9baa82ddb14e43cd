"""Metric given by its table of distances, checked entry by entry and triple by triple."""

from __future__ import annotations

from functools import cached_property
from typing import Annotated, Literal

import numpy as np
from pydantic import PlainSerializer, PlainValidator

from metricshuffle.errors import InputError, argument
from metricshuffle.models import FrozenModel
from metricshuffle.numerics.rounding import ULP
from metricshuffle.numerics.types import Floats, Integers64
from metricshuffle.spaces.array_input import as_floats, indices
from metricshuffle.spaces.metrics import Metric
from metricshuffle.spaces.tree import Tree
from metricshuffle.spaces.tree_detection import tree_below

# A triangle may be open by this fraction of its longest side: room for rounding, not for a wrong
# entry.
TRIANGLE_TOLERANCE = 1e-12
MAX_TABLE_POINTS = 5_000
"""Largest table whose triangles are checked, which takes half a minute; lines may be longer."""


def open_triangle(
    distances: Floats, tolerance: float = TRIANGLE_TOLERANCE
) -> tuple[int, int, int] | None:
    """First (i, j, k) with d(i, k) > d(i, j) + d(j, k), beyond tolerance * d(i, k); else None.

    Statement: let d(i, j) be the entries of a symmetric table. It satisfies the triangle inequality
    if and only if max_k |d(i, k) - d(j, k)| <= d(i, j) for all i, j (Kuratowski's embedding); the
    left side is the Chebyshev distance between rows i and j.
    Numerics: a pair i, j that exceeds this by at most tolerance * d(i, j) is accepted, since the
    longest side of an open triangle is longer than d(i, j); other pairs are checked side by side.
    O(m^3) time for m points in compiled code, 128 rows at a time: about 3 seconds for 2,000 points.
    Distances that span more than ten orders of magnitude make many such pairs and take longer. A
    line takes O(m^2).
    """
    if _on_a_line(distances, 0.25 * tolerance):
        return None
    from scipy.spatial.distance import cdist

    block = 128
    for start in range(0, len(distances), block):
        gaps = cdist(distances[start : start + block], distances[start:], "chebyshev")
        suspects = (
            gaps - distances[start : start + block, start:]
            > tolerance * distances[start : start + block, start:]
        )
        for first, second in np.argwhere(suspects):
            # |d(i, k) - d(j, k)| > d(i, j): the long side starts at whichever of the two is farther
            # from k.
            for i, j in ((start + first, start + second), (start + second, start + first)):
                opened = distances[i] - (distances[i, j] + distances[j]) > tolerance * distances[i]
                if opened.any():
                    return int(i), int(j), int(np.argmax(opened))
    return None


def _on_a_line(distances: Floats, nearly: float) -> bool:
    """Whether the points lie on a line, up to an error of `nearly` of each distance.

    Statement: if so, no triangle is open by more than 2 t of its longest side, with t = nearly. Let
    d be the distances of the table and l the distances on the line. Then d(i, k) <= l(i, k)/(1 - t)
    <= (l(i, j) + l(j, k))/(1 - t) <= (1 + t)/(1 - t) (d(i, j) + d(j, k)), and 1 - (1 - t)/(1 + t) <
    2 t. The numbers on the line are the distances from a point that is farthest from some other
    point: on a line, such a point is an end.
    Numerics: each difference has one rounding error, for which another 2 t leave room; if t is
    below 8 ulp that room is too small, and the answer is False.
    """
    if not nearly >= 8.0 * ULP:
        return False
    end = int(np.argmax(distances[0]))
    line = np.abs(np.subtract.outer(distances[end], distances[end]))
    return bool((np.abs(line - distances) <= nearly * distances).all())


def _square(values: object, *, links: bool = False) -> Floats:
    """Return a square, symmetric, non-negative table with a zero diagonal.

    With `links`, inf means "no direct link".
    """
    source = np.asarray(values, dtype=object if isinstance(values, list | tuple) else None)
    if source.ndim != 2 or source.shape[0] != source.shape[1] or source.size == 0:
        raise ValueError(f"must be a square table with at least one row, got shape {source.shape}")
    table = as_floats(source)
    for violation, rule in (
        (np.isnan(table) if links else ~np.isfinite(table), "be finite numbers"),
        (table < 0, "be at least 0"),
        ((table != 0) & np.eye(len(table), dtype=bool), "be 0 between a point and itself"),
        (table != table.T, "be the same in both directions"),
    ):
        if violation.any():
            i, j = (int(index) for index in np.argwhere(violation)[0])
            mirror = (
                f" and ({j}, {i}) is {source[j, i]!s:.40}" if rule.endswith("directions") else ""
            )
            raise ValueError(
                f"must {rule}, but the distance ({i}, {j}) is {source[i, j]!s:.40}{mirror}"
            )
    table = table + 0.0  # a private copy, without negative zeros
    table.setflags(write=False)
    return table


def _metric_table(values: object) -> Floats:
    table = _square(values)
    if len(table) > MAX_TABLE_POINTS and not _on_a_line(table, 0.25 * TRIANGLE_TOLERANCE):
        raise ValueError(
            f"may have up to {MAX_TABLE_POINTS:,} points, got {len(table):,}: checking all "
            "triangles would take minutes; merge points, or use a grid, a tree or an embedding"
        )
    triple = open_triangle(table)
    if triple is not None:
        i, j, k = triple
        raise ValueError(
            f"must satisfy the triangle inequality, but for (i, j, k) = ({i}, {j}, {k}) "
            "the distance d(i, k) = "
            f"{table[i, k]:.12g} exceeds d(i, j) + d(j, k) = {table[i, j]:.12g} + "
            f"{table[j, k]:.12g}; "
            f"correct the table, or take closure(distances), which only shortens distances"
        )
    return table


Table = Annotated[
    np.ndarray, PlainValidator(_metric_table), PlainSerializer(lambda table: table.tolist())
]


class Matrix(Metric):
    """Distances between the points 0 .. m-1, for example the labels of `Categories` in their order.

    Different points may be at distance 0; then no mechanism may distinguish them.
    """

    kind: Literal["matrix"] = "matrix"
    distances: Table

    def __init__(self, distances: object, **fields: object) -> None:
        FrozenModel.__init__(self, distances=distances, **fields)

    @classmethod
    def known(cls, distances: Floats) -> Matrix:
        """Matrix of a table that is not checked, because it has been or was measured by a norm."""
        distances.setflags(write=False)
        return cls.model_construct(distances=distances)

    @property
    def measures(self) -> frozenset[str]:
        return frozenset({"codes"})

    @property
    def size(self) -> int | None:
        return len(self.distances)

    @cached_property
    def tree(self) -> tuple[Tree, Integers64] | None:
        """Line or tree with these distances and each point's node, or None; see `tree_below`."""
        return tree_below(self.distances)

    def pairwise(self, points_a: object, points_b: object) -> Floats:
        size = len(self.distances)
        rows, columns = (
            indices(points, size, f"the points 0 to {size - 1} of the matrix")
            for points in (points_a, points_b)
        )
        picked: Floats = self.distances[np.ix_(rows, columns)]
        return picked

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Matrix) and np.array_equal(self.distances, other.distances)

    def __hash__(self) -> int:
        return hash((self.kind, self.distances.tobytes()))


def closure(distances: object) -> Floats:
    """Largest metric below a symmetric table: each distance becomes that of the shortest path.

    For semi-metrics, such as rounded or hand-made tables. inf means "no direct link". Distances
    only get shorter, so a guarantee stated in the closure is at least as strong as one stated in
    the table.
    """
    from scipy.sparse.csgraph import csgraph_from_dense, floyd_warshall

    # null_value: without it, csgraph reads a distance of 0 as "no link".
    try:
        graph = csgraph_from_dense(_square(distances, links=True), null_value=np.inf)
    except ValueError as error:
        raise InputError(f"{argument('distances')} {error}.") from None
    shortest = np.asarray(floyd_warshall(graph, directed=False), dtype=np.float64)
    apart = np.argwhere(np.isinf(shortest))
    if len(apart):
        raise InputError(
            f"distances link no path between point {apart[0][0]} and point {apart[0][1]}; "
            "give at least one finite path."
        )
    return np.minimum(shortest, shortest.T)
