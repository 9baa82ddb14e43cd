"""plan_for_error: the smallest epsilon whose plan certifies the error."""

from __future__ import annotations

from typing import Any

import pytest
from tests.tables import check_all

from metricshuffle import (
    Categories,
    Centroid,
    Clustered,
    Grid,
    Histogram,
    InputError,
    Integers,
    Interval,
    Mean,
    Sum,
    Target,
    UserHistogram,
    UserLinearQuery,
    plan,
    plan_for_error,
    users_of,
)

NUMBERS = Sum(domain=Integers(0, 20))


@pytest.mark.parametrize(
    ("query", "error", "distance", "choices"),
    [
        (NUMBERS, 10.0, 5, {"encoding": "modular"}),
        (NUMBERS, 10.0, 5, {"encoding": "unary", "protocols": ["polya-shuffle"]}),
        (NUMBERS, 150.0, 5, {"trusted": "nobody", "encoding": "modular"}),
        (NUMBERS, 12.0, 20, {"shape": "flat", "encoding": "modular"}),
        (NUMBERS, 25.0, 5, {"max_local_epsilon": 4.0, "encoding": "modular"}),
        (Mean(domain=Integers(0, 100)), 0.5, 10, {"granularity": 4, "encoding": "modular"}),
        (Centroid(domain=Grid(9, 9, 10.0)), 2.0, 30, {"encoding": "modular"}),
    ],
    ids=lambda value: str(value) if isinstance(value, dict) else "",
)
def test_the_error_is_met_and_a_little_less_epsilon_does_not_meet_it(
    query: Any, error: float, distance: float, choices: dict[str, Any]
) -> None:
    """For sums: the error is reached, and a third of a per cent less epsilon does not reach it."""
    made = plan_for_error(query, error, 1e-6, distance, 40, **choices)
    assert made.choice.expected_error <= error
    shape = choices.pop("shape", "linear")
    less = plan(query, Target(made.target.epsilon * 0.997, 1e-6, distance, shape), 40, **choices)
    assert less.choice.expected_error > error


@pytest.mark.parametrize(
    ("query", "error", "delta", "distance", "users", "choices"),
    [
        (
            Histogram(Categories(["a", "b", "c"])),
            0.02,
            1e-6,
            1.0,
            2000,
            {"protocols": ["k-ary-randomized-response"]},
        ),
        pytest.param(
            Histogram(Integers(0, 29), 3),
            0.05,
            1e-6,
            9.0,
            2000,
            {"protocols": ["bounded-geometric"]},
            marks=pytest.mark.slow,
        ),
        (
            UserHistogram(users_of(Clustered(2, 3, 0.2))),
            0.05,
            0.0,
            1.0,
            60,
            {"trusted": "curator", "protocols": ["tree-laplace"]},
        ),
        (UserLinearQuery.average(users_of(Integers(0, 20))), 0.1, 0.0, 5.0, 60, {}),
        (
            Mean(Interval(0.0, 1.0)),
            0.01,
            1e-6,
            0.25,
            1000,
            {"granularity": 0.1, "encoding": "modular"},
        ),
        (
            Mean(Interval(0.0, 1.0)),
            0.05,
            0.0,
            0.25,
            1000,
            {"protocols": ["witch-hat"], "trusted": "nobody"},
        ),
    ],
    ids=["labels", "bins", "users' histogram", "users' mean", "real numbers", "hat"],
)
def test_tables_and_items_too(
    query: Any, error: float, delta: float, distance: float, users: int, choices: dict[str, Any]
) -> None:
    """For every other query the error is met, and not with a hundredth less epsilon."""
    made = plan_for_error(query, error, delta, distance, users, **choices)
    assert made.choice.expected_error <= error
    less = plan(query, Target(made.target.epsilon * 0.99, delta, distance), users, **choices)
    assert less.choice.expected_error > error


def test_a_generous_delta_makes_another_protocol_the_best() -> None:
    """The search follows one protocol, and the plan at its end may choose another."""
    made = plan_for_error(NUMBERS, 30.0, 0.2, 5, 60)
    assert made.choice.expected_error <= 30.0
    only = plan_for_error(NUMBERS, 30.0, 0.2, 5, 60, protocols=["polya-shuffle"])
    assert made.target.epsilon <= only.target.epsilon * 1.001


@check_all("wrong", [0.0, -1.0, float("nan"), float("inf")])
def test_an_error_must_be_a_positive_number(wrong: float) -> None:
    """Nothing else is searched for."""
    with pytest.raises(InputError, match="error must be"):
        plan_for_error(NUMBERS, wrong, 1e-6, 5, 60)


def test_out_of_reach_is_said() -> None:
    """With what would help; and distances are checked as in a plan."""
    # Rounding to multiples of 10 alone costs more than that.
    with pytest.raises(InputError, match="no epsilon up to 1000"):
        plan_for_error(
            Sum(domain=Integers(0, 100)), 0.5, 1e-6, 10, 60, granularity=10, encoding="modular"
        )
    with pytest.raises(InputError, match="diameter"):
        plan_for_error(NUMBERS, 10.0, 1e-6, 21, 60)
