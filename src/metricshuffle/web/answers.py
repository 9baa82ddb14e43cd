"""What the page shows of a question: the plan, the candidate that was chosen from it, and the charts and sentences about it."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from metricshuffle.errors import MetricShuffleError
from metricshuffle.pages.chapters.candidates import own_candidates
from metricshuffle.pages.chapters.failures import failures
from metricshuffle.pages.chapters.frontier import frontier
from metricshuffle.pages.chapters.headline import headline
from metricshuffle.pages.chapters.reach import reach
from metricshuffle.pages.charts.chart import Chart
from metricshuffle.pages.charts.curves import Curve, curves_chart
from metricshuffle.pages.charts.marks import BLUE
from metricshuffle.pages.collection import Collection
from metricshuffle.pages.elements import Figure, Table
from metricshuffle.pages.rendering import rendered
from metricshuffle.planning import Candidate, Plan
from metricshuffle.planning.advice import advice
from metricshuffle.planning.candidate import TRUST_ORDER
from metricshuffle.planning.explain import expected_text, explanation, name_of, rows, warnings, why_chosen
from metricshuffle.queries.sums import SummedQuery
from metricshuffle.web.asked import CARDS, Asked, Choice, asked, in_fields
from metricshuffle.web.fields import WrongFields
from metricshuffle.wire.wording import NO_QUESTION

OPTION_LABELS = {
    "--max-local-epsilon": "“Most that one report reveals”", "--max-bits": "“Most bits a person sends”", "--honest": "“Honest people”",
    "--distance": "“Distance”", "--most-items": "“At most”", "--samples": "samples", "--no-floor": "no floor (command line)",
}  # fmt: skip


@dataclass(frozen=True)
class Answered:
    """A question with its plan: `whole` compares all protocols, `plan` is the one that was chosen, by the page or by a person."""

    card: str
    asked: Asked
    whole: Plan
    plan: Plan
    options: tuple[tuple[str, str], ...]
    remark: str = ""

    @property
    def collection(self) -> Collection:
        return Collection.of(self.plan)


def answered(card: str, typed: Mapping[str, str], known: bytes | None = None) -> Answered:
    """The plan of a filled form; what is wrong with it stands beside a field. `known` is what was answered before, if it was kept."""
    if known is not None:
        kept: Answered = pickle.loads(known)  # noqa: S301 - from a worker of ours, by the server
        return kept
    question = asked(card, typed)
    try:
        whole = question.plan()
        return _chosen(card, question, whole)
    except WrongFields:
        raise
    except MetricShuffleError as wrong:
        raise in_fields(CARDS[card], wrong) from None


def _chosen(card: str, question: Asked, whole: Plan) -> Answered:
    if question.choice is None:
        return Answered(card, question, whole, whole, question.options)
    candidate = _candidate(whole, question.choice)
    if candidate is None:
        left = f"{question.choice.protocol} does not apply any more, so that the best is shown."
        return Answered(card, question, whole, whole, question.options, left)
    if candidate is whole.choice:
        return Answered(card, question, whole, whole, question.options)
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
    kept = tuple(pair for pair in question.options if pair[0] not in changed)
    return Answered(card, replace(narrow, choice=question.choice), whole, plan, (*kept, *options))


def _candidate(plan: Plan, choice: Choice) -> Candidate | None:
    """The row of the table that was chosen; that of the nearest shape if its own is gone."""
    like = [
        offer
        for offer in plan.candidates
        if (offer.protocol, offer.encoding or "", offer.trusted) == (choice.protocol, choice.encoding, choice.trusted)
    ]
    shape = int(choice.shape) if choice.shape.isdigit() else 0
    return min(like, key=lambda offer: abs((offer.shape or 0) - shape), default=None)


def choice_of(offer: Candidate) -> Choice:
    return Choice(offer.protocol, offer.encoding or "", offer.trusted, "" if offer.shape is None else str(offer.shape))


def answer_html(result: Answered, state: str) -> str:
    """The numbers, the sentences and the table: what changes while somebody slides. `state` is that of the form, without a choice."""
    plan, whole = result.plan, result.whole
    mine = choice_of(plan.choice)
    offers = [
        {
            "cells": cells[1:], "choice": str(choice_of(offer)), "chosen": _same(offer, plan.choice), "baseline": offer.baseline,
            "best": index == whole.chosen, "bits": offer.bits_per_user,
            "error": repr(offer.expected_error), "local": repr(offer.local_epsilon),
        }
        for index, (offer, cells) in enumerate(zip(whole.candidates, rows(whole), strict=True))
    ]  # fmt: skip
    return rendered(
        "web/answer.html.jinja",
        headline=headline(result.collection),
        title=plan.title,
        question=plan.question,
        no_question=NO_QUESTION,
        offers=offers,
        mine=mine,
        why=why_chosen(plan) if plan is whole else f"You chose {name_of(plan.choice)}; the page would choose {name_of(whole.choice)}.",
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


def _same(offer: Candidate, other: Candidate) -> bool:
    return choice_of(offer) == choice_of(other) and offer.expected_error == other.expected_error


def more_html(result: Answered) -> str:
    """Charts, what happens if, what is not hidden, and advice: what takes a second."""
    collection, plan = result.collection, result.plan
    sums = isinstance(plan.query, SummedQuery) and plan.choice.trusted in ("shuffler", "aggregator")
    return rendered(
        "web/more.html.jinja",
        candidates=_or_words(lambda: own_candidates(plan if len(plan.candidates) > 1 else result.whole)),
        reach=_or_words(lambda: reach(collection)),
        crowds=_or_words(lambda: crowds(result)),
        frontier=_or_words(lambda: frontier(plan)) if sums and result.plan is result.whole else None,
        failures=_or_words(lambda: failures(collection)),
        hidden=[in_labels(line) for line in explanation(plan)],
        advice=[in_labels(line) for line in _or_words(lambda: advice(plan, result.asked.wishes)) or []],
        refusals=plan.not_offered,
    )


def _or_words(made: Callable[[], Any]) -> Any:
    """A chapter, or None where it cannot be told."""
    try:
        return made()
    except MetricShuffleError:
        return None


@dataclass(frozen=True)
class Crowds:
    """Expected error against the number of people."""

    figure: Figure
    numbers: Table


def crowds(result: Answered) -> Crowds:
    """The same question to ten times fewer and more people, planned like this one."""
    plan, question = result.plan, result.asked
    share, made = plan.honest / plan.users, []
    for users in sorted({max(10, plan.users // 10), plan.users, min(10 * plan.users, 10**13)}):
        if users == plan.users:
            made.append((users, plan.choice))
            continue
        other = replace(question, first="privacy", epsilon=plan.target.epsilon, users=users)
        try:
            made.append((users, other.plan().choice))
        except MetricShuffleError:
            continue
    percent = 100.0 if plan.query.error_unit.startswith("%") else 1.0
    points = tuple((float(users), percent * offer.expected_error) for users, offer in made)
    unit = f" ({plan.query.error_unit})" if plan.query.error_unit else ""
    spec = curves_chart([Curve("", points, BLUE)], "people who report", f"expected error{unit}", log_x=True)
    told = ", ".join(f"{users:,} people: {expected_text(plan.query, offer.expected_error)}" for users, offer in made)
    chart = Chart(spec, "fig-crowds", "Expected error against the number of people", f"{told}.")
    caption = f"The best protocol for each number of people at the same epsilon, {share:.0%} of them honest. Both axes are logarithmic."
    table = Table(
        ("people", "protocol", "expected error"),
        [(f"{users:,}", name_of(offer), expected_text(plan.query, offer.expected_error)) for users, offer in made],
        numeric=(0, 2),
    )
    return Crowds(Figure(chart.drawing(), caption), table)


def in_labels(text: str) -> str:
    """A sentence that names options of the command line or arguments of Python, with the fields of the page in their places."""
    for option, label in OPTION_LABELS.items():
        text = text.replace(option, label).replace(f"`{option.removeprefix('--').replace('-', '_')}`", label)
    return text
