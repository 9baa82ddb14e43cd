"""Projection of noisy subtree masses to possible shares, and its error."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.tables import check_all

from metricshuffle.errors import InputError
from metricshuffle.estimation.share_projection import (
    possible_shares,
    shares_from_subtrees,
    simplex_projection,
)
from metricshuffle.spaces import Categories, Clustered, Integers, Tree, embedding

SPACES: list[Any] = [
    Integers(0, 12),
    Clustered(3, 4, 0.05),
    Clustered(3, 4, 0.95),
    Categories(["a", "b", "c", "d"]),
    Tree([-1, 0, 0, 1, 1, 2, 3, 3], [0, 0.1, 0.3, 0.7, 0.123, 0.33, 0.77, 0.01]),
    Tree([-1, 0, 1, 2], [0, 1.0, 0.2, 3.0]),
]


def spread(space: Any, first: np.ndarray, other: np.ndarray) -> float:
    return float(np.abs(embedding(space).means(first - other)).sum())


@check_all("space", SPACES)
def test_without_noise_the_shares_come_back(space: Any) -> None:
    tree = embedding(space)
    generator = np.random.default_rng(1)
    for _ in range(20):
        shares = generator.dirichlet(np.full(len(tree.nodes), 0.5))
        np.testing.assert_allclose(
            shares_from_subtrees(tree, tree.means(shares)[0]), shares, atol=1e-12
        )
        np.testing.assert_allclose(possible_shares(tree, shares), shares, atol=1e-12)


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(SPACES), st.integers(0, 2**32 - 1), st.floats(1e-3, 100.0))
def test_whatever_was_released_possible_shares_come_out(space: Any, seed: int, size: float) -> None:
    tree = embedding(space)
    generator = np.random.default_rng(seed)
    shares_back = shares_from_subtrees(tree, generator.laplace(0.0, size, tree.lengths.size))
    assert np.all(shares_back >= 0.0)
    assert shares_back.sum() == pytest.approx(1.0, abs=1e-9)


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 2**32 - 1), st.floats(1e-3, 10.0), st.booleans())
def test_on_a_line_the_projection_never_adds_error(seed: int, size: float, spikes: bool) -> None:
    space = Integers(0, 20)
    generator = np.random.default_rng(seed)
    tree = embedding(space)
    truth = generator.dirichlet(np.full(21, 0.3))
    noise = generator.laplace(0.0, size, 20) * (
        generator.uniform(size=20) < (0.1 if spikes else 1.0)
    )
    shares_back = shares_from_subtrees(tree, tree.means(truth)[0] + noise)
    assert spread(space, shares_back, truth) <= np.abs(noise).sum() * (1.0 + 1e-9) + 1e-12


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 2**32 - 1), st.floats(1e-3, 10.0), st.booleans())
def test_between_labels_the_projection_at_most_doubles_the_error(
    seed: int, size: float, spikes: bool
) -> None:
    space = Categories([str(i) for i in range(9)])
    generator = np.random.default_rng(seed)
    tree = embedding(space)
    truth = generator.dirichlet(np.full(9, 0.3))
    noise = generator.laplace(0.0, size, 9) * (generator.uniform(size=9) < (0.2 if spikes else 1.0))
    shares_back = shares_from_subtrees(tree, tree.means(truth)[0] + noise)
    assert spread(space, shares_back, truth) <= 2.0 * np.abs(noise).sum() * (1.0 + 1e-9) + 1e-12
    np.testing.assert_allclose(shares_back, simplex_projection(truth + 2.0 * noise), atol=1e-9)


@check_all("inner", [0.05, 0.5, 0.95, 0.99])
def test_short_links_do_not_decide_over_long_ones(inner: float) -> None:
    """A link of length 0.005 says little about its mass; used as it is, errors grew 14 times."""
    space = Clustered(4, 4, inner)
    generator = np.random.default_rng(2)
    tree = embedding(space)
    errors = []
    sizes = []
    for _ in range(150):
        truth = generator.dirichlet(np.full(16, 0.3))
        noise = generator.laplace(0.0, 1e-3, tree.lengths.size)
        errors.append(
            spread(space, shares_from_subtrees(tree, tree.means(truth)[0] + noise), truth)
        )
        sizes.append(np.abs(noise).sum())
        assert errors[-1] <= 2.0 * sizes[-1]
    assert np.mean(errors) < 0.9 * np.mean(sizes)


def test_the_size_of_the_noise_on_each_edge_counts() -> None:
    """Exact cluster shares and useless places give exact clusters, and vice versa."""
    space = Clustered(2, 2, 0.5)
    tree = embedding(space)
    truth = np.array([0.5, 0.2, 0.2, 0.1])
    wrong = tree.means(truth)[0] + np.where(tree.is_leaf_edge, 0.03, 0.0)
    near = shares_from_subtrees(tree, wrong, np.where(tree.is_leaf_edge, 1.0, 1e-6))
    np.testing.assert_allclose(near.reshape(2, 2).sum(axis=1), [0.7, 0.3], atol=1e-9)
    wrong = tree.means(truth)[0] + np.where(tree.is_leaf_edge, 0.0, [0.05, -0.02] * 3)
    np.testing.assert_allclose(
        shares_from_subtrees(tree, wrong, np.where(tree.is_leaf_edge, 1e-6, 1.0)), truth, atol=1e-9
    )


def test_a_point_between_others_keeps_what_is_left() -> None:
    tree = embedding(Tree([-1, 0, 1, 1], [0, 1.0, 1.0, 1.0]))
    np.testing.assert_allclose(
        shares_from_subtrees(tree, np.array([0.8, 0.3, 0.1])), [0.2, 0.4, 0.3, 0.1], atol=1e-12
    )
    assert shares_from_subtrees(tree, np.array([0.4, 0.6, 0.4]))[1] == 0.0  # no room for itself


def test_wrong_coordinates_are_refused() -> None:
    tree = embedding(Integers(0, 3))
    for given_ in ([0.1, 0.2], [0.1, np.nan, 0.3]):
        with pytest.raises(InputError, match="one finite coordinate for each of 3 edges"):
            shares_from_subtrees(tree, np.array(given_))
    with pytest.raises(InputError, match="the size of the noise"):
        shares_from_subtrees(tree, np.zeros(3), np.array([1.0, 0.0, 1.0]))
    with pytest.raises(InputError, match="merge points at distance 0"):
        shares_from_subtrees(embedding(Tree([-1, 0, 0], [0, 0.0, 1.0])), np.zeros(2))
