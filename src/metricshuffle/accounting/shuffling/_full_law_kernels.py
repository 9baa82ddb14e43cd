# mypy: disable-error-code="untyped-decorator"
"""Compiled: bounds on (1/m) E[(G_1 + .. + G_m)_+], each G with the law of any one of several types, whichever (imported lazily).

The laws of all types stand one after another in `mass`, `value` and `doubt`, those of type x from starts[x] to starts[x+1]. As in
`shuffling._blanket_kernels`, a law may have less mass than 1, the rest sits at G = 0; each mass may be wrong by a few units of itself,
each value by
a few units of its doubt. M(z) = E e^(zG).
"""

from __future__ import annotations

import math

import numpy as np
from numba import njit

from metricshuffle.accounting.shuffling._blanket_kernels import LOG_LEAST
from metricshuffle.accounting.shuffling._contour_kernels import LOG_NEGLIGIBLE, _negligible_ahead
from metricshuffle.numerics.rounding import ROUNDOFF
from metricshuffle.numerics.types import Floats, Integers64

SMOOTHING_DEVIATION = 0.05  # the Gaussian has the deviation 0.05/s: it adds about (0.05)^2/2 of the result
LOG_TRUNCATION = 40.0  # it has removed all but e^-40 of the transform where the nodes end
LOG_ALIASING = 26.0  # the period makes what the trapezoid rule adds about e^-26 of the result
MAX_LOG_TILT = 600.0
GOLDEN_RATIO = 0.6180339887498949
DECISIVE_TYPES = 3  # types that decide where the line of integration goes
MAX_NODES = 20_000
ROUGH_NODES = 400  # for a rough answer


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
def _log_moments(mass: Floats, value: Floats, s: float) -> tuple[float, float, float]:
    """log M(s) and its first two derivatives, about."""
    rise, slope, bend = 0.0, 0.0, 0.0
    for i in range(mass.size):
        grown = math.expm1(s * value[i])
        rise += mass[i] * grown
        slope += mass[i] * (grown + 1.0) * value[i]
        bend += mass[i] * (grown + 1.0) * value[i] * value[i]
    slope /= 1.0 + rise
    return math.log1p(rise), slope, max(0.0, bend / (1.0 + rise) - slope * slope)


@njit(cache=True, error_model="numpy")
def _aim(users: float, starts: Integers64, mass: Floats, value: Floats, types: Integers64, s: float) -> tuple[float, float]:
    """About the logarithm of the bound if one of these types is the worst, and a slope of it over log s.

    If |M(s+iy)/M(s)|^m were normal, e^(-v y^2/2), the integral of it over |z|^2 were (pi/s) e^(x^2) erfc(x), x = s sqrt(v/2).
    """
    highest, steepness = -math.inf, 0.0
    for x in types:
        here = slice(starts[x], starts[x + 1])
        log_moment, slope, bend = _log_moments(mass[here], value[here], s)
        wide = s * math.sqrt(0.5 * users * bend)
        tail = wide * wide + math.log(math.erfc(wide)) if wide < 5.0 else math.log((1.0 - 0.5 / (wide * wide)) / (1.7724538509 * wide))
        height = users * log_moment - math.log(s) + tail
        if height > highest:
            highest, steepness = height, users * slope * s - 2.0 + 1.0 / (1.0 + 2.0 * wide * wide / 3.0)
    return highest, steepness


@njit(cache=True, error_model="numpy")
def saddle(users: float, starts: Integers64, mass: Floats, value: Floats, types: Integers64) -> float:
    """Where the bound is smallest if one of these types is the worst, about; any s > 0 is valid."""
    largest = 0.0
    for x in types:
        for i in range(starts[x], starts[x + 1]):
            largest = max(largest, abs(value[i]))
    low, high = math.log(1e-14 / largest), math.log(MAX_LOG_TILT / largest)
    while high - low > 0.3:  # convex in s, and falling at first
        middle = 0.5 * (low + high)
        if _aim(users, starts, mass, value, types, math.exp(middle))[1] > 0.0:
            high = middle
        else:
            low = middle
    low, high = low - 0.1, min(high + 0.1, math.log(MAX_LOG_TILT / largest))
    left, right = high - GOLDEN_RATIO * (high - low), low + GOLDEN_RATIO * (high - low)
    at_left = _aim(users, starts, mass, value, types, math.exp(left))[0]
    at_right = _aim(users, starts, mass, value, types, math.exp(right))[0]
    for _ in range(10):
        if at_left < at_right:
            high, right, at_right = right, left, at_left
            left = high - GOLDEN_RATIO * (high - low)
            at_left = _aim(users, starts, mass, value, types, math.exp(left))[0]
        else:
            low, left, at_left = left, right, at_right
            right = low + GOLDEN_RATIO * (high - low)
            at_right = _aim(users, starts, mass, value, types, math.exp(right))[0]
    return math.exp(0.5 * (low + high))


@njit(cache=True, error_model="numpy")
def tops(starts: Integers64, mass: Floats, value: Floats, doubt: Floats, s: float) -> tuple[Floats, Floats, Floats]:
    """Of every type: log M_x(s), rounded up; B1/Z, from which its error follows; and, as rows, the shape of the tilted law for `_crude`.

    B1 = sum of mass doubt max(1, e^(s G)), Z = M_x(s). log M_x(s) is off by (K+40) units of s B1/Z at most, K the number of atoms: that
    covers the masses, the values, expm1 and the sum. The shape is the variance V under the tilt e^(sG), (m + 3 V^2)/12 with m the
    fourth central moment, and the span of G and 0.
    """
    types = starts.size - 1
    top, error_ratio, shape = np.empty(types), np.empty(types), np.empty((types, 3))
    for x in range(types):
        rise, error, min_value, max_value = 0.0, 0.0, 0.0, 0.0
        first, second, third, fourth = 0.0, 0.0, 0.0, 0.0
        for i in range(starts[x], starts[x + 1]):
            grown, v = mass[i] * math.expm1(s * value[i]), value[i]
            tilted = mass[i] + grown
            rise += grown
            error += doubt[i] * max(mass[i], tilted)
            first += tilted * v
            second += tilted * v * v
            third += tilted * v * v * v
            fourth += tilted * v * v * v * v
            min_value, max_value = min(min_value, v), max(max_value, v)
        total = 1.0 + rise
        mean, second, third, fourth = first / total, second / total, third / total, fourth / total
        variance = max(0.0, second - mean * mean - 1e-12 * second)  # (what cancels may have been rounded up)
        fourth = fourth - 4.0 * mean * third + 6.0 * mean * mean * second - 3.0 * mean**4 + 1e-9 * (fourth + mean**4)
        error_ratio[x] = error / total
        shape[x] = variance, (fourth + 3.0 * variance * variance) / 12.0, max_value - min_value
        unsure = (starts[x + 1] - starts[x] + 40.0) * ROUNDOFF * s * error_ratio[x]
        top[x] = math.log1p(rise) + unsure * (1.0 + 2.0 * unsure) if unsure < 0.1 else math.inf
        if not top[x] > -math.inf:
            top[x] = math.inf
    return top, error_ratio, shape


@njit(cache=True, error_model="numpy")
def _crude(users: float, shape: Floats, s: float, step: float, every: float) -> float:
    """A bound on the sum that `_line` makes, from moments: f = |M(s+iy)/M(s)|^2 is E cos(y (G-G')) under the tilt, G' an independent copy.

    1 - cos t >= t^2/2 - t^4/24 gives f <= 1 - V y^2 + y^4 (m + 3 V^2)/12, and 1 - cos t >= 2 t^2/pi^2 for |t| <= pi gives
    f <= 1 - (4/pi^2) V y^2 for |y| <= pi/span. f^(m/2) <= e^(-(m/2) (1 - f)).
    """
    variance, quartic = shape[0], shape[1]
    total, j, end = 1.0 / (s * s), 1.0, math.pi / shape[2]
    while j * step <= end and j < ROUGH_NODES:
        square = (j * step) ** 2
        rate = 0.4999999 * users * max(0.405 * variance, variance - quartic * square) * square
        if rate > LOG_NEGLIGIBLE and 0.5 * 0.405 * users * variance * square > LOG_NEGLIGIBLE:
            break
        total += 2.0 * math.exp(-rate) / (s * s + square)
        j += 1.0
    if not (j < ROUGH_NODES and total > 0.0):
        return every
    bound = total + 2.0 / (step * end) + 2.0 / (end * end) + math.exp(-LOG_NEGLIGIBLE) * every
    return (bound if bound < every else every) * (1.0 + 1e-9)


@njit(cache=True, error_model="numpy")
def rough(users: Floats, starts: Integers64, mass: Floats, value: Floats, doubt: Floats, s: float, period: float) -> Floats:
    """As `hoelder`, with `_crude` in place of the sums: some percent larger, and quick."""
    bounds = np.full(users.size, math.inf)
    top, _, shape = tops(starts, mass, value, doubt, s)
    if not (0.0 < s < math.inf and period > 1.0 and -1e300 < users[0] * np.max(top) < 690.0):
        return bounds
    step = 2.0 * math.pi * s / period
    every, best = 1.0 / (s * s) + math.pi / (s * step), np.full(users.size, -math.inf)
    for x in range(top.size):
        log_sum = math.log(_crude(users[users.size - 1], shape[x], s, step, every))
        for k in range(users.size):
            best[k] = max(best[k], users[k] * top[x] + log_sum)
    for k in range(users.size):
        log_bound = best[k] + 0.5 * SMOOTHING_DEVIATION**2 + math.log(step / (2.0 * math.pi * users[k]))
        bounds[k] = math.exp(max(log_bound + 1e-9 * (1.0 + abs(log_bound)), LOG_LEAST)) if log_bound < 600.0 else math.inf
    return bounds


@njit(cache=True, error_model="numpy")
def _line(
    users: Floats,
    mass: Floats,
    value: Floats,
    top: float,
    error_ratio: float,
    s: float,
    smooth2: float,
    step: float,
    last: float,
    sums: Floats,
) -> bool:
    """Add to sums[k] the trapezoid sum of |M(z)/M(s)|^users[k] e^(-smooth2 y^2/2)/|z|^2, z = s + iy, rounded up.

    False if there are too many nodes. `users` falls; stretches where even the last of them makes the term negligible are left out.
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
    missing_mass = 1.0
    for i in range(count):
        variance += tilted[i] / total * (value[i] - mean) ** 2
        missing_mass -= mass[i]
    variance += max(missing_mass, 0.0) / total * mean * mean
    fewest, unsure = users[users.size - 1], (count + 40.0) * ROUNDOFF * error_ratio
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
        fall = min(max(log_modulus - top, -30.0) + off * (1.0 + 2.0 * off), 0.0) if off < 0.1 else 0.0
        nodes += 1
        if nodes > MAX_NODES:
            return False
        if fewest * fall - smoothed > -LOG_NEGLIGIBLE or j == 0.0:
            weight = (1.0 if j == 0.0 else 2.0) * math.exp(-smoothed) / away * (1.0 + 64.0 * ROUNDOFF)
            for k in range(users.size):
                sums[k] += weight * math.exp(users[k] * fall * (1.0 - 8.0 * ROUNDOFF))
            j += 1.0
        else:
            slope = 2.0 * ((1.0 + re) * re_slope + im * im_slope) / (total * total)
            j += max(1.0, math.floor(0.999 * _negligible_ahead(fewest, fewest * fall, smoothed, slope, variance) / step))
    return True


@njit(cache=True, error_model="numpy")
def placed(users: float, starts: Integers64, mass: Floats, value: Floats, doubt: Floats, square: Floats) -> tuple[float, float, float]:
    """s, the period of the nodes in units of 1/s, and log M(s)^m of the worst type, for about m = `users`."""
    leading = np.argsort(-square)[: min(DECISIVE_TYPES, starts.size - 1)]
    s = saddle(users, starts, mass, value, leading)
    top = tops(starts, mass, value, doubt, s)[0]
    first = np.argmax(top)
    if not np.any(leading == first):  # another type is worse here: it has a say too
        s = saddle(users, starts, mass, value, np.append(leading, first))
        top = tops(starts, mass, value, doubt, s)[0]
    height = users * np.max(top)
    return s, LOG_ALIASING + min(max(4.0, -height), -LOG_LEAST), height


@njit(cache=True, error_model="numpy")
def hoelder(users: Floats, starts: Integers64, mass: Floats, value: Floats, doubt: Floats, s: float, period: float) -> Floats:
    """For each m in `users` (falling): a bound on (1/m) E[(G_1 + .. + G_m)_+] whatever the types of the m; inf where none is certified.

    With z_k = s + ik D, D = 2 pi s/period and h = SMOOTHING_DEVIATION/s it is (D/2 pi m) max over x of sum over k of |M_x(z_k)|^m
    e^(h^2 Re(z_k^2)/2)/|z_k|^2; see `full_law_bound.psi_upper`. All terms are positive, so each is rounded up by its own error; nodes
    that are left
    out, negligible or beyond the last, are bounded as in `_contour_kernels.contour`. Types are visited in the order of M_x(s), and those
    whose `_crude` bound is not worse than what was found are left out.
    """
    bounds = np.full(users.size, math.inf)
    top, error_ratio, shape = tops(starts, mass, value, doubt, s)
    height = users[0] * np.max(top)
    if not (0.0 < s < math.inf and period > 1.0 and -1e300 < height < 690.0):
        return bounds
    step, smooth2 = 2.0 * math.pi * s / period, (SMOOTHING_DEVIATION / s) ** 2
    last = math.ceil(math.sqrt(2.0 * LOG_TRUNCATION / smooth2) / step)
    every = 1.0 / (s * s) + math.pi / (s * step)  # the sum of all 1/|z|^2
    outside = 2.0 * math.exp(-0.5 * smooth2 * (step * last) ** 2) / (step * step * last) + math.exp(-LOG_NEGLIGIBLE + 0.1) * every
    best, sums = np.full(users.size, -math.inf), np.empty(users.size)
    for x in np.argsort(-top):
        above = math.log(_crude(users[users.size - 1], shape[x], s, step, every) + outside) if best[0] > -math.inf else math.inf
        open_question = False
        for k in range(users.size):
            if not users[k] * top[x] + above <= best[k]:
                open_question = True
        if not open_question:
            continue
        sums[:] = 0.0
        here = slice(starts[x], starts[x + 1])
        if not _line(users, mass[here], value[here], top[x], error_ratio[x], s, smooth2, step, last, sums):
            return bounds
        for k in range(users.size):
            best[k] = max(best[k], users[k] * top[x] + math.log(sums[k] + outside))
    for k in range(users.size):
        log_bound = best[k] + 0.5 * SMOOTHING_DEVIATION**2 + math.log(step / (2.0 * math.pi * users[k]))
        log_bound += ROUNDOFF * (MAX_NODES + 256.0 + 4.0 * abs(log_bound) + 8.0 * abs(height))
        bounds[k] = math.exp(max(log_bound, LOG_LEAST)) * (1.0 + 16.0 * ROUNDOFF) if log_bound < 690.0 else math.inf
    return bounds
