"""Means of columns, labels in sets, means by key: accounts by brute force, answers, bad input."""

import itertools
import json
import math
from collections.abc import Callable, Iterator
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

import metricshuffle as ms
from metricshuffle.errors import InputError, NotCertified
from metricshuffle.planning.consent import consent
from metricshuffle.planning.error_simulation import simulate
from metricshuffle.protocols.features import QueryFeatures
from metricshuffle.protocols.features.query_features import query_features
from metricshuffle.protocols.noisy_vectors import NoisyVectors
from metricshuffle.queries.record_query import RecordQuery
from metricshuffle.randomness import Randomness
from metricshuffle.spaces import KeyedDistance

LABELS = ("a", "b", "c", "d")
CUBE = ms.Interval(-1.0, 1.0)


def all_sets(labels: tuple[str, ...], most: int) -> list[tuple[str, ...]]:
    sizes = range(most + 1)
    return [held for size in sizes for held in itertools.combinations(labels, size)]


def all_holdings(keys: tuple[str, ...], top: int, most: int) -> list[dict[str, int]]:
    return [
        dict(zip(held, numbers, strict=True))
        for held in all_sets(keys, most)
        for numbers in itertools.product(range(top + 1), repeat=len(held))
    ]


QUERIES: dict[str, tuple[RecordQuery, list[Any]]] = {
    "means": (
        ms.Means(["x", "y", "z"], ms.Integers(-1, 2)),
        list(itertools.product(range(-1, 3), repeat=3)),
    ),
    "one column": (ms.Means(["x"], ms.Integers(0, 5)), [[number] for number in range(6)]),
    "sets": (ms.Sets(LABELS, size=2), all_sets(LABELS, 2)),
    "all labels": (ms.Sets(LABELS, size=4), all_sets(LABELS, 4)),
    "keys": (ms.KeyValues(LABELS[:3], ms.Integers(0, 3), 2), all_holdings(LABELS[:3], 3, 2)),
    "all keys": (
        ms.KeyValues(LABELS[:2], ms.Integers(2, 5), 2),
        [
            {key: number + 2 for key, number in held.items()}
            for held in all_holdings(LABELS[:2], 3, 2)
        ],
    ),
}


def features_of(query: RecordQuery) -> QueryFeatures:
    (features,) = query_features(query, 100, 1.0)
    return features


def vectors_of(query: RecordQuery, target: ms.Target, users: int, **choices: Any) -> NoisyVectors:
    protocol = ms.plan(query, target, users=users, protocols=["noisy-vectors"], **choices).protocol
    assert isinstance(protocol, NoisyVectors)
    return protocol


@pytest.mark.parametrize("name", QUERIES)
def test_loss_and_distance_of_all_pairs(name: str) -> None:
    """Slope and diameter are the largest over all pairs of people, in whole numbers."""
    query, people = QUERIES[name]
    features = features_of(query)
    numbers = query.inputs(people, 1.0).numbers
    vectors = features.vectors(query.points, numbers)
    distances = query.between_inputs(numbers, numbers)
    losses = np.abs(vectors[:, None, :] - vectors[None, :, :]).sum(axis=2)
    assert np.array_equal(distances == 0.0, np.eye(len(people), dtype=bool))
    assert float(distances.max()) == query.diameter
    assert float(distances[distances > 0.0].min()) == query.smallest_move
    apart = ~np.eye(len(people), dtype=bool)
    largest = float((losses[apart] / distances[apart]).max())
    slope = features.slope(query.points, np.ones(vectors.shape[1]))
    assert largest <= slope <= largest * (1.0 + 1e-12)
    low, high = features.ranges(query.points)
    assert np.array_equal(low, np.minimum(vectors.min(axis=0), 0))
    assert np.array_equal(high, vectors.max(axis=0))
    triples = itertools.permutations(range(len(people)), 3)
    for first, second, third in itertools.islice(triples, 999):
        assert distances[first, third] <= distances[first, second] + distances[second, third]


@pytest.mark.parametrize("name", QUERIES)
@pytest.mark.parametrize("shape", ["linear", "flat"])
def test_no_pair_of_people_loses_more_than_promised(name: str, shape: Any) -> None:
    """The loss of every pair, by the noise as it is sampled, in exact fractions."""
    query, people = QUERIES[name]
    target = ms.Target(1.0, 0.0, query.diameter, shape)
    protocol = vectors_of(query, target, 50, trusted="curator")
    rates = protocol._exact_rates(query.points)
    numbers = query.inputs(people, 1.0).numbers
    vectors = protocol.features.vectors(query.points, numbers).tolist()
    distances = query.between_inputs(numbers, numbers)
    for first, second in itertools.combinations(range(len(people)), 2):
        changes = [abs(a - b) for a, b in zip(vectors[first], vectors[second], strict=True)]
        products = [rate * change for rate, change in zip(rates, changes, strict=True)]
        loss = sum(products, Fraction(0))
        scale = (
            Fraction(distances[first, second]) / Fraction(query.diameter)
            if shape == "linear"
            else Fraction(1)
        )
        assert loss <= scale


def _laplace(ratio: Fraction, number: int) -> Fraction:
    return (1 - ratio) / (1 + ratio) * ratio ** abs(number)


def _law(row: tuple[Fraction, ...], ratio: Fraction, reach: int) -> Iterator[Fraction]:
    """Law of a row that is rounded at random, column by column, with noise on each column."""
    columns = []
    for value in row:
        below = math.floor(value)
        up = value - below
        columns.append(
            [
                (1 - up) * _laplace(ratio, place - below) + up * _laplace(ratio, place - below - 1)
                for place in range(-reach, reach + 1)
            ]
        )
    return (math.prod(masses, start=Fraction(1)) for masses in itertools.product(*columns))


@pytest.mark.parametrize("ratio", [Fraction(1, 2), Fraction(4, 5)])
def test_rounded_rows_are_mixtures_of_whole_ones(ratio: Fraction) -> None:
    """Rows of 2 numbers in 0..2 units: any two lose at most alpha d T, near ones log1p's bound."""
    grid = [Fraction(number, 3) for number in range(7)]
    rows = list(itertools.product(grid, repeat=2))[::2]
    laws = [list(_law(row, ratio, 4)) for row in rows]
    growth = 1 / ratio - 1  # e^alpha - 1
    for first, second in itertools.permutations(range(len(rows)), 2):
        largest = max(a / b for a, b in zip(laws[first], laws[second], strict=True))
        assert largest <= (1 / ratio) ** 4
        moved = sum(abs(a - b) for a, b in zip(rows[first], rows[second], strict=True))
        assert math.log(largest) <= float(growth * moved) * (1 + 1e-12)


def test_errors_are_those_of_the_design() -> None:
    means = ms.Means(["x", "y", "z"], CUBE)
    shapes: tuple[Any, ...] = ("flat", "linear")
    for shape in shapes:
        protocol = vectors_of(means, ms.Target(1, 1e-6, 6, shape), 10_000)
        noise = protocol.noise(means.points, 10_000)
        errors = np.sqrt(noise.variances) / noise.count * means.step
        assert errors == pytest.approx(np.full(3, 8.5e-4), rel=3e-3)  # with rounding's 1/16 %
        units = protocol.units / protocol.divisor * 2**30
        assert protocol.rates(means.points) == pytest.approx(1 / (3 * units), rel=1e-3)
    sets = ms.Sets([f"label {number}" for number in range(64)], size=5)
    protocol = vectors_of(sets, ms.Target(1, 1e-6, 10), 10_000)
    noise = protocol.noise(sets.points, 10_000)
    assert np.sqrt(noise.variances) / 10_000 == pytest.approx(np.full(64, 0.0014136), rel=1e-4)
    assert protocol.rates(sets.points) == pytest.approx(0.1, rel=1e-6)
    keys = ms.KeyValues(LABELS, ms.Integers(0, 100), 3)
    protocol = vectors_of(keys, ms.Target(1, 1e-6, 300), 1000)
    assert protocol.rates(keys.points) == pytest.approx(1 / 600, rel=1e-6)


def values_of(query: RecordQuery, people: int) -> Any:
    generator = np.random.default_rng(7)
    if isinstance(query, ms.Means):
        return generator.uniform(-1.0, 1.0, (people, 3)) ** 3
    if isinstance(query, ms.Sets):
        return [LABELS[: person % 3] for person in range(people)]
    return [{"a": person % 11, "b": 10} if person % 3 else {} for person in range(people)]


RUN: dict[str, tuple[RecordQuery, ms.Target]] = {
    "means": (ms.Means(["x", "y", "z"], CUBE), ms.Target(1, 1e-6, 6, "flat")),
    "sets": (ms.Sets(LABELS, size=2), ms.Target(1, 1e-6, 4)),
    "keys": (ms.KeyValues(LABELS, ms.Integers(0, 10), 2), ms.Target(2, 1e-6, 20, "flat")),
}


@pytest.mark.parametrize("name", RUN)
@pytest.mark.parametrize("trusted", ["shuffler", "curator", "nobody", "aggregator"])
def test_all_roles_end_to_end(name: str, trusted: Any) -> None:
    query, target = RUN[name]
    plan = ms.plan(query, target, users=900, trusted=trusted, protocols=["noisy-vectors"])
    task = ms.Task.from_json(plan.task.to_json())
    task.verify()
    assert task.query == query
    values = values_of(query, 900)
    release = plan.run(values, randomness=Randomness.seeded(11))
    again = ms.Release.from_json(release.to_json())
    truth = query.true_totals(query.inputs(values, 1.0).numbers)
    low, high = release.estimate.interval(0.9999)
    assert np.all((low <= truth + 1e-9) & (truth <= high + 1e-9))
    assert len(again.value) == query.rows
    assert list(again.value["label"]) == [row["label"] for row in release.value]
    assert release.value.to_frame("pandas").shape[0] == query.rows
    pairs = np.asarray(release.interval(0.95, simultaneous=True))
    assert np.all(pairs[:, 0] <= pairs[:, 1])
    assert "95 % interval" in str(release)
    assert "You give one answer: " in consent(task).text


@pytest.mark.parametrize("name", RUN)
def test_reports_are_shuffled_and_estimated_apart(name: str) -> None:
    query, target = RUN[name]
    task = ms.plan(query, target, users=400).task
    reports = task.randomize(values_of(query, 400), Randomness.seeded(3))
    shuffled = task.shuffle([reports])
    release = task.estimate(shuffled)
    assert release.shuffled.people == 400
    assert len(release.value) == query.rows


@pytest.mark.parametrize("name", RUN)
def test_a_weaker_task_is_refused(name: str) -> None:
    """Less noise, a larger set or a longer range than the noise is made for."""
    query, target = RUN[name]
    task = ms.plan(query, target, users=400).task

    def changed(**parts: dict[str, Any]) -> ms.Task:
        stored = json.loads(task.to_json())
        for part, fields in parts.items():
            stored[part].update(fields)
        stored.pop("digest", None)
        return type(task).model_validate(stored)

    assert isinstance(task.protocol, NoisyVectors)
    mutants: list[dict[str, dict[str, Any]]] = [
        {"protocol": {"factor": task.protocol.factor * 1.01}},
        {"protocol": {"sharers": task.protocol.sharers + 1}},
        {"protocol": {"shares": task.protocol.shares - 2}},
    ]
    if isinstance(query, ms.Means):
        mutants.append({"query": {"columns": ["x", "y", "z", "u"]}})
        mutants.append({"query": {"step": query.step * 2}})
    elif isinstance(query, ms.Sets):
        mutants.append({"query": {"size": 3}})
    else:
        mutants.append({"query": {"domain": {"kind": "integers", "low": 0, "high": 20}}})
    for mutant in mutants:
        with pytest.raises((NotCertified, InputError, ms.MetricShuffleError)):
            changed(**mutant).verify()


def coverage(query: RecordQuery, target: ms.Target, values: Any, runs: int) -> np.ndarray:
    """Share of releases whose 95 % intervals hold the truth, by row."""
    people = len(values)
    protocol = vectors_of(query, target, people, honest=0.9)
    features = protocol.features
    assert isinstance(features, QueryFeatures)
    numbers = query.inputs(values, 1.0).numbers
    sums = features.vectors(query.points, numbers).sum(axis=0)
    noise = protocol.noise(query.points, people)
    truth = query.true_totals(numbers)
    generator = np.random.default_rng(5)
    missed = -np.expm1(-noise.rates)
    covered = np.zeros(len(truth))
    for _ in range(runs):
        draws = [generator.negative_binomial(float(noise.shape), missed) for _ in range(2)]
        rounded = generator.binomial(noise.rounded, 0.5, len(sums)) - 0.5 * noise.rounded
        means = sums / people + (draws[0] - draws[1] + rounded) / noise.count
        low, high = features.estimate(query, means, noise, people).interval(0.95)
        covered += (low <= truth + 1e-9) & (truth - 1e-9 <= high)
    return covered / runs


COVERED: dict[str, Callable[[], tuple[RecordQuery, ms.Target, Any]]] = {
    "constant columns": lambda: (
        ms.Means(["x", "y"], CUBE),
        ms.Target(1, 1e-6, 4, "flat"),
        [[1.0, -0.25]] * 300,
    ),
    "empty sets": lambda: (ms.Sets(LABELS, size=2), ms.Target(1, 1e-6, 4), [()] * 300),
    "the same set": lambda: (ms.Sets(LABELS, size=4), ms.Target(1, 1e-6, 4), [LABELS] * 300),
    "a key of nobody and of one": lambda: (
        ms.KeyValues(LABELS, ms.Integers(0, 100), 2),
        ms.Target(2, 1e-6, 200, "flat"),
        [{"a": 30, "b": 100}] * 299 + [{"c": 7}],
    ),
}


@pytest.mark.parametrize("name", COVERED)
def test_intervals_cover(name: str) -> None:
    query, target, values = COVERED[name]()
    assert coverage(query, target, values, 60).min() >= 0.85


@pytest.mark.slow
@pytest.mark.parametrize("name", COVERED)
def test_intervals_cover_in_95_of_100_releases(name: str) -> None:
    query, target, values = COVERED[name]()
    assert coverage(query, target, values, 4000).min() >= 0.94


@pytest.mark.parametrize("name", RUN)
def test_planned_errors_are_measured(name: str) -> None:
    query, target = RUN[name]
    plan = ms.plan(query, target, users=900)
    simulation = simulate(plan, 400)
    assert simulation.mean_absolute_error == pytest.approx(
        plan.choice.expected_error, abs=5 * simulation.standard_error, rel=0.03
    )
    assert simulation.coverage_95 is not None
    assert simulation.coverage_95 >= 0.93


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: ms.Means([], CUBE), "at least one name"),
        (lambda: ms.Means(["x", "x"], CUBE), "all different"),
        (lambda: ms.Means("xy", CUBE), "a list of names"),
        (lambda: ms.Means(["x"], ms.Categories(["a"])), "Integers or an Interval"),
        (lambda: ms.Means(["x"], ms.Integers(0, 9), step=2), "(in Python: step)"),
        (lambda: ms.Means(["x"], CUBE).inputs([[1.5]], 1.0), "lies above it, in 'x'"),
        (lambda: ms.Means(["x", "y"], CUBE).inputs([[1.0]], 1.0), "rows of 2 numbers"),
        (lambda: ms.Means(["x"], CUBE).inputs([[math.nan]], 1.0), "not a number (NaN)"),
        (lambda: ms.Means(["x"], ms.Integers(0, 9)).inputs([[0.5]], 1.0), "not a whole number"),
        (lambda: ms.Sets(LABELS, size=5), "between 1 and the number of labels, 4"),
        (lambda: ms.Sets(LABELS, size=0), "between 1 and the number of labels, 4"),
        (lambda: ms.Sets([], size=1), "at least one"),
        (lambda: ms.Sets(LABELS, size=2).inputs([["a", "b", "c"]], 1.0), "holds 3 labels, more"),
        (lambda: ms.Sets(LABELS, size=2).inputs([["a"], ["z"]], 1.0), "row 1 (counting from 0)"),
        (lambda: ms.Sets(LABELS, size=2).inputs(["ab"], 1.0), "must be a list of labels"),
        (lambda: ms.Sets(LABELS, size=2).inputs([[3]], 1.0), "which are text"),
        (lambda: ms.Sets(LABELS, size=2).inputs([None], 1.0), "must be a list of labels"),
        (lambda: ms.KeyValues(LABELS, CUBE, 2), "the unit that numbers are rounded to"),
        (lambda: ms.KeyValues(LABELS, ms.Integers(0, 9), 9), "between 1 and the number of keys"),
        (
            lambda: ms.KeyValues(LABELS, ms.Integers(0, 9), 2).inputs([{"a": 10}], 1.0),
            "has a number that lies above it",
        ),
        (
            lambda: ms.KeyValues(LABELS, ms.Integers(0, 9), 2).inputs([{"q": 1}], 1.0),
            "'q', which is not one of the keys",
        ),
        (
            lambda: ms.KeyValues(LABELS, ms.Integers(0, 9), 1).inputs([{"a": 1, "b": 1}], 1.0),
            "holds 2 keys, more than 1",
        ),
        (
            lambda: ms.KeyValues(LABELS, ms.Integers(0, 9), 2).inputs([[("a", 1), ("a", 2)]], 1.0),
            "'a' more than once",
        ),
        (
            lambda: ms.KeyValues(LABELS, ms.Integers(0, 9), 2).inputs([3], 1.0),
            "must be a dictionary",
        ),
        (
            lambda: ms.plan(ms.Sets(LABELS, size=2), ms.Target(1, 1e-6, 5), users=9),
            "must lie between the smallest change, 1 label, and 4 labels",
        ),
        (
            lambda: ms.plan(
                ms.Sets(LABELS, size=2), ms.Target(1, 1e-6, 4, label_epsilon=1), users=9
            ),
            "label_epsilon is for means by group",
        ),
    ],
)
def test_bad_input_is_a_sentence(make: Callable[[], object], sentence: str) -> None:
    with pytest.raises(InputError) as error:
        make()
    assert sentence in str(error.value)


def test_numbers_are_clamped_and_keys_are_not() -> None:
    rows = ms.Means(["x"], CUBE).inputs([[7.0], [-7.0]], 1.0, clamp=True).numbers
    assert rows.ravel().tolist() == [2**30, 0]
    query = ms.KeyValues(LABELS, ms.Integers(0, 9), 2)
    assert query.inputs([{"b": 70, "a": -2}], 1.0, clamp=True).numbers.tolist() == [[0, 19]]
    with pytest.raises(InputError, match="which is not one of the keys"):
        query.inputs([{"q": 1}], 1.0, clamp=True)


def test_sets_are_sets_and_arrays_are_taken() -> None:
    query = ms.Sets(LABELS, size=2)
    rows = query.inputs([["b", "a", "b"], [], {"d"}, np.array(["c"])], 1.0).numbers
    assert rows.tolist() == [[0, 1], [-1, -1], [3, -1], [2, -1]]


def test_the_distance_of_keys_is_half_the_range_for_a_key_of_one() -> None:
    metric = KeyedDistance(2.5)
    people = np.array([[[0.0, 3.0], [-1.0, 0.0]], [[0.0, 5.0], [1.0, 0.0]], [[-1, 0], [-1, 0]]])
    assert metric.pairwise(people, people).tolist() == [
        [0.0, 4.5, 2.5],
        [4.5, 0.0, 5.0],
        [2.5, 5.0, 0.0],
    ]
