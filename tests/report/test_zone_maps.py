"""Maps of zones: polygons, discs of points, cells of H3; smaller where an interval holds zero."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.catalogue.invented_zones import point_zones, quad_zones

from metricshuffle.report.charts.zone_maps import zones_map, zones_plane
from metricshuffle.spaces import Zones

pytest.importorskip("pyproj")


def polygons(spec: dict[str, Any]) -> list[Any]:
    """Coordinates of the shaded polygons of all layers."""
    shapes = [
        layer["data"]["values"][0]["geometry"]
        for layer in spec["layer"]
        if layer["mark"]["type"] == "geoshape"
    ]
    return [
        part for shape in shapes if shape["type"] == "MultiPolygon" for part in shape["coordinates"]
    ]


@pytest.mark.parametrize("zones", [quad_zones(), point_zones(40)], ids=["polygons", "points"])
def test_every_zone_is_drawn_inside_the_map(zones: Zones) -> None:
    size = len(zones.ids)
    spec = zones_map(zones, np.full(size, 1.0 / size), None, "95 %", "share of people")
    rings = polygons(spec)
    assert len(rings) == size
    corners = np.concatenate([ring for part in rings for ring in part])
    assert corners.min() >= 0.0
    assert (corners <= (spec["width"], spec["height"])).all()


def test_zones_whose_interval_holds_zero_are_smaller() -> None:
    zones = quad_zones()
    shares = np.full(12, 1 / 12)
    whole = polygons(zones_map(zones, shares, np.zeros(12, dtype=bool), "95 %", "share"))
    small = polygons(zones_map(zones, shares, np.ones(12, dtype=bool), "95 %", "share"))
    spans = [[np.ptp(np.array(part[0]), axis=0) for part in parts] for parts in (whole, small)]
    assert np.array(spans[1]) == pytest.approx(0.5 * np.array(spans[0]), abs=0.02)


def test_a_country_is_drawn_without_a_projection() -> None:
    zones = Zones.of_points(["a", "b", "c"], [36.0, 60.0, 50.0], [-5.0, 40.0, 10.0])
    assert zones_plane(zones).south < 36.0
    spec = zones_map(zones, np.array([0.2, 0.3, 0.5]), None, "95 %", "share", narrow=True)
    assert len(polygons(spec)) == 3


def test_cells_of_h3_have_their_borders() -> None:
    pytest.importorskip("h3")
    zones = Zones.h3_box(7, (30.2, -97.8, 30.3, -97.7))
    size = len(zones.ids)
    rings = polygons(zones_map(zones, np.full(size, 1.0 / size), None, "95 %", "share"))
    assert {len(part[0]) for part in rings} == {7}
