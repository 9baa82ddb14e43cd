"""Records: rows of numbers, sets of labels, and keys with numbers, each with its distance."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import ClassVar, Literal, Self

import numpy as np
from pydantic import model_validator

from metricshuffle.errors import DomainError, InputError, WrongRows
from metricshuffle.models import FrozenModel, Positive, Whole, format_value
from metricshuffle.numerics.types import Floats, Integers64
from metricshuffle.spaces.array_input import as_floats, as_source, clip_finite, raise_domain_error
from metricshuffle.spaces.domains import (
    CLAMP_REMEDY,
    AnyDomain,
    Categories,
    Domain,
    Integers,
    Interval,
    not_whole,
)
from metricshuffle.spaces.metrics import Metric, representable

NOTHING = -1
"""Code of an empty place in a row, for people who hold less than the maximum."""


class _Records(Domain):
    """Base of domains whose values are what one person holds, in a row of fixed width."""

    def points(self, validated: Integers64 | Floats) -> Integers64 | Floats:
        return validated

    def extremes(self) -> Integers64 | Floats:
        raise InputError(f"the ends of {self} are not single values.")

    @property
    def size(self) -> int | None:
        return None

    def all_values(self) -> Integers64:
        raise InputError(f"{self} are too many to list.")


class NumberRows(_Records):
    """Rows with one number for each column, all in the same range."""

    points_are: ClassVar[str] = "rows of numbers"
    kind: Literal["number-rows"] = "number-rows"
    columns: tuple[str, ...]
    numbers: AnyDomain

    def __init__(self, columns: object, numbers: Domain, **fields: object) -> None:
        FrozenModel.__init__(self, columns=columns, numbers=numbers, **fields)

    @model_validator(mode="after")
    def _of_columns(self) -> Self:
        if not isinstance(self.numbers, Integers | Interval):
            raise InputError(
                "the numbers of a row are Integers or an Interval, got "
                f"{type(self.numbers).__name__}"
            )
        _check_names(self.columns)
        return self

    @property
    def unit(self) -> str:
        return str(getattr(self.numbers, "unit", ""))

    def __str__(self) -> str:
        many = "1 number" if len(self.columns) == 1 else f"{len(self.columns):,} numbers"
        return f"rows of {many}, each one of the {self.numbers}"

    def validated(self, values: object) -> Floats:
        return self._checked(values, clamp=False)

    def clamped(self, values: object) -> Floats:
        return self._checked(values, clamp=True)

    def _checked(self, values: object, *, clamp: bool) -> Floats:
        width = len(self.columns)
        try:
            source = as_source(values, width)
        except InputError:
            raise InputError(
                f"values must be rows of {width} number{'s' * (width != 1)}, one for each of "
                f"{', '.join(self.columns[:5])}{', ...' * (width > 5)}, as lists of one length or "
                f"an array of shape (n, {width})."
            ) from None
        low, high = getattr(self.numbers, "low"), getattr(self.numbers, "high")  # noqa: B009
        numbers = clip_finite(source, low, high) if clamp else as_floats(source)
        whole = isinstance(self.numbers, Integers)
        invalid = ~((numbers >= low) & (numbers <= high))
        if whole:
            invalid |= not_whole(numbers)

        def reason(row: int) -> str:
            column = int(np.argmax(invalid[row]))
            number = numbers[row, column]
            broken = whole and number != np.floor(number)
            side = "lies below it" if number < low else "lies above it"
            return f"{'is not a whole number' if broken else side}, in {self.columns[column]!r}"

        raise_domain_error(source, invalid, str(self), reason, CLAMP_REMEDY)
        return numbers


class LabelSets(_Records):
    """Sets of at most `most` of the labels. Validated sets are rows of codes, filled up with -1."""

    points_are: ClassVar[str] = "sets of labels"
    kind: Literal["label-sets"] = "label-sets"
    labels: Categories
    most: Whole

    def __init__(self, labels: Categories, most: int, **fields: object) -> None:
        FrozenModel.__init__(self, labels=labels, most=most, **fields)

    unit: ClassVar[str] = "labels"

    def __str__(self) -> str:
        return f"sets of at most {self.most:,} of {self.labels}"

    def clamped(self, values: object) -> Integers64:
        raise InputError(
            "labels have no order, so there is no nearest set to clamp to; correct such rows."
        )

    def validated(self, values: object) -> Integers64:
        sets = [_members(row, index) for index, row in enumerate(_people(values, "sets of labels"))]
        code_of = {label: code for code, label in enumerate(self.labels.labels)}
        rows = np.full((len(sets), self.most), NOTHING, dtype=np.int64)
        reasons: dict[int, str] = {}
        for index, labels in enumerate(sets):
            unknown = next((label for label in labels if code_of.get(label) is None), None)
            codes = sorted({code_of[label] for label in labels if label in code_of})
            if unknown is not None:
                reasons[index] = f"has {format_value(unknown)}, which is not one of the labels"
            elif len(codes) > self.most:
                reasons[index] = f"holds {len(codes):,} labels, more than {self.most:,}"
            else:
                rows[index, : len(codes)] = codes
        _raise_rows(reasons, len(sets), str(self), sets)
        return rows


class KeyedNumbers(_Records):
    """At most `most` keys, each with a number. Validated ones are rows of (code of key, number).

    Rows are filled up with (-1, 0).
    """

    points_are: ClassVar[str] = "keys with numbers"
    kind: Literal["keyed-numbers"] = "keyed-numbers"
    keys: Categories
    numbers: AnyDomain
    most: Whole

    def __init__(self, keys: Categories, numbers: Domain, most: int, **fields: object) -> None:
        FrozenModel.__init__(self, keys=keys, numbers=numbers, most=most, **fields)

    @property
    def unit(self) -> str:
        return str(getattr(self.numbers, "unit", ""))

    def __str__(self) -> str:
        return f"at most {self.most:,} of {self.keys}, each with one of the {self.numbers}"

    def validated(self, values: object) -> Floats:
        return self._checked(values, clamp=False)

    def clamped(self, values: object) -> Floats:
        """Like `validated`, but move numbers to the nearest end; keys are never moved."""
        return self._checked(values, clamp=True)

    def _checked(self, values: object, *, clamp: bool) -> Floats:
        people = [_pairs(row, index) for index, row in enumerate(_people(values, "keys"))]
        code_of = {key: code for code, key in enumerate(self.keys.labels)}
        sizes = [len(pairs) for pairs in people]
        owners = np.repeat(np.arange(len(people)), sizes)
        numbers, reasons, movable = self._numbers(people, owners, clamp=clamp)
        for index, pairs in enumerate(people):
            reason = self._wrong_keys([key for key, _ in pairs], code_of)
            if reason:
                reasons[index] = reason
                movable.discard(index)
        _raise_rows(reasons, len(people), str(self), people, movable)
        rows = np.zeros((len(people), self.most, 2))
        rows[:, :, 0] = NOTHING
        codes = np.array(
            [code_of[str(key)] for pairs in people for key, _ in pairs], dtype=np.int64
        )
        order = np.lexsort((codes, owners))
        places = np.arange(len(codes)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        rows[owners, places, 0] = codes[order]
        rows[owners, places, 1] = numbers[order]
        return rows

    def _wrong_keys(self, keys: list[object], code_of: dict[str, int]) -> str:
        """Reason why these keys are not a record; empty if they are one."""
        unknown = [key for key in keys if not isinstance(key, str) or key not in code_of]
        if unknown:
            return f"has {format_value(unknown[0])}, which is not one of the keys"
        if len(set(keys)) < len(keys):
            twice = next(key for key in keys if keys.count(key) > 1)
            return f"has {format_value(twice)} more than once"
        return f"holds {len(keys):,} keys, more than {self.most:,}" if len(keys) > self.most else ""

    def _numbers(
        self, people: list[list[tuple[object, object]]], owners: Integers64, *, clamp: bool
    ) -> tuple[Floats, dict[int, str], set[int]]:
        """All numbers, the reason for each person with a wrong number, and who can be clamped."""
        numbers = [number for pairs in people for _, number in pairs]
        try:
            check = self.numbers.clamped if clamp else self.numbers.validated
            return np.asarray(check(numbers), dtype=np.float64), {}, set()
        except DomainError as error:
            where = error.where
            if where is None:
                raise
            rows = {int(owners[row]): row for row in reversed(where.rows)}
            fixed = {int(owners[row]) for row in where.rows if not where.can_clamp(row)}
            reasons = {who: f"has a number that {where.reason(row)}" for who, row in rows.items()}
            return np.zeros(0), reasons, set(rows) - fixed


def _check_names(columns: tuple[str, ...]) -> None:
    """Raise unless all columns have different names."""
    try:
        Categories(columns)
    except InputError:
        raise InputError(
            "the columns must have at least one name, all different and none empty, got "
            f"{format_value(columns)}",
            field="column",
        ) from None


def _people(values: object, what: str) -> list[object]:
    """What each person holds, one after the other."""
    if isinstance(values, str | bytes | Mapping) or not isinstance(values, Iterable):
        raise InputError(
            f"values must be a list with the {what} of each person, got {type(values).__name__}."
        )
    return list(values)


def _members(record: object, row: int) -> list[str]:
    if isinstance(record, str | bytes | Mapping) or not isinstance(record, Iterable):
        raise InputError(
            f"row {row} (counting from 0) must be a list of labels, such as ['a', 'b'] or [], got "
            f"{format_value(record)}."
        )
    members = [member.item() if isinstance(member, np.generic) else member for member in record]
    others = [member for member in members if not isinstance(member, str)]
    if others:
        raise InputError(
            f"row {row} (counting from 0) must be a list of labels, which are text, and has "
            f"{format_value(others[0])}."
        )
    return members


def _pairs(record: object, row: int) -> list[tuple[object, object]]:
    sentence = (
        f"row {row} (counting from 0) must be a dictionary such as {{'a': 3}}, or a list of pairs "
        f"(key, number), got {format_value(record)}."
    )
    if isinstance(record, str | bytes) or not isinstance(record, Iterable):
        raise InputError(sentence)
    pairs = list(record.items()) if isinstance(record, Mapping) else list(record)
    if not all(isinstance(pair, tuple | list | np.ndarray) and len(pair) == 2 for pair in pairs):
        raise InputError(sentence)
    return [(key.item() if isinstance(key, np.generic) else key, number) for key, number in pairs]


def _raise_rows(
    reasons: dict[int, str],
    total: int,
    inside: str,
    records: Sequence[Iterable[object]],
    movable: set[int] | None = None,
) -> None:
    """Raise a DomainError that names the first invalid row, if there are any."""
    if not reasons:
        return
    first = min(reasons)
    error = DomainError(
        f"{len(reasons):,} of {total:,} rows {'is' if len(reasons) == 1 else 'are'} not in "
        f"{inside}; the first is row {first} (counting from 0): "
        f"{format_value(tuple(records[first]))} {reasons[first]}. Correct such rows."
    )
    error.where = WrongRows(
        sorted(reasons), inside, lambda row: reasons[row], lambda row: row in (movable or ())
    )
    raise error


class RowDistance(Metric):
    """Sum over the columns of the differences, `step` for each step."""

    kind: Literal["rows"] = "rows"
    step: Positive = 1.0

    def __init__(self, step: float = 1.0, **fields: object) -> None:
        FrozenModel.__init__(self, step=step, **fields)

    @property
    def measures(self) -> frozenset[str]:
        return frozenset({NumberRows.points_are})

    def unit_of(self, unit: str) -> str:
        return unit

    def pairwise(self, points_a: object, points_b: object) -> Floats:
        first, second = (np.asarray(rows, dtype=np.float64) for rows in (points_a, points_b))
        columns = zip(first.T, second.T, strict=True)
        apart = sum(np.abs(np.subtract.outer(left, right)) for left, right in columns)
        return representable(np.asarray(apart * self.step, dtype=np.float64))


class SetDistance(Metric):
    """Number of labels that are in one set and not in the other."""

    kind: Literal["sets"] = "sets"

    @property
    def measures(self) -> frozenset[str]:
        return frozenset({LabelSets.points_are})

    def unit_of(self, unit: str) -> str:
        return unit

    def pairwise(self, points_a: object, points_b: object) -> Floats:
        first, second = (np.asarray(rows, dtype=np.int64) for rows in (points_a, points_b))
        kinds = int(max(first.max(initial=0), second.max(initial=0))) + 1
        left, right = (_presence(rows, kinds) for rows in (first, second))
        return np.asarray(
            left.sum(axis=1)[:, None] + right.sum(axis=1)[None, :] - 2.0 * left @ right.T
        )


class KeyedDistance(Metric):
    """Sum over keys: `step` for each step between two numbers, or `absence` if one is missing.

    It is a metric if `absence` is at least half of the largest difference.
    """

    kind: Literal["keys"] = "keys"
    absence: Positive
    step: Positive = 1.0

    def __init__(self, absence: float, step: float = 1.0, **fields: object) -> None:
        FrozenModel.__init__(self, absence=absence, step=step, **fields)

    @property
    def measures(self) -> frozenset[str]:
        return frozenset({KeyedNumbers.points_are})

    def unit_of(self, unit: str) -> str:
        return unit

    def pairwise(self, points_a: object, points_b: object) -> Floats:
        first, second = (np.asarray(rows, dtype=np.float64) for rows in (points_a, points_b))
        apart = np.zeros((len(first), len(second)))
        for key in np.unique(np.concatenate([first[:, :, 0].ravel(), second[:, :, 0].ravel()])):
            if key == NOTHING:
                continue
            here, there = (rows[:, :, 0] == key for rows in (first, second))
            left, right = (
                (rows[:, :, 1] * present).sum(axis=1)
                for rows, present in ((first, here), (second, there))
            )
            a, b = here.any(axis=1), there.any(axis=1)
            both = np.logical_and.outer(a, b)
            apart += np.where(both, self.step * np.abs(np.subtract.outer(left, right)), 0.0)
            apart += self.absence * np.not_equal.outer(a, b)
        return representable(apart)


def _presence(codes: Integers64, kinds: int) -> Floats:
    """Table of who holds what; the last column, of empty places, is left out."""
    table = np.zeros((len(codes), kinds + 1))
    table[np.arange(len(codes))[:, None], codes] = 1.0
    return table[:, :kinds]
