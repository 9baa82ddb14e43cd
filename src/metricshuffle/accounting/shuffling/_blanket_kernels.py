# mypy: disable-error-code="untyped-decorator"
"""Compiled evaluators of (1/n) E[(G_1 + .. + G_n)_+] (imported lazily: numba costs 0.3 s).

A law of G is three arrays: `mass` (its total at most 1, the rest sits at G = 0), `value` and `doubt`. Floats are allowed to
be wrong by a few units in the last place: each mass by that fraction of itself, each value by that fraction of its doubt.
"""

from __future__ import annotations

import math

import numpy as np
from numba import njit

from metricshuffle.numerics.rounding import ROUNDOFF
from metricshuffle.numerics.types import Floats

LOG_LEAST = -690.0  # what is smaller is rounded up to e^-690, or down to 0


@njit(cache=True, error_model="numpy")
def local_delta(mass: Floats, value: Floats, doubt: Floats) -> float:
    """sum w G_+ = sum (a - e b)_+, rounded up."""
    total = 0.0
    for i in range(value.size):
        total += mass[i] * max(0.0, value[i] + 16.0 * ROUNDOFF * doubt[i])
    return total * (1.0 + (value.size + 16) * ROUNDOFF)


@njit(cache=True, error_model="numpy")
def blanket_values(mass: Floats, excess: Floats, rounding: Floats, b: Floats, growth: float) -> tuple[Floats, Floats, float]:
    """G = (a - e b)/w = (excess - (e-1) b)/w, the scale of its rounding errors, and `local_delta`; growth = e - 1."""
    value, doubt = np.empty(b.size), np.empty(b.size)
    for i in range(b.size):
        value[i] = (excess[i] - growth * b[i]) / mass[i]
        doubt[i] = (rounding[i] + growth * b[i]) / mass[i]
    return value, doubt, local_delta(mass, value, doubt)


@njit(cache=True, error_model="numpy")
def enumeration(
    users: float, mass: Floats, value: Floats, doubt: Floats,
    log_pivot: float, pivot: float, pivot_doubt: float, odds: float, loose: float, max_draws: int,
) -> tuple[float, float]:  # fmt: skip
    """(lower, upper) of (1/n) E[S_+; N <= most] by visiting every vector of counts; N draws are not the pivot's.

    The pivot is one atom (value, doubt, log of its mass, odds = (1 - its mass)/its mass); the arrays are the others, and
    the mass of the last of them may be wrong by the fraction `loose` more than the others'.
    Every probability is e^(sum of logs); each summand is enlarged or reduced by its own rounding error, so the relative
    accuracy survives however small the result is.
    """
    d = value.size
    falling, factorial = np.zeros(max_draws + 1), np.zeros(max_draws + 1)  # log n!/(n-i)! by a compensated sum, log i!
    carried = 0.0
    for i in range(1, max_draws + 1):
        term = math.log(users - (i - 1)) - carried
        falling[i] = falling[i - 1] + term
        carried = (falling[i] - falling[i - 1]) - term
        factorial[i] = math.lgamma(i + 1.0)
    logs = np.log(mass)
    counts = np.zeros(d, dtype=np.int64)
    lower, upper, states = 0.0, 0.0, 0
    done = False
    while not done:
        n0, logp, size, s0, e0 = 0, 0.0, 0.0, 0.0, 0.0
        for i in range(d - 1):
            c = counts[i]
            n0 += c
            logp += c * logs[i] - factorial[c]
            size += abs(c * logs[i]) + factorial[c]
            s0 += c * value[i]
            e0 += c * doubt[i]
        for c in range(max_draws - n0 + 1):
            n = n0 + c
            others = users - n
            size_here = size + abs(c * logs[d - 1]) + factorial[c] + 2.0 * falling[n] + others * abs(log_pivot)
            logp_here = logp + c * logs[d - 1] - factorial[c] + falling[n] + others * log_pivot
            s = s0 + c * value[d - 1] + others * pivot
            error = 16.0 * ROUNDOFF * (d + 4) * (e0 + c * doubt[d - 1] + others * pivot_doubt)
            if not s + error <= 0.0:  # what overflowed is not a number, and must not count as 0
                relative = 4.0 * ROUNDOFF * (d + 4) * (size_here + n + others * odds + 16.0) + c * loose
                p = math.exp(max(logp_here, LOG_LEAST))  # an s of 1e200 must not be lost to a probability that underflows
                upper += p * (1.0 + relative * (1.0 + relative) if relative < 1.0 else math.exp(relative)) * (s + error)
                if s > error and logp_here > LOG_LEAST:
                    lower += p * (1.0 - relative) * (s - error)
            states += 1
        done = True
        for i in range(d - 1):
            if n0 < max_draws:
                counts[i] += 1
                done = False
                break
            n0 -= counts[i]
            counts[i] = 0
    slack = ROUNDOFF * (states + 16)
    return max(0.0, lower * (1.0 - slack)) / users, upper * (1.0 + slack) / users + 1e-300
