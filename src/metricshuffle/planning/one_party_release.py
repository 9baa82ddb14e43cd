"""A release by one machine or cluster that plays all roles and so sees the raw values.

It randomizes and adds up the values, releases the answer, and records the release in the budget.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from metricshuffle.data.value_reading import Reading
from metricshuffle.planning.costs.release_ledger import (
    EVERYBODY,
    Budget,
    OpenLedger,
    validate_group_name,
)
from metricshuffle.protocols.tally import Tally
from metricshuffle.randomness import Randomness
from metricshuffle.tasks.release import Release
from metricshuffle.tasks.task import Task

if TYPE_CHECKING:
    from metricshuffle.planning.plan import Plan

TallyValues = Callable[[int], Tally]
"""Randomizes and sums all values for a round."""


def run_all_roles(
    plan: Plan | Task,
    tally_values: TallyValues,
    randomness: Randomness | None = None,
    *,
    reading: Reading,
    round: int | None = None,
    budget: Budget | None = None,
    people: str = EVERYBODY,
    publisher_noise: bool = False,
) -> Release:
    """Release one round, and record it in the budget if there is one.

    If `round` is None, it is the next free round of the budget, or round 1 without a budget.
    """
    if budget is None:
        return plan.release_tally(
            tally_values(1 if round is None else round),
            randomness,
            reading=reading,
            publisher_noise=publisher_noise,
        )
    group = validate_group_name(people)
    with budget.opened() as open_ledger:
        release = release_round(
            plan,
            tally_values,
            open_ledger,
            randomness,
            reading=reading,
            round=round,
            group=group,
            publisher_noise=publisher_noise,
        )
        open_ledger.record(release.task, release.shuffled, group, raw_values_seen=True)
    return release


def release_round(
    plan: Plan | Task,
    tally_values: TallyValues,
    open_ledger: OpenLedger,
    randomness: Randomness | None = None,
    *,
    reading: Reading,
    round: int | None,
    group: str,
    publisher_noise: bool = False,
) -> Release:
    """Release the next round of an open ledger, or `round` if it is free, without recording it."""
    task = plan if isinstance(plan, Task) else plan.task
    number = open_ledger.round_for(task, group, round)
    return plan.release_tally(
        tally_values(number), randomness, reading=reading, publisher_noise=publisher_noise
    )
