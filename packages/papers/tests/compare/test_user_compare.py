"""Tests of the comparison for users' items: wins, losses, constants, and what was relaxed."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from tests.tables import check_all

from metricshuffle.accounting.composition.pure_responses import ComposedResponses
from metricshuffle.accounting.user_items.metric_gaussian import gaussian_delta
from metricshuffle.errors import InputError
from metricshuffle.randomizers.hadamard_response import HadamardResponse
from metricshuffle.simulation.population import Population
from metricshuffle.spaces import Clustered, embedding, users_of
from metricshuffle_papers.compare.methods import (
    Model,
    gaussian_histogram,
    laplace_histogram,
    laplace_reports,
    one_item,
    tree_laplace,
    two_level_laplace,
)
from metricshuffle_papers.compare.users import UserComparison, compare_users, composed_epsilon

# model, users, items, clusters, places, inner, epsilon, rate, the method compared with, how many
# times less the tree release is off
ROWS: list[tuple[Model, int, int, int, int, float, float, float, str, float]] = [
    ("central", 10**4, 100, 8, 8, 0.05, 1.0, 20.0, "Laplace on shares", 2.51e-3 / 3.54e-4),
    ("central", 10**4, 100, 4, 4, 0.02, 0.2, 10.0, "Laplace on shares", 3.89e-3 / 1.70e-4),
    ("central", 10**3, 1000, 2, 2, 0.01, 1.0, 100.0, "best", 1.87e-3 / 4.25e-5),
    ("central", 10**4, 100, 8, 8, 0.05, 1.0, 1.0, "Laplace on shares", 2.74e-3 / 6.27e-3),
    (
        "local",
        10**5,
        100,
        8,
        8,
        0.05,
        1.0,
        20.0,
        "Hadamard response, one item each",
        6.56e-2 / 1.01e-2,
    ),
    ("local", 10**5, 1000, 4, 4, 0.02, 0.2, 10.0, "best", 9.41e-2 / 5.20e-3),
    (
        "local",
        10**5,
        100,
        8,
        8,
        0.05,
        1.0,
        1.0,
        "Hadamard response, one item each",
        6.38e-2 / 6.15e-2,
    ),
]


@check_all("row", ROWS)
def test_the_same_ways_win_and_lose_by_as_much(
    row: tuple[Model, int, int, int, int, float, float, float, str, float],
) -> None:
    model, users, items, clusters, places, inner, epsilon, rate, against, gain = row
    people = users_of(Clustered(clusters, places, inner), items)
    compared = compare_users(
        people,
        users,
        epsilon=epsilon,
        rate=rate,
        delta=1e-9,
        runs=60,
        seed=1,
        models=(model,),
        with_items=False,
    )
    errors = {method.name: method.error for method in compared.methods}
    theirs = compared.best(model, "user").error if against == "best" else errors[against]
    assert theirs / errors["tree Laplace"] == pytest.approx(gain, rel=0.25)
    if abs(gain - 1.0) > 0.25:
        assert (compared.gain(model) > 1.0) == (gain > 1.0)  # against the best of them, too


@pytest.mark.slow
@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row[0]}-{row[3]}x{row[4]}-rate-{row[7]:g}")
def test_item_wise_reports_never_beat_the_tree(
    row: tuple[Model, int, int, int, int, float, float, float, str, float],
) -> None:
    model, users, items, clusters, places, inner, epsilon, rate, against, gain = row
    people = users_of(Clustered(clusters, places, inner), items)
    compared = compare_users(
        people, users, epsilon=epsilon, rate=rate, delta=1e-9, runs=200, seed=2, models=(model,)
    )
    errors = {method.name: method.error for method in compared.methods}
    theirs = compared.best(model, "user").error if against == "best" else errors[against]
    assert theirs / errors["tree Laplace"] == pytest.approx(gain, rel=0.25)
    assert errors["item-wise"] > errors["tree Laplace"]


@pytest.fixture(scope="module")
def small() -> UserComparison:
    people = users_of(Clustered(2, 2, 0.05), 20)
    return compare_users(
        people,
        500,
        epsilon=1.0,
        rate=20.0,
        delta=1e-6,
        runs=10,
        published=lambda model: {"Eq. 6": 0.05, "none": None},
    )


def test_a_comparison_has_every_way_in_both_models(small: UserComparison) -> None:
    names = {(method.model, method.hides, method.name) for method in small.methods}
    assert {name for model, hides, name in names if (model, hides) == ("central", "user")} == {
        "Laplace on shares",
        "Gaussian on shares",
        "two-level Laplace",
    }
    assert {name for model, hides, name in names if (model, hides) == ("local", "user")} == {
        "Hadamard response, one item each",
        "randomized response, one item each",
        "Laplace on each user's shares",
        "randomized response, every item",
    }
    for model in ("central", "local"):
        assert {
            (model, "earth mover", "tree Laplace"),
            (model, "earth mover", "item-wise"),
            (model, "published", "item-wise, Eq. 6"),
        } <= names
    assert all(
        method.error > 0.0 and method.standard_error < method.error for method in small.methods
    )


def test_sentences_say_who_wins_and_what_was_relaxed(small: UserComparison) -> None:
    central, local, relaxed = small.sentences()
    assert central.startswith("central: tree Laplace is off by")
    assert "times smaller than the best user-level method" in central
    assert local.startswith("local: ")
    assert (
        "costs epsilon 20 instead of 1; only moves of up to 0.05 of earth mover's distance "
        "are hidden at 1" in relaxed
    )
    equal = compare_users(
        users_of(Clustered(2, 2, 0.5), 5),
        100,
        epsilon=1.0,
        rate=1.0,
        delta=1e-3,
        runs=2,
        with_items=False,
    )
    assert equal.sentences()[-1].startswith("Nothing was relaxed")


def test_real_users_of_different_sizes_are_told_about() -> None:
    people = users_of(Clustered(2, 2, 0.2), 3)
    generator = np.random.default_rng(0)
    held = [generator.integers(0, 4, size=size).tolist() for size in generator.integers(1, 9, 40)]
    compared = compare_users(
        people, 1, epsilon=1.0, rate=5.0, delta=1e-2, runs=3, held=held, models=("local",)
    )
    assert compared.users == 40
    assert compared.draws
    assert any("moves of what she drew" in sentence for sentence in compared.sentences())
    equal = compare_users(
        people,
        1,
        epsilon=1.0,
        rate=5.0,
        delta=1e-2,
        runs=3,
        held=[[0, 1, 2]] * 40,
        models=("local",),
        with_items=False,
    )
    assert not equal.draws


def test_clusters_that_are_labels_have_no_second_level() -> None:
    compared = compare_users(
        users_of(Clustered(2, 2, 1.0), 2),
        50,
        epsilon=1.0,
        rate=1.0,
        delta=1e-3,
        runs=2,
        with_items=False,
    )
    assert "two-level Laplace" not in {method.name for method in compared.methods}


@check_all(
    ("change", "words"),
    [
        ({"people": users_of(Clustered(2, 2, 0.1))}, "needs a number of items"),
        ({"runs": 1}, "runs must be"),
        ({"users": 0}, "users must be"),
        ({"delta": 0.0}, "delta must lie"),
        ({"epsilon": -1.0}, "epsilon must lie"),
        ({"rate": 0.0}, "epsilon must lie"),
        ({"held": [[0, 1], []]}, "holds no items"),
        ({"held": [[0, 9]]}, "9 is not a whole number from 0 to 3"),
    ],
)
def test_wrong_comparisons_are_refused(change: dict[str, Any], words: str) -> None:
    good: dict[str, Any] = {
        "people": users_of(Clustered(2, 2, 0.1), 2),
        "users": 10,
        "epsilon": 1.0,
        "rate": 1.0,
        "delta": 1e-3,
        "runs": 2,
        "with_items": False,
    }
    with pytest.raises(InputError, match=words):
        compare_users(**{**good, **change})


# --- the constants of the baselines ---


def spread_of(method: Any, crowd: Population, runs: int = 400) -> float:
    generator = np.random.default_rng(7)
    return float(np.std([method.estimate(crowd, generator) - crowd.truth for _ in range(runs)]))


def test_baselines_have_the_right_constants() -> None:
    """Shares far from the edge, so that the projection onto the simplex only takes off the mean."""
    points = 8
    users = 10_000
    crowd = Population(
        users,
        10,
        np.full(points, 1 / points),
        np.full(points, users * 10 // points),
        np.full(points, users // points),
    )
    left = math.sqrt(1.0 - 1.0 / points)
    assert laplace_histogram(users, 0.5).strength == 2.0 / (users * 0.5)
    assert spread_of(laplace_histogram(users, 0.5), crowd) == pytest.approx(
        math.sqrt(2.0) * 4e-4 * left, rel=0.05
    )
    gaussian = gaussian_histogram(users, 0.5, 1e-6)
    assert gaussian_delta(0.5, math.sqrt(2.0) / users / gaussian.strength) == pytest.approx(
        1e-6, rel=1e-6
    )
    assert spread_of(gaussian, crowd) == pytest.approx(gaussian.strength * left, rel=0.05)
    assert spread_of(laplace_reports(8.0), crowd) == pytest.approx(
        math.sqrt(2.0 / users) * 0.25 * left, rel=0.05
    )
    hadamard = one_item("Hadamard response", HadamardResponse(points, 3.0), 3.0)
    assert spread_of(hadamard, crowd) < spread_of(
        one_item("Hadamard response", HadamardResponse(points, 2.0), 2.0), crowd
    )


def test_two_levels_share_their_epsilon() -> None:
    metric = Clustered(8, 8, 0.05)
    method = two_level_laplace(metric, 10_000, 1.0)
    tree = embedding(metric)
    leaf = method.strength
    cluster = 2.0 / (10_000 * (1.0 - 2.0 / (10_000 * leaf)))  # what is left of epsilon
    even = Population(
        10_000, 1, np.full(64, 1 / 64), np.zeros(64, dtype=np.int64), np.zeros(64, dtype=np.int64)
    )
    generator = np.random.default_rng(0)
    compared = np.array([method.estimate(even, generator) for _ in range(300)]).reshape(-1, 8, 8)
    assert np.std(compared.sum(axis=2)) == pytest.approx(
        math.sqrt(2.0) * cluster * math.sqrt(7 / 8), rel=0.15
    )
    before = 0.025 * 64 * leaf + 0.475 * 8 * cluster
    assert (
        before
        == pytest.approx((math.sqrt(0.05 * 64) + math.sqrt(0.95 * 8)) ** 2 / 10_000, rel=1e-9)
        == pytest.approx(2.07e-3, rel=5e-3)
    )
    assert tree.lengths.size == 72


def test_tree_laplace_is_off_by_its_coordinates_before_projection() -> None:
    people = users_of(Clustered(3, 3, 0.5), 10)
    for model, scale in (("central", 1 / (5.0 * 1000)), ("local", 1 / 5.0)):
        assert tree_laplace(people, model, 1000, 5.0).strength == pytest.approx(scale)  # type: ignore[arg-type]


def test_composed_responses_are_calibrated_to_the_edge() -> None:
    each = composed_epsilon(100, 1.0, 1e-6)
    assert each > 1.0 / 100
    assert (
        ComposedResponses(each, 100).delta(1.0, 1.0)
        <= 1e-6
        < ComposedResponses(each * 1.001, 100).delta(1.0, 1.0)
    )


def test_a_way_that_cannot_be_calibrated_is_said_and_left_out() -> None:
    compared = compare_users(
        users_of(Clustered(2, 2, 0.1), items=1), 3, epsilon=1.0, rate=700.0, delta=1e-9, runs=2
    )
    names = {name for name, _ in compared.not_offered}
    assert all(
        method.name != "item-wise"
        for method in compared.methods
        if f"item-wise ({method.model})" in names
    )
    assert len(compared.not_offered) == sum(
        "is not offered" in sentence for sentence in compared.sentences()
    )
    assert names
