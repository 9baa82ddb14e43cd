"""What is asked of users who hold many items each: the shares of all points, or the mean of a function over the items."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from functools import cached_property
from typing import Annotated, Any, ClassVar, Literal, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import BeforeValidator, PlainSerializer, PlainValidator, SerializeAsAny, model_validator

from metricshuffle.accounting.items.lipschitz import NormName, checked_lipschitz, lipschitz_constant
from metricshuffle.declared import Declared, Kinded, Positive, shown
from metricshuffle.errors import InputError
from metricshuffle.protocols.user_answers import Answers, Coordinates
from metricshuffle.spaces import Grid, TreeEmbedding, Users, users_of
from metricshuffle.spaces.space import MOST_POINTS_PAIRED

Floats = NDArray[np.float64]
MOST_COORDINATES = 100_000
MOST_ITEMS = 2**20
USERS_AT_ONCE = 4096
LARGEST_NUMBER = 1e290
NO_TREE = "the distances are not those along a line or a tree, so no coordinates carry the earth mover's distance exactly."


def _table(values: Any) -> Floats:
    try:
        table = np.array(values, dtype=np.float64)
    except (TypeError, ValueError):
        raise ValueError(f"must be a table of numbers, one row for each point, got {shown(values)}") from None
    if table.ndim == 1:
        table = table[:, None]
    if table.ndim != 2 or not table.size:
        raise ValueError(f"must be a table of numbers, one row for each point, got shape {table.shape}")
    if not np.all(np.abs(table) < LARGEST_NUMBER):
        row, column = (int(index) for index in np.argwhere(~(np.abs(table) < LARGEST_NUMBER))[0])
        raise ValueError(f"must hold numbers below 1e290, but row {row} (counting from 0), column {column} is {table[row, column]}")
    table.setflags(write=False)
    return table


def _checked_table(name: str, values: Any) -> Floats:
    try:
        return _table(values)
    except ValueError as wrong:
        raise InputError(f"{name} {wrong}.") from None


Table = Annotated[np.ndarray, PlainValidator(_table), PlainSerializer(lambda table: table.tolist())]


class UserQuery(Kinded, ABC):
    """Every user counts the same, however many items she holds: the answer is the mean over the users of the mean over their items."""

    kinds: ClassVar[dict[str, type[Kinded]]] = {}
    kind: str
    people: Users

    @property
    def unit(self) -> str:
        """The unit of the distances."""
        return self.people.unit

    @property
    def diameter(self) -> float:
        """The largest earth mover's distance: all items replaced by the farthest ones."""
        return self.people.diameter

    @property
    @abstractmethod
    def coordinates(self) -> Coordinates:
        """What is averaged over a user's items."""

    def answers(self, held: Any) -> Answers:
        """The exact answer of each user; `held` as in `Users.coded`."""
        codes, sizes = self.people.coded(held)
        if int(sizes.max()) > MOST_ITEMS:
            raise InputError(f"a user may hold up to {MOST_ITEMS:,} items, but one holds {int(sizes.max()):,}.")
        found, numbers = np.empty((len(sizes), self.coordinates.numbers.shape[1])), self.coordinates.numbers
        ends = np.cumsum(sizes)
        for start in range(0, len(sizes), USERS_AT_ONCE):
            some = sizes[start : start + USERS_AT_ONCE]
            first = int(ends[start] - sizes[start])
            rows = np.repeat(np.arange(len(some)), some) * self.people.size + codes[first : first + int(some.sum())]
            counts = np.bincount(rows, minlength=len(some) * self.people.size).reshape(len(some), self.people.size)
            found[start : start + len(some)] = counts.astype(np.float64) @ numbers
        return Answers(found, sizes, self.coordinates.power)


class UserHistogram(UserQuery):
    """The share of every point among a user's items, averaged over the users."""

    kind: Literal["user-histogram"] = "user-histogram"

    def __init__(self, people: Users, **rest: Any) -> None:
        Declared.__init__(self, people=_checked_people(people), **rest)

    @property
    def has_tree(self) -> bool:
        """Whether items move along a tree: then the masses below its edges carry the earth mover's distance."""
        return TreeEmbedding.of(self.people.items_in) is not None

    @cached_property
    def tree(self) -> TreeEmbedding:
        found = TreeEmbedding.of(self.people.items_in)
        if found is None:
            raise InputError(NO_TREE)
        return found

    @cached_property
    def coordinates(self) -> Coordinates:
        """Of the tree, lengths rounded down so that no two points come out farther apart than they are; without one, the shares."""
        if not self.has_tree:
            return Coordinates(np.eye(self.people.size), 0, np.zeros(self.people.size))
        return Coordinates.below(self.tree.coordinates)

    @property
    def constant(self) -> float:
        """How much the coordinates move in sum per unit of distance: 1 along a tree, else 2/(distance of the nearest points)."""
        return 1.0 if self.has_tree else lipschitz_constant(self.coordinates.table, self.people.distances, "l1").constant

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
        self, people: Users, table: Any, names: Sequence[str] = (), norm: NormName | None = None, constant: float | None = None, **rest: Any
    ) -> None:  # fmt: skip
        columns = _checked_table("table", table).shape[1]
        given = tuple(names) or tuple(f"f{index}" for index in range(columns))
        Declared.__init__(self, people=_checked_people(people), table=table, names=given, norm=norm, constant=constant, **rest)

    @model_validator(mode="after")
    def _fits(self) -> Self:
        points, columns = self.table.shape
        if points != self.people.size:
            raise ValueError(f"table must have one row for each of {self.people.size:,} points, got {points:,}")
        if len(self.names) != columns or columns > MOST_COORDINATES:
            raise ValueError(f"names must be as many as the columns of the table, {columns:,} (at most {MOST_COORDINATES:,})")
        if (self.norm is None) != (self.constant is None):
            raise ValueError("norm and constant belong together: give both, or neither")
        if self.constant is not None and self.norm is not None:
            checked_lipschitz(self.table, self.people.distances, self.norm, self.constant)
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
        space = _checked_people(people).items_in
        if space.domain.points_are == "codes":
            raise InputError("labels have no average; give a table with one row of numbers for each label.")
        values = space.domain.all_values()
        points = np.asarray(
            space.domain.centres(values) if isinstance(space.domain, Grid) else space.domain.points(values), dtype=np.float64
        )
        named = ("mean",) if points.ndim == 1 or points.shape[1] == 1 else ("east", "north")
        return cls(people, points, named)

    @classmethod
    def near(cls, people: Users, regions: dict[str, Sequence[Any]], width: float) -> Self:
        """How much of the items lies in each region; a region fades linearly, to nothing `width` beyond its edge."""
        if not (isinstance(width, int | float) and 0.0 < width < math.inf):
            raise InputError(f"width must be a number > 0 (a sharp edge would tell near points apart), got {width!r}.")
        if not isinstance(regions, dict) or not regions:
            raise InputError("near needs at least one region: a name and the points that belong to it.")
        people = _checked_people(people)
        distances = people.distances
        columns = []
        for name, members in regions.items():
            if not np.iterable(members) or isinstance(members, str) or len(members) == 0:
                raise InputError(f"region {name!r} must list the points that belong to it, at least one, got {shown(members)}.")
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
        table = _checked_table("vectors", vectors)
        if not isinstance(to, dict) or not to:
            raise InputError("similarity needs at least one vector to compare with: a name and its numbers.")
        others = _checked_table("the vectors to compare with", list(to.values()))
        if others.shape != (len(to), table.shape[1]):
            raise InputError(f"similarity needs vectors of {table.shape[1]:,} numbers to compare with, got shape {others.shape}.")
        return cls(people, table @ others.T, tuple(to))

    @cached_property
    def coordinates(self) -> Coordinates:
        return Coordinates.of(self.table)

    def constant_in(self, norm: NormName) -> float:
        """The least Lipschitz constant of the coordinates in that norm."""
        return lipschitz_constant(self.coordinates.table, self.people.distances, norm).constant

    def __str__(self) -> str:
        return f"mean of {', '.join(self.names[:4])}{', ...' if len(self.names) > 4 else ''} over {self.people}"


def _checked_people(people: Any) -> Users:
    found = people if isinstance(people, Users) else Users.model_validate(people) if isinstance(people, dict) else users_of(people)
    if found.size > MOST_POINTS_PAIRED:
        raise InputError(f"queries on users' items look at all pairs of at most {MOST_POINTS_PAIRED:,} points, got {found.size:,}.")
    return found


AnyUserQuery = Annotated[SerializeAsAny[UserQuery], BeforeValidator(UserQuery.of_kind)]
"""A field that holds any of these queries and reads it back from JSON by its kind."""
