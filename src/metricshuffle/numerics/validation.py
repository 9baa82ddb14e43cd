"""Validation of integer arguments."""

from __future__ import annotations

import operator

from metricshuffle.errors import InputError


def validate_integer(name: str, value: int, minimum: int | None = None) -> int:
    """Return `value` as an integer of at least `minimum`; floats are rejected, even whole ones."""
    try:
        number = operator.index(value)
    except TypeError:
        raise InputError(f"{name} must be a whole number, got {value!r}.") from None
    if minimum is not None and number < minimum:
        raise InputError(f"{name} must be a whole number >= {minimum}, got {number}.")
    return number
