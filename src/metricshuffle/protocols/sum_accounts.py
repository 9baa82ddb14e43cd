"""Privacy profiles of sums with noise on each axis, for calibration and verification."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

from metricshuffle.accounting.composition.composed_profile import compose_rounds
from metricshuffle.accounting.sums.additive_noise import (
    AdditiveNoise,
    QuantisedProfile,
    coarse_slope,
)
from metricshuffle.accounting.sums.planar_noise import (
    JOINT_RADIUS,
    PerAxisProfile,
    PlanarNoise,
    outermost,
)
from metricshuffle.noise.polya import Polya
from metricshuffle.numerics.certified_search import last_certified
from metricshuffle.privacy.profile import PrivacyProfile, PureProfile, PureUpTo
from metricshuffle.privacy.target import Target


@dataclass(frozen=True)
class SumAccounts:
    """Accounts of a target in steps, on one or two axes, over `rounds` rounds.

    Values are rounded to `grain` steps first.
    """

    target: Target
    axes: int
    grain: int
    rounds: int

    def over_rounds(self, profile: PrivacyProfile) -> PrivacyProfile:
        """Compose a profile over all rounds."""
        return profile if self.rounds == 1 else compose_rounds(profile, self.rounds)

    def total_profile(self, axis: PrivacyProfile) -> PrivacyProfile:
        """Profile of the whole query over all rounds, from that of one axis.

        Two axes are accounted jointly in one round, and one at a time over several rounds.
        """
        if self.axes == 1:
            return self.over_rounds(axis)
        if self.rounds > 1:
            return PerAxisProfile(self.over_rounds(axis))
        # Beyond JOINT_RADIUS the bound is per axis, and its name says so; the joint bound is not
        # exact for noise that is not log-concave.
        swept = isinstance(axis, AdditiveNoise) and getattr(axis.noise, "log_concave", False)
        joint = "joint" if isinstance(axis, AdditiveNoise) and not swept else f"{axis.bound}, joint"
        return PlanarNoise(
            axis, joint if self.target.distance <= JOINT_RADIUS else PerAxisProfile.bound
        )

    def noise_profile(self, noise: Polya) -> PrivacyProfile:
        """Profile of the whole query for exact noise of this total law on each axis.

        The last profile is cached, with its computed laws.
        """
        return _noise_profile(self, noise)

    def report_profile(self, axis: PrivacyProfile) -> PrivacyProfile:
        """Profile of one person's report if everyone else colludes, over all rounds.

        The worse axis represents both. Additive noise is the same on both axes. Counts of
        randomized bits have a finite pure epsilon, which is all that is needed here, and the longer
        axis has the larger one, because more of its bits can move.
        """
        if self.axes == 1:
            return self.over_rounds(axis)
        if isinstance(axis, AdditiveNoise) and math.isfinite(axis.pure(1)):
            return self.over_rounds(PlanarNoise(axis))
        return PerAxisProfile(self.over_rounds(axis))

    def pure_rate(self) -> float:
        """Largest rate of pure noise that meets the target with delta = 0, rounded down.

        Pure noise has a total shape >= 1.
        Statement: for a linear target on one axis the rate is epsilon/distance per step (or the
        corresponding rate of the coarse slope, if values are rounded first). On two axes it is
        divided by sqrt(2), the largest value of (i+j)/|(i,j)| over moves of i and j steps. For a
        flat target it is epsilon over the largest number of steps within the distance. The epsilons
        of rounds add up, so each round gets epsilon/rounds.
        """
        target = self.target
        epsilon = target.epsilon / self.rounds
        if target.shape == "linear":
            slope = epsilon / target.distance * (1.0 - 1e-15)
            if self.axes == 2 and target.distance >= math.sqrt(2.0):
                slope /= math.sqrt(2.0)
            return slope if self.grain == 1 else coarse_slope(slope, self.grain)
        if self.grain == 1:
            return epsilon / self._flat_cost(1.0) * (1.0 - 1e-15)
        smallest = epsilon / (math.floor(target.distance) // self.grain + 1)
        largest = max(2.0 * smallest, coarse_slope(epsilon, self.grain))
        return last_certified(
            lambda rate: self._flat_cost(rate) <= epsilon, largest, smallest * (1.0 - 1e-12)
        )

    def _flat_cost(self, rate: float) -> float:
        """Epsilon of one round of pure noise for the largest move within the distance."""
        distance = self.target.distance
        if self.axes == 1:
            axis = AdditiveNoise(Polya(Fraction(1), rate))
            return (axis if self.grain == 1 else QuantisedProfile(axis, self.grain)).pure(distance)
        across = (
            max(i + j for i, j in outermost(distance))
            if distance <= JOINT_RADIUS
            else math.ceil(math.sqrt(2.0) * distance)
        )
        return rate * across

    def pure_profile(self, rate: float) -> PrivacyProfile:
        """Profile of the whole query for noise of total shape >= 1, up to the target's distance.

        This profile is fast to check.
        Statement: delta = 0 at epsilon = slope * distance * rounds. The slope is `rate` on one axis
        and sqrt(2) rate on two axes, because a move of i and j steps has |i| + |j| <= sqrt(2) |(i,
        j)|. If values are first rounded to Q = `grain` steps, `rate` in the slope is replaced by
        log(1 + (e^rate - 1)/Q), because (1 + x)^r >= 1 + r x. If the target is flat, epsilon is
        that of the largest move, for every move within the distance.
        """
        if self.target.shape == "flat":
            return PureUpTo(
                self.rounds * self._flat_cost(rate) * (1.0 + 1e-15), self.target.distance
            )
        slope = rate if self.grain == 1 else math.log1p(math.expm1(rate) / self.grain)
        if self.axes == 2 and self.target.distance >= math.sqrt(2.0):
            slope *= math.sqrt(2.0)
        return PureProfile(self.rounds * slope * (1.0 + 1e-15))


@lru_cache(maxsize=1)
def _noise_profile(accounts: SumAccounts, noise: Polya) -> PrivacyProfile:
    axis: PrivacyProfile = AdditiveNoise(noise)
    return accounts.total_profile(
        axis if accounts.grain == 1 else QuantisedProfile(axis, accounts.grain)
    )
