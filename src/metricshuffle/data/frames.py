"""Frames and tables: pandas, Polars, Arrow, DuckDB, whatever speaks Arrow's C interface, and dictionaries of columns."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from metricshuffle.data import source as tables
from metricshuffle.data.arrow import ArrowTable, arrow_column_names, open_arrow
from metricshuffle.data.cell_parsing import as_cells, object_array
from metricshuffle.data.lazy_frames import is_lazy_frame, lazy_batches, lazy_column_names
from metricshuffle.data.source import Chunk, ColumnRequest, Table, check_distinct_columns, find_positions, list_names
from metricshuffle.data.spelling import ARGUMENTS
from metricshuffle.errors import InputError

ARROW = ("__arrow_c_stream__", "__arrow_c_array__")


@dataclass(eq=False)
class ColumnsTable:
    """Columns that lie side by side in memory."""

    title: str
    columns: tuple[ColumnRequest, ...]
    held: tuple[NDArray[Any], ...]
    remarks: list[str] = field(default_factory=list)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(column.name for column in self.columns)

    def place(self, place: int) -> str:
        return f"row {place}"

    def chunks(self) -> Iterator[Chunk]:
        rows = len(self.held[0])
        if rows == 0:
            raise InputError(f"{self.title} has no rows; there are no values to report.")
        for start in range(0, rows, tables.CHUNK_ROWS):
            stop = min(start + tables.CHUNK_ROWS, rows)
            columns = tuple(column[start:stop] for column in self.held)
            yield Chunk(columns, columns, np.arange(start, stop))


def is_table(values: Any) -> bool:
    """Whether values are a frame or a table, which has named columns; a bare column is none."""
    if isinstance(values, Mapping) or _is_pandas(values):
        return True
    if is_lazy_frame(values):
        return True
    has_columns = any(hasattr(values, name) for name in ("columns", "column_names", "schema"))
    return has_arrow_interface(values) and (has_columns or not hasattr(values, "__array__"))


def has_arrow_interface(values: Any) -> bool:
    """Whether Arrow can take the values over."""
    return any(hasattr(values, name) for name in ARROW)


def _is_pandas(values: Any) -> bool:
    return hasattr(values, "iloc") and getattr(values, "ndim", 1) == 2


def column_names(values: Any) -> str:
    """The columns of a frame or table, listed for a sentence."""
    if isinstance(values, Mapping):
        return list_names(list(values))
    if _is_pandas(values):
        return list_names(list(values.columns))
    return list_names(lazy_column_names(values)) if is_lazy_frame(values) else arrow_column_names(values)


def frame_table(values: Any, columns: Sequence[ColumnRequest]) -> Table:
    """The wanted columns of a frame or table; a sentence that lists those it has if one is missing."""
    check_distinct_columns(columns, ARGUMENTS)
    title = type(values).__name__
    if isinstance(values, Mapping) or _is_pandas(values):
        names = list(values) if isinstance(values, Mapping) else list(values.columns)
        find_positions(f"the {title}", columns, names, ARGUMENTS)
        held = tuple(_column(values[column.name], column) for column in columns)
        uneven = next((index for index, column in enumerate(held) if len(column) != len(held[0])), None)
        if uneven is not None:
            raise InputError(
                f"column {columns[uneven].name!r} of the {title} has {len(held[uneven]):,} rows, but {columns[0].name!r} has "
                f"{len(held[0]):,}; give columns of one length."
            )
        return ColumnsTable(f"the {title}", tuple(columns), held)
    if is_lazy_frame(values):
        find_positions(f"the {title}", columns, lazy_column_names(values), ARGUMENTS)
        batches = lazy_batches(values, [column.name for column in columns])
        return ArrowTable(f"the {title}", tuple(columns), batches, from_zero=True)
    return open_arrow(values, title, tuple(columns), ARGUMENTS)


def _column(values: Any, column: ColumnRequest) -> NDArray[Any]:
    if isinstance(values, list | tuple):  # numpy would turn [1, True] into numbers and [1, "a"] into text
        return as_cells(object_array(values, len(values)))
    if isinstance(values, np.ma.MaskedArray):
        cells = np.array(values.data, dtype=object)
        cells[np.ma.getmaskarray(values)] = None
        return as_cells(cells)
    array = np.asarray(values)
    if array.ndim != 1:
        raise InputError(f"column {column.name!r} must have one value a row, got shape {array.shape}.")
    return as_cells(array)
