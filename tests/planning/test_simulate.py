"""Simulated errors agree with the stated ones."""

from __future__ import annotations

from typing import Any

import pytest

from metricshuffle.errors import BatchTooSmall, InputError
from metricshuffle.planning import Target, plan, simulate
from metricshuffle.protocols import Centroid, Mean, Sum
from metricshuffle.spaces import Grid, Integers

CASES: list[dict[str, Any]] = [
    {"query": Mean(Integers(0, 50)), "users": 50, "encoding": "modular"},
    {"query": Mean(Integers(0, 50)), "users": 50, "encoding": "modular", "granularity": 5},
    {"query": Sum(Integers(0, 50)), "users": 10**9, "encoding": "modular"},
    {"query": Sum(Integers(0, 3)), "users": 50, "encoding": "unary", "target": Target(3.0, 1e-2, 3),
     "protocols": ["randomized-response-shuffle"]},
    {"query": Sum(Integers(0, 50)), "users": 30, "encoding": "modular", "granularity": 5, "trusted": "curator",
     "protocols": ["geometric-central"]},
    {"query": Centroid(Grid(20, 9, cell=3.0)), "users": 50, "encoding": "modular"},
    {"query": Sum(Integers(0, 10**6)), "users": 10**6, "encoding": "modular", "target": Target(1.0, 1e-6, 10**4),
     "protocols": ["geometric-local"]},
]  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_errors_and_coverage(case: dict[str, Any]) -> None:
    choices = {"target": Target(1.0, 1e-6, 6)} | case
    query, target, users = (choices.pop(key) for key in ("query", "target", "users"))
    one = plan(query, target, users, **choices)
    found = simulate(one, 4000)
    assert found.expected_error == one.choice.expected_error
    assert found.mean_absolute_error == pytest.approx(found.expected_error, abs=4.5 * found.standard_error, rel=0.005)
    assert found.root_mean_square_error <= one.choice.standard_error * 1.1
    assert found.coverage_95 >= 0.935
    if one.granularity == 1 and users < 10**6 and query.axes == 1:
        assert found.coverage_95 <= 0.985


def test_fewer_people_than_planned() -> None:
    one = plan(Mean(Integers(0, 50)), Target(1.0, 1e-6, 6), 50, 40, encoding="modular")
    assert simulate(one, 10, users=45).users == 45
    assert simulate(one, 1).runs == 1
    with pytest.raises(BatchTooSmall):
        simulate(one, 10, users=39)
    for wrong in (0, True, 2.5):
        with pytest.raises(InputError, match="runs"):
            simulate(one, wrong)  # type: ignore[arg-type]
