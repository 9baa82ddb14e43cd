"""The sum and the mean of people's numbers."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Literal

import numpy as np

from metricshuffle.errors import InputError, argument
from metricshuffle.estimation.inversion import IntervalMethod
from metricshuffle.numerics.rounding import format_number
from metricshuffle.queries.query import Answer, Estimate, Inputs
from metricshuffle.queries.summed_query import SummedQuery
from metricshuffle.spaces import Domain, Integers, Interval

# Real numbers are first rounded to this fraction of the granularity, so that all later arithmetic
# is on exact integers.
STEPS_PER_GRAIN = 4096
# Doubles and 64-bit integers represent this many steps exactly, with room for noise.
MAX_STEPS = 2**50


class NumberQuery(SummedQuery):
    """Base of sum and mean: queries on numbers from low to high."""

    def __init__(self, domain: Domain, **fields: object) -> None:
        named = Domain.of_kind(domain)
        if not isinstance(named, Integers | Interval):
            raise InputError(
                f"{type(self).__name__} needs Integers or an Interval, got {type(named).__name__}.",
                field="domain",
            )
        super().__init__(domain=named, **fields)

    @property
    def ends(self) -> tuple[float, float]:
        """Smallest and largest number of the domain."""
        if not isinstance(self.domain, Integers | Interval):
            raise InputError(
                f"{type(self).__name__} needs Integers or an Interval, got "
                f"{type(self.domain).__name__}.",
                field="domain",
            )
        return self.domain.low, self.domain.high

    def between(self, step: float) -> str:
        return (
            "values"
            if isinstance(self.domain, Integers)
            else f"values rounded to steps of {format_number(step)} {self.unit}".rstrip()
        )

    @property
    def snapping(self) -> float:
        return 0.0 if isinstance(self.domain, Integers) else 0.5

    def step(self, granularity: float) -> float:
        return 1.0 if isinstance(self.domain, Integers) else granularity / STEPS_PER_GRAIN

    def check_step(self, step: float) -> None:
        low, high = self.ends
        if isinstance(self.domain, Integers):
            super().check_step(step)
        elif step * STEPS_PER_GRAIN > (high - low) * (1.0 + 1e-9):
            raise InputError(
                f"values in {self.domain} are counted in steps of a {STEPS_PER_GRAIN}th of "
                f"its length at most, got {step!r}.",
                field="step",
                remedy="Use the step that the plan states.",
            )

    def grain(self, granularity: float) -> int:
        if isinstance(self.domain, Integers):
            return super().grain(granularity)
        low, high = self.ends
        if not 0.0 < granularity <= high - low:
            raise InputError(
                "real numbers are rounded at random before noise is added, to multiples of "
                f"{argument('granularity')}, which must lie between 0 and the length of "
                f"{self.domain}, got {granularity!r}."
            )
        return STEPS_PER_GRAIN

    def spans(self, step: float) -> tuple[int, ...]:
        low, high = self.ends
        if not (high - low) / step <= MAX_STEPS:
            raise InputError(
                f"numbers from {format_number(low)} to {format_number(high)} take "
                f"{(high - low) / step:.3g} steps of "
                f"{format_number(step)}, but only 2^50 are exact",
                field="granularity",
                remedy=f"choose a coarser {argument('granularity')}.",
            )
        return (math.ceil((high - low) / step - 1e-9),)

    def inputs(self, values: object, step: float, *, clamp: bool = False) -> Inputs:
        offset = (
            self.domain.clamped(values) if clamp else self.domain.validated(values)
        ) - self.ends[0]
        if isinstance(self.domain, Interval):
            offset = np.clip(np.rint(offset / step), 0, self.spans(step)[0])
        return Inputs(self, np.asarray(offset, dtype=np.int64).reshape(-1, 1))

    def answer(
        self,
        estimate: Estimate,
        level: float = 0.95,
        *,
        simultaneous: bool = False,
        method: IntervalMethod = "normal",
    ) -> Answer:
        low, high = estimate.interval(level, simultaneous=simultaneous, method=method)
        value, lower, largest = self.ends_of(estimate, low, high)[0]
        error = float(estimate.standard_errors[0]) * self.error_scale(
            estimate.people, estimate.step
        )
        return Answer(value, error, (lower, largest))


class Sum(NumberQuery):
    """The sum of people's numbers."""

    kind: Literal["sum"] = "sum"

    # Repeated, because type checkers do not see that pydantic inherits it.
    def __init__(self, domain: Domain, **fields: object) -> None:
        super().__init__(domain, **fields)

    def in_units(self, total: Fraction, axis: int, people: int, step: float) -> Fraction:
        return total * Fraction(step) + people * Fraction(self.ends[0])

    def error_scale(self, people: int, step: float) -> float:
        return step


class Mean(NumberQuery):
    """The mean of people's numbers (the number of reports is public)."""

    kind: Literal["mean"] = "mean"

    # Repeated, because type checkers do not see that pydantic inherits it.
    def __init__(self, domain: Domain, **fields: object) -> None:
        super().__init__(domain, **fields)

    def in_units(self, total: Fraction, axis: int, people: int, step: float) -> Fraction:
        return total * Fraction(step) / people + Fraction(self.ends[0])

    def error_scale(self, people: int, step: float) -> float:
        return step / people
