"""Attempts to refute the bands around shuffled reports: corners where floats give out, and every data set by code of its own."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Iterator

import numpy as np
import pytest

from metricshuffle.accounting.shuffling import binary_exact_bound as two_reports
from metricshuffle.accounting.shuffling.binary_exact_bound import BinaryReports, delta_bracket, epsilon_bracket, worst_pairs
from metricshuffle.accounting.shuffling.full_law_bound import delta_on_line, delta_upper, epsilon_upper
from metricshuffle.accounting.shuffling.input_class_laws import InputClassLaws
from metricshuffle.accounting.shuffling.pair_screen import PairScreen
from metricshuffle.amplification.amplify import amplify
from metricshuffle.amplification.channel_pair import ChannelPair
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

Long = np.longdouble
Pair = tuple[int, int]
LINE = np.abs(np.subtract.outer(np.arange(4.0), np.arange(4.0)))
CLOSE = 1e-11  # long doubles are right to 1e-19 of 1, so also to this fraction of most results


class EveryDataSet:
    """Laws of the counts of reports, for each law of person 1 in `held` and each multiset of rows that the others hold."""

    def __init__(self, rows: np.ndarray, users: int, held: np.ndarray | None = None) -> None:
        laws, self.reports = np.asarray(rows, dtype=Long), rows.shape[1]
        nothing = np.zeros((users + 1,) * (self.reports - 1), dtype=Long)
        nothing[(0,) * (self.reports - 1)] = 1
        level = [(0, nothing)]
        for _ in range(users - 1):
            level = [(x, self._with(law, laws[x])) for first, law in level for x in range(first, len(laws))]
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
        return max((float(np.maximum(law[a] - growth * law[b], 0).sum()) for law in self.laws for a, b in pairs), default=0.0)


def random_rows(source: random.Random, inputs: int, reports: int) -> np.ndarray:
    """Plain, with zeros, with tiny entries, or nearly all alike; sometimes two rows alike, or mirrored."""
    kind = source.randrange(4)
    if kind == 0:
        rows = np.array([[source.randint(1, 9) for _ in range(reports)] for _ in range(inputs)], dtype=float)
    elif kind == 1:
        rows = np.array([[source.choice((0, 0, 1, 2, 5)) for _ in range(reports)] for _ in range(inputs)], dtype=float)
    elif kind == 2:
        rows = np.array([[10.0 ** -source.uniform(0, 10) for _ in range(reports)] for _ in range(inputs)])
    else:
        base = np.array([source.randint(1, 9) for _ in range(reports)], dtype=float)
        rows = np.array(
            [base * (1 + 10.0 ** -source.uniform(1, 14) * np.array(source.choices((-1, 0, 1), k=reports))) for _ in range(inputs)]
        )
    rows[rows.sum(axis=1) == 0.0, source.randrange(reports)] = 1.0
    if source.random() < 0.1:
        rows[1] = rows[0]
    if source.random() < 0.15:
        rows = rows + rows[::-1, ::-1]
    return np.asarray(rows / rows.sum(axis=1, keepdims=True))


def in_the_band(truth: EveryDataSet, randomizer: Randomizer, users: int, pairs: list[Pair], distance: float, source: random.Random) -> int:
    """delta and epsilon at a distance whose pairs these are; returns how many data sets were compared."""
    answer = amplify(randomizer, users)
    for epsilon in (0.0, 10.0 ** -source.uniform(0, 3), source.uniform(0, 4)):
        band, exact, slack = answer.delta(epsilon, distance), truth.delta(pairs, epsilon), 1e-17 * math.exp(epsilon)
        assert exact * (1.0 - CLOSE) - slack <= band.upper
        assert band.lower <= exact * (1.0 + CLOSE) + slack
        if randomizer.outputs == 2:
            assert band.upper <= exact * (1.0 + 2e-5) + 1e-9
    for delta in (10.0 ** -source.uniform(0, 2), 10.0 ** -source.uniform(2, 7)):
        band = answer.epsilon(delta, distance)
        if band.upper < 50.0:
            assert truth.delta(pairs, band.upper) <= delta * (1.0 + CLOSE) + 1e-17 * math.exp(min(band.upper, 5.0))
        if 0.0 < band.lower < 30.0:
            assert truth.delta(pairs, band.lower * (1.0 - 1e-12)) >= delta * (1.0 - CLOSE) - 1e-16
    return 5 * len(truth.laws) * len(pairs)


def any_channel(source: random.Random, most: int) -> int:
    """At most so many inputs and reports."""
    inputs, reports = source.randint(2, most), source.randint(2, most)
    users = source.randint(1, {2: 8, 3: 6, 4: 5, 5: 4}[reports])
    places = np.cumsum([0.0, *source.choices((0.3, 1.0, 2.0), k=inputs - 1)])
    distances = np.abs(np.subtract.outer(places, places))
    channel = Channel(random_rows(source, inputs, reports), distances=distances)
    truth = EveryDataSet(channel.weights.astype(Long) / Long(2.0**63), users)
    looked, pairs = 0, list(itertools.permutations(range(inputs), 2))
    for distance in source.sample(sorted({float(distances[pair]) for pair in pairs}), 1):
        near = [pair for pair in pairs if distances[pair] <= distance * (1.0 + 1e-12)]
        looked += in_the_band(truth, channel, users, near, distance, source)
    return looked + beyond_the_blanket(truth, channel.rows(), users, pairs, source)


def beyond_the_blanket(truth: EveryDataSet, rows: np.ndarray, users: int, pairs: list[Pair], source: random.Random) -> int:
    """Classes, any line of integration, the rough sum, and pairs settled by a first look."""
    epsilon, crowd, looked = source.uniform(0, 2), PairScreen(rows), 0
    a, b = source.choice(pairs)
    exact, slack = truth.delta([(a, b)], epsilon) * (1.0 - CLOSE), 1e-16
    order, parts = source.sample(range(len(rows)), len(rows)), source.randint(1, len(rows))
    law = InputClassLaws.from_rows(rows, a, b, classes=[order[i::parts] for i in range(parts)])
    assert exact - slack <= delta_upper(law, users, epsilon, directions="forward")
    line = (10.0 ** source.uniform(-3, 2), source.uniform(5, 60))
    for law, roughly in itertools.product((crowd.law(a, b), crowd.coarser.law(a, b)), (False, True)):
        assert exact - slack <= delta_on_line(law, users, epsilon, line, roughly=roughly)
        looked += len(truth.laws)
    if crowd.covered and users > 1:
        delta = 10.0 ** -source.uniform(0, 3)
        left = {tuple(pair) for pair in crowd.open_pairs(np.array(pairs), users, epsilon, delta, line[0]).tolist()}
        settled = [pair for pair in pairs if pair not in left]
        assert truth.delta(settled, epsilon) <= delta * (1.0 + CLOSE)
        looked += len(settled) * len(truth.laws)
    return looked + len(truth.laws)


def built_in(strength: float) -> Iterator[tuple[Randomizer, int]]:
    """Small ones, and for how many people."""
    yield from ((KaryRandomizedResponse(k, strength), 4) for k in (2, 3, 4))
    yield from ((BoundedGeometric(span, strength), 4) for span in (1, 2, 3))
    yield from ((LaplaceOnInterval(0.0, 1.0, strength, steps), 4) for steps in (2, 3))
    yield from ((member, 2) for member in (WitchHat(1.0, strength, 2.0, 1), ClusteredResponse(2, 2, 0.3 * strength, strength)))
    yield from ((ExponentialMechanism(LINE, strength), 3), (PaddedExponential(LINE, strength), 3))
    yield from ((HadamardResponse(3, strength), 3), (HadamardResponse(4, strength, 2), 2), (LocalHash(3, strength, 2), 2))
    yield from ((PckvGrr(2, 1, strength), 2), (PrivKV(2, strength, 0.5 * strength), 2), (PrivKV(1, strength, 2.0 * strength), 5))
    yield from ((PlanarGeometric(2, 2, strength), 3), (PlanarGeometric(3, 2, strength, 0.5, "manhattan"), 2), (Rappor(2, strength), 4))
    yield from (
        (SubsetExponential(4, 2, strength), 2),
        (SubsetSelection(4, strength, 2), 3),
        (Duchi(2, strength), 3),
        (Harmony(2, strength), 3),
    )


def one_built_in(randomizer: Randomizer, users: int, source: random.Random) -> int:
    """All pairs of inputs, not only those that stand for all; on real lines also numbers between grid points."""
    rows = held = randomizer.rows()
    if isinstance(randomizer, LaplaceOnInterval | WitchHat):
        last, far = len(rows) - 1, source.uniform(0.05, 1.0) * (len(rows) - 1)
        places = [*range(last + 1), *(i + side * far for i in range(last + 1) for side in (-1, 1) if 0 <= i + side * far <= last)]
        below = [min(int(place), last - 1) for place in places]
        held = np.array([(1 - (x - i)) * rows[i] + (x - i) * rows[i + 1] for x, i in zip(places, below, strict=True)])
        apart = np.abs(np.subtract.outer(places, places)) * randomizer.step
        distance = far * randomizer.step
    else:
        apart = np.array([[randomizer.distance(a, b) for b in range(len(rows))] for a in range(len(rows))])
        distance = source.choice(sorted(set(apart[apart > 0.0].tolist())))
    pairs = [(a, b) for a, b in itertools.permutations(range(len(held)), 2) if apart[a, b] <= distance * (1.0 + 1e-12)]
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
    assert sum(one_built_in(randomizer, users, source) for randomizer, users in built_in(strength)) > 10_000


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
    assert epsilon_bracket(BinaryReports.from_rows(rows, 0, 1), 3, 0.0).lower <= math.log1p(2.0**-52)
    band = amplify(Channel(rows), 3).epsilon(0.0)
    assert band.lower <= math.log1p(2.0**-52) <= band.upper


@pytest.mark.parametrize("epsilon", [350.0, 360.0, 400.0, 600.0, 700.0, 1e4])
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
    rough = np.array([[0.5, 0.3333333333, 0.1666666666], [0.3333333333, 0.5, 0.16666666675], [0.4, 0.4, 0.2000000005]])
    whole = rough / rough.sum(axis=1, keepdims=True)
    for users in (1000, 10**6):
        found, exact = (epsilon_upper(InputClassLaws.from_rows(rows, 0, 1), users, 1e-6) for rows in (rough, whole))
        assert found == pytest.approx(exact, rel=1e-12)
    pair, other = (BinaryReports.from_rows(rows[:2, :2] / np.array([[5 / 6], [5 / 6]]), 0, 1) for rows in (rough, whole))
    assert delta_bracket(pair, 1000, 0.05).upper == pytest.approx(delta_bracket(other, 1000, 0.05).upper, rel=1e-9)
    with pytest.raises(InputError, match="sum to one"):
        BinaryReports((0.3333333333, 0.6666666666), (0.5, 0.5), (0.5, 0.5), (0.3333333333, 0.6666666666))


def test_a_search_that_starts_at_zero_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """As where there are more data sets than looks, and delta is what epsilon = 0 has."""
    monkeypatch.setattr(two_reports._Search, "unseen", lambda _, epsilon: None if epsilon > 1e-7 else (0, 0.0))
    law = BinaryReports.from_rows([[0.25, 0.75], [0.75, 0.25]], 0, 1)
    most = delta_bracket(law, 1000, 0.0).upper
    assert 0.0 < epsilon_bracket(law, 1000, most * (1.0 + 1e-9)).upper < 1e-4
