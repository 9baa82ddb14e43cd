"""Chapter on failing assumptions, with the exact epsilon of each case."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from metricshuffle.numerics.rounding import format_delta, format_epsilon, format_number
from metricshuffle.protocols.noisy_vectors import NoisyVectors
from metricshuffle.protocols.vector_accounts import SINGLE_PERSON_REMARK
from metricshuffle.report.assessment_text import consequence_text
from metricshuffle.report.components import TextTable
from metricshuffle.report.failure_scenarios import (
    Consequence,
    ProtocolReview,
    consequences,
)
from metricshuffle.report.plan_view import CandidateView
from metricshuffle.report.report_subject import ReportSubject


@dataclass(frozen=True)
class Failures:
    tables: tuple[TextTable, ...]
    remarks: tuple[str, ...]
    trusted: str
    """The party that the collections trust."""
    mixed: bool
    """Whether reports are mixed or added up, so that the guarantee depends on honest people."""
    no_promise: bool
    """Whether a case has no certified epsilon although its noise alone has one."""
    farther: bool
    """Whether values can differ by more than the distance of the guarantee."""


def failures(*collections: ReportSubject) -> Failures:
    compared = [(collection, _offers(collection)) for collection in collections]
    cases = [consequences(*(rival for rival, _ in offers)) for collection, offers in compared]
    tables = tuple(
        _table(collection, offers, rows)
        for (collection, offers), rows in zip(compared, cases, strict=True)
    )
    every = [row for rows in cases for row in rows]
    return Failures(
        tables,
        tuple(
            sentence
            for collection, rows in zip(collections, cases, strict=True)
            for sentence in _remarks(collection, rows)
        ),
        trusted=collections[0].facts.trusted,
        mixed=collections[0].facts.counts_on_honest,
        no_promise=any(
            math.isinf(left) and math.isfinite(noise)
            for row in every
            for left, noise in zip(row.epsilons, row.noise_alone, strict=True)
        ),
        farther=any(row.group == "Someone moves farther" for row in every),
    )


def _offers(subject: ReportSubject) -> list[tuple[ProtocolReview, str]]:
    """The task's protocol, and geometric-shuffle if that is another one with a known mechanism."""
    own = subject.protocol_review
    plan = subject.plan_facts
    if plan is None or subject.plan is None:
        return [(own, subject.facts.protocol)]
    offers = [(own, f"{plan.choice.name} (chosen)")]
    geometric = plan.geometric_shuffle
    if (
        geometric is not None
        and _is_another(geometric, plan.choice)
        and geometric.candidate.mechanism is not None
    ):
        offers.append((ProtocolReview.of(subject.plan, geometric.candidate), geometric.name))
    return offers


def _is_another(geometric: CandidateView, choice: CandidateView) -> bool:
    return geometric.protocol != choice.protocol and choice.trusted == geometric.trusted


def _table(
    subject: ReportSubject,
    offers: Sequence[tuple[ProtocolReview, str]],
    cases: Sequence[Consequence],
) -> TextTable:
    facts = subject.facts
    rows = []
    before = ""
    for case in cases:
        group = "" if case.group == before else case.group
        cells = [_cell(subject, rival, case, index) for index, (rival, _) in enumerate(offers)]
        rows.append((group, case.situation, *cells))
        before = case.group
    return TextTable(
        head=("what happens", "", *(name for _, name in offers)),
        rows=rows,
        numeric=range(2, 2 + len(offers)),
        classes=["chosen" if case.planned else "" for case in cases],
        caption=(
            f"Epsilon of the {facts.kind} over {facts.domain}, delta {format_delta(facts.delta)}"
        ),
    )


def _cell(subject: ReportSubject, rival: ProtocolReview, case: Consequence, index: int) -> str:
    """Format an epsilon: with the guaranteed one if it differs, in words if numbers mislead."""
    text = consequence_text(case, index)
    epsilon = format_epsilon(subject.facts.epsilon)
    if case.planned and text != epsilon and math.isfinite(case.epsilons[index]):
        return f"{text} (promised: {epsilon}{_why_less(subject, rival, case.epsilons[index])})"
    if case.group.endswith("colludes"):
        if rival.protocol.trusted == "curator":
            return "raw values" if not subject.facts.items_each else "raw items"
        if not rival.protocol.hides_alone(subject.task.query):
            return f"in effect no protection ({text} on paper)"
    return text


def _why_less(subject: ReportSubject, rival: ProtocolReview, epsilon: float) -> str:
    """Phrase that says why one person's certified epsilon differs from the guaranteed one."""
    facts = subject.facts
    if epsilon > facts.epsilon:
        return ", by another bound"
    if facts.guarantee.protects == "people together":
        return ", for several people's moves together; this is one person's"
    if rival.is_uniform_metric and facts.in_proportion:
        return "; nearer values need that much noise, and all get it"
    return "; the noise hides more"


def _remarks(subject: ReportSubject, cases: Sequence[Consequence]) -> list[str]:
    """Sentences on what the table cannot show."""
    task = subject.task
    facts = subject.facts
    lines = []
    dropped = [case for case in cases if case.group == "Users drop out or collude"]
    if isinstance(task.protocol, NoisyVectors) and any(
        math.isinf(case.epsilons[0]) for case in dropped
    ):
        lines.append(
            "The noise is split into as many shares as the plan has honest people, "
            f"{task.protocol.sharers:,}. With fewer of them some noise is missing, and no "
            "epsilon is certified here for that case: plan with fewer honest people if you "
            "expect it."
        )
    if facts.items_each:
        lines.append(facts.full_replacement)
    remarks = task.protocol.remarks(task.query, subject.asked.target, task.honest, task.rounds)
    # The table has the remark about a single person already.
    lines += [remark for remark in remarks if not remark.startswith(SINGLE_PERSON_REMARK)]
    if task.protocol.grain != 1:
        rounded = f"{format_number(task.protocol.grain * task.protocol.step)}{facts.spaced_unit}"
        lines.append(
            f"Values are rounded at random to steps of {rounded} first; all epsilons count that in."
        )
    return lines
