"""Two coordinates from the curves of one, against double sums, for noise and random bits."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from tests.oracles import sgdl

from metricshuffle.accounting.sums.additive_noise import AdditiveNoise, shift_curve, shift_delta
from metricshuffle.accounting.sums.axis_losses import AxisLosses
from metricshuffle.accounting.sums.flipped_bit_count import RandomizedResponseProfile
from metricshuffle.accounting.sums.planar_noise import (
    PerAxisProfile,
    PlanarNoise,
    displacements,
    outermost,
    planar_shift_delta,
)
from metricshuffle.noise.bounded_sum import tabulated_sum
from metricshuffle.noise.polya import Polya
from metricshuffle.numerics.types import Floats
from metricshuffle.privacy.profile import PrivacyProfile


def hockey_stick(p: Floats, q: Floats, epsilon: float) -> float:
    return math.fsum(np.maximum(p - math.exp(epsilon) * q, 0.0).ravel())


def shifted(law: Floats, steps: int, width: int) -> Floats:
    """The law, its first entry at `steps`, in an array of that width."""
    out = np.zeros(width)
    out[steps : steps + len(law)] = law
    return out


def bits_law(ones: int, zeros: int, flip: float) -> Floats:
    law = np.ones(1)
    for chance in [1.0 - flip] * ones + [flip] * zeros:
        law = np.convolve(law, [1.0 - chance, chance])
    return law


@pytest.mark.parametrize(
    ("shape", "rate", "radius"), [(1.0, 1.2, 34), (3.5, 2.0, 26), (40.0, 3.0, 30), (0.5, 1.0, 40)]
)
def test_exact_noise_against_the_double_sum(shape: float, rate: float, radius: int) -> None:
    law = sgdl.masses(shape, rate, radius)
    axis = AdditiveNoise(Polya(Fraction(shape), rate))
    losses = AxisLosses.of(axis, 3, axis.pure(3) * 2.0, 1e-9)
    assert losses.delta(0.0, 0, 0) <= 1e-12
    for first, second, fraction in [
        (1, 0, 0.5),
        (2, 2, 0.0),
        (3, 1, 0.3),
        (2, 3, 0.9),
        (0, 3, 0.7),
    ]:
        epsilon = fraction * (axis.pure(first) + axis.pure(second))
        truth = float(sgdl.planar_delta(law, epsilon, first, second))
        found = losses.delta(epsilon, first, second)
        assert truth <= found * (1 + 1e-9) + 1e-15
        assert found <= truth * 1.02 + 1e-4


def test_bounded_noise_against_the_double_sum() -> None:
    for noise, radius, count in [
        (Polya(Fraction(1), 0.7), 6, 5),
        (Polya(Fraction(1, 3), 0.5), 9, 3),
        (Polya(Fraction(1), 0.3), 4, 8),
    ]:
        axis = AdditiveNoise(tabulated_sum(noise, radius, count))
        one = np.concatenate([axis.noise.masses[:0:-1], axis.noise.masses])  # type: ignore[attr-defined]
        law = one
        for _ in range(count - 1):
            law = np.convolve(law, one)
        width = len(law) + 4
        plane = PlanarNoise(axis)
        for first, second, epsilon in itertools.product((0, 1, 4), (1, 3), (0.0, 0.4, 1.5)):
            p = np.outer(shifted(law, 0, width), shifted(law, 0, width))
            q = np.outer(shifted(law, first, width), shifted(law, second, width))
            truth = hockey_stick(p, q, epsilon)
            found = AxisLosses.of(axis, 4, 1.5, 1e-4).delta(epsilon, first, second)
            assert truth <= found * (1 + 1e-12)
            assert found <= truth * 1.15 + 1e-6
            assert (
                truth
                <= plane.delta(epsilon, math.hypot(first, second) * (1 + 1e-12))
                <= PerAxisProfile(axis).delta(epsilon, 5.0) * (1 + 1e-12)
            )


@pytest.mark.parametrize(("bits", "flip"), [(12, 0.3), (40, 0.15), (30, 0.45)])
def test_randomized_bits_against_every_pair_of_data_sets(bits: int, flip: float) -> None:
    axis = RandomizedResponseProfile(bits, flip)
    losses = AxisLosses.of(axis, 2, 2.0 * axis.pure(2), 1e-4)
    counts = range(0, bits - 1, bits // 4)
    for first, second, fraction in itertools.product((1, 2), (0, 2), (0.1, 0.4, 0.8)):
        epsilon = fraction * (axis.pure(first) + axis.pure(second))
        found = losses.delta(epsilon, first, second)
        worst = 0.0
        for one, other, up, along in itertools.product(
            counts, counts, (False, True), (False, True)
        ):
            x = [bits_law(one + move, bits - one - move, flip) for move in (0, first)]
            y = [bits_law(other + move, bits - other - move, flip) for move in (0, second)]
            worst = max(
                worst,
                hockey_stick(np.outer(x[up], y[along]), np.outer(x[not up], y[not along]), epsilon),
            )
        assert worst <= found * (1 + 1e-9)
        # (the worst data set of one epsilon is not that of another, and all of them are composed)
        assert found <= 1.4 * worst + 1e-3


def test_curves_without_log_concavity_are_sums_of_positive_parts() -> None:
    axis = AdditiveNoise(tabulated_sum(Polya(Fraction(1, 4), 0.4), 12, 4))
    law = axis.law_for(1e-12, 8)
    epsilons = np.array([0.0, 0.1, 1.0, 3.0, 20.0, 600.0, 800.0])
    for steps in (1, 3, 8):
        single = np.array([shift_delta(law, float(epsilon), steps) for epsilon in epsilons])
        found = shift_curve(law, epsilons, steps)
        assert np.all(found >= single * (1 - 1e-12))
        assert found == pytest.approx(single, rel=1e-9, abs=1e-14)


@pytest.mark.parametrize(
    "axis", [AdditiveNoise(Polya(Fraction(200), 1.0)), AdditiveNoise(Polya(Fraction(4), 0.3))]
)
def test_blocks_of_displacements_decide_as_all_of_them_do(axis: PrivacyProfile) -> None:
    assert isinstance(axis, AdditiveNoise)
    radius = 21.0
    law = axis.law_for(1e-6, radius)
    for epsilon in (0.5, 1.5, 4.0):
        worst = max(
            planar_shift_delta(law, epsilon * math.hypot(i, j) / radius, i, j)
            for i, j in displacements(radius)
        )
        if worst > 1e-12:
            assert PlanarNoise(axis).covers(epsilon, worst * (1 + 1e-6), radius)
            assert not PlanarNoise(axis).covers(epsilon, worst * (1 - 1e-6), radius)


def test_joint_accounting_reaches_two_hundred_cells() -> None:
    """Noise that per-axis accounting rejects by far; every tenth displacement of a ring alone."""
    axis = AdditiveNoise(Polya(Fraction(1000), 0.0528))
    target = (1.0, 1e-6, 200.0)
    assert PlanarNoise(axis).covers(*target)
    assert not PerAxisProfile(axis).covers(*target)
    law = axis.law_for(1e-6, 200.0)
    ring = [(i, j) for i, j in displacements(200.0) if i * i + j * j > 198.5**2][::10]
    assert all(
        planar_shift_delta(law, math.hypot(i, j) / 200.0, i, j) <= 1e-6
        for i, j in [*ring, *outermost(200.0)[::6], (1, 0), (1, 1)]
    )
    assert not PlanarNoise(AdditiveNoise(Polya(Fraction(1000), 0.0536))).covers(*target)
