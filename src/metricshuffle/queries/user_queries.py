"""What is asked of users who hold many items each: the shares of all points, or the mean of a function over the items."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cached_property
from typing import Annotated, Any, ClassVar, Literal, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import PlainSerializer, PlainValidator, model_validator

from metricshuffle.accounting.user_items.lipschitz import NormName, lipschitz_constant, validate_lipschitz
from metricshuffle.errors import InputError
from metricshuffle.estimation.inversion import IntervalMethod
from metricshuffle.models import FrozenModel, Positive, format_value
from metricshuffle.numerics.rounding import format_number
from metricshuffle.privacy.guarantee import Items
from metricshuffle.queries.cell_table import places_of, shares_answer
from metricshuffle.queries.centroid import ALONG_AXES_TEXT, STRAIGHT_LINE_TEXT, degrees_of, pair
from metricshuffle.queries.exact_features import ExactFeatures
from metricshuffle.queries.query import Answer, Estimate, Inputs, Query
from metricshuffle.queries.result_table import Table as AnswerTable
from metricshuffle.spaces import (
    Absolute,
    Circle,
    Clustered,
    Discrete,
    Domain,
    Euclidean,
    Grid,
    Manhattan,
    Matrix,
    Maximum,
    Metric,
    NestedSquares,
    Scaled,
    Threshold,
    Tree,
    TreeEmbedding,
    Users,
    users_of,
)
from metricshuffle.spaces.space import MAX_POINTS_PAIRED

Floats = NDArray[np.float64]
MAX_COORDINATES = 100_000
MAX_ITEMS = 2**20
POINT_NAMES: dict[int, tuple[str, ...]] = {1: ("mean",), 2: ("east", "north")}
"""What the coordinates of an average of points are called."""
MEASURE_TEXTS: dict[type[Metric], str] = {
    NestedSquares: "cells of nested squares: the diagonal of the smallest square that holds both",
    Clustered: "points of clusters",
    Tree: "points along a tree",
    Circle: "points around a circle",
    Matrix: "items as given in a table",
    Discrete: "items, any two of which are 1 apart",
    Scaled: "items, scaled by a factor",
    Threshold: "items, cut off at a threshold",
    Maximum: "items, the largest of several distances",
}
"""How distances between items are measured, where that is not the difference of numbers or a straight line."""
LARGEST_NUMBER = 1e290


def _table(values: Any) -> Floats:
    try:
        table = np.array(values, dtype=np.float64)
    except (TypeError, ValueError):
        raise ValueError(f"must be a table of numbers, one row for each point, got {format_value(values)}") from None
    if table.ndim == 1:
        table = table[:, None]
    if table.ndim != 2 or not table.size:
        raise ValueError(f"must be a table of numbers, one row for each point, got shape {table.shape}")
    if not np.all(np.abs(table) < LARGEST_NUMBER):
        row, column = (int(index) for index in np.argwhere(~(np.abs(table) < LARGEST_NUMBER))[0])
        raise ValueError(f"must hold numbers below 1e290, but row {row} (counting from 0), column {column} is {table[row, column]}")
    table.setflags(write=False)
    return table


def _validate_table(name: str, values: Any) -> Floats:
    try:
        return _table(values)
    except ValueError as error:
        raise InputError(f"{name} {error}.") from None


Table = Annotated[np.ndarray, PlainValidator(_table), PlainSerializer(lambda table: table.tolist())]


class UserQuery(Query):
    """Every user counts the same, however many items she holds: the answer is the mean over the users of the mean over their items."""

    people: Users

    @property
    def values_in(self) -> Domain:
        return self.people.items_in.domain

    @property
    def unit(self) -> str:
        return self.people.unit

    @property
    def error_unit(self) -> str:
        return self.unit

    @property
    def diameter(self) -> float:
        """The largest earth mover's distance: all items replaced by the farthest ones."""
        return self.people.diameter

    @property
    def items(self) -> Items | None:
        return self.people.items or "any"

    def between(self, step: float) -> str:
        metric = self.people.items_in.metric
        words = next((words for kind, words in MEASURE_TEXTS.items() if isinstance(metric, kind)), None)
        if words is not None:
            return words
        if type(metric) not in (Absolute, Manhattan, Euclidean):
            return f"items, by the metric {type(metric).__name__}"
        if not isinstance(self.values_in, Grid):
            return "values"
        return STRAIGHT_LINE_TEXT if isinstance(metric, Euclidean) else ALONG_AXES_TEXT

    def check_distance(self, distance: float) -> None:
        if distance > self.diameter * (1.0 + 1e-12):
            raise InputError(
                f"distance {format_number(distance)} is beyond the largest earth mover's distance, "
                f"{f'{format_number(self.diameter)} {self.unit}'.strip()}; use at most that."
            )
        nearest, items = self.people.nearest, self.people.items
        if items is not None and distance * items < nearest * (1.0 - 1e-12):
            raise InputError(
                f"distance {format_number(distance)} is less than the smallest move, "
                f"{f'{format_number(nearest / items)} {self.unit}'.strip()}: one of {items:,} items to the "
                "nearest point; nothing would be promised, so use at least that."
            )

    def check_units(self) -> None:
        space = self.people.items_in
        own = str(getattr(space.domain, "unit", ""))
        if own and space.unit != own and not isinstance(space.metric, Scaled):
            raise InputError(f"distances are said to be in {space.unit!r}, but values are in {own!r}.")

    def inputs(self, values: Any, step: float, *, clamp: bool = False) -> Inputs:
        """The codes of everybody's items, one user after the other; `values` as in `Users.coded`."""
        domain = self.values_in
        codes, sizes = self.people.coded([domain.clamped(items) for items in values] if clamp else values)
        if int(sizes.max()) > MAX_ITEMS:
            raise InputError(f"a user may hold up to {MAX_ITEMS:,} items, but one holds {int(sizes.max()):,}.")
        return Inputs(self, np.asarray(codes, dtype=np.int64).reshape(-1, 1), np.asarray(sizes, dtype=np.int64))


class UserHistogram(UserQuery):
    """The share of every point among a user's items, averaged over the users."""

    options: ClassVar[frozenset[str]] = frozenset({"samples", "floor", "most_items", "spread"})
    kind: Literal["user-histogram"] = "user-histogram"

    def __init__(self, people: Users, **fields: Any) -> None:
        FrozenModel.__init__(self, people=_validate_people(people), **fields)

    @property
    def shared(self) -> bool:
        return True

    @property
    def measure(self) -> str:
        return "expected earth mover's distance to the truth, for items spread evenly"

    @cached_property
    def tree(self) -> TreeEmbedding | None:
        """The tree that items move along, if there is one: then the masses below its edges carry the earth mover's distance."""
        return self.people.tree

    @cached_property
    def below_edges(self) -> ExactFeatures | None:
        """The coordinates of that tree in whole numbers, lengths rounded down: no two points come out farther apart than they are."""
        return None if self.tree is None else ExactFeatures.below(self.tree.coordinates)

    def answer(self, estimate: Estimate, level: float = 0.95, *, simultaneous: bool = False, method: IntervalMethod = "normal") -> Answer:
        return shares_answer(places_of(self.values_in), estimate, level, simultaneous=simultaneous, method=method)

    def remarks(self) -> list[str]:
        if isinstance(self.people.items_in.metric, NestedSquares):
            return [
                "Distances are those of nested squares: two cells are as far apart as the diagonal of the smallest nested square that "
                "holds both, which is far for neighbours on two sides of a line between large squares."
            ]
        return []

    def __str__(self) -> str:
        return f"histogram over {self.people}"


class UserLinearQuery(UserQuery):
    """The mean over the users of the mean of f over their items; `table` holds f, one row for each point.

    If f moves by at most `constant` times the distance, in `norm`, then a user's answer moves by at most `constant` times the earth
    mover's distance of her items (exact for single points, so no smaller constant will do). The least constant of each norm is
    found by looking at all pairs; one that is given is checked, and refused with a pair that shows it if it is too small.
    """

    kind: Literal["user-linear"] = "user-linear"
    table: Table
    names: tuple[str, ...]
    norm: NormName | None = None
    constant: Positive | None = None

    def __init__(
        self,
        people: Users,
        table: Any,
        names: Sequence[str] = (),
        norm: NormName | None = None,
        constant: float | None = None,
        **fields: Any,
    ) -> None:
        columns = _validate_table("table", table).shape[1]
        column_names = tuple(names) or tuple(f"f{index}" for index in range(columns))
        FrozenModel.__init__(self, people=_validate_people(people), table=table, names=column_names, norm=norm, constant=constant, **fields)

    @model_validator(mode="after")
    def _fits(self) -> Self:
        points, columns = self.table.shape
        if points != self.people.size:
            raise ValueError(f"table must have one row for each of {self.people.size:,} points, got {points:,}")
        if len(self.names) != columns or columns > MAX_COORDINATES:
            raise ValueError(f"names must be as many as the columns of the table, {columns:,} (at most {MAX_COORDINATES:,})")
        if (self.norm is None) != (self.constant is None):
            raise ValueError("norm and constant belong together: give both, or neither")
        if self.constant is not None and self.norm is not None:
            validate_lipschitz(self.table, self.people.distances, self.norm, self.constant)
        return self

    def __eq__(self, other: object) -> bool:
        return isinstance(other, UserLinearQuery) and self._told() == other._told() and np.array_equal(self.table, other.table)

    def __hash__(self) -> int:
        return hash((self._told(), self.table.tobytes()))

    def _told(self) -> tuple[object, ...]:
        return self.people, self.names, self.norm, self.constant

    @classmethod
    def average(cls, people: Users) -> Self:
        """The mean of the points themselves, coordinate by coordinate: numbers, or places on a grid, where cells count at their middles."""
        space = _validate_people(people).items_in
        if space.domain.points_are == "codes":
            raise InputError("labels have no average; give a table with one row of numbers for each label.")
        points = _points(_validate_people(people))
        return cls(people, points, POINT_NAMES[points.shape[1]])

    @classmethod
    def near(cls, people: Users, regions: dict[str, Sequence[Any]], width: float) -> Self:
        """How much of the items lies in each region; a region fades linearly, to nothing `width` beyond its edge."""
        if not (isinstance(width, int | float) and 0.0 < width < math.inf):
            raise InputError(f"width must be a number > 0 (a sharp edge would tell near points apart), got {width!r}.")
        if not isinstance(regions, dict) or not regions:
            raise InputError("near needs at least one region: a name and the points that belong to it.")
        people = _validate_people(people)
        distances = people.distances
        columns = []
        for name, members in regions.items():
            if not np.iterable(members) or isinstance(members, str) or len(members) == 0:
                raise InputError(f"region {name!r} must list the points that belong to it, at least one, got {format_value(members)}.")
            codes = users_of(people.items_in).codes(members)
            columns.append(1.0 - np.minimum(1.0, distances[:, codes].min(axis=1) / width))
        return cls(people, np.column_stack(columns), tuple(regions))

    @classmethod
    def embedded(cls, people: Users, vectors: Any, names: Sequence[str] = ()) -> Self:
        """The mean vector of the items: of word embeddings, say."""
        return cls(people, vectors, names)

    @classmethod
    def similarity(cls, people: Users, vectors: Any, to: dict[str, Any]) -> Self:
        """The mean inner product of the items' vectors with each vector of `to`."""
        table = _validate_table("vectors", vectors)
        if not isinstance(to, dict) or not to:
            raise InputError("similarity needs at least one vector to compare with: a name and its numbers.")
        others = _validate_table("the vectors to compare with", list(to.values()))
        if others.shape != (len(to), table.shape[1]):
            raise InputError(f"similarity needs vectors of {table.shape[1]:,} numbers to compare with, got shape {others.shape}.")
        return cls(people, table @ others.T, tuple(to))

    @property
    def title(self) -> str:
        return "user-mean" if self.averages_points else self.kind

    @property
    def measure(self) -> str:
        return "expected absolute error"

    @cached_property
    def coordinates(self) -> ExactFeatures:
        """f in whole numbers, without the middle of each column."""
        return ExactFeatures.of(self.table)

    def answer(self, estimate: Estimate, level: float = 0.95, *, simultaneous: bool = False, method: IntervalMethod = "normal") -> Answer:
        """The means: a number, a pair (degrees on a map) where the points themselves are averaged, else a table by name."""
        # the two axes of a place hold jointly, as those of a centroid do
        low, high = estimate.interval(level, simultaneous=simultaneous or self.averages_points, method=method)
        value, errors, lower, largest = (part / estimate.people for part in (estimate.totals, estimate.standard_errors, low, high))
        if self.averages_points:
            if len(value) == 1:
                return Answer(float(value[0]), float(errors[0]), (float(lower[0]), float(largest[0])))
            plane = Answer(pair(value), pair(errors), (pair((lower[0], largest[0])), pair((lower[1], largest[1]))))
            domain = self.values_in
            return degrees_of(domain, plane) if isinstance(domain, Grid) and domain.box is not None else plane
        interval = np.column_stack([lower, largest])
        columns = {
            "label": list(self.names),
            "value": value,
            "standard_error": errors,
            f"interval_{level * 100:g}": [tuple(row) for row in interval.tolist()],
        }
        return Answer(AnswerTable(columns), errors, interval)

    @cached_property
    def averages_points(self) -> bool:
        """Whether it is the mean of the points themselves."""
        if self.people.items_in.domain.points_are == "codes":
            return False
        points = _points(self.people)
        return self.names == POINT_NAMES[points.shape[1]] and np.array_equal(self.table, points)

    def remarks(self) -> list[str]:
        if not self.averages_points or len(self.names) == 1:
            return []
        on_map = isinstance(self.values_in, Grid) and self.values_in.box is not None
        where = "(latitude, longitude) in degrees" if on_map else "(east, north) from the south-west corner of the grid"
        return [f"{where}; cells count at their middles."]

    def constant_in(self, norm: NormName) -> float:
        """The least Lipschitz constant of the coordinates in that norm."""
        return lipschitz_constant(self.coordinates.table, self.people.distances, norm).constant

    def __str__(self) -> str:
        of = "" if self.averages_points else f" of {', '.join(self.names[:4])}{', ...' if len(self.names) > 4 else ''}"
        return f"mean{of} over {self.people}"


def _points(people: Users) -> Floats:
    """The points of a line or a grid as numbers, a row each; cells count at their middles."""
    domain = people.items_in.domain
    values = domain.all_values()
    points = np.asarray(domain.centres(values) if isinstance(domain, Grid) else domain.points(values), dtype=np.float64)
    return points.reshape(len(values), -1)


def _validate_people(people: Any) -> Users:
    users = people if isinstance(people, Users) else Users.model_validate(people) if isinstance(people, dict) else users_of(people)
    if users.size > MAX_POINTS_PAIRED:
        raise InputError(f"queries on users' items look at all pairs of at most {MAX_POINTS_PAIRED:,} points, got {users.size:,}.")
    return users
