"""Features of the points of a line: how many of the thresholds of a window lie at or above."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Literal, Self

import numpy as np
from pydantic import model_validator

from metricshuffle.accounting.vectors.feature_changes import FeatureChanges
from metricshuffle.citations import theorem
from metricshuffle.errors import InputError
from metricshuffle.estimation.least_squares import nearest_shares
from metricshuffle.estimation.window_shares import shares_from_windows
from metricshuffle.models import FrozenModel, Whole
from metricshuffle.numerics.types import Floats, Integers64
from metricshuffle.protocols.features.feature_set import MAX_COORDINATES, MAX_ENTRIES, Blur, Cumulative, Features, changes_of
from metricshuffle.protocols.features.lattice import Lattice
from metricshuffle.protocols.features.readings import Readings
from metricshuffle.spaces import Space

if TYPE_CHECKING:
    from scipy.sparse import csr_array


class Ramps(Features):
    """The thresholds 0 .. size-2 between the points of a line, `width` at a time: how many of each window lie at or above the point.

    The mean of a feature is the sum of the distribution function over its window. Width 1 are single thresholds, which tell all shares;
    wider ones leave open where in a window people are, for less noise in all.
    Not for circles: there is no place to count from, and a step across any such place would change all features. Half circles, one
    feature for each pair of opposite borders, do have the slope 1, but tell opposite points apart and nothing else. Cells do.
    """

    kind: Literal["ramps"] = "ramps"
    width: Whole

    def __init__(self, width: int = 1, **fields: Any) -> None:
        FrozenModel.__init__(self, width=width, **fields)

    @model_validator(mode="after")
    def _is_wide(self) -> Self:
        if self.width < 1:
            raise ValueError(f"width must be at least 1, got {self.width}")
        return self

    @classmethod
    def offered(cls, space: Space, people: int, rate: float) -> Iterator[Self]:
        """Single thresholds, then sqrt(people * rate * range)/2 ramps, and half and twice as wide ones.

        The noise of the window means over all windows grows with their number, and what is unknown inside a window falls; the constant
        was found by simulation.
        """
        lattice = Lattice.of(space)
        if lattice is None or len(lattice.sides) > 1:
            return
        steps = lattice.sides[0] - 1
        ramps = math.sqrt(people * rate * steps * lattice.step) / 2.0
        likeliest = max(1, round(steps / max(ramps, 1.0)))
        for width in dict.fromkeys([1, likeliest, likeliest // 2, 2 * likeliest]):
            coordinates = -(-steps // max(width, 1))
            if 1 <= width <= max(1, steps // 2) and coordinates <= MAX_COORDINATES and coordinates * (steps + 1) // 2 <= MAX_ENTRIES:
                yield cls(width)

    def _windows(self, space: Space) -> tuple[Lattice, Integers64, Integers64]:
        """The line, and the first threshold of each window and the one after the last."""
        lattice = Lattice.of(space)
        if lattice is None or len(lattice.sides) > 1:
            raise InputError(f"ramps are for whole numbers on a line, not for {type(space.metric).__name__} distances on {space.domain}.")
        last = lattice.sides[0] - 1
        if self.width > last:
            raise InputError(f"ramps on {space.domain} may be up to {last:,} wide, got {self.width:,}.")
        fitting = max(-(-last // MAX_COORDINATES), last * (last + 1) // (2 * MAX_ENTRIES) + 1)
        coordinates = -(-last // self.width)
        remedy = f"ramps of width {fitting:,} fit" if fitting <= last else "count in wider bins"
        self.check_room(coordinates, coordinates * (last + 1) // 2, remedy)
        starts = np.arange(0, last, self.width, dtype=np.int64)
        return lattice, starts, np.minimum(starts + self.width, last)

    def table(self, space: Space) -> csr_array:
        from scipy.sparse import csr_array

        lattice, starts, ends = self._windows(space)
        last = lattice.sides[0] - 1
        points = np.arange(last, dtype=np.int64)
        first = points // self.width
        entries = len(starts) - first  # the window the point is in, and all after it; nothing at the last point
        begins = np.concatenate([[0], np.cumsum(entries), [np.sum(entries)]])
        columns = np.arange(begins[-1]) - np.repeat(begins[:-2] - first, entries)
        values = (ends - starts)[columns]
        values[begins[:-2]] = ends[first] - points
        return csr_array((values, columns, begins), shape=(last + 1, len(starts)))

    def weights(self, space: Space) -> Floats:
        return np.ones(len(self._windows(space)[1]))

    @theorem("metricshuffle", "slope of ramps")
    def slope(self, space: Space, rates: Floats) -> float:
        """Statement: the largest rate over the length of a step, attained by a step across a threshold of that ramp.

        Proof: a step crosses one threshold, so it changes one feature by one; a move along the line is made of steps, so it costs no more
        than the dearest step for each of them. QED
        Numerics: rounded up, also for what distances in floating point fall short by.
        """
        return self._windows(space)[0].per_unit(float(self.validate_rates(space, rates).max()))

    def moves(self, space: Space, rates: Floats, distance: float) -> Iterator[FeatureChanges]:
        """As many steps as go, from each place within a window: a longer move changes no feature by less.

        Statement: a move is a run of thresholds that it crosses, and moving the run by whole windows towards the first does not change
        by how much features change, apart from their order. Conditions: one rate for all; otherwise pair by pair.
        """
        lattice, starts, _ = self._windows(space)
        checked = self.validate_rates(space, rates)
        if np.any(checked != checked[0]):
            yield from super().moves(space, rates, distance)
            return
        steps, last = lattice.steps_within(distance), lattice.sides[0] - 1
        if steps == 0:
            return
        seen: set[tuple[int, ...]] = set()
        for start in range(min(self.width, last - steps + 1)):
            crossed = np.bincount(np.arange(start, start + steps) // self.width, minlength=len(starts))
            key = tuple(np.sort(crossed).tolist())
            if key not in seen:
                seen.add(key)
                yield changes_of(checked, crossed)

    def point_readings(self, space: Space) -> Readings | None:
        """Differences of neighbouring thresholds; None for wider ramps."""
        return self.nearby(space) if self.width == 1 else None

    def nearby(self, space: Space) -> Readings:
        """Differences of neighbouring window means, with 0 before the first and 1 after the last: each belongs to the points nearest to the
        first of its second window.

        Statement: such a difference counts people at that first point whole, and those d points away with the weight 1 - d/width
        (none from the width on); all differences together count everybody once. Proof: the mean of a window counts somebody with
        the part of its thresholds that lie at or above her. QED
        """
        lattice, starts, ends = self._windows(space)
        after = np.arange(len(starts) + 1)
        peaks = np.append(starts, lattice.sides[0] - 1)
        row_of = np.searchsorted(peaks[:-1] + peaks[1:], 2 * np.arange(lattice.sides[0]), side="right")
        return _between_windows(starts, ends, after - 1, after, row_of)

    def bounds(self, space: Space) -> Readings:
        """For each point the mean of the first window that starts there or after (1 if none does) less that of the last window that ends
        before (0 if none does).

        Statement: that is no less than the share of the point. Proof: the share of x is F(x) - F(x - 1), F being the distribution
        function, which rises: its mean over thresholds from x on is at least F(x), and over thresholds before x at most F(x - 1). QED
        """
        lattice, starts, ends = self._windows(space)
        points = np.arange(lattice.sides[0])
        pairs = np.column_stack([np.searchsorted(ends, points, side="right") - 1, np.searchsorted(starts, points, side="left")])
        distinct, row_of = np.unique(pairs, axis=0, return_inverse=True)
        return _between_windows(starts, ends, distinct[:, 0], distinct[:, 1], row_of.ravel())

    def shares(self, space: Space, means: Floats, errors: Floats, blur: Blur | None = None) -> Floats:
        """Isotonic regression of the window means; least squares where values are randomized first."""
        if blur is not None:
            fitted = nearest_shares(self.design(space, blur), means, errors, on_line=True).shares
            return fitted if np.ndim(means) > 1 else fitted[0]
        _, starts, ends = self._windows(space)
        known = self.cumulative(space, means, errors)
        return shares_from_windows(starts, ends, known.shares, known.errors)

    def cumulative(self, space: Space, means: Floats, errors: Floats) -> Cumulative:
        """The mean of the distribution function over each window: at its one threshold, if the width is 1."""
        _, starts, ends = self._windows(space)
        window_means = np.asarray(means, dtype=np.float64)
        if window_means.shape[-1:] != starts.shape or np.shape(errors) != starts.shape:
            raise InputError(
                f"there must be one mean and one standard error for each of {len(starts):,} ramps, got shape {window_means.shape}."
            )
        return Cumulative(starts, ends - 1, window_means / (ends - starts), np.asarray(errors, dtype=np.float64) / (ends - starts))


def _between_windows(starts: Integers64, ends: Integers64, before: Integers64, after: Integers64, row_of: Integers64) -> Readings:
    """The mean of window after[r] (1 after the last) less that of window before[r] (0 before the first)."""
    from scipy.sparse import csr_array

    rows, windows, parts = np.arange(len(after)), len(starts), 1.0 / (ends - starts)
    plus, minus = after < windows, before >= 0
    data = np.concatenate([parts[after[plus]], -parts[before[minus]]])
    at = np.concatenate([rows[plus], rows[minus]]), np.concatenate([after[plus], before[minus]])
    return Readings.of_points((~plus).astype(np.float64), csr_array((data, at), shape=(len(rows), windows)), row_of)
