"""Bounds of the earth mover's distance around the exact value in fractions."""

from __future__ import annotations

from fractions import Fraction
from typing import Any, Literal

import numpy as np
import pytest
from tests.oracles.exact_transport import exact_earth_mover
from tests.tables import check_all

from metricshuffle.spaces import (
    Absolute,
    Categories,
    Circle,
    Clustered,
    Integers,
    Matrix,
    Scaled,
    Space,
    Threshold,
    Tree,
    earth_mover,
    embedding,
    line_distance,
    users_of,
)

LENGTHS = [0.0, 0.1, 0.3, 1e-9, 1e9]
FAR = [[0.0, 1.0, 1e6], [1.0, 0.0, 1e6], [1e6, 1e6, 0.0]]


class Doubled(Absolute):
    """A metric of one's own, made from a shipped one."""

    kind: Literal["doubled-for-tests"] = "doubled-for-tests"  # type: ignore[assignment]

    def pairwise(self, points_a: Any, points_b: Any) -> Any:
        return 2.0 * super().pairwise(points_a, points_b)


def line(factor: float) -> tuple[Any, list[list[Fraction]]]:
    return Space(Integers(-2, 2), Scaled(Absolute(), factor)), [
        [Fraction(factor) * abs(i - j) for j in range(5)] for i in range(5)
    ]


def circle(around: float) -> tuple[Any, list[list[Fraction]]]:
    def apart(i: int, j: int) -> Fraction:
        rest = Fraction(abs(i - j)) % Fraction(around)
        return min(rest, Fraction(around) - rest)

    return Space(Integers(-3, 1), Circle(around)), [
        [apart(i, j) for j in range(5)] for i in range(5)
    ]


def tree() -> tuple[Any, list[list[Fraction]]]:
    parents = [-1, 0, 0, 1, 1]
    above = [{0}, {1, 0}, {2, 0}, {3, 1, 0}, {4, 1, 0}]
    return Tree(parents, LENGTHS), [
        [sum((Fraction(LENGTHS[x]) for x in p ^ q), Fraction(0)) for q in above] for p in above
    ]


def clusters(inner: float) -> tuple[Any, list[list[Fraction]]]:
    return Clustered(2, 2, inner), [
        [Fraction(float(i != j) * (inner if i // 2 == j // 2 else 1)) for j in range(4)]
        for i in range(4)
    ]


SPACES: dict[str, Any] = {
    "line": lambda: line(0.1),
    "subnormal": lambda: line(1e-310),
    "circle": lambda: circle(3.1),
    "circle at a power of 2": lambda: circle(15.9),
    "tree": tree,
    "clusters": lambda: clusters(0.05),
    "one cluster": lambda: clusters(1.0),
    "labels": lambda: (
        Space(Categories(["a", "b", "c"])),
        [[Fraction(int(i != j)) for j in range(3)] for i in range(3)],
    ),
    "capped": lambda: (
        Space(Integers(0, 3), Threshold(Absolute(), 1.5)),
        [[min(Fraction(abs(i - j)), Fraction(3, 2)) for j in range(4)] for i in range(4)],
    ),
    "far point": lambda: (Matrix(FAR), [[Fraction(cost) for cost in row] for row in FAR]),
    "doubled": lambda: (
        Space(Integers(0, 3), Doubled()),
        [[Fraction(2 * abs(i - j)) for j in range(4)] for i in range(4)],
    ),
}


@check_all("name", SPACES)
def test_the_truth_lies_between_the_bounds(name: str) -> None:
    space, costs = SPACES[name]()
    rng = np.random.default_rng(len(name))
    size = len(costs)
    diameter = max(max(row) for row in costs)
    for trial in range(24):
        a = (
            rng.integers(0, 6, size).astype(float)
            if trial % 3 == 0
            else rng.random(size) * (rng.random(size) < 0.7)
        )
        a[trial % size] += 1
        nearly = a * np.where(rng.random(size) < 0.5, 1.0, 1 + 2.0**-51)
        b = [
            rng.permutation(a),
            nearly,
            rng.integers(0, 9, size) + (np.arange(size) == 0),
            rng.random(size),
        ][trial % 4]
        found = earth_mover(space, a, b)
        exact = exact_earth_mover(costs, a.tolist(), b.tolist())
        assert Fraction(found.lower) <= exact <= Fraction(found.distance)
        assert found.distance - found.lower <= 5e-12 * float(diameter) + 1e-322


def test_what_is_lost_in_division_may_have_to_go_far() -> None:
    """The shares look equal, but 3e-17 of all mass has to move by 1e6."""
    a = [0.3, 0.1, 0.7]
    b = [0.1, 0.3 * (1 + 2.0**-52), 0.7]
    exact = exact_earth_mover([[Fraction(cost) for cost in row] for row in FAR], a, b)
    assert exact > Fraction(0.2) / Fraction(1.1) + Fraction(1, 10**11)
    assert Fraction(earth_mover(Matrix(FAR), a, b).distance) >= exact
    same = earth_mover(Matrix(FAR), a, a)
    assert (same.lower, same.distance) == (0.0, 0.0)


def test_a_subclass_that_measures_otherwise_has_no_formula() -> None:
    space = Space(Integers(0, 3), Doubled())
    assert earth_mover(space, [1, 0, 0, 0], [0, 1, 0, 0]).lower > 1.99
    assert (
        earth_mover(Space(Integers(0, 3), Scaled(Doubled(), 3.0)), [1, 0, 0, 0], [0, 1, 0, 0]).lower
        > 5.99
    )
    with pytest.raises(ValueError, match="Doubled"):
        embedding(space)
    assert users_of(space).diameter == 6.0


def test_distances_of_users_are_rounded_up_along_a_long_way() -> None:
    users = users_of(Tree([-1, *range(2000)], [0.1] * 2001))
    exact = 2000 * Fraction(0.1)
    assert exact <= Fraction(users.distance([0], [2000])) <= exact * (1 + Fraction(1, 10**11))


def test_sets_of_subnormal_numbers() -> None:
    rng = np.random.default_rng(2)
    for many in (2, 3, 5):
        a, b = rng.integers(0, 2000, (2, many)) * 2.0**-1074
        exact = (
            sum(
                (
                    abs(Fraction(x) - Fraction(y))
                    for x, y in zip(np.sort(a), np.sort(b), strict=True)
                ),
                Fraction(0),
            )
            / many
        )
        found = line_distance(a, b)
        assert Fraction(found.lower) <= exact <= Fraction(found.distance)
    assert line_distance([1e-320, 0.0], [0.0, 1e-320]).distance == 0.0
