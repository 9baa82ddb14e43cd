"""Features for quantiles, spread and shares above: windows of thresholds, and moments."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator
from fractions import Fraction
from functools import lru_cache
from typing import TYPE_CHECKING, ClassVar, Literal, Self

import numpy as np
from pydantic import model_validator

from metricshuffle.accounting.vectors.feature_changes import FeatureChanges
from metricshuffle.citations import theorem
from metricshuffle.errors import InputError, argument
from metricshuffle.estimation.interval_widths import SumNoise
from metricshuffle.estimation.inversion import IntervalMethod
from metricshuffle.estimation.quantile_intervals import quantile_hull, quantile_points
from metricshuffle.estimation.share_projection import shares_from_windows
from metricshuffle.models import Whole
from metricshuffle.numerics.rounding import round_up
from metricshuffle.numerics.types import Floats, Integers64
from metricshuffle.protocols.features.feature_set import (
    LARGEST_FEATURE,
    MAX_COORDINATES,
    MAX_ENTRIES,
    changes_of,
)
from metricshuffle.protocols.features.lattice import Lattice
from metricshuffle.protocols.features.query_features import QueryFeatures
from metricshuffle.protocols.features.windows import Windows
from metricshuffle.queries.quantiles import Quantiles
from metricshuffle.queries.query import Estimate, Query
from metricshuffle.queries.share_above import ShareAbove
from metricshuffle.queries.spread import Spread
from metricshuffle.spaces import Space

if TYPE_CHECKING:
    from scipy.sparse import csr_array

# Half of a normal 95 % interval of a sum with noise of rate 1, whose standard deviation is sqrt 2.
# Windows get a width at which intervals, in points, are about as long as windows.
WIDTH_FACTOR = 1.96 * math.sqrt(2.0)
# Fraction of the loss that the mean takes; the standard deviation takes the remainder.
MEAN_SHARE = 0.4
# Radii of sums are whole numbers up to this rounding error.
RADIUS_TOLERANCE = 1e-3


class LineAnswers(QueryFeatures, ABC):
    """Base of feature sets whose means determine the numbers of an answer about a line."""

    @abstractmethod
    def readout(self, query: Query, means: Floats, people: int) -> Floats:
        """The numbers of the answer, in units, for each row of means of the features."""


class QuantileWindows(LineAnswers, Windows):
    """Windows between consecutive `edges`, which cover all thresholds of the line."""

    kind: Literal["quantile-windows"] = "quantile-windows"
    edges: tuple[Whole, ...]

    def __str__(self) -> str:
        widths = np.diff(self.edges)
        if len(widths) < 2 or np.all(widths[:-1] == widths[0]):
            return f"windows of {widths[0]}"
        return f"{len(widths)} windows"

    @model_validator(mode="after")
    def _is_increasing(self) -> Self:
        if len(self.edges) < 2 or self.edges[0] != 0 or np.any(np.diff(self.edges) < 1):
            raise ValueError("edges must begin with 0 and increase")
        return self

    @classmethod
    def of_width(cls, width: int, last: int) -> Self:
        """Windows of equal width over the thresholds 0 .. last-1; the last may be narrower."""
        return cls(edges=(*range(0, last, width), last))

    @classmethod
    def offered_for(cls, query: Query, people: int, rate: float) -> Iterator[Self]:
        """The windows of given edges, or those that suit people who are spread evenly.

        A window of width w has noise of about 1.96 sqrt(2)/rate on the sum of its distribution
        function, so for n people with density f a quantile is uncertain by this noise over w n f;
        it is also uncertain by about w. Both are equal at w = sqrt(1.96 sqrt(2)/(rate n f)), where
        f is taken as the density of people who are spread evenly.
        """
        if not isinstance(query, Quantiles):
            return
        if query.window_edges is not None:
            yield cls(edges=query.window_edges)
            return
        last = query.cells - 1
        balanced = round(math.sqrt(WIDTH_FACTOR * last / (rate * query.step * people)))
        fitting = max(-(-last // MAX_COORDINATES), -(-last * (last + 1) // (2 * MAX_ENTRIES)))
        yield cls.of_width(max(1, fitting, min(balanced, last // 2)), last)

    def check(self, query: Query) -> bool:
        return (
            isinstance(query, Quantiles)
            and self.edges[-1] == query.cells - 1
            and query.window_edges in (None, self.edges)
        )

    def windows(self, space: Space) -> tuple[Lattice, Integers64, Integers64]:
        lattice = self.line(space)
        last = lattice.sides[0] - 1
        if self.edges[-1] != last:
            raise InputError(f"these windows end at {self.edges[-1]:,}, but the line at {last:,}.")
        edges = np.array(self.edges, dtype=np.int64)
        count = len(edges) - 1
        self.check_room(count, count * (last + 1) // 2, "use fewer edges")
        return lattice, edges[:-1], edges[1:]

    def run_starts(self, space: Space, runs: int) -> range:
        """As for ramps, if all windows but the last are equally wide."""
        widths = np.diff(self.edges)
        equal = np.all(widths[:-1] == widths[0]) and widths[-1] <= widths[0]
        return range(min(int(widths[0]), runs)) if equal else range(runs)

    def readout(self, query: Query, means: Floats, people: int) -> Floats:
        """First points where a monotone fit reaches the shares; see `shares_from_windows`."""
        assert isinstance(query, Quantiles)  # noqa: S101 - checked when the task was made
        edges = np.array(self.edges, dtype=np.int64)
        widths = np.diff(edges)
        shares = shares_from_windows(edges[:-1], edges[1:], means / widths, 1.0 / widths)
        return np.asarray(query.middles[quantile_points(shares, query.at, people)])

    def estimate(self, query: Query, means: Floats, noise: SumNoise, people: int) -> Estimate:
        """Quantiles with the intervals of `quantile_hull`, and no standard errors."""
        assert isinstance(query, Quantiles)  # noqa: S101 - checked when the task was made
        edges = np.array(self.edges, dtype=np.int64)
        widths = np.diff(edges)
        sums = np.rint(means * noise.count).astype(np.int64)
        low_ends, high_ends = query.bin_ends

        def ends(level: float, simultaneous: bool, method: IntervalMethod) -> tuple[Floats, Floats]:
            together = min(len(query.at), len(widths)) if simultaneous else 1
            miss = (1.0 - level) / (2 * together)
            radii = whole_radii(noise, miss)
            hulls = []
            for share in query.at:
                needed = [
                    query.needed(share, Fraction(noise.count) * width) for width in widths.tolist()
                ]
                hulls.append(
                    quantile_hull(
                        edges[:-1],
                        edges[1:],
                        sums,
                        radii,
                        np.array(needed, dtype=np.int64),
                        int(edges[-1]),
                    )
                )
            low, high = np.array(hulls).T
            return low_ends[low], high_ends[high]

        return Estimate(self.readout(query, means, people), None, people, 1.0, ends)


@lru_cache(maxsize=16)
def whole_radii(noise: SumNoise, miss: float) -> Integers64:
    """For each sum, the radius that its noise exceeds on one side with probability <= `miss`."""
    radii = noise.single_radii(miss, one_sided=True) * noise.count
    return np.ceil(radii - RADIUS_TOLERANCE).astype(np.int64)


class AboveWindows(LineAnswers, Windows):
    """Windows of `width` thresholds that end at each of `ends`."""

    kind: Literal["above-windows"] = "above-windows"
    width: Whole
    ends: tuple[Whole, ...]

    def __str__(self) -> str:
        return f"{len(self.ends)} window{'s' * (len(self.ends) != 1)} of {self.width}"

    @model_validator(mode="after")
    def _is_disjoint(self) -> Self:
        if self.width < 1 or not self.ends or self.ends[0] < self.width:
            raise ValueError("windows must be at least one wide and begin at 0 or later")
        if np.any(np.diff(self.ends) < self.width):
            raise ValueError("windows must not overlap")
        return self

    @classmethod
    def of(cls, query: ShareAbove) -> Self:
        return cls(width=query.width, ends=query.window_ends)

    @classmethod
    def offered_for(cls, query: Query, people: int, rate: float) -> Iterator[Self]:
        """The windows of the query."""
        if isinstance(query, ShareAbove):
            yield cls.of(query)

    def check(self, query: Query) -> bool:
        return isinstance(query, ShareAbove) and self == self.of(query)

    def windows(self, space: Space) -> tuple[Lattice, Integers64, Integers64]:
        lattice = self.line(space)
        if self.ends[-1] > lattice.sides[0] - 1:
            raise InputError(f"a window ends at {self.ends[-1]:,}, beyond {space.domain}.")
        self.check_room(len(self.ends), len(self.ends) * lattice.sides[0], "use fewer thresholds")
        ends = np.array(self.ends, dtype=np.int64)
        return lattice, ends - self.width, ends

    def readout(self, query: Query, means: Floats, people: int) -> Floats:
        return np.clip(1.0 - np.asarray(means) / self.width, 0.0, 1.0)

    def estimate(self, query: Query, means: Floats, noise: SumNoise, people: int) -> Estimate:
        shares = 1.0 - means / self.width
        errors = np.sqrt(noise.variances) / noise.count / self.width

        def ends(level: float, simultaneous: bool, method: IntervalMethod) -> tuple[Floats, Floats]:
            miss = (1.0 - level) / (len(self.ends) if simultaneous else 1)
            halves = noise.single_radii(miss) / self.width
            return np.clip(shares - halves, 0.0, 1.0), np.clip(shares + halves, 0.0, 1.0)

        return Estimate(self.readout(query, means, people), errors, people, 1.0, ends)

    def expected_error(self, query: Query, noise: SumNoise) -> float:
        """Mean over the thresholds of the mean absolute error, before shares are clipped."""
        return float(noise.mean_sizes.mean() / self.width)


class Moments(LineAnswers):
    """The point and its squared distance from the `middle` of the line, 0 .. `last`."""

    exact_moves: ClassVar[bool] = False  # exact laws of large changes take seconds and gain little
    kind: Literal["moments"] = "moments"
    last: Whole

    def __str__(self) -> str:
        return self.kind

    @property
    def middle(self) -> int:
        return self.last // 2

    @property
    def reach(self) -> int:
        """Largest distance of a point from the middle."""
        return self.last - self.middle

    @classmethod
    def offered_for(cls, query: Query, people: int, rate: float) -> Iterator[Self]:
        if isinstance(query, Spread):
            yield cls(last=query.cells - 1)

    def check(self, query: Query) -> bool:
        return isinstance(query, Spread) and self.last == query.cells - 1

    def _line(self, space: Space) -> Lattice:
        lattice = Lattice.of(space)
        if lattice is None or lattice.sides != (self.last + 1,) or self.last < 1:
            raise InputError(f"these moments are those of a line of {self.last + 1:,} points.")
        if self.reach**2 > LARGEST_FEATURE:
            raise InputError(
                f"squares of {self.reach:,} are too large for exact sums; use a larger "
                f"{argument('step')}."
            )
        return lattice

    def table(self, space: Space) -> csr_array:
        from scipy.sparse import csr_array

        self._line(space)
        points = np.arange(self.last + 1, dtype=np.int64)
        return csr_array(np.column_stack([points, (points - self.middle) ** 2]))

    def weights(self, space: Space) -> Floats:
        """Rates for 0.4 of the loss from the mean and 0.6 from the square."""
        return np.array([1.0, (1.0 - MEAN_SHARE) / MEAN_SHARE / (2.0 * self.reach)])

    @theorem("metricshuffle", "slope of moments")
    def slope(self, space: Space, rates: Floats) -> float:
        """Certified upper bound on the loss per unit of distance (see `Features.slope`).

        Statement: on the points 0 .. last, with c = floor(last/2) and R = last - c, the features x
        and (x - c)^2 have the slope (rates[0] + (2 R - 1) rates[1]) over the length of a step.
        Proof: |(x - c)^2 - (y - c)^2| = |x - y| |(x - c) + (y - c)|, and for different whole x and
        y in -c .. R, with c <= R, the second factor is at most R + (R - 1). The pair last, last - 1
        attains it. QED
        Numerics: rounded up.
        """
        checked = self.validate_rates(space, rates)
        per_step = float(checked[0] + (2 * self.reach - 1) * checked[1])
        return self._line(space).per_unit(round_up(per_step, 4))

    def moves(self, space: Space, rates: Floats, distance: float) -> Iterator[FeatureChanges]:
        """One move that dominates all.

        Statement: a move by s points changes the first feature by s and the second by at most s (2
        R - s), which is largest for s = R, or for the largest possible s if it is less than R.
        """
        checked = self.validate_rates(space, rates)
        steps = self._line(space).steps_within(distance)
        longest = min(steps, self.reach)
        if steps > 0:
            yield changes_of(checked, [steps, longest * (2 * self.reach - longest)])

    def readout(self, query: Query, means: Floats, people: int) -> Floats:
        assert isinstance(query, Spread)  # noqa: S101 - checked when the task was made
        first, second = np.moveaxis(np.asarray(means, dtype=np.float64), -1, 0)
        point = np.clip(first, 0.0, self.last)
        variance = np.clip(second - (first - self.middle) ** 2, 0.0, 0.25 * self.last**2)
        return np.stack(
            [query.first_middle + query.step * point, query.step * np.sqrt(variance)], axis=-1
        )

    def estimate(self, query: Query, means: Floats, noise: SumNoise, people: int) -> Estimate:
        """Mean and standard deviation, without standard errors.

        Statement: with probability at least `level`, the true means A and B of both features lie in
        a box around the measured ones, each outside with half of 1 - level. The variance is B - (A
        - c)^2, and at most a quarter of the squared range; its least and largest values over the
        box follow from those of (A - c)^2. Rounding numbers to the middles of bins moves the mean
        and the standard deviation (a seminorm) by at most the largest rounding error.
        """
        assert isinstance(query, Spread)  # noqa: S101 - checked when the task was made
        snapping = query.snapping

        def ends(level: float, simultaneous: bool, method: IntervalMethod) -> tuple[Floats, Floats]:
            miss = 1.0 - level
            radii = noise.single_radii(0.5 * miss)
            box_low, box_high = np.clip(
                [means - radii, means + radii], 0.0, [self.last, self.reach**2]
            )
            off = np.array([box_low[0], box_high[0]]) - self.middle
            nearest = 0.0 if off[0] <= 0.0 <= off[1] else float(np.min(off**2))
            variances = np.clip(
                [box_low[1] - np.max(off**2), box_high[1] - nearest], 0.0, 0.25 * self.last**2
            )
            # Rounding error of the variance, which is a difference of large numbers.
            unsure = 1e-13 * self.reach**2
            deviations = np.sqrt(np.maximum(variances + np.array([-unsure, unsure]), 0.0))
            own = radii[0] if simultaneous else float(noise.single_radii(miss)[0])
            point = np.clip([means[0] - own, means[0] + own], 0.0, self.last)
            middle = query.first_middle + query.step * point
            low = np.array([middle[0], query.step * deviations[0]]) - snapping
            high = np.array([middle[1], query.step * deviations[1]]) + snapping
            return np.maximum(low, [-math.inf, 0.0]), high

        return Estimate(self.readout(query, means, people), None, people, 1.0, ends)
