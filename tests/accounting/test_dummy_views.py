"""Whole views in fractions: items of one person, and values that are randomized first."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Sequence
from fractions import Fraction

import pytest
from tests.oracles import dummy_views as oracle

from metricshuffle.accounting.dummies.dummy_losses import (
    DummyLaw,
    one_person_delta,
    together_delta,
)

LN2 = math.log(2.0)
Channel = list[list[Fraction]]
Piles = Sequence[Sequence[int]]


def small_law(rate: float, radius: int) -> tuple[DummyLaw, list[Fraction]]:
    law = DummyLaw.geometric(rate, radius)
    return law, oracle.table_law(law.table.weights)


def matched_changes(piles: Piles, before: Sequence[int], after: Sequence[int]) -> int:
    """Changed parts of all piles under the best matching of two lists of items."""
    return min(
        sum(parts[x] != parts[y] for parts in piles for x, y in zip(before, order, strict=True))
        for order in itertools.permutations(after)
    )


def test_whole_views_of_items_of_one_person_stay_below_the_bound() -> None:
    """m items, sent one message each a pile: at most ceil(L/m) times the ends of m changes."""
    generator = random.Random(7)
    closest = 0.0
    checked = 0
    for attempt in range(36):
        piles: Piles = [[[0, 1, 1], [0, 0, 1]], [[0, 1, 2]], [[0, 1, 0]]][attempt % 3]
        sides = 2 if attempt % 3 == 1 else 1
        items = generator.choice([2, 3])
        law, masses = small_law(generator.choice([0.5, LN2]), 4 if len(piles) == 1 else 3)
        before = [generator.randrange(3) for _ in range(items)]
        # A number of items that divides m is sent m/k times each.
        after = (
            [generator.randrange(3)] * items
            if attempt % 2
            else generator.choices(range(3), k=items)
        )
        changes = matched_changes(piles, before, after)
        if not changes:
            continue
        factor = Fraction(math.exp(sides * law.rate * changes * (1 + 1e-12)))
        true = oracle.divergence(
            oracle.view(masses, piles, before), oracle.view(masses, piles, after), factor
        )
        bound = together_delta(law, changes, sides, items)
        assert float(true) <= bound * (1 + 1e-12)
        closest = max(closest, float(true) / bound)
        checked += 1
    assert checked > 20
    assert closest > 0.45


def clamped_geometric(points: int, ratio: Fraction) -> Channel:
    """Geometric noise on 0..points - 1, clamped to the ends."""
    rows = []
    for x in range(points):
        row = [(1 - ratio) / (1 + ratio) * ratio ** abs(y - x) for y in range(points)]
        row[0] = ratio**x / (1 + ratio)
        row[-1] = ratio ** (points - 1 - x) / (1 + ratio)
        rows.append(row)
    assert all(sum(row) == 1 for row in rows)
    return rows


def k_ary(labels: int, other: Fraction) -> Channel:
    kept = 1 - (labels - 1) * other
    return [[kept if x == y else other for y in range(labels)] for x in range(labels)]


@pytest.mark.parametrize(
    ("piles", "channel", "counts"),
    [
        ([[0, 1, 1, 1], [0, 0, 1, 1], [0, 0, 0, 1]], clamped_geometric(4, Fraction(1, 2)), 1),
        ([[0, 1, 1, 1], [0, 0, 1, 1], [0, 0, 0, 1]], clamped_geometric(4, Fraction(1, 5)), 1),
        ([[0, 1, 2]], clamped_geometric(3, Fraction(1, 3)), 2),
        ([[0, 1, 2]], k_ary(3, Fraction(1, 5)), 2),
    ],
)
def test_a_floor_costs_no_more_than_the_farthest_move_without_it(
    piles: Piles, channel: Channel, counts: int
) -> None:
    """The view of a randomized value, against all moves of a value that are no farther."""
    law, masses = small_law(LN2, 2)
    points = range(len(channel))
    bare = [oracle.view(masses, piles, [y]) for y in points]
    floored = [oracle.mixture([(channel[x][y], bare[y]) for y in points]) for x in points]
    closest = Fraction(0)
    for x, y in itertools.permutations(points, 2):
        for epsilon in (0.4, LN2):
            factor = Fraction(math.exp(epsilon))
            bound = max(
                oracle.divergence(bare[a], bare[b], factor)
                for a, b in itertools.permutations(points, 2)
                if abs(a - b) <= abs(x - y) or len(piles) == 1
            )
            true = oracle.divergence(floored[x], floored[y], factor)
            assert true <= bound
            changed = counts * max(
                sum(parts[a] != parts[b] for parts in piles)
                for a, b in itertools.permutations(points, 2)
                if abs(a - b) <= abs(x - y) or len(piles) == 1
            )
            assert float(true) <= one_person_delta(law, changed, epsilon) * (1 + 1e-12)
            closest = max(closest, true / bound)
    assert closest > Fraction(1, 8)
