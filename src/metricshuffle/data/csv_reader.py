"""Reader of CSV text with any delimiter and decimal mark, in one pass."""

from __future__ import annotations

import csv
import gzip
import io
import re
import weakref
import zlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import chain, islice
from operator import itemgetter
from typing import IO, TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from metricshuffle.data import source as tables
from metricshuffle.data.cell_parsing import parse_numbers
from metricshuffle.data.source import Chunk, ColumnRequest, ColumnSource, find_positions
from metricshuffle.errors import InputError, argument

if TYPE_CHECKING:
    from _csv import Reader

# Few enough that their lists of fields are freed before the garbage collector scans them.
LINES_PER_BLOCK = 2_000
MARKS = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "vertical bars"}
DELIMITER_NAMES = {"tab": "\t", "\\t": "\t"}
# First line of some spreadsheets, which names the delimiter.
DELIMITER_LINE = re.compile(r'"?sep=(.)"?\s*', re.IGNORECASE)
MAX_HEADER_LINES = 100
MAX_SHOWN_LINES = 5


@dataclass(frozen=True)
class CsvFormat:
    """Format of a text; a delimiter of None is detected from the first line."""

    delimiter: str | None = None
    decimal: str = "."
    header: bool = True

    @classmethod
    def of(cls, delimiter: str | None, decimal: str, no_header: bool) -> CsvFormat:
        """Validate the options of the command line."""
        mark = (
            DELIMITER_NAMES.get(delimiter.casefold(), delimiter) if delimiter is not None else None
        )
        if mark is not None and (len(mark) != 1 or mark in '"\r\n'):
            raise InputError(
                f"{argument('delimiter')} must be a single character, or tab, got {delimiter!r}."
            )
        if decimal not in (".", ","):
            raise InputError(f"{argument('decimal')} must be a point or a comma, got {decimal!r}.")
        return cls(mark, decimal, not no_header)


@dataclass(eq=False)
class CsvTable(ColumnSource):
    """Rows of a text after its header."""

    format: CsvFormat
    reader: Reader
    rows: Iterator[list[str]]
    at: list[int]
    """Indices of the requested fields."""
    width: int
    skipped: int
    """Number of lines before the header."""
    line: int
    """Number of lines before the first row."""

    def place(self, place: int) -> str:
        return f"line {place}"

    def chunks(self) -> Iterator[Chunk]:
        with csv_errors(self.title, self.reader):
            pick = [itemgetter(index) for index in self.at]
            cells = _empty(len(pick))
            places = []
            some = False
            for lines, numbered in self._blocks():
                for column, at in zip(cells, pick, strict=True):
                    column.extend(map(at, lines))
                places.append(numbered)
                del lines  # freed before the garbage collector scans them
                if len(cells[0]) >= tables.CHUNK_ROWS:
                    yield self._chunk(cells, places)
                    cells = _empty(len(pick))
                    places = []
                    some = True
            if cells[0]:
                yield self._chunk(cells, places)
            elif not some:
                raise InputError(
                    f"{self.title} has a header but no rows; there are no values to report."
                )

    def _chunk(self, cells: tuple[list[str], ...], places: list[NDArray[np.int64]]) -> Chunk:
        columns = tuple(
            np.array(texts, dtype=object)
            if column.is_text
            else parse_numbers(texts, self.format.decimal)
            for column, texts in zip(self.columns, cells, strict=True)
        )
        return Chunk(columns, cells, np.concatenate(places))

    def _blocks(self) -> Iterator[tuple[list[list[str]], NDArray[np.int64]]]:
        """Iterate over blocks of rows with as many fields as the header, and their line numbers."""
        before = self.line
        while lines := list(islice(self.rows, LINES_PER_BLOCK)):
            after = self.skipped + int(self.reader.line_num)
            numbered = np.arange(before + 1, before + 1 + len(lines))
            if after - before != len(lines):  # some quoted cells contain line ends
                numbered = (
                    before
                    + 1
                    + np.cumsum([0, *map(_line_ends, lines[:-1])])
                    + np.arange(len(lines))
                )
            before = after
            if set(map(len, lines)) != {self.width}:
                lines, numbered = self._check_complete(lines, numbered)
            if lines:
                yield lines, numbered
            del lines

    def _check_complete(
        self, lines: list[list[str]], numbered: NDArray[np.int64]
    ) -> tuple[list[list[str]], NDArray[np.int64]]:
        """Handle blank lines: missing values if there is one column, otherwise skipped."""
        if self.width == 1:
            lines = [line or [""] for line in lines]
        nonblank = [index for index, line in enumerate(lines) if line]
        lines = [lines[index] for index in nonblank]
        numbered = numbered[nonblank]
        if any(len(line) != self.width for line in lines):
            raise self._uneven_error(lines, numbered)
        return lines, numbered

    def _uneven_error(self, lines: list[list[str]], numbered: NDArray[np.int64]) -> InputError:
        """Return an error with the number of lines in the file that have more or fewer fields."""
        uneven = [
            (int(place), len(line))
            for place, line in zip(numbered, lines, strict=True)
            if len(line) != self.width
        ]
        before = self.skipped + int(self.reader.line_num)
        for line in self.rows:
            if len(line) not in (0, self.width):
                uneven.append((before + 1, len(line)))
            before = self.skipped + int(self.reader.line_num)
        count = len(uneven)
        examples = "; ".join(
            f"line {place} has {fields}" for place, fields in uneven[:MAX_SHOWN_LINES]
        )
        others = f"; and {count - MAX_SHOWN_LINES:,} more" if count > MAX_SHOWN_LINES else ""
        commas = self.reader.dialect.delimiter == "," and any(
            fields > self.width for _, fields in uneven
        )
        comma = argument("decimal", ",")
        hint = (
            f"; if decimals have a comma, separate fields by semicolons and pass {comma}"
            if commas
            else ""
        )
        first = "its header names" if self.format.header else "its first line has"
        return InputError(
            f"{count:,} line{'s' * (count != 1)} of {self.title} "
            f"{'has' if count == 1 else 'have'} more or fewer fields than the "
            f"{self.width} that {first}: {examples}{others}. Correct "
            f"{'that line' if count == 1 else 'these lines'}{hint}."
        )


def _empty(columns: int) -> tuple[list[str], ...]:
    return tuple([] for _ in range(columns))


def _line_ends(fields: Iterable[str]) -> int:
    return sum(len(re.findall(r"\r\n|\r|\n", text)) for text in fields)


def open_csv(
    stream: IO[bytes], head: bytes, title: str, columns: tuple[ColumnRequest, ...], form: CsvFormat
) -> CsvTable:
    """Open columns of a text; only the header is read."""
    encoding, stream = _detect_encoding(stream, head)
    text = io.TextIOWrapper(stream, encoding=encoding, newline="")
    with csv_errors(title):
        first, skipped = _first_lines(text)
        if not first:
            what = (
                "it needs a header line that names its columns"
                if form.header
                else "there are no values to report"
            )
            raise InputError(f"{title} is empty; {what}.")
        match = DELIMITER_LINE.fullmatch(first[0])
        if match is not None:
            more, blank = _first_lines(text)
            form = replace(form, delimiter=form.delimiter or match[1])
            first = more
            skipped = skipped + blank + 1
        delimiter = form.delimiter
        remarks = []
        if delimiter is None:
            delimiter = detect_delimiter(first, [column.name for column in columns], form, title)
            if delimiter != ",":
                spelled = "tab" if delimiter == "\t" else f"'{delimiter}'"
                remarks.append(
                    f"Fields of {title} are separated by {MARKS[delimiter]} (--delimiter "
                    f"{spelled})."
                )
        reader = csv.reader(chain(first, text), delimiter=delimiter, strict=True)
        header = next(reader)
        names = (
            [name.strip() for name in header]
            if form.header
            else [str(number + 1) for number in range(len(header))]
        )
        if not form.header:
            remarks.append(f"Columns of {title} are named by their numbers, 1 to {len(header)}.")
        at = find_positions(title, columns, names, hint=_hint(header, form))
    rows, line = (
        (reader, skipped + int(reader.line_num))
        if form.header
        else (chain([header], reader), skipped)
    )
    read_as = replace(form, delimiter=delimiter)
    table = CsvTable(
        title,
        columns,
        read_as,
        reader,
        rows,
        at,
        len(names),
        skipped,
        line,
        from_zero=False,
        remarks=remarks,
    )
    weakref.finalize(table, text.close)  # even if it is not read to the end
    return table


def _detect_encoding(stream: IO[bytes], head: bytes) -> tuple[str, IO[bytes]]:
    """Encoding by the byte order mark; UTF-8 without one."""
    if head.startswith((b"\xff\xfe", b"\xfe\xff")):
        return "utf-16", stream
    if head.startswith(b"\xef\xbb\xbf"):
        stream.read(3)
    return "utf-8", stream


def _first_lines(text: IO[str]) -> tuple[list[str], int]:
    """Read the lines of the first row, and count the blank lines before it.

    The row has several lines if a quoted name contains a line end.
    """
    blank = 0
    line = text.readline()
    while line and not line.strip():
        blank = blank + 1
        line = text.readline()
    lines = [line] if line else []
    while (
        lines
        and "".join(lines).count('"') % 2
        and len(lines) < MAX_HEADER_LINES
        and (line := text.readline())
    ):
        lines.append(line)
    return lines, blank


def detect_delimiter(
    first: Sequence[str], names: Sequence[str], form: CsvFormat, title: str
) -> str:
    """Return the delimiter that splits the first line into the requested columns.

    A comma is preferred, unless commas mark decimals and another delimiter works.
    """
    candidates = sorted(MARKS, key=lambda mark: mark == form.decimal)
    fields = {mark: _split(first, mark) for mark in candidates}
    marking = [mark for mark in candidates if len(fields[mark]) > 1]
    if form.header:
        for mark in candidates:
            if all(name in fields[mark] for name in names):
                return mark
    elif len(marking := [mark for mark in marking if mark != form.decimal]) > 1:
        marks_text = " and ".join(MARKS[mark] for mark in marking)
        raise InputError(
            f"the first line of {title} has {marks_text}; say which separate its fields "
            f"with {argument('delimiter')}."
        )
    return max(marking, key=lambda mark: len(fields[mark]), default=candidates[0])


def _split(first: Sequence[str], mark: str) -> list[str]:
    try:
        return [name.strip() for name in next(csv.reader(first, delimiter=mark), [])]
    except csv.Error:
        return []


def _hint(header: Sequence[str], form: CsvFormat) -> str:
    if not form.header:
        return f", because {argument('no_header', True)} names columns by number"
    if header and not any(
        isinstance(cell, str | None) for cell in parse_numbers(list(header), form.decimal).tolist()
    ):
        no_header = argument("no_header", True)
        return (
            f"; if these are values and it has no header, pass {no_header}, which names "
            "columns by number"
        )
    return ""


@contextmanager
def csv_errors(title: str, reader: Reader | None = None) -> Iterator[None]:
    """Convert errors of a text into messages that name the line."""
    try:
        yield
    except UnicodeDecodeError as error:
        # The reader has counted complete lines; the others are in the bytes before the error.
        before = (0 if reader is None else int(reader.line_num)) + bytes(
            error.object[: error.start]
        ).count(b"\n")
        if error.encoding.startswith("utf-16"):
            raise InputError(
                f"cannot read {title}: it begins like UTF-16 text and is damaged or cut "
                "short; save it as UTF-8."
            ) from None
        raise InputError(
            f"cannot read {title}: it is not in UTF-8, see line {before + 1} (perhaps it "
            "is in Latin-1 or Windows-1252); save it as UTF-8."
        ) from None
    except csv.Error as error:
        where = "" if reader is None else f" at line {int(reader.line_num)}"
        raise InputError(
            f"cannot read {title}: it is not a CSV file ({error}{where}); look for a "
            "missing quotation mark."
        ) from None
    except (EOFError, zlib.error, gzip.BadGzipFile):
        raise InputError(
            f"cannot read {title}: the compressed file is damaged or cut short."
        ) from None
