"""Colluding shuffler: one vector against many digits, many items against every move."""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import product

import mpmath
import numpy as np
import pytest
from tests.oracles import noisy_vectors as oracle
from tests.oracles import sgdl
from tests.tables import check_all

from metricshuffle.accounting.vectors import compromised_shuffler
from metricshuffle.accounting.vectors.compromised_shuffler import (
    max_single_report_loss,
    no_noise_probability,
    single_report_loss,
)
from metricshuffle.accounting.vectors.feature_changes import FeatureChanges
from metricshuffle.errors import InputError


def move(*parts: tuple[float, int, int]) -> FeatureChanges:
    rates, sizes, counts = zip(*parts, strict=True)
    return FeatureChanges(
        np.array(rates, dtype=np.float64),
        np.array(sizes, dtype=np.int64),
        np.array(counts, dtype=np.int64),
    )


def exact_loss(rate: float, size: int, honest: int) -> mpmath.mpf:
    share = Fraction(1, honest)
    with mpmath.workdps(40):
        return mpmath.log(sgdl.mass(share, rate, 0) / sgdl.mass(share, rate, size))


def test_golden_values() -> None:
    share = Fraction(1, 100)
    assert float(sgdl.mass(share, 0.1, 0)) == pytest.approx(0.9541529925037, rel=1e-12)
    assert float(sgdl.mass(share, 0.1, 1)) == pytest.approx(0.008687199136239, rel=1e-12)
    assert single_report_loss(move((0.1, 1, 1)), 100) == pytest.approx(
        math.log(0.9541529925037 / 0.008687199136239), rel=1e-12
    )
    assert single_report_loss(move((10 / 63, 1, 1)), 2000) == pytest.approx(
        7.759375905656, rel=1e-12
    )
    assert single_report_loss(move((10 / 63, 1, 63)), 2000) == pytest.approx(
        488.8406820563, rel=1e-12
    )
    assert single_report_loss(move((0.5, 1, 1), (0.5, 2, 1)), 3) == pytest.approx(
        3.98719896633849, rel=1e-13
    )
    assert single_report_loss(move((0.3, 1, 1), (0.7, 1, 1), (1.0, 3, 1)), 10) == pytest.approx(
        11.8082411244593, rel=1e-13
    )
    assert no_noise_probability(np.full(341, 0.05), 100_000) == pytest.approx(
        0.9796101045736, rel=1e-11
    )


@check_all("honest", [1, 2, 50, 10_000])
@check_all(("rate", "size"), [(0.05, 1), (0.05, 30), (1.0, 4), (3.0, 2)])
def test_rounded_up_and_sharp(rate: float, size: int, honest: int) -> None:
    truth = exact_loss(rate, size, honest)
    assert (
        truth
        <= single_report_loss(move((rate, size, 1)), honest)
        <= truth * (1 + mpmath.mpf(10) ** -11)
    )
    nothing = sgdl.mass(Fraction(1, honest), rate, 0) ** 40
    assert (
        nothing
        <= no_noise_probability(np.full(40, rate), honest)
        <= nothing * (1 + mpmath.mpf(10) ** -9)
    )


def test_no_output_is_worse_and_residues_are_no_worse() -> None:
    rate = 0.4
    size = 2
    honest = 3
    law = sgdl.masses(Fraction(1, honest), rate, 60)
    bound = single_report_loss(move((rate, size, 1)), honest)
    assert max(
        float(mpmath.log(law[abs(z)] / law[abs(z - size)])) for z in range(-50, 51)
    ) == pytest.approx(bound, rel=1e-12)
    for q in (3, 5, 8):
        residues = oracle.polya_residues(Fraction(1, honest), rate, q)
        assert max(math.log(residues[z] / residues[(z - size) % q]) for z in range(q)) <= bound


@check_all("honest", [1, 4, 300])
@check_all("budget", [0.0, 0.29, 0.3, 0.9, 1.7, 2.6, 5.0, 40.0])
def test_many_items_bounded_for_every_move(honest: int, budget: float) -> None:
    rates = np.array([0.3, 0.3, 0.5, 1.1])
    tops = np.array([3, 3, 2, 2])
    loss = {
        (rate, d): float(exact_loss(rate, d, honest)) for rate in (0.3, 0.5, 1.1) for d in range(4)
    }
    worst = max(
        sum(loss[rate, d] for rate, d in zip(rates.tolist(), steps, strict=True))
        for steps in product(*(range(top + 1) for top in tops))
        if sum(rate * d for rate, d in zip(rates.tolist(), steps, strict=True)) <= budget
    )
    found = max_single_report_loss(rates, tops, honest, budget)
    assert worst * (1 - 1e-13) <= found
    # within a step of the dearest kind, which is taken in part
    assert found <= worst * (1 + 1e-6) + max(loss.values())
    everything = sum(
        loss[rate, top] for rate, top in zip(rates.tolist(), tops.tolist(), strict=True)
    )
    assert max_single_report_loss(rates, tops, honest, 100.0) == pytest.approx(
        everything, rel=1e-12
    )


def test_as_many_steps_as_the_budget_allows() -> None:
    """63 thresholds at 10/63 each: a tenth of the range is 6.3 thresholds, not all of them."""
    rates = np.full(63, 10 / 63)
    one = single_report_loss(move((10 / 63, 1, 1)), 2000)
    assert max_single_report_loss(rates, np.ones(63, dtype=np.int64), 2000, 1.0) == pytest.approx(
        6.3 * one, rel=1e-12
    )
    assert max_single_report_loss(rates, np.ones(63, dtype=np.int64), 2000, 10.0) == pytest.approx(
        63 * one, rel=1e-12
    )
    assert max_single_report_loss(rates, np.ones(63, dtype=np.int64), 2000, 0.1) == 0.0


@pytest.mark.parametrize("honest", [1, 2, 3, 500])
def test_no_noise_where_the_series_is_cut_off(honest: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rates = np.array([1e-3, 0.2, 5.0])
    truth = mpmath.fprod(sgdl.mass(Fraction(1, honest), rate, 0) for rate in rates.tolist())
    monkeypatch.setattr(compromised_shuffler, "MAX_TERMS", 100)
    found = no_noise_probability(rates, honest)
    assert truth <= found <= min(1.0, 30 * truth)
    assert honest < 500 or found <= truth * (1 + 1e-5)


@check_all("honest", [1, 2, 7, 2000])
@check_all("rate", [1e-3, 0.1, 2.0, 12.0])
def test_the_second_step(honest: int, rate: float) -> None:
    share = Fraction(1, honest)
    one = exact_loss(rate, 1, honest)
    two = exact_loss(rate, 2, honest)
    first = float(one) * (1 + 1e-15)
    found = compromised_shuffler._second_step(first, rate, float(share))
    assert two - one <= found <= first
    assert rate > 5.0 or found <= (two - one) * (1 + 1e-9)


def test_what_is_wrong_is_said() -> None:
    with pytest.raises(InputError, match="honest"):
        single_report_loss(move((0.1, 1, 1)), 0)
    with pytest.raises(InputError, match="budget"):
        max_single_report_loss(np.array([0.1]), np.array([1]), 2, math.nan)
    with pytest.raises(InputError, match="same length"):
        max_single_report_loss(np.array([0.1]), np.array([1, 2]), 2, 1.0)
    with pytest.raises(InputError, match="honest"):
        no_noise_probability(np.array([0.1]), -3)


def test_many_different_changes_are_rounded_up_a_little() -> None:
    """300 sizes are rounded to five bits: no less than the sum of their own losses, and near it."""
    tops = np.arange(1, 301, dtype=np.int64)
    rates = np.full(300, 0.02)
    exact = sum(single_report_loss(move((0.02, int(top), 1)), 50) for top in tops)
    found = max_single_report_loss(rates, tops, 50, 1e6)
    assert exact * (1 - 1e-12) <= found <= 1.02 * exact
