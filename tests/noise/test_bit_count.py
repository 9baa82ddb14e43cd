"""The count of flipped bits, against exact fractions and against the FFT engine."""

from __future__ import annotations

import math
from fractions import Fraction

import mpmath
import numpy as np
import pytest
from tests.tables import check_all

from metricshuffle.errors import InputError, NotCertified
from metricshuffle.noise.binomial_sum import bit_count_law, bit_count_range
from metricshuffle.noise.convolution import Group, sum_law


def exact_count(ones: int, zeros: int, flip: float) -> list[Fraction]:
    law = [Fraction(1)]
    for stays in [Fraction(flip)] * ones + [1 - Fraction(flip)] * zeros:
        law = [
            stays * a + (1 - stays) * b
            for a, b in zip([*law, Fraction(0)], [Fraction(0), *law], strict=True)
        ]
    return law


@check_all("flip", [1e-6, 0.05, 0.3, 0.499])
@check_all(("ones", "zeros"), [(0, 0), (1, 0), (0, 1), (3, 9), (40, 0), (0, 40), (20, 20), (31, 9)])
def test_small_counts_exactly(ones: int, zeros: int, flip: float) -> None:
    law = bit_count_law(ones, zeros, flip)
    assert (law.start, len(law.mass)) == (0, ones + zeros + 1)
    truth = exact_count(ones, zeros, flip)
    with mpmath.workdps(40):
        logs = [float(mpmath.log(mpmath.mpf(p.numerator) / p.denominator)) for p in truth]
    off = np.log(law.mass) - np.array(logs)
    slack = 4e-16 * np.abs(logs)
    assert (np.abs(off) <= law.total + slack).all()
    assert (np.abs(np.diff(off)) <= law.local + slack[1:] + slack[:-1]).all()
    assert law.total < 1e-11


@check_all(
    ("ones", "zeros", "flip"),
    [
        (0, 10**6, 0.05),
        (10**6, 0, 0.05),
        (500_000, 500_000, 0.05),
        (123_456, 876_544, 1e-3),
        (10**8, 10**8, 0.01),
    ],
)
def test_large_counts_against_the_other_engine(ones: int, zeros: int, flip: float) -> None:
    law = bit_count_law(ones, zeros, flip)
    kept = np.array([flip, 1.0 - flip])
    stays = np.array([1.0 - flip, flip])
    groups = [Group(ones, 0, kept, relative_error=0.0), Group(zeros, 0, stays, relative_error=0.0)]
    other = sum_law(groups, law.start, law.start + len(law.mass) - 1)
    known = np.isfinite(other.log_mass) & (law.mass > 0.0)
    assert known.mean() > 0.99
    assert (
        np.abs(np.log(law.mass[known]) - other.log_mass[known])
        <= law.total + other.log_error[known] + 1e-13
    ).all()
    assert law.total < 1e-6


def test_range_covers_all_but_e_to_the_minus_100() -> None:
    _, high = bit_count_range(0, 10**6, 0.05)
    sd = math.sqrt(10**6 * 0.0475)
    assert math.sqrt(200.0) * sd < high - 50_000 < 1.05 * math.sqrt(200.0) * sd
    assert bit_count_law(0, 10**6, 0.05).outside < 8e-44


def test_refusals_are_sentences() -> None:
    with pytest.raises(NotCertified, match="cells"):
        bit_count_law(0, 10**15, 0.25)
    with pytest.raises(InputError, match="contain"):
        bit_count_law(500, 500, 0.1, 499, 501)
