"""Maximum-likelihood shares of many simulated releases at once.

The results are those of `fit_likelihood` for each release, in a fraction of the time.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from metricshuffle.estimation.likelihood import MAX_STEPS, SHORTFALL
from metricshuffle.numerics.types import Floats
from metricshuffle.randomizers.bounded_geometric import BoundedGeometric
from metricshuffle.randomizers.planar_geometric import PlanarGeometric
from metricshuffle.randomizers.randomized_response import KaryRandomizedResponse
from metricshuffle.randomizers.randomizer import Randomizer

# Longer lines use geometrically weighted sums, which take linear instead of quadratic time.
MAX_TABLE_POINTS = 32


@dataclass(frozen=True, eq=False)
class AxisLaw:
    """The law of one axis: its table, or the decay factor per step of clamped geometric noise."""

    table: Floats | None
    factor: float = 0.0
    points: int = 0

    @classmethod
    def of(cls, randomizer: Randomizer) -> AxisLaw:
        if isinstance(randomizer, BoundedGeometric) and randomizer.span >= MAX_TABLE_POINTS:
            return cls(None, math.exp(-float(randomizer.exact_rate)), randomizer.span + 1)
        return cls(np.asarray(randomizer.rows(), dtype=np.float64))

    @property
    def _weights(self) -> Floats:
        """Entry (x, y) of the law is factor^|x - y| times this weight of y.

        x is the value and y the report. Weights are larger at the two ends, which collect the mass
        beyond them.
        """
        weights = np.full(self.points, (1.0 - self.factor) / (1.0 + self.factor))
        weights[[0, -1]] = 1.0 / (1.0 + self.factor)
        return weights

    def reports(self, shares: Floats) -> Floats:
        """Law of a report, for each row of shares."""
        if self.table is not None:
            return np.asarray(shares @ self.table)
        from metricshuffle.estimation import _geometric_kernels as kernels

        return np.asarray(
            kernels.falling_sums(np.ascontiguousarray(shares), self.factor) * self._weights
        )

    def back(self, values: Floats) -> Floats:
        """For each row of values of the reports, their mean given each point as the input."""
        if self.table is not None:
            return np.asarray(values @ self.table.T)
        from metricshuffle.estimation import _geometric_kernels as kernels

        return np.asarray(
            kernels.falling_sums(np.ascontiguousarray(values * self._weights), self.factor)
        )


@dataclass(frozen=True, eq=False)
class ReportLaw:
    """The law of a report, on one axis or as the product of two (up, across)."""

    axes: tuple[AxisLaw, ...]
    sides: tuple[int, ...] = ()

    @classmethod
    def of(cls, randomizer: Randomizer) -> ReportLaw:
        if isinstance(randomizer, PlanarGeometric):
            across, up = randomizer.axes
            return cls((AxisLaw.of(up), AxisLaw.of(across)), (randomizer.height, randomizer.width))
        return cls((AxisLaw.of(randomizer),))

    def reports(self, shares: Floats) -> Floats:
        """Law of a report, for each row of shares."""
        return self._through(shares, back=False)

    def back(self, values: Floats) -> Floats:
        """For each row of values of the reports, their mean given each point as the input."""
        return self._through(values, back=True)

    def _through(self, rows: Floats, *, back: bool) -> Floats:
        def along(axis: AxisLaw, table: Floats) -> Floats:
            return axis.back(table) if back else axis.reports(table)

        if len(self.axes) == 1:
            return along(self.axes[0], rows)
        (up, across), (height, width) = self.axes, self.sides
        cells = rows.reshape(-1, height, width)
        if (
            up.table is not None and across.table is not None
        ):  # one small product per release, without threads
            done = up.table @ cells @ across.table.T if back else up.table.T @ cells @ across.table
            return np.asarray(done).reshape(len(rows), -1)
        turned = (
            along(across, cells.reshape(-1, width)).reshape(-1, height, width).transpose(0, 2, 1)
        )
        return (
            along(up, turned.reshape(-1, height))
            .reshape(-1, width, height)
            .transpose(0, 2, 1)
            .reshape(len(rows), -1)
        )


@dataclass(frozen=True, eq=False)
class LikelihoodRuns:
    """Fitted shares, one row per release, and the largest number of steps of any of them."""

    shares: Floats
    steps: int


def fit_likelihoods(
    randomizer: Randomizer, counts: Floats, *, steps: int = MAX_STEPS
) -> LikelihoodRuns:
    """Maximum-likelihood shares from each row of report counts (see `fit_likelihood`).

    Statement: the fits take the same steps as `fit_likelihood` from the same start until the same
    gap, except for k-ary randomized response, which has a formula. Let p_y be the share of value y
    and f_y the observed share of report y. A report y then has the probability a p_y + b, with
    constants a and b of the randomizer, and wherever p_y > 0 the slope of the likelihood, f_y a/(a
    p_y + b), must be the same. So p_y = max(0, c f_y - b/a), with the c that makes the p_y sum to
    one (Karush, Kuhn, Tucker).
    """
    reported = counts / counts.sum(axis=1, keepdims=True)
    if isinstance(randomizer, KaryRandomizedResponse):
        return LikelihoodRuns(
            _scale_and_cut(reported, randomizer.other / (randomizer.keep - randomizer.other)), 0
        )
    law = ReportLaw.of(randomizer)
    shares = np.full((len(counts), randomizer.inputs), 1.0 / randomizer.inputs)
    seen = reported
    totals = counts.sum(axis=1)
    active = np.arange(len(counts))
    done = 0
    current = shares.copy()
    expected = law.reports(current)
    while done < steps:
        slopes = _slopes(law, seen, expected)
        going = (slopes.max(axis=1) - 1.0) * totals > SHORTFALL
        if not going.all():
            shares[active[~going]] = current[~going]
            active = active[going]
            current = current[going]
            slopes = slopes[going]
            seen = seen[going]
            totals = totals[going]
        if not len(active):
            break
        once = current * slopes
        twice = once * _slopes(law, seen, law.reports(once))
        first = once - current
        second = twice - 2.0 * once + current
        curves = np.linalg.norm(second, axis=1, keepdims=True)
        lengths = -np.divide(
            np.linalg.norm(first, axis=1, keepdims=True),
            curves,
            out=np.ones_like(curves),
            where=curves > 0.0,
        )
        leap = np.maximum(current - 2.0 * lengths * first + lengths**2 * second, 0.1 * twice)
        leap /= leap.sum(axis=1, keepdims=True)
        twice /= twice.sum(axis=1, keepdims=True)
        after_leap = law.reports(leap)
        after_twice = law.reports(twice)
        better = (_likelihoods(seen, after_leap) >= _likelihoods(seen, after_twice))[:, None]
        current = np.where(better, leap, twice)
        expected = np.where(better, after_leap, after_twice)
        done += 1
    shares[active] = current
    return LikelihoodRuns(shares, done)


def _slopes(law: ReportLaw, seen: Floats, expected: Floats) -> Floats:
    return law.back(np.divide(seen, expected, out=np.zeros_like(seen), where=seen > 0.0))


def _likelihoods(seen: Floats, expected: Floats) -> Floats:
    return np.asarray(
        (seen * np.log(expected, out=np.zeros_like(seen), where=seen > 0.0)).sum(axis=1)
    )


def _scale_and_cut(reported: Floats, cut: float) -> Floats:
    """Compute max(0, c f - cut) for each row f, with the c > 0 that makes it sum to one."""
    falling = -np.sort(-reported, axis=1)
    scales = (1.0 + cut * np.arange(1, reported.shape[1] + 1)) / np.cumsum(falling, axis=1)
    last = (falling * scales > cut).sum(axis=1) - 1
    shares = np.maximum(reported * scales[np.arange(len(reported)), last][:, None] - cut, 0.0)
    return np.asarray(shares / shares.sum(axis=1, keepdims=True))
