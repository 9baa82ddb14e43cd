"""Synthetic people for the demo, their snacks and homes; the same on every machine."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from metricshuffle.randomness import Randomness
from metricshuffle.simulation.fast_draws import uniforms
from metricshuffle.spaces import Grid, Integers

Floats = NDArray[np.float64]
Cells = NDArray[np.int64]

SNACKS = Integers(0, 1000, "kcal")
CITY = Grid(60, 40, 100, "m")


@dataclass(frozen=True)
class Neighbourhood:
    """Place where a share of the people live: a centre and a spread in metres."""

    name: str
    x: float
    y: float
    spread: float
    share: float
    label: tuple[float, float]
    """Position of the name on a map."""


NEIGHBOURHOODS = (
    Neighbourhood("Old Town", 2300.0, 2950.0, 330.0, 0.34, (1050.0, 3450.0)),
    Neighbourhood("Harbour", 4550.0, 3050.0, 380.0, 0.26, (5600.0, 2550.0)),
    Neighbourhood("Campus", 1150.0, 1050.0, 300.0, 0.18, (2200.0, 650.0)),
    Neighbourhood("Southfield", 3700.0, 850.0, 420.0, 0.22, (5150.0, 500.0)),
)
BANK = 170.0
"""Distance in metres from the middle of the river within which no one lives."""


def river(x: Floats) -> Floats:
    """Middle of the river, in metres from the southern edge."""
    return 1950.0 + 330.0 * np.sin(x / 1050.0 + 0.6) + 0.05 * x


def snacks(people: int) -> Cells:
    """Energy of yesterday's snacks: zero for some, little for most, a lot for a few."""
    source = Randomness.seeded("demo snacks")
    ate = uniforms(people, source) > 0.12
    energy = 230.0 * np.exp(0.62 * _normals(people, source))
    return np.clip(np.rint(np.where(ate, energy, 0.0)), SNACKS.low, SNACKS.high).astype(np.int64)


def homes(people: int) -> Floats:
    """(x, y) in metres of people in a few neighbourhoods on both banks of a river."""
    source = Randomness.seeded("demo city")
    edges = np.cumsum([place.share for place in NEIGHBOURHOODS])
    chosen = np.minimum(
        np.searchsorted(edges, uniforms(people, source), side="right"), len(NEIGHBOURHOODS) - 1
    )
    table = np.array([(place.x, place.y, place.spread) for place in NEIGHBOURHOODS])[chosen]
    x = np.clip(
        table[:, 0] + 1.15 * table[:, 2] * _normals(people, source), 0.0, CITY.width * CITY.cell
    )
    y = table[:, 1] + 0.85 * table[:, 2] * _normals(people, source)
    middle = river(x)
    north = table[:, 1] > river(table[:, 0])
    y = np.where(north, np.maximum(y, middle + BANK), np.minimum(y, middle - BANK))
    return np.column_stack([x, np.clip(y, 0.0, CITY.height * CITY.cell)])


def visits(people: int) -> list[Floats]:
    """(x, y) in metres of the places each person visited in a month.

    Around home, around work, and some anywhere in the city.
    """
    source = Randomness.seeded("demo visits")
    around = homes(people)
    work = np.array([(place.x, place.y) for place in NEIGHBOURHOODS])[
        (uniforms(people, source) * len(NEIGHBOURHOODS)).astype(np.int64)
    ]
    many = 8 + (uniforms(people, source) ** 2 * 33.0).astype(np.int64)
    owner = np.repeat(np.arange(people), many)
    what = uniforms(len(owner), source)
    middle = np.where((what < 0.55)[:, None], around[owner], work[owner])
    near = middle + np.where(what < 0.55, 120.0, 260.0)[:, None] * _normals(
        2 * len(owner), source
    ).reshape(-1, 2)
    anywhere = uniforms(2 * len(owner), source).reshape(-1, 2) * (
        CITY.width * CITY.cell,
        CITY.height * CITY.cell,
    )
    points = np.where((what > 0.93)[:, None], anywhere, near)
    inside = np.clip(points, 0.0, (CITY.width * CITY.cell, CITY.height * CITY.cell))
    return np.split(inside, np.cumsum(many)[:-1])


def jittered(cells: Cells) -> Floats:
    """Points for a map, spread evenly within their cells, because reports are about cells only."""
    spread = uniforms(2 * len(cells), Randomness.seeded("demo map")).reshape(-1, 2)
    return (cells + spread) * CITY.cell


def _normals(count: int, source: Randomness) -> Floats:
    from scipy.special import ndtri

    return np.asarray(ndtri(uniforms(count, source)))
