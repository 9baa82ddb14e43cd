"""A negative binomial as a sum of jumps: the laws it is put together from, as digits that random words are compared with.

NB(r, p) with r <= 1, p = e^-rate and L = -ln(1-p) is the sum of M independent jumps, M Poisson of mean mu = r L, each
jump K with P(K = k) = p^k / (k L), k >= 1: its generating function ((1-p)/(1-pz))^r is exp(mu (g(z) - 1)) with
g(z) = -ln(1-pz)/L. Most draws of a small shape have no jump at all (M = 0 has probability e^-mu), so a row of them is

    a run of N zeros, P(N >= n) = e^(-mu n); then one draw that has at least one jump; and so on.

N: with E = e^-mu the binary digits of N are independent, the j-th being 1 with probability E^(2^j) / (1 + E^(2^j)),
   because E^N is a product over the digits; and what lies above the lowest J digits is geometric of ratio E^(2^J).
M: given M >= 1, P(M > m) = (sum_{i > m} mu^(i-1)/i!) / (sum_{i >= 1} mu^(i-1)/i!).
K: by rejection from a staircase above p^k/k. Block i < I holds k in [2^i, 2^(i+1)), each with weight p^(2^i) / 2^i; k is kept
   with probability (2^i / k) e^(-rate (k - 2^i)). The tail holds k >= 2^I with weight p^k / 2^I, that is
   p^(2^I) / (2^I (1-p)) in all; k is kept with probability 2^I / k. I is the least with 2^I > 1/rate; seven in ten are kept, or more.

A uniform real number V is compared with these probabilities digit by digit (of 64 bits), and a word nearly always decides.
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
"""Binary digits of a run of zeros: no array has more than 2^40 places."""
GUARD_DIGITS = 26
MAX_DECIMALS = 5_000


@dataclass(frozen=True)
class JumpTables:
    """Rows of digits, most significant first: row [d0, d1, ...] stands for the real number d0/2^64 + d1/2^128 + ... and a bit more."""

    mean: float
    """About the mean number of jumps, for the length of buffers."""
    runs: Words
    """Row j: the probability that a run of zeros is at least 2^j long."""
    bits: Words
    """Row j: the probability that the j-th binary digit of a run is 1."""
    numbers: Words
    """Row m: the probability of more than m + 1 jumps where there is at least one. The last row is 0: farther than these digits see."""
    blocks: Words
    """Row i: the probability of a block above i (block I is the tail)."""


@lru_cache(maxsize=2**14)  # 2 kB each
def jump_tables(shape: Fraction, rate: Fraction, digits: int) -> JumpTables:
    """The tables of NB(shape, e^-rate) for 0 < shape < 1, to `digits` words a number; every digit is certain."""
    decimals = 20 * digits + 50
    while decimals <= MAX_DECIMALS:
        tables = _tables(shape, rate, digits, decimals)
        if tables is not None:
            return tables
        decimals *= 2
    raise NotCertified(f"the digits of the noise of shape {shape} and rate {rate} could not be computed; use a slightly different rate.")


def _tables(shape: Fraction, rate: Fraction, digits: int, decimals: int) -> JumpTables | None:
    """The tables, or None if so many decimals leave a digit in doubt.

    Numerics: decimal operations, exp and ln are correctly rounded, so each has a relative error below u = 10^(1-decimals). Then p is
    off by (rate + 2) u relative, 1 - p >= 2^-33 by 3u, which is 3e10 u relative, L <= 23 and mu by 5e10 u, e^-mu by 6e10 u; each
    squaring doubles that, and 40 of them make less than 1e23 u. The derivative of the sums over the Poisson law is at most
    e^23 < 1e10, so they are off by 1e21 u. The blocks have weights of at most 1.6 and a sum of at least 1, each off by 2^34 * 5u. With
    1e26 u of slack a floor that is the same at both ends is right. All these numbers lie strictly between 0 and 1.
    """
    # only for choosing sizes, of which every choice is exact; it must not depend on the decimals, nor may the number of levels
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
        while terms[-1] >= Decimal(10) ** -decimals:  # mean <= 23: from there on each is less than half the last
            terms.append(terms[-1] * mean / (len(terms) + 1))
        beyond = list(accumulate(reversed(terms)))[::-1]
        numbers = [part / beyond[0] for part in beyond[1:]]
        weights: list[Decimal] = []
        power = Decimal(1)  # p^(2^i - 1), the weight of block i but for a factor p that all have
        while 2 ** len(weights) * rate <= 1:
            weights.append(power)
            power *= power * ratio
        weights.append(power / (2 ** len(weights) * complement))
        above = list(accumulate(reversed(weights)))[::-1]
        blocks = [part / above[0] for part in above[1:]]
        families = [[_floor(value, digits, decimals) for value in values] for values in (runs, bits, numbers, blocks)]
    certain = [[floor for floor in floors if floor is not None] for floors in families]
    if certain != families:
        return None
    certain[2] = [*filter(None, certain[2]), 0]
    return JumpTables(about, *(_rows(floors, digits) for floors in certain))


def _floor(value: Decimal, digits: int, decimals: int) -> int | None:
    """floor(2^(64 digits) value) for a number strictly between 0 and 1, or None if the decimals do not tell."""
    scale, slack = 2 ** (64 * digits), Decimal(10) ** (GUARD_DIGITS + 1 - decimals)
    low, high = max(0, math.floor(scale * (value - slack))), min(scale - 1, math.floor(scale * (value + slack)))
    return low if low == high else None


def _rows(floors: list[int], digits: int) -> Words:
    places = range(64 * (digits - 1), -1, -64)
    rows = [[floor >> place & 0xFFFFFFFFFFFFFFFF for place in places] for floor in floors]
    return np.array(rows, dtype=np.uint64).reshape(len(floors), digits)
