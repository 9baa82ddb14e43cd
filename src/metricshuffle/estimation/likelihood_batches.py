"""Shares of maximum likelihood for many simulated releases at once: what `likeliest` finds for each of them, in a fraction of the time."""

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

# Lines of more points than this go through sums that fall off, which take a time in proportion to the points and not to their square.
MAX_TABLE_POINTS = 32


@dataclass(frozen=True, eq=False)
class AxisLaw:
    """The law of one axis: its table, or the factor that clamped geometric noise falls off by with every step."""

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
        """Entry (x, y) of the law is factor^|x - y| times a weight of y, which is larger at the ends, where all that is beyond is added."""
        weights = np.full(self.points, (1.0 - self.factor) / (1.0 + self.factor))
        weights[[0, -1]] = 1.0 / (1.0 + self.factor)
        return weights

    def reports(self, shares: Floats) -> Floats:
        """The law of a report, for each row of shares."""
        if self.table is not None:
            return np.asarray(shares @ self.table)
        from metricshuffle.estimation import _geometric_kernels as kernels

        return np.asarray(kernels.falling_sums(np.ascontiguousarray(shares), self.factor) * self._weights)

    def back(self, values: Floats) -> Floats:
        """For each row of values of the reports, their mean for one who holds each point."""
        if self.table is not None:
            return np.asarray(values @ self.table.T)
        from metricshuffle.estimation import _geometric_kernels as kernels

        return np.asarray(kernels.falling_sums(np.ascontiguousarray(values * self._weights), self.factor))


@dataclass(frozen=True, eq=False)
class ReportLaw:
    """The law of a report, on one axis or on two (up, across) whose product it is."""

    axes: tuple[AxisLaw, ...]
    sides: tuple[int, ...] = ()

    @classmethod
    def of(cls, randomizer: Randomizer) -> ReportLaw:
        if isinstance(randomizer, PlanarGeometric):
            across, up = randomizer.axes
            return cls((AxisLaw.of(up), AxisLaw.of(across)), (randomizer.height, randomizer.width))
        return cls((AxisLaw.of(randomizer),))

    def reports(self, shares: Floats) -> Floats:
        return self._through(shares, back=False)

    def back(self, values: Floats) -> Floats:
        return self._through(values, back=True)

    def _through(self, rows: Floats, *, back: bool) -> Floats:
        def along(axis: AxisLaw, table: Floats) -> Floats:
            return axis.back(table) if back else axis.reports(table)

        if len(self.axes) == 1:
            return along(self.axes[0], rows)
        (up, across), (height, width) = self.axes, self.sides
        cells = rows.reshape(-1, height, width)
        if up.table is not None and across.table is not None:  # (one small product for each release, which starts no threads)
            done = up.table @ cells @ across.table.T if back else up.table.T @ cells @ across.table
            return np.asarray(done).reshape(len(rows), -1)
        turned = along(across, cells.reshape(-1, width)).reshape(-1, height, width).transpose(0, 2, 1)
        return along(up, turned.reshape(-1, height)).reshape(-1, width, height).transpose(0, 2, 1).reshape(len(rows), -1)


@dataclass(frozen=True, eq=False)
class LikelihoodRuns:
    """Shares, a row for each release, and the most steps that one of them took."""

    shares: Floats
    steps: int


def fit_likelihoods(randomizer: Randomizer, counts: Floats, *, steps: int = MAX_STEPS) -> LikelihoodRuns:
    """The shares of maximum likelihood from the counts of reports of each row, as `likeliest` finds them for one.

    Statement: by the same steps from the same start until the same gap; of k-ary randomized response by its formula. There a report y has
    the probability a p_y + b, and where p_y > 0 the likelihood's slope f_y a/(a p_y + b) is the same: p_y = max(0, c f_y - b/a), with the
    c that makes them sum to one (Karush, Kuhn, Tucker).
    """
    reported = counts / counts.sum(axis=1, keepdims=True)
    if isinstance(randomizer, KaryRandomizedResponse):
        return LikelihoodRuns(_scale_and_cut(reported, randomizer.other / (randomizer.keep - randomizer.other)), 0)
    law = ReportLaw.of(randomizer)
    shares = np.full((len(counts), randomizer.inputs), 1.0 / randomizer.inputs)
    seen, totals, active, done = reported, counts.sum(axis=1), np.arange(len(counts)), 0
    current = shares.copy()
    expected = law.reports(current)
    while done < steps:
        slopes = _slopes(law, seen, expected)
        going = (slopes.max(axis=1) - 1.0) * totals > SHORTFALL
        if not going.all():
            shares[active[~going]] = current[~going]
            active, current, slopes, seen, totals = active[going], current[going], slopes[going], seen[going], totals[going]
        if not len(active):
            break
        once = current * slopes
        twice = once * _slopes(law, seen, law.reports(once))
        first, second = once - current, twice - 2.0 * once + current
        curves = np.linalg.norm(second, axis=1, keepdims=True)
        lengths = -np.divide(np.linalg.norm(first, axis=1, keepdims=True), curves, out=np.ones_like(curves), where=curves > 0.0)
        leap = np.maximum(current - 2.0 * lengths * first + lengths**2 * second, 0.1 * twice)
        leap /= leap.sum(axis=1, keepdims=True)
        twice /= twice.sum(axis=1, keepdims=True)
        after_leap, after_twice = law.reports(leap), law.reports(twice)
        better = (_likelihoods(seen, after_leap) >= _likelihoods(seen, after_twice))[:, None]
        current, expected = np.where(better, leap, twice), np.where(better, after_leap, after_twice)
        done += 1
    shares[active] = current
    return LikelihoodRuns(shares, done)


def _slopes(law: ReportLaw, seen: Floats, expected: Floats) -> Floats:
    return law.back(np.divide(seen, expected, out=np.zeros_like(seen), where=seen > 0.0))


def _likelihoods(seen: Floats, expected: Floats) -> Floats:
    return np.asarray((seen * np.log(expected, out=np.zeros_like(seen), where=seen > 0.0)).sum(axis=1))


def _scale_and_cut(reported: Floats, cut: float) -> Floats:
    """max(0, c f - cut) for each row f, with the c > 0 that makes it sum to one."""
    falling = -np.sort(-reported, axis=1)
    scales = (1.0 + cut * np.arange(1, reported.shape[1] + 1)) / np.cumsum(falling, axis=1)
    last = (falling * scales > cut).sum(axis=1) - 1
    shares = np.maximum(reported * scales[np.arange(len(reported)), last][:, None] - cut, 0.0)
    return np.asarray(shares / shares.sum(axis=1, keepdims=True))
