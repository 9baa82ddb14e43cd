"""Compiled isotonic regression; imported only where used.

Importing numba costs 0.3 s, and importing scipy.optimize would cost as much again.
"""

# numba's decorators carry no types.
# mypy: disable-error-code="untyped-decorator, no-any-return"
from __future__ import annotations

import numpy as np
from numba import njit

from metricshuffle.numerics.types import Floats


@njit(cache=True)
def rising(values: Floats, weights: Floats) -> Floats:
    """Nearest non-decreasing sequence in weighted least squares (weights > 0).

    Neighbours that decrease are pooled into their weighted mean.
    """
    count = len(values)
    means = np.empty(count)
    masses = np.empty(count)
    ends = np.empty(count, dtype=np.int64)
    blocks = 0
    for i in range(count):
        mean = values[i]
        mass = weights[i]
        while blocks > 0 and means[blocks - 1] >= mean:
            blocks -= 1
            total = masses[blocks] + mass
            mean += (means[blocks] - mean) * (masses[blocks] / total)
            mass = total
        means[blocks], masses[blocks], ends[blocks] = mean, mass, i + 1
        blocks += 1
    fitted = np.empty(count)
    start = 0
    for block in range(blocks):
        fitted[start : ends[block]] = means[block]
        start = ends[block]
    return fitted
