"""Blanket epsilon: golden values, cases where a NaN once meant "private", and the profile."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.tables import check_all

from metricshuffle.accounting.shuffling import _blanket_kernels as kernels
from metricshuffle.accounting.shuffling import _contour_kernels as contours
from metricshuffle.accounting.shuffling.blanket_bound import (
    BlanketLaw,
    BlanketProfile,
    DeltaBracket,
    Law,
    delta_bracket,
    delta_lower,
    delta_upper,
    epsilon_lower,
    epsilon_upper,
)
from metricshuffle.accounting.shuffling.root_search import RootBracket
from metricshuffle.errors import InputError


def metric(distance: float, reach: float, reach_other: float) -> BlanketLaw:
    half = 1.0 / (1.0 + math.exp(-distance))
    return BlanketLaw.clone_pair(distance, math.exp(-reach) * half, math.exp(-reach_other) * half)


def k_ary(k: int, epsilon: float, others: Sequence[int] | None = None) -> BlanketLaw:
    p = math.exp(epsilon)
    return BlanketLaw.from_rows(
        (np.ones((k, k)) + np.eye(k) * (p - 1.0)) / (p + k - 1.0), 0, 1, others
    )


@check_all(
    ("distance", "reach", "reach_other", "users", "delta", "golden"),
    [
        (1.0, 1.0, 1.0, 100, 1e-4, 0.36111134465),
        (1.0, 1.0, 1.0, 1000, 1e-6, 0.148670616354),
        (1.0, 3.0, 2.5, 1000, 1e-6, 0.421853932654),
        (1.0, 1.0, 1.0, 10_000, 1e-8, 0.0564473289819),
        (0.1, 1.0, 1.0, 10_000, 1e-6, 0.00459842028599),
    ],
)
def test_golden_epsilons(
    distance: float, reach: float, reach_other: float, users: int, delta: float, golden: float
) -> None:
    law = metric(distance, reach, reach_other)
    upper = epsilon_upper(law, users, delta)
    lower = epsilon_lower(law, users, delta)
    assert golden * (1.0 - 5e-12) <= upper <= golden * (1.0 + 1e-7)
    assert golden * (1.0 - 1e-7) <= lower <= golden * (1.0 + 5e-12)


def truly_at_least(law: Law, users: int, epsilon: float, delta: float) -> bool:
    return delta_lower(law, users, epsilon) > delta


def test_a_nan_once_meant_private() -> None:
    """All four were reported as (nearly) 0; hardly anything is hidden among so few."""
    strong = BlanketLaw.clone_pair(12.0, 0.5 * math.exp(-12.0), 0.5 * math.exp(-12.0))
    found = epsilon_upper(strong, 2, 1e-6)
    assert 11.999 < found <= 12.0 * (1.0 + 1e-15)
    assert truly_at_least(strong, 2, 11.999, 1e-6)
    stronger = BlanketLaw.clone_pair(40.0, 0.5 * math.exp(-40.0), 0.5 * math.exp(-40.0))
    found = epsilon_upper(stronger, 10**6, 1e-3)
    assert 39.99 < found <= 40.0 * (1.0 + 1e-15)
    assert truly_at_least(stronger, 10**6, 39.99, 1e-3)
    assert 7.99 < epsilon_upper(k_ary(4, 8.0), 10, 1e-6) <= 8.0 * (1.0 + 1e-15)
    assert epsilon_lower(k_ary(4, 8.0, [2]), 10, 1e-6) > 7.9


@check_all("local", [5.0, 12.0, 40.0, 300.0])
@check_all("users", [1, 2, 10, 10**4, 10**9])
def test_strong_local_parameters_never_look_private(local: float, users: int) -> None:
    law = metric(local, local, local)
    for delta in (1e-3, 1e-9):
        upper = epsilon_upper(law, users, delta)
        lower = epsilon_lower(law, users, delta)
        assert lower <= upper <= local * (1.0 + 1e-12)
        assert delta_upper(law, users, upper) <= delta
        assert lower > 0.0 or delta_upper(law, users, 0.0) <= delta
        if users * math.exp(-local) < 1e-6:  # hardly ever a clone
            assert lower > local - 1.0


@pytest.mark.parametrize("users", [1, 7, 300, 10**4, 10**5])
@pytest.mark.parametrize("delta", [1e-2, 1e-6, 1e-12])
def test_the_bracket_is_one_part_in_ten_million(users: int, delta: float) -> None:
    law = k_ary(5, 1.0)
    upper = epsilon_upper(law, users, delta)
    lower = epsilon_lower(law, users, delta)
    assert lower <= upper <= lower * (1.0 + 1e-7) + 1e-12
    assert delta_upper(law, users, upper) <= delta


@check_all("users", [10**6, 10**9, 10**12])
def test_upper_meets_the_data_set_of_a_third_value(users: int) -> None:
    """10-RR: what the bound says and what a single data set certainly gives away agree."""
    delta = 0.01 / users
    upper = epsilon_upper(k_ary(10, 1.0), users, delta)
    lower = epsilon_lower(k_ary(10, 1.0, [2]), users, delta)
    assert lower <= upper <= lower * 1.00001


def test_tiny_deltas_and_very_many_users_stay_finite() -> None:
    for users in (10**6, 10**9, 10**12):
        law = metric(1.0, 3.0, 2.0)
        upper = epsilon_upper(law, users, 1e-30)
        lower = epsilon_lower(law, users, 1e-30)
        assert 0.0 < lower <= upper <= lower * (1.0 + 1e-6) < 1.0


def test_the_ends_of_the_range() -> None:
    law = metric(1.0, 1.0, 1.0)
    assert epsilon_upper(law, 1000, 0.9) == 0.0
    assert epsilon_lower(law, 1000, 0.9) == 0.0
    assert epsilon_upper(law, 1000, 0.0) == law.pure
    assert 0.99 < epsilon_lower(law, 2, 0.0) <= 1.0
    assert epsilon_upper(metric(0.0, 1.0, 1.0), 10, 1e-9) == 0.0
    nothing_in_common = BlanketLaw.from_rows([[1.0, 0.0], [0.0, 1.0]], 0, 1)
    assert epsilon_upper(nothing_in_common, 10**6, 1e-3) == math.inf
    with pytest.raises(InputError, match="delta"):
        epsilon_upper(law, 10, 1.0)
    with pytest.raises(InputError, match="epsilon"):
        delta_upper(law, 10, math.nan)


def test_unbounded_ratios_still_have_an_epsilon() -> None:
    law = BlanketLaw.clone_pair(math.inf, 0.1, 0.1)
    upper = epsilon_upper(law, 1000, 1e-3)
    lower = epsilon_lower(law, 1000, 1e-3)
    assert 0.3 < lower <= upper < 0.304
    assert epsilon_upper(law, 10, 1e-3) == math.inf  # nobody sends a clone with probability 0.13
    assert delta_upper(law, 1000, 1e6) <= delta_upper(law, 1000, 600.0)


@pytest.mark.parametrize("broken", [(math.nan, math.nan, 1), (0.0, math.inf, 1)])
def test_an_injected_nan_gives_what_is_true_without_a_shuffler(
    monkeypatch: pytest.MonkeyPatch, broken: tuple[float, float, int]
) -> None:
    law = metric(1.0, 1.0, 1.0)
    delta = 1e-6
    monkeypatch.setattr(contours, "contour", lambda *arguments: broken)
    monkeypatch.setattr(kernels, "enumerate_counts", lambda *arguments: broken[:2])
    local = math.log(math.e - delta * (math.e + 1.0))  # (e - e^epsilon)/(e + 1) = delta
    assert local <= epsilon_upper(law, 1000, delta) <= 1.0 * (1.0 + 1e-14)
    assert epsilon_lower(law, 10**6, delta) == 0.0


def test_two_directions_are_needed_unless_the_law_is_symmetric() -> None:
    law = BlanketLaw.clone_pair(math.log(5.0), 0.05, 0.12)
    one, other = (epsilon_upper(way, 50, 1e-3, directions="forward") for way in (law, law.reversed))
    assert one != pytest.approx(other, rel=1e-3)
    assert (
        epsilon_upper(law, 50, 1e-3)
        == epsilon_upper(law.reversed, 50, 1e-3)
        == pytest.approx(max(one, other), rel=1e-7)
    )


def test_a_further_evaluator_wins_where_it_is_tighter_and_says_so() -> None:
    law = metric(1.0, 1.0, 1.0)

    def oracle(law: Law, users: int, epsilon: float) -> DeltaBracket | None:
        return (
            DeltaBracket(0.000441095236002, 0.000441095236004, "window") if epsilon == 0.3 else None
        )

    assert delta_bracket(law, 100, 0.3, evaluators=[oracle]).evaluator == "window"
    assert delta_bracket(law, 100, 0.2, evaluators=[oracle]).evaluator == "enumeration"
    calls = []

    def useless(law: Law, users: int, epsilon: float) -> DeltaBracket:
        calls.append(epsilon)
        return DeltaBracket(math.nan, math.nan, "broken")

    assert epsilon_upper(law, 100, 1e-4, evaluators=[useless]) == epsilon_upper(law, 100, 1e-4)
    assert calls


@settings(max_examples=15, deadline=None)
@given(
    st.floats(0.05, 4.0),
    st.floats(0.0, 2.0),
    st.floats(0.0, 2.0),
    st.integers(1, 10**8),
    st.sampled_from([1e-3, 1e-6, 1e-10]),
    st.integers(2, 9),
)
def test_epsilon_moves_the_right_way(
    distance: float, beyond: float, beyond_other: float, users: int, delta: float, factor: int
) -> None:
    law = metric(distance, distance + beyond, distance + beyond_other)
    here, below = (
        function(law, users, delta, relative=1e-5) for function in (epsilon_upper, epsilon_lower)
    )
    assert 0.0 <= below <= here <= distance * (1.0 + 1e-14)
    assert epsilon_lower(law, users * factor, delta, relative=1e-5) <= here
    assert epsilon_lower(law, users, delta * factor, relative=1e-5) <= here
    farther = metric(distance * 1.1, distance * 1.1 + beyond, distance * 1.1 + beyond_other)
    assert below <= epsilon_upper(farther, users, delta, relative=1e-5)
    assert epsilon_upper(law.reversed, users, delta, relative=1e-5) == pytest.approx(
        here, rel=1e-5, abs=1e-12
    )


def test_the_profile_takes_the_worst_law() -> None:
    def laws(distance: float) -> list[Law]:
        return [metric(distance, 2.0, reach) for reach in (1.0 + distance, 2.0)]

    profile = BlanketProfile(laws, 10_000)
    assert profile.delta(0.02, 1.0) == max(delta_upper(law, 10_000, 0.02) for law in laws(1.0))
    assert profile.epsilon(1e-6, 1.0) == max(epsilon_upper(law, 10_000, 1e-6) for law in laws(1.0))
    assert profile.delta(profile.epsilon(1e-6, 1.0), 1.0) <= 1e-6
    assert profile.pure(0.5) == pytest.approx(0.5, rel=1e-13)
    assert profile.epsilon(0.0, 0.5) == profile.pure(0.5)
    assert profile.delta(0.0, 0.0) == profile.epsilon(1e-9, 0.0) == profile.pure(0.0) == 0.0
    assert profile.covers(profile.epsilon(1e-6, 1.0), 1e-6, 1.0, "flat")
    assert profile.bound == "blanket"
    with pytest.raises(InputError, match="users"):
        BlanketProfile(laws, 0)


@check_all("root", [1e-8, 0.3, 0.999999, 40.0])
def test_the_search_needs_no_monotone_function_to_be_right(root: float) -> None:
    """A jagged function: the returned value passed, next to one that did not."""
    seen: dict[float, float] = {}

    def jagged(x: float) -> float:
        seen[x] = 10.0 * (root * root - x * x) / (root * root) + 1e-3 * math.sin(1e9 * x)
        return seen[x]

    found = RootBracket(60.0 if root > 1.0 else 1.0).narrowed(jagged, 0.5 * root, 20.0, 1e-8)
    assert seen[found.high] <= 0.0 < seen[found.low]
    assert found.high - found.low <= 1e-8 * found.high
    assert found.high == pytest.approx(root, rel=1e-3)
    assert len(seen) < 60
    assert RootBracket(1.0).narrowed(lambda x: math.nan, 0.5, 20.0, 1e-8).high == 1.0


@pytest.mark.parametrize(("users", "most"), [(10**3, 2.2), (10**4, 2.2), (10**6, 4.0)])
@pytest.mark.parametrize("find", [epsilon_upper, epsilon_lower])
def test_search_costs_a_few_close_looks(
    find: Callable[..., float], users: int, most: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Coarse evaluations locate the value and one precise one confirms it, at similar cost."""
    nodes: list[int] = []
    contour = contours.contour

    def counted(*arguments: Any) -> Any:
        found = contour(*arguments)
        nodes.append(found[2])
        return found

    monkeypatch.setattr(contours, "contour", counted)
    law = k_ary(10, 1.0)
    epsilon = find(law, users, 0.01 / users)
    searched = sum(nodes)
    nodes.clear()
    delta_bracket(law, users, epsilon, relative=1e-7)
    assert searched <= most * sum(nodes)
