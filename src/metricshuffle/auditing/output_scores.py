"""Scores for the outputs of a user's own collection, learned from numbers, arrays, bytes or words.

A score may be any function of an output, as long as it is fixed before the counted batches are
looked at. So several simple ones are learned from some outputs, and others decide which of them
distinguishes best: the whole output, its length, how often each value occurs (in any order), a
single place, all places together.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from metricshuffle.errors import InputError
from metricshuffle.models import format_value
from metricshuffle.numerics.types import Floats, Integers64

Row = NDArray[Any]
Score = Callable[[Sequence[Row]], Floats]

# Largest number of values, and of places, that are scored one by one.
MAX_VALUES = 512
MAX_PLACES = 4096
# The score of all informative places together uses a place if its means differ by more than this
# many standard errors.
MIN_STANDARD_ERRORS = 3.0


def row_of(output: object) -> Row:
    """Return an output as a row of numbers or words; bytes are numbers, and shapes are ignored."""
    if isinstance(output, bytes | bytearray | memoryview):
        return np.frombuffer(bytes(output), dtype=np.uint8)
    try:
        row = np.atleast_1d(np.asarray(output)).ravel()
    except ValueError:
        row = np.empty(0, dtype=object)
    if row.dtype.kind == "b":
        return row.astype(np.uint8)
    if row.dtype.kind not in "iufUS" or (row.dtype.kind == "f" and not np.isfinite(row).all()):
        raise InputError(
            "an output must be a number, an array of finite numbers, words or bytes, got "
            f"{format_value(output)}; give a score "
            "that turns it "
            "into a number."
        )
    return row


def learn_scores(first: Sequence[Row], second: Sequence[Row]) -> list[Score]:
    """Learn scores that are larger for outputs like those of the first input."""
    lengths = {len(row) for rows in (first, second) for row in rows}
    kinds = {row.dtype.kind in "US" for rows in (first, second) for row in rows}
    if len(kinds) > 1:
        raise InputError(
            "some outputs are words and others numbers; give a score that turns both into a number."
        )
    words = kinds == {True}
    scores: list[Score] = [_table(first, second, lambda rows: [row.tobytes() for row in rows])]
    if len(lengths) > 1:
        scores.append(lambda rows: np.array([len(row) for row in rows], dtype=np.float64))
    scores += _values(first, second, words=words)
    if len(lengths) == 1 and 1 < next(iter(lengths)) <= MAX_PLACES:
        scores += _places(first, second, words=words)
    return scores


def _table(
    first: Sequence[Row], second: Sequence[Row], keys: Callable[[Sequence[Row]], Sequence[Any]]
) -> Score:
    """Score by the log ratio of frequencies in both samples, half an occurrence added to each."""
    often = [Counter(keys(rows)) for rows in (first, second)]
    ratio = {
        key: np.log((often[0][key] + 0.5) / (often[1][key] + 0.5)) for key in often[0] | often[1]
    }
    return lambda rows: np.array([ratio.get(key, 0.0) for key in keys(rows)], dtype=np.float64)


def _values(first: Sequence[Row], second: Sequence[Row], *, words: bool) -> list[Score]:
    """Scores by how often each value occurs; for numbers also sum, sum of squares, min and max."""
    known = (
        np.unique(np.concatenate([*first, *second]))
        if sum(map(len, first)) + sum(map(len, second))
        else np.empty(0)
    )
    scores: list[Score] = []
    if 1 < len(known) <= MAX_VALUES:

        def counts(rows: Sequence[Row]) -> Floats:
            table = np.zeros((len(rows), len(known)))
            for place, row in enumerate(rows):
                where = np.minimum(np.searchsorted(known, row), len(known) - 1)
                np.add.at(table[place], where[known[where] == row], 1.0)
            return table

        scores.append(_linear(counts(first), counts(second), counts, together=True))
    if not words:
        features: tuple[Callable[[Row], Any], ...] = (np.sum, _squares, _smallest, _largest)
        scores += [
            lambda rows, of=of: np.array([of(_floats(row)) for row in rows], dtype=np.float64)  # type: ignore[misc]
            for of in features
        ]
    return scores


def _places(first: Sequence[Row], second: Sequence[Row], *, words: bool) -> list[Score]:
    """Scores by the most informative place, and by all informative places together.

    A place is scored by its values or, if these are many numbers, as a number.
    """
    tables = [np.stack(list(rows)) for rows in (first, second)]
    scores: list[Score] = []
    known, codes = np.unique(np.concatenate(tables), return_inverse=True)
    if len(known) <= MAX_VALUES:
        coded = codes.reshape(-1, tables[0].shape[1])
        gaps = [
            _variation(column[: len(first)], column[len(first) :], len(known)) for column in coded.T
        ]
        place = int(np.argmax(gaps))
        scores.append(_table(first, second, lambda rows: [row[place] for row in rows]))
    if not words:
        left, right = (table.astype(np.float64) for table in tables)
        telling = int(np.argmax(np.abs(_standardized_differences(left, right))))
        scores.append(lambda rows: np.array([row[telling] for row in rows], dtype=np.float64))
        scores.append(_linear(left, right, lambda rows: np.stack(list(rows)).astype(np.float64)))
    return scores


def _linear(
    first: Floats,
    second: Floats,
    features: Callable[[Sequence[Row]], Floats],
    *,
    together: bool = False,
) -> Score:
    """Sum of features, each weighted by its difference of means over its variance.

    With `together`, all features are summed; otherwise only the informative ones.
    """
    standing = _standardized_differences(first, second)
    pooled = 0.5 * (first.var(axis=0) + second.var(axis=0))
    gap = first.mean(axis=0) - second.mean(axis=0)
    mask = (gap != 0.0) if together else (np.abs(standing) > MIN_STANDARD_ERRORS)
    weights = np.where(mask, gap / np.maximum(pooled, 1e-12 * gap**2 + 1e-200), 0.0)
    largest = float(np.abs(weights).max(initial=0.0))
    weights = weights / largest if largest > 0.0 else weights
    return lambda rows: np.asarray(features(rows) @ weights)


def _standardized_differences(first: Floats, second: Floats) -> Floats:
    """Differences of means in standard errors."""
    error = np.sqrt(first.var(axis=0) / len(first) + second.var(axis=0) / len(second))
    gap = first.mean(axis=0) - second.mean(axis=0)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.asarray(np.where(gap == 0.0, 0.0, gap / error))


def _variation(first: Integers64, second: Integers64, values: int) -> float:
    shares = [np.bincount(codes, minlength=values) / len(codes) for codes in (first, second)]
    return float(np.abs(shares[0] - shares[1]).sum())


def _floats(row: Row) -> Floats:
    return row.astype(np.float64)


def _squares(row: Floats) -> float:
    return float(row @ row)


def _smallest(row: Floats) -> float:
    return float(row.min(initial=np.inf))


def _largest(row: Floats) -> float:
    return float(row.max(initial=-np.inf))
