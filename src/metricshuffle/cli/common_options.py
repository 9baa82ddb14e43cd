"""Features of every command: --quiet, completion of words, and errors that name options."""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Annotated, Any, get_args

import typer
from typer.models import OptionInfo

from metricshuffle.cli import console
from metricshuffle.cli.compile_notice import announce_compilation
from metricshuffle.errors import MetricShuffleError, python_name

Quiet = Annotated[
    bool,
    typer.Option(
        "--quiet", "-q", help="Print no notes and no progress to stderr; errors are still printed."
    ),
]
QUIET = inspect.Parameter("quiet", inspect.Parameter.KEYWORD_ONLY, default=False, annotation=Quiet)


# Arguments whose option has another name, and options of other commands that errors may name.
OTHER_OPTIONS = {"protocols": "--protocol", "header": "--no-header"}
OTHER_OPTIONS["held"] = "--items"
OTHER_OPTIONS |= {
    name: f"--{name.replace('_', '-')}"
    for name in (
        *("rounds", "most_items", "floor", "trusted", "encoding", "people", "round"),
        *("column", "user_column", "per_user", "coordinates", "delimiter", "decimal"),
        *("clamp", "drop_missing", "drop_outside", "no_header", "box", "items"),
    )
}
PYTHON_ARGUMENTS = frozenset({"library", "method", "names"})
"""Arguments that errors name and that no command has."""
CORNERS = ("SOUTH", "WEST", "NORTH", "EAST")
MANY_DIGITS = re.compile(r"\d[\d,]{40,}")


class CommandError(MetricShuffleError):
    """An error whose text names the options of the command line."""


def command_text(error: MetricShuffleError, options: Mapping[str, str]) -> str:
    """Return the text of an error with options in place of arguments."""

    def option(name: str, value: str | None) -> str:
        if name.upper() in CORNERS and "box" in options:
            return name.upper() if value is None else f"{name.upper()} {value}"
        known = {**OTHER_OPTIONS, **options}
        if name not in known:
            return python_name(name, value)
        if value == "False" and not known[name].startswith("--no-"):
            return f"--no-{known[name].removeprefix('--')}"
        if value is None or value in ("True", "False"):
            return known[name]
        return f"{known[name]} {value.strip(chr(39))}"

    text = MANY_DIGITS.sub(_digit_count, error.text(option))
    return f"--box: {text}" if text.startswith(CORNERS) else text


def _digit_count(number: re.Match[str]) -> str:
    return f"a number of {len(number[0].replace(',', ''))} digits"


def add_common_options(function: Callable[..., None]) -> Callable[..., None]:
    """Return the command with --quiet, and with errors that name its options."""
    signature = inspect.signature(function, eval_str=True)
    options = dict(_options(signature))

    @functools.wraps(function)
    def command(*, quiet: bool = False, **values: Any) -> None:
        with console.silence(quiet):
            if console.is_watched():
                announce_compilation(console.note)
            try:
                function(**values)
            except MetricShuffleError as error:
                raise CommandError(command_text(error, options)) from error

    setattr(command, "__signature__", signature.replace(parameters=[*_keywords(signature), QUIET]))  # noqa: B010 - functions have no such attribute
    command.__annotations__ = {
        name: parameter.annotation
        for name, parameter in (*signature.parameters.items(), ("quiet", QUIET))
    }
    return command


def _keywords(signature: inspect.Signature) -> Iterator[inspect.Parameter]:
    for parameter in signature.parameters.values():
        info = _info(parameter)
        words = (info.metavar or "").split("|") if info is not None else []
        if info is not None and len(words) > 1 and info.autocompletion is None:
            info.autocompletion = _complete_from(words)
        yield parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY)


def _complete_from(words: list[str]) -> Callable[[str], list[str]]:
    """Shell completion for an option that takes one of a few words."""

    def beginning(incomplete: str) -> list[str]:
        return [word for word in words if word.startswith(incomplete)]

    return beginning


def _info(parameter: inspect.Parameter) -> OptionInfo | None:
    return next(
        (part for part in get_args(parameter.annotation) if isinstance(part, OptionInfo)), None
    )


def _options(signature: inspect.Signature) -> Iterator[tuple[str, str]]:
    """Yield each Python parameter with the option that sets it."""
    for name, parameter in signature.parameters.items():
        info = _info(parameter)
        if info is not None:
            # In Annotated, typer keeps the first name of an option as its default.
            yield name, str(info.default)
