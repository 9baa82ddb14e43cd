"""Epsilon against distance for shuffled geometric noise: exact, and as Athanasiou25 claims."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from metricshuffle.accounting.sums.additive_noise import AdditiveNoise
from metricshuffle.noise.polya import Polya
from metricshuffle_papers.enhancing_metric_privacy.formulas import geo_shuffle_epsilon

# Setting of the published experiments that one chart uses: users, noise rate per unit, delta,
# largest move.
PUBLISHED_SETTING = (100, 1.0, 1e-4, 1000)


@dataclass(frozen=True)
class EpsilonCurves:
    """Epsilon against distance for the shuffled sum of geometric noise.

    All epsilons are totals at their distance.
    """

    rate: float
    honest: int
    delta: float
    distances: tuple[int, ...]
    exact: tuple[float, ...]
    claim: float
    """Epsilon per unit of distance by Theorem 4.1 of Athanasiou25."""
    false_from: int | None
    """Smallest distance found at which the exact epsilon exceeds the claim; None if there is none.

    None refers to distances up to the last one.
    """

    @property
    def reach(self) -> int:
        return self.distances[-1]

    def claimed(self, distance: float) -> float:
        return self.claim * distance

    def alone(self, distance: float) -> float:
        """Epsilon of one report alone, which is left if the shuffler colludes."""
        return self.rate * distance


def epsilon_curves(
    rate: float, honest: int, delta: float, reach: int, points: int = 60
) -> EpsilonCurves:
    """Curves up to `reach` steps, for noise of that rate from each of `honest` people."""
    profile = AdditiveNoise(Polya(Fraction(honest), rate))
    claim = geo_shuffle_epsilon(rate, honest, delta).claim
    distances = tuple(
        sorted({1, *(int(d) for d in np.rint(np.linspace(0, reach, points + 1))[1:])})
    )
    exact = tuple(profile.epsilon(delta, d) for d in distances)

    def refuted(distance: int) -> bool:
        return profile.epsilon(delta, distance) > claim * distance

    false_from = None
    if refuted(reach):
        holds = 0
        false_from = reach
        while false_from - holds > 1:
            middle = (holds + false_from) // 2
            holds, false_from = (holds, middle) if refuted(middle) else (middle, false_from)
    return EpsilonCurves(rate, honest, delta, distances, exact, claim, false_from)
