"""Domain of zones on a map: cells of H3 or S2, polygons, or a list of named points."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Literal, Self

import numpy as np
from pydantic import SerializerFunctionWrapHandler, model_serializer, model_validator

from metricshuffle.errors import DomainError, InputError, MissingExtra, WrongRows, argument
from metricshuffle.files import read_text
from metricshuffle.models import FrozenModel, content_digest, format_value, parse_json
from metricshuffle.numerics.types import Floats, Integers64
from metricshuffle.spaces.array_input import as_floats, as_source, raise_domain_error, width_of
from metricshuffle.spaces.cell_systems import SYSTEMS, h3_cells_in
from metricshuffle.spaces.chord import earth_centred
from metricshuffle.spaces.domains import Domain
from metricshuffle.spaces.geographic_box import Box
from metricshuffle.spaces.grid import METRES
from metricshuffle.spaces.places import COORDINATE_ERROR
from metricshuffle.spaces.polygons import (
    POINTS_IN_DEGREE,
    Shape,
    containing,
    feature_property,
    inner_point,
    numeric_property,
    rings_in_degrees,
    shape_of,
    whole_degrees,
)
from metricshuffle.spaces.shape_overlaps import check_overlaps
from metricshuffle.spaces.zone_sizes import largest_cell, largest_reach

if TYPE_CHECKING:
    from scipy.spatial import cKDTree

MAX_ZONES = 2**14
MAX_CORNERS = 500_000
"""Corners of all polygons together: they are part of every task."""
NO_BORDERS = (
    "these zones are points without borders, so a place has no zone; give the ids of zones."
)
PropertyReader = Callable[[str, int, object, str, str], object]
PLACE_REMEDY = "A place is (latitude, longitude) in degrees; correct or leave out such rows."


class Zones(Domain):
    """Zones of a map, each with an id and a representative point inside it.

    The distance of two zones is that of their representative points: metres on the ground, of which
    the straight line between the points is a lower bound (`Chord`). A value is the id of a zone, or
    a place (latitude, longitude), which is replaced by its zone before anything is sent. Zones are
    sorted by id. Coordinates are whole numbers of 10^-7 degrees; `weights` are public numbers, such
    as residents, that shares are expected to resemble; `blocks` names the block of each zone, whose
    flows get intervals; `radius` is an upper bound on the distance in metres between a place and
    the representative point of its zone.
    """

    points_are: ClassVar[str] = "places"
    clamped_to: ClassVar[str] = "the zone of the nearest point"
    kind: Literal["zones"] = "zones"
    ids: tuple[str, ...]
    latitudes: tuple[int, ...]
    longitudes: tuple[int, ...]
    weights: tuple[float, ...] | None = None
    shapes: tuple[Shape, ...] | None = None
    cells: Literal["", "h3", "s2"] = ""
    """System of cells whose library finds the zone of a place."""
    radius: float | None = None
    unit: str = "m"
    blocks: tuple[str, ...] | None = None

    def __init__(
        self,
        ids: object,
        latitudes: object,
        longitudes: object,
        weights: object = None,
        shapes: object = None,
        blocks: object = None,
        **fields: object,
    ) -> None:
        columns = {
            "ids": ids,
            "latitudes": latitudes,
            "longitudes": longitudes,
            "weights": weights,
            "shapes": shapes,
            "blocks": blocks,
        }
        FrozenModel.__init__(self, **_sorted_columns(columns), **fields)

    @model_serializer(mode="wrap")
    def _without_no_blocks(self, handler: SerializerFunctionWrapHandler) -> dict[str, object]:
        # Tasks from before `blocks` existed have a digest of this dictionary.
        written: dict[str, object] = handler(self)
        if self.blocks is None:
            written.pop("blocks", None)
        return written

    @model_validator(mode="after")
    def _are_zones(self) -> Self:
        count = len(self.ids)
        if not 2 <= count <= MAX_ZONES:
            raise InputError(
                f"there must be 2 to {MAX_ZONES:,} zones, got {count:,}; take larger zones, or "
                "a part of the map"
            )
        if not all(
            len(column) == count
            for column in (self.latitudes, self.longitudes, self.weights, self.shapes, self.blocks)
            if column is not None
        ):
            raise InputError(
                f"every one of {count:,} zones needs a latitude and a longitude, and a weight and "
                "a block if others have one"
            )
        if "" in self.ids:
            raise InputError("every zone needs an id, but one has none; name all zones")
        twice = [name for name, times in Counter(self.ids).items() if times > 1]
        if twice:
            raise InputError(
                f"the id {format_value(twice[0])} belongs to more than one zone"
                f"{f', and so do {len(twice) - 1:,} more' * (len(twice) > 1)}; merge such zones, "
                "or give each its own id"
            )
        for name, latitude, longitude in zip(
            self.ids, self.latitudes, self.longitudes, strict=True
        ):
            whole_degrees(name, latitude / POINTS_IN_DEGREE, longitude / POINTS_IN_DEGREE)
        self._check_apart()
        self._check_numbers()
        return self

    def _check_apart(self) -> None:
        """Raise if two zones have the same representative point."""
        seen: dict[tuple[int, int], str] = {}
        for name, *point in zip(self.ids, self.latitudes, self.longitudes, strict=True):
            turn = 360 * POINTS_IN_DEGREE  # longitudes -180 and 180 are the same
            earlier = seen.setdefault((point[0], point[1] % turn), name)
            if earlier != name:
                raise InputError(
                    f"zones {format_value(earlier)} and {format_value(name)} have the same "
                    "representative point, so nothing may tell them apart; merge them, or give "
                    "other points"
                )

    def _check_numbers(self) -> None:
        if self.unit not in METRES:
            raise InputError(
                f"{argument('unit')} must be 'm' or 'km', got {format_value(self.unit)}"
            )
        if self.radius is not None and not 0.0 <= self.radius < math.inf:
            raise InputError(f"radius must be a finite number >= 0, got {self.radius!r}")
        if self.weights is not None and not (
            all(0.0 <= weight < math.inf for weight in self.weights) and sum(self.weights) > 0.0
        ):
            raise InputError(
                f"{argument('weights')} must be numbers >= 0, and not all 0: public numbers such "
                "as residents"
            )
        if self.blocks is not None and ("" in self.blocks or len(set(self.blocks)) < 2):
            raise InputError(
                f"{argument('blocks')} must name the block of every zone, and at least two "
                "different ones"
            )
        if self.shapes is not None:
            rings = [ring for shape in self.shapes for polygon in shape for ring in polygon]
            if not all(self.shapes) or not all(
                len(ring) % 2 == 0 and len(ring) >= 6 for ring in rings
            ):
                raise InputError("every polygon needs rings of at least three corners")
            if sum(map(len, rings)) > 2 * MAX_CORNERS:
                raise InputError(
                    f"the polygons have {sum(map(len, rings)) // 2:,} corners, and every task "
                    f"would contain them; simplify them to at most {MAX_CORNERS:,} corners, or "
                    "give the zones as a table of points"
                )

    # Constructors

    @classmethod
    def of_points(
        cls,
        ids: Iterable[object],
        latitudes: Iterable[object],
        longitudes: Iterable[object],
        weights: Iterable[object] | None = None,
        *,
        unit: str = "m",
        blocks: Iterable[object] | None = None,
    ) -> Self:
        """Zones from their ids and points in degrees; only ids are values of such zones."""
        names = _texts(ids)
        columns = [list(latitudes), list(longitudes)]
        _check_lengths(names, *columns)
        pairs = [_degrees(*row) for row in zip(names, *columns, strict=True)]
        return cls(
            names,
            [latitude for _, latitude in pairs],
            [longitude for longitude, _ in pairs],
            weights,
            unit=unit,
            blocks=None if blocks is None else _texts(blocks),
        )

    @classmethod
    def of_polygons(
        cls,
        ids: Iterable[object],
        geometries: Sequence[object],
        points: Sequence[tuple[object, object]] | None = None,
        weights: Iterable[object] | None = None,
        *,
        unit: str = "m",
        blocks: Iterable[object] | None = None,
    ) -> Self:
        """Zones from GeoJSON geometries (Polygon, MultiPolygon).

        `points` are their representative points (latitude, longitude) in degrees; without them, a
        point inside each polygon is taken.
        """
        names = _texts(ids)
        _check_lengths(names, geometries, geometries if points is None else points)
        shapes = [shape_of(*row) for row in zip(names, geometries, strict=True)]
        chosen = [inner_point(shape) for shape in shapes]
        check_overlaps(names, shapes, chosen)
        if points is not None:
            chosen = [_degrees(name, *point) for name, point in zip(names, points, strict=True)]
        return cls(
            names,
            [latitude for _, latitude in chosen],
            [longitude for longitude, _ in chosen],
            weights,
            shapes,
            radius=largest_reach(shapes, chosen),
            unit=unit,
            blocks=None if blocks is None else _texts(blocks),
        )

    @classmethod
    def geojson(
        cls,
        path: str | Path,
        name: str,
        point: tuple[str, str] | None = None,
        weights: str | None = None,
        *,
        unit: str = "m",
        blocks: str | None = None,
    ) -> Self:
        """Zones from a GeoJSON file of polygons.

        Args:
            name: property with the id of a zone.
            point: properties with the latitude and longitude of its representative point; by
                default a point inside it is taken.
            weights: property with public weights, such as residents.
            blocks: property with the name of the block that a zone belongs to.
        """
        title = str(path)
        content = parse_json(read_text(path), f"a GeoJSON file ({title})")
        features = content.get("features") if isinstance(content, dict) else None
        if not isinstance(features, list) or not features:
            raise InputError(
                f"{title} has no features; zones are a GeoJSON FeatureCollection of polygons."
            )
        system = content.get("crs")
        if system is not None and not any(word in str(system) for word in ("CRS84", "4326")):
            raise InputError(
                f"{title} has coordinates in {format_value(str(system))}; convert them to "
                "degrees (WGS84, EPSG:4326)."
            )

        def column(key: str, option: str, read: PropertyReader = feature_property) -> list[object]:
            return [read(title, place, each, key, option) for place, each in enumerate(features)]

        places = None
        if point is not None:
            latitudes, longitudes = (column(key, "point") for key in point)
            places = list(zip(latitudes, longitudes, strict=True))
        return cls.of_polygons(
            column(name, "name"),
            [feature.get("geometry") for feature in features],
            places,
            None if weights is None else column(weights, "weights", numeric_property),
            unit=unit,
            blocks=None if blocks is None else column(blocks, "blocks"),
        )

    @classmethod
    def h3(
        cls, cells: Iterable[str], weights: Iterable[object] | None = None, *, unit: str = "m"
    ) -> Self:
        """Cells of H3 of one resolution, by their ids (extra `h3`); points are their centres."""
        return cls._of_cells("h3", list(cells), weights, unit)

    @classmethod
    def h3_box(cls, resolution: int, box: Box | Sequence[float], *, unit: str = "m") -> Self:
        """Cells of H3 whose centres lie in a box (south, west, north, east) of degrees."""
        area = box if isinstance(box, Box) else Box(*box)
        return cls.h3(h3_cells_in(resolution, area, MAX_ZONES), unit=unit)

    @classmethod
    def s2(
        cls, tokens: Iterable[str], weights: Iterable[object] | None = None, *, unit: str = "m"
    ) -> Self:
        """Cells of S2 of one level, by their tokens (extra `s2`); points are their centres."""
        return cls._of_cells("s2", list(tokens), weights, unit)

    @classmethod
    def _of_cells(
        cls, name: str, cells: list[str], weights: Iterable[object] | None, unit: str
    ) -> Self:
        """Zones of cells whose borders are great circles.

        Their farthest places are corners: distances from a point of a sphere are convex along great
        circles within a quarter of it.
        """
        ids = _texts(cells)
        if not ids:
            raise InputError("there are no cells; name at least two.")
        system = SYSTEMS[name](ids)
        centres = [system.centre(cell) for cell in ids]
        pairs = [whole_degrees(cell, *place) for cell, place in zip(ids, centres, strict=True)]
        return cls(
            ids,
            [latitude for _, latitude in pairs],
            [longitude for longitude, _ in pairs],
            weights,
            cells=name,
            radius=largest_cell(system, ids, centres),
            unit=unit,
        )

    def check_claims(self) -> None:
        """Raise InputError if places may be farther from the points of their zones than `radius`.

        The borders of cells of H3 and S2 are known only where their library is installed.
        """
        if self.shapes is not None:
            least = largest_reach(
                self.shapes, list(zip(self.longitudes, self.latitudes, strict=True))
            )
        elif self.cells:
            try:
                system = SYSTEMS[self.cells](self.ids)
            except MissingExtra:
                return
            # Points are rounded to 10^-7 degrees, so that the bound may be one metre larger.
            least = largest_cell(system, self.ids, self.degrees.tolist()) - 1.0
        else:
            return
        if self.radius is None or not self.radius >= least:
            stated = "nothing" if self.radius is None else f"{self.radius:g} m"
            raise InputError(
                f"places are up to {least:g} m away from the point of their zone, but radius says "
                f"{stated}."
            )

    # Description

    def __str__(self) -> str:
        listed = ", ".join(self.ids[:3]) + (", ..." if len(self.ids) > 3 else "")
        return f"the {len(self.ids):,} zones ({listed})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Zones) and (self is other or self.digest == other.digest)

    def __hash__(self) -> int:
        return hash((self.kind, self.digest))

    @cached_property
    def digest(self) -> str:
        """SHA-256 of the sorted list of zones, with everything that belongs to them."""
        return content_digest(self.model_dump(mode="json"))

    # Values

    @cached_property
    def _codes(self) -> dict[str, int]:
        return {name: code for code, name in enumerate(self.ids)}

    def validated(self, values: object) -> Integers64:
        """Codes of ids, or of places (latitude, longitude) in degrees."""
        if width_of(values) is not None:
            return self.zones_at(values)
        source = as_source(values, None)
        known = self._codes
        codes = np.array(
            [known.get(value, -1) if isinstance(value, str) else -1 for value in source],
            dtype=np.int64,
        )
        self._check_known(
            codes,
            [format_value(value) for value in source[codes < 0][:1]],
            "is not the id of a zone",
        )
        return codes

    def clamped(self, values: object) -> Integers64:
        """Like `validated`, but a place outside all zones gets the zone of the nearest point."""
        if width_of(values) is None:
            raise InputError(
                "ids of zones have no order, so none is the nearest; correct such values."
            )
        return self.zones_at(values, clamp=True)

    def zones_at(self, places: object, *, clamp: bool = False) -> Integers64:
        """Codes of the zones that contain places (latitude, longitude) in degrees.

        Places outside all zones raise DomainError unless clamped to the nearest point of a zone.
        """
        source = as_source(places, 2)
        degrees = as_floats(source)
        raise_domain_error(
            source,
            ~(np.abs(degrees) <= (90.0, 180.0)),
            "the places of the Earth",
            lambda _: "is not a latitude within +-90 and a longitude within +-180 degrees",
            "Check the order: latitude comes first.",
        )
        codes = self._located(degrees)
        outside = codes < 0
        if clamp and outside.any():
            codes[outside] = self.tree.query(earth_centred(degrees[outside]))[1]
        self._check_known(
            codes,
            [format_value(row) for row in source[codes < 0][:1]],
            "lies outside all zones",
            in_a_zone=True,
        )
        return codes

    def _located(self, degrees: Floats) -> Integers64:
        """Code of the zone of each place; -1 outside all zones."""
        if self.shapes is not None:
            points = np.rint(degrees[:, ::-1] * POINTS_IN_DEGREE).astype(np.int64)
            return containing(self.shapes, points)
        if not self.cells:
            raise InputError(NO_BORDERS)
        cell_at = SYSTEMS[self.cells](self.ids).cell_at
        return np.array(
            [self._codes.get(cell_at(*place), -1) for place in degrees.tolist()], dtype=np.int64
        )

    def _check_known(
        self, codes: Integers64, first: list[str], why: str, *, in_a_zone: bool = False
    ) -> None:
        """Raise DomainError if some codes are -1."""
        rows = np.flatnonzero(codes < 0)
        if not len(rows):
            return
        error = DomainError(
            f"{len(rows):,} of {len(codes):,} values {'is' if len(rows) == 1 else 'are'} not in "
            f"{self}; the first is row {rows[0]} (counting from 0): {first[0]} {why}. "
            f"{PLACE_REMEDY if in_a_zone else 'Correct the rows or add the zone.'}"
        )
        error.where = WrongRows(rows.tolist(), str(self), lambda _: why, lambda _: in_a_zone)
        raise error

    # Points

    @cached_property
    def degrees(self) -> Floats:
        """Representative points (latitude, longitude) in degrees."""
        return np.column_stack([self.latitudes, self.longitudes]).astype(np.float64) / float(
            POINTS_IN_DEGREE
        )

    @cached_property
    def block_codes(self) -> Integers64:
        """Code of each zone's block, in the order of names; without blocks, zones are blocks."""
        names = self.ids if self.blocks is None else self.blocks
        return np.unique(names, return_inverse=True)[1].astype(np.int64).ravel()

    @cached_property
    def tree(self) -> cKDTree:
        """Search tree of the representative points, in metres from the centre of the Earth."""
        from scipy.spatial import cKDTree

        return cKDTree(earth_centred(self.degrees))

    @cached_property
    def nearest(self) -> Floats:
        """Lower bound on each zone's distance to the nearest other one, in units."""
        apart = np.asarray(self.tree.query(self.tree.data, k=2)[0])[:, 1]
        lower: Floats = (apart - 2.0 * COORDINATE_ERROR) * (1.0 - 1e-12) / METRES[self.unit]
        return lower

    @cached_property
    def diameter(self) -> float:
        """Largest straight-line distance of two representative points, in units, rounded up.

        Each end of the longest line is at least the line's length, minus the radius of all points,
        away from the mean of the points.
        """
        from scipy.spatial.distance import cdist

        points = np.asarray(self.tree.data)
        out = np.linalg.norm(points - points.mean(axis=0), axis=1)
        start = points[np.argmax(out)]
        longest = float(np.linalg.norm(points - start, axis=1).max())
        outer = points[out >= longest - float(out.max()) - 1.0]
        longest = max(
            float(cdist(outer[first : first + 256], outer).max())
            for first in range(0, len(outer), 256)
        )
        return (longest + 2.0 * COORDINATE_ERROR) * (1.0 + 1e-12) / METRES[self.unit]

    def points(self, validated: Integers64 | Floats) -> Floats:
        """Representative points (latitude, longitude) of codes."""
        return self.degrees[np.asarray(validated, dtype=np.int64)]

    def extremes(self) -> Integers64:
        return self.all_values()

    @property
    def size(self) -> int | None:
        return len(self.ids)

    def all_values(self) -> Integers64:
        return np.arange(len(self.ids), dtype=np.int64)

    def contains(self, value: object) -> bool:
        """Whether one id, or one place, lies in a zone."""
        try:
            self.validated([value])
        except (InputError, TypeError):
            return False
        return True

    def borders(self) -> list[list[list[Floats]]]:
        """Polygons of every zone as closed rings (longitude, latitude); none for points.

        The polygons of cells of H3 and S2 need the library of these cells.
        """
        if self.shapes is not None:
            return [rings_in_degrees(shape) for shape in self.shapes]
        if not self.cells:
            return []
        border = SYSTEMS[self.cells](self.ids).border
        rings = [np.array(border(name), dtype=np.float64)[:, ::-1] for name in self.ids]
        return [[[np.concatenate([ring, ring[:1]])]] for ring in rings]


def _sorted_columns(columns: Mapping[str, object]) -> dict[str, object]:
    """Columns in the order of the ids; unchanged if they do not fit together."""
    listed = {
        name: None if column is None else list(column)
        for name, column in columns.items()
        if column is None or isinstance(column, Iterable)
    }
    ids = listed.get("ids")
    if len(listed) < len(columns) or ids is None or not all(isinstance(name, str) for name in ids):
        return dict(columns)
    if any(column is not None and len(column) != len(ids) for column in listed.values()):
        return dict(listed)
    order = sorted(range(len(ids)), key=ids.__getitem__)
    return {
        name: None if column is None else [column[place] for place in order]
        for name, column in listed.items()
    }


def _texts(ids: Iterable[object]) -> list[str]:
    """Ids as text without surrounding blanks; whole numbers are written without a point."""
    return ["" if name is None else str(name).strip() for name in ids]


def _check_lengths(names: Sequence[str], *columns: Sequence[object]) -> None:
    if any(len(column) != len(names) for column in columns):
        raise InputError(f"{len(names):,} zones need as many polygons or points.")


def _degrees(name: str, latitude: object, longitude: object) -> tuple[int, int]:
    """(longitude, latitude) in whole numbers; numbers may be written as text, as "+30.27"."""
    try:
        parts = [
            float(part)
            for part in (latitude, longitude)
            if isinstance(part, str | int | float | np.number) and not isinstance(part, bool)
        ]
    except ValueError:
        parts = []
    if len(parts) != 2:
        raise InputError(
            f"the point of zone {format_value(name)} must be a latitude and a longitude in "
            f"degrees, got {format_value(latitude)} and {format_value(longitude)}."
        )
    return whole_degrees(name, *parts)
