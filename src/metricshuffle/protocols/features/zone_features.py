"""Features of zones of a map: single zones, and hats over the corners of triangles."""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import lru_cache
from typing import TYPE_CHECKING, ClassVar, Literal, Self

import numpy as np

from metricshuffle.accounting.vectors.feature_changes import FeatureChanges
from metricshuffle.accounting.vectors.zone_slopes import barycentric_slope, single_zone_slope
from metricshuffle.errors import InputError
from metricshuffle.estimation.tilted_shares import tilted_shares
from metricshuffle.models import FrozenModel, Positive
from metricshuffle.numerics.rounding import format_distance, round_up
from metricshuffle.numerics.types import Floats
from metricshuffle.protocols.features.feature_set import (
    MAX_COORDINATES,
    Blur,
    Features,
    most_expensive_move,
)
from metricshuffle.protocols.features.hat_lattice import HatLattice, flattens, hat_table, plane
from metricshuffle.protocols.features.lattice import DISTANCE_TOLERANCE
from metricshuffle.protocols.features.readings import Readings
from metricshuffle.spaces import Chord, Space, Zones
from metricshuffle.spaces.grid import METRES
from metricshuffle.spaces.zones import MAX_ZONES

if TYPE_CHECKING:
    from scipy.sparse import csr_array

MAX_RATES = 96
"""Largest number of different rates: the law of each is computed for intervals."""
FINENESS = 2**20
"""Grid steps in a thirtieth of a triangle's side."""
HAT_TOP = 30 * 26 * FINENESS
"""Value of a hat at its top, in whole numbers."""
EVEN_SHARE = 0.01
"""Fraction of public weights that is spread evenly, so that no zone is excluded."""
LIKELIEST_LENGTH = 1.5
OFFERED_LENGTHS = (1.0, 1.6)
MOST_HATS = 0.8
"""Largest number of hats per zone that is offered; with more, zones are better counted singly."""


class ZoneCells(Features):
    """One indicator per zone, whose rate is in proportion to the distance to the nearest zone.

    Zones far from all others thus get less noise than those in a crowded city.
    """

    kind: Literal["zone-cells"] = "zone-cells"

    @classmethod
    def offered(cls, space: Space, people: int, rate: float) -> Iterator[Self]:
        """Offered for zones with distances between their points."""
        if is_zoned(space):
            yield cls()

    def table(self, space: Space) -> csr_array:
        from scipy.sparse import csr_array

        size = len(_zones(self, space).ids)
        return csr_array(
            (np.ones(size, dtype=np.int64), np.arange(size), np.arange(size + 1)),
            shape=(size, size),
        )

    def check_room(self, coordinates: int, entries: int, remedy: str) -> None:
        """Raise if there are too many zones, because each zone has its own coordinate."""
        if coordinates > MAX_ZONES:
            super().check_room(coordinates, entries, remedy)

    def weights(self, space: Space) -> Floats:
        """Half the distance to the nearest other zone, rounded down to few different numbers."""
        return _half_distances(_zones(self, space))

    def slope(self, space: Space, rates: Floats) -> float:
        """By `single_zone_slope`: no pairs are compared."""
        return single_zone_slope(self.validate_rates(space, rates), self.weights(space))

    def moves(self, space: Space, rates: Floats, distance: float) -> Iterator[FeatureChanges]:
        """One move that dominates all: the two largest rates of zones with a neighbour in reach."""
        zones = _zones(self, space)
        checked = self.validate_rates(space, rates)
        if not distance >= 0.0:
            raise InputError(f"the distance of a move must be a number >= 0, got {distance!r}.")
        reached = checked[zones.nearest <= distance * (1.0 + DISTANCE_TOLERANCE)]
        if len(reached) > 1:
            yield most_expensive_move(reached, 2)

    def point_readings(self, space: Space) -> Readings | None:
        table = self.table(space).astype(np.float64)
        return Readings.of_points(np.zeros(table.shape[0]), table, np.arange(table.shape[0]))


class ZoneHats(Features):
    """Hats over the corners of triangles of side `length`: barycentric coordinates of zones.

    The representative point of a zone lies in a triangle with corners of a lattice, and is a
    mixture of these three corners; hats are the parts of the mixture, in whole numbers that sum to
    `HAT_TOP`. They are rounded at random to coarser numbers before they are sent. Single zones are
    not identified: shares are as near as possible to public weights (or to equal shares).
    """

    kind: Literal["zone-hats"] = "zone-hats"
    fine: ClassVar[bool] = True
    length: Positive

    def __init__(self, length: float, **fields: object) -> None:
        FrozenModel.__init__(self, length=length, **fields)

    def __str__(self) -> str:
        return f"{self.kind} {self.length:g}"

    @classmethod
    def offered(cls, space: Space, people: int, rate: float) -> Iterator[Self]:
        """Side 1.5 s/(people * rate * s)^(1/4), where s^2 is the area, and a longer one.

        Hats are offered only if they are fewer than zones. The constants were found by simulation.
        """
        if not (isinstance(space.domain, Zones) and is_zoned(space) and flattens(space.domain)):
            return
        across = plane(space.domain).max(axis=0)
        side = math.sqrt(float(across[0] * across[1]))
        total = people * rate * side
        if not total > 0.0:
            return
        for part in OFFERED_LENGTHS:
            hats = cls(float(f"{part * LIKELIEST_LENGTH * side / total**0.25:.2g}"))
            if hats._fits(space.domain):
                yield hats

    def _fits(self, zones: Zones) -> bool:
        lattice = self._lattice
        return lattice.fits(zones) and 3 < lattice.hat_count(zones) <= min(
            MAX_COORDINATES, MOST_HATS * len(zones.ids)
        )

    @property
    def grain(self) -> float:
        """Step of the grid on which points are placed in the plane, in units."""
        return self._lattice.grain

    @property
    def _lattice(self) -> HatLattice:
        return HatLattice(self.length, FINENESS)

    def table(self, space: Space) -> csr_array:
        matrix = hat_table(self._lattice, _zones(self, space))
        self.check_room(matrix.shape[1], matrix.nnz, "use longer triangles")
        return matrix

    def weights(self, space: Space) -> Floats:
        return np.ones(self.table(space).shape[1])

    def slope(self, space: Space, rates: Floats) -> float:
        """By `barycentric_slope`, with the largest rate for all features."""
        zones = _zones(self, space)
        largest = float(self.validate_rates(space, rates).max())
        changes = barycentric_slope(
            self.grain, float(zones.nearest.min()), zones.diameter, METRES[zones.unit]
        )
        return round_up(largest * changes, 2)

    def nearby(self, space: Space) -> Readings:
        """For every zone, the mean of the hat that is largest there: people near its corner."""
        from scipy.sparse import csr_array

        table = self.table(space)
        hats = table.shape[1]
        highest = np.asarray(table.argmax(axis=1), dtype=np.int64).ravel()
        heights = csr_array(
            (np.full(hats, 1.0 / HAT_TOP), np.arange(hats), np.arange(hats + 1)),
            shape=(hats, hats),
        )
        return Readings.of_points(np.zeros(hats), heights, highest)

    def nearby_words(self, space: Space) -> str:
        return f"within about {format_distance(self.length)} {space.unit}".rstrip()

    def shares(
        self, space: Space, means: Floats, errors: Floats, blur: Blur | None = None
    ) -> Floats:
        """Shares that explain the hats, nearest to the public weights in relative entropy."""
        if blur is not None:
            raise InputError("hats of zones are not made of randomized values.")
        zones = _zones(self, space)
        size = len(zones.ids)
        weights = np.ones(size) if zones.weights is None else np.array(zones.weights)
        guess = (1.0 - EVEN_SHARE) * weights / weights.sum() + EVEN_SHARE / size
        design = self.table(space).astype(np.float64)
        design.data /= HAT_TOP
        fitted = tilted_shares(
            design, np.asarray(means) / HAT_TOP, np.asarray(errors) / HAT_TOP, guess
        )
        return fitted if np.ndim(means) > 1 else fitted[0]


def is_zoned(space: Space) -> bool:
    """Whether the space is zones with the distances between their points."""
    return isinstance(space.domain, Zones) and type(space.metric).pairwise is Chord.pairwise


def _zones(features: Features, space: Space) -> Zones:
    if not (isinstance(space.domain, Zones) and is_zoned(space)):
        raise InputError(
            f"the features {features.kind} are for zones with distances between their points, "
            f"not for {space.domain}."
        )
    return space.domain


@lru_cache(maxsize=32)
def _half_distances(zones: Zones) -> Floats:
    """Half of `nearest`, rounded down to few different numbers."""
    return few_numbers(0.5 * zones.nearest)


def few_numbers(numbers: Floats) -> Floats:
    """Numbers rounded down to the most leading bits that leave few different numbers."""
    parts, powers = np.frexp(numbers)
    bits = 24
    while True:
        rounded = np.ldexp(np.floor(np.ldexp(parts, bits)), powers - bits)
        if len(np.unique(rounded)) <= MAX_RATES or bits == 1:
            rounded.setflags(write=False)
            return np.asarray(rounded, dtype=np.float64)
        bits -= 1
