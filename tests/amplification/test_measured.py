"""Channels with distances: never below the truth, certified everywhere, by laws or clones."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from tests.oracles.shuffled_brute_force import every_data_set

from metricshuffle.amplification import metric_channel
from metricshuffle.amplification.metric_channel import MetricChannelProfile
from metricshuffle.privacy.profile import PrivacyProfile
from metricshuffle.protocols.frequencies import shuffled_profile
from metricshuffle.randomizers import Channel, ExponentialMechanism, PaddedExponential
from metricshuffle.spaces import Grid, Space

PLACES = np.array([0.0, 0.3, 1.0, 2.5])
APART = np.abs(np.subtract.outer(PLACES, PLACES))


def channels() -> list[Channel]:
    table = np.random.default_rng(5).dirichlet(np.full(4, 2.0), size=4)
    return [
        ExponentialMechanism(APART, 0.8).channel,
        PaddedExponential(APART, 0.6).channel,
        Channel(table, distances=APART),
    ]


@pytest.mark.parametrize("by_clones", [False, True], ids=["laws", "clones"])
@pytest.mark.parametrize("channel", channels(), ids=["exponential", "padded", "any"])
def test_no_data_set_gives_away_more(
    channel: Channel, by_clones: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if by_clones:
        monkeypatch.setattr(metric_channel, "MAX_BY_LAWS", 0)
    users = 3
    weights = [[int(weight) for weight in row] for row in channel.weights]
    profile = MetricChannelProfile(channel, users)
    assert profile.bound == ("clones" if by_clones else "best")
    for growth in (
        (Fraction(13, 10),) if channel.outputs > 4 else (Fraction(21, 20), Fraction(13, 10))
    ):
        epsilon = math.log(growth) * (1 + 1e-15)
        for distance in profile.apart[1].tolist():
            claimed = profile.delta(epsilon, distance)
            for a, b in np.argwhere((distance * (1 + 1e-12) >= APART) & (APART > 0)).tolist():
                assert float(
                    max(every_data_set(weights, a, b, users, growth).values())
                ) <= claimed * (1 + 1e-9)
            if 0 < claimed < 0.9:
                assert profile.epsilon(claimed * (1 + 1e-6), distance) <= epsilon * (1 + 1e-3)


def test_linear_promises_look_at_distances_that_are_no_whole_steps() -> None:
    channel = ExponentialMechanism(APART, 0.8).channel
    profile = shuffled_profile(channel, 2000)
    assert isinstance(profile, MetricChannelProfile)
    slopes = [profile.epsilon(1e-6, d) / d for d in profile.apart[1].tolist()]
    needed = max(slopes) * 2.5 * (1 + 1e-6)
    assert profile.covers(needed, 1e-6, 2.5)
    assert not profile.covers(needed * 0.98, 1e-6, 2.5)
    assert PrivacyProfile.covers(
        profile, needed * 0.98, 1e-6, 2.5
    )  # whole steps would never look at the pair that is worst
    assert profile.covers(slopes[-1] * 2.5 * (1 + 1e-6), 1e-6, 2.5, "flat")
    assert profile.pure(0.29) == 0.0
    assert profile.pure(0.3) == pytest.approx(channel.local_epsilon(0, 1))


def test_values_at_distance_zero_must_have_one_law() -> None:
    same = np.array([[0.0, 0.0, 1.0], [0.0, 0.0, 1.0], [1.0, 1.0, 0.0]])
    point_readings = Channel([[0.5, 0.3, 0.2], [0.4, 0.4, 0.2], [0.3, 0.3, 0.4]], distances=same)
    assert not MetricChannelProfile(point_readings, 10**6).covers(5.0, 1e-2, 1.0)
    alike = Channel([[0.5, 0.3, 0.2], [0.5, 0.3, 0.2], [0.3, 0.3, 0.4]], distances=same)
    assert MetricChannelProfile(alike, 10**6).covers(5.0, 1e-2, 1.0)


def test_a_report_that_rules_an_input_out_is_never_small() -> None:
    channel = Channel(
        [[0.5, 0.5, 0.0], [0.3, 0.3, 0.4], [0.3, 0.3, 0.4]], distances=np.ones((3, 3)) - np.eye(3)
    )
    profile = MetricChannelProfile(channel, 50)
    assert profile.pure(1.0) == math.inf
    assert profile.delta(0.1, 1.0) >= 0.4
    assert profile.epsilon(1e-6, 1.0) == math.inf


def test_the_clone_pair_is_that_of_the_worst_pairs() -> None:
    channel = ExponentialMechanism(APART, 0.8).channel
    pairwise = channel.pairwise_epsilon()
    pair = MetricChannelProfile(channel, 10).clone_pair(2.5)
    near = MetricChannelProfile(channel, 10).clone_pair(0.3)
    assert pair is not None
    assert near is not None
    assert (pair.log_p, pair.log_q0) == (pairwise.max(), pairwise.max())
    assert near.log_p == pairwise[0, 1]
    assert {near.log_q0, near.log_q1} == {pairwise[0].max(), pairwise[1].max()}


def test_one_person_is_one_report() -> None:
    channel = ExponentialMechanism(APART, 0.8).channel
    profile = MetricChannelProfile(channel, 1)
    assert profile.epsilon(1e-9, 2.5) == pytest.approx(channel.local_epsilon(), rel=1e-6)
    assert profile.covers(channel.local_epsilon() * 10, 0.0, 2.5)


def test_grids_with_diagonals() -> None:
    space = Space(Grid(3, 3))
    points = space.domain.points(space.domain.all_values())
    channel = ExponentialMechanism(space.metric.pairwise(points, points), 1.0).channel
    profile = MetricChannelProfile(channel, 5000)
    assert len(profile.apart[0]) == 5  # 1, sqrt 2, 2, sqrt 5, sqrt 8
    need = max(profile.epsilon(1e-6, d) / d for d in profile.apart[1].tolist())
    assert profile.covers(need * math.sqrt(8) * (1 + 1e-6), 1e-6, math.sqrt(8))
