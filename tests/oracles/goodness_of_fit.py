"""Pearson's chi-squared test with small cells pooled."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaincc

TOO_UNLIKELY = 1e-6
"""Streams are seeded, so a test that passes once passes always; a right law fails one seed in a million."""


def p_value(draws: NDArray[Any], masses: Sequence[float], lowest: int = 0, least_expected: float = 25.0) -> float:
    """P(chi-squared at least as large) for P(draw = lowest + i) = masses[i]; the mass left over is "elsewhere"."""
    expected = np.asarray(masses) * draws.size
    inside = (draws >= lowest) & (draws < lowest + expected.size)
    observed = np.bincount((draws[inside] - lowest).astype(np.int64), minlength=expected.size)
    large = expected >= least_expected
    seen = np.append(observed[large], draws.size - observed[large].sum())
    hoped = np.append(expected[large], draws.size - expected[large].sum())
    if hoped[-1] < least_expected:  # the rest is too rare to be a cell of its own: join it to the rarest cell
        rarest = int(np.argmin(hoped[:-1]))
        seen[rarest] += seen[-1]
        hoped[rarest] += hoped[-1]
        seen, hoped = seen[:-1], hoped[:-1]
    assert seen.size >= 2
    return float(gammaincc((seen.size - 1) / 2, np.sum((seen - hoped) ** 2 / hoped) / 2))


def symmetric_p_value(draws: NDArray[Any], masses: Sequence[float]) -> float:
    """The same for P(draw = z) = masses[|z|]."""
    return p_value(draws, [*reversed(masses[1:]), *masses], lowest=1 - len(masses))
