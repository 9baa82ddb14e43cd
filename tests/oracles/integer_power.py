"""Exact law of a sum: integer weights packed into one big integer (Kronecker) and powered."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

import mpmath
import numpy as np
from numpy.typing import NDArray


def powered(weights: Sequence[int], copies: int) -> list[int]:
    """Coefficients of (sum_i weights[i] x^i)^copies."""
    slot = copies * (sum(weights).bit_length() + 1)
    slot += -slot % 8
    packed = sum(weight << (slot * i) for i, weight in enumerate(weights)) ** copies
    raw = packed.to_bytes((packed.bit_length() + 7) // 8, "little")
    size = slot // 8
    found = [int.from_bytes(raw[i : i + size], "little") for i in range(0, len(raw), size)]
    return found + [0] * ((len(weights) - 1) * copies + 1 - len(found))


def log_masses(weights: Sequence[int], copies: int) -> NDArray[np.float64]:
    """log of the law, correct to double precision (-inf where it is zero)."""
    with mpmath.workdps(40):
        total = copies * mpmath.log(sum(weights))
        return np.array(
            [
                float(mpmath.log(value) - total) if value else -np.inf
                for value in powered(weights, copies)
            ]
        )


def dyadic_geometric(rate: Fraction, radius: int) -> list[int]:
    """max(1, floor(2^64 q)) of the truncated discrete Laplace, the centre takes the remainder."""
    with mpmath.workdps(60):
        p = mpmath.exp(-mpmath.mpf(rate.numerator) / rate.denominator)
        scale = 2**64 / (1 + 2 * mpmath.fsum(p**j for j in range(1, radius + 1)))
        side = [max(1, int(mpmath.floor(scale * p**j))) for j in range(1, radius + 1)]
    return [*side[::-1], 2**64 - 2 * sum(side), *side]


def hockey_stick(masses: Sequence[int], growth: Fraction, shift: int) -> Fraction:
    """sum_z max(0, f(z) - growth f(z - shift)) from integer masses, exactly."""
    parts = (
        mass * growth.denominator - growth.numerator * (masses[z - shift] if z >= shift else 0)
        for z, mass in enumerate(masses)
    )
    return Fraction(sum(part for part in parts if part > 0), sum(masses) * growth.denominator)
