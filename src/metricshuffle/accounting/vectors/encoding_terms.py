"""Privacy cost of encoding noisy vectors: mixed shares, rounded averages, residues that wrap.

The accounts and the calibration of noisy vectors use these terms: the delta that sending sums in
shares adds, the factor by which rounding a person's average increases the slope, and the
probability that a sum does not fit its residues.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator
from fractions import Fraction

import numpy as np

from metricshuffle.accounting.sums.split_and_mix import security_bits, view_penalty
from metricshuffle.citations import theorem
from metricshuffle.errors import InputError, NotCertified, argument
from metricshuffle.noise.polya import Polya
from metricshuffle.numerics.certified_search import first_certified, last_certified
from metricshuffle.numerics.rounding import ROUNDOFF
from metricshuffle.numerics.types import Floats
from metricshuffle.privacy.profile import checked_delta

# A smaller sigma certifies nothing for groups of more than `honest` people, and too little for a
# group of exactly that many.
MIN_BITS = 0.25
# Up to here the exact factor is computed from the few hundred thousand pairs of neighbours among
# all fractions.
MAX_EXACT = 1000
WRAP_PROBABILITY = 1e-12
MAX_BITS = 60


@theorem(
    "metricshuffle",
    "Split-and-mix, several coordinates in one element, any number of people from a least one on",
)
def packed_security_bits(honest: int, messages: int, moduli: Iterable[int]) -> float:
    """Certified sigma of one group whose messages contain one residue for each of `moduli`.

    It is 0 where it would be below 1/4.

    Statement: each person splits a vector of residues, an element of G = Z_q1 x ... x Z_qb (the
    moduli q1, ..., qb), into M = `messages` elements of G: M - 1 uniform ones and the difference.
    With sigma = `security_bits` at the modulus |G| = q1 ... qb and n0 = `honest` people, a law that
    depends on the sum alone lies within 2^-(sigma + 1) of every view of n people with that sum, for
    EVERY n >= n0. For several groups, each mixed by itself, whose ideal sums keep (epsilon, delta),
    the views keep (epsilon, delta + groups (1 + e^epsilon) 2^-(sigma + 1)): `SplitAndMix` with one
    sharing for each group and round.
    Conditions: those of `security_bits`; elements are shuffled whole, groups independently of each
    other (were a person's messages linked across groups, |G| would be the product over all of
    them). Coordinates that are 0 in all values (to detect lost messages) are part of G: their
    shares are as random as the others and link messages just as well.
    Proof: docs/proofs/noisy-vectors.md, (c) and (d). The proof for Z_q uses only sums and the
    number of elements of an image, and both arguments hold in any finite commutative group. The
    expectation from which sigma is computed does not increase with n once it is at most 0.73, that
    is sigma >= 0.23.
    Numerics: rounded down.
    """
    order = math.prod(moduli)
    sigma = security_bits(honest, messages, order)
    return sigma if sigma >= MIN_BITS else 0.0


def mixing_term(epsilon: float, sigma: float, sharings: int) -> float:
    """sharings * (1 + e^epsilon) 2^-(sigma + 1), rounded up; at most 1.

    This is the delta that `SplitAndMix` adds.
    """
    return min(1.0, math.nextafter(_whole(sharings) * view_penalty(epsilon, sigma), math.inf))


def largest_mixed_epsilon(sharings: int, sigma: float, delta: float) -> float:
    """Largest certified total epsilon at which `mixing_term` is at most delta.

    The total is over all people who move. Pure guarantees about ideal sums hold at every distance;
    sent in shares they hold with this delta up to this epsilon.
    """
    delta = checked_delta(delta)
    sharings = _whole(sharings)

    def certified(epsilon: float) -> bool:
        return mixing_term(epsilon, sigma, sharings) <= delta

    if not certified(0.0):
        raise NotCertified(
            f"sharing alone adds {mixing_term(0.0, sigma, sharings):.1e} to delta, more "
            f"than the {delta:g} allowed; use more messages each."
        )
    # ln((delta 2^(sigma+1) / sharings) - 1) is slightly below this limit, which does not pass.
    limit = max(1.0, math.log(delta) + (sigma + 1.0) * math.log(2.0) + 1.0)
    bracket = first_certified(certified, limit, 0.0, step=-0.5, failing=limit)
    return last_certified(certified, bracket.failing, bracket.passing)


def _whole(sharings: int) -> int:
    if isinstance(sharings, bool) or not isinstance(sharings, int) or sharings < 1:
        raise InputError(f"sharings must be a whole number >= 1, got {sharings!r}.")
    return sharings


@theorem("metricshuffle", "Noisy vectors, people with different numbers of items")
def rounding_factor(most_items: int, units: int, *, public_sizes: bool = False) -> Fraction:
    """Factor by which the slope grows when averages of a person's items are rounded to units.

    round(T c/m) is sent for a person whose m items have the feature c in total; T = `units`.

    Statement: let u = c/m and v = c'/m' be the averages of two people, with whole c, c' >= 0 and 1
    <= m, m' <= M = `most_items`, and let r(c, m) = (2Tc + m) // (2m) be the rounded average (half a
    unit is rounded up). Then |r(c, m) - r(c', m')| <= factor * T |u - v|, and the factor is the
    smallest such, at most 1 + M(M-1)/T, and 1 if T is a multiple of 1, ..., M. With `public_sizes`
    m = m', and the factor is max over m of m ceil(T/m)/T <= 1 + (M-1)/T. So if the features phi_e
    obey sum_e rate_e |phi_e(x) - phi_e(y)| <= slope * distance(x, y) for all x and y, two people's
    sent vectors differ by at most factor * T * slope * (earth mover's distance of their items, each
    person's with total mass 1).
    Conditions: whole-number features of any size and any number of coordinates: it holds coordinate
    by coordinate. At least one item each (people with none are refused, or have a declared point
    that represents nothing). Items are not randomized first: if they are, on the person's side,
    people with different numbers of items are no longer protected (docs/proofs/noisy-vectors.md,
    (h)).
    Proof: docs/proofs/noisy-vectors.md, (f).
    Numerics: exact up to M = 1000; beyond, 1 + M(M-1)/T, or 1 if T is a multiple.
    """
    for name, value in (("most_items", most_items), ("units", units)):
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise InputError(f"{argument(name)} must be a whole number >= 1, got {value!r}.")
    if public_sizes:
        return max(Fraction(m * -(-units // m), units) for m in range(1, most_items + 1))
    if most_items > MAX_EXACT:
        # The least common multiple of 1, ..., M is at least 2^(M-1), so it need not be computed for
        # fewer units.
        multiple = (
            most_items <= units.bit_length() and units % math.lcm(*range(1, most_items + 1)) == 0
        )
        return Fraction(1) if multiple else 1 + Fraction(most_items * (most_items - 1), units)
    steepest = max(
        m * n * (_round_to_units(units, above, n) - _round_to_units(units, below, m))
        for below, m, above, n in _neighbours(most_items)
    )
    return Fraction(steepest, units)


def _round_to_units(units: int, count: int, items: int) -> int:
    return (2 * units * count + items) // (2 * items)


def _neighbours(largest: int) -> Iterator[tuple[int, int, int, int]]:
    """Yield a, b, c, d for neighbours a/b < c/d among fractions in [0, 1], b, d <= largest."""
    a = 0
    b = 1
    c = 1
    d = largest
    while c <= d:
        yield a, b, c, d
        if (c, d) == (1, 1):
            return
        k = (largest + b) // d
        a, b, c, d = c, d, k * c - a, k * d - b


@theorem("metricshuffle", "Noisy vectors, values rounded at random (R1): pure, for people together")
def rounding_losses(rates: Floats) -> Floats:
    """e^rate - 1 for each rate, rounded up: loss per unit of a feature that is rounded at random.

    Statement: let f_e(x) be real features of a person's data x, for e = 1..K, and T > 0. Each
    person sends floor(T f_e(x)) plus 1 with probability frac(T f_e(x)), and noise as in
    `ideal_loss`, whose total has at least the law of a discrete Laplace variable of rate a_e. Then
    the log likelihood ratio of the sums for x and y is at most

        sum_e (e^(a_e) - 1) T |f_e(x) - f_e(y)|,

    and for people who move together these losses add up. If x and y are known to round to whole
    numbers at most d_e apart, it is also at most sum_e a_e d_e. The rounded value is unbiased, with
    a variance of at most 1/4.
    Conditions: those of `ideal_loss`; every rounding is independent of all others, of the noise and
    of earlier rounds, and secret (the same random number for two features costs up to (e^a + 1)/2
    times as much). Nothing is assumed about the number or the size of a person's items. The sum of
    all moves is not enough: two people who move by 1/2 in opposite directions keep their sum, and
    the loss is not 0.
    Proof: docs/proofs/noisy-vectors.md, (i). Within one unit the likelihood at t in [0, 1] is
    proportional to p + t (1 - p) or 1 - t (1 - p), p = e^-a, whose logarithm has a slope of at most
    (1 - p)/p = e^a - 1.
    Numerics: each is rounded up.
    """
    return np.asarray(np.expm1(rates) * (1.0 + 8.0 * ROUNDOFF))


@theorem("metricshuffle", "Noisy vectors, the chance that a sum wraps around")
def wrap_probability(rates: Floats, margin: int, shape: Fraction | float = 1) -> float:
    """Upper bound on P(|Z_e| > margin for some e), Z_e Polya noise of rate rates[e].

    `shape` is the shape of the noise: people over honest.

    Statement: for shape 1 P(|Z| > R) = 2 p^(R+1)/(1+p), p = e^-rate and R = margin; for other
    shapes Chernoff's bound is used. The bounds of the coordinates are added up.
    Conditions: the noise has the shape given, no more: everyone present counts, honest or not.
    Numerics: rounded up.
    Reference: the geometric series; `Polya.mass_beyond`.
    """
    if isinstance(margin, bool) or not isinstance(margin, int) or margin < 0:
        raise InputError(f"{argument('margin')} must be a whole number >= 0, got {margin!r}.")
    if not np.all(rates > 0.0):
        raise InputError("rates must be > 0.")
    total = 0.0
    for rate, count in Counter(np.asarray(rates, dtype=np.float64).tolist()).items():
        each = (
            _tail_bound(rate, margin)
            if shape == 1
            else Polya(Fraction(shape), rate).mass_beyond(margin + 1)
        )
        total += count * min(each, 1.0)
    # A result that underflows is still positive.
    return min(1.0, math.nextafter(total * (1.0 + 1e-12), math.inf))


def residue_bits(
    people: int,
    top: int,
    rates: Floats,
    shape: Fraction | float = 1,
    chance: float = WRAP_PROBABILITY,
) -> int:
    """Smallest b such that noisy sums of 0..top over all people fit 2^b residues.

    They may fail to fit with probability at most `chance`. The residues that the sums do not need
    are divided equally between the two sides of their range.
    """
    if people < 1 or top < 1:
        raise InputError(f"people and top must be whole numbers >= 1, got {people!r} and {top!r}.")
    if not 0.0 < chance < 1.0:
        raise InputError(f"chance must lie between 0 and 1, got {chance!r}.")
    for bits in range((people * top).bit_length(), MAX_BITS + 1):
        if wrap_probability(rates, ((1 << bits) - people * top - 1) // 2, shape) <= chance:
            return bits
    raise NotCertified(
        f"sums of {people:,} times {top:,} with that much noise do not fit {MAX_BITS} "
        "bits; use larger rates or fewer units."
    )


def _tail_bound(rate: float, margin: int) -> float:
    """2 p^(margin+1)/(1+p), p = e^-rate, rounded up."""
    exponent = -rate * (margin + 1.0)
    return 2.0 * math.exp(exponent * (1.0 - 1e-14)) / (1.0 + math.exp(-rate)) * (1.0 + 1e-14)
