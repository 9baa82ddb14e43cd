"""Privacy between real numbers that are rounded at random to whole units before noise is added.

The accounts of places use it (protocols/place_accounts.py).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from metricshuffle.citations import theorem
from metricshuffle.numerics.rounding import round_down, round_up
from metricshuffle.privacy.profile import (
    PrivacyProfile,
    PureProfile,
    checked_epsilon,
    validate_distance,
)


@theorem("metricshuffle", "Random rounding keeps a metric promise")
def rounded_slope(rate: float) -> float:
    """Epsilon per unit of real numbers rounded at random, with discrete Laplace noise of `rate`.

    x is sent as floor(x) + Bernoulli(x - floor(x)) + noise; `rate` is per unit.

    Statement: moving x to x' costs at most (e^rate - 1) |x - x'|, also with more noise. Over
    several axes and several people the costs add.
    Conditions: fresh and independent randomness for every rounding; the total noise is discrete
    Laplace of that rate, or that plus independent noise (a Polya law of shape 1 or more).
    Proof: consider first a move inside one unit, x = t in [0, 1], with p = e^-rate. The probability
    of the sum z >= 1 is p^z ((1-t) p + t)/p up to a constant, and d/dt ln(p + t (1-p)) = (1-p)/(p +
    t (1-p)) <= e^rate - 1; for z <= 0 by symmetry. Longer moves are chained through whole numbers,
    people one after the other; anything independent of them is added afterwards. QED. The bound is
    attained as x' approaches x: `rate` itself would be too small.
    Numerics: rounded up.
    """
    return round_up(math.expm1(rate), 8) if rate < 700.0 else math.inf


def rounded_rate(slope: float) -> float:
    """Largest rate whose `rounded_slope` is at most `slope`: log(1 + slope), rounded down."""
    return round_down(math.log1p(slope), 16)


@dataclass(frozen=True)
class RoundedReport(PrivacyProfile):
    """Profile of one person's place, each axis rounded at random to whole units, then noised.

    Both axes have the same symmetric noise; distances are in units.

    Statement: let g(k) be the largest log ratio of the noise and its shift by k units (concave in
    k), r the distance on the plane. The cost is at most g(s/2) + g(s - s/2), s = ceil(sqrt(2) r) +
    1, s/2 rounded down; for r <= 1 also at most 4 log(1 + r c/(2 sqrt(2))), c = e^g(1) - 1; and at
    most sqrt(2) r `slope`, if the noise has a slope (`rounded_slope`). All these bounds are
    multiplied by `rounds`.
    Proof: let a and b be the distances of the two values along the two axes. If both values of an
    axis are rounded with the same uniform number, the rounded values differ by floor(a) or ceil(a).
    The sum ceil(a) + ceil(b) < a + b + 2 <= sqrt(2) r + 2 costs most when it is split equally over
    the axes. Inside a unit, for a value with the fractional part t and noise of law f, the law of
    the result is (1-t) f(z) + t f(z-1), and its ratio at t and t' is at most 1 + |t - t'| c. A move
    of at most one unit crosses at most one whole number, so along one axis it costs at most 2 log(1
    + a c/2), and both axes together cost most where a = b. QED.
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
        """delta of any pair whose log likelihood ratio is at most `pure` (see PureProfile)."""
        cost = self.pure(distance)
        if checked_epsilon(epsilon) >= cost:
            return 0.0
        return 1.0 if not cost < math.inf else PureProfile(cost).delta(epsilon, 1.0)
