"""Attacked views of a mechanism: positions, moves and other values, corners first."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment, linprog
from tests.selfcheck.views import (
    Law,
    SameOthers,
    View,
    binomial,
    counted,
    likely,
    polya,
    power,
    product,
    shifted,
)

import metricshuffle as ms
from metricshuffle.protocols.features import space_of
from metricshuffle.randomizers.additive_randomizer import AdditiveRandomizer
from metricshuffle.randomizers.count_response import CountResponse

Attack = View | SameOthers
Numbers = np.random.Generator
WIDEST_PLANE = 400
"""Cells per side of the view of two axes together."""
MOST_OUTCOMES = 3000
MOST_ENTRIES = 2**18
MAX_FEATURES = 4
"""Number of sums whose joint outcomes are enumerated."""


def attacks(
    query: Any, protocol: Any, honest: int, distance: float, numbers: Numbers
) -> Iterator[Attack]:
    """Yield views of inputs up to `distance` units apart.

    Reports of `honest` people are seen together, or one person's alone.
    """
    together = honest if protocol.trusted in ("shuffler", "aggregator") else 1
    if isinstance(protocol, ms.Sums):
        yield from _sums(query, protocol, together, distance, numbers)
    elif isinstance(protocol, ms.NoisyVectors):
        yield from _feature_sums(query, protocol, together, distance, numbers)
    elif isinstance(protocol, ms.ShufflerNoise):
        yield from _dummies(query, protocol, distance, numbers)
    elif isinstance(protocol, ms.NoisyAnswers):
        yield from _vectors(query, protocol, distance, numbers)
    elif isinstance(query, ms.UserHistogram):
        yield from _items(query, protocol, together, distance, numbers)
    else:
        yield from _reports(query, protocol, together, distance, numbers)


# Dummies


def _dummies(
    query: Any, protocol: ms.ShufflerNoise, distance: float, numbers: Numbers
) -> Iterator[Attack]:
    """Views of the counts of all parts that a move changes, whatever the others hold.

    Values that are randomized first or drawn, and a shuffler that colludes, are not attacked here.
    """
    if (
        protocol.trusted != "shuffler"
        or protocol.floor is not None
        or protocol.width > 1
        or protocol.drawn
    ):
        return
    table = protocol.features.table(space_of(query)).toarray()
    if protocol.sizes == (2,):
        table = table[:, :1]  # the other part follows from it
    radius = protocol.radius
    law = np.exp(-protocol.rate * np.abs(np.arange(2 * radius + 1.0) - radius))
    law /= law.sum()
    if isinstance(query, ms.Histogram):
        cells = range(len(table))
        pairs = [(np.array([a]), np.array([b])) for a, b in itertools.permutations(cells, 2)]
        pairs = [pairs[k] for k in numbers.permutation(len(pairs))[:40]]
        apart = [_cells_apart(query, (int(a[0]), int(b[0])), protocol.step) for a, b in pairs]
    else:
        pairs = list(_holdings(query.people, [protocol.items], numbers, 12))
        apart = [_emd(a, b, query.people.distances) for a, b in pairs]
    for (first, second), length in zip(pairs, apart, strict=True):
        shifts = table[first].sum(axis=0) - table[second].sum(axis=0)
        if length <= distance * (1.0 + 1e-12) and shifts.any():
            what = f"dummies around {first.tolist()} or {second.tolist()}"
            seen = View(length, np.ones(1), np.ones(1), what)
            for shift in shifts[shifts != 0]:
                ends = (np.zeros(max(0, shift)), np.zeros(max(0, -shift)))
                moved = np.concatenate([ends[0], law, ends[1]])
                still = np.concatenate([ends[1], law, ends[0]])
                seen = _by_ratio(product(seen, View(length, moved, still, what), length, what))
            yield seen


def _by_ratio(view: View) -> View:
    """The view with outcomes of equal likelihood ratio added up, which loses nothing."""
    possible = (view.first > 0.0) | (view.second > 0.0)
    first, second = view.first[possible], view.second[possible]
    with np.errstate(divide="ignore"):
        ratios = np.round(np.log(first) - np.log(second), 9)
    places = np.unique(ratios, return_inverse=True)[1]
    laws = [np.zeros(places.max() + 1) for _ in range(2)]
    np.add.at(laws[0], places, first)
    np.add.at(laws[1], places, second)
    return View(view.distance, laws[0], laws[1], view.what)


# Sums


def _sums(
    query: Any, protocol: ms.Sums, honest: int, distance: float, numbers: Numbers
) -> Iterator[Attack]:
    steps = math.floor(distance / protocol.step * (1.0 + 1e-9))
    spans = [randomizer.span for randomizer in protocol.randomizers]
    if len(spans) == 1:
        for x, y in _moves(spans[0], protocol.grain, steps, numbers):
            yield from _axis(
                protocol.randomizers[0],
                honest,
                x,
                y,
                abs(x - y) * protocol.step,
                numbers,
                every=True,
            )
        return
    for i, j in _plane_moves(spans, steps, numbers):
        apart = math.hypot(i, j) * protocol.step
        if apart <= distance * (1.0 + 1e-12) and i + j:
            one, other = (
                next(_axis(randomizer, honest, 0, move, 0.0, numbers, every=False))
                for randomizer, move in zip(protocol.randomizers, (i, j), strict=True)
            )
            yield product(_middle(one), _middle(other), apart, f"move ({i}, {j})")


def _middle(view: View) -> View:
    """Part of a view with nearly all of the mass."""
    if view.first.size <= WIDEST_PLANE:
        return view
    start = max(
        0,
        min(
            int(np.argmax(view.first + view.second)) - WIDEST_PLANE // 2,
            view.first.size - WIDEST_PLANE,
        ),
    )
    return View(
        view.distance,
        view.first[start : start + WIDEST_PLANE],
        view.second[start : start + WIDEST_PLANE],
        view.what,
        view.exact_above,
    )


def _moves(span: int, grain: int, steps: int, numbers: Numbers) -> list[tuple[int, int]]:
    """Moves (from, to): the farthest, a single step, some between, at several places in a cell."""
    farthest = min(steps, span)
    lengths = (
        {
            1,
            farthest,
            grain,
            grain - 1,
            grain + 1,
            farthest // 2,
            int(numbers.integers(1, farthest + 1)),
        }
        if farthest
        else set()
    )
    moves = set()
    for length in lengths:
        if 1 <= length <= farthest:
            starts = {0, span - length, grain // 2, int(numbers.integers(0, span - length + 1))}
            moves |= {(start, start + length) for start in starts if 0 <= start <= span - length}
    return sorted(moves)


def _plane_moves(spans: list[int], steps: int, numbers: Numbers) -> list[tuple[int, int]]:
    aslant = math.floor(steps / math.sqrt(2.0))
    drawn = float(numbers.uniform(0.0, math.pi / 2.0))
    moves = {(steps, 0), (0, steps), (1, 0), (0, 1), (1, 1), (aslant, aslant)}
    moves.add((math.floor(steps * math.cos(drawn)), math.floor(steps * math.sin(drawn))))
    return sorted((min(i, spans[0]), min(j, spans[1])) for i, j in moves)


def _rounded(value: int, grain: int) -> dict[int, float]:
    cell, rest = divmod(value, grain)
    return {cell: 1.0} if rest == 0 else {cell: 1.0 - rest / grain, cell + 1: rest / grain}


def _axis(
    randomizer: Any, honest: int, x: int, y: int, apart: float, numbers: Numbers, *, every: bool
) -> Iterator[View]:
    what = f"{x} or {y}"
    if isinstance(randomizer, CountResponse):
        bits = (honest - 1) * randomizer.span
        for ones in sorted(
            {0, bits // 2, bits, int(numbers.integers(0, bits + 1))} if every else {bits // 2}
        ):
            laws = [
                np.convolve(
                    binomial(ones + value, 1.0 - randomizer.flip),
                    binomial(bits - ones + randomizer.span - value, randomizer.flip),
                )
                for value in (x, y)
            ]
            yield View(apart, laws[0], laws[1], f"{what}, {ones} other ones", 1e-200)
        return
    first = _rounded(x, randomizer.granularity)
    second = _rounded(y, randomizer.granularity)
    if randomizer.padding == "none":
        law, zero = polya(float(randomizer.shape * honest), randomizer.rate)
        yield shifted(law, zero, first, second, apart, what)
        return
    if honest * randomizer.length > 2**18:
        return
    for others in sorted({0, randomizer.top, randomizer.top // 2} if every else {0}):
        crowd = power(_padded(randomizer, {others: 1.0}), honest - 1)
        laws = [np.convolve(crowd, _padded(randomizer, held)) for held in (first, second)]
        yield View(apart, laws[0], laws[1], f"{what}, the others at {others}", 1e-11)


def _padded(randomizer: AdditiveRandomizer, held: dict[int, float]) -> Law:
    """Law of one report, 0..length."""
    out = np.zeros(randomizer.length + 1)
    if randomizer.padding == "bounded":
        half = np.array([weight / 2**64 for weight in randomizer.table.weights])
        for value, chance in held.items():
            out[value : value + 2 * randomizer.radius + 1] += chance * np.concatenate(
                [half[:0:-1], half]
            )
        return out
    law, zero = polya(float(randomizer.shape), randomizer.rate)
    for value, chance in held.items():
        np.add.at(
            out,
            np.clip(np.arange(law.size) - zero + value + randomizer.radius, 0, randomizer.length),
            chance * law,
        )
    return out


# Single reports


def _cells_apart(query: Any, pair: tuple[int, int], step: float) -> float:
    """Distance in units between the places of the cells."""
    a, b = pair
    if isinstance(query, ms.Histogram):
        domain = query.domain
        if isinstance(domain, ms.Categories):
            return 1.0
        if isinstance(domain, ms.Grid):
            rows = a // domain.width - b // domain.width
            columns = a % domain.width - b % domain.width
            return domain.cell * math.sqrt(rows**2 + columns**2)
        return abs(a - b) * query.step
    return abs(a - b) * step


def _reports(
    query: Any, protocol: ms.Frequencies, honest: int, distance: float, numbers: Numbers
) -> Iterator[Attack]:
    randomizer = protocol.randomizer
    inputs = randomizer.inputs
    if inputs * randomizer.outputs > MOST_ENTRIES:
        return
    rows = np.asarray(randomizer.rows(), dtype=np.float64)
    pairs = [
        (a, b)
        for a, b in itertools.product(
            {0, inputs - 1, inputs // 2, *numbers.integers(0, inputs, 3).tolist()}, range(inputs)
        )
        if a != b and _cells_apart(query, (a, b), protocol.step) <= distance * (1.0 + 1e-12)
    ]
    far = sorted(pairs, key=lambda pair: -_cells_apart(query, pair, protocol.step))
    chosen = dict.fromkeys(
        [*far[:4], *far[-2:], *[pairs[k] for k in numbers.integers(0, len(pairs), 3)]]
        if pairs
        else []
    )
    for a, b in chosen:
        apart = _cells_apart(query, (a, b), protocol.step)
        if honest == 1:
            yield View(apart, rows[a], rows[b], f"{a} or {b}, alone")
            continue
        if math.comb(honest + randomizer.outputs - 1, honest) <= MOST_OUTCOMES:
            every = list(itertools.combinations_with_replacement(range(inputs), honest - 1))
            for held in (
                every
                if len(every) <= 40
                else [every[k] for k in numbers.integers(0, len(every), 40)]
            ):
                yield counted(
                    [rows[a]],
                    [rows[b]],
                    [rows[c] for c in held],
                    apart,
                    f"{a} or {b}, the others at {held}",
                )
        for c in dict.fromkeys([a, b, *numbers.integers(0, inputs, 3).tolist()]):
            if randomizer.outputs <= 256 and honest > 4:
                yield SameOthers(
                    apart, rows[a], rows[b], rows[c], honest, f"{a} or {b}, all others at {c}"
                )


# Users' items


def _emd(first: NDArray[np.int64], second: NDArray[np.int64], distances: Law) -> float:
    """Earth mover's distance of two users' items, each user's with total 1."""
    costs = distances[np.ix_(first, second)]
    if first.size == second.size:
        return float(costs[linear_sum_assignment(costs)].sum() / first.size)
    rows, columns = costs.shape
    sums = [np.kron(np.eye(rows), np.ones(columns)), np.kron(np.ones(rows), np.eye(columns))]
    given = np.concatenate([np.full(rows, 1.0 / rows), np.full(columns, 1.0 / columns)])
    return float(linprog(costs.ravel(), A_eq=np.concatenate(sums), b_eq=given).fun or 0.0)


def _holdings(
    people: Any, sizes: list[int], numbers: Numbers, count: int
) -> Iterator[tuple[NDArray[np.int64], NDArray[np.int64]]]:
    """Pairs of holdings: all items at one point or another, one item moved, or random."""
    points = people.size
    distances = people.distances
    a, b = np.unravel_index(int(np.argmax(distances)), distances.shape)
    near = np.where(distances > 0.0, distances, math.inf)
    c, d = np.unravel_index(int(np.argmin(near)), near.shape)
    for m in sizes:
        yield np.full(m, a), np.full(m, b)
        yield np.full(m, c), np.full(m, d)
        yield np.full(m, a), np.append(np.full(m - 1, a), b)
        yield np.full(m, c), np.append(np.full(m - 1, c), d)
    for _ in range(count):
        m = int(numbers.choice(sizes))
        k = m if people.items is not None else int(numbers.choice(sizes))
        yield numbers.integers(0, points, m), numbers.integers(0, points, k)


def _items(
    query: Any, protocol: ms.Frequencies, honest: int, distance: float, numbers: Numbers
) -> Iterator[Attack]:
    people = query.people
    m = protocol.items
    rows = np.asarray(protocol.randomizer.rows(), dtype=np.float64)
    distances = people.distances
    for first, second in _holdings(
        people, [m] if people.items is not None else [1, 2, 3], numbers, 8
    ):
        apart = _emd(first, second, distances)
        if not 0.0 < apart <= distance * (1.0 + 1e-12):
            continue
        if protocol.drawn:  # every report is of an item drawn anew
            one = [rows[first].mean(axis=0)] * m
            other = [rows[second].mean(axis=0)] * m
        else:
            one = [rows[x] for x in first]
            other = [rows[x] for x in second]
        what = f"{first.tolist()} or {second.tolist()}"
        if math.comb(honest * m + rows.shape[1] - 1, honest * m) <= MOST_OUTCOMES:
            for held in (
                [first[0]] * m,
                [second[0]] * m,
                numbers.integers(0, people.size, m).tolist(),
            ):
                others = [rows[x] for x in held] * (honest - 1)
                yield counted(one, other, others, apart, f"{what}, the others at {held}")
        gain = np.sum(one, axis=0) - np.sum(other, axis=0)
        for c in dict.fromkeys(
            [int(first[0]), int(second[0]), int(numbers.integers(0, people.size))]
        ):
            ratio = gain / np.maximum(rows[c], 1e-300)
            for seen in (gain > 0.0, ratio >= np.quantile(ratio, 0.75)):
                yield likely(
                    one, other, [rows[c]] * m, honest - 1, seen, apart, f"{what}, all others at {c}"
                )


# Vectors


def _vectors(
    query: Any, protocol: ms.NoisyAnswers, distance: float, numbers: Numbers
) -> Iterator[Attack]:
    """Views of two users' vectors along the direction in which they differ.

    Noise of another norm has its ratio along it.
    """
    table = np.asarray(protocol.features.coordinates(query).table)
    noise = protocol.noise
    people = query.people
    for first, second in _holdings(
        people, [people.items] if people.items is not None else [1, 2, 3], numbers, 12
    ):
        apart = _emd(first, second, people.distances)
        if not 0.0 < apart <= distance * (1.0 + 1e-12):
            continue
        moved = table[first].mean(axis=0) - table[second].mean(axis=0)
        if noise.noise == "k-norm":  # its cells are attacked by tests of their own
            continue
        if noise.noise == "gaussian":
            yield _normal(
                float(np.linalg.norm(moved)) / noise.scale,
                apart,
                f"{first.tolist()} or {second.tolist()}",
            )
        else:
            size = (
                float(np.linalg.norm(moved, {"l1": 1, "l2": 2, "linf": np.inf}[noise.noise]))
                / noise.scale
            )
            # far out along the move the density falls by just e^-size
            yield View(
                apart,
                np.array([0.5, 0.5 * math.exp(-size)]),
                np.array([0.5 * math.exp(-size), 0.5]),
                "ratio of densities",
            )


# Sums of features


def _feature_sums(
    query: Any, protocol: ms.NoisyVectors, honest: int, distance: float, numbers: Numbers
) -> Iterator[Attack]:
    """Views of the noisy sums that a move changes, without the others' values.

    A few of them if there are many.
    """
    space = space_of(query)
    table = protocol.features.table(space).toarray()
    shape = honest / protocol.sharers
    rates = [protocol.factor * weight for weight in protocol.features.weights(space)]
    if protocol.rounding is not None:
        rates = [math.log1p(rate) for rate in rates]
    blur = np.eye(len(table)) if protocol.floor is None else np.asarray(protocol.floor.rows())
    if isinstance(query, ms.Histogram):
        cells = range(len(table))
        pairs = [(np.array([a]), np.array([b])) for a, b in itertools.permutations(cells, 2)]
        pairs = [pairs[k] for k in numbers.permutation(len(pairs))[:40]]
        apart = [_cells_apart(query, (int(a[0]), int(b[0])), protocol.step) for a, b in pairs]
    else:
        people = query.people
        sizes = [people.items] if people.items is not None else [1, 2, 3]
        pairs = list(
            _holdings(
                people,
                [size for size in sizes if size <= (protocol.most_items or size)],
                numbers,
                12,
            )
        )
        apart = [_emd(a, b, people.distances) for a, b in pairs]
    for (first, second), length in zip(pairs, apart, strict=True):
        if not length <= distance * (1.0 + 1e-12) or (
            protocol.floor is not None and first.size > 1
        ):
            continue
        vectors = [_vector(table, held, protocol) for held in (first, second)]
        changed = np.flatnonzero([one != two for one, two in zip(*vectors, strict=True)])
        for some in (numbers.permutation(changed)[:MAX_FEATURES], changed):
            laws = []
            for held in (first, second):
                weights = blur[held[0]] if held.size == 1 else np.ones(1)
                counted_as = (
                    [np.array([x]) for x in range(len(table))] if held.size == 1 else [held]
                )
                possible = [_vector(table, items, protocol) for items in counted_as]
                whole = len(some) > MAX_FEATURES
                law: Any = 0.0
                for weight, vector in zip(weights, possible, strict=True):
                    parts = [
                        _outcomes(
                            shape,
                            rates[e],
                            vector[e],
                            (vectors[0][e], vectors[1][e]),
                            whole,
                        )
                        for e in some
                    ]
                    law = law + float(weight) * _outer(parts)
                laws.append(np.ravel(law))
            if len(some):
                yield View(
                    length,
                    laws[0],
                    laws[1],
                    f"features of {first.tolist()} or {second.tolist()}",
                    1e-200,
                )


def _vector(
    table: NDArray[np.int64], held: NDArray[np.int64], protocol: ms.NoisyVectors
) -> list[dict[int, float]]:
    """Law of every coordinate of a person's vector without noise, as value -> probability."""
    sums = np.asarray(table[held].sum(axis=0), dtype=np.int64)
    if protocol.rounding is not None:
        return [_rounded(protocol.units * int(x), protocol.divisor * held.size) for x in sums]
    if protocol.most_items is not None:
        sums = np.floor(protocol.units * sums / held.size + 0.5).astype(np.int64)
    return [{int(x): 1.0} for x in sums]


def _outcomes(
    shape: float,
    rate: float,
    values: dict[int, float],
    either: tuple[dict[int, float], dict[int, float]],
    whole: bool,
) -> Law:
    """Probabilities that a noisy sum lies below, at each value between, and above all of `either`.

    With `whole`, only the probability of the first value, on the side where it exceeds the second.
    """
    law, zero = polya(shape, rate)
    low = min(*either[0], *either[1])
    high = max(*either[0], *either[1])

    def beyond(cells: Law, start: int) -> float:
        return float(cells[max(start, 0) :].sum())

    def at(number: int, value: int) -> float:
        place = number - value + zero
        return float(law[place]) if 0 <= place < law.size else 0.0

    means = [sum(value * weight for value, weight in numbers.items()) for numbers in either]
    outermost = max(either[0]) if means[0] > means[1] else min(either[0])
    between = range(low, high + 1) if high - low <= 8 else (low, high)
    outcomes: Law = np.zeros(1)
    for value, weight in values.items():
        cells = (
            [at(outermost, value)]
            if whole
            else [
                beyond(law[::-1], law.size - (low - value + zero)),
                *(at(number, value) for number in between),
                beyond(law, high + 1 - value + zero),
            ]
        )
        outcomes = outcomes + weight * np.array(cells)
    return outcomes


def _outer(parts: list[Law]) -> Law:
    found = np.ones(1)
    for part in parts:
        found = np.outer(found, part).ravel()
    return found


def _normal(size: float, apart: float, what: str) -> View:
    """Two normal laws of variance 1, `size` apart, in 4,000 cells."""
    from scipy.special import ndtr

    edges = np.linspace(-14.0, 14.0 + size, 4001)
    left = [np.diff(ndtr(edges - centre)) for centre in (0.0, size)]
    right = [-np.diff(ndtr(centre - edges)) for centre in (0.0, size)]
    laws = [
        np.where(edges[:-1] < centre, one, other)
        for one, other, centre in zip(left, right, (0.0, size), strict=True)
    ]
    return View(apart, laws[0], laws[1], what)
