"""Privacy profile of the shuffled reports of a channel whose inputs have arbitrary distances."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from metricshuffle.accounting.shuffling.clone_bound import (
    ClonePair,
    checked_users,
    delta_upper,
    epsilon_upper,
)
from metricshuffle.amplification.best_bound import BestBoundProfile
from metricshuffle.citations import theorem
from metricshuffle.numerics.certified_search import every_block
from metricshuffle.numerics.types import Floats
from metricshuffle.privacy.profile import (
    PrivacyProfile,
    Shape,
    checked_delta,
    checked_epsilon,
    validate_distance,
)
from metricshuffle.randomizers.channel import Channel

MAX_BY_LAWS = 64
"""Number of inputs up to which the channel's own laws are accounted for, pair by pair.

This many inputs take seconds; four times as many take minutes.
"""
DISTANCE_TOLERANCE = 1e-12


@dataclass(frozen=True)
class MetricChannelProfile(PrivacyProfile):
    """One shuffled report each of `users` people, for every pair of inputs up to a distance.

    Linear guarantees are certified at each distance. "best" is the smallest of all bounds on the
    channel's own laws (`BestBoundProfile`), up to 64 inputs. "clones" uses the channel's local
    epsilons alone, pair by pair, with the reaches of the two inputs; the reach of an input is the
    largest local epsilon between it and any other.
    """

    channel: Channel
    users: int
    relative: float | None = None
    """Relative tolerance of the search for epsilon; a coarser search is faster and just as safe."""

    def __post_init__(self) -> None:
        checked_users(self.users)

    @property
    def bound(self) -> str:  # type: ignore[override]
        """The kind of bound, "best" or "clones"."""
        return "clones" if self.laws is None else "best"

    @cached_property
    def laws(self) -> BestBoundProfile | None:
        """The bounds on its own laws; None if there are too many inputs."""
        if self.channel.inputs > MAX_BY_LAWS:
            return None
        return BestBoundProfile(
            self.channel, self.users, self.channel.diameter, relative=self.relative
        )

    @cached_property
    def apart(self) -> tuple[Floats, Floats]:
        """The smallest and largest of each distance between inputs, ascending.

        Distances that differ only by rounding count as one.
        """
        if self.channel.distances is None:
            return np.ones(1), np.ones(1)
        above = self.channel.distances[np.triu_indices(self.channel.inputs, 1)]
        values = np.unique(above[above > 0.0])
        if not len(values):
            return values, values
        starts = np.flatnonzero(
            np.concatenate(([True], np.diff(values) > DISTANCE_TOLERANCE * values[1:]))
        )
        return values[starts], values[np.concatenate((starts[1:] - 1, [len(values) - 1]))]

    @cached_property
    def _ranked(self) -> tuple[Floats, Floats]:
        """Distances of pairs, ascending, and three maxima over all pairs up to each distance.

        The maxima are the largest local epsilon, the largest of the pairs' larger reaches and the
        largest of the pairs' smaller reaches.
        """
        pairwise = self.channel.pairwise_epsilon()
        a, b = np.triu_indices(self.channel.inputs, 1)
        distances = (
            np.ones(len(a)) if self.channel.distances is None else self.channel.distances[a, b]
        )
        reaches = pairwise.max(axis=1)
        order = np.argsort(distances, kind="stable")
        columns = (
            pairwise[a, b],
            np.maximum(reaches[a], reaches[b]),
            np.minimum(reaches[a], reaches[b]),
        )
        return distances[order], np.maximum.accumulate(np.stack(columns)[:, order], axis=1)

    def _largest(self, distance: float) -> tuple[float, float, float]:
        distances, largest = self._ranked
        count = int(
            np.searchsorted(
                distances, validate_distance(distance) * (1.0 + DISTANCE_TOLERANCE), side="right"
            )
        )
        return tuple(largest[:, count - 1].tolist()) if count else (0.0, 0.0, 0.0)

    def pure(self, distance: float) -> float:
        """Return the largest local epsilon up to the distance, which shuffling never increases."""
        return self._largest(distance)[0]

    @theorem("metricshuffle", "clone pair of a channel, from its own local epsilons")
    def clone_pair(self, distance: float) -> ClonePair | None:
        """Return a clone pair that bounds every pair up to a distance.

        Statement: let K_x(y) be the probability of report y for input x, and D(a, b) = max_y |log
        K_a(y)/K_b(y)|. D is a metric in which the channel is private, so the clone pair with D(a,
        b) and the reaches max_c D(a, c), max_c D(b, c) bounds the pair (a, b). The clone bound
        grows in all three numbers; so, over all pairs up to a distance, the clone pair with the
        largest D, the largest of the larger reaches and the largest of the smaller reaches bounds
        every pair.
        Conditions: no report rules an input out (None otherwise).
        Numerics: each D is rounded up.
        Reference: delta_upper.
        """
        largest = self._largest(distance)
        return ClonePair(*largest) if np.isfinite(largest).all() else None

    def delta(self, epsilon: float, distance: float) -> float:
        epsilon = checked_epsilon(epsilon)
        if epsilon >= self.pure(distance):
            return 0.0
        pair = self.clone_pair(distance)
        bound = 1.0 if pair is None else delta_upper(pair, self.users, epsilon)
        return bound if self.laws is None else min(bound, self.laws.delta(epsilon, distance))

    def epsilon(self, delta: float, distance: float) -> float:
        delta = checked_delta(delta)
        alone = self.pure(distance)
        if delta == 0.0 or alone == 0.0:
            return alone
        pair = self.clone_pair(distance)
        bound = alone if pair is None else min(alone, epsilon_upper(pair, self.users, delta))
        return bound if self.laws is None else min(bound, self.laws.epsilon(delta, distance))

    def covers_at(self, epsilon: float, delta: float, distance: float) -> bool:
        """Return whether (epsilon, delta) is certified; the fast clone bound is evaluated first."""
        if delta > 0.0 and self.laws is not None:
            pair = self.clone_pair(distance)
            if (
                pair is not None
                and 0.0 <= delta_upper(pair, self.users, checked_epsilon(epsilon)) <= delta
            ):
                return True
            return self.laws.delta(epsilon, distance) <= delta
        return super().covers_at(epsilon, delta, distance)

    def covers(
        self, epsilon: float, delta: float, distance: float, shape: Shape = "linear"
    ) -> bool:
        """Return whether the guarantee is certified at every distance of two inputs.

        Blocks of distances that fail are halved.
        """
        smallest, largest = self.apart
        count = int(
            np.searchsorted(
                smallest, validate_distance(distance) * (1.0 + DISTANCE_TOLERANCE), side="right"
            )
        )
        if shape == "flat":
            return self.covers_at(epsilon, delta, distance)
        if self.pure(0.0) > 0.0:  # at distance 0 nothing is allowed
            return False

        def passes(first: int, last: int) -> bool:
            return self.covers_at(
                epsilon * (float(smallest[first]) / distance) * (1.0 - 6e-16),
                delta,
                float(largest[last]),
            )

        return every_block(count, passes)
