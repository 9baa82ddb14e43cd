"""Charts of every answer: drawn, described, with intervals, and an exact zero."""

from __future__ import annotations

import json
import re
from functools import cache
from typing import Any

import numpy as np
import pytest
from tests.catalogue.planned_tasks import BOX, run_of
from tests.report.parsed_page import ParsedPage

from metricshuffle import Plan, Release, Target, plan
from metricshuffle.queries import Histogram, UserHistogram, UserLinearQuery
from metricshuffle.report.charts.answer_charts import answer_chart, is_on_a_line, zero_inside
from metricshuffle.report.charts.interval_charts import (
    MAX_BARS,
    NamedInterval,
    bars_chart,
    number_chart,
    percent,
)
from metricshuffle.report.charts.map_layers import Background
from metricshuffle.report.charts.map_scales import legend_shares, scale_bar
from metricshuffle.report.charts.release_maps import INSET_SHARE, View, cells_map, place_map
from metricshuffle.report.charts.vega import BLUE, PHONE_WIDTH, WATER
from metricshuffle.report.map_page import page
from metricshuffle.spaces import (
    Categories,
    Circle,
    Clustered,
    Grid,
    Integers,
    Interval,
    Space,
    Tree,
    nested_squares,
    users_of,
)

pytestmark = pytest.mark.thorough

HOSTILE = "<b>&\"x'</b>"


def curated(query: Any, distance: float, values: list[Any]) -> Release:
    """By a curator, which is the fastest plan there is."""
    made: Plan = plan(query, Target(2, 1e-6, distance), len(values), trusted="curator")
    return made.run(values)


@cache
def labels() -> Release:
    """More labels than there is room for, two of them that a page must escape."""
    names = [HOSTILE, "a'b", *(f"label {index}" for index in range(38))]
    made = plan(
        Histogram(Categories(names)),
        Target(4, 0, 1),
        300,
        trusted="nobody",
        protocols=["k-ary-randomized-response"],
    )
    return made.run([names[person % 7] for person in range(300)])


OTHERS = {
    "many labels": labels,
    "bins": lambda: curated(
        Histogram(Interval(0.0, 50.0, "cm"), step=5),
        10,
        [float(person % 50) for person in range(100)],
    ),
    "around a circle": lambda: curated(
        UserHistogram(users_of(Space(Integers(0, 5), Circle(6)))), 2, [[1, 2]] * 50
    ),
    "along a tree": lambda: curated(
        UserHistogram(users_of(Tree([-1, 0, 0, 1], [0, 1, 1, 1]))), 1, [[3, 2]] * 50
    ),
    "clusters": lambda: curated(UserHistogram(users_of(Clustered(2, 3, 0.2))), 1, [[3, 2]] * 50),
    "nested squares": lambda: curated(
        UserHistogram(users_of(nested_squares(2, 40.0, "m"))), 20, [[3, 2]] * 50
    ),
    "regions": lambda: curated(
        UserLinearQuery.near(users_of(Space(Integers(0, 9))), {"low": [0], HOSTILE: [9]}, 3.0),
        2,
        [[0, 1]] * 50,
    ),
    "mean place": lambda: curated(
        UserLinearQuery.average(users_of(Grid(5, 4, 10.0, "m"))), 20, [[7, 8]] * 50
    ),
    "mean place on a map": lambda: curated(
        UserLinearQuery.average(users_of(Grid.from_box(*BOX, 800.0))), 900, [[7, 8]] * 50
    ),
}


QUERIES = (
    "unary sum",
    "local sum",
    "mean of real numbers",
    "centroid",
    "labels",
    "line",
    "map",
    "vectors of a line",
    "vectors of a map",
    "users' histogram",
    "users' items",
    "users' mean",
)


@pytest.mark.parametrize("kind", QUERIES)
def test_every_query_is_drawn(kind: str) -> None:
    """By vl-convert, as a page has it and narrow enough for a telephone."""
    chart = answer_chart(run_of(kind))
    drawing = chart.drawing()
    assert drawing.marks.count("<path") > 2
    assert drawing.narrow is not None
    assert drawing.narrow.width <= 1.08 * PHONE_WIDTH
    assert chart.title
    assert "95 % interval" in chart.description
    assert chart.svg().startswith("<svg")


@pytest.mark.parametrize("made", OTHERS.values(), ids=OTHERS.keys())
def test_other_spaces_are_drawn(made: Any) -> None:
    chart = answer_chart(made(), 0.9)
    assert "90 % interval" in chart.description
    assert len(chart.drawing().marks) > 500
    assert json.loads(json.dumps(chart.to_dict()))["$schema"].endswith("v5.json")


def test_labels_and_numbers_without_an_order_are_bars() -> None:
    spaces = (
        Space(Integers(0, 5)),
        Space(Integers(0, 5), Circle(6)),
        Categories(["a", "b"]),
        Tree([-1, 0], [0, 1]),
    )
    assert [is_on_a_line(UserHistogram(users_of(space))) for space in spaces] == [
        True,
        True,
        False,
        False,
    ]
    assert is_on_a_line(Histogram(Integers(0, 5)))
    assert not is_on_a_line(Histogram(Grid(2, 2)))


def test_bars_are_sorted_and_tell_how_many_are_left_out() -> None:
    release = labels()
    drawn = answer_chart(release).svg()
    table = release.value
    order = np.argsort(-np.asarray(table["share"]), kind="stable")
    seen = re.findall(r">(label \d+|a&#39;b|a'b|&lt;b&gt;[^<]*)</text>", drawn)
    assert len(seen) == MAX_BARS
    assert [name.replace("&#39;", "'") for name in seen if name.startswith("label")] == [
        table["label"][code]
        for code in order[:MAX_BARS]
        if table["label"][code].startswith("label")
    ]
    assert "and 16 more, together" in drawn
    assert "<b>" not in drawn


def test_a_page_escapes_what_others_wrote_once() -> None:
    parsed = ParsedPage(page(labels()))
    assert parsed.text.count(HOSTILE) >= 3
    assert "<b>&" not in parsed.html
    assert not re.search(r"&amp;(lt|gt|amp|quot|#\d+);", parsed.html)
    assert any(HOSTILE[:12] in text for text in parsed.texts["text"])  # a label in the chart
    assert any(HOSTILE in text for text in parsed.texts["td"])


def test_a_bar_is_hollow_exactly_where_the_interval_holds_zero() -> None:
    rows = [
        NamedInterval("far", 5.0, 1.0, 9.0, "5"),
        NamedInterval("near", 1.0, -1.0, 3.0, "1"),
        NamedInterval("below", -3.0, -4.0, -2.0, "-3"),
        NamedInterval("touching", 1.0, 0.0, 2.0, "1"),
    ]
    spec = bars_chart(rows, "mean", level="95 %")
    bars = {
        layer["mark"].get("filled", True): layer
        for layer in spec["layer"]
        if layer["mark"]["type"] == "bar"
    }
    assert [row["name"] for row in bars[True]["data"]["values"]] == ["far", "below"]
    assert [row["name"] for row in bars[False]["data"]["values"]] == ["near", "touching"]


@pytest.mark.parametrize(
    ("share", "error", "words"),
    [
        (0.123456, 0.0, "12.3 %"),
        (0.123456, 0.0123, "12.3 %"),
        (0.123456, 0.00123, "12.35 %"),
        (0.5, 0.3, "50 %"),
        (0.0, 0.001, "0.00 %"),
    ],
)
def test_shares_are_written_with_two_digits_of_their_error(
    share: float, error: float, words: str
) -> None:
    assert percent(share, error) == words


def test_steps_end_where_the_bins_do_and_the_band_is_that_of_the_release() -> None:
    release = run_of("vectors of a line")
    spec = answer_chart(release, 0.9).spec
    shares, sums = spec["hconcat"]
    band = next(layer for layer in shares["layer"] if layer["mark"].get("type") == "area")
    assert band["mark"]["color"] == WATER
    values = band["data"]["values"]
    assert [row["x"] for row in values] == [edge - 0.5 for edge in range(11)]
    interval = 100.0 * np.asarray(release.interval(0.9))
    assert np.allclose([(row["y"], row["y2"]) for row in values[:-1]], interval)
    below = next(layer for layer in sums["layer"] if layer["mark"].get("type") == "area")["data"][
        "values"
    ]
    assert release.estimate.band is not None
    assert np.allclose(
        [(row["y"], row["y2"]) for row in below[:-1]],
        100.0 * np.column_stack(release.estimate.band(0.9)),
    )


def filled(spec: dict[str, Any]) -> list[np.ndarray]:
    """The rings of all cells of a map."""
    shapes = [layer for layer in spec["layer"] if layer["mark"].get("fill") == BLUE]
    cells = [layer["data"]["values"][0]["geometry"] for layer in shapes]
    return [
        np.array(ring)
        for shape in cells
        if shape["type"] == "MultiPolygon"
        for (ring,) in shape["coordinates"]
    ]


def test_cells_are_full_or_small_exactly_as_their_intervals_say() -> None:
    grid = Grid(4, 3, 10.0, "m")
    shares = np.linspace(0.0, 0.2, 12)
    holding = np.arange(12) % 3 == 0
    view = View.of(grid, False)
    side = view.pixels * grid.cell
    areas = {}
    for ring in filled(cells_map(grid, shares, holding, "95 %", "share of people")):
        (left, top), (right, bottom) = ring.min(axis=0), ring.max(axis=0)
        for column in range(
            round((right - left) / side + 0.4) or 1
        ):  # a run of neighbours is one ring
            middle = (left + (column + 0.5) * min(side, right - left), (top + bottom) / 2.0)
            code = int((view.height - middle[1]) // side) * grid.width + int(middle[0] // side)
            areas[code] = (bottom - top) / side
    full = np.flatnonzero(~holding).tolist()
    small = np.flatnonzero(holding & (shares > 0.0)).tolist()
    assert sorted(areas) == sorted([*full, *small])  # without a share, and zero inside: blank
    assert all(areas[code] == pytest.approx(1.0, abs=1e-3) for code in full)
    assert all(areas[code] == pytest.approx(1.0 - 2.0 * INSET_SHARE, abs=1e-3) for code in small)


def test_a_share_above_zero_is_never_blank() -> None:
    shares = np.array([1.0 - 3e-6, 1e-6, 1e-6, 1e-6])
    assert (
        len(filled(cells_map(Grid(2, 2), shares, np.array([False, False, True, True]), "95 %", "")))
        == 2
    )


def test_zero_is_inside_with_the_ends() -> None:
    rows = np.array([[0.0, 0.1], [-0.1, 0.0], [1e-300, 1.0], [-1.0, -1e-300], [-1.0, 1.0]])
    assert zero_inside(rows).tolist() == [True, True, False, False, True]


def test_north_is_up_and_corners_are_told() -> None:
    grid = Grid.from_box(*BOX, 800.0)
    view = View.of(grid, False)
    assert view.at(np.array([(0.0, 0.0), (view.east, view.north)])).round(6).tolist() == [
        [0.0, view.height],
        [view.width, 0.0],
    ]
    assert view.corner(False, False).startswith("46.9400° N, 7.420")
    south = View.of(Grid.from_box(-34.1, -58.5, -34.0, -58.4, 800.0), True)
    assert south.corner(True, True).endswith("° W")
    assert "° S, " in south.corner(True, True)
    assert View.of(Grid(3, 2, 5.0, "ft"), True).corner(True, True) == "15, 10 ft"
    texts = re.findall(r">([^<]+)</text>", answer_chart(run_of("map")).svg())
    assert "N" in texts
    assert sum("° N, " in text for text in texts) == 4


@pytest.mark.parametrize(
    ("across", "grid", "length", "words"),
    [
        (900.0, Grid(9, 9, 100.0, "m"), 200.0, "200 m"),
        (30_000.0, Grid(30, 30, 1000.0, "m"), 10_000.0, "10 km"),
        (30.0, Grid(30, 30, 1.0, "km"), 10.0, "10 km"),
        (0.9, Grid(9, 9, 0.1, "km"), 0.2, "200 m"),
        (8.0, Grid(8, 8), 2.0, "2"),
    ],
)
def test_the_scale_is_a_round_number_of_metres(
    across: float, grid: Grid, length: float, words: str
) -> None:
    found, told = scale_bar(across, grid)
    assert found == pytest.approx(length)
    assert told == words


def test_legends_go_from_nothing_to_the_full_colour() -> None:
    assert legend_shares(0.2) == [(0, "0 %", "left"), (8, "5 %", "center"), (16, "20 %", "right")]


def test_a_place_far_outside_and_a_short_interval_are_seen() -> None:
    grid = Grid(10, 8, 10.0, "m")
    close = place_map(grid, (50.0, 40.0), [(49.0, 51.0), (39.5, 40.5)], "95 %")
    assert len(close["hconcat"]) == 2
    outside = json.dumps(place_map(grid, (-30.0, 90.0), [(-60.0, 0.0), (60.0, 120.0)], "95 %"))
    assert "concat" not in outside
    beside = number_chart(NamedInterval("sum", -5.0, -9.0, 1.0, "-5"), (0.0, 10.0), "sum", "95 %")
    assert beside["encoding"]["x"]["scale"]["domain"] == [-9.0, 10.0]


def test_totals_are_drawn_on_the_range_of_totals() -> None:
    total = UserLinearQuery.total(users_of(Integers(1, 9, "km"), 4))
    chart = answer_chart(curated(total, 2, [[1, 2, 3, 9]] * 50))
    assert "on the range from 4 to 36 km" in chart.description


def test_a_background_is_drawn_beneath_and_above() -> None:
    area = np.array([(0.0, 0.0), (10.0, 0.0), (10.0, 10.0), (0.0, 10.0), (0.0, 0.0)])
    background = Background(areas=((area,),), lines=(np.array([(0.0, 0.0), (20.0, 20.0)]),))
    layers = cells_map(
        Grid(2, 2, 10.0, "m"), np.full(4, 0.25), np.zeros(4, dtype=bool), "95 %", "", background
    )["layer"]
    kinds = [
        layer["data"]["values"][0]["geometry"]["type"]
        for layer in layers
        if layer["mark"]["type"] == "geoshape"
    ]
    assert kinds[0] == "MultiPolygon"  # the area, before the cells
    blue = next(place for place, layer in enumerate(layers) if layer["mark"].get("fill") == BLUE)
    lines = [
        place for place, layer in enumerate(layers) if layer["mark"].get("strokeOpacity") == 0.8
    ]
    assert lines
    assert lines[0] > blue
