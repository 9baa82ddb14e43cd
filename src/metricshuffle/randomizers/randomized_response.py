"""Randomized response: keep the value with the larger probability, else report another one."""

from __future__ import annotations

import math
from fractions import Fraction
from functools import cached_property
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from metricshuffle.accounting.shuffling.blanket_law import BlanketLaw
from metricshuffle.citations import theorem
from metricshuffle.errors import InputError, argument, owner
from metricshuffle.models import FrozenModel, Whole
from metricshuffle.numerics.types import Floats
from metricshuffle.randomizers.dyadic_weights import (
    TOTAL_WEIGHT,
    Epsilon,
    exact_blanket,
    exp_below,
    log_rounded_up,
)
from metricshuffle.randomizers.randomizer import (
    LARGEST_MATRIX,
    FittedFamily,
    Pair,
    Randomizer,
    code_values,
    smallest_type,
)
from metricshuffle.randomness import BUFFER_WORDS, Randomness
from metricshuffle.spaces import Domain

MAX_OPTIONS = 2**24


class KaryRandomizedResponse(Randomizer):
    """One of `options` values, kept or else replaced by another one, uniformly.

    It is kept with probability e^epsilon/(e^epsilon + options - 1). Reference: Kairouz, Bonawitz,
    Ramage 2016. The weights are integers that sum to 2^63, `other` rounded up: half a random word
    makes a report.
    """

    kind: Literal["k-ary-randomized-response"] = "k-ary-randomized-response"
    options: Whole
    epsilon: Epsilon

    def __init__(self, options: int, epsilon: float, **fields: object) -> None:
        FrozenModel.__init__(self, options=options, epsilon=epsilon, **fields)

    def model_post_init(self, context: object) -> None:
        if not 2 <= self.options <= MAX_OPTIONS:
            raise InputError(
                f"{owner(type(self).__name__)}{argument('options')} must lie in 2..2^24, "
                f"got {self.options}."
            )
        if not self.keep > self.other:
            raise InputError(
                f"{owner(type(self).__name__)}{argument('epsilon', self.epsilon)} is too "
                f"small for {self.options:,} options; raise it."
            )

    @classmethod
    def fitted(cls, domain: Domain, cells: int) -> FittedFamily | None:
        """Return the family for any `cells` values whose matrix of laws is small enough."""
        return (
            FittedFamily(lambda epsilon: cls(cells, epsilon))
            if cells * cells <= LARGEST_MATRIX
            else None
        )

    @property
    def inputs(self) -> int:
        return self.options

    @property
    def outputs(self) -> int:
        return self.options

    @cached_property
    def other(self) -> int:
        """2^63 times the probability of each other option, rounded up.

        So keep/other <= e^epsilon holds exactly.
        """
        return math.ceil(TOTAL_WEIGHT / (exp_below(self.epsilon) + self.options - 1))

    @cached_property
    def keep(self) -> int:
        """2^63 times the probability of the value itself."""
        return TOTAL_WEIGHT - (self.options - 1) * self.other

    def law(self, value: int) -> Floats:
        row = np.full(self.options, self.other / TOTAL_WEIGHT)
        row[self._checked_input(value)] = self.keep / TOTAL_WEIGHT
        return row

    def rows(self) -> Floats:
        self._listable()
        return np.where(
            np.eye(self.options, dtype=bool), self.keep / TOTAL_WEIGHT, self.other / TOTAL_WEIGHT
        )

    def pairs(self) -> list[Pair]:
        return [(0, 1)]

    @theorem("Kairouz16", "k-ary randomized response")
    def blanket(self, a: int, b: int) -> BlanketLaw:
        """Blanket of (a, b) in closed form.

        Statement: w = other at every report, so K_a/w and K_b/w are (keep/other, 1), (1,
        keep/other) and (1, 1) on the rest.
        Numerics: exact fractions, rounded once.
        Reference: Kairouz, Bonawitz, Ramage 2016 for the law.
        """
        self._checked_pair(a, b)
        return self._blanket

    @cached_property
    def _blanket(self) -> BlanketLaw:
        keep = Fraction(self.keep, TOTAL_WEIGHT)
        other = Fraction(self.other, TOTAL_WEIGHT)
        return exact_blanket(
            [
                (1, other, keep, other),
                (1, other, other, keep),
                (self.options - 2, other, other, other),
            ]
        )

    def local_epsilon(self, a: int | None = None, b: int | None = None) -> float:
        """Return log(keep/other), equal for all pairs, rounded up; never above epsilon."""
        if a is not None and b is not None:
            self._checked_pair(a, b)
        return min(self.epsilon, log_rounded_up(self.keep / self.other))

    def total_variation(self, a: int, b: int) -> float:
        self._checked_pair(a, b)
        return (self.keep - self.other) / TOTAL_WEIGHT

    def reports(self, values: object, randomness: Randomness) -> NDArray[Any]:
        """Draw one report per value, exactly by the law, from half a random word each."""
        from metricshuffle.randomizers import _channel_kernels as kernels

        codes = code_values(values, self.options)
        out = np.empty(len(codes), dtype=smallest_type(self.options))
        words = np.empty(BUFFER_WORDS, dtype=np.uint64)
        buffer_codes = np.empty(2 * BUFFER_WORDS, dtype=np.int32)
        first = self.keep / 2**31
        inverse = 2**31 / self.other
        # The error of `first` is at most 2^32 2^-53, that of products up to `options` 4 units.
        doubt = 2e-6 * inverse + 1e-15 * self.options
        for start in range(0, len(codes), buffer_codes.size):
            part = codes[start : start + buffer_codes.size].astype(np.int32)
            randomness.fill(words[: (len(part) + 1) // 2])
            halves = words.view(np.uint32)
            undecided = kernels.draw_kary(halves, part, first, inverse, doubt, buffer_codes)
            if undecided:
                spare = randomness.words(undecided)
                kernels.finish_kary(
                    halves, part, first, inverse, doubt, self.keep, self.other, spare, buffer_codes
                )
            out[start : start + len(part)] = buffer_codes[: len(part)]
        return out

    def targets(self) -> Floats:
        return np.eye(self.options)

    def debiasing(self) -> Floats:
        """Return (1[y = x] - other) / (keep - other)."""
        self._listable()
        return (TOTAL_WEIGHT * np.eye(self.options) - self.other) / (self.keep - self.other)

    def totals(self, reports: object) -> Floats:
        counts = self.counts(reports)
        people = int(counts.sum())
        return (counts.astype(np.float64) - people * (self.other / TOTAL_WEIGHT)) * (
            TOTAL_WEIGHT / (self.keep - self.other)
        )


class BinaryRandomizedResponse(KaryRandomizedResponse):
    """A bit, kept with probability e^epsilon/(e^epsilon + 1), else flipped (Warner 1965)."""

    kind: Literal["binary-randomized-response"] = "binary-randomized-response"  # type: ignore[assignment]
    keeps_law: ClassVar[bool] = True
    options: Literal[2] = 2

    def __init__(self, epsilon: float, options: int = 2, **fields: object) -> None:
        FrozenModel.__init__(self, options=options, epsilon=epsilon, **fields)

    @classmethod
    def fitted(cls, domain: Domain, cells: int) -> FittedFamily | None:
        """Return None: two values are covered by the k-ary response."""
        return None
