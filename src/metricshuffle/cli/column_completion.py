"""Shell completion of columns and labels, from the file that is named before the option."""

from __future__ import annotations

import csv
import gzip
import json
from pathlib import Path

import typer

DELIMITERS = ",;\t|"
MAX_HEADER_CHARACTERS = 65_536


def complete_columns(context: typer.Context, incomplete: str) -> list[str]:
    """Columns of the CSV file of the command that begin with `incomplete`; [] if unreadable."""
    for path in _files_before(context):
        names = _header(path)
        if names:
            return [name for name in names if name.startswith(incomplete)]
    return []


def complete_labels(context: typer.Context, incomplete: str) -> list[str]:
    """Labels of the plan, task or collection of the command; [] if it has none."""
    for path in _files_before(context):
        labels = _labels(path)
        if labels:
            return [label for label in labels if label.startswith(incomplete)]
    return []


def _files_before(context: typer.Context) -> list[Path]:
    """Files among the words of the command, the last file first."""
    # Without a value for the option before the cursor, click leaves the words unparsed.
    words = (*context.params.values(), *context.args)
    return [Path(word) for word in reversed(words) if isinstance(word, str | Path)]


def _labels(path: Path) -> list[str]:
    if path.suffix.lower() != ".json" or not path.is_file():
        return []
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        task = document.get("task") if isinstance(document, dict) else None
        task = json.loads(task) if isinstance(task, str) else task  # of a collection
    except (OSError, ValueError, RecursionError):
        return []
    for part in (document, task):
        query = part.get("query") if isinstance(part, dict) else None
        domain = query.get("domain") if isinstance(query, dict) else None
        labels = domain.get("labels") if isinstance(domain, dict) else None
        if isinstance(labels, list):
            return [label for label in labels if isinstance(label, str)]
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
