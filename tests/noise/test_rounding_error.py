"""Intervals for sums of randomly rounded values: enumeration, and a plan end to end."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from tests.tables import check_all

import metricshuffle as ms
from metricshuffle.noise.polya import Geometric, Polya
from metricshuffle.noise.random_rounding import FEW_PEOPLE, rounded_half_width, rounding_tail
from metricshuffle.noise.symmetric_pmf import SymmetricLaw
from metricshuffle.numerics.types import Floats
from metricshuffle.randomizers.additive_randomizer import AdditiveRandomizer

PARTS = 8


def rounding_law(weights: tuple[int, ...]) -> tuple[Floats, Floats]:
    """Values of S = sum (B_i - w_i), w_i = weights_i / PARTS, and their chances."""
    law = np.ones(1)
    for weight in weights:
        law = np.convolve(law, [1.0 - weight / PARTS, weight / PARTS])
    return np.asarray(np.arange(len(law)) - sum(weights) / PARTS, dtype=np.float64), law


def missed(law: SymmetricLaw, values: Floats, chances: Floats, half: float) -> float:
    """P(|Z + S| > half), by summing over both."""
    noise = np.concatenate([law.mass[:0:-1], law.mass])
    total = np.arange(-law.radius, law.radius + 1)[:, None] + values[None, :]
    return float(np.sum((noise[:, None] * chances[None, :])[np.abs(total) > half + 1e-9]))


@check_all("people", [1, 2, 3, 4, 5])
def test_tails_of_rounding_hold_for_every_data_set(people: int) -> None:
    sizes = np.arange(0.0, people + 1.0, 0.125)
    bound = rounding_tail(people, sizes)
    worst = np.zeros(len(sizes))
    for weights in itertools.combinations_with_replacement(range(PARTS), people):
        values, chances = rounding_law(weights)
        worst = np.maximum(
            worst, [float(np.sum(chances[np.abs(values) > size + 1e-9])) for size in sizes]
        )
    assert np.all(worst <= bound + 1e-15)
    assert np.all(np.diff(bound) <= 1e-15)


@check_all("people", [FEW_PEOPLE - 100, FEW_PEOPLE])
def test_the_normal_bound_lies_above_the_binomial_one(people: int) -> None:
    sizes = np.arange(1.0, 60.0)
    normal = np.array([math.erfc((size - 1.0) * math.sqrt(2.0 / people)) for size in sizes])
    few = rounding_tail(people, sizes)
    assert np.all(few <= normal + 1e-15)
    # (the truth is half a cell from either side)
    later = np.array([math.erfc((size - 0.4) * math.sqrt(2.0 / people)) for size in sizes])
    assert np.all(few[:40] >= later[:40])


@check_all("people", [1, 2, 3, 4, 5])
@check_all("rate", [0.2, 0.7, 2.0])
def test_intervals_cover_every_data_set(people: int, rate: float) -> None:
    law = Geometric(rate).law(-60.0)
    for miss in (0.3, 0.05, 0.01):
        half = rounded_half_width(law, people, miss)
        all_of_them = [
            missed(law, *rounding_law(weights), half)
            for weights in itertools.combinations_with_replacement(range(PARTS), people)
        ]
        assert max(all_of_them) <= miss
        # One and a half cells less are not enough: nothing narrower could be offered by much.
        narrow = [
            missed(law, *rounding_law(weights), half - 1.5)
            for weights in itertools.combinations_with_replacement(range(PARTS), people)
        ]
        assert max(narrow) > miss or rate == 2.0


@check_all(("people", "rate"), [(50, 0.3), (200, 1.0), (400, 0.1), (1000, 0.3), (5000, 1.0)])
def test_the_worst_data_set_is_covered_and_hardly_more(people: int, rate: float) -> None:
    """All values halfway between two cells, or slightly off, for an unfavourable lattice."""
    randomizer = AdditiveRandomizer(span=1000, shape=Fraction(1, people), rate=rate, granularity=16)
    half = randomizer.half_width(people, 0.95, people) / 16
    law = Polya(Fraction(1), rate).law(-60.0)
    counts = np.arange(people + 1)
    coverage = []
    for share in (0.5 + np.linspace(-1.0, 1.0, 9) / people).tolist():
        log_chances = [
            math.lgamma(people + 1)
            - math.lgamma(k + 1)
            - math.lgamma(people - k + 1)
            + k * math.log(share)
            + (people - k) * math.log1p(-share)
            for k in counts.tolist()
        ]
        chances = np.exp(log_chances)
        likely = chances > 1e-12
        coverage.append(
            1.0
            - missed(law, (counts - people * share)[likely], chances[likely], half)
            - float(np.sum(chances[~likely]))
        )
    assert 0.95 <= min(coverage) <= 0.97
    independent = 1.96 * math.sqrt(0.25 * people + law.variance())
    assert half <= 1.06 * independent + 2.0


@pytest.mark.slow
def test_a_mean_of_reals_is_covered_nineteen_times_in_twenty() -> None:
    query = ms.Mean(ms.Interval(0.0, 1.0))
    target = ms.Target(1.0, 1e-6, 0.25)
    plan = ms.plan(
        query, target, users=400, granularity=0.25, protocols=["polya-shuffle"], encoding="modular"
    )
    values = np.full(400, 0.125)
    inside = 0
    runs = 300
    widths = []
    for _ in range(runs):
        low, high = plan.run(values).interval()
        inside += low <= 0.125 <= high
        widths.append(high - low)
    # (a binomial of 300 draws at 0.95 is below 270 once in ten thousand times)
    assert 270 <= inside < runs
    errors = plan.choice.standard_error
    assert errors is not None
    assert np.mean(widths) <= 2.4 * 1.96 * errors
