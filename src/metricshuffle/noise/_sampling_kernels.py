"""Compiled exact samplers that read random words from a buffer (see sampling.py for the laws and their proofs).

The contract that keeps the laws exact when the buffer runs dry:

    A sampler is a function of an infinite word stream, cut into short steps. A step that finds the
    buffer empty undoes nothing but its own reading: it reports `DRY`, and the kernel returns the
    position at which that step BEGAN. The driver keeps every word from there on, appends fresh ones
    behind them and calls again, so that the step reads the very same words once more. What comes out is
    the function of the stream, whatever the length of the buffer: no draw is ever discarded for having
    been long, which would condition the law on short draws.

All numbers that meet a word are uint64 (a mix with int64 would become a float).
"""

from __future__ import annotations

import numpy as np
from numba import njit

from metricshuffle._randomness_kernels import ONE, ZERO, multiply_high, rejected

DRY = -1
SIGN = np.uint64(63)


@njit(cache=True, nogil=True)
def below(words, position, bound):  # type: ignore[no-untyped-def]
    """(uniform on 0..bound-1, next position), or (0, DRY)."""
    while position < words.size:
        word = words[position]
        position += 1
        if not rejected(word, bound):
            return multiply_high(word, bound), position
    return ZERO, DRY


@njit(cache=True, nogil=True)
def exp_bernoulli(words, position, above, under):  # type: ignore[no-untyped-def]
    """(Bernoulli(exp(-above/under)), next position) for 0 <= above <= under.

    Canonne-Kamath-Steinke: with x = above/under, count K = 1, 2, ... while Bernoulli(x/K) succeeds; the
    final K is odd with probability sum_j (-x)^j/j! = e^-x. Bernoulli(x/K) is drawn as Bernoulli(x) and
    Bernoulli(1/K), so no product of the two denominators is ever formed; a certain one reads no word.
    """
    tries = ONE
    while True:
        if above < under:
            number, position = below(words, position, under)
            if position == DRY:
                return False, DRY
            if number >= above:
                break
        if tries > ONE:
            number, position = below(words, position, tries)
            if position == DRY:
                return False, DRY
            if number != ZERO:
                break
        tries += ONE
    return tries & ONE == ONE, position


@njit(cache=True, nogil=True)
def geometric(words, position, above, under):  # type: ignore[no-untyped-def]
    """(K with P(K >= k) = exp(-k above/under), next position).

    U uniform on 0..t-1 kept with probability e^(-U/t), V = number of successes of Bernoulli(1/e): U + tV is
    geometric with rate 1/t, and floor((U + tV)/s) is geometric with rate s/t. With t = qs + r the quotient is
    qV + floor((U + rV)/s). Bounds: s <= 2^30, t <= 2^62, q <= 2^32, and V < 2^20 because every success of
    Bernoulli(1/e) reads at least one word of a buffer of at most 2^20: qV <= 2^52, U + rV < 2^62 + 2^50.
    """
    while True:
        start, position = below(words, position, under)
        if position == DRY:
            return 0, DRY
        kept, position = exp_bernoulli(words, position, start, under)
        if position == DRY:
            return 0, DRY
        if kept:
            break
    whole = ZERO
    while True:
        more, position = exp_bernoulli(words, position, ONE, ONE)
        if position == DRY:
            return 0, DRY
        if not more:
            break
        whole += ONE
    return np.int64((under // above) * whole + (start + (under % above) * whole) // above), position


@njit(cache=True, nogil=True)
def fill_geometric(words, above, under, out, state):  # type: ignore[no-untyped-def]
    """Fill out[state[0]:] with geometrics; returns the position of the first word not used up."""
    position = 0
    while state[0] < out.size:
        value, after = geometric(words, position, above, under)
        if after == DRY:
            break
        position = after
        out[state[0]] = value
        state[0] += 1
    return position


@njit(cache=True, nogil=True)
def fill_discrete_laplace(words, above, under, out, state):  # type: ignore[no-untyped-def]
    """Fill out[state[0]:] with a sign and a geometric magnitude, "minus zero" drawn again."""
    position = 0
    while state[0] < out.size:
        if position == words.size:
            break
        negative = words[position] >> SIGN == ONE
        value, after = geometric(words, position + 1, above, under)
        if after == DRY:
            break
        position = after
        if not (negative and value == 0):
            out[state[0]] = -value if negative else value
            state[0] += 1
    return position


FRESH, SCAN, GROW, CLIMB = 0, 1, 2, 3


@njit(cache=True, nogil=True)
def fill_negative_binomial(words, above, under, part, whole, quotient, remainder, out, state):  # type: ignore[no-untyped-def]
    """Fill out[state[0]:] with NB(part/whole, exp(-above/under)); state = (done, phase, left, target, reached).

    (quotient, remainder) = divmod(2^64 part, whole): a uniform real number (word + u)/2^64 lies below part/whole if word < quotient,
    or if word = quotient and u < remainder/whole, so nearly always one comparison makes an exact Bernoulli(r), r = part/whole.
    FRESH  draws G, the number of trials in a row that ask for k >= 1 before one says k = 0;
    SCAN   gives each of the G trials its first acceptance test, Bernoulli(r): none passes -> the value is 0;
    GROW   one passed: k - 1 is again geometric (no memory);
    CLIMB  the tests j = 2..k, each failing with probability (1 - r)/j: one fails -> FRESH, none -> the value is k.
    """
    position = 0
    while state[0] < out.size:
        phase = state[1]
        if phase == FRESH or phase == GROW:  # noqa: SIM109 (a tuple test is slower when compiled)
            value, after = geometric(words, position, above, under)
            if after == DRY:
                return position
            position = after
            if phase == FRESH:
                state[1], state[2] = SCAN, value
            else:
                state[1], state[3], state[4] = CLIMB, value + 1, 1
        elif phase == SCAN:
            left, passed = state[2], False
            while left > 0 and not passed:
                if position == words.size:
                    state[2] = left
                    return position
                word = words[position]
                after = position + 1
                passed = word < quotient
                if word == quotient:  # 64 bits do not decide whether the uniform number lies below part/whole
                    number, after = below(words, after, whole)
                    if after == DRY:
                        state[2] = left
                        return position
                    passed = number < remainder
                position = after
                left -= 1
            if passed:
                state[1] = GROW
            else:
                out[state[0]] = 0
                state[0] += 1
                state[1] = FRESH
        else:
            reached, target, failed = state[4], state[3], False
            while reached < target and not failed:
                if position == words.size:
                    state[4] = reached
                    return position
                word, step = words[position], np.uint64(reached + 1)
                after = position + 1
                if rejected(word, step):  # costs only itself, and the test is still to be made
                    position = after
                    continue
                if multiply_high(word, step) == ZERO:
                    number, after = below(words, after, whole)
                    if after == DRY:
                        state[4] = reached
                        return position
                    failed = number >= part
                position = after
                reached += 1
            if not failed:
                out[state[0]] = target
                state[0] += 1
            state[1] = FRESH
    return position


@njit(cache=True, nogil=True)
def flipped_counts(values, span, threshold, words):  # type: ignore[no-untyped-def]
    """Number of ones after each of `span` bits (the first values[i] of them ones) is flipped if its 32 random bits < threshold."""
    out = np.empty(len(values), dtype=np.int64)
    low = np.uint64(0xFFFFFFFF)
    for i in range(len(values)):
        ones = 0
        for bit in range(span):
            word = words[i, bit // 2]
            half = word & low if bit % 2 == 0 else word >> np.uint64(32)
            flipped = half < threshold
            ones += (bit < values[i]) != flipped
        out[i] = ones
    return out
