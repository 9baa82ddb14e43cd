"""Moments of a tabulated law."""

from __future__ import annotations

import numpy as np

from metricshuffle.noise.symmetric_pmf import SymmetricLaw


def mean_absolute(law: SymmetricLaw) -> float:
    """E|Z| of the tabulated part; the part outside has mass `outside`."""
    return 2.0 * float(np.sum(law.tail[1:]))
