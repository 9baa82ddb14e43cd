"""`metricshuffle plan`: make a plan file, and the task that is published."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from metricshuffle.cli import limit_options as limit
from metricshuffle.cli import plan_options as option
from metricshuffle.cli.shared_options import (
    Honest,
    Json,
    ReadingOptions,
    Rounds,
    Users,
    is_standard_output,
    parse_bound,
    parse_numbers,
    writable,
)
from metricshuffle.errors import InputError

SHORTEST_IN_METRES = 100.0
"""A shorter distance in nested squares was most likely meant in km, as in earlier versions."""

LABEL_QUERIES = ("histogram", "sets", "key-values", "user-histogram", "user-linear")

if TYPE_CHECKING:
    from metricshuffle.cli.value_distances import ValueFile
    from metricshuffle.planning import Plan
    from metricshuffle.planning.advice import Wishes
    from metricshuffle.planning.plan_request import PlanRequest
    from metricshuffle.queries.query import Query
    from metricshuffle.randomizers.randomizer import Randomizer
    from metricshuffle.spaces import Metric, Zones


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
    at: option.At = None,
    edges: option.Edges = None,
    fade: option.Fade = None,
    unit: option.Unit = None,
    labels: option.Labels = None,
    labels_from: option.LabelsFrom = None,
    column: option.Column = None,
    distances: option.Distances = None,
    table: option.Table = None,
    regions: option.Regions = None,
    similar_to: option.SimilarTo = None,
    positions: option.Positions = None,
    distance_to: option.DistanceTo = None,
    width: option.Width = None,
    height: option.Height = None,
    cell: option.Cell = None,
    box: option.Box = None,
    zones: option.ZonesFile = None,
    zone_column: option.ZoneColumn = None,
    zone_point: option.ZonePoint = None,
    weights: option.Weights = None,
    blocks: option.Blocks = None,
    h3: option.H3 = None,
    s2_level: option.S2Level = None,
    levels: option.Levels = None,
    side: option.Side = None,
    items: option.Items = None,
    by: option.By = None,
    size: option.Size = None,
    label_epsilon: option.LabelEpsilon = None,
    encoding: limit.Encoding = "auto",
    padding: limit.PaddingOption = "clamp",
    granularity: limit.Granularity = None,
    transport: limit.Transport = "shuffler",
    draw: limit.Draw = None,
    without_replacement: limit.WithoutReplacement = False,
    trusted: limit.Trusted = "shuffler",
    max_local_epsilon: limit.MaxLocalEpsilon = None,
    max_bits: limit.MaxBits = None,
    max_dummies: limit.MaxDummies = 10_000_000,
    max_damage: limit.MaxDamage = None,
    liars: limit.Liars = None,
    floor: limit.Floor = None,
    no_floor: limit.NoFloor = False,
    most_items: limit.MostItems = None,
    spread: limit.Spread = "any",
    protocol: limit.Protocols = None,
    randomizer: limit.RandomizerFile = None,
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
    """Choose a protocol: calibrate all that apply, compare their errors, and choose the best.

    With --levels, the distance between two cells is the diagonal of the smallest nested square that
    contains both; with --box it is in metres, or in km with --unit km.
    """
    from metricshuffle.cli.linear_tables import read_item_function, read_positions
    from metricshuffle.cli.value_distances import value_file
    from metricshuffle.planning.advice import Wishes
    from metricshuffle.planning.plan_request import PlanRequest
    from metricshuffle.planning.query_words import QueryWords
    from metricshuffle.privacy.target import Target

    if (epsilon is None) == (error is None):
        raise InputError(
            "give either --epsilon (how much may be revealed) or --error (how exact the "
            "answer must be), and not both."
        )
    to_screen = _outputs(save, task, as_json)
    own = value_file(
        values,
        ReadingOptions(
            column or [],
            user_column,
            per_user,
            coordinates=coordinates,
            drop_missing=drop_missing,
            delimiter=delimiter,
            decimal=decimal,
            no_header=no_header,
        ),
    )
    columns = tuple(column or ()) if query == "means" else ()
    label_column = None if columns else _labels_column(column, labels_from, values)
    if by is not None and labels_from is not None and column is None:
        label_column = by
    if (
        query not in LABEL_QUERIES
        and by is None
        and (labels_from is not None or label_column is not None or distances is not None)
    ):
        stray = "--labels-from" if labels_from else "--distances" if distances else "--column"
        raise InputError(
            f"{stray} does not belong to --query {query}; leave it out or ask for another query."
        )
    named_labels, label_distances = _read_labels(labels, labels_from, label_column, distances)
    if positions is not None:
        named_labels, label_distances = read_positions(
            query, positions, named_labels, label_distances, unit
        )
    words = QueryWords(
        low=parse_bound("low", low),
        high=parse_bound("high", high),
        step=step,
        at=parse_numbers("at", at),
        edges=parse_numbers("edges", edges),
        fade=None if query == "user-linear" else fade,
        unit=unit,
        width=width,
        height=height,
        cell=cell,
        box=box,
        levels=levels,
        side=side,
        items=items,
        zones=_read_zones(query, zones, zone_column, zone_point, weights, blocks, unit),
        h3=h3,
        s2_level=s2_level,
        by=by,
        size=size,
        column=columns or None,
        labels=named_labels,
        distances=label_distances,
        table=read_item_function(query, table, regions, fade, similar_to, distance_to),
    )
    parsed_query = words.query(query, granularity=granularity)
    if own is not None and not _show_distances(
        own,
        parsed_query,
        distance,
        only=not (save or task or as_json),
        as_json=as_json or to_screen,
    ):
        return
    checked_distance = _distance(parsed_query, distance)
    if (
        levels is not None
        and box is not None
        and unit is None
        and checked_distance < SHORTEST_IN_METRES
    ):
        raise InputError(
            f"--distance {checked_distance:g} is {checked_distance:g} m: with --box and "
            "--levels distances are in metres, as they "
            "are with --cell, and were in km in "
            f"earlier versions. Give --distance {1000.0 * checked_distance:g}, or --unit km."
        )
    request = PlanRequest(
        parsed_query,
        Target(
            1.0 if epsilon is None else epsilon,
            delta,
            checked_distance,
            "flat" if flat else "linear",
            label_epsilon,
        ),
        users,
        honest,
        error=error,
        rounds=rounds,
        encoding=encoding,
        padding=padding,
        granularity=words.rounded_to(query, granularity),
        transport=transport,
        draw=draw,
        without_replacement=without_replacement,
        trusted=trusted,
        max_local_epsilon=max_local_epsilon,
        max_bits=max_bits,
        max_dummies=max_dummies,
        max_damage=max_damage,
        liars=liars,
        protocols=protocol or None,
        randomizer=_load_randomizer(randomizer),
        floor=_floor_rule(floor, no_floor),
        most_items=most_items,
        spread=spread,
        title=title,
        question=question,
    )
    new_plan = _make_plan(request)
    if save is not None:
        new_plan.save(str(save))
    if task is not None:
        new_plan.task.save(str(task))
    if labels_from is not None:
        from metricshuffle.cli.console import note

        note(f"The set of labels in {labels_from} is part of the plan, so it becomes public.")
    if zones is not None:
        from metricshuffle.cli.console import note

        note(f"The zones in {zones} are part of the plan, so they become public.")
    if as_json:
        print(new_plan.to_json())
    elif not to_screen:
        wishes = Wishes.of(request)
        written = [file for file in (save, task) if file is not None]
        _show(
            new_plan,
            wishes,
            looked_at=own is not None,
            everything=all_candidates,
            explain=explain,
            written=written,
        )


def _floor_rule(floor: str | None, no_floor: bool) -> str:
    """The rule of --floor, or of --no-floor."""
    if no_floor and floor not in (None, "never"):
        raise InputError(f"--no-floor means --floor never; leave it or --floor {floor} out.")
    if no_floor:
        return "never"
    return "always" if floor is None else floor


def _read_labels(
    labels: str | None, labels_from: Path | None, column: str | None, distances: Path | None
) -> tuple[list[str] | None, Metric | None]:
    """Read the labels and the table of their distances, if given."""
    if labels is None and labels_from is None and column is None and distances is None:
        return None, None
    from metricshuffle.cli.label_distances import read_distance_table, read_labels

    words = read_labels(labels, labels_from, column)
    if distances is not None and words is None:
        raise InputError("--distances is the table of distances of --labels; give both.")
    return words, None if distances is None or words is None else read_distance_table(
        distances, words
    )


def _read_zones(
    query: str,
    file: Path | None,
    column: str | None,
    point: tuple[str, str] | None,
    weights: str | None,
    blocks: str | None,
    unit: str | None,
) -> Zones | None:
    """Read the file of zones, if given; raises if its options are given without it."""
    named = {
        "--zones": file,
        "--zone-column": column,
        "--zone-point": point,
        "--weights": weights,
        "--blocks": blocks,
    }
    stray = next((option for option, value in named.items() if value is not None), None)
    if stray is None:
        return None
    if query not in ("zones", "flows"):
        raise InputError(
            f"{stray} does not belong to --query {query}; ask for --query zones or flows."
        )
    if blocks is not None and query == "zones":
        raise InputError("--blocks does not belong to --query zones; ask for --query flows.")
    if file is None or column is None:
        raise InputError(
            f"{stray} needs both --zones FILE and --zone-column NAME, the column with their ids."
        )
    from metricshuffle.data.zone_files import read_zones

    try:
        return read_zones(
            file, column, point=point, weights=weights, unit=unit or "m", blocks=blocks
        )
    except InputError as error:
        raise error.renamed(name="zone_column", point="zone_point") from None


def _outputs(save: Path | None, task: Path | None, as_json: bool) -> bool:
    """Whether one of both files is standard output; raises if they cannot be written."""
    from metricshuffle.files import written_in_place

    writable(save, option="--save")
    writable(task, option="--task")
    to_screen = is_standard_output(save, task, as_json=as_json)
    if save is not None and save == task and not written_in_place(save):
        raise InputError(
            f"--save and --task both name {save}; the plan and its task are two files."
        )
    return to_screen


def _load_randomizer(file: Path | None) -> Randomizer | None:
    if file is None:
        return None
    from metricshuffle.solving.randomizer_files import load_randomizer

    return load_randomizer(file)


def _distance(query: Query, distance: float | None) -> float:
    """Return the given distance; by default 1 for labels, and the diameter for records."""
    from metricshuffle.queries.record_query import RecordQuery
    from metricshuffle.spaces import Categories

    if distance is not None:
        return distance
    if isinstance(query, RecordQuery):
        return query.diameter
    if isinstance(query.values_in, Categories) and query.items is None:
        return 1.0
    from metricshuffle.cli.value_distances import HOW_TO
    from metricshuffle.planning.pairwise_distances import DISTANCE_EXAMPLES, DISTANCE_RULE

    raise InputError(
        f"--distance is missing, in the unit of the values. {DISTANCE_RULE} "
        f"{' '.join(DISTANCE_EXAMPLES)} See {HOW_TO}; --values FILE --column NAME shows how far "
        "apart your values are."
    )


def _labels_column(
    columns: list[str] | None, labels_from: Path | None, values: Path | None
) -> str | None:
    """Return the column of --labels-from; None if --column is missing or is for --values only."""
    if not columns or (labels_from is None and values is not None):
        return None
    if len(columns) > 1:
        raise InputError(
            f"--column is given {len(columns)} times; labels are in one column, and places "
            "of --values FILE in two."
        )
    return columns[0]


def _show_distances(
    own: ValueFile, query: Query, distance: float | None, *, only: bool, as_json: bool
) -> bool:
    """Show how far apart the values are; return whether a distance for a plan was given.

    Raises without a distance, unless only the distances were requested.
    """
    from metricshuffle.cli.console import note, say, screen

    if distance is None and not only:
        _distance(query, distance)  # raises before anything is read
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


def _make_plan(request: PlanRequest) -> Plan:
    from metricshuffle.cli.console import show_progress
    from metricshuffle.cli.extras import require_for_simulation
    from metricshuffle.planning.plan_for_error import plan_request

    require_for_simulation(request.query)
    with show_progress("Planning") as progress:
        return plan_request(request, progress)


def _show(
    plan: Plan,
    wishes: Wishes,
    *,
    looked_at: bool,
    everything: bool,
    explain: bool,
    written: list[Path],
) -> None:
    from metricshuffle.cli.candidate_table import candidate_table
    from metricshuffle.cli.console import note, say, screen, show_progress
    from metricshuffle.planning.advice import advice, hidden_sentence, with_only, worth_showing
    from metricshuffle.planning.plan_text import (
        explanation,
        guarantee_lines,
        option_words,
        plan_heading,
        target_text,
        warnings,
        why_chosen,
    )
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
        say(
            console,
            f"Errors and bits are for one round, every epsilon for all {plan.rounds} "
            "rounds together.",
        )
    say(
        console,
        *hidden_sentence(plan, shown),
        why_chosen(plan, option_words),
        "",
        *guarantee_lines(plan),
        *warnings(plan, shown),
    )
    with show_progress("Advice") as progress:
        advice_lines = advice(plan, wishes, progress)
    say(console, *advice_lines, *_rows(plan), *([] if looked_at else _about_distance(plan)))
    if explain:
        say(console, "", *(f"- {line}" for line in explanation(plan)))
        say(
            console,
            *(
                "- Not offered: "
                f"{row.protocol}{f' ({row.encoding})' if row.encoding else ''}: "
                f"{row.reason}"
                for row in plan.not_offered
            ),
        )
    elif plan.not_offered:
        say(console, f"{len(plan.not_offered)} more did not apply; --explain says why.")
    if plan.question is None:
        note(
            "This plan does not say what people are asked; add --question TEXT, and "
            "--title TEXT for what it is about."
        )
    note(
        f"Wrote {' and '.join(map(str, written))}."
        if written
        else "Nothing was saved; --save FILE keeps the plan, --task FILE its task."
    )


def _about_distance(plan: Plan) -> list[str]:
    """Say how to judge the distance; empty for labels (all 1 apart) and for whole records."""
    from metricshuffle.cli.value_distances import HOW_TO
    from metricshuffle.numerics.rounding import format_distance
    from metricshuffle.planning.plan_text import unit_of
    from metricshuffle.queries.record_query import RecordQuery
    from metricshuffle.spaces import Categories

    query = plan.query
    if isinstance(query.values_in, Categories) and query.items is None:
        return []
    if isinstance(query, RecordQuery) and plan.target.distance >= query.diameter:
        return []
    distance_text = f"{format_distance(plan.target.distance)}{unit_of(plan)}"
    return [
        f"Is {distance_text} far enough? --values FILE --column NAME shows how far apart "
        f"people are ({HOW_TO})."
    ]


def _rows(plan: Plan) -> list[str]:
    """Say how rows of a file will be read, and which options are not used."""
    if plan.query.kind in ("sets", "key-values"):
        what, cell = ("labels", "a;b") if plan.query.kind == "sets" else ("keys", "a=3;b=5")
        return [
            f"Every row of a file counts as another person, who has all their {what} in one cell, "
            f"such as {cell}. With --user-column (randomize, run), a person has a row for each."
        ]
    if plan.samples is not None and plan.choice.protocol != "item-wise":
        why = next(
            (row.reason for row in plan.not_offered if row.protocol == "item-wise"),
            "another protocol is more accurate.",
        )
        return [
            f"--draw {plan.samples} is not used: {plan.choice.protocol} takes a user's "
            f"items together; item-wise: {why}"
        ]
    if plan.query.items is None:
        return [
            "Every row of a file counts as another person; --user-column of randomize and "
            "run names the column that identifies people."
        ]
    if isinstance(plan.query.items, int):
        items_text = (
            f"exactly {plan.query.items:,} item{'s' * (plan.query.items != 1)}: a user with "
            "more or fewer is rejected when randomizing"
        )
        return [f"Everybody holds {items_text}; plan without --items to let users hold any number."]
    max_items = getattr(plan.protocol, "most_items", None)
    if max_items is not None:
        return [
            f"Users may hold any number of items from 1 to {max_items:,}: one with more is "
            "rejected when randomizing."
        ]
    return ["Users may hold any number of items, at least one."]
