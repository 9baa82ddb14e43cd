"""Calibration of padded noise in one-bit messages, with the smallest padding that is certified."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

from metricshuffle.accounting.sums.rare_clamping import clamping_penalty
from metricshuffle.errors import ConditionError, NotCertified, argument
from metricshuffle.noise.dyadic_table import LARGEST_RADIUS
from metricshuffle.noise.polya import UTILITY_LOG_TAIL, Polya
from metricshuffle.noise.symmetric_pmf import SymmetricLaw
from metricshuffle.numerics.certified_search import last_certified_integer
from metricshuffle.planning.candidate import Candidate
from metricshuffle.planning.candidates.sum_setting import (
    MAX_RATE,
    SumSetting,
    account_of,
    noise_rate,
    share_of,
)
from metricshuffle.privacy.profile import PrivacyProfile
from metricshuffle.protocols.sums import EXACT_CELLS, narrow

# Fraction of delta reserved for padding when noise is calibrated.
PADDING_DELTA_SHARE = 0.1
# Largest probability that any report is clamped: well below the 5 % that an interval may miss.
MAX_CLAMP_PROBABILITY = 0.005


def shuffled_unary(at: SumSetting, total_shape: int) -> Candidate:
    """Padded noise in one-bit messages, with the smallest padding found that meets the target."""
    check_unary(at)
    name, share = share_of(at, total_shape)
    calibration = UnaryCalibration(at, total_shape, share)
    radius = calibration.radius()
    padding = at.setting.padding
    rate = calibration.rate
    randomizers = tuple(
        randomizer.pinned() for randomizer in at.randomizers(share, rate, padding, radius)
    )
    protocol = at.sums(name, "shuffler", randomizers)
    # The account is the one that a recipient of the task computes.
    account = account_of(at, protocol)
    return at.offered(
        protocol, account, rate=rate, shape=total_shape, padding=padding, radius=radius
    )


def check_unary(at: SumSetting) -> None:
    """Raise if no padded noise can meet the target."""
    if at.target.delta == 0.0:
        raise ConditionError(
            "Unary messages", "delta > 0 (bounded noise always leaks at the edge)", "delta = 0"
        )
    if at.setting.padding == "bounded" and at.query.rounding is not None:
        raise ConditionError(
            "Random rounding",
            "noise that is exact until it is clamped",
            "padding 'bounded' (use 'clamp')",
        )


@dataclass(frozen=True)
class UnaryCalibration:
    """Rate and padding of noise, given the shapes of the honest total and of one person's share."""

    at: SumSetting
    total_shape: int
    share: Fraction

    @property
    def bounded(self) -> bool:
        return self.at.setting.padding == "bounded"

    @property
    def certain(self) -> bool:
        """Whether exact noise needs no delta, so that clamping may use the whole delta."""
        return self.total_shape == 1 and self.at.rounds == 1

    @property
    def clamping_delta(self) -> float:
        """Part of delta that clamping may use."""
        delta = self.at.target.delta
        return delta if self.certain else delta * PADDING_DELTA_SHARE

    @property
    def reports(self) -> int:
        """Number of values that honest people report.

        The probability that any of them is clamped at padding c is at most reports * law.beyond(c).
        """
        return self.at.honest * self.at.axes * self.at.rounds

    @cached_property
    def rate(self) -> float:
        """Largest rate that leaves enough of delta for the padding."""
        # Fails early if even noise at twice the rate of normal noise (or at the pure rate,
        # if that is higher) needs too many messages.
        least_noise = max(2.0 * self.at.normal_rate(self.total_shape), self.at.accounts.pure_rate())
        self.sufficient_padding(min(least_noise, MAX_RATE))
        delta = self.at.target.delta
        budget = delta if self.certain else delta * (1.0 - PADDING_DELTA_SHARE)
        return noise_rate(self.at, self.total_shape, budget)

    def sufficient_padding(self, rate: float) -> int:
        """Return a padding that suffices for privacy; raises if it takes too many messages."""
        log_tail = math.log(self.clamping_delta / self.reports) - self.at.target.epsilon - 1.0
        padding = math.ceil(Polya(self.share, rate).tail_radius(log_tail))
        if padding > LARGEST_RADIUS:
            raise NotCertified(
                f"unary messages would need a padding of {padding:,}, that is more than "
                f"{2 * padding:,} messages a person."
            )
        return padding

    @cached_property
    def interval_padding(self) -> int:
        """Padding at which reports are clamped so rarely that a 95 % interval can be given.

        Privacy counts only the honest reports, but an interval must hold for the reports of all
        users.
        """
        chance = MAX_CLAMP_PROBABILITY / (self.at.setting.users * self.at.axes)
        return math.ceil(Polya(self.share, self.rate).tail_radius(math.log(chance)))

    @cached_property
    def enough(self) -> int:
        return self.sufficient_padding(self.rate)

    @cached_property
    def law(self) -> SymmetricLaw:
        """Law of one share of the noise."""
        return Polya(self.share, self.rate).law(
            UTILITY_LOG_TAIL, max(self.enough, self.interval_padding)
        )

    @cached_property
    def total(self) -> Polya:
        """Noise of all honest people together."""
        return Polya(Fraction(self.total_shape), self.rate)

    def clamp_probability(self, radius: int) -> float:
        return min(1.0, self.reports * self.law.beyond(radius))

    def radius(self) -> int:
        """Return the smallest padding found that meets the target and allows an interval."""
        rare = self._rare_radius()
        is_narrow = narrow(self.total, self.at.target, self.at.grain)
        if self.bounded and not is_narrow:
            limit = f"a sum of at most {EXACT_CELLS:,} cells"
            raise ConditionError(
                "Bounded padding",
                limit,
                f"more (use {argument('padding', 'clamp')} or a {argument('granularity')})",
            )
        visible = self._visible_radius()
        rare = max(rare, visible)
        if self.bounded or (is_narrow and self.at.axes == self.at.rounds == self.at.grain == 1):
            exact = self._exact_radius(rare, visible)
            if exact is not None:
                return exact
            if self.bounded:
                raise NotCertified(
                    "no bounded noise up to twice the tail of one share could be "
                    f"verified; use {argument('padding', 'clamp')}."
                )
        self._check_rare(rare)
        return rare

    def _rare_radius(self) -> int:
        """Smallest padding whose clamping penalty fits into `clamping_delta`."""
        epsilon = self.at.target.epsilon
        limit = 0.99 * self.clamping_delta
        return last_certified_integer(
            lambda radius: clamping_penalty(epsilon, self.clamp_probability(radius)) <= limit,
            -1,
            self.enough,
        )

    def _visible_radius(self) -> int:
        """Smallest padding at which a 95 % interval can be given; 0 for bounded noise."""
        if self.bounded:
            return 0
        numbers = self.at.setting.users * self.at.axes
        return last_certified_integer(
            lambda radius: numbers * self.law.beyond(radius) <= MAX_CLAMP_PROBABILITY,
            -1,
            self.interval_padding,
        )

    def _exact_radius(self, rare: int, visible: int) -> int | None:
        """Smallest padding found that meets the target by the exact law of the padded sum.

        None if it is not smaller than `rare` (for bounded noise: than twice `enough`).
        """
        target = self.at.target
        min_radius = -1
        max_radius = 2 * self.enough
        if not self.bounded:
            # Padding at which reports are clamped with at least the probability delta breaks the
            # guarantee, so the search need not try it.
            too_small = last_certified_integer(
                lambda radius: self.reports * self.law.beyond(radius) < target.delta, -1, rare
            )
            min_radius = too_small - 1
            max_radius = rare
        radius = last_certified_integer(
            lambda radius: target.nearly_kept_by(self._exact_profile(radius)), min_radius, rare
        )
        radius = max(radius, visible)
        while radius < max_radius and not target.kept_by(self._exact_profile(radius)):
            radius += max(1, radius // 50)
        return radius if radius < max_radius else None

    def _exact_profile(self, radius: int) -> PrivacyProfile:
        randomizer = self.at.randomizers(self.share, self.rate, self.at.setting.padding, radius)[0]
        return self.at.accounts.total_profile(randomizer.summed_profile(self.at.honest))

    def _check_rare(self, radius: int) -> None:
        """Raise unless exact noise that is rarely clamped is certified at this padding."""
        epsilon = self.at.target.epsilon
        if clamping_penalty(epsilon, self.clamp_probability(radius)) > self.clamping_delta:
            raise NotCertified(
                f"clamping is not rare enough to be certified at epsilon {epsilon:g}; use "
                "the modular encoding."
            )
