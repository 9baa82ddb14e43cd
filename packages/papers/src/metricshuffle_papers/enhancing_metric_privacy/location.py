"""The location experiments of Athanasiou25: a centroid of people in a square of 100 km, on the built-in city or a file of places."""

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
"""Metres along the paper's square (1000 squares of 100 m)."""
DELTA = 1e-4
CITY_PEOPLE = 4000
COLUMNS = (("east", "north"), ("lat", "lon"), ("latitude", "longitude"))


@dataclass(frozen=True)
class Location:
    """One experiment: `epsilon` in total at `radius` metres, `squares` along a side."""

    epsilon: float
    squares: int
    radius: float

    @property
    def cell(self) -> float:
        return SIDE / self.squares

    @property
    def share(self) -> float:
        """What each axis gets per square in the paper: epsilon over the radius in squares and sqrt(2)."""
        return self.epsilon / (self.radius / self.cell * math.sqrt(2.0))

    def as_published(self, users: int) -> dict[str, Mechanism | None]:
        found = as_published(self.share, users, 0.5 * DELTA, self.squares)
        return {name: None if one is None else one.twice() for name, one in found.items()}

    def as_needed(self, users: int) -> dict[str, Mechanism | None]:
        """Geo-Shuffle accounts both axes together, RR-Shuffle one at a time, up to the radius; the others at every distance."""
        reach = self.radius / self.cell
        response = needed_response(self.share, users, 0.5 * DELTA, math.floor(reach), self.squares)
        shared = needed_planar_rate(self.epsilon, users, DELTA, reach)
        return {
            "Geo-Local": geometric("Geo-Local", Fraction(1), self.share, self.squares).twice(),
            "RR-Shuffle": None if response is None else response.twice(),
            "Geo-Shuffle": geometric("Geo-Shuffle", Fraction(1), shared, self.squares).twice(),
            "SGDL-Shuffle": geometric("SGDL-Shuffle", Fraction(1, users), self.share, self.squares).twice(),
        }


@dataclass(frozen=True)
class Places:
    """Where people live, in metres within the square, and a sentence about where they come from."""

    points: Floats
    source: str

    def people(self, users: int, randomness: Randomness) -> Floats:
        """So many of them, drawn with replacement."""
        chosen = np.floor(uniforms(users, randomness) * len(self.points)).astype(np.int64)
        return self.points[np.minimum(chosen, len(self.points) - 1)]

    def dispersed(self) -> Places:
        """The half that lives farthest from the middle (the medians); the paper leaves out a rectangle around downtown Austin."""
        away = np.hypot(*(self.points - np.median(self.points, axis=0)).T)
        kept = self.points[away >= np.median(away)]
        return replace(self, points=kept, source=f"{self.source}, without the half that lives nearest to the middle")


def cells_of(points: Floats, squares: int) -> NDArray[np.int64]:
    return Grid(squares, squares, SIDE / squares, "m").cells(points)


def places(csv: Path | None) -> Places:
    """The built-in city, or the places of a file, in the middle of the square."""
    if csv is None:
        from metricshuffle_papers.synthetic import homes

        return Places(_centred(homes(CITY_PEOPLE), "the city"), "a synthetic city of 6 by 4 km in the middle of the square")
    points, count = _read(csv)
    return Places(_centred(points, str(csv)), f"{count:,} places in {csv.name}")


def _centred(points: Floats, name: str) -> Floats:
    low, high = points.min(axis=0), points.max(axis=0)
    if (high - low).max() > SIDE:
        raise InputError(f"{name} is {(high - low).max() / 1000:,.0f} km wide; the experiment has a square of {SIDE / 1000:g} km.")
    return np.asarray(points - 0.5 * (low + high) + 0.5 * SIDE)


def _read(csv: Path) -> tuple[Floats, int]:
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
                raise InputError(f"column {name!r} of {csv} (--csv) must hold a number in every row.")
        if names == COLUMNS[0]:
            return np.stack(columns, axis=1), len(columns[0])
        return _plane(columns[0], columns[1]), len(columns[0])
    raise InputError(f"{csv} (--csv) needs columns named east and north (metres), or lat and lon (degrees).")


def _plane(latitudes: Floats, longitudes: Floats) -> Floats:
    from metricshuffle.spaces.geographic_box import Box

    margin = 1e-6  # a box needs a height and a width, even around a single place
    box = Box(latitudes.min() - margin, longitudes.min() - margin, latitudes.max() + margin, longitudes.max() + margin)
    return box.plane(latitudes, longitudes)
