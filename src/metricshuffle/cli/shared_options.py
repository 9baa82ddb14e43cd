"""Options that several commands share, and the parsing of their values."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.models import OptionInfo

from metricshuffle.cli.column_completion import complete_columns
from metricshuffle.errors import InputError, PlanError

if TYPE_CHECKING:
    from metricshuffle.planning import Plan
    from metricshuffle.tasks.release import Release
    from metricshuffle.tasks.task import Task


def number(text: str | float) -> float:
    """Parse a finite number."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise ValueError(f"must be a finite number, got {text!r}")
    return value


def whole(text: str | int) -> int:
    """Parse a whole number, also written like 1e6."""
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


def parse_bound(name: str, text: str | None) -> int | float | None:
    """Parse the end of a range: a whole number if it has no decimal point."""
    if text is None:
        return None
    try:
        return whole(text) if "." not in text else number(text)
    except (ValueError, OverflowError):
        try:
            return number(text)
        except ValueError:
            raise InputError(f"--{name} must be a finite number, got {text!r}.") from None


def parse_numbers(name: str, text: str | None) -> tuple[float, ...] | None:
    """Parse numbers with commas between them."""
    if text is None:
        return None
    try:
        return tuple(number(part) for part in text.split(","))
    except ValueError:
        raise InputError(
            f"--{name} must be numbers with commas between them, got {text!r}."
        ) from None


Json = Annotated[
    bool, typer.Option("--json", help="Print one JSON document to stdout and nothing else.")
]
PlanFile = Annotated[
    Path,
    typer.Argument(
        metavar="PLAN",
        help="Plan or task file that `metricshuffle plan` wrote (--save, --task).",
    ),
]
ValuesFile = Annotated[
    Path,
    typer.Argument(
        metavar="VALUES",
        help=(
            "CSV file with a header line (may be gzipped), Parquet file or pipe; - reads "
            "standard input."
        ),
    ),
]
Columns = Annotated[
    list[str],
    typer.Option(
        "--column",
        metavar="NAME",
        autocompletion=complete_columns,
        help=(
            "Column with the values; for places give it twice: first latitude or x, then "
            "longitude or y."
        ),
    ),
]
Clamp = Annotated[
    bool,
    typer.Option(
        "--clamp",
        help=(
            "Replace a number outside the range by the nearest end of the range instead of "
            "rejecting it."
        ),
    ),
]
Coordinates = Annotated[
    str | None,
    typer.Option(
        "--coordinates",
        metavar="cells|points|places",
        help=(
            "What two columns contain: places (latitude, longitude; default for a plan with "
            "--box), cells (column, row from 0; default otherwise) or points (x, y in "
            "units)."
        ),
    ),
]
UserColumn = Annotated[
    str | None,
    typer.Option(
        "--user-column",
        metavar="NAME",
        autocompletion=complete_columns,
        help=(
            "Column that identifies people; if left out, every row counts as a different person."
        ),
    ),
]
PerUser = Annotated[
    str | None,
    typer.Option(
        "--per-user",
        metavar="mean|sum|first|sample|repeat",
        help=(
            "How to combine several rows of one person: their mean or sum, the first row, "
            "or one at random (sample). An error if left out. Users' items: repeat those of "
            "users whose number divides the plan's (repeat)."
        ),
    ),
]
Delimiter = Annotated[
    str | None,
    typer.Option(
        "--delimiter",
        metavar="CHAR",
        help=(
            "Character that separates the fields of a CSV line, or the word tab; detected "
            "from the header if left out."
        ),
    ),
]
Decimal = Annotated[
    str,
    typer.Option(
        "--decimal",
        metavar=".|,",
        help="Decimal mark of numbers in a CSV file: a point or a comma.",
    ),
]
NoHeader = Annotated[
    bool,
    typer.Option(
        "--no-header",
        help=(
            "The CSV file has no header line; name columns by their numbers from 1, such as "
            "--column 2."
        ),
    ),
]
DropMissing = Annotated[
    bool,
    typer.Option(
        "--drop-missing", help="Leave out rows without a value, and print how many there are."
    ),
]
DropOutside = Annotated[
    bool,
    typer.Option(
        "--drop-outside",
        help=(
            "Leave out rows whose value is not a known label or lies outside the range or "
            "the box, and print which."
        ),
    ),
]
Users = Annotated[
    int, typer.Option("--users", parser=whole, metavar="N", help="Number of people who report.")
]
Honest = Annotated[
    str | None,
    typer.Option(
        "--honest",
        metavar="H",
        help=(
            "Number of honest reports to rely on, as a count, a fraction or a percentage "
            "(90%); all if left out."
        ),
    ),
]
Rounds = Annotated[
    int,
    typer.Option(
        "--rounds",
        parser=whole,
        metavar="K",
        help=(
            "Number of times that the same people report; the guarantee covers all rounds together."
        ),
    ),
]


@dataclass(frozen=True)
class ReadingOptions:
    """Options of every command that reads values; added to it by `with_reading_options`."""

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


def with_reading_options(command: Callable[..., None], **defaults: object) -> Callable[..., None]:
    """Expand the parameter `reading: ReadingOptions` of a command into one option per field.

    `defaults` has default values of options that other commands require.
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
    """Read a plan or task from a file, or from its `text` if the file was already read.

    Errors name the file. The guarantees are recomputed first, so that no command prints or uses a
    guarantee that is not true.
    """
    import json

    from metricshuffle.files import display_name, read_text
    from metricshuffle.planning import Plan
    from metricshuffle.tasks.task import TASK_FORMAT, Task

    text = read_text(file) if text is None else text
    try:
        data = json.loads(text)
    except (ValueError, RecursionError):  # the plan reader reports the problem
        data = None
    try:
        stored = (
            Task.from_json(text)
            if isinstance(data, dict) and data.get("format") == TASK_FORMAT
            else Plan.from_json(text)
        )
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
    """Read a release from a file, or from its `text` if already read; errors name the file."""
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
    """Read the task in a file, which may be a plan."""
    from metricshuffle.planning import Plan

    stored = load_plan(file, verified=verified)
    return stored.task if isinstance(stored, Plan) else stored


def choice(name: str, value: str, among: tuple[str, ...]) -> str:
    """Return the value if it is one of the words, otherwise raise an error that lists them."""
    if value not in among:
        from metricshuffle.display import nearest_word

        raise InputError(
            f"--{name} must be one of {', '.join(among)}, got {value!r}."
            f"{nearest_word(value, among)}"
        )
    return value


def is_standard_output(*outputs: Path | None, as_json: bool) -> bool:
    """Whether an output is standard output; raises if two outputs would go there."""
    from metricshuffle.files import STANDARD_OUTPUT

    there = sum(output is not None and str(output) == STANDARD_OUTPUT for output in outputs)
    if there + as_json > 1 and there:
        raise InputError(
            "only one thing can be written to standard output; leave --json out, or give "
            "the name of a file instead of -."
        )
    return bool(there)


def writable(output: Path | None, *inputs: Path, option: str = "--output") -> None:
    """Raise, before any work, if the output cannot be written or would replace an input.

    Also raises if two inputs come from standard input.
    """
    from metricshuffle.files import is_standard_input, written_in_place

    if sum(map(is_standard_input, inputs)) > 1:
        raise InputError(
            "only one input can come from standard input; give the name of a file, or of a "
            "pipe, for the others."
        )
    if output is None or (written_in_place(output) and not output.is_dir()):
        return
    if output.is_dir():
        raise InputError(f"{option} {output} is a folder; give the name of a file.")
    if not output.parent.is_dir():
        raise InputError(
            f"{option} {output} lies in a folder that does not exist; make {output.parent} first."
        )
    for input_file in inputs:
        if output.exists() and input_file.exists() and output.samefile(input_file):
            raise InputError(
                f"{option} {output} is also the input; give another name, because it would "
                "be replaced."
            )


def command_group(about: str) -> typer.Typer:
    """Create a group of commands; without a subcommand it prints its help."""
    group = typer.Typer(rich_markup_mode="rich", no_args_is_help=False)

    @group.callback(invoke_without_command=True, help=about)
    def print_help(context: typer.Context) -> None:
        if context.invoked_subcommand is None:
            print(context.get_help())

    return group


def number_option(name: str, metavar: str, help_text: str, panel: str | None = None) -> OptionInfo:
    """Option that takes a finite number."""
    info: OptionInfo = typer.Option(
        name, parser=number, metavar=metavar, help=help_text, rich_help_panel=panel
    )
    return info


def whole_option(name: str, metavar: str, help_text: str, panel: str | None = None) -> OptionInfo:
    """Option that takes a whole number."""
    info: OptionInfo = typer.Option(
        name, parser=whole, metavar=metavar, help=help_text, rich_help_panel=panel
    )
    return info
