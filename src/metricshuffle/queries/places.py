"""The mean place of people on a grid, and how places on a map are told in degrees."""

from __future__ import annotations

import itertools
from fractions import Fraction
from typing import Any, Literal

import numpy as np

from metricshuffle.errors import InputError
from metricshuffle.estimation.inversion import IntervalMethod
from metricshuffle.queries.base import Answer, Estimate, Inputs, Pair
from metricshuffle.queries.sums import SummedQuery
from metricshuffle.spaces import Domain, Grid

# Along each edge of a rectangle whose latitudes and longitudes are looked for: edges are curved, by far less than this misses.
EDGE_POINTS = 9
STRAIGHT = "cells, in a straight line"
ALONG_AXES = "cells, along both axes"
"""What distances on a grid are measured between."""


def pair(values: Any) -> Pair:
    """Two numbers."""
    first, second = (float(value) for value in values)
    return first, second


def degrees_of(grid: Grid, plane: Answer) -> Answer:
    """A place on a map in degrees (latitude, longitude): its error along each, and the box of degrees around its interval.

    The interval is that of all points of the rectangle in the plane, so that it covers no less.
    """
    centre, error = np.array(plane.value, dtype=np.float64), np.array(plane.standard_error, dtype=np.float64)
    (west, east), (south, north) = (tuple(side) for side in np.array(plane.interval, dtype=np.float64))
    latitude, longitude = (float(part[0]) for part in grid.degrees(centre))
    beside = [grid.degrees(centre + np.array(shift) * error) for shift in ((0.0, 1.0), (1.0, 0.0))]
    edges = [np.linspace(*side, EDGE_POINTS) for side in ((west, east), (south, north))]
    around = np.array(list(itertools.product(*edges)))
    latitudes, longitudes = grid.degrees(around)
    return Answer(
        (latitude, longitude),
        (abs(float(beside[0][0][0]) - latitude), abs(float(beside[1][1][0]) - longitude)),
        ((float(latitudes.min()), float(latitudes.max())), (float(longitudes.min()), float(longitudes.max()))),
        plane,
    )


class Centroid(SummedQuery):
    """The mean place of people on a grid; both coordinates get independent noise and are accounted together."""

    kind: Literal["centroid"] = "centroid"

    def __init__(self, domain: Domain, **rest: Any) -> None:
        named = Domain.of_kind(domain)
        if not isinstance(named, Grid):
            raise InputError(f"Centroid needs a Grid, got {type(named).__name__}.")
        if min(named.width, named.height) < 2:
            size = f"{named.width} x {named.height}"
            raise InputError(f"a centroid needs at least 2 x 2 cells, got {size}; on one row ask for the mean of whole numbers.")
        super().__init__(domain=named, **rest)

    @property
    def grid(self) -> Grid:
        if not isinstance(self.domain, Grid):
            raise InputError(f"Centroid needs a Grid, got {type(self.domain).__name__}.")
        return self.domain

    @property
    def axes(self) -> int:
        return 2

    def between(self, step: float) -> str:
        return STRAIGHT

    def step(self, granularity: float) -> float:
        return self.grid.cell

    def grain(self, granularity: float) -> int:
        if granularity != 1:
            raise InputError(f"a centroid takes no granularity (got {granularity!r}); choose a larger cell instead.")
        return 1

    def spans(self, step: float) -> tuple[int, ...]:
        return (self.grid.width - 1, self.grid.height - 1)

    def inputs(self, values: Any, step: float, *, clamp: bool = False) -> Inputs:
        checked = self.domain.clamped(values) if clamp else self.domain.validated(values)
        return Inputs(self, np.asarray(checked, dtype=np.int64).reshape(-1, 2))

    def in_units(self, total: Fraction, axis: int, people: int, step: float) -> Fraction:
        return (total / people + Fraction(1, 2)) * Fraction(step)

    def error_scale(self, people: int, step: float) -> float:
        return step / people

    def answer(self, estimate: Estimate, level: float = 0.95, *, simultaneous: bool = False, method: IntervalMethod = "normal") -> Answer:
        low, high = estimate.interval(level, simultaneous=simultaneous, method=method)
        east, north = self.ends_of(estimate, low, high)
        error = estimate.standard_errors * self.error_scale(estimate.people, estimate.step)
        plane = Answer((east[0], north[0]), pair(error), (east[1:], north[1:]))
        return plane if self.grid.box is None else degrees_of(self.grid, plane)

    def remarks(self) -> list[str]:
        if self.grid.box is not None:
            return ["(latitude, longitude) in degrees; cells count at their middles."]
        return ["(east, north) from the south-west corner of the grid; cells count at their middles."]
