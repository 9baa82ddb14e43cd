"""What noisy vectors hide: the same profiles for whoever calibrates the noise and for whoever verifies it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from metricshuffle.accounting.vectors.compromised_shuffler import max_single_report_loss, single_report_loss
from metricshuffle.accounting.vectors.large_moves import LargeMoves
from metricshuffle.accounting.vectors.sum_loss import ideal_loss
from metricshuffle.errors import InputError
from metricshuffle.numerics.rounding import round_up
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
        return round_up(self.features.slope(self.space, self.rates) * self.units * self.stretch * self.rounds, 4)

    def ideal(self, target: Target) -> PrivacyProfile:
        """The profile of the noisy sums alone.

        linear: pure, at every distance. flat: the worst move within the distance, pure if that keeps epsilon, else by its exact law.
        A loss above epsilon may still be kept by a delta, as that of any pair with such a loss.
        """
        if target.shape == "linear":
            return PureProfile(self.slope)
        max_loss = self.slope * target.distance
        if self.single:
            losses = (self.rounds * ideal_loss(move) for move in self.features.moves(self.space, self.rates, target.distance))
            max_loss = min(max_loss, max(losses, default=0.0))
        if not self.single or target.delta == 0.0 or max_loss <= target.epsilon:
            return PureUpTo(round_up(max_loss, 4), target.distance)
        return self.far()

    def far(self) -> LargeMoves:
        """One person's moves by the exact law of the noise: far ones are hidden much better than in proportion, once a delta is allowed."""
        if not self.single:
            raise InputError("far moves are accounted for by their exact law where everybody holds one value.")
        return LargeMoves(lambda distance: self.features.moves(self.space, self.rates, distance), self.rounds)

    def alone(self, sharers: int, distance: float) -> float:
        """What one person's vector gives away by itself at moves up to that distance, over all rounds; rounded up."""
        if self.single:
            moves = self.features.moves(self.space, self.rates, distance)
            return round_up(self.rounds * max((single_report_loss(move, sharers) for move in moves), default=0.0), 2)
        tops = np.asarray(self.features.table(self.space).max(axis=0).toarray()).ravel().astype(np.int64) * self.units
        budget = self.slope / self.rounds * distance
        return round_up(self.rounds * max_single_report_loss(self.rates, tops, sharers, budget), 2)
