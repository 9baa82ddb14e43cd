"""Searches for a counterexample to the accounts of dummies: all small cases, in fractions."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from fractions import Fraction

import numpy as np
import pytest
from tests.oracles import dummy_views as oracle

from metricshuffle.accounting.dummies.dummy_losses import (
    DummyLaw,
    one_person_delta,
    ramp_step_loss,
    together_delta,
)
from metricshuffle.accounting.dummies.dummy_profiles import (
    DrawnDummies,
    LinearDummies,
    RampDummies,
)

LN2 = math.log(2.0)
Losses = dict[Fraction, Fraction]


def small_law(rate: float, radius: int) -> tuple[DummyLaw, list[Fraction]]:
    law = DummyLaw.geometric(rate, radius)
    return law, oracle.table_law(law.table.weights)


def factor_above(epsilon: float) -> Fraction:
    """A fraction of at least e^epsilon, so that rounding overstates no divergence."""
    return Fraction(math.exp(epsilon)) * (1 + Fraction(1, 2**51))


def losses_of(before: dict[int, Fraction], after: dict[int, Fraction]) -> Losses:
    """Law of the likelihood ratio of one count, other data set over this one."""
    law: Losses = {}
    for count, mass in before.items():
        ratio = after.get(count, Fraction(0)) / mass
        law[ratio] = law.get(ratio, Fraction(0)) + mass
    return law


def product_of(counts: Sequence[Losses]) -> Losses:
    whole: Losses = {Fraction(1): Fraction(1)}
    for law in counts:
        more: Losses = {}
        for (left, mass), (right, other) in itertools.product(whole.items(), law.items()):
            more[left * right] = more.get(left * right, Fraction(0)) + mass * other
        whole = more
    return whole


def divergence_of(losses: Losses, factor: Fraction) -> float:
    return float(sum((mass * max(Fraction(0), 1 - factor * r) for r, mass in losses.items())))


def shifted(masses: Sequence[Fraction], shift: int) -> Losses:
    """Losses of a count that `shift` people leave."""
    law = dict(enumerate(masses))
    return losses_of(law, {z - shift: mass for z, mass in law.items()})


@pytest.mark.thorough
def test_no_law_of_one_person_exceeds_its_formula_and_all_attain_it() -> None:
    checked = 0
    for rate, radius in itertools.product((0.2, 0.5, LN2, 1.3, 2.5), (1, 2, 3, 5)):
        law, masses = small_law(rate, radius)
        for counts in (1, 2, 3, 4, 6):
            if counts * radius > 14:
                continue
            pairs = [1, -1] * (counts // 2) + [1] * (counts % 2)
            for signs in {(1,) * counts, (-1,) * counts, tuple(pairs)}:
                losses = product_of([shifted(masses, sign) for sign in signs])
                top = counts * rate
                for epsilon in (0.0, 0.1, 0.37, rate, 2 * rate, 0.99 * top, top, 1.0, 3.0):
                    true = divergence_of(losses, factor_above(epsilon))
                    bound = one_person_delta(law, counts, epsilon)
                    assert true <= bound
                    assert epsilon >= 0.98 * top or true >= 0.999 * bound
                    checked += 1
    assert checked == 1980


def shifts_of(changes: int, sides: int) -> Iterator[tuple[int, ...]]:
    """Ways in which this many changes of parts move counts: up to three piles, or four parts."""
    widths = range(1, 4) if sides == 1 else range(2, 5)
    moves = range(-changes, changes + 1)
    found = {
        tuple(sorted(shift for shift in shifts if shift))
        for width in widths
        for shifts in itertools.product(moves, repeat=width)
        if any(shifts)
        and sum(map(abs, shifts)) <= sides * changes
        and (sides == 1 or sum(shifts) == 0)
    }
    yield from sorted(found)


@pytest.mark.thorough
def test_no_move_of_people_or_items_exceeds_the_ends() -> None:
    """Below the largest loss, too; the bound is attained where one pair of parts changes."""
    checked, closest = 0, 0.0
    for rate, radius, sides in itertools.product((0.3, LN2), (3, 4), (1, 2)):
        law, masses = small_law(rate, radius)
        profile = LinearDummies(law, float(sides), sides)
        for changes in range(1, radius + 1):
            for shifts in shifts_of(changes, sides):
                if len(shifts) > 3 and radius > 3:
                    continue
                losses = product_of([shifted(masses, shift) for shift in shifts])
                top = sides * law.rate * changes
                for part in (1.0, 0.6, 0.25):
                    true = divergence_of(losses, factor_above(top * part))
                    bound = profile.delta(top * part, float(changes))
                    assert true <= bound
                    closest = max(closest, true / bound if part == 1.0 else 0.0)
                    checked += 1
                true = divergence_of(losses, factor_above(top))
                for items in range(max(map(abs, shifts)), 4):
                    assert true <= together_delta(law, changes, sides, items)
                    checked += 1
    assert closest > 0.999
    assert checked > 1000


def window_law(masses: Sequence[Fraction], chances: Sequence[Fraction]) -> dict[int, Fraction]:
    """Law of the ones of a window: bits of people with these chances, and dummies."""
    law = dict(enumerate(masses))
    for chance in chances:
        more: dict[int, Fraction] = {}
        for count, mass in law.items():
            for bit, of_bit in ((1, chance), (0, 1 - chance)):
                if of_bit:
                    more[count + bit] = more.get(count + bit, Fraction(0)) + mass * of_bit
        law = more
    return law


@pytest.mark.thorough
def test_no_people_with_random_ramps_exceed_the_lemma() -> None:
    generator = np.random.default_rng(2)
    checked, closest = 0, 0.0
    for rate, radius in ((LN2, 3), (0.8, 4), (0.4, 3)):
        law, masses = small_law(rate, radius)
        for width, thresholds in ((2, 4), (2, 5), (3, 4), (3, 7), (4, 5)):
            windows = [
                range(start, min(start + width, thresholds))
                for start in range(0, thresholds, width)
            ]

            def view(
                points: Sequence[int],
                width: int = width,
                windows: list[range] = windows,
                masses: list[Fraction] = masses,
            ) -> list[dict[int, Fraction]]:
                return [
                    window_law(
                        masses,
                        [Fraction(sum(end >= point for end in window), width) for point in points],
                    )
                    for window in windows
                ]

            profile = RampDummies(law, width, 1.0, len(windows))
            for people, attempt in itertools.product((1, 2, 3), range(8)):
                before = generator.integers(0, thresholds + 1, people)
                after = generator.integers(0, thresholds + 1, people)
                if attempt % 3 == 0:
                    after = np.minimum(before + 1, thresholds)
                moved = int(np.abs(before - after).sum())
                if not moved:
                    continue
                losses = product_of(
                    [
                        coarser(losses_of(here, there))
                        for here, there in zip(
                            view(before.tolist()), view(after.tolist()), strict=True
                        )
                        if here != there
                    ]
                )
                loss = ramp_step_loss(law.rate, width) * moved
                for part in (1.0 + 1e-12, 0.5):
                    true = divergence_of(losses, factor_above(loss * part))
                    bound = profile.delta(loss * part, float(moved))
                    assert true <= bound + 1e-9  # ratios are rounded down
                    closest = max(closest, true / bound if part > 1.0 and bound < 1.0 else 0.0)
                    checked += 1
    assert checked > 600
    assert closest > 0.05


def coarser(losses: Losses) -> Losses:
    """Ratios rounded down to 40 bits, which makes a divergence larger."""
    law: Losses = {}
    for ratio, mass in losses.items():
        near = Fraction(math.floor(ratio * 2**40), 2**40)
        law[near] = law.get(near, Fraction(0)) + mass
    return law


@pytest.mark.thorough
def test_no_draws_exceed_their_epsilon() -> None:
    """All pairs of small holdings, of a line and of labels, against the law of the counts."""
    holdings = [(0,), (1,), (2,), (0, 1), (1, 2), (0, 2), (0, 0, 1), (0, 1, 2)]
    checked, closest = 0, 0.0
    for rate, radius, draws, on_line in (
        (1.0, 12, 1, True),
        (0.6, 9, 2, True),
        (0.8, 5, 1, False),
    ):
        law, masses = small_law(rate, radius)
        piles = [[0, 1, 1], [0, 0, 1]] if on_line else [[0, 1, 2]]
        sides = 1 if on_line else 2
        profile = DrawnDummies(law, float(sides), sides, 2, 2 if on_line else 3, draws)
        views = {}
        for held in holdings:
            drawn = list(itertools.product(held, repeat=draws))
            views[held] = oracle.mixture(
                [(Fraction(1, len(drawn)), oracle.view(masses, piles, each)) for each in drawn]
            )
        for one, other in itertools.permutations(holdings, 2):
            copies = math.lcm(len(one), len(other))
            left, right = (sorted(held * (copies // len(held))) for held in (one, other))
            moved = (
                sum(abs(x - y) for x, y in zip(left, right, strict=True))
                if on_line
                else sum(max(0, left.count(point) - right.count(point)) for point in range(3))
            ) / copies
            for part in (1.0 + 1e-12, 0.5):
                epsilon = profile.loss(moved) * part
                true = float(oracle.divergence(views[one], views[other], factor_above(epsilon)))
                bound = profile.delta(epsilon, moved)
                assert true <= bound
                closest = max(closest, true / bound if bound < 1.0 else 0.0)
                checked += 1
    assert checked == 336
    assert closest > 0.001
