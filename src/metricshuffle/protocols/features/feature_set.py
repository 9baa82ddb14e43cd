"""Which whole numbers everybody adds up about what she holds, how far they move, and how shares come back from their sums."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Self

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
from metricshuffle.spaces import Space
from metricshuffle.spaces.space import MAX_POINTS_PAIRED

if TYPE_CHECKING:
    from scipy.sparse import csr_array

Blur = tuple[Floats, ...]
"""Row x of the only table is the law of the point that is counted for x; of two tables, the laws of a row and of a column of a grid."""

MAX_COORDINATES = 4096
MAX_ENTRIES = 2**25
"""Of a table, those that are not 0: 400 MB."""
LARGEST_FEATURE = 2**31 - 1
"""So that sums over as many people and items as there are fit into 63 bits."""


@dataclass(frozen=True, eq=False)
class Cumulative:
    """The shares of the points at or below places of a line, averaged over the places first[k] .. last[k], with their standard errors.

    Unbiased, and nothing is rounded to what is possible; the errors are independent of each other.
    """

    first: Integers64
    last: Integers64
    shares: Floats
    errors: Floats


class Features(TaggedModel, ABC):
    """A set of whole-number features of the points of a finite space. One of your own is a subclass in a file that is imported.

    It needs `offered` and `table`; the rest is certified, or estimated, from the table. Points are 0 .. size-1, in the order of
    `space.domain.all_values()`. The features of a person with many items are the sums over her items, so that the slope holds for the sum
    of the distances that her items move; `moves` are those of one point.
    """

    kinds: ClassVar[dict[str, type[TaggedModel]]] = {}
    kind: str

    def __str__(self) -> str:
        width = getattr(self, "width", 1)
        return self.kind if width == 1 else f"{self.kind} {width}"

    @classmethod
    @abstractmethod
    def offered(cls, space: Space, people: int, rate: float) -> Iterator[Self]:
        """The sets of this kind worth trying for so many people at a loss of `rate` per unit of distance; the likeliest first, none if
        the space is not for them."""

    @abstractmethod
    def table(self, space: Space) -> csr_array:
        """The features of every point, a row each: whole numbers >= 0 (int64). No feature is the same at all points."""

    def validate_table(self, space: Space) -> csr_array:
        """The table, refused in a sentence unless it is what it must be: what is promised counts on whole numbers."""
        from scipy.sparse import csr_array

        table, size = self.table(space), space.domain.size
        if not isinstance(table, csr_array) or table.dtype != np.int64:
            raise InputError(f"the features {self.kind} must come as a scipy.sparse.csr_array of int64, got {type(table).__name__}.")
        if table.shape[0] != size or table.shape[1] < 1:
            raise InputError(
                f"the features {self.kind} must have a row for each of {size:,} points, and a column; got shape {table.shape}."
            )
        self.check_room(table.shape[1], table.nnz, "use fewer of them, or a coarser space")
        column_min, column_max = (np.asarray(end.toarray(), dtype=np.int64).ravel() for end in (table.min(axis=0), table.max(axis=0)))
        if column_min.min() < 0 or column_max.max() > LARGEST_FEATURE:
            raise InputError(f"the features {self.kind} must lie between 0 and {LARGEST_FEATURE:,}.")
        if np.any(column_min == column_max):
            raise InputError(f"feature {int(np.argmax(column_min == column_max))} of {self.kind} is the same at all points; leave it out.")
        return table

    def weights(self, space: Space) -> Floats:
        """How the rates of the coordinates go together: that of coordinate e is weights[e] times a common factor (rounded down)."""
        return np.ones(self.table(space).shape[1])

    def slope(self, space: Space, rates: Floats) -> float:
        """The largest sum over e of rates[e] |table[x, e] - table[y, e]| over the distance of x and y, rounded up: certified over all
        pairs of points.

        Numerics: products of rates and features are rounded, which counts for (a + b) units roundoff of what features a and b differ by.
        """
        table, checked = self.validate_table(space), self.validate_rates(space, rates)
        size = table.shape[0]
        if size > MAX_POINTS_PAIRED:
            raise NotCertified(
                f"how far the features {self.kind} move is certified over all pairs of at most {MAX_POINTS_PAIRED:,} points, but "
                f"{space.domain} has {size:,}; use a coarser space, or features with a proof."
            )
        slope = lipschitz_constant(table.toarray() * checked, distances_of(space), "l1").constant
        return slope * (1.0 + 4.0 * float(table.max()) * ROUNDOFF)

    def moves(self, space: Space, rates: Floats, distance: float) -> Iterator[FeatureChanges]:
        """Moves of one point that are as bad as any within that distance: every other one changes no coordinate by more than one of
        these does, at no higher rate, in some order of the coordinates.

        Pair by pair, where there are not too many; otherwise one move that changes every coordinate by as much as any does, and by no
        more than the slope allows. Distances that fall short of a pair by rounding count as reaching it. A person with many items can
        change a single coordinate by as much as all of them do: she is not covered.
        """
        table, checked = self.validate_table(space), self.validate_rates(space, rates)
        listed_moves = moves_of_pairs(table, space, checked, distance)
        if listed_moves is not None:
            yield from listed_moves
            return
        max_changes = np.floor(self.slope(space, checked) * distance * (1.0 + 2.0 * DISTANCE_TOLERANCE) / checked)
        ranges = (table.max(axis=0).toarray() - table.min(axis=0).toarray()).ravel()
        largest = np.minimum(ranges, max_changes).astype(np.int64)
        if np.any(largest > 0):
            yield changes_of(checked, largest)

    def point_readings(self, space: Space) -> Readings | None:
        """The share of every point; None where the features do not tell single points apart."""
        return None

    def nearby(self, space: Space) -> Readings | None:
        """The share of the people around every point, who count the less the farther they are; None where nothing like that is measured."""
        return None

    def bounds(self, space: Space) -> Readings:
        """Readings that are no less than the share of a point, some for each, whatever people hold."""
        return largest_features(self.table(space))

    def unbiased(self, space: Space, means: Floats, errors: Floats) -> tuple[Floats, Floats] | None:
        """Unbiased shares of the points from the means of the features (per item) with standard errors `errors`, and the standard errors
        of the shares; None where the features do not tell single points apart."""
        readings = self.point_readings(space)
        if readings is None:
            return None
        return readings.values(means), np.sqrt(readings.factors.power(2) @ np.asarray(errors, dtype=np.float64) ** 2)

    def shares(self, space: Space, means: Floats, errors: Floats, blur: Blur | None = None) -> Floats:
        """Shares that can be true (>= 0, sum 1) near the means; `means` may have a row for each of several runs.

        `blur` is how values are randomized first, if they are: the law of what is counted for each point, or one for rows and one for
        columns of a grid.
        """
        if blur is not None and len(blur) > 1:
            fitted = nearest_shares(self.design(space), means, errors, axes=(blur[0], blur[1])).shares
        else:
            fitted = nearest_shares(self.design(space, blur), means, errors).shares
        return fitted if np.ndim(means) > 1 else fitted[0]

    def cumulative(self, space: Space, means: Floats, errors: Floats) -> Cumulative | None:
        """The shares at or below places of a line; None where there is no line, or the features do not measure them."""
        return None

    def design(self, space: Space, blur: Blur | None = None) -> csr_array | Floats:
        """The mean features of somebody who holds each point, a row each."""
        table = self.table(space).astype(np.float64)
        if blur is None:
            return table
        law = blur[0] if len(blur) == 1 else np.kron(blur[0], blur[1])
        # (a table that is mostly full is multiplied faster as one)
        return np.asarray(law @ (table.toarray() if 4 * table.nnz > math.prod(table.shape) else table))

    def validate_rates(self, space: Space, rates: Floats) -> Floats:
        """The rates as an array, one number > 0 for each coordinate."""
        array, coordinates = np.asarray(rates, dtype=np.float64), len(self.weights(space))
        if array.shape != (coordinates,) or not np.all((array > 0.0) & (array < math.inf)):
            raise InputError(f"rates must be one number > 0 for each of {coordinates:,} coordinates, got shape {array.shape}.")
        return array

    def check_room(self, coordinates: int, entries: int, remedy: str) -> None:
        """Refuse, in a sentence, tables that are too large."""
        if coordinates > MAX_COORDINATES:
            raise InputError(
                f"the features {self.kind} would have {coordinates:,} coordinates, and there may be up to {MAX_COORDINATES:,}; {remedy}."
            )
        if entries > MAX_ENTRIES:
            raise InputError(f"the table of the features {self.kind} would have {entries:,} entries, too many to hold; {remedy}.")


def changes_of(rates: Floats, sizes: Any) -> FeatureChanges:
    """A move that changes coordinate e, whose rate is rates[e], by sizes[e]: equal ones together, the largest rate first."""
    at = np.asarray(sizes, dtype=np.int64)
    pairs, counts = np.unique(np.column_stack([rates[at > 0], at[at > 0]]), axis=0, return_counts=True)
    return FeatureChanges(pairs[::-1, 0], pairs[::-1, 1].astype(np.int64), counts[::-1].astype(np.int64))


def most_expensive_move(rates: Floats, count: int) -> FeatureChanges:
    """A move that changes `count` coordinates by one each, those of the largest rates."""
    some = np.sort(rates)[::-1][:count]
    return changes_of(some, np.ones(len(some), dtype=np.int64))


AnyFeatures = Annotated[SerializeAsAny[Features], BeforeValidator(Features.of_kind)]
"""A field that holds any feature set and reads it back from JSON by its kind."""
