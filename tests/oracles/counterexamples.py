"""Computations behind counterexamples to published claims, for the errata page and tests."""

from __future__ import annotations

import math

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.stats import binom

from metricshuffle.errors import NotCertified
from metricshuffle.noise.polya import Polya
from metricshuffle.privacy.guarantee import Guarantee, Trust
from metricshuffle.privacy.profile import PrivacyProfile

Floats = NDArray[np.float64]


def zeros_against_ones(bits: int, flip: float, epsilon: float, distance: int) -> float:
    """delta of the number of ones, all bits 0 against `distance` of them 1: a lower bound."""
    none = binom.pmf(np.arange(bits + 1), bits, flip)
    flipped = binom.pmf(np.arange(distance + 1), distance, 1.0 - flip)
    some = np.convolve(flipped, binom.pmf(np.arange(bits - distance + 1), bits - distance, flip))
    return max(
        float(np.maximum(p - math.exp(epsilon) * q, 0.0).sum())
        for p, q in ((some, none), (none, some))
    )


def both_sides(noise: Polya) -> Floats:
    """Masses of a symmetric law, from the smallest value to the largest."""
    mass = noise.law(-60.0).mass
    return np.concatenate([mass[:0:-1], mass])


def response_rows(p: float, options: int) -> list[list[float]]:
    """Channel of randomized response that keeps a value p times as often as any other report."""
    return [
        [(p if x == y else 1.0) / (p + options - 1) for y in range(options)] for x in range(options)
    ]


def assert_no_guarantee(published: object) -> None:
    """Assert that no guarantee can be made of a published claim."""
    assert not isinstance(published, PrivacyProfile)
    with pytest.raises(NotCertified, match="upper bound"):
        Guarantee.from_profile(
            published,  # type: ignore[arg-type]
            delta=1e-6,
            distance=1.0,
            unit="",
            protects="one person",
            trust=Trust(trusted="shuffler"),
        )
