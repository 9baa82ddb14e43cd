"""The nearest shares that can be true."""

from __future__ import annotations

import math

import numpy as np

from metricshuffle.errors import InputError
from metricshuffle.numerics.types import Floats


def simplex_projection(values: Floats) -> Floats:
    """The nearest point (Euclidean) whose coordinates are >= 0 and sum to one.

    Statement: it is max(values - t, 0) with the t that makes it sum to one. Numerics: t from the sorted values, O(k log k).
    Reference: Held, Wolfe, Crowder 1974.
    """
    array = np.asarray(values, dtype=np.float64)
    if array.ndim != 1 or not array.size or not np.all(np.isfinite(array)):
        raise InputError(f"a projection onto the simplex needs a list of finite numbers, got shape {array.shape}.")
    falling = np.sort(array)[::-1]
    thresholds = (np.cumsum(falling) - 1.0) / np.arange(1, array.size + 1)
    last = int(np.flatnonzero(falling > thresholds)[-1])
    projected: Floats = np.maximum(array - thresholds[last], 0.0)
    return projected / math.fsum(projected)
