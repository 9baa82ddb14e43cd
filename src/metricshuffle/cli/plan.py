"""`metricshuffle plan`: from what is wanted to a plan file, and the task that travels."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from metricshuffle.cli import plan_options as option
from metricshuffle.cli.options import Honest, Json, Rounds, Users, choice, on_screen, writable
from metricshuffle.errors import InputError

if TYPE_CHECKING:
    from metricshuffle.planning import Plan
    from metricshuffle.queries.base import Query


def plan(
    query: option.Query,
    delta: option.Delta,
    users: Users,
    honest: Honest = None,
    distance: option.Distance = None,
    epsilon: option.Epsilon = None,
    error: option.Error = None,
    flat: option.Flat = False,
    rounds: Rounds = 1,
    low: option.Low = None,
    high: option.High = None,
    step: option.Step = None,
    unit: option.Unit = None,
    labels: option.Labels = None,
    labels_from: option.LabelsFrom = None,
    column: option.LabelsColumn = None,
    distances: option.Distances = None,
    width: option.Width = None,
    height: option.Height = None,
    cell: option.Cell = None,
    box: option.Box = None,
    levels: option.Levels = None,
    side: option.Side = None,
    items: option.Items = None,
    encoding: option.Encoding = "auto",
    padding: option.PaddingOption = "clamp",
    granularity: option.Granularity = None,
    transport: option.Transport = "shuffler",
    samples: option.Samples = None,
    trusted: option.Trusted = "shuffler",
    max_local_epsilon: option.MaxLocalEpsilon = None,
    max_bits: option.MaxBits = None,
    protocol: option.Protocols = None,
    explain: option.Explain = False,
    save: option.Save = None,
    task: option.TaskFile = None,
    as_json: Json = False,
) -> None:
    """Choose a protocol: calibrate all that apply, compare their errors, and keep the best as a plan."""
    from metricshuffle.cli.asking import QUERIES, Asked
    from metricshuffle.files import written_in_place

    choice("query", query, QUERIES)
    if (epsilon is None) == (error is None):
        raise InputError("give either --epsilon (how much may be revealed) or --error (how exact the answer must be), and not both.")
    choice("encoding", encoding, ("unary", "modular", "auto"))
    choice("padding", padding, ("clamp", "bounded"))
    choice("transport", transport, ("shuffler", "aggregator"))
    choice("trusted", trusted, ("nobody", "shuffler", "aggregator", "curator"))
    writable(save, option="--save")
    writable(task, option="--task")
    to_screen = on_screen(save, task, as_json=as_json)
    if save is not None and save == task and not written_in_place(save):
        raise InputError(f"--save and --task both name {save}; the plan and the task that travels are two files.")
    asked = Asked(
        low=low, high=high, step=step, unit=unit, labels=labels, labels_from=labels_from, column=column, distances=distances, width=width,
        height=height, cell=cell, box=box, levels=levels, side=side, items=items,
    ).query(query, granularity=granularity)  # fmt: skip
    choices: dict[str, Any] = {
        "rounds": rounds, "encoding": encoding, "padding": padding, "granularity": granularity, "transport": transport,
        "samples": samples, "trusted": trusted, "max_local_epsilon": max_local_epsilon, "max_bits": max_bits, "protocols": protocol or None,
    }  # fmt: skip
    made = _made(asked, epsilon, error, delta, _distance(asked, distance), users, honest, flat=flat, choices=choices)
    if save is not None:
        made.save(str(save))
    if task is not None:
        made.task.save(str(task))
    if labels_from is not None:
        from metricshuffle.cli.screen import note

        note(f"The set of labels in {labels_from} is part of the plan, so that it becomes public.")
    if as_json:
        print(made.to_json())
    elif not to_screen:
        _show(made, explain=explain, written=[file for file in (save, task) if file is not None])


def _distance(asked: Query, distance: float | None) -> float:
    """The distance that was given; labels are all 1 apart."""
    from metricshuffle.spaces import Categories

    if distance is not None:
        return distance
    if isinstance(asked.values_in, Categories) and asked.items is None:
        return 1.0
    raise InputError("--distance is missing: how far values may move and stay hidden, in units.")


def _made(
    asked: Query, epsilon: float | None, error: float | None, delta: float, distance: float, users: int, honest: str | None, *, flat: bool,
    choices: dict[str, Any],
) -> Plan:  # fmt: skip
    from metricshuffle.cli.screen import note, working
    from metricshuffle.noise.compiled import laws_are_compiled
    from metricshuffle.planning import plan as calibrated
    from metricshuffle.planning import plan_for_error
    from metricshuffle.privacy.profile import Shape
    from metricshuffle.privacy.target import Target
    from metricshuffle.queries.sums import SummedQuery

    shape: Shape = "flat" if flat else "linear"
    if sys.stderr.isatty() and isinstance(asked, SummedQuery) and not laws_are_compiled():
        note("The first plan after an installation compiles its inner loops, which takes about ten seconds; later ones start at once.")
    with working("Planning") as tell:
        if error is not None:
            return plan_for_error(asked, error, delta, distance, users, honest, shape=shape, progress=tell, **choices)
        assert epsilon is not None  # noqa: S101 - one of the two is given
        return calibrated(asked, Target(epsilon, delta, distance, shape), users, honest, progress=tell, **choices)


def _show(made: Plan, *, explain: bool, written: list[Path]) -> None:
    from metricshuffle.cli.screen import note, say, screen
    from metricshuffle.cli.table import candidates_table
    from metricshuffle.planning.explain import explanation, guarantee_lines, heading, target_text, warnings, why_chosen

    console = screen()
    asked = heading(made)
    say(console, f"{asked[:1].upper()}{asked[1:]}.", f"Target: {target_text(made)}.")
    console.print(candidates_table(made))
    if made.rounds > 1:
        say(console, f"Errors and bits are for one round, every epsilon for all {made.rounds} rounds together.")
    say(console, why_chosen(made), "", *guarantee_lines(made), *warnings(made), *_rows(made))
    if explain:
        say(console, "", *(f"- {line}" for line in explanation(made)))
        say(
            console,
            *(f"- Not offered: {row.protocol}{f' ({row.encoding})' if row.encoding else ''}: {row.reason}" for row in made.not_offered),
        )
    elif made.not_offered:
        say(console, f"{len(made.not_offered)} more did not apply; --explain says why.")
    note(f"Wrote {' and '.join(map(str, written))}." if written else "Nothing was saved; --save FILE keeps the plan, --task FILE its task.")


def _rows(made: Plan) -> list[str]:
    """What a row of a file will be taken to be, and what was asked for in vain."""
    if made.samples is not None and made.choice.protocol != "item-wise":
        why = next((row.reason for row in made.not_offered if row.protocol == "item-wise"), "another way is more accurate.")
        return [f"--samples {made.samples} is not used: {made.choice.protocol} takes a user's items together; item-wise: {why}"]
    if made.query.items is None:
        return ["Every row of a file counts as another person; --user-column of randomize and run names whose row it is."]
    if isinstance(made.query.items, int):
        held = f"exactly {made.query.items:,} item{'s' * (made.query.items != 1)}: a user with more or fewer is refused when randomizing"
        return [f"Everybody holds {held}; plan without --items to let users hold any number."]
    return ["Users may hold any number of items, at least one."]
