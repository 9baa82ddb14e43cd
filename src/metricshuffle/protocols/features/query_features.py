"""Features made for one query: columns of numbers, whose noisy means are the answer itself."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator
from functools import lru_cache
from typing import TYPE_CHECKING, ClassVar, Literal, Self

import numpy as np
from pydantic import model_validator

from metricshuffle.accounting.user_items.lipschitz import lipschitz_constant
from metricshuffle.accounting.user_items.structured_constants import structured_constants
from metricshuffle.errors import InputError
from metricshuffle.estimation.interval_widths import SumNoise
from metricshuffle.estimation.inversion import IntervalMethod
from metricshuffle.models import Whole
from metricshuffle.numerics.rounding import ROUNDOFF
from metricshuffle.numerics.types import Floats, Integers64
from metricshuffle.protocols.features.feature_set import Features
from metricshuffle.protocols.features.point_pairs import distances_of
from metricshuffle.queries.query import Estimate, Query
from metricshuffle.queries.user_queries import UserLinearQuery
from metricshuffle.spaces import LabelledPoints, Space
from metricshuffle.spaces.space import MAX_POINTS_PAIRED

if TYPE_CHECKING:
    from scipy.sparse import csr_array

COLUMN_BITS = 30
"""Bits of the largest whole number of a column that has no exact whole numbers."""


class QueryFeatures(Features, ABC):
    """Base class of feature sets that answer one kind of query, by a readout of their own.

    Unlike other feature sets they are never tried for histograms, and estimate no shares.
    """

    fine: ClassVar[bool] = True

    @classmethod
    def offered(cls, space: Space, people: int, rate: float) -> Iterator[Self]:
        return iter(())

    @classmethod
    @abstractmethod
    def offered_for(cls, query: Query, people: int, rate: float) -> Iterator[Self]:
        """Yield the sets of this kind worth trying for a query, the most promising first.

        They suit `people` people and a loss of `rate` per unit of distance; other queries get none.
        """

    @abstractmethod
    def check(self, query: Query) -> bool:
        """Return whether these are features of this query, so that the readout answers it."""

    @abstractmethod
    def estimate(self, query: Query, means: Floats, noise: SumNoise, people: int) -> Estimate:
        """Estimate the answer from noisy means of the features."""

    def expected_error(self, query: Query, noise: SumNoise) -> float | None:
        """Mean error of the answer, as the query measures it; None if it takes a simulation."""
        return None


class TableColumns(QueryFeatures):
    """The columns of a linear query of users' items, as whole numbers.

    Column j of the query is offsets[j] + scales[j] * numbers[:, j], up to rounding: exactly where
    30 bits suffice. Scales are powers of two. If `balanced`, every column gets noise in proportion
    to how much it can change, else all columns get the same noise. Scales are proportional to the
    noise (up to a factor of two), so that one unit suits all columns.
    """

    kind: Literal["table-columns"] = "table-columns"
    balanced: bool
    offsets: tuple[float, ...]
    scales: tuple[float, ...]
    numbers: tuple[tuple[Whole, ...], ...]

    def __str__(self) -> str:
        return "balanced columns" if self.balanced else "columns"

    @model_validator(mode="after")
    def _is_table(self) -> Self:
        columns = len(self.offsets)
        if len(self.scales) != columns or any(len(row) != columns for row in self.numbers):
            raise ValueError(
                "offsets, scales and every row of numbers must have one entry for each column"
            )
        return self

    @classmethod
    def of(cls, query: UserLinearQuery, *, balanced: bool) -> Self:
        """Round the columns of a query to whole numbers."""
        table = query.table
        low = table.min(axis=0)
        constant = low == table.max(axis=0)
        if constant.any():
            raise InputError(
                f"{query.names[int(np.argmax(constant))]} is the same at every point, so its mean "
                "is known without asking anybody; leave it out."
            )
        changes = _column_changes(table, query.points) if balanced else np.ones(table.shape[1])
        powers = np.frexp(changes)[1]
        power, numbers = _whole_numbers(np.ldexp(table - low, -powers))
        return cls(
            balanced=balanced,
            offsets=tuple(low.tolist()),
            scales=tuple(np.ldexp(1.0, power + powers).tolist()),
            numbers=tuple(map(tuple, numbers.tolist())),
        )

    @classmethod
    def offered_for(cls, query: Query, people: int, rate: float) -> Iterator[Self]:
        """The same noise on all columns, and noise in proportion to their changes."""
        if not isinstance(query, UserLinearQuery):
            return
        yield cls.of(query, balanced=False)
        if query.table.shape[1] > 1:
            yield cls.of(query, balanced=True)

    def check(self, query: Query) -> bool:
        return isinstance(query, UserLinearQuery) and self == self.of(query, balanced=self.balanced)

    def table(self, space: Space) -> csr_array:
        from scipy.sparse import csr_array

        return csr_array(np.array(self.numbers, dtype=np.int64))

    def weights(self, space: Space) -> Floats:
        return _weights(self, space)

    def slope(self, space: Space, rates: Floats) -> float:
        """Over all pairs (see `Features.slope`), or by the structure of the columns.

        With too many points for all pairs, columns that are linear in the points' vectors, or
        distances to points, have constants by a theorem.
        """
        if len(self.numbers) <= MAX_POINTS_PAIRED or not isinstance(space.metric, LabelledPoints):
            return super().slope(space, rates)
        return _structured_slope(self, space, tuple(self.validate_rates(space, rates).tolist()))

    def estimate(self, query: Query, means: Floats, noise: SumNoise, people: int) -> Estimate:
        scales = np.array(self.scales)
        totals = (np.array(self.offsets) + scales * means) * people
        errors = np.sqrt(noise.variances) / noise.count * scales * people
        unsure = self._rounding_errors(query) * people

        def ends(level: float, simultaneous: bool, method: IntervalMethod) -> tuple[Floats, Floats]:
            miss = (1.0 - level) / (totals.size if simultaneous else 1)
            halves = noise.single_radii(miss) * scales * people + unsure
            return totals - halves, totals + halves

        return Estimate(totals, errors, people, 1.0, ends)

    def _rounding_errors(self, query: Query) -> Floats:
        """Largest error of each column from rounding it to whole numbers, and of its mean."""
        table = query.table if isinstance(query, UserLinearQuery) else np.zeros(0)
        ideal = np.array(self.offsets) + np.array(self.scales) * np.array(self.numbers)
        return np.asarray(
            np.abs(table - ideal).max(axis=0) + 16.0 * ROUNDOFF * np.abs(table).max(axis=0)
        )

    def expected_error(self, query: Query, noise: SumNoise) -> float:
        """Mean over the columns of the mean absolute error."""
        sizes = noise.mean_sizes * np.array(self.scales) + self._rounding_errors(query)
        return float(sizes.mean())


def _whole_numbers(table: Floats) -> tuple[int, Integers64]:
    """Return (power, whole numbers) with table = numbers * 2^power, up to rounding to 30 bits.

    If 30 bits suffice for exact numbers, the power is the largest one with which they are whole.
    """
    finest = math.frexp(float(table.max()))[1] - COLUMN_BITS
    scaled = np.ldexp(table, -finest)
    numbers = np.rint(scaled).astype(np.int64)
    if not np.array_equal(scaled, numbers):
        return finest, numbers
    common = int(np.bitwise_or.reduce(numbers, axis=None))
    spare = (common & -common).bit_length() - 1
    return finest + spare, numbers >> spare


@lru_cache(maxsize=16)
def _structured_slope(features: TableColumns, space: Space, rates: tuple[float, ...]) -> float:
    """Slope of columns of a known structure, rounded up.

    Numerics: as in `Features.slope`.
    """
    assert isinstance(space.metric, LabelledPoints)  # noqa: S101 - checked by the only caller
    table = features.validate_table(space)
    slope = structured_constants(table.toarray() * np.array(rates), space.metric)["l1"]
    return slope * (1.0 + 4.0 * float(table.max()) * ROUNDOFF)


def _column_changes(table: Floats, space: Space) -> Floats:
    """How much each column changes relative to the others, by which the noise is divided.

    Largest change per unit of distance over all pairs of points; with too many points, the range.
    """
    if len(table) > MAX_POINTS_PAIRED:
        return np.asarray(np.ptp(table, axis=0))
    distances = distances_of(space)
    return np.array(
        [
            lipschitz_constant(table[:, [column]], distances, "l1").constant
            for column in range(table.shape[1])
        ]
    )


@lru_cache(maxsize=16)
def _weights(features: TableColumns, space: Space) -> Floats:
    """Relative rates per whole number, at most 1."""
    if not features.balanced:
        scales = np.array(features.scales)
        return np.asarray(scales / scales.max())
    changes = _column_changes(np.array(features.numbers, dtype=np.float64), space)
    if not np.all(changes > 0.0):
        raise InputError(
            f"column {int(np.argmin(changes))} (counting from 0) changes too little next to the "
            f"others for whole numbers of {COLUMN_BITS} bits; ask for it in a query of its own."
        )
    return np.asarray(changes.min() / changes)


def query_features(query: Query, people: int, rate: float) -> Iterator[QueryFeatures]:
    """Yield the feature sets that are made for this query."""
    for kind in sorted(Features.kinds):
        known = Features.kinds[kind]
        if issubclass(known, QueryFeatures):
            yield from known.offered_for(query, people, rate)
