"""Single reports of records: marks in exact laws, all roles, mutants, and coverage."""

import itertools
import json
from typing import Any

import numpy as np
import pytest

import metricshuffle as ms
from metricshuffle.errors import InputError
from metricshuffle.planning.error_simulation import simulate
from metricshuffle.protocols.record_reports import Marks, RecordReports
from metricshuffle.queries.record_query import RecordQuery
from metricshuffle.randomizers.corner_vectors import Duchi, Harmony
from metricshuffle.randomizers.key_values import PrivKV
from metricshuffle.randomizers.randomizer import Randomizer
from metricshuffle.randomizers.subsets import SubsetExponential
from metricshuffle.randomness import Randomness

LABELS = ("a", "b", "c", "d")
QUERIES: dict[str, RecordQuery] = {
    "duchi": ms.Means(["x", "y", "z"], ms.Interval(-1.0, 1.0)),
    "harmony": ms.Means(["x", "y"], ms.Integers(0, 20)),
    "priv-set": ms.Sets(LABELS, size=2),
    "priv-kv": ms.KeyValues(LABELS[:3], ms.Integers(0, 10), 2),
}


def marks_of(randomizer: Randomizer) -> np.ndarray:
    """Marks of each report, one row each."""
    if isinstance(randomizer, Duchi):
        return (randomizer.values_of(np.arange(randomizer.outputs)) > 0).astype(float)
    if isinstance(randomizer, SubsetExponential):
        rows = np.zeros((randomizer.outputs, randomizer.options))
        sets = itertools.combinations(range(randomizer.options), randomizer.size)
        for row, members in enumerate(sets):
            rows[row, list(members)] = 1.0
        return rows
    return np.eye(randomizer.outputs)


@pytest.mark.parametrize("epsilon", [0.2, 1.0, 4.0])
def test_marks_estimate_every_input_within_the_stated_variance(epsilon: float) -> None:
    for randomizer in (
        Duchi(1, epsilon),
        Duchi(3, epsilon),
        Duchi(4, epsilon),
        Harmony(3, epsilon),
        SubsetExponential(6, 2, epsilon),
        SubsetExponential(5, 1, epsilon, 2),
        PrivKV(3, epsilon, epsilon / 2, 2),
    ):
        marks = Marks.of(randomizer)
        answers = marks_of(randomizer) @ marks.factors.T + marks.offset
        targets = randomizer.targets()
        if isinstance(randomizer, SubsetExponential):
            targets = targets[:, : randomizer.options - randomizer.held]
        if isinstance(randomizer, PrivKV):
            presence, value = np.split(targets, 2, axis=1)
            targets = np.hstack([presence + value, presence - value]) / 2
        law = randomizer.rows()
        assert law @ answers == pytest.approx(targets, abs=1e-9)
        variances = law @ answers**2 - targets**2
        assert np.all(variances <= marks.variances * (1 + 1e-9))
        spans = answers.max(axis=0) - answers.min(axis=0)
        assert np.all(spans <= marks.spans * (1 + 1e-9))


@pytest.mark.parametrize("name", QUERIES)
def test_all_roles_of_one_report_each(name: str) -> None:
    query = QUERIES[name]
    target = ms.Target(2.0, 1e-6, query.diameter, "flat")
    plan = ms.plan(query, target, users=2000, protocols=[name])
    assert plan.protocol.trusted == "shuffler"
    task = ms.Task.from_json(plan.task.to_json())
    task.verify()
    inputs = query.even_inputs(2000, np.random.default_rng(3))
    truth = query.true_totals(inputs.numbers)
    messages = task.protocol.messages(inputs, Randomness.seeded(5))
    assert messages.shape == (2000, task.protocol.layout.numbers)
    values: Any = {  # type: ignore[no-untyped-call]
        "duchi": lambda: np.full((2000, 3), 0.25),
        "harmony": lambda: np.full((2000, 2), 7),
        "priv-set": lambda: [("a", "b"), (), ("c",), ("a",)] * 500,
        "priv-kv": lambda: [{"a": 3, "b": 10}, {}, {"a": 5}, {"c": 0}] * 500,
    }[name]()
    release = plan.run(values, randomness=Randomness.seeded(1))
    truth = query.true_totals(query.inputs(values, 1.0).numbers)
    low, high = release.estimate.interval(0.9999, method="bernstein")
    assert np.all((low <= truth + 1e-9) & (truth <= high + 1e-9))
    assert ms.Release.from_json(release.to_json()).value["label"] == release.value["label"]
    simulation = simulate(plan, 20)
    assert simulation.coverage_95 is not None
    assert simulation.coverage_95 >= 0.9
    ratio = simulation.mean_absolute_error / plan.choice.expected_error
    assert 0.6 <= ratio <= 1.3


def test_strengths_are_those_of_the_design() -> None:
    query = QUERIES["duchi"]
    target = ms.Target(1, 1e-6, 6, "flat")
    for name in ("duchi", "harmony"):
        plan = ms.plan(query, target, users=10_000, protocols=[name])
        assert plan.choice.local_epsilon == pytest.approx(5.667, rel=1e-3)
    plan = ms.plan(query, target, users=10_000, protocols=["duchi"])
    deviation = plan.choice.expected_error * np.sqrt(np.pi / 2)
    assert deviation == pytest.approx(0.0201, rel=5e-3)


@pytest.mark.parametrize("name", QUERIES)
def test_a_stronger_report_or_another_size_is_refused(name: str) -> None:
    query = QUERIES[name]
    target = ms.Target(2.0, 1e-6, query.diameter, "flat")
    task = ms.plan(query, target, users=1000, protocols=[name]).task
    assert isinstance(task.protocol, RecordReports)
    field = "key_epsilon" if name == "priv-kv" else "epsilon"
    size = {"priv-set": "held", "priv-kv": "held"}.get(name, "dimensions")
    mutants: list[dict[str, Any]] = [
        {field: getattr(task.protocol.randomizer, field) * 1.1},
        {size: getattr(task.protocol.randomizer, size) - 1},
    ]
    for mutant in mutants:
        stored = json.loads(task.to_json())
        stored["protocol"]["randomizer"].update(mutant)
        stored.pop("digest", None)
        with pytest.raises(ms.MetricShuffleError):
            type(task).model_validate(stored).verify()


def test_near_records_are_promised_nothing_better() -> None:
    query = QUERIES["priv-set"]
    with pytest.raises(ms.MetricShuffleError, match="flat promises only"):
        ms.plan(query, ms.Target(2, 1e-6, 4), users=1000, protocols=["priv-set"])
    plan = ms.plan(query, ms.Target(2, 0.0, 4, "flat"), users=1000, trusted="nobody")
    assert {offer.protocol for offer in plan.candidates} >= {"priv-set", "noisy-vectors"}


def test_many_keys_are_too_many_for_pairs_and_say_so() -> None:
    query = ms.KeyValues([str(key) for key in range(40)], ms.Integers(0, 9), 5)
    target = ms.Target(1, 1e-6, 45, "flat")
    plan = ms.plan(query, target, users=1000)
    (row,) = [row for row in plan.not_offered if row.protocol == "priv-kv"]
    assert "it cannot have less error than noisy-vectors" in row.reason
    with pytest.raises(ms.MetricShuffleError, match="too many to compare in pairs"):
        ms.plan(query, target, users=1000, protocols=["priv-kv"])


def test_foreign_messages_are_refused() -> None:
    query = QUERIES["priv-set"]
    target = ms.Target(2.0, 1e-6, query.diameter, "flat")
    protocol = ms.plan(query, target, users=1000, protocols=["priv-set"]).protocol
    rows = np.zeros((3, protocol.layout.numbers), dtype=np.uint8)
    if protocol.layout.numbers > 1:
        with pytest.raises(InputError, match="no mark twice"):
            protocol.counted(rows)
    with pytest.raises(InputError):
        protocol.counted(rows + np.uint8(200))


@pytest.mark.slow
@pytest.mark.parametrize("name", QUERIES)
def test_intervals_of_reports_cover(name: str) -> None:
    query = QUERIES[name]
    target = ms.Target(2.0, 1e-6, query.diameter, "flat")
    plan = ms.plan(query, target, users=1000, protocols=[name])
    coverage = simulate(plan, 2000).coverage_95
    assert coverage is not None
    assert coverage >= 0.945
