"""Vector tasks with a changed number: rejected, or true by another computation."""

from __future__ import annotations

import copy
import json
import math
from collections.abc import Iterator
from fractions import Fraction
from typing import Any

import mpmath
import numpy as np
import pytest
from tests.oracles import noisy_vectors as oracle

import metricshuffle as ms
from metricshuffle.errors import MetricShuffleError
from metricshuffle.protocols.features import space_of
from metricshuffle.protocols.noisy_vectors import NoisyVectors
from metricshuffle.queries import Histogram, UserHistogram
from metricshuffle.randomizers import BoundedGeometric, KaryRandomizedResponse, PlanarGeometric
from metricshuffle.spaces import Clustered, Space, Users, users_of
from metricshuffle.tasks.task import Task

LINE = ms.Histogram(ms.Integers(0, 5))
PLANS: dict[str, tuple[Any, ms.Target, dict[str, Any]]] = {
    "line": (LINE, ms.Target(1.0, 1e-6, 3.0), {"floor": False}),
    "line, half honest": (LINE, ms.Target(1.0, 1e-6, 3.0), {"floor": False, "honest": 25}),
    "line, with a floor": (LINE, ms.Target(1.0, 1e-6, 3.0), {"max_local_epsilon": 5.0}),
    "line, flat": (LINE, ms.Target(1.0, 1e-6, 5.0, "flat"), {"floor": False}),
    "line, three rounds": (LINE, ms.Target(1.0, 1e-6, 3.0), {"floor": False, "rounds": 3}),
    "line, curator": (LINE, ms.Target(1.0, 0.0, 3.0), {"trusted": "curator"}),
    "line, adder": (LINE, ms.Target(1.0, 0.0, 3.0), {"trusted": "aggregator", "floor": False}),
    "grid": (
        ms.Histogram(ms.Grid(3, 2, 100.0, "m")),
        ms.Target(1.0, 1e-6, 200.0),
        {"max_local_epsilon": 5.0},
    ),
    "labels": (ms.Histogram(ms.Categories(["a", "b", "c"])), ms.Target(1.0, 1e-6, 1.0), {}),
    "items": (
        ms.UserHistogram(Users(Space(ms.Integers(0, 3)), 2)),
        ms.Target(1.0, 1e-6, 2.0),
        {"max_local_epsilon": 5.0},
    ),
    "any items": (
        ms.UserHistogram(Users(Space(ms.Integers(0, 3)), None)),
        ms.Target(1.0, 1e-6, 2.0),
        {},
    ),
    "tree": (
        ms.UserHistogram(Users(users_of(Clustered(2, 2, 0.2)).items_in, 2)),
        ms.Target(1.0, 1e-6, 0.5),
        {},
    ),
}

SOME = ("line, flat", "line, adder", "line, curator", "any items")


def numbers(part: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[tuple[Any, ...], Any]]:
    """Every number of a document, and every null, with the way to it."""
    inside = (
        part.items()
        if isinstance(part, dict)
        else enumerate(part)
        if isinstance(part, list)
        else ()
    )
    for key, value in inside:
        yield from numbers(value, (*path, key))
    if part is None or (isinstance(part, int | float) and not isinstance(part, bool)):
        yield path, part


def changed(document: Any, path: tuple[Any, ...], value: Any) -> Any:
    found = copy.deepcopy(document)
    inner = found
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = value
    for guarantee in ("guarantee", "if_shuffler_colludes"):
        found[guarantee].pop("sentence", None)
    found.pop("digest")
    return found


def others(value: Any) -> list[Any]:
    if value is None:
        return [1, 2]
    if isinstance(value, int):
        return [value + 1, value - 1, 2 * value, value // 2, 0, -value, 10**6 * value]
    return [
        2.0 * value,
        0.5 * value,
        1.01 * value,
        0.99 * value,
        0.0,
        -value,
        1e6 * value,
        1e-6 * value,
    ]


def rounded_down(rate: float) -> Fraction:
    mantissa, exponent = math.frexp(rate)
    return Fraction(math.floor(mantissa * 2**30)) * Fraction(2) ** (exponent - 30)


class Truth:
    """What is true of a task, from the definitions."""

    def __init__(self, task: Task) -> None:
        assert isinstance(task.protocol, NoisyVectors)
        self.task = task
        self.protocol = task.protocol
        self.said = task.guarantee
        space = space_of(task.query)
        self.table = self.protocol.features.table(space).toarray()
        weights = self.protocol.features.weights(space)
        losses = [self.protocol.factor * float(weight) for weight in weights]
        self.rates = np.array(
            [
                float(rounded_down(math.log1p(loss) if self.protocol.rounding else loss))
                for loss in losses
            ]
        )
        points = space.domain.points(space.domain.all_values())
        self.apart = np.asarray(space.metric.pairwise(points, points))
        self.units: float = self.protocol.units
        query = task.query
        if self.protocol.rounding:
            self.units = self.protocol.units / self.protocol.divisor
            assert self.protocol.floor is None
            assert self.protocol.most_items is None
        elif isinstance(query, UserHistogram):
            assert self.units == query.people.items
        self.pairs = [(i, j) for i in range(len(self.table)) for j in range(i)]

    def loss(self, i: int, j: int) -> float:
        """Averages that are rounded at random lose e^rate - 1 for each unit of a tiny move."""
        losses = np.expm1(self.rates) if self.protocol.rounding else self.rates
        return float(losses @ np.abs(self.table[i] - self.table[j])) * self.task.rounds

    @property
    def mixing(self) -> float:
        protocol = self.protocol
        task = self.task
        if protocol.trusted != "shuffler":
            return 0.0
        bits = ((protocol.modulus or 0) - 1).bit_length()
        excess = oracle.excess(task.honest, protocol.shares, 2 ** (bits * (protocol.together + 1)))
        tau = float(mpmath.sqrt(mpmath.mpf(excess.numerator) / excess.denominator)) / 2.0
        piles = -(-len(self.rates) // protocol.together) * task.rounds
        return piles * (1.0 + math.exp(self.said.epsilon)) * tau

    def check(self) -> None:
        """The promise if whoever is trusted is honest, and what is left if not."""
        task = self.task
        said = self.said
        if self.protocol.trusted in ("shuffler", "aggregator"):
            assert said.trust.honest_reports == task.honest >= self.protocol.sharers
        else:
            assert self.protocol.sharers == 1
        room = said.delta * (1.0 + 1e-9) - self.mixing
        assert room >= 0.0
        if said.shape == "linear" or not isinstance(task.query, Histogram):
            most = (
                max(self.loss(i, j) / self.apart[i, j] for i, j in self.pairs)
                * self.units
                * said.distance
            )
            over = most - said.epsilon
            assert over <= 1e-12 * most or -math.expm1(-over) / (1.0 + math.exp(-most)) <= room
        else:
            for i, j in self.pairs:
                if self.apart[i, j] <= said.distance and self.loss(i, j) > said.epsilon * (
                    1.0 + 1e-12
                ):
                    sizes = np.abs(self.table[i] - self.table[j])
                    moves = [
                        (float(rate), int(size))
                        for rate, size in zip(self.rates, sizes, strict=True)
                        if size
                    ] * task.rounds
                    assert float(oracle.large_move_delta(moves, said.epsilon)) <= room
        self.check_alone()

    def check_alone(self) -> None:
        left = self.task.if_shuffler_colludes
        assert (left.shape, left.trust.trusted, left.distance <= self.said.distance) == (
            "flat",
            "nobody",
            True,
        )
        if math.isinf(left.epsilon) or self.protocol.trusted == "nobody":
            return
        assert self.protocol.trusted != "curator"
        floor = self.protocol.floor
        items = self.units if isinstance(self.task.query, UserHistogram) else 1
        kept = math.inf
        if isinstance(floor, KaryRandomizedResponse):
            kept = math.log(floor.keep / floor.other) * items
        elif floor is not None:
            assert isinstance(floor, BoundedGeometric | PlanarGeometric)
            laws = np.log(np.array([floor.law(point) for point in range(len(self.table))]))
            kept = (
                max(float(np.max(laws[i] - laws[j])) / self.apart[i, j] for i, j in self.pairs)
                * items
                * left.distance
            )
        worst = max(
            (self.alone(i, j) for i, j in self.pairs if self.apart[i, j] <= left.distance),
            default=0.0,
        )
        assert min(kept * self.task.rounds, worst * self.task.rounds) <= left.epsilon * (1.0 + 1e-8)

    def alone(self, i: int, j: int) -> float:
        """Of somebody all of whose items move from i to j (at least, if she holds several)."""
        total = 0.0
        b = mpmath.mpf(1) / self.protocol.sharers
        for rate, size in zip(self.rates, np.abs(self.table[i] - self.table[j]), strict=True):
            units = self.units if isinstance(self.task.query, UserHistogram) else 1.0
            d = math.floor(int(size) * units)
            if d:
                p = mpmath.exp(-mpmath.mpf(float(rate)))
                masses = [
                    p**k * mpmath.binomial(b + k - 1, k) * mpmath.hyp2f1(b, b + k, k + 1, p * p)
                    for k in (0, d)
                ]
                total += float(mpmath.log(masses[0] / masses[1]))
        return total


@pytest.mark.thorough
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.slow] * (name not in SOME)) for name in PLANS]
)
def test_changed_tasks_are_refused_or_true(name: str) -> None:
    query, target, options = PLANS[name]
    task = ms.plan(query, target, 50, protocols=["noisy-vectors"], **options).task
    Truth(task).check()
    document = json.loads(task.to_json())
    refused = select_accepted = 0
    for path, value in numbers(document):
        for other in others(value):
            if other == value:
                continue
            try:
                forged = Task.model_validate(changed(document, path, other))
                forged.verify()
            except (MetricShuffleError, ValueError):
                refused += 1
                continue
            select_accepted += 1
            Truth(forged).check()
    assert refused > 60
    assert select_accepted > 5
