"""Sums and differences of the means of features that stand for shares, and which of them belong to each point."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from metricshuffle.numerics.types import Floats, Integers64

if TYPE_CHECKING:
    from scipy.sparse import csr_array


@dataclass(frozen=True, eq=False)
class Readings:
    """constants[r] + factors[r] @ means for every row r; `points` has a row for each point, not 0 at the readings that are its own.

    A reading is a weighted share: what it gives to each point are its `weights`, and its mean over releases is their sum over people.
    """

    constants: Floats
    factors: csr_array
    points: csr_array

    @classmethod
    def of_points(cls, constants: Floats, factors: csr_array, row_of: Integers64) -> Readings:
        """One reading for each point."""
        from scipy.sparse import csr_array

        ones, size = np.ones(len(row_of), dtype=np.int8), len(row_of)
        return cls(constants, factors, csr_array((ones, row_of, np.arange(size + 1)), shape=(size, len(constants))))

    @property
    def row_of(self) -> Integers64:
        """The reading of each point, where there is one for each."""
        return np.asarray(self.points.indices, dtype=np.int64)

    def values(self, means: Floats) -> Floats:
        """The readings; a row for each row of means, if there are several."""
        return np.asarray((self.factors @ np.asarray(means, dtype=np.float64).T).T + self.constants)

    def weights(self, table: csr_array) -> Floats:
        """What each reading gives to each point, a row for each reading; `table` has the features of every point."""
        return np.asarray((self.factors @ table.T).toarray() + self.constants[:, None])


def largest_features(table: csr_array) -> Readings:
    """For every point the features that are largest there, each divided by what it is there: none is less than the share of the point.

    Statement: features are >= 0, so the mean of one is at least the share of a point times what the feature is there.
    """
    from scipy.sparse import csr_array

    size, coordinates = table.shape
    point = np.repeat(np.arange(size), np.diff(table.indptr))
    tops = table.max(axis=0).toarray().ravel().astype(np.float64)
    parts = table.data / tops[table.indices]
    best = np.zeros(size)
    np.maximum.at(best, point, parts)
    chosen = (parts >= best[point] * (1.0 - 1e-12)) & (table.data > 0)
    pairs, row = np.unique(np.column_stack([table.indices[chosen], table.data[chosen]]), axis=0, return_inverse=True)
    factors = csr_array((1.0 / pairs[:, 1], pairs[:, 0], np.arange(len(pairs) + 1)), shape=(len(pairs), coordinates))
    points = csr_array((np.ones(len(row), dtype=np.int8), (point[chosen], row.ravel())), shape=(size, len(pairs)))
    return Readings(np.zeros(len(pairs)), factors, points)
