"""Features of the cells of a grid: boxes and hats that cover several cells, and single cells, which are for every finite space."""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Literal, Self

import numpy as np
from pydantic import model_validator

from metricshuffle.accounting.vectors.feature_changes import FeatureChanges
from metricshuffle.citations import theorem
from metricshuffle.errors import InputError
from metricshuffle.models import FrozenModel, Whole
from metricshuffle.numerics.rounding import round_up
from metricshuffle.numerics.types import Floats, Integers64
from metricshuffle.protocols.features.feature_set import MAX_COORDINATES, MAX_ENTRIES, Features, most_expensive_move
from metricshuffle.protocols.features.lattice import DISTANCE_TOLERANCE, Lattice
from metricshuffle.protocols.features.point_pairs import nearest_distance
from metricshuffle.protocols.features.readings import Readings
from metricshuffle.protocols.features.tree_features import Edges
from metricshuffle.spaces import Discrete, Grid, Space

if TYPE_CHECKING:
    from scipy.sparse import csr_array

WIDEST_HAT = 32
"""Wider hats take long to certify, and more noise than any of them is worth."""


class Cells(Features):
    """One feature for each point: whether it is this one. For every finite space whose points are apart."""

    kind: Literal["cells"] = "cells"

    @classmethod
    def offered(cls, space: Space, people: int, rate: float) -> Iterator[Self]:
        """Where there is neither a line, whose ramps are better, nor a tree whose edges fit."""
        size, lattice = space.domain.size, Lattice.of(space)
        if size is None or not 2 <= size <= MAX_COORDINATES or (lattice is not None and len(lattice.sides) == 1):
            return
        if lattice is None and (any(True for _ in Edges.offered(space, people, rate)) or not nearest_distance(space) > 0.0):
            return
        yield cls()

    def table(self, space: Space) -> csr_array:
        from scipy.sparse import csr_array

        size = space.domain.size
        if size is None or size < 2:
            raise InputError(f"cells are for spaces of at least two points that can be counted, not for {space.domain}.")
        self.check_room(size, size, "use a coarser space, or boxes of several cells on a grid")
        return csr_array((np.ones(size, dtype=np.int64), np.arange(size), np.arange(size + 1)), shape=(size, size))

    def weights(self, space: Space) -> Floats:
        return np.ones(self.table(space).shape[0])

    @theorem("metricshuffle", "slope of cells")
    def slope(self, space: Space, rates: Floats) -> float:
        """Statement: at most the sum of the two largest rates over the smallest distance of two points, which is attained if all rates
        are one: a move changes two features by one each, whatever its distance. Conditions: no two points at distance 0.
        """
        both = float(np.sort(self.validate_rates(space, rates))[-2:].sum())
        lattice = Lattice.of(space)
        if lattice is not None:
            return lattice.per_unit(both)
        nearest = 1.0 if type(space.metric).pairwise is Discrete.pairwise else nearest_distance(space)
        if not nearest > 0.0:
            raise InputError(f"two points of {space.domain} are at distance 0, where nothing may tell them apart; merge them.")
        return round_up(both / nearest, 8)

    def moves(self, space: Space, rates: Floats, distance: float) -> Iterator[FeatureChanges]:
        """Two features by one, wherever two points are within the distance."""
        checked, lattice = self.validate_rates(space, rates), Lattice.of(space)
        if nearest_distance(space) <= distance * (1.0 + DISTANCE_TOLERANCE) if lattice is None else lattice.steps_within(distance) > 0:
            yield most_expensive_move(checked, 2)

    def point_readings(self, space: Space) -> Readings | None:
        table = self.table(space).astype(np.float64)
        return Readings.of_points(np.zeros(table.shape[0]), table, np.arange(table.shape[0]))


class ShiftedBoxes(Features):
    """`width` ways to cut a grid into boxes of width x width cells, each one cell down and to the left of the last: which box, in each.

    With several cells in a box there are fewer boxes than cells, so that single cells are not told apart; where people are is.
    """

    kind: Literal["shifted-boxes"] = "shifted-boxes"
    width: Whole

    def __init__(self, width: int, **fields: Any) -> None:
        FrozenModel.__init__(self, width=width, **fields)

    @model_validator(mode="after")
    def _is_wide(self) -> Self:
        if self.width < 1:
            raise ValueError(f"width must be at least 1 cell, got {self.width}")
        return self

    @classmethod
    def offered(cls, space: Space, people: int, rate: float) -> Iterator[Self]:
        """Width 3 side/(people * rate * side)^(1/4), then two narrower or wider ones, none wider than a third of the grid; for single
        cells see `Cells`. The side of a grid that is not square is the geometric mean of both.

        The constants were found by simulation.
        """
        lattice = Lattice.of(space)
        if lattice is None or len(lattice.sides) < 2:
            return
        widest = max(1, min(lattice.sides) // 3)
        total = max(people * rate * lattice.side * lattice.step, 1e-12)
        likeliest = min(max(1, round(3.0 * lattice.side / total**0.25)), widest)
        tried = dict.fromkeys(round(likeliest * part) for part in (1.0, 2 / 3, 3 / 2, 1 / 2))
        for width in [width for width in tried if 2 <= width <= widest and cls(width)._fits(lattice.sides)][:3]:
            yield cls(width)

    def _coordinates(self, sides: tuple[int, ...]) -> int:
        """How many boxes there are in all, without a way that has only one."""
        if self.width > max(sides):
            raise InputError(f"boxes {self.width:,} cells wide hold all of {sides[0]:,} x {sides[1]:,} cells; use narrower ones.")
        boxes = [math.prod((side - 1 + shift) // self.width - shift // self.width + 1 for side in sides) for shift in range(self.width)]
        return sum(count for count in boxes if count > 1)

    def _fits(self, sides: tuple[int, ...]) -> bool:
        return self._coordinates(sides) <= MAX_COORDINATES and self.width * math.prod(sides) <= MAX_ENTRIES

    def weights(self, space: Space) -> Floats:
        grid = _grid(self, space)
        return np.ones(self._coordinates((grid.width, grid.height)))

    def table(self, space: Space) -> csr_array:
        from scipy.sparse import csr_array

        grid = _grid(self, space)
        sides = (grid.width, grid.height)
        fitting = (
            None
            if self._fits(sides)
            else next((width for width in range(self.width + 1, min(sides)) if type(self)(width)._fits(sides)), None)
        )
        remedy = "use a coarser grid" if fitting is None else f"boxes {fitting:,} cells wide would fit"
        self.check_room(self._coordinates(sides), self.width * math.prod(sides), remedy)
        cells = grid.all_values()
        first, columns = 0, []
        for shift in range(self.width):
            across, up = ((cells[:, axis] + shift) // self.width for axis in range(2))
            across_boxes, up_boxes = (int(boxes.max()) + 1 for boxes in (across, up))
            if across_boxes * up_boxes > 1:
                columns.append(first + up * across_boxes + across)
                first += across_boxes * up_boxes
        if not columns:
            raise InputError(f"boxes {self.width:,} cells wide hold all of {space.domain}; use narrower ones.")
        listed = np.stack(columns, axis=1)
        return csr_array(
            (np.ones(listed.size, dtype=np.int64), listed.ravel(), np.arange(0, listed.size + 1, len(columns))), shape=(len(cells), first)
        )

    @theorem("metricshuffle", "slope of shifted boxes")
    def slope(self, space: Space, rates: Floats) -> float:
        """Statement: at most twice the largest rate over the side of a cell where distances are those along the axes (Manhattan), and
        sqrt(2) times that for straight lines (Euclidean), or the same if the width is 1; attained if all rates are one.

        Proof: borders of way s lie before the cells i with (i + s) mod width = 0, so a step along an axis crosses a border of exactly one
        way. A move of a steps along one axis and b along the other changes the box in at most min(a + b, width) ways, and in each of
        these two features by one. Along the axes a + b is the distance, in cells; straight, a + b <= sqrt(2) times the distance, and
        a single way changes at most once for a distance of at least one. QED
        Any other metric on a grid is certified over all pairs of cells.
        Numerics: rounded up, also for what distances in floating point fall short by.
        """
        lattice = Lattice.of(space)
        if lattice is None:
            return super().slope(space, rates)
        largest = float(self.validate_rates(space, rates).max())
        # In 2 x 2 cells the two steps of a diagonal cross borders of the same way.
        diagonal = lattice.straight and self.width > 1 and min(lattice.sides) > 1 and max(lattice.sides) > 2
        return lattice.per_unit(2.0 * largest * (math.sqrt(2.0) if diagonal else 1.0))

    def moves(self, space: Space, rates: Floats, distance: float) -> Iterator[FeatureChanges]:
        lattice = Lattice.of(space)
        if lattice is None:
            yield from super().moves(space, rates, distance)
            return
        ways = min(self.width, lattice.steps_within(distance))
        if ways:
            yield most_expensive_move(self.validate_rates(space, rates), 2 * ways)

    def point_readings(self, space: Space) -> Readings | None:
        """The cells themselves, if the width is 1; otherwise there is none."""
        return self.nearby(space) if self.width == 1 else None

    def nearby(self, space: Space) -> Readings:
        """For every cell the mean share of the boxes that it lies in, over all ways to cut; a way with one box counts everybody.

        Statement: people in another cell count with the part of the ways in which both cells share a box. `bounds` are the single boxes:
        each holds everybody who is in the cell.
        """
        table = self.table(space)
        tilings = int(table.indptr[1])  # ways that have several boxes, the same number at every cell
        constants = np.full(table.shape[0], (self.width - tilings) / self.width)
        return Readings.of_points(constants, table.multiply(1.0 / self.width).tocsr(), np.arange(table.shape[0]))


class Hats(Features):
    """Tents (width - |i - a|)_+ (width - |j - b|)_+ above every width-th cell (a, b): 0 to width^2, width^2 in all at every cell.

    For people who are known to be spread smoothly; spikes cost up to twenty times as much, so they are never offered.
    """

    kind: Literal["hats"] = "hats"
    width: Whole

    def __init__(self, width: int, **fields: Any) -> None:
        FrozenModel.__init__(self, width=width, **fields)

    @model_validator(mode="after")
    def _is_wide(self) -> Self:
        if not 1 <= self.width <= WIDEST_HAT:
            raise ValueError(f"width must be from 1 to {WIDEST_HAT} cells, got {self.width}")
        return self

    @classmethod
    def offered(cls, space: Space, people: int, rate: float) -> Iterator[Self]:
        """Never: see above."""
        yield from ()

    def table(self, space: Space) -> csr_array:
        from scipy.sparse import csr_array, kron

        grid = _grid(self, space)
        nodes = [-(-(side - 1) // self.width) + 1 for side in (grid.width, grid.height)]
        self.check_room(math.prod(nodes), 4 * grid.width * grid.height, "use wider hats, or a coarser grid")
        across, up = (csr_array(_tents(side, self.width)) for side in (grid.width, grid.height))
        return csr_array(kron(up, across, format="csr")).astype(np.int64)

    @theorem("metricshuffle", "slope of hats")
    def slope(self, space: Space, rates: Floats) -> float:
        """Statement: the largest rate times what the features change by, in sum, per side of a cell: 2 width along the axes; for straight
        lines what a search over all short moves finds, sqrt(2) (2 width - 1) for every width from 2 to 32.

        Proof: the features of a cell sum to width^2, so that no move changes them by more than 2 width^2, and those of at least width
        cells by no more than 2 width for each; a step attains that. Shorter moves change the features of a cell as they do width cells
        farther along an axis, and all of these are tried. QED
        Conditions: the largest rate counts for all. Any other metric on a grid is certified over all pairs of cells.
        """
        lattice = Lattice.of(space)
        if lattice is None:
            return super().slope(space, rates)
        largest = float(self.validate_rates(space, rates).max())
        return lattice.per_unit(round_up(largest * _hat_slope(self.width, lattice.straight), 8))

    def point_readings(self, space: Space) -> Readings | None:
        """The cells themselves, if the width is 1; otherwise there is none."""
        return self.nearby(space) if self.width == 1 else None

    def nearby(self, space: Space) -> Readings:
        """For every cell the tent that is highest there: people count with its height, 1 in the middle."""
        from scipy.sparse import csr_array

        table, tents = self.table(space), self.table(space).shape[1]
        highest = np.asarray(table.argmax(axis=1), dtype=np.int64).ravel()
        heights = csr_array((np.full(tents, 1.0 / self.width**2), np.arange(tents), np.arange(tents + 1)), shape=(tents, tents))
        return Readings.of_points(np.zeros(tents), heights, highest)


def _tents(side: int, width: int) -> Integers64:
    """One axis: the tents over each cell, a row each."""
    middles = np.arange(0, side - 1 + width, width)
    return np.asarray(np.maximum(width - np.abs(np.subtract.outer(np.arange(side), middles)), 0), dtype=np.int64)


@lru_cache(maxsize=64)
def _hat_slope(width: int, straight: bool) -> float:
    """The largest change per step over all moves of less than `width` steps, from all cells modulo the width; at least 2 width."""
    largest = 2.0 * width
    tents = _tents(2 * width + 1, width)  # a cell, and how far a move can lead to the right
    for across in range(width):
        for up in range(-width + 1, width):
            length = math.hypot(across, up) if straight else across + abs(up)
            if not 0.0 < length < width:
                continue
            rows, moved = np.arange(width) + max(0, -up), np.arange(width) + max(0, up)
            before, after = tents[:width], tents[across : across + width]
            low, high = tents[rows], tents[moved]
            changes = np.einsum("ia,jb->ijab", before, low) - np.einsum("ia,jb->ijab", after, high)
            largest = max(largest, float(np.abs(changes).sum(axis=(2, 3)).max()) / length)
    return largest


def _grid(features: Features, space: Space) -> Grid:
    if not isinstance(space.domain, Grid):
        raise InputError(f"the features {features.kind} are for the cells of a Grid, not for {space.domain}.")
    return space.domain
