"""Releases of whole plans: intervals that hold the truth, for every protocol, in query units."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from metricshuffle.errors import InputError, PlanError
from metricshuffle.planning import Plan, Release, Target, plan
from metricshuffle.protocols import Centroid, Mean, Sum
from metricshuffle.randomness import Randomness
from metricshuffle.spaces import Grid, Integers, Interval

TARGET = Target(1.0, 1e-3, 4)
PLANS: dict[str, dict[str, Any]] = {
    "one person": {"users": 1, "protocols": ["geometric-local"]},
    "two people": {"users": 2, "honest": 1, "protocols": ["geometric-local"], "query": Sum(Integers(100, 140))},
    "three people and a curator": {"users": 3, "protocols": ["geometric-central"], "trusted": "curator"},
    "a curator of real numbers": {"query": Mean(Interval(-3, 9)), "users": 21, "protocols": ["geometric-central"], "trusted": "curator"},
    "unary shares": {"users": 3, "protocols": ["polya-shuffle"], "encoding": "unary"},
    "unary geometric": {"users": 19, "honest": 17, "protocols": ["geometric-shuffle"], "encoding": "unary", "padding": "bounded"},
    "shares, many missing": {"users": 61, "honest": 19, "protocols": ["polya-shuffle"], "encoding": "modular", "present": 23},
    "aggregator": {"users": 3, "honest": 2, "protocols": ["polya-shuffle"], "encoding": "modular", "transport": "aggregator", "present": 2},
    "rounded shares": {"users": 33, "granularity": 3, "protocols": ["geometric-shuffle"], "encoding": "modular"},
    "real numbers": {"query": Sum(Interval(-3, 9.1)), "users": 25, "granularity": 0.5, "protocols": ["polya-shuffle"], "encoding": "unary"},
    "randomized response": {"query": Sum(Integers(5, 8)), "users": 31, "target": Target(3.0, 1e-2, 3), "encoding": "unary",
                            "protocols": ["randomized-response-shuffle"]},
    "centroid": {"query": Centroid(Grid(11, 7, cell=2.0)), "users": 19, "protocols": ["polya-shuffle"], "encoding": "modular"},
}  # fmt: skip


def planned(name: str) -> tuple[Plan, int]:
    choices = {"query": Mean(Integers(-20, 20)), "target": TARGET} | PLANS[name]
    query, target, users, present = (choices.pop(key, None) for key in ("query", "target", "users", "present"))
    return plan(query, target, users, **choices), present or users


@pytest.mark.parametrize("name", PLANS)
def test_intervals_hold_the_truth_in_units_of_the_query(name: str) -> None:
    one, people = planned(name)
    if one.query.axes == 2:
        values: Any = np.stack([np.arange(people) % 11, np.arange(people) % 7], axis=1)
        truth = (values.mean(axis=0) + 0.5) * 2.0
    else:
        assert isinstance(one.query.domain, Integers | Interval)
        low, high = one.query.domain.low, one.query.domain.high
        values = low + (high - low) * (np.arange(people) % 5) / 4
        values = values if isinstance(one.query.domain, Interval) else values.astype(int)
        truth = np.array([values.sum() if one.query.kind == "sum" else values.mean()])
    runs, held, errors = 60, {0.5: 0, 0.95: 0}, []
    randomness = Randomness.seeded(name)
    for _ in range(runs):
        release = one.run(values, randomness)
        errors.append(np.linalg.norm(np.atleast_1d(release.value) - truth))
        for level in held:
            found = np.atleast_2d(release.interval(level))
            held[level] += bool(((found[:, 0] <= truth) & (truth <= found[:, 1])).all())
    assert held[0.5] >= 14  # fewer has probability below 3e-5 at a coverage of one half
    assert held[0.95] >= 49
    if people == one.users:
        assert np.mean(errors) == pytest.approx(one.choice.expected_error, rel=0.45)


def test_a_release_survives_json_and_can_be_asked_again() -> None:
    one, people = planned("unary shares")
    release = one.run(np.zeros(people, dtype=int), Randomness.seeded(5))
    again = Release.from_json(release.to_json())
    assert again == release
    assert again.interval(0.9) == release.interval(0.9)
    assert np.ravel(again.interval(0.5))[0] >= np.ravel(again.interval(0.99))[0]
    told = str(release)
    assert "If the shuffler is honest" in told
    assert "UNSAFE" in told
    assert "raw values" in told
    with pytest.raises(InputError, match="level"):
        release.interval(1.0)
    for wrong in ("{", "{}"):
        with pytest.raises(PlanError):
            Release.from_json(wrong)


def test_real_numbers_all_off_to_one_side_are_inside_the_interval() -> None:
    """Half a fine step each, all in the same direction, is part of the interval."""
    query = Sum(Interval(0.0, 1.0))
    one = plan(query, Target(500.0, 1e-6, 1.0), 19, granularity=1.0, encoding="modular", protocols=["polya-shuffle"])
    half = query.step(1.0) * query.snapping(1.0)
    assert half == 0.5 / 4096
    release = one.run(np.zeros(19), Randomness.seeded(0))
    assert release.value == 0.0
    noise = one.choice.mechanism.half_widths(19, 0.95)[0] * query.step(1.0)
    assert release.interval_95[1] == pytest.approx(noise + 19 * half)
