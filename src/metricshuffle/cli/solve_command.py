"""`metricshuffle solve`: from the privacy wanted after shuffling to a local metric that gives it, and a randomizer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from metricshuffle.cli import solve_options as option
from metricshuffle.cli.shared_options import Honest, Json, Users, choice, is_standard_output, writable
from metricshuffle.errors import InputError

if TYPE_CHECKING:
    from metricshuffle.cli.table_layout import TableLayout
    from metricshuffle.solving.solution import SolvedMetric


def solve(
    epsilon: option.Epsilon,
    distance: option.Distance,
    delta: option.Delta,
    users: Users,
    honest: Honest = None,
    low: option.Low = None,
    high: option.High = None,
    step: option.Step = None,
    around: option.Around = False,
    width: option.Width = None,
    height: option.Height = None,
    cell: option.Cell = None,
    tree: option.TreeFile = None,
    distances: option.Distances = None,
    algorithm: option.AlgorithmOption = "all",
    least: option.LeastOption = "shares",
    grid: option.GridOption = 16,
    save: option.Save = None,
    as_json: Json = False,
) -> None:
    """Which local metric people may use so that shuffled reports keep an epsilon per distance for every pair, and a randomizer for it."""
    choice("algorithm", algorithm, ("all", "1", "3", "1N"))
    choice("least", least, ("shares", "report"))
    for name, value in (("epsilon", epsilon), ("distance", distance)):
        if not value > 0:
            raise InputError(f"--{name} must be greater than 0, got {value:g}.")
    if not 0 < delta < 1:
        raise InputError(f"--delta must lie between 0 and 1, got {delta:g}; with delta 0 a shuffler changes nothing.")
    if not 1 <= grid <= 1000:
        raise InputError(f"--grid must be a whole number from 1 to 1000, got {grid}.")
    writable(save, option="--save")
    to_screen = is_standard_output(save, as_json=as_json)
    space, steps = option.Values(low, high, around, width, height, cell, tree, distances, step).space()

    from metricshuffle.cli.console import note, show_progress
    from metricshuffle.privacy.target import Target
    from metricshuffle.solving.solution import solve as solved

    chosen: dict[str, Any] = {"step": steps, "algorithm": algorithm, "least": least, "grid": grid}
    with show_progress("Solving"):
        result = solved(space, Target(epsilon, delta, distance), users, honest, **chosen)
        text = result.to_json() if as_json else result.why()
    if save is not None:
        result.save(str(save))
    if as_json:
        print(text)
    elif not to_screen:
        _show(result)
        note(f"Wrote {save}." if save is not None else "Nothing was saved; --save FILE keeps the randomizer.")


def _show(result: SolvedMetric) -> None:
    from metricshuffle.cli.console import say, screen

    console = screen()
    say(console, result.why(), "")
    console.print(solved_table(result))
    say(console, "", *filter(None, (result.error_sentence(), *result.summaries(), result.trade_off)))


def solved_table(result: SolvedMetric) -> TableLayout:
    """Epsilons by distance: promised, of any randomizer with the metric, and of this one; alone and shuffled."""
    from metricshuffle.cli.table_layout import Column, Line, TableLayout
    from metricshuffle.numerics.rounding import format_epsilon, format_number
    from metricshuffle.solving.solution import allowed_text

    headings = ["distance", "promised", "any randomizer:\nalone", "any randomizer:\nshuffled", "this one:\nalone", "this one:\nshuffled"]
    columns = tuple(Column(heading, number=True) for heading in headings[: 6 if result.randomizer is not None else 4])
    lines = []
    for row in result.certified:
        own = [] if result.randomizer is None else [row.randomizer_local or 0.0, row.randomizer_certified or 0.0]
        certain = (format_epsilon(value) for value in (row.certified, *own))
        lines.append(Line((format_number(row.distance), format_epsilon(row.promised), allowed_text(row.local), *certain)))
    return TableLayout(columns, tuple(lines))
