"""Means of several columns of numbers: each person has one row."""

from __future__ import annotations

from functools import cached_property
from typing import Literal, Self

import numpy as np
from pydantic import model_validator

from metricshuffle.errors import InputError
from metricshuffle.estimation.inversion import IntervalMethod
from metricshuffle.models import FrozenModel, Positive
from metricshuffle.numerics.types import Floats, Integers64
from metricshuffle.queries.number_steps import NumberSteps
from metricshuffle.queries.query import Answer, Estimate, Inputs
from metricshuffle.queries.record_query import RecordQuery, interval_pairs
from metricshuffle.queries.result_table import Table
from metricshuffle.spaces import (
    AnyDomain,
    Domain,
    Integers,
    Interval,
    NumberRows,
    RowDistance,
    Space,
)

MAX_COLUMNS = 4096
FINE_STEPS = 2**30
"""Number of steps of a range of real numbers, if no step is given."""


class Means(RecordQuery):
    """The mean of each of several columns, for rows of numbers that all lie in one domain.

    The distance of two rows is the sum over the columns of their differences. Real numbers are
    rounded to steps of `step`, by default to a billionth of the range.
    """

    kind: Literal["means"] = "means"
    columns: tuple[str, ...]
    domain: AnyDomain
    step: Positive = 1.0

    def __init__(
        self, columns: object, domain: Domain, step: float | None = None, **fields: object
    ) -> None:
        if isinstance(columns, str):
            raise InputError(
                f"the columns must be a list of names, such as [{columns!r}].",
                field="column",
            )
        fine = (domain.high - domain.low) / FINE_STEPS if isinstance(domain, Interval) else 1.0
        FrozenModel.__init__(
            self, columns=columns, domain=domain, step=fine if step is None else step, **fields
        )

    @model_validator(mode="after")
    def _has_columns(self) -> Self:
        _ = self.values_in
        if len(self.columns) > MAX_COLUMNS:
            raise InputError(
                f"means of columns take up to {MAX_COLUMNS:,} columns, got {len(self.columns):,}",
                field="column",
                remedy="leave some out",
            )
        _ = self.steps
        return self

    @property
    def steps(self) -> NumberSteps:
        return NumberSteps.of(self.domain, self.step, "means of columns")

    @property
    def top(self) -> int:
        """Largest number of steps of a number (the smallest is 0)."""
        return self.steps.top

    @property
    def rows(self) -> int:
        return len(self.columns)

    @property
    def values_in(self) -> NumberRows:
        return NumberRows(self.columns, self.domain)

    @cached_property
    def points(self) -> Space:
        domain = NumberRows(self.columns, Integers(0, self.top, self.unit))
        return Space(domain, RowDistance(self.step), self.unit)

    @property
    def unit(self) -> str:
        return str(getattr(self.domain, "unit", ""))

    @property
    def title(self) -> str:
        return "means of columns"

    @property
    def measure(self) -> str:
        return "expected error of a column's mean"

    @property
    def error_unit(self) -> str:
        return self.unit

    @property
    def diameter(self) -> float:
        return self.top * self.step * self.rows

    @property
    def farthest_move(self) -> str:
        return "all numbers of a row from one end of the range to the other"

    @property
    def smallest_move(self) -> float:
        return self.step

    def between(self, step: float) -> str:
        many = f"{self.rows:,} number{'s' * (self.rows != 1)}"
        return f"rows of {many}{self.steps.said_in(self.unit)}, added up over the columns"

    @property
    def outcome(self) -> str:
        return "the average of each column"

    def within(self, distance: str) -> str:
        return f"whose differences add up to at most {distance} over the numbers"

    def inputs(self, values: object, step: float, *, clamp: bool = False) -> Inputs:
        domain = self.values_in
        checked = domain.clamped(values) if clamp else domain.validated(values)
        return Inputs(self, self.steps.rounded(checked))

    def even_inputs(self, people: int, generator: np.random.Generator) -> Inputs:
        return Inputs(self, generator.integers(0, self.top, (people, self.rows), endpoint=True))

    def true_totals(self, numbers: Integers64) -> Floats:
        """Means in steps; the middle without people."""
        return numbers.mean(axis=0) if len(numbers) else np.full(self.rows, 0.5 * self.top)

    def answer(
        self,
        estimate: Estimate,
        level: float = 0.95,
        *,
        simultaneous: bool = False,
        method: IntervalMethod = "normal",
    ) -> Answer:
        """A row for each column: the mean with its interval. The estimate has means in steps."""
        low, high = estimate.interval(level, simultaneous=simultaneous, method=method)
        interval = self.steps.intervals(low, high)
        errors = estimate.standard_errors * self.step
        columns = {
            "label": list(self.columns),
            "value": self.steps.means(estimate.totals),
            "standard_error": errors,
            f"interval_{level * 100:g}": interval_pairs(*interval.T),
        }
        return Answer(Table(columns), errors, interval)

    def __str__(self) -> str:
        names = ", ".join(self.columns[:5]) + (", ..." if self.rows > 5 else "")
        return f"means of {self.rows:,} column{'s' * (self.rows != 1)} ({names}) over {self.domain}"
