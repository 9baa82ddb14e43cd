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
    given = np.asarray(values, dtype=np.float64)
    if given.ndim != 1 or not given.size or not np.all(np.isfinite(given)):
        raise InputError(f"a projection onto the simplex needs a list of finite numbers, got shape {given.shape}.")
    falling = np.sort(given)[::-1]
    thresholds = (np.cumsum(falling) - 1.0) / np.arange(1, given.size + 1)
    last = int(np.flatnonzero(falling > thresholds)[-1])
    found: Floats = np.maximum(given - thresholds[last], 0.0)
    return found / math.fsum(found)
