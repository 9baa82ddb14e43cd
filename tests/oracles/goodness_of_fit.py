"""Pearson's chi-squared test with small cells pooled."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaincc

TOO_UNLIKELY = 1e-6
"""Threshold of p-values; a correct law fails one seed in a million.

Streams are seeded, so a test that passes once always passes.
"""


def p_value(
    draws: NDArray[Any], masses: Sequence[float], lowest: int = 0, least_expected: float = 25.0
) -> float:
    """P(chi-squared at least as large) for P(draw = lowest + i) = masses[i].

    The remaining mass is "elsewhere".
    """
    expected = np.asarray(masses) * draws.size
    inside = (draws >= lowest) & (draws < lowest + expected.size)
    observed = np.bincount((draws[inside] - lowest).astype(np.int64), minlength=expected.size)
    large = expected >= least_expected
    seen = np.append(observed[large], draws.size - observed[large].sum())
    hoped = np.append(expected[large], draws.size - expected[large].sum())
    if (
        hoped[-1] < least_expected
    ):  # the rest is too rare for a cell of its own: add it to the rarest cell
        rarest = int(np.argmin(hoped[:-1]))
        seen[rarest] += seen[-1]
        hoped[rarest] += hoped[-1]
        seen = seen[:-1]
        hoped = hoped[:-1]
    assert seen.size >= 2
    return float(gammaincc((seen.size - 1) / 2, np.sum((seen - hoped) ** 2 / hoped) / 2))


def symmetric_p_value(draws: NDArray[Any], masses: Sequence[float]) -> float:
    """Like `p_value`, for P(draw = z) = masses[|z|]."""
    return p_value(draws, [*reversed(masses[1:]), *masses], lowest=1 - len(masses))
