"""`metricshuffle estimate`: the analyst's side."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from metricshuffle.cli.options import Json, PlanFile, planned, writable

if TYPE_CHECKING:
    from metricshuffle.wire.release import Release

ReleaseFile = Annotated[Path | None, typer.Option("--output", metavar="FILE", help="Write the release as JSON; - is standard output.")]


def estimate(
    plan_file: PlanFile,
    shuffled: Annotated[Path, typer.Argument(metavar="SHUFFLED", help="The file that `metricshuffle shuffle` wrote.")],
    output: ReleaseFile = None,
    as_json: Json = False,
) -> None:
    """Analyst: the answer with its interval, and what is promised if the shuffler is honest and if it is not."""
    writable(output, plan_file, shuffled)
    from metricshuffle.cli.screen import working
    from metricshuffle.errors import PlanError
    from metricshuffle.files import read_bytes
    from metricshuffle.planning import Plan

    plan = planned(plan_file)
    task = plan.task if isinstance(plan, Plan) else plan
    with working("Estimating"):
        try:
            batch = task.read_shuffled(read_bytes(shuffled))
        except PlanError as wrong:
            raise PlanError(f"cannot use {shuffled}: {wrong}") from None
        release = plan.estimate(batch)
    publish(release, output, as_json)


def publish(release: Release, output: Path | None, as_json: bool) -> None:
    """Write and show a release; what is written to standard output is all that stands there."""
    from metricshuffle.cli.screen import note, say, screen
    from metricshuffle.files import STANDARD_OUTPUT

    to_screen = output is not None and str(output) == STANDARD_OUTPUT
    if output is not None and not (as_json and to_screen):
        release.save(str(output))
    if as_json:
        print(release.to_json())
        return
    if to_screen:
        note(str(release))
        return
    say(screen(), str(release))
    if output is not None:
        note(f"Wrote {output}.")
