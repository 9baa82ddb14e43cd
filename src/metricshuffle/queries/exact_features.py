"""Users' answers as exact fractions, so that rounding never separates users who are close."""

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
COUNTS_AT_ONCE = 2**22


@dataclass(frozen=True, eq=False)
class ExactFeatures:
    """A function of the points with exact values f(x) = numbers[x] / 2^power.

    Statement: |numbers| <= 2^32 and a user has at most 2^20 items, so sums of numbers over their
    items stay below 2^53 and are exact in doubles in any order of addition; their answer is the sum
    divided by (items * 2^power). `middle` was subtracted before the rounding (times in seconds are
    large and differ little) and is public: it is added to what is released.
    """

    numbers: Floats
    power: int
    middle: Floats

    @classmethod
    def of(cls, table: Floats) -> ExactFeatures:
        """Round the table, minus the middle of each column, to 32 bits of its largest entry."""
        middle = 0.5 * table.min(axis=0) + 0.5 * table.max(axis=0)
        centred = table - middle
        power = _power(centred)
        return cls(np.rint(np.ldexp(centred, power)), power, middle)

    @classmethod
    def below(cls, table: Floats) -> ExactFeatures:
        """Round a table of numbers >= 0 down to 32 bits of its largest entry."""
        power = _power(table)
        return cls(
            np.floor(np.ldexp(table, power) * (1.0 - 2.0**-50)), power, np.zeros(table.shape[1])
        )

    @cached_property
    def table(self) -> Floats:
        """f as doubles, exactly."""
        return np.asarray(np.ldexp(self.numbers, -self.power))


def _power(table: Floats) -> int:
    largest = float(np.abs(table).max())
    return 31 - (math.frexp(largest)[1] if largest > 0.0 else 0)


@dataclass(frozen=True, eq=False)
class ExactAnswers:
    """Exact answers of users: numerators[i] / (sizes[i] * 2^power) is that of user i."""

    numerators: Floats
    sizes: NDArray[np.int64]
    power: int

    @classmethod
    def of(
        cls, coordinates: ExactFeatures, codes: NDArray[np.int64], sizes: NDArray[np.int64]
    ) -> ExactAnswers:
        """Answers of users whose items have these codes, one user after another."""
        points, width = coordinates.numbers.shape
        sums = np.empty((len(sizes), width))
        ends = np.cumsum(sizes)
        together = max(1, min(USERS_AT_ONCE, COUNTS_AT_ONCE // points))
        for start in range(0, len(sizes), together):
            some = sizes[start : start + together]
            first = int(ends[start] - sizes[start])
            rows = (
                np.repeat(np.arange(len(some)), some) * points
                + codes[first : first + int(some.sum())]
            )
            counts = np.bincount(rows, minlength=len(some) * points).reshape(len(some), points)
            sums[start : start + len(some)] = counts.astype(np.float64) @ coordinates.numbers
        return cls(sums, sizes, coordinates.power)

    def floats(self) -> Floats:
        """The answers as doubles, rounded."""
        return np.asarray(np.ldexp(self.numerators, -self.power) / self.sizes[:, None])

    def exact(self, user: int) -> list[Fraction]:
        """The exact answer of one user."""
        below = int(self.sizes[user]) * Fraction(2) ** self.power
        return [int(number) / below for number in self.numerators[user]]

    def total(self) -> list[Fraction]:
        """Exact sum over the users, by coordinate."""
        sums = [Fraction(0)] * self.numerators.shape[1]
        for size in np.unique(self.sizes):
            mine = self.numerators[self.sizes == size]
            # Numbers are split into high and low bits, whose 64-bit sums are exact.
            high = np.floor(np.ldexp(mine, -HALF_BITS))
            low = mine - np.ldexp(high, HALF_BITS)
            wholes = zip(
                high.astype(np.int64).sum(axis=0).tolist(),
                low.astype(np.int64).sum(axis=0).tolist(),
                strict=True,
            )
            sums = [
                column_sum + Fraction((up << HALF_BITS) + down, int(size))
                for column_sum, (up, down) in zip(sums, wholes, strict=True)
            ]
        return [column_sum / Fraction(2) ** self.power for column_sum in sums]
