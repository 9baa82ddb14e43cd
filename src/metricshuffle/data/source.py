"""What every source of columns has in common: which columns are wanted, and chunks of rows that know where they stand."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import compress
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from metricshuffle.data.spelling import OPTIONS, Spelling
from metricshuffle.errors import InputError

CHUNK_ROWS = 100_000
# Columns that a sentence lists.
MAX_LISTED_NAMES = 12


@dataclass(frozen=True)
class ColumnRequest:
    """A column somebody asked for, and the argument that named it."""

    name: str
    argument: str = "column"

    @property
    def is_text(self) -> bool:
        """Names of users are text, also if they look like numbers."""
        return self.argument == "user_column"


@dataclass(frozen=True)
class Chunk:
    """Some rows: `columns` as numbers where every cell is one, else as objects (None where a cell is empty)."""

    columns: tuple[NDArray[Any], ...]
    cells: tuple[Any, ...]
    """As they stand in the source, to be quoted."""
    places: NDArray[np.int64]
    """Where each row stands: its line in a CSV file, else its number."""

    def __len__(self) -> int:
        return len(self.places)

    def kept(self, rows: NDArray[np.bool_]) -> Chunk:
        """Only the rows that are marked."""
        cells = tuple(list(compress(column, rows)) if isinstance(column, list) else column[rows] for column in self.cells)
        return Chunk(tuple(column[rows] for column in self.columns), cells, self.places[rows])


class Table(Protocol):
    """A source of named columns, which is read once."""

    @property
    def title(self) -> str:
        """What it is called in a sentence."""
        ...

    @property
    def names(self) -> tuple[str, ...]: ...

    @property
    def remarks(self) -> list[str]:
        """What a reader should know about how it was read, in sentences."""
        ...

    def chunks(self) -> Iterator[Chunk]: ...

    def place(self, place: int) -> str:
        """Where a row stands, in words."""
        ...


def column_requests(names: Iterable[str], argument: str = "column") -> tuple[ColumnRequest, ...]:
    return tuple(ColumnRequest(name, argument) for name in names)


def check_distinct_columns(columns: Sequence[ColumnRequest], spelling: Spelling = OPTIONS) -> None:
    """Raise if a column is asked for twice."""
    names = [column.name for column in columns]
    twice = next((column for column in columns if names.count(column.name) > 1), None)
    if twice is not None:
        raise InputError(f"{spelling(twice.argument, twice.name)} is given twice; name two different columns.")


def find_positions(
    title: str, columns: Sequence[ColumnRequest], known: Sequence[str], spelling: Spelling = OPTIONS, hint: str = ""
) -> list[int]:
    """Where the wanted columns are among those that a source has; a sentence that lists these if one is not, or is there twice."""
    for column in columns:
        if column.name not in known:
            raise InputError(
                f"{title} has no column {column.name!r} ({spelling(column.argument)}); its columns are: {list_names(known)}{hint}."
            )
        if list(known).count(column.name) > 1:
            raise InputError(
                f"{title} has more than one column {column.name!r} ({spelling(column.argument)}); rename them so that it is clear which "
                "one is meant."
            )
    return [list(known).index(column.name) for column in columns]


def list_names(names: Sequence[Any]) -> str:
    return ", ".join(map(str, names[:MAX_LISTED_NAMES])) + (", ..." if len(names) > MAX_LISTED_NAMES else "")
