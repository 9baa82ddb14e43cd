"""All pairs of points of a finite space, and how much features change between them."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from metricshuffle.accounting.vectors.feature_changes import FeatureChanges
from metricshuffle.errors import InputError, argument
from metricshuffle.numerics.types import Floats, Integers64
from metricshuffle.protocols.features.lattice import DISTANCE_TOLERANCE
from metricshuffle.spaces import Chord, ChordSum, Discrete, Space, ZonePairs, Zones
from metricshuffle.spaces.space import MAX_POINTS_PAIRED

if TYPE_CHECKING:
    from scipy.sparse import csr_array

BLOCK_ROWS = 256
MAX_PAIRS_LISTED = 100_000
MAX_ENTRIES_LISTED = 20_000_000
MAX_MOVES = 200
Key = tuple[tuple[float, tuple[int, ...]], ...]
"""A move: pairs of a rate and the changes of its coordinates, both in descending order."""


def distances_of(space: Space) -> Callable[[int, int], Floats]:
    """Function that returns rows start..stop-1 of the table of all distances.

    It raises InputError for values that are not distances.
    """
    points = space.domain.points(space.domain.all_values())

    def rows(start: int, stop: int) -> Floats:
        distances = np.asarray(space.metric.pairwise(points[start:stop], points), dtype=np.float64)
        if not np.all((distances >= 0.0) & (distances < np.inf)):
            raise InputError(
                f"distances under {type(space.metric).__name__} must be finite numbers >= "
                "0, and some are not."
            )
        return distances

    return rows


@lru_cache(maxsize=32)
def nearest_distance(space: Space) -> float:
    """Smallest distance between two different points."""
    if type(space.metric).pairwise is Discrete.pairwise:
        return 1.0
    if isinstance(space.domain, Zones) and isinstance(space.metric, Chord):
        return float(space.domain.nearest.min())
    if isinstance(space.domain, ZonePairs) and isinstance(space.metric, ChordSum):
        return float(space.domain.nearest.min())
    size = space.domain.size or 0
    rows = distances_of(space)
    nearest = np.inf
    for start in range(0, size, BLOCK_ROWS):
        apart = rows(start, min(start + BLOCK_ROWS, size))
        apart[np.arange(len(apart)), start + np.arange(len(apart))] = np.inf
        nearest = min(nearest, float(apart.min()))
    return nearest


def moves_of_pairs(
    table: csr_array, space: Space, rates: Floats, distance: float
) -> list[FeatureChanges] | None:
    """Undominated moves between points within a distance; None if there are too many to list."""
    if not distance >= 0.0:
        raise InputError(f"{argument('distance')} must be a number >= 0, got {distance!r}.")
    pairs = _pairs_within(space, distance)
    if pairs is None or len(pairs) * max(1, 2 * table.nnz // table.shape[0]) > MAX_ENTRIES_LISTED:
        return None
    keys = _keys(table, rates, pairs)
    undominated: list[Key] = []
    for key in sorted(keys, key=lambda key: -sum(rate * sum(sizes) for rate, sizes in key)):
        if not any(_is_dominated(key, dominating) for dominating in undominated):
            undominated.append(key)
            if len(undominated) > MAX_MOVES:
                return None
    return [_as_changes(key) for key in undominated]


def _pairs_within(space: Space, distance: float) -> Integers64 | None:
    size = space.domain.size or 0
    if size > MAX_POINTS_PAIRED:
        return None
    rows = distances_of(space)
    blocks = []
    count = 0
    for start in range(0, size, BLOCK_ROWS):
        row_index, column_index = np.nonzero(
            rows(start, min(start + BLOCK_ROWS, size)) <= distance * (1.0 + DISTANCE_TOLERANCE)
        )
        once = start + row_index < column_index
        blocks.append(np.column_stack([start + row_index[once], column_index[once]]))
        count += len(blocks[-1])
        if count > MAX_PAIRS_LISTED:
            return None
    return np.concatenate(blocks) if blocks else np.empty((0, 2), dtype=np.int64)


def _keys(table: csr_array, rates: Floats, pairs: Integers64) -> set[Key]:
    """The different moves between pairs of points."""
    keys: set[Key] = set()
    for start in range(0, len(pairs), 4096):
        some = pairs[start : start + 4096]
        changed = abs(table[some[:, 0]] - table[some[:, 1]]).tocsr()
        changed.eliminate_zeros()
        row = np.repeat(np.arange(len(some)), np.diff(changed.indptr))
        rate = rates[changed.indices]
        size = changed.data
        order = np.lexsort((-size, -rate, row))
        rate = rate[order].tolist()
        size = size[order].tolist()
        ends = changed.indptr.tolist()
        listed = {(tuple(rate[a:b]), tuple(size[a:b])) for a, b in pairwise(ends) if a < b}
        keys |= {_grouped(*each) for each in listed}
    return keys


def _grouped(rates: tuple[float, ...], sizes: tuple[int, ...]) -> Key:
    groups: dict[float, list[int]] = {}
    for rate, size in zip(rates, sizes, strict=True):
        groups.setdefault(rate, []).append(size)
    return tuple((rate, tuple(group)) for rate, group in groups.items())


def _is_dominated(key: Key, dominating: Key) -> bool:
    """Whether `dominating` changes, at each rate, as many coordinates by at least as much."""
    by = dict(dominating)
    return all(
        len(sizes) <= len(by.get(rate, ()))
        and all(a <= b for a, b in zip(sizes, by[rate], strict=False))
        for rate, sizes in key
    )


def _as_changes(key: Key) -> FeatureChanges:
    flat = [
        (rate, size, sizes.count(size))
        for rate, sizes in key
        for size in sorted(set(sizes), reverse=True)
    ]
    rates, sizes, counts = zip(*flat, strict=True)
    return FeatureChanges(
        np.array(rates), np.array(sizes, dtype=np.int64), np.array(counts, dtype=np.int64)
    )
