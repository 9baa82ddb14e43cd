"""The study behind the report's chapter on people who hold many items each: two releases, and a
comparison at two rates.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from metricshuffle.numerics.rounding import format_number
from metricshuffle.planning.plan import Plan, plan
from metricshuffle.privacy.guarantee import Who
from metricshuffle.privacy.target import Target
from metricshuffle.queries.user_queries import UserHistogram
from metricshuffle.simulation.fast_draws import distance_of
from metricshuffle.spaces import Grid, NestedSquares, Space, Users, users_of
from metricshuffle.tasks.release import Release
from metricshuffle_papers.compare.users import UserComparison, compare_users
from metricshuffle_papers.synthetic import CITY

Floats = NDArray[np.float64]
Cells = list[NDArray[np.int64]]
LEVELS = 3
NEAR = 425.0
"""Metres, a twentieth of the diameter: how far a month may move and stay hidden at the epsilon of
the plans.
"""


@dataclass(frozen=True)
class PlannedRelease:
    """A release with the plan it came from."""

    title: str
    """Who is trusted, in words."""
    plan: Plan
    release: Release

    @property
    def shares(self) -> Floats:
        """Of every cell: none negative, and they sum to one."""
        return np.asarray(self.release.value["share"], dtype=np.float64)

    @property
    def full_replacement(self) -> str:
        """What replacing a whole month costs, in a sentence."""
        return self.release.task.full_replacement


@dataclass(frozen=True)
class UserStudy:
    """The same people's visits released twice, trusting nobody and trusting a curator, and a
    comparison at two rates.
    """

    grid: Grid
    """The cells that visits are in."""
    people: Users
    local: PlannedRelease
    central: PlannedRelease
    truth: Floats
    visits: int
    comparisons: tuple[UserComparison, UserComparison]
    """Where a full replacement costs epsilon, and at the rate of the plans."""

    @property
    def releases(self) -> tuple[PlannedRelease, PlannedRelease]:
        return self.local, self.central

    @property
    def users(self) -> int:
        return self.local.plan.users

    @property
    def unit(self) -> str:
        return self.people.unit

    def error(self, released: PlannedRelease) -> float:
        """The earth mover's distance of a release to the truth."""
        return distance_of(self.people, released.shares, self.truth)


def city_squares() -> Grid:
    """The city in squares of which four make a larger one, and so on: 8 x 6 cells of 750 m."""
    cell = CITY.width * CITY.cell / 2**LEVELS
    return Grid(2**LEVELS, math.ceil(CITY.height * CITY.cell / cell), cell, CITY.unit)


def study_of(points: Sequence[Floats], epsilon: float = 1.0, runs: int = 12) -> UserStudy:
    """Plan, run and compare, with real noise for the two releases."""
    grid = city_squares()
    space = Space(grid, NestedSquares(LEVELS, grid.cell))
    people = users_of(space)
    held: Cells = [cells[:, 1] * grid.width + cells[:, 0] for cells in map(grid.cells, points)]
    target = Target(epsilon, 0.0, NEAR)

    def released(title: str, trusted: Who) -> PlannedRelease:
        planned = plan(UserHistogram(people), target, len(held), trusted=trusted)
        return PlannedRelease(title, planned, planned.run(held))

    def compared(rate: float) -> UserComparison:
        return compare_users(
            users_of(space, 1),
            len(held),
            epsilon=epsilon,
            rate=rate,
            delta=1e-6,
            runs=runs,
            held=held,
            with_items=False,
        )

    comparisons = compared(epsilon / people.diameter), compared(target.epsilon / target.distance)
    truth = people.histograms(held).mean(axis=0)
    local, central = (
        released("Nobody is trusted", "nobody"),
        released("A curator is trusted", "curator"),
    )
    return UserStudy(grid, people, local, central, truth, sum(map(len, held)), comparisons)


def merged(study: UserStudy) -> UserComparison:
    """Both comparisons as one: user-level privacy, and the tree release at either rate."""
    for_all, nearby = study.comparisons
    reach = (
        f"epsilon {format_number(for_all.epsilon)} up to "
        f"{format_number(round(nearby.epsilon / nearby.rate))} {study.unit}"
    )
    trees = [
        replace(method, name=f"tree Laplace, {words}")
        for comparison, words in (
            (for_all, f"epsilon {format_number(for_all.epsilon)} for all"),
            (nearby, reach),
        )
        for method in comparison.methods
        if method.hides == "earth mover"
    ]
    # People hold different numbers of items, so that randomizing each of them is left out.
    whole = [
        method
        for method in for_all.methods
        if method.hides == "user" and not method.name.endswith("every item")
    ]
    return replace(nearby, methods=(*whole, *trees))
