"""Base of all sources of columns: requested columns, and chunks of rows with their places."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import compress
from typing import Any

import numpy as np
from numpy.typing import NDArray

from metricshuffle.display import nearest_word
from metricshuffle.errors import InputError
from metricshuffle.errors import argument as argument_name

CHUNK_ROWS = 100_000
Column = NDArray[Any]
"""Cells of a column: numbers, or objects if any is not a number."""
Values = Column | list[Column]
"""Values as a query takes them: one a person, or a column of items for each user."""
Cells = list[str] | Column
"""Column as it is in the source: the texts of a file, or an array."""
# Maximum number of columns listed in a message.
MAX_LISTED_NAMES = 12


@dataclass(frozen=True)
class ColumnRequest:
    """Requested column, and the argument that named it."""

    name: str
    argument: str = "column"

    @property
    def is_text(self) -> bool:
        """Names of users are text, even if they look like numbers."""
        return self.argument == "user_column"


@dataclass(frozen=True)
class Chunk:
    """Rows of a source.

    A column is numbers if every cell is one, else objects (None for empty cells).
    """

    columns: tuple[Column, ...]
    cells: tuple[Cells, ...]
    """Cells as they are in the source, for quoting."""
    places: NDArray[np.int64]
    """Place of each row: its line in a CSV file, else its number."""

    def __len__(self) -> int:
        return len(self.places)

    def kept(self, rows: NDArray[np.bool_]) -> Chunk:
        """Chunk of the rows that are marked."""
        cells = tuple(
            list(compress(column, rows)) if isinstance(column, list) else column[rows]
            for column in self.cells
        )
        return Chunk(tuple(column[rows] for column in self.columns), cells, self.places[rows])


@dataclass(eq=False)
class ColumnSource(ABC):
    """Source of named columns, which is read once."""

    title: str
    """Name of the source in a message."""
    columns: tuple[ColumnRequest, ...]
    from_zero: bool = field(default=True, kw_only=True)
    """Whether rows are counted from 0, as in Python."""
    remarks: list[str] = field(default_factory=list, kw_only=True)
    """Sentences about how it was read."""

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(column.name for column in self.columns)

    def place(self, place: int) -> str:
        """Place of a row, in words."""
        return f"row {place}"

    @abstractmethod
    def chunks(self) -> Iterator[Chunk]:
        """Iterate over chunks of rows."""


def column_requests(names: Iterable[str], argument: str = "column") -> tuple[ColumnRequest, ...]:
    return tuple(ColumnRequest(name, argument) for name in names)


def check_distinct_columns(columns: Sequence[ColumnRequest]) -> None:
    """Raise if a column is requested twice."""
    names = [column.name for column in columns]
    twice = next((column for column in columns if names.count(column.name) > 1), None)
    if twice is not None:
        raise InputError(
            f"{argument_name(twice.argument, twice.name)} is given twice; name two "
            "different columns."
        )


def find_positions(
    title: str, columns: Sequence[ColumnRequest], known: Sequence[str], hint: str = ""
) -> list[int]:
    """Return the indices of the requested columns; raises if one is missing or ambiguous."""
    for column in columns:
        if column.name not in known:
            raise InputError(
                f"{title} has no column {column.name!r} "
                f"({argument_name(column.argument)}); its columns are: "
                f"{list_names(known)}{hint}.{nearest_word(column.name, known)}"
            )
        if list(known).count(column.name) > 1:
            raise InputError(
                f"{title} has more than one column {column.name!r} "
                f"({argument_name(column.argument)}); rename them "
                "so that it is clear which one is meant."
            )
    return [list(known).index(column.name) for column in columns]


def list_names(names: Sequence[object]) -> str:
    return ", ".join(map(str, names[:MAX_LISTED_NAMES])) + (
        ", ..." if len(names) > MAX_LISTED_NAMES else ""
    )
