"""Methods that release a histogram of users' items, to be compared by simulation.

Ours, ordinary user-level privacy, and methods as published.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from metricshuffle.accounting.user_items.metric_gaussian import gaussian_sigma
from metricshuffle.estimation.inversion import Inversion
from metricshuffle.estimation.share_projection import (
    possible_shares,
    shares_from_subtrees,
    simplex_projection,
)
from metricshuffle.randomizers.randomizer import Randomizer
from metricshuffle.simulation.fast_draws import simulated_shares
from metricshuffle.simulation.population import Population
from metricshuffle.spaces import Clustered, TreeEmbedding, Users, embedding

Floats = NDArray[np.float64]
Model = Literal["local", "central"]
Hides = Literal["user", "earth mover", "published"]
Estimate = Callable[[Population, np.random.Generator], Floats]


@dataclass(frozen=True, eq=False)
class Method:
    """Method whose `estimate` draws one simulated release.

    It protects whole users at epsilon, moves at a rate, or has only a published claim.
    """

    name: str
    model: Model
    hides: Hides
    estimate: Estimate
    strength: float
    """Noise or item rate it was calibrated to."""


def laplace_histogram(users: int, epsilon: float) -> Method:
    """Laplace noise on the shares of the mean histogram.

    Statement: replacing one of n users moves the mean histogram by at most 2/n in sum, so Laplace
    noise of scale 2/(n epsilon).
    """
    scale = 2.0 / (users * epsilon)
    return Method(
        "Laplace on shares",
        "central",
        "user",
        lambda crowd, generator: simplex_projection(
            crowd.truth + generator.laplace(0.0, scale, crowd.truth.size)
        ),
        scale,
    )


def two_level_laplace(metric: Clustered, users: int, epsilon: float) -> Method:
    """Laplace noise on the shares of points and of clusters, epsilon split for the least error.

    The error is in earth mover's distance.
    Statement: either level moves by at most 2/n in sum, so scales 2/(n e1) on the points and 2/(n
    e2) on the clusters with e1 + e2 = epsilon are private; the expected error before projection is
    (r k/e1 + (1-r) s/e2)/n, least if e1 : e2 = sqrt(r k) : sqrt((1-r) s), for s clusters, k points,
    r the distance within a cluster.
    """
    inner = metric.inner
    points = metric.clusters * metric.places
    near = math.sqrt(inner * points)
    far = math.sqrt((1.0 - inner) * metric.clusters)
    scales = [2.0 * (near + far) / (users * epsilon * part) for part in (near, far)]
    tree = embedding(metric)
    heights = np.where(tree.is_leaf_edge, scales[0], scales[1])

    def estimate(crowd: Population, generator: np.random.Generator) -> Floats:
        below = crowd.truth @ tree.coordinates + tree.lengths * generator.laplace(0.0, heights)
        return shares_from_subtrees(tree, below, tree.lengths * heights)

    return Method("two-level Laplace", "central", "user", estimate, scales[0])


def level_laplace(people: Users, model: Model, users: int, epsilon: float) -> Method:
    """Laplace noise on the shares of all squares of every level: the strongest of its kind.

    epsilon is split as in `two_level_laplace`.
    Statement: the shares of one level move by at most 2 in sum for a user, so scales 2/e_l with sum
    e_l = epsilon are private; the expected error before projection is the sum of (edges of the
    level) (their length) 2/e_l, least for e_l in proportion to sqrt(edges * length).
    Conditions: all points lie equally deep.
    """
    tree = embedding(people.items_in)
    heights = level_scales(tree, epsilon)

    def estimate(crowd: Population, generator: np.random.Generator) -> Floats:
        draws = 1 if model == "central" else crowd.users
        noise = generator.gamma(draws, size=tree.lengths.size) - generator.gamma(
            draws, size=tree.lengths.size
        )
        return shares_from_subtrees(
            tree, crowd.truth @ tree.coordinates + noise * heights / crowd.users, heights
        )

    name = "Laplace on every level" if model == "central" else "Laplace on every level, each user"
    return Method(
        name,
        model,
        "user",
        estimate,
        2.0 / (epsilon * users) if model == "central" else 2.0 / epsilon,
    )


def level_scales(tree: TreeEmbedding, epsilon: float) -> Floats:
    """Scales of `level_laplace` on one user's answer, by coordinate (length * mass below)."""
    depths = np.zeros(tree.order.size, dtype=np.int64)
    for node in tree.order[1:]:
        depths[node] = depths[int(tree.tree.parents[node])] + 1
    levels = depths[tree.links]
    weights = np.sqrt(
        np.bincount(levels)
        * np.array(
            [tree.lengths[levels == level].max(initial=0.0) for level in range(levels.max() + 1)]
        )
    )
    return np.asarray(tree.lengths * 2.0 * weights.sum() / (epsilon * weights[levels]))


def gaussian_histogram(users: int, epsilon: float, delta: float) -> Method:
    """Gaussian noise on the shares of the mean histogram.

    Statement: the mean histogram moves by at most sqrt(2)/n in the Euclidean norm; noise as in
    `accounting.user_items.metric_gaussian`.
    """
    scale = math.sqrt(2.0) / users * gaussian_sigma(epsilon, delta)
    return Method(
        "Gaussian on shares",
        "central",
        "user",
        lambda crowd, generator: simplex_projection(
            crowd.truth + generator.normal(0.0, scale, crowd.truth.size)
        ),
        scale,
    )


def laplace_reports(epsilon: float) -> Method:
    """Laplace noise of scale 2/epsilon that every user adds to their own histogram."""

    def estimate(crowd: Population, generator: np.random.Generator) -> Floats:
        noise = generator.gamma(crowd.users, size=crowd.truth.size) - generator.gamma(
            crowd.users, size=crowd.truth.size
        )
        return simplex_projection(crowd.truth + noise * 2.0 / (epsilon * crowd.users))

    return Method("Laplace on each user's shares", "local", "user", estimate, 2.0 / epsilon)


def one_item(name: str, randomizer: Randomizer, epsilon: float) -> Method:
    """One random item of every user, reported through a randomizer of that epsilon."""
    inversion = Inversion.of(randomizer)
    return Method(
        f"{name}, one item each",
        "local",
        "user",
        lambda crowd, generator: simplex_projection(
            simulated_shares(inversion, crowd.single_items, generator)
        ),
        epsilon,
    )


def item_wise(
    name: str, people: Users, model: Model, hides: Hides, randomizer: Randomizer, strength: float
) -> Method:
    """Every item of every user through the randomizer, then shuffled (local: each user's own)."""
    inversion = Inversion.of(randomizer)
    tree = people.tree
    return Method(
        name,
        model,
        hides,
        lambda crowd, generator: possible_shares(
            tree, simulated_shares(inversion, crowd.sampled, generator)
        ),
        strength,
    )


def tree_laplace(people: Users, model: Model, users: int, rate: float) -> Method:
    """Laplace noise on the masses below the edges of the tree, in proportion to their lengths.

    The release is l1-isometric.
    """
    tree = embedding(people.items_in)
    scale = 1.0 / rate

    def estimate(crowd: Population, generator: np.random.Generator) -> Floats:
        draws = 1 if model == "central" else crowd.users
        noise = generator.gamma(draws, size=tree.lengths.size) - generator.gamma(
            draws, size=tree.lengths.size
        )
        return shares_from_subtrees(
            tree, crowd.truth @ tree.coordinates + noise * scale / crowd.users
        )

    return Method(
        "tree Laplace",
        model,
        "earth mover",
        estimate,
        scale / users if model == "central" else scale,
    )
