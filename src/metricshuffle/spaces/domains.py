"""Domains of values. A domain validates a whole column at once and clamps only on request."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from typing import Annotated, Any, ClassVar, Literal, Self

import numpy as np
from pydantic import BeforeValidator, SerializeAsAny, model_validator

from metricshuffle.errors import DomainError, InputError, WrongRows, argument
from metricshuffle.models import LARGEST_WHOLE, FrozenModel, Real, TaggedModel, Whole, format_value
from metricshuffle.numerics.types import Floats, Integers64, Mask
from metricshuffle.spaces.array_input import (
    Source,
    as_floats,
    as_source,
    clip_finite,
    indices,
    raise_domain_error,
)

CLAMP_REMEDY = (
    "Correct such rows; clamped(values) moves values outside to the nearest end, if that is "
    "what you want."
)


class Domain(TaggedModel, ABC):
    """Set of values."""

    kinds: ClassVar[dict[str, type[TaggedModel]]] = {}
    points_are: ClassVar[str]
    """Kind of its points for a metric: "numbers", "plane" or "codes"."""
    clamped_to: ClassVar[str] = "the nearest end"
    """Where `clamped` moves values outside, in words."""

    @abstractmethod
    def validated(self, values: Any) -> Integers64 | Floats:
        """Return the values as an array.

        Raises:
            DomainError: if a value lies outside; the message names the first such row.
        """

    @abstractmethod
    def clamped(self, values: Any) -> Integers64 | Floats:
        """Like `validated`, but move values outside to the nearest end.

        Values that are not finite numbers still raise DomainError.
        """

    def check_claims(self) -> None:
        """Raise InputError if a received domain claims something false about its values."""

    @abstractmethod
    def points(self, validated: Integers64 | Floats) -> Integers64 | Floats:
        """Validated values as points of a metric, in units."""

    @abstractmethod
    def extremes(self) -> Integers64 | Floats:
        """Values that include the one farthest from any given value, for a monotone metric."""

    @property
    @abstractmethod
    def size(self) -> int | None:
        """Number of values; None for a continuum."""

    @abstractmethod
    def all_values(self) -> Integers64:
        """All values of a finite domain."""

    def contains(self, value: Any) -> bool:
        """Whether one value lies inside."""
        try:
            self.validated([value])
        except InputError:
            return False
        return True


AnyDomain = Annotated[SerializeAsAny[Domain], BeforeValidator(Domain.of_kind)]
"""Type of a model field that holds any domain."""


def not_whole(numbers: Floats) -> Mask:
    """Mask of the numbers with a fractional part, or NaN."""
    with np.errstate(invalid="ignore"):
        broken: Mask = numbers != np.floor(numbers)
    return broken


class Integers(Domain):
    """The whole numbers low, low + 1, ..., high."""

    points_are: ClassVar[str] = "numbers"
    kind: Literal["integers"] = "integers"
    low: Whole
    high: Whole
    unit: str = ""

    def __init__(self, low: int, high: int, unit: str = "", **fields: object) -> None:
        FrozenModel.__init__(self, low=low, high=high, unit=unit, **fields)

    @model_validator(mode="after")
    def _has_room(self) -> Self:
        if not self.low < self.high:
            raise InputError(
                f"{argument('low')} must be below {argument('high')}, got "
                f"{argument('low', self.low)} and {argument('high', self.high)}"
            )
        if self.high - self.low > LARGEST_WHOLE:
            raise InputError(
                f"high - low must be at most 2^53 - 1, got {argument('low', self.low)} and "
                f"{argument('high', self.high)}"
            )
        return self

    def __str__(self) -> str:
        return f"whole numbers from {self.low:,} to {self.high:,} {self.unit}".rstrip()

    def _whole_inside(self, source: Source, numbers: Floats) -> Integers64:
        def reason(row: int) -> str:
            return (
                "is not a whole number"
                if numbers[row] != np.floor(numbers[row])
                else _side(numbers[row], self.low)
            )

        raise_domain_error(
            source,
            ~((numbers >= self.low) & (numbers <= self.high)) | not_whole(numbers),
            str(self),
            reason,
            CLAMP_REMEDY,
        )
        return numbers.astype(np.int64)

    def validated(self, values: object) -> Integers64:
        source = as_source(values, None)
        return self._whole_inside(source, as_floats(source))

    def clamped(self, values: object) -> Integers64:
        source = as_source(values, None)
        return self._whole_inside(source, clip_finite(source, self.low, self.high))

    def points(self, validated: Integers64 | Floats) -> Integers64 | Floats:
        return validated

    def extremes(self) -> Integers64:
        return np.array([self.low, self.high], dtype=np.int64)

    @property
    def size(self) -> int | None:
        return self.high - self.low + 1

    def all_values(self) -> Integers64:
        return np.arange(self.low, self.high + 1, dtype=np.int64)


class Interval(Domain):
    """The real numbers from low to high, both included."""

    points_are: ClassVar[str] = "numbers"
    kind: Literal["interval"] = "interval"
    low: Real
    high: Real
    unit: str = ""

    def __init__(self, low: float, high: float, unit: str = "", **fields: object) -> None:
        FrozenModel.__init__(self, low=low, high=high, unit=unit, **fields)

    @model_validator(mode="after")
    def _has_room(self) -> Self:
        if not self.low < self.high:
            raise InputError(
                f"{argument('low')} must be below {argument('high')}, got "
                f"{argument('low', self.low)} and {argument('high', self.high)}"
            )
        if not math.isfinite(self.high - self.low):
            raise InputError(
                f"high - low must be finite, got {argument('low', self.low)} and "
                f"{argument('high', self.high)}"
            )
        return self

    def __str__(self) -> str:
        return f"numbers from {self.low:,} to {self.high:,} {self.unit}".rstrip()

    def _inside(self, source: Source, numbers: Floats) -> Floats:
        raise_domain_error(
            source,
            ~((numbers >= self.low) & (numbers <= self.high)),
            str(self),
            lambda row: _side(numbers[row], self.low),
            CLAMP_REMEDY,
        )
        return numbers

    def validated(self, values: object) -> Floats:
        source = as_source(values, None)
        return self._inside(source, as_floats(source))

    def clamped(self, values: object) -> Floats:
        source = as_source(values, None)
        return self._inside(source, clip_finite(source, self.low, self.high))

    def points(self, validated: Integers64 | Floats) -> Integers64 | Floats:
        return validated

    def extremes(self) -> Floats:
        return np.array([self.low, self.high])

    @property
    def size(self) -> int | None:
        return None

    def all_values(self) -> Integers64:
        raise InputError("the numbers of an Interval cannot be listed; use Integers or a Grid.")


def _side(number: float, low: float) -> str:
    return "lies below it" if number < low else "lies above it"


class Categories(Domain):
    """Labels without an order. Validated values are codes: 0 for the first label, and so on."""

    points_are: ClassVar[str] = "codes"
    kind: Literal["categories"] = "categories"
    labels: tuple[str, ...]

    unit: ClassVar[str] = ""

    def __init__(self, labels: object, **fields: object) -> None:
        FrozenModel.__init__(self, labels=labels, **fields)

    @model_validator(mode="after")
    def _told_apart(self) -> Self:
        if not self.labels:
            raise InputError(f"{argument('labels')} must name at least one category, got none")
        if "" in self.labels:
            raise InputError(
                f"{argument('labels')} must not be empty, but label "
                f"{self.labels.index('')} (counting from 0) is"
            )
        if len(set(self.labels)) < len(self.labels):
            seen: set[str] = set()
            twice = next(label for label in self.labels if label in seen or seen.add(label))  # type: ignore[func-returns-value]
            raise InputError(
                f"{argument('labels')} must differ, but {format_value(twice)} appears more "
                "than once"
            )
        return self

    def __str__(self) -> str:
        listed = ", ".join(self.labels[:5]) + (", ..." if len(self.labels) > 5 else "")
        return f"the {len(self.labels):,} categories ({listed})"

    def validated(self, values: object) -> Integers64:
        source = as_source(values, None)
        code_of = {label: code for code, label in enumerate(self.labels)}
        codes = np.array(
            [code_of.get(value, -1) if isinstance(value, str) else -1 for value in source],
            dtype=np.int64,
        )
        if (codes < 0).any():
            row = int(np.argmax(codes < 0))
            count = int(np.count_nonzero(codes < 0))
            why = (
                "is not a label"
                if isinstance(source[row], str)
                else "is not text, and labels are text"
            )
            error = DomainError(
                f"{count:,} of {len(codes):,} values {'is' if count == 1 else 'are'} not "
                f"in {self}; "
                f"the first is row {row} (counting from 0): {format_value(source[row])} "
                f"{why}. Correct the rows or declare the label."
            )
            error.where = WrongRows(
                np.flatnonzero(codes < 0).tolist(),
                str(self),
                lambda _: "is not one of the labels",
                lambda _: False,
            )
            raise error
        return codes

    def clamped(self, values: object) -> Integers64:
        raise InputError(
            "Categories have no order, so there is no nearest label to clamp to; use "
            "validated(values)."
        )

    def labels_of(self, codes: object) -> list[str]:
        """Labels of the codes."""
        return [
            self.labels[code] for code in indices(codes, len(self.labels), f"the codes of {self}")
        ]

    def points(self, validated: Integers64 | Floats) -> Integers64 | Floats:
        return validated

    def extremes(self) -> Integers64:
        return self.all_values()

    @property
    def size(self) -> int | None:
        return len(self.labels)

    def all_values(self) -> Integers64:
        return np.arange(len(self.labels), dtype=np.int64)
