# mypy: disable-error-code="untyped-decorator"
"""Compiled: how much the count of ones gives away when T of the others hold the upper extreme law (imported lazily).

Notation: the first person's report is a one with probability a under the first input and b under the second, a > b; e = e^epsilon, growth =
e - 1, lead = a - e b > 0. F is the law of the number of ones among the others, S(k) = P(F >= k). The divergence is the maximum over k of
    h(k) = lead S(k-1) - (lead + growth) S(k),
attained at k = 1 + the mode of F tilted by R^count, R = 1 + growth/lead: h(k) - h(k+1) is a positive multiple of P(k-1) - P(k), P that law.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numba import njit

from metricshuffle.numerics.rounding import ROUNDOFF
from metricshuffle.numerics.types import Floats

LOG_LEAST = -690.0  # what is smaller is rounded up to e^-690, or down to 0
MAX_LOG_TILT = 690.0  # the tilt is no stronger than e^690; any tilt is valid
LOG_NEGLIGIBLE = 45.0  # nodes below e^-45 of the largest are bounded, not evaluated
ALIASING_BOUND = 4.3e-18  # e^-40: more than what lies a period away, relative to the integrand
INPUT_ULPS = 8.0  # the probabilities given are right to so many units in the last place
MAX_LOOKS = 2_000_000  # evaluations of one search over all T
MIN_DIVERGENCE = 1e-280  # a divergence below this is not worth a look; lower ends are 0 there


class TiltedDirection(NamedTuple):
    """What does not depend on T: one direction of a pair at one epsilon, tilted. First the lower extreme law, then the upper one.

    Of each law the rarer report is counted; where that is the zero, `sign` is -1 and the count of ones starts from that of all.
    """

    lead: float
    growth: float
    s: float
    """log R."""
    sign: Floats
    given: Floats
    """Probability of the rarer report."""
    rare: Floats
    """The same under the tilt."""
    usual: Floats
    log_total: Floats
    """log(1 + given (e^(sign s) - 1))."""


@njit(cache=True, error_model="numpy")
def question(lead: float, growth: float, zero: Floats, ones: Floats) -> TiltedDirection:
    """`zero` and `one`: probabilities of the two reports under the two extreme laws."""
    s = min(math.log1p(growth / lead), MAX_LOG_TILT)
    sign, conditional, rare, usual, log_total = np.empty(2), np.empty(2), np.empty(2), np.empty(2), np.empty(2)
    for i in range(2):
        sign[i] = -1.0 if ones[i] > 0.5 else 1.0
        conditional[i], common = (zero[i], ones[i]) if ones[i] > 0.5 else (ones[i], zero[i])
        grown = conditional[i] * math.expm1(sign[i] * s)
        rare[i], usual[i] = conditional[i] * math.exp(sign[i] * s) / (1.0 + grown), common / (1.0 + grown)
        log_total[i] = math.log1p(grown)
    return TiltedDirection(lead, growth, s, sign, conditional, rare, usual, log_total)


@njit(cache=True, error_model="numpy")
def _factor(count: float, rare: float, usual: float, sine: float, cosine: float) -> tuple[float, float, float, float]:
    """(usual + rare e^(2it))^count from sin t and cos t: log modulus, angle, rounding of both in units, and 1/modulus of one factor."""
    if count == 0.0 or rare == 0.0:
        return 0.0, 0.0, 0.0, 1.0
    less = 4.0 * rare * usual * sine * sine
    angle = math.atan2(2.0 * rare * sine * cosine, 1.0 - 2.0 * rare * sine * sine)
    if less <= 0.5:
        return 0.5 * count * math.log1p(-less), count * angle, count * (32.0 * less + 64.0 * abs(angle)), 1.5
    # near a zero of the factor its modulus is right to a few units of 1, so no modulus below that is believed
    modulus = max(math.sqrt(cosine * cosine + (usual - rare) ** 2 * sine * sine), 1e-16)
    return count * math.log(modulus), count * angle, count * (64.0 / modulus + 64.0 * abs(angle)), 1.0 / modulus


@njit(cache=True, error_model="numpy")
def divergence(direction: TiltedDirection, lows: float, highs: float) -> tuple[float, float]:
    """(lower, upper) of max_k h(k) when `lows` of the others hold the lower extreme law and `highs` the upper one.

    h(k) = (1/2 pi i) int Phi(w) w^-k (lead - growth/(w-1)) dw over |w| = R > 1, Phi the generating function of F. The trapezoid rule
    of m nodes gives sum over all whole l of R^(lm) h(k+lm). Above: terms with l > 0 are >= 0, those with l < 0 are >= -growth R^(lm).
    Below: Bernstein's inequality for the tilted law bounds both (docs/proofs/two-reports.md). The mode of a sum of independent bits
    is less than 1 from its mean (Darroch 1964), so three values of k suffice. |Phi| falls on the upper half circle, so that the nodes
    left out are bounded by the first of them.
    """
    lead, growth, s = direction.lead, direction.growth, direction.s
    counts = (lows, highs)
    mean, variance, log_unit, unsure, rares = 0.0, 0.0, 0.0, 0.0, 0.0
    for i in range(2):
        mean += counts[i] * direction.sign[i] * direction.rare[i]
        rares += counts[i] * direction.rare[i]
        variance += counts[i] * direction.rare[i] * direction.usual[i]
        log_unit += counts[i] * direction.log_total[i]
        unsure += 8.0 * abs(counts[i] * direction.log_total[i])
    if not (lead > 0.0 and 64.0 * ROUNDOFF * (rares + variance * s) < 0.25):
        return 0.0, lead
    mode = math.floor(mean + 0.5)
    log_unit -= mode * s
    unsure += 8.0 * abs(mode * s) + 64.0
    if log_unit + s < LOG_LEAST - 10.0 and ROUNDOFF * unsure < 1.0:
        return 0.0, min(lead, 1e-299)  # h(k) <= lead S(k-1) <= lead Phi(R) R^(1-k)
    deviation = math.sqrt(variance)
    m = math.ceil(11.0 * deviation) + 66.0
    steep = s > 0.7 or s * deviation > 5.0
    if steep:
        m = max(m, math.ceil((LOG_NEGLIGIBLE - min(log_unit, 0.0)) / s))
    # over the radius, so that no square overflows: |w-1| at the real axis, and growth
    left, pull, radius = -math.expm1(-s), growth * math.exp(-s), math.exp(s)
    middle, side, cross, total, error, left_out, nodes = 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0
    while 2.0 * nodes <= m:
        half = math.pi * nodes / m
        sine, cosine = math.sin(half), math.cos(half)
        low_log, low_angle, low_doubt, low_inverse = _factor(lows, direction.rare[0], direction.usual[0], sine, cosine)
        high_log, high_angle, high_doubt, high_inverse = _factor(highs, direction.rare[1], direction.usual[1], sine, cosine)
        square = left * left + 4.0 / radius * sine * sine  # |w-1|^2/R^2
        away = math.sqrt(square)
        bound = lead + (pull / away if growth > 0.0 else 0.0)
        if low_log + high_log < -LOG_NEGLIGIBLE:
            left_out = 2.0 * m * math.exp(low_log + high_log) * bound
            break
        modulus = math.exp(low_log + high_log) * (1.0 if nodes == 0.0 or 2.0 * nodes == m else 2.0)
        pole = pull / square if growth > 0.0 else 0.0
        real, imaginary = lead - pole * (left - 2.0 * sine * sine), 2.0 * pole * sine * cosine
        phase = direction.sign[0] * low_angle + direction.sign[1] * high_angle - mode * 2.0 * half
        c, d = math.cos(phase), math.sin(phase)
        z_real, z_imaginary = modulus * (c * real - d * imaginary), modulus * (c * imaginary + d * real)
        middle += z_real
        side += z_real * (1.0 - 2.0 * sine * sine)
        cross += z_imaginary * 2.0 * sine * cosine
        # inputs p that are wrong by INPUT_ULPS units change a factor 1 + p (w^+-1 - 1) by so many units of p |w^+-1 - 1|
        error_bound = 0.0
        for i in range(2):
            apart = away * radius if direction.sign[i] > 0.0 else away
            error_bound += (
                counts[i] * direction.given[i] * apart * math.exp(-direction.log_total[i]) * (low_inverse if i == 0 else high_inverse)
            )
        total += modulus * bound
        error += modulus * bound * (low_doubt + high_doubt + 64.0 * abs(mode * half) + INPUT_ULPS * error_bound + unsure)
        nodes += 1.0
    error = (ROUNDOFF * (error + (nodes + 16.0) * total) + left_out) / m + ALIASING_BOUND * (2.0 * lead + growth)
    unit = math.exp(max(log_unit, LOG_LEAST))
    back = growth / math.expm1(m * s) if growth > 0.0 else 0.0  # what the terms with l < 0 take away
    lower, upper = 0.0, 0.0
    for i in range(3):
        # h one before the middle, there, and one after it
        scale = (radius, 1.0, 1.0 / radius)[i]
        value = ((side - cross) / m, middle / m, (side + cross) / m)[i]
        upper = max(upper, unit * (scale * value + max(scale, 1.0) * error) * (1.0 + 16.0 * ROUNDOFF))
        lower = max(lower, unit * (scale * value - max(scale, 1.0) * error) * (1.0 - 16.0 * ROUNDOFF))
    upper = (upper + back) * (1.0 + 16.0 * ROUNDOFF) + 1e-300
    lower = (lower + (0.0 if steep else back)) * (1.0 - 16.0 * ROUNDOFF) if lower > 0.0 and log_unit > LOG_LEAST else 0.0
    return (lower if 0.0 < lower < math.inf else 0.0), (upper if 0.0 < upper < lead else lead)


@njit(cache=True, error_model="numpy")
def worst_of_samples(direction: TiltedDirection, others: float, looks: int) -> tuple[float, float]:
    """(lower end, T) of the worst of some values of T, from one end to the other."""
    best, place = -1.0, 0.0
    for i in range(looks):
        at = np.floor(others * i / (looks - 1))
        low = divergence(direction, others - at, at)[0]
        if low > best or (low == best and at == others):
            best, place = low, at
    return best, place


@njit(cache=True, error_model="numpy")
def below(direction: TiltedDirection, others: float, last: float) -> tuple[float, float, float]:
    """(A, E, c): if the extreme laws are opposites, each T <= last has at most e^(-c x) (A + E x), x = last - T; A = inf: not shown.

    Proof: docs/proofs/two-reports.md, "Opposite laws". Factors are rounded outward by 1%, which covers their rounding.
    """
    conditional, s, radius, grown = direction.given[0], direction.s, math.exp(direction.s), math.expm1(direction.s)
    mirrored = direction.sign[0] > 0.0 and direction.sign[1] < 0.0 and direction.given[1] == conditional
    apart, spread = 1.0 - 2.0 * conditional, conditional * (1.0 - conditional)
    variance = others * min(direction.rare[0] * direction.usual[0], direction.rare[1] * direction.usual[1])
    if not (mirrored and s <= 1.0 and apart > 1e-6 and 2e3 <= variance <= 1e13):
        return math.inf, 0.0, 0.0
    log_unit, unsure = 2.5 * s, 0.0
    for i in range(2):
        count = last if i == 1 else others - last
        log_unit += count * (direction.log_total[i] - direction.sign[i] * s * direction.rare[i])
        unsure += 64.0 * ROUNDOFF * count * (abs(direction.log_total[i]) + s * direction.rare[i])
    if not (log_unit > LOG_LEAST and unsure < 1e-3):
        return math.inf, 0.0, 0.0
    bent = 1.0 + 2.0 * spread * (0.877 * math.cosh(s) - 1.0)
    turn, error = apart * spread / (bent * bent), 4.0 * INPUT_ULPS * ROUNDOFF * others * conditional
    # over |theta| <= 1/2 the integrand is at most its size times e^(-a theta^2), or, away from epsilon = 0, times that and slant theta
    a, root, slant = 0.489 * variance, math.sqrt(math.pi), math.sqrt(radius) / grown if grown > 0.0 else math.inf
    first, second, third, fourth = 0.5 / a, 0.25 * root / a**1.5, 0.5 / a**2, 0.375 * root / a**2.5
    zeroth = 0.5 * root / math.sqrt(a)
    between = min(s * s * zeroth + second, slant * (s * s * first + third)) / 8.0
    moved = turn * min(math.sinh(s) * second + third, slant * (math.sinh(s) * third + fourth))
    doubt = error * min(grown * zeroth + radius * first, slant * (grown * first + radius * second))
    size = 1.01 * math.exp(log_unit) * direction.lead * math.sqrt(radius) / math.pi
    falls = 0.66 * apart * spread * s**3 / (1.0 + 2.0 * spread * (math.cosh(s) - 1.0)) ** 2
    whole = divergence(direction, others - last, last)[1] + size * (between + doubt + 100.0 * math.exp(-0.12 * variance))
    return whole, size * moved, falls


@njit(cache=True, error_model="numpy")
def block(direction: TiltedDirection, others: float, first: float, last: float, enough: float) -> tuple[float, float]:
    """(lower, upper) of what the values first..last of T have; the lower end is that of a single one.

    From above: the divergence when T hold the upper law, others - last the lower one, and the remaining last - T are shown to the
    adversary; if that is not enough, one look at the last, and how the others fall from it.
    """
    low, high = divergence(direction, others - last, first)
    if high <= enough or last == first:
        return low, high
    whole, slope, falls = below(direction, others, last)
    if not whole <= enough:
        return low, high
    # e^(-c x) (A + E x) rises up to x = 1/c - A/E and falls from there on
    at = last - first
    if falls > 0.0 and slope > 0.0:
        at = min(max(1.0 / falls - whole / slope, 0.0), at)
    return low, min(high, math.exp(-falls * at) * (whole + slope * at) * (1.0 + 1e-9))


@njit(cache=True, error_model="numpy")
def exceeding(direction: TiltedDirection, others: float, delta: float) -> float:
    """The first T in 0..others whose divergence could not be shown to be at most delta, or -1: then all were shown.

    All T are covered by blocks, each as long as passes.
    """
    first, length, looks = 0.0, max(1.0, math.floor(others / 64.0)), 0
    while first <= others:
        last = min(first + length - 1.0, others)
        looks += 1
        if block(direction, others, first, last, delta)[1] <= delta:
            first = last + 1.0
            length = math.ceil(1.5 * length)
        elif last == first or looks > MAX_LOOKS:
            return first
        else:
            length = max(1.0, math.floor(0.5 * (last - first + 1.0)))
    return -1.0


@njit(cache=True, error_model="numpy")
def largest(direction: TiltedDirection, others: float, best: float, tolerance: float) -> tuple[float, float, float]:
    """(lower, upper, T): a bracket of the maximum over T in 0..others, and where the lower end was found (-1: nowhere).

    Blocks as in `exceeding`; one that is at most 1 + tolerance above the largest lower end so far, at first `best`, is not looked into.
    """
    first, length, looks, upper, place = 0.0, max(1.0, math.floor(others / 64.0)), 0, 0.0, -1.0
    while first <= others:
        last = min(first + length - 1.0, others)
        looks += 1
        low, high = block(direction, others, first, last, max(best * (1.0 + tolerance), MIN_DIVERGENCE))
        if last == first and low > best:
            best, place = low, first
        if high <= max(best * (1.0 + tolerance), MIN_DIVERGENCE) or last == first or looks > MAX_LOOKS:
            upper = max(upper, high)
            first = last + 1.0
            length = math.ceil(1.5 * length)
        else:
            length = max(1.0, math.floor(0.5 * (last - first + 1.0)))
    return best, upper, place
