"""Compiled table look-ups: one 64-bit word a draw (imported on first use)."""

from __future__ import annotations

import numpy as np
from numba import njit

GUIDE_BITS = 12
SHIFT = np.uint64(64 - GUIDE_BITS)
AMBIGUOUS = -(2**31)


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def drawn(word, thresholds, guide, first, radius):  # type: ignore[no-untyped-def]
    """#{thresholds <= word} - radius: read off the top bits where they decide it, else counted from the cell's first."""
    cell = np.uint64(word >> SHIFT)
    value = guide[cell]
    if value != AMBIGUOUS:
        return np.int64(value)
    index = first[cell]
    while index < thresholds.size and thresholds[index] <= word:
        index += 1
    return np.int64(index) - radius


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def draw(words, thresholds, guide, first, radius, out):  # type: ignore[no-untyped-def]
    for index in range(out.size):
        out[index] = drawn(words[index], thresholds, guide, first, radius)


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def add(words, thresholds, guide, first, radius, out):  # type: ignore[no-untyped-def]
    for index in range(out.size):
        out[index] += drawn(words[index], thresholds, guide, first, radius)


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def total(words, thresholds, guide, first, radius):  # type: ignore[no-untyped-def]
    result = np.int64(0)
    for word in words:
        result += drawn(word, thresholds, guide, first, radius)
    return result


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def draw_constant_time(words, thresholds, radius, out):  # type: ignore[no-untyped-def]
    """Compare with every threshold, whatever the word: no branch and no address depends on the draw."""
    for index in range(out.size):
        word = words[index]
        count = np.int64(0)
        for threshold in thresholds:
            count += np.int64(threshold <= word)
        out[index] = count - radius
