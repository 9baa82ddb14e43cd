"""Zones from the command line: plan, run, randomize, shuffle, estimate, map and report."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.catalogue.invented_zones import quad_zones, quads
from tests.cli.conftest import Terminal

import metricshuffle as ms
from metricshuffle.planning.plan_request import PlanRequest

PLAN = "plan --query zones --epsilon 4 --distance 4000 --delta 1e-6 --users 400"
FILE = "--zones tracts.geojson --zone-column tract"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    Path("tracts.geojson").write_text(json.dumps(quads()))
    zones = quad_zones()
    codes = np.random.default_rng(1).integers(4, size=400)
    with Path("people.csv").open("w", newline="") as stream:
        rows = csv.writer(stream)
        rows.writerow(["tract", "lat", "lon"])
        rows.writerows([zones.ids[code], *zones.degrees[code]] for code in codes)
    return tmp_path


@pytest.mark.parametrize("columns", ["--column tract", "--column lat --column lon"])
def test_from_places_to_shares_of_zones(columns: str, terminal: Terminal, folder: Path) -> None:
    told = terminal.typed(f"{PLAN} {FILE} --weights residents --save plan.json --task task.json")
    assert told.exit_code == 0, told.output
    words = " ".join(told.output.split())
    assert "Inside a zone nothing can be seen" in words
    assert "Zones have no floor that would limit this." in words
    assert f"d + {2 * (quad_zones().radius or 0.0):,.0f} m" in words
    for line in (
        f"randomize task.json people.csv {columns} --output reports.bin",
        "shuffle task.json reports.bin --output batch.bin",
        "estimate task.json batch.bin --output release.json",
        f"run plan.json people.csv {columns} --output run.json --ledger other.ledger",
    ):
        result = terminal.typed(line)
        assert result.exit_code == 0, result.output
    for name in ("release.json", "run.json"):
        assert terminal.typed(f"map {name} --output shares.csv").exit_code == 0
        rows = list(csv.DictReader(Path("shares.csv").read_text().splitlines()))
        assert [row["zone"] for row in rows] == list(quad_zones().ids)
        shares = [float(row["share"]) for row in rows]
        assert sum(shares[:4]) > 0.9


def test_pictures_of_zones(terminal: Terminal, folder: Path) -> None:
    pytest.importorskip("vl_convert")
    pytest.importorskip("pyproj")
    assert terminal.typed(f"{PLAN} {FILE} --save plan.json").exit_code == 0
    assert terminal.typed("run plan.json people.csv --column tract --output r.json").exit_code == 0
    for name in ("map.svg", "map.html", "map.geojson"):
        result = terminal.typed(f"map r.json --output {name}")
        assert result.exit_code == 0, result.output
    assert "12 zones" in Path("map.html").read_text()
    features = json.loads(Path("map.geojson").read_text())["features"]
    assert [each["properties"]["zone"] for each in features] == list(quad_zones().ids)
    ring = features[0]["geometry"]["coordinates"][0][0]
    assert ring == pytest.approx(np.array(quads()["features"][0]["geometry"]["coordinates"][0]))
    assert terminal.typed("report r.json --output report.html").exit_code == 0
    assert "Inside a zone nothing can be seen" in Path("report.html").read_text()


def test_cells_of_h3_in_a_box(terminal: Terminal, folder: Path) -> None:
    pytest.importorskip("h3")
    told = terminal.typed(f"{PLAN} --h3 7 --box 30.1 -98 30.5 -97.5 --save plan.json --json")
    assert told.exit_code == 0, told.output
    ids = json.loads(Path("plan.json").read_text())["query"]["domain"]["ids"]
    assert len(ids) > 20


def test_cells_of_s2_in_a_box(terminal: Terminal, folder: Path) -> None:
    pytest.importorskip("s2sphere")
    wide = PLAN.replace("4000", "10000")
    box = "--box 30.1 -98 30.5 -97.5"
    told = terminal.typed(f"{wide} --s2-level 10 {box} --save plan.json --json")
    assert told.exit_code == 0, told.output
    saved = ms.Plan.load("plan.json")
    zones = saved.query.values_in
    assert isinstance(zones, ms.Zones)
    assert zones.cells == "s2"
    assert len(zones.ids) == 20
    inside = (zones.degrees >= (30.1, -98.0)) & (zones.degrees <= (30.5, -97.5))
    assert inside.all()
    centre = ("--query", "zones"), ("--s2-level", "10")
    assert set(centre) <= set(PlanRequest(saved.query, saved.target, 100).to_command())
    for words, sentence in (
        (f"--s2-level 31 {box}", "--s2-level must be a level from 0 to 30, got 31"),
        (f"--s2-level 20 {box}", "take a smaller --s2-level or a smaller box"),
        (f"--s2-level 2 {box}", "take a larger --s2-level or a larger box"),
        ("--s2-level 10", "or --s2-level with a level, and --box"),
        (f"--s2-level 10 --h3 7 {box}", "or --s2-level with a level, and --box"),
    ):
        assert sentence in terminal.refused(*f"{PLAN} {words}".split())


def with_feature(index: int, **changes: Any) -> str:
    content = quads()
    content["features"][index] = {**content["features"][index], **changes}
    return json.dumps(content)


@pytest.mark.parametrize(
    ("content", "words", "sentence"),
    [
        (None, "--zones missing.geojson --zone-column tract", "no such file"),
        (None, "--zones tracts.geojson", "--zones needs both --zones FILE and --zone-column"),
        (None, "--zone-column tract", "--zone-column needs both"),
        (None, "", "--query zones needs --zones FILE and --zone-column NAME, or --h3"),
        (None, "--h3 8", "--query zones needs"),
        (None, f"{FILE} --h3 8 --box 30 -98 31 -97", "--query zones needs"),
        (None, f"{FILE} --weights people", "no property 'people' (--weights)"),
        (
            None,
            "--zones tracts.geojson --zone-column id",
            "no property 'id' (--zone-column)",
        ),
        (None, f"{FILE} --zone-point y x", "no property 'y' (--zone-point)"),
        (None, f"{FILE} --cell 100", "--cell does not belong to --query zones"),
        (None, f"{FILE} --unit mile", "--unit must be 'm' or 'km'"),
        (with_feature(1, properties={"tract": "T00"}), FILE, "more than one zone"),
        (
            with_feature(1, geometry={"type": "Polygon", "coordinates": []}),
            FILE,
            "zone 'T01' has an empty polygon",
        ),
        (
            with_feature(
                0, geometry={"type": "Polygon", "coordinates": [[[0, 0], [1, 1], [1, 0], [0, 1]]]}
            ),
            FILE,
            "the border of zone 'T00' crosses itself",
        ),
        (
            with_feature(1, properties={"tract": "T01", "people": "many"}),
            f"{FILE} --weights tract",
            "feature 0 (counting from 0) of tracts.geojson has 'T00' as its 'tract' (--weights), "
            "which must be a number.",
        ),
    ],
)
def test_bad_zones_are_refused(
    content: str | None, words: str, sentence: str, terminal: Terminal, folder: Path
) -> None:
    if content is not None:
        Path("tracts.geojson").write_text(content)
    told = terminal.refused(*f"{PLAN} {words} --save plan.json".split())
    assert sentence in told


def test_a_distance_below_the_nearest_zones_is_refused(terminal: Terminal, folder: Path) -> None:
    told = terminal.refused(*f"{PLAN} {FILE}".replace("4000", "5").split())
    assert "between the nearest two zones" in told
    told = terminal.refused(
        *[
            "plan",
            "--query",
            "map",
            "--zones",
            "tracts.geojson",
            "--epsilon",
            "1",
            "--delta",
            "0",
            "--users",
            "5",
        ]
    )
    assert "--zones does not belong to --query map" in told


def test_places_outside_get_the_zone_of_the_nearest_point(terminal: Terminal, folder: Path) -> None:
    assert terminal.typed(f"{PLAN} {FILE} --save plan.json").exit_code == 0
    rows = Path("people.csv").read_text().splitlines()
    Path("people.csv").write_text("\n".join([*rows[:-1], "x,-60,60"]))
    words = "run plan.json people.csv --column lat --column lon"
    told = terminal.refused(*words.split())
    assert "pass --clamp to move places outside to the zone of the nearest point" in told
    told = terminal.typed(f"{words} --clamp").output
    assert "was moved to the zone of the nearest point" in " ".join(told.split())


def test_how_far_apart_people_are(terminal: Terminal, folder: Path) -> None:
    told = terminal.typed(f"{PLAN} {FILE} --values people.csv --column tract")
    assert told.exit_code == 0, told.output
    assert "a quarter of the pairs at most" in " ".join(told.output.split())
