"""Lipschitz constants of queries, computed over every pair of a finite metric.

Features, and the noise of answers about a user's items, are scaled with these constants: f(x) is
the value of the query at point x, d(x, x') the distance of two points, and D the number of
coordinates of f.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from metricshuffle.citations import theorem
from metricshuffle.errors import InputError, argument
from metricshuffle.numerics.rounding import ROUNDOFF
from metricshuffle.numerics.types import Floats

NormName = Literal["l1", "l2", "linf"]
Norm = NormName | Callable[[Floats], Floats]
"""A named norm, or a function of rows of differences that returns one number for each row."""
Blocks = Callable[[int, int], Floats]
"""Function that returns rows start..stop-1 of a distance table that is too large for memory."""

BLOCK_ROWS = 256
ROUNDING_SLACK = 1e-12
MAX_DIFFERENCES = 4_000_000  # numbers passed at once to a norm that is a function
MIN_QUOTIENT = 1e-290  # replaces a quotient that underflowed or has few digits left
MIN_SQUARED = 1e-140  # squares of smaller numbers underflow


@dataclass(frozen=True)
class Lipschitz:
    """Lipschitz constant, and the pair of points that attains it (None if it is 0)."""

    constant: float
    pair: tuple[int, int] | None


@theorem("metricshuffle", "Lipschitz constant of a linear query")
def lipschitz_constant(
    table: ArrayLike, distances: ArrayLike | Blocks, norm: Norm = "l1"
) -> Lipschitz:
    """max over pairs of ||f(x) - f(x')|| / d(x, x'), rounded up.

    Row x of `table` is f(x), a number or D of them.

    Statement: the mean of f over a user's items moves by at most this constant times the earth
    mover's distance (couple the items optimally). It moves by exactly that between a user all of
    whose items lie at one point of the worst pair and a user all of whose items lie at the other
    point, so no smaller constant is valid.
    Conditions: points at distance 0 have the same f, else refused with the pair.
    Numerics: differences of doubles are rounded once, and D of them are summed; the quotient is
    enlarged by 1e-12 + 4 D ulp. Blocks of 256 points: a second or so for 5,000 points and few
    columns.
    Reference: this docstring.
    """
    values = _validate_table(table)
    rows = _rows(distances, len(values))
    largest = 0.0
    pair = None
    for start in range(0, len(values), BLOCK_ROWS):
        stop = min(start + BLOCK_ROWS, len(values))
        apart = np.asarray(rows(start, stop), dtype=np.float64)
        if apart.shape != (stop - start, len(values)):
            raise InputError(
                f"{argument('distances')} must have one column for each of the "
                f"{len(values)} points, got shape {apart.shape}."
            )
        invalid = ~((apart >= 0.0) & np.isfinite(apart))
        if invalid.any():
            i, j = (int(index) for index in np.argwhere(invalid)[0])
            raise InputError(
                f"the distance between points {start + i} and {j} must be a finite number "
                f">= 0, got {apart[i, j]!s}."
            )
        apart = apart[:, start:]
        moved = _norms(values[start:stop], values[start:], norm)
        same = apart == 0.0
        torn = same & (moved > 0.0)
        if torn.any():
            i, j = (int(index) + start for index in np.argwhere(torn)[0])
            raise InputError(
                f"points {i} and {j} are at distance 0 but the query differs on them: no "
                "Lipschitz constant exists; "
                "merge the points or make the query the same on both."
            )
        with np.errstate(over="ignore"):
            ratios = np.divide(moved, apart, out=np.zeros_like(moved), where=~same)
        np.maximum(ratios, np.where(moved > 0.0, MIN_QUOTIENT, 0.0), out=ratios)
        position = int(np.argmax(ratios))
        if ratios.flat[position] > largest:
            i, j = divmod(position, ratios.shape[1])
            largest = float(ratios.flat[position])
            pair = (start + i, start + j)
    if not np.isfinite(largest):
        raise InputError(
            f"the query moves too much between the close points {pair} for a double; "
            "change the unit of distance."
        )
    return Lipschitz(largest * _enlargement(values.shape[1]), pair)


@theorem("metricshuffle", "Lipschitz constant of the shares of all points")
def shares_constant(distances: Floats, norm: NormName = "l1") -> float:
    """`lipschitz_constant` of the identity table (row x is 1 at x, else 0), without comparing rows.

    Statement: any two different rows differ by 2 in the l1 norm, by sqrt(2) in l2 and by 1 in linf;
    so the constant is this difference divided by the smallest distance of two points.
    Conditions: no two points at distance 0, else refused with the pair.
    Numerics: as in `lipschitz_constant`, to the last bit: a quotient is largest at the smallest
    distance, also when rounded.
    Reference: this docstring.
    """
    table = np.asarray(distances, dtype=np.float64)
    points = len(table)
    above = table[np.triu_indices(points, 1)]
    if (
        table.shape != (points, points)
        or points < 2
        or not np.all(np.isfinite(table) & (table >= 0.0))
        or not above.min() > 0.0
    ):
        return lipschitz_constant(np.eye(points), table, norm).constant  # raises the right error
    moved = {"l1": 2.0, "l2": float(np.sqrt(2.0)), "linf": 1.0}[norm]
    with np.errstate(over="ignore"):
        largest = float(np.maximum(moved / above.min(), MIN_QUOTIENT))
    return (
        largest * _enlargement(points)
        if np.isfinite(largest)
        else lipschitz_constant(np.eye(points), table, norm).constant
    )


def validate_lipschitz(
    table: ArrayLike, distances: ArrayLike | Blocks, norm: Norm, constant: float
) -> Lipschitz:
    """Return the given constant, at least the exact one; raise InputError if a pair exceeds it."""
    if isinstance(constant, bool) or not (
        isinstance(constant, int | float) and 0.0 <= constant < np.inf
    ):
        raise InputError(f"the Lipschitz constant must be a finite number >= 0, got {constant!r}.")
    exact = lipschitz_constant(table, distances, norm)
    if exact.constant > constant * (
        1.0 + 4.0 * (_enlargement(_validate_table(table).shape[1]) - 1.0)
    ):
        raise InputError(
            f"the Lipschitz constant {constant!r} is too small: between points "
            f"{exact.pair} the query moves by "
            f"{exact.constant:.6g} per unit of distance; use at least that."
        )
    return Lipschitz(max(float(constant), exact.constant), exact.pair)


def _enlargement(columns: int) -> float:
    """Factor that makes a rounded quotient an upper bound."""
    return 1.0 + ROUNDING_SLACK + 4.0 * columns * ROUNDOFF


def _validate_table(table: ArrayLike) -> Floats:
    values = np.asarray(table, dtype=np.float64)
    values = values[:, None] if values.ndim == 1 else values
    if values.ndim != 2 or values.size == 0:
        raise InputError(
            "the table of a query needs a row for each point and a column for each "
            f"number, got shape {values.shape}."
        )
    if not np.isfinite(values).all():
        raise InputError(
            "the query must be finite, but it is not at point "
            f"{int(np.argwhere(~np.isfinite(values))[0][0])}."
        )
    return values


def _rows(distances: ArrayLike | Blocks, points: int) -> Blocks:
    if callable(distances):
        return distances
    table = np.asarray(distances, dtype=np.float64)
    if table.shape != (points, points):
        raise InputError(
            f"{argument('distances')} must be a table of {points} by {points} numbers, one row "
            f"for each row of the query, got {table.shape}."
        )
    return lambda start, stop: table[start:stop]


def _norms(left: Floats, right: Floats, norm: Norm) -> Floats:
    if callable(norm):
        together = max(1, MAX_DIFFERENCES // right.size)
        return np.concatenate(
            [
                _norms_by_call(left[start : start + together], right, norm)
                for start in range(0, len(left), together)
            ]
        )
    from scipy.spatial.distance import cdist

    if norm == "linf":
        return cdist(left, right, "chebyshev")
    if norm == "l1":
        return cdist(left, right, "cityblock")
    if norm != "l2":
        raise InputError(
            f"norm must be 'l1', 'l2', 'linf' or a function of rows of differences, got {norm!r}."
        )
    size = cdist(left, right, "euclidean")
    tiny = size < MIN_SQUARED
    if tiny.any():
        size[tiny] = cdist(left, right, "cityblock")[tiny]  # never less than l2
    return size


def _norms_by_call(left: Floats, right: Floats, norm: Callable[[Floats], Floats]) -> Floats:
    differences = (left[:, None, :] - right[None, :, :]).reshape(-1, left.shape[1])
    size = np.asarray(norm(differences), dtype=np.float64)
    if size.shape != (len(differences),) or not (size >= 0.0).all():
        raise InputError("the norm must return one number >= 0 for each row of differences.")
    if ((size == 0.0) & differences.any(axis=1)).any():
        raise InputError("the norm must be positive for differences that are not 0.")
    return size.reshape(len(left), len(right))
