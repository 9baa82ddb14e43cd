"""The three roles through files, as processes and in-process, and interruptions."""

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
from tests.catalogue.planned_tasks import KINDS, planned, values_of

from metricshuffle import Plan, Release, plan
from metricshuffle.tasks.report_batches import read_reports


def process(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "metricshuffle", *words],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )


@pytest.mark.thorough
def test_three_roles_in_three_processes(tmp_path: Path, sum_plan: Plan, values: Path) -> None:
    """Three processes; the shuffler's second call finds the batch in its ledger."""
    sum_plan.save(str(tmp_path / "plan.json"), task=str(tmp_path / "task.json"))
    told = process(tmp_path, "verify", "task.json")
    assert "Verified: " in told.stdout
    told = process(
        tmp_path,
        "randomize",
        "task.json",
        "values.csv",
        "--column",
        "kcal",
        "--output",
        "reports",
        "--json",
    )
    assert json.loads(told.stdout) == {
        "reports": 40,
        "output": "reports",
        "plan": sum_plan.digest,
        "round": 1,
    }
    assert told.stderr == ""
    told = process(tmp_path, "shuffle", "task.json", "reports", "--output", "shuffled")
    assert told.stdout == ""
    assert "40 shuffled reports" in told.stderr
    told = process(
        tmp_path, "estimate", "plan.json", "shuffled", "--output", "release.json", "--json"
    )
    release = Release.from_json(told.stdout)
    assert (tmp_path / "release.json").read_text() == told.stdout
    assert release.reports == 40
    assert not release.raw_values_seen
    assert not release.unsafe_seeded
    # Laplace noise beyond fourteen standard errors is seen once in a billion runs.
    assert abs(release.value - 390) < 14 * release.standard_error
    again = subprocess.run(
        [
            sys.executable,
            "-m",
            "metricshuffle",
            "shuffle",
            "task.json",
            "reports",
            "--output",
            "again",
        ],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert again.returncode == 2
    assert "released in an earlier batch, according to batches.ledger" in again.stderr
    assert not (tmp_path / "again").exists()


def test_a_shufflers_ledger_of_earlier_versions_is_continued(
    terminal: Any, sum_plan: Plan, values: Path
) -> None:
    """It was named after the file of the task."""
    sum_plan.task.save("task.json")
    assert (
        terminal(
            "randomize", "task.json", values, "--column", "kcal", "--output", "reports"
        ).exit_code
        == 0
    )
    assert terminal("shuffle", "task.json", "reports", "--output", "shuffled").exit_code == 0
    Path("batches.ledger").rename("task.json.ledger")
    assert "according to task.json.ledger;" in terminal.refused(
        "shuffle", "task.json", "reports", "--output", "again"
    )


ALONE = [
    "unary sum",
    "sum in shares",
    "curator's sum",
    "curator's histogram",
    "witch hat",
    "users' items",
]
ALONE += ["vectors of labels", "users' vectors", "curator's vectors"]


@pytest.mark.parametrize("kind", ALONE)
def test_run_says_that_raw_values_were_seen(terminal: Any, kind: str) -> None:
    """The release of all roles on one machine says so, as text and in its file."""
    planned(kind).save("plan.json")
    rows = [
        (person, value)
        for person, held in enumerate(values_of(kind))
        for value in (held if isinstance(held, list) else [held])
    ]
    Path("values.csv").write_text(
        "who,value\n" + "".join(f"p{person},{value}\n" for person, value in rows)
    )
    result = terminal(
        "run",
        "plan.json",
        "values.csv",
        "--column",
        "value",
        "--user-column",
        "who",
        "--output",
        "release.json",
    )
    assert result.exit_code == 0, result.output
    assert "whoever ran it saw the raw values" in result.stdout
    release = Release.load("release.json")
    assert release.raw_values_seen
    assert release.reports == planned(kind).users
    assert str(release) == result.stdout.rstrip("\n")


def test_what_a_curator_gets_is_not_randomized_at_home(terminal: Any, values: Path) -> None:
    """A plan that trusts a curator has nothing to randomize: a sentence says who adds the noise."""
    planned("curator's sum").save("plan.json")
    told = terminal.refused(
        "randomize", "plan.json", values, "--column", "kcal", "--output", "reports"
    )
    assert (
        "trusts a curator, who adds noise once to everybody's values together, so clients have "
        "nothing to randomize" in told
    )


def test_reports_of_several_files_are_one_batch(terminal: Any, sum_plan: Plan) -> None:
    """What several clients sent is added up; the counts are those of all their messages."""
    sum_plan.save("plan.json")
    for name, people in (("a", 12), ("b", 25)):
        Path(f"{name}.csv").write_text("kcal\n" + "7\n" * people)
        assert (
            terminal(
                "randomize", "plan.json", f"{name}.csv", "--column", "kcal", "--output", name
            ).exit_code
            == 0
        )
    result = terminal("shuffle", "plan.json", "a", "b", "--output", "shuffled", "--json")
    assert json.loads(result.stdout) == {
        "reports": 37,
        "ignored": 0,
        "output": "shuffled",
        "plan": sum_plan.digest,
        "round": 1,
    }
    messages = np.concatenate(
        [part.messages for name in "ab" for part in read_reports(sum_plan.task, name)]
    )
    shuffled = sum_plan.task.read_shuffled(Path("shuffled").read_bytes())
    assert shuffled.numbers == [int(messages.sum())]
    assert shuffled.people == 37


def test_streaming_in_chunks_changes_nothing(
    terminal: Any, shares_plan: Plan, values: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Values that are read seven at a time make one batch with one id."""
    monkeypatch.setattr("metricshuffle.data.source.CHUNK_ROWS", 7)
    monkeypatch.setattr("metricshuffle.data.csv_reader.LINES_PER_BLOCK", 7)
    shares_plan.save("plan.json")
    assert (
        terminal(
            "randomize", "plan.json", values, "--column", "kcal", "--output", "reports"
        ).exit_code
        == 0
    )
    (reports,) = read_reports(shares_plan.task, "reports")
    assert len(reports) == 40
    assert len({bytes(name) for name in reports.ids}) == 40
    assert (
        shares_plan.shuffle(reports).to_bytes()
        == shares_plan.shuffle(part for part in [reports]).to_bytes()
    )


def test_rounds_are_named_and_kept_apart(terminal: Any, values: Path) -> None:
    """--round names a planned round; a third one and a batch of two are rejected."""
    planned("two rounds").save("plan.json")
    words = ["plan.json", values, "--column", "kcal"]
    for round in "12":
        told = terminal("randomize", *words, "--round", round, "--output", f"r{round}", "--json")
        assert json.loads(told.stdout)["round"] == int(round)
    assert "round must be a whole number from 1 to 2, got 3" in terminal.refused(
        "randomize", *words, "--round", "3", "--output", "r3"
    )
    assert "rounds are not mixed" in terminal.refused(
        "shuffle", "plan.json", "r1", "r2", "--output", "shuffled"
    )
    assert terminal("shuffle", "plan.json", "r2", "--output", "shuffled").exit_code == 0
    release = json.loads(terminal("estimate", "plan.json", "shuffled", "--json").stdout)
    assert (release["round"], release["rounds"]) == (2, 2)
    assert "Use --round 1" in terminal.refused("run", *words, "--round", "2")
    assert "round 1 of 2" in terminal("run", *words).stdout


def test_one_person_with_a_report_that_hides_itself(terminal: Any) -> None:
    """n = 1: where nobody is trusted, one report is a batch."""
    line = (
        "plan --query sum --low 0 --high 20 --epsilon 1 --distance 5 --delta 0 --users 1 "
        "--trusted nobody --save plan.json"
    )
    assert terminal.typed(line).exit_code == 0
    Path("one.csv").write_text("kcal\n7\n")
    for command in (
        ["randomize", "plan.json", "one.csv", "--column", "kcal", "--output", "reports"],
        ["shuffle", "plan.json", "reports", "--output", "shuffled"],
    ):
        assert terminal(*command).exit_code == 0
    assert (
        json.loads(terminal("estimate", "plan.json", "shuffled", "--json").stdout)["reports"] == 1
    )
    assert "from 1 report (geometric-local)" in terminal("estimate", "plan.json", "shuffled").stdout


def test_huge_values_and_tiny_deltas(terminal: Any) -> None:
    """Values up to 1e12 and delta 1e-30 work; noise beyond doubles is an error."""
    base = (
        "plan --query mean --low 0 --epsilon 1 --delta 1e-30 --users 200 --trusted nobody "
        "--save plan.json"
    )
    made = terminal.typed(f"{base} --high 1e12 --distance 1e9 --json")
    assert json.loads(made.stdout)["target"]["delta"] == 1e-30
    Path("values.csv").write_text("n\n" + "1000000000000\n" * 100 + "0\n" * 100)
    release = json.loads(
        terminal("run", "plan.json", "values.csv", "--column", "n", "--json").stdout
    )
    assert abs(release["value"] - 5e11) < 20 * release["standard_error"] < 1e11
    assert "rate must be a number between 2^-32 and 2^10" in terminal.refused(
        *f"{base} --high 1e15 --distance 1e12".split()
    )


def test_clamp_compressed_and_parquet(terminal: Any, sum_plan: Plan) -> None:
    pytest.importorskip("pyarrow")
    import pyarrow as pa
    import pyarrow.parquet as pq

    sum_plan.save("plan.json")
    numbers = [7] * 39 + [500]
    Path("v.csv.gz").write_bytes(
        gzip.compress(b"\xef\xbb\xbfkcal\r\n" + b"".join(b"%d\r\n" % number for number in numbers))
    )
    pq.write_table(pa.table({"kcal": numbers}), "v.parquet")
    for name, place in (("v.csv.gz", "line 41"), ("v.parquet", "row 40")):
        words = ["run", "plan.json", name, "--column", "kcal", "--ledger", f"{name}.ledger"]
        assert place in terminal.refused(*words)
        result = terminal(*words, "--clamp", "--json")
        assert json.loads(result.stdout)["reports"] == 40
    Path("not.parquet").write_text("kcal\n1\n")
    pq.write_table(pa.table({"kcal": [1, None, 3]}), "holes.parquet")
    assert "is missing" in terminal.refused(
        "run", "plan.json", "holes.parquet", "--column", "kcal", "--ledger", "other.ledger"
    )
    assert "no column 'steps'" in terminal.refused(
        "run", "plan.json", "v.parquet", "--column", "steps", "--ledger", "other.ledger"
    )
    assert "not a Parquet file" in terminal.refused(
        "run", "plan.json", "not.parquet", "--column", "kcal", "--ledger", "other.ledger"
    )


def test_centroid_from_cells_and_from_points(
    terminal: Any, centroid_plan: Plan, values: Path
) -> None:
    centroid_plan.save("plan.json")
    Path("points.csv").write_text(
        "x,y\n" + "".join(f"{i % 8 * 10 + 3.5},{i % 6 * 10 + 9.5}\n" for i in range(40))
    )
    truth = np.array(
        [np.mean([i % 8 * 10 + 5 for i in range(40)]), np.mean([i % 6 * 10 + 5 for i in range(40)])]
    )
    for name, coordinates in ((values, "cells"), ("points.csv", "points")):
        Path("releases.ledger").unlink(missing_ok=True)
        result = terminal(
            "run",
            "plan.json",
            name,
            "--column",
            "x",
            "--column",
            "y",
            "--coordinates",
            coordinates,
            "--json",
        )
        release = json.loads(result.stdout)
        assert np.abs(np.array(release["value"]) - truth).max() < 14 * max(
            release["standard_error"]
        )
    Path("points.csv").write_text("x,y\n1,2\n81,2\n")
    Path("releases.ledger").unlink()
    told = terminal.refused(
        "run",
        "plan.json",
        "points.csv",
        "--column",
        "x",
        "--column",
        "y",
        "--coordinates",
        "points",
    )
    assert "line 3: '81', '2'" in told


def test_simulate_is_repeatable(terminal: Any, sum_plan: Plan) -> None:
    sum_plan.save("plan.json")
    first, again, other = (
        json.loads(
            terminal("simulate", "plan.json", "--runs", "500", "--seed", seed, "--json").stdout
        )
        for seed in "112"
    )
    assert first == again != other
    assert first["runs"] == 500
    assert first["mean_absolute_error"] == pytest.approx(first["expected_error"], rel=0.2)
    assert "500 simulated releases" in terminal("simulate", "plan.json", "--runs", "500").stdout
    assert (
        json.loads(terminal("simulate", "plan.json", "--runs", "1", "--json").stdout)[
            "standard_error"
        ]
        is None
    )


@pytest.mark.parametrize(
    "kind",
    [
        kind
        for kind in KINDS
        if kind not in ("bounded sum", "aggregated sum", "sum in shares", "two rounds")
    ],
)
def test_every_plan_can_be_simulated(terminal: Any, kind: str) -> None:
    """From the task alone: the mean error is near the expected one, as JSON and text."""
    planned(kind).task.save("task.json")
    document = json.loads(terminal("simulate", "task.json", "--runs", "60", "--json").stdout)
    assert document["users"] == planned(kind).users
    assert document["mean_absolute_error"] == pytest.approx(document["expected_error"], rel=0.5)
    assert document["coverage_95"] > 0.8
    assert "2 simulated releases" in terminal("simulate", "task.json", "--runs", "2").stdout


@pytest.mark.thorough
@pytest.mark.parametrize(("name", "code"), [("SIGINT", 130), ("SIGTERM", 143)])
def test_an_interrupted_command_leaves_no_file(
    tmp_path: Path, sum_plan: Plan, name: str, code: int
) -> None:
    sum_plan.save(str(tmp_path / "plan.json"))
    (tmp_path / "reports").write_bytes(b"what was there before")
    (tmp_path / "values.csv").write_text("kcal\n" + "3\n" * 100_000)
    words = ["randomize", "plan.json", "values.csv", "--column", "kcal", "--output", "reports"]
    # Slowed down, so that the command is certainly in the middle of its work. (whoever runs the
    # tests in the background may have had interrupts ignored, which children inherit)
    slow = "import runpy, signal, time; from metricshuffle.data import csv_reader as c, source; "
    slow += "signal.signal(signal.SIGINT, signal.default_int_handler); "
    slow += "source.CHUNK_ROWS = c.LINES_PER_BLOCK = 5000; numbers = c.parse_numbers; "
    slow += (
        "c.parse_numbers = lambda *cells: (time.sleep(0.2), numbers(*cells))[1]; "
        "runpy.run_module('metricshuffle', run_name='__main__')"
    )
    with subprocess.Popen(
        [sys.executable, "-c", slow, *words], cwd=tmp_path, stderr=subprocess.PIPE, text=True
    ) as child:
        deadline = time.monotonic() + 20
        while not any(
            path.name.startswith(".reports.") and path.stat().st_size > 1000
            for path in tmp_path.iterdir()
        ):
            assert child.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.02)
        child.send_signal(getattr(signal, name))
        _, told = child.communicate(timeout=20)
    assert child.returncode == code
    assert "Traceback" not in told
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "plan.json",
        "reports",
        "values.csv",
    ]
    assert (tmp_path / "reports").read_bytes() == b"what was there before"
    if name == "SIGINT":
        assert told == "metricshuffle: interrupted; no file was written or changed.\n"


def test_the_same_plan_by_command_and_by_call(terminal: Any, sum_plan: Plan) -> None:
    words = [
        "--query",
        "sum",
        "--low",
        "0",
        "--high",
        "20",
        "--unit",
        "kcal",
        "--epsilon",
        "1",
        "--distance",
        "5",
        "--delta",
        "1e-6",
    ]
    result = terminal(
        "plan",
        *words,
        "--users",
        "40",
        "--honest",
        "75%",
        "--encoding",
        "unary",
        "--json",
        "--save",
        "plan.json",
    )
    assert result.exit_code == 0, result.output
    assert Path("plan.json").read_text() == result.stdout
    made = Plan.from_json(result.stdout)
    assert (
        made.to_json()
        == plan(sum_plan.query, sum_plan.target, 40, 30, encoding="unary").to_json()
        == result.stdout.rstrip("\n")
    )
    assert made.choice == sum_plan.choice
