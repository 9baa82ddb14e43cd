"""Features of the points of a line: the number of thresholds of a window at or above the point."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Literal, Self

import numpy as np
from pydantic import model_validator

from metricshuffle.errors import InputError
from metricshuffle.estimation.least_squares import nearest_shares
from metricshuffle.estimation.share_projection import shares_from_windows
from metricshuffle.models import FrozenModel, Whole
from metricshuffle.numerics.types import Floats, Integers64
from metricshuffle.protocols.features.feature_set import (
    MAX_COORDINATES,
    MAX_ENTRIES,
    Blur,
    Cumulative,
)
from metricshuffle.protocols.features.lattice import Lattice
from metricshuffle.protocols.features.readings import Readings
from metricshuffle.protocols.features.windows import Windows
from metricshuffle.spaces import Space


class Ramps(Windows):
    """For each window of `width` thresholds of a line, the number at or above the point.

    Thresholds are 0 .. size-2, between the points. The mean of a feature is the sum of the
    distribution function over its window. With width 1 every window is a single threshold, and the
    features determine all shares; wider windows leave the positions within a window unknown, for
    less noise in total. Ramps are not for circles, which have no first point: a step across
    whichever point is chosen as the first would change all features. Use `Cells` there.
    """

    kind: Literal["ramps"] = "ramps"
    width: Whole

    def __init__(self, width: int = 1, **fields: object) -> None:
        FrozenModel.__init__(self, width=width, **fields)

    @model_validator(mode="after")
    def _is_wide(self) -> Self:
        if self.width < 1:
            raise ValueError(f"width must be at least 1, got {self.width}")
        return self

    @classmethod
    def offered(cls, space: Space, people: int, rate: float) -> Iterator[Self]:
        """Single thresholds, then sqrt(people * rate * range)/2 ramps, and half and twice as wide.

        With more windows, the total noise of the window means increases, and the uncertainty inside
        a window decreases; the constant was found by simulation.
        """
        lattice = Lattice.of(space)
        if lattice is None or len(lattice.sides) > 1:
            return
        steps = lattice.sides[0] - 1
        ramps = math.sqrt(people * rate * steps * lattice.step) / 2.0
        likeliest = max(1, round(steps / max(ramps, 1.0)))
        for width in dict.fromkeys([1, likeliest, likeliest // 2, 2 * likeliest]):
            coordinates = -(-steps // max(width, 1))
            if (
                1 <= width <= max(1, steps // 2)
                and coordinates <= MAX_COORDINATES
                and coordinates * (steps + 1) // 2 <= MAX_ENTRIES
            ):
                yield cls(width)

    def windows(self, space: Space) -> tuple[Lattice, Integers64, Integers64]:
        """The line, and for each window its first threshold and the one after its last."""
        lattice = self.line(space)
        last = lattice.sides[0] - 1
        if self.width > last:
            raise InputError(
                f"ramps on {space.domain} may be up to {last:,} wide, got {self.width:,}."
            )
        fitting = max(-(-last // MAX_COORDINATES), last * (last + 1) // (2 * MAX_ENTRIES) + 1)
        coordinates = -(-last // self.width)
        remedy = f"ramps of width {fitting:,} fit" if fitting <= last else "count in wider bins"
        self.check_room(coordinates, coordinates * (last + 1) // 2, remedy)
        starts = np.arange(0, last, self.width, dtype=np.int64)
        return lattice, starts, np.minimum(starts + self.width, last)

    def run_starts(self, space: Space, runs: int) -> range:
        """Runs that start in the first window; shifts by whole windows only reorder the changes."""
        return range(min(self.width, runs))

    def point_readings(self, space: Space) -> Readings | None:
        """Differences of neighbouring thresholds; None for wider ramps."""
        return self.nearby(space) if self.width == 1 else None

    def nearby(self, space: Space) -> Readings:
        """Differences of neighbouring window means, with 0 before the first and 1 after the last.

        The difference between a window and the previous one belongs to the points nearest to the
        first point of the later window.
        Statement: such a difference counts people at that first point fully, and people d points
        away from it with the weight 1 - d/width (0 if d >= width); all differences together count
        everyone once. Proof: the mean of a window counts a person with the fraction of the window's
        thresholds that lie at or above the person's point. QED
        """
        lattice, starts, ends = self.windows(space)
        after = np.arange(len(starts) + 1)
        peaks = np.append(starts, lattice.sides[0] - 1)
        row_of = np.searchsorted(
            peaks[:-1] + peaks[1:], 2 * np.arange(lattice.sides[0]), side="right"
        )
        return _between_windows(starts, ends, after - 1, after, row_of)

    def bounds(self, space: Space) -> Readings:
        """Upper readings of each point: the mean of a window after it minus that of one before it.

        The window after a point x is the first one that starts at x or later (its mean counts as 1
        if there is none). The window before x is the last one that ends before x (its mean counts
        as 0 if there is none).
        Statement: the difference is at least the share of x. Proof: let F be the distribution
        function, so the share of x is F(x)-F(x-1). F is non-decreasing, so its mean over thresholds
        from x on is at least F(x), and its mean over thresholds before x is at most F(x-1). QED
        """
        lattice, starts, ends = self.windows(space)
        points = np.arange(lattice.sides[0])
        pairs = np.column_stack(
            [
                np.searchsorted(ends, points, side="right") - 1,
                np.searchsorted(starts, points, side="left"),
            ]
        )
        distinct, row_of = np.unique(pairs, axis=0, return_inverse=True)
        return _between_windows(starts, ends, distinct[:, 0], distinct[:, 1], row_of.ravel())

    def shares(
        self, space: Space, means: Floats, errors: Floats, blur: Blur | None = None
    ) -> Floats:
        """Isotonic regression of the window means; least squares if values are randomized first."""
        if blur is not None:
            fitted = nearest_shares(self.design(space, blur), means, errors, on_line=True).shares
            return fitted if np.ndim(means) > 1 else fitted[0]
        _, starts, ends = self.windows(space)
        known = self.cumulative(space, means, errors)
        return shares_from_windows(starts, ends, known.shares, known.errors)

    def cumulative(self, space: Space, means: Floats, errors: Floats) -> Cumulative:
        """Mean of the distribution function over each window (for width 1, at a threshold)."""
        _, starts, ends = self.windows(space)
        window_means = np.asarray(means, dtype=np.float64)
        if window_means.shape[-1:] != starts.shape or np.shape(errors) != starts.shape:
            raise InputError(
                "there must be one mean and one standard error for each of "
                f"{len(starts):,} ramps, got shape {window_means.shape}."
            )
        return Cumulative(
            starts,
            ends - 1,
            window_means / (ends - starts),
            np.asarray(errors, dtype=np.float64) / (ends - starts),
        )


def _between_windows(
    starts: Integers64, ends: Integers64, before: Integers64, after: Integers64, row_of: Integers64
) -> Readings:
    """Mean of window after[r] (1 after the last) minus that of before[r] (0 before the first)."""
    from scipy.sparse import csr_array

    rows = np.arange(len(after))
    windows = len(starts)
    parts = 1.0 / (ends - starts)
    plus = after < windows
    minus = before >= 0
    data = np.concatenate([parts[after[plus]], -parts[before[minus]]])
    at = np.concatenate([rows[plus], rows[minus]]), np.concatenate([after[plus], before[minus]])
    return Readings.of_points(
        (~plus).astype(np.float64), csr_array((data, at), shape=(len(rows), windows)), row_of
    )
