"""Users with many items: codes, histograms, distances, and errors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.tables import check_all

from metricshuffle.errors import InputError
from metricshuffle.spaces import (
    Categories,
    Clustered,
    Grid,
    Integers,
    Interval,
    Manhattan,
    Matrix,
    Scaled,
    Space,
    Tree,
    Users,
    earth_mover,
    users_of,
)


def test_what_an_item_is() -> None:
    assert users_of(Integers(5, 9)).codes([5, 9, 7]).tolist() == [0, 4, 2]
    words = users_of(Categories(["tea", "coffee", "milk"]))
    assert words.codes(["milk", "tea"]).tolist() == words.codes([2, 0]).tolist() == [2, 0]
    cells = users_of(Grid(4, 3))
    assert cells.codes([(1, 0), (3, 2)]).tolist() == cells.codes([1, 11]).tolist() == [1, 11]
    assert cells.items_in.domain.all_values()[11].tolist() == [3, 2]
    assert users_of(Clustered(2, 3, 0.5)).codes(np.array([5, 0])).tolist() == [5, 0]


def test_points_in_words() -> None:
    assert users_of(Integers(5, 9)).label(3) == "8"
    assert users_of(Categories(["tea", "milk"])).label(1) == "milk"
    assert users_of(Grid(4, 3)).label(11) == "(3, 2)"
    with pytest.raises(InputError, match="whole number from 0 to 4"):
        users_of(Integers(5, 9)).label(5)


def test_what_is_known_of_users() -> None:
    users = users_of(
        Space(Integers(0, 10, unit="km"), Scaled(Manhattan(), 2.0), unit="km"), items=4
    )
    assert (users.size, users.diameter, users.unit, users.items, users.bounded) == (
        11,
        20.0,
        "km",
        4,
        True,
    )
    assert not users_of(Integers(0, 3)).bounded
    assert users_of(Tree([-1, 0, 0], [0, 1.5, 2])).diameter == 3.5
    assert users_of(Scaled(Clustered(200, 100, 0.1), 3.0)).diameter == 3.0
    assert users_of(Matrix([[0, 2], [2, 0]])).diameter == 2.0
    assert users_of(Grid(4, 5)).diameter == 5.0
    assert users.distances[0].tolist() == [2.0 * i for i in range(11)]
    assert str(users) == "users with 4 items each in whole numbers from 0 to 10 km"


@check_all(
    "space", [Integers(0, 4), Grid(2, 3), Clustered(2, 2, 0.3), Matrix([[0, 1.5], [1.5, 0]])]
)
def test_users_through_json(space: Any) -> None:
    for items in (None, 7):
        users = users_of(space, items)
        assert Users.model_validate_json(users.model_dump_json()) == users


def test_histograms_of_many_users_in_every_form() -> None:
    rng = np.random.default_rng(1)
    users = users_of(Clustered(3, 4, 0.2), items=20)
    held = rng.integers(0, 12, (50, 20))
    expected = np.array([[(row == code).mean() for code in range(12)] for row in held])
    for people in (
        held,
        held.tolist(),
        list(held),
        [tuple(row) for row in held],
        held.astype(float),
    ):
        assert users.histograms(people) == pytest.approx(expected, rel=1e-15)
    assert users.histogram(held[3]) == pytest.approx(expected[3], rel=1e-15)
    uneven = [[0, 1], [5], [11, 11, 11, 3]]
    some = users_of(Clustered(3, 4, 0.2))
    assert some.sizes(uneven).tolist() == [2, 1, 4]
    assert some.histograms(uneven)[2, [3, 11]].tolist() == [0.25, 0.75]
    flat, sizes = some.coded(uneven)
    assert (flat.tolist(), sizes.tolist()) == ([0, 1, 5, 11, 11, 11, 3], [2, 1, 4])
    cells = rng.integers(0, 3, (6, 5, 2))
    assert (
        users_of(Grid(3, 3)).histograms(cells).tolist()
        == users_of(Grid(3, 3)).histograms(cells.tolist()).tolist()
    )
    words = users_of(Categories(["tea", "milk"]))
    assert words.histograms([["tea"], ["milk", "tea"]]).tolist() == [[1, 0], [0.5, 0.5]]
    assert words.histograms(np.array([["tea", "tea"], ["milk", "tea"]])).tolist() == [
        [1, 0],
        [0.5, 0.5],
    ]


def test_the_distance_of_two_users() -> None:
    users = users_of(Integers(0, 100))
    assert users.distance([0, 0, 0, 0], [0, 0, 0, 8]) == pytest.approx(
        2.0, rel=1e-12
    )  # a quarter of the items by 8
    assert users.distance([0], [100, 100]) == 100.0  # never more than the diameter
    assert users.distance([3, 5], [5, 3, 3, 5]) == 0.0
    plane = users_of(Grid(5, 5), items=3)
    a = [(0, 0), (1, 1), (4, 4)]
    b = [(4, 4), (0, 3), (1, 1)]
    assert plane.distance(a, b) == pytest.approx(1.0, rel=1e-12)
    assert (
        plane.distance(a, b)
        == earth_mover(Grid(5, 5), 3 * plane.histogram(a), 3 * plane.histogram(b)).distance
    )


@check_all(
    ("users", "people", "words"),
    [
        (
            users_of(Integers(0, 9), 2),
            [[1, 2], [3]],
            r"user 1 \(counting from 0\) holds 1 items, but everybody must hold exactly 2",
        ),
        (users_of(Integers(0, 9), 2), np.ones((3, 4), dtype=int), r"user 0 .* holds 4 items"),
        (users_of(Integers(0, 9)), [[1, 2], [3], []], "user 2 .* holds no items"),
        (
            users_of(Integers(0, 9)),
            [[1, 2], [3, 10]],
            "user 1 .*: 1 of 2 values is not in whole numbers from 0 to 9",
        ),
        (users_of(Integers(0, 9)), np.array([[1, 2], [3, -1]]), "user 1 .* row 1 "),
        (users_of(Integers(0, 9)), [[1, 2], [3, None]], "user 1 .* is missing"),
        (users_of(Integers(0, 9)), [[1, 2], [True]], "user 1 .* truth value"),
        (users_of(Clustered(2, 2, 0.5)), [[0], [4]], "user 1 .* is not a whole number from 0 to 3"),
        (users_of(Categories(["a", "b"])), [["a"], ["b", "c"]], "user 1 .*'c' is not a label"),
        (users_of(Grid(2, 2)), [[(0, 1)], [(0, 2)]], "user 1 .* is not a column from 0 to 1"),
        (users_of(Grid(2, 2)), [[(0, 1)], [3, 4]], "user 1 .* whole number from 0 to 3"),
        (
            users_of(Integers(0, 9)),
            [[1, 2], 3],
            "user 1 .* must hold a list of items, got a single int",
        ),
        (
            users_of(Categories(["a", "b"])),
            ["ab"],
            "user 0 .* must hold a list of items, got a single str",
        ),
    ],
)
def test_refusals_name_the_user(users: Users, people: Any, words: str) -> None:
    with pytest.raises(InputError, match=words):
        users.histograms(people)


def test_one_user_alone_is_refused_in_words() -> None:
    for items, words in (
        ([], "the user holds no items"),
        ([1], "the user holds 1 items"),
        ([1, 77], "77 lies above it"),
        (7, "a list of items"),
    ):
        with pytest.raises(InputError, match=words):
            users_of(Integers(0, 9), 2).codes(items)


@check_all(
    ("make", "words"),
    [
        (lambda: users_of(Interval(0, 1)), "infinitely many"),
        (lambda: users_of(Manhattan()), "does not say which points"),
        (lambda: users_of(Integers(0, 9), 0), "items must be at least 1"),
        (lambda: users_of(Integers(0, 9), 2.5), "whole number"),  # type: ignore[arg-type]
        (lambda: users_of(Categories(["a"])), "at least two points"),
        (lambda: users_of(Integers(0, 9)).histograms([]), "at least one user"),
        (lambda: users_of(Integers(0, 9)).histograms(7), "people must be a list"),
        (lambda: users_of(Integers(0, 10**5)).distances, "too large"),
        (lambda: users_of(Integers(0, 10**7)).histograms([[1]] * 50), "do not fit into memory"),
    ],
)
def test_what_no_users_can_be(make: Any, words: str) -> None:
    with pytest.raises(InputError, match=words):
        make()
