"""Pairs of zones: where a trip starts and where it ends."""

from __future__ import annotations

from functools import cached_property
from typing import ClassVar, Literal, Self

import numpy as np
from pydantic import model_validator

from metricshuffle.errors import DomainError, InputError
from metricshuffle.models import FrozenModel
from metricshuffle.numerics.types import Floats, Integers64
from metricshuffle.spaces.array_input import Source, finite_points, joined_errors
from metricshuffle.spaces.chord import Chord
from metricshuffle.spaces.domains import Domain
from metricshuffle.spaces.metrics import Metric
from metricshuffle.spaces.zones import Zones

MAX_ENDS = 256
"""Largest number of zones between which trips are counted: a fit of all pairs takes seconds."""
POINTS_ARE = "pairs of places"


class ZonePairs(Domain):
    """Pairs (from, to) of zones, coded from * zones + to; both ends may be the same zone.

    A value is two ids, or two places: (latitude, longitude, latitude, longitude) in degrees.
    """

    points_are: ClassVar[str] = POINTS_ARE
    clamped_to: ClassVar[str] = Zones.clamped_to
    kind: Literal["zone-pairs"] = "zone-pairs"
    zones: Zones

    def __init__(self, zones: Zones, **fields: object) -> None:
        FrozenModel.__init__(self, zones=zones, **fields)

    @model_validator(mode="after")
    def _are_few(self) -> Self:
        count = len(self.zones.ids)
        if count > MAX_ENDS:
            raise InputError(
                f"trips are counted between at most {MAX_ENDS} zones, got {count:,}, which are "
                f"{count**2:,} pairs; merge zones, or take a part of the map",
                field="zones",
            )
        return self

    @property
    def unit(self) -> str:
        return self.zones.unit

    def __str__(self) -> str:
        return f"pairs of {self.zones}"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ZonePairs) and self.zones == other.zones

    def __hash__(self) -> int:
        return hash((self.kind, self.zones))

    def validated(self, values: object) -> Integers64:
        return self._coded(values, clamp=False)

    def clamped(self, values: object) -> Integers64:
        """Like `validated`, but a place outside all zones gets the zone of the nearest point."""
        return self._coded(values, clamp=True)

    def _coded(self, values: object, *, clamp: bool) -> Integers64:
        source = _ends_of(values)
        width = source.shape[1] // 2
        ends = []
        errors = []
        for start in (0, width):
            part = source[:, start] if width == 1 else source[:, start : start + width]
            try:
                ends.append(self.zones.clamped(part) if clamp else self.zones.validated(part))
            except DomainError as error:
                errors.append(error)
        if errors:
            raise joined_errors(errors, str(self))
        return ends[0] * len(self.zones.ids) + ends[1]

    @property
    def size(self) -> int | None:
        return len(self.zones.ids) ** 2

    def all_values(self) -> Integers64:
        """All pairs: those from the first zone come first."""
        return np.arange(len(self.zones.ids) ** 2, dtype=np.int64)

    def extremes(self) -> Integers64:
        return self.all_values()

    def ends(self, codes: Integers64 | Floats) -> tuple[Integers64, Integers64]:
        """Codes of the zones where trips start and end."""
        start, end = np.divmod(np.asarray(codes, dtype=np.int64), len(self.zones.ids))
        return start, end

    def points(self, validated: Integers64 | Floats) -> Floats:
        """Representative points (latitude, longitude) of both ends, in one row."""
        start, end = self.ends(validated)
        return np.hstack([self.zones.degrees[start], self.zones.degrees[end]])

    def names(self, code: int) -> tuple[str, str]:
        """Ids of the zones where a trip starts and ends."""
        start, end = divmod(int(code), len(self.zones.ids))
        return self.zones.ids[start], self.zones.ids[end]

    @cached_property
    def block_codes(self) -> Integers64:
        """Code of the pair of blocks of each pair of zones."""
        codes = self.zones.block_codes
        return np.add.outer(codes * (int(codes.max()) + 1), codes).ravel()

    def between_blocks(self, shares: Floats) -> Floats:
        """Shares of pairs of blocks, the sums of those of pairs of zones; one row per row."""
        codes = self.zones.block_codes
        members = np.equal.outer(codes, np.arange(int(codes.max()) + 1)).astype(np.float64)
        table = shares.reshape(*shares.shape[:-1], len(codes), len(codes))
        return (members.T @ table @ members).reshape(*shares.shape[:-1], -1)

    @cached_property
    def nearest(self) -> Floats:
        """Lower bound on each pair's distance to the nearest other one: one end moves."""
        alone = self.zones.nearest
        return np.minimum.outer(alone, alone).ravel()

    @property
    def diameter(self) -> float:
        """Largest distance of two pairs: both ends move as far as possible."""
        return 2.0 * self.zones.diameter


class ChordSum(Metric):
    """Sum of the straight lines between the starts and between the ends of two trips.

    Straight lines are never longer than the ground (`Chord`), so neither is their sum.
    """

    kind: Literal["chord-sum"] = "chord-sum"
    unit: Literal["m", "km"] = "m"

    def __init__(self, unit: str = "m", **fields: object) -> None:
        FrozenModel.__init__(self, unit=unit, **fields)

    @property
    def measures(self) -> frozenset[str]:
        return frozenset({POINTS_ARE})

    def unit_of(self, unit: str) -> str:
        return self.unit

    def pairwise(self, points_a: object, points_b: object) -> Floats:
        first = finite_points(points_a, 4)
        second = finite_points(points_b, 4)
        chord = Chord(self.unit)
        return chord.pairwise(first[:, :2], second[:, :2]) + chord.pairwise(
            first[:, 2:], second[:, 2:]
        )


def _ends_of(values: object) -> Source:
    """Trips as an array of two columns of ids, or four of degrees."""
    try:
        source = values if isinstance(values, np.ndarray) else np.array(values, dtype=object)
    except ValueError:  # rows of different lengths
        source = np.array(None, dtype=object)
    if source.shape == (0,):
        source = source.reshape(0, 2)
    if source.ndim != 2 or source.shape[1] not in (2, 4):
        raise InputError(
            "a trip is a pair of ids of zones, such as ('a', 'b'), or four degrees: latitude and "
            "longitude of its start, latitude and longitude of its end."
        )
    return source
