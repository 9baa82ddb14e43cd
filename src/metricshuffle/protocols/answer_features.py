"""Which numbers of what somebody holds are released with noise, how far they move, and how shares come back from them.

A feature set is a class of its own: `coordinates` in whole numbers, the `constant` by which they move per unit of distance in a norm, and
`read` from noisy sums to an estimate.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Annotated, ClassVar, Literal

import numpy as np
from pydantic import BeforeValidator, SerializeAsAny

from metricshuffle.accounting.user_items.lipschitz import NormName, shares_constant
from metricshuffle.errors import InputError, PlanError
from metricshuffle.estimation.simplex import simplex_projection
from metricshuffle.estimation.tree_projection import shares_from_subtrees
from metricshuffle.models import TaggedModel
from metricshuffle.numerics.types import Floats
from metricshuffle.queries.exact_features import ExactFeatures
from metricshuffle.queries.query import Query
from metricshuffle.queries.user_queries import UserHistogram, UserLinearQuery
from metricshuffle.spaces import TreeEmbedding

NO_TREE = "the distances are not those along a line or a tree, so no coordinates carry the earth mover's distance exactly."


class AnswerFeatures(TaggedModel, ABC):
    """Whole-number features of a person's items, averaged over the items."""

    kinds: ClassVar[dict[str, type[TaggedModel]]] = {}
    kind: str

    @abstractmethod
    def coordinates(self, query: Query) -> ExactFeatures:
        """The features of every point."""

    @abstractmethod
    def constant(self, query: Query, norm: NormName) -> float:
        """How much the features move in that norm per unit of distance, at most."""

    @abstractmethod
    def totals(self, query: Query, means: Floats, error: float) -> tuple[Floats, Floats]:
        """What the query asks for, unbiased, from noisy means of the features; and its standard errors, `error` being that of a mean."""

    def possible(self, query: Query, means: Floats) -> Floats | None:
        """Shares that can be true, near what was measured; None if the answer is no share."""
        return None


class TreeEdges(AnswerFeatures):
    """The mass below each edge of a tree, times its length: in sum these move by just the earth mover's distance."""

    kind: Literal["tree-edges"] = "tree-edges"

    def coordinates(self, query: Query) -> ExactFeatures:
        edges = _histogram(query).below_edges
        if edges is None:
            raise PlanError(NO_TREE)
        return edges

    def constant(self, query: Query, norm: NormName) -> float:
        if norm != "l1":
            raise PlanError(f"masses below the edges of a tree are measured in the norm l1, not {norm}; the task is damaged.")
        return 1.0

    def totals(self, query: Query, means: Floats, error: float) -> tuple[Floats, Floats]:
        """The mass at a point: what lies below its own edge less what lies below those that hang from it."""
        tree, lengths = _tree(query), self._lengths(query)
        below, variances = np.ones(tree.order.size), np.zeros(tree.order.size)
        below[tree.links], variances[tree.links] = means / lengths, (error / lengths) ** 2
        shares, squares = below.copy(), variances.copy()
        for node in tree.order:
            children = tree.children[node]
            if len(children):
                shares[node] -= below[children].sum()
                squares[node] += variances[children].sum()
        return shares[tree.nodes], np.sqrt(squares[tree.nodes])

    def possible(self, query: Query, means: Floats) -> Floats:
        tree = _tree(query)
        return shares_from_subtrees(tree, means * (tree.lengths / self._lengths(query)))

    def _lengths(self, query: Query) -> Floats:
        """The lengths as they were rounded down: a short edge beside a long one loses much of its length."""
        lengths: Floats = self.coordinates(query).table.max(axis=0)
        if not np.all(lengths > 0.0):
            raise InputError(
                "some edges of the tree are so short beside the longest that 32 bits do not tell their ends apart; merge such points."
            )
        return lengths


class PointShares(AnswerFeatures):
    """The share of every point: where distances are those of no tree."""

    kind: Literal["point-shares"] = "point-shares"

    def coordinates(self, query: Query) -> ExactFeatures:
        size = _histogram(query).people.size
        return ExactFeatures(np.eye(size), 0, np.zeros(size))

    def constant(self, query: Query, norm: NormName) -> float:
        """In sum, 2/(distance of the nearest points): one share falls by w/distance if items move by w, another rises."""
        return shares_constant(_histogram(query).people.distances, norm)

    def totals(self, query: Query, means: Floats, error: float) -> tuple[Floats, Floats]:
        return means, np.full(means.shape, error)

    def possible(self, query: Query, means: Floats) -> Floats:
        return simplex_projection(means)


class Columns(AnswerFeatures):
    """The columns of a linear query."""

    kind: Literal["columns"] = "columns"

    def coordinates(self, query: Query) -> ExactFeatures:
        return _linear(query).coordinates

    def constant(self, query: Query, norm: NormName) -> float:
        return _linear(query).constant_in(norm)

    def totals(self, query: Query, means: Floats, error: float) -> tuple[Floats, Floats]:
        return means + _linear(query).coordinates.middle, np.full(means.shape, error)


def _histogram(query: Query) -> UserHistogram:
    if not isinstance(query, UserHistogram):
        raise PlanError(f"shares are released of users' items, not of a {query.kind}; the task is damaged.")
    return query


def _tree(query: Query) -> TreeEmbedding:
    tree = _histogram(query).tree
    if tree is None:
        raise PlanError(NO_TREE)
    return tree


def _linear(query: Query) -> UserLinearQuery:
    if not isinstance(query, UserLinearQuery):
        raise PlanError(f"columns are those of a linear query, not of a {query.kind}; the task is damaged.")
    return query


AnyAnswerFeatures = Annotated[SerializeAsAny[AnswerFeatures], BeforeValidator(AnswerFeatures.of_kind)]
"""A field that holds any feature set and reads it back from JSON by its kind."""
