"""Columns of files and pipes; the format is detected by the first bytes, not by the name."""

from __future__ import annotations

import gzip
import io
from collections.abc import Sequence
from pathlib import Path
from typing import IO, cast

from metricshuffle.data.arrow import open_parquet
from metricshuffle.data.csv_reader import CsvFormat, csv_errors, open_csv
from metricshuffle.data.source import ColumnRequest, ColumnSource, check_distinct_columns
from metricshuffle.errors import InputError
from metricshuffle.files import PrefixedStream, display_name, is_stream, open_bytes

HEAD_BYTES = 4
GZIP = b"\x1f\x8b"
PARQUET = b"PAR1"
UNSUPPORTED_FORMATS = {
    b"PK\x03\x04": "a zip archive or an Excel workbook; save the sheet as CSV",
    b"\xd0\xcf\x11\xe0": "an old Excel workbook; save the sheet as CSV",
    b"BZh": "compressed with bzip2; unpack it, for example with bzcat",
    b"\xfd7zX": "compressed with xz; unpack it, for example with xzcat",
    b"\x28\xb5\x2f\xfd": "compressed with Zstandard; unpack it, for example with zstdcat",
    b"ARRO": "an Arrow file; save it as Parquet or CSV",
}
"""First bytes of formats that are not supported, and what to do."""


def open_columns(
    path: Path, columns: Sequence[ColumnRequest], form: CsvFormat | None = None
) -> ColumnSource:
    """Open columns of a CSV text, which may be compressed by gzip, or of a Parquet file.

    A pipe is read once, from start to end.
    """
    check_distinct_columns(columns)
    title = display_name(path)
    form = CsvFormat() if form is None else form
    stream, head = _peek(open_bytes(path))
    plain = True
    try:
        if head.startswith(GZIP):
            with csv_errors(title):
                stream, head, plain = (
                    *_peek(cast(IO[bytes], gzip.GzipFile(fileobj=stream)), stream),
                    False,
                )
        if head == PARQUET or path.suffix == ".parquet":
            source = path if plain and not is_stream(path) else stream.read()
            stream.close()
            return open_parquet(source, title, tuple(columns), form)
        what = next(
            (words for first, words in UNSUPPORTED_FORMATS.items() if head.startswith(first)), None
        )
        if what is not None:
            raise InputError(f"cannot read {title}: it is {what}.")
        return open_csv(stream, head, title, tuple(columns), form)
    except BaseException:
        stream.close()
        raise


def _peek(stream: IO[bytes], *below: IO[bytes]) -> tuple[IO[bytes], bytes]:
    """Read the first bytes; return a stream that still contains them.

    Closing it closes the streams in `below` too.
    """
    head = stream.read(HEAD_BYTES)
    return io.BufferedReader(PrefixedStream(head, stream, *below)), head
