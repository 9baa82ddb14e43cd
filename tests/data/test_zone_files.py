"""Files of zones: GeoJSON, GeoParquet by hand-written WKB, tables of points, and bad files."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.catalogue.invented_zones import quad_zones, quads

import metricshuffle as ms
from metricshuffle.data.zone_files import geometry_of, read_zones
from metricshuffle.errors import InputError

RING = [[0.0, 0.0], [1.0, 0.0], [1.0, 1.0], [0.0, 0.0]]


def polygon_bytes(
    rings: Any, order: str = "<", code: int = 3, more: tuple[float, ...] = ()
) -> bytes:
    """A polygon in well-known binary; `more` are the further coordinates of every corner."""
    parts = [struct.pack(f"{order}BII", order == "<", code, len(rings))]
    for ring in rings:
        parts.append(struct.pack(f"{order}I", len(ring)))
        parts += [struct.pack(f"{order}{2 + len(more)}d", *corner, *more) for corner in ring]
    return b"".join(parts)


def test_well_known_binary() -> None:
    expected = {"type": "Polygon", "coordinates": [RING]}
    assert geometry_of(polygon_bytes([RING])) == expected
    assert geometry_of(polygon_bytes([RING], ">")) == expected
    assert geometry_of(polygon_bytes([RING], code=1003, more=(7.0,))) == expected
    assert geometry_of(polygon_bytes([RING], code=3003, more=(7.0, 8.0))) == expected
    assert geometry_of(polygon_bytes([RING], code=0x80000003, more=(7.0,))) == expected
    referenced = struct.pack("<BII", 1, 0x20000003, 4326) + polygon_bytes([RING])[5:]
    assert geometry_of(referenced) == expected
    both = struct.pack("<BII", 1, 6, 2) + polygon_bytes([RING]) + polygon_bytes([RING], ">")
    assert geometry_of(both) == {"type": "MultiPolygon", "coordinates": [[RING], [RING]]}
    assert geometry_of(None) is None
    for damaged in (polygon_bytes([RING])[:-3], b"\x01", b""):
        with pytest.raises(InputError, match="ends too early"):
            geometry_of(damaged)
    with pytest.raises(InputError, match="must be well-known binary"):
        geometry_of("POLYGON EMPTY")


def geoparquet(file: Path, **described: Any) -> Path:
    pyarrow = pytest.importorskip("pyarrow")
    features = quads()["features"]
    columns = {
        name: [each["properties"][name] for each in features] for name in ("tract", "residents")
    }
    columns["shape"] = [polygon_bytes(each["geometry"]["coordinates"]) for each in features]
    about = {
        "version": "1.1.0",
        "primary_column": "shape",
        "columns": {"shape": {"encoding": "WKB", **described}},
    }
    table = pyarrow.table(columns).replace_schema_metadata({"geo": json.dumps(about)})
    pyarrow.parquet.write_table(table, file)
    return file


def test_a_geoparquet_file_has_the_same_zones_as_geojson(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow.parquet")
    file = geoparquet(tmp_path / "tracts.parquet")
    assert read_zones(file, "tract", weights="residents") == quad_zones()
    text = tmp_path / "tracts.json"
    text.write_text(json.dumps(quads()))
    assert read_zones(text, "tract", weights="residents") == quad_zones()
    flat = geoparquet(tmp_path / "flat.parquet", crs={"id": {"authority": "EPSG", "code": 3857}})
    with pytest.raises(InputError, match="another system than degrees"):
        read_zones(flat, "tract")
    other = geoparquet(tmp_path / "arrow.parquet", encoding="polygon")
    with pytest.raises(InputError, match="write them as WKB"):
        read_zones(other, "tract")


def test_a_table_of_points(tmp_path: Path) -> None:
    file = tmp_path / "stations.csv"
    file.write_text("id;latitude;longitude;trips\n007;46.9;7.4;10\nb;46.95;7.45;20\n")
    zones = read_zones(file, "id", weights="trips", unit="km")
    assert zones.ids == ("007", "b")
    assert zones.weights == (10.0, 20.0)
    assert zones == ms.Zones.of_points(
        ["007", "b"], [46.9, 46.95], [7.4, 7.45], [10, 20], unit="km"
    )
    named = tmp_path / "named.csv"
    named.write_text("id,y,x\na,46.9,7.4\nb,46.95,7.45\n")
    assert len(read_zones(named, "id", point=("y", "x")).ids) == 2


@pytest.mark.parametrize(
    ("text", "call", "sentence"),
    [
        ("id,latitude,longitude\na,1,2\na,3,4\n", {}, "the id 'a' belongs to more than one zone"),
        (
            "id,latitude,longitude\na,1,2\nb,x,4\n",
            {},
            "row 1 (counting from 0) of column 'latitude'",
        ),
        ("id,latitude,longitude\na,1,2\nb,,4\n", {}, "is missing: None"),
        ("id,lat,lon\na,1,2\nb,3,4\n", {}, "has no column 'latitude'"),
        ("zone,latitude,longitude\na,1,2\n", {}, "has no column 'id'"),
        ("id,latitude,longitude\na,1,2\nb,3,4\n", {"weights": "n"}, "has no column 'n'"),
        ('{"type": "FeatureCollection"', {}, "it is not JSON"),
    ],
)
def test_a_bad_file_is_refused(
    text: str, call: dict[str, Any], sentence: str, tmp_path: Path
) -> None:
    file = tmp_path / "zones.csv"
    file.write_text(text)
    with pytest.raises(InputError) as error:
        read_zones(file, "id", **call)
    assert sentence in str(error.value)


def test_values_are_ids_or_places(tmp_path: Path) -> None:
    """Columns of a table: one with ids, or two with places, which become ids."""
    zones = quad_zones()
    query = ms.Histogram(zones)
    plan = ms.plan(query, ms.Target(2.0, 1e-6, 5000.0), 24)
    table: dict[str, list[Any]] = {
        "tract": [*zones.ids, *zones.ids],
        "lat": [*zones.degrees[:, 0], *zones.degrees[:, 0]],
        "lon": [*zones.degrees[:, 1], *zones.degrees[:, 1]],
    }
    seen = Randomized(plan)
    assert seen(table, column="tract") == seen(table, column=["lat", "lon"])
    assert seen(list(zones.ids) * 2) == seen(table, column="tract")
    outside = {**table, "lat": [0.0, *table["lat"][1:]], "tract": ["?", *table["tract"][1:]]}
    for columns, sentence in (
        (["lat", "lon"], "lies outside all zones"),
        (["tract"], "is not one of the zones"),
        (["tract", "lat", "lon"], "zones need one column"),
    ):
        with pytest.raises(InputError) as error:
            seen(outside, column=columns)
        assert sentence in str(error.value)
    assert sum(seen(outside, column="tract", drop_outside=True)) == 23
    assert sum(seen(outside, column=["lat", "lon"], drop_outside=True)) == 23
    assert sum(seen(outside, column=["lat", "lon"], clamp=True)) == 24


class Randomized:
    """Exact number of people in each zone, as the reader counts them."""

    def __init__(self, plan: ms.Plan) -> None:
        self.plan = plan

    def __call__(self, values: Any, **reading: Any) -> list[int]:
        import warnings

        import numpy as np

        from metricshuffle.data.query_values import join_parts, parts_of

        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            read: Callable[..., Any] = parts_of
            joined = join_parts(read(self.plan.query, values, **reading))
        clamp = bool(reading.get("clamp")) and np.ndim(joined) > 1
        codes = self.plan.query.inputs(joined, 1.0, clamp=clamp).numbers[:, 0]
        return [int(count) for count in np.bincount(codes, minlength=12)]
