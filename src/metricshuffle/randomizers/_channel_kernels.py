"""Compiled loops over reports and over pairs of rows (imported on first use).

Weights are uint64 and sum to 2^63 per row; a draw compares the upper 63 bits of a word with partial
sums. Signed and unsigned numbers are never mixed, because numba would convert both to floats.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from metricshuffle.numerics.rounding import ULP

ONE = np.uint64(1)
LOW_BITS = 31
LOW_SHIFT = np.uint64(33)
JUST_ABOVE_ONE = 1.0 + ULP
ROWS_TOGETHER = 32


@njit(cache=True, nogil=True)
def draw_rows(words, values, thresholds, guide, shift, out):  # type: ignore[no-untyped-def]
    """Set out to the number of partial sums of row `value` that are <= the number drawn.

    The guide narrows the search to one cell.
    """
    for index in range(values.size):
        number = words[index] >> ONE
        row = values[index]
        cell = np.int64(number >> shift)
        low = guide[row, cell]
        high = guide[row, cell + 1]
        while low < high:
            middle = (low + high) >> 1
            if thresholds[row, middle] <= number:
                low = middle + 1
            else:
                high = middle
        out[index] = low


@njit(cache=True, nogil=True)
def draw_kary(halves, values, first, inverse, doubt, out):  # type: ignore[no-untyped-def]
    """Draw k-ary randomized responses from half a word each; return how many are undecided.

    The first `keep` numbers below 2^63 keep the value, then `other` numbers belong to each other
    option, in order. Half a word gives the upper 32 of 63 bits; the number lies in [half, half + 1)
    2^31. With first = keep/2^31 and inverse = 2^31/other its option lies between the floors of
    (half - first) inverse and of one `inverse` more; a float tells them apart up to `doubt`.
    `finish_kary` draws the other 31 bits of the undecided ones. There is no branch, so that the
    compiler can vectorize the loop.
    """
    undecided = 0
    width = inverse + 2.0 * doubt
    for index in range(values.size):
        low = (np.float64(halves[index]) - first) * inverse - doubt
        start = np.floor(low)
        option = np.int32(start)
        value = values[index]
        undecided += int(low + width >= start + 1.0)
        out[index] = value if low < 0.0 else option + np.int32(option >= value)
    return undecided


@njit(cache=True, nogil=True)
def finish_kary(halves, values, first, inverse, doubt, keep, other_weight, spare, out):  # type: ignore[no-untyped-def]
    """Draw the lower 31 bits of the numbers that `draw_kary` left undecided, all in integers.

    `spare` holds one random word for each of them.
    """
    used = 0
    width = inverse + 2.0 * doubt
    for index in range(values.size):
        low = (np.float64(halves[index]) - first) * inverse - doubt
        if low + width >= np.floor(low) + 1.0:
            offset = (
                (np.int64(halves[index]) << LOW_BITS) + np.int64(spare[used] >> LOW_SHIFT) - keep
            )
            used += 1
            option = offset // other_weight
            value = np.int64(values[index])
            out[index] = value if offset < 0 else option + np.int64(option >= value)


@njit(cache=True, nogil=True)
def count_into(codes, tables):  # type: ignore[no-untyped-def]
    """Count occurrences; return the first invalid position, or -1.

    Four tables are used so that equal neighbours do not wait for each other.
    """
    for index in range(codes.size):
        if not 0 <= codes[index] < tables.shape[1]:
            return index
        tables[index & 3, codes[index]] += 1
    return -1


@njit(cache=True, nogil=True)
def largest_ratio(first, second):  # type: ignore[no-untyped-def]
    """Return the max over outputs of first/second and second/first; inf if one of them is 0.

    Outputs at which both are equal, including 0, are skipped.
    """
    worst = 1.0
    for index in range(first.size):
        if first[index] == second[index]:
            continue
        left = np.float64(first[index])
        right = np.float64(second[index])
        if left == 0.0 or right == 0.0:
            return np.inf
        ratio = left / right if left > right else right / left
        # Different integers may be the same float.
        worst = max(worst, ratio, JUST_ABOVE_ONE)
    return worst


@njit(cache=True, nogil=True)
def largest_ratios(weights):  # type: ignore[no-untyped-def]
    """Return `largest_ratio` of every pair of rows, as a symmetric matrix."""
    count = weights.shape[0]
    out = np.ones((count, count))
    for a in range(count):
        for b in range(a):
            out[a, b] = out[b, a] = largest_ratio(weights[a], weights[b])
    return out


@njit(cache=True, nogil=True, fastmath={"nnan", "nsz"})
def _extreme_ratios(columns, inverse, min_ratios, max_ratios):  # type: ignore[no-untyped-def]
    """Compute min and max over outputs of several rows (columns[output, row]) over another row.

    The inner loop is over rows, so that the compiler can vectorize it.
    """
    min_ratios[:], max_ratios[:] = np.inf, 0.0
    for output in range(inverse.size):
        for row in range(columns.shape[1]):
            ratio = columns[output, row] * inverse[output]
            min_ratios[row] = min(min_ratios[row], ratio)
            max_ratios[row] = max(max_ratios[row], ratio)


@njit(cache=True, nogil=True)
def first_beyond(weights, limits):  # type: ignore[no-untyped-def]
    """Return a pair of rows whose `largest_ratio` exceeds its limit, or (-1, -1).

    Weights must be positive. Neighbouring rows are compared first: they are the nearest points of
    most spaces, where there is the least room for rounding. The screening rounds an inverse and a
    product once each and allows for both; pairs that it cannot decide are compared by the ratios
    themselves.
    """
    count = weights.shape[0]
    for a in range(1, count):
        if largest_ratio(weights[a], weights[a - 1]) > limits[a, a - 1]:
            return a, a - 1
    floats = weights.astype(np.float64)
    inverses = 1.0 / floats
    for start in range(0, count, ROWS_TOGETHER):
        stop = min(start + ROWS_TOGETHER, count)
        columns = floats[start:stop].T.copy()
        min_ratios = np.empty(stop - start)
        max_ratios = np.empty(stop - start)
        for b in range(stop):
            _extreme_ratios(columns, inverses[b], min_ratios, max_ratios)
            for a in range(max(start, b + 2), stop):
                limit = limits[a, b]
                within = (
                    max_ratios[a - start] * (1.0 + 4.0 * ULP) <= limit
                    and min_ratios[a - start] * limit >= 1.0 + 8.0 * ULP
                )
                if not within and largest_ratio(weights[a], weights[b]) > limit:
                    return a, b
    return -1, -1
