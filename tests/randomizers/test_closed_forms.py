"""Closed forms against the matrix: guarantee, blanket, estimator, sampler, and an attack."""

from __future__ import annotations

import inspect
import itertools
import json
import math
from fractions import Fraction

import numpy as np
import pytest
from tests.catalogue.randomizers import EVERY_KIND, line_distances
from tests.oracles.shuffled_brute_force import every_data_set
from tests.tables import check_all

from metricshuffle import randomizers
from metricshuffle.accounting.shuffling.blanket_bound import BlanketLaw, delta_upper
from metricshuffle.randomizers import (
    BinaryRandomizedResponse,
    BoundedGeometric,
    Channel,
    ClusteredResponse,
    DiscreteGaussian,
    Duchi,
    HadamardResponse,
    Harmony,
    KaryRandomizedResponse,
    LaplaceOnInterval,
    LocalHash,
    PaddedExponential,
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

IDS = [f"{index}-{type(randomizer).__name__}" for index, randomizer in enumerate(EVERY_KIND)]


def test_the_catalogue_has_every_kind() -> None:
    """From BinaryRandomizedResponse to PckvGrr; DiscreteGaussian and Channel are separate."""
    exported = [getattr(randomizers, name) for name in randomizers.__all__]
    kinds = {
        value for value in exported if inspect.isclass(value) and issubclass(value, Randomizer)
    }
    assert kinds - {type(randomizer) for randomizer in EVERY_KIND} == {
        Randomizer,
        Channel,
        DiscreteGaussian,
    }


def again(place: int) -> bool:
    """Whether one of that kind came before."""
    return type(EVERY_KIND[place]) in {type(one) for one in EVERY_KIND[:place]}


@pytest.mark.thorough
@pytest.mark.parametrize(
    "randomizer",
    [
        pytest.param(one, marks=[pytest.mark.slow] * again(place), id=IDS[place])
        for place, one in enumerate(EVERY_KIND)
    ],
)
def test_it_passes_the_public_checks(randomizer: Randomizer) -> None:
    check_randomizer(randomizer, draws=3_000, most_pairs=12)


@check_all("randomizer", EVERY_KIND)
def test_blankets_and_guarantees_are_those_of_the_channel(randomizer: Randomizer) -> None:
    channel = Channel(randomizer.rows())
    rows = randomizer.rows()
    pairs = list(itertools.permutations(range(randomizer.inputs), 2))
    for a, b in pairs[:: max(1, len(pairs) // 15)]:
        # Both ways: the closed form neither claims too much nor gives anything away.
        closed = randomizer.blanket(a, b)
        assert blanket_excess(closed, rows, a, b) < 1e-12
        for factor, share in ((0.7, 0.4), (1.0, 0.0), (1.2, 1.5), (1.4, -0.3), (2.0, -2.0)):
            told = np.maximum(0.0, closed.a - factor * closed.b - share * closed.mass).sum()
            assert told == pytest.approx(
                np.maximum(0.0, rows[a] - factor * rows[b] - share * rows.min(axis=0)).sum(),
                abs=1e-12,
            )
        assert closed.mass.sum() == pytest.approx(rows.min(axis=0).sum(), rel=1e-12)
        assert channel.local_epsilon(a, b) <= randomizer.local_epsilon(a, b) * (1 + 1e-12) + 1e-12
        assert randomizer.total_variation(a, b) == pytest.approx(
            channel.total_variation(a, b), abs=1e-14
        )
    worst = max(channel.local_epsilon(a, b) for a, b in randomizer.pairs())
    assert worst == pytest.approx(
        channel.local_epsilon(), rel=1e-9
    )  # `pairs` has a worst one, and local_epsilon() is attained
    if not isinstance(randomizer, LaplaceOnInterval):
        assert randomizer.local_epsilon() == pytest.approx(channel.local_epsilon(), rel=1e-9)


@check_all("randomizer", EVERY_KIND)
def test_json_gives_the_same_law(randomizer: Randomizer) -> None:
    again = Randomizer.of_kind(json.loads(randomizer.model_dump_json()))
    assert isinstance(again, type(randomizer))
    assert np.array_equal(again.rows(), randomizer.rows())


@check_all("randomizer", EVERY_KIND)
def test_pairs_stand_for_every_pair(randomizer: Randomizer) -> None:
    """delta of three people's shuffled reports, over `pairs` and over all pairs."""
    rows = randomizer.rows()
    everything = list(itertools.permutations(range(randomizer.inputs), 2))
    some = everything[:: max(1, len(everything) // 20)]
    short = [randomizer.blanket(*pair) for pair in itertools.islice(randomizer.pairs(), 3_000)]
    for factor, share in ((1.1, 0.5), (1.5, -0.5), (1.2, 2.0)):
        told = max(
            float(np.maximum(0, law.a - factor * law.b - share * law.mass).sum())
            for one in short
            for law in (one, one.reversed)
        )
        common = rows.min(axis=0)
        true = max(
            float(np.maximum(0, rows[a] - factor * rows[b] - share * common).sum()) for a, b in some
        )
        assert true <= told + 1e-12


@check_all(
    "make",
    [
        lambda e: KaryRandomizedResponse(64, e),
        lambda e: KaryRandomizedResponse(2**24, e),
        BinaryRandomizedResponse,
        lambda e: LocalHash(1000, e),
        lambda e: SubsetSelection(500, e),
        lambda e: SubsetExponential(100, 5, e),
        lambda e: HadamardResponse(1000, e),
        lambda e: Rappor(10_000, e),
        lambda e: ClusteredResponse(10, 50, 0.1, e),
        lambda e: Duchi(50, e),
        lambda e: Harmony(51, e),
    ],
)
@check_all("epsilon", [1e-3, 0.1, 1.0, 7.3, 40.0])
def test_rounding_never_exceeds_the_claim_and_costs_nothing(
    make: type[BinaryRandomizedResponse], epsilon: float
) -> None:
    randomizer = make(epsilon)
    told = randomizer.local_epsilon()
    # Weights are multiples of 2^-63: what is lost is the rounding of the rare reports, and 2^24
    # options are 2^24 roundings.
    lost = (
        4e-5
        if isinstance(randomizer, KaryRandomizedResponse) and randomizer.options > 10**6
        else 1e-9
    )
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
    """4-RR and 3-RR with e^epsilon0 = 3: the exact worst delta is 1/20 and 9/125.

    Two people, e^epsilon = 2.4.
    """
    for options, least in ((4, 1 / 20), (3, 9 / 125)):
        law = KaryRandomizedResponse(options, math.log(3)).blanket(0, 1)
        assert delta_upper(law, 2, math.log(2.4)) >= least * (1 - 1e-9)


@check_all(
    "randomizer",
    [
        KaryRandomizedResponse(3, 1.0),
        LocalHash(3, 1.0, buckets=2),
        HadamardResponse(3, 1.0),
        SubsetSelection(3, 1.0, 1),
        PaddedExponential(line_distances(3), 1.0),
        BoundedGeometric(2, 1.0),
        Duchi(2, 1.0),
        PrivKV(1, 0.5, 0.7),
    ],
)
def test_every_data_set_of_three_people_stays_below_the_blanket(randomizer: Randomizer) -> None:
    weights = Channel(randomizer.rows()).weights.tolist()
    for (a, b), growth in itertools.product(
        list(randomizer.pairs())[:3], (Fraction(11, 10), Fraction(3, 2))
    ):
        worst = max(every_data_set(weights, a, b, 3, growth).values())
        assert (
            0
            <= worst
            <= delta_upper(randomizer.blanket(a, b), 3, math.log(growth), directions="forward")
            * (1 + 1e-12)
        )


def test_blankets_of_a_distance() -> None:
    line = BoundedGeometric(6, 0.5)
    assert len(line.blankets(1)) == 12
    assert len(line.blankets()) == 42
    assert all(
        isinstance(law, BlanketLaw) and law.pure <= 0.5 + 1e-12 for law in line.blankets(1.9)
    )
    reals = LaplaceOnInterval(0, 6, 0.5, steps=6)
    assert len(reals.blankets(0.2)) == 12  # two real numbers may be rounded one step apart


def test_real_inputs_between_grid_points_keep_the_rate() -> None:
    for randomizer, low, high, most in (
        (LaplaceOnInterval(-1, 3, 0.9, 12), -1, 3, 9.9),
        (WitchHat(2, 1.0, 0.9, 6), -2, 2, 1.0),
    ):
        rows = randomizer.rows()
        steps = randomizer.inputs - 1
        rng = np.random.default_rng(0)

        def law(
            x: float,
            rows: np.ndarray = rows,
            steps: int = steps,
            low: float = low,
            high: float = high,
        ) -> np.ndarray:
            place = (x - low) / (high - low) * steps
            below = min(math.floor(place), steps - 1)
            return np.asarray(
                rows[below] * (1 - (place - below)) + rows[below + 1] * (place - below)
            )

        for x, y in (*rng.uniform(low, high, (300, 2)), (low, low + 1e-3)):
            assert np.abs(np.log(law(x) / law(y))).max() <= min(most, 0.9 * abs(x - y)) * (
                1 + 1e-12
            )
