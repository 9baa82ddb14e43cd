"""Means and counts by group: each person has a label and a number."""

from __future__ import annotations

from functools import cached_property
from typing import Literal, Self

import numpy as np
from pydantic import SerializerFunctionWrapHandler, model_serializer, model_validator

from metricshuffle.errors import InputError, PlanError, argument
from metricshuffle.estimation.inversion import IntervalMethod
from metricshuffle.models import FrozenModel, Positive
from metricshuffle.numerics.rounding import format_exact, format_number, shown_at_least
from metricshuffle.numerics.types import Floats, Integers64
from metricshuffle.privacy.target import Target
from metricshuffle.queries.mean_and_sum import Mean
from metricshuffle.queries.number_steps import NumberSteps
from metricshuffle.queries.query import Answer, Estimate, Inputs, Query
from metricshuffle.queries.result_table import Table
from metricshuffle.spaces import (
    Categories,
    Domain,
    Integers,
    Interval,
    LabelledDistance,
    LabelledNumbers,
    Space,
)

MAX_GROUPS = 2048


class ByGroup(Query):
    """Number of people in each group, and the mean of their numbers.

    Each person has a pair (label, number). `by` is the name of the groups, and of their column in
    tables. Real numbers are rounded to steps of `step`. `label_distance` is the distance between
    two labels: a plan sets it from the target's `label_epsilon`.
    """

    kind: Literal["by-group"] = "by-group"
    groups: Categories
    of: Mean
    by: str = "group"
    step: Positive = 1.0
    label_distance: Positive | None = None

    def __init__(
        self,
        groups: Categories,
        of: Mean,
        by: str = "group",
        step: float | None = None,
        **fields: object,
    ) -> None:
        if isinstance(of, Query) and not isinstance(of, Mean):
            raise InputError(
                "ByGroup answers means by group", field="of", remedy=f"ask for Mean, not {of.kind}."
            )
        named = of.domain if isinstance(of, Mean) else None
        if isinstance(named, Interval) and step is None:
            raise InputError(
                f"means by group over {named} need {argument('granularity')} (in Python: step), "
                "the unit that numbers are rounded to.",
                field="granularity",
            )
        FrozenModel.__init__(
            self, groups=groups, of=of, by=by, step=1.0 if step is None else step, **fields
        )

    @model_serializer(mode="wrap")
    def _only_what_is_said(self, handler: SerializerFunctionWrapHandler) -> dict[str, object]:
        written: dict[str, object] = handler(self)
        if self.label_distance is None:
            written.pop("label_distance", None)
        return written

    @model_validator(mode="after")
    def _has_groups(self) -> Self:
        count = len(self.groups.labels)
        if not 2 <= count <= MAX_GROUPS:
            remedy = "ask for the mean itself" if count < 2 else "merge labels"
            raise InputError(
                f"means by group need 2 to {MAX_GROUPS:,} {argument('labels')}, got {count:,}",
                remedy=remedy,
            )
        if not self.by.strip():
            raise InputError(f"{argument('by')} must name the groups, got {self.by!r}")
        _ = self.steps
        return self

    @property
    def steps(self) -> NumberSteps:
        return NumberSteps.of(self.of.domain, self.step, "means by group")

    @property
    def numbers(self) -> Integers | Interval:
        """Domain of the numbers."""
        return self.steps.numbers

    @property
    def length(self) -> float:
        """Length of the range of numbers, in units."""
        return self.steps.length

    @property
    def top(self) -> int:
        """Largest number of steps of a number (the smallest is 0)."""
        return self.steps.top

    @property
    def values_in(self) -> Domain:
        return LabelledNumbers(self.groups, self.numbers)

    @cached_property
    def points(self) -> Space:
        """Pairs of a group and a number of steps; code = group * (top + 1) + steps."""
        if self.label_distance is None:
            raise PlanError(
                "a plan says how far another label counts as; this query was not planned.",
                field="query",
                remedy="Use the query of the plan's task.",
            )
        domain = LabelledNumbers(self.groups, Integers(0, self.top, self.unit))
        return Space(domain, LabelledDistance(self.label_distance, self.step), self.unit)

    def for_target(self, target: Target) -> Self:
        if target.shape != "linear":
            raise InputError(
                "means by group add what a change of the label and a move of the number cost, so "
                "the promise must grow with the distance",
                field="flat",
                remedy=f"leave {argument('flat', True)} out (with the whole range as the distance "
                "nothing more than that is promised).",
            )
        return self.model_copy(update={"label_distance": target.label_distance})

    def covered(self, target: Target) -> Target:
        """Return the target, extended to a change of label if that is farther than its distance."""
        label_distance = self.label_distance or 0.0
        if label_distance <= target.distance:
            return target
        return target.stretched(label_distance)

    @property
    def unit(self) -> str:
        return self.of.unit

    @property
    def title(self) -> str:
        return "mean by group"

    @property
    def tabular(self) -> bool:
        return True

    @property
    def measure(self) -> str:
        return "expected error of a group's mean"

    @property
    def error_unit(self) -> str:
        return self.unit

    def between(self, step: float) -> str:
        unit = f" {self.unit}" if self.unit else ""
        return (
            f"pairs of {self.by} and number{self.steps.said_in(self.unit)}; another {self.by} "
            f"counts as {format_number(self.label_distance or 0.0)}{unit}"
        )

    @property
    def diameter(self) -> float:
        return self.length + (self.label_distance or 0.0)

    @property
    def farthest_move(self) -> str:
        return f"to another {self.by} and from one end of the range to the other"

    def check_distance(self, distance: float) -> None:
        longest = max(self.length, self.label_distance or 0.0)
        largest = max(longest, shown_at_least(self.length))
        if not self.step * (1.0 - 1e-12) <= distance <= largest * (1.0 + 1e-12):
            unit = f" {self.unit}" if self.unit else ""
            raise InputError(
                f"{argument('distance')} is one between numbers: it must lie between one step, "
                f"{format_number(shown_at_least(self.step))}{unit}, and the length of "
                f"{self.numbers}, {format_number(shown_at_least(self.length))}{unit}; got "
                f"{format_exact(distance)}{unit}."
            )

    def inputs(self, values: object, step: float, *, clamp: bool = False) -> Inputs:
        domain = self.values_in
        checked = domain.clamped(values) if clamp else domain.validated(values)
        steps = self.steps.rounded(checked[:, 1])
        codes = checked[:, 0].astype(np.int64) * (self.top + 1) + steps
        return Inputs(self, codes.reshape(-1, 1))

    def true_totals(self, codes: Integers64) -> Floats:
        """Counts and means in steps of all groups, without noise; empty groups get the middle."""
        groups, steps = np.divmod(codes, self.top + 1)
        counts = np.bincount(groups, minlength=len(self.groups.labels)).astype(np.float64)
        sums = np.bincount(groups, weights=steps, minlength=len(counts))
        middle = np.full(len(counts), 0.5 * self.top)
        means = np.divide(sums, counts, out=middle, where=counts > 0.0)
        return np.concatenate([counts, means])

    def pair(self, code: int) -> tuple[str, float]:
        """The pair (label, number) of a code."""
        group, steps = divmod(code, self.top + 1)
        number = min(self.numbers.low + steps * self.step, self.numbers.high)
        whole = isinstance(self.numbers, Integers)
        return self.groups.labels[group], int(number) if whole else number

    def answer(
        self,
        estimate: Estimate,
        level: float = 0.95,
        *,
        simultaneous: bool = False,
        method: IntervalMethod = "normal",
    ) -> Answer:
        """A row for each group: people and the mean of their numbers, with intervals.

        The estimate has the counts of all groups, then their means in steps.
        """
        return group_answer(
            self.groups,
            self.steps,
            estimate,
            level,
            simultaneous=simultaneous,
            method=method,
        )

    def typical_size(self, people: int) -> float:
        """People in a group, if all groups have the same size."""
        return people / len(self.groups.labels)

    def remarks(self) -> list[str]:
        return [
            f"A {self.by} that may be empty has a count that may be 0; then its mean says nothing."
        ]

    def __str__(self) -> str:
        return f"{self.of} by {self.by}, {self.groups}"


def group_answer(
    groups: Categories,
    steps: NumberSteps,
    estimate: Estimate,
    level: float,
    *,
    simultaneous: bool,
    method: IntervalMethod,
) -> Answer:
    """A row for each group: people and the mean of their numbers, with intervals.

    The estimate has the counts of all groups, then their means in steps from the lowest number.
    """
    counts, means = np.split(estimate.totals, 2)
    errors = np.split(estimate.standard_errors, 2)[1]
    low, high = (
        np.split(end, 2)
        for end in estimate.interval(level, simultaneous=simultaneous, method=method)
    )
    errors = errors * steps.step
    interval = steps.intervals(low[1], high[1])
    percent = f"{level * 100:g}"
    columns = {
        "label": list(groups.labels),
        "count": counts,
        f"count_{percent}": _pairs(np.column_stack([low[0], high[0]])),
        "mean": steps.means(means),
        "standard_error": errors,
        f"interval_{percent}": _pairs(interval),
        "may_be_empty": low[0] < 1.0,
    }
    return Answer(Table(columns), errors, interval)


def _pairs(rows: Floats) -> list[tuple[float, ...]]:
    return [tuple(row) for row in rows.tolist()]
