"""Noisy vectors from their definitions: values, messages and claims."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction
from typing import Any

import mpmath
import numpy as np
import pytest
from scipy.optimize import linear_sum_assignment
from tests.tables import check_all

import metricshuffle as ms
from metricshuffle.accounting.vectors.compromised_shuffler import no_noise_probability
from metricshuffle.accounting.vectors.encoding_terms import rounding_factor
from metricshuffle.accounting.vectors.large_moves import LargeMoves
from metricshuffle.errors import InputError, NotCertified
from metricshuffle.protocols.features import (
    Cells,
    Features,
    Hats,
    Lattice,
    Ramps,
    ShiftedBoxes,
    space_of,
)
from metricshuffle.protocols.features.feature_set import changes_of
from metricshuffle.protocols.noisy_vectors import NoisyVectors
from metricshuffle.queries.query import Query
from metricshuffle.randomizers import BoundedGeometric, KaryRandomizedResponse, PlanarGeometric
from metricshuffle.randomizers.randomizer import Randomizer
from metricshuffle.spaces import (
    Absolute,
    Circle,
    Euclidean,
    Manhattan,
    Metric,
    Scaled,
    Space,
    Users,
    users_of,
)
from metricshuffle.tasks.task import Task

ULP_ROOM = 1.0 + 1e-12


def protocol_of(query: Query, features: Features, **more: Any) -> NoisyVectors:
    fields: dict[str, Any] = {
        "name": "noisy-vectors",
        "trusted": "aggregator",
        "features": features,
        "factor": 0.3,
        "sharers": 7,
        "modulus": 2**40,
        "coordinates": features.table(space_of(query)).shape[1],
    }
    return NoisyVectors(**{**fields, **more})


# What was refuted once


def test_averages_that_overflow_are_not_certified() -> None:
    """65,535 and 65,536 items at one point are at distance 0.

    In 64 bits the averages were 2^46 and -2^46, which lose 32,768.
    """
    query = ms.UserHistogram(users_of(ms.Integers(0, 2**12)))
    vectors = protocol_of(
        query,
        Ramps(2**12),
        trusted="curator",
        factor=2.0**-32,
        sharers=1,
        units=2**34,
        most_items=2**16,
        modulus=2**60,
    )
    with pytest.raises(NotCertified, match="do not fit 64 bits"):
        Task.of(query, vectors, ms.Target(101.0, 0.0, 20.0), 100)
    smaller = vectors.model_copy(update={"most_items": 2**15})
    Task.of(query, smaller, ms.Target(101.0, 0.0, 20.0), 100)
    one, many = (
        smaller._features_of(np.zeros(size, dtype=np.int64), np.array([size]), space_of(query))
        for size in (1, 2**15)
    )
    np.testing.assert_array_equal(one, many)


def test_rounds_beyond_counting_are_not_certified() -> None:
    """2,322 coordinates in 2^64/2,322 rounds: counted in 64 bits two were left."""
    query = ms.Histogram(ms.Grid(2, 1162))
    features = ShiftedBoxes(1161)
    vectors = protocol_of(query, features, trusted="curator", factor=0.001, sharers=1)
    rounds = -(-(2**64) // 2322)
    with pytest.raises(NotCertified, match=r"claims more than is true|too many sums"):
        Task.of(query, vectors, ms.Target(0.05, 1e-6, 1161.0, "flat"), 100, rounds=rounds)
    move = changes_of(np.full(4, 0.1), np.ones(4))
    with pytest.raises(NotCertified, match="too many sums to be counted"):
        LargeMoves(lambda _: (move,), rounds=2**62).delta(0.1, 1.0)


def test_forged_sizes_are_refused_at_once() -> None:
    """Verifying a task must end: these two took minutes, and all memory."""
    with pytest.raises(InputError, match="cells wide hold all of"):
        ShiftedBoxes(2**53 - 1).table(Space(ms.Grid(4, 4)))
    assert rounding_factor(10**9, 2**40) == 1 + Fraction(10**9 * (10**9 - 1), 2**40)


def test_the_closed_form_still_knows_common_multiples(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("metricshuffle.accounting.vectors.encoding_terms.MAX_EXACT", 0)
    for most in range(1, 40):
        assert rounding_factor(most, math.lcm(*range(1, most + 1))) == 1
        assert rounding_factor(most, 3 * math.lcm(*range(1, most + 1))) == 1


@pytest.mark.parametrize("trusted", ["aggregator", "curator"])
def test_a_delta_that_is_needed_is_told(trusted: Any) -> None:
    """A loss of 1.0137 meets epsilon 1 with delta 0.01.

    The plan said "with certainty", and its own task was rejected.
    """
    query = ms.UserHistogram(Users(Space(ms.Integers(0, 7)), 2))
    made = ms.plan(
        query,
        ms.Target(1.0, 1e-2, 4.0, "flat"),
        100,
        trusted=trusted,
        protocols=["noisy-vectors"],
        floor=False,
    )
    for offer in made.candidates:
        assert isinstance(offer.mechanism, NoisyVectors)
        loss = offer.mechanism.accounts(query, 1).slope * 4.0
        assert offer.guarantee.delta == (0.0 if loss <= 1.0 else 1e-2)
    made.task.verify()


def test_far_moves_are_told_where_they_are_hidden_better() -> None:
    """Single coordinates gain nothing from a delta of 1e-6, so no better bound is stated."""
    query = ms.Histogram(ms.Integers(0, 15))
    target = ms.Target(4.0, 1e-6, 5.0)
    wide, single = (
        protocol_of(query, Ramps(width), factor=0.8, trusted="curator", sharers=1)
        for width in (15, 1)
    )
    assert wide.remarks(query, target, 22, 1) == []
    assert any(
        "tell less" in line
        for line in single.model_copy(update={"factor": 0.01}).remarks(query, target, 22, 1)
    )


def test_what_mixing_is_good_for_leaves_room_for_the_noise() -> None:
    """A flat target needs delta for the noise, too.

    Up to 1.87417 was stated, where both together take 1.0025 times the delta.
    """
    query = ms.Histogram(ms.Integers(0, 60))
    target = ms.Target(1.0, 0.03, 60.0, "flat")
    vectors = protocol_of(
        query,
        Ramps(1),
        trusted="shuffler",
        factor=0.07,
        sharers=60,
        modulus=2**10,
        together=4,
        shares=12,
    )
    account = vectors.account(query, target, 60, 1)
    assert account.kept
    said = float(vectors.remarks(query, target, 60, 1)[-1].split("epsilon of ")[1].split(",")[0])
    assert said > 1.2
    assert account.profile.delta(said, 60.0) <= target.delta


@pytest.mark.thorough
@pytest.mark.parametrize("sides", [(1, 4), (4, 1)])
def test_a_grid_of_one_row_is_planned_as_a_line(sides: tuple[int, int]) -> None:
    """Its floor was that of a plane, which needs two rows, so that there was no plan at all."""
    query = ms.UserHistogram(Users(Space(ms.Grid(*sides, 2.0)), 2))
    made = ms.plan(
        query, ms.Target(1.0, 1e-3, 4.0), 60, protocols=["noisy-vectors"], max_local_epsilon=3.0
    )
    assert isinstance(made.protocol, NoisyVectors)
    floor = made.protocol.floor
    assert isinstance(floor, BoundedGeometric)
    laws = np.log([floor.law(point) for point in range(4)])
    # both items move from one end to the other, by 6; what is left is told at 4
    assert (
        2.0 * np.max(laws[0] - laws[3])
        <= 6.0 / 4.0 * made.task.if_shuffler_colludes.epsilon
        <= 6.0 / 4.0 * 3.0
    )
    made.task.verify()
    assert abs(sum(made.run([[0, 3]] * 60).value["share"]) - 1.0) < 1e-9


class HalfSteps(Absolute):
    kind: str = "half-steps"  # type: ignore[assignment]

    def pairwise(self, points_a: Any, points_b: Any) -> Any:
        return super().pairwise(points_a, points_b) / 2.0


@check_all(
    ("domain", "metric", "words"),
    [
        (ms.Grid(3, 3), Euclidean(), "cells, in a straight line"),
        (ms.Grid(3, 3), Manhattan(), "cells, along both axes"),
        (ms.Integers(0, 3), Absolute(), "values"),
        (ms.Integers(0, 3), HalfSteps(), "items, by the metric HalfSteps"),
    ],
)
def test_words_are_about_the_metric_that_is_promised(
    domain: Any, metric: Metric, words: str
) -> None:
    """From (0, 0) to (2, 2) a floor loses 4 steps, 1.41 times a straight line's."""
    assert ms.UserHistogram(Users(Space(domain, metric), 2)).between(1.0) == words


def test_the_chance_of_no_noise_is_never_understated() -> None:
    assert no_noise_probability(np.full(341, 1e-7), 3) > 0.0
    query = ms.Histogram(ms.Integers(0, 15))
    with mpmath.workdps(30):
        for factor in (0.0831, 0.21, 0.6, 2.0):
            vectors = protocol_of(query, Ramps(1), factor=factor, sharers=24)
            p = mpmath.exp(-mpmath.mpf(float(vectors.rates(space_of(query))[0])))
            b = mpmath.mpf(1) / 24
            true = ((1 - p) ** (2 * b) * mpmath.hyp2f1(b, b, 1, p * p)) ** 15
            said = float(vectors.warning(query).split("probability ")[1].split(",")[0])
            assert true <= said <= true * 1.01


# Slopes and moves, over all pairs


def own_table(features: Features, domain: Any) -> list[tuple[int, ...]]:
    """The columns of the features, from their descriptions."""
    if isinstance(features, Cells):
        return [tuple(int(a == b) for a in range(domain.size)) for b in range(domain.size)]
    if isinstance(features, Ramps):
        windows = [
            range(start, min(start + features.width, domain.size - 1))
            for start in range(0, domain.size - 1, features.width)
        ]
        return [
            tuple(sum(threshold >= x for threshold in window) for x in range(domain.size))
            for window in windows
        ]
    cells = [(c, r) for r in range(domain.height) for c in range(domain.width)]
    width = features.width  # type: ignore[attr-defined]
    if isinstance(features, Hats):
        tops = itertools.product(
            range(0, domain.height - 1 + width, width), range(0, domain.width - 1 + width, width)
        )
        return [
            tuple(max(width - abs(c - a), 0) * max(width - abs(r - b), 0) for c, r in cells)
            for b, a in tops
        ]
    found = []
    for shift in range(width):
        boxes = [((c + shift) // width, (r + shift) // width) for c, r in cells]
        found += (
            [tuple(int(box == one) for box in boxes) for one in sorted(set(boxes))]
            if len(set(boxes)) > 1
            else []
        )
    return found


def outdone(move: list[tuple[float, int]], by: list[tuple[float, int]]) -> bool:
    """Each change has a counterpart of at least its size and rate in the other move.

    At the same rate, or in order of the rates.
    """

    def in_order(some: list[tuple[float, int]], others: list[tuple[float, int]]) -> bool:
        ordered = zip(sorted(some, reverse=True), sorted(others, reverse=True), strict=False)
        return len(some) <= len(others) and all(a[0] <= b[0] and a[1] <= b[1] for a, b in ordered)

    rates = {rate for rate, _ in move}
    return in_order(move, by) or all(
        in_order(*([one for one in each if one[0] == rate] for each in (move, by)))
        for rate in rates
    )


SPACES: list[tuple[Space, list[Features]]] = [
    (Space(ms.Integers(-3, 9), Scaled(Absolute(), step)), [Ramps(1), Ramps(3), Ramps(5), Cells()])
    for step in (0.1, 3.0, 1e-9, 1e6)
]
SPACES += [
    (
        Space(ms.Grid(width, height, cell), metric),
        [Cells(), ShiftedBoxes(1), ShiftedBoxes(2), ShiftedBoxes(3), Hats(2), Hats(3)],
    )
    for (width, height, cell), metric in itertools.product(
        [(5, 3, 0.1), (2, 6, 1e6), (2, 2, 0.7)], [Euclidean(), Manhattan()]
    )
]
SPACES += [
    (Space(ms.Grid(4, 3), Scaled(Euclidean(), 1 / 3)), [ShiftedBoxes(2), Hats(2)]),
    (Space(ms.Integers(0, 6), Circle(7)), [Cells()]),
]


@pytest.mark.parametrize(
    ("space", "features"),
    [
        (space, one)
        for space, several in SPACES
        for one in several
        if one != ShiftedBoxes(3) or space.domain.size != 4
    ],
)
def test_slopes_and_moves_over_all_pairs(space: Space, features: Features) -> None:
    domain = space.domain
    table = features.table(space).toarray()
    assert sorted(own_table(features, domain)) == sorted(map(tuple, table.T.tolist()))
    points = domain.points(domain.all_values())
    apart = space.metric.pairwise(points, points)
    lattice = Lattice.of(space)
    pairs = list(itertools.combinations(range(len(table)), 2))
    for rates in (np.full(table.shape[1], 0.3), np.linspace(0.2, 0.3, table.shape[1])):
        slope = features.slope(space, rates)
        exact = [Fraction(float(rate)) for rate in rates]
        changes = {
            (i, j): [
                (float(r), int(d))
                for r, d in zip(rates, abs(table[i] - table[j]), strict=True)
                if d
            ]
            for i, j in pairs
        }
        for i, j in pairs:
            loss = sum(
                (
                    rate * int(size)
                    for rate, size in zip(exact, abs(table[i] - table[j]), strict=True)
                ),
                Fraction(0),
            )
            squared = Fraction(float(apart[i, j])) ** 2
            if lattice is not None:
                width = lattice.sides[0]
                steps = [abs(i % width - j % width), abs(i // width - j // width)]
                squared = Fraction(lattice.step) ** 2 * (
                    sum(steps) ** 2 if not lattice.straight else steps[0] ** 2 + steps[1] ** 2
                )
                squared *= (
                    Fraction(ULP_ROOM) ** -2
                    if isinstance(space.metric, Scaled) and len(lattice.sides) > 1
                    else 1
                )
            assert loss**2 <= Fraction(slope) ** 2 * squared * Fraction(ULP_ROOM) ** 2
        for i, j in pairs[:: max(1, len(pairs) // 5)]:
            distance = float(apart[i, j]) * (1.0 - 1e-15)
            named = [
                [
                    (float(r), int(s))
                    for r, s, c in zip(move.rates, move.sizes, move.counts, strict=True)
                    for _ in range(int(c))
                ]
                for move in features.moves(space, rates, distance)
            ]
            for a, b in pairs:
                if apart[a, b] <= distance / (1.0 - 1e-15) and changes[a, b]:
                    assert any(outdone(changes[a, b], move) for move in named)


# What people hold, and the laws of what is seen


def earth_mover(apart: Any, one: tuple[int, ...], other: tuple[int, ...]) -> float:
    size = math.lcm(len(one), len(other))
    cost = apart[np.ix_(np.repeat(one, size // len(one)), np.repeat(other, size // len(other)))]
    return math.fsum(cost[linear_sum_assignment(cost)]) / size


def apart_in(space: Space) -> Any:
    points = space.domain.points(space.domain.all_values())
    return np.asarray(space.metric.pairwise(points, points))


@pytest.mark.parametrize(("most", "units"), [(3, 1), (4, 7), (4, 12), (5, 60), (None, 3)])
@pytest.mark.parametrize("features", [Ramps(1), Ramps(2), Cells()], ids=str)
def test_items_lose_no_more_than_their_distance(
    features: Features, most: int | None, units: int
) -> None:
    """Vectors of every set of items; equal shares give equal vectors."""
    space = Space(ms.Integers(0, 3), Scaled(Absolute(), 0.1))
    query = ms.UserHistogram(Users(space, units if most is None else None))
    vectors = protocol_of(query, features, units=units, most_items=most)
    vectors.check(query)
    held = [
        items
        for size in range(1, (most or 0) + 1)
        for items in itertools.combinations_with_replacement(range(4), size)
    ]
    held = held or list(itertools.combinations_with_replacement(range(4), units))
    sent = vectors._features_of(
        np.concatenate(held).astype(np.int64), np.array([len(items) for items in held]), space
    )
    slope = vectors.accounts(query, 1).slope
    rates = vectors.rates(space)
    apart = apart_in(space)
    for (i, one), (j, other) in itertools.combinations(enumerate(held), 2):
        loss = math.fsum(rates * np.abs(sent[i] - sent[j]))
        distance = earth_mover(apart, one, other)
        assert loss <= slope * distance * ULP_ROOM
        if sorted(one * len(other)) == sorted(other * len(one)):
            assert loss == 0.0


def clamped(top: int, rate: float, value: int) -> Any:
    """Law of value + discrete Laplace noise, clamped to 0..top.

    Outside, likelihood ratios are those at the ends.
    """
    ratio = math.exp(-rate)
    law = np.array([ratio ** abs(place - value) for place in range(top + 1)]) / (1.0 + ratio)
    law[1:-1] *= 1.0 - ratio
    return law


def share_law(rate: float, shape: float, reach: int) -> Any:
    with mpmath.workdps(30):
        p = mpmath.exp(-mpmath.mpf(rate))
        b = mpmath.mpf(shape)
        return np.array(
            [
                float(p**d * mpmath.binomial(b + d - 1, d) * mpmath.hyp2f1(b, b + d, d + 1, p * p))
                for d in range(reach + 1)
            ]
        )


FLOORED: list[tuple[Query, Features, Randomizer | None]] = [
    (ms.Histogram(ms.Interval(0.0, 0.5), step=0.1), Ramps(2), BoundedGeometric(4, 0.7)),
    (ms.Histogram(ms.Integers(0, 4)), Ramps(1), BoundedGeometric(4, 2.0)),
    (ms.Histogram(ms.Integers(0, 3)), Cells(), BoundedGeometric(3, 1.0)),
    (ms.Histogram(ms.Grid(2, 3, 0.1)), ShiftedBoxes(2), PlanarGeometric(2, 3, 5.0, 0.1)),
    (
        ms.UserHistogram(Users(Space(ms.Grid(2, 2, 3.0), Manhattan()), 2)),
        Cells(),
        PlanarGeometric(2, 2, 0.4, 3.0, "manhattan"),
    ),
    (ms.UserHistogram(Users(Space(ms.Integers(0, 2)), 2)), Ramps(1), BoundedGeometric(2, 0.5)),
    (ms.Histogram(ms.Categories(["a", "b", "c"])), Cells(), KaryRandomizedResponse(3, 1.0)),
    (
        ms.UserHistogram(Users(Space(ms.Categories(["a", "b", "c"])), 2)),
        Cells(),
        KaryRandomizedResponse(3, 1.0),
    ),
    (ms.Histogram(ms.Grid(2, 3, 0.1)), Cells(), None),
    (ms.Histogram(ms.Integers(0, 4)), Ramps(2), None),
]


@pytest.mark.parametrize(("query", "features", "floor"), FLOORED)
def test_sums_and_single_vectors_keep_what_is_said(
    query: Query, features: Features, floor: Randomizer | None
) -> None:
    """Exact laws of the ideal sums and of one vector read by a colluding shuffler.

    One person moves, the rest is known.
    """
    space = space_of(query)
    items = query.items if isinstance(query.items, int) else 1
    vectors = protocol_of(query, features, units=items, floor=floor, sharers=3)
    vectors.check(query)
    accounts = vectors.accounts(query, 1)
    rates = vectors.rates(space)
    table = features.table(space).toarray()
    apart = apart_in(space)
    tops = table.max(axis=0) * items
    points = range(len(table))
    rows = np.eye(len(table)) if floor is None else np.array([floor.law(point) for point in points])
    shares = [
        share_law(float(rate), 1 / 3, 2 * int(top) + 2)
        for rate, top in zip(rates, tops, strict=True)
    ]

    def law(held: tuple[int, ...], alone: bool) -> Any:
        found: Any = 0.0
        for counted in itertools.product(points, repeat=items):
            part = np.array(math.prod(rows[x, y] for x, y in zip(held, counted, strict=True)))
            for top, rate, share, value in zip(
                tops, rates, shares, table[list(counted)].sum(axis=0), strict=True
            ):
                seen = (
                    share[np.abs(np.arange(-1, top + 2) - value)]
                    if alone
                    else clamped(int(top), float(rate), int(value))
                )
                part = np.multiply.outer(part, seen)
            found = found + part
        return found.ravel()

    held = list(itertools.combinations_with_replacement(points, items))
    sums, single = {one: law(one, False) for one in held}, {one: law(one, True) for one in held}
    reach = (
        float(apart.max()) / 1.5
        if isinstance(query, ms.Histogram) and features != Cells()
        else float(apart.max())
    )
    fallback = vectors.alone(query, ms.Target(1.0, 1e-6, reach), 1).epsilon
    largest = 0.0
    for one, other in itertools.permutations(held, 2):
        distance = earth_mover(apart, one, other)
        loss = float(np.log(sums[one] / sums[other]).max())
        largest = max(largest, loss / (accounts.slope * distance))
        if distance > reach * ULP_ROOM:
            continue
        assert float(np.log(single[one] / single[other]).max()) <= fallback * (1.0 + 1e-9)
        if accounts.single:
            for epsilon in (0.0, 0.3 * loss, 0.9 * loss):
                gained = float(np.maximum(sums[one] - math.exp(epsilon) * sums[other], 0.0).sum())
                assert gained <= accounts.far().delta(epsilon, reach) * (1.0 + 1e-9) + 1e-14
    assert 0.1 < largest <= 1.0 + 1e-9
