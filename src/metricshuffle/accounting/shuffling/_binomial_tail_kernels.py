"""Compiled binomial masses and tails with certified errors, imported only where used.

Used by the clone bound (`_clone_kernels`, `_clone_counts`) and by `closed_form_bounds`. numba costs
0.3 s to import. A binomial law is written Bin(count, high), with low = 1 - high. The smaller one of
high and low is taken as exact; the larger one is used only as a factor. Every value carries a bound
on its rounding error. Compiled callers in other files are cached with what they call: after a
change here, delete __pycache__.
"""

# numba's decorators carry no types.
# mypy: disable-error-code="untyped-decorator, no-any-return"
from __future__ import annotations

import math

import numpy as np
from numba import njit

from metricshuffle.numerics.rounding import ROUNDOFF

MAX_TERMS = 4000  # largest number of terms of a continued fraction; the rest widens the bracket
LOG_TWO_PI = math.log(2.0 * math.pi)
# log n! - Stirling's formula, n = 0..15
STIRLING = np.array(
    [
        0.0,
        0.0810614667953272582,
        0.0413406959554092941,
        0.0276779256849983391,
        0.0207906721037650931,
        0.0166446911898211922,
        0.013876128823070748,
        0.0118967099458917701,
        0.0104112652619720965,
        0.00925546218271273292,
        0.00833056343336287126,
        0.00757367548795184079,
        0.00694284010720952987,
        0.00640899418800420707,
        0.00595137011275884774,
        0.00555473355196280137,
    ]
)


@njit(cache=True)
def _product_error(a: float, b: float) -> float:
    """Return a * b minus its rounded value, exactly (Dekker)."""
    t = 134217729.0 * a
    a_high = t - (t - a)
    a_low = a - a_high
    t = 134217729.0 * b
    b_high = t - (t - b)
    b_low = b - b_high
    return ((a_high * b_high - a * b) + a_high * b_low + a_low * b_high) + a_low * b_low


@njit(cache=True)
def _excess(k: float, count: float, high: float, low: float) -> float:
    """Return k - count * high, to a few ulp of itself even for counts near 2^52."""
    if high <= low:
        return (k - count * high) - _product_error(count, high)
    return -(((count - k) - count * low) - _product_error(count, low))


@njit(cache=True)
def _stirling(n: float) -> float:
    if n <= 15.0:
        return STIRLING[int(n)]
    x = 1.0 / (n * n)
    return (
        1.0 / 12.0 - (1.0 / 360.0 - (1.0 / 1260.0 - (1.0 / 1680.0 - x / 1188.0) * x) * x) * x
    ) / n


@njit(cache=True)
def _deviance(x: float, mean: float, gap: float) -> tuple[float, float]:
    """Return x log(x/mean) + mean - x for gap = x - mean, and a bound on its error.

    See Loader 2000.
    """
    if abs(gap) < 0.1 * (x + mean):
        v = gap / (x + mean)
        total = gap * v
        term = 2.0 * x * v
        v *= v
        for j in range(1, 40):
            term *= v
            new = total + term / (2.0 * j + 1.0)
            if new == total:
                break
            total = new
        return total, 32.0 * ROUNDOFF * abs(total)
    log = math.log(x / mean)
    return x * log - gap, 8.0 * ROUNDOFF * (x * abs(log) + abs(gap) + x)


@njit(cache=True)
def log_pmf(k: float, count: float, high: float, low: float) -> tuple[float, float]:
    """Return log P(Bin(count, high) = k) and a bound on its error.

    By Loader's saddle point expansion, never a difference of log-gammas.
    """
    if k < 0.0 or k > count:
        return -math.inf, 0.0
    if k == 0.0 or k == count:
        own, complement = (low, high) if k == 0.0 else (high, low)
        if count == 0.0:
            return 0.0, 0.0
        if own == 0.0:
            return -math.inf, 0.0
        value = count * (math.log(own) if own <= complement else math.log1p(-complement))
        return value, 8.0 * ROUNDOFF * abs(value) + 2.0 * ROUNDOFF
    if high == 0.0 or low == 0.0:
        return -math.inf, 0.0
    gap = _excess(k, count, high, low)
    deviance, deviance_error = _deviance(k, count * high, gap)
    two, two_error = _deviance(count - k, count * low, -gap)
    value = _stirling(count) - _stirling(k) - _stirling(count - k) - deviance - two
    value -= 0.5 * (LOG_TWO_PI + math.log(k) + math.log((count - k) / count))
    return value, deviance_error + two_error + 4.0 * ROUNDOFF * abs(value) + 64.0 * ROUNDOFF


@njit(cache=True)
def tail_fraction(
    k: float, count: float, high: float, low: float, relative: float
) -> tuple[float, float]:
    """Bracket F in P(Bin >= k) = P(Bin = k-1) * (count-k+1) * high / F, for mean < k <= count.

    F = b_0 + a_1/(b_1 + a_2/(b_2 + ..)) is the continued fraction of Didonato and Morris (1992) for
    the incomplete beta function I_high(k, count-k+1); it ends at n = count-k+1. Above the mean all
    a_n and b_n are positive, so two consecutive convergents enclose F. The fraction is evaluated
    backwards, where each step shrinks the error of the step before. The bracket is about `relative`
    wide, unless MAX_TERMS terms do not suffice.
    """
    a = k
    b = count - k + 1.0
    lead = _excess(k, count, high, low) + low  # k - (count+1) high + 1
    spread = max(count * high * low, 1e-300)
    depth = -math.log(relative)
    # The error is exp(-z sqrt(8 terms)), z = lead/sqrt(spread).
    terms = 8.0 + 0.14 * depth * depth * spread / (lead * lead)
    for _ in range(16):
        last = math.floor(min(min(terms, MAX_TERMS), b - 1.0))
        lower = 0.0
        upper = 0.0
        error = 0.0
        n = last + 1.0
        open_end = n < b
        if open_end:  # the rest of the fraction from b_n on lies between b_n and infinity
            lower = (
                n
                + n * (b - n) * high / (a + 2.0 * n - 1.0)
                + (a + n) * (lead + n * (1.0 + low)) / (a + 2.0 * n + 1.0)
            )
        n = last
        while n >= 0.0:
            c = n + 1.0
            next_a = 0.0
            if c < b:
                ratio = high / (a + 2.0 * n + 1.0)
                next_a = (a + n) * ratio * (count + c) * ratio * c * (b - c)
            b_n = (a + n) * (lead + n * (1.0 + low)) / (a + 2.0 * n + 1.0)
            if n > 0.0:
                b_n += n + n * (b - n) * high / (a + 2.0 * n - 1.0)
            if c < b:
                max_fraction = next_a / lower
                min_fraction = 0.0 if n == last else next_a / upper
                error = 16.0 * ROUNDOFF + (max_fraction / (b_n + max_fraction)) * (
                    error + 16.0 * ROUNDOFF
                )
                lower = b_n + min_fraction
                upper = b_n + max_fraction
            else:
                lower = b_n
                upper = b_n
                error = 16.0 * ROUNDOFF
            n -= 1.0
        if not open_end or not upper - lower > relative * lower or last >= MAX_TERMS:
            return lower * (1.0 - error - 4.0 * ROUNDOFF), upper * (1.0 + error + 4.0 * ROUNDOFF)
        terms *= 2.0
    return math.nan, math.nan


@njit(cache=True)
def upper_tail(k: float, count: float, high: float, low: float) -> tuple[float, float]:
    """Bracket P(Bin(count, high) >= k), for k above the mean."""
    if k > count:
        return 0.0, 0.0
    if k <= 0.0:
        return 1.0, 1.0
    log, error = log_pmf(k - 1.0, count, high, low)
    lower, upper = tail_fraction(k, count, high, low, 1e-9)
    mass = math.exp(log) * (count - k + 1.0) * high
    error += 8.0 * ROUNDOFF
    return mass / upper * (1.0 - error), min(1.0, mass / lower * (1.0 + error) + 1e-300)


@njit(cache=True)
def log_upper_tail(k: float, count: float, high: float, low: float) -> float:
    """Upper bound on log P(Bin(count, high) >= k) for k above the mean, by the geometric series."""
    if k > count:
        return -math.inf
    log, error = log_pmf(k, count, high, low)
    shrink = (count - k) * high / ((k + 1.0) * low) if low > 0.0 else 1.0
    if not shrink < 1.0:
        return 0.0
    return min(0.0, log + error + 1e-15 - math.log1p(-shrink * (1.0 - 1e-15)))


@njit(cache=True)
def _first_beyond(count: float, high: float, low: float, log_tail: float) -> float:
    """Return the smallest k found above the mean with P(Bin(count, high) >= k) <= e^log_tail.

    This function is compiled, so it cannot use `numerics.certified_search`.
    """
    failing = float(math.floor(count * high))
    passing = count + 1.0
    step = 1.0 + math.floor(math.sqrt(-2.0 * log_tail * count * high * low))
    while failing + step < passing:
        if log_upper_tail(failing + step, count, high, low) <= log_tail:
            passing = failing + step
        else:
            failing += step
            step *= 2.0
    while passing - failing > 1.0:
        middle = math.floor(0.5 * (failing + passing))
        if middle > failing and log_upper_tail(middle, count, high, low) <= log_tail:
            passing = middle
        else:
            failing = middle
    return passing


@njit(cache=True)
def window(
    count: float, high: float, low: float, log_left: float, log_right: float
) -> tuple[float, float, float, float]:
    """Return first, last and upper bounds on P(C < first) and P(C > last), C ~ Bin(count, high).

    The two bounds are at most e^log_left and e^log_right.
    """
    if low <= 0.0:
        return count, count, 0.0, 0.0
    last = min(count, _first_beyond(count, high, low, log_right) - 1.0)
    mirrored = _first_beyond(count, low, high, log_left)
    first = min(max(0.0, count - mirrored + 1.0), last)
    left = math.exp(log_upper_tail(count - first + 1.0, count, low, high)) if first > 0.0 else 0.0
    right = math.exp(log_upper_tail(last + 1.0, count, high, low)) if last < count else 0.0
    return first, last, left, right
