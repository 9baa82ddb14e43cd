"""Random rounding of features (theorem R1): brute force against the stated loss."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from numpy.typing import NDArray

from metricshuffle.accounting.vectors.encoding_terms import rounding_losses

RADIUS = 60
"""Values of a sum on either side of 0; ratios are the same beyond."""


def noisy_law(values: tuple[Fraction, ...], rate: float, shape: int = 1) -> NDArray[np.float64]:
    """Law of the sum of randomly rounded values and noise, on -RADIUS..RADIUS."""
    sums = {0: 1.0}
    for value in values:
        low = math.floor(value)
        part = float(value - low)
        summed: dict[int, float] = {}
        for total, mass in sums.items():
            for rounded, chance in ((low, 1.0 - part), (low + 1, part)):
                summed[total + rounded] = summed.get(total + rounded, 0.0) + mass * chance
        sums = summed
    noise = np.array([math.exp(-rate * abs(z)) for z in range(-RADIUS, RADIUS + 1)])
    for _ in range(shape - 1):
        noise = np.convolve(noise, noise, mode="same")
    law = np.zeros(2 * RADIUS + 1)
    for total, mass in sums.items():
        law += mass * np.roll(noise, total)
    return np.asarray(law[20:-20] / noise.sum())


def loss(x: tuple[Fraction, ...], y: tuple[Fraction, ...], rate: float, shape: int = 1) -> float:
    return float(np.abs(np.log(noisy_law(x, rate, shape) / noisy_law(y, rate, shape))).max())


TWELFTHS = [Fraction(k, 12) for k in range(25)]


@pytest.mark.parametrize("rate", [0.1, 0.5, 1.0, 2.0])
def test_no_pair_of_values_costs_more_and_the_bound_is_attained(rate: float) -> None:
    per_unit = float(rounding_losses(np.array([rate]))[0])
    ratios = [
        loss((x,), (y,), rate) / (per_unit * float(y - x))
        for x, y in itertools.combinations(TWELFTHS, 2)
    ]
    assert max(ratios) <= 1.0
    inside_one_unit = math.log1p(per_unit / 12.0)
    assert loss((Fraction(0),), (Fraction(1, 12),), rate) == pytest.approx(inside_one_unit)


def test_people_who_move_together_add_up_and_their_sum_is_not_enough() -> None:
    rate = 0.5
    per_unit = float(rounding_losses(np.array([rate]))[0])
    quarters = [Fraction(k, 4) for k in range(5)]
    for x in itertools.product(quarters, repeat=2):
        for y in itertools.product(quarters, repeat=2):
            moved = float(sum(abs(a - b) for a, b in zip(x, y, strict=True)))
            assert loss(x, y, rate) <= per_unit * moved * (1.0 + 1e-9) + 1e-9
    half = Fraction(1, 2)
    assert loss((half, half), (Fraction(0), Fraction(1)), rate) == pytest.approx(0.219, abs=5e-4)


def test_the_rate_itself_and_rounding_to_the_nearest_are_not_enough() -> None:
    assert loss((Fraction(0),), (Fraction(1, 12),), 1.0) > 1.6 / 12.0
    nearest = [loss((Fraction(round(x, 0)),), (Fraction(0),), 1.0) for x in (0.49, 0.51)]
    assert nearest == pytest.approx([0.0, 1.0], abs=1e-9)


def test_one_random_number_for_two_features_costs_more() -> None:
    """Both features round up together: the law of the pair is not a product."""
    rate = 2.0
    noise = np.array([math.exp(-rate * abs(z)) for z in range(-8, 9)])

    def pair(t: float) -> NDArray[np.float64]:
        whole = np.outer(noise, noise)
        return (1.0 - t) * whole + t * np.roll(np.roll(whole, 1, axis=0), 1, axis=1)

    inside = (slice(4, -4), slice(4, -4))
    ratio = np.abs(np.log(pair(0.01)[inside] / pair(0.0)[inside])).max()
    promised = 2.0 * float(rounding_losses(np.array([rate]))[0]) * 0.01
    assert ratio > 2.0 * promised


def test_the_loss_per_unit_is_rounded_up() -> None:
    rates = np.array([1e-9, 1e-3, 0.02, 1.0, 30.0])
    exact = [math.expm1(rate) for rate in rates]
    assert np.all(rounding_losses(rates) > exact)
    assert math.log1p(0.02) == pytest.approx(0.019802627296, abs=1e-12)


def test_values_on_a_grid_cost_what_is_attained_inside_a_unit() -> None:
    """On multiples of 1/q a step costs e1 at e^rate = 1 + q (e^e1 - 1); log1p promises less."""
    rate = math.log1p(2.0 * math.expm1(1.0 / 8.0))
    assert rate == pytest.approx(0.23610, abs=5e-6)
    assert loss((Fraction(1),), (Fraction(3, 2),), rate) == pytest.approx(1.0 / 8.0, rel=1e-12)
    # Calibrated by the slope alone, the rate is smaller: more noise than a grid needs.
    assert math.log1p(2.0 / 8.0) == pytest.approx(0.22314, abs=5e-6)
    per_unit = float(rounding_losses(np.array([math.log1p(2.0 / 8.0)]))[0])
    assert 0.5 * per_unit == pytest.approx(1.0 / 8.0, rel=1e-12)
