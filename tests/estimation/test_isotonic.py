"""Isotonic regression against scipy's."""

from __future__ import annotations

import numpy as np
from scipy.optimize import isotonic_regression

from metricshuffle.estimation import _isotonic_kernels as kernels


def test_the_nearest_rising_sequence_is_that_of_scipy() -> None:
    generator = np.random.default_rng(1)
    for points in (1, 2, 3, 10, 100, 1000):
        for trend in (-2.0, 0.0, 2.0):
            values = generator.normal(size=points) + np.linspace(0.0, trend, points)
            weights = 10.0 ** generator.uniform(-6.0, 0.0, points)
            for given in (values, np.round(values)):  # (with ties)
                expected = isotonic_regression(given, weights=weights).x
                np.testing.assert_allclose(
                    kernels.rising(given, weights), expected, rtol=0.0, atol=1e-12
                )
