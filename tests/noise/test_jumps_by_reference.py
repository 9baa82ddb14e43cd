"""Compiled Polya sampler against a direct one, on words that often match the digits."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator
from fractions import Fraction
from itertools import count
from typing import Any

import mpmath
import numpy as np
import pytest
from tests.tables import check_all

from metricshuffle.noise.compound_poisson import jump_tables
from metricshuffle.noise.samplers import _add_jumps, rational_rate
from metricshuffle.numerics.types import Words
from metricshuffle.randomness import Randomness

WORD = 2**64


class Real:
    """A real number in 0..1 by its digits of 64 bits."""

    def __init__(self, value: Any) -> None:
        self.value = value
        self.known = dict[int, int]()

    def digit(self, place: int) -> int:
        if place not in self.known:
            self.known[place] = (
                int(mpmath.floor(self.value * mpmath.mpf(2) ** (64 * (place + 1)))) % WORD
            )
        return self.known[place]


class Law:
    """The probabilities that jumps.py names, each from its definition."""

    def __init__(self, shape: Fraction, rate: Fraction) -> None:
        self.rate = rate
        p = mpmath.exp(-mpmath.mpf(rate.numerator) / rate.denominator)
        self.mean = -mpmath.log1p(-p) * shape.numerator / shape.denominator
        self.blocks_below_tail = next(level for level in count() if 2**level * rate > 1)
        weights = [mpmath.fsum([p ** (2**level)]) for level in range(self.blocks_below_tail)]
        weights.append(p**2**self.blocks_below_tail / (2**self.blocks_below_tail * (1 - p)))
        self.blocks = [
            Real(mpmath.fsum(weights[level + 1 :]) / mpmath.fsum(weights))
            for level in range(self.blocks_below_tail)
        ]
        self._more: dict[int, Real] = {}

    def run(self, level: int) -> Real:
        return Real(mpmath.exp(-self.mean * 2**level))

    def bit(self, level: int) -> Real:
        return Real(1 / (1 + mpmath.exp(self.mean * 2**level)))

    def more_than(self, jumps: int) -> Real:
        """The chance of more jumps, if there is one."""
        if jumps not in self._more:
            terms = [self.mean**i / mpmath.factorial(i) for i in range(jumps + 1, jumps + 600)]
            self._more[jumps] = Real(mpmath.fsum(terms) / mpmath.expm1(self.mean))
        return self._more[jumps]


class Reference:
    """The sampler, one word after the other."""

    def __init__(self, words: list[int], law: Law) -> None:
        self.words = words
        self.at = 0
        self.law = law

    def word(self) -> int:
        self.at += 1
        return self.words[self.at - 1]

    def rank(self, rows: Iterable[Real]) -> int:
        used = found = 0
        for row in rows:
            place = next(
                place for place in count() if self.words[self.at + place] != row.digit(place)
            )
            used = max(used, place + 1)
            if self.words[self.at + place] > row.digit(place):
                break
            found += 1
        self.at += used
        return found

    def below(self, bound: int) -> int:
        while True:
            number, rest = divmod(self.word() * bound, WORD)
            if rest >= WORD % bound:
                return number

    def exponential(self, chance: Fraction, denominator: int) -> bool:
        """True with probability e^-chance; only the numerator of the fraction is compared."""
        above = chance.numerator * (denominator // chance.denominator)
        tries = 1
        while not (
            (above < denominator and self.below(denominator) >= above)
            or (tries > 1 and self.below(tries) != 0)
        ):
            tries += 1
        return tries % 2 == 1

    def geometric(self) -> int:
        s = self.law.rate.numerator
        t = self.law.rate.denominator
        start: int = self.below(t)
        while not self.exponential(Fraction(start, t), t):
            start = self.below(t)
        whole = 0
        while self.exponential(Fraction(1), 1):
            whole += 1
        return int((start + t * whole) // s)

    def jump(self) -> int:
        while True:
            block = self.rank(self.law.blocks)
            tail = block == self.law.blocks_below_tail
            more = self.geometric() if tail else self.word() >> (64 - block) if block else 0
            kept = more == 0 or self.below(2**block + more) < 2**block
            if kept and (
                tail
                or more == 0
                or self.exponential(more * self.law.rate, self.law.rate.denominator)
            ):
                return int(2**block + more)

    def filled(self, rows: int, columns: int, sides: int, levels: int) -> Any:
        out = np.zeros(rows * columns, dtype=np.int64)
        place = 0
        while True:
            while place < sides * out.size and self.rank([self.law.run(levels)]):
                place += 2**levels
            if place < sides * out.size:
                place += sum(self.rank([self.law.bit(level)]) << level for level in range(levels))
            if place >= sides * out.size:
                return out.reshape(rows, columns)
            for _ in range(1 + self.rank(self.law.more_than(1 + m) for m in count())):
                out[place % out.size] += self.jump() * (1 if place < out.size else -1)
            place += 1


class Given(Randomness):
    """Words that are given, then others."""

    def __init__(self, words: list[int]) -> None:
        self.given = np.array(words, dtype=np.uint64)
        self.read = 0

    def fill(self, out: Words) -> None:
        out[:] = self.given[self.read : self.read + out.size]
        self.read += out.size


def nasty(law: Law, levels: int, generator: random.Random) -> list[int]:
    """Words that follow the digits of a table entry for a while and then differ."""
    pool = [
        law.run(levels),
        *map(law.bit, range(levels)),
        *law.blocks,
        *map(law.more_than, (1, 2, 3)),
    ]

    def some() -> Iterator[int]:
        if generator.random() < 0.5:
            yield generator.choice(
                [generator.getrandbits(64), WORD - 1]
            )  # the largest ends a run of zeros
        else:
            number = generator.choice(pool)
            places = generator.choice([1, 1, 2, 3, 5])
            yield from map(number.digit, range(places))
            yield min(max(number.digit(places) + generator.choice([-1, 0, 1]), 0), WORD - 1)

    words: list[int] = []
    while len(words) < 800:
        words += some()
    return words + [generator.getrandbits(64) for _ in range(20_000)]


def compare(shape: Fraction, rate: Fraction, seed: int, decimals: int = 250) -> int:
    """How many draws that are not 0 agreed."""
    generator = random.Random(seed)
    with mpmath.workdps(decimals):
        law = Law(shape, rate)
        rows, columns, sides = generator.choice([(1, 1, 2), (3, 2, 2), (5, 1, 1), (2, 7, 2)])
        levels = min(
            len(jump_tables(shape, rate, 2).bits), max(0, sides * rows * columns - 1).bit_length()
        )
        words = nasty(law, levels, generator)
        expected = Reference(words, law).filled(rows, columns, sides, levels)
    for buffer_words in (None, 1, 7, 500):
        out = np.zeros((rows, columns), dtype=np.int64)
        _add_jumps(
            out, np.arange(columns), shape, rate, sides, Given(words), buffer_words=buffer_words
        )
        np.testing.assert_array_equal(out, expected)
    return int(np.count_nonzero(expected))


@check_all(
    ("shape", "rate"),
    [
        (Fraction(1, 2), 0.3),
        (Fraction(1, 100), 0.01),
        (Fraction(99, 100), 1.5),
        (Fraction(1, 10**6), 2.0**-20),
    ],
)
def test_the_same_draws_as_the_description(shape: Fraction, rate: float) -> None:
    assert sum(compare(shape, rational_rate(rate), seed) for seed in range(5)) > 0


@pytest.mark.slow
def test_the_same_draws_as_the_description_anywhere() -> None:
    generator = random.Random(0)
    found = 0
    for seed in range(100):
        shape = generator.choice(
            [
                Fraction(1, generator.randint(2, 10**5)),
                Fraction(generator.randint(1, 99), 100),
                Fraction(1, 2**62),
            ]
        )
        rate = generator.choice(
            [
                2.0**-32,
                2.0**10,
                1.0,
                10.0 ** generator.uniform(-9.0, 2.9),
                2.0 ** -generator.randint(1, 31),
            ]
        )
        found += compare(shape, rational_rate(rate), seed, decimals=700)
    assert found > 50
