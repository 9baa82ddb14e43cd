"""Options that several commands share, and how their words become numbers."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from metricshuffle.errors import InputError, PlanError

if TYPE_CHECKING:
    from metricshuffle.planning import Plan
    from metricshuffle.tasks.release import Release
    from metricshuffle.tasks.task import Task


def number(text: str | float) -> float:
    """A finite number."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise ValueError(f"must be a finite number, got {text!r}")
    return value


def whole(text: str | int) -> int:
    """A whole number, also written like 1e6."""
    try:
        return int(text)
    except ValueError:
        pass
    try:
        value = float(text)
    except ValueError:
        raise ValueError(f"must be a whole number like 1000 or 1e6, got {text!r}") from None
    if number(value) != int(value):
        raise ValueError(f"must be a whole number, got {text!r}")
    return int(value)


Json = Annotated[bool, typer.Option("--json", help="Print one JSON document to stdout and nothing else.")]
PlanFile = Annotated[Path, typer.Argument(metavar="PLAN", help="The plan or the task that `metricshuffle plan` wrote (--save, --task).")]
ValuesFile = Annotated[
    Path,
    typer.Argument(
        metavar="VALUES", help="A CSV file with a header line, gzipped or not, or a Parquet file; a pipe, or - for standard input."
    ),
]
Columns = Annotated[
    list[str],
    typer.Option(
        "--column", metavar="NAME",
        help="The column that holds the values; places take it twice: latitude and longitude, or x and y, in this order.",
    ),
]  # fmt: skip
Clamp = Annotated[bool, typer.Option("--clamp", help="Move numbers outside the domain to its nearest end instead of refusing them.")]
Coordinates = Annotated[
    str | None,
    typer.Option(
        "--coordinates", metavar="cells|points|places",
        help="What the two columns of places are: places (latitude and longitude; the default for a plan with --box), cells (column and "
        "row, from 0; the default otherwise), or points (x and y in units).",
    ),
]  # fmt: skip
UserColumn = Annotated[
    str | None,
    typer.Option("--user-column", metavar="NAME", help="The column that names whose row it is; without it every row is another person."),
]
PerUser = Annotated[
    str | None,
    typer.Option(
        "--per-user", metavar="mean|sum|first|sample",
        help="What to do with several rows of one person (refused by default): mean or sum of numbers, the first row, or one at random.",
    ),
]  # fmt: skip
Delimiter = Annotated[
    str | None,
    typer.Option(
        "--delimiter", metavar="CHAR",
        help="What separates the fields of a CSV line, a character or the word tab; told by the header if left out.",
    ),
]  # fmt: skip
Decimal = Annotated[str, typer.Option("--decimal", metavar=".|,", help="What marks decimals in a CSV file, a point or a comma.")]
NoHeader = Annotated[
    bool, typer.Option("--no-header", help="The CSV file has no header line; columns are named by their numbers: --column 2.")
]
DropMissing = Annotated[bool, typer.Option("--drop-missing", help="Leave out rows that miss a value, and tell how many.")]
DropOutside = Annotated[
    bool,
    typer.Option(
        "--drop-outside", help="Leave out rows whose value is not one of the labels or lies outside the range or the box, and tell which."
    ),
]
Users = Annotated[int, typer.Option("--users", parser=whole, metavar="N", help="How many people report.")]
Honest = Annotated[
    str | None,
    typer.Option("--honest", metavar="H", help="Reports certainly from honest people: a count, a fraction or 90%; all if left out."),
]  # fmt: skip
Rounds = Annotated[
    int,
    typer.Option(
        "--rounds", parser=whole, metavar="K", help="How often the same people are asked; the promise covers all rounds together."
    ),
]


@dataclass(frozen=True)
class ReadingOptions:
    """The options of every command that reads people's values from a file; `with_reading_options` puts them into its signature."""

    column: Columns
    user_column: UserColumn = None
    per_user: PerUser = None
    clamp: Clamp = False
    coordinates: Coordinates = None
    drop_missing: DropMissing = False
    drop_outside: DropOutside = False
    delimiter: Delimiter = None
    decimal: Decimal = "."
    no_header: NoHeader = False


def with_reading_options(command: Callable[..., None], **defaults: Any) -> Callable[..., None]:
    """A command whose parameter `reading: ReadingOptions` is, to whoever types it, one option for each of its fields.

    `defaults` are for options that must be given elsewhere, and need not be here.
    """
    signature = inspect.signature(command, eval_str=True)
    options = [
        option.replace(default=defaults.get(option.name, option.default))
        for option in inspect.signature(ReadingOptions, eval_str=True).parameters.values()
    ]
    expanded: list[inspect.Parameter] = []
    for parameter in signature.parameters.values():
        expanded += options if parameter.name == "reading" else [parameter]
    expanded = [parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY) for parameter in expanded]

    @wraps(command)
    def typed(**words: Any) -> None:
        reading = ReadingOptions(**{option.name: words.pop(option.name) for option in options})
        command(reading=reading, **words)

    setattr(typed, "__signature__", signature.replace(parameters=expanded))  # noqa: B010 - what inspect looks for
    typed.__annotations__ = {parameter.name: parameter.annotation for parameter in expanded}
    return typed


def load_plan(file: Path, text: str | None = None, *, verified: bool = True) -> Plan | Task:
    """The plan or the task in a file (or in its text, if that was read already); what is wrong is told with the name of the file.

    What it promises is computed again first, so that no command prints or uses a promise that is not true.
    """
    import json

    from metricshuffle.files import display_name, read_text
    from metricshuffle.planning import Plan
    from metricshuffle.tasks.task import TASK_FORMAT, Task

    text = read_text(file) if text is None else text
    try:
        data = json.loads(text)
    except (ValueError, RecursionError):  # the reader of plans says what is wrong
        data = None
    try:
        stored = Task.from_json(text) if isinstance(data, dict) and data.get("format") == TASK_FORMAT else Plan.from_json(text)
    except PlanError as error:
        raise PlanError(f"cannot use {display_name(file)}: {error}") from None
    if verified:
        verify_once(file, stored.task if isinstance(stored, Plan) else stored)
    return stored


def verify_once(file: Path, task: Task) -> None:
    """Raise if the task in a file claims more than is true."""
    from metricshuffle.cli.console import show_progress
    from metricshuffle.errors import NotCertified
    from metricshuffle.files import display_name

    with show_progress("Verifying"):
        try:
            task.verify_once()
        except NotCertified as error:
            raise NotCertified(f"cannot use {display_name(file)}: {error}") from None


def load_release(file: Path, text: str | None = None) -> Release:
    """The release in a file (or in its text, if that was read already), told in the same way."""
    from metricshuffle.errors import NotCertified
    from metricshuffle.files import display_name, read_text
    from metricshuffle.tasks.release import Release

    text = read_text(file) if text is None else text
    try:
        return Release.from_json(text)
    except PlanError as error:
        raise PlanError(f"cannot use {display_name(file)}: {error}") from None
    except NotCertified as error:
        raise NotCertified(f"cannot use {display_name(file)}: {error}") from None


def load_task(file: Path, *, verified: bool = True) -> Task:
    """The task in a file, which may be a plan."""
    from metricshuffle.planning import Plan

    stored = load_plan(file, verified=verified)
    return stored.task if isinstance(stored, Plan) else stored


def choice(name: str, value: str, among: tuple[str, ...]) -> str:
    """One of a few words, or a sentence that lists them."""
    if value not in among:
        raise InputError(f"--{name} must be one of {', '.join(among)}, got {value!r}.")
    return value


def is_standard_output(*outputs: Path | None, as_json: bool) -> bool:
    """Whether an output is standard output; a sentence if two things would be written there."""
    from metricshuffle.files import STANDARD_OUTPUT

    there = sum(output is not None and str(output) == STANDARD_OUTPUT for output in outputs)
    if there + as_json > 1 and there:
        raise InputError("only one thing can be written to standard output; leave --json out, or give the name of a file instead of -.")
    return bool(there)


def writable(output: Path | None, *inputs: Path, option: str = "--output") -> None:
    """Refuse an output that cannot be written or that would replace an input, before any work is done; and two inputs from one stream."""
    from metricshuffle.files import is_standard_input, written_in_place

    if sum(map(is_standard_input, inputs)) > 1:
        raise InputError("only one input can come from standard input; give the name of a file, or of a pipe, for the others.")
    if output is None or (written_in_place(output) and not output.is_dir()):
        return
    if output.is_dir():
        raise InputError(f"{option} {output} is a folder; give the name of a file.")
    if not output.parent.is_dir():
        raise InputError(f"{option} {output} lies in a folder that does not exist; make {output.parent} first.")
    for input_file in inputs:
        if output.exists() and input_file.exists() and output.samefile(input_file):
            raise InputError(f"{option} {output} is also the input; give another name, because it would be replaced.")
