"""Laplace noise on a real number, sampled exactly and rounded to a grid AFTER the addition.

Rounding the number first and adding integer noise is not the same: two numbers as close as one likes may round to
different cells, and what should cost next to nothing costs a whole cell. Here the released cell is
floor((q + Laplace(b)) / g), exactly distributed, for the number q as it is (a double is a rational number): whatever
the grid, it is post-processing of a Laplace mechanism, and pure.
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
from metricshuffle.errors import DomainError, InputError
from metricshuffle.noise.samplers import LARGEST_RATE, SMALLEST_RATE, rational_rate, sample_geometric
from metricshuffle.numerics.types import Floats, Integers64, Mask, Words
from metricshuffle.randomness import Randomness

CELLS_PER_SCALE = 2**10
MAX_CELL = 2**51
"""Cells from 0: farther out the centre of a cell is no double any more, nor is the sum with the noise certainly an int64."""


@dataclass(frozen=True, eq=False)
class Ratios:
    """The exact numbers numerators[n] / (denominators[n] 2^power), as whole numbers: means over users of different sizes."""

    numerators: Integers64
    denominators: Integers64
    power: int = 0

    def __post_init__(self) -> None:
        if self.numerators.dtype != np.int64 or self.denominators.dtype != np.int64 or self.numerators.ndim != 1:
            raise InputError("the numerators and denominators of ratios must be one-dimensional arrays of int64.")
        if self.numerators.shape != self.denominators.shape or (self.denominators < 1).any():
            raise InputError("ratios need a denominator >= 1 for every numerator.")
        if (np.abs(self.numerators.astype(np.float64)) >= 2.0**62).any():
            raise InputError("the numerators of ratios must be below 2^62.")

    def fraction(self, n: int) -> Fraction:
        return Fraction(int(self.numerators[n]), int(self.denominators[n])) / Fraction(2) ** self.power

    def __len__(self) -> int:
        return self.numerators.size


Values = ArrayLike | Sequence[Fraction] | Ratios
Split = tuple[Integers64, Floats, Mask, Callable[[int], Fraction]]


@dataclass(frozen=True)
class GridLaplace:
    """Laplace noise of scale cell / rate, seen through cells [i cell, (i+1) cell)."""

    rate: Fraction
    """Per cell, made by rational_rate: it equals its own double."""
    cell: Fraction

    def __post_init__(self) -> None:
        fits = isinstance(self.rate, Fraction) and SMALLEST_RATE <= self.rate <= LARGEST_RATE
        if not fits or rational_rate(float(self.rate)) != self.rate:
            raise InputError(
                f"rate must be a Fraction with 30 significant bits between 2^-32 and 2^10, got {self.rate!r}; use rational_rate()."
            )
        if not (isinstance(self.cell, Fraction) and self.cell > 0):
            raise InputError(f"cell must be an exact Fraction > 0, got {self.cell!r}.")

    @classmethod
    def at_least(cls, scale: float, cell: Fraction | None = None) -> GridLaplace:
        """Noise of at least that scale (more by less than 2^-28 of it); cells are a power of two near scale/1024 unless given."""
        if not (isinstance(scale, int | float | Fraction) and 1e-290 < scale < 1e290):
            raise InputError(f"the scale of the noise must be a number between 1e-290 and 1e290, got {scale!r}.")
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
        """Of the noise, 2 scale^2, and of the uniform position in a cell, cell^2/12 (an approximation good to e^(-4 pi^2 / rate))."""
        return float(2 * self.scale**2 + self.cell**2 / 12)

    @theorem("metricshuffle", "a Laplace sum rounded down, exactly")
    def sample(self, values: Values, randomness: Randomness) -> Integers64:
        """The cells floor((q + Laplace(scale)) / cell), independent for each q in `values`.

        Statement: let q = cell (i + f), 0 <= f < 1, and L the noise in cells, |L| exponential with `rate`, its sign fair. L > 0: the
        sum stays in cell i with probability 1 - e^(-rate (1-f)); else the rest beyond the edge is exponential again (no
        memory) and the cell is i + 1 + K, P(K >= k) = e^(-rate k). L < 0: it stays with probability 1 - e^(-rate f), else
        i - 1 - K. Negative q: the mirror image of -q, whose cell j becomes -j - 1 (an edge is hit with probability 0).
        Conditions: |q| <= 2^51 cells. Numerics: i and f of a double are exact when the cell is a power of two; otherwise, and for
        Fractions, they are computed in rational arithmetic. A coin e^-x is a random word against an enclosure of e^-x; the
        undecided (one in 2^40) are refined exactly, digit by digit. No float decides anything.
        Reference: this docstring.
        """
        whole, part, negative, exactly = self._split(values)
        words = randomness.words(whole.size)
        up = words & np.uint64(1) == 1
        leaves = self._coins(np.where(up, 1.0 - part, part), words, lambda n: 1 - exactly(n) if up[n] else exactly(n), randomness)
        cells, moved = whole, np.flatnonzero(leaves)
        steps = sample_geometric(self.rate, moved.size, randomness) + 1
        cells[moved] += np.where(up[moved], steps, -steps)
        cells[negative] = -cells[negative] - 1
        return cells

    def centres(self, cells: Integers64) -> Floats:
        """What is released: the middle of each cell."""
        if self._power is None:
            return np.array([float((2 * int(cell) + 1) * self.cell / 2) for cell in cells.ravel()]).reshape(cells.shape)
        return np.asarray(np.ldexp(2.0 * cells + 1.0, self._power - 1), dtype=np.float64)

    def mass(self, value: float | Fraction, cell: int) -> float:
        """P(the released cell is `cell`), for audits and tests."""
        position = Fraction(value) / self.cell
        low, high = float((cell - position) * self.rate), float((cell + 1 - position) * self.rate)
        if low >= 0.0 or high <= 0.0:
            gap = low if low >= 0.0 else -high
            return 0.5 * math.exp(-gap) * -math.expm1(-float(self.rate))
        return -0.5 * (math.expm1(low) + math.expm1(-high))

    @property
    def _power(self) -> int | None:
        """e if the cell is 2^e."""
        above, under = self.cell.numerator, self.cell.denominator
        if above & (above - 1) or under & (under - 1):
            return None
        return above.bit_length() - under.bit_length()

    def _split(self, values: Values) -> Split:
        """|q|/cell as its whole part, its fraction to 2^-52, whether q < 0, and the exact fraction of the n-th."""
        if isinstance(values, Ratios):
            ratios = None if self._power is None else self._split_ratios(values, values.power + self._power)
            return ratios or self._split([values.fraction(n) for n in range(len(values))])
        array = np.asarray(values)
        if array.ndim != 1:
            raise InputError(f"values must be one-dimensional, got shape {array.shape}.")
        if array.dtype.kind not in "fiuO" or array.dtype.itemsize > 8:
            raise DomainError(f"values must be numbers, got an array of {array.dtype}.")
        if array.dtype.kind in "fiu" and self._power is not None:
            numbers = array.astype(np.float64)
            if array.dtype.kind != "f" and (numbers.astype(object) != array.astype(object)).any():
                raise DomainError("values must be exact as doubles, but an integer beyond 2^53 is not; give Fractions.")
            _check_reach(np.isfinite(numbers) & (np.abs(numbers) <= np.ldexp(float(MAX_CELL), self._power)), array)
            scaled = np.abs(np.ldexp(numbers, -self._power))
            small = scaled < 2.0**-900  # what ldexp may have rounded; such a fraction is tiny, and still exact below
            whole = np.floor(scaled)
            signs, power = numbers < 0.0, Fraction(2) ** self._power
            part = np.where(small, 0.0, scaled - whole)
            return whole.astype(np.int64), part, signs, lambda n: abs(Fraction(float(numbers[n]))) / power - int(whole[n])
        quotients = in_cells(array, self.cell)
        _check_reach(np.array([abs(quotient) <= MAX_CELL for quotient in quotients], dtype=bool), array)
        pairs = [divmod(abs(quotient), 1) for quotient in quotients]
        wholes = np.array([int(pair[0]) for pair in pairs], dtype=np.int64)
        parts = np.array([float(pair[1]) for pair in pairs], dtype=np.float64)
        return wholes, parts, np.array([quotient < 0 for quotient in quotients], dtype=bool), lambda n: pairs[n][1]

    def _split_ratios(self, values: Ratios, shift: int) -> Split | None:
        """|numerator| / (denominator 2^shift) in 64-bit integers; None where they could overflow."""
        above, under = np.abs(values.numerators), values.denominators
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
        return whole, remainder / below, values.numerators < 0, lambda n: Fraction(int(remainder[n]), int(below[n]))

    def _coins(self, distance: Floats, words: Words, exactly: Callable[[int], Fraction], randomness: Randomness) -> Mask:
        """Bernoulli(exp(-rate way)) by the upper 53 bits of each word; `way` is good to 2^-51, `exactly` tells it."""
        exponent = float(self.rate) * distance
        # way is off by less than 2^-51, the product by half an ulp, exp by less than 100 ulp: together less than `off` relative
        off = 2.0**-44 + (float(self.rate) + exponent) * 2.0**-51
        chance = np.exp(-exponent)
        low, high = chance * (1.0 - off), np.maximum(chance * (1.0 + off), 1e-300)
        uniform = (words >> np.uint64(11)).astype(np.float64) * 2.0**-53  # the number lies within 2^-53 above this
        heads = uniform + 2.0**-53 <= low
        for n in np.flatnonzero(~heads & (uniform < high)):
            heads[n] = _refine_comparison(self.rate * exactly(int(n)), int(words[n]) >> 11, 53, randomness)
        return heads


def in_cells(values: NDArray[np.generic], cell: Fraction) -> list[Fraction]:
    """Exact multiples of the cell; texts and truth values, which Fraction would take, are no numbers."""
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
        raise DomainError(f"value {first} is {values[first]!s}, which is not a number within 2^51 cells of 0; use coarser cells.")


@theorem("metricshuffle", "a coin e^-x by lazy comparison")
def _refine_comparison(exponent: Fraction, digits: int, bits: int, randomness: Randomness) -> bool:
    """Whether the uniform number whose first `bits` binary digits are `digits` lies below e^-exponent, drawing more digits as needed.

    Numerics: Decimal.exp is correctly rounded; its argument is off by two units in the last place at most, so the value by a hundred times
    less than `slack`, and the comparison waits until that cannot matter.
    """
    while True:
        digits, bits = (digits << 64) | int(randomness.words(1)[0]), bits + 64
        with localcontext(Context(prec=bits // 3 + 20)) as context:
            value = (-Decimal(exponent.numerator) / Decimal(exponent.denominator)).exp()
            slack = value * (2 + Decimal(math.ceil(exponent))) * Decimal(10) ** (3 - context.prec)
            low, high = Fraction(value - slack), Fraction(value + slack)
        if Fraction(digits + 1, 2**bits) <= low:
            return True
        if Fraction(digits, 2**bits) >= high:
            return False
