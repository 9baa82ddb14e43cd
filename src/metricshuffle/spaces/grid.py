"""Domain of square cells in a plane or on a map."""

from __future__ import annotations

import math
from typing import ClassVar, Literal, Self

import numpy as np
from pydantic import model_validator

from metricshuffle.errors import InputError, argument, owner
from metricshuffle.models import LARGEST_WHOLE, FrozenModel, Positive, Whole, format_value
from metricshuffle.numerics.types import Floats, Integers64
from metricshuffle.spaces.array_input import (
    Source,
    as_floats,
    as_source,
    clip_finite,
    raise_domain_error,
)
from metricshuffle.spaces.domains import CLAMP_REMEDY, Domain, not_whole
from metricshuffle.spaces.geographic_box import Box

METRES = {"m": 1.0, "km": 1000.0}


class Grid(Domain):
    """Grid of width x height square cells, each `cell` units wide.

    A value is (column, row), with (0, 0) at the left bottom. Places snapped to cells are protected
    as cells: two places closer than one cell can fall into cells that are one diagonal apart. With
    a `box`, the cells lie on a map.
    """

    points_are: ClassVar[str] = "plane"
    kind: Literal["grid"] = "grid"
    width: Whole
    height: Whole
    cell: Positive = 1.0
    unit: str = ""
    box: Box | None = None

    def __init__(
        self,
        width: int,
        height: int,
        cell: float = 1.0,
        unit: str = "",
        box: object = None,
        **fields: object,
    ) -> None:
        FrozenModel.__init__(
            self, width=width, height=height, cell=cell, unit=unit, box=box, **fields
        )

    @model_validator(mode="after")
    def _has_room(self) -> Self:
        for name, count in (("width", self.width), ("height", self.height)):
            if count < 1:
                raise InputError(f"{argument(name)} must be at least 1 cell, got {count}")
            if not math.isfinite(2.0 * count * self.cell):
                raise InputError(
                    f"{argument(name)} * {argument('cell')} must be finite, got {count} * "
                    f"{self.cell!r}"
                )
        if self.box is not None and self.unit not in METRES:
            raise InputError(
                f"{argument('unit')} must be 'm' or 'km' on a map, got {format_value(self.unit)}"
            )
        return self

    @classmethod
    def from_box(
        cls, south: float, west: float, north: float, east: float, cell: float, unit: str = "m"
    ) -> Self:
        """Grid over a box of latitudes and longitudes in degrees; `cell` is in `unit`, "m" or "km".

        The box is projected about its centre (see `Box` for the distortion) and must not be longer
        than 500 km. Needs the extra `geo`.
        """
        cls(1, 1, cell, unit)  # reports an invalid cell before anything is projected
        box = Box(south, west, north, east)
        if unit not in METRES:
            raise InputError(
                f"{owner('Grid')}{argument('unit')} must be 'm' or 'km' on a map, got "
                f"{format_value(unit)}."
            )
        width, height = _cells_across(box, cell * METRES[unit])
        return cls(width, height, cell, unit, box)

    def __str__(self) -> str:
        over = "" if self.box is None else f" over {self.box}"
        return (
            f"the grid of {self.width:,} x {self.height:,} cells of {self.cell:,g} "
            f"{self.unit}".rstrip()
            + over
        )

    def _inside(self, source: Source, numbers: Floats) -> Integers64:
        last = (self.width - 1, self.height - 1)

        def reason(row: int) -> str:
            if not_whole(numbers[row]).any():
                return "is not a pair of whole numbers"
            return f"is not a column from 0 to {last[0]:,} and a row from 0 to {last[1]:,}"

        raise_domain_error(
            source,
            ~((numbers >= 0) & (numbers <= last)) | not_whole(numbers),
            str(self),
            reason,
            CLAMP_REMEDY,
        )
        return numbers.astype(np.int64)

    def validated(self, values: object) -> Integers64:
        source = as_source(values, 2)
        return self._inside(source, as_floats(source))

    def clamped(self, values: object) -> Integers64:
        source = as_source(values, 2)
        return self._inside(source, clip_finite(source, (0, 0), (self.width - 1, self.height - 1)))

    def cells(self, points: object, *, clamp: bool = False) -> Integers64:
        """Cells of (x, y) points in units, 0 <= x <= width * cell.

        Points outside raise DomainError unless clamped. A point on an edge belongs to the cell to
        the right or above; on the far edge of the grid, to the last cell.
        """
        source = as_source(points, 2)
        extent = (self.width * self.cell, self.height * self.cell)
        numbers = clip_finite(source, (0.0, 0.0), extent) if clamp else as_floats(source)
        raise_domain_error(
            source,
            ~((numbers >= 0) & (numbers <= extent)),
            f"the plane of {self}",
            lambda _: f"is not within x from 0 to {extent[0]:g} and y from 0 to {extent[1]:g}",
            "Correct the rows, or pass clamp=True to move points to the nearest cell.",
        )
        return self._snapped(numbers / self.cell)

    def _snapped(self, in_cells: Floats) -> Integers64:
        snapped: Integers64 = np.clip(
            np.floor(in_cells), 0, (self.width - 1, self.height - 1)
        ).astype(np.int64)
        return snapped

    def centres(self, cells: object) -> Floats:
        """Centres of cells as (x, y) in units."""
        return (self.validated(cells).astype(np.float64) + 0.5) * self.cell

    def cells_at(self, latitudes: object, longitudes: object, *, clamp: bool = False) -> Integers64:
        """Cells of places in degrees.

        Places outside the box raise DomainError unless clamped to it.
        """
        box = self._map()
        # Edges are measured to within a few millimetres, by which a place on the edge may fall
        # outside: it snaps to the edge.
        return self._snapped(
            box.plane(latitudes, longitudes, clamp=clamp) / (self.cell * METRES[self.unit])
        )

    def places(self, cells: object) -> tuple[Floats, Floats]:
        """Centres of cells as latitudes and longitudes in degrees.

        The centre of a corner cell may lie just outside the box.
        """
        return self.degrees(self.centres(cells))

    def degrees(self, points: object) -> tuple[Floats, Floats]:
        """Latitudes and longitudes in degrees of (x, y) in units from the left bottom corner.

        Longitudes continue beyond 180 (or -180) where the grid or an interval crosses the
        antimeridian, so that close places have close coordinates.
        """
        box = self._map()
        latitudes, longitudes = box.places(
            np.asarray(points, dtype=np.float64).reshape(-1, 2) * METRES[self.unit]
        )
        middle = (box.west + box.east) / 2.0
        across = np.where(
            longitudes - middle > 180.0, -360.0, np.where(longitudes - middle < -180.0, 360.0, 0.0)
        )
        return latitudes, longitudes + across

    def _map(self) -> Box:
        if self.box is None:
            raise InputError(
                "this Grid is not on a map; make it with Grid.from_box(south, west, north, "
                "east, cell)."
            )
        across = _cells_across(self.box, self.cell * METRES[self.unit])
        if across != (self.width, self.height):
            raise InputError(
                f"{owner('Grid')}{argument('width')} and {argument('height')} must fit the box, "
                f"which takes {across[0]:,} x {across[1]:,} cells, "
                f"got {self.width:,} x {self.height:,}; make the grid with Grid.from_box."
            )
        return self.box

    def points(self, validated: Integers64 | Floats) -> Integers64 | Floats:
        return validated.astype(np.float64) * self.cell

    def extremes(self) -> Integers64:
        right = self.width - 1
        top = self.height - 1
        return np.array([(0, 0), (right, 0), (0, top), (right, top)], dtype=np.int64)

    @property
    def size(self) -> int | None:
        return self.width * self.height

    def all_values(self) -> Integers64:
        return (
            np.stack(np.meshgrid(np.arange(self.width), np.arange(self.height)), axis=-1)
            .reshape(-1, 2)
            .astype(np.int64)
        )


def _cells_across(box: Box, cell: float) -> tuple[int, int]:
    left, bottom, right, top = box.extent
    # The slack keeps a box of exactly ten cells from getting an eleventh by rounding.
    if not max(right - left, top - bottom) < LARGEST_WHOLE * cell:
        raise InputError(
            f"{owner('Grid')}{argument('cell')} must be larger, got {cell!r} metres, which "
            "makes more cells than can be counted."
        )
    return max(1, math.ceil((right - left) / cell - 1e-6)), max(
        1, math.ceil((top - bottom) / cell - 1e-6)
    )
