"""Exact samplers of integer noise: rational parameters, integer arithmetic, no float decisions.

Clients and the sum protocols draw their noise here. Rates and shapes are Fractions. The compiled
kernels take any rate s/t in [2^-32, 2^10] with s <= 2^30 and t <= 2^62; `rational_rate` rounds a
float DOWN (towards more noise) to such a dyadic rational, which is again exactly a float, so that
the account and the sampler use the same rate. NB(r, p) is the negative binomial law of shape r and
ratio p = e^-rate: P(A = k) = C(r+k-1, k) (1-p)^r p^k, C the binomial coefficient.

Time: a geometric draw reads about 8 words whatever its rate. A negative binomial of shape r <= 1 is
a sum of r ln(1/(1 - e^-rate)) jumps on average, each of about 10 words; draws without a jump cost
nothing (Polya shares of 1/100000 at rate 1e-6: one in 3,600 is not 0).

Timing leaks: rejected trials reveal nothing (they are independent of the value), but a larger value
takes longer, and so does a vector with more nonzero entries. Either wait until a fixed deadline,
and never abort, redraw or drop a draw that takes longer, because that would condition the noise; or
draw from a `DyadicTable` with constant_time=True.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from fractions import Fraction
from numbers import Rational

import numpy as np

from metricshuffle.citations import theorem
from metricshuffle.errors import InputError, NotCertified, argument
from metricshuffle.noise.compound_poisson import jump_tables
from metricshuffle.numerics.types import Integers64, Words
from metricshuffle.randomness import BUFFER_WORDS, Randomness, validate_count

SIGNIFICANT_BITS = 30
SMALLEST_RATE = Fraction(1, 2**32)
LARGEST_RATE = Fraction(2**10)
LARGEST_NUMERATOR = 2**30
LARGEST_DENOMINATOR = 2**62
LARGEST_SHAPE = 2**20
MAX_STEP_WORDS = 2**20
"""Limit of the words that one step reads, which are usually about 10.

A step needs more with a probability below e^-100000, so then the random source is broken.
"""
MIN_DIGITS = 2
MAX_DIGITS = 64
"""Limit of words that decide a comparison with a random number: 64 tie with probability 2^-4096."""


def rational_rate(rate: float) -> Fraction:
    """Largest dyadic rational <= rate with at most 30 significant bits; it equals its own float.

    Conditions: 2^-32 <= rate <= 2^10.
    Numerics: rate = m 2^e exactly, with an integer e and 1/2 <= m < 1; s = floor(2^30 m) < 2^30,
    and the result s 2^(e-30) has a denominator of at most 2^61. The relative loss is below 2^-29.
    """
    if not (isinstance(rate, int | float) and SMALLEST_RATE <= rate <= LARGEST_RATE):
        raise InputError(
            f"{argument('rate')} must be a number between 2^-32 and 2^10 to be sampled "
            f"exactly, got {rate!r}; change the unit of distance."
        )
    mantissa, exponent = math.frexp(rate)
    numerator = math.floor(mantissa * 2**SIGNIFICANT_BITS)
    return Fraction(numerator) * Fraction(2) ** (exponent - SIGNIFICANT_BITS)


def _validate_rate(rate: Fraction) -> Fraction:
    if not isinstance(rate, Rational):
        raise InputError(
            f"{argument('rate')} must be an exact Fraction, got {rate!r}; use "
            f"rational_rate({rate!r})."
        )
    exact = Fraction(rate)
    if (
        not SMALLEST_RATE <= exact <= LARGEST_RATE
        or exact.numerator > LARGEST_NUMERATOR
        or exact.denominator > LARGEST_DENOMINATOR
    ):
        raise InputError(
            f"{argument('rate')} must lie between 2^-32 and 2^10 with a numerator up to 2^30 and "
            f"a denominator up to 2^62, got {exact}; "
            "round it with rational_rate()."
        )
    return exact


def _validate_shape(shape: Fraction) -> Fraction:
    if not isinstance(shape, Rational):
        raise InputError(
            f"{argument('shape')} must be an exact Fraction such as Fraction(1, users), "
            f"got {shape!r}."
        )
    exact = Fraction(shape)
    if not 0 < exact <= LARGEST_SHAPE or exact.denominator > LARGEST_DENOMINATOR:
        raise InputError(
            f"{argument('shape')} must lie in (0, 2^20] with a denominator up to 2^62, got {exact}."
        )
    return exact


def _broken(wanted: str) -> NotCertified:
    return NotCertified(
        f"one draw asked for more than {wanted}; the source of randomness is broken."
    )


def _driven(
    kernel: Callable[[Words, Integers64], int], goal: int, randomness: Randomness, buffer_words: int
) -> None:
    """Run a kernel over the word stream until its state says that `goal` places are done.

    Unbiased: `kernel` returns where its interrupted step began; the words from there on are read
    again, followed by fresh ones, so the draws are the same function of the stream for every buffer
    length.
    """
    state = np.zeros(4, dtype=np.int64)
    buffer = np.empty(buffer_words, dtype=np.uint64)
    leftover = 0
    while state[0] < goal:
        randomness.fill(buffer[leftover:])
        position = kernel(buffer, state)
        leftover = buffer.size - position
        if position:
            buffer[:leftover] = buffer[position:].copy()
        elif buffer.size < MAX_STEP_WORDS:
            buffer = np.concatenate([buffer, np.empty(buffer.size, dtype=np.uint64)])
        else:
            raise _broken("a million random words")


def _filled(
    kernel: Callable[[Words, Integers64, Integers64], int], count: int, randomness: Randomness
) -> Integers64:
    """Return `count` draws, of about 10 words each, from a kernel that fills an array."""
    out = np.empty(count, dtype=np.int64)
    _driven(
        lambda words, state: kernel(words, out, state),
        count,
        randomness,
        min(BUFFER_WORDS, 64 + 16 * count),
    )
    return out


def _fraction_words(value: Fraction) -> tuple[np.uint64, np.uint64]:
    return np.uint64(value.numerator), np.uint64(value.denominator)


@theorem("Canonne20", "Algorithm 2 (geometric part)")
def sample_geometric(rate: Fraction, count: int, randomness: Randomness) -> Integers64:
    """Draws of K >= 0 with P(K = k) = (1-p) p^k, p = exp(-rate).

    Statement: let rate = s/t with integers s and t. Draw U uniform on 0..t-1, accepted with
    probability e^(-U/t), and V geometric with ratio 1/e; then floor((U + tV)/s) has the law above.
    Conditions: rate in [2^-32, 2^10], s <= 2^30, t <= 2^62.
    Numerics: integers only; int64 cannot overflow (see the kernel).
    Reference: Canonne, Kamath, Steinke 2020, section 5.
    """
    from metricshuffle.noise import _sampling_kernels as kernels

    size, (above, under) = validate_count(count), _fraction_words(_validate_rate(rate))
    return _filled(
        lambda words, out, state: kernels.fill_geometric(words, above, under, out, state),
        size,
        randomness,
    )


@theorem("Canonne20", "Algorithm 2")
def sample_discrete_laplace(rate: Fraction, count: int, randomness: Randomness) -> Integers64:
    """Draws of Z with P(Z = z) = (1-p)/(1+p) p^|z|, p = exp(-rate).

    Statement: a fair sign and a geometric magnitude, redrawn when it is "minus zero".
    Conditions: as sample_geometric.
    Numerics: integers only.
    Reference: Canonne, Kamath, Steinke 2020, section 5.
    """
    from metricshuffle.noise import _sampling_kernels as kernels

    size, (above, under) = validate_count(count), _fraction_words(_validate_rate(rate))
    return _filled(
        lambda words, out, state: kernels.fill_discrete_laplace(words, above, under, out, state),
        size,
        randomness,
    )


@theorem("Goryczka17", "Polya shares of discrete Laplace noise")
def sample_polya(shape: Fraction, rate: Fraction, count: int, randomness: Randomness) -> Integers64:
    """Draws of A - B with A, B independent NB(shape, exp(-rate)).

    Shape 1 is discrete Laplace, shape 1/n one of n shares of it.

    Statement: floor(shape) discrete Laplace draws plus the difference of two NB(shape -
    floor(shape)) draws; shapes add. Conditions, numerics: as `_add_jumps`.
    Reference: Goryczka and Xiong 2017; the sampler is proved there.
    """
    return sample_polya_rows(shape, [rate], count, randomness)[:, 0]


def sample_polya_rows(
    shape: Fraction, rates: Sequence[Fraction], rows: int, randomness: Randomness
) -> Integers64:
    """Independent draws of `sample_polya`: one row per person, one rate per column.

    Memory: the result, and 16 MB. Columns of equal rate are drawn together: each distinct rate
    costs some microseconds.
    """
    exact = _validate_shape(shape)
    size = validate_count(rows)
    whole, fraction = divmod(exact, 1)
    out = np.zeros((size, len(rates)), dtype=np.int64)
    for rate, members in _columns_of_each(list(rates)).items():
        together = max(1, 2**20 // len(members))
        for done in range(0, size if whole else 0, together):
            block = min(together, size - done)
            sums = _row_sums(
                sample_discrete_laplace, rate, int(whole), block * len(members), randomness
            )
            out[done : done + block, members] = sums.reshape(block, len(members))
        if fraction:
            _add_jumps(out, np.array(members, dtype=np.int64), fraction, rate, 2, randomness)
    return out


def _columns_of_each(rates: list[Fraction]) -> dict[Fraction, list[int]]:
    """Group the columns by rate, validating each Fraction object once (386 would take 5 ms)."""
    same: dict[int, list[int]] = {}
    if all(rate is rates[0] for rate in rates):
        same[0] = list(range(len(rates)))
    else:
        for column, rate in enumerate(rates):
            same.setdefault(id(rate), []).append(column)
    equal: dict[Fraction, list[int]] = {}
    for members in filter(None, same.values()):
        equal.setdefault(_validate_rate(rates[members[0]]), []).extend(members)
    return equal


@theorem("metricshuffle", "exact negative binomial as a sum of jumps")
def _add_jumps(
    out: Integers64,
    columns: Integers64,
    shape: Fraction,
    rate: Fraction,
    sides: int,
    randomness: Randomness,
    *,
    buffer_words: int | None = None,
) -> None:
    """Add NB(shape, exp(-rate)), shape < 1, to every entry of `columns`.

    If `sides` is 2, also subtract an independent draw from every entry.

    Statement: NB(r, p) has P(A = k) = C(r+k-1, k) (1-p)^r p^k, with r = shape and p = exp(-rate).
    For r < 1, A is the sum of M jumps, M Poisson of mean r L with L = -ln(1-p), each jump K with
    P(K = k) = p^k/(k L): the generating functions agree, ((1-p)/(1-pz))^r = exp(r L (g(z) - 1))
    with g(z) = -ln(1-pz)/L. In a row of draws the runs of zeros are geometric, and only the draws
    between them are computed; compound_poisson.py has the laws of the parts and why each is exact.
    Conditions: as sample_geometric; shape in (0, 1), its denominator up to 2^62.
    Numerics: integers only: random words are compared with digits of real numbers, and if those
    known so far (128 bits) do not decide, more are computed. int64 could overflow only in an event
    of probability below e^(-2^20).
    Reference: Quenouille 1949 for the law; proved above and in compound_poisson.py.
    """
    from metricshuffle.noise import _sampling_kernels as kernels

    (above, under), end, digits = (
        _fraction_words(rate),
        sides * out.shape[0] * columns.size,
        MIN_DIGITS,
    )
    tables = jump_tables(shape, rate, digits)
    # A run is drawn in pieces of 2^levels places: not much shorter than the run, nor longer than
    # the number of places needed.
    levels = min(len(tables.bits), max(0, end - 1).bit_length())

    def fill(words: Words, state: Integers64) -> int:
        nonlocal digits, tables
        position = 0
        while True:
            numbers = (
                tables.runs[levels : levels + 1],
                tables.bits[:levels],
                tables.numbers,
                tables.blocks,
            )
            position += int(
                kernels.add_negative_binomials(
                    words[position:], above, under, *numbers, columns, end, out, state
                )
            )
            if not state[3]:
                return position
            digits, state[3] = 2 * digits, 0
            if digits > MAX_DIGITS:
                raise _broken(f"{64 * MAX_DIGITS:,} bits of one real number")
            tables = jump_tables(shape, rate, digits)

    _driven(
        fill,
        end,
        randomness,
        buffer_words or min(BUFFER_WORDS, 64 + int(end * min(tables.mean, 1.0) * 32)),
    )


def _row_sums(
    sampler: Callable[[Fraction, int, Randomness], Integers64],
    rate: Fraction,
    rows: int,
    count: int,
    randomness: Randomness,
) -> Integers64:
    """`count` sums of `rows` independent draws, with a bounded number of draws in memory."""
    total = np.zeros(count, dtype=np.int64)
    together = max(1, 2**16 // max(1, count))
    for done in range(0, rows if count else 0, together):
        block = min(together, rows - done)
        total += sampler(rate, block * count, randomness).reshape(block, count).sum(axis=0)
    return total
