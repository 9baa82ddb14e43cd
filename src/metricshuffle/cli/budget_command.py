"""`metricshuffle budget`: recorded releases per group of people, and their privacy cost.

With an outbox, the reports of one person instead (device_budget).
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from metricshuffle.cli.device_budget import (
    AgreedBefore,
    DeviceLimits,
    DeviceOutbox,
    DeviceUser,
    ForgetLedger,
    show_device_budget,
)
from metricshuffle.cli.shared_options import Json, load_task
from metricshuffle.errors import InputError

if TYPE_CHECKING:
    from metricshuffle.planning.costs.release_ledger import LedgerContent


def budget(
    files: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="LEDGER...",
            help=(
                "Ledgers, or plans or tasks with a ledger in their folder; all *.ledger files "
                "in this folder if left out."
            ),
        ),
    ] = None,
    people: Annotated[
        str | None,
        typer.Option(
            "--people",
            metavar="NAME",
            help="Show only this group of people; all groups if left out.",
        ),
    ] = None,
    outbox: DeviceOutbox = None,
    user: DeviceUser = None,
    limit: DeviceLimits = None,
    forget: ForgetLedger = False,
    yes: AgreedBefore = False,
    as_json: Json = False,
) -> None:
    """Show what was spent: by an analyst's releases, or by the reports in your own outbox.

    Analyst: the rounds used and left of every task, and the joint epsilon of all tasks. Releases
    without --people are about everybody and count for every group. Groups with different names must
    have no member in common; this cannot be checked. Every task is verified first.

    With --outbox: what your reports can reveal together, by unit of distance, and your limits.
    Reports count from the moment they are made, also those that you declined.
    """
    if outbox is not None or user is not None or limit or forget:
        if files or people is not None:
            raise InputError(
                "--outbox, --user, --limit and --forget are about your own reports, and LEDGER and "
                "--people about an analyst's releases; give one or the other."
            )
        show_device_budget(outbox, user or "", limit or [], forget=forget, yes=yes, as_json=as_json)
        return
    if yes:
        raise InputError("--yes belongs to --forget.")
    import json

    from metricshuffle.cli.console import say, screen, show_progress
    from metricshuffle.planning.costs.joint_cost import joint_cost
    from metricshuffle.planning.costs.release_ledger import (
        EVERYBODY,
        ledger_groups,
        spendings,
        validate_group_name,
    )

    ledgers = [notes for path in files for notes in _notes(path)] if files else _ledgers_here()
    named = ledger_groups(ledgers)
    groups = named if people is None else [validate_group_name(people)]
    if groups[0] not in named:
        raise InputError(
            f"nothing was released about {groups[0]!r}; the ledger has {', '.join(named)}."
        )
    with show_progress("Counting") as progress:
        costs = {}
        for group in groups:
            progress(group)
            costs[group] = joint_cost(spendings(ledgers, group))
    if as_json:
        print(
            json.dumps(
                {"people": [{"people": group, **cost.document()} for group, cost in costs.items()]}
            )
        )
        return
    console = screen()
    for group, cost in costs.items():
        if len(named) > 1:
            others = (
                " (who are in no named group)"
                if group == EVERYBODY
                else f" (with what was released about {EVERYBODY})"
            )
            say(console, f"{group}{others}:")
        say(console, *cost.lines())


def _ledgers_here() -> list[LedgerContent]:
    """Read the analyst's ledgers in the current folder."""
    from metricshuffle.planning.costs.release_ledger import LedgerContent
    from metricshuffle.tasks.shuffle import SQLITE_HEADER

    ledgers = []
    for path in sorted(Path().glob("*.ledger")):
        with open(path, "rb") as stream:
            shufflers = stream.read(len(SQLITE_HEADER)) == SQLITE_HEADER
        ledgers += [] if shufflers else [LedgerContent.read(path)]
    if not ledgers:
        raise InputError(
            "there is no analyst's ledger in this folder; name a ledger, or a plan with releases."
        )
    return ledgers


def _notes(path: Path) -> list[LedgerContent]:
    """Read a ledger, or the records of a plan or task in all ledgers next to it."""
    from metricshuffle.cli.console import note
    from metricshuffle.collection.client.outbox import APPLICATION
    from metricshuffle.files import read_bytes
    from metricshuffle.planning.costs.release_ledger import (
        BUDGET_FORMAT,
        RELEASES_LEDGER,
        LedgerContent,
        find_ledgers,
    )
    from metricshuffle.tasks.shuffle import SQLITE_HEADER

    start = read_bytes(path)
    if start.startswith(SQLITE_HEADER) and start[68:72] == APPLICATION.to_bytes(4):
        raise InputError(f"{path} is an outbox, with reports of your own; give --outbox {path}.")
    if (
        path.suffix == ".ledger"
        or start.startswith(SQLITE_HEADER)
        or BUDGET_FORMAT.encode() in start[:200]
    ):
        return [LedgerContent.read(path)]
    digest = load_task(path).digest
    notes = []
    for ledger in find_ledgers(path.parent, digest):
        all_notes = LedgerContent.read(ledger)
        notes.append(
            LedgerContent(
                {digest: all_notes.tasks[digest]},
                tuple(row for row in all_notes.releases if row.task == digest),
            )
        )
        if others := len({row.task for row in all_notes.releases} - {digest}):
            several = f"{others} more task{'s' * (others != 1)}"
            note(
                f"{ledger} also has releases of {several}; `metricshuffle budget {ledger}` "
                "adds all of them up."
            )
    if not notes:
        note(
            f"No ledger beside {path} has a release of it "
            f"({path.with_name(RELEASES_LEDGER)} would be the one). If releases were recorded "
            "elsewhere (--ledger, or beside a collection in another folder), name that file."
        )
    return notes
