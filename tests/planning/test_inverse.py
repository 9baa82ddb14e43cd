"""plan_for_error: the smallest epsilon whose plan certifies the error."""

from __future__ import annotations

from typing import Any

import pytest

from metricshuffle import Centroid, Grid, InputError, Integers, Mean, Sum, Target, plan, plan_for_error

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
    made = plan_for_error(query, error, 1e-6, distance, 40, **choices)
    assert made.choice.expected_error <= error
    shape = choices.pop("shape", "linear")
    less = plan(query, Target(made.target.epsilon * 0.997, 1e-6, distance, shape), 40, **choices)
    assert less.choice.expected_error > error


def test_a_generous_delta_makes_another_protocol_the_best() -> None:
    made = plan_for_error(NUMBERS, 30.0, 0.2, 5, 60)
    assert made.choice.expected_error <= 30.0
    only = plan_for_error(NUMBERS, 30.0, 0.2, 5, 60, protocols=["polya-shuffle"])
    assert made.target.epsilon <= only.target.epsilon * 1.001


@pytest.mark.parametrize("wrong", [0.0, -1.0, float("nan"), float("inf")])
def test_an_error_must_be_a_positive_number(wrong: float) -> None:
    with pytest.raises(InputError, match="error must be"):
        plan_for_error(NUMBERS, wrong, 1e-6, 5, 60)


def test_out_of_reach_is_said() -> None:
    # Rounding to multiples of 10 alone costs more than that.
    with pytest.raises(InputError, match="no epsilon up to 1000"):
        plan_for_error(Sum(domain=Integers(0, 100)), 0.5, 1e-6, 10, 60, granularity=10, encoding="modular")
    with pytest.raises(InputError, match="diameter"):
        plan_for_error(NUMBERS, 10.0, 1e-6, 21, 60)
