"""Band around the epsilon of shuffled reports: brute force, golden values, all interfaces."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Iterator
from fractions import Fraction

import numpy as np
import pytest
from tests.oracles.shuffled_brute_force import every_data_set
from tests.tables import check_all

import metricshuffle as ms
from metricshuffle.accounting.shuffling import _blanket_kernels, _contour_kernels
from metricshuffle.accounting.shuffling import _full_law_kernels as _beyond_kernels
from metricshuffle.accounting.shuffling import binary_exact_bound as two_reports
from metricshuffle.accounting.shuffling import blanket_bound as blanket
from metricshuffle.accounting.shuffling import clone_bound as clones
from metricshuffle.accounting.shuffling.binary_exact_bound import (
    BinaryReports,
    delta_bracket,
    epsilon_bracket,
    worst_pairs,
)
from metricshuffle.accounting.shuffling.full_law_bound import (
    delta_on_line,
    delta_upper,
    epsilon_upper,
)
from metricshuffle.accounting.shuffling.input_class_laws import InputClassLaws
from metricshuffle.accounting.shuffling.pair_screen import PairScreen
from metricshuffle.amplification import best_bound, pair_blanket_bound
from metricshuffle.amplification.amplify import GenericLDP, amplify, amplify_generic, amplify_metric
from metricshuffle.amplification.best_bound import BestBoundProfile
from metricshuffle.amplification.dominance_scan import PairScan
from metricshuffle.amplification.random_task import random_task
from metricshuffle.errors import InputError
from metricshuffle.randomizers import (
    BoundedGeometric,
    Channel,
    ClusteredResponse,
    Duchi,
    ExponentialMechanism,
    HadamardResponse,
    Harmony,
    KaryRandomizedResponse,
    LaplaceOnInterval,
    LocalHash,
    PaddedExponential,
    PckvGrr,
    PlanarGeometric,
    PrivKV,
    Randomizer,
    Rappor,
    SubsetExponential,
    SubsetSelection,
    WitchHat,
)
from metricshuffle.randomizers.channel import ChannelPair

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
        answer = channel_of(weights)
        users = source.randint(1, 5)
        growth = Fraction(source.randint(10, 20), 10)
        truth = float(
            max(
                max(every_data_set(weights, a, b, users, growth).values())
                for a, b in itertools.permutations(range(3), 2)
            )
        )
        band = amplify(answer, users).delta(math.log(growth))
        assert band.lower <= truth * (1.0 + 1e-12) + 1e-15
        assert truth <= band.upper * (1.0 + 1e-12) + 1e-15


def test_bands_of_random_channels() -> None:
    source = random.Random(4)
    for _ in range(12):
        answer = amplify(
            channel_of(random_channel(source, source.randint(2, 5), source.randint(2, 6))),
            source.choice((1, 3, 3000, 10**6)),
        )
        band = answer.epsilon(10.0 ** -source.uniform(1.0, 8.0))  # a Band refuses to be upside down
        assert 0.0 <= band.lower <= band.upper <= answer.local.pure(1.0)


@check_all(("options", "exact"), [(4, 1.0 / 20.0), (3, 9.0 / 125.0)])
def test_the_worst_data_set_of_two_users(options: int, exact: float) -> None:
    band = ms.amplify(KaryRandomizedResponse(options, math.log(3.0)), 2).delta(math.log(2.4))
    assert band.upper >= exact
    assert band.upper == pytest.approx(exact, rel=1e-9)
    assert band.lower == pytest.approx(exact, rel=1e-9)
    assert band.lower <= exact * (1.0 + 1e-15)


@check_all("users", [10**6, 10**9, 10**12])
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


@check_all(("users", "distance", "reach", "other", "delta", "golden"), METRIC_GOLDEN)
def test_metric_golden_values(
    users: int, distance: float, reach: float, other: float, delta: float, golden: float
) -> None:
    band = amplify_metric(1.0, distance, reach, other, users=users).epsilon(delta)
    assert golden * (1.0 - 1e-11) <= band.upper <= golden * (1.0 + 1e-6)
    assert 0.5 * golden < band.lower < golden
    scaled = amplify_metric(0.5, 2.0 * distance, 2.0 * reach, 2.0 * other, users=users).epsilon(
        delta
    )
    assert scaled.upper == pytest.approx(band.upper, rel=1e-12)


def test_any_randomizer_of_a_local_epsilon() -> None:
    answer = amplify(GenericLDP(1.0), 1000)
    band = answer.epsilon(1e-6)
    assert band.upper == pytest.approx(0.148670616354, rel=1e-7)
    assert 0.8 * band.upper < band.lower
    for known in (
        KaryRandomizedResponse(2, 1.0),
        KaryRandomizedResponse(3, 1.0),
        HadamardResponse(4, 1.0),
        SubsetSelection(6, 1.0),
    ):
        assert amplify(known, 1000).epsilon(1e-6).upper <= band.upper * (1.0 + 1e-6)
    assert "no bound valid for every randomizer" in answer.explain(1e-6).lower()
    with pytest.raises(InputError, match="local epsilon"):
        amplify_generic(0.0, 10)


def every_pair(randomizer: Randomizer, users: int, delta: float, distance: float) -> float:
    pairs = randomizer.pairs_within(distance)
    return max(
        blanket.epsilon_upper(
            randomizer.blanket(a, b), users, delta, directions="forward", relative=1e-5
        )
        for a, b in pairs
    )


@check_all(
    "randomizer",
    [LaplaceOnInterval(0.0, 1.0, 3.0, 8), WitchHat(1.0, 2.0, 3.0, 4), BoundedGeometric(8, 0.4)],
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
    scan = PairScan(rows, pairs)
    growth = 1.1
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
                    blanket.delta_bracket(
                        scan.law(one), users, math.log(growth), directions="forward", relative=0.01
                    )
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
    assert band.upper == pytest.approx(
        clones.epsilon_upper(clones.ClonePair(1.0, 1.0, 1.0), 10_000, 1e-6), rel=1e-9
    )
    assert 0.0 < band.lower < band.upper
    assert answer.delta(0.05).upper == pytest.approx(
        clones.delta_upper(clones.ClonePair(1.0, 1.0, 1.0), 10_000, 0.05), rel=1e-9
    )


def test_nan_gives_the_trivial_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    weights = random_channel(random.Random(1), 3, 4)
    known = channel_of(weights)
    local = known.local_epsilon()
    for wrong in (math.nan, -math.inf):
        monkeypatch.setattr(
            _contour_kernels, "contour", lambda *_, wrong=wrong: (wrong, math.nan, 5)
        )
        monkeypatch.setattr(
            _blanket_kernels, "enumerate_counts", lambda *_, wrong=wrong: (wrong, math.nan)
        )
        for name in ("hoelder", "hoelder_by_moments"):
            monkeypatch.setattr(
                _beyond_kernels, name, lambda users, *_, wrong=wrong: np.full(users.size, wrong)
            )
        monkeypatch.setattr(best_bound, "clones_epsilon", lambda *_: math.nan)
        monkeypatch.setattr(best_bound, "clones_delta", lambda *_: math.nan)
        answer = amplify(known, 1000)
        band = answer.epsilon(1e-6)
        assert answer.local.epsilon(1e-6, 1.0) * (1.0 - 1e-9) <= band.upper <= local
        assert band.upper == pytest.approx(local, rel=1e-5)
        assert band.bound == "local"
        assert not band.amplified
        assert answer.delta(0.1).upper == pytest.approx(answer.local.delta(0.1, 1.0), rel=1e-9)
        monkeypatch.setattr(pair_blanket_bound, "epsilon_upper", lambda *_, **__: math.nan)
        assert answer.epsilon(1e-6).upper == pytest.approx(
            local, rel=1e-5
        )  # what one report shows at this delta


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
    first = KaryRandomizedResponse(2, 1.0)
    second = KaryRandomizedResponse(2, 2.0)
    alone = amplify(random_task([(1.0, first)]), 50).epsilon(1e-4)
    assert alone.upper == pytest.approx(amplify(first, 50).epsilon(1e-4).upper, rel=1e-6)
    mixed = random_task([(0.25, first), (0.75, second)])
    rows = [
        np.concatenate([0.25 * first.law(one), 0.75 * second.law(two)])
        for one, two in itertools.product(range(2), repeat=2)
    ]
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
    pairs = [
        amplify(ChannelPair(known.matrix, a, b), 3000).epsilon(1e-4).upper
        for a, b in itertools.combinations(range(4), 2)
    ]
    assert max(pairs) == pytest.approx(whole, rel=1e-6)
    with pytest.raises(InputError, match="differ"):
        ChannelPair(known.matrix, 1, 1)


def test_a_distance_that_was_rounded_is_reached() -> None:
    distances = 0.1 * np.abs(np.arange(5)[:, None] - np.arange(5))  # 3 * 0.1 > 0.3
    rows = np.exp(-3.0 * distances)
    profile = amplify(Channel(rows / rows.sum(axis=1, keepdims=True), distances=distances), 10)
    for delta in (0.0, 1e-3):
        assert (
            profile.epsilon(delta, 0.3).upper
            == profile.epsilon(delta, 0.1 * 3).upper
            > profile.epsilon(delta, 0.2).upper
        )


def test_reports_that_give_an_input_away() -> None:
    band = amplify(Channel([[0.5, 0.5, 0.0], [0.5, 0.3, 0.2], [0.4, 0.3, 0.3]]), 100).delta(0.2)
    assert 0.0 < band.lower <= band.upper
    wide = amplify(Channel(np.eye(8)), 100)  # the report is the value: nothing is hidden
    assert wide.delta(3.0).lower == pytest.approx(1.0)
    assert wide.epsilon(1e-6).upper == math.inf


def test_distances() -> None:
    answer = amplify(LaplaceOnInterval(0.0, 10.0, 0.3, 16), 10**5)
    near = answer.epsilon(1e-6, 2.5)
    far = answer.epsilon(1e-6)
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


@check_all(("given", "told"), BAD_METRIC.values())
def test_bad_metrics(given: tuple[float, float, float, float | None], told: str) -> None:
    with pytest.raises(InputError, match=told):
        amplify_metric(*given, users=10)


def test_something_else_is_refused() -> None:
    with pytest.raises(InputError, match="needs a randomizer"):
        amplify("krr", 10)  # type: ignore[call-overload]
    assert ms.randomizers.KaryRandomizedResponse is KaryRandomizedResponse


# --- corners where floats give out, and every data set by code of its own ---


Long = np.longdouble


Pair = tuple[int, int]


LINE = np.abs(np.subtract.outer(np.arange(4.0), np.arange(4.0)))


CLOSE = 1e-11  # long doubles are right to 1e-19 of 1, so also to this fraction of most results


class EveryDataSet:
    """Laws of report counts, for each law of person 1 in `held` and each multiset of others."""

    def __init__(self, rows: np.ndarray, users: int, held: np.ndarray | None = None) -> None:
        laws = np.asarray(rows, dtype=Long)
        self.reports = rows.shape[1]
        nothing = np.zeros((users + 1,) * (self.reports - 1), dtype=Long)
        nothing[(0,) * (self.reports - 1)] = 1
        level = [(0, nothing)]
        for _ in range(users - 1):
            level = [
                (x, self._with(law, laws[x]))
                for first, law in level
                for x in range(first, len(laws))
            ]
        first = laws if held is None else np.asarray(held, dtype=Long)
        self.laws = [np.stack([self._with(law, one).ravel() for one in first]) for _, law in level]

    def _with(self, law: np.ndarray, row: np.ndarray) -> np.ndarray:
        """One more person; the last report is not counted."""
        total = row[-1] * law
        for axis in range(self.reports - 1):
            moved = np.zeros_like(law)
            there: list[slice] = [slice(None)] * (self.reports - 1)
            here = there.copy()
            there[axis], here[axis] = slice(1, None), slice(0, -1)
            moved[tuple(there)] = law[tuple(here)]
            total = total + row[axis] * moved
        return np.asarray(total)

    def delta(self, pairs: list[Pair], epsilon: float) -> float:
        growth = np.exp(Long(epsilon))
        return max(
            (
                float(np.maximum(law[a] - growth * law[b], 0).sum())
                for law in self.laws
                for a, b in pairs
            ),
            default=0.0,
        )


def random_rows(source: random.Random, inputs: int, reports: int) -> np.ndarray:
    """Random rows: plain, with zeros, tiny entries, nearly alike, equal or mirrored."""
    kind = source.randrange(4)
    if kind == 0:
        rows = np.array(
            [[source.randint(1, 9) for _ in range(reports)] for _ in range(inputs)], dtype=float
        )
    elif kind == 1:
        rows = np.array(
            [[source.choice((0, 0, 1, 2, 5)) for _ in range(reports)] for _ in range(inputs)],
            dtype=float,
        )
    elif kind == 2:
        rows = np.array(
            [[10.0 ** -source.uniform(0, 10) for _ in range(reports)] for _ in range(inputs)]
        )
    else:
        base = np.array([source.randint(1, 9) for _ in range(reports)], dtype=float)
        rows = np.array(
            [
                base
                * (
                    1
                    + 10.0 ** -source.uniform(1, 14)
                    * np.array(source.choices((-1, 0, 1), k=reports))
                )
                for _ in range(inputs)
            ]
        )
    rows[rows.sum(axis=1) == 0.0, source.randrange(reports)] = 1.0
    if source.random() < 0.1:
        rows[1] = rows[0]
    if source.random() < 0.15:
        rows = rows + rows[::-1, ::-1]
    return np.asarray(rows / rows.sum(axis=1, keepdims=True))


def in_the_band(
    truth: EveryDataSet,
    randomizer: Randomizer,
    users: int,
    pairs: list[Pair],
    distance: float,
    source: random.Random,
) -> int:
    """Check delta and epsilon at the distance of these pairs; return the number of data sets."""
    answer = amplify(randomizer, users)
    for epsilon in (0.0, 10.0 ** -source.uniform(0, 3), source.uniform(0, 4)):
        band = answer.delta(epsilon, distance)
        exact = truth.delta(pairs, epsilon)
        slack = 1e-17 * math.exp(epsilon)
        assert exact * (1.0 - CLOSE) - slack <= band.upper
        assert band.lower <= exact * (1.0 + CLOSE) + slack
        if randomizer.outputs == 2:
            assert band.upper <= exact * (1.0 + 2e-5) + 1e-9
    for delta in (10.0 ** -source.uniform(0, 2), 10.0 ** -source.uniform(2, 7)):
        band = answer.epsilon(delta, distance)
        if band.upper < 50.0:
            assert truth.delta(pairs, band.upper) <= delta * (1.0 + CLOSE) + 1e-17 * math.exp(
                min(band.upper, 5.0)
            )
        if 0.0 < band.lower < 30.0:
            assert truth.delta(pairs, band.lower * (1.0 - 1e-12)) >= delta * (1.0 - CLOSE) - 1e-16
    return 5 * len(truth.laws) * len(pairs)


def any_channel(source: random.Random, most: int) -> int:
    """At most so many inputs and reports."""
    inputs = source.randint(2, most)
    reports = source.randint(2, most)
    users = source.randint(1, {2: 8, 3: 6, 4: 5, 5: 4}[reports])
    places = np.cumsum([0.0, *source.choices((0.3, 1.0, 2.0), k=inputs - 1)])
    distances = np.abs(np.subtract.outer(places, places))
    channel = Channel(random_rows(source, inputs, reports), distances=distances)
    truth = EveryDataSet(channel.weights.astype(Long) / Long(2.0**63), users)
    looked = 0
    pairs = list(itertools.permutations(range(inputs), 2))
    for distance in source.sample(sorted({float(distances[pair]) for pair in pairs}), 1):
        near = [pair for pair in pairs if distances[pair] <= distance * (1.0 + 1e-12)]
        looked += in_the_band(truth, channel, users, near, distance, source)
    return looked + beyond_the_blanket(truth, channel.rows(), users, pairs, source)


def beyond_the_blanket(
    truth: EveryDataSet, rows: np.ndarray, users: int, pairs: list[Pair], source: random.Random
) -> int:
    """Classes, any line of integration, the rough sum, and pairs settled by a first look."""
    epsilon = source.uniform(0, 2)
    crowd = PairScreen(rows)
    looked = 0
    a, b = source.choice(pairs)
    exact = truth.delta([(a, b)], epsilon) * (1.0 - CLOSE)
    slack = 1e-16
    order = source.sample(range(len(rows)), len(rows))
    parts = source.randint(1, len(rows))
    law = InputClassLaws.from_rows(rows, a, b, classes=[order[i::parts] for i in range(parts)])
    assert exact - slack <= delta_upper(law, users, epsilon, directions="forward")
    line = (10.0 ** source.uniform(-3, 2), source.uniform(5, 60))
    for law, roughly in itertools.product(
        (crowd.law(a, b), crowd.coarser.law(a, b)), (False, True)
    ):
        assert exact - slack <= delta_on_line(law, users, epsilon, line, roughly=roughly)
        looked += len(truth.laws)
    if crowd.covered and users > 1:
        delta = 10.0 ** -source.uniform(0, 3)
        left = {
            tuple(pair)
            for pair in crowd.open_pairs(np.array(pairs), users, epsilon, delta, line[0]).tolist()
        }
        settled = [pair for pair in pairs if pair not in left]
        assert truth.delta(settled, epsilon) <= delta * (1.0 + CLOSE)
        looked += len(settled) * len(truth.laws)
    return looked + len(truth.laws)


def built_in(strength: float) -> Iterator[tuple[Randomizer, int]]:
    """Small ones, and for how many people."""
    yield from ((KaryRandomizedResponse(k, strength), 4) for k in (2, 3, 4))
    yield from ((BoundedGeometric(span, strength), 4) for span in (1, 2, 3))
    yield from ((LaplaceOnInterval(0.0, 1.0, strength, steps), 4) for steps in (2, 3))
    yield from (
        (member, 2)
        for member in (
            WitchHat(1.0, strength, 2.0, 1),
            ClusteredResponse(2, 2, 0.3 * strength, strength),
        )
    )
    yield from ((ExponentialMechanism(LINE, strength), 3), (PaddedExponential(LINE, strength), 3))
    yield from (
        (HadamardResponse(3, strength), 3),
        (HadamardResponse(4, strength, 2), 2),
        (LocalHash(3, strength, 2), 2),
    )
    yield from (
        (PckvGrr(2, 1, strength), 2),
        (PrivKV(2, strength, 0.5 * strength), 2),
        (PrivKV(1, strength, 2.0 * strength), 5),
    )
    yield from (
        (PlanarGeometric(2, 2, strength), 3),
        (PlanarGeometric(3, 2, strength, 0.5, "manhattan"), 2),
        (Rappor(2, strength), 4),
    )
    yield from (
        (SubsetExponential(4, 2, strength), 2),
        (SubsetSelection(4, strength, 2), 3),
        (Duchi(2, strength), 3),
        (Harmony(2, strength), 3),
    )


def one_built_in(randomizer: Randomizer, users: int, source: random.Random) -> int:
    """All pairs of inputs, not only representatives; on real lines also between grid points."""
    rows = held = randomizer.rows()
    if isinstance(randomizer, LaplaceOnInterval | WitchHat):
        last = len(rows) - 1
        far = source.uniform(0.05, 1.0) * (len(rows) - 1)
        places = [
            *range(last + 1),
            *(
                i + side * far
                for i in range(last + 1)
                for side in (-1, 1)
                if 0 <= i + side * far <= last
            ),
        ]
        below = [min(int(place), last - 1) for place in places]
        held = np.array(
            [
                (1 - (x - i)) * rows[i] + (x - i) * rows[i + 1]
                for x, i in zip(places, below, strict=True)
            ]
        )
        apart = np.abs(np.subtract.outer(places, places)) * randomizer.step
        distance = far * randomizer.step
    else:
        apart = np.array(
            [[randomizer.distance(a, b) for b in range(len(rows))] for a in range(len(rows))]
        )
        distance = source.choice(sorted(set(apart[apart > 0.0].tolist())))
    pairs = [
        (a, b)
        for a, b in itertools.permutations(range(len(held)), 2)
        if apart[a, b] <= distance * (1.0 + 1e-12)
    ]
    return in_the_band(EveryDataSet(rows, users, held), randomizer, users, pairs, distance, source)


def test_any_channel() -> None:
    source = random.Random(5)
    assert sum(any_channel(source, 3) for _ in range(10)) > 2_000


def test_built_in_randomizers() -> None:
    source = random.Random(4)
    for randomizer, users in source.sample(list(built_in(1.0)), 5):
        one_built_in(randomizer, min(users, 3), source)


@pytest.mark.slow
def test_any_channel_many_times() -> None:
    source = random.Random(2024)
    assert sum(any_channel(source, 5) for _ in range(60)) > 50_000


@pytest.mark.slow
@pytest.mark.parametrize("strength", [0.2, 3.0])
def test_every_built_in_randomizer(strength: float) -> None:
    source = random.Random(int(10 * strength))
    assert (
        sum(one_built_in(randomizer, users, source) for randomizer, users in built_in(strength))
        > 10_000
    )


def test_a_report_that_is_almost_certain() -> None:
    """1 - 1e-20 is 1 in doubles; the rare report tells the laws apart."""
    for unit in (1e-20, 1e-12):
        law = BinaryReports.from_rows([[unit, 1.0 - unit], [2.0 * unit, 1.0 - 2.0 * unit]], 0, 1)
        for epsilon in (0.0, 0.1):
            exact = (2.0 - math.exp(epsilon)) * unit
            found = delta_bracket(law, 1, epsilon)
            assert found.lower <= exact * (1.0 + 1e-14)
            assert exact * (1.0 - 1e-14) <= found.upper <= exact * (1.0 + 1e-13)
        assert law.pure == pytest.approx(math.log(2.0), rel=1e-12)
    channel = Channel([[2.0**-63, 1.0], [2.0**-62, 1.0], [2.0**-61, 1.0]])
    assert worst_pairs(channel.rows(), [(0, 1), (1, 2), (0, 2)]) == [(0, 2)]
    assert amplify(channel, 1).delta(0.1).upper >= (4.0 - math.exp(0.1)) * 2.0**-63 * (1.0 - 1e-14)
    assert amplify(channel, 1).epsilon(1e-30).upper > 1.38


def test_laws_that_differ_in_the_last_digit() -> None:
    rows = [[0.5, 0.5], [0.5 - 2.0**-53, 0.5 + 2.0**-53]]
    assert epsilon_bracket(BinaryReports.from_rows(rows, 0, 1), 3, 0.0).lower <= math.log1p(
        2.0**-52
    )
    band = amplify(Channel(rows), 3).epsilon(0.0)
    assert band.lower <= math.log1p(2.0**-52) <= band.upper


@check_all("epsilon", [350.0, 360.0, 400.0, 600.0, 700.0, 1e4])
def test_a_report_that_one_input_never_makes_gives_it_away_at_any_epsilon(epsilon: float) -> None:
    answer = amplify(Channel([[1.0, 0.0], [0.9, 0.1]]), 4)
    assert answer.delta(epsilon).upper >= 0.1  # all others hold the first input
    assert answer.epsilon(0.01).upper == math.inf
    sure = BinaryReports.from_rows([[1.0, 0.0], [0.0, 1.0]], 0, 1)
    assert delta_bracket(sure, 14, epsilon).upper == 1.0


def test_of_a_mirrored_channel_only_the_pairs_that_are_asked_for() -> None:
    source = np.random.default_rng(1)
    rows = source.dirichlet(np.full(40, 0.55), 40) + 0.002
    rows = rows / rows.sum(axis=1, keepdims=True)
    rows = 0.5 * (rows + rows[::-1, ::-1])
    for a, b in ((5, 30), (30, 5), (30, 35)):
        channel = ChannelPair(rows, a, b)
        assert np.array_equal(channel.rows(), channel.rows()[::-1, ::-1])
        law = InputClassLaws.from_rows(channel.rows(), a, b)
        ways = [delta_upper(one, 1000, 0.3, directions="forward") for one in (law, law.reversed)]
        assert amplify(channel, 1000).delta(0.3).upper == pytest.approx(max(ways), rel=1e-9)


def test_rows_written_with_few_digits_are_scaled() -> None:
    rough = np.array(
        [
            [0.5, 0.3333333333, 0.1666666666],
            [0.3333333333, 0.5, 0.16666666675],
            [0.4, 0.4, 0.2000000005],
        ]
    )
    whole = rough / rough.sum(axis=1, keepdims=True)
    for users in (1000, 10**6):
        found, exact = (
            epsilon_upper(InputClassLaws.from_rows(rows, 0, 1), users, 1e-6)
            for rows in (rough, whole)
        )
        assert found == pytest.approx(exact, rel=1e-12)
    pair, other = (
        BinaryReports.from_rows(rows[:2, :2] / np.array([[5 / 6], [5 / 6]]), 0, 1)
        for rows in (rough, whole)
    )
    assert delta_bracket(pair, 1000, 0.05).upper == pytest.approx(
        delta_bracket(other, 1000, 0.05).upper, rel=1e-9
    )
    with pytest.raises(InputError, match="sum to one"):
        BinaryReports(
            (0.3333333333, 0.6666666666), (0.5, 0.5), (0.5, 0.5), (0.3333333333, 0.6666666666)
        )


def test_a_search_that_starts_at_zero_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """As where there are more data sets than looks, and delta is what epsilon = 0 has."""
    monkeypatch.setattr(
        two_reports._ExactSearch, "unseen", lambda _, epsilon: None if epsilon > 1e-7 else (0, 0.0)
    )
    law = BinaryReports.from_rows([[0.25, 0.75], [0.75, 0.25]], 0, 1)
    most = delta_bracket(law, 1000, 0.0).upper
    assert 0.0 < epsilon_bracket(law, 1000, most * (1.0 + 1e-9)).upper < 1e-4
