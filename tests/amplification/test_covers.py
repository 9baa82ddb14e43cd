"""Guarantees at every distance by the best bound: data sets, single answers, rejections."""

from __future__ import annotations

import itertools
import math
import random
from fractions import Fraction

import numpy as np
import pytest
from tests.oracles.shuffled_brute_force import every_data_set
from tests.tables import check_all

from metricshuffle.amplification.best_bound import BestBoundProfile
from metricshuffle.amplification.pair_cover import distances_of, pairs_within
from metricshuffle.errors import NotCertified
from metricshuffle.privacy.profile import Shape
from metricshuffle.privacy.target import Target
from metricshuffle.randomizers import (
    BoundedGeometric,
    Channel,
    ExponentialMechanism,
    KaryRandomizedResponse,
    LaplaceOnInterval,
    PlanarGeometric,
    Randomizer,
    Rappor,
)


def profile_of(randomizer: Randomizer, users: int) -> BestBoundProfile:
    return BestBoundProfile(randomizer, users, randomizer.diameter)


@check_all("shape", ["linear", "flat"])
def test_a_kept_promise_is_true_in_fractions(shape: Shape) -> None:
    """Channels of three or four points on a line: no pair exceeds the guarantee, every data set."""
    source = random.Random(17)
    kept = 0
    for turn in range(40):
        inputs = source.choice((3, 4))
        weights = [[source.randint(3, 6) for _ in range(2)] for _ in range(inputs)]
        weights = [[*row, 20 - sum(row)] for row in weights]
        places = np.cumsum([0.0, *(source.choice((0.5, 1.0, 1.5)) for _ in range(inputs - 1))])
        apart = np.abs(places[:, None] - places)
        profile = profile_of(
            Channel(np.array(weights) / 20.0, distances=apart), users := source.randint(2, 4)
        )
        distance = float(source.choice(sorted(set(apart[apart > 0.0].tolist()))))
        steps = Fraction(
            source.randint(1, 12), 20
        )  # e^epsilon at the distance is 1 + steps; (1 + steps)^(1/2) and so on closer by
        epsilon = math.log(1 + steps)
        delta = 10.0 ** source.uniform(-3.0, -0.7)
        if not profile.covers(epsilon, delta, distance, shape):
            continue
        assert profile.nearly_covers(epsilon, delta, distance, shape), turn
        kept += 1
        for a, b in itertools.permutations(range(inputs), 2):
            if apart[a, b] <= distance:
                allowed = epsilon * (apart[a, b] / distance if shape == "linear" else 1.0)
                growth = Fraction(math.exp(allowed)).limit_denominator(10**6)
                truth = max(every_data_set(weights, a, b, users, growth).values())
                assert float(truth) <= delta * (1.0 + 1e-9) + 1e-6, (
                    weights,
                    a,
                    b,
                )  # (the growth is rounded to 1e-6)
    assert kept > 10


@check_all(
    ("randomizer", "users", "distance"),
    [
        (BoundedGeometric(12, 0.3), 20_000, 4.0),
        (BoundedGeometric(12, 0.3), 20_000, 12.0),
        (PlanarGeometric(5, 4, 0.3), 5000, 2.0),
        (KaryRandomizedResponse(5, 2.0), 3000, 1.0),
        (KaryRandomizedResponse(2, 2.0), 3000, 1.0),
        (Rappor(6, 2.0), 3000, 1.0),
        (
            ExponentialMechanism(np.abs(np.subtract.outer(np.arange(7.0), np.arange(7.0))), 0.5),
            3000,
            3.0,
        ),
    ],
)
def test_covers_where_epsilon_says_so(randomizer: Randomizer, users: int, distance: float) -> None:
    profile = profile_of(randomizer, users)
    epsilon = profile.epsilon(1e-6, distance)
    assert profile.covers(epsilon * 1.002, 1e-6, distance, "flat")
    assert profile.nearly_covers(epsilon * 1.002, 1e-6, distance, "flat")
    assert not profile.covers(epsilon * 0.99, 1e-6, distance, "flat")
    assert not profile.nearly_covers(epsilon * 0.97, 1e-6, distance, "flat")
    needed = max(
        profile.epsilon(1e-6, apart) * distance / apart
        for apart in distances_of(randomizer, distance)
    )
    assert profile.covers(needed * 1.002, 1e-6, distance)
    assert profile.nearly_covers(needed * 1.002, 1e-6, distance)
    assert not profile.covers(needed * 0.99, 1e-6, distance)
    assert profile.decisive(needed * 1.002, distance) in ("blanket", "beyond-blanket", "two-report")
    assert Target(needed * 1.002, 1e-6, distance).kept_by(profile)
    assert profile.covers(1e-9, 0.0, distance) is False
    assert profile.covers(profile.pure(distance) * (1.0 + 1e-9), 0.0, distance, "flat")


def test_distances_there_are() -> None:
    assert distances_of(BoundedGeometric(6, 0.3), 3.0) == [1.0, 2.0, 3.0]
    assert distances_of(PlanarGeometric(3, 3, 0.3, 2.0), 4.1) == pytest.approx(
        [2.0, 2.0 * math.sqrt(2.0), 4.0]
    )
    assert distances_of(KaryRandomizedResponse(4, 1.0), 1.0) == [1.0]
    assert distances_of(KaryRandomizedResponse(4, 1.0), 0.5) == []
    uneven = np.array([[0.0, 0.3, 1.0], [0.3, 0.0, 0.7], [1.0, 0.7, 0.0]])
    assert distances_of(Channel(np.eye(3) * 0.4 + 0.2, distances=uneven), 0.9) == [0.3, 0.7]
    line = LaplaceOnInterval(0.0, 1.0, 2.0, 8)
    with pytest.raises(NotCertified, match="ask for a flat one"):
        distances_of(line, 0.5)
    assert not Target(5.0, 1e-6, 0.5).kept_by(profile_of(line, 1000))
    assert Target(5.0, 1e-6, 0.5, "flat").kept_by(profile_of(line, 1000))


@check_all(
    "source",
    [
        BoundedGeometric(7, 0.3),
        PlanarGeometric(4, 3, 0.3, 0.5),
        PlanarGeometric(3, 3, 0.3, metric="manhattan"),
    ],
)
def test_pairs_of_lines_and_grids_are_theirs(source: Randomizer) -> None:
    for distance in (0.5, 1.0, 1.5, 2.0, source.diameter):
        assert set(pairs_within(source, distance)) == set(source.pairs_within(distance))


def test_a_diagonal_step_may_decide() -> None:
    """One report is enough at the guarantee's distance; a diagonal step needs the others."""
    grid = profile_of(PlanarGeometric(4, 4, 0.45), 30_000)
    assert grid.delta_winner(0.91, 2.0).bound == "local"
    allowed = 0.91 / math.sqrt(2.0)
    assert grid.pure(math.sqrt(2.0)) < allowed  # along the Euclidean distance, as it is promised
    steep = profile_of(PlanarGeometric(4, 4, 0.8), 30_000)
    assert steep.covers(0.9, 1e-6, 2.0)
    assert steep.decisive(0.9, 2.0) in ("blanket", "beyond-blanket")
    assert steep.decisive(1.7, 2.0) == "local"
