"""`metricshuffle randomize`: the people's side."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from metricshuffle.cli.options import Clamp, Columns, Coordinates, Delimiter, Json, PlanFile, ValuesFile, planned, writable


def randomize(
    plan_file: PlanFile,
    values: ValuesFile,
    column: Columns,
    output: Annotated[Path, typer.Option("--output", metavar="FILE", help="Where the reports go.")],
    clamp: Clamp = False,
    coordinates: Coordinates = "cells",
    delimiter: Delimiter = ",",
    as_json: Json = False,
) -> None:
    """Clients: turn every value into a randomized report. Nothing but the reports leaves; values are read in chunks."""
    writable(output, plan_file, values)
    import json

    from metricshuffle.cli.columns import open_columns
    from metricshuffle.cli.screen import note, working
    from metricshuffle.cli.values import reports_of
    from metricshuffle.wire.reports import write_reports

    plan = planned(plan_file)
    source = open_columns(values, column, delimiter)
    with working("Randomizing") as tell:
        count = write_reports(plan, output, reports_of(plan, source, clamp=clamp, coordinates=coordinates, tell=tell))
    if as_json:
        print(json.dumps({"reports": count, "output": str(output), "plan": plan.digest}))
    else:
        note(f"Wrote {count:,} reports of {plan.choice.bits_per_user:,} bits to {output}.")
