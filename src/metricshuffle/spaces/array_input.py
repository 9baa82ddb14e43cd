"""Conversion of lists, arrays and columns with missing values to numbers, with row-wise errors."""

from __future__ import annotations

import datetime
import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from metricshuffle.errors import DomainError, InputError, WrongRows
from metricshuffle.models import LARGEST_WHOLE, format_value
from metricshuffle.numerics.types import Floats, Integers64, Mask

Source = NDArray[Any]


def as_source(values: object, width: int | None) -> Source:
    """Return the values as an array of shape (n,) or (n, width), with every element unchanged."""
    if isinstance(values, np.ma.MaskedArray):
        holes = np.ma.getmaskarray(values)
        values = np.array(values.data, dtype=object)
        values[holes] = None
    if isinstance(values, list | tuple):
        # dtype=object first: numpy would turn [1, True] into numbers and [1, "a"] into text.
        try:
            values = np.array(values, dtype=object)
        except ValueError:
            raise InputError(
                "points must all have the same number of coordinates, got rows of "
                "different lengths."
            ) from None
    source = np.asarray(values)
    if width is None:
        if source.ndim != 1:
            raise InputError(
                f"values must be a list or a one-dimensional array, got {_shape(source)}; "
                "put a single value into a list."
            )
    elif source.ndim == 1 and source.size == 0:
        source = source.reshape(0, width)
    elif source.ndim != 2 or source.shape[1] != width:
        raise InputError(
            f"points must be a list of {width} numbers each or an array of shape (n, "
            f"{width}), got {_shape(source)}."
        )
    return source


def width_of(values: object) -> int | None:
    """Number of coordinates of the first point; None if the points are single values."""
    first = next(iter(values), None) if np.iterable(values) else None
    return None if first is None or np.ndim(first) == 0 else len(first)


def _shape(source: Source) -> str:
    return (
        f"a single {type(source.item()).__name__}" if source.ndim == 0 else f"shape {source.shape}"
    )


def _is_number(kind: type) -> bool:
    return issubclass(kind, int | float | np.integer | np.floating) and not issubclass(kind, bool)


def _number(value: Any) -> float:
    if not _is_number(type(value)):
        return math.nan
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf


def as_floats(source: Source) -> Floats:
    """Every element as a double, NaN where it is not a number.

    Rounding to a double is monotone, so that an integer beyond 2^53 never lands inside bounds that
    are themselves below 2^53.
    """
    if source.dtype.kind in "iuf":
        with np.errstate(over="ignore"):
            return source.astype(np.float64)
    if source.dtype.kind != "O":
        return np.full(source.shape, math.nan)
    flat = source.ravel()
    try:
        if all(_is_number(kind) for kind in set(map(type, flat))):
            return source.astype(np.float64)
    except OverflowError:
        pass
    return np.array([_number(value) for value in flat], dtype=np.float64).reshape(source.shape)


def not_a_number(value: Any) -> str | None:
    """Reason why a value is not a finite number, for a message; None if it is one."""
    if isinstance(value, np.ndarray | list | tuple):
        return next((reason for part in value if (reason := not_a_number(part))), None)
    if value is None or type(value).__name__ in (
        "NAType",
        "NaTType",
    ):  # of pandas, which need not be installed
        return "is missing"
    if isinstance(value, bool | np.bool_):
        return "is a truth value and not a number"
    if isinstance(value, str | bytes):
        return "is text and not a number"
    if isinstance(
        value, datetime.date | datetime.time | datetime.timedelta | np.datetime64 | np.timedelta64
    ):
        return "is a date or a time and not a number"
    if not _is_number(type(value)):
        return f"is a {type(value).__name__} and not a number"
    if value != value:
        return "is not a number (NaN)"
    return "is infinite" if not isinstance(value, int) and np.isinf(value) else None


def raise_domain_error(
    source: Source, invalid: Mask, inside: str, reason: Callable[[int], str], remedy: str
) -> None:
    """Raise a DomainError that counts the invalid rows and names the first, if there are any.

    `reason` describes what is wrong with a row of finite numbers, `remedy` what to do about it.
    """
    rows: Mask = invalid if invalid.ndim == 1 else np.asarray(invalid.any(axis=1))
    count = int(np.count_nonzero(rows))
    if count == 0:
        return
    row = int(np.argmax(rows))
    no_number = not_a_number(source[row])
    text = no_number or reason(row)
    error = DomainError(
        f"{count:,} of {len(rows):,} values {'is' if count == 1 else 'are'} not in "
        f"{inside}; the first is row {row} (counting from 0): "
        f"{format_value(source[row])} {text}. "
        f"{'Correct or leave out such rows.' if no_number else remedy}"
    )

    def why(wrong_row: int) -> str:
        return not_a_number(source[wrong_row]) or reason(wrong_row)

    def can_clamp(wrong_row: int) -> bool:
        return not_a_number(source[wrong_row]) is None and "whole number" not in reason(wrong_row)

    error.where = WrongRows(np.flatnonzero(rows).tolist(), inside, why, can_clamp)
    raise error


def joined_errors(
    errors: list[DomainError], inside: str, *, first_clamps: bool = True
) -> DomainError:
    """One error for several columns of the same rows, which names every row once.

    Unless `first_clamps`, rows that are wrong in the first column cannot be clamped.
    """
    if len(errors) == 1 or any(error.where is None for error in errors):
        return errors[0]
    reasons: dict[int, WrongRows] = {}
    for error in reversed(errors):
        if error.where is not None:
            reasons |= dict.fromkeys(error.where.rows, error.where)
    fixed = set(errors[0].where.rows if errors[0].where and not first_clamps else ())
    joined = DomainError(" ".join(str(error) for error in errors))
    joined.where = WrongRows(
        sorted(reasons),
        inside,
        lambda row: reasons[row].reason(row),
        lambda row: row not in fixed and reasons[row].can_clamp(row),
    )
    return joined


def clip_finite(source: Source, low: Any, high: Any) -> Floats:
    """Move finite numbers to the nearest end.

    Infinities are returned unchanged, to be rejected later: they are mistakes, not large values.
    """
    numbers = as_floats(source)
    whole = source.dtype.kind == "O" and np.frompyfunc(lambda value: isinstance(value, int), 1, 1)(
        source
    ).astype(bool)
    finite = np.isfinite(numbers) | (
        whole & np.isinf(numbers)
    )  # an integer too large for a double is finite
    return np.where(finite, np.clip(numbers, low, high), numbers)


def finite_points(values: object, width: int | None) -> Floats:
    """Points for a metric: finite doubles of shape (n,) or (n, width); DomainError otherwise."""
    source = as_source(values, width)
    numbers = as_floats(source)
    invalid = ~np.isfinite(numbers)
    if source.dtype.kind != "f":
        whole = source.dtype.kind in "iu" or np.frompyfunc(
            lambda value: isinstance(value, int | np.integer), 1, 1
        )(source).astype(bool)
        invalid |= whole & (np.abs(numbers) > LARGEST_WHOLE)
    raise_domain_error(
        source,
        invalid,
        "the finite numbers a metric measures",
        lambda _: "is an integer beyond 2^53 - 1, where doubles skip integers",
        "Correct the rows or rescale them first.",
    )
    return numbers


def indices(values: object, size: int, inside: str) -> Integers64:
    """Whole numbers from 0 to size - 1."""
    source = as_source(values, None)
    numbers = as_floats(source)
    raise_domain_error(
        source,
        ~((numbers >= 0) & (numbers < size) & (numbers == np.floor(numbers))),
        inside,
        lambda _: f"is not a whole number from 0 to {size - 1:,}",
        "Correct such rows.",
    )
    return numbers.astype(np.int64)
