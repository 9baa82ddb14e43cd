"""`metricshuffle shuffle`: the shuffler's side."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from metricshuffle.cli.options import Json, PlanFile, planned, writable
from metricshuffle.errors import InputError


def shuffle(
    plan_file: PlanFile,
    reports: Annotated[list[Path], typer.Argument(metavar="REPORTS...", help="One or more files that `metricshuffle randomize` wrote.")],
    output: Annotated[Path, typer.Option("--output", metavar="FILE", help="Where the shuffled batch goes.")],
    as_json: Json = False,
) -> None:
    """Shuffler: forget who sent what. A batch below the plan's minimum is refused."""
    writable(output, plan_file, *reports)
    for index, path in enumerate(reports):
        if any(path.exists() and other.exists() and path.samefile(other) for other in reports[:index]):
            raise InputError(f"REPORTS holds {path} twice; nobody's report may count twice, so name each file once.")
    import json
    from itertools import chain

    from metricshuffle.cli.screen import note, working
    from metricshuffle.wire.reports import read_reports, write_shuffled

    plan = planned(plan_file)
    with working("Shuffling"):
        shuffled = plan.shuffle(chain.from_iterable(read_reports(plan, path) for path in reports))
        write_shuffled(output, shuffled)
    if as_json:
        print(json.dumps({"reports": shuffled.reports, "output": str(output), "plan": plan.digest}))
    else:
        note(f"Wrote {shuffled.reports:,} shuffled reports to {output}.")
