"""Diameter of inputs: closed forms against every pair."""

from __future__ import annotations

import itertools

import numpy as np
from tests.tables import check_all

from metricshuffle.amplification.random_task import RandomTask
from metricshuffle.randomizers import (
    BoundedGeometric,
    Channel,
    ClusteredResponse,
    Duchi,
    ExponentialMechanism,
    HadamardResponse,
    KaryRandomizedResponse,
    LaplaceOnInterval,
    PlanarGeometric,
    Randomizer,
    WitchHat,
)
from metricshuffle.randomizers.channel import ChannelPair

ROWS = np.array([[0.6, 0.3, 0.1], [0.3, 0.4, 0.3], [0.1, 0.3, 0.6]])
APART = np.abs(np.subtract.outer(np.arange(3.0), np.arange(3.0))) * 2.5


@check_all(
    "randomizer",
    [
        BoundedGeometric(7, 0.4),
        LaplaceOnInterval(-0.3, 1.1, 3.0, 8),
        WitchHat(0.7, 2.0, 3.0, 5),
        PlanarGeometric(3, 5, 0.5, 0.1),
        PlanarGeometric(4, 2, 0.5, metric="manhattan"),
        ClusteredResponse(3, 2, 0.25, 1.0),
        ExponentialMechanism(APART, 0.4),
        Channel(ROWS, distances=APART, rate=1.0),
        Channel(ROWS),
        KaryRandomizedResponse(5, 1.0),
        HadamardResponse(6, 1.0),
        Duchi(2, 1.0),
    ],
)
def test_the_farthest_pair(randomizer: Randomizer) -> None:
    every = [
        randomizer.distance(*pair) for pair in itertools.permutations(range(randomizer.inputs), 2)
    ]
    assert randomizer.diameter == max(every)


def test_only_the_pair_in_question_counts() -> None:
    assert ChannelPair(ROWS, 0, 1).diameter == 1.0
    assert (
        RandomTask((0.5, 0.5), (BoundedGeometric(7, 0.4), KaryRandomizedResponse(3, 1.0))).diameter
        == 1.0
    )
