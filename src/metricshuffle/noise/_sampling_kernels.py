"""Compiled exact samplers that read random words from a buffer (see samplers.py for the laws and their proofs).

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

DRY, UNDECIDED = -1, -2
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
        accepted, position = exp_bernoulli(words, position, start, under)
        if position == DRY:
            return 0, DRY
        if accepted:
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


SKIP, COUNT, JUMP = 0, 1, 2


@njit(cache=True, nogil=True)
def rank(words, position, rows, first, last):  # type: ignore[no-untyped-def]
    """(how many of rows[first:last] a uniform real number V lies below, next position), or (0, DRY), or (0, UNDECIDED).

    The rows are falling numbers in 0..1, written as digits of 64 bits; the words are the digits of V, as many of them as it takes to
    tell V from the rows. UNDECIDED: the digits of a row are used up, and V may lie on either side of what follows them.
    """
    used = 0
    for row in range(first, last):
        digit, smaller, decided = 0, False, False
        while not decided:
            if digit == rows.shape[1]:
                return 0, UNDECIDED
            if position + digit == words.size:
                return 0, DRY
            word, limit = words[position + digit], rows[row, digit]
            smaller, decided = word < limit, word != limit
            digit += 1
        used = max(used, digit)
        if not smaller:
            return row - first, position + used
    return last - first, position + used


@njit(cache=True, nogil=True)
def jump(words, position, above, under, blocks):  # type: ignore[no-untyped-def]
    """(K with P(K = k) proportional to exp(-k above/under) / k for k >= 1, next position), or (0, DRY or UNDECIDED).

    Block i < I is k in [2^i, 2^(i+1)), block I the tail (see compound_poisson.py). Bounds: a block has 2^i <= under/above <= 2^32, and
    above * (k - 2^i) < under <= 2^62; the tail is 2^33 + geometric at most.
    """
    many = blocks.shape[0]
    while True:
        block, position = rank(words, position, blocks, 0, many)
        if position < 0:
            return 0, position
        block_start, more = ONE << np.uint64(block), ZERO
        if block == many:
            tail, position = geometric(words, position, above, under)
            if position == DRY:
                return 0, DRY
            more = np.uint64(tail)
        elif block > 0:
            if position == words.size:
                return 0, DRY
            more = words[position] >> np.uint64(64 - block)
            position += 1
        if more == ZERO:
            return np.int64(block_start), position
        number, position = below(words, position, block_start + more)
        if position == DRY:
            return 0, DRY
        if number >= block_start:
            continue
        if block < many:
            accepted, position = exp_bernoulli(words, position, above * more, under)
            if position == DRY:
                return 0, DRY
            if not accepted:
                continue
        return np.int64(block_start + more), position


@njit(cache=True, nogil=True)
def run_of_zeros(words, position, bits):  # type: ignore[no-untyped-def]
    """(the number whose binary digits are heads with the probabilities `bits`, next position), or (0, DRY or UNDECIDED)."""
    length = 0
    for level in range(bits.shape[0]):
        digit, position = rank(words, position, bits, level, level + 1)
        if position < 0:
            return 0, position
        length += digit << level
    return length, position


@njit(cache=True, nogil=True)
def add_negative_binomials(words, above, under, run, bits, numbers, blocks, columns, end, out, state):  # type: ignore[no-untyped-def]
    """Add NB draws to the columns `columns` of `out`, row by row, then subtract as many; state = (place, phase, jumps left, undecided).

    A place is one draw; the first rows * columns of them are added, the others up to `end` subtracted. No place without a jump is visited.
    SKIP   2^levels places at a time without a jump, then the rest of the run;
    COUNT  the number of jumps of the place that was reached, at least 1;
    JUMP   one of them.
    If the tables have too few digits, `undecided` is set and the step is left as if the buffer had run dry.
    """
    position, cells = 0, out.shape[0] * columns.size
    while state[0] < end:
        if state[1] == SKIP:
            whole, after = rank(words, position, run, 0, 1)
            if after >= 0:
                if whole == 1:
                    state[0] += 1 << bits.shape[0]
                else:
                    length, after = run_of_zeros(words, after, bits)
                    if after >= 0:
                        state[0] += length
                        state[1] = COUNT
        elif state[1] == COUNT:
            more, after = rank(words, position, numbers, 0, numbers.shape[0])
            if after >= 0:
                state[1], state[2] = JUMP, 1 + more
        else:
            size, after = jump(words, position, above, under, blocks)
            if after >= 0:
                added = state[0] < cells
                row, column = divmod(state[0] if added else state[0] - cells, columns.size)
                out[row, columns[column]] += size if added else -size
                state[2] -= 1
                if state[2] == 0:
                    state[0] += 1
                    state[1] = SKIP
        if after < 0:
            state[3] = after == UNDECIDED
            break
        position = after
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
