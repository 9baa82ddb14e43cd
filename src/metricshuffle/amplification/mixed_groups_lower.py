"""Lower bound for one person among several groups, from one statistic of the shuffled reports.

Every report scores a whole number of points, and the statistic is the sum of the points of all
reports. The reports are independent, so its law is that of a sum (`noise.convolution.sum_law`). How
well the statistic distinguishes the person's inputs a and b is a lower bound for that data set.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from metricshuffle.citations import theorem
from metricshuffle.errors import NotCertified
from metricshuffle.noise.convolution import Group, covering_range, sum_law
from metricshuffle.numerics.certified_search import last_certified
from metricshuffle.numerics.types import Floats, Integers64
from metricshuffle.privacy.profile import (
    LowerProfile,
    checked_delta,
    checked_epsilon,
    validate_distance,
)

MAX_POINTS = 32  # max score of one report
MAX_CELLS = 10**6
EPSILON_TOLERANCE = 1e-14  # relative error of rows and of sums of a few of their entries
SUM_SLACK = 1e-12  # relative error of sums of some thousand positive terms
SEARCH_ROUNDS = 2


@dataclass(frozen=True, eq=False)
class MixedDataSet:
    """One person's two laws, and the laws of everyone else with their numbers of people."""

    first: Floats
    second: Floats
    others: tuple[tuple[Floats, int], ...]

    @property
    def reversed(self) -> MixedDataSet:
        """The same data set with the two laws exchanged."""
        return MixedDataSet(self.second, self.first, self.others)

    @property
    def key(self) -> bytes:
        """Bytes that are equal for data sets that differ only by the names of the reports."""
        columns = np.stack([self.first, self.second, *(law for law, _ in self.others)])
        return columns[:, np.lexsort(columns)].tobytes()

    def points(self, growth: float) -> Integers64:
        """Return the score of each report, scaled so that the sum stays within a million cells.

        The score is (K_a - e K_b)/(mean law of the others), with K_a and K_b the two laws of the
        person's report and e = growth.
        """
        people = sum(many for _, many in self.others)
        mean = sum(
            (many / people * law for law, many in self.others), start=np.zeros(self.first.size)
        )
        score = (self.first - min(growth, 1e290) * self.second) / np.maximum(mean, 1e-9)
        middle = float(mean @ score)
        score -= middle
        largest = float(np.abs(score).max())
        top = max(1, min(MAX_POINTS, math.floor(MAX_CELLS / (40.0 * math.sqrt(people) + 1.0))))
        scaled: Integers64 = np.rint(
            score / largest * top if largest > 0.0 else 0.0 * score
        ).astype(np.int64)
        return scaled


@dataclass(frozen=True, eq=False)
class Statistic:
    """The law of the sum of points under the two laws of one person.

    `first` has lower bounds on the masses under the first law and `second` upper bounds on those
    under the second; `outside` is the mass that both leave out.
    """

    first: Floats
    second: Floats
    outside: float

    @classmethod
    @theorem("metricshuffle", "a sum of points of the shuffled reports, a lower bound")
    def of(cls, data: MixedDataSet, points: Integers64, log_tail: float) -> Statistic:
        """Compute the law of the sum of points.

        Statement: the sum over all reports of points[report] is a function of the shuffled reports,
        so it distinguishes a from b at most as well as the shuffled reports do.
        Conditions: independent reports.
        Numerics: `sum_law` for the others; masses that are not certified count for b.
        """
        low = int(points.min())

        def masses(law: Floats) -> Floats:
            return np.bincount(
                points - low, weights=law, minlength=int(points.max()) - low + 1
            ).astype(np.float64)

        groups = [
            Group(many, low, scale_masses(masses(law)), relative_error=EPSILON_TOLERANCE)
            for law, many in data.others
        ]
        first, last = covering_range(groups, log_tail)
        if last - first > 8 * MAX_CELLS:
            raise NotCertified("the sum of this many reports has too many values to be tabulated.")
        sum_range = sum_law(groups, first, last)
        small = np.exp(sum_range.log_mass - sum_range.log_error)
        large = np.exp(sum_range.log_mass + sum_range.log_error)
        return cls(
            np.convolve(small, masses(data.first)) * (1.0 - SUM_SLACK),
            np.convolve(large, masses(data.second)) * (1.0 + SUM_SLACK),
            sum_range.outside,
        )

    def delta(self, epsilon: float) -> float:
        """Return delta at this epsilon, rounded down."""
        growth = math.exp(min(epsilon, 700.0)) * (1.0 + SUM_SLACK)
        gain = float(np.sum(np.maximum(0.0, self.first - growth * self.second))) * (1.0 - SUM_SLACK)
        return max(0.0, gain - growth * self.outside * (1.0 + SUM_SLACK))


def scale_masses(masses: Floats) -> Floats:
    """Return masses that sum to 1."""
    return masses / math.fsum(masses)


@dataclass(frozen=True)
class MixedGroupsLower(LowerProfile):
    """The largest lower bound of some data sets.

    data_sets(distance) returns the data sets of pairs at most `distance` apart.
    """

    data_sets: Callable[[float], Sequence[MixedDataSet]]
    bound: str = "data set"

    def _both_ways(self, distance: float) -> list[MixedDataSet]:
        data_sets = (
            (data_set for data in self.data_sets(distance) for data_set in (data, data.reversed))
            if validate_distance(distance)
            else ()
        )
        return list({data_set.key: data_set for data_set in data_sets}.values())

    def delta(self, epsilon: float, distance: float) -> float:
        """Return a certified lower bound on delta; 0 if it cannot be computed."""
        epsilon = checked_epsilon(epsilon)
        growth = math.exp(min(epsilon, 700.0))
        return max(
            (_delta(data, growth, -200.0, epsilon) for data in self._both_ways(distance)),
            default=0.0,
        )

    def epsilon(self, delta: float, distance: float) -> float:
        """Return the largest epsilon found whose delta is certified to exceed `delta`, or 0."""
        delta = checked_delta(delta)
        best = 0.0
        for data in self._both_ways(distance):
            best = _epsilon(data, max(delta, 1e-280), best)
        return best

    def witness(self, asked: str, given: float, distance: float) -> None:
        """Return None: the data set of mixed groups would be one law per group."""


def _alone(data: MixedDataSet, epsilon: float) -> float:
    """Return delta of one report without any others, rounded down."""
    gap = data.first * (1.0 - SUM_SLACK) - math.exp(min(epsilon, 700.0)) * data.second * (
        1.0 + SUM_SLACK
    )
    return float(np.sum(np.maximum(0.0, gap))) * (1.0 - SUM_SLACK)


def _delta(data: MixedDataSet, growth: float, log_tail: float, epsilon: float) -> float:
    if not data.others:
        return _alone(data, epsilon)
    try:
        return Statistic.of(data, data.points(growth), log_tail).delta(epsilon)
    except NotCertified:
        return 0.0


def _epsilon(data: MixedDataSet, delta: float, known: float) -> float:
    """Return the larger of `known` and the epsilon that this data set shows.

    The points are chosen for the known epsilon first, then for the epsilon found with those points.
    """
    if not data.others:
        return _last_above(lambda epsilon: _alone(data, epsilon), delta, known)
    best = known
    for _ in range(SEARCH_ROUNDS):
        try:
            statistic = Statistic.of(data, data.points(math.exp(best)), math.log(delta) - 12.0)
        except NotCertified:
            break
        shown_epsilon = _last_above(statistic.delta, delta, best)
        if shown_epsilon == best:
            break
        best = shown_epsilon
    return best


def _last_above(shown: Callable[[float], float], delta: float, known: float) -> float:
    """Return the largest epsilon found at which more than delta is shown, at least `known`."""
    if not shown(known) > delta:
        return known
    passing = max(2.0 * known, 1.0)
    while passing < 700.0 and shown(passing) > delta:
        passing *= 2.0
    return last_certified(
        lambda epsilon: shown(epsilon) > delta, min(passing, 700.0), known, relative=1e-7
    )
