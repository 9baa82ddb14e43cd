"""The protocols that keep the targets of the demo, and which of them were chosen."""

from __future__ import annotations

from dataclasses import dataclass

from metricshuffle.planning import Plan
from metricshuffle.report.plan_view import plan_facts
from metricshuffle.report.sections.candidate_comparison import Candidates, candidates


@dataclass(frozen=True)
class Protocols:
    target: str
    users: int
    honest: int
    numbers: Candidates
    city: Candidates


def protocols(numbers: Plan, city: Plan) -> Protocols:
    plan = plan_facts(numbers)
    return Protocols(
        plan.target, plan.users, plan.honest, candidates(plan), candidates(plan_facts(city))
    )
