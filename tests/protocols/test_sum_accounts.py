"""Pure rate of noisy sums in every branch, against brute force over all moves."""

from __future__ import annotations

import math
from itertools import product

import pytest
from tests.tables import check_all

from metricshuffle.privacy.profile import Shape
from metricshuffle.privacy.target import Target
from metricshuffle.protocols.sum_accounts import SumAccounts


def worst_excess(accounts: SumAccounts, rate: float) -> float:
    """Largest (epsilon spent / guaranteed) over all moves of one person, by definition."""
    target = accounts.target
    grain = accounts.grain
    far = target.distance * (1 + 1e-9)
    worst = 0.0
    if accounts.axes == 2:
        reach = math.floor(far)
        for i, j in product(range(reach + 1), repeat=2):
            if 0 < math.hypot(i, j) <= far:
                promised = target.epsilon * (
                    math.hypot(i, j) / far if target.shape == "linear" else 1.0
                )
                worst = max(worst, accounts.rounds * rate * (i + j) / promised)
        return worst
    for d in range(1, math.floor(far) + 1):
        cells, remainder = divmod(d, grain)
        spent = cells * rate + math.log1p(remainder / grain * math.expm1(rate))
        promised = target.epsilon * (d / far if target.shape == "linear" else 1.0)
        worst = max(worst, accounts.rounds * spent / promised)
    return worst


ONE_AXIS = list(product(("linear", "flat"), (1, 3), (1, 4, 10), (1, 7, 23.5)))


@check_all(("shape", "rounds", "grain", "distance"), ONE_AXIS)
def test_the_pure_rate_on_one_axis_is_kept_and_tight(
    shape: Shape, rounds: int, grain: int, distance: float
) -> None:
    """No move costs more than it may, and a thousandth less noise would make one that does."""
    accounts = SumAccounts(Target(1.5, 0, distance, shape), 1, grain, rounds)
    rate = accounts.pure_rate()
    assert worst_excess(accounts, rate) <= 1 + 1e-8
    # Between whole steps a linear promise is not used up.
    slack = distance / math.floor(distance) if shape == "linear" and grain == 1 else 1.0
    assert worst_excess(accounts, rate * 1.001 * slack) > 1
    assert accounts.target.kept_by(accounts.pure_profile(rate))
    if shape == "linear":
        assert not accounts.target.kept_by(accounts.pure_profile(rate * 1.001 * slack))


@check_all(
    ("shape", "rounds", "cells"),
    list(product(("linear", "flat"), (1, 2), (1, 1.3, math.sqrt(2.01), 3, 5.5, 60))),
)
def test_the_pure_rate_on_two_axes_is_kept_and_nearly_tight(
    shape: Shape, rounds: int, cells: float
) -> None:
    """On a grid of cells a tenth of a unit wide."""
    accounts = SumAccounts(Target(2.0, 0, cells * 0.1, shape).in_steps(0.1), 2, 1, rounds)
    rate = accounts.pure_rate()
    assert worst_excess(accounts, rate) <= 1 + 1e-8
    loose = 1.02 if cells > 1 else 1.001
    assert (
        worst_excess(accounts, rate * loose * (1.3 if cells == 1.3 and shape == "linear" else 1.0))
        > 1
    )
    assert accounts.target.kept_by(accounts.pure_profile(rate))


def test_whole_numbers_of_steps_are_not_lost_to_rounding() -> None:
    """0.3 / 0.1 is less than 3 in floating point; a third cell must be part of the promise."""
    promise = Target(1, 1e-6, 0.3).in_steps(0.1)
    assert math.floor(promise.distance) == 3
    assert promise.distance == pytest.approx(3, rel=1e-11)
    assert Target(1, 1e-6, 3).in_steps(1.0).distance == 3.0


def test_rounds_share_epsilon_and_delta_and_never_get_more() -> None:
    """Basic composition: rounds add up to at most the target, also in floating point."""
    for rounds in (1, 2, 3, 7, 1000):
        target = Target(1.0, 1e-6, 3.0)
        each = target.for_each_of(rounds)
        assert math.fsum([each.epsilon] * rounds) <= target.epsilon
        assert math.fsum([each.delta] * rounds) <= target.delta
        assert each.epsilon * rounds == pytest.approx(target.epsilon, rel=1e-14)
        assert (each.distance, each.shape) == (3.0, "linear")
