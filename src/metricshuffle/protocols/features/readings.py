"""Readings: linear combinations of the means of features that estimate shares of points.

Feature sets return them from `point_readings`, `nearby` and `bounds`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from metricshuffle.numerics.types import Floats, Integers64

if TYPE_CHECKING:
    from scipy.sparse import csr_array


@dataclass(frozen=True, eq=False)
class Readings:
    """Linear readings constants[r] + factors[r] @ means, and the readings of each point.

    `points` has a row for each point, nonzero at the readings that belong to the point. A reading
    is a weighted share: it counts a person at each point with the weight given by `weights`, and
    its mean over releases is the mean of these weights over all counted items.
    """

    constants: Floats
    factors: csr_array
    points: csr_array

    @classmethod
    def of_points(cls, constants: Floats, factors: csr_array, row_of: Integers64) -> Readings:
        """One reading for each point."""
        from scipy.sparse import csr_array

        ones = np.ones(len(row_of), dtype=np.int8)
        size = len(row_of)
        return cls(
            constants,
            factors,
            csr_array((ones, row_of, np.arange(size + 1)), shape=(size, len(constants))),
        )

    @property
    def row_of(self) -> Integers64:
        """The reading of each point, if there is exactly one for each."""
        return np.asarray(self.points.indices, dtype=np.int64)

    def values(self, means: Floats) -> Floats:
        """Values of the readings; one row per row of means, if there are several."""
        return np.asarray((self.factors @ np.asarray(means, dtype=np.float64).T).T + self.constants)

    def weights(self, table: csr_array) -> Floats:
        """Weight of each point in each reading, one row per reading.

        `table` has the features of every point.
        """
        return np.asarray((self.factors @ table.T).toarray() + self.constants[:, None])


def largest_features(table: csr_array) -> Readings:
    """For every point, the features that are largest there, divided by their values there.

    Statement: features are >= 0, so the mean of a feature is at least the share of a point times
    the value of the feature at the point. Hence none of these readings is less than the share of
    the point.
    """
    from scipy.sparse import csr_array

    size, coordinates = table.shape
    point = np.repeat(np.arange(size), np.diff(table.indptr))
    tops = table.max(axis=0).toarray().ravel().astype(np.float64)
    parts = table.data / tops[table.indices]
    best = np.zeros(size)
    np.maximum.at(best, point, parts)
    chosen = (parts >= best[point] * (1.0 - 1e-12)) & (table.data > 0)
    pairs, row = np.unique(
        np.column_stack([table.indices[chosen], table.data[chosen]]), axis=0, return_inverse=True
    )
    factors = csr_array(
        (1.0 / pairs[:, 1], pairs[:, 0], np.arange(len(pairs) + 1)), shape=(len(pairs), coordinates)
    )
    points = csr_array(
        (np.ones(len(row), dtype=np.int8), (point[chosen], row.ravel())), shape=(size, len(pairs))
    )
    return Readings(np.zeros(len(pairs)), factors, points)
