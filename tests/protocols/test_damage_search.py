"""Every lie against certified damage: all reports of a liar, next to all small data sets."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import metricshuffle as ms
from metricshuffle.numerics.types import Floats, Integers64
from metricshuffle.planning.candidates.dummy_calibration import calibrated_dummies
from metricshuffle.planning.plan_request import PlanRequest
from metricshuffle.protocols.features import Cells, Edges, Features, Ramps, space_of
from metricshuffle.protocols.shuffler_noise import ShufflerNoise
from metricshuffle.protocols.tally import Batch, Shuffled
from metricshuffle.queries.query import Query
from metricshuffle.randomness import Randomness
from metricshuffle.spaces import Space, users_of

MOST_DATA_SETS = 30
DRAWS_OF_DUMMIES = 12

# query, target, features, people
CASES: dict[str, tuple[Query, ms.Target, Features, int]] = {
    "three labels": (
        ms.Histogram(ms.Categories(list("abc"))),
        ms.Target(2, 1e-2, 1),
        Cells(),
        5,
    ),
    "four labels": (
        ms.Histogram(ms.Categories(list("abcd"))),
        ms.Target(2, 1e-2, 1),
        Cells(),
        4,
    ),
    "two labels": (ms.Histogram(ms.Categories(["a", "b"])), ms.Target(2, 1e-2, 1), Edges(), 6),
    "two points": (ms.Histogram(ms.Integers(0, 1)), ms.Target(3, 1e-2, 1), Ramps(1), 6),
    "three points": (ms.Histogram(ms.Integers(0, 2)), ms.Target(3, 1e-2, 1), Ramps(1), 5),
    "four points": (ms.Histogram(ms.Integers(0, 3)), ms.Target(3, 1e-2, 1), Ramps(1), 4),
    "flat line": (ms.Histogram(ms.Integers(0, 3)), ms.Target(3, 1e-2, 3, "flat"), Ramps(1), 4),
    "cells of a line": (
        ms.Histogram(ms.Integers(0, 2)),
        ms.Target(3, 1e-2, 2, "flat"),
        Cells(),
        5,
    ),
    "items on a line": (
        ms.UserHistogram(users_of(Space(ms.Integers(0, 2)), 2)),
        ms.Target(3, 1e-2, 1),
        Ramps(1),
        3,
    ),
    "items with labels": (
        ms.UserHistogram(users_of(Space(ms.Categories(list("abc"))), 2)),
        ms.Target(3, 1e-2, 1),
        Cells(),
        3,
    ),
}


def all_reports(protocol: ShufflerNoise) -> Integers64:
    """Counts of the parts of every report that a person can send, honest or not."""
    parts = [
        list(itertools.combinations_with_replacement(range(size), protocol.items))
        for size in protocol.sizes
    ]
    rows = [
        np.concatenate(
            [
                np.bincount(chosen, minlength=size)
                for chosen, size in zip(piles, protocol.sizes, strict=True)
            ]
        )
        for piles in itertools.product(*parts)
    ]
    return np.array(rows, dtype=np.int64)


def data_sets(protocol: ShufflerNoise, query: Query, items: int) -> Iterator[Integers64]:
    """Counts of all others' parts."""
    family = protocol.family(space_of(query))
    size = space_of(query).domain.size or 0
    every = list(itertools.combinations_with_replacement(range(size), items))
    for codes in every[:: -(-len(every) // MOST_DATA_SETS)]:
        rows = family.drawn_parts(np.array(codes, dtype=np.int64), Randomness.seeded(1))
        yield np.concatenate(
            [
                np.bincount(rows[:, pile], minlength=count)
                for pile, count in enumerate(protocol.sizes)
            ]
        )


def change_of(query: Query, first: Floats, second: Floats) -> float:
    off = first - second
    if query.items is None:
        return float(np.abs(off).max())
    on_line = isinstance(query.points.domain, ms.Integers) if query.points else False
    return float(np.abs(np.cumsum(off)).sum() if on_line else np.abs(off).sum() / 2.0)


def drawn_dummies(protocol: ShufflerNoise, query: Query, people: int, seed: int) -> Integers64:
    """Dummies by the law, and others near their mean, which shares at the border take."""
    if seed % 2:
        return np.array(protocol.draw_dummies(query, Randomness.seeded(seed)))
    generator = np.random.default_rng(seed)
    radius = protocol.radius
    moved = np.clip(generator.integers(-people, people + 1, protocol.coordinates), -radius, radius)
    if protocol.family(space_of(query)).complementary:
        return np.asarray(radius + np.column_stack([-moved, moved]).ravel())
    return np.asarray(radius + moved)


@pytest.mark.thorough
@pytest.mark.parametrize("name", CASES)
def test_no_report_moves_an_answer_farther_than_certified(name: str) -> None:
    query, target, features, people = CASES[name]
    protocol = calibrated_dummies(PlanRequest(query, target, people).setting, features)
    damage = protocol.damage(query, people)
    assert damage.certified
    assert damage.one is not None
    messages = people * protocol.layout.numbers
    reports = all_reports(protocol)
    moved = 0.0
    checked = 0
    for others in data_sets(protocol, query, (people - 1) * protocol.items):
        for seed in range(DRAWS_OF_DUMMIES):
            dummies = drawn_dummies(protocol, query, people, seed)
            answers: list[Any] = []
            for report in reports:
                counts = (others + report + dummies).tolist()
                shuffled = Shuffled(Batch(""), people, messages, {0: counts})
                estimate = protocol.estimate(query, shuffled)
                answers.append((estimate.possible, estimate.totals / people))
            for (shares, raw), (other, other_raw) in itertools.combinations(answers, 2):
                moved = max(moved, change_of(query, shares, other))
                if query.items is None:
                    assert change_of(query, raw, other_raw) <= damage.one
                checked += 1
    assert checked >= 50
    assert 0.99 * damage.one <= moved <= damage.one
