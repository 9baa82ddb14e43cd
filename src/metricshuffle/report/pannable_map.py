"""Page with a map that can be moved and zoomed; the page has all that the map draws."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from metricshuffle.report.answer_export import geojson_text
from metricshuffle.report.charts.answer_charts import share_label
from metricshuffle.report.charts.interval_charts import percent
from metricshuffle.report.gazetteer import GAZETTEER, places_around, require_places
from metricshuffle.report.map_background import read_shapes
from metricshuffle.report.map_page import page
from metricshuffle.tasks.release import Release

MAX_TOWNS = 5_000
MARGIN_DEGREES = 1.0
"""How far outlines and names go beyond the answer."""


@dataclass(frozen=True)
class Library:
    """Script and style sheet of another project that a page contains."""

    script: str
    style: str


def pannable_page(release: Release, level: float = 0.95, background: Path | None = None) -> str:
    """Return one self-contained HTML document with a map drawn by MapLibre.

    Raises InputError if the answer has no places in degrees, and MissingExtra without the
    distribution metricshuffle-places.
    """
    places = require_places()
    answer = json.loads(geojson_text(release, level))
    features = answer["features"]
    corners = np.concatenate(
        [_positions(feature["geometry"]["coordinates"]) for feature in features]
    )
    west, south = corners.min(axis=0).tolist()
    east, north = corners.max(axis=0).tolist()
    around = (
        west - MARGIN_DEGREES,
        max(-90.0, south - MARGIN_DEGREES),
        east + MARGIN_DEGREES,
        min(90.0, north + MARGIN_DEGREES),
    )
    if background is None or background == GAZETTEER:
        shapes, source = places_around(places, around), places.SOURCE
    else:
        shapes, source = read_shapes(background), ""
    data = {
        "answer": answer,
        "outlines": {
            "type": "FeatureCollection",
            "features": [
                {
                    "type": "Feature",
                    "properties": {},
                    "geometry": {"type": kind, "coordinates": coordinates},
                }
                for kind, coordinates, _, _ in shapes
                if kind != "Point"
            ],
        },
        "towns": [
            (name, coordinates) for kind, coordinates, _, name in shapes if kind == "Point" and name
        ][:MAX_TOWNS],
        "bounds": [[west, south], [east, north]],
        "source": source,
        "numbers": [list(_lines(feature["properties"], level)) for feature in features],
    }
    largest = max((feature["properties"].get("share") or 0.0 for feature in features), default=0.0)
    return page(
        release,
        level,
        template="pannable_map.html.jinja",
        library=Library(places.load_script(), places.load_style()),
        # "<" would end the script that holds the data
        data=json.dumps(data, allow_nan=False, separators=(",", ":")).replace("<", "\\u003c"),
        middle=percent(largest / 4.0),
        largest=percent(largest),
        share_of=share_label(release),
        faded=any("zero_inside" in feature["properties"] for feature in features),
        level_text=f"{100.0 * level:g} %",
    )


def _positions(coordinates: object) -> np.ndarray[tuple[int, int], np.dtype[np.float64]]:
    """All positions of nested coordinates, as rows."""
    if isinstance(coordinates, list) and coordinates and isinstance(coordinates[0], list):
        return np.concatenate([_positions(part) for part in coordinates])
    return np.asarray(coordinates, dtype=np.float64).reshape(1, 2)


def _lines(properties: Mapping[str, object], level: float) -> Iterator[str]:
    """What is said of a place that is chosen."""
    label = properties.get("label") or properties.get("name")
    if label is not None:
        yield str(label)
    share = properties.get("share")
    if not isinstance(share, float | int):
        return
    error = properties.get("standard_error")
    size = float(error) if isinstance(error, float | int) else 0.0
    yield percent(float(share), size)
    level_text = f"{100.0 * level:g}"
    low, high = (properties.get(f"{end}_{level_text}") for end in ("low", "high"))
    if isinstance(low, float | int) and isinstance(high, float | int):
        yield f"{level_text} % interval: {percent(low, size)} to {percent(high, size)}"
    most = properties.get(f"at_most_{level_text}")
    if isinstance(most, float | int):
        yield f"at most {percent(most, size)} ({level_text} %)"
