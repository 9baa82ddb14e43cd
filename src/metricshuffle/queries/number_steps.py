"""A range of numbers in steps, for queries whose people hold several numbers or a pair."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from metricshuffle.errors import InputError, PlanError, argument
from metricshuffle.numerics.rounding import ROUNDOFF, format_number
from metricshuffle.numerics.types import Floats, Integers64
from metricshuffle.spaces import Domain, Integers, Interval

MAX_STEPS = 2**31 - 1
"""Largest number of steps of a range, so that sums over all people fit 63 bits."""


@dataclass(frozen=True)
class NumberSteps:
    """Numbers of a domain, rounded to whole numbers of steps above the lowest one."""

    numbers: Integers | Interval
    step: float

    @classmethod
    def of(cls, domain: Domain, step: float, subject: str) -> NumberSteps:
        """Check a domain and a step for `subject`, such as "means by group"."""
        if not isinstance(domain, Integers | Interval):
            raise PlanError(
                f"{subject} are those of numbers, not of {domain}.",
                field="domain",
                remedy="Use Integers or an Interval.",
            )
        steps = cls(domain, step)
        if isinstance(domain, Integers) and step != 1.0:
            raise InputError(
                f"{subject} of whole numbers take no {argument('granularity')} (in Python: step); "
                f"got {step:g}",
                field="granularity",
                remedy="leave it out",
            )
        if not steps.length / step <= MAX_STEPS or steps.top < 1:
            raise InputError(
                f"{subject} take 1 to {MAX_STEPS:,} steps of {format_number(step)}, but {domain} "
                f"has {format_number(steps.length / step)}",
                field="granularity",
                remedy=f"choose another {argument('granularity')}",
            )
        return steps

    @property
    def low(self) -> float:
        return float(self.numbers.low)

    @property
    def high(self) -> float:
        return float(self.numbers.high)

    @property
    def length(self) -> float:
        """Length of the range, in units."""
        return float(self.numbers.high - self.numbers.low)

    @property
    def top(self) -> int:
        """Number of steps of the highest number (that of the lowest is 0)."""
        return math.ceil(self.length / self.step - 1e-9)

    @property
    def rounding_error(self) -> float:
        """Largest error of a mean from rounding numbers to steps, in units."""
        if isinstance(self.numbers, Integers):
            return 0.0
        return 0.5 * self.step + 16.0 * ROUNDOFF * max(abs(self.low), abs(self.high))

    def rounded(self, values: Floats | Integers64) -> Integers64:
        """Numbers of steps of values in the domain."""
        offsets = (values - self.low) / self.step
        return np.clip(np.rint(offsets), 0, self.top).astype(np.int64)

    def means(self, steps: Floats) -> Floats:
        """Means in units, in the range, from means in steps."""
        return np.clip(self.low + steps * self.step, self.low, self.high)

    def intervals(self, lower: Floats, upper: Floats) -> Floats:
        """Intervals (rows) of means in units, from ends in steps; they cover the rounding."""
        ends = (
            self.low + lower * self.step - self.rounding_error,
            self.low + upper * self.step + self.rounding_error,
        )
        return np.clip(np.column_stack(ends), self.low, self.high)

    def said_in(self, unit: str) -> str:
        """Return " in steps of ..." with the unit; empty for whole numbers."""
        if isinstance(self.numbers, Integers):
            return ""
        return f" in steps of {format_number(self.step)}{f' {unit}' if unit else ''}"
