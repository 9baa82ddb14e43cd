"""From real parameters to integers that a random word can be compared with, always towards more noise.

Laws are kept as exact fractions (`Levels`), so that the blanket of a pair is right to the last digit whatever epsilon is.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from decimal import Context, Decimal, localcontext
from fractions import Fraction
from functools import cached_property, lru_cache
from typing import Annotated

import numpy as np
from pydantic import AfterValidator

from metricshuffle.accounting.shuffling.blanket_law import BlanketLaw
from metricshuffle.errors import InputError
from metricshuffle.models import Positive
from metricshuffle.numerics.types import Floats, Mask, Words
from metricshuffle.randomness import Randomness

TOTAL_WEIGHT = 2**63
"""What the integer weights of a law sum to. Not 2^64, which no 64-bit integer holds: a law may have a single output."""
LARGEST_EPSILON = 700.0

Weights = Words
Atom = tuple[int | Fraction, Fraction, Fraction, Fraction]
"""How many reports, and the probability of one of them under the others' law (or the blanket), a and b."""


def _at_most(epsilon: float) -> float:
    if epsilon > LARGEST_EPSILON:
        raise ValueError(f"must be at most 700, got {epsilon!r}")
    return epsilon


Epsilon = Annotated[Positive, AfterValidator(_at_most)]
"""A model field: the total epsilon of one report."""


@lru_cache(maxsize=1024)
def exp_below(exponent: float | Fraction) -> Fraction:
    """A rational just below e^exponent (relative error 1e-40): what is certified against it is certified."""
    with localcontext(Context(prec=50)):
        exact = Fraction(exponent)
        power = (Decimal(exact.numerator) / Decimal(exact.denominator)).exp()
        return Fraction(power) * (1 - Fraction(1, 10**40))


def growth(epsilon: object) -> float:
    """About e^epsilon, for choosing defaults; 1 for what is no number, which validation then refuses."""
    return math.exp(min(float(epsilon), 60.0)) if isinstance(epsilon, int | float) and epsilon > 0 else 1.0


def dyadic(matrix: Floats) -> Weights:
    """Integer weights that sum to 2^63 in every row: floor(2^63 p), at least 1 where p > 0; the largest entry takes the rest.

    Conditions: rows sum to 1 within 1e-9, so that no partial sum leaves 64 bits.
    """
    weights = np.floor(matrix * float(TOTAL_WEIGHT)).astype(np.uint64)
    weights[(matrix > 0.0) & (weights == 0)] = 1
    for row, largest in enumerate(np.argmax(matrix, axis=1)):
        weights[row, largest] = int(weights[row, largest]) + TOTAL_WEIGHT - int(weights[row].sum(dtype=np.uint64))
    return weights


def log_rounded_up(ratio: float) -> float:
    """log(ratio) for ratio >= 1, rounded up by more than the error of the two floats divided, of the division and of the log."""
    return 0.0 if ratio == 1.0 else math.log(ratio) * (1.0 + 4e-16) + 7e-16


def logs_rounded_up(ratios: Floats) -> Floats:
    """The same for many ratios."""
    logs: Floats = np.where(ratios == 1.0, 0.0, np.log(ratios) * (1.0 + 4e-16) + 7e-16)
    return logs


def draw_events(threshold: int, count: int, randomness: Randomness) -> Mask:
    """`count` independent events of probability threshold / 2^63, exactly."""
    if threshold >= TOTAL_WEIGHT:
        return np.ones(count, dtype=bool)
    hits: Mask = (randomness.words(count) >> np.uint64(1)) < np.uint64(threshold)
    return hits


@dataclass(frozen=True)
class Levels:
    """Laws with two levels: `many_high` reports of one probability, `many_low` of a smaller one; which ones depends on the input.

    The report is one of the high ones with probability threshold / 2^63, uniformly; otherwise one of the low ones, uniformly.
    """

    epsilon: float
    many_high: int
    many_low: int

    def __post_init__(self) -> None:
        if not self.high > self.low:
            raise InputError(
                f"epsilon = {self.epsilon!r} is too small for {self.many_high + self.many_low:,} reports: after rounding to multiples of "
                "2^-63 the report would not depend on the value; raise epsilon."
            )

    @cached_property
    def threshold(self) -> int:
        """floor(2^63 p h / (p h + l)): high/low <= p = e^epsilon holds exactly, and 1 at least is left for the low ones."""
        scaled = exp_below(self.epsilon) * self.many_high
        return min(TOTAL_WEIGHT - 1, math.floor(TOTAL_WEIGHT * scaled / (scaled + self.many_low)))

    @cached_property
    def high(self) -> Fraction:
        return Fraction(self.threshold, TOTAL_WEIGHT * self.many_high)

    @cached_property
    def low(self) -> Fraction:
        return Fraction(TOTAL_WEIGHT - self.threshold, TOTAL_WEIGHT * self.many_low)

    @cached_property
    def local_epsilon(self) -> float:
        """log(high/low), rounded up; never above epsilon, because of how the threshold is rounded."""
        return min(self.epsilon, log_rounded_up(float(self.high / self.low)))

    def blanket(self, parts: Iterable[tuple[int, bool, bool, bool]]) -> BlanketLaw:
        """Atoms from (how many reports, is the blanket high there, is a's law, is b's law)."""
        level = {True: self.high, False: self.low}
        return exact_blanket([(many, level[w], level[a], level[b]) for many, w, a, b in parts])


def exact_blanket(parts: Iterable[Atom]) -> BlanketLaw:
    """Atoms from exact (how many reports, w, K_a, K_b); each number is rounded once, and equal ratios are one atom."""
    atoms, unit = whole_multiples(parts)
    merged: dict[tuple[int, ...], list[int]] = {}
    for atom in atoms:
        common = math.gcd(*atom)
        total = merged.setdefault(tuple(value // common for value in atom), [0, 0, 0])
        for place, value in enumerate(atom):
            total[place] += value
    columns = zip(*((w / unit, a / unit, b / unit, (a - b) / unit) for w, a, b in merged.values()), strict=True)
    return BlanketLaw(*(np.array(column) for column in columns))


def whole_multiples(parts: Iterable[Atom]) -> tuple[list[tuple[int, int, int]], int]:
    """The probabilities of all the reports of each atom (if there are any) as whole multiples of 1/unit, and the unit.

    The quotient of two integers is rounded once, as that of a fraction is, and takes a tenth of the time.
    """
    held = [(many, (w, a, b)) for many, w, a, b in parts if many]
    counted = math.lcm(*(many.denominator for many, _ in held))
    unit = counted * math.lcm(*{value.denominator for _, values in held for value in values})
    atoms = []
    for many, values in held:
        times = many.numerator * (counted // many.denominator)
        w, a, b = (times * value.numerator * (unit // counted // value.denominator) for value in values)
        atoms.append((w, a, b))
    return atoms, unit
