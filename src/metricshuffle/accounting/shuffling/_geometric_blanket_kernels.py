"""Compiled loop of geometric_blanket.py: which blanket levels the reports of any pair of inputs at some shift meet."""

from __future__ import annotations

import numpy as np
from numba import njit

from metricshuffle.numerics.types import Floats


@njit(cache=True)  # type: ignore[untyped-decorator]
def largest_tails(
    powers: Floats, inner: float, outer: float, spread: Floats, share: Floats, smallest: int, largest: int, coarse: int, levels: int
) -> Floats:
    """tails[0, k] and tails[1, k]: the largest shares, over all pairs (a, b = a + shift) with a no nearer to the middle than b, of
    the first and of the second direction at reports whose level is k or more. (Other pairs are mirror images of these.)

    powers[m] = p^m; a report y of x has probability powers[|x-y|] times inner, or outer at the two ends. For s = |y-b| - |y-a|,
    -largest <= s <= largest: spread[s + largest] is the log of the extra ratio in units of the rate, share[s + largest] the
    part of K_a that counts as the first direction (and share[largest - s] of K_b as the second).
    """
    span = powers.size - 1
    tails = np.zeros((2, levels))
    first, second = np.empty(levels), np.empty(levels)
    for shift in range(smallest, largest + 1):
        for a in range((span - shift) // 2 + 1):
            b = a + shift
            first[:] = 0.0
            second[:] = 0.0
            for y in range(span + 1):
                height = outer if y in (0, span) else inner
                from_a, from_b = abs(y - a), abs(y - b)
                s = from_b - from_a
                exact = (max(y, span - y) - from_a + spread[s + largest]) / coarse
                level = min(levels - 1, max(0, int(np.ceil(exact - 1e-9))))
                first[level] += height * powers[from_a] * share[s + largest]
                second[level] += height * powers[from_b] * share[largest - s]
            up, down = 0.0, 0.0
            for level in range(levels - 1, -1, -1):
                up += first[level]
                down += second[level]
                tails[0, level] = max(tails[0, level], up)
                tails[1, level] = max(tails[1, level], down)
    return tails
