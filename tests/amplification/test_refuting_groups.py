"""Attempts to refute what is promised to a member of one of several groups, by code that shares nothing with it.

Every data set of small crowds in whole numbers, larger crowds of two reports by convolution, and numbers at the ends of what floats hold.
"""

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

from metricshuffle.accounting.shuffling import blanket_bound as blanket
from metricshuffle.accounting.shuffling import mixed_groups_bound
from metricshuffle.accounting.shuffling.clone_bound import ClonePair, delta_upper
from metricshuffle.accounting.shuffling.mixture_weights import CommonComponent
from metricshuffle.amplification.amplify import GenericLDP, amplify
from metricshuffle.amplification.approximate_dp import ApproximateClones
from metricshuffle.amplification.groups import Groups, _data_sets
from metricshuffle.amplification.mixed_groups_lower import MixedGroupsLower
from metricshuffle.amplification.mixed_groups_upper import MixedGroupsPair, MixedGroupsProfile, clone_groups_pair
from metricshuffle.errors import InputError
from metricshuffle.randomizers import Channel, DiscreteGaussian

PARTS = 64  # probabilities are multiples of 1/64: exact as floats and in the table of a channel
Row = tuple[int, ...]
Law = dict[Row, int]


def some_row(rng: random.Random, reports: int, zeros: float) -> Row:
    weights = [0]
    while not any(weights):
        weights = [0 if rng.random() < zeros else rng.choice((1, 2, 4, 16, rng.randrange(1, 64))) for _ in range(reports)]
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
    top, bottom = growth.numerator, growth.denominator
    return Fraction(sum(max(0, mass * bottom - top * other.get(counts, 0)) for counts, mass in one.items()), bottom * total)


def above(epsilon: float) -> Fraction:
    return Fraction(math.nextafter(math.exp(epsilon), math.inf))


def below(epsilon: float) -> Fraction:
    return Fraction(math.nextafter(math.exp(epsilon), 0.0)) if epsilon else Fraction(1)


class SmallCrowd:
    """Groups of channels and dummies, all in multiples of 1/64."""

    def __init__(self, rng: random.Random, people: int) -> None:
        reports, zeros, groups = rng.choice((2, 3, 3, 4)), rng.choice((0.0, 0.0, 0.3)), rng.choice((1, 2, 2, 3))
        self.rows = [[some_row(rng, reports, zeros) for _ in range(rng.choice((2, 2, 3)))] for _ in range(groups)]
        self.counts = [1] * groups
        for _ in range(max(0, people - groups)):
            self.counts[rng.randrange(groups)] += 1
        self.dummies = [(some_row(rng, reports, zeros), rng.randrange(1, 3)) for _ in range(1 if groups == 1 else rng.randrange(2))]
        self.groups = Groups(
            [(Channel(np.array(rows) / PARTS), count) for rows, count in zip(self.rows, self.counts, strict=True)],
            dummies=[([part / PARTS for part in row], count) for row, count in self.dummies],
        )
        self.total = PARTS ** (sum(self.counts) + sum(count for _, count in self.dummies))

    def pairs(self, place: int) -> Iterator[tuple[Law, Law]]:
        """The two laws of the shuffled reports, for all data sets of the others and all ordered pairs of a member of this group."""
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
    answers, compared = amplify(crowd.groups), 0
    epsilons, deltas = (0.0, rng.choice((0.1, 0.5)), rng.choice((1.0, 3.0))), (rng.choice((1e-6, 1e-2)), 0.2)
    for place in range(len(crowd.counts)):
        answer = answers[place]
        shown, hidden = [answer.delta(one) for one in epsilons], [answer.epsilon(one) for one in deltas]
        assert isinstance(answer.upper, MixedGroupsProfile)
        each = [
            max(mixed_groups_bound.delta_upper(pair.mixed, one) if pair.mixed else 1.0 for pair in answer.upper.ranked(answer.distance))
            for one in epsilons
        ]
        most, at_lower = [Fraction(0)] * len(epsilons), [Fraction(0)] * len(deltas)
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
                at_lower[i] = max(at_lower[i], exactly(first, second, below(min(band.lower, 700.0)), crowd.total))
                compared += 1
        assert all(Fraction(float(band.lower)) <= truth for band, truth in zip(shown, most, strict=True))
        assert all(truth >= Fraction(delta) for delta, band, truth in zip(deltas, hidden, at_lower, strict=True) if band.lower > 0.0)
    return compared


def test_a_small_crowd_in_whole_numbers() -> None:
    assert refute_small(3, 3) > 0


@pytest.mark.slow
def test_many_small_crowds_in_whole_numbers() -> None:
    assert sum(refute_small(seed, 2 + seed % 4) for seed in range(100, 114)) > 3000


def two_report_truth(a: float, b: float, people: Sequence[tuple[float, int]], epsilon: float) -> float:
    law = np.ones(1)
    for chance, count in people:
        law = np.convolve(law, binom.pmf(np.arange(count + 1), count, chance))
    first, second = (np.append(law * (1.0 - one), 0.0) + np.append(0.0, law * one) for one in (a, b))
    growth = math.exp(epsilon)
    return float(max(np.maximum(0.0, first - growth * second).sum(), np.maximum(0.0, second - growth * first).sum()))


def refute_two_reports(seed: int, most: int) -> int:
    """Others in groups of many people; also with coins and a common law that nobody would choose."""
    rng, compared = random.Random(seed), 0
    groups = [
        ([rng.choice((rng.random(), 0.1 * rng.random(), 0.5)) for _ in range(rng.choice((1, 2, 2)))], rng.randrange(1, most))
        for _ in range(rng.choice((1, 2, 3)))
    ]
    a, b, common = rng.random(), rng.random(), 0.1 + 0.8 * rng.random()
    others = tuple((np.array([[1.0 - one, one] for one in chances]), count) for chances, count in groups)
    pair = MixedGroupsPair(np.array([1.0 - a, a]), np.array([1.0 - b, b]), others)
    coins = [
        min(min((1.0 - one) / (1.0 - common), one / common) for one in chances) * rng.choice((1.0, 0.9, 0.3)) * (1.0 - 1e-12)
        for chances, _ in groups
    ]
    odd = mixed_groups_bound.MixedGroupLaws(
        tuple(mixed_groups_bound.GroupPart(pair._laws(rows), count, coin) for (rows, count), coin in zip(others, coins, strict=True))
    )
    lower, delta = MixedGroupsLower(lambda _: _data_sets(pair)), rng.choice((1e-3, 1e-6))
    found, shown = pair.epsilon(delta, 1e-6).value, lower.epsilon(delta, 1.0)
    sets = [list(zip(held, (count for _, count in groups), strict=True)) for held in itertools.product(*(one for one, _ in groups))]
    for epsilon in (0.0, 0.2, 1.0):
        bounds = [float(pair.delta(epsilon).value), mixed_groups_bound.delta_upper(odd, epsilon)]
        bounds += [mixed_groups_bound.delta_upper(pair.mixed, epsilon)] if pair.mixed else []
        bounds += [blanket.delta_bracket(*pair.covered, epsilon, relative=1e-5).upper] if pair.covered else []
        truths = [two_report_truth(a, b, people, epsilon) for people in sets]
        assert min(bounds) >= max(truths) * (1.0 - 1e-10) - 1e-15
        assert lower.delta(epsilon, 1.0) <= max(truths) * (1.0 + 1e-10) + 1e-15
        compared += len(bounds) * len(truths)
    assert max(two_report_truth(a, b, people, found) for people in sets) <= delta * (1.0 + 1e-9) + 1e-15
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
    return [[(ratio if x == y else 1.0) / (ratio + options - 1) for y in range(options)] for x in range(options)]


def refute_generic(seed: int) -> int:
    """Groups known by their epsilon against k-ary responses of these epsilons, all data sets."""
    rng, compared = random.Random(seed), 0
    locals_ = rng.sample((0.2, 0.5, 1.0, 2.0, 4.0), 2)
    counts = [rng.randrange(1, 4), rng.randrange(1, 3)]
    others = [(locals_[0], counts[0] - 1), (locals_[1], counts[1])]
    pair = clone_groups_pair(locals_[0], [one for one in others if one[1]])
    assert pair.mixed is not None
    for options, epsilon in itertools.product((2, 3, 4), (0.0, 0.5 * locals_[0])):
        bound = min(pair.delta(epsilon).value, mixed_groups_bound.delta_upper(pair.mixed, epsilon))
        own, growth = responses(options, locals_[0]), math.exp(epsilon)
        held = [itertools.combinations_with_replacement(responses(options, one), count) for one, count in others]
        for choice in itertools.product(*held):
            law = {(0,) * options: 1.0}
            for row in itertools.chain(*choice):
                law = joined_by(law, row)
            first, second = joined_by(law, own[0]), joined_by(law, own[1])
            for one, other in ((first, second), (second, first)):
                assert bound >= math.fsum(max(0.0, mass - growth * other.get(at, 0.0)) for at, mass in one.items()) - 1e-13
                compared += 1
    return compared


@pytest.mark.parametrize("seed", range(2))
def test_groups_known_by_their_epsilon(seed: int) -> None:
    assert refute_generic(seed) > 0


def refute_approximate(seed: int) -> int:
    """Random channels at their own (epsilon0, delta0), some with reports that only one input makes."""
    rng, compared = random.Random(seed), 0
    draw = np.random.default_rng(seed)
    local, inputs, reports = rng.choice((0.3, 1.0, 2.0)), rng.choice((2, 3)), rng.choice((2, 3))
    rows = 0.8 * draw.dirichlet(np.ones(reports)) + 0.2 * draw.dirichlet(np.ones(reports), inputs)
    if seed % 2:
        rows = np.hstack([(1.0 - 0.01) * rows, 0.01 * np.eye(inputs)])
    ratio, people = math.exp(local), rng.randrange(2, 5)
    leak = max(float(np.maximum(0.0, one - ratio * other).sum()) for one in rows for other in rows) * (1.0 + 1e-12) + 1e-18
    epsilon = rng.choice((0.0, 0.5 * local, local))
    log_q = math.log((ratio + 2.0 * leak) / (1.0 - leak))
    moved = (1.0 + math.exp(epsilon)) * (people - 1) * 2.0 * leak / (ratio + 2.0 * leak)
    stated = leak + (1.0 - leak) * (delta_upper(ClonePair(local, log_q, log_q), people, epsilon) + moved)
    bound = min(stated, ApproximateClones(local, leak, people).delta(epsilon, 1.0))
    for held in itertools.combinations_with_replacement(rows.tolist(), people - 1):
        law = {(0,) * rows.shape[1]: 1.0}
        for row in held:
            law = joined_by(law, row)
        for one, other in itertools.permutations([joined_by(law, row) for row in rows.tolist()], 2):
            assert bound >= math.fsum(max(0.0, mass - math.exp(epsilon) * other.get(at, 0.0)) for at, mass in one.items()) - 1e-13
            compared += 1
    return compared


def test_randomizers_private_up_to_a_delta() -> None:
    assert sum(refute_approximate(seed) for seed in range(12)) > 100


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("locals_", [(400.0, 380.0), (1e-160, 1e-170), (1e-200, 1.0)])
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
    assert all(0.0 <= band.lower <= band.upper for delta in (0.05, 0.3) for band in answers.epsilon(delta) if band)


@pytest.mark.parametrize("power", [3, 40, 600])
def test_the_mean_of_coins_is_rounded_down(power: int) -> None:
    coin = 0.7 * 2.0**-power
    coins = CommonComponent((0, 1), np.array([coin, coin]), np.array([1.0]))
    assert coin * (1.0 - 1e-11) <= coins.mean([10**9, 3]) <= coin


def test_a_sum_with_too_many_values_is_no_lower_bound() -> None:
    half = np.array([0.5, 0.5])
    pair = MixedGroupsPair(np.array([0.7, 0.3]), np.array([0.3, 0.7]), ((half[None], 10**13),))
    assert MixedGroupsLower(lambda _: _data_sets(pair)).delta(0.0, 1.0) == 0.0


@pytest.mark.parametrize("sigma", [1e7, 1e300])
def test_a_discrete_gaussian_of_very_large_noise_is_refused(sigma: float) -> None:
    for margin in (None, 0):
        with pytest.raises(InputError, match="larger units"):
            DiscreteGaussian(1, sigma, margin)
