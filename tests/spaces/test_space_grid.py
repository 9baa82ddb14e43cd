"""Snapping points in a plane and places on a map to cells."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from metricshuffle.errors import DomainError, InputError, MissingExtra
from metricshuffle.spaces import Box, Grid, Space
from metricshuffle.spaces import geographic_box as geographic_module
from metricshuffle.spaces.geographic_box import MAX_DISTORTION, MAX_SIDE_METRES

BEIJING = (39.5, 116.0, 40.5, 117.0)


def test_points_snap_to_the_cell_they_lie_in() -> None:
    grid = Grid(100, 80, cell=50, unit="m")
    assert grid.cells([(0, 0), (49.9, 50), (5000, 4000)]).tolist() == [[0, 0], [0, 1], [99, 79]]
    assert grid.centres([(0, 0), (99, 79)]).tolist() == [[25.0, 25.0], [4975.0, 3975.0]]
    with pytest.raises(DomainError, match=r"1 of 2 values.*row 1 .*\(5000\.5, 0\.0\)"):
        grid.cells([(1, 1), (5000.5, 0.0)])
    assert grid.cells([(5000.5, -3.0)], clamp=True).tolist() == [[99, 0]]
    with pytest.raises(DomainError, match="NaN"):
        grid.cells([(float("nan"), 1)], clamp=True)


@settings(max_examples=40, deadline=None)
@given(
    st.integers(1, 50), st.integers(1, 50), st.floats(1e-3, 1e3), st.randoms(use_true_random=False)
)
def test_a_centre_lies_in_its_own_cell(width: int, height: int, cell: float, random: Any) -> None:
    grid = Grid(width, height, cell)
    chosen = [(random.randrange(width), random.randrange(height)) for _ in range(5)]
    assert grid.cells(grid.centres(chosen)).tolist() == [list(pair) for pair in chosen]


def test_a_grid_without_a_box_has_no_places() -> None:
    with pytest.raises(InputError, match="from_box"):
        Grid(3, 3).places([(0, 0)])


def test_places_snap_and_come_back_within_half_a_diagonal() -> None:
    pyproj = pytest.importorskip("pyproj")
    grid = Grid.from_box(*BEIJING, cell=100)
    rng = np.random.default_rng(3)
    latitudes = rng.uniform(39.5, 40.5, 2000)
    longitudes = rng.uniform(116, 117, 2000)
    cells = grid.cells_at(latitudes, longitudes)
    back_lat, back_lon = grid.places(cells)
    apart = pyproj.Geod(ellps="WGS84").inv(longitudes, latitudes, back_lon, back_lat)[2]
    assert apart.max() <= 100 / np.sqrt(2) * (1 + 1e-6)
    inside = (back_lat > 39.51) & (back_lat < 40.49) & (back_lon > 116.02) & (back_lon < 116.98)
    assert inside.sum() > 1000
    assert np.array_equal(grid.cells_at(back_lat[inside], back_lon[inside]), cells[inside])


def test_columns_run_east_and_rows_run_north() -> None:
    pytest.importorskip("pyproj")
    grid = Grid.from_box(*BEIJING, cell=1, unit="km")
    middle, east, north = grid.cells_at([40.0, 40.0, 40.4], [116.5, 116.9, 116.5])
    assert east[0] > middle[0] + 30
    assert north[1] > middle[1] + 40
    assert Space(grid).unit == "km"
    for corner in grid.cells_at([39.5, 39.5, 40.5, 40.5], [116, 117, 116, 117]):
        assert grid.contains(corner)


@pytest.mark.parametrize("latitude", [-82.5, -40.0, 0.0, 25.0, 60.0, 82.5])
def test_the_stated_distortion_holds_up_to_the_longest_side(latitude: float) -> None:
    pyproj = pytest.importorskip("pyproj")
    half = 2.15 - 0.005 * abs(latitude)
    wide = half / np.cos(np.deg2rad(latitude))
    box = Box(latitude - half, 10 - wide, latitude + half, 10 + wide)
    left, bottom, right, top = box.extent
    assert 0.8 * MAX_SIDE_METRES < right - left <= MAX_SIDE_METRES
    rng = np.random.default_rng(1)
    lat = rng.uniform(box.south, box.north, 4000)
    lon = rng.uniform(box.west, box.east, 4000)
    lat[:400], lon[:400] = box.south, box.east  # the scale is worst at a corner, across the radius
    other_lat = np.clip(lat + rng.normal(0, 0.5, 4000), box.south, box.north)
    other_lon = np.clip(lon + rng.normal(0, 0.5, 4000) * wide, box.west, box.east)
    here = box.plane(lat, lon)
    there = box.plane(other_lat, other_lon)
    ground = pyproj.Geod(ellps="WGS84").inv(lon, lat, other_lon, other_lat)[2]
    moved = ground > 100
    ratio = np.hypot(*(here - there)[moved].T) / ground[moved]
    assert ratio.min() >= 1 - 1e-9
    assert 1 + 1e-4 < ratio.max() <= 1 + MAX_DISTORTION
    assert here.min() >= -0.01
    assert (here - (right - left, top - bottom)).max() <= 0.01


@pytest.mark.parametrize(
    ("box", "words"),
    [
        ((1, 0, 1, 1), "south must be below north"),
        ((0, 179, 1, -179), "antimeridian"),
        ((0, 0, 1, 181), "within \\+-180"),
        ((84, 0, 86, 1), "within \\+-85"),
        ((0, 0, 5, 1), "553 km long.*split"),
        ((0, 0, float("nan"), 1), "north must be a finite"),
    ],
)
def test_boxes_that_cannot_be_flattened_are_refused(
    box: tuple[float, float, float, float], words: str
) -> None:
    pytest.importorskip("pyproj")
    with pytest.raises(InputError, match=words):
        Grid.from_box(*box, cell=100)


@pytest.mark.parametrize(
    ("cell", "unit", "words"),
    [(0, "m", "cell"), (100, "miles", "unit"), (1e-320, "m", "cell must be larger")],
)
def test_wrong_cells_are_refused(cell: float, unit: str, words: str) -> None:
    pytest.importorskip("pyproj")
    with pytest.raises(InputError, match=words):
        Grid.from_box(*BEIJING, cell=cell, unit=unit)


def test_places_outside_the_box_are_named_or_clamped() -> None:
    pytest.importorskip("pyproj")
    grid = Grid.from_box(*BEIJING, cell=100)
    with pytest.raises(DomainError, match=r"1 of 2 values.*row 1 .*\(116\.5, 40\.0\)"):
        grid.cells_at([40.0, 116.5], [116.5, 40.0])
    assert (
        grid.cells_at([39.0], [116.5], clamp=True).tolist()
        == grid.cells_at([39.5], [116.5]).tolist()
    )
    for bad in ([float("nan")], [116.5], ["40"], [True]):
        with pytest.raises(DomainError):
            grid.cells_at(bad, [116.5], clamp=True)
    with pytest.raises(InputError, match="as many"):
        grid.cells_at([40.0], [116.5, 116.6])


def test_the_grid_remembers_its_box() -> None:
    pytest.importorskip("pyproj")
    grid = Grid.from_box(*BEIJING, cell=0.1, unit="km")
    again = Grid.model_validate_json(grid.model_dump_json())
    assert again == grid
    assert again.box == Box(*BEIJING)
    assert np.array_equal(again.cells_at([40.1], [116.3]), grid.cells_at([40.1], [116.3]))
    edited = Grid(grid.width + 5, grid.height, grid.cell, grid.unit, grid.box)
    with pytest.raises(InputError, match="width and height must fit the box"):
        edited.cells_at([40.1], [116.3])


def test_a_missing_pyproj_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    geographic_module._projection.cache_clear()
    geographic_module._extent.cache_clear()
    monkeypatch.setitem(sys.modules, "pyproj", None)
    with pytest.raises(MissingExtra, match=r"metricshuffle\[geo\]"):
        Grid.from_box(*BEIJING, cell=100)
