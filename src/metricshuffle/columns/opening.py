"""Files and pipes: what they are is told by their first bytes and not by their names."""

from __future__ import annotations

import gzip
import io
from collections.abc import Sequence
from pathlib import Path
from typing import IO, cast

from metricshuffle.columns.arrow import open_parquet
from metricshuffle.columns.csv_files import CsvFormat, in_words, open_csv
from metricshuffle.columns.table import Table, Wanted, check_different
from metricshuffle.errors import InputError
from metricshuffle.files import Continued, is_stream, named, open_bytes

HEAD = 4
GZIP, PARQUET = b"\x1f\x8b", b"PAR1"
OTHERS = {
    b"PK\x03\x04": "a zip archive or an Excel workbook; save the sheet as CSV",
    b"\xd0\xcf\x11\xe0": "an old Excel workbook; save the sheet as CSV",
    b"BZh": "compressed with bzip2; unpack it, for example with bzcat",
    b"\xfd7zX": "compressed with xz; unpack it, for example with xzcat",
    b"\x28\xb5\x2f\xfd": "compressed with Zstandard; unpack it, for example with zstdcat",
    b"ARRO": "an Arrow file; save it as Parquet or CSV",
}
"""First bytes of what is not read here, and what to do."""


def open_columns(path: Path, columns: Sequence[Wanted], form: CsvFormat | None = None) -> Table:
    """The wanted columns of a CSV text, which may be compressed by gzip, or of a Parquet file; a pipe is read once, from front to end."""
    check_different(columns)
    title, form = named(path), CsvFormat() if form is None else form
    stream, head = _begun(open_bytes(path))
    plain = True
    try:
        if head.startswith(GZIP):
            with in_words(title):
                stream, head, plain = *_begun(cast(IO[bytes], gzip.GzipFile(fileobj=stream)), stream), False
        if head == PARQUET or path.suffix == ".parquet":
            source = path if plain and not is_stream(path) else stream.read()
            stream.close()
            return open_parquet(source, title, tuple(columns), form)
        what = next((words for first, words in OTHERS.items() if head.startswith(first)), None)
        if what is not None:
            raise InputError(f"cannot read {title}: it is {what}.")
        return open_csv(stream, head, title, tuple(columns), form)
    except BaseException:
        stream.close()
        raise


def _begun(stream: IO[bytes], *below: IO[bytes]) -> tuple[IO[bytes], bytes]:
    """A stream with its first bytes, which are still to be read from it; closing it closes what lies below."""
    head = stream.read(HEAD)
    return io.BufferedReader(Continued(head, stream, *below)), head
