"""What is published about users' items: unbiased where it says so, errors as large as they are, and every sentence below it."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from metricshuffle.errors import InputError
from metricshuffle.planning.user_plan import UserPlan, plan_users
from metricshuffle.planning.user_release import UserRelease
from metricshuffle.privacy.target import Target
from metricshuffle.estimation.inversion import Inversion
from metricshuffle.queries.user_items import UserHistogram, UserLinearQuery
from metricshuffle.randomizers.clustered_response import ClusteredResponse
from metricshuffle.randomness import Randomness
from metricshuffle.spaces import Clustered, Integers, embedding, users_of

SPACE = Clustered(2, 3, 0.2)
GENERATOR = np.random.default_rng(3)
MIXED = [GENERATOR.choice(6, size=size, p=[0.4, 0.2, 0.1, 0.1, 0.1, 0.1]).tolist() for size in GENERATOR.integers(1, 6, 60)]
EQUAL = [GENERATOR.choice(6, size=4, p=[0.4, 0.2, 0.1, 0.1, 0.1, 0.1]).tolist() for _ in range(60)]


def truth(held: list[list[int]]) -> np.ndarray:
    return np.asarray(np.mean([np.bincount(items, minlength=6) / len(items) for items in held], axis=0))


def releases(plan: UserPlan, held: Any, runs: int) -> list[UserRelease]:
    source = Randomness.seeded("releases")
    return [plan.run(held, source) for _ in range(runs)]


def check_errors(found: list[UserRelease], expected: np.ndarray) -> None:
    """Unbiased, standard errors right to a tenth, and 95 % intervals that hold the truth at least nearly as often."""
    measured = np.array([one.measured for one in found])
    claimed = np.sqrt(np.mean([np.square(one.standard_errors) for one in found], axis=0))
    assert np.abs(measured.mean(axis=0) - expected).max() < 5.0 * (claimed / math.sqrt(len(found))).max()
    np.testing.assert_allclose(np.sqrt(np.mean((measured - expected) ** 2, axis=0)), claimed, rtol=0.25)
    assert np.sqrt(np.mean((measured - expected) ** 2)) == pytest.approx(np.sqrt(np.mean(claimed**2)), rel=0.1)
    inside = [(one.intervals()[:, 0] <= expected) & (expected <= one.intervals()[:, 1]) for one in found]
    assert np.mean(inside) > 0.93


@pytest.mark.parametrize("trusted", ["nobody", "curator"])
def test_tree_masses_are_unbiased_for_users_of_any_size(trusted: Any) -> None:
    plan = plan_users(UserHistogram(users_of(SPACE)), Target(4.0, 0.0, 1.0), 60, trusted=trusted)
    tree = embedding(SPACE)
    check_errors(releases(plan, MIXED, 200), tree.means(truth(MIXED))[0] / tree.lengths)


def test_item_wise_shares_are_unbiased() -> None:
    plan = plan_users(UserHistogram(users_of(Integers(0, 5), 4)), Target(8.0, 1e-2, 5.0), 60, methods=["item-wise"])
    found = releases(plan, EQUAL, 250)
    check_errors(found, truth(EQUAL))
    for one in found[:20]:
        assert min(one.value) >= 0.0
        assert sum(one.value) == pytest.approx(1.0)


def test_errors_count_which_items_were_drawn() -> None:
    """A large item rate leaves hardly any noise but that of drawing 3 of everybody's items: it used to be left out."""
    plan = plan_users(UserHistogram(users_of(SPACE)), Target(30.0, 1e-2, 0.1, "flat"), 60, methods=["item-wise"], samples=3)
    assert plan.choice.item_rate is not None
    assert plan.choice.item_rate > 8.0
    found = releases(plan, MIXED, 150)
    measured, claimed = np.array([one.measured for one in found]), np.array([one.standard_errors for one in found])
    seen = np.sqrt(np.mean((measured - truth(MIXED)) ** 2))
    assert np.abs(measured.mean(axis=0) - truth(MIXED)).max() < 5.0 * seen / math.sqrt(150)
    assert 0.95 * seen < np.sqrt(np.mean(claimed**2)) < 2.5 * seen  # users differ from each other, so it is less than a common law says


def test_means_are_means_of_user_means() -> None:
    query = UserLinearQuery.average(users_of(Integers(1000, 1010)))
    plan = plan_users(query, Target(50.0, 0.0, 10.0), 2, trusted="curator")
    found = np.mean([one.value[0] for one in releases(plan, [[1000] * 99, [1010]], 400)])
    assert found == pytest.approx(1005.0, abs=0.05)  # all items together: 1000.1


def test_linear_errors_and_intervals() -> None:
    query = UserLinearQuery(users_of(SPACE), np.random.default_rng(1).normal(size=(6, 2)) + 1e6)
    table = query.table
    for name, trusted in (("laplace", "nobody"), ("sphere", "curator"), ("cube", "curator"), ("gaussian", "curator")):
        plan = plan_users(query, Target(5.0, 1e-4, 1.0), 60, trusted=trusted, methods=[name])  # type: ignore[arg-type]
        check_errors(releases(plan, MIXED, 150 if trusted == "nobody" else 400), truth(MIXED) @ table)


def test_the_predicted_variance_is_exact() -> None:
    """Theorem 6.5 of Imola24 in its exact form: sum over x of K(x) (sum over y of A_x(y) |B_y|^2 - 1), from the inversion."""
    randomizer = ClusteredResponse(2, 3, 0.2, 2.0)
    inversion, rows = Inversion.of(randomizer), randomizer.rows()
    held = np.array([400, 200, 100, 100, 100, 100])
    back = randomizer.debiasing()
    formula = sum(held[x] / 1000 * (rows[x] @ (back**2).sum(axis=1) - 1.0) for x in range(6))
    assert inversion.variances(held / 1000).sum() == pytest.approx(formula, rel=1e-12)
    generator = np.random.default_rng(0)
    found = [inversion.totals(generator.multinomial(held, rows).sum(axis=0).astype(float)) for _ in range(4000)]
    np.testing.assert_allclose(np.var(found, axis=0), 1000 * inversion.variances(held / 1000), rtol=0.12)


def test_few_users_get_intervals_that_need_no_normal_law() -> None:
    plan = plan_users(UserHistogram(users_of(SPACE)), Target(4.0, 0.0, 1.0), 60, trusted="nobody")
    few, many = plan.run(MIXED[:5], Randomness.seeded(1)), plan.run(MIXED, Randomness.seeded(1))
    width = [np.ptp(one.intervals(), axis=1) / one.standard_errors for one in (few, many)]
    np.testing.assert_allclose(width[0], 2.0 / math.sqrt(0.05))
    np.testing.assert_allclose(width[1], 2.0 * 1.959963984540054)
    for level in (0.0, 1.0, math.nan):
        with pytest.raises(InputError, match="level"):
            few.intervals(level)


def test_the_expected_error_is_that_of_the_users_who_came() -> None:
    plan = plan_users(UserHistogram(users_of(SPACE)), Target(4.0, 0.0, 1.0), 6000, trusted="nobody")
    expected = plan.choice.expected_error
    assert plan.run(MIXED, Randomness.seeded(1)).expected_error > 5.0 * expected  # a hundredth of them
    linear = plan_users(UserLinearQuery(users_of(SPACE), np.arange(6.0)), Target(4.0, 0.0, 1.0), 6000, trusted="curator")
    assert linear.run(MIXED, Randomness.seeded(1)).expected_error == pytest.approx(100.0 * linear.choice.expected_error)


def test_sentences_below_a_release(tmp_path: Any) -> None:
    plan = plan_users(UserHistogram(users_of(SPACE)), Target(1.0, 0.0, 0.2), 60, trusted="curator")
    release = plan.run(MIXED, Randomness.seeded(1))
    text = str(release)
    assert "If the curator is honest: Hidden at epsilon 1, and proportionally less" in text
    assert "If it is not: NOT hidden" in text
    assert "whoever ran it saw the raw values" in text
    assert "UNSAFE: seeded randomness was used" in text
    assert "Replacing all of one user's items (up to 1 of earth mover's distance) is hidden only at epsilon 5 (with certainty)." in text
    release.save(str(tmp_path / "release.json"))
    again = UserRelease.from_json((tmp_path / "release.json").read_text())
    assert again.to_json() == release.to_json()
    assert str(again) == text
    local = plan_users(UserHistogram(users_of(SPACE)), Target(1.0, 0.0, 0.2), 60, trusted="nobody")
    roles = local.estimate(local.shuffle(local.randomize(MIXED)))
    assert not roles.unsafe_seeded
    assert not roles.raw_values_seen
    assert "UNSAFE" not in str(roles)
    assert "raw values" not in str(roles)
