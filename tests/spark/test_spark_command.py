"""`run --spark` on the command line: a release from files, a query, and errors."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.catalogue.planned_tasks import planned

from metricshuffle import Release
from metricshuffle.errors import InputError
from metricshuffle.spark.session import open_frame

pyarrow: Any = pytest.importorskip("pyarrow", reason="pyarrow is not installed (extra tables)")


@pytest.mark.thorough
def test_a_release_from_spark(java: None, tmp_path: Path) -> None:
    """Files, then a query of errors, in processes with separate sessions."""
    parquet: Any = pytest.importorskip("pyarrow.parquet")
    made = planned("two rounds")
    made.model_copy(update={"task": made.task.reworded("Imbiß", "How much, <b>roughly</b>?")}).save(
        str(tmp_path / "plan.json")
    )
    people = pyarrow.table(
        {"kcal": [row % 4 for row in range(40)], "wrong": [99] * 3 + [None] * 2 + [1] * 35}
    )
    parquet.write_table(people, tmp_path / "people.parquet")

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        command = [
            sys.executable,
            "-m",
            "metricshuffle",
            "run",
            "plan.json",
            "--master",
            "local[1]",
            *words,
        ]
        return subprocess.run(
            command, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False
        )

    done = run("--spark", "parquet:people.parquet", "--column", "kcal", "--output", "release.json")
    assert done.returncode == 0, done.stderr
    release = Release.load(tmp_path / "release.json")
    assert release.reports == 40
    assert (release.title, release.question) == ("Imbiß", "How much, <b>roughly</b>?")
    assert release.raw_values_seen
    assert done.stderr.splitlines()[0] == "Wrote release.json."
    assert done.stderr.splitlines()[1].startswith("Every row counted as another person")
    assert len(done.stderr.splitlines()) == 2, done.stderr
    done = run(
        "--spark",
        "SELECT wrong AS kcal FROM parquet.`people.parquet`",
        "--column",
        "kcal",
        "--output",
        "again.json",
    )
    assert done.returncode == 2
    assert (
        "metricshuffle: 5 of 40 values in --column 'kcal' of the DataFrame (rows count from "
        "0) are not in whole numbers from 0 to 20 kcal" in done.stderr
    )
    assert done.stdout == ""
    assert "Traceback" not in done.stderr


@pytest.mark.thorough
@pytest.mark.parametrize(
    "words", ["nowhere", "parquet:nowhere.parquet", "SELECT nowhere FROM nobody"]
)
def test_what_is_not_there_is_told_in_a_sentence(spark: Any, words: str) -> None:
    with pytest.raises(
        InputError,
        match=r"^Spark could not do it, and so nothing was read: [^\n]*(nowhere|nobody)[^\n]*$",
    ):
        open_frame(spark, words).count()
