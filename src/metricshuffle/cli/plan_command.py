"""`metricshuffle plan`: from what is wanted to a plan file, and the task that travels."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from metricshuffle.cli import plan_options as option
from metricshuffle.cli.shared_options import Honest, Json, ReadingOptions, Rounds, Users, choice, is_standard_output, writable
from metricshuffle.errors import InputError

SHORTEST_IN_METRES = 100.0
"""A shorter distance of places in nested squares was most likely meant in km, as it was in earlier versions."""

if TYPE_CHECKING:
    from collections.abc import Callable

    from metricshuffle.cli.value_distances import ValueFile
    from metricshuffle.planning import Plan
    from metricshuffle.planning.advice import Wishes
    from metricshuffle.queries.query import Query
    from metricshuffle.randomizers.randomizer import Randomizer


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
    title: option.Title = None,
    question: option.Question = None,
    low: option.Low = None,
    high: option.High = None,
    step: option.Step = None,
    unit: option.Unit = None,
    labels: option.Labels = None,
    labels_from: option.LabelsFrom = None,
    column: option.Column = None,
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
    no_floor: option.NoFloor = False,
    most_items: option.MostItems = None,
    spread: option.Spread = "any",
    protocol: option.Protocols = None,
    randomizer: option.RandomizerFile = None,
    values: option.Values = None,
    user_column: option.UserColumn = None,
    per_user: option.PerUser = None,
    coordinates: option.Coordinates = None,
    drop_missing: option.DropMissing = False,
    delimiter: option.Delimiter = None,
    decimal: option.Decimal = ".",
    no_header: option.NoHeader = False,
    all_candidates: option.All = False,
    explain: option.Explain = False,
    save: option.Save = None,
    task: option.TaskFile = None,
    as_json: Json = False,
) -> None:
    """Choose a protocol: calibrate all that apply, compare their errors, and keep the best as a plan."""
    from metricshuffle.cli.query_options import QueryOptions
    from metricshuffle.cli.value_distances import value_file
    from metricshuffle.planning.advice import Wishes
    from metricshuffle.tasks.wording import normalize_question, normalize_title

    _check_words(query=query, encoding=encoding, padding=padding, transport=transport, trusted=trusted, spread=spread)
    if (epsilon is None) == (error is None):
        raise InputError("give either --epsilon (how much may be revealed) or --error (how exact the answer must be), and not both.")
    to_screen = _outputs(save, task, as_json)
    own = value_file(
        values,
        ReadingOptions(
            column or [], user_column, per_user, coordinates=coordinates, drop_missing=drop_missing, delimiter=delimiter, decimal=decimal,
            no_header=no_header,
        ),
    )  # fmt: skip
    options = QueryOptions(
        low=low, high=high, step=step, unit=unit, labels=labels, labels_from=labels_from, distances=distances, width=width,
        column=_labels_column(column, labels_from, values),
        height=height, cell=cell, box=box, levels=levels, side=side, items=items,
    )  # fmt: skip
    parsed_query = options.query(query, granularity=granularity)
    granularity = options.rounded_to(query, granularity)
    choices: dict[str, Any] = {
        "rounds": rounds, "encoding": encoding, "padding": padding, "granularity": granularity, "transport": transport,
        "samples": samples, "trusted": trusted, "max_local_epsilon": max_local_epsilon, "max_bits": max_bits, "protocols": protocol or None,
        "randomizer": _load_randomizer(randomizer), "floor": not no_floor, "most_items": most_items, "spread": spread,
        "title": _normalize_option(normalize_title, title), "question": _normalize_option(normalize_question, question),
    }  # fmt: skip
    if own is not None and not _show_distances(
        own, parsed_query, distance, only=not (save or task or as_json), as_json=as_json or to_screen
    ):
        return
    checked_distance = _distance(parsed_query, distance)
    if levels is not None and box is not None and unit is None and checked_distance < SHORTEST_IN_METRES:
        raise InputError(
            f"--distance {checked_distance:g} is {checked_distance:g} m: with --box and --levels distances are in metres, as they "
            "are with --cell, and were in km in "
            f"earlier versions. Give --distance {1000.0 * checked_distance:g}, or --unit km."
        )
    new_plan = _make_plan(parsed_query, epsilon, error, delta, checked_distance, users, honest, flat=flat, choices=choices)
    if save is not None:
        new_plan.save(str(save))
    if task is not None:
        new_plan.task.save(str(task))
    if labels_from is not None:
        from metricshuffle.cli.console import note

        note(f"The set of labels in {labels_from} is part of the plan, so that it becomes public.")
    if as_json:
        print(new_plan.to_json())
    elif not to_screen:
        wishes = Wishes(honest, max_local_epsilon, max_bits, narrowed=bool(protocol or randomizer))
        written = [file for file in (save, task) if file is not None]
        _show(new_plan, wishes, looked_at=own is not None, everything=all_candidates, explain=explain, written=written)


def _check_words(**typed: str) -> None:
    """Options that are one of a few words."""
    from metricshuffle.cli.query_options import QUERIES

    words = {
        "query": QUERIES,
        "encoding": ("unary", "modular", "auto"),
        "padding": ("clamp", "bounded"),
        "transport": ("shuffler", "aggregator"),
        "trusted": ("nobody", "shuffler", "aggregator", "curator"),
        "spread": ("any", "smooth", "spiky"),
    }
    for name, word in typed.items():
        choice(name, word, words[name])


def _normalize_option(normalize: Callable[[object], str | None], text: str | None) -> str | None:
    """A title or a question; what is wrong with it is told with the name of its option."""
    try:
        return normalize(text)
    except InputError as error:
        raise InputError(f"--{error}") from None


def _outputs(save: Path | None, task: Path | None, as_json: bool) -> bool:
    """Raise unless both files can be written; whether one of them is standard output."""
    from metricshuffle.files import written_in_place

    writable(save, option="--save")
    writable(task, option="--task")
    to_screen = is_standard_output(save, task, as_json=as_json)
    if save is not None and save == task and not written_in_place(save):
        raise InputError(f"--save and --task both name {save}; the plan and the task that travels are two files.")
    return to_screen


def _load_randomizer(file: Path | None) -> Randomizer | None:
    if file is None:
        return None
    from metricshuffle.solving.randomizer_files import load_randomizer

    return load_randomizer(file)


def _distance(query: Query, distance: float | None) -> float:
    """The distance that was given; labels are all 1 apart."""
    from metricshuffle.spaces import Categories

    if distance is not None:
        return distance
    if isinstance(query.values_in, Categories) and query.items is None:
        return 1.0
    from metricshuffle.cli.value_distances import HOW_TO

    raise InputError(
        "--distance is missing: how far values may move and stay hidden, in units. Take one within which nobody would mind being taken "
        f"for somebody else ({HOW_TO}); --values FILE --column NAME shows how far apart your values are."
    )


def _labels_column(columns: list[str] | None, labels_from: Path | None, values: Path | None) -> str | None:
    """The column of --labels-from, which may also be that of --values."""
    if not columns or (labels_from is None and values is not None):
        return None
    if len(columns) > 1:
        raise InputError(f"--column is given {len(columns)} times; labels are in one column, and places of --values FILE in two.")
    return columns[0]


def _show_distances(own: ValueFile, query: Query, distance: float | None, *, only: bool, as_json: bool) -> bool:
    """Show how far apart the values are; whether a plan can be made then. Without a distance there is none, which is all if only this
    was asked."""
    from metricshuffle.cli.console import note, say, screen

    if distance is None and not only:
        _distance(query, distance)  # a sentence, before anything is read
    lines = own.sentences(query, distance)
    if as_json:
        for line in lines:
            note(line)
    else:
        say(screen(), *lines, *([] if distance is None else [""]))
    if distance is not None:
        return True
    note("No plan was made: choose a --distance.")
    return False


def _make_plan(
    query: Query, epsilon: float | None, error: float | None, delta: float, distance: float, users: int, honest: str | None, *, flat: bool,
    choices: dict[str, Any],
) -> Plan:  # fmt: skip
    from metricshuffle.cli.console import show_progress
    from metricshuffle.cli.extras import require_for_simulation
    from metricshuffle.planning import plan as calibrated
    from metricshuffle.planning import plan_for_error
    from metricshuffle.privacy.profile import Shape
    from metricshuffle.privacy.target import Target

    require_for_simulation(query)
    shape: Shape = "flat" if flat else "linear"
    with show_progress("Planning") as progress:
        if error is not None:
            return plan_for_error(query, error, delta, distance, users, honest, shape=shape, progress=progress, **choices)
        assert epsilon is not None  # noqa: S101 - one of the two is given
        return calibrated(query, Target(epsilon, delta, distance, shape), users, honest, progress=progress, **choices)


def _show(plan: Plan, wishes: Wishes, *, looked_at: bool, everything: bool, explain: bool, written: list[Path]) -> None:
    from metricshuffle.cli.candidate_table import candidate_table
    from metricshuffle.cli.console import note, say, screen, show_progress
    from metricshuffle.planning.advice import advice, hidden_sentence, with_only, worth_showing
    from metricshuffle.planning.plan_text import explanation, guarantee_lines, plan_heading, target_text, warnings, why_chosen
    from metricshuffle.tasks.wording import wording_lines

    console = screen()
    heading_text = plan_heading(plan)
    shown = tuple(range(len(plan.candidates))) if everything else worth_showing(plan)
    say(
        console,
        *wording_lines(plan.title, plan.question),
        f"{heading_text[:1].upper()}{heading_text[1:]}.",
        f"Target: {target_text(plan)}.",
    )
    console.print(candidate_table(with_only(plan, shown)))
    if plan.rounds > 1:
        say(console, f"Errors and bits are for one round, every epsilon for all {plan.rounds} rounds together.")
    say(console, *hidden_sentence(plan, shown), why_chosen(plan), "", *guarantee_lines(plan), *warnings(plan, shown))
    with show_progress("Advice") as progress:
        advice_lines = advice(plan, wishes, progress)
    say(console, *advice_lines, *_rows(plan), *([] if looked_at else _about_distance(plan)))
    if explain:
        say(console, "", *(f"- {line}" for line in explanation(plan)))
        say(
            console,
            *(f"- Not offered: {row.protocol}{f' ({row.encoding})' if row.encoding else ''}: {row.reason}" for row in plan.not_offered),
        )
    elif plan.not_offered:
        say(console, f"{len(plan.not_offered)} more did not apply; --explain says why.")
    if plan.question is None:
        note("This plan does not say what people are asked; --question TEXT tells everybody who takes part, --title TEXT what it is about.")
    note(f"Wrote {' and '.join(map(str, written))}." if written else "Nothing was saved; --save FILE keeps the plan, --task FILE its task.")


def _about_distance(plan: Plan) -> list[str]:
    """Where to look whether the distance is a good one; any two labels are 1 apart."""
    from metricshuffle.cli.value_distances import HOW_TO
    from metricshuffle.numerics.rounding import format_distance
    from metricshuffle.planning.plan_text import unit_of
    from metricshuffle.spaces import Categories

    if isinstance(plan.query.values_in, Categories) and plan.query.items is None:
        return []
    distance_text = f"{format_distance(plan.target.distance)}{unit_of(plan)}"
    return [f"Is {distance_text} far enough? --values FILE --column NAME shows how far apart people are ({HOW_TO})."]


def _rows(plan: Plan) -> list[str]:
    """What a row of a file will be taken to be, and what was asked for in vain."""
    if plan.samples is not None and plan.choice.protocol != "item-wise":
        why = next((row.reason for row in plan.not_offered if row.protocol == "item-wise"), "another way is more accurate.")
        return [f"--samples {plan.samples} is not used: {plan.choice.protocol} takes a user's items together; item-wise: {why}"]
    if plan.query.items is None:
        return ["Every row of a file counts as another person; --user-column of randomize and run names whose row it is."]
    if isinstance(plan.query.items, int):
        items_text = (
            f"exactly {plan.query.items:,} item{'s' * (plan.query.items != 1)}: a user with more or fewer is refused when randomizing"
        )
        return [f"Everybody holds {items_text}; plan without --items to let users hold any number."]
    max_items = getattr(plan.protocol, "most_items", None)
    if max_items is not None:
        return [f"Users may hold any number of items from 1 to {max_items:,}: one with more is refused when randomizing."]
    missing = plan.trusted in ("shuffler", "aggregator") and any("--most-items" in row.reason for row in plan.not_offered)
    more = "; --most-items M, the most that one may hold, allows noisy vectors" if missing else ""
    return [f"Users may hold any number of items, at least one{more}."]
