"""Compiled loops for the clone pair; imported only where used (numba costs 0.3 s).

Binomials here are Bin(count, high) with low = 1 - high; whichever of the two is smaller is taken as exact, the other
is only ever a factor. Every value carries a bound on its rounding error.
"""

# numba's decorators carry no types.
# mypy: disable-error-code="untyped-decorator, no-any-return"
from __future__ import annotations

import math

import numpy as np
from numba import njit
from numpy.typing import NDArray

Floats = NDArray[np.float64]

U = 2.0**-53
SEGMENT = 64  # clone counts between two anchors: keeps the error of the recurrences at a few hundred ulp
MOST_TERMS = 4000  # of a continued fraction; what is left open widens the bracket
LOG_TWO_PI = math.log(2.0 * math.pi)
# log n! - Stirling's formula, n = 0..15
STIRLING = np.array([
    0.0, 0.0810614667953272582, 0.0413406959554092941, 0.0276779256849983391, 0.0207906721037650931, 0.0166446911898211922,
    0.013876128823070748, 0.0118967099458917701, 0.0104112652619720965, 0.00925546218271273292, 0.00833056343336287126,
    0.00757367548795184079, 0.00694284010720952987, 0.00640899418800420707, 0.00595137011275884774, 0.00555473355196280137,
])  # fmt: skip


@njit(cache=True)
def _product_error(a: float, b: float) -> float:
    """a * b minus its rounded value, exactly (Dekker)."""
    t = 134217729.0 * a
    a_high = t - (t - a)
    a_low = a - a_high
    t = 134217729.0 * b
    b_high = t - (t - b)
    b_low = b - b_high
    return ((a_high * b_high - a * b) + a_high * b_low + a_low * b_high) + a_low * b_low


@njit(cache=True)
def _excess(k: float, count: float, high: float, low: float) -> float:
    """k - count * high, to a few ulp of itself even for counts near 2^52."""
    if high <= low:
        return (k - count * high) - _product_error(count, high)
    return -(((count - k) - count * low) - _product_error(count, low))


@njit(cache=True)
def _stirling(n: float) -> float:
    if n <= 15.0:
        return STIRLING[int(n)]
    x = 1.0 / (n * n)
    return (1.0 / 12.0 - (1.0 / 360.0 - (1.0 / 1260.0 - (1.0 / 1680.0 - x / 1188.0) * x) * x) * x) / n


@njit(cache=True)
def _deviance(x: float, mean: float, gap: float) -> tuple[float, float]:
    """x log(x/mean) + mean - x for gap = x - mean, and a bound on its error (Loader 2000)."""
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
        return total, 32.0 * U * abs(total)
    log = math.log(x / mean)
    return x * log - gap, 8.0 * U * (x * abs(log) + abs(gap) + x)


@njit(cache=True)
def log_pmf(k: float, count: float, high: float, low: float) -> tuple[float, float]:
    """log P(Bin(count, high) = k) and a bound on its error (Loader's saddle point; never a difference of log-gammas)."""
    if k < 0.0 or k > count:
        return -math.inf, 0.0
    if k == 0.0 or k == count:
        mine, other = (low, high) if k == 0.0 else (high, low)
        if count == 0.0:
            return 0.0, 0.0
        if mine == 0.0:
            return -math.inf, 0.0
        value = count * (math.log(mine) if mine <= other else math.log1p(-other))
        return value, 8.0 * U * abs(value) + 2.0 * U
    if high == 0.0 or low == 0.0:
        return -math.inf, 0.0
    gap = _excess(k, count, high, low)
    one, one_error = _deviance(k, count * high, gap)
    two, two_error = _deviance(count - k, count * low, -gap)
    value = _stirling(count) - _stirling(k) - _stirling(count - k) - one - two
    value -= 0.5 * (LOG_TWO_PI + math.log(k) + math.log((count - k) / count))
    return value, one_error + two_error + 4.0 * U * abs(value) + 64.0 * U


@njit(cache=True)
def tail_fraction(k: float, count: float, high: float, low: float, relative: float) -> tuple[float, float]:
    """Bounds on F in P(Bin >= k) = P(Bin = k-1) * (count-k+1) * high / F, for mean < k <= count.

    F = b_0 + a_1/(b_1 + a_2/(b_2 + ..)) is the continued fraction of Didonato and Morris (1992) for the incomplete beta
    function I_high(k, count-k+1). Above the mean all a_n, b_n are positive, so two consecutive convergents enclose it;
    evaluated backwards, where each step shrinks the error of the one before. It ends at n = count-k+1.
    """
    a = k
    b = count - k + 1.0
    lead = _excess(k, count, high, low) + low  # k - (count+1) high + 1
    spread = max(count * high * low, 1e-300)
    depth = -math.log(relative)
    terms = 8.0 + 0.14 * depth * depth * spread / (lead * lead)  # error exp(-z sqrt(8 terms)), z = lead/sqrt(spread)
    while True:
        last = math.floor(min(min(terms, MOST_TERMS), b - 1.0))
        lower, upper, error = 0.0, 0.0, 0.0
        n = last + 1.0
        open_end = n < b
        if open_end:  # f_n is at least b_n and at most infinite
            lower = n + n * (b - n) * high / (a + 2.0 * n - 1.0) + (a + n) * (lead + n * (1.0 + low)) / (a + 2.0 * n + 1.0)
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
                most = next_a / lower
                least = 0.0 if n == last else next_a / upper
                error = 16.0 * U + (most / (b_n + most)) * (error + 16.0 * U)
                lower, upper = b_n + least, b_n + most
            else:
                lower, upper, error = b_n, b_n, 16.0 * U
            n -= 1.0
        if not open_end or upper - lower <= relative * lower or last >= MOST_TERMS:
            return lower * (1.0 - error - 4.0 * U), upper * (1.0 + error + 4.0 * U)
        terms *= 2.0


@njit(cache=True)
def upper_tail(k: float, count: float, high: float, low: float) -> tuple[float, float]:
    """Bounds on P(Bin(count, high) >= k), for k above the mean."""
    if k > count:
        return 0.0, 0.0
    if k <= 0.0:
        return 1.0, 1.0
    log, error = log_pmf(k - 1.0, count, high, low)
    least, most = tail_fraction(k, count, high, low, 1e-9)
    mass = math.exp(log) * (count - k + 1.0) * high
    error += 8.0 * U
    return mass / most * (1.0 - error), min(1.0, mass / least * (1.0 + error) + 1e-300)


@njit(cache=True)
def log_upper_tail(k: float, count: float, high: float, low: float) -> float:
    """A bound on log P(Bin(count, high) >= k) for k above the mean, by the geometric series."""
    if k > count:
        return -math.inf
    log, error = log_pmf(k, count, high, low)
    shrink = (count - k) * high / ((k + 1.0) * low) if low > 0.0 else 1.0
    if not shrink < 1.0:
        return 0.0
    return min(0.0, log + error + 1e-15 - math.log1p(-shrink * (1.0 - 1e-15)))


@njit(cache=True)
def _first_beyond(count: float, high: float, low: float, log_tail: float) -> float:
    """The smallest k found above the mean with P(Bin(count, high) >= k) <= e^log_tail."""
    failing = math.floor(count * high)
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
def window(count: float, high: float, low: float, log_left: float, log_right: float) -> tuple[float, float, float, float]:
    """first..last and bounds on P(C < first) <= e^log_left and P(C > last) <= e^log_right, C = Bin(count, high)."""
    if low <= 0.0:
        return count, count, 0.0, 0.0
    last = min(count, _first_beyond(count, high, low, log_right) - 1.0)
    mirrored = _first_beyond(count, low, high, log_left)
    first = min(max(0.0, count - mirrored + 1.0), last)
    left = math.exp(log_upper_tail(count - first + 1.0, count, low, high)) if first > 0.0 else 0.0
    right = math.exp(log_upper_tail(last + 1.0, count, high, low)) if last < count else 0.0
    return first, last, left, right


@njit(cache=True)
def _threshold(c: float, odds: float) -> float:
    """The least number of reports of the first kind, out of c + 1, that speaks for it: floor((c+1)/(1+odds)) + 1, at most c + 1."""
    return min(math.floor((c + 1.0) / (1.0 + odds)) + 1.0, c + 1.0)


@njit(cache=True)
def _anchor(c: float, k: float, gain: float, growth: float, rho: float, sigma: float) -> tuple[float, float, float, float]:
    """h(c) = P(Bin = k-1) * (gain - growth * tail): log P, its error, and bounds on the tail relative to P."""
    log, error = log_pmf(k - 1.0, c, rho, sigma)
    if k > c or growth == 0.0:
        return log, error, 0.0, 0.0
    # the fraction need not be known better than what it is subtracted from
    rough = 1e-15 * max(1.0, gain / (growth * (1.0 + math.sqrt(c * rho * sigma))))
    least, most = tail_fraction(k, c, rho, sigma, min(rough, 1e-3))
    top = (c - k + 1.0) * rho
    return log, error, top / most * (1.0 - 4.0 * U), top / least * (1.0 + 4.0 * U)


@njit(cache=True)
def one_count(c: float, gain: float, growth: float, odds: float, rho: float, sigma: float, doubt: float) -> tuple[float, float]:
    """Bounds (least, most) on the hockey-stick of the pair given that there are c clones."""
    k = _threshold(c, odds)
    log, error, tail_least, tail_most = _anchor(c, k, gain, growth, rho, sigma)
    scale = math.exp(log)
    if scale == 0.0:
        return 0.0, 1e-300
    most = gain * (1.0 + doubt) - (growth * (1.0 - 4.0 * U)) * tail_least
    least = gain * (1.0 - doubt) - (growth * (1.0 + 4.0 * U)) * tail_most
    return max(least, 0.0) * scale * (1.0 - error - 4.0 * U), max(most, 0.0) * scale * (1.0 + error + 4.0 * U) + 1e-300


@njit(cache=True)
def every_count(
    count: float, high: float, low: float, first: float, last: float,
    gain: float, growth: float, odds: float, rho: float, sigma: float, doubt: float,
) -> tuple[float, float]:  # fmt: skip
    """Bounds on the sum of P(C = c) h(c) over c = first..last, C = Bin(count, high).

    Downwards in c: P, the tail and the weight obey one-term recurrences, with S_{c-1}(k) = S_c(k) - rho P_{c-1}(k-1) and
    S(k-1) = S(k) + P(k-1). S grows on the way, so that errors do not. Everything is relative to an anchor, which is
    renewed every SEGMENT counts.
    """
    least_total, most_total = 0.0, 0.0
    c = last
    while c >= first:
        k = _threshold(c, odds)
        log, error, tail_least, tail_most = _anchor(c, k, gain, growth, rho, sigma)
        weight_log, weight_error = log_pmf(c, count, high, low)
        p, p_error, weight = 1.0, 4.0 * U, 1.0
        tail, tail_error = 0.5 * (tail_least + tail_most), 0.5 * (tail_most - tail_least) + U * tail_most
        least, most = 0.0, 0.0
        steps = 0
        while True:
            value = gain * p
            cost = growth * tail
            wrong = value * (p_error + doubt) + growth * tail_error + 4.0 * U * cost
            most += weight * max(value - cost + wrong, 0.0)
            least += weight * max(value - cost - wrong, 0.0)
            steps += 1
            if steps == SEGMENT or c - 1.0 < first:
                break
            weight *= c * low / ((count - c + 1.0) * high)
            next_k = _threshold(c - 1.0, odds)
            if k > c:  # all c + 1 of the first kind: the tail is empty
                p /= rho
                k -= 1.0
                p_error += 2.0 * U
                tail, tail_error = 0.0, 0.0
            else:
                p *= (c - k + 1.0) / (c * sigma)
                p_error += 5.0 * U
                tail -= rho * p
                tail_error += rho * p * p_error + 2.0 * U * (tail + rho * p)
            c -= 1.0
            while k > next_k:
                tail += p
                tail_error += p * p_error + 2.0 * U * tail
                p *= (k - 1.0) * sigma / ((c - k + 2.0) * rho)
                p_error += 5.0 * U
                k -= 1.0
            tail = max(tail, 0.0)
        c -= 1.0
        scale = math.exp(log + weight_log)
        error += weight_error + 8.0 * SEGMENT * U
        most_total += most * scale * (1.0 + error) + 1e-300
        least_total += least * scale * (1.0 - error)
    rounding = (last - first + 8.0) * U
    return least_total * (1.0 - rounding), most_total * (1.0 + rounding)


@njit(cache=True)
def summed_blocks(count: float, high: float, low: float, first: float, last: float, width: float) -> tuple[Floats, Floats, Floats]:
    """(left ends, least, most) of P(left_j <= C < left_{j+1}) for blocks of `width` counts, by adding the masses."""
    blocks = int((last - first) // width) + 1
    ends = np.empty(blocks + 1)
    least, most = np.zeros(blocks), np.zeros(blocks)
    for j in range(blocks):
        ends[j] = first + j * width
        stop = min(ends[j] + width, last + 1.0)
        c = ends[j]
        while c < stop:
            log, error = log_pmf(c, count, high, low)
            mass, total, steps = 1.0, 0.0, 0.0
            while c < stop and steps < 64.0:
                total += mass
                mass *= (count - c) * high / ((c + 1.0) * low)
                c += 1.0
                steps += 1.0
            total *= math.exp(log)
            most[j] += total * (1.0 + error + 512.0 * U)
            least[j] += total * (1.0 - error - 512.0 * U)
    ends[blocks] = last + 1.0
    return ends, least * (1.0 - (width + 8.0) * U), most * (1.0 + (width + 8.0) * U) + 1e-300


@njit(cache=True)
def wide_blocks(count: float, high: float, low: float, first: float, last: float, share: float) -> tuple[Floats, Floats, Floats]:
    """Like summed_blocks, for blocks 1/4 to 1 standard deviation wide, from the tails at their ends; one block holds the mean."""
    mean, spread = count * high, math.sqrt(count * high * low)
    width = min(spread, max(0.25 * spread, 0.5 * share * mean))
    left, right = int((mean - first) / width + 0.5), int((last - mean) / width + 0.5)
    ends = np.empty(left + right + 2)
    ends[0], ends[left + right + 1] = first, last + 1.0
    for i in range(left):
        ends[1 + i] = math.floor(mean - (left - i - 0.5) * width)
    for i in range(right):
        ends[1 + left + i] = math.ceil(mean + (i + 0.5) * width)
    ends = np.unique(ends)
    blocks = len(ends) - 1
    least, most = np.zeros(blocks), np.zeros(blocks)
    below, below_most = upper_tail(count - ends[0] + 1.0, count, low, high)
    for j in range(blocks):
        if ends[j + 1] <= mean:  # differences of lower tails
            new, new_most = upper_tail(count - ends[j + 1] + 1.0, count, low, high)
            least[j], most[j] = new - below_most, new_most - below
            below, below_most = new, new_most
    above, above_most = upper_tail(ends[blocks], count, high, low)
    for j in range(blocks - 1, -1, -1):
        if ends[j] > mean:
            new, new_most = upper_tail(ends[j], count, high, low)
            least[j], most[j] = new - above_most, new_most - above
            above, above_most = new, new_most
    for j in range(blocks):
        if ends[j] <= mean < ends[j + 1]:
            least[j], most[j] = 1.0 - below_most - above_most - 4.0 * U, 1.0 - below - above + 4.0 * U
    for j in range(blocks):
        least[j] = max(least[j] * (1.0 - 4.0 * U), 0.0)
        most[j] = max(most[j] * (1.0 + 4.0 * U), 0.0) + 1e-300
    return ends, least, most


@njit(cache=True)
def every_block(
    ends: Floats, masses: Floats, upwards: bool,
    gain: float, growth: float, odds: float, rho: float, sigma: float, doubt: float,
) -> float:  # fmt: skip
    """A bound on the same sum: h falls in c, so the left end of each block bounds it above, the last count of it below."""
    total = 0.0
    for j in range(len(masses)):
        if masses[j] > 0.0:
            c = ends[j] if upwards else ends[j + 1] - 1.0
            least, most = one_count(c, gain, growth, odds, rho, sigma, doubt)
            total += masses[j] * (most if upwards else least)
    rounding = (len(masses) + 8) * U
    return total * (1.0 + rounding) if upwards else total * (1.0 - rounding)
