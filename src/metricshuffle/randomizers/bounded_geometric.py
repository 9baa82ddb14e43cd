"""Geometric noise on a line or a grid, clamped at the ends, and its use for real numbers in an interval."""

from __future__ import annotations

import math
from fractions import Fraction
from functools import cached_property
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from metricshuffle.accounting.blanket_law import BlanketLaw
from metricshuffle.citations import theorem
from metricshuffle.declared import Declared, Positive, Real, Whole
from metricshuffle.errors import DomainError, InputError
from metricshuffle.noise.sampling import rational_rate, sample_discrete_laplace
from metricshuffle.privacy.profile import PrivacyProfile, PureProfile
from metricshuffle.randomizers.dyadic import TOTAL
from metricshuffle.randomizers.randomizer import Codes, Floats, Randomizer, coded_values
from metricshuffle.randomness import Randomness

Integers = NDArray[np.int64]


def clamped_rows(span: int, rate: float) -> Floats:
    """K(x)[y] = (1-p)/(1+p) p^|x-y| for 0 < y < span and p^|x-y|/(1+p) at the two ends, p = e^-rate."""
    places = np.arange(span + 1)
    rows = np.exp(-rate * np.abs(places[:, None] - places)) / (1.0 + math.exp(-rate))
    rows[:, 1:-1] *= -math.expm1(-rate)
    return rows


def clamped_blanket(span: int, rate: float) -> Floats:
    """min over x of K(x)[y]: that of the end farther from y."""
    rows = clamped_rows(span, rate)
    smallest: Floats = np.minimum(rows[0], rows[-1])
    return smallest


class BoundedGeometric(Randomizer):
    """Whole numbers 0..span; the report is the value plus discrete Laplace noise of the given rate, clamped to 0..span.

    rate * distance private, exactly: noise that is, and clamping is post-processing. The rate is rounded down to 30 bits, and that
    rational rate is what is sampled and accounted. Reference: Ghosh, Roughgarden, Sundararajan 2012.
    """

    kind: Literal["bounded-geometric"] = "bounded-geometric"
    span: Whole
    rate: Positive

    def __init__(self, span: int, rate: float, **rest: Any) -> None:
        Declared.__init__(self, span=span, rate=rate, **rest)

    def model_post_init(self, context: Any) -> None:
        if not 1 <= self.span <= 2**20:
            raise InputError(f"BoundedGeometric: span must lie in 1..2^20, got {self.span}.")
        _ = self.exact_rate

    @cached_property
    def exact_rate(self) -> Fraction:
        return rational_rate(self.rate)

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

    @theorem("Ghosh12", "geometric mechanism, clamped")
    def blanket(self, a: int, b: int) -> BlanketLaw:
        """Statement: w(y) is the law of the end farther from y, because K(x)[y] falls with |x - y|.

        Numerics: a report is an atom; closed forms, each right to a few units in the last place, excess by expm1.
        """
        self._checked_pair(a, b)
        rate, places = float(self.exact_rate), np.arange(self.span + 1)
        first, second = np.abs(places - a), np.abs(places - b)
        heights = np.full(self.span + 1, 1.0 / (1.0 + math.exp(-rate)))
        heights[1:-1] *= -math.expm1(-rate)
        farther = np.maximum(places, self.span - places)
        return BlanketLaw(
            heights * np.exp(-rate * farther), heights * np.exp(-rate * first), heights * np.exp(-rate * second),
            -heights * np.exp(-rate * first) * np.expm1(-rate * (second - first)),
        )  # fmt: skip

    def local_epsilon(self, a: int | None = None, b: int | None = None) -> float:
        """rate * |a - b|, attained at the ends."""
        distance = self.span if a is None or b is None else abs(self._checked_input(a) - self._checked_input(b))
        return float(self.exact_rate) * distance * (1.0 + 2.0**-52)

    def local_profile(self) -> PrivacyProfile:
        """rate * distance with delta = 0."""
        return PureProfile(float(self.exact_rate))

    def reports(self, values: Any, randomness: Randomness) -> Integers:
        codes = coded_values(values, self.span + 1)
        return np.clip(codes + sample_discrete_laplace(self.exact_rate, len(codes), randomness), 0, self.span)

    def targets(self) -> Floats:
        """The value itself, and then the indicator of each value."""
        return np.column_stack([np.arange(self.inputs, dtype=np.float64), np.eye(self.inputs)])

    @theorem("metricshuffle", "unbiased estimators from clamped geometric noise")
    def debiasing(self) -> Floats:
        """Statement: E g(Y) = x for g(y) = y inside, g(0) = -p/(1-p), g(span) = span + p/(1-p); histograms by the tridiagonal inverse.

        Proof: given that the noisy value is <= 0 it lies G below 0 with G geometric of mean p/(1-p), whatever x is: g puts that back.
        A matrix with entries p^|x-y| has the inverse 1/(1-p^2) times (1 at the two ends, 1 + p^2 inside, -p next to the diagonal).
        """
        self._listable()
        return np.column_stack([self.line, self._inverse()])

    @property
    def line(self) -> Floats:
        """g: what each report contributes to the sum of the values."""
        p = math.exp(-float(self.exact_rate))
        contribution = np.arange(self.inputs, dtype=np.float64)
        contribution[0] -= p / (1.0 - p)
        contribution[-1] += p / (1.0 - p)
        return contribution

    def _inverse(self) -> Floats:
        p = math.exp(-float(self.exact_rate))
        middle = np.full(self.inputs, 1.0 + p * p)
        middle[[0, -1]] = 1.0
        powers = (np.diag(middle) - p * (np.eye(self.inputs, k=1) + np.eye(self.inputs, k=-1))) / (1.0 - p * p)
        heights = np.full(self.inputs, 1.0 / (1.0 + p))
        heights[1:-1] *= 1.0 - p
        inverse: Floats = powers / heights[:, None]
        return inverse

    def totals(self, reports: Any) -> Floats:
        """Unbiased estimates: the sum of the values, then how many people hold each value (very noisy for a small rate)."""
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


def rounded_places(values: Any, low: float, high: float, steps: int, randomness: Randomness) -> Integers:
    """Real numbers as grid places 0..steps, rounded up with the probability of their remainder: unbiased."""
    numbers = np.asarray(values, dtype=np.float64)
    if numbers.ndim != 1 or not np.all((numbers >= low) & (numbers <= high)):
        raise DomainError(f"values must be a one-dimensional array of numbers from {low:g} to {high:g}; correct or clamp them first.")
    places = (numbers - low) / (high - low) * steps
    floors = np.minimum(np.floor(places), steps - 1)
    up = (randomness.words(len(numbers)) >> np.uint64(1)) < ((places - floors) * float(TOTAL)).astype(np.uint64)
    return floors.astype(np.int64) + up


class LaplaceOnInterval(Randomizer):
    """Real numbers in [low, high]: rounded at random to a grid of `steps` steps, then discrete Laplace noise, clamped to the grid.

    rate * distance private for REAL inputs: between grid points the law is interpolated linearly, and where neighbouring laws are
    within a factor e^r the derivative of its logarithm is at most (e^r - 1)/h, h the step. So r = log(1 + rate h) is used on the grid.
    Input codes are the grid points. Estimates are in the unit of the values.
    """

    kind: Literal["laplace-on-interval"] = "laplace-on-interval"
    low: Real
    high: Real
    rate: Positive
    steps: Whole = 256

    def __init__(self, low: float, high: float, rate: float, steps: int = 256, **rest: Any) -> None:
        Declared.__init__(self, low=low, high=high, rate=rate, steps=steps, **rest)

    def model_post_init(self, context: Any) -> None:
        if not self.low < self.high or not 2 <= self.steps <= 2**20:
            raise InputError(f"LaplaceOnInterval: needs low < high and 2..2^20 steps, got {self.low}, {self.high}, {self.steps}.")
        _ = self.grid

    @property
    def step(self) -> float:
        return (self.high - self.low) / self.steps

    @cached_property
    def grid(self) -> BoundedGeometric:
        """What happens on the grid; its rate is per step."""
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

    def blanket(self, a: int, b: int) -> BlanketLaw:
        """Of two grid points. The laws of real inputs are mixtures of neighbours, so every user's law still contains w."""
        return self.grid.blanket(a, b)

    def local_epsilon(self, a: int | None = None, b: int | None = None) -> float:
        return self.grid.local_epsilon(a, b)

    def local_profile(self) -> PrivacyProfile:
        """rate * distance with delta = 0, for real inputs."""
        return PureProfile(self.rate)

    def values_of(self, codes: Codes) -> Any:
        return self.low + np.asarray(codes) * self.step

    def reports(self, values: Any, randomness: Randomness) -> Integers:
        return self.grid.reports(rounded_places(values, self.low, self.high, self.steps, randomness), randomness)

    def targets(self) -> Floats:
        return self.low + np.arange(self.inputs)[:, None] * self.step

    def debiasing(self) -> Floats:
        return self.low + self.grid.line[:, None] * self.step


class PlanarGeometric(Randomizer):
    """Cells (column, row) of a width x height grid; each coordinate gets discrete Laplace noise, clamped to the grid.

    rate * distance private for the Manhattan distance (noise rate = rate * cell on each axis: log ratios add up), or for the
    Euclidean one (rate * cell / sqrt 2, since |dx| + |dy| <= sqrt 2 |d|). Clamping is post-processing. This is geo-indistinguishability
    (Andres et al. 2013) with a product law, whose guarantee is exact; the planar Laplace law has none once it is put on a finite grid.
    Cells are coded row * width + column.
    """

    kind: Literal["planar-geometric"] = "planar-geometric"
    width: Whole
    height: Whole
    rate: Positive
    cell: Positive = 1.0
    metric: Literal["euclidean", "manhattan"] = "euclidean"

    def __init__(self, width: int, height: int, rate: float, cell: float = 1.0, metric: str = "euclidean", **rest: Any) -> None:
        Declared.__init__(self, width=width, height=height, rate=rate, cell=cell, metric=metric, **rest)

    def model_post_init(self, context: Any) -> None:
        if self.width < 2 or self.height < 2:
            raise InputError(f"PlanarGeometric: needs at least 2 x 2 cells, got {self.width} x {self.height}; a line is BoundedGeometric.")
        _ = self.axes

    @cached_property
    def axes(self) -> tuple[BoundedGeometric, BoundedGeometric]:
        """The noise of a column and of a row, in cells."""
        along = self.rate * self.cell / (math.sqrt(2.0) * (1.0 + 4e-16) if self.metric == "euclidean" else 1.0)
        return BoundedGeometric(self.width - 1, along), BoundedGeometric(self.height - 1, along)

    @property
    def inputs(self) -> int:
        return self.width * self.height

    @property
    def outputs(self) -> int:
        return self.width * self.height

    def rows(self) -> Floats:
        self._listable()
        across, up = self.axes
        return np.kron(up.rows(), across.rows())

    def law(self, value: int) -> Floats:
        row, column = divmod(self._checked_input(value), self.width)
        across, up = self.axes
        return np.kron(up.law(row), across.law(column))

    def distance(self, a: int, b: int) -> float:
        (row_a, column_a), (row_b, column_b) = divmod(a, self.width), divmod(b, self.width)
        apart = math.hypot if self.metric == "euclidean" else lambda x, y: abs(x) + abs(y)
        return self.cell * apart(row_a - row_b, column_a - column_b)

    def blanket(self, a: int, b: int) -> BlanketLaw:
        """The product of the axes' blankets: the far corner is far on both axes at once."""
        self._checked_pair(a, b)
        parts = []
        for axis, one, other in zip(self.axes, (a % self.width, a // self.width), (b % self.width, b // self.width), strict=True):
            rows = clamped_rows(axis.span, float(axis.exact_rate))
            parts.append((clamped_blanket(axis.span, float(axis.exact_rate)), rows[one], rows[other]))
        (w, k_a, k_b), (w_up, up_a, up_b) = parts
        return BlanketLaw(np.kron(w_up, w), np.kron(up_a, k_a), np.kron(up_b, k_b))

    def local_epsilon(self, a: int | None = None, b: int | None = None) -> float:
        """The sum over the axes."""
        across, up = self.axes
        if a is None or b is None:
            return (across.local_epsilon() + up.local_epsilon()) * (1.0 + 2.0**-52)
        columns, rows = (a % self.width, b % self.width), (a // self.width, b // self.width)
        return (across.local_epsilon(*columns) + up.local_epsilon(*rows)) * (1.0 + 2.0**-52)

    def local_profile(self) -> PrivacyProfile:
        """rate * distance with delta = 0."""
        return PureProfile(self.rate)

    def values_of(self, codes: Codes) -> Any:
        return np.column_stack([np.asarray(codes) % self.width, np.asarray(codes) // self.width])

    def reports(self, values: Any, randomness: Randomness) -> Integers:
        """Rows (column, row) in, rows (column, row) out."""
        cells = np.asarray(values)
        if cells.ndim != 2 or cells.shape[1] != 2:
            raise DomainError(f"values must be rows (column, row), got shape {cells.shape}.")
        return np.column_stack([axis.reports(cells[:, place], randomness) for place, axis in enumerate(self.axes)])

    def codes_of(self, reports: Any) -> Codes:
        cells = np.asarray(reports, dtype=np.int64)
        return cells[:, 1] * self.width + cells[:, 0]

    def targets(self) -> Floats:
        return np.eye(self.inputs)

    def debiasing(self) -> Floats:
        self._listable()
        across, up = self.axes
        return np.kron(up.debiasing()[:, 1:], across.debiasing()[:, 1:])

    def totals(self, reports: Any) -> Floats:
        """Unbiased estimates of how many people are in each cell: the inverse along one axis, then along the other."""
        across, up = self.axes
        counts = self.counts(self.codes_of(reports)) if np.ndim(reports) == 2 else self.counts(reports)
        heat: Floats = (up.debiasing()[:, 1:].T @ counts.reshape(self.height, self.width) @ across.debiasing()[:, 1:]).ravel()
        return heat
