"""What one person certainly gives away among others of several groups: the law of one number made from the shuffled reports.

Every report counts a whole number of points; their sum is what the adversary looks at. The others are independent, so its law is that of
a sum (`noise.convolution.sum_law`), and what tells a from b in it is a lower bound for that data set.
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
from metricshuffle.privacy.profile import LowerProfile, checked_delta, checked_epsilon, validate_distance

MAX_POINTS = 32  # that one report may count
MAX_CELLS = 10**6
EPSILON_TOLERANCE = 1e-14  # rows and sums of a few of their entries
SUM_SLACK = 1e-12  # for sums of some thousand positive terms
SEARCH_ROUNDS = 2


@dataclass(frozen=True, eq=False)
class MixedDataSet:
    """One person's two laws, and everybody else: laws of reports and how many people have them."""

    first: Floats
    second: Floats
    others: tuple[tuple[Floats, int], ...]

    @property
    def reversed(self) -> MixedDataSet:
        return MixedDataSet(self.second, self.first, self.others)

    @property
    def key(self) -> bytes:
        """The same for data sets that differ by the names of the reports."""
        columns = np.stack([self.first, self.second, *(law for law, _ in self.others)])
        return columns[:, np.lexsort(columns)].tobytes()

    def points(self, growth: float) -> Integers64:
        """What each report counts: (K_a - e K_b)/mean law of the others, on a scale that keeps the sum within a million cells."""
        people = sum(many for _, many in self.others)
        mean = sum((many / people * law for law, many in self.others), start=np.zeros(self.first.size))
        score = (self.first - min(growth, 1e290) * self.second) / np.maximum(mean, 1e-9)
        middle = float(mean @ score)
        score -= middle
        largest = float(np.abs(score).max())
        top = max(1, min(MAX_POINTS, math.floor(MAX_CELLS / (40.0 * math.sqrt(people) + 1.0))))
        scaled: Integers64 = np.rint(score / largest * top if largest > 0.0 else 0.0 * score).astype(np.int64)
        return scaled


@dataclass(frozen=True, eq=False)
class Statistic:
    """The law of the sum: of the two laws of person 1 the first from below and the second from above; `outside` is what is left of it."""

    first: Floats
    second: Floats
    outside: float

    @classmethod
    @theorem("metricshuffle", "a sum of points of the shuffled reports, a lower bound")
    def of(cls, data: MixedDataSet, points: Integers64, log_tail: float) -> Statistic:
        """Statement: the sum over all reports of points[report] is a function of the shuffled reports, so that what tells a from b in it
        is at most what the shuffled reports show. Conditions: independent reports. Numerics: `sum_law` for the others; masses that are not
        certified count for b.
        """
        low = int(points.min())

        def masses(law: Floats) -> Floats:
            return np.bincount(points - low, weights=law, minlength=int(points.max()) - low + 1).astype(np.float64)

        groups = [Group(many, low, scale_masses(masses(law)), relative_error=EPSILON_TOLERANCE) for law, many in data.others]
        first, last = covering_range(groups, log_tail)
        if last - first > 8 * MAX_CELLS:
            raise NotCertified("the sum of so many reports has too many values to be looked at one by one.")
        sum_range = sum_law(groups, first, last)
        small, large = np.exp(sum_range.log_mass - sum_range.log_error), np.exp(sum_range.log_mass + sum_range.log_error)
        return cls(
            np.convolve(small, masses(data.first)) * (1.0 - SUM_SLACK),
            np.convolve(large, masses(data.second)) * (1.0 + SUM_SLACK),
            sum_range.outside,
        )

    def delta(self, epsilon: float) -> float:
        """Rounded down."""
        growth = math.exp(min(epsilon, 700.0)) * (1.0 + SUM_SLACK)
        gain = float(np.sum(np.maximum(0.0, self.first - growth * self.second))) * (1.0 - SUM_SLACK)
        return max(0.0, gain - growth * self.outside * (1.0 + SUM_SLACK))


def scale_masses(masses: Floats) -> Floats:
    return masses / math.fsum(masses)


@dataclass(frozen=True)
class MixedGroupsLower(LowerProfile):
    """The largest over some data sets. data_sets(distance): of pairs at most that far apart."""

    data_sets: Callable[[float], Sequence[MixedDataSet]]
    bound: str = "data set"

    def _both_ways(self, distance: float) -> list[MixedDataSet]:
        data_sets = (
            (data_set for data in self.data_sets(distance) for data_set in (data, data.reversed)) if validate_distance(distance) else ()
        )
        return list({data_set.key: data_set for data_set in data_sets}.values())

    def delta(self, epsilon: float, distance: float) -> float:
        """Certified from below; what cannot be computed is 0."""
        epsilon = checked_epsilon(epsilon)
        growth = math.exp(min(epsilon, 700.0))
        return max((_delta(data, growth, -200.0, epsilon) for data in self._both_ways(distance)), default=0.0)

    def epsilon(self, delta: float, distance: float) -> float:
        """The largest epsilon found whose delta is certified to exceed the given one; 0 if there is none."""
        delta = checked_delta(delta)
        best = 0.0
        for data in self._both_ways(distance):
            best = _epsilon(data, max(delta, 1e-280), best)
        return best

    def witness(self, asked: str, given: float, distance: float) -> None:
        """None: of a mixed crowd it would be a law for each group."""


def _alone(data: MixedDataSet, epsilon: float) -> float:
    """What one report shows if there is nobody else, rounded down."""
    gap = data.first * (1.0 - SUM_SLACK) - math.exp(min(epsilon, 700.0)) * data.second * (1.0 + SUM_SLACK)
    return float(np.sum(np.maximum(0.0, gap))) * (1.0 - SUM_SLACK)


def _delta(data: MixedDataSet, growth: float, log_tail: float, epsilon: float) -> float:
    if not data.others:
        return _alone(data, epsilon)
    try:
        return Statistic.of(data, data.points(growth), log_tail).delta(epsilon)
    except NotCertified:
        return 0.0


def _epsilon(data: MixedDataSet, delta: float, known: float) -> float:
    """The largest of what is known and what this data set shows, with points for what is known first, then for what was found with them."""
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
    """The largest epsilon found at which more than delta is shown; `known` if that is not above it."""
    if not shown(known) > delta:
        return known
    passing = max(2.0 * known, 1.0)
    while passing < 700.0 and shown(passing) > delta:
        passing *= 2.0
    return last_certified(lambda epsilon: shown(epsilon) > delta, min(passing, 700.0), known, relative=1e-7)
