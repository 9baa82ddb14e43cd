"""Reports in a DataFrame: their batches, a check for duplicates, and their tally."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from metricshuffle.errors import InputError, PlanError
from metricshuffle.protocols.tally import Tally
from metricshuffle.spark import partitions
from metricshuffle.spark.partition_jobs import check_frame, collect_partitions, spark_errors
from metricshuffle.spark.partitions import PartitionJob
from metricshuffle.tasks import Task

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

CONSTANTS = ("task", "round", "seeded")
"""Columns of reports that are the same in every row."""


def is_reports(frame: DataFrame) -> bool:
    """Return whether a frame has the columns of reports."""
    return {*CONSTANTS, *partitions.report_names()} <= set(check_frame(frame).columns)


def reports_tally(reports: DataFrame, task: Task) -> tuple[Tally, dict[bytes, int]]:
    """Return the tally of reports, and the number of reports of every batch.

    Raises if some are of another task, or repeated.
    """
    batches = _batches(reports, task)
    rounds = {row["round"] for row in batches}
    seeded = any(row["seeded"] for row in batches)
    job = PartitionJob(task.to_json(), round=rounds.pop(), seeded=seeded)
    added, _, refused = collect_partitions(
        reports.select("messages"), job, partitions.tally_reports_partition
    )
    if refused or added is None:
        raise PlanError(refused or "a partition returned no tally; run it again.")
    return added, {bytes(row["batch"]): int(row["count(1)"]) for row in batches}


def _batches(reports: DataFrame, task: Task) -> list[dict[str, Any]]:
    """Return the batches of reports, one row each; raises unless task and round are the same.

    Also raises if a report occurs twice.
    """
    digest = task.digest
    with spark_errors("nothing is released"):
        numbered = reports.selectExpr(
            *CONSTANTS,
            "batch",
            "number as last",
            "number as total",
            "cast(number as decimal(19,0)) * cast(number as decimal(19,0)) as squares",
        )
        counted = numbered.groupBy(*CONSTANTS, "batch").agg(
            {"*": "count", "last": "max", "total": "sum", "squares": "sum"}
        )
        rows = [row.asDict() for row in counted.collect()]
        if not rows:
            raise InputError("there are no reports in this DataFrame.")
        if any(row["task"] != digest for row in rows):
            raise PlanError(
                "these reports were made for another task (the digests differ); use the "
                "task the clients used."
            )
        if len({row["round"] for row in rows}) > 1:
            raise PlanError(
                "these reports were made in several rounds; rounds are not mixed, so "
                "shuffle each by itself."
            )
        task.batch(rows[0]["round"])
        ids = [bytes(row["batch"]) for row in rows]
        if len(set(ids)) != len(ids) or (
            not all(map(_is_complete, rows))
            and reports.select("batch", "number").distinct().count()
            != sum(int(row["count(1)"]) for row in rows)
        ):
            raise PlanError(
                "the same reports occur twice; no report may count twice, so give each batch once."
            )
    return rows


def _is_complete(row: dict[str, Any]) -> bool:
    """Return whether a batch has the numbers 0 to `last` once each.

    Their count, their sum and the sum of their squares show that.
    """
    count = int(row["count(1)"])
    last = int(row["max(last)"])
    total = last * (last + 1) // 2
    squares = last * (last + 1) * (2 * last + 1) // 6
    return (count, int(row["sum(total)"]), int(row["sum(squares)"])) == (last + 1, total, squares)
