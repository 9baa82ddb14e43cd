"""The file of distances between labels, and sentences that name it and them."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np

from metricshuffle.cli.randomizer_options import rows_of_numbers
from metricshuffle.errors import InputError
from metricshuffle.spaces import Matrix
from metricshuffle.spaces.matrix import open_triangle


def read_distance_table(path: Path, labels: list[str]) -> Matrix:
    """The distances of labels, a row and a column for each."""
    if not path.is_file():
        raise InputError(f"cannot read {path}: there is no such file (--distances).")
    rows = rows_of_numbers(path, "--distances")
    if not len(rows) == len(rows[0]) == len(labels):
        raise InputError(
            f"--distances {path} has {len(rows):,} rows of {len(rows[0]):,} numbers, but --labels names {len(labels):,} words; "
            "give a row and a column for each word, in their order."
        )
    try:
        return Matrix(rows)
    except InputError as error:
        problem = _open_triangle_text(np.array(rows), labels) or _with_labels_for_codes(
            str(error).removeprefix("Matrix: distances ").rstrip("."), labels
        )
        raise InputError(f"the distances in {path} {problem}; correct the table.") from None


def _open_triangle_text(table: np.ndarray, labels: list[str]) -> str:
    """Which triangle is open, if that is what is wrong: triangles are looked for in symmetric tables only."""
    sound = np.isfinite(table).all() and (table >= 0.0).all() and not table.diagonal().any() and (table == table.T).all()
    triple = open_triangle(table) if sound else None
    if triple is None:
        return ""
    i, j, k = triple
    first, middle, last = (labels[index] for index in triple)
    return (
        f"must satisfy the triangle inequality, but for ({first}, {middle}, {last}) they do not: {first} and {last} are {table[i, k]:.12g} "
        f"apart, yet {table[i, j]:.12g} + {table[j, k]:.12g} by way of {middle}"
    )


def _with_labels_for_codes(text: str, labels: list[str]) -> str:
    """With the labels in place of the numbers of a row and a column."""
    return re.sub(r"\((\d+), (\d+)\)", lambda pair: f"({labels[int(pair[1])]}, {labels[int(pair[2])]})", text)
