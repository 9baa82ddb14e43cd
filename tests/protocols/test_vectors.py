"""Noisy vectors, all roles: what is added up is what was held and the noise, what is claimed is what the noise gives."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest

import metricshuffle as ms
from metricshuffle.errors import BatchTooSmall, InputError, MetricShuffleError, NotCertified, PlanError
from metricshuffle.planning.plan import Plan
from metricshuffle.protocols.base import Reports
from metricshuffle.protocols.features import Cells, Ramps, ShiftedBoxes, space_of
from metricshuffle.protocols.vectors import NoisyVectors, feature_table
from metricshuffle.randomizers import BoundedGeometric
from metricshuffle.randomness import Randomness
from metricshuffle.spaces import users_of
from metricshuffle.wire.task import Task

LINE = ms.Histogram(ms.Integers(0, 15))
TARGET = ms.Target(2.0, 1e-6, 4.0)


def plan_of(query: ms.Query, target: ms.Target = TARGET, users: int = 200, **more: Any) -> Plan:
    return ms.plan(query, target, users, protocols=["noisy-vectors"], **more)


@pytest.fixture(scope="module")
def line() -> Plan:
    return plan_of(LINE, floor=False)


@pytest.fixture(scope="module")
def floored() -> Plan:
    return plan_of(LINE)


def test_sums_are_those_of_the_features_and_the_noise(line: Plan) -> None:
    """With next to no noise the sums are the features; and residues add up to the same for every split of the people."""
    protocol = line.protocol
    assert isinstance(protocol, NoisyVectors)
    quiet = protocol.model_copy(update={"factor": 600.0})
    values = np.arange(200) % 16
    messages = quiet.messages(LINE.inputs(values, 1.0), Randomness.seeded(1))
    expected = feature_table(protocol.features, space_of(LINE))[values].sum(axis=0)
    np.testing.assert_array_equal(quiet.counted(messages)[0], expected)
    whole = quiet.tally(line.task.batch()).add(messages)
    parts = quiet.tally(line.task.batch()).add(messages[:77]).merge(quiet.tally(line.task.batch()).add(messages[77:]))
    assert whole.to_bytes() == parts.to_bytes()


def test_noise_has_the_variance_that_is_said(line: Plan) -> None:
    protocol, query = line.protocol, LINE
    assert isinstance(protocol, NoisyVectors)
    values, sums = np.zeros(200, dtype=np.int64), []
    for seed in range(300):
        shuffled = line.task.publish(line.task.counted([values], Randomness.seeded(seed)))
        most = feature_table(protocol.features, space_of(query)).max(axis=0).toarray().ravel() * 200
        sums.append([protocol.packed.centred(number, 0, int(top)) for number, top in zip(shuffled.numbers, most, strict=True)])
    off = np.array(sums) / 200.0 - feature_table(protocol.features, space_of(query)).toarray()[0]
    found = np.sqrt((off**2).mean())
    # kurtosis 6 over 300 * 8 or more numbers: 5 standard errors are 12 %
    assert found == pytest.approx(float(np.sqrt((protocol.errors(query, 200) ** 2).mean())), rel=0.15)


@pytest.mark.parametrize("floor", [False, True])
def test_all_roles_give_shares_near_the_truth(floor: bool) -> None:
    made = plan_of(ms.Histogram(ms.Integers(0, 15)), users=2000, floor=floor)
    values = np.minimum(np.abs(np.random.default_rng(3).normal(5, 2, 2000)).astype(int), 15)
    release = made.estimate(made.shuffle(made.randomize(values)))
    shares = np.asarray(release.value["share"])
    truth = np.bincount(values, minlength=16) / 2000
    assert shares.sum() == pytest.approx(1.0)
    assert shares.min() >= 0.0
    assert np.abs(np.cumsum(shares - truth)).mean() < 6.0 * made.choice.expected_error * 2
    assert release.guarantee.protects == "people together"


def test_a_curator_adds_the_noise_once() -> None:
    made = plan_of(LINE, trusted="curator")
    assert made.choice.trusted == "curator"
    values = np.full(200, 3)
    release = made.run(values)
    assert np.asarray(release.value["share"])[3] > 0.5
    with pytest.raises(PlanError, match="curator"):
        made.randomize(values)


def test_somebody_who_only_adds_gets_one_vector() -> None:
    made, mixed = plan_of(LINE, trusted="aggregator", floor=False), plan_of(LINE, floor=False)
    assert made.choice.trusted == "aggregator"
    assert made.choice.guarantee.delta == 0.0
    assert made.choice.bits_per_user < mixed.choice.bits_per_user / 3
    release = made.run(np.full(200, 3))
    assert np.asarray(release.value["share"])[3] > 0.5


def test_what_a_colluding_shuffler_reads_is_said(line: Plan, floored: Plan) -> None:
    assert line.if_shuffler_colludes.epsilon > 10.0
    assert "in effect no protection" in str(line)
    assert floored.if_shuffler_colludes.epsilon <= 10.0
    assert "in effect no protection" not in str(floored)
    capped = plan_of(LINE, max_local_epsilon=3.0)
    assert capped.if_shuffler_colludes.epsilon <= 3.0
    assert capped.choice.expected_error >= floored.choice.expected_error * 0.9
    rows = {(offer.trusted, offer.baseline): offer.local_epsilon for offer in floored.candidates}
    assert set(rows) == {("shuffler", False), ("shuffler", True), ("curator", True)}  # both rows are shown


def test_people_with_different_numbers_of_items() -> None:
    query = ms.UserHistogram(users_of(ms.Integers(0, 7)))
    made = plan_of(query, ms.Target(2.0, 1e-6, 1.0), users=100, most_items=6, floor=False)
    generator = np.random.default_rng(0)
    people = [generator.integers(0, 4, size=size).tolist() for size in generator.integers(1, 7, size=100)]
    with pytest.raises(InputError, match="most-items"):
        plan_of(query, ms.Target(2.0, 1e-6, 1.0), users=100)
    made.task.verify()
    release = made.estimate(made.shuffle(made.randomize(people)))
    assert np.asarray(release.value["share"])[:4].sum() > 0.6
    with pytest.raises(InputError, match="counts on 6 at the most"):
        made.randomize([*people[:-1], [1] * 7])
    with pytest.raises(InputError, match="no items"):
        made.randomize([*people[:-1], []])
    # a floor under different numbers of items would give the numbers away
    both = plan_of(query, ms.Target(2.0, 1e-6, 1.0), users=100, most_items=6)
    assert all(getattr(offer.mechanism, "floor", None) is None for offer in both.candidates)


def test_flat_promises_use_the_exact_law() -> None:
    """Far moves cross many thresholds, whose losses add up like a random walk once a delta is allowed."""
    query = ms.Histogram(ms.Integers(0, 99))
    flat = plan_of(query, ms.Target(1.0, 1e-6, 99.0, "flat"), users=40_000, floor=False)
    pure = plan_of(query, ms.Target(1.0, 1e-6, 99.0), users=40_000, floor=False)
    flat.task.verify()
    assert flat.guarantee.protects == "one person"
    assert (flat.choice.rate or 0.0) > 1.5 * (pure.choice.rate or 1.0)


def test_tasks_survive_files_and_claim_no_more_than_is_true(line: Plan, floored: Plan) -> None:
    for made in (line, floored):
        read = Task.from_json(made.task.to_json())
        assert read == made.task
        read.verify()


@pytest.mark.parametrize(
    "forged",
    [
        {"factor": 1.001},
        {"sharers": 2},
        {"units": 2},
        {"coordinates": 1},
        {"modulus": 2**5},
        {"modulus": 1000},
        {"modulus": None},
        {"features": Cells()},
        {"features": Ramps(5)},
        {"features": ShiftedBoxes(2)},
        {"shares": 3},
        {"shares": 1},
        {"together": 40},
        {"most_items": 3},
        {"floor": BoundedGeometric(14, 0.3)},
        {"trusted": "aggregator"},
        {"trusted": "nobody"},
        {"trusted": "curator"},
    ],
    ids=str,
)
def test_forged_vectors_are_not_certified(line: Plan, forged: dict[str, Any]) -> None:
    protocol = line.protocol
    assert isinstance(protocol, NoisyVectors)
    if "factor" in forged:
        forged = {"factor": protocol.factor * forged["factor"]}
    if "sharers" in forged:
        forged = {"sharers": protocol.sharers * 2}
    other = protocol.model_copy(update=forged)
    with pytest.raises(MetricShuffleError):
        line.task.model_copy(update={"protocol": other}).verify()


def test_a_floor_that_hides_less_is_not_certified(floored: Plan) -> None:
    protocol = floored.protocol
    assert isinstance(protocol, NoisyVectors)
    assert isinstance(protocol.floor, BoundedGeometric)
    louder = protocol.model_copy(update={"floor": BoundedGeometric(protocol.floor.span, protocol.floor.rate * 1.01)})
    with pytest.raises(NotCertified, match="more than is true"):
        floored.task.model_copy(update={"protocol": louder}).verify()


def test_too_few_reports_and_incomplete_ones_are_refused(line: Plan) -> None:
    reports = line.randomize(np.arange(200) % 16)
    with pytest.raises(BatchTooSmall):
        line.shuffle(Reports(reports.batch, reports.messages[:-1], reports.batch_id))
    with pytest.raises(PlanError, match="whole numbers"):
        line.shuffle(Reports(reports.batch, reports.messages[:, :-1], reports.batch_id))
    damaged = reports.messages.copy()
    damaged[5, -1] ^= 1  # a residue of the coordinate that must sum to zero
    with pytest.raises(MetricShuffleError, match="missing or damaged"):
        line.shuffle(Reports(reports.batch, damaged, reports.batch_id))
    with pytest.raises(PlanError, match="more than this plan's modulus has room for"):
        line.check_batch(201)


def test_costs_beyond_the_cap_say_so() -> None:
    with pytest.raises(InputError, match=r"no protocol .* under max_bits = 100\. .*the fewest bits are [0-9,]+ \(noisy-vectors\)"):
        plan_of(LINE, max_bits=100)


def test_rates_are_shared_by_the_honest(line: Plan) -> None:
    fewer = plan_of(LINE, honest=150, floor=False)
    protocol = fewer.protocol
    assert isinstance(protocol, NoisyVectors)
    assert protocol.sharers == 150
    # everybody present adds a share, so that all together have more noise than is needed
    assert fewer.choice.expected_error > line.choice.expected_error
    assert Fraction(200, protocol.sharers) > 1


def test_simulations_agree_with_releases(floored: Plan) -> None:
    found = ms.simulate(floored, runs=64)
    assert found.mean_absolute_error == pytest.approx(floored.choice.other_errors["spread evenly"], rel=0.3)
    assert 0.85 < found.coverage_95 <= 1.0


@pytest.mark.parametrize("features", [Ramps(1), Ramps(3)], ids=str)
def test_the_band_of_cumulative_shares_holds_as_often_as_it_says(features: Ramps) -> None:
    """All of them together: 300 releases at 80 % miss no more than 60 + 4 standard deviations, and not hardly ever."""
    query = ms.Histogram(ms.Integers(0, 12))
    protocol = NoisyVectors(
        name="noisy-vectors", trusted="curator", features=features, coordinates=12 // features.width, factor=0.05, modulus=2**12
    )
    task = Task.of(query, protocol, ms.Target(0.6, 0.0, 12.0), users=100)
    values = np.random.default_rng(5).integers(0, 13, 100)
    truth = np.cumsum(np.bincount(values, minlength=13) / 100)
    missed = 0
    for seed in range(300):
        estimate = protocol.estimate(query, task.publish(task.counted([values]), Randomness.seeded(seed)))
        assert estimate.band is not None
        low, high = estimate.band(0.8)
        assert np.all(np.diff(low) >= 0.0)
        missed += not bool(np.all((low <= truth + 1e-12) & (truth <= high + 1e-12)))
    assert missed <= 88
    assert missed >= 10 or features.width > 1
    table = task.run(values).value
    assert "cumulative_95" in table.columns


def test_standard_errors_of_randomized_values_are_how_far_shares_are_off() -> None:
    """With a floor: over releases about the same people, some points empty, 95 % intervals hold about that and are not far wider."""
    plan = plan_of(LINE, users=2000)
    protocol, values = plan.protocol, np.minimum(np.arange(2000) % 23, 11)
    assert isinstance(protocol, NoisyVectors)
    assert protocol.floor is not None
    truth, off, told, inside = np.bincount(values, minlength=16) / 2000, [], [], []
    for seed in range(40):
        release = plan.estimate(plan.shuffle(plan.randomize(values, Randomness.seeded(seed))))
        ends = np.array(release.interval(0.95))
        off.append(np.array(release.value["share"]) - truth)
        told.append(release.value["standard_error"])
        inside.append((ends[:, 0] <= truth) & (truth <= ends[:, 1]))
    assert release.warning.startswith("Values were randomized before they were counted")
    # 640 numbers that are not independent; errors of points that seem empty are those of points that are not
    assert 0.9 < np.sqrt(np.mean(np.square(told))) / np.sqrt(np.mean(np.square(off))) < 1.5
    assert 0.92 < np.mean(inside) < 0.995


def test_smoothed_shares_are_told() -> None:
    plan = plan_of(ms.Histogram(ms.Grid(12, 12, 1.0)), users=60)
    assert "does not tell single cells apart" in plan.run([(user % 12, user % 5) for user in range(60)]).warning


def test_smoothed_maps_do_not_call_anything_certain() -> None:
    """Where shifted boxes smooth a map, a point that seems empty has an interval too, and points with people lie inside theirs."""
    grid = ms.Grid(24, 24, 100.0, "m")
    plan = plan_of(ms.Histogram(grid), ms.Target(1.0, 1e-6, 600.0), users=3000, trusted="curator", floor=False)
    protocol = plan.protocol
    assert isinstance(protocol, NoisyVectors)
    assert isinstance(protocol.features, ShiftedBoxes)
    people = np.clip(np.random.default_rng(8).normal((8, 14), 3, (3000, 2)).round().astype(int), 0, 23)
    truth = np.bincount(people[:, 1] * 24 + people[:, 0], minlength=576) / 3000
    inside = []
    for seed in range(8):
        release = plan.run(people, Randomness.seeded(seed))
        ends = np.array(release.interval(0.95))
        assert (np.asarray(release.standard_error) > 0.0).all()
        inside.append((ends[:, 0] <= truth) & (truth <= ends[:, 1]))
    held = np.array(inside)
    assert held.mean() >= 0.95
    assert held[:, truth > 0].mean() >= 0.9
