"""All pairs of points of a finite space, and by how much features change between them."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from metricshuffle.accounting.vectors.changes import Changes
from metricshuffle.errors import InputError
from metricshuffle.numerics.types import Floats, Integers64
from metricshuffle.protocols.features.lattice import FORGIVEN
from metricshuffle.spaces import Space
from metricshuffle.spaces.space import MOST_POINTS_PAIRED

if TYPE_CHECKING:
    from scipy.sparse import csr_array

BLOCK = 256
MOST_PAIRS_LISTED = 100_000
MOST_ENTRIES_LISTED = 20_000_000
MOST_MOVES = 200
Key = tuple[tuple[float, tuple[int, ...]], ...]
"""A move: for each rate, the largest first, by how much the coordinates of that rate change, the largest first."""


def distances_of(space: Space) -> Callable[[int, int], Floats]:
    """Rows start..stop-1 of the table of all distances; what is no distance is refused."""
    points = space.domain.points(space.domain.all_values())

    def rows(start: int, stop: int) -> Floats:
        found = np.asarray(space.metric.pairwise(points[start:stop], points), dtype=np.float64)
        if not np.all((found >= 0.0) & (found < np.inf)):
            raise InputError(f"distances under {type(space.metric).__name__} must be finite numbers >= 0, and some are not.")
        return found

    return rows


def nearest_distance(space: Space) -> float:
    """The smallest distance of two different points."""
    size, rows = space.domain.size or 0, distances_of(space)
    found = np.inf
    for start in range(0, size, BLOCK):
        apart = rows(start, min(start + BLOCK, size))
        apart[np.arange(len(apart)), start + np.arange(len(apart))] = np.inf
        found = min(found, float(apart.min()))
    return found


def moves_of_pairs(table: csr_array, space: Space, rates: Floats, distance: float) -> list[Changes] | None:
    """The moves between points within that distance, without those that another one outdoes; None if there are too many to list."""
    if not distance >= 0.0:
        raise InputError(f"distance must be a number >= 0, got {distance!r}.")
    pairs = _pairs_within(space, distance)
    if pairs is None or len(pairs) * max(1, 2 * table.nnz // table.shape[0]) > MOST_ENTRIES_LISTED:
        return None
    keys = _keys(table, rates, pairs)
    kept: list[Key] = []
    for key in sorted(keys, key=lambda key: -sum(rate * sum(sizes) for rate, sizes in key)):
        if not any(_outdone(key, other) for other in kept):
            kept.append(key)
            if len(kept) > MOST_MOVES:
                return None
    return [_as_changes(key) for key in kept]


def _pairs_within(space: Space, distance: float) -> Integers64 | None:
    size = space.domain.size or 0
    if size > MOST_POINTS_PAIRED:
        return None
    rows, found, count = distances_of(space), [], 0
    for start in range(0, size, BLOCK):
        one, other = np.nonzero(rows(start, min(start + BLOCK, size)) <= distance * (1.0 + FORGIVEN))
        once = start + one < other
        found.append(np.column_stack([start + one[once], other[once]]))
        count += len(found[-1])
        if count > MOST_PAIRS_LISTED:
            return None
    return np.concatenate(found) if found else np.empty((0, 2), dtype=np.int64)


def _keys(table: csr_array, rates: Floats, pairs: Integers64) -> set[Key]:
    """The different moves between pairs of points."""
    found: set[Key] = set()
    for start in range(0, len(pairs), 4096):
        some = pairs[start : start + 4096]
        changed = abs(table[some[:, 0]] - table[some[:, 1]]).tocsr()
        changed.eliminate_zeros()
        row = np.repeat(np.arange(len(some)), np.diff(changed.indptr))
        rate, size = rates[changed.indices], changed.data
        order = np.lexsort((-size, -rate, row))
        rate, size = rate[order].tolist(), size[order].tolist()
        ends = changed.indptr.tolist()
        listed = {(tuple(rate[a:b]), tuple(size[a:b])) for a, b in pairwise(ends) if a < b}
        found |= {_grouped(*each) for each in listed}
    return found


def _grouped(rates: tuple[float, ...], sizes: tuple[int, ...]) -> Key:
    groups: dict[float, list[int]] = {}
    for rate, size in zip(rates, sizes, strict=True):
        groups.setdefault(rate, []).append(size)
    return tuple((rate, tuple(group)) for rate, group in groups.items())


def _outdone(key: Key, other: Key) -> bool:
    """Whether the other move changes, at each rate, as many coordinates by as much."""
    by = dict(other)
    return all(len(sizes) <= len(by.get(rate, ())) and all(a <= b for a, b in zip(sizes, by[rate], strict=False)) for rate, sizes in key)


def _as_changes(key: Key) -> Changes:
    flat = [(rate, size, sizes.count(size)) for rate, sizes in key for size in sorted(set(sizes), reverse=True)]
    rates, sizes, counts = zip(*flat, strict=True)
    return Changes(np.array(rates), np.array(sizes, dtype=np.int64), np.array(counts, dtype=np.int64))
