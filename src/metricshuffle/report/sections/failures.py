"""When an assumption fails: the exact epsilons then."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from metricshuffle.numerics.rounding import format_delta, format_epsilon, format_number
from metricshuffle.protocols.noisy_vectors import SINGLE_PERSON_REMARK, NoisyVectors
from metricshuffle.report.assessment_text import consequence_text
from metricshuffle.report.components import Table
from metricshuffle.report.failure_scenarios import TRUSTED_MIXERS, Consequence, ProtocolReview, consequences
from metricshuffle.report.plan_view import Offer
from metricshuffle.report.report_subject import Collection


@dataclass(frozen=True)
class Failures:
    tables: tuple[Table, ...]
    remarks: tuple[str, ...]
    trusted: str
    """Whom the collections rely on."""
    mixed: bool
    """Reports are mixed or added up by somebody, so that the promise counts on honest people."""
    no_promise: bool
    """Somewhere nothing is certified although the noise alone would hide it."""
    farther: bool
    """Somebody can move farther than is promised."""


def failures(*collections: Collection) -> Failures:
    compared = [(collection, _offers(collection)) for collection in collections]
    cases = [consequences(*(rival for rival, _ in offers)) for collection, offers in compared]
    tables = tuple(_table(collection, offers, rows) for (collection, offers), rows in zip(compared, cases, strict=True))
    every = [row for rows in cases for row in rows]
    return Failures(
        tables,
        tuple(sentence for collection, rows in zip(collections, cases, strict=True) for sentence in _remarks(collection, rows)),
        trusted=collections[0].facts.trusted,
        mixed=collections[0].facts.trusted in TRUSTED_MIXERS,
        no_promise=any(
            math.isinf(left) and math.isfinite(noise) for row in every for left, noise in zip(row.epsilons, row.noise_alone, strict=True)
        ),
        farther=any(row.group == "Someone moves farther" for row in every),
    )


def _offers(collection: Collection) -> list[tuple[ProtocolReview, str]]:
    """The protocol of the task, beside geometric-shuffle where that is another one whose noise is at hand."""
    own, plan = collection.protocol_review, collection.plan_facts
    if plan is None or collection.plan is None:
        return [(own, collection.facts.protocol)]
    offers, geometric = [(own, f"{plan.choice.name} (chosen)")], plan.geometric_shuffle
    if geometric is not None and _is_another(geometric, plan.choice) and geometric.candidate.mechanism is not None:
        offers.append((ProtocolReview.of(collection.plan, geometric.candidate), geometric.name))
    return offers


def _is_another(geometric: Offer, choice: Offer) -> bool:
    return geometric.protocol != choice.protocol and choice.trusted == geometric.trusted


def _table(collection: Collection, offers: Sequence[tuple[ProtocolReview, str]], cases: Sequence[Consequence]) -> Table:
    facts = collection.facts
    rows = []
    before = ""
    for case in cases:
        group = "" if case.group == before else case.group
        cells = [_cell(collection, rival, case, index) for index, (rival, _) in enumerate(offers)]
        rows.append((group, case.situation, *cells))
        before = case.group
    return Table(
        head=("what happens", "", *(name for _, name in offers)),
        rows=rows,
        numeric=range(2, 2 + len(offers)),
        classes=["chosen" if case.planned else "" for case in cases],
        caption=f"Epsilon of the {facts.kind} over {facts.domain}, delta {format_delta(facts.delta)}",
    )


def _cell(collection: Collection, rival: ProtocolReview, case: Consequence, index: int) -> str:
    """The epsilon; what was promised beside it where that is another number, and words where a number would mislead."""
    text, epsilon = consequence_text(case, index), format_epsilon(collection.facts.epsilon)
    if case.planned and text != epsilon and math.isfinite(case.epsilons[index]):
        return f"{text} (promised: {epsilon}{_why_less(collection, rival, case.epsilons[index])})"
    if case.group.endswith("colludes"):
        if rival.protocol.trusted == "curator":
            return "raw values" if not collection.facts.items_each else "raw items"
        if rival.protocol.warning(collection.task.query):
            return f"in effect no protection ({text} on paper)"
    return text


def _why_less(collection: Collection, rival: ProtocolReview, epsilon: float) -> str:
    """Why what is certified of one person's move is another number than what is promised, in a phrase."""
    facts = collection.facts
    if epsilon > facts.epsilon:
        return ", by another bound"
    if facts.guarantee.protects == "people together":
        return ", for several people's moves together; this is one person's"
    if rival.is_uniform_metric and facts.in_proportion:
        return "; nearer values need that much noise, and all get it"
    return "; the noise hides more"


def _remarks(collection: Collection, cases: Sequence[Consequence]) -> list[str]:
    """What the table cannot say, in sentences."""
    task, facts = collection.task, collection.facts
    lines = []
    dropped = [case for case in cases if case.group == "Users drop out or collude"]
    if isinstance(task.protocol, NoisyVectors) and any(math.isinf(case.epsilons[0]) for case in dropped):
        lines.append(
            f"The noise was cut into as many shares as there are honest people in the plan, {task.protocol.sharers:,}. With fewer of them "
            "some of it is missing, and no formula here says what that is worth: plan with fewer honest people if you fear so."
        )
    if facts.items_each:
        lines.append(facts.full_replacement)
    remarks = task.protocol.remarks(task.query, collection.asked.target, task.honest, task.rounds)
    lines += [remark for remark in remarks if not remark.startswith(SINGLE_PERSON_REMARK)]  # (that is in the table)
    if task.protocol.grain != 1:
        rounded = f"{format_number(task.protocol.grain * task.protocol.step)}{facts.spaced_unit}"
        lines.append(f"Values are rounded at random to steps of {rounded} first; all epsilons count that in.")
    return lines
