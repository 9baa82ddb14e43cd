"""WitchHat: real numbers, private at a rate for close values, at a fixed epsilon for far ones."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from itertools import pairwise
from typing import Any, Literal

import numpy as np

from metricshuffle.accounting.shuffling.blanket_law import BlanketLaw
from metricshuffle.citations import theorem
from metricshuffle.errors import InputError, NotCertified, argument, owner
from metricshuffle.models import FrozenModel, Positive, Whole
from metricshuffle.numerics.types import Floats, Integers64
from metricshuffle.privacy.profile import (
    PrivacyProfile,
    PureProfile,
    Shape,
    checked_epsilon,
    validate_distance,
)
from metricshuffle.randomizers.bounded_geometric import rounded_places
from metricshuffle.randomizers.dyadic_weights import (
    TOTAL_WEIGHT,
    Epsilon,
    exp_below,
    log_rounded_up,
)
from metricshuffle.randomizers.randomizer import Codes, Pair, Randomizer
from metricshuffle.randomness import BUFFER_WORDS, Randomness


@dataclass(frozen=True)
class CappedProfile(PrivacyProfile):
    """The profile min(epsilon, rate * distance) with delta = 0."""

    rate: float
    most: float
    bound: str = "pure"

    def pure(self, distance: float) -> float:
        return (
            min(self.most, math.nextafter(self.rate * validate_distance(distance), math.inf))
            if distance
            else 0.0
        )

    def delta(self, epsilon: float, distance: float) -> float:
        epsilon = checked_epsilon(epsilon)
        cost = self.pure(distance)
        return 0.0 if epsilon >= cost else PureProfile(1.0).delta(epsilon, cost)

    def covers(
        self, epsilon: float, delta: float, distance: float, shape: Shape = "linear"
    ) -> bool:
        """Return whether the guarantee is covered.

        A linear guarantee is checked without the cap, which is safe.
        """
        return (
            self.covers_at(epsilon, delta, distance)
            if shape == "flat"
            else PureProfile(self.rate).covers(epsilon, delta, distance)
        )


class WitchHat(Randomizer):
    """Real numbers in [-half_width, half_width], min(epsilon, rate * distance) private.

    Values are rounded at random to a grid of 2 * `steps` steps; the report is a grid point of the
    same step. Weights decrease geometrically as the distance from the value grows, down to
    e^-epsilon of the centre's, and then stay equal up to epsilon/rate beyond the ends. The rate per
    step h is log(1 + rate h), so that the guarantee holds for real inputs (see LaplaceOnInterval).
    The weights are integers: `law`, `scale` and `variance` are exact for them, not for the
    continuous density they approach (`WitchHatDensity`).
    """

    kind: Literal["witch-hat"] = "witch-hat"
    half_width: Positive
    epsilon: Epsilon
    rate: Positive
    steps: Whole = 512

    def __init__(
        self, half_width: float, epsilon: float, rate: float, steps: int = 512, **fields: object
    ) -> None:
        FrozenModel.__init__(
            self, half_width=half_width, epsilon=epsilon, rate=rate, steps=steps, **fields
        )

    def model_post_init(self, context: object) -> None:
        if not 1 <= self.steps <= 2**20:
            raise InputError(
                f"{owner('WitchHat')}{argument('steps')} must lie in 1..2^20, got {self.steps:,}."
            )
        if self.reach > 2**20:
            raise InputError(
                f"{owner('WitchHat')}epsilon / rate must be at most 2^20 steps, got {self.reach:,}."
            )
        _ = self.weights

    @property
    def step(self) -> float:
        """Distance of neighbouring grid points."""
        return self.half_width / self.steps

    @cached_property
    def reach(self) -> int:
        """Number of steps until the weights are flat."""
        return max(1, math.ceil(self.epsilon / math.log1p(self.rate * self.step)))

    @cached_property
    def weights(self) -> tuple[int, ...]:
        """2^63 times the probability of a report 0, 1, ..., reach steps away from the value.

        Farther reports have the last weight. Neighbouring weights are within a factor 1 + rate h,
        the first and the last within e^epsilon: checked in integers.
        """
        ratio = 1 + Fraction(self.rate) * Fraction(self.step)
        max_ratio = exp_below(self.epsilon)
        exponents = -math.log1p(self.rate * self.step) * np.arange(self.reach + 1)
        shape = np.exp(np.maximum(exponents, -self.epsilon))
        for slack in range(44, 10, -3):
            eased = shape ** (1.0 - 2.0**-slack)
            total = eased.sum() * 2.0 - 1.0 + 2 * self.steps * eased[-1]
            rounded = np.ceil(TOTAL_WEIGHT * eased[1:] / total)
            if np.any(rounded[:-1] > rounded[1:] * (float(ratio) * (1.0 + 1e-12))):
                continue  # clearly violated, no need to compare integers
            outer = [int(weight) for weight in rounded.tolist()]
            weights = (TOTAL_WEIGHT - 2 * sum(outer) - 2 * self.steps * outer[-1], *outer)
            falls = all(
                farther <= nearer and nearer * ratio.denominator <= farther * ratio.numerator
                for nearer, farther in pairwise(weights)
            )
            if falls and weights[0] <= weights[-1] * max_ratio:
                return weights
        raise NotCertified(
            f"{owner('WitchHat')}{argument('epsilon', self.epsilon)} does not fit into "
            "weights that are multiples of 2^-63; lower it."
        )

    @property
    def inputs(self) -> int:
        return 2 * self.steps + 1

    @property
    def outputs(self) -> int:
        return 2 * (self.steps + self.reach) + 1

    def values_of(self, codes: Codes) -> Any:
        return (np.asarray(codes) - self.steps) * self.step

    def law(self, value: int) -> Floats:
        away = np.minimum(
            np.abs(np.arange(self.outputs) - self.reach - self._checked_input(value)), self.reach
        )
        probabilities: Floats = (np.array(self.weights, dtype=np.float64) / TOTAL_WEIGHT)[away]
        return probabilities

    def rows(self) -> Floats:
        self._listable()
        away = np.abs(
            np.arange(self.outputs)[None, :] - self.reach - np.arange(self.inputs)[:, None]
        )
        probabilities: Floats = (np.array(self.weights, dtype=np.float64) / TOTAL_WEIGHT)[
            np.minimum(away, self.reach)
        ]
        return probabilities

    def distance(self, a: int, b: int) -> float:
        return abs(a - b) * self.step

    @property
    def diameter(self) -> float:
        return self.distance(0, self.inputs - 1)

    def pairs_within(self, distance: float) -> list[Pair]:
        """Return pairs of grid points up to the distance, rounded up to whole steps.

        See LaplaceOnInterval.
        """
        steps = math.ceil(validate_distance(distance) / self.step * (1.0 - 1e-15))
        return [(a, b) for a, b in self.pairs() if abs(a - b) <= steps]

    @theorem("metricshuffle", "blanket of WitchHat")
    def blanket(self, a: int, b: int) -> BlanketLaw:
        """Blanket of (a, b) in closed form.

        Statement: w(y) is the weight at the distance from y to the farther end, because weights
        never grow with the distance.
        Numerics: reports with equal weights are one atom; differences are taken in integers.
        """
        self._checked_pair(a, b)
        weights = np.array(self.weights, dtype=np.int64)
        places = np.arange(self.outputs) - self.reach
        first, second = (
            weights[np.minimum(np.abs(places - value), self.reach)] for value in (a, b)
        )
        common = weights[
            np.minimum(np.maximum(np.abs(places), np.abs(places - 2 * self.steps)), self.reach)
        ]
        triples, copies = np.unique(
            np.stack([common, first, second], axis=1), axis=0, return_counts=True
        )
        columns = (triples[:, 0], triples[:, 1], triples[:, 2], triples[:, 1] - triples[:, 2])
        return BlanketLaw(
            *(column.astype(np.float64) / TOTAL_WEIGHT * copies for column in columns)
        )

    def local_epsilon(self, a: int | None = None, b: int | None = None) -> float:
        """Return the largest log ratio of two grid points' weights, rounded up."""
        apart = (
            2 * self.steps
            if a is None or b is None
            else abs(self._checked_input(a) - self._checked_input(b))
        )
        own_weights = self.weights
        shifted_weights = self.weights[apart:] + (self.weights[-1],) * apart
        worst = max(left / right for left, right in zip(own_weights, shifted_weights, strict=False))
        return (
            min(self.epsilon, self.rate * apart * self.step * (1.0 + 4e-16), log_rounded_up(worst))
            if apart
            else 0.0
        )

    def local_profile(self) -> PrivacyProfile:
        """Return the profile min(epsilon, rate * distance) with delta = 0, for real inputs."""
        return CappedProfile(self.rate, self.epsilon)

    def reports(self, values: object, randomness: Randomness) -> Integers64:
        """Draw codes of grid points: code c is the point (c - steps - reach) * step."""
        places = rounded_places(
            values, -self.half_width, self.half_width, 2 * self.steps, randomness
        )
        sums = np.cumsum(
            np.array(self.weights[:0:-1] + self.weights, dtype=np.uint64), dtype=np.uint64
        )
        out = np.empty(len(places), dtype=np.int64)
        flat = np.uint64(self.weights[-1])
        for start in range(0, len(places), BUFFER_WORDS):
            part = places[start : start + BUFFER_WORDS]
            numbers = randomness.words(len(part)) >> np.uint64(1)
            peak = np.searchsorted(sums, numbers, side="right")
            beyond = ((numbers - np.minimum(numbers, sums[-1])) // flat).astype(np.int64)
            # The flat reports in order, skipping the hat.
            beyond += np.where(beyond >= part, 2 * self.reach + 1, 0)
            out[start : start + BUFFER_WORDS] = np.where(numbers < sums[-1], part + peak, beyond)
        return out

    @cached_property
    @theorem("metricshuffle", "unbiased WitchHat estimator")
    def scale(self) -> float:
        """Factor that makes a report an unbiased estimate.

        Statement: E[z] = x/scale for the reported point z, with scale = 2^63/(sum of w - flat over
        the hat).
        Proof: subtract the flat weight from every report: the remainder is symmetric about x, and
        the flat part is symmetric about 0.
        Numerics: integers, rounded once.
        """
        flat = self.weights[-1]
        return TOTAL_WEIGHT / (
            2 * sum(weight - flat for weight in self.weights) - (self.weights[0] - flat)
        )

    def targets(self) -> Floats:
        column: Floats = self.values_of(np.arange(self.inputs))[:, None]
        return column

    def debiasing(self) -> Floats:
        places = np.arange(self.outputs, dtype=np.float64) - (self.steps + self.reach)
        return (places * (self.step * self.scale))[:, None]

    @theorem("metricshuffle", "exact WitchHat variance")
    def variance(self, value: float) -> float:
        """Return the variance of one report's estimate of a real number, with its random rounding.

        Statement: scale^2 E[z^2] - value^2; E[z^2] = (F + V + q s)/2^63 in steps, F = flat * sum of
        squares of all reports, q = E of the rounded value squared, V and s the second moment and
        the sum of w - flat over the hat.
        Numerics: integers, rounded once.
        """
        if not abs(value) <= self.half_width:
            raise InputError(f"value must lie within +-{self.half_width:g}, got {value!r}.")
        place = Fraction(value) / Fraction(self.step)
        flat = self.weights[-1]
        last = self.steps + self.reach
        below = math.floor(place)
        share = place - below
        square = below**2 * (1 - share) + (below + 1) ** 2 * share
        everywhere = flat * (last * (last + 1) * (2 * last + 1) // 3)
        hat = [weight - flat for weight in self.weights]
        second = (
            everywhere
            + 2 * sum(j * j * weight for j, weight in enumerate(hat))
            + square * (2 * sum(hat) - hat[0])
        )
        return float(
            Fraction(self.scale) ** 2 * second * Fraction(self.step) ** 2 / TOTAL_WEIGHT
            - Fraction(value) ** 2
        )

    @property
    def continuous(self) -> WitchHatDensity:
        """The density this law approaches as the steps get finer."""
        return WitchHatDensity(self.half_width, self.epsilon, 2.0 / self.rate)


@dataclass(frozen=True)
class WitchHatDensity:
    """The continuous WitchHat density on [-B-R, B+R], for comparison; it is never sampled.

    It is e^(-2|z-x|/F)/N within R = mF/2 of x and e^-m/N beyond, where B = half_width, m = epsilon
    and F = spread = 2/rate.
    """

    half_width: float
    epsilon: float
    spread: float

    @property
    def normaliser(self) -> float:
        """N = F (1 - e^-m) + 2 B e^-m."""
        return -self.spread * math.expm1(-self.epsilon) + 2.0 * self.half_width * math.exp(
            -self.epsilon
        )

    @property
    def kappa(self) -> float:
        """1 - e^-m - m e^-m."""
        return -math.expm1(-self.epsilon) - self.epsilon * math.exp(-self.epsilon)

    @property
    def scale(self) -> float:
        """N/(F kappa): the estimate is scale * z, unbiased."""
        return self.normaliser / (self.spread * self.kappa)

    @theorem("metricshuffle", "exact variance of the WitchHat density")
    def variance(self, value: float) -> float:
        """Return the variance of one estimate of `value`.

        Statement: scale^2 E[z^2] - x^2, with N E[z^2] = (2e^-m/3)((B+R)^3 - R^3) - 2e^-m R x^2 +
        F^3/2 + F x^2 - e^-m F (2x^2 + 2R^2 + 2FR + F^2)/2.
        Proof: integrate both pieces.
        Conditions: |x| <= B.
        """
        b = self.half_width
        f = self.spread
        r = self.epsilon * self.spread / 2.0
        x = value
        flat = math.exp(-self.epsilon)
        second = (
            2.0 * flat / 3.0 * ((b + r) ** 3 - r**3)
            - 2.0 * flat * r * x * x
            + f**3 / 2.0
            + f * x * x
        )
        second -= flat * f * (2.0 * x * x + 2.0 * r * r + 2.0 * f * r + f * f) / 2.0
        return self.scale**2 * second / self.normaliser - x * x

    @theorem("metricshuffle", "corrected WitchHat variance bound")
    def variance_bound(self, value: float) -> float:
        """Return an upper bound on the variance of one estimate of `value`.

        Statement: N(e^-m B (8B^2 + 12mFB + 6m^2F^2) + 6F^3 + 3N x^2)/(12 F^2 kappa^2) is at least
        the variance.

        The bound is published with 6 m^2 F for 6 m^2 F^2, which is false: 290.8 against an exact
        299.0 at B=10, m=2, F=5, x=6.
        """
        b = self.half_width
        m = self.epsilon
        f = self.spread
        n = self.normaliser
        inside = (
            math.exp(-m) * b * (8.0 * b * b + 12.0 * m * f * b + 6.0 * m * m * f * f)
            + 6.0 * f**3
            + 3.0 * n * value * value
        )
        return n * inside / (12.0 * f * f * self.kappa**2)

    def total_variation(self, distance: float) -> float:
        """Return (F(e^m - e^(m - d/F)) - d)/(F(e^m - 1) + 2B) with d at most mF."""
        d = min(validate_distance(distance), self.epsilon * self.spread)
        f = self.spread
        m = self.epsilon
        return (-f * math.exp(m) * math.expm1(-d / f) - d) / (
            f * math.expm1(m) + 2.0 * self.half_width
        )
