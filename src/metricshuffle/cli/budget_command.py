"""`metricshuffle budget`: what was released about whom, and what that cost."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from metricshuffle.cli.shared_options import Json, load_task
from metricshuffle.errors import InputError

if TYPE_CHECKING:
    from metricshuffle.planning.costs.release_ledger import LedgerContent


def budget(
    files: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="LEDGER...", help="Ledgers; or plans or tasks, found in the ledgers beside them; all *.ledger here if left out."
        ),
    ] = None,
    people: Annotated[str | None, typer.Option("--people", metavar="NAME", help="Only this group of people; all if left out.")] = None,
    as_json: Json = False,
) -> None:
    """Analyst: rounds spent and left of every task, and the epsilon of all tasks together that were asked of the same people.

    Releases about everybody (no --people) count for every group; different names stand for groups that have nobody in common, which is
    the analyst's word. Every task is verified first.
    """
    import json

    from metricshuffle.cli.console import say, screen, show_progress
    from metricshuffle.planning.costs.joint_cost import joint_cost
    from metricshuffle.planning.costs.release_ledger import EVERYBODY, ledger_groups, spendings, validate_group_name

    ledgers = [notes for path in files for notes in _notes(path)] if files else _ledgers_here()
    named = ledger_groups(ledgers)
    groups = named if people is None else [validate_group_name(people)]
    if groups[0] not in named:
        raise InputError(f"nothing was released about {groups[0]!r}; the ledger knows {', '.join(named)}.")
    with show_progress("Counting") as progress:
        costs = {}
        for group in groups:
            progress(group)
            costs[group] = joint_cost(spendings(ledgers, group))
    if as_json:
        print(json.dumps({"people": [{"people": group, **cost.document()} for group, cost in costs.items()]}))
        return
    console = screen()
    for group, cost in costs.items():
        if len(named) > 1:
            others = " (who are in no named group)" if group == EVERYBODY else f" (with what was released about {EVERYBODY})"
            say(console, f"{group}{others}:")
        say(console, *cost.lines())


def _ledgers_here() -> list[LedgerContent]:
    """The analyst's ledgers in this folder."""
    from metricshuffle.planning.costs.release_ledger import LedgerContent
    from metricshuffle.tasks.shuffle import SQLITE_HEADER

    ledgers = []
    for path in sorted(Path().glob("*.ledger")):
        with open(path, "rb") as stream:
            shufflers = stream.read(len(SQLITE_HEADER)) == SQLITE_HEADER
        ledgers += [] if shufflers else [LedgerContent.read(path)]
    if not ledgers:
        raise InputError("no analyst's ledger lies here; name a ledger, or a plan that was released from.")
    return ledgers


def _notes(path: Path) -> list[LedgerContent]:
    """Those of a ledger, or what all ledgers beside a plan or a task have of it."""
    from metricshuffle.cli.console import note
    from metricshuffle.files import read_bytes
    from metricshuffle.planning.costs.release_ledger import BUDGET_FORMAT, RELEASES_LEDGER, LedgerContent, find_ledgers
    from metricshuffle.tasks.shuffle import SQLITE_HEADER

    start = read_bytes(path)
    if path.suffix == ".ledger" or start.startswith(SQLITE_HEADER) or BUDGET_FORMAT.encode() in start[:200]:
        return [LedgerContent.read(path)]
    digest, notes = load_task(path).digest, []
    for ledger in find_ledgers(path.parent, digest):
        all_notes = LedgerContent.read(ledger)
        notes.append(LedgerContent({digest: all_notes.tasks[digest]}, tuple(row for row in all_notes.releases if row.task == digest)))
        if others := len({row.task for row in all_notes.releases} - {digest}):
            several = f"{others} more task{'s' * (others != 1)}"
            note(f"{ledger} has releases of {several} than {path}; `metricshuffle budget {ledger}` adds all of them up.")
    if not notes:
        note(
            f"No ledger beside {path} has a release of it ({path.with_name(RELEASES_LEDGER)} would be the one). If releases were noted "
            "elsewhere (--ledger, or beside a collection in another folder), name that file."
        )
    return notes
