"""Chapter on the protocols that meet the target, and the chosen one."""

from __future__ import annotations

from dataclasses import dataclass

from metricshuffle.numerics.rounding import format_epsilon
from metricshuffle.planning import Plan
from metricshuffle.planning.plan_text import warnings
from metricshuffle.report.charts.plan_charts import (
    TRUST_COLOURS,
    candidates_chart,
    narrow_candidates,
)
from metricshuffle.report.charts.vega import VERMILLION, drawing
from metricshuffle.report.components import Figure, Key, TextTable
from metricshuffle.report.plan_view import CandidateView, PlanFacts, Refusal, plan_facts

HEAD = (
    "protocol",
    "encoding",
    "trusts",
    "expected error",
    "one liar moves it",
    "epsilon if it colludes",
    "bits per user",
    "",
)
CHART_CAPTION = (
    "Every protocol that meets the target; further left is better in both panels. Left (or "
    "above): expected error of the answer. Right (or below): what one report gives away if the "
    "trusted party colludes. Both axes are logarithmic; the ring marks the chosen protocol."
)


@dataclass(frozen=True)
class Candidates:
    """The candidates of a plan as a table, and the reason for its choice."""

    why: str
    candidates: TextTable
    refusals: tuple[Refusal, ...]


def candidates(plan: PlanFacts) -> Candidates:
    marks = [_mark(offer) for offer in plan.offers]
    rows = [(*_cells(offer), mark) for offer, mark in zip(plan.offers, marks, strict=True)]
    caption = (
        f"Epsilons are for {'any two labels' if plan.labels else plan.reach}; the promise is "
        f"the same for all: {plan.target}"
    )
    return Candidates(
        plan.why_chosen,
        TextTable(HEAD, rows, numeric=(3, 4, 5, 6), classes=marks, caption=caption),
        plan.refusals,
    )


@dataclass(frozen=True)
class OwnCandidates:
    """The candidates of one plan: its target and people, the table, a chart and warnings."""

    target: str
    users: int
    honest: int
    counted: bool
    """Whether the guarantee depends on honest people."""
    shown: Candidates
    figure: Figure
    warnings: tuple[str, ...]


def compare_own_candidates(plan: Plan | None) -> OwnCandidates | None:
    if plan is None:
        return None
    facts = plan_facts(plan)
    chart = candidates_chart(plan, name="fig-candidates")
    legend = [
        Key(f"trusts {trusted}", TRUST_COLOURS[trusted], shape="circle")
        for trusted in dict.fromkeys(offer.trusted for offer in facts.offers)
    ]
    chart_drawing = drawing(
        chart.spec, chart.name, chart.title, chart.description, narrow=narrow_candidates(plan)
    )
    figure = Figure(chart_drawing, CHART_CAPTION, (*legend, Key("chosen", VERMILLION, ring=True)))
    warning_texts = tuple(line.removeprefix("Warning: ") for line in warnings(plan))
    counted = plan.protocol.counts_on_honest
    return OwnCandidates(
        facts.target, facts.users, facts.honest, counted, candidates(facts), figure, warning_texts
    )


def _mark(offer: CandidateView) -> str:
    if offer.chosen:
        return "chosen"
    return "baseline" if offer.baseline else ""


def _cells(offer: CandidateView) -> tuple[str, ...]:
    return (
        offer.name,
        offer.encoding,
        offer.trusted,
        offer.error,
        offer.damage,
        "raw values" if offer.trusted == "curator" else format_epsilon(offer.local_epsilon),
        f"{offer.bits_per_user:,}",
    )
