# mypy: disable-error-code="untyped-decorator"
"""Compiled: bounds on (1/m) E[(G_1 + .. + G_m)_+], each G with the law of any one of several types, whichever (imported lazily).

The laws of all types stand one after another in `mass`, `value` and `doubt`, those of type x from starts[x] to starts[x+1]. As in
`blanket._kernels`, a law may have less mass than 1, the rest sits at G = 0; each mass may be wrong by a few units of itself, each value by
a few units of its doubt. M(z) = E e^(zG).
"""

from __future__ import annotations

import math

import numpy as np
from numba import njit

from metricshuffle.accounting.blanket._contour_kernels import NEGLIGIBLE, _negligible_ahead
from metricshuffle.accounting.blanket._kernels import LOG_LEAST
from metricshuffle.numerics.rounding import ROUNDOFF
from metricshuffle.numerics.types import Floats, Integers64

SMOOTHED = 0.05  # the Gaussian has the deviation 0.05/s: it adds about (0.05)^2/2 of the result
BEYOND = 40.0  # it has removed all but e^-40 of the transform where the nodes end
ALIASED = 26.0  # the period makes what the trapezoid rule adds about e^-26 of the result
STEEPEST = 600.0
FEW = 3  # types that decide where the line of integration goes
MOST_NODES = 20_000


@njit(cache=True, error_model="numpy")
def values(starts: Integers64, mass: Floats, excess: Floats, rounding: Floats, b: Floats, growth: float) -> tuple[Floats, Floats, Floats]:
    """G = (excess - growth b)/mass of every atom, the scale of its rounding error, and E G^2 of every type (a guide only)."""
    value, doubt, square = np.empty(mass.size), np.empty(mass.size), np.zeros(starts.size - 1)
    for x in range(starts.size - 1):
        for i in range(starts[x], starts[x + 1]):
            value[i] = (excess[i] - growth * b[i]) / mass[i]
            doubt[i] = (rounding[i] + growth * b[i]) / mass[i]
            square[x] += mass[i] * value[i] * value[i]
    return value, doubt, square


@njit(cache=True, error_model="numpy")
def _log_moment(mass: Floats, value: Floats, s: float) -> tuple[float, float]:
    """log M(s) and its slope, about."""
    rise, slope = 0.0, 0.0
    for i in range(mass.size):
        grown = math.expm1(s * value[i])
        rise += mass[i] * grown
        slope += mass[i] * (grown + 1.0) * value[i]
    return math.log1p(rise), slope / (1.0 + rise)


@njit(cache=True, error_model="numpy")
def saddle(users: float, starts: Integers64, mass: Floats, value: Floats, types: Integers64) -> float:
    """Where m max log M_x(s) - 2 log s over these types is smallest, about; any s > 0 is valid."""
    largest = 0.0
    for x in types:
        for i in range(starts[x], starts[x + 1]):
            largest = max(largest, abs(value[i]))
    low, high = math.log(1e-14 / largest), math.log(STEEPEST / largest)
    while high - low > 0.02:  # convex in s, and falling at first
        s = math.exp(0.5 * (low + high))
        top, steep = -math.inf, 0.0
        for x in types:
            log_moment, slope = _log_moment(mass[starts[x] : starts[x + 1]], value[starts[x] : starts[x + 1]], s)
            if log_moment > top:
                top, steep = log_moment, slope
        if users * steep - 2.0 / s > 0.0:
            high = math.log(s)
        else:
            low = math.log(s)
    return math.exp(0.5 * (low + high))


@njit(cache=True, error_model="numpy")
def tops(starts: Integers64, mass: Floats, value: Floats, doubt: Floats, s: float) -> tuple[Floats, Floats]:
    """log M_x(s) of every type, rounded up, and B1/Z, from which its error follows: (K+40) units of s B1/Z, K the number of atoms.

    B1 = sum of mass doubt max(1, e^(s G)), Z = M_x(s): (K+40) units cover the masses, the values, expm1 and the sum.
    """
    found, wrong = np.empty(starts.size - 1), np.empty(starts.size - 1)
    for x in range(starts.size - 1):
        rise, error = 0.0, 0.0
        for i in range(starts[x], starts[x + 1]):
            grown = math.expm1(s * value[i])
            rise += mass[i] * grown
            error += mass[i] * doubt[i] * max(1.0, grown + 1.0)
        wrong[x] = error / (1.0 + rise)
        unsure = (starts[x + 1] - starts[x] + 40.0) * ROUNDOFF * s * wrong[x]
        found[x] = math.log1p(rise) + unsure * (1.0 + unsure) if unsure < 0.1 else math.inf
        if not found[x] > -math.inf:
            found[x] = math.inf
    return found, wrong


@njit(cache=True, error_model="numpy")
def _line(
    users: Floats, mass: Floats, value: Floats, top: float, wrong: float, s: float, smooth2: float, step: float, last: float, sums: Floats
) -> bool:
    """Add to sums[k] the trapezoid sum of |M(z)/M(s)|^users[k] e^(-smooth2 y^2/2)/|z|^2, z = s + iy, rounded up; False if there are too many
    nodes. `users` falls; stretches where even the last of them makes the term negligible are left out.
    """
    count = mass.size
    grown, tilted = np.empty(count), np.empty(count)
    rise, mean, variance = 0.0, 0.0, 0.0
    for i in range(count):
        grown[i] = mass[i] * math.expm1(s * value[i])
        tilted[i] = mass[i] * math.exp(s * value[i])
        rise += grown[i]
        mean += tilted[i] * value[i]
    total = 1.0 + rise
    mean /= total
    rest = 1.0
    for i in range(count):
        variance += tilted[i] / total * (value[i] - mean) ** 2
        rest -= mass[i]
    variance += max(rest, 0.0) / total * mean * mean
    fewest, unsure = users[users.size - 1], (count + 40.0) * ROUNDOFF * wrong
    j, nodes = 0.0, 0
    while j <= last:
        y = step * j
        re, im, re_slope, im_slope = 0.0, 0.0, 0.0, 0.0
        for i in range(count):
            angle = 0.5 * y * value[i]
            sine, cosine = math.sin(angle), math.cos(angle)
            half = 2.0 * tilted[i] * sine
            re += grown[i] - half * sine
            im += half * cosine
            re_slope -= value[i] * half * cosine
            im_slope += value[i] * (tilted[i] - half * sine)
        square = re * (2.0 + re) + im * im  # |M|^2 - 1; near M = 0 that would cancel
        log_modulus = 0.5 * math.log1p(square) if square > -0.5 else math.log(math.hypot(1.0 + re, im))
        away, smoothed = s * s + y * y, 0.5 * smooth2 * y * y
        # log |M| is off by at most this much; near a zero of M more than its logarithm can tell, so it is not believed there
        off = unsure * math.sqrt(away) * math.exp(min(max(top - log_modulus, 0.0), 30.0))
        fall = min(max(log_modulus - top, -30.0) + off * (1.0 + off), 0.0) if off < 0.1 else 0.0
        nodes += 1
        if nodes > MOST_NODES:
            return False
        if fewest * fall - smoothed > -NEGLIGIBLE or j == 0.0:
            weight = (1.0 if j == 0.0 else 2.0) * math.exp(-smoothed) / away * (1.0 + 64.0 * ROUNDOFF)
            for k in range(users.size):
                sums[k] += weight * math.exp(users[k] * fall * (1.0 - 8.0 * ROUNDOFF))
            j += 1.0
        else:
            slope = 2.0 * ((1.0 + re) * re_slope + im * im_slope) / (total * total)
            j += max(1.0, math.floor(0.999 * _negligible_ahead(fewest, fewest * fall, smoothed, slope, variance) / step))
    return True


@njit(cache=True, error_model="numpy")
def hoelder(users: Floats, starts: Integers64, mass: Floats, value: Floats, doubt: Floats, square: Floats) -> Floats:
    """For each m in `users` (falling): a bound on (1/m) E[(G_1 + .. + G_m)_+] whatever the types of the m; inf where none is certified.

    With z_k = s + ik D and h = SMOOTHED/s it is (D/2 pi m) max over x of sum over k of |M_x(z_k)|^m e^(h^2 Re(z_k^2)/2)/|z_k|^2; see
    `bound.delta_upper`. All terms are positive, so each is rounded up by its own error; nodes that are left out, negligible or
    beyond the last, are bounded as in `_contour_kernels.contour`. Types are visited in the order of M_x(s), which bounds their
    sum, until the rest cannot be worse.
    """
    types = starts.size - 1
    found = np.full(users.size, math.inf)
    by_spread = np.argsort(-square)
    leading = by_spread[: min(FEW, types)]
    s = saddle(users[0], starts, mass, value, leading)
    top, wrong = tops(starts, mass, value, doubt, s)
    first = np.argmax(top)
    if not np.any(leading == first):  # another type is worse here: it has a say too
        s = saddle(users[0], starts, mass, value, np.append(leading, first))
        top, wrong = tops(starts, mass, value, doubt, s)
        first = np.argmax(top)
    height = users[0] * top[first]
    if not (s > 0.0 and -1e300 < height < 690.0):
        return found
    step = 2.0 * math.pi * s / (ALIASED + max(4.0, -height))
    smooth2 = (SMOOTHED / s) ** 2
    last = math.ceil(math.sqrt(2.0 * BEYOND / smooth2) / step)
    every = 1.0 / (s * s) + math.pi / (s * step)  # the sum of all 1/|z|^2
    outside = 2.0 * math.exp(-0.5 * smooth2 * (step * last) ** 2) / (step * step * last) + math.exp(-NEGLIGIBLE + 0.1) * every
    best, sums = np.full(users.size, -math.inf), np.empty(users.size)
    for x in np.argsort(-top):
        open_question = False
        for k in range(users.size):
            if not users[k] * top[x] + math.log(every + outside) <= best[k]:
                open_question = True
        if not open_question:
            break
        sums[:] = 0.0
        here = slice(starts[x], starts[x + 1])
        if not _line(users, mass[here], value[here], top[x], wrong[x], s, smooth2, step, last, sums):
            return found
        for k in range(users.size):
            best[k] = max(best[k], users[k] * top[x] + math.log(sums[k] + outside))
    for k in range(users.size):
        log_bound = best[k] + 0.5 * SMOOTHED**2 + math.log(step / (2.0 * math.pi * users[k]))
        log_bound += ROUNDOFF * (MOST_NODES + 64.0 + 4.0 * abs(log_bound) + 8.0 * abs(users[k] * top[first]))
        found[k] = math.exp(max(log_bound, LOG_LEAST)) * (1.0 + 16.0 * ROUNDOFF) if log_bound < 690.0 else math.inf
    return found
