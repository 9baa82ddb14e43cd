"""Rounding first: the refined bound is never below the exact divergence, exact in one cell."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction
from typing import Any

import numpy as np
from tests.tables import check_all

from metricshuffle.accounting.sums.additive_noise import (
    AdditiveNoise,
    QuantisedProfile,
    coarse_slope,
)
from metricshuffle.noise.polya import Polya
from metricshuffle.numerics.types import Floats

WIDE = 400


def masses(noise: Polya) -> Floats:
    law = noise.law(-60.0, WIDE)
    half = law.mass[: WIDE + 1]
    return np.concatenate([half[:0:-1], half])


def exact(mass: Floats, granularity: int, distance: int, epsilon: float) -> float:
    """Largest hockey-stick divergence over residues of x and both directions, by summation."""

    def law(x: int) -> Floats:
        cell, rest = divmod(x, granularity)
        padded = np.zeros(len(mass) + 60)
        padded[cell : cell + len(mass)] += (1 - rest / granularity) * mass
        padded[cell + 1 : cell + 1 + len(mass)] += rest / granularity * mass
        return padded

    pairs = [(law(x), law(x + distance)) for x in range(granularity)]
    return max(
        float(np.maximum(a - math.exp(epsilon) * b, 0.0).sum())
        for one in pairs
        for a, b in (one, one[::-1])
    )


@check_all(("shape", "rate"), [(Fraction(1), 0.4), (Fraction(1, 3), 0.7), (Fraction(20), 0.9)])
def test_never_below_the_truth_and_exact_below_one_cell(shape: Fraction, rate: float) -> None:
    noise = Polya(shape, rate)
    granularity = 8
    profile = QuantisedProfile(AdditiveNoise(noise), granularity)
    mass = masses(noise)
    for distance, epsilon in itertools.product(
        (1, 3, 7, 8, 9, 13, 17, 31), (0.0, 0.01, 0.1, 0.5, 2.0)
    ):
        truth = exact(mass, granularity, distance, epsilon)
        found = profile.delta(epsilon, distance)
        assert found >= truth * (1 - 1e-9) - 1e-15
        if distance <= granularity:
            assert found <= truth * (1 + 1e-6) + 1e-12


def test_noise_for_coarse_cells_hides_fine_steps_without_delta() -> None:
    """The plain convex bound would leave 1e-5 at one fine step, whatever the calibration."""
    granularity = 4096
    epsilon = 1.0 / 40960
    profile: Any = QuantisedProfile(
        AdditiveNoise(Polya(Fraction(1), coarse_slope(epsilon, granularity))), granularity
    )
    assert all(
        profile.delta(epsilon * steps, steps) < 1e-12
        for steps in (1, 2, 100, 4095, 4097, 5000, 40960)
    )
    assert profile.delta(epsilon * 0.5, 1) > 1e-7
