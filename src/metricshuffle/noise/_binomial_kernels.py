# mypy: disable-error-code="untyped-decorator"
"""Compiled loops for the sum of two binomials, used by binomial_sum.py and flipped_bit_count.py.

Notation: the sum counts the ones among `ones` bits that are 1 and `zeros` bits that are 0, after
each was flipped with probability `flip`. N = ones + zeros, f(k) is the probability that the count
is k, r_k = f(k)/f(k-1), and odds = flip/(1-flip). p and q are the tabulated laws of the count for
two data sets, p for the one with more ones. The module is imported only where it is used, because
numba takes 0.3 s to load.
"""

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
    small = odds * (zeros - k)
    large = (ones - k) / odds
    return (
        (small + large) / (k + 1.0),
        8.0 * ROUNDOFF * (abs(small) + abs(large)) / (k + 1.0),
        (ones + zeros - k + 1.0) / (k + 1.0),
    )


@njit(cache=True)
def _clip_ratio(
    k: float, count: float, odds: float, low: float, high: float
) -> tuple[float, float]:
    """Intersect [low, high] with (count - k + 1)/k * [odds, 1/odds].

    The second interval, rounded outwards, contains r_k for every sum of `count` such bits.
    """
    scale = (count - k + 1.0) / k
    return max(low, scale * odds * (1.0 - 8.0 * ROUNDOFF)), min(
        high, scale / odds * (1.0 + 8.0 * ROUNDOFF)
    )


# A division by zero gives a value that is not finite, which the caller refuses.
@njit(cache=True, error_model="numpy")
def two_binomials(
    ones: int, zeros: int, flip: float, low: int, high: int, warm_up: int
) -> tuple[Floats, float, float]:
    """Masses of Bin(ones, 1-flip) + Bin(zeros, flip) on low..high, normalised, with error bounds.

    Returns (masses, local, total). The masses sum to one on low..high. Compared with the true law
    given that the sum lies in low..high, log masses[i] - log masses[i-1] has an error of at most
    `local`, and log masses[i] one of at most `total`.

    With x = odds, the ratios obey r_{k+1} = A_k + B_k/r_k, A_k = (x(zeros-k) + (ones-k)/x)/(k+1),
    B_k = (N-k+1)/(k+1) > 0 (from the generating function). This recurrence contracts forwards where
    A_k > 0, and backwards where A_k < 0. It is applied in the direction in which it contracts,
    rounded outwards, to both ends of an interval that certainly contains r_k, starting `warm_up`
    cells outside of low..high.
    """
    a = float(zeros)
    b = float(ones)
    count = a + b
    odds = flip / (1.0 - flip)
    ratio = np.ones(high - low + 1)
    error = np.zeros(high - low + 1)
    # A_k > 0 for k < split, up to rounding, which the error bounds include.
    split = math.ceil((odds * a + b / odds) / (odds + 1.0 / odds))
    k = max(1, low - warm_up)
    if k < split and low < high:
        r_low, r_high = _clip_ratio(float(k), count, odds, 0.0, math.inf)
        if k == 1:
            first, up_error, _ = _coefficients(0.0, b, a, odds)
            r_low = max(r_low, first - up_error)
            r_high = min(r_high, first + up_error)
        while k < split and k <= high:
            if k > low:
                ratio[k - low], error[k - low] = 0.5 * (r_low + r_high), (r_high - r_low) / r_low
            up, up_error, back = _coefficients(float(k), b, a, odds)
            new_low = (up - up_error + back * (1.0 - 2.0 * ROUNDOFF) / r_high) * (
                1.0 - 4.0 * ROUNDOFF
            )
            new_high = (up + up_error + back * (1.0 + 2.0 * ROUNDOFF) / r_low) * (
                1.0 + 4.0 * ROUNDOFF
            )
            k += 1
            if k <= high:
                r_low, r_high = _clip_ratio(float(k), count, odds, new_low, new_high)
    k = min(ones + zeros, high + warm_up)
    if k >= split and low < high:
        r_low, r_high = _clip_ratio(float(k), count, odds, 0.0, math.inf)
        if k == ones + zeros:
            last = 1.0 / (odds * b + a / odds)
            r_low = max(r_low, last * (1.0 - 8.0 * ROUNDOFF))
            r_high = min(r_high, last * (1.0 + 8.0 * ROUNDOFF))
        while k >= split and k > low:
            if k <= high:
                ratio[k - low], error[k - low] = 0.5 * (r_low + r_high), (r_high - r_low) / r_low
            k -= 1
            if k >= 1:
                up, up_error, back = _coefficients(float(k), b, a, odds)
                smallest = (r_low - up - up_error) * (1.0 - 4.0 * ROUNDOFF)
                new_low = (
                    back
                    * (1.0 - 2.0 * ROUNDOFF)
                    / ((r_high - up + up_error) * (1.0 + 4.0 * ROUNDOFF))
                    * (1.0 - 2.0 * ROUNDOFF)
                )
                new_high = (
                    back * (1.0 + 2.0 * ROUNDOFF) / smallest * (1.0 + 2.0 * ROUNDOFF)
                    if smallest > 0.0
                    else math.inf
                )
                r_low, r_high = _clip_ratio(float(k), count, odds, new_low, new_high)
    mass = np.ones(high - low + 1)
    doubt = np.zeros(high - low + 1)
    base = min(max(int(b - flip * (b - a)), low), high)  # about the mean
    for i in range(base + 1 - low, high - low + 1):
        mass[i] = mass[i - 1] * ratio[i] if mass[i - 1] > MIN_MASS else 0.0
        doubt[i] = doubt[i - 1] + error[i] + 2.0 * ROUNDOFF
    for i in range(base - low, 0, -1):
        mass[i - 1] = mass[i] / ratio[i] if mass[i] > MIN_MASS else 0.0
        doubt[i - 1] = doubt[i] + error[i] + 2.0 * ROUNDOFF
    total = 0.0
    uncertain = 0.0
    largest = 0.0
    local = 0.0
    for i in range(high - low + 1):
        total += mass[i]
        uncertain += mass[i] * doubt[i]
        if mass[i] > 0.0:
            largest = max(largest, doubt[i])
            local = max(local, error[i])
    rounding = (high - low + 8) * ROUNDOFF
    for i in range(high - low + 1):
        mass[i] /= total
    # e^x - 1 <= 1.1 x below 0.1; the caller refuses a larger certificate.
    return mass, local + 4.0 * ROUNDOFF, 1.01 * (largest + 1.1 * uncertain / total + rounding)


@njit(cache=True)
def hockey_sticks(p: Floats, q: Floats, factor: float, ratio: float) -> float:
    """The larger of sum max(0, factor p - ratio q) and sum max(0, factor q - ratio p).

    Rounded up.
    """
    up = 0.0
    down = 0.0
    for i in range(len(p)):
        x = factor * p[i] - ratio * q[i]
        y = factor * q[i] - ratio * p[i]
        up += x if x > 0.0 else 0.0
        down += y if y > 0.0 else 0.0
    return max(up, down) * (1.0 + (len(p) + 8) * ROUNDOFF)


@njit(cache=True)
def half_line_curve(p: Floats, q: Floats, slack: float, growth: Floats) -> Floats:
    """Upper bounds on both hockey-stick sums of p and q for each g = e^epsilon of `growth`.

    `growth` must ascend. Each result is at least the larger of sum max(0, c p - (g/c) q) and sum
    max(0, c q - (g/c) p), where c = e^slack covers the errors of p and q.

    The true ratio p/q increases with k and is within a factor e^(2 slack) of the tabulated one.
    Consider the first of the two sums, and let t be the first k whose term c p - (g/c) q is
    positive. Then no term with k >= t is below -(e^(4 slack) - 1) c p. So the sum of all terms with
    k >= t, plus (e^(4 slack) - 1) times the sum of c p over k >= t, is at least the sum of the
    positive terms. The sums of p and of q over k >= t have at most one rounding error per term.
    Because (g/c) q is at most e^(4 slack) c p in each of these terms, the rounding errors of both
    sums are covered by a multiple of the sum of c p. Where p was set to zero, q counts as zero too,
    which only increases the bound. The second sum is treated in the same way, with p and q
    exchanged and k in descending order.
    """
    size = len(p)
    factor = math.exp(slack) * (1.0 + 16.0 * ROUNDOFF)
    extra = (math.expm1(4.0 * slack) + 64.0 * ROUNDOFF) * 1.01 + 4.0 * (size + 16) * ROUNDOFF
    deltas = np.zeros(len(growth))
    more = np.zeros(size + 1)
    less = np.zeros(size + 1)
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
    """Row d: `half_line_curve` of the pair that differs by d bits, d = 0..last.

    `others` is the law of the count of the bits that do not move, and `local` its error as returned
    by `two_binomials`.
    """
    size = len(others)
    p = np.zeros(size + last)
    q = np.zeros(size + last)
    for i in range(size):  # not by slices, which take seconds to compile
        p[i], q[i] = others[i], others[i]
    deltas = np.zeros((last + 1, len(growth)))
    for d in range(1, last + 1):
        _one_more(p, size + d - 1, flip, 1.0 - flip)
        _one_more(q, size + d - 1, 1.0 - flip, flip)
        row = half_line_curve(
            p[: size + d], q[: size + d], 1.01 * d * (local + 4.0 * ROUNDOFF), growth
        )
        for i in range(len(growth)):
            deltas[d, i] = row[i]
    return deltas


@njit(cache=True)
def moved_pair(others: Floats, flip: float, distance: int) -> tuple[Floats, Floats]:
    """Laws of the count of the other bits plus Bin(distance, 1-flip), and plus Bin(distance, flip).

    `others` is the law of the count of the other bits.
    """
    size = len(others)
    p = np.zeros(size + distance)
    q = np.zeros(size + distance)
    for i in range(size):  # not by slices, which take seconds to compile
        p[i], q[i] = others[i], others[i]
    for d in range(distance):
        _one_more(p, size + d, flip, 1.0 - flip)
        _one_more(q, size + d, 1.0 - flip, flip)
    return p, q


@njit(cache=True)
def _one_more(law: Floats, size: int, stays: float, moves: float) -> None:
    """Add one bit to the law in law[:size]: 0 with probability `stays`, 1 with `moves`."""
    law[size] = moves * law[size - 1]
    for i in range(size - 1, 0, -1):
        law[i] = stays * law[i] + moves * law[i - 1]
    law[0] = stays * law[0]


@njit(cache=True)
def every_distance(others: Floats, flip: float, growth: Floats, first: int, local: float) -> Floats:
    """Larger hockey-stick divergence at the distances first, first + 1, ..., rounded up.

    growth[i] = e^epsilon at the distance first + i; `others` and `local` are as for `every_curve`.
    """
    size = len(others)
    last = first + len(growth) - 1
    p = np.zeros(size + last)
    q = np.zeros(size + last)
    for i in range(size):  # not by slices, which take seconds to compile
        p[i], q[i] = others[i], others[i]
    deltas = np.zeros(len(growth))
    for d in range(1, last + 1):
        _one_more(p, size + d - 1, flip, 1.0 - flip)
        _one_more(q, size + d - 1, 1.0 - flip, flip)
        if d >= first:
            slack = math.exp(d * (local + 4.0 * ROUNDOFF)) * (1.0 + 16.0 * ROUNDOFF)
            deltas[d - first] = hockey_sticks(
                p[: size + d], q[: size + d], slack, growth[d - first] / slack
            )
    return deltas
