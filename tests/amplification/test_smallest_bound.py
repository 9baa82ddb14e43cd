"""Search for the smallest bound: finds it and skips bounds that cannot win."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest

import metricshuffle as ms
from metricshuffle.amplification.best_bound import BestBoundProfile
from metricshuffle.amplification.full_law_pairs import FullLawBound
from metricshuffle.amplification.pair_cover import full_law_pairs
from metricshuffle.amplification.smallest_bound import (
    Bound,
    BoundResult,
    find_smallest_delta,
    find_smallest_epsilon,
)

LOCAL = BoundResult(1.0, "local", "local")


@dataclass
class KnownBound(Bound):
    """Bound of known value, with a goal of at most that and an evaluation that may lose."""

    value: float
    search_order: int  # type: ignore[misc]
    goal: float = math.inf
    sees: bool = False
    evaluated: list[float] = field(default_factory=list)

    def delta(self, epsilon: float, ceiling: float) -> BoundResult | None:
        if self.goal < math.inf and not self.goal < ceiling:
            return None
        self.evaluated.append(ceiling)
        return (
            BoundResult(self.value, str(self.search_order), "known")
            if self.value <= ceiling
            else None
        )

    def epsilon(self, delta: float, ceiling: float) -> BoundResult | None:
        return self.delta(0.0, ceiling)

    def covers(self, epsilon: float, delta: float) -> bool:
        raise AssertionError

    def delta_goal(self, epsilon: float) -> float:
        return self.goal

    def epsilon_goal(self, delta: float) -> float:
        return self.goal

    def loses(self, rival: BoundResult, delta: float) -> bool:
        return self.sees and self.value > rival.value


@pytest.mark.parametrize("find", [find_smallest_delta, find_smallest_epsilon])
def test_it_is_the_smallest_whatever_is_skipped(find: Callable[..., BoundResult]) -> None:
    source = random.Random(3)
    for _ in range(2000):
        values = [
            source.choice([0.0, 0.1, 0.2, 0.5, 1.0, 2.0, math.inf])
            for _ in range(source.randint(0, 5))
        ]
        bounds = [
            KnownBound(
                value, turn, source.choice([math.inf, 0.5 * value, value]), source.random() < 0.5
            )
            for turn, value in enumerate(values)
        ]
        source.shuffle(bounds)
        best = find(bounds, 0.1, LOCAL)
        assert best.value == min([1.0, *values])
        assert best.bound == "local" or values[int(best.bound)] == best.value
        assert all(len(bound.evaluated) <= len(bounds) for bound in bounds)


@pytest.mark.parametrize(
    ("quick", "slow", "goal", "asked"),
    [
        (0.2, 0.4, 0.3, ([0.3], [])),  # the goal is reached: the other one is not evaluated
        (
            0.5,
            0.3,
            0.3,
            ([0.3], [1.0]),
        ),  # it is not, and the other one is as small as its goal: not asked again
        (0.5, 0.6, 0.3, ([0.3, 0.6], [1.0])),  # ... and the other one is not: asked again
        (2.0, 2.0, 1.0, ([1.0], [])),  # no better than one report alone
    ],
)
def test_who_is_asked_and_how_often(
    quick: float, slow: float, goal: float, asked: tuple[list[float], list[float]]
) -> None:
    first = KnownBound(quick, 0)
    second = KnownBound(slow, 1, goal)
    assert find_smallest_delta([second, first], 0.1, LOCAL).value == min(1.0, quick, slow)
    assert (first.evaluated, second.evaluated) == asked


def test_a_bound_that_loses_by_one_look_is_not_evaluated() -> None:
    blind = KnownBound(0.3, 0)
    seeing = KnownBound(0.4, 1, sees=True)
    assert find_smallest_epsilon([blind, seeing], 0.1, LOCAL).bound == "0"
    assert seeing.evaluated == []


def test_the_full_law_bound_returns_nothing_that_is_not_certified_for_all_pairs() -> None:
    """A search that may end early at `ceiling` has no result there, whatever asked for it."""
    rows = [[0.5, 0.3, 0.2], [0.2, 0.5, 0.3], [0.3, 0.2, 0.5], [0.25, 0.25, 0.5]]
    channel = ms.randomizers.Channel(rows)
    pairs = full_law_pairs(channel, channel.diameter)
    assert pairs is not None
    users = 200
    bound = FullLawBound(pairs, users, 1e-4)
    whole = bound.epsilon(1e-4, math.inf)
    assert whole is not None
    floor = pairs.min_epsilon(users, 1e-4, 1e-4)
    for share in (0.0, 0.25, 0.5, 0.75, 1.0):
        ceiling = floor + share * (whole.value - floor)
        assert bound.epsilon(1e-4, ceiling) is None
    assert bound.epsilon(1e-4, whole.value * 1.01) == whole


def test_no_distance_has_no_decisive_bound() -> None:
    response = ms.randomizers.KaryRandomizedResponse(4, 1.0)
    profile = BestBoundProfile(response, 100, response.diameter)
    assert profile.decisive(0.1, 0.0) == profile.decisive(0.1, 0.0, "flat") == "local"
