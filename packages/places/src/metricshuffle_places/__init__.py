"""Names of towns and outlines of countries, in degrees, and MapLibre for maps that can be panned.

Sources: Natural Earth (outlines), GeoNames (towns, CC BY 4.0); see LICENSE-data.md.
"""

from __future__ import annotations

import gzip
from functools import cache
from importlib.resources import files

import numpy as np
from numpy.typing import NDArray

__all__ = ["SOURCE", "load_outlines", "load_script", "load_style", "load_towns"]

SOURCE = "Natural Earth; GeoNames (CC BY 4.0)"
"""What a map that uses the data says about it."""
DEGREE = 1000
"""Parts of a degree in the file of outlines."""

Floats = NDArray[np.float64]


@cache
def load_outlines() -> tuple[Floats, ...]:
    """Coasts and borders as lines of (longitude, latitude); each border is there once."""
    with (files(__name__) / "outlines.npz").open("rb") as stream:
        stored = np.load(stream, allow_pickle=False)
        lengths, starts, moves = (stored[name] for name in ("lengths", "starts", "moves"))
    points = np.empty((int(lengths.sum()), 2), dtype=np.int64)
    firsts = np.cumsum(lengths) - lengths
    points[firsts] = starts
    is_first = np.zeros(len(points), dtype=np.bool_)
    is_first[firsts] = True
    points[~is_first] = moves
    degrees = np.concatenate(
        [np.cumsum(line, axis=0) for line in np.split(points, firsts[1:].tolist())]
    )
    return tuple(np.split(degrees / DEGREE, firsts[1:].tolist()))


@cache
def load_towns() -> tuple[tuple[str, ...], Floats]:
    """Names of towns, the largest first, and their (longitude, latitude)."""
    text = gzip.decompress((files(__name__) / "towns.tsv.gz").read_bytes()).decode()
    rows = [line.split("\t") for line in text.splitlines()]
    degrees = np.array([(longitude, latitude) for _, latitude, longitude in rows], np.float64)
    return tuple(row[0] for row in rows), degrees


def load_script() -> str:
    """MapLibre GL JS, for a page that loads nothing."""
    text = (files(__name__) / "maplibre-gl.js").read_text(encoding="utf-8")
    return text.partition("//# sourceMappingURL")[0]


def load_style() -> str:
    """Style sheet of MapLibre GL JS."""
    return (files(__name__) / "maplibre-gl.css").read_text(encoding="utf-8")
