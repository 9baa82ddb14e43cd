"""Exact laws of the clamped mechanism on one data set, by a plain FFT without any theorem."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
CELLS = 8192


def clamped(masses: Floats, value: int, low: int, high: int) -> Floats:
    """Law of clamp(value + N, low, high) modulo CELLS; masses are P(N = z) for z = -r..r."""
    radius = len(masses) // 2
    reports = np.clip(np.arange(value - radius, value + radius + 1), low, high)
    law = np.zeros(CELLS)
    np.add.at(law, reports % CELLS, masses)
    return law


def hockey_stick(p: Floats, q: Floats, epsilon: float) -> float:
    return float(np.maximum(p - math.exp(epsilon) * q, 0.0).sum())


def clamped_pair(
    masses: Floats, users: int, padding: int, span: int, move: int
) -> tuple[Floats, Floats]:
    """Laws of the sum of clamped reports: all users at 0, and one user moved to `move`.

    The absolute error is about 1e-15 per cell.
    """
    one = np.fft.rfft(clamped(masses, 0, -padding, span + padding))
    moved = np.fft.rfft(clamped(masses, move, -padding, span + padding))
    others = one ** (users - 1)
    p, q = (np.maximum(np.fft.irfft(others * last, CELLS), 0.0) for last in (one, moved))
    return p, q


def clamped_delta(
    masses: Floats, users: int, padding: int, span: int, epsilon: float, move: int
) -> float:
    """Divergence in the worse direction: a lower bound on the true delta (up to rounding)."""
    p, q = clamped_pair(masses, users, padding, span, move)
    return max(hockey_stick(p, q, epsilon), hockey_stick(q, p, epsilon))
