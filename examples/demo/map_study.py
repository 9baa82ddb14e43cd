"""The study behind the report's chapter on the map: the same people's homes through noisy vectors,
and with one report each.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from examples.demo.user_study import PlannedRelease

from metricshuffle.numerics.types import Floats
from metricshuffle.planning.plan import plan
from metricshuffle.privacy.target import Honest, Target
from metricshuffle.queries.histogram import Histogram
from metricshuffle.randomness import Randomness
from metricshuffle.spaces import Grid, Space, earth_mover
from metricshuffle_papers.synthetic import CITY

BLOCK = 2  # cells of the city along the side of a cell of the map
NEAR = 500.0
"""Metres: how far a person may move and stay hidden at the epsilon of the plans."""
VECTORS = "noisy-vectors"
SINGLE = ("k-ary-randomized-response", "planar-geometric")


@dataclass(frozen=True)
class MapStudy:
    """The truth, a release through noisy vectors, and releases from one randomized report a person,
    the best planned first.
    """

    grid: Grid
    truth: Floats
    vectors: PlannedRelease
    single: tuple[PlannedRelease, ...]

    @property
    def users(self) -> int:
        return self.vectors.plan.users

    @property
    def releases(self) -> tuple[PlannedRelease, ...]:
        return self.vectors, *self.single

    def share_error(self, released: PlannedRelease) -> float:
        """By how much a share is off on average, in percent of all people."""
        return 100.0 * float(np.mean(np.abs(released.shares - self.truth)))

    def distance(self, released: PlannedRelease) -> float:
        """The earth mover's distance to the truth."""
        return earth_mover(Space.of(self.grid), released.shares, self.truth).distance


def city_blocks() -> Grid:
    """The city in cells of 200 m."""
    return Grid(CITY.width // BLOCK, CITY.height // BLOCK, CITY.cell * BLOCK, CITY.unit)


def map_study(
    places: Floats,
    honest: Honest,
    epsilon: float = 1.0,
    delta: float = 1e-6,
    randomness: Randomness | None = None,
) -> MapStudy:
    """Plan and run all of them for people at these places (x, y), with the same target; real noise
    unless `randomness` is given.
    """
    grid = city_blocks()
    cells = grid.cells(places)
    target = Target(epsilon, delta, NEAR)

    def released(title: str, protocol: str) -> PlannedRelease:
        planned = plan(Histogram(grid), target, len(cells), honest, protocols=[protocol])
        return PlannedRelease(title, planned, planned.run(cells, randomness=randomness))

    vectors = released("Through the shuffler", VECTORS)
    single = sorted(
        (released("One report each", name) for name in SINGLE),
        key=lambda found: found.plan.choice.expected_error,
    )
    truth = np.bincount(
        cells[:, 1] * grid.width + cells[:, 0], minlength=grid.width * grid.height
    ) / len(cells)
    return MapStudy(grid, np.asarray(truth), vectors, tuple(single))
