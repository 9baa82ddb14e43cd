"""Distances along trees."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import coo_array
from scipy.sparse.csgraph import dijkstra
from tests.tables import check_all

from metricshuffle.errors import DomainError, InputError
from metricshuffle.spaces import Categories, Matrix, Metric, Space, Tree
from metricshuffle.testing import check_metric


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 30), st.integers(0, 2**32), st.booleans())
def test_against_dijkstra_from_everywhere(size: int, seed: int, shuffled: bool) -> None:
    rng = np.random.default_rng(seed)
    names = (
        rng.permutation(size) if shuffled else np.arange(size)
    )  # children may come before their parents
    parents = np.full(size, -1)
    lengths = rng.uniform(0.5, 3.0, size)
    for i in range(1, size):
        parents[names[i]] = names[rng.integers(0, i)]
    tree = Tree(parents, lengths)
    linked = np.flatnonzero(parents >= 0)
    graph = coo_array((lengths[linked], (linked, parents[linked])), shape=(size, size)).tocsr()
    expected = dijkstra(graph, directed=False)
    found = tree.pairwise(range(size), range(size))
    assert found == pytest.approx(expected, rel=1e-14)
    assert tree.reaches() == pytest.approx(expected.max(axis=1), rel=1e-14)
    check_metric(tree, range(size))


def test_a_small_one_by_hand() -> None:
    tree = Tree([-1, 0, 0, 1], [0, 2, 3, 0.5])
    assert tree(3, 2) == 5.5
    assert tree(3, 1) == 0.5
    assert tree.pairwise([3, 0], [0]).tolist() == [[2.5], [0.0]]
    assert tree.reaches().tolist() == [3.0, 5.0, 5.5, 5.5]
    assert Tree([-1, 0, 1])(0, 2) == 2.0
    space = Space(Categories(["world", "here", "there", "home"]), tree)
    assert space.distance("home", "there") == 5.5
    assert space.reach("here") == 5.0
    assert space.diameter == 5.5


def test_a_long_path_is_walked_without_recursion() -> None:
    tree = Tree(np.arange(-1, 20_000))
    assert tree.reaches()[0] == 20_000
    assert tree.reaches().min() == 10_000


def test_through_json() -> None:
    tree = Tree([-1, 0, 0], [0, 1.5, 2])
    assert Metric.of_kind(tree.model_dump(mode="json")) == tree
    assert hash(Metric.of_kind(tree.model_dump(mode="json"))) == hash(tree)
    assert tree != Tree([-1, 0, 0], [0, 1.5, 3])
    assert tree != Matrix([[0, 1], [1, 0]])


@check_all(
    ("parents", "lengths", "words"),
    [
        ([], None, "at least one point"),
        ([-1, 2, 1], None, "from point 1 they go in a circle"),
        ([-1, -1], None, "exactly one -1, for the root, got 2"),
        ([1, 0], None, "exactly one -1, for the root, got 0"),
        ([-1, 5], None, "but parent 1 is not"),
        ([-1, 0.5], None, "but parent 1 is not"),
        ([-1, 0], [0, -1], "but length 1 is not"),
        ([-1, 0], [0], "as many as parents"),
        ([-1, 0], [0, np.nan], "finite number"),
        ([-1, None], None, "finite number"),
    ],
)
def test_what_is_not_a_tree(parents: list[float], lengths: list[float] | None, words: str) -> None:
    with pytest.raises(InputError, match=words):
        Tree(parents, lengths)


def test_points_that_are_none() -> None:
    with pytest.raises(DomainError, match="points 0 to 1 of the tree"):
        Tree([-1, 0])(0, 2)
    tree = Tree([-1, 0])
    with pytest.raises(ValueError, match="read-only"):
        tree.lengths[0] = 3.0
