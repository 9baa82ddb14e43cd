"""Places in a box of degrees: the plane is linear and never longer than the ground."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from pyproj import Geod
from tests.tables import check_all

from metricshuffle import Places
from metricshuffle.errors import DomainError, InputError
from metricshuffle.spaces.places import POINTS_PER_DEGREE, least_metres, metres_at

GEOD = Geod(ellps="WGS84")
EXACT = 2e-8  # metres: the geodesics of PROJ are right to 15 nanometres
BOXES = {
    "Austin": (30.1, -98.1, 30.55, -97.5),
    "Cape Town": (-34.2, 18.2, -33.6, 19.1),
    "on the equator": (-2.0, -70.0, 3.0, -60.0),
    "below the equator": (-40.0, 110.0, -10.0, 155.0),
    "35 to 70 north": (35.0, -20.0, 70.0, 60.0),
    "nearly half the world": (-85.0, -89.0, 85.0, 89.9),
    "wide and low": (40.0, -80.0, 41.0, 90.0),
    "narrow and tall": (-84.0, 10.0, 84.0, 10.001),
    "far north": (80.0, 0.0, 85.0, 60.0),
    "beside the antimeridian": (-20.0, 170.0, -10.0, 180.0),
    "one metre": (46.9, 7.4, 46.900009, 7.400013),
}


def drawn_pairs(
    places: Places, count: int, generator: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Anywhere, near each other, on the northern and southern edges, and between corners."""
    low = np.array([places.south, places.west])
    high = np.array([places.north, places.east])
    first, second = (low + generator.random((count, 2)) * (high - low) for _ in range(2))
    near = np.clip(first + generator.normal(0.0, 1e-3, (count, 2)) * (high - low), low, high)
    edges = [
        low
        + np.column_stack([generator.integers(0, 2, count), generator.random(count)]) * (high - low)
        for _ in range(2)
    ]
    return np.concatenate([first, first, edges[0]]), np.concatenate([second, near, edges[1]])


@check_all("name", BOXES)
def test_no_distance_in_the_plane_is_longer_than_on_the_ground(name: str) -> None:
    places = Places(*BOXES[name])
    first, second = drawn_pairs(places, 2000, np.random.default_rng(len(name)))
    plane = np.hypot(*(places.points(first) - places.points(second)).T)
    ground = GEOD.inv(first[:, 1], first[:, 0], second[:, 1], second[:, 0])[2]
    assert np.all(plane <= ground + EXACT)
    assert ground.max() <= places.diameter


@check_all("name", ["Austin", "Cape Town", "one metre", "beside the antimeridian"])
def test_the_plane_is_as_long_as_the_ground_somewhere(name: str) -> None:
    """Attained where a degree is shortest; a tenth of the metres would pass the other test."""
    places = Places(*BOXES[name])
    highest = places.south if abs(places.south) > abs(places.north) else places.north
    ends = np.array([[highest, places.west], [highest, places.east]])
    ratio = (
        float(np.hypot(*np.diff(places.points(ends), axis=0)[0]))
        / GEOD.inv(ends[0, 1], highest, ends[1, 1], highest)[2]
    )
    assert 0.99 < ratio <= 1.0
    corners = places.extremes()
    longest = max(GEOD.inv(a[1], a[0], b[1], b[0])[2] for a in corners for b in corners)
    assert longest <= places.diameter <= longest * 1.03


def test_without_the_bulge_of_geodesics_the_plane_would_be_too_long() -> None:
    """Geodesics between places of one latitude rise towards the pole."""
    south, west, north, east = BOXES["35 to 70 north"]
    ground = GEOD.inv(west, north, east, north)[2]
    assert metres_at(north)[1] * (east - west) > 1.02 * ground
    assert least_metres(south, north, east - west)[1] * (east - west) <= ground


@check_all(
    ("box", "told"),
    [
        ((10, 170, 20, -170), "antimeridian"),
        ((10, 0, 86, 10), "85 degrees"),
        ((-90, 0, 10, 10), "85 degrees"),
        ((10, -90, 20, 89), "179"),
        ((20, 0, 10, 10), "south must be below north"),
        ((10, 170, 20, 190), "180 degrees"),
    ],
)
def test_boxes_that_have_no_plane(box: tuple[float, float, float, float], told: str) -> None:
    with pytest.raises(InputError, match=told) as refused:
        Places(*box)
    assert str(refused.value).startswith("Places: ")
    assert str(refused.value).endswith(".")


def test_other_units_and_dimensions() -> None:
    with pytest.raises(InputError, match="unit must be 'm' or 'km'"):
        Places(10, 10, 20, 20, "miles")
    near = Places(*BOXES["Austin"])
    far = Places(*BOXES["Austin"], "km")
    assert far.diameter == pytest.approx(near.diameter / 1000.0)
    assert far.units(0.5) == near.units(500.0)
    assert Places.of_kind(near.model_dump(mode="json")) == near
    with pytest.raises(InputError, match="too many places"):
        near.all_values()


def test_degrees_are_read_as_they_are() -> None:
    """Doubles of a quarter degree and more are exact points; the corner is point 0.

    Also where it is finer than points.
    """
    places = Places(0.1, -98.1, 30.55, -0.3)
    values = np.array(
        [
            [30.123456789012345, -97.98765432109876],
            [0.1, -98.1],
            [30.55, -0.3],
            [0.25000000000000006, -0.30000000000000004],
        ]
    )
    numbers = places.numbers(places.validated(values))
    exact = [
        [
            Fraction(float(value)) * POINTS_PER_DEGREE - corner
            for value, corner in zip(row, places.corner, strict=True)
        ]
        for row in values
    ]
    assert [list(map(int, row)) for row in numbers] == [
        [round(part) for part in row] for row in exact
    ]
    assert all(
        part == int(part)
        for row in exact
        for part, value in zip(row, values[0], strict=True)
        if abs(value) >= 0.25 and row is not exact[1]
    )
    assert numbers.min() >= 0
    assert np.all(numbers <= places.spans)


def test_units_are_as_long_in_the_plane_as_they_are_said_to_be() -> None:
    for box in BOXES.values():
        places = Places(*box)
        for unit in (0.001, 0.7, 33.0):
            for points, metres in zip(places.units(unit), places.metres_per_degree, strict=True):
                assert Fraction(points, POINTS_PER_DEGREE) * Fraction(metres) >= Fraction(unit)
                assert points <= math.ceil(unit / metres * POINTS_PER_DEGREE * (1 + 1e-9))


def test_places_outside() -> None:
    places = Places(*BOXES["Austin"])
    with pytest.raises(DomainError, match="lies outside"):
        places.validated([(30.3, -97.7), (29.0, -97.7)])
    assert places.clamped([(29.0, -97.7), (31.0, 0.0)]).tolist() == [[30.1, -97.7], [30.55, -97.5]]
    for nowhere in ((91.0, -97.7), (30.3, 200.0), (math.nan, -97.7), ("north", -97.7)):
        with pytest.raises(DomainError):
            places.clamped([nowhere])
    assert places.contains((30.1, -98.1))
    assert not places.contains((30.0999, -98.1))
