"""Small channels as matrices, written down directly."""

from __future__ import annotations

import math

import numpy as np

from metricshuffle.numerics.types import Floats


def normalised(weights: Floats) -> Floats:
    return np.asarray(weights / weights.sum(axis=1, keepdims=True))


def response(options: int, epsilon: float) -> Floats:
    """k-ary randomized response."""
    return normalised(np.ones((options, options)) + math.expm1(epsilon) * np.eye(options))


def geometric(size: int, epsilon: float) -> Floats:
    """Two-sided geometric noise on 0..size-1, clamped; epsilon across the whole line."""
    q = math.exp(-epsilon / (size - 1))
    x = np.arange(size)
    rows = (1.0 - q) / (1.0 + q) * q ** np.abs(x[:, None] - x)
    rows[:, 0], rows[:, -1] = q**x / (1.0 + q), q ** (size - 1 - x) / (1.0 + q)
    return np.asarray(rows)


def planar(size: int, epsilon: float) -> Floats:
    """Geometric noise on both axes of a square."""
    return np.asarray(np.kron(geometric(size, epsilon), geometric(size, epsilon)), dtype=np.float64)


def exponential(distances: Floats, epsilon: float) -> Floats:
    """The exponential mechanism, at most epsilon between any two points."""
    return normalised(np.exp(-0.5 * epsilon * distances / distances.max()))


def line(size: int) -> Floats:
    return np.asarray(np.abs(np.arange(size)[:, None] - np.arange(size)), dtype=np.float64)


def grid(size: int) -> Floats:
    points = np.array([(i, j) for i in range(size) for j in range(size)], dtype=np.float64)
    return np.asarray(np.linalg.norm(points[:, None] - points, axis=2))


def rappor(bits: int, epsilon: float) -> Floats:
    """One-hot bits, each kept with probability e^(epsilon/2)/(1 + e^(epsilon/2))."""
    reports = (np.arange(2**bits)[:, None] >> np.arange(bits)) & 1
    keep = 1.0 / (1.0 + math.exp(-epsilon / 2.0))
    return np.array(
        [
            np.where(reports == (np.arange(bits) == x), keep, 1.0 - keep).prod(axis=1)
            for x in range(bits)
        ]
    )
