"""Exact samplers of integer noise: rational parameters, integer arithmetic, no float in any decision.

Rates and shapes are Fractions. The compiled kernels take any rate s/t in [2^-32, 2^10] with s <= 2^30 and
t <= 2^62; `rational_rate` turns a float into the next such dyadic rational DOWN (towards more noise), which
is again exactly a float, so that the rate that is accounted for is the rate that is sampled.

Time: a geometric reads about 8 words whatever its rate. A Polya share of fractional shape reads two or three
times 1/rate words more (35 in all at rate 0.1; MILLISECONDS at rate 1e-6).

Timing leaks: rejected trials say nothing (they are independent of the value), but the accepted trial takes
longer for a larger value. Pad to a deadline, and never abort, redraw or drop on an overrun, which would
condition the noise; or draw from a `Table` with constant_time=True.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from numbers import Rational

import numpy as np

from metricshuffle.citations import theorem
from metricshuffle.errors import InputError, NotCertified
from metricshuffle.numerics.types import Integers64, Words
from metricshuffle.randomness import BUFFER_WORDS, Randomness, checked_count

SIGNIFICANT_BITS = 30
SMALLEST_RATE, LARGEST_RATE = Fraction(1, 2**32), Fraction(2**10)
LARGEST_NUMERATOR, LARGEST_DENOMINATOR = 2**30, 2**62
LARGEST_SHAPE = 2**20
LONGEST_STEP = 2**20
"""Words. A step reads about 10; one that wants 2^20 has probability below e^-100000: the source is broken."""


def rational_rate(rate: float) -> Fraction:
    """The largest dyadic rational <= rate with at most 30 significant bits; it equals its own float.

    Conditions: 2^-32 <= rate <= 2^10. Numerics: rate = m 2^e with 1/2 <= m < 1 exactly, s = floor(2^30 m) < 2^30,
    and s 2^(e-30) has a denominator of at most 2^61. The relative loss is below 2^-29.
    """
    if not (isinstance(rate, int | float) and SMALLEST_RATE <= rate <= LARGEST_RATE):
        raise InputError(f"rate must be a number between 2^-32 and 2^10 to be sampled exactly, got {rate!r}; change the unit of distance.")
    mantissa, exponent = math.frexp(rate)
    numerator = math.floor(mantissa * 2**SIGNIFICANT_BITS)
    return Fraction(numerator) * Fraction(2) ** (exponent - SIGNIFICANT_BITS)


def _checked_rate(rate: Fraction) -> Fraction:
    if not isinstance(rate, Rational):
        raise InputError(f"rate must be an exact Fraction, got {rate!r}; use rational_rate({rate!r}).")
    exact = Fraction(rate)
    if not SMALLEST_RATE <= exact <= LARGEST_RATE or exact.numerator > LARGEST_NUMERATOR or exact.denominator > LARGEST_DENOMINATOR:
        raise InputError(
            f"rate must lie between 2^-32 and 2^10 with a numerator up to 2^30 and a denominator up to 2^62, got {exact}; "
            "round it with rational_rate()."
        )
    return exact


def _checked_shape(shape: Fraction) -> Fraction:
    if not isinstance(shape, Rational):
        raise InputError(f"shape must be an exact Fraction such as Fraction(1, users), got {shape!r}.")
    exact = Fraction(shape)
    if not 0 < exact <= LARGEST_SHAPE or exact.denominator > LARGEST_DENOMINATOR:
        raise InputError(f"shape must lie in (0, 2^20] with a denominator up to 2^62, got {exact}.")
    return exact


def _filled(
    kernel: Callable[[Words, Integers64, Integers64], int], count: int, randomness: Randomness, *, buffer_words: int | None = None
) -> Integers64:
    """Run a kernel over the word stream until `count` draws are made.

    Unbiased: `kernel` returns where its interrupted step began; the words from there on are kept and read
    again, followed by fresh ones, so the draws are the same function of the stream for every buffer length.
    """
    out, state = np.empty(count, dtype=np.int64), np.zeros(5, dtype=np.int64)
    buffer = np.empty(buffer_words or min(BUFFER_WORDS, 64 + 16 * count), dtype=np.uint64)
    kept = 0
    while state[0] < count:
        randomness.fill(buffer[kept:])
        position = kernel(buffer, out, state)
        kept = buffer.size - position
        if position:
            buffer[:kept] = buffer[position:].copy()
        elif buffer.size < LONGEST_STEP:
            buffer = np.concatenate([buffer, np.empty(buffer.size, dtype=np.uint64)])
        else:
            raise NotCertified("one draw asked for more than a million random words; the source of randomness is broken.")
    return out


def _fraction_words(value: Fraction) -> tuple[np.uint64, np.uint64]:
    return np.uint64(value.numerator), np.uint64(value.denominator)


@theorem("Canonne20", "Algorithm 2 (geometric part)")
def sample_geometric(rate: Fraction, count: int, randomness: Randomness) -> Integers64:
    """Draws of K >= 0 with P(K = k) = (1-p) p^k, p = exp(-rate).

    Statement: U uniform on 0..t-1 accepted with probability e^(-U/t), V geometric with ratio 1/e;
    floor((U + tV)/s) has the law above for rate = s/t.
    Conditions: rate in [2^-32, 2^10], s <= 2^30, t <= 2^62. Numerics: integers only; int64 cannot overflow (see the kernel).
    Reference: Canonne, Kamath, Steinke 2020, section 5.
    """
    from metricshuffle.noise import _sampling_kernels as kernels

    size, (above, under) = checked_count(count), _fraction_words(_checked_rate(rate))
    return _filled(lambda words, out, state: kernels.fill_geometric(words, above, under, out, state), size, randomness)


@theorem("Canonne20", "Algorithm 2")
def sample_discrete_laplace(rate: Fraction, count: int, randomness: Randomness) -> Integers64:
    """Draws of Z with P(Z = z) = (1-p)/(1+p) p^|z|, p = exp(-rate).

    Statement: a fair sign and a geometric magnitude, drawn again when it is "minus zero".
    Conditions: as sample_geometric. Numerics: integers only. Reference: Canonne, Kamath, Steinke 2020, section 5.
    """
    from metricshuffle.noise import _sampling_kernels as kernels

    size, (above, under) = checked_count(count), _fraction_words(_checked_rate(rate))
    return _filled(lambda words, out, state: kernels.fill_discrete_laplace(words, above, under, out, state), size, randomness)


@theorem("metricshuffle", "exact negative binomial by rejection")
def sample_negative_binomial(shape: Fraction, rate: Fraction, count: int, randomness: Randomness) -> Integers64:
    """Draws of NB(r, p): P(A = k) = C(r+k-1, k) (1-p)^r p^k, with r = shape and p = exp(-rate).

    Statement: for r <= 1, a geometric k accepted with probability prod_{j=1..k} (j-1+r)/j, else started afresh, is NB(r, p):
    (1-p) p^k times that product is proportional to C(r+k-1, k) p^k; a trial is accepted with probability (1-p)^(1-r).
    The kernel runs the same trials in another order: it tests j = 1 before it draws the rest of k (given k >= 1, k-1 is
    geometric again), and it draws how many trials in a row say k >= 1 as one geometric (they are independent coins).
    A test (j-1+r)/j fails with probability (1/j)(1-r), two independent coins, so no product of denominators is formed.
    For r > 1, floor(r) independent geometrics are added to NB(r - floor(r), p): generating functions multiply.
    Conditions: as sample_geometric; shape in (0, 2^20], its denominator up to 2^62. Numerics: integers only; int64
    could overflow only in an event of probability below e^(-2^20).
    Reference: proved above.
    """
    from metricshuffle.noise import _sampling_kernels as kernels

    exact, size = _checked_shape(shape), checked_count(count)
    above, under = _fraction_words(_checked_rate(rate))
    whole, rest = divmod(exact, 1)
    total = _row_sums(sample_geometric, rate, int(whole), size, randomness)
    if rest:
        part, parts = _fraction_words(rest)
        quotient, remainder = (np.uint64(number) for number in divmod(rest.numerator << 64, rest.denominator))

        def fill(words: Words, out: Integers64, state: Integers64) -> int:
            return int(kernels.fill_negative_binomial(words, above, under, part, parts, quotient, remainder, out, state))

        total += _filled(fill, size, randomness)
    return total


@theorem("Goryczka17", "Polya shares of discrete Laplace noise")
def sample_polya(shape: Fraction, rate: Fraction, count: int, randomness: Randomness) -> Integers64:
    """Draws of A - B with A, B independent NB(shape, exp(-rate)); shape 1 is discrete Laplace, shape 1/n one of n shares of it.

    Statement: floor(shape) discrete Laplace draws plus the difference of two NB(shape - floor(shape)) draws; shapes add.
    Conditions, numerics: as sample_negative_binomial. Reference: Goryczka and Xiong 2017; the sampler is proved above.
    """
    exact, size = _checked_shape(shape), checked_count(count)
    whole, rest = divmod(exact, 1)
    total = _row_sums(sample_discrete_laplace, rate, int(whole), size, randomness)
    if rest:
        draws = sample_negative_binomial(rest, rate, 2 * size, randomness)
        total += draws[:size]
        total -= draws[size:]
    return total


def _row_sums(
    sampler: Callable[[Fraction, int, Randomness], Integers64], rate: Fraction, rows: int, count: int, randomness: Randomness
) -> Integers64:
    """`count` sums of `rows` independent draws, a bounded number of draws in memory."""
    total = np.zeros(count, dtype=np.int64)
    together = max(1, 2**16 // max(1, count))
    for done in range(0, rows if count else 0, together):
        block = min(together, rows - done)
        total += sampler(rate, block * count, randomness).reshape(block, count).sum(axis=0)
    return total
