"""The study behind the report's chapter on people who hold many items each: two releases, and a comparison at two rates."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from metricshuffle.numerics.rounding import plain
from metricshuffle.pages.synthetic import CITY
from metricshuffle.planning.compare.users import UserComparison
from metricshuffle.planning.user_plan import UserPlan
from metricshuffle.planning.user_release import UserRelease
from metricshuffle.planning.user_simulation import distance_of
from metricshuffle.queries.user_items import UserHistogram
from metricshuffle.spaces import Grid, NestedSquares, Space, users_of

Floats = NDArray[np.float64]
Cells = list[NDArray[np.int64]]
LEVELS = 3
NEAR = 425.0
"""Metres, a twentieth of the diameter: how far a month may move and stay hidden at the epsilon of the plans."""


@dataclass(frozen=True)
class UserStudy:
    """The same people's visits released twice, trusting nobody and trusting a curator, and a comparison at two rates."""

    local: tuple[UserPlan, UserRelease]
    central: tuple[UserPlan, UserRelease]
    truth: Floats
    visits: int
    comparisons: tuple[UserComparison, UserComparison]
    """Where a full replacement costs epsilon, and at the rate of the plans."""

    @property
    def releases(self) -> tuple[tuple[str, UserPlan, UserRelease], ...]:
        return ("Nobody is trusted", *self.local), ("A curator is trusted", *self.central)

    @property
    def users(self) -> int:
        return self.local[0].users

    @property
    def unit(self) -> str:
        return self.local[0].query.unit

    @property
    def grid(self) -> Grid:
        """The cells that visits are in."""
        grid = self.local[0].query.people.items_in.domain
        assert isinstance(grid, Grid)  # noqa: S101 - as in study_of
        return grid

    def error(self, release: UserRelease) -> float:
        """The earth mover's distance of a release to the truth."""
        return distance_of(release.query.people, np.array(release.value), self.truth)


def city_squares() -> Space:
    """The city in nested squares: 8 x 6 cells of 750 m."""
    cell = CITY.width * CITY.cell / 2**LEVELS
    return Space(Grid(2**LEVELS, math.ceil(CITY.height * CITY.cell / cell), cell, CITY.unit), NestedSquares(LEVELS, cell))


def study_of(points: Sequence[Floats], epsilon: float = 1.0, runs: int = 12) -> UserStudy:
    """Plan, run and compare, with real noise for the two releases."""
    from metricshuffle.planning.compare.users import compare_users
    from metricshuffle.planning.user_plan import plan_users
    from metricshuffle.privacy.target import Target

    space = city_squares()
    grid, people = space.domain, users_of(space)
    assert isinstance(grid, Grid)  # noqa: S101 - made just above
    held: Cells = [cells[:, 1] * grid.width + cells[:, 0] for cells in map(grid.cells, points)]
    target = Target(epsilon, 0.0, NEAR)
    local, central = (plan_users(UserHistogram(people), target, len(held), trusted=trusted) for trusted in ("nobody", "curator"))

    def compared(rate: float) -> UserComparison:
        return compare_users(users_of(space, 1), len(held), epsilon=epsilon, rate=rate, delta=1e-6, runs=runs, held=held, with_items=False)

    comparisons = compared(epsilon / people.diameter), compared(target.epsilon / target.distance)
    truth = people.histograms(held).mean(axis=0)
    return UserStudy((local, local.run(held)), (central, central.run(held)), truth, sum(map(len, held)), comparisons)


def merged(study: UserStudy) -> UserComparison:
    """Both comparisons as one: user-level privacy, and the tree release at either rate."""
    for_all, nearby = study.comparisons
    reach = f"epsilon {plain(for_all.epsilon)} up to {plain(round(nearby.epsilon / nearby.rate))} {study.unit}"
    trees = [
        replace(method, name=f"tree Laplace, {words}")
        for comparison, words in ((for_all, f"epsilon {plain(for_all.epsilon)} for all"), (nearby, reach))
        for method in comparison.methods
        if method.hides == "earth mover"
    ]
    # People hold different numbers of items, so that randomizing each of them is left out.
    whole = [method for method in for_all.methods if method.hides == "user" and not method.name.endswith("every item")]
    return replace(nearby, methods=(*whole, *trees))
