"""Pairs of a label and a number, and the distance between two of them."""

from __future__ import annotations

from typing import ClassVar, Literal, Self

import numpy as np
from pydantic import model_validator

from metricshuffle.errors import DomainError, InputError
from metricshuffle.models import FrozenModel, Positive
from metricshuffle.numerics.types import Floats, Integers64
from metricshuffle.spaces.array_input import Source, finite_points, joined_errors
from metricshuffle.spaces.domains import AnyDomain, Categories, Domain, Integers, Interval
from metricshuffle.spaces.metrics import Metric, representable

MAX_POINTS_CODED = 2**53 - 1
POINTS_ARE = "labelled numbers"


class LabelledNumbers(Domain):
    """Pairs (label, number). Validated pairs are (code of the label, number)."""

    points_are: ClassVar[str] = POINTS_ARE
    kind: Literal["labelled-numbers"] = "labelled-numbers"
    labels: Categories
    numbers: AnyDomain

    def __init__(self, labels: Categories, numbers: Domain, **fields: object) -> None:
        FrozenModel.__init__(self, labels=labels, numbers=numbers, **fields)

    @model_validator(mode="after")
    def _of_numbers(self) -> Self:
        if not isinstance(self.numbers, Integers | Interval):
            raise InputError(
                f"the numbers of a pair are Integers or an Interval, got "
                f"{type(self.numbers).__name__}"
            )
        if (self.size or 0) > MAX_POINTS_CODED:
            raise InputError(
                f"{self} are more than 2^53 pairs; choose a smaller range or a coarser unit"
            )
        return self

    @property
    def unit(self) -> str:
        return str(getattr(self.numbers, "unit", ""))

    def __str__(self) -> str:
        return f"{self.labels} with {self.numbers}"

    def validated(self, values: object) -> Integers64 | Floats:
        return self._checked(values, clamp=False)

    def clamped(self, values: object) -> Integers64 | Floats:
        """Like `validated`, but move numbers to the nearest end; labels are never moved."""
        return self._checked(values, clamp=True)

    def _checked(self, values: object, *, clamp: bool) -> Integers64 | Floats:
        source = _pairs_of(values)
        parts = []
        errors = []
        for column, check in (
            (0, self.labels.validated),
            (1, self.numbers.clamped if clamp else self.numbers.validated),
        ):
            try:
                parts.append(check(source[:, column]))
            except DomainError as error:
                errors.append(error)
        if errors:
            raise joined_errors(errors, str(self), first_clamps=False)
        pairs: Floats = np.column_stack(parts).astype(np.float64)
        return pairs

    def points(self, validated: Integers64 | Floats) -> Integers64 | Floats:
        return validated

    def extremes(self) -> Integers64 | Floats:
        return self._product(self.numbers.extremes())

    @property
    def size(self) -> int | None:
        per_label = self.numbers.size
        return None if per_label is None else per_label * len(self.labels.labels)

    def all_values(self) -> Integers64:
        """All pairs: those of the first label come first, in the order of their numbers."""
        return np.asarray(self._product(self.numbers.all_values()), dtype=np.int64)

    def _product(self, numbers: Integers64 | Floats) -> Integers64 | Floats:
        codes = self.labels.all_values()
        return np.column_stack([np.repeat(codes, len(numbers)), np.tile(numbers, len(codes))])


def _pairs_of(values: object) -> Source:
    """Pairs as an array of two columns."""
    try:
        source = values if isinstance(values, np.ndarray) else np.array(values, dtype=object)
    except ValueError:  # rows of different lengths
        source = np.array(None, dtype=object)
    if source.shape == (0,):
        source = source.reshape(0, 2)
    if source.ndim != 2 or source.shape[1] != 2:
        raise InputError(
            "values must be pairs (label, number), such as [('a', 3), ('b', 5)], or an array with "
            "a column of labels and a column of numbers."
        )
    return source


class LabelledDistance(Metric):
    """Distance of numbers, `step` for each step, plus `label_distance` if the labels differ."""

    kind: Literal["labelled"] = "labelled"
    label_distance: Positive
    step: Positive = 1.0

    def __init__(self, label_distance: float, step: float = 1.0, **fields: object) -> None:
        FrozenModel.__init__(self, label_distance=label_distance, step=step, **fields)

    @property
    def measures(self) -> frozenset[str]:
        return frozenset({POINTS_ARE})

    @property
    def monotone(self) -> bool:
        return True

    def unit_of(self, unit: str) -> str:
        return unit

    def pairwise(self, points_a: object, points_b: object) -> Floats:
        first = finite_points(points_a, 2)
        second = finite_points(points_b, 2)
        with np.errstate(over="ignore"):
            apart = np.abs(np.subtract.outer(first[:, 1], second[:, 1])) * self.step
            return representable(
                apart + self.label_distance * np.not_equal.outer(first[:, 0], second[:, 0])
            )
