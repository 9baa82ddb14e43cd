"""Noisy sums alone: pairs of small data sets in fractions, and one honest person too few."""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import combinations_with_replacement, product

import numpy as np
import pytest
from tests.oracles import noisy_vectors as oracle

from metricshuffle.accounting.vectors.feature_changes import FeatureChanges, ideal_loss
from metricshuffle.errors import InputError
from metricshuffle.noise.polya import Polya

HALF = Fraction(1, 2)
THIRDS = Fraction(2, 3)
FIFTHS = Fraction(4, 5)


def move(rates: list[float], sizes: list[int]) -> FeatureChanges:
    return FeatureChanges(
        np.array(rates), np.array(sizes, dtype=np.int64), np.ones(len(rates), dtype=np.int64)
    )


def test_goldens_of_discrete_laplace_residues() -> None:
    assert oracle.laplace_residue(0, HALF, 7) == Fraction(43, 127)
    ratio = Fraction(1)
    for p in (HALF, THIRDS, FIFTHS):
        law = [oracle.laplace_residue(z, p, 7) for z in range(7)]
        ratio *= max(law[z] / law[(z - 1) % 7] for z in range(7))
    assert ratio == Fraction(209064409, 66937200)
    assert float(ratio) <= math.exp(
        ideal_loss(move([-math.log(p) for p in (HALF, THIRDS, FIFTHS)], [1, 1, 1]))
    )


FEATURES = {
    "thresholds": [(1, 1), (0, 1), (0, 0)],
    "ramp and cell": [(2, 0), (1, 1), (0, 0)],
    "any whole numbers": [(0, 3), (2, 1), (1, 0)],
}


@pytest.mark.parametrize("name", FEATURES)
@pytest.mark.parametrize("q", [4, 7])
def test_every_pair_of_data_sets_and_people_together(name: str, q: int) -> None:
    """Two people, two coordinates: largest ratio of any data sets within the sum of losses."""
    features = FEATURES[name]
    ratios = (HALF, THIRDS)
    noise = [[oracle.laplace_residue(z, p, q) for z in range(q)] for p in ratios]
    silent = [[Fraction(int(z == 0)) for z in range(q)]] * 2
    rates = [-math.log(p) for p in ratios]
    laws: dict[tuple[int, ...], dict[oracle.Vector, Fraction]] = {}
    for data in product(range(3), repeat=2):
        # the first person's noise has shape 1, the second adds none: h = 1
        first = oracle.residue_sums([features[data[0]]], noise, (q, q))
        second = oracle.residue_sums([features[data[1]]], silent, (q, q))
        laws[data] = {}
        for a, mass in first.items():
            for b, chance in second.items():
                if chance:
                    key = oracle.plus(a, b, (q, q))
                    laws[data][key] = laws[data].get(key, Fraction(0)) + mass * chance
    tight = 0.0
    for one, other in combinations_with_replacement(laws, 2):
        changes = [
            [abs(a - b) for a, b in zip(features[x], features[y], strict=True)]
            for x, y in zip(one, other, strict=True)
        ]
        losses = [ideal_loss(move(rates, sizes)) for sizes in changes]
        loss = math.log(oracle.largest_ratio(laws[one], laws[other]))
        assert loss <= sum(losses) + 1e-12
        tight = max(tight, loss / sum(losses) if sum(losses) else 0.0)
    assert tight > 0.5


def test_without_a_modulus_it_is_attained() -> None:
    for sizes in [(1, 0), (2, 1), (3, 3)]:
        one = oracle.noisy_on_box({(0, 0): Fraction(1)}, (HALF, FIFTHS), (3, 3))
        other = oracle.noisy_on_box({sizes: Fraction(1)}, (HALF, FIFTHS), (3, 3))
        loss = ideal_loss(move([math.log(2), math.log(1.25)], list(sizes)))
        assert math.log(oracle.largest_ratio(one, other)) == pytest.approx(loss, rel=1e-13)


def test_shares_of_many_people_sum_to_one_discrete_laplace() -> None:
    """Three shares of shape 1/3, modulo 5."""
    share = oracle.polya_residues(Fraction(1, 3), 0.4, 5)
    q = 5
    total = oracle.residue_sums([(0,)] * 3, [share], (q,))
    whole = oracle.polya_residues(Fraction(1), 0.4, q)
    assert [float(total[z,]) for z in range(q)] == pytest.approx(whole, rel=1e-12)


def test_a_shortfall_multiplies_over_coordinates() -> None:
    assert Polya(Fraction(9, 10), 0.1).pure(1) == pytest.approx(0.1458574321472, rel=1e-12)
    assert 63 * Polya(Fraction(9, 10), 10 / 63).pure(1) == pytest.approx(13.58430591207, rel=1e-12)
    assert ideal_loss(move([10 / 63] * 63, [1] * 63)) == pytest.approx(10.0)


def test_the_loss_is_rounded_up() -> None:
    rng = np.random.default_rng(3)
    for _ in range(200):
        rates = rng.uniform(1e-6, 3.0, 7)
        sizes = rng.integers(0, 50, 7)
        counts = rng.integers(0, 1000, 7)
        exact = sum(
            Fraction(r) * int(s) * int(c)
            for r, s, c in zip(rates.tolist(), sizes, counts, strict=True)
        )
        loss = Fraction(ideal_loss(FeatureChanges(rates, sizes, counts)))
        assert exact <= loss <= exact * (1 + Fraction(1, 10**14))
    assert ideal_loss(move([], [])) == 0.0 == ideal_loss(move([0.5], [0]))
    with pytest.raises(InputError):
        move([math.nan], [1])
