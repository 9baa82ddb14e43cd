"""Tests of the strongest user-level baseline on nested squares: privacy and accuracy."""

from __future__ import annotations

import numpy as np
import pytest
from tests.tables import check_all

from metricshuffle.simulation.fast_draws import distance_of
from metricshuffle.simulation.population import Population
from metricshuffle.spaces import (
    Clustered,
    Grid,
    NestedSquares,
    Space,
    embedding,
    nested_squares,
    users_of,
)
from metricshuffle_papers.compare.methods import level_laplace, level_scales, two_level_laplace

SPACES = {
    "square": nested_squares(3, 8.0),
    "wide": Space(Grid(7, 3), NestedSquares(3)),
    "clusters": Clustered(3, 4, 0.1),
}


@check_all("name", SPACES)
def test_a_full_replacement_costs_just_epsilon(name: str) -> None:
    tree = embedding(SPACES[name])
    scales = level_scales(tree, 1.5)
    size = len(tree.nodes)
    rng = np.random.default_rng(3)
    users = rng.dirichlet(np.full(size, 0.1), 40)
    points = tree.coordinates
    costs = (np.abs(points[:, None] - points[None]) / scales).sum(axis=2)
    assert costs.max() == pytest.approx(
        1.5, rel=1e-12
    )  # two points of two of the largest squares: every level moves in full
    means = users @ points
    assert (np.abs(means[:, None] - means[None]) / scales).sum(axis=2).max() <= 1.5 * (1.0 + 1e-12)


@check_all("name", SPACES)
def test_no_other_split_has_less_noise(name: str) -> None:
    """Moving budget between two levels raises the sum of the scales.

    That sum is the expected error before projection.
    """
    tree = embedding(SPACES[name])
    scales = level_scales(tree, 1.0)
    shares = 2.0 * tree.lengths / scales  # epsilon of the level of each edge
    kinds = np.unique(np.round(shares, 12))
    assert len(kinds) >= 2
    for up in kinds:
        for down in kinds[kinds != up]:
            for step in (0.01, -0.01):
                moved = shares + step * np.isclose(shares, up) - step * np.isclose(shares, down)
                assert (2.0 * tree.lengths / moved).sum() >= scales.sum()


def test_it_is_the_two_level_release_on_clusters() -> None:
    metric = Clustered(3, 4, 0.1)
    people = users_of(metric, 5)
    rng = np.random.default_rng(1)
    shares = rng.dirichlet(np.ones(12))
    ways = (level_laplace(people, "central", 500, 1.0), two_level_laplace(metric, 500, 1.0))
    errors = []
    for way in ways:
        generator = np.random.default_rng(2)
        crowds = [Population.drawn(shares, 500, 5, generator) for _ in range(150)]
        errors.append(
            np.mean(
                [
                    distance_of(people, way.estimate(crowd, generator), crowd.truth)
                    for crowd in crowds
                ]
            )
        )
    assert errors[0] == pytest.approx(errors[1], rel=0.12)
    local = level_laplace(people, "local", 500, 1.0)
    assert distance_of(people, local.estimate(crowds[0], rng), crowds[0].truth) > errors[0]
