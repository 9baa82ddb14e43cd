"""Places in degrees: read and answered as latitude and longitude, with metres."""

from __future__ import annotations

import json
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pyproj import Geod
from tests.catalogue.planned_tasks import BOX, planned

from metricshuffle import Release
from metricshuffle.planning import plan
from metricshuffle.privacy.target import Target
from metricshuffle.protocols.sums import Sums
from metricshuffle.queries import Centroid, UserLinearQuery
from metricshuffle.randomizers.additive_randomizer import AdditiveRandomizer
from metricshuffle.spaces import Grid, Places, Space, users_of
from metricshuffle.tasks.task import Task

PLACES = "who,lat,lon\n" + "".join(
    f"p{person},{46.945 + person % 2 * 0.01:.4f},{7.43 + person % 4 * 0.005:.4f}\n"
    for person in range(40)
)
LATITUDE = 46.95
LONGITUDE = 7.4375
WORDS = ["places.csv", "--column", "lat", "--column", "lon"]


@pytest.fixture(autouse=True)
def places(tmp_path: Path) -> None:
    (tmp_path / "places.csv").write_text(PLACES)


def fine_grid() -> Grid:
    return Grid.from_box(*BOX, 200.0)


@pytest.fixture(scope="module")
def fine_centroid() -> Any:
    return plan(
        Centroid(Places(*BOX)),
        Target(4, 1e-6, 600),
        40,
        encoding="modular",
        protocols=["polya-shuffle"],
    )


def old_task() -> Task:
    """As it was planned when places were counted by cells."""
    grid = fine_grid()
    parts = tuple(
        AdditiveRandomizer(span=span, shape=Fraction(1, 40), rate=0.75)
        for span in (grid.width - 1, grid.height - 1)
    )
    protocol = Sums(
        name="polya-shuffle", trusted="aggregator", step=200.0, randomizers=parts, modulus=10_001
    )
    return Task.of(Centroid(grid), protocol, Target(4, 1e-6, 600), 40)


def test_a_centroid_comes_back_in_degrees(terminal: Any, fine_centroid: Any) -> None:
    """Value, error and interval in degrees agree with "plane" in metres."""
    fine_centroid.save("plan.json")
    result = terminal("run", "plan.json", *WORDS, "--json", "--output", "release.json")
    document = json.loads(result.stdout)
    latitude, longitude = document["value"]
    assert latitude == pytest.approx(LATITUDE, abs=20 * document["standard_error"][0])
    assert longitude == pytest.approx(LONGITUDE, abs=20 * document["standard_error"][1])
    (south, north), (west, east) = document["interval_95"]
    assert south < latitude < north
    assert west < longitude < east
    plane = document["plane"]
    assert set(plane) == {"unit", "value", "standard_error", "interval_95"}
    assert plane["unit"] == "m"
    away = Geod(ellps="WGS84").inv(BOX[1], BOX[0], longitude, latitude)[2]
    assert np.hypot(*plane["value"]) == pytest.approx(away, rel=1e-3)
    metres = np.array([111_190.0, 111_320.0 * np.cos(np.radians(LATITUDE))])
    assert np.array(document["standard_error"])[::-1] * metres[::-1] == pytest.approx(
        np.array(plane["standard_error"]), rel=0.01
    )
    for (low, high), (least, largest) in zip(
        reversed(document["interval_95"]), plane["interval_95"], strict=True
    ):
        assert (high - low) > 0.0
        assert (largest - least) > 0.0
    release = Release.load("release.json")
    assert release.value == (latitude, longitude)
    assert release.plane is not None
    assert list(release.plane.value) == plane["value"]  # type: ignore[arg-type]
    assert release.interval(0.95) == ((south, north), (west, east))


def test_the_interval_in_degrees_covers_that_in_metres() -> None:
    """Old tasks: the rectangle in the plane lies within the stated degrees, at every level."""
    task = old_task()
    tally = task.counted([[(column % 14, column % 10) for column in range(40)]])
    release = task.estimate(task.publish(tally))
    for level in (0.5, 0.95, 0.999999):
        answer = release.task.query.answer(release.estimate, level)
        assert answer.plane is not None
        (low_x, high_x), (low_y, high_y) = np.array(answer.plane.interval)
        corners = np.array([(x, y) for x in (low_x, high_x) for y in (low_y, high_y)])
        latitudes, longitudes = fine_grid().degrees(corners)
        (south, north), (west, east) = np.array(answer.interval)
        assert south <= latitudes.min() + 1e-12
        assert latitudes.max() <= north + 1e-12
        assert west <= longitudes.min() + 1e-12
        assert longitudes.max() <= east + 1e-12


def test_in_words(terminal: Any, fine_centroid: Any) -> None:
    """Degrees first, then metres from the south-west corner, then what the pair means."""
    fine_centroid.save("plan.json")
    told = terminal("run", "plan.json", *WORDS).stdout.splitlines()
    assert told[0].startswith("centroid = (46.9")
    assert "95 % interval ((46.9" in told[0]
    assert told[1].startswith("that is (")
    assert " m (east, north) from the south-west corner, 95 % interval ((" in told[1]
    assert "(latitude, longitude) in degrees." in told
    assert "(distance between true places, along the ground)" in "".join(told)


def test_a_map_has_cells_in_degrees(terminal: Any) -> None:
    """Rows with south, west, north and east tile the box, and places fall into them."""
    planned("map").save("plan.json")
    Path("places.csv").write_text("lat,lon\n" + "46.9425,7.4230\n" * 400)
    rows = json.loads(terminal("run", "plan.json", *WORDS, "--json").stdout)["value"]
    fullest = max(rows, key=lambda row: float(row["share"]))
    assert fullest["south"] <= 46.9425 <= fullest["north"]
    assert fullest["west"] <= 7.4230 <= fullest["east"]
    assert all(
        46.93 < row["south"] < row["north"] < 46.97 and 7.41 < row["west"] < row["east"] < 7.475
        for row in rows
    )
    assert min(row["south"] for row in rows) <= BOX[0] + 1e-4
    assert max(row["north"] for row in rows) >= BOX[2] - 1e-4
    told = terminal("run", "plan.json", *WORDS, "--ledger", "again.ledger").stdout.splitlines()
    assert told[1].startswith("  south 46.9")


def test_the_mean_place_of_users(terminal: Any) -> None:
    """A user-mean on a map is a place in degrees too."""
    asked = UserLinearQuery.average(users_of(Space(fine_grid())))
    plan(asked, Target(200, 0, 600), 40, trusted="nobody").save("plan.json")
    document = json.loads(
        terminal("run", "plan.json", *WORDS, "--user-column", "who", "--json").stdout
    )
    assert document["value"] == pytest.approx([LATITUDE, LONGITUDE], abs=5e-3)
    assert document["plane"]["unit"] == "m"


def test_coordinates_default_to_what_the_plan_is_about(
    terminal: Any, fine_centroid: Any, centroid_plan: Any
) -> None:
    """Places with a box, cells without one; options win; places without a box are rejected."""
    fine_centroid.save("map.json")
    centroid_plan.save("grid.json")
    Path("cells.csv").write_text(
        "x,y\n" + "".join(f"{person % 8},{person % 6}\n" for person in range(40))
    )
    Path("points.csv").write_text(
        "x,y\n" + "".join(f"{person % 8 * 10 + 5},{person % 6 * 10 + 5}\n" for person in range(40))
    )
    cells = ["cells.csv", "--column", "x", "--column", "y"]
    points = ["points.csv", "--column", "x", "--column", "y", "--coordinates", "points"]
    named, left_out = (
        json.loads(terminal("run", *words, "--json").stdout)
        for words in (
            ["grid.json", *points],
            ["grid.json", *cells, "--ledger", "again.ledger"],
        )
    )
    assert named["value"] == pytest.approx(
        left_out["value"], abs=14 * max(left_out["standard_error"]) * 2
    )
    assert "plane" not in left_out
    assert "takes places in degrees" in terminal.refused(
        "run", "map.json", *cells, "--coordinates", "cells"
    )
    assert "plan with --box" in terminal.refused(
        "run", "grid.json", *WORDS, "--coordinates", "places"
    )
    told = terminal.refused("run", "map.json", *cells, "--ledger", "again.ledger")
    assert "not in" in told


@pytest.mark.parametrize("clamp", [[], ["--clamp"]])
@pytest.mark.parametrize(
    ("place", "told"),
    [("95,7.44", "95 is not a latitude"), ("46.95,-190", "-190 is not a longitude")],
)
def test_degrees_that_are_nowhere(
    terminal: Any, fine_centroid: Any, place: str, told: str, clamp: list[str]
) -> None:
    """They are refused even with --clamp, which would hide that two columns were exchanged."""
    fine_centroid.save("plan.json")
    Path("places.csv").write_text(f"lat,lon\n46.95,7.44\n{place}\n")
    sentence = terminal.refused("run", "plan.json", *WORDS, *clamp)
    assert "line 3" in sentence
    assert told in sentence
    assert "pass --clamp" not in sentence


def test_places_outside_the_box(terminal: Any, fine_centroid: Any) -> None:
    """Counted and told with the line; --clamp moves them to the edge."""
    fine_centroid.save("plan.json")
    Path("places.csv").write_text("lat,lon\n" + "46.95,7.44\n" * 40 + "47.5,7.44\n")
    sentence = terminal.refused("run", "plan.json", *WORDS)
    assert "1 of 41 values in --column 'lat' and 'lon' of places.csv is not in" in sentence
    assert "line 42" in sentence
    assert "pass --clamp" in sentence
    Path("places.csv").write_text("lat,lon\n" + "46.95,7.44\n" * 39 + "47.5,7.44\n")
    assert (
        json.loads(terminal("run", "plan.json", *WORDS, "--clamp", "--json").stdout)["reports"]
        == 40
    )
