"""Total variation of every row of the published table: equal, upper bound, or corrected."""

from __future__ import annotations

import itertools
import math
from math import comb, exp

import numpy as np
import pytest
from tests.tables import check_all

from metricshuffle.randomizers import (
    Duchi,
    HadamardResponse,
    Harmony,
    KaryRandomizedResponse,
    LaplaceOnInterval,
    LocalHash,
    PaddedExponential,
    PckvGrr,
    PrivKV,
    Randomizer,
    Rappor,
    SubsetExponential,
    SubsetSelection,
)


def worst_variation(randomizer: Randomizer) -> float:
    rows = randomizer.rows()
    return max(
        0.5 * float(np.abs(rows[a] - rows[b]).sum())
        for a, b in itertools.combinations(range(len(rows)), 2)
    )


def test_equal_to_the_table() -> None:
    p = exp(1.0)
    d = 8
    k = 3
    s = 2
    for randomizer, beta in (
        (KaryRandomizedResponse(7, 1.0), (p - 1) / (p + 6)),
        (
            SubsetSelection(d, 1.0, k),
            (p - 1)
            * (comb(d - 1, k - 1) - comb(d - 2, k - 2))
            / (p * comb(d - 1, k - 1) + comb(d - 1, k)),
        ),
        (
            SubsetExponential(d, s, 1.0, k),
            (p - 1)
            * (comb(d - s, k) - comb(d - 2 * s, k))
            / (p * (comb(d, k) - comb(d - s, k)) + comb(d - s, k)),
        ),
        (HadamardResponse(7, 1.0, 1), 4 * (p - 1) / 2 / (4 * p + 8 - 4)),
        (HadamardResponse(6, 1.0, 2), 2 * (p - 1) / (2 * p + 8 - 2)),
        (Rappor(5, 1.0), (math.sqrt(p) - 1) / (math.sqrt(p) + 1)),
        (Harmony(3, 1.0), (p - 1) / (p + 1)),
        (Duchi(5, 1.0), (p - 1) / (p + 1)),
        (
            PckvGrr(4, 2, 1.0),
            2 * (p - 1) / (2 * p + 2 * (4 + 2) - 2),
        ),  # the table's d counts the dummy keys
    ):
        assert worst_variation(randomizer) == pytest.approx(beta, rel=1e-12), type(
            randomizer
        ).__name__


def test_local_hash_collides_exactly_once_in_l() -> None:
    """(p-1)/(p+l-1) is an upper bound; with uniform collisions the truth is (1 - 1/l) of it."""
    randomizer = LocalHash(11, 1.0, buckets=3)
    rows = randomizer.rows()
    beta = (exp(1.0) - 1) / (exp(1.0) + 2)
    for a, b in itertools.combinations(range(11), 2):
        assert 0.5 * np.abs(rows[a] - rows[b]).sum() == pytest.approx((1 - 1 / 3) * beta, rel=1e-12)


def test_duchi_in_an_even_dimension_is_below_the_table() -> None:
    p = exp(1.0)
    agreeing = (16 - comb(4, 2)) // 2
    assert worst_variation(Duchi(4, 1.0)) == pytest.approx(
        agreeing * (p - 1) / (p * agreeing + 16 - agreeing), rel=1e-12
    )
    assert worst_variation(Duchi(4, 1.0)) < (p - 1) / (p + 1)


def test_duchi_with_ties_on_both_sides_is_not_private() -> None:
    """Usual description in an even dimension: ties count for both sides.

    A uniform corner with product >= 0 with probability p/(p+1), else one with <= 0.
    """
    corners = np.array(list(itertools.product((-1, 1), repeat=2)))
    products = corners @ corners.T
    p = exp(1.0)
    rows = (p / (p + 1) * (products >= 0) + 1 / (p + 1) * (products <= 0)) / (products >= 0).sum(
        axis=1, keepdims=True
    )
    assert rows.sum(axis=1) == pytest.approx(1.0)
    worst = max(
        np.abs(np.log(rows[a] / rows[b])).max() for a, b in itertools.combinations(range(4), 2)
    )
    assert worst == pytest.approx(math.log(p + 1))
    assert worst > 1.0 == Duchi(2, 1.0).local_epsilon()


@check_all(
    ("keys", "held", "one", "two"),
    [(3, 1, 0.5, 0.6), (4, 2, 1.0, 0.3), (4, 1, 0.2, 2.0), (5, 2, 2.0, 2.0)],
)
def test_priv_kv_is_better_than_published(keys: int, held: int, one: float, two: float) -> None:
    """Exact variation for 2 held <= keys, below the table's.

    One report is less than epsilon_1 + epsilon_2.
    """
    randomizer = PrivKV(keys, one, two, held)
    k = exp(one)
    v = exp(two)
    share = held / keys
    signs = 2 * share * 0.5 * k * (v - 1) / ((k + 1) * (v + 1))
    held_or_not = 2 * share * max(k - 1, k * v / (v + 1) - 0.5) / (k + 1)
    told = 2 * share * max(k * (v - 1) / (v + 1), k - 1 + (v - 1) / (2 * (v + 1))) / (k + 1)
    assert worst_variation(randomizer) == pytest.approx(max(signs, held_or_not), rel=1e-12)
    assert worst_variation(randomizer) <= told * (1 + 1e-12)
    assert randomizer.local_epsilon() == pytest.approx(
        math.log(max(k, v, 2 * k * v / (v + 1))), rel=1e-12
    )
    assert randomizer.local_epsilon() < one + two


def test_laplace_on_an_interval_approaches_the_table() -> None:
    """1 - e^(-epsilon/2) for the two ends, also clamped; the grid's rate is slightly smaller."""
    fine = LaplaceOnInterval(0, 1, 2.0, steps=1000)
    assert fine.total_variation(0, 1000) == pytest.approx(1 - exp(-1.0), rel=2e-3)
    assert fine.total_variation(0, 1000) < 1 - exp(-1.0)


def test_padded_exponential_on_three_points() -> None:
    line = [[0, 1, 2], [1, 0, 1], [2, 1, 0]]
    randomizer = PaddedExponential(line, 1.0)
    assert randomizer.normaliser == pytest.approx(1.87109416558, rel=1e-11)
    for a, b in itertools.combinations(range(3), 2):
        assert randomizer.local_epsilon(a, b) == pytest.approx(abs(a - b), rel=1e-9)
        assert randomizer.local_epsilon(a, b) <= abs(a - b)


def test_padding_looks_at_every_pair_of_the_space() -> None:
    """On a cycle of 12 points, N is 2.5809 over all pairs.

    Over the three kept points alone it is 1.7384 and not private.
    """
    places = np.arange(12)
    hops = np.minimum(np.abs(places[:, None] - places), 12 - np.abs(places[:, None] - places))
    randomizer = PaddedExponential(hops, 0.5, kept=(3, 4, 9))
    assert randomizer.normaliser == pytest.approx(2.5809, abs=5e-5)
    assert np.all(randomizer.channel.pairwise_epsilon() <= 0.5 * hops)
    alone = PaddedExponential(hops[np.ix_((3, 4, 9), (3, 4, 9))], 0.5)
    assert alone.normaliser == pytest.approx(1.7384, abs=5e-5)
