"""Intervals and bounds for shares from noisy sums of features, valid whatever people's values are.

They follow from the law of the noise; no assumption on the values is made.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from metricshuffle.estimation.interval_widths import (
    MIN_NORMAL_PEOPLE,
    SumNoise,
    noise_warning,
    normal_width,
)
from metricshuffle.estimation.inversion import IntervalMethod, Inversion
from metricshuffle.numerics.types import Floats
from metricshuffle.protocols.features import Features, Readings
from metricshuffle.queries.query import Estimate, NearbyShares
from metricshuffle.randomizers.randomizer import Randomizer
from metricshuffle.spaces import Space

if TYPE_CHECKING:
    from scipy.sparse import csr_array

Band = Callable[[float], tuple[Floats, Floats]]
"""(low, high) of the cumulative shares of a line, as a function of the level."""


@dataclass(frozen=True, eq=False)
class KnownShares:
    """What means of features determine about the shares of points.

    `floor` is the randomizer that was applied to values first, if any.
    """

    features: Features
    space: Space
    noise: SumNoise
    floor: Randomizer | None = None

    @cached_property
    def _told_apart(self) -> Readings | None:
        return self.features.point_readings(self.space)

    @property
    def identified(self) -> bool:
        """Whether single points are identified, so that every share has an interval."""
        return self._told_apart is not None

    @cached_property
    def inversion(self) -> Inversion | None:
        return None if self.floor is None else Inversion.of(self.floor)

    @cached_property
    def single(self) -> Readings | None:
        """Unbiased share of every point, with any randomization of the values undone."""
        return self._told_apart if self.inversion is None else self._summed(self._contributions)

    @cached_property
    def _contributions(self) -> csr_array:
        """Contribution of each counted point to the count of every point (one row each).

        Only if values were randomized first.
        """
        from scipy.sparse import csr_array, kron

        assert self.inversion is not None  # noqa: S101 - called only if values were randomized
        first, *second = (csr_array(part) for part in self.inversion.debiasing)
        return csr_array((csr_array(kron(first, second[0], format="csr")) if second else first).T)

    def _summed(self, contributions: csr_array) -> Readings | None:
        """Sums of contributions over the counted points."""
        from scipy.sparse import csr_array

        if self._told_apart is None:
            return None
        factors = csr_array(contributions @ self._told_apart.factors)
        return Readings.of_points(
            np.asarray(contributions @ self._told_apart.constants), factors, self._told_apart.row_of
        )

    @cached_property
    def around(self) -> Readings | None:
        """Share around every point.

        None if single points are identified or values were randomized first.
        """
        return (
            None if self.identified or self.floor is not None else self.features.nearby(self.space)
        )

    @cached_property
    def above(self) -> Readings | None:
        """Readings that are no less than the share of a point.

        None if single points are identified or values were randomized first.
        """
        return (
            None if self.identified or self.floor is not None else self.features.bounds(self.space)
        )

    def half_widths(
        self, means: Floats, level: float, simultaneous: bool, method: IntervalMethod = "normal"
    ) -> Floats:
        """Half-widths of two-sided intervals for the shares, by the exact law of the noise.

        They are valid whatever people's values are. If values were randomized first, the
        randomization adds a variance, for which an upper bound is used; 0.1 of the allowed miss
        probability is reserved for the failure of that bound. The method "normal" then treats the
        sum of randomization and noise as normal or Laplace, whichever is wider. The method
        "bernstein", which is also used for fewer than 30 items, is valid for any number of items:
        noise and randomization take 0.4 of the allowed miss probability each.
        """
        assert self.single is not None  # noqa: S101 - called only if points are identified
        miss = (1.0 - level) / (len(self.single.constants) if simultaneous else 1)
        if self.inversion is None:
            return self.noise.radii(self.single.factors, miss)
        count = self.noise.count
        variances = self._randomized(means, 0.05 * miss)
        if method == "bernstein" or count < MIN_NORMAL_PEOPLE:
            return (
                self.noise.radii(self.single.factors, 0.4 * miss)
                + self.inversion.half_widths(variances, 0.4 * miss) / count
            )
        width = max(normal_width(0.9 * miss), -math.log(0.9 * miss) / math.sqrt(2.0))
        # Sums are whole numbers, which the normal approximation ignores.
        grain = 0.5 * abs(self.single.factors).max(axis=1).toarray().ravel() / count
        return np.asarray(
            width * np.sqrt(self.noise.deviations(self.single.factors) ** 2 + variances / count**2)
            + grain
        )

    def _randomized(self, means: Floats, spare: float) -> Floats:
        """Upper bound on the variance that randomized values add to each count.

        It fails with probability at most 2 `spare`, whatever people's values are.
        Statement: let Y_i be the point that is counted for item i, and g(Y_i) its contribution to
        the count of a given point. The mean of g(Y_i) is 1 if item i is at the given point and 0
        otherwise, and so equals its own square; hence the mean of g^2 - g is the variance of g. Let
        w = max(g^2 - g, 0), let S be the sum of w(Y_i) over all items and V the mean of S; then V
        is at least the variance of the count. S is measured, except for the noise on it. By
        Maurer's inequality for terms >= 0, S <= V - t with probability at most e^(-t^2/(2 M V)),
        with M the largest value of w. So for any L > 0, V <= (sqrt(S + M L/2) + sqrt(M L/2))^2,
        except with probability e^-L.
        """
        assert self.inversion is not None  # noqa: S101 - called only if values were randomized
        spreads = self._contributions.copy()
        count = self.noise.count
        spreads.data = np.maximum(spreads.data**2 - spreads.data, 0.0)
        summed = self._summed(spreads)
        assert summed is not None  # noqa: S101 - called only if points are identified
        seen = (
            np.maximum(
                summed.values(means) + self.noise.radii(summed.factors, spare, one_sided=True), 0.0
            )
            * count
        )
        room = 0.5 * math.log(1.0 / spare) * spreads.max(axis=1).toarray().ravel()
        return np.asarray(
            np.minimum(
                (np.sqrt(seen + room) + np.sqrt(room)) ** 2,
                count * self.inversion.largest_variances,
            )
        )

    def around_ends(self, means: Floats, level: float, simultaneous: bool) -> tuple[Floats, Floats]:
        """(low, high) of the share around every point, jointly for all if `simultaneous`."""
        assert self.around is not None  # noqa: S101 - called only if it is measured
        miss = (1.0 - level) / (len(self.around.constants) if simultaneous else 1)
        values = self.around.values(means)
        radii = self.noise.radii(self.around.factors, miss)
        row_of = self.around.row_of
        return np.clip(values - radii, 0.0, 1.0)[..., row_of], np.clip(values + radii, 0.0, 1.0)[
            ..., row_of
        ]

    def at_most(self, means: Floats, level: float, simultaneous: bool) -> Floats:
        """Upper bound on the share of every point: the smallest of its readings plus their noise.

        Statement: apart from noise, no reading of a point is less than its share. For one point
        with c readings, each may be missed with probability (1 - level)/c; for all points at once,
        each of all R readings may be missed with probability (1 - level)/R.
        """
        assert self.above is not None  # noqa: S101 - called only if it is measured
        points = self.above.points
        values = self.above.values(means)
        counts = np.diff(points.indptr)
        shares = np.ones((*values.shape[:-1], len(counts)))
        for count in (
            [len(self.above.constants)] if simultaneous else np.unique(counts[counts > 0]).tolist()
        ):
            raised = values + self.noise.radii(
                self.above.factors, (1.0 - level) / count, one_sided=True
            )
            some = np.flatnonzero(counts > 0 if simultaneous else counts == count)
            chosen = points[some]
            shares[..., some] = np.minimum.reduceat(
                raised[..., chosen.indices], chosen.indptr[:-1], axis=-1
            )
        return np.clip(shares, 0.0, 1.0)

    def band(self, means: Floats, errors: Floats) -> Band | None:
        """Joint band for cumulative shares of a line; None if they are not measured.

        At the windows it follows from the exact law of the noise, and between windows from
        monotonicity.
        Statement: with probability at least `level`, every true window mean differs from the
        measured one by no more than the radius of its noise (union bound). The true cumulative
        share at a place is at least the mean of any window that ends there or before, and at most
        the mean of any window that begins there or after.
        """
        measured = (
            self.features.cumulative(self.space, means, errors) if self.floor is None else None
        )
        if measured is None:
            return None
        noise = self.noise
        windows = measured.last - measured.first + 1
        size = self.space.domain.size or 0

        def band(level: float) -> tuple[Floats, Floats]:
            halves = noise.single_radii((1.0 - level) / len(noise.rates)) / windows
            low = np.zeros(size)
            high = np.ones(size)
            low[measured.last] = measured.shares - halves
            high[measured.first] = measured.shares + halves
            low[-1] = 1.0
            rising = np.maximum.accumulate(low)
            falling = np.minimum.accumulate(high[::-1])[::-1]
            return np.clip(rising, 0.0, 1.0), np.clip(falling, 0.0, 1.0)

        return band

    def estimate(
        self, means: Floats, possible: Floats, people: int, step: float, band: Band | None
    ) -> Estimate:
        """Unbiased counts of points if identified, else smoothed shares without intervals."""
        if self.single is None:
            return self._smoothed_estimate(means, possible, people, step, band)
        totals = self.single.values(means) * people

        def ends(level: float, simultaneous: bool, method: IntervalMethod) -> tuple[Floats, Floats]:
            halves = self.half_widths(means, level, simultaneous, method) * people
            return totals - halves, totals + halves

        variances = self.noise.deviations(self.single.factors) ** 2
        warning = ""
        if self.inversion is not None:
            reports = self.noise.count
            # One more report, of the worst value, is added so that no standard error is 0.
            randomized = (
                self.inversion.variances(possible) + self.inversion.largest_variances / reports
            )
            variances = variances + randomized / reports
            warning = noise_warning(self.inversion.condition, np.sqrt(variances))
        errors = np.sqrt(variances) * people
        return Estimate(totals, errors, people, step, ends, possible, warning, band=band)

    def _smoothed_estimate(
        self, means: Floats, possible: Floats, people: int, step: float, band: Band | None
    ) -> Estimate:
        def at_most(level: float, simultaneous: bool) -> Floats:
            return self.at_most(means, level, simultaneous)

        return Estimate(
            possible * people,
            None,
            people,
            step,
            None,
            possible,
            self._smoothed_text,
            band=band,
            at_most=None if self.above is None else at_most,
            nearby=self._nearby(means),
        )

    def _nearby(self, means: Floats) -> NearbyShares | None:
        if self.around is None:
            return None
        shares = self.around.values(means)[self.around.row_of]
        words = self.features.nearby_words(self.space)
        return NearbyShares(
            shares, words, lambda level, simultaneous: self.around_ends(means, level, simultaneous)
        )

    @property
    def _smoothed_text(self) -> str:
        """Explanation of why shares have no interval."""
        text = (
            "What was measured does not tell single cells apart, so shares are smoothed and "
            "have no interval: a peak may be lost in them."
        )
        if self.floor is not None:
            return (
                f"{text} Values were randomized before they were counted, so there is no bound "
                "on single shares either."
            )
        return f"{text} Upper bounds on shares hold wherever people are."
