"""Many reports of one person, each pure: what they promise together, exactly."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from metricshuffle.citations import theorem
from metricshuffle.errors import InputError
from metricshuffle.numerics.rounding import ROUNDOFF, round_up
from metricshuffle.privacy.profile import PrivacyProfile, Shape, checked_epsilon, validate_distance

MAX_ROUNDS = 10_000_000
LARGEST_COST = 700.0  # of one round: e^cost is a float
_UNDERFLOW = 1e-300  # what masses below the smallest float can add up to


@dataclass(frozen=True)
class ComposedResponses(PrivacyProfile):
    """`rounds` mechanisms on the same data, each rate * distance private with delta = 0; each may be chosen after the earlier ones.

    Nothing smaller holds for all such mechanisms: randomized response attains it.
    """

    rate: float
    rounds: int
    bound: str = "exact for randomized response"

    def __post_init__(self) -> None:
        if not 0.0 < self.rate < math.inf:
            raise InputError(f"rate must be a finite number > 0, got {self.rate!r}.")
        if isinstance(self.rounds, bool) or not isinstance(self.rounds, int) or not 1 <= self.rounds <= MAX_ROUNDS:
            raise InputError(f"rounds must be a whole number from 1 to {MAX_ROUNDS:,}, got {self.rounds!r}.")

    def _cost(self, distance: float) -> float:
        """Of one round, rounded up."""
        return math.nextafter(self.rate * validate_distance(distance), math.inf) if distance else 0.0

    def pure(self, distance: float) -> float:
        return round_up(self.rounds * self._cost(distance), 2)

    def covers(self, epsilon: float, delta: float, distance: float, shape: Shape = "linear") -> bool:
        """A linear promise, over all real distances, only where no delta is needed; a flat one as its delta says."""
        return self.covers_at(epsilon, delta if shape == "flat" else 0.0, distance)

    @theorem("metricshuffle", "composition of pure rounds")
    def delta(self, epsilon: float, distance: float) -> float:
        """sum over j of P(J = j) (1 - e^(epsilon - (2j - m) c))_+, J ~ Bin(m, e^c/(1 + e^c)), c = rate * distance, m = rounds.

        Statement: a pair of laws within a factor e^c of each other is the image of randomized response with odds e^c, so m rounds, also
        adaptive ones, are the image of m independent randomized responses; with j answers that tell the truth their log likelihood
        ratio is (2j - m) c, and the sum is their hockey-stick divergence. It is attained, and the same in both directions.
        Conditions: none. Numerics: masses by the ratios of neighbours from the mode on, each ratio off by less than 8 roundings, so that
        every mass is within m * 8 roundings; the exponents are lowered by their rounding error, and what underflows is added.
        Reference: this docstring; Kairouz, Oh, Viswanath 2015.
        """
        epsilon, m, cost = checked_epsilon(epsilon), self.rounds, self._cost(distance)
        if epsilon >= self.pure(distance):
            return 0.0
        if cost > LARGEST_COST:
            return 1.0
        odds = math.exp(cost)
        mode = min(m, math.floor((m + 1) * (odds / (1.0 + odds))))
        above, below = np.arange(mode, m, dtype=np.float64), np.arange(mode, 0, -1, dtype=np.float64)
        with np.errstate(under="ignore"):
            up = np.cumprod((m - above) / (above + 1.0) * odds)
            down = np.cumprod(below / (m - below + 1.0) / odds)
        mass = np.concatenate([down[::-1], [1.0], up])
        loss = (2.0 * np.arange(m + 1.0) - m) * cost
        short = epsilon - loss - 8.0 * ROUNDOFF * (epsilon + m * cost)
        gained = np.where(short < 0.0, -np.expm1(np.minimum(short, 0.0)), 0.0)
        answer = float(mass @ gained) / float(mass.sum()) * (1.0 + 64.0 * ROUNDOFF * (m + 1)) + _UNDERFLOW
        return min(1.0, answer)
