"""Export of releases for other programs: CSV for every answer, GeoJSON for places on a map."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np

from metricshuffle.errors import InputError
from metricshuffle.numerics.types import Floats
from metricshuffle.queries import Answer
from metricshuffle.queries.cell_table import places_of
from metricshuffle.queries.result_table import Table, plain_value
from metricshuffle.report.charts.answer_charts import zero_inside
from metricshuffle.spaces import Grid, Places, ZonePairs, Zones
from metricshuffle.tasks.release import Release

Columns = dict[str, list[Any]]
Feature = dict[str, object]
"""A GeoJSON feature."""
CORNERS = (("south_west", 0, 0), ("south_east", 1, 0), ("north_east", 1, 1), ("north_west", 0, 1))
"""Corners of a cell, counter-clockwise, each with its column and row offset."""
FORMULA_PREFIXES = ("=", "+", "-", "@", "'", "\uff1d", "\uff0b", "\uff0d", "\uff20")
"""Prefixes of texts that spreadsheets evaluate (also full-width), and their escape character."""
PLAIN_NUMBER = re.compile(r"[+-]?[0-9]+([.,][0-9]+)?([eE][+-]?[0-9]+)?")
DEGREE_DECIMALS = 9  # of a degree in GeoJSON: a tenth of a millimetre
PLACE_COLUMNS = (
    "label",
    "zone",
    "from",
    "to",
    "from_block",
    "to_block",
    "at",
    "latitude",
    "longitude",
    "low",
    "high",
)
"""Columns of a table that say where its rows are."""


def answer_columns(release: Release, level: float = 0.95) -> Columns:
    """Return the answer as columns, with one row per cell, bin, label, mean or number.

    Places on a map are in degrees. The interval has the given `level`; its columns are low_95 and
    high_95 for 0.95. `zero_inside` says whether the interval of a share or a mean contains zero.
    Instead of the interval, smoothed shares have the columns at_most_95, nearby, nearby_low_95 and
    nearby_high_95.
    """
    answer = release.query.answer(release.estimate, level)
    level_text = f"{100.0 * level:g}"
    ends = _ends("", level_text, answer.interval)
    if not isinstance(answer.value, Table):
        columns = {
            "label": _names(release, answer),
            "value": answer.value,
            "standard_error": answer.standard_error,
            **ends,
        }
        return {
            name: [plain_value(value) for value in np.atleast_1d(np.asarray(column))]
            for name, column in columns.items()
        }
    table = answer.value.columns
    domain = release.query.values_in
    places: Mapping[str, Iterable[object]] = {
        name: table[name] for name in PLACE_COLUMNS if name in table
    }
    if isinstance(domain, Grid):
        places = _cells(domain)
    numbers = {
        name: table[name] for name in ("share", "value", "count", "standard_error") if name in table
    }
    columns = {**places, **numbers, **ends}
    if "mean" in table:
        counts = _ends("count_", level_text, table[f"count_{level_text}"])
        empty = {"may_be_empty": table["may_be_empty"]}
        columns = {**places, "mean": table["mean"], **numbers, **ends, **counts, **empty}
    elif answer.interval is not None:
        columns["zero_inside"] = zero_inside(np.asarray(answer.interval, dtype=np.float64))
    columns |= {
        name: table[name]
        for name in ("unbiased", f"at_most_{level_text}", "nearby")
        if name in table
    }
    columns |= _ends("nearby_", level_text, answer.nearby)
    if "cumulative" in table:
        columns |= {
            "cumulative": table["cumulative"],
            **_ends("cumulative_", level_text, table[f"cumulative_{level_text}"]),
        }
    return {name: [plain_value(value) for value in column] for name, column in columns.items()}


def _ends(name: str, level_text: str, interval: object) -> dict[str, Floats]:
    """Columns of both ends of an interval; empty without an interval."""
    if interval is None:
        return {}
    rows = np.atleast_2d(np.asarray(interval, dtype=np.float64))
    return {f"{name}low_{level_text}": rows[:, 0], f"{name}high_{level_text}": rows[:, 1]}


def _names(release: Release, answer: Answer) -> list[str]:
    """Row labels, as in the data frame of a release."""
    if not isinstance(answer.value, tuple):
        return [release.query.kind]
    return ["latitude", "longitude"] if answer.plane is not None else ["east", "north"]


def _cells(grid: Grid) -> dict[str, np.ndarray]:
    """Column, row, centre and corners of each cell, indexed by its code.

    Points are in degrees on a map, otherwise in units from the south-west corner.
    """
    column, row = grid.all_values().T
    if grid.box is None:
        centres = grid.centres(grid.all_values())
        sides = places_of(grid)
        edges = {name: sides[name] for name in ("west", "south", "east", "north")}
        return {"column": column, "row": row, "x": centres[:, 0], "y": centres[:, 1], **edges}
    latitudes, longitudes = grid.places(grid.all_values())
    places = {"column": column, "row": row, "latitude": latitudes, "longitude": longitudes}
    corners = _lattice(grid)
    for name, east, north in CORNERS:
        points = corners[row + north, column + east]
        places |= {f"{name}_latitude": points[:, 1], f"{name}_longitude": points[:, 0]}
    return places


def _lattice(grid: Grid) -> Floats:
    """Return (longitude, latitude) of all cell corners, indexed by row and column.

    The four cells that share a corner get the same point.
    """
    across, up = np.meshgrid(np.arange(grid.width + 1), np.arange(grid.height + 1))
    latitudes, longitudes = grid.degrees(np.stack([across, up], axis=-1).reshape(-1, 2) * grid.cell)
    lattice: Floats = np.stack([longitudes, latitudes], axis=-1).reshape(
        grid.height + 1, grid.width + 1, 2
    )
    return lattice


def csv_text(columns: Columns) -> str:
    """Format columns as CSV: a header line, then one line per row.

    Numbers have all their digits. Texts that a spreadsheet would evaluate are escaped, see
    `escape_csv_cell`.
    """
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([escape_csv_cell(name) for name in columns])
    writer.writerows(
        [escape_csv_cell(value) for value in row] for row in zip(*columns.values(), strict=True)
    )
    return text.getvalue()


def escape_csv_cell(value: object) -> object:
    """Return the CSV cell for a value, escaped so that spreadsheets do not evaluate it.

    Spreadsheets evaluate texts that begin with =, +, - or @, so the author of a label could make
    them do anything. Such a text gets a leading apostrophe unless it is a number. A text that
    begins with an apostrophe gets another one, so that removing one always restores the original.
    """
    if isinstance(value, bool):
        return str(value).lower()
    if not isinstance(value, str) or (
        not value.lstrip().startswith(FORMULA_PREFIXES) and not value.startswith(("\t", "\r", "\n"))
    ):
        return value
    return value if PLAIN_NUMBER.fullmatch(value) else f"'{value}"


def geojson_text(release: Release, level: float = 0.95) -> str:
    """Return places on a map as GeoJSON (RFC 7946), with the guarantees of the release.

    Each cell or zone is a polygon (or the point that represents a zone), and each flow is a line; a
    single place is a point and the polygon of its interval.
    """
    grid = release.query.values_in
    if not isinstance(grid, Grid | Places | Zones | ZonePairs):
        raise InputError(
            f"GeoJSON is for places, and this is a {release.query.title}; write .csv, "
            ".html or .svg instead."
        )
    if not isinstance(grid, Zones | ZonePairs) and grid.box is None:
        raise InputError(
            "GeoJSON needs latitudes and longitudes, and the grid of this release is not "
            "on a map (it was planned without a box); "
            "write .csv, .html or .svg instead."
        )
    cells = isinstance(release.value, Table)
    if isinstance(grid, Zones):
        features = list(_zone_features(release, grid, level))
    elif isinstance(grid, ZonePairs):
        features = list(_flow_features(release, grid, level))
    elif cells and isinstance(grid, Grid):
        features = list(_cell_features(release, grid, level))
    else:
        features = list(_place_features(release, level))
    parts = ",\n".join(json.dumps(feature, allow_nan=False) for feature in features)
    header = json.dumps({"metricshuffle": _promises(release, level)}, allow_nan=False)
    return f'{{"type": "FeatureCollection",\n{header[1:-1]},\n"features": [\n{parts}\n]}}\n'


def _cell_features(release: Release, grid: Grid, level: float) -> Iterator[Feature]:
    columns = answer_columns(release, level)
    lattice = np.round(_lattice(grid), DEGREE_DECIMALS)
    named = [
        name for name in columns if not name.startswith(tuple(corner for corner, _, _ in CORNERS))
    ]
    for code, values in enumerate(zip(*(columns[name] for name in named), strict=True)):
        row, column = divmod(code, grid.width)
        ring = [
            lattice[row + north, column + east].tolist()
            for _, east, north in (*CORNERS, CORNERS[0])
        ]
        yield _feature(code, "Polygon", [ring], dict(zip(named, values, strict=True)))


def _zone_features(release: Release, zones: Zones, level: float) -> Iterator[Feature]:
    columns = answer_columns(release, level)
    borders = zones.borders()
    for code, values in enumerate(zip(*columns.values(), strict=True)):
        properties = dict(zip(columns, values, strict=True))
        if borders:
            rings = [
                [np.round(ring, DEGREE_DECIMALS).tolist() for ring in polygon]
                for polygon in borders[code]
            ]
            yield _feature(code, "MultiPolygon", rings, properties)
        else:
            yield _feature(code, "Point", zones.degrees[code, ::-1].tolist(), properties)


def _flow_features(release: Release, pairs: ZonePairs, level: float) -> Iterator[Feature]:
    """Lines between the points that represent zones; points for trips within one zone."""
    columns = answer_columns(release, level)
    places = pairs.zones.degrees[:, ::-1].tolist()
    starts, ends = (codes.tolist() for codes in pairs.ends(pairs.all_values()))
    for code, values in enumerate(zip(*columns.values(), strict=True)):
        properties = dict(zip(columns, values, strict=True))
        start, end = starts[code], ends[code]
        if start == end:
            yield _feature(code, "Point", places[start], properties)
        else:
            yield _feature(code, "LineString", [places[start], places[end]], properties)


def _place_features(release: Release, level: float) -> Iterator[Feature]:
    answer = release.query.answer(release.estimate, level)
    latitude, longitude = np.asarray(answer.value, dtype=np.float64).tolist()
    (south, north), (west, east) = np.asarray(answer.interval, dtype=np.float64).tolist()
    error = np.asarray(answer.standard_error, dtype=np.float64).tolist()
    title = release.query.title
    level_text = f"{100.0 * level:g}"
    properties = {
        "name": title,
        "latitude": latitude,
        "longitude": longitude,
        "standard_error": error,
    }
    yield _feature(0, "Point", [longitude, latitude], properties)
    ring = [[west, south], [east, south], [east, north], [west, north], [west, south]]
    yield _feature(
        1, "Polygon", [ring], {"name": f"{level_text} % interval of the {title}", "level": level}
    )


def _feature(
    code: int, kind: str, coordinates: object, properties: Mapping[str, object]
) -> Feature:
    return {
        "type": "Feature",
        "id": code,
        "properties": properties,
        "geometry": {"type": kind, "coordinates": coordinates},
    }


def _promises(release: Release, level: float) -> dict[str, object]:
    """Guarantees and provenance, which must accompany the numbers into other programs."""
    words = {"title": release.title, "question": release.question}
    return {
        **{name: text for name, text in words.items() if text is not None},
        "query": str(release.query),
        "level": level,
        "reports": release.reports,
        "round": release.round,
        "rounds": release.rounds,
        "protocol": release.protocol,
        "guarantee": str(release.guarantee),
        "if_shuffler_colludes": str(release.if_shuffler_colludes),
        "sentences": promise_sentences(release),
        "task": release.plan,
        **({"warning": release.warning} if release.warning else {}),
    }


def promise_sentences(release: Release) -> list[str]:
    """Both guarantees and what weakens them; for user items also the cost of replacing them all."""
    return (
        [*release.sentences, release.task.full_replacement]
        if release.query.items is not None
        else release.sentences
    )
