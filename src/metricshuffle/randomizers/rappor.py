"""Symmetric unary encoding: one bit per option, each kept or flipped independently."""

from __future__ import annotations

import math
from fractions import Fraction
from functools import cached_property
from typing import Literal

import numpy as np

from metricshuffle.accounting.shuffling.blanket_law import BlanketLaw
from metricshuffle.citations import theorem
from metricshuffle.errors import DomainError, InputError, argument, owner
from metricshuffle.models import FrozenModel, Whole
from metricshuffle.numerics.types import Bits, Floats
from metricshuffle.randomizers.dyadic_weights import (
    TOTAL_WEIGHT,
    Epsilon,
    draw_events,
    exact_blanket,
    exp_below,
    log_rounded_up,
)
from metricshuffle.randomizers.randomizer import Codes, Pair, Randomizer, code_values
from metricshuffle.randomness import Randomness


class Rappor(Randomizer):
    """The value as a row of bits with a single one, each bit kept or flipped independently.

    A bit is kept with probability e^(epsilon/2)/(e^(epsilon/2) + 1). Reports are rows of `options`
    bits, coded as binary numbers with option 0 last. Reference: Erlingsson, Pihur, Korolova 2014
    (one-time RAPPOR without a Bloom filter).
    """

    kind: Literal["rappor"] = "rappor"
    options: Whole
    epsilon: Epsilon

    def __init__(self, options: int, epsilon: float, **fields: object) -> None:
        FrozenModel.__init__(self, options=options, epsilon=epsilon, **fields)

    def model_post_init(self, context: object) -> None:
        if not 2 <= self.options <= 2**20:
            raise InputError(
                f"{owner('Rappor')}{argument('options')} must lie in 2..2^20, got {self.options}."
            )
        if not 2 * self.keep > TOTAL_WEIGHT:
            raise InputError(
                f"{owner('Rappor')}{argument('epsilon', self.epsilon)} is too small: the "
                "report would not depend on the value."
            )

    @cached_property
    def keep(self) -> int:
        """2^63 times the probability that a bit is kept, rounded down.

        So (keep/flip)^2 <= e^epsilon holds exactly.
        """
        ratio = exp_below(Fraction(self.epsilon) / 2)
        return min(TOTAL_WEIGHT - 1, math.floor(TOTAL_WEIGHT * ratio / (ratio + 1)))

    @property
    def inputs(self) -> int:
        return self.options

    @property
    def outputs(self) -> int:
        return 1 << self.options

    def codes_of(self, reports: object) -> Codes:
        bits = self._bits(reports)
        if self.options > 62:
            raise InputError(
                f"there are 2^{self.options} different reports, too many to number; use "
                "totals(reports)."
            )
        return np.asarray(
            bits.astype(np.int64) @ (np.int64(1) << np.arange(self.options, dtype=np.int64))
        )

    def _bits(self, reports: object) -> Bits:
        bits = np.asarray(reports)
        if bits.ndim != 2 or bits.shape[1] != self.options or not np.isin(bits, (0, 1)).all():
            raise DomainError(
                f"reports must be rows of {self.options} bits, got {bits.dtype} of shape "
                f"{bits.shape}."
            )
        return bits.astype(np.uint8)

    def _all_bits(self) -> Floats:
        self._listable()
        return (np.arange(self.outputs)[:, None] >> np.arange(self.options) & 1).astype(np.float64)

    def rows(self) -> Floats:
        ones = self._all_bits()
        # Hamming distance of the report from the value's own row.
        flips = ones.sum(axis=1)[None, :] + 1.0 - 2.0 * ones.T
        keep = self.keep / TOTAL_WEIGHT
        return np.asarray(
            keep ** (self.options - flips) * ((TOTAL_WEIGHT - self.keep) / TOTAL_WEIGHT) ** flips
        )

    def pairs(self) -> list[Pair]:
        return [(0, 1)]

    @theorem("Erlingsson14", "one-time RAPPOR")
    def blanket(self, a: int, b: int) -> BlanketLaw:
        """Blanket of (a, b) in closed form.

        Statement: with ratio p = (keep/flip)^2, K_x(y)/w(y) is p where bit x of y is 1, else 1; and
        1 if y is all ones.
        Proof: K_x(y) = c^d r^(-|y| - 1 + 2 y_x) with c = keep, r = keep/flip, so the smallest law
        at y is that of a value whose bit is 0. The masses follow from bits a and b alone, which are
        independent.
        Numerics: exact fractions, rounded once (options up to 64; beyond, the all-ones report is
        left in the part where both bits are 1, which only lowers the blanket).
        """
        self._checked_pair(a, b)
        keep = Fraction(self.keep, TOTAL_WEIGHT)
        flip = 1 - keep
        ratio = (keep / (1 - keep)) ** 2
        everything = keep * flip ** (self.options - 1) if self.options <= 64 else Fraction(0)
        unit = Fraction(1)
        both = (keep * flip - everything) / ratio
        return exact_blanket(
            [
                (keep * flip, unit, unit, unit),
                (flip * flip, unit, ratio, unit),
                (flip * flip, unit, unit, ratio),
                (both, unit, ratio, ratio),
                (everything, unit, unit, unit),
            ]
        )

    def local_epsilon(self, a: int | None = None, b: int | None = None) -> float:
        """Return 2 log(keep/flip), the same for every pair; never above epsilon."""
        if a is not None and b is not None:
            self._checked_pair(a, b)
        return min(self.epsilon, 2.0 * log_rounded_up(self.keep / (TOTAL_WEIGHT - self.keep)))

    def reports(self, values: object, randomness: Randomness) -> Bits:
        codes = code_values(values, self.options)
        out = np.zeros((len(codes), self.options), dtype=np.uint8)
        out[np.arange(len(codes)), codes] = 1
        together = max(1, 2**20 // self.options)
        for start in range(0, len(codes), together):
            part = out[start : start + together]
            part ^= ~draw_events(self.keep, part.size, randomness).reshape(part.shape)
        return out

    def targets(self) -> Floats:
        return np.eye(self.options)

    def debiasing(self) -> Floats:
        flip = (TOTAL_WEIGHT - self.keep) / TOTAL_WEIGHT
        gap = (2 * self.keep - TOTAL_WEIGHT) / TOTAL_WEIGHT
        return (self._all_bits() - flip) / gap

    def totals(self, reports: object) -> Floats:
        bits = self._bits(reports)
        flip = (TOTAL_WEIGHT - self.keep) / TOTAL_WEIGHT
        gap = (2 * self.keep - TOTAL_WEIGHT) / TOTAL_WEIGHT
        return np.asarray((bits.sum(axis=0, dtype=np.int64) - len(bits) * flip) / gap)
