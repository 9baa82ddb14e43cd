"""Gaussian noise for a query whose change is at most the distance, calibrated at the diameter.

Answers about a user's items use it (protocols/noisy_answers.py). Phi and phi are the distribution
function and the density of the standard normal law, and erfcx(x) = e^(x^2) erfc(x).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from metricshuffle.citations import theorem
from metricshuffle.errors import InputError, NotCertified, argument
from metricshuffle.numerics.certified_search import (
    farthest_certified,
    first_certified,
    last_certified,
)
from metricshuffle.numerics.rounding import ROUNDOFF, round_up
from metricshuffle.privacy.profile import (
    PrivacyProfile,
    Shape,
    checked_delta,
    checked_epsilon,
    validate_distance,
)

ERFC_TOLERANCE = 1e-14  # relative error assumed for erfcx and erfc, ten times the measured one
UNDERFLOW_DELTA = 1e-300  # added to every delta for terms that underflowed
ROOT_HALF = math.sqrt(0.5)
MAX_ARGUMENT = 1e9  # largest y; for a larger y, x is too inaccurate


@theorem("metricshuffle", "hockey-stick of two unit Gaussians")
def gaussian_delta(epsilon: float, shift: float) -> float:
    """Upper bound on the hockey-stick divergence g(epsilon, m) of N(m, 1) from N(0, 1).

    g(epsilon, m) = Phi(m/2 - epsilon/m) - e^epsilon Phi(-m/2 - epsilon/m), m = `shift`.

    Statement: with x = epsilon/m - m/2 and y = epsilon/m + m/2, e^epsilon phi(y) = phi(x), so the
    second term is e^(-x^2/2) erfcx(y/sqrt 2)/2. For x > 0 the first term is e^(-x^2/2) erfcx(x/sqrt
    2)/2, and no accuracy is lost for large x.
    Conditions: epsilon >= 0, shift >= 0.
    Numerics: rounded up: x and y have an error of 4 ulp of y. This error changes the logarithm of a
    Mills ratio (Phi(-x)/phi(x)) by at most the same amount, and x^2/2 by x times that amount; both
    terms are widened accordingly. For shifts below about 1e-6 the bound has fewer digits (the terms
    nearly cancel), but is never too small. Where y exceeds 1e9 (epsilon beyond 1e17, unless x is
    far out) the result is 1.
    Reference: Balle and Wang 2018, Theorem 8.
    """
    epsilon = checked_epsilon(epsilon)
    shift = validate_distance(shift)
    if shift == 0.0:
        return 0.0
    from scipy.special import erfc, erfcx

    ratio = epsilon / shift
    x = ratio - 0.5 * shift
    y = ratio + 0.5 * shift
    off = 4.0 * ROUNDOFF * (1.0 + y)
    if math.isinf(ratio) or x - off > 40.0:
        return UNDERFLOW_DELTA
    if not y < MAX_ARGUMENT:
        return 1.0
    slack = ERFC_TOLERANCE + 2.0 * off
    height = 0.5 * math.exp(-0.5 * x * x)
    tilt = 1.0 + 2.0 * (off * (abs(x) + 1.0) + 4.0 * ROUNDOFF * x * x)
    second = height * float(erfcx(y * ROOT_HALF)) * (1.0 - slack) / tilt
    first = (
        height * tilt * float(erfcx(x * ROOT_HALF)) if x > 0.0 else 0.5 * float(erfc(x * ROOT_HALF))
    )
    return min(1.0, round_up(max(first * (1.0 + slack) - second, 0.0), 4) + UNDERFLOW_DELTA)


@theorem("metricshuffle", "analytic Gaussian at the diameter")
def gaussian_sigma(rate: float, delta: float, diameter: float = 1.0) -> float:
    """Smallest certified standard deviation, per unit of Lipschitz constant.

    A move by w <= diameter is hidden at (rate * w, delta).

    Statement: with g of `gaussian_delta`, g(rate * diameter, diameter / sigma) <= delta; the same
    for smaller w follows (MetricGaussian.covers).
    Conditions: rate > 0, 0 < delta < 1, diameter > 0.
    Numerics: last value that passed a bisection on rounded-up deltas.
    Reference: replaces sqrt(1.25 ln(1/delta))/rate of Imola24, whose delta at rate 25 is 4.5e-5
    instead of 1e-12.
    """
    if not (0.0 < rate < math.inf and 0.0 < diameter < math.inf):
        raise InputError(
            f"{argument('rate')} and {argument('diameter')} must be finite numbers > 0, "
            f"got {rate!r} and {diameter!r}."
        )
    if checked_delta(delta) == 0.0:
        raise InputError(
            "Gaussian noise never reaches delta 0; allow a positive delta or use Laplace noise."
        )

    def certified(sigma: float) -> bool:
        return MetricGaussian(sigma).covers(rate * diameter, delta, diameter)

    largest = 1e100 * diameter
    if certified(diameter):
        bracket = farthest_certified(certified, diameter, 0.0, step=-0.5)
    else:
        bracket = first_certified(certified, 2.0 * diameter, largest, step=1.0, failing=diameter)
    if not bracket.passing < largest:
        raise NotCertified(
            f"no Gaussian noise could be certified for rate {rate!r} and delta {delta!r}."
        )
    return last_certified(certified, *bracket)


@dataclass(frozen=True)
class MetricGaussian(PrivacyProfile):
    """Spherical Gaussian noise of deviation `sigma` times the query's l2 Lipschitz constant."""

    sigma: float
    bound: str = "exact Gaussian"

    def __post_init__(self) -> None:
        if not (isinstance(self.sigma, int | float) and 0.0 < self.sigma < math.inf):
            raise InputError(
                f"{argument('sigma')} must be a finite number > 0, got {self.sigma!r}."
            )

    def delta(self, epsilon: float, distance: float) -> float:
        """Return g(epsilon, distance / sigma), g as in `gaussian_delta`.

        A query with Lipschitz constant l moves by at most l * distance, and g increases with the
        move.
        """
        return gaussian_delta(epsilon, round_up(validate_distance(distance) / self.sigma, 2))

    @theorem(
        "metricshuffle", "a linear Gaussian promise is hardest to keep at the largest distance"
    )
    def covers(
        self, epsilon: float, delta: float, distance: float, shape: Shape = "linear"
    ) -> bool:
        """Return whether the target is met at every real distance: `distance` itself decides.

        Statement: w -> g(a w, s w) increases, where g is that of `gaussian_delta`, a =
        epsilon/distance, s = 1/sigma and w is a distance. Its derivative is s phi(ws/2 - a/s) - a
        e^(aw) Phi(-ws/2 - a/s). With x = ws/2 + a/s, Phi(-x) <= phi(x)/x and e^(aw) phi(x) =
        phi(ws/2 - a/s), so the derivative is at least phi(ws/2 - a/s) (s - a/x) >= 0, because x >=
        a/s.
        Conditions: none.
        Numerics: one evaluation, rounded up.
        Reference: this docstring.
        """
        return self.covers_at(epsilon, delta, distance)
