"""Files of zones: polygons in GeoJSON or GeoParquet, or a table of points."""

from __future__ import annotations

import json
import struct
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from metricshuffle.data.cell_parsing import cell_problem
from metricshuffle.data.source import ColumnRequest
from metricshuffle.data.source_files import PARQUET, open_columns
from metricshuffle.errors import InputError, argument, require
from metricshuffle.files import is_stream, open_bytes
from metricshuffle.models import format_value
from metricshuffle.spaces import Zones

Geometry = dict[str, object]
"""GeoJSON geometry."""
POINT_COLUMNS = ("latitude", "longitude")
GEOMETRY_NAMES = {3: "Polygon", 6: "MultiPolygon"}
EXTENDED_FLAGS = {0x80000000: "height", 0x40000000: "measure", 0x20000000: "reference system"}
"""Flags of a geometry's type in extended WKB."""


def read_zones(
    path: str | Path,
    name: str,
    *,
    point: tuple[str, str] | None = None,
    weights: str | None = None,
    unit: str = "m",
    blocks: str | None = None,
) -> Zones:
    """Read zones from a file; the format is detected by its first bytes.

    Args:
        path: GeoJSON or GeoParquet with polygons, or a table (CSV or Parquet) of points.
        name: column or property with the id of a zone.
        point: columns with the latitude and longitude of its representative point; by default
            a point inside the polygon, or the columns latitude and longitude of a table.
        weights: column with public weights, such as residents.
        blocks: column with the name of the block that a zone belongs to, for flows.
    """
    file = Path(path)
    if is_stream(file):
        raise InputError(f"{argument('zones')} must be a file, not a pipe; save it first.")
    with open_bytes(file) as stream:
        head = stream.read(64)
    if head.lstrip(b"\xef\xbb\xbf \t\r\n").startswith(b"{"):
        return Zones.geojson(file, name, point, weights, unit=unit, blocks=blocks)
    geometry = _geometry_column(file) if head.startswith(PARQUET) else None
    requests = [ColumnRequest(name, "zone_column")]
    requests += [] if blocks is None else [ColumnRequest(blocks, "blocks")]
    places = point if point is not None or geometry is not None else POINT_COLUMNS
    requests += [ColumnRequest(column, "zone_point") for column in places or ()]
    requests += [] if weights is None else [ColumnRequest(weights, "weights")]
    requests += [] if geometry is None else [ColumnRequest(geometry, "zones")]
    table = _columns(file, requests, 1 if blocks is None else 2)
    ids = table.pop(0)
    known_blocks = None if blocks is None else table.pop(0)
    points = None
    if places is not None:
        points = [
            _numbers(file, column, cells) for column, cells in zip(places, table, strict=False)
        ]
        table = table[2:]
    known_weights = None if weights is None else _numbers(file, weights, table.pop(0))
    if geometry is None:
        assert points is not None  # noqa: S101 - a table of points has their columns
        return Zones.of_points(
            ids, points[0], points[1], known_weights, unit=unit, blocks=known_blocks
        )
    pairs = None if points is None else list(zip(*points, strict=True))
    geometries = [geometry_of(cell) for cell in table[0]]
    return Zones.of_polygons(ids, geometries, pairs, known_weights, unit=unit, blocks=known_blocks)


def _columns(file: Path, requests: Sequence[ColumnRequest], names: int) -> list[list[object]]:
    """Read whole columns: the first `names` as written, the others as numbers if possible."""
    columns: list[list[object]] = [[] for _ in requests]
    for chunk in open_columns(file, requests).chunks():
        for column, texts in zip(columns[:names], chunk.cells[:names], strict=True):
            column.extend(texts)
        for column, cells in zip(columns[names:], chunk.columns[names:], strict=True):
            column.extend(cells.tolist())
    return columns


def _numbers(file: Path, column: str, cells: list[object]) -> list[float]:
    numbers = []
    for row, cell in enumerate(cells):
        if isinstance(cell, bool) or not isinstance(cell, int | float) or not np.isfinite(cell):
            problem = cell_problem(cell)
            why = "is not a number" if problem is None else problem.reason
            raise InputError(
                f"row {row} (counting from 0) of column {column!r} of {file} {why}: "
                f"{format_value(cell)}; correct the file of zones."
            )
        numbers.append(float(cell))
    return numbers


def _geometry_column(file: Path) -> str | None:
    """Geometry column of a GeoParquet file; None for a Parquet file without geometries."""
    metadata = require("pyarrow.parquet", "tables").read_schema(file).metadata or {}
    if b"geo" not in metadata:
        return None
    content = json.loads(metadata[b"geo"])
    name = str(content.get("primary_column", "geometry"))
    described = content.get("columns", {}).get(name, {})
    if described.get("encoding", "WKB") != "WKB":
        raise InputError(
            f"the geometries of {file} are encoded as {described['encoding']}; write them as WKB."
        )
    system = described.get("crs")
    if system is not None and not any(word in json.dumps(system) for word in ("CRS84", "4326")):
        raise InputError(
            f"{file} has coordinates in another system than degrees; convert them to WGS84 "
            "(EPSG:4326)."
        )
    return name


def geometry_of(data: object) -> Geometry | None:
    """Convert a Polygon or MultiPolygon in well-known binary (WKB) to GeoJSON; None if empty."""
    if data is None:
        return None
    if not isinstance(data, bytes):
        raise InputError(f"a geometry must be well-known binary, got {format_value(data)}.")
    try:
        geometry, _ = _read_geometry(data, 0)
    except (struct.error, ValueError, IndexError):
        raise InputError(
            f"a geometry in column {argument('zones')} is damaged: it ends too early."
        ) from None
    return geometry


def _read_geometry(data: bytes, start: int) -> tuple[Geometry, int]:
    """Geometry that begins at an offset, and the offset of its end."""
    order = "<" if data[start] == 1 else ">"
    (code,) = struct.unpack_from(f"{order}I", data, start + 1)
    offset = start + 5 + (4 if code & 0x20000000 else 0)
    flags = sum(flag for flag in EXTENDED_FLAGS if code & flag)
    thousands, kind = divmod(code - flags, 1000)
    numbers = 2 + bool(code & 0x80000000) + bool(code & 0x40000000) + (0, 1, 1, 2)[thousands]
    name = GEOMETRY_NAMES.get(kind, f"geometry of type {kind}")
    (count,) = struct.unpack_from(f"{order}I", data, offset)
    offset += 4
    parts: list[object] = []
    if name not in GEOMETRY_NAMES.values():
        return {"type": name, "coordinates": parts}, offset
    for _ in range(count):
        if name == "MultiPolygon":
            polygon, offset = _read_geometry(data, offset)
            parts.append(polygon["coordinates"])
            continue
        (corners,) = struct.unpack_from(f"{order}I", data, offset)
        offset += 4
        ring = np.frombuffer(data, dtype=f"{order}f8", count=corners * numbers, offset=offset)
        parts.append(ring.reshape(corners, numbers)[:, :2].tolist())
        offset += ring.nbytes
    return {"type": name, "coordinates": parts}, offset
