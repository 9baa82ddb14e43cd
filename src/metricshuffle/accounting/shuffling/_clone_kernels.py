"""Compiled sums over the number of clones; imported only where used (numba costs 0.3 s).

Notation of `shuffling.clone_bound.delta_upper`: gain = (p-e)/(p+1), growth = e-1, odds = w0/w1, rho = r0/(r0+r1), sigma = 1-rho, and doubt
is the relative error of gain and odds. h(c) is the hockey-stick of the pair given C = c.
"""

# numba's decorators carry no types.
# mypy: disable-error-code="untyped-decorator, no-any-return"
from __future__ import annotations

import math

import numpy as np
from numba import njit

from metricshuffle.accounting.shuffling._binomial_tail_kernels import log_pmf, tail_fraction, upper_tail
from metricshuffle.numerics.rounding import ROUNDOFF
from metricshuffle.numerics.types import Floats

SEGMENT_COUNTS = 64  # clone counts between two anchors: keeps the error of the recurrences at a few hundred ulp


@njit(cache=True)
def positive(value: float) -> float:
    """The positive part; unlike max(value, 0), it keeps a NaN."""
    return 0.0 if value <= 0.0 else value


@njit(cache=True)
def _threshold(c: float, odds: float) -> float:
    """The least number of reports of the first kind, out of c + 1, that speaks for it: floor((c+1)/(1+odds)) + 1, at most c + 1."""
    if odds < 1.0:  # from above, where the rounding of 1 + odds would cost as much as odds is small
        return min(c + 2.0 - math.ceil((c + 1.0) * odds / (1.0 + odds)), c + 1.0)
    return min(math.floor((c + 1.0) / (1.0 + odds)) + 1.0, c + 1.0)


@njit(cache=True)
def _anchor(c: float, k: float, gain: float, growth: float, rho: float, sigma: float) -> tuple[float, float, float, float]:
    """h(c) = P(Bin = k-1) * (gain - growth * tail): log P, its error, and bounds on the tail relative to P."""
    log, error = log_pmf(k - 1.0, c, rho, sigma)
    if k > c or growth == 0.0:
        return log, error, 0.0, 0.0
    # the fraction need not be known better than what it is subtracted from
    rough = 1e-15 * max(1.0, gain / (growth * (1.0 + math.sqrt(c * rho * sigma))))
    lower, upper = tail_fraction(k, c, rho, sigma, min(rough, 1e-3))
    top = (c - k + 1.0) * rho
    return log, error, top / upper * (1.0 - 4.0 * ROUNDOFF), top / lower * (1.0 + 4.0 * ROUNDOFF)


@njit(cache=True)
def one_count(c: float, gain: float, growth: float, odds: float, rho: float, sigma: float, doubt: float) -> tuple[float, float]:
    """Bounds (least, most) on the hockey-stick of the pair given that there are c clones."""
    k = _threshold(c, odds)
    log, error, tail_least, tail_most = _anchor(c, k, gain, growth, rho, sigma)
    scale = math.exp(log)
    if scale == 0.0:
        return 0.0, 1e-300
    upper = gain * (1.0 + doubt) - (growth * (1.0 - 4.0 * ROUNDOFF)) * tail_least
    lower = gain * (1.0 - doubt) - (growth * (1.0 + 4.0 * ROUNDOFF)) * tail_most
    return positive(lower) * scale * (1.0 - error - 4.0 * ROUNDOFF), positive(upper) * scale * (1.0 + error + 4.0 * ROUNDOFF) + 1e-300


@njit(cache=True)
def every_count(
    count: float, high: float, low: float, first: float, last: float,
    gain: float, growth: float, odds: float, rho: float, sigma: float, doubt: float,
) -> tuple[float, float]:  # fmt: skip
    """Bounds on the sum of P(C = c) h(c) over c = first..last, C = Bin(count, high).

    Downwards in c: P, the tail and the weight obey one-term recurrences, with S_{c-1}(k) = S_c(k) - rho P_{c-1}(k-1) and
    S(k-1) = S(k) + P(k-1). S grows on the way, so that errors do not. Everything is relative to an anchor, which is
    renewed every SEGMENT_COUNTS counts.
    """
    least_total, most_total = 0.0, 0.0
    c = last
    while c >= first:
        k = _threshold(c, odds)
        log, error, tail_least, tail_most = _anchor(c, k, gain, growth, rho, sigma)
        weight_log, weight_error = log_pmf(c, count, high, low)
        p, p_error, weight = 1.0, 4.0 * ROUNDOFF, 1.0
        tail, tail_error = 0.5 * (tail_least + tail_most), 0.5 * (tail_most - tail_least) + ROUNDOFF * tail_most
        lower, upper = 0.0, 0.0
        steps = 0
        while True:
            value = gain * p
            cost = growth * tail
            error_bound = value * (p_error + doubt) + growth * tail_error + 4.0 * ROUNDOFF * cost
            upper += weight * positive(value - cost + error_bound)
            lower += weight * positive(value - cost - error_bound)
            steps += 1
            if steps == SEGMENT_COUNTS or c - 1.0 < first:
                break
            weight *= c * low / ((count - c + 1.0) * high)
            next_k = _threshold(c - 1.0, odds)
            if k > c:  # all c + 1 of the first kind: the tail is empty
                p /= rho
                k -= 1.0
                p_error += 2.0 * ROUNDOFF
                tail, tail_error = 0.0, 0.0
            else:
                p *= (c - k + 1.0) / (c * sigma)
                p_error += 5.0 * ROUNDOFF
                tail -= rho * p
                tail_error += rho * p * p_error + 2.0 * ROUNDOFF * (tail + rho * p)
            c -= 1.0
            while k > next_k:
                tail += p
                tail_error += p * p_error + 2.0 * ROUNDOFF * tail
                p *= (k - 1.0) * sigma / ((c - k + 2.0) * rho)
                p_error += 5.0 * ROUNDOFF
                k -= 1.0
            tail = max(tail, 0.0)
        c -= 1.0
        scale = math.exp(log + weight_log)
        error += weight_error + 8.0 * SEGMENT_COUNTS * ROUNDOFF
        most_total += upper * scale * (1.0 + error) + 1e-300
        least_total += lower * scale * (1.0 - error)
    rounding = (last - first + 8.0) * ROUNDOFF
    return least_total * (1.0 - rounding), most_total * (1.0 + rounding)


@njit(cache=True)
def summed_blocks(count: float, high: float, low: float, first: float, last: float, width: float) -> tuple[Floats, Floats, Floats]:
    """(left ends, least, most) of P(left_j <= C < left_{j+1}) for blocks of `width` counts, by adding the masses.

    Beyond three standard deviations, where there is little to lose, blocks are four times as wide.
    """
    mean, spread = count * high, math.sqrt(count * high * low)
    room = int((last - first) // width) + 2
    ends, lower, upper = np.empty(room + 1), np.zeros(room), np.zeros(room)
    c, blocks = first, 0
    while c <= last:
        ends[blocks] = c
        stop = min(c + (width if abs(c - mean) < 3.0 * spread else 4.0 * width), last + 1.0)
        while c < stop:
            log, error = log_pmf(c, count, high, low)
            mass, total, steps = 1.0, 0.0, 0.0
            while c < stop and steps < 64.0:
                total += mass
                mass *= (count - c) * high / ((c + 1.0) * low)
                c += 1.0
                steps += 1.0
            total *= math.exp(log)
            upper[blocks] += total * (1.0 + error + 512.0 * ROUNDOFF)
            lower[blocks] += total * (1.0 - error - 512.0 * ROUNDOFF)
        blocks += 1
    ends[blocks] = last + 1.0
    rounding = (width + 8.0) * ROUNDOFF
    return ends[: blocks + 1], lower[:blocks] * (1.0 - rounding), upper[:blocks] * (1.0 + rounding) + 1e-300


@njit(cache=True)
def wide_blocks(count: float, high: float, low: float, first: float, last: float, share: float) -> tuple[Floats, Floats, Floats]:
    """Like summed_blocks, for blocks 1/4 to 1 standard deviation wide, from the tails at their ends; one block holds the mean."""
    mean, spread = count * high, math.sqrt(count * high * low)
    width = min(spread, max(0.25 * spread, 0.5 * share * mean))
    left, right = int((mean - first) / width + 0.5), int((last - mean) / width + 0.5)
    ends = np.empty(left + right + 2)
    ends[0], blocks = first, 0
    for i in range(left + right + 1):
        offset = (i - left + 0.5) * width  # the mean lies in the middle of a block
        end = last + 1.0 if i == left + right else math.floor(mean + offset)
        if end > ends[blocks]:
            blocks += 1
            ends[blocks] = end
    ends = ends[: blocks + 1]
    lower, upper = np.zeros(blocks), np.zeros(blocks)
    below, below_most = upper_tail(count - ends[0] + 1.0, count, low, high)
    for j in range(blocks):
        if ends[j + 1] <= mean:  # differences of lower tails
            new, new_most = upper_tail(count - ends[j + 1] + 1.0, count, low, high)
            lower[j], upper[j] = new - below_most, new_most - below
            below, below_most = new, new_most
    above, above_most = upper_tail(ends[blocks], count, high, low)
    for j in range(blocks - 1, -1, -1):
        if ends[j] > mean:
            new, new_most = upper_tail(ends[j], count, high, low)
            lower[j], upper[j] = new - above_most, new_most - above
            above, above_most = new, new_most
    for j in range(blocks):
        if ends[j] <= mean < ends[j + 1]:
            lower[j], upper[j] = 1.0 - below_most - above_most - 4.0 * ROUNDOFF, 1.0 - below - above + 4.0 * ROUNDOFF
    for j in range(blocks):
        lower[j] = max(lower[j] * (1.0 - 4.0 * ROUNDOFF), 0.0)
        upper[j] = positive(upper[j] * (1.0 + 4.0 * ROUNDOFF)) + 1e-300
    return ends, lower, upper


@njit(cache=True)
def every_block(
    ends: Floats, masses: Floats, upwards: bool,
    gain: float, growth: float, odds: float, rho: float, sigma: float, doubt: float,
) -> float:  # fmt: skip
    """A bound on the same sum: h falls in c, so the left end of each block bounds it above, the last count of it below."""
    total = 0.0
    for j in range(len(masses)):
        if not masses[j] <= 0.0:
            c = ends[j] if upwards else ends[j + 1] - 1.0
            lower, upper = one_count(c, gain, growth, odds, rho, sigma, doubt)
            total += masses[j] * (upper if upwards else lower)
    rounding = (len(masses) + 8) * ROUNDOFF
    return total * (1.0 + rounding) if upwards else total * (1.0 - rounding)
