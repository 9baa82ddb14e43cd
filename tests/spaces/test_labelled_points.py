"""Places on the globe and vectors of words: distances, bounds, and what is refused."""

from __future__ import annotations

import math

import numpy as np
import pytest

from metricshuffle.errors import InputError
from metricshuffle.spaces import Categories, GreatCircle, Haversine, Metric, Space, Vectors
from metricshuffle.spaces.places import ECCENTRICITY_SQUARED, EQUATOR_RADIUS
from metricshuffle.testing import check_metric

PLACES = [(48.85, 2.35), (-33.87, 151.21), (90.0, 0.0), (0.0, 179.9), (0.0, -179.9), (1.0, 2.0)]
ROWS = np.random.default_rng(2).normal(size=(40, 7))


def test_great_circles_are_those_of_the_sphere_divided_by_the_factor() -> None:
    metric = GreatCircle(PLACES)
    codes = np.arange(len(PLACES))
    sphere = Haversine().pairwise(PLACES, PLACES)
    np.testing.assert_allclose(metric.pairwise(codes, codes) * 1.006, sphere, rtol=1e-14)
    assert metric(3, 4) == pytest.approx(0.2 * math.pi / 180.0 * 6371.0088 / 1.006)
    space = Space(Categories([str(code) for code in codes]), metric)
    assert space.unit == "km"
    assert GreatCircle(PLACES, "m")(0, 1) == pytest.approx(1000.0 * metric(0, 1))


def test_no_short_step_on_the_ellipsoid_is_shorter() -> None:
    """Steps in all directions at all latitudes, by the radii of curvature of WGS84."""
    latitudes = np.deg2rad(np.linspace(-89.9, 89.9, 601))[:, None]
    turns = np.linspace(0.0, math.pi / 2, 91)
    root = np.sqrt(1.0 - ECCENTRICITY_SQUARED * np.sin(latitudes) ** 2)
    across = EQUATOR_RADIUS / root
    meridian = EQUATOR_RADIUS * (1.0 - ECCENTRICITY_SQUARED) / root**3
    ground = np.hypot(meridian * np.cos(turns), across * np.sin(turns))
    share = ground / 6_371_008.8
    assert share.min() == pytest.approx(0.994417, abs=1e-6)
    assert GreatCircle(PLACES).ground_share < share.min()


def test_positions_are_never_farther_apart_than_points() -> None:
    for metric in (GreatCircle(PLACES), Vectors(ROWS)):
        codes = np.arange(len(metric.positions))
        straight = np.linalg.norm(metric.positions[:, None] - metric.positions, axis=2)
        apart = metric.pairwise(codes, codes)
        assert (straight <= apart * (1.0 + 1e-12) + metric.position_error).all()
        assert metric.diameter_bound >= apart.max()
        assert metric.nearest == pytest.approx(apart[apart > 0.0].min(), rel=1e-9)
        check_metric(metric, codes.tolist())


def test_they_are_read_back_from_json_and_compared() -> None:
    for metric in (GreatCircle(PLACES, "m"), Vectors(ROWS)):
        again = Metric.of_kind(metric.model_dump(mode="json"))
        assert again == metric
        assert hash(again) == hash(metric)
    assert Vectors(ROWS) != Vectors(ROWS + 1.0)
    assert GreatCircle(PLACES) != GreatCircle(PLACES, "m")


def test_wrong_tables_are_refused() -> None:
    for places in ([(91.0, 0.0), (0.0, 0.0)], [(0.0, 0.0, 0.0)] * 2, [(1.0, 2.0)], "Paris"):
        with pytest.raises(InputError, match="places"):
            GreatCircle(places)
    for rows in ([[1.0]], [[1.0, math.nan], [0.0, 1.0]], [[1e200], [0.0]], [[1e-300], [0.0]]):
        with pytest.raises(InputError, match="vectors"):
            Vectors(rows)
    with pytest.raises(InputError, match="points 0 to 5"):
        GreatCircle(PLACES).pairwise([6], [0])


def test_coinciding_points_have_the_nearest_of_the_others() -> None:
    assert Vectors([[0.0, 1.0], [0.0, 1.0], [3.0, 5.0]]).nearest == 5.0
    assert Vectors([[0.0, 1.0], [0.0, 1.0]]).nearest == 0.0
