"""`metricshuffle run`: all roles on one machine, or on one cluster."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from metricshuffle.cli.budget_options import CountedRound, LedgerFile, People, check_other_ledgers, choose_ledger
from metricshuffle.cli.estimate_command import publish
from metricshuffle.cli.shared_options import Json, PlanFile, ReadingOptions, load_plan, with_reading_options, writable
from metricshuffle.errors import InputError

if TYPE_CHECKING:
    from metricshuffle.protocols.tally import Tally
    from metricshuffle.tasks.task import Task
    from metricshuffle.tasks.value_reading import Reading

Counting = Callable[[int, Callable[[str], None]], "Tally"]
"""From a round, and what to call to say how far it is, to what everybody's values add up to."""
RunRelease = Annotated[
    Path | None,
    typer.Option(
        "--output", metavar="FILE",
        help="Write the release as JSON; - is standard output. release.json beside PLAN if left out, unless --json shows it.",
    ),
]  # fmt: skip
Values = Annotated[
    Path | None,
    typer.Argument(
        metavar="[VALUES]",
        help="A CSV file with a header line, gzipped or not, or a Parquet file; a pipe, or - for standard input. Not with --spark.",
    ),
]
Spark = Annotated[
    str | None,
    typer.Option(
        "--spark", metavar="TABLE",
        help="Run on Spark instead of reading VALUES: a table, a query (SELECT ...), or files as format:path, like parquet:/data/people.",
    ),
]  # fmt: skip
Master = Annotated[
    str | None,
    typer.Option(
        "--master", metavar="URL",
        help="Where Spark runs: local[4], spark://host:7077, yarn, or sc://host for Spark Connect; what the environment says if left out.",
    ),
]  # fmt: skip


@with_reading_options
def run(
    plan_file: PlanFile,
    reading: ReadingOptions,
    values: Values = None,
    output: RunRelease = None,
    ledger: LedgerFile = None,
    round: CountedRound = None,
    people: People = "everybody",
    spark: Spark = None,
    master: Master = None,
    as_json: Json = False,
) -> None:
    """Randomize, shuffle and estimate on one machine, or on Spark; the release says that raw values were seen there.

    Every run is another round, which the ledger beside the plan counts; more rounds than were planned are refused.
    """
    _check_source(values, spark, master, reading)
    unnamed = output is None and not as_json
    output = _release_beside(plan_file) if unnamed else output
    writable(output, plan_file, *([] if values is None else [values]))
    from metricshuffle.cli.console import note, note_rows_are_people, show_progress
    from metricshuffle.cli.extras import require_for_places
    from metricshuffle.planning import Plan
    from metricshuffle.planning.costs.release_ledger import validate_group_name
    from metricshuffle.tasks.task import new_batch_id

    plan, people = load_plan(plan_file), validate_group_name(people)
    task = plan.task if isinstance(plan, Plan) else plan
    budget = choose_ledger(plan_file, task, ledger, output)
    require_for_places(task.query)
    remarks: list[str] = []
    opened = _file(values, task, reading, remarks) if spark is None else _spark_tally(spark, master, task, reading, remarks)
    with opened as tally_values, budget.opened() as account:
        check_other_ledgers(task, account, ledger)
        with show_progress("Running") as progress:
            round = account.round_for(task, people, round)
            if unnamed:
                _check_default_output(output)
            shuffled = task.publish(tally_values(round, progress), batches=[new_batch_id()])
            release = plan.estimate(shuffled, raw_values_seen=True, reading=_reading(reading))
        publish(release, output, as_json, lambda: account.record(task, shuffled, people, raw_values_seen=True))
    note(*remarks)
    if not as_json:
        note_rows_are_people(reading.user_column)


def _reading(options: ReadingOptions) -> Reading:
    """How the options say that values are read, as the release tells it."""
    from metricshuffle.tasks.value_reading import Reading

    return Reading.model_validate({name: getattr(options, name) for name in Reading.model_fields})


def _release_beside(plan_file: Path) -> Path | None:
    """Where a release goes that nobody named a file for: it counts, so that it is not lost. None if the plan comes through a pipe."""
    from metricshuffle.files import written_in_place

    return None if written_in_place(plan_file) else plan_file.with_name("release.json")


def _check_default_output(output: Path | None) -> None:
    """Raise, before a round is spent, if an output that nobody named cannot be written or would replace another release."""
    if output is None:
        raise InputError("the plan comes through a pipe, so there is no place for the release beside it; name one with --output FILE.")
    if output.exists():
        raise InputError(f"{output} is there already, and no release replaces it unasked; name another file with --output FILE.")


def _check_source(values: Path | None, spark: str | None, master: str | None, reading: ReadingOptions) -> None:
    """Raise unless values come from one place, and what is said about them is about that one."""
    if spark is None:
        if values is None:
            raise InputError("name a file of values, or a table with --spark.")
        if master is not None:
            raise InputError("--master says where Spark runs; name a table with --spark, or leave it out.")
        return
    if values is not None:
        raise InputError(f"--spark names where values come from, and so does {values}; leave one of them out.")
    if (reading.delimiter, reading.decimal, reading.no_header) != (None, ".", False):
        raise InputError("--delimiter, --decimal and --no-header are for a file of values; with --spark read it as a table that fits.")


@contextmanager
def _file(values: Path | None, task: Task, reading: ReadingOptions, remarks: list[str]) -> Iterator[Counting]:
    """Adds up what a file holds."""
    from metricshuffle.cli.input_rows import rows_of

    rows = rows_of(values or Path(), task.query, reading)
    yield lambda round, progress: task.counted(rows.parts(progress), round=round)
    remarks.extend(rows.remarks)


@contextmanager
def _spark_tally(words: str, master: str | None, task: Task, reading: ReadingOptions, remarks: list[str]) -> Iterator[Counting]:
    """Adds up what a table on Spark holds."""
    from metricshuffle.cli.console import show_progress
    from metricshuffle.spark.frame_request import FrameRequest
    from metricshuffle.spark.session import open_frame, session

    with show_progress("Starting Spark"):
        session_context = session(master)
        spark_session = session_context.__enter__()
    try:
        frame = open_frame(spark_session, words)

        def counted(round: int, progress: Callable[[str], None]) -> Tally:
            request = FrameRequest.of(
                frame, task, column=reading.column, round=round, as_options=True, warn=remarks.append, user_column=reading.user_column,
                per_user=reading.per_user, coordinates=reading.coordinates, drop_missing=reading.drop_missing,
                drop_outside=reading.drop_outside, clamp=reading.clamp,
            )  # fmt: skip
            return request.tally()

        yield counted
    finally:
        session_context.__exit__(None, None, None)
