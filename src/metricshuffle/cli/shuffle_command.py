"""`metricshuffle shuffle`: the shuffler mixes files of reports."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from metricshuffle.cli.shared_options import Json, PlanFile, is_standard_output, load_task, writable
from metricshuffle.errors import InputError, PlanError

LEDGER_NAME = "batches.ledger"


def shuffle(
    plan_file: PlanFile,
    reports: Annotated[
        list[Path],
        typer.Argument(
            metavar="REPORTS...", help="One or more files that `metricshuffle randomize` wrote."
        ),
    ],
    output: Annotated[
        Path, typer.Option("--output", metavar="FILE", help="File for the shuffled batch.")
    ],
    ledger: Annotated[
        Path | None,
        typer.Option(
            "--ledger",
            metavar="FILE",
            help=(
                "File that records released batches, so that none is released twice; "
                "batches.ledger in the folder of PLAN if left out."
            ),
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Shuffler: mix reports and forget who sent them.

    Batches with fewer reports than the plan's minimum, and reports that were already released, are
    rejected. Where the shuffler adds dummies, a ledger in the folder of the reports records them,
    too: publishing a batch again, with other dummies, would remove the noise.
    """
    from metricshuffle.files import written_in_place

    if ledger is None and written_in_place(plan_file):
        raise InputError(
            "the plan comes through a pipe, so there is no place for a ledger beside it; "
            "name one with --ledger FILE."
        )
    earlier = plan_file.with_name(f"{plan_file.name}.ledger")  # name in earlier versions
    ledger_path = (
        (earlier if earlier.exists() else plan_file.with_name(LEDGER_NAME))
        if ledger is None
        else ledger
    )
    writable(output, plan_file, *reports)
    is_standard_output(output, as_json=as_json)
    if output.resolve() == ledger_path.resolve():
        raise InputError(f"--output {output} is the ledger, which must stay; give another name.")
    import json

    from metricshuffle.cli.console import note, show_progress
    from metricshuffle.files import atomic_file, deferred_interrupts
    from metricshuffle.tasks import Ledger, Shuffle, read_reports

    task = load_task(plan_file)
    # Naming another ledger must not make it possible to draw new noise for a batch: averaging many
    # publications would remove the noise. So the folders of the reports have ledgers, too.
    folders = [path.parent for path in reports if not written_in_place(path)]
    beside = [Ledger(folder / LEDGER_NAME) for folder in folders]
    shuffling = Shuffle(
        task.protocol,
        task.digest,
        Ledger(ledger_path),
        more_ledgers=tuple(beside) if task.protocol.adds_noise else (),
    )
    with show_progress("Shuffling") as progress:
        for path in reports:
            progress(path.name)
            try:
                for part in read_reports(task, path):
                    shuffling.add(part)
            except PlanError as error:
                raise PlanError(
                    str(error) if str(path) in str(error) else f"{path}: {error}"
                ) from None
        shuffled = task.publish(task.empty_or(shuffling), batches=shuffling.batches)
        for each in shuffling.ledgers:
            each.check_writable()
        # Interrupts wait until both files are written: a batch in the ledger is also in the output.
        with deferred_interrupts(), atomic_file(output, "wb") as stream:
            stream.write(shuffled.to_bytes())
            shuffling.record()
    if as_json:
        counts = {
            "reports": shuffled.people,
            "ignored": shuffling.ignored,
            "output": str(output),
            "plan": task.digest,
        }
        print(json.dumps({**counts, "round": shuffled.batch.round}))
        return
    note(f"Wrote {shuffled.people:,} shuffled reports to {output}.")
    if shuffling.ignored:
        note(f"{shuffling.ignored:,} reports occurred twice and count once.")
