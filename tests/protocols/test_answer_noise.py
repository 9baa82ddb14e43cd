"""Noise on answer vectors: the sampled law is the accounted one."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from tests.oracles.goodness_of_fit import TOO_UNLIKELY, p_value

from metricshuffle.noise.grid_laplace import GridLaplace
from metricshuffle.protocols.answer_features import TreeEdges
from metricshuffle.protocols.answer_noise import AnswerNoise, Noise
from metricshuffle.queries.exact_features import ExactAnswers
from metricshuffle.queries.user_queries import UserHistogram
from metricshuffle.randomness import Randomness
from metricshuffle.simulation.fast_draws import simulated_noise
from metricshuffle.spaces import Clustered, users_of

KINDS: tuple[Noise, ...] = ("l1", "l2", "linf", "gaussian")


def test_laplace_reports_have_the_exact_law_of_the_sum_rounded_down() -> None:
    noise = AnswerNoise("l1", 3.0, 2, cell=2.0)
    users = 20_000
    answers = ExactAnswers(np.tile([5.0, -7.0], (users, 1)), np.full(users, 3), 1)
    cells = noise.on_each(answers, Randomness.seeded("law"))
    grid = GridLaplace.at_least(3.0, Fraction(2))
    for column, value in enumerate((Fraction(5, 6), Fraction(-7, 6))):
        masses = [grid.mass(value, cell) for cell in range(-15, 16)]
        assert p_value(cells[:, column], masses, lowest=-15) > TOO_UNLIKELY


@pytest.mark.parametrize("rate", [0.3, 1.0, 7.7, 25.0])
def test_the_exact_law_of_a_report_keeps_the_rate_for_users_of_any_size(rate: float) -> None:
    """Two points, up to three items: every cell, both directions, the sampler's masses."""
    people = users_of(Clustered(2, 2, 0.3))
    query = UserHistogram(people)
    coordinates = TreeEdges().coordinates(query)
    noise = AnswerNoise("l1", 1.0 / rate, coordinates.numbers.shape[1], cell=1.0 / rate)
    grid = GridLaplace.at_least(noise.scale, Fraction(noise.cell))
    sets = [
        items
        for size in (1, 2, 3)
        for items in itertools.combinations_with_replacement((0, 1, 2), size)
    ]
    answers = ExactAnswers.of(coordinates, *people.coded([list(items) for items in sets]))
    laws = []
    for user in range(len(sets)):
        exact = answers.exact(user)
        laws.append(
            np.array(
                [[math.log(grid.mass(value, cell)) for cell in range(-8, 9)] for value in exact]
            )
        )
    for a, b in itertools.combinations(range(len(sets)), 2):
        loss = (
            np.abs(laws[a] - laws[b]).max(axis=1).sum()
        )  # coordinates are independent: the worst cells together
        assert loss <= rate * people.distance(list(sets[a]), list(sets[b])) * (1.0 + 1e-9) + 1e-12


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("draws", [1, 2, 7])
def test_mean_size_and_variance_are_those_of_the_noise(kind: Noise, draws: int) -> None:
    noise = AnswerNoise(kind, 1.7, 3)
    generator = np.random.default_rng(5)
    drawn = np.array([simulated_noise(noise, draws, generator) for _ in range(8_000)])
    assert noise.mean_size(draws) == pytest.approx(np.abs(drawn).mean(), rel=0.03)
    assert noise.variance * draws == pytest.approx((drawn**2).mean(), rel=0.08)


def test_mean_size_of_many_laplace_numbers_joins_up() -> None:
    noise = AnswerNoise("l1", 1.0, 1)
    assert noise.mean_size(1) == pytest.approx(1.0, rel=1e-12)
    assert noise.mean_size(2) == pytest.approx(1.5, rel=1e-12)
    assert noise.mean_size(1001) / math.sqrt(1001) == pytest.approx(
        noise.mean_size(1000) / math.sqrt(1000), rel=1e-6
    )
    assert noise.mean_size(10**5) / 10**5 * 0.04 == pytest.approx(1.42729929292e-4, rel=1e-5)


@pytest.mark.parametrize("kind", KINDS)
def test_what_leaves_is_unbiased_and_as_wide_as_it_says(kind: Noise) -> None:
    noise = AnswerNoise(kind, 0.5, 2)
    users = 1000
    answers = ExactAnswers(np.tile([3.0, -1.0], (users, 1)), np.full(users, 2), 2)
    cells = noise.on_each(answers, Randomness.seeded(f"wide {kind}"))
    middles = noise.middles(cells, 1)
    assert cells.dtype == np.int64
    assert cells.shape == (users, 2)
    deviation = math.sqrt(noise.variance)
    assert np.abs(middles.mean(axis=0) - [0.375, -0.125]).max() < 5 * deviation / math.sqrt(users)
    np.testing.assert_allclose(middles.std(axis=0), deviation, rtol=0.2)
    together = noise.middles(cells.sum(axis=0), users)
    np.testing.assert_allclose(together, middles.sum(axis=0), rtol=1e-12)


def test_only_laplace_noise_is_exact() -> None:
    assert AnswerNoise("l1", 1.0, 5).inexactness == 0.0
    for kind in KINDS[1:]:
        assert 0.0 < AnswerNoise(kind, 1.0, 5).inexactness < 2.0**-95


def test_the_scale_is_never_less_than_was_asked_for() -> None:
    for scale in (1e-9, 0.04, 1 / 3, 7e8):
        noise = AnswerNoise("l1", scale, 1)
        assert GridLaplace.at_least(noise.scale, Fraction(noise.cell)).scale >= Fraction(scale)
        assert 512 <= scale / noise.cell <= 2048


def test_reports_drawn_in_parts_belong_to_their_users(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("metricshuffle.protocols.answer_noise.NUMBERS_AT_ONCE", 7)
    answers = ExactAnswers(
        np.arange(60.0).reshape(20, 3) * 1000.0 * 6.0, np.array([1, 2, 3, 6] * 5), 0
    )
    noise = AnswerNoise("l1", 1.0, 3)
    middles = noise.middles(noise.on_each(answers, Randomness.seeded(1)), 1)
    assert np.abs(middles - answers.floats()).max() < 30.0  # of answers at least 1000 apart
