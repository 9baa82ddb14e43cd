"""Negative binomials as sums of jumps: tables of digits that random words are compared with.

noise/samplers.py draws negative binomials with these tables. NB(r, p) has P(A = k) = C(r+k-1, k)
(1-p)^r p^k, C the binomial coefficient, r the shape and p = e^-rate. For r <= 1, with L = -ln(1-p),
it is the law of the sum of M independent jumps, M Poisson of mean mu = r L, each jump K with P(K =
k) = p^k / (k L), k >= 1: its generating function ((1-p)/(1-pz))^r is exp(mu (g(z) - 1)) with g(z) =
-ln(1-pz)/L, the generating function of one jump. Most draws of a small shape have no jump at all (M
= 0 has probability e^-mu), so a row of draws is

    a run of N zeros, P(N >= n) = e^(-mu n); then one draw with at least one jump; and so on.

- N: with E = e^-mu the binary digits of N are independent, the j-th being 1 with probability
  E^(2^j) / (1 + E^(2^j)), because E^N is a product over the digits. The part above the lowest J
  digits is geometric of ratio E^(2^J).
- M: given M >= 1, P(M > m) = (sum_{i > m} mu^(i-1)/i!) / (sum_{i >= 1} mu^(i-1)/i!).
- K: by rejection from a step function above p^k/k. Block i < I consists of the k in [2^i, 2^(i+1)),
  each with weight p^(2^i) / 2^i; k is accepted with probability (2^i / k) e^(-rate (k - 2^i)). The
  tail consists of the k >= 2^I, each with weight p^k / 2^I, in total p^(2^I) / (2^I (1-p)); k is
  accepted with probability 2^I / k. I is the smallest integer with 2^I > 1/rate. At least seven in
  ten of the proposed k are accepted.

A uniform real number V is compared with these probabilities digit by digit (of 64 bits); one word
nearly always decides.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from decimal import Context, Decimal, localcontext
from fractions import Fraction
from functools import lru_cache
from itertools import accumulate

import numpy as np

from metricshuffle.errors import NotCertified
from metricshuffle.numerics.types import Words

MAX_LEVELS = 40
"""Largest number of binary digits of a run of zeros: no array has more than 2^40 places."""
GUARD_DIGITS = 26
MAX_DECIMALS = 5_000


@dataclass(frozen=True)
class JumpTables:
    """Probabilities as rows of 64-bit digits, most significant first.

    Row [d0, d1, ...] is d0/2^64 + d1/2^128 + ..., the probability rounded down.
    """

    mean: float
    """Approximate mean number of jumps, used to choose buffer lengths."""
    runs: Words
    """Row j: probability that a run of zeros is at least 2^j long."""
    bits: Words
    """Row j: probability that the j-th binary digit of a run is 1."""
    numbers: Words
    """Row m: probability of more than m + 1 jumps given at least one; 0 in the last row."""
    blocks: Words
    """Row i: probability of a block above i (block I is the tail)."""


@lru_cache(maxsize=2**14)  # 2 kB each
def jump_tables(shape: Fraction, rate: Fraction, digits: int) -> JumpTables:
    """Tables of NB(shape, e^-rate), 0 < shape < 1, with `digits` words per number, all certain."""
    decimals = 20 * digits + 50
    while decimals <= MAX_DECIMALS:
        tables = _tables(shape, rate, digits, decimals)
        if tables is not None:
            return tables
        decimals *= 2
    raise NotCertified(
        f"the digits of the noise of shape {shape} and rate {rate} could not be computed; "
        "use a slightly different rate."
    )


def _tables(shape: Fraction, rate: Fraction, digits: int, decimals: int) -> JumpTables | None:
    """Compute the tables, or None if `decimals` decimals leave a digit undecided.

    Symbols p, L and mu are those of the module docstring.

    Numerics: decimal operations, exp and ln are correctly rounded, so each has a relative error
    below u = 10^(1-decimals). Then p has a relative error of (rate + 2) u. 1 - p >= 2^-33 has an
    error of 3u, which is 3e10 u relative. L <= 23, mu has an error of 5e10 u, and e^-mu one of 6e10
    u; each squaring doubles the error, and 40 of them give less than 1e23 u. The derivative of the
    sums over the Poisson law is at most e^23 < 1e10, so their error is 1e21 u. The blocks have
    weights of at most 1.6 and a sum of at least 1, each with an error of 2^34 * 5u. Each number is
    enlarged and reduced by 1e26 u; if both ends have the same floor, that floor is correct. All
    these numbers lie strictly between 0 and 1.
    """
    # `about` only chooses sizes, and every choice is exact. Neither `about` nor the number of
    # levels may depend on `decimals`.
    about = -math.log(-math.expm1(-rate)) * float(shape)
    with localcontext(Context(prec=decimals, Emin=-(10**9), Emax=10**9)):
        ratio = (-(Decimal(rate.numerator) / Decimal(rate.denominator))).exp()
        complement = 1 - ratio
        mean = -complement.ln() * shape.numerator / shape.denominator
        runs = [(-mean).exp()]
        while len(runs) <= MAX_LEVELS and about * 2 ** (len(runs) - 1) < 1:
            runs.append(runs[-1] * runs[-1])
        bits = [run / (1 + run) for run in runs[:-1]]
        terms = [Decimal(1)]
        # mean <= 23: each term after the last one here is less than half the one before.
        while terms[-1] >= Decimal(10) ** -decimals:
            terms.append(terms[-1] * mean / (len(terms) + 1))
        beyond = list(accumulate(reversed(terms)))[::-1]
        numbers = [part / beyond[0] for part in beyond[1:]]
        weights: list[Decimal] = []
        power = Decimal(1)  # p^(2^i - 1), the weight of block i without the common factor p
        while 2 ** len(weights) * rate <= 1:
            weights.append(power)
            power *= power * ratio
        weights.append(power / (2 ** len(weights) * complement))
        above = list(accumulate(reversed(weights)))[::-1]
        blocks = [part / above[0] for part in above[1:]]
        families = [
            [_floor(value, digits, decimals) for value in values]
            for values in (runs, bits, numbers, blocks)
        ]
    certain = [[floor for floor in floors if floor is not None] for floors in families]
    if certain != families:
        return None
    certain[2] = [*filter(None, certain[2]), 0]
    return JumpTables(about, *(_rows(floors, digits) for floors in certain))


def _floor(value: Decimal, digits: int, decimals: int) -> int | None:
    """floor(2^(64 digits) value) for 0 < value < 1, or None if the decimals do not determine it."""
    scale = 2 ** (64 * digits)
    slack = Decimal(10) ** (GUARD_DIGITS + 1 - decimals)
    low = max(0, math.floor(scale * (value - slack)))
    high = min(scale - 1, math.floor(scale * (value + slack)))
    return low if low == high else None


def _rows(floors: list[int], digits: int) -> Words:
    places = range(64 * (digits - 1), -1, -64)
    rows = [[floor >> place & 0xFFFFFFFFFFFFFFFF for place in places] for floor in floors]
    return np.array(rows, dtype=np.uint64).reshape(len(floors), digits)
