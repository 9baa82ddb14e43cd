"""Compiled look-ups for every pair of a domain; imported only where used (numba costs 0.3 s)."""

# numba's decorators carry no types.
# mypy: disable-error-code="untyped-decorator, no-any-return"
from __future__ import annotations

import math

import numpy as np
from numba import njit
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Whole64 = NDArray[np.int64]
Mask = NDArray[np.bool_]


@njit(cache=True)
def distance_level(total: float, levels: Floats, step: float) -> int:
    """The last i with levels[i] >= total; levels fall by the factor e^-step."""
    last = len(levels) - 1
    if not total > levels[last]:
        return last
    i = int(math.log(levels[0] / total) / step)
    i = min(max(i, 0), last)
    while i > 0 and levels[i] < total:
        i -= 1
    while i < last and levels[i + 1] >= total:
        i += 1
    return i


@njit(cache=True)
def mark(distances: Floats, rate: float, first: int, reach: Whole64, levels: Floats, step: float, seen: Mask) -> None:
    """Mark the cells that the pairs (first + i, j), j > first + i, fall into."""
    for i in range(distances.shape[0]):
        one = reach[first + i]
        for j in range(first + i + 1, distances.shape[1]):
            total = rate * distances[i, j]
            if total > 0.0:
                other = reach[j]
                seen[distance_level(total, levels, step), max(one, other), min(one, other)] = True


@njit(cache=True)
def look_up(distances: Floats, rate: float, first: int, reach: Whole64, levels: Floats, step: float, cells: Floats, out: Floats) -> None:
    """out[first + i, j] and its mirror = the smaller of the cell's value and the local epsilon, for j >= first + i."""
    for i in range(distances.shape[0]):
        one = reach[first + i]
        for j in range(first + i, distances.shape[1]):
            total = rate * distances[i, j]
            value = 0.0
            if total > 0.0:
                other = reach[j]
                value = min(total, cells[distance_level(total, levels, step), max(one, other), min(one, other)])
            out[first + i, j] = value
            out[j, first + i] = value
