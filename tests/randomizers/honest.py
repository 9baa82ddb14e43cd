"""Honest user-defined randomizers, of which the cheats are small changes.

Classes without a `kind` cannot be stored, which is fine here; those for JSON have one.
"""

from __future__ import annotations

import math
from typing import Any, ClassVar, Literal

import numpy as np

from metricshuffle.privacy.profile import PrivacyProfile, PureProfile
from metricshuffle.randomizers import Channel, Randomizer
from metricshuffle.randomness import Randomness


class Honest(Randomizer):
    """Response on `values` values; half of the people tell the truth, the others any value."""

    values: ClassVar[int] = 3

    @property
    def inputs(self) -> int:
        return self.values

    @property
    def outputs(self) -> int:
        return self.values

    def rows(self) -> Any:
        return 0.5 * np.eye(self.values) + 0.5 / self.values

    def coins(self, people: int, randomness: Randomness) -> Any:
        """Mask of the people who tell the truth."""
        return randomness.words(people) >> np.uint64(63) == 1

    def lies(self, people: int, randomness: Randomness) -> Any:
        return randomness.uniform_residues(people, self.values).astype(np.int64)

    def reports(self, values: Any, randomness: Randomness) -> Any:
        return np.where(
            self.coins(len(values), randomness), values, self.lies(len(values), randomness)
        )

    def targets(self) -> Any:
        return np.eye(self.values)

    def debiasing(self) -> Any:
        return 2.0 * np.eye(self.values) - 1.0 / self.values


class Mine(Honest):
    """Example of the documentation, with a kind."""

    kind: Literal["mine-for-test"] = "mine-for-test"


class Seven(Honest):
    values: ClassVar[int] = 7


class Line(Honest):
    """Five values on a line: a report at distance d has weight 2^-d."""

    values: ClassVar[int] = 5

    @property
    def channel(self) -> Channel:
        places = np.arange(self.values)
        weights = 0.5 ** np.abs(places[:, None] - places)
        return Channel(weights / weights.sum(axis=1, keepdims=True))

    def rows(self) -> Any:
        return self.channel.rows()

    def reports(self, values: Any, randomness: Randomness) -> Any:
        return self.channel.reports(values, randomness)

    def debiasing(self) -> Any:
        return self.channel.debiasing()

    def distance(self, a: int, b: int) -> float:
        return 0.1 * abs(a - b)

    def local_profile(self) -> PrivacyProfile:
        return PureProfile(20.0 * math.log(2.0))
