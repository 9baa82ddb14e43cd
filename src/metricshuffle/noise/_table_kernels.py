"""Compiled table look-ups for `DyadicTable`, which use one 64-bit word per draw.

`thresholds` are the partial sums of the table's weights, so a draw is #{thresholds <= word} -
radius. The top bits of the word select a cell of `guide`. The cell contains the draw if these bits
determine it, and AMBIGUOUS if a threshold lies inside the cell. The look-up is written out in each
loop: a separate function would not be inlined and would take ten times as long. The module is
imported on first use.
"""

from __future__ import annotations

import numpy as np
from numba import njit

GUIDE_BITS = 12
SHIFT = np.uint64(64 - GUIDE_BITS)
AMBIGUOUS = np.int32(-(2**31))


@njit(cache=True, nogil=True)
def counted(word, index, thresholds):  # type: ignore[no-untyped-def]
    """Return #{thresholds <= word}, given that the first `index` thresholds are <= word."""
    while index < thresholds.size and thresholds[index] <= word:
        index += 1
    return index


@njit(cache=True, nogil=True)
def draw(words, thresholds, guide, first, radius, out):  # type: ignore[no-untyped-def]
    for index in range(words.size):
        word = words[index]
        value = guide[word >> SHIFT]
        if value == AMBIGUOUS:
            value = counted(word, first[word >> SHIFT], thresholds) - radius
        out[index] = value


@njit(cache=True, nogil=True)
def add(words, thresholds, guide, first, radius, out):  # type: ignore[no-untyped-def]
    for index in range(words.size):
        word = words[index]
        value = guide[word >> SHIFT]
        if value == AMBIGUOUS:
            value = counted(word, first[word >> SHIFT], thresholds) - radius
        out[index] += value


@njit(cache=True, nogil=True)
def draw_constant_time(words, thresholds, radius, out):  # type: ignore[no-untyped-def]
    """Compare every word with every threshold, so that no branch or address depends on the draw."""
    for index in range(words.size):
        word = words[index]
        count = np.int64(0)
        for threshold in thresholds:
            count += np.int64(threshold <= word)
        out[index] = count - radius
