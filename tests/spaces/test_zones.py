"""Zones: order, digest, distances, places, and sentences for bad input."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.catalogue.invented_zones import SIDE, SOUTH, WEST, point_zones, quad_zones, quads
from tests.tables import check_all

import metricshuffle as ms
from metricshuffle.errors import DomainError, InputError, NotCertified
from metricshuffle.spaces import Chord, Domain, Space, Zones

BOX = (30.2, -97.8, 30.3, -97.7)


def test_zones_are_sorted_and_the_digest_is_that_of_the_list() -> None:
    zones = Zones.of_points(["b", "a"], [1.0, 2.0], [3.0, 4.0], [5.0, 6.0])
    assert zones.ids == ("a", "b")
    assert zones.latitudes == (20_000_000, 10_000_000)
    assert zones.weights == (6.0, 5.0)
    same = Zones.of_points(["a", "b"], [2.0, 1.0], [4.0, 3.0], [6.0, 5.0])
    assert (zones == same, hash(zones) == hash(same)) == (True, True)
    moved = Zones.of_points(["a", "b"], [2.0, 1.0000001], [4.0, 3.0], [6.0, 5.0])
    assert (moved == zones, moved.digest == zones.digest) == (False, False)


@check_all("zones", [quad_zones(), point_zones(30)])
def test_zones_survive_json(zones: Zones) -> None:
    again = Domain.of_kind(json.loads(zones.model_dump_json()))
    assert again == zones
    assert isinstance(again, Zones)
    assert again.digest == zones.digest


def test_straight_lines_are_never_longer_than_the_ground() -> None:
    """Against geodesics of WGS84, from centimetres to the other side of the Earth."""
    pyproj = pytest.importorskip("pyproj")
    generator = np.random.default_rng(4)
    first = np.column_stack([generator.uniform(-85, 85, 4000), generator.uniform(-180, 180, 4000)])
    second = first + generator.normal(0.0, 1.0, first.shape) * np.repeat(
        10.0 ** -np.arange(8), 500
    ).reshape(-1, 1)
    second[:, 0] = np.clip(second[:, 0], -85.0, 85.0)
    ground = pyproj.Geod(ellps="WGS84").inv(first[:, 1], first[:, 0], second[:, 1], second[:, 0])[2]
    metric = Chord("m")
    chords = np.array([metric(a, b) for a, b in zip(first, second, strict=True)])
    assert (chords <= ground + 2e-7).all()
    short = ground < 1e4
    assert (chords[short] >= ground[short] * (1.0 - 1e-6) - 1e-6).all()


def test_nearest_and_diameter_by_all_pairs() -> None:
    for zones in (point_zones(400), quad_zones(7, 5)):
        distances = Space.of(zones).metric.pairwise(zones.degrees, zones.degrees)
        assert zones.diameter == pytest.approx(distances.max(), rel=1e-9)
        assert zones.diameter >= distances.max()
        np.fill_diagonal(distances, np.inf)
        assert (zones.nearest <= distances.min(axis=1)).all()
        assert zones.nearest == pytest.approx(distances.min(axis=1), rel=1e-6)
    kilometres = Zones.of_points(["a", "b"], [0.0, 1.0], [0.0, 0.0], unit="km")
    assert Space.of(kilometres).distance("a", "b") == pytest.approx(110.574, abs=2e-3)
    assert kilometres.nearest[0] == pytest.approx(110.574, abs=2e-3)


def test_the_radius_bounds_the_distance_of_every_place() -> None:
    pyproj = pytest.importorskip("pyproj")
    zones = quad_zones()
    generator = np.random.default_rng(5)
    places = generator.uniform((SOUTH, WEST), (SOUTH + 3 * SIDE, WEST + 4 * SIDE), (5000, 2))
    codes = zones._located(places)
    inside = codes >= 0
    points = zones.degrees[codes[inside]]
    ground = pyproj.Geod(ellps="WGS84").inv(
        points[:, 1], points[:, 0], places[inside, 1], places[inside, 0]
    )[2]
    assert zones.radius is not None
    assert 0.8 * zones.radius < ground.max() <= zones.radius


def _forged(zones: Zones, **fields: Any) -> ms.Task:
    """A planned task whose zones are changed, in a file that is otherwise as it was."""
    distance = 1.5 * float(zones.nearest.min())
    target = ms.Target(1.0, 1e-6, distance)
    task = ms.plan(ms.Histogram(zones), target, 200, protocols=["noisy-vectors"]).task
    document = json.loads(task.to_json())
    document.pop("digest")
    for guarantee in ("guarantee", "if_shuffler_colludes"):
        document[guarantee].pop("sentence")
    document["query"]["domain"] |= fields
    return ms.Task.model_validate(document)


def test_a_task_that_understates_how_large_zones_are_is_refused() -> None:
    pytest.importorskip("h3")
    for zones in (quad_zones(), Zones.h3_box(7, BOX)):
        _forged(zones).verify()
        assert zones.radius is not None
        for radius in (0.9 * zones.radius, 1.0, 0.0, None):
            forged = _forged(zones, radius=radius)
            with pytest.raises(NotCertified, match="away from the point of their zone"):
                forged.verify()
        _forged(zones, radius=2.0 * zones.radius).verify()


def test_a_place_has_the_zone_around_it() -> None:
    zones = quad_zones()
    assert zones.validated(zones.degrees).tolist() == list(range(12))
    assert zones.validated(list(zones.ids)).tolist() == list(range(12))
    assert zones.contains("T00")
    assert not zones.contains("T99")
    assert not zones.contains((0.0, 0.0))
    corner = zones.degrees[0] - 0.05
    assert zones.clamped([corner.tolist()]).tolist() == [0]
    with pytest.raises(InputError, match="none is the nearest"):
        zones.clamped(["T00"])
    with pytest.raises(InputError, match="points without borders"):
        point_zones(30).validated([(30.2, -97.8)])


@check_all(
    "values, sentence",
    [
        (["T00", "X"], "row 1 (counting from 0): 'X' is not the id of a zone"),
        ([7, "T00"], "row 0 (counting from 0): 7 is not the id of a zone"),
        ([(30.11, -97.94), (0.0, 0.0)], "lies outside all zones. A place is (latitude"),
        ([(-97.9, 30.1)], "the order: latitude comes first"),
        ([(float("nan"), 0.0)], "is not a number"),
    ],
)
def test_a_value_in_no_zone_is_refused(values: Any, sentence: str) -> None:
    with pytest.raises(DomainError) as error:
        quad_zones().validated(values)
    assert sentence in str(error.value)


@check_all(
    "columns, sentence",
    [
        ((["a", "a"], [1, 2], [3, 4]), "the id 'a' belongs to more than one zone"),
        ((["a", "b", "b", "c", "c"], [1, 2, 3, 4, 5], [0] * 5), "and so do 1 more"),
        ((["a", "b"], [1, 1], [3, 3]), "zones 'a' and 'b' have the same representative point"),
        ((["a", "b"], [1, 1], [180, -180]), "zones 'a' and 'b' have the same representative"),
        ((["a"], [1], [3]), "2 to 16,384 zones, got 1"),
        ((["a", ""], [1, 2], [3, 4]), "every zone needs an id"),
        ((["a", "b"], [1], [3, 4]), "2 zones need as many"),
        ((["a", "b"], [1, 89], [3, 4]), "latitudes lie within +-85"),
        ((["a", "b"], [1, 2], [3, 4], [1.0, -1.0]), "weights must be numbers >= 0"),
        ((["a", "b"], [1, 2], [3, 4], [0.0, 0.0]), "weights must be numbers >= 0"),
    ],
)
def test_zones_that_do_not_fit_together_are_refused(columns: Any, sentence: str) -> None:
    with pytest.raises(InputError) as error:
        Zones.of_points(*columns)
    assert sentence in str(error.value)


def test_a_geojson_file(tmp_path: Path) -> None:
    file = tmp_path / "tracts.geojson"
    file.write_text(json.dumps(quads()))
    zones = ms.Zones.geojson(file, name="tract", weights="residents")
    assert zones == quad_zones()
    marked = ms.Zones.geojson(file, name="tract", point=("lat", "lon"))
    assert marked.weights is None
    assert marked.degrees[0] == pytest.approx(
        [quads()["features"][0]["properties"][name] for name in ("lat", "lon")], abs=1e-7
    )
    for content, name, sentence in (
        ({"features": []}, "tract", "has no features"),
        ([], "tract", "has no features"),
        (quads(), "zip", "feature 0 (counting from 0)"),
        ({**quads(), "crs": {"name": "EPSG:3857"}}, "tract", "convert them to degrees"),
    ):
        file.write_text(json.dumps(content))
        with pytest.raises(InputError) as error:
            ms.Zones.geojson(file, name=name)
        assert sentence in str(error.value)


def test_cells_of_h3() -> None:
    library = pytest.importorskip("h3")
    zones = Zones.h3_box(8, BOX)
    place = (30.25, -97.75)
    assert zones.ids[zones.validated([place])[0]] == library.latlng_to_cell(*place, 8)
    assert zones == Zones.h3(reversed(zones.ids))
    # Neighbouring centres of resolution 8 are about sqrt(3) edges of 0.53 km apart.
    assert 850.0 < zones.nearest.min() <= zones.nearest.max() < 1100.0
    assert zones.radius is not None
    assert 500.0 < zones.radius < 700.0
    assert len(zones.borders()) == len(zones.ids)
    cases: list[tuple[Callable[[], Zones], str]] = [
        (lambda: Zones.h3(["x", "y"]), "'x' is not the id of a cell of H3"),
        (lambda: Zones.h3([]), "there are no cells"),
        (lambda: Zones.h3([zones.ids[0], library.cell_to_parent(zones.ids[0])]), "same resolution"),
        (lambda: Zones.h3_box(16, BOX), "a resolution from 0 to 15"),
        (lambda: Zones.h3_box(13, BOX), "there may be up to 16,384"),
        (lambda: Zones.h3_box(2, BOX), "has 0 cells of resolution 2"),
        (lambda: Zones.h3_box(8, (30.2, 170.0, 30.3, -170.0)), "antimeridian"),
    ]
    for wrong, sentence in cases:
        with pytest.raises(InputError) as error:
            wrong()
        assert sentence in str(error.value)


def test_cells_of_s2() -> None:
    library = pytest.importorskip("s2sphere")
    area = library.LatLngRect(
        library.LatLng.from_degrees(*BOX[:2]), library.LatLng.from_degrees(*BOX[2:])
    )
    coverer = library.RegionCoverer()
    coverer.min_level = coverer.max_level = 12
    coverer.max_cells = 10_000
    zones = Zones.s2([cell.to_token() for cell in coverer.get_covering(area)])
    assert zones.validated(zones.degrees).tolist() == list(range(len(zones.ids)))
    assert zones.radius is not None
    assert math.isfinite(zones.radius)
    assert zones.nearest.max() < 4.0 * zones.radius
    with pytest.raises(InputError, match="'zz' is not the token"):
        Zones.s2(["zz", "y"])
    with pytest.raises(InputError, match="same level"):
        Zones.s2([zones.ids[0], library.CellId.from_token(zones.ids[0]).parent().to_token()])


@pytest.mark.parametrize("move", [0.7, 1.2345678])
def test_the_limits_of_a_distance_are_accepted_as_they_are_printed(move: float) -> None:
    """With two zones, the nearest two are the farthest two."""
    for longitudes in ([0.0, move], [0.0, move, 3.1]):
        zones = Zones.of_points(
            ["a", "b", "c"][: len(longitudes)], [40.0] * len(longitudes), longitudes
        )
        query = ms.Histogram(zones)
        with pytest.raises(InputError) as error:
            query.check_distance(1.0)
        smallest, largest = (
            float(number.replace(",", ""))
            for number in re.findall(r"([\d,]+) m\b", str(error.value))[:2]
        )
        query.check_distance(smallest)
        query.check_distance(largest)
        with pytest.raises(InputError):
            query.check_distance(smallest - 2.0)
        with pytest.raises(InputError):
            query.check_distance(largest + 1.0)
        for shape in ("linear", "flat"):
            plan = ms.plan(query, ms.Target(1, 1e-6, largest, shape=shape), 500)
            plan.task.verify()
            # nobody can be moved without noise: the promise is one about real moves
            assert plan.choice.expected_error > 0.0
