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

from metricshuffle.columns.table import listed
from metricshuffle.errors import InputError, PlanError
from metricshuffle.executors import partitions
from metricshuffle.executors.asked import AskedFrame, check_randomness
from metricshuffle.executors.jobs import checked_frame, collected, in_words, mapped
from metricshuffle.executors.partitions import REPORTS
from metricshuffle.executors.reports import is_reports, reports_tally
from metricshuffle.planning import Plan
from metricshuffle.planning.budget import EVERYBODY, Budget, checked_people
from metricshuffle.protocols.tally import Shuffled, Tally
from metricshuffle.queries.rows import CoordinatesAre, PerUser
from metricshuffle.randomness import Randomness
from metricshuffle.wire import Ledger, Release, Task
from metricshuffle.wire.reading import Reading
from metricshuffle.wire.task import new_batch_id

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
    coordinates: CoordinatesAre | None = None,
    drop_missing: bool = False,
    drop_outside: bool = False,
    clamp: bool = False,
    round: int = 1,
    randomness: Randomness | None = None,
) -> DataFrame:
    """Clients: one report a person, written once to `path` as Parquet, with a batch id a partition; returns what was written.

    Columns and options as in `Plan.randomize`. Values are looked at before anything is written, so the frame is read twice.
    """
    task = task_in(plan)
    task.check_sent()
    check_randomness(randomness)
    task.batch(round)
    asked = AskedFrame.of(frame, task, column=column, user_column=user_column, per_user=per_user, coordinates=coordinates,
                      drop_missing=drop_missing, drop_outside=drop_outside, clamp=clamp, round=round)  # fmt: skip
    asked.judge(*collected(asked.source, asked.job, partitions.looked_at)[1:3])
    constants = [f"'{task.digest}' as task", f"cast({round} as int) as round", f"{str(asked.job.seed is not None).lower()} as seeded"]
    with in_words("nothing can be read there"):
        reports = mapped(asked.source, partitions.randomized, asked.job, REPORTS)
        reports.selectExpr(*constants, *partitions.report_names()).write.mode("error").parquet(path)
        return frame.sparkSession.read.parquet(path)


def task_in(plan: Plan | Task) -> Task:
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
    coordinates: CoordinatesAre | None = None,
    drop_missing: bool = False,
    drop_outside: bool = False,
    clamp: bool = False,
    round: int = 1,
    randomness: Randomness | None = None,
) -> Tally:
    """What values (name their `column`) or reports (what `randomize` returned) add up to; `task.publish` lets go of it."""
    task = task_in(plan)
    check_randomness(randomness)
    if column is None and is_reports(frame):
        return reports_tally(frame, task)[0]
    asked = AskedFrame.of(frame, task, column=column, user_column=user_column, per_user=per_user, coordinates=coordinates,
                      drop_missing=drop_missing, drop_outside=drop_outside, clamp=clamp, round=round)  # fmt: skip
    return asked.tally()


def shuffle(reports: DataFrame, plan: Plan | Task, *, ledger: Ledger | None = None) -> Shuffled:
    """Shuffler: what the analyst may see of reports. Too few of them, some twice, or some that were let go before are refused."""
    task = task_in(plan)
    if not is_reports(checked_frame(reports)):
        raise InputError(f"shuffle needs the reports that randomize wrote; the columns of this DataFrame are: {listed(reports.columns)}.")
    added, batches = reports_tally(reports, task)
    known = next((batch for batch in batches if ledger is not None and ledger.known(batch)), None)
    if ledger is not None and known is not None:
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
    coordinates: CoordinatesAre | None = None,
    drop_missing: bool = False,
    drop_outside: bool = False,
    clamp: bool = False,
    round: int | None = None,
    budget: Budget | None = None,
    people: str = EVERYBODY,
    randomness: Randomness | None = None,
) -> Release:
    """All roles on one cluster; the release says that raw values were seen there. Columns, options and budget as in `Plan.run`."""
    task = task_in(plan)
    check_randomness(randomness)
    asked = partial(AskedFrame.of, frame, task, column=column, user_column=user_column, per_user=per_user, coordinates=coordinates,
                    drop_missing=drop_missing, drop_outside=drop_outside, clamp=clamp)  # fmt: skip

    reading = Reading(clamp=clamp, drop_outside=drop_outside, drop_missing=drop_missing, per_user=per_user)

    def released(number: int) -> Release:
        return released_tally(plan, asked(round=number).tally(), reading)

    if budget is None:
        return released(1 if round is None else round)
    group = checked_people(people)
    with budget.opened() as account:
        release = released(account.round_for(task, group, round))
        account.record(task, release.shuffled, group, raw_values_seen=True)
    return release


def released_tally(plan: Plan | Task, added: Tally, reading: Reading | None = None) -> Release:
    """The release of values that were added up where they are seen; a batch below the minimum is refused here, on the driver."""
    return plan.estimate(task_in(plan).publish(added, batches=[new_batch_id()]), raw_values_seen=True, reading=reading)
