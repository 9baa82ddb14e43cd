"""Numerics of the clone pair: brackets, 60 digits, and failures that never look private."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from scipy import stats
from tests.oracles.clone_pair_exact import contour_delta, given_clones, pair_delta
from tests.tables import check_all

from metricshuffle.accounting.shuffling import _clone_counts, _clone_kernels
from metricshuffle.accounting.shuffling.clone_bound import (
    ClonePair,
    delta_lower,
    delta_upper,
    epsilon_lower,
    epsilon_upper,
    find_crossing,
)

SEED = 20


def random_pair(rng: np.random.Generator) -> tuple[ClonePair, float]:
    local = float(
        rng.choice(
            [rng.uniform(0, 1), rng.uniform(1, 5), 10 ** rng.uniform(-9, 0), rng.uniform(5, 60)]
        )
    )
    one = local + float(rng.choice([0, rng.uniform(0, 0.3), rng.uniform(0, 5), rng.uniform(0, 30)]))
    other = max(local, one + local * float(rng.choice([0, 1, -1, rng.uniform(-1, 1)])))
    epsilon = float(
        rng.choice(
            [
                0,
                local * rng.random(),
                local * 10 ** rng.uniform(-6, 0),
                local * (1 - 10 ** rng.uniform(-12, 0)),
            ]
        )
    )
    return ClonePair(local, one, other), epsilon


def check_against_exact(seed: int, rounds: int, sizes: tuple[int, ...]) -> None:
    rng = np.random.default_rng(seed)
    for _ in range(rounds):
        (pair, epsilon), users = random_pair(rng), int(rng.choice(sizes))
        exact = pair_delta(pair.log_p, pair.log_q0, pair.log_q1, users, epsilon)
        if exact > 1e-280:
            assert exact <= delta_upper(pair, users, epsilon) <= exact * (1 + 1e-9), (
                pair,
                users,
                epsilon,
            )
            assert exact * (1 - 1e-9) <= delta_lower(pair, users, epsilon) <= exact, (
                pair,
                users,
                epsilon,
            )


def test_the_exact_divergence_of_the_pair_lies_in_the_bracket() -> None:
    check_against_exact(SEED, 60, (1, 2, 3, 5, 8, 13))


@pytest.mark.slow
def test_the_exact_divergence_of_many_pairs_lies_in_the_bracket() -> None:
    check_against_exact(SEED + 1, 1500, (1, 2, 3, 4, 5, 8, 13, 25, 40))


def naive(pair: ClonePair, users: int, epsilon: float) -> float:
    """The plain sum over all clone counts, by scipy; one direction (the pair is symmetric)."""
    p = math.exp(pair.log_p)
    e = math.exp(epsilon)
    c = np.arange(users)
    k = np.floor((p * e - 1) * (c + 1) / ((p - 1) * (e + 1))) + 1
    given_c = (p - e) / (p + 1) * stats.binom.pmf(k - 1, c, 0.5) - (e - 1) * stats.binom.sf(
        k - 1, c, 0.5
    )
    return float(np.sum(stats.binom.pmf(c, users - 1, sum(pair.clone_masses)) * given_c))


@check_all(("users", "epsilon"), [(1000, 0.1), (10_000, 0.05)])
def test_the_naive_sum_lies_in_the_bracket(users: int, epsilon: float) -> None:
    pair = ClonePair(1, 1, 1)
    value = naive(pair, users, epsilon)
    assert delta_lower(pair, users, epsilon) <= value * (1 + 1e-9)
    assert value * (1 - 1e-9) <= delta_upper(pair, users, epsilon) <= value * (1 + 1e-8)


@pytest.mark.parametrize(
    ("pair", "users", "delta"),
    [
        (ClonePair(1, 1, 1), 10**12, 1e-14),
        (ClonePair(1, 3, 2.5), 10**12, 1e-14),
        (ClonePair(0.1, 1, 1), 10**14, 1e-30),
    ],
)
def test_a_million_million_users_against_another_method(
    pair: ClonePair, users: int, delta: float
) -> None:
    epsilon = epsilon_upper(pair, users, delta)
    orders = {(pair.log_q0, pair.log_q1), (pair.log_q1, pair.log_q0)}
    exact = max(contour_delta(pair.log_p, *order, users, epsilon) for order in orders)
    assert exact * (1 - 1e-4) <= delta_lower(pair, users, epsilon) <= exact * (1 + 1e-9)
    assert exact * (1 - 1e-9) <= delta_upper(pair, users, epsilon) <= exact * (1 + 1e-4)


@pytest.mark.parametrize("count", [10**2, 10**5, 10**9, 10**12, 10**14])
def test_one_clone_count_against_sixty_digits(count: int) -> None:
    rng = np.random.default_rng(count % 97)
    for score in (1.5, 6.0, 20.0):
        local = float(rng.uniform(0.1, 3.0))
        pair = ClonePair(local, local + float(rng.uniform(0, 2)), local + float(rng.uniform(0, 2)))
        epsilon = min(2 * score * math.tanh(local / 2) / math.sqrt(count), 0.9 * local)
        exact = given_clones(pair.log_p, pair.log_q0, pair.log_q1, count, epsilon)
        least, most = _clone_kernels.one_count(
            float(count), *_clone_counts._directions(pair, epsilon)[0]
        )
        assert exact * (1 - 1e-10) <= least <= exact <= most <= exact * (1 + 1e-10)


@check_all("users", [10, 3000, 10**5, 10**6, 10**7, 10**8, 10**10, 10**13])
@check_all("pair", [ClonePair(1, 1, 1), ClonePair(0.3, 4, 3.8), ClonePair(5, 6, 9)])
def test_the_bracket_of_epsilon_is_narrow(pair: ClonePair, users: int) -> None:
    low = epsilon_lower(pair, users, 0.01 / users)
    high = epsilon_upper(pair, users, 0.01 / users)
    assert low <= high <= low * (1 + (1e-7 if users <= 10**5 else 1e-4))


def test_blocks_agree_with_the_full_sum() -> None:
    pair = ClonePair(0.7, 1.5, 1.1)
    for users in (10**5, 10**6):
        full = _clone_counts.CloneCounts.absolute(pair, users, 1e-8, most=10**6)
        assert full.ends is None
        epsilon = epsilon_upper(pair, users, 1e-8)
        for share in (1e-3, 5e-3):
            most = _clone_counts.CloneCounts.absolute(pair, users, 1e-8, share=share, most=10)
            least = _clone_counts.CloneCounts.absolute(
                pair, users, 1e-8, share=share, most=10, upwards=False
            )
            assert most.ends is not None
            assert least.delta(epsilon) <= full.delta(epsilon) * (1 + 1e-9)
            assert (
                full.delta(epsilon) * (1 - 1e-9)
                <= most.delta(epsilon)
                <= full.delta(epsilon) * (1 + 40 * share)
            )
    wide = _clone_kernels.wide_blocks(1e6, 0.3, 0.7, 297_000.0, 302_500.0, 1e-4)
    summed = _clone_kernels.summed_blocks(1e6, 0.3, 0.7, 297_000.0, 302_500.0, 6000.0)
    assert (
        wide[1].sum()
        <= summed[2].sum()
        <= summed[1].sum() * (1 + 1e-9)
        <= wide[2].sum() * (1 + 2e-9)
    )
    assert wide[2].sum() <= wide[1].sum() * (1 + 1e-6)


@pytest.mark.parametrize("broken", [math.nan, math.inf, -math.inf, -1e-3])
def test_a_number_that_is_none_is_never_small(
    monkeypatch: pytest.MonkeyPatch, broken: float
) -> None:
    assert find_crossing(lambda _: broken, 1e-6, 3.0, 0.5)[1] == 3.0
    monkeypatch.setattr(_clone_counts.CloneCounts, "delta", lambda *_: broken)
    assert epsilon_upper(ClonePair(1, 2, 2), 1000, 1e-6) == 1.0
    assert epsilon_upper(ClonePair(800, 900, 900), 1000, 1e-6) == 800.0
    assert delta_upper(ClonePair(1, 2, 2), 1000, 0.5) == 1.0
    assert delta_lower(ClonePair(1, 2, 2), 1000, 0.5) == 0.0


def broken_kernels(monkeypatch: pytest.MonkeyPatch, where: str, value: float) -> None:
    """The interpreted loops with one of their ingredients replaced."""
    for name in ("every_count", "every_block", "one_count", "_anchor", "positive"):
        monkeypatch.setattr(_clone_kernels, name, getattr(_clone_kernels, name).py_func)
    monkeypatch.setattr(_clone_kernels, where, lambda *_: (value, value))


def test_a_broken_kernel_never_helps(monkeypatch: pytest.MonkeyPatch) -> None:
    pair = ClonePair(1, 2, 1.8)
    true = epsilon_upper(ClonePair(1, 2, 1.8), 30, 1e-3)
    with monkeypatch.context() as patched:
        broken_kernels(patched, "log_pmf", math.nan)
        assert epsilon_upper(pair, 30, 1e-3) == 1.0
        assert delta_upper(pair, 30, 0.2) == 1.0
    with (
        monkeypatch.context() as patched
    ):  # tails are not needed near epsilon = log_p, where the answer may still be certified
        broken_kernels(patched, "tail_fraction", math.nan)
        assert true < epsilon_upper(pair, 30, 1e-3) <= 1.0
        assert delta_upper(pair, 30, 0.2) == 1.0


def test_compiled_loops_keep_a_nan() -> None:
    assert math.isnan(_clone_kernels.positive(math.nan))
    direction = _clone_counts._directions(ClonePair(1, 2, 2), 0.1)[0]
    for place in range(2):
        wrong = [math.nan if i == place else number for i, number in enumerate(direction)]
        assert math.isnan(_clone_kernels.every_count(29.0, 0.2, 0.8, 0.0, 29.0, *wrong)[1])
        assert math.isnan(
            _clone_kernels.every_block(np.array([0.0, 30.0]), np.array([1.0]), True, *wrong)
        )


@pytest.mark.parametrize("place", range(6))
def test_a_nan_among_the_numbers_of_a_direction_is_kept(
    monkeypatch: pytest.MonkeyPatch, place: int
) -> None:
    usual = _clone_counts._directions

    def spoilt(pair: ClonePair, epsilon: float) -> list[tuple[float, ...]]:
        return [
            (*numbers[:place], math.nan, *numbers[place + 1 :]) for numbers in usual(pair, epsilon)
        ]

    monkeypatch.setattr(_clone_counts, "_directions", spoilt)
    assert delta_upper(ClonePair(1, 2, 2), 1000, 0.1) == 1.0
    assert epsilon_upper(ClonePair(1, 2, 2), 1000, 1e-6) == 1.0


def test_a_nan_in_one_direction_only_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    pair = ClonePair(1, 2, 1.5)
    for bad in (pair.log_q0, pair.log_q1):
        rho = 1 / (1 + math.exp(bad - (pair.log_q0 + pair.log_q1 - bad)))
        monkeypatch.setattr(
            _clone_counts.CloneCounts,
            "_one_way",
            lambda _, *numbers, rho=rho: math.nan if abs(numbers[3] - rho) < 1e-9 else 1e-9,
        )
        assert delta_upper(pair, 1000, 0.1) == 1.0
        assert epsilon_upper(pair, 1000, 1e-6) == 1.0


def test_the_search_needs_few_steps() -> None:
    seen: list[float] = []
    counts = _clone_counts.CloneCounts.absolute(ClonePair(1, 1, 1), 10_000, 1e-6)

    def delta_at(epsilon: float) -> float:
        seen.append(epsilon)
        return counts.delta(epsilon)

    find_crossing(delta_at, 1e-6, 1.0, counts.guess(1e-6))
    assert len(seen) <= 10


def test_distances_whose_squares_underflow_are_searched_too() -> None:
    pair = ClonePair(1e-300, 1.0, 1.0)
    assert epsilon_lower(pair, 2, 1e-301) <= epsilon_upper(pair, 2, 1e-301) <= 1e-300


def test_the_threshold_counts_the_rarer_kind() -> None:
    """(c + 1) odds/(1 + odds) = 100.02 reports of the second kind.

    From the other end, 1e15 + 1 minus that has a float spacing of 1/8.
    """
    c = 1e15
    odds = 1.0002e-13
    rare = (int(c) + 1) * Fraction(odds) / (1 + Fraction(odds))
    assert _clone_kernels._threshold(c, odds) == c + 2.0 - math.ceil(rare)
    for c, odds in ((10.0, 0.3), (10.0, 3.0), (7.0, 1.0), (0.0, 0.5), (5.0, 0.0)):
        low = (int(c) + 1) / (1 + Fraction(odds))
        assert _clone_kernels._threshold(c, odds) == min(math.floor(low) + 1, c + 1)
