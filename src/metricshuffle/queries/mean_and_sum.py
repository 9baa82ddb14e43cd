"""The sum and the mean of everybody's number."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any, Literal

import numpy as np

from metricshuffle.errors import InputError
from metricshuffle.estimation.inversion import IntervalMethod
from metricshuffle.numerics.rounding import format_number
from metricshuffle.queries.query import Answer, Estimate, Inputs
from metricshuffle.queries.summed_query import SummedQuery
from metricshuffle.spaces import Domain, Integers, Interval

# A real number is first rounded to this fraction of the granularity, so that everything after is exact integers.
STEPS_PER_GRAIN = 4096
# Steps are whole numbers that doubles and 64-bit integers hold exactly, with room for noise.
MAX_STEPS = 2**50


class NumberQuery(SummedQuery):
    """Sum and mean: numbers from low to high."""

    def __init__(self, domain: Domain, **fields: Any) -> None:
        named = Domain.of_kind(domain)
        if not isinstance(named, Integers | Interval):
            raise InputError(f"{type(self).__name__} needs Integers or an Interval, got {type(named).__name__}.")
        super().__init__(domain=named, **fields)

    @property
    def ends(self) -> tuple[float, float]:
        """The least and the largest number."""
        if not isinstance(self.domain, Integers | Interval):
            raise InputError(f"{type(self).__name__} needs Integers or an Interval, got {type(self.domain).__name__}.")
        return self.domain.low, self.domain.high

    def between(self, step: float) -> str:
        return "values" if isinstance(self.domain, Integers) else f"values rounded to steps of {format_number(step)} {self.unit}".rstrip()

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
            raise InputError(f"values in {self.domain} are counted in steps of a {STEPS_PER_GRAIN}th of its length at most, got {step!r}.")

    def grain(self, granularity: float) -> int:
        if isinstance(self.domain, Integers):
            return super().grain(granularity)
        low, high = self.ends
        if not 0.0 < granularity <= high - low:
            raise InputError(
                f"real numbers are rounded at random before noise is added: give a granularity between 0 and the length of {self.domain}, "
                f"got {granularity!r}."
            )
        return STEPS_PER_GRAIN

    def spans(self, step: float) -> tuple[int, ...]:
        low, high = self.ends
        if not (high - low) / step <= MAX_STEPS:
            raise InputError(
                f"numbers from {format_number(low)} to {format_number(high)} take {(high - low) / step:.3g} steps of "
                f"{format_number(step)}, and more than 2^50 are "
                "not told apart exactly; choose a coarser granularity."
            )
        return (math.ceil((high - low) / step - 1e-9),)

    def inputs(self, values: Any, step: float, *, clamp: bool = False) -> Inputs:
        offset = (self.domain.clamped(values) if clamp else self.domain.validated(values)) - self.ends[0]
        if isinstance(self.domain, Interval):
            offset = np.clip(np.rint(offset / step), 0, self.spans(step)[0])
        return Inputs(self, np.asarray(offset, dtype=np.int64).reshape(-1, 1))

    def answer(self, estimate: Estimate, level: float = 0.95, *, simultaneous: bool = False, method: IntervalMethod = "normal") -> Answer:
        low, high = estimate.interval(level, simultaneous=simultaneous, method=method)
        value, lower, largest = self.ends_of(estimate, low, high)[0]
        error = float(estimate.standard_errors[0]) * self.error_scale(estimate.people, estimate.step)
        return Answer(value, error, (lower, largest))


class Sum(NumberQuery):
    """The sum of everybody's number."""

    kind: Literal["sum"] = "sum"

    def __init__(self, domain: Domain, **fields: Any) -> None:  # again, because type checkers do not see pydantic inherit it
        super().__init__(domain, **fields)

    def in_units(self, total: Fraction, axis: int, people: int, step: float) -> Fraction:
        return total * Fraction(step) + people * Fraction(self.ends[0])

    def error_scale(self, people: int, step: float) -> float:
        return step


class Mean(NumberQuery):
    """The mean of everybody's number (the number of reports is public)."""

    kind: Literal["mean"] = "mean"

    def __init__(self, domain: Domain, **fields: Any) -> None:  # again, because type checkers do not see pydantic inherit it
        super().__init__(domain, **fields)

    def in_units(self, total: Fraction, axis: int, people: int, step: float) -> Fraction:
        return total * Fraction(step) / people + Fraction(self.ends[0])

    def error_scale(self, people: int, step: float) -> float:
        return step / people
