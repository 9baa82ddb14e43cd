"""Features of users' items that are released with noise, their sensitivity, and their readout.

A feature set is a subclass of AnswerFeatures. It defines the `coordinates` (whole-number features
of every point), the `constant` (the largest change of the features, in a norm, per unit of
distance), and the readout from noisy means of the features to an estimate.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Annotated, ClassVar, Literal

import numpy as np
from pydantic import BeforeValidator, SerializeAsAny

from metricshuffle.accounting.user_items.lipschitz import NormName, shares_constant
from metricshuffle.errors import InputError, PlanError
from metricshuffle.estimation.share_projection import shares_from_subtrees, simplex_projection
from metricshuffle.models import TaggedModel
from metricshuffle.noise.polytope import Polytope
from metricshuffle.numerics.types import Floats
from metricshuffle.queries.exact_features import ExactFeatures
from metricshuffle.queries.query import Query
from metricshuffle.queries.user_queries import UserHistogram, UserLinearQuery
from metricshuffle.spaces import TreeEmbedding

NO_TREE = (
    "the distances are not those along a line or a tree, so no coordinates carry the earth "
    "mover's distance exactly."
)


class AnswerFeatures(TaggedModel, ABC):
    """Whole-number features of a person's items, averaged over the items."""

    kinds: ClassVar[dict[str, type[TaggedModel]]] = {}
    kind: str

    @abstractmethod
    def coordinates(self, query: Query) -> ExactFeatures:
        """The features of every point."""

    @abstractmethod
    def constant(self, query: Query, norm: NormName | Polytope) -> float:
        """Upper bound on the change of the features in this norm per unit of distance."""

    @abstractmethod
    def totals(self, query: Query, means: Floats, error: Floats | float) -> tuple[Floats, Floats]:
        """Unbiased answer to the query from noisy means of the features, and its standard errors.

        `error` is the standard error of each mean, or of all of them.
        """

    def possible(self, query: Query, means: Floats) -> Floats | None:
        """Valid shares near the measured ones; None if the answer is not a share."""
        return None


class TreeEdges(AnswerFeatures):
    """One feature per edge of a tree: the mass below the edge, times the length of the edge.

    Between two users, the sum of the absolute changes of these features is exactly the earth
    mover's distance.
    """

    kind: Literal["tree-edges"] = "tree-edges"

    def coordinates(self, query: Query) -> ExactFeatures:
        edges = _histogram(query).below_edges
        if edges is None:
            raise PlanError(NO_TREE)
        return edges

    def constant(self, query: Query, norm: NormName | Polytope) -> float:
        if norm != "l1":
            raise PlanError(
                "masses below the edges of a tree are measured in the norm l1, not "
                f"{norm if isinstance(norm, str) else 'that of a polytope'}; the task is damaged."
            )
        return 1.0

    def totals(self, query: Query, means: Floats, error: Floats | float) -> tuple[Floats, Floats]:
        """The mass below a point's own edge minus the mass below its children's edges."""
        tree = _tree(query)
        lengths = self._lengths(query)
        below = np.ones(tree.order.size)
        variances = np.zeros(tree.order.size)
        below[tree.links], variances[tree.links] = means / lengths, (error / lengths) ** 2
        shares = below.copy()
        squares = variances.copy()
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
        """Edge lengths rounded down; edges much shorter than the longest change the most."""
        lengths: Floats = self.coordinates(query).table.max(axis=0)
        if not np.all(lengths > 0.0):
            raise InputError(
                "some edges of the tree are so short compared with the longest that 32 bits "
                "do not separate their ends; merge such points."
            )
        return lengths


class PointShares(AnswerFeatures):
    """The share of every point, for distances that are not those of a tree."""

    kind: Literal["point-shares"] = "point-shares"

    def coordinates(self, query: Query) -> ExactFeatures:
        size = _histogram(query).people.size
        return ExactFeatures(np.eye(size), 0, np.zeros(size))

    def constant(self, query: Query, norm: NormName | Polytope) -> float:
        """In the sum norm, 2/(distance of the nearest points).

        If items of total mass m move by a distance d, the earth mover's distance is m d; one share
        decreases by m and another increases by m.
        """
        if not isinstance(norm, str):
            raise PlanError("shares are not measured in the norm of a polytope.")
        return shares_constant(_histogram(query).people.distances, norm)

    def totals(self, query: Query, means: Floats, error: Floats | float) -> tuple[Floats, Floats]:
        return means, np.full(means.shape, error)

    def possible(self, query: Query, means: Floats) -> Floats:
        return simplex_projection(means)


class Columns(AnswerFeatures):
    """The columns of a linear query."""

    kind: Literal["columns"] = "columns"

    def coordinates(self, query: Query) -> ExactFeatures:
        return _linear(query).coordinates

    def constant(self, query: Query, norm: NormName | Polytope) -> float:
        return _linear(query).constant_in(norm)

    def totals(self, query: Query, means: Floats, error: Floats | float) -> tuple[Floats, Floats]:
        return means + _linear(query).coordinates.middle, np.full(means.shape, error)


def _histogram(query: Query) -> UserHistogram:
    if not isinstance(query, UserHistogram):
        raise PlanError(
            f"shares are released of users' items, not of a {query.kind}; the task is damaged."
        )
    return query


def _tree(query: Query) -> TreeEmbedding:
    tree = _histogram(query).tree
    if tree is None:
        raise PlanError(NO_TREE)
    return tree


def _linear(query: Query) -> UserLinearQuery:
    if not isinstance(query, UserLinearQuery):
        raise PlanError(
            f"columns are those of a linear query, not of a {query.kind}; the task is damaged."
        )
    return query


AnyAnswerFeatures = Annotated[
    SerializeAsAny[AnswerFeatures], BeforeValidator(AnswerFeatures.of_kind)
]
"""A field for any feature set, which is read back from JSON by its kind."""
