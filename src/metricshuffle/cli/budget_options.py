"""Options of the commands that keep count of releases."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from metricshuffle.cli.options import whole
from metricshuffle.errors import InputError

if TYPE_CHECKING:
    from metricshuffle.planning.budget import Budget, OpenBudget
    from metricshuffle.protocols.tally import Shuffled
    from metricshuffle.wire.task import Task

LedgerFile = Annotated[
    Path | None,
    typer.Option("--ledger", metavar="FILE", help="Where releases are noted; beside PLAN (plan.json -> plan.ledger) if left out."),
]
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


def check_no_other(task: Task, account: OpenBudget, ledger: Path | None, batch: Shuffled | None = None) -> None:
    """Raise if nobody named the ledger, and another one beside it has releases of the task that this one does not know.

    Copies of a plan, and its task, have other names and so other ledgers. What is released now may stand in both.
    """
    if ledger is not None:
        return
    from metricshuffle.files import read_bytes
    from metricshuffle.planning.budget import BUDGET_FORMAT, EVERYBODY, Noted, Notes

    known = [*account.notes.releases, *([Noted.of(batch, EVERYBODY, raw_values_seen=False)] if batch is not None else [])]
    for other in sorted(account.path.parent.glob("*.ledger")):
        content = read_bytes(other) if other.is_file() else b""
        if BUDGET_FORMAT.encode() not in content[:200] or task.digest.encode() not in content:
            continue
        if any(row.task == task.digest and not any(map(row.same_as, known)) for row in Notes.read(other).releases):
            raise InputError(
                f"{other} has releases of this very task that {account.path}, beside this plan, does not know of: give --ledger {other} to "
                f"go on counting there, or --ledger {account.path} if these are other people."
            )


def ledger_of(plan_file: Path, ledger: Path | None, output: Path | None) -> Budget:
    """The ledger that is named, or the one beside the plan; refused if the output would replace it."""
    from metricshuffle.files import lock_of
    from metricshuffle.planning.budget import Budget

    budget = Budget.beside(plan_file) if ledger is None else Budget(ledger)
    if output is not None and output.resolve() in (budget.path.resolve(), lock_of(budget.path)):
        raise InputError(f"--output {output} is the ledger, which must stay, or its lock; give another name.")
    return budget
