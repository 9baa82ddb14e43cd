"""Whole numbers given by a caller."""

from __future__ import annotations

import operator

from metricshuffle.errors import InputError


def whole_number(name: str, value: int, least: int | None = None) -> int:
    """value as an integer (at least `least`), or a sentence; a float is refused even if it has no fraction."""
    try:
        number = operator.index(value)
    except TypeError:
        raise InputError(f"{name} must be a whole number, got {value!r}.") from None
    if least is not None and number < least:
        raise InputError(f"{name} must be a whole number >= {least}, got {number}.")
    return number
