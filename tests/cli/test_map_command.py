"""`metricshuffle map`: pictures and rows of a release, and errors."""

from __future__ import annotations

import csv
import io
import json
import time
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.catalogue.planned_tasks import BOX, planned, run_of
from tests.cli.conftest import Terminal
from tests.report.parsed_page import ParsedPage

from metricshuffle import Grid, Histogram, Release, Target, plan
from metricshuffle.queries import UserLinearQuery
from metricshuffle.queries.result_table import Table
from metricshuffle.report.answer_export import answer_columns, csv_text, geojson_text
from metricshuffle.report.charts.release_maps import cells_map
from metricshuffle.report.map_background import (
    MAX_DRAWN_POINTS,
    clip_line,
    clip_ring,
    read_background,
)
from metricshuffle.report.map_page import MAX_TABLE_ROWS, page
from metricshuffle.spaces import Categories, Integers, Space, users_of


@cache
def city(cells: int) -> Release:
    """People in so many cells each way that are not on a map."""
    made = plan(
        Histogram(Grid(cells, cells, 100.0, "m")),
        Target(4, 0, 100),
        300,
        trusted="nobody",
        protocols=["k-ary-randomized-response"],
    )
    return made.run(
        np.clip(
            np.rint(np.random.default_rng(1).normal(cells / 2, cells / 8, (300, 2))), 0, cells - 1
        ).astype(int)
    )


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    path = tmp_path / "release.json"
    run_of("map").save(str(path))
    return path


def read(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text)))


# Rows


@pytest.mark.parametrize("kind", ["map", "labels", "line", "vectors of a line", "users' histogram"])
def test_the_csv_has_every_number_of_the_release(kind: str) -> None:
    release = run_of(kind)
    rows = read(csv_text(answer_columns(release)))
    table = release.value
    interval = np.asarray(release.interval(0.95))
    assert isinstance(table, Table)
    for name in ("share", "count", "standard_error", "unbiased"):
        assert [float(row[name]) for row in rows] == np.asarray(table[name]).tolist()
    assert [[float(row["low_95"]), float(row["high_95"])] for row in rows] == interval.tolist()
    assert [row["zero_inside"] for row in rows] == [
        str(low <= 0.0 <= high).lower() for low, high in interval.tolist()
    ]
    assert {"true", "false"} >= {row["zero_inside"] for row in rows}
    for name in ("label", "low", "high"):
        if name in table.columns:
            assert [row[name] for row in rows] == [str(value) for value in table[name]]


def test_both_kinds_of_cells_occur_in_these_tests() -> None:
    assert set(answer_columns(run_of("map"))["zero_inside"]) == {True, False}


def test_the_band_of_a_line_goes_along() -> None:
    release = run_of("vectors of a line")
    columns = answer_columns(release, 0.9)
    assert release.estimate.band is not None
    low, high = release.estimate.band(0.9)
    assert (columns["cumulative_low_90"], columns["cumulative_high_90"]) == (
        low.tolist(),
        high.tolist(),
    )


@pytest.mark.parametrize("kind", ["unary sum", "centroid", "users' mean"])
def test_what_is_no_table_has_the_columns_of_its_frame(kind: str) -> None:
    release = run_of(kind)
    frame = release.to_frame()
    columns = answer_columns(release)
    names = frame.column_names if hasattr(frame, "column_names") else list(frame.columns)
    assert list(columns) == names
    for name in names:
        cells = frame[name].to_pylist() if hasattr(frame[name], "to_pylist") else list(frame[name])
        assert columns[name] == cells


def test_means_by_name_have_rows_too() -> None:
    query = UserLinearQuery.near(
        users_of(Space(Integers(0, 9))), {"low, or so": [0], "high": [9]}, 3.0
    )
    release = plan(query, Target(2, 1e-6, 2), 50, trusted="curator").run([[0, 1]] * 50)
    rows = read(csv_text(answer_columns(release)))
    assert [row["label"] for row in rows] == ["low, or so", "high"]
    assert [float(row["value"]) for row in rows] == np.asarray(release.value["value"]).tolist()


def test_no_label_is_a_formula_in_a_spreadsheet() -> None:
    """Labels never become formulas; removing one apostrophe restores every label."""
    labels = [
        "=HYPERLINK(1)",
        "+1+1",
        "-1+1",
        "@SUM(1)",
        " =1",
        "'quoted",
        "-5",
        "+49.5",
        "x=1",
        "a, b",
        "\uff1d1",
    ]
    made = plan(
        Histogram(Categories(labels)),
        Target(4, 0, 1),
        60,
        trusted="nobody",
        protocols=["k-ary-randomized-response"],
    )
    release = made.run(labels * 5)
    cells = [row["label"] for row in read(csv_text(answer_columns(release)))]
    assert cells[:6] == [f"'{label}" for label in labels[:6]]
    assert cells[6:10] == labels[6:10]  # (numbers are harmless)
    assert [cell.removeprefix("'") for cell in cells] == labels
    assert csv_text({"=a": ["'=b", "\t=c", -1.5, True]}) == "'=a\n''=b\n'\t=c\n-1.5\ntrue\n"


def test_cells_that_are_not_on_a_map_have_x_and_y(terminal: Terminal) -> None:
    city(3).save("city.json")
    assert terminal.typed("map city.json --output city.csv").exit_code == 0
    rows = read(Path("city.csv").read_text())
    first, second = ([row[name] for name in ("x", "y", "west", "north")] for row in rows[:2])
    assert first == ["50.0", "50.0", "0.0", "100.0"]
    assert second == ["150.0", "50.0", "100.0", "100.0"]
    assert "latitude" not in rows[0]


# GeoJSON


def test_geojson_is_as_rfc_7946_has_it() -> None:
    release = run_of("map")
    grid = release.query.values_in
    assert isinstance(grid, Grid)
    found = json.loads(geojson_text(release, 0.9))
    columns = answer_columns(release, 0.9)
    assert found["type"] == "FeatureCollection"
    assert len(found["features"]) == grid.size
    for code, feature in enumerate(found["features"]):
        properties = feature["properties"]
        assert all(
            properties[name] == columns[name][code]
            for name in ("share", "low_90", "high_90", "standard_error", "zero_inside")
        )
        assert feature["geometry"]["type"] == "Polygon"
        (ring,) = feature["geometry"]["coordinates"]
        assert len(ring) == 5
        assert ring[0] == ring[-1]
        (x, y), (ahead, up) = (
            np.array(ring)[:-1].T - np.array(ring[0])[:, None],
            np.array(ring)[1:].T - np.array(ring[0])[:, None],
        )
        assert np.sum(x * up - ahead * y) > 0.0  # counter-clockwise
        longitudes, latitudes = zip(*ring, strict=True)
        assert min(longitudes) < properties["longitude"] < max(longitudes)
        assert min(latitudes) < properties["latitude"] < max(latitudes)
        assert 7.4 < longitudes[0] < 7.5
        assert 46.9 < latitudes[0] < 47.0
    told = found["metricshuffle"]
    assert told["guarantee"] == str(release.guarantee)
    assert told["if_shuffler_colludes"] == str(release.if_shuffler_colludes)
    assert told["task"] == release.plan


def test_neighbours_share_their_corners_exactly() -> None:
    first, second = (
        feature["geometry"]["coordinates"][0]
        for feature in json.loads(geojson_text(run_of("map")))["features"][:2]
    )
    assert (first[1], first[2]) == (second[0], second[3])


@pytest.mark.parametrize("box", [BOX, (-34.05, -58.45, -34.0, -58.4), (69.0, 179.9, 69.05, 180.0)])
def test_the_middle_of_every_cell_falls_back_into_it(
    box: tuple[float, float, float, float],
) -> None:
    grid = Grid.from_box(*box, 500.0)
    release = plan(
        Histogram(grid),
        Target(2, 0, 1000),
        50,
        trusted="nobody",
        protocols=["k-ary-randomized-response"],
    ).run([(0, 0)] * 50)
    inside = 0
    for feature in json.loads(geojson_text(release))["features"]:
        properties, (ring,) = feature["properties"], feature["geometry"]["coordinates"]
        place = (properties["latitude"], properties["longitude"])
        assert np.ptp(np.array(ring)[:, 0]) < 0.05  # none goes around the world
        if grid.box is not None and grid.box.contains(*place):
            inside += 1
            assert grid.cells_at([place[0]], [place[1]]).tolist() == [
                [properties["column"], properties["row"]]
            ]
    assert inside >= (grid.width - 1) * (grid.height - 1)


def test_a_place_is_a_point_and_the_polygon_of_its_interval() -> None:
    release = run_of("centroid")
    point, box = json.loads(geojson_text(release))["features"]
    assert point["geometry"]["coordinates"] == list(release.value)[::-1]
    (south, north), (west, east) = release.interval(0.95)
    assert box["geometry"]["coordinates"] == [
        [[west, south], [east, south], [east, north], [west, north], [west, south]]
    ]


@pytest.mark.parametrize("kind", ["labels", "unary sum", "line"])
def test_geojson_of_what_is_no_place_is_refused(kind: str, terminal: Terminal) -> None:
    run_of(kind).save("release.json")
    assert "GeoJSON is for places" in terminal.refused(
        "map", "release.json", "--output", "map.geojson"
    )


def test_geojson_of_a_grid_without_degrees_is_refused(terminal: Terminal) -> None:
    city(3).save("city.json")
    assert "not on a map" in terminal.refused("map", "city.json", "--output", "map.geojson")


# The page


@pytest.mark.parametrize("kind", ["map", "labels", "line", "centroid", "users' items", "local sum"])
def test_the_page_tells_both_promises_and_loads_nothing(kind: str) -> None:
    release = run_of(kind)
    parsed = ParsedPage(page(release, 0.9))
    words = " ".join(parsed.text.split())
    assert str(release.guarantee) in words
    assert str(release.if_shuffler_colludes) in words or release.guarantee.trust.trusted == "nobody"
    assert "whoever ran it saw the raw values" in words
    assert "90 % interval" in words
    assert parsed.open == []
    assert all(target.startswith("#") for target in parsed.targets)
    assert parsed.tags.count("table") == 1
    assert "script" not in parsed.tags
    if release.query.items is not None:
        assert release.task.full_replacement in words


def test_a_large_map_stays_small_and_fast() -> None:
    start = time.perf_counter()
    html = page(city(24))
    assert time.perf_counter() - start < 10.0  # 0.5 s where nothing else runs
    assert len(html) < 400_000
    rows = html.count("<tr>")
    assert MAX_TABLE_ROWS < rows < MAX_TABLE_ROWS + 3
    assert "The 500 largest of 576 rows; a .csv file has all." in html


# The command


@pytest.mark.parametrize("ending", ["html", "svg", "geojson", "csv"])
def test_the_ending_says_what_is_written(ending: str, terminal: Terminal, saved: Path) -> None:
    result = terminal("map", saved, "--output", f"map.{ending}")
    assert result.exit_code == 0, result.output
    assert f"Wrote map.{ending}." in result.stdout
    assert "If the shuffler is honest: " in result.stdout
    assert ("holds no promises" in result.stdout) == (ending in ("csv", "svg"))
    starts = {
        "html": "<!DOCTYPE html>",
        "svg": "<svg",
        "geojson": '{"type": "FeatureCollection"',
        "csv": "column,row,latitude,longitude,",
    }
    assert Path(f"map.{ending}").read_text().startswith(starts[ending])


def test_standard_output_holds_the_file_alone(terminal: Terminal, saved: Path) -> None:
    result = terminal("map", saved, "--output", "-", "--format", "csv")
    assert result.stdout == csv_text(answer_columns(run_of("map")))
    assert "If the shuffler is honest: " in result.stderr


def test_json_is_one_document(terminal: Terminal, saved: Path) -> None:
    result = terminal("map", saved, "--output", "map.svg", "--level", "0.5", "--json")
    told = json.loads(result.stdout)
    holding = answer_columns(run_of("map"), 0.5)["zero_inside"]
    assert (told["rows"], told["above_zero"], told["format"], told["level"]) == (
        len(holding),
        holding.count(False),
        "svg",
        0.5,
    )
    assert told["guarantee"] == str(run_of("map").guarantee)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--output", "map.gif"], "must end in .html, .svg, .png, .geojson or .csv"),
        (["--output", "-"], "must end in"),
        (["--output", "map.html", "--format", "pdf"], "--format must be one of"),
        (
            ["--output", "map.html", "--level", "95"],
            "--level must lie strictly between 0 and 1, got 95",
        ),
        (
            ["--output", "map.csv", "--background", "release.json"],
            "--background is drawn in .html, .svg and .png files, not in .csv",
        ),
        (["--output", "-", "--format", "csv", "--json"], "only one thing"),
        (["--output", "release.json", "--format", "csv"], "is also the input"),
        (["--output", "nowhere/map.csv"], "lies in a folder that does not exist"),
        (
            ["--output", "map.html", "--background", "missing.geojson"],
            "cannot read missing.geojson",
        ),
        (
            ["--output", "map.html", "--background", "release.json"],
            "cannot use release.json as a background",
        ),
    ],
)
def test_what_cannot_be_is_refused_in_words(
    words: list[str], told: str, terminal: Terminal, saved: Path
) -> None:
    assert told in terminal.refused("map", saved.name, *words)


def test_another_file_is_no_release(terminal: Terminal, saved: Path) -> None:
    Path("plan.json").write_text(planned("map").to_json())
    assert "cannot use plan.json: this is not a release" in terminal.refused(
        "map", "plan.json", "--output", "map.html"
    )
    saved.write_text(saved.read_text().replace('"reports": 400', '"reports": 401'))
    assert "edited or damaged" in terminal.refused("map", saved.name, "--output", "map.html")


# The background


def geojson(*geometries: Any) -> str:
    features = [
        {"type": "Feature", "properties": {}, "geometry": geometry} for geometry in geometries
    ]
    return json.dumps({"type": "FeatureCollection", "features": features})


ROAD = {"type": "LineString", "coordinates": [[7.0, 46.95, 500.0], [8.0, 46.95, 500.0]]}
LAKE = {
    "type": "Polygon",
    "coordinates": [
        [
            [7.0, 46.0],
            [7.0, 48.0],
            [7.44, 48.0],
            [7.44, 46.0],
            [7.0, 46.0],
        ],  # clockwise, which is the wrong way round
        [[7.425, 46.945], [7.43, 46.945], [7.43, 46.95], [7.425, 46.95], [7.425, 46.945]],
    ],
}


def test_a_background_is_cut_to_the_grid_and_wound_right(tmp_path: Path) -> None:
    path = tmp_path / "bern.geojson"
    path.write_text(geojson(ROAD, LAKE, {"type": "Point", "coordinates": [7.43, 46.95]}, None))
    grid = Grid.from_box(*BOX, 800.0)
    far = (grid.width * grid.cell, grid.height * grid.cell)
    background = read_background(path, grid)
    (line,) = background.lines
    ((outer, hole),) = background.areas
    for points in (line, outer, hole):
        assert ((points >= 0.0) & (points <= far)).all()
    assert line[0][0] == 0.0
    assert line[-1][0] == far[0]
    across = grid.box.plane([46.95], [7.44])[0] if grid.box is not None else (0.0, 0.0)
    assert line[np.abs(line[:, 0] - across[0]).argmin()][1] == pytest.approx(across[1], abs=5.0)
    assert outer[:, 0].max() == pytest.approx(across[0], abs=5.0)
    areas = [
        float(np.sum(ring[:-1, 0] * ring[1:, 1] - ring[1:, 0] * ring[:-1, 1]))
        for ring in (outer, hole)
    ]
    assert areas[0] > 0.0 > areas[1]


def place(name: object, longitude: float, latitude: float) -> dict[str, Any]:
    point = {"type": "Point", "coordinates": [longitude, latitude]}
    return {"type": "Feature", "properties": {"name": name}, "geometry": point}


def test_names_of_places_are_drawn_where_there_is_room(tmp_path: Path) -> None:
    path = tmp_path / "places.geojson"
    features = [
        place("Bern", 7.43, 46.95),
        place("covered", 7.4301, 46.95),
        place("Paris", 2.35, 48.86),
        place(7, 7.44, 46.945),
        place("x" * 99 + "\n", 7.44, 46.955),
    ]
    path.write_text(json.dumps({"type": "FeatureCollection", "features": features}))
    grid = Grid.from_box(*BOX, 800.0)
    background = read_background(path, grid)
    assert [name for name, _, _ in background.names] == ["Bern", "covered", "x" * 39 + "…"]
    cells = grid.width * grid.height
    shares = np.full(cells, 1.0 / cells)
    drawn = json.dumps(cells_map(grid, shares, None, "95 %", "share", background))
    assert drawn.count('"Bern"') == 2  # with a halo beneath
    assert '"covered"' not in drawn


def test_a_picture_of_pixels(terminal: Terminal, saved: Path) -> None:
    assert terminal("map", saved, "--output", "map.png").exit_code == 0
    image = Path("map.png").read_bytes()
    assert image.startswith(b"\x89PNG\r\n\x1a\n")
    wide, high = (int.from_bytes(image[at : at + 4], "big") for at in (16, 20))
    assert wide >= 1_280  # twice the width of a page
    assert high >= 600


def test_the_command_draws_it_and_says_if_nothing_of_it_is_there(
    terminal: Terminal, saved: Path
) -> None:
    Path("bern.geojson").write_text(geojson(ROAD, LAKE))
    Path("paris.geojson").write_text(
        geojson({"type": "LineString", "coordinates": [[2.3, 48.8], [2.4, 48.9]]})
    )
    assert terminal("map", saved, "--output", "plain.svg").exit_code == 0
    assert (
        terminal("map", saved, "--output", "bern.svg", "--background", "bern.geojson").exit_code
        == 0
    )
    assert len(Path("bern.svg").read_text()) > len(Path("plain.svg").read_text()) + 200
    result = terminal("map", saved, "--output", "paris.svg", "--background", "paris.geojson")
    assert "Nothing in paris.geojson lies on the map" in result.stderr
    assert Path("paris.svg").read_text() == Path("plain.svg").read_text()


@pytest.mark.parametrize(
    ("content", "told"),
    [
        ("{", "it cannot be read as JSON"),
        ("[]", "has the type 'None'"),
        ('{"type": "Topology", "objects": {}}', "has the type 'Topology'"),
        ('{"type": "FeatureCollection"}', "should hold a list"),
        (
            geojson(
                {"type": "LineString", "coordinates": [[600000.0, 200000.0], [600100.0, 200100.0]]}
            ),
            "longitude and latitude in degrees",
        ),
        (
            geojson({"type": "LineString", "coordinates": [["a", "b"], [1, 2]]}),
            "not pairs of numbers",
        ),
        (geojson({"type": "LineString", "coordinates": [[1], [2]]}), "not pairs of numbers"),
        (
            geojson({"type": "LineString", "coordinates": [[float("nan"), 2], [1, 2]]}),
            "longitude and latitude",
        ),
        (
            geojson({"type": "Polygon", "coordinates": [[[1, 2], [2, 3], [1, 2]]]}),
            "a closed ring has at least four",
        ),
        (geojson({"type": "Polygon", "coordinates": 7}), "should hold a list"),
    ],
)
def test_bad_backgrounds_are_refused_in_words(
    content: str, told: str, terminal: Terminal, saved: Path
) -> None:
    Path("bad.geojson").write_text(content)
    assert told in terminal.refused(
        "map", saved.name, "--output", "map.html", "--background", "bad.geojson"
    )


def test_backgrounds_are_for_maps(terminal: Terminal) -> None:
    Path("road.geojson").write_text(geojson(ROAD))
    city(3).save("city.json")
    run_of("labels").save("labels.json")
    background = ("--output", "map.html", "--background", "road.geojson")
    assert "has no latitudes and longitudes" in terminal.refused("map", "city.json", *background)
    assert "--background is for maps" in terminal.refused("map", "labels.json", *background)


def test_points_that_cannot_be_seen_are_left_out_and_too_many_are_refused(
    terminal: Terminal, saved: Path
) -> None:
    grid = Grid.from_box(*BOX, 800.0)
    fine = np.column_stack([np.linspace(7.42, 7.46, 9_000), np.full(9_000, 46.95)])
    Path("fine.geojson").write_text(geojson({"type": "LineString", "coordinates": fine.tolist()}))
    assert len(read_background(Path("fine.geojson"), grid).lines[0]) < 2_200
    wild = (
        np.random.default_rng(1).uniform((7.42, 46.94), (7.46, 46.96), (1_000, 2)).round(5).tolist()
    )
    Path("wild.geojson").write_text(
        geojson(*({"type": "LineString", "coordinates": wild} for _ in range(3)))
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            "metricshuffle.report.map_background.MAX_DRAWN_POINTS", MAX_DRAWN_POINTS // 40
        )
        assert "simplify it first" in terminal.refused(
            "map", saved.name, "--output", "map.html", "--background", "wild.geojson"
        )


def test_lines_and_rings_are_cut_exactly() -> None:
    square = (0.0, 0.0, 1.0, 1.0)
    zigzag = np.array(
        [(-1.0, 0.5), (0.5, 0.5), (0.5, 2.0), (0.75, 2.0), (0.75, 0.25), (0.75, 0.125)]
    )
    pieces = [piece.tolist() for piece in clip_line(zigzag, square)]
    assert pieces == [
        [[0.0, 0.5], [0.5, 0.5], [0.5, 1.0]],
        [[0.75, 1.0], [0.75, 0.25], [0.75, 0.125]],
    ]
    assert clip_line(np.array([(2.0, 0.0), (3.0, 1.0)]), square) == []
    assert clip_line(np.array([(-1.0, 1.5), (2.0, 1.5)]), square) == []
    around = np.array([(-1.0, -1.0), (2.0, -1.0), (2.0, 2.0), (-1.0, 2.0), (-1.0, -1.0)])
    cut = clip_ring(around, square)
    assert sorted(set(map(tuple, cut.tolist()))) == [(0.0, 0.0), (0.0, 1.0), (1.0, 0.0), (1.0, 1.0)]
    assert len(clip_ring(around + 10.0, square)) == 0
