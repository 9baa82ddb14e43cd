"""What shuffling makes of a local metric, for every pair of a domain at once."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from metricshuffle.accounting._clone_counts import CloneCounts
from metricshuffle.accounting.clones import ClonePair, checked_users, crossing
from metricshuffle.citations import theorem
from metricshuffle.errors import ConditionError, InputError, NotCertified
from metricshuffle.privacy.profile import PureProfile, checked_delta
from metricshuffle.spaces.domains import Domain
from metricshuffle.spaces.matrix import Matrix, open_triangle
from metricshuffle.spaces.space import Space
from metricshuffle.spaces.tree import Tree

Floats = NDArray[np.float64]
Whole64 = NDArray[np.int64]

MOST_PAIRED = 10_000  # points of a matrix: 5e7 pairs
MOST_CHECKED = 2_000  # points whose triangles are checked one by one
ROWS = 256
DISTANCE_STEP = 0.04  # log of the ratio of two distance levels
DISTANCE_LEVELS = 401  # down to e^-16 of the diameter; nearer pairs get the last level, or their local epsilon
SEARCH = 3e-4  # relative bracket of one cell
COARSE = 2e-3  # blocks of clone counts, relative; costs at most half of it in epsilon
UP = 1.0 + 2.0**-49
BY_DIAMETER = f"the diameter for every point (the triangles of more than {MOST_CHECKED:,} points are not checked)"


@dataclass(frozen=True, eq=False)
class AmplifiedMetric:
    """epsilon(x, y) at a fixed delta for every pair of a space. It is no metric: never close it by shortest paths.

    Two guarantees (e1, delta) and (e2, delta) compose to delta (1 + e^e1), not to delta, so that the sum of two entries says
    nothing about a third. Entries come from a table, rounded up to the next level of distance and reach. Where epsilon falls
    like 1/sqrt(users), that costs at most 4 % for the distance and e^(reach_step/2) for the reaches; where amplification has
    only just set in, more.
    """

    space: Space
    rate: float
    users: int
    delta: float
    reached_by: str
    """How the reach of a point was found; says so if the diameter had to do for every one."""
    by_diameter: bool
    largest: float
    """The largest local epsilon: rate times the diameter."""
    reach_levels: Floats = field(repr=False)
    distance_levels: Floats = field(repr=False)
    _cells: Floats = field(repr=False)
    _reaches: Floats | None = field(repr=False, default=None)

    @property
    def reach_step(self) -> float:
        return float(self.reach_levels[-1] - self.reach_levels[-2]) if len(self.reach_levels) > 1 else 0.0

    def epsilon(self, x: Any, y: Any) -> float:
        """The amplified epsilon of two values; at most their local epsilon."""
        total = self._slope * self.space.distance(x, y)
        return self._entry(total, self._reach_level(self._reach(x)), self._reach_level(self._reach(y)))

    def by_distance(self, distance: float) -> float:
        """The amplified epsilon of any two values at that distance, wherever they lie."""
        if not 0.0 <= distance < math.inf:
            raise InputError(f"distance must be a finite number >= 0, got {distance!r}.")
        top = len(self.reach_levels) - 1
        return self._entry(min(self._slope * distance, self.largest), top, top)

    def matrix(self) -> Floats:
        """All pairs of a finite space of at most 10,000 points, in the order of `space.domain.all_values()`."""
        from metricshuffle.accounting import _domain_kernels as kernels

        points = _points(self.space)
        levels = np.array([self._reach_level(reach) for reach in self._all_reaches(points)], dtype=np.int64)
        seen = np.zeros(self._cells.shape, dtype=np.bool_)
        for first, block in _blocks(self.space, points):
            kernels.mark(block, self._slope, first, levels, self.distance_levels, DISTANCE_STEP, seen)
        # along the distance, so that the last answer is a good first guess for the next
        for high, low in zip(*np.nonzero(seen.any(axis=0)), strict=True):
            guess = math.nan
            for near in np.flatnonzero(seen[:, high, low]):
                guess = self._cell(int(near), int(high), int(low), guess)
        found = np.empty((len(points), len(points)))
        for first, block in _blocks(self.space, points):
            kernels.look_up(block, self._slope, first, levels, self.distance_levels, DISTANCE_STEP, self._cells, found)
        return found

    @property
    def _slope(self) -> float:
        return self.rate * UP

    def _reach(self, x: Any) -> float:
        if self.by_diameter:
            return self.largest
        if self._reaches is not None and self.space.domain.points_are == "codes":
            return float(self._reaches[int(self.space.domain.validated([x])[0])])
        return self._slope * self.space.reach(x)

    def _all_reaches(self, points: Any) -> Floats:
        if self.by_diameter:
            return np.full(len(points), self.largest)
        if self._reaches is not None:
            return self._reaches
        far = self.space.domain.points(self.space.domain.extremes())  # of a monotone metric
        return self._slope * np.asarray(self.space.metric.pairwise(points, far).max(axis=1))

    def _reach_level(self, reach: float) -> int:
        """The first level at least that high."""
        level = int(np.searchsorted(self.reach_levels, reach))
        return min(level, len(self.reach_levels) - 1)  # the last one is above every reach

    def _entry(self, total: float, one: int, other: int) -> float:
        from metricshuffle.accounting import _domain_kernels as kernels

        if total == 0.0:
            return 0.0
        near = int(kernels.distance_level(total, self.distance_levels, DISTANCE_STEP))
        return min(total, self._cell(near, max(one, other), min(one, other), math.nan))

    def _cell(self, near: int, high: int, low: int, guess: float) -> float:
        """The certified epsilon at the levels themselves, solved once."""
        known = float(self._cells[near, high, low])
        if not math.isnan(known):
            return known
        levels = self.reach_levels
        pair = ClonePair(float(self.distance_levels[near]), float(levels[high]), float(levels[low]))
        found = pair.log_p
        if self.delta > 0.0 and pair.log_p <= 700.0:
            counts = CloneCounts.absolute(pair, self.users, self.delta, share=COARSE, most=512)
            start = guess if 0.0 < guess < pair.log_p else counts.guess(self.delta)
            found = crossing(counts.delta, self.delta, pair.log_p, start, SEARCH)[1]
        self._cells[near, high, low] = found
        return found


@theorem("metricshuffle", "amplified metric of a whole domain")
def amplified_metric(space: Space | Domain, rate: float, users: int, delta: float, *, reach_levels: int | None = None) -> AmplifiedMetric:
    """The asymmetric clone pair for all pairs of a space whose reports have local epsilon `rate` times the distance.

    Statement: raising D(a, b), reach(a) or reach(b) keeps the hypotheses of the clone pair (delta_upper), so a table over
    levels of the three, each rounded up, bounds every pair; entries are solved when first asked for.
    Reach: on a line or a grid with a monotone metric it is attained at an end or a corner; in a `Tree` at an end of a longest
    way; for other metrics on up to 2,000 points every pair is looked at and every triangle is checked (a semi-metric is
    refused with the triple; use `closure`). Beyond, the diameter is taken for every reach, and `reached_by` says so.
    Two farthest points do NOT find the reach in a graph with loops: on a cycle of 12 they give half of it.
    Conditions: distances of the space are those the randomizer was built for. `reach_levels` (64 on a line, 24 elsewhere)
    trades time for tightness.
    Numerics: cells are certified values of a search with relative bracket 3e-4, from blocks of clone counts that cost 1e-3.
    Reference: this docstring.
    """
    space = Space.of(space)
    PureProfile(rate)
    users, delta = checked_users(users), checked_delta(delta)
    reached_by, diameter, reaches = _farthest(space)
    by_diameter = reached_by == BY_DIAMETER
    largest = rate * UP * diameter
    if not 0.0 < largest < math.inf:
        raise InputError(f"rate * diameter must be a finite number > 0, got {rate!r} * {diameter!r}.")
    count = reach_levels if reach_levels is not None else (64 if space.domain.points_are == "numbers" else 24)
    if isinstance(count, bool) or not isinstance(count, int) or not 1 <= count <= 256:
        raise InputError(f"reach_levels must be a whole number from 1 to 256, got {count!r}.")
    totals = None if reaches is None else rate * UP * reaches
    # by the triangle inequality no reach is below half of the diameter
    least = 0.5 * largest if totals is None else float(totals.min())
    constant = by_diameter or least >= largest
    reach = np.array([largest]) if constant or count == 1 else np.linspace(least, largest, count)
    reach[-1] = largest * UP
    near = largest * UP * np.exp(-DISTANCE_STEP * np.arange(DISTANCE_LEVELS))
    cells = np.full((len(near), len(reach), len(reach)), math.nan)
    return AmplifiedMetric(space, float(rate), users, delta, reached_by, by_diameter, largest, reach, near, cells, totals)


def _farthest(space: Space) -> tuple[str, float, Floats | None]:
    """How reaches are found, the diameter, and the reach of every code where there is no closed form for one."""
    metric, size = space.metric, space.domain.size
    if metric.monotone:
        return "ends and corners of the domain", space.diameter, None
    if isinstance(metric, Tree):
        reaches = metric.reaches()  # each a sum of up to `size` lengths, in another order than the distances
        reaches = reaches * (1.0 + 2.0**-51 * len(reaches))
        return "the ends of a longest way", float(reaches.max()), reaches
    if size is not None and size <= MOST_CHECKED:
        points = space.domain.points(space.domain.all_values())
        distances = metric.pairwise(points, points)
        if not isinstance(metric, Matrix):
            triple = open_triangle(distances)
            if triple is not None:
                i, j, k = triple
                sides = f"d({i}, {k}) = {distances[i, k]:.6g} > {distances[i, j]:.6g} + {distances[j, k]:.6g} by way of {j}"
                raise ConditionError("amplified_metric", "a metric (use the closure of its table)", f"an open triangle: {sides}")
        reaches = distances.max(axis=1)
        return "every pair", float(reaches.max()), reaches
    if size is None or size > MOST_PAIRED:
        return BY_DIAMETER, space.diameter, None
    points = space.domain.points(space.domain.all_values())
    return BY_DIAMETER, max(float(block.max()) for _, block in _blocks(space, points)), None


def _points(space: Space) -> Any:
    size = space.domain.size
    if size is None or size > MOST_PAIRED:
        many = "infinitely many" if size is None else f"{size:,}"
        raise NotCertified(
            f"a matrix of all pairs holds up to {MOST_PAIRED:,} points, but {space.domain} has {many}; ask for epsilon(x, y)."
        )
    return space.domain.points(space.domain.all_values())


def _blocks(space: Space, points: Any) -> Iterator[tuple[int, Floats]]:
    for first in range(0, len(points), ROWS):
        yield first, space.metric.pairwise(points[first : first + ROWS], points)
