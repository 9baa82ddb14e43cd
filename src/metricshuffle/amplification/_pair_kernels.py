"""Compiled comparison of many pairs in convex order; imported on use (numba costs 0.3 s)."""

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
    """Return E(G-t)_+ for every t, and a bound on the rounding error of each.

    G is a random variable with the given masses and values, and (y)_+ = max(y, 0). The values of G
    and t = `at` must be in descending order.
    """
    means = np.empty(at.size)
    errors = np.empty(at.size)
    count = 0.0
    first = 0.0
    wide = 0.0
    place = 0
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
    """Return (mass, value, doubt) of G = (a - growth b)/w, in descending order of value.

    a and b are the two laws of a pair; w is the blanket, and its masses are those of G; `doubt` is
    the scale of the rounding error of each value.
    """
    value = np.empty(w.size)
    doubt = np.empty(w.size)
    for y in range(w.size):
        value[y] = (a[y] - growth * b[y]) / w[y]
        doubt[y] = (a[y] + growth * b[y]) / w[y]
    order = np.argsort(-value)
    return w[order], value[order], doubt[order]


@njit(cache=True)
def undominated(
    rows: Floats, w: Floats, pairs: Integers64, champion: Integers64, growth: float
) -> Mask:
    """Return which pairs are not certainly below the champion in convex order.

    See `dominance_scan.PairScan.survivors`.
    """
    mass, value, doubt = spread(rows[champion[0]], rows[champion[1]], w, growth)
    calls, slack = one_sided(mass, value, doubt, value)
    puts, put_errors = one_sided(mass[::-1], -value[::-1], doubt[::-1], -value[::-1])
    mean = 1.0 - growth
    size = w.size
    left = np.ones(pairs.shape[0], dtype=np.bool_)
    for i in range(pairs.shape[0]):
        my_mass, mine, my_doubt = spread(rows[pairs[i, 0]], rows[pairs[i, 1]], w, growth)
        # The champion's atoms, renamed: the bound of either pair allows for the errors of both.
        if (
            np.array_equal(mine, value)
            and np.array_equal(my_mass, mass)
            and np.array_equal(my_doubt, doubt)
        ):
            left[i] = False
            continue
        high = value[0] - mine[0] - 64.0 * ROUNDOFF * (doubt[0] + my_doubt[0])
        low = (
            mine[size - 1]
            - value[size - 1]
            - 64.0 * ROUNDOFF * (doubt[size - 1] + my_doubt[size - 1])
        )
        if not (high >= 0.0 and low >= 0.0):
            continue
        my_calls, my_slack = one_sided(my_mass, mine, my_doubt, value)
        my_puts, my_other = one_sided(my_mass[::-1], -mine[::-1], my_doubt[::-1], -value[::-1])
        below = True
        for j in range(size):
            k = size - 1 - j  # puts are in ascending order of value
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
