"""Which views of a mechanism are tried: positions, moves and what the others hold, the corners first and then some at random."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment, linprog
from tests.selfcheck.views import Law, SameOthers, View, binomial, counted, likely, polya, power, product, shifted

import metricshuffle as ms
from metricshuffle.protocols.features import space_of
from metricshuffle.randomizers.additive_randomizer import AdditiveRandomizer
from metricshuffle.randomizers.count_response import CountResponse

Attack = View | SameOthers
Numbers = np.random.Generator
WIDEST_PLANE = 400
"""Cells on a side of what is looked at of two axes together."""
MOST_OUTCOMES, MOST_ENTRIES = 3000, 2**18
MAX_FEATURES = 4
"""Sums that are looked at together with all their outcomes."""


def attacks(query: Any, protocol: Any, honest: int, distance: float, numbers: Numbers) -> Iterator[Attack]:
    """Views of inputs up to `distance` units apart; `honest` people's reports are seen together, or one person's alone."""
    together = honest if protocol.trusted in ("shuffler", "aggregator") else 1
    if isinstance(protocol, ms.Sums):
        yield from _sums(query, protocol, together, distance, numbers)
    elif isinstance(protocol, ms.NoisyVectors):
        yield from _feature_sums(query, protocol, together, distance, numbers)
    elif isinstance(protocol, ms.NoisyAnswers):
        yield from _vectors(query, protocol, distance, numbers)
    elif isinstance(query, ms.UserHistogram):
        yield from _items(query, protocol, together, distance, numbers)
    else:
        yield from _reports(query, protocol, together, distance, numbers)


# Sums


def _sums(query: Any, protocol: ms.Sums, honest: int, distance: float, numbers: Numbers) -> Iterator[Attack]:
    steps = math.floor(distance / protocol.step * (1.0 + 1e-9))
    spans = [randomizer.span for randomizer in protocol.randomizers]
    if len(spans) == 1:
        for x, y in _moves(spans[0], protocol.grain, steps, numbers):
            yield from _axis(protocol.randomizers[0], honest, x, y, abs(x - y) * protocol.step, numbers, every=True)
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
    """Where nearly all of the mass lies."""
    if view.first.size <= WIDEST_PLANE:
        return view
    start = max(0, min(int(np.argmax(view.first + view.second)) - WIDEST_PLANE // 2, view.first.size - WIDEST_PLANE))
    return View(
        view.distance, view.first[start : start + WIDEST_PLANE], view.second[start : start + WIDEST_PLANE], view.what, view.exact_above
    )


def _moves(span: int, grain: int, steps: int, numbers: Numbers) -> list[tuple[int, int]]:
    """From where to where: the farthest, a single step, somewhere between, at different places within a cell."""
    farthest = min(steps, span)
    lengths = {1, farthest, grain, grain - 1, grain + 1, farthest // 2, int(numbers.integers(1, farthest + 1))} if farthest else set()
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


def _axis(randomizer: Any, honest: int, x: int, y: int, apart: float, numbers: Numbers, *, every: bool) -> Iterator[View]:
    what = f"{x} or {y}"
    if isinstance(randomizer, CountResponse):
        bits = (honest - 1) * randomizer.span
        for ones in sorted({0, bits // 2, bits, int(numbers.integers(0, bits + 1))} if every else {bits // 2}):
            laws = [
                np.convolve(binomial(ones + value, 1.0 - randomizer.flip), binomial(bits - ones + randomizer.span - value, randomizer.flip))
                for value in (x, y)
            ]
            yield View(apart, laws[0], laws[1], f"{what}, {ones} other ones", 1e-200)
        return
    first, second = _rounded(x, randomizer.granularity), _rounded(y, randomizer.granularity)
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
    """The law of one report, 0..length."""
    out = np.zeros(randomizer.length + 1)
    if randomizer.padding == "bounded":
        half = np.array([weight / 2**64 for weight in randomizer.table.weights])
        for value, chance in held.items():
            out[value : value + 2 * randomizer.radius + 1] += chance * np.concatenate([half[:0:-1], half])
        return out
    law, zero = polya(float(randomizer.shape), randomizer.rate)
    for value, chance in held.items():
        np.add.at(out, np.clip(np.arange(law.size) - zero + value + randomizer.radius, 0, randomizer.length), chance * law)
    return out


# Single reports


def _cells_apart(query: Any, pair: tuple[int, int], step: float) -> float:
    """In units, from the places of the cells."""
    a, b = pair
    if isinstance(query, ms.Histogram):
        domain = query.domain
        if isinstance(domain, ms.Categories):
            return 1.0
        if isinstance(domain, ms.Grid):
            rows, columns = a // domain.width - b // domain.width, a % domain.width - b % domain.width
            return domain.cell * math.sqrt(rows**2 + columns**2)
        return abs(a - b) * query.step
    return abs(a - b) * step


def _reports(query: Any, protocol: ms.Frequencies, honest: int, distance: float, numbers: Numbers) -> Iterator[Attack]:
    randomizer = protocol.randomizer
    inputs = randomizer.inputs
    if inputs * randomizer.outputs > MOST_ENTRIES:
        return
    rows = np.asarray(randomizer.rows(), dtype=np.float64)
    pairs = [
        (a, b)
        for a, b in itertools.product({0, inputs - 1, inputs // 2, *numbers.integers(0, inputs, 3).tolist()}, range(inputs))
        if a != b and _cells_apart(query, (a, b), protocol.step) <= distance * (1.0 + 1e-12)
    ]
    far = sorted(pairs, key=lambda pair: -_cells_apart(query, pair, protocol.step))
    chosen = dict.fromkeys([*far[:4], *far[-2:], *[pairs[k] for k in numbers.integers(0, len(pairs), 3)]] if pairs else [])
    for a, b in chosen:
        apart = _cells_apart(query, (a, b), protocol.step)
        if honest == 1:
            yield View(apart, rows[a], rows[b], f"{a} or {b}, alone")
            continue
        if math.comb(honest + randomizer.outputs - 1, honest) <= MOST_OUTCOMES:
            every = list(itertools.combinations_with_replacement(range(inputs), honest - 1))
            for held in every if len(every) <= 40 else [every[k] for k in numbers.integers(0, len(every), 40)]:
                yield counted([rows[a]], [rows[b]], [rows[c] for c in held], apart, f"{a} or {b}, the others at {held}")
        for c in dict.fromkeys([a, b, *numbers.integers(0, inputs, 3).tolist()]):
            if randomizer.outputs <= 256 and honest > 4:
                yield SameOthers(apart, rows[a], rows[b], rows[c], honest, f"{a} or {b}, all others at {c}")


# Users' items


def _emd(first: NDArray[np.int64], second: NDArray[np.int64], distances: Law) -> float:
    """The earth mover's distance of two users' items, each user's adding up to 1."""
    costs = distances[np.ix_(first, second)]
    if first.size == second.size:
        return float(costs[linear_sum_assignment(costs)].sum() / first.size)
    rows, columns = costs.shape
    sums = [np.kron(np.eye(rows), np.ones(columns)), np.kron(np.ones(rows), np.eye(columns))]
    given = np.concatenate([np.full(rows, 1.0 / rows), np.full(columns, 1.0 / columns)])
    return float(linprog(costs.ravel(), A_eq=np.concatenate(sums), b_eq=given).fun or 0.0)


def _holdings(people: Any, sizes: list[int], numbers: Numbers, count: int) -> Iterator[tuple[NDArray[np.int64], NDArray[np.int64]]]:
    """Two ways of holding items: everything at one point or another, one item moved, anything."""
    points, distances = people.size, people.distances
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


def _items(query: Any, protocol: ms.Frequencies, honest: int, distance: float, numbers: Numbers) -> Iterator[Attack]:
    people, m = query.people, protocol.items
    rows, distances = np.asarray(protocol.randomizer.rows(), dtype=np.float64), people.distances
    for first, second in _holdings(people, [m] if people.items is not None else [1, 2, 3], numbers, 8):
        apart = _emd(first, second, distances)
        if not 0.0 < apart <= distance * (1.0 + 1e-12):
            continue
        if protocol.drawn:  # every report is of an item drawn anew
            one, other = [rows[first].mean(axis=0)] * m, [rows[second].mean(axis=0)] * m
        else:
            one, other = [rows[x] for x in first], [rows[x] for x in second]
        what = f"{first.tolist()} or {second.tolist()}"
        if math.comb(honest * m + rows.shape[1] - 1, honest * m) <= MOST_OUTCOMES:
            for held in ([first[0]] * m, [second[0]] * m, numbers.integers(0, people.size, m).tolist()):
                others = [rows[x] for x in held] * (honest - 1)
                yield counted(one, other, others, apart, f"{what}, the others at {held}")
        gain = np.sum(one, axis=0) - np.sum(other, axis=0)
        for c in dict.fromkeys([int(first[0]), int(second[0]), int(numbers.integers(0, people.size))]):
            ratio = gain / np.maximum(rows[c], 1e-300)
            for seen in (gain > 0.0, ratio >= np.quantile(ratio, 0.75)):
                yield likely(one, other, [rows[c]] * m, honest - 1, seen, apart, f"{what}, all others at {c}")


# Vectors


def _vectors(query: Any, protocol: ms.NoisyAnswers, distance: float, numbers: Numbers) -> Iterator[Attack]:
    """Between two users' vectors only the one direction matters in which they differ; noise of another norm has its ratio along it."""
    table, noise = np.asarray(protocol.features.coordinates(query).table), protocol.noise
    people = query.people
    for first, second in _holdings(people, [people.items] if people.items is not None else [1, 2, 3], numbers, 12):
        apart = _emd(first, second, people.distances)
        if not 0.0 < apart <= distance * (1.0 + 1e-12):
            continue
        moved = table[first].mean(axis=0) - table[second].mean(axis=0)
        if noise.noise == "gaussian":
            yield _normal(float(np.linalg.norm(moved)) / noise.scale, apart, f"{first.tolist()} or {second.tolist()}")
        else:
            size = float(np.linalg.norm(moved, {"l1": 1, "l2": 2, "linf": np.inf}[noise.noise])) / noise.scale
            # far out along the move the density falls by just e^-size
            yield View(apart, np.array([0.5, 0.5 * math.exp(-size)]), np.array([0.5 * math.exp(-size), 0.5]), "ratio of densities")


# Sums of features


def _feature_sums(query: Any, protocol: ms.NoisyVectors, honest: int, distance: float, numbers: Numbers) -> Iterator[Attack]:
    """The noisy sums of those features that a move changes, the others' values taken off; a few of them where there are many."""
    space = space_of(query)
    table, shape = protocol.features.table(space).toarray(), honest / protocol.sharers
    rates = [protocol.factor * weight for weight in protocol.features.weights(space)]
    blur = np.eye(len(table)) if protocol.floor is None else np.asarray(protocol.floor.rows())
    if isinstance(query, ms.Histogram):
        cells = range(len(table))
        pairs = [(np.array([a]), np.array([b])) for a, b in itertools.permutations(cells, 2)]
        pairs = [pairs[k] for k in numbers.permutation(len(pairs))[:40]]
        apart = [_cells_apart(query, (int(a[0]), int(b[0])), protocol.step) for a, b in pairs]
    else:
        people = query.people
        sizes = [people.items] if people.items is not None else [1, 2, min(3, protocol.most_items or 1)]
        pairs = list(_holdings(people, [size for size in sizes if size <= (protocol.most_items or size)], numbers, 12))
        apart = [_emd(a, b, people.distances) for a, b in pairs]
    for (first, second), length in zip(pairs, apart, strict=True):
        if not length <= distance * (1.0 + 1e-12) or (protocol.floor is not None and first.size > 1):
            continue
        vectors = [_vector(table, held, protocol) for held in (first, second)]
        changed = np.flatnonzero(vectors[0] != vectors[1])
        for some in (numbers.permutation(changed)[:MAX_FEATURES], changed):
            laws = []
            for held in (first, second):
                weights = blur[held[0]] if held.size == 1 else np.ones(1)
                counted_as = [np.array([x]) for x in range(len(table))] if held.size == 1 else [held]
                possible = [_vector(table, items, protocol) for items in counted_as]
                whole = len(some) > MAX_FEATURES
                law: Any = 0.0
                for weight, vector in zip(weights, possible, strict=True):
                    parts = [_outcomes(shape, rates[e], int(vector[e]), (int(vectors[0][e]), int(vectors[1][e])), whole) for e in some]
                    law = law + float(weight) * _outer(parts)
                laws.append(np.ravel(law))
            if len(some):
                yield View(length, laws[0], laws[1], f"features of {first.tolist()} or {second.tolist()}", 1e-200)


def _vector(table: NDArray[np.int64], held: NDArray[np.int64], protocol: ms.NoisyVectors) -> NDArray[np.int64]:
    sums = np.asarray(table[held].sum(axis=0), dtype=np.int64)
    return sums if protocol.most_items is None else np.floor(protocol.units * sums / held.size + 0.5).astype(np.int64)


def _outcomes(shape: float, rate: float, value: int, either: tuple[int, int], whole: bool) -> Law:
    """The chances that a noisy sum is at most the smaller of two values less one, each number between, and more; or just the first."""
    law, zero = polya(shape, rate)
    low, high = min(either), max(either)

    def beyond(cells: Law, start: int) -> float:
        return float(cells[max(start, 0) :].sum())

    def at(number: int) -> float:
        place = number - value + zero
        return float(law[place]) if 0 <= place < law.size else 0.0

    if whole:
        return np.array([at(either[0])])
    between = range(low, high + 1) if high - low <= 8 else (low, high)
    ends = [beyond(law[::-1], law.size - (low - value + zero)), beyond(law, high + 1 - value + zero)]
    return np.array([ends[0], *map(at, between), ends[1]])


def _outer(parts: list[Law]) -> Law:
    found = np.ones(1)
    for part in parts:
        found = np.outer(found, part).ravel()
    return found


def _normal(size: float, apart: float, what: str) -> View:
    """Two normal laws of variance 1 that lie `size` apart, in 4,000 cells."""
    from scipy.special import ndtr

    edges = np.linspace(-14.0, 14.0 + size, 4001)
    left = [np.diff(ndtr(edges - centre)) for centre in (0.0, size)]
    right = [-np.diff(ndtr(centre - edges)) for centre in (0.0, size)]
    laws = [np.where(edges[:-1] < centre, one, other) for one, other, centre in zip(left, right, (0.0, size), strict=True)]
    return View(apart, laws[0], laws[1], what)
