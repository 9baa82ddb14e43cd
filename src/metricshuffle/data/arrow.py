"""Columns that Arrow holds: Parquet files, and everything that speaks its C interface (extra `tables`)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from metricshuffle.data import source as tables
from metricshuffle.data.cell_parsing import as_cells, object_array
from metricshuffle.data.csv_reader import CsvFormat
from metricshuffle.data.source import Chunk, ColumnRequest, find_positions, list_names
from metricshuffle.data.spelling import OPTIONS, Spelling
from metricshuffle.errors import InputError, require


@dataclass(eq=False)
class ArrowTable:
    """Record batches of a file or of a table in memory."""

    title: str
    columns: tuple[ColumnRequest, ...]
    batches: Iterator[Any]
    from_zero: bool = False
    """Rows are counted from 0, as in Python, and not from 1."""
    remarks: list[str] = field(default_factory=list)
    before: int = 0
    """Rows that came before these, in other tables."""

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(column.name for column in self.columns)

    def place(self, place: int) -> str:
        return f"row {place}"

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


def open_parquet(source: Path | bytes, title: str, columns: tuple[ColumnRequest, ...], form: CsvFormat) -> ArrowTable:
    """The columns of a Parquet file, or of the bytes of one that came through a pipe."""
    if form != CsvFormat():
        raise InputError(f"{title} is a Parquet file, which has names and numbers; leave --delimiter, --decimal and --no-header out.")
    parquet: Any = require("pyarrow.parquet", "tables")
    pyarrow: Any = require("pyarrow", "tables")
    try:
        file = parquet.ParquetFile(pyarrow.BufferReader(source) if isinstance(source, bytes) else source)
    except pyarrow.ArrowInvalid:
        raise InputError(f"cannot read {title}: it is not a Parquet file, or it is damaged.") from None
    find_positions(title, columns, file.schema_arrow.names)
    names = [column.name for column in columns]
    return ArrowTable(title, columns, _batches(file, names))


def _batches(file: Any, names: list[str]) -> Iterator[Any]:
    with file:
        yield from file.iter_batches(tables.CHUNK_ROWS, columns=names)


def open_arrow(values: Any, title: str, columns: tuple[ColumnRequest, ...], spelling: Spelling = OPTIONS) -> ArrowTable:
    """The columns of anything with the Arrow C interface, a batch at a time."""
    pyarrow: Any = require("pyarrow", "tables")
    try:
        reader = arrow_reader(pyarrow, values)
    except (pyarrow.ArrowException, TypeError, ValueError):
        raise InputError(f"{spelling(columns[0].argument)} names a column of a table, but this {title} has none; leave it out.") from None
    find_positions(f"the {title}", columns, reader.schema.names, spelling)
    return ArrowTable(f"the {title}", columns, iter(reader), from_zero=True)


def arrow_reader(pyarrow: Any, values: Any) -> Any:
    """Record batches, with their schema."""
    if isinstance(values, pyarrow.RecordBatchReader):
        return values
    if isinstance(values, pyarrow.Table):
        return values.to_reader()
    if hasattr(values, "__arrow_c_stream__"):
        return pyarrow.RecordBatchReader.from_stream(values)
    batch = pyarrow.record_batch(values)
    return pyarrow.RecordBatchReader.from_batches(batch.schema, [batch])


def arrow_column_names(values: Any) -> str:
    """The columns of an Arrow table, listed for a sentence."""
    schema = values.schema if hasattr(values, "schema") else arrow_reader(require("pyarrow", "tables"), values).schema
    return list_names(list(schema if isinstance(schema, Mapping) else schema.names))  # that of Polars maps names to types


def from_arrow(column: Any) -> NDArray[Any]:
    """A column as numbers, or as objects: text for labels and for dates, None where it is null."""
    pyarrow: Any = require("pyarrow", "tables")
    kind = column.type
    if pyarrow.types.is_decimal(kind):
        column = column.cast(pyarrow.float64())
    elif pyarrow.types.is_temporal(kind) and not pyarrow.types.is_duration(kind):
        column = column.cast(pyarrow.string())
    if not column.null_count and (pyarrow.types.is_integer(column.type) or pyarrow.types.is_floating(column.type)):
        return np.asarray(column.to_numpy(zero_copy_only=False))
    return as_cells(object_array(column.to_pylist(), len(column)))
