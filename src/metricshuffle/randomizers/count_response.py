"""The report of RR-Shuffle: randomized response on each of k unary bits, sent as a count."""

from __future__ import annotations

import math
from typing import ClassVar, Literal

import numpy as np

from metricshuffle.accounting.sums.flipped_bit_count import (
    RandomizedResponseProfile,
    count_interval,
)
from metricshuffle.errors import InputError, argument
from metricshuffle.models import FrozenModel
from metricshuffle.numerics.types import Floats, Integers64
from metricshuffle.privacy.profile import PrivacyProfile
from metricshuffle.randomness import Randomness

# Flip probabilities are multiples of 2^-32, so that half a random word decides a bit exactly.
FLIP_DENOMINATOR = 2**32
# Data sets are covered in this many blocks, so that a plan takes seconds; the blocks cost one per
# cent more noise than the worst data set needs.
PLANNING_BLOCKS = 40


class CountResponse(FrozenModel):
    """A value x in 0..span as x ones of `span` bits, each flipped; the report is the count of ones.

    Each bit is flipped with probability `flip`. Sending only the count (in unary, in the client's
    own secret order) makes the guarantee hold without a shuffler: with visible positions, x and x+1
    differ at a known bit. Binary randomized response is span = 1.
    """

    kind: Literal["count-response"] = "count-response"
    granularity: ClassVar[int] = 1
    span: int
    flip: float

    def model_post_init(self, context: object) -> None:
        if self.span < 1:
            raise InputError(f"{argument('span')} must be >= 1, got {self.span}.")
        if not 0.0 < self.flip < 0.5 or self.flip * FLIP_DENOMINATOR != int(
            self.flip * FLIP_DENOMINATOR
        ):
            raise InputError(
                f"flip must be a multiple of 2^-32 strictly between 0 and 1/2, got {self.flip!r}."
            )

    @property
    def top(self) -> int:
        """Largest value."""
        return self.span

    @property
    def length(self) -> int:
        """Largest report."""
        return self.span

    def reports(self, values: Integers64, randomness: Randomness) -> Integers64:
        """Draw Bin(x, 1-flip) + Bin(span-x, flip) for every value, bit by bit, exactly."""
        from metricshuffle.noise import _sampling_kernels as kernels

        threshold = np.uint64(int(self.flip * FLIP_DENOMINATOR))
        words_each = (self.span + 1) // 2
        out = np.empty(len(values), dtype=np.int64)
        together = max(1, 2**18 // words_each)
        for start in range(0, len(values), together):
            part = values[start : start + together]
            words = randomness.words(len(part) * words_each)
            out[start : start + together] = kernels.flipped_counts(
                part, self.span, threshold, words.reshape(len(part), words_each)
            )
        return out

    def summed_profile(self, honest: int) -> RandomizedResponseProfile:
        """Return the profile of the count of ones in honest people's bits, over all data sets."""
        return RandomizedResponseProfile(
            bits=honest * self.span, flip=self.flip, most_blocks=PLANNING_BLOCKS
        )

    def local_profile(self) -> PrivacyProfile:
        """Return the privacy profile of one report (a count)."""
        return RandomizedResponseProfile(bits=self.span, flip=self.flip)

    def total_from_count(self, count: int, reports: int) -> float:
        """Return an unbiased estimate of the total from the count of ones."""
        return (count - reports * self.span * self.flip) / (1.0 - 2.0 * self.flip)

    def total_variance(self, count: int, people: int | None = None) -> float:
        """Return the variance of the estimated total.

        Every bit has variance flip (1 - flip), whatever the data.
        """
        return count * self.span * self.flip * (1.0 - self.flip) / (1.0 - 2.0 * self.flip) ** 2

    def error_points(self, count: int, people: int | None = None) -> tuple[Floats, Floats]:
        """Return sizes and weights whose mean is the mean absolute error of the total.

        It is the rescaled mean absolute deviation of Bin(bits, flip) (de Moivre).
        """
        bits = count * self.span
        nodes = np.polynomial.hermite_e.hermegauss(80)
        centre = math.floor(bits * self.flip) + 1
        log_mass = (
            (
                math.lgamma(bits + 1)
                - math.lgamma(centre + 1)
                - math.lgamma(bits - centre + 1)
                + centre * math.log(self.flip)
                + (bits - centre + 1) * math.log1p(-self.flip)
            )
            if centre <= bits
            else -math.inf
        )
        mean_deviation = 2.0 * centre * math.exp(log_mass)
        sizes = np.abs(nodes[0])
        weights = nodes[1] / nodes[1].sum()
        scale = mean_deviation / (1.0 - 2.0 * self.flip) / float(sizes @ weights)
        return sizes * scale, weights

    def interval(self, count: int, reports: int, level: float) -> tuple[float, float]:
        """Return an exact interval for the total, by inverting the tails of the count."""
        low, high = count_interval(count, reports * self.span, self.flip, level)
        return float(low), float(high)

    def half_width(self, count: int, level: float, people: int | None = None) -> float:
        """Return half the width of the interval in the middle of the range, for a plan's forecast.

        A release uses `interval`.
        """
        middle = round(count * self.span * 0.5)
        low, high = self.interval(middle, count, level)
        return 0.5 * (high - low)
