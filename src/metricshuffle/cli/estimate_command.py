"""`metricshuffle estimate`: the analyst estimates the answer from shuffled reports."""

from __future__ import annotations

import os
from collections.abc import Callable
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
from metricshuffle.cli.shared_options import Json, PlanFile, load_plan, writable

if TYPE_CHECKING:
    from metricshuffle.tasks.release import Release

ReleaseFile = Annotated[
    Path | None,
    typer.Option(
        "--output",
        metavar="FILE",
        help="Write the release to this file as JSON; - is standard output.",
    ),
]
PublisherNoise = Annotated[
    bool,
    typer.Option(
        "--publisher-noise",
        help=(
            "Noise by the shuffler: add as many dummies again, so that the shuffler cannot "
            "subtract its own from what is published. Errors are up to 1.42 times larger."
        ),
    ),
]


def estimate(
    plan_file: PlanFile,
    shuffled: Annotated[
        Path,
        typer.Argument(metavar="SHUFFLED", help="File that `metricshuffle shuffle` wrote."),
    ],
    output: ReleaseFile = None,
    ledger: LedgerFile = None,
    round: CountedRound = None,
    people: People = "everybody",
    publisher_noise: PublisherNoise = False,
    as_json: Json = False,
) -> None:
    """Analyst: estimate the answer with its interval, and print both guarantees.

    The guarantees are for an honest and for a colluding shuffler. The release is recorded in the
    ledger in the folder of the plan. A round or reports that were already released are rejected;
    estimating the same file again gives the same release. With --publisher-noise the shuffled file
    must stay secret, and is estimated once.
    """
    writable(output, plan_file, shuffled)
    from metricshuffle.cli.console import show_progress
    from metricshuffle.cli.extras import require_for_places
    from metricshuffle.errors import InputError, PlanError
    from metricshuffle.files import read_bytes
    from metricshuffle.planning import Plan
    from metricshuffle.planning.costs.release_ledger import validate_group_name

    plan = load_plan(plan_file)
    people = validate_group_name(people)
    task = plan.task if isinstance(plan, Plan) else plan
    budget = choose_ledger(plan_file, task, ledger, output)
    require_for_places(task.query)
    with budget.opened() as account:
        with show_progress("Estimating"):
            try:
                batch = task.read_shuffled(read_bytes(shuffled))
            except PlanError as error:
                raise PlanError(f"cannot use {shuffled}: {error}") from None
            if round not in (None, batch.batch.round):
                raise InputError(
                    f"the reports in {shuffled} were made for round {batch.batch.round}, "
                    f"and not for --round {round}."
                )
            check_other_ledgers(task, account, ledger, batch)
            if publisher_noise:
                batch = task.with_publisher_noise(batch)
            is_recorded = account.noted(task, batch, people)
            release = plan.estimate(batch)
        publish(release, output, as_json, lambda: account.record(task, batch, people))
    if is_recorded and not as_json:
        from metricshuffle.cli.console import note

        note(f"{budget.path} has this release already; the same answer again costs nothing.")


def publish(
    release: Release, output: Path | None, as_json: bool, record: Callable[[], None]
) -> None:
    """Write, record and print a release; standard output contains either the release or its text.

    An interrupt is deferred until the release is written and recorded. The record comes before the
    file appears and before anything is printed: a crash in between leaves a release that counts and
    was not seen, never one that was seen and does not count.
    """
    from metricshuffle.cli.console import note, say, screen
    from metricshuffle.errors import InputError
    from metricshuffle.files import (
        STANDARD_OUTPUT,
        atomic_file,
        deferred_interrupts,
        written_in_place,
    )

    to_screen = output is not None and str(output) == STANDARD_OUTPUT
    done = False
    try:
        with deferred_interrupts():
            if output is None or written_in_place(output):
                record()
            else:
                with atomic_file(output) as stream:
                    stream.write(release.to_json() + "\n")
                    stream.flush()
                    os.fsync(stream.fileno())  # fails on a full disk before the release counts
                    record()
            done = True
    except KeyboardInterrupt:
        if not done:
            raise
        note("The interruption came too late: the release is written and counts.")
    if output is not None and written_in_place(output) and not (as_json and to_screen):
        try:
            release.save(str(output))
        except InputError as error:
            raise InputError(
                f"{error} The release is recorded and counts; a shuffled file can be estimated "
                "again without cost."
            ) from None
    if as_json:
        print(release.to_json())
        return
    if to_screen:
        note(str(release))
        return
    say(screen(), str(release))
    if output is not None:
        note(f"Wrote {output}.")
    else:  # it counts, so the command cannot simply be run again
        note(
            "Nothing was saved, and this release counts; --output FILE keeps it for report and map."
        )
