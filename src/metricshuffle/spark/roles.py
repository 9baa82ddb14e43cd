"""Roles on Spark DataFrames: `randomize`, `shuffle` (or `tally`), and `run` for all at once.

Only the DataFrame API is used, so Spark Connect works as well. Rows stay where they are: each
partition returns its tally in bytes, workers merge groups of tallies, and the driver merges the
results. The package must be installed where Python workers run.

A partition that is run twice draws new noise. That is harmless for a tally, which is collected
once. But a lazy frame of reports that is evaluated twice would cost privacy twice, so `randomize`
writes its reports and returns the written ones.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Unpack

from metricshuffle.data.source import list_names
from metricshuffle.data.value_reading import Reading, ReadingArguments, check_argument_names
from metricshuffle.errors import InputError, PlanError
from metricshuffle.planning import Plan
from metricshuffle.planning.costs.release_ledger import EVERYBODY, Budget
from metricshuffle.planning.one_party_release import run_all_roles
from metricshuffle.protocols.tally import Shuffled, Tally
from metricshuffle.randomness import Randomness
from metricshuffle.spark import partitions
from metricshuffle.spark.frame_request import FrameRequest, check_randomness
from metricshuffle.spark.partition_jobs import (
    check_frame,
    collect_partitions,
    map_partitions,
    spark_errors,
)
from metricshuffle.spark.partitions import REPORTS_SCHEMA
from metricshuffle.spark.report_frames import is_reports, reports_tally
from metricshuffle.tasks import Ledger, Release, Task

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def randomize(
    frame: DataFrame,
    plan: Plan | Task,
    path: str,
    *,
    round: int = 1,
    randomness: Randomness | None = None,
    **reading: Unpack[ReadingArguments],
) -> DataFrame:
    """Client: make one report per person, write them once to `path` as Parquet; return them.

    Each partition has a batch id. Columns and options as in `Task.randomize`. Values are checked
    before anything is written, so the frame is read twice.
    """
    task = task_of_plan(plan)
    task.check_sent()
    check_randomness(randomness)
    task.batch(round)
    request = FrameRequest.of(frame, task, round=round, **reading)
    request.raise_row_errors(
        *collect_partitions(request.source, request.job, partitions.check_partition)[1:3]
    )
    constants = [
        f"'{task.digest}' as task",
        f"cast({round} as int) as round",
        f"{str(request.job.seed is not None).lower()} as seeded",
    ]
    with spark_errors("nothing can be read there"):
        reports = map_partitions(
            request.source, partitions.randomize_partition, request.job, REPORTS_SCHEMA
        )
        reports.selectExpr(*constants, *partitions.report_names()).write.mode("error").parquet(path)
        return frame.sparkSession.read.parquet(path)


def task_of_plan(plan: Plan | Task) -> Task:
    if not isinstance(plan, Plan | Task):
        raise InputError(f"give a Plan or a Task, got {type(plan).__name__}.")
    return plan.task if isinstance(plan, Plan) else plan


def tally(
    frame: DataFrame,
    plan: Plan | Task,
    *,
    round: int = 1,
    randomness: Randomness | None = None,
    **reading: Unpack[ReadingArguments],
) -> Tally:
    """Tally values (name their `column`), or reports (from `randomize`), for `task.publish`."""
    task = task_of_plan(plan)
    check_randomness(randomness)
    check_argument_names(reading)
    if reading.get("column") is None and is_reports(frame):
        return reports_tally(frame, task)[0]
    request = FrameRequest.of(frame, task, round=round, **reading)
    return request.tally()


def shuffle(reports: DataFrame, plan: Plan | Task, *, ledger: Ledger | None = None) -> Shuffled:
    """Shuffler: return what the analyst may see of reports.

    Rejects too few reports, repeated ones, and batches that were released before.
    """
    task = task_of_plan(plan)
    if not is_reports(check_frame(reports)):
        raise InputError(
            "shuffle needs the reports that randomize wrote; the columns of this "
            f"DataFrame are: {list_names(reports.columns)}."
        )
    added, batches = reports_tally(reports, task)
    known_batch = next(
        (batch for batch in batches if ledger is not None and ledger.known(batch)), None
    )
    if ledger is not None and known_batch is not None:
        raise PlanError(
            f"these reports were released in an earlier batch, according to {ledger.path}; two "
            "releases could be compared to single out people, so no report may count twice."
        )
    shuffled = task.publish(added, batches=batches)
    if ledger is not None:
        ledger.record(
            task.digest, {batch: (added.batch.round, count) for batch, count in batches.items()}
        )
    return shuffled


def run(
    frame: DataFrame,
    plan: Plan | Task,
    *,
    round: int | None = None,
    budget: Budget | None = None,
    people: str = EVERYBODY,
    randomness: Randomness | None = None,
    **reading: Unpack[ReadingArguments],
) -> Release:
    """Run all roles on one cluster; the release says that raw values were seen there.

    Columns, options and budget as in `Plan.run`.
    """
    task = task_of_plan(plan)
    check_randomness(randomness)

    def tally_values(number: int) -> Tally:
        return FrameRequest.of(frame, task, round=number, **reading).tally()

    return run_all_roles(
        plan, tally_values, reading=Reading.of(reading), round=round, budget=budget, people=people
    )
