"""Lazy data frames: read once, wanted columns only, in batches; frames in the same library."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.catalogue.planned_tasks import load_task, planned, run_of
from tests.tables import check_all

from metricshuffle import InputError
from metricshuffle.errors import MissingExtra
from metricshuffle.queries import result_table as tables

pyarrow: Any = pytest.importorskip("pyarrow", reason="pyarrow is not installed (extra tables)")
LIBRARIES = ("pandas", "polars", "pyarrow")


def module(name: str) -> Any:
    return pytest.importorskip(
        name, reason=f"{name} is not installed, so its frames cannot be tried"
    )


def test_a_lazy_frame_is_computed_once_and_only_where_it_is_needed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("metricshuffle.data.source.CHUNK_ROWS", 7)
    polars = module("polars")
    rows: list[int] = []

    def seen(frame: Any) -> Any:
        rows.append(len(frame))
        return frame

    lazy = (
        polars.DataFrame({"kcal": [row % 20 for row in range(40)], "other": ["x"] * 40})
        .lazy()
        .map_batches(seen)
    )
    assert load_task("local sum").run(lazy, column="kcal").reports == 40
    assert sum(rows) == 40
    with pytest.raises(InputError, match="the LazyFrame has no column 'name'"):
        load_task("local sum").run(lazy, column="name")
    with pytest.raises(InputError, match=r"holds the values; it has: kcal, other\."):
        load_task("local sum").run(lazy)
    assert sum(rows) == 40


def test_a_relation_with_quotes_in_its_names() -> None:
    relation = module("duckdb").sql(
        """select range % 20 as "my ""own"" column", 1 as other from range(40)"""
    )
    assert load_task("local sum").run(relation, column='my "own" column').reports == 40


STREAMED = """
import resource, sys
from metricshuffle import Task
made = {
    "polars": lambda: __import__("polars").scan_parquet("values.parquet"),
    "duckdb": lambda: __import__("duckdb").sql("select * from 'values.parquet'"),
    "dataset": lambda: __import__("pyarrow.dataset").dataset.dataset("values.parquet"),
}
task = Task.load("task.json")
values = made[sys.argv[1]]()
task.counted([list(range(20))])
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
from metricshuffle.data.query_values import parts_of
assert task.counted(parts_of(task.query, values, column="kcal")).people == 20_000_000
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024)
"""


@pytest.mark.thorough
@pytest.mark.parametrize("source", ["polars", "duckdb", "dataset"])
def test_memory_stays_bounded(source: str, tmp_path: Path) -> None:
    """Twenty million numbers (160 MB, several times that as a frame) in less than that."""
    module(
        "polars" if source == "polars" else "duckdb" if source == "duckdb" else "pyarrow.dataset"
    )
    parquet: Any = module("pyarrow.parquet")
    column = pyarrow.table(
        {"kcal": np.tile(np.arange(20, dtype=np.int64), 50_000), "other": np.arange(1_000_000)}
    )
    with parquet.ParquetWriter(tmp_path / "values.parquet", column.schema) as stream:
        for _ in range(20):
            stream.write_table(column)
    load_task("curator's sum").save(tmp_path / "task.json")
    done = subprocess.run(
        [sys.executable, "-c", STREAMED, source],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert int(done.stdout.splitlines()[-1]) < 150, (
        f"{done.stdout} MiB"
    )  # (duckdb shows how far it is after two seconds)


@check_all("library", LIBRARIES)
def test_frames_of_the_library_that_is_asked_for(library: Any) -> None:
    module(library)
    for shown in (run_of("labels"), run_of("unary sum"), planned("labels")):
        frame = shown.to_frame(library)
        assert type(frame).__module__.split(".")[0] == library
    assert type(run_of("labels").value.to_frame(library)).__module__.split(".")[0] == library


def test_a_library_that_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(
        InputError, match="library must be one of pandas, polars, pyarrow, got 'excel'"
    ):
        run_of("labels").to_frame("excel")  # type: ignore[arg-type]
    monkeypatch.setattr(tables, "find_spec", lambda name: None)
    with pytest.raises(
        MissingExtra, match="A frame needs polars; install it with: pip install polars"
    ):
        run_of("labels").to_frame("polars")
    with pytest.raises(
        MissingExtra, match="A frame needs pandas, polars or pyarrow; install one with"
    ):
        run_of("labels").to_frame()
