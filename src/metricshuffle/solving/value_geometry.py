"""Where the values of a target lie: which distances there are, the closure of a metric that is a function of them, and reaches.

A local (semi-)metric that depends on the distance only is a vector, one number for each distance. Closed by shortest paths it may depend
on more than that. So pairs come in `classes`, fine enough to hold the closure too: steps on lines and circles, displacements on grids;
in any other space the classes are the distances, and what is told of a class is about its worst pair.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from metricshuffle.citations import theorem
from metricshuffle.errors import InputError
from metricshuffle.numerics.types import Floats, Integers64
from metricshuffle.solving.line_closure import close_line, farthest_reaches, make_nondecreasing

MAX_LISTED = 1024
"""Points of a space without a closed form, and of a table that is asked for."""
MAX_CLASSES = 10_000
DISTANCE_TOLERANCE = 1e-12
"""Distances that differ by this fraction are one; the smaller one stands for both."""


@dataclass(frozen=True, eq=False)
class ClosedMetric:
    """A metric: its value for each class (the largest of the class), and the reaches of the two points of any pair of the class.

    One point of a pair reaches at most `high`, the other at most `low`.
    """

    values: Floats
    high: Floats
    low: Floats
    table: Floats | None = None
    """Every pair, where the closure is known pair by pair only."""

    @property
    def diameter(self) -> float:
        return float(self.high.max())


class ValueGeometry(ABC):
    """The points of a space and the classes of their pairs."""

    @property
    @abstractmethod
    def points(self) -> int:
        """How many points there are."""

    @property
    @abstractmethod
    def distances(self) -> Floats:
        """The distance of each class, > 0, in units; they do not fall."""

    @abstractmethod
    def closed(self, values: Floats) -> ClosedMetric:
        """The closure by shortest paths of the semi-metric with one value > 0 for each class, which must not fall with the distance."""

    @abstractmethod
    def classes(self) -> Integers64:
        """The class of every pair of points, as a table; -1 on the diagonal."""

    def table(self, values: Floats) -> Floats:
        """A function of the class for every pair of points; 0 on the diagonal."""
        if self.points > MAX_LISTED:
            raise InputError(f"a table of all pairs is made for up to {MAX_LISTED:,} points, but there are {self.points:,}.")
        return np.concatenate((values, [0.0]))[self.classes()]


@dataclass(frozen=True)
class LineGeometry(ValueGeometry):
    """0, step, .., steps * step: classes are numbers of steps."""

    steps: int
    step: float = 1.0

    @property
    def points(self) -> int:
        return self.steps + 1

    @cached_property
    def distances(self) -> Floats:
        return np.arange(1.0, self.steps + 1.0) * self.step

    def closed(self, values: Floats) -> ClosedMetric:
        closed = close_line(values)
        high, low = farthest_reaches(closed)
        return ClosedMetric(closed, np.full(len(closed), high), low)

    def classes(self) -> Integers64:
        places = np.arange(self.points)
        return np.asarray(np.abs(np.subtract.outer(places, places)) - 1, dtype=np.int64)


@dataclass(frozen=True)
class CircleGeometry(ValueGeometry):
    """`around` equally spaced points of a circle: classes are numbers of steps the shorter way round."""

    around: int
    step: float = 1.0

    def __post_init__(self) -> None:
        if self.around < 2:
            raise InputError(f"a circle of values needs at least two of them, got {self.around}.")

    @property
    def points(self) -> int:
        return self.around

    @cached_property
    def distances(self) -> Floats:
        return np.arange(1.0, self.around // 2 + 1.0) * self.step

    @theorem("metricshuffle", "closure of a semi-metric on a circle")
    def closed(self, values: Floats) -> ClosedMetric:
        """Statement: with D = f(steps the shorter way round), f non-decreasing, the closure is c(steps), c that of f on a line.

        Proof: lift a path from 0 to d <= N/2 to the whole numbers, every step at its shorter length and sign; it ends at d + kN. If k >= 0
        it passes from 0 to at least d, and cutting it off at its running maximum and at d costs no more and leaves an upward path to d
        (as in `close_line`). If k < 0 it ends at most d - N <= -d, and its mirror image passes d. Upward paths are those of the line.
        Conditions: as for `close_line`. Every point reaches c(N // 2). Numerics: as there. Reference: `close_line`.
        """
        closed = close_line(values)
        reach = np.full(len(closed), closed[-1])
        return ClosedMetric(closed, reach, reach)

    def classes(self) -> Integers64:
        apart = np.abs(np.subtract.outer(np.arange(self.around), np.arange(self.around)))
        return np.asarray(np.minimum(apart, self.around - apart) - 1, dtype=np.int64)


@dataclass(frozen=True)
class GridGeometry(ValueGeometry):
    """width x height cells, coded row * width + column: classes are displacements (columns, rows), by rising distance."""

    width: int
    height: int
    cell: float = 1.0
    manhattan: bool = False

    @property
    def points(self) -> int:
        return self.width * self.height

    @cached_property
    def _lengths(self) -> Floats:
        """The distance of each displacement, [rows, columns]; distances that are one but for rounding are the smallest of them."""
        rows, columns = np.arange(self.height)[:, None], np.arange(self.width)[None, :]
        lengths = (rows + columns if self.manhattan else np.hypot(rows, columns)) * self.cell
        values, index = merge_distances(np.asarray(lengths, dtype=np.float64).ravel())
        return values[index].reshape(self.height, self.width)

    @cached_property
    def _order(self) -> Integers64:
        """The displacements as places in the flat table, nearest first, without (0, 0)."""
        return np.argsort(self._lengths.ravel(), kind="stable")[1:]

    @cached_property
    def distances(self) -> Floats:
        return np.asarray(self._lengths.ravel()[self._order])

    @theorem("metricshuffle", "closure of a semi-metric on a grid")
    def closed(self, values: Floats) -> ClosedMetric:
        """Statement: let D depend on |columns| and |rows| apart, and fall in neither. Its closure on a rectangle of cells is a function
        c(i, j) of the displacement, too: c(i, j) = min(f(i, j), min over (0, 0) < (a, b) < (i, j) of c(a, b) + c(i-a, j-b)).
        It falls in neither. So a cell reaches c(farther end across, farther end up).

        Proof: as on a line (`close_line`), axis by axis: of a path from p to p + (i, j), i, j >= 0, take on each axis the running maximum,
        cut off at the end. Its moves are no longer on either axis, so they cost no more; it stays between p and p + (i, j), which lies in
        the rectangle, wherever p is. A best way is one move, or it has a first part and a best rest, both closed.
        A pair (i, j) apart has reaches of at most c(W, H), its farthest corner; and the nearer one as on a line on each axis:
        max(span - d, (span + d) // 2) steps, because on each axis one of the two points reaches no more, but perhaps not the same point on
        both: then both points reach at most c of (the whole span on one axis, the shorter reach on the other).
        Conditions: f > 0 finite. Numerics: O((width height)^2/4) additions, to nearest; never above f; made non-decreasing downwards.
        """
        flat = np.zeros(self.points)
        flat[self._order] = values
        closed = flat.reshape(self.height, self.width)
        for j in range(self.height):
            for i in range(self.width):
                if i + j > 1:
                    part = closed[: j + 1, : i + 1]
                    ways = part + part[::-1, ::-1]
                    ways[0, 0] = ways[j, i] = closed[j, i]
                    closed[j, i] = ways.min()
        for axis in (0, 1):
            closed = np.apply_along_axis(make_nondecreasing, axis, closed)
        diameter = float(closed[-1, -1])
        rows, columns = np.divmod(self._order, self.width)
        low = np.minimum(diameter, np.maximum(*self._shorter(closed, rows, columns)))
        return ClosedMetric(closed.ravel()[self._order], np.full(len(values), diameter), low)

    def _shorter(self, closed: Floats, rows: Integers64, columns: Integers64) -> tuple[Floats, Floats]:
        """The reach of the less far reaching point, if it is that on one axis only: on either axis."""
        up, across = self.height - 1, self.width - 1
        nearer = [np.where(d > 0, np.maximum(span - d, (span + d) // 2), span) for d, span in ((rows, up), (columns, across))]
        return closed[nearer[0], across], closed[up, nearer[1]]

    def classes(self) -> Integers64:
        rows, columns = np.divmod(np.arange(self.points), self.width)
        places = np.abs(np.subtract.outer(rows, rows)) * self.width + np.abs(np.subtract.outer(columns, columns))
        back = np.full(self.points, -1, dtype=np.int64)
        back[self._order] = np.arange(len(self._order))
        return np.asarray(back[places], dtype=np.int64)


@dataclass(frozen=True, eq=False)
class TableGeometry(ValueGeometry):
    """Any finite metric, by its table: classes are distances. Points at distance 0 are told apart by nothing."""

    metric: Floats = field(repr=False)

    def __post_init__(self) -> None:
        if not 2 <= len(self.metric) <= MAX_LISTED:
            raise InputError(f"spaces without a closed form need 2 to {MAX_LISTED:,} points, got {len(self.metric):,}; merge some.")
        if not self.metric.max() > 0.0:
            raise InputError(
                "all points are at distance 0 from each other, so that nothing may tell them apart: there is nothing to solve."
            )

    @property
    def points(self) -> int:
        return len(self.metric)

    @cached_property
    def _merged(self) -> tuple[Floats, Integers64]:
        values, index = merge_distances(self.metric.ravel())
        first = int(values[0] == 0.0)
        return values[first:], (index - first).reshape(self.metric.shape)

    @property
    def distances(self) -> Floats:
        return self._merged[0]

    def classes(self) -> Integers64:
        return self._merged[1]

    def closed(self, values: Floats) -> ClosedMetric:
        """By shortest paths over all points; each class has the largest value and the largest reaches of its pairs."""
        from metricshuffle.spaces.matrix import closure

        table = closure(self.table(values))
        reaches, classes = table.max(axis=1), self.classes()
        pairs = np.nonzero(np.triu(classes >= 0, 1))
        which, (a, b) = classes[pairs], (reaches[pairs[0]], reaches[pairs[1]])
        maxima = [np.zeros(len(values)) for _ in range(3)]
        for vector, of_pairs in zip(maxima, (table[pairs], np.maximum(a, b), np.minimum(a, b)), strict=True):
            np.maximum.at(vector, which, of_pairs)
        return ClosedMetric(maxima[0], maxima[1], maxima[2], table)


def merge_distances(distances: Floats) -> tuple[Floats, Integers64]:
    """Different distances, rising, and which of them each one is; those that differ by rounding only are the smallest of them."""
    values, index = np.unique(distances, return_inverse=True)
    fresh = np.concatenate(([True], np.diff(values) > DISTANCE_TOLERANCE * values[1:]))
    group = np.cumsum(fresh) - 1
    return np.asarray(values[fresh]), np.asarray(group[index.ravel()], dtype=np.int64)
