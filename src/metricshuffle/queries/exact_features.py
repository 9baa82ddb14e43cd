"""Users' answers as exact fractions, so that rounding never tells two users apart who are close."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
HALF_BITS = 26
USERS_AT_ONCE = 4096


@dataclass(frozen=True, eq=False)
class ExactFeatures:
    """A function of the points in whole numbers: f(x) = numbers[x] / 2^power exactly, so that answers are exact fractions.

    Statement: |numbers| <= 2^32 and a user holds at most 2^20 items, so sums of numbers over her items stay below 2^53 and any
    order of adding doubles gives them exactly; her answer is the sum divided by (items * 2^power). `middle` was taken off before
    the rounding (times in seconds are large and differ little) and is public: it is added to what is released.
    """

    numbers: Floats
    power: int
    middle: Floats

    @classmethod
    def of(cls, table: Floats) -> ExactFeatures:
        """The table, without the middle of each column, to 32 bits of its largest entry."""
        middle = 0.5 * table.min(axis=0) + 0.5 * table.max(axis=0)
        centred = table - middle
        power = _power(centred)
        return cls(np.rint(np.ldexp(centred, power)), power, middle)

    @classmethod
    def below(cls, table: Floats) -> ExactFeatures:
        """A table of numbers >= 0 to 32 bits of its largest entry, rounded down."""
        power = _power(table)
        return cls(np.floor(np.ldexp(table, power) * (1.0 - 2.0**-50)), power, np.zeros(table.shape[1]))

    @cached_property
    def table(self) -> Floats:
        """f as doubles, exactly."""
        return np.asarray(np.ldexp(self.numbers, -self.power))


def _power(table: Floats) -> int:
    largest = float(np.abs(table).max())
    return 31 - (math.frexp(largest)[1] if largest > 0.0 else 0)


@dataclass(frozen=True, eq=False)
class ExactAnswers:
    """Exact answers: numerators[i] / (sizes[i] * 2^power) is that of user i."""

    numerators: Floats
    sizes: NDArray[np.int64]
    power: int

    @classmethod
    def of(cls, coordinates: ExactFeatures, codes: NDArray[np.int64], sizes: NDArray[np.int64]) -> ExactAnswers:
        """The answers of users whose items, one user after the other, have these codes."""
        points, width = coordinates.numbers.shape
        sums, ends = np.empty((len(sizes), width)), np.cumsum(sizes)
        for start in range(0, len(sizes), USERS_AT_ONCE):
            some = sizes[start : start + USERS_AT_ONCE]
            first = int(ends[start] - sizes[start])
            rows = np.repeat(np.arange(len(some)), some) * points + codes[first : first + int(some.sum())]
            counts = np.bincount(rows, minlength=len(some) * points).reshape(len(some), points)
            sums[start : start + len(some)] = counts.astype(np.float64) @ coordinates.numbers
        return cls(sums, sizes, coordinates.power)

    def floats(self) -> Floats:
        return np.asarray(np.ldexp(self.numerators, -self.power) / self.sizes[:, None])

    def exact(self, user: int) -> list[Fraction]:
        """The exact answer of one user."""
        below = int(self.sizes[user]) * Fraction(2) ** self.power
        return [int(number) / below for number in self.numerators[user]]

    def total(self) -> list[Fraction]:
        """The exact sum over the users, coordinate by coordinate."""
        sums = [Fraction(0)] * self.numerators.shape[1]
        for size in np.unique(self.sizes):
            mine = self.numerators[self.sizes == size]
            high = np.floor(np.ldexp(mine, -HALF_BITS))  # halves of the bits, so that 64-bit sums of them are exact
            low = mine - np.ldexp(high, HALF_BITS)
            wholes = zip(high.astype(np.int64).sum(axis=0).tolist(), low.astype(np.int64).sum(axis=0).tolist(), strict=True)
            sums = [column_sum + Fraction((up << HALF_BITS) + down, int(size)) for column_sum, (up, down) in zip(sums, wholes, strict=True)]
        return [column_sum / Fraction(2) ** self.power for column_sum in sums]
