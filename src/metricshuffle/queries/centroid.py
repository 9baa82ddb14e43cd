"""The mean place of people, and the conversion of places on a map to degrees."""

from __future__ import annotations

import itertools
import math
from decimal import ROUND_FLOOR, Decimal
from fractions import Fraction
from typing import Any, Literal

import numpy as np

from metricshuffle.errors import InputError, argument
from metricshuffle.estimation.inversion import IntervalMethod
from metricshuffle.privacy.target import Target
from metricshuffle.queries.query import Answer, Estimate, Inputs, Pair
from metricshuffle.queries.summed_query import SummedQuery
from metricshuffle.spaces import Domain, Grid, Places
from metricshuffle.spaces.grid import METRES
from metricshuffle.spaces.places import POINTS_PER_DEGREE, metres_at

# Points along each edge of a rectangle whose latitudes and longitudes are computed; between them,
# the curvature of edges is negligible.
EDGE_POINTS = 9
STRAIGHT_LINE_TEXT = "cells, in a straight line"
ALONG_AXES_TEXT = "cells, along both axes"
"""How distances on a grid are measured."""
GROUND_TEXT = "true places, along the ground"
# For n people, a unit u of at most this fraction of (distance at which epsilon is 1) / sqrt(n) adds
# at most n u^2/4 to a variance of 4/rate^2, which is 1 %.
NEGLIGIBLE_UNIT = 0.4


def pair(values: Any) -> Pair:
    """Convert two values to a pair of floats."""
    first, second = (float(value) for value in values)
    return first, second


def degrees_of(grid: Grid, plane: Answer) -> Answer:
    """Convert a place on a map to degrees (latitude, longitude), with errors and a bounding box.

    The box encloses all points of the rectangle in the plane, so that it covers no less.
    """
    centre = np.array(plane.value, dtype=np.float64)
    error = np.array(plane.standard_error, dtype=np.float64)
    (west, east), (south, north) = (
        tuple(side) for side in np.array(plane.interval, dtype=np.float64)
    )
    latitude, longitude = (float(part[0]) for part in grid.degrees(centre))
    beside = [grid.degrees(centre + np.array(shift) * error) for shift in ((0.0, 1.0), (1.0, 0.0))]
    edges = [np.linspace(*side, EDGE_POINTS) for side in ((west, east), (south, north))]
    around = np.array(list(itertools.product(*edges)))
    latitudes, longitudes = grid.degrees(around)
    return Answer(
        (latitude, longitude),
        (abs(float(beside[0][0][0]) - latitude), abs(float(beside[1][1][0]) - longitude)),
        (
            (float(latitudes.min()), float(latitudes.max())),
            (float(longitudes.min()), float(longitudes.max())),
        ),
        plane,
    )


class Centroid(SummedQuery):
    """The mean place of people; both coordinates get independent noise and are accounted jointly.

    `Places`: the mean latitude and longitude. Places are rounded at random to units, so that the
    answer is unbiased and the guarantee is about metres on the ground. A `Grid` that is not on a
    map: cells count at their centres, and distances are between cells.
    """

    kind: Literal["centroid"] = "centroid"

    def __init__(self, domain: Domain, **fields: object) -> None:
        named = Domain.of_kind(domain)
        if not isinstance(named, Grid | Places):
            raise InputError(
                "Centroid needs Places(south, west, north, east) or a Grid, got "
                f"{type(named).__name__}.",
                field="domain",
            )
        if isinstance(named, Grid) and min(named.width, named.height) < 2:
            size = f"{named.width} x {named.height}"
            raise InputError(
                f"a centroid needs at least 2 x 2 cells, got {size}",
                field="width" if named.width < 2 else "height",
                remedy="on one row ask for the mean of whole numbers.",
            )
        super().__init__(domain=named, **fields)

    @property
    def places(self) -> Places | None:
        """The domain if it is `Places`; None if people are in the cells of a grid."""
        return self.domain if isinstance(self.domain, Places) else None

    @property
    def grid(self) -> Grid:
        """The domain if it is a `Grid`; InputError otherwise."""
        if not isinstance(self.domain, Grid):
            raise InputError(
                f"this centroid is about {self.domain} and has no cells.",
                field="domain",
                remedy="Ask for the centroid of a Grid.",
            )
        return self.domain

    @property
    def axes(self) -> int:
        return 2

    @property
    def diameter(self) -> float:
        return super().diameter if self.places is None else self.places.diameter

    def between(self, step: float) -> str:
        return STRAIGHT_LINE_TEXT if self.places is None else GROUND_TEXT

    def check_new(self) -> None:
        if self.places is None and self.grid.box is not None:
            raise InputError(
                "a centroid on a map is no longer planned over cells, whose middles are "
                "not where people are",
                field="domain",
                remedy="ask for Centroid(Places(south, west, north, east)), which needs none.",
            )

    @property
    def default_granularity(self) -> float:
        return 1.0 if self.places is None else self.places.largest_unit

    def step(self, granularity: float) -> float:
        return self.grid.cell if self.places is None else granularity

    def planned_step(self, target: Target, users: int, rounds: int, granularity: float) -> float:
        """For places, the unit to round to, which adds at most 1 % to the variance of the noise.

        It is `granularity` if that is smaller, but at least a sixteenth of what is needed, because
        a smaller unit only costs time.
        """
        if self.places is None:
            return self.step(granularity)
        fine = NEGLIGIBLE_UNIT * rounds * target.distance / (target.epsilon * math.sqrt(users))
        largest = min(max(min(fine, granularity), fine / 16.0), self.places.largest_unit)
        exact = Decimal(largest)
        # Two digits, for legibility.
        return float(exact.quantize(Decimal(1).scaleb(exact.adjusted() - 1), rounding=ROUND_FLOOR))

    def check_step(self, step: float) -> None:
        if self.places is None:
            super().check_step(step)

    def grain(self, granularity: float) -> int:
        if self.places is None and granularity != 1:
            raise InputError(
                f"a centroid takes no {argument('granularity')} (got {granularity!r})",
                remedy=f"choose a larger {argument('cell')} instead.",
            )
        return 1

    def grains(self, granularity: float, step: float) -> tuple[int, ...]:
        return super().grains(granularity, step) if self.places is None else self.places.units(step)

    @property
    def rounding(self) -> Literal["random"] | None:
        return None if self.places is None else "random"

    @property
    def snapping(self) -> float:
        return 0.0 if self.places is None else 0.5

    def spans(self, step: float) -> tuple[int, ...]:
        return (
            (self.grid.width - 1, self.grid.height - 1)
            if self.places is None
            else self.places.spans
        )

    def inputs(self, values: object, step: float, *, clamp: bool = False) -> Inputs:
        checked = self.domain.clamped(values) if clamp else self.domain.validated(values)
        if self.places is not None:
            return Inputs(self, self.places.numbers(np.asarray(checked, dtype=np.float64)))
        return Inputs(self, np.asarray(checked, dtype=np.int64).reshape(-1, 2))

    def in_units(self, total: Fraction, axis: int, people: int, step: float) -> Fraction:
        """See `SummedQuery.in_units`; for places, in degrees."""
        if self.places is not None:
            return (total / people + self.places.corner[axis]) / POINTS_PER_DEGREE
        return (total / people + Fraction(1, 2)) * Fraction(step)

    def error_scale(self, people: int, step: float) -> float:
        return step / people

    def error_scales(self, people: int, step: float) -> tuple[float, ...]:
        if self.places is None:
            return super().error_scales(people, step)
        return tuple(
            metres / (POINTS_PER_DEGREE * METRES[self.unit] * people)
            for metres in self.places.middle_metres
        )

    def answer(
        self,
        estimate: Estimate,
        level: float = 0.95,
        *,
        simultaneous: bool = False,
        method: IntervalMethod = "normal",
    ) -> Answer:
        low, high = estimate.interval(level, simultaneous=simultaneous, method=method)
        first, second = self.ends_of(estimate, low, high)
        if self.places is not None:
            error = estimate.standard_errors / (POINTS_PER_DEGREE * estimate.people)
            degrees = Answer((first[0], second[0]), pair(error), (first[1:], second[1:]))
            return Answer(
                degrees.value,
                degrees.standard_error,
                degrees.interval,
                in_metres(self.places, degrees),
            )
        error = estimate.standard_errors * self.error_scale(estimate.people, estimate.step)
        plane = Answer((first[0], second[0]), pair(error), (first[1:], second[1:]))
        return plane if self.grid.box is None else degrees_of(self.grid, plane)

    def remarks(self) -> list[str]:
        if self.places is not None:
            return [f"(latitude, longitude) in degrees{_metres_remark(self.places)}."]
        if self.grid.box is not None:
            return ["(latitude, longitude) in degrees; cells count at their middles."]
        return [
            "(east, north) from the south-west corner of the grid; cells count at their middles."
        ]


def in_metres(places: Places, degrees: Answer) -> Answer:
    """Convert a place in degrees to (east, north) from the south-west corner of the box, in units.

    Degrees have the lengths of the middle latitude.
    """
    scales = np.array(places.middle_metres) / METRES[places.unit]
    corner = np.array((places.south, places.west))
    value = np.array(degrees.value)
    error = np.array(degrees.standard_error)
    interval = np.array(degrees.interval) - corner[:, None]
    east, north = (interval * scales[:, None])[::-1].tolist()
    return Answer(
        pair(((value - corner) * scales)[::-1]),
        pair((error * scales)[::-1]),
        (pair(east), pair(north)),
    )


def _metres_remark(places: Places) -> str:
    """Remark if lengths along a parallel differ by more than 1 % within the box; else empty."""
    lengths = [
        metres_at(latitude)[1]
        for latitude in (places.south, places.north, min(max(0.0, places.south), places.north))
    ]
    if max(lengths) <= 1.01 * min(lengths):
        return ""
    middle = (places.south + places.north) / 2.0
    return (
        f"; east and west are given in the {places.unit} of the middle latitude, {middle:g} degrees"
    )
