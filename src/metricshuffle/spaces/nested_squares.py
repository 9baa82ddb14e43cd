"""Metric of nested squares on a grid: distances along a tree that covers the plane."""

from __future__ import annotations

import math
from typing import Literal, Self

import numpy as np
from pydantic import model_validator

from metricshuffle.errors import InputError, argument
from metricshuffle.models import FrozenModel, Positive, Whole
from metricshuffle.numerics.types import Floats, Integers64
from metricshuffle.spaces.array_input import finite_points
from metricshuffle.spaces.geographic_box import Box
from metricshuffle.spaces.grid import METRES, Grid
from metricshuffle.spaces.metrics import Metric, representable
from metricshuffle.spaces.space import Space
from metricshuffle.spaces.tree import Tree

MAX_LEVELS = 12


class NestedSquares(Metric):
    """Nested squares on a grid of up to 2^levels x 2^levels cells.

    Four cells make a square, four squares a larger one, up to one square around all. The distance
    of two cells is the diagonal of the smallest nested square that contains both.
    Statement: (1) the distance is an ultrametric, and equals the distance along `tree_of`; (2) it
    is at least the Euclidean distance of any two places in the two cells, including their centres,
    and above sqrt(2) `cell` for different cells; (3) it is not a multiple of the Euclidean
    distance: neighbouring cells on the two sides of a line between large squares are as far apart
    as the corners of the square around both, and so are protected less.
    """

    kind: Literal["nested-squares"] = "nested-squares"
    levels: Whole
    cell: Positive

    def __init__(self, levels: int, cell: float = 1.0, **fields: object) -> None:
        FrozenModel.__init__(self, levels=levels, cell=cell, **fields)

    @model_validator(mode="after")
    def _can_be_drawn(self) -> Self:
        if not 1 <= self.levels <= MAX_LEVELS:
            raise InputError(
                f"{argument('levels')} must be a whole number from 1 to {MAX_LEVELS}, got "
                f"{self.levels}"
            )
        if not math.isfinite(self.diagonal(self.levels)):
            raise InputError(f"{argument('cell')} must be smaller, got {self.cell!r}")
        return self

    @property
    def measures(self) -> frozenset[str]:
        return frozenset({"plane"})

    def unit_of(self, unit: str) -> str:
        return unit

    def diagonal(self, level: int) -> float:
        """Diagonal of a square of 2^level x 2^level cells."""
        return self.cell * 2.0**level * math.sqrt(2.0)

    def _indices(self, points: object) -> Integers64:
        array = finite_points(points, 2)
        cells = np.rint(array / self.cell)
        invalid = (
            np.abs(cells * self.cell - array) > 1e-9 * self.cell * np.maximum(1.0, cells)
        ) | ~((cells >= 0) & (cells < 2**self.levels))
        if invalid.any():
            bad_point = array[int(np.argmax(invalid.any(axis=1)))].tolist()
            raise InputError(
                f"{bad_point} is not a corner of one of 2^{self.levels} x 2^{self.levels} "
                f"cells of {self.cell!r}: use such a Grid."
            )
        return cells.astype(np.int64)

    def pairwise(self, points_a: object, points_b: object) -> Floats:
        a = self._indices(points_a)
        b = self._indices(points_b)
        differing = np.bitwise_or.reduce(
            [np.bitwise_xor.outer(a[:, axis], b[:, axis]) for axis in (0, 1)]
        )
        # Number of bits up to the highest that differs; 0 if none does.
        level = np.frexp(differing.astype(np.float64))[1]
        return representable(
            np.where(differing == 0, 0.0, np.ldexp(self.cell * math.sqrt(2.0), level))
        )

    def tree_of(self, grid: Grid) -> Tree:
        """Tree of a grid: first the width * height cells, row by row, then the squares.

        A cell lies half the diagonal of its square below that square; a square lies half the
        difference of both diagonals below the next larger one.
        """
        here = self._indices(grid.points(grid.all_values()))
        parents = []
        lengths = []
        first = 0
        for level in range(self.levels):
            above, place = np.unique(here // 2, axis=0, return_inverse=True)
            first += len(here)
            parents.append(first + place.ravel())
            lengths.append(
                np.full(
                    len(here),
                    0.5 * (self.diagonal(level + 1) - (self.diagonal(level) if level else 0.0)),
                )
            )
            here = above
        return Tree(np.concatenate([*parents, [-1]]), np.concatenate([*lengths, [0.0]]))


def nested_squares(levels: int, side: float, unit: str = "") -> Space:
    """Space of 4^levels cells that fill the square 0..side x 0..side."""
    if isinstance(side, bool) or not (isinstance(side, int | float) and 1e-290 < side < 1e290):
        raise InputError(f"{argument('side')} must be a number > 0 of ordinary size, got {side!r}.")
    metric = NestedSquares(levels, side / 2.0 ** min(levels, MAX_LEVELS))
    return Space(Grid(2**levels, 2**levels, metric.cell, unit), metric)


def nested_squares_on_map(levels: int, box: Box, unit: str = "m") -> Space:
    """Space of cells over a box of degrees, 2^levels along its longer side (extra `geo`)."""
    if unit not in METRES:
        raise InputError(f"{argument('unit')} must be 'm' or 'km' on a map, got {unit!r}.")
    left, bottom, right, top = box.extent
    metric = NestedSquares(
        levels, max(right - left, top - bottom) / METRES[unit] / 2.0 ** min(levels, MAX_LEVELS)
    )
    return Space(Grid.from_box(box.south, box.west, box.north, box.east, metric.cell, unit), metric)
