"""Tables that are line or tree distances: detected, never longer, no false positives."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from numpy.typing import NDArray
from tests.tables import check_all

import metricshuffle as ms
from metricshuffle.spaces import Matrix, Scaled, Space, Tree, TreeEmbedding, users_of
from metricshuffle.spaces.tree_detection import TREE_TOLERANCE, tree_below

Floats = NDArray[np.float64]


def exact_distances(tree: Tree, nodes: NDArray[np.int64]) -> list[list[Fraction]]:
    """Along the tree, by walking to the root from both ends, in fractions."""
    parents = tree.parents.astype(int).tolist()
    lengths = [Fraction(float(length)) for length in tree.lengths]

    def ways(node: int) -> dict[int, Fraction]:
        found = {}
        walked = Fraction(0)
        while node >= 0:
            found[node] = walked
            walked = walked + lengths[node]
            node = parents[node]
        return found

    walks = [ways(int(node)) for node in nodes]
    return [
        [min(one[node] + other[node] for node in one if node in other) for other in walks]
        for one in walks
    ]


def line(generator: np.random.Generator, points: int) -> Floats:
    places = generator.permutation(np.cumsum(generator.choice([0.1, 0.2, 0.3, 1.0 / 3.0], points)))
    return np.asarray(np.abs(places[:, None] - places))


def points_of_a_tree(generator: np.random.Generator, points: int, nodes: int) -> Floats:
    parents = [-1, *(int(generator.integers(node)) for node in range(1, nodes))]
    lengths = (
        generator.choice([0.1, 0.25, 1.0 / 3.0, 0.7, 2.0], nodes)
        if nodes % 2
        else generator.exponential(size=nodes)
    )
    chosen = generator.permutation(nodes)[:points]
    found = Tree(parents, lengths).pairwise(chosen, chosen)
    return np.minimum(found, found.T)


@check_all("seed", range(24))
def test_lines_and_trees_are_found_and_never_longer(seed: int) -> None:
    """Points in a tree with unknown other nodes: distances to 1e-5 from below, exactly."""
    generator = np.random.default_rng(seed)
    points = int(generator.integers(2, 25))
    table = (
        line(generator, points)
        if seed % 3 == 0
        else points_of_a_tree(generator, points, points * (1 + seed % 2))
    )
    found = tree_below(table)
    assert found is not None
    tree, nodes = found
    for row, along in zip(table, exact_distances(tree, nodes), strict=True):
        for given, exact in zip(row, along, strict=True):
            assert (
                Fraction(float(given)) * (1 - Fraction(TREE_TOLERANCE))
                <= exact
                <= Fraction(float(given))
            )
    if seed % 3 == 0:
        assert TreeEmbedding(tree, nodes).is_path
        assert len(tree.parents) == points
    degrees = np.bincount(
        tree.parents[tree.parents >= 0].astype(int), minlength=len(tree.parents)
    ) + (tree.parents >= 0)
    assert np.all(degrees[points:] >= 3)  # what is no point is a fork


def test_tables_that_are_no_tree_give_none() -> None:
    """A circle, places in the plane, a tree with one wrong entry, and points at distance 0."""
    generator = np.random.default_rng(1)
    circle = np.minimum(
        np.abs(np.subtract.outer(np.arange(6), np.arange(6))),
        6 - np.abs(np.subtract.outer(np.arange(6), np.arange(6))),
    )
    places = generator.random((9, 2))
    wrong = points_of_a_tree(generator, 8, 16)
    wrong[2, 5] = wrong[5, 2] = wrong[2, 5] * (1.0 - 1e-4)
    for table in (
        circle.astype(float),
        np.linalg.norm(places[:, None] - places, axis=2),
        wrong,
        np.array([[0.0, 0.0], [0.0, 0.0]]),
    ):
        assert tree_below(table) is None


def test_a_table_of_a_star_has_a_node_that_is_no_point() -> None:
    embedded = TreeEmbedding.of(Matrix(2.0 * (1.0 - np.eye(4))))
    assert embedded is not None
    assert len(embedded.tree.parents) == 5
    np.testing.assert_allclose(embedded.lengths, 1.0, rtol=1e-9)


def test_a_table_of_a_line_is_planned_as_a_line() -> None:
    """Same errors as for the numbers themselves, also scaled; the plan is verified."""
    places = np.array([3, 0, 2, 1, 4])
    table = Matrix(np.abs(np.subtract.outer(places, places)))
    target = ms.Target(1.0, 0.0, 4.0)

    def planned(space: object, far: float = 1.0) -> ms.Plan:
        return ms.plan(
            ms.UserHistogram(users_of(space)), ms.Target(1.0, 0.0, 4.0 * far), 500, trusted="nobody"
        )

    of_numbers, of_table = planned(ms.Integers(0, 4)), planned(table)
    scaled = planned(Space(ms.Categories(list("abcde")), Scaled(table, 10.0)), 10.0)
    assert of_table.choice.protocol == scaled.choice.protocol == "tree-laplace"
    assert of_table.choice.expected_error == pytest.approx(
        of_numbers.choice.expected_error, rel=0.1
    )
    assert scaled.choice.expected_error == pytest.approx(
        10.0 * of_table.choice.expected_error, rel=1e-6
    )
    of_table.task.verify()
    assert target.epsilon == of_table.guarantee.epsilon
