"""Compiled geometrically weighted sums; imported only where used (numba costs 0.3 s)."""

# numba's decorators carry no types.
# mypy: disable-error-code="untyped-decorator, no-any-return"
from __future__ import annotations

import numpy as np
from numba import njit

from metricshuffle.numerics.types import Floats


@njit(cache=True)
def falling_sums(values: Floats, factor: float) -> Floats:
    """For each row and place x, compute the sum over y of factor^|x - y| values[y]."""
    rows, places = values.shape
    sums = np.empty((rows, places))
    for row in range(rows):
        before = 0.0
        for place in range(places):
            before = factor * before + values[row, place]
            sums[row, place] = before
        after = 0.0
        for place in range(places - 1, -1, -1):
            sums[row, place] += after
            after = factor * (after + values[row, place])
    return sums
