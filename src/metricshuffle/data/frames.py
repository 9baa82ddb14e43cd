"""Columns of frames and tables in memory: pandas, Polars, Arrow, DuckDB, dictionaries."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from metricshuffle.data import source as tables
from metricshuffle.data.arrow import ArrowTable, arrow_column_names, open_arrow
from metricshuffle.data.cell_parsing import as_cells, object_array
from metricshuffle.data.source import (
    Chunk,
    Column,
    ColumnRequest,
    ColumnSource,
    check_distinct_columns,
    find_positions,
    list_names,
)
from metricshuffle.errors import InputError, require

if TYPE_CHECKING:
    from pyarrow import RecordBatch

ARROW = ("__arrow_c_stream__", "__arrow_c_array__")
# Number of batches and files of a dataset that are read ahead.
BATCHES_AHEAD = 4
FILES_AHEAD = 1


@dataclass(eq=False)
class ColumnsTable(ColumnSource):
    """Columns in memory."""

    arrays: tuple[Column, ...]

    def chunks(self) -> Iterator[Chunk]:
        rows = len(self.arrays[0])
        if rows == 0:
            raise InputError(f"{self.title} has no rows; there are no values to report.")
        for start in range(0, rows, tables.CHUNK_ROWS):
            stop = min(start + tables.CHUNK_ROWS, rows)
            columns = tuple(column[start:stop] for column in self.arrays)
            yield Chunk(columns, columns, np.arange(start, stop))


def is_table(values: object) -> bool:
    """Return whether values are a frame or table with named columns, not a single column."""
    if isinstance(values, Mapping) or _is_pandas(values):
        return True
    if is_lazy_frame(values):
        return True
    has_columns = any(hasattr(values, name) for name in ("columns", "column_names", "schema"))
    return has_arrow_interface(values) and (has_columns or not hasattr(values, "__array__"))


def has_arrow_interface(values: object) -> bool:
    """Return whether the values have Arrow's C interface."""
    return any(hasattr(values, name) for name in ARROW)


def _is_pandas(values: object) -> bool:
    return hasattr(values, "iloc") and getattr(values, "ndim", 1) == 2


def column_names(values: Any) -> str:
    """Column names of a frame or table, listed for a message."""
    if isinstance(values, Mapping):
        return list_names(list(values))
    if _is_pandas(values):
        return list_names(list(values.columns))
    return (
        list_names(lazy_column_names(values))
        if is_lazy_frame(values)
        else arrow_column_names(values)
    )


def frame_table(values: Any, columns: Sequence[ColumnRequest]) -> ColumnSource:
    """Open the requested columns of a frame or table; raises if one is missing."""
    check_distinct_columns(columns)
    title = type(values).__name__
    if isinstance(values, Mapping) or _is_pandas(values):
        names = list(values) if isinstance(values, Mapping) else list(values.columns)
        find_positions(f"the {title}", columns, names)
        arrays = tuple(_column(values[column.name], column) for column in columns)
        uneven = next(
            (index for index, column in enumerate(arrays) if len(column) != len(arrays[0])), None
        )
        if uneven is not None:
            raise InputError(
                f"column {columns[uneven].name!r} of the {title} has "
                f"{len(arrays[uneven]):,} rows, but {columns[0].name!r} has "
                f"{len(arrays[0]):,}; give columns of one length."
            )
        return ColumnsTable(f"the {title}", tuple(columns), arrays)
    if is_lazy_frame(values):
        find_positions(f"the {title}", columns, lazy_column_names(values))
        batches = lazy_batches(values, [column.name for column in columns])
        return ArrowTable(f"the {title}", tuple(columns), batches)
    return open_arrow(values, title, tuple(columns))


def _column(values: Any, column: ColumnRequest) -> Column:
    # numpy would turn [1, True] into numbers and [1, "a"] into text.
    if isinstance(values, list | tuple):
        return as_cells(object_array(values, len(values)))
    if isinstance(values, np.ma.MaskedArray):
        cells = np.array(values.data, dtype=object)
        cells[np.ma.getmaskarray(values)] = None
        return as_cells(cells)
    array = np.asarray(values)
    if array.ndim != 1:
        raise InputError(
            f"column {column.name!r} must have one value a row, got shape {array.shape}."
        )
    return as_cells(array)


# Lazy frames: only the requested columns are computed, once, in batches. Arrow's C interface, which
# they or their results have too, would compute them as a whole.


def is_lazy_frame(values: object) -> bool:
    """Return whether values are a Polars LazyFrame, a DuckDB relation or an Arrow dataset."""
    return _is_lazy(values) or _is_relation(values) or _is_dataset(values)


def _is_lazy(values: object) -> bool:
    return hasattr(values, "collect") and hasattr(values, "collect_schema")


def _is_relation(values: object) -> bool:
    return type(values).__module__.split(".")[0] in ("duckdb", "_duckdb") and hasattr(
        values, "project"
    )


def _is_dataset(values: object) -> bool:
    return hasattr(values, "scanner") and hasattr(values, "to_batches")


def lazy_column_names(values: Any) -> list[str]:
    """Column names; nothing is computed for them."""
    if _is_lazy(values):
        return list(values.collect_schema().names())
    return list(values.columns) if _is_relation(values) else list(values.schema.names)


def lazy_batches(values: Any, names: Sequence[str]) -> Iterator[RecordBatch]:
    """Iterate over Arrow batches of the requested columns."""
    pyarrow = require("pyarrow", "tables")
    if _is_relation(values):
        wanted = ", ".join('"' + name.replace('"', '""') + '"' for name in names)
        chosen = values.project(wanted)
        # Earlier versions of DuckDB use the second name.
        opened = (
            chosen.to_arrow_reader
            if hasattr(chosen, "to_arrow_reader")
            else chosen.fetch_record_batch
        )
        yield from opened(tables.CHUNK_ROWS)
    elif _is_dataset(values):
        ahead = {"batch_readahead": BATCHES_AHEAD, "fragment_readahead": FILES_AHEAD}
        yield from values.scanner(
            columns=list(names), batch_size=tables.CHUNK_ROWS, **ahead
        ).to_reader()
    else:
        chosen = values.select(list(names))
        if not hasattr(chosen, "collect_batches"):
            raise InputError(
                f"this Polars reads a {type(values).__name__} as a whole; update it (to "
                "1.34 or newer), or collect() it."
            )
        for frame in chosen.collect_batches(chunk_size=tables.CHUNK_ROWS, maintain_order=True):
            yield from pyarrow.RecordBatchReader.from_stream(frame)
