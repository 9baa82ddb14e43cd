"""`metricshuffle solve`: from the privacy wanted after shuffling to the local metrics that give it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from metricshuffle.cli.options import Json, Users, choice, number, whole
from metricshuffle.errors import InputError

if TYPE_CHECKING:
    from rich.table import Table

    from metricshuffle.accounting.local_metric.solver import LocalMetrics


def solve(
    low: Annotated[float, typer.Option("--low", parser=number, metavar="A", help="Smallest value anybody may hold.")],
    high: Annotated[float, typer.Option("--high", parser=number, metavar="B", help="Largest value anybody may hold.")],
    epsilon: Annotated[
        float, typer.Option("--epsilon", parser=number, metavar="E", help="Total epsilon for two values at --distance, after shuffling.")
    ],
    distance: Annotated[
        float,
        typer.Option(
            "--distance", parser=number, metavar="D",
            help="The distance of --epsilon, in the unit of the values; other pairs get their share, nearer or farther.",
        ),
    ],
    delta: Annotated[float, typer.Option("--delta", parser=number, metavar="X", help="The delta of every pair, above 0.")],
    users: Users,
    step: Annotated[float, typer.Option("--step", parser=number, metavar="S", help="Values are low, low + S, .., high.")] = 1.0,
    grid: Annotated[int, typer.Option("--grid", parser=whole, metavar="M", help="How many largest local epsilons are tried.")] = 16,
    algorithm: Annotated[
        str,
        typer.Option(
            "--algorithm", metavar="1|3|1N",
            help="The bound behind it (docs/theorems.md): 1 Corollary 1; 3 Corollary 2; 1N clone pair, certified, which allows the most.",
        ),
    ] = "1",
    as_json: Json = False,
) -> None:  # fmt: skip
    """Which local metrics of numbers a shuffler turns into the epsilon wanted per distance, for every pair; none dominates another."""
    choice("algorithm", algorithm, ("1", "3", "1N"))
    for name, value in (("step", step), ("epsilon", epsilon), ("distance", distance)):
        if not value > 0:
            raise InputError(f"--{name} must be greater than 0, got {value:g}.")
    if not low < high:
        raise InputError(f"--low must be below --high, got {low:g} and {high:g}.")
    if not 0 < delta < 1:
        raise InputError(f"--delta must lie between 0 and 1, got {delta:g}; with delta 0 a shuffler changes nothing.")
    if not 1 <= grid <= 1000:
        raise InputError(f"--grid must be a whole number from 1 to 1000, got {grid}.")

    import json

    from metricshuffle.accounting.local_metric.solver import ALGORITHMS, LineTarget
    from metricshuffle.cli.screen import note, say, screen, working

    with working("Solving"):
        found = ALGORITHMS[algorithm](LineTarget(low, high, epsilon, distance, step), users, delta, grid)
    if not found.amplifies:
        note("Shuffling buys nothing here: the only local metric is the target itself. Collect from more people, or ask for less.")
    if as_json:
        solutions = [
            {
                "diameter": one.diameter,
                "local_epsilon_per_unit": one.per_unit,
                "amplified_max_excess": one.max_excess,
                "closed_diameter": one.closed_diameter,
            }
            for one in found.solutions
        ]
        print(json.dumps({"low": found.low, "high": found.high, "solutions": solutions}))
        return
    console = screen()
    say(
        console,
        f"Local metrics that {users:,} shuffled reports turn into at most {epsilon:g} * |x-y| / {distance:g} at delta {delta:g}, "
        f"for every pair of {low:g}, {low + step:g}, .., {high:g} (Algorithm {algorithm}; largest local epsilon from {found.low:.6g} "
        f"to {found.high:.6g}):",
        "",
    )
    console.print(_table(found))
    say(
        console,
        "",
        "excess: the amplified epsilon minus the target at the worst pair, never above 0. closed: shortened along shortest paths until the "
        "triangle inequality holds, and accounted again. Build the randomizer on the closed metric; its excess is that of the default "
        "bound, and room below 0 is left unused. Rows in brackets are dominated once all are closed.",
    )


def _table(found: LocalMetrics) -> Table:
    """One row a solution: as the algorithm found it, and closed by shortest paths and accounted again."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, padding=(0, 2, 0, 0), pad_edge=False, show_edge=False)
    for heading in (
        "largest\nlocal\nepsilon",
        "excess\n(algorithm)",
        "closed:\nlargest",
        "closed:\none step",
        "closed:\nper unit",
        "closed:\nexcess",
    ):
        table.add_column(heading, justify="right", no_wrap=True)
    best = found.best_closed
    for one in found.solutions:
        name = f"{one.diameter:.6g}" if one in best else f"({one.diameter:.6g})"
        numbers = (one.max_excess, one.closed_diameter, float(one.closed[0]), one.per_unit, one.closed_max_excess)
        table.add_row(*map(Text, (name, *(f"{value:.4g}" for value in numbers))), style=None if one in best else "dim")
    return table
