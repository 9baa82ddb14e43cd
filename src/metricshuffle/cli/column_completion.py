"""Shell completion of column names, from the header of the file named before the option."""

from __future__ import annotations

import csv
import gzip
from pathlib import Path

import typer

DELIMITERS = ",;\t|"
MAX_HEADER_CHARACTERS = 65_536


def complete_columns(context: typer.Context, incomplete: str) -> list[str]:
    """Columns of the CSV file of the command that begin with `incomplete`; [] if unreadable."""
    # Without a value for the option before the cursor, click leaves the words unparsed.
    words = (*context.params.values(), *context.args)
    files = [Path(word) for word in words if isinstance(word, str | Path)]
    for path in reversed(files):
        names = _header(path)
        if names:
            return [name for name in names if name.startswith(incomplete)]
    return []


def _header(path: Path) -> list[str]:
    if not path.is_file() or path.suffix.lower() in (".json", ".parquet"):
        return []
    opened = gzip.open if path.suffix.lower() == ".gz" else open
    try:
        with opened(path, "rt", encoding="utf-8-sig") as stream:
            line = stream.readline(MAX_HEADER_CHARACTERS)
    except (OSError, UnicodeDecodeError, EOFError):
        return []
    delimiter = max(DELIMITERS, key=line.count)
    return next(csv.reader([line.rstrip("\r\n")], delimiter=delimiter), [])
