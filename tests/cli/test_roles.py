"""The three roles through files, as processes and in-process, and what an interruption leaves behind."""

from __future__ import annotations

import gzip
import json
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from metricshuffle import Plan, Release, plan
from metricshuffle.wire.reports import read_reports


def process(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "metricshuffle", *words], cwd=folder, capture_output=True, text=True, timeout=60, check=True
    )


def test_three_roles_in_three_processes(tmp_path: Path, sum_plan: Plan, values: Path) -> None:
    sum_plan.save(str(tmp_path / "plan.json"))
    told = process(tmp_path, "randomize", "plan.json", "values.csv", "--column", "kcal", "--output", "reports", "--json")
    assert json.loads(told.stdout) == {"reports": 40, "output": "reports", "plan": sum_plan.digest}
    assert told.stderr == ""
    told = process(tmp_path, "shuffle", "plan.json", "reports", "--output", "shuffled")
    assert told.stdout == ""
    assert "40 shuffled reports" in told.stderr
    told = process(tmp_path, "estimate", "plan.json", "shuffled", "--output", "release.json", "--json")
    release = Release.from_json(told.stdout)
    assert (tmp_path / "release.json").read_text() == told.stdout
    assert release.reports == 40
    assert not release.raw_values_seen
    assert not release.unsafe_seeded
    # The noise has a standard error of 7; six of them are exceeded once in thousands of runs.
    assert abs(float(np.asarray(release.value)) - 390) < 6 * float(np.asarray(release.standard_error))


@pytest.mark.parametrize("kind", ["sum_plan", "shares_plan"])
def test_run_says_that_raw_values_were_seen(terminal: Any, kind: str, values: Path, request: pytest.FixtureRequest) -> None:
    request.getfixturevalue(kind).save("plan.json")
    result = terminal("run", "plan.json", values, "--column", "kcal", "--output", "release.json")
    assert result.exit_code == 0, result.output
    assert "whoever ran it saw the raw values" in result.stdout
    assert Release.from_json(Path("release.json").read_text()).raw_values_seen


def test_reports_of_several_files_are_one_batch(terminal: Any, sum_plan: Plan) -> None:
    sum_plan.save("plan.json")
    for name, people in (("a", 12), ("b", 25)):
        Path(f"{name}.csv").write_text("kcal\n" + "7\n" * people)
        assert terminal("randomize", "plan.json", f"{name}.csv", "--column", "kcal", "--output", name).exit_code == 0
    result = terminal("shuffle", "plan.json", "a", "b", "--output", "shuffled", "--json")
    assert json.loads(result.stdout)["reports"] == 37
    records = np.concatenate([batch.records for name in "ab" for batch in read_reports(sum_plan, name)])
    header = json.loads(Path("shuffled").read_bytes().split(b"\n")[0])
    assert header["axes"] == [int(records.sum())]


def test_streaming_in_chunks_changes_nothing(terminal: Any, shares_plan: Plan, values: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("metricshuffle.columns.ROWS_AT_ONCE", 7)
    monkeypatch.setattr("metricshuffle.columns.LINES_AT_ONCE", 7)
    shares_plan.save("plan.json")
    assert terminal("randomize", "plan.json", values, "--column", "kcal", "--output", "reports").exit_code == 0
    reports = list(read_reports(shares_plan, "reports"))
    assert sum(map(len, reports)) == 40
    whole, parts = shares_plan.shuffle(reports), shares_plan.shuffle(batch for batch in reports)
    assert [np.asarray(axis).tolist() for axis in whole.axes] == [np.asarray(axis).tolist() for axis in parts.axes]


def test_clamp_compressed_and_parquet(terminal: Any, sum_plan: Plan) -> None:
    pytest.importorskip("pyarrow")
    import pyarrow as pa
    import pyarrow.parquet as pq

    sum_plan.save("plan.json")
    numbers = [7] * 39 + [500]
    Path("v.csv.gz").write_bytes(gzip.compress(b"\xef\xbb\xbfkcal\r\n" + b"".join(b"%d\r\n" % one for one in numbers)))
    pq.write_table(pa.table({"kcal": numbers}), "v.parquet")
    for name, place in (("v.csv.gz", "line 41"), ("v.parquet", "row 40")):
        assert place in terminal.refused("run", "plan.json", name, "--column", "kcal")
        result = terminal("run", "plan.json", name, "--column", "kcal", "--clamp", "--json")
        assert json.loads(result.stdout)["reports"] == 40
    pq.write_table(pa.table({"kcal": [1, None, 3]}), "holes.parquet")
    assert "is missing" in terminal.refused("run", "plan.json", "holes.parquet", "--column", "kcal")
    assert "no column 'steps'" in terminal.refused("run", "plan.json", "v.parquet", "--column", "steps")
    Path("not.parquet").write_text("kcal\n1\n")
    assert "not a Parquet file" in terminal.refused("run", "plan.json", "not.parquet", "--column", "kcal")


def test_centroid_from_cells_and_from_points(terminal: Any, centroid_plan: Plan, values: Path) -> None:
    centroid_plan.save("plan.json")
    Path("points.csv").write_text("x,y\n" + "".join(f"{i % 8 * 10 + 3.5},{i % 6 * 10 + 9.5}\n" for i in range(40)))
    truth = np.array([np.mean([i % 8 * 10 + 5 for i in range(40)]), np.mean([i % 6 * 10 + 5 for i in range(40)])])
    for name, coordinates in ((values, "cells"), ("points.csv", "points")):
        result = terminal("run", "plan.json", name, "--column", "x", "--column", "y", "--coordinates", coordinates, "--json")
        release = json.loads(result.stdout)
        assert np.abs(np.array(release["value"]) - truth).max() < 8 * max(release["standard_error"])
    Path("points.csv").write_text("x,y\n1,2\n81,2\n")
    told = terminal.refused("run", "plan.json", "points.csv", "--column", "x", "--column", "y", "--coordinates", "points")
    assert "line 3: '81', '2'" in told


def test_centroid_from_latitudes_and_longitudes(terminal: Any) -> None:
    pytest.importorskip("pyproj")
    made = terminal(
        "plan", "--query", "centroid", "--box", "46.94", "7.42", "46.96", "7.46", "--cell", "200", "--epsilon", "4", "--distance", "600",
        "--delta", "1e-6", "--users", "40", "--encoding", "modular", "--save", "plan.json", "--json",
    )  # fmt: skip
    assert json.loads(made.stdout)["query"]["domain"]["unit"] == "m"
    Path("places.csv").write_text("lat,lon\n" + "46.95,7.44\n" * 40)
    words = ["run", "plan.json", "places.csv", "--column", "lat", "--column", "lon"]
    assert json.loads(terminal(*words, "--coordinates", "places", "--json").stdout)["reports"] == 40
    assert "--coordinates" in terminal.refused(*words)


def test_simulate_is_repeatable(terminal: Any, sum_plan: Plan) -> None:
    sum_plan.save("plan.json")
    first, again, other = (
        json.loads(terminal("simulate", "plan.json", "--runs", "500", "--seed", seed, "--json").stdout) for seed in "112"
    )
    assert first == again != other
    assert first["runs"] == 500
    assert first["mean_absolute_error"] == pytest.approx(first["expected_error"], rel=0.2)
    assert "500 simulated releases" in terminal("simulate", "plan.json", "--runs", "500").stdout
    assert json.loads(terminal("simulate", "plan.json", "--runs", "1", "--json").stdout)["standard_error"] is None


@pytest.mark.parametrize(("name", "code"), [("SIGINT", 130), ("SIGTERM", 143)])
def test_an_interrupted_command_leaves_no_file(tmp_path: Path, sum_plan: Plan, name: str, code: int) -> None:
    sum_plan.save(str(tmp_path / "plan.json"))
    (tmp_path / "reports").write_bytes(b"what was there before")
    (tmp_path / "values.csv").write_text("kcal\n" + "3\n" * 100_000)
    words = ["randomize", "plan.json", "values.csv", "--column", "kcal", "--output", "reports"]
    # Slowed down, so that the command is certainly in the middle of its work.
    slow = "import runpy, time, metricshuffle.columns as c; c.ROWS_AT_ONCE = c.LINES_AT_ONCE = 5000; numbers = c._numbers; "
    slow += "c._numbers = lambda cells: (time.sleep(0.2), numbers(cells))[1]; runpy.run_module('metricshuffle', run_name='__main__')"
    with subprocess.Popen([sys.executable, "-c", slow, *words], cwd=tmp_path, stderr=subprocess.PIPE, text=True) as child:
        deadline = time.monotonic() + 20
        while not any(path.name.startswith(".reports.") and path.stat().st_size > 1000 for path in tmp_path.iterdir()):
            assert child.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.02)
        child.send_signal(getattr(signal, name))
        _, told = child.communicate(timeout=20)
    assert child.returncode == code
    assert "Traceback" not in told
    assert sorted(path.name for path in tmp_path.iterdir()) == ["plan.json", "reports", "values.csv"]
    assert (tmp_path / "reports").read_bytes() == b"what was there before"
    if name == "SIGINT":
        assert told == "metricshuffle: interrupted; no file was written or changed.\n"


def test_the_same_plan_by_command_and_by_call(terminal: Any, sum_plan: Plan) -> None:
    words = ["--query", "sum", "--low", "0", "--high", "20", "--unit", "kcal", "--epsilon", "1", "--distance", "5", "--delta", "1e-6"]
    result = terminal("plan", *words, "--users", "40", "--honest", "75%", "--encoding", "unary", "--json", "--save", "plan.json")
    assert result.exit_code == 0, result.output
    assert Path("plan.json").read_text() == result.stdout
    made = Plan.from_json(result.stdout)
    assert made == plan(sum_plan.query, sum_plan.target, 40, 30, encoding="unary")
    assert made.choice == sum_plan.choice
