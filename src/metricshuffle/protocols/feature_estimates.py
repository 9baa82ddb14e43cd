"""Protocols that estimate shares from noisy sums of features: what their simulations need."""

from __future__ import annotations

from abc import ABC, abstractmethod
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from metricshuffle.estimation.interval_widths import SumNoise
from metricshuffle.numerics.types import Floats
from metricshuffle.protocols.features import Blur, Features, QueryFeatures, space_of
from metricshuffle.protocols.vector_intervals import KnownShares
from metricshuffle.queries.query import Query
from metricshuffle.randomizers.planar_geometric import PlanarGeometric
from metricshuffle.randomizers.randomizer import Randomizer, has_law_of
from metricshuffle.spaces import Space


class FeatureEstimates(ABC):
    """Mixin of protocols whose tally is, or determines, one noisy sum for each feature."""

    if TYPE_CHECKING:
        features: Features
        floor: Randomizer | None

        @property
        def coordinates(self) -> int:
            """Number of features."""

    @abstractmethod
    def noise(self, space: Space, people: int) -> SumNoise:
        """Noise on the sums of the features over this many people."""

    @abstractmethod
    def errors(self, query: Query, people: int) -> Floats:
        """Standard errors of the means of the features."""

    @property
    def draws_items(self) -> bool:
        """Whether people send only items that they draw from theirs."""
        return False

    def bit_variances(self, space: Space, shares: Floats, people: int) -> Floats | None:
        """Variance that random rounding adds to each sum for people with these shares.

        None if only its largest value is known, which `noise` includes.
        """
        return None

    @property
    def blur(self) -> Blur | None:
        """Laws by which points are randomized before they are counted."""
        return None if self.floor is None else _laws(self.floor)

    def known(self, space: Space, people: int) -> KnownShares:
        """What the means of the features determine about the shares."""
        return KnownShares(self.features, space, self.noise(space, people), self.floor)

    def tells_apart(self, query: Query) -> bool:
        """Whether single cells are identified and have intervals; otherwise shares are smoothed."""
        return isinstance(self.features, QueryFeatures) or self.known(space_of(query), 1).identified


@lru_cache(maxsize=32)
def _laws(floor: Randomizer) -> Blur:
    if has_law_of(floor, PlanarGeometric):
        across, up = floor.axes
        return up.rows(), across.rows()
    return (np.asarray(floor.rows(), dtype=np.float64),)
