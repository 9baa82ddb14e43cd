"""Known faults of published errors and baselines for users with many items.

Unsafe ones first. Bounds on privacy: test_errata_users.py.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import mpmath
import numpy as np
import pytest
from tests.oracles.counterexamples import assert_no_guarantee
from tests.tables import check_all

from metricshuffle.accounting.composition.pure_responses import ComposedResponses
from metricshuffle.estimation.share_projection import simplex_projection
from metricshuffle_papers.earth_mover import error_bounds as errors
from metricshuffle_papers.earth_mover.error_bounds import Clusters

# Lemma 6.7: unsafe


def test_the_laplace_histogram_is_two_epsilon_private() -> None:
    """One user of ten moves everything: beyond both values densities differ by e^(2 epsilon)."""
    epsilon = 0.5
    users = 10
    claim = errors.lemma_6_7_scale(epsilon, users)
    one = np.array([0.6, 0.4])
    other = np.array([0.5, 0.5])

    def log_density(answer: np.ndarray, shares: np.ndarray, scale: float) -> float:
        return float(-np.abs(answer - shares).sum() / scale)

    answer = np.array([0.9, 0.1])
    assert log_density(answer, one, claim.claim) - log_density(
        answer, other, claim.claim
    ) == pytest.approx(2 * epsilon, rel=1e-12)
    assert log_density(answer, one, 2 * claim.claim) - log_density(
        answer, other, 2 * claim.claim
    ) == pytest.approx(epsilon, rel=1e-12)
    assert claim.verdict == "false"
    assert_no_guarantee(claim)


def test_normalising_can_make_it_worse() -> None:
    truth = np.array([0.6, 0.4])
    noisy = np.array([0.6, -0.5])
    normalised = noisy / noisy.sum()
    assert normalised.tolist() == pytest.approx([6.0, -5.0])
    assert np.abs(normalised - truth).sum() > 10 * np.abs(noisy - truth).sum()
    assert np.abs(simplex_projection(noisy) - truth).sum() < np.abs(noisy - truth).sum()


# Lemma 6.4's budget: unsafe


def many_responses(rounds: int, cost: float, epsilon: float) -> float:
    """delta of that many randomized responses, forty digits."""
    with mpmath.workdps(40):
        c = mpmath.mpf(cost)
        p = 1 / (1 + mpmath.exp(-c))
        tail = range(math.ceil((epsilon / cost + rounds) / 2), rounds + 1)
        return float(
            mpmath.fsum(
                mpmath.binomial(rounds, j)
                * p**j
                * (1 - p) ** (rounds - j)
                * (1 - mpmath.exp(epsilon - (2 * j - rounds) * c))
                for j in tail
            )
        )


@check_all(
    ("items", "epsilon", "delta", "truth"),
    [
        (1000, 5.0, 1e-6, 5.97e-6),
        (1000, 3.0, 1e-6, 1.44e-6),
        (100, 4.0, 1e-9, 1.24e-7),
        (1000, 2.0, 1e-6, 5.99e-7),
        (1000, 1.0, 1e-6, 1.85e-7),
    ],
)
def test_the_budget_of_lemma_6_4(items: int, epsilon: float, delta: float, truth: float) -> None:
    claim = errors.lemma_6_4_budget(epsilon, delta, items)
    exact = many_responses(items, claim.claim, epsilon)
    assert exact == pytest.approx(truth, rel=5e-3)
    assert ComposedResponses(claim.claim, items).delta(epsilon, 1.0) == pytest.approx(
        exact, rel=1e-9
    )
    assert claim.verdict == ("false" if exact > delta else "loose")
    assert_no_guarantee(claim)


@check_all(("items", "epsilon", "share"), [(10_000, 300.0, 0.5), (1_000_000, 2000.0, 0.2)])
def test_no_constant_repairs_the_budget(items: int, epsilon: float, share: float) -> None:
    """With c times the budget the mean loss exceeds epsilon once epsilon is large enough.

    It is about c^2 epsilon^2/(2 ln(m/delta)).
    """
    budget = errors.lemma_6_4_budget(epsilon, 1e-6, items)
    assert budget.verdict == "false"
    assert ComposedResponses(share * budget.claim, items).delta(epsilon, 1.0) > 0.5


# The proof of Theorem 6.6


def test_steps_of_the_proof_of_theorem_6_6() -> None:
    start, middle, last, _, _ = errors.theorem_6_6_steps(Clusters(3, 4, 0.3), 2.5)
    assert (middle.claim, last.claim) == pytest.approx((111.3, 89.3), abs=0.05)
    assert last.verdict == "false"
    assert start.claim < last.claim
    *_, ratio, simpler = errors.theorem_6_6_steps(Clusters(10, 2, 0.01), 0.05)
    assert (ratio.claim, simpler.claim) == pytest.approx((21_030, 20_000), abs=0.5)
    assert simpler.verdict == "false"
    assert_no_guarantee(last)


# The error of the worked example


def test_the_mean_error_of_an_average_of_laplace_noise() -> None:
    claim = errors.example_error(25.0, 10**5)
    assert claim.claim == pytest.approx(1.26e-4, abs=6e-7)
    # E|sum of n Laplace(1)| = 2n binom(2n, n)/4^n: the sum is the difference of two Gamma(n)
    # variables.
    n = 10**5
    log_mean = (
        math.log(2 * n) + math.lgamma(2 * n + 1) - 2 * math.lgamma(n + 1) - 2 * n * math.log(2)
    )
    exact = 0.04 * math.exp(log_mean) / n
    limit = 0.04 * 2 / math.sqrt(math.pi * n)
    assert limit == pytest.approx(1.42729929292e-4, rel=1e-11)
    assert exact == pytest.approx(limit, rel=1e-5)
    assert exact * 12_930 == pytest.approx(1.85, abs=5e-3)
    assert exact > 1.12 * claim.claim
    assert claim.verdict == "false"


# Nothing here can become a guarantee


METRIC = Clusters(4, 5, 0.1)
PUBLISHED: list[Callable[[], object]] = [
    lambda: errors.lemma_6_1_error(1.0, 2, 1.0, 9),
    lambda: errors.lemma_6_2_error(1.0, 2, 1.0, 1e-6, 9),
    lambda: errors.lemma_6_3_error(1.0, 2, 1.0, 9, 8),
    lambda: METRIC,
    lambda: errors.lemma_6_4_error(20, 5, 9, 1.0, 1e-6),
    lambda: errors.theorem_6_5_error(METRIC, np.eye(20), 9),
    lambda: errors.equation_9_error(METRIC, 1.0, 9),
    lambda: errors.remark_error(METRIC, 1.0, 1e-6, 9, 5, "local"),
    lambda: errors.lemma_6_7_error(20, 1.0, 9),
    lambda: errors.example_error(25.0, 9),
    lambda: errors.example_rate([(1.0, 0.1, 1.0)]),
]


@check_all("published", PUBLISHED)
def test_no_published_error_becomes_a_guarantee(published: Callable[[], object]) -> None:
    assert_no_guarantee(published())
