"""Vector tasks with random changes: what `verify` accepts is true by another account."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Callable, Sequence
from fractions import Fraction
from functools import lru_cache, partial
from typing import Any

import mpmath
import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment

import metricshuffle as ms
from metricshuffle.errors import MetricShuffleError, PlanError
from metricshuffle.privacy.guarantee import Who
from metricshuffle.privacy.profile import Shape
from metricshuffle.protocols.features import (
    Cells,
    Hats,
    Ramps,
    ShiftedBoxes,
    TableColumns,
    space_of,
)
from metricshuffle.protocols.noisy_vectors import NoisyVectors
from metricshuffle.queries.query import Inputs, Query
from metricshuffle.randomizers import BoundedGeometric, KaryRandomizedResponse, PlanarGeometric
from metricshuffle.randomness import Randomness
from metricshuffle.spaces import Circle, Manhattan, Space, Users
from metricshuffle.tasks.task import Task

Floats = NDArray[np.float64]
LogMass = Callable[[NDArray[np.int64]], Floats]
ROOM = 1.0 + 1e-9
"""The oracle computes in floats, rounded to nearest."""
LINE = ms.Histogram(ms.Integers(0, 7))
PLANE = ms.Histogram(ms.Grid(4, 3, 0.1))
LABELS = ms.Histogram(ms.Categories(["a", "b", "c"]))
HOLDERS = [ms.UserHistogram(Users(Space(ms.Integers(0, 3)), items)) for items in (3, 2, None)]
PATHS = ms.UserHistogram(Users(Space(ms.Grid(2, 3), Manhattan())))
ROUND = ms.UserHistogram(Users(Space(ms.Integers(0, 4), Circle(5)), 2))
CLOSE = PlanarGeometric(4, 3, 20.0, 0.1)
MEANS = ms.UserLinearQuery(Users(Space(ms.Integers(0, 2))), np.array([0.0, 0.3, 1.0]))
COLUMNS = ms.UserLinearQuery(
    Users(Space(ms.Integers(0, 2)), 2), np.array([[0.0, 5.0], [3.0, 1e4], [1.0, 7e3]]), ("a", "b")
)
FRACTIONS = TableColumns.of(MEANS, balanced=False)
BALANCED = TableColumns.of(COLUMNS, balanced=True)
LONG = ms.Target(1.0, 0.0, 4.0)
BASES: list[tuple[Query, dict[str, Any], ms.Target]] = [
    (LINE, {"features": Ramps(1), "shares": 14}, ms.Target(1.0, 1e-4, 4.0)),
    (
        LINE,
        {"features": Ramps(2), "shares": 14, "floor": BoundedGeometric(7, 1.0)},
        ms.Target(1.0, 1e-4, 4.0),
    ),
    (LINE, {"features": Ramps(1), "shares": 14, "factor": 0.06}, ms.Target(0.3, 1e-2, 7.0, "flat")),
    (
        LINE,
        {"features": Ramps(3), "trusted": "nobody", "sharers": 1, "together": 1},
        ms.Target(1.0, 0.0, 7.0),
    ),
    (
        PLANE,
        {"features": ShiftedBoxes(2), "shares": 24, "factor": 0.02, "floor": CLOSE},
        ms.Target(2.0, 1e-4, 0.2),
    ),
    (PLANE, {"features": Cells(), "trusted": "aggregator"}, ms.Target(0.5, 0.0, 0.2)),
    (
        LABELS,
        {"features": Cells(), "trusted": "curator", "sharers": 1, "together": 1},
        ms.Target(0.5, 0.0, 1.0),
    ),
    (
        LABELS,
        {"features": Cells(), "shares": 14, "floor": KaryRandomizedResponse(3, 2.0)},
        ms.Target(0.5, 1e-4, 1.0),
    ),
    (HOLDERS[0], {"features": Ramps(1), "shares": 16, "units": 3}, ms.Target(1.0, 1e-3, 3.0)),
    (
        HOLDERS[1],
        {"features": Cells(), "shares": 16, "units": 2, "floor": BoundedGeometric(3, 1.0)},
        ms.Target(1.0, 1e-3, 3.0),
    ),
    (
        HOLDERS[2],
        {"features": Ramps(1), "shares": 24, "units": 12, "most_items": 4, "factor": 0.01},
        ms.Target(1.0, 1e-3, 3.0),
    ),
    (
        PATHS,
        {"features": ShiftedBoxes(2), "shares": 24, "units": 60, "most_items": 4, "factor": 0.01},
        ms.Target(5.0, 1e-3, 2.0),
    ),
    (ROUND, {"features": Cells(), "trusted": "aggregator", "units": 2}, ms.Target(1.0, 0.0, 2.0)),
    *(
        (query, {"rounding": "random", **fields}, target)
        for query, fields, target in [
            (
                HOLDERS[2],
                {"features": Ramps(1), "shares": 24, "units": 5, "divisor": 2},
                ms.Target(1.0, 1e-3, 3.0),
            ),
            (
                HOLDERS[2],
                {"features": Cells(), "trusted": "aggregator", "units": 2, "factor": 0.3},
                ms.Target(4.0, 0.0, 3.0, "flat"),
            ),
            (
                HOLDERS[2],
                {"features": Ramps(1), "trusted": "nobody", "sharers": 1, "together": 1},
                ms.Target(1.0, 0.0, 3.0, "flat"),
            ),
            (
                MEANS,
                {
                    "features": FRACTIONS,
                    "trusted": "aggregator",
                    "divisor": 2**28,
                    "factor": 0.17,
                    "together": 1,
                },
                ms.Target(1.0, 0.0, 2.0),
            ),
            (
                MEANS,
                {
                    "features": FRACTIONS,
                    "trusted": "curator",
                    "sharers": 1,
                    "divisor": 2**28,
                    "factor": 0.5,
                    "together": 1,
                },
                ms.Target(2.0, 0.0, 2.0, "flat"),
            ),
            (
                COLUMNS,
                {"features": BALANCED, "shares": 24, "divisor": 2**10, "factor": 0.02},
                ms.Target(1.0, 1e-3, 2.0),
            ),
            (LINE, {"features": Ramps(2), "trusted": "aggregator", "divisor": 3, "units": 4}, LONG),
        ]
    ),
]
CHOICES: dict[str, list[Any]] = {
    "factor": [0.5, 0.9, 1.0000001, 1.01, 1.5, 4.0, 1e3, 1e-3],  # times what it was
    "sharers": [0, 1, 2, 19, 20, 21, 22, 23, 1000, 2**53 - 1],
    "units": [0, 1, 2, 3, 4, 7, 60, 2**40, -1, -4, 2**53 - 1],
    "divisor": [0, 1, 2, 3, 2**43, 2**50, 2**53 - 1, -1],
    "rounding": [None, "random"],
    "most_items": [None, 0, 1, 2, 3, 4, 5, 100, 10**9],
    "features": [
        Ramps(1),
        Ramps(2),
        Ramps(7),
        Cells(),
        ShiftedBoxes(1),
        ShiftedBoxes(2),
        ShiftedBoxes(3),
        ShiftedBoxes(10**12),
        Hats(2),
        FRACTIONS,
        BALANCED,
    ],
    "coordinates": [1, 3, 7, 12],
    "modulus": [None, 2, 3, 256, 1000, 2**10, 2**20, 2**30, 2**62, 2**63],
    "together": [0, 1, 2, 3, 8, 100],
    "shares": [0, 1, 2, 3, 5, 8, 14, 20, 30],
    "floor": [
        None,
        BoundedGeometric(7, 0.5),
        BoundedGeometric(3, 0.5),
        BoundedGeometric(6, 0.5),
        PlanarGeometric(4, 3, 5.0, 0.1),
        PlanarGeometric(3, 4, 5.0, 0.1),
        PlanarGeometric(4, 3, 5.0, 0.1, "manhattan"),
        KaryRandomizedResponse(3, 1.0),
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
}
PROMISED = ("epsilon", "delta", "distance", "shape")


def forged(generator: random.Random) -> Task:
    """Task with one to three fields changed, and the texts and bounds its maker would write."""
    query, fields, target = generator.choice(BASES)
    built = {
        "name": "noisy-vectors",
        "trusted": "shuffler",
        "factor": 0.05,
        "sharers": 20,
        "modulus": 2**12,
        "together": 2,
        "shares": 1,
        **fields,
    }
    promise = {name: getattr(target, name) for name in PROMISED}
    around = {"users": 22, "honest": 22, "rounds": 1}
    for name in generator.sample(sorted(CHOICES), generator.randint(0, 3)):
        value = generator.choice(CHOICES[name])
        where: dict[str, Any] = promise if name in PROMISED else around if name in around else built
        where[name] = value * where[name] if name in ("factor", "epsilon", "distance") else value
    built.setdefault("coordinates", built["features"].table(space_of(query)).shape[1])
    protocol = NoisyVectors(**built)
    wanted = ms.Target(**promise)
    return Task(
        query=query,
        protocol=protocol,
        **around,
        guarantee=protocol.guarantee(query, wanted, around["honest"], around["rounds"]),
        if_shuffler_colludes=protocol.alone(query, wanted, around["rounds"]),
    )


@lru_cache(maxsize=256)
def excess(people: int, places: int, order: int) -> Fraction:
    """E[order^(C-1)] - 1, by the exponential formula.

    C: the components that a random permutation of people * places leaves of the people.
    """
    everything = [
        Fraction(math.factorial(k * places), math.factorial(k)) for k in range(people + 1)
    ]
    joined = [Fraction(0)]
    weighted = [Fraction(1)]
    for k in range(1, people + 1):
        joined.append(
            everything[k] - sum(Fraction(j, k) * joined[j] * everything[k - j] for j in range(1, k))
        )
        weighted.append(
            sum(
                (Fraction(j, k) * order * joined[j] * weighted[k - j] for j in range(1, k + 1)),
                Fraction(0),
            )
        )
    return weighted[-1] * math.factorial(people) / math.factorial(people * places) / order - 1


@lru_cache(maxsize=4096)
def share_loss(sharers: int, rate: float, size: int) -> float:
    """ln f(0)/f(size) of one share of the noise."""
    with mpmath.workdps(40):
        p = mpmath.exp(-mpmath.mpf(rate))
        b = mpmath.mpf(1) / sharers
        masses = [
            p**d * mpmath.binomial(b + d - 1, d) * mpmath.hyp2f1(b, b + d, d + 1, p * p)
            for d in (0, size)
        ]
        return float(mpmath.log(masses[0] / masses[1]))


def share_masses(sharers: int, rate: float, sizes: NDArray[np.int64]) -> Floats:
    losses = [-share_loss(sharers, rate, size) for size in sizes.ravel().tolist()]
    return np.array(losses).reshape(sizes.shape)


def far(sizes: list[int], rate: float, epsilon: float) -> float:
    """The hockey-stick divergence of discrete Laplace variables and their shifts."""
    p = math.exp(-rate)
    law = np.ones(1)
    for size in sizes:
        law = np.convolve(
            law, np.array([1.0, *((1.0 - p) * p**j for j in range(1, size)), p**size]) / (1.0 + p)
        )
    losses = rate * (sum(sizes) - 2.0 * np.arange(len(law)))
    return float(np.sum(law * -np.expm1(np.minimum(epsilon - losses, 0.0))))


def earth_mover(apart: Any, one: tuple[int, ...], other: tuple[int, ...]) -> float:
    size = math.lcm(len(one), len(other))
    cost = apart[np.ix_(np.repeat(one, size // len(one)), np.repeat(other, size // len(other)))]
    return math.fsum(cost[linear_sum_assignment(cost)]) / size


def holders(task: Task, points: int, generator: random.Random) -> list[tuple[int, ...]]:
    items = task.query.items
    most = min(getattr(task.protocol, "most_items", None) or 3, 4)
    sizes = range(1, most + 1) if items == "any" else [items if isinstance(items, int) else 1]
    held = [
        one
        for size in sizes
        for one in itertools.combinations_with_replacement(range(points), size)
    ]
    return held if len(held) <= 24 else generator.sample(held, 24)


def noise_rates(vectors: NoisyVectors, space: Space) -> list[float]:
    """Rates of the noise: of 30 bits, rounded down."""
    losses = [vectors.factor * float(weight) for weight in vectors.features.weights(space)]
    wanted = [math.log1p(loss) if vectors.rounding else loss for loss in losses]
    parts = [math.frexp(rate) for rate in wanted]
    return [math.ldexp(math.floor(part * 2**30), exponent - 30) for part, exponent in parts]


def sent_vectors(
    vectors: NoisyVectors, table: NDArray[np.int64], held: list[tuple[int, ...]]
) -> list[list[Fraction]]:
    """What people send without noise; with random rounding, before it is rounded."""
    out = []
    for items in held:
        sums = [int(number) for number in table[list(items)].sum(axis=0)]
        if vectors.rounding:
            ratio = Fraction(vectors.units, vectors.divisor * len(items))
            out.append([ratio * number for number in sums])
        elif vectors.most_items is not None:
            averages = [Fraction(vectors.units * number, len(items)) for number in sums]
            out.append([Fraction(math.floor(mean + Fraction(1, 2))) for mean in averages])
        else:
            out.append([Fraction(number) for number in sums])
    return out


def sends_others(
    vectors: NoisyVectors, query: Query, table: NDArray[np.int64], held: list[tuple[int, ...]]
) -> bool:
    """Whether somebody sends anything but their vector (up to rounding), also with many items."""
    copies = [1, 2**14 + 1] if query.items == "any" and vectors.rounding else [1]
    known = vectors.model_copy(update={"trusted": "curator", "floor": None})
    for items, exact in zip(held, sent_vectors(vectors, table, held), strict=True):
        for count in copies:
            codes = np.tile(np.array(items, dtype=np.int64), count)
            sizes = None if query.items is None else np.array([len(codes)])
            inputs = Inputs(query, codes[:, None], sizes)
            row = known._values(inputs, Randomness.seeded(1))[0].tolist()
            if any(not abs(value - part) < 1 for value, part in zip(row, exact, strict=True)):
                return True
    return False


def noisy(value: Fraction, at: NDArray[np.int64], log_mass: LogMass) -> Floats:
    """Log of the masses of a value, rounded at random, plus noise; at these numbers."""
    low = math.floor(value)
    up = float(value - low)
    law = log_mass(np.abs(at - low))
    if up == 0.0:
        return law
    return np.logaddexp(math.log1p(-up) + law, math.log(up) + log_mass(np.abs(at - low - 1)))


def largest_ratio(x: list[Fraction], y: list[Fraction], log_masses: Sequence[LogMass]) -> float:
    """Largest log likelihood ratio, either way, of two vectors with noise, rounded at random.

    Between and beyond the values, log ratios of geometric noise are linear; of less noise they are
    largest near a value.
    """
    totals = np.zeros(2)
    for a, b, log_mass in zip(x, y, log_masses, strict=True):
        if a != b:
            at = np.array([math.floor(v) for v in (a, b)])[:, None] + np.arange(-1, 3)
            ratios = noisy(a, at, log_mass) - noisy(b, at, log_mass)
            totals += ratios.max(), -ratios.min()
    return float(totals.max())


def seen_excess(x: list[Fraction], y: list[Fraction], rates: list[float], epsilon: float) -> float:
    """Hockey-stick divergence, either way, of some of the noisy sums: at most the true one."""
    laws = [np.ones(1), np.ones(1)]
    for a, b, rate in zip(x, y, rates, strict=True):
        low = min(math.floor(a), math.floor(b))
        high = max(math.ceil(a), math.ceil(b))
        if a == b or (high - low + 3) * laws[0].size > 20_000:
            continue
        at = np.arange(low, high + 1)
        scale = math.log(math.tanh(0.5 * rate))
        # All beyond the ends is as at the ends, and geometric.
        more = 1.0 / -math.expm1(-rate)
        for place, value in enumerate((a, b)):
            masses = np.exp(noisy(value, at, partial(np.multiply, -rate)) + scale)
            masses[[0, -1]] *= more
            laws[place] = np.outer(laws[place], masses).ravel()
    growth = math.exp(min(epsilon, 700.0))
    return max(float(np.sum(np.maximum(p - growth * q, 0.0))) for p, q in (laws, laws[::-1]))


def broken(task: Task, generator: random.Random) -> list[str]:
    """The promises of an accepted task that are not true."""
    query = task.query
    promise = task.guarantee
    alone = task.if_shuffler_colludes
    rounds = task.rounds
    vectors = task.protocol
    assert isinstance(vectors, NoisyVectors)
    space = space_of(query)
    points = space.domain.points(space.domain.all_values())
    apart = np.asarray(space.metric.pairwise(points, points))
    table = vectors.features.table(space).toarray()
    rates = noise_rates(vectors, space)
    held = holders(task, len(table), generator)
    wrong = []
    sent = sent_vectors(vectors, table, held)
    if sends_others(vectors, query, table, held):
        wrong.append("other vectors are sent")
    if vectors.sharers > (task.honest if vectors.trusted in ("shuffler", "aggregator") else 1):
        wrong.append("too little noise")
    mixing = 0.0
    if vectors.trusted == "shuffler":
        order = (vectors.modulus or 2) ** (vectors.together + 1)
        piles = -(-table.shape[1] // vectors.together) * rounds
        mixing = (
            piles
            * (1.0 + math.exp(promise.epsilon))
            / 2.0
            * math.sqrt(min(excess(min(task.honest, 22), vectors.shares - 1, order), Fraction(10)))
        )
    whole = [partial(np.multiply, -rate) for rate in rates]
    own = [partial(share_masses, vectors.sharers, rate) for rate in rates]
    for (i, one), (j, other) in itertools.combinations(enumerate(held), 2):
        distance = earth_mover(apart, one, other)
        moved = [abs(a - b) for a, b in zip(sent[i], sent[j], strict=True)]
        loss = rounds * largest_ratio(sent[i], sent[j], whole)
        if promise.shape == "linear":
            allowed = promise.epsilon * distance / promise.distance
        else:
            allowed = promise.epsilon if distance <= promise.distance else math.inf
        delta = mixing
        if loss > allowed * ROOM + 1e-12 and promise.delta > 0.0:
            if vectors.rounding and rounds == 1:
                delta += seen_excess(sent[i], sent[j], rates, allowed)
            elif not vectors.rounding and rounds * sum(moved) < 3000:
                changed = [int(size) for size in moved if size]
                # people together may all change one coordinate, which is the worst that they can do
                sizes = [sum(changed)] if promise.protects == "people together" else changed
                delta += far(sizes * rounds, rates[0], allowed)
            loss = 0.0
        if loss > allowed * ROOM + 1e-12 or delta > promise.delta * ROOM:
            wrong.append(
                f"{one} and {other} lose {loss} of {allowed}, delta {delta} of {promise.delta}"
            )
        if (
            vectors.trusted in ("shuffler", "aggregator")
            and vectors.floor is None
            and distance <= alone.distance
            and max(moved, default=0) < 200
        ):
            single = rounds * largest_ratio(sent[i], sent[j], own)
            if single > alone.epsilon * ROOM:
                wrong.append(f"{one} and {other} lose {single} of {alone.epsilon} alone")
    if vectors.trusted == "curator" and alone.epsilon < math.inf:
        wrong.append("a curator who colludes sees everything")
    return wrong


def select_accepted(count: int, seed: int) -> int:
    generator = random.Random(seed)
    found = 0
    for _ in range(count):
        try:
            task = forged(generator)
            task.verify()
        except (MetricShuffleError, ValueError, ZeroDivisionError):
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


@pytest.mark.parametrize(
    ("units", "divisor", "factor"),
    [(-4, 1, 5.0), (-(2**20), 1, 50.0), (0, 1, 5.0), (-4, -1, 0.01), (2**44, 2**50, 30.0)],
)
@pytest.mark.parametrize("trusted", ["nobody", "curator"])
@pytest.mark.parametrize("shape", ["flat", "linear"])
def test_units_that_are_negative_or_overflow_are_refused(
    units: int, divisor: int, factor: float, trusted: Who, shape: Shape
) -> None:
    """A slope below 0 met every flat promise; 2^14 + 1 items times 2^50 are 2^50 in 64 bits."""
    protocol = NoisyVectors(
        name="noisy-vectors",
        trusted=trusted,
        features=Ramps(1),
        coordinates=3,
        factor=factor,
        units=units,
        divisor=divisor,
        rounding="random",
        modulus=2**40,
    )
    with pytest.raises(MetricShuffleError):
        Task.of(HOLDERS[2], protocol, ms.Target(1.0, 0.0, 2.0, shape), 22).verify()


def test_vectors_beyond_64_bits_are_refused() -> None:
    """2^53 units of a column of 30 bits: a product of 64 bits would be 0, which fits."""
    query, fields, _ = BASES[-4]
    protocol = NoisyVectors(
        name="noisy-vectors",
        coordinates=1,
        modulus=2**62,
        **{**fields, "sharers": 20, "divisor": 1, "units": 2**53 - 1},
    )
    with pytest.raises(PlanError, match="64 bits"):
        protocol.check_people(query, 22, 22)
