"""Queries on users with many items each: shares of all points, or the mean of a function."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cached_property
from typing import Any, ClassVar, Literal, Self

import numpy as np
from pydantic import model_validator

from metricshuffle.accounting.user_items.lipschitz import (
    NormName,
    lipschitz_constant,
    validate_lipschitz,
)
from metricshuffle.accounting.user_items.query_polytope import polytope_constant, query_polytope
from metricshuffle.accounting.user_items.structured_constants import structured_constants
from metricshuffle.errors import ConditionError, InputError, argument
from metricshuffle.estimation.inversion import IntervalMethod
from metricshuffle.models import FrozenModel, Positive, format_value
from metricshuffle.noise.polytope import Polytope
from metricshuffle.numerics.rounding import format_exact, format_number, shown_at_least
from metricshuffle.privacy.guarantee import Items
from metricshuffle.privacy.target import Target
from metricshuffle.queries.cell_table import places_of, shares_answer
from metricshuffle.queries.centroid import ALONG_AXES_TEXT, STRAIGHT_LINE_TEXT, degrees_of, pair
from metricshuffle.queries.exact_features import ExactFeatures
from metricshuffle.queries.item_table import Table, validate_table
from metricshuffle.queries.query import Answer, Estimate, Inputs, Query
from metricshuffle.queries.result_table import Table as AnswerTable
from metricshuffle.queries.share_above import ShareAbove
from metricshuffle.queries.user_people import check_pairs, item_points, validate_people
from metricshuffle.spaces import (
    Absolute,
    Circle,
    Clustered,
    Discrete,
    Domain,
    Euclidean,
    GreatCircle,
    Grid,
    Integers,
    LabelledPoints,
    Manhattan,
    Matrix,
    Maximum,
    Metric,
    NestedSquares,
    Scaled,
    Space,
    Threshold,
    Tree,
    TreeEmbedding,
    Users,
    Vectors,
    users_of,
)
from metricshuffle.spaces.space import MAX_POINTS_PAIRED

MAX_COORDINATES = 100_000
MAX_ITEMS = 2**20
TOTAL_NAMES = ("total",)
"""Name of the column of totals."""
POINT_NAMES: dict[int, tuple[str, ...]] = {1: ("mean",), 2: ("east", "north")}
"""Names of the coordinates of an average of points."""
MEASURE_TEXTS: dict[type[Metric], str] = {
    NestedSquares: "cells of nested squares: the diagonal of the smallest square that holds both",
    Clustered: "points of clusters",
    Tree: "points along a tree",
    Circle: "points around a circle",
    Matrix: "items as given in a table",
    GreatCircle: "places, along great circles, never more than along the ground",
    Vectors: "the vectors of items, in a straight line",
    Discrete: "items, any two of which are 1 apart",
    Scaled: "items, scaled by a factor",
    Threshold: "items, cut off at a threshold",
    Maximum: "items, the largest of several distances",
}
"""How distances between items are measured, unless as differences of numbers or straight lines."""


class UserQuery(Query):
    """Base of queries in which every user counts the same, whatever their number of items.

    The answer is the mean over the users of the mean over their items.
    """

    people: Users

    @property
    def values_in(self) -> Domain:
        return self.people.items_in.domain

    @property
    def points(self) -> Space:
        return self.people.items_in

    @property
    def unit(self) -> str:
        return self.people.unit

    @property
    def error_unit(self) -> str:
        return self.unit

    @property
    def diameter(self) -> float:
        """Largest earth mover's distance: all items replaced by the farthest ones."""
        return self.people.diameter

    @property
    def items(self) -> Items | None:
        return self.people.items or "any"

    def between(self, step: float) -> str:
        metric = self.people.items_in.metric
        words = next(
            (words for kind, words in MEASURE_TEXTS.items() if isinstance(metric, kind)), None
        )
        if words is not None:
            return words
        if type(metric) not in (Absolute, Manhattan, Euclidean):
            return f"items, by the metric {type(metric).__name__}"
        if not isinstance(self.values_in, Grid):
            return "values"
        return STRAIGHT_LINE_TEXT if isinstance(metric, Euclidean) else ALONG_AXES_TEXT

    def check_distance(self, distance: float) -> None:
        largest = shown_at_least(self.diameter)
        if distance > largest * (1.0 + 1e-12):
            raise InputError(
                f"{argument('distance')} {format_exact(distance)} is beyond the largest earth "
                "mover's distance, "
                f"{f'{format_number(largest)} {self.unit}'.strip()}",
                remedy="use at most that.",
            )
        items = self.people.items
        # For any number of items the nearest points do not matter, and finding them takes time.
        nearest = 0.0 if items is None else self.people.nearest
        if items is not None and distance * items < nearest * (1.0 - 1e-12):
            smallest = format_number(shown_at_least(nearest / items))
            raise InputError(
                f"{argument('distance')} {format_exact(distance)} is less than the smallest move, "
                f"{f'{smallest} {self.unit}'.strip()}: one of "
                f"{items:,} items to the nearest point",
                remedy="nothing would be promised, so use at least that.",
            )

    def check_units(self) -> None:
        space = self.people.items_in
        own = str(getattr(space.domain, "unit", ""))
        if own and space.unit != own and not isinstance(space.metric, Scaled):
            raise InputError(
                f"{argument('distances')} are said to be in {space.unit!r}, but values are "
                f"in {own!r}.",
                remedy="Give both in one unit.",
            )

    def inputs(self, values: Any, step: float, *, clamp: bool = False) -> Inputs:
        """Codes of all items, one user after another; `values` as in `Users.coded`."""
        domain = self.values_in
        codes, sizes = self.people.coded(
            [domain.clamped(items) for items in values] if clamp else values
        )
        if int(sizes.max()) > MAX_ITEMS:
            raise InputError(
                f"a user may hold up to {MAX_ITEMS:,} items, but one holds {int(sizes.max()):,}.",
                field="values",
                remedy="Leave some of their items out.",
            )
        return Inputs(
            self,
            np.asarray(codes, dtype=np.int64).reshape(-1, 1),
            np.asarray(sizes, dtype=np.int64),
        )


class UserHistogram(UserQuery):
    """The share of every point among a user's items, averaged over the users."""

    options: ClassVar[frozenset[str]] = frozenset(
        {"draw", "without_replacement", "floor", "most_items", "spread"}
    )
    kind: Literal["user-histogram"] = "user-histogram"

    def __init__(self, people: Users, **fields: object) -> None:
        FrozenModel.__init__(self, people=check_pairs(validate_people(people)), **fields)

    @property
    def shared(self) -> bool:
        return True

    @property
    def measure(self) -> str:
        return "expected earth mover's distance to the truth, for items spread evenly"

    @cached_property
    def tree(self) -> TreeEmbedding | None:
        """The tree that items move along, or None.

        The masses below its edges determine the earth mover's distance.
        """
        return self.people.tree

    @cached_property
    def below_edges(self) -> ExactFeatures | None:
        """Coordinates of the tree in whole numbers; None without a tree.

        Lengths are rounded down, so that no distance between two points increases.
        """
        return None if self.tree is None else ExactFeatures.below(self.tree.coordinates)

    def answer(
        self,
        estimate: Estimate,
        level: float = 0.95,
        *,
        simultaneous: bool = False,
        method: IntervalMethod = "normal",
    ) -> Answer:
        return shares_answer(
            places_of(self.values_in), estimate, level, simultaneous=simultaneous, method=method
        )

    def remarks(self) -> list[str]:
        if isinstance(self.people.items_in.metric, NestedSquares):
            return [
                "Distances are those of nested squares: two cells are as far apart as the "
                "diagonal of the smallest nested square that "
                "holds both, which is far for neighbours on two sides of a line between "
                "large squares."
            ]
        return []

    def __str__(self) -> str:
        return f"histogram over {self.people}"


class UserLinearQuery(UserQuery):
    """The mean over the users of the mean of f over their items.

    `table` contains f, one row for each point. If f changes by at most `constant` times the
    distance, in `norm`, then a user's answer changes by at most `constant` times the earth mover's
    distance of their items (with equality for single points, so no smaller constant is valid). The
    least constant of each norm is computed over all pairs; a given constant is checked, and
    rejected with a pair that violates it if it is too small.
    """

    kind: Literal["user-linear"] = "user-linear"
    table: Table
    names: tuple[str, ...]
    norm: NormName | None = None
    constant: Positive | None = None

    def __init__(
        self,
        people: Users,
        table: object,
        names: Sequence[str] = (),
        norm: NormName | None = None,
        constant: float | None = None,
        **fields: object,
    ) -> None:
        columns = validate_table("table", table).shape[1]
        column_names = tuple(names) or tuple(f"f{index}" for index in range(columns))
        FrozenModel.__init__(
            self,
            people=validate_people(people),
            table=table,
            names=column_names,
            norm=norm,
            constant=constant,
            **fields,
        )

    @model_validator(mode="after")
    def _fits(self) -> Self:
        points, columns = self.table.shape
        if points != self.people.size:
            raise InputError(
                f"{argument('table')} must have one row for each of {self.people.size:,} points, "
                f"got {points:,}"
            )
        if len(self.names) != columns or columns > MAX_COORDINATES:
            raise InputError(
                f"{argument('names')} must be as many as the columns of the table, {columns:,} "
                f"(at most {MAX_COORDINATES:,})"
            )
        if (self.norm is None) != (self.constant is None):
            raise InputError(
                "norm and constant belong together", field="norm", remedy="give both, or neither"
            )
        if self.constant is not None and self.norm is not None:
            validate_lipschitz(self.table, self.people.distances, self.norm, self.constant)
        return self

    def for_target(self, target: Target) -> Self:
        same_everywhere = self.table.min(axis=0) == self.table.max(axis=0)
        # On a grid one cell wide, one coordinate of every point is the same. An average of points
        # keeps it: its column is known and only gets noise.
        if same_everywhere.any() and not self.averages_points:
            raise InputError(
                f"{self.names[int(np.argmax(same_everywhere))]} is the same at every "
                "point, so its mean is known without asking anybody",
                field="table",
                remedy="leave it out.",
            )
        return self

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, UserLinearQuery)
            and self._identity() == other._identity()
            and np.array_equal(self.table, other.table)
        )

    def __hash__(self) -> int:
        return hash((self._identity(), self.table.tobytes()))

    def _identity(self) -> tuple[object, ...]:
        return self.people, self.names, self.norm, self.constant

    @classmethod
    def average(cls, people: Users) -> Self:
        """Query the mean of the points themselves, by coordinate: numbers, or places on a grid.

        Cells of a grid count at their centres.
        """
        space = validate_people(people).items_in
        if space.domain.points_are == "codes":
            raise InputError(
                "labels have no average",
                field="table",
                remedy="give a table with one row of numbers for each label.",
            )
        points = item_points(validate_people(people))
        return cls(people, points, POINT_NAMES[points.shape[1]])

    @classmethod
    def total(cls, people: Users) -> Self:
        """Query the mean over the users of the total of their numbers.

        All users have the same public number m of items: a total changes by at most m times the
        earth mover's distance. If numbers of items differ, no bound exists, because one more item
        changes the total however little items move.
        """
        users = validate_people(people)
        if users.items is None:
            raise InputError(
                "totals need the same number of items for everybody: one item more would change a "
                f"total however little items move; give {argument('items')}, or ask for the mean.",
                field="items",
            )
        if not isinstance(users.items_in.domain, Integers):
            raise InputError(f"totals are those of Integers, not of {users.items_in.domain}.")
        return cls(users, users.items * item_points(users), TOTAL_NAMES)

    @classmethod
    def share_above(cls, people: Users, at: object, fade: float | None = None) -> Self:
        """Query the share of items above each threshold, fading over a width, as in `ShareAbove`.

        One column for each threshold: the weight of every number.
        """
        users = validate_people(people)
        shares = ShareAbove(users.items_in.domain, at, fade)
        starts = np.array(shares.window_ends) - shares.width
        codes = np.arange(shares.cells)[:, None]
        weights = np.clip(codes - starts, 0, shares.width) / shares.width
        return cls(users, weights, shares.row_labels)

    @classmethod
    def near(cls, people: Users, regions: dict[str, Sequence[Any]], width: float) -> Self:
        """Query the share of items in each region; regions fade linearly to 0 at `width`.

        `width` is the distance beyond the edge of a region.
        """
        if not (isinstance(width, int | float) and 0.0 < width < math.inf):
            raise InputError(
                f"{argument('width')} must be a number > 0 (a sharp edge would separate nearby "
                f"points), got {width!r}."
            )
        if not isinstance(regions, dict) or not regions:
            raise InputError(
                "near needs at least one region: a name and the points that belong to it.",
                field="regions",
            )
        people = validate_people(people)
        distances = people.distances
        columns = []
        for name, members in regions.items():
            if not np.iterable(members) or isinstance(members, str) or len(members) == 0:
                raise InputError(
                    f"region {name!r} must list the points that belong to it, at least "
                    f"one, got {format_value(members)}.",
                    field="regions",
                )
            codes = users_of(people.items_in).codes(members)
            columns.append(1.0 - np.minimum(1.0, distances[:, codes].min(axis=1) / width))
        return cls(people, np.column_stack(columns), tuple(regions))

    @classmethod
    def distance_to(cls, people: Users, points: Sequence[object]) -> Self:
        """Query the mean distance of the items to each of the given points of the space.

        Distances between places (`GreatCircle`) are those on the mean sphere. By the triangle
        inequality no distance changes by more than an item moves, so any number of points will do.
        """
        people = validate_people(people)
        if not np.iterable(points) or isinstance(points, str) or len(points) == 0:
            raise InputError(
                "distance_to needs a list of at least one point of the space, got "
                f"{format_value(points)}.",
                field="points",
            )
        codes = users_of(people.items_in).codes(points)
        metric = people.items_in.metric
        table = people.between(np.arange(people.size), codes)
        if isinstance(metric, GreatCircle):
            table = table / metric.ground_share
        return cls(people, table, tuple(people.label(int(code)) for code in codes))

    @classmethod
    def embedded(cls, people: Users, vectors: object, names: Sequence[str] = ()) -> Self:
        """Query the mean vector of the items, for example of word embeddings."""
        return cls(people, vectors, names)

    @classmethod
    def similarity(cls, people: Users, vectors: object, to: dict[str, Any]) -> Self:
        """Query the mean inner product of the items' vectors with each vector of `to`."""
        table = validate_table("vectors", vectors)
        if not isinstance(to, dict) or not to:
            raise InputError(
                "similarity needs at least one vector to compare with: a name and its numbers.",
                field="to",
            )
        others = validate_table("the vectors to compare with", list(to.values()))
        if others.shape != (len(to), table.shape[1]):
            raise InputError(
                f"similarity needs vectors of {table.shape[1]:,} numbers to compare with, "
                f"got shape {others.shape}.",
                field="to",
            )
        return cls(people, table @ others.T, tuple(to))

    @property
    def title(self) -> str:
        if self.totals_points:
            return "user-total"
        return "user-mean" if self.averages_points else self.kind

    @property
    def tabular(self) -> bool:
        return not (self.averages_points or self.totals_points)

    @property
    def measure(self) -> str:
        return "expected absolute error"

    @property
    def error_unit(self) -> str:
        """The unit of averaged points; columns of a table, regions and similarities have none."""
        return self.unit if self.averages_points or self.totals_points else ""

    @cached_property
    def coordinates(self) -> ExactFeatures:
        """f in whole numbers, minus the middle of each column."""
        return ExactFeatures.of(self.table)

    def answer(
        self,
        estimate: Estimate,
        level: float = 0.95,
        *,
        simultaneous: bool = False,
        method: IntervalMethod = "normal",
    ) -> Answer:
        """The means: a number or a pair (degrees on a map) for averages of points, else a table."""
        # The intervals of both axes of a place are joint, as for a centroid.
        low, high = estimate.interval(
            level, simultaneous=simultaneous or self.averages_points, method=method
        )
        value, errors, lower, upper = (
            part / estimate.people
            for part in (estimate.totals, estimate.standard_errors, low, high)
        )
        if self.averages_points or self.totals_points:
            if len(value) == 1:
                return Answer(float(value[0]), float(errors[0]), (float(lower[0]), float(upper[0])))
            plane = Answer(
                pair(value),
                pair(errors),
                (pair((lower[0], upper[0])), pair((lower[1], upper[1]))),
            )
            domain = self.values_in
            return (
                degrees_of(domain, plane)
                if isinstance(domain, Grid) and domain.box is not None
                else plane
            )
        interval = np.column_stack([lower, upper])
        columns = {
            "label": list(self.names),
            "value": value,
            "standard_error": errors,
            f"interval_{level * 100:g}": [tuple(row) for row in interval.tolist()],
        }
        return Answer(AnswerTable(columns), errors, interval)

    @cached_property
    def averages_points(self) -> bool:
        """Whether this is the mean of the points themselves."""
        if self.people.items_in.domain.points_are == "codes":
            return False
        points = item_points(self.people)
        return self.names == POINT_NAMES[points.shape[1]] and np.array_equal(self.table, points)

    @cached_property
    def totals_points(self) -> bool:
        """Whether this is the total of the users' numbers."""
        items = self.people.items
        if items is None or self.names != TOTAL_NAMES:
            return False
        return isinstance(self.values_in, Integers) and np.array_equal(
            self.table, items * item_points(self.people)
        )

    def remarks(self) -> list[str]:
        if not self.averages_points or len(self.names) == 1:
            return []
        on_map = isinstance(self.values_in, Grid) and self.values_in.box is not None
        where = (
            "(latitude, longitude) in degrees"
            if on_map
            else "(east, north) from the south-west corner of the grid"
        )
        return [f"{where}; cells count at their middles."]

    def constant_in(self, norm: NormName | Polytope) -> float:
        """Certified Lipschitz constant of the coordinates in a norm, or in that of a polytope."""
        if norm not in self._constants:
            self._constants[norm] = self._certified_constant(norm)
        return self._constants[norm]

    @cached_property
    def _constants(self) -> dict[NormName | Polytope, float]:
        return {}

    def _certified_constant(self, norm: NormName | Polytope) -> float:
        coordinates = self.coordinates
        metric = self.people.items_in.metric
        if isinstance(norm, Polytope):
            return polytope_constant(
                coordinates.numbers, coordinates.power, self.people.distances, norm
            )
        if self.people.size > MAX_POINTS_PAIRED and isinstance(metric, LabelledPoints):
            # All norms at once, as they share most of the work.
            for known, constant in structured_constants(coordinates.table, metric).items():
                self._constants[known] = constant
            return self._constants[norm]
        return lipschitz_constant(coordinates.table, self.people.distances, norm).constant

    @cached_property
    def polytope(self) -> Polytope:
        """Polytope in which the coordinates move per unit of distance (see `query_polytope`)."""
        if self.people.size > MAX_POINTS_PAIRED:
            raise ConditionError(
                "K-norm noise",
                f"at most {MAX_POINTS_PAIRED:,} points, all pairs of which are compared",
                f"{self.people.size:,}",
            )
        return query_polytope(self.coordinates.numbers, self.people.distances)

    def __str__(self) -> str:
        if self.totals_points:
            return f"total over {self.people}"
        of = (
            ""
            if self.averages_points
            else f" of {', '.join(self.names[:4])}{', ...' if len(self.names) > 4 else ''}"
        )
        return f"mean{of} over {self.people}"
