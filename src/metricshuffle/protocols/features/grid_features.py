"""Features of the cells of a grid: boxes of several cells, hats over several cells, single cells.

The feature set of single cells (`Cells`) applies to every finite space, not only to grids.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import lru_cache
from typing import TYPE_CHECKING, ClassVar, Literal, Self

import numpy as np
from pydantic import model_validator

from metricshuffle.accounting.vectors.feature_changes import FeatureChanges
from metricshuffle.citations import theorem
from metricshuffle.errors import InputError
from metricshuffle.estimation.share_projection import simplex_projection
from metricshuffle.models import FrozenModel, Whole
from metricshuffle.numerics.rounding import round_up
from metricshuffle.numerics.types import Floats, Integers64
from metricshuffle.protocols.features.feature_set import (
    MAX_COORDINATES,
    MAX_ENTRIES,
    Blur,
    Features,
    most_expensive_move,
)
from metricshuffle.protocols.features.lattice import DISTANCE_TOLERANCE, Lattice
from metricshuffle.protocols.features.point_pairs import nearest_distance
from metricshuffle.protocols.features.readings import Readings
from metricshuffle.protocols.features.tree_features import Edges
from metricshuffle.queries.cell_query import MAX_LABELS
from metricshuffle.spaces import Grid, Space, ZonePairs, Zones

if TYPE_CHECKING:
    from scipy.sparse import csr_array

WIDEST_HAT = 32
"""Wider hats take long to certify and need more noise than they are worth."""
MANY_POINTS = 512
"""From this many points on, shares of evenly blurred cells are projected instead of fitted."""


class Cells(Features):
    """One indicator feature per point, for every finite space without points at distance 0."""

    kind: Literal["cells"] = "cells"
    # Counts of cells take one number each; noisy vectors have their own limit.
    most_coordinates: ClassVar[int] = MAX_LABELS

    @classmethod
    def offered(cls, space: Space, people: int, rate: float) -> Iterator[Self]:
        """Offered except for zones, lines and trees, for which there are better features."""
        size = space.domain.size
        lattice = Lattice.of(space)
        if (
            size is None
            or isinstance(space.domain, Zones | ZonePairs)
            or not 2 <= size <= MAX_COORDINATES
            or (lattice is not None and len(lattice.sides) == 1)
        ):
            return
        if lattice is None and (
            any(True for _ in Edges.offered(space, people, rate))
            or not nearest_distance(space) > 0.0
        ):
            return
        yield cls()

    def table(self, space: Space) -> csr_array:
        from scipy.sparse import csr_array

        size = space.domain.size
        if size is None or size < 2:
            raise InputError(
                "cells are for spaces of at least two points that can be counted, not for "
                f"{space.domain}."
            )
        self.check_room(size, size, "use a coarser space, or boxes of several cells on a grid")
        return csr_array(
            (np.ones(size, dtype=np.int64), np.arange(size), np.arange(size + 1)),
            shape=(size, size),
        )

    def weights(self, space: Space) -> Floats:
        return np.ones(self.table(space).shape[0])

    @theorem("metricshuffle", "slope of cells")
    def slope(self, space: Space, rates: Floats) -> float:
        """Certified upper bound on the loss per unit of distance (see `Features.slope`).

        Statement: at most the sum of the two largest rates over the smallest distance of two
        points, which is attained if all rates are equal: a move changes two features by one each,
        whatever its distance.
        Conditions: no two points at distance 0.
        """
        both = float(np.sort(self.validate_rates(space, rates))[-2:].sum())
        lattice = Lattice.of(space)
        if lattice is not None:
            return lattice.per_unit(both)
        nearest = nearest_distance(space)
        if not nearest > 0.0:
            raise InputError(
                f"two points of {space.domain} are at distance 0, where nothing may tell "
                "them apart; merge them."
            )
        return round_up(both / nearest, 8)

    def moves(self, space: Space, rates: Floats, distance: float) -> Iterator[FeatureChanges]:
        """Two features change by one, if any two points are within the distance."""
        checked = self.validate_rates(space, rates)
        lattice = Lattice.of(space)
        if (
            nearest_distance(space) <= distance * (1.0 + DISTANCE_TOLERANCE)
            if lattice is None
            else lattice.steps_within(distance) > 0
        ):
            yield most_expensive_move(checked, 2)

    def point_readings(self, space: Space) -> Readings | None:
        table = self.table(space).astype(np.float64)
        return Readings.of_points(np.zeros(table.shape[0]), table, np.arange(table.shape[0]))

    def shares(
        self, space: Space, means: Floats, errors: Floats, blur: Blur | None = None
    ) -> Floats:
        """The exact projection onto the simplex, if all errors are equal.

        A fit stops near the projection: if one mean changes a little, its result may jump from
        equal shares to nearly the projection, and one report would count more than its weight.
        """
        evenly = (0.0, 1.0) if blur is None else _evenly_blurred(blur)
        if evenly is None or np.any(errors != errors[0]):
            return super().shares(space, means, errors, blur)
        elsewhere, more = evenly
        unblurred = (np.asarray(means, dtype=np.float64) - elsewhere) / more
        return np.apply_along_axis(simplex_projection, -1, unblurred)


def _evenly_blurred(blur: Blur) -> tuple[float, float] | None:
    """Chance of each other point, and additional chance of the own point, if all are alike.

    None for other laws, and for few points, for which a fit is fast and as near. With a law of this
    kind, as of randomized response, cells have the mean `elsewhere` + `more` * share, so with equal
    errors the nearest shares are a projection, too.
    """
    law = blur[0]
    if len(blur) != 1 or law.shape[0] < MANY_POINTS:
        return None
    own = float(law[0, 0])
    elsewhere = float(law[0, 1])
    others = np.count_nonzero(law == elsewhere) == law.size - len(law)
    if not (others and np.all(np.diagonal(law) == own) and own > elsewhere):
        return None
    return elsewhere, own - elsewhere


class ShiftedBoxes(Features):
    """The box of a cell in each of `width` tilings of a grid by boxes of width x width cells.

    Each tiling is shifted one cell down and to the left of the previous one. With several cells in
    a box there are fewer boxes than cells, so single cells are not identified, only approximate
    places.
    """

    kind: Literal["shifted-boxes"] = "shifted-boxes"
    width: Whole

    def __init__(self, width: int, **fields: object) -> None:
        FrozenModel.__init__(self, width=width, **fields)

    @model_validator(mode="after")
    def _is_wide(self) -> Self:
        if self.width < 1:
            raise ValueError(f"width must be at least 1 cell, got {self.width}")
        return self

    @classmethod
    def offered(cls, space: Space, people: int, rate: float) -> Iterator[Self]:
        """Width 3 side/(people * rate * side)^(1/4), then up to two narrower or wider ones.

        None of the offered widths is larger than a third of the grid; for single cells see `Cells`.
        The side of a grid that is not square is the geometric mean of both sides. The constants
        were found by simulation.
        """
        lattice = Lattice.of(space)
        if lattice is None or len(lattice.sides) < 2:
            return
        widest = max(1, min(lattice.sides) // 3)
        total = max(people * rate * lattice.side * lattice.step, 1e-12)
        likeliest = min(max(1, round(3.0 * lattice.side / total**0.25)), widest)
        tried = dict.fromkeys(round(likeliest * part) for part in (1.0, 2 / 3, 3 / 2, 1 / 2))
        for width in [
            width for width in tried if 2 <= width <= widest and cls(width)._fits(lattice.sides)
        ][:3]:
            yield cls(width)

    def _coordinates(self, sides: tuple[int, ...]) -> int:
        """Total number of boxes, except those of tilings with only one box."""
        if self.width > max(sides):
            raise InputError(
                f"boxes {self.width:,} cells wide hold all of {sides[0]:,} x {sides[1]:,} "
                "cells; use narrower ones."
            )
        boxes = [
            math.prod((side - 1 + shift) // self.width - shift // self.width + 1 for side in sides)
            for shift in range(self.width)
        ]
        return sum(count for count in boxes if count > 1)

    def _fits(self, sides: tuple[int, ...]) -> bool:
        return (
            self._coordinates(sides) <= MAX_COORDINATES
            and self.width * math.prod(sides) <= MAX_ENTRIES
        )

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
            else next(
                (
                    width
                    for width in range(self.width + 1, min(sides))
                    if type(self)(width)._fits(sides)
                ),
                None,
            )
        )
        remedy = (
            "use a coarser grid" if fitting is None else f"boxes {fitting:,} cells wide would fit"
        )
        self.check_room(self._coordinates(sides), self.width * math.prod(sides), remedy)
        cells = grid.all_values()
        first = 0
        columns = []
        for shift in range(self.width):
            across, up = ((cells[:, axis] + shift) // self.width for axis in range(2))
            across_boxes, up_boxes = (int(boxes.max()) + 1 for boxes in (across, up))
            if across_boxes * up_boxes > 1:
                columns.append(first + up * across_boxes + across)
                first += across_boxes * up_boxes
        if not columns:
            raise InputError(
                f"boxes {self.width:,} cells wide hold all of {space.domain}; use narrower ones."
            )
        listed = np.stack(columns, axis=1)
        return csr_array(
            (
                np.ones(listed.size, dtype=np.int64),
                listed.ravel(),
                np.arange(0, listed.size + 1, len(columns)),
            ),
            shape=(len(cells), first),
        )

    @theorem("metricshuffle", "slope of shifted boxes")
    def slope(self, space: Space, rates: Floats) -> float:
        """Certified upper bound on the loss per unit of distance (see `Features.slope`).

        Statement: for distances along the axes (Manhattan), the loss is at most twice the largest
        rate over the side of a cell. For straight-line distances (Euclidean) it is at most sqrt(2)
        times that, or the same without the factor if the width is 1. The bound is attained if all
        rates are equal.
        Proof: number the cells of an axis by i and the tilings by s = 0 .. width-1. The borders of
        tiling s lie before the cells i with (i + s) mod width = 0, so a step along an axis crosses
        a border of exactly one tiling. A move of a steps along one axis and b steps along the other
        changes the box in at most min(a + b, width) tilings, and in each of these tilings it
        changes two features by one. With distances along the axes, a + b is the distance in cells.
        With straight-line distances, a + b <= sqrt(2) times the distance; and if the width is 1,
        the only tiling changes at most once for a distance of at least one. QED Any other metric on
        a grid is certified over all pairs of cells.
        Numerics: rounded up, also for the amount by which floating-point distances fall short.
        """
        lattice = Lattice.of(space)
        if lattice is None:
            return super().slope(space, rates)
        largest = float(self.validate_rates(space, rates).max())
        # In 2 x 2 cells the two steps of a diagonal cross borders of the same tiling.
        diagonal = (
            lattice.straight
            and self.width > 1
            and min(lattice.sides) > 1
            and max(lattice.sides) > 2
        )
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
        """The cells themselves if the width is 1; None otherwise."""
        return self.nearby(space) if self.width == 1 else None

    def nearby(self, space: Space) -> Readings:
        """For every cell, the mean over all tilings of the share of the box that contains the cell.

        A tiling with only one box counts everyone.
        Statement: people in another cell count with the fraction of the tilings in which both cells
        share a box. `bounds` are the single boxes that contain the cell: each contains everyone who
        is in the cell.
        """
        table = self.table(space)
        # The number of tilings with several boxes, which is the same at every cell.
        tilings = int(table.indptr[1])
        constants = np.full(table.shape[0], (self.width - tilings) / self.width)
        return Readings.of_points(
            constants, table.multiply(1.0 / self.width).tocsr(), np.arange(table.shape[0])
        )


class Hats(Features):
    """Tents (width - |i - a|)_+ (width - |j - b|)_+ above every width-th cell (a, b).

    (i, j) is the column and row of the person's cell. Each tent has values from 0 to width^2, and
    at every cell the tents sum to width^2. They are for people who are known to be distributed
    smoothly; for distributions with spikes the error is up to twenty times as large, so hats are
    never offered.
    """

    kind: Literal["hats"] = "hats"
    width: Whole

    def __init__(self, width: int, **fields: object) -> None:
        FrozenModel.__init__(self, width=width, **fields)

    @model_validator(mode="after")
    def _is_wide(self) -> Self:
        if not 1 <= self.width <= WIDEST_HAT:
            raise ValueError(f"width must be from 1 to {WIDEST_HAT} cells, got {self.width}")
        return self

    @classmethod
    def offered(cls, space: Space, people: int, rate: float) -> Iterator[Self]:
        """Yield nothing (see the class)."""
        yield from ()

    def table(self, space: Space) -> csr_array:
        from scipy.sparse import csr_array, kron

        grid = _grid(self, space)
        nodes = [-(-(side - 1) // self.width) + 1 for side in (grid.width, grid.height)]
        self.check_room(
            math.prod(nodes), 4 * grid.width * grid.height, "use wider hats, or a coarser grid"
        )
        across, up = (csr_array(_tents(side, self.width)) for side in (grid.width, grid.height))
        return csr_array(kron(up, across, format="csr")).astype(np.int64)

    @theorem("metricshuffle", "slope of hats")
    def slope(self, space: Space, rates: Floats) -> float:
        """Certified upper bound on the loss per unit of distance (see `Features.slope`).

        Statement: the loss is at most the largest rate times the largest sum of absolute feature
        changes per side of a cell. For distances along the axes that sum is 2 width. For
        straight-line distances it is the result of a search over all short moves, which is sqrt(2)
        (2 width - 1) for every width from 2 to 32.
        Proof: the features of a cell sum to width^2, so no move changes them by more than 2 width^2
        in sum, and a move of at least width cells changes them by no more than 2 width per cell; a
        single step attains 2 width. A shorter move changes the features by the same amounts if both
        of its ends are shifted by width cells along an axis, so finitely many short moves represent
        all, and the search tries all of these. QED
        Conditions: the largest rate is used for all features. Any other metric on a grid is
        certified over all pairs of cells.
        """
        lattice = Lattice.of(space)
        if lattice is None:
            return super().slope(space, rates)
        largest = float(self.validate_rates(space, rates).max())
        return lattice.per_unit(round_up(largest * _hat_slope(self.width, lattice.straight), 8))

    def point_readings(self, space: Space) -> Readings | None:
        """The cells themselves if the width is 1; None otherwise."""
        return self.nearby(space) if self.width == 1 else None

    def nearby(self, space: Space) -> Readings:
        """For every cell, the tent that is highest there; people count by its height at their cell.

        The height is 1 at its top.
        """
        from scipy.sparse import csr_array

        table = self.table(space)
        tents = self.table(space).shape[1]
        highest = np.asarray(table.argmax(axis=1), dtype=np.int64).ravel()
        heights = csr_array(
            (np.full(tents, 1.0 / self.width**2), np.arange(tents), np.arange(tents + 1)),
            shape=(tents, tents),
        )
        return Readings.of_points(np.zeros(tents), heights, highest)


def _tents(side: int, width: int) -> Integers64:
    """Tents over each cell of one axis, one row per cell."""
    middles = np.arange(0, side - 1 + width, width)
    return np.asarray(
        np.maximum(width - np.abs(np.subtract.outer(np.arange(side), middles)), 0), dtype=np.int64
    )


@lru_cache(maxsize=64)
def _hat_slope(width: int, straight: bool) -> float:
    """Largest change per step over all moves of less than `width` steps; at least 2 width.

    The moves start from all cells modulo the width.
    """
    largest = 2.0 * width
    tents = _tents(2 * width + 1, width)  # a cell, and the reach of a move to the right
    for across in range(width):
        for up in range(-width + 1, width):
            length = math.hypot(across, up) if straight else across + abs(up)
            if not 0.0 < length < width:
                continue
            rows = np.arange(width) + max(0, -up)
            moved = np.arange(width) + max(0, up)
            before = tents[:width]
            after = tents[across : across + width]
            low = tents[rows]
            high = tents[moved]
            changes = np.einsum("ia,jb->ijab", before, low) - np.einsum("ia,jb->ijab", after, high)
            largest = max(largest, float(np.abs(changes).sum(axis=(2, 3)).max()) / length)
    return largest


def _grid(features: Features, space: Space) -> Grid:
    if not isinstance(space.domain, Grid):
        raise InputError(
            f"the features {features.kind} are for the cells of a Grid, not for {space.domain}."
        )
    return space.domain
