"""What travels between the three roles. The types keep the order: an analyst cannot estimate from Reports."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from metricshuffle.errors import InputError


@dataclass(frozen=True, eq=False)
class Reports:
    """Randomized reports as the clients send them: one record a person, all of the same size."""

    plan: str
    """Digest of the plan they were made for."""
    records: NDArray[Any]
    unsafe_seeded: bool = False

    def __len__(self) -> int:
        return len(self.records)

    def joined(self, other: Reports) -> Reports:
        """Both batches together; they must belong to one plan."""
        if self.plan != other.plan or self.records.shape[1:] != other.records.shape[1:]:
            raise InputError("these reports were made for different plans and cannot be joined.")
        return Reports(self.plan, np.concatenate([self.records, other.records]), self.unsafe_seeded or other.unsafe_seeded)


@dataclass(frozen=True, eq=False)
class Shuffled:
    """What is left after the shuffler: per axis, the number of ones or the sorted multiset of residues."""

    plan: str
    reports: int
    axes: tuple[int | NDArray[np.uint64], ...]
    unsafe_seeded: bool = False
