"""Negative binomial draws, made of the same parts as Polya noise."""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from metricshuffle.noise.samplers import _add_jumps, _row_sums, sample_geometric
from metricshuffle.numerics.types import Integers64
from metricshuffle.randomness import Randomness


def sample_negative_binomial(
    shape: Fraction, rate: Fraction, count: int, randomness: Randomness
) -> Integers64:
    """Draw NB(r, p), r = shape and p = exp(-rate).

    floor(r) geometrics are added to NB(r - floor(r), p), as generating functions multiply.
    """
    whole, rest = divmod(shape, 1)
    total = _row_sums(sample_geometric, rate, int(whole), count, randomness).reshape(count, 1)
    if rest:
        _add_jumps(total, np.zeros(1, dtype=np.int64), rest, rate, 1, randomness)
    return total[:, 0]
