"""`metricshuffle simulate`: errors of a plan over many releases."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from metricshuffle.cli.shared_options import Json, PlanFile, load_plan, load_task, whole_option
from metricshuffle.errors import InputError, argument

if TYPE_CHECKING:
    from metricshuffle.planning.lying_participants import SimulatedAttack
    from metricshuffle.queries.query import Query


def simulate(
    plan_file: PlanFile,
    runs: Annotated[int, whole_option("--runs", "N", "Number of releases to simulate.")] = 1000,
    seed: Annotated[
        int,
        whole_option(
            "--seed", "S", "Seed of the random numbers; the same seed gives the same errors."
        ),
    ] = 0,
    liars: Annotated[
        str | None,
        typer.Option(
            "--liars",
            metavar="M|P%",
            help=(
                "Also simulate releases of real reports in which this many participants lie, a "
                "count or a percentage (1%), by the worst attack known."
            ),
        ),
    ] = None,
    all_candidates: Annotated[
        bool,
        typer.Option(
            "--all-candidates",
            help="With --liars: attack every candidate of the plan, side by side.",
        ),
    ] = False,
    as_json: Json = False,
) -> None:
    """Simulate many releases of a plan and compare their errors with the expected error.

    It needs no data, for any number of users.
    """
    import json
    import math
    from dataclasses import asdict

    from metricshuffle.cli.console import say, screen, show_progress
    from metricshuffle.cli.extras import require_for_simulation
    from metricshuffle.planning import simulate as simulated
    from metricshuffle.planning.plan_text import error_text, expected_error_text
    from metricshuffle.randomness import Randomness

    if all_candidates:
        _simulate_candidates(plan_file, runs, seed, liars, as_json)
        return
    task = load_task(plan_file)
    require_for_simulation(task.query)
    with show_progress("Simulating"):
        result = simulated(task, runs, Randomness.seeded(seed), liars=liars)
    if as_json:
        print(
            json.dumps(
                {
                    name: None if isinstance(value, float) and math.isinf(value) else value
                    for name, value in asdict(result).items()
                }
            )
        )
        return
    query = task.query
    protocol = task.protocol
    encoding = f", {protocol.encoding}" if protocol.encoding else ""
    give = (
        ""
        if math.isinf(result.standard_error)
        else f" (give or take {error_text(query, 2 * result.standard_error)})"
    )
    mean = error_text(query, result.mean_absolute_error)
    expected = expected_error_text(query, result.expected_error)
    whose = " for items spread evenly" if query.shared and query.items is not None else ""
    covered = result.covered
    if result.coverage_95 is not None and not result.smoothed:
        covered = (
            f"inside the 95 % interval: {result.coverage_95:.1%} of the "
            f"{'shares' if query.shared else 'runs'}"
        )
    say(
        screen(),
        f"{result.runs:,} simulated releases of the {query.title} with {result.users:,} "
        f"users ({protocol.name}{encoding}):",
        f"  mean absolute error     {mean}{give}; expected {expected}{whose}",
        f"  root mean square error  {error_text(query, result.root_mean_square_error)}",
        f"  {covered}",
        *([] if result.attack is None else _attack_lines(query, result.attack)),
    )


def _simulate_candidates(
    plan_file: Path, runs: int, seed: int, liars: str | None, as_json: bool
) -> None:
    """Print the errors of all candidates without and with liars."""
    import json
    from dataclasses import asdict

    from metricshuffle.cli.console import say, screen, show_progress
    from metricshuffle.cli.extras import require_for_simulation
    from metricshuffle.cli.table_layout import Column, Line, TableLayout
    from metricshuffle.planning import Plan
    from metricshuffle.planning.candidate_attacks import attack_candidates
    from metricshuffle.planning.plan_text import error_text, protocol_label
    from metricshuffle.protocols.damage import liar_count
    from metricshuffle.randomness import Randomness

    plan = load_plan(plan_file)
    if not isinstance(plan, Plan) or liars is None:
        raise InputError(
            f"{argument('all_candidates', True)} attacks all candidates of a plan with liars.",
            field="all_candidates",
            remedy=f"Give a plan, not a task, and {argument('liars')}.",
        )
    require_for_simulation(plan.query)
    lying = liar_count(liars, plan.users)
    with show_progress("Simulating") as progress:
        rows = []
        for row in attack_candidates(plan, liars, runs, Randomness.seeded(seed)):
            rows.append(row)
            progress(row.offer.protocol)
    if as_json:
        names = ("protocol", "encoding", "trusted")
        print(
            json.dumps(
                [
                    {name: getattr(row.offer, name) for name in names}
                    | {"attack": None if row.attack is None else asdict(row.attack)}
                    | {"reason": row.reason}
                    for row in rows
                ]
            )
        )
        return
    columns = (
        Column("protocol", wraps=True),
        Column("encoding"),
        Column("trusts"),
        Column("error\nwithout\nliars", number=True),
        Column("error\nwith\nliars", number=True),
        Column("the answer\nmoved by", number=True),
        Column("liars\nmove it by\nat most", number=True),
    )
    lines = []
    for row in rows:
        attack = row.attack
        cells = (
            ("", "", "", "")
            if attack is None
            else (
                error_text(plan.query, attack.error_without),
                error_text(plan.query, attack.error_with),
                error_text(plan.query, attack.moved),
                attack.damage.text(plan.query, attack.liars),
            )
        )
        offer = row.offer
        lines.append(Line((protocol_label(offer), offer.encoding or "", offer.trusted, *cells), ""))
    console = screen()
    console.print(TableLayout(columns, tuple(lines)))
    say(
        console,
        f"Releases of real reports of {plan.users:,} people, with {_liars_text(lying)} and the "
        "worst attack known.",
        *(f"{protocol_label(row.offer)}: {row.reason}." for row in rows if row.attack is None),
    )


def _attack_lines(query: Query, attack: SimulatedAttack) -> list[str]:
    """Lines about the errors without and with liars, and the most that liars can do."""
    from metricshuffle.planning.plan_text import error_text

    releases = f"{attack.runs:,} release{'s' * (attack.runs != 1)}"
    return [
        f"{releases} of real reports, with the worst attack known:",
        f"  error without liars     {error_text(query, attack.error_without)}",
        f"  error with {_liars_text(attack.liars):<12} {error_text(query, attack.error_with)}",
        f"  the answer moved by     {error_text(query, attack.moved)}",
        f"  {attack.damage.sentence(query, attack.liars)}",
    ]


def _liars_text(liars: int) -> str:
    return "1 liar" if liars == 1 else f"{liars:,} liars"
