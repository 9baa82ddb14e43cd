"""Exact composition of several pure (delta = 0) reports of one person.

`ComposedResponses` is the joint profile of such reports, for example of several local reports that
are not shuffled.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from metricshuffle.citations import theorem
from metricshuffle.errors import InputError, argument
from metricshuffle.numerics.rounding import ROUNDOFF, round_up
from metricshuffle.privacy.profile import PrivacyProfile, Shape, checked_epsilon, validate_distance

MAX_ROUNDS = 10_000_000
LARGEST_COST = 700.0  # epsilon of one round: e^cost is a float
_UNDERFLOW = 1e-300  # bound on the sum of masses that underflow


@dataclass(frozen=True)
class ComposedResponses(PrivacyProfile):
    """Composition of `rounds` mechanisms, each rate * distance private with delta = 0.

    All run on the same data, and each may be chosen after the earlier ones. No smaller bound holds
    for all such mechanisms: randomized response attains this one.
    """

    rate: float
    rounds: int
    bound: str = "exact for randomized response"

    def __post_init__(self) -> None:
        if not 0.0 < self.rate < math.inf:
            raise InputError(f"{argument('rate')} must be a finite number > 0, got {self.rate!r}.")
        if (
            isinstance(self.rounds, bool)
            or not isinstance(self.rounds, int)
            or not 1 <= self.rounds <= MAX_ROUNDS
        ):
            raise InputError(
                f"{argument('rounds')} must be a whole number from 1 to {MAX_ROUNDS:,}, "
                f"got {self.rounds!r}."
            )

    def _cost(self, distance: float) -> float:
        """Epsilon of one round, rounded up."""
        return (
            math.nextafter(self.rate * validate_distance(distance), math.inf) if distance else 0.0
        )

    def pure(self, distance: float) -> float:
        return round_up(self.rounds * self._cost(distance), 2)

    def covers(
        self, epsilon: float, delta: float, distance: float, shape: Shape = "linear"
    ) -> bool:
        """Return whether the target is met at every real distance.

        A linear target is met only where no delta is needed; a flat one is checked with its delta.
        """
        return self.covers_at(epsilon, delta if shape == "flat" else 0.0, distance)

    @theorem("metricshuffle", "composition of pure rounds")
    def delta(self, epsilon: float, distance: float) -> float:
        """Hockey-stick divergence of m = rounds randomized responses at e^epsilon.

        Statement: it is the sum over j of P(J = j) (1 - e^(epsilon - (2j - m) c))_+, J ~ Bin(m,
        e^c/(1 + e^c)), c = rate * distance. A pair of laws within a factor e^c of each other is the
        image of randomized response with odds e^c, so m rounds, also adaptive ones, are the image
        of m independent randomized responses. With j true answers, the log likelihood ratio of
        these m responses is (2j - m) c, and the sum is their hockey-stick divergence. It is
        attained, and the same in both directions.
        Conditions: none.
        Numerics: masses are computed by ratios of neighbours from the mode on, each ratio off by
        less than 8 roundings, so that every mass is within m * 8 roundings; the exponents are
        lowered by their rounding error, and a bound on the masses that underflow is added.
        Reference: this docstring; Kairouz, Oh, Viswanath 2015.
        """
        epsilon = checked_epsilon(epsilon)
        m = self.rounds
        cost = self._cost(distance)
        if epsilon >= self.pure(distance):
            return 0.0
        if cost > LARGEST_COST:
            return 1.0
        odds = math.exp(cost)
        mode = min(m, math.floor((m + 1) * (odds / (1.0 + odds))))
        above = np.arange(mode, m, dtype=np.float64)
        below = np.arange(mode, 0, -1, dtype=np.float64)
        with np.errstate(under="ignore"):
            up = np.cumprod((m - above) / (above + 1.0) * odds)
            down = np.cumprod(below / (m - below + 1.0) / odds)
        mass = np.concatenate([down[::-1], [1.0], up])
        loss = (2.0 * np.arange(m + 1.0) - m) * cost
        short = epsilon - loss - 8.0 * ROUNDOFF * (epsilon + m * cost)
        gained = np.where(short < 0.0, -np.expm1(np.minimum(short, 0.0)), 0.0)
        answer = (
            float(mass @ gained) / float(mass.sum()) * (1.0 + 64.0 * ROUNDOFF * (m + 1))
            + _UNDERFLOW
        )
        return min(1.0, answer)
