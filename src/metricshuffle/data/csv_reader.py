"""Text with separated fields: whatever marks fields and decimals, read once from front to end."""

from __future__ import annotations

import csv
import gzip
import io
import re
import weakref
import zlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import chain, islice
from operator import itemgetter
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from metricshuffle.data import source as tables
from metricshuffle.data.cell_parsing import parse_numbers
from metricshuffle.data.source import Chunk, ColumnRequest, find_positions
from metricshuffle.errors import InputError

# Few enough that their lists of fields are gone before the garbage collector looks for them.
LINES_PER_BLOCK = 2_000
MARKS = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "vertical bars"}
DELIMITER_NAMES = {"tab": "\t", "\\t": "\t"}
# Spreadsheets say so in the first line.
DELIMITER_LINE = re.compile(r'"?sep=(.)"?\s*', re.IGNORECASE)
MAX_HEADER_LINES = 100
MAX_SHOWN_LINES = 5


@dataclass(frozen=True)
class CsvFormat:
    """How a text is to be read; the delimiter is told by the first line if nobody says it."""

    delimiter: str | None = None
    decimal: str = "."
    header: bool = True

    @classmethod
    def of(cls, delimiter: str | None, decimal: str, no_header: bool) -> CsvFormat:
        """The options of the command line, or a sentence."""
        mark = DELIMITER_NAMES.get(delimiter.casefold(), delimiter) if delimiter is not None else None
        if mark is not None and (len(mark) != 1 or mark in '"\r\n'):
            raise InputError(f"--delimiter must be a single character, or tab, got {delimiter!r}.")
        if decimal not in (".", ","):
            raise InputError(f"--decimal must be a point or a comma, got {decimal!r}.")
        return cls(mark, decimal, not no_header)


@dataclass(eq=False)
class CsvTable:
    """The rows of a text after its header."""

    title: str
    columns: tuple[ColumnRequest, ...]
    format: CsvFormat
    reader: Any
    rows: Iterator[list[str]]
    at: list[int]
    """Which fields are wanted."""
    width: int
    skipped: int
    """Lines before the header."""
    line: int
    """Lines before the first row."""
    remarks: list[str] = field(default_factory=list)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(column.name for column in self.columns)

    def place(self, place: int) -> str:
        return f"line {place}"

    def chunks(self) -> Iterator[Chunk]:
        with csv_errors(self.title, self.reader):
            pick = [itemgetter(index) for index in self.at]
            cells, places, some = _empty(len(pick)), [], False
            for lines, numbered in self._blocks():
                for column, at in zip(cells, pick, strict=True):
                    column.extend(map(at, lines))
                places.append(numbered)
                del lines  # gone before the garbage collector looks for them
                if len(cells[0]) >= tables.CHUNK_ROWS:
                    yield self._chunk(cells, places)
                    cells, places, some = _empty(len(pick)), [], True
            if cells[0]:
                yield self._chunk(cells, places)
            elif not some:
                raise InputError(f"{self.title} has a header but no rows; there are no values to report.")

    def _chunk(self, cells: tuple[list[str], ...], places: list[NDArray[np.int64]]) -> Chunk:
        columns = tuple(
            np.array(texts, dtype=object) if column.is_text else parse_numbers(texts, self.format.decimal)
            for column, texts in zip(self.columns, cells, strict=True)
        )
        return Chunk(columns, cells, np.concatenate(places))

    def _blocks(self) -> Iterator[tuple[list[list[str]], NDArray[np.int64]]]:
        """Rows with as many fields as the header, and their lines."""
        before = self.line
        while lines := list(islice(self.rows, LINES_PER_BLOCK)):
            after = self.skipped + int(self.reader.line_num)
            numbered = np.arange(before + 1, before + 1 + len(lines))
            if after - before != len(lines):  # quoted cells with line ends in them
                numbered = before + 1 + np.cumsum([0, *map(_line_ends, lines[:-1])]) + np.arange(len(lines))
            before = after
            if set(map(len, lines)) != {self.width}:
                lines, numbered = self._check_complete(lines, numbered)
            if lines:
                yield lines, numbered
            del lines

    def _check_complete(self, lines: list[list[str]], numbered: NDArray[np.int64]) -> tuple[list[list[str]], NDArray[np.int64]]:
        """A blank line is a missing value where there is one column, and nothing where there are several."""
        if self.width == 1:
            lines = [line or [""] for line in lines]
        nonblank = [index for index, line in enumerate(lines) if line]
        lines, numbered = [lines[index] for index in nonblank], numbered[nonblank]
        if any(len(line) != self.width for line in lines):
            raise self._uneven_error(lines, numbered)
        return lines, numbered

    def _uneven_error(self, lines: list[list[str]], numbered: NDArray[np.int64]) -> InputError:
        """How many lines have more or fewer fields than the header, to the end, and which are the first."""
        uneven = [(int(place), len(line)) for place, line in zip(numbered, lines, strict=True) if len(line) != self.width]
        before = self.skipped + int(self.reader.line_num)
        for line in self.rows:
            if len(line) not in (0, self.width):
                uneven.append((before + 1, len(line)))
            before = self.skipped + int(self.reader.line_num)
        count = len(uneven)
        examples = "; ".join(f"line {place} has {fields}" for place, fields in uneven[:MAX_SHOWN_LINES])
        others = f"; and {count - MAX_SHOWN_LINES:,} more" if count > MAX_SHOWN_LINES else ""
        commas = self.reader.dialect.delimiter == "," and any(fields > self.width for _, fields in uneven)
        hint = "; if decimals have a comma, separate fields by semicolons and pass --decimal ," if commas else ""
        first = "its header names" if self.format.header else "its first line has"
        return InputError(
            f"{count:,} line{'s' * (count != 1)} of {self.title} {'has' if count == 1 else 'have'} more or fewer fields than the "
            f"{self.width} that {first}: {examples}{others}. Correct {'that line' if count == 1 else 'these lines'}{hint}."
        )


def _empty(columns: int) -> tuple[list[str], ...]:
    return tuple([] for _ in range(columns))


def _line_ends(fields: Iterable[str]) -> int:
    return sum(len(re.findall(r"\r\n|\r|\n", text)) for text in fields)


def open_csv(stream: IO[bytes], head: bytes, title: str, columns: tuple[ColumnRequest, ...], form: CsvFormat) -> CsvTable:
    """The columns of a text, of which nothing but the header has been read."""
    encoding, stream = _detect_encoding(stream, head)
    text = io.TextIOWrapper(stream, encoding=encoding, newline="")
    with csv_errors(title):
        first, skipped = _first_lines(text)
        if not first:
            what = "it needs a header line that names its columns" if form.header else "there are no values to report"
            raise InputError(f"{title} is empty; {what}.")
        match = DELIMITER_LINE.fullmatch(first[0])
        if match is not None:
            more, blank = _first_lines(text)
            form, first, skipped = replace(form, delimiter=form.delimiter or match[1]), more, skipped + blank + 1
        delimiter, remarks = form.delimiter, []
        if delimiter is None:
            delimiter = detect_delimiter(first, [column.name for column in columns], form, title)
            if delimiter != ",":
                spelled = "tab" if delimiter == "\t" else f"'{delimiter}'"
                remarks.append(f"Fields of {title} are separated by {MARKS[delimiter]} (--delimiter {spelled}).")
        reader: Any = csv.reader(chain(first, text), delimiter=delimiter, strict=True)
        header = next(reader)
        names = [name.strip() for name in header] if form.header else [str(number + 1) for number in range(len(header))]
        if not form.header:
            remarks.append(f"Columns of {title} are named by their numbers, 1 to {len(header)}.")
        at = find_positions(title, columns, names, hint=_hint(header, form))
    rows, line = (reader, skipped + int(reader.line_num)) if form.header else (chain([header], reader), skipped)
    table = CsvTable(title, columns, replace(form, delimiter=delimiter), reader, rows, at, len(names), skipped, line, remarks)
    weakref.finalize(table, text.close)  # also when nobody reads it to the end
    return table


def _detect_encoding(stream: IO[bytes], head: bytes) -> tuple[str, IO[bytes]]:
    """The encoding that the first bytes tell; UTF-8 if they tell nothing."""
    if head.startswith((b"\xff\xfe", b"\xfe\xff")):
        return "utf-16", stream
    if head.startswith(b"\xef\xbb\xbf"):
        stream.read(3)
    return "utf-8", stream


def _first_lines(text: IO[str]) -> tuple[list[str], int]:
    """The lines of the first row, which has several if a quoted name holds a line end, and how many blank lines are before it."""
    blank, line = 0, text.readline()
    while line and not line.strip():
        blank, line = blank + 1, text.readline()
    lines = [line] if line else []
    while lines and "".join(lines).count('"') % 2 and len(lines) < MAX_HEADER_LINES and (line := text.readline()):
        lines.append(line)
    return lines, blank


def detect_delimiter(first: Sequence[str], names: Sequence[str], form: CsvFormat, title: str) -> str:
    """The mark that splits the first line into the wanted columns: a comma if it does, unless commas mark decimals and another does."""
    candidates = sorted(MARKS, key=lambda mark: mark == form.decimal)
    fields = {mark: _split(first, mark) for mark in candidates}
    marking = [mark for mark in candidates if len(fields[mark]) > 1]
    if form.header:
        for mark in candidates:
            if all(name in fields[mark] for name in names):
                return mark
    elif len(marking := [mark for mark in marking if mark != form.decimal]) > 1:
        marks_text = " and ".join(MARKS[mark] for mark in marking)
        raise InputError(f"the first line of {title} has {marks_text}; say which separate its fields with --delimiter.")
    return max(marking, key=lambda mark: len(fields[mark]), default=candidates[0])


def _split(first: Sequence[str], mark: str) -> list[str]:
    try:
        return [name.strip() for name in next(csv.reader(first, delimiter=mark), [])]
    except csv.Error:
        return []


def _hint(header: Sequence[str], form: CsvFormat) -> str:
    if not form.header:
        return ", because --no-header names columns by number"
    if header and not any(isinstance(cell, str | None) for cell in parse_numbers(list(header), form.decimal).tolist()):
        return "; if these are values and it has no header, pass --no-header, which names columns by number"
    return ""


@contextmanager
def csv_errors(title: str, reader: Any = None) -> Iterator[None]:
    """What a text can be wrong with, as a sentence that names the line."""
    try:
        yield
    except UnicodeDecodeError as error:
        # Lines that were complete are counted; the others are in what could not be decoded.
        before = (0 if reader is None else int(reader.line_num)) + bytes(error.object[: error.start]).count(b"\n")
        if error.encoding.startswith("utf-16"):
            raise InputError(f"cannot read {title}: it begins like UTF-16 text and is damaged or cut short; save it as UTF-8.") from None
        raise InputError(
            f"cannot read {title}: it is not in UTF-8, see line {before + 1} (perhaps it is in Latin-1 or Windows-1252); save it as UTF-8."
        ) from None
    except csv.Error as error:
        where = "" if reader is None else f" at line {int(reader.line_num)}"
        raise InputError(f"cannot read {title}: it is not a CSV file ({error}{where}); look for a missing quotation mark.") from None
    except (EOFError, zlib.error, gzip.BadGzipFile):
        raise InputError(f"cannot read {title}: the compressed file is damaged or cut short.") from None
