"""`metricshuffle randomize`: clients turn values into randomized reports."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from metricshuffle.cli.budget_options import CountedRound
from metricshuffle.cli.shared_options import (
    Json,
    PlanFile,
    ReadingOptions,
    ValuesFile,
    is_standard_output,
    load_task,
    verify_once,
    with_reading_options,
    writable,
)


@with_reading_options
def randomize(
    plan_file: PlanFile,
    values: ValuesFile,
    reading: ReadingOptions,
    output: Annotated[
        Path, typer.Option("--output", metavar="FILE", help="File for the randomized reports.")
    ],
    round: CountedRound = None,
    believe: Annotated[
        bool, typer.Option("--believe", help="Skip the recomputation of the task's guarantees.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Clients: verify the task and turn every value into a randomized report.

    Only the reports are written, not the values.
    """
    writable(output, plan_file, values)
    is_standard_output(output, as_json=as_json)
    import json

    from metricshuffle.cli.console import note, note_rows_are_people, show_progress
    from metricshuffle.cli.extras import require_for_places
    from metricshuffle.cli.input_rows import rows_of
    from metricshuffle.files import written_in_place
    from metricshuffle.planning.costs.release_ledger import Budget
    from metricshuffle.randomness import Randomness
    from metricshuffle.tasks import write_reports

    task = load_task(plan_file, verified=False)
    source = Randomness.system()
    require_for_places(task.query)
    # Clients have no ledger and take the first round; if an analyst's ledger is next to the plan,
    # it determines the next round.
    if round is None:
        round = (
            1 if written_in_place(plan_file) else Budget.beside(plan_file, task).next_round(task)
        )
    rows = rows_of(values, task.query, reading)
    if not believe:
        verify_once(plan_file, task)
    with show_progress("Randomizing") as progress:
        count = write_reports(
            task, output, task.randomized(rows.parts(progress), source, round=round)
        )
    note(*rows.remarks)
    if as_json:
        outside = {
            "clamped": rows.seen.clamped + rows.seen.clamped_people,
            "averaged_from_outside": rows.seen.averaged,
        }
        document = {"reports": count, "output": str(output), "plan": task.digest, "round": round}
        print(
            json.dumps({**document, **{name: number for name, number in outside.items() if number}})
        )
        return
    which = "" if task.rounds == 1 else f", for round {round} of {task.rounds:,}"
    note(
        f"Wrote {count:,} report{'s' * (count != 1)} of {task.protocol.bits_per_user:,} "
        f"bits to {output}{which}."
    )
    note_rows_are_people(rows.user_column)
