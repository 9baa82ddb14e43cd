"""Groups, dummies and randomizers with a delta: every data set in fractions, invariances."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Iterator, Sequence
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from scipy.stats import binom
from tests.oracles.mixed_crowds import worst
from tests.tables import check_all

import metricshuffle as ms
from metricshuffle.accounting.shuffling import blanket_bound as blanket
from metricshuffle.accounting.shuffling import mixed_groups_bound
from metricshuffle.accounting.shuffling.clone_bound import ClonePair, delta_upper
from metricshuffle.accounting.shuffling.mixture_weights import CommonComponent
from metricshuffle.amplification.amplify import GenericLDP, amplify, amplify_generic
from metricshuffle.amplification.approximate_dp import ApproximateClones
from metricshuffle.amplification.groups import Groups, _data_sets
from metricshuffle.amplification.mixed_groups_lower import MixedDataSet, MixedGroupsLower
from metricshuffle.amplification.mixed_groups_upper import (
    MixedGroupsPair,
    MixedGroupsProfile,
    clone_groups_pair,
)
from metricshuffle.errors import InputError
from metricshuffle.numerics.types import Floats
from metricshuffle.randomizers import (
    BoundedGeometric,
    Channel,
    DiscreteGaussian,
    KaryRandomizedResponse,
    LaplaceOnInterval,
)

K = KaryRandomizedResponse
DELTA = 1e-6


def random_law(source: random.Random, reports: int, total: int, least: int) -> list[int]:
    shares = [source.randint(1, 12) for _ in range(reports)]
    row = [least + (total - least * reports) * share // sum(shares) for share in shares]
    row[source.randrange(reports)] += total - sum(row)
    return row


def compare_with_data_sets(source: random.Random) -> tuple[int, int]:
    """Random populations with dummies: both bounds against every group, pair and data set."""
    reports = source.randint(2, 3)
    total = 30
    growth = 1 + Fraction(source.randint(0, 20), 20)
    groups = [
        (
            [random_law(source, reports, total, source.randint(0, 3)) for _ in range(2)],
            source.randint(1, 2),
        )
        for _ in range(2)
    ]
    noise = random_law(source, reports, total, 1)
    dummies = source.randint(0, 2)
    if any(rows[0] == rows[1] for rows, _ in groups) or groups[0][0] == groups[1][0]:
        return 0, 0
    crowd = ms.Groups(
        [(Channel(np.array(rows) / total), many) for rows, many in groups],
        [(np.array(noise) / total, dummies)],
    )
    looked = 0
    for place, answer in enumerate(ms.amplify(crowd)):
        others = [(rows, many - (h == place)) for h, (rows, many) in enumerate(groups)] + [
            ([noise], dummies)
        ]
        rows = groups[place][0]
        both = [worst(rows[x], rows[1 - x], others, growth) for x in (0, 1)]
        truth = float(max(both)[0])
        band = answer.delta(math.log(growth))
        assert band.lower * (1.0 - 1e-9) - 1e-15 <= truth <= band.upper * (1.0 + 1e-9) + 1e-15, (
            groups,
            noise,
            dummies,
            growth,
        )
        looked += both[0][1] + both[1][1]
    return looked, 2


def test_no_data_set_exceeds_the_band_of_groups() -> None:
    source = random.Random(8)
    looked = np.zeros(2, dtype=np.int64)
    for _ in range(8):
        looked += compare_with_data_sets(source)
    assert looked[0] > 50
    assert looked[1] > 10


@pytest.mark.slow
def test_no_data_set_exceeds_the_band_of_groups_many_times() -> None:
    source = random.Random(88)
    looked = np.zeros(2, dtype=np.int64)
    for _ in range(600):
        looked += compare_with_data_sets(source)
    assert looked[0] > 4_000
    assert sum(clones_compared(source) for _ in range(1_000)) > 2_500
    assert sum(approximate_compared(source)[0] for _ in range(4_000)) > 15_000


def test_folded_options_in_fractions() -> None:
    """k-ary responses folded to four reports, and the same as channels: data sets below both."""
    growth = Fraction(11, 10)
    for options in (2, 4):
        people = [(K(options, 0.7), 2), (K(options, 1.5), 2)]
        rows = [[[round(float(x) * 2**40) for x in row] for row in one.rows()] for one, _ in people]
        rows = [[[*row[:-1], 2**40 - sum(row[:-1])] for row in matrix] for matrix in rows]
        answers = ms.amplify(ms.Groups(people, [("uniform", 1)]))
        as_channels = ms.amplify(
            ms.Groups([(Channel(one.rows()), many) for one, many in people], [("uniform", 1)])
        )
        uniform = [2**40 // options] * (options - 1)
        for place, (answer, other) in enumerate(zip(answers, as_channels, strict=True)):
            others = [(rows[h], 2 - (h == place)) for h in (0, 1)] + [
                ([[*uniform, 2**40 - sum(uniform)]], 1)
            ]
            truth = float(worst(rows[place][0], rows[place][1], others, growth)[0])
            band = answer.delta(math.log(growth))
            listed = other.delta(math.log(growth))
            assert band.lower * (1.0 - 1e-6) <= truth <= band.upper * (1.0 + 1e-6)
            assert listed.upper == pytest.approx(band.upper, rel=1e-3)


def clones_compared(source: random.Random) -> int:
    reports = source.randint(2, 4)
    total = 60
    a, b = (random_law(source, reports, total, 2) for _ in range(2))
    if a == b:
        return 0
    groups = [
        (
            [random_law(source, reports, total, 2) for _ in range(source.randint(1, 2))],
            source.randint(1, 2),
        )
        for _ in range(2)
    ]
    own = (
        math.log(max(max(Fraction(x, y), Fraction(y, x)) for x, y in zip(a, b, strict=True)))
        + 1e-12
    )
    needed = [
        max(Fraction(max(x, y), z) for row in rows for x, y, z in zip(a, b, row, strict=True))
        for rows, _ in groups
    ]
    others = [
        (math.log(ratio) + 1e-12, many) for ratio, (_, many) in zip(needed, groups, strict=True)
    ]
    growth = 1 + Fraction(source.randint(0, 20), 20)
    exact, data_sets = worst(a, b, groups, growth)
    assert clone_groups_pair(own, others).delta(math.log(growth)).value >= float(exact) * (
        1.0 - 1e-12
    ), (a, b, groups, growth)
    return data_sets


def test_clones_of_different_strength_in_fractions() -> None:
    source = random.Random(21)
    assert sum(clones_compared(source) for _ in range(30)) > 60


def test_a_local_epsilon_alone_is_not_enough() -> None:
    """Others that are 0-private but never make person 1's reports hide nothing.

    The requirements of `Groups` are needed.
    """
    a = [3, 1, 0]
    b = [1, 3, 0]
    elsewhere = [0, 0, 4]
    truth, _ = worst(a, b, [([elsewhere], 6)], Fraction(1))
    assert truth == Fraction(1, 2)  # as one report alone
    promised = clone_groups_pair(math.log(3.0), [(1e-9, 6)]).delta(0.0).value
    assert promised < 0.4
    assert "alike" in ms.amplify(
        ms.Groups([(ms.GenericLDP(1.0), 50), (ms.GenericLDP(2.0), 50)])
    ).explain(DELTA)


def approximate_compared(source: random.Random) -> tuple[int, bool]:
    reports = source.randint(2, 4)
    total = 1_000
    rows = [random_law(source, reports, total, source.choice((0, 1, 30))) for _ in range(3)]
    if source.random() < 0.6:
        base = random_law(source, reports, total, 30)
        rows = []
        for _ in range(3):
            row, (i, j) = list(base), source.sample(range(reports), 2)
            moved = source.randint(0, min(row[i], 120))
            row[i], row[j] = row[i] - moved, row[j] + moved
            rows.append(row)
    epsilon = source.choice((0.3, 0.7, 1.0, 2.0))
    ratio = Fraction(math.exp(epsilon)) * (1 - Fraction(1, 10**12))
    leak = (
        max(
            sum(max(Fraction(0), x - ratio * y) for x, y in zip(*pair, strict=True))
            for pair in itertools.permutations(rows, 2)
        )
        / total
    )
    if rows[0] == rows[1] or leak > Fraction(9, 10):
        return 0, False
    growth = 1 + Fraction(source.randint(0, 20), 20)
    users = source.randint(2, 4)
    exact, data_sets = worst(rows[0], rows[1], [(rows, users - 1)], growth)
    profile = ApproximateClones(epsilon, float(leak) * (1.0 + 1e-12), users)
    found = profile.delta(math.log(growth), 1.0)
    assert found >= float(exact) * (1.0 - 1e-12), (rows, epsilon, growth, users)
    return data_sets, found < 0.999 * profile.local.delta(math.log(growth), 1.0)


def test_private_up_to_a_delta_in_fractions() -> None:
    source = random.Random(13)
    looked = [approximate_compared(source) for _ in range(200)]
    assert sum(many for many, _ in looked) > 700
    assert sum(useful for _, useful in looked) > 70


def test_private_up_to_a_delta() -> None:
    pure = ms.amplify(ms.GenericLDP(1.0), 10**4)
    nearly = ms.amplify(ms.GenericLDP(1.0, 1e-13), 10**4)
    assert (
        pure.epsilon(DELTA).upper
        <= nearly.epsilon(DELTA).upper
        <= 1.001 * pure.epsilon(DELTA).upper
    )
    assert nearly.delta(5.0).upper == pytest.approx(1e-13)
    assert nearly.epsilon(1e-14).lower == nearly.epsilon(1e-14).upper == math.inf
    much = ms.amplify(ms.GenericLDP(1.0, 1e-7), 10**4).epsilon(DELTA)
    assert much.upper == pytest.approx(1.0, rel=1e-3)
    assert ms.amplify(ms.GenericLDP(1.0, 0.0), 500).epsilon(DELTA) == amplify_generic(
        1.0, 500
    ).epsilon(DELTA)
    with pytest.raises(InputError, match="delta"):
        ms.GenericLDP(1.0, 1.0)


@check_all("users", [2, 3, 4])
def test_channels_with_rows_that_miss_reports(users: int) -> None:
    """Unequal supports through plain `amplify`: nothing new is needed."""
    rows = [[0, 4, 6], [3, 3, 4], [5, 0, 5]]
    growth = Fraction(6, 5)
    truth = max(
        worst(rows[a], rows[b], [(rows, users - 1)], growth)[0]
        for a, b in itertools.permutations(range(3), 2)
    )
    band = ms.amplify(Channel(np.array(rows) / 10.0), users).delta(math.log(growth))
    assert band.lower * (1.0 - 1e-9) <= float(truth) <= band.upper


def epsilons(groups: ms.Groups, delta: float = DELTA) -> list[float]:
    """The upper ends."""
    return [answer.upper.epsilon(delta, answer.distance) for answer in ms.amplify(groups)]


def test_one_group_is_plain_amplify() -> None:
    for one in (K(5, 1.0), BoundedGeometric(2, 0.5)):
        alone, (band,) = (
            ms.amplify(one, 300).epsilon(DELTA),
            ms.amplify(ms.Groups([(one, 300)])).epsilon(DELTA),
        )
        assert band == alone
    assert (
        epsilons(ms.Groups([(K(5, 1.0), 200), (K(5, 1.0), 100)]))
        == [ms.amplify(K(5, 1.0), 300).epsilon(DELTA).upper] * 2
    )
    assert epsilons(ms.Groups([(ms.GenericLDP(1.0), 300)])) == [
        ms.amplify(ms.GenericLDP(1.0), 300).epsilon(DELTA).upper
    ]


def test_order_and_empty_groups_do_not_matter() -> None:
    groups = [(K(4, 0.5), 100), (K(4, 2.0), 1)]
    forth = epsilons(ms.Groups(groups))
    assert epsilons(ms.Groups(groups[::-1]))[::-1] == forth
    with_nobody = ms.amplify(ms.Groups([*groups, (K(4, 3.0), 0)], [("uniform", 0)]))
    assert [answer.upper.epsilon(DELTA, 1.0) for answer in with_nobody] == forth
    assert with_nobody.delta(3.0)[2] is None
    assert len(with_nobody) == 3
    with pytest.raises(InputError, match="group 3 has no members"):
        with_nobody[2]


def test_more_people_and_dummies_hide_more() -> None:
    few, more = (epsilons(ms.Groups([(K(4, 1.0), 500), (K(4, 2.0), many)])) for many in (50, 500))
    assert more[0] < few[0]
    assert more[1] < few[1]
    none = ms.amplify(K(4, 1.0), 500).epsilon(DELTA)
    some = ms.amplify(ms.Groups([(K(4, 1.0), 500)], [("uniform", 500)]))
    (band,) = some.epsilon(DELTA)
    assert band is not None
    assert band.upper < 0.75 * none.lower
    assert band.lower <= band.upper <= 1.01 * band.lower
    assert "500 dummies" in some.explain(DELTA)


def test_useless_people_do_no_harm() -> None:
    """A thin group is left out rather than counted on."""
    alone = ms.amplify(K(4, 1.0), 1_000).epsilon(DELTA).upper
    found = epsilons(ms.Groups([(K(4, 1.0), 1_000), (K(4, 12.0), 100_000)]))
    assert found[0] <= alone * 1.002


def test_band_of_two_groups_is_narrow() -> None:
    answer = ms.amplify(ms.Groups([(K(10, 1.0), 5_000), (K(10, 4.0), 200)]))
    for one, golden in zip(answer, (0.0336775, 0.2205148), strict=True):
        band = one.epsilon(DELTA)
        assert band.upper == pytest.approx(golden, rel=1e-4)
        assert band.lower <= band.upper <= 1.001 * band.lower
        assert one.delta(band.upper).upper <= DELTA * 1.001
    assert (
        "a member of group 2 (k-ary-randomized-response, options 10, epsilon 4, 200 people)"
        in answer.explain(DELTA)
    )


def test_lines_and_real_numbers() -> None:
    answer = ms.amplify(
        ms.Groups(
            [(LaplaceOnInterval(0.0, 1.0, 1.0, 4), 300), (LaplaceOnInterval(0.0, 1.0, 2.0, 4), 300)]
        )
    )
    near, far = (answer[1].epsilon(DELTA, distance) for distance in (0.3, 1.0))
    assert 0.0 < near.upper < far.upper < 2.0
    assert near.lower <= near.upper


def test_huge_counts_and_tiny_deltas() -> None:
    answer = ms.amplify(ms.Groups([(K(10, 1.0), 5 * 10**8), (K(10, 4.0), 10**9)]))
    band = answer[0].epsilon(1e-30)
    assert 2.7e-4 < band.lower <= band.upper < 2.8e-4
    one = ms.amplify(ms.Groups([(K(4, 1.0), 1), (K(4, 2.0), 1)]))
    for answer_, local in zip(one, (1.0, 2.0), strict=True):
        assert answer_.epsilon(1e-30).upper <= local * (1.0 + 1e-12)


def test_more_groups_than_parts() -> None:
    groups = ms.Groups([(K(3, 0.5 + 0.25 * place), 20) for place in range(10)])
    answer = ms.amplify(groups)[4].epsilon(DELTA)
    assert answer.lower <= answer.upper <= 1.2 * answer.lower


def test_what_is_refused() -> None:
    for groups, dummies, said in (
        ([(K(4, 1.0), 5), (K(5, 1.0), 5)], (), "group 2 .* has 5 and the first 4"),
        ([(K(4, 1.0), -1)], (), "whole number of people"),
        ([(K(4, 1.0), 2.5)], (), "whole number of people"),
        ([(K(4, 1.0), 0)], (), "must have members"),
        ([], (), "must have members"),
        ([("krr", 4)], (), "see metricshuffle.randomizers"),
        ([(Channel([[0.5, 0.5]]), 4)], (), "dummies"),
        ([(K(4, 1.0), 5), (ms.GenericLDP(1.0), 5)], (), "Name its randomizer"),
        ([(ms.GenericLDP(1.0), 5)], [("uniform", 5)], "Name its randomizer"),
        ([(ms.GenericLDP(1.0, 1e-9), 5), (ms.GenericLDP(2.0), 5)], (), "local delta 0"),
        ([(K(4, 1.0), 5)], [("zeros", 5)], "uniform"),
        ([(K(4, 1.0), 5)], [([0.5, 0.5], 5)], "each of the 4 reports"),
    ):
        with pytest.raises(InputError, match=said):
            ms.Groups(groups, dummies)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="leave out users"):
        ms.amplify(ms.Groups([(K(4, 1.0), 5)]), 5)  # type: ignore[call-overload]
    with pytest.raises(InputError, match="needs users"):
        ms.amplify(K(4, 1.0))  # type: ignore[call-overload]


def test_the_lower_end_is_the_truth_of_its_data_set() -> None:
    """With two reports the sum of points is all there is to see."""
    first = np.array([0.7, 0.3])
    second = np.array([0.4, 0.6])
    law = np.array([0.5, 0.5])
    other = np.array([0.2, 0.8])
    data = MixedDataSet(first, second, ((law, 3), (other, 2)))
    found = MixedGroupsLower(lambda _: [data]).delta(0.1, 1.0)

    def ones(*laws: Floats) -> Floats:
        counted = np.ones(1)
        for one in laws:
            counted = np.convolve(counted, one)
        return counted

    crowd = (law, law, law, other, other)
    growth = math.exp(0.1)
    forth = np.maximum(ones(first, *crowd) - growth * ones(second, *crowd), 0.0).sum()
    back = np.maximum(ones(second, *crowd) - growth * ones(first, *crowd), 0.0).sum()
    assert found == pytest.approx(max(forth, back), rel=1e-9)
    assert found <= max(forth, back)


# --- every data set of several groups, by code that shares nothing with the bounds ---


PARTS = 64  # probabilities are multiples of 1/64: exact as floats and in the table of a channel


Row = tuple[int, ...]


Law = dict[Row, int]


def some_row(rng: random.Random, reports: int, zeros: float) -> Row:
    weights = [0]
    while not any(weights):
        weights = [
            0 if rng.random() < zeros else rng.choice((1, 2, 4, 16, rng.randrange(1, 64)))
            for _ in range(reports)
        ]
    row = [weight * PARTS // sum(weights) for weight in weights]
    row[row.index(max(row))] += PARTS - sum(row)
    return tuple(row)


def joined_by(law: dict[Row, Any], row: Sequence[Any]) -> dict[Row, Any]:
    """The law of the counts of reports with one more person (whole numbers or floats)."""
    found: dict[Row, Any] = {}
    for counts, mass in law.items():
        for y, weight in enumerate(row):
            if weight:
                more = (*counts[:y], counts[y] + 1, *counts[y + 1 :])
                found[more] = found.get(more, 0) + mass * weight
    return found


def exactly(one: Law, other: Law, growth: Fraction, total: int) -> Fraction:
    top = growth.numerator
    bottom = growth.denominator
    return Fraction(
        sum(max(0, mass * bottom - top * other.get(counts, 0)) for counts, mass in one.items()),
        bottom * total,
    )


def above(epsilon: float) -> Fraction:
    return Fraction(math.nextafter(math.exp(epsilon), math.inf))


def below(epsilon: float) -> Fraction:
    return Fraction(math.nextafter(math.exp(epsilon), 0.0)) if epsilon else Fraction(1)


class SmallCrowd:
    """Groups of channels and dummies, all in multiples of 1/64."""

    def __init__(self, rng: random.Random, people: int) -> None:
        reports = rng.choice((2, 3, 3, 4))
        zeros = rng.choice((0.0, 0.0, 0.3))
        groups = rng.choice((1, 2, 2, 3))
        self.rows = [
            [some_row(rng, reports, zeros) for _ in range(rng.choice((2, 2, 3)))]
            for _ in range(groups)
        ]
        self.counts = [1] * groups
        for _ in range(max(0, people - groups)):
            self.counts[rng.randrange(groups)] += 1
        self.dummies = [
            (some_row(rng, reports, zeros), rng.randrange(1, 3))
            for _ in range(1 if groups == 1 else rng.randrange(2))
        ]
        self.groups = Groups(
            [
                (Channel(np.array(rows) / PARTS), count)
                for rows, count in zip(self.rows, self.counts, strict=True)
            ],
            dummies=[([part / PARTS for part in row], count) for row, count in self.dummies],
        )
        self.total = PARTS ** (sum(self.counts) + sum(count for _, count in self.dummies))

    def pairs(self, place: int) -> Iterator[tuple[Law, Law]]:
        """Laws of the shuffled reports, for all data sets and ordered pairs of a member."""
        start: Law = {(0,) * len(self.rows[0][0]): 1}
        for row, count in self.dummies:
            for _ in range(count):
                start = joined_by(start, row)
        held = [
            itertools.combinations_with_replacement(rows, count - (h == place))
            for h, (rows, count) in enumerate(zip(self.rows, self.counts, strict=True))
        ]
        for choice in itertools.product(*held):
            law = start
            for row in itertools.chain(*choice):
                law = joined_by(law, row)
            yield from itertools.permutations([joined_by(law, row) for row in self.rows[place]], 2)


def refute_small(seed: int, people: int) -> int:
    rng = random.Random(seed)
    crowd = SmallCrowd(rng, people)
    answers = amplify(crowd.groups)
    compared = 0
    epsilons = (0.0, rng.choice((0.1, 0.5)), rng.choice((1.0, 3.0)))
    deltas = (rng.choice((1e-6, 1e-2)), 0.2)
    for place in range(len(crowd.counts)):
        answer = answers[place]
        shown = [answer.delta(one) for one in epsilons]
        hidden = [answer.epsilon(one) for one in deltas]
        assert isinstance(answer.upper, MixedGroupsProfile)
        each = [
            max(
                mixed_groups_bound.delta_upper(pair.mixed, one) if pair.mixed else 1.0
                for pair in answer.upper.ranked(answer.distance)
            )
            for one in epsilons
        ]
        most = [Fraction(0)] * len(epsilons)
        at_lower = [Fraction(0)] * len(deltas)
        for first, second in crowd.pairs(place):
            for i, epsilon in enumerate(epsilons):
                truth = exactly(first, second, above(epsilon), crowd.total)
                assert Fraction(float(shown[i].upper)) >= truth
                assert Fraction(float(each[i])) >= truth
                most[i] = max(most[i], exactly(first, second, below(epsilon), crowd.total))
                compared += 2
            for i, (delta, band) in enumerate(zip(deltas, hidden, strict=True)):
                if band.upper < 700.0:
                    assert exactly(first, second, above(band.upper), crowd.total) <= Fraction(delta)
                at_lower[i] = max(
                    at_lower[i], exactly(first, second, below(min(band.lower, 700.0)), crowd.total)
                )
                compared += 1
        assert all(
            Fraction(float(band.lower)) <= truth for band, truth in zip(shown, most, strict=True)
        )
        assert all(
            truth >= Fraction(delta)
            for delta, band, truth in zip(deltas, hidden, at_lower, strict=True)
            if band.lower > 0.0
        )
    return compared


def test_a_small_crowd_in_whole_numbers() -> None:
    assert refute_small(3, 3) > 0


@pytest.mark.slow
def test_many_small_crowds_in_whole_numbers() -> None:
    assert sum(refute_small(seed, 2 + seed % 4) for seed in range(100, 114)) > 3000


def two_report_truth(
    a: float, b: float, people: Sequence[tuple[float, int]], epsilon: float
) -> float:
    law = np.ones(1)
    for chance, count in people:
        law = np.convolve(law, binom.pmf(np.arange(count + 1), count, chance))
    first, second = (
        np.append(law * (1.0 - one), 0.0) + np.append(0.0, law * one) for one in (a, b)
    )
    growth = math.exp(epsilon)
    return float(
        max(
            np.maximum(0.0, first - growth * second).sum(),
            np.maximum(0.0, second - growth * first).sum(),
        )
    )


def refute_two_reports(seed: int, most: int) -> int:
    """Others in groups of many people; also with unusual weights and a common law."""
    rng = random.Random(seed)
    compared = 0
    groups = [
        (
            [
                rng.choice((rng.random(), 0.1 * rng.random(), 0.5))
                for _ in range(rng.choice((1, 2, 2)))
            ],
            rng.randrange(1, most),
        )
        for _ in range(rng.choice((1, 2, 3)))
    ]
    a = rng.random()
    b = rng.random()
    common = 0.1 + 0.8 * rng.random()
    others = tuple(
        (np.array([[1.0 - one, one] for one in chances]), count) for chances, count in groups
    )
    pair = MixedGroupsPair(np.array([1.0 - a, a]), np.array([1.0 - b, b]), others)
    coins = [
        min(min((1.0 - one) / (1.0 - common), one / common) for one in chances)
        * rng.choice((1.0, 0.9, 0.3))
        * (1.0 - 1e-12)
        for chances, _ in groups
    ]
    odd = mixed_groups_bound.MixedGroupLaws(
        tuple(
            mixed_groups_bound.GroupPart(pair._laws(rows), count, coin)
            for (rows, count), coin in zip(others, coins, strict=True)
        )
    )
    lower = MixedGroupsLower(lambda _: _data_sets(pair))
    delta = rng.choice((1e-3, 1e-6))
    found = pair.epsilon(delta, 1e-6).value
    shown = lower.epsilon(delta, 1.0)
    sets = [
        list(zip(held, (count for _, count in groups), strict=True))
        for held in itertools.product(*(one for one, _ in groups))
    ]
    for epsilon in (0.0, 0.2, 1.0):
        bounds = [float(pair.delta(epsilon).value), mixed_groups_bound.delta_upper(odd, epsilon)]
        bounds += [mixed_groups_bound.delta_upper(pair.mixed, epsilon)] if pair.mixed else []
        bounds += (
            [blanket.delta_bracket(*pair.covered, epsilon, relative=1e-5).upper]
            if pair.covered
            else []
        )
        truths = [two_report_truth(a, b, people, epsilon) for people in sets]
        assert min(bounds) >= max(truths) * (1.0 - 1e-10) - 1e-15
        assert lower.delta(epsilon, 1.0) <= max(truths) * (1.0 + 1e-10) + 1e-15
        compared += len(bounds) * len(truths)
    assert (
        max(two_report_truth(a, b, people, found) for people in sets)
        <= delta * (1.0 + 1e-9) + 1e-15
    )
    if shown > 0.0:
        assert max(two_report_truth(a, b, people, shown) for people in sets) >= delta * (1.0 - 1e-9)
    return compared


def test_two_reports_of_many_people() -> None:
    assert refute_two_reports(2, 120) > 0


@pytest.mark.slow
def test_two_reports_of_more_people() -> None:
    assert sum(refute_two_reports(seed, 350) for seed in range(20, 40)) > 500


def responses(options: int, epsilon: float) -> list[list[float]]:
    ratio = math.exp(epsilon)
    return [
        [(ratio if x == y else 1.0) / (ratio + options - 1) for y in range(options)]
        for x in range(options)
    ]


def refute_generic(seed: int) -> int:
    """Groups known by their epsilon against k-ary responses of these epsilons, all data sets."""
    rng = random.Random(seed)
    compared = 0
    locals_ = rng.sample((0.2, 0.5, 1.0, 2.0, 4.0), 2)
    counts = [rng.randrange(1, 4), rng.randrange(1, 3)]
    others = [(locals_[0], counts[0] - 1), (locals_[1], counts[1])]
    pair = clone_groups_pair(locals_[0], [one for one in others if one[1]])
    assert pair.mixed is not None
    for options, epsilon in itertools.product((2, 3, 4), (0.0, 0.5 * locals_[0])):
        bound = min(pair.delta(epsilon).value, mixed_groups_bound.delta_upper(pair.mixed, epsilon))
        own = responses(options, locals_[0])
        growth = math.exp(epsilon)
        held = [
            itertools.combinations_with_replacement(responses(options, one), count)
            for one, count in others
        ]
        for choice in itertools.product(*held):
            law = {(0,) * options: 1.0}
            for row in itertools.chain(*choice):
                law = joined_by(law, row)
            first = joined_by(law, own[0])
            second = joined_by(law, own[1])
            for one, other in ((first, second), (second, first)):
                assert (
                    bound
                    >= math.fsum(
                        max(0.0, mass - growth * other.get(at, 0.0)) for at, mass in one.items()
                    )
                    - 1e-13
                )
                compared += 1
    return compared


@check_all("seed", range(2))
def test_groups_known_by_their_epsilon(seed: int) -> None:
    assert refute_generic(seed) > 0


def refute_approximate(seed: int) -> int:
    """Random channels at their (epsilon0, delta0), some with reports of one input only."""
    rng = random.Random(seed)
    compared = 0
    draw = np.random.default_rng(seed)
    local = rng.choice((0.3, 1.0, 2.0))
    inputs = rng.choice((2, 3))
    reports = rng.choice((2, 3))
    rows = 0.8 * draw.dirichlet(np.ones(reports)) + 0.2 * draw.dirichlet(np.ones(reports), inputs)
    if seed % 2:
        rows = np.hstack([(1.0 - 0.01) * rows, 0.01 * np.eye(inputs)])
    ratio = math.exp(local)
    people = rng.randrange(2, 5)
    leak = (
        max(float(np.maximum(0.0, one - ratio * other).sum()) for one in rows for other in rows)
        * (1.0 + 1e-12)
        + 1e-18
    )
    epsilon = rng.choice((0.0, 0.5 * local, local))
    log_q = math.log((ratio + 2.0 * leak) / (1.0 - leak))
    moved = (1.0 + math.exp(epsilon)) * (people - 1) * 2.0 * leak / (ratio + 2.0 * leak)
    stated = leak + (1.0 - leak) * (
        delta_upper(ClonePair(local, log_q, log_q), people, epsilon) + moved
    )
    bound = min(stated, ApproximateClones(local, leak, people).delta(epsilon, 1.0))
    for held in itertools.combinations_with_replacement(rows.tolist(), people - 1):
        law = {(0,) * rows.shape[1]: 1.0}
        for row in held:
            law = joined_by(law, row)
        for one, other in itertools.permutations([joined_by(law, row) for row in rows.tolist()], 2):
            assert (
                bound
                >= math.fsum(
                    max(0.0, mass - math.exp(epsilon) * other.get(at, 0.0))
                    for at, mass in one.items()
                )
                - 1e-13
            )
            compared += 1
    return compared


def test_randomizers_private_up_to_a_delta() -> None:
    assert sum(refute_approximate(seed) for seed in range(12)) > 100


@pytest.mark.filterwarnings("error")
@check_all("locals_", [(400.0, 380.0), (1e-160, 1e-170), (1e-200, 1.0)])
def test_local_epsilons_whose_squares_are_no_floats(locals_: tuple[float, float]) -> None:
    """Contours at s < 1e-154 or > 1e154, coins whose squares vanish, points of e^700."""
    answers = amplify(Groups([(GenericLDP(one), 10) for one in locals_]))
    for answer, local in zip(answers, locals_, strict=True):
        for band in (answer.delta(0.0), answer.delta(360.0), answer.delta(701.0)):
            assert 0.0 <= band.lower <= band.upper <= 1.0
        assert answer.epsilon(1e-30).upper <= local * (1.0 + 1e-15) + 1e-320


def test_reports_that_one_input_cannot_make_at_any_delta() -> None:
    """The search for epsilon goes to where e^epsilon has no square."""
    first = Channel([[0.5, 0.5, 0.0], [0.25, 0.5, 0.25]])
    second = Channel([[0.5, 0.25, 0.25], [0.25, 0.75, 0.0]])
    answers = amplify(Groups([(first, 3), (second, 2)]))
    assert all(
        0.0 <= band.lower <= band.upper
        for delta in (0.05, 0.3)
        for band in answers.epsilon(delta)
        if band
    )


@check_all("power", [3, 40, 600])
def test_the_mean_of_coins_is_rounded_down(power: int) -> None:
    coin = 0.7 * 2.0**-power
    coins = CommonComponent((0, 1), np.array([coin, coin]), np.array([1.0]))
    assert coin * (1.0 - 1e-11) <= coins.mean([10**9, 3]) <= coin


def test_a_sum_with_too_many_values_is_no_lower_bound() -> None:
    half = np.array([0.5, 0.5])
    pair = MixedGroupsPair(np.array([0.7, 0.3]), np.array([0.3, 0.7]), ((half[None], 10**13),))
    assert MixedGroupsLower(lambda _: _data_sets(pair)).delta(0.0, 1.0) == 0.0


@check_all("sigma", [1e7, 1e300])
def test_a_discrete_gaussian_of_very_large_noise_is_refused(sigma: float) -> None:
    for margin in (None, 0):
        with pytest.raises(InputError, match="larger units"):
            DiscreteGaussian(1, sigma, margin)
