"""Integer weights for comparison with a random word, rounded towards more noise.

Laws are stored as exact fractions (`Levels`), so that the blanket of a pair is right to the last
digit for every epsilon.
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
from metricshuffle.errors import InputError, argument
from metricshuffle.models import Positive
from metricshuffle.numerics.types import Floats, Mask, Words
from metricshuffle.randomness import Randomness

TOTAL_WEIGHT = 2**63
"""The sum of the integer weights of a law.

It is not 2^64: a single output has all of the weight, and 2^64 does not fit a 64-bit integer.
"""
LARGEST_EPSILON = 700.0

Weights = Words
Atom = tuple[int | Fraction, Fraction, Fraction, Fraction]
"""(number of reports, probability of one of them under the others' law or the blanket, a and b)."""


def _at_most(epsilon: float) -> float:
    if epsilon > LARGEST_EPSILON:
        raise ValueError(f"must be at most 700, got {epsilon!r}")
    return epsilon


Epsilon = Annotated[Positive, AfterValidator(_at_most)]
"""A model field: the total epsilon of one report."""


@lru_cache(maxsize=1024)
def exp_below(exponent: float | Fraction) -> Fraction:
    """Return a rational just below e^exponent (relative error 1e-40), for certified comparisons."""
    with localcontext(Context(prec=50)):
        exact = Fraction(exponent)
        power = (Decimal(exact.numerator) / Decimal(exact.denominator)).exp()
        return Fraction(power) * (1 - Fraction(1, 10**40))


def growth(epsilon: object) -> float:
    """Return about e^epsilon, for choosing defaults; 1 for values that validation rejects."""
    return (
        math.exp(min(float(epsilon), 60.0))
        if isinstance(epsilon, int | float) and epsilon > 0
        else 1.0
    )


def dyadic(matrix: Floats) -> Weights:
    """Return integer weights that sum to 2^63 in every row.

    They are floor(2^63 p), at least 1 where p > 0; the largest entry gets the remainder.

    Conditions: rows sum to 1 within 1e-9, so that no partial sum leaves 64 bits.
    """
    weights = np.floor(matrix * float(TOTAL_WEIGHT)).astype(np.uint64)
    weights[(matrix > 0.0) & (weights == 0)] = 1
    for row, largest in enumerate(np.argmax(matrix, axis=1)):
        weights[row, largest] = (
            int(weights[row, largest]) + TOTAL_WEIGHT - int(weights[row].sum(dtype=np.uint64))
        )
    return weights


def log_rounded_up(ratio: float) -> float:
    """Return log(ratio) for ratio >= 1, rounded up.

    The margin exceeds the error of the two floats divided, of the division and of the log.
    """
    return 0.0 if ratio == 1.0 else math.log(ratio) * (1.0 + 4e-16) + 7e-16


def logs_rounded_up(ratios: Floats) -> Floats:
    """Return `log_rounded_up` of many ratios."""
    logs: Floats = np.where(ratios == 1.0, 0.0, np.log(ratios) * (1.0 + 4e-16) + 7e-16)
    return logs


def draw_events(threshold: int, count: int, randomness: Randomness) -> Mask:
    """Draw `count` independent events of probability threshold / 2^63, exactly."""
    if threshold >= TOTAL_WEIGHT:
        return np.ones(count, dtype=bool)
    hits: Mask = (randomness.words(count) >> np.uint64(1)) < np.uint64(threshold)
    return hits


@dataclass(frozen=True)
class Levels:
    """Laws with two levels: `many_high` reports of one probability, `many_low` of a smaller one.

    Which reports are high depends on the input. The report is one of the high ones with probability
    threshold / 2^63, uniformly; otherwise one of the low ones, uniformly.
    """

    epsilon: float
    many_high: int
    many_low: int

    def __post_init__(self) -> None:
        if not self.high > self.low:
            raise InputError(
                f"{argument('epsilon', self.epsilon)} is too small for "
                f"{self.many_high + self.many_low:,} reports: after rounding to multiples of "
                f"2^-63 the report would not depend on the value; raise {argument('epsilon')}."
            )

    @cached_property
    def threshold(self) -> int:
        """floor(2^63 p h / (p h + l)), so that high/low <= p = e^epsilon holds exactly.

        At least 1 is left for the low ones.
        """
        scaled = exp_below(self.epsilon) * self.many_high
        return min(TOTAL_WEIGHT - 1, math.floor(TOTAL_WEIGHT * scaled / (scaled + self.many_low)))

    @cached_property
    def high(self) -> Fraction:
        """Probability of one of the high reports."""
        return Fraction(self.threshold, TOTAL_WEIGHT * self.many_high)

    @cached_property
    def low(self) -> Fraction:
        """Probability of one of the low reports."""
        return Fraction(TOTAL_WEIGHT - self.threshold, TOTAL_WEIGHT * self.many_low)

    @cached_property
    def local_epsilon(self) -> float:
        """log(high/low), rounded up; never above epsilon, as the threshold is rounded down."""
        return min(self.epsilon, log_rounded_up(float(self.high / self.low)))

    def blanket(self, parts: Iterable[tuple[int, bool, bool, bool]]) -> BlanketLaw:
        """Return atoms from (number of reports, whether w, a's law and b's law are high there)."""
        level = {True: self.high, False: self.low}
        return exact_blanket([(many, level[w], level[a], level[b]) for many, w, a, b in parts])


def exact_blanket(parts: Iterable[Atom]) -> BlanketLaw:
    """Return atoms from exact (number of reports, w, K_a, K_b).

    Each number is rounded once, and equal ratios become one atom.
    """
    atoms, unit = whole_multiples(parts)
    merged: dict[tuple[int, ...], list[int]] = {}
    for atom in atoms:
        common = math.gcd(*atom)
        total = merged.setdefault(tuple(value // common for value in atom), [0, 0, 0])
        for place, value in enumerate(atom):
            total[place] += value
    columns = zip(
        *((w / unit, a / unit, b / unit, (a - b) / unit) for w, a, b in merged.values()),
        strict=True,
    )
    return BlanketLaw(*(np.array(column) for column in columns))


def whole_multiples(parts: Iterable[Atom]) -> tuple[list[tuple[int, int, int]], int]:
    """Return the total probabilities of each atom as whole multiples of 1/unit, and the unit.

    Atoms without reports are left out. The quotient of two integers is rounded once, like that of a
    fraction, and takes a tenth of the time.
    """
    present = [(many, (w, a, b)) for many, w, a, b in parts if many]
    counted = math.lcm(*(many.denominator for many, _ in present))
    unit = counted * math.lcm(*{value.denominator for _, values in present for value in values})
    atoms = []
    for many, values in present:
        times = many.numerator * (counted // many.denominator)
        w, a, b = (
            times * value.numerator * (unit // counted // value.denominator) for value in values
        )
        atoms.append((w, a, b))
    return atoms, unit
