"""Answers that are tables: one row per cell, accessible as columns, rows or a data frame."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from typing import Any, Literal, overload

import numpy as np

from metricshuffle.errors import InputError, MissingExtra, argument

Library = Literal["pandas", "polars", "pyarrow"]
MAKERS = {"pandas": "DataFrame", "polars": "DataFrame", "pyarrow": "table"}
"""Data frame libraries and the constructor of each; by default the first installed one is used."""


@dataclass(frozen=True, eq=False)
class Table(Sequence[dict[str, Any]]):
    """Named columns of equal length.

    `table["share"]` is a column, `table[0]` a row, `len(table)` the number of rows.
    """

    columns: Mapping[str, Any]

    def __len__(self) -> int:
        return len(next(iter(self.columns.values())))

    @overload
    def __getitem__(self, index: str) -> Any: ...
    @overload
    def __getitem__(self, index: int) -> dict[str, Any]: ...
    @overload
    def __getitem__(self, index: slice) -> list[dict[str, Any]]: ...
    def __getitem__(self, index: str | int | slice) -> Any:
        if isinstance(index, str):
            if index not in self.columns:
                raise InputError(
                    f"there is no column {index!r}",
                    field="column",
                    remedy=f"the columns are {', '.join(self.columns)}.",
                )
            return self.columns[index]
        if isinstance(index, slice):
            return [self[row] for row in range(*index.indices(len(self)))]
        if not -len(self) <= index < len(self):
            raise IndexError(f"row {index} of a table with {len(self)} rows")
        return {name: plain_value(column[index]) for name, column in self.columns.items()}

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return (self[row] for row in range(len(self)))

    def to_frame(self, library: Library | None = None) -> Any:
        """Convert to a pandas or Polars data frame or an Arrow table.

        Without `library`, the first of these that is installed is used.
        """
        return frame(
            {
                name: [plain_value(value) for value in column]
                for name, column in self.columns.items()
            },
            library,
        )

    def __repr__(self) -> str:
        return f"Table({len(self):,} rows of {', '.join(self.columns)})"


def frame(columns: Mapping[str, Sequence[Any]], library: Library | None = None) -> Any:
    """Build a data frame from columns, with this library or the first installed one."""
    if library is not None and library not in MAKERS:
        raise InputError(
            f"{argument('library')} must be one of {', '.join(MAKERS)}, got {library!r}."
        )
    for module in MAKERS if library is None else (library,):
        if find_spec(module) is not None:
            return getattr(import_module(module), MAKERS[module])(
                {name: list(column) for name, column in columns.items()}
            )
    needed = (
        "pandas, polars or pyarrow; install one" if library is None else f"{library}; install it"
    )
    with_what = "'metricshuffle[tables]'" if library in (None, "pyarrow") else library
    raise MissingExtra(f"A frame needs {needed} with: pip install {with_what}")


def plain_value(value: object) -> Any:
    """Convert numpy numbers to Python numbers, so that rows can be written as JSON."""
    return value.item() if hasattr(value, "item") else value


def plain_answer(answer: Any) -> Any:
    """Convert a table, an array or a tuple to JSON types."""
    if isinstance(answer, Table):
        return list(answer)
    if isinstance(answer, np.ndarray):
        return answer.tolist()
    return list(map(plain_answer, answer)) if isinstance(answer, tuple) else answer
