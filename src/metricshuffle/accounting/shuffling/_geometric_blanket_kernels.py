"""Compiled loop of `geometric_blanket`: the tails of the blanket ratios of all pairs at some shift.

Notation of `geometric_blanket.displacement_laws` on one axis: K_x is the law of the report of cell
x, w(y) = min_x K_x(y), P = e^(rate largest), (K_a, K_b) = l0 (P, 1) + l1 (1, P), and q = (K_a +
K_b)/w P/(P+1). The level of a report is log q in units of `coarse` times the rate, rounded up.
(P+1) l0 and (P+1) l1 are laws; they are called the first and the second direction.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from metricshuffle.numerics.types import Floats


@njit(cache=True)  # type: ignore[untyped-decorator]
def largest_tails(
    powers: Floats,
    inner: float,
    outer: float,
    spread: Floats,
    share: Floats,
    smallest: int,
    largest: int,
    coarse: int,
    levels: int,
) -> Floats:
    """Return the largest probabilities, over all pairs, of a level of k or more in both directions.

    tails[0, k] and tails[1, k] are the maxima for the first and the second direction over all pairs
    (a, b = a + shift) with smallest <= shift <= largest and a no nearer to the middle than b.
    (Other pairs are mirror images of these.)

    powers[m] = p^m, where p = e^-rate. A report y of x has the probability powers[|x-y|] times
    inner, or times outer at the two ends of the axis. For s = |y-b| - |y-a|, -largest <= s <=
    largest: spread[s + largest] is log((K_a + K_b)/K_a P/(P+1)) in units of the rate; share[s +
    largest] is the fraction of K_a(y) that counts as the first direction, and share[largest - s]
    the fraction of K_b(y) that counts as the second.
    """
    span = powers.size - 1
    tails = np.zeros((2, levels))
    first = np.empty(levels)
    second = np.empty(levels)
    for shift in range(smallest, largest + 1):
        for a in range((span - shift) // 2 + 1):
            b = a + shift
            first[:] = 0.0
            second[:] = 0.0
            for y in range(span + 1):
                height = outer if y in (0, span) else inner
                from_a = abs(y - a)
                from_b = abs(y - b)
                s = from_b - from_a
                exact = (max(y, span - y) - from_a + spread[s + largest]) / coarse
                level = min(levels - 1, max(0, int(np.ceil(exact - 1e-9))))
                first[level] += height * powers[from_a] * share[s + largest]
                second[level] += height * powers[from_b] * share[largest - s]
            up = 0.0
            down = 0.0
            for level in range(levels - 1, -1, -1):
                up += first[level]
                down += second[level]
                tails[0, level] = max(tails[0, level], up)
                tails[1, level] = max(tails[1, level], down)
    return tails
