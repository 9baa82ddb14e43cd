"""A release as rows for other programs: CSV of every answer, GeoJSON of places on a map."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Iterator
from typing import Any

import numpy as np

from metricshuffle.errors import InputError
from metricshuffle.numerics.types import Floats
from metricshuffle.queries import Answer
from metricshuffle.queries.cell_table import places_of
from metricshuffle.queries.result_table import Table, plain_value
from metricshuffle.report.charts.answer_charts import zero_inside
from metricshuffle.spaces import Grid, Places
from metricshuffle.tasks.release import Release

Columns = dict[str, list[Any]]
CORNERS = (("south_west", 0, 0), ("south_east", 1, 0), ("north_east", 1, 1), ("north_west", 0, 1))
"""Of a cell, counter-clockwise, with how many columns and rows they lie from the first."""
FORMULA_PREFIXES = ("=", "+", "-", "@", "'", "\uff1d", "\uff0b", "\uff0d", "\uff20")
"""What a text begins with that spreadsheets compute, also in full width; and the apostrophe that tells them not to."""
PLAIN_NUMBER = re.compile(r"[+-]?[0-9]+([.,][0-9]+)?([eE][+-]?[0-9]+)?")
DEGREE_DECIMALS = 9  # of a degree in GeoJSON: a tenth of a millimetre


def answer_columns(release: Release, level: float = 0.95) -> Columns:
    """A row for each cell, bin, label or mean, or for each number of the answer; in degrees on a map.

    The interval is that of `level`, in low_95 and high_95 or so; `zero_inside` says of a share or a mean whether it holds zero. Smoothed
    shares have none, but at_most_95, and nearby with nearby_low_95 and nearby_high_95.
    """
    answer = release.query.answer(release.estimate, level)
    level_text = f"{100.0 * level:g}"
    ends = _ends("", level_text, answer.interval)
    if not isinstance(answer.value, Table):
        columns = {"label": _names(release, answer), "value": answer.value, "standard_error": answer.standard_error, **ends}
        return {name: [plain_value(value) for value in np.atleast_1d(np.asarray(column))] for name, column in columns.items()}
    table, domain = answer.value.columns, release.query.values_in
    places: dict[str, Any] = {name: table[name] for name in ("label", "low", "high") if name in table}
    if isinstance(domain, Grid):
        places = _cells(domain)
    numbers = {name: table[name] for name in ("share", "value", "count", "standard_error") if name in table}
    columns = {**places, **numbers, **ends}
    if answer.interval is not None:
        columns["zero_inside"] = zero_inside(np.asarray(answer.interval, dtype=np.float64))
    columns |= {name: table[name] for name in ("unbiased", f"at_most_{level_text}", "nearby") if name in table}
    columns |= _ends("nearby_", level_text, answer.nearby)
    if "cumulative" in table:
        columns |= {"cumulative": table["cumulative"], **_ends("cumulative_", level_text, table[f"cumulative_{level_text}"])}
    return {name: [plain_value(value) for value in column] for name, column in columns.items()}


def _ends(name: str, level_text: str, interval: Any) -> dict[str, Any]:
    """The columns of both ends, if there are any."""
    if interval is None:
        return {}
    rows = np.atleast_2d(np.asarray(interval, dtype=np.float64))
    return {f"{name}low_{level_text}": rows[:, 0], f"{name}high_{level_text}": rows[:, 1]}


def _names(release: Release, answer: Answer) -> list[str]:
    """As in the frame of a release."""
    if not isinstance(answer.value, tuple):
        return [release.query.kind]
    return ["latitude", "longitude"] if answer.plane is not None else ["east", "north"]


def _cells(grid: Grid) -> dict[str, Any]:
    """Column, row, centre and corners of each cell, by its code: in degrees on a map, else in units from the south-west corner."""
    column, row = grid.all_values().T
    if grid.box is None:
        centres, sides = grid.centres(grid.all_values()), places_of(grid)
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
    """(longitude, latitude) of the corners of all cells, by row and column; a corner is the same point for the four cells that share it."""
    across, up = np.meshgrid(np.arange(grid.width + 1), np.arange(grid.height + 1))
    latitudes, longitudes = grid.degrees(np.stack([across, up], axis=-1).reshape(-1, 2) * grid.cell)
    lattice: Floats = np.stack([longitudes, latitudes], axis=-1).reshape(grid.height + 1, grid.width + 1, 2)
    return lattice


def csv_text(columns: Columns) -> str:
    """A header line, then a row each; numbers with all their digits, and no text that a spreadsheet would compute (see
    `escape_csv_cell`)."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([escape_csv_cell(name) for name in columns])
    writer.writerows([escape_csv_cell(value) for value in row] for row in zip(*columns.values(), strict=True))
    return text.getvalue()


def escape_csv_cell(value: Any) -> Any:
    """What is written for a value. A spreadsheet computes what begins with =, +, - or @, and so lets whoever chose a label do anything:
    such a text gets an apostrophe before it, unless it is a number. One that begins with an apostrophe gets another one, so that taking one
    off always gives back what it was."""
    if isinstance(value, bool):
        return str(value).lower()
    if not isinstance(value, str) or (not value.lstrip().startswith(FORMULA_PREFIXES) and not value.startswith(("\t", "\r", "\n"))):
        return value
    return value if PLAIN_NUMBER.fullmatch(value) else f"'{value}"


def geojson_text(release: Release, level: float = 0.95) -> str:
    """Places on a map as RFC 7946 has them: a polygon for each cell, or a point and the polygon of its interval; the promises go along."""
    grid = release.query.values_in
    if not isinstance(grid, Grid | Places):
        raise InputError(f"GeoJSON is for places, and this is a {release.query.title}; write .csv, .html or .svg instead.")
    if grid.box is None:
        raise InputError(
            "GeoJSON needs latitudes and longitudes, and the grid of this release is not on a map (it was planned without a box); "
            "write .csv, .html or .svg instead."
        )
    cells = isinstance(release.value, Table)
    features = list(_cell_features(release, grid, level) if cells and isinstance(grid, Grid) else _place_features(release, level))
    parts = ",\n".join(json.dumps(feature, allow_nan=False) for feature in features)
    header = json.dumps({"metricshuffle": _promises(release, level)}, allow_nan=False)
    return f'{{"type": "FeatureCollection",\n{header[1:-1]},\n"features": [\n{parts}\n]}}\n'


def _cell_features(release: Release, grid: Grid, level: float) -> Iterator[dict[str, Any]]:
    columns, lattice = answer_columns(release, level), np.round(_lattice(grid), DEGREE_DECIMALS)
    named = [name for name in columns if not name.startswith(tuple(corner for corner, _, _ in CORNERS))]
    for code, values in enumerate(zip(*(columns[name] for name in named), strict=True)):
        row, column = divmod(code, grid.width)
        ring = [lattice[row + north, column + east].tolist() for _, east, north in (*CORNERS, CORNERS[0])]
        yield _feature(code, "Polygon", [ring], dict(zip(named, values, strict=True)))


def _place_features(release: Release, level: float) -> Iterator[dict[str, Any]]:
    answer = release.query.answer(release.estimate, level)
    latitude, longitude = np.asarray(answer.value, dtype=np.float64).tolist()
    (south, north), (west, east) = np.asarray(answer.interval, dtype=np.float64).tolist()
    error = np.asarray(answer.standard_error, dtype=np.float64).tolist()
    title, level_text = release.query.title, f"{100.0 * level:g}"
    properties = {"name": title, "latitude": latitude, "longitude": longitude, "standard_error": error}
    yield _feature(0, "Point", [longitude, latitude], properties)
    ring = [[west, south], [east, south], [east, north], [west, north], [west, south]]
    yield _feature(1, "Polygon", [ring], {"name": f"{level_text} % interval of the {title}", "level": level})


def _feature(code: int, kind: str, coordinates: Any, properties: dict[str, Any]) -> dict[str, Any]:
    return {"type": "Feature", "id": code, "properties": properties, "geometry": {"type": kind, "coordinates": coordinates}}


def _promises(release: Release, level: float) -> dict[str, Any]:
    """What must not be lost on the way to another program."""
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
    """Both promises and what spoils them, and for people with many items what it costs to replace them all."""
    return [*release.sentences, release.task.full_replacement] if release.query.items is not None else release.sentences
