"""Threshold attack on additive noise: a lower bound that no accountant may undercut."""

from __future__ import annotations

import math

import numpy as np

from metricshuffle.noise.symmetric_pmf import SymmetricLaw


def half_line_attack(law: SymmetricLaw, epsilon: float, distance: int) -> float:
    """Max over z of P(Z <= z) - e^epsilon P(Z <= z - d), rounded down: a lower bound on delta."""
    error = math.exp(law.log_error[-1] + 1e-12)
    radius = law.radius
    upper = np.concatenate(
        [law.tail[radius:0:-1] * error + law.outside, np.ones(radius + 1)]
    )  # P(Z <= z), z = -radius..radius
    lower = np.concatenate(
        [law.tail[radius:0:-1] / error, 1.0 - law.tail[1 : radius + 2] * error - law.outside]
    )
    return float(np.max(lower[distance:] - math.exp(epsilon) * upper[:-distance]))
