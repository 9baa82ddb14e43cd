"""What every command has in common, in one place: --quiet, words to complete, and errors that name options as they are typed."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator
from typing import Annotated, Any, get_args

import typer
from typer.models import OptionInfo

from metricshuffle.cli import console
from metricshuffle.cli.compile_notice import announce_compilation
from metricshuffle.cli.option_names import with_option_names
from metricshuffle.errors import MetricShuffleError

Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No notes and no progress on stderr; errors stay.")]
QUIET = inspect.Parameter("quiet", inspect.Parameter.KEYWORD_ONLY, default=False, annotation=Quiet)


class CommandError(MetricShuffleError):
    """What went wrong, in the words of the command line."""


def add_common_options(function: Callable[..., None]) -> Callable[..., None]:
    """The same command with --quiet, whose errors name its options."""
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
                raise CommandError(with_option_names(str(error), options)) from error

    setattr(command, "__signature__", signature.replace(parameters=[*_keywords(signature), QUIET]))  # noqa: B010 - functions have no such attribute
    command.__annotations__ = {name: parameter.annotation for name, parameter in (*signature.parameters.items(), ("quiet", QUIET))}
    return command


def _keywords(signature: inspect.Signature) -> Iterator[inspect.Parameter]:
    for parameter in signature.parameters.values():
        info = _info(parameter)
        words = (info.metavar or "").split("|") if info is not None else []
        if info is not None and len(words) > 1 and info.autocompletion is None:
            info.autocompletion = _complete_from(words)
        yield parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY)


def _complete_from(words: list[str]) -> Callable[[str], list[str]]:
    """What a shell offers for an option that takes one of a few words."""

    def beginning(incomplete: str) -> list[str]:
        return [word for word in words if word.startswith(incomplete)]

    return beginning


def _info(parameter: inspect.Parameter) -> OptionInfo | None:
    return next((part for part in get_args(parameter.annotation) if isinstance(part, OptionInfo)), None)


def _options(signature: inspect.Signature) -> Iterator[tuple[str, str]]:
    """The names of parameters in Python, and what is typed for them."""
    for name, parameter in signature.parameters.items():
        info = _info(parameter)
        if info is not None:
            # In Annotated, typer keeps the first name of an option as its default.
            yield name, str(info.default)
