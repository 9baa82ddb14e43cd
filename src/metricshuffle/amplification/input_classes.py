"""Laws of the others' reports by input class, for randomizers with too many reports to list.

For a pair of inputs (a, b) and an input x of another person, let K_a, K_b and K_x be the laws of
their reports. Two reports are merged into one atom if each of these three laws gives both the same
probability, and the number of reports of each atom is counted. There is one type (a list of atoms)
for each input class. Every type is the law of an input that exists, so each type also describes a
data set in which all others hold that input.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Iterator
from fractions import Fraction

import numpy as np

from metricshuffle.accounting.shuffling.input_class_laws import InputClassLaw, InputClassLaws
from metricshuffle.citations import theorem
from metricshuffle.numerics.rounding import round_down
from metricshuffle.randomizers.corner_vectors import Duchi, Harmony
from metricshuffle.randomizers.dyadic_weights import TOTAL_WEIGHT, Atom, whole_multiples
from metricshuffle.randomizers.hadamard_response import HadamardResponse
from metricshuffle.randomizers.local_hash import LocalHash
from metricshuffle.randomizers.randomized_response import KaryRandomizedResponse
from metricshuffle.randomizers.randomizer import Randomizer, has_law_of
from metricshuffle.randomizers.rappor import Rappor
from metricshuffle.randomizers.subsets import SubsetExponential, subset_at

Preferred = tuple[bool, ...]
"""Whether each of x, a and b makes a report with the larger of two probabilities."""

MAX_TYPES = 400
MAX_DIMENSIONS = 32  # the counts of a corner are sums over four regions


def input_class_law(atoms: Iterable[Atom]) -> InputClassLaw:
    """Return a type from exact atoms, each number rounded once."""
    weighted_atoms, unit = whole_multiples(atoms)
    columns = zip(
        *(
            (x / unit, a / unit, b / unit, (a - b) / unit, abs(a - b) / unit)
            for x, a, b in weighted_atoms
        ),
        strict=True,
    )
    return InputClassLaw(*(np.array(column) for column in columns))


@theorem("metricshuffle", "types of the others, by counting")
def input_classes_of(randomizer: Randomizer, a: int, b: int) -> InputClassLaws | None:
    """Return the pair (a, b) with one type for each input class, from closed forms.

    None if there is no closed form, or there are too many classes.

    Statement: K_x is the law of the report of input x. If an automorphism of the randomizer leaves
    a and b in place and maps x to x', then x and x' have the same law of (K_a/K_x, K_b/K_x) under
    K_x, so one input of each class suffices. For Harmony, the law of (K_a/K_x, K_b/K_x) is the
    average over coordinates, and at each coordinate it depends on x only through whether x agrees
    with a there. So it is a mixture of the four types that agree with a on all or none of the
    coordinates where a and b differ, and on all or none of the other coordinates.
    Conditions: those of the randomizer's `blanket`, whose mass is used.
    Numerics: exact counts, each number rounded once.
    """
    for known, types in FAMILIES.items():
        if has_law_of(randomizer, known):
            classes = list(itertools.islice(types(randomizer, a, b), MAX_TYPES + 1))
            blanket = round_down(math.fsum(randomizer.blanket(a, b).mass), 16)
            return (
                InputClassLaws.of((input_class_law(atoms) for atoms in classes), blanket)
                if 0 < len(classes) <= MAX_TYPES
                else None
            )
    return None


def _kary(randomizer: Randomizer, a: int, b: int) -> Iterator[list[Atom]]:
    """Yield types for x = a, x = b, and any third option."""
    assert isinstance(randomizer, KaryRandomizedResponse)  # noqa: S101 - by the table below, here and in what follows
    keep = Fraction(randomizer.keep, TOTAL_WEIGHT)
    other_probability = Fraction(randomizer.other, TOTAL_WEIGHT)
    k = randomizer.options
    yield [
        (1, keep, keep, other_probability),
        (1, other_probability, other_probability, keep),
        (k - 2, other_probability, other_probability, other_probability),
    ]
    yield [
        (1, other_probability, keep, other_probability),
        (1, keep, other_probability, keep),
        (k - 2, other_probability, other_probability, other_probability),
    ]
    if k > 2:
        yield [
            (1, other_probability, keep, other_probability),
            (1, other_probability, other_probability, keep),
            (1, keep, other_probability, other_probability),
            (k - 3, other_probability, other_probability, other_probability),
        ]


def _rappor(randomizer: Randomizer, a: int, b: int) -> Iterator[list[Atom]]:
    """Yield types by the bits of a, b and x in the report, which are independent of the rest."""
    assert isinstance(randomizer, Rappor)  # noqa: S101
    keep = Fraction(randomizer.keep, TOTAL_WEIGHT)

    def chance(own: int, bits: tuple[int, ...]) -> Fraction:
        """Return the probability of these bits for a person whose own bit is in place `own`."""
        return math.prod(
            (keep if bit == (place == own) else 1 - keep for place, bit in enumerate(bits)),
            start=Fraction(1),
        )

    for own, places in ((0, 2), (1, 2), (2, 3)):
        if places <= randomizer.options:
            patterns = list(itertools.product((0, 1), repeat=places))
            yield [(1, chance(own, bits), chance(0, bits), chance(1, bits)) for bits in patterns]


def _level_law(counts: dict[Preferred, int], high: Fraction, low: Fraction) -> list[Atom]:
    return [
        (many, *(high if preferred else low for preferred in who))  # type: ignore[misc]
        for who, many in counts.items()
    ]


def _subsets(randomizer: Randomizer, a: int, b: int) -> Iterator[list[Atom]]:
    """Yield types by how many members x shares with both, with a alone and with b alone.

    A report is preferred by a set that it meets.
    """
    assert isinstance(randomizer, SubsetExponential)  # noqa: S101
    d = randomizer.options
    k = randomizer.size
    held_count = randomizer.held
    levels = randomizer.levels
    first, second = (set(subset_at(code, d, held_count)) for code in (a, b))
    regions = [
        sorted(part)
        for part in (first & second, first - second, second - first, set(range(d)) - first - second)
    ]
    for shared in itertools.product(*(range(len(region) + 1) for region in regions[:3])):
        unshared = held_count - sum(shared)
        if 0 <= unshared <= len(regions[3]):
            third = {
                member
                for region, many in zip(regions, (*shared, unshared), strict=True)
                for member in region[:many]
            }
            yield _level_law(_meetings([third, first, second], d, k), levels.high, levels.low)


def _meetings(sets: list[set[int]], options: int, size: int) -> dict[Preferred, int]:
    """Count the reports that meet exactly these of three sets, by inclusion and exclusion."""
    missing = {
        who: math.comb(
            options
            - len(
                set().union(*(members for members, missed in zip(sets, who, strict=True) if missed))
            ),
            size,
        )
        for who in itertools.product((False, True), repeat=3)
    }
    counts: dict[Preferred, int] = {}
    for met in itertools.product((False, True), repeat=3):
        # Reports that miss all sets that are not met, minus reports that also miss a met set.
        signed = (
            (-1) ** sum(more)
            * missing[tuple(not here or extra for here, extra in zip(met, more, strict=True))]
            for more in itertools.product(*((False, True) if here else (False,) for here in met))
        )
        counts[met] = sum(signed)
    return counts


def _hadamard(randomizer: Randomizer, a: int, b: int) -> Iterator[list[Atom]]:
    """Yield types for a, b, the sum of their rows, another row of their blocks, another block."""
    assert isinstance(randomizer, HadamardResponse)  # noqa: S101
    rows = randomizer.order - 1
    same = a // rows == b // rows
    chosen = [a, b]
    if (
        same
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
    for x in chosen:
        yield _level_law(
            _preferences(randomizer, x, a, b), randomizer.levels.high, randomizer.levels.low
        )


def _preferences(randomizer: HadamardResponse, *values: int) -> dict[Preferred, int]:
    """Count the reports that are preferred by exactly these of x, a and b.

    Preferences are halves of a block, independent unless rows add up to 0.
    """
    order = randomizer.order
    rows = randomizer.order - 1
    counts: dict[Preferred, int] = dict.fromkeys(itertools.product((False, True), repeat=3), 0)
    blocks = {value // rows for value in values}
    counts[False, False, False] += (randomizer.blocks - len(blocks)) * order
    for block in blocks:
        here = [value % rows + 1 if value // rows == block else 0 for value in values]
        basis: list[int] = []
        for row in here:
            if row and row not in basis and not (len(basis) == 2 and row == basis[0] ^ basis[1]):
                basis.append(row)
        for odd in itertools.product((0, 1), repeat=len(basis)):
            parity = {0: 0, **dict(zip(basis, odd, strict=True))}
            if len(basis) >= 2:
                parity[basis[0] ^ basis[1]] = odd[0] ^ odd[1]
            who = tuple(bool(row) and parity[row] == 0 for row in here)
            counts[who] += order >> len(basis)
    return counts


def _duchi(randomizer: Randomizer, a: int, b: int) -> Iterator[list[Atom]]:
    """Yield types by how often x agrees with a where a and b differ, and where they agree."""
    assert isinstance(randomizer, Duchi)  # noqa: S101
    d = randomizer.dimensions
    apart = (a ^ b).bit_count()
    levels = randomizer.levels
    if d > MAX_DIMENSIONS:
        return
    for differ, common in itertools.product(range(apart + 1), range(d - apart + 1)):
        # Coordinates where (x, b) agree with a: (yes, no), (no, no), (yes, yes), (no, yes).
        sizes = (differ, apart - differ, common, d - apart - common)
        sums = np.ix_(*(2 * np.arange(size + 1) - size for size in sizes))
        ways = np.ix_(
            *(np.array([math.comb(size, up) for up in range(size + 1)]) for size in sizes)
        )
        many = ways[0] * ways[1] * ways[2] * ways[3]
        # The products with a over these coordinates.
        first_sum, second_sum, third_sum, fourth_sum = sums
        signs = (
            (first_sum - second_sum + third_sum - fourth_sum > 0) * 4
            + (first_sum + second_sum + third_sum + fourth_sum > 0) * 2
            + (third_sum + fourth_sum - first_sum - second_sum > 0)
        )
        counts = np.bincount(signs.ravel(), many.ravel(), 8)  # at most 2^32, so exact
        yield _level_law(
            {(bool(i & 4), bool(i & 2), bool(i & 1)): int(counts[i]) for i in range(8)},
            levels.high,
            levels.low,
        )


def _harmony(randomizer: Randomizer, a: int, b: int) -> Iterator[list[Atom]]:
    """Yield types that agree with a everywhere or nowhere, where a and b differ and where not."""
    assert isinstance(randomizer, Harmony)  # noqa: S101
    apart = (a ^ b).bit_count()
    high = randomizer.levels.high
    low = randomizer.levels.low
    same = randomizer.dimensions - apart
    for mine, ours in itertools.product((True, False), repeat=2):
        likely, rare = (high, low) if mine else (low, high)
        shared, unshared = (high, low) if ours else (low, high)
        yield [
            (apart, likely, high, low),
            (apart, rare, low, high),
            (same, shared, high, high),
            (same, unshared, low, low),
        ]


def _hash(randomizer: Randomizer, a: int, b: int) -> Iterator[list[Atom]]:
    """Yield types for x = a, x = b, x on the line through a and b, and x elsewhere.

    For a random hash function f, f(b) - f(a) is uniform, and f(x) - f(a) is either a multiple of
    f(b) - f(a) or independent of it.
    """
    assert isinstance(randomizer, LocalHash)  # noqa: S101
    p = randomizer.buckets
    response = randomizer.response
    share = Fraction(1, randomizer.functions)
    keep = Fraction(response.keep, TOTAL_WEIGHT) * share
    other_probability = Fraction(response.other, TOTAL_WEIGHT) * share
    every = randomizer.functions
    together = Fraction(every, p)
    apart = every - Fraction(every, p)

    def atoms(*parts: tuple[Fraction, Preferred]) -> list[Atom]:
        """Return atoms from (number of buckets over all functions, who of x, a, b hashes to them).

        None of x, a and b hashes to the buckets that are not listed.
        """
        listed = [
            (many, *(keep if hit else other_probability for hit in who))
            for many, who in parts
            if many
        ]
        return [
            *listed,  # type: ignore[list-item]
            (
                every * p - sum(many for many, _ in parts),
                other_probability,
                other_probability,
                other_probability,
            ),
        ]

    yield atoms(
        (together, (True, True, True)), (apart, (True, True, False)), (apart, (False, False, True))
    )
    yield atoms(
        (together, (True, True, True)), (apart, (False, True, False)), (apart, (True, False, True))
    )
    if p > 2 and randomizer.options > 2:
        alone = [
            (apart, who)
            for who in ((True, False, False), (False, True, False), (False, False, True))
        ]
        yield atoms((together, (True, True, True)), *alone)
    if randomizer.digits > 1:
        same = together / p
        mixed = together - together / p  # f(a) = f(b), but f(x) differs
        distinct = apart - 2 * apart / p
        yield atoms(
            (same, (True, True, True)),
            (mixed, (False, True, True)),
            (mixed + distinct, (True, False, False)),
            (apart / p, (True, True, False)),
            (apart / p, (True, False, True)),
            (apart / p + distinct, (False, False, True)),
            (apart / p + distinct, (False, True, False)),
        )


FAMILIES: dict[type[Randomizer], Callable[[Randomizer, int, int], Iterator[list[Atom]]]] = {
    KaryRandomizedResponse: _kary,
    Rappor: _rappor,
    SubsetExponential: _subsets,
    HadamardResponse: _hadamard,
    Duchi: _duchi,
    Harmony: _harmony,
    LocalHash: _hash,
}
