"""Explicit item randomizers, a matrix and a metric, for the accountant of shuffled items."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import permutations

import numpy as np
from numpy.typing import NDArray

from metricshuffle.accounting.shuffling.blanket_law import BlanketLaw

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Channel:
    """Laws of the reports, one row per value, and the distances of the values."""

    rows: Floats
    distances: Floats

    def pairs(self) -> Iterable[tuple[int, int]]:
        return permutations(range(len(self.rows)), 2)

    def distance(self, a: int, b: int) -> float:
        return float(self.distances[a, b])

    def blanket(self, a: int, b: int) -> BlanketLaw:
        return BlanketLaw.from_rows(self.rows, a, b)


def response(values: int, ratio: float) -> Channel:
    rows = (np.ones((values, values)) + (ratio - 1.0) * np.eye(values)) / (ratio + values - 1.0)
    return Channel(rows, 1.0 - np.eye(values))
