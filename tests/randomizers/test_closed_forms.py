"""Every closed form against the matrix of its own law: guarantee, blanket, estimator, sampler, and an attack."""

from __future__ import annotations

import itertools
import json
import math
from fractions import Fraction

import numpy as np
import pytest
from tests.oracles.shuffled_brute_force import every_data_set

from metricshuffle.accounting.shuffling.blanket_bound import BlanketLaw, delta_upper
from metricshuffle.randomizers import (
    BinaryRandomizedResponse,
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
from metricshuffle.randomizers._checks import blanket_excess
from metricshuffle.randomizers.subsets import rank_of, ranks, subset_at
from metricshuffle.testing import check_randomizer

LINE = np.abs(np.subtract.outer(np.arange(5.0), np.arange(5.0)))
EQUILATERAL = 1.0 - np.eye(4)

EVERY = [
    BinaryRandomizedResponse(1.0), KaryRandomizedResponse(5, 1.3), KaryRandomizedResponse(40, 3.0),
    LocalHash(10, 1.0), LocalHash(6, 1.0, buckets=2), LocalHash(20, 2.0, buckets=7),
    SubsetSelection(8, 1.0), SubsetSelection(6, 0.7, size=3), SubsetExponential(7, 2, 1.0, size=3), SubsetExponential(7, 3, 1.0, size=2),
    HadamardResponse(7, 0.8), HadamardResponse(10, 2.5), HadamardResponse(5, 1.0, blocks=2), Rappor(5, 1.0), Rappor(2, 2.0),
    ExponentialMechanism(LINE, 0.7), PaddedExponential(LINE, 0.7), PaddedExponential(EQUILATERAL, 2.0),
    ClusteredResponse(3, 4, 0.2, 2.0), ClusteredResponse(2, 2, 0.5, 0.1),
    BoundedGeometric(9, 0.4), BoundedGeometric(1, 2.0),
    PlanarGeometric(4, 3, 0.8), PlanarGeometric(3, 3, 0.8, cell=0.5, metric="manhattan"),
    LaplaceOnInterval(-1, 3, 0.9, steps=12), WitchHat(10, 2.0, 0.4, steps=8), WitchHat(1, 1.0, 0.1, steps=3),
    Duchi(1, 1.0), Duchi(3, 1.0), Duchi(4, 1.5), Harmony(3, 1.0),
    PrivKV(3, 0.5, 0.6, held=1), PrivKV(2, 0.5, 2.6), PckvGrr(3, 2, 1.0), PckvGrr(4, 1, 1.0),
]  # fmt: skip

IDS = [f"{index}-{type(randomizer).__name__}" for index, randomizer in enumerate(EVERY)]


def again(place: int) -> bool:
    """Whether one of that kind came before."""
    return type(EVERY[place]) in {type(one) for one in EVERY[:place]}


@pytest.mark.thorough
@pytest.mark.parametrize(
    "randomizer", [pytest.param(one, marks=[pytest.mark.slow] * again(place), id=IDS[place]) for place, one in enumerate(EVERY)]
)
def test_it_passes_the_public_checks(randomizer: Randomizer) -> None:
    check_randomizer(randomizer, draws=6_000, most_pairs=30)


@pytest.mark.parametrize("randomizer", EVERY, ids=IDS)
def test_blankets_and_guarantees_are_those_of_the_channel(randomizer: Randomizer) -> None:
    channel, rows = Channel(randomizer.rows()), randomizer.rows()
    pairs = list(itertools.permutations(range(randomizer.inputs), 2))
    for a, b in pairs[:: max(1, len(pairs) // 15)]:
        # Both ways: the closed form neither claims too much nor gives anything away.
        closed = randomizer.blanket(a, b)
        assert blanket_excess(closed, rows, a, b) < 1e-12
        for factor, share in ((0.7, 0.4), (1.0, 0.0), (1.2, 1.5), (1.4, -0.3), (2.0, -2.0)):
            told = np.maximum(0.0, closed.a - factor * closed.b - share * closed.mass).sum()
            assert told == pytest.approx(np.maximum(0.0, rows[a] - factor * rows[b] - share * rows.min(axis=0)).sum(), abs=1e-12)
        assert closed.mass.sum() == pytest.approx(rows.min(axis=0).sum(), rel=1e-12)
        assert channel.local_epsilon(a, b) <= randomizer.local_epsilon(a, b) * (1 + 1e-12) + 1e-12
        assert randomizer.total_variation(a, b) == pytest.approx(channel.total_variation(a, b), abs=1e-14)
    worst = max(channel.local_epsilon(a, b) for a, b in randomizer.pairs())
    assert worst == pytest.approx(channel.local_epsilon(), rel=1e-9)  # `pairs` has a worst one, and local_epsilon() is attained
    if not isinstance(randomizer, LaplaceOnInterval):
        assert randomizer.local_epsilon() == pytest.approx(channel.local_epsilon(), rel=1e-9)


@pytest.mark.parametrize("randomizer", EVERY, ids=IDS)
def test_json_gives_the_same_law(randomizer: Randomizer) -> None:
    again = Randomizer.of_kind(json.loads(randomizer.model_dump_json()))
    assert isinstance(again, type(randomizer))
    assert np.array_equal(again.rows(), randomizer.rows())


@pytest.mark.parametrize("randomizer", EVERY, ids=IDS)
def test_pairs_stand_for_every_pair(randomizer: Randomizer) -> None:
    """delta of the shuffled reports of three people, over `pairs` and over all pairs of the matrix."""
    rows = randomizer.rows()
    everything = list(itertools.permutations(range(randomizer.inputs), 2))
    some = everything[:: max(1, len(everything) // 20)]
    short = [randomizer.blanket(*pair) for pair in itertools.islice(randomizer.pairs(), 3_000)]
    for factor, share in ((1.1, 0.5), (1.5, -0.5), (1.2, 2.0)):
        told = max(float(np.maximum(0, law.a - factor * law.b - share * law.mass).sum()) for one in short for law in (one, one.reversed))
        common = rows.min(axis=0)
        true = max(float(np.maximum(0, rows[a] - factor * rows[b] - share * common).sum()) for a, b in some)
        assert true <= told + 1e-12


@pytest.mark.parametrize(
    "make",
    [
        lambda e: KaryRandomizedResponse(64, e), lambda e: KaryRandomizedResponse(2**24, e), BinaryRandomizedResponse,
        lambda e: LocalHash(1000, e), lambda e: SubsetSelection(500, e), lambda e: SubsetExponential(100, 5, e),
        lambda e: HadamardResponse(1000, e),
        lambda e: Rappor(10_000, e), lambda e: ClusteredResponse(10, 50, 0.1, e), lambda e: Duchi(50, e), lambda e: Harmony(51, e),
    ],
)  # fmt: skip
@pytest.mark.parametrize("epsilon", [1e-3, 0.1, 1.0, 7.3, 40.0])
def test_rounding_never_exceeds_the_claim_and_costs_nothing(make: type[BinaryRandomizedResponse], epsilon: float) -> None:
    randomizer = make(epsilon)
    told = randomizer.local_epsilon()
    # Weights are multiples of 2^-63: what is lost is the rounding of the rare reports, and 2^24 options are 2^24 roundings.
    lost = 4e-5 if isinstance(randomizer, KaryRandomizedResponse) and randomizer.options > 10**6 else 1e-9
    assert epsilon - lost - (0.2 if epsilon == 40.0 else 0.0) <= told <= epsilon
    for law in randomizer.blankets():
        assert law.pure <= epsilon * (1 + 1e-14)
        assert law.a.sum() == pytest.approx(1.0, abs=1e-12)


def test_subsets_are_numbered_in_lexicographic_order() -> None:
    for options, size in ((6, 3), (7, 1), (5, 4)):
        sets = list(itertools.combinations(range(options), size))
        assert ranks(np.array(sets), options).tolist() == list(range(len(sets)))
        for code, members in enumerate(sets):
            assert subset_at(code, options, size) == list(members)
            assert rank_of(list(members), options) == code


def test_excess_keeps_its_digits_at_a_tiny_epsilon() -> None:
    law = KaryRandomizedResponse(1000, 1e-9).blanket(0, 1)
    assert law.excess[0] == pytest.approx(1e-9 / 1000, rel=1e-6)


def test_the_counterexamples_to_the_published_bound() -> None:
    """4-RR and 3-RR with e^epsilon0 = 3, two people, e^epsilon = 2.4: the exact worst delta is 1/20 and 9/125."""
    for options, least in ((4, 1 / 20), (3, 9 / 125)):
        law = KaryRandomizedResponse(options, math.log(3)).blanket(0, 1)
        assert delta_upper(law, 2, math.log(2.4)) >= least * (1 - 1e-9)


@pytest.mark.parametrize(
    "randomizer",
    [
        KaryRandomizedResponse(3, 1.0), LocalHash(3, 1.0, buckets=2), HadamardResponse(3, 1.0), SubsetSelection(3, 1.0, 1),
        PaddedExponential(LINE[:3, :3], 1.0), BoundedGeometric(2, 1.0), Duchi(2, 1.0), PrivKV(1, 0.5, 0.7),
    ],
    ids=lambda randomizer: type(randomizer).__name__,
)  # fmt: skip
def test_every_data_set_of_three_people_stays_below_the_blanket(randomizer: Randomizer) -> None:
    weights = Channel(randomizer.rows()).weights.tolist()
    for (a, b), growth in itertools.product(list(randomizer.pairs())[:3], (Fraction(11, 10), Fraction(3, 2))):
        worst = max(every_data_set(weights, a, b, 3, growth).values())
        assert 0 <= worst <= delta_upper(randomizer.blanket(a, b), 3, math.log(growth), directions="forward") * (1 + 1e-12)


def test_blankets_of_a_distance() -> None:
    line = BoundedGeometric(6, 0.5)
    assert len(line.blankets(1)) == 12
    assert len(line.blankets()) == 42
    assert all(isinstance(law, BlanketLaw) and law.pure <= 0.5 + 1e-12 for law in line.blankets(1.9))
    reals = LaplaceOnInterval(0, 6, 0.5, steps=6)
    assert len(reals.blankets(0.2)) == 12  # two real numbers may be rounded one step apart


def test_real_inputs_between_grid_points_keep_the_rate() -> None:
    for randomizer, low, high, most in ((LaplaceOnInterval(-1, 3, 0.9, 12), -1, 3, 9.9), (WitchHat(2, 1.0, 0.9, 6), -2, 2, 1.0)):
        rows, steps = randomizer.rows(), randomizer.inputs - 1
        rng = np.random.default_rng(0)

        def law(x: float, rows: np.ndarray = rows, steps: int = steps, low: float = low, high: float = high) -> np.ndarray:
            place = (x - low) / (high - low) * steps
            below = min(math.floor(place), steps - 1)
            return np.asarray(rows[below] * (1 - (place - below)) + rows[below + 1] * (place - below))

        for x, y in (*rng.uniform(low, high, (300, 2)), (low, low + 1e-3)):
            assert np.abs(np.log(law(x) / law(y))).max() <= min(most, 0.9 * abs(x - y)) * (1 + 1e-12)
