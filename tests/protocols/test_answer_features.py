"""Shares from noisy features: unbiased, with the stated standard errors and sensitivity."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from tests.tables import check_all

from metricshuffle.errors import InputError, PlanError
from metricshuffle.noise.polya import Polya
from metricshuffle.privacy.guarantee import Who
from metricshuffle.protocols.answer_features import AnswerFeatures, Columns, PointShares, TreeEdges
from metricshuffle.protocols.answer_noise import AnswerNoise
from metricshuffle.protocols.noisy_answers import NoisyAnswers
from metricshuffle.protocols.tally import Batch, Shuffled
from metricshuffle.queries import Histogram, UserHistogram, UserLinearQuery
from metricshuffle.queries.exact_features import ExactAnswers
from metricshuffle.randomness import Randomness
from metricshuffle.spaces import (
    Categories,
    Clustered,
    Grid,
    Integers,
    Matrix,
    NestedSquares,
    Scaled,
    Space,
    Tree,
    nested_squares,
    users_of,
)
from metricshuffle.spaces.metrics import Absolute

Floats = NDArray[np.float64]
TREES: dict[str, Any] = {
    "line": Integers(-3, 9),
    "scaled line": Space(Integers(0, 6), Scaled(Absolute(), 0.1)),
    "labels": Categories(["a", "b", "c", "d"]),
    "clusters": Clustered(3, 4, 0.05),
    "nested squares": nested_squares(2, 8.0),
    "wide squares": Space(Grid(7, 3), NestedSquares(3)),
    "tree with points inside": Tree(
        [-1, 0, 0, 1, 1, 2, 3, 3], [0, 0.1, 0.3, 0.7, 0.123, 0.33, 0.77, 0.01]
    ),
    "root in the middle": Tree([1, -1, 1, 2], [2.0, 0.0, 0.5, 0.25]),
    "short beside long": Tree([-1, 0, 1, 1, 3], [0.0, 1.0, 1e-6, 3e-7, 2.0]),
}
HUNDREDTH = 0.01


def query_of(name: str) -> UserHistogram:
    return UserHistogram(users_of(TREES[name]))


def some_shares(query: UserHistogram, seed: int = 3) -> Floats:
    return np.random.default_rng(seed).dirichlet(np.full(query.people.size, 0.7))


@check_all("name", TREES)
def test_without_noise_the_shares_come_back_from_a_tree(name: str) -> None:
    """Exact rounded means of the features give back the shares, unbiased and projected."""
    query = query_of(name)
    features = TreeEdges()
    table = features.coordinates(query).table
    for seed in range(5):
        truth = some_shares(query, seed)
        shares, errors = features.totals(query, truth @ table, 0.0)
        np.testing.assert_allclose(shares, truth, atol=1e-9)
        assert np.all(errors == 0.0)
        np.testing.assert_allclose(features.possible(query, truth @ table), truth, atol=1e-9)


@check_all("name", TREES)
def test_standard_errors_are_those_of_the_linear_map(name: str) -> None:
    """Shares are linear in the means, so errors follow from each mean's contribution."""
    query = query_of(name)
    features = TreeEdges()
    width = features.coordinates(query).numbers.shape[1]
    start, errors = features.totals(query, np.zeros(width), HUNDREDTH)
    units = [np.bincount([edge], minlength=width).astype(np.float64) for edge in range(width)]
    slopes = np.array([features.totals(query, unit, 0.0)[0] - start for unit in units])
    np.testing.assert_allclose(errors, HUNDREDTH * np.sqrt((slopes**2).sum(axis=0)), rtol=1e-9)
    # Whatever was measured, the shares of all points sum to one if every node of the tree is a
    # point.
    tree = query.tree
    assert tree is not None
    if len(tree.nodes) == len(tree.order):
        noisy = features.totals(
            query, np.asarray(np.random.default_rng(0).normal(size=width)), 0.0
        )[0]
        assert noisy.sum() == pytest.approx(1.0, abs=1e-6 * np.abs(noisy).sum())


def released_shares(
    query: UserHistogram, trusted: Who, held: list[list[int]], scale: float, runs: int
) -> tuple[Floats, Floats]:
    """Unbiased shares of many releases by the protocol itself, and their standard errors."""
    features = TreeEdges()
    noise = AnswerNoise("l1", scale, features.coordinates(query).numbers.shape[1])
    protocol = NoisyAnswers(name="tree-laplace", trusted=trusted, features=features, noise=noise)
    batch = Batch("")
    randomness = Randomness.seeded(f"shares {trusted} {query}")
    shares = []
    inputs = query.inputs(held, 1.0)
    tally = (
        protocol.tally(batch).add(protocol.messages(inputs, randomness))
        if trusted == "curator"
        else None
    )
    for _ in range(runs):
        counted = tally or protocol.tally(batch).add(protocol.messages(inputs, randomness))
        shuffled = Shuffled(
            batch, counted.people, counted.messages, protocol.published(query, counted, randomness)
        )
        estimate = protocol.estimate(query, shuffled)
        shares.append(estimate.totals / len(held))
    return np.array(shares), estimate.standard_errors / len(held)


@pytest.mark.parametrize("trusted", ["nobody", "curator"])
@pytest.mark.parametrize(
    "name", ["line", "clusters", "nested squares", "tree with points inside", "short beside long"]
)
def test_shares_of_releases_are_unbiased_with_the_errors_they_say(name: str, trusted: Who) -> None:
    """Users of different sizes: unbiased over many releases, spread right to 5 %."""
    query = query_of(name)
    generator = np.random.default_rng(7)
    low = (
        query.people.items_in.domain.low
        if isinstance(query.people.items_in.domain, Integers)
        else 0
    )
    held = [
        (generator.integers(0, query.people.size, size) + low).tolist()
        for size in (1, 2, 3, 5, 1, 4)
    ]
    truth = query.people.histograms(held).mean(axis=0)
    shortest = float(TreeEdges().coordinates(query).table.max(axis=0).min())
    runs = 800 if trusted == "curator" else 500
    shares, errors = released_shares(query, trusted, held, 0.1 * shortest, runs)
    # Laplace noise has long tails: five standard errors of a mean are passed once in a million.
    assert np.all(np.abs(shares.mean(axis=0) - truth) <= 5.0 * errors / math.sqrt(runs))
    ratios = np.sqrt(((shares - truth) ** 2).mean(axis=0)) / errors
    np.testing.assert_allclose(ratios, 1.0, atol=0.15)
    assert ratios.mean() == pytest.approx(1.0, abs=0.05)


def test_a_short_edge_beside_a_long_one_is_not_biased() -> None:
    """Lengths have 32 bits of the longest; shares use the shortened length."""
    query = query_of("short beside long")
    tree = query.tree
    table = TreeEdges().coordinates(query).table
    assert tree is not None
    lost = 1.0 - table.max(axis=0) / tree.lengths
    assert lost.max() > 1e-4
    held = [[4]] * 50
    shares, errors = released_shares(query, "curator", held, 1e-10, 20)
    assert errors.max() < 2e-5
    np.testing.assert_allclose(shares.mean(axis=0), np.eye(5)[4], atol=5e-5)


def test_an_edge_that_32_bits_do_not_hold_is_refused_in_words() -> None:
    """A length of 1e-12 next to one of 1 is rounded to 0, which is an error."""
    query = UserHistogram(users_of(Tree([-1, 0, 1], [0.0, 1.0, 1e-12])))
    with pytest.raises(InputError, match="so short compared with the longest"):
        TreeEdges().totals(query, np.zeros(2), 0.1)
    with pytest.raises(InputError, match="so short compared with the longest"):
        TreeEdges().possible(query, np.zeros(2))


@check_all("name", TREES)
def test_masses_below_edges_move_by_no_more_than_the_earth_movers_distance(name: str) -> None:
    """Exact arithmetic for every pair of points, with the calibrated constant."""
    query = query_of(name)
    features = TreeEdges()
    coordinates = features.coordinates(query)
    assert features.constant(query, "l1") == 1.0
    below = Fraction(2) ** coordinates.power
    for a, b in itertools.combinations(range(query.people.size), 2):
        moved = (
            sum(
                abs(int(x) - int(y))
                for x, y in zip(coordinates.numbers[a], coordinates.numbers[b], strict=True)
            )
            / below
        )
        assert moved <= Fraction(float(query.people.distances[a, b])) * (1 + Fraction(16, 2**53))


def test_shares_of_points_and_columns_are_read_as_they_are() -> None:
    """Shares are the means; columns get their centre back; both have the means' errors."""
    circle = UserHistogram(users_of(Matrix([[0.0, 1.0, 2.0], [1.0, 0.0, 1.5], [2.0, 1.5, 0.0]])))
    shares, errors = PointShares().totals(circle, np.array([0.5, 0.7, -0.2]), HUNDREDTH)
    assert (shares.tolist(), errors.tolist()) == ([0.5, 0.7, -0.2], [HUNDREDTH] * 3)
    np.testing.assert_allclose(PointShares().possible(circle, shares), [0.4, 0.6, 0.0])
    assert PointShares().constant(circle, "l1") == pytest.approx(
        2.0, rel=1e-9
    )  # two shares move, between points at distance 1
    linear = UserLinearQuery(users_of(Clustered(2, 2, 0.5)), np.arange(8.0).reshape(4, 2) + 1e6)
    truth = np.array([0.1, 0.2, 0.3, 0.4])
    means, errors = Columns().totals(linear, truth @ Columns().coordinates(linear).table, HUNDREDTH)
    np.testing.assert_allclose(means, truth @ linear.table, rtol=1e-12)
    assert errors.tolist() == [HUNDREDTH] * 2
    assert Columns().possible(linear, means) is None


@check_all(
    ("features", "query", "words"),
    [
        (
            TreeEdges(),
            UserLinearQuery(users_of(Integers(0, 2)), [0.0, 1.0, 2.0]),
            "not of a user-linear; the task is damaged",
        ),
        (TreeEdges(), UserHistogram(users_of(Grid(2, 2))), "not those along a line or a tree"),
        (PointShares(), Histogram(Integers(0, 3)), "not of a histogram; the task is damaged"),
        (
            Columns(),
            UserHistogram(users_of(Integers(0, 2))),
            "not of a user-histogram; the task is damaged",
        ),
    ],
)
def test_features_of_another_query_are_refused(
    features: AnswerFeatures, query: Any, words: str
) -> None:
    """A task is not believed: features must fit its query."""
    with pytest.raises(PlanError, match=words):
        features.coordinates(query)


def test_trees_are_measured_in_the_sum_norm_only() -> None:
    """Noise for another norm would hide less than is promised."""
    for norm in ("l2", "linf"):
        with pytest.raises(PlanError, match="norm l1"):
            TreeEdges().constant(query_of("line"), norm)


# --- the curator's tally ---


def test_a_curators_tally_is_exact_for_users_of_different_sizes() -> None:
    """Sums per number of items add up thirds and sevenths exactly, for any split."""
    query = query_of("clusters")
    features = TreeEdges()
    generator = np.random.default_rng(2)
    held = [generator.integers(0, 12, size).tolist() for size in generator.integers(1, 30, 200)]
    noise = AnswerNoise("l1", 1.0, features.coordinates(query).numbers.shape[1])
    protocol = NoisyAnswers(name="tree-laplace", trusted="curator", features=features, noise=noise)
    messages = protocol.messages(query.inputs(held, 1.0), Randomness.seeded(0))
    whole = protocol.tally(Batch("")).add(messages)
    parts = [protocol.tally(Batch("")).add(part) for part in np.array_split(messages, 7)]
    merged = (
        parts[3]
        .merge(parts[0])
        .merge(parts[6].merge(parts[1]))
        .merge(parts[2].merge(parts[5].merge(parts[4])))
    )
    assert merged.to_bytes() == whole.to_bytes()
    assert set(whole.sums) == {len(items) for items in held}
    inputs = query.inputs(held, 1.0)
    assert inputs.sizes is not None
    coordinates = features.coordinates(query)
    exact = ExactAnswers.of(coordinates, inputs.numbers[:, 0], inputs.sizes).total()
    below = Fraction(2) ** coordinates.power
    columns = list(zip(*(row for _, row in sorted(whole.sums.items())), strict=True))
    sizes = sorted(whole.sums)
    added = [
        sum(
            (Fraction(number, size) for number, size in zip(column, sizes, strict=True)),
            Fraction(0),
        )
        / below
        for column in columns
    ]
    assert added == exact
    naive = [
        sum(
            (
                Fraction(sum(int(coordinates.numbers[item][edge]) for item in items), len(items))
                for items in held
            ),
            Fraction(0),
        )
        / below
        for edge in range(coordinates.numbers.shape[1])
    ]
    assert added == naive


def test_a_curators_noise_is_added_once_to_the_exact_sum() -> None:
    """Released cells are one draw of noise on the exact fractions, for users of any size."""
    query = query_of("line")
    features = TreeEdges()
    noise = AnswerNoise(
        "l1", 1e-7, features.coordinates(query).numbers.shape[1]
    )  # far less than a share
    protocol = NoisyAnswers(name="tree-laplace", trusted="curator", features=features, noise=noise)
    held = [[-3], [0, 1, 2], [9] * 7, [4, 4, 5]]
    tally = protocol.tally(Batch("")).add(
        protocol.messages(query.inputs(held, 1.0), Randomness.seeded(1))
    )
    cells = protocol.published(query, tally, Randomness.seeded(2))[0]
    truth = query.people.histograms(held).sum(axis=0) @ features.coordinates(query).table
    np.testing.assert_allclose(noise.middles(cells, 1), truth, atol=3e-6)
    assert protocol.draws(4) == 1


@check_all("draws", [30, 100, 1000])
def test_sums_of_laplace_noise_leave_their_width_as_often_as_said(draws: int) -> None:
    """By the exact law in small steps.

    Normal tails were left twice as often as stated for 1,000 joint intervals.
    """
    law = Polya(Fraction(draws), 0.02)
    noise = AnswerNoise("l1", 1.0, 3)
    table = law.law(-40.0)
    deviation = math.sqrt(law.variance())
    for miss in (0.05, 0.05 / 64, 0.05 / 1000, 0.05 / 4096):
        assert 0.85 * miss < table.beyond(int(noise.width(draws, miss) * deviation)) < 1.02 * miss
