"""By how much the features of a person change when she moves."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from metricshuffle.errors import InputError
from metricshuffle.numerics.types import Floats, Integers64


@dataclass(frozen=True, eq=False)
class FeatureChanges:
    """One move: `counts[i]` coordinates, whose noise has the rate `rates[i]`, change by `sizes[i]` each; the others do not change."""

    rates: Floats
    sizes: Integers64
    counts: Integers64

    def __post_init__(self) -> None:
        if not (len(self.rates) == len(self.sizes) == len(self.counts)):
            raise InputError("changes are rates, sizes and counts of one length.")
        if not (np.all(self.rates > 0.0) and np.all(self.sizes >= 0) and np.all(self.counts >= 0)):
            raise InputError("changes have rates > 0, and whole sizes and counts >= 0.")
