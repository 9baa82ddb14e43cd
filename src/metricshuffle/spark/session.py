"""Spark session of the command line, and the DataFrame that an option names."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from metricshuffle.errors import InputError, MissingExtra, require
from metricshuffle.spark.partition_jobs import first_message_line, spark_errors

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

MIN_JAVA_VERSION = 17
FILES_PATTERN = re.compile(r"(?P<format>[a-z]+):(?P<path>.+)", re.S)
QUERY_PATTERN = re.compile(r"\s*(select|with|from|values|table)\b", re.I)
READ_OPTIONS: dict[str, dict[str, str]] = {"csv": {"header": "true", "inferSchema": "true"}}
"""Options for reading a format."""


def find_java() -> Path:
    """Path of the Java that Spark will start; raises MissingExtra unless it is 17 or newer."""
    home = os.environ.get("JAVA_HOME")
    java_path = shutil.which("java", path=str(Path(home) / "bin")) if home else shutil.which("java")
    where = f"in JAVA_HOME, {home}" if home else "on the path"
    if java_path is None:
        raise MissingExtra(
            f"Spark needs Java {MIN_JAVA_VERSION} or newer, and there is none {where}; "
            "install one, or set JAVA_HOME to it."
        )
    try:
        version_text = subprocess.run(  # noqa: S603
            [java_path, "-version"], capture_output=True, text=True, timeout=60, check=False
        ).stderr
    except (OSError, subprocess.SubprocessError):
        version_text = ""
    version = re.search(r'version "(?:1\.)?(\d+)', version_text)
    if version is None or int(version[1]) < MIN_JAVA_VERSION:
        has = "one that does not start" if version is None else f"Java {version[1]}"
        raise MissingExtra(
            f"Spark needs Java {MIN_JAVA_VERSION} or newer, and {java_path} is {has}; "
            "install one, or set JAVA_HOME to it."
        )
    return Path(java_path)


@contextmanager
def session(master: str | None = None) -> Iterator[SparkSession]:
    """Session on a master (`local[4]`, `spark://...`, `yarn`, `sc://...` for Connect).

    A `master` of None means the one that the environment names. The session is stopped afterwards.
    A local one starts Python workers with this interpreter, and logs nothing unless SPARK_CONF_DIR
    is set.
    """
    sql = require("pyspark.sql", "spark")
    remote = master.startswith("sc://") if master is not None else "SPARK_REMOTE" in os.environ
    if not remote:
        find_java()
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = sql.SparkSession.builder.appName("metricshuffle")
    if master is not None:
        builder = builder.remote(master) if remote else builder.master(master)
    if not remote:
        builder = builder.config("spark.ui.showConsoleProgress", "false").config(
            "spark.ui.enabled", "false"
        )
    with warnings.catch_warnings(), _silence_java():
        warnings.filterwarnings(
            "ignore", "PySpark does not yet fully support pandas", FutureWarning
        )
        try:
            opened = builder.getOrCreate()
        except Exception as error:  # any error of Java, the network or the cluster
            where = "a Spark session" if master is None else f"a Spark session on {master}"
            raise InputError(f"cannot start {where}: {first_message_line(str(error))}") from error
    try:
        yield opened
    finally:
        opened.stop()


@contextmanager
def _silence_java() -> Iterator[None]:
    """Discard the log of a Java that is started inside, unless SPARK_CONF_DIR is set.

    Errors are reported in a message.
    """
    if "SPARK_CONF_DIR" in os.environ:
        yield
        return
    sys.stderr.flush()
    screen = os.dup(2)
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 2)
    try:
        yield
    finally:
        os.dup2(screen, 2)
        os.close(screen)
        os.close(nowhere)


def open_frame(opened: SparkSession, words: str) -> DataFrame:
    """Open a table, a query (`SELECT ...`), or files as format:path (`parquet:/data/people`)."""
    if not words.strip():
        raise InputError(
            "--spark names a table, a query or files like parquet:/data/people; it is empty."
        )
    with spark_errors("so nothing was read"):
        read = FILES_PATTERN.fullmatch(words.strip())
        if read is not None:
            return (
                opened.read.options(**READ_OPTIONS.get(read["format"], {}))
                .format(read["format"])
                .load(read["path"])
            )
        return opened.sql(words) if QUERY_PATTERN.match(words) else opened.table(words.strip())
