"""Randomizers whose law is only available as a table."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray

from metricshuffle.accounting.shuffling.blanket_law import BlanketLaw
from metricshuffle.numerics.types import Floats
from metricshuffle.privacy.profile import PrivacyProfile
from metricshuffle.randomizers.channel import Channel
from metricshuffle.randomizers.randomizer import LocalProfile, Randomizer
from metricshuffle.randomness import Randomness


@dataclass(frozen=True)
class TableProfile(LocalProfile):
    """Privacy profile of one report of a table.

    The epsilon of all pairs is computed from all rows at once, as there may be a million pairs.
    """

    def pure(self, distance: float) -> float:
        source = self.randomizer
        everybody = (
            type(source).pairs is Randomizer.pairs
            and type(source).pairs_within is Randomizer.pairs_within
        )
        return (
            source.local_epsilon()
            if everybody and distance >= source.diameter
            else super().pure(distance)
        )


class TableRandomizer(Randomizer):
    """A randomizer defined by the channel it builds; histograms are estimated by inverting it."""

    @property
    @abstractmethod
    def channel(self) -> Channel:
        """The rounded law."""

    @property
    def inputs(self) -> int:
        return self.channel.inputs

    @property
    def outputs(self) -> int:
        return self.channel.outputs

    def rows(self) -> Floats:
        return self.channel.rows()

    def distance(self, a: int, b: int) -> float:
        return self.channel.distance(a, b)

    def blanket(self, a: int, b: int) -> BlanketLaw:
        return self.channel.blanket(a, b)

    def local_epsilon(self, a: int | None = None, b: int | None = None) -> float:
        return self.channel.local_epsilon(a, b)

    def local_profile(self) -> PrivacyProfile:
        return TableProfile(self)

    def reports(self, values: object, randomness: Randomness) -> NDArray[Any]:
        return self.channel.reports(values, randomness)

    def targets(self) -> Floats:
        return self.channel.targets()

    def debiasing(self) -> Floats:
        return self.channel.debiasing()
