"""Fallback of noisy vectors: privacy of one person's own vector if the shuffler colludes.

The guarantees and the report of noisy vectors state this fallback. Notation: phi_e(x) is the
feature of the value x in coordinate e; h = `honest`; each person adds to every coordinate e a share
of Polya noise of shape b = 1/h and rate a_e, whose law is f (or f_e) and p = e^(-a_e) (see
noise/polya.py).
"""

from __future__ import annotations

import math
from collections import Counter
from fractions import Fraction

import numpy as np

from metricshuffle.accounting.vectors.feature_changes import FeatureChanges
from metricshuffle.citations import theorem
from metricshuffle.errors import InputError, argument
from metricshuffle.noise.polya import Polya, rounded_down
from metricshuffle.numerics.rounding import ROUNDOFF, never_small, round_up
from metricshuffle.numerics.types import Floats, Integers64
from metricshuffle.privacy.profile import validate_distance

MAX_TERMS = 2**20
"""Largest number of terms of a series; the remainder is bounded."""
MAX_SIZES = 256
"""Largest number of different changes of coordinates whose laws are computed one by one."""
SIZE_BITS = 5


@theorem("metricshuffle", "Noisy vectors, the shuffler colludes: one vector alone")
def single_report_loss(changes: FeatureChanges, honest: int) -> float:
    """Sum of count * ln f(0)/f(size), f the law of ONE share of noise (shape 1/honest), rounded up.

    Statement: an observer of one person's vector phi(x) + N alone, where N_e is Polya noise of
    shape 1/h, h = honest, and rate a_e, distinguishes x and x' with a log likelihood ratio of at
    most this sum, and of exactly this sum with positive probability. If the vector is sent modulo a
    number, the ratio is at most this sum.
    Conditions: noise is independent over coordinates; the rates given are not below those of the
    noise; h >= 1. The loss is about ln h + ln size + rate * size for every coordinate that changes,
    and with the probability `no_noise_probability` the vector is seen without noise: in effect no
    protection. For several rounds, multiply the counts by their number.
    Proof: for shape 1/h <= 1 f is log-convex on both sides of 0, so for a change d of the
    coordinate f(z)/f(z-d) is largest at z = 0 (`Polya.pure`). Coordinates are independent, so the
    largest ratios multiply and are attained together. Modulo a number, the probability of each
    residue is a sum of masses whose ratios are at most this.
    Numerics: rounded up.
    Reference: docs/proofs/noisy-vectors.md, (e).
    """
    counted: Counter[tuple[float, int]] = Counter()
    for rate, size, count in zip(changes.rates, changes.sizes, changes.counts, strict=True):
        counted[float(rate), int(size)] += int(count)
    return _sum_losses(counted, honest)


@theorem("metricshuffle", "Noisy vectors, the shuffler colludes: somebody with many items")
def max_single_report_loss(rates: Floats, tops: Integers64, honest: int, budget: float) -> float:
    """Upper bound on `single_report_loss` over all moves whose `ideal_loss` is at most `budget`.

    Statement: coordinates e change by whole numbers d_e <= tops[e] with sum of rates[e] * d_e <=
    budget. Then sum_e L_e(d_e), with L_e(d) = ln f_e(0)/f_e(d), is at most sum_e L_e(m_e), m_e =
    min(tops[e], floor(budget / rates[e])); and, as L_e is concave, at most the value of the steps
    L_e(k) - L_e(k-1), each of weight rates[e], that fill the budget best (the last one in part).
    Conditions: those of `single_report_loss`. tops[e] is the most that coordinate e can change by.
    Proof: each d_e is at most m_e. L_e is concave because f_e is log-convex on d >= 0, so the best
    d takes each coordinate's steps in order, and filling a budget greedily by value per weight is
    the best of all fractional choices.
    Numerics: the smaller of the two, rounded up. More than 256 different m_e are first rounded up
    to five leading bits, as every different m_e needs the computation of a law.
    Reference: docs/proofs/noisy-vectors.md, (e).
    """
    if not (isinstance(budget, int | float) and 0.0 <= budget < math.inf):
        raise InputError(f"budget must be a finite number >= 0, got {budget!r}.")
    if len(rates) != len(tops) or not (np.all(rates > 0.0) and np.all(tops >= 0)):
        raise InputError(
            "rates and tops must have the same length, rates > 0 and tops whole numbers >= 0."
        )
    max_steps = np.minimum(
        tops,
        np.floor(np.minimum(budget / rates * (1.0 + 4.0 * ROUNDOFF), 2.0**62)).astype(np.int64),
    )
    if len(np.unique(max_steps)) > MAX_SIZES:
        powers = np.maximum(np.frexp(max_steps.astype(np.float64))[1] - SIZE_BITS, 0)
        max_steps = (-((-max_steps) >> powers)) << powers  # rounded up
    counted = Counter(zip(rates.tolist(), max_steps.tolist(), strict=True))
    return min(_sum_losses(counted, honest), _fill_budget(counted, honest, budget))


def _sum_losses(counted: Counter[tuple[float, int]], honest: int) -> float:
    shape = _share(honest)
    losses = [
        count * Polya(shape, rate).pure(size)
        for (rate, size), count in counted.items()
        if count and size
    ]
    return never_small(round_up(math.fsum(losses), 8))


def _fill_budget(counted: Counter[tuple[float, int]], honest: int, budget: float) -> float:
    """Value, rounded up, of the fractional choice of steps that fills the budget best.

    A coordinate's first step is by far the most valuable; all later steps count as the second.
    """
    shape = _share(honest)
    steps: list[tuple[float, float, float]] = []
    for (rate, size), count in counted.items():
        if count and size:
            first = Polya(shape, rate).pure(1)
            steps.append((first / rate, count * rate, count * first))
            if size > 1:
                second = _second_step(first, rate, float(shape))
                steps.append(
                    (second / rate, count * rate * (size - 1), count * second * (size - 1))
                )
    left = budget * (1.0 + 4.0 * ROUNDOFF)
    value = 0.0
    for _, weight, worth in sorted(steps, reverse=True):
        part = min(1.0, left / weight)
        value += part * worth
        left -= part * weight
        if left <= 0.0:
            break
    return never_small(round_up(value, 16 + 8 * len(steps)))


def _second_step(first: float, rate: float, shape: float) -> float:
    """ln f(1)/f(2) from ln f(0)/f(1), rounded up; at most the first step.

    It follows from p (2-b) f(2) = (1 + p^2) f(1) - p b f(0), with b = shape and p = e^-rate.
    """
    p = math.exp(-rate)
    whole = 1.0 + p * p
    taken = shape * math.exp(first - rate)
    left = whole - taken - 32.0 * ROUNDOFF * (1.0 + first) * (whole + taken)
    return min(first, math.log(p * (2.0 - shape) / left) + 1e-14) if left > 0.0 else first


@theorem("metricshuffle", "Noisy vectors, the shuffler colludes: the chance of no noise at all")
def no_noise_probability(rates: Floats, honest: int) -> float:
    """Probability that one share of noise is 0 in every coordinate, rounded up.

    An observer of the vector alone then sees the features.

    Statement: it is the product over coordinates of f(0) = (1-p)^(2b) sum_k c_k^2 p^(2k), where p =
    e^-rate, b = 1/honest and c_k = C(b+k-1, k) is a binomial coefficient; for K coordinates about
    (1-p)^(2K/honest).
    Conditions: those of `single_report_loss`.
    Proof: f(0) = P(A = B), A and B independent negative binomial with P(A = k) = c_k (1-p)^b p^k.
    Numerics: let n be the last term that is summed. For k > n, c_k/c_n <= ((k+1)/(n+1))^(b-1), so
    the terms after n add at most c_n^2 times the smaller of p^(2n+2)/(1-p^2) and, for b < 1/2,
    (n+1)/(1-2b). b is rounded down, which only increases the result.
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
        # Term k has an error of 5k roundings; terms fall at least like 1/k^2 where there are many.
        total += count * (
            2.0 * b * math.log(-math.expm1(-rate))
            + math.log1p(others * (1.0 + 16.0 * last * ROUNDOFF))
        )
    # A result that underflows is still positive.
    return min(
        1.0,
        math.nextafter(
            math.exp(min(total * (1.0 - 1e-14) + 1e-15 * len(rates), 0.0)) * (1.0 + 1e-14), math.inf
        ),
    )


def _share(honest: int) -> Fraction:
    if isinstance(honest, bool) or not isinstance(honest, int) or honest < 1:
        raise InputError(f"{argument('honest')} must be a whole number >= 1, got {honest!r}.")
    return Fraction(1, honest)


@theorem(
    "metricshuffle", "Noisy vectors, values randomized first: what is left if the shuffler colludes"
)
def floor_loss(rate: float, steps: float) -> float:
    """rate * steps, rounded up: the pure loss of all that one person sends if values have a floor.

    With a floor, the value is randomized before anything else.

    Statement: every axis of a point of a line or a grid gets two-sided geometric noise of `rate`
    per step and is clamped to its range, and everything sent depends on the result alone. Then the
    log likelihood ratio of everything sent is at most rate * |x - y|_1 for two values x and y,
    where |x - y|_1 is the sum over the axes of their distance in steps; and `ideal_loss`, its
    slope, `LargeMoves.delta` and the mixing term remain valid for the values before they were
    randomized.
    Conditions: a line, or a grid axis by axis, and features whose losses are bounded by a function
    that does not decrease in the steps of either axis: thresholds, ramps, cells, shifted boxes, or
    any set by its slope. ONE public number of items for everyone; every item has independent noise,
    and `steps` adds up over matched items. It holds neither for people with different numbers of
    items (`rounding_factor`) nor on trees and other metrics: there the guarantee about sums becomes
    false. The losses of rounds add up, unless the value is randomized only once. For Euclidean
    distances take steps = sqrt(2) * distance / cell.
    Proof: docs/proofs/noisy-vectors.md, (g); counterexamples in (h).
    Numerics: rounded up.
    """
    if not (isinstance(rate, int | float) and 0.0 < rate < math.inf):
        raise InputError(f"{argument('rate')} must be a finite number > 0, got {rate!r}.")
    steps = validate_distance(steps)
    return math.nextafter(rate * steps, math.inf) if steps else 0.0
