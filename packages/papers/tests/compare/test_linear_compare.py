"""Tests of the comparison for means: winners, the rule, and what was relaxed."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from tests.tables import check_all

from metricshuffle.errors import InputError
from metricshuffle.queries.user_queries import UserHistogram, UserLinearQuery
from metricshuffle.randomizers.corner_vectors import Duchi
from metricshuffle.randomness import Randomness
from metricshuffle.spaces import Absolute, Clustered, Integers, Scaled, Space, users_of
from metricshuffle_papers.compare.linear import compare_linear, duchi_mean, polytope_for_users

LINE = users_of(Space(Integers(0, 100), Scaled(Absolute(), 0.01)))
POSITION = UserLinearQuery(LINE, np.arange(101) / 100)
INDICATOR = UserLinearQuery(LINE, (np.arange(101) > 50).astype(float))
RAMP = UserLinearQuery.near(LINE, {"low": list(range(20))}, 0.1)


@check_all(
    ("query", "epsilon", "rate", "theirs", "ours"),
    [
        (POSITION, 0.2, 25.0, 5.0e-4, 4.0e-6),
        (POSITION, 1.0, 1.0, 1e-4, 1e-4),
        (INDICATOR, 1.0, 20.0, 1e-4, 5e-4),
        (INDICATOR, 1.0, 1.0, 1e-4, 1e-2),
        (RAMP, 1.0, 20.0, 1e-4, 5e-5),
    ],
)
def test_linear_queries_win_iff_rate_over_constant_beats_epsilon_over_range(
    query: UserLinearQuery, epsilon: float, rate: float, theirs: float, ours: float
) -> None:
    compared = compare_linear(query, 10_000, epsilon=epsilon, rate=rate)
    assert compared.best("central", "user").error == pytest.approx(theirs, rel=1e-6)
    assert compared.best("central", "earth mover").error == pytest.approx(ours, rel=1e-6)
    assert compared.wins == (ours < theirs * 0.999)
    local = {method.name: method.error for method in compared.methods if method.model == "local"}
    assert local["laplace"] == pytest.approx(ours * 2.0 / math.sqrt(math.pi) * 100, rel=1e-4)
    assert local["laplace on the range"] == pytest.approx(
        theirs * 2.0 / math.sqrt(math.pi) * 100, rel=1e-4
    )
    rule = compared.sentences()[0]
    assert rule.endswith("here it is." if compared.wins else "here it is not.")
    assert compared.sentences()[-1].startswith(
        "What was relaxed" if rate > epsilon else "Nothing was relaxed"
    )


def test_many_coordinates_take_the_best_norm_on_either_side() -> None:
    vectors = np.random.default_rng(0).normal(size=(9, 5))
    query = UserLinearQuery(users_of(Clustered(3, 3, 0.5)), vectors)
    compared = compare_linear(query, 1000, epsilon=1.0, rate=1.0, delta=1e-6)
    names = {(method.name, method.model) for method in compared.methods if method.hides == "user"}
    assert {
        ("sphere on the range", "central"),
        ("cube on the range", "local"),
        ("gaussian on the range", "central"),
    } <= names
    assert ("Duchi's mean", "local") in names
    widest = max(np.abs(a - b).sum() for a in vectors for b in vectors)
    assert compared.width == pytest.approx(widest, rel=1e-8)
    for method in compared.methods:
        if method.name == "laplace on the range" and method.model == "central":
            assert method.error == pytest.approx(widest / 1000, rel=1e-8)


def test_hardt_and_talwars_polytope_is_at_least_as_good_as_every_ball() -> None:
    """Three columns of different ranges: the hull of all differences against three norms."""
    vectors = np.random.default_rng(0).normal(size=(9, 3)) * (1.0, 3.0, 0.2)
    query = UserLinearQuery(users_of(Clustered(3, 3, 0.5)), vectors)
    compared = compare_linear(query, 1000, epsilon=1.0, rate=1.0)
    errors = {
        method.name: method.error
        for method in compared.methods
        if (method.model, method.hides) == ("central", "user")
    }
    own = errors.pop("k-norm on the range")
    assert set(errors) == {
        "laplace on the range",
        "sphere on the range",
        "cube on the range",
    }
    assert own < 0.7 * min(errors.values())
    assert compared.best("central", "user").name == "k-norm on the range"
    # A box of half-widths w: (D + 1) w/2 for each column.
    box = UserLinearQuery(
        users_of(Clustered(2, 2, 0.5)), [[0.0, 0.0], [0.0, 3.0], [1.0, 0.0], [1.0, 3.0]]
    )
    method = polytope_for_users(box, 100, 0.5)
    assert method is not None
    assert method.error == pytest.approx((1.5 * 1.0 + 1.5 * 3.0) / 2 / 0.5 / 100, rel=1e-4)
    assert polytope_for_users(POSITION, 100, 0.5) is None


def test_duchis_mean_is_off_by_what_it_says() -> None:
    """Real reports of people in the middle of the range, in two dimensions."""
    query = UserLinearQuery(
        users_of(Clustered(2, 2, 0.5)),
        np.array([[-1.0, -2.0], [1.0, 2.0], [1.0, -2.0], [-1.0, 2.0]]),
    )
    claimed = duchi_mean(query, 400, 1.0)
    randomizer = Duchi(2, 1.0)
    source = Randomness.seeded("duchi")
    reports = (
        np.asarray(randomizer.reports(np.zeros((400 * 300, 2)), source)).reshape(300, 400, 2)
        * randomizer.scale
    )
    errors = np.abs(reports.mean(axis=1) * [1.0, 2.0]).mean()
    assert claimed.error == pytest.approx(errors, rel=0.08)


def test_wrong_linear_comparisons_are_refused() -> None:
    for change, words in (
        ({"epsilon": 0.0}, "epsilon"),
        ({"rate": -1.0}, "epsilon"),
        ({"delta": 1.0}, "delta"),
        ({"users": 0}, "users"),
    ):
        good: dict[str, Any] = {"query": POSITION, "users": 10, "epsilon": 1.0, "rate": 1.0}
        with pytest.raises(InputError, match=words):
            compare_linear(**{**good, **change})
    with pytest.raises(InputError, match="needs a UserLinearQuery"):
        compare_linear(UserHistogram(LINE), 10, epsilon=1.0, rate=1.0)  # type: ignore[arg-type]
