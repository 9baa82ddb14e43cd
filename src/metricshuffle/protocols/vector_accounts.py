"""What noisy vectors hide: the same profiles for whoever calibrates the noise and for whoever verifies it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from metricshuffle.accounting.vectors.colluding import alone_loss, alone_most
from metricshuffle.accounting.vectors.far_moves import FarMoves
from metricshuffle.accounting.vectors.ideal import ideal_loss
from metricshuffle.errors import InputError
from metricshuffle.numerics.rounding import raised
from metricshuffle.numerics.types import Floats
from metricshuffle.privacy.profile import PrivacyProfile, PureProfile, PureUpTo
from metricshuffle.privacy.target import Target
from metricshuffle.protocols.features import Features
from metricshuffle.spaces import Space


@dataclass(frozen=True, eq=False)
class VectorAccounts:
    """Features of the points of a space, with noise of these rates on their sums, over so many rounds.

    A person's vector adds up to `units` times that of a point: one for a single value, as many as she holds for items. `stretch` is what
    rounding shares to whole units may add to a slope.
    """

    space: Space
    features: Features
    rates: Floats
    units: int
    stretch: float
    single: bool
    rounds: int

    @cached_property
    def slope(self) -> float:
        """The loss of ideal sums per unit of distance over all rounds, rounded up."""
        return raised(self.features.slope(self.space, self.rates) * self.units * self.stretch * self.rounds, 4)

    def ideal(self, target: Target) -> PrivacyProfile:
        """The profile of the noisy sums alone.

        linear: pure, at every distance. flat: the worst move within the distance, pure if that keeps epsilon, else by its exact law.
        A loss above epsilon may still be kept by a delta, as that of any pair with such a loss.
        """
        if target.shape == "linear":
            return PureProfile(self.slope)
        most = self.slope * target.distance
        if self.single:
            losses = (self.rounds * ideal_loss(move) for move in self.features.moves(self.space, self.rates, target.distance))
            most = min(most, max(losses, default=0.0))
        if not self.single or target.delta == 0.0 or most <= target.epsilon:
            return PureUpTo(raised(most, 4), target.distance)
        return self.far()

    def far(self) -> FarMoves:
        """One person's moves by the exact law of the noise: far ones are hidden much better than in proportion, once a delta is allowed."""
        if not self.single:
            raise InputError("far moves are accounted for by their exact law where everybody holds one value.")
        return FarMoves(lambda distance: self.features.moves(self.space, self.rates, distance), self.rounds)

    def alone(self, sharers: int, distance: float) -> float:
        """What one person's vector gives away by itself at moves up to that distance, over all rounds; rounded up."""
        if self.single:
            moves = self.features.moves(self.space, self.rates, distance)
            return raised(self.rounds * max((alone_loss(move, sharers) for move in moves), default=0.0), 2)
        tops = np.asarray(self.features.table(self.space).max(axis=0).toarray()).ravel().astype(np.int64) * self.units
        budget = self.slope / self.rounds * distance
        return raised(self.rounds * alone_most(self.rates, tops, sharers, budget), 2)
