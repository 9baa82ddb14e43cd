"""`metricshuffle simulate`: how a plan behaves over many releases."""

from __future__ import annotations

from typing import Annotated

import typer

from metricshuffle.cli.shared_options import Json, PlanFile, load_task, whole


def simulate(
    plan_file: PlanFile,
    runs: Annotated[int, typer.Option("--runs", parser=whole, metavar="N", help="How many releases to simulate.")] = 1000,
    seed: Annotated[
        int, typer.Option("--seed", parser=whole, metavar="S", help="Of the random numbers: the same seed gives the same errors.")
    ] = 0,
    as_json: Json = False,
) -> None:
    """Errors of many simulated releases beside the expected one; no data is needed, whatever the number of users."""
    import json
    import math
    from dataclasses import asdict

    from metricshuffle.cli.console import say, screen, show_progress
    from metricshuffle.cli.extras import require_for_simulation
    from metricshuffle.planning import simulate as simulated
    from metricshuffle.planning.plan_text import error_text, expected_error_text
    from metricshuffle.randomness import Randomness

    task = load_task(plan_file)
    require_for_simulation(task.query)
    with show_progress("Simulating"):
        result = simulated(task, runs, Randomness.seeded(seed))
    if as_json:
        print(
            json.dumps({name: None if isinstance(value, float) and math.isinf(value) else value for name, value in asdict(result).items()})
        )
        return
    query, protocol = task.query, task.protocol
    encoding = f", {protocol.encoding}" if protocol.encoding else ""
    give = "" if math.isinf(result.standard_error) else f" (give or take {error_text(query, 2 * result.standard_error)})"
    mean, expected = error_text(query, result.mean_absolute_error), expected_error_text(query, result.expected_error)
    whose = " for items spread evenly" if query.shared and query.items is not None else ""
    covered = result.covered
    if result.coverage_95 is not None and not result.smoothed:
        covered = f"inside the 95 % interval: {result.coverage_95:.1%} of the {'shares' if query.shared else 'runs'}"
    say(
        screen(),
        f"{result.runs:,} simulated releases of the {query.title} with {result.users:,} users ({protocol.name}{encoding}):",
        f"  mean absolute error     {mean}{give}; expected {expected}{whose}",
        f"  root mean square error  {error_text(query, result.root_mean_square_error)}",
        f"  {covered}",
    )
