"""Metric privacy with delta e^d, against all pairs of rows of a channel."""

from __future__ import annotations

import math

import numpy as np
import pytest

from metricshuffle.errors import InputError
from metricshuffle.privacy.profile import PureProfile
from metricshuffle.randomizers import DiscreteGaussian
from metricshuffle_papers.enhancing_metric_privacy.growing_delta import (
    delta_at,
    growing_delta_rate,
)

GAUSSIAN = DiscreteGaussian(6, 2.0, 8)
DISTANCES = range(1, 7)


def excess(rate: float, delta: float, factor: float = 1.0) -> float:
    """Largest delta of two inputs less delta e^(factor d), over all pairs; by definition."""
    rows = GAUSSIAN.rows()
    return max(
        float(np.maximum(rows[a] - math.exp(rate * abs(a - b)) * rows[b], 0.0).sum())
        - delta * math.exp(factor * abs(a - b))
        for a in range(7)
        for b in range(7)
        if a != b
    )


@pytest.mark.parametrize("delta", [1e-3, 1e-2, 0.05])
def test_the_rate_is_enough_and_needed(delta: float) -> None:
    profile = GAUSSIAN.local_profile()
    rate = growing_delta_rate(profile, delta, DISTANCES)
    assert excess(rate, delta) <= 1e-12
    assert excess(rate * (1.0 - 1e-4), delta) > 0.0
    usual = max(profile.epsilon(delta, distance) / distance for distance in DISTANCES)
    assert rate < usual, "the usual variant is stronger"
    assert excess(rate, delta, factor=0.0) > 0.0, "and not implied with the same delta"
    assert excess(rate, delta * math.exp(6.0), factor=0.0) <= 1e-12, "but with the largest one"


def test_golden_deltas() -> None:
    assert delta_at(1e-3, 2.0) == pytest.approx(7.38905609893e-3, rel=1e-11)
    assert delta_at(1e-3, 2.0) <= 1e-3 * math.exp(2.0)
    assert delta_at(0.5, 1e9) > 1.0


def test_pure_profiles_and_large_distances() -> None:
    """A pure profile needs less than its rate; where delta e^d reaches 1 nothing is demanded."""
    profile = PureProfile(2.0)
    assert growing_delta_rate(profile, 1e-6, [1.0]) <= 2.0 * (1.0 + 1e-15)
    assert growing_delta_rate(profile, 0.5, [0.7, 1.0, 5.0]) == 0.0


def test_wrong_distances_and_deltas() -> None:
    profile = GAUSSIAN.local_profile()
    for distance in (0.0, -1.0, math.inf, math.nan):
        with pytest.raises(InputError, match="distances must be finite"):
            growing_delta_rate(profile, 1e-3, [distance])
    for delta in (0.0, 1.0, math.nan):
        with pytest.raises(InputError, match="delta"):
            growing_delta_rate(profile, delta, [1.0])
