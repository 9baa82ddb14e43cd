"""SGDL(b, p) by its definition, from 30-digit masses.

f(z) = (1-p)^(2b) sum_k C(b+k-1, k) C(b+k+z-1, k+z) p^(2k+z).
"""

from __future__ import annotations

from fractions import Fraction

import mpmath
import numpy as np


def negative_binomial_masses(shape: Fraction, rate: Fraction, largest: int) -> list[float]:
    """P(A = k) for k = 0..largest, A ~ NB(shape, e^-rate)."""
    with mpmath.workdps(30):
        b = mpmath.mpf(shape.numerator) / shape.denominator
        p = mpmath.exp(-mpmath.mpf(rate.numerator) / rate.denominator)
        masses = [(1 - p) ** b]
        for k in range(largest):
            masses.append(masses[-1] * p * (b + k) / (k + 1))
        return [float(mass) for mass in masses]


def polya_masses(shape: Fraction, rate: Fraction, radius: int) -> list[float]:
    """P(A - B = z) for z = 0..radius, A and B independent NB(shape, e^-rate).

    Sums of positive terms, to about 1e-14 relative.
    """
    masses = np.array(negative_binomial_masses(shape, rate, radius + int(40 / rate) + 1))
    return [float(masses[: masses.size - z] @ masses[z:]) for z in range(radius + 1)]
