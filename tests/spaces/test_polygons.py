"""Polygons in whole numbers: places inside, inner points, crossings."""

from __future__ import annotations

import itertools
import time
from typing import Any

import numpy as np
import pytest
from tests.catalogue.invented_zones import quads
from tests.tables import check_all

import metricshuffle as ms
from metricshuffle.errors import InputError
from metricshuffle.spaces.polygons import containing, contains, inner_point, shape_of

SQUARE = [[0.0, 0.0], [2.0, 0.0], [2.0, 2.0], [0.0, 2.0], [0.0, 0.0]]
HOLE = [[0.5, 0.5], [0.5, 1.5], [1.5, 1.5], [1.5, 0.5], [0.5, 0.5]]
HORSESHOE = [[0, 0], [3, 0], [3, 3], [2, 3], [2, 1], [1, 1], [1, 3], [0, 3], [0, 0]]


def polygon(*rings: Any) -> dict[str, Any]:
    return {"type": "Polygon", "coordinates": list(rings)}


def points(*degrees: tuple[float, float]) -> Any:
    return np.rint(np.array(degrees) * 1e7).astype(np.int64)


def test_holes_and_parts_count() -> None:
    shape = shape_of("a", polygon(SQUARE, HOLE))
    assert contains(shape, points((0.2, 0.2), (1.0, 1.0), (3.0, 1.0))).tolist() == [
        True,
        False,
        False,
    ]
    shifted = [[x + 5.0, y] for x, y in SQUARE]
    two = shape_of("b", {"type": "MultiPolygon", "coordinates": [[SQUARE, HOLE], [shifted]]})
    assert contains(two, points((6.0, 1.0), (1.0, 1.0), (0.1, 0.1))).tolist() == [True, False, True]


def test_every_place_on_shared_borders_lies_in_exactly_one_zone() -> None:
    """A tiling: interior points of edges, and corners inside the map, belong to one zone each."""
    features = quads(5, 4)["features"]
    shapes = [shape_of("q", feature["geometry"]) for feature in features]
    corners = np.concatenate([np.array(shape[0][0]).reshape(-1, 2) for shape in shapes])
    shared, times = np.unique(corners, axis=0, return_counts=True)
    inner = shared[times == 4]
    assert len(inner) == 4 * 3
    times_inside = np.sum([contains(shape, inner) for shape in shapes], axis=0)
    assert (times_inside == 1).all()
    assert (containing(shapes, inner) >= 0).all()


def test_containing_agrees_with_a_winding_count() -> None:
    generator = np.random.default_rng(1)
    shape = shape_of("h", polygon(HORSESHOE))
    places = generator.integers(-(10**6), 4 * 10**7, (2000, 2))
    x, y = places.T / 1e7
    in_base = (x > 0) & (x < 3) & (y > 0) & (y < 1)
    in_arms = (y >= 1) & (y < 3) & (((x > 0) & (x < 1)) | ((x > 2) & (x < 3)))
    assert np.array_equal(contains(shape, places), in_base | in_arms)


@check_all("rings", [[HORSESHOE], [SQUARE, HOLE], [SQUARE], [[[0, 0], [9, 8.9], [9, 9], [0, 0]]]])
def test_an_inner_point_is_inside(rings: Any) -> None:
    shape = shape_of("a", polygon(*rings))
    assert contains(shape, np.array([inner_point(shape)])).all()


def test_random_stars_have_inner_points_and_do_not_cross() -> None:
    generator = np.random.default_rng(2)
    crossed = 0
    for _ in range(200):
        corners = int(generator.integers(3, 40))
        angles = np.sort(generator.uniform(0.0, 2.0 * np.pi, corners))
        if np.diff(np.append(angles, angles[0] + 2.0 * np.pi)).max() > 3.0:
            continue
        ring = generator.uniform(0.1, 1.0, (corners, 1)) * np.c_[np.cos(angles), np.sin(angles)]
        shape = shape_of("star", polygon(ring.tolist()))
        assert contains(shape, np.array([inner_point(shape)])).all()
        exchanged = ring.copy()
        exchanged[[0, corners // 2]] = exchanged[[corners // 2, 0]]
        whole = [tuple(int(part) for part in corner) for corner in np.rint(exchanged * 1e7)]
        crosses = any_crossing([*zip(whole, whole[1:] + whole[:1], strict=True)])
        assert crosses == refuses_crossing(polygon(exchanged.tolist()))
        crossed += crosses
    assert crossed > 50


def refuses_crossing(geometry: Any) -> bool:
    try:
        shape_of("star", geometry)
    except InputError as error:
        return "crosses itself" in str(error)
    return False


def any_crossing(edges: Any) -> bool:
    """Whether two edges cross, by all pairs in Python's whole numbers."""

    def side(start: Any, end: Any, point: Any) -> int:
        turn = (end[0] - start[0]) * (point[1] - start[1]) - (end[1] - start[1]) * (
            point[0] - start[0]
        )
        return int(turn > 0) - int(turn < 0)

    return any(
        side(a, b, c) * side(a, b, d) < 0 and side(c, d, a) * side(c, d, b) < 0
        for (a, b), (c, d) in itertools.combinations(edges, 2)
    )


@check_all(
    "geometry, sentence",
    [
        (polygon([[0, 0], [1, 1], [1, 0], [0, 1], [0, 0]]), "crosses itself near latitude"),
        (polygon(SQUARE, [[1, 1], [3, 1], [3, 1.5], [1, 1]]), "crosses itself"),
        (polygon(), "empty polygon"),
        (polygon([[1, 1], [1, 1], [1, 1]]), "empty polygon"),
        (polygon([[1, 1], [2, 2], [1, 1]]), "empty polygon"),
        (polygon([[179, 0], [-179, 0], [-179, 1], [179, 1], [179, 0]]), "antimeridian"),
        (polygon([[0, 0], [1, 95], [1, 0]]), "latitudes lie within"),
        (polygon([[30, 120], [31, 120], [31, 121]]), "are they swapped?"),
        (polygon([[500000, 200], [500001, 200], [500001, 201]]), "must be degrees"),
        (polygon([[0, 0], [1, "x"], [1, 0]]), "not a longitude and a latitude"),
        (polygon([[0, 0], [1, float("nan")], [1, 0]]), "not a longitude and a latitude"),
        ({"type": "Point", "coordinates": [0, 0]}, "is a Point; zones are polygons"),
        (None, "is empty; zones are polygons"),
        ({"type": "Polygon", "coordinates": 7}, "no list of coordinates"),
    ],
)
def test_a_polygon_that_is_none_is_refused(geometry: Any, sentence: str) -> None:
    with pytest.raises(InputError, match=r"zone 'Z 9'") as error:
        shape_of("Z 9", geometry)
    assert sentence in str(error.value)


def rectangle(west: float, south: float, east: float, north: float) -> list[list[float]]:
    return [[west, south], [east, south], [east, north], [west, north], [west, south]]


def dense(west: float, south: float, east: float, north: float) -> list[list[float]]:
    """A rectangle with a corner at every hundredth of a side."""
    corners = np.array(rectangle(west, south, east, north))
    shares = np.linspace(0.0, 1.0, 100, endpoint=False)[:, None]
    sides = [start + shares * (end - start) for start, end in itertools.pairwise(corners)]
    return [*np.concatenate(sides).tolist(), corners[0].tolist()]


APART = rectangle(5.0, 5.0, 6.0, 6.0)


@check_all(
    ("first", "second"),
    [
        (polygon(SQUARE), polygon(rectangle(1.0, 1.0, 3.0, 3.0))),
        # a cross: no corner of one lies in the other
        (polygon(rectangle(0.0, 1.0, 3.0, 2.0)), polygon(rectangle(1.0, 0.0, 2.0, 3.0))),
        (polygon(SQUARE), polygon(SQUARE)),
        (polygon(SQUARE), polygon(rectangle(0.0, 0.0, 1.0, 2.0))),
        (polygon(SQUARE), polygon(rectangle(0.5, 0.5, 1.5, 1.5))),
        (polygon(dense(0.0, 0.0, 2.0, 2.0)), polygon(dense(1.999, 0.0, 4.0, 2.0))),
        # a chord between two corners on the border
        (polygon(SQUARE), polygon([[0.0, 1.0], [2.0, 1.0], [3.0, 2.0], [-1.0, 1.0], [0.0, 1.0]])),
        (polygon(SQUARE, HOLE), polygon(rectangle(0.4, 0.4, 1.6, 1.6))),
        (polygon([[170.0, 0.0], [179.0, 0.0], [175.0, 9.0]]), polygon(rectangle(172, 1, 178, 2))),
    ],
)
def test_overlapping_zones_are_refused_by_name(first: Any, second: Any) -> None:
    for geometries in ([first, second], [second, first]):
        with pytest.raises(InputError, match="overlap near latitude") as error:
            ms.Zones.of_polygons(["a", "b", "c"], [*geometries, polygon(APART)])
        assert "zones 'a' and 'b'" in str(error.value)


@check_all(
    ("first", "second"),
    [
        (SQUARE, rectangle(2.0, 0.0, 3.0, 2.0)),
        (SQUARE, rectangle(2.0, 0.5, 3.0, 1.5)),
        (SQUARE, rectangle(2.0, 2.0, 3.0, 3.0)),
        # rounding of a border to a millionth of a degree, to both sides
        (
            SQUARE,
            [[2.0, 0.0], [3.0, 0.0], [3.0, 2.0], [2.0, 2.0], [1.999999, 1.3], [2.000001, 0.7]],
        ),
        (dense(0.0, 0.0, 2.0, 2.0), rectangle(1.999999, 0.0, 4.0, 2.0)),
        # a border that was drawn twice: a sliver of 30 m
        (dense(0.0, 0.0, 2.0, 2.0), dense(1.9997, 0.0, 4.0, 2.0)),
    ],
)
def test_zones_may_share_borders(first: Any, second: Any) -> None:
    assert len(ms.Zones.of_polygons(["a", "b"], [polygon(first), polygon(second)]).ids) == 2


def test_a_place_in_a_sliver_is_in_the_first_zone() -> None:
    squares = [polygon(rectangle(0.0, 0.0, 0.1, 0.1)), polygon(rectangle(0.0997, 0.0, 0.2, 0.1))]
    zones = ms.Zones.of_polygons("ba", squares)
    assert zones.ids[int(zones.validated([(0.05, 0.0998)])[0])] == "a"


def test_slivers_are_small_next_to_the_zones() -> None:
    """30 m are a sliver between zones of 11 km, and not between zones of 1 km."""
    for side, fits in ((0.1, True), (0.01, False)):
        shapes = [
            polygon(rectangle(0.0, 0.0, side, side)),
            polygon(rectangle(side - 3e-4, 0.0, 2 * side, side)),
        ]
        if fits:
            assert len(ms.Zones.of_polygons("ab", shapes).ids) == 2
        else:
            with pytest.raises(InputError, match="overlap near latitude"):
                ms.Zones.of_polygons("ab", shapes)


def test_a_zone_may_fill_the_hole_of_another() -> None:
    assert len(ms.Zones.of_polygons("ab", [polygon(SQUARE, HOLE), polygon(HOLE)]).ids) == 2


def test_overlaps_of_many_zones_are_searched_in_little_time() -> None:
    """1,600 zones; all pairs would take a minute."""
    squares = [
        polygon(rectangle(x / 100, y / 100, (x + 1) / 100, (y + 1) / 100))
        for x in range(40)
        for y in range(40)
    ]
    start = time.process_time()
    ms.Zones.of_polygons([f"{place}" for place in range(1600)], squares)
    assert time.process_time() - start < 6.0
