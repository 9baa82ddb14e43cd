"""Texts for pages about collections: the demo collection, and the assessment of any collection."""

from __future__ import annotations

import math
from dataclasses import dataclass

from metricshuffle.numerics.rounding import format_epsilon, format_number
from metricshuffle.planning import Plan
from metricshuffle.privacy.guarantee import likelihood_text
from metricshuffle.report.failure_scenarios import Consequence
from metricshuffle.report.plan_view import ReleaseFacts, TaskFacts, release_facts
from metricshuffle.report.report_subject import ReportSubject
from metricshuffle.tasks.release import Release
from metricshuffle.tasks.wording import question_sentence

Answer = float | tuple[float, float]

# How an answer becomes a report, by the kind of protocol; each text continues "Before anything
# leaves a person's device, ".
RANDOMIZED_TEXTS = {
    "sums": "random noise is added to the answer",
    "frequencies": "the answer is replaced by one that is drawn at random",
    "noisy-vectors": "random noise is added to numbers that describe the answer",
    "noisy-answers": "random noise is added to the numbers that are asked for",
}


@dataclass(frozen=True)
class Study:
    """One collection of the demo: question, plan, release, and the truth of its invented people."""

    title: str
    asked: str
    """What each person is asked for; continues "people are asked for ..."."""
    plan: Plan
    release: Release
    truth: Answer

    @property
    def error(self) -> float:
        """|estimate - truth|, Euclidean on a plane."""
        return release_facts(self.release).error(self.truth)

    @property
    def collection(self) -> ReportSubject:
        return ReportSubject.of(self.plan, self.release)


def consequence_text(row: Consequence, index: int) -> str:
    """Format the epsilon of one protocol in a row.

    If it is infinite only because of the mixing of shares, the text also has the epsilon of the
    noise alone.
    """
    epsilon = row.epsilons[index]
    noise = row.noise_alone[index]
    if math.isfinite(epsilon) or not math.isfinite(noise):
        return format_epsilon(epsilon)
    return f"no promise (noise alone: {format_epsilon(noise)})"


def fallback_text(facts: TaskFacts) -> str:
    """The guarantee that remains if the trusted party colludes, as a phrase or an epsilon."""
    if facts.trusted == "curator":
        return "raw values" if not facts.items_each else "raw items"
    if not facts.hides_alone:
        return "in effect no protection"
    return format_epsilon(facts.fallback.epsilon)


def default_question_text(facts: TaskFacts) -> str:
    """Default text for what each person is asked for; continues "people are asked for ..."."""
    if facts.items_each:
        return "the items that they hold"
    return "one of these labels each" if facts.labels else "one value each"


def precision_text(facts: TaskFacts, release: ReleaseFacts) -> str:
    """The 95 % interval of a release; for a table, the typical and the largest half-width."""
    if release.value:
        return f"{release.interval_text}{facts.spaced_unit}"
    unit = " %" if release.percent else facts.spaced_unit
    typical, widest = (f"{format_number(half)}{unit}" for half in release.half_widths)
    return f"plus or minus {typical} for a typical row of the table, {widest} for the widest"


def assessment(subject: ReportSubject, question_text: str = "") -> list[str]:
    """Return paragraphs that a privacy officer can paste into an assessment.

    They say what is collected, what is guaranteed under which assumptions, what is not guaranteed,
    and how accurate the answer is.
    """
    facts = subject.facts
    question = subject.task.question
    collected = _collection(facts, question_text or default_question_text(facts))
    paragraphs = [
        collected if question is None else f"{collected} {question_sentence(question)}",
        _promise(facts),
    ]
    if facts.trusted != "nobody":
        paragraphs.append(_assumptions(facts))
    return [*paragraphs, _not_promised(facts), _accuracy(subject)]


def _collection(facts: TaskFacts, question_text: str) -> str:
    rounds = "" if facts.rounds == 1 else f", in each of {facts.rounds} rounds"
    lead = (
        f"Collection. {facts.users:,} people are asked for {question_text} "
        f"({facts.domain}){rounds}."
    )
    encoded = (
        f", {facts.encoding}{' encoding' if facts.protocol_kind == 'sums' else ''}"
        if facts.encoding
        else ""
    )
    named = f"protocol {facts.protocol}{encoded}"
    published = (
        f"publishes the {facts.kind} with "
        f"{'what is known of each row at 95 %' if facts.tabular else 'a 95 % interval'}"
    )
    if facts.trusted == "curator":
        return (
            f"{lead} They hand it to a curator as it is. The curator works out the answer, "
            "adds random noise from the operating system's "
            f"cryptographic generator once ({named}), and {published}; nobody else sees a "
            "single answer."
        )
    adds = ", adds random messages of its own" if facts.protocol_kind == "shuffler-noise" else ""
    seen = {
        "nobody": f"The analyst sees the reports, and {published}.",
        "shuffler": f"A shuffler mixes the messages of all people{adds} and forgets who sent "
        f"which; the analyst sees the mixture only, and {published}.",
        "aggregator": (
            "An aggregator adds the reports up and forgets them; the analyst sees the sums "
            f"only, and {published}."
        ),
    }[facts.trusted]
    messages = (
        "one message"
        if facts.messages_per_user == 1
        else f"{facts.messages_per_user:,} messages of equal length"
    )
    if not facts.changes_answers:
        return (
            f"{lead} They send it as it is, as {messages}, {facts.bits_per_user:,} bits in all "
            f"({named}). {seen}"
        )
    return (
        f"{lead} Before anything leaves a person's device, "
        f"{RANDOMIZED_TEXTS.get(facts.protocol_kind, 'the answer is randomized')}, with the "
        "operating system's cryptographic generator, and the report is sent as "
        f"{messages}, {facts.bits_per_user:,} bits in all "
        f"({named}). {seen}"
    )


def _promise(facts: TaskFacts) -> str:
    closer = (
        "; for answers closer together the factor is smaller still." if facts.in_proportion else "."
    )
    return (
        f"Promise. {facts.guarantee} In other words: of {facts.two}, whatever the analyst sees is "
        f"{likelihood_text(facts.epsilon, facts.guarantee.delta)}{closer}"
    )


def _assumptions(facts: TaskFacts) -> str:
    trusted = facts.trusted
    if trusted == "curator":
        return (
            "Assumptions. The curator, who sees what everybody holds, does not share it, "
            "and adds the noise as described. If the curator "
            f"does not, nothing is hidden. {facts.fallback}"
        )
    warned = f" {facts.warning}" if facts.warning else ""
    if not facts.counts_on_honest:
        return (
            f"Assumptions. The {trusted} does not share what it sees, and adds its messages as "
            f"described; nobody else need be honest. If the {trusted} does not keep to that, this "
            f"is left: {facts.fallback}{warned}"
        )
    return (
        f"Assumptions. The {trusted} does not share what it sees, and at least "
        f"{facts.honest:,} of the {facts.users:,} reports come from "
        f"people who follow the protocol; batches of fewer than {facts.minimum:,} reports "
        f"are refused. If the {trusted} does collude with "
        f"the analyst, this is left: {facts.fallback}{warned}"
    )


def _not_promised(facts: TaskFacts) -> str:
    times = "one release" if facts.rounds == 1 else f"{facts.rounds} releases together"
    distance_text = ""
    if facts.items_each:
        distance_text = f"{facts.full_replacement} "
    elif facts.diameter > facts.distance * (1.0 + 1e-9):
        distance_text = (
            f"About answers farther apart than {facts.reach}, up to "
            f"{facts.in_units(facts.diameter)} apart, from one end of the range to "
            "the other, nothing is promised: they may be told apart more easily. "
        )
    return (
        f"Not promised. {distance_text}That somebody took part, and how many did, is not "
        "hidden. People who send false reports "
        "can move the result. "
        f"This promise is for {times}: asking the same people again spends it again."
    )


def _accuracy(subject: ReportSubject) -> str:
    facts = subject.facts
    release = subject.release_facts
    expected = subject.expected_error
    expected_text = f"The {subject.task.query.measure} is {expected}"
    if release is None:
        return (
            f"Accuracy. {expected_text}. It is about the noise: it says nothing of people who "
            f"do not take part. Plan {facts.digest[:16]}."
        )
    which = "" if facts.rounds == 1 else f", round {release.round} of {facts.rounds}"
    spoiled = "".join(f" {text}" for text in release.spoiled if text != facts.warning)
    interval = (
        f"{release.smoothed} (95 %),"
        if release.smoothed
        else f"the 95 % interval {precision_text(facts, release)}"
    )
    return (
        f"Accuracy. {expected_text}; this release has {interval} from {release.reports:,} "
        f"reports{which}. "
        "That is about the noise: it says nothing of people who did not take part. Plan "
        f"{facts.digest[:16]}.{spoiled}"
    )
