"""Flows from the command line: plan, verify, all roles, maps, reports, and bad input."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import numpy as np
import pytest
from tests.catalogue.invented_zones import quad_zones, quads
from tests.cli.conftest import Terminal

PLAN = "plan --query flows --epsilon 4 --distance 4000 --delta 1e-6 --users 300"
FILE = "--zones tracts.geojson --zone-column tract"
IDS = "--column from --column to"
DEGREES = "--column lat --column lon --column lat2 --column lon2"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    content = quads()
    for feature in content["features"]:
        feature["properties"]["district"] = (
            "west" if feature["properties"]["tract"][2] in "01" else "east"
        )
    Path("tracts.geojson").write_text(json.dumps(content))
    zones = quad_zones()
    generator = np.random.default_rng(1)
    with Path("trips.csv").open("w", newline="") as stream:
        rows = csv.writer(stream)
        rows.writerow(["from", "to", "lat", "lon", "lat2", "lon2"])
        for start, end in generator.integers(3, size=(300, 2)):
            rows.writerow(
                [zones.ids[start], zones.ids[end], *zones.degrees[start], *zones.degrees[end]]
            )
    return tmp_path


@pytest.mark.parametrize("columns", [IDS, DEGREES], ids=["ids", "places"])
def test_from_trips_to_flows(columns: str, terminal: Terminal, folder: Path) -> None:
    told = terminal.typed(f"{PLAN} {FILE} --blocks district --save plan.json --task task.json")
    assert told.exit_code == 0, told.output
    words = " ".join(told.output.split())
    assert "moving one end by d costs as much as d" in words
    assert "Inside a zone nothing can be seen" in words
    for line in (
        "verify task.json",
        f"randomize task.json trips.csv {columns} --output reports.bin",
        "shuffle task.json reports.bin --output batch.bin",
        "estimate task.json batch.bin --output release.json",
        f"run plan.json trips.csv {columns} --output run.json --ledger other.ledger",
        "simulate plan.json --runs 5",
        "explain task.json",
        "report run.json --output report.html",
    ):
        result = terminal.typed(line)
        assert result.exit_code == 0, f"{line}: {result.output}"
    for name in ("release.json", "run.json"):
        assert terminal.typed(f"map {name} --output flows.csv").exit_code == 0
        rows = list(csv.DictReader(Path("flows.csv").read_text().splitlines()))
        assert [(row["from"], row["to"]) for row in rows[:2]] == [("T00", "T00"), ("T00", "T01")]
        blocks = {(row["from_block"], row["to_block"]): float(row["nearby"]) for row in rows}
        assert set(blocks) == {(a, b) for a in ("east", "west") for b in ("east", "west")}
        assert blocks["west", "west"] == pytest.approx(4 / 9, abs=0.15)
    assert "moving both ends by d as much as 2 d" in Path("report.html").read_text()


def test_pictures_and_lines(terminal: Terminal, folder: Path) -> None:
    pytest.importorskip("vl_convert")
    pytest.importorskip("pyproj")
    assert terminal.typed(f"{PLAN} {FILE} --save plan.json").exit_code == 0
    assert terminal.typed(f"run plan.json trips.csv {IDS} --output r.json").exit_code == 0
    for name in ("map.svg", "map.html", "map.geojson"):
        result = terminal.typed(f"map r.json --output {name}")
        assert result.exit_code == 0, result.output
    page = Path("map.html").read_text()
    assert "144 flows between zones" in page
    assert "Where people go" in page
    features = json.loads(Path("map.geojson").read_text())["features"]
    assert len(features) == 144
    assert features[0]["geometry"]["type"] == "Point"  # within one zone
    line = features[1]
    assert (line["properties"]["from"], line["properties"]["to"]) == ("T00", "T01")
    assert line["geometry"]["type"] == "LineString"
    assert line["geometry"]["coordinates"] == pytest.approx(quad_zones().degrees[:2, ::-1])


def test_own_trips_help_to_choose_a_distance(terminal: Terminal, folder: Path) -> None:
    told = terminal.typed(
        f"plan --query flows --epsilon 4 --delta 1e-6 --users 300 {FILE} --values trips.csv {IDS}"
    )
    assert told.exit_code == 0, told.output
    assert "how far two of 300 people are apart" in " ".join(told.output.split())


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (f"{PLAN}", "--query flows needs --zones FILE and --zone-column NAME"),
        (f"{PLAN} {FILE} --blocks none", "has no property 'none' (--blocks)"),
        (f"{PLAN} {FILE} --low 1", "--low does not belong to --query flows"),
        (
            f"{PLAN.replace('flows', 'zones')} {FILE} --blocks district",
            "--blocks does not belong to --query zones; ask for --query flows",
        ),
        (f"{PLAN.replace('flows', 'map')} {FILE}", "ask for --query zones or flows"),
        ("run plan.json trips.csv --column from", "flows need two columns"),
        ("run plan.json trips.csv --column from --column from", "name each --column once"),
        ("run plan.json trips.csv --column lat --column lon --column lat2", "got 3"),
        ("run plan.json unknown.csv --column from --column to", "is not one of the zones"),
        (f"run plan.json outside.csv {DEGREES}", "lies outside all zones"),
        (f"run plan.json swapped.csv {DEGREES}", "is not a latitude"),
    ],
)
def test_bad_input_is_a_sentence(line: str, message: str, terminal: Terminal, folder: Path) -> None:
    if line.startswith("run"):
        assert terminal.typed(f"{PLAN} {FILE} --save plan.json").exit_code == 0
        line = f"{line} --output never.json"
    Path("unknown.csv").write_text("from,to\nT00,T01\nT00,T99\n")
    header = "lat,lon,lat2,lon2\n"
    south, west = quad_zones().degrees[0]
    Path("outside.csv").write_text(f"{header}{south},{west},10.0,10.0\n")
    Path("swapped.csv").write_text(f"{header}{west},{south},{south},{west}\n")
    result = terminal.typed(line)
    assert result.exit_code != 0
    assert message in " ".join(result.output.split())
    assert "Traceback" not in result.output
    assert not Path("never.json").exists()


def test_too_many_zones_are_refused_before_planning(terminal: Terminal, folder: Path) -> None:
    rows = [f"z{code},{30 + code / 1000},{10 + code % 7 / 100}" for code in range(300)]
    Path("many.csv").write_text("\n".join(["id,latitude,longitude", *rows]))
    result = terminal.typed(f"{PLAN} --zones many.csv --zone-column id")
    assert result.exit_code != 0
    assert "at most 256 zones, got 300" in " ".join(result.output.split())


def test_blocks_come_from_tables_too(terminal: Terminal, folder: Path) -> None:
    zones = quad_zones()
    rows = [
        f"{name},{latitude},{longitude},{1 + code % 2}"
        for code, (name, (latitude, longitude)) in enumerate(
            zip(zones.ids, zones.degrees, strict=True)
        )
    ]
    Path("points.csv").write_text("\n".join(["id,latitude,longitude,district", *rows]))
    told = terminal.typed(
        f"{PLAN} --zones points.csv --zone-column id --blocks district --save plan.json"
    )
    assert told.exit_code == 0, told.output
    written = json.loads(Path("plan.json").read_text())["query"]["domain"]["zones"]
    assert written["blocks"] == ["1", "2"] * 6
