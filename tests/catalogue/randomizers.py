"""Randomizers of every kind, for all tests that check a property of each."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from metricshuffle.randomizers import (
    BinaryRandomizedResponse,
    BoundedGeometric,
    ClusteredResponse,
    Duchi,
    ExponentialMechanism,
    HadamardResponse,
    Harmony,
    KaryRandomizedResponse,
    LaplaceOnInterval,
    LocalHash,
    PaddedExponential,
    PckvGrr,
    PlanarGeometric,
    PrivKV,
    Randomizer,
    Rappor,
    SubsetExponential,
    SubsetSelection,
    WitchHat,
)


def line_distances(points: int) -> NDArray[np.float64]:
    """Distances between the whole numbers from 0 to points - 1."""
    values = np.arange(float(points))
    return np.abs(values[:, None] - values[None, :])


EQUILATERAL = 1.0 - np.eye(4)

EVERY_KIND: list[Randomizer] = [
    BinaryRandomizedResponse(1.0),
    KaryRandomizedResponse(5, 1.3),
    KaryRandomizedResponse(40, 3.0),
    LocalHash(10, 1.0),
    LocalHash(6, 1.0, buckets=2),
    LocalHash(20, 2.0, buckets=7),
    SubsetSelection(8, 1.0),
    SubsetSelection(6, 0.7, size=3),
    SubsetExponential(7, 2, 1.0, size=3),
    SubsetExponential(7, 3, 1.0, size=2),
    HadamardResponse(7, 0.8),
    HadamardResponse(10, 2.5),
    HadamardResponse(5, 1.0, blocks=2),
    Rappor(5, 1.0),
    Rappor(2, 2.0),
    ExponentialMechanism(line_distances(5), 0.7),
    PaddedExponential(line_distances(5), 0.7),
    PaddedExponential(EQUILATERAL, 2.0),
    ClusteredResponse(3, 4, 0.2, 2.0),
    ClusteredResponse(2, 2, 0.5, 0.1),
    BoundedGeometric(9, 0.4),
    BoundedGeometric(1, 2.0),
    PlanarGeometric(4, 3, 0.8),
    PlanarGeometric(3, 3, 0.8, cell=0.5, metric="manhattan"),
    LaplaceOnInterval(-1, 3, 0.9, steps=12),
    WitchHat(10, 2.0, 0.4, steps=8),
    WitchHat(1, 1.0, 0.1, steps=3),
    Duchi(1, 1.0),
    Duchi(3, 1.0),
    Duchi(4, 1.5),
    Harmony(3, 1.0),
    PrivKV(3, 0.5, 0.6, held=1),
    PrivKV(2, 0.5, 2.6),
    PckvGrr(3, 2, 1.0),
    PckvGrr(4, 1, 1.0),
]
"""All kinds, several of most: few inputs and reports, so that their channels are tables."""

COUNTED: list[Randomizer] = [
    KaryRandomizedResponse(5, 1.0),
    KaryRandomizedResponse(2, 1.0),
    Rappor(5, 1.0),
    Rappor(2, 1.0),
    SubsetSelection(7, 1.0),
    SubsetExponential(7, 2, 1.0, 2),
    SubsetExponential(6, 2, 1.5),
    HadamardResponse(7, 1.0),
    HadamardResponse(12, 3.0),
    HadamardResponse(3, 0.5),
    Duchi(3, 1.0),
    Duchi(4, 1.0),
    Duchi(5, 1.5),
    Harmony(1, 1.0),
    Harmony(3, 1.0),
    Harmony(4, 2.0),
    LocalHash(9, 1.0, 3),
    LocalHash(20, 1.0, 3),
    LocalHash(6, 0.7, 2),
    LocalHash(5, 1.0, 5),
    LocalHash(3, 1.0, 3),
]
"""Kinds whose input classes are counted by a closed form."""

LARGE: dict[str, Randomizer] = {
    "2-RR": KaryRandomizedResponse(2, 2.0),
    "10-RR": KaryRandomizedResponse(10, 1.0),
    "geometric": BoundedGeometric(8, 0.5),
    "Laplace": LaplaceOnInterval(0.0, 10.0, 0.3, 16),
    "WitchHat": WitchHat(1.0, 2.0, 3.0, 8),
    "planar": PlanarGeometric(5, 5, 0.5),
    "exponential": ExponentialMechanism(line_distances(8), 0.5),
    "padded": PaddedExponential(line_distances(8), 0.5),
    "RAPPOR": Rappor(8, 2.0),
    "RAPPOR, 100 bits": Rappor(100, 2.0),
    "subset": SubsetSelection(8, 1.0),
    "subset of 64": SubsetSelection(64, 1.0),
    "PrivSet": SubsetExponential(10, 2, 1.0),
    "Hadamard": HadamardResponse(64, 3.0),
    "hash": LocalHash(1000, 1.0),
    "clustered": ClusteredResponse(4, 4, 0.3, 2.0),
    "Duchi": Duchi(4, 1.0),
    "Duchi, 14": Duchi(14, 1.0),
    "Harmony": Harmony(4, 1.0),
    "Harmony, 100": Harmony(100, 1.0),
    "PrivKV": PrivKV(2, 1.0, 1.0),
    "PCKV": PckvGrr(3, 1, 1.0),
}
"""All kinds, some too large for a table, for bounds among many people."""

SMALL: dict[str, tuple[Randomizer, int, float | None]] = {
    "2-RR": (KaryRandomizedResponse(2, 1.5), 6, None),
    "4-RR": (KaryRandomizedResponse(4, 1.0), 5, None),
    "4-RR, alone": (KaryRandomizedResponse(4, 1.0), 1, None),
    "geometric": (BoundedGeometric(4, 0.7), 4, 2.0),
    "Laplace": (LaplaceOnInterval(0.0, 2.0, 1.0, 4), 4, 1.0),
    "Laplace between steps": (LaplaceOnInterval(0.0, 2.0, 1.0, 4), 4, 0.7),
    "WitchHat between steps": (WitchHat(1.0, 1.0, 1.5, 2), 3, 0.8),
    "planar": (PlanarGeometric(2, 2, 0.6), 4, 1.0),
    "exponential": (ExponentialMechanism(line_distances(5), 0.6), 4, 3.0),
    "RAPPOR": (Rappor(3, 2.0), 3, None),
    "subset": (SubsetSelection(5, 1.0, 2), 3, None),
    "PrivSet": (SubsetExponential(5, 2, 1.0), 3, None),
    "Hadamard": (HadamardResponse(5, 1.0), 4, None),
    "Hadamard, blocks": (HadamardResponse(6, 3.0), 4, None),
    "hash": (LocalHash(4, 1.0, 3), 3, None),
    "clustered": (ClusteredResponse(2, 2, 0.3, 2.0), 4, 0.3),
    "Duchi": (Duchi(3, 1.0), 4, None),
    "Harmony": (Harmony(2, 1.0), 4, None),
    "PrivKV": (PrivKV(2, 1.0, 1.0), 3, None),
    "PCKV": (PckvGrr(2, 1, 1.0), 3, None),
}
"""All kinds with so few people that every data set can be listed: people, distance or None."""
