"""Symmetric generalised discrete Laplace law and its hockey sticks to 50 digits.

Uses no code of the package. Every sum runs over points whose masses are all known, so it is never
above the truth.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

import mpmath
from mpmath import mpf

DIGITS = 50


def exact(number: float | Fraction) -> mpf:
    """Exact value of a double or a rational."""
    fraction = Fraction(number)
    return mpf(fraction.numerator) / fraction.denominator


def mass(shape: float | Fraction, rate: float, z: int) -> mpf:
    """P(Z = z) = (1-p)^(2b) C(b+z-1, z) p^z 2F1(b, b+z; z+1; p^2)."""
    with mpmath.workdps(DIGITS + 10):
        b = exact(shape)
        p = mpmath.exp(-exact(rate))
        z = abs(z)
        return (
            (1 - p) ** (2 * b)
            * mpmath.rf(b, z)
            / mpmath.factorial(z)
            * p**z
            * mpmath.hyp2f1(b, b + z, z + 1, p * p)
        )


def masses(shape: float | Fraction, rate: float, radius: int) -> list[mpf]:
    """P(Z = z) for z = 0..radius: one value of 2F1, then ratios.

    The ratios start so far out that the start does not matter.
    """
    with mpmath.workdps(DIGITS + 20):
        b = exact(shape)
        p = mpmath.exp(-exact(rate))
        start = radius + int(80 / float(rate) + 60 * float(b) ** 0.5) + 200
        # The two ends of what the first ratio can be must have met long before `radius`.
        ends = [(p, mpf(1)), (mpf(0), p)][b < 1]
        ratios = []
        for rho in ends:
            found = [mpf(0)] * (radius + 1)
            for m in range(start, 0, -1):
                rho = p * (m - 1 + b) / ((1 + p * p) * m - p * (m + 1 - b) * rho)
                if m <= radius:
                    found[m] = rho
            ratios.append(found)
        if any(
            abs(low - high) > mpf(10) ** -DIGITS * high
            for low, high in zip(*(found[1:] for found in ratios), strict=True)
        ):
            raise ArithmeticError("start farther out")
        law = [mass(shape, rate, 0)]
        for ratio in ratios[0][1:]:
            law.append(law[-1] * ratio)
        return law


def delta(law: Sequence[mpf], epsilon: float, steps: int) -> mpf:
    """sum_z (f(z) - e^epsilon f(z - steps))_+ over the points where both masses are known."""
    radius = len(law) - 1
    with mpmath.workdps(DIGITS):
        factor = mpmath.exp(exact(epsilon))
        return mpmath.fsum(
            max(mpf(0), law[abs(z)] - factor * law[abs(z - steps)])
            for z in range(steps - radius, radius + 1)
        )


def planar_delta(law: Sequence[mpf], epsilon: float, first: int, second: int) -> mpf:
    """Double sum of (f(z1) f(z2) - e^epsilon f(z1 - first) f(z2 - second))_+, point by point."""
    radius = len(law) - 1
    with mpmath.workdps(DIGITS):
        factor = mpmath.exp(exact(epsilon))
        here = [(law[abs(z)], law[abs(z - second)]) for z in range(second - radius, radius + 1)]
        total = mpf(0)
        for z1 in range(first - radius, radius + 1):
            one = law[abs(z1)]
            other = factor * law[abs(z1 - first)]
            total += mpmath.fsum(value for f, g in here if (value := one * f - other * g) > 0)
        return total
