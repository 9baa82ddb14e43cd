"""People who hold many items each: what one of them may hold, and how far two of them are apart."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any, Self

import numpy as np
from pydantic import model_validator

from metricshuffle.errors import DomainError, InputError
from metricshuffle.models import FrozenModel, Whole
from metricshuffle.numerics.rounding import ULP
from metricshuffle.numerics.types import Floats, Integers64
from metricshuffle.spaces.array_input import indices, width_of
from metricshuffle.spaces.clusters import Clustered
from metricshuffle.spaces.combinators import Scaled
from metricshuffle.spaces.domains import Categories, Integers
from metricshuffle.spaces.earth_mover import earth_mover, finite_space, has_formula
from metricshuffle.spaces.grid import Grid
from metricshuffle.spaces.metrics import Discrete, Metric
from metricshuffle.spaces.space import MAX_POINTS_PAIRED, Space
from metricshuffle.spaces.tree import Tree
from metricshuffle.spaces.tree_embedding import TreeEmbedding

# 2 GiB of doubles.
MAX_ENTRIES = 2**28


class Users(FrozenModel):
    """Everybody holds a set of items, points of `items_in`, which may repeat.

    With `items`, everybody holds exactly so many ("bounded"); without, anybody may hold any number >= 1 ("unbounded").
    Two users are as far apart as the earth mover's distance of their items, each divided by how many there are: changing
    a fraction of the items by an average distance is fraction * distance.

    Items are values of the domain. Where these are no single numbers (labels, cells of a grid), whole numbers are their
    codes: the label's place, or row * width + column of the cell.
    """

    items_in: Space
    items: Whole | None

    def __init__(self, items_in: Space, items: int | None = None, **fields: Any) -> None:
        FrozenModel.__init__(self, items_in=items_in, items=items, **fields)

    @model_validator(mode="after")
    def _can_be_counted(self) -> Self:
        finite_space(self.items_in)
        if self.size < 2:
            raise ValueError("items_in must have at least two points, or all users are alike")
        if not isinstance(self.items_in.domain, Integers | Categories | Grid):
            raise ValueError(f"items_in must be made of Integers, Categories or a Grid, got {type(self.items_in.domain).__name__}")
        if self.items is not None and self.items < 1:
            raise ValueError(f"items must be at least 1 for each user, got {self.items}")
        return self

    def __str__(self) -> str:
        many = "any number of items" if self.items is None else f"{self.items:,} item{'s' * (self.items > 1)}"
        return f"users with {many} each in {self.items_in.domain}"

    @property
    def bounded(self) -> bool:
        """Whether everybody holds the same number of items, which is public."""
        return self.items is not None

    @property
    def size(self) -> int:
        """How many points an item can be."""
        return self.items_in.domain.size or 0

    @property
    def unit(self) -> str:
        """The unit of distances."""
        return self.items_in.unit

    @cached_property
    def diameter(self) -> float:
        """The largest distance of two items, and so of two users: a replacement of everything by what is farthest."""
        diameter = _diameter(self.items_in.metric)
        return self.items_in.diameter if diameter is None else diameter

    @cached_property
    def distances(self) -> Floats:
        """The distances of all points from each other, by their codes."""
        if self.size > MAX_POINTS_PAIRED:
            raise InputError(f"the table of distances of {self.size:,} points is too large; use at most {MAX_POINTS_PAIRED:,} points.")
        points = self.items_in.domain.points(self.items_in.domain.all_values())
        table = self.items_in.metric.pairwise(points, points)
        table.setflags(write=False)
        return table

    @cached_property
    def tree(self) -> TreeEmbedding | None:
        """The tree that items move along, if there is one."""
        return TreeEmbedding.of(self.items_in)

    @cached_property
    def nearest(self) -> float:
        """The smallest distance above 0 between two points (0 if there is none)."""
        points = self.items_in.domain.points(self.items_in.domain.all_values())
        rows = (self.items_in.metric.pairwise(points[start : start + 256], points) for start in range(0, self.size, 256))
        smallest = min(float(np.min(some, where=some > 0.0, initial=np.inf)) for some in rows)
        return smallest if np.isfinite(smallest) else 0.0

    def codes(self, items: Any) -> Integers64:
        """One user's items as whole numbers 0 .. size - 1."""
        _check_several(items, "the user")
        codes = self._codes(items)
        self._check_count(len(codes), "the user")
        return codes

    def label(self, code: int) -> str:
        """A point in words, by its code: the label, the number or the (column, row) of the cell."""
        domain = self.items_in.domain
        place = int(indices([code], self.size, f"the codes of {domain}")[0])
        if isinstance(domain, Categories):
            return domain.labels[place]
        return str(domain.low + place) if isinstance(domain, Integers) else str(tuple(domain.all_values()[place].tolist()))

    def histogram(self, items: Any) -> Floats:
        """What fraction of one user's items is at each point."""
        codes = self.codes(items)
        shares: Floats = np.bincount(codes, minlength=self.size) / len(codes)
        return shares

    def coded(self, people: Any) -> tuple[Integers64, Integers64]:
        """The items of all users as codes, one user after the other, and how many each of them holds.

        `people` is a list with one list or array of items for each user, or one array with a row for each user.
        """
        if not isinstance(people, Sequence | np.ndarray) or isinstance(people, str):
            raise InputError(f"people must be a list with the items of each user, or an array users x items, got {type(people).__name__}.")
        if len(people) == 0:
            raise InputError("people must hold at least one user, got none.")
        if isinstance(people, np.ndarray) and people.ndim >= 2 and people.dtype.kind in "iufU":
            lengths, flat = np.full(len(people), people.shape[1]), people.reshape(-1, *people.shape[2:])
        else:
            for user, items in enumerate(people):
                _check_several(items, f"user {user} (counting from 0)")
            lengths, flat = np.array([len(items) for items in people]), None
        invalid = lengths == 0 if self.items is None else lengths != self.items
        if invalid.any():
            user = int(np.argmax(invalid))
            self._check_count(int(lengths[user]), f"user {user} (counting from 0)")
        try:
            return self._codes(_joined(people) if flat is None else flat), lengths
        except InputError:
            for user, items in enumerate(people):
                try:
                    self._codes(items)
                except InputError as error:
                    raise type(error)(f"user {user} (counting from 0): {error}") from None
            raise

    def sizes(self, people: Any) -> Integers64:
        """How many items each user holds."""
        return self.coded(people)[1]

    def histograms(self, people: Any) -> Floats:
        """What fraction of each user's items is at each point, one row for each user; `people` as in `coded`."""
        flat, lengths = self.coded(people)
        if len(lengths) * self.size > MAX_ENTRIES:
            raise InputError(
                f"the histograms of {len(lengths):,} users over {self.size:,} points do not fit into memory; give them in parts."
            )
        cells = np.repeat(np.arange(len(lengths)) * self.size, lengths) + flat
        counts = np.bincount(cells, minlength=len(lengths) * self.size).reshape(len(lengths), self.size)
        shares: Floats = counts / lengths[:, None]
        return shares

    def distance(self, a: Any, b: Any) -> float:
        """The earth mover's distance of two users' items, in `unit`; rounded up."""
        counts = (np.bincount(self.codes(items), minlength=self.size) for items in (a, b))
        return min(earth_mover(self.items_in, *counts).distance, self.diameter * (1 + _roundings(self.items_in.metric) * ULP))

    def _codes(self, items: Any) -> Integers64:
        domain = self.items_in.domain
        if isinstance(domain, Integers):
            return domain.validated(items) - domain.low
        if isinstance(domain, Grid) and width_of(items) is not None:
            columns, rows = domain.validated(items).T
            cells: Integers64 = rows * domain.width + columns
            return cells
        text = isinstance(domain, Categories) and isinstance(next(iter(items), None), str)
        return np.asarray(domain.validated(items)) if text else indices(items, self.size, f"the codes of {domain}")

    def _check_count(self, count: int, who: str) -> None:
        if count == 0:
            raise DomainError(f"{who} holds no items: a user without items has no histogram. Leave such users out.")
        if self.items is not None and count != self.items:
            raise DomainError(
                f"{who} holds {count:,} items, but everybody must hold exactly {self.items:,} (bounded users); "
                f"correct the items, or let users hold any number of them (items=None)."
            )


def _check_several(items: Any, who: str) -> None:
    if isinstance(items, str) or not np.iterable(items):
        raise InputError(f"{who} must hold a list of items, got a single {type(items).__name__}.")


def _joined(people: Any) -> Any:
    """All users' items in one column; arrays stay arrays, so that nothing is converted on the way."""
    if all(isinstance(items, np.ndarray) and items.dtype.kind in "iuf" for items in people) and len({items.ndim for items in people}) == 1:
        return np.concatenate(people)
    return [item for items in people for item in items]


def _diameter(metric: Metric) -> float | None:
    """The diameter of metrics that are defined by their points and know it; None for others."""
    if not has_formula(metric):
        return None
    if isinstance(metric, Scaled):
        inner = _diameter(metric.metric)
        return None if inner is None else inner * metric.factor
    if isinstance(metric, Tree):
        return float(metric.reaches().max())
    return 1.0 if isinstance(metric, Clustered | Discrete) else None


def _roundings(metric: Metric) -> int:
    """By how many of them a diameter may fall short: along a tree it is a sum of so many lengths."""
    if isinstance(metric, Scaled):
        return _roundings(metric.metric)
    return len(metric.parents) if isinstance(metric, Tree) else 0


def users_of(space: Any, items: int | None = None) -> Users:
    """Users whose items lie in `space`: a Space, a Domain with its usual metric, or a Metric that knows its points 0 .. size - 1."""
    return Users(finite_space(space), items)
