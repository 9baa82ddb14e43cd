"""Shares of labels among people who each hold a set of them."""

from __future__ import annotations

from functools import cached_property
from typing import Literal, Self

import numpy as np
from pydantic import model_validator

from metricshuffle.errors import InputError, argument
from metricshuffle.estimation.inversion import IntervalMethod
from metricshuffle.models import FrozenModel, Whole
from metricshuffle.numerics.types import Floats, Integers64
from metricshuffle.queries.query import Answer, Estimate, Inputs
from metricshuffle.queries.record_query import RecordQuery, even_labels, interval_pairs
from metricshuffle.queries.result_table import Table
from metricshuffle.spaces import Categories, LabelSets, SetDistance, Space

MAX_LABELS = 4096


class Sets(RecordQuery):
    """Share of the people whose set holds each label; sets have at most `size` of the labels.

    A set may be empty. The distance of two sets is the number of labels that are in one of them
    and not in the other.
    """

    kind: Literal["sets"] = "sets"
    labels: Categories
    size: Whole

    def __init__(self, labels: object, size: int, **fields: object) -> None:
        known = labels if isinstance(labels, Categories | dict) else Categories(labels)
        FrozenModel.__init__(self, labels=known, size=size, **fields)

    @model_validator(mode="after")
    def _has_labels(self) -> Self:
        count = len(self.labels.labels)
        if count > MAX_LABELS:
            raise InputError(
                f"sets take up to {MAX_LABELS:,} {argument('labels')}, got {count:,}",
                remedy="merge labels",
            )
        if not 1 <= self.size <= count:
            raise InputError(
                f"{argument('size')}, the most labels that one person holds, must lie between 1 "
                f"and the number of labels, {count:,}, got {self.size!r}",
                field="size",
            )
        return self

    @property
    def rows(self) -> int:
        return len(self.labels.labels)

    @property
    def values_in(self) -> LabelSets:
        return LabelSets(self.labels, self.size)

    @cached_property
    def points(self) -> Space:
        return Space(self.values_in, SetDistance(), self.unit)

    @property
    def unit(self) -> str:
        return "labels"

    @property
    def title(self) -> str:
        return "shares of labels in sets"

    @property
    def row_name(self) -> str:
        return "share"

    @property
    def measure(self) -> str:
        return "expected error of a share"

    @property
    def error_unit(self) -> str:
        return "% of the people"

    @property
    def diameter(self) -> float:
        return float(min(2 * self.size, self.rows))

    @property
    def farthest_move(self) -> str:
        return "from one set to another without a label in common"

    @property
    def smallest_move(self) -> float:
        return 1.0

    def between(self, step: float) -> str:
        return "sets, by the number of labels that only one of them has"

    @property
    def outcome(self) -> str:
        return "the share of people who have each label"

    def within(self, distance: str) -> str:
        return f"that differ in at most {distance}, each of which only one of them has"

    def inputs(self, values: object, step: float, *, clamp: bool = False) -> Inputs:
        domain = self.values_in
        return Inputs(self, domain.clamped(values) if clamp else domain.validated(values))

    def even_inputs(self, people: int, generator: np.random.Generator) -> Inputs:
        return Inputs(self, even_labels(people, self.rows, self.size, generator))

    def true_totals(self, numbers: Integers64) -> Floats:
        """Shares of the people; 0 without people."""
        counts = np.bincount(numbers[numbers >= 0], minlength=self.rows)
        return np.asarray(counts / max(1, len(numbers)))

    def answer(
        self,
        estimate: Estimate,
        level: float = 0.95,
        *,
        simultaneous: bool = False,
        method: IntervalMethod = "normal",
    ) -> Answer:
        """A row for each label: the share of the people who hold it, with its interval."""
        low, high = estimate.interval(level, simultaneous=simultaneous, method=method)
        lower, upper = np.clip(low, 0.0, 1.0), np.clip(high, 0.0, 1.0)
        columns = {
            "label": list(self.labels.labels),
            "share": np.clip(estimate.totals, 0.0, 1.0),
            "standard_error": estimate.standard_errors,
            f"interval_{level * 100:g}": interval_pairs(lower, upper),
        }
        return Answer(Table(columns), estimate.standard_errors, np.column_stack([lower, upper]))

    def remarks(self) -> list[str]:
        return [
            "Shares are those of the people who hold a label; they add up to the mean number of "
            "labels that a person holds, not to 1."
        ]

    def __str__(self) -> str:
        return f"shares of labels in {self.values_in}"
