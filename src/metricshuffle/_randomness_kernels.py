"""Compiled integer arithmetic on random words (imported on first use; numba is slow to import).

Every value is uint64. Numba turns a mix of int64 and uint64 into floats, so no signed number may
meet a word here.
"""

from __future__ import annotations

import numpy as np
from numba import njit

LOW = np.uint64(0xFFFFFFFF)
HALF = np.uint64(32)
ZERO = np.uint64(0)
ONE = np.uint64(1)


@njit(cache=True, nogil=True)
def multiply_high(left, right):  # type: ignore[no-untyped-def]
    """floor(left * right / 2^64) for two uint64."""
    left_low = left & LOW
    left_high = left >> HALF
    right_low = right & LOW
    right_high = right >> HALF
    middle = left_high * right_low + (
        (left_low * right_low) >> HALF
    )  # at most (2^32-1)^2 + 2^32-2 < 2^64
    carry = left_low * right_high + (middle & LOW)  # the same bound
    return left_high * right_high + (middle >> HALF) + (carry >> HALF)


@njit(cache=True, nogil=True)
def rejected(word, bound):  # type: ignore[no-untyped-def]
    """Return whether `word` must be rejected so that multiply_high(word, bound) is exactly uniform.

    Proof: the words with high part h are those with word * bound in [h 2^64, (h+1) 2^64). Rejecting
    a low part below 2^64 mod bound keeps multiples of bound in [h 2^64 + (2^64 mod bound), (h+1)
    2^64), an interval whose length is divisible by bound: exactly floor(2^64 / bound) words for
    every h. (Lemire 2019)
    """
    low = word * bound
    return low < bound and low < (ZERO - bound) % bound


@njit(cache=True, nogil=True)
def shuffle(array, remaining, words):  # type: ignore[no-untyped-def]
    """Run Fisher-Yates steps on array[:remaining], one word per try; return how many are unplaced.

    A rejected word is dropped and nothing else happens, so running out of words between two tries
    does not change the distribution.
    """
    for word in words:
        if remaining <= 1:
            break
        bound = np.uint64(remaining)
        if rejected(word, bound):
            continue
        chosen = np.int64(multiply_high(word, bound))
        remaining -= 1
        array[remaining], array[chosen] = array[chosen], array[remaining]
    return remaining
