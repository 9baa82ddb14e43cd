"""The band around what shuffled reports give away: brute force inside it, golden values, and every way to ask."""

from __future__ import annotations

import itertools
import math
import random
from fractions import Fraction

import numpy as np
import pytest
from tests.oracles.shuffled_brute_force import every_data_set

import metricshuffle as ms
from metricshuffle.accounting.shuffling import _blanket_kernels, _contour_kernels
from metricshuffle.accounting.shuffling import _full_law_kernels as _beyond_kernels
from metricshuffle.accounting.shuffling import blanket_bound as blanket
from metricshuffle.accounting.shuffling import clone_bound as clones
from metricshuffle.amplification import best_bound
from metricshuffle.amplification.amplify import GenericLDP, amplify, amplify_generic, amplify_metric
from metricshuffle.amplification.best_bound import BestBoundProfile
from metricshuffle.amplification.channel_pair import ChannelPair
from metricshuffle.amplification.dominance_scan import PairScan
from metricshuffle.amplification.random_task import random_task
from metricshuffle.errors import InputError
from metricshuffle.randomizers import (
    BoundedGeometric,
    Channel,
    HadamardResponse,
    KaryRandomizedResponse,
    LaplaceOnInterval,
    Randomizer,
    SubsetSelection,
    WitchHat,
)

Weights = list[list[int]]


def random_channel(source: random.Random, inputs: int, outputs: int) -> Weights:
    """Whole-number weights, every row of the same total, no report impossible."""
    rows = [[source.randint(1, 9) for _ in range(outputs)] for _ in range(inputs)]
    total = max(sum(row) for row in rows)
    return [[*row[:-1], row[-1] + total - sum(row)] for row in rows]


def channel_of(weights: Weights) -> Channel:
    return Channel(np.array(weights) / sum(weights[0]))


def test_the_truth_lies_in_the_band() -> None:
    source = random.Random(11)
    for _ in range(8):
        weights = random_channel(source, 3, 3)
        answer, users, growth = channel_of(weights), source.randint(1, 5), Fraction(source.randint(10, 20), 10)
        truth = float(max(max(every_data_set(weights, a, b, users, growth).values()) for a, b in itertools.permutations(range(3), 2)))
        band = amplify(answer, users).delta(math.log(growth))
        assert band.lower <= truth * (1.0 + 1e-12) + 1e-15
        assert truth <= band.upper * (1.0 + 1e-12) + 1e-15


def test_bands_of_random_channels() -> None:
    source = random.Random(4)
    for _ in range(12):
        answer = amplify(channel_of(random_channel(source, source.randint(2, 5), source.randint(2, 6))), source.choice((1, 3, 3000, 10**6)))
        band = answer.epsilon(10.0 ** -source.uniform(1.0, 8.0))  # a Band refuses to be upside down
        assert 0.0 <= band.lower <= band.upper <= answer.local.pure(1.0)


@pytest.mark.parametrize(("options", "exact"), [(4, 1.0 / 20.0), (3, 9.0 / 125.0)])
def test_the_worst_data_set_of_two_users(options: int, exact: float) -> None:
    band = ms.amplify(KaryRandomizedResponse(options, math.log(3.0)), 2).delta(math.log(2.4))
    assert band.upper >= exact
    assert band.upper == pytest.approx(exact, rel=1e-9)
    assert band.lower == pytest.approx(exact, rel=1e-9)
    assert band.lower <= exact * (1.0 + 1e-15)


@pytest.mark.parametrize("users", [10**6, 10**9, 10**12])
def test_10_rr_is_tight_for_many_users(users: int) -> None:
    band = amplify(KaryRandomizedResponse(10, 1.0), users).epsilon(0.01 / users)
    assert band.lower > 0.0
    assert band.upper / band.lower <= 1.005
    assert band.bound == "blanket"
    assert band.evaluator == "contour"


METRIC_GOLDEN = [
    (100, 1.0, 1.0, 1.0, 1e-4, 0.36111134465),
    (1000, 1.0, 1.0, 1.0, 1e-6, 0.148670616354),
    (1000, 1.0, 3.0, 2.5, 1e-6, 0.421853932654),
    (10_000, 1.0, 1.0, 1.0, 1e-8, 0.0564473289819),
    (10_000, 0.1, 1.0, 1.0, 1e-6, 0.00459842028599),
]


@pytest.mark.parametrize(("users", "distance", "reach", "other", "delta", "golden"), METRIC_GOLDEN)
def test_metric_golden_values(users: int, distance: float, reach: float, other: float, delta: float, golden: float) -> None:
    band = amplify_metric(1.0, distance, reach, other, users=users).epsilon(delta)
    assert golden * (1.0 - 1e-11) <= band.upper <= golden * (1.0 + 1e-6)
    assert 0.5 * golden < band.lower < golden
    scaled = amplify_metric(0.5, 2.0 * distance, 2.0 * reach, 2.0 * other, users=users).epsilon(delta)
    assert scaled.upper == pytest.approx(band.upper, rel=1e-12)


def test_any_randomizer_of_a_local_epsilon() -> None:
    answer = amplify(GenericLDP(1.0), 1000)
    band = answer.epsilon(1e-6)
    assert band.upper == pytest.approx(0.148670616354, rel=1e-7)
    assert 0.8 * band.upper < band.lower
    for known in (KaryRandomizedResponse(2, 1.0), KaryRandomizedResponse(3, 1.0), HadamardResponse(4, 1.0), SubsetSelection(6, 1.0)):
        assert amplify(known, 1000).epsilon(1e-6).upper <= band.upper * (1.0 + 1e-6)
    assert "no bound valid for every randomizer" in answer.explain(1e-6).lower()
    with pytest.raises(InputError, match="local epsilon"):
        amplify_generic(0.0, 10)


def every_pair(randomizer: Randomizer, users: int, delta: float, distance: float) -> float:
    pairs = randomizer.pairs_within(distance)
    return max(blanket.epsilon_upper(randomizer.blanket(a, b), users, delta, directions="forward", relative=1e-5) for a, b in pairs)


@pytest.mark.parametrize(
    "randomizer",
    [LaplaceOnInterval(0.0, 1.0, 3.0, 8), WitchHat(1.0, 2.0, 3.0, 4), BoundedGeometric(8, 0.4)],
    ids=lambda randomizer: type(randomizer).__name__,
)
def test_dominated_pairs_may_be_left_out(randomizer: Randomizer) -> None:
    widest = randomizer.diameter
    profile = BestBoundProfile(randomizer, 10**6, widest, "blanket")
    assert profile.many_pairs
    for distance in (widest, 0.5 * widest):
        found = profile.epsilon(1e-7, distance)
        assert found == pytest.approx(every_pair(randomizer, 10**6, 1e-7, distance), rel=1e-4)
        assert profile.delta(found, distance) <= 1e-7 * (1.0 + 1e-3)
        assert profile.delta(found * 0.999, distance) > 1e-7
    band = amplify(randomizer, 10**6).epsilon(1e-7)
    assert 0.5 * band.upper < band.lower


def test_what_is_left_out_is_smaller() -> None:
    source = random.Random(8)
    rows = channel_of(random_channel(source, 8, 5)).rows()
    pairs = list(itertools.permutations(range(8), 2))
    scan, growth = PairScan(rows, pairs), 1.1
    left = {tuple(pair) for pair in scan.ranked(growth).tolist()}
    assert left == set(pairs)
    dropped = 0
    for champion in pairs[::9]:
        kept = {tuple(pair) for pair in scan.survivors(scan.pairs, champion, growth).tolist()}
        assert champion not in kept  # its own atoms are no worse than itself
        for pair in left - kept:
            dropped += 1
            for users in (1, 4, 10**5):
                mine, best = (
                    blanket.delta_bracket(scan.law(one), users, math.log(growth), directions="forward", relative=0.01)
                    for one in (pair, champion)
                )
                assert mine.lower <= best.upper
    assert dropped > 20


def test_a_mirrored_pair_counts_only_if_it_is_there() -> None:
    rows = BoundedGeometric(4, 0.5).rows()
    assert len(PairScan(rows, [(0, 1), (4, 3)]).pairs) == 1
    assert len(PairScan(rows, [(4, 3), (4, 2)]).pairs) == 2


@pytest.mark.thorough
def test_too_many_pairs_are_left_to_the_clones() -> None:
    randomizer = WitchHat(1.0, 1.0, 1.0, 400)
    answer = amplify(randomizer, 10_000)
    assert answer.bound == "clones"
    band = answer.epsilon(1e-6)
    assert band.bound == "clones"
    assert band.upper == pytest.approx(clones.epsilon_upper(clones.ClonePair(1.0, 1.0, 1.0), 10_000, 1e-6), rel=1e-9)
    assert 0.0 < band.lower < band.upper
    assert answer.delta(0.05).upper == pytest.approx(clones.delta_upper(clones.ClonePair(1.0, 1.0, 1.0), 10_000, 0.05), rel=1e-9)


def test_nan_gives_the_trivial_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    weights = random_channel(random.Random(1), 3, 4)
    known = channel_of(weights)
    local = known.local_epsilon()
    for wrong in (math.nan, -math.inf):
        monkeypatch.setattr(_contour_kernels, "contour", lambda *_, wrong=wrong: (wrong, math.nan, 5))
        monkeypatch.setattr(_blanket_kernels, "enumeration", lambda *_, wrong=wrong: (wrong, math.nan))
        for name in ("hoelder", "rough"):
            monkeypatch.setattr(_beyond_kernels, name, lambda users, *_, wrong=wrong: np.full(users.size, wrong))
        monkeypatch.setattr(best_bound, "clones_epsilon", lambda *_: math.nan)
        monkeypatch.setattr(best_bound, "clones_delta", lambda *_: math.nan)
        answer = amplify(known, 1000)
        band = answer.epsilon(1e-6)
        assert answer.local.epsilon(1e-6, 1.0) * (1.0 - 1e-9) <= band.upper <= local
        assert band.upper == pytest.approx(local, rel=1e-5)
        assert band.bound == "local"
        assert not band.amplified
        assert answer.delta(0.1).upper == pytest.approx(answer.local.delta(0.1, 1.0), rel=1e-9)
        monkeypatch.setattr(best_bound, "epsilon_upper", lambda *_, **__: math.nan)
        assert answer.epsilon(1e-6).upper == pytest.approx(local, rel=1e-5)  # what one report shows at this delta


def test_shuffling_may_buy_nothing() -> None:
    answer = amplify(KaryRandomizedResponse(4, 8.0), 2)
    band = answer.epsilon(1e-9)
    assert not band.amplified or band.upper >= 7.9
    alone = amplify(KaryRandomizedResponse(4, 1.0), 1)
    assert alone.epsilon(0.0).upper == pytest.approx(1.0)
    assert "buys nothing" in alone.explain(0.0)
    assert amplify(KaryRandomizedResponse(4, 1.0), 1).delta(0.3).upper == pytest.approx(
        KaryRandomizedResponse(4, 1.0).local_profile().delta(0.3, 1.0), rel=1e-9
    )
    told = amplify(KaryRandomizedResponse(4, 1.0), 1000).explain(1e-6)
    assert "blanket bound" in told
    assert "give away at least" in told


def test_only_honest_reports_count() -> None:
    known = KaryRandomizedResponse(5, 1.0)
    assert amplify(known, 1000, "50%").epsilon(1e-6) == amplify(known, 500).epsilon(1e-6)
    with pytest.raises(InputError, match="cannot exceed"):
        amplify(known, 10, 11)
    with pytest.raises(InputError, match="users"):
        amplify(known, 0)


def test_rounds_compose() -> None:
    known = KaryRandomizedResponse(2, 0.5)
    one, three = (amplify(known, 10**6, rounds=rounds).epsilon(1e-6) for rounds in (1, 3))
    assert one.upper < three.upper <= 3.0 * one.upper * 1.05
    assert three.bound == "composed"
    assert three.lower == pytest.approx(one.lower)


def test_one_of_several_tasks() -> None:
    first, second = KaryRandomizedResponse(2, 1.0), KaryRandomizedResponse(2, 2.0)
    alone = amplify(random_task([(1.0, first)]), 50).epsilon(1e-4)
    assert alone.upper == pytest.approx(amplify(first, 50).epsilon(1e-4).upper, rel=1e-6)
    mixed = random_task([(0.25, first), (0.75, second)])
    rows = [np.concatenate([0.25 * first.law(one), 0.75 * second.law(two)]) for one, two in itertools.product(range(2), repeat=2)]
    channel = amplify(Channel(np.array(rows)), 50)
    for epsilon in (0.0, 0.2, 0.8):
        band = amplify(mixed, 50).delta(epsilon)
        assert band.upper == pytest.approx(channel.delta(epsilon).upper, rel=1e-6)
    assert amplify(mixed, 50).local.pure(1.0) == pytest.approx(2.0)
    for wrong in ([], [(0.5, first)], [(-0.5, first), (1.5, second)]):
        with pytest.raises(InputError, match="parallel tasks"):
            random_task(wrong)


def test_one_pair_of_a_channel() -> None:
    known = channel_of(random_channel(random.Random(6), 4, 4))
    whole = amplify(known, 3000).epsilon(1e-4).upper
    pairs = [amplify(ChannelPair(known.matrix, a, b), 3000).epsilon(1e-4).upper for a, b in itertools.combinations(range(4), 2)]
    assert max(pairs) == pytest.approx(whole, rel=1e-6)
    with pytest.raises(InputError, match="differ"):
        ChannelPair(known.matrix, 1, 1)


def test_a_distance_that_was_rounded_is_reached() -> None:
    distances = 0.1 * np.abs(np.arange(5)[:, None] - np.arange(5))  # 3 * 0.1 > 0.3
    rows = np.exp(-3.0 * distances)
    profile = amplify(Channel(rows / rows.sum(axis=1, keepdims=True), distances=distances), 10)
    for delta in (0.0, 1e-3):
        assert profile.epsilon(delta, 0.3).upper == profile.epsilon(delta, 0.1 * 3).upper > profile.epsilon(delta, 0.2).upper


def test_reports_that_give_an_input_away() -> None:
    band = amplify(Channel([[0.5, 0.5, 0.0], [0.5, 0.3, 0.2], [0.4, 0.3, 0.3]]), 100).delta(0.2)
    assert 0.0 < band.lower <= band.upper
    wide = amplify(Channel(np.eye(8)), 100)  # the report is the value: nothing is hidden
    assert wide.delta(3.0).lower == pytest.approx(1.0)
    assert wide.epsilon(1e-6).upper == math.inf


def test_distances() -> None:
    answer = amplify(LaplaceOnInterval(0.0, 10.0, 0.3, 16), 10**5)
    near, far = answer.epsilon(1e-6, 2.5), answer.epsilon(1e-6)
    assert near.upper < far.upper
    assert near.lower < far.lower
    assert answer.distance == 10.0
    for wrong in (0.0, 10.1, math.nan):
        with pytest.raises(InputError, match="distance"):
            answer.epsilon(1e-6, wrong)


BAD_METRIC = {
    "pair identical": ((1.0, 0.0, 1.0, None), "one and the same"),
    "reach below the distance": ((1.0, 2.0, 1.0, None), "raise it"),
    "other reach below the distance": ((1.0, 2.0, 3.0, 1.0), "reach_other"),
    "no metric": ((1.0, 1.0, 5.0, 2.0), "triangle"),
    "no rate": ((0.0, 1.0, 1.0, None), "rate"),
    "not a number": ((1.0, math.nan, 1.0, None), "distance"),
}


@pytest.mark.parametrize(("given", "told"), BAD_METRIC.values(), ids=BAD_METRIC)
def test_bad_metrics(given: tuple[float, float, float, float | None], told: str) -> None:
    with pytest.raises(InputError, match=told):
        amplify_metric(*given, users=10)


def test_something_else_is_refused() -> None:
    with pytest.raises(InputError, match="needs a randomizer"):
        amplify("krr", 10)  # type: ignore[call-overload]
    assert ms.randomizers.KaryRandomizedResponse is KaryRandomizedResponse
