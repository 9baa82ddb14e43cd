"""Benchmark of noise by the shuffler, against a curator: `python -m benchmarks dummies`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

import metricshuffle as ms
from benchmarks.measuring import measurement, middle_seconds
from metricshuffle.numerics.types import Floats, Integers64
from metricshuffle.planning.candidates.dummy_calibration import calibrated_dummies
from metricshuffle.planning.plan_request import PlanRequest
from metricshuffle.protocols.features import Cells, Features, Ramps
from metricshuffle.protocols.features.feature_set import feature_table
from metricshuffle.protocols.shuffler_noise import ShufflerNoise
from metricshuffle.protocols.tally import Batch, Shuffled, Tally
from metricshuffle.randomness import Randomness
from metricshuffle.spaces import Space

TARGET = ms.Target(epsilon=1.0, delta=1e-6, distance=1.0)
NEAR = ms.Target(epsilon=1.0, delta=1e-6, distance=8.0)
LINE = ms.Histogram(ms.Integers(0, 63))
MAP = ms.Histogram(ms.Grid(32, 32))
# Mean errors of shares, and distances as a part of the range, of a prototype of the protocol.
LABEL_ERRORS = {10: 0.000383, 64: 0.000395}
LINE_ERRORS = {("spiky", 1): 0.0035, ("smooth", 2): 0.0023, ("smooth", 4): 0.0036}
RUNS = 400


def labels(number: int) -> ms.Histogram:
    return ms.Histogram(ms.Categories([f"label {index}" for index in range(number)]))


def zipf_counts(points: int, people: int) -> Integers64:
    """People at each point: the share of the k-th is in proportion to 1/k."""
    shares = 1.0 / np.arange(1, points + 1)
    return np.random.default_rng(points).multinomial(people, shares / shares.sum())


def smooth_counts(points: int, people: int) -> Integers64:
    """People in two wide clusters on a line."""
    places = np.arange(points)
    shares = np.exp(-(((places - 20) / 8) ** 2) / 2) + 0.7 * np.exp(-(((places - 46) / 6) ** 2) / 2)
    return np.random.default_rng(points).multinomial(people, shares / shares.sum())


def protocol_of(
    query: ms.Histogram, target: ms.Target, people: int, features: Features
) -> ShufflerNoise:
    return calibrated_dummies(PlanRequest(query, target, people).setting, features)


def released_shares(
    protocol: ShufflerNoise, query: ms.Histogram, held: Integers64, runs: int = RUNS
) -> Floats:
    """Shares of many releases of the real estimator, one row each; the noise is drawn exactly."""
    randomness = Randomness.seeded("dummies")
    codes = np.repeat(np.arange(len(held)), held)
    family = protocol.family(Space.of(query.domain))
    people = len(codes)
    shares = []
    for _ in range(runs):
        messages = family.drawn_parts(codes, randomness).astype(protocol.layout.type)
        tally = Tally(Batch(""), people, messages.size, protocol.counted(messages))
        counts = protocol.published(query, tally, randomness)
        estimate = protocol.estimate(query, Shuffled(Batch(""), people, messages.size, counts))
        assert estimate.possible is not None
        shares.append(np.asarray(estimate.possible))
    return np.array(shares)


def curator_shares(
    protocol: ShufflerNoise, query: ms.Histogram, held: Integers64, runs: int = RUNS
) -> Floats:
    """The same with noise that a curator adds to the same counts, of the rate without ends."""
    space = Space.of(query.domain)
    people = int(held.sum())
    generator = np.random.default_rng(3)
    counts = held @ feature_table(protocol.features, space)
    decay = np.exp(-protocol.rate)
    draws = generator.geometric(1.0 - decay, (2, runs, len(counts)))
    means = (counts + draws[0] - draws[1]) / people
    errors = protocol.errors(query, people)
    return np.asarray(protocol.features.shares(space, means, errors))


def mean_error(shares: Floats, held: Integers64) -> float:
    return float(np.abs(shares - held / held.sum()).mean())


def line_distance(shares: Floats, held: Integers64) -> float:
    """Mean earth mover's distance, as a part of the range."""
    apart = np.abs(np.cumsum(shares - held / held.sum(), axis=1)).sum(axis=1)
    return float(apart.mean() / (len(held) - 1))


def measurements() -> Iterator[dict[str, Any]]:
    for number, expected in LABEL_ERRORS.items():
        held = zipf_counts(number, 5_000)
        protocol = protocol_of(labels(number), TARGET, 5_000, Cells())
        error = mean_error(released_shares(protocol, labels(number), held), held)
        name = f"{number} labels, 5,000 people: error over {expected:.4%}"
        yield measurement(name, error / expected, "times", 1.1, at_most=True)
    for (people_kind, width), expected in LINE_ERRORS.items():
        held = (zipf_counts if people_kind == "spiky" else smooth_counts)(64, 2_000)
        held = np.random.default_rng(1).permutation(held) if people_kind == "spiky" else held
        protocol = protocol_of(LINE, NEAR, 2_000, Ramps(width))
        distance = line_distance(released_shares(protocol, LINE, held, 100), held)
        name = f"line of 64, {people_kind}, ramps {width}: distance over {expected:.2%}"
        yield measurement(name, distance / expected, "times", 1.1, at_most=True)
    for people in (50, 500, 5_000, 100_000):
        held = zipf_counts(10, people)
        protocol = protocol_of(labels(10), TARGET, people, Cells())
        real, curator = (
            mean_error(shares(protocol, labels(10), held), held)
            for shares in (released_shares, curator_shares)
        )
        name = f"10 labels, {people:,} people: error over a curator's, same cells"
        yield measurement(name, real / curator, "times", 1.1, at_most=True)
    grid = protocol_of(MAP, ms.Target(1.0, 1e-6, 2.0), 10_000, Cells())
    name = "map of 1,024 cells: messages of a person"
    yield measurement(name, grid.messages_per_user, "messages", 1, at_most=True)
    yield measurement("map of 1,024 cells: dummies", grid.dummies, "dummies", None)
    randomness = Randomness.system()
    drawn = middle_seconds(lambda: grid.law.table.draw(grid.row, randomness), 11)
    yield measurement(
        "map of 1,024 cells: dummies drawn (processor)", drawn, "s", 0.1, at_most=True
    )
