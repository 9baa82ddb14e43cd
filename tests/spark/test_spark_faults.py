"""Faults of a cluster: killed Python workers, Spark Connect, and missing Java."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from tests.catalogue.planned_tasks import load_task, planned
from tests.spark.test_spark import any_pandas, open_frame

from metricshuffle.errors import MissingExtra
from metricshuffle.spark import roles, session

pytestmark = pytest.mark.thorough
PATIENCE = 60.0


def python_workers() -> list[int]:
    """The processes that Spark's daemon of Python forked below this one."""
    parents: dict[int, int] = {}
    daemons: set[int] = set()
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            parents[int(folder.name)] = int(
                (folder / "stat").read_text().rsplit(")", 1)[1].split()[1]
            )
            if b"pyspark.daemon" in (folder / "cmdline").read_bytes():
                daemons.add(int(folder.name))
        except OSError:  # it has ended
            continue

    def mine(process: int) -> bool:
        while process > 1:
            process = parents.get(process, 0)
            if process == os.getpid():
                return True
        return False

    return [process for process in daemons if parents[process] in daemons and mine(process)]


@pytest.mark.skipif(
    not Path("/proc/self/stat").exists(), reason="processes are found in /proc, which is not here"
)
@pytest.mark.parametrize("written", [False, True], ids=["tally", "reports"])
def test_killed_python_workers_change_nothing_but_noise(
    spark: Any, tmp_path: Path, written: bool
) -> None:
    """All workers die within a partition; Spark retries, and the true sum is exactly the same.

    A partition has handed over its rows and waits for the kill, so that this happens while it runs,
    at every repetition.
    """
    stalled = str(tmp_path)
    people = 30_000
    task = load_task("line" if written else "curator's sum")

    def waiting(batches: Any) -> Any:
        yield from batches
        # reports are looked at before they are written, so that the second time is the one that
        # counts
        if not written or not os.path.exists(f"{stalled}/looked-at"):
            Path(stalled, "looked-at").touch()
            if written:
                return
        Path(stalled, "waiting").touch()
        until = time.monotonic() + PATIENCE
        while not os.path.exists(f"{stalled}/killed") and time.monotonic() < until:
            time.sleep(0.05)

    rows = open_frame(spark, {"kcal": [person % 10 for person in range(people)]}, 1)
    with any_pandas():
        frame = rows.mapInArrow(waiting, "kcal bigint")
    outcome: list[Any] = []

    def work() -> None:
        if written:
            outcome.append(roles.randomize(frame, task, str(tmp_path / "reports"), column="kcal"))
        else:
            outcome.append(roles.tally(frame, task, column="kcal"))

    thread = threading.Thread(target=work)
    thread.start()
    try:
        until = time.monotonic() + PATIENCE
        while not (tmp_path / "waiting").exists() and time.monotonic() < until:
            time.sleep(0.05)
        killed = python_workers()
        for process in killed:
            os.kill(process, signal.SIGKILL)
    finally:
        (tmp_path / "killed").touch()
        thread.join(PATIENCE)
    assert killed
    assert outcome, "it did not finish"
    if written:
        assert outcome[0].count() == people
        assert roles.shuffle(outcome[0], task).people == people
    else:
        local = task.counted([[person % 10 for person in range(people)]])
        assert outcome[0].to_bytes() == local.to_bytes()


CONNECTED = """
import sys, warnings
warnings.simplefilter("error")
warnings.filterwarnings("ignore", "PySpark does not yet fully support pandas", FutureWarning)
warnings.filterwarnings("ignore", category=ResourceWarning)
warnings.filterwarnings("ignore", category=DeprecationWarning)
from pyspark.sql import SparkSession
spark = SparkSession.builder.remote("local[2]").config("spark.sql.shuffle.partitions", "2").getOrCreate()
assert "connect" in type(spark).__module__, type(spark)
from metricshuffle import InputError, Task
from metricshuffle.spark import roles
task = Task.load("task.json")
frame = spark.range(40).selectExpr("id % 4 as kcal", "id % 20 as who")
release = roles.run(frame, task, column="kcal")
assert release.reports == 40 and abs(release.value - 60) < 20 * release.standard_error, release
assert roles.tally(frame, task, column="kcal", user_column="who", per_user="mean").people == 20
reports = roles.randomize(frame, task, "reports", column="kcal")
assert roles.shuffle(reports, task).people == 40
for wrong, words in (
    (lambda: roles.run(frame, task, column="name"), "has no column 'name'"),
    (lambda: roles.run(frame.selectExpr("kcal + 90 as kcal"), task, column="kcal"), "40 of 40 values in column 'kcal'"),
    (lambda: roles.run(spark.readStream.format("rate").load(), task, column="value"), "a streaming DataFrame has no end"),
    (lambda: roles.shuffle(reports.union(reports), task), "the same reports occur twice"),
):
    try:
        wrong()
    except InputError as told:
        assert words in str(told), told
    else:
        raise AssertionError(words)
print("connected", release.reports)
spark.stop()
"""  # noqa: E501


def test_spark_connect(java: None, tmp_path: Path) -> None:
    """Local Connect server in a separate process: the same roles with the DataFrame API only."""
    pytest.importorskip("grpc", reason="grpcio is not installed, which Spark Connect needs")
    planned("sum in shares").task.save(tmp_path / "task.json")
    (tmp_path / "connected.py").write_text(CONNECTED)
    environment = {
        **os.environ,
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_TESTING": "1",
    }  # which takes a port that is free
    environment.pop("SPARK_REMOTE", None)
    done = subprocess.run(
        [sys.executable, "connected.py"],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=400,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert "connected 40" in done.stdout


def test_without_java_a_sentence_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(
        MissingExtra,
        match=re.escape(
            f"Spark needs Java 17 or newer, and there is none in JAVA_HOME, {tmp_path}"
        ),
    ):
        session.find_java()
    monkeypatch.delenv("JAVA_HOME")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(MissingExtra, match="there is none on the path"):
        session.find_java()
    old = tmp_path / "java"
    old.write_text("#!/bin/sh\necho 'openjdk version \"1.8.0_412\"' >&2\n")
    old.chmod(0o755)
    with pytest.raises(MissingExtra, match=f"{old} is Java 8"):
        session.find_java()
    old.write_text("#!/bin/sh\nexit 1\n")
    with pytest.raises(MissingExtra, match="is one that does not start"):
        session.find_java()
