"""Features of rows of numbers and of sets of labels: the numbers, and who holds each label."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Iterator
from typing import TYPE_CHECKING, ClassVar, Literal, Self

import numpy as np

from metricshuffle.accounting.vectors.feature_changes import FeatureChanges
from metricshuffle.citations import theorem
from metricshuffle.errors import InputError
from metricshuffle.estimation.interval_widths import SumNoise
from metricshuffle.estimation.inversion import IntervalMethod
from metricshuffle.models import Whole
from metricshuffle.numerics.rounding import round_up
from metricshuffle.numerics.types import Floats, Integers64
from metricshuffle.protocols.features.feature_set import most_expensive_move
from metricshuffle.protocols.features.lattice import DISTANCE_TOLERANCE
from metricshuffle.protocols.features.query_features import QueryFeatures
from metricshuffle.queries.column_means import Means
from metricshuffle.queries.query import Estimate, Query
from metricshuffle.queries.record_query import RecordQuery
from metricshuffle.queries.sets import Sets
from metricshuffle.spaces import RowDistance, SetDistance, Space

if TYPE_CHECKING:
    from scipy.sparse import csr_array


class RecordFeatures(QueryFeatures):
    """Base of features of records, whose noisy means are the answers themselves."""

    coordinates: Whole

    @property
    @abstractmethod
    def top(self) -> int:
        """Largest value of a feature."""

    def table(self, space: Space) -> csr_array:
        raise InputError(f"{space.domain} are too many to list; features are computed.")

    def ranges(self, space: Space) -> tuple[Integers64, Integers64]:
        return (
            np.zeros(self.coordinates, dtype=np.int64),
            np.full(self.coordinates, self.top, dtype=np.int64),
        )

    def weights(self, space: Space) -> Floats:
        return np.ones(self.coordinates)

    def estimate(self, query: Query, means: Floats, noise: SumNoise, people: int) -> Estimate:
        """Means of the features, which lie between 0 and the top."""
        top = float(self.top)
        errors = np.sqrt(noise.variances) / noise.count

        def ends(level: float, simultaneous: bool, method: IntervalMethod) -> tuple[Floats, Floats]:
            miss = (1.0 - level) / (len(means) if simultaneous else 1)
            halves = noise.single_radii(miss)
            return np.clip(means - halves, 0.0, top), np.clip(means + halves, 0.0, top)

        return Estimate(np.clip(means, 0.0, top), errors, people, 1.0, ends)

    def expected_error(self, query: Query, noise: SumNoise) -> float:
        """Mean over the rows of the mean absolute error, which clipping only reduces."""
        return float(noise.mean_sizes.mean()) * getattr(query, "step", 1.0)

    def simulated_sums(self, query: RecordQuery, people: int) -> tuple[Floats, Floats]:
        """Sums of the features of typical people, and the totals of their answer.

        The noise, and so the error, is the same for all people; answers are in the middle, where
        nothing is clipped.
        """
        truth = np.full(self.coordinates, 0.5 * self.top)
        return truth * people, truth


class RowColumns(RecordFeatures):
    """The numbers of a row, in steps from the lowest number."""

    exact_moves: ClassVar[bool] = False
    # Noise on larger sums takes long to draw, and random rounding adds little to the noise.
    exact_sum: ClassVar[int] = 2**12
    kind: Literal["row-columns"] = "row-columns"
    steps: Whole

    def __str__(self) -> str:
        return "columns"

    @property
    def top(self) -> int:
        return self.steps

    @classmethod
    def offered_for(cls, query: Query, people: int, rate: float) -> Iterator[Self]:
        if isinstance(query, Means):
            yield cls(coordinates=query.rows, steps=query.top)

    def check(self, query: Query) -> bool:
        return isinstance(query, Means) and (self.coordinates, self.steps) == (
            query.rows,
            query.top,
        )

    def vectors(self, space: Space, codes: Integers64) -> Integers64:
        return np.asarray(codes.reshape(len(codes), self.coordinates), dtype=np.int64)

    def slope(self, space: Space, rates: Floats) -> float:
        checked = self.validate_rates(space, rates)
        if not isinstance(space.metric, RowDistance):
            raise InputError("features of columns are those of rows of numbers.")
        return row_slope(checked, space.metric.step)


class SetMembers(RecordFeatures):
    """Whether a set holds each label."""

    fine: ClassVar[bool] = False
    kind: Literal["set-members"] = "set-members"
    largest_set: Whole

    def __str__(self) -> str:
        return "members"

    @property
    def top(self) -> int:
        return 1

    @classmethod
    def offered_for(cls, query: Query, people: int, rate: float) -> Iterator[Self]:
        if isinstance(query, Sets):
            yield cls(coordinates=query.rows, largest_set=query.size)

    def check(self, query: Query) -> bool:
        return isinstance(query, Sets) and (self.coordinates, self.largest_set) == (
            query.rows,
            query.size,
        )

    def vectors(self, space: Space, codes: Integers64) -> Integers64:
        sets = codes.reshape(len(codes), self.largest_set)
        rows = np.zeros((len(sets), self.coordinates + 1), dtype=np.int64)
        # Empty places have the code -1, which is the index of the last column.
        rows[np.arange(len(sets))[:, None], sets] = 1
        return rows[:, : self.coordinates]

    def slope(self, space: Space, rates: Floats) -> float:
        checked = self.validate_rates(space, rates)
        if not isinstance(space.metric, SetDistance):
            raise InputError("features of labels are those of sets of labels.")
        return set_slope(checked)

    def moves(self, space: Space, rates: Floats, distance: float) -> Iterator[FeatureChanges]:
        """A change of the labels with the largest rates, of as many as the distance allows."""
        checked = self.validate_rates(space, rates)
        differing = math.floor(distance * (1.0 + DISTANCE_TOLERANCE))
        count = min(differing, 2 * self.largest_set, self.coordinates)
        if count > 0:
            yield most_expensive_move(checked, count)


@theorem("metricshuffle", "slope of means of columns")
def row_slope(rates: Floats, step: float) -> float:
    """Largest loss per unit of distance between rows of numbers.

    Statement: the features are the numbers x_j of a row in steps, with noise of the rates a_j. The
    loss of x -> y is sum_j a_j |x_j - y_j|, at most max_j a_j / step times the distance, step sum_j
    |x_j - y_j|; it is attained by a change of the column with the largest rate. With the length N
    steps of a range and d columns at one rate a, any two rows have a loss of at most a d N.
    Conditions: step > 0.
    Numerics: rounded up.
    """
    return round_up(float(rates.max()) / step, 4)


@theorem("metricshuffle", "slope of labels in sets")
def set_slope(rates: Floats) -> float:
    """Largest loss per label in which two sets differ.

    Statement: the features are the indicators of the labels, with noise of the rates a_e. The loss
    of A -> B is the sum of a_e over the labels e in one of the sets and not in the other, at most
    max_e a_e times their number. Sets of at most k of D labels differ in at most min(2 k, D).
    Numerics: exact.
    """
    return float(rates.max())
