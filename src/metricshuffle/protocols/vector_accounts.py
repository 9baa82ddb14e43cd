"""Privacy profiles of noisy vectors, for calibration and verification."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import NamedTuple

import numpy as np

from metricshuffle.accounting.sums.split_and_mix import SplitAndMix
from metricshuffle.accounting.vectors.compromised_shuffler import (
    floor_loss,
    max_single_report_loss,
    single_report_loss,
)
from metricshuffle.accounting.vectors.encoding_terms import (
    largest_mixed_epsilon,
    rounding_losses,
)
from metricshuffle.accounting.vectors.feature_changes import ideal_loss
from metricshuffle.accounting.vectors.large_moves import LargeMoves
from metricshuffle.errors import InputError
from metricshuffle.numerics.rounding import format_delta, format_distance, format_epsilon, round_up
from metricshuffle.numerics.types import Floats, Integers64
from metricshuffle.privacy.profile import PrivacyProfile, PureProfile, PureUpTo
from metricshuffle.privacy.target import Target
from metricshuffle.protocols.features import Cells, Features, Lattice
from metricshuffle.queries.query import Query
from metricshuffle.randomizers.bounded_geometric import BoundedGeometric
from metricshuffle.randomizers.planar_geometric import PlanarGeometric
from metricshuffle.randomizers.randomized_response import KaryRandomizedResponse
from metricshuffle.randomizers.randomizer import Randomizer, has_law_of
from metricshuffle.spaces import Discrete, Space

# Beginning of the remark on the epsilon of a single person's moves.
SINGLE_PERSON_REMARK = "Of one person the sums tell less"


class Mixing(NamedTuple):
    """Shuffled shares: security of a group in bits, and number of groups over all rounds."""

    sigma: float
    sharings: int


@dataclass(frozen=True, eq=False)
class VectorAccounts:
    """Accounts of features of the points of a space, with noise of these rates on their sums.

    A person's vector adds up to `units` times the vector of a point: `units` is 1 for single
    values and else the number of items. `stretch` is the factor by which rounding shares to whole
    units may increase a slope. `single`: everyone has one value, whose features are whole numbers
    with moves that are accounted exactly. `rounded`: averages were rounded at random.
    """

    space: Space
    features: Features
    rates: Floats
    units: Fraction
    stretch: float
    single: bool
    rounds: int
    rounded: bool = False

    @cached_property
    def slope(self) -> float:
        """Loss of ideal sums per unit of distance over all rounds, rounded up."""
        losses = rounding_losses(self.rates) if self.rounded else self.rates
        slope = self.features.slope(self.space, losses)
        return round_up(slope * float(self.units) * self.stretch * self.rounds, 4)

    @cached_property
    def _max_values(self) -> Integers64:
        """Most that each coordinate of a person's vector can change by, without noise."""
        low, high = self.features.ranges(self.space)
        spans = (high - np.minimum(low, 0)).tolist()
        return np.array([math.ceil(self.units * span) for span in spans], dtype=np.int64)

    def ideal(self, target: Target) -> PrivacyProfile:
        """Profile of the noisy sums alone.

        For a linear target the profile is pure at every distance. For a flat target it is that of
        the worst move within the distance: pure if the loss of that move is at most epsilon, else
        by its exact law. A delta may still cover a loss above epsilon, as for any pair of laws.
        """
        if target.shape == "linear":
            return PureProfile(self.slope)
        max_loss = self.slope * target.distance
        if self.single:
            losses = (
                self.rounds * ideal_loss(move)
                for move in self.features.moves(self.space, self.rates, target.distance)
            )
            max_loss = min(max_loss, max(losses, default=0.0))
        if self.rounded:
            # Rounded vectors are mixtures of whole ones, which are at most this far apart.
            apart = float(np.sum(self.rates * self._max_values))
            max_loss = min(max_loss, round_up(self.rounds * apart, 8 + 2 * len(self.rates)))
        if not self.single or target.delta == 0.0 or max_loss <= target.epsilon:
            return PureUpTo(round_up(max_loss, 4), target.distance)
        return self.far()

    def far(self) -> LargeMoves:
        """Profile of one person's moves by the exact law of the noise.

        With a delta, large moves are protected much better than in proportion to their distance.
        """
        if not self.single:
            raise InputError(
                "large moves are accounted by their exact law only if everyone has one value."
            )
        return LargeMoves(
            lambda distance: self.features.moves(self.space, self.rates, distance), self.rounds
        )

    def alone(self, sharers: int, distance: float) -> float:
        """Loss of one person's vector alone, for moves up to this distance; rounded up.

        It covers all rounds.
        """
        if self.single:
            moves = self.features.moves(self.space, self.rates, distance)
            return round_up(
                self.rounds
                * max((single_report_loss(move, sharers) for move in moves), default=0.0),
                2,
            )
        budget = self.slope / self.rounds * distance
        if self.rounded:
            # Rounding both values by the same random number adds at most one unit of difference.
            budget += round_up(float(np.sum(self.rates)), 2 + 2 * len(self.rates))
        loss = max_single_report_loss(self.rates, self._max_values, sharers, budget)
        return round_up(self.rounds * loss, 2)

    def single_person_remarks(
        self, query: Query, target: Target, mixing: Mixing | None
    ) -> list[str]:
        """Remark on the smaller epsilons of one person's moves, if any.

        The moves are those by the target's distance and across the space.
        """
        large_moves: PrivacyProfile = self.far()
        if mixing is not None:
            large_moves = SplitAndMix(large_moves, mixing.sigma, mixing.sharings)
        sentences = []
        for distance in sorted({target.distance, query.diameter}):
            epsilon = large_moves.epsilon(target.delta, distance)
            if math.isfinite(epsilon) and format_epsilon(epsilon) != format_epsilon(
                self.slope * distance
            ):
                moved = f"{format_distance(distance)} {query.unit}".rstrip()
                sentences.append(f"epsilon {format_epsilon(epsilon)} if they move by {moved}")
        if not sentences:
            return []
        delta = format_delta(target.delta)
        return [
            f"{SINGLE_PERSON_REMARK}, with the same delta of {delta}: {' and '.join(sentences)}."
        ]

    def mixing_remark(self, target: Target, mixing: Mixing) -> str:
        """State up to which total epsilon the shuffled shares meet the target's delta."""
        max_epsilon = largest_mixed_epsilon(mixing.sharings, mixing.sigma, target.delta)
        ideal = self.ideal(target)
        # At this epsilon the noise uses some of delta, too, but no more than at a smaller epsilon.
        if ideal.delta(max_epsilon, target.distance) > 0.0:
            left = max(0.0, target.delta - ideal.delta(target.epsilon, target.distance))
            max_epsilon = largest_mixed_epsilon(mixing.sharings, mixing.sigma, left)
        return (
            "Shares are mixed well enough for a total epsilon of "
            f"{format_distance(max_epsilon)}, over everybody who moves; "
            "beyond that delta grows."
        )


def floor_slope(floor: Randomizer, features: Features, space: Space) -> float | None:
    """Upper bound on the loss of one randomized item per unit of distance.

    None if the guarantee of the sums would not survive the randomization.
    Statement: for clamped geometric noise on a line or on the axes of a grid, adding the same noise
    to two points brings them no farther apart on any axis, so no pair costs more than before. For
    randomized response on labels, any two labels are at distance 1 and the features are single
    cells, which cost the same for any two labels. See docs/proofs/noisy-vectors.md.
    """
    lattice = Lattice.of(space)
    if (
        has_law_of(floor, BoundedGeometric)
        and lattice is not None
        and floor.inputs == max(lattice.sides) == space.domain.size
    ):
        return lattice.per_unit(floor_loss(float(floor.exact_rate), 1.0))
    if (
        has_law_of(floor, PlanarGeometric)
        and lattice is not None
        and lattice.sides == (floor.width, floor.height)
    ):
        same = (floor.cell, floor.metric) == (
            lattice.step,
            "euclidean" if lattice.straight else "manhattan",
        )
        return round_up(floor.rate, 4) if same else None
    if (
        has_law_of(floor, KaryRandomizedResponse)
        and isinstance(features, Cells)
        and type(space.metric) is Discrete
    ):
        return floor.local_epsilon() if floor.inputs == space.domain.size else None
    return None
