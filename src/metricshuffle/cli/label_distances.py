"""Labels and the distances between them, typed or read from files."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np

from metricshuffle.cli.number_table import rows_of_numbers
from metricshuffle.data import column_requests, open_columns
from metricshuffle.errors import InputError
from metricshuffle.spaces import Matrix
from metricshuffle.spaces.distance_matrix import MAX_TABLE_POINTS, open_triangle


def read_labels(
    labels: str | None, labels_from: Path | None, column: str | None
) -> list[str] | None:
    """Return the named labels, or those in a column of a file; None if neither is given."""
    if labels is not None and labels_from is not None:
        raise InputError("give either --labels or --labels-from, and not both.")
    if labels_from is not None:
        if column is None:
            raise InputError("--labels-from needs --column, the column that holds the labels.")
        words: set[str] = set()
        for chunk in open_columns(labels_from, column_requests([column])).chunks():
            words |= {"" if cell is None else str(cell).strip() for cell in chunk.cells[0]}
        return _check_label_count(sorted(words - {""}), f"--labels-from {labels_from}")
    if column is not None:
        raise InputError("--column names the column of --labels-from FILE; give both.")
    if labels is None:
        return None
    named = [word.strip() for word in labels.split(",")]
    if "" in named:
        raise InputError(
            f"--labels {labels!r} has an empty word; give words with one comma between "
            "them, like tea,coffee."
        )
    return _check_label_count(named, "--labels")


def _check_label_count(words: list[str], where: str) -> list[str]:
    if len(words) < 2:
        raise InputError(
            f"{where} names {len(words)} label{'s' * (len(words) != 1)}; name at least two."
        )
    return words


def read_distance_table(path: Path, labels: list[str] | None = None) -> Matrix:
    """Read a table of distances, with a row and a column for each label or numbered point."""
    if not path.is_file():
        raise InputError(f"cannot read {path}: there is no such file (--distances).")
    if labels is not None and len(labels) > MAX_TABLE_POINTS:
        raise InputError(
            f"--distances may have up to {MAX_TABLE_POINTS:,} labels, but {len(labels):,} are "
            "named: checking all triangles would take minutes; merge labels."
        )
    rows = rows_of_numbers(path, "--distances")
    if labels is None:
        labels = [str(row) for row in range(len(rows))]
        if len(rows[0]) != len(rows):
            raise InputError(
                f"--distances {path} has {len(rows):,} rows of {len(rows[0]):,} numbers; give a "
                "row and a column for each point, in the same order."
            )
    if not len(rows) == len(rows[0]) == len(labels):
        raise InputError(
            f"--distances {path} has {len(rows):,} rows of {len(rows[0]):,} numbers, but "
            f"--labels names {len(labels):,} words; "
            "give a row and a column for each word, in the same order."
        )
    try:
        return Matrix(rows)
    except InputError as error:
        problem = _open_triangle_text(np.array(rows), labels) or _with_labels_for_codes(
            str(error).removeprefix("Matrix: distances ").rstrip("."), labels
        )
        raise InputError(f"the distances in {path} {problem}; correct the table.") from None


def _open_triangle_text(table: np.ndarray, labels: list[str]) -> str:
    """Describe a violated triangle inequality of a symmetric table; empty if none is found."""
    sound = (
        np.isfinite(table).all()
        and (table >= 0.0).all()
        and not table.diagonal().any()
        and (table == table.T).all()
    )
    triple = open_triangle(table) if sound else None
    if triple is None:
        return ""
    i, j, k = triple
    first, middle, last = (labels[index] for index in triple)
    return (
        f"must satisfy the triangle inequality, but for ({first}, {middle}, {last}) they "
        f"do not: {first} and {last} are {table[i, k]:.12g} "
        f"apart, yet {table[i, j]:.12g} + {table[j, k]:.12g} by way of {middle}"
    )


def _with_labels_for_codes(text: str, labels: list[str]) -> str:
    """Replace row and column numbers by labels."""
    return re.sub(
        r"\((\d+), (\d+)\)", lambda pair: f"({labels[int(pair[1])]}, {labels[int(pair[2])]})", text
    )
