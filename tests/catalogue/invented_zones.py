"""Invented zones for tests: jittered quadrilaterals that cover a part of a city."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

from metricshuffle.spaces import Zones

SOUTH, WEST, SIDE = 30.1, -97.95, 0.03


def quads(width: int = 4, height: int = 3) -> dict[str, Any]:
    """GeoJSON of zones T00, T01, ..., with residents and a marked point."""
    generator = np.random.default_rng(7)
    jitter = generator.uniform(-0.3, 0.3, (height + 1, width + 1, 2))
    corners = (np.indices((height + 1, width + 1)).transpose(1, 2, 0) + jitter) * SIDE
    corners = np.round(corners + np.array([SOUTH, WEST]), 7)
    features = []
    for row in range(height):
        for column in range(width):
            around = ((0, 0), (0, 1), (1, 1), (1, 0), (0, 0))
            ring = [corners[row + up, column + right][::-1].tolist() for up, right in around]
            middle = np.mean(ring[:-1], axis=0)
            properties = {
                "tract": f"T{row}{column}",
                "residents": int(generator.integers(100, 1000)),
                "lat": float(middle[1]),
                "lon": float(middle[0]),
            }
            geometry = {"type": "Polygon", "coordinates": [ring]}
            features.append({"type": "Feature", "properties": properties, "geometry": geometry})
    return {"type": "FeatureCollection", "features": features}


@cache
def quad_zones(width: int = 4, height: int = 3) -> Zones:
    """The same zones, with public weights."""
    features = quads(width, height)["features"]
    return Zones.of_polygons(
        [feature["properties"]["tract"] for feature in features],
        [feature["geometry"] for feature in features],
        weights=[feature["properties"]["residents"] for feature in features],
    )


@cache
def point_zones(count: int, seed: int = 3) -> Zones:
    """Points drawn at random, denser in the middle, and a few far outside."""
    generator = np.random.default_rng(seed)
    latitudes = 30.1 + 0.4 * generator.beta(3, 3, count)
    longitudes = -98.0 + 0.5 * generator.beta(3, 3, count)
    latitudes[: count // 20] += 0.7
    return Zones.of_points([f"z{code:05d}" for code in range(count)], latitudes, longitudes)
