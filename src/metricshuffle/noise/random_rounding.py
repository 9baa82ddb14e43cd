"""Error intervals, valid for every data set, of noisy sums whose terms were rounded at random.

`AdditiveRandomizer` uses them for confidence intervals. A value with the fractional part w_i is
rounded up with probability w_i, otherwise down; S is the sum of these rounding errors, and Z the
noise that is added to the sum.
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np

from metricshuffle.citations import theorem
from metricshuffle.errors import InputError
from metricshuffle.noise.symmetric_pmf import SymmetricLaw
from metricshuffle.numerics.certified_search import last_certified_integer
from metricshuffle.numerics.types import Floats, Integers64
from metricshuffle.randomness import Randomness

# Up to this many people every binomial tail is evaluated; above, their normal bound is used.
FEW_PEOPLE = 400
# Normal tails beyond this many deviations are negligible against the miss probability.
MAX_DEVIATIONS = 9.0


def round_quotients(
    numerators: Integers64, denominators: Integers64, factor: int, randomness: Randomness
) -> Integers64:
    """Round factor * numerators / denominators at random to integers, one denominator a row.

    Exact: a quotient with the remainder r is rounded up with probability r / denominator, decided
    by a uniform integer below the denominator. All roundings are independent.
    """
    bounds = np.broadcast_to(denominators[:, None], numerators.shape)
    # factor * numerator = factor * (whole * denominator + remainder), without overflow.
    whole, remainder = np.divmod(numerators, bounds)
    scaled = remainder.astype(object) * factor if _overflows(bounds, factor) else remainder * factor
    more = scaled // bounds
    left = np.asarray(scaled - more * bounds, dtype=np.int64)
    draws = randomness.below_each(np.ascontiguousarray(bounds).ravel()).reshape(bounds.shape)
    return np.asarray(whole * factor + more.astype(np.int64) + (draws < left), dtype=np.int64)


def _overflows(bounds: Integers64, factor: int) -> bool:
    return bounds.size > 0 and int(bounds.max()) * factor >= 2**63


@theorem("metricshuffle", "Tails of random rounding")
def rounding_tail(people: int, sizes: Floats) -> Floats:
    """Upper bound on P(|S| > y) for each size y, S the error of rounding `people` values at random.

    S = sum over people of (B_i - w_i), where w_i is the fractional part of person i's value and the
    B_i are independent with P(B_i = 1) = w_i, else 0.

    Statement: for every choice of the w_i and y >= 1, P(S > y) <= max over k of P(Bin(n, (k+1-y)/n)
    > k), and this maximum is at most P(N > 2 (y - 1)/sqrt(n)), N standard normal. P(|S| > y) is at
    most twice that, and at most 1 for y < 1.
    Conditions: n = people >= 1; the B_i are independent.
    Proof: with m = sum of the w_i and k = floor(m + y) >= m, P(S > y) = P(sum B_i > k) <= P(Bin(n,
    m/n) > k), because equal w_i are the worst (Hoeffding 1956, Theorem 4). This probability
    increases with m, and k = floor(m + y) requires m < k + 1 - y. For the normal bound: P(Bin(n, p)
    > k) <= P(N > sqrt(2 n D(k/n || p))) for k >= n p (Zubkov and Serov 2013), where D(q || p) >= 2
    (q - p)^2 is the relative entropy of two Bernoulli laws with means q and p; and k - m > y - 1.
    The bound on P(S < -y) follows in the same way with 1 - B_i in place of B_i.
    Numerics: a relative 1e-9 is added.
    Reference: Hoeffding 1956 (On the distribution of the number of successes in independent
    trials); Zubkov, Serov 2013 (A complete proof of universal inequalities for the distribution
    function of the binomial law); Pinsker's inequality.
    """
    from scipy.special import betainc, ndtr

    if people > FEW_PEOPLE:
        one_side = ndtr(-2.0 * (sizes - 1.0) / math.sqrt(people))
    else:
        above = np.arange(1.0, people + 1.0)[:, None]  # k + 1
        chances = np.clip((above - sizes[None, :]) / people, 0.0, 1.0)
        one_side = np.max(
            np.where(chances > 0.0, betainc(above, people - above + 1.0, chances), 0.0), axis=0
        )
    return np.where(sizes < 1.0, 1.0, np.minimum(2.0 * one_side * (1.0 + 1e-9), 1.0))


@lru_cache(maxsize=8)
def _rounded_tails(people: int) -> Floats:
    """Upper bounds on P(|S| > c - 1/2) for c = 0, 1, 2, ...; the omitted ones are below 1e-18."""
    max_size = min(people, math.ceil(0.5 * MAX_DEVIATIONS * math.sqrt(people)) + 2)
    return rounding_tail(people, np.arange(max_size + 1.0) - 0.5)


@theorem("metricshuffle", "Noise and random rounding together")
def rounded_half_width(law: SymmetricLaw, people: int, miss: float) -> float:
    """Half-width, in cells, of an interval that Z + S leaves with probability at most `miss`.

    It is valid for every data set.

    Statement: Z has the given law, S is the rounding error of `people` values (see rounding_tail),
    independent of Z. For an integer T >= 0, P(|Z + S| > T + 1/2) <= V(0) + sum over c >= 1 of R(c)
    (V(c) - V(c-1)), where V(c) = P(Z < c - T or Z > c + T) and R(c) >= P(|S| > c - 1/2). The
    half-width is T + 1/2 for the smallest T whose bound is at most `miss`.
    Conditions: Z is symmetric and unimodal (all noise here is).
    Proof: given S = s, let c be |s| rounded to the nearest integer (half down). As Z is symmetric,
    s may be taken to be <= 0; then |Z + s| <= T + 1/2 wherever Z lies in c - T..c + T. So given S =
    s, |Z + S| > T + 1/2 has probability at most V(c), which increases with c as the law is
    unimodal. Summation by parts with upper bounds on the tails of |S| can only increase the sum.
    Numerics: masses of Z are enlarged by their errors and the mass outside the table is added;
    refused if that alone exceeds `miss`.
    Reference: this docstring.
    """
    larger = _rounded_tails(people)
    growth = math.exp(law.log_error[-1] + 1e-12)
    # tail[m] = P(Z >= m) for m <= radius + 1, and 0 beyond
    tail = np.append(law.tail, np.zeros(len(larger)))

    def missed(half: int) -> float:
        centres = np.arange(len(larger))
        beyond = tail[np.minimum(centres + half + 1, law.radius + 1)]
        # P(Z <= -threshold), which for threshold <= 0 is 1 - P(Z >= 1 - threshold)
        threshold = half + 1 - centres
        before = np.where(
            threshold > 0,
            tail[np.clip(threshold, 0, law.radius + 1)],
            1.0 - tail[np.clip(1 - threshold, 0, law.radius + 1)],
        )
        left = np.maximum.accumulate(np.minimum((beyond + before) * growth + law.outside, 1.0))
        return float(left[0] + np.sum(larger[1:] * np.diff(left))) * (1.0 + 1e-9) + 1e-18

    max_half = law.radius + len(larger)
    if not missed(max_half) <= miss:
        raise InputError(
            f"the noise is known to all but {law.outside:.1e}; an interval must be allowed "
            f"to miss more, got {miss!r}."
        )
    return last_certified_integer(lambda half: missed(half) <= miss, -1, max_half) + 0.5
