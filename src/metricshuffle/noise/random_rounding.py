"""Errors of sums whose terms were rounded at random, together with noise: how wide an interval has to be for every data set."""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np

from metricshuffle.citations import theorem
from metricshuffle.errors import InputError
from metricshuffle.noise.symmetric_pmf import SymmetricLaw
from metricshuffle.numerics.certified_search import last_certified_integer
from metricshuffle.numerics.types import Floats

# Up to this many people binomial tails are evaluated one by one, above by their normal bound.
FEW_PEOPLE = 400
# Normal tails beyond so many deviations weigh nothing next to what an interval may miss.
MAX_DEVIATIONS = 9.0


@theorem("metricshuffle", "Tails of random rounding")
def rounding_tail(people: int, sizes: Floats) -> Floats:
    """Upper bound on P(|S| > y) for each size y, S = sum over people of (B_i - w_i), the B_i independent with P(B_i = 1) = w_i.

    Statement: for every choice of the w_i and y >= 1, P(S > y) <= max over k of P(Bin(n, (k+1-y)/n) > k), and that is at most
    P(N > 2 (y - 1)/sqrt(n)), N standard normal. P(|S| > y) is at most twice that, and at most 1 for y < 1.
    Conditions: n = people >= 1; the B_i are independent.
    Proof: with m = sum of the w_i and k = floor(m + y) >= m, P(S > y) = P(sum B_i > k) <= P(Bin(n, m/n) > k): equal w_i are the worst
    (Hoeffding 1956, Theorem 4). That rises with m, and k = floor(m + y) asks for m < k + 1 - y. P(Bin(n, p) > k) <=
    P(N > sqrt(2 n D(k/n || p))) for k >= n p (Zubkov and Serov 2013), where D(q || p) >= 2 (q - p)^2, and k - m > y - 1.
    The other side is the same with 1 - B_i in place of B_i.
    Numerics: a relative 1e-9 is added.
    Reference: Hoeffding 1956 (On the distribution of the number of successes in independent trials); Zubkov, Serov 2013 (A complete
    proof of universal inequalities for the distribution function of the binomial law); Pinsker's inequality.
    """
    from scipy.special import betainc, ndtr

    if people > FEW_PEOPLE:
        one_side = ndtr(-2.0 * (sizes - 1.0) / math.sqrt(people))
    else:
        above = np.arange(1.0, people + 1.0)[:, None]  # k + 1
        chances = np.clip((above - sizes[None, :]) / people, 0.0, 1.0)
        one_side = np.max(np.where(chances > 0.0, betainc(above, people - above + 1.0, chances), 0.0), axis=0)
    return np.where(sizes < 1.0, 1.0, np.minimum(2.0 * one_side * (1.0 + 1e-9), 1.0))


@lru_cache(maxsize=8)
def _rounded_tails(people: int) -> Floats:
    """P(|S| > c - 1/2) at most, c = 0, 1, 2, ...; what is left out is below 1e-18."""
    max_size = min(people, math.ceil(0.5 * MAX_DEVIATIONS * math.sqrt(people)) + 2)
    return rounding_tail(people, np.arange(max_size + 1.0) - 0.5)


@theorem("metricshuffle", "Noise and random rounding together")
def rounded_half_width(law: SymmetricLaw, people: int, miss: float) -> float:
    """Half the width, in cells, of an interval that Z + S leaves with probability at most `miss`, for every data set.

    Statement: Z of the given law, S the rounding error of `people` values (see rounding_tail), independent. For a whole T >= 0
        P(|Z + S| > T + 1/2) <= V(0) + sum over c >= 1 of R(c) (V(c) - V(c-1)),   V(c) = P(Z < c - T or Z > c + T),
    R(c) >= P(|S| > c - 1/2). The smallest such T is taken.
    Conditions: Z is symmetric and unimodal (all noise here is).
    Proof: |Z + s| <= T + 1/2 holds wherever Z lies in c - T..c + T, up to the sign of both, c = |s| rounded to the nearest whole number
    (downwards from the middle); so given S = s it fails with probability at most V(c), which rises with c as the law is unimodal.
    Summation by parts, with larger chances of a larger |S|, can only add.
    Numerics: masses of Z enlarged by their errors, what is outside its table added; refused where that alone is more than `miss`.
    Reference: this docstring.
    """
    larger = _rounded_tails(people)
    growth = math.exp(law.log_error[-1] + 1e-12)
    # tail[m] = P(Z >= m) for m <= radius + 1, and 0 beyond
    tail = np.append(law.tail, np.zeros(len(larger)))

    def missed(half: int) -> float:
        centres = np.arange(len(larger))
        beyond = tail[np.minimum(centres + half + 1, law.radius + 1)]
        threshold = half + 1 - centres  # P(Z <= -near); for near <= 0 all but P(Z >= 1 - near)
        before = np.where(threshold > 0, tail[np.clip(threshold, 0, law.radius + 1)], 1.0 - tail[np.clip(1 - threshold, 0, law.radius + 1)])
        left = np.maximum.accumulate(np.minimum((beyond + before) * growth + law.outside, 1.0))
        return float(left[0] + np.sum(larger[1:] * np.diff(left))) * (1.0 + 1e-9) + 1e-18

    max_half = law.radius + len(larger)
    if not missed(max_half) <= miss:
        raise InputError(f"the noise is known to all but {law.outside:.1e}; an interval must be allowed to miss more, got {miss!r}.")
    return last_certified_integer(lambda half: missed(half) <= miss, -1, max_half) + 0.5
