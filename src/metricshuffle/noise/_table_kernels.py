"""Compiled table look-ups: one 64-bit word a draw (imported on first use).

A draw is #{thresholds <= word} - radius. The top bits of the word name a cell of the guide, which holds the
draw where they decide it and AMBIGUOUS where a threshold lies inside the cell. The look-up is written
out in each loop: as a function it is not inlined and costs ten times as much.
"""

from __future__ import annotations

import numpy as np
from numba import njit

GUIDE_BITS = 12
SHIFT = np.uint64(64 - GUIDE_BITS)
AMBIGUOUS = np.int32(-(2**31))


@njit(cache=True, nogil=True)
def counted(word, index, thresholds):  # type: ignore[no-untyped-def]
    """#{thresholds <= word}, given that the first `index` of them are."""
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
    """Compare with every threshold, whatever the word: no branch and no address depends on the draw."""
    for index in range(words.size):
        word = words[index]
        count = np.int64(0)
        for threshold in thresholds:
            count += np.int64(threshold <= word)
        out[index] = count - radius
