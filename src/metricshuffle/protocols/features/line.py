"""Features of the points of a line: how many of the thresholds of a window lie at or above."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Literal, Self

import numpy as np
from pydantic import model_validator

from metricshuffle.accounting.vectors.changes import Changes
from metricshuffle.citations import theorem
from metricshuffle.declared import Declared, Whole
from metricshuffle.errors import InputError
from metricshuffle.estimation.least_squares import nearest_shares
from metricshuffle.estimation.windows import shares_from_windows
from metricshuffle.numerics.types import Floats, Integers64
from metricshuffle.protocols.features.base import MOST_COORDINATES, MOST_ENTRIES, Blur, Cumulative, Features, changes_of
from metricshuffle.protocols.features.lattice import Lattice
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

    def __init__(self, width: int = 1, **rest: Any) -> None:
        Declared.__init__(self, width=width, **rest)

    @model_validator(mode="after")
    def _is_wide(self) -> Self:
        if self.width < 1:
            raise ValueError(f"width must be at least 1, got {self.width}")
        return self

    @classmethod
    def offered(cls, space: Space, people: int, rate: float) -> Iterator[Self]:
        """sqrt(people * rate * range)/2 ramps, then half and twice as wide ones, and single thresholds.

        The noise of the window means over all windows grows with their number, and what is unknown inside a window falls; the constant
        was found by simulation.
        """
        lattice = Lattice.of(space)
        if lattice is None or len(lattice.sides) > 1:
            return
        steps = lattice.sides[0] - 1
        ramps = math.sqrt(people * rate * steps * lattice.step) / 2.0
        likeliest = max(1, round(steps / max(ramps, 1.0)))
        for width in dict.fromkeys([likeliest, likeliest // 2, 2 * likeliest, 1]):
            coordinates = -(-steps // max(width, 1))
            if 1 <= width <= max(1, steps // 2) and coordinates <= MOST_COORDINATES and coordinates * (steps + 1) // 2 <= MOST_ENTRIES:
                yield cls(width)

    def _windows(self, space: Space) -> tuple[Lattice, Integers64, Integers64]:
        """The line, and the first threshold of each window and the one after the last."""
        lattice = Lattice.of(space)
        if lattice is None or len(lattice.sides) > 1:
            raise InputError(f"ramps are for whole numbers on a line, not for {type(space.metric).__name__} distances on {space.domain}.")
        last = lattice.sides[0] - 1
        if self.width > last:
            raise InputError(f"ramps on {space.domain} may be up to {last:,} wide, got {self.width:,}.")
        fitting = max(-(-last // MOST_COORDINATES), last * (last + 1) // (2 * MOST_ENTRIES) + 1)
        coordinates = -(-last // self.width)
        remedy = f"ramps of width {fitting:,} fit" if fitting <= last else "count in wider bins"
        self.room_for(coordinates, coordinates * (last + 1) // 2, remedy)
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
        return self._windows(space)[0].per_unit(float(self.checked_rates(space, rates).max()))

    def moves(self, space: Space, rates: Floats, distance: float) -> Iterator[Changes]:
        """As many steps as go, from each place within a window: a longer move changes no feature by less.

        Statement: a move is a run of thresholds that it crosses, and moving the run by whole windows towards the first does not change
        by how much features change, apart from their order. Conditions: one rate for all; otherwise pair by pair.
        """
        lattice, starts, _ = self._windows(space)
        checked = self.checked_rates(space, rates)
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

    def unbiased(self, space: Space, means: Floats, errors: Floats) -> tuple[Floats, Floats] | None:
        """Differences of neighbouring thresholds; None for wider ramps."""
        if self.width > 1:
            return None
        known = self.cumulative(space, means, errors)
        none = np.zeros((*known.shares.shape[:-1], 1))
        variances = np.concatenate([[0.0], known.errors**2, [0.0]])
        shares = np.diff(np.concatenate([none, known.shares, none + 1.0], axis=-1), axis=-1)
        return shares, np.sqrt(variances[:-1] + variances[1:])

    def shares(self, space: Space, means: Floats, errors: Floats, blur: Blur | None = None) -> Floats:
        """Isotonic regression of the window means; least squares where values are randomized first."""
        if blur is not None:
            found = nearest_shares(self.design(space, blur), means, errors, on_line=True).shares
            return found if np.ndim(means) > 1 else found[0]
        _, starts, ends = self._windows(space)
        known = self.cumulative(space, means, errors)
        return shares_from_windows(starts, ends, known.shares, known.errors)

    def cumulative(self, space: Space, means: Floats, errors: Floats) -> Cumulative:
        """The mean of the distribution function over each window: at its one threshold, if the width is 1."""
        _, starts, ends = self._windows(space)
        given = np.asarray(means, dtype=np.float64)
        if given.shape[-1:] != starts.shape or np.shape(errors) != starts.shape:
            raise InputError(f"there must be one mean and one standard error for each of {len(starts):,} ramps, got shape {given.shape}.")
        return Cumulative(starts, ends - 1, given / (ends - starts), np.asarray(errors, dtype=np.float64) / (ends - starts))
