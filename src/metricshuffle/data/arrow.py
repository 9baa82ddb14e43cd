"""Arrow columns: Parquet files, and objects with Arrow's C interface (extra `tables`)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np

from metricshuffle.data import source as tables
from metricshuffle.data.cell_parsing import as_cells, object_array
from metricshuffle.data.csv_reader import CsvFormat
from metricshuffle.data.source import (
    Chunk,
    Column,
    ColumnRequest,
    ColumnSource,
    find_positions,
    list_names,
)
from metricshuffle.errors import InputError, argument, require

if TYPE_CHECKING:
    from pyarrow import Array, RecordBatch, RecordBatchReader
    from pyarrow.parquet import ParquetFile


@dataclass(eq=False)
class ArrowTable(ColumnSource):
    """Record batches of a file or of a table in memory."""

    batches: Iterator[RecordBatch]
    before: int = 0
    """Number of rows before these, in other tables."""

    def chunks(self) -> Iterator[Chunk]:
        done = 0
        try:
            for batch in self.batches:
                for start in range(0, batch.num_rows, tables.CHUNK_ROWS):
                    part = batch.slice(start, tables.CHUNK_ROWS)
                    columns = tuple(from_arrow(part.column(name)) for name in self.names)
                    first = self.before + done + (0 if self.from_zero else 1)
                    yield Chunk(columns, columns, np.arange(first, first + part.num_rows))
                    done += part.num_rows
        except require("pyarrow", "tables").ArrowInvalid:
            raise InputError(f"cannot read {self.title}: it is damaged.") from None
        if done == 0:
            raise InputError(f"{self.title} has no rows; there are no values to report.")


def open_parquet(
    source: Path | bytes, title: str, columns: tuple[ColumnRequest, ...], form: CsvFormat
) -> ArrowTable:
    """Open columns of a Parquet file, or of its bytes if it came through a pipe."""
    if form != CsvFormat():
        unused = f"{argument('delimiter')}, {argument('decimal')} and {argument('no_header')}"
        raise InputError(
            f"{title} is a Parquet file, which has names and numbers; leave {unused} out."
        )
    parquet = require("pyarrow.parquet", "tables")
    pyarrow = require("pyarrow", "tables")
    try:
        file = parquet.ParquetFile(
            pyarrow.BufferReader(source) if isinstance(source, bytes) else source
        )
    except pyarrow.ArrowInvalid:
        raise InputError(
            f"cannot read {title}: it is not a Parquet file, or it is damaged."
        ) from None
    find_positions(title, columns, file.schema_arrow.names)
    names = [column.name for column in columns]
    return ArrowTable(title, columns, _batches(file, names), from_zero=False)


def _batches(file: ParquetFile, names: list[str]) -> Iterator[RecordBatch]:
    with file:
        yield from file.iter_batches(tables.CHUNK_ROWS, columns=names)


def open_arrow(values: Any, title: str, columns: tuple[ColumnRequest, ...]) -> ArrowTable:
    """Open columns of any object with the Arrow C interface, read in batches."""
    pyarrow = require("pyarrow", "tables")
    try:
        reader = arrow_reader(pyarrow, values)
    except (pyarrow.ArrowException, TypeError, ValueError):
        named = argument(columns[0].argument)
        raise InputError(
            f"{named} names a column of a table, but this {title} has none; leave it out."
        ) from None
    find_positions(f"the {title}", columns, reader.schema.names)
    return ArrowTable(f"the {title}", columns, iter(reader))


def arrow_reader(pyarrow: ModuleType, values: Any) -> RecordBatchReader:
    """Reader of record batches with their schema."""
    if isinstance(values, pyarrow.RecordBatchReader):
        return values
    if isinstance(values, pyarrow.Table):
        return values.to_reader()
    if hasattr(values, "__arrow_c_stream__"):
        return pyarrow.RecordBatchReader.from_stream(values)
    batch = pyarrow.record_batch(values)
    return pyarrow.RecordBatchReader.from_batches(batch.schema, [batch])


def arrow_column_names(values: Any) -> str:
    """Column names of an Arrow table, listed for a message."""
    schema = (
        values.schema
        if hasattr(values, "schema")
        else arrow_reader(require("pyarrow", "tables"), values).schema
    )
    # The schema of Polars maps names to types.
    return list_names(list(schema if isinstance(schema, Mapping) else schema.names))


def from_arrow(column: Array) -> Column:
    """Convert a column to numbers, or to objects: text for labels and dates, None for nulls."""
    pyarrow = require("pyarrow", "tables")
    kind = column.type
    if pyarrow.types.is_decimal(kind):
        column = column.cast(pyarrow.float64())
    elif pyarrow.types.is_temporal(kind) and not pyarrow.types.is_duration(kind):
        column = column.cast(pyarrow.string())
    if not column.null_count and (
        pyarrow.types.is_integer(column.type) or pyarrow.types.is_floating(column.type)
    ):
        return np.asarray(column.to_numpy(zero_copy_only=False))
    return as_cells(object_array(column.to_pylist(), len(column)))
