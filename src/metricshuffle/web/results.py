"""Results of a question: its plan, the chosen candidate, and charts and sentences about it."""

from __future__ import annotations

import math
import pickle
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from metricshuffle.errors import MetricShuffleError
from metricshuffle.planning import Candidate, Plan
from metricshuffle.planning.advice import Wishes, advice
from metricshuffle.planning.candidate import TRUST_ORDER
from metricshuffle.planning.plan_for_error import plan_request
from metricshuffle.planning.plan_text import (
    candidate_rows,
    expected_error_text,
    explanation,
    option_words,
    protocol_label,
    warnings,
    why_chosen,
)
from metricshuffle.protocols.feature_estimates import FeatureEstimates
from metricshuffle.queries.summed_query import SummedQuery
from metricshuffle.report.charts.axis_charts import Curve
from metricshuffle.report.charts.chart import Chart
from metricshuffle.report.charts.labelled_curves import curves_chart
from metricshuffle.report.charts.vega import BLUE
from metricshuffle.report.components import Figure, TextTable
from metricshuffle.report.report_subject import ReportSubject
from metricshuffle.report.sections.candidate_comparison import compare_own_candidates
from metricshuffle.report.sections.epsilon_by_distance import reach
from metricshuffle.report.sections.failures import failures
from metricshuffle.report.sections.frontier import frontier
from metricshuffle.report.sections.headline import Headline, headline
from metricshuffle.report.template_engine import render_template
from metricshuffle.web.form_fields import FieldErrors
from metricshuffle.web.forms import CARDS, Choice, PlanForm, asked, field_errors_of

OPTION_LABELS = {
    "--max-local-epsilon": "“Most that one report reveals”",
    "--max-bits": "“Most bits a person sends”",
    "--max-dummies": "max-dummies (command line)",
    "--max-damage": "“Most that liars may move the answer”",
    "--liars": "“Liars”",
    "--honest": "“Honest people”",
    "--distance": "“Distance”",
    "--draw": "draw (command line)",
    "--floor": "“Floor”",
}


Chapter = TypeVar("Chapter")


@dataclass(frozen=True)
class PlanResult:
    """A question with its plans: `whole` compares all protocols, `plan` uses the chosen one.

    The page chooses the protocol, or a person does.
    """

    card: str
    asked: PlanForm
    whole: Plan
    plan: Plan
    remark: str = ""

    @property
    def collection(self) -> ReportSubject:
        return ReportSubject.of(self.plan)


def load_result(card: str, typed: Mapping[str, str], known: bytes | None = None) -> PlanResult:
    """Plan a filled form, or load the cached result `known`; errors name their fields."""
    if known is not None:
        result: PlanResult = pickle.loads(known)  # noqa: S301 - from our own worker
        return result
    question = asked(card, typed)
    try:
        whole = plan_request(question.request)
        return _choose_candidate(card, question, whole)
    except FieldErrors:
        raise
    except MetricShuffleError as error:
        raise field_errors_of(CARDS[card], error) from None


def _choose_candidate(card: str, question: PlanForm, whole: Plan) -> PlanResult:
    if question.choice is None:
        return PlanResult(card, question, whole, whole)
    candidate = _candidate(whole, question.choice)
    if candidate is None:
        remark = f"{question.choice.protocol} no longer applies, so the best protocol is shown."
        return PlanResult(card, question, whole, whole, remark)
    if candidate is whole.choice:
        return PlanResult(card, question, whole, whole)
    request = question.request
    limits: dict[str, Any] = {"protocols": [candidate.protocol]}
    if request.query.kind in ("mean", "sum") and candidate.encoding in ("unary", "modular"):
        limits["encoding"] = candidate.encoding
    if isinstance(candidate.mechanism, FeatureEstimates) and candidate.trusted != "curator":
        limits["floor"] = "never" if candidate.mechanism.floor is None else "always"
    if TRUST_ORDER[candidate.trusted] > TRUST_ORDER[request.trusted]:
        limits["trusted"] = candidate.trusted
    narrow = request.changed(**limits)
    plan = plan_request(narrow)
    if (plan.choice.shape, plan.choice.trusted) != (candidate.shape, candidate.trusted):
        # A plan takes the most accurate of several shapes; a limit on the local epsilon makes it
        # take another one.
        narrow = narrow.changed(max_local_epsilon=candidate.local_epsilon)
        plan = plan_request(narrow)
    return PlanResult(card, PlanForm(narrow, question.choice), whole, plan)


def _candidate(plan: Plan, choice: Choice) -> Candidate | None:
    """Return the candidate of the chosen row, or of the nearest shape if that row is gone."""
    matching = [
        offer
        for offer in plan.candidates
        if (offer.protocol, offer.encoding or "", offer.trusted)
        == (choice.protocol, choice.encoding, choice.trusted)
    ]
    shape = int(choice.shape) if choice.shape.isdigit() else 0
    return min(matching, key=lambda offer: abs((offer.shape or 0) - shape), default=None)


def choice_of(offer: Candidate) -> Choice:
    return Choice(
        offer.protocol,
        offer.encoding or "",
        offer.trusted,
        "" if offer.shape is None else str(offer.shape),
    )


def answer_html(result: PlanResult, state: str) -> str:
    """Render numbers, sentences and the table, which change while a slider is moved.

    `state` is the state of the form without a chosen candidate.
    """
    plan = result.plan
    whole = result.whole
    mine = choice_of(plan.choice)
    offers = [
        {
            "cells": cells[1:],
            "choice": str(choice_of(offer)),
            "chosen": _same(offer, plan.choice),
            "baseline": offer.baseline,
            "best": index == whole.chosen,
            "bits": offer.bits_per_user,
            "error": repr(offer.expected_error),
            "local": repr(offer.local_epsilon),
            "damage": repr(math.inf if offer.damage is None else offer.damage.sort_key),
        }
        for index, (offer, cells) in enumerate(
            zip(whole.candidates, candidate_rows(whole), strict=True)
        )
    ]
    key_numbers = headline(result.collection)
    return render_template(
        "web/answer.html.jinja",
        headline=key_numbers,
        title=plan.title,
        question=plan.question,
        offers=offers,
        mine=mine,
        why=in_labels(why_chosen(plan, option_words))
        if plan is whole
        else f"You chose {protocol_label(plan.choice)}; the page would choose "
        f"{protocol_label(whole.choice)}.",
        glance=glance(key_numbers),
        cautions=[
            *filter(None, [result.remark]),
            *map(in_labels, key_numbers.notices),
            *map(in_labels, warnings(plan)),
        ],
        state=state,
        numbers={
            "expected-error": repr(plan.choice.expected_error),
            "epsilon": repr(plan.guarantee.epsilon),
            "local-epsilon": repr(plan.if_shuffler_colludes.epsilon),
            "target-epsilon": repr(plan.target.epsilon),
            "digest": plan.digest,
        },
        in_labels=in_labels,
    )


def glance(key_numbers: Headline) -> list[tuple[str, str]]:
    """The key numbers in brief, for a line at the edge of a small screen."""
    error, honest, colluding, lying = key_numbers.numbers
    return [
        ("off by", f"{error.number} {error.unit}".rstrip()),
        ("epsilon", honest.number),
        ("one report", colluding.number),
        ("one liar", f"{lying.number} {lying.unit}".rstrip()),
    ]


def _same(offer: Candidate, chosen: Candidate) -> bool:
    return choice_of(offer) == choice_of(chosen) and offer.expected_error == chosen.expected_error


def more_html(result: PlanResult) -> str:
    """Render the parts that take a second: charts, failures, what is not hidden, and advice."""
    collection = result.collection
    plan = result.plan
    sums = isinstance(plan.query, SummedQuery) and plan.choice.trusted in ("shuffler", "aggregator")
    return render_template(
        "web/more.html.jinja",
        candidates=_or_none(
            lambda: compare_own_candidates(plan if len(plan.candidates) > 1 else result.whole)
        ),
        reach=_or_none(lambda: reach(collection)),
        crowds=_or_none(lambda: crowds(result)),
        frontier=_or_none(lambda: frontier(plan)) if sums and result.plan is result.whole else None,
        failures=_or_none(lambda: failures(collection)),
        hidden=[in_labels(line) for line in explanation(plan)],
        advice=[
            in_labels(line)
            for line in _or_none(lambda: advice(plan, Wishes.of(result.asked.request))) or []
        ],
        refusals=plan.not_offered,
    )


def _or_none(build: Callable[[], Chapter]) -> Chapter | None:
    """Return a chapter, or None if it cannot be computed."""
    try:
        return build()
    except MetricShuffleError:
        return None


@dataclass(frozen=True)
class ErrorByUsers:
    """Expected error against the number of people."""

    figure: Figure
    numbers: TextTable


def crowds(result: PlanResult) -> ErrorByUsers:
    """Plan the same question for ten times fewer and ten times more people."""
    plan = result.plan
    request = result.asked.request
    share = plan.honest / plan.users
    planned_offers = []
    for users in sorted({max(10, plan.users // 10), plan.users, min(10 * plan.users, 10**13)}):
        if users == plan.users:
            planned_offers.append((users, plan.choice))
            continue
        try:
            resized = request.changed(target=plan.target, error=None, users=users)
            planned_offers.append((users, plan_request(resized).choice))
        except MetricShuffleError:
            continue
    percent = 100.0 if plan.query.error_unit.startswith("%") else 1.0
    points = tuple(
        (float(users), percent * offer.expected_error) for users, offer in planned_offers
    )
    unit = f" ({plan.query.error_unit})" if plan.query.error_unit else ""
    spec = curves_chart(
        [Curve("", points, BLUE)], "people who report", f"expected error{unit}", log_x=True
    )
    description = ", ".join(
        f"{users:,} people: {expected_error_text(plan.query, offer.expected_error)}"
        for users, offer in planned_offers
    )
    chart = Chart(
        spec, "fig-crowds", "Expected error against the number of people", f"{description}."
    )
    caption = (
        f"The best protocol for each number of people at the same epsilon, {share:.0%} of them "
        "honest. Both axes are logarithmic."
    )
    table = TextTable(
        ("people", "protocol", "expected error"),
        [
            (
                f"{users:,}",
                protocol_label(offer),
                expected_error_text(plan.query, offer.expected_error),
            )
            for users, offer in planned_offers
        ],
        numeric=(0, 2),
    )
    return ErrorByUsers(Figure(chart.drawing(), caption), table)


def in_labels(text: str) -> str:
    """Replace command line options and Python arguments in a sentence by labels of the page."""
    for option, label in OPTION_LABELS.items():
        text = text.replace(option, label).replace(
            f"`{option.removeprefix('--').replace('-', '_')}`", label
        )
    return text
