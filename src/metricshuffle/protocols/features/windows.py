"""Features that count thresholds in windows of a line; ramps, quantiles and shares above use them.

A threshold lies between two neighbouring points of a line of whole numbers, and a window is a run
of neighbouring thresholds.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from metricshuffle.accounting.vectors.feature_changes import FeatureChanges
from metricshuffle.citations import theorem
from metricshuffle.errors import InputError
from metricshuffle.numerics.types import Floats, Integers64
from metricshuffle.protocols.features.feature_set import Features, changes_of
from metricshuffle.protocols.features.lattice import Lattice
from metricshuffle.spaces import Space

if TYPE_CHECKING:
    from scipy.sparse import csr_array

# Moves that are accounted one by one; more are replaced by moves that dominate several of them.
MAX_MOVES = 1024


class Windows(Features, ABC):
    """Base of feature sets with one feature for each window of thresholds.

    A feature is the number of thresholds of its window that are at or above a person's point. The
    points are 0 .. size-1 and the thresholds 0 .. size-2: threshold t lies between the points t and
    t+1. Windows are disjoint and in increasing order. The mean of a feature over people is the sum
    of the distribution function over its window.
    """

    @abstractmethod
    def windows(self, space: Space) -> tuple[Lattice, Integers64, Integers64]:
        """The line of the points; the first threshold of each window; and one past its last."""

    def run_starts(self, space: Space, runs: int) -> range:
        """First thresholds of the runs whose moves are accounted; `runs` is the number of all runs.

        A move crosses a run of thresholds. A move across any other run changes the features by the
        same numbers as a move across one of these runs, possibly in another order.
        """
        return range(runs)

    def line(self, space: Space) -> Lattice:
        """The line of the points; InputError for other spaces."""
        lattice = Lattice.of(space)
        if lattice is None or len(lattice.sides) > 1:
            raise InputError(
                f"{self.kind} are for whole numbers on a line, not for "
                f"{type(space.metric).__name__} distances on {space.domain}."
            )
        return lattice

    def table(self, space: Space) -> csr_array:
        from scipy.sparse import csr_array

        lattice, starts, ends = self.windows(space)
        points = np.arange(lattice.sides[0], dtype=np.int64)
        first = np.searchsorted(ends, points, side="right")
        # The first window that ends after the point and all later ones.
        entries = len(starts) - first
        begins = np.concatenate([[0], np.cumsum(entries)])
        columns = np.arange(begins[-1]) - np.repeat(begins[:-1] - first, entries)
        values = (ends - starts)[columns]
        some = entries > 0
        values[begins[:-1][some]] = ends[first[some]] - np.maximum(
            starts[first[some]], points[some]
        )
        return csr_array((values, columns, begins), shape=(len(points), len(starts)))

    def weights(self, space: Space) -> Floats:
        return np.ones(len(self.windows(space)[1]))

    @theorem("metricshuffle", "slope of ramps")
    def slope(self, space: Space, rates: Floats) -> float:
        """Certified upper bound on the loss per unit of distance (see `Features.slope`).

        Statement: the slope is the largest rate over the length of a step; a step across a
        threshold of the window with the largest rate attains it.
        Proof: a step crosses one threshold, so it changes one feature by one, or none. A move along
        the line consists of steps, so its cost is at most the number of steps times the cost of the
        most expensive step. QED
        Numerics: rounded up, also for the amount by which floating-point distances fall short.
        """
        return self.windows(space)[0].per_unit(float(self.validate_rates(space, rates).max()))

    def moves(self, space: Space, rates: Floats, distance: float) -> Iterator[FeatureChanges]:
        """The longest moves within a distance; no shorter move changes a feature by more.

        Statement: a move crosses a run of consecutive thresholds, and changes each feature by the
        number of crossed thresholds of its window. If there are more than `MAX_MOVES` moves, a
        group of them is replaced by one move: its largest change is the largest of theirs, its
        second largest the largest of their second largest, and so on.
        Conditions: all rates are equal; otherwise the moves are found pair by pair.
        """
        lattice, starts, ends = self.windows(space)
        checked = self.validate_rates(space, rates)
        if np.any(checked != checked[0]):
            yield from super().moves(space, rates, distance)
            return
        steps = lattice.steps_within(distance)
        if steps == 0:
            return
        seen: dict[tuple[int, ...], Integers64] = {}
        for start in self.run_starts(space, lattice.sides[0] - steps):
            crossed = np.minimum(ends, start + steps) - np.maximum(starts, start)
            crossed = np.maximum(crossed, 0)
            seen.setdefault(tuple(np.sort(crossed)[::-1].tolist()), crossed)
        if len(seen) <= MAX_MOVES:
            yield from (changes_of(checked, crossed) for crossed in seen.values() if crossed.any())
            return
        for group in np.array_split(np.array(sorted(seen)), MAX_MOVES):
            yield changes_of(checked, group.max(axis=0))
