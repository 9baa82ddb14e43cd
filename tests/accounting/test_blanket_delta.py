"""Blanket delta: golden values, exact rationals, every small data set, mpmath for many users."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mpmath import mpf
from tests.oracles.binomial_blanket import two_atom_delta
from tests.oracles.shuffled_brute_force import blanket_expression, every_data_set, shuffled_delta
from tests.tables import check_all

from metricshuffle.accounting.shuffling import _blanket_kernels as kernels
from metricshuffle.accounting.shuffling import _contour_kernels as contours
from metricshuffle.accounting.shuffling import blanket_evaluation
from metricshuffle.accounting.shuffling.blanket_bound import (
    BlanketLaw,
    DeltaBracket,
    delta_bracket,
    delta_lower,
    delta_upper,
)
from metricshuffle.accounting.shuffling.blanket_evaluation import count_vectors, enumerate_counts
from metricshuffle.accounting.shuffling.blanket_law import Atoms
from metricshuffle.errors import InputError, NotCertified
from metricshuffle.numerics.types import Floats

E = math.e


def metric(distance: float, reach: float, reach_other: float) -> BlanketLaw:
    half = 1.0 / (1.0 + math.exp(-distance))
    return BlanketLaw.clone_pair(distance, math.exp(-reach) * half, math.exp(-reach_other) * half)


def k_ary_weights(k: int, p: int) -> list[list[int]]:
    return [[p if report == value else 1 for report in range(k)] for value in range(k)]


def as_rows(weights: list[list[int]]) -> Floats:
    matrix = np.array(weights, dtype=np.float64)
    return np.asarray(matrix / matrix.sum(axis=1, keepdims=True))


def close_above(found: DeltaBracket, golden: float) -> bool:
    """Golden values are printed to 12 digits."""
    return golden * (1.0 - 5e-12) <= found.upper <= golden * (1.0 + 1e-6) and golden * (
        1.0 - 1e-6
    ) <= found.lower <= golden * (1.0 + 5e-12)


@check_all(
    ("log_ratio", "r0", "r1", "users", "epsilon", "golden"),
    [
        (math.log(3.0), 0.25, 0.25, 6, 0.0, 0.2255859375),
        (math.log(3.0), 0.25, 0.25, 6, 0.4, 0.10695467398),
        (math.log(5.0), 0.05, 0.12, 12, 1.0, 0.216306917754),
    ],
)
def test_golden_clone_pairs(
    log_ratio: float, r0: float, r1: float, users: int, epsilon: float, golden: float
) -> None:
    assert close_above(
        delta_bracket(BlanketLaw.clone_pair(log_ratio, r0, r1), users, epsilon), golden
    )


def test_what_is_at_the_floor_is_not_looked_at_closer(monkeypatch: pytest.MonkeyPatch) -> None:
    """Below e^-690 the bracket is [0, about e^-690], from one contour; just above it is tight."""
    law = BlanketLaw.clone_pair(1.0, 0.1, 0.1)
    users = 10**6
    widths = []
    contour = contours.contour

    def counted(*given: Any) -> Any:
        widths.append(given[4])
        return contour(*given)

    monkeypatch.setattr(contours, "contour", counted)
    above = delta_bracket(law, users, 0.07, relative=2e-3)
    assert 1e-280 < above.lower <= above.upper <= above.lower * (1.0 + 2e-3)
    assert len(widths) > 1
    widths.clear()
    below = delta_bracket(law, users, 0.1, relative=2e-3)
    assert 0.0 == below.lower < below.upper < 1e-295
    assert len(widths) == 1


def test_golden_direction() -> None:
    law = BlanketLaw.clone_pair(math.log(2.0), 0.2, 0.1)
    assert close_above(delta_bracket(law, 9, 0.1, directions="forward"), 0.139496832503)
    assert delta_upper(law, 9, 0.1) == max(
        delta_upper(way, 9, 0.1, directions="forward") for way in (law, law.reversed)
    )


@check_all(
    ("distance", "reach", "reach_other", "users", "epsilon", "golden"),
    [
        (1.0, 1.0, 1.0, 100, 0.3, 0.000441095236003),
        (1.0, 1.0, 1.0, 1000, 0.1, 8.20116625013e-5),
        (1.0, 3.0, 2.5, 1000, 0.3, 6.24666661476e-5),
    ],
)
def test_golden_metric_pairs(
    distance: float, reach: float, reach_other: float, users: int, epsilon: float, golden: float
) -> None:
    assert close_above(delta_bracket(metric(distance, reach, reach_other), users, epsilon), golden)


def test_golden_three_symbol_pair() -> None:
    found = delta_bracket(BlanketLaw.three_symbol(math.log(3.0), 0.25, 3.0), 4, math.log(1.1))
    assert 0.153833007813 * (1.0 - 1e-10) <= found.upper <= 0.153833007813 * (1.0 + 1e-9)


@check_all(
    ("k", "third", "worst"), [(4, Fraction(1, 36), Fraction(1, 20)), (3, None, Fraction(9, 125))]
)
def test_golden_counterexamples_of_the_merged_pair(
    k: int, third: Fraction | None, worst: Fraction
) -> None:
    """The published bound is 1/60 for k = 4 and 1/25 for k = 3, below the truth of two users."""
    channel = k_ary_weights(k, 3)
    growth = Fraction(12, 5)
    epsilon = math.log(2.4)
    assert shuffled_delta(channel[0], channel[1], [channel[0]], growth) <= worst
    assert max(every_data_set(channel, 0, 1, 2, growth).values()) == worst
    if third is not None:
        assert shuffled_delta(channel[0], channel[1], [channel[2]], growth) == third
        alone = delta_bracket(
            BlanketLaw.from_rows(as_rows(channel), 0, 1, [2]), 2, epsilon, directions="forward"
        )
        assert alone.upper == pytest.approx(float(third), rel=1e-12)
    assert delta_upper(BlanketLaw.from_rows(as_rows(channel), 0, 1), 2, epsilon) >= worst


@st.composite
def integer_channels(draw: st.DrawFn) -> list[list[int]]:
    """Rows of whole numbers that all sum to 64, some entries zero."""
    reports = draw(st.integers(2, 4))
    rows = []
    for _ in range(draw(st.integers(2, 3))):
        cuts = sorted(
            draw(st.lists(st.integers(0, 64), min_size=reports - 1, max_size=reports - 1))
        )
        rows.append([high - low for low, high in zip([0, *cuts], [*cuts, 64], strict=True)])
    return rows


@settings(max_examples=25, deadline=None)
@given(integer_channels(), st.integers(1, 4), st.sampled_from([0.0, 0.1, 0.7, 1.6]))
def test_no_data_set_of_a_few_users_leaks_more(
    channel: list[list[int]], users: int, epsilon: float
) -> None:
    growth = Fraction(math.exp(epsilon))
    found = delta_bracket(
        BlanketLaw.from_rows(as_rows(channel), 0, 1), users, epsilon, directions="forward"
    )
    for others, truth in every_data_set(channel, 0, 1, users, growth).items():
        assert truth <= Fraction(found.upper)
        if (
            len(set(others)) == 1
        ):  # all hold the same value: the blanket is their whole law, and nothing is lost
            alone = delta_bracket(
                BlanketLaw.from_rows(as_rows(channel), 0, 1, others[:1]),
                users,
                epsilon,
                directions="forward",
            )
            assert Fraction(alone.lower) <= truth <= Fraction(alone.upper)
            assert alone.upper <= float(truth) * (1.0 + 1e-9) + 1e-14


@pytest.mark.slow
def test_no_mixed_data_set_of_eight_users_leaks_more() -> None:
    generator = np.random.default_rng(8)
    for _ in range(60):
        reports = int(generator.integers(2, 4))
        users = int(generator.integers(5, 9))
        channel = [
            (
                1 + generator.multinomial(64 - reports, generator.dirichlet(np.ones(reports)))
            ).tolist()
            for _ in range(3)
        ]
        epsilon = float(generator.choice([0.0, 0.2, 0.6, 1.2]))
        bound = delta_upper(
            BlanketLaw.from_rows(as_rows(channel), 0, 1), users, epsilon, directions="forward"
        )
        assert max(
            every_data_set(channel, 0, 1, users, Fraction(math.exp(epsilon))).values()
        ) <= Fraction(bound)


@st.composite
def rational_laws(draw: st.DrawFn) -> list[tuple[Fraction, Fraction, Fraction]]:
    """(w, K_a, K_b) in 1/256ths, exact as floats too; w may miss atoms."""
    atoms = draw(st.integers(1, 4))

    def law() -> list[int]:
        cuts = sorted(draw(st.lists(st.integers(0, 256), min_size=atoms - 1, max_size=atoms - 1)))
        return [high - low for low, high in zip([0, *cuts], [*cuts, 256], strict=True)]

    a, b, whole = law(), law(), law()
    share = draw(st.sampled_from([1, 2, 16, 4096]))
    return [
        (Fraction(w, 256 * share), Fraction(x, 256), Fraction(y, 256))
        for w, x, y in zip(whole, a, b, strict=True)
    ]


def as_law(atoms: list[tuple[Fraction, Fraction, Fraction]]) -> BlanketLaw:
    return BlanketLaw(
        *(np.array([float(x) for x in column]) for column in zip(*atoms, strict=True))
    )


@settings(max_examples=60, deadline=None)
@given(
    rational_laws(),
    st.integers(1, 6),
    st.sampled_from([0.0, 1e-3, 0.4, 1.5, 4.0]),
    st.sampled_from([2.8, 0.3, 0.02]),
)
def test_every_evaluator_encloses_the_exact_value(
    atoms: list[tuple[Fraction, Fraction, Fraction]], users: int, epsilon: float, width: float
) -> None:
    # e^epsilon is not rational; its float neighbours enclose what it does to G far better than the
    # evaluators' own slack
    truth = blanket_expression(atoms, users, Fraction(math.exp(epsilon)))
    law = as_law(atoms)
    found = delta_bracket(law, users, epsilon, directions="forward")
    assert Fraction(found.lower) <= truth <= Fraction(found.upper)
    assert found.upper - found.lower <= 1e-7 * found.upper + 1e-13
    parts = law.atoms(epsilon)
    low, high = (Fraction(x) for x in parts.exposed)
    if parts.mass.size:
        lower, upper, _ = contours.contour(
            float(users), parts.mass, parts.value, parts.doubt, width, 10**6
        )
        assert Fraction(lower) + low <= truth
        assert upper == math.inf or truth <= Fraction(upper) + high
        if count_vectors(parts, users) < math.inf:
            lower, upper = enumerate_counts(parts, users)
            assert Fraction(lower) + low <= truth <= Fraction(upper) + high
            assert upper - lower <= 1e-11 * upper + 1e-12


@pytest.mark.slow
def test_contour_and_enumeration_agree_on_random_laws() -> None:
    generator = np.random.default_rng(5)
    compared = 0
    for _ in range(20_000):
        size = int(generator.integers(1, 5))
        spread = generator.choice([0.1, 1.0, 3.0, 10.0, 30.0])
        a, b = (x / x.sum() for x in np.exp(spread * generator.normal(size=(2, size))))
        mass = np.minimum(a, b) * generator.choice([1.0, 0.5, 1e-2, 1e-6])
        law = BlanketLaw(mass, a, b)
        users = int(np.exp(generator.uniform(0.0, 5.0)))
        epsilon = float(generator.choice([0.0, 1e-4, generator.random() * min(5.0, law.pure)]))
        parts = law.atoms(epsilon)
        if epsilon >= law.pure or count_vectors(parts, users) > 20_000:
            continue
        compared += 1
        low, high = enumerate_counts(parts, users)
        lower, upper, _ = contours.contour(
            float(users),
            parts.mass,
            parts.value,
            parts.doubt,
            10.0 ** generator.uniform(-2.5, 0.6),
            10**6,
        )
        assert lower <= high
        assert low <= upper
    assert compared > 10_000


@pytest.mark.parametrize("users", [10**3, 10**6, 10**12, 10**14])
@pytest.mark.parametrize("deviations", [0.0, 4.0, 11.5])
def test_very_many_users_against_mpmath(users: int, deviations: float) -> None:
    """Two-valued randomized response, all others hold a; delta from 1e-2 down to 1e-38."""
    law = BlanketLaw(*np.array([[0.75, 0.25], [0.75, 0.25], [0.25, 0.75]]))
    epsilon = deviations * math.sqrt(4.0 / 3.0 / users)
    truth = two_atom_delta(mpf(3) / 4, mpf(1) / 4, users, epsilon)
    found = delta_bracket(law, users, epsilon, directions="forward")
    assert found.lower <= truth <= found.upper
    assert found.gap < (3e-7 if users <= 10**12 else 3e-6)


def test_slack_grows_with_the_users() -> None:
    """A flat slack of 1e-10 was too small: 2-RR, local epsilon 1/2, 1e12 and 1e14 users.

    One law of 2-RR among others at a.
    """
    half = 1.0 / (1.0 + math.exp(-0.5))
    law = BlanketLaw(*np.array([[half, 1.0 - half], [half, 1.0 - half], [1.0 - half, half]]))
    for users, epsilon in ((10**12, 1.044e-6), (10**14, 1.044e-7), (2**53, 1e-8)):
        truth = two_atom_delta(mpf(half), 1 - mpf(half), users, epsilon)
        found = delta_bracket(law, users, epsilon, directions="forward")
        assert found.lower <= truth <= found.upper


def test_the_two_evaluators_overlap_between_a_hundred_and_a_thousand_users(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for users in (50, 200, 800):
        law = metric(1.0, 2.0, 1.5)
        epsilon = 3.0 / math.sqrt(users)
        counted = delta_bracket(law, users, epsilon)
        monkeypatch.setattr(blanket_evaluation, "count_vectors", lambda atoms, users: math.inf)
        contoured = delta_bracket(law, users, epsilon)
        monkeypatch.undo()
        assert counted.evaluator == "enumeration"
        assert contoured.evaluator == "contour"
        assert max(counted.lower, contoured.lower) <= min(counted.upper, contoured.upper)
        assert max(counted.gap, contoured.gap) < 1e-7


@pytest.mark.parametrize(
    "broken", [(math.nan, math.nan, 1), (math.nan, math.nan, math.nan), (-math.inf, -math.nan, 5)]
)
def test_what_is_not_a_number_is_never_small(
    monkeypatch: pytest.MonkeyPatch, broken: tuple[float, float, float]
) -> None:
    law = metric(1.0, 1.0, 1.0)
    monkeypatch.setattr(contours, "contour", lambda *arguments: broken)
    monkeypatch.setattr(kernels, "enumerate_counts", lambda *arguments: broken[:2])
    for epsilon in (0.0, 0.3):
        found = delta_bracket(law, 1000, epsilon)
        assert found.evaluator == "local"
        assert found.upper == pytest.approx((E - math.exp(epsilon)) / (E + 1.0), rel=1e-12)
        assert found.lower == pytest.approx(0.0, abs=1e-20)


def test_a_bracket_knows_nonsense() -> None:
    assert DeltaBracket(math.nan, math.nan, "x") == DeltaBracket(0.0, math.inf, "x")
    with pytest.raises(NotCertified, match="exceeds"):
        DeltaBracket(0.5, 0.4, "x")
    assert DeltaBracket(0.0, 0.0, "x").gap == 0.0


@check_all("users", [0, -3, 2**53 + 1, 2.5, True])
def test_users_are_counted_in_whole_numbers(users: int) -> None:
    with pytest.raises(InputError, match="users"):
        delta_upper(metric(1.0, 1.0, 1.0), users, 0.1)


def test_one_user_is_the_local_randomizer() -> None:
    law = metric(2.0, 3.0, 4.0)
    for epsilon in (0.0, 0.5, 1.9):
        local = (math.exp(2.0) - math.exp(epsilon)) / (math.exp(2.0) + 1.0)
        assert delta_upper(law, 1, epsilon) == pytest.approx(local, rel=1e-12)
        assert delta_lower(law, 1, epsilon) <= delta_upper(law, 1, epsilon)
    assert delta_upper(law, 1, 2.1) == 0.0


@settings(max_examples=25, deadline=None)
@given(
    st.floats(0.05, 3.0),
    st.floats(0.0, 1.5),
    st.floats(0.0, 1.5),
    st.integers(1, 10**7),
    st.floats(0.0, 1.0),
    st.integers(2, 50),
)
def test_delta_falls_in_users_and_epsilon_and_is_symmetric(
    distance: float, beyond: float, beyond_other: float, users: int, share: float, more: int
) -> None:
    law = metric(distance, distance + beyond, distance + beyond_other)
    epsilon = share * distance
    here = delta_bracket(law, users, epsilon, relative=1e-4)
    assert (
        here.upper <= (math.exp(distance) - math.exp(epsilon)) / (math.exp(distance) + 1.0) + 1e-14
    )
    assert delta_bracket(law, users * more, epsilon, relative=1e-4).lower <= here.upper
    assert delta_bracket(law, users, epsilon * 1.1 + 1e-3, relative=1e-4).lower <= here.upper
    swapped = delta_bracket(law.reversed, users, epsilon, relative=1e-4)
    assert swapped.upper == pytest.approx(here.upper, rel=1e-11)
    assert swapped.lower == pytest.approx(here.lower, rel=1e-11)


def test_what_overflows_in_an_enumeration_is_never_small() -> None:
    """G = -e/w is beyond the floats; every vector of counts became NaN, and was left out."""
    law = BlanketLaw(np.array([1.0 - 1e-13, 1e-190]), np.array([1.0, 0.0]), np.array([0.0, 1.0]))
    assert delta_upper(law, 2, 300.0, directions="forward") >= 1.0 - 1e-12
    assert not enumerate_counts(law.atoms(300.0), 2)[1] < 1.0 - 1e-12


@check_all(
    "mass",
    [(0.9999999998990986, 3.058998303355354e-14), (1.0 - 2.0**-51, 3.058998303355354e-14 / 2**7)],
)
def test_a_small_rest_is_not_rounded_away(mass: tuple[float, float]) -> None:
    """delta is about the second mass times the rest.

    1 - sum(mass) gave the rest to 5e-7 only, or as 0.
    """
    m0, m1 = (Fraction(each) for each in mass)
    a1, b1 = (float(factor * m1) for factor in (Fraction(5, 2), Fraction(1)))
    law = BlanketLaw(np.array(mass), np.array([1.0 - a1, a1]), np.array([1.0 - b1, b1]))
    e = Fraction(math.exp(math.log(2.0)))
    values = [
        (Fraction(x) - e * Fraction(y)) / w for x, y, w in zip(law.a, law.b, (m0, m1), strict=True)
    ] + [Fraction(0)]
    masses = [m0, m1, 1 - m0 - m1]
    pairs = [
        (w * v, x + y)
        for w, x in zip(masses, values, strict=True)
        for v, y in zip(masses, values, strict=True)
    ]
    exact = float(
        sum((weight * max(Fraction(0), total) for weight, total in pairs), Fraction(0)) / 2
    )
    lower, upper = enumerate_counts(law.atoms(math.log(2.0)), 2)
    assert lower <= exact <= upper
    found = delta_bracket(law, 2, math.log(2.0), directions="forward")
    assert found.lower <= exact <= found.upper


def test_large_values_are_not_lost_to_probabilities_that_underflow() -> None:
    """Two of three draws with probability 1e-390 and a value of 1e190 make 1e-200."""
    mass = np.array([1e-195, 1.0])
    value = np.array([1e190, -1.5e190])
    lower, upper = enumerate_counts(Atoms(mass, value, np.abs(value), math.inf), 3)
    assert lower <= 0.5e-200 <= upper
    for width in (2.8, 0.05):
        lower, upper, _ = contours.contour(3.0, mass, value, np.abs(value), width, 100_000)
        assert lower <= 0.5e-200 <= upper


def test_stretches_where_the_slow_part_is_small_are_left_out() -> None:
    """Nodes are skipped where the slow part is small: 9/10 of 10-RR's reports treat a, b alike."""
    keep = math.e / (math.e + 9.0)
    other = 1.0 / (math.e + 9.0)
    law = BlanketLaw(
        np.array([other, other, 8.0 * other]),
        np.array([keep, other, 8.0 * other]),
        np.array([other, keep, 8.0 * other]),
        np.array([keep - other, other - keep, 0.0]),
    )
    parts = law.atoms(0.0665)
    brackets = [
        contours.contour(1000.0, parts.mass, parts.value, parts.doubt, width, 10**6)
        for width in (5e-2, 5e-3, 5e-4)
    ]
    assert brackets[-1][2] < 5000  # 7,300 without it
    for (wide_low, wide_high, _), (low, high, _) in itertools.pairwise(brackets):
        assert wide_low <= low <= high <= wide_high
    assert brackets[-1][1] / brackets[-1][0] - 1.0 < 1e-7
    exact = law.atoms(0.4)  # few people, all counts
    low, high, _ = contours.contour(60.0, exact.mass, exact.value, exact.doubt, 5e-4, 10**6)
    least, most = enumerate_counts(exact, 60)
    assert low <= most
    assert least <= high
    assert high / low - 1.0 < 1e-4
