"""Comparison of many pairs of a channel in convex order, compiled; imported only where used (numba costs 0.3 s)."""

# numba's decorators carry no types.
# mypy: disable-error-code="untyped-decorator, no-any-return"
from __future__ import annotations

import numpy as np
from numba import njit

from metricshuffle.numerics.rounding import ROUNDOFF
from metricshuffle.numerics.types import Floats, Integers64, Mask

ROUNDING_MARGIN = 1e-12


@njit(cache=True)
def one_sided(mass: Floats, value: Floats, doubt: Floats, at: Floats) -> tuple[Floats, Floats]:
    """E(G-t)_+ for G sorted downwards and t = at sorted downwards, and a bound on the rounding error of each."""
    means, errors = np.empty(at.size), np.empty(at.size)
    count, first, wide, place = 0.0, 0.0, 0.0, 0
    unit = 4.0 * ROUNDOFF * (value.size + 16)
    for j in range(at.size):
        while place < value.size and value[place] > at[j]:
            count += mass[place]
            first += mass[place] * value[place]
            wide += mass[place] * (doubt[place] + abs(value[place]))
            place += 1
        means[j] = first - at[j] * count
        errors[j] = unit * (wide + abs(at[j]) * count)
    return means, errors


@njit(cache=True)
def spread(a: Floats, b: Floats, w: Floats, growth: float) -> tuple[Floats, Floats, Floats]:
    """(mass, value, doubt) of G = (a - growth b)/w, values falling."""
    value, doubt = np.empty(w.size), np.empty(w.size)
    for y in range(w.size):
        value[y] = (a[y] - growth * b[y]) / w[y]
        doubt[y] = (a[y] + growth * b[y]) / w[y]
    order = np.argsort(-value)
    return w[order], value[order], doubt[order]


@njit(cache=True)
def undominated(rows: Floats, w: Floats, pairs: Integers64, champion: Integers64, growth: float) -> Mask:
    """Which pairs are not certainly below the champion in convex order; see `dominance_scan.PairScan.survivors`."""
    mass, value, doubt = spread(rows[champion[0]], rows[champion[1]], w, growth)
    calls, slack = one_sided(mass, value, doubt, value)
    puts, put_errors = one_sided(mass[::-1], -value[::-1], doubt[::-1], -value[::-1])
    mean, size = 1.0 - growth, w.size
    left = np.ones(pairs.shape[0], dtype=np.bool_)
    for i in range(pairs.shape[0]):
        my_mass, mine, my_doubt = spread(rows[pairs[i, 0]], rows[pairs[i, 1]], w, growth)
        # The same atoms, the reports renamed: the bound of one allows for the rounding errors of both.
        if np.array_equal(mine, value) and np.array_equal(my_mass, mass) and np.array_equal(my_doubt, doubt):
            left[i] = False
            continue
        high = value[0] - mine[0] - 64.0 * ROUNDOFF * (doubt[0] + my_doubt[0])
        low = mine[size - 1] - value[size - 1] - 64.0 * ROUNDOFF * (doubt[size - 1] + my_doubt[size - 1])
        if not (high >= 0.0 and low >= 0.0):
            continue
        my_calls, my_slack = one_sided(my_mass, mine, my_doubt, value)
        my_puts, my_other = one_sided(my_mass[::-1], -mine[::-1], my_doubt[::-1], -value[::-1])
        below = True
        for j in range(size):
            k = size - 1 - j  # puts run from the smallest value up
            if value[j] == value[0] or value[j] == value[size - 1]:
                continue  # settled by the extreme values
            if value[j] > mean:
                fits = my_calls[j] * (1.0 + ROUNDING_MARGIN) + my_slack[j] + slack[j] <= calls[j]
            else:
                fits = my_puts[k] * (1.0 + ROUNDING_MARGIN) + my_other[k] + put_errors[k] <= puts[k]
            if not fits:
                below = False
                break
        left[i] = not below
    return left
