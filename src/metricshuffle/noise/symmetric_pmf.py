"""Symmetric integer laws, tabulated to a certified relative error on -radius..radius.

The accountant and the estimator read masses, tails and quantiles from here, however the law was
computed (noise/polya.py, noise/convolution.py).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np

from metricshuffle.errors import InputError, NotCertified, argument
from metricshuffle.numerics.types import Floats

# Above this many cells a law is refused: two gigabytes and seconds per answer.
LARGEST_RADIUS = 20_000_000
# Masses below e^-700 lose digits (doubles are subnormal below e^-708), so they count as 0 in the
# law; all 2 * LARGEST_RADIUS of them together add less than MIN_MASS to the mass outside.
SMALLEST_LOG_MASS = -700.0
MIN_MASS = 1e-290


def too_many_cells(radius: float, remedy: str) -> NotCertified:
    """The error for a law that is too wide to be tabulated."""
    return NotCertified(
        f"this noise law would need {radius:.3g} cells on each side, more than "
        f"{LARGEST_RADIUS:.0e}; {remedy}"
    )


@dataclass(frozen=True, eq=False)
class SymmetricLaw:
    """Law of an integer Z with P(Z = z) = P(Z = -z), tabulated for z = 0..radius.

    Statement: |log P(Z = m) - log_mass[m]| <= log_error[m] for m = 0..radius, and log_error does
    not decrease with m. If `cumulative_errors`, the error of log P(Z=i) - log P(Z=j) is at most
    |log_error[i] - log_error[j]| + 10 u (|log_mass[i]| + |log_mass[j]| + 2 |log_mass[0]|), u =
    ROUNDOFF = 2^-53; otherwise it is at most log_error[i] + log_error[j]. P(|Z| > radius) <=
    outside.

    log_concave: the TRUE law is log-concave (proved by the caller, not inferred from the numbers).
    """

    log_mass: Floats
    log_error: Floats
    outside: float
    log_concave: bool
    cumulative_errors: bool
    mass: Floats = field(init=False)
    tail: Floats = field(init=False)
    """tail[m] = P(Z >= m) = P(Z <= -m), to a few ulp; tail[radius + 1] = 0."""

    def __post_init__(self) -> None:
        if len(self.log_mass) != len(self.log_error) or len(self.log_mass) == 0:
            raise InputError("a law needs one log_error for each log_mass.")
        if not np.max(self.log_error) <= self.log_error[-1]:
            raise InputError("the log_error of a law must be largest at its radius.")
        # The minimum is NaN if any mass is NaN; the same holds for the extremes of the errors.
        lowest = float(np.min(self.log_mass))
        if math.isnan(lowest) or not (
            math.isfinite(self.log_error[-1]) and math.isfinite(np.min(self.log_error))
        ):
            raise NotCertified(
                "the noise law has a mass that is not a number; nothing can be certified from it."
            )
        if not self.outside < 1.0:
            raise NotCertified(
                "none of the mass of the noise law could be certified; use fewer cells (a "
                f"larger {argument('rate')}) or more users."
            )
        from metricshuffle.noise import _kernels

        mass = np.exp(self.log_mass)
        if lowest < SMALLEST_LOG_MASS:
            mass[self.log_mass < SMALLEST_LOG_MASS] = 0.0
        object.__setattr__(self, "mass", mass)
        object.__setattr__(self, "tail", _kernels.tail_sums(mass))
        object.__setattr__(self, "outside", self.outside + MIN_MASS)

    @property
    def radius(self) -> int:
        return len(self.log_mass) - 1

    def probability(self, z: int) -> float:
        """P(Z = z), the central value."""
        return float(self.mass[abs(z)]) if abs(z) <= self.radius else 0.0

    def beyond(self, radius: int) -> float:
        """Upper bound on P(|Z| > radius)."""
        if radius >= self.radius:
            return self.outside
        return min(
            1.0,
            2.0 * float(self.tail[max(radius, -1) + 1]) * math.exp(self.log_error[-1] + 1e-15)
            + self.outside,
        )

    def variance(self) -> float:
        """Variance of the tabulated part."""
        m = np.arange(len(self.mass), dtype=np.float64)
        return 2.0 * float(np.sum(m * m * self.mass))

    def quantile(self, level: float) -> int:
        """Smallest r with certified P(|Z| <= r) >= level."""
        miss = 1.0 - level
        if not 0.0 < level < 1.0 or miss <= self.outside:
            raise InputError(
                f"{argument('level')} must lie strictly between 0 and 1 and leave more "
                f"than {self.outside:.1e} out, got {level!r}."
            )
        allowed = (miss - self.outside) / (2.0 * math.exp(self.log_error[-1] + 1e-15))
        # tail is nonincreasing: first index m with tail[m] <= allowed means P(|Z| >= m) is small
        # enough, so r = m - 1.
        first = int(np.searchsorted(-self.tail, -allowed, side="left"))
        return max(first - 1, 0)
