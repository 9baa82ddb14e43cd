"""Releases about users' items: unbiased, with correct errors, for any number of items."""

from __future__ import annotations

import math
import time
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from metricshuffle.errors import InputError
from metricshuffle.estimation.inversion import Inversion
from metricshuffle.planning import Plan, plan
from metricshuffle.privacy.guarantee import Who
from metricshuffle.privacy.target import Target
from metricshuffle.queries import UserHistogram, UserLinearQuery
from metricshuffle.randomizers.clustered_response import ClusteredResponse
from metricshuffle.randomness import Randomness
from metricshuffle.spaces import Clustered, Grid, Integers, users_of
from metricshuffle.tasks.release import Release

Floats = NDArray[np.float64]
SPACE = Clustered(2, 3, 0.2)
GENERATOR = np.random.default_rng(3)
MIXED = [
    GENERATOR.choice(6, size=size, p=[0.4, 0.2, 0.1, 0.1, 0.1, 0.1]).tolist()
    for size in GENERATOR.integers(1, 6, 60)
]
EQUAL = [GENERATOR.choice(6, size=4, p=[0.4, 0.2, 0.1, 0.1, 0.1, 0.1]).tolist() for _ in range(60)]


def truth(held: list[list[int]]) -> Floats:
    return np.asarray(
        np.mean([np.bincount(items, minlength=6) / len(items) for items in held], axis=0)
    )


def releases(made: Plan, held: Any, runs: int) -> list[Release]:
    source = Randomness.seeded("releases")
    return [made.run(held, source) for _ in range(runs)]


def unbiased_of(release: Release) -> tuple[Floats, Floats, Floats]:
    """Totals divided by people, with errors and 95 % intervals, before clipping."""
    estimate = release.estimate
    people = release.reports
    return (
        estimate.totals / people,
        estimate.standard_errors / people,
        np.stack(estimate.interval(0.95)) / people,
    )


def check_errors(published: list[Release], expected: Floats) -> None:
    """Unbiased, standard errors right to a tenth, and 95 % intervals that cover."""
    measured = np.array([unbiased_of(release)[0] for release in published])
    claimed = np.sqrt(
        np.mean([np.square(unbiased_of(release)[1]) for release in published], axis=0)
    )
    assert (
        np.abs(measured.mean(axis=0) - expected).max()
        < 5.0 * (claimed / math.sqrt(len(published))).max()
    )
    np.testing.assert_allclose(
        np.sqrt(np.mean((measured - expected) ** 2, axis=0)), claimed, rtol=0.25
    )
    assert np.sqrt(np.mean((measured - expected) ** 2)) == pytest.approx(
        np.sqrt(np.mean(claimed**2)), rel=0.1
    )
    ends = [unbiased_of(release)[2] for release in published]
    assert np.mean([(low <= expected) & (expected <= high) for low, high in ends]) > 0.93


@pytest.mark.parametrize("trusted", ["nobody", "curator"])
def test_shares_along_a_tree_are_unbiased_for_users_of_any_size(trusted: Who) -> None:
    """Users of one to five items, all of whom count the same."""
    made = plan(
        UserHistogram(users_of(SPACE)),
        Target(4.0, 0.0, 1.0),
        60,
        trusted=trusted,
        protocols=["tree-laplace"],
    )
    check_errors(releases(made, MIXED, 200), truth(MIXED))


def test_item_wise_shares_are_unbiased() -> None:
    """And possible shares are never negative and sum to one."""
    made = plan(
        UserHistogram(users_of(Integers(0, 5), 4)),
        Target(8.0, 1e-2, 5.0),
        60,
        protocols=["item-wise"],
    )
    published = releases(made, EQUAL, 250)
    check_errors(published, truth(EQUAL))
    for release in published[:20]:
        assert min(release.value["share"]) >= 0.0
        assert sum(release.value["share"]) == pytest.approx(1.0)


@pytest.mark.thorough
def test_errors_count_which_items_were_drawn() -> None:
    """At a large item rate the error is that of drawing 3 items, once left out."""
    made = plan(
        UserHistogram(users_of(SPACE)),
        Target(30.0, 1e-2, 0.1, "flat"),
        60,
        protocols=["item-wise"],
        draw=3,
    )
    assert made.choice.item_rate is not None
    assert made.choice.item_rate > 8.0
    published = releases(made, MIXED, 150)
    measured = np.array([unbiased_of(release)[0] for release in published])
    claimed = np.array([unbiased_of(release)[1] for release in published])
    seen = np.sqrt(np.mean((measured - truth(MIXED)) ** 2))
    assert np.abs(measured.mean(axis=0) - truth(MIXED)).max() < 5.0 * seen / math.sqrt(150)
    assert (
        0.95 * seen < np.sqrt(np.mean(claimed**2)) < 2.5 * seen
    )  # users differ from each other, so it is less than a common law says


def test_means_are_means_of_user_means() -> None:
    """Whoever holds ninety-nine items counts as much as whoever holds one."""
    query = UserLinearQuery.average(users_of(Integers(1000, 1010)))
    made = plan(query, Target(50.0, 0.0, 10.0), 2, trusted="curator")
    mean = np.mean([release.value for release in releases(made, [[1000] * 99, [1010]], 400)])
    assert mean == pytest.approx(1005.0, abs=0.05)  # all items together: 1000.1


LINEAR: list[tuple[str, Who]] = [
    ("laplace", "nobody"),
    ("sphere", "curator"),
    ("cube", "curator"),
    ("gaussian", "curator"),
]


@pytest.mark.parametrize(("name", "trusted"), LINEAR)
def test_linear_errors_and_intervals(name: str, trusted: Who) -> None:
    """Columns far from 0, with each kind of noise."""
    query = UserLinearQuery(users_of(SPACE), np.random.default_rng(1).normal(size=(6, 2)) + 1e6)
    made = plan(query, Target(5.0, 1e-4, 1.0), 60, trusted=trusted, protocols=[name])
    assert made.choice.trusted == trusted
    check_errors(
        releases(made, MIXED, 150 if trusted == "nobody" else 400), truth(MIXED) @ query.table
    )


def test_the_two_axes_of_a_mean_place_hold_jointly() -> None:
    """Both intervals cover at once with the stated probability, as for a centroid."""
    query = UserLinearQuery.average(users_of(Grid(3, 2, 10.0)))
    made = plan(query, Target(5.0, 0.0, 10.0), 60, trusted="nobody", protocols=["laplace"])
    expected = truth(MIXED) @ query.table
    runs = 500
    level = 0.8
    together = 0
    for release in releases(made, MIXED, runs):
        interval = np.array(release.interval(level))
        together += bool(np.all((interval[:, 0] <= expected) & (expected <= interval[:, 1])))
    assert together / runs >= level - 3.0 * math.sqrt(level * (1 - level) / runs)
    assert together / runs <= 0.92


def test_the_predicted_variance_is_exact() -> None:
    """Exact form of Theorem 6.5 of Imola24, from the inversion.

    sum over x of K(x) (sum over y of A_x(y) |B_y|^2 - 1).
    """
    randomizer = ClusteredResponse(2, 3, 0.2, 2.0)
    inversion = Inversion.of(randomizer)
    rows = randomizer.rows()
    held = np.array([400, 200, 100, 100, 100, 100])
    back = randomizer.debiasing()
    formula = sum(held[x] / 1000 * (rows[x] @ (back**2).sum(axis=1) - 1.0) for x in range(6))
    assert inversion.variances(held / 1000).sum() == pytest.approx(formula, rel=1e-12)
    generator = np.random.default_rng(0)
    totals = [
        inversion.totals(generator.multinomial(held, rows).sum(axis=0).astype(float))
        for _ in range(4000)
    ]
    np.testing.assert_allclose(
        np.var(totals, axis=0), 1000 * inversion.variances(held / 1000), rtol=0.12
    )


def test_few_users_get_intervals_that_need_no_normal_law() -> None:
    """Chebyshev below thirty users and for a curator's single draw, else the normal law."""
    made = plan(
        UserHistogram(users_of(SPACE)),
        Target(4.0, 0.0, 1.0),
        60,
        trusted="nobody",
        protocols=["tree-laplace"],
    )
    curated = plan(
        UserHistogram(users_of(SPACE)),
        Target(4.0, 0.0, 1.0),
        60,
        trusted="curator",
        protocols=["tree-laplace"],
    )
    few = made.run(MIXED[:5], Randomness.seeded(1))
    many = made.run(MIXED, Randomness.seeded(1))
    for release, width in (
        (few, 1.0 / math.sqrt(0.05)),
        (many, 1.959963984540054),
        (curated.run(MIXED), 1.0 / math.sqrt(0.05)),
    ):
        _, errors, (low, high) = unbiased_of(release)
        np.testing.assert_allclose(
            high - low, 2.0 * width * errors, rtol=3e-3
        )  # (Laplace tails are a little longer than normal ones)
    for level in (0.0, 1.0, math.nan):
        with pytest.raises(InputError, match="level"):
            few.interval(level)


def test_the_expected_error_is_told_only_for_those_who_were_planned_for() -> None:
    """A batch of another size has another one, which a simulation tells."""
    made = plan(
        UserHistogram(users_of(SPACE)),
        Target(4.0, 0.0, 1.0),
        60,
        trusted="nobody",
        protocols=["tree-laplace"],
    )
    assert made.run(MIXED, Randomness.seeded(1)).expected_error == made.choice.expected_error
    assert made.run(MIXED[:40], Randomness.seeded(1)).expected_error is None


def test_sentences_below_a_release() -> None:
    """Both promises, what was seen, what was seeded, and what a full replacement costs."""
    made = plan(
        UserHistogram(users_of(SPACE)),
        Target(1.0, 0.0, 0.2),
        60,
        trusted="curator",
        protocols=["tree-laplace"],
    )
    text = str(made.run(MIXED, Randomness.seeded(1)))
    assert "If the curator is honest: Hidden at epsilon 1, and proportionally less" in text
    assert "If it is not: NOT hidden" in text
    assert "whoever ran it saw the raw values" in text
    assert "UNSAFE: seeded randomness was used" in text
    assert (
        "Replacing all of one user's items (up to 1 of earth mover's distance) is hidden "
        "only at epsilon 5 (with certainty)." in text
    )
    local = plan(
        UserHistogram(users_of(SPACE)),
        Target(1.0, 0.0, 0.2),
        60,
        trusted="nobody",
        protocols=["tree-laplace"],
    )
    release = local.estimate(local.shuffle(local.randomize(MIXED)))
    assert not release.unsafe_seeded
    assert not release.raw_values_seen
    assert "UNSAFE" not in str(release)
    assert "raw values" not in str(release)


def test_reports_may_come_in_parts() -> None:
    """Several batches, one after the other."""
    made = plan(
        UserHistogram(users_of(Integers(0, 3), 2)),
        Target(1.0, 0.1, 1.0),
        3,
        protocols=["item-wise"],
    )
    parts = [made.randomize([[0, 1]] * 4, Randomness.seeded(seed)) for seed in range(3)]
    split = made.shuffle(iter(parts))
    messages = np.concatenate([part.messages for part in parts])
    assert split.people == 12
    assert split.numbers == np.bincount(messages.ravel(), minlength=4).tolist()


@pytest.mark.parametrize("method", ["item-wise", "tree-laplace"])
def test_a_million_items_take_a_moment(method: str) -> None:
    """Ten thousand users with a hundred items: at most a third of a second when idle."""
    target = Target(20.0, 1e-2, 1.0) if method == "item-wise" else Target(20.0, 0.0, 1.0)
    query = UserHistogram(
        users_of(Clustered(8, 8, 0.05) if method == "tree-laplace" else Integers(0, 63), 100)
    )
    made = plan(query, target, 10_000, protocols=[method])
    held = np.random.default_rng(0).integers(0, 64, size=(10_000, 100))
    made.estimate(made.shuffle(made.randomize(held[:3000].repeat(4, axis=0))))  # compile
    before = time.process_time()
    release = made.estimate(made.shuffle(made.randomize(held)))
    assert time.process_time() - before < 2.0
    assert release.reports == 10_000
