"""Counts and means by key: each person holds some keys, and a number for each of them."""

from __future__ import annotations

from functools import cached_property
from typing import Literal, Self

import numpy as np
from pydantic import model_validator

from metricshuffle.errors import InputError, argument
from metricshuffle.estimation.inversion import IntervalMethod
from metricshuffle.models import FrozenModel, Positive, Whole
from metricshuffle.numerics.rounding import format_number
from metricshuffle.numerics.types import Floats, Integers64
from metricshuffle.queries.by_group import MAX_GROUPS, group_answer
from metricshuffle.queries.number_steps import NumberSteps
from metricshuffle.queries.query import Answer, Estimate, Inputs
from metricshuffle.queries.record_query import RecordQuery, even_labels
from metricshuffle.spaces import (
    AnyDomain,
    Categories,
    Domain,
    Integers,
    Interval,
    KeyedDistance,
    KeyedNumbers,
    Space,
)
from metricshuffle.spaces.person_records import NOTHING


class KeyValues(RecordQuery):
    """Number of people who hold each key, and the mean of their numbers for it.

    Each person holds at most `size` of the keys, or none. The distance of two people is the sum
    over the keys: the difference of their numbers if both hold the key, and half the length of the
    range if one of them does. Real numbers are rounded to steps of `step`.
    """

    kind: Literal["key-values"] = "key-values"
    keys: Categories
    domain: AnyDomain
    size: Whole
    step: Positive = 1.0

    def __init__(
        self,
        keys: object,
        domain: Domain,
        size: int,
        step: float | None = None,
        **fields: object,
    ) -> None:
        known = keys if isinstance(keys, Categories | dict) else Categories(keys)
        if isinstance(domain, Interval) and step is None:
            raise InputError(
                f"means by key over {domain} need {argument('granularity')} (in Python: step), "
                "the unit that numbers are rounded to.",
                field="granularity",
            )
        FrozenModel.__init__(
            self, keys=known, domain=domain, size=size, step=1.0 if step is None else step, **fields
        )

    @model_validator(mode="after")
    def _has_keys(self) -> Self:
        count = len(self.keys.labels)
        if count > MAX_GROUPS:
            raise InputError(
                f"means by key take up to {MAX_GROUPS:,} {argument('keys')}, got {count:,}",
                remedy="merge keys",
            )
        if not 1 <= self.size <= count:
            raise InputError(
                f"{argument('size')}, the most keys that one person holds, must lie between 1 and "
                f"the number of keys, {count:,}, got {self.size!r}",
                field="size",
            )
        _ = self.steps
        return self

    @property
    def steps(self) -> NumberSteps:
        return NumberSteps.of(self.domain, self.step, "means by key")

    @property
    def numbers(self) -> Integers | Interval:
        """Domain of the numbers."""
        return self.steps.numbers

    @property
    def top(self) -> int:
        """Largest number of steps of a number (the smallest is 0)."""
        return self.steps.top

    @property
    def rows(self) -> int:
        return len(self.keys.labels)

    @property
    def absence(self) -> float:
        """Distance of two people for a key that only one of them holds."""
        return 0.5 * self.top * self.step

    @property
    def values_in(self) -> KeyedNumbers:
        return KeyedNumbers(self.keys, self.numbers, self.size)

    @cached_property
    def points(self) -> Space:
        domain = KeyedNumbers(self.keys, Integers(0, self.top, self.unit), self.size)
        return Space(domain, KeyedDistance(self.absence, self.step), self.unit)

    @property
    def unit(self) -> str:
        return self.numbers.unit

    @property
    def title(self) -> str:
        return "mean by key"

    @property
    def measure(self) -> str:
        return "expected error of a key's mean"

    @property
    def error_unit(self) -> str:
        return self.unit

    @property
    def diameter(self) -> float:
        return self.size * self.top * self.step

    @property
    def farthest_move(self) -> str:
        return "all keys to other ones, or all numbers from one end of the range to the other"

    @property
    def smallest_move(self) -> float:
        return min(self.step, self.absence)

    def between(self, step: float) -> str:
        unit = f" {self.unit}" if self.unit else ""
        return (
            f"keys with numbers{self.steps.said_in(self.unit)}, added up over the keys; a key that "
            f"only one of two people holds counts as {format_number(self.absence)}{unit}"
        )

    @property
    def outcome(self) -> str:
        return "how many have each key, and the average of their numbers for it"

    def within(self, distance: str) -> str:
        unit = f" {self.unit}" if self.unit else ""
        return (
            f"that are at most {distance} apart: the differences of their numbers are added up, "
            f"and one that only one of them has counts as {format_number(self.absence)}{unit}"
        )

    def typical_size(self, people: int) -> float:
        """People who hold a key, if all hold as many keys as they may, evenly spread."""
        return people * self.size / self.rows

    def inputs(self, values: object, step: float, *, clamp: bool = False) -> Inputs:
        domain = self.values_in
        checked = domain.clamped(values) if clamp else domain.validated(values)
        keys = checked[:, :, 0].astype(np.int64)
        steps = self.steps.rounded(checked[:, :, 1])
        return Inputs(self, np.where(keys == NOTHING, NOTHING, keys * (self.top + 1) + steps))

    def between_inputs(self, first: Integers64, second: Integers64) -> Floats:
        points = (self._points_of(codes) for codes in (first, second))
        return self.points.metric.pairwise(*points)

    def _points_of(self, codes: Integers64) -> Floats:
        """Rows of (key, steps), filled up with (-1, 0)."""
        keys, steps = np.divmod(codes, self.top + 1)
        empty = codes == NOTHING
        return np.stack([np.where(empty, NOTHING, keys), np.where(empty, 0, steps)], axis=2).astype(
            np.float64
        )

    def even_inputs(self, people: int, generator: np.random.Generator) -> Inputs:
        keys = even_labels(people, self.rows, self.size, generator)
        steps = generator.integers(0, self.top, keys.shape, endpoint=True)
        return Inputs(self, keys * (self.top + 1) + steps)

    def true_totals(self, numbers: Integers64) -> Floats:
        """Counts of all keys and their means in steps; the middle for a key without people."""
        keys, steps = np.divmod(numbers[numbers != NOTHING], self.top + 1)
        counts = np.bincount(keys, minlength=self.rows).astype(np.float64)
        sums = np.bincount(keys, weights=steps, minlength=self.rows)
        middle = np.full(self.rows, 0.5 * self.top)
        means = np.divide(sums, counts, out=middle, where=counts > 0.0)
        return np.concatenate([counts, means])

    def answer(
        self,
        estimate: Estimate,
        level: float = 0.95,
        *,
        simultaneous: bool = False,
        method: IntervalMethod = "normal",
    ) -> Answer:
        """A row for each key: people and the mean of their numbers, with intervals."""
        return group_answer(
            self.keys,
            self.steps,
            estimate,
            level,
            simultaneous=simultaneous,
            method=method,
        )

    def remarks(self) -> list[str]:
        return ["A key that nobody may hold has a count that may be 0; then its mean says nothing."]

    def __str__(self) -> str:
        return f"counts and means over {self.values_in}"
