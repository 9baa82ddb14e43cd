"""Compiled loops over symmetric integer laws, for noise/polya.py and the profiles of noisy sums.

Notation: f(z) = P(Z = z) is the law of the noise Z, with f(z) = f(-z); d is a shift of Z;
log_mass[m], mass[m] and tail[m] are the tabulated log f(m), f(m) and P(Z >= m) for m = 0..radius.
log_error[m] bounds the error of log_mass[m] (see noise/symmetric_pmf.py).

"Compensated" sums keep the rounding error of every addition and add it at the end. The module is
imported only where it is used, because numba takes 0.3 s to load.
"""

# numba's decorators carry no types.
# mypy: disable-error-code="untyped-decorator, no-any-return"
from __future__ import annotations

import math

import numpy as np
from numba import njit

from metricshuffle.numerics.rounding import ROUNDOFF
from metricshuffle.numerics.types import Floats


@njit(cache=True)
def tail_sums(mass: Floats) -> Floats:
    """Return out[m] = sum of mass[m:], compensated, added from the end, with a 0 appended."""
    count = len(mass)
    out = np.zeros(count + 1)
    total = 0.0
    lost = 0.0
    for i in range(count - 1, -1, -1):
        value = mass[i]
        new = total + value
        lost += (total - new) + value if total >= value else (value - new) + total
        total = new
        out[i] = total + lost
    return out


# A division by zero gives a value that is not finite, which the caller refuses.
@njit(cache=True, error_model="numpy")
def polya_ratios(
    shape: float, rate: float, radius: int, start: int, log_ratio: Floats, half_width: Floats
) -> None:
    """Enclose rho_m = f(m)/f(m-1) of SGDL(shape, e^-rate) for m = start..1, store m <= radius.

    SGDL is the law of noise/polya.py; b = shape and p = e^-rate. The recurrence is rho_m = p(m-1+b)
    / (a m - p(m+1-b) rho_{m+1}), a = 1 + p^2. It is run backwards, with outward rounding, on both
    ends of an interval that certainly contains rho_start. The variable is w = 1 - rho, which is
    small where b is large; this keeps the certificate at 1e-11 for 1e9 users. Where rho < 1/2 (b <
    1, small m), rho itself is used. w_m increases with w_{m+1} while m+1 > b and decreases with it
    while m+1 < b.

    For each m <= radius, log_ratio[m] is set to the middle of the interval of log rho_m, and
    half_width[m] to an upper bound on half its width.
    """
    b = shape
    p = math.exp(-rate)
    one_minus_p = -math.expm1(-rate)
    q2 = one_minus_p * one_minus_p
    a = 1.0 + p * p
    # rho lies in [p, 1] for b >= 1 (log-concave) and in [0, p] for b < 1 (log-convex). These are
    # the bounds on w = 1 - rho, a few ulp outwards.
    least_w = 0.0 if b >= 1.0 else one_minus_p * (1.0 - 4.0 * ROUNDOFF)
    most_w = one_minus_p * (1.0 + 4.0 * ROUNDOFF) if b >= 1.0 else 1.0
    w_low = least_w
    w_high = most_w
    for m in range(start, 0, -1):
        gap = m + 1.0 - b
        if gap < 0.0:
            w_low, w_high = w_high, w_low
        t1 = q2 * m
        d1 = a * m
        low_t2 = p * gap * w_low
        high_t2 = p * gap * w_high
        low_d2 = p * gap * (1.0 - w_low)
        high_d2 = p * gap * (1.0 - w_high)
        numerator = t1 + low_t2 - 9.0 * ROUNDOFF * (t1 + abs(low_t2))
        low_error = 9.0 * ROUNDOFF * (d1 + abs(low_d2))
        low = numerator / (d1 - low_d2 + low_error) * (1.0 - 3.0 * ROUNDOFF)
        numerator = t1 + high_t2 + 9.0 * ROUNDOFF * (t1 + abs(high_t2))
        high_error = 9.0 * ROUNDOFF * (d1 + abs(high_d2))
        high = numerator / (d1 - high_d2 - high_error) * (1.0 + 3.0 * ROUNDOFF)
        # A NaN fails this comparison and propagates to a later check, which refuses it.
        if high <= 0.5:
            w_low = min(max(low, least_w), most_w)
            w_high = min(max(high, least_w), most_w)
            if m <= radius:
                # log(1 - w) at the middle of the interval differs from its value at either end by
                # at most half the width of the interval, divided by 1 - w_high.
                log_ratio[m] = math.log1p(-0.5 * (w_low + w_high))
                half_width[m] = (
                    0.5 * (w_high - w_low) / (1.0 - w_high) * (1.0 + 8.0 * ROUNDOFF)
                    - 8.0 * ROUNDOFF * log_ratio[m]
                )
            continue
        most_rho = (
            p
            * (m - 1.0 + b)
            / (d1 - low_d2)
            * (1.0 + (6.0 * ROUNDOFF + low_error / (d1 - low_d2 - low_error)))
        )
        least_rho = (
            p
            * (m - 1.0 + b)
            / (d1 - high_d2)
            * (1.0 - (6.0 * ROUNDOFF + high_error / (d1 - high_d2 - high_error)))
        )
        if low > 0.5:
            high_log = math.log(most_rho)
            low = 1.0 - most_rho - ROUNDOFF
        else:
            low = max(low, least_w)
            high_log = math.log1p(-low)
        low_log = math.log(least_rho)
        high = 1.0 - least_rho + ROUNDOFF
        w_low = min(max(low, least_w), most_w)
        w_high = min(max(high, least_w), most_w)
        if m <= radius:
            log_ratio[m] = 0.5 * (low_log + high_log)
            half_width[m] = 0.5 * (high_log - low_log) + 4.0 * ROUNDOFF * (
                abs(low_log) + abs(high_log)
            )


@njit(cache=True)
def doubled_sums(relative: Floats, error: Floats) -> tuple[float, float]:
    """Sums over both signs of m of relative[m] and of relative[m] * error[m].

    The first counts relative[0] once, the second counts every term twice.
    """
    total = 0.0
    lost = 0.0
    weighted = 0.0
    for m in range(len(relative) - 1, -1, -1):
        value = relative[m]
        new = total + value
        lost += (total - new) + value if total >= value else (value - new) + total
        total = new
        weighted += value * error[m]
    return 2.0 * (total + lost) - relative[0], 2.0 * weighted


@njit(cache=True)
def cumulative_logs(log_ratio: Floats, half_width: Floats) -> None:
    """Replace log_ratio by log f(m)/f(0) (compensated sums), and half_width by its error bound.

    On entry log_ratio[m] is log f(m)/f(m-1), and half_width[m] bounds its error (see
    `polya_ratios`).
    """
    total = 0.0
    lost = 0.0
    error = 0.0
    log_ratio[0] = 0.0
    half_width[0] = 0.0
    for m in range(1, len(log_ratio)):
        value = log_ratio[m]
        new = total + value
        lost += (total - new) + value if abs(total) >= abs(value) else (value - new) + total
        total = new
        error += half_width[m] * (1.0 + 4.0 * ROUNDOFF)
        log_ratio[m] = total + lost
        half_width[m] = error * (1.0 + m * ROUNDOFF) + 3.0 * ROUNDOFF * abs(log_ratio[m])


@njit(cache=True)
def _log_ratio_high(
    log_mass: Floats, log_error: Floats, cumulative: bool, z: int, d: int
) -> tuple[float, float]:
    """log f(z) - log f(z - d) rounded up, and the error bound that was added."""
    radius = len(log_mass) - 1
    i = abs(z)
    j = abs(z - d)
    if i > radius:
        return -math.inf, 0.0
    if j > radius:
        return math.inf, 0.0
    if cumulative:
        error = abs(log_error[i] - log_error[j]) + 10.0 * ROUNDOFF * (
            abs(log_mass[i]) + abs(log_mass[j]) + 2.0 * abs(log_mass[0])
        )
    else:
        error = log_error[i] + log_error[j] + 4.0 * ROUNDOFF * (abs(log_mass[i]) + abs(log_mass[j]))
    return log_mass[i] - log_mass[j] + error, error


@njit(cache=True)
def _below(tail: Floats, z: int) -> float:
    """Sum of the tabulated masses at or below z. (All masses need not sum to exactly 1.)"""
    radius = len(tail) - 2
    if z < -radius:
        return 0.0
    return tail[-z] if z <= 0 else tail[0] + tail[1] - tail[min(z, radius) + 1]


@njit(cache=True)
def _log_below(log_mass: Floats, below: float, z: int) -> float:
    """log P(Z <= z) of the tabulated law, rounded down where the masses themselves underflow."""
    if below > 1e-250 or z >= 0:
        return math.log(below)
    start = -z
    stop = len(log_mass)
    total = 0.0
    count = 0
    for m in range(start, stop):
        term = math.exp(log_mass[m] - log_mass[start])
        total += term
        count += 1
        if term < 1e-18 * total:
            break
    return log_mass[start] + math.log(total) - 2.0 * ROUNDOFF * count


@njit(cache=True)
def _half_line(
    log_mass: Floats,
    mass: Floats,
    tail: Floats,
    worst: float,
    ratio_error: float,
    t: int,
    d: int,
    epsilon: float,
    summed: int,
) -> float:
    """Upper bound on P(Z <= t) - e^epsilon P(Z <= t - d), plus the uncertainty of the threshold t.

    `worst` = e^(largest log error); `ratio_error` is the error bound of the log ratio at t, from
    which the uncertainty of t is computed (see `half_line_deltas`). Masses, tails and exponentials
    are accurate to 8 ulp each, differences of `_below` to 32 ulp of P(Z <= t). A window t-d+1..t of
    fewer than `summed` cells is summed cell by cell instead.
    """
    radius = len(mass) - 1
    start = max(t - d + 1, -radius)
    if t - start < summed:
        window = 0.0
        for z in range(start, t + 1):
            if abs(z) <= radius:
                window += mass[abs(z)]
        window *= 1.0 + 300.0 * ROUNDOFF
    else:
        window = _below(tail, t) - _below(tail, t - d)
    all_below = _below(tail, t)
    below = _below(tail, t - d)
    if epsilon >= 0.0:
        paid = 0.0
        if epsilon < 30.0:
            paid = math.expm1(epsilon) * below * (1.0 - 1e-15 * (8.0 + epsilon))
        elif t - d >= -radius:
            # The same without overflow; the error of the exponent is that of its larger part.
            log_below = _log_below(log_mass, below, t - d)
            paid = (math.exp(epsilon + log_below) - below) * (
                1.0 - 1e-15 * (8.0 + epsilon - log_below)
            )
        value = window * worst - paid / worst
    else:
        value = (window - math.expm1(epsilon) * below) * worst
    doubt = 2.01 * ratio_error if ratio_error < 1e-3 else math.expm1(2.0 * ratio_error)
    return value + (doubt + 64.0 * ROUNDOFF) * all_below * worst


@njit(cache=True)
def half_line_deltas(
    log_mass: Floats,
    log_error: Floats,
    mass: Floats,
    tail: Floats,
    cumulative: bool,
    epsilons: Floats,
    d: int,
) -> Floats:
    """Upper bounds on sum_z (f(z) - e^epsilon f(z-d))_+ over the tabulated part, f log-concave.

    Because f is log-concave, f(z)/f(z-d) does not increase with z, so the positive terms are those
    with z <= z* for some threshold z*. Bisection ends with neighbours t and t+1, where the
    rounded-up log ratio is >= epsilon at t and < epsilon at t+1. Then z* <= t, and the points
    between z* and t have a log ratio >= epsilon - 2 error. So including these points lowers the
    half-line value by at most (e^(2 error) - 1) P(Z <= t), which is added back.
    """
    radius = len(mass) - 1
    worst = math.exp(log_error[radius])
    deltas = np.zeros(len(epsilons))
    for index in range(len(epsilons) if d > 0 else 0):
        epsilon = epsilons[index]
        low = -radius
        high = radius + 1
        while high - low > 1:
            middle = (low + high) // 2
            if _log_ratio_high(log_mass, log_error, cumulative, middle, d)[0] >= epsilon:
                low = middle
            else:
                high = middle
        error = _log_ratio_high(log_mass, log_error, cumulative, low, d)[1]
        deltas[index] = max(
            0.0, _half_line(log_mass, mass, tail, worst, error, low, d, epsilon, 256)
        )
    return deltas


@njit(cache=True)
def positive_part_delta(
    log_mass: Floats, log_error: Floats, mass: Floats, epsilon: float, d: int
) -> float:
    """Upper bound on sum_z (f(z) - e^epsilon f(z-d))_+ over the tabulated part, f symmetric."""
    if d == 0:
        return 0.0
    radius = len(mass) - 1
    total = 0.0
    lost = 0.0
    # Where f(z) >= e^epsilon f(z-d) can underflow, the product is taken in logarithms.
    in_logs = epsilon > 300.0
    factor = 0.0 if in_logs else math.exp(epsilon) * (1.0 - 8.0 * ROUNDOFF)
    for z in range(-radius, radius + 1):
        i = abs(z)
        j = abs(z - d)
        value = mass[i] * math.exp(log_error[i]) * (1.0 + 16.0 * ROUNDOFF)
        if j <= radius and in_logs and value > 0.0 and log_mass[j] > -math.inf:
            value -= math.exp(
                min(
                    epsilon
                    + log_mass[j]
                    - log_error[j]
                    - 4.0 * ROUNDOFF * (epsilon + abs(log_mass[j])),
                    1.0,
                )
            ) * (1.0 - 16.0 * ROUNDOFF)
        elif j <= radius:
            value -= factor * mass[j] * math.exp(-log_error[j]) * (1.0 - 16.0 * ROUNDOFF)
        if value > 0.0:
            new = total + value
            lost += (total - new) + value if total >= value else (value - new) + total
            total = new
    return (total + lost) * (1.0 + 8.0 * ROUNDOFF)


@njit(cache=True)
def planar_delta(
    log_mass: Floats,
    log_error: Floats,
    mass: Floats,
    tail: Floats,
    cumulative: bool,
    epsilon: float,
    d1: int,
    d2: int,
    negligible: float,
) -> float:
    """Upper bound on sum_{z1,z2} (f(z1)f(z2) - e^epsilon f(z1-d1)f(z2-d2))_+, f log-concave.

    For fixed z1 the inner sum (over z2) is the one-dimensional profile at the argument epsilon -
    log f(z1)/f(z1-d1). This argument does not decrease with z1. So a running maximum of its
    rounded-down values is still a lower bound on it, and the half-line threshold of the second
    coordinate only moves left. Both ends of the sweep over z1 are cut off where they add at most
    `negligible`, and an upper bound on the part cut off is added: the inner sum is at most 1, and
    decreases in z1.
    """
    radius = len(mass) - 1
    worst = math.exp(log_error[radius])
    low = 0
    high = radius + 1
    while high - low > 1:
        middle = (low + high) // 2
        if tail[middle] <= negligible:
            high = middle
        else:
            low = middle
    total = tail[high] * worst
    lost = 0.0
    t = radius
    remaining = -math.inf
    for z1 in range(1 - high, radius + 1):
        ratio_high = _log_ratio_high(log_mass, log_error, cumulative, z1, d1)[0] if d1 > 0 else 0.0
        remaining = max(
            remaining, epsilon - ratio_high - 2.0 * ROUNDOFF * (abs(epsilon) + abs(ratio_high))
        )
        if remaining == -math.inf:
            inner = 1.0
        elif d2 == 0:
            inner = -math.expm1(remaining) if remaining < 0.0 else 0.0
        else:
            while (
                t > -radius
                and _log_ratio_high(log_mass, log_error, cumulative, t, d2)[0] < remaining
            ):
                t -= 1
            error = _log_ratio_high(log_mass, log_error, cumulative, t, d2)[1]
            inner = min(
                1.0, max(0.0, _half_line(log_mass, mass, tail, worst, error, t, d2, remaining, 16))
            )
        value = mass[abs(z1)] * math.exp(log_error[abs(z1)]) * inner
        new = total + value
        lost += (total - new) + value if total >= value else (value - new) + total
        total = new
        if z1 >= 0 and tail[z1 + 1] * worst * inner <= negligible:
            total += tail[z1 + 1] * worst * inner
            break
    return (total + lost) * (1.0 + 32.0 * ROUNDOFF)
