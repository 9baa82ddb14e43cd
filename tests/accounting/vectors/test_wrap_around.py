"""Size of residues: exact tail, Chernoff's upper bound, and the least number of bits."""

from __future__ import annotations

import math
from fractions import Fraction

import mpmath
import numpy as np
import pytest
from tests.oracles import sgdl
from tests.tables import check_all

from metricshuffle.accounting.vectors.encoding_terms import residue_bits, wrap_probability
from metricshuffle.errors import InputError, NotCertified


def test_golden_values() -> None:
    rates = np.full(63, 1 / 126)
    assert residue_bits(2000, 20, rates) == 16
    assert wrap_probability(rates, (2**16 - 40_000 - 1) // 2) == pytest.approx(
        6.2023036e-43, rel=1e-7
    )


@check_all("rate", [1e-3, 0.2, 3.0])
@check_all("margin", [0, 1, 17, 400])
def test_the_tail_of_one_discrete_laplace_variable(rate: float, margin: int) -> None:
    with mpmath.workdps(40):
        p = mpmath.exp(-mpmath.mpf(rate))
        truth = 2 * p ** (margin + 1) / (1 + p)
    assert (
        truth
        <= wrap_probability(np.array([rate]), margin)
        <= truth * (1 + mpmath.mpf(10) ** -11) + mpmath.mpf(10) ** -320
    )


@pytest.mark.parametrize("shape", [Fraction(1, 3), Fraction(2), Fraction(7, 2)])
def test_other_shapes_are_bounded(shape: Fraction) -> None:
    law = sgdl.masses(shape, 0.3, 300)
    for margin in (5, 20, 60):
        truth = 2 * mpmath.fsum(law[margin + 1 :])
        assert truth <= wrap_probability(np.array([0.3]), margin, shape) <= 100 * truth


def test_the_least_bits() -> None:
    rates = np.array([0.01] * 5 + [0.5])
    for people, top, shape in [
        (1, 1, Fraction(1)),
        (2000, 20, Fraction(1)),
        (2000, 20, Fraction(2)),
        (10**5, 40, Fraction(3, 2)),
    ]:
        bits = residue_bits(people, top, rates, shape)
        assert wrap_probability(rates, (2**bits - people * top - 1) // 2, shape) <= 1e-12
        smaller = 2 ** (bits - 1) - people * top - 1
        assert smaller < 0 or wrap_probability(rates, smaller // 2, shape) > 1e-12
    with pytest.raises(NotCertified, match="bits"):
        residue_bits(10, 1, np.array([1e-18]))


def test_what_is_wrong_is_said() -> None:
    for arguments in [(np.array([0.1]), -1), (np.array([math.nan]), 3), (np.array([0.0]), 3)]:
        with pytest.raises(InputError):
            wrap_probability(*arguments)
    with pytest.raises(InputError, match="people"):
        residue_bits(0, 1, np.array([0.1]))
    with pytest.raises(InputError, match="chance"):
        residue_bits(1, 1, np.array([0.1]), chance=0.0)
