"""Tables of numbers in queries: one row for each point of a space."""

from __future__ import annotations

from typing import Annotated

import numpy as np
from pydantic import PlainSerializer, PlainValidator

from metricshuffle.errors import InputError, argument
from metricshuffle.models import format_value
from metricshuffle.numerics.types import Floats

LARGEST_NUMBER = 1e290


def _checked_table(values: object) -> Floats:
    try:
        table = np.array(values, dtype=np.float64)
    except (TypeError, ValueError):
        raise ValueError(
            f"must be a table of numbers, one row for each point, got {format_value(values)}"
        ) from None
    if table.ndim == 1:
        table = table[:, None]
    if table.ndim != 2 or not table.size:
        raise ValueError(
            f"must be a table of numbers, one row for each point, got shape {table.shape}"
        )
    if not np.all(np.abs(table) < LARGEST_NUMBER):
        row, column = (int(index) for index in np.argwhere(~(np.abs(table) < LARGEST_NUMBER))[0])
        raise ValueError(
            f"must contain numbers below 1e290, but row {row} (counting from 0), column "
            f"{column} is {table[row, column]}"
        )
    table.setflags(write=False)
    return table


def validate_table(name: str, values: object) -> Floats:
    """Return a read-only copy of a table; raise an InputError that names the argument otherwise."""
    try:
        return _checked_table(values)
    except ValueError as error:
        raise InputError(f"{argument(name)} {error}.") from None


Table = Annotated[
    np.ndarray, PlainValidator(_checked_table), PlainSerializer(lambda table: table.tolist())
]
