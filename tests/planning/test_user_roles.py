"""Roles of a plan about users' items: files, digests, parts, and refusals of what belongs elsewhere."""

from __future__ import annotations

import json
import time

import numpy as np
import pytest

from metricshuffle.errors import BatchTooSmall, DomainError, InputError, PlanError
from metricshuffle.planning.user_plan import UserPlan, plan_users
from metricshuffle.privacy.target import Target
from metricshuffle.protocols.base import Reports, Shuffled
from metricshuffle.queries.user_items import UserHistogram, UserLinearQuery
from metricshuffle.randomness import Randomness
from metricshuffle.spaces import Clustered, Integers, users_of

CLUSTERS = Clustered(2, 2, 0.3)


def chosen(plan: UserPlan, model: str) -> UserPlan:
    """The same plan with the candidate of that model chosen."""
    index = next(i for i, one in enumerate(plan.candidates) if one.model == model)
    return plan.model_copy(update={"chosen": index})


@pytest.fixture(scope="module")
def items_plan() -> UserPlan:
    return plan_users(UserHistogram(users_of(Integers(0, 3), 2)), Target(1.0, 0.1, 1.0), 3, methods=["item-wise"])


def test_plans_are_files_and_notice_when_they_were_edited(items_plan: UserPlan) -> None:
    text = items_plan.to_json()
    again = UserPlan.from_json(text)
    assert again.digest == items_plan.digest
    assert again.to_json() == text
    edited = json.loads(text)
    edited["candidates"][0]["guarantee"]["epsilon"] = 0.001
    with pytest.raises(PlanError, match="digest"):
        UserPlan.from_json(json.dumps(edited))
    linear = plan_users(UserLinearQuery(users_of(CLUSTERS), np.arange(4.0)), Target(1.0, 1e-6, 1.0), 10, trusted="curator")
    assert UserPlan.from_json(linear.to_json()).digest == linear.digest  # an infinite epsilon of the fallback, too


def test_roles_refuse_what_is_not_theirs(items_plan: UserPlan) -> None:
    plan = chosen(items_plan, "local")
    reports = plan.randomize([[0, 1]] * 3, Randomness.seeded(1))
    assert reports.unsafe_seeded
    assert plan.shuffle(reports).unsafe_seeded
    with pytest.raises(PlanError, match="another plan"):
        plan.shuffle(Reports("other", reports.records))
    for records in (reports.records[:, :1], reports.records.astype(float), reports.records[0]):
        with pytest.raises(PlanError, match="a record of this plan is 2 whole numbers"):
            plan.shuffle(Reports(plan.digest, records))
    with pytest.raises(DomainError, match="from 0 to 3"):
        plan.shuffle(Reports(plan.digest, np.array([[0, 9]])))
    with pytest.raises(InputError, match="only Reports"):
        plan.shuffle([reports.records])  # type: ignore[list-item]
    with pytest.raises(InputError, match="reports must be shuffled first"):
        plan.estimate(reports)  # type: ignore[arg-type]
    with pytest.raises(PlanError, match="shuffled for another plan"):
        plan.estimate(Shuffled("other", 3, (1,)))
    with pytest.raises(PlanError, match="counts that sum to 6"):
        plan.estimate(Shuffled(plan.digest, 3, (np.array([1, 1, 1, 1], dtype=np.uint64),)))
    with pytest.raises(BatchTooSmall):
        plan.estimate(Shuffled(plan.digest, 0, (np.zeros(4, dtype=np.uint64),)))
    with pytest.raises(DomainError, match="holds 3 items, but everybody must hold exactly 2"):
        plan.randomize([[0, 1, 2]])
    noisy = plan_users(UserHistogram(users_of(CLUSTERS)), Target(1.0, 0.0, 1.0), 10, trusted="nobody")
    with pytest.raises(PlanError, match="6 sums"):
        noisy.estimate(Shuffled(noisy.digest, 3, (1, 2)))
    curator = plan_users(UserHistogram(users_of(CLUSTERS)), Target(1.0, 0.0, 1.0), 10, trusted="curator")
    with pytest.raises(PlanError, match="the curator's noise is added once"):
        curator.randomize([[0]])


def test_reports_may_come_in_parts(items_plan: UserPlan) -> None:
    plan = chosen(items_plan, "shuffled")
    parts = [plan.randomize([[0, 1]] * 4, Randomness.seeded(seed)) for seed in range(3)]
    whole = plan.shuffle(parts[0].joined(parts[1]).joined(parts[2]))
    split = plan.shuffle(iter(parts))
    assert whole.reports == split.reports == 12
    assert np.array_equal(whole.axes[0], split.axes[0])


@pytest.mark.parametrize("method", ["item-wise", "tree-laplace"])
def test_a_million_items_take_a_moment(method: str) -> None:
    """Ten thousand users with a hundred items each: a tenth of a second or a third; the allowance is for busy machines."""
    target = Target(20.0, 1e-2, 1.0) if method == "item-wise" else Target(20.0, 0.0, 1.0)
    query = UserHistogram(users_of(Clustered(8, 8, 0.05) if method == "tree-laplace" else Integers(0, 63), 100))
    plan = plan_users(query, target, 10_000, methods=[method])
    held = np.random.default_rng(0).integers(0, 64, size=(10_000, 100))
    plan.estimate(plan.shuffle(plan.randomize(held[:3000].repeat(4, axis=0))))  # compile
    before = time.process_time()
    release = plan.estimate(plan.shuffle(plan.randomize(held)))
    assert time.process_time() - before < 2.0
    assert release.users == 10_000
