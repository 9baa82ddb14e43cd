"""What is left of noisy vectors if the shuffler colludes and one person's own vector is seen: next to nothing, and how little exactly."""

from __future__ import annotations

import math
from collections import Counter
from fractions import Fraction

import numpy as np

from metricshuffle.accounting.vectors.feature_changes import FeatureChanges
from metricshuffle.citations import theorem
from metricshuffle.errors import InputError
from metricshuffle.noise.polya import Polya, rounded_down
from metricshuffle.numerics.rounding import ROUNDOFF, never_small, round_up
from metricshuffle.numerics.types import Floats, Integers64

MAX_TERMS = 2**20
"""Of a series; the rest is bounded."""


@theorem("metricshuffle", "Noisy vectors, the shuffler colludes: one vector alone")
def single_report_loss(changes: FeatureChanges, honest: int) -> float:
    """Sum of count * ln f(0)/f(size), f the law of ONE share of noise (shape 1/honest), rounded up.

    Statement: whoever sees one person's vector phi(x) + N by itself, N_e Polya noise of shape 1/h and rate a_e, tells x and x' apart
    with a log likelihood ratio of at most this, and of exactly this with positive probability; under a modulus at most this.
    Conditions: noise is independent over coordinates; the rates given are not below those of the noise; h >= 1.
    It is about ln h + ln size + rate * size for every coordinate that changes, and with the probability `no_noise_probability` the
    vector is seen as it is: in effect no protection. Rounds multiply counts.
    Proof: for shape 1/h <= 1 f is log-convex on both sides of 0, so f(z)/f(z-d) is largest at z = 0 (`Polya.pure`); coordinates are
    independent, so the largest ratios multiply and are attained together. A residue's masses are sums of masses with that ratio at most.
    Numerics: rounded up.
    Reference: docs/proofs/noisy-vectors.md, (e).
    """
    counted: Counter[tuple[float, int]] = Counter()
    for rate, size, count in zip(changes.rates, changes.sizes, changes.counts, strict=True):
        counted[float(rate), int(size)] += int(count)
    return _sum_losses(counted, honest)


@theorem("metricshuffle", "Noisy vectors, the shuffler colludes: somebody with many items")
def max_single_report_loss(rates: Floats, tops: Integers64, honest: int, budget: float) -> float:
    """An upper bound on `single_report_loss` over every move whose `ideal_loss` is at most `budget`, rounded up.

    Statement: coordinates e change by whole numbers d_e <= tops[e] with sum of rates[e] * d_e <= budget. Then sum_e L_e(d_e), with
    L_e(d) = ln f_e(0)/f_e(d), is at most sum_e L_e(m_e), m_e = min(tops[e], floor(budget / rates[e])); and, as L_e is concave, at most
    the value of the steps L_e(k) - L_e(k-1), each of weight rates[e], that fill the budget best (the last one in part).
    Conditions: those of `single_report_loss`. Every coordinate's top is the most it can change by.
    Proof: each d_e is at most m_e. L_e is concave because f_e is log-convex on d >= 0, so the best d takes each coordinate's steps in
    order, and filling a budget greedily by value per weight is the best of all fractional choices.
    Numerics: the smaller of the two, rounded up.
    Reference: docs/proofs/noisy-vectors.md, (e).
    """
    if not (isinstance(budget, int | float) and 0.0 <= budget < math.inf):
        raise InputError(f"budget must be a finite number >= 0, got {budget!r}.")
    if len(rates) != len(tops) or not (np.all(rates > 0.0) and np.all(tops >= 0)):
        raise InputError("rates and tops are of one length, rates > 0 and tops whole numbers >= 0.")
    max_steps = np.minimum(tops, np.floor(np.minimum(budget / rates * (1.0 + 4.0 * ROUNDOFF), 2.0**62)).astype(np.int64))
    counted = Counter(zip(rates.tolist(), max_steps.tolist(), strict=True))
    return min(_sum_losses(counted, honest), _fill_budget(counted, honest, budget))


def _sum_losses(counted: Counter[tuple[float, int]], honest: int) -> float:
    shape = _share(honest)
    losses = [count * Polya(shape, rate).pure(size) for (rate, size), count in counted.items() if count and size]
    return never_small(round_up(math.fsum(losses), 8))


def _fill_budget(counted: Counter[tuple[float, int]], honest: int, budget: float) -> float:
    """The fractional choice of steps that fills the budget best; a coordinate's first step is worth most by far, and each of the others
    is taken for as much as its second."""
    shape = _share(honest)
    steps: list[tuple[float, float, float]] = []
    for (rate, size), count in counted.items():
        if count and size:
            first = Polya(shape, rate).pure(1)
            steps.append((first / rate, count * rate, count * first))
            if size > 1:
                second = _second_step(first, rate, float(shape))
                steps.append((second / rate, count * rate * (size - 1), count * second * (size - 1)))
    left, value = budget * (1.0 + 4.0 * ROUNDOFF), 0.0
    for _, weight, worth in sorted(steps, reverse=True):
        part = min(1.0, left / weight)
        value += part * worth
        left -= part * weight
        if left <= 0.0:
            break
    return never_small(round_up(value, 16 + 8 * len(steps)))


def _second_step(first: float, rate: float, shape: float) -> float:
    """ln f(1)/f(2), rounded up, from ln f(0)/f(1): p (2-b) f(2) = (1 + p^2) f(1) - p b f(0); at most the first step."""
    p = math.exp(-rate)
    whole, taken = 1.0 + p * p, shape * math.exp(first - rate)
    left = whole - taken - 32.0 * ROUNDOFF * (1.0 + first) * (whole + taken)
    return min(first, math.log(p * (2.0 - shape) / left) + 1e-14) if left > 0.0 else first


@theorem("metricshuffle", "Noisy vectors, the shuffler colludes: the chance of no noise at all")
def no_noise_probability(rates: Floats, honest: int) -> float:
    """Chance that one share of noise is 0 in every coordinate, rounded up: whoever sees the vector alone then sees the features.

    Statement: the product over coordinates of f(0) = (1-p)^(2b) sum_k c_k^2 p^(2k), c_k = C(b+k-1, k), b = 1/honest; about
    (1-p)^(2K/honest). Conditions: those of `single_report_loss`.
    Proof: f(0) = P(A = B), A and B negative binomial. Numerics: c_k falls as c_k/c_n <= ((k+1)/(n+1))^(b-1), so what follows the last term,
    n, is at most c_n^2 times the smaller of p^(2n+2)/(1-p^2) and, for b < 1/2, (n+1)/(1-2b). b is rounded down, which only adds.
    Reference: this docstring.
    """
    b = rounded_down(_share(honest))
    total = 0.0
    for rate, count in Counter(rates.tolist()).items():
        last = min(math.ceil(20.0 / rate) + 1, MAX_TERMS)
        steps = np.arange(1.0, last + 1.0)
        terms = (np.cumprod((steps - 1.0 + b) / steps) * np.exp(-rate * steps)) ** 2
        remainder = math.exp(-2.0 * rate) / -math.expm1(-2.0 * rate)
        if b < 0.5:
            remainder = min(remainder, (last + 1.0) / (1.0 - 2.0 * b))
        others = float(np.sum(terms)) + float(terms[-1]) * remainder
        # a term of number k is off by 5k roundings; terms fall at least like 1/k^2 where there are many of them
        total += count * (2.0 * b * math.log(-math.expm1(-rate)) + math.log1p(others * (1.0 + 16.0 * last * ROUNDOFF)))
    # what underflows is positive all the same
    return min(1.0, math.nextafter(math.exp(min(total * (1.0 - 1e-14) + 1e-15 * len(rates), 0.0)) * (1.0 + 1e-14), math.inf))


def _share(honest: int) -> Fraction:
    if isinstance(honest, bool) or not isinstance(honest, int) or honest < 1:
        raise InputError(f"honest must be a whole number >= 1, got {honest!r}.")
    return Fraction(1, honest)
