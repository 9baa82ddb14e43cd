"""Options of the commands that count releases."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from metricshuffle.cli.shared_options import whole
from metricshuffle.errors import InputError

if TYPE_CHECKING:
    from metricshuffle.planning.costs.release_ledger import Budget, OpenLedger
    from metricshuffle.protocols.tally import Shuffled
    from metricshuffle.tasks.task import Task

LedgerFile = Annotated[
    Path | None,
    typer.Option(
        "--ledger",
        metavar="FILE",
        help=(
            "File that records releases; if left out, releases.ledger in the folder of the "
            "plan, task or collection."
        ),
    ),
]
People = Annotated[
    str,
    typer.Option(
        "--people",
        metavar="NAME",
        help=(
            "Name of the group of people that reports, if the plan is used for several "
            "groups with no common member."
        ),
    ),
]
CountedRound = Annotated[
    int | None,
    typer.Option(
        "--round",
        parser=whole,
        metavar="K",
        help=("Number of this round among the planned ones, from 1; the next round if left out."),
    ),
]


def check_other_ledgers(
    task: Task, account: OpenLedger, ledger: Path | None, batch: Shuffled | None = None
) -> None:
    """Raise if another ledger in the folder has releases of the task that this one does not have.

    Another ledger can exist because earlier versions named ledgers after files, and `--ledger`
    takes any name. Nothing is checked if `--ledger` was given. The current release (`batch`) may
    be in another ledger.
    """
    if ledger is not None:
        return
    from metricshuffle.planning.costs.release_ledger import (
        EVERYBODY,
        LedgerContent,
        RecordedRelease,
        find_ledgers,
    )

    known_releases = [
        *account.notes.releases,
        *(
            [RecordedRelease.of(batch, EVERYBODY, raw_values_seen=False)]
            if batch is not None
            else []
        ),
    ]
    for other_ledger in find_ledgers(account.path.parent, task.digest):
        if any(
            row.task == task.digest and not any(map(row.is_same_release, known_releases))
            for row in LedgerContent.read(other_ledger).releases
        ):
            raise InputError(
                f"{other_ledger} has releases of this task that {account.path}, beside it, does "
                f"not have: give --ledger {other_ledger} to continue counting there, or --ledger "
                f"{account.path} if these are other people."
            )


def choose_ledger(file: Path, task: Task, ledger: Path | None, output: Path | None) -> Budget:
    """Return the named ledger or the one next to the file; raises if the output is that ledger."""
    from metricshuffle.files import lock_path
    from metricshuffle.planning.costs.release_ledger import Budget

    budget = Budget.beside(file, task) if ledger is None else Budget(ledger)
    if output is not None and output.resolve() in (budget.path.resolve(), lock_path(budget.path)):
        raise InputError(
            f"--output {output} is the ledger, which must stay, or its lock; give another name."
        )
    return budget
