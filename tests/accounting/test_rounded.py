"""Random rounding before noise: brute force never exceeds the guarantee, and comes close."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from fractions import Fraction

import numpy as np
import pytest
from scipy.stats import nbinom
from tests.tables import check_all

from metricshuffle.accounting.sums.additive_noise import AdditiveNoise
from metricshuffle.accounting.sums.rounded_reports import RoundedReport, rounded_rate, rounded_slope
from metricshuffle.noise.polya import Polya

Values = Sequence[float]
REACH = 160
"""Largest total on both sides; beyond, ratios of two laws with equal tails are constant."""


def polya_law(shape: float, rate: float, reach: int) -> np.ndarray:
    """P(Z = z) for |z| <= reach, Z the difference of two negative binomials of that shape."""
    counts = np.arange(0, math.ceil((40.0 + 4.0 * shape) / rate) + 4 * reach)
    one = nbinom.pmf(counts, shape, -math.expm1(-rate))
    return np.array(
        [float(np.dot(one[: len(one) - abs(z)], one[abs(z) :])) for z in range(-reach, reach + 1)]
    )


def rounded_law(values: Values) -> dict[int, float]:
    """Of the sum of values that are rounded at random, each for itself."""
    law = {0: 1.0}
    for value in values:
        below = math.floor(value)
        part = value - math.floor(value)
        chances = ((below, 1.0 - part), (below + 1, part))
        grown: dict[int, float] = {}
        for total, chance in law.items():
            for step, share in chances:
                if share > 0.0:
                    grown[total + step] = grown.get(total + step, 0.0) + chance * share
        law = grown
    return law


def total_law(values: Values, noise: np.ndarray) -> np.ndarray:
    middle = len(noise) // 2
    seen = range(-(middle - 40), middle - 39)
    law = rounded_law(values)
    return np.array(
        [sum(chance * noise[middle + z - total] for total, chance in law.items()) for z in seen]
    )


def loss(first: Sequence[Values], second: Sequence[Values], noise: np.ndarray) -> float:
    """The largest log ratio of what is seen on all axes, which are independent of each other."""
    pairs = [(total_law(a, noise), total_law(b, noise)) for a, b in zip(first, second, strict=True)]
    return max(sum(float(np.max(sign * np.log(a / b))) for a, b in pairs) for sign in (1.0, -1.0))


@pytest.mark.parametrize("shape", [1.0, 1.5, 3.7])
@pytest.mark.parametrize("rate", [0.15, 0.5, 1.3])
def test_moves_of_several_people_on_two_axes(shape: float, rate: float) -> None:
    noise = polya_law(shape, rate, REACH)
    generator = np.random.default_rng(3)
    slope = rounded_slope(rate)
    largest = 0.0
    for trial in range(60):
        people = 1 + trial % 3
        before = generator.choice([0.0, 0.5, 1.0, 1.25, 2.0], (2, people)) + generator.choice(
            [0.0, 1e-6, 0.3], (2, people)
        )
        sizes = generator.choice([0.0, 1e-7, 1e-3, 0.2, 1.0, 1.7], (2, people))
        after = np.clip(before + sizes * generator.choice([-1.0, 1.0], (2, people)), 0.0, None)
        moved = float(np.abs(after - before).sum())
        if moved > 0.0:
            cost = loss(before.tolist(), after.tolist(), noise)
            assert cost <= slope * moved * (1.0 + 1e-7) + 1e-12
            largest = max(largest, cost / (slope * moved))
    assert largest <= 1.0 + 1e-6


@check_all("shape", [1.0, 2.0])
def test_the_promise_is_attained_and_a_smaller_one_would_be_broken(shape: float) -> None:
    """A small move from a whole number costs (e^rate - 1) per unit, not rate.

    With more noise it comes near that in the tail.
    """
    rate = 1.0
    noise = polya_law(shape, rate, REACH)
    cost = loss([[2.0]], [[2.0 + 1e-6]], noise) / 1e-6
    assert cost <= rounded_slope(rate) * (1.0 + 1e-4)
    assert cost > 1.5 * rate
    if shape == 1.0:
        assert cost >= 0.9999 * rounded_slope(rate)
        both = loss([[2.0], [0.0]], [[2.0 + 1e-6], [1e-6]], noise) / 2e-6
        assert both >= 0.9999 * rounded_slope(rate)


def test_people_who_keep_the_sum_are_seen_all_the_same() -> None:
    """.5 and .5 become 0 and 1: same mean total, another law; costs add over people."""
    cost = loss([[0.5, 0.5]], [[0.0, 1.0]], polya_law(1.0, 0.5, REACH))
    assert 0.1 < cost <= rounded_slope(0.5)


def test_golden() -> None:
    assert rounded_rate(0.02) == pytest.approx(0.019802627296, abs=5e-13)
    for slope in (1e-12, 1e-6, 0.02, 0.7, 30.0):
        rate = rounded_rate(slope)
        assert rounded_slope(rate) <= slope
        assert rate == pytest.approx(math.log1p(slope), rel=1e-14)
    assert rounded_slope(1000.0) == math.inf


@pytest.mark.parametrize(
    ("shape", "rate"), [(0.1, 0.3), (0.02, 1.0), (0.6, 0.05), (1.0, 0.4), (2.5, 0.2)]
)
def test_one_report_alone(shape: float, rate: float) -> None:
    """Shares of noise, whose shape is below 1, and whole ones; both axes move."""
    noise = polya_law(shape, rate, REACH)
    polya = Polya(Fraction(shape).limit_denominator(100), rate)
    slope = rounded_slope(rate) if shape >= 1.0 else math.inf
    profile = RoundedReport(AdditiveNoise(polya), 1, slope)
    generator = np.random.default_rng(5)
    largest = 0.0
    for radius in (1e-6, 1e-3, 0.3, 0.999, 1.0, 1.5, 4.0, 11.3):
        promise = profile.pure(radius)
        for _ in range(12):
            angle = generator.choice([0.0, math.pi / 4, generator.uniform(0.0, math.pi / 2)])
            start = generator.choice([0.0, 0.5, 1.0 - 1e-3, 0.9], 2)
            end = start + radius * np.array([math.cos(angle), math.sin(angle)])
            cost = loss(start[:, None].tolist(), end[:, None].tolist(), noise)
            assert cost <= promise * (1.0 + 1e-6) + 1e-11
            largest = max(largest, cost / promise)
    assert largest > 0.9


def test_a_report_over_several_rounds_and_what_is_no_number() -> None:
    axis = AdditiveNoise(Polya(Fraction(1, 10), 0.3))
    once = RoundedReport(axis)
    thrice = RoundedReport(axis, 3)
    assert thrice.pure(2.0) == pytest.approx(3.0 * once.pure(2.0))
    assert once.pure(0.0) == once.delta(0.0, 0.0) == 0.0
    assert once.delta(once.pure(2.0), 2.0) == 0.0
    assert 0.0 < once.delta(0.5 * once.pure(2.0), 2.0) < 1.0
    radii = np.geomspace(1e-6, 50.0, 200)
    costs = [once.pure(radius) for radius in radii]
    assert all(nearer <= farther * (1.0 + 1e-12) for nearer, farther in itertools.pairwise(costs))
