"""Laws of G: those of a channel, extremal pairs, and continuous laws in bins."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from tests.tables import check_all

from metricshuffle.accounting.shuffling.blanket_bound import (
    BinnedLaw,
    BlanketLaw,
    delta_bracket,
    epsilon_lower,
    epsilon_upper,
)
from metricshuffle.errors import ConditionError, InputError


def k_ary(k: int, p: float) -> np.ndarray[tuple[int, int], np.dtype[np.float64]]:
    return (np.ones((k, k)) + np.eye(k) * (p - 1.0)) / (p + k - 1.0)


def laplace(rate: float, bins: int) -> BinnedLaw:
    """Laplace noise on [0, 1], a = 0, b = 1: w is the law of the farther end.

    Atoms are where the output leaves [0, 1].
    """
    y = np.linspace(0.0, 1.0, 2 * bins + 1)
    left = np.arange(2 * bins) < bins
    a = -0.5 * np.diff(np.exp(-rate * y))
    b = 0.5 * np.diff(np.exp(-rate * (1.0 - y)))

    def ends(
        at: np.ndarray[tuple[int], np.dtype[np.float64]],
    ) -> np.ndarray[tuple[int, int], np.dtype[np.float64]]:
        first = np.exp(-rate * at)
        second = np.exp(-rate * (1.0 - at))
        return np.stack([first, second], axis=1) / np.where(left, second, first)[:, None]

    tail = 0.5 * math.exp(-rate)
    top = math.exp(rate)
    return BinnedLaw(
        np.r_[tail, np.where(left, b, a), tail],
        np.r_[0.5, a, tail],
        np.r_[tail, b, 0.5],
        np.r_[[[top, 1.0]], ends(y[:-1]), [[1.0, top]]],
        np.r_[[[top, 1.0]], ends(y[1:]), [[1.0, top]]],
    )


def sorted_atoms(law: BlanketLaw) -> list[tuple[float, float, float]]:
    return sorted(zip(law.mass.tolist(), law.a.tolist(), law.b.tolist(), strict=True))


def test_equal_reports_of_a_channel_are_one_atom() -> None:
    law = BlanketLaw.from_rows(k_ary(10, 3.0), 0, 1)
    assert law.mass.size == 3
    np.testing.assert_allclose(
        sorted_atoms(law),
        [(1 / 12, 1 / 12, 3 / 12), (1 / 12, 3 / 12, 1 / 12), (8 / 12, 8 / 12, 8 / 12)],
        rtol=1e-15,
    )
    assert law.pure == pytest.approx(math.log(3.0), rel=1e-14)
    assert law.pure >= math.log(3.0)


def test_merging_is_exact_not_approximate() -> None:
    near = np.array([[0.25, 0.25, 0.5], [0.25, np.nextafter(0.25, 1.0), np.nextafter(0.5, 0.0)]])
    assert BlanketLaw.from_rows(near, 0, 1, [0]).mass.size == 3
    assert BlanketLaw.from_rows([[0.125, 0.375, 0.5], [0.125, 0.375, 0.5]], 0, 1).mass.size == 1


def test_others_decide_the_blanket() -> None:
    rows = [[0.7, 0.2, 0.1], [0.1, 0.2, 0.7], [0.2, 0.6, 0.2]]
    assert BlanketLaw.from_rows(rows, 0, 1).mass.tolist() == [0.1, 0.2, 0.1]
    assert BlanketLaw.from_rows(rows, 0, 1, [2]).mass.tolist() == [0.2, 0.6, 0.2]


def test_reports_the_blanket_misses_are_kept_apart() -> None:
    law = BlanketLaw.from_rows([[0.5, 0.5, 0.0], [0.0, 0.5, 0.5], [0.0, 1.0, 0.0]], 0, 1)
    assert law.mass.tolist() == [0.0, 0.5, 0.0]
    assert law.pure == math.inf
    found = delta_bracket(law, 10**6, 0.3)
    assert found.lower <= 0.5 <= found.upper
    assert found.upper - found.lower < 1e-12


def test_a_blanket_too_thin_for_floats_is_lowered_to_nothing() -> None:
    thin = BlanketLaw(*np.array([[1e-250, 0.5], [0.9, 0.1], [0.1, 0.9]]))
    assert thin.mass.tolist() == [0.0, 0.5]


@check_all("log_ratio", [0.0, 1e-9, 0.5, 3.0, 40.0, math.inf])
def test_the_clone_pair_is_two_laws(log_ratio: float) -> None:
    law = BlanketLaw.clone_pair(log_ratio, 0.1, 0.2)
    assert math.fsum(law.a) == pytest.approx(1.0, abs=1e-15)
    assert law.pure == pytest.approx(log_ratio, rel=1e-12)
    assert not law.symmetric or log_ratio == 0.0
    assert BlanketLaw.clone_pair(log_ratio, 0.2, 0.2).symmetric
    assert sorted_atoms(law.reversed.reversed) == sorted_atoms(law)


def test_three_symbols_with_parts_are_randomized_response_and_subset_selection() -> None:
    p = 3.0
    k = 6
    beta = (p - 1.0) / (p + k - 1.0)
    built = BlanketLaw.three_symbol(math.log(p), beta, p, [((k - 2) / (p + k - 1.0), 1.0)])
    np.testing.assert_allclose(
        sorted_atoms(built), sorted_atoms(BlanketLaw.from_rows(k_ary(k, p), 0, 1)), rtol=1e-14
    )
    # subsets of 2 of 4: both of a, b in the report (high), none (low)
    subsets = [(i, j) for i in range(4) for j in range(i)]
    rows = np.array([[p if x in subset else 1.0 for subset in subsets] for x in range(4)]) / (
        3.0 * p + 3.0
    )
    both = [(p / (3.0 * p + 3.0), p), (1.0 / (3.0 * p + 3.0), 1.0)]
    built = BlanketLaw.three_symbol(math.log(p), 2.0 * (p - 1.0) / (3.0 * p + 3.0), p, both)
    assert math.fsum(built.mass) == pytest.approx(
        math.fsum(BlanketLaw.from_rows(rows, 0, 1).mass), rel=1e-14
    )
    for epsilon in (0.0, 0.2, 0.8):
        ours, read_off = (
            delta_bracket(law, 30, epsilon) for law in (built, BlanketLaw.from_rows(rows, 0, 1))
        )
        assert ours.upper == pytest.approx(read_off.upper, rel=1e-10)


@check_all(
    ("arguments", "error", "words"),
    [
        (([0.5], [1.0], [0.5, 0.5]), InputError, "one entry per atom"),
        (([0.5, 0.6], [0.5, 0.5], [0.5, 0.5]), InputError, "at most one"),
        (([0.5, 0.4], [0.5, 0.4], [0.5, 0.5]), InputError, "sum to one"),
        (([0.5, -0.1], [0.5, 0.5], [0.5, 0.5]), InputError, "negative"),
        (([0.5, math.nan], [0.5, 0.5], [0.5, 0.5]), InputError, "finite"),
        (([0.4, 0.4], [0.7, 0.3], [0.3, 0.7], [0.3, -0.4]), InputError, "a - b"),
    ],
)
def test_bad_laws_are_refused(
    arguments: tuple[list[float], ...], error: type[Exception], words: str
) -> None:
    with pytest.raises(error, match=words):
        BlanketLaw(*(np.array(column) for column in arguments))


def test_conditions_of_the_pairs_are_checked() -> None:
    with pytest.raises(ConditionError, match="r0 \\+ r1 <= 1"):
        BlanketLaw.clone_pair(1.0, 0.6, 0.5)
    with pytest.raises(InputError, match="r0, r1 in"):
        BlanketLaw.clone_pair(math.nan, 0.1, 0.1)
    with pytest.raises(ConditionError, match="beta <="):
        BlanketLaw.three_symbol(1.0, 0.5, 3.0)
    with pytest.raises(ConditionError, match="q >="):
        BlanketLaw.three_symbol(1.0, 0.4, 1.2)
    with pytest.raises(InputError, match="sum to"):
        BlanketLaw.three_symbol(1.0, 0.2, 3.0, [(0.1, 1.0)])
    with pytest.raises(InputError, match=r"rows 0\.\.1"):
        BlanketLaw.from_rows([[1.0], [1.0]], 0, 2)
    with pytest.raises(InputError, match="sum to one"):
        BlanketLaw.from_rows([[1.0, 0.1], [0.5, 0.5]], 0, 1)


@pytest.mark.parametrize("rate", [0.5, 4.0])
@pytest.mark.parametrize("users", [3, 40, 1000])
def test_bins_enclose_the_continuous_law(rate: float, users: int) -> None:
    coarse = laplace(rate, 6)
    fine = laplace(rate, 40)
    for epsilon in (0.0, 0.1 * rate, 0.5 * rate):
        outer, inner = (
            delta_bracket(law, users, epsilon, directions="forward", relative=1e-4)
            for law in (coarse, fine)
        )
        assert outer.lower <= inner.lower * (1.0 + 1e-3)
        assert inner.upper <= outer.upper * (1.0 + 1e-3)
        assert inner.gap < outer.gap or inner.gap < 1e-3
    assert coarse.pure == pytest.approx(rate, rel=1e-12)


def test_one_user_with_laplace_noise_has_a_closed_form() -> None:
    for rate, epsilon in ((0.5, 0.0), (2.0, 0.7), (4.0, 3.9)):
        found = delta_bracket(laplace(rate, 30), 1, epsilon, directions="forward")
        assert found.lower <= -math.expm1(0.5 * (epsilon - rate)) <= found.upper
        assert found.gap < 0.03


def test_strong_laplace_noise_does_not_look_private() -> None:
    """Rate 12, 1e4 users: a NaN once made this 8e-10."""
    law = laplace(12.0, 20)
    upper, lower = (
        function(law, 10**4, 1e-6, directions="forward", relative=1e-3)
        for function in (epsilon_upper, epsilon_lower)
    )
    assert 9.0 < lower <= upper < 10.5


def test_two_bins_are_a_finite_law_between_their_roundings() -> None:
    """Laplace outputs rounded to bins are a finite channel that leaks no more than the bins."""
    rate = 2.0
    users = 6
    epsilon = 0.4
    law = laplace(rate, 3)
    seen = BlanketLaw(law.mass, law.a, law.b)
    assert delta_bracket(seen, users, epsilon).lower <= delta_bracket(law, users, epsilon).upper
    assert delta_bracket(seen, users, epsilon).upper >= delta_bracket(law, users, epsilon).lower * (
        1.0 - 1e-9
    )
    assert epsilon_lower(law, 10**6, 1e-6, directions="forward") < epsilon_upper(
        law, 10**6, 1e-6, directions="forward"
    )


def test_a_bin_with_a_turning_point_is_refused() -> None:
    law = BinnedLaw(
        np.array([0.4, 0.4]),
        np.array([0.7, 0.3]),
        np.array([0.3, 0.7]),
        np.array([[1.0, 0.75], [0.75, 1.75]]),
        np.array([[1.5, 0.75], [0.75, 1.75]]),
    )
    with pytest.raises(InputError, match="not monotone"):
        delta_bracket(law, 10, 0.1)
    with pytest.raises(InputError, match="positive blanket mass"):
        BinnedLaw(
            np.array([0.5, 0.0]),
            np.array([0.5, 0.5]),
            np.array([0.5, 0.5]),
            np.ones((2, 2)),
            np.ones((2, 2)),
        )


def test_exact_laws_survive_a_round_trip_through_rationals() -> None:
    """Atoms merged by from_rows add up to the rows they came from."""
    rows = np.array([[3, 5, 2, 6], [6, 10, 0, 0], [4, 4, 4, 4]]) / 16.0
    law = BlanketLaw.from_rows(rows, 0, 1)
    assert sum(Fraction(x) for x in law.a) == sum(Fraction(x) for x in rows[0])
    assert sum(Fraction(x) for x in law.mass) == sum(Fraction(x) for x in rows.min(axis=0))


@check_all(
    "law", [BlanketLaw.three_symbol(800.0, 0.9, 2.0), BlanketLaw.clone_pair(744.3, 0.1, 0.1)]
)
def test_ratios_beyond_the_floats_are_raised_not_lowered(law: BlanketLaw) -> None:
    """With e^-800 rounded up to e^-700 delta would be 0 from epsilon = 700 on."""
    assert law.pure > 744.0
    assert delta_bracket(law, 1, 743.5).upper >= 0.5
