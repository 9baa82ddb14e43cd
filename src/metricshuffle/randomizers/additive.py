"""One person's report x + N: integer noise, kept in range by padding or by arithmetic modulo a number."""

from __future__ import annotations

import math
from fractions import Fraction
from functools import cached_property
from typing import Annotated, Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import BeforeValidator, PlainSerializer

from metricshuffle.accounting.shuffled_sum import AdditiveNoise, Clamped, Quantised
from metricshuffle.declared import Declared
from metricshuffle.errors import InputError
from metricshuffle.noise.bounded import BoundedSum, shared_table, truncated
from metricshuffle.noise.law import Floats, SymmetricLaw
from metricshuffle.noise.polya import Polya
from metricshuffle.noise.sampling import sample_polya
from metricshuffle.privacy.profile import PrivacyProfile
from metricshuffle.randomness import Randomness

Padding = Literal["none", "clamp", "bounded"]
Integers64 = NDArray[np.int64]

ExactShape = Annotated[Fraction, BeforeValidator(Fraction), PlainSerializer(str, return_type=str)]

# Error figures and intervals are read off laws whose cut-off tail is below e^-60.
UTILITY_LOG_TAIL = -60.0


class AdditiveRandomizer(Declared):
    """Values 0..span; the report is the (rounded) value plus a Polya share of noise.

    padding "none": the noise is unbounded and exact (rational rate); for modular encodings.
    padding "clamp": exact noise, the report is clamped to -radius..top+radius: one report keeps a pure guarantee.
    padding "bounded": the noise is a dyadic table on -radius..radius, and that table is the law that is accounted.
    """

    kind: Literal["additive"] = "additive"
    span: int
    shape: ExactShape
    rate: float
    padding: Padding = "none"
    radius: int = 0
    granularity: int = 1

    def model_post_init(self, context: Any) -> None:
        if self.span < 1 or self.granularity < 1 or self.radius < 0:
            given = f"{self.span}, {self.granularity}, {self.radius}"
            raise InputError(f"a randomizer needs span >= 1, granularity >= 1 and radius >= 0, got {given}.")

    @property
    def noise(self) -> Polya:
        """One person's share, before padding."""
        return Polya(self.shape, self.rate)

    @property
    def exact_rate(self) -> Fraction:
        """The rate as the rational number it is: what is sampled is what is accounted."""
        return Fraction(self.rate)

    @property
    def top(self) -> int:
        """Largest value after rounding, in cells of `granularity` steps."""
        return -(-self.span // self.granularity)

    @property
    def length(self) -> int:
        """Reports of the padded forms lie in 0..length."""
        return self.top + 2 * self.radius

    @cached_property
    def _table(self) -> Any:
        return shared_table(self.noise, self.radius)

    def reports(self, values: Integers64, randomness: Randomness) -> Integers64:
        """One report per value (already validated, 0..span); padded reports are shifted to start at 0."""
        cells = rounded(values, self.granularity, randomness)
        if self.padding == "bounded":
            noisy = cells + self.radius
            self._table.add_noise_to(noisy, randomness)
            return noisy
        noisy = cells + sample_polya(self.shape, self.exact_rate, len(cells), randomness)
        if self.padding == "clamp":
            np.clip(noisy, -self.radius, self.top + self.radius, out=noisy)
            noisy += self.radius
        return noisy

    def summed_noise(self, count: int) -> Polya | BoundedSum:
        """The law of the noise in a sum of `count` reports (given that none was clamped)."""
        if self.padding == "bounded":
            return BoundedSum.of_table(self._table, count)
        if self.padding == "clamp":
            return truncated(self.noise, self.radius, count)
        return self.noise.summed(count)

    def clamp_probability(self, count: int) -> float:
        """Upper bound on the chance that any of `count` reports is clamped."""
        if self.padding != "clamp":
            return 0.0
        law = self.noise.law(UTILITY_LOG_TAIL, self.radius)
        one = law.beyond(self.radius)
        return min(1.0, count * one)

    def summed_profile(self, honest: int) -> PrivacyProfile:
        """What the sum of `honest` honest reports hides, in steps."""
        profile: PrivacyProfile = AdditiveNoise(self.summed_noise(honest))
        if self.padding == "clamp":
            profile = Clamped(profile, self.clamp_probability(honest))
        return self._quantised(profile)

    def local_profile(self) -> PrivacyProfile:
        """What one report hides from everybody, in steps (clamping is post-processing)."""
        noise = self.summed_noise(1) if self.padding == "bounded" else self.noise
        return self._quantised(AdditiveNoise(noise))

    def _quantised(self, profile: PrivacyProfile) -> PrivacyProfile:
        return profile if self.granularity == 1 else Quantised(profile, self.granularity)

    def total_from_count(self, count: int, reports: int) -> float:
        """Estimate of the total of the steps from the shifted counts of a padded form."""
        return float((count - reports * self.radius) * self.granularity)

    def error_law(self, count: int) -> SymmetricLaw:
        """Law of the noise in the sum of `count` reports, in cells."""
        return self.summed_noise(count).law(UTILITY_LOG_TAIL)

    def error_points(self, count: int) -> tuple[Floats, Floats]:
        """Sizes of the error of a total in steps, about 1,000 of them, with weights (for expected errors).

        Rounding errors are taken as normal with the variance of uniform remainders, (Q^2 - 1)/6 a person.
        """
        law = self.error_law(count)
        sizes = np.arange(law.radius + 1, dtype=np.float64)
        both_signs = 2.0 * law.mass
        both_signs[0] = law.mass[0]
        # Blocks of equal length, each at its own mean: exact for E|error|, and the law is symmetric.
        edges = np.arange(0, law.radius + 1, max(1, law.radius // 1000))
        masses = np.add.reduceat(both_signs, edges)
        values = np.add.reduceat(both_signs * sizes, edges) / np.maximum(masses, 1e-300) * self.granularity
        if self.granularity > 1:
            spread = math.sqrt(count * (self.granularity**2 - 1) / 6.0)
            nodes, node_weights = np.polynomial.hermite_e.hermegauss(21)
            values = (values[:, None] + spread * nodes[None, :]).ravel()
            masses = (masses[:, None] * node_weights[None, :] / node_weights.sum()).ravel()
        return values, masses / masses.sum()

    def total_variance(self, count: int) -> float:
        """Variance of a total in steps squared (rounding at its worst, Q^2/4 a person)."""
        noise = self.error_law(count).variance() * self.granularity**2
        return noise + (0.25 * count * self.granularity**2 if self.granularity > 1 else 0.0)

    def half_width(self, count: int, level: float) -> float:
        """The error of a total, in steps, stays within this with probability >= level.

        Exact for the noise; the random rounding, if any, gets half of the miss and Hoeffding's bound.
        """
        miss = 1.0 - level
        clamped = self.clamp_probability(count)
        if not clamped < miss:
            raise InputError(f"no interval of level {level} exists: with probability {clamped:.2g} some report is clamped.")
        if self.granularity == 1:
            return float(self.error_law(count).quantile(1.0 - (miss - clamped)))
        rounding = self.granularity * math.sqrt(0.5 * count * math.log(4.0 / miss))
        return float(self.error_law(count).quantile(1.0 - (0.5 * miss - clamped)) * self.granularity) + rounding


def rounded(values: Integers64, granularity: int, randomness: Randomness) -> Integers64:
    """floor(x / Q + U) with U uniform: exact, because P(round up) = (x mod Q) / Q is decided by an integer below Q."""
    if granularity == 1:
        return values.astype(np.int64, copy=True)
    cells, rest = np.divmod(values, granularity)
    draws = randomness.uniform_residues(len(values), granularity).astype(np.int64)
    return cells + (draws < rest)
