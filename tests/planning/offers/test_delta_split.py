"""Flat promises of noisy vectors: how delta is split between the noise and the mixing."""

from __future__ import annotations

import pytest

from metricshuffle.planning.candidates.vector_calibration import (
    MIXING_DELTA_SHARES,
    _best_split,
    _protocol,
)
from metricshuffle.planning.plan_request import PlanRequest
from metricshuffle.privacy.target import Target
from metricshuffle.protocols.features import Features, Ramps, ShiftedBoxes
from metricshuffle.queries import Histogram
from metricshuffle.spaces import Grid, Integers

LINE = Histogram(Integers(0, 99))
MAP = Histogram(Grid(32, 32, 1.0))


@pytest.mark.parametrize(
    ("query", "target", "users", "features", "gain"),
    [
        (LINE, Target(1.0, 1e-6, 30.0, "flat"), 40_000, Ramps(width=1), 1.03),
        (MAP, Target(0.3, 1e-4, 10.0, "flat"), 5_000, ShiftedBoxes(width=5), 1.09),
    ],
)
def test_most_of_delta_is_used_without_more_bits(
    query: Histogram, target: Target, users: int, features: Features, gain: float
) -> None:
    setting = PlanRequest(query, target, users).setting
    half = _protocol(setting, "shuffler", features, MIXING_DELTA_SHARES[0])
    best = _best_split(setting, "shuffler", features)
    assert best.factor >= gain * half.factor
    assert best.bits_per_user <= half.bits_per_user
    account = best.account(query, target, users, 1)
    assert account.kept
    used = account.profile.delta(target.epsilon, target.distance)
    assert 0.9 * target.delta < used <= target.delta
    less = best.model_copy(update={"factor": 1.02 * best.factor})
    assert not less.account(query, target, users, 1).kept


def test_only_flat_promises_through_a_shuffler_split_delta() -> None:
    flat = PlanRequest(LINE, Target(1.0, 1e-6, 30.0, "flat"), 2_000, trusted="aggregator").setting
    linear = PlanRequest(LINE, Target(1.0, 1e-6, 30.0), 2_000).setting
    features = Ramps(width=1)
    assert _best_split(flat, "aggregator", features) == _protocol(
        flat, "aggregator", features, MIXING_DELTA_SHARES[-1]
    )
    assert _best_split(linear, "shuffler", features) == _protocol(
        linear, "shuffler", features, MIXING_DELTA_SHARES[-1]
    )
