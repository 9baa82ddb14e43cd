"""Users who hold several items each, and the earth mover's distance between two users."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any, Self

import numpy as np
from pydantic import model_validator

from metricshuffle.errors import DomainError, InputError, argument
from metricshuffle.models import FrozenModel, Whole
from metricshuffle.numerics.rounding import ULP
from metricshuffle.numerics.types import Floats, Integers64
from metricshuffle.spaces.array_input import indices, width_of
from metricshuffle.spaces.combinators import Scaled
from metricshuffle.spaces.domains import Categories, Integers
from metricshuffle.spaces.earth_mover import earth_mover, finite_space, has_formula
from metricshuffle.spaces.grid import Grid
from metricshuffle.spaces.metrics import Discrete, Metric
from metricshuffle.spaces.space import MAX_POINTS_PAIRED, Space
from metricshuffle.spaces.tree import Clustered, Tree
from metricshuffle.spaces.tree_embedding import TreeEmbedding

# 2 GiB of doubles.
MAX_ENTRIES = 2**28


class Users(FrozenModel):
    """Users who each hold a multiset of items, points of `items_in`.

    With `items`, every user holds exactly that many items ("bounded"); without, any number >= 1
    ("unbounded"). The distance of two users is the earth mover's distance of the histograms of
    their items, each divided by the number of items: moving a fraction of the items by an average
    distance costs fraction * distance.

    Items are values of the domain. Where these are not single numbers (labels, cells of a grid),
    whole numbers are their codes: the label's place, or row * width + column of the cell.
    """

    items_in: Space
    items: Whole | None

    def __init__(self, items_in: Space, items: int | None = None, **fields: object) -> None:
        FrozenModel.__init__(self, items_in=items_in, items=items, **fields)

    @model_validator(mode="after")
    def _can_be_counted(self) -> Self:
        finite_space(self.items_in)
        if self.size < 2:
            raise ValueError("items_in must have at least two points, or all users are alike")
        if not isinstance(self.items_in.domain, Integers | Categories | Grid):
            raise ValueError(
                "items_in must be made of Integers, Categories or a Grid, got "
                f"{type(self.items_in.domain).__name__}"
            )
        if self.items is not None and self.items < 1:
            raise InputError(
                f"{argument('items')} must be at least 1 for each user, got {self.items}"
            )
        return self

    def __str__(self) -> str:
        many = (
            "any number of items"
            if self.items is None
            else f"{self.items:,} item{'s' * (self.items > 1)}"
        )
        return f"users with {many} each in {self.items_in.domain}"

    @property
    def bounded(self) -> bool:
        """Whether every user holds the same, public number of items."""
        return self.items is not None

    @property
    def size(self) -> int:
        """Number of points that an item can be."""
        return self.items_in.domain.size or 0

    @property
    def unit(self) -> str:
        """The unit of distances."""
        return self.items_in.unit

    @cached_property
    def diameter(self) -> float:
        """Largest distance of two items, and so of two users (when every item is replaced)."""
        diameter = _diameter(self.items_in.metric)
        return self.items_in.diameter if diameter is None else diameter

    @cached_property
    def distances(self) -> Floats:
        """Distances between all points, by their codes."""
        if self.size > MAX_POINTS_PAIRED:
            raise InputError(
                f"the table of distances of {self.size:,} points is too large; use at most "
                f"{MAX_POINTS_PAIRED:,} points."
            )
        points = self.items_in.domain.points(self.items_in.domain.all_values())
        table = self.items_in.metric.pairwise(points, points)
        table.setflags(write=False)
        return table

    def between(self, codes_a: Integers64, codes_b: Integers64) -> Floats:
        """Distances between some points, by their codes: one row for each of `codes_a`."""
        values = self.items_in.domain.all_values()
        first, second = (self.items_in.domain.points(values[codes]) for codes in (codes_a, codes_b))
        return self.items_in.metric.pairwise(first, second)

    @cached_property
    def tree(self) -> TreeEmbedding | None:
        """Tree along which items move; None if the metric is not known to be that of a tree."""
        return TreeEmbedding.of(self.items_in)

    @cached_property
    def nearest(self) -> float:
        """Smallest distance above 0 between two points (0 if there is none)."""
        known = self.items_in.metric.nearest
        if known is not None:
            return known
        points = self.items_in.domain.points(self.items_in.domain.all_values())
        rows = (
            self.items_in.metric.pairwise(points[start : start + 256], points)
            for start in range(0, self.size, 256)
        )
        smallest = min(float(np.min(some, where=some > 0.0, initial=np.inf)) for some in rows)
        return smallest if np.isfinite(smallest) else 0.0

    def codes(self, items: object) -> Integers64:
        """One user's items as whole numbers 0 .. size - 1."""
        _check_several(items, "the user")
        codes = self._codes(items)
        self._check_count(len(codes), "the user")
        return codes

    def label(self, code: int) -> str:
        """Name of a point by its code: the label, the number or the (column, row) of the cell."""
        domain = self.items_in.domain
        place = int(indices([code], self.size, f"the codes of {domain}")[0])
        if isinstance(domain, Categories):
            return domain.labels[place]
        return (
            str(domain.low + place)
            if isinstance(domain, Integers)
            else str(tuple(domain.all_values()[place].tolist()))
        )

    def histogram(self, items: object) -> Floats:
        """Fraction of one user's items at each point."""
        codes = self.codes(items)
        shares: Floats = np.bincount(codes, minlength=self.size) / len(codes)
        return shares

    def coded(self, people: object) -> tuple[Integers64, Integers64]:
        """Return the codes of all users' items, user after user, and each user's item count.

        `people` is a list with one list or array of items for each user, or one array with a row
        for each user.
        """
        if not isinstance(people, Sequence | np.ndarray) or isinstance(people, str):
            raise InputError(
                "people must be a list with the items of each user, or an array users x "
                f"items, got {type(people).__name__}."
            )
        if len(people) == 0:
            raise InputError("people must hold at least one user, got none.")
        if isinstance(people, np.ndarray) and people.ndim >= 2 and people.dtype.kind in "iufU":
            lengths = np.full(len(people), people.shape[1])
            flat = people.reshape(-1, *people.shape[2:])
        else:
            for user, items in enumerate(people):
                _check_several(items, f"user {user} (counting from 0)")
            lengths = np.array([len(items) for items in people])
            flat = None
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
                    raise error.prefixed(f"user {user} (counting from 0): ") from None
            raise

    def sizes(self, people: object) -> Integers64:
        """Number of items of each user."""
        return self.coded(people)[1]

    def histograms(self, people: object) -> Floats:
        """Fraction of each user's items at each point, one row per user; `people` as in `coded`."""
        flat, lengths = self.coded(people)
        if len(lengths) * self.size > MAX_ENTRIES:
            raise InputError(
                f"the histograms of {len(lengths):,} users over {self.size:,} points do "
                "not fit into memory; give them in parts."
            )
        cells = np.repeat(np.arange(len(lengths)) * self.size, lengths) + flat
        counts = np.bincount(cells, minlength=len(lengths) * self.size).reshape(
            len(lengths), self.size
        )
        shares: Floats = counts / lengths[:, None]
        return shares

    def distance(self, a: object, b: object) -> float:
        """Earth mover's distance of two users' items, in `unit`, rounded up."""
        counts = (np.bincount(self.codes(items), minlength=self.size) for items in (a, b))
        return min(
            earth_mover(self.items_in, *counts).distance,
            self.diameter * (1 + _roundings(self.items_in.metric) * ULP),
        )

    def _codes(self, items: Any) -> Integers64:
        domain = self.items_in.domain
        if isinstance(domain, Integers):
            return domain.validated(items) - domain.low
        if isinstance(domain, Grid) and width_of(items) is not None:
            columns, rows = domain.validated(items).T
            cells: Integers64 = rows * domain.width + columns
            return cells
        text = isinstance(domain, Categories) and isinstance(next(iter(items), None), str)
        return (
            np.asarray(domain.validated(items))
            if text
            else indices(items, self.size, f"the codes of {domain}")
        )

    def _check_count(self, count: int, who: str) -> None:
        if count == 0:
            raise DomainError(
                f"{who} holds no items: a user without items has no histogram. Leave such "
                "users out."
            )
        if self.items is not None and count != self.items:
            raise DomainError(
                f"{who} holds {count:,} items, but everybody must hold exactly "
                f"{self.items:,} (bounded users); "
                "correct the items, or let users hold any number of them (without "
                f"{argument('items')})."
            )


def _check_several(items: object, who: str) -> None:
    if isinstance(items, str) or not np.iterable(items):
        raise InputError(f"{who} must hold a list of items, got a single {type(items).__name__}.")


def _joined(people: Any) -> Any:
    """All users' items in one column; arrays stay arrays, so that no value is converted."""
    if (
        all(isinstance(items, np.ndarray) and items.dtype.kind in "iuf" for items in people)
        and len({items.ndim for items in people}) == 1
    ):
        return np.concatenate(people)
    return [item for items in people for item in items]


def _diameter(metric: Metric) -> float | None:
    """Diameter of a metric that is defined by its points and knows its diameter, else None."""
    if not has_formula(metric):
        return None
    if isinstance(metric, Scaled):
        inner = _diameter(metric.metric)
        return None if inner is None else inner * metric.factor
    if isinstance(metric, Tree):
        return float(metric.reaches().max())
    return 1.0 if isinstance(metric, Clustered | Discrete) else None


def _roundings(metric: Metric) -> int:
    """Number of roundings in a diameter; along a tree, the number of lengths in its sum."""
    if isinstance(metric, Scaled):
        return _roundings(metric.metric)
    return len(metric.parents) if isinstance(metric, Tree) else 0


def users_of(space: object, items: int | None = None) -> Users:
    """Return users whose items lie in `space`.

    `space` is a Space, a Domain with its usual metric, or a Metric with known points 0 .. size - 1.
    """
    return Users(finite_space(space), items)
