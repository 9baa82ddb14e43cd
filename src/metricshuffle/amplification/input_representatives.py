"""A representative of each input class of `input_classes`, used to name the worst-case data set."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator

from metricshuffle.amplification.input_classes import FAMILIES, input_class_law
from metricshuffle.randomizers.corner_vectors import Duchi, Harmony
from metricshuffle.randomizers.hadamard_response import HadamardResponse
from metricshuffle.randomizers.local_hash import LocalHash
from metricshuffle.randomizers.randomized_response import KaryRandomizedResponse
from metricshuffle.randomizers.randomizer import Randomizer, has_law_of
from metricshuffle.randomizers.rappor import Rappor
from metricshuffle.randomizers.subsets import SubsetExponential, rank_of, subset_at


def class_representatives(randomizer: Randomizer, a: int, b: int, count: int) -> list[int | None]:
    """Return an input of each of the `count` types of `input_classes_of`; all None if unknown.

    Of equal types, the first one counts, as in `input_classes_of`.
    """
    for known, inputs in REPRESENTATIVES.items():
        if has_law_of(randomizer, known):
            distinct: dict[bytes, int] = {}
            listed = list(FAMILIES[known](randomizer, a, b))
            codes = list(inputs(randomizer, a, b))
            if len(listed) == len(codes):
                for atoms, code in zip(listed, codes, strict=True):
                    distinct.setdefault(input_class_law(atoms).sorted().key, code)
            if len(distinct) == count:
                return list(distinct.values())
    return [None] * count


def _third(randomizer: Randomizer, a: int, b: int) -> Iterable[int]:
    return [
        a,
        b,
        *itertools.islice((x for x in range(min(randomizer.inputs, 3)) if x not in (a, b)), 1),
    ]


def _subsets(randomizer: Randomizer, a: int, b: int) -> Iterator[int]:
    """Yield a set for each number of members shared with both, with a alone and with b alone."""
    assert isinstance(randomizer, SubsetExponential)  # noqa: S101 - by the table below, here and in what follows
    d = randomizer.options
    held_count = randomizer.held
    first, second = (set(subset_at(code, d, held_count)) for code in (a, b))
    regions = [
        sorted(part)
        for part in (first & second, first - second, second - first, set(range(d)) - first - second)
    ]
    for shared in itertools.product(*(range(len(region) + 1) for region in regions[:3])):
        unshared = held_count - sum(shared)
        if 0 <= unshared <= len(regions[3]):
            members = [
                member
                for region, many in zip(regions, (*shared, unshared), strict=True)
                for member in region[:many]
            ]
            yield rank_of(sorted(members), d)


def _hadamard(randomizer: Randomizer, a: int, b: int) -> Iterable[int]:
    """Return a, b, the sum of their rows, another row of a's or b's block, another block."""
    assert isinstance(randomizer, HadamardResponse)  # noqa: S101
    rows = randomizer.order - 1
    chosen = [a, b]
    if (
        a // rows == b // rows
        and (total := a // rows * rows + ((a % rows + 1) ^ (b % rows + 1)) - 1) < randomizer.options
    ):
        chosen.append(total)
    for block in range(min(randomizer.blocks, 3)):
        free = (
            x
            for x in range(block * rows, min((block + 1) * rows, randomizer.options))
            if x not in chosen
        )
        chosen += list(itertools.islice(free, 1))
    return chosen


def _corners(apart: int, a: int, dimensions: int) -> Callable[[int, int], int]:
    """Return a function that makes corners which agree with a on given numbers of coordinates.

    Its arguments are two such numbers: for the coordinates where a and b differ, and for the
    others.
    """
    differing = [place for place in range(dimensions) if apart >> place & 1]
    common = [place for place in range(dimensions) if not apart >> place & 1]

    def corner(mine: int, ours: int) -> int:
        return a ^ sum(1 << place for place in (*differing[mine:], *common[ours:]))

    return corner


def _duchi(randomizer: Randomizer, a: int, b: int) -> Iterator[int]:
    assert isinstance(randomizer, Duchi)  # noqa: S101
    apart = (a ^ b).bit_count()
    corner = _corners(a ^ b, a, randomizer.dimensions)
    for mine, ours in itertools.product(range(apart + 1), range(randomizer.dimensions - apart + 1)):
        yield corner(mine, ours)


def _harmony(randomizer: Randomizer, a: int, b: int) -> Iterator[int]:
    assert isinstance(randomizer, Harmony)  # noqa: S101
    apart = (a ^ b).bit_count()
    d = randomizer.dimensions
    corner = _corners(a ^ b, a, d)
    for mine, ours in itertools.product((True, False), repeat=2):
        yield corner(apart if mine else 0, d - apart if ours else 0)


def _hash(randomizer: Randomizer, a: int, b: int) -> Iterator[int]:
    """Yield a, b, another value on the line through them, and a value elsewhere.

    Values are points whose coordinates are their digits to base `buckets`.
    """
    assert isinstance(randomizer, LocalHash)  # noqa: S101
    p = randomizer.buckets
    digits = randomizer.digits

    def on_line(steps: int) -> int:
        places = ((a // p**i % p, b // p**i % p) for i in range(digits))
        return int(
            sum(
                (first + steps * (second - first)) % p * p**i
                for i, (first, second) in enumerate(places)
            )
        )

    line = {on_line(steps) for steps in range(p)} if p <= randomizer.options else set(range(p))
    yield from (a, b)
    if p > 2 and randomizer.options > 2:
        yield from itertools.islice(
            (x for x in sorted(line) if x not in (a, b) and x < randomizer.options), 1
        )
    if digits > 1:
        yield from itertools.islice((x for x in range(randomizer.options) if x not in line), 1)


REPRESENTATIVES: dict[type[Randomizer], Callable[[Randomizer, int, int], Iterable[int]]] = {
    KaryRandomizedResponse: _third,
    Rappor: _third,
    SubsetExponential: _subsets,
    HadamardResponse: _hadamard,
    Duchi: _duchi,
    Harmony: _harmony,
    LocalHash: _hash,
}
