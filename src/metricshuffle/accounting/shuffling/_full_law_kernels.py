# mypy: disable-error-code="untyped-decorator"
"""Compiled upper bounds on (1/m) E[(G_1 + .. + G_m)_+], for any inputs of m people.

Used by `full_law_bound` and `mixed_groups_bound`; imported lazily. Person 1 has one of two inputs,
a or b, and their report has the law K_a or K_b. The input of each of the m other people belongs to
one of several input classes; a report of class x has the law K_x. A report Y of class x contributes

    G_x = (K_a(Y) - e^epsilon K_b(Y)) / K_x(Y),    Y ~ K_x

(see `input_class_laws`). G_1, .., G_m are independent, each with the law of some G_x, and a bound
holds whatever classes these are. M_x(z) = E e^(z G_x) is the moment generating function of class x;
the index is left out where there is only one class.

The laws of all classes are stored one after another in the arrays `mass`, `value` and `doubt`; the
atoms of class x are those from starts[x] to starts[x+1]. Masses may sum to less than 1, as in
`_blanket_kernels`; then G is 0 with the missing probability. Rounding errors: a mass may be off by
a few units in its last place, and a value by a few units of ROUNDOFF times its `doubt`.
"""

from __future__ import annotations

import math

import numpy as np
from numba import njit

from metricshuffle.accounting.shuffling._blanket_kernels import LOG_LEAST
from metricshuffle.accounting.shuffling._contour_kernels import LOG_NEGLIGIBLE, _negligible_ahead
from metricshuffle.numerics.rounding import ROUNDOFF
from metricshuffle.numerics.types import Floats, Integers64

# Sums are smoothed by a Gaussian of standard deviation 0.05/s, which adds 0.05^2/2 of the result.
SMOOTHING_DEVIATION = 0.05
LOG_TRUNCATION = 40.0  # the last node is where the Gaussian has fallen to e^-40
LOG_ALIASING = 26.0  # the trapezoid rule adds about e^-26 of the result
MAX_LOG_TILT = 600.0
GOLDEN_RATIO = 0.6180339887498949
DECISIVE_TYPES = 3  # number of input classes for which the line of integration is chosen
MAX_NODES = 20_000
ROUGH_NODES = 400  # terms of a sum that `_moment_sum` bounds one by one


@njit(cache=True, error_model="numpy")
def values(
    starts: Integers64, mass: Floats, excess: Floats, rounding: Floats, b: Floats, growth: float
) -> tuple[Floats, Floats, Floats]:
    """Return the value G and its doubt for every atom, and E G^2 for every class.

    The arguments are arrays over the atoms: excess = K_a - K_b, b = K_b, mass = K_x, and `rounding`
    is the scale of the rounding error of excess; growth = e^epsilon - 1. So G is (excess - growth
    b)/mass. No bound depends on E G^2; it only decides which classes are tried first.
    """
    value = np.empty(mass.size)
    doubt = np.empty(mass.size)
    square = np.zeros(starts.size - 1)
    for x in range(starts.size - 1):
        for i in range(starts[x], starts[x + 1]):
            value[i] = (excess[i] - growth * b[i]) / mass[i]
            doubt[i] = (rounding[i] + growth * b[i]) / mass[i]
            square[x] += mass[i] * value[i] * value[i]
    return value, doubt, square


@njit(cache=True, error_model="numpy")
def _log_moments(mass: Floats, value: Floats, s: float) -> tuple[float, float, float]:
    """Return approximations of log M(s) and its first two derivatives."""
    rise = 0.0
    slope = 0.0
    bend = 0.0
    for i in range(mass.size):
        grown = math.expm1(s * value[i])
        rise += mass[i] * grown
        slope += mass[i] * (grown + 1.0) * value[i]
        bend += mass[i] * (grown + 1.0) * value[i] * value[i]
    slope /= 1.0 + rise
    return math.log1p(rise), slope, max(0.0, bend / (1.0 + rise) - slope * slope)


@njit(cache=True, error_model="numpy")
def _log_estimate(
    users: float, starts: Integers64, mass: Floats, value: Floats, types: Integers64, s: float
) -> tuple[float, float]:
    """Approximate the log of the bound for the worst of some classes, and its slope in log s.

    `types` lists the classes. If |M(s+iy)/M(s)|^m were e^(-v y^2/2), as for a normal law, its
    integral with the weight 1/|s+iy|^2 would be (pi/s) e^(x^2) erfc(x), x = s sqrt(v/2).
    """
    highest = -math.inf
    steepness = 0.0
    for x in types:
        here = slice(starts[x], starts[x + 1])
        log_moment, slope, bend = _log_moments(mass[here], value[here], s)
        wide = s * math.sqrt(0.5 * users * bend)
        tail = (
            wide * wide + math.log(math.erfc(wide))
            if wide < 5.0
            else math.log((1.0 - 0.5 / (wide * wide)) / (1.7724538509 * wide))
        )
        height = users * log_moment - math.log(s) + tail
        if height > highest:
            highest = height
            steepness = users * slope * s - 2.0 + 1.0 / (1.0 + 2.0 * wide * wide / 3.0)
    return highest, steepness


@njit(cache=True, error_model="numpy")
def saddle(
    users: float, starts: Integers64, mass: Floats, value: Floats, types: Integers64
) -> float:
    """Approximate the s of the smallest bound, if the worst class is one of `types`.

    A bound holds for any s > 0, so this need not be exact.
    """
    largest = 0.0
    for x in types:
        for i in range(starts[x], starts[x + 1]):
            largest = max(largest, abs(value[i]))
    low = math.log(1e-14 / largest)
    high = math.log(MAX_LOG_TILT / largest)
    while high - low > 0.3:  # convex in s, and decreasing at first
        middle = 0.5 * (low + high)
        if _log_estimate(users, starts, mass, value, types, math.exp(middle))[1] > 0.0:
            high = middle
        else:
            low = middle
    low = low - 0.1
    high = min(high + 0.1, math.log(MAX_LOG_TILT / largest))
    left = high - GOLDEN_RATIO * (high - low)
    right = low + GOLDEN_RATIO * (high - low)
    at_left = _log_estimate(users, starts, mass, value, types, math.exp(left))[0]
    at_right = _log_estimate(users, starts, mass, value, types, math.exp(right))[0]
    for _ in range(10):
        if at_left < at_right:
            high = right
            right = left
            at_right = at_left
            left = high - GOLDEN_RATIO * (high - low)
            at_left = _log_estimate(users, starts, mass, value, types, math.exp(left))[0]
        else:
            low = left
            left = right
            at_left = at_right
            right = low + GOLDEN_RATIO * (high - low)
            at_right = _log_estimate(users, starts, mass, value, types, math.exp(right))[0]
    return math.exp(0.5 * (low + high))


@njit(cache=True, error_model="numpy")
def log_moments_above(
    starts: Integers64, mass: Floats, value: Floats, doubt: Floats, s: float
) -> tuple[Floats, Floats, Floats]:
    """Return three arrays over the classes x: log M_x(s) rounded up, error ratios, and moments.

    The error ratio is B1/M_x(s), where B1 is the sum of mass * doubt * max(1, e^(s G)) over the
    atoms. With K atoms, the computed log M_x(s) is wrong by at most K + 40 units of ROUNDOFF times
    s times this ratio: that covers the errors of the masses, the values, expm1 and the sum. The
    moments of a class, for `_moment_sum`, are taken under the law tilted by e^(s G): the variance V
    of G; (m4 + 3 V^2)/12, where m4 is the fourth central moment; and the length of the smallest
    interval that has all values of G, and 0.
    """
    types = starts.size - 1
    top = np.empty(types)
    error_ratio = np.empty(types)
    shape = np.empty((types, 3))
    for x in range(types):
        rise = 0.0
        error = 0.0
        min_value = 0.0
        max_value = 0.0
        first = 0.0
        second = 0.0
        third = 0.0
        fourth = 0.0
        for i in range(starts[x], starts[x + 1]):
            grown = mass[i] * math.expm1(s * value[i])
            v = value[i]
            tilted = mass[i] + grown
            rise += grown
            error += doubt[i] * max(mass[i], tilted)
            first += tilted * v
            second += tilted * v * v
            third += tilted * v * v * v
            fourth += tilted * v * v * v * v
            min_value = min(min_value, v)
            max_value = max(max_value, v)
        total = 1.0 + rise
        mean = first / total
        second = second / total
        third = third / total
        fourth = fourth / total
        # The difference cancels, so it is rounded down by more than its error.
        variance = max(0.0, second - mean * mean - 1e-12 * second)
        fourth = (
            fourth
            - 4.0 * mean * third
            + 6.0 * mean * mean * second
            - 3.0 * mean**4
            + 1e-9 * (fourth + mean**4)
        )
        error_ratio[x] = error / total
        shape[x] = variance, (fourth + 3.0 * variance * variance) / 12.0, max_value - min_value
        unsure = (starts[x + 1] - starts[x] + 40.0) * ROUNDOFF * s * error_ratio[x]
        top[x] = math.log1p(rise) + unsure * (1.0 + 2.0 * unsure) if unsure < 0.1 else math.inf
        if not top[x] > -math.inf:
            top[x] = math.inf
    return top, error_ratio, shape


@njit(cache=True, error_model="numpy")
def _moment_sum(users: float, shape: Floats, s: float, step: float, every: float) -> float:
    """Bound the sum of `_line` for one class by three moments of its law, without its atoms.

    `shape` has V, (m4 + 3 V^2)/12 and the span of `log_moments_above`; m is the number of `users`.
    Let f(y) = |M(s+iy)/M(s)|^2. It is E cos(y (G-G')) under the law tilted by e^(sG), where G' is
    an independent copy of G. 1 - cos t >= t^2/2 - t^4/24 gives f <= 1 - V y^2 + y^4 (m4 + 3
    V^2)/12. 1 - cos t >= 2 t^2/pi^2 for |t| <= pi gives f <= 1 - (4/pi^2) V y^2 for |y| <= pi/span.
    A term of the sum is then at most f^(m/2) <= e^(-(m/2) (1 - f)). `every` is the sum of 1/|z|^2
    over all nodes, which bounds the sum in any case.
    """
    variance = shape[0]
    quartic = shape[1]
    total = 1.0 / (s * s)
    j = 1.0
    end = math.pi / shape[2]
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
def hoelder_by_moments(
    users: Floats,
    starts: Integers64,
    mass: Floats,
    value: Floats,
    doubt: Floats,
    s: float,
    period: float,
) -> Floats:
    """Bound as `hoelder` does, but by `_moment_sum`: quicker, and some percent larger."""
    bounds = np.full(users.size, math.inf)
    top, _, shape = log_moments_above(starts, mass, value, doubt, s)
    if not (0.0 < s < math.inf and period > 1.0 and -1e300 < users[0] * np.max(top) < 690.0):
        return bounds
    step = 2.0 * math.pi * s / period
    every = 1.0 / (s * s) + math.pi / (s * step)
    best = np.full(users.size, -math.inf)
    for x in range(top.size):
        log_sum = math.log(_moment_sum(users[users.size - 1], shape[x], s, step, every))
        for k in range(users.size):
            best[k] = max(best[k], users[k] * top[x] + log_sum)
    for k in range(users.size):
        log_bound = (
            best[k] + 0.5 * SMOOTHING_DEVIATION**2 + math.log(step / (2.0 * math.pi * users[k]))
        )
        bounds[k] = (
            math.exp(max(log_bound + 1e-9 * (1.0 + abs(log_bound)), LOG_LEAST))
            if log_bound < 600.0
            else math.inf
        )
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
    """Add the trapezoid sum of one class to sums[k], for each number of people users[k].

    It is the sum of |M(z)/M(s)|^users[k] e^(-smooth2 y^2/2)/|z|^2 over the nodes z = s + iy,
    rounded up. `users` is in decreasing order. A term that is negligible for the smallest number of
    people is negligible for all, and such stretches of y are left out. Returns False if there are
    too many nodes.
    """
    count = mass.size
    grown = np.empty(count)
    tilted = np.empty(count)
    rise = 0.0
    mean = 0.0
    variance = 0.0
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
    fewest = users[users.size - 1]
    unsure = (count + 40.0) * ROUNDOFF * error_ratio
    j = 0.0
    nodes = 0
    while j <= last:
        y = step * j
        re = 0.0
        im = 0.0
        re_slope = 0.0
        im_slope = 0.0
        for i in range(count):
            angle = 0.5 * y * value[i]
            sine = math.sin(angle)
            cosine = math.cos(angle)
            half = 2.0 * tilted[i] * sine
            re += grown[i] - half * sine
            im += half * cosine
            re_slope -= value[i] * half * cosine
            im_slope += value[i] * (tilted[i] - half * sine)
        square = re * (2.0 + re) + im * im  # |M|^2 - 1, which cancels near M = 0
        log_modulus = (
            0.5 * math.log1p(square) if square > -0.5 else math.log(math.hypot(1.0 + re, im))
        )
        away = s * s + y * y
        smoothed = 0.5 * smooth2 * y * y
        # log |M| is wrong by at most `off`. Near a zero of M this is large; then the bound |M| <=
        # M(s) is used instead.
        off = unsure * math.sqrt(away) * math.exp(min(max(top - log_modulus, 0.0), 30.0))
        fall = (
            min(max(log_modulus - top, -30.0) + off * (1.0 + 2.0 * off), 0.0) if off < 0.1 else 0.0
        )
        nodes += 1
        if nodes > MAX_NODES:
            return False
        if fewest * fall - smoothed > -LOG_NEGLIGIBLE or j == 0.0:
            weight = (
                (1.0 if j == 0.0 else 2.0) * math.exp(-smoothed) / away * (1.0 + 64.0 * ROUNDOFF)
            )
            for k in range(users.size):
                sums[k] += weight * math.exp(users[k] * fall * (1.0 - 8.0 * ROUNDOFF))
            j += 1.0
        else:
            slope = 2.0 * ((1.0 + re) * re_slope + im * im_slope) / (total * total)
            j += max(
                1.0,
                math.floor(
                    0.999
                    * _negligible_ahead(fewest, fewest * fall, smoothed, slope, variance)
                    / step
                ),
            )
    return True


@njit(cache=True, error_model="numpy")
def integration_line(
    users: float, starts: Integers64, mass: Floats, value: Floats, doubt: Floats, square: Floats
) -> tuple[float, float, float]:
    """Choose the line s + iy of integration for about `users` people.

    Returns s, the period of the trapezoid rule in units of 1/s, and the largest log M_x(s)^users of
    all classes x.
    """
    leading = np.argsort(-square)[: min(DECISIVE_TYPES, starts.size - 1)]
    s = saddle(users, starts, mass, value, leading)
    top = log_moments_above(starts, mass, value, doubt, s)[0]
    first = np.argmax(top)
    if not np.any(leading == first):  # another input class is worse here, so include it
        s = saddle(users, starts, mass, value, np.append(leading, first))
        top = log_moments_above(starts, mass, value, doubt, s)[0]
    height = users * np.max(top)
    return s, LOG_ALIASING + min(max(4.0, -height), -LOG_LEAST), height


@njit(cache=True, error_model="numpy")
def hoelder(
    users: Floats,
    starts: Integers64,
    mass: Floats,
    value: Floats,
    doubt: Floats,
    s: float,
    period: float,
) -> Floats:
    """Upper bound on (1/m) E[(G_1 + .. + G_m)_+] for each m in `users`, in decreasing order.

    It holds for any input classes of the m people, and is infinite where nothing is certified.
    Statement: let z_k = s + ik D, D = 2 pi s/period and h = SMOOTHING_DEVIATION/s. The bound is
    D/(2 pi m) times the maximum over the classes x of the sum over k of |M_x(z_k)|^m e^(h^2
    Re(z_k^2)/2)/|z_k|^2. Proof: `full_law_bound.psi_upper`.
    Numerics: all terms are positive, so each is rounded up by its own error. Nodes that are left
    out, because they are negligible or beyond the last one, are bounded as in
    `_contour_kernels.contour`. Classes are visited in decreasing order of M_x(s). A class is left
    out if its bound by `_moment_sum` does not exceed the largest bound so far.
    """
    bounds = np.full(users.size, math.inf)
    top, error_ratio, shape = log_moments_above(starts, mass, value, doubt, s)
    height = users[0] * np.max(top)
    if not (0.0 < s < math.inf and period > 1.0 and -1e300 < height < 690.0):
        return bounds
    step = 2.0 * math.pi * s / period
    smooth2 = (SMOOTHING_DEVIATION / s) ** 2
    last = math.ceil(math.sqrt(2.0 * LOG_TRUNCATION / smooth2) / step)
    every = 1.0 / (s * s) + math.pi / (s * step)  # the sum of all 1/|z|^2
    outside = (
        2.0 * math.exp(-0.5 * smooth2 * (step * last) ** 2) / (step * step * last)
        + math.exp(-LOG_NEGLIGIBLE + 0.1) * every
    )
    best = np.full(users.size, -math.inf)
    sums = np.empty(users.size)
    for x in np.argsort(-top):
        above = (
            math.log(_moment_sum(users[users.size - 1], shape[x], s, step, every) + outside)
            if best[0] > -math.inf
            else math.inf
        )
        open_question = False
        for k in range(users.size):
            if not users[k] * top[x] + above <= best[k]:
                open_question = True
        if not open_question:
            continue
        sums[:] = 0.0
        here = slice(starts[x], starts[x + 1])
        if not _line(
            users, mass[here], value[here], top[x], error_ratio[x], s, smooth2, step, last, sums
        ):
            return bounds
        for k in range(users.size):
            best[k] = max(best[k], users[k] * top[x] + math.log(sums[k] + outside))
    for k in range(users.size):
        log_bound = (
            best[k] + 0.5 * SMOOTHING_DEVIATION**2 + math.log(step / (2.0 * math.pi * users[k]))
        )
        log_bound += ROUNDOFF * (MAX_NODES + 256.0 + 4.0 * abs(log_bound) + 8.0 * abs(height))
        bounds[k] = (
            math.exp(max(log_bound, LOG_LEAST)) * (1.0 + 16.0 * ROUNDOFF)
            if log_bound < 690.0
            else math.inf
        )
    return bounds
