"""Geometric noise on a line, clamped at the ends, and its use for real numbers in an interval."""

from __future__ import annotations

import math
from fractions import Fraction
from functools import cached_property
from typing import Any, Literal

import numpy as np

from metricshuffle.accounting.shuffling.blanket_law import BlanketLaw
from metricshuffle.citations import theorem
from metricshuffle.errors import DomainError, InputError, argument, owner
from metricshuffle.models import FrozenModel, Positive, Real, Whole
from metricshuffle.noise.samplers import rational_rate, sample_discrete_laplace
from metricshuffle.numerics.rounding import round_up
from metricshuffle.numerics.types import Floats, Integers64
from metricshuffle.privacy.profile import PrivacyProfile, PureProfile, validate_distance
from metricshuffle.randomizers.dyadic_weights import TOTAL_WEIGHT
from metricshuffle.randomizers.randomizer import Codes, FittedFamily, Pair, Randomizer, code_values
from metricshuffle.randomness import Randomness
from metricshuffle.spaces import Domain, Integers, Interval


def clamped_rows(span: int, rate: float) -> Floats:
    """Return the laws of the clamped geometric mechanism as rows.

    K(x)[y] = (1-p)/(1+p) p^|x-y| for 0 < y < span and p^|x-y|/(1+p) at the two ends, p = e^-rate.
    """
    places = np.arange(span + 1)
    rows: Floats = np.exp(-rate * np.abs(places[:, None] - places)) / (1.0 + math.exp(-rate))
    rows[:, 1:-1] *= -math.expm1(-rate)
    return rows


def clamped_blanket(span: int, rate: float) -> Floats:
    """Return min over x of K(x)[y], the law of the end farther from y."""
    rows = clamped_rows(span, rate)
    smallest: Floats = np.minimum(rows[0], rows[-1])
    return smallest


class BoundedGeometric(Randomizer):
    """Whole numbers 0..span; the report is the value plus discrete Laplace noise, clamped.

    The noise has the given rate, and reports are clamped to 0..span. The noisy value is exactly
    rate * distance private, and clamping it is post-processing. The rate is rounded down to 30
    bits, and that rational rate is both sampled and accounted for. Reference: Ghosh, Roughgarden,
    Sundararajan 2012.
    """

    kind: Literal["bounded-geometric"] = "bounded-geometric"
    span: Whole
    rate: Positive

    def __init__(self, span: int, rate: float, **fields: object) -> None:
        FrozenModel.__init__(self, span=span, rate=rate, **fields)

    def model_post_init(self, context: object) -> None:
        if not 1 <= self.span <= 2**20:
            raise InputError(
                f"{owner('BoundedGeometric')}{argument('span')} must lie in 1..2^20, got "
                f"{self.span}."
            )
        _ = self.exact_rate

    @cached_property
    def exact_rate(self) -> Fraction:
        """The rate as the rational number that is sampled and accounted for."""
        return rational_rate(self.rate)

    @classmethod
    def fitted(cls, domain: Domain, cells: int) -> FittedFamily | None:
        """Return the family for a line of `cells` values, by the rate per value."""
        return (
            FittedFamily(lambda rate: cls(cells - 1, rate))
            if isinstance(domain, Integers | Interval)
            else None
        )

    @property
    def inputs(self) -> int:
        return self.span + 1

    @property
    def outputs(self) -> int:
        return self.span + 1

    def rows(self) -> Floats:
        self._listable()
        return clamped_rows(self.span, float(self.exact_rate))

    def distance(self, a: int, b: int) -> float:
        return float(abs(a - b))

    @property
    def diameter(self) -> float:
        return self.distance(0, self.inputs - 1)

    @theorem("Ghosh12", "geometric mechanism, clamped")
    def blanket(self, a: int, b: int) -> BlanketLaw:
        """Blanket of (a, b) in closed form.

        Statement: w(y) is the law of the end farther from y: K(x)[y] is least at the largest |x -
        y|.
        Numerics: each report is an atom; closed forms, each right to a few units in the last place,
        excess by expm1.
        """
        self._checked_pair(a, b)
        rate = float(self.exact_rate)
        places = np.arange(self.span + 1)
        first = np.abs(places - a)
        second = np.abs(places - b)
        heights = np.full(self.span + 1, 1.0 / (1.0 + math.exp(-rate)))
        heights[1:-1] *= -math.expm1(-rate)
        farther = np.maximum(places, self.span - places)
        return BlanketLaw(
            heights * np.exp(-rate * farther),
            heights * np.exp(-rate * first),
            heights * np.exp(-rate * second),
            -heights * np.exp(-rate * first) * np.expm1(-rate * (second - first)),
        )

    def local_epsilon(self, a: int | None = None, b: int | None = None) -> float:
        """Return rate * |a - b|, attained at the ends, rounded up."""
        distance = (
            self.span
            if a is None or b is None
            else abs(self._checked_input(a) - self._checked_input(b))
        )
        return round_up(float(self.exact_rate) * distance, 2)

    def local_profile(self) -> PrivacyProfile:
        """Return the profile rate * distance with delta = 0."""
        return PureProfile(float(self.exact_rate))

    def reports(self, values: object, randomness: Randomness) -> Integers64:
        codes = code_values(values, self.span + 1)
        return np.clip(
            codes + sample_discrete_laplace(self.exact_rate, len(codes), randomness), 0, self.span
        )

    def targets(self) -> Floats:
        """Return the value itself, then the indicator of each value."""
        return np.column_stack([np.arange(self.inputs, dtype=np.float64), np.eye(self.inputs)])

    @theorem("metricshuffle", "unbiased estimators from clamped geometric noise")
    def debiasing(self) -> Floats:
        """Return unbiased estimators of the value and of the histogram.

        Statement: E g(Y) = x for g(y) = y inside, g(0) = -p/(1-p), g(span) = span + p/(1-p);
        histograms are estimated by the tridiagonal inverse.
        Proof: given that the noisy value is <= 0 it lies G below 0 with G geometric of mean
        p/(1-p), whatever x is, and g(0) is minus that mean. A matrix with entries p^|x-y| has the
        inverse 1/(1-p^2) times (1 at the two ends, 1 + p^2 inside, -p next to the diagonal).
        """
        self._listable()
        return np.column_stack([self.line, self._inverse()])

    @property
    def line(self) -> Floats:
        """g: the contribution of each report to the sum of the values."""
        p = math.exp(-float(self.exact_rate))
        contribution = np.arange(self.inputs, dtype=np.float64)
        contribution[0] -= p / (1.0 - p)
        contribution[-1] += p / (1.0 - p)
        return contribution

    def _inverse(self) -> Floats:
        p = math.exp(-float(self.exact_rate))
        middle = np.full(self.inputs, 1.0 + p * p)
        middle[[0, -1]] = 1.0
        powers = (np.diag(middle) - p * (np.eye(self.inputs, k=1) + np.eye(self.inputs, k=-1))) / (
            1.0 - p * p
        )
        heights = np.full(self.inputs, 1.0 / (1.0 + p))
        heights[1:-1] *= 1.0 - p
        inverse: Floats = powers / heights[:, None]
        return inverse

    def totals(self, reports: object) -> Floats:
        """Return unbiased estimates of the sum of the values, then of the count of each value.

        The counts are very noisy for a small rate.
        """
        counts = self.counts(reports).astype(np.float64)
        p = math.exp(-float(self.exact_rate))
        scaled = counts * (1.0 + p)
        scaled[1:-1] /= 1.0 - p
        middle = np.full(self.inputs, 1.0 + p * p)
        middle[[0, -1]] = 1.0
        histogram = middle * scaled
        histogram[1:] -= p * scaled[:-1]
        histogram[:-1] -= p * scaled[1:]
        return np.concatenate([[counts @ self.line], histogram / (1.0 - p * p)])


def rounded_places(
    values: object, low: float, high: float, steps: int, randomness: Randomness
) -> Integers64:
    """Round real numbers to grid places 0..steps, up with the probability of their remainder.

    The rounding is unbiased. Positions are doubles: values at distance d are treated as at most d
    (1 + 1e-15) + 1e-15 (high - low) apart.
    """
    numbers = np.asarray(values, dtype=np.float64)
    if numbers.ndim != 1 or not np.all((numbers >= low) & (numbers <= high)):
        raise DomainError(
            f"values must be a one-dimensional array of numbers from {low:g} to {high:g}; "
            "correct or clamp them first."
        )
    places = (numbers - low) / (high - low) * steps
    floors = np.minimum(np.floor(places), steps - 1)
    up = (randomness.words(len(numbers)) >> np.uint64(1)) < (
        (places - floors) * float(TOTAL_WEIGHT)
    ).astype(np.uint64)
    return floors.astype(np.int64) + up


class LaplaceOnInterval(Randomizer):
    """Real numbers in [low, high], rounded at random to a grid, plus discrete Laplace noise.

    The grid has `steps` steps, and reports are clamped to it. The report is rate * distance private
    for REAL inputs: between grid points the law is interpolated linearly, and where neighbouring
    laws are within a factor e^r the derivative of its logarithm is at most (e^r - 1)/h, h the step.
    So r = log(1 + rate h) is used on the grid. Input codes are the grid points. Estimates are in
    the unit of the values.
    """

    kind: Literal["laplace-on-interval"] = "laplace-on-interval"
    low: Real
    high: Real
    rate: Positive
    steps: Whole = 256

    def __init__(
        self, low: float, high: float, rate: float, steps: int = 256, **fields: object
    ) -> None:
        FrozenModel.__init__(self, low=low, high=high, rate=rate, steps=steps, **fields)

    def model_post_init(self, context: object) -> None:
        if not self.low < self.high or not 2 <= self.steps <= 2**20:
            names = ("low", "high", "steps")
            got = ", ".join(argument(name, getattr(self, name)) for name in names)
            raise InputError(
                f"{owner('LaplaceOnInterval')}{argument('low')} must be below {argument('high')}, "
                f"and {argument('steps')} in 2..2^20; got {got}."
            )
        _ = self.grid

    @property
    def step(self) -> float:
        """Distance of neighbouring grid points."""
        return (self.high - self.low) / self.steps

    @cached_property
    def grid(self) -> BoundedGeometric:
        """The randomizer on the grid; its rate is per step."""
        return BoundedGeometric(self.steps, math.log1p(self.rate * self.step) * (1.0 - 4e-16))

    @property
    def inputs(self) -> int:
        return self.grid.inputs

    @property
    def outputs(self) -> int:
        return self.grid.outputs

    def rows(self) -> Floats:
        return self.grid.rows()

    def distance(self, a: int, b: int) -> float:
        return abs(a - b) * self.step

    @property
    def diameter(self) -> float:
        return self.distance(0, self.inputs - 1)

    def pairs_within(self, distance: float) -> list[Pair]:
        """Return pairs of grid points up to the distance, rounded up to whole steps.

        Proof: two real inputs rounded with the same uniform number end a whole number of steps
        apart, at most their distance rounded up; the divergence of shuffled reports is jointly
        convex in the two laws, so it is at most that of the worst such pair.
        """
        steps = math.ceil(validate_distance(distance) / self.step * (1.0 - 1e-15))
        return [(a, b) for a, b in self.pairs() if abs(a - b) <= steps]

    def blanket(self, a: int, b: int) -> BlanketLaw:
        """Return the blanket of two grid points.

        The law of a real input is a mixture of the laws of two neighbouring grid points, so every
        user's law still contains w.
        """
        return self.grid.blanket(a, b)

    def local_epsilon(self, a: int | None = None, b: int | None = None) -> float:
        return self.grid.local_epsilon(a, b)

    def local_profile(self) -> PrivacyProfile:
        """Return the profile rate * distance with delta = 0, for real inputs."""
        return PureProfile(self.rate)

    def values_of(self, codes: Codes) -> Any:
        return self.low + np.asarray(codes) * self.step

    def reports(self, values: object, randomness: Randomness) -> Integers64:
        return self.grid.reports(
            rounded_places(values, self.low, self.high, self.steps, randomness), randomness
        )

    def targets(self) -> Floats:
        return np.asarray(self.values_of(np.arange(self.inputs))[:, None], dtype=np.float64)

    def debiasing(self) -> Floats:
        return self.low + self.grid.line[:, None] * self.step
