"""`metricshuffle estimate`: the analyst's side."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from metricshuffle.cli.options import Json, PlanFile, planned, writable

if TYPE_CHECKING:
    from metricshuffle.planning import Release
    from metricshuffle.planning.user_release import UserRelease

ReleaseFile = Annotated[Path | None, typer.Option("--output", metavar="FILE", help="Write the release as JSON.")]


def estimate(
    plan_file: PlanFile,
    shuffled: Annotated[Path, typer.Argument(metavar="SHUFFLED", help="The file that `metricshuffle shuffle` wrote.")],
    output: ReleaseFile = None,
    as_json: Json = False,
) -> None:
    """Analyst: the answer with its interval, and what is promised if the shuffler is honest and if it is not."""
    writable(output, plan_file, shuffled)
    from metricshuffle.cli.screen import working
    from metricshuffle.wire.reports import read_shuffled

    plan = planned(plan_file)
    with working("Estimating"):
        release = plan.estimate(read_shuffled(plan, shuffled))
    publish(release, output, as_json)


def publish(release: Release | UserRelease, output: Path | None, as_json: bool) -> None:
    """Write and show a release."""
    from metricshuffle.cli.screen import note, say, screen

    if output is not None:
        release.save(str(output))
    if as_json:
        print(release.to_json())
        return
    say(screen(), str(release))
    if output is not None:
        note(f"Wrote {output}.")
