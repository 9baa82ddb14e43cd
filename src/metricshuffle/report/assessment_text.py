"""What the pages say in words: one collection of the demo, and the paragraphs for an assessment of any collection."""

from __future__ import annotations

import math
from dataclasses import dataclass

from metricshuffle.numerics.rounding import format_epsilon, format_number
from metricshuffle.planning import Plan
from metricshuffle.privacy.guarantee import likelihood_text
from metricshuffle.report.failure_scenarios import Consequence
from metricshuffle.report.plan_view import ReleaseFacts, TaskFacts, release_facts
from metricshuffle.report.report_subject import Collection
from metricshuffle.tasks.release import Release
from metricshuffle.tasks.wording import question_sentence

Answer = float | tuple[float, float]

# How an answer becomes a report, by the kind of protocol, as it continues "Before anything leaves a person's device, ".
RANDOMIZED_TEXTS = {
    "sums": "random noise is added to the answer",
    "frequencies": "the answer is replaced by one that is drawn at random",
    "noisy-vectors": "random noise is added to numbers that describe the answer",
    "noisy-answers": "random noise is added to the numbers that are asked for",
}


@dataclass(frozen=True)
class Study:
    """One collection of the demo: what was asked, the plan, what came out, and (people being invented) the truth."""

    title: str
    asked: str
    """What each person is asked for, as it continues "people are asked for ..."."""
    plan: Plan
    release: Release
    truth: Answer

    @property
    def error(self) -> float:
        """|estimate - truth|, Euclidean on a plane."""
        return release_facts(self.release).error(self.truth)

    @property
    def collection(self) -> Collection:
        return Collection.of(self.plan, self.release)


def consequence_text(row: Consequence, index: int) -> str:
    """The epsilon of one protocol in a row; where the mixing of shares gives out, what the noise alone would do."""
    epsilon, noise = row.epsilons[index], row.noise_alone[index]
    if math.isfinite(epsilon) or not math.isfinite(noise):
        return format_epsilon(epsilon)
    return f"no promise (noise alone: {format_epsilon(noise)})"


def fallback_text(facts: TaskFacts) -> str:
    """What is left if whoever is trusted colludes, in a word or a number."""
    if facts.trusted == "curator":
        return "raw values" if not facts.items_each else "raw items"
    return "in effect no protection" if facts.warning else format_epsilon(facts.fallback.epsilon)


def default_question_text(facts: TaskFacts) -> str:
    """What each person is asked for, where nobody said it: as it continues "people are asked for ..."."""
    if facts.items_each:
        return "the items that they hold"
    return "one of these labels each" if facts.labels else "one value each"


def precision_text(facts: TaskFacts, release: ReleaseFacts) -> str:
    """The 95 % interval of a release; of a table, how wide it typically is."""
    if release.value:
        return f"{release.interval_text}{facts.spaced_unit}"
    unit = " %" if release.percent else facts.spaced_unit
    typical, widest = (f"{format_number(half)}{unit}" for half in release.half_widths)
    return f"plus or minus {typical} for a typical row of the table, {widest} for the widest"


def assessment(collection: Collection, question_text: str = "") -> list[str]:
    """Paragraphs a privacy officer can paste: what is collected, what is promised, assuming what, what is not, how accurate."""
    facts = collection.facts
    question = collection.task.question
    collected = _collection(facts, question_text or default_question_text(facts))
    paragraphs = [collected if question is None else f"{collected} {question_sentence(question)}", _promise(facts)]
    if facts.trusted != "nobody":
        paragraphs.append(_assumptions(facts))
    return [*paragraphs, _not_promised(facts), _accuracy(collection)]


def _collection(facts: TaskFacts, question_text: str) -> str:
    rounds = "" if facts.rounds == 1 else f", in each of {facts.rounds} rounds"
    lead = f"Collection. {facts.users:,} people are asked for {question_text} ({facts.domain}){rounds}."
    encoded = f", {facts.encoding}{' encoding' if facts.protocol_kind == 'sums' else ''}" if facts.encoding else ""
    named = f"protocol {facts.protocol}{encoded}"
    published = f"publishes the {facts.kind} with {'what is known of each row at 95 %' if _is_table(facts) else 'a 95 % interval'}"
    if facts.trusted == "curator":
        return (
            f"{lead} They hand it to a curator as it is. The curator works out the answer, adds random noise from the operating system's "
            f"cryptographic generator once ({named}), and {published}; nobody else sees a single answer."
        )
    seen = {
        "nobody": f"The analyst sees the reports, and {published}.",
        "shuffler": "A shuffler mixes the messages of all people and forgets who sent which; the analyst sees the mixture only, and "
        f"{published}.",
        "aggregator": f"An aggregator adds the reports up and forgets them; the analyst sees the sums only, and {published}.",
    }[facts.trusted]
    messages = "one message" if facts.messages_per_user == 1 else f"{facts.messages_per_user:,} messages of equal length"
    return (
        f"{lead} Before anything leaves a person's device, "
        f"{RANDOMIZED_TEXTS.get(facts.protocol_kind, 'the answer is randomized')}, with the "
        f"operating system's cryptographic generator, and the report is sent as {messages}, {facts.bits_per_user:,} bits in all "
        f"({named}). {seen}"
    )


def _is_table(facts: TaskFacts) -> bool:
    return facts.kind in ("histogram", "map", "user-histogram", "user-linear")


def _promise(facts: TaskFacts) -> str:
    closer = "; for answers closer together the factor is smaller still." if facts.in_proportion else "."
    return (
        f"Promise. {facts.guarantee} In other words: of {facts.two}, whatever the analyst sees is "
        f"{likelihood_text(facts.epsilon, facts.guarantee.delta)}{closer}"
    )


def _assumptions(facts: TaskFacts) -> str:
    trusted = facts.trusted
    if trusted == "curator":
        return (
            "Assumptions. The curator, who sees what everybody holds, does not share it, and adds the noise as described. If the curator "
            f"does not, nothing is hidden. {facts.fallback}"
        )
    warned = f" {facts.warning}" if facts.warning else ""
    return (
        f"Assumptions. The {trusted} does not share what it sees, and at least {facts.honest:,} of the {facts.users:,} reports come from "
        f"people who follow the protocol; batches of fewer than {facts.minimum:,} reports are refused. If the {trusted} does collude with "
        f"the analyst, this is left: {facts.fallback}{warned}"
    )


def _not_promised(facts: TaskFacts) -> str:
    times = "one release" if facts.rounds == 1 else f"{facts.rounds} releases together"
    distance_text = ""
    if facts.items_each:
        distance_text = f"{facts.full_replacement} "
    elif facts.diameter > facts.distance * (1.0 + 1e-9):
        distance_text = (
            f"About answers farther apart than {facts.reach}, up to {facts.in_units(facts.diameter)} apart, from one end of the range to "
            "the other, nothing is promised: they may be told apart more easily. "
        )
    return (
        f"Not promised. {distance_text}That somebody took part, and how many did, is not hidden. People who send false reports "
        "can move the result. "
        f"This promise is for {times}: asking the same people again spends it again."
    )


def _accuracy(collection: Collection) -> str:
    facts, release = collection.facts, collection.release_facts
    expected = collection.expected_error
    expected_text = f"The {collection.task.query.measure} is {expected}"
    if release is None:
        return (
            f"Accuracy. {expected_text}. It is about the noise: it says nothing of people who do not take part. Plan {facts.digest[:16]}."
        )
    which = "" if facts.rounds == 1 else f", round {release.round} of {facts.rounds}"
    spoiled = "".join(f" {sentence}" for sentence in release.spoiled)
    interval = f"{release.smoothed} (95 %)," if release.smoothed else f"the 95 % interval {precision_text(facts, release)}"
    return (
        f"Accuracy. {expected_text}; this release has {interval} from {release.reports:,} reports{which}. "
        f"That is about the noise: it says nothing of people who did not take part. Plan {facts.digest[:16]}.{spoiled}"
    )
