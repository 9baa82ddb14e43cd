"""Base class of feature sets: whole-number functions of a value, added up over people with noise.

A feature set also states its sensitivity (`slope`, `moves`) and its readout (`shares`,
`point_readings`).
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Annotated, ClassVar, Self

import numpy as np
from pydantic import BeforeValidator, SerializeAsAny

from metricshuffle.accounting.user_items.lipschitz import lipschitz_constant
from metricshuffle.accounting.vectors.feature_changes import FeatureChanges
from metricshuffle.errors import InputError, NotCertified
from metricshuffle.estimation.least_squares import nearest_shares
from metricshuffle.models import TaggedModel
from metricshuffle.numerics.rounding import ROUNDOFF
from metricshuffle.numerics.types import Floats, Integers64
from metricshuffle.protocols.features.lattice import DISTANCE_TOLERANCE
from metricshuffle.protocols.features.point_pairs import distances_of, moves_of_pairs
from metricshuffle.protocols.features.readings import Readings, largest_features
from metricshuffle.queries.query import Query
from metricshuffle.spaces import Space
from metricshuffle.spaces.space import MAX_POINTS_PAIRED

if TYPE_CHECKING:
    from scipy.sparse import csr_array

Blur = tuple[Floats, ...]
"""How points are randomized before they are counted: row x is the law of the counted point of x.

It is one table, or two tables for the rows and the columns of a grid.
"""

MAX_COORDINATES = 4096
MAX_ENTRIES = 2**25
"""Maximum nonzero entries of a table: 400 MB."""
LARGEST_FEATURE = 2**31 - 1
"""Small enough for sums over all existing people and items to fit in 63 bits."""


@dataclass(frozen=True, eq=False)
class Cumulative:
    """Cumulative shares of a line, each averaged over a window of places, with standard errors.

    Window k has the places first[k] .. last[k]. The averages are unbiased and not projected onto
    valid shares; their errors are independent of each other.
    """

    first: Integers64
    last: Integers64
    shares: Floats
    errors: Floats


def space_of(query: Query) -> Space:
    """The points in the order of the query's codes, with its distances.

    Bins of a line become the whole numbers 0, 1, ..., a step apart; cells, labels and users' items
    are unchanged.
    """
    if query.points is None:
        raise InputError(
            f"features are those of points of a finite space; a {query.kind} has none."
        )
    return query.points


class Features(TaggedModel, ABC):
    """Base class of sets of whole-number features of the points of a finite space.

    A custom set is a subclass in an imported file. It needs `offered` and `table`; everything else
    is certified, or estimated, from the table. Points are 0 .. size-1, in the order of
    `space.domain.all_values()`. The features of a person with many items are the sums over the
    items, so that the slope applies to the sum of the distances that the items move; `moves` are
    those of one point.
    """

    kinds: ClassVar[dict[str, type[TaggedModel]]] = {}
    fine: ClassVar[bool] = False
    """Whether features are so fine that they are rounded at random before they are sent."""
    exact_sum: ClassVar[int] = 2**20
    """Fine features are not rounded if a person's sum is at most this, which takes few bits."""
    exact_moves: ClassVar[bool] = True
    """Whether moves are accounted by the exact law of the noise; else by the slope only."""
    largest_feature: ClassVar[int] = LARGEST_FEATURE
    """Limit of features; larger ones must be rounded to coarser units before they are summed."""
    most_coordinates: ClassVar[int] = MAX_COORDINATES
    """Limit of their number."""
    kind: str

    def __str__(self) -> str:
        width = getattr(self, "width", 1)
        return self.kind if width == 1 else f"{self.kind} {width}"

    @classmethod
    @abstractmethod
    def offered(cls, space: Space, people: int, rate: float) -> Iterator[Self]:
        """Yield the sets of this kind worth trying, the most promising first.

        They suit `people` people and a loss of `rate` per unit of distance; nothing is yielded for
        a space of another kind.
        """

    @abstractmethod
    def table(self, space: Space) -> csr_array:
        """The features of every point, one row each: whole numbers >= 0 (int64).

        No feature is the same at all points.
        """

    def validate_table(self, space: Space) -> csr_array:
        """Return the table; InputError unless it is valid (guarantees rely on whole numbers)."""
        from scipy.sparse import csr_array

        table = self.table(space)
        size = space.domain.size
        if not isinstance(table, csr_array) or table.dtype != np.int64:
            raise InputError(
                f"the features {self.kind} must come as a scipy.sparse.csr_array of int64, "
                f"got {type(table).__name__}."
            )
        if table.shape[0] != size or table.shape[1] < 1:
            raise InputError(
                f"the features {self.kind} must have a row for each of {size:,} points, "
                f"and a column; got shape {table.shape}."
            )
        self.check_room(table.shape[1], table.nnz, "use fewer of them, or a coarser space")
        column_min, column_max = _column_ends(table)
        if column_min.min() < 0 or column_max.max() > self.largest_feature:
            raise InputError(
                f"the features {self.kind} must lie between 0 and {self.largest_feature:,}."
            )
        if np.any(column_min == column_max):
            raise InputError(
                f"feature {int(np.argmax(column_min == column_max))} of {self.kind} is the "
                "same at all points; leave it out."
            )
        return table

    def ranges(self, space: Space) -> tuple[Integers64, Integers64]:
        """Smallest and largest value of every feature."""
        return _table_ranges(self, space)

    def vectors(self, space: Space, codes: Integers64) -> Integers64:
        """The features of the points with these codes, one row each."""
        return np.asarray(feature_table(self, space)[codes].toarray(), dtype=np.int64)

    def weights(self, space: Space) -> Floats:
        """Relative rates: coordinate e has rate weights[e] times a common factor (rounded down)."""
        return np.ones(self.table(space).shape[1])

    def slope(self, space: Space, rates: Floats) -> float:
        """Certified largest loss per unit of distance over all pairs of points, rounded up.

        The loss of a pair x, y is the sum of rates[e] |table[x, e] - table[y, e]| over coordinates
        e.

        Numerics: products of rates and features are rounded; the rounding error of the difference
        between two different features a and b is at most (a + b) units roundoff of that difference.
        """
        table = self.validate_table(space)
        checked = self.validate_rates(space, rates)
        size = table.shape[0]
        if size > MAX_POINTS_PAIRED:
            raise NotCertified(
                f"how far the features {self.kind} move is certified over all pairs of at "
                f"most {MAX_POINTS_PAIRED:,} points, but "
                f"{space.domain} has {size:,}; use a coarser space, or features with a proof."
            )
        slope = lipschitz_constant(table.toarray() * checked, distances_of(space), "l1").constant
        return slope * (1.0 + 4.0 * float(table.max()) * ROUNDOFF)

    def moves(self, space: Space, rates: Floats, distance: float) -> Iterator[FeatureChanges]:
        """Moves of one point that dominate all moves within this distance.

        A move dominates another if, after reordering its coordinates, it changes every coordinate
        by at least as much, at a rate at least as high. If there are not too many pairs of points,
        all are compared. Otherwise a single move is returned that changes every coordinate by the
        largest change of that coordinate in any move, but by no more than the slope allows. Points
        whose distance is too large only by rounding are included. A person with many items is not
        covered, because all items together can change a single coordinate by the sum of their
        changes.
        """
        table = self.validate_table(space)
        checked = self.validate_rates(space, rates)
        listed_moves = moves_of_pairs(table, space, checked, distance)
        if listed_moves is not None:
            yield from listed_moves
            return
        max_changes = np.floor(
            self.slope(space, checked) * distance * (1.0 + 2.0 * DISTANCE_TOLERANCE) / checked
        )
        ranges = (table.max(axis=0).toarray() - table.min(axis=0).toarray()).ravel()
        largest = np.minimum(ranges, max_changes).astype(np.int64)
        if np.any(largest > 0):
            yield changes_of(checked, largest)

    def point_readings(self, space: Space) -> Readings | None:
        """The share of every point; None if the features do not identify single points."""
        return None

    def nearby(self, space: Space) -> Readings | None:
        """Share of people around every point (nearer people count more); None if not measured."""
        return None

    def nearby_words(self, space: Space) -> str:
        """Extent of what `nearby` counts, in words."""
        return f"within about {getattr(self, 'width', 1):,} cells"

    def bounds(self, space: Space) -> Readings:
        """For every point, one or more readings that are at least its share, for any data."""
        return largest_features(self.table(space))

    def unbiased(self, space: Space, means: Floats, errors: Floats) -> tuple[Floats, Floats] | None:
        """Unbiased shares of the points and their standard errors.

        They follow from the means of the features (per item) and the standard errors of these
        means; None if the features do not identify single points.
        """
        readings = self.point_readings(space)
        if readings is None:
            return None
        return readings.values(means), np.sqrt(
            readings.factors.power(2) @ np.asarray(errors, dtype=np.float64) ** 2
        )

    def shares(
        self, space: Space, means: Floats, errors: Floats, blur: Blur | None = None
    ) -> Floats:
        """Valid shares (>= 0, sum 1) near the means, which may have a row for each of several runs.

        If values are randomized first, `blur` has the law of the counted point for each point, in
        one table, or in one table for the rows and one for the columns of a grid.
        """
        if blur is not None and len(blur) > 1:
            fitted = nearest_shares(
                self.design(space), means, errors, axes=(blur[0], blur[1])
            ).shares
        else:
            fitted = nearest_shares(self.design(space, blur), means, errors).shares
        return fitted if np.ndim(means) > 1 else fitted[0]

    def cumulative(self, space: Space, means: Floats, errors: Floats) -> Cumulative | None:
        """Cumulative shares of a line; None if there is no line or they are not measured."""
        return None

    def design(self, space: Space, blur: Blur | None = None) -> csr_array | Floats:
        """Mean features of a person at each point, one row each."""
        table = self.table(space).astype(np.float64)
        if blur is None:
            return table
        law = blur[0] if len(blur) == 1 else np.kron(blur[0], blur[1])
        # A table with many nonzero entries is multiplied faster as a dense one.
        return np.asarray(
            law @ (table.toarray() if 4 * table.nnz > math.prod(table.shape) else table)
        )

    def validate_rates(self, space: Space, rates: Floats) -> Floats:
        """Return the rates as an array; InputError unless each coordinate has one number > 0."""
        array = np.asarray(rates, dtype=np.float64)
        coordinates = len(self.weights(space))
        if array.shape != (coordinates,) or not np.all((array > 0.0) & (array < math.inf)):
            raise InputError(
                f"rates must be one number > 0 for each of {coordinates:,} coordinates, "
                f"got shape {array.shape}."
            )
        return array

    def check_room(self, coordinates: int, entries: int, remedy: str) -> None:
        """Raise if a table would be too large."""
        if coordinates > self.most_coordinates:
            raise InputError(
                f"the features {self.kind} would have {coordinates:,} coordinates, and "
                f"there may be up to {self.most_coordinates:,}; {remedy}."
            )
        if entries > MAX_ENTRIES:
            raise InputError(
                f"the table of the features {self.kind} would have {entries:,} entries, "
                f"too many for memory; {remedy}."
            )


@lru_cache(maxsize=32)
def feature_table(features: Features, space: Space) -> csr_array:
    """Cached features of every point."""
    return features.validate_table(space)


def _column_ends(table: csr_array) -> tuple[Integers64, Integers64]:
    """Smallest and largest entry of every column."""
    columns = table.tocsc()  # once for both
    low, high = (end.toarray().ravel() for end in (columns.min(axis=0), columns.max(axis=0)))
    return low.astype(np.int64), high.astype(np.int64)


@lru_cache(maxsize=32)
def _table_ranges(features: Features, space: Space) -> tuple[Integers64, Integers64]:
    """Cached `_column_ends` of a table, read-only."""
    ends = _column_ends(feature_table(features, space))
    for end in ends:
        end.setflags(write=False)
    return ends


def changes_of(rates: Floats, sizes: object) -> FeatureChanges:
    """A move that changes coordinate e, of rate rates[e], by sizes[e].

    Equal changes are grouped, the largest rate first.
    """
    at = np.asarray(sizes, dtype=np.int64)
    pairs, counts = np.unique(
        np.column_stack([rates[at > 0], at[at > 0]]), axis=0, return_counts=True
    )
    return FeatureChanges(
        pairs[::-1, 0], pairs[::-1, 1].astype(np.int64), counts[::-1].astype(np.int64)
    )


def most_expensive_move(rates: Floats, count: int) -> FeatureChanges:
    """A move that changes the `count` coordinates of the largest rates by one each."""
    some = np.sort(rates)[::-1][:count]
    return changes_of(some, np.ones(len(some), dtype=np.int64))


AnyFeatures = Annotated[SerializeAsAny[Features], BeforeValidator(Features.of_kind)]
"""A field for any feature set, which is read back from JSON by its kind."""
