# mypy: disable-error-code="untyped-decorator"
"""Compiled loops for the sum of two binomials (imported lazily: numba costs 0.3 s)."""

from __future__ import annotations

import math

import numpy as np
from numba import njit

from metricshuffle.numerics.rounding import ROUNDOFF
from metricshuffle.numerics.types import Floats

MIN_MASS = 1e-250  # masses below this are set to zero; the caller adds them to the mass outside


@njit(cache=True)
def _coefficients(k: float, ones: float, zeros: float, odds: float) -> tuple[float, float, float]:
    """A_k, a bound on its rounding error, and B_k of the recurrence r_{k+1} = A_k + B_k / r_k."""
    small, large = odds * (zeros - k), (ones - k) / odds
    return (small + large) / (k + 1.0), 8.0 * ROUNDOFF * (abs(small) + abs(large)) / (k + 1.0), (ones + zeros - k + 1.0) / (k + 1.0)


@njit(cache=True)
def _clip_ratio(k: float, count: float, odds: float, low: float, high: float) -> tuple[float, float]:
    """Intersect with (count - k + 1)/k * [odds, 1/odds], which holds r_k for every sum of such bits."""
    scale = (count - k + 1.0) / k
    return max(low, scale * odds * (1.0 - 8.0 * ROUNDOFF)), min(high, scale / odds * (1.0 + 8.0 * ROUNDOFF))


@njit(cache=True, error_model="numpy")  # what is divided by zero is not finite, and refused by the caller
def two_binomials(ones: int, zeros: int, flip: float, low: int, high: int, warm_up: int) -> tuple[Floats, float, float]:
    """Masses of Bin(ones, 1-flip) + Bin(zeros, flip) on low..high (summing to one there), and two certificates.

    (masses, local, total): log masses[i] - log masses[i-1] is within `local`, log masses[i] within `total`, of the truth
    given that the sum lies in low..high.

    With x = odds = flip/(1-flip), r_k = f(k)/f(k-1) obeys r_{k+1} = A_k + B_k/r_k, A_k = (x(zeros-k) + (ones-k)/x)/(k+1),
    B_k = (N-k+1)/(k+1) > 0 (from the generating function). Forwards this contracts where A_k > 0, backwards where A_k < 0;
    both ends of an interval that certainly holds r are run in the direction that contracts, rounded outwards.
    """
    a, b = float(zeros), float(ones)
    count = a + b
    odds = flip / (1.0 - flip)
    ratio, error = np.ones(high - low + 1), np.zeros(high - low + 1)
    split = math.ceil((odds * a + b / odds) / (odds + 1.0 / odds))  # A_k > 0 for k < split (up to rounding, which is paid for)
    k = max(1, low - warm_up)
    if k < split and low < high:
        r_low, r_high = _clip_ratio(float(k), count, odds, 0.0, math.inf)
        if k == 1:
            first, up_error, _ = _coefficients(0.0, b, a, odds)
            r_low, r_high = max(r_low, first - up_error), min(r_high, first + up_error)
        while k < split and k <= high:
            if k > low:
                ratio[k - low], error[k - low] = 0.5 * (r_low + r_high), (r_high - r_low) / r_low
            up, up_error, back = _coefficients(float(k), b, a, odds)
            new_low = (up - up_error + back * (1.0 - 2.0 * ROUNDOFF) / r_high) * (1.0 - 4.0 * ROUNDOFF)
            new_high = (up + up_error + back * (1.0 + 2.0 * ROUNDOFF) / r_low) * (1.0 + 4.0 * ROUNDOFF)
            k += 1
            if k <= high:
                r_low, r_high = _clip_ratio(float(k), count, odds, new_low, new_high)
    k = min(ones + zeros, high + warm_up)
    if k >= split and low < high:
        r_low, r_high = _clip_ratio(float(k), count, odds, 0.0, math.inf)
        if k == ones + zeros:
            last = 1.0 / (odds * b + a / odds)
            r_low, r_high = max(r_low, last * (1.0 - 8.0 * ROUNDOFF)), min(r_high, last * (1.0 + 8.0 * ROUNDOFF))
        while k >= split and k > low:
            if k <= high:
                ratio[k - low], error[k - low] = 0.5 * (r_low + r_high), (r_high - r_low) / r_low
            k -= 1
            if k >= 1:
                up, up_error, back = _coefficients(float(k), b, a, odds)
                smallest = (r_low - up - up_error) * (1.0 - 4.0 * ROUNDOFF)
                new_low = back * (1.0 - 2.0 * ROUNDOFF) / ((r_high - up + up_error) * (1.0 + 4.0 * ROUNDOFF)) * (1.0 - 2.0 * ROUNDOFF)
                new_high = back * (1.0 + 2.0 * ROUNDOFF) / smallest * (1.0 + 2.0 * ROUNDOFF) if smallest > 0.0 else math.inf
                r_low, r_high = _clip_ratio(float(k), count, odds, new_low, new_high)
    mass, doubt = np.ones(high - low + 1), np.zeros(high - low + 1)
    base = min(max(int(b - flip * (b - a)), low), high)  # about the mean
    for i in range(base + 1 - low, high - low + 1):
        mass[i] = mass[i - 1] * ratio[i] if mass[i - 1] > MIN_MASS else 0.0
        doubt[i] = doubt[i - 1] + error[i] + 2.0 * ROUNDOFF
    for i in range(base - low, 0, -1):
        mass[i - 1] = mass[i] / ratio[i] if mass[i] > MIN_MASS else 0.0
        doubt[i - 1] = doubt[i] + error[i] + 2.0 * ROUNDOFF
    total, uncertain, largest, local = 0.0, 0.0, 0.0, 0.0
    for i in range(high - low + 1):
        total += mass[i]
        uncertain += mass[i] * doubt[i]
        if mass[i] > 0.0:
            largest = max(largest, doubt[i])
            local = max(local, error[i])
    rounding = (high - low + 8) * ROUNDOFF
    for i in range(high - low + 1):
        mass[i] /= total
    # e^x - 1 <= 1.1 x below 0.1; above it the certificate is refused by the caller
    return mass, local + 4.0 * ROUNDOFF, 1.01 * (largest + 1.1 * uncertain / total + rounding)


@njit(cache=True)
def hockey_sticks(p: Floats, q: Floats, factor: float, ratio: float) -> float:
    """The larger of sum max(0, factor p - ratio q) and sum max(0, factor q - ratio p)."""
    up, down = 0.0, 0.0
    for i in range(len(p)):
        x, y = factor * p[i] - ratio * q[i], factor * q[i] - ratio * p[i]
        up += x if x > 0.0 else 0.0
        down += y if y > 0.0 else 0.0
    return max(up, down) * (1.0 + (len(p) + 8) * ROUNDOFF)


@njit(cache=True)
def half_line_curve(p: Floats, q: Floats, slack: float, growth: Floats) -> Floats:
    """At least the larger of sum max(0, c p - g/c q) and sum max(0, c q - g/c p), c = e^slack, for every g of the ascending `growth`.

    The true p/q rises and is within e^(2 slack) of the given one. So from the first positive term on (k >= t) none is below
    -(e^(4 slack) - 1) c p, and the sum over k >= t, plus (e^(4 slack) - 1) c sum of p, is no less than that of the positive terms.
    The sums are good to as many roundings as they have terms, and g/c times that of q is hardly above c times that of p.
    Where p was set to zero, q counts as zero too, which only adds.
    """
    size = len(p)
    factor = math.exp(slack) * (1.0 + 16.0 * ROUNDOFF)
    extra = (math.expm1(4.0 * slack) + 64.0 * ROUNDOFF) * 1.01 + 4.0 * (size + 16) * ROUNDOFF
    deltas = np.zeros(len(growth))
    more, less = np.zeros(size + 1), np.zeros(size + 1)
    for upwards in range(2):
        for i in range(size):
            k = size - 1 - i if upwards == 1 else i
            gained, paid = (p[k], q[k]) if upwards == 1 else (q[k], p[k])
            more[i + 1] = more[i] + gained
            less[i + 1] = less[i] + (paid if gained > 0.0 else 0.0)
        count = size
        for index in range(len(growth)):
            ratio = growth[index] / factor * (1.0 - 16.0 * ROUNDOFF)
            while count > 0:
                k = size - count if upwards == 1 else count - 1
                gained, paid = (p[k], q[k]) if upwards == 1 else (q[k], p[k])
                if factor * gained > ratio * paid:
                    break
                count -= 1
            value = factor * more[count] * (1.0 + extra) - ratio * less[count]
            deltas[index] = max(deltas[index], value)
    return deltas


@njit(cache=True)
def every_curve(others: Floats, flip: float, growth: Floats, last: int, local: float) -> Floats:
    """Row d: `half_line_curve` of the pair that differs by d bits, d = 0..last."""
    size = len(others)
    p, q = np.zeros(size + last), np.zeros(size + last)
    for i in range(size):  # not by slices, which take seconds to compile
        p[i], q[i] = others[i], others[i]
    deltas = np.zeros((last + 1, len(growth)))
    for d in range(1, last + 1):
        _one_more(p, size + d - 1, flip, 1.0 - flip)
        _one_more(q, size + d - 1, 1.0 - flip, flip)
        row = half_line_curve(p[: size + d], q[: size + d], 1.01 * d * (local + 4.0 * ROUNDOFF), growth)
        for i in range(len(growth)):
            deltas[d, i] = row[i]
    return deltas


@njit(cache=True)
def moved_pair(others: Floats, flip: float, distance: int) -> tuple[Floats, Floats]:
    """others * Bin(distance, 1-flip) and others * Bin(distance, flip)."""
    size = len(others)
    p, q = np.zeros(size + distance), np.zeros(size + distance)
    for i in range(size):  # not by slices, which take seconds to compile
        p[i], q[i] = others[i], others[i]
    for d in range(distance):
        _one_more(p, size + d, flip, 1.0 - flip)
        _one_more(q, size + d, 1.0 - flip, flip)
    return p, q


@njit(cache=True)
def _one_more(law: Floats, size: int, stays: float, moves: float) -> None:
    """Add one bit, 0 or 1 with these probabilities, to the law held in law[:size]."""
    law[size] = moves * law[size - 1]
    for i in range(size - 1, 0, -1):
        law[i] = stays * law[i] + moves * law[i - 1]
    law[0] = stays * law[0]


@njit(cache=True)
def every_distance(others: Floats, flip: float, growth: Floats, first: int, local: float) -> Floats:
    """The larger hockey-stick of the pair at each distance first..first+len(growth)-1; growth[i] = e^epsilon there."""
    size = len(others)
    last = first + len(growth) - 1
    p, q = np.zeros(size + last), np.zeros(size + last)
    for i in range(size):  # not by slices, which take seconds to compile
        p[i], q[i] = others[i], others[i]
    deltas = np.zeros(len(growth))
    for d in range(1, last + 1):
        _one_more(p, size + d - 1, flip, 1.0 - flip)
        _one_more(q, size + d - 1, 1.0 - flip, flip)
        if d >= first:
            slack = math.exp(d * (local + 4.0 * ROUNDOFF)) * (1.0 + 16.0 * ROUNDOFF)
            deltas[d - first] = hockey_sticks(p[: size + d], q[: size + d], slack, growth[d - first] / slack)
    return deltas
