"""`metricshuffle randomize`: the people's side."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from metricshuffle.cli.options import (
    Clamp,
    Columns,
    Coordinates,
    Delimiter,
    Json,
    PerUser,
    PlanFile,
    RoundOption,
    UserColumn,
    ValuesFile,
    on_screen,
    task_of,
    writable,
)


def randomize(
    plan_file: PlanFile,
    values: ValuesFile,
    column: Columns,
    output: Annotated[Path, typer.Option("--output", metavar="FILE", help="Where the reports go.")],
    user_column: UserColumn = None,
    per_user: PerUser = None,
    clamp: Clamp = False,
    coordinates: Coordinates = None,
    delimiter: Delimiter = ",",
    round: RoundOption = 1,
    believe: Annotated[bool, typer.Option("--believe", help="Do not recompute the task's guarantees first.")] = False,
    as_json: Json = False,
) -> None:
    """Clients: verify the task and turn every value into a randomized report. Nothing but the reports leaves."""
    writable(output, plan_file, values)
    on_screen(output, as_json=as_json)
    import json

    from metricshuffle.cli.screen import note, rows_are_people, working
    from metricshuffle.cli.values import Rows
    from metricshuffle.randomness import Randomness
    from metricshuffle.wire import write_reports

    task, source = task_of(plan_file), Randomness.system()
    if not believe:
        with working("Verifying"):
            task.verify()
    rows = Rows.of(
        values, task.query, column, coordinates=coordinates, clamp=clamp, delimiter=delimiter, user_column=user_column, per_user=per_user
    )
    with working("Randomizing") as tell:
        count = write_reports(task, output, task.randomized(rows.parts(tell), source, round=round))
    if as_json:
        print(json.dumps({"reports": count, "output": str(output), "plan": task.digest, "round": round}))
        return
    note(f"Wrote {count:,} report{'s' * (count != 1)} of {task.protocol.bits_per_user:,} bits to {output}.")
    rows_are_people(rows.user_column)
