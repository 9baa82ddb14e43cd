"""Smallest of all bounds at every distance: brute force, reals, closed forms, ratios."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from tests.catalogue.randomizers import COUNTED, LARGE
from tests.oracles.shuffled_brute_force import every_data_set, shuffled_delta
from tests.tables import check_all

from metricshuffle.accounting.shuffling import binary_exact_bound as two_reports
from metricshuffle.accounting.shuffling import blanket_bound as blanket
from metricshuffle.accounting.shuffling import clone_bound as clones
from metricshuffle.accounting.shuffling import full_law_bound as beyond_bound
from metricshuffle.accounting.shuffling.clone_bound import delta_upper as clones_delta
from metricshuffle.accounting.shuffling.full_law_bound import delta_upper as beyond_delta
from metricshuffle.accounting.shuffling.full_law_bound import epsilon_upper as beyond_epsilon
from metricshuffle.accounting.shuffling.full_law_bound import integration_line
from metricshuffle.accounting.shuffling.input_class_laws import InputClassLaws
from metricshuffle.accounting.shuffling.pair_screen import PairScreen, symmetries
from metricshuffle.amplification import best_bound
from metricshuffle.amplification.amplify import Amplification, amplify
from metricshuffle.amplification.best_bound import BestBoundProfile
from metricshuffle.amplification.full_law_pairs import ListedPairs, ScannedPairs
from metricshuffle.amplification.input_classes import input_classes_of
from metricshuffle.amplification.pair_cover import full_law_pairs
from metricshuffle.amplification.random_task import random_task
from metricshuffle.amplification.real_valued_pairs import real_pairs
from metricshuffle.randomizers import (
    BoundedGeometric,
    Channel,
    DiscreteGaussian,
    Duchi,
    KaryRandomizedResponse,
    LaplaceOnInterval,
    Randomizer,
    Rappor,
    WitchHat,
)


@check_all("name", LARGE)
@check_all(("users", "delta"), [(10**4, 1e-10), (10**6, 1e-6)])
def test_upper_and_lower_end_are_within_a_percent(name: str, users: int, delta: float) -> None:
    band = amplify(LARGE[name], users).epsilon(delta)
    assert 0.0 < band.lower <= band.upper <= 1.01 * band.lower
    if name == "2-RR":
        assert band.bound == "two-report"
        assert band.upper <= band.lower * (1.0 + 1e-6)
        assert band.attained is not None


def candidates(
    randomizer: Randomizer, users: int, delta: float, distance: float
) -> dict[str, float]:
    """epsilon by each bound on its own, grid points only."""
    widest = randomizer.diameter
    alone = {
        name: BestBoundProfile(randomizer, users, widest, name).epsilon(delta, distance)
        for name in ("blanket", "clones")
    }
    pairs = full_law_pairs(randomizer, distance)
    assert pairs is not None
    return {**alone, "beyond-blanket": pairs.epsilon(users, delta, 1e-6)[0]}


@pytest.mark.parametrize(
    ("randomizer", "users", "delta"),
    [
        (BoundedGeometric(8, 0.5), 10**4, 1e-6),
        pytest.param(BoundedGeometric(6, 1.5), 40, 1e-3, marks=pytest.mark.slow),
        (KaryRandomizedResponse(5, 3.0), 10**4, 1e-6),
        (KaryRandomizedResponse(4, 1.0), 3, 1e-2),
        (Rappor(6, 2.0), 300, 1e-5),
        (WitchHat(1.0, 2.0, 3.0, 4), 10**5, 1e-6),
    ],
)
def test_the_smallest_wins_and_is_named(randomizer: Randomizer, users: int, delta: float) -> None:
    answer = amplify(randomizer, users)
    for distance in {
        answer.distance,
        0.5 * answer.distance if answer.distance > 1.0 else answer.distance,
    }:
        found = answer.epsilon(delta, distance)
        alone = candidates(randomizer, users, delta, distance)
        smallest = min(alone, key=lambda name: alone[name])
        assert found.upper <= min(alone.values()) * (1.0 + 2e-6)
        if found.amplified:
            assert alone[found.bound] <= alone[smallest] * (1.0 + 2e-6)
        # the other way round says the same
        assert answer.delta(found.upper * (1.0 + 1e-9), distance).upper <= delta * (1.0 + 1e-9)
        assert answer.delta(found.upper * (1.0 - 1e-4), distance).upper > delta


@pytest.mark.thorough
@pytest.mark.parametrize("users", [10**3, 10**6, 10**9])
def test_what_cannot_win_is_looked_at_once(users: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The k-ary blanket is as tight as a data set: one evaluation beyond it, none of clones."""
    looks = {"beyond": 0, "clones": 0, "laws": 0}

    def counted(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def called(*arguments: Any, **options: Any) -> Any:
            looks[name] += 1
            return function(*arguments, **options)

        return called

    monkeypatch.setattr(
        beyond_bound._Evaluation, "delta", counted("beyond", beyond_bound._Evaluation.delta)
    )
    monkeypatch.setattr(best_bound, "clones_delta", counted("clones", clones_delta))
    monkeypatch.setattr(
        blanket.BlanketLaw, "__post_init__", counted("laws", blanket.BlanketLaw.__post_init__)
    )
    source = KaryRandomizedResponse(10, 1.0)
    delta = 0.01 / users
    band = amplify(source, users).epsilon(delta)
    assert band.bound == "blanket"
    assert looks == {"beyond": 1, "clones": 0, "laws": 3}
    law = input_classes_of(source, 0, 1)
    assert law is not None
    assert beyond_epsilon(law, users, delta) > band.upper
    assert clones.epsilon_upper(clones.ClonePair(1.0, 1.0, 1.0), users, delta) > band.upper


def test_half_a_step_of_a_real_line() -> None:
    """0.01005 was printed where the clones gave 0.00594 and sampled pairs 0.0048."""
    line = LaplaceOnInterval(0.0, 10.0, 0.3, 64)
    answer = amplify(line, 5000)
    band = answer.epsilon(1e-8, 0.5 * line.step)
    assert 0.0048 < band.lower <= band.upper < 0.00484
    assert band.upper <= clones.epsilon_upper(
        clones.ClonePair(0.15 * line.step, 3.0, 3.0), 5000, 1e-8
    )
    steps = [
        answer.epsilon(1e-8, part * line.step).upper for part in (0.5, 0.75, 1.0, 1.25, 1.5, 2.0)
    ]
    assert steps == sorted(steps)
    assert steps[2] == pytest.approx(0.01003, abs=1e-5)


def test_one_question_has_one_route() -> None:
    """0.1994 and 0.2272 by two routes that were both called blanket."""
    band = amplify(BoundedGeometric(8, 0.5), 10**4).epsilon(1e-6, 3.0)
    assert band.upper == pytest.approx(0.19780, abs=2e-5)
    assert band.bound == "beyond-blanket"
    assert band.lower > 0.1976


def rational(rows: list[list[Fraction]]) -> list[list[int]]:
    total = math.lcm(*(value.denominator for row in rows for value in row))
    return [[int(value * total) for value in row] for row in rows]


@check_all("line", [LaplaceOnInterval(0.0, 3.0, 0.8, 3), WitchHat(1.0, 1.0, 1.5, 1)])
def test_real_numbers_between_grid_points_in_fractions(line: LaplaceOnInterval | WitchHat) -> None:
    grid = [[Fraction(round(value * 2000), 2000) for value in row] for row in line.rows().tolist()]
    grid = [[*row[:-1], 1 - sum(row[:-1], Fraction(0))] for row in grid]
    source = random.Random(2)
    last = line.inputs - 1

    def law(place: Fraction) -> list[Fraction]:
        below = min(int(place), last - 1)
        share = place - below
        return [
            (1 - share) * low + share * high
            for low, high in zip(grid[below], grid[below + 1], strict=True)
        ]

    users = 3
    growth = Fraction(11, 10)
    steps = Fraction(7, 5)
    held, pairs = real_pairs(line, float(steps) * line.step)
    whole = [law(Fraction(i)) for i in range(last + 1)]
    between = [law(i + part) for part in (steps - 1, 2 - steps) for i in range(last)]
    exact = [*whole, *between]
    assert len(exact) == len(held)
    weights = rational(exact)
    worst = max(
        shuffled_delta(weights[a], weights[b], [weights[x] for x in others], growth)
        for a, b in pairs
        for others in itertools.combinations_with_replacement(range(last + 1), users - 1)
    )
    for _ in range(60):  # any two real numbers up to the distance, the others anywhere
        one = Fraction(source.randint(0, 40 * last), 40)
        other = max(
            Fraction(0), min(Fraction(last), one + Fraction(source.randint(-40, 40), 40) * steps)
        )
        rest = [Fraction(source.randint(0, 40 * last), 40) for _ in range(users - 1)]
        (a, b), others = (law(one), law(other)), [law(place) for place in rest]
        numbers = rational([a, b, *others])
        assert shuffled_delta(numbers[0], numbers[1], numbers[2:], growth) <= worst


def test_pairs_of_real_numbers() -> None:
    line = LaplaceOnInterval(0.0, 1.0, 2.0, 4)
    held, pairs = real_pairs(line, 0.5)
    assert len(held) == 5
    assert set(pairs) == {(a, b) for a, b in itertools.permutations(range(5), 2) if abs(a - b) <= 2}
    held, pairs = real_pairs(line, 0.375)  # a step and a half
    np.testing.assert_allclose(held[5], 0.5 * held[0] + 0.5 * held[1])
    places = [*range(5), *(i + 0.5 for i in range(4)), *(i + 0.5 for i in range(4))]
    assert {round(abs(places[a] - places[b]), 9) for a, b in pairs} == {1.0, 1.5}
    assert sum(max(pair) >= 5 for pair in pairs) == 2 * (3 + 3)
    assert real_pairs(line, 3 * 0.1 / 1.2)[0].shape == (5, 5)  # a rounded 0.25 is one step


@check_all("randomizer", COUNTED)
def test_closed_forms_are_what_the_matrix_says(randomizer: Randomizer) -> None:
    for a, b in randomizer.pairs():
        counted = input_classes_of(randomizer, a, b)
        listed = InputClassLaws.from_rows(randomizer.rows(), a, b)
        assert counted is not None
        assert counted.blanket == pytest.approx(listed.blanket, rel=1e-14)
        for users, epsilon in ((20, 0.3), (1000, 0.05), (10**5, 0.01)):
            assert beyond_delta(counted, users, epsilon) == pytest.approx(
                beyond_delta(listed, users, epsilon), rel=1e-9, abs=1e-12
            )


def test_many_pairs_are_settled_quickly_and_rightly() -> None:
    source = random.Random(21)
    for inputs, outputs in ((9, 5), (12, 4)):
        weights = np.array(
            [[source.randint(2, 9) for _ in range(outputs)] for _ in range(inputs)],
            dtype=np.float64,
        )
        rows = weights / weights.sum(axis=1, keepdims=True)
        pairs = list(itertools.permutations(range(inputs), 2))
        scanned = ScannedPairs(PairScreen(rows), pairs)
        listed = ListedPairs(
            [
                InputClassLaws.from_rows(rows, a, b)
                for a, b in itertools.combinations(range(inputs), 2)
            ]
        )
        for users, delta in ((200, 1e-3), (10**5, 1e-6)):
            found, hidden = scanned.epsilon(users, delta, 1e-6)
            assert hidden
            assert found == pytest.approx(listed.epsilon(users, delta, 1e-6)[0], rel=5e-5)
            assert scanned.delta(users, found)[0] <= delta * (1.0 + 1e-9)
            crowd = scanned.crowd
            first = scanned._first(1.0)
            line = integration_line(first, users, found)
            assert line is not None
            left = crowd.open_pairs(scanned.pairs, users, found, delta, line[0])
            assert len(left) < len(pairs)
            settled = {tuple(pair) for pair in scanned.pairs.tolist()} - {
                tuple(pair) for pair in left.tolist()
            }
            for a, b in settled:
                assert beyond_delta(crowd.law(a, b), users, found, directions="forward") <= delta


def test_a_mirrored_channel_is_looked_at_once() -> None:
    rows = BoundedGeometric(10, 0.2).rows()
    rows = 0.5 * (rows + rows[::-1, ::-1])
    pairs = list(itertools.permutations(range(11), 2))
    half, whole = (ScannedPairs(PairScreen(rows), pairs, alike) for alike in (symmetries(rows), ()))
    assert len(half.pairs) == len(whole.pairs) // 2
    assert half.epsilon(10**4, 1e-6, 1e-6)[0] == pytest.approx(
        whole.epsilon(10**4, 1e-6, 1e-6)[0], rel=1e-5
    )


def check_against_every_data_set(
    weights: list[list[int]], users: int, growth: Fraction, distances: np.ndarray | None
) -> int:
    total = sum(weights[0])
    answer: Amplification = amplify(Channel(np.array(weights) / total, distances=distances), users)
    looked = 0
    for distance in {answer.distance} | ({1.0} if distances is not None else set()):
        pairs = [
            (a, b)
            for a, b in itertools.permutations(range(len(weights)), 2)
            if distances is None or distances[a, b] <= distance
        ]
        sets = [every_data_set(weights, a, b, users, growth) for a, b in pairs]
        truth = float(max(max(one.values()) for one in sets))
        band = answer.delta(math.log(growth), distance)
        assert band.lower <= truth * (1.0 + 1e-10) + 1e-13, (weights, users, growth)
        assert truth <= band.upper * (1.0 + 1e-11) + 1e-13, (
            weights,
            users,
            growth,
        )  # channels are rounded to 2^-63
        looked += sum(len(one) for one in sets)
    return looked


def random_weights(source: random.Random, *, zeros: bool) -> list[list[int]]:
    inputs = source.randint(2, 4)
    outputs = source.randint(2, 4)
    if zeros:
        total = source.choice((6, 12, 24))
        cuts = [sorted(source.randint(0, total) for _ in range(outputs - 1)) for _ in range(inputs)]
        return [
            [high - low for low, high in zip([0, *cut], [*cut, total], strict=True)] for cut in cuts
        ]
    rows = [[source.randint(3, 6) for _ in range(outputs - 1)] for _ in range(inputs)]
    return [[*row, 7 * outputs - sum(row)] for row in rows]


def attacked(seed: int, turns: int) -> int:
    source = random.Random(seed)
    looked = 0
    for turn in range(turns):
        weights = random_weights(source, zeros=turn % 3 == 0)
        if len({tuple(row) for row in weights}) < 2:
            continue
        distances = (
            np.abs(np.subtract.outer(np.arange(len(weights)), np.arange(len(weights)))).astype(
                np.float64
            )
            if turn % 4 == 0
            else None
        )
        growth = 1 + Fraction(source.randint(0, 20), source.choice((10, 40)))
        looked += check_against_every_data_set(
            weights, source.randint(1, 5 if len(weights) < 4 else 3), growth, distances
        )
    return looked


@pytest.mark.thorough
def test_the_truth_lies_in_the_band_of_the_best() -> None:
    assert attacked(31, 120) > 3_000


@pytest.mark.slow
def test_the_truth_lies_in_the_band_of_the_best_many_times() -> None:
    assert attacked(4321, 4_000) > 100_000


@pytest.mark.thorough
def test_parallel_tasks_are_the_channel_they_are() -> None:
    first = KaryRandomizedResponse(3, 1.0)
    second = KaryRandomizedResponse(2, 2.0)
    mixed = random_task([(0.25, first), (0.75, second)])
    rows = [
        np.concatenate([0.25 * first.law(one), 0.75 * second.law(two)])
        for one, two in itertools.product(range(3), range(2))
    ]
    for users, delta in ((60, 1e-3), (10**5, 1e-6)):
        found = amplify(mixed, users).epsilon(delta)
        channel = amplify(Channel(np.array(rows)), users).epsilon(delta)
        assert found.upper == pytest.approx(channel.upper, rel=1e-4)
    assert found.bound == "beyond-blanket"
    many = random_task([(0.5, KaryRandomizedResponse(100, 1.0)), (0.5, second)])
    assert many.others() is None  # too many reports to list


def test_two_reports_at_a_distance() -> None:
    rows = [[0.8, 0.2], [0.7, 0.3], [0.5, 0.5], [0.35, 0.65]]
    distances = np.abs(np.subtract.outer(np.arange(4), np.arange(4))).astype(np.float64)
    answer = amplify(Channel(rows, distances=distances), 1000)
    near = answer.epsilon(1e-5, 1.0)
    far = answer.epsilon(1e-5)
    assert near.upper < far.upper
    for band, pairs in ((near, [(0, 1), (1, 2), (2, 3)]), (far, [(0, 3)])):
        laws = [two_reports.BinaryReports.from_rows(np.array(rows), a, b) for a, b in pairs]
        exact = max(two_reports.epsilon_bracket(law, 1000, 1e-5).upper for law in laws)
        assert band.upper == pytest.approx(exact, rel=2e-6)
        assert band.bound == "two-report"
        assert band.upper <= band.lower * (1.0 + 1e-6)
    three = amplify(BoundedGeometric(1, 1.0), 10**5, rounds=3).epsilon(1e-6)
    assert three.bound == "composed"
    assert three.lower <= three.upper


@pytest.mark.thorough
def test_what_is_too_large_falls_back() -> None:
    line = LaplaceOnInterval(0.0, 1.0, 1.0, 600)
    band = amplify(line, 10**6).epsilon(1e-6)
    assert band.bound == "blanket"  # one law for each displacement
    assert band.upper < clones.epsilon_upper(clones.ClonePair(1.0, 1.0, 1.0), 10**6, 1e-6)
    assert full_law_pairs(WitchHat(1.0, 2.0, 3.0, 400), 1.0) is None
    assert input_classes_of(Duchi(40, 1.0), 0, 1) is None
    wide = beyond_epsilon(
        InputClassLaws.from_rows(LaplaceOnInterval(0.0, 1.0, 1.0, 60).rows(), 0, 60), 10**6, 1e-6
    )
    assert wide < band.upper
    assert (
        blanket.epsilon_upper(
            LaplaceOnInterval(0.0, 1.0, 1.0, 60).blanket(0, 60), 10**6, 1e-6, relative=1e-4
        )
        > 1.2 * wide
    )


def test_a_search_that_began_too_narrow_begins_again() -> None:
    """The lower bound survives a smoothing of another epsilon that needs too many nodes."""
    band = amplify(DiscreteGaussian(4, 1.0), 10**6).epsilon(1e-3)
    assert 5.9694 < band.lower < band.upper < 6.0537
