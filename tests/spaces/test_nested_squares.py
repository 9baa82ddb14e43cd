"""Nested squares: an ultrametric along a tree, never below the distance on the plane."""

from __future__ import annotations

import math

import numpy as np
import pytest
from tests.tables import check_all

from metricshuffle.errors import InputError
from metricshuffle.spaces import (
    Box,
    Grid,
    Integers,
    Matrix,
    NestedSquares,
    Space,
    Users,
    earth_mover,
    embedding,
    nested_squares,
    nested_squares_on_map,
    users_of,
)
from metricshuffle.testing import check_metric

SPACES = {
    "square": nested_squares(3, 80.0, "m"),
    "wide": Space(Grid(8, 3, 0.1), NestedSquares(3, 0.1)),
    "deeper": Space(Grid(3, 5), NestedSquares(4)),
}


def smallest_square(a: tuple[int, int], b: tuple[int, int]) -> int:
    """By looking at every size of square."""
    return next(
        level
        for level in range(13)
        if all(x >> level == y >> level for x, y in zip(a, b, strict=True))
    )


@check_all("name", SPACES)
def test_distances_are_diagonals_and_lengths_of_ways(name: str) -> None:
    space = SPACES[name]
    assert isinstance(space.domain, Grid)
    assert isinstance(space.metric, NestedSquares)
    cells = space.domain.all_values()
    distances = Users(space).distances
    for i, a in enumerate(cells.tolist()):
        for j, b in enumerate(cells.tolist()):
            level = smallest_square(a, b)
            assert distances[i, j] == (
                pytest.approx(math.sqrt(2) * space.domain.cell * 2**level, rel=1e-15)
                if level
                else 0.0
            )
    tree = embedding(space)
    along = tree.tree.pairwise(tree.nodes, tree.nodes)
    assert along == pytest.approx(distances, rel=1e-15)
    assert np.abs(tree.coordinates[:, None] - tree.coordinates[None]).sum(axis=2) == pytest.approx(
        distances, rel=1e-12
    )
    assert len(tree.links) == len(tree.tree.parents) - 1


@check_all("name", SPACES)
def test_an_ultrametric_above_the_plane(name: str) -> None:
    space = SPACES[name]
    assert isinstance(space.domain, Grid)
    distances = Users(space).distances
    assert (
        distances[:, None, :] <= np.maximum(distances[:, :, None], distances[None, :, :]) + 0.0
    ).all()
    corners = space.domain.points(space.domain.all_values())
    for shift in (
        (0.0, 0.0),
        (1.0, 1.0),
        (1.0, 0.0),
    ):  # from any corner of one cell to any of the other
        apart = np.linalg.norm(
            corners[:, None] + np.multiply(shift, space.domain.cell) - corners[None], axis=2
        )
        off = ~np.eye(len(corners), dtype=bool)
        assert (apart[off] <= distances[off] * (1.0 + 1e-12)).all()
    check_metric(space.metric, corners.tolist())


def test_neighbours_across_the_middle_are_far_apart() -> None:
    space = nested_squares(4, 16.0)
    assert (
        space.distance((7, 0), (8, 0))
        == space.distance((0, 0), (15, 15))
        == users_of(space).diameter
        == pytest.approx(16.0 * math.sqrt(2))
    )
    assert space.distance((6, 0), (7, 0)) == pytest.approx(2.0 * math.sqrt(2))


def test_the_earth_movers_distance_is_that_of_the_table() -> None:
    rng = np.random.default_rng(5)
    space = SPACES["wide"]
    table = Matrix(Users(space).distances)
    for _ in range(5):
        a, b = rng.integers(0, 4, (2, 24))
        found = earth_mover(space, a, b)
        exact = earth_mover(table, a, b)
        assert found.how == "tree"
        assert found.distance == pytest.approx(exact.distance, rel=1e-9)


def test_on_a_map() -> None:
    pytest.importorskip("pyproj")
    space = nested_squares_on_map(3, Box(42.1, -72.76, 42.46, -72.46), "km")
    assert isinstance(space.domain, Grid)
    assert (space.domain.width, space.domain.height, space.unit) == (5, 8, "km")
    assert space.domain.cells_at([42.1, 42.459], [-72.759, -72.461]).tolist() == [[0, 0], [4, 7]]
    assert users_of(space).diameter == pytest.approx(space.domain.cell * 8 * math.sqrt(2))


def test_stored_and_read_back() -> None:
    people = users_of(SPACES["square"], 4)
    assert Users.model_validate_json(people.model_dump_json()) == people


def test_refusals() -> None:
    for wrong in (
        lambda: NestedSquares(0),
        lambda: NestedSquares(13),
        lambda: NestedSquares(3, 0.0),
        lambda: nested_squares(3, -1.0),
        lambda: nested_squares(99, 1.0),
        lambda: nested_squares(3, math.nan),
        lambda: Space(Integers(0, 3), NestedSquares(3)),
        lambda: nested_squares_on_map(3, Box(0, 0, 1, 1), "miles"),
    ):
        with pytest.raises(InputError):
            wrong()
    with pytest.raises(InputError, match="use such a Grid"):
        users_of(Space(Grid(9, 2), NestedSquares(3))).distance([(0, 0)], [(8, 0)])
    with pytest.raises(InputError, match="use such a Grid"):
        NestedSquares(3).pairwise([(0.5, 1.0)], [(0.0, 0.0)])
