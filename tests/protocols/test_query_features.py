"""Users' linear queries through the shuffler: columns as features, with a readout of means."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from tests.tables import check_all

import metricshuffle as ms
from metricshuffle.errors import InputError, NotCertified, PlanError
from metricshuffle.noise.random_rounding import round_quotients
from metricshuffle.protocols.features import TableColumns, space_of
from metricshuffle.protocols.noisy_vectors import NoisyVectors
from metricshuffle.randomness import Randomness
from metricshuffle.spaces.users import users_of
from metricshuffle.tasks.task import Task

MEAN = ms.UserLinearQuery.average(ms.Users(ms.Space(ms.Integers(0, 100)), 5))
ANY_ITEMS = ms.UserLinearQuery.average(users_of(ms.Integers(0, 100)))
COLUMNS = ms.UserLinearQuery(
    users_of(ms.Integers(0, 20)),
    np.column_stack([np.sqrt(np.arange(21.0)), 1e4 * np.arange(21.0) ** 2, np.arange(21.0) % 2]),
    ("root", "square", "odd"),
)


def vectors_of(query: ms.UserLinearQuery) -> NoisyVectors:
    plan = ms.plan(query, ms.Target(2.0, 1e-6, 10.0), users=1000, protocols=["noisy-vectors"])
    protocol = plan.task.protocol
    assert isinstance(protocol, NoisyVectors)
    return protocol


def test_the_mean_of_five_items_is_as_exact_as_a_curator() -> None:
    """Closed form: discrete Laplace noise of rate 0.04 on a sum over 5,000 items."""
    for honest, error in ((1000, 0.004998666916), (900, 0.00532996), (500, 0.00749900)):
        plan = ms.plan(MEAN, ms.Target(2.0, 1e-6, 10.0), users=1000, honest=honest)
        assert plan.choice.protocol == "noisy-vectors"
        assert plan.choice.expected_error == pytest.approx(error, rel=3e-6)
        plan.task.verify()


def test_means_of_any_number_of_items() -> None:
    plan = ms.plan(ANY_ITEMS, ms.Target(2.0, 1e-6, 10.0), users=200)
    generator = np.random.default_rng(1)
    people = [generator.integers(0, 101, size=size).tolist() for size in [1_794, *range(1, 200)]]
    truth = float(np.mean([np.mean(items) for items in people]))
    releases = [plan.run(people, Randomness.seeded(seed)) for seed in range(12)]
    errors = np.array([release.value - truth for release in releases])
    assert np.abs(errors).mean() == pytest.approx(plan.choice.expected_error, rel=0.8)
    ends = [release.interval(0.95) for release in releases]
    assert sum(low <= truth <= high for low, high in ends) >= 10


def test_columns_of_very_different_sizes_share_their_noise() -> None:
    protocol = vectors_of(COLUMNS)
    features = protocol.features
    assert isinstance(features, TableColumns)
    table = np.array(features.offsets) + np.array(features.scales) * np.array(features.numbers)
    np.testing.assert_allclose(table, COLUMNS.table, atol=1e-9 * np.abs(COLUMNS.table).max())
    plan = ms.plan(COLUMNS, ms.Target(2.0, 1e-6, 10.0), users=1000)
    release = plan.run([[4], [4, 16]] * 500, Randomness.seeded(3))
    low, high = np.array(release.interval(0.95, simultaneous=True)).T
    truth = np.array([2.5, 1e4 * (16 + 136) / 2, 0.0])
    assert np.all((low <= truth) & (truth <= high))


def test_items_lose_no_more_than_their_distance() -> None:
    """Every pair of users of up to three items: sums with exact roundings and noise."""
    query = ms.UserLinearQuery(users_of(ms.Integers(0, 2)), np.array([0.0, 0.3, 1.0]))
    plan = ms.plan(
        query, ms.Target(3.0, 0.0, 2.0), users=4, trusted="aggregator", protocols=["noisy-vectors"]
    )
    protocol = plan.task.protocol
    assert isinstance(protocol, NoisyVectors)
    rate = float(protocol.rates(space_of(query))[0])
    numbers = np.array(protocol.features.model_dump()["numbers"]).ravel()
    around = np.arange(-40, 40 + int(numbers.max()) * protocol.units // protocol.divisor)
    users = [
        items
        for size in (1, 2, 3)
        for items in itertools.combinations_with_replacement(range(3), size)
    ]

    def law(items: tuple[int, ...]) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
        ratio = (
            protocol.units
            * sum(int(numbers[item]) for item in items)
            / (len(items) * protocol.divisor)
        )
        low = math.floor(ratio)
        part = ratio - low
        return (1.0 - part) * np.exp(-rate * np.abs(around - low)) + part * np.exp(
            -rate * np.abs(around - low - 1)
        )

    worst = 0.0
    for left, right in itertools.combinations(users, 2):
        loss = float(np.abs(np.log(law(left) / law(right))).max())
        distance = query.people.distance(list(left), list(right))
        assert loss <= 1.5 * distance * (1.0 + 1e-9) + 1e-9
        worst = max(worst, loss / distance) if distance > 1e-9 else worst
    assert worst > 0.9 * 1.5
    np.testing.assert_array_equal(law((1,)), law((1, 1)))


def test_quotients_are_rounded_exactly() -> None:
    numerators = np.array([[7, 0, 12], [2**51, 5, 3]])
    denominators = np.array([4, 2**50])
    drawn = np.array(
        [
            round_quotients(numerators, denominators, 3, Randomness.seeded(seed))
            for seed in range(400)
        ]
    )
    exact = 3 * numerators / denominators[:, None]
    assert np.all((drawn == np.floor(exact)) | (drawn == np.ceil(exact)))
    assert drawn[:, 0, 0].mean() == pytest.approx(5.25, abs=0.1)
    assert np.all(drawn[:, 0, 2] == 9)
    assert np.all(drawn[:, 1, 0] == 6)
    huge = round_quotients(np.array([[2**50 - 1]]), np.array([2**50]), 2**30, Randomness.seeded(1))
    assert huge[0, 0] in (2**30 - 1, 2**30)


def test_uniform_integers_below_each_bound() -> None:
    bounds = np.array([1, 2, 3, 2**62 + 1, 2**63 - 1])
    drawn = np.array([Randomness.seeded(seed).below_each(bounds) for seed in range(300)])
    assert np.all((drawn >= 0) & (drawn < bounds))
    assert set(drawn[:, 2].tolist()) == {0, 1, 2}
    np.testing.assert_allclose(drawn[:, 3:].mean(axis=0) / bounds[3:], 0.5, atol=0.08)
    with pytest.raises(InputError, match="bounds"):
        Randomness.seeded(0).below_each(np.array([0]))


def test_a_constant_column_is_refused_with_its_name() -> None:
    query = ms.UserLinearQuery(
        users_of(ms.Integers(0, 2)), np.array([[0.0, 1.0], [1.0, 1.0], [2.0, 1.0]]), ("a", "b")
    )
    with pytest.raises(InputError, match="b is the same at every point"):
        ms.plan(query, ms.Target(1.0, 1e-6, 1.0), users=100, protocols=["noisy-vectors"])


def test_columns_that_vanish_next_to_others_are_refused() -> None:
    numbers = np.arange(5.0)
    query = ms.UserLinearQuery(
        users_of(ms.Integers(0, 4)), np.column_stack([1e-300 * numbers, 6e288 * numbers**2])
    )
    with pytest.raises(InputError, match=r"column 0 .* changes too little next to the others"):
        ms.plan(query, ms.Target(1.0, 1e-6, 1.0), users=100, protocols=["noisy-vectors"])


def many_points() -> list[ms.UserLinearQuery]:
    """Linear functions of vectors and distances on the globe, on too many points for all pairs."""
    generator = np.random.default_rng(8)
    rows = np.concatenate([generator.normal(size=(5_001, 4)), generator.normal(size=(99, 4)) * 0.1])
    labels = ms.Categories([f"w{index}" for index in range(len(rows))])
    words = users_of(ms.Space(labels, ms.Vectors(rows)))
    mapped = rows @ generator.normal(size=(4, 3)) * (1.0, 1e-3, 20.0)
    places = np.column_stack(
        [generator.uniform(-89, 89, len(rows)), generator.uniform(-180, 180, len(rows))]
    )
    globe = users_of(ms.Space(labels, ms.GreatCircle(places)))
    return [ms.UserLinearQuery(words, mapped), ms.UserLinearQuery.distance_to(globe, ["w3", "w7"])]


@check_all("query", many_points())
def test_slopes_of_many_points_are_those_of_all_pairs_or_more(query: ms.UserLinearQuery) -> None:
    """Against pairs along each column in turn, where the largest quotients are."""
    space = query.points
    for features in TableColumns.offered_for(query, 1000, 1.0):
        rates = features.weights(space)
        moved = np.array(features.numbers) * rates
        certified = features.slope(space, rates)
        largest = 0.0
        for first in range(0, len(moved), 60):
            apart = np.asarray(space.metric.pairwise([first], range(len(moved))))[0]
            apart[first] = np.inf
            largest = max(largest, float((np.abs(moved - moved[first]).sum(axis=1) / apart).max()))
        assert largest <= certified <= 2.0 * largest


def test_many_points_have_a_protocol_through_the_shuffler() -> None:
    """As exact as a curator's Laplace noise, and a task with less noise is refused."""
    for query in many_points():
        plan = ms.plan(query, ms.Target(1.0, 1e-6, 1.0), users=1000)
        assert plan.choice.protocol == "noisy-vectors"
        laplace = next(
            offer
            for offer in plan.candidates
            if offer.trusted == "curator" and offer.protocol == "laplace"
        )
        assert plan.choice.expected_error <= 1.01 * laplace.expected_error
        plan.task.verify()
        protocol = plan.task.protocol
        assert isinstance(protocol, NoisyVectors)
        louder = protocol.model_copy(update={"factor": protocol.factor * 1.01})
        with pytest.raises(NotCertified):
            plan.task.model_copy(update={"protocol": louder}).verify()


def test_features_of_another_query_are_refused() -> None:
    task = ms.plan(MEAN, ms.Target(2.0, 1e-6, 10.0), users=1000).task
    protocol = task.protocol
    assert isinstance(protocol, NoisyVectors)
    for query in (COLUMNS, ms.UserHistogram(MEAN.people)):
        with pytest.raises(PlanError):
            protocol.check(query)
    damaged = protocol.model_copy(update={"divisor": 2})
    with pytest.raises(NotCertified, match="another number of items"):
        Task.of(MEAN, damaged, ms.Target(2.0, 1e-6, 10.0), 1000)
