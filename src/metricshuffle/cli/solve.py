"""`metricshuffle solve`: from the privacy wanted after shuffling to a local metric that gives it, and a randomizer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from metricshuffle.cli import solve_options as option
from metricshuffle.cli.options import Honest, Json, Users, choice, on_screen, writable
from metricshuffle.errors import InputError

if TYPE_CHECKING:
    from metricshuffle.cli.layout import Layout
    from metricshuffle.planning.solved import SolvedMetric


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
    to_screen = on_screen(save, as_json=as_json)
    space, steps = option.Values(low, high, around, width, height, cell, tree, distances, step).space()

    from metricshuffle.cli.screen import note, working
    from metricshuffle.planning.solved import solve as solved
    from metricshuffle.privacy.target import Target

    chosen: dict[str, Any] = {"step": steps, "algorithm": algorithm, "least": least, "grid": grid}
    with working("Solving"):
        found = solved(space, Target(epsilon, delta, distance), users, honest, **chosen)
        text = found.to_json() if as_json else found.why()
    if save is not None:
        found.save(str(save))
    if as_json:
        print(text)
    elif not to_screen:
        _show(found)
        note(f"Wrote {save}." if save is not None else "Nothing was saved; --save FILE keeps the randomizer.")


def _show(found: SolvedMetric) -> None:
    from metricshuffle.cli.screen import say, screen

    console = screen()
    say(console, found.why(), "")
    console.print(solved_table(found))
    say(console, "", *filter(None, (found.error_sentence(), *found.summaries(), found.trade_off)))


def solved_table(found: SolvedMetric) -> Layout:
    """Epsilons by distance: promised, of any randomizer with the metric, and of this one; alone and shuffled."""
    from metricshuffle.cli.layout import Column, Layout, Line
    from metricshuffle.numerics.rounding import plain, promised
    from metricshuffle.planning.solved import allowed_text

    headings = ["distance", "promised", "any randomizer:\nalone", "any randomizer:\nshuffled", "this one:\nalone", "this one:\nshuffled"]
    columns = tuple(Column(heading, number=True) for heading in headings[: 6 if found.randomizer is not None else 4])
    lines = []
    for row in found.certified:
        own = [] if found.randomizer is None else [row.randomizer_local or 0.0, row.randomizer_certified or 0.0]
        certain = (promised(value) for value in (row.certified, *own))
        lines.append(Line((plain(row.distance), promised(row.promised), allowed_text(row.local), *certain)))
    return Layout(columns, tuple(lines))
