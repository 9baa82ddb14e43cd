"""Input of commands: file formats, pipes and standard input; missing and invalid values."""

from __future__ import annotations

import gzip
import io
import json
import os
import shutil
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from tests.catalogue.planned_tasks import load_task
from typer.testing import CliRunner, Result

from metricshuffle import Plan
from metricshuffle.cli.command_group import app
from metricshuffle.tasks import Task

KCAL = [row % 21 for row in range(40)]
SEMICOLONS = "id;kcal\r\n" + "".join(f"{row};{value}\r\n" for row, value in enumerate(KCAL))


@pytest.fixture
def task(terminal: Any) -> Task:
    task = load_task("local sum")
    task.save("task.json")
    Path("values.csv").write_text(SEMICOLONS)
    return task


def heard(words: str, given: bytes = b"") -> Result:
    """A command with something on its standard input, before anything was released."""
    for ledger in Path().glob("*.ledger"):
        ledger.unlink()
    return CliRunner().invoke(app, words.split(), input=given)


def people(result: Result) -> int:
    assert result.exit_code == 0, result.output
    return int(json.loads(result.stdout)["reports"])


def test_values_from_standard_input(task: Task) -> None:
    """Plain, compressed and as Parquet; the same for reports and shuffled batches."""
    for given in (SEMICOLONS.encode(), gzip.compress(SEMICOLONS.encode())):
        assert people(heard("run task.json - --column kcal --json", given)) == 40
    reports = heard(
        "randomize task.json - --column kcal --output -", SEMICOLONS.encode()
    ).stdout_bytes
    shuffled = heard("shuffle task.json - --output -", reports).stdout_bytes
    assert task.read_shuffled(shuffled).people == 40
    assert people(heard("estimate task.json - --json", shuffled)) == 40
    assert "not a reports file" in heard("shuffle task.json - --output -", b"kcal\n3\n").stderr


def test_parquet_through_a_pipe(task: Task) -> None:
    """It is held in memory, because its end has to be read first; its content tells what it is."""
    pyarrow: Any = pytest.importorskip("pyarrow", reason="pyarrow is not installed (extra tables)")
    parquet: Any = pytest.importorskip(
        "pyarrow.parquet", reason="pyarrow is not installed (extra tables)"
    )
    held = io.BytesIO()
    parquet.write_table(pyarrow.table({"kcal": KCAL, "who": list(range(40))}), held)
    Path("table").write_bytes(held.getvalue())
    assert (
        people(heard("run task.json - --column kcal --user-column who --json", held.getvalue()))
        == 40
    )
    assert people(heard("run task.json table --column kcal --json", b"")) == 40
    assert (
        "leave --delimiter, --decimal and --no-header out"
        in heard("run task.json table --column kcal --no-header", b"").stderr
    )
    assert (
        "no column 'name' (--user-column); its columns are: kcal, who"
        in heard("run task.json table --column kcal --user-column name", b"").stderr
    )


def test_plans_and_tasks_from_standard_input(task: Task, sum_plan: Plan) -> None:
    for document in (task.to_json(), sum_plan.to_json()):
        assert (
            people(
                heard(
                    "run - values.csv --column kcal --ledger run.ledger --json", document.encode()
                )
            )
            == 40
        )
    assert (
        "cannot use standard input: "
        in heard("run - values.csv --column kcal --ledger run.ledger", b"{").stderr
    )
    assert (
        "cannot read standard input: it is not a text file"
        in heard("run - values.csv --column kcal --ledger run.ledger", b"\xff").stderr
    )


def test_one_input_comes_from_standard_input(terminal: Any, task: Task) -> None:
    """And a plan that came through a pipe has no place beside it for a ledger."""
    for words in (
        "run - - --column kcal",
        "run - /dev/stdin --column kcal",
        "randomize - - --column kcal --output r",
        "estimate - -",
        "shuffle - - --output s --ledger l",
        "shuffle task.json - - --output s",
    ):
        assert "only one input can come from standard input" in terminal.refused(*words.split())
    assert "name one with --ledger FILE" in terminal.refused(
        "shuffle", "-", "reports", "--output", "s"
    )
    assert "standard input is empty" in heard("run task.json - --column kcal", b"").stderr


def test_a_named_pipe(terminal: Any, task: Task) -> None:
    os.mkfifo("pipe")
    writer = threading.Thread(target=lambda: Path("pipe").write_text(SEMICOLONS))
    writer.start()
    assert people(terminal("run", "task.json", "pipe", "--column", "kcal", "--json")) == 40
    writer.join(timeout=10)


@pytest.mark.thorough
def test_a_real_shell(tmp_path: Path, task: Task) -> None:
    """Process substitution, and a pipe from one command to the next."""
    command = f"{sys.executable} -m metricshuffle"
    line = (
        f"set -o pipefail; {command} randomize <(cat task.json) <(gzip -c values.csv) "
        "--column kcal --output - --believe | "
        f"{command} shuffle task.json /dev/stdin --output shuffled"
    )
    shell = shutil.which("bash")
    if shell is None:
        pytest.skip("there is no bash here")
    outcome = subprocess.run(
        [shell, "-c", line], cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False
    )
    assert outcome.returncode == 0, outcome.stderr
    assert "Fields of /dev/fd/" in outcome.stderr
    assert task.read_shuffled(Path("shuffled").read_bytes()).people == 40


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("id\tkcal\n1\t3\n2\t4\n", "--column kcal --delimiter \\t"),
        ("id\tkcal\n1\t3\n2\t4\n", "--column kcal --delimiter tab"),
        ("id;kcal\n1;3,0\n2;4,0\n", "--column kcal --decimal ,"),
        ("1;3\n2;4\n", "--column 2 --no-header"),
        ("id,kcal\n1,3\n2,\n3,NA\n4,4\n", "--column kcal --drop-missing"),
        ("kcal\n3\n\n4\n", "--column kcal --drop-missing"),
        ("who,kcal\n1,3\n ,9\nNA,9\n2,4\n", "--column kcal --drop-missing --user-column who"),
    ],
)
def test_options_for_files_however_they_are_written(
    terminal: Any, task: Task, content: str, words: str
) -> None:
    Path("odd.csv").write_text(content)
    assert people(heard(f"run task.json odd.csv {words} --json")) == 2
    assert heard(f"randomize task.json odd.csv {words} --output reports").exit_code == 0


def test_what_was_done_is_said_beside_the_answer(terminal: Any, task: Task) -> None:
    """Delimiter, dropped rows, and ids that differ by zeros are on stderr, also with --json."""
    Path("odd.csv").write_text("who;kcal\n1;3\n01;4\n2;\n")
    words = "task.json odd.csv --column kcal --user-column who --drop-missing"
    for command in (f"run {words}", f"run {words} --json", f"randomize {words} --output reports"):
        told = heard(command).stderr
        assert "Fields of odd.csv are separated by semicolons (--delimiter ';')." in told
        assert "Of 3 rows of odd.csv, 1 row misses a value and was left out." in told
        assert (
            "Users '1' and '01' in 'who' of odd.csv counted as two people: names are "
            "compared as text." in told
        )


REFUSED: dict[str, tuple[str, str, str]] = {
    "missing": (
        "id,kcal\n1,3\n2,\n3,NA\n",
        "kcal",
        "2 of 3 values in --column 'kcal' of odd.csv are missing: line 3: (empty); line 4: "
        "'NA'. Correct or leave out such rows; "
        "--drop-missing leaves out rows with a missing value.",
    ),
    "a blank line": (
        "kcal\n3\n\n",
        "kcal",
        "1 of 2 values in --column 'kcal' of odd.csv is missing: line 3: (empty).",
    ),
    "six of a kind": (
        "kcal\n" + "99\n" * 6 + "3\n",
        "kcal",
        "6 of 7 values in --column 'kcal' of odd.csv are not in whole numbers from 0 to 20 "
        "kcal: line 2: '99' lies above it; line 3: '99'; "
        "line 4: '99'; line 5: '99'; line 6: '99'; and 1 more.",
    ),
    "of several kinds": (
        "kcal\n99\n" + "\n" * 5 + "many\n",
        "kcal",
        "(5 of them are missing): line 2: '99' lies above it; line 3: (empty) is missing",
    ),
    "decimal commas": (
        "x;kcal\n1;3,5\n",
        "kcal",
        "'3,5' has a decimal comma. Correct or leave out such rows; if the comma marks "
        "decimals, read the file with --decimal ,.",
    ),
    "a time": (
        "kcal\n10:30\n",
        "kcal",
        "is a date or a time. Correct or leave out such rows; turn dates and times into "
        "numbers first",
    ),
    "a unit": ("kcal\n12 kcal\n", "kcal", "write numbers without units"),
    "no users": (
        "who,kcal\n" + ",3\n" * 7,
        "kcal --user-column who",
        "7 of 7 rows of odd.csv name no user in --user-column 'who': line 2: (empty); line "
        "3: (empty); line 4: (empty); line 5: (empty); "
        "line 6: (empty); and 2 more.",
    ),
    "everything missing": (
        "kcal\nNA\n",
        "kcal --drop-missing",
        "every row of odd.csv misses a value",
    ),
    "another column": (
        "id;name\n1;a\n",
        "kcal",
        "no column 'kcal' (--column); its columns are: id, name.",
    ),
}


@pytest.mark.parametrize(("content", "words", "told"), REFUSED.values(), ids=REFUSED)
def test_what_is_wrong_is_counted_and_shown(
    terminal: Any, task: Task, content: str, words: str, told: str
) -> None:
    Path("odd.csv").write_text(content)
    for command in ("run", "randomize"):
        assert told in terminal.refused(
            command, "task.json", "odd.csv", "--output", "out", "--column", *words.split()
        )


def test_places_outside_are_counted_too(terminal: Any) -> None:
    """Outside the box, swapped, not on Earth, missing or not numbers: line and both cells."""
    load_task("map").save("task.json")
    box = load_task("map").query.values_in.box  # type: ignore[attr-defined]
    inside = f"{(box.south + box.north) / 2:.4f},{(box.west + box.east) / 2:.4f}"
    rows = [
        inside,
        f"{box.north + 1},{box.west}",
        ",".join(reversed(inside.split(","))),
        f"{box.south},700",
        ",7",
        "x,7",
        inside,
    ]
    Path("odd.csv").write_text("lat,lon\n" + "\n".join(rows) + "\n")
    told = terminal.refused("run", "task.json", "odd.csv", "--column", "lat", "--column", "lon")
    assert "5 of 7 values in --column 'lat' and 'lon' of odd.csv are not in latitudes" in told
    for part in (
        "line 3: ",
        "lies outside; line 4: ",
        "(the columns seem to be swapped",
        "line 5: ",
        "(700 is not a longitude",
        "line 6: (empty), '7' is missing; line 7: 'x', '7' is text and not a number.",
    ):
        assert part in told
    assert "4 of 7 values" in terminal.refused(
        "run", "task.json", "odd.csv", "--column", "lat", "--column", "lon", "--drop-missing"
    )


def test_help_lists_the_bundled_options(terminal: Any) -> None:
    """Both commands take the same ones."""
    for command in ("run", "randomize"):
        shown = terminal(command, "--help").output
        for option in (
            "--column",
            "--user-column",
            "--per-user",
            "--clamp",
            "--drop-missing",
            "--delimiter",
            "--decimal",
            "--no-header",
        ):
            assert option in shown
