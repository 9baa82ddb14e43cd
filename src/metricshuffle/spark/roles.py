"""The three roles on Spark DataFrames: `randomize`, `shuffle` (or `tally`), and `run` for all of them at once.

Only the DataFrame API is used, so that Spark Connect does as well. Rows stay where they are: a partition hands back its tally in bytes, a
few of these are added up at a time, and the driver adds up what is left. The package must be installed where Python workers run.

A partition that is run twice draws new noise. That is harmless for a tally, which is collected once, and would cost twice in a lazy frame
of reports that is evaluated twice: so `randomize` writes its reports and hands out what it wrote.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from metricshuffle.data.rows import CoordinateKind, PerUser
from metricshuffle.data.source import list_names
from metricshuffle.errors import InputError, PlanError
from metricshuffle.planning import Plan
from metricshuffle.planning.costs.release_ledger import EVERYBODY, Budget, validate_group_name
from metricshuffle.protocols.tally import Shuffled, Tally
from metricshuffle.randomness import Randomness
from metricshuffle.spark import partitions
from metricshuffle.spark.frame_request import FrameRequest, check_randomness
from metricshuffle.spark.partition_jobs import check_frame, collect_partitions, map_partitions, spark_errors
from metricshuffle.spark.partitions import REPORTS_SCHEMA
from metricshuffle.spark.report_frames import is_reports, reports_tally
from metricshuffle.tasks import Ledger, Release, Task
from metricshuffle.tasks.task import new_batch_id
from metricshuffle.tasks.value_reading import Reading

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def randomize(
    frame: DataFrame,
    plan: Plan | Task,
    path: str,
    *,
    column: str | Sequence[str],
    user_column: str | None = None,
    per_user: PerUser | None = None,
    coordinates: CoordinateKind | None = None,
    drop_missing: bool = False,
    drop_outside: bool = False,
    clamp: bool = False,
    round: int = 1,
    randomness: Randomness | None = None,
) -> DataFrame:
    """Clients: one report a person, written once to `path` as Parquet, with a batch id a partition; returns what was written.

    Columns and options as in `Plan.randomize`. Values are looked at before anything is written, so the frame is read twice.
    """
    task = task_of_plan(plan)
    task.check_sent()
    check_randomness(randomness)
    task.batch(round)
    request = FrameRequest.of(frame, task, column=column, user_column=user_column, per_user=per_user, coordinates=coordinates,
                      drop_missing=drop_missing, drop_outside=drop_outside, clamp=clamp, round=round)  # fmt: skip
    request.raise_row_errors(*collect_partitions(request.source, request.job, partitions.check_partition)[1:3])
    constants = [f"'{task.digest}' as task", f"cast({round} as int) as round", f"{str(request.job.seed is not None).lower()} as seeded"]
    with spark_errors("nothing can be read there"):
        reports = map_partitions(request.source, partitions.randomize_partition, request.job, REPORTS_SCHEMA)
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
    column: str | Sequence[str] | None = None,
    user_column: str | None = None,
    per_user: PerUser | None = None,
    coordinates: CoordinateKind | None = None,
    drop_missing: bool = False,
    drop_outside: bool = False,
    clamp: bool = False,
    round: int = 1,
    randomness: Randomness | None = None,
) -> Tally:
    """What values (name their `column`) or reports (what `randomize` returned) add up to; `task.publish` lets go of it."""
    task = task_of_plan(plan)
    check_randomness(randomness)
    if column is None and is_reports(frame):
        return reports_tally(frame, task)[0]
    request = FrameRequest.of(frame, task, column=column, user_column=user_column, per_user=per_user, coordinates=coordinates,
                      drop_missing=drop_missing, drop_outside=drop_outside, clamp=clamp, round=round)  # fmt: skip
    return request.tally()


def shuffle(reports: DataFrame, plan: Plan | Task, *, ledger: Ledger | None = None) -> Shuffled:
    """Shuffler: what the analyst may see of reports. Too few of them, some twice, or some that were let go before are refused."""
    task = task_of_plan(plan)
    if not is_reports(check_frame(reports)):
        raise InputError(
            f"shuffle needs the reports that randomize wrote; the columns of this DataFrame are: {list_names(reports.columns)}."
        )
    added, batches = reports_tally(reports, task)
    known_batch = next((batch for batch in batches if ledger is not None and ledger.known(batch)), None)
    if ledger is not None and known_batch is not None:
        raise PlanError(
            f"these reports were let go in an earlier batch, as {ledger.path} says; the same people in two releases would give them away, "
            "so nobody's report may count twice."
        )
    shuffled = task.publish(added, batches=batches)
    if ledger is not None:
        ledger.record(task.digest, {batch: (added.batch.round, count) for batch, count in batches.items()})
    return shuffled


def run(
    frame: DataFrame,
    plan: Plan | Task,
    *,
    column: str | Sequence[str],
    user_column: str | None = None,
    per_user: PerUser | None = None,
    coordinates: CoordinateKind | None = None,
    drop_missing: bool = False,
    drop_outside: bool = False,
    clamp: bool = False,
    round: int | None = None,
    budget: Budget | None = None,
    people: str = EVERYBODY,
    randomness: Randomness | None = None,
) -> Release:
    """All roles on one cluster; the release says that raw values were seen there. Columns, options and budget as in `Plan.run`."""
    task = task_of_plan(plan)
    check_randomness(randomness)
    make_request = partial(FrameRequest.of, frame, task, column=column, user_column=user_column, per_user=per_user, coordinates=coordinates,
                    drop_missing=drop_missing, drop_outside=drop_outside, clamp=clamp)  # fmt: skip

    reading = Reading(clamp=clamp, drop_outside=drop_outside, drop_missing=drop_missing, per_user=per_user)

    def released(number: int) -> Release:
        return release_tally(plan, make_request(round=number).tally(), reading)

    if budget is None:
        return released(1 if round is None else round)
    group = validate_group_name(people)
    with budget.opened() as account:
        release = released(account.round_for(task, group, round))
        account.record(task, release.shuffled, group, raw_values_seen=True)
    return release


def release_tally(plan: Plan | Task, added: Tally, reading: Reading | None = None) -> Release:
    """The release of values that were added up where they are seen; a batch below the minimum is refused here, on the driver."""
    return plan.estimate(task_of_plan(plan).publish(added, batches=[new_batch_id()]), raw_values_seen=True, reading=reading)
