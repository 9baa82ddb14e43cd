"""The supplement as printed, compared with exact variance, sharper factor and all outcomes."""

from __future__ import annotations

import math
from itertools import product

import numpy as np
import pytest
from tests.oracles.same_others import count_laws, divergence
from tests.tables import check_all

from metricshuffle.accounting.shuffling.blanket_bound import BlanketLaw, delta_lower, epsilon_lower
from metricshuffle.accounting.shuffling.clone_bound import ClonePair, delta_upper, epsilon_upper
from metricshuffle.accounting.shuffling.closed_form_bounds import corollary_1, theorem_1
from metricshuffle.amplification.padded_exponential_lower import pem_laws
from metricshuffle.errors import ConditionError, InputError
from metricshuffle.randomizers import PaddedExponential, WitchHat
from metricshuffle.randomizers.witch_hat import WitchHatDensity
from metricshuffle.spaces import closure
from metricshuffle.spaces.distance_matrix import open_triangle
from metricshuffle_papers.metric_supplement import formulas as paper

# WitchHat's variance: unsafe


def test_the_printed_variance_is_below_the_exact_one() -> None:
    density = WitchHatDensity(10.0, 2.0, 5.0)
    claim = paper.witch_hat_variance_bound(10.0, 2.0, 5.0, 6.0)
    assert claim.claim == pytest.approx(290.79178419, rel=1e-10)
    assert claim.verdict == "false"
    assert density.variance(6.0) == pytest.approx(299.017165938, rel=1e-10)
    assert density.variance_bound(6.0) == pytest.approx(333.936122694, rel=1e-10)
    z = np.linspace(-15.0, 15.0, 300_001)
    law = np.exp(-np.minimum(0.4 * np.abs(z - 6.0), 2.0)) / density.normaliser
    truth = float(np.trapezoid(law * (density.scale * z) ** 2, z)) - 36.0
    assert truth == pytest.approx(299.017165938, rel=1e-7)
    # What is sampled has an exact variance of its own, and it is above the printed bound too.
    assert WitchHat(10, 2.0, 0.4, steps=1000).variance(6.0) > claim.claim


def test_the_printed_variance_misses_a_fifth() -> None:
    exact = WitchHatDensity(164.6, 4.49, 50.0)
    worst = max(
        exact.variance(x) / paper.witch_hat_variance_bound(164.6, 4.49, 50.0, x).claim
        for x in np.linspace(0, 164.6, 20)
    )
    assert worst == pytest.approx(1.21, abs=0.01)
    assert all(exact.variance(x) <= exact.variance_bound(x) for x in np.linspace(0, 164.6, 20))


# Theorem 1's factor: valid and loose


def test_the_printed_factor_is_ten_times_too_large() -> None:
    """D = 0.1, reach 1, c beyond b, a million users, delta = 0.01/n."""
    log_ratio = math.log(math.exp(1.0) + math.exp(0.9))
    claim = paper.theorem_1_epsilon(0.1, log_ratio, 10**6, 1e-8)
    assert claim.claim == pytest.approx(0.010755, abs=5.1e-7)
    assert claim.verdict == "loose"
    sharper = theorem_1(0.1, log_ratio, 10**6, 1e-8)
    assert sharper == pytest.approx(0.001028, abs=5.1e-7)
    assert epsilon_upper(ClonePair(0.1, 1.0, 1.0), 10**6, 1e-8) < sharper


def test_the_printed_factor_does_not_vanish_with_the_distance() -> None:
    claims = [
        paper.theorem_1_epsilon(local, 1.7, 10_000, 1e-6).claim for local in (1e-9, 1e-3, 1.0, 20.0)
    ]
    assert claims == sorted(claims)
    assert claims[0] > 0.1
    assert theorem_1(1e-9, 1.7, 10_000, 1e-6) <= 1e-9
    for local, claim in zip((1e-9, 1e-3, 1.0), claims, strict=False):
        assert claim >= theorem_1(local, 1.7, 10_000, 1e-6)


# Algorithm 2's loops: valid and weak


def test_algorithm_2_misses_outcomes() -> None:
    claim, every = (
        paper.algorithm_2_epsilon(2.0, 2.5, 1.0, 60, 1e-4, printed=printed)
        for printed in (True, False)
    )
    assert claim.claim == pytest.approx(0.9603, abs=5.1e-5)
    assert every.claim == pytest.approx(1.6572, abs=5.1e-5)
    assert (claim.verdict, every.verdict) == ("loose", "true")
    assert paper.algorithm_2_epsilon(1.0, 2.0, 1.0, 60, 1e-4, printed=False).claim == pytest.approx(
        0.6535625047, abs=1e-9
    )


@check_all(("ab", "ac", "bc"), [(1.0, 2.0, 1.0), (2.0, 2.5, 1.0), (0.3, 1.0, 1.2), (1.0, 1.0, 1.0)])
def test_all_outcomes_are_the_mechanism_itself(ab: float, ac: float, bc: float) -> None:
    """The library's mechanism and exact blanket, an enumeration, and the upper bound."""
    randomizer = PaddedExponential([[0, ab, ac], [ab, 0, bc], [ac, bc, 0]], 1.0)
    rows = randomizer.rows()
    users = 25
    lower = paper.algorithm_2_epsilon(ab, ac, bc, users, 1e-3, printed=False).claim
    laws = count_laws(rows[0], rows[1], rows[2], users)
    assert divergence(*laws, lower * (1 - 1e-6)) > 1e-3 >= divergence(*laws, lower * (1 + 1e-6))
    assert delta_lower(BlanketLaw.from_rows(rows, 0, 1, [2]), users, lower * 0.999) > 1e-3
    assert delta_upper(ClonePair(ab, max(ab, ac), max(ab, bc)), users, lower * (1 - 1e-6)) > 1e-3
    assert paper.algorithm_2_epsilon(ab, ac, bc, users, 1e-3).claim <= lower
    library = max(epsilon_lower(law, users, 1e-3) for law in pem_laws(ab, ac, bc))
    assert library >= lower * (1 - 1e-6), "it looks at others at a and at b too"


def test_three_points_bound_three_points_only() -> None:
    """On a cycle of 12 the normaliser over a, b, c is too small.

    The mechanism there is another one, and its lower bound lower.
    """
    hops = np.minimum(
        np.abs(np.arange(12)[:, None] - np.arange(12)),
        12 - np.abs(np.arange(12)[:, None] - np.arange(12)),
    )
    whole = PaddedExponential(hops, 0.5, kept=(3, 4, 9)).rows()
    alone = paper.algorithm_2_epsilon(0.5, 3.0, 2.5, 60, 1e-3, printed=False).claim
    laws = count_laws(whole[3], whole[4], whole[9], 60)
    assert divergence(*laws, 0.95 * alone) < 1e-3


# Algorithms 1 and 3 return semi-metrics


def test_algorithm_1_returns_a_semi_metric() -> None:
    """Nine points on [0, 1], target |x - y|: close it, then account again.

    1e5 users, delta = 1e-6.
    """
    target = np.abs(np.arange(9.0)[:, None] - np.arange(9.0)) / 8.0
    for diameter in (3.5, 4.5, 5.5):
        local = paper.algorithm_1_semi_metric(target, diameter, 100_000, 1e-6)
        assert open_triangle(local) is not None
        defect = max(
            local[i, k] - local[i, j] - local[j, k] for i, j, k in product(range(9), repeat=3)
        )
        assert defect > 0.9
        assert np.allclose(local, local.T)
        assert local.max() == diameter
        closed = closure(local)
        assert open_triangle(closed) is None
        assert np.all(closed <= local)
        assert closed.max() < diameter or closed.max() == pytest.approx(diameter)
        for i, j in ((0, 1), (0, 4), (0, 8), (3, 5)):
            # Feasible by Corollary 1 with the semi-metric; and accounted again, by clones, with
            # what a mechanism really gets.
            assert min(local[i, j], corollary_1(local[i, j], diameter, 100_000, 1e-6)) <= target[
                i, j
            ] * (1 + 1e-9)
            pair = ClonePair(
                *(float(value) for value in (closed[i, j], closed[i].max(), closed[j].max()))
            )
            assert epsilon_upper(pair, 100_000, 1e-6) <= target[i, j]
    assert paper.algorithm_1_semi_metric(target, 9.0, 100_000, 1e-6) == pytest.approx(target), (
        "too few clones: nothing gained"
    )


# Input


@check_all(
    ("call", "error", "words"),
    [
        (lambda: paper.witch_hat_variance_bound(1.0, 2.0, 0.5, 1.5), InputError, "within"),
        (lambda: paper.witch_hat_variance_bound(1.0, math.nan, 0.5, 0.5), InputError, "epsilon"),
        (lambda: paper.theorem_1_epsilon(1.0, 1.7, 20, 1e-6), ConditionError, "Omega"),
        (lambda: paper.algorithm_2_epsilon(0.5, 3.0, 1.0, 20, 1e-3), ConditionError, "triangle"),
        (lambda: paper.algorithm_2_epsilon(1.0, 2.0, 1.0, 5000, 1e-3), InputError, "at most"),
        (lambda: paper.algorithm_1_semi_metric([[0.0]], 1.0, 100, 0.0), InputError, "delta"),
    ],
)
def test_wrong_input_is_a_sentence(call: object, error: type[Exception], words: str) -> None:
    assert callable(call)
    with pytest.raises(error, match=words):
        call()
