"""Full-law bound: every data set in fractions, golden values, 40 digits, refuted shortcuts."""

from __future__ import annotations

import itertools
import math
import random
from fractions import Fraction

import mpmath
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.oracles.explicit_laws import exponential, geometric, grid, line, planar, rappor, response
from tests.oracles.shuffled_brute_force import every_data_set, shuffled_delta
from tests.oracles.whole_laws import displaced, largest_psi, psi
from tests.tables import check_all

from metricshuffle.accounting.shuffling import _full_law_kernels as kernels
from metricshuffle.accounting.shuffling import blanket_bound as blanket
from metricshuffle.accounting.shuffling import full_law_bound
from metricshuffle.accounting.shuffling.binary_exact_bound import BinaryReports, epsilon_bracket
from metricshuffle.accounting.shuffling.blanket_law import BlanketLaw
from metricshuffle.accounting.shuffling.full_law_bound import delta_upper, epsilon_upper, psi_upper
from metricshuffle.accounting.shuffling.input_class_laws import InputClassLaw, InputClassLaws
from metricshuffle.errors import InputError
from metricshuffle.numerics.types import Floats

Weights = list[list[int]]

# at delta = 1e-6: channel, pair, users, what the prototype gave with a coarser T and the same
# smoothing
GOLDEN = {
    "2-RR": (response(2, 2.0), 0, 1, 10**5, 0.0246656),
    "line of 8": (geometric(8, 2.0), 0, 7, 10**5, 0.0206529),
    "line of 8, few people": (geometric(8, 2.0), 0, 7, 10**3, 0.263138),
    "line of 8, epsilon 4": (geometric(8, 4.0), 0, 7, 10**5, 0.0697224),
    "exponential, line": (exponential(line(16), 4.0), 0, 15, 10**5, 0.0147745),
    "exponential, grid": (exponential(grid(6), 4.0), 0, 35, 10**5, 0.0110143),
    "planar": (planar(6, 2.0), 0, 35, 10**5, 0.0552803),
    "RAPPOR": (rappor(8, 2.0), 0, 1, 10**5, 0.0219639),
}


def homogeneous_lower(rows: Floats, a: int, b: int, users: int, delta: float) -> float:
    """What some data set in which all others hold the same input gives away."""
    held = {a, b, len(rows) - 1}
    return max(
        blanket.epsilon_lower(BlanketLaw.from_rows(rows, a, b, [x]), users, delta, relative=1e-5)
        for x in held
    )


@pytest.mark.parametrize("name", GOLDEN)
def test_golden_values(name: str) -> None:
    rows, a, b, users, golden = GOLDEN[name]
    found = epsilon_upper(InputClassLaws.from_rows(rows, a, b), users, 1e-6)
    # never above; below by no more than finer blocks of T and a better line of integration explain
    assert golden * (1.0 - (2e-4 if users == 1000 else 1e-4)) <= found <= golden * (1.0 + 2e-5)
    assert delta_upper(InputClassLaws.from_rows(rows, a, b), users, found) <= 1e-6
    lower = homogeneous_lower(rows, a, b, users, 1e-6)
    assert lower <= found <= lower * (1.004 if users == 1000 else 1.0005)
    assert (
        found
        <= blanket.epsilon_upper(BlanketLaw.from_rows(rows, a, b), users, 1e-6, relative=1e-5)
        / 1.15
    )


FORTY_DIGITS = [
    (8, 2.0, 0.02, 10**5, 0.006, "1.482641670937e-6"),
    (8, 4.0, 0.07, 10**5, 0.0015, "1.680878140826e-6"),
    pytest.param(4, 1.0, 0.2, 200, 0.2, "5.798977759287e-5", marks=pytest.mark.slow),
    (3, 2.0, 0.5, 50, 0.25, ".1178469701437"),
]


@pytest.mark.parametrize(("size", "local", "epsilon", "users", "s", "golden"), FORTY_DIGITS)
def test_forty_digits_of_the_contour_sum(
    size: int, local: float, epsilon: float, users: int, s: float, golden: str
) -> None:
    types = InputClassLaws.from_rows(geometric(size, local), 0, size - 1).at(epsilon)
    (found,) = psi_upper(types, np.array([float(users)]), (s, 36.0))
    assert float(golden) * (1.0 - 1e-12) <= found <= float(golden) * (1.0 + 1e-9)
    (chosen,) = psi_upper(types, np.array([float(users)]))
    assert chosen <= found * (1.0 + 1e-9)  # any s is valid; the one that is chosen is better
    if users == 200:
        with mpmath.workdps(40):
            exact = contour_sum(geometric(size, local), 0, size - 1, epsilon, users, s)
        assert exact <= found <= exact * (1 + mpmath.mpf(10) ** -10)


def contour_sum(rows: Floats, a: int, b: int, epsilon: float, users: int, s: float) -> mpmath.mpf:
    """Theorem D with h = 0.05/s and D = 2 pi s/36."""
    step = 2 * mpmath.pi * mpmath.mpf(s) / 36
    smooth = mpmath.mpf(kernels.SMOOTHING_DEVIATION) / mpmath.mpf(s)
    growth = mpmath.exp(mpmath.mpf(epsilon))
    laws = [
        [
            (mpmath.mpf(p), (mpmath.mpf(x) - growth * mpmath.mpf(y)) / mpmath.mpf(p))
            for p, x, y in zip(row, rows[a], rows[b], strict=True)
        ]
        for row in rows.tolist()
    ]

    def term(law: list[tuple[mpmath.mpf, mpmath.mpf]], k: int) -> mpmath.mpf:
        z = mpmath.mpc(s, step * k)
        moment = 1 + mpmath.fsum(p * mpmath.expm1(z * value) for p, value in law)
        return abs(moment) ** users * abs(mpmath.exp(smooth**2 * z**2 / 2) / z**2)

    last = int(14 / smooth / step)
    sums = (term(law, 0) + 2 * mpmath.fsum(term(law, k) for k in range(1, last)) for law in laws)
    return step / (2 * mpmath.pi * users) * max(sums)


def random_weights(source: random.Random, *, zeros: bool) -> Weights:
    inputs = source.randint(2, 4)
    outputs = source.randint(2, 4)
    total = source.choice((6, 12, 30))
    rows = []
    for _ in range(inputs):
        if zeros:
            cuts = sorted(source.randint(0, total) for _ in range(outputs - 1))
            rows.append([high - low for low, high in zip([0, *cuts], [*cuts, total], strict=True)])
        else:
            row = [source.randint(3, 5) for _ in range(outputs - 1)]
            rows.append([*row, 5 * outputs - sum(row)])
    return rows


def classes_of(source: random.Random, inputs: int) -> list[list[int]] | None:
    if source.random() < 0.7:
        return None
    order = source.sample(range(inputs), inputs)
    many = source.randint(1, inputs)
    return [order[place::many] for place in range(many)]


def compare_with_data_sets(source: random.Random, *, zeros: bool, most: int) -> tuple[int, int]:
    """Compare one random channel with every data set.

    Returns their number, and whether the bound improved on a single report.
    """
    rows = random_weights(source, zeros=zeros)
    a, b = source.sample(range(len(rows)), 2)
    if rows[a] == rows[b]:
        return 0, 0
    users = source.randint(2, most if len(rows) < 4 else 4)
    growth = 1 + Fraction(source.randint(0, 30), source.choice((10, 30, 100)))
    exact = every_data_set(rows, a, b, users, growth)
    total = sum(rows[0])
    law = InputClassLaws.from_rows(
        np.array(rows) / total, a, b, classes=classes_of(source, len(rows))
    )
    found = delta_upper(law, users, math.log(growth), directions="forward")
    assert found >= float(max(exact.values())) * (1.0 - 1e-12), (rows, a, b, users, growth)
    local = (
        float(
            sum(
                max(Fraction(0), Fraction(x) - growth * y)
                for x, y in zip(rows[a], rows[b], strict=True)
            )
        )
        / total
    )
    assert found <= local * (1.0 + 1e-12) + 1e-14
    return len(exact), int(found < local * (1.0 - 1e-3))


def test_no_data_set_exceeds_the_full_law_bound() -> None:
    source = random.Random(12)
    looked = 0
    useful = 0
    for turn in range(1_000):
        data_sets, below_local = compare_with_data_sets(source, zeros=turn % 2 == 0, most=5)
        looked = looked + data_sets
        useful = useful + below_local
    assert looked > 6_000
    assert useful > 150


@pytest.mark.slow
def test_no_data_set_exceeds_the_full_law_bound_many_times() -> None:
    source = random.Random(123)
    looked = 0
    useful = 0
    for turn in range(15_000):
        data_sets, below_local = compare_with_data_sets(source, zeros=turn % 2 == 0, most=6)
        looked = looked + data_sets
        useful = useful + below_local
    assert looked > 100_000
    assert useful > 3_000


def test_mixed_compositions_in_fractions() -> None:
    """Theorem D against Psi of every composition, Theorem A against the truth, both exactly."""
    source = random.Random(9)
    looked = 0
    for turn in range(60):
        weights = random_weights(source, zeros=turn % 2 == 0)
        rows = [[Fraction(x, sum(row)) for x in row] for row in weights]
        a, b = source.sample(range(len(rows)), 2)
        if rows[a] == rows[b]:
            continue
        growth = 1 + Fraction(source.randint(0, 20), 20)
        people = source.randint(1, 4)
        types = InputClassLaws.from_rows(np.array(weights) / sum(weights[0]), a, b).at(
            math.log(growth)
        )
        exact, _ = largest_psi(rows, a, b, people, growth)
        assert psi_upper(types, np.array([float(people)]))[0] >= float(exact) * (1.0 - 1e-12)
        truth = max(every_data_set(weights, a, b, people + 1, growth).values())
        assert truth <= displaced(rows, a, b, people + 1, growth)
        looked += math.comb(len(rows) + people - 1, people)
    assert looked > 200


def test_shortcuts_that_were_refuted() -> None:
    coin = [[3, 1], [1, 3]]
    same, mixed = (
        shuffled_delta(coin[0], coin[1], [coin[x] for x in held], Fraction(1))
        for held in ((0, 0), (0, 1))
    )
    assert (same, mixed) == (
        Fraction(9, 32),
        Fraction(5, 16),
    )  # all others alike is not exactly the worst
    average = (same + shuffled_delta(coin[0], coin[1], [coin[1], coin[1]], Fraction(1))) / 2
    assert mixed > average  # nor is a mixed data set below the average of those
    rows = [[Fraction(5, 9), Fraction(4, 9)], [Fraction(6, 7), Fraction(1, 7)]]
    vertices = [psi(rows[0], rows[1], [rows[x]] * 3, Fraction(3, 2)) for x in (0, 1)]
    inside = psi(rows[0], rows[1], [rows[0], rows[1], rows[1]], Fraction(3, 2))
    swapped = [psi(rows[1], rows[0], [rows[x]] * 3, Fraction(3, 2)) for x in (0, 1)]
    swapped_inside = psi(rows[1], rows[0], [rows[0], rows[1], rows[1]], Fraction(3, 2))
    # Psi is not largest where all are alike
    assert (Fraction(10811, 166698), Fraction(95, 2058)) in (
        (inside, max(vertices)),
        (swapped_inside, max(swapped)),
    )
    rows = [[Fraction(2, 5), Fraction(3, 5)], [Fraction(2, 7), Fraction(5, 7)]]
    weights = [[int(35 * x) for x in row] for row in rows]
    growth = Fraction(11, 10)
    wrong = 0
    for a, b in ((0, 1), (1, 0)):
        truth = max(every_data_set(weights, a, b, 5, growth).values())
        largest = largest_psi(rows, a, b, 5, growth)[0]
        if truth > largest:  # so leaving out T would be false
            wrong += 1
            assert float(truth) == pytest.approx(0.0146606, abs=1e-7)
            assert float(largest) == pytest.approx(0.0145966, abs=1e-7)
        law = InputClassLaws.from_rows(np.array(rows, dtype=np.float64), a, b)
        assert delta_upper(law, 5, math.log(growth), directions="forward") >= truth
    assert wrong == 1


def test_three_reports_and_more_people() -> None:
    source = random.Random(40)
    for _ in range(2):
        weights = [[source.randint(2, 6) for _ in range(2)] for _ in range(3)]
        weights = [[*row, 14 - sum(row)] for row in weights]
        if weights[0] == weights[1]:
            continue
        growth = Fraction(11, 10)
        law = InputClassLaws.from_rows(np.array(weights) / 14.0, 0, 1)
        found = delta_upper(law, 12, math.log(growth), directions="forward")
        for first, second in itertools.product(range(0, 12, 3), repeat=2):
            if first + second <= 11:
                held = (
                    [weights[0]] * first
                    + [weights[1]] * second
                    + [weights[2]] * (11 - first - second)
                )
                assert float(shuffled_delta(weights[0], weights[1], held, growth)) <= found


@check_all("users", [100, 10**4, 10**9, 10**12])
def test_two_reports_are_close_to_exact(users: int) -> None:
    rows = response(2, 1.0)
    exact = epsilon_bracket(BinaryReports.from_rows(rows, 0, 1), users, 1e-4 / users).upper
    found = epsilon_upper(InputClassLaws.from_rows(rows, 0, 1), users, 1e-4 / users)
    assert exact * (1.0 - 2e-6) <= found <= exact * (1.06 if users == 100 else 1.0007)


def test_classes_cost_little() -> None:
    rows = geometric(33, 2.0)
    one_by_one = epsilon_upper(InputClassLaws.from_rows(rows, 0, 32), 10**5, 1e-6)
    grouped = epsilon_upper(
        InputClassLaws.from_rows(
            rows, 0, 32, classes=[range(i, min(i + 4, 33)) for i in range(0, 33, 4)]
        ),
        10**5,
        1e-6,
    )
    assert one_by_one * (1.0 - 1e-5) <= grouped <= 1.02 * one_by_one


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10**6), st.integers(2, 10**6), st.floats(0.0, 1.2))
@example(2709, 2381, 0.625)
def test_properties(seed: int, users: int, epsilon: float) -> None:
    rows = np.array(random_weights(random.Random(seed), zeros=seed % 3 == 0), dtype=np.float64)
    rows /= rows.sum(axis=1, keepdims=True)
    law = InputClassLaws.from_rows(rows, 0, 1)
    found = delta_upper(law, users, epsilon)
    local = max(
        float(np.maximum(p - math.exp(epsilon) * q, 0.0).sum())
        for p, q in ((rows[0], rows[1]), (rows[1], rows[0]))
    )
    assert 0.0 <= found <= local * (1.0 + 1e-12) + 1e-13
    for way in (law, law.reversed):
        here, farther = (
            delta_upper(way, users, at, directions="forward") for at in (epsilon, epsilon + 0.05)
        )
        if here < 1e-220:  # soon the sum underflows, and what one report alone shows is left
            continue
        assert farther <= here * (1.0 + 1e-3) + 1e-15  # falls in epsilon
        if seed % 3:
            # and in n, but for where the line of integration goes (reports that some cannot make
            # count in full at any n)
            more = delta_upper(way, 2 * users, epsilon, directions="forward")
            assert here < 1e-110 or more <= here * (1.0 + 1e-3) + 1e-15
    lower = max(
        blanket.delta_lower(BlanketLaw.from_rows(rows, 0, 1, [x]), users, epsilon)
        for x in range(len(rows))
    )
    assert lower <= found * (1.0 + 1e-12)


def test_what_is_no_number_is_never_small(monkeypatch: pytest.MonkeyPatch) -> None:
    law = InputClassLaws.from_rows(geometric(4, 1.0), 0, 3)
    local = law.at(0.2).local
    for wrong in (math.nan, -math.inf, math.inf, -1.0):
        monkeypatch.setattr(
            kernels, "hoelder", lambda users, *_, wrong=wrong: np.full(users.size, wrong)
        )
        assert delta_upper(law, 1000, 0.2) == local
        assert epsilon_upper(law, 1000, 1e-6) == pytest.approx(1.0, rel=1e-4)
    monkeypatch.undo()
    types = law.at(0.2)
    hurt = types._replace(value=np.full(types.value.size, np.nan))
    assert np.all(
        kernels.hoelder(np.array([10.0]), hurt.starts, hurt.mass, hurt.value, hurt.doubt, 0.1, 36.0)
        == math.inf
    )
    assert full_law_bound.psi_upper(hurt, np.array([10.0]))[0] >= 0.0


def test_no_common_report_leaves_the_local_delta() -> None:
    law = InputClassLaws.from_rows([[0.5, 0.5, 0.0], [0.0, 0.5, 0.5], [0.5, 0.0, 0.5]], 0, 1)
    assert law.blanket == 0.0
    assert law.pure == math.inf
    assert delta_upper(law, 10**6, 0.3) == pytest.approx(0.5, rel=1e-12)
    assert delta_upper(InputClassLaws.from_rows(response(3, 1.0), 0, 1), 1, 0.3) == pytest.approx(
        (math.e - math.exp(0.3)) / (math.e + 2.0), rel=1e-12
    )


def test_a_report_that_one_type_cannot_make_counts_in_full() -> None:
    rows = np.array([[0.4, 0.4, 0.2], [0.35, 0.45, 0.2], [0.5, 0.5, 0.0]])
    law = InputClassLaws.from_rows(rows, 0, 1)
    assert law.at(0.0).bare == pytest.approx(0.0, abs=1e-15)
    rows[1] = [0.4, 0.5, 0.1]
    law = InputClassLaws.from_rows(rows, 0, 1)
    assert law.at(0.0).bare == pytest.approx(0.1, rel=1e-12)
    assert delta_upper(law, 10**6, 0.0, directions="forward") >= 0.1


def test_equal_types_count_once_and_both_directions_are_found_alike() -> None:
    law = InputClassLaws.from_rows(rappor(5, 1.0), 0, 1)
    assert len(law.types) <= 5
    assert InputClassLaws.from_rows(response(6, 1.0), 0, 1).symmetric
    assert len(InputClassLaws.from_rows(response(6, 1.0), 0, 1).types) == 3
    assert law.reversed.reversed.pure == law.pure


def test_wrong_input_is_refused() -> None:
    with pytest.raises(InputError, match="must be rows"):
        InputClassLaws.from_rows(np.eye(2), 0, 2)
    with pytest.raises(InputError, match="sum to one"):
        InputClassLaws.from_rows([[0.5, 0.6], [0.5, 0.5]], 0, 1)
    with pytest.raises(InputError, match="same reports"):
        InputClassLaws.from_laws([0.5, 0.5], [1.0], [[0.5, 0.5]])
    with pytest.raises(InputError, match="exactly once"):
        InputClassLaws.from_rows(response(3, 1.0), 0, 1, classes=[[0], [1, 1, 2]])
    with pytest.raises(InputError, match="excess"):
        InputClassLaws.from_laws([0.5, 0.5], [0.4, 0.6], [[0.5, 0.5]], excess=[0.2, -0.2])
    half = np.array([0.5])
    with pytest.raises(InputError, match="every input class"):
        InputClassLaws.of([InputClassLaw(half, half, half, 0.0 * half, half)], 0.5)
    with pytest.raises(InputError, match="users"):
        delta_upper(InputClassLaws.from_rows(response(3, 1.0), 0, 1), 0, 0.1)
