"""Groups of people, dummies, and randomizers that are private up to a delta: every data set in fractions, and what must not matter."""

from __future__ import annotations

import itertools
import math
import random
from fractions import Fraction

import numpy as np
import pytest
from tests.oracles.mixed_crowds import worst

import metricshuffle as ms
from metricshuffle.amplification.amplify import amplify_generic
from metricshuffle.amplification.approximate_dp import ApproximateClones
from metricshuffle.amplification.mixed_groups_lower import MixedDataSet, MixedGroupsLower
from metricshuffle.amplification.mixed_groups_upper import clone_groups_pair
from metricshuffle.errors import InputError
from metricshuffle.numerics.types import Floats
from metricshuffle.randomizers import BoundedGeometric, Channel, KaryRandomizedResponse, LaplaceOnInterval

K = KaryRandomizedResponse
DELTA = 1e-6


def random_law(source: random.Random, reports: int, total: int, least: int) -> list[int]:
    shares = [source.randint(1, 12) for _ in range(reports)]
    row = [least + (total - least * reports) * share // sum(shares) for share in shares]
    row[source.randrange(reports)] += total - sum(row)
    return row


def compared(source: random.Random) -> tuple[int, int]:
    """Channels of a random crowd with dummies, through `amplify`: both ends against the truth for every group, pair and data set."""
    reports, total, growth = source.randint(2, 3), 30, 1 + Fraction(source.randint(0, 20), 20)
    groups = [([random_law(source, reports, total, source.randint(0, 3)) for _ in range(2)], source.randint(1, 2)) for _ in range(2)]
    noise, dummies = random_law(source, reports, total, 1), source.randint(0, 2)
    if any(rows[0] == rows[1] for rows, _ in groups) or groups[0][0] == groups[1][0]:
        return 0, 0
    crowd = ms.Groups([(Channel(np.array(rows) / total), many) for rows, many in groups], [(np.array(noise) / total, dummies)])
    looked = 0
    for place, answer in enumerate(ms.amplify(crowd)):
        others = [(rows, many - (h == place)) for h, (rows, many) in enumerate(groups)] + [([noise], dummies)]
        rows = groups[place][0]
        both = [worst(rows[x], rows[1 - x], others, growth) for x in (0, 1)]
        truth = float(max(both)[0])
        band = answer.delta(math.log(growth))
        assert band.lower * (1.0 - 1e-9) - 1e-15 <= truth <= band.upper * (1.0 + 1e-9) + 1e-15, (groups, noise, dummies, growth)
        looked += both[0][1] + both[1][1]
    return looked, 2


def test_every_data_set_in_fractions() -> None:
    source, looked = random.Random(8), np.zeros(2, dtype=np.int64)
    for _ in range(8):
        looked += compared(source)
    assert looked[0] > 50
    assert looked[1] > 10


@pytest.mark.slow
def test_every_data_set_in_fractions_many_times() -> None:
    source, looked = random.Random(88), np.zeros(2, dtype=np.int64)
    for _ in range(600):
        looked += compared(source)
    assert looked[0] > 4_000
    assert sum(clones_compared(source) for _ in range(1_000)) > 2_500
    assert sum(approximate_compared(source)[0] for _ in range(4_000)) > 15_000


def test_folded_options_in_fractions() -> None:
    """k-ary responses are folded to four reports: the same crowd as channels is not, and all data sets lie below both."""
    growth = Fraction(11, 10)
    for options in (2, 4):
        people = [(K(options, 0.7), 2), (K(options, 1.5), 2)]
        rows = [[[round(float(x) * 2**40) for x in row] for row in one.rows()] for one, _ in people]
        rows = [[[*row[:-1], 2**40 - sum(row[:-1])] for row in matrix] for matrix in rows]
        answers = ms.amplify(ms.Groups(people, [("uniform", 1)]))
        as_channels = ms.amplify(ms.Groups([(Channel(one.rows()), many) for one, many in people], [("uniform", 1)]))
        uniform = [2**40 // options] * (options - 1)
        for place, (answer, other) in enumerate(zip(answers, as_channels, strict=True)):
            others = [(rows[h], 2 - (h == place)) for h in (0, 1)] + [([[*uniform, 2**40 - sum(uniform)]], 1)]
            truth = float(worst(rows[place][0], rows[place][1], others, growth)[0])
            band, listed = answer.delta(math.log(growth)), other.delta(math.log(growth))
            assert band.lower * (1.0 - 1e-6) <= truth <= band.upper * (1.0 + 1e-6)
            assert listed.upper == pytest.approx(band.upper, rel=1e-3)


def clones_compared(source: random.Random) -> int:
    reports, total = source.randint(2, 4), 60
    a, b = (random_law(source, reports, total, 2) for _ in range(2))
    if a == b:
        return 0
    groups = [([random_law(source, reports, total, 2) for _ in range(source.randint(1, 2))], source.randint(1, 2)) for _ in range(2)]
    own = math.log(max(max(Fraction(x, y), Fraction(y, x)) for x, y in zip(a, b, strict=True))) + 1e-12
    needed = [max(Fraction(max(x, y), z) for row in rows for x, y, z in zip(a, b, row, strict=True)) for rows, _ in groups]
    others = [(math.log(ratio) + 1e-12, many) for ratio, (_, many) in zip(needed, groups, strict=True)]
    growth = 1 + Fraction(source.randint(0, 20), 20)
    exact, data_sets = worst(a, b, groups, growth)
    assert clone_groups_pair(own, others).delta(math.log(growth)).value >= float(exact) * (1.0 - 1e-12), (a, b, groups, growth)
    return data_sets


def test_clones_of_different_strength_in_fractions() -> None:
    source = random.Random(21)
    assert sum(clones_compared(source) for _ in range(30)) > 60


def test_a_local_epsilon_alone_is_not_enough() -> None:
    """Others whose randomizer is 0-private but never reports what person 1 does hide nothing: what `Groups` counts on is needed."""
    a, b, elsewhere = [3, 1, 0], [1, 3, 0], [0, 0, 4]
    truth, _ = worst(a, b, [([elsewhere], 6)], Fraction(1))
    assert truth == Fraction(1, 2)  # as one report alone
    promised = clone_groups_pair(math.log(3.0), [(1e-9, 6)]).delta(0.0).value
    assert promised < 0.4
    assert "alike" in ms.amplify(ms.Groups([(ms.GenericLDP(1.0), 50), (ms.GenericLDP(2.0), 50)])).explain(DELTA)


def approximate_compared(source: random.Random) -> tuple[int, bool]:
    reports, total = source.randint(2, 4), 1_000
    rows = [random_law(source, reports, total, source.choice((0, 1, 30))) for _ in range(3)]
    if source.random() < 0.6:
        base, rows = random_law(source, reports, total, 30), []
        for _ in range(3):
            row, (i, j) = list(base), source.sample(range(reports), 2)
            moved = source.randint(0, min(row[i], 120))
            row[i], row[j] = row[i] - moved, row[j] + moved
            rows.append(row)
    epsilon = source.choice((0.3, 0.7, 1.0, 2.0))
    ratio = Fraction(math.exp(epsilon)) * (1 - Fraction(1, 10**12))
    leak = max(sum(max(Fraction(0), x - ratio * y) for x, y in zip(*pair, strict=True)) for pair in itertools.permutations(rows, 2)) / total
    if rows[0] == rows[1] or leak > Fraction(9, 10):
        return 0, False
    growth, users = 1 + Fraction(source.randint(0, 20), 20), source.randint(2, 4)
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
    pure, nearly = ms.amplify(ms.GenericLDP(1.0), 10**4), ms.amplify(ms.GenericLDP(1.0, 1e-13), 10**4)
    assert pure.epsilon(DELTA).upper <= nearly.epsilon(DELTA).upper <= 1.001 * pure.epsilon(DELTA).upper
    assert nearly.delta(5.0).upper == pytest.approx(1e-13)
    assert nearly.epsilon(1e-14).lower == nearly.epsilon(1e-14).upper == math.inf
    much = ms.amplify(ms.GenericLDP(1.0, 1e-7), 10**4).epsilon(DELTA)
    assert much.upper == pytest.approx(1.0, rel=1e-3)
    assert ms.amplify(ms.GenericLDP(1.0, 0.0), 500).epsilon(DELTA) == amplify_generic(1.0, 500).epsilon(DELTA)
    with pytest.raises(InputError, match="delta"):
        ms.GenericLDP(1.0, 1.0)


@pytest.mark.parametrize("users", [2, 3, 4])
def test_channels_with_rows_that_miss_reports(users: int) -> None:
    """Unequal supports through plain `amplify`: nothing new is needed."""
    rows = [[0, 4, 6], [3, 3, 4], [5, 0, 5]]
    growth = Fraction(6, 5)
    truth = max(worst(rows[a], rows[b], [(rows, users - 1)], growth)[0] for a, b in itertools.permutations(range(3), 2))
    band = ms.amplify(Channel(np.array(rows) / 10.0), users).delta(math.log(growth))
    assert band.lower * (1.0 - 1e-9) <= float(truth) <= band.upper


def epsilons(groups: ms.Groups, delta: float = DELTA) -> list[float]:
    """The upper ends."""
    return [answer.upper.epsilon(delta, answer.distance) for answer in ms.amplify(groups)]


def test_one_group_is_plain_amplify() -> None:
    for one in (K(5, 1.0), BoundedGeometric(2, 0.5)):
        alone, (band,) = ms.amplify(one, 300).epsilon(DELTA), ms.amplify(ms.Groups([(one, 300)])).epsilon(DELTA)
        assert band == alone
    assert epsilons(ms.Groups([(K(5, 1.0), 200), (K(5, 1.0), 100)])) == [ms.amplify(K(5, 1.0), 300).epsilon(DELTA).upper] * 2
    assert epsilons(ms.Groups([(ms.GenericLDP(1.0), 300)])) == [ms.amplify(ms.GenericLDP(1.0), 300).epsilon(DELTA).upper]


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
    none, some = ms.amplify(K(4, 1.0), 500).epsilon(DELTA), ms.amplify(ms.Groups([(K(4, 1.0), 500)], [("uniform", 500)]))
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
    assert "a member of group 2 (k-ary-randomized-response, options 10, epsilon 4, 200 people)" in answer.explain(DELTA)


def test_lines_and_real_numbers() -> None:
    answer = ms.amplify(ms.Groups([(LaplaceOnInterval(0.0, 1.0, 1.0, 4), 300), (LaplaceOnInterval(0.0, 1.0, 2.0, 4), 300)]))
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
        ([(K(4, 1.0), 0)], (), "somebody"),
        ([], (), "somebody"),
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
    first, second = np.array([0.7, 0.3]), np.array([0.4, 0.6])
    law, other = np.array([0.5, 0.5]), np.array([0.2, 0.8])
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
