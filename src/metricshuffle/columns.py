"""Columns of a table, read a chunk at a time so that memory stays bounded."""

from __future__ import annotations

import csv
import gzip
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from operator import itemgetter
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from metricshuffle.errors import InputError, require

ROWS_AT_ONCE = 100_000
# Few enough that their lists of fields are gone before the garbage collector looks for them.
LINES_AT_ONCE = 2_000


@dataclass(frozen=True)
class Chunk:
    """Some rows: `columns` as numbers where every cell is one, else as objects (None where a cell is empty)."""

    first: int
    columns: tuple[NDArray[Any], ...]
    cells: tuple[Any, ...]
    """As they stand in the file, to be quoted."""

    def __len__(self) -> int:
        return len(self.columns[0])


class Table(Protocol):
    """A file with named columns."""

    @property
    def path(self) -> Path: ...

    @property
    def names(self) -> tuple[str, ...]: ...

    def chunks(self) -> Iterator[Chunk]: ...

    def place(self, row: int) -> str:
        """Where a row stands, for a sentence."""
        ...


def open_columns(path: Path, names: Sequence[str], delimiter: str = ",") -> Table:
    """The columns of that name; the kind of file is told by its ending."""
    if len(set(names)) < len(names):
        raise InputError(f"--column {names[0]} is given twice; name two different columns.")
    if not path.is_file():
        raise InputError(f"cannot read {path}: there is no such file.")
    if path.suffix == ".parquet":
        return ParquetTable(path, tuple(names))
    if len(delimiter) != 1:
        raise InputError(f"--delimiter must be a single character, got {delimiter!r}.")
    table = CsvTable(path, tuple(names), delimiter)
    with table.reading() as rows:
        table.positions(rows)  # a missing column is told before anything is written
    return table


@dataclass(frozen=True)
class CsvTable:
    """A .csv or .csv.gz file with a header line."""

    path: Path
    names: tuple[str, ...]
    delimiter: str = ","

    @contextmanager
    def reading(self) -> Iterator[Any]:
        opened: Any = gzip.open if self.path.suffix == ".gz" else open
        try:
            with opened(self.path, "rt", encoding="utf-8-sig", newline="") as stream:
                yield csv.reader(stream, delimiter=self.delimiter)
        except UnicodeDecodeError:
            raise InputError(f"cannot read {self.path}: it is not a text file in UTF-8; save it as UTF-8.") from None
        except csv.Error as wrong:
            raise InputError(f"cannot read {self.path}: it is not a CSV file ({wrong}).") from None
        except (EOFError, zlib.error, gzip.BadGzipFile):
            raise InputError(f"cannot read {self.path}: the compressed file is damaged or cut short.") from None

    def positions(self, rows: Any) -> tuple[list[int], int]:
        """Read the header: where the columns are, and how many there are in all."""
        header = next(rows, None)
        if not header:
            raise InputError(f"{self.path} is empty; it needs a header line that names its columns.")
        known = [name.strip() for name in header]
        for name in self.names:
            if name not in known:
                listed = ", ".join(known[:12]) + (", ..." if len(known) > 12 else "")
                other = next((mark for mark in ";\t|" if len(known) == 1 and mark in known[0]), None)
                hint = f"; is its delimiter {other!r}? Then pass --delimiter" if other else ""
                raise InputError(f"{self.path} has no column {name!r} (--column); its columns are: {listed}{hint}.")
            if known.count(name) > 1:
                raise InputError(
                    f"{self.path} has more than one column {name!r} (--column); rename them so that it is clear which one is meant."
                )
        return [known.index(name) for name in self.names], len(known)

    def chunks(self) -> Iterator[Chunk]:
        with self.reading() as rows:
            wanted, width = self.positions(rows)
            pick = [itemgetter(index) for index in wanted]
            first, cells = 0, _empty(len(wanted))
            while lines := list(islice(rows, LINES_AT_ONCE)):
                if set(map(len, lines)) != {width}:
                    lines = self._complete(lines, width, first + len(cells[0]))
                for column, at in zip(cells, pick, strict=True):
                    column.extend(map(at, lines))
                if len(cells[0]) >= ROWS_AT_ONCE:
                    yield Chunk(first, tuple(map(_numbers, cells)), cells)
                    first, cells = first + len(cells[0]), _empty(len(wanted))
            if cells[0]:
                yield Chunk(first, tuple(map(_numbers, cells)), cells)
            elif first == 0:
                raise InputError(f"{self.path} has a header but no rows; there are no values to report.")

    def _complete(self, lines: list[list[str]], width: int, first: int) -> list[list[str]]:
        """Lines that are not blank; each must have as many fields as the header."""
        filled = [line for line in lines if line]
        for index, line in enumerate(filled):
            if len(line) != width:
                where = self.place(first + index)
                raise InputError(f"{self.path} has {len(line)} fields on {where}, but its header names {width}; correct that line.")
        return filled

    def place(self, row: int) -> str:
        with self.reading() as rows:
            next(rows, None)
            before = rows.line_num
            for line in rows:
                if line:
                    if row == 0:
                        return f"line {before + 1}"
                    row -= 1
                before = rows.line_num
        return f"line {before}"


def _empty(columns: int) -> tuple[list[str], ...]:
    return tuple([] for _ in range(columns))


def _numbers(cells: list[str]) -> NDArray[Any]:
    """Cells as doubles; if one is no number, as objects with the text that it is."""
    # Python reads 1_000 as a number; in a table it is more likely a mistake.
    if "_" not in "".join(cells):
        try:
            return np.fromiter(map(float, cells), dtype=np.float64, count=len(cells))
        except ValueError:
            pass
    return np.array([_cell(text) for text in cells], dtype=object)


def _cell(text: str) -> float | str | None:
    if not text.strip():
        return None
    try:
        return text if "_" in text else float(text)
    except ValueError:
        return text


@dataclass(frozen=True)
class ParquetTable:
    """A .parquet file (extra `tables`)."""

    path: Path
    names: tuple[str, ...]

    def chunks(self) -> Iterator[Chunk]:
        parquet: Any = require("pyarrow.parquet", "tables")
        try:
            file = parquet.ParquetFile(self.path)
            known = file.schema_arrow.names
            for name in self.names:
                if name not in known:
                    raise InputError(f"{self.path} has no column {name!r} (--column); its columns are: {', '.join(known[:12])}.")
            first = 0
            for batch in file.iter_batches(ROWS_AT_ONCE, columns=list(self.names)):
                columns = tuple(_from_arrow(batch.column(name)) for name in self.names)
                if len(columns[0]):
                    yield Chunk(first, columns, columns)
                first += len(columns[0])
        except require("pyarrow", "tables").ArrowInvalid:
            raise InputError(f"cannot read {self.path}: it is not a Parquet file, or it is damaged.") from None
        if first == 0:
            raise InputError(f"{self.path} has no rows; there are no values to report.")

    def place(self, row: int) -> str:
        return f"row {row + 1}"


def _from_arrow(column: Any) -> NDArray[Any]:
    found: NDArray[Any] = np.asarray(column.to_numpy(zero_copy_only=False))
    if column.null_count or found.dtype.kind not in "iuf":
        found = np.empty(len(column), dtype=object)
        found[:] = column.to_pylist()
    return found
