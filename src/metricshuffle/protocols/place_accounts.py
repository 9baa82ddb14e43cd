"""Privacy profiles of sums of randomly rounded places, for calibration and verification."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from metricshuffle.accounting.sums.additive_noise import AdditiveNoise, QuantisedProfile
from metricshuffle.accounting.sums.rounded_reports import RoundedReport, rounded_rate, rounded_slope
from metricshuffle.errors import ConditionError
from metricshuffle.noise.polya import Polya
from metricshuffle.privacy.profile import PrivacyProfile, PureProfile, PureUpTo
from metricshuffle.privacy.target import Target


@dataclass(frozen=True)
class PlaceAccounts:
    """Accounts of a target in units, over `rounds` rounds.

    `whole` is the sum of both sides of the box in units, rounded up. All accounts are pure, because
    the noise has a total shape of 1 or more and the cost of rounding is in proportion to the
    distance (`rounded_slope`): a move by (dx, dy) of length d has |dx| + |dy| <= sqrt(2) d. A delta
    does not help a linear guarantee here, because the guarantee would have to apply at every
    distance, however small.
    """

    target: Target
    whole: int
    rounds: int
    axes: ClassVar[int] = 2
    grain: ClassVar[int] = 1

    @property
    def units(self) -> float:
        """Largest sum over both axes of a move within the target's distance, in units, rounded up.

        Any number of people may move.
        """
        return math.sqrt(2.0) * self.target.distance * (1.0 + 1e-15)

    @property
    def together(self) -> bool:
        """Whether the guarantee covers people who move together.

        It does not if it relies on the size of the box.
        """
        return self.target.shape == "linear" or self.units <= self.whole

    def pure_rate(self) -> float:
        """Largest rate of noise per unit that meets the target with delta = 0, rounded down."""
        units = self.units if self.target.shape == "linear" else min(self.units, float(self.whole))
        return rounded_rate(self.target.epsilon / self.rounds / units * (1.0 - 1e-15))

    def pure_profile(self, rate: float) -> PrivacyProfile:
        """Profile of noise of total shape >= 1 and this rate, over all rounds."""
        slope = self.rounds * rounded_slope(rate)
        if self.target.shape == "flat":
            return PureUpTo(
                slope * min(self.units, float(self.whole)) * (1.0 + 1e-15), self.target.distance
            )
        return PureProfile(slope * math.sqrt(2.0) * (1.0 + 1e-15))

    def noise_profile(self, noise: Polya) -> PrivacyProfile:
        """Same as `pure_profile`, for exact noise; ConditionError if its shape is below 1."""
        if noise.shape < 1:
            raise ConditionError(
                "Random rounding",
                "noise of total shape 1 or more",
                f"shape {float(noise.shape):.4g}",
            )
        return self.pure_profile(noise.rate)

    def report_profile(self, axis: PrivacyProfile) -> PrivacyProfile:
        """Profile of one person's reports if everyone else colludes; one axis represents both."""
        noise = axis.coarse if isinstance(axis, QuantisedProfile) else axis
        slope = math.inf
        if (
            isinstance(noise, AdditiveNoise)
            and isinstance(noise.noise, Polya)
            and noise.noise.shape >= 1
        ):
            slope = rounded_slope(noise.noise.rate)
        return RoundedReport(noise, self.rounds, slope)

    def total_profile(self, axis: PrivacyProfile) -> PrivacyProfile:
        """Profile of noise of any shape, for one person."""
        return self.report_profile(axis)
