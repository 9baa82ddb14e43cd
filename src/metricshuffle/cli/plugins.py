"""Commands of other installed distributions: entry points of a group, in which `users.compare` names `users compare`."""

from __future__ import annotations

from collections.abc import Iterable
from importlib.metadata import EntryPoint

import typer

from metricshuffle._lazy import PAPERS_DISTRIBUTION
from metricshuffle.errors import MissingExtra

COMMANDS = "metricshuffle.commands"
OF_PAPERS = ("reproduce", "users.compare")
"""Commands of a distribution that may be missing: whoever calls one learns how to get it."""
ANY_ARGUMENTS = {"ignore_unknown_options": True, "allow_extra_args": True}


def add_installed_commands(app: typer.Typer, found: Iterable[EntryPoint]) -> None:
    """Add what is installed, and for each known command that is not a hidden one that says what to install.

    A command of metricshuffle itself is never replaced, and one that cannot be loaded says why when it is called.
    """
    added = set()
    for point in sorted(found, key=lambda point: point.name):
        group, name = _place(app, point.name)
        if group is None or name in _names(group):
            continue
        added.add(point.name)
        try:
            group.command(name)(point.load())
        except Exception as wrong:  # another distribution's: it must not take the other commands with it
            _add_refusal(group, name, f"{_typed(point.name)} cannot be loaded from {point.value}: {type(wrong).__name__}: {wrong}")
    for missing in OF_PAPERS:
        group, name = _place(app, missing)
        if missing not in added and group is not None:
            words = f"{_typed(missing)} is part of {PAPERS_DISTRIBUTION}; install it with: pip install {PAPERS_DISTRIBUTION}"
            _add_refusal(group, name, words)


def _place(app: typer.Typer, dotted: str) -> tuple[typer.Typer | None, str]:
    """The group that a command belongs to, None if there is no such group, and its name there."""
    before, _, name = dotted.rpartition(".")
    groups = {str(registered.name): registered.typer_instance for registered in app.registered_groups}
    return groups.get(before) if before else app, name


def _names(group: typer.Typer) -> set[str]:
    return {*(str(command.name) for command in group.registered_commands), *(str(inner.name) for inner in group.registered_groups)}


def _typed(dotted: str) -> str:
    return f"metricshuffle {dotted.replace('.', ' ')}"


def _add_refusal(group: typer.Typer, name: str, words: str) -> None:
    """A command that takes anything, also --help, and says one sentence (exit code 2)."""

    def refuse(context: typer.Context) -> None:
        raise MissingExtra(f"{words}.")

    group.command(name, hidden=True, add_help_option=False, context_settings=ANY_ARGUMENTS)(refuse)
