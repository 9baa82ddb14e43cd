"""Everything a plan is made for, in one frozen value that every candidate is calibrated against."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Literal

from metricshuffle.accounting.composition.rounds import composed
from metricshuffle.accounting.sums.additive import AdditiveNoise, Quantised, coarse_slope
from metricshuffle.accounting.sums.calibration import Promise, PureUpTo
from metricshuffle.accounting.sums.planar import JOINT_RADIUS, PerAxis, PlanarNoise, outermost
from metricshuffle.noise.polya import Polya
from metricshuffle.privacy.profile import PrivacyProfile, PureProfile, last_certified
from metricshuffle.privacy.target import Target
from metricshuffle.protocols.queries import Query
from metricshuffle.randomizers.additive import AdditiveRandomizer, Padding

EncodingChoice = Literal["unary", "modular", "auto"]
Trusted = Literal["nobody", "shuffler", "curator"]
ShareTransport = Literal["shuffler", "aggregator"]


@dataclass(frozen=True)
class Setting:
    """A query, a target and the people, with the choices that narrow the candidates."""

    query: Query
    target: Target
    users: int
    honest: int
    rounds: int = 1
    encoding: EncodingChoice = "auto"
    padding: Literal["clamp", "bounded"] = "clamp"
    granularity: float = 1.0
    transport: ShareTransport = "shuffler"
    trusted: Trusted = "shuffler"
    max_local_epsilon: float | None = None
    max_bits: int | None = None
    protocols: tuple[str, ...] | None = None
    """Only these protocols are calibrated (all if None)."""
    shapes: tuple[int, ...] | None = None
    """Only these total shapes of shuffled noise are calibrated (a few between 1 and honest if None)."""

    @property
    def grain(self) -> int:
        return self.query.grain(self.granularity)

    @property
    def step(self) -> float:
        return self.query.step(self.granularity)

    @property
    def axes(self) -> int:
        return self.query.axes

    @property
    def promise(self) -> Promise:
        """The target in steps; a distance that is a whole number of steps up to rounding (0.3 units of 0.1) counts as that many."""
        steps = self.target.distance if self.step == 1.0 else self.target.distance / self.step * (1.0 + 1e-12)
        return Promise(self.target.epsilon, self.target.delta, steps, self.target.shape)

    def at_epsilon(self, epsilon: float) -> Setting:
        return replace(self, target=Target(epsilon, self.target.delta, self.target.distance, self.target.shape))

    def randomizers(self, shape: int | float | object, rate: float, padding: Padding, radius: int = 0) -> tuple[AdditiveRandomizer, ...]:
        """The same noise on every axis."""
        return tuple(
            AdditiveRandomizer(span=span, shape=shape, rate=rate, padding=padding, radius=radius, granularity=self.grain)
            for span in self.query.spans(self.granularity)
        )

    def over_rounds(self, profile: PrivacyProfile) -> PrivacyProfile:
        return profile if self.rounds == 1 else composed(profile, self.rounds)

    def total_profile(self, axis: PrivacyProfile) -> PrivacyProfile:
        """What a profile of one axis makes of the whole query, over all rounds.

        Two axes are accounted jointly where the noise is known to be log-concave, and one at a time otherwise or over
        several rounds.
        """
        if self.axes == 1:
            return self.over_rounds(axis)
        if self.rounds == 1 and isinstance(axis, AdditiveNoise) and getattr(axis.noise, "log_concave", False):
            return PlanarNoise(axis)
        return PerAxis(self.over_rounds(axis))

    def noise_profile(self, noise: Polya) -> PrivacyProfile:
        """The whole query's profile for exact noise of that total law on each axis."""
        axis: PrivacyProfile = AdditiveNoise(noise)
        return self.total_profile(axis if self.grain == 1 else Quantised(axis, self.grain))

    def pure_rate(self) -> float:
        """Largest rate of pure noise (shape >= 1 in total) that keeps the target with delta = 0, rounded down.

        Statement: one axis, linear: epsilon/distance per step (or its coarse slope, if values are rounded first); two axes:
        divided by sqrt(2), the largest (i+j)/|(i,j)|. flat: epsilon over the largest number of steps within the distance.
        Rounds add up, so each gets epsilon/rounds.
        """
        promise = self.promise
        epsilon = promise.epsilon / self.rounds
        if promise.shape == "linear":
            slope = epsilon / promise.distance * (1.0 - 1e-15)
            if self.axes == 2 and promise.distance >= math.sqrt(2.0):
                slope /= math.sqrt(2.0)
            return slope if self.grain == 1 else coarse_slope(slope, self.grain)
        if self.grain == 1:
            return epsilon / self._flat_cost(1.0) * (1.0 - 1e-15)
        smallest = epsilon / (math.floor(promise.distance) // self.grain + 1)
        largest = max(2.0 * smallest, coarse_slope(epsilon, self.grain))
        return last_certified(lambda rate: self._flat_cost(rate) <= epsilon, largest, smallest * (1.0 - 1e-12))

    def _flat_cost(self, rate: float) -> float:
        """Epsilon of one round of pure noise for the largest move within the distance."""
        distance = self.promise.distance
        if self.axes == 1:
            axis = AdditiveNoise(Polya(Fraction(1), rate))
            return (axis if self.grain == 1 else Quantised(axis, self.grain)).pure(distance)
        across = max(i + j for i, j in outermost(distance)) if distance <= JOINT_RADIUS else math.ceil(math.sqrt(2.0) * distance)
        return rate * across

    def pure_profile(self, rate: float) -> PrivacyProfile:
        """The whole query's profile for noise of total shape >= 1, up to the target's distance (checked at once).

        Statement: delta = 0 at epsilon = slope * distance, slope = rate on one axis, sqrt(2) rate on two (|i| + |j| <= sqrt(2)
        |(i, j)|), log(1 + (e^rate - 1)/Q) if values are rounded to Q steps first ((1 + x)^r >= 1 + r x), times the rounds.
        If the target is flat: the epsilon of the largest move, for every move within the distance.
        """
        if self.target.shape == "flat":
            return PureUpTo(self.rounds * self._flat_cost(rate) * (1.0 + 1e-15), self.promise.distance)
        slope = rate if self.grain == 1 else math.log1p(math.expm1(rate) / self.grain)
        if self.axes == 2 and self.promise.distance >= math.sqrt(2.0):
            slope *= math.sqrt(2.0)
        return PureProfile(self.rounds * slope * (1.0 + 1e-15))
