"""Geometry of the values of a target: distances, shortest-path closures and reaches.

A local (semi-)metric that depends on the distance only is a vector, one number for each distance.
Its closure by shortest paths may depend on more than that. So pairs are divided into `classes` that
are fine enough for the closure too: steps on lines and circles, displacements on grids; in any
other space the classes are the distances, and values of a class are those of its worst pair. On a
line a table D(i, j) = f(|i-j|) on 0..k is the vector (f(1), .., f(k)), so that ten thousand values
need no matrix.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from metricshuffle.citations import theorem
from metricshuffle.errors import InputError
from metricshuffle.numerics.types import Floats, Integers64

MAX_LISTED = 1024
"""Largest number of points of a space without a closed form, and of a requested table."""
MAX_CLASSES = 10_000
DISTANCE_TOLERANCE = 1e-12
"""Distances that differ by this fraction are merged into the smaller one."""


@dataclass(frozen=True, eq=False)
class ClosedMetric:
    """Metric by class (the largest value of the class), with the reaches of the pairs' points.

    One point of a pair reaches at most `high`, the other at most `low`.
    """

    values: Floats
    high: Floats
    low: Floats
    table: Floats | None = None
    """Value of every pair, where the closure is known only pair by pair."""

    @property
    def diameter(self) -> float:
        return float(self.high.max())


class ValueGeometry(ABC):
    """Points of a space and the classes of their pairs."""

    @property
    @abstractmethod
    def points(self) -> int:
        """Number of points."""

    @property
    @abstractmethod
    def distances(self) -> Floats:
        """Distance of each class, > 0, in units, non-decreasing."""

    @abstractmethod
    def closed(self, values: Floats) -> ClosedMetric:
        """Shortest-path closure of the semi-metric with one value > 0 for each class.

        The values must be non-decreasing in the distance.
        """

    @abstractmethod
    def classes(self) -> Integers64:
        """Class of every pair of points, as a table; -1 on the diagonal."""

    def table(self, values: Floats) -> Floats:
        """Value of every pair of points, by its class; 0 on the diagonal."""
        if self.points > MAX_LISTED:
            raise InputError(
                f"a table of all pairs is made for up to {MAX_LISTED:,} points, but there "
                f"are {self.points:,}."
            )
        return np.concatenate((values, [0.0]))[self.classes()]


@dataclass(frozen=True)
class LineGeometry(ValueGeometry):
    """Points 0, step, .., steps * step; classes are numbers of steps."""

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
    """Equally spaced points of a circle; classes are steps along the shorter arc."""

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
        """Shortest-path closure on the circle.

        Statement: let N be the number of points, and let D = f(steps along the shorter arc) with f
        non-decreasing. Then the closure of D is c(steps along the shorter arc), where c is the
        closure of f on a line (`close_line`).
        Proof: lift a path from 0 to d <= N/2 to the whole numbers, every step at its shorter length
        and sign; the lifted path ends at d + kN for some whole k. If k >= 0, it passes from 0 to at
        least d; cutting it off at its running maximum and at d costs no more and leaves an upward
        path to d (as in `close_line`). If k < 0, it ends at most at d - N <= -d, and its mirror
        image passes d. Upward paths are those of the line.
        Conditions: as for `close_line`. Every point reaches c(N // 2).
        Numerics: as for `close_line`.
        Reference: `close_line`.
        """
        closed = close_line(values)
        reach = np.full(len(closed), closed[-1])
        return ClosedMetric(closed, reach, reach)

    def classes(self) -> Integers64:
        apart = np.abs(np.subtract.outer(np.arange(self.around), np.arange(self.around)))
        return np.asarray(np.minimum(apart, self.around - apart) - 1, dtype=np.int64)


@dataclass(frozen=True)
class GridGeometry(ValueGeometry):
    """Grid of cells, coded row * width + column; classes are displacements by rising distance."""

    width: int
    height: int
    cell: float = 1.0
    manhattan: bool = False

    @property
    def points(self) -> int:
        return self.width * self.height

    @cached_property
    def _lengths(self) -> Floats:
        """Distance of each displacement, [rows, columns].

        Distances that differ by rounding only are merged into the smallest of them.
        """
        rows = np.arange(self.height)[:, None]
        columns = np.arange(self.width)[None, :]
        lengths = (rows + columns if self.manhattan else np.hypot(rows, columns)) * self.cell
        values, index = merge_distances(np.asarray(lengths, dtype=np.float64).ravel())
        return values[index].reshape(self.height, self.width)

    @cached_property
    def _order(self) -> Integers64:
        """Displacements as places in the flat table, nearest first, without (0, 0)."""
        return np.argsort(self._lengths.ravel(), kind="stable")[1:]

    @cached_property
    def distances(self) -> Floats:
        return np.asarray(self._lengths.ravel()[self._order])

    @theorem("metricshuffle", "closure of a semi-metric on a grid")
    def closed(self, values: Floats) -> ClosedMetric:
        """Shortest-path closure on the grid.

        Statement: let D = f(i, j) depend only on the numbers of columns i and of rows j between two
        cells, and decrease in neither. Its closure on a rectangle of cells is then also a function
        c(i, j) of the displacement: c(i, j) = min(f(i, j), min over (0, 0) < (a, b) < (i, j) of
        c(a, b) + c(i-a, j-b)). It decreases in neither i nor j. So the reach of a cell is c(columns
        to the farther end across, rows to the farther end up).
        Proof: as on a line (`close_line`), axis by axis. Take a path from a cell p to p+(i, j), i,
        j >= 0, and replace it on each axis by its running maximum, cut off at the end. The moves of
        the new path are no longer on either axis, so they cost no more; it stays between p and
        p+(i, j), which lies in the rectangle, wherever p is. A best path is one move, or a first
        part and a best rest, both closed. Let W and H be the spans of the grid in columns and rows.
        Two cells (i, j) apart have reaches of at most c(W, H), that of the farthest corner. The
        nearer reach is bounded on each axis as on a line, by max(span - d, (span + d) // 2) steps
        for two points d steps apart, because on each axis one of the two points reaches no more. It
        may not be the same point on both axes: then both points reach at most c of (the whole span
        on one axis, the shorter reach on the other).
        Conditions: f > 0 finite.
        Numerics: O((width height)^2/4) additions, to nearest; never above f; made non-decreasing
        downwards.
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

    def _shorter(
        self, closed: Floats, rows: Integers64, columns: Integers64
    ) -> tuple[Floats, Floats]:
        """Reaches of a point with the shorter reach only across rows, and only across columns."""
        up = self.height - 1
        across = self.width - 1
        nearer = [
            np.where(d > 0, np.maximum(span - d, (span + d) // 2), span)
            for d, span in ((rows, up), (columns, across))
        ]
        return closed[nearer[0], across], closed[up, nearer[1]]

    def classes(self) -> Integers64:
        rows, columns = np.divmod(np.arange(self.points), self.width)
        places = np.abs(np.subtract.outer(rows, rows)) * self.width + np.abs(
            np.subtract.outer(columns, columns)
        )
        back = np.full(self.points, -1, dtype=np.int64)
        back[self._order] = np.arange(len(self._order))
        return np.asarray(back[places], dtype=np.int64)


@dataclass(frozen=True, eq=False)
class TableGeometry(ValueGeometry):
    """Finite metric given by its table; classes are distances.

    Points at distance 0 must not be distinguished.
    """

    metric: Floats = field(repr=False)

    def __post_init__(self) -> None:
        if not 2 <= len(self.metric) <= MAX_LISTED:
            raise InputError(
                f"spaces without a closed form need 2 to {MAX_LISTED:,} points, got "
                f"{len(self.metric):,}; merge some."
            )
        if not self.metric.max() > 0.0:
            raise InputError(
                "all points are at distance 0 from each other, so that nothing may tell "
                "them apart: there is nothing to solve."
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
        """Shortest-path closure over all points.

        Each class has the largest value and the largest reaches of its pairs.
        """
        from metricshuffle.spaces.distance_matrix import closure

        table = closure(self.table(values))
        reaches = table.max(axis=1)
        classes = self.classes()
        pairs = np.nonzero(np.triu(classes >= 0, 1))
        which, (a, b) = classes[pairs], (reaches[pairs[0]], reaches[pairs[1]])
        maxima = [np.zeros(len(values)) for _ in range(3)]
        for vector, of_pairs in zip(
            maxima, (table[pairs], np.maximum(a, b), np.minimum(a, b)), strict=True
        ):
            np.maximum.at(vector, which, of_pairs)
        return ClosedMetric(maxima[0], maxima[1], maxima[2], table)


def merge_distances(distances: Floats) -> tuple[Floats, Integers64]:
    """Return the distinct distances, rising, and the index of each distance among them.

    Distances that differ by rounding only are merged into the smallest of them.
    """
    values, index = np.unique(distances, return_inverse=True)
    fresh = np.concatenate(([True], np.diff(values) > DISTANCE_TOLERANCE * values[1:]))
    group = np.cumsum(fresh) - 1
    return np.asarray(values[fresh]), np.asarray(group[index.ravel()], dtype=np.int64)


def make_nondecreasing(values: Floats) -> Floats:
    """Largest non-decreasing vector below the given one."""
    return np.asarray(np.minimum.accumulate(values[::-1])[::-1], dtype=np.float64)


@theorem("metricshuffle", "closure of a semi-metric on a line")
def close_line(semi_metric: Floats) -> Floats:
    """Largest metric below D(i, j) = f(|i-j|) on the points 0..k of a line, at 1..k steps.

    Statement: let f(0) = 0 and f be non-decreasing. The shortest-path closure of D on {0..k} is
    c(|i-j|), with c the min-plus (subadditive) closure of f: c(d) = min over all sums d =
    a_1+..+a_r, a_t >= 1, of f(a_1)+..+f(a_r). It obeys c(d) = min(f(d), min_(1 <= a <= d/2) c(a) +
    c(d-a)) and is non-decreasing.
    Proof: a path x_0 = i, .., x_r = j, i < j, may turn back or leave [i, j]. Let y_t = min(j,
    max_(s <= t) x_s), which goes from i to j upwards. Where y moves, x_t exceeds all of
    x_0..x_(t-1), so 0 < y_t - y_(t-1) <= x_t - x_(t-1), and f is non-decreasing: the steps of y
    cost no more. Upward paths from i to j correspond to the ways to write j - i as a sum, wherever
    i lies, and all of them stay in {0..k}. The best sum is one step, or it consists of a first part
    a and the best sum for the rest d-a. The costs of both are values of c, and the order of the two
    parts does not matter, hence a <= d/2. A path to d+1 cut off at d costs no more, so c is
    non-decreasing.
    Shortcut: if f(a) >= min(a f(1), f(k)) for all a, then c(d) = min(d f(1), f(k)) capped by f(d):
    among the parts a of d, either each costs at least a f(1), or one of them already costs f(k).
    Conditions: f finite, > 0 and non-decreasing (InputError otherwise).
    Numerics: O(k^2/4) additions; sums are rounded to nearest, the result is never above f and is
    made non-decreasing downwards.
    Reference: this docstring.
    """
    values = np.asarray(semi_metric, dtype=np.float64)
    if (
        values.ndim != 1
        or not len(values)
        or not np.isfinite(values).all()
        or not values[0] > 0.0
        or (np.diff(values) < 0.0).any()
    ):
        raise InputError(
            "semi_metric must hold finite numbers > 0, one for each number of steps 1..k, "
            "that do not fall."
        )
    steps = np.arange(1.0, len(values) + 1.0)
    straight: Floats = np.minimum(steps * values[0], values[-1])
    if (values >= straight).all():
        return straight
    closed = np.concatenate(([0.0], values))
    for d in range(2, len(closed)):
        half = d // 2
        closed[d] = min(closed[d], float((closed[1 : half + 1] + closed[d - half : d][::-1]).min()))
    return make_nondecreasing(closed[1:])


def farthest_reaches(closed: Floats) -> tuple[float, Floats]:
    """Bounds on the reaches of any two points d = 1..k steps apart.

    The diameter bounds one of the two reaches, the returned vector the other. Let the points be i
    and i+d, with i <= (k-d)/2 (else count from the other end). Point i reaches k-i <= k steps far,
    and point i+d reaches max(i+d, k-i-d) <= max((k+d)/2, k-d) steps. For d <= k/3 the pair (0, d)
    attains both bounds.
    """
    k = len(closed)
    steps = np.arange(1, k + 1)
    return float(closed[-1]), closed[np.maximum(k - steps, (k + steps) // 2) - 1]
