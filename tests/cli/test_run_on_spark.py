"""`run --spark`: errors before Spark starts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.catalogue.planned_tasks import planned


def test_what_is_said_before_spark_starts(terminal: Any, values: Path) -> None:
    planned("unary sum").save("plan.json")
    assert "name a file of values, or a table with --spark." in terminal.refused(
        "run", "plan.json", "--column", "kcal"
    )
    told = terminal.refused("run", "plan.json", values, "--column", "kcal", "--spark", "people")
    assert f"--spark and {values} both say where values come from; leave one of them out." in told
    told = terminal.refused("run", "plan.json", values, "--column", "kcal", "--master", "local")
    assert "--master says where Spark runs; name a table with --spark, or leave it out." in told
    told = terminal.refused(
        "run", "plan.json", "--column", "kcal", "--spark", "people", "--decimal", ","
    )
    assert "--delimiter, --decimal and --no-header are for a file of values" in told


def test_java_is_asked_for_in_words(
    terminal: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("pyspark", reason="pyspark is not installed (extra spark)")
    planned("unary sum").save("plan.json")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    told = terminal.refused(
        "run",
        "plan.json",
        "--column",
        "kcal",
        "--spark",
        "parquet:values.parquet",
        "--master",
        "local[1]",
    )
    assert "Spark needs Java 17 or newer, and there is none in JAVA_HOME" in told
