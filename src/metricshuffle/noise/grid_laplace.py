"""Laplace noise on a real number, sampled exactly and rounded to a grid AFTER the addition.

protocols/answer_noise.py uses it for answers with Laplace noise. Rounding the number first and
adding integer noise is not the same: two arbitrarily close numbers may round to different cells, so
that a tiny change costs a whole cell. Here the released cell is floor((q + Laplace noise) / cell),
exactly distributed, for the exact number q (a double is a rational number). For every grid the
result is post-processing of a Laplace mechanism, and so its guarantee is pure (delta = 0).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Context, Decimal, localcontext
from fractions import Fraction

import numpy as np
from numpy.typing import ArrayLike, NDArray

from metricshuffle.citations import theorem
from metricshuffle.errors import DomainError, InputError, argument
from metricshuffle.noise.samplers import (
    LARGEST_RATE,
    SMALLEST_RATE,
    rational_rate,
    sample_geometric,
)
from metricshuffle.numerics.types import Floats, Integers64, Mask, Words
from metricshuffle.randomness import Randomness

CELLS_PER_SCALE = 2**10
MAX_CELL = 2**51
"""Largest |cell|: farther out its centre is not a double, and adding noise may overflow int64."""


@dataclass(frozen=True, eq=False)
class Ratios:
    """Exact numbers numerators[n] / (denominators[n] 2^power), such as the mean of each user."""

    numerators: Integers64
    denominators: Integers64
    power: int = 0

    def __post_init__(self) -> None:
        if (
            self.numerators.dtype != np.int64
            or self.denominators.dtype != np.int64
            or self.numerators.ndim != 1
        ):
            raise InputError(
                "the numerators and denominators of ratios must be one-dimensional arrays of int64."
            )
        if self.numerators.shape != self.denominators.shape or (self.denominators < 1).any():
            raise InputError("ratios need a denominator >= 1 for every numerator.")
        if (np.abs(self.numerators.astype(np.float64)) >= 2.0**62).any():
            raise InputError("the numerators of ratios must be below 2^62.")

    def fraction(self, n: int) -> Fraction:
        return (
            Fraction(int(self.numerators[n]), int(self.denominators[n])) / Fraction(2) ** self.power
        )

    def __len__(self) -> int:
        return self.numerators.size


Values = ArrayLike | Sequence[Fraction] | Ratios
Split = tuple[Integers64, Floats, Mask, Callable[[int], Fraction]]


@dataclass(frozen=True)
class GridLaplace:
    """Laplace noise of scale cell / rate, rounded to cells [i cell, (i+1) cell)."""

    rate: Fraction
    """Rate per cell, from rational_rate: it equals its own double."""
    cell: Fraction

    def __post_init__(self) -> None:
        fits = isinstance(self.rate, Fraction) and SMALLEST_RATE <= self.rate <= LARGEST_RATE
        if not fits or rational_rate(float(self.rate)) != self.rate:
            raise InputError(
                f"{argument('rate')} must be a Fraction with 30 significant bits between 2^-32 "
                f"and 2^10, got {self.rate!r}; use rational_rate()."
            )
        if not (isinstance(self.cell, Fraction) and self.cell > 0):
            raise InputError(
                f"{argument('cell')} must be an exact Fraction > 0, got {self.cell!r}."
            )

    @classmethod
    def at_least(cls, scale: float, cell: Fraction | None = None) -> GridLaplace:
        """Noise of at least this scale, larger by less than 2^-28 of it.

        Args:
            cell: side of a cell; None for a power of two near scale/1024.
        """
        if not (isinstance(scale, int | float | Fraction) and 1e-290 < scale < 1e290):
            raise InputError(
                f"the scale of the noise must be a number between 1e-290 and 1e290, got {scale!r}."
            )
        exact = Fraction(scale)
        if cell is None:
            cell = Fraction(2) ** math.floor(math.log2(scale / CELLS_PER_SCALE))
        wanted = float(cell / exact)
        wanted = wanted if Fraction(wanted) <= cell / exact else math.nextafter(wanted, 0.0)
        return cls(rational_rate(wanted), Fraction(cell))

    @property
    def scale(self) -> Fraction:
        return self.cell / self.rate

    @property
    def variance(self) -> float:
        """2 scale^2 (noise) + cell^2/12 (rounding), an approximation to e^(-4 pi^2 / rate)."""
        return float(2 * self.scale**2 + self.cell**2 / 12)

    @theorem("metricshuffle", "a Laplace sum rounded down, exactly")
    def sample(self, values: Values, randomness: Randomness) -> Integers64:
        """Draw the cells floor((q + Laplace(scale)) / cell), independently for each q in `values`.

        Statement: let q = cell (i + f) with an integer i and 0 <= f < 1, and let L be the noise in
        cells: |L| is exponential with `rate`, its sign fair. If L > 0, the sum stays in cell i with
        probability 1 - e^(-rate (1-f)); otherwise the part of L beyond the edge is exponential
        again (no memory) and the cell is i + 1 + K, where P(K >= k) = e^(-rate k). If L < 0, the
        sum stays in cell i with probability 1 - e^(-rate f); otherwise the cell is i - 1 - K. A
        negative q is the mirror image of -q, whose cell j becomes -j - 1 (an edge is hit with
        probability 0).
        Conditions: |q| <= 2^51 cells.
        Numerics: i and f of a double are exact when the cell is a power of two; otherwise, and for
        Fractions, they are computed in rational arithmetic. A coin with probability e^-x compares a
        random word with an enclosure of e^-x; the undecided ones (one in 2^40) are refined exactly,
        digit by digit. No decision depends on a float.
        Reference: this docstring.
        """
        whole, part, negative, exactly = self._split(values)
        words = randomness.words(whole.size)
        up = words & np.uint64(1) == 1
        leaves = self._coins(
            np.where(up, 1.0 - part, part),
            words,
            lambda n: 1 - exactly(n) if up[n] else exactly(n),
            randomness,
        )
        cells = whole
        moved = np.flatnonzero(leaves)
        steps = sample_geometric(self.rate, moved.size, randomness) + 1
        cells[moved] += np.where(up[moved], steps, -steps)
        cells[negative] = -cells[negative] - 1
        return cells

    def centres(self, cells: Integers64) -> Floats:
        """Middle of each cell, which is the value released."""
        if self._power is None:
            return np.array(
                [float((2 * int(cell) + 1) * self.cell / 2) for cell in cells.ravel()]
            ).reshape(cells.shape)
        return np.asarray(np.ldexp(2.0 * cells + 1.0, self._power - 1), dtype=np.float64)

    def mass(self, value: float | Fraction, cell: int) -> float:
        """Probability that the released cell is `cell`, for audits and tests."""
        position = Fraction(value) / self.cell
        low = float((cell - position) * self.rate)
        high = float((cell + 1 - position) * self.rate)
        if low >= 0.0 or high <= 0.0:
            gap = low if low >= 0.0 else -high
            return 0.5 * math.exp(-gap) * -math.expm1(-float(self.rate))
        return -0.5 * (math.expm1(low) + math.expm1(-high))

    @property
    def _power(self) -> int | None:
        """e if the cell is 2^e, else None."""
        above = self.cell.numerator
        under = self.cell.denominator
        if above & (above - 1) or under & (under - 1):
            return None
        return above.bit_length() - under.bit_length()

    def _split(self, values: Values) -> Split:
        """Split |q|/cell: whole part, fraction to 2^-52, whether q < 0, exact fraction by index."""
        if isinstance(values, Ratios):
            ratios = (
                None
                if self._power is None
                else self._split_ratios(values, values.power + self._power)
            )
            return ratios or self._split([values.fraction(n) for n in range(len(values))])
        array = np.asarray(values)
        if array.ndim != 1:
            raise InputError(f"values must be one-dimensional, got shape {array.shape}.")
        if array.dtype.kind not in "fiuO" or array.dtype.itemsize > 8:
            raise DomainError(f"values must be numbers, got an array of {array.dtype}.")
        if array.dtype.kind in "fiu" and self._power is not None:
            numbers = array.astype(np.float64)
            if array.dtype.kind != "f" and (numbers.astype(object) != array.astype(object)).any():
                raise DomainError(
                    "values must be exact as doubles, but an integer beyond 2^53 is not; "
                    "give Fractions."
                )
            _check_reach(
                np.isfinite(numbers) & (np.abs(numbers) <= np.ldexp(float(MAX_CELL), self._power)),
                array,
            )
            scaled = np.abs(np.ldexp(numbers, -self._power))
            # ldexp may have rounded these tiny fractions; the callable below is exact.
            small = scaled < 2.0**-900
            whole = np.floor(scaled)
            signs = numbers < 0.0
            power = Fraction(2) ** self._power
            part = np.where(small, 0.0, scaled - whole)
            return (
                whole.astype(np.int64),
                part,
                signs,
                lambda n: abs(Fraction(float(numbers[n]))) / power - int(whole[n]),
            )
        quotients = in_cells(array, self.cell)
        _check_reach(
            np.array([abs(quotient) <= MAX_CELL for quotient in quotients], dtype=bool), array
        )
        pairs = [divmod(abs(quotient), 1) for quotient in quotients]
        wholes = np.array([int(pair[0]) for pair in pairs], dtype=np.int64)
        parts = np.array([float(pair[1]) for pair in pairs], dtype=np.float64)
        return (
            wholes,
            parts,
            np.array([quotient < 0 for quotient in quotients], dtype=bool),
            lambda n: pairs[n][1],
        )

    def _split_ratios(self, values: Ratios, shift: int) -> Split | None:
        """|numerator| / (denominator 2^shift) in 64-bit integers; None if they could overflow."""
        above = np.abs(values.numerators)
        under = values.denominators
        if int(under.max(initial=1)).bit_length() + abs(shift) > 62:
            return None
        if shift >= 0:
            below = under << shift
            whole, remainder = np.divmod(above, below)
        else:  # 2^-shift (a + r/under) with r < under
            below = under
            wholes, rests = np.divmod(above, under)
            _check_reach(wholes <= MAX_CELL >> -shift, values.numerators)
            more, remainder = np.divmod(rests << -shift, under)
            whole = (wholes << -shift) + more
        _check_reach(whole < MAX_CELL, values.numerators)
        return (
            whole,
            remainder / below,
            values.numerators < 0,
            lambda n: Fraction(int(remainder[n]), int(below[n])),
        )

    def _coins(
        self,
        distance: Floats,
        words: Words,
        exactly: Callable[[int], Fraction],
        randomness: Randomness,
    ) -> Mask:
        """Draw Bernoulli(exp(-rate distance)) from the upper 53 bits of each word.

        `distance` is accurate to 2^-51; `exactly(n)` is the exact n-th distance.
        """
        exponent = float(self.rate) * distance
        # The distance has an error below 2^-51, the product one of half an ulp, and exp one below
        # 100 ulp: together they give a relative error below `off`.
        off = 2.0**-44 + (float(self.rate) + exponent) * 2.0**-51
        chance = np.exp(-exponent)
        low = chance * (1.0 - off)
        high = np.maximum(chance * (1.0 + off), 1e-300)
        # The uniform number lies within 2^-53 above this.
        uniform = (words >> np.uint64(11)).astype(np.float64) * 2.0**-53
        heads = uniform + 2.0**-53 <= low
        for n in np.flatnonzero(~heads & (uniform < high)):
            heads[n] = _refine_comparison(
                self.rate * exactly(int(n)), int(words[n]) >> 11, 53, randomness
            )
        return heads


def in_cells(values: NDArray[np.generic], cell: Fraction) -> list[Fraction]:
    """Exact multiples of the cell; rejects strings and booleans, which Fraction would accept."""
    listed = values.tolist()
    try:
        if any(isinstance(value, str | bool) for value in listed):
            raise TypeError
        return [Fraction(value) / cell for value in listed]
    except (TypeError, ValueError, OverflowError):
        raise DomainError("values must be finite numbers or Fractions.") from None


def _check_reach(fits: Mask, values: NDArray[np.generic]) -> None:
    if not fits.all():
        first = int(np.argmin(fits))
        raise DomainError(
            f"value {first} is {values[first]!s}, which is not a number within 2^51 cells "
            "of 0; use coarser cells."
        )


@theorem("metricshuffle", "a coin e^-x by lazy comparison")
def _refine_comparison(exponent: Fraction, digits: int, bits: int, randomness: Randomness) -> bool:
    """Decide whether a uniform number lies below e^-exponent, drawing more digits as needed.

    `digits` are the first `bits` binary digits of the uniform number.

    Numerics: Decimal.exp is correctly rounded. The error of its argument is at most two units in
    the last place, so the error of the value is a hundred times below `slack`. Digits are drawn
    until the comparison cannot depend on this error.
    """
    while True:
        digits = (digits << 64) | int(randomness.words(1)[0])
        bits = bits + 64
        with localcontext(Context(prec=bits // 3 + 20)) as context:
            value = (-Decimal(exponent.numerator) / Decimal(exponent.denominator)).exp()
            slack = value * (2 + Decimal(math.ceil(exponent))) * Decimal(10) ** (3 - context.prec)
            low = Fraction(value - slack)
            high = Fraction(value + slack)
        if Fraction(digits + 1, 2**bits) <= low:
            return True
        if Fraction(digits, 2**bits) >= high:
            return False
