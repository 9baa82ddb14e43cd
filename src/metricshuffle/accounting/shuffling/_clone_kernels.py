"""Compiled sums over the number of clones for `clone_bound`, with certified ends.

Imported only where used, because numba costs 0.3 s to import.

Notation of `shuffling.clone_bound.delta_upper`: p is the largest ratio of the two laws of person
1's report, e denotes e^epsilon, r0 and r1 are the probabilities that another report is a clone of
the first or second kind, C is the number of clones, w0 = (p-e)/r0 and w1 = (p e - 1)/r1. The
kernels take gain = (p-e)/(p+1), growth = e - 1, odds = w0/w1, rho = r0/(r0+r1), sigma = 1 - rho,
and doubt, which bounds the relative error of gain and odds.

h(c) is the hockey-stick divergence of the pair given C = c. P_c(j) is the probability that Bin(c,
rho) = j, and S_c(j) that Bin(c, rho) >= j. With k = `_threshold`(c, odds), h(c) = gain P_c(k-1) -
growth S_c(k). In the code, `tail` is S_c(k) relative to the probability P_c(k-1) of the current
anchor.
"""

# numba's decorators carry no types.
# mypy: disable-error-code="untyped-decorator, no-any-return"
from __future__ import annotations

import math

import numpy as np
from numba import njit

from metricshuffle.accounting.shuffling._binomial_tail_kernels import (
    log_pmf,
    tail_fraction,
    upper_tail,
)
from metricshuffle.numerics.rounding import ROUNDOFF
from metricshuffle.numerics.types import Floats

# Clone counts between two anchors; limits the error of the recurrences to a few hundred ulp.
SEGMENT_COUNTS = 64


@njit(cache=True)
def positive(value: float) -> float:
    """Return the positive part; unlike max(value, 0), it preserves NaN."""
    return 0.0 if value <= 0.0 else value


@njit(cache=True)
def _threshold(c: float, odds: float) -> float:
    """Return the least number of reports of the first kind, of c + 1, that favours the first input.

    This is floor((c+1)/(1+odds)) + 1, at most c + 1.
    """
    if odds < 1.0:  # (c+1)/(1+odds) would lose the digits of small odds
        return min(c + 2.0 - math.ceil((c + 1.0) * odds / (1.0 + odds)), c + 1.0)
    return min(math.floor((c + 1.0) / (1.0 + odds)) + 1.0, c + 1.0)


@njit(cache=True)
def _anchor(
    c: float, k: float, gain: float, growth: float, rho: float, sigma: float
) -> tuple[float, float, float, float]:
    """Return log P_c(k-1), a bound on its error, and a lower and an upper bound on S_c(k)/P_c(k-1).

    With tail = S_c(k)/P_c(k-1), h(c) = P_c(k-1) (gain - growth * tail).
    """
    log, error = log_pmf(k - 1.0, c, rho, sigma)
    if k > c or growth == 0.0:
        return log, error, 0.0, 0.0
    # The tail need not be more precise than the gain from which it is subtracted.
    rough = 1e-15 * max(1.0, gain / (growth * (1.0 + math.sqrt(c * rho * sigma))))
    lower, upper = tail_fraction(k, c, rho, sigma, min(rough, 1e-3))
    top = (c - k + 1.0) * rho
    return log, error, top / upper * (1.0 - 4.0 * ROUNDOFF), top / lower * (1.0 + 4.0 * ROUNDOFF)


@njit(cache=True)
def one_count(
    c: float, gain: float, growth: float, odds: float, rho: float, sigma: float, doubt: float
) -> tuple[float, float]:
    """Bracket the hockey-stick divergence of the pair given that there are c clones."""
    k = _threshold(c, odds)
    log, error, tail_least, tail_most = _anchor(c, k, gain, growth, rho, sigma)
    scale = math.exp(log)
    if scale == 0.0:
        return 0.0, 1e-300
    upper = gain * (1.0 + doubt) - (growth * (1.0 - 4.0 * ROUNDOFF)) * tail_least
    lower = gain * (1.0 - doubt) - (growth * (1.0 + 4.0 * ROUNDOFF)) * tail_most
    return positive(lower) * scale * (1.0 - error - 4.0 * ROUNDOFF), positive(upper) * scale * (
        1.0 + error + 4.0 * ROUNDOFF
    ) + 1e-300


@njit(cache=True)
def every_count(
    count: float,
    high: float,
    low: float,
    first: float,
    last: float,
    gain: float,
    growth: float,
    odds: float,
    rho: float,
    sigma: float,
    doubt: float,
) -> tuple[float, float]:
    """Bracket the sum of P(C = c) h(c) over c = first..last, C ~ Bin(count, high).

    c runs downwards. From one c to the next, P_c(k-1), the tail S_c(k) and the weight P(C = c) obey
    one-term recurrences, with S_{c-1}(k) = S_c(k) - rho P_{c-1}(k-1) and S_c(k-1) = S_c(k) +
    P_c(k-1). The tail grows from step to step, so its relative error does not grow. All three are
    relative to their values at an anchor, which is renewed every SEGMENT_COUNTS counts.
    """
    least_total = 0.0
    most_total = 0.0
    c = last
    while c >= first:
        k = _threshold(c, odds)
        log, error, tail_least, tail_most = _anchor(c, k, gain, growth, rho, sigma)
        weight_log, weight_error = log_pmf(c, count, high, low)
        p = 1.0
        p_error = 4.0 * ROUNDOFF
        weight = 1.0
        tail = 0.5 * (tail_least + tail_most)
        tail_error = 0.5 * (tail_most - tail_least) + ROUNDOFF * tail_most
        lower = 0.0
        upper = 0.0
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
            if k > c:  # all c + 1 reports are of the first kind: the tail is empty
                p /= rho
                k -= 1.0
                p_error += 2.0 * ROUNDOFF
                tail = 0.0
                tail_error = 0.0
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
def summed_blocks(
    count: float, high: float, low: float, first: float, last: float, width: float
) -> tuple[Floats, Floats, Floats]:
    """Bracket P(left_j <= C < left_{j+1}) for blocks of `width` counts, by adding the masses.

    left_j is the left end of block j, and C ~ Bin(count, high). Returns the left ends, the lower
    bounds and the upper bounds. Blocks that start more than three standard deviations from the
    mean, where wide blocks lose little, are four times as wide.
    """
    mean = count * high
    spread = math.sqrt(count * high * low)
    room = int((last - first) // width) + 2
    ends = np.empty(room + 1)
    lower = np.zeros(room)
    upper = np.zeros(room)
    c = first
    blocks = 0
    while c <= last:
        ends[blocks] = c
        stop = min(c + (width if abs(c - mean) < 3.0 * spread else 4.0 * width), last + 1.0)
        while c < stop:
            log, error = log_pmf(c, count, high, low)
            mass = 1.0
            total = 0.0
            steps = 0.0
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
    return (
        ends[: blocks + 1],
        lower[:blocks] * (1.0 - rounding),
        upper[:blocks] * (1.0 + rounding) + 1e-300,
    )


@njit(cache=True)
def wide_blocks(
    count: float, high: float, low: float, first: float, last: float, share: float
) -> tuple[Floats, Floats, Floats]:
    """Return blocks as `summed_blocks`, 1/4 to 1 standard deviation wide, from tails at their ends.

    Within these limits a block is `share`/2 of the mean wide. The mass of a block is the difference
    of two tails, except for the block that contains the mean: its mass is 1 minus the tails on both
    sides.
    """
    mean = count * high
    spread = math.sqrt(count * high * low)
    width = min(spread, max(0.25 * spread, 0.5 * share * mean))
    left = int((mean - first) / width + 0.5)
    right = int((last - mean) / width + 0.5)
    ends = np.empty(left + right + 2)
    ends[0], blocks = first, 0
    for i in range(left + right + 1):
        offset = (i - left + 0.5) * width  # the mean lies in the middle of a block
        end = last + 1.0 if i == left + right else math.floor(mean + offset)
        if end > ends[blocks]:
            blocks += 1
            ends[blocks] = end
    ends = ends[: blocks + 1]
    lower = np.zeros(blocks)
    upper = np.zeros(blocks)
    below, below_most = upper_tail(count - ends[0] + 1.0, count, low, high)
    for j in range(blocks):
        if ends[j + 1] <= mean:  # differences of lower tails
            new, new_most = upper_tail(count - ends[j + 1] + 1.0, count, low, high)
            lower[j], upper[j] = new - below_most, new_most - below
            below = new
            below_most = new_most
    above, above_most = upper_tail(ends[blocks], count, high, low)
    for j in range(blocks - 1, -1, -1):
        if ends[j] > mean:
            new, new_most = upper_tail(ends[j], count, high, low)
            lower[j], upper[j] = new - above_most, new_most - above
            above = new
            above_most = new_most
    for j in range(blocks):
        if ends[j] <= mean < ends[j + 1]:
            lower[j], upper[j] = (
                1.0 - below_most - above_most - 4.0 * ROUNDOFF,
                1.0 - below - above + 4.0 * ROUNDOFF,
            )
    for j in range(blocks):
        lower[j] = max(lower[j] * (1.0 - 4.0 * ROUNDOFF), 0.0)
        upper[j] = positive(upper[j] * (1.0 + 4.0 * ROUNDOFF)) + 1e-300
    return ends, lower, upper


@njit(cache=True)
def every_block(
    ends: Floats,
    masses: Floats,
    upwards: bool,
    gain: float,
    growth: float,
    odds: float,
    rho: float,
    sigma: float,
    doubt: float,
) -> float:
    """Bound the sum of P(C = c) h(c) by blocks of c, above or below.

    h decreases with c, so h at the left end of a block bounds it above on the whole block, and h at
    the last count of the block bounds it below.
    """
    total = 0.0
    for j in range(len(masses)):
        if not masses[j] <= 0.0:
            c = ends[j] if upwards else ends[j + 1] - 1.0
            lower, upper = one_count(c, gain, growth, odds, rho, sigma, doubt)
            total += masses[j] * (upper if upwards else lower)
    rounding = (len(masses) + 8) * ROUNDOFF
    return total * (1.0 + rounding) if upwards else total * (1.0 - rounding)
