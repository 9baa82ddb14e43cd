"""Intervals of noisy vectors cover as stated, with whole noise and rounded averages."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from scipy.sparse import csr_array

import metricshuffle as ms
from metricshuffle.estimation.interval_widths import SumNoise
from metricshuffle.protocols.features import Cells, Edges, Features, Ramps, space_of
from metricshuffle.protocols.noisy_vectors import NoisyVectors
from metricshuffle.protocols.tally import Batch, Shuffled
from metricshuffle.queries.query import Estimate, Query
from metricshuffle.randomizers import BoundedGeometric
from metricshuffle.simulation.simulated_releases import covered_share, crowd_of
from metricshuffle.spaces import Clustered, Space, Users, users_of

MISSES = (0.5, 0.2, 0.1, 0.05, 0.01, 1e-3, 1e-4, 1e-6)


def protocol_of(query: Query, features: Features, factor: float, **more: Any) -> NoisyVectors:
    coordinates = features.table(space_of(query)).shape[1]
    fields = {
        "name": "noisy-vectors",
        "trusted": "aggregator",
        "modulus": 2**60,
        "sharers": 100,
        **more,
    }
    return NoisyVectors(features=features, factor=factor, coordinates=coordinates, **fields)


def estimate_of(query: Query, protocol: NoisyVectors, people: int, sums: Any) -> Estimate:
    residues = [int(total) % (protocol.modulus or 1) for total in sums]
    return protocol.estimate(
        query, Shuffled(Batch("", 1, True), people, people, {0: residues}, protocol.modulus)
    )


def beyond(laws: list[tuple[float, float]]) -> Any:
    """P(|S| >= m) for m = 0, 1, ..., S a sum of Polya variables.

    From their characteristic functions, for these shapes and rates.
    """
    reach = int(60 + 45 / min(rate for _, rate in laws))
    angles = 2.0 * np.pi * np.fft.fftfreq(2 * reach + 1)
    product = 1.0
    for shape, rate in laws:
        p = math.exp(-rate)
        product = product * ((1.0 - p) ** 2 / (1.0 - 2.0 * p * np.cos(angles) + p * p)) ** shape
    masses = np.maximum(np.fft.ifft(product).real, 0.0)[: reach + 1]
    tails = 2.0 * np.cumsum(masses[::-1])[::-1]
    tails[0] = 1.0
    return tails


@pytest.mark.parametrize("rate", [0.02, 0.1, 0.5, 0.96, 1.5, 2.0, 2.4, 3.16, 4.57, 5.5, 8.0, 900.0])
def test_noise_leaves_its_radius_no_more_often_than_said_and_no_less_where_its_law_is_known(
    rate: float,
) -> None:
    """One law: the smallest radius. Two rates: a bound. One side: half is missed."""
    both = csr_array(np.array([[1.0, 0.0], [1.0, -1.0]]))
    for shape in (Fraction(1), Fraction(13, 10), Fraction(5), Fraction(1, 3)):
        for other in (rate, 0.3, 2.4):
            noise = SumNoise(shape, np.array([rate, other]), 1)
            tails = [
                beyond([(float(shape), rate)]),
                beyond([(float(shape), rate), (float(shape), other)]),
            ]
            for miss in MISSES:
                for one_sided in (False, True):
                    radii = np.floor(noise.radii(both, miss, one_sided=one_sided)).astype(int)
                    for radius, tail, known in zip(
                        radii, tails, (True, rate == other), strict=True
                    ):
                        times = 0.5 if one_sided else 1.0
                        # (tails by Fourier's transform are right to about 1e-12)
                        assert (
                            times * tail[min(radius + 1, len(tail) - 1)]
                            <= miss * (1.0 + 1e-9) + 1e-12
                        )
                        assert (
                            not known
                            or radius == 0
                            or times * tail[min(radius, len(tail) - 1)]
                            >= miss * (1.0 - 1e-4) - 1e-12
                        )


def test_noise_whose_law_is_too_wide_to_list_is_bounded() -> None:
    """Noise of a billion people, whose law would have a hundred million entries."""
    noise = SumNoise(Fraction(10**9), np.array([0.01]), 1)
    radius = noise.radii(csr_array(np.array([[1.0]])), 0.05)[0]
    assert 1.96 < radius / math.sqrt(noise.variances[0]) < 2.8


def test_released_intervals_of_little_noise() -> None:
    """At rate 2.4 noise is nonzero in one of six releases, once not covered at 95 %."""
    query = ms.Histogram(ms.Categories(["a", "b", "c"]))
    protocol = protocol_of(query, Cells(), 2.4)
    truth = np.array([50, 30, 20])
    p = math.exp(-float(protocol.rates(space_of(query))[0]))
    missed = 0.0
    for noise in range(-8, 9):
        low, high = estimate_of(query, protocol, 100, truth + np.array([noise, 0, 0])).interval(
            0.95
        )
        missed += (not low[0] <= 50.0 <= high[0]) * (1.0 - p) / (1.0 + p) * p ** abs(noise)
    assert 0.001 < missed <= 0.05


@pytest.mark.parametrize("features", [Ramps(1), Cells()], ids=str)
def test_averages_that_are_rounded_stay_inside(features: Features) -> None:
    """Ten million people with 0, 1 and 3: rounding a third of 38,000 units exceeds the noise.

    It always goes the same way.
    """
    query = ms.UserHistogram(Users(Space(ms.Integers(0, 3)), None))
    people = 10**7
    protocol = protocol_of(
        query, features, 0.16 / 38_000, sharers=people, units=38_000, most_items=20
    )
    sent = protocol._features_of(np.array([0, 1, 3]), np.array([3]), space_of(query))[0]
    estimate = estimate_of(query, protocol, people, people * sent)
    truth = np.array([1.0, 1.0, 0.0, 1.0]) * people / 3.0
    assert np.abs(estimate.totals - truth).max() > 3.0 * estimate.standard_errors.max()
    for method in ("normal", "bernstein"):
        low, high = estimate.interval(0.95, method=method)
        assert np.all((low <= truth) & (truth <= high))


def test_a_plan_says_how_often_what_it_says_of_smoothed_shares_holds() -> None:
    """Simulated coverage of upper limits and shares nearby, where they are stated."""
    query = ms.Histogram(ms.Integers(0, 15))
    people = 2000
    truth = (
        np.bincount(np.minimum(np.random.default_rng(4).poisson(4, people), 15), minlength=16)
        / people
    )
    generator = np.random.default_rng(1)
    crowd = crowd_of(query, truth, people, generator)
    protocol = protocol_of(query, Ramps(5), 0.1, sharers=people)
    assert 0.93 < covered_share(protocol, query, crowd, 64, generator) <= 1.0
    randomized = protocol.model_copy(update={"floor": BoundedGeometric(15, 1.0)})
    assert math.isnan(covered_share(randomized, query, crowd, 4, generator))


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("query", "features", "factor", "units"),
    [
        (ms.Histogram(ms.Integers(0, 9)), Ramps(1), 0.15, 1),
        (ms.Histogram(ms.Integers(0, 9)), Ramps(1), 2.5, 1),
        (ms.Histogram(ms.Grid(4, 3)), Cells(), 1.4, 1),
        (ms.UserHistogram(Users(Space(ms.Integers(0, 5)), 3)), Ramps(1), 0.4, 3),
        (ms.UserHistogram(Users(users_of(Clustered(2, 3, 0.3)).items_in, 2)), Edges(), 3.0, 2),
    ],
    ids=lambda part: str(part)[:12],
)
@pytest.mark.parametrize("sharers", [150, pytest.param(60, marks=pytest.mark.slow)])
def test_shares_and_bands_hold_over_many_releases(
    query: Query, features: Features, factor: float, units: int, sharers: int
) -> None:
    """95 % intervals, joint intervals and the cumulative band over 400 releases.

    The releases are drawn by another sampler.
    """
    generator = np.random.default_rng(11)
    people = 150
    runs = 400
    protocol = protocol_of(query, features, factor, sharers=sharers, units=units)
    space = space_of(query)
    size = space.domain.size or 0
    table = features.table(space)
    rates = protocol.rates(space)
    held = np.minimum(generator.poisson(size / 3.0, people * units), size - 1)
    truth = np.bincount(held, minlength=size) / (people * units)
    single = np.zeros(size)
    together = 0
    bands = 0
    for _ in range(runs):
        noise = np.subtract(
            *(generator.negative_binomial(people / sharers, -np.expm1(-rates)) for _ in range(2))
        )
        estimate = estimate_of(query, protocol, people, table[held].sum(axis=0) + noise)
        low, high = (end / people for end in estimate.interval(0.95))
        single += (low <= truth + 1e-12) & (truth <= high + 1e-12)
        low, high = (end / people for end in estimate.interval(0.95, simultaneous=True))
        together += bool(np.all((low <= truth + 1e-12) & (truth <= high + 1e-12)))
        if estimate.band is not None:
            low, high = estimate.band(0.95)
            bands += bool(
                np.all((low <= np.cumsum(truth) + 1e-9) & (np.cumsum(truth) <= high + 1e-9))
            )
    least = 0.95 - 4.0 * math.sqrt(0.95 * 0.05 / runs)
    assert single.min() / runs >= least
    assert together / runs >= least
    assert bands / runs >= least or not isinstance(features, Ramps)
