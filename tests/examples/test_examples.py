"""Examples run in a small configuration."""

from __future__ import annotations

import importlib.util
import math
import re
from pathlib import Path
from types import ModuleType
from xml.etree import ElementTree

import pytest
from typer.testing import CliRunner

import metricshuffle as ms
from metricshuffle.cli.command_group import app

EXAMPLES = Path(__file__).parents[2] / "examples"


def loaded(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_heat_maps_of_a_city(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("vl_convert")
    output = tmp_path / "city.svg"
    loaded("city_heat_map").main(["--people", "2000", "--width", "9", "--output", str(output)])
    told = capsys.readouterr().out
    assert str(output) in told
    assert told.count("Hidden at epsilon 1.4") == 2  # one promise for each plan
    drawn = output.read_text(encoding="utf-8")
    ElementTree.fromstring(drawn)  # noqa: S314 - our own picture
    assert not re.search(r"(?:src|href)=|<script|@import|url\((?!#)", drawn)  # nothing is fetched
    description = re.search(r"<desc[^>]*>(.*?)</desc>", drawn)
    assert description is not None
    wrong = [
        int(share)
        for share in re.findall(r"(\d+)% of the people are in a wrong cell", description[1])
    ]
    assert len(wrong) == 3
    assert max(wrong) < 60


def test_travel_times_are_shortest_paths() -> None:
    """Against all walks: relaxed over every link as often as there are stations."""
    example = loaded("station_graph")
    stations = example.STATIONS
    minutes = {(a, b): 0.0 if a == b else math.inf for a in stations for b in stations}
    links = [*example.MINUTES.items(), *(((b, a), t) for (a, b), t in example.MINUTES.items())]
    for _ in stations:
        for start in stations:
            for (a, b), time in links:
                minutes[start, b] = min(minutes[start, b], minutes[start, a] + time)
    assert example.travel_times().tolist() == [[minutes[a, b] for b in stations] for a in stations]
    assert ms.Matrix(example.travel_times()).tree is None, "the circle line is no tree"


def test_the_graph_of_stations(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The example runs, and its table of distances plans the same question by command."""
    example = loaded("station_graph")
    table = tmp_path / "minutes.csv"
    example.main(["--users", "500", "--output", str(table)])
    printed = capsys.readouterr().out
    assert "moving by up to 5 of earth mover's distance" in printed
    assert all(f"{station} " in printed for station in example.STATIONS)
    assert "500 shuffled reports of honest people hide two inputs at distance 5" in printed
    question = (
        f"--query user-histogram --labels {','.join(example.STATIONS)} --distances {table} "
        "--items 5 --epsilon 1 --distance 5 --delta 1e-6 --users 500"
    )
    output = tmp_path / "plan.json"
    result = CliRunner().invoke(app, ["plan", *question.split(), "--save", str(output)])
    assert result.exit_code == 0, result.output
    plan = ms.Plan.load(output)
    assert isinstance(plan.query, ms.UserHistogram)
    metric = plan.query.people.items_in.metric
    assert isinstance(metric, ms.Matrix)
    assert metric.distances.tolist() == example.travel_times().tolist()
