"""Certified sigma against the generating function, brute force and the published form."""

from __future__ import annotations

import math
from collections import Counter
from functools import cache
from itertools import permutations, product

import mpmath
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.tables import check_all

from metricshuffle.accounting.sums import split_and_mix
from metricshuffle.accounting.sums.split_and_mix import (
    SplitAndMix,
    messages_needed,
    security_bits,
    view_penalty,
)
from metricshuffle.errors import ConditionError, InputError
from metricshuffle.privacy.profile import PureProfile

DIGITS = 400


@cache
def logarithm(n: int, g: int) -> tuple[list[mpmath.mpf], list[mpmath.mpf]]:
    """Coefficients 0..n of a(x) = sum_k (kg)!/(g!)^(2k) x^k/k! and of log a."""
    with mpmath.workdps(DIGITS):
        a = [
            mpmath.mpf(math.factorial(k * g)) / (math.factorial(g) ** (2 * k) * math.factorial(k))
            for k in range(n + 1)
        ]
        c = [mpmath.mpf(0)] * (n + 1)
        for m in range(1, n + 1):
            c[m] = a[m] - sum((k * c[k] * a[m - k] for k in range(1, m)), mpmath.mpf(0)) / m
        return a, c


def exact_excess(n: int, g: int, q: int) -> mpmath.mpf:
    """E[q^(C-1)] - 1 from [x^n] a(x)^q / [x^n] a(x)."""
    a, c = logarithm(n, g)
    with mpmath.workdps(DIGITS):
        b = [mpmath.mpf(1)] + [mpmath.mpf(0)] * n
        for m in range(1, n + 1):
            b[m] = q * sum((k * c[k] * b[m - k] for k in range(1, m + 1)), mpmath.mpf(0)) / m
        return b[n] / (a[n] * q) - 1


def components(n: int, edges: list[tuple[int, int]]) -> int:
    label = list(range(n))
    for a, b in edges:
        label = [label[b] if x == label[a] else x for x in label]
    return len(set(label))


@cache
def component_counts(n: int, g: int) -> Counter[int]:
    """How many of the (ng)! permutations give each number of components."""
    return Counter(
        components(n, [(j // g, image // g) for j, image in enumerate(s)])
        for s in permutations(range(n * g))
    )


def enumerated_excess(n: int, g: int, q: int) -> float:
    counts = component_counts(n, g)
    weighted: int = sum(weight * (q ** (c - 1) - 1) for c, weight in counts.items())
    return weighted / sum(counts.values())


def views(y: tuple[int, ...], messages: int, q: int) -> Counter[tuple[int, ...]]:
    """The law of the multiset of all messages (as weights), every choice of shares enumerated."""
    users = [
        [(*s, (value - sum(s)) % q) for s in product(range(q), repeat=messages - 1)] for value in y
    ]
    law: Counter[tuple[int, ...]] = Counter({(0,) * q: 1})
    for choices in users:
        # a user contributes a vector of multiplicities; few distinct ones, so convolve those
        own = Counter(tuple(choice.count(value) for value in range(q)) for choice in choices)
        following: Counter[tuple[int, ...]] = Counter()
        for seen, weight in law.items():
            for extra, times in own.items():
                following[tuple(map(int.__add__, seen, extra))] += weight * times
        law = following
    return law


def total_variation(first: Counter[tuple[int, ...]], second: Counter[tuple[int, ...]]) -> float:
    return sum(abs(first[view] - second[view]) for view in first | second) / (
        2 * sum(first.values())
    )


@check_all(("n", "g"), [(2, 1), (2, 2), (2, 3), (3, 1), (3, 2), (4, 1), (4, 2)])
@check_all("q", [2, 3, 6, 1000])
def test_generating_function_counts_components(n: int, g: int, q: int) -> None:
    assert float(exact_excess(n, g, q)) == pytest.approx(enumerated_excess(n, g, q), rel=1e-12)


@check_all(("n", "messages"), [(2, 2), (2, 3), (2, 4), (3, 2), (3, 3), (3, 4)])
@check_all("q", [3, 4, 5, 6, 7])
def test_theorem_holds_for_every_view(n: int, messages: int, q: int) -> None:
    bound = math.sqrt(exact_excess(n, messages - 1, q))
    base = views((0,) * n, messages, q)
    others = [
        views((shift, q - shift, *([0] * (n - 2))), messages, q) for shift in range(1, q // 2 + 1)
    ]
    distances = [total_variation(base, other) for other in others]
    assert max(distances) > 0.01
    assert max(distances) <= bound


@pytest.mark.parametrize("n", [2, 3, 4, 5, 8, 13, 19, 27, 60])
@pytest.mark.parametrize("messages", [3, 4, 6, 9, 20])
def test_certified_and_nearly_exact(n: int, messages: int) -> None:
    for q in (2, 3, 7, 2**10, 2**20, 2**32, 2**64):
        exact = exact_excess(n, messages - 1, q)
        with mpmath.workdps(DIGITS):
            truth = float(mpmath.log(exact, 2))
        bound = split_and_mix._log2_excess(n, messages - 1, q)
        assert bound >= truth - 1e-10
        if n < split_and_mix.MIN_USERS:
            continue
        sigma = security_bits(n, messages, q)
        assert 0.0 <= sigma <= max(0.0, -0.5 * truth)
        # q^(C-1) - 1 is bounded by q^(C-1), which costs half a bit at q = 2; the middle term is
        # crude below ten bits
        if -0.5 * truth > 10.0:
            assert sigma >= -0.5 * truth - 0.5 * math.log2(q / (q - 1)) - 1e-3


def test_growth_step_of_the_proof() -> None:
    for n, g, q in [(2, 2, 5), (7, 2, 1000), (15, 4, 2**32), (30, 3, 2**64)]:
        smaller = exact_excess(n, g, q) + 1
        larger = exact_excess(n + 1, g, q) + 1
        assert larger <= smaller * (1 + mpmath.mpf(q - 1) / math.comb((n + 1) * g, g))
    # two groups start from one, so the step is exact there
    assert float(exact_excess(2, 3, 7)) == pytest.approx(6 / math.comb(6, 3), rel=1e-12)


def test_ratios_of_the_proof() -> None:
    for n, g in [(5, 2), (19, 3), (40, 6)]:
        r = [math.comb(n, k) / math.comb(n * g, k * g) for k in range(n + 1)]
        assert 2.0 ** split_and_mix._log2_first(n, g, 11) == pytest.approx(11 * r[1], rel=1e-12)
        for k in range(1, n // 2):
            assert r[k + 1] < r[k]
            first = math.comb(n - k, 1) / math.comb((n - k) * g, g)
            assert split_and_mix._ratio(n, g, 11, k, k) == pytest.approx(
                r[k + 1] / r[k] + 10 * first / (k + 1), rel=1e-12
            )


@check_all("n", [999, 1000, 1001, 1500])
def test_entropy_bound_of_the_middle_meets_the_integers(n: int) -> None:
    third = -(-n // 3)
    for g in (2, 5):
        truth = math.log2(math.comb(n, third)) - math.log2(math.comb(n * g, third * g))
        others = (
            math.log2(n // 2 - third + 1) + math.log2(3) + split_and_mix._log2_growth(n // 2, g, 3)
        )
        others += math.log2(1.0 + 2.0 ** split_and_mix._log2_growth(n - third, g, 3))
        assert truth - 1e-9 <= split_and_mix._log2_middle(n, g, 3) - others <= 0.9 * truth


def test_growth_in_blocks_is_an_upper_bound() -> None:
    for n, g, q in [(63, 2, 10**6), (2000, 3, 2**40), (5000, 2, 2**20)]:
        exact = math.fsum(math.log2(1 + (q - 1) / math.comb(m * g, g)) for m in range(2, n + 1))
        assert exact * (1 - 1e-12) <= split_and_mix._log2_growth(n, g, q) <= 1.05 * exact


def test_published_example() -> None:
    assert security_bits(10_000, 10, 2**32) == pytest.approx(42.18, abs=0.01)
    assert security_bits(10_000, 12, 2**32) == pytest.approx(56.84, abs=0.01)
    assert messages_needed(10_000, 2**32, 40) == 10
    assert closed_form(10_000, 12, 2**32) >= 40 > closed_form(10_000, 11, 2**32)


def closed_form(n: int, messages: int, q: int) -> float:
    return ((messages - 2) * (math.log2(n) - math.log2(math.e)) - math.log2(q)) / 2


@given(size=st.floats(math.log2(19), 40), messages=st.integers(3, 40), width=st.floats(1, 64))
def test_never_below_the_closed_form(size: float, messages: int, width: float) -> None:
    n = math.ceil(2**size)
    q = math.floor(2**width)
    closed = closed_form(n, messages, q)
    if closed > 0:
        assert security_bits(n, messages, q) >= closed


@given(size=st.floats(math.log2(19), 40), messages=st.integers(3, 30), width=st.floats(1, 64))
def test_more_users_more_messages_smaller_modulus_are_safer(
    size: float, messages: int, width: float
) -> None:
    n = math.ceil(2**size)
    q = math.floor(2**width)
    sigma = security_bits(n, messages, q)
    # neither bound need be monotone to the last digit, only the truth is
    assert security_bits(n + 1 + n // 7, messages, q) >= sigma - 1e-6
    assert security_bits(n, messages + 1, q) >= sigma
    assert security_bits(n, messages, q + 1 + q // 5) <= sigma + 1e-6


@given(size=st.floats(math.log2(19), 40), bits=st.floats(0, 200), width=st.floats(1, 64))
def test_messages_needed_is_the_smallest(size: float, bits: float, width: float) -> None:
    n = math.ceil(2**size)
    q = math.floor(2**width)
    messages = messages_needed(n, q, bits)
    assert messages >= 3
    assert security_bits(n, messages, q) >= bits
    assert messages == 3 or security_bits(n, messages - 1, q) < bits


def test_nothing_to_certify_is_zero_not_a_number() -> None:
    assert security_bits(19, 3, 2**64) == 0.0
    assert security_bits(10**12, 3, 2**900) == 0.0
    assert security_bits(300, 700, 2**1000) > 1000.0


def test_conditions() -> None:
    with pytest.raises(ConditionError, match="at least 19 honest users"):
        security_bits(18, 10, 2**32)
    with pytest.raises(ConditionError, match="at least 3 messages"):
        security_bits(1000, 2, 2**32)
    with pytest.raises(ConditionError, match="modulus of at least 2"):
        messages_needed(1000, 1, 40)
    with pytest.raises(InputError, match="whole number"):
        security_bits(1000.0, 10, 2**32)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="at most"):
        security_bits(1000, 10**6, 2**32)
    with pytest.raises(InputError, match="coarser unit"):
        security_bits(1000, 10, 2**1001)
    for bits in (math.nan, -1.0, math.inf):
        with pytest.raises(InputError, match="bits"):
            messages_needed(1000, 2**32, bits)
    assert security_bits(int(np.int64(1000)), 10, 2**32) == security_bits(np.int64(1000), 10, 2**32)  # type: ignore[arg-type]


@given(epsilon=st.floats(0, 60), sigma=st.floats(0, 300))
def test_penalty_is_the_formula_rounded_up(epsilon: float, sigma: float) -> None:
    with mpmath.workdps(50):
        truth = (1 + mpmath.exp(mpmath.mpf(epsilon))) * mpmath.power(2, -(mpmath.mpf(sigma) + 1))
        penalty = view_penalty(epsilon, sigma)
        assert min(truth, 1) <= penalty <= min(truth * (1 + mpmath.mpf(10) ** -11), 1)


def test_penalty_at_the_edges() -> None:
    assert view_penalty(20.0, 40.0) == pytest.approx(4.4129e-4 / 2, rel=1e-4)
    assert view_penalty(0.0, 0.0) == 1.0
    assert view_penalty(math.inf, 40.0) == 1.0
    assert view_penalty(1e9, 4000.0) == 1.0
    assert 0.0 < view_penalty(0.0, 4000.0) < 1e-300
    for epsilon, sigma in (
        (math.nan, 40.0),
        (-1.0, 40.0),
        (1.0, math.nan),
        (1.0, -1.0),
        (1.0, math.inf),
    ):
        with pytest.raises(InputError):
            view_penalty(epsilon, sigma)


def test_penalty_really_covers_a_view() -> None:
    """Two users' noisy sum, ideal against shares: hockey-stick within delta + penalty."""
    q = 7
    messages = 4
    tau = 0.5 * math.sqrt(exact_excess(2, messages - 1, q))
    noise = {-1: 1, 0: 2, 1: 1}

    def law(x: int) -> tuple[Counter[tuple[int, ...]], Counter[int]]:
        view: Counter[tuple[int, ...]] = Counter()
        ideal: Counter[int] = Counter()
        for step, weight in noise.items():
            ideal[(x + step) % q] += weight
            for seen, times in views(((x + step) % q, 0), messages, q).items():
                view[seen] += weight * times
        return view, ideal

    (view, ideal), (view_1, ideal_1) = law(2), law(3)
    for epsilon in (0.0, 0.3, 0.7):
        lift = math.exp(epsilon)
        delta = sum(max(0.0, ideal[s] - lift * ideal_1[s]) for s in ideal) / sum(ideal.values())
        seen = sum(max(0.0, view[v] - lift * view_1[v]) for v in view) / sum(view.values())
        assert delta <= seen + 1e-12 <= delta + (1.0 + lift) * tau


def test_the_profile_of_shares() -> None:
    ideal = PureProfile(1.0)
    profile = SplitAndMix(ideal, 80.9, 3)
    # A penalty below half an ulp of delta is still in the sum, and the bits are never rounded up.
    assert profile.delta(0.0, 1.0) > ideal.delta(0.0, 1.0)
    assert profile.bound == "pure, shares mixed to 2^-80"
    assert profile.delta(1.0, 0.0) == 0.0
    penalty = 3 * view_penalty(1.0, 80.9)
    assert profile.covers(1.0 + 1e-12, 1.0001 * penalty, 1.0)
    assert not profile.covers(1.0 + 1e-12, 0.9999 * penalty, 1.0)
    tiny = SplitAndMix(ideal, 1075.0)
    assert not tiny.covers(1.0 + 1e-12, view_penalty(1.0 + 1e-12, 1075.0) - 5e-324, 1.0)
    for sigma, sharings in ((40.0, 0), (40.0, -1), (40.0, 1.5), (math.nan, 1), (-1.0, 1)):
        with pytest.raises(InputError):
            SplitAndMix(ideal, sigma, sharings)  # type: ignore[arg-type]
