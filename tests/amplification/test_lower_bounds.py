"""Lower bounds of real data sets: golden values, brute force, never above the truth."""

from __future__ import annotations

import math
import random
from fractions import Fraction

import mpmath
import numpy as np
import pytest
from tests.oracles.shuffled_brute_force import every_data_set, shuffled_delta
from tests.tables import check_all

from metricshuffle.accounting.shuffling import blanket_bound as blanket
from metricshuffle.accounting.shuffling.blanket_law import BlanketLaw
from metricshuffle.accounting.shuffling.clone_bound import ClonePair
from metricshuffle.accounting.shuffling.clone_bound import epsilon_upper as clones_epsilon
from metricshuffle.amplification import lower_bound as lower_bounds
from metricshuffle.amplification.amplify import amplify
from metricshuffle.amplification.lower_bound import (
    DataSetLower,
    homogeneous_laws,
    information,
    krr_data_sets,
    merged_pair,
    most_informative_rows,
    own_data_sets,
)
from metricshuffle.amplification.padded_exponential_lower import (
    BOUND_LABEL,
    pem_laws,
    pem_lower,
    pem_rows,
)
from metricshuffle.errors import ConditionError, InputError
from metricshuffle.randomizers import Duchi


def published_merged_pair(
    users: int, p: float, beta: float, q0: float, q1: float, epsilon: float
) -> tuple[float, float]:
    """H(P||Q) and H(Q||P) of Proposition I.1, with low_c and the weights of c corrected."""
    mp = mpmath
    e = mp.exp(epsilon)
    alpha = mp.mpf(beta) / (p - 1)
    s = 1 - alpha - p * alpha
    r0 = alpha * p / q0
    r1 = alpha * p / q1

    def threshold(c: int, e: mpmath.mpf) -> mpmath.mpf:
        rest = 0 if r0 + r1 == 1 else (e - 1) * s * (users - c) / (1 - r0 - r1)
        return ((e * p - 1) * alpha * c / r1 + rest) / (alpha * ((p - e) / r0 + (p * e - 1) / r1))

    def mass(c: int, low: int, high: int) -> mpmath.mpf:
        rho = r0 / (r0 + r1)
        return mp.fsum(
            mp.binomial(c, j) * rho**j * (1 - rho) ** (c - j)
            for j in range(max(low, 0), min(high, c) + 1)
        )

    forwards = backwards = mp.mpf(0)
    for c in range(users):
        weight = mp.binomial(users - 1, c) * (r0 + r1) ** c * (1 - r0 - r1) ** (users - 1 - c)
        one, same = int(mp.ceil(threshold(c + 1, e))), int(mp.ceil(threshold(c, e)))
        forwards += weight * (
            (p - e) * alpha * mass(c, one - 1, c)
            + (1 - p * e) * alpha * mass(c, one, c)
            + (1 - e) * s * mass(c, same, c)
        )
        one, same = int(mp.floor(threshold(c + 1, 1 / e))), int(mp.floor(threshold(c, 1 / e)))
        backwards += weight * (
            (1 - p * e) * alpha * mass(c, 0, one - 1)
            + (p - e) * alpha * mass(c, 0, one)
            + (1 - e) * s * mass(c, 0, same)
        )
    return float(forwards), float(backwards)


def test_the_merged_pair_is_proposition_i_1() -> None:
    golden = merged_pair(math.log(3), 0.4, math.log(4), math.log(2))
    bracket = blanket.delta_bracket(golden, 5, 0.1, directions="forward")
    assert bracket.lower <= 0.186694624274 * (1 + 1e-11)
    assert bracket.lower == pytest.approx(0.186694624274, rel=1e-11)
    for users, p, beta, q0, q1, epsilon in (
        (5, 3.0, 0.4, 4.0, 2.0, 0.4),
        (7, 2.0, 0.3, 2.0, 3.0, 0.4),
        (12, 1.5, 0.1, 1.5, 2.0, 0.05),
    ):
        law = merged_pair(math.log(p), beta, math.log(q0), math.log(q1))
        forwards, backwards = published_merged_pair(users, p, beta, q0, q1, epsilon)
        assert blanket.delta_lower(law, users, epsilon, directions="forward") == pytest.approx(
            forwards, rel=1e-10
        )
        assert blanket.delta_lower(
            law.reversed, users, epsilon, directions="forward"
        ) == pytest.approx(backwards, rel=1e-10)
    # the values that the published weights and thresholds miss
    assert published_merged_pair(5, 3.0, 0.4, 4.0, 2.0, 0.4)[0] == pytest.approx(0.083908, abs=1e-6)


def test_the_merged_pair_has_conditions() -> None:
    with pytest.raises(ConditionError, match="beta"):
        merged_pair(1.0, 0.9, 1.0, 1.0)
    with pytest.raises(ConditionError, match="r0"):
        merged_pair(3.0, math.tanh(1.5), 0.0, 0.0)
    with pytest.raises(InputError, match="merged pair"):
        merged_pair(math.nan, 0.1, 1.0, 1.0)


@check_all(
    ("options", "own", "third"),
    [(4, Fraction(1, 20), Fraction(1, 36)), (3, Fraction(9, 125), Fraction(1, 25))],
)
def test_k_rr_with_two_users(options: int, own: Fraction, third: Fraction) -> None:
    laws = krr_data_sets(options, Fraction(3, options + 2), Fraction(1, options + 2))
    found = [blanket.delta_lower(law, 2, math.log(2.4)) for law in laws]
    assert found == pytest.approx([float(third), float(own)], rel=1e-11)
    assert all(low <= float(exact) for low, exact in zip(found, (third, own), strict=True))
    profile = DataSetLower(lambda _: laws, 2)
    assert profile.delta(math.log(2.4), 1.0) == pytest.approx(float(own), rel=1e-11)
    assert profile.delta(0.5, 0.0) == 0.0
    assert profile.epsilon(0.1, 0.0) == 0.0


def test_homogeneous_data_sets_are_exact() -> None:
    source = random.Random(5)
    for _ in range(12):
        weights = [[source.randint(0, 6) + (column == 0) for column in range(4)] for _ in range(3)]
        total = max(sum(row) for row in weights)
        channel = [[*row[:-1], row[-1] + total - sum(row)] for row in weights]
        rows = np.array(channel) / total
        users = source.randint(1, 5)
        growth = Fraction(source.randint(10, 25), 10)
        laws = homogeneous_laws(rows[0], rows[1], list(rows))
        for held, law in enumerate(laws):
            exact = shuffled_delta(channel[0], channel[1], [channel[held]] * (users - 1), growth)
            found = blanket.delta_lower(law, users, math.log(growth), directions="forward")
            assert found <= float(exact) * (1 + 1e-12) + 1e-15
            assert found == pytest.approx(float(exact), rel=1e-9, abs=1e-13)
        truth = max(
            max(every_data_set(channel, a, b, users, growth).values()) for a, b in ((0, 1), (1, 0))
        )
        assert _largest(laws, users, math.log(growth)) <= float(truth) * (1 + 1e-12) + 1e-15


def _largest(laws: list[BlanketLaw], users: int, epsilon: float) -> float:
    return DataSetLower(lambda _: laws, users).delta(epsilon, 1.0)


def test_many_reports_are_taken_one_by_one() -> None:
    generator = np.random.default_rng(3)
    rows = generator.dirichlet(np.full(600, 5.0), size=3)
    (law,) = homogeneous_laws(rows[0], rows[1], [rows[2]])
    assert law.mass.size == 600
    assert information(rows[0], rows[1], rows).shape == (3,)


def test_own_data_sets_come_from_the_blanket_alone() -> None:
    rows = np.array([[0.5, 0.3, 0.2], [0.3, 0.4, 0.3], [0.2, 0.3, 0.5]])
    law = blanket.BlanketLaw.from_rows(rows, 0, 1)
    for mine, full in zip(
        own_data_sets(law), homogeneous_laws(rows[0], rows[1], list(rows[:2])), strict=True
    ):
        for epsilon in (0.0, 0.1, 0.3):
            assert blanket.delta_lower(mine, 7, epsilon) == pytest.approx(
                blanket.delta_lower(full, 7, epsilon), rel=1e-9, abs=1e-14
            )


def test_pem_golden_values() -> None:
    rows = pem_rows([[0, 1, 2], [1, 0, 1], [2, 1, 0]], (0, 1, 2))
    assert 1.0 / rows[0, 0] == pytest.approx(1.87109416558, rel=1e-11)
    found = max(blanket.epsilon_lower(law, 60, 1e-4) for law in pem_laws(1.0, 2.0, 1.0))
    assert found == pytest.approx(0.6535625047, rel=1e-7)
    assert found <= 0.6535625047 * (1 + 1e-9)
    merged = merged_pair(1.0, rows[0, 0] - rows[0, 1], 2.0, 1.0)
    assert blanket.epsilon_lower(merged, 60, 1e-4) == pytest.approx(0.59716, abs=6e-6)


def algorithm_2(ab: float, ac: float, bc: float, users: int, epsilon: float) -> float:
    """The sum over all counts, with the loops that miss nothing."""
    rows = pem_rows([[0, ab, ac], [ab, 0, bc], [ac, bc, 0]], (0, 1, 2))
    others = rows[2]
    total = 0.0
    for one in range(users + 1):
        for two in range(users + 1 - one):
            for three in range(users + 1 - one - two):
                counts = (one, two, three, users - one - two - three)
                ways = math.factorial(users) / math.prod(math.factorial(count) for count in counts)
                chance = (
                    ways
                    * math.prod(p**count for p, count in zip(others, counts, strict=True))
                    / users
                )
                ratios = [
                    sum(c * k / o for c, k, o in zip(counts, row, others, strict=True))
                    for row in rows[:2]
                ]
                total += chance * max(0.0, ratios[0] - math.exp(epsilon) * ratios[1])
    return total


def test_pem_is_algorithm_2() -> None:
    law = pem_laws(2.0, 2.5, 1.0)[0]
    for epsilon in (0.2, 1.0):
        assert blanket.delta_lower(law, 9, epsilon, directions="forward") == pytest.approx(
            algorithm_2(2.0, 2.5, 1.0, 9, epsilon), rel=1e-9
        )


def test_pem_is_private_for_every_pair_of_the_domain() -> None:
    hops = np.abs(np.arange(12)[:, None] - np.arange(12))
    distances = 0.5 * np.minimum(hops, 12 - hops)
    rows = pem_rows(distances, (3, 4, 9))
    assert rows.sum(axis=1) == pytest.approx(1.0, abs=1e-14)
    with np.errstate(divide="ignore"):
        ratios = np.abs(np.log(rows[:, None, :]) - np.log(rows[None, :, :])).max(axis=2)
    assert np.all(ratios <= distances + 1e-12)
    assert 1.0 / rows[3, 0] == pytest.approx(
        2.5809, abs=1e-4
    )  # with the three points alone it would be 1.7384
    merged = blanket.epsilon_lower(merged_pair(0.5, rows[3, 0] - rows[3, 1], 3.0, 2.5), 1000, 1e-6)
    assert merged == pytest.approx(0.16654, abs=1e-5)
    assert (
        merged <= blanket.epsilon_lower(BlanketLaw.from_rows(rows, 3, 4, [9]), 1000, 1e-6) < 0.24209
    )
    with pytest.raises(ConditionError, match="triangle"):
        pem_rows([[0.0, 0.5, 3.0], [0.5, 0.0, 1.0], [3.0, 1.0, 0.0]], (0, 1, 2))
    with pytest.raises(InputError, match="square"):
        pem_rows([[0.0, 1.0]], (0, 1, 2))
    with pytest.raises(InputError, match="points"):
        pem_rows([[0.0, 1.0], [1.0, 0.0]], (0, 1, 2))
    with pytest.raises(InputError, match="ab > 0"):
        pem_laws(0.0, 1.0, 1.0)


def test_pem_stays_below_the_clones() -> None:
    source = random.Random(2)
    for _ in range(12):
        ab = source.uniform(0.05, 3.0)
        ac = source.uniform(0.1, 4.0)
        ac, bc = max(ac, ab), max(source.uniform(abs(ab - ac), ab + ac), ab)
        users = source.choice((2, 10, 300, 10**5, 10**9))
        delta = 10.0 ** -source.uniform(1.5, 9.0)
        low = pem_lower(1.0, ac, bc, users)
        assert low.bound == BOUND_LABEL
        reach_a = min(ac, bc + ab)
        reach_b = min(bc, ac + ab)
        assert low.epsilon(delta, ab) <= clones_epsilon(
            ClonePair(ab, reach_a, reach_b), users, delta
        )


def test_nothing_but_a_number_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    laws = krr_data_sets(3, Fraction(3, 5), Fraction(1, 5))
    for wrong in (math.nan, math.inf):
        monkeypatch.setattr(lower_bounds, "delta_lower", lambda *_, wrong=wrong, **__: wrong)
        monkeypatch.setattr(lower_bounds, "epsilon_lower", lambda *_, wrong=wrong, **__: wrong)
        profile = DataSetLower(lambda _: laws, 100)
        assert profile.delta(0.1, 1.0) == 0.0
        assert profile.epsilon(1e-6, 1.0) == 0.0


def test_wrong_laws_are_refused() -> None:
    with pytest.raises(InputError, match="must be 1"):
        krr_data_sets(3, Fraction(1, 2), Fraction(1, 5))
    assert len(krr_data_sets(2, Fraction(3, 4), Fraction(1, 4))) == 1


@check_all("wrong", [[[0, 1, 1], [2, 0, 1], [1, 1, 0]], [[0, 1, 1], [1, 0.5, 1], [1, 1, 0]]])
def test_pem_needs_a_metric(wrong: list[list[float]]) -> None:
    with pytest.raises(ConditionError, match="metric"):
        pem_rows(wrong, (0, 1, 2))


def test_others_with_the_same_information_are_not_all_alike() -> None:
    """Inputs of Duchi's mechanism with the largest information are of two kinds.

    The lower bound was 2 % short of the better one.
    """
    rows = Duchi(8, 2.0).rows()
    chosen = most_informative_rows(rows[0], rows[255], rows, 3)
    scores = information(rows[0], rows[255], rows)
    assert np.sum(scores > scores.max() * (1.0 - 1e-9)) > 20
    assert scores[chosen[:2]] == pytest.approx(scores.max())
    band = amplify(Duchi(8, 2.0), 10**4).epsilon(1e-10)
    assert band.lower <= band.upper <= 1.0005 * band.lower
