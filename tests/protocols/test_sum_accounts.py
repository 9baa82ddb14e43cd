"""The pure rate in every branch, against brute force."""

from __future__ import annotations

import math
from itertools import product

import pytest

from metricshuffle.planning.plan import checked_setting
from metricshuffle.planning.setting import Setting
from metricshuffle.privacy.profile import Shape
from metricshuffle.privacy.target import Target
from metricshuffle.protocols import Centroid, Mean, Sum
from metricshuffle.spaces import Grid, Integers, Interval


def worst_excess(setting: Setting, rate: float) -> float:
    """Largest (epsilon spent / epsilon promised) over all moves of one person within the distance, by their definition."""
    target, grain = setting.target, setting.grain
    far = target.distance / setting.step * (1 + 1e-9)
    worst = 0.0
    if setting.axes == 2:
        reach = math.floor(far)
        for i, j in product(range(reach + 1), repeat=2):
            if 0 < math.hypot(i, j) <= far:
                promised = target.epsilon * (math.hypot(i, j) / far if target.shape == "linear" else 1.0)
                worst = max(worst, setting.rounds * rate * (i + j) / promised)
        return worst
    for d in range(1, math.floor(far) + 1):
        cells, rest = divmod(d, grain)
        spent = cells * rate + math.log1p(rest / grain * math.expm1(rate))
        promised = target.epsilon * (d / far if target.shape == "linear" else 1.0)
        worst = max(worst, setting.rounds * spent / promised)
    return worst


ONE_AXIS = list(product(("linear", "flat"), (1, 3), (1, 4, 10), (1, 7, 23.5)))


@pytest.mark.parametrize(("shape", "rounds", "grain", "distance"), ONE_AXIS)
def test_the_pure_rate_on_one_axis_is_kept_and_tight(shape: Shape, rounds: int, grain: int, distance: float) -> None:
    setting = checked_setting(Mean(Integers(0, 40)), Target(1.5, 0, distance, shape), 9, None, rounds=rounds, granularity=grain)
    rate = setting.pure_rate()
    assert worst_excess(setting, rate) <= 1 + 1e-8
    # Between whole steps a linear promise is not used up.
    slack = distance / math.floor(distance) if shape == "linear" and grain == 1 else 1.0
    assert worst_excess(setting, rate * 1.001 * slack) > 1
    profile = setting.pure_profile(rate)
    assert setting.promise.kept_by(profile)
    if shape == "linear":
        assert not setting.promise.kept_by(setting.pure_profile(rate * 1.001 * slack))


@pytest.mark.parametrize(("shape", "rounds", "cells"), list(product(("linear", "flat"), (1, 2), (1, 1.3, math.sqrt(2.01), 3, 5.5, 60))))
def test_the_pure_rate_on_two_axes_is_kept_and_nearly_tight(shape: Shape, rounds: int, cells: float) -> None:
    grid = Grid(60, 70, cell=0.1)
    setting = checked_setting(Centroid(grid), Target(2.0, 0, cells * 0.1, shape), 9, None, rounds=rounds)
    rate = setting.pure_rate()
    assert worst_excess(setting, rate) <= 1 + 1e-8
    loose = 1.02 if cells > 1 else 1.001
    assert worst_excess(setting, rate * loose * (1.3 if cells == 1.3 and shape == "linear" else 1.0)) > 1
    assert setting.promise.kept_by(setting.pure_profile(rate))


def test_whole_numbers_of_steps_are_not_lost_to_rounding() -> None:
    """0.3 / 0.1 is less than 3 in floating point; a third cell must be part of the promise."""
    setting = checked_setting(Centroid(Grid(20, 20, cell=0.1)), Target(1, 1e-6, 0.3), 100, None)
    assert math.floor(setting.promise.distance) == 3
    assert setting.promise.distance == pytest.approx(3, rel=1e-11)
    assert checked_setting(Sum(Integers(0, 9)), Target(1, 1e-6, 3), 100, None).promise.distance == 3.0


def test_a_real_number_has_many_steps_in_a_grain() -> None:
    setting = checked_setting(Mean(Interval(-5, 5)), Target(1, 1e-6, 2), 100, None, granularity=0.5)
    assert (setting.grain, setting.step) == (4096, 0.5 / 4096)
    assert setting.promise.distance == pytest.approx(4 * 4096, rel=1e-11)
    assert setting.query.between == "values rounded to a fine grid"


def test_epsilon_can_be_changed_alone() -> None:
    setting = checked_setting(Mean(Integers(0, 40)), Target(1.5, 1e-5, 7, "flat"), 9, 8)
    assert setting.at_epsilon(2.0).target == Target(2.0, 1e-5, 7, "flat")
    assert setting.at_epsilon(2.0).honest == 8
