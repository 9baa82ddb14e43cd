"""What sums of places hide that are rounded at random to units: the same for whoever calibrates the noise and for whoever verifies it."""

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
    """A target in units, over so many rounds; `whole`: units of both sides of the box together, rounded up.

    All is pure: noise of total shape 1 or more, and what a rounding costs in proportion to the distance (`rounded_slope`), since
    |dx| + |dy| <= sqrt(2) d. A delta does not help a linear promise there: it would have to hold at every distance, however small.
    """

    target: Target
    whole: int
    rounds: int
    axes: ClassVar[int] = 2
    grain: ClassVar[int] = 1

    @property
    def units(self) -> float:
        """Along both axes together, the most units of a move within the target's distance, rounded up; any number of people may move."""
        return math.sqrt(2.0) * self.target.distance * (1.0 + 1e-15)

    @property
    def together(self) -> bool:
        """Whether the promise counts people who move together: not where it rests on the size of the box."""
        return self.target.shape == "linear" or self.units <= self.whole

    def pure_rate(self) -> float:
        """Largest rate of noise, per unit, that keeps the target with delta = 0, rounded down."""
        units = self.units if self.target.shape == "linear" else min(self.units, float(self.whole))
        return rounded_rate(self.target.epsilon / self.rounds / units * (1.0 - 1e-15))

    def pure_profile(self, rate: float) -> PrivacyProfile:
        """What noise of total shape >= 1 and that rate hides, over all rounds."""
        slope = self.rounds * rounded_slope(rate)
        if self.target.shape == "flat":
            return PureUpTo(slope * min(self.units, float(self.whole)) * (1.0 + 1e-15), self.target.distance)
        return PureProfile(slope * math.sqrt(2.0) * (1.0 + 1e-15))

    def noise_profile(self, noise: Polya) -> PrivacyProfile:
        """The same of exact noise; with a shape below 1 nothing is promised."""
        if noise.shape < 1:
            raise ConditionError("Random rounding", "noise of total shape 1 or more", f"shape {float(noise.shape):.4g}")
        return self.pure_profile(noise.rate)

    def report_profile(self, axis: PrivacyProfile) -> PrivacyProfile:
        """What one person's reports hide if everybody else colludes; the noise of one axis stands for both."""
        noise = axis.coarse if isinstance(axis, QuantisedProfile) else axis
        slope = math.inf
        if isinstance(noise, AdditiveNoise) and isinstance(noise.noise, Polya) and noise.noise.shape >= 1:
            slope = rounded_slope(noise.noise.rate)
        return RoundedReport(noise, self.rounds, slope)

    def total_profile(self, axis: PrivacyProfile) -> PrivacyProfile:
        """Of noise of any shape, about one person."""
        return self.report_profile(axis)
