"""Benchmark of a hundred million rows of Parquet: command line, Spark, DuckDB and Polars.

The plain answers of DuckDB and Polars are the limit. `python -m benchmarks scale` makes the file
(or takes that in METRICSHUFFLE_SCALE_FOLDER) and needs 0.4 GB of disk and a few minutes;
METRICSHUFFLE_SCALE_ROWS=1e7 is a tenth of it. Every row runs in a separate process, so that its
peak memory is its own.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

import metricshuffle as ms
from benchmarks.measuring import measurement

ROWS = int(float(os.environ.get("METRICSHUFFLE_SCALE_ROWS", "1e8")))
AT_ONCE = 1_000_000
QUESTIONS = {"mean": ["kcal"], "map of 1,024 cells": ["x", "y"]}
LIMITS = {"mean": 60.0, "map of 1,024 cells": 120.0}
SPARK = """
import json, resource, sys, time
from metricshuffle.spark import spark as roles
from metricshuffle.spark.session import session
from metricshuffle.planning import Plan
plans, parquet, tenth = json.loads(sys.argv[1]), sys.argv[2], sys.argv[3]
told = {}
with session("local[2]") as opened:
    for name, (path, columns) in plans.items():
        plan = Plan.load(path)
        for rows, file in (("warm", tenth), ("tenth", tenth), ("all", parquet)):
            start = time.perf_counter()
            tally = roles.tally(opened.read.parquet(file), plan, column=columns)
            told[f"{name} {rows}"] = time.perf_counter() - start
            told[f"{name} {rows} driver"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
            told[f"{name} {rows} people"] = tally.people
print(json.dumps(told))
"""  # noqa: E501
PLAIN = {
    "duckdb": {
        "mean": "import duckdb; print(duckdb.sql(\"select avg(kcal) from '{file}'\").fetchall())",
        "map of 1,024 cells": (
            "import duckdb; print(len(duckdb.sql(\"select x, y, count(*) from '{file}' group "
            'by all").fetchall()))'
        ),
    },
    "polars": {
        "mean": (
            "import polars as p; "
            "print(p.scan_parquet('{file}').select(p.col('kcal').mean()).collect(engine='streaming'))"
        ),
        "map of 1,024 cells": (
            "import polars as p; print(p.scan_parquet('{file}').group_by('x', "
            "'y').len().collect(engine='streaming'))"
        ),
    },
}
"""Queries for the same answer without privacy."""


def values(path: Path, rows: int) -> Path:
    """Write a number and a cell for each person."""
    import pyarrow
    from pyarrow import parquet

    if path.exists():
        return path
    schema = pyarrow.schema(
        [("kcal", pyarrow.int32()), ("x", pyarrow.int32()), ("y", pyarrow.int32())]
    )
    rng = np.random.default_rng(1)
    part = path.with_suffix(".part")
    with parquet.ParquetWriter(part, schema) as stream:
        for start in range(0, rows, AT_ONCE):
            count = min(AT_ONCE, rows - start)
            columns = {
                "kcal": np.clip(rng.normal(450, 120, count), 0, 1000),
                "x": rng.integers(0, 32, count),
                "y": rng.integers(0, 32, count),
            }
            stream.write_table(
                pyarrow.table(
                    {name: column.astype(np.int32) for name, column in columns.items()},
                    schema=schema,
                )
            )
    part.rename(path)
    return path


def planned(folder: Path, rows: int) -> dict[str, tuple[str, list[str]]]:
    """Plans as the planner chooses them for that many people, in files."""
    asked: dict[str, tuple[Any, float]] = {
        "mean": (ms.Mean(ms.Integers(0, 1000, unit="kcal")), 100),
        "map of 1,024 cells": (ms.Histogram(ms.Grid(32, 32)), 4),
    }
    made = {}
    for name, (query, distance) in asked.items():
        path = folder / f"{name.split()[0]}-{rows}.json"
        if not path.exists():
            ms.plan(
                query, ms.Target(epsilon=1.0, delta=1e-6, distance=distance), users=rows, honest=0.9
            ).save(path)
        made[name] = (str(path), QUESTIONS[name])
    return made


def process(words: list[str]) -> tuple[float, float, str]:
    """Run a process; return its seconds, its GiB and its output."""
    with tempfile.TemporaryFile("w+") as said, tempfile.TemporaryFile("w+") as wrong:
        start = time.perf_counter()
        run = subprocess.Popen(words, stdout=said, stderr=wrong)
        _, status, used = os.wait4(run.pid, 0)
        elapsed = time.perf_counter() - start
        run.returncode = os.waitstatus_to_exitcode(status)
        said.seek(0)
        wrong.seek(0)
        assert run.returncode == 0, wrong.read()[-2000:]
        return elapsed, used.ru_maxrss / 2**20, said.read()


def measurements() -> list[dict[str, Any]]:
    given = os.environ.get("METRICSHUFFLE_SCALE_FOLDER")
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(given or temporary)
        file = values(folder / f"{ROWS}.parquet", ROWS)
        tenth = values(folder / f"{ROWS // 10}.parquet", ROWS // 10)
        return _side_by_side(folder, Path(temporary), file, tenth)


def _side_by_side(folder: Path, scratch: Path, file: Path, tenth: Path) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    plans = planned(folder, ROWS)
    local: dict[str, float] = {}
    for name, (path, columns) in plans.items():
        ledger = str(scratch / f"{name.split()[0]}.ledger")
        named = [word for column in columns for word in ("--column", column)]
        words = [
            sys.executable,
            "-m",
            "metricshuffle",
            "run",
            path,
            str(file),
            *named,
            "--ledger",
            ledger,
            "--json",
            "--quiet",
        ]
        local[name], memory, said = process(words)
        assert json.loads(said)["reports"] == ROWS
        rows.append(
            measurement(
                f"{name} of {ROWS:.0e} rows, metricshuffle run",
                local[name],
                "s",
                LIMITS[name],
                at_most=True,
            )
        )
        rows.append(measurement("  its memory", memory, "GiB", 2.0, at_most=True))
        for library, commands in PLAIN.items():
            if find_spec(library) is not None:
                elapsed, _, _ = process([sys.executable, "-c", commands[name].format(file=file)])
                rows.append(measurement(f"  {library}, not private", elapsed, "s", None))
                rows.append(
                    measurement(f"  run over {library}", local[name] / elapsed, "times", None)
                )
    return rows + (_spark(plans, file, tenth, local) if find_spec("pyspark") is not None else [])


def _spark(
    plans: dict[str, tuple[str, list[str]]], file: Path, tenth: Path, local: dict[str, float]
) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    told = json.loads(
        process([sys.executable, "-c", SPARK, json.dumps(plans), str(file), str(tenth)])[
            2
        ].splitlines()[-1]
    )
    for name in plans:
        assert told[f"{name} all people"] == ROWS
        whole = told[f"{name} all"]
        part = told[f"{name} tenth"]
        rows.append(
            measurement(
                f"{name} of {ROWS:.0e} rows, Spark local[2], start-up apart", whole, "s", None
            )
        )
        rows.append(
            measurement("  over metricshuffle run", whole / local[name], "times", 3.0, at_most=True)
        )
        rows.append(
            measurement(
                f"  cost of a row, over that of {ROWS // 10:.0e} rows",
                whole / part / 10,
                "times",
                1.3,
                at_most=True,
            )
        )
        growth = told[f"{name} all driver"] - told[f"{name} tenth driver"]
        rows.append(
            measurement(
                "  driver's memory (Python), more than for a tenth of the rows",
                growth,
                "GiB",
                0.05,
                at_most=True,
            )
        )
    return rows
