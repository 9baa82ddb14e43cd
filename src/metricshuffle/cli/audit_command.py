"""`metricshuffle audit`: lower bounds on epsilon from batches of a plan or a deployed shuffler."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from metricshuffle.cli.column_completion import complete_labels
from metricshuffle.cli.shared_options import (
    Json,
    PlanFile,
    load_task,
    number,
    number_option,
    whole,
    whole_option,
)
from metricshuffle.errors import InputError, NotCertified, PlanError

if TYPE_CHECKING:
    from metricshuffle.auditing.audit import Audit
    from metricshuffle.protocols.tally import Shuffled
    from metricshuffle.queries.query import Query
    from metricshuffle.tasks.task import Task

REFUTED_EXIT_CODE = 3
"""The guarantee is refuted; distinct from wrong input (2) and a bug (1)."""

Value = str | float | tuple[float, float] | tuple[str, str]
"""A label, a number, or a place."""
VALUE_SYNTAX = (
    "a number, a label, column,row of a cell, from,to of a trip; a user's items with spaces "
    "between them"
)
Batches = Annotated[
    list[Path] | None,
    typer.Option(
        "--first-batches",
        metavar="FILES",
        help=(
            "Shuffled files, or releases that `metricshuffle collect` wrote, made with the first "
            "input, instead of drawing batches: a folder, a file, or a quoted pattern like "
            "'a/*.bin'; may be repeated."
        ),
    ),
]


def audit(
    plan_file: PlanFile,
    batches: Annotated[
        int | None,
        whole_option(
            "--batches", "N", "Number of batches to draw with each input; up to 10,000 if left out."
        ),
    ] = None,
    confidence: Annotated[
        float, number_option("--confidence", "C", "Confidence level of the lower bound on epsilon.")
    ] = 0.95,
    first: Annotated[
        str | None,
        typer.Option(
            "--first",
            metavar="X",
            autocompletion=complete_labels,
            help=(
                f"Value of one person in the first input: {VALUE_SYNTAX}. Chosen by a rule if "
                "left out."
            ),
        ),
    ] = None,
    second: Annotated[
        str | None,
        typer.Option(
            "--second",
            metavar="Y",
            autocompletion=complete_labels,
            help="Value of the same person in the second input.",
        ),
    ] = None,
    others: Annotated[
        str | None,
        typer.Option(
            "--others",
            metavar="Z",
            autocompletion=complete_labels,
            help="Value of every other person; several values are tried if left out.",
        ),
    ] = None,
    first_batches: Batches = None,
    second_batches: Annotated[
        list[Path] | None,
        typer.Option(
            "--second-batches",
            metavar="FILES",
            help=(
                "Shuffled files or releases made with the second input, in the same form as "
                "--first-batches."
            ),
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Attack shuffled batches to compute a lower confidence bound on epsilon.

    The exit code is 3 if the bound exceeds the guarantee. Batches are drawn here by the real
    samplers, or come from a deployed shuffler that was given one of two inputs. An audit can refute
    a guarantee but never prove one.
    """
    import json
    from dataclasses import asdict

    from metricshuffle.auditing.audit import audit as audited
    from metricshuffle.cli.console import note, say, screen, show_progress

    task = load_task(plan_file, verified=False)
    values = [
        None if text is None else parse_value(task.query, text, name)
        for text, name in ((first, "first"), (second, "second"))
    ]
    other_values = (
        None
        if others is None
        else [parse_value(task.query, others, "others")] * max(task.minimum - 1, 0)
    )
    if (first_batches is None) != (second_batches is None):
        raise InputError(
            "give batches made with both inputs: --first-batches and --second-batches."
        )
    with show_progress("Auditing") as progress:
        if first_batches is not None and second_batches is not None:
            observed = (
                read_batches(task, first_batches, "first-batches"),
                read_batches(task, second_batches, "second-batches"),
            )
            outcome: Audit = audited(
                task,
                *values,
                batches=batches,
                confidence=confidence,
                others=other_values,
                observed=observed,
            )
        else:
            outcome = audited(
                task,
                *values,
                batches=batches,
                confidence=confidence,
                others=other_values,
                progress=progress,
            )
    if as_json:
        print(json.dumps({**asdict(outcome), "refuted": outcome.refuted, "plan": task.digest}))
    else:
        say(screen(), *str(outcome).splitlines())
    try:
        task.verify_once()
    except NotCertified as error:  # noted even if the audit does not refute it
        note(f"{plan_file} is not verified: {error}")
    if outcome.refuted:
        raise typer.Exit(REFUTED_EXIT_CODE)


def parse_value(query: Query, text: str, option: str) -> Value | list[Value]:
    """Parse a value for the query from the command line; a user's items are separated by spaces."""
    from metricshuffle.queries.user_queries import UserQuery

    def single(word: str) -> Value:
        try:
            return _value(query, word)
        except ValueError:
            raise InputError(f"--{option} must be {VALUE_SYNTAX}, got {text!r}.") from None

    users = isinstance(query, UserQuery)
    items = [single(word) for word in (text.split() if users else [text.strip()])]
    if not items or not all(query.values_in.contains(item) for item in items):
        raise InputError(f"--{option} must lie in {query.values_in}, got {text!r}.")
    if users:
        query.inputs([items], 1.0)  # raises if there are too many or too few
    return items if users else items[0]


def _value(query: Query, word: str) -> Value:
    from metricshuffle.spaces import Categories, Grid, Integers, Places, ZonePairs, Zones

    domain = query.values_in
    if isinstance(domain, Categories | Zones):
        return word
    if isinstance(domain, ZonePairs):
        start, end = word.split(",")
        return start, end
    if isinstance(domain, Grid):
        column, row = (whole(part) for part in word.split(","))
        return column, row
    if isinstance(domain, Places):
        latitude, longitude = (number(part) for part in word.split(","))
        return latitude, longitude
    return whole(word) if isinstance(domain, Integers) else number(word)


def read_batches(task: Task, places: list[Path], option: str) -> list[Shuffled]:
    """Read the shuffled batches in files, folders and patterns; errors name the file.

    A release counts as the batch that it was estimated from.
    """
    from metricshuffle.files import read_bytes

    files = [file for place in places for file in _files(place, option)]
    batches = []
    for file in files:
        try:
            batches.append(_shuffled_batch(task, read_bytes(file)))
        except PlanError as error:
            raise PlanError(f"cannot use {file}: {error}") from None
    return batches


def _shuffled_batch(task: Task, data: bytes) -> Shuffled:
    """Return the batch in a shuffled file, or that of a release."""
    if not data.lstrip().startswith(b"{"):
        return task.read_shuffled(data)
    from metricshuffle.tasks.release import Release

    return task.read_shuffled(
        Release.from_json(data.decode("utf-8", "replace")).shuffled.to_bytes()
    )


def _files(place: Path, option: str) -> list[Path]:
    if place.is_dir():
        matching = sorted(file for file in place.iterdir() if file.is_file())
    elif any(letter in str(place) for letter in "*?["):
        matching = sorted(
            file
            for file in Path(place.anchor or ".").glob(str(place.relative_to(place.anchor)))
            if file.is_file()
        )
    else:
        return [place]
    if not matching:
        raise InputError(
            f"--{option} {place} names no files; give a folder, a pattern in quotes or a file."
        )
    return matching
