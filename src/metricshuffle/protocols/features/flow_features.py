"""Features of trips between zones: pairs of zones or blocks, and products of hats at both ends."""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import lru_cache
from typing import TYPE_CHECKING, ClassVar, Literal, Self

import numpy as np

from metricshuffle.accounting.vectors.feature_changes import FeatureChanges
from metricshuffle.accounting.vectors.zone_slopes import (
    barycentric_slope,
    pair_half_distances,
    product_slope,
    single_zone_slope,
)
from metricshuffle.errors import InputError
from metricshuffle.estimation.least_squares import nearest_shares
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
from metricshuffle.protocols.features.readings import Readings, largest_features
from metricshuffle.protocols.features.zone_features import EVEN_SHARE, few_numbers
from metricshuffle.spaces import Chord, ChordSum, Space, ZonePairs, Zones
from metricshuffle.spaces.grid import METRES
from metricshuffle.spaces.places import COORDINATE_ERROR

if TYPE_CHECKING:
    from scipy.sparse import csr_array

FINENESS = 2**12
"""Grid steps in a thirtieth of a triangle's side: products of two hats fit 44 bits."""
LIKELIEST_LENGTH = 1.5
OFFERED_LENGTHS = (1.0, 1.5)
FLATTEST = 0.01
"""Smallest ratio of the sides of an area, used if zones lie nearly on a line."""
LENGTHENING = 1.15
"""Factor by which triangles are lengthened until there are few enough products."""
BOUND_BITS = 6
"""Leading bits of products in upper bounds: with more, thousands of laws would be computed."""
MOST_PRODUCTS = 0.8
"""Largest number of products per pair of zones that is offered."""


class FlowCells(Features):
    """One indicator per pair of zones, or per pair of blocks if zones have blocks.

    The rate of a pair is in proportion to the distance to the nearest other pair: the smaller of
    the distances from its ends to their nearest neighbours. Flows between blocks have intervals,
    and flows between their zones are smoothed; without blocks, flows between zones have intervals.
    """

    kind: Literal["flow-cells"] = "flow-cells"

    @classmethod
    def offered(cls, space: Space, people: int, rate: float) -> Iterator[Self]:
        """Offered for few enough pairs, or where hats are not; `table` raises for too many."""
        if not _is_flow(space):
            return
        zones = _zones(cls(), space)
        few = _group_count(zones) ** 2 <= MAX_COORDINATES
        if few or zones.blocks is not None or not flattens(zones):
            yield cls()

    def table(self, space: Space) -> csr_array:
        from scipy.sparse import csr_array

        zones = _zones(self, space)
        size = len(zones.ids) ** 2
        groups = _group_count(zones) ** 2
        self.check_room(groups, size, "merge zones, or name few blocks of them")
        return csr_array(
            (np.ones(size, dtype=np.int64), _pairs(space).block_codes, np.arange(size + 1)),
            shape=(size, groups),
        )

    def end_table(self, space: Space) -> csr_array:
        """The block of each zone; features of a trip are products of those of its two ends."""
        from scipy.sparse import csr_array

        codes = _zones(self, space).block_codes
        size = len(codes)
        return csr_array((np.ones(size, dtype=np.int64), codes, np.arange(size + 1)))

    def weights(self, space: Space) -> Floats:
        """By `pair_half_distances`, rounded down to few different numbers."""
        return pair_half_distances(few_numbers(0.5 * _groups_apart(_zones(self, space))))

    def slope(self, space: Space, rates: Floats) -> float:
        """By `single_zone_slope`: no pairs are compared."""
        return single_zone_slope(self.validate_rates(space, rates), self.weights(space))

    def moves(self, space: Space, rates: Floats, distance: float) -> Iterator[FeatureChanges]:
        """One move that dominates all: the two largest rates of pairs with another in reach."""
        checked = self.validate_rates(space, rates)
        if not distance >= 0.0:
            raise InputError(f"the distance of a move must be a number >= 0, got {distance!r}.")
        apart = _groups_apart(_zones(self, space))
        nearest = np.minimum.outer(apart, apart).ravel()
        reached = checked[nearest <= distance * (1.0 + DISTANCE_TOLERANCE)]
        if len(reached) > 1:
            yield most_expensive_move(reached, 2)

    def point_readings(self, space: Space) -> Readings | None:
        return None if _zones(self, space).blocks is not None else self._counts(space)

    def nearby(self, space: Space) -> Readings | None:
        """For every pair of zones, the share of all trips between the same two blocks."""
        return None if _zones(self, space).blocks is None else self._counts(space)

    def _counts(self, space: Space) -> Readings:
        from scipy.sparse import eye_array

        groups = _group_count(_zones(self, space)) ** 2
        counts = eye_array(groups, format="csr")
        return Readings.of_points(np.zeros(groups), counts, _pairs(space).block_codes)

    def nearby_words(self, space: Space) -> str:
        return "between the same two blocks"

    def shares(
        self, space: Space, means: Floats, errors: Floats, blur: Blur | None = None
    ) -> Floats:
        """Valid shares of pairs of blocks, divided among their zones by the public weights."""
        zones = _zones(self, space)
        if zones.blocks is None:
            return super().shares(space, means, errors, blur)
        if blur is not None:
            raise InputError("flows between blocks are not made of randomized values.")
        guess = _guess(zones)
        blocks = _pairs(space).block_codes
        parts = guess / np.bincount(blocks, guess)[blocks]
        fitted = nearest_shares(self._counts(space).factors, means, errors).shares[:, blocks]
        return fitted * parts if np.ndim(means) > 1 else fitted[0] * parts


class FlowHats(Features):
    """Products of a hat at the start and a hat at the end of a trip (see `ZoneHats`).

    The lattice has triangles of side `length`; products are whole numbers, which are rounded at
    random to coarser ones before they are sent. Single pairs are not identified.
    """

    kind: Literal["flow-hats"] = "flow-hats"
    fine: ClassVar[bool] = True
    largest_feature: ClassVar[int] = (780 * FINENESS) ** 2
    length: Positive

    def __init__(self, length: float, **fields: object) -> None:
        FrozenModel.__init__(self, length=length, **fields)

    def __str__(self) -> str:
        return f"{self.kind} {self.length:g}"

    @classmethod
    def offered(cls, space: Space, people: int, rate: float) -> Iterator[Self]:
        """Side 1.5 s/(people * rate * s)^(1/6), where s^2 is the area, and a longer one.

        Hats are offered only if there are fewer products than pairs. If pairs are too many to count
        singly, sides are lengthened until there are few enough products. Hats are not offered if
        zones have blocks, which triangles do not separate. The constants were found by simulation.
        """
        if not _is_flow(space):
            return
        zones = _zones(cls(1.0), space)
        if zones.blocks is not None or not flattens(zones):
            return
        across = plane(zones).max(axis=0)
        across = np.maximum(across, FLATTEST * across.max())
        side = math.sqrt(float(across[0] * across[1]))
        total = people * rate * side
        if not total > 0.0:
            return
        countable = len(zones.ids) ** 2 <= MAX_COORDINATES
        most = min(MAX_COORDINATES, MOST_PRODUCTS * len(zones.ids) ** 2)
        for part in OFFERED_LENGTHS:
            length = part * LIKELIEST_LENGTH * side / total ** (1.0 / 6.0)
            hats = cls(float(f"{length:.2g}"))
            while not countable and not hats._count(zones) ** 2 <= most:
                length *= LENGTHENING
                hats = cls(float(f"{length:.2g}"))
            if 9.0 < hats._count(zones) ** 2 <= most:
                yield hats

    def _count(self, zones: Zones) -> float:
        """Number of hats at one end; infinite if they are too small for 64 bits."""
        return self._lattice.hat_count(zones) if self._lattice.fits(zones) else math.inf

    @property
    def _lattice(self) -> HatLattice:
        return HatLattice(self.length, FINENESS)

    def table(self, space: Space) -> csr_array:
        return _products(self, _zones(self, space))

    def end_table(self, space: Space) -> csr_array:
        """Hats at one end; the features of a trip are products of the hats at its two ends."""
        return hat_table(self._lattice, _zones(self, space))

    def weights(self, space: Space) -> Floats:
        return np.ones(self.table(space).shape[1])

    def slope(self, space: Space, rates: Floats) -> float:
        """By `product_slope` and `barycentric_slope`, with the largest rate for all features."""
        zones = _zones(self, space)
        largest = float(self.validate_rates(space, rates).max())
        one_end = barycentric_slope(
            self._lattice.grain, float(zones.nearest.min()), zones.diameter, METRES[zones.unit]
        )
        return round_up(largest * product_slope(one_end, self._lattice.top), 2)

    def nearby(self, space: Space) -> Readings:
        """For every pair, the mean of the product largest there: trips near both its corners."""
        from scipy.sparse import csr_array

        table = self.table(space)
        products = table.shape[1]
        highest = np.asarray(table.argmax(axis=1), dtype=np.int64).ravel()
        heights = csr_array(
            (
                np.full(products, 1.0 / self._lattice.top**2),
                np.arange(products),
                np.arange(products + 1),
            ),
            shape=(products, products),
        )
        return Readings.of_points(np.zeros(products), heights, highest)

    def bounds(self, space: Space) -> Readings:
        """By `largest_features`, with products rounded down to few different numbers.

        Readings divide means by these numbers, so rounding them down makes no reading smaller.
        """
        table = self.table(space).copy()
        powers = np.maximum(np.frexp(table.data.astype(np.float64))[1] - BOUND_BITS, 0)
        table.data = (table.data >> powers) << powers
        return largest_features(table)

    def nearby_words(self, space: Space) -> str:
        length = f"{format_distance(self.length)} {space.unit}".rstrip()
        return f"within about {length} at both ends"

    def shares(
        self, space: Space, means: Floats, errors: Floats, blur: Blur | None = None
    ) -> Floats:
        """Shares that explain the products, nearest to the public weights in relative entropy."""
        if blur is not None:
            raise InputError("hats of trips are not made of randomized values.")
        top = float(self._lattice.top) ** 2
        design = self.table(space).astype(np.float64)
        design.data /= top
        zones = _zones(self, space)
        fitted = tilted_shares(
            design, np.asarray(means) / top, np.asarray(errors) / top, _guess(zones)
        )
        return fitted if np.ndim(means) > 1 else fitted[0]


def _guess(zones: Zones) -> Floats:
    """Shares of pairs before anything is measured: products of public weights, or equal ones."""
    size = len(zones.ids)
    weights = np.ones(size) if zones.weights is None else np.array(zones.weights)
    product = np.outer(weights, weights).ravel()
    return np.asarray((1.0 - EVEN_SHARE) * product / product.sum() + EVEN_SHARE / size**2)


def _is_flow(space: Space) -> bool:
    """Whether the points are pairs of zones, and distances are sums over both ends."""
    return isinstance(space.domain, ZonePairs) and type(space.metric).pairwise is ChordSum.pairwise


def _zones(features: Features, space: Space) -> Zones:
    if not (isinstance(space.domain, ZonePairs) and _is_flow(space)):
        raise InputError(
            f"the features {features.kind} are for pairs of zones with distances between their "
            f"points, not for {space.domain}."
        )
    return space.domain.zones


def _pairs(space: Space) -> ZonePairs:
    assert isinstance(space.domain, ZonePairs)  # noqa: S101 - `_zones` has checked it
    return space.domain


def _group_count(zones: Zones) -> int:
    return int(zones.block_codes.max()) + 1


@lru_cache(maxsize=32)
def _groups_apart(zones: Zones) -> Floats:
    """Lower bound on the distance from each block, or zone, to the nearest zone outside it."""
    if zones.blocks is None:
        return zones.nearest
    codes = zones.block_codes
    distances = Chord("m").pairwise(zones.degrees, zones.degrees)
    distances[np.equal.outer(codes, codes)] = np.inf
    apart = np.full(_group_count(zones), np.inf)
    np.minimum.at(apart, codes, distances.min(axis=1))
    lower: Floats = (apart - 2.0 * COORDINATE_ERROR) * (1.0 - 1e-12) / METRES[zones.unit]
    lower.setflags(write=False)
    return lower


@lru_cache(maxsize=16)
def _products(hats: FlowHats, zones: Zones) -> csr_array:
    from scipy.sparse import csr_array, kron

    ends = hat_table(hats._lattice, zones)
    hats.check_room(ends.shape[1] ** 2, ends.nnz**2, "use longer triangles")
    matrix = csr_array(kron(ends, ends, format="csr"))
    matrix.sort_indices()
    return matrix
