"""`metricshuffle run`: all roles on one machine, or on one cluster."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from metricshuffle.cli.budget_options import (
    CountedRound,
    LedgerFile,
    People,
    check_other_ledgers,
    choose_ledger,
)
from metricshuffle.cli.estimate_command import PublisherNoise, publish
from metricshuffle.cli.shared_options import (
    Json,
    PlanFile,
    ReadingOptions,
    load_plan,
    with_reading_options,
    writable,
)
from metricshuffle.errors import InputError

if TYPE_CHECKING:
    from metricshuffle.protocols.tally import Tally
    from metricshuffle.tasks.task import Task

Counting = Callable[[int, Callable[[str], None]], "Tally"]
"""Tallies all values for a round; the second argument is called with progress."""
RunRelease = Annotated[
    Path | None,
    typer.Option(
        "--output",
        metavar="FILE",
        help=(
            "Write the release to this file as JSON; - is standard output. If left out (and "
            "without --json): release.json in the folder of PLAN."
        ),
    ),
]
Values = Annotated[
    Path | None,
    typer.Argument(
        metavar="[VALUES]",
        help=(
            "CSV file with a header line (may be gzipped), Parquet file or pipe; - reads "
            "standard input. Not with --spark."
        ),
    ),
]
Spark = Annotated[
    str | None,
    typer.Option(
        "--spark",
        metavar="TABLE",
        help=(
            "Run on Spark instead of reading VALUES: a table, a query (SELECT ...), or "
            "files like parquet:/data/people."
        ),
    ),
]
Master = Annotated[
    str | None,
    typer.Option(
        "--master",
        metavar="URL",
        help=(
            "Address of Spark: local[4], spark://host:7077, yarn, or sc://host (Connect); "
            "from the environment if left out."
        ),
    ),
]


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
    publisher_noise: PublisherNoise = False,
    as_json: Json = False,
) -> None:
    """Randomize, shuffle and estimate on one machine, or on Spark.

    The release states that raw values were seen there. Every run is one more round, counted in the
    ledger in the folder of the plan; more rounds than planned are rejected.
    """
    _check_source(values, spark, master, reading)
    unnamed = output is None and not as_json
    output = _release_beside(plan_file) if unnamed else output
    writable(output, plan_file, *([] if values is None else [values]))
    from metricshuffle.cli.console import note, note_rows_are_people, show_progress
    from metricshuffle.cli.extras import require_for_places
    from metricshuffle.cli.input_rows import reading_arguments
    from metricshuffle.data.value_reading import Reading
    from metricshuffle.planning import Plan
    from metricshuffle.planning.costs.release_ledger import validate_group_name
    from metricshuffle.planning.one_party_release import release_round

    plan = load_plan(plan_file)
    people = validate_group_name(people)
    task = plan.task if isinstance(plan, Plan) else plan
    budget = choose_ledger(plan_file, task, ledger, output)
    require_for_places(task.query)
    remarks: list[str] = []
    opened = (
        _file(values, task, reading, remarks)
        if spark is None
        else _spark_tally(spark, master, task, reading, remarks)
    )
    with opened as tally_values, budget.opened() as account:
        check_other_ledgers(task, account, ledger)
        with show_progress("Running") as progress:

            def tally_round(number: int) -> Tally:
                if unnamed:
                    _check_default_output(output)
                return tally_values(number, progress)

            summary = Reading.of(reading_arguments(reading))
            release = release_round(
                plan,
                tally_round,
                account,
                reading=summary,
                round=round,
                group=people,
                publisher_noise=publisher_noise,
            )
        publish(
            release,
            output,
            as_json,
            lambda: account.record(task, release.shuffled, people, raw_values_seen=True),
        )
    note(*remarks)
    if not as_json:
        note_rows_are_people(reading.user_column)


def _release_beside(plan_file: Path) -> Path | None:
    """Default path of the release, so that no release is lost; None if the plan is from a pipe."""
    from metricshuffle.files import written_in_place

    return None if written_in_place(plan_file) else plan_file.with_name("release.json")


def _check_default_output(output: Path | None) -> None:
    """Raise, before a round is used, if the default output is missing or already exists."""
    if output is None:
        raise InputError(
            "the plan comes through a pipe, so there is no place for the release beside "
            "it; name one with --output FILE."
        )
    if output.exists():
        raise InputError(
            f"{output} exists, and a release is not replaced by default; name another file "
            "with --output FILE."
        )


def _check_source(
    values: Path | None, spark: str | None, master: str | None, reading: ReadingOptions
) -> None:
    """Raise unless values come from one place and the reading options fit it."""
    if spark is None:
        if values is None:
            raise InputError("name a file of values, or a table with --spark.")
        if master is not None:
            raise InputError(
                "--master says where Spark runs; name a table with --spark, or leave it out."
            )
        return
    if values is not None:
        raise InputError(
            f"--spark and {values} both say where values come from; leave one of them out."
        )
    if (reading.delimiter, reading.decimal, reading.no_header) != (None, ".", False):
        raise InputError(
            "--delimiter, --decimal and --no-header are for a file of values; with --spark "
            "read it as a table that fits."
        )


@contextmanager
def _file(
    values: Path | None, task: Task, reading: ReadingOptions, remarks: list[str]
) -> Iterator[Counting]:
    """Tally the values of a file."""
    from metricshuffle.cli.input_rows import rows_of

    rows = rows_of(values or Path(), task.query, reading)
    yield lambda round, progress: task.counted(rows.parts(progress), round=round)
    remarks.extend(rows.remarks)


@contextmanager
def _spark_tally(
    words: str, master: str | None, task: Task, reading: ReadingOptions, remarks: list[str]
) -> Iterator[Counting]:
    """Tally the values of a table on Spark."""
    from metricshuffle.cli.console import show_progress
    from metricshuffle.cli.input_rows import reading_arguments
    from metricshuffle.spark.frame_request import FrameRequest
    from metricshuffle.spark.session import open_frame, session

    with show_progress("Starting Spark"):
        session_context = session(master)
        spark_session = session_context.__enter__()
    try:
        frame = open_frame(spark_session, words)

        def counted(round: int, progress: Callable[[str], None]) -> Tally:
            request = FrameRequest.of(
                frame, task, round=round, warn=remarks.append, **reading_arguments(reading)
            )
            return request.tally()

        yield counted
    finally:
        session_context.__exit__(None, None, None)
