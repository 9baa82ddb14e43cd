"""Noisy vectors, all roles: sums of values and noise, and claims that follow from it."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from tests.tables import check_all

import metricshuffle as ms
from metricshuffle.errors import (
    BatchTooSmall,
    InputError,
    MetricShuffleError,
    NotCertified,
    PlanError,
)
from metricshuffle.planning.plan import Plan
from metricshuffle.protocols.features import Cells, Ramps, ShiftedBoxes, space_of
from metricshuffle.protocols.features.feature_set import feature_table
from metricshuffle.protocols.noisy_vectors import NoisyVectors
from metricshuffle.protocols.protocol import Reports
from metricshuffle.randomizers import BoundedGeometric
from metricshuffle.randomness import Randomness
from metricshuffle.spaces import users_of
from metricshuffle.tasks.task import Task

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
    """With little noise the sums are the features; residues add up for every split."""
    protocol = line.protocol
    assert isinstance(protocol, NoisyVectors)
    quiet = protocol.model_copy(update={"factor": 600.0})
    values = np.arange(200) % 16
    messages = quiet.messages(LINE.inputs(values, 1.0), Randomness.seeded(1))
    expected = feature_table(protocol.features, space_of(LINE))[values].sum(axis=0)
    np.testing.assert_array_equal(quiet.counted(messages)[0], expected)
    whole = quiet.tally(line.task.batch()).add(messages)
    parts = (
        quiet.tally(line.task.batch())
        .add(messages[:77])
        .merge(quiet.tally(line.task.batch()).add(messages[77:]))
    )
    assert whole.to_bytes() == parts.to_bytes()


def test_noise_has_the_variance_that_is_said(line: Plan) -> None:
    protocol = line.protocol
    query = LINE
    assert isinstance(protocol, NoisyVectors)
    values = np.zeros(200, dtype=np.int64)
    sums = []
    for seed in range(300):
        shuffled = line.task.publish(line.task.counted([values], Randomness.seeded(seed)))
        most = feature_table(protocol.features, space_of(query)).max(axis=0).toarray().ravel() * 200
        sums.append(
            [
                protocol.packed.centred(number, 0, int(top))
                for number, top in zip(shuffled.numbers, most, strict=True)
            ]
        )
    off = np.array(sums) / 200.0 - feature_table(protocol.features, space_of(query)).toarray()[0]
    found = np.sqrt((off**2).mean())
    # kurtosis 6 over 300 * 8 or more numbers: 5 standard errors are 12 %
    assert found == pytest.approx(
        float(np.sqrt((protocol.errors(query, 200) ** 2).mean())), rel=0.15
    )


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
    made = plan_of(LINE, trusted="aggregator", floor=False)
    mixed = plan_of(LINE, floor=False)
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
    assert set(rows) == {
        ("shuffler", False),
        ("shuffler", True),
        ("curator", True),
    }  # both rows are shown


def test_people_with_different_numbers_of_items() -> None:
    query = ms.UserHistogram(users_of(ms.Integers(0, 7)))
    made = plan_of(query, ms.Target(2.0, 1e-6, 1.0), users=100, floor=False)
    generator = np.random.default_rng(0)
    people = [
        generator.integers(0, 4, size=size).tolist() for size in generator.integers(1, 7, size=100)
    ]
    limited = plan_of(query, ms.Target(2.0, 1e-6, 1.0), users=100, most_items=6, floor=False)
    assert limited.task.protocol == made.task.protocol  # the option has no effect
    made.task.verify()
    release = made.estimate(made.shuffle(made.randomize(people)))
    assert np.asarray(release.value["share"])[:4].sum() > 0.6
    made.randomize([*people[:-1], [1] * 1_794])
    with pytest.raises(InputError, match="no items"):
        made.randomize([*people[:-1], []])
    # a floor under different numbers of items would give the numbers away
    both = plan_of(query, ms.Target(2.0, 1e-6, 1.0), users=100)
    assert all(getattr(offer.mechanism, "floor", None) is None for offer in both.candidates)


def test_flat_promises_use_the_exact_law() -> None:
    """Losses of far moves over many thresholds add up like a random walk, given a delta."""
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


@check_all(
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
    louder = protocol.model_copy(
        update={"floor": BoundedGeometric(protocol.floor.span, protocol.floor.rate * 1.01)}
    )
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
    with pytest.raises(
        InputError,
        match=(
            r"no protocol .* under max_bits=100\. .*the fewest bits are [0-9,]+ "
            r"\(noisy-vectors\)"
        ),
    ):
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
    assert found.mean_absolute_error == pytest.approx(
        floored.choice.other_errors["spread evenly"], rel=0.3
    )
    assert (
        found.coverage_95 is None
        if found.smoothed
        else found.coverage_95 is not None and 0.93 < found.coverage_95 <= 1.0
    )


@pytest.mark.parametrize("features", [Ramps(1), Ramps(3)], ids=str)
def test_the_band_of_cumulative_shares_holds_as_often_as_it_says(features: Ramps) -> None:
    """300 releases at 80 % miss at most 60 + 4 standard deviations, and not too few."""
    query = ms.Histogram(ms.Integers(0, 12))
    protocol = NoisyVectors(
        name="noisy-vectors",
        trusted="curator",
        features=features,
        coordinates=12 // features.width,
        factor=0.05,
        modulus=2**12,
    )
    task = Task.of(query, protocol, ms.Target(0.6, 0.0, 12.0), users=100)
    values = np.random.default_rng(5).integers(0, 13, 100)
    truth = np.cumsum(np.bincount(values, minlength=13) / 100)
    missed = 0
    for seed in range(300):
        estimate = protocol.estimate(
            query, task.publish(task.counted([values]), Randomness.seeded(seed))
        )
        assert estimate.band is not None
        low, high = estimate.band(0.8)
        assert np.all(np.diff(low) >= 0.0)
        missed += not bool(np.all((low <= truth + 1e-12) & (truth <= high + 1e-12)))
    assert missed <= 88
    assert missed >= 10 or features.width > 1
    table = task.run(values).value
    assert "cumulative_95" in table.columns


def test_intervals_of_randomized_values_hold_whatever_people_hold() -> None:
    """With a floor and people at a few points; standard errors are the unbiased shares'."""
    plan = plan_of(LINE, users=2000)
    protocol = plan.protocol
    values = np.where(np.arange(2000) % 20 < 11, 7, np.arange(2000) % 3)
    assert isinstance(protocol, NoisyVectors)
    assert protocol.floor is not None
    protocol = NoisyVectors(**{**dict(protocol), "features": Ramps(1), "coordinates": 15})
    task = Task.of(LINE, protocol, TARGET, 2000)
    truth = np.bincount(values, minlength=16) / 2000
    off = []
    told = []
    inside = []
    for seed in range(40):
        release = task.estimate(task.publish(task.counted([values], Randomness.seeded(seed))))
        ends = np.array(release.interval(0.95))
        off.append(np.array(release.value["unbiased"]) - truth)
        told.append(release.value["standard_error"])
        inside.append((ends[:, 0] <= truth) & (truth <= ends[:, 1]))
    # 640 numbers that are not independent
    assert 0.9 < np.sqrt(np.mean(np.square(told))) / np.sqrt(np.mean(np.square(off))) < 1.15
    assert np.mean(inside) > 0.95
    assert np.abs(np.mean(off, axis=0)).max() < 5.0 * np.max(told) / math.sqrt(40)


SPIKE = ms.Histogram(ms.Integers(0, 63))


def spiky_task(features: Ramps, floor: BoundedGeometric | None = None) -> Task:
    """2,000 people of whom nobody colludes; ramps cost the same per step at any width."""
    protocol = NoisyVectors(
        name="noisy-vectors",
        trusted="aggregator",
        modulus=2**40,
        features=features,
        coordinates=features.table(space_of(SPIKE)).shape[1],
        factor=1 / 8 * (1 - 1e-12),
        sharers=2000,
        floor=floor,
    )
    return Task.of(SPIKE, protocol, ms.Target(1.0, 1e-6, 8.0), 2000)


def test_a_spike_is_covered_or_has_no_interval() -> None:
    """1,100 of 2,000 people at 23: ramps released 0.137 with interval (0.101, 0.174).

    (0.061, 0.214) was said to hold for any law.
    """
    values = np.where(np.arange(2000) < 1100, 23, np.arange(2000) % 64)
    truth = np.bincount(values, minlength=64) / 2000
    narrow = spiky_task(Ramps(1)).run(values, Randomness.seeded(3))
    wide = spiky_task(Ramps(4)).run(values, Randomness.seeded(3))
    for method in ("normal", "bernstein"):
        ends = narrow.interval(0.95, simultaneous=True, method=method)
        assert np.all((ends[:, 0] <= truth) & (truth <= ends[:, 1]))
    assert narrow.interval(0.95)[23, 0] > 0.5
    assert wide.value["share"][23] < 0.3
    assert wide.at_most(0.95)[23] > 0.55
    assert np.all(wide.at_most(0.95, simultaneous=True) >= truth)
    weights = np.maximum(
        1.0 - np.abs(np.subtract.outer(np.arange(64), np.array([*range(0, 63, 4), 63]))) / 4.0, 0.0
    )
    assert wide.nearby(0.95)[23, 0] <= truth @ weights[:, 6] <= wide.nearby(0.95)[23, 1]
    assert set(wide.value.columns) == {
        "low",
        "high",
        "share",
        "count",
        "at_most_95",
        "nearby",
        "nearby_95",
        "cumulative",
        "cumulative_95",
    }
    assert list(wide.value.columns)[2] == list(narrow.value.columns)[2] == "share"
    assert "interval_95" not in wide.to_json()
    assert "standard_error" not in wide.to_json()
    assert "at most" in str(wide)
    for ask in (
        lambda: wide.interval(0.95),
        lambda: wide.interval(0.95, simultaneous=True, method="bernstein"),
        lambda: wide.standard_error,
        lambda: wide.estimate.interval(0.95),
        lambda: wide.estimate.standard_errors,
    ):
        with pytest.raises(
            InputError,
            match=r"smoothed.*ask release\.at_most\(0\.95\) or release\.nearby\(0\.95\) instead",
        ):
            ask()
    for ask in (lambda: narrow.at_most(0.95), lambda: narrow.nearby(0.95)):
        with pytest.raises(InputError, match=r"use release\.interval\(0\.95\)"):
            ask()
    for level in (0.0, 1.0, float("nan")):
        with pytest.raises(InputError, match="level must lie strictly between 0 and 1"):
            wide.at_most(level)


def test_nothing_is_said_of_smoothed_shares_of_randomized_values() -> None:
    release = spiky_task(Ramps(4), BoundedGeometric(63, 1.25)).run(
        np.full(2000, 23), Randomness.seeded(3)
    )
    assert list(release.value.columns) == ["low", "high", "share", "count"]
    assert "Values were randomized before they were counted" in release.warning
    for ask in (release.interval, release.at_most, release.nearby):
        with pytest.raises(InputError, match="smoothed"):
            ask(0.95)


def test_smoothed_shares_are_told() -> None:
    grid = ms.Histogram(ms.Grid(12, 12, 1.0))
    features = ShiftedBoxes(3)
    protocol = NoisyVectors(
        name="noisy-vectors",
        trusted="curator",
        modulus=2**40,
        features=features,
        coordinates=features.table(space_of(grid)).shape[1],
        factor=0.1,
    )
    release = Task.of(grid, protocol, ms.Target(1.0, 0.0, 3.0), 60).run(
        [(user % 12, user % 5) for user in range(60)]
    )
    assert "does not tell single cells apart" in release.warning
    assert "within about 3 cells" in str(release)
    assert np.all(np.asarray(release.value["at_most_95"]) >= np.asarray(release.value["share"]))
