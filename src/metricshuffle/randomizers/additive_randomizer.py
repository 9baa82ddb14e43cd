"""Reports x + N with integer noise, kept in range by padding or by modular arithmetic."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import BeforeValidator, PlainSerializer

from metricshuffle.accounting.sums.additive_noise import AdditiveNoise, Clamped, QuantisedProfile
from metricshuffle.errors import InputError, PlanError
from metricshuffle.models import FrozenModel, format_value
from metricshuffle.noise.bounded_sum import BoundedSum, shared_table, tabulated_sum, truncated_sum
from metricshuffle.noise.dyadic_table import DyadicTable
from metricshuffle.noise.polya import MAX_UTILITY_CELLS, UTILITY_LOG_TAIL, Polya
from metricshuffle.noise.random_rounding import rounded_half_width
from metricshuffle.noise.samplers import sample_polya
from metricshuffle.noise.symmetric_pmf import SymmetricLaw
from metricshuffle.numerics.types import Floats, Integers64
from metricshuffle.privacy.profile import PrivacyProfile
from metricshuffle.randomness import Randomness

Padding = Literal["none", "clamp", "bounded"]


def _exact_shape(value: Any) -> Fraction:
    try:
        return Fraction(value)
    except (TypeError, ArithmeticError):
        raise ValueError(f"must be a fraction like 1/30, got {format_value(value)}") from None


ExactShape = Annotated[
    Fraction, BeforeValidator(_exact_shape), PlainSerializer(str, return_type=str)
]

# For more people the worst-case law of random rounding would be too long an array.
MAX_ROUNDED = 1_000_000_000


class AdditiveRandomizer(FrozenModel):
    """Values 0..span; the report is the (rounded) value plus a Polya share of noise.

    padding "none": the noise is unbounded and exact (rational rate); for modular encodings.

    padding "clamp": exact noise, the report is clamped to -radius..top+radius; one report has a
    pure guarantee.

    padding "bounded": the noise is a dyadic table on -radius..radius, and that table is the law
    that is accounted for.
    """

    kind: Literal["additive"] = "additive"
    span: int
    shape: ExactShape
    rate: float
    padding: Padding = "none"
    radius: int = 0
    granularity: int = 1
    table_digest: str | None = None
    """Digest of the table of the bounded form, once it has been accounted for."""

    def model_post_init(self, context: object) -> None:
        if self.span < 1 or self.granularity < 1 or self.radius < 0:
            text = f"{self.span}, {self.granularity}, {self.radius}"
            raise InputError(
                f"a randomizer needs span >= 1, granularity >= 1 and radius >= 0, got {text}."
            )

    @property
    def noise(self) -> Polya:
        """One person's share of the noise, before padding."""
        return Polya(self.shape, self.rate)

    @property
    def exact_rate(self) -> Fraction:
        """The rate as an exact rational number, used for both sampling and accounting."""
        return Fraction(self.rate)

    @property
    def top(self) -> int:
        """Largest value after rounding, in cells of `granularity` steps."""
        return -(-self.span // self.granularity)

    @property
    def length(self) -> int:
        """Largest report of the padded forms, which lie in 0..length."""
        return self.top + 2 * self.radius

    @property
    def table(self) -> DyadicTable:
        """The table of the bounded form.

        Raises PlanError if it differs from the table that was accounted for, as another machine's
        arithmetic may produce.
        """
        # Cached by its parameters, not on the object: a copy with another rate must not keep the
        # old table.
        table = shared_table(self.noise, self.radius)
        if self.table_digest is not None and table.digest != self.table_digest:
            raise PlanError(
                "this machine computes another noise table than the one that was accounted for; "
                "make the plan again here."
            )
        return table

    def pinned(self) -> AdditiveRandomizer:
        """Return a copy that is tied to the table computed here, if it has one."""
        return (
            self.model_copy(update={"table_digest": self.table.digest})
            if self.padding == "bounded"
            else self
        )

    def reports(self, values: Integers64, randomness: Randomness) -> Integers64:
        """Draw one report per value.

        Values must be validated already, 0..span. Padded reports are shifted to start at 0.
        """
        cells = round_randomly(values, self.granularity, randomness)
        if self.padding == "bounded":
            noisy = cells + self.radius
            self.table.add_noise_to(noisy, randomness)
            return noisy
        noisy = cells + sample_polya(self.shape, self.exact_rate, len(cells), randomness)
        if self.padding == "clamp":
            np.clip(noisy, -self.radius, self.top + self.radius, out=noisy)
            noisy += self.radius
        return noisy

    def summed_noise(self, count: int) -> Polya | BoundedSum:
        """Return the law of the noise in a sum of `count` reports, given that none was clamped."""
        if self.padding == "bounded":
            return tabulated_sum(self.noise, self.radius, count)
        if self.padding == "clamp":
            return truncated_sum(self.noise, self.radius, count)
        return self.noise.summed(count)

    def clamp_probability(self, count: int) -> float:
        """Upper bound on the probability that any of `count` reports is clamped."""
        if self.padding != "clamp":
            return 0.0
        law = self.noise.law(UTILITY_LOG_TAIL, self.radius)
        single_probability = law.beyond(self.radius)
        return min(1.0, count * single_probability)

    def summed_profile(self, honest: int) -> PrivacyProfile:
        """Return the privacy profile of the sum of `honest` honest reports, in steps."""
        profile: PrivacyProfile = AdditiveNoise(self.summed_noise(honest))
        if self.padding == "clamp":
            profile = Clamped(profile, self.clamp_probability(honest))
        return self._quantised(profile)

    def local_profile(self) -> PrivacyProfile:
        """Return the privacy profile of one report, in steps (clamping is post-processing)."""
        noise = self.summed_noise(1) if self.padding == "bounded" else self.noise
        return self._quantised(AdditiveNoise(noise))

    def _quantised(self, profile: PrivacyProfile) -> PrivacyProfile:
        return profile if self.granularity == 1 else QuantisedProfile(profile, self.granularity)

    def total_from_count(self, count: int, reports: int) -> int:
        """Estimate the total in steps from the shifted counts of a padded form."""
        return (count - reports * self.radius) * self.granularity

    def error_noise(self, count: int) -> Polya | BoundedSum:
        """Return the noise in a sum of `count` reports unless one was clamped.

        See `clamp_probability`.
        """
        return self.summed_noise(count) if self.padding == "bounded" else self.noise.summed(count)

    def scaled_error_law(self, count: int) -> tuple[SymmetricLaw, int]:
        """Return the law of `error_noise` and its cells per unit; see `Polya.scaled_law`."""
        noise = self.error_noise(count)
        return noise.scaled_law() if isinstance(noise, Polya) else (noise.law(UTILITY_LOG_TAIL), 1)

    def error_points(self, count: int, people: int | None = None) -> tuple[Floats, Floats]:
        """Return sizes of the error of a total, in steps, with weights (for expected errors).

        There are about 1,000 sizes. The error consists of `count` draws of noise and the rounding
        of `people` (default: `count`) values. Rounding errors are taken as normal with the variance
        of uniform remainders, (Q^2 - 1)/6 per person.
        """
        law, scale = self.scaled_error_law(count)
        sizes = np.arange(law.radius + 1, dtype=np.float64)
        both_signs = 2.0 * law.mass
        both_signs[0] = law.mass[0]
        # Sizes are merged into blocks at their means: exact for E|error|; the law is symmetric.
        edges = np.arange(0, law.radius + 1, max(1, law.radius // 1000))
        masses = np.add.reduceat(both_signs, edges)
        values = (
            np.add.reduceat(both_signs * sizes, edges)
            / np.maximum(masses, 1e-300)
            * (self.granularity * scale)
        )
        masses /= masses.sum()
        if self.granularity > 1:
            spread = math.sqrt(
                (count if people is None else people) * (self.granularity**2 - 1) / 6.0
            )
            values = _folded_normal_mean(values, spread)
        return values, masses

    def total_variance(self, count: int, people: int | None = None) -> float:
        """Return the variance of a total in steps squared (worst-case rounding, Q^2/4 a person)."""
        noise = self.error_noise(count)
        variance = (
            noise.variance() if isinstance(noise, Polya) else noise.law(UTILITY_LOG_TAIL).variance()
        )
        rounding = 0.25 * (count if people is None else people) if self.granularity > 1 else 0.0
        return (variance + rounding) * self.granularity**2

    def half_width(self, count: int, level: float, people: int | None = None) -> float:
        """Return a bound, in steps, on the error of a total that holds with probability >= level.

        It holds for all data. It is exact for the noise together with worst-case random rounding,
        if there is any (`rounded_half_width`). Where the law is too wide to be tabulated,
        Chernoff's bound is used for the noise. In this case, and with too many people, Hoeffding's
        bound is used for the rounding, with half of the miss probability.
        """
        left = 1.0 - level - self.clamp_probability(count)
        if not left > 0.0:
            raise InputError(
                f"no interval of level {level} exists: with probability "
                f"{1.0 - level - left:.2g} some report is clamped."
            )
        noise = self.error_noise(count)
        rounds = self.granularity > 1
        reports = count if people is None else people
        wide = isinstance(noise, Polya) and noise.tail_radius(UTILITY_LOG_TAIL) > MAX_UTILITY_CELLS
        if rounds and not wide and reports <= MAX_ROUNDED:
            return rounded_half_width(noise.law(UTILITY_LOG_TAIL), reports, left) * self.granularity
        part = 0.5 * left if rounds else left
        if isinstance(noise, Polya) and wide:
            cells = math.ceil(noise.tail_radius(math.log(part)))
        else:
            cells = noise.law(UTILITY_LOG_TAIL).quantile(1.0 - part)
        rounding = math.sqrt(0.5 * reports * math.log(2.0 / part)) if rounds else 0.0
        return (cells + rounding) * self.granularity


def _folded_normal_mean(centres: Floats, spread: float) -> Floats:
    """Return E|centre + spread * N| for a standard normal N."""
    from scipy.special import erf

    ratio = centres / spread
    return np.asarray(
        spread * math.sqrt(2.0 / math.pi) * np.exp(-0.5 * ratio**2)
        + centres * erf(ratio / math.sqrt(2.0))
    )


def round_randomly(values: Integers64, granularity: int, randomness: Randomness) -> Integers64:
    """Return floor(x / Q + U) with U uniform.

    Exact, because P(round up) = (x mod Q) / Q is decided by an integer below Q.
    """
    if granularity == 1:
        return values.astype(np.int64, copy=True)
    cells, remainder = np.divmod(values, granularity)
    draws = randomness.uniform_residues(len(values), granularity).astype(np.int64)
    return cells + (draws < remainder)
