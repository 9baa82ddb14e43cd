"""Errors of users' means in few units and of means by group, beside tables of simulations."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from tests.tables import check_all

import metricshuffle as ms
from metricshuffle.estimation.interval_widths import SumNoise
from metricshuffle.noise.samplers import sample_polya_rows
from metricshuffle.protocols.features import GroupFeatures, TableColumns, space_of
from metricshuffle.protocols.features.group_features import MEAN_PLACES, group_mean_error
from metricshuffle.protocols.noisy_vectors import NoisyVectors

PEOPLE = 1000
RUNS = 600


@pytest.mark.thorough
@check_all("units, known", [(1, 0.0123), (2, 0.0073), (5, 0.0056), (10, 0.0053), (50, 0.0048)])
def test_a_mean_of_items_in_few_units(units: int, known: float) -> None:
    """Five items in 0..100 each, epsilon 2 at 10: rounding at random costs less in more units."""
    query = ms.UserLinearQuery.average(ms.users_of(ms.Integers(0, 100)))
    space = space_of(query)
    features = TableColumns.of(query, balanced=False)
    slope = features.slope(space, features.weights(space))
    protocol = NoisyVectors(
        name="noisy-vectors",
        trusted="curator",
        features=features,
        coordinates=1,
        factor=0.2 / (slope * units),
        units=units,
        rounding="random",
        modulus=2**40,
    )
    (scale,) = features.scales
    (offset,) = features.offsets
    items = np.random.default_rng(5).integers(0, 101, (PEOPLE, 5))
    inputs = query.inputs(items.tolist(), 1.0)
    randomness = ms.Randomness.seeded(5)
    rates = protocol._exact_rates(space)
    assert float(rates[0]) == pytest.approx(np.log1p(protocol.factor), rel=1e-6)
    noise = sample_polya_rows(Fraction(1), rates, RUNS, randomness)[:, 0]
    sums = np.array([protocol._values(inputs, randomness).sum() for _ in range(RUNS)])
    means = offset + scale * (sums + noise) / (PEOPLE * units)
    assert np.abs(means - items.mean()).mean() == pytest.approx(known, rel=0.1)


@check_all("people, known", [(8545, 0.02), (2258, 0.08), (173, 0.97), (105, 1.72)])
def test_means_by_group_if_labels_cost_as_much_as_the_range(people: int, known: float) -> None:
    """Range 1000, rate 0.01, epsilon 10 for another label: the noise is that of the numbers."""
    query = ms.ByGroup(
        ms.Categories(["a", "b", "c", "d"]),
        ms.Mean(ms.Integers(0, 1000)),
        label_distance=10.0 / 0.01,
    )
    features = GroupFeatures(form="up-down", groups=4, top=1000)
    space = space_of(query)
    weights = features.weights(space)
    rates = weights * (0.01 / features.slope(space, weights))
    assert rates == pytest.approx(0.005, rel=1e-12)
    noise = SumNoise(Fraction(1), rates, 11_081)
    errors = [
        group_mean_error("up-down", noise, people, 1000, place * 1000) for place in MEAN_PLACES
    ]
    assert np.mean(errors) == pytest.approx(known, rel=0.1, abs=0.005)
