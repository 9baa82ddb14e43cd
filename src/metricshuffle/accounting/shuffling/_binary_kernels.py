# mypy: disable-error-code="untyped-decorator"
"""Compiled divergence of the count of ones when T of the others hold the upper extreme law.

Used by `binary_exact_bound`, and imported only there when needed, because numba is slow to import.

Notation: every report is a zero or a one. Person 1 reports a one with probability a under the first
input and b under the second, a > b. e denotes e^epsilon, growth = e - 1, and lead = a - e b > 0.
Every other person holds one of two extreme laws, the lower and the upper one, with the smallest and
the largest probability of a one; T is how many of them hold the upper one. F is the law of the
number of ones among the others, Phi its generating function E w^count, and S(k) = P(F >= k). The
hockey-stick divergence at e^epsilon is the maximum over k of

    h(k) = lead S(k-1) - (lead + growth) S(k).

Tilting F multiplies the probability of each count by R^count, with R = 1 + growth/lead, and
normalizes. Let P be the tilted law. h(k) - h(k+1) is a positive multiple of P(k-1) - P(k), so the
maximum is attained at k = 1 + the mode of P.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numba import njit

from metricshuffle.numerics.rounding import ROUNDOFF
from metricshuffle.numerics.types import Floats

LOG_LEAST = -690.0  # smaller numbers are rounded up to e^-690, or down to 0
MAX_LOG_TILT = 690.0  # the tilt is no stronger than e^690; any tilt is valid
LOG_NEGLIGIBLE = 45.0  # nodes below e^-45 of the largest are bounded, not evaluated
ALIASING_BOUND = 4.3e-18  # e^-40: bounds the aliases, relative to the integrand
INPUT_ULPS = 8.0  # error of the given probabilities, in units in the last place
MAX_LOOKS = 2_000_000  # largest number of blocks in one search over all T
MIN_DIVERGENCE = 1e-280  # smaller divergences are not bracketed; their lower ends are 0


class TiltedDirection(NamedTuple):
    """One direction of a pair at one epsilon, tilted: everything that does not depend on T.

    Arrays have the lower extreme law first, then the upper one. Of each extreme law the rarer of
    the two reports is counted. Where the rarer report is the zero, `sign` is -1, and the number of
    ones is the number of people minus the count; otherwise `sign` is 1.
    """

    lead: float
    growth: float
    s: float
    """The tilt s = log R."""
    sign: Floats
    given: Floats
    """Probability of the rarer report."""
    rare: Floats
    """Probability of the rarer report under the tilt."""
    usual: Floats
    log_total: Floats
    """log(1 + given (e^(sign s) - 1))."""


@njit(cache=True, error_model="numpy")
def question(lead: float, growth: float, zero: Floats, ones: Floats) -> TiltedDirection:
    """Build the tilted direction from the probabilities of both reports under the extreme laws."""
    s = min(math.log1p(growth / lead), MAX_LOG_TILT)
    sign = np.empty(2)
    conditional = np.empty(2)
    rare = np.empty(2)
    usual = np.empty(2)
    log_total = np.empty(2)
    for i in range(2):
        sign[i] = -1.0 if ones[i] > 0.5 else 1.0
        conditional[i], common = (zero[i], ones[i]) if ones[i] > 0.5 else (ones[i], zero[i])
        grown = conditional[i] * math.expm1(sign[i] * s)
        rare[i], usual[i] = (
            conditional[i] * math.exp(sign[i] * s) / (1.0 + grown),
            common / (1.0 + grown),
        )
        log_total[i] = math.log1p(grown)
    return TiltedDirection(lead, growth, s, sign, conditional, rare, usual, log_total)


@njit(cache=True, error_model="numpy")
def _factor(
    count: float, rare: float, usual: float, sine: float, cosine: float
) -> tuple[float, float, float, float]:
    """Return (usual + rare e^(2it))^count from sin t and cos t.

    It is returned as its log modulus, its angle, the rounding error of both in units of ROUNDOFF,
    and 1/modulus of a single factor.
    """
    if count == 0.0 or rare == 0.0:
        return 0.0, 0.0, 0.0, 1.0
    less = 4.0 * rare * usual * sine * sine
    angle = math.atan2(2.0 * rare * sine * cosine, 1.0 - 2.0 * rare * sine * sine)
    if less <= 0.5:
        return (
            0.5 * count * math.log1p(-less),
            count * angle,
            count * (32.0 * less + 64.0 * abs(angle)),
            1.5,
        )
    # Near a zero of the factor, the absolute error of its modulus is a few units in the last place
    # of 1, so a smaller modulus is raised to 1e-16.
    modulus = max(math.sqrt(cosine * cosine + (usual - rare) ** 2 * sine * sine), 1e-16)
    return (
        count * math.log(modulus),
        count * angle,
        count * (64.0 / modulus + 64.0 * abs(angle)),
        1.0 / modulus,
    )


@njit(cache=True, error_model="numpy")
def divergence(direction: TiltedDirection, lows: float, highs: float) -> tuple[float, float]:
    """Bracket max_k h(k) when `lows` hold the lower extreme law and `highs` the upper one.

    h(k) = (1/2 pi i) int Phi(w) w^-k (lead - growth/(w-1)) dw over the circle |w| = R > 1. The
    trapezoid rule with m nodes gives the sum over all whole numbers l of R^(lm) h(k+lm); the term l
    = 0 is the wanted one, the others are aliases.
    Above: aliases with l > 0 are >= 0, aliases with l < 0 are >= -growth R^(lm).
    Below: Bernstein's inequality for the tilted law bounds both kinds of aliases
    (docs/proofs/two-reports.md).

    The mode of a sum of independent bits is less than 1 from its mean (Darroch 1964), so three
    values of k suffice. |Phi| decreases along the upper half circle, so the first node that is left
    out bounds all nodes that are left out.
    """
    lead = direction.lead
    growth = direction.growth
    s = direction.s
    counts = (lows, highs)
    mean = 0.0
    variance = 0.0
    log_unit = 0.0
    unsure = 0.0
    rares = 0.0
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
    # |w-1| at w = R, and growth, both divided by the radius R, so that no square overflows.
    left = -math.expm1(-s)
    pull = growth * math.exp(-s)
    radius = math.exp(s)
    middle = 0.0
    side = 0.0
    cross = 0.0
    total = 0.0
    error = 0.0
    left_out = 0.0
    nodes = 0.0
    while 2.0 * nodes <= m:
        half = math.pi * nodes / m
        sine = math.sin(half)
        cosine = math.cos(half)
        low_log, low_angle, low_doubt, low_inverse = _factor(
            lows, direction.rare[0], direction.usual[0], sine, cosine
        )
        high_log, high_angle, high_doubt, high_inverse = _factor(
            highs, direction.rare[1], direction.usual[1], sine, cosine
        )
        square = left * left + 4.0 / radius * sine * sine  # |w-1|^2/R^2
        away = math.sqrt(square)
        bound = lead + (pull / away if growth > 0.0 else 0.0)
        if low_log + high_log < -LOG_NEGLIGIBLE:
            left_out = 2.0 * m * math.exp(low_log + high_log) * bound
            break
        modulus = math.exp(low_log + high_log) * (1.0 if nodes == 0.0 or 2.0 * nodes == m else 2.0)
        pole = pull / square if growth > 0.0 else 0.0
        real = lead - pole * (left - 2.0 * sine * sine)
        imaginary = 2.0 * pole * sine * cosine
        phase = direction.sign[0] * low_angle + direction.sign[1] * high_angle - mode * 2.0 * half
        c = math.cos(phase)
        d = math.sin(phase)
        z_real = modulus * (c * real - d * imaginary)
        z_imaginary = modulus * (c * imaginary + d * real)
        middle += z_real
        side += z_real * (1.0 - 2.0 * sine * sine)
        cross += z_imaginary * 2.0 * sine * cosine
        # A relative error of INPUT_ULPS units in a given probability p changes the factor
        # 1 + p (w^+-1 - 1) by INPUT_ULPS units of p |w^+-1 - 1|.
        error_bound = 0.0
        for i in range(2):
            apart = away * radius if direction.sign[i] > 0.0 else away
            error_bound += (
                counts[i]
                * direction.given[i]
                * apart
                * math.exp(-direction.log_total[i])
                * (low_inverse if i == 0 else high_inverse)
            )
        total += modulus * bound
        error += (
            modulus
            * bound
            * (low_doubt + high_doubt + 64.0 * abs(mode * half) + INPUT_ULPS * error_bound + unsure)
        )
        nodes += 1.0
    error = (ROUNDOFF * (error + (nodes + 16.0) * total) + left_out) / m + ALIASING_BOUND * (
        2.0 * lead + growth
    )
    unit = math.exp(max(log_unit, LOG_LEAST))
    # A bound on what the aliases with l < 0 subtract.
    back = growth / math.expm1(m * s) if growth > 0.0 else 0.0
    lower = 0.0
    upper = 0.0
    for i in range(3):
        # h(k) for the three values of k: one less than the middle one, the middle one, one more.
        scale = (radius, 1.0, 1.0 / radius)[i]
        value = ((side - cross) / m, middle / m, (side + cross) / m)[i]
        upper = max(
            upper, unit * (scale * value + max(scale, 1.0) * error) * (1.0 + 16.0 * ROUNDOFF)
        )
        lower = max(
            lower, unit * (scale * value - max(scale, 1.0) * error) * (1.0 - 16.0 * ROUNDOFF)
        )
    upper = (upper + back) * (1.0 + 16.0 * ROUNDOFF) + 1e-300
    lower = (
        (lower + (0.0 if steep else back)) * (1.0 - 16.0 * ROUNDOFF)
        if lower > 0.0 and log_unit > LOG_LEAST
        else 0.0
    )
    return (lower if 0.0 < lower < math.inf else 0.0), (upper if 0.0 < upper < lead else lead)


@njit(cache=True, error_model="numpy")
def worst_of_samples(direction: TiltedDirection, others: float, looks: int) -> tuple[float, float]:
    """Return the largest lower end over `looks` evenly spaced values of T, and that T."""
    best = -1.0
    place = 0.0
    for i in range(looks):
        at = np.floor(others * i / (looks - 1))
        low = divergence(direction, others - at, at)[0]
        if low > best or (low == best and at == others):
            best = low
            place = at
    return best, place


@njit(cache=True, error_model="numpy")
def below(direction: TiltedDirection, others: float, last: float) -> tuple[float, float, float]:
    """Return (A, E, c) of a bound e^(-c x) (A + E x) for opposite extreme laws and T <= last.

    Here x = last - T; it is an upper bound on the divergence of the data set with that T. Extreme
    laws are opposite if the lower one reports a one as often as the upper one reports a zero. A =
    inf if nothing is certified.
    Proof: docs/proofs/two-reports.md, "Opposite laws". Factors are rounded outward by 1%, which
    covers their rounding errors.
    """
    conditional = direction.given[0]
    s = direction.s
    radius = math.exp(direction.s)
    grown = math.expm1(direction.s)
    mirrored = (
        direction.sign[0] > 0.0 and direction.sign[1] < 0.0 and direction.given[1] == conditional
    )
    apart = 1.0 - 2.0 * conditional
    spread = conditional * (1.0 - conditional)
    variance = others * min(
        direction.rare[0] * direction.usual[0], direction.rare[1] * direction.usual[1]
    )
    if not (mirrored and s <= 1.0 and apart > 1e-6 and 2e3 <= variance <= 1e13):
        return math.inf, 0.0, 0.0
    log_unit = 2.5 * s
    unsure = 0.0
    for i in range(2):
        count = last if i == 1 else others - last
        log_unit += count * (direction.log_total[i] - direction.sign[i] * s * direction.rare[i])
        unsure += 64.0 * ROUNDOFF * count * (abs(direction.log_total[i]) + s * direction.rare[i])
    if not (log_unit > LOG_LEAST and unsure < 1e-3):
        return math.inf, 0.0, 0.0
    bent = 1.0 + 2.0 * spread * (0.877 * math.cosh(s) - 1.0)
    turn = apart * spread / (bent * bent)
    error = 4.0 * INPUT_ULPS * ROUNDOFF * others * conditional
    # For an angle |theta| <= 1/2 the integrand is at most its size times e^(-a theta^2) and, away
    # from epsilon = 0, at most its size times e^(-a theta^2) times slant theta.
    a = 0.489 * variance
    root = math.sqrt(math.pi)
    slant = math.sqrt(radius) / grown if grown > 0.0 else math.inf
    first = 0.5 / a
    second = 0.25 * root / a**1.5
    third = 0.5 / a**2
    fourth = 0.375 * root / a**2.5
    zeroth = 0.5 * root / math.sqrt(a)
    between = min(s * s * zeroth + second, slant * (s * s * first + third)) / 8.0
    moved = turn * min(math.sinh(s) * second + third, slant * (math.sinh(s) * third + fourth))
    doubt = error * min(grown * zeroth + radius * first, slant * (grown * first + radius * second))
    size = 1.01 * math.exp(log_unit) * direction.lead * math.sqrt(radius) / math.pi
    falls = 0.66 * apart * spread * s**3 / (1.0 + 2.0 * spread * (math.cosh(s) - 1.0)) ** 2
    whole = divergence(direction, others - last, last)[1] + size * (
        between + doubt + 100.0 * math.exp(-0.12 * variance)
    )
    return whole, size * moved, falls


@njit(cache=True, error_model="numpy")
def block(
    direction: TiltedDirection, others: float, first: float, last: float, enough: float
) -> tuple[float, float]:
    """Bracket the largest divergence over the values first..last of T.

    The lower end is valid only for a single T (first = last). The upper end is the divergence when
    `first` people hold the upper law, others - last hold the lower law, and the remaining last -
    first people are revealed to the adversary. If that exceeds `enough`, `below` is tried too: it
    bounds every T of the block from the divergence at T = last.
    """
    low, high = divergence(direction, others - last, first)
    if high <= enough or last == first:
        return low, high
    whole, slope, falls = below(direction, others, last)
    if not whole <= enough:
        return low, high
    # e^(-c x) (A + E x) increases up to x = 1/c - A/E and decreases beyond.
    at = last - first
    if falls > 0.0 and slope > 0.0:
        at = min(max(1.0 / falls - whole / slope, 0.0), at)
    return low, min(high, math.exp(-falls * at) * (whole + slope * at) * (1.0 + 1e-9))


@njit(cache=True, error_model="numpy")
def exceeding(direction: TiltedDirection, others: float, delta: float) -> float:
    """Return the first T in 0..others whose divergence is not certified to be at most delta, or -1.

    -1 means that all T are certified. All T are covered by blocks, each as long as `block` can
    still certify.
    """
    first = 0.0
    length = max(1.0, math.floor(others / 64.0))
    looks = 0
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
def largest(
    direction: TiltedDirection, others: float, best: float, tolerance: float
) -> tuple[float, float, float]:
    """Bracket the maximum over T in 0..others; also return the T of the lower end (-1: none).

    Blocks are chosen as in `exceeding`. A block whose upper end is at most 1 + tolerance times the
    largest lower end so far (`best` at the start) is not subdivided.
    """
    first = 0.0
    length = max(1.0, math.floor(others / 64.0))
    looks = 0
    upper = 0.0
    place = -1.0
    while first <= others:
        last = min(first + length - 1.0, others)
        looks += 1
        low, high = block(
            direction, others, first, last, max(best * (1.0 + tolerance), MIN_DIVERGENCE)
        )
        if last == first and low > best:
            best = low
            place = first
        if (
            high <= max(best * (1.0 + tolerance), MIN_DIVERGENCE)
            or last == first
            or looks > MAX_LOOKS
        ):
            upper = max(upper, high)
            first = last + 1.0
            length = math.ceil(1.5 * length)
        else:
            length = max(1.0, math.floor(0.5 * (last - first + 1.0)))
    return best, upper, place
