"""`metricshuffle shuffle`: the shuffler's side."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from metricshuffle.cli.options import Json, PlanFile, on_screen, task_of, writable
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
    remembered_in = (earlier if earlier.exists() else plan_file.with_name("batches.ledger")) if ledger is None else ledger
    writable(output, plan_file, *reports)
    on_screen(output, as_json=as_json)
    if output.resolve() == remembered_in.resolve():
        raise InputError(f"--output {output} is the ledger, which must stay; give another name.")
    import json

    from metricshuffle.cli.screen import note, working
    from metricshuffle.files import uninterrupted, whole_file
    from metricshuffle.wire import Ledger, Shuffle, read_reports

    task = task_of(plan_file)
    remembered = Ledger(remembered_in)
    shuffling = Shuffle(task.protocol, task.digest, remembered)
    with working("Shuffling") as tell:
        for path in reports:
            tell(path.name)
            try:
                for part in read_reports(task, path):
                    shuffling.add(part)
            except PlanError as wrong:
                raise PlanError(str(wrong) if str(path) in str(wrong) else f"{path}: {wrong}") from None
        shuffled = task.publish(task.empty_or(shuffling), batches=shuffling.batches)
        # An interruption waits until both are done: a batch that is in the ledger is also in the output.
        with uninterrupted(), whole_file(output, "wb") as stream:
            stream.write(shuffled.to_bytes())
            remembered.record(task.digest, shuffling.batches)
    if as_json:
        counts = {"reports": shuffled.people, "ignored": shuffling.ignored, "output": str(output), "plan": task.digest}
        print(json.dumps({**counts, "round": shuffled.batch.round}))
        return
    note(f"Wrote {shuffled.people:,} shuffled reports to {output}.")
    if shuffling.ignored:
        note(f"{shuffling.ignored:,} reports were there twice and count once.")
