"""Channel as its rounded table: validation, guarantee, sampler, inversion and blanket."""

from __future__ import annotations

import itertools
import json
import math
from fractions import Fraction

import numpy as np
import pytest
from tests.oracles.goodness_of_fit import TOO_UNLIKELY, p_value
from tests.tables import check_all

from metricshuffle.errors import DomainError, InputError, NotCertified
from metricshuffle.randomizers import Channel, KaryRandomizedResponse, Randomizer, _channel_kernels
from metricshuffle.randomizers.dyadic_weights import TOTAL_WEIGHT
from metricshuffle.randomness import Randomness

SMALL = [[0.5, 0.3, 0.2], [0.2, 0.5, 0.3]]
LINE = np.abs(np.subtract.outer(np.arange(3.0), np.arange(3.0)))


def test_weights_are_integers_that_sum_to_the_total_and_keep_the_support() -> None:
    channel = Channel([[1.0, 0.0, 0.0], [1e-30, 1.0 - 1e-12, 1e-12], [1 / 3, 1 / 3, 1 / 3]])
    assert [sum(int(weight) for weight in row) for row in channel.weights] == [TOTAL_WEIGHT] * 3
    assert channel.weights[0].tolist() == [TOTAL_WEIGHT, 0, 0]
    assert channel.weights[1, 0] == 1  # what can happen is not rounded to what cannot
    assert channel.local_epsilon(0, 1) == math.inf
    assert channel.reports(np.zeros(1000, dtype=np.int64), Randomness.seeded(1)).max() == 0


@check_all(
    ("matrix", "told"),
    [
        ([[0.5, 0.5], [0.5, 0.4]], r"row 1 \(counting from 0\) sums to 0.9"),
        ([[0.5, 0.5], [1.5, -0.5]], r"row 1 \(counting from 0\), column 1 is -0.5"),
        ([[0.5, math.nan]], r"column 1 is nan"),
        ([0.5, 0.5], "a row per input"),
        ([[]], "a row per input"),
    ],
)
def test_a_matrix_that_is_no_channel_is_refused(matrix: list[list[float]], told: str) -> None:
    with pytest.raises(InputError, match=told):
        Channel(matrix)


def test_a_false_claim_is_refused_with_the_true_value_and_the_pair() -> None:
    true = math.log(0.5 / 0.2)
    assert Channel(SMALL, epsilon=true).local_epsilon() == pytest.approx(true, abs=1e-14)
    with pytest.raises(InputError, match=r"not 0.9-private: rows 0 and 1 .* 0.916290731"):
        Channel(SMALL, epsilon=0.9)
    rows = np.exp(-0.5 * LINE)
    rows /= rows.sum(axis=1, keepdims=True)
    Channel(rows, distances=LINE, rate=1.0)
    with pytest.raises(
        InputError, match=r"rows 0 and 2 .* have epsilon 1\D.* but rate \* distance is 0.2"
    ):
        Channel(rows, distances=LINE, rate=0.1)
    with pytest.raises(InputError, match="triangle"):
        Channel(rows, distances=LINE**2, rate=1.0)
    with pytest.raises(InputError, match="2 points, but the matrix has 3 rows"):
        Channel(rows, distances=[[0, 1], [1, 0]])


def test_the_guarantee_is_never_below_the_rational_truth() -> None:
    rng = np.random.default_rng(5)
    for _ in range(20):
        rows = rng.dirichlet(np.full(5, 0.3), size=4) + 1e-18
        channel = Channel(rows / rows.sum(axis=1, keepdims=True))
        for a, b in itertools.combinations(range(4), 2):
            pairs = [
                (int(x), int(y))
                for x, y in zip(channel.weights[a], channel.weights[b], strict=True)
            ]
            ratio = max(max(Fraction(x, y), Fraction(y, x)) for x, y in pairs)
            told = channel.local_epsilon(a, b)
            truth = math.log(ratio.numerator) - math.log(ratio.denominator)
            assert truth - 1e-14 <= told <= truth + 1e-13
        assert channel.local_epsilon() == channel.pairwise_epsilon().max()


def test_within_rounds_towards_more_noise() -> None:
    for rate in (0.01, 1.0, 30.0):
        rows = np.exp(-0.5 * rate * LINE)
        channel = Channel.within(rows / rows.sum(axis=1, keepdims=True), rate * LINE)
        assert np.all(channel.pairwise_epsilon() <= rate * LINE)


def test_a_pair_beyond_its_limit_is_found_wherever_it_is() -> None:
    """Every pair: neighbours, within and across blocks of rows, in either order."""
    weights = np.random.default_rng(7).integers(2**50, 2**58, size=(70, 9)).astype(np.uint64)
    limits = _channel_kernels.largest_ratios(weights)
    assert _channel_kernels.first_beyond(weights, limits) == (-1, -1)
    for pair in zip(*np.tril_indices(70, -1), strict=True):
        kept, limits[pair] = limits[pair], np.nextafter(limits[pair], 0.0)
        assert _channel_kernels.first_beyond(weights, limits) == pair
        limits[pair] = kept


def test_the_profile_follows_the_distance() -> None:
    rows = np.exp(-LINE)
    rows /= rows.sum(axis=1, keepdims=True)
    profile = Channel(rows, distances=LINE).local_profile()
    far = Channel(rows).local_profile()
    assert profile.pure(0.5) == 0.0
    assert profile.pure(1) < profile.pure(2) == far.pure(1)
    for epsilon in (0.0, 0.3, 1.0):
        exact = max(
            np.maximum(rows[a] - math.exp(epsilon) * rows[b], 0.0).sum()
            for a, b in ((0, 1), (1, 0), (1, 2), (2, 1))
        )
        assert exact <= profile.delta(epsilon, 1) <= exact + 1e-12
    assert profile.delta(profile.pure(2), 2) == 0.0


def test_the_sampler_follows_the_table() -> None:
    rng = np.random.default_rng(2)
    rows = rng.dirichlet(np.full(300, 0.2), size=3)
    channel = Channel(rows)
    values = np.repeat(np.arange(3), 40_000)
    reports = channel.reports(values, Randomness.seeded(3))
    for x in range(3):
        assert (
            p_value(reports[values == x].astype(np.int64), channel.law(x).tolist()) > TOO_UNLIKELY
        )
    with pytest.raises(DomainError, match=r"row 1 .* holds 3"):
        channel.reports([0, 3], Randomness.seeded(1))
    with pytest.raises(DomainError, match="whole numbers"):
        channel.reports([0.5], Randomness.seeded(1))


def test_inversion_is_unbiased_or_refused() -> None:
    rng = np.random.default_rng(4)
    channel = Channel(rng.dirichlet(np.ones(7), size=5))
    assert np.abs(channel.rows() @ channel.debiasing() - np.eye(5)).max() < 1e-13
    assert channel.totals(np.arange(7)) == pytest.approx(channel.debiasing().sum(axis=0))
    for rows in ([[0.5, 0.5]] * 2, [[0.2, 0.8], [0.5, 0.5], [0.35, 0.65]]):
        with pytest.raises(NotCertified, match="condition number is"):
            Channel(rows).debiasing()
    with pytest.raises(DomainError, match=r"report 1 .* is 7"):
        channel.totals([0, 7])


def test_json_both_ways() -> None:
    channel = Channel(SMALL, epsilon=1.0, distances=[[0, 2], [2, 0]], rate=0.5)
    again = Randomizer.of_kind(json.loads(channel.model_dump_json()))
    assert isinstance(again, Channel)
    assert np.array_equal(again.weights, channel.weights)
    assert again.distance(0, 1) == 2.0


def test_k_ary_response_is_its_channel_to_the_last_bit() -> None:
    response = KaryRandomizedResponse(6, epsilon=1.5)
    channel = Channel(response.rows())
    assert np.array_equal(channel.rows(), response.rows())
    assert np.array_equal(np.sort(channel.blanket(1, 4).a), np.sort(response.blanket(1, 4).a))
