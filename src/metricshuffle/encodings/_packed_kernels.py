"""Compiled splitting and adding of packed vectors (see packed_vectors.py).

All numbers are uint64, whose sums wrap at a multiple of 2^bits.
"""

from __future__ import annotations

import numpy as np
from numba import njit


@njit(cache=True, nogil=True)
def split(values, together, width, shares, bits, words, out):  # type: ignore[no-untyped-def]
    """Write the report of each row of values into `out`, group by group.

    Each group has shares - 1 elements of random residues, followed by the element that makes the
    sum equal to the values. A word has 64 // bits residues, and words[row] has as many words as one
    person needs. The bits of a word are independent, and so are its residues. Coordinates beyond
    the values (padding and check) are 0.
    """
    step = np.uint64(bits)
    mask = (np.uint64(1) << np.uint64(bits)) - np.uint64(1)
    each = 64 // bits
    coordinates = values.shape[1]
    difference = np.empty(width, dtype=np.uint64)
    for person in range(values.shape[0]):
        at = 0
        used = 0
        left = 0
        word = np.uint64(0)
        for first in range(0, coordinates, together):
            for place in range(width):
                inside = place < together and first + place < coordinates
                difference[place] = (
                    np.uint64(values[person, first + place]) if inside else np.uint64(0)
                )
            for _ in range(shares - 1):
                for place in range(width):
                    if left == 0:
                        word = words[person, used]
                        left = each
                        used += 1
                    residue = word & mask
                    word >>= step
                    left -= 1
                    difference[place] -= residue
                    out[person, at] = residue
                    at += 1
            for place in range(width):
                out[person, at] = difference[place] & mask
                at += 1


@njit(cache=True, nogil=True)
def add_up(rows, sums):  # type: ignore[no-untyped-def]
    """Add every row to `sums` (modulo 2^64); return the bitwise OR of all residues."""
    seen = np.uint64(0)
    for person in range(rows.shape[0]):
        for place in range(rows.shape[1]):
            residue = np.uint64(rows[person, place])
            seen |= residue
            sums[place] += residue
    return seen
