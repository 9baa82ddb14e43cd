"""Real numbers that are rounded at random to whole units before noise is added: what that hides, between the numbers themselves."""

from __future__ import annotations

import math
from dataclasses import dataclass

from metricshuffle.citations import theorem
from metricshuffle.numerics.rounding import round_down, round_up
from metricshuffle.privacy.profile import PrivacyProfile, PureProfile, checked_epsilon, validate_distance


@theorem("metricshuffle", "Random rounding keeps a metric promise")
def rounded_slope(rate: float) -> float:
    """Epsilon a unit of real numbers x that are sent as floor(x) + Bernoulli(x - floor(x)), with discrete Laplace noise of `rate` a unit.

    Statement: moving x to x' costs at most (e^rate - 1) |x - x'|, also with more noise. Several axes, and several people: the costs add.
    Conditions: fresh and independent randomness for every rounding; noise whose total is discrete Laplace of that rate, or that plus
    something independent (a Polya law of shape 1 or more).
    Proof: inside one unit, x = t in [0, 1], p = e^-rate: the law at z >= 1 is p^z ((1-t) p + t)/p up to a constant, and
    d/dt ln(p + t (1-p)) = (1-p)/(p + t (1-p)) <= e^rate - 1; for z <= 0 by symmetry. Longer moves are chained through whole numbers,
    people one after the other; what is independent of them is added afterwards. QED
    It is attained as x' comes near x: `rate` itself would be too small.
    Numerics: rounded up.
    """
    return round_up(math.expm1(rate), 8) if rate < 700.0 else math.inf


def rounded_rate(slope: float) -> float:
    """The largest rate whose `rounded_slope` is at most `slope`: log(1 + slope), rounded down."""
    return round_down(math.log1p(slope), 16)


@dataclass(frozen=True)
class RoundedReport(PrivacyProfile):
    """One person's place, each axis rounded at random to whole units, with the same symmetric noise on both; distances are in units.

    Statement, for the largest log ratio g(k) of the noise and its shift by k units (concave in k), r the distance on the plane: the cost
    is at most g(s/2) + g(s - s/2), s = ceil(sqrt(2) r) + 1, s/2 rounded down; for r <= 1 also at most 4 log(1 + r c/(2 sqrt(2))),
    c = e^g(1) - 1; and sqrt(2) r `slope`, if the noise has one (`rounded_slope`). All that times `rounds`.
    Proof: with one uniform number for both values of an axis that are a apart, the rounded ones differ by floor(a) or ceil(a); and
    ceil(a) + ceil(b) < a + b + 2 <= sqrt(2) r + 2 is spent worst in equal parts. Inside a unit the law is (1-t) f(z) + t f(z-1),
    and its ratio at t and t' is at most 1 + |t - t'| c; a move of at most one unit crosses one whole number at most, so that it costs
    2 log(1 + a c/2) at most, and both axes together most where a = b. QED
    """

    axis: PrivacyProfile
    rounds: int = 1
    slope: float = math.inf
    bound: str = "rounded first"

    def pure(self, distance: float) -> float:
        radius = validate_distance(distance)
        if radius == 0.0:
            return 0.0
        units = math.ceil(math.sqrt(2.0) * radius * (1.0 + 1e-12)) + 1
        cost = self.axis.pure(units // 2) + self.axis.pure(units - units // 2)
        step = self.axis.pure(1)
        if radius <= 1.0 and step < 700.0:
            cost = min(cost, 4.0 * math.log1p(radius * math.expm1(step) / (2.0 * math.sqrt(2.0))))
        if math.isfinite(self.slope):
            cost = min(cost, math.sqrt(2.0) * radius * self.slope)
        return self.rounds * cost * (1.0 + 1e-14)

    def delta(self, epsilon: float, distance: float) -> float:
        """As for any pair whose log likelihood ratio is at most that (see PureProfile)."""
        cost = self.pure(distance)
        if checked_epsilon(epsilon) >= cost:
            return 0.0
        return 1.0 if not cost < math.inf else PureProfile(cost).delta(epsilon, 1.0)
