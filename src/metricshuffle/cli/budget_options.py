"""Options of the commands that keep count of releases."""

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
        "--ledger", metavar="FILE",
        help="Where releases are noted; releases.ledger beside the plan, task or collection if left out.",
    ),
]  # fmt: skip
People = Annotated[
    str,
    typer.Option(
        "--people", metavar="NAME",
        help="Whose rounds are counted, if a plan is used for several groups that have nobody in common; everybody's if left out.",
    ),
]  # fmt: skip
CountedRound = Annotated[
    int | None,
    typer.Option("--round", parser=whole, metavar="K", help="Which of the planned rounds this is, from 1; the next one if left out."),
]


def check_other_ledgers(task: Task, account: OpenLedger, ledger: Path | None, batch: Shuffled | None = None) -> None:
    """Raise if nobody named the ledger, and another one beside it has releases of the task that this one does not know.

    Earlier versions named ledgers after files, and `--ledger` names any. What is released now may stand in both.
    """
    if ledger is not None:
        return
    from metricshuffle.planning.costs.release_ledger import EVERYBODY, LedgerContent, RecordedRelease, find_ledgers

    known_releases = [
        *account.notes.releases,
        *([RecordedRelease.of(batch, EVERYBODY, raw_values_seen=False)] if batch is not None else []),
    ]
    for other_ledger in find_ledgers(account.path.parent, task.digest):
        if any(
            row.task == task.digest and not any(map(row.is_same_release, known_releases))
            for row in LedgerContent.read(other_ledger).releases
        ):
            raise InputError(
                f"{other_ledger} has releases of this very task that {account.path}, beside it, does not know of: give --ledger "
                f"{other_ledger} to "
                f"go on counting there, or --ledger {account.path} if these are other people."
            )


def choose_ledger(file: Path, task: Task, ledger: Path | None, output: Path | None) -> Budget:
    """The ledger that is named, or the one beside the plan, task or collection; refused if the output would replace it."""
    from metricshuffle.files import lock_path
    from metricshuffle.planning.costs.release_ledger import Budget

    budget = Budget.beside(file, task) if ledger is None else Budget(ledger)
    if output is not None and output.resolve() in (budget.path.resolve(), lock_path(budget.path)):
        raise InputError(f"--output {output} is the ledger, which must stay, or its lock; give another name.")
    return budget
