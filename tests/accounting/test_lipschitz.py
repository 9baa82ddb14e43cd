"""Lipschitz constants: all pairs, rounded up, and the pair that violates a given one."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from tests.tables import check_all

from metricshuffle.accounting.user_items.lipschitz import (
    lipschitz_constant,
    shares_constant,
    validate_lipschitz,
)
from metricshuffle.errors import InputError

GRID = np.linspace(0.0, 1.0, 101)
APART = np.abs(GRID[:, None] - GRID[None, :])


def test_averages_and_indicators() -> None:
    assert lipschitz_constant(GRID, APART).constant == pytest.approx(1.0, rel=1e-11)
    indicator = lipschitz_constant((GRID > 0.5).astype(float), APART)
    assert indicator.constant == pytest.approx(100.0, rel=1e-11)
    assert indicator.pair == (50, 51)
    assert lipschitz_constant(np.ones(101), APART) == lipschitz_constant(np.zeros((101, 3)), APART)
    assert lipschitz_constant(np.ones(101), APART).pair is None


@check_all("norm", ["l1", "l2", "linf"])
def test_the_shares_of_all_points_have_the_constant_of_their_table(norm: Any) -> None:
    points = np.random.default_rng(2).random((40, 2))
    apart = np.hypot(*(points[:, None, :] - points[None, :, :]).transpose(2, 0, 1))
    for distances in (apart, 1e-3 * apart, APART):
        assert (
            shares_constant(distances, norm)
            == lipschitz_constant(np.eye(len(distances)), distances, norm).constant
        )
    with pytest.raises(InputError, match="points 0 and 1 are at distance 0"):
        shares_constant(np.where(np.eye(3), 0.0, [[0, 0, 1], [0, 0, 1], [1, 1, 0]]), norm)
    with pytest.raises(InputError, match="between points 0 and 2 must be a finite number"):
        shares_constant(np.array([[0.0, 1.0, np.nan], [1.0, 0.0, 1.0], [np.nan, 1.0, 0.0]]), norm)


@pytest.mark.parametrize("norm", ["l1", "l2", "linf"])
def test_against_exact_arithmetic(norm: Any) -> None:
    rng = np.random.default_rng(5)
    points = rng.random((300, 2))
    table = rng.normal(size=(300, 4))
    distances = np.abs(points[:, None] - points[None]).sum(axis=2)
    found = lipschitz_constant(table, distances, norm)
    assert found.pair is not None
    i, j = found.pair
    gaps = [
        abs(Fraction(a) - Fraction(b))
        for a, b in zip(table[i].tolist(), table[j].tolist(), strict=True)
    ]
    size = {"l1": sum(gaps), "l2": None, "linf": max(gaps)}[norm]
    square = sum(gap * gap for gap in gaps) if size is None else Fraction(size) ** 2
    exact = square / Fraction(distances[i, j]) ** 2
    assert exact <= Fraction(found.constant) ** 2 <= exact * (1 + Fraction(1, 10**11))
    order = {"l1": 1, "l2": 2, "linf": np.inf}[norm]
    every = np.linalg.norm(table[:, None] - table[None], ord=order, axis=2)
    with np.errstate(invalid="ignore"):
        assert np.nanmax(every / distances) <= found.constant
    # in blocks, or with the norm as a function, it is the same
    assert lipschitz_constant(table, lambda start, stop: distances[start:stop], norm) == found
    called = lipschitz_constant(
        table, distances, lambda rows: np.linalg.norm(rows, ord=order, axis=1)
    )
    assert called.constant == pytest.approx(found.constant, rel=1e-12)
    assert called.pair == found.pair


def test_a_constant_that_is_too_small_is_refused_with_its_pair() -> None:
    with pytest.raises(InputError, match=r"0.99 is too small: between points \(\d+, \d+\)"):
        validate_lipschitz(GRID, APART, "l1", 0.99)
    assert validate_lipschitz(GRID, APART, "l1", 1.0).constant >= 1.0
    assert validate_lipschitz(GRID, APART, "l1", 2.0).constant == 2.0
    for wrong in (-1.0, np.nan, np.inf, True):
        with pytest.raises(InputError, match="Lipschitz constant"):
            validate_lipschitz(GRID, APART, "l1", wrong)


def test_points_at_distance_zero_must_agree() -> None:
    together = np.array([[0.0, 0.0, 1.0], [0.0, 0.0, 1.0], [1.0, 1.0, 0.0]])
    assert lipschitz_constant([3.0, 3.0, 4.0], together).constant == pytest.approx(1.0)
    with pytest.raises(InputError, match="points 0 and 1 are at distance 0"):
        lipschitz_constant([3.0, 3.1, 4.0], together)
    # a difference whose square underflows is still a difference
    with pytest.raises(InputError, match="distance 0"):
        lipschitz_constant([0.0, 1e-200, 1.0], together, "l2")
    tiny = np.array([[0.0, 1e-200], [1e-200, 0.0]])
    assert lipschitz_constant([0.0, 1e-200], tiny, "l2").constant >= 1.0


@check_all(
    ("table", "distances", "norm", "wrong"),
    [
        ([], APART, "l1", "table"),
        ([1.0, np.nan], np.zeros((2, 2)), "l1", "point 1"),
        (GRID, APART[:5], "l1", "101 by 101"),
        (GRID, APART, "l7", "norm"),
        (GRID, -APART, "l1", "distance between points"),
        (GRID, APART * np.nan, "l1", "distance between points"),
        ([0.0, 1e300], np.array([[0.0, 1e-300], [1e-300, 0.0]]), "l1", "unit of distance"),
        (GRID, APART, lambda rows: rows, "norm"),
        (GRID, APART, lambda rows: 0.0 * rows[:, 0], "positive"),
        (GRID, lambda start, stop: APART[start:stop, :7], "l1", "one column"),
    ],
)
def test_wrong_input_is_refused(table: Any, distances: Any, norm: Any, wrong: str) -> None:
    with pytest.raises(InputError, match=wrong):
        lipschitz_constant(table, distances, norm)


def test_a_query_that_is_not_constant_never_gets_the_constant_0() -> None:
    for moved, apart in ((5e-324, 3.0), (1e-200, 1e200), (1e-310, 1.7)):
        found = lipschitz_constant([0.0, moved], [[0.0, apart], [apart, 0.0]])
        assert Fraction(found.constant) * Fraction(apart) >= Fraction(moved)
        assert found.pair is not None


def test_a_given_constant_is_right_for_many_columns_too() -> None:
    table = np.vstack([np.zeros(100_000), np.ones(100_000)])
    assert validate_lipschitz(table, [[0.0, 1.0], [1.0, 0.0]], "l1", 1e5).constant >= 1e5
    with pytest.raises(InputError, match="too small"):
        validate_lipschitz(table, [[0.0, 1.0], [1.0, 0.0]], "l1", 1e5 * (1 - 1e-9))
