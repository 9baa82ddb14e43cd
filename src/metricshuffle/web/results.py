"""What the page shows of a question: the plan, the candidate that was chosen from it, and the charts and sentences about it."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from metricshuffle.errors import MetricShuffleError
from metricshuffle.planning import Candidate, Plan
from metricshuffle.planning.advice import advice
from metricshuffle.planning.candidate import TRUST_ORDER
from metricshuffle.planning.plan_text import candidate_rows, expected_error_text, explanation, protocol_label, warnings, why_chosen
from metricshuffle.queries.summed_query import SummedQuery
from metricshuffle.report.charts.chart import Chart
from metricshuffle.report.charts.labelled_curves import Curve, curves_chart
from metricshuffle.report.charts.vega import BLUE
from metricshuffle.report.components import Figure, Table
from metricshuffle.report.report_subject import Collection
from metricshuffle.report.sections.candidate_comparison import compare_own_candidates
from metricshuffle.report.sections.failures import failures
from metricshuffle.report.sections.frontier import frontier
from metricshuffle.report.sections.headline import headline
from metricshuffle.report.sections.reach_curve import reach
from metricshuffle.report.template_engine import render_template
from metricshuffle.tasks.wording import NO_QUESTION
from metricshuffle.web.form_fields import FieldErrors
from metricshuffle.web.forms import CARDS, Choice, PlanForm, asked, field_errors_of

OPTION_LABELS = {
    "--max-local-epsilon": "“Most that one report reveals”", "--max-bits": "“Most bits a person sends”", "--honest": "“Honest people”",
    "--distance": "“Distance”", "--most-items": "“At most”", "--samples": "samples", "--no-floor": "no floor (command line)",
}  # fmt: skip


@dataclass(frozen=True)
class PlanResult:
    """A question with its plan: `whole` compares all protocols, `plan` is the one that was chosen, by the page or by a person."""

    card: str
    asked: PlanForm
    whole: Plan
    plan: Plan
    options: tuple[tuple[str, str], ...]
    remark: str = ""

    @property
    def collection(self) -> Collection:
        return Collection.of(self.plan)


def load_result(card: str, typed: Mapping[str, str], known: bytes | None = None) -> PlanResult:
    """The plan of a filled form; what is wrong with it stands beside a field. `known` is what was answered before, if it was kept."""
    if known is not None:
        result: PlanResult = pickle.loads(known)  # noqa: S301 - from a worker of ours, by the server
        return result
    question = asked(card, typed)
    try:
        whole = question.plan()
        return _choose_candidate(card, question, whole)
    except FieldErrors:
        raise
    except MetricShuffleError as error:
        raise field_errors_of(CARDS[card], error) from None


def _choose_candidate(card: str, question: PlanForm, whole: Plan) -> PlanResult:
    if question.choice is None:
        return PlanResult(card, question, whole, whole, question.options)
    candidate = _candidate(whole, question.choice)
    if candidate is None:
        remark = f"{question.choice.protocol} does not apply any more, so that the best is shown."
        return PlanResult(card, question, whole, whole, question.options, remark)
    if candidate is whole.choice:
        return PlanResult(card, question, whole, whole, question.options)
    limits: dict[str, Any] = {"protocols": [candidate.protocol]}
    options = [("--protocol", candidate.protocol)]
    if "encoding" in question.choices and candidate.encoding in ("unary", "modular"):
        limits["encoding"] = candidate.encoding
        options.append(("--encoding", candidate.encoding))
    if TRUST_ORDER[candidate.trusted] > TRUST_ORDER[question.choices["trusted"]]:
        limits["trusted"] = candidate.trusted
        options.append(("--trusted", candidate.trusted))
    narrow = question.narrowed(**limits)
    plan = narrow.plan()
    if (plan.choice.shape, plan.choice.trusted) != (candidate.shape, candidate.trusted):
        # Of noise with several shapes the most exact is taken; a limit on one report leads to the others.
        narrow = narrow.narrowed(max_local_epsilon=candidate.local_epsilon)
        options.append(("--max-local-epsilon", repr(candidate.local_epsilon)))
        plan = narrow.plan()
    changed = dict(options)
    kept_options = tuple(pair for pair in question.options if pair[0] not in changed)
    return PlanResult(card, replace(narrow, choice=question.choice), whole, plan, (*kept_options, *options))


def _candidate(plan: Plan, choice: Choice) -> Candidate | None:
    """The row of the table that was chosen; that of the nearest shape if its own is gone."""
    matching = [
        offer
        for offer in plan.candidates
        if (offer.protocol, offer.encoding or "", offer.trusted) == (choice.protocol, choice.encoding, choice.trusted)
    ]
    shape = int(choice.shape) if choice.shape.isdigit() else 0
    return min(matching, key=lambda offer: abs((offer.shape or 0) - shape), default=None)


def choice_of(offer: Candidate) -> Choice:
    return Choice(offer.protocol, offer.encoding or "", offer.trusted, "" if offer.shape is None else str(offer.shape))


def answer_html(result: PlanResult, state: str) -> str:
    """The numbers, the sentences and the table: what changes while somebody slides. `state` is that of the form, without a choice."""
    plan, whole = result.plan, result.whole
    mine = choice_of(plan.choice)
    offers = [
        {
            "cells": cells[1:], "choice": str(choice_of(offer)), "chosen": _same(offer, plan.choice), "baseline": offer.baseline,
            "best": index == whole.chosen, "bits": offer.bits_per_user,
            "error": repr(offer.expected_error), "local": repr(offer.local_epsilon),
        }
        for index, (offer, cells) in enumerate(zip(whole.candidates, candidate_rows(whole), strict=True))
    ]  # fmt: skip
    return render_template(
        "web/answer.html.jinja",
        headline=headline(result.collection),
        title=plan.title,
        question=plan.question,
        no_question=NO_QUESTION,
        offers=offers,
        mine=mine,
        why=why_chosen(plan)
        if plan is whole
        else f"You chose {protocol_label(plan.choice)}; the page would choose {protocol_label(whole.choice)}.",
        remark=result.remark,
        state=state,
        numbers={
            "expected-error": repr(plan.choice.expected_error),
            "epsilon": repr(plan.guarantee.epsilon),
            "local-epsilon": repr(plan.if_shuffler_colludes.epsilon),
            "target-epsilon": repr(plan.target.epsilon),
            "digest": plan.digest,
        },
        warnings=[in_labels(line) for line in warnings(plan)],
        in_labels=in_labels,
    )


def _same(offer: Candidate, chosen: Candidate) -> bool:
    return choice_of(offer) == choice_of(chosen) and offer.expected_error == chosen.expected_error


def more_html(result: PlanResult) -> str:
    """Charts, what happens if, what is not hidden, and advice: what takes a second."""
    collection, plan = result.collection, result.plan
    sums = isinstance(plan.query, SummedQuery) and plan.choice.trusted in ("shuffler", "aggregator")
    return render_template(
        "web/more.html.jinja",
        candidates=_or_none(lambda: compare_own_candidates(plan if len(plan.candidates) > 1 else result.whole)),
        reach=_or_none(lambda: reach(collection)),
        crowds=_or_none(lambda: crowds(result)),
        frontier=_or_none(lambda: frontier(plan)) if sums and result.plan is result.whole else None,
        failures=_or_none(lambda: failures(collection)),
        hidden=[in_labels(line) for line in explanation(plan)],
        advice=[in_labels(line) for line in _or_none(lambda: advice(plan, result.asked.wishes)) or []],
        refusals=plan.not_offered,
    )


def _or_none(build: Callable[[], Any]) -> Any:
    """A chapter, or None where it cannot be told."""
    try:
        return build()
    except MetricShuffleError:
        return None


@dataclass(frozen=True)
class ErrorByUsers:
    """Expected error against the number of people."""

    figure: Figure
    numbers: Table


def crowds(result: PlanResult) -> ErrorByUsers:
    """The same question to ten times fewer and more people, planned like this one."""
    plan, question = result.plan, result.asked
    share, planned_offers = plan.honest / plan.users, []
    for users in sorted({max(10, plan.users // 10), plan.users, min(10 * plan.users, 10**13)}):
        if users == plan.users:
            planned_offers.append((users, plan.choice))
            continue
        changed_question = replace(question, first="privacy", epsilon=plan.target.epsilon, users=users)
        try:
            planned_offers.append((users, changed_question.plan().choice))
        except MetricShuffleError:
            continue
    percent = 100.0 if plan.query.error_unit.startswith("%") else 1.0
    points = tuple((float(users), percent * offer.expected_error) for users, offer in planned_offers)
    unit = f" ({plan.query.error_unit})" if plan.query.error_unit else ""
    spec = curves_chart([Curve("", points, BLUE)], "people who report", f"expected error{unit}", log_x=True)
    description = ", ".join(f"{users:,} people: {expected_error_text(plan.query, offer.expected_error)}" for users, offer in planned_offers)
    chart = Chart(spec, "fig-crowds", "Expected error against the number of people", f"{description}.")
    caption = f"The best protocol for each number of people at the same epsilon, {share:.0%} of them honest. Both axes are logarithmic."
    table = Table(
        ("people", "protocol", "expected error"),
        [(f"{users:,}", protocol_label(offer), expected_error_text(plan.query, offer.expected_error)) for users, offer in planned_offers],
        numeric=(0, 2),
    )
    return ErrorByUsers(Figure(chart.drawing(), caption), table)


def in_labels(text: str) -> str:
    """A sentence that names options of the command line or arguments of Python, with the fields of the page in their places."""
    for option, label in OPTION_LABELS.items():
        text = text.replace(option, label).replace(f"`{option.removeprefix('--').replace('-', '_')}`", label)
    return text
