"""Screening of many pairs by blocks, classes and mirror images; one item among shuffled items."""

from __future__ import annotations

import itertools
import math
import random
from fractions import Fraction

import numpy as np
import pytest
from tests.oracles.explicit_laws import exponential, geometric, grid, planar, response
from tests.oracles.shuffled_brute_force import multiset_weights, shuffled_delta

from metricshuffle.accounting.shuffling import blanket_bound as blanket
from metricshuffle.accounting.shuffling import full_law_bound
from metricshuffle.accounting.shuffling.blanket_law import BlanketLaw
from metricshuffle.accounting.shuffling.full_law_bound import (
    StoppingTime,
    delta_on_line,
    delta_upper,
    integration_line,
    is_certified,
)
from metricshuffle.accounting.shuffling.input_class_laws import InputClassLaws
from metricshuffle.accounting.shuffling.pair_screen import (
    MAX_SCREEN_CLASSES,
    MIN_TYPES_TO_MERGE,
    PairScreen,
    pair_up_types,
    symmetries,
)
from metricshuffle.accounting.user_items.move_composition import LineFlow
from metricshuffle.amplification.amplify import amplify
from metricshuffle.amplification.full_law_pairs import ScannedPairs
from metricshuffle.numerics.types import Floats
from metricshuffle.randomizers import BoundedGeometric


def random_rows(seed: int, inputs: int, outputs: int) -> Floats:
    weights = np.random.default_rng(seed).integers(2, 9, (inputs, outputs)).astype(np.float64)
    return np.asarray(weights / weights.sum(axis=1, keepdims=True))


@pytest.mark.parametrize("users", [3, 40, 1000, 10**7])
@pytest.mark.parametrize("share", [1e-4, 0.02, 0.3, 0.97, 1.0])
def test_blocks_hold_all_of_t(users: int, share: float) -> None:
    """Probabilities are never below those of T; `beyond` bounds the rest; blocks are contiguous."""
    visits = StoppingTime(share, users)
    for first in (0, users // 3):
        ends, chances = visits.blocks(first, users - 1, 1e-12)
        assert np.all(np.diff(ends) > 0.0)
        assert first < ends[0] <= ends[-1] <= max(users - 1, first + 1)
        starts = [first, *ends[:-1].astype(int).tolist()]
        for start, end, chance in list(
            zip(starts, ends.astype(int).tolist(), chances.tolist(), strict=True)
        )[:50]:
            exact = (
                (1 - Fraction(share)) ** start - (1 - Fraction(share)) ** end
                if end < 5000
                else Fraction(0)
            )
            assert chance >= exact
        total = math.fsum(chances) + visits.beyond(float(ends[-1]))
        assert (
            visits.beyond(float(first)) * (1.0 - 1e-12)
            <= total
            <= visits.beyond(float(first)) * (1.0 + 1e-12) + 1e-299
        )


@pytest.mark.parametrize(
    ("rows", "users"), [(geometric(8, 4.0), 1000), (response(3, 4.0), 1000), (planar(4, 2.0), 3000)]
)
def test_longer_blocks_cost_next_to_nothing(
    rows: Floats, users: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    law = InputClassLaws.from_rows(rows, 0, len(rows) - 1)
    found = full_law_bound.epsilon_upper(law, users, 1e-6)
    monkeypatch.setattr(full_law_bound, "BLOCK_GROWTH", 0.0)
    assert found <= full_law_bound.epsilon_upper(law, users, 1e-6) * (1.0 + 1e-4)


def test_classes_of_two() -> None:
    """Every type lies above its class, so none is left out; classes merge similar types."""
    rows = exponential(grid(6), 4.0)
    halved = pair_up_types(rows)
    assert len(halved) == 18
    for row in rows:
        assert np.any(np.all(halved <= row, axis=1))
    assert (
        halved.sum(axis=1).min()
        > 1.05 * np.array([rows[[i, 35 - i]].min(axis=0).sum() for i in range(18)]).min()
    )
    assert len(pair_up_types(rows[:5])) == 3
    crowd = PairScreen(rows)
    assert len(crowd.types) > MIN_TYPES_TO_MERGE
    assert len(crowd.coarser.types) <= MAX_SCREEN_CLASSES
    assert crowd.coarser.blanket == crowd.blanket
    few = PairScreen(geometric(5, 1.0))
    assert few.halved is few


def test_symmetries_of_lines_and_grids() -> None:
    def mirrored(rows: Floats) -> Floats:
        return 0.5 * (rows + rows[::-1, ::-1])

    assert len(symmetries(mirrored(geometric(7, 1.0)))) == 2
    square: Floats = np.kron(mirrored(geometric(4, 1.0)), mirrored(geometric(4, 1.0))).astype(
        np.float64
    )
    assert len(symmetries(square)) == 8
    flat: Floats = np.kron(mirrored(geometric(3, 1.0)), mirrored(geometric(4, 1.0))).astype(
        np.float64
    )
    assert len(symmetries(flat)) == 4
    for rows in (square, flat):
        for renamed in symmetries(rows):
            assert sorted(renamed.tolist()) == list(range(len(rows)))
            assert np.array_equal(rows[np.ix_(renamed, renamed)], rows)
    assert len(symmetries(random_rows(1, 6, 6))) == 1
    assert (
        len(symmetries(random_rows(1, 6, 5))) == 1
    )  # more inputs than reports: nothing is renamed
    pairs = list(itertools.permutations(range(16), 2))
    some = ScannedPairs(PairScreen(square), pairs, symmetries(square))
    every = ScannedPairs(PairScreen(square), pairs)
    assert len(some.pairs) <= len(every.pairs) // 6
    for users, epsilon in ((200, 0.2), (10**5, 0.01)):
        assert some.delta(users, epsilon)[0] == pytest.approx(
            every.delta(users, epsilon)[0], rel=1e-6
        )
    # a pair is only left out for one that is listed
    alone = ScannedPairs(PairScreen(square), [(15, 3), (2, 7)], symmetries(square))
    assert alone.pairs.tolist() == [[15, 3], [2, 7]]


def test_quick_looks_say_no_less() -> None:
    """Classes and rough sums are valid bounds, and stopping early never passes a law."""
    source = random.Random(6)
    for seed in range(12):
        crowd = PairScreen(random_rows(seed, 30, 6))
        users = source.choice((30, 1000, 10**5))
        epsilon = source.uniform(0.0, 0.3)
        law = crowd.law(0, 1)
        line = integration_line(law, users, epsilon)
        exact = delta_upper(law, users, epsilon, directions="forward")
        if line is not None:
            quick = [
                delta_on_line(one.law(0, 1), users, epsilon, line)
                for one in (crowd, crowd.halved, crowd.coarser)
            ]
            assert quick == sorted(quick)
            assert delta_on_line(crowd.law(0, 1), users, epsilon, line, roughly=True) >= quick[
                0
            ] * (1.0 - 1e-12)
            assert quick[0] >= exact * (1.0 - 0.2)  # another line of integration, nearly as good
        for part in (0.5, 0.999, 1.0, 1.001, 2.0):
            assert is_certified(law, users, epsilon, part * exact, directions="forward") == (
                exact <= part * exact
            )


def best_lines(rows: Floats, shuffled: int, slopes: list[float]) -> list[tuple[float, float]]:
    """Lines (intercept, slope) for one kind of move, the smaller of both bounds.

    `user_items.single_move_bounds.BlanketLines`, its clock 1 per move.
    """
    law = BlanketLaw.from_rows(rows, 0, 1)
    whole = InputClassLaws.from_rows(rows, 0, 1)
    return [
        (
            min(
                blanket.delta_bracket(law, shuffled, math.log1p(k)).upper,
                delta_upper(whole, shuffled, math.log1p(k)),
            ),
            k,
        )
        for k in slopes
    ]


def test_items_of_a_user_move_one_after_the_other() -> None:
    """Two items of one user: each step within the bound for one move, both within their flow."""
    source = random.Random(3)
    useful = 0
    for _ in range(25):
        first = source.randint(2, 7)
        weights = [[first, 9 - first], [source.randint(2, 7), 0]]
        weights[1][1] = 9 - weights[1][0]
        if weights[0] == weights[1]:
            continue
        rows = np.array(weights) / 9.0
        others = [weights[source.randint(0, 1)] for _ in range(source.randint(1, 5))]
        shuffled = len(others) + 2
        growth = 1 + Fraction(source.randint(0, 10), 20)
        bound_here = delta_upper(InputClassLaws.from_rows(rows, 0, 1), shuffled, math.log(growth))
        for own in weights:  # where her other item is while this one moves
            for a, b in (weights, weights[::-1]):
                assert shuffled_delta(a, b, [own, *others], growth) <= bound_here * (1.0 + 1e-12)
        before, after = (multiset_weights([one, one, *others]) for one in weights)
        total = 9**shuffled
        truth = float(
            sum(
                max(Fraction(0), Fraction(w, total) - growth * Fraction(after.get(c, 0), total))
                for c, w in before.items()
            )
        )
        lines = best_lines(
            rows, shuffled, [0.0, 0.02, 0.05, 0.1, 0.2, 0.3, 0.5, 0.8, 1.2, 2.0, 4.0]
        )
        flow = two_steps(lines, float(growth))
        assert truth <= flow * (1.0 + 1e-12)
        useful += flow < 0.9
    assert useful > 10


def two_steps(lines: list[tuple[float, float]], growth: float) -> float:
    """sup over a of F(F(a)) - growth a, on a fine grid, rounded up.

    F(a) = min over lines of a + intercept + slope a, capped at 1.
    """
    places = np.linspace(0.0, 1.0, 4001)

    def power(alarm: Floats) -> Floats:
        return np.asarray(
            np.minimum(1.0, np.min([alarm + cut + slope * alarm for cut, slope in lines], axis=0))
        )

    # between two places the first is allowed the power of the second
    return float(np.max(power(power(places[1:])) - growth * places[:-1]))


def test_the_flow_takes_the_new_lines() -> None:
    """The gain told in docs/proofs/beyond-blanket.md for two values, by the flow itself."""
    rows = response(2, 1.5)
    slopes = [0.0, *np.geomspace(1e-2, 0.5, 120).tolist()]
    law = BlanketLaw.from_rows(rows, 0, 1)
    whole = InputClassLaws.from_rows(rows, 0, 1)
    old = [(blanket.delta_bracket(law, 4000, math.log1p(k)).upper, k) for k in slopes]
    new = [(min(cut, delta_upper(whole, 4000, math.log1p(k))), k) for cut, k in old]
    end = (0.0, math.expm1(1.5))  # one report alone
    before, now = (LineFlow.of(*zip(*lines, end, strict=True)) for lines in (old, new))
    assert (
        now.delta(2.0, 0.2175).delta <= 1e-6 < now.delta(2.0, 0.2155).delta
    )  # (few lines: a little more than 0.2164)
    assert before.delta(2.0, 0.2770).delta <= 1e-6 < before.delta(2.0, 0.2745).delta


def test_all_pairs_share_their_blocks() -> None:
    """Blocks do not depend on the pair: they are made a few times, not for each evaluation."""
    StoppingTime.blocks.cache_clear()
    amplify(BoundedGeometric(47, 4.0 / 47.0), 20_000).epsilon(1e-6)
    cut = StoppingTime.blocks.cache_info()
    assert cut.hits > 50
    assert cut.misses < 0.25 * cut.hits
