"""Centroid of true places from the command line: printed numbers are true without cells."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pyproj import Geod

from metricshuffle import Centroid, Places, Plan, Release

BOX = "--box 30.1 -98.1 30.55 -97.5"
COMMAND = (
    f"plan --query centroid {BOX} --cell 1000 --epsilon 1 --distance 5000 --delta 1e-6 --users "
    "11081 --honest 90%"
)
SMALL = (
    f"plan --query centroid {BOX} --epsilon 1 --distance 5000 --delta 1e-6 --users 60 "
    "--encoding modular"
)


def addresses(count: int) -> np.ndarray:
    """Addresses clustered along streets; centres of 1 km cells are several metres off."""
    generator = np.random.default_rng(12)
    corners = generator.uniform((30.15, -97.95), (30.5, -97.6), (40, 2))
    places = corners[generator.integers(0, 40, count)] + generator.normal(
        0.0, 0.01, (count, 2)
    ) * generator.integers(0, 2, (count, 2))
    return np.round(np.clip(places, (30.1, -98.1), (30.55, -97.5)), 5)


@pytest.mark.thorough
def test_eleven_thousand_addresses(terminal: Any) -> None:
    """The printed error is 1.1 m; with cells it was above 5 m and the interval was wrong."""
    result = terminal.typed(COMMAND, "--save", "plan.json")
    assert result.exit_code == 0, result.output
    plan = Plan.load("plan.json")
    assert plan.query == Centroid(Places(30.1, -98.1, 30.55, -97.5))
    assert plan.choice.expected_error == pytest.approx(1.105, rel=0.01)
    places = addresses(11_081)
    Path("places.csv").write_text(
        "lat,lon\n" + "".join(f"{latitude:.5f},{longitude:.5f}\n" for latitude, longitude in places)
    )
    words = ["plan.json", "places.csv", "--column", "lat", "--column", "lon"]
    errors = []
    for number in range(4):
        result = terminal("run", *words, "--output", "release.json", "--ledger", f"{number}.ledger")
        assert result.exit_code == 0, result.output
        release = Release.load("release.json")
        truth = places.mean(axis=0)
        ends = np.array(release.interval(0.9999))
        assert np.all((ends[:, 0] <= truth) & (truth <= ends[:, 1]))
        errors.append(
            Geod(ellps="WGS84").inv(release.value[1], release.value[0], truth[1], truth[0])[2]
        )
    assert np.mean(errors) < 3.5


def test_cells_are_not_needed(terminal: Any) -> None:
    """Whether one is named or not, the unit is what the noise allows; a finer one is taken."""
    documents = [
        json.loads(terminal.typed(f"{SMALL} --json{more}").stdout)
        for more in ("", " --cell 100000", " --cell 50", " --granularity 50")
    ]
    units = [document["task"]["protocol"]["step"] for document in documents]
    assert units[0] == units[1] > 200.0
    assert units[2] == units[3] == 50.0
    assert all(document["task"]["protocol"]["rounding"] == "random" for document in documents)


@pytest.mark.parametrize(
    ("more", "told"),
    [
        ("--cell 0", "--cell must be a number > 0"),
        ("--cell 10 --granularity 5", "either --cell or --granularity"),
        ("--width 3 --height 3", "either --box or --width"),
        ("--unit miles", "unit must be 'm' or 'km'"),
        ("--distance 90000", "beyond the diameter"),
        ("--protocol randomized-response-shuffle --encoding unary", "rounded at random"),
    ],
)
def test_what_is_refused(terminal: Any, more: str, told: str) -> None:
    assert told in terminal.refused(*SMALL.split(), *more.split())


@pytest.mark.parametrize(
    ("box", "told"),
    [
        ("10 170 20 -170", "antimeridian"),
        ("10 0 86 10", "85 degrees"),
        ("10 -90 20 89", "179 degrees"),
    ],
)
def test_boxes_without_a_plane(terminal: Any, box: str, told: str) -> None:
    assert told in terminal.refused(*SMALL.replace(BOX, f"--box {box}").split())


@pytest.mark.thorough
def test_the_other_commands(terminal: Any) -> None:
    """Everything that takes a plan takes one of places."""
    assert terminal.typed(f"{SMALL} --honest 50 --save plan.json --task task.json").exit_code == 0
    assert terminal.typed("verify task.json").exit_code == 0
    told = terminal.typed("explain task.json").stdout
    assert "Take any two places at most 5,000 m apart on the ground." in told
    assert "inside the 95 % interval" in terminal.typed("simulate plan.json --runs 200").stdout
    assert (
        "Consistent with the promised epsilon"
        in terminal.typed("audit plan.json --batches 100").stdout
    )
    between = terminal.typed(
        "audit plan.json --batches 100 --first 30.2,-97.9 --second 30.21,-97.91"
    ).stdout
    assert "(30.210000, -97.910000)" in between
    Path("places.csv").write_text("lat,lon\n" + "30.25,-97.75\n30.3,-97.7\n" * 30)
    columns = ["--column", "lat", "--column", "lon"]
    assert (
        terminal("run", "plan.json", "places.csv", *columns, "--output", "release.json").exit_code
        == 0
    )
    for output in ("map.html", "map.svg", "map.csv", "map.geojson"):
        assert terminal("map", "release.json", "--output", output).exit_code == 0
    assert terminal("report", "plan.json", "release.json").exit_code == 0
    spread = terminal(*SMALL.split(), "--values", "places.csv", *columns).stdout
    apart = Geod(ellps="WGS84").inv(-97.75, 30.25, -97.7, 30.3)[2]
    assert f"half at most {apart:,.1f}"[:-2] in spread
