"""When an assumption fails: the exact epsilons then."""

from __future__ import annotations

from dataclasses import dataclass

from metricshuffle.pages.elements import Table
from metricshuffle.pages.facts import plan_facts
from metricshuffle.pages.what_if import consequences
from metricshuffle.pages.words import consequence_text
from metricshuffle.planning import Plan


@dataclass(frozen=True)
class Failures:
    tables: tuple[Table, ...]


def failures(*plans: Plan) -> Failures:
    return Failures(tuple(_table(plan) for plan in plans))


def _table(plan: Plan) -> Table:
    """The chosen protocol, beside geometric-shuffle where that is another one."""
    facts = plan_facts(plan)
    offers, geometric = [facts.choice], facts.geometric_shuffle
    if geometric is not None and geometric.protocol != facts.choice.protocol:
        offers.append(geometric)
    cases = consequences(plan, tuple(offer.candidate for offer in offers))
    rows = []
    before = ""
    for case in cases:
        group = "" if case.group == before else case.group
        rows.append((group, case.situation, *(consequence_text(case, index) for index in range(len(offers)))))
        before = case.group
    return Table(
        head=("what happens", "", *(offer.name + (" (chosen)" if offer.chosen else "") for offer in offers)),
        rows=rows,
        numeric=range(2, 2 + len(offers)),
        classes=["chosen" if case.planned else "" for case in cases],
        caption=f"Epsilon of the {facts.kind} over {facts.domain}, delta {facts.delta:g}",
    )
