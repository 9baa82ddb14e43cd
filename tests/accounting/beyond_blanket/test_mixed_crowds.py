"""People of several groups: every data set in fractions, parts of the proof, invariants."""

from __future__ import annotations

import itertools
import math
import random
from fractions import Fraction

import numpy as np
import pytest
from tests.oracles.explicit_laws import geometric, response
from tests.oracles.mixed_crowds import everybody_else, worst
from tests.oracles.shuffled_brute_force import shuffled_delta
from tests.oracles.whole_laws import psi

from metricshuffle.accounting.shuffling import blanket_bound as blanket
from metricshuffle.accounting.shuffling import full_law_bound, mixed_groups_bound
from metricshuffle.accounting.shuffling.blanket_law import BlanketLaw
from metricshuffle.accounting.shuffling.input_class_laws import InputClassLaws
from metricshuffle.accounting.shuffling.mixed_groups_bound import (
    GroupPart,
    MixedGroupLaws,
    corners,
    delta_upper,
    epsilon_upper,
)
from metricshuffle.accounting.shuffling.mixture_weights import (
    CommonComponent,
    OtherGroup,
    _candidates,
    choose_blanket,
    choose_groups,
    weights_over,
)
from metricshuffle.errors import InputError
from metricshuffle.numerics.types import Floats

Weights = list[list[int]]


def random_rows(
    source: random.Random, many: int, reports: int, total: int, *, zeros: bool
) -> Weights:
    rows = []
    for _ in range(many):
        if zeros:
            cuts = sorted(source.randint(0, total) for _ in range(reports - 1))
            rows.append([high - low for low, high in itertools.pairwise([0, *cuts, total])])
        else:
            shares = [source.randint(1, total) for _ in range(reports)]
            row = [1 + (total - reports) * share // sum(shares) for share in shares]
            row[source.randrange(reports)] += total - sum(row)
            rows.append(row)
    return rows


def crowd_of(
    a: Floats, b: Floats, groups: list[tuple[Floats, int]]
) -> tuple[list[InputClassLaws], list[OtherGroup]]:
    laws = [InputClassLaws.from_laws(a, b, rows) for rows, _ in groups]
    return laws, [OtherGroup.of(rows, many, a - b) for rows, many in groups]


def mixed_of(
    laws: list[InputClassLaws], counts: list[int], choice: CommonComponent
) -> MixedGroupLaws:
    return MixedGroupLaws(
        tuple(
            GroupPart(laws[h], counts[h], float(coin))
            for h, coin in zip(choice.mixed, choice.coins, strict=True)
        )
    )


def compare_with_data_sets(source: random.Random) -> tuple[int, int, int]:
    """Compare one random population with all its data sets.

    Returns the number of data sets, of bounds, and of bounds better than a single report.
    """
    reports = source.randint(2, 4)
    total = source.choice((12, 30, 60))
    many = source.randint(1, 3)
    groups = [
        (
            random_rows(source, source.randint(1, 3), reports, total, zeros=source.random() < 0.3),
            source.randint(1, 3 if many < 3 else 2),
        )
        for _ in range(many)
    ]
    a, b = random_rows(source, 2, reports, total, zeros=source.random() < 0.2)
    if a == b:
        return 0, 0, 0
    growth = 1 + Fraction(source.randint(0, 30), source.choice((10, 30, 100)))
    exact, data_sets = worst(a, b, groups, growth)
    first = np.array(a) / total
    second = np.array(b) / total
    counts = [count for _, count in groups]
    laws, others = crowd_of(
        first, second, [(np.array(rows) / total, count) for rows, count in groups]
    )
    local = float(sum(max(Fraction(0), x - growth * y) for x, y in zip(a, b, strict=True))) / total
    choices = list(_candidates(others, first - second))
    useful = 0
    bounds = 0
    for choice in source.sample(
        choices, min(2, len(choices))
    ):  # any choice must hold, not only the best
        people = 1 + sum(counts[h] for h in choice.mixed)
        cover = BlanketLaw(choice.mean(counts) * choice.shape, first, second)
        for found in (
            delta_upper(mixed_of(laws, counts, choice), math.log(growth), directions="forward"),
            delta_upper(
                mixed_of(laws, counts, choice),
                math.log(growth),
                directions="forward",
                enough=0.8 * local,
            ),
            blanket.delta_upper(cover, people, math.log(growth), directions="forward"),
        ):
            assert found >= float(exact) * (1.0 - 1e-12), (groups, a, b, growth, choice)
            assert found <= local * (1.0 + 1e-12) + 1e-14
            bounds = bounds + 1
            useful = useful + (found < 0.999 * local)
    return data_sets, bounds, useful


def test_no_data_set_exceeds_the_mixed_groups_bound() -> None:
    source = random.Random(5)
    looked = np.zeros(3, dtype=np.int64)
    for _ in range(20):
        looked += compare_with_data_sets(source)
    assert looked[0] > 120
    assert looked[1] > 80
    assert looked[2] > 15


@pytest.mark.slow
def test_no_data_set_exceeds_the_mixed_groups_bound_many_times() -> None:
    source = random.Random(55)
    looked = np.zeros(3, dtype=np.int64)
    for _ in range(4_000):
        looked += compare_with_data_sets(source)
    assert looked[0] > 35_000
    assert looked[1] > 12_000
    assert looked[2] > 4_000


def weighted_psi(
    a: list[Fraction],
    b: list[Fraction],
    held: list[list[Fraction]],
    coins: list[Fraction],
    growth: Fraction,
) -> Fraction:
    """E[(sum of c_j G_j)_+]/(sum of c_j), reports that somebody cannot make in full."""
    total = {Fraction(0): Fraction(1)}
    bare = Fraction(0)
    for row, coin in zip(held, coins, strict=True):
        after: dict[Fraction, Fraction] = {}
        for chance, x, y in zip(row, a, b, strict=True):
            gap = coin * (x - growth * y)
            if chance:
                for value, mass in total.items():
                    after[value + gap / chance] = (
                        after.get(value + gap / chance, Fraction(0)) + mass * chance
                    )
            else:
                bare += max(Fraction(0), gap)
        total = after
    return (
        sum((value * mass for value, mass in total.items() if value > 0), Fraction(0)) + bare
    ) / sum(coins)


def test_the_theorem_itself_in_fractions() -> None:
    """Theorem A with exact Psi, weights and law of T; Psi falls when a person joins."""
    source = random.Random(3)
    looked = 0
    for turn in range(60):
        total = 30
        a, b, *rows = (
            [Fraction(x, total) for x in row]
            for row in random_rows(source, 2 + source.randint(2, 4), 3, total, zeros=turn % 4 == 0)
        )
        if a == b:
            continue
        growth = 1 + Fraction(source.randint(0, 10), 20)
        shape = [Fraction(1, 3)] * 3 if turn % 2 else [Fraction(x, 10) for x in (5, 2, 3)]
        coins = [min(x / y for x, y in zip(row, shape, strict=True)) for row in rows]
        if min(coins) == 0:
            continue
        truth = shuffled_delta(
            [int(total * x) for x in a],
            [int(total * x) for x in b],
            [[int(total * x) for x in row] for row in rows],
            growth,
        )
        local = sum(max(Fraction(0), x - growth * y) for x, y in zip(a, b, strict=True))
        people = len(rows)
        mean = Fraction(sum(coins)) / len(rows)
        exact = Fraction(0)
        claimed = Fraction(0)
        before = Fraction(0)
        for t in range(1, people + 1):
            sets = list(itertools.combinations(range(people), people + 1 - t))
            values = {
                kept: weighted_psi(a, b, [rows[i] for i in kept], [coins[i] for i in kept], growth)
                for kept in sets
            }
            for (
                kept,
                value,
            ) in (
                values.items()
            ):  # those visited before showed nothing, and then somebody of `kept` did
                gone = [i for i in range(people) if i not in kept]
                chance = (
                    Fraction(math.prod((1 - coins[i] for i in gone), start=Fraction(1)))
                    * sum(coins[i] for i in kept)
                    / len(kept)
                )
                exact += chance / math.comb(people, t - 1) * value
            assert max(values.values()) >= before
            before = max(values.values())
            claimed += mean * Fraction((1 - mean) ** (t - 1)) * before
        exact += Fraction(math.prod((1 - coin for coin in coins), start=Fraction(1))) * local
        claimed += Fraction((1 - mean) ** people) * local
        assert truth <= exact <= claimed
        looked += 1
    assert looked > 25


def test_the_number_of_coins_is_not_convex() -> None:
    """phi(m), the mean of m+1 signs: the arithmetic mean of coins would need it to be convex."""
    phi = [
        sum(math.comb(m, k) * max(0, 2 * k - m) for k in range(m + 1)) / 2**m / m
        for m in range(1, 5)
    ]
    assert 2.0 * np.array(phi) == pytest.approx([1.0, 0.5, 0.5, 0.375])
    assert phi[2] > 0.5 * (phi[1] + phi[3])


def test_corners_hold_the_largest_value() -> None:
    source = np.random.default_rng(2)
    for counts in ((5,), (3, 4), (1, 6, 2), (2, 2, 2, 2)):
        logs, coins = source.normal(size=(len(counts), 7)), source.uniform(0.1, 1.0, len(counts))
        for removed in range(sum(counts)):
            left = [
                tuple(c - v for c, v in zip(counts, taken, strict=True))
                for taken in itertools.product(*(range(c + 1) for c in counts))
                if sum(taken) == removed
            ]

            def value(people: tuple[int, ...], logs: Floats = logs, coins: Floats = coins) -> float:
                return float(np.exp(np.array(people) @ logs).sum() / (np.array(people) @ coins))

            assert set(corners(counts, removed)) <= set(left)
            assert max(map(value, corners(counts, removed))) == pytest.approx(max(map(value, left)))


def test_one_group_is_close_to_the_bound_for_one_group() -> None:
    rows = geometric(8, 2.0)
    law = InputClassLaws.from_rows(rows, 0, 7)
    for users, room in ((100, 1e-2), (1_000, 2e-3), (10**5, 1e-4)):
        found = epsilon_upper(MixedGroupLaws((GroupPart(law, users - 1, law.blanket),)), 1e-6)
        assert found == pytest.approx(full_law_bound.epsilon_upper(law, users, 1e-6), rel=room)


def test_two_halves_of_a_group_are_the_group() -> None:
    law = InputClassLaws.from_rows(response(4, 1.0), 0, 1)
    whole = epsilon_upper(MixedGroupLaws((GroupPart(law, 2_000, law.blanket),)), 1e-6)
    halves = epsilon_upper(
        MixedGroupLaws((GroupPart(law, 1_500, law.blanket), GroupPart(law, 500, law.blanket))), 1e-6
    )
    assert halves == pytest.approx(whole, rel=1e-9)


@pytest.mark.parametrize("people", [20, 400])
def test_two_reports_of_two_groups_at_every_data_set(people: int) -> None:
    """Counts of ones are sums of four binomials: the truth in floats, for many people."""
    strong = response(2, 0.5)
    weak = response(2, 2.0)
    epsilon = 0.1
    growth = math.exp(0.1)

    def counts(law: Floats, many: int) -> Floats:
        found = np.ones(1)
        for _ in range(many):
            found = np.convolve(found, law)
        return found

    truth = 0.0
    for ones, twos in itertools.product(range(0, people + 1, max(1, people // 4)), repeat=2):
        others = np.convolve(
            np.convolve(counts(strong[0], ones), counts(strong[1], people - ones)),
            np.convolve(counts(weak[0], twos), counts(weak[1], people - twos)),
        )
        gap = np.convolve(others, strong[0]) - growth * np.convolve(others, strong[1])
        truth = max(truth, float(np.maximum(gap, 0.0).sum()))
    laws, others_ = crowd_of(strong[0], strong[1], [(strong, people), (weak, people)])
    choice = choose_groups(others_, strong[0] - strong[1])
    assert choice is not None
    found = delta_upper(mixed_of(laws, [people, people], choice), epsilon)
    assert truth <= found <= (1.3 if people == 20 else 1.1) * truth


def test_a_group_that_hides_nothing_is_left_out() -> None:
    rows = response(4, 1.0)
    useless = np.array([[1.0, 0.0, 0.0, 0.0]])
    _, others = crowd_of(rows[0], rows[1], [(rows, 1_000), (useless, 10**6)])
    for choice in (
        choose_groups(others, rows[0] - rows[1]),
        choose_blanket(others, rows[0] - rows[1]),
    ):
        assert choice is not None
        assert choice.mixed == (0,)
    assert choose_groups(crowd_of(rows[0], rows[1], [(np.eye(4), 5)])[1], rows[0] - rows[1]) is None


def test_coins_are_never_too_large() -> None:
    source = np.random.default_rng(4)
    for _ in range(50):
        rows = source.dirichlet(np.ones(6), size=4)
        shape = source.dirichlet(np.ones(6))
        coins = weights_over(rows, shape)
        assert np.all(coins[:, None] * shape <= rows)
        assert np.all(np.max(coins[:, None] * shape / rows, axis=1) > 1.0 - 1e-12)
    with pytest.raises(InputError, match="sum to one"):
        weights_over(rows, 0.5 * shape)


def test_what_is_refused() -> None:
    law = InputClassLaws.from_rows(response(3, 1.0), 0, 1)
    for count, coin, said in (
        (0, 0.5, "count"),
        (True, 0.5, "count"),
        (3, 0.0, "coin"),
        (3, math.nan, "coin"),
        (3, 1.5, "coin"),
    ):
        with pytest.raises(InputError, match=said):
            GroupPart(law, count, coin)
    for parts in (0, mixed_groups_bound.MAX_PARTS + 1):
        with pytest.raises(InputError, match="parts"):
            MixedGroupLaws((GroupPart(law, 1, 0.5),) * parts)


def test_extreme_numbers() -> None:
    law = InputClassLaws.from_rows(response(3, 1.0), 0, 1)
    pair = MixedGroupLaws((GroupPart(law, 10**9, law.blanket), GroupPart(law, 1, law.blanket)))
    found = epsilon_upper(pair, 1e-30)
    assert 0.0 < found < 1e-3
    assert delta_upper(pair, found) <= 1e-30
    assert delta_upper(pair, 1.1) == 0.0
    assert delta_upper(pair, math.inf) == 0.0
    assert epsilon_upper(pair, 0.0) == law.pure
    alone = MixedGroupLaws((GroupPart(law, 1, law.blanket),))
    assert delta_upper(alone, 0.1) <= law.at(0.1).local


def test_data_sets_of_the_oracle() -> None:
    groups = [([[1, 2], [2, 1]], 2), ([[3, 0]], 3)]
    assert len(list(everybody_else(groups))) == 3
    row = [Fraction(1, 3), Fraction(2, 3)]
    assert weighted_psi(row, row[::-1], [row, row], [Fraction(1, 2)] * 2, Fraction(1)) == psi(
        row, row[::-1], [row, row], Fraction(1)
    )
