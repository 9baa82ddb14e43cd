"""Smoothed shares have upper limits instead of intervals in files, maps, charts and reports."""

from __future__ import annotations

import csv
import io
import json
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from tests.cli.conftest import Terminal
from tests.report.parsed_page import ParsedPage
from tests.tables import check_all

import metricshuffle as ms
from metricshuffle.planning.error_simulation import simulate
from metricshuffle.protocols.features import Features, Ramps, ShiftedBoxes, space_of
from metricshuffle.protocols.noisy_vectors import NoisyVectors
from metricshuffle.randomizers import BoundedGeometric
from metricshuffle.randomness import Randomness
from metricshuffle.report.answer_export import answer_columns, csv_text, geojson_text
from metricshuffle.report.charts.answer_charts import answer_chart
from metricshuffle.report.map_page import page
from metricshuffle.report.notebook import summary
from metricshuffle.report.report_page import report
from metricshuffle.report.report_subject import ReportSubject
from metricshuffle.tasks.release import Release
from metricshuffle.tasks.task import Task

KINDS = ("line", "map", "line, floor")


@cache
def released(kind: str) -> Release:
    line = ms.Histogram(ms.Integers(0, 30))
    grid = ms.Histogram(ms.Grid.from_box(46.94, 7.42, 46.96, 7.46, 400.0))
    query = grid if kind == "map" else line
    features: Features = ShiftedBoxes(2) if kind == "map" else Ramps(3)
    space = space_of(query)
    coordinates = features.table(space).shape[1]
    protocol = NoisyVectors(
        name="noisy-vectors",
        trusted="aggregator",
        modulus=2**40,
        features=features,
        coordinates=coordinates,
        sharers=300,
        factor=0.9
        * (1 / 6 if kind != "map" else 1 / 1600)
        / features.slope(space, np.ones(coordinates)),
        floor=BoundedGeometric(30, 1.0) if "floor" in kind else None,
    )
    task = Task.of(query, protocol, ms.Target(1.0, 1e-6, 1600.0 if kind == "map" else 6.0), 300)
    if kind == "map":
        return task.run(
            np.array([(7, 2)] * 200 + [(user % 8, user % 5) for user in range(100)]),
            Randomness.seeded(4),
        )
    return task.run([17] * 200 + [user % 31 for user in range(100)], Randomness.seeded(4))


@check_all("kind", KINDS)
def test_rows_for_other_programs_have_no_interval(kind: str) -> None:
    release = released(kind)
    columns = answer_columns(release, 0.9)
    known = {"at_most_90", "nearby", "nearby_low_90", "nearby_high_90"}
    assert not {"low_90", "high_90", "standard_error", "zero_inside", "unbiased"} & set(columns)
    assert known <= set(columns) if "floor" not in kind else not known & set(columns)
    rows = list(csv.DictReader(io.StringIO(csv_text(columns))))
    assert len(rows) == len(release.value)
    if "floor" not in kind:
        assert np.allclose([float(row["at_most_90"]) for row in rows], release.at_most(0.9))
        assert np.allclose([float(row["nearby_low_90"]) for row in rows], release.nearby(0.9)[:, 0])
    if kind == "map":
        first = json.loads(geojson_text(release, 0.9))["features"][0]["properties"]
        assert {"share", "at_most_90", "nearby"} <= set(first)
        assert not {"low_90", "standard_error", "zero_inside"} & set(first)
    assert not {"standard_error", "interval_95"} & set(release.to_frame("pandas").columns)


@check_all("kind", KINDS)
def test_charts_pages_and_cards_promise_no_interval(kind: str) -> None:
    release = released(kind)
    chart = answer_chart(release)
    assert "smoothed" in chart.description.lower()
    assert "interval lies above zero" not in chart.svg()
    read = ParsedPage(page(release)).text
    assert "These shares are smoothed and have no interval." in read
    assert "standard error" not in read
    shown = summary(release)
    assert shown.table is not None
    assert ("95 %: at most" in shown.table.head) == ("floor" not in kind)
    assert "95 %: from" not in shown.table.head
    assert ("within about" in read) == ("floor" not in kind)


@pytest.mark.thorough
@pytest.mark.parametrize("kind", KINDS)
def test_reports_promise_no_interval(kind: str) -> None:
    read = ParsedPage(report(ReportSubject.of(released(kind).task, released(kind)))).text
    assert "no intervals" in read
    assert "95 % interval of a typical share" not in read


@check_all("kind", KINDS)
def test_simulations_say_what_holds(kind: str) -> None:
    found = simulate(released(kind).task, 32)
    assert found.smoothed
    if "floor" in kind:
        assert found.coverage_95 is None
        assert "without intervals" in repr(found)
    else:
        assert found.coverage_95 is not None
        assert found.coverage_95 > 0.93
        assert "of what is said of smoothed shares at 95 % holds" in repr(found)


@pytest.mark.parametrize("kind", KINDS)
def test_commands_promise_no_interval(kind: str, tmp_path: Path) -> None:
    released(kind).save(tmp_path / "release.json")
    released(kind).task.save(tmp_path / "task.json")
    terminal = Terminal(tmp_path)
    for ending in ("csv", "svg", "html"):
        told = terminal("map", tmp_path / "release.json", "--output", tmp_path / f"map.{ending}")
        assert told.exit_code == 0
        assert "do not hold zero" not in told.output
    told = terminal("simulate", tmp_path / "task.json", "--runs", "16")
    assert told.exit_code == 0
    assert "inside the 95 % interval" not in told.output
    assert "smoothed shares" in told.output
