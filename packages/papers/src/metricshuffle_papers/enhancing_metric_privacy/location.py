"""Location experiments of Athanasiou25: centroids of people in a square of 100 km.

The people are those of the built-in city or of a file of places.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from metricshuffle.errors import InputError
from metricshuffle.randomness import Randomness
from metricshuffle.simulation.fast_draws import uniforms
from metricshuffle.spaces import Grid
from metricshuffle_papers.enhancing_metric_privacy.mechanisms import (
    Mechanism,
    as_published,
    geometric,
    needed_planar_rate,
    needed_response,
)

Floats = NDArray[np.float64]

SIDE = 100_000.0
"""Side of the paper's square in metres (1000 squares of 100 m)."""
DELTA = 1e-4
CITY_PEOPLE = 4000
COLUMNS = (("east", "north"), ("lat", "lon"), ("latitude", "longitude"))
AUSTIN = (30.091, -98.27048, 30.95534, -97.3819)
"""South, west, north and east of the paper's square, in degrees (footnote 4)."""
DOWNTOWN = (30.16737, -97.877248, 30.45908, -97.627248)
"""The rectangle whose people the dispersed data leave out, in degrees (footnote 6)."""


@dataclass(frozen=True)
class Location:
    """Experiment: `epsilon` in total at `radius` metres, `squares` along a side."""

    epsilon: float
    squares: int
    radius: float

    @property
    def cell(self) -> float:
        return SIDE / self.squares

    @property
    def share(self) -> float:
        """Epsilon of each axis per square in the paper: epsilon / (radius in squares * sqrt(2))."""
        return self.epsilon / (self.radius / self.cell * math.sqrt(2.0))

    def as_published(self, users: int) -> dict[str, Mechanism | None]:
        found = as_published(self.share, users, 0.5 * DELTA, self.squares)
        return {name: None if one is None else one.twice() for name, one in found.items()}

    def as_needed(self, users: int) -> dict[str, Mechanism | None]:
        """Mechanisms with the noise that is needed.

        Geo-Shuffle accounts both axes together, RR-Shuffle one at a time, up to the radius; the
        others at every distance.
        """
        reach = self.radius / self.cell
        response = needed_response(self.share, users, 0.5 * DELTA, math.floor(reach), self.squares)
        shared = needed_planar_rate(self.epsilon, users, DELTA, reach)
        return {
            "Geo-Local": geometric("Geo-Local", Fraction(1), self.share, self.squares).twice(),
            "RR-Shuffle": None if response is None else response.twice(),
            "Geo-Shuffle": geometric("Geo-Shuffle", Fraction(1), shared, self.squares).twice(),
            "SGDL-Shuffle": geometric(
                "SGDL-Shuffle", Fraction(1, users), self.share, self.squares
            ).twice(),
        }


@dataclass(frozen=True)
class Places:
    """Homes in metres within the square, and a sentence about their source.

    `downtown` marks the places in the paper's rectangle, if they are places in Austin.
    """

    points: Floats
    source: str
    downtown: NDArray[np.bool_] | None = None

    def people(self, users: int, randomness: Randomness) -> Floats:
        """Draw `users` homes with replacement."""
        chosen = np.floor(uniforms(users, randomness) * len(self.points)).astype(np.int64)
        return self.points[np.minimum(chosen, len(self.points) - 1)]

    def dispersed(self) -> Places:
        """Places outside the paper's rectangle around downtown Austin (footnote 6).

        Elsewhere the half of the places that is farthest from the middle (the medians).
        """
        if self.downtown is not None:
            suburbs = self.points[~self.downtown]
            if not len(suburbs):
                raise InputError(
                    f"all of {self.source} lie in the rectangle around downtown Austin that the "
                    "dispersed data leave out; give a file (--csv) with places outside it."
                )
            return Places(
                suburbs,
                f"{self.source}, of which {len(suburbs):,} lie outside the paper's rectangle "
                "around downtown Austin",
            )
        away = np.hypot(*(self.points - np.median(self.points, axis=0)).T)
        outer = self.points[away >= np.median(away)]
        return replace(
            self,
            points=outer,
            source=f"{self.source}, without the half that lives nearest to the middle",
        )


def cells_of(points: Floats, squares: int) -> NDArray[np.int64]:
    return Grid(squares, squares, SIDE / squares, "m").cells(points)


def places(csv: Path | None) -> Places:
    """Places of the built-in city or of a file, in the middle of the square."""
    if csv is None:
        from metricshuffle_papers.synthetic import homes

        return Places(
            _centred(homes(CITY_PEOPLE), "the city"),
            "a synthetic city of 6 by 4 km in the middle of the square",
        )
    first, second, in_degrees = _read(csv)
    source = f"{len(first):,} places in {csv.name}"
    if not in_degrees:
        return Places(_centred(np.stack([first, second], axis=1), str(csv)), source)
    inside = _within(AUSTIN, first, second)
    if 2 * np.count_nonzero(inside) > len(inside):
        return _austin(first[inside], second[inside], source, len(inside))
    return Places(_centred(_plane(first, second), str(csv)), source)


def _within(box: tuple[float, ...], latitudes: Floats, longitudes: Floats) -> NDArray[np.bool_]:
    south, west, north, east = box
    return np.asarray(
        (south <= latitudes) & (latitudes <= north) & (west <= longitudes) & (longitudes <= east)
    )


def _austin(latitudes: Floats, longitudes: Floats, source: str, count: int) -> Places:
    """Places in the paper's square, whose box is in the middle of ours; others are left out."""
    from metricshuffle.spaces.geographic_box import Box

    box = Box(*AUSTIN)
    corners = box.plane(np.array(AUSTIN[::2]), np.array(AUSTIN[1::2]))
    outside = count - len(latitudes)
    remark = f" ({outside:,} outside the paper's box around Austin left out)" if outside else ""
    return Places(
        box.plane(latitudes, longitudes) - corners.mean(axis=0) + 0.5 * SIDE,
        f"{source}{remark}",
        _within(DOWNTOWN, latitudes, longitudes),
    )


def _centred(points: Floats, name: str) -> Floats:
    low = points.min(axis=0)
    high = points.max(axis=0)
    if (high - low).max() > SIDE:
        raise InputError(
            f"{name} is {(high - low).max() / 1000:,.0f} km wide; the experiment has a "
            f"square of {SIDE / 1000:g} km."
        )
    return np.asarray(points - 0.5 * (low + high) + 0.5 * SIDE)


def _read(csv: Path) -> tuple[Floats, Floats, bool]:
    """Return the two coordinates of all places, and whether they are degrees."""
    from metricshuffle.data import column_requests, open_columns

    for names in COLUMNS:
        try:
            table = open_columns(csv, column_requests(names))
        except InputError as wrong:
            if "has no column" not in str(wrong):
                raise
            continue
        chunks = list(table.chunks())
        columns = [np.concatenate([chunk.columns[axis] for chunk in chunks]) for axis in (0, 1)]
        for name, column in zip(names, columns, strict=True):
            if column.dtype == object or not np.isfinite(column).all():
                raise InputError(
                    f"column {name!r} of {csv} (--csv) must hold a number in every row."
                )
        return columns[0], columns[1], names != COLUMNS[0]
    raise InputError(
        f"{csv} (--csv) needs columns named east and north (metres), or lat and lon (degrees)."
    )


def _plane(latitudes: Floats, longitudes: Floats) -> Floats:
    from metricshuffle.spaces.geographic_box import Box

    margin = 1e-6  # a box needs a height and a width, even around a single place
    box = Box(
        latitudes.min() - margin,
        longitudes.min() - margin,
        latitudes.max() + margin,
        longitudes.max() + margin,
    )
    return box.plane(latitudes, longitudes)
