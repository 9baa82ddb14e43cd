"""`metricshuffle shuffle`: the shuffler's side."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from metricshuffle.cli.shared_options import Json, PlanFile, is_standard_output, load_task, writable
from metricshuffle.errors import InputError, PlanError


def shuffle(
    plan_file: PlanFile,
    reports: Annotated[list[Path], typer.Argument(metavar="REPORTS...", help="One or more files that `metricshuffle randomize` wrote.")],
    output: Annotated[Path, typer.Option("--output", metavar="FILE", help="Where the shuffled batch goes.")],
    ledger: Annotated[
        Path | None,
        typer.Option(
            "--ledger", metavar="FILE",
            help="Remembers which batches were let go, so that none is twice; batches.ledger beside PLAN if left out.",
        ),
    ] = None,
    as_json: Json = False,
) -> None:  # fmt: skip
    """Shuffler: forget who sent what. A batch below the plan's minimum, and reports that were let go before, are refused."""
    from metricshuffle.files import written_in_place

    if ledger is None and written_in_place(plan_file):
        raise InputError("the plan comes through a pipe, so there is no place for a ledger beside it; name one with --ledger FILE.")
    earlier = plan_file.with_name(f"{plan_file.name}.ledger")  # as earlier versions named it
    ledger_path = (earlier if earlier.exists() else plan_file.with_name("batches.ledger")) if ledger is None else ledger
    writable(output, plan_file, *reports)
    is_standard_output(output, as_json=as_json)
    if output.resolve() == ledger_path.resolve():
        raise InputError(f"--output {output} is the ledger, which must stay; give another name.")
    import json

    from metricshuffle.cli.console import note, show_progress
    from metricshuffle.files import atomic_file, deferred_interrupts
    from metricshuffle.tasks import Ledger, Shuffle, read_reports

    task = load_task(plan_file)
    shuffle_ledger = Ledger(ledger_path)
    shuffling = Shuffle(task.protocol, task.digest, shuffle_ledger)
    with show_progress("Shuffling") as progress:
        for path in reports:
            progress(path.name)
            try:
                for part in read_reports(task, path):
                    shuffling.add(part)
            except PlanError as error:
                raise PlanError(str(error) if str(path) in str(error) else f"{path}: {error}") from None
        shuffled = task.publish(task.empty_or(shuffling), batches=shuffling.batches)
        # An interruption waits until both are done: a batch that is in the ledger is also in the output.
        with deferred_interrupts(), atomic_file(output, "wb") as stream:
            stream.write(shuffled.to_bytes())
            shuffle_ledger.record(task.digest, shuffling.batches)
    if as_json:
        counts = {"reports": shuffled.people, "ignored": shuffling.ignored, "output": str(output), "plan": task.digest}
        print(json.dumps({**counts, "round": shuffled.batch.round}))
        return
    note(f"Wrote {shuffled.people:,} shuffled reports to {output}.")
    if shuffling.ignored:
        note(f"{shuffling.ignored:,} reports were there twice and count once.")
