"""Maps of flows: lines that narrow from start to end, discs, and the largest flows only."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.catalogue.invented_zones import point_zones, quad_zones

import metricshuffle as ms
from metricshuffle.report.charts.answer_charts import answer_chart
from metricshuffle.report.charts.flow_maps import (
    MAX_FLOWS_DRAWN,
    WIDEST_FLOW,
    flow_outline,
    flows_map,
    largest_flows,
)

pytest.importorskip("pyproj")


def drawn_flows(spec: dict[str, Any]) -> list[Any]:
    """Rings of the flows of all layers."""
    shapes = [
        layer["data"]["values"][0]["geometry"]
        for layer in spec["layer"]
        if layer["mark"]["type"] == "geoshape"
    ]
    return [
        part for shape in shapes if shape["type"] == "MultiPolygon" for part in shape["coordinates"]
    ]


def test_a_line_narrows_and_bends_to_its_right() -> None:
    there = flow_outline(np.array([0.0, 0.0]), np.array([50.0, 0.0]), 8.0)
    back = flow_outline(np.array([50.0, 0.0]), np.array([0.0, 0.0]), 8.0)
    count = len(there) // 2
    widths = np.linalg.norm(there[:count] - there[count : 2 * count][::-1], axis=1)
    assert widths[0] == pytest.approx(8.0)
    assert (np.diff(widths) < 0.0).all()
    assert widths[-1] == pytest.approx(0.15 * 8.0)
    middles = [(ring[:-1].mean(axis=0))[1] for ring in (there, back)]
    assert middles[0] * middles[1] < 0.0  # both directions are seen
    assert (there[0] == there[-1]).all()


def test_a_trip_within_a_zone_is_a_disc() -> None:
    disc = flow_outline(np.array([3.0, 4.0]), np.array([3.0, 4.0]), 8.0)
    assert np.linalg.norm(disc - (3.0, 4.0), axis=1) == pytest.approx(np.full(len(disc), 4.0))


@pytest.mark.parametrize("zones", [quad_zones(), point_zones(40)], ids=["polygons", "points"])
def test_the_largest_flows_are_drawn_inside_the_map(zones: ms.Zones) -> None:
    size = len(zones.ids)
    shares = np.random.default_rng(1).exponential(1.0, size**2)
    shares /= shares.sum()
    places = zones.degrees[:, ::-1]
    spec = flows_map(zones, places, shares, None, "95 %", "share of trips")
    rings = drawn_flows(spec)
    assert len(rings) == min(MAX_FLOWS_DRAWN, np.count_nonzero(shares > shares.max() / 1024))
    corners = np.concatenate([ring for part in rings for ring in part])
    room = WIDEST_FLOW
    assert corners.min() >= -room
    assert (corners <= np.array([spec["width"], spec["height"]]) + room).all()
    assert np.count_nonzero(largest_flows(np.zeros(9))) == 0


def test_flows_between_blocks_are_drawn_with_their_intervals() -> None:
    plain = quad_zones()
    zones = ms.Zones(**{**plain.model_dump(), "blocks": [name[2] for name in plain.ids]})
    made = ms.plan(ms.Flows(zones), ms.Target(8.0, 1e-6, 4000.0), 200)
    release = made.run([("T00", "T01")] * 200, randomness=ms.Randomness.seeded(1))
    chart = answer_chart(release)
    assert "16 flows between blocks" in chart.description
    assert "goes from 0 to 1" in chart.description
    assert "interval lies above zero" in chart.description
