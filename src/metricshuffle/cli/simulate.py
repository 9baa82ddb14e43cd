"""`metricshuffle simulate`: how a plan behaves over many releases."""

from __future__ import annotations

from typing import Annotated

import typer

from metricshuffle.cli.options import Json, PlanFile, planned, whole


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

    from metricshuffle.cli.screen import say, screen, working
    from metricshuffle.numerics.rounding import plain
    from metricshuffle.planning import simulate as simulated
    from metricshuffle.randomness import Randomness

    plan = planned(plan_file)
    with working("Simulating"):
        found = simulated(plan, runs, Randomness.seeded(seed))
    if as_json:
        print(
            json.dumps({name: None if isinstance(value, float) and math.isinf(value) else value for name, value in asdict(found).items()})
        )
        return
    unit = f" {plan.query.unit}" if plan.query.unit else ""
    give = "" if math.isinf(found.standard_error) else f" (give or take {plain(2 * found.standard_error)})"
    say(
        screen(),
        f"{found.runs:,} simulated releases of the {plan.query.kind} with {found.users:,} users "
        f"({plan.choice.protocol}, {plan.choice.encoding}):",
        f"  mean absolute error     {plain(found.mean_absolute_error)}{unit}{give}; expected {plain(found.expected_error)}{unit}",
        f"  root mean square error  {plain(found.root_mean_square_error)}{unit}",
        f"  inside the 95 % interval: {found.coverage_95:.1%} of the runs",
    )
