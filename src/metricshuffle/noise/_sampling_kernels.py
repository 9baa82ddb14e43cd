"""Compiled exact samplers that read random words from a buffer (laws and proofs: samplers.py).

The contract that keeps the laws exact when the buffer runs dry:

    A sampler is a function of an infinite word stream, split into short steps. A step that finds
    the buffer empty undoes only its own reading: it returns `DRY`, and the kernel returns the
    position at which that step BEGAN. The driver keeps every word from there on, appends fresh
    words and calls again, so that the step reads the same words once more. The result is the same
    function of the stream for every buffer length: no draw is ever discarded for being long, which
    would condition the law on short draws.

All numbers combined with a word are uint64 (mixing with int64 would give a float).
"""

from __future__ import annotations

import numpy as np
from numba import njit

from metricshuffle._randomness_kernels import ONE, ZERO, multiply_high, rejected

DRY = -1
UNDECIDED = -2
SIGN = np.uint64(63)


@njit(cache=True, nogil=True)
def below(words, position, bound):  # type: ignore[no-untyped-def]
    """Return (uniform on 0..bound-1, next position), or (0, DRY)."""
    while position < words.size:
        word = words[position]
        position += 1
        if not rejected(word, bound):
            return multiply_high(word, bound), position
    return ZERO, DRY


@njit(cache=True, nogil=True)
def exp_bernoulli(words, position, above, under):  # type: ignore[no-untyped-def]
    """Return (Bernoulli(exp(-above/under)), next position) for 0 <= above <= under.

    Canonne-Kamath-Steinke: with x = above/under, count K = 1, 2, ... while Bernoulli(x/K) succeeds;
    the final K is odd with probability sum_j (-x)^j/j! = e^-x. Bernoulli(x/K) is drawn as
    Bernoulli(x) and Bernoulli(1/K), so the product of the two denominators is never formed. A draw
    with probability 1 reads no word.
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
    """Return (K with P(K >= k) = exp(-k above/under), next position).

    Let s = above and t = under. U is uniform on 0..t-1 and accepted with probability e^(-U/t), V is
    the number of successes of Bernoulli(1/e) before the first failure. Then U + tV is geometric
    with rate 1/t, and K = floor((U + tV)/s) is geometric with rate s/t. With t = qs + r (q the
    quotient, r the remainder) K = qV + floor((U + rV)/s), which cannot overflow: s <= 2^30, t <=
    2^62, q <= 2^32, and V < 2^20 because every success of Bernoulli(1/e) reads at least one word of
    a buffer of at most 2^20 words, so qV <= 2^52 and U + rV < 2^62 + 2^50.
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
    """Fill out[state[0]:] with geometrics; return the position of the first unused word."""
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
    """Fill out[state[0]:] with a sign and a geometric magnitude, redrawing "minus zero"."""
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


SKIP = 0
COUNT = 1
JUMP = 2


@njit(cache=True, nogil=True)
def rank(words, position, rows, first, last):  # type: ignore[no-untyped-def]
    """Return (number of rows[first:last] above a uniform real number V, next position).

    Returns (0, DRY) if the buffer is empty. The rows are decreasing numbers in 0..1, written as
    digits of 64 bits; the words are the digits of V, as many as are needed to compare V with the
    rows. Returns (0, UNDECIDED) if the digits of a row are used up and V may lie on either side of
    it.
    """
    used = 0
    for row in range(first, last):
        digit = 0
        smaller = False
        decided = False
        while not decided:
            if digit == rows.shape[1]:
                return 0, UNDECIDED
            if position + digit == words.size:
                return 0, DRY
            word = words[position + digit]
            limit = rows[row, digit]
            smaller = word < limit
            decided = word != limit
            digit += 1
        used = max(used, digit)
        if not smaller:
            return row - first, position + used
    return last - first, position + used


@njit(cache=True, nogil=True)
def jump(words, position, above, under, blocks):  # type: ignore[no-untyped-def]
    """Return (K >= 1 with P(K = k) proportional to exp(-k above/under) / k, next position).

    Returns (0, DRY or UNDECIDED) as `rank` does. K is drawn by rejection from blocks: block i < I
    consists of k in [2^i, 2^(i+1)), block I is the tail k >= 2^I, where I is the number of rows of
    `blocks` (see compound_poisson.py). Nothing overflows: a block has 2^i <= under/above <= 2^32,
    and above * (k - 2^i) < under <= 2^62; a draw of the tail is at most 2^33 plus a geometric draw.
    """
    many = blocks.shape[0]
    while True:
        block, position = rank(words, position, blocks, 0, many)
        if position < 0:
            return 0, position
        block_start = ONE << np.uint64(block)
        more = ZERO
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
    """Return (number whose j-th binary digit is 1 with probability bits[j], next position).

    Returns (0, DRY or UNDECIDED) as `rank` does.
    """
    length = 0
    for level in range(bits.shape[0]):
        digit, position = rank(words, position, bits, level, level + 1)
        if position < 0:
            return 0, position
        length += digit << level
    return length, position


@njit(cache=True, nogil=True)
def add_negative_binomials(  # type: ignore[no-untyped-def]
    words, above, under, run, bits, numbers, blocks, columns, end, out, state
):
    """Add negative binomial draws to `columns` of `out`, row by row, then subtract as many.

    state = (place, phase, jumps left, undecided). A place is one draw; the first rows * columns
    draws are added, the others, up to `end`, subtracted. Places without a jump are not visited.
    Phases:

    - SKIP: skip 2^levels places without a jump at a time, then the remainder of the run.
    - COUNT: draw the number of jumps, at least 1, of the place reached.
    - JUMP: draw one of these jumps.

    If the tables have too few digits, `undecided` is set and the step ends as if the buffer had run
    dry.
    """
    position = 0
    cells = out.shape[0] * columns.size
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
    """Number of ones per row after flipping every bit whose 32 random bits are below `threshold`.

    Each row has `span` bits; before flipping, the first values[i] bits of row i are ones.
    """
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
