"""The protocols that keep the target, and which of them was chosen."""

from __future__ import annotations

from dataclasses import dataclass

from metricshuffle.numerics.rounding import plain, promised
from metricshuffle.pages.elements import Table
from metricshuffle.pages.facts import Offer, PlanFacts, Refusal, plan_facts
from metricshuffle.planning import Plan

HEAD = ("protocol", "encoding", "trusts", "expected error", "epsilon if it colludes", "bits per user", "")


@dataclass(frozen=True)
class Candidates:
    """The table of a plan, and why it chose as it did."""

    why: str
    candidates: Table
    refusals: tuple[Refusal, ...]


@dataclass(frozen=True)
class Protocols:
    target: str
    users: int
    honest: int
    numbers: Candidates
    city: Candidates


def protocols(numbers: Plan, city: Plan) -> Protocols:
    plan = plan_facts(numbers)
    return Protocols(plan.target, plan.users, plan.honest, _candidates(plan), _candidates(plan_facts(city)))


def _candidates(plan: PlanFacts) -> Candidates:
    marks = [_mark(offer) for offer in plan.offers]
    rows = [(*_cells(offer, plan.spaced_unit), mark) for offer, mark in zip(plan.offers, marks, strict=True)]
    return Candidates(plan.why_chosen, Table(HEAD, rows, numeric=(3, 4, 5), classes=marks), plan.refusals)


def _mark(offer: Offer) -> str:
    if offer.chosen:
        return "chosen"
    return "baseline" if offer.baseline else ""


def _cells(offer: Offer, unit: str) -> tuple[str, ...]:
    return (
        offer.name,
        offer.encoding,
        offer.trusted,
        f"{plain(offer.expected_error)}{unit}",
        "raw values" if offer.trusted == "curator" else promised(offer.local_epsilon),
        f"{offer.bits_per_user:,}",
    )
