"""Commands of other installed distributions; entry point `users.compare` is `users compare`."""

from __future__ import annotations

from collections.abc import Iterable
from importlib.metadata import EntryPoint

import typer

from metricshuffle._old_names import PAPERS_DISTRIBUTION
from metricshuffle.errors import MissingExtra

COMMANDS = "metricshuffle.commands"
OF_PAPERS = ("reproduce", "users.compare")
"""Commands of an optional distribution; if it is missing they say how to install it."""
ANY_ARGUMENTS = {"ignore_unknown_options": True, "allow_extra_args": True}


def add_installed_commands(app: typer.Typer, entry_points: Iterable[EntryPoint]) -> None:
    """Add the installed commands, and hidden substitutes for known commands that are missing.

    A command of metricshuffle itself is never replaced. A command that cannot be loaded says why
    when it is called.
    """
    added = set()
    for point in sorted(entry_points, key=lambda point: point.name):
        group, name = _place(app, point.name)
        if group is None or name in _names(group):
            continue
        added.add(point.name)
        try:
            group.command(name)(point.load())
        except Exception as failure:  # another distribution must not break the other commands
            _add_refusal(
                group,
                name,
                f"{_typed(point.name)} cannot be loaded from {point.value}: "
                f"{type(failure).__name__}: {failure}",
            )
    for missing in OF_PAPERS:
        group, name = _place(app, missing)
        if missing not in added and group is not None:
            words = (
                f"{_typed(missing)} is part of {PAPERS_DISTRIBUTION}; install it with: pip "
                f"install {PAPERS_DISTRIBUTION}"
            )
            _add_refusal(group, name, words)


def _place(app: typer.Typer, dotted: str) -> tuple[typer.Typer | None, str]:
    """Return the group of a command (None if there is no such group) and its name there."""
    before, _, name = dotted.rpartition(".")
    groups = {
        str(registered.name): registered.typer_instance for registered in app.registered_groups
    }
    return groups.get(before) if before else app, name


def _names(group: typer.Typer) -> set[str]:
    return {
        *(str(command.name) for command in group.registered_commands),
        *(str(inner.name) for inner in group.registered_groups),
    }


def _typed(dotted: str) -> str:
    return f"metricshuffle {dotted.replace('.', ' ')}"


def _add_refusal(group: typer.Typer, name: str, words: str) -> None:
    """Add a command that accepts any arguments and fails with one sentence (exit code 2)."""

    def refuse(context: typer.Context) -> None:
        raise MissingExtra(f"{words}.")

    group.command(name, hidden=True, add_help_option=False, context_settings=ANY_ARGUMENTS)(refuse)
