"""Simulated errors against real releases, and expected errors by formula."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from metricshuffle.errors import BatchTooSmall, InputError
from metricshuffle.planning.crowd import Crowd, zipf_shares
from metricshuffle.planning.user_plan import UserPlan, plan_users
from metricshuffle.planning.user_simulation import distance_of, simulate_users
from metricshuffle.privacy.target import Target
from metricshuffle.queries.user_items import UserHistogram, UserLinearQuery
from metricshuffle.randomness import Randomness
from metricshuffle.spaces import Clustered, Grid, Integers, users_of

SPACE = Clustered(2, 3, 0.2)
SHARES = np.array([0.4, 0.2, 0.1, 0.1, 0.1, 0.1])


def real_errors(plan: UserPlan, held: Any, runs: int) -> np.ndarray:
    people, source = plan.query.people, Randomness.seeded("real")
    truth = people.histograms(held).mean(axis=0)
    return np.array([distance_of(people, np.array(plan.run(held, source).value), truth) for _ in range(runs)])


@pytest.fixture(scope="module")
def item_wise() -> UserPlan:
    return plan_users(UserHistogram(users_of(Integers(0, 5), 5)), Target(2.0, 1e-3, 5.0), 300, methods=["item-wise"])


@pytest.mark.parametrize("method", ["tree-laplace", "item-wise"])
def test_simulated_errors_are_those_of_real_releases(method: str, item_wise: UserPlan) -> None:
    noisy = plan_users(item_wise.query, item_wise.target, 300, methods=["tree-laplace"])
    plan = item_wise if method == "item-wise" else noisy
    held = np.random.default_rng(0).choice(6, size=(300, 5), p=SHARES)
    real = real_errors(plan, held, 100)
    found = simulate_users(plan, 400, people=held)
    assert found.users == 300
    assert found.runs == 400
    error = math.hypot(real.std() / 10.0, found.standard_error)
    assert abs(found.mean_error - real.mean()) < 4.0 * error
    drawn = simulate_users(plan, 400, Randomness.seeded(4), shares=SHARES)
    assert drawn.mean_error == pytest.approx(found.mean_error, rel=0.15)
    assert found.mean_error < found.root_mean_square_error < 2.0 * found.mean_error


def test_drawing_samples_is_part_of_the_error() -> None:
    """With next to no noise, what is left is the error of drawing 2 items from each of 50 users; it was forgotten once."""
    plan = plan_users(UserHistogram(users_of(SPACE)), Target(40.0, 1e-2, 0.1, "flat"), 50, methods=["item-wise"], samples=2)
    held = np.random.default_rng(0).choice(6, size=(50, 40))
    real = real_errors(plan, held, 60)
    assert plan.choice.expected_error == pytest.approx(real.mean(), rel=0.3)
    assert simulate_users(plan, 200, people=held).mean_error == pytest.approx(real.mean(), rel=0.15)


def test_expected_errors_of_linear_queries_are_exact() -> None:
    query = UserLinearQuery(users_of(SPACE), np.array([0.0, 0.1, 0.2, 0.7, 0.9, 1.0]))
    plan = plan_users(query, Target(2.0, 1e-6, 1.0), 500, trusted="curator")
    scale = query.constant_in("l1") / 2.0
    errors = {(one.name, one.model): one.expected_error for one in plan.candidates}
    assert errors["laplace", "central"] == pytest.approx(scale / 500, rel=1e-9)
    assert errors["laplace", "local"] == pytest.approx(scale * 2.0 / math.sqrt(math.pi * 500) * (1 - 1 / 4000), rel=1e-6)
    assert plan.choice.name == "laplace"
    assert plan.choice.model == "central"
    simulated = simulate_users(plan, 4000)
    assert abs(simulated.mean_error - simulated.expected_error) < 4.0 * simulated.standard_error


def test_a_metric_without_a_tree_is_measured_by_transport() -> None:
    people = users_of(Grid(3, 3, 1.0), 2)
    one, other = np.eye(9)[0], np.eye(9)[8]
    assert distance_of(people, one, other) == pytest.approx(math.sqrt(8.0), abs=1e-6)
    plan = plan_users(UserHistogram(people), Target(2.0, 1e-3, 1.0), 50)
    assert 0.0 < simulate_users(plan, 5).mean_error < math.sqrt(8.0)


def test_crowds() -> None:
    generator = np.random.default_rng(0)
    crowd = Crowd.drawn(SHARES, 1000, 7, generator)
    assert crowd.sampled.sum() == 7000
    assert crowd.one.sum() == 1000
    assert np.array_equal(crowd.sampled / 7000, crowd.truth)
    drawn = Crowd.drawn(SHARES, 1000, 7, generator, samples=3)
    assert drawn.sampled.sum() == 3000
    assert not np.array_equal(drawn.sampled / 3000, drawn.truth)
    real = Crowd.of(users_of(SPACE), [[0] * 99, [5], [1, 2]], 2, generator)
    np.testing.assert_allclose(real.truth, np.array([1, 0.5, 0.5, 0, 0, 1]) / 3)  # users count the same, not items
    assert real.sampled[[0, 5]].tolist() == [2, 2]
    assert real.sampled.sum() == 6
    assert real.sampled[[1, 2]].tolist() == [1, 1]
    shares = zipf_shares(5, generator)
    np.testing.assert_allclose(np.sort(shares)[::-1] / shares.max(), 1.0 / np.arange(1, 6))
    with pytest.raises(InputError, match="at least one point"):
        zipf_shares(0, generator)


def test_wrong_simulations_are_refused(item_wise: UserPlan) -> None:
    plan = item_wise
    for runs in (0, True, 1.5):
        with pytest.raises(InputError, match="runs must be"):
            simulate_users(plan, runs)  # type: ignore[arg-type]
    for shares in (np.ones(5), np.array([1, 1, 1, 1, 1, -1]), np.zeros(6), np.full(6, np.nan)):
        with pytest.raises(InputError, match="shares must be 6 numbers"):
            simulate_users(plan, 2, shares=shares)
    for users in (0, "many"):
        with pytest.raises(InputError, match="users must be"):
            simulate_users(plan, 2, users=users)  # type: ignore[arg-type]
    with pytest.raises(BatchTooSmall):
        simulate_users(plan, 2, users=10)
    assert simulate_users(plan, 1).standard_error == math.inf
