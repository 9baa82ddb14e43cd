"""Digits of the negative binomial sampler against interval arithmetic; undecided words."""

from __future__ import annotations

from collections.abc import Iterable
from fractions import Fraction
from itertools import pairwise
from typing import Any

import mpmath
import numpy as np
import pytest
from tests.oracles.goodness_of_fit import TOO_UNLIKELY, p_value
from tests.oracles.negative_binomial import sample_negative_binomial
from tests.tables import check_all

from metricshuffle.errors import NotCertified
from metricshuffle.noise import _sampling_kernels as kernels
from metricshuffle.noise import compound_poisson, samplers
from metricshuffle.noise.compound_poisson import jump_tables
from metricshuffle.noise.samplers import LARGEST_RATE, SMALLEST_RATE, rational_rate
from metricshuffle.randomness import Randomness

HALF = Fraction(1, 2)
TENTH = Fraction(1, 10)
CASES = [
    (HALF, TENTH),
    (Fraction(1, 3), Fraction(5)),
    (Fraction(9, 10), rational_rate(1e-6)),
    (Fraction(1, 10**5), rational_rate(1e-3)),
    (Fraction(2**62 - 1, 2**62), SMALLEST_RATE),
    (Fraction(1, 2**62), SMALLEST_RATE),
    (Fraction(1, 7), Fraction(1)),
    (HALF, LARGEST_RATE),
    (Fraction(1, 2**62), LARGEST_RATE),
]


def number(row: Any) -> Fraction:
    return Fraction(
        sum(int(digit) << 64 * place for place, digit in enumerate(reversed(row))),
        2 ** (64 * len(row)),
    )


@check_all("digits", [1, 2, 5])
@check_all(("shape", "rate"), CASES)
def test_every_digit_is_right(shape: Fraction, rate: Fraction, digits: int) -> None:
    """Row <= value < row + 2^(-64 digits), with values as intervals of 5000 bits."""
    tables = jump_tables(shape, rate, digits)
    iv = mpmath.iv
    iv.prec = 5000
    alpha = iv.mpf(rate.numerator) / rate.denominator
    p = iv.exp(-alpha)
    mean = -iv.log(1 - p) * shape.numerator / shape.denominator

    def check(row: Any, value: Any) -> None:
        low = int(number(row) * 2 ** (64 * digits))
        scale = iv.mpf(2) ** (64 * digits)
        assert low <= (value * scale).a
        assert (value * scale).b < low + 1

    for level, row in enumerate(tables.runs):
        check(row, iv.exp(-mean * 2**level))
    for level, row in enumerate(tables.bits):
        check(row, 1 / (1 + iv.exp(mean * 2**level)))
    no_jump = iv.exp(-mean)
    term = iv.exp(-mean)
    some = iv.mpf(0)
    for index, row in enumerate(tables.numbers):
        term = term * mean / (index + 1)
        some = some + term
        check(row, 1 - some / (1 - no_jump))
    assert not tables.numbers[-1].any()
    last = len(tables.blocks)
    assert 2**last * rate > 1
    assert last == 0 or 2 ** (last - 1) * rate <= 1
    weights = [iv.exp(-alpha * 2**block) for block in range(last)] + [
        iv.exp(-alpha * 2**last) / (2**last * (1 - p))
    ]
    for block, row in enumerate(tables.blocks):
        check(row, sum(weights[block + 1 :], iv.mpf(0)) / sum(weights, iv.mpf(0)))


def test_more_digits_go_on_where_fewer_stop() -> None:
    few, many = (jump_tables(Fraction(1, 1000), rational_rate(0.01), digits) for digits in (2, 8))
    for name in ("runs", "bits", "blocks"):
        np.testing.assert_array_equal(getattr(many, name)[:, :2], getattr(few, name))
    np.testing.assert_array_equal(many.numbers[: len(few.numbers), :2], few.numbers)
    assert len(many.numbers) > len(few.numbers)


def test_decimals_that_do_not_decide_are_not_believed(monkeypatch: pytest.MonkeyPatch) -> None:
    assert compound_poisson._tables(HALF, TENTH, 2, 60) is None
    exact = jump_tables(HALF, TENTH, 2)
    again = compound_poisson._tables(HALF, TENTH, 2, 400)
    assert again is not None
    np.testing.assert_array_equal(exact.numbers, again.numbers)
    monkeypatch.setattr(compound_poisson, "MAX_DECIMALS", 10)
    with pytest.raises(NotCertified, match="digits"):
        jump_tables.__wrapped__(HALF, TENTH, 2)


def words_of(values: Iterable[int]) -> Any:
    return np.array(list(values), dtype=np.uint64)


def test_rank_reads_as_many_words_as_it_needs() -> None:
    rows = words_of([9, 5, 9, 4, 2, 0]).reshape(3, 2)  # 9.5 > 9.4 > 2.0
    cases = [
        ([9, 6], 0, 2),
        ([9, 5], 0, kernels.UNDECIDED),
        ([9, 4], 0, kernels.UNDECIDED),
        ([10, 0], 0, 1),
        ([9, 3], 2, 2),
        ([8, 0], 2, 1),
        ([2, 1], 2, 2),
        ([1, 7], 3, 1),
        ([2, 0], 0, kernels.UNDECIDED),
        ([9], 0, kernels.DRY),
        ([], 0, kernels.DRY),
    ]
    for read, count, position in cases:
        assert kernels.rank(words_of(read), 0, rows, 0, 3) == (count, position)
    assert kernels.rank(words_of([9, 9, 4, 5]), 1, rows, 0, 3) == (0, kernels.UNDECIDED)
    assert kernels.rank(words_of([9, 9, 3, 5]), 1, rows, 1, 2) == (1, 3)
    assert kernels.rank(words_of([]), 0, rows, 1, 1) == (0, 0)


class Scripted(Randomness):
    """A stream that begins with chosen words."""

    def __init__(self, first: list[int]) -> None:
        super().__init__(bytes(32))
        self._first = first

    def fill(self, buffer: Any) -> None:
        given = len(self._first[: buffer.size])
        buffer[:given] = self._first[:given]
        self._first = self._first[given:]
        super().fill(buffer[given:])


def digits_of(row: Any, above: int) -> list[int]:
    """Words of a number that agrees with a row except in the last digit, `above` larger."""
    return [*map(int, row[:-1]), int(row[-1]) + above]


@check_all("buffer_words", [1, 3, 5, 64])
@check_all("digits", [2, 3, 4, 5, 20])
def test_a_number_next_to_a_threshold_is_decided_by_later_digits(
    digits: int, buffer_words: int
) -> None:
    """V differs from e^-mu in its last digit only: above there is a jump, below none."""
    shape = Fraction(1, 10)
    rate = Fraction(1)
    row = jump_tables(shape, rate, digits).runs[0]
    outcomes = []
    for above in (-1, 1):
        out = np.zeros((1, 1), dtype=np.int64)
        samplers._add_jumps(
            out,
            np.zeros(1, dtype=np.int64),
            shape,
            rate,
            1,
            Scripted(digits_of(row, above)),
            buffer_words=buffer_words,
        )
        outcomes.append(bool(out[0, 0]))
    assert outcomes == [False, True]


@check_all("digits", [2, 3, 8])
def test_numbers_of_jumps_and_blocks_next_to_a_threshold(digits: int) -> None:
    """V at a threshold of the number of jumps, then of the block of the first jump."""
    shape = Fraction(1, 10)
    rate = Fraction(1, 40)
    tables = jump_tables(shape, rate, digits)
    few = jump_tables(shape, rate, 2)
    for more, sizes in ((-1, 2), (1, 1)):
        for above in (-1, 1):
            script = [
                2**64 - 1,
                *digits_of(tables.numbers[0], more),
                *digits_of(tables.blocks[0], above),
            ]
            words = words_of([*script, *Randomness.seeded(3).words(200).tolist()])
            state = np.zeros(4, dtype=np.int64)
            out = np.zeros((1, 1), dtype=np.int64)

            def run(tables: Any, words: Any = words, state: Any = state, out: Any = out) -> int:
                numbers = (
                    np.uint64(1),
                    np.uint64(40),
                    tables.runs[:1],
                    tables.bits[:0],
                    tables.numbers,
                    tables.blocks,
                )
                return int(
                    kernels.add_negative_binomials(
                        words, *numbers, np.zeros(1, dtype=np.int64), 1, out, state
                    )
                )

            position = run(few)
            if digits > 2:
                assert (position, state.tolist()) == (
                    1,
                    [0, kernels.COUNT, 0, 1],
                )  # only its own step is undone
                state[:], out[:] = 0, 0
            run(tables)
            assert state.tolist() == [1, kernels.SKIP, 0, 0]
            size, _ = kernels.jump(
                words[1 + digits :], 0, np.uint64(1), np.uint64(40), tables.blocks
            )
            assert (size == 1) == (above == 1)
            assert out[0, 0] == size if sizes == 1 else out[0, 0] > size


def test_a_word_source_that_follows_the_digits_for_ever_is_broken() -> None:
    row = jump_tables(HALF, TENTH, samplers.MAX_DIGITS).runs[0]
    with pytest.raises(NotCertified, match="broken"):
        sample_negative_binomial(HALF, TENTH, 1, Scripted(list(map(int, row))))


@check_all("rate", [rational_rate(1e-3), TENTH, Fraction(7, 10), Fraction(3)])
def test_jumps_have_the_logarithmic_law(rate: Fraction) -> None:
    blocks = jump_tables(HALF, rate, 2).blocks
    words = Randomness.seeded("jumps").words(400_000)
    position = 0
    draws = []
    for _ in range(20_000):
        size, position = kernels.jump(
            words, position, np.uint64(rate.numerator), np.uint64(rate.denominator), blocks
        )
        draws.append(size)
    assert position < 20 * 20_000
    ratio = mpmath.exp(-float(rate))
    total = -mpmath.log(-mpmath.expm1(-float(rate)))
    masses = [float(ratio**k / k / total) for k in range(1, int(30 / rate) + 3)]
    edges = sorted({round(1.3**i) for i in range(60) if 1.3**i < len(masses)})
    cells = [sum(masses[low - 1 : high - 1]) for low, high in pairwise([*edges, len(masses) + 1])]
    assert p_value(np.searchsorted(edges, draws, side="right") - 1, cells) > TOO_UNLIKELY


@check_all("levels", [0, 1, 3, 5])
def test_runs_of_zeros_are_geometric_whatever_the_number_of_levels(levels: int) -> None:
    """A run is whole steps of 2^levels and a rest of `levels` digits."""
    tables = jump_tables(Fraction(1, 50), Fraction(1), 2)
    words = Randomness.seeded("runs").words(3_000_000)
    position = 0
    draws = []
    assert len(tables.bits) >= 5
    for _ in range(5_000):
        length = 0
        step = 1
        while step:
            step, position = kernels.rank(words, position, tables.runs, levels, levels + 1)
            length += step << levels
        rest, position = kernels.run_of_zeros(words, position, tables.bits[:levels])
        draws.append(length + rest)
    assert position >= 0
    ratio = (1 - np.exp(-1.0)) ** 0.02
    assert p_value(np.array(draws), [(1 - ratio) * ratio**k for k in range(800)]) > TOO_UNLIKELY
