"""Compiled sums of moved mass along a tree or a line; import where used (numba costs 0.3 s)."""

# numba's decorators carry no types.
# mypy: disable-error-code="untyped-decorator, no-any-return"
from __future__ import annotations

import numpy as np
from numba import njit

from metricshuffle.numerics.types import Floats, Integers64


@njit(cache=True)
def gather_subtrees(masses: Floats, parents: Integers64, order: Integers64) -> None:
    """Replace the mass of each node (columns; one row per histogram) by the mass of its subtree.

    `order` lists parents before children.
    """
    for row in range(len(masses)):
        here = masses[row]
        for i in range(len(order) - 1, 0, -1):
            here[parents[order[i]]] += here[order[i]]


@njit(cache=True)
def packed(pairs: Floats, low: float, span: float, bits: int) -> Integers64:
    """Integer keys that sort almost like the points (column 0); the last `bits` hold the row.

    numpy sorts integers four times as fast as it finds the order of doubles.
    """
    keys = np.empty(len(pairs), dtype=np.int64)
    cells = 2.0 ** (62 - bits)
    for i in range(len(pairs)):
        keys[i] = (np.int64((pairs[i, 0] - low) / span * cells) << bits) | i
    return keys


@njit(cache=True)
def in_order(keys: Integers64, bits: int, pairs: Floats, most_moves: int) -> tuple[Floats, Floats]:
    """Points and masses (columns of `pairs`) in the order of sorted `keys`; ties by point.

    Empty if sorting takes more than `most_moves` moves. Points and masses lie next to each other in
    `pairs` so that each row is fetched from memory once.
    """
    points = np.empty(len(keys))
    masses = np.empty(len(keys))
    mask = (np.int64(1) << bits) - 1
    for i in range(len(keys)):
        row = keys[i] & mask
        points[i], masses[i] = pairs[row, 0], pairs[row, 1]
    moves = 0
    for i in range(1, len(points)):
        point = points[i]
        mass = masses[i]
        j = i
        while j > 0 and points[j - 1] > point:
            points[j], masses[j] = points[j - 1], masses[j - 1]
            j -= 1
            moves += 1
            if moves > most_moves:
                return points[:0], masses[:0]
        points[j], masses[j] = point, mass
    return points, masses


@njit(cache=True)
def between_distributions(points: Floats, masses: Floats) -> float:
    """Integral of |sum of the masses up to x| over the line, for points in ascending order.

    The sums are compensated (Knuth's two-sum, without branches), so that millions of terms lose no
    precision.
    """
    sum_ = 0.0
    carry = 0.0
    total = 0.0
    total_rest = 0.0
    for i in range(len(points) - 1):
        new = sum_ + masses[i]
        back = new - sum_
        carry += (sum_ - (new - back)) + (masses[i] - back)
        sum_ = new
        area = abs(sum_ + carry) * (points[i + 1] - points[i])
        new = total + area
        back = new - total
        total_rest += (total - (new - back)) + (area - back)
        total = new
    return total + total_rest
