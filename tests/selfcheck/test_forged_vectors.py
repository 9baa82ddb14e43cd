"""Tasks of noisy vectors with fields changed at random: what `verify` accepts is true, by an account of its own."""

from __future__ import annotations

import itertools
import math
import random
from fractions import Fraction
from functools import lru_cache
from typing import Any

import mpmath
import numpy as np
import pytest
from scipy.optimize import linear_sum_assignment

import metricshuffle as ms
from metricshuffle.errors import MetricShuffleError
from metricshuffle.protocols.features import Cells, Hats, Ramps, ShiftedBoxes, space_of
from metricshuffle.protocols.noisy_vectors import NoisyVectors
from metricshuffle.queries.query import Query
from metricshuffle.randomizers import BoundedGeometric, KaryRandomizedResponse, PlanarGeometric
from metricshuffle.spaces import Circle, Manhattan, Space, Users
from metricshuffle.tasks.task import Task

ROOM = 1.0 + 1e-9
"""The oracle computes in floats, rounded to nearest."""
LINE, PLANE, LABELS = ms.Histogram(ms.Integers(0, 7)), ms.Histogram(ms.Grid(4, 3, 0.1)), ms.Histogram(ms.Categories(["a", "b", "c"]))
HOLDERS = [ms.UserHistogram(Users(Space(ms.Integers(0, 3)), items)) for items in (3, 2, None)]
PATHS = ms.UserHistogram(Users(Space(ms.Grid(2, 3), Manhattan())))
ROUND = ms.UserHistogram(Users(Space(ms.Integers(0, 4), Circle(5)), 2))
CLOSE = PlanarGeometric(4, 3, 20.0, 0.1)
BASES: list[tuple[Query, dict[str, Any], ms.Target]] = [
    (LINE, {"features": Ramps(1), "shares": 14}, ms.Target(1.0, 1e-4, 4.0)),
    (LINE, {"features": Ramps(2), "shares": 14, "floor": BoundedGeometric(7, 1.0)}, ms.Target(1.0, 1e-4, 4.0)),
    (LINE, {"features": Ramps(1), "shares": 14, "factor": 0.06}, ms.Target(0.3, 1e-2, 7.0, "flat")),
    (LINE, {"features": Ramps(3), "trusted": "nobody", "sharers": 1, "together": 1}, ms.Target(1.0, 0.0, 7.0)),
    (PLANE, {"features": ShiftedBoxes(2), "shares": 24, "factor": 0.02, "floor": CLOSE}, ms.Target(2.0, 1e-4, 0.2)),
    (PLANE, {"features": Cells(), "trusted": "aggregator"}, ms.Target(0.5, 0.0, 0.2)),
    (LABELS, {"features": Cells(), "trusted": "curator", "sharers": 1, "together": 1}, ms.Target(0.5, 0.0, 1.0)),
    (LABELS, {"features": Cells(), "shares": 14, "floor": KaryRandomizedResponse(3, 2.0)}, ms.Target(0.5, 1e-4, 1.0)),
    (HOLDERS[0], {"features": Ramps(1), "shares": 16, "units": 3}, ms.Target(1.0, 1e-3, 3.0)),
    (HOLDERS[1], {"features": Cells(), "shares": 16, "units": 2, "floor": BoundedGeometric(3, 1.0)}, ms.Target(1.0, 1e-3, 3.0)),
    (HOLDERS[2], {"features": Ramps(1), "shares": 24, "units": 12, "most_items": 4, "factor": 0.01}, ms.Target(1.0, 1e-3, 3.0)),
    (PATHS, {"features": ShiftedBoxes(2), "shares": 24, "units": 60, "most_items": 4, "factor": 0.01}, ms.Target(5.0, 1e-3, 2.0)),
    (ROUND, {"features": Cells(), "trusted": "aggregator", "units": 2}, ms.Target(1.0, 0.0, 2.0)),
]  # fmt: skip
CHOICES: dict[str, list[Any]] = {
    "factor": [0.5, 0.9, 1.0000001, 1.01, 1.5, 4.0, 1e3, 1e-3],  # times what it was
    "sharers": [0, 1, 2, 19, 20, 21, 22, 23, 1000, 2**53 - 1],
    "units": [0, 1, 2, 3, 4, 7, 60, 2**40],
    "most_items": [None, 0, 1, 2, 3, 4, 5, 100, 10**9],
    "features": [Ramps(1), Ramps(2), Ramps(7), Cells(), ShiftedBoxes(1), ShiftedBoxes(2), ShiftedBoxes(3), ShiftedBoxes(10**12), Hats(2)],
    "coordinates": [1, 3, 7, 12],
    "modulus": [None, 2, 3, 256, 1000, 2**10, 2**20, 2**30, 2**62, 2**63],
    "together": [0, 1, 2, 3, 8, 100],
    "shares": [0, 1, 2, 3, 5, 8, 14, 20, 30],
    "floor": [
        None, BoundedGeometric(7, 0.5), BoundedGeometric(3, 0.5), BoundedGeometric(6, 0.5), PlanarGeometric(4, 3, 5.0, 0.1),
        PlanarGeometric(3, 4, 5.0, 0.1), PlanarGeometric(4, 3, 5.0, 0.1, "manhattan"), KaryRandomizedResponse(3, 1.0),
        KaryRandomizedResponse(8, 1.0),
    ],
    "trusted": ["nobody", "curator", "aggregator", "shuffler"],
    "step": [0.1, 1000.0],
    "epsilon": [0.3, 0.9, 0.999999, 2.0, 10.0],  # times what it was
    "delta": [0.0, 1e-30, 1e-9, 1e-6, 1e-3, 0.1],
    "distance": [0.5, 0.99, 1.0000001, 1.5, 2.0],  # times what it was
    "shape": ["flat", "linear"],
    "rounds": [1, 2, 3, 10, 2**53 - 1],
    "honest": [1, 5, 18, 19, 20, 22],
    "users": [18, 19, 22, 100, 10**6],
}  # fmt: skip
PROMISED = ("epsilon", "delta", "distance", "shape")


def forged(generator: random.Random) -> Task:
    """A task with one to three fields changed, and the words and bounds that its maker would write down for it."""
    query, fields, target = generator.choice(BASES)
    built = {
        "name": "noisy-vectors", "trusted": "shuffler", "factor": 0.05, "sharers": 20, "modulus": 2**12, "together": 2, "shares": 1,
        **fields,
    }  # fmt: skip
    promise = {name: getattr(target, name) for name in PROMISED}
    around = {"users": 22, "honest": 22, "rounds": 1}
    for name in generator.sample(sorted(CHOICES), generator.randint(0, 3)):
        value = generator.choice(CHOICES[name])
        where: dict[str, Any] = promise if name in PROMISED else around if name in around else built
        where[name] = value * where[name] if name in ("factor", "epsilon", "distance") else value
    built.setdefault("coordinates", built["features"].table(space_of(query)).shape[1])
    protocol, wanted = NoisyVectors(**built), ms.Target(**promise)
    return Task(
        query=query, protocol=protocol, **around, guarantee=protocol.guarantee(query, wanted, around["honest"], around["rounds"]),
        if_shuffler_colludes=protocol.alone(query, wanted, around["rounds"]),
    )  # fmt: skip


@lru_cache(maxsize=256)
def excess(people: int, places: int, order: int) -> Fraction:
    """E[order^(C-1)] - 1, C the components that a random permutation of people * places leaves of the people: the exponential formula."""
    everything = [Fraction(math.factorial(k * places), math.factorial(k)) for k in range(people + 1)]
    joined, weighted = [Fraction(0)], [Fraction(1)]
    for k in range(1, people + 1):
        joined.append(everything[k] - sum(Fraction(j, k) * joined[j] * everything[k - j] for j in range(1, k)))
        weighted.append(sum((Fraction(j, k) * order * joined[j] * weighted[k - j] for j in range(1, k + 1)), Fraction(0)))
    return weighted[-1] * math.factorial(people) / math.factorial(people * places) / order - 1


@lru_cache(maxsize=4096)
def share_loss(sharers: int, rate: float, size: int) -> float:
    """ln f(0)/f(size) of one share of the noise."""
    with mpmath.workdps(40):
        p, b = mpmath.exp(-mpmath.mpf(rate)), mpmath.mpf(1) / sharers
        masses = [p**d * mpmath.binomial(b + d - 1, d) * mpmath.hyp2f1(b, b + d, d + 1, p * p) for d in (0, size)]
        return float(mpmath.log(masses[0] / masses[1]))


def far(sizes: list[int], rate: float, epsilon: float) -> float:
    """The hockey-stick divergence of discrete Laplace variables and their shifts."""
    p, law = math.exp(-rate), np.ones(1)
    for size in sizes:
        law = np.convolve(law, np.array([1.0, *((1.0 - p) * p**j for j in range(1, size)), p**size]) / (1.0 + p))
    losses = rate * (sum(sizes) - 2.0 * np.arange(len(law)))
    return float(np.sum(law * -np.expm1(np.minimum(epsilon - losses, 0.0))))


def earth_mover(apart: Any, one: tuple[int, ...], other: tuple[int, ...]) -> float:
    size = math.lcm(len(one), len(other))
    cost = apart[np.ix_(np.repeat(one, size // len(one)), np.repeat(other, size // len(other)))]
    return math.fsum(cost[linear_sum_assignment(cost)]) / size


def holders(task: Task, points: int, generator: random.Random) -> list[tuple[int, ...]]:
    items, most = task.query.items, min(getattr(task.protocol, "most_items", None) or 1, 4)
    sizes = range(1, most + 1) if items == "any" else [items if isinstance(items, int) else 1]
    held = [one for size in sizes for one in itertools.combinations_with_replacement(range(points), size)]
    return held if len(held) <= 40 else generator.sample(held, 40)


def broken(task: Task, generator: random.Random) -> list[str]:
    """The promises of an accepted task that are not true."""
    query, promise, alone, rounds, vectors = task.query, task.guarantee, task.if_shuffler_colludes, task.rounds, task.protocol
    assert isinstance(vectors, NoisyVectors)
    space = space_of(query)
    points = space.domain.points(space.domain.all_values())
    apart, table = np.asarray(space.metric.pairwise(points, points)), vectors.features.table(space).toarray()
    mantissa, exponent = math.frexp(vectors.factor)
    rate = math.ldexp(math.floor(mantissa * 2**30), exponent - 30)
    held, wrong = holders(task, len(table), generator), []
    sent = np.array([table[list(items)].sum(axis=0) for items in held])
    if query.items == "any":
        sent = np.array(
            [[math.floor(Fraction(vectors.units * int(c), len(i)) + Fraction(1, 2)) for c in v] for i, v in zip(held, sent, strict=True)]
        )
    many = None if query.items is None else np.array([len(items) for items in held])
    if not np.array_equal(sent, vectors._features_of(np.concatenate(held).astype(np.int64), many, space)):
        wrong.append("other vectors are sent")
    if vectors.sharers > (task.honest if vectors.trusted in ("shuffler", "aggregator") else 1):
        wrong.append("too little noise")
    mixing = 0.0
    if vectors.trusted == "shuffler":
        order, piles = (vectors.modulus or 2) ** (vectors.together + 1), -(-table.shape[1] // vectors.together) * rounds
        mixing = (
            piles
            * (1.0 + math.exp(promise.epsilon))
            / 2.0
            * math.sqrt(min(excess(min(task.honest, 22), vectors.shares - 1, order), Fraction(10)))
        )
    for (i, one), (j, other) in itertools.combinations(enumerate(held), 2):
        distance, changed = earth_mover(apart, one, other), [int(size) for size in np.abs(sent[i] - sent[j]) if size]
        loss = rounds * rate * sum(changed)
        if promise.shape == "linear":
            allowed, delta = promise.epsilon * distance / promise.distance, mixing
        else:
            allowed, delta = promise.epsilon if distance <= promise.distance else math.inf, mixing
        if loss > allowed * ROOM and promise.delta > 0.0 and rounds * sum(changed) < 3000:
            # people together may all change one coordinate, which is the worst that they can do
            sizes = [sum(changed)] if promise.protects == "people together" else changed
            delta, loss = delta + far(sizes * rounds, rate, allowed), 0.0
        if loss > allowed * ROOM or delta > promise.delta * ROOM:
            wrong.append(f"{one} and {other} lose {loss} of {allowed}, delta {delta} of {promise.delta}")
        if (
            vectors.trusted in ("shuffler", "aggregator")
            and vectors.floor is None
            and distance <= alone.distance
            and max(changed, default=0) < 200
        ):
            single = rounds * sum(share_loss(vectors.sharers, rate, size) for size in changed)
            if single > alone.epsilon * ROOM:
                wrong.append(f"{one} and {other} lose {single} of {alone.epsilon} alone")
    if vectors.trusted == "curator" and alone.epsilon < math.inf:
        wrong.append("a curator who colludes sees everything")
    return wrong


def select_accepted(count: int, seed: int) -> int:
    generator, found = random.Random(seed), 0
    for _ in range(count):
        try:
            task = forged(generator)
            task.verify()
        except (MetricShuffleError, ValueError):
            continue
        found += 1
        assert not broken(task, generator), repr(task.protocol)
    return found


def test_what_is_accepted_is_true() -> None:
    assert select_accepted(150, seed=1) >= 30


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2, 6))
def test_what_is_accepted_is_true_of_many(seed: int) -> None:
    assert select_accepted(1500, seed) >= 300
