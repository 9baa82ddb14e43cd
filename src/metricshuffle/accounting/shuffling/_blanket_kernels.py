# mypy: disable-error-code="untyped-decorator"
"""Compiled evaluators of (1/n) E[(G_1 + .. + G_n)_+], imported lazily (numba costs 0.3 s).

Used by `blanket_law` and `blanket_evaluation`. G = (a - e b)/w, where a and b are the probabilities
of a report under the two inputs, w is the blanket, and e denotes e^epsilon (see `blanket_law`).
G_1, .., G_n are independent copies of G. A law of G is three arrays: `mass` (total at most 1; the
rest is at G = 0), `value`, and `doubt`, the scale of the rounding error of `value`. The relative
error of a mass is a few units in the last place; the error of a value is a few such units times its
doubt.
"""

from __future__ import annotations

import math

import numpy as np
from numba import njit

from metricshuffle.numerics.rounding import ROUNDOFF
from metricshuffle.numerics.types import Floats

LOG_LEAST = -690.0  # smaller numbers are rounded up to e^-690, or down to 0


@njit(cache=True, error_model="numpy")
def local_delta(mass: Floats, value: Floats, doubt: Floats) -> float:
    """Return sum of w G_+ = sum of (a - e b)_+ over all atoms, rounded up."""
    total = 0.0
    for i in range(value.size):
        total += mass[i] * max(0.0, value[i] + 16.0 * ROUNDOFF * doubt[i])
    return total * (1.0 + (value.size + 16) * ROUNDOFF)


@njit(cache=True, error_model="numpy")
def blanket_values(
    mass: Floats, excess: Floats, rounding: Floats, b: Floats, growth: float
) -> tuple[Floats, Floats, float]:
    """Return G = (a - e b)/w, the scale of its rounding errors, and `local_delta`.

    G is computed as (excess - growth b)/w, where excess = a - b, growth = e - 1 and w = mass;
    `rounding` is the scale of the rounding error of excess.
    """
    value = np.empty(b.size)
    doubt = np.empty(b.size)
    for i in range(b.size):
        value[i] = (excess[i] - growth * b[i]) / mass[i]
        doubt[i] = (rounding[i] + growth * b[i]) / mass[i]
    return value, doubt, local_delta(mass, value, doubt)


@njit(cache=True, error_model="numpy")
def enumerate_counts(
    users: float,
    mass: Floats,
    value: Floats,
    doubt: Floats,
    log_pivot: float,
    pivot: float,
    pivot_doubt: float,
    odds: float,
    loose: float,
    max_draws: int,
) -> tuple[float, float]:
    """Bracket (1/n) E[S_+; N <= max_draws] by visiting every vector of counts with N <= max_draws.

    S is the sum of n draws of G. One atom, the pivot, is singled out (its value, its doubt, the log
    of its mass, and odds = (1 - its mass)/its mass); N is the number of draws that are not the
    pivot. The arrays are the other atoms. The mass of the last of these may be wrong by the
    fraction `loose` more than the masses of the others. Every probability is e^(sum of logs); each
    summand is enlarged or reduced by its own rounding error, so the relative accuracy is preserved
    however small the result is.
    """
    d = value.size
    log_falling = np.zeros(max_draws + 1)  # log n!/(n-i)!, by a compensated sum
    log_factorial = np.zeros(max_draws + 1)  # log i!
    carried = 0.0
    for i in range(1, max_draws + 1):
        term = math.log(users - (i - 1)) - carried
        log_falling[i] = log_falling[i - 1] + term
        carried = (log_falling[i] - log_falling[i - 1]) - term
        log_factorial[i] = math.lgamma(i + 1.0)
    logs = np.log(mass)
    counts = np.zeros(d, dtype=np.int64)
    lower = 0.0
    upper = 0.0
    states = 0
    done = False
    while not done:
        n0 = 0
        logp = 0.0
        size = 0.0
        s0 = 0.0
        e0 = 0.0
        for i in range(d - 1):
            c = counts[i]
            n0 += c
            logp += c * logs[i] - log_factorial[c]
            size += abs(c * logs[i]) + log_factorial[c]
            s0 += c * value[i]
            e0 += c * doubt[i]
        for c in range(max_draws - n0 + 1):
            n = n0 + c
            others = users - n
            size_here = (
                size
                + abs(c * logs[d - 1])
                + log_factorial[c]
                + 2.0 * log_falling[n]
                + others * abs(log_pivot)
            )
            logp_here = (
                logp + c * logs[d - 1] - log_factorial[c] + log_falling[n] + others * log_pivot
            )
            s = s0 + c * value[d - 1] + others * pivot
            error = 16.0 * ROUNDOFF * (d + 4) * (e0 + c * doubt[d - 1] + others * pivot_doubt)
            if not s + error <= 0.0:  # a NaN from an overflow must not count as 0
                relative = (
                    4.0 * ROUNDOFF * (d + 4) * (size_here + n + others * odds + 16.0) + c * loose
                )
                # An s of 1e200 must not be lost to a probability that underflows.
                p = math.exp(max(logp_here, LOG_LEAST))
                upper += (
                    p
                    * (1.0 + relative * (1.0 + relative) if relative < 1.0 else math.exp(relative))
                    * (s + error)
                )
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
