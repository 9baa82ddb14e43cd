"""Packing bound: correct by hand, and not beaten by any calibrated mechanism."""

from __future__ import annotations

import math
from fractions import Fraction

import pytest
from tests.oracles.law_moments import mean_absolute
from tests.tables import check_all

from metricshuffle.errors import InputError
from metricshuffle.noise.polya import Polya
from metricshuffle.planning.candidates.flipped_bit_calibration import randomized_response
from metricshuffle.planning.candidates.sum_calibration import central, local, shuffled_modular
from metricshuffle.planning.candidates.sum_setting import SumSetting
from metricshuffle.planning.candidates.unary_calibration import shuffled_unary
from metricshuffle.planning.setting import Setting
from metricshuffle.privacy.target import Target
from metricshuffle.queries.mean_and_sum import Sum
from metricshuffle.spaces import Integers
from metricshuffle_papers.packing import packing_bound


def by_hand(rate: float, delta: float, distance: float) -> float:
    """The statement, term by term."""
    best = 0.0
    for t in range(1, math.ceil(2.0 / rate) + 1):
        reach = range(-int(distance // (2 * t)), int(distance // (2 * t)) + 1)
        best = max(
            best,
            t * (1.0 - delta - 1.0 / math.fsum(math.exp(-2.0 * rate * t * abs(j)) for j in reach)),
        )
    return best


@check_all(
    ("rate", "delta", "distance"),
    [(0.1, 1e-4, 1000.0), (0.02, 0.01, 300.0), (0.5, 0.2, 7.0), (0.1, 0.0, 25.0), (0.3, 0.0, 1.0)],
)
def test_is_the_statement(rate: float, delta: float, distance: float) -> None:
    assert packing_bound(rate, delta, distance) == pytest.approx(
        by_hand(rate, delta, distance), rel=1e-10, abs=1e-12
    )
    assert packing_bound(rate, delta, distance) <= by_hand(rate, delta, distance)


def test_without_a_distance_it_is_tanh_and_about_0_278_over_the_rate() -> None:
    assert packing_bound(0.1, 1e-4) == pytest.approx(
        max(t * (1.0 - 1e-4 - math.tanh(0.1 * t)) for t in range(1, 40)), rel=1e-10
    )
    for rate in (1e-2, 1e-4, 1e-8):
        assert packing_bound(rate, 0.0) * rate == pytest.approx(0.278, abs=1e-3)


def test_a_promise_over_a_shorter_distance_forbids_less() -> None:
    bounds = [
        packing_bound(0.1, 1e-4, distance) for distance in (0.0, 1.0, 2.0, 10.0, 100.0, math.inf)
    ]
    assert bounds == sorted(bounds)
    assert bounds[:2] == [0.0, 0.0]
    assert 0.0 < bounds[2] < bounds[-1]


def test_wrong_input_is_told() -> None:
    for rate, delta, distance in [
        (0.0, 0.1, 1.0),
        (math.nan, 0.1, 1.0),
        (0.1, 1.0, 1.0),
        (0.1, 0.1, math.nan),
    ]:
        with pytest.raises(InputError):
            packing_bound(rate, delta, distance)


@check_all("rate", [0.01, 0.1, 0.5, 1.0, 2.0, 5.0])
def test_geometric_noise_is_not_below_it(rate: float) -> None:
    """Pure noise keeps its promise at every distance, with any delta."""
    for shape in (1, 3):
        assert mean_absolute(Polya(Fraction(shape), rate).law(-60.0)) >= packing_bound(rate, 0.0)


def sum_setting(largest: int, target: Target, users: int) -> SumSetting:
    query = Sum(domain=Integers(0, largest))
    return SumSetting(Setting(query, target, users, users), query)


@check_all(
    ("epsilon", "distance", "delta", "users"),
    [(1.0, 10, 1e-6, 100), (3.0, 30, 1e-2, 30), (20.0, 40, 0.2, 20)],
)
def test_nothing_calibrated_beats_it(
    epsilon: float, distance: int, delta: float, users: int
) -> None:
    setting = sum_setting(200, Target(epsilon, delta, distance), users)
    bound = packing_bound(epsilon / distance, delta, min(distance, users * 200 / 2))
    found = [central(setting), local(setting)]
    found += [
        build(setting, shape)
        for build in (shuffled_modular, shuffled_unary)
        for shape in (1, users)
    ]
    assert bound > 0.0
    for candidate in found:
        assert candidate.expected_error >= bound, candidate.protocol


@pytest.mark.slow
@pytest.mark.parametrize("distance", [2, 10, 100])
def test_nothing_calibrated_beats_it_with_randomized_response(distance: int) -> None:
    for users in (30, 100):
        setting = sum_setting(1000, Target(0.1 * distance, 1e-4, distance), users)
        found = [
            randomized_response(setting),
            *(shuffled_unary(setting, shape) for shape in (1, 5, users)),
        ]
        assert min(one.expected_error for one in found) >= packing_bound(0.1, 1e-4, distance)
